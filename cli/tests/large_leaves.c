/*
 * Where a leaf of 2 MiB maps memory, and where none does: after an advice that drops what small pages had, and after MADV_COLLAPSE of
 * memory that maps a file. Prints what the system answers; two systems that print the same agree.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#define PAGE 4096ul
#define HUGE (2ul << 20)

static void say(const char *what, long answer)
{
	printf("%s: %s\n", what, answer ? strerror(errno) : "ok");
}

/* What smaps says in KiB of the area at an address. */
static long shown(void *at, const char *name)
{
	FILE *file = fopen("/proc/self/smaps", "r");
	unsigned long start, end;
	int is_it = 0;
	char line[512];
	long value;

	if (!file)
		exit(1);
	while (fgets(line, sizeof line, file)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2 && strchr(line, '-') < strchr(line, ' '))
			is_it = start <= (unsigned long)at && (unsigned long)at < end;
		else if (is_it && !strncmp(line, name, strlen(name)) && line[strlen(name)] == ':') {
			value = atol(line + strlen(name) + 1);
			fclose(file);
			return value;
		}
	}
	exit(1);
}

static void leaves(const char *what, void *at)
{
	printf("%s: resident %ld, by large leaves %ld and %ld\n", what, shown(at, "Rss"), shown(at, "AnonHugePages"),
	       shown(at, "ShmemPmdMapped") + shown(at, "FilePmdMapped"));
}

/* Memory for so many blocks of 2 MiB, aligned. */
static char *place(int blocks)
{
	char *at = mmap(NULL, (blocks + 1) * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED)
		exit(1);
	return (char *)(((unsigned long)at + HUGE - 1) & ~(HUGE - 1));
}

static char *map(int blocks, int rights, int flags, int fd, long offset)
{
	char *at = mmap(place(blocks), blocks * HUGE, rights, flags | MAP_FIXED, fd, offset);

	if (at == MAP_FAILED)
		exit(1);
	return at;
}

static void dropped(void)
{
	char *at = map(2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	say("no large pages", madvise(at, 2 * HUGE, MADV_NOHUGEPAGE));
	for (unsigned long page = 0; page < 1024; page += 8)
		at[page * PAGE] = 1;
	leaves("small pages", at);
	say("large pages", madvise(at, 2 * HUGE, MADV_HUGEPAGE));
	say("drop the first block", madvise(at, HUGE, MADV_DONTNEED));
	at[5 * PAGE] = 1;
	leaves("touched again", at);
	say("drop half of the second", madvise(at + HUGE, HUGE / 2, MADV_DONTNEED));
	say("drop the other half", madvise(at + HUGE + HUGE / 2, HUGE / 2, MADV_DONTNEED));
	at[HUGE] = 1;
	leaves("touched again", at);
	say("drop it whole", madvise(at + HUGE, HUGE, MADV_DONTNEED));
	at[HUGE] = 1;
	leaves("touched again", at);
	say("drop both", madvise(at, 2 * HUGE, MADV_DONTNEED));
	leaves("dropped", at);
	munmap(at, 2 * HUGE);
}

static int file(unsigned long bytes)
{
	int fd = memfd_create("file", 0);

	if (fd < 0 || ftruncate(fd, bytes))
		exit(1);
	return fd;
}

static void collapsed(void)
{
	int fd = file(4 * HUGE);
	char *at = map(4, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	char *other = map(4, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	say("a file without pages", madvise(at, HUGE, MADV_COLLAPSE));
	for (unsigned long page = 0; page < 512; page++)
		at[page * PAGE] = page;
	other[3 * PAGE + 1] = 7;
	say("one block of it", madvise(at, HUGE, MADV_COLLAPSE));
	leaves("here", at);
	leaves("there", other);
	printf("read there %d %d\n", other[3 * PAGE + 1], other[511 * PAGE]);
	leaves("there", other);
	say("again", madvise(at, HUGE, MADV_COLLAPSE));
	say("through the other mapping", madvise(other, HUGE, MADV_COLLAPSE));

	at[HUGE + 9 * PAGE] = 9;
	say("a block with one page", madvise(at + HUGE, HUGE, MADV_COLLAPSE));
	leaves("here", at);
	printf("read %d %d\n", at[HUGE + 9 * PAGE], at[HUGE + 10 * PAGE]);
	say("a part of a block", madvise(at, HUGE - PAGE, MADV_COLLAPSE));
	at[2 * HUGE] = 1;
	say("a block with pages and one without", madvise(at + 2 * HUGE, 2 * HUGE, MADV_COLLAPSE));
	leaves("here", at);
	say("no large pages", madvise(at, HUGE, MADV_NOHUGEPAGE));
	say("where none are wanted", madvise(at, HUGE, MADV_COLLAPSE));
	say("but there", madvise(other, HUGE, MADV_COLLAPSE));
	munmap(at, 4 * HUGE);
	munmap(other, 4 * HUGE);
	close(fd);
}

static void privately(void)
{
	int fd = file(2 * HUGE);
	char *at = map(2, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	char *other = map(2, PROT_READ, MAP_SHARED, fd, 0);
	char *apart = map(1, PROT_READ, MAP_SHARED, fd, PAGE);
	long sum = 0;

	if (pwrite(fd, "abc", 3, 5 * PAGE) != 3 || pwrite(fd, "def", 3, HUGE + 5 * PAGE) != 3)
		exit(1);
	at[4 * PAGE] = 4;
	say("private, with a page of its own", madvise(at, HUGE, MADV_COLLAPSE));
	leaves("private", at);
	printf("read %d %c%c\n", at[4 * PAGE], at[5 * PAGE], other[5 * PAGE + 1]);
	say("private, with none", madvise(at + HUGE, HUGE, MADV_COLLAPSE));
	leaves("private", at);
	printf("read %c\n", at[HUGE + 5 * PAGE]);
	at[HUGE + 5 * PAGE] = 'x';
	printf("written %c, beside it %c, in the file %c\n", at[HUGE + 5 * PAGE], at[HUGE + 5 * PAGE + 1], other[HUGE + 5 * PAGE]);
	say("to be read", madvise(other, 2 * HUGE, MADV_COLLAPSE));
	leaves("to be read", other);
	say("apart by a page", madvise(apart, HUGE, MADV_COLLAPSE));
	for (unsigned long page = 0; page < 1024; page++)
		sum += other[page * PAGE];
	printf("sum %ld\n", sum);
	munmap(at, 2 * HUGE);
	munmap(other, 2 * HUGE);
	munmap(apart, HUGE);
	close(fd);
}

/* What a parent collapses its child has. */
static void in_a_child(void)
{
	int fd = file(HUGE), go[2], ready[2], status;
	char *at = map(1, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	char one;

	for (unsigned long page = 0; page < 512; page += 2)
		at[page * PAGE] = page;
	if (pipe(go) || pipe(ready))
		exit(1);
	fflush(stdout);
	if (!fork()) {
		if (at[6 * PAGE] != 6 || write(ready[1], "x", 1) != 1 || read(go[0], &one, 1) != 1)
			_exit(1);
		leaves("in the child, collapsed by the parent", at);
		printf("read %d %d\n", at[6 * PAGE], at[7 * PAGE]);
		leaves("in the child", at);
		at[6 * PAGE] = 60;
		fflush(stdout);
		_exit(0);
	}
	if (read(ready[0], &one, 1) != 1)
		exit(1);
	say("in the parent", madvise(at, HUGE, MADV_COLLAPSE));
	fflush(stdout);
	if (write(go[1], "x", 1) != 1)
		exit(1);
	wait(&status);
	printf("the child ended with %d, read %d\n", status, at[6 * PAGE]);
	leaves("in the parent", at);
	munmap(at, HUGE);
	close(fd);
}

static void punched(void)
{
	int fd = file(HUGE);
	char *at = map(1, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	at[0] = 1;
	say("one block", madvise(at, HUGE, MADV_COLLAPSE));
	leaves("collapsed", at);
	say("a page is punched out", fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 3 * PAGE, PAGE));
	printf("read %d %d\n", at[0], at[3 * PAGE]);
	say("once more", madvise(at, HUGE, MADV_COLLAPSE));
	leaves("collapsed", at);
	say("all is punched out", fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, HUGE));
	leaves("punched", at);
	say("once more", madvise(at, HUGE, MADV_COLLAPSE));
	munmap(at, HUGE);
	close(fd);
}

int main(void)
{
	dropped();
	collapsed();
	privately();
	in_a_child();
	punched();
	return 0;
}
