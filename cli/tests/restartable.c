/* Restartable sequences, as the C library registers them: threads count on the CPU that they run on
 * without a lock, and none of it is lost; the number of the CPU is told; what is refused. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/rseq.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 8
#define ADDED 200000
#define CPUS 64

static struct {
	long count;
	char room[56];
} counters[CPUS];

static struct rseq *own(void)
{
	return (void *)((char *)__builtin_thread_pointer() + __rseq_offset);
}

/* Adds one to the counter of the CPU that is expected, unless the thread was interrupted or runs on
 * another one. What lies between the load and the store is slow on purpose. */
static int add(long *counter, uint32_t cpu)
{
	asm goto(".pushsection .data.sections, \"aw\"\n"
		 ".balign 32\n"
		 "5: .long 0, 0\n"
		 ".quad 1f, 2f - 1f, 4f\n"
		 ".popsection\n"
		 "lea 5b(%%rip), %%rax\n"
		 "mov %%rax, 8(%0)\n"
		 "1: cmp %1, 4(%0)\n"
		 "jne 4f\n"
		 "mov (%2), %%rax\n"
		 "mov $60, %%ecx\n"
		 "3: dec %%ecx\n"
		 "jnz 3b\n"
		 "inc %%rax\n"
		 "mov %%rax, (%2)\n"
		 "2:\n"
		 ".pushsection .text.aborts, \"ax\"\n"
		 ".byte 0x0f, 0xb9, 0x3d\n"
		 ".long 0x53053053\n"
		 "4: jmp %l[again]\n"
		 ".popsection\n"
		 :
		 : "r"(own()), "r"(cpu), "r"(counter)
		 : "rax", "rcx", "memory", "cc"
		 : again);
	return 1;
again:
	return 0;
}

static void *adds(void *unused)
{
	for (long done = 0; done < ADDED;) {
		uint32_t cpu = *(volatile uint32_t *)&own()->cpu_id_start;

		done += add(&counters[cpu % CPUS].count, cpu);
	}
	return unused;
}

static long refused(long answer)
{
	return answer < 0 ? -errno : answer;
}

int main(void)
{
	pthread_t threads[THREADS];
	struct rseq *area = own();
	unsigned length = 32, mark = 0x53053053, cpu, wrong = 0;
	cpu_set_t all, one;
	long sum = 0;

	for (int each = 0; each < THREADS; each++)
		if (pthread_create(&threads[each], 0, adds, 0))
			return 1;
	for (int each = 0; each < THREADS; each++)
		pthread_join(threads[each], 0);
	for (int each = 0; each < CPUS; each++)
		sum += counters[each].count;
	printf("%ld of %d\n", sum, THREADS * ADDED);

	sched_getaffinity(0, sizeof all, &all);
	for (int each = 0; each < CPU_SETSIZE; each++) {
		if (!CPU_ISSET(each, &all))
			continue;
		CPU_ZERO(&one);
		CPU_SET(each, &one);
		sched_setaffinity(0, sizeof one, &one);
		syscall(SYS_getcpu, &cpu, 0, 0);
		wrong += cpu != (unsigned)each || area->cpu_id != cpu || area->cpu_id_start != cpu;
	}
	printf("%u wrong\n", wrong);

	if (!fork())
		_exit(area->cpu_id != area->cpu_id_start || (int)area->cpu_id < 0);
	wait((int *)&wrong);
	printf("child %x\n", wrong);

	printf("%ld\n", refused(syscall(SYS_rseq, area, length, 0, mark)));
	printf("%ld\n", refused(syscall(SYS_rseq, area, length, 0, mark + 1)));
	printf("%ld\n", refused(syscall(SYS_rseq, area + 1, length, 0, mark)));
	printf("%ld\n", refused(syscall(SYS_rseq, area, length, 2, mark)));
	printf("%ld\n", refused(syscall(SYS_rseq, area, length, 1, mark + 1)));
	printf("%ld\n", refused(syscall(SYS_rseq, area, length, 1, mark)));
	printf("%d %d\n", (int)area->cpu_id_start, (int)area->cpu_id);
	printf("%ld\n", refused(syscall(SYS_rseq, area, length, 1, mark)));
	printf("%ld\n", refused(syscall(SYS_rseq, area, length - 4, 0, mark)));
	printf("%ld\n", refused(syscall(SYS_rseq, (char *)area + 8, length, 0, mark)));
	printf("%ld\n", refused(syscall(SYS_rseq, -4096l, length, 0, mark)));

	/* A section whose abort bears another mark ends the process. */
	if (!fork()) {
		static struct {
			uint32_t version, flags;
			uint64_t start, bytes, abort;
		} section __attribute__((aligned(32)));

		section.start = (uintptr_t)add;
		section.bytes = 1;
		section.abort = (uintptr_t)main;
		syscall(SYS_rseq, area, length, 0, mark);
		*(volatile uint64_t *)((char *)area + 8) = (uintptr_t)&section;
		for (int each = 0; each < 100; each++)
			sched_yield(), usleep(1);
		_exit(0);
	}
	wait((int *)&wrong);
	printf("marked %x\n", wrong);
	return 0;
}
