/*
 * Corners of descriptors that wait: pipes, poll, select, epoll, counters, timers. Prints what the system answers; two systems that print
 * the same agree. No line depends on how long something takes.
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
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
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
	close(last);
	close(inner);
	say_events(epoll, 8);

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
	struct itimerval once = { { 0, 0 }, { 0, 5000 } }, each = { { 0, 2000 }, { 0, 2000 } }, off = { { 0, 0 }, { 0, 0 } }, was;
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
	SAY(setitimer(77, &once, 0));
	SAY(setitimer(ITIMER_REAL, &once, &was));
	SAY(pause());
	printf("%d\n", unsafe_count);
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
		setitimer(ITIMER_REAL, &once, 0);
		SAY(read(ends[0], room, 1));
		catch(SIGALRM, SA_RESTART);
		setitimer(ITIMER_REAL, &once, 0);
		if (!fork()) {
			pause_ms(50);
			write(ends[1], "z", 1);
			_exit(0);
		}
		SAY(read(ends[0], room, 1));
		wait(0);
		setitimer(ITIMER_REAL, &once, 0);
		SAY(poll_one(ends[0], POLLIN, -1));
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

int main(void)
{
	setvbuf(stdout, 0, _IOLBF, 0);
	pipes();
	polls();
	epolls();
	counters();
	clocks();
	signalling();
	return 0;
}
