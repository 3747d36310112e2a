/* Programs that each rest on one rule of Linux's memory management: `rules NAME`. What they do is
 * the same in every run; tests/rules.rs predicts their faults and counts them. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, MIB = 1 << 20, WHOLE = 32 * MIB };

/* The same place in every run, whatever else is mapped. */
static char *const PLACE = (char *)0x200000000000;

static char *map_at(char *place, size_t bytes, int rights)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
	char *at = mmap(place, bytes, rights, flags, -1, 0);

	if (at == MAP_FAILED)
		_exit(3);
	return at;
}

static char *map(size_t bytes)
{
	return map_at(PLACE, bytes, PROT_READ | PROT_WRITE);
}

static void write_pages(char *at, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += PAGE)
		((volatile char *)at)[i] = 1;
}

static void read_pages(char *at, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += PAGE)
		(void)((volatile char *)at)[i];
}

/* Some bytes at the start of each stretch. */
static void advise_parts(char *at, size_t stretch, size_t part, int advice)
{
	for (size_t i = 0; i < WHOLE; i += stretch)
		madvise(at + i, part, advice);
}

/* Reads bring zeros, of a huge page where one is allowed; writes replace them. */
static void zeros(void)
{
	char *at = map(WHOLE);

	read_pages(at, WHOLE);
	write_pages(at, WHOLE / 2);
}

/* Parts of folios are dropped and come back. */
static void dropped(void)
{
	char *at = map(WHOLE);

	write_pages(at, WHOLE);
	advise_parts(at, 128 << 10, 32 << 10, MADV_DONTNEED);
	write_pages(at, WHOLE);
}

/* Parts of folios may be dropped, and are not. */
static void freed(void)
{
	char *at = map(WHOLE);

	write_pages(at, WHOLE);
	advise_parts(at, 128 << 10, 32 << 10, MADV_FREE);
	write_pages(at, WHOLE);
}

/* Pages become huge pages because the program says so, whatever the switches say. */
static void collapsed(void)
{
	const int collapse = 25;
	char *at = map(WHOLE);

	for (size_t i = 0; i < WHOLE; i += 2 * MIB)
		write_pages(at + i, 64 << 10);
	madvise(at, WHOLE, collapse);
	write_pages(at, WHOLE);
}

/* Whatever is mapped from now on is filled at once: by mmap, by brk, by mremap; and no more. */
static void locked_ahead(void)
{
	char *at, *heap;

	if (mlockall(MCL_FUTURE))
		_exit(4);
	at = map(WHOLE / 2);
	heap = sbrk(4 * MIB);
	at = mremap(at, WHOLE / 2, WHOLE, 0);
	if (at == MAP_FAILED || heap == (char *)-1)
		_exit(5);
	write_pages(at, WHOLE);
	write_pages(heap, 4 * MIB);
	munlockall();
	munmap(at, WHOLE);
	write_pages(map(WHOLE), WHOLE);
}

/* Locked pages are areas of their own, with edges that no folio lies over. */
static void locked(void)
{
	char *at = map(WHOLE);

	for (size_t i = 0; i < WHOLE; i += 2 * MIB)
		if (mlock(at + i + 24 * PAGE, PAGE))
			_exit(4);
	write_pages(at, WHOLE / 2);
	for (size_t i = 0; i < WHOLE; i += 2 * MIB)
		munlock(at + i + 24 * PAGE, PAGE);
	write_pages(at, WHOLE);
}

/* What a child is not to have is an area of its own, until it is to have it. */
static void withheld(void)
{
	const size_t stretch = 256 << 10, part = 36 << 10;
	char *at = map(WHOLE);

	advise_parts(at, stretch, part, MADV_DONTFORK);
	write_pages(at, WHOLE / 4);
	for (size_t i = 0; i < WHOLE; i += 2 * MIB)
		madvise(at + i, 2 * MIB, MADV_DOFORK);
	write_pages(at + WHOLE / 2, WHOLE / 2);
}

/* Pages that a child shares are copied when either writes. */
static void forked(void)
{
	char *at = map(WHOLE);

	write_pages(at, WHOLE);
	if (fork() == 0) {
		write_pages(at, WHOLE / 4);
		_exit(0);
	}
	wait(NULL);
	write_pages(at, WHOLE);
}

/* A part goes to where folios lie otherwise. */
static void moved(void)
{
	const int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
	char *at = map(WHOLE), *to;

	write_pages(at, WHOLE / 2);
	to = mremap(at + 4 * MIB, 8 * MIB, 8 * MIB, flags, PLACE + 1024 * MIB + 9 * PAGE);
	if (to == MAP_FAILED)
		_exit(5);
	write_pages(to, 8 * MIB);
	write_pages(at + WHOLE / 2, WHOLE / 2);
}

/* An area is cut by rights while it is filled, and whole again. */
static void cut(void)
{
	const size_t stretch = 128 << 10, part = 36 << 10;
	char *at = map(WHOLE);

	for (size_t i = 0; i < WHOLE; i += stretch)
		mprotect(at + i, part, PROT_READ);
	for (size_t i = 0; i < WHOLE; i += stretch)
		write_pages(at + i + part, stretch - part);
	mprotect(at, WHOLE, PROT_READ | PROT_WRITE);
	write_pages(at, WHOLE);
}

/* Neighbours that were written to before they could be one are none later. */
static void apart(void)
{
	const size_t part = 96 << 10;
	char *at = map(WHOLE);

	advise_parts(at, 2 * part, part, MADV_DONTFORK);
	for (size_t i = 0; i < WHOLE; i += part)
		write_pages(at + i, PAGE);
	madvise(at, WHOLE, MADV_DOFORK);
	write_pages(at, WHOLE);
}

/* What comes between two of these is one with the lower; where rights alone differ, all are. */
static void between(void)
{
	const size_t part = 96 << 10, half = 80 * 2 * part;
	const int both = PROT_READ | PROT_WRITE;

	for (size_t i = 0; i < half; i += 2 * part)
		write_pages(map_at(PLACE + i, part, both), PAGE);
	for (size_t i = part; i < half; i += 2 * part)
		map_at(PLACE + i, part, both);
	write_pages(PLACE, half);
	for (size_t i = half; i < 2 * half; i += 2 * part) {
		write_pages(map_at(PLACE + i, part, both), PAGE);
		mprotect(PLACE + i, part, PROT_READ);
		write_pages(map_at(PLACE + i + part, part, both), PAGE);
	}
	mprotect(PLACE + half, half, both);
	write_pages(PLACE + half, half);
}

/* A child's new memory is not one with what it has from its parent. */
static void inherited(void)
{
	const size_t stretch = 2 * MIB, part = MIB + 36 * 1024;
	const int both = PROT_READ | PROT_WRITE;

	for (size_t i = 0; i < WHOLE; i += stretch)
		write_pages(map_at(PLACE + i, part, both), PAGE);
	if (fork() == 0) {
		for (size_t i = part; i < WHOLE; i += stretch)
			map_at(PLACE + i, stretch - part, both);
		write_pages(PLACE, WHOLE);
		mprotect(PLACE, WHOLE / 2, PROT_READ);
		mprotect(PLACE, WHOLE / 2, both);
		write_pages(PLACE, WHOLE);
		_exit(0);
	}
	wait(NULL);
}

/* Memory that was writable once is accounted for, and not one with what never was. */
static void accounted(void)
{
	const size_t stretch = 3 * MIB, part = 100 << 10;
	char *at = map_at(PLACE, WHOLE, PROT_READ);

	for (size_t i = 0; i + stretch <= WHOLE; i += stretch) {
		mprotect(at + i, part, PROT_READ | PROT_WRITE);
		write_pages(at + i, PAGE);
		mprotect(at + i, part, PROT_READ);
		/* Given back, as nothing was written. */
		mprotect(at + i + stretch / 2, part, PROT_READ | PROT_WRITE);
		mprotect(at + i + stretch / 2, part, PROT_READ);
	}
	read_pages(at, WHOLE);
	mprotect(at, WHOLE, PROT_READ | PROT_WRITE);
	write_pages(at, WHOLE);
}

/* A guard is a page's, and parts no areas; it stays when the rest is dropped. */
static void guarded(void)
{
	const int install = 102, remove = 103;
	const size_t stretch = 128 << 10, part = 96 << 10;
	char *at = map(WHOLE);

	for (size_t i = 0; i < WHOLE; i += stretch) {
		write_pages(at + i, PAGE);
		if (madvise(at + i + part, PAGE, install))
			_exit(4);
		write_pages(at + i, part);
		write_pages(at + i + part + PAGE, stretch - part - PAGE);
	}
	madvise(at, WHOLE, MADV_DONTNEED);
	for (size_t i = 0; i < WHOLE; i += stretch)
		write_pages(at + i + part + PAGE, stretch - part - PAGE);
	madvise(at, WHOLE, remove);
	write_pages(at, WHOLE);
}

/* A whole block that is dropped at once can be a huge page again; dropped in parts, it can not. */
static void emptied(void)
{
	char *at = map(WHOLE);

	madvise(at, WHOLE, MADV_NOHUGEPAGE);
	write_pages(at, WHOLE);
	madvise(at, WHOLE / 2 + MIB, MADV_DONTNEED);
	for (size_t i = WHOLE / 2 + MIB; i < WHOLE; i += MIB)
		madvise(at + i, MIB, MADV_DONTNEED);
	madvise(at, WHOLE, MADV_HUGEPAGE);
	write_pages(at, WHOLE);
}

/* The other side of what the program fills, or is told of, until the pipe is closed. */
static struct {
	int fd, end;
	char *source;
} filler;

static void *fills(void *unused)
{
	struct pollfd both[] = { { filler.fd, POLLIN, 0 }, { filler.end, POLLIN, 0 } };
	struct uffd_msg told;

	while (poll(both, 2, -1) > 0 && both[1].revents == 0) {
		if (read(filler.fd, &told, sizeof(told)) != sizeof(told))
			continue;
		unsigned long long page = told.arg.pagefault.address & ~(PAGE - 1ull);
		struct uffdio_copy copy = { page, (unsigned long long)filler.source, PAGE, 0, 0 };
		struct uffdio_writeprotect allow = { { page, PAGE }, 0 };

		if (told.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP)
			ioctl(filler.fd, UFFDIO_WRITEPROTECT, &allow);
		else
			ioctl(filler.fd, UFFDIO_COPY, &copy);
	}
	return unused;
}

/* A descriptor of this range, and who answers. */
static pthread_t answer(char *at, size_t bytes, int mode, int *end)
{
	struct uffdio_api api = { .api = UFFD_API, .features = 0 };
	struct uffdio_register range = { { (unsigned long long)at, bytes }, mode, 0 };
	pthread_t thread;
	int ends[2];

	filler.fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	filler.source = map_at(PLACE + 1024 * MIB, WHOLE, PROT_READ | PROT_WRITE);
	write_pages(filler.source, WHOLE);
	if (filler.fd < 0 || ioctl(filler.fd, UFFDIO_API, &api) || pipe(ends))
		_exit(6);
	if (ioctl(filler.fd, UFFDIO_REGISTER, &range))
		_exit(6);
	filler.end = ends[0];
	*end = ends[1];
	pthread_create(&thread, NULL, fills, NULL);
	return thread;
}

/* A program fills its memory itself, where it is touched and ahead of that, and stops to. */
static void filled(void)
{
	char *at = map(WHOLE);
	int end;
	pthread_t thread = answer(at, WHOLE, UFFDIO_REGISTER_MODE_MISSING, &end);
	struct uffdio_copy ahead = { (unsigned long long)at, (unsigned long long)filler.source,
				     WHOLE / 4, 0, 0 };
	struct uffdio_zeropage zeros = { { (unsigned long long)at + WHOLE / 4, WHOLE / 4 }, 0, 0 };
	struct uffdio_range rest = { (unsigned long long)at + 3 * (WHOLE / 4), WHOLE / 4 };

	ioctl(filler.fd, UFFDIO_COPY, &ahead);
	ioctl(filler.fd, UFFDIO_ZEROPAGE, &zeros);
	write_pages(at, 3 * (WHOLE / 4));
	ioctl(filler.fd, UFFDIO_UNREGISTER, &rest);
	write_pages(at, WHOLE);
	close(end);
	pthread_join(thread, NULL);
	close(filler.fd);
	write_pages(map_at(at + WHOLE, WHOLE, PROT_READ | PROT_WRITE), WHOLE);
	madvise(at, WHOLE, MADV_DONTNEED);
	write_pages(at, WHOLE);
}

/* A program is told of writes: no folio of less than 2 MiB comes, and each page is asked for. */
static void watched(void)
{
	char *at = map(WHOLE);
	int end;
	pthread_t thread = answer(at, WHOLE, UFFDIO_REGISTER_MODE_WP, &end);
	struct uffdio_writeprotect protect = { { (unsigned long long)at, WHOLE / 4 },
					       UFFDIO_WRITEPROTECT_MODE_WP };

	write_pages(at, WHOLE / 2);
	ioctl(filler.fd, UFFDIO_WRITEPROTECT, &protect);
	write_pages(at, WHOLE);
	close(end);
	pthread_join(thread, NULL);
}

/* Pages that the kernel brings for another: a read around the page cache, and a process's child. */
static void unseen(void)
{
	char name[] = "unseenXXXXXX", *at = map(WHOLE);
	char *source = map_at(PLACE + 1024 * MIB, WHOLE / 4, PROT_READ | PROT_WRITE);
	int file = mkostemp(name, O_DIRECT), status;
	struct iovec here = { source, WHOLE / 4 }, there = { at + WHOLE / 2, WHOLE / 4 };

	write_pages(source, WHOLE / 4);
	if (file < 0 || unlink(name) || write(file, source, WHOLE / 4) != WHOLE / 4)
		_exit(7);
	if (fsync(file) || pread(file, at, WHOLE / 4, 0) != WHOLE / 4)
		_exit(8);
	if (fork() == 0)
		_exit(process_vm_writev(getppid(), &here, 1, &there, 1, 0) != WHOLE / 4);
	wait(&status);
	if (status)
		_exit(9);
	munmap(at, WHOLE / 4);
	write_pages(at + WHOLE / 4, WHOLE / 2);
	if (pread(file, at + 3 * (WHOLE / 4), WHOLE / 4, 0) != WHOLE / 4)
		_exit(8);
}

static const struct {
	const char *name;
	void (*run)(void);
} rules[] = {
	{ "zeros", zeros },	{ "dropped", dropped },
	{ "freed", freed },	{ "collapsed", collapsed },
	{ "locked", locked },	{ "withheld", withheld },
	{ "locked-ahead", locked_ahead },
	{ "forked", forked },	{ "moved", moved },
	{ "cut", cut },		{ "apart", apart },
	{ "between", between },	{ "inherited", inherited },
	{ "accounted", accounted },	{ "guarded", guarded },
	{ "emptied", emptied },
	{ "filled", filled },	{ "unseen", unseen },	{ "watched", watched },
};

int main(int count, char **words)
{
	for (size_t i = 0; count == 2 && i < sizeof(rules) / sizeof(*rules); i++) {
		if (strcmp(rules[i].name, words[1]) == 0) {
			rules[i].run();
			return 0;
		}
	}
	return 2;
}
