/* A sparse table of 512 MiB: TOUCHES places at random get a count, then are read in another order. */
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

#define SLOTS (512u << 20 >> 4)
#define TOUCHES 20000u

struct slot { uint64_t key, count; };

static uint64_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

int main(void)
{
    struct slot *map = mmap(0, SLOTS * sizeof *map, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t state = 7, found = 0;
    if (map == MAP_FAILED)
        return 1;
    for (unsigned i = 0; i < TOUCHES; i++) {
        uint64_t key = next(&state);
        struct slot *s = &map[key % SLOTS];
        s->key = key;
        s->count++;
    }
    state = 7 * 31;
    for (unsigned i = 0; i < TOUCHES / 4; i++)
        found += map[next(&state) % SLOTS].count;
    printf("%llu\n", (unsigned long long)found);
    return 0;
}
