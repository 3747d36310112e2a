/*
 * A whole kernel in small, in C: two CPUs on memory of malloc, with Foliant in it. It shows the frame
 * allocator alone, page tables with their flush, and the manager with spaces and kernel memory, and
 * it asserts what it shows.
 *
 * `cargo xtask c` builds the library, compiles this file and runs it, under valgrind too where that
 * is installed.
 */
#include "foliant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A check that stays on, and says where it failed. */
#define CHECK(condition)                                                        \
    do {                                                                        \
        if (!(condition)) {                                                     \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);     \
            exit(1);                                                            \
        }                                                                       \
    } while (0)

/* A call that must go well; `why` is the error that it was given. */
#define OK(call)                                                                \
    do {                                                                        \
        if ((call) != FOLIANT_STATUS_OK) {                                      \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, why.text); \
            exit(1);                                                            \
        }                                                                       \
    } while (0)

enum { CPUS = 2, CACHED = 64 };

static const uint64_t PAGE = 4096, MIB = 1 << 20, GIB = 1 << 30, MEMORY = 64 << 20;

/* ---- The machine ---------------------------------------------------------------------------- */

/* A translation that a CPU has cached, until it is told to forget it. */
struct cached {
    uint64_t root, page, pa;
    int is_there, is_writable;
};

struct machine {
    unsigned char *memory;         /* physical address 0 is its first byte */
    uint32_t running;              /* the CPU that runs this program now */
    uint32_t pins;
    uint64_t nanoseconds, tickets;
    uint64_t roots[CPUS];          /* CR3 of each CPU */
    struct cached cache[CPUS][CACHED];
};

static struct foliant_error why;

/* Foliant found its records damaged. */
void foliant_panic(const char *text) {
    fprintf(stderr, "panic: %s\n", text);
    abort();
}

static void *reach(void *context, uint64_t pa, uint64_t bytes) {
    struct machine *m = context;
    CHECK(pa <= MEMORY && bytes <= MEMORY - pa);
    return m->memory + pa;
}

enum { PRESENT = 1, WRITABLE = 2, USER = 4, ACCESSED = 32, DIRTY = 64, LEAF = 128 };

/* What the hardware does: walks from a top table to the leaf, and notes the access in it. */
static int walk(struct machine *m, uint64_t root, uint64_t va, int is_user, int is_write,
                struct cached *found) {
    uint64_t table = root;
    for (int level = 3; level >= 0; level--) {
        unsigned shift = 12 + 9 * (unsigned)level;
        uint64_t *at = reach(m, table + (va >> shift & 511) * 8, 8);
        uint64_t word = __atomic_load_n(at, __ATOMIC_ACQUIRE);
        if (!(word & PRESENT)) return 0;
        uint64_t address = word & UINT64_C(0x000ffffffffff000);
        if (level > 0 && !(word & LEAF)) {
            table = address;
            continue;
        }
        if ((is_user && !(word & USER)) || (is_write && !(word & WRITABLE))) return 0;
        uint64_t noted = ACCESSED | (is_write ? DIRTY : 0);
        uint64_t before = __atomic_fetch_or(at, noted, __ATOMIC_ACQ_REL);
        uint64_t inside = va & ((UINT64_C(1) << shift) - 1);
        *found = (struct cached){
            .root = root, .page = va / PAGE, .pa = (address + inside) / PAGE * PAGE, .is_there = 1,
            /* The first write finds the dirty bit clear, and walks once more. */
            .is_writable = (before & WRITABLE) && ((before | noted) & DIRTY),
        };
        return 1;
    }
    return 0;
}

/* An access of a program, through what the CPU has cached. Where it faults, 0. */
static uint64_t *user(struct machine *m, uint64_t va, int is_write) {
    uint64_t root = m->roots[m->running];
    struct cached *slot = &m->cache[m->running][va / PAGE % CACHED];
    int hits = slot->is_there && slot->root == root && slot->page == va / PAGE;
    if (!hits || (is_write && !slot->is_writable)) {
        slot->is_there = 0; /* a fault ends the translation that caused it */
        if (!walk(m, root, va, 1, is_write, slot)) return NULL;
    }
    return reach(m, slot->pa + va % PAGE, 8);
}

/* The kernel's own accesses walk each time: this machine caches nothing of the kernel half. */
static uint64_t *kernel(struct machine *m, uint64_t va, int is_write) {
    struct cached found;
    if (!walk(m, m->roots[m->running], va, 0, is_write, &found)) return NULL;
    return reach(m, found.pa + va % PAGE, 8);
}
static uint32_t kernel_load(void *context, uint64_t va, uint64_t *word) {
    uint64_t *at = kernel(context, va, 0);
    if (at) *word = __atomic_load_n(at, __ATOMIC_ACQUIRE);
    return at == NULL;
}
static uint32_t kernel_store(void *context, uint64_t va, uint64_t word) {
    uint64_t *at = kernel(context, va, 1);
    if (at) __atomic_store_n(at, word, __ATOMIC_RELEASE);
    return at == NULL;
}
static uint32_t kernel_compare_exchange(void *context, uint64_t va, uint64_t old, uint64_t next,
                                        uint64_t *found) {
    uint64_t *at = kernel(context, va, 1);
    if (at == NULL) return 1;
    __atomic_compare_exchange_n(at, &old, next, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    *found = old;
    return 0;
}

/* Ends cached translations of one CPU. */
static void forget(struct machine *m, uint32_t cpu, const struct foliant_invalidation *what) {
    if (what->scope == FOLIANT_TRANSLATIONS_KERNEL) return; /* none is cached */
    for (int i = 0; i < CACHED; i++) {
        struct cached *slot = &m->cache[cpu][i];
        if (slot->root != what->root) continue;
        if (what->count == 0) slot->is_there = 0;
        for (uint32_t n = 0; n < what->count; n++) {
            uint64_t offset = slot->page * PAGE - what->items[n].va;
            if (offset < what->items[n].bytes) slot->is_there = 0;
        }
    }
}
static void invalidate(void *context, const struct foliant_invalidation *what) {
    struct machine *m = context;
    forget(m, m->running, what);
}
/* The other CPU stands still meanwhile, so what is asked of it is done at once. */
static uint64_t ask(void *context, const struct foliant_cpu_set *cpus,
                    const struct foliant_invalidation *what) {
    struct machine *m = context;
    for (uint32_t cpu = 0; cpu < CPUS; cpu++) {
        if (cpu != m->running && cpus->words[0] >> cpu & 1) forget(m, cpu, what);
    }
    return m->tickets++;
}
static void wait_for(void *context, uint64_t ticket) {
    struct machine *m = context;
    CHECK(ticket < m->tickets);
}
static void activate(void *context, uint64_t root, uint64_t kernel_root, uint32_t unchanged) {
    struct machine *m = context;
    (void)kernel_root; /* the upper half of `root` says the same */
    m->roots[m->running] = root;
    for (int i = 0; i < CACHED && !unchanged; i++) {
        struct cached *slot = &m->cache[m->running][i];
        if (slot->root == root) slot->is_there = 0;
    }
}

static uint32_t me(void *context) { return ((struct machine *)context)->running; }
static uint32_t pin(void *context) {
    struct machine *m = context;
    m->pins++;
    return m->running;
}
static void unpin(void *context) { ((struct machine *)context)->pins--; }
static void relax(void *context) { (void)context; }
static uint64_t now(void *context) { return ((struct machine *)context)->nanoseconds += 100; }
static void yield_now(void *context) {
    struct machine *m = context;
    CHECK(m->pins == 0);
}

/* ---- What is shown --------------------------------------------------------------------------- */

/* Memory for a handle. */
static void *lend(struct foliant_layout layout) {
    uint64_t bytes = (layout.bytes + layout.align - 1) / layout.align * layout.align;
    void *memory = aligned_alloc(layout.align, bytes);
    CHECK(memory != NULL);
    return memory;
}

/* The text of a refusal, printed once. */
static void refused(enum foliant_status status, enum foliant_status wanted, int is_shown) {
    CHECK(status == wanted && why.status == wanted);
    if (is_shown) printf("  refused: %s (%s)\n", why.text, foliant_status_text(status));
}

/* The frame allocator alone. */
static void frames_alone(int is_shown) {
    struct foliant_range ranges[] = {{0x100, 0x40000}, {0x100000, 0x10000}};
    struct foliant_layout layout;
    OK(foliant_frames_layout(ranges, 2, CPUS, &layout, &why));
    void *memory = lend(layout);
    const struct foliant_frames *frames;
    OK(foliant_frames_new(memory, layout.bytes, ranges, 2, CPUS, &frames, &why));

    uint64_t all, left, page, huge;
    OK(foliant_frames_count(frames, &all, &why));
    CHECK(all == 0x50000);
    OK(foliant_frames_alloc(frames, 0, 0, FOLIANT_CLASS_MOVABLE, &page, &why));
    OK(foliant_frames_alloc(frames, 1, 9, FOLIANT_CLASS_MOVABLE, &huge, &why));
    CHECK(huge % 512 == 0);
    OK(foliant_frames_count(frames, &left, &why));
    CHECK(left == all - 1 - 512);

    /* A block becomes smaller ones in place; each is given back for itself, once. */
    OK(foliant_frames_split(frames, huge, 9, 4, &why));
    for (uint64_t part = 0; part < 32; part++) {
        OK(foliant_frames_free(frames, 0, huge + 16 * part, 4, &why));
    }
    refused(foliant_frames_free(frames, 0, huge, 4, &why), FOLIANT_STATUS_FREE, is_shown);

    OK(foliant_frames_free(frames, 1, page, 0, &why));
    OK(foliant_frames_drain(frames, 1, &why));
    OK(foliant_frames_count(frames, &left, &why));
    CHECK(left == all);
    if (is_shown) printf("frames: %llu, all free again\n", (unsigned long long)all);
    free(memory);
}

/* Maps a range, and lends a frame for each page table that is missing. */
static void map_all(const struct foliant_tables *tables, const struct foliant_frames *frames,
                    uint64_t va, uint64_t bytes, uint64_t frame) {
    struct foliant_spare spare = {0};
    uint64_t at = va, table;
    for (;;) {
        enum foliant_status status = foliant_tables_map(
            tables, at, va + bytes - at, frame + (at - va) / PAGE,
            FOLIANT_ATTR_USER | FOLIANT_ATTR_WRITE, FOLIANT_LEAF_SIZE_1G, &spare, &at, &why);
        if (status == FOLIANT_STATUS_OK) break;
        CHECK(status == FOLIANT_STATUS_NEED_TABLE);
        OK(foliant_frames_alloc(frames, 0, 0, FOLIANT_CLASS_TABLE, &table, &why));
        OK(foliant_spare_lend(tables, &spare, table, &why));
    }
    CHECK(at == va + bytes && spare.count == 0);
}

/* Ends what both CPUs have cached of a gather, and gives its tables back. */
static void flush(const struct foliant_tables *tables, const struct foliant_frames *frames,
                  struct foliant_gather *gather) {
    struct foliant_cpu_set both = {.words = {3}};
    OK(foliant_tables_flush(tables, &both, gather, &why));
    CHECK(gather->state == FOLIANT_GATHER_STATE_FLUSHED);
    for (uint32_t n = 0; n < gather->table_count; n++) {
        OK(foliant_frames_free(frames, 0, gather->tables[n], 0, &why));
    }
}

/* Page tables and their flush, with frames of the allocator. */
static void tables_alone(struct machine *m, const struct foliant_machine *table, int is_shown) {
    struct foliant_range range = {0x100, MEMORY / PAGE - 0x100};
    struct foliant_layout layout;
    OK(foliant_frames_layout(&range, 1, CPUS, &layout, &why));
    void *lent = lend(layout);
    const struct foliant_frames *frames;
    OK(foliant_frames_new(lent, layout.bytes, &range, 1, CPUS, &frames, &why));
    uint64_t all, left, root, block, upto;
    OK(foliant_frames_count(frames, &all, &why));
    OK(foliant_frames_alloc(frames, 0, 0, FOLIANT_CLASS_TABLE, &root, &why));
    OK(foliant_frames_alloc(frames, 0, 12, FOLIANT_CLASS_MOVABLE, &block, &why));

    layout = foliant_tables_layout();
    void *handle = lend(layout);
    const struct foliant_tables *tables;
    OK(foliant_tables_new(handle, layout.bytes, table, root * PAGE, FOLIANT_HALF_USER, &tables, &why));

    /* Leaves of every size: 1 GiB, 2 MiB and 4 KiB of one range. Nothing is there to be read. */
    struct foliant_gather gather = {0};
    struct foliant_translation leaf;
    map_all(tables, frames, 8 * GIB, GIB + 2 * MIB + PAGE, GIB / PAGE);
    uint64_t looked_at[] = {8 * GIB + 5, 9 * GIB + 5, 9 * GIB + 2 * MIB + 5};
    for (uint32_t n = 0; n < 3; n++) {
        OK(foliant_tables_look_up(tables, looked_at[n], &leaf, &why));
        CHECK(leaf.level == FOLIANT_LEAF_SIZE_1G - n && leaf.pa == looked_at[n] - 7 * GIB);
        CHECK(leaf.attrs == (FOLIANT_ATTR_USER | FOLIANT_ATTR_WRITE));
    }
    OK(foliant_tables_unmap(tables, 8 * GIB, GIB + 2 * MIB + PAGE, FOLIANT_PRUNE_ALL, &gather, &upto,
                            &why));
    CHECK(gather.run_count == 3 && gather.table_count == 3);
    flush(tables, frames, &gather);

    /* Memory that is there: 8 MiB and 3 pages, which CPU 1 runs and writes to. */
    uint64_t va = GIB, bytes = 8 * MIB + 3 * PAGE;
    map_all(tables, frames, va, bytes, block);
    for (m->running = 0; m->running < CPUS; m->running++) activate(m, root * PAGE, root * PAGE, 0);
    m->running = 1;
    uint64_t last = va + bytes - 8;
    *user(m, va, 1) = 7;
    *user(m, last, 1) = 8;
    CHECK(*(uint64_t *)reach(m, block * PAGE, 8) == 7);
    CHECK(*(uint64_t *)reach(m, block * PAGE + bytes - 8, 8) == 8);
    OK(foliant_tables_look_up(tables, last, &leaf, &why));
    CHECK(leaf.level == FOLIANT_LEAF_SIZE_4K && leaf.pa == block * PAGE + bytes - 8);
    CHECK(leaf.attrs & FOLIANT_ATTR_DIRTY);

    /* Taken out of the tables is not taken out of the caches: CPU 1 still gets through. */
    m->running = 0;
    OK(foliant_tables_unmap(tables, va, bytes, FOLIANT_PRUNE_ALL, &gather, &upto, &why));
    CHECK(upto == va + bytes && gather.run_count == 2 && gather.runs[0].pa == block * PAGE);
    m->running = 1;
    CHECK(user(m, va, 0) != NULL && *user(m, va, 0) == 7);
    m->running = 0;
    refused(foliant_tables_unmap(tables, va, bytes, FOLIANT_PRUNE_ALL, &gather, &upto, &why),
            FOLIANT_STATUS_NOT_FLUSHED, is_shown);
    flush(tables, frames, &gather);
    m->running = 1;
    CHECK(user(m, va, 0) == NULL && user(m, last, 0) == NULL);
    m->running = 0;
    CHECK(foliant_tables_look_up(tables, va, &leaf, NULL) == FOLIANT_STATUS_NOT_MAPPED);

    OK(foliant_frames_free(frames, 0, block, 12, &why));
    OK(foliant_frames_free(frames, 0, root, 0, &why));
    OK(foliant_frames_count(frames, &left, &why));
    CHECK(left == all);
    if (is_shown) printf("tables: leaves of 4 KiB, 2 MiB and 1 GiB, flushed on both CPUs\n");
    free(handle);
    free(lent);
}

/* What a processor does for a program: it stores, and calls the page-fault handler until it can. */
static enum foliant_status store(struct machine *m, const struct foliant_manager *manager,
                                 struct foliant_space space, uint64_t va, uint64_t word) {
    uint64_t *at;
    while ((at = user(m, va, 1)) == NULL) {
        enum foliant_status status =
            foliant_space_fault(manager, space, va, FOLIANT_ACCESS_WRITE, NULL, &why);
        if (status != FOLIANT_STATUS_OK) return status;
    }
    *at = word;
    return FOLIANT_STATUS_OK;
}
static enum foliant_status load(struct machine *m, const struct foliant_manager *manager,
                                struct foliant_space space, uint64_t va, uint64_t *word) {
    uint64_t *at;
    while ((at = user(m, va, 0)) == NULL) {
        enum foliant_status status =
            foliant_space_fault(manager, space, va, FOLIANT_ACCESS_READ, NULL, &why);
        if (status != FOLIANT_STATUS_OK) return status;
    }
    *word = *at;
    return FOLIANT_STATUS_OK;
}

static uint64_t count(const struct foliant_manager *manager, const char *name) {
    uint64_t counted;
    OK(foliant_manager_count(manager, name, &counted, &why));
    return counted;
}

/* Programs: areas, faults, a fork, an unmap that both CPUs hear of. */
static void programs(struct machine *m, const struct foliant_manager *manager, int is_shown) {
    struct foliant_space none = {0}, parent, child;
    OK(foliant_space_create(manager, 0, &parent, &why));
    for (m->running = 0; m->running < CPUS; m->running++) {
        OK(foliant_space_switch(manager, parent, &why));
    }
    m->running = 0;

    uint64_t bytes = 4 * MIB + 64 * 1024, va, word;
    struct foliant_map_request request = {
        .va = GIB, .bytes = bytes, .place = FOLIANT_PLACE_HINT, .flags = FOLIANT_READ | FOLIANT_WRITE,
    };
    OK(foliant_space_map(manager, parent, &request, &va, &why));
    CHECK(va == GIB);

    /* One store, one fault, 512 pages; behind the last whole 2 MiB, 16 pages. */
    uint64_t faults = count(manager, "pgfault"), last = va + bytes - 8;
    OK(store(m, manager, parent, va, 42));
    OK(store(m, manager, parent, last, 43));
    CHECK(count(manager, "pgfault") == faults + 2);
    struct foliant_charge charge;
    OK(foliant_space_charge(manager, parent, &charge, &why));
    CHECK(charge.pages == 512 + 16);
    m->running = 1; /* the other thread sees it, without a fault */
    OK(load(m, manager, parent, va, &word));
    CHECK(word == 42 && count(manager, "pgfault") == faults + 2);
    uint64_t frame;
    OK(foliant_space_frame(manager, parent, va, &frame, &why));
    CHECK(*(uint64_t *)reach(m, frame * PAGE, 8) == 42);

    /* A fork shares every page until either side writes. */
    OK(foliant_space_fork(manager, parent, &child, &why));
    m->running = 0;
    OK(store(m, manager, parent, last, 44));
    m->running = 1;
    OK(foliant_space_switch(manager, child, &why));
    OK(load(m, manager, child, last, &word));
    CHECK(word == 43);
    OK(load(m, manager, child, va, &word));
    CHECK(word == 42);
    refused(foliant_space_end(manager, child, &why), FOLIANT_STATUS_RUNNING, is_shown);
    OK(foliant_space_switch(manager, parent, &why));
    OK(foliant_space_end(manager, child, &why));
    CHECK(foliant_space_end(manager, child, NULL) == FOLIANT_STATUS_NO_SPACE);

    /* Rights, contents, and the end of the memory: one shootdown for all of it. */
    OK(foliant_space_protect(manager, parent, va, PAGE, FOLIANT_READ, &why));
    CHECK(store(m, manager, parent, va, 1) == FOLIANT_STATUS_NO_RIGHT);
    OK(foliant_space_advise(manager, parent, va, bytes, FOLIANT_ADVICE_DONT_NEED, &why));
    OK(load(m, manager, parent, va, &word));
    CHECK(word == 0);
    OK(store(m, manager, parent, last, 45));
    uint64_t shootdowns = count(manager, "nr_tlb_remote_flush");
    m->running = 0;
    OK(foliant_space_unmap(manager, parent, va, bytes, &why));
    CHECK(count(manager, "nr_tlb_remote_flush") == shootdowns + 1);
    m->running = 1;
    CHECK(load(m, manager, parent, last, &word) == FOLIANT_STATUS_NO_AREA);

    for (m->running = 0; m->running < CPUS; m->running++) {
        OK(foliant_space_switch(manager, none, &why));
    }
    m->running = 0;
    OK(foliant_space_end(manager, parent, &why));
    if (is_shown) printf("programs: 528 pages by 2 faults, a fork, 1 shootdown for the unmap\n");
}

/* Kernel memory, a device, and huge pages of a pool. */
static void kernel_memory(struct machine *m, const struct foliant_manager *manager, int is_shown) {
    struct foliant_vmalloc_request request = {
        .bytes = 2 * MIB + 3 * PAGE, .largest = FOLIANT_LEAF_SIZE_2M, .is_zeroed = 1,
    };
    uint64_t va, large = count(manager, "vmap_leaf_2m");
    OK(foliant_vmalloc(manager, &request, &va, &why));
    CHECK(count(manager, "vmap_leaf_2m") == large + 1);
    CHECK(count(manager, "nr_vmalloc_pages") == 512 + 3);
    *kernel(m, va + request.bytes - 8, 1) = 46;
    CHECK(*kernel(m, va, 0) == 0 && *kernel(m, va + request.bytes - 8, 0) == 46);
    refused(foliant_vfree(manager, va + PAGE, &why), FOLIANT_STATUS_WRONG_AREA, is_shown);
    OK(foliant_vfree(manager, va, &why));
    CHECK(kernel(m, va, 0) == NULL);

    uint64_t registers;
    OK(foliant_ioremap(manager, 4 * GIB + 0x10, 0x100, 0, &registers, &why));
    CHECK(registers % PAGE == 0x10);
    CHECK(foliant_ioremap(manager, MIB, 8, 0, &va, NULL) == FOLIANT_STATUS_RANGE);
    OK(foliant_iounmap(manager, registers, &why));
    uint64_t purged;
    OK(foliant_vmalloc_purge(manager, &purged, &why));
    CHECK(purged == 512 + 3 + 1 + 2 && count(manager, "nr_vmalloc_pages") == 0);

    uint64_t stack;
    OK(foliant_manager_lend(manager, 2, &stack, &why));
    memset(reach(m, stack * PAGE, 4 * PAGE), 1, 4 * PAGE);
    OK(foliant_manager_take_back(manager, stack, 2, &why));
    CHECK(foliant_manager_take_back(manager, stack, 2, NULL) == FOLIANT_STATUS_FREE);

    struct foliant_resized resized;
    struct foliant_pool pool;
    OK(foliant_pool_resize(manager, 9, 4, &resized, &why));
    CHECK(resized.reached == 4 && resized.end == FOLIANT_POOL_END_REACHED);
    struct foliant_space space;
    OK(foliant_space_create(manager, 0, &space, &why));
    struct foliant_map_request huge = {
        .bytes = 4 * MIB, .flags = FOLIANT_READ | FOLIANT_WRITE | FOLIANT_HUGE_2M,
    };
    OK(foliant_space_map(manager, space, &huge, &va, &why));
    struct foliant_fault done;
    OK(foliant_space_fault(manager, space, va, FOLIANT_ACCESS_WRITE, &done, &why));
    CHECK(done.end == FOLIANT_FAULT_END_MAPPED && done.order == 9);
    OK(foliant_pool_counters(manager, 9, &pool, &why));
    CHECK(pool.pages == 4 && pool.free == 3 && pool.reserved == 1 && pool.surplus == 0);
    OK(foliant_space_end(manager, space, &why));
    OK(foliant_pool_resize(manager, 9, 0, &resized, &why));
    OK(foliant_pool_counters(manager, 9, &pool, &why));
    CHECK(pool.pages == 0 && pool.free == 0 && pool.reserved == 0);
    if (is_shown) printf("kernel: 2 MiB and 12 KiB by a leaf of each size, a device, a pool\n");
}

int main(void) {
    struct machine m = {.memory = aligned_alloc(2 << 20, MEMORY)};
    CHECK(m.memory != NULL);
    struct foliant_machine table = {
        .context = &m, .cpus = CPUS, .ceiling_entries = 33, .reach = reach,
        .kernel_load = kernel_load, .kernel_store = kernel_store,
        .kernel_compare_exchange = kernel_compare_exchange,
        .activate = activate, .invalidate = invalidate, .ask = ask, .wait = wait_for,
        .me = me, .pin = pin, .unpin = unpin, .relax = relax, .now = now, .yield_now = yield_now,
    };

    frames_alone(1);
    tables_alone(&m, &table, 1);

    /* The manager has all but the first MiB; the kernel's image lies at 2 MiB. */
    struct foliant_range memory = {0x100, MEMORY / PAGE - 0x100}, image = {0x200, 300};
    struct foliant_setup setup = {
        .memory = &memory, .memory_count = 1, .reserved = &image, .reserved_count = 1,
        .sizes_always = 1 << 9 | 1 << 4, /* folios of 2 MiB, and of 64 KiB */
    };
    struct foliant_layout layout = foliant_manager_layout();
    void *lent = lend(layout);
    const struct foliant_manager *manager;
    OK(foliant_manager_new(lent, layout.bytes, &table, &setup, &manager, &why));
    m.running = 1;
    OK(foliant_manager_online(manager, &why));
    m.running = 0;

    /* All of it twice: what the first round makes for good (descriptors, zeros) the second one
     * finds, so it leaves exactly what it found. */
    struct foliant_memory before = {0}, after;
    for (int round = 0; round < 2; round++) {
        OK(foliant_manager_memory(manager, &before, &why));
        programs(&m, manager, round == 0);
        kernel_memory(&m, manager, round == 0);
        OK(foliant_manager_drain(manager, 1, &why));
        OK(foliant_manager_memory(manager, &after, &why));
        CHECK(after.anonymous == 0);
    }
    CHECK(after.free == before.free);
    CHECK(count(manager, "nr_vmalloc_pages") == 0 && m.pins == 0);
    printf("ended: all counts are zero, %llu pages are free\n", (unsigned long long)after.free);
    free(lent);
    free(m.memory);
    return 0;
}
