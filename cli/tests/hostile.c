/*
 * What a program may try against the kernel: arguments without end, numbers without end, a base that the processor refuses, an address that is
 * none, two that wait for one child, a child whose parent ends at the same moment; at last the first process ends while others fork. It is the
 * first process itself. Each part can be run alone: hostile PART. Ends with 0 where all is as on Linux.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS 60000
#define LENGTH 100000
#define ROUNDS 300

static int is_refused(long answer, int error)
{
	return answer == -1 && errno == error;
}

/* Six gigabytes of arguments, all of them one text. */
static int arguments(void)
{
	static char text[LENGTH + 1], *words[WORDS + 1];

	memset(text, 'x', LENGTH);
	for (int nth = 0; nth < WORDS; nth++)
		words[nth] = text;
	return is_refused(execve("/proc/self/exe", words, words), E2BIG);
}

static int numbers(void)
{
	int is_right = 1;

	for (long nth = 0; nth < 100000; nth++)
		is_right &= is_refused(syscall(1000000 + nth), ENOSYS);
	return is_right;
}

static int base(void)
{
	static char stack[4096];
	unsigned long flags = CLONE_VM | CLONE_SIGHAND | CLONE_THREAD | CLONE_SETTLS;

	return is_refused(syscall(SYS_clone, flags, stack + sizeof(stack), 0, 0, 1ul << 63), EPERM);
}

static int address(void)
{
	int free = dup(0), is_right;

	close(free);
	is_right = is_refused(syscall(SYS_pipe2, 8, 0), EFAULT);
	is_right &= dup(0) == free;
	close(free);
	return is_right;
}

static void *wait_for(void *child)
{
	int status;

	return (void *)(long)(waitpid((long)child, &status, 0) == (long)child);
}

static int one_child(void)
{
	int is_right = 1;

	for (int round = 0; round < ROUNDS; round++) {
		pthread_t one, two;
		void *got[2];
		long child = fork();

		if (!child)
			_exit(0);
		pthread_create(&one, 0, wait_for, (void *)child);
		pthread_create(&two, 0, wait_for, (void *)child);
		pthread_join(one, &got[0]);
		pthread_join(two, &got[1]);
		is_right &= (long)got[0] + (long)got[1] == 1;
	}
	return is_right;
}

/* All that end here come to the first process, whoever made them. */
static int orphans(void)
{
	int made = 0, came = 0, status;

	for (int round = 0; round < ROUNDS; round++) {
		if (!fork()) {
			fork();
			_exit(0);
		}
		made += 2;
		while (came < made && waitpid(-1, &status, 0) > 0)
			came++;
	}
	return came == made;
}

/* They go on for ever; the caller ends them by its own end. */
static int forks(void)
{
	for (int nth = 0; nth < 4; nth++)
		if (!fork())
			for (;;) {
				int child = fork();

				if (!child)
					_exit(0);
				waitpid(child, 0, 0);
			}
	usleep(20000);
	return 1;
}

int main(int count, char **words)
{
	static const struct { const char *name; int (*is_right)(void); } parts[] = {
		{ "arguments", arguments }, { "numbers", numbers }, { "base", base }, { "address", address },
		{ "one_child", one_child }, { "orphans", orphans }, { "forks", forks },
	};
	int wrong = 0;

	for (size_t nth = 0; nth < sizeof(parts) / sizeof(*parts); nth++) {
		if (count > 1 && strcmp(words[1], parts[nth].name))
			continue;
		if (!parts[nth].is_right()) {
			printf("wrong: %s\n", parts[nth].name);
			wrong = 1;
		}
	}
	return wrong;
}
