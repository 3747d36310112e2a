/*
 * What programs beside this say: what a call answered, and where a child begins that changes what it is.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((unused)) static void say(const char *what, long answer)
{
	if (answer < 0)
		printf("%s: %s\n", what, strerror(errno));
	else
		printf("%s: %ld\n", what, answer);
}

/* Has a child do something, so that what it becomes does not stay. */
__attribute__((unused)) static void apart(const char *what, void (*work)(void))
{
	int child, status;

	printf("-- %s\n", what);
	fflush(stdout);
	child = fork();
	if (!child) {
		work();
		fflush(stdout);
		_exit(0);
	}
	waitpid(child, &status, 0);
	if (status)
		printf("ended %x\n", status);
}
