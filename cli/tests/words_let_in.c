/*
 * A word that is waited for lies in a page whose coming a handler sees to, which itself wakes and waits for words meanwhile. What it prints
 * depends on nothing but the answers.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <fcntl.h>
#include <unistd.h>

#define PAGE 4096ul

static int handler;
static uint32_t elsewhere;

static void say(const char *what, long value)
{
	printf("%s: %ld%s%s\n", what, value, value < 0 ? " " : "", value < 0 ? strerror(errno) : "");
	fflush(stdout);
}

static long futex(void *at, int what, int value, void *limit, void *to, int last)
{
	return syscall(SYS_futex, at, what, value, limit, to, last);
}

/* Lets pages of ones in, as many as it is asked for, and uses words of its own before. */
static void *lets_in(void *count)
{
	static uint32_t ones[PAGE / 4];

	for (int i = 0; i < PAGE / 4; i++)
		ones[i] = 1;
	for (long n = 0; n < (long)count; n++) {
		struct timespec little = { 0, 1000000 };
		struct uffd_msg told;
		struct uffdio_copy in;

		if (read(handler, &told, sizeof told) != sizeof told)
			return (void *)-1l;
		futex(&elsewhere, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
		futex(&elsewhere, FUTEX_WAIT_PRIVATE, 0, &little, 0, 0);
		in = (struct uffdio_copy){ told.arg.pagefault.address & ~(PAGE - 1), (uintptr_t)ones, PAGE, 0, 0 };
		ioctl(handler, UFFDIO_COPY, &in);
	}
	return 0;
}

int main(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range;
	struct timespec little = { 0, 1000000 };
	uint32_t *at = mmap(0, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_t thread;
	void *answer;

	handler = syscall(SYS_userfaultfd, O_CLOEXEC);
	say("api", ioctl(handler, UFFDIO_API, &api));
	range = (struct uffdio_register){ { (uintptr_t)at, 4 * PAGE }, UFFDIO_REGISTER_MODE_MISSING, 0 };
	say("registered", ioctl(handler, UFFDIO_REGISTER, &range));
	pthread_create(&thread, 0, lets_in, (void *)4);
	say("another value", futex(at, FUTEX_WAIT_PRIVATE, 0, 0, 0, 0));
	say("the value", futex(at + PAGE / 4, FUTEX_WAIT_PRIVATE, 1, &little, 0, 0));
	say("of what others may share", futex(at + 2 * PAGE / 4, FUTEX_WAIT, 1, &little, 0, 0));
	say("moved where it is another", futex(at + 3 * PAGE / 4, FUTEX_CMP_REQUEUE_PRIVATE, 1, (void *)1, &elsewhere, 0));
	pthread_join(thread, &answer);
	say("all came in", (long)answer);
	return 0;
}
