/*
 * Corners of descriptors that wait: pipes, poll, select, epoll, counters, timers. Prints what the system answers; two systems that print
 * the same agree. No line depends on how long something takes. Usage: descriptors [six], where there are addresses of IPv6.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* What a call answers, and its error. */
#define SAY(call)                                                                  \
	do {                                                                       \
		errno = 0;                                                         \
		long answer_ = (long)(call);                                       \
		int why_ = errno;                                                  \
		printf("%s: %ld%s%s\n", #call, answer_, answer_ < 0 ? " " : "", answer_ < 0 ? strerror(why_) : ""); \
	} while (0)

static char room[1 << 20];

static void pause_ms(long ms)
{
	struct timespec left = { ms / 1000, ms % 1000 * 1000000 };

	while (nanosleep(&left, &left) && errno == EINTR)
		;
}

static int poll_one(int file, int events, int ms)
{
	struct pollfd one = { file, events, 0x7fff };
	int ready = poll(&one, 1, ms);

	return ready < 0 ? -1 : one.revents;
}

static volatile int unsafe_count;
static void count(int number)
{
	(void)number;
	unsafe_count++;
}

static void catch(int number, int flags)
{
	struct sigaction action = { .sa_handler = count, .sa_flags = flags };

	sigaction(number, &action, 0);
}

static void *write_soon(void *file)
{
	pause_ms(30);
	if (write(*(int *)file, "soon", 4) != 4)
		abort();
	return 0;
}

static void *read_soon(void *file)
{
	char bytes[65536];

	pause_ms(30);
	if (read(*(int *)file, bytes, sizeof(bytes)) < 0)
		abort();
	return 0;
}

static void *close_soon(void *file)
{
	pause_ms(30);
	close(*(int *)file);
	return 0;
}

static void pipes(void)
{
	int ends[2], flags;
	pthread_t other;
	struct iovec two[2] = { { room, 3 }, { room + 100, 5 } };

	puts("-- pipes");
	SAY(pipe2(ends, O_NONBLOCK));
	SAY(read(ends[0], room, 10));
	SAY(write(ends[0], "x", 1));
	SAY(read(ends[1], room, 1));
	printf("empty: %x %x\n", poll_one(ends[0], POLLIN | POLLOUT, 0), poll_one(ends[1], POLLIN | POLLOUT, 0));
	SAY(write(ends[1], "abcdef", 6));
	SAY(ioctl(ends[0], FIONREAD, &flags));
	printf("waits: %d\n", flags);
	SAY(readv(ends[0], two, 2));
	printf("%.3s %.3s\n", room, room + 100);
	SAY(lseek(ends[0], 0, SEEK_CUR));
	SAY(pread(ends[0], room, 1, 0));
	SAY(write(ends[1], room, 65536));
	printf("full: %x %x\n", poll_one(ends[0], POLLIN | POLLOUT, 0), poll_one(ends[1], POLLIN | POLLOUT, 0));
	SAY(write(ends[1], room, 1));
	SAY(read(ends[0], room, 4095));
	printf("no page: %x\n", poll_one(ends[1], POLLOUT, 0));
	SAY(read(ends[0], room, 1));
	printf("a page: %x\n", poll_one(ends[1], POLLOUT, 0));
	SAY(write(ends[1], room, 5000));
	SAY(read(ends[0], room, sizeof(room)));
	SAY(read(ends[0], room, 0));
	SAY(write(ends[1], (void *)8, 5));
	SAY(fcntl(ends[0], F_GETFL) & O_NONBLOCK);
	flags = 0;
	SAY(ioctl(ends[0], FIONBIO, &flags));
	SAY(fcntl(ends[0], F_GETFL) & O_NONBLOCK);
	pthread_create(&other, 0, write_soon, &ends[1]);
	SAY(read(ends[0], room, 100));
	pthread_join(other, 0);
	pthread_create(&other, 0, write_soon, &ends[1]);
	SAY(poll_one(ends[0], POLLIN, -1));
	pthread_join(other, 0);
	SAY(read(ends[0], room, 100));
	pthread_create(&other, 0, close_soon, &ends[1]);
	SAY(poll_one(ends[0], POLLIN, -1));
	pthread_join(other, 0);
	SAY(read(ends[0], room, 100));
	close(ends[0]);
	pipe(ends);
	close(ends[0]);
	unsafe_count = 0;
	catch(SIGPIPE, 0);
	SAY(write(ends[1], "x", 1));
	printf("signals: %d, %x\n", unsafe_count, poll_one(ends[1], POLLOUT, 0));
	signal(SIGPIPE, SIG_IGN);
	SAY(write(ends[1], "x", 1));
	close(ends[1]);
	/* A write that waits for room goes on when somebody reads. */
	pipe(ends);
	pthread_create(&other, 0, read_soon, &ends[0]);
	SAY(write(ends[1], room, 100000));
	pthread_join(other, 0);
	close(ends[0]);
	close(ends[1]);
}

static void polls(void)
{
	int ends[2], file = open("/dev/null", O_RDWR), plain;
	struct pollfd many[4];
	struct timespec limit = { 0, 1000000 };
	struct timeval micros = { 0, 1000 };
	sigset_t none, usr1;
	fd_set reads, writes;

	puts("-- poll and select");
	pipe(ends);
	plain = open("plain", O_RDWR | O_CREAT, 0600);
	many[0] = (struct pollfd){ ends[0], POLLIN, 1 };
	many[1] = (struct pollfd){ -1, POLLIN, 1 };
	many[2] = (struct pollfd){ 777, POLLIN, 1 };
	many[3] = (struct pollfd){ plain, POLLIN | POLLOUT | POLLRDNORM | POLLPRI, 1 };
	SAY(poll(many, 4, 0));
	printf("%x %x %x %x\n", many[0].revents, many[1].revents, many[2].revents, many[3].revents);
	SAY(poll(many, 2, 5));
	SAY(poll(0, 0, 1));
	SAY(poll(many, 5000000, 0));
	SAY(poll((void *)8, 1, 0));
	printf("null: %x\n", poll_one(file, POLLIN | POLLOUT, 0));
	SAY(ppoll(many, 1, &limit, 0));
	limit.tv_nsec = 1000000000;
	SAY(ppoll(many, 1, &limit, 0));
	/* A signal that only the call lets in. */
	sigemptyset(&none);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	sigprocmask(SIG_BLOCK, &usr1, 0);
	catch(SIGUSR1, SA_RESTART);
	unsafe_count = 0;
	kill(getpid(), SIGUSR1);
	SAY(ppoll(many, 1, 0, &none));
	printf("signals: %d\n", unsafe_count);
	kill(getpid(), SIGUSR1);
	limit.tv_nsec = 0;
	SAY(ppoll(many, 1, &limit, &none));
	printf("signals: %d\n", unsafe_count);
	sigprocmask(SIG_UNBLOCK, &usr1, 0);
	printf("signals: %d\n", unsafe_count);

	FD_ZERO(&reads);
	FD_ZERO(&writes);
	FD_SET(ends[0], &reads);
	FD_SET(ends[1], &writes);
	SAY(select(20, &reads, &writes, 0, &micros));
	printf("%d %d\n", FD_ISSET(ends[0], &reads) != 0, FD_ISSET(ends[1], &writes) != 0);
	FD_SET(ends[0], &reads);
	SAY(select(20, &reads, 0, 0, &micros));
	printf("%d, left %ld %ld\n", FD_ISSET(ends[0], &reads) != 0, (long)micros.tv_sec, (long)micros.tv_usec);
	FD_SET(ends[0], &reads);
	write(ends[1], "x", 1);
	SAY(select(20, &reads, 0, 0, 0));
	FD_SET(900, &reads);
	SAY(select(1000, &reads, 0, 0, 0));
	SAY(select(-1, &reads, 0, 0, 0));
	FD_ZERO(&reads);
	FD_SET(ends[0], &reads);
	close(ends[1]);
	read(ends[0], room, 1);
	SAY(select(20, &reads, 0, &reads, 0));
	close(ends[0]);
	close(file);
	close(plain);
}

static void say_events(int file, int most)
{
	struct epoll_event events[8];
	int ready = epoll_wait(file, events, most, 0);

	printf("  events: %d", ready);
	for (int nth = 0; nth < ready; nth++)
		printf(" %llu:%x", (unsigned long long)events[nth].data.u64, events[nth].events);
	puts("");
}

static int ctl(int epoll, int how, int file, unsigned events, int data)
{
	struct epoll_event event = { .events = events, .data.u64 = data };

	return epoll_ctl(epoll, how, file, &event);
}

static void epolls(void)
{
	int ends[2], other[2], epoll = epoll_create1(EPOLL_CLOEXEC), copy, inner, plain, last;
	struct epoll_event event;
	struct timespec limit = { 0, 1000 };
	pthread_t thread;

	puts("-- epoll");
	plain = open("plain", O_RDWR | O_CREAT, 0600);
	SAY(epoll_create(0));
	SAY(epoll_create1(77));
	SAY(fcntl(epoll, F_GETFD));
	pipe2(ends, O_NONBLOCK);
	SAY(ctl(epoll, EPOLL_CTL_ADD, ends[0], EPOLLIN, 1));
	SAY(ctl(epoll, EPOLL_CTL_ADD, ends[0], EPOLLIN, 1));
	SAY(ctl(epoll, EPOLL_CTL_MOD, ends[1], EPOLLIN, 1));
	SAY(ctl(epoll, EPOLL_CTL_DEL, ends[1], EPOLLIN, 1));
	SAY(ctl(epoll, EPOLL_CTL_ADD, plain, EPOLLIN, 1));
	SAY(ctl(epoll, EPOLL_CTL_ADD, epoll, EPOLLIN, 1));
	SAY(ctl(epoll, EPOLL_CTL_ADD, 777, EPOLLIN, 1));
	SAY(ctl(777, EPOLL_CTL_ADD, ends[0], EPOLLIN, 1));
	SAY(ctl(ends[0], EPOLL_CTL_ADD, ends[1], EPOLLIN, 1));
	SAY(ctl(epoll, 9, ends[1], EPOLLIN, 1));
	SAY(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[1], 0));
	SAY(epoll_wait(epoll, &event, 0, 0));
	SAY(epoll_wait(epoll, &event, -1, 0));
	SAY(epoll_wait(ends[0], &event, 1, 0));
	SAY(epoll_wait(epoll, &event, 1, 2));
	SAY(syscall(SYS_epoll_pwait2, epoll, &event, 1, &limit, 0, 8));
	SAY(read(epoll, room, 8));

	puts("level");
	write(ends[1], "abc", 3);
	say_events(epoll, 8);
	say_events(epoll, 8);
	read(ends[0], room, 1);
	say_events(epoll, 8);
	read(ends[0], room, 10);
	say_events(epoll, 8);

	puts("edge");
	SAY(ctl(epoll, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLET, 2));
	say_events(epoll, 8);
	write(ends[1], "abc", 3);
	say_events(epoll, 8);
	say_events(epoll, 8);
	read(ends[0], room, 1);
	say_events(epoll, 8);
	write(ends[1], "d", 1);
	say_events(epoll, 8);
	SAY(ctl(epoll, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLET, 3));
	say_events(epoll, 8);
	say_events(epoll, 8);

	puts("once");
	SAY(ctl(epoll, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLONESHOT, 4));
	say_events(epoll, 8);
	say_events(epoll, 8);
	write(ends[1], "e", 1);
	say_events(epoll, 8);
	SAY(ctl(epoll, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLONESHOT, 5));
	say_events(epoll, 8);

	puts("many, a few at a time");
	pipe(other);
	write(other[1], "x", 1);
	SAY(ctl(epoll, EPOLL_CTL_MOD, ends[0], EPOLLIN, 6));
	SAY(ctl(epoll, EPOLL_CTL_ADD, other[0], EPOLLIN, 7));
	SAY(ctl(epoll, EPOLL_CTL_ADD, other[1], EPOLLOUT, 8));
	say_events(epoll, 8);
	say_events(epoll, 1);
	say_events(epoll, 1);
	say_events(epoll, 1);
	say_events(epoll, 1);
	SAY(poll_one(epoll, POLLIN, 0));
	SAY(ctl(epoll, EPOLL_CTL_DEL, other[0], 0, 0));
	SAY(ctl(epoll, EPOLL_CTL_DEL, other[1], 0, 0));
	read(ends[0], room, 100);
	SAY(poll_one(epoll, POLLIN, 0));

	puts("nothing is asked for");
	SAY(ctl(epoll, EPOLL_CTL_ADD, other[0], 0, 9));
	say_events(epoll, 8);
	close(other[1]);
	say_events(epoll, 8);
	SAY(ctl(epoll, EPOLL_CTL_MOD, other[0], EPOLLET, 9));
	say_events(epoll, 8);
	say_events(epoll, 8);

	puts("closed");
	copy = dup(other[0]);
	close(other[0]);
	SAY(ctl(epoll, EPOLL_CTL_MOD, copy, EPOLLIN, 9));
	SAY(ctl(epoll, EPOLL_CTL_ADD, copy, EPOLLIN, 10));
	say_events(epoll, 8);
	close(copy);
	say_events(epoll, 8);
	pipe(other);
	SAY(ctl(epoll, EPOLL_CTL_ADD, other[0], EPOLLIN, 11));

	puts("nested");
	inner = epoll_create1(0);
	last = epoll_create1(0);
	SAY(ctl(epoll, EPOLL_CTL_ADD, inner, EPOLLIN, 12));
	SAY(ctl(inner, EPOLL_CTL_ADD, epoll, EPOLLIN, 13));
	SAY(ctl(inner, EPOLL_CTL_ADD, other[0], EPOLLIN, 14));
	say_events(epoll, 8);
	write(other[1], "y", 1);
	SAY(ctl(epoll, EPOLL_CTL_DEL, other[0], 0, 0));
	say_events(epoll, 8);
	say_events(inner, 8);
	read(other[0], room, 1);
	say_events(epoll, 8);
	close(inner);
	say_events(epoll, 8);

	puts("one that holds none any more");
	inner = epoll_create1(0);
	copy = epoll_create1(0);
	SAY(ctl(last, EPOLL_CTL_ADD, copy, EPOLLIN, 15));
	close(copy);
	SAY(ctl(inner, EPOLL_CTL_ADD, last, EPOLLIN, 16));
	SAY(ctl(inner, EPOLL_CTL_DEL, last, 0, 0));
	close(last);
	close(inner);

	puts("woken");
	pthread_create(&thread, 0, write_soon, &ends[1]);
	SAY(epoll_wait(epoll, &event, 1, -1));
	pthread_join(thread, 0);
	read(ends[0], room, 100);
	close(epoll);
	close(ends[0]);
	close(ends[1]);
	close(other[0]);
	close(other[1]);
	close(plain);
}

static void counters(void)
{
	uint64_t value = 5;
	int file = eventfd(3, EFD_NONBLOCK | EFD_CLOEXEC), one, epoll = epoll_create1(0);
	pthread_t thread;

	puts("-- eventfd");
	SAY(eventfd(0, 0x12));
	SAY(write(file, &value, 8));
	SAY(write(file, &value, 7));
	SAY(read(file, room, 7));
	SAY(read(file, &value, 8));
	printf("%llu\n", (unsigned long long)value);
	SAY(read(file, &value, 8));
	printf("%x\n", poll_one(file, POLLIN | POLLOUT, 0));
	value = -1;
	SAY(write(file, &value, 8));
	value = -2;
	SAY(write(file, &value, 8));
	printf("%x\n", poll_one(file, POLLIN | POLLOUT, 0));
	value = 1;
	SAY(write(file, &value, 8));
	SAY(read(file, room, 100));
	one = eventfd(2, EFD_SEMAPHORE | EFD_NONBLOCK);
	SAY(read(one, &value, 8));
	printf("%llu\n", (unsigned long long)value);
	SAY(read(one, &value, 8));
	SAY(read(one, &value, 8));
	ctl(epoll, EPOLL_CTL_ADD, file, EPOLLIN | EPOLLET, 1);
	value = 1;
	for (int nth = 0; nth < 3; nth++) {
		write(file, &value, 8);
		say_events(epoll, 8);
	}
	say_events(epoll, 8);
	read(file, &value, 8);
	fcntl(file, F_SETFL, 0);
	(void)thread;
	if (!fork()) {
		pause_ms(20);
		value = 7;
		write(file, &value, 8);
		_exit(0);
	}
	SAY(read(file, &value, 8));
	printf("%llu\n", (unsigned long long)value);
	wait(0);
	close(file);
	close(one);
	close(epoll);
}

static void read_signals(void)
{
	struct signalfd_siginfo told[3];
	sigset_t set;
	int file, epoll = epoll_create1(0);

	puts("-- signalfd");
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, 0);
	SAY(signalfd(-1, &set, 3));
	SAY(signalfd(0, &set, 0));
	file = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	ctl(epoll, EPOLL_CTL_ADD, file, EPOLLIN, 1);
	SAY(read(file, told, sizeof(told)));
	SAY(read(file, told, 100));
	SAY(write(file, told, 128));
	kill(getpid(), SIGUSR1);
	printf("%x\n", poll_one(file, POLLIN | POLLOUT, 0));
	say_events(epoll, 8);
	SAY(read(file, told, sizeof(told)));
	printf("%d %d %d\n", told[0].ssi_signo, told[0].ssi_pid == (unsigned)getpid(), told[0].ssi_code);
	say_events(epoll, 8);
	fcntl(file, F_SETFL, 0);
	if (!fork()) {
		pause_ms(20);
		_exit(5);
	}
	SAY(read(file, told, sizeof(told)));
	printf("%d %d\n", told[0].ssi_signo, told[0].ssi_status);
	wait(0);
	if (!fork()) {
		pause_ms(20);
		kill(getppid(), SIGUSR1);
		_exit(0);
	}
	SAY(epoll_wait(epoll, (struct epoll_event *)room, 1, -1));
	wait(0);
	SAY(read(file, told, sizeof(told)) > 0);
	close(file);
	close(epoll);
	while (waitpid(-1, 0, WNOHANG) > 0)
		;
	signal(SIGUSR1, SIG_IGN);
	sigprocmask(SIG_UNBLOCK, &set, 0);
}

static void clocks(void)
{
	struct itimerspec soon = { { 0, 0 }, { 0, 5000000 } }, each = { { 0, 1000000 }, { 0, 1000000 } }, off = { { 0, 0 }, { 0, 0 } }, was;
	struct itimerspec bad = { { 0, 0 }, { 0, 1000000000 } }, far = { { 7, 0 }, { 1000, 0 } };
	int file = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	uint64_t times;

	puts("-- timerfd");
	SAY(timerfd_create(77, 0));
	SAY(timerfd_create(CLOCK_REALTIME, 1));
	SAY(read(file, &times, 8));
	SAY(timerfd_settime(file, 0, &bad, 0));
	SAY(timerfd_settime(0, 0, &soon, 0));
	SAY(timerfd_settime(file, 0, &soon, &was));
	printf("%ld %ld\n", (long)was.it_value.tv_sec, was.it_value.tv_nsec);
	SAY(read(file, &times, 8));
	SAY(poll_one(file, POLLIN | POLLOUT, -1));
	SAY(read(file, &times, 4));
	SAY(read(file, &times, 8));
	printf("%llu\n", (unsigned long long)times);
	SAY(read(file, &times, 8));
	SAY(write(file, &times, 8));
	SAY(timerfd_gettime(file, &was));
	printf("%ld %ld\n", (long)was.it_value.tv_sec, was.it_value.tv_nsec);
	timerfd_settime(file, 0, &far, 0);
	timerfd_gettime(file, &was);
	printf("%d %ld\n", was.it_value.tv_sec == 999 || was.it_value.tv_sec == 1000, (long)was.it_interval.tv_sec);
	timerfd_settime(file, 0, &each, 0);
	pause_ms(20);
	SAY(read(file, &times, 8));
	printf("%d\n", times >= 10);
	timerfd_settime(file, 0, &off, &was);
	printf("%ld\n", was.it_interval.tv_nsec);
	SAY(read(file, &times, 8));
	clock_gettime(CLOCK_MONOTONIC, &soon.it_value);
	SAY(timerfd_settime(file, TFD_TIMER_ABSTIME, &soon, 0));
	SAY(poll_one(file, POLLIN, 1000));
	close(file);
	file = timerfd_create(CLOCK_REALTIME, 0);
	clock_gettime(CLOCK_REALTIME, &soon.it_value);
	soon.it_value.tv_sec++;
	SAY(timerfd_settime(file, TFD_TIMER_ABSTIME, &soon, 0));
	SAY(read(file, &times, 8));
	close(file);
}

static void signalling(void)
{
	struct itimerval soon_each = { { 0, 5000 }, { 0, 5000 } }, each = { { 0, 2000 }, { 0, 2000 } }, off = { { 0, 0 }, { 0, 0 } }, was;
	struct itimerval bad = { { 0, 0 }, { 0, 1000000 } };
	struct itimerspec soon = { { 0, 0 }, { 0, 5000000 } }, often = { { 0, 1000000 }, { 0, 1000000 } }, none = { { 0, 0 }, { 0, 0 } };
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2 };
	struct timespec limit = { 5, 0 };
	sigset_t set;
	siginfo_t info;
	timer_t timer;

	puts("-- timers that signal");
	catch(SIGALRM, 0);
	unsafe_count = 0;
	SAY(alarm(100));
	SAY(alarm(0));
	SAY(alarm(0));
	SAY(setitimer(ITIMER_REAL, &bad, 0));
	SAY(setitimer(77, &each, 0));
	SAY(setitimer(ITIMER_REAL, &soon_each, &was));
	SAY(pause());
	setitimer(ITIMER_REAL, &off, 0);
	printf("%d\n", unsafe_count > 0);
	unsafe_count = 0;
	getitimer(ITIMER_REAL, &was);
	printf("%ld %ld\n", (long)was.it_value.tv_sec, (long)was.it_value.tv_usec);
	SAY(setitimer(ITIMER_REAL, &each, 0));
	while (unsafe_count < 5)
		; /* it comes to a program that makes no calls */
	SAY(setitimer(ITIMER_REAL, &off, &was));
	printf("%ld\n", (long)was.it_interval.tv_usec);
	/* A call that is cut short is made again, or not. */
	{
		int ends[2];

		pipe(ends);
		setitimer(ITIMER_REAL, &soon_each, 0);
		SAY(read(ends[0], room, 1));
		catch(SIGALRM, SA_RESTART);
		if (!fork()) {
			pause_ms(50);
			write(ends[1], "z", 1);
			_exit(0);
		}
		SAY(read(ends[0], room, 1));
		wait(0);
		SAY(poll_one(ends[0], POLLIN, -1));
		setitimer(ITIMER_REAL, &off, 0);
		close(ends[0]);
		close(ends[1]);
	}
	/* A child has no timer of its parent's. */
	setitimer(ITIMER_REAL, &each, 0);
	fflush(stdout);
	if (!fork()) {
		getitimer(ITIMER_REAL, &was);
		printf("child: %ld\n", (long)was.it_interval.tv_usec);
		exit(0);
	}
	while (wait(0) < 0)
		;
	setitimer(ITIMER_REAL, &off, 0);

	SAY(timer_create(77, &event, &timer));
	event.sigev_value.sival_int = 42;
	SAY(timer_create(CLOCK_MONOTONIC, &event, &timer));
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	sigprocmask(SIG_BLOCK, &set, 0);
	SAY(timer_settime(timer, 0, &soon, 0));
	SAY(sigtimedwait(&set, &info, &limit));
	printf("%d %d %d\n", info.si_signo, info.si_code == SI_TIMER, info.si_value.sival_int);
	SAY(timer_getoverrun(timer));
	timer_settime(timer, 0, &often, 0);
	pause_ms(20);
	SAY(sigtimedwait(&set, &info, &limit));
	printf("%d %d\n", info.si_overrun >= 5, timer_getoverrun(timer) >= 5);
	timer_settime(timer, 0, &none, &often);
	printf("%ld\n", often.it_interval.tv_nsec);
	SAY(timer_delete(timer));
	SAY(syscall(SYS_timer_delete, 12345));
	event.sigev_notify = SIGEV_NONE;
	SAY(timer_create(CLOCK_REALTIME, &event, &timer));
	soon.it_value.tv_sec = 100;
	timer_settime(timer, 0, &soon, 0);
	timer_gettime(timer, &soon);
	printf("%d\n", soon.it_value.tv_sec == 99 || soon.it_value.tv_sec == 100);
	timer_delete(timer);
	event.sigev_notify = SIGEV_THREAD_ID;
	event._sigev_un._tid = syscall(SYS_gettid);
	SAY(timer_create(CLOCK_MONOTONIC, &event, &timer));
	soon = (struct itimerspec){ { 0, 0 }, { 0, 1000000 } };
	timer_settime(timer, 0, &soon, 0);
	SAY(sigtimedwait(&set, &info, &limit));
	timer_delete(timer);
	event._sigev_un._tid = 1 << 30;
	SAY(timer_create(CLOCK_MONOTONIC, &event, &timer));
	event.sigev_notify = 99;
	SAY(timer_create(CLOCK_MONOTONIC, &event, &timer));
}


static struct sockaddr_un at_path(const char *path, socklen_t *bytes)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };

	memcpy(name.sun_path, path, strlen(path + !*path) + !*path);
	*bytes = offsetof(struct sockaddr_un, sun_path) + strlen(path + !*path) + !*path;
	return name;
}

static int bind_path(int file, const char *path)
{
	socklen_t bytes;
	struct sockaddr_un name = at_path(path, &bytes);

	return bind(file, (void *)&name, bytes);
}

static int connect_path(int file, const char *path)
{
	socklen_t bytes;
	struct sockaddr_un name = at_path(path, &bytes);

	return connect(file, (void *)&name, bytes);
}

static void say_name(const char *what, int file, int (*ask)(int, struct sockaddr *, socklen_t *))
{
	struct sockaddr_un name = { 0 };
	socklen_t bytes = sizeof(name);

	if (ask(file, (void *)&name, &bytes))
		printf("%s: %s\n", what, strerror(errno));
	else
		printf("%s: %d bytes, %d, %s\n", what, bytes, name.sun_family, bytes > 2 ? name.sun_path + !*name.sun_path : "");
}

static int option(int file, int level, int name)
{
	int value = -1;
	socklen_t bytes = sizeof(value);

	return getsockopt(file, level, name, &value, &bytes) ? -errno : value;
}

static void pairs(int kind)
{
	int ends[2];
	struct iovec two[2] = { { room, 3 }, { room + 100, 5 } };
	struct msghdr head = { .msg_iov = two, .msg_iovlen = 2 };
	pthread_t other;

	printf("-- socketpair %d\n", kind);
	SAY(socketpair(AF_UNIX, kind | SOCK_NONBLOCK, 0, ends));
	printf("%d %d %d %d\n", option(ends[0], SOL_SOCKET, SO_TYPE) == kind, option(ends[0], SOL_SOCKET, SO_DOMAIN),
	       option(ends[0], SOL_SOCKET, SO_ERROR), option(ends[0], SOL_SOCKET, SO_ACCEPTCONN));
	printf("fresh: %x\n", poll_one(ends[0], POLLIN | POLLOUT | POLLRDHUP, 0));
	SAY(recv(ends[0], room, 10, 0));
	SAY(send(ends[0], "abcdef", 6, 0));
	SAY(write(ends[0], "ghi", 3));
	printf("came: %x\n", poll_one(ends[1], POLLIN | POLLOUT, 0));
	SAY(recv(ends[1], room, 4, MSG_PEEK));
	SAY(recv(ends[1], room, 4, 0));
	printf("%.4s\n", room);
	SAY(recv(ends[1], room, 10, MSG_TRUNC * (kind != SOCK_STREAM)));
	printf("%.3s\n", room);
	SAY(send(ends[1], "0123456789", 10, MSG_DONTWAIT));
	SAY(recvmsg(ends[0], &head, 0));
	printf("%.3s %.5s %x\n", room, room + 100, head.msg_flags & MSG_TRUNC);
	SAY(recv(ends[0], room, 10, MSG_DONTWAIT));
	SAY(recvfrom(ends[0], room, 10, 0, 0, 0));
	SAY(lseek(ends[0], 0, SEEK_SET));
	SAY(send(ends[0], "", 0, 0));
	SAY(recv(ends[1], room, 10, 0));
	SAY(sendto(ends[0], "x", 1, 0, (void *)room, 0));
	SAY(recv(ends[1], room, 10, 0));
	SAY(listen(ends[0], 5));
	SAY(accept(ends[0], 0, 0));
	say_name("own", ends[0], getsockname);
	say_name("peer", ends[0], getpeername);
	fcntl(ends[0], F_SETFL, 0);
	pthread_create(&other, 0, write_soon, &ends[1]);
	SAY(recv(ends[0], room, 100, 0));
	pthread_join(other, 0);
	if (kind == SOCK_STREAM) {
		pthread_create(&other, 0, write_soon, &ends[1]);
		write(ends[1], "early", 5);
		SAY(recv(ends[0], room, 9, MSG_WAITALL));
		pthread_join(other, 0);
		printf("%.9s\n", room);
	}
	SAY(shutdown(ends[0], 9));
	SAY(shutdown(ends[0], SHUT_WR));
	printf("half: %x %x\n", poll_one(ends[0], POLLIN | POLLOUT | POLLRDHUP, 0), poll_one(ends[1], POLLIN | POLLOUT | POLLRDHUP, 0));
	SAY(send(ends[0], "x", 1, MSG_NOSIGNAL));
	if (kind != SOCK_DGRAM)
		SAY(recv(ends[1], room, 10, 0));
	SAY(send(ends[1], "back", 4, 0));
	SAY(recv(ends[0], room, 10, 0));
	if (kind != SOCK_DGRAM) {
		SAY(shutdown(ends[0], SHUT_RD));
		printf("both: %x %x\n", poll_one(ends[0], POLLIN | POLLOUT | POLLRDHUP, 0), poll_one(ends[1], POLLIN | POLLOUT | POLLRDHUP, 0));
		SAY(recv(ends[0], room, 10, 0));
		SAY(send(ends[1], "x", 1, MSG_NOSIGNAL));
	}
	close(ends[0]);
	close(ends[1]);
	socketpair(AF_UNIX, kind, 0, ends);
	write(ends[0], "unread", 6);
	write(ends[1], "left", 4);
	close(ends[1]);
	if (kind != SOCK_DGRAM)
		printf("gone: %x\n", poll_one(ends[0], POLLIN | POLLOUT | POLLRDHUP, 0));
	if (kind == SOCK_STREAM) {
		SAY(recv(ends[0], room, 100, 0));
		SAY(recv(ends[0], room, 100, 0));
		SAY(recv(ends[0], room, 100, 0));
	}
	SAY(send(ends[0], "x", 1, MSG_NOSIGNAL));
	close(ends[0]);
	if (kind == SOCK_STREAM) {
		socketpair(AF_UNIX, kind, 0, ends);
		close(ends[1]);
		catch(SIGPIPE, 0);
		unsafe_count = 0;
		SAY(write(ends[0], "x", 1));
		printf("signals: %d\n", unsafe_count);
		signal(SIGPIPE, SIG_IGN);
		SAY(recv(ends[0], room, 1, 0));
		close(ends[0]);
	}
}

static void *connect_soon(void *path)
{
	int file = socket(AF_UNIX, SOCK_STREAM, 0);

	pause_ms(30);
	if (connect_path(file, path))
		abort();
	pause_ms(30);
	if (write(file, "hello", 5) != 5)
		abort();
	close(file);
	return 0;
}

static void unix_names(void)
{
	int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), client = socket(AF_UNIX, SOCK_STREAM, 0), served, epoll = epoll_create1(0), other;
	struct ucred who;
	struct stat facts;
	struct timeval limit = { 0, 2000 };
	socklen_t bytes = sizeof(who);
	pthread_t thread;

	puts("-- names of files");
	SAY(socket(AF_UNIX, 77, 0));
	SAY(socket(77, SOCK_STREAM, 0));
	SAY(socket(AF_INET, SOCK_SEQPACKET, 0));
	SAY(socketpair(AF_INET, SOCK_STREAM, 0, &served));
	SAY(bind(0, 0, 0));
	printf("fresh: %x\n", poll_one(listening, POLLIN | POLLOUT, 0));
	SAY(listen(listening, 5));
	SAY(recv(listening, room, 1, 0));
	SAY(send(client, "x", 1, MSG_NOSIGNAL));
	SAY(connect_path(client, "nowhere"));
	SAY(bind_path(listening, "name"));
	SAY(bind_path(listening, "other"));
	SAY(bind_path(client, "name"));
	SAY(stat("name", &facts));
	SAY(S_ISSOCK(facts.st_mode));
	SAY(open("name", O_RDWR));
	SAY(connect_path(client, "name"));
	SAY(connect_path(client, "plain"));
	SAY(listen(listening, 5));
	printf("listens: %x %d\n", poll_one(listening, POLLIN | POLLOUT, 0), option(listening, SOL_SOCKET, SO_ACCEPTCONN));
	ctl(epoll, EPOLL_CTL_ADD, listening, EPOLLIN, 1);
	say_events(epoll, 8);
	fcntl(listening, F_SETFL, O_NONBLOCK);
	SAY(accept(listening, 0, 0));
	fcntl(client, F_SETFL, O_NONBLOCK);
	SAY(connect_path(client, "name"));
	SAY(connect_path(client, "name"));
	say_events(epoll, 8);
	SAY(write(client, "first", 5));
	served = accept4(listening, 0, 0, SOCK_CLOEXEC);
	printf("%d %d\n", fcntl(served, F_GETFD), fcntl(served, F_GETFL) & O_NONBLOCK);
	say_events(epoll, 8);
	say_name("own", served, getsockname);
	say_name("peer", served, getpeername);
	say_name("client", client, getsockname);
	say_name("server", client, getpeername);
	SAY(getsockopt(served, SOL_SOCKET, SO_PEERCRED, &who, &bytes));
	printf("%d %d %d\n", who.pid == getpid(), who.uid == getuid(), who.gid == getgid());
	SAY(recv(served, room, 100, 0));
	SAY(setsockopt(served, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)));
	SAY(recv(served, room, 100, 0));
	SAY(setsockopt(served, IPPROTO_TCP, TCP_NODELAY, &bytes, sizeof(bytes)));
	SAY(listen(served, 5));
	SAY(shutdown(listening, SHUT_WR));
	close(client);
	SAY(recv(served, room, 100, 0));
	close(served);
	fcntl(listening, F_SETFL, 0);
	pthread_create(&thread, 0, connect_soon, "name");
	served = accept(listening, 0, 0);
	SAY(recv(served, room, 100, 0));
	SAY(recv(served, room, 100, 0));
	pthread_join(thread, 0);
	close(served);
	/* One that nobody accepts any more. */
	client = socket(AF_UNIX, SOCK_STREAM, 0);
	SAY(connect_path(client, "name"));
	close(listening);
	printf("refused: %x\n", poll_one(client, POLLIN | POLLOUT | POLLRDHUP, 0));
	SAY(recv(client, room, 10, 0));
	close(client);
	client = socket(AF_UNIX, SOCK_STREAM, 0);
	SAY(connect_path(client, "name"));
	SAY(unlink("name"));
	SAY(connect_path(client, "name"));

	puts("-- names that are no file's");
	listening = socket(AF_UNIX, SOCK_STREAM, 0);
	other = socket(AF_UNIX, SOCK_STREAM, 0);
	SAY(bind_path(listening, "\0foliant's"));
	SAY(bind_path(other, "\0foliant's"));
	SAY(listen(listening, 1));
	SAY(connect_path(client, "\0foliant's"));
	say_name("server", client, getpeername);
	SAY(connect_path(other, "\0nobody's"));
	close(listening);
	SAY(bind_path(other, "\0foliant's"));
	close(other);
	close(client);
	close(epoll);

	puts("-- datagrams");
	listening = socket(AF_UNIX, SOCK_DGRAM, 0);
	client = socket(AF_UNIX, SOCK_DGRAM, 0);
	bind_path(listening, "box");
	SAY(send(client, "x", 1, 0));
	SAY(connect_path(client, "box"));
	SAY(send(client, "unnamed", 7, 0));
	{
		struct sockaddr_un from = { 0 };
		socklen_t long_as = sizeof(from);

		SAY(recvfrom(listening, room, 100, 0, (void *)&from, &long_as));
		printf("%d\n", long_as);
		bind_path(client, "sender");
		send(client, "named", 5, 0);
		long_as = sizeof(from);
		SAY(recvfrom(listening, room, 3, 0, (void *)&from, &long_as));
		printf("%d %s\n", long_as, from.sun_path);
	}
	SAY(listen(listening, 1));
	other = socket(AF_UNIX, SOCK_STREAM, 0);
	SAY(connect_path(other, "box"));
	close(listening);
	SAY(send(client, "x", 1, 0));
	close(client);
	close(other);
	unlink("box");
	unlink("sender");
}

static void rights(void)
{
	int ends[2], file[2], got[4] = { -1, -1, -1, -1 }, flags;
	union {
		char bytes[CMSG_SPACE(4 * sizeof(int))];
		struct cmsghdr aligned;
	} control;
	struct iovec one = { room, 5 };
	struct msghdr head = { .msg_iov = &one, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_SPACE(2 * sizeof(int)) };
	struct cmsghdr *with = CMSG_FIRSTHDR(&head);

	puts("-- descriptors that come along");
	socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
	pipe(file);
	memset(&control, 0, sizeof(control));
	*with = (struct cmsghdr){ CMSG_LEN(2 * sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
	memcpy(CMSG_DATA(with), file, 8);
	write(ends[0], "before", 6);
	memcpy(room, "12345", 5);
	SAY(sendmsg(ends[0], &head, 0));
	close(file[0]);
	close(file[1]);
	write(ends[0], "behind", 6);
	one.iov_len = 100;
	memset(&control, 0, sizeof(control));
	head.msg_controllen = sizeof(control);
	/* Linux joins what comes before with what descriptors come with, and ends there. */
	SAY(recv(ends[1], room, 6, 0));
	head.msg_controllen = sizeof(control);
	SAY(recvmsg(ends[1], &head, MSG_CMSG_CLOEXEC));
	printf("%zu %x\n", (size_t)head.msg_controllen, head.msg_flags & ~MSG_CMSG_CLOEXEC);
	with = CMSG_FIRSTHDR(&head);
	if (with) {
		printf("%zu %d %d\n", (size_t)with->cmsg_len, with->cmsg_level, with->cmsg_type);
		memcpy(got, CMSG_DATA(with), 8);
	}
	printf("%d %d\n", fcntl(got[0], F_GETFD), fcntl(got[1], F_GETFL) & O_ACCMODE);
	SAY(write(got[1], "through", 7));
	SAY(read(got[0], room, 100));
	SAY(recvmsg(ends[1], &head, 0));
	printf("%zu\n", (size_t)head.msg_controllen);
	/* Too little room: the others are closed. */
	head.msg_controllen = CMSG_SPACE(2 * sizeof(int));
	with = CMSG_FIRSTHDR(&head);
	*with = (struct cmsghdr){ CMSG_LEN(2 * sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
	memcpy(CMSG_DATA(with), got, 8);
	one.iov_len = 1;
	SAY(sendmsg(ends[0], &head, 0));
	head.msg_controllen = CMSG_LEN(sizeof(int));
	SAY(recvmsg(ends[1], &head, 0));
	printf("%x\n", head.msg_flags);
	/* Nobody asks for them. */
	head.msg_controllen = CMSG_SPACE(2 * sizeof(int));
	with = CMSG_FIRSTHDR(&head);
	*with = (struct cmsghdr){ CMSG_LEN(2 * sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
	memcpy(CMSG_DATA(with), got, 8);
	SAY(sendmsg(ends[0], &head, 0));
	SAY(read(ends[1], room, 10));
	((int *)CMSG_DATA(with))[0] = 777;
	SAY(sendmsg(ends[0], &head, 0));
	with->cmsg_len = 3;
	SAY(sendmsg(ends[0], &head, 0));
	/* A socket within a socket within a socket. */
	for (int nth = 0; nth < 50; nth++) {
		int inner[2];

		head.msg_controllen = CMSG_SPACE(2 * sizeof(int));
		*with = (struct cmsghdr){ CMSG_LEN(2 * sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
		memcpy(CMSG_DATA(with), ends, 8);
		socketpair(AF_UNIX, SOCK_STREAM, 0, inner);
		if (sendmsg(inner[0], &head, 0) != 1)
			puts("not sent");
		close(ends[0]);
		close(ends[1]);
		memcpy(ends, inner, sizeof(ends));
	}
	close(ends[0]);
	SAY(ioctl(ends[1], FIONREAD, &flags));
	printf("%d\n", flags);
	close(ends[1]);
	close(got[0]);
	close(got[1]);
}

static int at_port(int file, int family, const char *host, int port, int (*call)(int, const struct sockaddr *, socklen_t))
{
	struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons(port) };
	struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons(port) };

	inet_pton(family, host, family == AF_INET ? (void *)&four.sin_addr : (void *)&six.sin6_addr);
	return family == AF_INET ? call(file, (void *)&four, sizeof(four)) : call(file, (void *)&six, sizeof(six));
}

static int port_of(int file, int (*ask)(int, struct sockaddr *, socklen_t *), char *host)
{
	struct sockaddr_in6 name = { 0 };
	socklen_t bytes = sizeof(name);

	strcpy(host, "?");
	if (ask(file, (void *)&name, &bytes))
		return -errno;
	inet_ntop(name.sin6_family, name.sin6_family == AF_INET ? (void *)&((struct sockaddr_in *)&name)->sin_addr : (void *)&name.sin6_addr, host, 64);
	return ntohs(name.sin6_port);
}

static void networks(int family, const char *own, const char *any)
{
	int listening = socket(family, SOCK_STREAM, 0), client = socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0), served, other, on = 1, port, bytes;
	struct linger lingers = { 1, 0 };
	char host[64], peer[64];
	struct pollfd ready;

	printf("-- streams at %s\n", own);
	printf("fresh: %x\n", poll_one(client, POLLIN | POLLOUT | POLLRDHUP, 0));
	SAY(recv(client, room, 1, 0));
	SAY(send(client, "x", 1, MSG_NOSIGNAL));
	SAY(getpeername(client, (void *)room, &(socklen_t){ 100 }));
	SAY(shutdown(client, SHUT_WR));
	SAY(setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)));
	printf("%d %d\n", option(listening, SOL_SOCKET, SO_REUSEADDR), option(client, SOL_SOCKET, SO_REUSEADDR));
	SAY(setsockopt(listening, SOL_SOCKET, SO_KEEPALIVE, &on, 2));
	SAY(setsockopt(listening, SOL_SOCKET, 7777, &on, 4));
	SAY(setsockopt(listening, IPPROTO_TCP, TCP_NODELAY, &on, 4));
	printf("%d %d\n", option(listening, IPPROTO_TCP, TCP_NODELAY), option(client, IPPROTO_TCP, TCP_NODELAY));
	SAY(setsockopt(listening, SOL_SOCKET, SO_LINGER, &lingers, sizeof(lingers)));
	lingers.l_onoff = 0;
	setsockopt(listening, SOL_SOCKET, SO_LINGER, &lingers, sizeof(lingers));
	SAY(at_port(listening, family, family == AF_INET ? "203.0.113.7" : "2001:db8::7", 0, bind));
	SAY(at_port(listening, family, own, 0, bind));
	SAY(at_port(listening, family, own, 0, bind));
	port = port_of(listening, getsockname, host);
	printf("%d %s\n", port > 1024, host);
	SAY(at_port(client, family, own, port, connect));
	printf("%d %x\n", option(client, SOL_SOCKET, SO_ERROR) == ECONNREFUSED, poll_one(client, POLLOUT, 0) & POLLHUP);
	close(client);
	SAY(listen(listening, 8));
	other = socket(family, SOCK_STREAM, 0);
	SAY(at_port(other, family, own, port, bind));
	SAY(at_port(other, family, any, port, bind));
	SAY(bind(other, (void *)room, 3));
	close(other);
	client = socket(family, SOCK_STREAM, 0);
	SAY(at_port(client, family, own, port, connect));
	SAY(at_port(client, family, own, port, connect));
	served = accept4(listening, 0, 0, SOCK_NONBLOCK);
	printf("%d %s\n", port_of(served, getsockname, host) == port, host);
	printf("%d %s\n", port_of(served, getpeername, peer) == port_of(client, getsockname, host), peer);
	printf("%s %d\n", host, port_of(client, getpeername, host) == port);
	printf("%d %d\n", option(served, SOL_SOCKET, SO_ERROR), option(served, SOL_SOCKET, SO_PROTOCOL));
	SAY(recv(served, room, 10, 0));
	SAY(send(client, "question", 8, 0));
	ready = (struct pollfd){ served, POLLIN, 0 };
	SAY(poll(&ready, 1, 1000));
	SAY(ioctl(served, FIONREAD, &bytes));
	printf("%d\n", bytes);
	SAY(recvfrom(served, room, 100, 0, (void *)peer, &(socklen_t){ 60 }));
	SAY(sendto(served, "answer", 6, 0, (void *)room, 0));
	SAY(recv(client, room, 3, MSG_PEEK));
	SAY(recv(client, room, 100, 0));
	SAY(shutdown(client, SHUT_WR));
	SAY(poll_one(served, POLLIN, 1000));
	printf("half: %x %x\n", poll_one(client, POLLIN | POLLOUT | POLLRDHUP, 0), poll_one(served, POLLIN | POLLOUT | POLLRDHUP, 0));
	SAY(recv(served, room, 10, 0));
	SAY(send(served, "late", 4, 0));
	SAY(recv(client, room, 10, 0));
	close(served);
	SAY(recv(client, room, 10, 0));
	printf("both: %x\n", poll_one(client, POLLIN | POLLOUT | POLLRDHUP, 0));
	close(client);

	/* A file goes through. */
	client = socket(family, SOCK_STREAM, 0);
	at_port(client, family, own, port, connect);
	served = accept(listening, 0, 0);
	{
		int plain = open("sent", O_RDWR | O_CREAT | O_TRUNC, 0600);
		off_t from = 2;
		long sum = 0, all = 0, came;

		for (int nth = 0; nth < 100000; nth++)
			room[nth] = nth * 7 + nth / 256;
		write(plain, room, 100000);
		lseek(plain, 5, SEEK_SET);
		if (!fork()) {
			SAY(sendfile(client, plain, &from, 90000));
			printf("%ld %ld\n", (long)from, (long)lseek(plain, 0, SEEK_CUR));
			SAY(sendfile(client, plain, 0, 1000000));
			printf("%ld\n", (long)lseek(plain, 0, SEEK_CUR));
			SAY(sendfile(client, served, 0, 10));
			SAY(sendfile(plain, plain, 0, 10));
			exit(0);
		}
		close(client);
		while ((came = read(served, room, 5000)) > 0)
			for (all += came; came > 0; came--)
				sum = sum * 31 + room[came - 1];
		wait(0);
		printf("%ld\n", all);
		(void)sum;
		close(plain);
		unlink("sent");
	}
	close(served);
	/* Nobody reads what was written. */
	client = socket(family, SOCK_STREAM, 0);
	at_port(client, family, own, port, connect);
	served = accept(listening, 0, 0);
	write(client, "unread", 6);
	poll_one(served, POLLIN, 1000);
	close(served);
	SAY(recv(client, room, 10, 0));
	SAY(recv(client, room, 10, 0));
	SAY(send(client, "x", 1, MSG_NOSIGNAL));
	close(client);
	/* A close at the other end is known when something was sent. */
	client = socket(family, SOCK_STREAM, 0);
	at_port(client, family, own, port, connect);
	served = accept(listening, 0, 0);
	close(served);
	poll_one(client, POLLIN, 1000);
	printf("closed: %x\n", poll_one(client, POLLIN | POLLOUT | POLLRDHUP, 0));
	SAY(send(client, "x", 1, MSG_NOSIGNAL));
	pause_ms(20);
	SAY(send(client, "x", 1, MSG_NOSIGNAL));
	close(client);
	close(listening);
	client = socket(family, SOCK_STREAM, 0);
	SAY(at_port(client, family, own, port, connect));
	close(client);

	printf("-- datagrams at %s\n", own);
	listening = socket(family, SOCK_DGRAM, 0);
	client = socket(family, SOCK_DGRAM, 0);
	SAY(at_port(listening, family, any, 0, bind));
	port = port_of(listening, getsockname, host);
	printf("%d %s\n", port > 1024, host);
	SAY(send(client, "x", 1, 0));
	SAY(at_port(client, family, own, port, connect));
	SAY(send(client, "one", 3, 0));
	SAY(send(client, "", 0, 0));
	SAY(send(client, "three", 5, 0));
	{
		struct sockaddr_in6 from = { 0 };
		socklen_t long_as = sizeof(from);

		SAY(recvfrom(listening, room, 2, MSG_TRUNC, (void *)&from, &long_as));
		printf("%d %d\n", long_as, ntohs(from.sin6_port) == port_of(client, getsockname, host));
		SAY(recv(listening, room, 10, 0));
		SAY(recv(listening, room, 10, MSG_PEEK));
		SAY(recv(listening, room, 10, 0));
		SAY(recv(listening, room, 10, MSG_DONTWAIT));
		SAY(sendto(listening, "reply", 5, 0, (void *)&from, long_as));
		SAY(recv(client, room, 10, 0));
	}
	SAY(send(client, room, 65508, 0));
	SAY(listen(listening, 1));
	SAY(accept(listening, 0, 0));
	close(listening);
	SAY(send(client, "x", 1, 0));
	SAY(poll_one(client, POLLIN, 1000));
	SAY(send(client, "x", 1, 0));
	close(client);
}

static void links(void)
{
	int ends[2], file = open("plain", O_RDWR | O_CREAT, 0600), again;
	char name[64], text[64];
	long bytes;

	puts("-- links");
	pipe(ends);
	sprintf(name, "/proc/self/fd/%d", ends[0]);
	bytes = readlink(name, text, sizeof(text));
	printf("%d\n", bytes > 6 && !memcmp(text, "pipe:[", 6));
	sprintf(name, "/proc/self/fd/%d", eventfd(0, 0));
	bytes = readlink(name, text, sizeof(text));
	printf("%.*s\n", (int)bytes, text);
	sprintf(name, "/dev/fd/%d", ends[1]);
	again = open(name, O_WRONLY);
	SAY(write(again, "again", 5));
	SAY(read(ends[0], room, 10));
	write(file, "content", 7);
	sprintf(name, "/proc/%d/fd/%d", getpid(), file);
	again = open(name, O_RDONLY);
	SAY(read(again, room, 10));
	SAY(open("/proc/self/fd/777", O_RDONLY));
	close(again);
	close(ends[0]);
	close(ends[1]);
	again = open("copied", O_RDWR | O_CREAT | O_TRUNC, 0600);
	SAY(copy_file_range(file, &(off64_t){ 2 }, again, 0, 100, 0));
	SAY(lseek(again, 0, SEEK_CUR));
	SAY(pread(again, room, 10, 0));
	SAY(copy_file_range(file, 0, again, 0, 100, 7));
	close(again);
	close(file);
	unlink("copied");
}

int main(int count, char **words)
{
	setvbuf(stdout, 0, _IOLBF, 0);
	pipes();
	polls();
	epolls();
	counters();
	read_signals();
	clocks();
	signalling();
	pairs(SOCK_STREAM);
	pairs(SOCK_SEQPACKET);
	pairs(SOCK_DGRAM);
	unix_names();
	rights();
	networks(AF_INET, "127.0.0.1", "0.0.0.0");
	if (count > 1 && !strcmp(words[1], "six"))
		networks(AF_INET6, "::1", "::");
	links();
	return 0;
}
