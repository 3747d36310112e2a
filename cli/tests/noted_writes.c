/*
 * Writes that are noted and told to nobody (UFFD_FEATURE_WP_ASYNC), and what a scan of a pagemap says of them. Prints what the system
 * answers; two systems that print the same agree. The pool has 16 huge pages meanwhile, so it is for root.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1 << 15)
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13)
#endif
#define SMALL 4096ul
#define HUGE (2ul << 20)
#define POOL "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"

struct region {
	uint64_t start, end, categories;
};
struct scan {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, inverted, mask, anyof, told;
};
#define SCAN _IOWR('f', 16, struct scan)
enum { ALLOWED = 1, WRITTEN = 2, OF_FILE = 4, PRESENT = 8, SWAPPED = 16, ZERO = 32, LARGE = 64, DIRTY = 128 };
/* Not asked for: what is softly dirty, for a kernel may have no notion of it. */
#define ALL (ALLOWED | WRITTEN | OF_FILE | PRESENT | SWAPPED | ZERO | LARGE)
enum { WATCHES = 1, DEMANDS = 2 };

static int fd, map;
static unsigned long page;

static void say(const char *what, long answer)
{
	printf("%s: %ld%s%s\n", what, answer, answer < 0 ? " " : "", answer < 0 ? strerror(errno) : "");
}

static void opened(long features)
{
	struct uffdio_api api = { UFFD_API, features, 0 };

	fd = syscall(SYS_userfaultfd, O_CLOEXEC);
	say("api", ioctl(fd, UFFDIO_API, &api));
	printf("noted: %d\n", !!(api.features & UFFD_FEATURE_WP_ASYNC));
}

static long enlist(void *at, unsigned long bytes, int mode)
{
	struct uffdio_register asked = { { (unsigned long)at, bytes }, mode, 0 };

	return ioctl(fd, UFFDIO_REGISTER, &asked);
}

static long watch(void *at, unsigned long bytes, int mode)
{
	struct uffdio_writeprotect asked = { { (unsigned long)at, bytes }, mode };

	return ioctl(fd, UFFDIO_WRITEPROTECT, &asked);
}

/* Scans, and prints each region in pages from `base` on. */
static void scanned(const char *what, char *base, struct scan asked, int room)
{
	struct region regions[64];

	asked.size = sizeof asked;
	asked.vec = room ? (uint64_t)regions : 0;
	asked.vec_len = room;
	long answer = ioctl(map, SCAN, &asked);

	say(what, answer);
	for (long nth = 0; nth < answer; nth++)
		printf("  %ld to %ld: %lx\n", (long)((regions[nth].start - (uint64_t)base) / SMALL),
		       (long)((regions[nth].end - (uint64_t)base) / SMALL), (long)regions[nth].categories);
	printf("  up to %ld\n", asked.walk_end ? (long)((asked.walk_end - (uint64_t)base) / SMALL) : -1);
}

static struct scan of(char *at, unsigned long pages, int flags, int mask)
{
	return (struct scan) { .flags = flags, .start = (uint64_t)at, .end = (uint64_t)at + pages * page, .mask = mask, .told = ALL };
}

static void all(const char *what, char *at, unsigned long pages)
{
	scanned(what, at, of(at, pages, 0, ALLOWED), 64);
}

static void life(const char *kind, char *at)
{
	printf("-- %s\n", kind);
	/* There is a table from here on, whatever lies beside. */
	at[0] = 1;
	madvise(at, 8 * page, MADV_DONTNEED);
	scanned("not armed", at, of(at, 8, 0, 0), 64);
	scanned("demanded", at, of(at, 8, DEMANDS, 0), 64);
	scanned("passed over", at, of(at, 8, WATCHES, WRITTEN), 64);
	say("registered", enlist(at, 8 * page, UFFDIO_REGISTER_MODE_WP));
	at[0] = 1;
	say("watched", watch(at, 8 * page, UFFDIO_WRITEPROTECT_MODE_WP));
	all("watched", at, 8);
	at[page] = at[2 * page] = at[5 * page + 9] = 2;
	all("written", at, 8);
	printf("read %d %d\n", at[6 * page], at[2 * page]);
	all("read", at, 8);
	scanned("written alone", at, of(at, 8, 0, WRITTEN), 64);
	struct scan other = of(at, 8, 0, WRITTEN);
	other.inverted = WRITTEN;
	scanned("not written", at, other, 64);
	other = of(at, 8, 0, 0);
	other.anyof = SWAPPED | ZERO;
	other.told = SWAPPED | PRESENT;
	scanned("any of", at, other, 64);
	other = of(at, 8, 0, WRITTEN);
	other.max_pages = 2 * page / SMALL;
	scanned("two", at, other, 64);
	other.max_pages = page / SMALL;
	scanned("one", at, other, 64);
	scanned("room for one", at, of(at, 8, 0, WRITTEN), 1);
	other = of(at, 8, WATCHES | DEMANDS, WRITTEN);
	other.max_pages = page / SMALL;
	scanned("one taken", at, other, 64);
	all("left", at, 8);
	other = of(at, 8, WATCHES, WRITTEN);
	other.max_pages = page / SMALL + page / SMALL / 2;
	scanned("one and a half taken", at, other, 64);
	other = of(at, 8, WATCHES, WRITTEN);
	other.start += page == HUGE ? page / 2 : 0;
	scanned("from inside", at, other, 64);
	at[page] = at[5 * page] = at[6 * page] = 3;
	scanned("all taken", at, of(at, 8, WATCHES | DEMANDS, WRITTEN), 64);
	all("left", at, 8);
	at[7 * page] = at[0] = 7;
	scanned("watched unseen", at, of(at, 8, WATCHES, 0), 0);
	all("left", at, 8);
	say("dropped", madvise(at, 2 * page, MADV_DONTNEED));
	all("dropped", at, 8);
	say("populated", madvise(at, 2 * page, MADV_POPULATE_WRITE));
	all("populated", at, 8);
	int pipes[2];
	pipe(pipes);
	write(pipes[1], "x", 1);
	say("by a call", read(pipes[0], at + 3 * page, 1));
	all("by a call", at, 8);
	close(pipes[0]);
	close(pipes[1]);
	fflush(stdout);
	pid_t child = fork();
	if (!child) {
		at[4 * page] = 4;
		close(map);
		map = open("/proc/self/pagemap", O_RDONLY);
		scanned("in a child", at, of(at, 8, 0, PRESENT), 64);
		fflush(stdout);
		_exit(0);
	}
	waitpid(child, NULL, 0);
	say("no writes", mprotect(at, 2 * page, PROT_READ));
	say("writes", mprotect(at, 2 * page, PROT_READ | PROT_WRITE));
	say("watched", watch(at, 2 * page, UFFDIO_WRITEPROTECT_MODE_WP));
	say("lifted", watch(at, page, 0));
	all("lifted", at, 8);
	struct uffdio_range range = { (unsigned long)at, 8 * page };
	say("not armed", ioctl(fd, UFFDIO_UNREGISTER, &range));
	at[6 * page] = 6;
	scanned("not armed", at, of(at, 8, 0, PRESENT), 64);
	munmap(at, 8 * page);
}

static void refused(char *at)
{
	struct scan asked = of(at, 2, 0, 0);

	printf("-- refused\n");
	asked.size = sizeof asked - 8;
	say("another size", ioctl(map, SCAN, &asked));
	asked.size = sizeof asked;
	asked.flags = 4;
	say("a flag", ioctl(map, SCAN, &asked));
	asked.flags = 0;
	asked.told = 1 << 20;
	say("a kind", ioctl(map, SCAN, &asked));
	asked.told = ALL;
	asked.start++;
	say("within a page", ioctl(map, SCAN, &asked));
	asked.start--;
	asked.vec_len = 3;
	say("nowhere to tell", ioctl(map, SCAN, &asked));
	asked.vec_len = 0;
	asked.end = asked.start - SMALL;
	say("backwards", ioctl(map, SCAN, &asked));
	asked.end = asked.start;
	say("nothing", ioctl(map, SCAN, &asked));
	say("up to its end", asked.walk_end == asked.end);
	asked.end = asked.start + 1;
	say("a byte", ioctl(map, SCAN, &asked));
	say("up to a page", asked.walk_end == asked.start + SMALL);
	asked.end = 1ul << 63;
	say("everything", ioctl(map, SCAN, &asked));
	say("another request", ioctl(map, _IO('f', 17), &asked));
	say("nowhere", ioctl(map, SCAN, 8));
}

int main(void)
{
	FILE *file = fopen(POOL, "r");
	long before = 0;
	int small = memfd_create("small", 0), huge = memfd_create("huge", MFD_HUGETLB);
	int rights = PROT_READ | PROT_WRITE, own = MAP_PRIVATE | MAP_ANONYMOUS;

	if (fscanf(file, "%ld", &before) != 1 || !freopen(POOL, "w", file) || fprintf(file, "16") < 0 || fclose(file))
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	map = open("/proc/self/pagemap", O_RDONLY);
	page = SMALL;
	char *at = mmap(0, 8 * page, rights, own, -1, 0);
	refused(at);
	opened(UFFD_FEATURE_PAGEFAULT_FLAG_WP);
	say("told, not noted", enlist(at, 8 * page, UFFDIO_REGISTER_MODE_WP));
	scanned("demanded", at, of(at, 8, DEMANDS, 0), 64);
	close(fd);
	opened(UFFD_FEATURE_WP_ASYNC);
	life("private", at);
	ftruncate(small, 8 * page);
	life("shared", mmap(0, 8 * page, rights, MAP_SHARED, small, 0));
	life("private, of a file", mmap(0, 8 * page, rights, MAP_PRIVATE, small, 0));
	int id = shmget(IPC_PRIVATE, 8 * page, 0600);
	at = shmat(id, 0, 0);
	shmctl(id, IPC_RMID, 0);
	say("missing of a segment", enlist(at, 8 * page, UFFDIO_REGISTER_MODE_MISSING));
	life("a segment", at);

	at = mmap(0, 4 * HUGE, rights, own, -1, 0);
	char *large = (char *)(((unsigned long)at + HUGE - 1) & ~(HUGE - 1));
	printf("-- large\n");
	madvise(large, HUGE, MADV_HUGEPAGE);
	large[0] = 1;
	say("registered", enlist(large, HUGE, UFFDIO_REGISTER_MODE_WP));
	scanned("watched", large, of(large, 512, WATCHES, WRITTEN), 64);
	all("watched", large, 512);
	large[77 * SMALL] = 1;
	scanned("written", large, of(large, 512, 0, WRITTEN), 64);
	scanned("written", large, of(large, 512, WATCHES, WRITTEN), 64);
	munmap(at, 4 * HUGE);

	page = HUGE;
	ftruncate(huge, 8 * page);
	life("huge", mmap(0, 8 * page, rights, own | MAP_HUGETLB, -1, 0));
	life("huge, shared", mmap(0, 8 * page, rights, MAP_SHARED, huge, 0));
	close(huge);
	close(fd);
	file = fopen(POOL, "w");
	fprintf(file, "%ld", before);
	fclose(file);
	return 0;
}
