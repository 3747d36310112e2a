"""Prints a C file of FUNCTIONS functions over structures, tables and loops; the same one each time."""

FUNCTIONS = 250
state = 12345


def pick(n):
    global state
    state = (state * 1103515245 + 12345) % 2**31
    return state // 65536 % n


print("#include <stdint.h>\n#include <stddef.h>\n#include <string.h>")
for t in range(40):
    fields = "".join(f" uint{8 << pick(4)}_t f{i};" for i in range(4 + pick(12)))
    print(f"struct t{t} {{{fields} struct t{pick(t)} *up; }};" if t else f"struct t0 {{{fields} void *up; }};")
for f in range(FUNCTIONS):
    t = pick(40)
    print(f"__attribute__((noinline)) static uint64_t f{f}(struct t{t} *p, const uint64_t *v, size_t n, uint64_t seed)\n{{")
    print(f"    uint64_t a = seed, b = {pick(30000)}u, table[{8 + pick(56)}] = {{{pick(99)}}};")
    for _ in range(6 + pick(8)):
        kind = pick(6)
        if kind == 0:
            print(f"    for (size_t i = 0; i < n; i++) {{ a += v[i] * {pick(999)}u; b ^= a >> {1 + pick(30)}; table[i % 8] += b; }}")
        elif kind == 1:
            print(f"    if (a % {2 + pick(50)}u == 0) {{ p->f{pick(4)} += (uint8_t)b; b = b * 31 + a; }} else a ^= p->f{pick(4)};")
        elif kind == 2:
            cases = "".join(f" case {c}: a += b << {1 + pick(20)}; break;" for c in range(3 + pick(9)))
            print(f"    switch (b % 16) {{{cases} default: b--; }}")
        elif kind == 3 and f:
            print(f"    a += f{pick(f)}((void *)p, table, 8, b);")
        elif kind == 4:
            print(f"    memcpy(&table[1], &table[0], {8 * (1 + pick(6))}); a ^= table[{pick(8)}];")
        else:
            print(f"    while (b > {100 + pick(900)}u) b = b / {2 + pick(7)}u + (a & {pick(64)}u);")
    print("    return a ^ b ^ table[a % 8];\n}")
print("uint64_t all(void *p, const uint64_t *v, size_t n)\n{\n    uint64_t s = 0;")
for f in range(FUNCTIONS):
    print(f"    s ^= f{f}(p, v, n, s);")
print("    return s;\n}")
