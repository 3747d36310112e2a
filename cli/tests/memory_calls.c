/*
 * Calls about memory that a kernel has beside mmap and its kin, and what goes with them: segments, bytes of another process, locks of files,
 * limits, clocks of CPUs. With the word "root": what asks for a machine of one's own: userfaultfd, frames, huge pages, their file system.
 * What it prints depends on nothing but the answers.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096ul
#define HUGE (2ul << 20)

static void say(const char *what, long value)
{
	printf("%s: %ld%s%s\n", what, value, value < 0 ? " " : "", value < 0 ? strerror(errno) : "");
	fflush(stdout);
}

static int ended(int child)
{
	int status;

	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void segments(void)
{
	int id = shmget(IPC_PRIVATE, 3 * PAGE + 1, IPC_CREAT | 0640), other = shmget(0x1234567, PAGE, IPC_CREAT | IPC_EXCL | 0600);
	char *at = shmat(id, 0, 0);
	struct shmid_ds about;
	int child;

	say("segments are made", id >= 0 && other >= 0);
	say("the key is taken", shmget(0x1234567, PAGE, IPC_CREAT | IPC_EXCL));
	say("and too short", shmget(0x1234567, 2 * PAGE, 0));
	strcpy(at, "parent");
	child = fork();
	if (!child) {
		char *again = shmat(id, 0, SHM_RDONLY);

		strcat(at, " and child");
		shmctl(id, IPC_STAT, &about);
		_exit(strcmp(again, "parent and child") ? 1 : about.shm_nattch == 3 ? 0 : 2);
	}
	say("the child", ended(child));
	puts(at);
	say("stat", shmctl(id, IPC_STAT, &about));
	printf("%zu bytes, mode %o, %lu attached, made by me: %d, used last by the child: %d\n", (size_t)about.shm_segsz, about.shm_perm.mode,
		(unsigned long)about.shm_nattch, about.shm_cpid == getpid(), about.shm_lpid == child);
	say("removed", shmctl(id, IPC_RMID, 0));
	say("still here", at[0] == 'p');
	say("detached", shmdt(at));
	say("detached twice", shmdt(at));
	say("gone", shmctl(id, IPC_STAT, &about));
	say("the other one, removed", shmctl(other, IPC_RMID, 0));
}

static void another_process(void)
{
	char *mine = mmap(0, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), here[32] = "";
	struct iovec local[2] = { { here, 3 }, { here + 3, 5 } }, remote = { mine + PAGE - 4, 8 };
	int pipes[2], child;
	char byte;

	memcpy(mine + PAGE - 4, "abcdefgh", 8);
	say("pipe", pipe(pipes));
	child = fork();
	if (!child) {
		close(pipes[1]);
		_exit(read(pipes[0], &byte, 1) + 10 * (mine[PAGE - 4] == 'X'));
	}
	say("read", process_vm_readv(child, local, 2, &remote, 1, 0));
	puts(here);
	memcpy(here, "XYZ", 3);
	say("written", process_vm_writev(child, local, 1, &remote, 1, 0));
	say("own stays", mine[PAGE - 4] == 'a');
	remote.iov_base = (void *)8;
	say("out of reach", process_vm_readv(child, local, 1, &remote, 1, 0));
	say("nobody", process_vm_readv(0x3fffff, local, 1, &remote, 1, 0));
	close(pipes[1]);
	say("the child", ended(child));
	munmap(mine, 2 * PAGE);
}

static void own_memory_as_a_file(void)
{
	int file = open("/proc/self/mem", O_RDWR);
	char *page = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), byte = 0;

	page[7] = 'a';
	mprotect(page, PAGE, PROT_READ);
	say("mem is written", pwrite(file, "b", 1, (off_t)page + 7));
	say("mem is read", pread(file, &byte, 1, (off_t)page + 7));
	printf("%c %c\n", byte, page[7]);
	mprotect(page, PAGE, PROT_NONE);
	say("mem without rights", pread(file, &byte, 1, (off_t)page + 7));
	munmap(page, PAGE);
	say("mem of nothing", pread(file, &byte, 1, (off_t)page + 7));
	close(file);
}

static char text[1 << 17], again[1 << 17];

static long read_all(int file, char *into, size_t step)
{
	long all = 0, came;

	while ((came = read(file, into + all, step)) > 0)
		all += came;
	return all;
}

/* A text of many rows, read in pieces of any size, from anywhere, and while it becomes another. */
static void own_maps(void)
{
	char *at = mmap(0, 800 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int file, rows = 0;
	long all, came;

	for (int nth = 0; nth < 800; nth += 2)
		mprotect(at + nth * PAGE, PAGE, PROT_NONE);
	file = open("/proc/self/maps", O_RDONLY);
	all = read_all(file, text, sizeof(text));
	say("no more", read(file, again, 10) + read(file, again, 10));
	for (long nth = 0; nth < all; nth++)
		rows += text[nth] == '\n';
	say("a row for each part", rows >= 800 && rows < 830);
	lseek(file, 0, SEEK_SET);
	say("by a few bytes", read_all(file, again, 7) == all && !memcmp(text, again, all));
	came = pread(file, again, 100, 5000);
	say("from the middle", came == 100 && !memcmp(text + 5000, again, came));
	came = pread(file, again, 50, 10);
	say("and back", came == 50 && !memcmp(text + 10, again, came));
	say("beyond the end", pread(file, again, 10, 1 << 20));
	lseek(file, 0, SEEK_SET);
	came = read(file, again, sizeof(again));
	say("whole rows of a page", came > 3900 && came <= 4096 && again[came - 1] == '\n');
	munmap(at, 800 * PAGE);
	say("the rest is as it is now", read_all(file, again, 4096) < 8000);
	close(file);
}

static void file_locks(void)
{
	int file = memfd_create("locked", 0), child;
	struct flock range = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 10 };
	char path[64];

	snprintf(path, sizeof(path), "locked.%d", getpid());
	close(file);
	file = open(path, O_RDWR | O_CREAT, 0600);
	say("a range", fcntl(file, F_SETLK, &range));
	say("the whole", flock(file, LOCK_EX));
	child = fork();
	if (!child) {
		struct flock asked = { .l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 0 };
		int own = open(path, O_RDWR), sum = 0;

		sum += fcntl(own, F_SETLK, &asked) == -1 && errno == EAGAIN;
		sum += 2 * (fcntl(own, F_GETLK, &asked) == 0 && asked.l_type == F_WRLCK && asked.l_start == 10 && asked.l_pid == getppid());
		asked = (struct flock){ .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 20, .l_len = 1 };
		sum += 4 * (fcntl(own, F_SETLK, &asked) == 0);
		sum += 8 * (flock(own, LOCK_SH | LOCK_NB) == -1 && errno == EWOULDBLOCK);
		asked = (struct flock){ .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 15, .l_len = 1 };
		sum += 16 * (fcntl(own, F_SETLKW, &asked) == 0);
		sum += 32 * (flock(own, LOCK_EX) == 0);
		_exit(sum);
	}
	usleep(100000);
	range.l_type = F_UNLCK;
	say("let go", fcntl(file, F_SETLK, &range));
	usleep(50000);
	say("all", flock(file, LOCK_UN));
	say("the child", ended(child));
	say("nobody has it", flock(file, LOCK_EX | LOCK_NB));
	unlink(path);
	close(file);
}

static void limits(void)
{
	struct rlimit was, few = { 20, 30 }, back;
	int child = fork(), file, count = 0;
	char *at;

	if (child) {
		say("the child of limits", ended(child));
		getrlimit(RLIMIT_NOFILE, &was);
		say("the parent's stay", was.rlim_cur != 20);
		return;
	}
	say("files", setrlimit(RLIMIT_NOFILE, &few));
	while ((file = dup(0)) >= 0)
		count = file;
	printf("%d, then %s\n", count, strerror(errno));
	close(count);
	say("beyond", dup2(0, 20));
	few.rlim_cur = 31;
	say("more than may be", setrlimit(RLIMIT_NOFILE, &few));
	child = fork();
	if (!child)
		_exit(getrlimit(RLIMIT_NOFILE, &back) ? 0 : back.rlim_cur);
	say("a child's", ended(child));
	few = (struct rlimit){ 64 * PAGE, 64 * PAGE };
	say("locked", setrlimit(RLIMIT_MEMLOCK, &few));
	few = (struct rlimit){ 1000, RLIM_INFINITY };
	signal(SIGXFSZ, SIG_IGN);
	say("bytes of a file", setrlimit(RLIMIT_FSIZE, &few));
	file = memfd_create("short", 0);
	at = malloc(2000);
	memset(at, 1, 2000);
	say("written", write(file, at, 2000));
	say("written more", write(file, at, 2000));
	say("made longer", ftruncate(file, 2000));
	few = (struct rlimit){ 1ul << 30, RLIM_INFINITY };
	say("addresses", setrlimit(RLIMIT_AS, &few));
	say("too many", mmap(0, 2ul << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0);
	exit(7);
}

static uint64_t nanos(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void clocks(void)
{
	uint64_t wall = nanos(CLOCK_MONOTONIC), own = nanos(CLOCK_PROCESS_CPUTIME_ID), thread = nanos(CLOCK_THREAD_CPUTIME_ID);
	struct rusage used, children;
	struct tms times_of;
	int child;

	usleep(100000);
	say("sleep takes no time of a CPU", nanos(CLOCK_PROCESS_CPUTIME_ID) - own < (nanos(CLOCK_MONOTONIC) - wall) / 2);
	child = fork();
	if (!child) {
		while (nanos(CLOCK_PROCESS_CPUTIME_ID) < 200000000)
			;
		_exit(0);
	}
	say("busy", ended(child));
	getrusage(RUSAGE_CHILDREN, &children);
	say("its time is told", children.ru_utime.tv_sec * 1000000 + children.ru_utime.tv_usec + children.ru_stime.tv_usec >= 190000);
	times(&times_of);
	say("in ticks", times_of.tms_cutime + times_of.tms_cstime >= 18);
	say("and is not the caller's", nanos(CLOCK_THREAD_CPUTIME_ID) - thread < 150000000);
	char *pages = mmap(0, 100 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	long before;

	madvise(pages, 100 * PAGE, MADV_NOHUGEPAGE);
	getrusage(RUSAGE_SELF, &used);
	before = used.ru_minflt;
	for (int nth = 0; nth < 100; nth++)
		pages[nth * PAGE] = 1;
	getrusage(RUSAGE_SELF, &used);
	say("faults are counted", used.ru_minflt - before >= 100 && used.ru_minflt - before < 120);
	say("what was resident", used.ru_maxrss > 400 && used.ru_maxrss < 100000);
	munmap(pages, 100 * PAGE);
	say("nice", setpriority(PRIO_PROCESS, 0, 5));
	say("is told", getpriority(PRIO_PROCESS, 0));
	struct sched_param param = { 0 };
	say("as any other", sched_setscheduler(0, SCHED_OTHER, &param));
	say("policy", sched_getscheduler(0));
	say("priorities", sched_get_priority_max(SCHED_FIFO) - sched_get_priority_min(SCHED_FIFO));
}

static volatile int rung;

static void ring(int number)
{
	(void)number;
	rung++;
}

/* Takes so many milliseconds of a CPU. */
static void burn(long ms)
{
	uint64_t end = nanos(CLOCK_PROCESS_CPUTIME_ID) + ms * 1000000;

	while (nanos(CLOCK_PROCESS_CPUTIME_ID) < end)
		for (volatile int nth = 0; nth < 1000; nth++)
			;
}

/* Takes time of a CPU until the timer rang, ten seconds at most: a machine that stands still counts late. */
static int comes(int times)
{
	uint64_t end = nanos(CLOCK_MONOTONIC) + 10000000000;

	while (rung < times && nanos(CLOCK_MONOTONIC) < end)
		burn(1);
	return rung;
}

/* Whether a timer of 20 ms rings, and no more often than time passes. */
static int rang(void)
{
	uint64_t start = nanos(CLOCK_MONOTONIC);

	rung = 0;
	burn(300);
	comes(2);
	return rung >= 2 && rung <= 2 + (int)((nanos(CLOCK_MONOTONIC) - start) / 20000000);
}

static void spent_time(void)
{
	struct itimerval each = { { 0, 20000 }, { 0, 20000 } }, off = { { 0, 0 }, { 0, 0 } }, was;
	struct itimerspec every = { { 0, 20000000 }, { 0, 20000000 } }, none = { { 0, 0 }, { 0, 0 } }, left;
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2 };
	timer_t timer;
	int which[] = { ITIMER_VIRTUAL, ITIMER_PROF }, status;

	signal(SIGVTALRM, ring);
	signal(SIGPROF, ring);
	signal(SIGUSR2, ring);
	for (int nth = 0; nth < 2; nth++) {
		say("set", setitimer(which[nth], &each, NULL));
		say("rang", rang());
		rung = 0;
		usleep(100000);
		say("not in its sleep", rung <= 1);
		getitimer(which[nth], &was);
		say("left", was.it_value.tv_usec > 0 && was.it_value.tv_usec <= 20000 && was.it_interval.tv_usec == 20000);
		say("off", setitimer(which[nth], &off, &was));
		say("was", was.it_interval.tv_usec);
		rung = 0;
		burn(60);
		say("rings no more", rung);
	}
	say("none of these", setitimer(3, &each, NULL));
	clockid_t clocks[] = { CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID };

	for (int nth = 0; nth < 2; nth++) {
		say("made", timer_create(clocks[nth], &event, &timer));
		timer_settime(timer, 0, &every, NULL);
		say("rang", rang());
		timer_gettime(timer, &left);
		say("left", left.it_value.tv_nsec > 0 && left.it_value.tv_nsec <= 20000000);
		timer_settime(timer, 0, &none, NULL);
		uint64_t at = nanos(clocks[nth]) + 300000000;
		struct itimerspec then = { { 0, 0 }, { at / 1000000000, at % 1000000000 } };

		rung = 0;
		timer_settime(timer, TIMER_ABSTIME, &then, NULL);
		burn(30);
		int early = rung;

		say("not yet", early && nanos(clocks[nth]) < at);
		burn(400);
		say("at a time", comes(1));
		timer_delete(timer);
	}
	say("of a descriptor", timerfd_create(CLOCK_PROCESS_CPUTIME_ID, 0));
	for (int nth = 0; nth < 2; nth++) {
		int child = fork();

		if (!child) {
			struct rlimit limit = { 1, 2 };

			signal(SIGXCPU, nth ? SIG_IGN : SIG_DFL);
			setrlimit(RLIMIT_CPU, &limit);
			/* Its child has the limit, and time of its own. */
			if (fork() == 0) {
				burn(5000);
				_exit(0);
			}
			wait(&status);
			_exit(WIFSIGNALED(status) ? WTERMSIG(status) : 0);
		}
		waitpid(child, &status, 0);
		say("a child with a limit", WEXITSTATUS(status));
	}
}

/* From here on: for a machine of one's own. */

static int faults;
static char source[PAGE] __attribute__((aligned(4096)));

static void *answers(void *argument)
{
	int fd = *(int *)argument;
	struct uffd_msg message;

	for (;;) {
		struct pollfd one = { fd, POLLIN, 0 };

		if (poll(&one, 1, -1) != 1 || one.revents & POLLNVAL)
			return 0;
		if (read(fd, &message, sizeof(message)) != sizeof(message))
			continue;
		unsigned long at = message.arg.pagefault.address & ~(PAGE - 1);
		__atomic_add_fetch(&faults, 1, __ATOMIC_SEQ_CST);
		if (message.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP) {
			struct uffdio_writeprotect open = { { at, PAGE }, 0 };
			ioctl(fd, UFFDIO_WRITEPROTECT, &open);
		} else {
			memset(source, 'a' + faults % 26, PAGE);
			struct uffdio_copy copy = { at, (unsigned long)source, PAGE, 0, 0 };
			ioctl(fd, UFFDIO_COPY, &copy);
		}
	}
	return 0;
}

static void answered_faults(void)
{
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK), pipes[2];
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP };
	char *at = mmap(0, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), bytes[3] = "";
	struct uffdio_register range = { { (unsigned long)at, 8 * PAGE }, UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP, 0 };
	pthread_t handler;
	int device = open("/dev/userfaultfd", O_RDWR);

	say("descriptor", fd >= 0);
	say("of the device", ioctl(device, _IO(0xAA, 0), O_CLOEXEC) >= 0);
	say("api", ioctl(fd, UFFDIO_API, &api));
	say("register", ioctl(fd, UFFDIO_REGISTER, &range));
	pthread_create(&handler, 0, answers, &fd);
	printf("%c%c\n", at[0], at[3 * PAGE + 5]);
	at[PAGE] = 'x';
	/* A fault in the middle of a call of the kernel's. */
	pipe(pipes);
	say("written from a missing page", write(pipes[1], at + 5 * PAGE, 2));
	say("read to a missing page", read(pipes[0], at + 6 * PAGE, 2));
	memcpy(bytes, at + 6 * PAGE, 2);
	puts(bytes);
	struct uffdio_writeprotect shut = { { (unsigned long)at, PAGE }, UFFDIO_WRITEPROTECT_MODE_WP };
	say("protected", ioctl(fd, UFFDIO_WRITEPROTECT, &shut));
	at[1] = 'y';
	say("faults", faults);
	struct uffdio_copy there = { (unsigned long)at, (unsigned long)source, PAGE, 0, 0 };
	say("a page that is there", ioctl(fd, UFFDIO_COPY, &there));
	close(fd);
	at[7 * PAGE] = 1;
	say("closed, and as any memory", faults);
}

static uint64_t word(const char *path, unsigned long nth)
{
	int file = open(path, O_RDONLY);
	uint64_t found = 0;

	if (pread(file, &found, 8, nth * 8) != 8)
		found = -1;
	close(file);
	return found;
}

static void put(const char *path, const char *text)
{
	int file = open(path, O_WRONLY);

	say(path, file < 0 ? -1 : write(file, text, strlen(text)) == (long)strlen(text) ? 0 : -1);
	close(file);
}

static void frames(void)
{
	char *at = mmap(0, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), line[128];
	char *huge = (char *)(((unsigned long)at + HUGE - 1) & ~(HUGE - 1));

	put("/sys/kernel/mm/transparent_hugepage/enabled", "always");
	memset(huge, 1, HUGE);
	uint64_t entry = word("/proc/self/pagemap", (unsigned long)huge / PAGE), frame = entry & ((1ull << 55) - 1);
	say("present", entry >> 63);
	say("of a large folio", word("/proc/kpageflags", frame) >> 22 & 1);
	say("mapped once", word("/proc/kpagecount", frame));
	snprintf(line, sizeof(line), "%d,0x%lx,0x%lx", getpid(), (unsigned long)huge, (unsigned long)huge + HUGE);
	put("/sys/kernel/debug/split_huge_pages", line);
	say("split", word("/proc/kpageflags", frame) >> 22 & 1);
	say("and as it was", huge[HUGE - 1] == 1);
	/* MADV_COLLAPSE (25), which headers of old lack: a folio in small entries becomes one large leaf again: the deepest that a call goes. */
	say("collapsed", madvise(huge, HUGE, 25));
	say("parted", madvise(huge, PAGE, MADV_NOHUGEPAGE));
	say("one again", madvise(huge, HUGE, MADV_HUGEPAGE));
	say("collapsed", madvise(huge, HUGE, 25));
	say("and as it was", huge[HUGE - 1] == 1);
	say("odd count of a table", pread(open("/proc/self/pagemap", O_RDONLY), line, 7, 0));
	munmap(at, 2 * HUGE);
}

static void huge_files(void)
{
	struct statfs about;
	struct stat facts;
	int file;
	char *at;

	put("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "8");
	mkdir("/tmp/huge", 0755);
	say("mounted", mount("none", "/tmp/huge", "hugetlbfs", 0, "pagesize=2M,size=16M,mode=0700"));
	say("not with that", mount("none", "/tmp/huge", "hugetlbfs", 0, "pagesize=3M"));
	say("no kind", mount("none", "/tmp/huge", "nofs", 0, ""));
	statfs("/tmp/huge", &about);
	printf("type %lx, blocks of %lu\n", (unsigned long)about.f_type & 0xffffffff, (unsigned long)about.f_bsize);
	file = open("/tmp/huge/file", O_RDWR | O_CREAT, 0600);
	say("by halves", ftruncate(file, PAGE));
	say("allocated", fallocate(file, 0, 0, 2 * HUGE));
	fstat(file, &facts);
	printf("%lu bytes, blocks of %lu\n", (unsigned long)facts.st_size, (unsigned long)facts.st_blksize);
	at = mmap(0, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	say("mapped", at != MAP_FAILED);
	at[0] = at[HUGE] = 3;
	say("unlinked", unlink("/tmp/huge/file"));
	say("still there", at[HUGE]);
	munmap(at, 2 * HUGE);
	close(file);
	file = memfd_create("huge", MFD_HUGETLB);
	say("memfd", ftruncate(file, HUGE));
	at = mmap(0, HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	at[5] = 1;
	say("in use", at[5]);
	close(file);
	munmap(at, HUGE);
	say("unmounted", umount("/tmp/huge"));
	say("not twice", umount("/tmp/huge"));
}

static void advice_for_another(void)
{
	int fd = syscall(SYS_pidfd_open, getpid(), 0), child = fork();
	char *at = mmap(0, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct iovec range = { at, 4 * PAGE };
	struct pollfd one;

	if (!child)
		_exit(0);
	say("advised", syscall(SYS_process_madvise, fd, &range, 1, MADV_COLD, 0) == 4 * (long)PAGE);
	one = (struct pollfd){ syscall(SYS_pidfd_open, child, 0), POLLIN, 0 };
	say("its end is told", one.fd < 0 ? 1 : poll(&one, 1, 5000));
	ended(child);
	say("nobody", syscall(SYS_process_madvise, 0, &range, 1, MADV_COLD, 0));
}

static void rights_of_files(void)
{
	char name[] = "/tmp/rightsXXXXXX", *at;
	int both = mkstemp(name), reads = open(name, O_RDONLY), writes = open(name, O_WRONLY), zero = open("/dev/zero", O_RDONLY), kept, ends[2];

	ftruncate(both, 2 * PAGE);
	at = mmap(0, PAGE, PROT_READ, MAP_SHARED, reads, 0);
	say("shared by who may read", at != MAP_FAILED);
	say("is not written", mprotect(at, PAGE, PROT_READ | PROT_WRITE));
	say("but executed", mprotect(at, PAGE, PROT_READ | PROT_EXEC));
	at = mmap(0, PAGE, PROT_READ, MAP_PRIVATE, reads, 0);
	say("one's own is", mprotect(at, PAGE, PROT_READ | PROT_WRITE));
	at = mmap(0, PAGE, PROT_READ, MAP_SHARED, both, 0);
	say("shared by who may write", mprotect(at, PAGE, PROT_READ | PROT_WRITE));
	at = mmap(0, PAGE, PROT_READ, MAP_SHARED, zero, 0);
	say("zeros of who may read", mprotect(at, PAGE, PROT_WRITE));
	at = mmap(0, PAGE, PROT_READ, MAP_PRIVATE, zero, 0);
	say("zeros of one's own", mprotect(at, PAGE, PROT_WRITE));
	say("who may write alone", mmap(0, PAGE, PROT_READ, MAP_SHARED, writes, 0) == MAP_FAILED ? -1 : 0);
	say("neither shared nor private", mmap(0, PAGE, PROT_READ, 0, writes, 0) == MAP_FAILED ? -1 : 0);
	say("nothing of it", mmap(0, 0, PROT_READ, MAP_SHARED, writes, 0) == MAP_FAILED ? -1 : 0);
	say("ahead", readahead(reads, 0, PAGE));
	say("ahead of what is not read", readahead(writes, 0, PAGE));
	pipe(ends);
	say("ahead in a pipe", readahead(ends[0], 0, PAGE));
	say("a file of the kernel's own", open("/proc/sys/kernel/none_such", O_WRONLY | O_CREAT, 0600) < 0);
	kept = memfd_create("kept", 0);
	ftruncate(kept, 2 * PAGE);
	for (unsigned long from = 0; from < 3; from++) {
		unsigned long range[] = { from * PAGE, 0 }, told[5];

		pwrite(kept, "x", 1, from == 2 ? PAGE + 7 : 0);
		say("a file's pages are counted", syscall(451, kept, range, told, 0));
		printf("%lu %lu %lu %lu %lu\n", told[0], told[1], told[2], told[3], told[4]);
		range[1] = -1ul;
		say("none in a range that is too long", syscall(451, kept, range, told, 0));
		printf("%lu\n", told[0]);
		range[1] = 1;
		say("one", syscall(451, kept, range, told, 0));
		printf("%lu\n", told[0]);
		say("with a flag", syscall(451, kept, range, told, 1));
	}
	close(kept);
	close(both), close(reads), close(writes), close(zero), close(ends[0]), close(ends[1]);
	unlink(name);
}

int main(int count, char **words)
{
	(void)words;
	if (count > 1) {
		answered_faults();
		frames();
		huge_files();
		advice_for_another();
		return 0;
	}
	segments();
	another_process();
	own_memory_as_a_file();
	own_maps();
	file_locks();
	rights_of_files();
	limits();
	clocks();
	spent_time();
	return 0;
}
