/*
 * What may be promised by vm.overcommit_memory, with its ratio and what is kept for root and for a process. Prints what the system
 * answers; two systems that print the same agree. It wants root, and changes words of the machine.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1l << 20)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)
#define SHARED (MAP_SHARED | MAP_ANONYMOUS)
#define RW (PROT_READ | PROT_WRITE)

static const char *said(long answer)
{
	static char text[32];

	if (answer != -1)
		return "done";
	snprintf(text, sizeof text, "%s", errno == ENOMEM ? "ENOMEM" : errno == EINVAL ? "EINVAL" : strerror(errno));
	return text;
}

/* Kilobytes of a line of meminfo. */
static long line(const char *name)
{
	char text[200];
	long value = -1;
	FILE *file = fopen("/proc/meminfo", "r");

	while (file && fgets(text, sizeof text, file))
		if (!strncmp(text, name, strlen(name)) && text[strlen(name)] == ':')
			value = atol(text + strlen(name) + 1);
	if (!file || value < 0)
		exit(1);
	fclose(file);
	return value;
}

static void show(const char *name)
{
	char path[100], text[100] = "";
	FILE *file;

	snprintf(path, sizeof path, "/proc/sys/vm/%s", name);
	file = fopen(path, "r");
	if (!file || !fgets(text, sizeof text, file))
		exit(1);
	fclose(file);
	printf("%s: %s", name, text);
}

static void set(const char *name, const char *text)
{
	char path[100];
	FILE *file;
	int ended;

	snprintf(path, sizeof path, "/proc/sys/vm/%s", name);
	file = fopen(path, "w");
	if (!file)
		exit(1);
	fputs(text, file);
	ended = fclose(file);
	printf("%s = %s: %s\n", name, text, said(ended));
}

static void *mapped(const char *what, long bytes, int rights, int flags)
{
	void *at = mmap(0, bytes, rights, flags, -1, 0);

	printf("  %s: %s\n", what, said((long)at));
	return at == MAP_FAILED ? 0 : at;
}

/* What may still be promised. */
static long left(void)
{
	return (line("CommitLimit") - line("Committed_AS")) * 1024;
}

static void child(const char *what, int user, long bytes)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0) {
		printf("  fork, %s: %s\n", what, said(-1));
		return;
	}
	if (!pid) {
		if (user && setresuid(user, user, user))
			_exit(2);
		if (bytes)
			mapped(what, bytes, RW, PRIVATE);
		else
			printf("  fork, %s: done\n", what);
		fflush(stdout);
		_exit(0);
	}
	if (waitpid(pid, &status, 0) != pid || status)
		printf("a child ended with %x\n", status);
}

int main(void)
{
	long total = line("MemTotal") * 1024, before, most;
	char *at, *more;
	int id, zero;

	setvbuf(stdout, 0, _IOLBF, 0);
	puts("a guess");
	show("overcommit_memory");
	show("overcommit_ratio");
	show("overcommit_kbytes");
	at = mapped("two thirds of memory", total / 3 * 2, RW, PRIVATE);
	more = mapped("and again", total / 3 * 2, RW, PRIVATE);
	munmap(at, total / 3 * 2);
	munmap(more, total / 3 * 2);
	mapped("more than there is", total + MIB, RW, PRIVATE);
	at = mapped("the same, without a promise", total + MIB, RW, PRIVATE | MAP_NORESERVE);
	munmap(at, total + MIB);
	at = mapped("the same, read only", total + MIB, PROT_READ, PRIVATE);
	printf("  and then written: %s\n", said(mprotect(at, total + MIB, RW)));
	munmap(at, total + MIB);
	mapped("the same, shared", total + MIB, RW, SHARED);

	set("overcommit_memory", "1");
	at = mapped("four times what there is", total * 4, RW, PRIVATE);
	munmap(at, total * 4);
	at = mapped("the same, shared", total * 4, RW, SHARED);
	munmap(at, total * 4);

	set("overcommit_memory", "3");
	set("overcommit_memory", "-1");
	set("overcommit_memory", "2");
	show("overcommit_memory");
	set("user_reserve_kbytes", "0");
	set("admin_reserve_kbytes", "0");
	printf("half of memory: %d\n", line("CommitLimit") == line("MemTotal") / 4 / 2 * 4);
	before = line("Committed_AS");
	at = mapped("16 MiB", 16 * MIB, RW, PRIVATE);
	printf("  counted: %ld kB\n", line("Committed_AS") - before);
	more = mapped("16 MiB without a promise", 16 * MIB, RW, PRIVATE | MAP_NORESERVE);
	printf("  counted: %ld kB\n", line("Committed_AS") - before);
	munmap(at, 16 * MIB);
	printf("  one is gone: %ld kB\n", line("Committed_AS") - before);
	mprotect(more, 16 * MIB, PROT_READ);
	printf("  it is read only: %ld kB\n", line("Committed_AS") - before);
	mprotect(more, 16 * MIB, RW);
	printf("  it is written again: %ld kB\n", line("Committed_AS") - before);
	munmap(more, 16 * MIB);
	at = mapped("read only", 16 * MIB, PROT_READ, PRIVATE);
	printf("  counted: %ld kB\n", line("Committed_AS") - before);
	munmap(at, 16 * MIB);

	puts("all but 32 MiB");
	most = left() - 32 * MIB;
	at = mapped("as much", most, RW, PRIVATE);
	mapped("64 MiB", 64 * MIB, RW, PRIVATE);
	mapped("64 MiB without a promise", 64 * MIB, RW, PRIVATE | MAP_NORESERVE);
	mapped("64 MiB, shared", 64 * MIB, RW, SHARED);
	mapped("64 MiB, shared and without a promise", 64 * MIB, RW, SHARED | MAP_NORESERVE);
	printf("  a segment: %s\n", said(shmget(IPC_PRIVATE, 64 * MIB, IPC_CREAT | 0600)));
	printf("  without a promise: %s\n", said(shmget(IPC_PRIVATE, 64 * MIB, IPC_CREAT | SHM_NORESERVE | 0600)));
	printf("  the heap: %s\n", said((long)sbrk(64 * MIB)));
	more = mapped("64 MiB, read only", 64 * MIB, PROT_READ, PRIVATE);
	printf("  and then written: %s\n", said(mprotect(more, 64 * MIB, RW)));
	printf("  a part of it: %s\n", said(mprotect(more, 8 * MIB, RW)));
	printf("  moved and longer: %s\n", said((long)mremap(more, 8 * MIB, 80 * MIB, MREMAP_MAYMOVE)));
	munmap(more, 64 * MIB);
	child("copies of all", 0, 0);
	madvise(at, most, MADV_DONTFORK);
	child("copies of nothing", 0, 0);
	munmap(at, most);

	puts("shared memory");
	before = line("Committed_AS");
	at = mapped("16 MiB, shared", 16 * MIB, RW, SHARED);
	memset(at, 1, 4 * MIB);
	munmap(at, 8 * MIB);
	printf("  a half is gone: %ld kB\n", line("Committed_AS") - before);
	munmap(at + 8 * MIB, 8 * MIB);
	printf("  all of it: %ld kB\n", line("Committed_AS") - before);
	id = shmget(IPC_PRIVATE, 16 * MIB, IPC_CREAT | 0600);
	printf("  a segment: %ld kB\n", line("Committed_AS") - before);
	shmctl(id, IPC_RMID, 0);
	zero = open("/dev/zero", O_RDWR);
	at = mmap(0, 16 * MIB, RW, MAP_SHARED, zero, 0);
	printf("  a device of zeros: %ld kB\n", line("Committed_AS") - before);
	munmap(at, 16 * MIB);
	most = left() / 2 - 16 * MIB;
	at = mapped("half of what is left", most, RW, SHARED);
	more = mapped("and again", most, RW, SHARED);
	mapped("64 MiB more", 64 * MIB, RW, SHARED);
	munmap(more, most);
	printf("  as a segment: %s\n", said(id = shmget(IPC_PRIVATE, most, IPC_CREAT | 0600)));
	mapped("64 MiB more", 64 * MIB, RW, PRIVATE);
	shmctl(id, IPC_RMID, 0);
	munmap(at, most);

	puts("what goes first");
	most = left() - 32 * MIB;
	at = mapped("all but 32 MiB", most, RW, PRIVATE);
	printf("  over itself: %s\n", said((long)mmap(at, most, RW, PRIVATE | MAP_FIXED, -1, 0)));
	munmap(at, 64 * MIB);
	at += 64 * MIB;
	most -= 64 * MIB;
	more = mapped("16 MiB", 16 * MIB, RW, PRIVATE);
	printf("  moved over 128 MiB, longer: %s\n",
	       said((long)mremap(more, 16 * MIB, 128 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, at)));
	munmap(at, most);

	puts("what is kept");
	set("admin_reserve_kbytes", "65536");
	most = left();
	child("for root, a user", 1000, most - 32 * MIB);
	child("for root, a user with less", 1000, most - 96 * MIB);
	child("for root, root", 0, most - 32 * MIB);
	set("admin_reserve_kbytes", "0");
	set("user_reserve_kbytes", "4000000");
	at = mapped("3200 MiB of addresses", 3200 * MIB, PROT_NONE, PRIVATE);
	mapped("for the process", most - 64 * MIB, RW, PRIVATE);
	more = mapped("for the process, less", most - 160 * MIB, RW, PRIVATE);
	munmap(more, most - 160 * MIB);
	set("user_reserve_kbytes", "65536");
	more = mapped("half of that is kept", most - 96 * MIB, RW, PRIVATE);
	munmap(more, most - 96 * MIB);
	munmap(at, 3200 * MIB);

	puts("another limit");
	set("overcommit_kbytes", "400001");
	show("overcommit_ratio");
	printf("limit: %ld kB\n", line("CommitLimit"));
	set("overcommit_ratio", "20");
	show("overcommit_kbytes");
	printf("a fifth of memory: %d\n", line("CommitLimit") / 4 == line("MemTotal") / 4 * 20 / 100);
	set("overcommit_ratio", "50");
	set("overcommit_memory", "0");
	return 0;
}
