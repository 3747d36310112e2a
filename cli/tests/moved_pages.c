/*
 * Pages that a program moves from one place of its memory to another (UFFDIO_MOVE). Prints what the system answers; two systems that print
 * the same agree.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef UFFDIO_POISON
#define _UFFDIO_POISON 8
struct uffdio_poison {
	struct uffdio_range range;
	__u64 mode;
	__s64 updated;
};
#define UFFDIO_POISON _IOWR(UFFDIO, _UFFDIO_POISON, struct uffdio_poison)
#endif
#ifndef UFFDIO_MOVE
#define UFFD_FEATURE_MOVE (1 << 16)
#define _UFFDIO_MOVE 5
struct uffdio_move {
	__u64 dst;
	__u64 src;
	__u64 len;
	__u64 mode;
	__s64 move;
};
#define UFFDIO_MOVE _IOWR(UFFDIO, _UFFDIO_MOVE, struct uffdio_move)
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif
#define DONTWAKE 1
#define HOLES 2
#define SMALL 4096ul
#define HUGE (2ul << 20)
#define RW (PROT_READ | PROT_WRITE)

static int fd, maps;
static char *from, *to;

static void say(const char *what, long answer)
{
	printf("%s: %ld%s%s\n", what, answer, answer < 0 ? " " : "", answer < 0 ? strerror(errno) : "");
}

static int opened(long features)
{
	struct uffdio_api api = { UFFD_API, features, 0 };
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	say("api", ioctl(fd, UFFDIO_API, &api));
	printf("move: %d\n", !!(api.features & UFFD_FEATURE_MOVE));
	return fd;
}

static long enlist(int fd, void *at, unsigned long bytes, int mode)
{
	struct uffdio_register asked = { { (unsigned long)at, bytes }, mode, 0 };
	long answer = ioctl(fd, UFFDIO_REGISTER, &asked);

	if (!answer)
		printf("may be moved to: %d\n", !!(asked.ioctls >> _UFFDIO_MOVE & 1));
	return answer;
}

static void go(const char *what, void *source, unsigned long bytes, void *dest, unsigned long mode)
{
	struct uffdio_move asked = { (unsigned long)dest, (unsigned long)source, bytes, mode, 77 };
	long answer = ioctl(fd, UFFDIO_MOVE, &asked);

	say(what, answer);
	printf("  moved: %lld\n", (long long)asked.move);
}

/* What each page is: there, a guard, exclusive, protected; and its first byte where it is there. */
static void show(const char *what, char *at, int pages)
{
	printf("%s:", what);
	for (int nth = 0; nth < pages; nth++, at += SMALL) {
		uint64_t word = 0;

		pread(maps, &word, 8, (unsigned long)at / SMALL * 8);
		printf(" %s%s%s", word >> 63 ? "p" : word >> 58 & 1 ? "g" : "-", word >> 56 & 1 ? "x" : "", word >> 57 & 1 ? "w" : "");
		if (word >> 63)
			printf("=%d", *(volatile unsigned char *)at);
	}
	printf("\n");
}

/* A line of an area's in smaps. */
static long counted(void *at, const char *name)
{
	char line[256], start[32];
	long value = -1;
	int is_it = 0;
	FILE *file = fopen("/proc/self/smaps", "r");

	snprintf(start, sizeof start, "%lx-", (unsigned long)at);
	while (fgets(line, sizeof line, file)) {
		if (!strncmp(line, start, strlen(start)))
			is_it = 1;
		else if (is_it && !strncmp(line, name, strlen(name))) {
			value = atol(line + strlen(name));
			break;
		}
	}
	fclose(file);
	return value;
}

static void fresh(void)
{
	madvise(from, 4 * HUGE, MADV_DONTNEED);
	madvise(to, 4 * HUGE, MADV_DONTNEED);
	for (int nth = 0; nth < 16; nth++)
		from[nth * SMALL] = 10 + nth;
}

static void *waits(void *at)
{
	return (void *)(long)*(volatile unsigned char *)at;
}

static void arguments(void)
{
	struct uffdio_range all = { (unsigned long)to, 4 * HUGE };
	char *file, *other = mmap(0, 16 * SMALL, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int second;

	fresh();
	go("nothing", from, 0, to, 0);
	go("a part of a page", from + 1, SMALL, to, 0);
	go("to a part of a page", from, SMALL, to + 1, 0);
	go("bytes", from, 100, to, 0);
	go("a mode", from, SMALL, to, 4);
	go("too far", (void *)(1ul << 63), SMALL, to, 0);
	go("to too far", from, SMALL, (void *)(1ul << 63), 0);
	go("nothing is there", (void *)0x10000000, SMALL, to, 0);
	go("nothing is there to go to", from, SMALL, (void *)0x10000000, 0);
	go("not armed", to, SMALL, from, 0);
	go("over the end", from + 4 * HUGE - SMALL, 2 * SMALL, to, HOLES);
	go("over the end of where it goes", from, 2 * SMALL, to + 4 * HUGE - SMALL, HOLES);
	other[0] = 3;
	go("shared", other, SMALL, to, 0);
	say("register shared", enlist(fd, other, 16 * SMALL, UFFDIO_REGISTER_MODE_MISSING));
	go("to shared", from, SMALL, other + SMALL, 0);
	munmap(other, 16 * SMALL);
	file = mmap(0, 16 * SMALL, RW, MAP_PRIVATE, memfd_create("f", 0), 0);
	go("a file", file, SMALL, to, HOLES);
	say("register a file", enlist(fd, file, 16 * SMALL, UFFDIO_REGISTER_MODE_WP));
	go("to a file", from, SMALL, file, 0);
	munmap(file, 16 * SMALL);
	say("mprotect", mprotect(from, 8 * SMALL, PROT_READ));
	go("read only", from, SMALL, to, 0);
	say("mprotect both", mprotect(to, 8 * SMALL, PROT_READ));
	go("read only both", from, SMALL, to, 0);
	mprotect(from, 8 * SMALL, RW);
	mprotect(to, 8 * SMALL, RW | PROT_EXEC);
	go("to what may be executed", from, SMALL, to, 0);
	mprotect(to, 8 * SMALL, RW);
	say("mlock", mlock2(from, 8 * SMALL, 1));
	go("locked", from, SMALL, to, 0);
	say("mlock both", mlock2(to, 8 * SMALL, 1));
	go("locked both", from, SMALL, to, 0);
	munlock(from, 4 * HUGE);
	munlock(to, 4 * HUGE);
	second = opened(0);
	say("unregister", ioctl(fd, UFFDIO_UNREGISTER, &all));
	go("unregistered", from + SMALL, SMALL, to + SMALL, 0);
	say("register by another", enlist(second, to, 4 * HUGE, UFFDIO_REGISTER_MODE_MISSING));
	go("another's", from + SMALL, SMALL, to + SMALL, 0);
	close(second);
	say("register again", enlist(fd, to, 4 * HUGE, UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP));
}

static void pages(void)
{
	struct uffdio_copy copy = { (unsigned long)to + SMALL, (unsigned long)from, SMALL, 0, 0 };
	struct uffdio_zeropage zero = { { (unsigned long)to + 2 * SMALL, SMALL }, 0, 0 };
	struct uffdio_poison poison = { { (unsigned long)to + 3 * SMALL, SMALL }, 0, 0 };
	struct uffdio_writeprotect protect = { { (unsigned long)to, 2 * SMALL }, 1 };

	fresh();
	go("one", from, SMALL, to, 0);
	show("from", from, 4);
	show("to", to, 4);
	go("again", from, SMALL, to, 0);
	go("back", to, SMALL, from, 0);
	madvise(from, SMALL, MADV_DONTNEED);
	go("three and a hole", from + 13 * SMALL, 5 * SMALL, to + 13 * SMALL, 0);
	go("holes", from + 16 * SMALL, 4 * SMALL, to + 16 * SMALL, HOLES);
	from[18 * SMALL] = 28;
	go("between holes", from + 16 * SMALL, 4 * SMALL, to + 16 * SMALL, HOLES);
	show("to", to + 13 * SMALL, 8);
	fresh();
	say("copy", ioctl(fd, UFFDIO_COPY, &copy));
	say("zeropage", ioctl(fd, UFFDIO_ZEROPAGE, &zero));
	say("poison", ioctl(fd, UFFDIO_POISON, &poison));
	say("guard", madvise(to + 4 * SMALL, SMALL, MADV_GUARD_INSTALL));
	for (int nth = 0; nth < 6; nth++)
		go("to what is there", from + nth * SMALL, 2 * SMALL, to + nth * SMALL, HOLES);
	show("from", from, 8);
	fresh();
	madvise(to, 8 * SMALL, MADV_GUARD_REMOVE);
	say("protect", ioctl(fd, UFFDIO_WRITEPROTECT, &protect));
	go("to what is protected", from, 2 * SMALL, to, 0);
	show("to", to, 4);
	madvise(from, 16 * SMALL, MADV_DONTNEED);
	(void)*(volatile char *)(from + SMALL);
	go("zeros", from + SMALL, SMALL, to + 5 * SMALL, 0);
	show("from", from, 4);
	show("to", to + 4 * SMALL, 4);
	say("a guard", madvise(from + SMALL, SMALL, MADV_GUARD_INSTALL));
	go("a guard", from + SMALL, SMALL, to + 6 * SMALL, HOLES);
	madvise(from, 16 * SMALL, MADV_GUARD_REMOVE);
	printf("resident: %ld and %ld\n", counted(from, "Rss:"), counted(to, "Rss:"));
}

static void within_one(void)
{
	struct uffdio_writeprotect protect = { { (unsigned long)to, 4 * SMALL }, 1 };

	fresh();
	go("two", from, 2 * SMALL, to, 0);
	say("protect", ioctl(fd, UFFDIO_WRITEPROTECT, &protect));
	show("to", to, 4);
	go("within one", to, SMALL, to + 8 * SMALL, 0);
	show("to", to + 7 * SMALL, 4);
	for (int nth = 0; nth < 6; nth++)
		from[nth * SMALL] = 40 + nth;
	madvise(to, 4 * HUGE, MADV_DONTNEED);
	go("six", from, 6 * SMALL, to + 3 * SMALL, 0);
	go("down", to + 3 * SMALL, 6 * SMALL, to, 0);
	show("to", to, 10);
	go("up", to, 6 * SMALL, to + 2 * SMALL, 0);
	show("to", to, 10);
	go("up with holes", to + 4 * SMALL, 4 * SMALL, to + 5 * SMALL, HOLES);
	show("to", to, 10);
}

static void in_child(void)
{
	int in[2], out[2];
	char byte = 0;
	pid_t child;

	fresh();
	pipe(in);
	pipe(out);
	fflush(stdout);
	child = fork();
	if (!child) {
		write(out[1], "r", 1);
		read(in[0], &byte, 1);
		printf("the child reads %d\n", from[2 * SMALL]);
		fflush(stdout);
		_exit(0);
	}
	read(out[0], &byte, 1);
	go("shared with a child", from, SMALL, to, 0);
	from[SMALL] = 99;
	go("written since", from + SMALL, 2 * SMALL, to + SMALL, 0);
	write(in[1], "g", 1);
	waitpid(child, 0, 0);
	go("the child is gone", from + 2 * SMALL, SMALL, to + 2 * SMALL, 0);
	from[2 * SMALL] = 98;
	go("and it is written", from + 2 * SMALL, SMALL, to + 2 * SMALL, 0);
	show("to", to, 4);
}

static void mapped(void)
{
	say("from", mmap(from, 4 * HUGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == from);
	say("to", mmap(to, 4 * HUGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == to);
	say("register", enlist(fd, to, 4 * HUGE, UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP));
}

static void large(void)
{
	mapped();
	say("hugepage", madvise(from, 4 * HUGE, MADV_HUGEPAGE));
	memset(from, 9, 4 * HUGE); /* what holds zeros may go as such */
	say("no more", prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)); /* a scanner would make large ones of what is split */
	from[0] = 1;
	from[HUGE] = 2;
	from[2 * HUGE] = 3;
	from[HUGE - SMALL] = 4;
	printf("large: %ld and %ld\n", counted(from, "AnonHugePages:"), counted(to, "AnonHugePages:"));
	go("a whole one", from, HUGE, to, 0);
	printf("large: %ld and %ld\n", counted(from, "AnonHugePages:"), counted(to, "AnonHugePages:"));
	go("a part", from + HUGE, 3 * SMALL, to + HUGE, 0);
	printf("large: %ld and %ld\n", counted(from, "AnonHugePages:"), counted(to, "AnonHugePages:"));
	go("one that does not fit", from + 2 * HUGE, HUGE, to + 2 * HUGE + SMALL, 0);
	printf("large: %ld and %ld\n", counted(from, "AnonHugePages:"), counted(to, "AnonHugePages:"));
	printf("%d %d %d %d\n", to[0], to[HUGE], to[2 * HUGE + SMALL], to[HUGE - SMALL]);
	go("to a large one", from + HUGE + 8 * SMALL, SMALL, to, 0);
	printf("resident: %ld and %ld\n", counted(from, "Rss:"), counted(to, "Rss:"));
	madvise(to, HUGE, MADV_DONTNEED);
	go("another", from + 3 * HUGE, HUGE, to, 0);
	printf("large: %ld and %ld\n", counted(from, "AnonHugePages:"), counted(to, "AnonHugePages:"));
	madvise(from, 4 * HUGE, MADV_NOHUGEPAGE);
}

static void waiting(void)
{
	struct uffdio_range range = { (unsigned long)to, SMALL };
	struct pollfd ready = { fd, POLLIN, 0 };
	struct uffd_msg message;
	pthread_t thread;
	void *got;

	for (int dont_wake = 0; dont_wake < 2; dont_wake++) {
		fresh();
		pthread_create(&thread, 0, waits, to);
		poll(&ready, 1, -1);
		say("told", read(fd, &message, sizeof message));
		printf("event %d\n", message.event);
		go("for a thread", from + 5 * SMALL, SMALL, to, dont_wake ? DONTWAKE : 0);
		if (dont_wake)
			say("wake", ioctl(fd, UFFDIO_WAKE, &range));
		pthread_join(thread, &got);
		printf("it reads %ld\n", (long)got);
	}
}

int main(void)
{
	char *all = mmap(0, 14 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	setvbuf(stdout, 0, _IOLBF, 0);
	maps = open("/proc/self/pagemap", O_RDONLY);
	from = (char *)(((unsigned long)all + 2 * HUGE - 1) & ~(HUGE - 1));
	to = from + 6 * HUGE;
	fd = opened(0);
	mapped();
	arguments();
	pages();
	within_one();
	in_child();
	large();
	waiting();
	return 0;
}
