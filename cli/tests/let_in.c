/*
 * Pages that a file has, which the program lets in itself. Prints what the system answers; two systems that print the same agree. The
 * pool has 16 huge pages meanwhile, so it is for root.
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
#include <unistd.h>

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif
#ifndef UFFDIO_CONTINUE_MODE_WP
#define UFFDIO_CONTINUE_MODE_WP (1ull << 1)
#endif
#define SMALL 4096ul
#define POOL "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"

static int fd;
static unsigned long page;

static void say(const char *what, long answer)
{
	printf("%s: %ld%s%s\n", what, answer, answer < 0 ? " " : "", answer < 0 ? strerror(errno) : "");
}

static void resize(long pages)
{
	FILE *file = fopen(POOL, "w");

	if (!file || fprintf(file, "%ld", pages) < 0 || fclose(file))
		exit(2);
}

static long enlist(void *at, unsigned long bytes, int mode)
{
	struct uffdio_register asked = { { (unsigned long)at, bytes }, mode, 0 };
	long answer = ioctl(fd, UFFDIO_REGISTER, &asked);

	if (!answer)
		printf("may be asked: %d %d\n", !!(asked.ioctls & 1 << _UFFDIO_CONTINUE), !!(asked.ioctls & 1 << _UFFDIO_WRITEPROTECT));
	return answer;
}

static long let_in(void *at, unsigned long bytes, unsigned long mode)
{
	struct uffdio_continue asked = { { (unsigned long)at, bytes }, mode, 77 };
	long answer = ioctl(fd, UFFDIO_CONTINUE, &asked);
	int why = errno;

	printf("mapped %lld; ", (long long)asked.mapped);
	errno = why;
	return answer;
}

/* What /proc says of a page: that it is there, and that it is watched. */
static void shown(const char *what, char *at)
{
	int map = open("/proc/self/pagemap", O_RDONLY);
	uint64_t word;

	pread(map, &word, 8, (unsigned long)at / SMALL * 8);
	printf("%s: %d%d\n", what, (int)(word >> 63), (int)(word >> 57 & 1));
	close(map);
}

struct access {
	char *at;
	int writes;
};

static void *accesses(void *which)
{
	struct access *it = which;

	if (it->writes)
		*it->at = 9;
	return (void *)(long)*(volatile char *)it->at;
}

/* An access that is told, and answered by letting the page in. */
static void told(char *at, unsigned long inside, int writes)
{
	struct access it = { at + inside, writes };
	struct uffd_msg message;
	pthread_t other;
	void *seen;

	pthread_create(&other, NULL, accesses, &it);
	if (read(fd, &message, sizeof message) != sizeof message)
		exit(1);
	printf("told %d, %lx, flags %llx\n", message.event, (long)message.arg.pagefault.address - (long)at,
	       message.arg.pagefault.flags);
	say("let in", let_in(at, page, 0));
	pthread_join(other, &seen);
	printf("seen %ld\n", (long)seen);
}

static void life(int content, char *all, int flags)
{
	char *at = mmap(0, 6 * page, PROT_READ | PROT_WRITE, flags, content, 0);
	struct uffdio_range range = { (unsigned long)at, 6 * page };

	say("file", ftruncate(content, 5 * page));
	all[0] = all[page] = all[2 * page + 3] = all[3 * page] = 5;
	say("minor", enlist(at, 6 * page, UFFDIO_REGISTER_MODE_MINOR));
	told(at, 7, 0);
	told(at + page, 8, 1);
	printf("the file has %d\n", all[page + 8]);
	say("again", let_in(at, page, 0));
	say("more than it has", let_in(at + 2 * page, 3 * page, 0));
	shown("let in", at + 3 * page);
	say("it has none", let_in(at + 4 * page, page, 0));
	say("beyond its end", let_in(at + 5 * page, page, 0));
	at[4 * page] = 1;
	printf("made without a word: %d\n", at[4 * page]);
	say("part", let_in(at + 100, page, 0));
	say("nothing", let_in(at, 0, 0));
	say("unknown", let_in(at, page, 8));
	say("watched", let_in(at, page, UFFDIO_CONTINUE_MODE_WP));
	madvise(at, page, MADV_DONTNEED);
	shown("dropped", at);
	told(at, 0, 1);
	if (page == SMALL) {
		say("guards", madvise(at + 3 * page, 2 * page, MADV_GUARD_INSTALL));
		say("in a guard's place", let_in(at + 3 * page, page, 0));
		printf("there: %d\n", at[3 * page]);
	}
	say("both", enlist(at, 6 * page, UFFDIO_REGISTER_MODE_MINOR | UFFDIO_REGISTER_MODE_WP));
	madvise(at, 2 * page, MADV_DONTNEED);
	say("watched", let_in(at, page, UFFDIO_CONTINUE_MODE_WP));
	shown("watched", at);
	say("not told any more", ioctl(fd, UFFDIO_UNREGISTER, &range));
	shown("not told any more", at);
	printf("as ever: %d\n", at[page + 8]);
	munmap(at, 6 * page);
}

int main(void)
{
	struct uffdio_api api = { UFFD_API, UFFD_FEATURE_MINOR_SHMEM | UFFD_FEATURE_MINOR_HUGETLBFS, 0 };

	setvbuf(stdout, NULL, _IOLBF, 0);
	fd = syscall(SYS_userfaultfd, O_CLOEXEC);
	say("api", ioctl(fd, UFFDIO_API, &api));
	resize(16);
	for (int huge = 0; huge < 2; huge++) {
		page = huge ? 512 * SMALL : SMALL;
		for (int kind = 0; kind < 2; kind++) {
			int content = memfd_create("of a file", huge ? MFD_HUGETLB : 0);
			char *all = mmap(0, 5 * page, PROT_READ | PROT_WRITE, MAP_SHARED, content, 0);

			printf("-- %s, %s\n", huge ? "huge" : "small", kind ? "private" : "shared");
			life(content, all, kind ? MAP_PRIVATE | MAP_NORESERVE : MAP_SHARED);
			munmap(all, 5 * page);
			close(content);
		}
	}
	resize(1);
	page = SMALL;
	char *own = mmap(0, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	say("of no file", enlist(own, page, UFFDIO_REGISTER_MODE_MINOR));
	say("missing", enlist(own, page, UFFDIO_REGISTER_MODE_MISSING));
	say("nothing to let in", let_in(own, page, 0));
	say("not told of", let_in(own + page, page, 0));
	return 0;
}
