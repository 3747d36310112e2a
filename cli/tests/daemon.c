/* A service to attach to: each of its threads maps memory, touches it, drops it, and so on, at a
 * rate. `daemon RATE THREADS [fork]`: faults a second in all. With `fork` it is two processes. Each
 * round it adds to a counter, which its standard output shows when it gets SIGUSR1. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096L
#define BLOCK 64L

static long rounds;
static long pause_ns;

static void *work(void *unused) {
    char *kept = mmap(0, BLOCK * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    (void)unused;
    for (long n = 0;; n++) {
        /* Half of the rounds in memory that is kept, half in memory that is new. */
        char *at = kept;
        if (n % 2)
            at = mmap(0, BLOCK * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (long page = 0; page < BLOCK; page++)
            ((volatile char *)at)[page * PAGE] = 1;
        if (n % 2)
            munmap(at, BLOCK * PAGE);
        else
            madvise(at, BLOCK * PAGE, MADV_DONTNEED);
        __atomic_add_fetch(&rounds, 1, __ATOMIC_RELAXED);
        struct timespec time = {pause_ns / 1000000000, pause_ns % 1000000000};
        while (nanosleep(&time, &time))
            ;
    }
    return 0;
}

int main(int count, char **word) {
    long rate = count > 1 ? atol(word[1]) : 5000, threads = count > 2 ? atol(word[2]) : 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGUSR1);
    sigprocmask(SIG_BLOCK, &wanted, 0);
    /* Memory that is there before anybody attaches. */
    char *before = malloc(300 * PAGE);
    memset(before, 1, 300 * PAGE);
    if (count > 3 && !strcmp(word[3], "fork")) {
        rate /= 2;
        if (!fork())
            prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    pause_ns = 1000000000L * BLOCK * threads / rate;
    for (long n = 0; n < threads; n++) {
        pthread_t thread;
        pthread_create(&thread, 0, work, 0);
    }
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        int signal;
        sigwait(&wanted, &signal);
        printf("%ld %d\n", __atomic_load_n(&rounds, __ATOMIC_RELAXED),
               prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
        fflush(stdout);
    }
}
