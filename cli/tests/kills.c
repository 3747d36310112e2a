/* Processes that are killed at any moment: each maps, touches, unmaps, forks, starts threads, and
 * talks through pipes, until a kill comes. What they had is free again. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static unsigned long seed;

static unsigned long below(unsigned long bound)
{
	seed = seed * 6364136223846793005ul + 1442695040888963407ul;
	return (seed >> 33) % bound;
}

static void sleep_micros(long micros)
{
	struct timespec left = { micros / 1000000, micros % 1000000 * 1000 };

	while (nanosleep(&left, &left) < 0)
		;
}

static void *works(void *argument)
{
	int file = (int)(long)argument;
	char byte;

	for (;;) {
		size_t bytes = (1 + below(600)) << 12;
		int flags = below(3) ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED | MAP_ANONYMOUS;
		char *area = mmap(0, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);

		if (area == MAP_FAILED)
			continue;
		for (size_t at = 0; at < bytes; at += 4096)
			area[at] = 1;
		switch (below(6)) {
		case 0:
			madvise(area, bytes / 2 & ~4095ul, MADV_DONTNEED);
			break;
		case 1:
			mprotect(area, bytes / 2 & ~4095ul, PROT_READ);
			break;
		case 2:
			area = mremap(area, bytes, bytes * 2, MREMAP_MAYMOVE);
			bytes *= 2;
			break;
		case 3:
			pwrite(file, area, bytes, below(1 << 20));
			break;
		case 4: {
			int pair[2];

			if (!socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) {
				write(pair[0], area, 1);
				read(pair[1], &byte, 1);
				close(pair[0]);
				close(pair[1]);
			}
			break;
		}
		case 5: {
			pid_t child = fork();

			if (!child) {
				area[0] = 2;
				_exit(0);
			}
			if (child > 0)
				waitpid(child, 0, 0);
		}
		}
		munmap(area, bytes);
	}
	return 0;
}

static void lives(unsigned long own)
{
	int file = memfd_create("works", 0);
	pthread_t thread;

	seed = own;
	for (unsigned long more = below(3); more; more--)
		pthread_create(&thread, 0, works, (void *)(long)file);
	works((void *)(long)file);
}

static long free_kib(void)
{
	char text[4096], *at;
	int file = open("/proc/meminfo", O_RDONLY);
	long length = read(file, text, sizeof text - 1);

	close(file);
	if (length < 0)
		return 0;
	text[length] = 0;
	at = strstr(text, "MemFree:");
	return at ? atol(at + 8) : 0;
}

static void kill_one(unsigned long own)
{
	int status = 0;
	pid_t child = fork();

	if (!child) {
		setpgid(0, 0);
		lives(own);
	}
	setpgid(child, child);
	sleep_micros(below(4000));
	kill(-child, SIGKILL);
	if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status))
		printf("%lu: %x\n", own, status);
	while (waitpid(-1, 0, 0) > 0)
		; /* those that it left behind */
}

int main(int count, char **words)
{
	long rounds = count > 1 ? atol(words[1]) : 100;
	long before, lost;

	for (long round = 0; round < rounds / 10; round++)
		kill_one(1000000 + round);
	before = free_kib();
	for (long round = 0; round < rounds; round++)
		kill_one(round);
	/* Less than a page for each: stacks that wait for a purge keep a record meanwhile. */
	lost = before - free_kib();
	printf("%ld killed, %s\n", rounds, lost < 3 * rounds ? "nothing lost" : "memory is lost");
	if (lost >= 3 * rounds)
		printf("%ld KiB\n", lost);
	return 0;
}
