/*
 * Calls that make processes and threads, that wait for words of memory, and that order memory between CPUs. What it prints depends on nothing
 * but the answers.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <linux/sched.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096ul

static void say(const char *what, long value)
{
	printf("%s: %ld%s%s\n", what, value, value < 0 ? " " : "", value < 0 ? strerror(errno) : "");
	fflush(stdout);
}

static long futex(void *at, int what, int value, void *limit, void *to, int last)
{
	return syscall(SYS_futex, at, what, value, limit, to, last);
}

static uint32_t words[3];

static void refused_words(void)
{
	char *none = mmap(0, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int file = memfd_create("words", 0);
	char *cut;

	ftruncate(file, PAGE);
	cut = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	ftruncate(file, 0);
	say("wake where nothing may be read", futex(none, FUTEX_WAKE, 1, 0, 0, 0));
	say("the same of the process's own", futex(none, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0));
	say("wake behind a file's end", futex(cut, FUTEX_WAKE, 1, 0, 0, 0));
	say("wake between words", futex((char *)words + 2, FUTEX_WAKE, 1, 0, 0, 0));
	say("move to where nothing may be read", futex(words, FUTEX_CMP_REQUEUE, 1, (void *)1, none, 0));
	say("wake fewer than none", futex(words, FUTEX_CMP_REQUEUE, -1, (void *)1, words + 1, 0));
	say("move fewer than none", futex(words, FUTEX_REQUEUE, 1, (void *)-1l, words + 1, 0));
	say("wait where nothing may be read", futex(none, FUTEX_WAIT_PRIVATE, 0, 0, 0, 0));
	close(file);
}

struct many {
	struct futex_waitv at[3];
};

static struct many many(uint32_t flags)
{
	struct many all = { 0 };

	for (int i = 0; i < 3; i++)
		all.at[i] = (struct futex_waitv){ words[i], (uintptr_t)&words[i], flags, 0 };
	return all;
}
static long wait_for(struct many *all, int count, struct timespec *until, int clock)
{
	return syscall(SYS_futex_waitv, all, count, 0, until, clock);
}

static void *wakes(void *which)
{
	long woken = 0;

	while (!woken) {
		usleep(1000);
		woken = futex(which, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
	}
	return (void *)woken;
}

static void one_of_several_words(void)
{
	struct many all = many(FUTEX_32 | FUTEX_PRIVATE_FLAG);
	struct timespec past = { 0, 1 };
	pthread_t waker;
	void *woken;

	say("the time is over", wait_for(&all, 3, &past, CLOCK_MONOTONIC));
	say("by the calendar", wait_for(&all, 3, &past, CLOCK_REALTIME));
	say("by a CPU's clock", wait_for(&all, 3, &past, CLOCK_PROCESS_CPUTIME_ID));
	say("none of them", wait_for(&all, 0, 0, 0));
	say("too many", wait_for(&all, 129, 0, 0));
	say("nowhere", wait_for(0, 3, 0, 0));
	all.at[2].val = 7;
	say("one is another", wait_for(&all, 3, 0, 0));
	all.at[2].val = 1ull << 32;
	say("one is too large", wait_for(&all, 3, 0, 0));
	all = many(FUTEX_PRIVATE_FLAG);
	say("of no size", wait_for(&all, 3, 0, 0));
	all = many(FUTEX_32 | FUTEX_PRIVATE_FLAG);
	all.at[1].__reserved = 1;
	say("with a word that is not used", wait_for(&all, 3, 0, 0));
	all.at[1] = (struct futex_waitv){ 0, 0, FUTEX_32 | FUTEX_PRIVATE_FLAG, 0 };
	say("one is nowhere", wait_for(&all, 3, 0, 0));
	all = many(FUTEX_32 | FUTEX_PRIVATE_FLAG);
	pthread_create(&waker, 0, wakes, &words[1]);
	say("the second is woken", wait_for(&all, 3, 0, 0));
	pthread_join(waker, &woken);
	say("as its waker says", (long)woken);
	say("nobody waits for the others", futex(&words[2], FUTEX_WAKE_PRIVATE, 9, 0, 0, 0));
	pthread_create(&waker, 0, wakes, &words[0]);
	say("a wait for one", futex(&words[0], FUTEX_WAIT_PRIVATE, 0, 0, 0, 0));
	pthread_join(waker, &woken);
}

/* A wait whose time is over as it is woken was woken, or nobody says that it was. */
#define WAITERS 24
static uint32_t turn;
static int over;
static void *short_waits(void *unused)
{
	long woken = 0;

	for (int i = 0; i < 200; i++) {
		struct timespec little = { 0, 50000 + i * 1000 };

		woken += futex(&turn, FUTEX_WAIT_PRIVATE, 0, &little, 0, 0) == 0;
	}
	__atomic_fetch_add(&over, 1, __ATOMIC_SEQ_CST);
	(void)unused;
	return (void *)woken;
}
static void each_wake_up_is_told_of(void)
{
	pthread_t waiters[WAITERS];
	long told = 0, all = 0;
	void *woken;

	for (int i = 0; i < WAITERS; i++)
		pthread_create(&waiters[i], 0, short_waits, 0);
	while (__atomic_load_n(&over, __ATOMIC_SEQ_CST) < WAITERS) {
		told += futex(&turn, FUTEX_WAKE_PRIVATE, WAITERS, 0, 0, 0);
		usleep(100);
	}
	for (int i = 0; i < WAITERS; i++) {
		pthread_join(waiters[i], &woken);
		all += (long)woken;
	}
	say("all that were woken know it", told - all);
}

static long clone3(struct clone_args *args, size_t size)
{
	long child = syscall(SYS_clone3, args, size);

	if (!child)
		_exit(3);
	if (child > 0) {
		int status;

		waitpid(child, &status, __WALL);
		return 1000 + WEXITSTATUS(status);
	}
	return child;
}

static void refused_processes(void)
{
	struct clone_args args = { .exit_signal = SIGCHLD };
	char *stack = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	say("a process", clone3(&args, sizeof args));
	args.exit_signal = 65;
	say("no such signal", clone3(&args, sizeof args));
	args.exit_signal = 0x100;
	say("a signal that is too large", clone3(&args, sizeof args));
	args = (struct clone_args){ .flags = CLONE_PARENT, .exit_signal = SIGCHLD };
	say("a sibling has its parent's signal", clone3(&args, sizeof args));
	args = (struct clone_args){ .flags = CLONE_FS | CLONE_NEWNS, .exit_signal = SIGCHLD };
	say("its own names in one folder", clone3(&args, sizeof args));
	args = (struct clone_args){ .flags = SIGCHLD };
	say("a signal among the flags", clone3(&args, sizeof args));
	args = (struct clone_args){ .flags = CLONE_DETACHED, .exit_signal = SIGCHLD };
	say("a flag that is no more", clone3(&args, sizeof args));
	args = (struct clone_args){ .exit_signal = SIGCHLD, .stack = (uintptr_t)stack };
	say("a stack of no size", clone3(&args, sizeof args));
	args = (struct clone_args){ .exit_signal = SIGCHLD, .stack_size = PAGE };
	say("a stack that is nowhere", clone3(&args, sizeof args));
	args = (struct clone_args){ .flags = CLONE_PIDFD, .exit_signal = SIGCHLD, .pidfd = 8 };
	say("a descriptor to nowhere", clone3(&args, sizeof args));
	say("a short request", clone3(&args, 63));
	say("a sibling of the thread alone", syscall(SYS_clone, CLONE_PIDFD | CLONE_PARENT_SETTID | SIGCHLD, 0, words, 0, 0));
}

static void descriptors_of_processes(void)
{
	int fd = -7, child, ends[2];
	struct clone_args args = { .flags = CLONE_PIDFD, .exit_signal = SIGCHLD, .pidfd = (uintptr_t)&fd };
	struct pollfd one;

	pipe(ends);
	child = syscall(SYS_clone3, &args, sizeof args);
	if (!child) {
		char byte;

		close(ends[1]);
		read(ends[0], &byte, 1);
		_exit(fcntl(ends[0] + 2, F_GETFD) >= 0 ? 4 : 5);
	}
	one = (struct pollfd){ fd, POLLIN, 0 };
	say("the descriptor is there", fd > ends[1]);
	say("it is closed by a new program", fcntl(fd, F_GETFD));
	say("the child runs", poll(&one, 1, 0));
	close(ends[1]);
	say("and ends", poll(&one, 1, 10000));
	say("without the descriptor", ({ int status; waitpid(child, &status, 0); WEXITSTATUS(status); }));
	close(fd);
	close(ends[0]);
}

static void siblings(void)
{
	int status, child = fork();

	if (!child) {
		int own = getppid(), sibling = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);

		if (!sibling)
			_exit(getppid() == own ? 6 : 7);
		_exit(waitpid(sibling, &status, 0) < 0 && errno == ECHILD ? 0 : 1);
	}
	waitpid(child, &status, 0);
	say("its child is not its own", WEXITSTATUS(status));
	say("but mine", waitpid(-1, &status, 0) > 0);
	say("and knows it", WEXITSTATUS(status));
}

static char state_of(int id)
{
	char path[64], text[256] = { 0 };
	int file;

	snprintf(path, sizeof path, "/proc/%d/stat", id);
	file = open(path, O_RDONLY);
	read(file, text, sizeof text - 1);
	close(file);
	return strrchr(text, ')')[2];
}
static void *looks(void *unused)
{
	char state = 0;

	for (int i = 0; i < 10000 && state != 'S'; i++) {
		usleep(1000);
		state = state_of(getpid());
	}
	futex(&words[0], FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
	(void)unused;
	return (void *)(long)state;
}
static void a_process_is_its_first_thread(void)
{
	pthread_t other;
	void *state;

	pthread_create(&other, 0, looks, 0);
	futex(&words[0], FUTEX_WAIT_PRIVATE, 0, 0, 0, 0);
	pthread_join(other, &state);
	printf("asleep, as another thread sees it: %c\n", (int)(long)state);
}

static long barrier(int command)
{
	return syscall(SYS_membarrier, command, 0, 0);
}
static void barriers(void)
{
	int status;

	say("not registered", barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED));
	say("nor for instructions", barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE));
	say("everybody", barrier(MEMBARRIER_CMD_GLOBAL));
	say("registers", barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED));
	say("registered", barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED));
	say("not for instructions", barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE));
	say("registers for these", barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE));
	say("for these too", barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE));
	say("no such command", barrier(1 << 20));
	say("with a flag", syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 1, 0));
	if (!fork())
		_exit(barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) ? 1 : 0);
	wait(&status);
	say("a child has registered", WEXITSTATUS(status));
	if (!fork())
		execl("/proc/self/exe", "kin", "begun anew", (char *)0);
	wait(&status);
	say("a new program has not", WEXITSTATUS(status));
}

int main(int count, char **unused)
{
	(void)unused;
	if (count > 1)
		return barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) < 0 ? 8 : 9;
	refused_words();
	one_of_several_words();
	each_wake_up_is_told_of();
	refused_processes();
	descriptors_of_processes();
	siblings();
	a_process_is_its_first_thread();
	barriers();
	return 0;
}
