/*
 * Pages that are anchored as a device has them, by Linux's device for tests of that (CONFIG_GUP_TEST): whether they stay the ones that the
 * program sees, whatever was shared before and is forked behind it. Prints what the system answers.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
#define HUGE (2ul << 20)

struct asked {
	uint64_t at, bytes;
	uint32_t flags;
};
#define START _IOW('g', 7, struct asked)
#define STOP _IO('g', 8)
#define READ _IOW('g', 9, uint64_t)
enum { TO_READ = 0, TO_WRITE = 1, FAST = 2 };

static int device;
static char seen[HUGE];

static int start(void *at, unsigned long bytes, uint32_t flags)
{
	struct asked asked = { (uint64_t)at, bytes, flags };

	return ioctl(device, START, &asked);
}

static int look(void)
{
	uint64_t to = (uint64_t)seen;

	memset(seen, 0, sizeof seen);
	return ioctl(device, READ, &to);
}

static void say(const char *what, long answer)
{
	printf("%s: %s\n", what, answer ? strerror(errno) : "ok");
}

/* Whether memory holds a byte all over. */
static int holds(const char *at, unsigned long bytes, char value)
{
	while (bytes--)
		if (*at++ != value)
			return 0;
	return 1;
}

/* A child that looks at memory when it is told to, and says whether it holds a byte. */
struct child {
	int id, go;
};

static struct child child_with(const char *at, unsigned long bytes, char value)
{
	struct child child;
	int way[2];

	if (pipe(way))
		exit(1);
	fflush(stdout);
	child.id = fork();
	if (!child.id) {
		char one;

		close(way[1]);
		_exit(read(way[0], &one, 1) == 1 && holds(at, bytes, value) ? 0 : 1);
	}
	close(way[0]);
	child.go = way[1];
	return child;
}

static int is_content(struct child child)
{
	int status = 0;

	if (write(child.go, "", 1) != 1 || waitpid(child.id, &status, 0) != child.id)
		exit(1);
	close(child.go);
	return WIFEXITED(status) && !WEXITSTATUS(status);
}

static const char *word(int is_so)
{
	return is_so ? "yes" : "no";
}

/* Memory that a child has too is anchored, and another child comes: what does each see? */
static void anchored(const char *what, char *at, unsigned long bytes, int is_shared, uint32_t flags)
{
	struct child before, behind;

	if (at == MAP_FAILED) {
		printf("%s: not mapped\n", what);
		return;
	}
	memset(at, 1, bytes);
	before = child_with(at, bytes, is_shared ? 3 : 1);
	if (start(at, bytes, flags)) {
		printf("%s: %s\n", what, strerror(errno));
		is_content(before);
		return;
	}
	memset(at, 2, bytes);
	printf("%s: the device sees it %s", what, word(!look() && holds(seen, bytes, 2)));
	behind = child_with(at, bytes, is_shared ? 3 : 2);
	memset(at, 3, bytes);
	printf(", and behind a fork %s", word(!look() && holds(seen, bytes, 3)));
	printf("; children: %s", word(is_content(before)));
	printf(" and %s", word(is_content(behind)));
	printf("; let go: %s\n", word(!ioctl(device, STOP)));
}

static void kinds(uint32_t flags)
{
	const int own = MAP_PRIVATE | MAP_ANONYMOUS, both = PROT_READ | PROT_WRITE;
	char *place = mmap(NULL, 2 * HUGE, both, own, -1, 0);
	char *aligned = (char *)(((uintptr_t)place + HUGE - 1) & ~(HUGE - 1));
	int file = memfd_create("file", 0), huge = memfd_create("huge", MFD_HUGETLB);

	if (place == MAP_FAILED || file < 0 || huge < 0 || ftruncate(file, HUGE) || ftruncate(huge, HUGE))
		exit(1);
	printf("flags %u\n", flags);
	madvise(place, 2 * HUGE, MADV_NOHUGEPAGE);
	anchored("pages", mmap(NULL, 5 * PAGE, both, own, -1, 0), 5 * PAGE, 0, flags);
	munmap(place, 2 * HUGE);
	place = mmap(NULL, 2 * HUGE, both, own, -1, 0);
	madvise(place, 2 * HUGE, MADV_HUGEPAGE);
	anchored("a large folio", aligned, HUGE, 0, flags);
	anchored("a part of one", aligned + 7 * PAGE, 9 * PAGE, 0, flags);
	anchored("a private file", mmap(NULL, HUGE, both, MAP_PRIVATE, file, 0), HUGE, 0, flags);
	anchored("a shared file", mmap(NULL, HUGE, both, MAP_SHARED, file, 0), HUGE, 1, flags);
	anchored("shared memory", mmap(NULL, HUGE, both, MAP_SHARED | MAP_ANONYMOUS, -1, 0), HUGE, 1, flags);
	anchored("a huge page", mmap(NULL, HUGE, both, own | MAP_HUGETLB, -1, 0), HUGE, 0, flags);
	anchored("a private file of one", mmap(NULL, HUGE, both, MAP_PRIVATE, huge, 0), HUGE, 0, flags);
	anchored("a shared file of one", mmap(NULL, HUGE, both, MAP_SHARED, huge, 0), HUGE, 1, flags);
	close(file);
	close(huge);
}

/* Memory that was never written: zeros, holes of files. */
static void zeros(void)
{
	const int own = MAP_PRIVATE | MAP_ANONYMOUS, both = PROT_READ | PROT_WRITE;
	int file = memfd_create("file", 0);
	char *all[3];

	if (file < 0 || ftruncate(file, PAGE))
		exit(1);
	all[0] = mmap(NULL, PAGE, both, own, -1, 0);
	all[1] = mmap(NULL, PAGE, both, MAP_PRIVATE, file, 0);
	all[2] = mmap(NULL, PAGE, PROT_READ, own, -1, 0);
	for (int nth = 0; nth < 3; nth++) {
		char *at = all[nth];
		int is_zero = *at == 0;

		say("zeros are anchored", start(at, PAGE, TO_READ));
		if (nth == 2)
			mprotect(at, PAGE, both);
		memset(at, 4, PAGE);
		printf("were zeros %s, and seen %s\n", word(is_zero), word(!look() && holds(seen, PAGE, 4)));
		ioctl(device, STOP);
	}
	close(file);
}

static void refused(void)
{
	char *at = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	say("nothing to read", look());
	say("no length", start(at, 0, TO_READ));
	say("an odd address", start(at + 1, PAGE, TO_READ));
	say("an odd length", start(at, 5, TO_READ));
	say("other flags", start(at, PAGE, 4));
	say("another request", ioctl(device, _IO('g', 10), 0));
	say("one", start(at, PAGE, TO_WRITE));
	say("a second", start(at, PAGE, TO_WRITE));
	say("stopped", ioctl(device, STOP));
	say("stopped again", ioctl(device, STOP));
	mprotect(at, PAGE, PROT_READ);
	say("to write what is to be read", start(at, PAGE, TO_WRITE));
	say("to read it", start(at, PAGE, TO_READ));
	ioctl(device, STOP);
	mprotect(at, PAGE, PROT_NONE);
	say("to read what nobody may", start(at, PAGE, TO_READ));
	munmap(at + 4 * PAGE, PAGE);
	say("over a hole", start(at + 2 * PAGE, 4 * PAGE, TO_WRITE));
	say("nothing is left of it", look());
	say("before the hole", start(at + 2 * PAGE, 2 * PAGE, TO_WRITE));
	munmap(at, 8 * PAGE);
	memset(seen, 7, sizeof seen);
	printf("behind the end of its mapping: %s\n", word(!look() && holds(seen, 2 * PAGE, 0)));
	close(device);
	device = open("/sys/kernel/debug/gup_test", O_RDWR);
	say("closed", look());
}

/* What is measured: 64 pages of memory and of a huge page, by so many a call; and a hole in memory. */
struct measured {
	uint64_t get, put, at, bytes;
	uint32_t pages, flags, test, which[8];
};

static void measure(const char *what, unsigned way, char *at, unsigned long bytes, uint32_t pages, uint32_t flags)
{
	struct measured asked = { .get = -1, .put = -1, .at = (uint64_t)at, .bytes = bytes, .pages = pages, .flags = flags };
	int done = ioctl(device, _IOWR('g', way, struct measured), &asked);

	printf("%s, way %u, %u a call, flags %u: ", what, way, pages, flags);
	if (done)
		printf("%s\n", strerror(errno));
	else
		printf("%lu pages, %s\n", (unsigned long)asked.bytes / PAGE, asked.get < 10000000 && asked.put < 10000000 ? "timed" : "not timed");
}

static void measured(void)
{
	const int own = MAP_PRIVATE | MAP_ANONYMOUS, both = PROT_READ | PROT_WRITE;
	char *at = mmap(NULL, 64 * PAGE, both, own, -1, 0), *huge = mmap(NULL, HUGE, both, own | MAP_HUGETLB, -1, 0);

	for (unsigned way = 1; way <= 6; way++)
		measure("pages", way, at, 64 * PAGE, 16, way % 2);
	measure("pages", 4, at, 64 * PAGE, 1, TO_WRITE);
	measure("a huge page", 5, huge, HUGE, 512, TO_WRITE);
	measure("a huge page", 3, huge + 9 * PAGE, 64 * PAGE, 1, TO_READ);
	munmap(at + 40 * PAGE, PAGE);
	measure("up to a hole", 1, at, 64 * PAGE, 16, TO_WRITE);
	measure("a hole", 1, at + 40 * PAGE, 4 * PAGE, 1, TO_WRITE);
	measure("no pages a call", 1, at, 8 * PAGE, 0, TO_WRITE);
	measure("nor in a page", 1, at + 5, 8 * PAGE, 0, TO_WRITE);
	measure("no way", 9, at, 8 * PAGE, 1, TO_WRITE);
	measure("no way", 10, at, 8 * PAGE, 1, TO_WRITE);
	mprotect(at, PAGE, PROT_READ);
	measure("not to be written", 2, at, PAGE, 1, TO_WRITE);
	measure("to be read", 2, at, PAGE, 1, TO_READ);
	memset(at + PAGE, 5, PAGE);
	printf("written behind it: %d\n", at[PAGE]);
}

int main(void)
{
	FILE *pool = fopen("/proc/sys/vm/nr_hugepages", "w");

	device = open("/sys/kernel/debug/gup_test", O_RDWR);
	if (!pool || device < 0)
		return 2;
	fprintf(pool, "16\n");
	fclose(pool);
	refused();
	zeros();
	kinds(TO_READ);
	kinds(TO_WRITE | FAST);
	measured();
	return 0;
}
