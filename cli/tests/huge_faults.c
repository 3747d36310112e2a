/*
 * Huge pages of a pool whose missing pages the program fills itself. Prints what the system answers; two systems that print the same
 * agree. The pool has 8 huge pages meanwhile, so it is for root.
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
#define HUGE (2ul << 20)
#define POOL "/sys/kernel/mm/hugepages/hugepages-2048kB/"

static int fd;
static char *source;

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

static long reserved_before;

static void pool(void)
{
	printf("free %ld, reserved %ld\n", number(POOL "free_hugepages"), number(POOL "resv_hugepages") - reserved_before);
}

static long enlist(void *at, unsigned long bytes, int mode)
{
	struct uffdio_register asked = { { (unsigned long)at, bytes }, mode, 0 };
	long answer = ioctl(fd, UFFDIO_REGISTER, &asked);

	if (!answer)
		printf("may be asked: %d %d %d\n", !!(asked.ioctls & 1 << _UFFDIO_COPY), !!(asked.ioctls & 1 << _UFFDIO_WAKE),
		       !!(asked.ioctls & 1 << _UFFDIO_ZEROPAGE));
	return answer;
}

static long copy(void *to, void *from, unsigned long bytes, int mode)
{
	struct uffdio_copy asked = { (unsigned long)to, (unsigned long)from, bytes, mode, 0 };
	long answer = ioctl(fd, UFFDIO_COPY, &asked);
	int why = errno;

	printf("copied %lld; ", asked.copy);
	errno = why;
	return answer;
}

static long zeros(void *at, unsigned long bytes)
{
	struct uffdio_zeropage asked = { { (unsigned long)at, bytes }, 0, 0 };

	return ioctl(fd, UFFDIO_ZEROPAGE, &asked);
}

/* Answers three faults. */
static void *handles(void *start)
{
	for (int nth = 0; nth < 3; nth++) {
		struct pollfd one = { fd, POLLIN, 0 };
		struct uffd_msg message;

		if (poll(&one, 1, 10000) != 1 || read(fd, &message, sizeof message) != sizeof message)
			exit(1);
		unsigned long at = message.arg.pagefault.address;

		struct uffdio_copy asked = { at & ~(HUGE - 1), (unsigned long)source + nth * PAGE, HUGE, 0, 0 };

		/* The other thread goes on, and prints, before this one does. */
		printf("told %lx, flags %llx\n", at - (unsigned long)start, message.arg.pagefault.flags);
		if (ioctl(fd, UFFDIO_COPY, &asked))
			exit(1);
	}
	return NULL;
}

static void *reads(void *at)
{
	return (void *)(long)*(volatile char *)at;
}

static void faults(char *at)
{
	pthread_t handler, reader;
	void *seen;

	pthread_create(&handler, NULL, handles, at);
	printf("read %d\n", at[3 * PAGE + 5]);
	at[HUGE + 9] = 1;
	printf("written %d, beside it %d\n", at[HUGE + 9], at[HUGE + 10]);
	pthread_create(&reader, NULL, reads, at + 2 * HUGE + HUGE - 1);
	pthread_join(reader, &seen);
	pthread_join(handler, NULL);
	printf("in another thread %ld\n", (long)seen);
}

static void opened(int features)
{
	struct uffdio_api api = { UFFD_API, features, 0 };

	fd = syscall(SYS_userfaultfd, O_CLOEXEC);
	say("api", ioctl(fd, UFFDIO_API, &api));
	printf("huge pages: %d\n", !!(api.features & UFFD_FEATURE_MISSING_HUGETLBFS));
}

int main(void)
{
	long before = number(POOL "nr_hugepages");
	FILE *file = fopen(POOL "nr_hugepages", "w");

	if (!file || fprintf(file, "8") < 0 || fclose(file) || number(POOL "nr_hugepages") != 8)
		return 2;
	reserved_before = number(POOL "resv_hugepages");
	setbuf(stdout, NULL);
	source = mmap(0, 4 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (unsigned long nth = 0; nth < 3 * HUGE / PAGE; nth++)
		source[nth * PAGE] = 1 + nth % 100;

	char *at = mmap(0, 4 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);

	opened(0);
	say("part of a page", enlist(at, HUGE + PAGE, UFFDIO_REGISTER_MODE_MISSING));
	say("from inside", enlist(at + PAGE, HUGE - PAGE, UFFDIO_REGISTER_MODE_MISSING));
	say("missing pages", enlist(at, 3 * HUGE, UFFDIO_REGISTER_MODE_MISSING));
	pool();
	faults(at);
	pool();
	say("again", copy(at, source, HUGE, 0));
	say("a small page", copy(at, source, PAGE, 0));
	say("from inside", copy(at + PAGE, source, HUGE, 0));
	say("not armed", copy(at + 3 * HUGE, source, HUGE, 0));
	say("over the end", copy(at + 2 * HUGE, source, 2 * HUGE, 0));
	say("zeros", zeros(at, HUGE));
	say("watched", copy(at, source, HUGE, UFFDIO_COPY_MODE_WP));
	madvise(at, 2 * HUGE, MADV_DONTNEED);
	pool();
	say("two of them", copy(at, source + 16, 2 * HUGE, 0));
	printf("%d %d\n", at[3 * PAGE - 16], at[HUGE + 5 * PAGE - 16]);
	/* A source that nobody touched, and one that ends. */
	madvise(at, HUGE, MADV_DONTNEED);
	say("from nothing", copy(at, source + 3 * HUGE, HUGE, 0));
	printf("%d\n", at[77]);
	madvise(at, 2 * HUGE, MADV_DONTNEED);
	munmap(source + 3 * HUGE + HUGE / 2, HUGE / 2);
	say("from less", copy(at, source + 3 * HUGE, HUGE, 0));
	say("from a page and less", copy(at, source + 2 * HUGE, 2 * HUGE, 0));
	pool();
	/* A child is told of nothing. */
	int child = fork();

	if (!child) {
		at[HUGE] = 3;
		_exit(at[HUGE]);
	}
	int status;

	waitpid(child, &status, 0);
	printf("a child: %d\n", status);
	struct uffdio_range range = { (unsigned long)at, 3 * HUGE };

	say("not any more", ioctl(fd, UFFDIO_UNREGISTER, &range));
	at[HUGE] = 4;
	pool();
	munmap(at, 4 * HUGE);
	close(fd);

	opened(UFFD_FEATURE_EXACT_ADDRESS);
	int huge = memfd_create("huge", MFD_HUGETLB);

	say("a file", ftruncate(huge, 3 * HUGE));
	at = mmap(0, 4 * HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, huge, 0);
	char *other = mmap(0, 3 * HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, huge, 0);
	char *own = mmap(0, 3 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, huge, 0);

	say("its pages", enlist(at, 4 * HUGE, UFFDIO_REGISTER_MODE_MISSING));
	pool();
	faults(at);
	printf("for all: %d %d\n", other[3 * PAGE + 4096], own[2 * HUGE]);
	pool();
	say("beyond its end", copy(at + 3 * HUGE, source, HUGE, 0));
	say("a hole", fallocate(huge, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, HUGE));
	other[0] = 7;
	say("there already", copy(at, source, HUGE, 0));
	printf("what others made: %d\n", at[0]);
	say("private ones", enlist(own, 3 * HUGE, UFFDIO_REGISTER_MODE_MISSING));
	fallocate(huge, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, HUGE);
	say("of a hole", copy(own, source, HUGE, 0));
	printf("%d\n", own[PAGE]);
	say("the file's, too", copy(at, source + PAGE, HUGE, 0));
	printf("%d %d\n", at[PAGE], own[PAGE]);
	pool();
	munmap(at, 4 * HUGE);
	munmap(other, 3 * HUGE);
	munmap(own, 3 * HUGE);
	close(huge);
	close(fd);
	pool();
	file = fopen(POOL "nr_hugepages", "w");
	fprintf(file, "%ld", before);
	fclose(file);
	return 0;
}
