// Memory that is said to be broken (MADV_HWPOISON), or to be about to (MADV_SOFT_OFFLINE): who loses
// what, which signal tells of it, and what is counted.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096UL
#ifndef MADV_SOFT_OFFLINE
#define MADV_SOFT_OFFLINE 101
#endif
#define HUGE (2UL << 20)

static sigjmp_buf back;
static volatile int code, lsb;
static volatile uintptr_t where;
static volatile int came;

static void bus(int signal, siginfo_t *info, void *context) {
    (void)context;
    came = signal, code = info->si_code, lsb = info->si_addr_lsb, where = (uintptr_t)info->si_addr;
    siglongjmp(back, 1);
}

static const char *codes(int code) {
    return code == BUS_MCEERR_AR ? "AR" : code == BUS_MCEERR_AO ? "AO" : code == BUS_ADRERR ? "ADRERR" : "?";
}

// An access, and the signal that it ends with.
static void touch(const char *what, volatile char *at, int write) {
    came = 0;
    int value = -1;
    if (sigsetjmp(back, 1) == 0) {
        if (write) *at = 7, value = 7; else value = *at;
    }
    if (came) printf("%s: signal %d %s lsb %d at +%ld\n", what, came, codes(code), lsb, (long)(where - (uintptr_t)at));
    else printf("%s: %d\n", what, value);
}

static void advise(const char *what, char *at, size_t bytes, int advice) {
    came = 0;
    int done = -2, err = 0;
    if (sigsetjmp(back, 1) == 0) { errno = 0; done = madvise(at, bytes, advice); err = errno; }
    if (came) printf("%s: signal %d %s lsb %d at +%ld\n", what, came, codes(code), lsb, (long)(where - (uintptr_t)at));
    else printf("%s: %d %s\n", what, done, done ? strerrorname_np(err) : "");
}

static char *map(size_t bytes, int flags, int file) {
    char *at = mmap(0, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
    if (at == MAP_FAILED) { printf("mmap: %s\n", strerrorname_np(errno)); exit(1); }
    return at;
}
static char *aligned(size_t bytes) {
    char *at = map(bytes + HUGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    return (char *)(((uintptr_t)at + HUGE - 1) & -HUGE);
}
static long smaps(char *at, const char *name) {
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[512];
    long value = -1; int here = 0;
    size_t length = strlen(name);
    while (file && fgets(line, sizeof line, file)) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2) here = from <= (uintptr_t)at && (uintptr_t)at < to;
        else if (here && !strncmp(line, name, length) && line[length] == ':') value = atol(line + length + 1);
    }
    if (file) fclose(file);
    return value;
}
static long meminfo(const char *name) {
    FILE *file = fopen("/proc/meminfo", "r");
    char line[512]; long value = -1; size_t length = strlen(name);
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, name, length) && line[length] == ':') value = atol(line + length + 1);
    if (file) fclose(file);
    return value;
}
static uint64_t pagemap(char *at) {
    int file = open("/proc/self/pagemap", O_RDONLY);
    uint64_t word = 0;
    if (pread(file, &word, 8, (uintptr_t)at / PAGE * 8) != 8) word = 1;
    close(file);
    return word;
}
static void bits(const char *what, char *at) {
    uint64_t word = pagemap(at);
    printf("%s: present %d swapped %d file %d\n", what, (int)(word >> 63), (int)(word >> 62 & 1), (int)(word >> 61 & 1));
}
static void child(void (*work)(char *), char *at) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) { work(at); fflush(stdout); _exit(0); }
    int status; waitpid(pid, &status, 0);
    if (WIFSIGNALED(status)) printf("child: killed by %d\n", WTERMSIG(status));
    else if (WEXITSTATUS(status)) printf("child: exit %d\n", WEXITSTATUS(status));
}
static long base_corrupted;
static void corrupted(const char *what) {
    long now = meminfo("HardwareCorrupted");
    printf("%s: %ld kB broken\n", what, now - base_corrupted);
    base_corrupted = now;
}

static void read_child(char *at) { touch("child reads", at, 0); touch("child writes", at, 1); touch("child reads the next", at + PAGE, 0); }
static void advise_child(char *at) { advise("child advises", at, PAGE, MADV_HWPOISON); touch("child reads", at, 0); }
static void unprivileged(char *at) {
    if (setresuid(1000, 1000, 1000)) _exit(3);
    advise("unprivileged, broken", at, PAGE, MADV_HWPOISON);
    advise("unprivileged, retired", at, PAGE, MADV_SOFT_OFFLINE);
    advise("unprivileged, no range", at, 0, MADV_HWPOISON);
    advise("unprivileged, unaligned", at + 1, PAGE, MADV_HWPOISON);
}
static void unhandled(char *at) { signal(SIGBUS, SIG_DFL); *(volatile char *)at; }

static void own(void) {
    puts("-- own memory");
    char *at = map(16 * PAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    memset(at, 1, 16 * PAGE);
    child(unprivileged, at);
    advise("unaligned", at + 1, PAGE, MADV_HWPOISON);
    advise("no range", at, 0, MADV_HWPOISON);
    advise("one page", at, PAGE, MADV_HWPOISON);
    corrupted("one page");
    touch("read", at, 0), touch("write", at + 8, 1), touch("the next", at + PAGE, 0);
    bits("pagemap", at), bits("the next", at + PAGE);
    advise("again", at, PAGE, MADV_HWPOISON);
    advise("from the one before, two", at + 15 * PAGE - PAGE, 2 * PAGE, MADV_HWPOISON);
    touch("14", at + 14 * PAGE, 0), touch("15", at + 15 * PAGE, 0);
    child(read_child, at), child(unhandled, at);
    int pipes[2];
    if (pipe(pipes)) exit(1);
    int written = write(pipes[1], at, 10);
    printf("written to a pipe: %d %s\n", written, strerrorname_np(errno));
    unsigned char in[1]; errno = 0;
    printf("mincore: %d %d\n", mincore(at, PAGE, in), in[0] & 1);
    advise("populate", at, PAGE, MADV_POPULATE_READ);
    printf("mprotect: %d\n", mprotect(at, PAGE, PROT_READ));
    touch("read", at, 0);
    printf("mprotect: %d\n", mprotect(at, PAGE, PROT_READ | PROT_WRITE));
    char *to = mremap(at, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, map(PAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1));
    touch("moved", to, 0);
    advise("dropped", to, PAGE, MADV_DONTNEED);
    touch("read", to, 0), touch("written", to, 1);
    corrupted("two more");
    char *fresh = map(2 * PAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    advise("not touched", fresh, PAGE, MADV_HWPOISON);
    touch("not touched", fresh, 0);
    munmap(fresh + PAGE, PAGE);
    memset(fresh, 1, PAGE);
    advise("a hole behind", fresh, 2 * PAGE, MADV_HWPOISON);
    touch("before the hole", fresh, 0);
    char *none = mmap(0, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    advise("no rights", none, PAGE, MADV_HWPOISON);
}
static void forked(void) {
    puts("-- forked");
    base_corrupted = meminfo("HardwareCorrupted");
    char *at = map(4 * PAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    memset(at, 1, 4 * PAGE);
    child(advise_child, at);
    touch("parent", at, 0), touch("parent's next", at + PAGE, 0);
    corrupted("forked");
}
static void shared(void) {
    puts("-- shared memory");
    int file = memfd_create("file", 0);
    if (ftruncate(file, 8 * PAGE)) exit(1);
    char *at = map(8 * PAGE, MAP_SHARED, file), *other = map(8 * PAGE, MAP_SHARED, file), *own = map(8 * PAGE, MAP_PRIVATE, file);
    memset(at, 1, 8 * PAGE);
    touch("other", other, 0), touch("own", own, 0);
    own[PAGE] = 5;
    advise("one page", at, PAGE, MADV_HWPOISON);
    touch("read", at, 0), touch("other", other, 0), touch("own", own, 0), touch("own writes", own, 1);
    touch("the next", at + PAGE, 0);
    advise("one that has a copy", at + PAGE, PAGE, MADV_HWPOISON);
    touch("read", at + PAGE, 0), touch("own copy", own + PAGE, 0);
    advise("one that was not read", at + 2 * PAGE, PAGE, MADV_HWPOISON);
    touch("own", own + 2 * PAGE, 0), touch("read", at + 2 * PAGE, 0);
    own[3 * PAGE] = 6;
    advise("the copy", own + 3 * PAGE, PAGE, MADV_HWPOISON);
    touch("own", own + 3 * PAGE, 0), touch("read", at + 3 * PAGE, 0);
    char buffer[3 * PAGE]; errno = 0;
    printf("pread: %zd", pread(file, buffer, sizeof buffer, 0)); printf(" %s\n", errno ? strerrorname_np(errno) : "");
    errno = 0; printf("pread behind: %zd", pread(file, buffer, sizeof buffer, 5 * PAGE)); printf(" %s\n", errno ? strerrorname_np(errno) : "");
    errno = 0; printf("pwrite: %zd", pwrite(file, buffer, PAGE, 0)); printf(" %s\n", errno ? strerrorname_np(errno) : "");
    errno = 0; printf("pwrite across: %zd", pwrite(file, buffer, 2 * PAGE, 0)); printf(" %s\n", errno ? strerrorname_np(errno) : "");
    struct stat facts; fstat(file, &facts);
    printf("blocks %ld\n", (long)facts.st_blocks);
    child(read_child, at);
    errno = 0; printf("punched: %d\n", fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE));
    touch("read", at, 0), touch("other", other, 0), touch("own", own, 0);
    printf("shorter: %d\n", ftruncate(file, PAGE));
    printf("longer: %d\n", ftruncate(file, 8 * PAGE));
    touch("read", at + PAGE, 0), touch("own", own + PAGE, 0);
    corrupted("shared");
    close(file);
}
static void large(void) {
    puts("-- large folios");
    char *at = aligned(HUGE);
    madvise(at, HUGE, MADV_HUGEPAGE);
    memset(at, 1, HUGE);
    printf("huge %ld\n", smaps(at, "AnonHugePages"));
    advise("one page", at + 7 * PAGE, PAGE, MADV_HWPOISON);
    touch("it", at + 7 * PAGE, 0), touch("before", at + 6 * PAGE, 0), touch("behind", at + 8 * PAGE, 1);
    printf("huge %ld\n", smaps(at, "AnonHugePages"));
    corrupted("large");
    at = aligned(HUGE);
    madvise(at, HUGE, MADV_HUGEPAGE);
    memset(at, 1, HUGE);
    child(advise_child, at);
    touch("parent", at, 0), touch("parent's next", at + PAGE, 0);
    corrupted("large, forked");
}
static void retired(void) {
    puts("-- retired");
    char *at = map(8 * PAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    memset(at, 1, 8 * PAGE);
    at[0] = 9;
    advise("one page", at, PAGE, MADV_SOFT_OFFLINE);
    touch("it", at, 0);
    corrupted("one page");
    advise("all", at, 8 * PAGE, MADV_SOFT_OFFLINE);
    touch("the last", at + 7 * PAGE, 0);
    corrupted("eight");
    int file = memfd_create("file", 0);
    if (ftruncate(file, 8 * PAGE)) exit(1);
    at = map(8 * PAGE, MAP_SHARED, file);
    at[0] = 3;
    advise("shared", at, PAGE, MADV_SOFT_OFFLINE);
    touch("it", at, 0);
    corrupted("shared");
    at = aligned(HUGE);
    madvise(at, HUGE, MADV_HUGEPAGE);
    memset(at, 4, HUGE);
    advise("of a large folio", at + 9 * PAGE, PAGE, MADV_SOFT_OFFLINE);
    touch("it", at + 9 * PAGE, 0);
    corrupted("large");
    advise("not touched", map(PAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1), PAGE, MADV_SOFT_OFFLINE);
    corrupted("not touched");
}
static void set(const char *name, const char *word) {
    FILE *file = fopen(name, "w");
    if (file) fprintf(file, "%s\n", word), fclose(file);
}
static void counters(const char *what) {
    printf("%s: total %ld free %ld reserved %ld surplus %ld\n", what, meminfo("HugePages_Total"), meminfo("HugePages_Free"), meminfo("HugePages_Rsvd"), meminfo("HugePages_Surp"));
}
static void huge(void) {
    puts("-- huge pages");
    set("/proc/sys/vm/nr_hugepages", "8"); counters("begin");
    char *at = map(2 * HUGE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1);
    memset(at, 1, 2 * HUGE);
    advise("one page", at + 3 * PAGE, PAGE, MADV_HWPOISON);
    touch("it", at + 3 * PAGE, 0), touch("its beginning", at, 0), touch("the next", at + HUGE, 0);
    corrupted("huge"); counters("broken");
    child(read_child, at);
    munmap(at, 2 * HUGE); counters("unmapped");
    at = map(HUGE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1);
    memset(at, 1, HUGE);
    child(advise_child, at);
    touch("parent", at, 0);
    counters("forked");
    munmap(at, HUGE);
    counters("unmapped");
    int file = memfd_create("huge", MFD_HUGETLB);
    if (ftruncate(file, 3 * HUGE)) exit(1);
    at = map(3 * HUGE, MAP_SHARED, file);
    char *own = map(3 * HUGE, MAP_PRIVATE, file);
    memset(at, 2, 3 * HUGE);
    touch("own", own, 0);
    advise("of a file", at + 5 * PAGE, PAGE, MADV_HWPOISON);
    touch("it", at + 5 * PAGE, 0), touch("its beginning", at, 0), touch("own", own, 0), touch("the next", at + HUGE, 0);
    counters("file");
    char buffer[8 * PAGE];
    for (int nth = 0; nth < 12; nth += 4) {
        errno = 0;
        long got = pread(file, buffer, 4 * PAGE, nth * PAGE);
        printf("read from page %d: %ld %s\n", nth, got, got < 0 ? strerrorname_np(errno) : "");
    }
    printf("from the broken one: %ld", (long)pread(file, buffer, PAGE, 5 * PAGE));
    printf(", within it: %ld", (long)pread(file, buffer, 10, 5 * PAGE + 100));
    printf(", up to it: %ld", (long)pread(file, buffer, PAGE, 5 * PAGE - 100));
    printf(", behind it: %ld\n", (long)pread(file, buffer, PAGE, 6 * PAGE));
    // What Linux counts from here on has the lost page in its total.
    munmap(at, 3 * HUGE), munmap(own, 3 * HUGE);
    close(file);
}
static void leave_child(char *at) {
    advise("child", at + PAGE, PAGE, MADV_SOFT_OFFLINE);
    touch("child", at, 0);
}
static void leaving(void) {
    puts("-- huge pages that are about to break");
    set("/proc/sys/vm/nr_hugepages", "0"), set("/proc/sys/vm/nr_hugepages", "8"); counters("begin");
    char *at = map(2 * HUGE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1);
    memset(at, 1, 2 * HUGE);
    advise("one page", at + 3 * PAGE, PAGE, MADV_SOFT_OFFLINE);
    touch("it", at + 3 * PAGE, 0), touch("the next", at + HUGE, 0);
    corrupted("huge"); counters("moved");
    child(leave_child, at);
    touch("parent", at, 0);
    counters("forked");
    munmap(at, 2 * HUGE); counters("unmapped");
    int file = memfd_create("huge", MFD_HUGETLB);
    if (ftruncate(file, 2 * HUGE)) exit(1);
    at = map(2 * HUGE, MAP_SHARED, file);
    char *own = map(2 * HUGE, MAP_PRIVATE, file);
    memset(at, 2, 2 * HUGE);
    touch("own", own, 0);
    advise("of a file", at + HUGE, PAGE, MADV_SOFT_OFFLINE);
    advise("both", at, 2 * HUGE, MADV_SOFT_OFFLINE);
    at[0] = 3;
    touch("it", at, 0), touch("own", own, 0), touch("the next", at + HUGE, 0);
    touch("own", own, 1), touch("it", at, 0);
    counters("file");
    set("/proc/sys/vm/enable_soft_offline", "0");
    advise("switched off", at, PAGE, MADV_SOFT_OFFLINE);
    advise("of nothing", at, 0, MADV_SOFT_OFFLINE);
    set("/proc/sys/vm/enable_soft_offline", "1");
    counters("off");
    munmap(at, 2 * HUGE), munmap(own, 2 * HUGE);
    close(file);
    counters("end");
}

int main(void) {
    struct sigaction action = {.sa_sigaction = bus, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &action, 0), sigaction(SIGSEGV, &action, 0);
    set("/proc/sys/vm/memory_failure_recovery", "1");
    base_corrupted = meminfo("HardwareCorrupted");
    setvbuf(stdout, 0, _IOLBF, 0);
    own(), forked(), shared(), large(), retired(), leaving(), huge();
    return 0;
}
