/*
 * File systems of huge pages with size= and min_size=: what their files may have, and what is kept for them. Prints what the system
 * answers; two systems that print the same agree.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define HUGE (2ul << 20)
#define AT "/tmp/sizes"
#define SHARED MAP_SHARED
#define PRIVATE MAP_PRIVATE

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

static void set(const char *path, long value)
{
	FILE *file = fopen(path, "w");

	if (!file)
		exit(2);
	fprintf(file, "%ld\n", value);
	fclose(file);
}

/* What the mount and the pool say now. */
static void shown(const char *what)
{
	struct statfs is;

	if (statfs(AT, &is) < 0)
		exit(3);
	printf("%s: mount %ld of %ld, pool %ld free, %ld reserved\n", what, (long)is.f_bfree, (long)is.f_blocks,
	       pool("free_hugepages"), pool("resv_hugepages"));
}

static void said(const char *what, long answer)
{
	if (answer < 0)
		printf("%s: %s\n", what, strerror(errno));
	else
		printf("%s: done\n", what);
}

static int mounted(const char *options)
{
	char line[400];
	FILE *mounts;
	int answer = mount("none", AT, "hugetlbfs", 0, options);

	said(options, answer);
	if (answer < 0)
		return 0;
	mounts = fopen("/proc/mounts", "r");
	while (fgets(line, sizeof line, mounts))
		if (strstr(line, AT " "))
			printf("  %s", strstr(line, "hugetlbfs"));
	fclose(mounts);
	return 1;
}

static int file(const char *name)
{
	char path[60];
	int fd;

	snprintf(path, sizeof path, AT "/%s", name);
	fd = open(path, O_CREAT | O_RDWR, 0600);
	if (fd < 0)
		exit(4);
	return fd;
}

static char *map(const char *what, int fd, long first, long pages, int flags)
{
	char *at = mmap(0, pages * HUGE, PROT_READ | PROT_WRITE, flags, fd, first * HUGE);

	said(what, at == MAP_FAILED ? -1 : 0);
	return at == MAP_FAILED ? 0 : at;
}

/* Writes to a page in a child, which may get a signal. */
static void touch_apart(const char *what, char *at)
{
	int status;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (child == 0) {
		*at = 1;
		_exit(0);
	}
	waitpid(child, &status, 0);
	printf("%s: %s\n", what, WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "written");
}

static void at_most(void)
{
	char *a, *b, *c;
	int one, two;

	if (!mounted("size=6M"))
		return;
	shown("nothing yet");
	one = file("one");
	map("four shared pages", one, 0, 4, SHARED);
	shown("refused");
	a = map("two shared pages", one, 0, 2, SHARED);
	shown("two are reserved");
	b = map("the same, and a third", one, 0, 3, SHARED);
	shown("three are reserved");
	b[2 * HUGE] = 1;
	a[0] = 1;
	shown("two were written");
	two = file("two");
	map("a page of another file", two, 0, 1, SHARED);
	map("a private page of the first", one, 0, 1, PRIVATE);
	c = map("a private page without a reservation", one, 0, 1, PRIVATE | MAP_NORESERVE);
	printf("it is read: %d\n", c[0]);
	touch_apart("it is written", c);
	shown("a copy was not to be had");
	said("unmap", munmap(b, 3 * HUGE));
	shown("one mapping of the file is gone");
	said("shorten it to a page", ftruncate(one, HUGE));
	shown("the file is shorter");
	touch_apart("the copy is written", c);
	shown("and its writer is gone");
	munmap(c, HUGE);
	said("allocate two pages of the other file", fallocate(two, 0, 0, 2 * HUGE));
	shown("allocated");
	said("allocate another one", fallocate(two, 0, 2 * HUGE, HUGE));
	shown("refused");
	said("a hole", fallocate(two, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, HUGE));
	shown("punched");
	munmap(a, 2 * HUGE);
	said("unlink", unlink(AT "/one"));
	shown("an open file has its page");
	close(one);
	shown("a closed one has not");
	close(two);
	said("unlink", unlink(AT "/two"));
	shown("empty again");
	said("unmount", umount(AT));
}

static void private_pages(void)
{
	char *a, *b;
	int one;

	if (!mounted("size=8M"))
		return;
	one = file("one");
	a = map("two private pages", one, 0, 2, PRIVATE);
	b = map("the same again", one, 0, 2, PRIVATE);
	shown("each has its own");
	map("a fifth", one, 0, 1, PRIVATE);
	a[0] = 1;
	shown("one was written");
	munmap(b, 2 * HUGE);
	shown("two went");
	touch_apart("a child writes to what it shares", a);
	touch_apart("a child writes to what is not there", a + HUGE);
	shown("the children are gone");
	said("drop it", madvise(a, HUGE, MADV_DONTNEED));
	shown("dropped");
	a[0] = a[HUGE] = 1;
	munmap(a, 2 * HUGE);
	shown("all went");
	close(one);
	unlink(AT "/one");
	said("unmount", umount(AT));
}

static void at_least(void)
{
	char *a, *b, *other;
	int one;

	if (!mounted("min_size=6M"))
		return;
	shown("three are kept");
	one = file("one");
	a = map("two shared pages", one, 0, 2, SHARED);
	shown("two of the three");
	b = map("five shared pages", one, 0, 5, SHARED);
	shown("two more than are kept");
	other = mmap(0, 6 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	said("six for somebody else", other == MAP_FAILED ? -1 : 0);
	other = mmap(0, 5 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	said("five for somebody else", other == MAP_FAILED ? -1 : 0);
	a[0] = b[4 * HUGE] = 1;
	shown("two were written");
	munmap(a, 2 * HUGE);
	munmap(b, 5 * HUGE);
	shown("unmapped");
	said("shorten it to nothing", ftruncate(one, 0));
	shown("three are kept again");
	if (other != MAP_FAILED)
		munmap(other, 5 * HUGE);
	a = map("a page without a reservation", one, 0, 4, SHARED | MAP_NORESERVE);
	a[0] = 1;
	shown("it was kept");
	a[HUGE] = a[2 * HUGE] = a[3 * HUGE] = 1;
	shown("one more than are kept");
	munmap(a, 4 * HUGE);
	close(one);
	unlink(AT "/one");
	shown("empty again");
	said("unmount", umount(AT));
	printf("pool %ld free, %ld reserved\n", pool("free_hugepages"), pool("resv_hugepages"));
}

static void both(void)
{
	char *a;
	int one;

	if (!mounted("size=8M,min_size=4M"))
		return;
	shown("two of four are kept");
	one = file("one");
	map("five", one, 0, 5, SHARED);
	a = map("four", one, 0, 4, SHARED);
	shown("all");
	a[0] = 1;
	munmap(a, 4 * HUGE);
	shown("unmapped");
	close(one);
	unlink(AT "/one");
	shown("empty again");
	said("unmount", umount(AT));
}

int main(void)
{
	static const char *const words[] = {
		"size=50%", "size=25%,min_size=10%", "size=7M", "size=1k", "size=0", "size=4194304", "size=4096k,pagesize=2M",
		"pagesize=2M,min_size=2M", "size=2M,min_size=4M", "min_size=64M", "size=x", "size=", "min_size=-1", "size=6M,mode=700,uid=3",
	};

	setvbuf(stdout, 0, _IOLBF, 0);
	mkdir("/tmp", 0777);
	mkdir(AT, 0700);
	set("/proc/sys/vm/nr_overcommit_hugepages", 0);
	set("/proc/sys/vm/nr_hugepages", 10);
	at_most();
	private_pages();
	at_least();
	both();
	for (unsigned nth = 0; nth < sizeof words / sizeof *words; nth++)
		if (mounted(words[nth])) {
			shown("  it says");
			umount(AT);
		}
	if (mounted("pagesize=2M")) {
		shown("without a size");
		umount(AT);
	}
	printf("pool %ld free, %ld reserved\n", pool("free_hugepages"), pool("resv_hugepages"));
	return 0;
}
