/* The upper halves of vector registers: of threads that change places, around calls, faults and
 * signals, and of a child. Prints what it finds; the same is said on the host. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define BYTES 512 /* sixteen registers of 32 */
#define UPPERS 576 /* where they are in what a handler finds */

struct image {
	unsigned char bytes[BYTES];
};

static struct image pattern(unsigned seed)
{
	struct image made;

	for (int i = 0; i < BYTES; i++)
		made.bytes[i] = (unsigned char)(seed * 37 + i * 11 + (i >> 5));
	return made;
}

#define EACH(M)                                                                                    \
	M("0") M("1") M("2") M("3") M("4") M("5") M("6") M("7") M("8") M("9") M("10") M("11")      \
	M("12") M("13") M("14") M("15")
#define LOAD(N) "vmovdqu 32*" N "(%[in]), %%ymm" N "\n\t"
#define STORE(N) "vmovdqu %%ymm" N ", 32*" N "(%[out])\n\t"
#define CLOBBERS                                                                                   \
	"rcx", "r11", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",    \
		"xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"

/* What is in all of them behind a call. */
static struct image behind_call(const struct image *in, long number, long first, long second)
{
	struct image out;
	long result = number;

	__asm__ volatile(EACH(LOAD) "syscall\n\t" EACH(STORE) "vzeroupper"
			 : "+a"(result)
			 : [in] "r"(in), [out] "r"(&out), "D"(first), "S"(second)
			 : CLOBBERS);
	return out;
}
/* Behind a fault, and a loop in which others have their turns. */
static struct image behind_fault(const struct image *in, char *page, long rounds)
{
	struct image out;

	__asm__ volatile(EACH(LOAD) "movb $1, (%[page])\n"
				    "1:	dec %[rounds]\n\t"
				    "jnz 1b\n\t" EACH(STORE) "vzeroupper"
			 : [rounds] "+r"(rounds)
			 : [in] "r"(in), [out] "r"(&out), [page] "r"(page)
			 : CLOBBERS);
	return out;
}
static int is_same(struct image left, struct image right)
{
	return memcmp(&left, &right, BYTES) == 0;
}

static void *change_places(void *seed)
{
	struct image own = pattern((unsigned)(uintptr_t)seed);
	char *pages = mmap(0, 64 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uintptr_t wrong = 0;

	for (int round = 0; round < 64; round++) {
		wrong += !is_same(own, behind_call(&own, SYS_sched_yield, 0, 0));
		wrong += !is_same(own, behind_fault(&own, pages + round * 4096, 100000));
	}
	return (void *)wrong;
}

static struct image found;
static int is_told, is_fresh;

static void handler(int number, siginfo_t *info, void *context)
{
	ucontext_t *words = context;
	unsigned char *image = (unsigned char *)words->uc_mcontext.fpregs;
	uint32_t software[5], end;
	struct image now;

	(void)number, (void)info;
	__asm__ volatile(EACH(STORE) "vzeroall" : : [out] "r"(&now) : CLOBBERS);
	is_fresh = 1;
	for (int n = 0; n < 16; n++)
		for (int i = 16; i < 32; i++)
			is_fresh &= now.bytes[32 * n + i] == 0;
	memcpy(software, image + 464, sizeof software);
	memcpy(&end, image + software[4], sizeof end);
	is_told = software[0] == 0x46505853 && software[1] == software[4] + 4 && end == 0x46505845 &&
		  (software[2] & 7) == 7 && (words->uc_flags & 7) == 7;
	for (int n = 0; n < 16; n++) {
		memcpy(found.bytes + 32 * n, image + 160 + 16 * n, 16);
		memcpy(found.bytes + 32 * n + 16, image + UPPERS + 16 * n, 16);
	}
	memset(image + UPPERS + 16 * 3, 0xa5, 16); /* of the fourth one, and what the header says */
	image[512] |= 7;
}

int main(void)
{
	pthread_t threads[6];
	uintptr_t wrong = 0;
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
	struct image own = pattern(99), changed = own;
	int status;

	for (uintptr_t n = 0; n < 6; n++)
		pthread_create(&threads[n], 0, change_places, (void *)(n + 1));
	for (int n = 0; n < 6; n++) {
		void *of_one;

		pthread_join(threads[n], &of_one);
		wrong += (uintptr_t)of_one;
	}
	printf("threads that found others' registers: %lu\n", (unsigned long)wrong);
	sigaction(SIGUSR1, &action, 0);
	memset(changed.bytes + 32 * 3 + 16, 0xa5, 16);
	struct image after = behind_call(&own, SYS_kill, getpid(), SIGUSR1);
	printf("a handler is told: %d, finds them: %d, begins without: %d\n", is_told,
	       is_same(own, found), is_fresh);
	printf("what it changed is there: %d\n", is_same(changed, after));
	struct image of_child = behind_call(&own, SYS_fork, 0, 0);
	if (waitpid(-1, &status, 0) < 0)
		_exit(is_same(own, of_child)); /* the child, which has none itself */
	printf("both have them behind a fork: %d %d\n", is_same(own, of_child), WEXITSTATUS(status));
	printf("a stack for handlers is large enough: %d\n", sysconf(_SC_MINSIGSTKSZ) >= 1200);
	return 0;
}
