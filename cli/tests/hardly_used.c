/*
 * Takes a huge page after another and leaves one page of each: all that is mapped is little, and all that is not comes back where memory is
 * short, also for what is no fault. Usage: hardly_used COUNT, where COUNT huge pages are more than there is memory.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE (2ul << 20)
#define PAGE 4096ul

int main(int count, char **words)
{
	int huge = atoi(words[1]), nth, opened, file;
	char *kept = mmap(NULL, huge * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *room = mmap(NULL, 2 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *at = (char *)(((unsigned long)room + HUGE - 1) & -HUGE);

	for (nth = 0; nth < huge; nth++) {
		if (mmap(at, HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
			return 2;
		madvise(at, HUGE, MADV_HUGEPAGE);
		*at = nth % 100 + 1;
		if (mremap(at, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, kept + nth * PAGE) == MAP_FAILED)
			return 3;
		munmap(at, HUGE);
		for (opened = 0; opened < 100; opened++) {
			file = open("/proc/self/smaps", O_RDONLY);
			if (file < 0) {
				printf("no file beside %d\n", nth);
				return 1;
			}
			close(file);
		}
	}
	for (nth = 0; nth < huge; nth++)
		if (kept[nth * PAGE] != nth % 100 + 1)
			return 4;
	puts("all are there");
	return 0;
}
