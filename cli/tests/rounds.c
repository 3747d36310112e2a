/* Threads that meet: in each round every one adds to a sum under a mutex, waits on a condition
 * variable until all have, and finds the sum of all; then they wait at a barrier. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define THREADS 8
#define ROUNDS 1000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t all_came = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t between;
static long came, sum, wrong;

static void *meets(void *argument)
{
	long own = (long)argument;

	for (long round = 0; round < ROUNDS; round++) {
		pthread_mutex_lock(&lock);
		sum += own + round;
		came++;
		if (came == THREADS * (round + 1))
			pthread_cond_broadcast(&all_came);
		while (came < THREADS * (round + 1))
			pthread_cond_wait(&all_came, &lock);
		wrong += sum != (round + 1) * (THREADS * (THREADS - 1) / 2) + THREADS * round * (round + 1) / 2;
		pthread_mutex_unlock(&lock);
		pthread_barrier_wait(&between);
	}
	return 0;
}

int main(void)
{
	pthread_t threads[THREADS];

	pthread_barrier_init(&between, 0, THREADS);
	for (long each = 0; each < THREADS; each++)
		if (pthread_create(&threads[each], 0, meets, (void *)each))
			return 1;
	for (long each = 0; each < THREADS; each++)
		pthread_join(threads[each], 0);
	printf("%ld came, %ld in all, %ld wrong\n", came, sum, wrong);
	return 0;
}
