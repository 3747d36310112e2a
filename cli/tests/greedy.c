/*
 * A program that takes what it can of what waits: sockets within sockets, timers without a pause, pipes and messages until there is no more
 * room, sockets that lead in a circle. It is refused sometime, and ends by itself.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
/* Sends two descriptors along with a byte. */
static int send_two(int to, int a, int b)
{
	union { char bytes[CMSG_SPACE(8)]; struct cmsghdr aligned; } control = { 0 };
	char x = 'x';
	struct iovec one = { &x, 1 };
	struct msghdr head = { .msg_iov = &one, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control) };
	struct cmsghdr *with = CMSG_FIRSTHDR(&head);
	int both[2] = { a, b };
	*with = (struct cmsghdr){ CMSG_LEN(8), SOL_SOCKET, SCM_RIGHTS };
	memcpy(CMSG_DATA(with), both, 8);
	return sendmsg(to, &head, 0);
}

static volatile long rings;

static void ring(int number)
{
	(void)number;
	rings++;
}

int main(void)
{
	/* Sockets within sockets, and all of them closed at once. */
	int ends[2], depth = 0;
	socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
	for (; depth < 5000; depth++) {
		int inner[2];
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, inner)) break;
		if (send_two(inner[0], ends[0], ends[1]) != 1) { printf("depth %d %s\n", depth, strerror(errno)); close(inner[0]); close(inner[1]); break; }
		close(ends[0]); close(ends[1]);
		memcpy(ends, inner, 8);
	}
	close(ends[0]); close(ends[1]);
	puts("nested dropped");
	/* Timers without a pause: the program goes on. */
	signal(SIGALRM, ring);
	struct itimerval fast = { { 0, 1 }, { 0, 1 } }, off = { 0 };
	setitimer(ITIMER_REAL, &fast, 0);
	volatile long work = 0;
	while (work < 50000000)
		work++;
	setitimer(ITIMER_REAL, &off, 0);
	printf("worked, rings %d\n", rings > 10);
	int timers[500];
	for (int n = 0; n < 500; n++) {
		struct itimerspec it = { { 0, 1 }, { 0, 1 } };
		timers[n] = timerfd_create(CLOCK_MONOTONIC, 0);
		timerfd_settime(timers[n], 0, &it, 0);
	}
	work = 0;
	while (work < 10000000)
		work++;
	puts("worked besides timers");
	for (int n = 0; n < 500; n++) close(timers[n]);
	/* All the room that there is, by several at once. */
	for (int round = 0; round < 4; round++)
		if (!fork()) {
			static char bytes[1 << 16];
			long all = 0;
			for (;;) {
				int p[2];
				if (pipe2(p, O_NONBLOCK)) break;
				all += write(p[1], bytes, sizeof(bytes));
			}
			_exit(errno == EMFILE ? 1 : 2);
		}
	int status;
	while (wait(&status) > 0) printf("filled: %s\n", WIFEXITED(status) ? "ended" : "killed");
	for (int round = 0; round < 4; round++)
		if (!fork()) {
			static char bytes[1 << 16];
			for (;;) {
				int p[2];
				if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, p)) break;
				while (write(p[1], bytes, 1) == 1) ;
				while (write(p[0], bytes, 60000) == 60000) ;
			}
			_exit(1);
		}
	while (wait(&status) > 0) printf("filled: %s\n", WIFEXITED(status) ? "ended" : "killed");
	/* Sockets that lead in a circle: nobody can close them any more. */
	long circles = 0;
	for (; circles < 100000; circles++) {
		socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
		int sent = send_two(ends[0], ends[0], ends[1]);
		close(ends[0]); close(ends[1]);
		if (sent != 1) { printf("circles: %s\n", strerror(errno)); break; }
	}
	return 0;
}
