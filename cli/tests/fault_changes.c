/*
 * Memory whose missing pages the program fills itself is dropped, moved, unmapped and forked: the handler is told. Prints what it is
 * told; two systems that print the same agree. Linux lets root alone be told of forks.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
#define EVENTS (UFFD_FEATURE_EVENT_FORK | UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP)

static char *base, source[PAGE] __attribute__((aligned(4096)));
static int quit[2], told;

static void say(const char *what, long answer)
{
	printf("%s: %ld%s%s\n", what, answer, answer < 0 ? " " : "", answer < 0 ? strerror(errno) : "");
}

static long at(unsigned long address)
{
	return ((long)address - (long)base) / (long)PAGE;
}

static long copy(int fd, unsigned long to)
{
	struct uffdio_copy asked = { to & ~(PAGE - 1), (unsigned long)source, PAGE, 0, 0 };

	return ioctl(fd, UFFDIO_COPY, &asked);
}

/* Waits until the handler has said so many lines. */
static void heard(int lines)
{
	for (int tries = 0; __atomic_load_n(&told, __ATOMIC_SEQ_CST) < lines && tries < 10000; tries++)
		usleep(1000);
}

/* Reads one message, says what it is, and answers it. */
static void answer(int *fds, int which)
{
	struct uffd_msg message;

	if (read(fds[which], &message, sizeof message) != sizeof message)
		return;
	switch (message.event) {
	case UFFD_EVENT_PAGEFAULT:
		printf("%d: missing %ld\n", which, at(message.arg.pagefault.address));
		memset(source, 10 + at(message.arg.pagefault.address), PAGE);
		if (copy(fds[which], message.arg.pagefault.address))
			say("copied", -1);
		break;
	case UFFD_EVENT_FORK:
		printf("%d: fork\n", which);
		fds[1] = message.arg.fork.ufd;
		printf("closes %d, waits %d\n", !!(fcntl(fds[1], F_GETFD) & FD_CLOEXEC), !(fcntl(fds[1], F_GETFL) & O_NONBLOCK));
		break;
	case UFFD_EVENT_REMAP:
		printf("%d: moved %ld to %ld, %ld\n", which, at(message.arg.remap.from), at(message.arg.remap.to), (long)(message.arg.remap.len / PAGE));
		break;
	case UFFD_EVENT_REMOVE:
	case UFFD_EVENT_UNMAP:
		printf("%d: %s %ld to %ld\n", which, message.event == UFFD_EVENT_REMOVE ? "dropped" : "unmapped", at(message.arg.remove.start),
		       at(message.arg.remove.end));
	}
	__atomic_add_fetch(&told, 1, __ATOMIC_SEQ_CST);
}

static void *answers(void *first)
{
	int fds[2] = { *(int *)first, -1 };

	for (;;) {
		struct pollfd all[] = { { fds[0], POLLIN, 0 }, { fds[1], POLLIN, 0 }, { quit[0], POLLIN, 0 } };

		if (poll(all, 3, 10000) < 1 || all[2].revents)
			return NULL;
		for (int nth = 0; nth < 2; nth++)
			if (all[nth].revents & POLLIN)
				answer(fds, nth);
		/* Memory that is gone answers no more. */
		if (fds[1] >= 0 && all[1].revents & (POLLERR | POLLHUP))
			fds[1] = -1;
	}
}

static int descriptor(int features, char *from, unsigned long pages)
{
	struct uffdio_api api = { UFFD_API, features, 0 };
	struct uffdio_register asked = { { (unsigned long)from, pages * PAGE }, UFFDIO_REGISTER_MODE_MISSING, 0 };
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	say("api", ioctl(fd, UFFDIO_API, &api));
	say("registered", ioctl(fd, UFFDIO_REGISTER, &asked));
	return fd;
}

static void *drops(void *page)
{
	madvise(page, PAGE, MADV_DONTNEED);
	return NULL;
}

static void at_work(int fd)
{
	pthread_t handler;
	int status;

	pthread_create(&handler, NULL, answers, &fd);
	char *there = base + 20 * PAGE, *end;
	long done = base[0];

	heard(1);
	say("first", done);
	done = base[PAGE];
	heard(2);
	say("second", done);
	done = madvise(base, 2 * PAGE, MADV_DONTNEED);
	heard(3);
	say("dropped", done);
	done = base[PAGE];
	heard(4);
	say("anew", done);
	say("advice that drops nothing", madvise(base, 2 * PAGE, MADV_SEQUENTIAL));
	madvise(base, 2 * PAGE, MADV_NORMAL);
	done = madvise(base, PAGE, MADV_FREE);
	heard(5);
	say("free", done);
	end = mremap(base, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, there);
	heard(7);
	say("moved", at((unsigned long)end));
	say("with it", there[PAGE]);
	done = there[2 * PAGE];
	heard(8);
	say("anew", done);
	end = mremap(there, 4 * PAGE, 3 * PAGE, 0);
	heard(9);
	say("made smaller", at((unsigned long)end));
	done = munmap(base + 4 * PAGE, PAGE);
	heard(10);
	say("unmapped", done);
	say("a hole", munmap(base + 4 * PAGE, PAGE));
	end = mmap(base + 5 * PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	heard(11);
	say("over it", at((unsigned long)end));
	end = mremap(there, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, base + 9 * PAGE);
	heard(14);
	say("moved over another", at((unsigned long)end));
	int child = fork();

	if (!child)
		_exit(base[6 * PAGE] + there[2 * PAGE]);
	waitpid(child, &status, 0);
	heard(16);
	say("a child", WEXITSTATUS(status));
	done = base[6 * PAGE];
	heard(17);
	say("its parent", done);
	if (write(quit[1], "", 1) != 1)
		exit(1);
	pthread_join(handler, NULL);
}

static void *touches(void *page)
{
	return (void *)(long)*(volatile char *)page;
}

static char *heap;

static void *shrinks(void *unused)
{
	(void)unused;
	brk(heap);
	return NULL;
}

/* The end of the heap is told; what a window of a file replaces is not. */
static void other_ways(void)
{
	struct uffd_msg message;
	pthread_t thread;

	heap = (char *)(((unsigned long)sbrk(0) + PAGE - 1) & ~(PAGE - 1));
	brk(heap + 2 * PAGE);

	int fd = descriptor(EVENTS, heap, 2);
	struct pollfd one = { fd, POLLIN, 0 };

	pthread_create(&thread, NULL, shrinks, NULL);
	say("told", poll(&one, 1, 10000));
	say("read", read(fd, &message, sizeof message) == sizeof message && message.event == UFFD_EVENT_UNMAP);
	say("from its new end on", (char *)message.arg.remove.start - heap);
	say("pages", (message.arg.remove.end - message.arg.remove.start) / PAGE);
	pthread_join(thread, NULL);
	close(fd);

	char *file = mmap(0, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	fd = descriptor(EVENTS, file, 4);
	say("another window", remap_file_pages(file, PAGE, 0, 2, 0));
	say("nothing to read", read(fd, &message, sizeof message));
	say("unmapped elsewhere", munmap(file, PAGE));
	say("nor later", read(fd, &message, sizeof message));
	close(fd);
}

int main(void)
{
	pthread_t thread, other;
	struct uffd_msg message;

	setbuf(stdout, NULL);
	alarm(60); /* nobody waits for ever */
	base = mmap(0, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	madvise(base, 64 * PAGE, MADV_NOHUGEPAGE);
	munmap(base + 10 * PAGE, 54 * PAGE);
	if (pipe(quit))
		return 1;
	int fd = descriptor(EVENTS, base, 10);

	at_work(fd);

	puts("-- two that wait for one page");
	struct pollfd one = { fd, POLLIN, 0 };

	pthread_create(&thread, NULL, touches, base + 7 * PAGE);
	pthread_create(&other, NULL, touches, base + 7 * PAGE);
	usleep(200000);
	say("read", read(fd, &message, sizeof message) == sizeof message && message.event == UFFD_EVENT_PAGEFAULT);
	say("copied", copy(fd, (unsigned long)base + 7 * PAGE));
	say("the other goes on untold", read(fd, &message, sizeof message));
	pthread_join(thread, NULL);
	pthread_join(other, NULL);

	puts("-- before it is read");

	pthread_create(&thread, NULL, drops, base + 7 * PAGE);
	say("told", poll(&one, 1, 10000));
	say("not now", copy(fd, (unsigned long)base + 7 * PAGE));
	say("read", read(fd, &message, sizeof message) == sizeof message && message.event == UFFD_EVENT_REMOVE);
	pthread_join(thread, NULL);
	say("now", copy(fd, (unsigned long)base + 7 * PAGE));
	pthread_create(&thread, NULL, drops, base + 8 * PAGE);
	say("told", poll(&one, 1, 10000));
	close(fd);
	pthread_join(thread, NULL);
	puts("closed, and it went on");

	puts("-- who asks for nothing");
	fd = descriptor(0, base + 6 * PAGE, 1);
	say("dropped", madvise(base + 6 * PAGE, PAGE, MADV_DONTNEED));
	int child = fork(), status;

	if (!child)
		_exit(base[6 * PAGE]);
	waitpid(child, &status, 0);
	say("a child", WEXITSTATUS(status));
	say("moved", at((unsigned long)mremap(base + 6 * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, base + 30 * PAGE)));
	say("nothing to read", read(fd, &message, sizeof message));
	close(fd);

	puts("-- other ways");
	other_ways();
	return 0;
}
