/*
 * Files that programs are run from: nobody writes to them meanwhile, and what somebody writes to is not run. Prints what the system
 * answers; two systems that print the same agree. Copies itself into the folder that it is started in.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a call answers, and its error; descriptors are closed again. */
#define SAY(call)                                                             \
	do {                                                                  \
		errno = 0;                                                    \
		int answer_ = (int)(call), why_ = errno;                      \
		printf("%s: %s\n", #call, answer_ < 0 ? strerror(why_) : "done"); \
		if (answer_ > 2)                                              \
			close(answer_);                                       \
	} while (0)

/* What the system lets a file be opened for. */
static void ask(const char *what, const char *path)
{
	printf("-- %s\n", what);
	SAY(open(path, O_RDONLY));
	SAY(open(path, O_PATH | O_WRONLY));
	SAY(open(path, O_WRONLY));
	SAY(open(path, O_RDWR));
	SAY(open(path, O_WRONLY | O_APPEND | O_CREAT, 0700));
	SAY(open(path, O_WRONLY | O_CREAT | O_EXCL, 0700));
	SAY(truncate(path, -1));
	SAY(access(path, W_OK));
	SAY(chmod(path, 0755));
}

static void copy(const char *to, int mode)
{
	int from = open("/proc/self/exe", O_RDONLY), file = open(to, O_WRONLY | O_CREAT | O_TRUNC, mode);
	struct stat stat;

	if (from < 0 || file < 0 || fstat(from, &stat) || sendfile(file, from, NULL, stat.st_size) != stat.st_size)
		perror(to), exit(1);
	close(from);
	close(file);
}

/* Starts a program that tells when it runs, and goes on until the pipe that it reads from is closed. */
struct child {
	int id, hears, tells;
};

static struct child start(const char *path, const char *word)
{
	int there[2], back[2];
	char byte = 0;

	if (pipe2(there, O_CLOEXEC) || pipe2(back, O_CLOEXEC))
		exit(1);
	fflush(stdout);
	int id = fork();

	if (id == 0) {
		dup2(there[0], 0);
		dup2(back[1], 1);
		execl(path, path, word, NULL);
		byte = errno;
		if (write(1, &byte, 1) != 1)
			_exit(1);
		_exit(0);
	}
	close(there[0]);
	close(back[1]);
	if (read(back[0], &byte, 1) != 1)
		exit(1);
	printf("%s %s: %s\n", path, word, byte == 'r' ? "runs" : strerror(byte));
	return (struct child){ id, back[0], there[1] };
}

static void end(struct child child)
{
	close(child.tells);
	waitpid(child.id, NULL, 0);
	close(child.hears);
}

static int try(const char *path)
{
	struct child child = start(path, "wait");

	end(child);
	return 0;
}

/* What a child of these tests does. */
static int run(const char *word)
{
	char byte;

	if (!strcmp(word, "fork")) {
		/* The child of the program has its memory, and goes on when that is gone. */
		if (fork())
			_exit(0);
	}
	if (!strcmp(word, "vfork")) {
		if (vfork() == 0)
			execl("./other", "./other", "wait", NULL);
		while (read(0, &byte, 1) > 0)
			;
		_exit(0);
	}
	if (write(1, "r", 1) != 1)
		return 1;
	while (read(0, &byte, 1) > 0)
		;
	return 0;
}

int main(int count, char **words)
{
	if (count > 1)
		return run(words[1]);

	copy("one", 0755);
	copy("other", 0755);
	ask("nothing runs", "one");

	struct child child = start("./one", "wait");

	ask("it runs", "one");
	SAY(open("one", O_RDONLY | O_TRUNC));
	SAY(open("one", O_WRONLY | O_TRUNC));
	SAY(truncate("one", 5));
	SAY(truncate("one", 1L << 62));
	SAY(creat("one", 0700));
	link("one", "second");
	ask("by its second name", "second");
	symlink("one", "third");
	ask("by a link", "third");
	SAY(rename("one", "moved"));
	ask("under another name", "moved");
	SAY(unlink("moved"));
	SAY(unlink("second"));
	copy("one", 0755);
	ask("a new file of that name", "one");
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/exe", child.id);
	SAY(open(path, O_RDONLY) < 0 ? -1 : 0);
	end(child);

	child = start("./one", "fork");
	waitpid(child.id, NULL, 0);
	ask("a child of it runs", "one");
	end(child);
	/* It ends some time after the pipe is closed. */
	int opened = -1;

	for (int tries = 0; tries < 1000 && opened < 0; tries++) {
		usleep(10000);
		opened = open("one", O_WRONLY);
	}
	close(opened);
	ask("it ended", "one");

	child = start("./one", "vfork");
	ask("it runs beside what it started", "one");
	ask("what it started", "other");
	end(child);

	child = start("./one", "wait");
	kill(child.id, SIGKILL);
	end(child);
	ask("it was killed", "one");

	printf("-- somebody writes\n");
	int file = open("one", O_WRONLY);

	try("./one");
	int same = dup(file);

	close(file);
	try("./one");
	close(same);
	try("./one");
	file = open("one", O_PATH | O_RDWR);
	try("./one");
	close(file);
	file = open("one", O_RDONLY);
	try("./one");
	close(file);

	printf("-- scripts\n");
	file = open("script", O_WRONLY | O_CREAT, 0755);
	dprintf(file, "#!./one wait\n");
	try("./script");
	close(file);
	child = start("./script", "wait");
	ask("its interpreter runs", "one");
	ask("and it", "script");
	end(child);
	file = open("one", O_RDWR);
	try("./script");
	close(file);
	try("./script");

	printf("-- files without names\n");
	file = memfd_create("memory", 0);
	int from = open("one", O_RDONLY);
	struct stat stat;

	fstat(from, &stat);
	sendfile(file, from, NULL, stat.st_size);
	snprintf(path, sizeof path, "/proc/self/fd/%d", file);
	try(path);
	close(file);
	return 0;
}
