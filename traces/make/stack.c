/* A recursion with random side branches: deep stacks of three threads and of the first, again and again. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

static uint64_t walk(uint64_t seed, unsigned depth, unsigned side)
{
    char scratch[600];
    uint64_t a = 0;
    memset(scratch, (int)seed, sizeof scratch);
    __asm__ volatile("" : : "r"(scratch) : "memory"); /* or the compiler does without it */
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    if (side && (seed >> 33) % 499 == 0)
        a += walk(seed + 1, side, 0);
    if (depth)
        a += walk(seed, depth - 1, side);
    return a ^ (uint64_t)scratch[(seed >> 33) % sizeof scratch];
}

static void *thread(void *seed)
{
    return (void *)walk((uintptr_t)seed, 100000, 3000);
}

int main(void)
{
    uint64_t sum = 0;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 96u << 20);
    for (uintptr_t round = 0; round < 2; round++) {
        pthread_t threads[3];
        for (uintptr_t t = 0; t < 3; t++)
            pthread_create(&threads[t], &attr, thread, (void *)(round * 10 + t + 1));
        for (int t = 0; t < 3; t++) {
            void *out;
            pthread_join(threads[t], &out);
            sum ^= (uint64_t)(uintptr_t)out;
        }
    }
    sum ^= walk(99, 10000, 400); /* 8 MiB is what a first stack has */
    printf("%llu\n", (unsigned long long)sum);
    return 0;
}
