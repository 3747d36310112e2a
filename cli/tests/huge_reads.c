/*
 * Files of huge pages, read: what is there, holes, ends, and buffers that are not. Prints what the system answers; two systems that
 * print the same agree.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "say.h"

#define PAGE 4096ul
#define HUGE (2ul << 20)

static char into[3 * HUGE];

static long pool(const char *name)
{
	char path[100];
	long value = -1;
	FILE *file;

	snprintf(path, sizeof path, "/sys/kernel/mm/hugepages/hugepages-2048kB/%s", name);
	file = fopen(path, "r");
	if (!file || fscanf(file, "%ld", &value) != 1)
		exit(1);
	fclose(file);
	return value;
}

/* Whether bytes that were read are those that were written, from an offset of the file on. */
static int is_as_written(const char *at, unsigned long offset, unsigned long count)
{
	for (unsigned long nth = 0; nth < count; nth++, offset++) {
		char expect = offset / HUGE == 1 ? 0 : (char)(offset / 7 + offset / PAGE);

		if (at[nth] != expect)
			return 0;
	}
	return 1;
}

static void part(int file, unsigned long offset, unsigned long count)
{
	long got;

	memset(into, 9, sizeof into);
	got = pread(file, into, count, offset);
	printf("%lu from %lu on: %ld, as written: %s\n", count, offset, got,
	       got < 0 ? strerror(errno) : is_as_written(into, offset, got) ? "yes" : "no");
}

int main(void)
{
	FILE *size = fopen("/proc/sys/vm/nr_hugepages", "w");
	int file = memfd_create("huge", MFD_HUGETLB);
	struct iovec two[2] = { { into, 10 }, { into + PAGE, PAGE } };
	char *shared, *none, *edge;

	if (!size || file < 0)
		return 2;
	fprintf(size, "8\n");
	fclose(size);
	say("an empty file", read(file, into, PAGE));
	if (ftruncate(file, 3 * HUGE))
		return 3;
	say("free, before a hole is read", pool("free_hugepages"));
	say("a hole", pread(file, into, sizeof into, 0));
	printf("zeros: %s\n", memchr(into, 0, 1) && !memcmp(into, into + 1, sizeof into - 1) ? "yes" : "no");
	say("free, behind it", pool("free_hugepages"));
	shared = mmap(NULL, 3 * HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (shared == MAP_FAILED)
		return 4;
	for (unsigned long at = 0; at < 3 * HUGE; at++)
		if (at / HUGE != 1)
			shared[at] = (char)(at / 7 + at / PAGE);
	part(file, 0, sizeof into);
	part(file, 5, 20);
	part(file, PAGE - 3, 10);
	part(file, HUGE - 3, PAGE);
	part(file, 2 * HUGE - 1, 100);
	part(file, 3 * HUGE - 7, PAGE);
	part(file, 3 * HUGE, PAGE);
	part(file, 5 * HUGE, PAGE);
	say("of a position before", pread(file, into, 1, -1));
	say("written", pwrite(file, into, 5, 0));
	say("written by a position", write(file, into, 5));
	say("by a position", read(file, into, HUGE + 5));
	say("the position", lseek(file, 0, SEEK_CUR));
	say("into two", readv(file, two, 2));
	printf("both: %s\n", is_as_written(into, HUGE + 5, 10) && is_as_written(into + PAGE, HUGE + 15, PAGE) ? "yes" : "no");
	none = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(none + PAGE, PAGE);
	say("into nothing", pread(file, none + PAGE, PAGE, 0));
	edge = none + PAGE - 100;
	say("into what ends", pread(file, edge, PAGE, 0));
	printf("up to there: %s\n", is_as_written(edge, 0, 100) ? "yes" : "no");
	fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, HUGE);
	say("punched", pread(file, into, PAGE, 0));
	printf("zeros: %s\n", !into[0] && !memcmp(into, into + 1, PAGE - 1) ? "yes" : "no");
	munmap(shared, 3 * HUGE);
	close(file);
	say("free, in the end", pool("free_hugepages"));
	return 0;
}
