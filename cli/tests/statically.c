/* A program without libraries of its own at run time: threads map at once, the heap grows, and each
   looks whether what it got is advised. Ends with 0 if all of it is. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BYTES = 613 << 12, THREADS = 4, EACH = 20 };

/* Whether the area of an address has the flag of MADV_HUGEPAGE. */
static int is_advised(const void *address) {
    char line[512];
    unsigned long start, end, at = (unsigned long)address;
    int inside = 0, found = 0;
    FILE *smaps = fopen("/proc/self/smaps", "r");
    if (!smaps)
        return 0;
    while (fgets(line, sizeof line, smaps)) {
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
            inside = start <= at && at < end;
        if (inside && !strncmp(line, "VmFlags:", 8))
            found = strstr(line, " hg") != NULL;
    }
    fclose(smaps);
    return found;
}

static void *maps(void *failed) {
    for (int i = 0; i < EACH; i++) {
        char *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED || !is_advised(at))
            return failed;
        memset(at, 1, BYTES);
        munmap(at, BYTES);
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    void *failed, *any = NULL;
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, maps, threads);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], &failed);
        any = any ? any : failed;
    }
    if (any)
        return 1;
    char *heap = sbrk(BYTES);
    return heap == (char *)-1 || !is_advised(heap + BYTES - 1) ? 2 : 0;
}
