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

static volatile int came[65], codes[65];
static volatile long values[65];

static void notes(int number, siginfo_t *info, void *unused)
{
	(void)unused;
	came[number]++;
	codes[number] = info->si_code;
	values[number] = (long)info->si_value.sival_ptr;
}
static void handle(int number, int flags)
{
	struct sigaction action = { .sa_sigaction = notes, .sa_flags = SA_SIGINFO | SA_RESTART | flags };

	sigaction(number, &action, 0);
}
/* What came since the last time. */
static void told(const char *what)
{
	printf("%s: SIGCHLD %d SIGUSR2 %d, code %d\n", what, came[SIGCHLD], came[SIGUSR2], codes[SIGUSR2]);
	fflush(stdout);
	came[SIGCHLD] = came[SIGUSR2] = codes[SIGUSR2] = 0;
}
/* Until a child has ended, which stays. */
static void ends(int child)
{
	siginfo_t info;

	waitid(P_PID, child, &info, WEXITED | WNOWAIT | __WALL);
}
/* A child that tells of its end by a signal, when it has ended. */
static int ended(int number)
{
	int child = syscall(SYS_clone, number, 0, 0, 0, 0);

	if (!child)
		_exit(3);
	ends(child);
	return child;
}
static void waits(const char *what, int child, int flags)
{
	int status = 0;
	long found = waitpid(child, &status, flags);

	say(what, found > 0 ? WEXITSTATUS(status) : found);
}
static void ends_are_told_by_signals(void)
{
	struct sigaction ignore = { .sa_handler = SIG_IGN };
	struct clone_args args = { .exit_signal = 65 };
	siginfo_t info = { .si_signo = SIGUSR2, .si_code = SI_QUEUE };
	int child, pair[2], self = syscall(SYS_pidfd_open, getpid(), 0);
	char byte;

	handle(SIGCHLD, 0);
	handle(SIGUSR2, 0);
	child = ended(SIGUSR2);
	told("one by SIGUSR2");
	waits("not waited for as others", child, 0);
	waits("nor among all", -1, WNOHANG);
	waits("but as such", child, __WCLONE);
	child = ended(0);
	told("one by none");
	waits("waited for in any case", child, __WALL);
	child = ended(SIGCHLD);
	told("as others");
	waits("not as such", child, __WCLONE);
	waits("as others", child, 0);
	child = ended(100);
	told("by one that is none");
	waits("it is there", child, __WALL);
	sigaction(SIGCHLD, &ignore, 0);
	child = ended(SIGUSR2);
	told("others are ignored");
	waits("it stays", child, __WALL);
	handle(SIGCHLD, SA_NOCLDWAIT);
	if (!fork())
		_exit(0);
	while (!came[SIGCHLD])
		usleep(1000);
	told("nobody waits");
	waits("it is gone", -1, 0);
	handle(SIGCHLD, 0);
	say("no such signal", syscall(SYS_clone3, &args, sizeof(args)));
	args = (struct clone_args){ .exit_signal = SIGUSR2, .flags = CLONE_PARENT };
	say("a signal of a sibling", syscall(SYS_clone3, &args, sizeof(args)));
	/* A child that runs a program is as others. */
	child = syscall(SYS_clone, SIGUSR2, 0, 0, 0, 0);
	if (!child)
		execl("/proc/self/exe", "kin", "begun anew", (char *)0);
	ends(child);
	waits("it ran a program", child, 0);
	told("it is as others");
	/* A parent that runs another program is told as others are. */
	pipe(pair);
	child = fork();
	if (!child) {
		if (!syscall(SYS_clone, SIGUSR2, 0, 0, 0, 0)) {
			close(pair[1]);
			read(pair[0], &byte, 1);
			_exit(4);
		}
		dup2(pair[1], 9);
		close(pair[1]);
		execl("/proc/self/exe", "kin", "waits", "again", (char *)0);
	}
	close(pair[0]);
	close(pair[1]);
	waits("the parent ran a program", child, 0);
	/* What is told besides. */
	memset((void *)came, 0, sizeof(came));
	info.si_value.sival_ptr = (void *)777;
	say("told by itself", syscall(SYS_pidfd_send_signal, self, SIGUSR2, &info, 0));
	printf("value %ld, code %d\n", values[SIGUSR2], codes[SIGUSR2]);
	say("by another number", syscall(SYS_pidfd_send_signal, self, SIGUSR1, &info, 0));
	child = fork();
	if (!child)
		_exit(pause());
	info.si_code = SI_USER;
	pair[0] = syscall(SYS_pidfd_open, child, 0);
	say("as a user's to another", syscall(SYS_pidfd_send_signal, pair[0], SIGUSR2, &info, 0));
	info.si_code = SI_TKILL;
	say("as a thread's to another", syscall(SYS_pidfd_send_signal, pair[0], SIGUSR2, &info, 0));
	info = (siginfo_t){ .si_signo = SIGKILL, .si_code = SI_QUEUE };
	say("as queued", syscall(SYS_pidfd_send_signal, pair[0], SIGKILL, &info, 0));
	waitpid(child, 0, 0);
	close(pair[0]);
	close(self);
}
/* The program that a parent runs while its child waits. */
static int waits_again(void)
{
	int status = 0;

	handle(SIGCHLD, 0);
	handle(SIGUSR2, 0);
	close(9);
	while (!came[SIGCHLD] && !came[SIGUSR2])
		usleep(1000);
	told("it runs another program");
	fflush(stdout);
	waitpid(-1, &status, __WALL);
	return WEXITSTATUS(status);
}

int main(int count, char **unused)
{
	(void)unused;
	if (count > 2)
		return waits_again();
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
	ends_are_told_by_signals();
	return 0;
}
