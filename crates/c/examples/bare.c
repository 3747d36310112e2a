/*
 * All that a kernel without a library of C defines so that Foliant can be linked: `cargo xtask c`
 * links this file with the library and with nothing else. It is not run.
 */
#include "foliant.h"

void foliant_panic(const char *text) {
    (void)text;
    for (;;) {
    }
}

/* What compilers call by themselves. */
void *memset(void *to, int byte, size_t bytes) {
    for (volatile unsigned char *at = to; bytes > 0; bytes--) *at++ = (unsigned char)byte;
    return to;
}
void *memmove(void *to, const void *from, size_t bytes) {
    volatile unsigned char *target = to;
    const unsigned char *source = from;
    int is_upwards = (uintptr_t)to < (uintptr_t)from;
    for (size_t n = 0; n < bytes; n++) {
        size_t at = is_upwards ? n : bytes - 1 - n;
        target[at] = source[at];
    }
    return to;
}
void *memcpy(void *restrict to, const void *restrict from, size_t bytes) {
    return memmove(to, from, bytes);
}
int memcmp(const void *one, const void *other, size_t bytes) {
    const volatile unsigned char *a = one, *b = other;
    for (; bytes > 0; bytes--, a++, b++) {
        if (*a != *b) return *a < *b ? -1 : 1;
    }
    return 0;
}
int bcmp(const void *one, const void *other, size_t bytes) { return memcmp(one, other, bytes); }
size_t strlen(const char *text) {
    size_t bytes = 0;
    for (const volatile char *at = text; *at != 0; at++) bytes++;
    return bytes;
}

uint64_t start(void);
uint64_t start(void) { return foliant_manager_layout().bytes; }
