/* How long ring 3 was, as the system tells it, of loops whose instructions are known. The clock
 * counts instructions: what comes and goes between ring 3 and the kernel is to be none of its own. */
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define ROUNDS 20000L
/* Of a loop, each. */
#define OWN 4L

static long own(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_utime.tv_sec * 1000000 + usage.ru_utime.tv_usec;
}

/* Instructions that each round took too many, in hundredths: a microsecond is 1,000 of them. */
static long beyond(long micros)
{
	return (micros * 1000 - ROUNDS * OWN) * 100 / ROUNDS;
}

int main(void)
{
	long left = ROUNDS, before, calls, faults;
	char *at = mmap(0, ROUNDS * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	before = own();
	__asm__ volatile("1: mov %1, %%eax\n\tsyscall\n\tdec %0\n\tjnz 1b"
			 : "+r"(left)
			 : "i"(SYS_getppid)
			 : "rax", "rcx", "r11", "memory");
	calls = own() - before;
	left = ROUNDS;
	before = own();
	__asm__ volatile("1: movb $1, (%0)\n\tadd $4096, %0\n\tdec %1\n\tjnz 1b"
			 : "+r"(at), "+r"(left)
			 :
			 : "memory");
	faults = own() - before;
	printf("%ld %ld\n", beyond(calls), beyond(faults));
	return 0;
}
