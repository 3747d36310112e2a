/*
 * Pages that the program has declared broken (UFFDIO_POISON). Prints what the system answers; two systems that print the same agree. The
 * pool has 16 huge pages meanwhile, so it is for root.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef UFFDIO_POISON
#define UFFD_FEATURE_POISON (1 << 14)
#define _UFFDIO_POISON 8
#define UFFDIO_POISON_MODE_DONTWAKE 1ull
struct uffdio_poison {
	struct uffdio_range range;
	__u64 mode;
	__s64 updated;
};
#define UFFDIO_POISON _IOWR(UFFDIO, _UFFDIO_POISON, struct uffdio_poison)
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif
#define SMALL 4096ul
#define HUGE (2ul << 20)
#define POOL "/sys/kernel/mm/hugepages/hugepages-2048kB/"

static int fd;
static unsigned long page;
static long reserved_before;
static sigjmp_buf back;
static siginfo_t seen;

static void say(const char *what, long answer)
{
	printf("%s: %ld%s%s\n", what, answer, answer < 0 ? " " : "", answer < 0 ? strerror(errno) : "");
}

static long number(const char *path)
{
	FILE *file = fopen(path, "r");
	long value = -1;

	if (file && fscanf(file, "%ld", &value) == 1)
		fclose(file);
	return value;
}

static void pool(void)
{
	printf("free %ld, reserved %ld\n", number(POOL "free_hugepages"), number(POOL "resv_hugepages") - reserved_before);
}

static void on(int number, siginfo_t *info, void *context)
{
	seen = *info;
	siglongjmp(back, 1);
}

static void opened(long features)
{
	struct uffdio_api api = { UFFD_API, features, 0 };

	fd = syscall(SYS_userfaultfd, O_CLOEXEC);
	say("api", ioctl(fd, UFFDIO_API, &api));
	printf("poison: %d\n", !!(api.features & UFFD_FEATURE_POISON));
}

static long enlist(void *at, unsigned long bytes, int mode)
{
	struct uffdio_register asked = { { (unsigned long)at, bytes }, mode, 0 };
	long answer = ioctl(fd, UFFDIO_REGISTER, &asked);

	if (!answer)
		printf("may be asked: %d\n", !!(asked.ioctls & 1 << _UFFDIO_POISON));
	return answer;
}

static long poison(void *at, unsigned long bytes, unsigned long mode)
{
	struct uffdio_poison asked = { { (unsigned long)at, bytes }, mode, 77 };
	long answer = ioctl(fd, UFFDIO_POISON, &asked);
	int why = errno;

	printf("updated %lld; ", (long long)asked.updated);
	errno = why;
	return answer;
}

static long copied(void *at, unsigned long bytes, void *source)
{
	struct uffdio_copy asked = { (unsigned long)at, (unsigned long)source, bytes, 0, 77 };
	long answer = ioctl(fd, UFFDIO_COPY, &asked);
	int why = errno;

	printf("copied %lld; ", (long long)asked.copy);
	errno = why;
	return answer;
}

static long zeroed(void *at, unsigned long bytes)
{
	struct uffdio_zeropage asked = { { (unsigned long)at, bytes }, 0, 77 };

	return ioctl(fd, UFFDIO_ZEROPAGE, &asked);
}

static long watch(void *at, unsigned long bytes, int mode)
{
	struct uffdio_writeprotect asked = { { (unsigned long)at, bytes }, mode };

	return ioctl(fd, UFFDIO_WRITEPROTECT, &asked);
}

/* What /proc says of each of so many pages: there, swapped, watched, a guard. */
static void shown(const char *what, char *at, int pages)
{
	int map = open("/proc/self/pagemap", O_RDONLY);

	printf("%s:", what);
	for (int nth = 0; nth < pages; nth++) {
		uint64_t word;

		pread(map, &word, 8, ((unsigned long)at + nth * page) / SMALL * 8);
		printf(" %d%d%d%d", (int)(word >> 63), (int)(word >> 62 & 1), (int)(word >> 57 & 1), (int)(word >> 58 & 1));
	}
	printf("\n");
	close(map);
}

static void access_at(const char *what, char *at, int writes)
{
	if (sigsetjmp(back, 1)) {
		printf("%s: signal %d, %ld bytes in\n", what, seen.si_signo, (long)((char *)seen.si_addr - at));
		/* A kernel without a notion of broken memory does not name its kind. */
		if (getenv("KINDS"))
			printf("code %d, 2^%d bytes\n", seen.si_code, seen.si_addr_lsb);
		return;
	}
	if (writes)
		*(volatile char *)at = 3;
	printf("%s: %d\n", what, *(volatile char *)at);
}

static void *reads(void *at)
{
	if (sigsetjmp(back, 1))
		return (void *)-1l;
	return (void *)(long)*(volatile char *)at;
}

/* A read that is told, and answered by poison. */
static void told(char *at, unsigned long inside)
{
	struct uffd_msg message;
	pthread_t reader;
	void *got;

	pthread_create(&reader, NULL, reads, at + inside);
	if (read(fd, &message, sizeof message) != sizeof message)
		exit(1);
	say("poison", poison(at, page, 0));
	pthread_join(reader, &got);
	printf("got %ld: signal %d, %ld bytes in\n", (long)got, seen.si_signo, (long)((char *)seen.si_addr - at));
}

static void in_child(char *at, int pages)
{
	fflush(stdout);
	pid_t child = fork();

	if (!child) {
		shown("in a child", at, pages);
		access_at("in a child", at, 0);
		fflush(stdout);
		_exit(0);
	}
	waitpid(child, NULL, 0);
}

static char *mapped(int kind, int content)
{
	int large = page > SMALL ? MAP_HUGETLB : 0;
	int kinds[3] = { MAP_PRIVATE | MAP_ANONYMOUS | large, MAP_SHARED, MAP_PRIVATE };

	return mmap(0, 6 * page, PROT_READ | PROT_WRITE, kinds[kind], kind ? content : -1, 0);
}

static void life(int kind, int content, char *source)
{
	char *at = mapped(kind, content), *to;
	struct uffdio_range all = { (unsigned long)at, 6 * page };
	unsigned char core[HUGE / SMALL];
	int pipes[2];

	printf("-- %s, %s\n", page > SMALL ? "huge" : "small", (char *[]){ "private", "shared", "private, of a file" }[kind]);
	say("not armed", poison(at, page, 0));
	say("registered", enlist(at, 5 * page, UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP));
	say("mode", poison(at, page, 2));
	say("nothing", poison(at, 0, 0));
	say("part", poison(at, page / 2, 0));
	say("more than is armed", poison(at + 4 * page, 2 * page, 0));
	pool();
	told(at, 7);
	pool();
	access_at("read", at + 77, 0);
	access_at("write", at + 78, 1);
	say("again", poison(at, page, 0));
	say("behind", poison(at, 2 * page, 0));
	say("two", poison(at + page, 2 * page, UFFDIO_POISON_MODE_DONTWAKE));
	shown("two", at, 6);
	pool();
	say("copied", copied(at + page, page, source));
	shown("copied", at, 6);
	say("zeros", zeroed(at + 2 * page, page));
	shown("zeros", at, 6);
	say("copied", copied(at + 3 * page, page, source));
	say("where a page is", poison(at + 3 * page, page, 0));
	say("where some are", poison(at + 3 * page, 2 * page, 0));
	say("watched", watch(at + 4 * page, page, UFFDIO_WRITEPROTECT_MODE_WP));
	say("where nothing is watched", poison(at + 4 * page, page, 0));
	shown("watched", at, 6);
	say("watched", watch(at, 5 * page, UFFDIO_WRITEPROTECT_MODE_WP));
	shown("watched", at, 6);
	say("lifted", watch(at, 5 * page, 0));
	shown("lifted", at, 6);
	say("some", poison(at + 4 * page, page, 0));
	access_at("read", at + 3 * page, 0);
	pipe(pipes);
	say("written", write(pipes[1], at, 8));
	say("populated", madvise(at, page, MADV_POPULATE_READ));
	say("populated", madvise(at, page, MADV_POPULATE_WRITE));
	say("locked", mlock(at, page));
	say("unlocked", munlock(at, page));
	memset(core, 0, sizeof core);
	say("in core", mincore(at, page, core));
	printf("in core: %d\n", core[0] & 1);
	in_child(at, 6);
	say("no access", mprotect(at, page, PROT_NONE));
	access_at("read", at, 0);
	say("access", mprotect(at, page, PROT_READ | PROT_WRITE));
	access_at("read", at, 0);
	say("not told", ioctl(fd, UFFDIO_UNREGISTER, &all));
	shown("not told", at, 6);
	access_at("read", at, 0);
	say("poison", poison(at + 5 * page, page, 0));
	to = mmap(0, 8 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | (page > SMALL ? MAP_HUGETLB | MAP_NORESERVE : 0), -1, 0);
	say("moved", mremap(at, 6 * page, 6 * page, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	shown("moved", to, 6);
	access_at("read", to, 0);
	pool();
	say("dropped", madvise(to, page, MADV_DONTNEED));
	shown("dropped", to, 6);
	pool();
	access_at("read", to, 0);
	pool();
	say("registered", enlist(to, 6 * page, UFFDIO_REGISTER_MODE_MISSING));
	say("dropped", madvise(to, 6 * page, MADV_DONTNEED));
	pool();
	if (kind) {
		say("punched", fallocate(content, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 6 * page));
		say("poison", poison(to + page, page, 0));
		say("punched", fallocate(content, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 6 * page));
		shown("punched", to, 6);
		say("again", poison(to + page, page, 0));
		say("shorter", ftruncate(content, 0));
		shown("shorter", to, 6);
		access_at("read", to + page, 0);
		say("beyond", poison(to + 2 * page, page, 0));
		shown("beyond", to, 6);
		say("longer", ftruncate(content, 6 * page));
		shown("longer", to, 6);
	}
	say("poison", poison(to + 3 * page, page, 0));
	if (page == SMALL) {
		say("guarded", madvise(to + 3 * page, 2 * page, MADV_GUARD_INSTALL));
		shown("guarded", to, 6);
		say("poison", poison(to + 4 * page, page, 0));
		say("no guards", madvise(to + 3 * page, 2 * page, MADV_GUARD_REMOVE));
		shown("no guards", to, 6);
	}
	munmap(to, 6 * page);
	pool();
	close(pipes[0]);
	close(pipes[1]);
	if (kind)
		fallocate(content, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 6 * page);
}

/* A child of memory with guards, which gets its parent's page tables: only guards are guards there. */
static void beside_guards(int content)
{
	char *at = mapped(1, content);

	say("registered", enlist(at, 6 * page, UFFDIO_REGISTER_MODE_WP));
	say("guarded", madvise(at, page, MADV_GUARD_INSTALL));
	say("watched", watch(at + page, 2 * page, UFFDIO_WRITEPROTECT_MODE_WP));
	shown("watched", at, 6);
	in_child(at, 6);
	in_child(at + page, 5);
	munmap(at, 6 * page);
}

int main(void)
{
	long before = number(POOL "nr_hugepages");
	FILE *file = fopen(POOL "nr_hugepages", "w");
	struct sigaction act = { .sa_sigaction = on, .sa_flags = SA_SIGINFO | SA_NODEFER };

	if (!file || fprintf(file, "16") < 0 || fclose(file) || number(POOL "nr_hugepages") != 16)
		return 2;
	reserved_before = number(POOL "resv_hugepages");
	setvbuf(stdout, NULL, _IOLBF, 0);
	sigaction(SIGBUS, &act, NULL);
	sigaction(SIGSEGV, &act, NULL);

	char *source = mmap(0, HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memset(source, 6, HUGE);
	opened(0);
	for (int large = 0; large < 2; large++) {
		int content = memfd_create("of a file", large ? MFD_HUGETLB : 0);

		page = large ? HUGE : SMALL;
		ftruncate(content, 6 * page);
		for (int kind = 0; kind < 3; kind++)
			life(kind, content, source);
		if (!large)
			beside_guards(content);
		close(content);
	}
	close(fd);
	file = fopen(POOL "nr_hugepages", "w");
	fprintf(file, "%ld", before);
	fclose(file);
	return 0;
}
