/* Processes that wait for a few moments each, on a machine that has nothing else to do: timers,
 * sleeps and pipes end although every CPU halts in between. */
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 300

static void nothing(int number)
{
	(void)number;
}

static void sleep_micros(long micros)
{
	struct timespec left = { 0, micros * 1000 };

	while (nanosleep(&left, &left) < 0)
		;
}

int main(void)
{
	struct itimerval each = { { 0, 300 }, { 0, 300 } }, off = { { 0, 0 }, { 0, 0 } };
	struct sigaction action = { .sa_handler = nothing, .sa_flags = SA_RESTART };
	long came = 0;
	char byte;

	sigaction(SIGALRM, &action, 0);
	for (long round = 0; round < ROUNDS; round++) {
		int ends[2];

		if (pipe(ends))
			return 1;
		setitimer(ITIMER_REAL, &each, 0);
		if (!fork()) {
			sleep_micros(100 + 37 * (round % 64));
			_exit(write(ends[1], "z", 1) != 1);
		}
		came += read(ends[0], &byte, 1);
		wait(0);
		setitimer(ITIMER_REAL, &off, 0);
		sleep_micros(1 + round % 16);
		close(ends[0]);
		close(ends[1]);
	}
	printf("%ld of %d\n", came, ROUNDS);
	return 0;
}
