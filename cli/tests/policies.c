/*
 * Memory policies of threads and of ranges on a machine with one memory node, and where pages are. Prints what the system answers; two
 * systems that print the same agree.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "say.h"

#define PAGE 4096ul

enum { DEFAULT, PREFERRED, BIND, INTERLEAVE, LOCAL, PREFERRED_MANY, WEIGHTED };
enum { BALANCING = 1 << 13, RELATIVE = 1 << 14, STATIC = 1 << 15 };
enum { STRICT = 1, MOVE = 2, MOVE_ALL = 4 };
enum { NODE = 1, ADDR = 2, MEMS = 4 };

static char *arena;
static const unsigned long none = 0, zero = 1, one = 2, both = 3;

static long set(int mode, const void *mask, unsigned long count)
{
	return syscall(SYS_set_mempolicy, mode, mask, count);
}

static long bind_range(unsigned long page, unsigned long pages, int mode, const void *mask, int flags)
{
	return syscall(SYS_mbind, arena + page * PAGE, pages * PAGE, mode, mask, 64, flags);
}

static void get(const char *what, const void *at, unsigned long flags)
{
	unsigned long mask[2] = { -1, -1 };
	int mode = -1;

	if (syscall(SYS_get_mempolicy, &mode, mask, 65, at, flags))
		say(what, -1);
	else
		printf("%s: %#x over %#lx\n", what, mode, mask[0]);
}

/* The areas of the arena as they are listed, and the policies of them. */
static void list(const char *what)
{
	char line[512];
	unsigned long start, end, from = (unsigned long)arena, to = from + 64 * PAGE;
	FILE *maps = fopen("/proc/self/maps", "r"), *numa = fopen("/proc/self/numa_maps", "r");

	if (!maps || !numa)
		exit(2);
	printf("%s:", what);
	while (fgets(line, sizeof line, maps))
		if (sscanf(line, "%lx-%lx", &start, &end) == 2 && start >= from && start < to)
			printf(" %lu+%lu", (start - from) / PAGE, (end - start) / PAGE);
	printf("\n");
	while (fgets(line, sizeof line, numa)) {
		char *policy, *there, *pages, *size;

		start = strtoul(line, &policy, 16);
		if (start < from || start >= to)
			continue;
		policy[strcspn(policy, "\n")] = 0;
		pages = strstr(policy, " N0=");
		size = strstr(policy, " kernelpagesize_kB=");
		there = strstr(policy, " anon=");
		if (pages)
			pages[strcspn(pages + 1, " ") + 1] = 0;
		printf("\t%lu:%.*s%s%s\n", (start - from) / PAGE, there ? (int)(there - policy) : 100, policy, pages ? pages : "", size ? size : "");
	}
	fclose(maps);
	fclose(numa);
}

static void show(const char *path)
{
	char text[4096];
	FILE *file = fopen(path, "r");
	size_t count = file ? fread(text, 1, sizeof text - 1, file) : 0;

	text[count] = 0;
	text[strcspn(text, "\n")] = 0;
	printf("%s: %s\n", path, file ? text : strerror(errno));
	if (file)
		fclose(file);
}

/* Lines of a file that begin with a word. */
static void show_lines(const char *path, const char *word)
{
	char line[1024];
	FILE *file = fopen(path, "r");

	if (!file)
		exit(3);
	while (fgets(line, sizeof line, file))
		if (!strncmp(line, word, strlen(word)))
			fputs(line, stdout);
	fclose(file);
}

static void modes(void)
{
	for (int mode = DEFAULT; mode <= WEIGHTED + 1; mode++)
		for (int flags = 0; flags < 8; flags++) {
			printf("mode %d, flags %d:", mode, flags);
			for (unsigned long mask = 0; mask < 4; mask++) {
				unsigned long told = -1;
				int was = -1, next = -1;

				if (set(mode | flags << 13, &mask, 64)) {
					printf(" -%d", errno);
					continue;
				}
				syscall(SYS_get_mempolicy, &was, &told, 64, 0, 0);
				printf(" %#x/%#lx", was, told);
				if (!syscall(SYS_get_mempolicy, &next, 0, 0, 0, NODE))
					printf("/next %d", next);
			}
			printf("\n");
		}
	say("no mode", set(-1, &zero, 64));
	say("none again", set(DEFAULT, 0, 0));
}

static void masks(void)
{
	static const unsigned long counts[] = { 0, 1, 2, 64, 65, 66, 1024, 1025, 1026, 32769, 32770, -1ul };
	static unsigned long mask[1024];
	char *edge = mmap(0, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int mode;

	mask[0] = 1;
	for (unsigned nth = 0; nth < sizeof counts / sizeof *counts; nth++) {
		printf("%ld bits", (long)counts[nth]);
		say(", set", set(BIND, mask, counts[nth]));
	}
	mask[16] = 2;
	say("a node that no machine has", set(BIND, mask, 1027));
	say("the same, not read", set(BIND, mask, 1025));
	mask[16] = 0;
	mask[15] = 1ul << 63;
	say("the last that one can have", set(BIND, mask, 1025));
	munmap(edge + PAGE, PAGE);
	memset(edge, 0, PAGE);
	edge[PAGE - 8] = 1;
	say("a mask at the end of memory", set(BIND, edge + PAGE - 8, 65));
	say("one that reaches over it", set(BIND, edge + PAGE - 8, 66));
	say("none there", set(BIND, edge + PAGE, 2));
	say("a wrong mode with a wrong mask", set(99, edge + PAGE, 2));
	say("default with a wrong mask", set(DEFAULT, edge + PAGE, 2));
	say("default with none", set(DEFAULT, 0, 99));
	set(BIND, &zero, 64);
	for (unsigned nth = 0; nth < sizeof counts / sizeof *counts; nth++) {
		long at = 0, answer;

		memset(mask, 0xff, sizeof mask);
		answer = syscall(SYS_get_mempolicy, &mode, mask, counts[nth], 0, 0);
		while (at < 1024 && mask[at] != -1ul)
			at++;
		printf("%ld bits, got: %s, %ld words\n", (long)counts[nth], answer ? strerror(errno) : "well", at);
	}
	say("nothing got", syscall(SYS_get_mempolicy, 0, 0, 0, 0, 0));
	say("a mode to nowhere", syscall(SYS_get_mempolicy, edge + PAGE, 0, 0, 0, 0));
	say("a mask to nowhere", syscall(SYS_get_mempolicy, 0, edge + PAGE, 64, 0, 0));
	set(DEFAULT, 0, 0);
}

static void ranges(void)
{
	volatile char *touched = arena;
	unsigned char there;

	touched[0] = touched[PAGE] = 1;
	munmap(arena + 8 * PAGE, PAGE);
	say("unaligned", syscall(SYS_mbind, arena + 1, PAGE, BIND, &zero, 64, 0));
	say("wrapped", syscall(SYS_mbind, arena, -PAGE, BIND, &zero, 64, 0));
	say("all that there is", syscall(SYS_mbind, arena, -1ul, BIND, &zero, 64, 0));
	say("nothing, over no node", bind_range(0, 0, BIND, &none, 0));
	say("nothing, with flags", bind_range(0, 0, BIND, &zero, 8));
	say("flags", bind_range(0, 1, BIND, &zero, 8));
	say("mode", bind_range(0, 1, WEIGHTED + 1, &zero, 0));
	say("another node", bind_range(0, 1, BIND, &one, 0));
	say("over a hole", bind_range(0, 16, BIND, &zero, 0));
	get("what is before it", arena, ADDR);
	say("no policy over a hole", bind_range(0, 16, DEFAULT, 0, STRICT));
	say("no policy in a hole", bind_range(8, 1, DEFAULT, 0, 0));
	say("from a hole on", bind_range(8, 2, BIND, &zero, 0));
	say("local, strictly", bind_range(0, 2, LOCAL, 0, STRICT));
	say("local, strictly, where nothing is", bind_range(2, 2, LOCAL, 0, STRICT));
	there = touched[3 * PAGE];
	say("local, strictly, where zeros are", bind_range(2, 2, LOCAL, 0, STRICT));
	say("local, moved", bind_range(0, 2, LOCAL, 0, STRICT | MOVE));
	say("relative, strictly", bind_range(0, 1, BIND | RELATIVE, &one, STRICT));
	say("relative", bind_range(0, 1, BIND | RELATIVE, &one, 0));
	say("moved with all", bind_range(0, 2, INTERLEAVE, &both, MOVE_ALL));
	list("two are one");
	say("bound in the middle", bind_range(4, 2, BIND, &zero, 0));
	say("beside it", bind_range(6, 1, BIND, &both, 0));
	say("one with nodes to keep", bind_range(7, 1, BIND | STATIC, &both, 0));
	say("preferred", bind_range(9, 1, PREFERRED, &zero, 0));
	say("many", bind_range(10, 1, PREFERRED_MANY | BALANCING, &zero, 0));
	say("weighted", bind_range(11, 1, WEIGHTED, &zero, 0));
	say("balanced", bind_range(12, 1, BIND | STATIC | BALANCING, &zero, 0));
	get("mode and nodes", arena + 7 * PAGE, ADDR);
	get("local", arena + 2 * PAGE, ADDR);
	list("many policies");
	set(INTERLEAVE, &zero, 64);
	list("with that of the thread");
	set(DEFAULT, 0, 0);
	arena[5 * PAGE] = arena[7 * PAGE] = 1;
	say("moved", mremap(arena + 5 * PAGE, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, arena + 40 * PAGE) == MAP_FAILED ? -1 : 0);
	list("where it is now");
	mmap(arena + 5 * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	list("mapped anew");
	mprotect(arena + 4 * PAGE, PAGE, PROT_NONE);
	get("the node of a page", arena, ADDR | NODE);
	get("of one that was not there", arena + 5 * PAGE, ADDR | NODE);
	mincore(arena + 5 * PAGE, PAGE, &there);
	printf("it is there: %d\n", there & 1);
	get("of one without rights", arena + 4 * PAGE, ADDR | NODE);
	get("of none", arena + 63 * PAGE, ADDR | NODE);
	get("a policy of none", arena + 63 * PAGE, ADDR);
	get("an address without a flag", arena, 0);
	get("an unknown flag", 0, 8);
	get("what may be had", 0, MEMS);
	get("the same, and more", 0, MEMS | ADDR);
	get("the next node", 0, NODE);
}

static long home(unsigned long page, unsigned long pages, unsigned long node, unsigned long flags)
{
	return syscall(SYS_set_mempolicy_home_node, arena + page * PAGE, pages * PAGE, node, flags);
}

static void homes(void)
{
	mmap(arena, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	say("a home without a policy", home(0, 4, 0, 0));
	bind_range(1, 1, BIND, &zero, 0);
	bind_range(3, 1, INTERLEAVE, &zero, 0);
	say("another home", home(1, 1, 1, 0));
	say("a home with flags", home(1, 1, 0, 1));
	say("a home of nothing", home(1, 0, 0, 0));
	say("a home with others", home(0, 3, 0, 0));
	say("a home for turns", home(0, 4, 0, 0));
	say("the same, without a home", bind_range(2, 1, BIND, &zero, 0));
	list("homes");
}

static void moves(void)
{
	static const int here[7], there[7] = { 0, 0, 1 }, nowhere[7] = { 0, -1 };
	int status[7], nth;
	void *pages[7] = { arena, arena + 9, arena + PAGE, arena + 2 * PAGE, arena + 70 * PAGE, 0, (void *)-1 };
	struct { const char *what; long id; const int *nodes; int flags; } rows[] = {
		{ "where they are", 0, 0, 0 },
		{ "where they are, by number", 1, 0, MOVE },
		{ "to where they are", 0, here, MOVE },
		{ "to where they are, all", 1, here, MOVE_ALL },
		{ "to another", 0, there, MOVE },
		{ "to none", 0, nowhere, MOVE },
		{ "with flags", 0, here, STRICT },
		{ "of nobody", -1, here, MOVE },
	};

	arena[0] = 1;
	nth = ((volatile char *)arena)[PAGE];
	for (nth = 0; nth < 8; nth++) {
		for (int at = 0; at < 7; at++)
			status[at] = 77;
		say(rows[nth].what, syscall(SYS_move_pages, rows[nth].id == 1 ? getpid() : rows[nth].id, 7, pages, rows[nth].nodes, status, rows[nth].flags));
		for (int at = 0; at < 7; at++)
			printf("%s%d", at ? " " : "\t", status[at]);
		printf("\n");
	}
	say("no pages", syscall(SYS_move_pages, 0, 0, 0, 0, 0, 0));
	say("pages from nowhere", syscall(SYS_move_pages, 0, 1, 0, 0, status, 0));
	say("told to nowhere", syscall(SYS_move_pages, 0, 1, pages, 0, 0, 0));
	say("migrated", syscall(SYS_migrate_pages, 0, 64, &zero, &zero));
	say("migrated by number", syscall(SYS_migrate_pages, getpid(), 64, &one, &both));
	say("to another node", syscall(SYS_migrate_pages, 0, 64, &zero, &one));
	say("to no node", syscall(SYS_migrate_pages, 0, 64, &zero, 0));
	say("of nobody", syscall(SYS_migrate_pages, -1, 64, &zero, &one));
	say("too many", syscall(SYS_migrate_pages, -1, 1 << 20, &zero, &one));
	say("from nowhere", syscall(SYS_migrate_pages, 0, 64, 1, &zero));
}

static void *threaded(void *set_it)
{
	get("a thread begins with", 0, 0);
	say("and sets its own", set(PREFERRED, &zero, 64));
	return set_it;
}

int main(int count, char **arguments)
{
	pthread_t thread;
	unsigned cpu, node = 9;

	setvbuf(stdout, 0, _IONBF, 0);
	if (count > 1) {
		get("another program has", 0, 0);
		return 0;
	}
	arena = mmap(0, 128 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) + 32 * PAGE;
	mmap(arena, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	munmap(arena + 16 * PAGE, 80 * PAGE);
	modes();
	masks();
	ranges();
	homes();
	moves();
	say("getcpu", syscall(SYS_getcpu, &cpu, &node, 0));
	printf("node %u\n", node);
	show("/sys/devices/system/node/online");
	show("/sys/devices/system/node/possible");
	show("/sys/devices/system/node/has_memory");
	show("/sys/devices/system/node/has_normal_memory");
	show("/sys/devices/system/node/has_cpu");
	show("/sys/devices/system/node/node0/distance");
	show_lines("/proc/self/status", "Mems_allowed");

	set(BIND | STATIC, &both, 64);
	pthread_create(&thread, 0, threaded, 0);
	pthread_join(thread, 0);
	get("whoever made it has", 0, 0);
	fflush(stdout);
	if (!fork()) {
		get("a child has", 0, 0);
		get("of a range", arena + PAGE, ADDR);
		list("its areas");
		execl("/proc/self/exe", arguments[0], "again", (char *)0);
		return 9;
	}
	wait(0);
	return 0;
}
