/*
 * Huge pages of a pool whose writes the program is told of. Prints what the system answers; two systems that print the same agree. The
 * pool has 8 huge pages meanwhile, so it is for root.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13)
#endif
#define PAGE 4096ul
#define HUGE (2ul << 20)
#define POOL "/sys/kernel/mm/hugepages/hugepages-2048kB/"

static int fd;
static long reserved_before;

static void say(const char *what, long answer)
{
	printf("%s: %ld%s%s\n", what, answer, answer < 0 ? " " : "", answer < 0 ? strerror(errno) : "");
}

static long number(const char *path)
{
	FILE *file = fopen(path, "r");
	long value = -1;

	if (!file || fscanf(file, "%ld", &value) != 1)
		exit(1);
	fclose(file);
	return value;
}

static void pool(void)
{
	printf("free %ld, reserved %ld\n", number(POOL "free_hugepages"), number(POOL "resv_hugepages") - reserved_before);
}

static void opened(long features)
{
	struct uffdio_api api = { UFFD_API, features, 0 };

	fd = syscall(SYS_userfaultfd, O_CLOEXEC);
	say("api", ioctl(fd, UFFDIO_API, &api));
	printf("writes to huge pages: %d\n", !!(api.features & UFFD_FEATURE_WP_HUGETLBFS_SHMEM));
}

static long enlist(void *at, unsigned long bytes, int mode)
{
	struct uffdio_register asked = { { (unsigned long)at, bytes }, mode, 0 };
	long answer = ioctl(fd, UFFDIO_REGISTER, &asked);

	if (!answer)
		printf("may be asked: %d\n", !!(asked.ioctls & 1 << _UFFDIO_WRITEPROTECT));
	return answer;
}

static long watch(void *at, unsigned long bytes, int mode)
{
	struct uffdio_writeprotect asked = { { (unsigned long)at, bytes }, mode };

	return ioctl(fd, UFFDIO_WRITEPROTECT, &asked);
}

/* What /proc says of each of so many pages: that it is there, and that it is watched. */
static void shown(const char *what, char *at, int pages)
{
	int map = open("/proc/self/pagemap", O_RDONLY);

	printf("%s:", what);
	for (int nth = 0; nth < pages; nth++) {
		uint64_t words[2];

		pread(map, &words[0], 8, ((unsigned long)at + nth * HUGE) / PAGE * 8);
		pread(map, &words[1], 8, ((unsigned long)at + nth * HUGE + 77 * PAGE) / PAGE * 8);
		for (int part = 0; part < 2; part++)
			printf("%c%d%d%d", part ? ',' : ' ', (int)(words[part] >> 63), (int)(words[part] >> 62 & 1),
			       (int)(words[part] >> 57 & 1));
	}
	printf("\n");
	close(map);
}

static void *writes(void *at)
{
	*(char *)at = 9;
	return NULL;
}

/* A write that is told, and lifted by whoever is told. */
static void told(char *at, unsigned long inside)
{
	struct uffd_msg message;
	pthread_t writer;

	pthread_create(&writer, NULL, writes, at + inside);
	if (read(fd, &message, sizeof message) != sizeof message)
		exit(1);
	printf("told %d, %lx, flags %llx\n", message.event, (long)message.arg.pagefault.address - (long)at,
	       message.arg.pagefault.flags);
	say("lifted", watch(at, HUGE, 0));
	pthread_join(writer, NULL);
	printf("written: %d\n", at[inside]);
}

static void forks(char *at)
{
	fflush(stdout);
	pid_t child = fork();

	if (!child) {
		shown("in a child", at, 4);
		fflush(stdout);
		_exit(0);
	}
	waitpid(child, NULL, 0);
}

/* Ranges that begin before a huge page, where a small one is or nothing. */
static void from_before(char *at)
{
	char *before = mmap(at - PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	struct uffdio_range all = { (unsigned long)before, 4 * HUGE + PAGE };

	say("behind a page", enlist(before, 4 * HUGE + PAGE, UFFDIO_REGISTER_MODE_WP));
	say("both", watch(before, HUGE + PAGE, UFFDIO_WRITEPROTECT_MODE_WP));
	shown("both", at, 1);
	munmap(before, PAGE);
	say("behind nothing", watch(before, HUGE + PAGE, UFFDIO_WRITEPROTECT_MODE_WP));
	say("behind nothing", enlist(before, 4 * HUGE + PAGE, UFFDIO_REGISTER_MODE_WP));
	say("behind nothing", ioctl(fd, UFFDIO_UNREGISTER, &all));
}

static void life(char *at)
{
	from_before(at);
	say("registered", enlist(at, 4 * HUGE, UFFDIO_REGISTER_MODE_WP));
	at[5] = 1;
	say("part of a page", watch(at, HUGE + PAGE, UFFDIO_WRITEPROTECT_MODE_WP));
	say("from inside", watch(at + PAGE, HUGE, UFFDIO_WRITEPROTECT_MODE_WP));
	say("behind it", watch(at + 3 * HUGE, 2 * HUGE, UFFDIO_WRITEPROTECT_MODE_WP));
	say("three", watch(at, 3 * HUGE, UFFDIO_WRITEPROTECT_MODE_WP));
	shown("watched", at, 4);
	pool();
	printf("read %d, %d\n", at[5], at[HUGE + 5]);
	shown("read", at, 4);
	pool();
	told(at, 3 * PAGE + 5);
	told(at + HUGE, 8);
	told(at + 2 * HUGE, 0);
	shown("written", at, 4);
	pool();
	say("again", watch(at, 3 * HUGE, UFFDIO_WRITEPROTECT_MODE_WP));
	forks(at);
	shown("in the parent", at, 4);
	say("dropped", madvise(at, 2 * HUGE, MADV_DONTNEED));
	shown("dropped", at, 4);
	pool();
	printf("read %d\n", at[HUGE + 8]);
	shown("read", at, 4);
	say("read only", mprotect(at, 4 * HUGE, PROT_READ));
	say("writable", mprotect(at, 4 * HUGE, PROT_READ | PROT_WRITE));
	shown("as before", at, 4);
	say("none", watch(at, 4 * HUGE, 0));
	shown("none", at, 4);
	at[7] = 2;
	at[HUGE + 7] = 2;
	pool();
	say("once more", watch(at, 4 * HUGE, UFFDIO_WRITEPROTECT_MODE_WP));
	struct uffdio_range all = { (unsigned long)at, 4 * HUGE };
	say("not told any more", ioctl(fd, UFFDIO_UNREGISTER, &all));
	shown("not told", at, 4);
	at[7] = 3;
	at[3 * HUGE + 7] = 3;
	pool();
}

static void filled(char *at, char *source)
{
	struct uffdio_copy asked = { (unsigned long)at, (unsigned long)source, HUGE, UFFDIO_COPY_MODE_WP, 0 };
	long answer;

	say("missing", enlist(at, 2 * HUGE, UFFDIO_REGISTER_MODE_MISSING));
	answer = ioctl(fd, UFFDIO_COPY, &asked);
	say("nobody is told of writes", answer);
	say("both", enlist(at, 2 * HUGE, UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP));
	say("watched", watch(at + HUGE, HUGE, UFFDIO_WRITEPROTECT_MODE_WP));
	say("filled", ioctl(fd, UFFDIO_COPY, &asked));
	asked = (struct uffdio_copy){ (unsigned long)at + HUGE, (unsigned long)source, HUGE, 0, 0 };
	say("filled", ioctl(fd, UFFDIO_COPY, &asked));
	shown("filled", at, 2);
	told(at, 300 * PAGE);
	at[HUGE] = 4;
	printf("read %d, %d\n", at[PAGE], at[HUGE + PAGE]);
	pool();
}

/* Takes so many messages. */
static void *listens(void *count)
{
	struct uffd_msg message;

	for (long nth = 0; nth < (long)count; nth++)
		if (read(fd, &message, sizeof message) != sizeof message)
			exit(1);
	return NULL;
}

/* What is watched of huge pages and of small ones, in a child and at another address: it is where the handler is told of these. */
static void kept(long events, long messages)
{
	char *huge = mmap(0, 4 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	char *small = mmap(0, 4 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *to = mmap(0, 9 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_t listener;

	printf("-- events %lx\n", events);
	to = (char *)(((unsigned long)to + HUGE - 1) & ~(HUGE - 1));
	opened(events | UFFD_FEATURE_WP_HUGETLBFS_SHMEM | UFFD_FEATURE_WP_UNPOPULATED);
	madvise(small, 4 * HUGE, MADV_NOHUGEPAGE);
	huge[0] = small[0] = small[77 * PAGE] = 1;
	say("huge", enlist(huge, 4 * HUGE, UFFDIO_REGISTER_MODE_WP));
	say("small", enlist(small, 4 * HUGE, UFFDIO_REGISTER_MODE_WP));
	say("huge", watch(huge, 2 * HUGE, UFFDIO_WRITEPROTECT_MODE_WP));
	say("small", watch(small, HUGE + PAGE, UFFDIO_WRITEPROTECT_MODE_WP));
	pthread_create(&listener, NULL, listens, (void *)messages);
	fflush(stdout);
	pid_t child = fork();

	if (!child) {
		shown("huge in a child", huge, 4);
		shown("small in a child", small, 4);
		fflush(stdout);
		_exit(0);
	}
	waitpid(child, NULL, 0);
	say("moved", mremap(small, 4 * HUGE, 4 * HUGE, MREMAP_MAYMOVE | MREMAP_FIXED, to + 4 * HUGE) == to + 4 * HUGE);
	pthread_join(listener, NULL);
	shown("small elsewhere", to + 4 * HUGE, 4);
	pthread_create(&listener, NULL, listens, (void *)(messages / 2));
	say("moved", mremap(huge, 4 * HUGE, 4 * HUGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	pthread_join(listener, NULL);
	shown("huge elsewhere", to, 4);
	close(fd);
	shown("not told", to, 8);
	munmap(to, 8 * HUGE);
	pool();
}

int main(void)
{
	long before = number(POOL "nr_hugepages");
	FILE *file = fopen(POOL "nr_hugepages", "w");

	if (!file || fprintf(file, "8") < 0 || fclose(file) || number(POOL "nr_hugepages") != 8)
		return 2;
	reserved_before = number(POOL "resv_hugepages");
	setvbuf(stdout, NULL, _IOLBF, 0);

	int content = memfd_create("of a file", MFD_HUGETLB);
	int kinds[3] = { MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, MAP_SHARED, MAP_PRIVATE };
	char *source = mmap(0, HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memset(source, 6, HUGE);
	ftruncate(content, 4 * HUGE);
	opened(UFFD_FEATURE_WP_HUGETLBFS_SHMEM);
	for (int kind = 0; kind < 3; kind++) {
		char *at = mmap(0, 4 * HUGE, PROT_READ | PROT_WRITE, kinds[kind], kind ? content : -1, 0);

		printf("-- %s\n", (char *[]){ "private", "shared", "private, of a file" }[kind]);
		life(at);
		if (kind) {
			say("registered", enlist(at, 4 * HUGE, UFFDIO_REGISTER_MODE_WP));
			say("watched", watch(at, 4 * HUGE, UFFDIO_WRITEPROTECT_MODE_WP));
			say("punched", fallocate(content, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4 * HUGE));
			shown("punched", at, 4);
			printf("read %d\n", at[HUGE + 8]);
			shown("read", at, 4);
			told(at + HUGE, 8);
		}
		pool();
		munmap(at, 4 * HUGE);
		pool();
		say("emptied", fallocate(content, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4 * HUGE));
		at = mmap(0, 4 * HUGE, PROT_READ | PROT_WRITE, kinds[kind], kind ? content : -1, 0);
		filled(at, source);
		munmap(at, 4 * HUGE);
		fallocate(content, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4 * HUGE);
		pool();
	}
	close(fd);
	kept(0, 0);
	kept(UFFD_FEATURE_EVENT_FORK | UFFD_FEATURE_EVENT_REMAP, 2);
	file = fopen(POOL "nr_hugepages", "w");
	fprintf(file, "%ld", before);
	fclose(file);
	return 0;
}
