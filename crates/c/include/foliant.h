/*
 * Foliant for kernels and unikernels written in C: the frame allocator, page tables with their
 * flush, and the manager with kernel memory and pools. The page tables are those of x86-64 with
 * four levels.
 *
 * How it is used
 *
 * - The kernel fills a `struct foliant_machine` with functions, and lends memory for each handle:
 *   ask `_layout` how much, then call `_new`. Foliant has no heap and keeps nothing elsewhere.
 * - A call ends with an `enum foliant_status`. It writes its results when that is
 *   `FOLIANT_STATUS_OK`, and else changes nothing unless its comment says how far it came. The last
 *   argument may be null; a `struct foliant_error` there gets the reason in words.
 * - Enums are passed as `uint32_t`, so that a number without a meaning is an error and no more.
 * - No call unwinds. Where one of Foliant's own records contradicts another one, as after memory
 *   was written over, it calls `foliant_panic`, which the kernel defines.
 * - Handles may be used by every CPU at any time. Spares, gathers and errors are the caller's own.
 *
 * What the caller promises, because nobody can check it
 *
 * P1. A pointer is null, or leads to a value of its type that lives through the call. Nothing else
 *     writes to that value meanwhile, and a place for a result is used for nothing else.
 * P2. Memory lent to a `_new` is the handle's: nobody else reads or writes it until no CPU uses
 *     the handle any more. Then it is the caller's again, without a call.
 * P3. The functions of the machine do what their comments say, on every CPU, as long as a handle
 *     that was made with it is used. Ranges given to a manager, and frames lent to page tables, are
 *     memory behind the direct map that nobody else uses.
 * P4. A flush of page tables names every CPU that may have run them, and what a gather holds is
 *     used again only after it.
 *
 * cbindgen makes this file from crates/c.
 */

#ifndef FOLIANT_H
#define FOLIANT_H

#include <stddef.h>
#include <stdint.h>

// Of a run: it mapped nothing.
#define FOLIANT_NOWHERE UINT64_MAX

// Of an area: it may be read.
#define FOLIANT_READ 1

// It may be written.
#define FOLIANT_WRITE 2

// It may be executed.
#define FOLIANT_EXEC 4

// The program asked for large folios.
#define FOLIANT_HUGEPAGE 8

// The program asked for none.
#define FOLIANT_NOHUGEPAGE 16

// A fault below it, within reach, extends it downwards.
#define FOLIANT_GROWS_DOWN 32

// Its pages are huge pages of 2 MiB, out of the pool, which reserves them.
#define FOLIANT_HUGE_2M 64

// Its pages are huge pages of 1 GiB, out of the pool, which reserves them.
#define FOLIANT_HUGE_1G 128

// Its huge pages are not reserved.
#define FOLIANT_NORESERVE 256

// Of a leaf: instruction fetches are allowed.
#define FOLIANT_ATTR_EXEC 1

// Stores are allowed.
#define FOLIANT_ATTR_WRITE 2

// User mode may access it.
#define FOLIANT_ATTR_USER 4

// Device memory: uncached.
#define FOLIANT_ATTR_DEVICE 8

// It was used. Found in leaves; not to be asked for.
#define FOLIANT_ATTR_ACCESSED 32

// It was written through. Found in leaves; not to be asked for.
#define FOLIANT_ATTR_DIRTY 64

// The translation is the same in every address space.
#define FOLIANT_ATTR_GLOBAL 256

// How a call ended. `foliant_status_text` has a sentence for each; the `text` of `foliant_error`
// names the value that was wrong and the way out.
enum foliant_status {
    // As asked.
    FOLIANT_STATUS_OK = 0,
    // A pointer is null that must not be.
    FOLIANT_STATUS_NULL = 1,
    // The pointer leads to no handle of this kind: `_new` has not made it, or it failed.
    FOLIANT_STATUS_HANDLE = 2,
    // The memory lent is too small, or not aligned: ask `_layout`.
    FOLIANT_STATUS_LENT = 3,
    // The machine's table lacks a function, or its numbers are not possible.
    FOLIANT_STATUS_MACHINE = 4,
    // A number stands for nothing: a flag, an order, a level, a kind.
    FOLIANT_STATUS_VALUE = 5,
    // A range is empty, overflows, overlaps another one, or lies outside of what is managed.
    FOLIANT_STATUS_RANGE = 6,
    // An address, a frame or a size is not aligned as it must be.
    FOLIANT_STATUS_MISALIGNED = 7,
    // There is no such CPU.
    FOLIANT_STATUS_CPU = 8,
    // The frame lies in no range of this allocator.
    FOLIANT_STATUS_FOREIGN = 9,
    // The block is free: given back twice, or never taken.
    FOLIANT_STATUS_FREE = 10,
    // The frame is reserved.
    FOLIANT_STATUS_RESERVED = 11,
    // The frame belongs to a block of another order, or to another one.
    FOLIANT_STATUS_WRONG_ORDER = 12,
    // The block is in use, and not by this caller.
    FOLIANT_STATUS_IN_USE = 13,
    // No memory.
    FOLIANT_STATUS_NO_MEMORY = 14,
    // The spare has no frame left for a page table: lend one and go on.
    FOLIANT_STATUS_NEED_TABLE = 15,
    // Something is mapped there already.
    FOLIANT_STATUS_MAPPED = 16,
    // Nothing is mapped there.
    FOLIANT_STATUS_NOT_MAPPED = 17,
    // A leaf reaches over an end of the range.
    FOLIANT_STATUS_STRADDLES = 18,
    // Another call is at work there: ask again.
    FOLIANT_STATUS_BUSY = 19,
    // The gather is full: flush it and go on.
    FOLIANT_STATUS_FULL = 20,
    // The gather holds what is not flushed yet.
    FOLIANT_STATUS_NOT_FLUSHED = 21,
    // There is no such space, or not any more.
    FOLIANT_STATUS_NO_SPACE = 22,
    // A CPU still runs the space.
    FOLIANT_STATUS_RUNNING = 23,
    // The space may not be charged for more, or there are as many of them as there may be.
    FOLIANT_STATUS_LIMIT = 24,
    // No area lies there.
    FOLIANT_STATUS_NO_AREA = 25,
    // No gap of addresses is large enough.
    FOLIANT_STATUS_NO_ROOM = 26,
    // The pool has no huge page for it.
    FOLIANT_STATUS_NO_HUGE_PAGES = 27,
    // The access, or the rights, are not allowed there.
    FOLIANT_STATUS_NO_RIGHT = 28,
    // A guard lies there.
    FOLIANT_STATUS_GUARD = 29,
    // The memory there was reported broken.
    FOLIANT_STATUS_BROKEN = 30,
    // The program is to fill the page.
    FOLIANT_STATUS_USERFAULT = 31,
    // A huge page of a pool lies there, with which this is not done.
    FOLIANT_STATUS_HUGE = 32,
    // The range of kernel memory was given back already.
    FOLIANT_STATUS_FREED = 33,
    // The range of kernel memory is of another kind, or begins elsewhere.
    FOLIANT_STATUS_WRONG_AREA = 34,
    // Nothing of this name is counted.
    FOLIANT_STATUS_NO_COUNTER = 35,
};

// Which translations are meant.
enum foliant_translations {
    // Those of the user half that were cached through the user root `root`, whether or not the CPU
    // runs it now.
    FOLIANT_TRANSLATIONS_SPACE = 0,
    // Those of the kernel half, global ones included, whichever root they were cached through.
    FOLIANT_TRANSLATIONS_KERNEL = 1,
};

// The owner that frames have, for a table that wants to watch.
enum foliant_owner {
    // The allocator: no CPU may reach the frames.
    FOLIANT_OWNER_FREE = 0,
    // Allocated, and not yet put to its use.
    FOLIANT_OWNER_CLAIMED = 1,
    // Page tables.
    FOLIANT_OWNER_TABLE = 2,
    // The manager's own records.
    FOLIANT_OWNER_RECORDS = 3,
    // Set aside in a pool.
    FOLIANT_OWNER_KEPT = 4,
    // Memory of spaces.
    FOLIANT_OWNER_USER = 5,
    // Kernel memory.
    FOLIANT_OWNER_KERNEL = 6,
    // Zeros that spaces share.
    FOLIANT_OWNER_ZERO = 7,
    // The embedder's.
    FOLIANT_OWNER_RESERVED = 8,
};

// Why a resize stopped.
enum foliant_pool_end {
    // The pool has the size asked for.
    FOLIANT_POOL_END_REACHED = 0,
    // There is no memory for more.
    FOLIANT_POOL_END_NO_MEMORY = 1,
    // Another caller asked for another size meanwhile.
    FOLIANT_POOL_END_SUPERSEDED = 2,
};

// What a fault did.
enum foliant_fault_end {
    // A new folio is mapped.
    FOLIANT_FAULT_END_MAPPED = 0,
    // Zeros that spaces share are mapped, to be read.
    FOLIANT_FAULT_END_ZERO_PAGE = 1,
    // A page was copied.
    FOLIANT_FAULT_END_COPIED = 2,
    // The page had no other owner left and is writable again.
    FOLIANT_FAULT_END_REUSED = 3,
    // The access was possible already.
    FOLIANT_FAULT_END_SPURIOUS = 4,
};

// The kind of memory that a small block is for. Kinds lie in blocks of 2 MiB of their own while
// memory is plenty.
enum foliant_class {
    // Its content can be moved elsewhere.
    FOLIANT_CLASS_MOVABLE = 0,
    // It stays where it is.
    FOLIANT_CLASS_UNMOVABLE = 1,
    // Page tables.
    FOLIANT_CLASS_TABLE = 2,
};

// The level of a page-table entry.
enum foliant_leaf {
    // 4 KiB.
    FOLIANT_LEAF_SIZE_4K = 0,
    // 2 MiB.
    FOLIANT_LEAF_SIZE_2M = 1,
    // 1 GiB.
    FOLIANT_LEAF_SIZE_1G = 2,
};

// Which half of the address space.
enum foliant_half {
    // Addresses from 0 up.
    FOLIANT_HALF_USER = 0,
    // Addresses up to 2^64 - 1.
    FOLIANT_HALF_KERNEL = 1,
};

// Which tables go when they have become empty.
enum foliant_prune {
    // None: the range will be mapped again.
    FOLIANT_PRUNE_KEEP = 0,
    // Those that do not hang in the top table.
    FOLIANT_PRUNE_EMPTIED = 1,
    // Those too: the tables are torn down.
    FOLIANT_PRUNE_ALL = 2,
};

// What an access wants to do.
enum foliant_access {
    // Read.
    FOLIANT_ACCESS_READ = 0,
    // Write.
    FOLIANT_ACCESS_WRITE = 1,
    // Fetch an instruction.
    FOLIANT_ACCESS_EXECUTE = 2,
};

// Where a new area goes.
enum foliant_place {
    // Anywhere: the highest gap that fits.
    FOLIANT_PLACE_ANYWHERE = 0,
    // At `va` if it is free, else anywhere.
    FOLIANT_PLACE_HINT = 1,
    // At `va`; what lies there is unmapped first.
    FOLIANT_PLACE_FIXED = 2,
    // At `va`, or not at all.
    FOLIANT_PLACE_NO_REPLACE = 3,
};

// What is said of a range of a space. The meanings are those of Linux's `madvise`.
enum foliant_advice {
    // Large folios are welcome.
    FOLIANT_ADVICE_HUGE_PAGE = 0,
    // No large folios.
    FOLIANT_ADVICE_NO_HUGE_PAGE = 1,
    // The contents are dropped now; the next touch finds zeros.
    FOLIANT_ADVICE_DONT_NEED = 2,
    // The contents may be dropped.
    FOLIANT_ADVICE_FREE = 3,
    // Every page is made present for reading, as faults would.
    FOLIANT_ADVICE_POPULATE_READ = 4,
    // Every page is made present for writing, as faults would.
    FOLIANT_ADVICE_POPULATE_WRITE = 5,
    // The contents are dropped, and a touch is refused from now on.
    FOLIANT_ADVICE_GUARD_INSTALL = 6,
    // Guards are taken out.
    FOLIANT_ADVICE_GUARD_REMOVE = 7,
    // Missing pages are handed to the program.
    FOLIANT_ADVICE_USERFAULT_ARM = 8,
    // Missing pages are no longer handed to the program.
    FOLIANT_ADVICE_USERFAULT_DISARM = 9,
};

// What stands in a gather.
enum foliant_gather_state {
    // Nothing.
    FOLIANT_GATHER_STATE_EMPTY = 0,
    // What was taken out and may still be cached.
    FOLIANT_GATHER_STATE_PENDING = 1,
    // What was taken out, and no CPU can reach any more.
    FOLIANT_GATHER_STATE_FLUSHED = 2,
};

// An allocator of frames, in lent memory. It touches no frame that it manages.
struct foliant_frames;

// A manager of memory, in lent memory.
struct foliant_manager;

// The page tables of one half, under one top table.
struct foliant_tables;

// Frames of memory: `pages` of 4 KiB from frame number `first` on.
struct foliant_range {
    // The first frame's number: its physical address divided by 4096.
    uint64_t first;
    // How many frames.
    uint64_t pages;
};

// How much memory something needs, and at what alignment.
struct foliant_layout {
    // Bytes.
    uint64_t bytes;
    // A power of two.
    uint64_t align;
};

// Why a call was refused: lent by the caller, for each call or for many. It is written only where
// a call ends with another status than `FOLIANT_STATUS_OK`.
struct foliant_error {
    // What the call returned.
    enum foliant_status status;
    // What was wrong, with the value, and the way out; ends with a null byte. A longer text is
    // cut off.
    char text[252];
};

// One range of translations to end.
struct foliant_item {
    // The first address, a multiple of the level's span.
    uint64_t va;
    // How many bytes, a multiple of it.
    uint64_t bytes;
    // The level of the leaves that were changed (`enum foliant_leaf`), or of the word that
    // named a table: the stride of the invalidations. Leaves of other levels may stay.
    uint32_t level;
    // Not 0: page tables were removed, so cached pointers to tables must go too, of every level.
    uint32_t removed_tables;
};

// What to invalidate: a plain value, to be copied into a mailbox.
struct foliant_invalidation {
    // Which translations are meant.
    enum foliant_translations scope;
    // How many items are listed; with 0 all translations of the scope are meant.
    uint32_t count;
    // The user root of a space.
    uint64_t root;
    // The items.
    struct foliant_item items[16];
};

// A set of CPUs: bit b of word w is CPU 64 * w + b.
struct foliant_cpu_set {
    // The bits.
    uint64_t words[16];
};

// What the machine is asked for: function pointers that the kernel fills in, called with `context`
// in front. A handle that is made with the table copies it.
//
// Every function may be called by any CPU at any time. Those marked *optional* may be null; then
// what their comment says is done.
//
// The rules are those of x86-64: a live entry may be replaced by a store, the walker sets the
// accessed bit before it caches an entry, and a fault ends the translation that caused it.
struct foliant_machine {
    // Passed to every function.
    void *context;
    // How many CPUs there are, 1 to 1024, numbered from 0 without holes.
    uint32_t cpus;
    // Up to how many entries single invalidations are cheaper than one full flush; 33 is a good
    // start.
    uint32_t ceiling_entries;
    // Where `bytes` from the physical address `pa` on are in the direct map: the same address each
    // time, never null, writable on every CPU whatever tables it runs.
    void *(*reach)(void *context, uint64_t pa, uint64_t bytes);
    // Optional: reads the page-table word at `pa`, as an atomic acquire. Null: by `reach`.
    uint64_t (*load)(void *context, uint64_t pa);
    // Optional: writes it, as an atomic release. Null: by `reach`.
    void (*store)(void *context, uint64_t pa, uint64_t word);
    // Optional: replaces it if it is `old`, atomically and never failing spuriously; returns what
    // it was. Null: by `reach`.
    uint64_t (*compare_exchange)(void *context, uint64_t pa, uint64_t old, uint64_t next);
    // Optional: clears `bytes`, a multiple of 64. With `used_soon` 0 they are not used soon and
    // should not be left in the caches. A CPU that sees a later `store` sees the zeros. Null: by
    // `reach`.
    void (*clear)(void *context, uint64_t pa, uint64_t bytes, uint32_t used_soon);
    // Optional: copies `bytes`, a multiple of 64; the source may change meanwhile. Null: by
    // `reach`.
    void (*copy)(void *context, uint64_t from, uint64_t to, uint64_t bytes);
    // Optional: reads the word at the kernel address `va`, through the translation of the calling
    // CPU, as an atomic acquire. Returns 0; another value says that nothing is mapped there, which
    // ends in `foliant_panic`. Null: the access itself is made.
    uint32_t (*kernel_load)(void *context, uint64_t va, uint64_t *word);
    // Optional: writes it, as an atomic release. Returns and null as for `kernel_load`.
    uint32_t (*kernel_store)(void *context, uint64_t va, uint64_t word);
    // Optional: replaces it if it is `old`, and says in `found` what it was. Returns and null as
    // for `kernel_load`.
    uint32_t (*kernel_compare_exchange)(void *context,
                                        uint64_t va,
                                        uint64_t old,
                                        uint64_t next,
                                        uint64_t *found);
    // Makes the calling CPU run the tables at `user`, whose upper half repeats the words of the
    // table at `kernel` (CR3 on x86-64). With `unchanged` 0 nothing that the CPU cached before
    // through this root is used any more, but for global translations; with 1 all of it may be. A
    // machine without tags ends it either way.
    void (*activate)(void *context, uint64_t user, uint64_t kernel, uint32_t unchanged);
    // Ends translations on the calling CPU; when it returns no covered one is used any more.
    void (*invalidate)(void *context, const struct foliant_invalidation *what);
    // Asks every CPU in `cpus` but the calling one to do the same, and returns at once with a
    // ticket. Stores made before are seen by walks that an asked CPU begins after.
    uint64_t (*ask)(void *context,
                    const struct foliant_cpu_set *cpus,
                    const struct foliant_invalidation *what);
    // Returns when every asked CPU is done. Meanwhile the calling CPU carries out what others ask
    // of it.
    void (*wait)(void *context, uint64_t ticket);
    // The number of the CPU that runs the caller.
    uint32_t (*me)(void *context);
    // From here to `unpin` the caller stays on its CPU, whose number is returned. It may nest.
    uint32_t (*pin)(void *context);
    // Ends one `pin`.
    void (*unpin)(void *context);
    // Called in every spin loop: carries out what other CPUs ask of this one.
    void (*relax)(void *context);
    // Nanoseconds since some fixed time; never runs backwards on one CPU.
    uint64_t (*now)(void *context);
    // A point where long work lets others run. The caller holds no lock and is not pinned; a task
    // that yields runs again after a while, however often others yield.
    void (*yield_now)(void *context);
    // Optional: `pages` frames from number `first` on have another owner from now on.
    void (*owned)(void *context, uint64_t first, uint64_t pages, enum foliant_owner owner);
    // Optional: a range of kernel addresses was given back; with `purged` 0 CPUs may still have
    // translations of it cached, with 1 none has.
    void (*retired)(void *context, uint64_t va, uint64_t bytes, uint32_t purged);
    // Optional: asked before each allocation; a value other than 0 makes it fail, for tests.
    uint32_t (*refuse)(void *context);
};

// What a manager starts with. All zeros, but for `memory`, is a good start: pages of 4 KiB, no
// pools, nothing reserved.
struct foliant_setup {
    // The memory to manage: up to 64 ranges that do not overlap.
    const struct foliant_range *memory;
    // How many ranges.
    size_t memory_count;
    // Parts of it that are in use already: the kernel's image, boot modules, the memory lent to
    // this manager.
    const struct foliant_range *reserved;
    // How many; up to 64.
    size_t reserved_count;
    // The physical address of the top table that the kernel runs already, or 0. The manager's
    // tables repeat its words of the kernel half, so its direct map goes on there. Descriptors lie
    // at the start of the half, where it must have none.
    uint64_t kernel_top;
    // Kernel addresses for `foliant_vmalloc`: whole spans of 512 GiB. With 0 bytes they are put
    // behind the descriptors.
    uint64_t vmalloc_va;
    // How many bytes of them.
    uint64_t vmalloc_bytes;
    // Sizes of folios that every area gets: bit n for order n, from 2 (16 KiB) to 9 (2 MiB).
    uint32_t sizes_always;
    // Sizes for areas with `FOLIANT_HUGEPAGE`, as bits.
    uint32_t sizes_asked;
    // Not 0: all memory that is not reserved holds zeros.
    uint32_t is_zeroed;
    // Not 0: huge pages give the frames of their descriptors back.
    uint32_t is_folding;
    // Huge pages of 2 MiB for the pool, as many as there are blocks for.
    uint64_t pages_2m;
    // Huge pages of 1 GiB.
    uint64_t pages_1g;
    // How many areas a space may have; 0 stands for 65,531.
    uint64_t areas_max;
};

// Where the frames are.
struct foliant_memory {
    // Frames that are managed, free and not.
    uint64_t managed;
    // Free ones.
    uint64_t free;
    // In anonymous folios, mapped or not.
    uint64_t anonymous;
};

// How far a resize came.
struct foliant_resized {
    // Pages that there are now; surplus ones are not counted.
    uint64_t reached;
    // Why it stopped.
    enum foliant_pool_end end;
};

// The counts of a pool.
struct foliant_pool {
    // Pages, free and in use, surplus included.
    uint64_t pages;
    // Pages that nobody uses.
    uint64_t free;
    // Pages reserved and not yet taken.
    uint64_t reserved;
    // Pages beyond the size that was asked for.
    uint64_t surplus;
};

// The name of an address space: plain numbers, to be copied as they are. The name of a space that
// has ended is refused. All zeros names none.
struct foliant_space {
    // The frame of its record, unique among living spaces.
    uint64_t frame;
    // What tells it from those that had the frame before.
    uint32_t stamp;
};

// A request for an area.
struct foliant_map_request {
    // The address, as `place` says; else it is not looked at.
    uint64_t va;
    // How many bytes; rounded up to pages.
    uint64_t bytes;
    // Where it goes (`enum foliant_place`).
    uint32_t place;
    // Rights and wishes (`FOLIANT_READ` and those beside it).
    uint32_t flags;
    // A word of the kernel's: areas that touch become one only where it is equal.
    uint64_t tag;
};

// What a fault did, and how large it is.
struct foliant_fault {
    // What it did.
    enum foliant_fault_end end;
    // The order of what is mapped; 0 where nothing is new.
    uint32_t order;
};

// What a space takes of memory.
struct foliant_charge {
    // Pages that it maps, one per entry of 4 KiB.
    uint64_t pages;
    // Frames of page tables and records that it causes.
    uint64_t records;
};

// Frames that an operation may turn into page tables. All zeros is an empty one. What is left in
// it is the caller's.
struct foliant_spare {
    // How many there are.
    uint32_t count;
    // Their numbers; each is cleared, and nobody uses it.
    uint64_t frames[8];
};

// Consecutive leaves of one level that were taken out, and that mapped consecutive blocks alike.
struct foliant_run {
    // The first address.
    uint64_t va;
    // The physical address behind it; `FOLIANT_NOWHERE` where the word mapped nothing and was not
    // 0.
    uint64_t pa;
    // How many leaves.
    uint32_t count;
    // Their level (`enum foliant_leaf`).
    uint32_t level;
    // `FOLIANT_ATTR_*`; accessed and dirty where any of them was.
    uint32_t attrs;
};

// What an unmap took out: the caller flushes it, and then the frames are free to be used again.
// All zeros is an empty one.
struct foliant_gather {
    // `enum foliant_gather_state`; written by `foliant_tables_unmap` and `foliant_tables_flush`.
    uint32_t state;
    // How many runs.
    uint32_t run_count;
    // How many page tables.
    uint32_t table_count;
    // The runs.
    struct foliant_run runs[32];
    // The frames of page tables that became empty and were removed.
    uint64_t tables[32];
};

// The word that translates an address.
struct foliant_translation {
    // The physical address that it is translated to.
    uint64_t pa;
    // The first address that the leaf maps.
    uint64_t leaf;
    // The leaf's level (`enum foliant_leaf`).
    uint32_t level;
    // `FOLIANT_ATTR_*`.
    uint32_t attrs;
};

// A request for kernel memory. All zeros, but for `bytes`, asks for plain memory by pages of 4
// KiB, with a guard page behind.
struct foliant_vmalloc_request {
    // How many bytes.
    uint64_t bytes;
    // Where it may begin: a multiple of this, a power of two from 4 KiB to 1 GiB; 0 is 4 KiB.
    uint64_t align;
    // The largest leaf that may be used (`enum foliant_leaf`), where the rights are plain.
    uint32_t largest;
    // `FOLIANT_READ` and `FOLIANT_WRITE`, or 0, for plain memory; `FOLIANT_READ` alone, or with
    // `FOLIANT_EXEC`, for constants and code.
    uint32_t rights;
    // Not 0: it is cleared.
    uint32_t is_zeroed;
    // Not 0: nothing is left free behind it.
    uint32_t is_unguarded;
    // A word of the kernel's for listings: the caller's address, as a rule.
    uint64_t caller;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// What a status means: a constant text, also for numbers that are none.
const char *foliant_status_text(uint32_t status);

// How much memory an allocator of these ranges needs: some 205 bytes for each 2 MiB.
//
// # Safety
// P1, for `count` ranges from `ranges` on too.
enum foliant_status foliant_frames_layout(const struct foliant_range *ranges,
                                          size_t count,
                                          uint32_t cpus,
                                          struct foliant_layout *layout,
                                          struct foliant_error *error);

// Makes an allocator in `memory`, which is lent for as long as the allocator is used and may hold
// anything. All frames of the ranges are free. The memory must not lie in frames that are still to
// be allocated: reserve those.
//
// # Safety
// P1 and P2: `bytes` from `memory` on are the allocator's from here on.
enum foliant_status foliant_frames_new(void *memory,
                                       uint64_t bytes,
                                       const struct foliant_range *ranges,
                                       size_t count,
                                       uint32_t cpus,
                                       const struct foliant_frames **frames,
                                       struct foliant_error *error);

// Takes a block of `order` (0 is 4 KiB, 9 is 2 MiB, 18 is 1 GiB), naturally aligned, for a kind of
// memory (`enum foliant_class`). Gives the number of its first frame.
enum foliant_status foliant_frames_alloc(const struct foliant_frames *frames,
                                         uint32_t cpu,
                                         uint32_t order,
                                         uint32_t kind,
                                         uint64_t *frame,
                                         struct foliant_error *error);

// Gives a block back, on any CPU.
enum foliant_status foliant_frames_free(const struct foliant_frames *frames,
                                        uint32_t cpu,
                                        uint64_t frame,
                                        uint32_t order,
                                        struct foliant_error *error);

// Makes blocks of order `into` of one block: each is given back for itself.
enum foliant_status foliant_frames_split(const struct foliant_frames *frames,
                                         uint64_t frame,
                                         uint32_t order,
                                         uint32_t into,
                                         struct foliant_error *error);

// Takes frames out for good: those of the kernel's image, of the lent memory, broken ones. All
// must be free.
enum foliant_status foliant_frames_reserve(const struct foliant_frames *frames,
                                           struct foliant_range range,
                                           struct foliant_error *error);

// How many frames are free. Reads one word for each 2 MiB of memory, and 16 more where the 2 MiB
// are partly used.
enum foliant_status foliant_frames_count(const struct foliant_frames *frames,
                                         uint64_t *free,
                                         struct foliant_error *error);

// Gives up the blocks that a CPU prefers, so that others find them: for a CPU that goes idle or
// away.
enum foliant_status foliant_frames_drain(const struct foliant_frames *frames,
                                         uint32_t cpu,
                                         struct foliant_error *error);

// How much memory a manager needs for its handle. Its records lie in the memory that it manages.
struct foliant_layout foliant_manager_layout(void);

// Makes a manager in `memory`, which is lent for as long as the manager is used. Its records take
// about 1/8000 of the managed memory at once, and descriptors 1/64 of what is used. The calling
// CPU is made ready; every other CPU calls `foliant_manager_online` before anything else.
// The call itself takes up to 96 KiB of stack, as the manager is built there first.
//
// # Safety
// P1 to P3, for the ranges of the setup too.
enum foliant_status foliant_manager_new(void *memory,
                                        uint64_t bytes,
                                        const struct foliant_machine *machine,
                                        const struct foliant_setup *setup,
                                        const struct foliant_manager **manager,
                                        struct foliant_error *error);

// Makes the calling CPU ready: it runs the kernel's tables, and no space. Before, it may use only
// those kernel addresses that nobody gives back.
enum foliant_status foliant_manager_online(const struct foliant_manager *manager,
                                           struct foliant_error *error);

// Gives up the blocks that a CPU prefers, so that others find them: for a CPU that goes idle or
// away. One that goes away runs no space (`foliant_space_switch`), and still carries out what it
// is asked about kernel addresses, or is stopped for good: then the table's `ask` leaves it out.
enum foliant_status foliant_manager_drain(const struct foliant_manager *manager,
                                          uint32_t cpu,
                                          struct foliant_error *error);

// Takes a block for the kernel's own use: stacks, per-CPU data, a heap. It keeps its former
// contents.
enum foliant_status foliant_manager_lend(const struct foliant_manager *manager,
                                         uint32_t order,
                                         uint64_t *frame,
                                         struct foliant_error *error);

// Takes a lent block back. The caller has ended all mappings of it, and flushed them everywhere.
enum foliant_status foliant_manager_take_back(const struct foliant_manager *manager,
                                              uint64_t frame,
                                              uint32_t order,
                                              struct foliant_error *error);

// Where the frames are. Reads one word for each 2 MiB of memory, and 16 more where the 2 MiB are
// partly used.
enum foliant_status foliant_manager_memory(const struct foliant_manager *manager,
                                           struct foliant_memory *memory,
                                           struct foliant_error *error);

// How often something was counted, on all CPUs, by its name: `pgfault`, `nr_tlb_remote_flush`.
// Names that Linux has in `vmstat` mean the same here.
//
// # Safety
// P1, and `name` ends with a null byte.
enum foliant_status foliant_manager_count(const struct foliant_manager *manager,
                                          const char *name,
                                          uint64_t *count,
                                          struct foliant_error *error);

// The `nth` name of what is counted, from 0 on, in the `text` of `name`; ends with
// `FOLIANT_STATUS_NO_COUNTER` behind the last.
enum foliant_status foliant_count_name(uint32_t nth, struct foliant_error *name);

// Defined by the kernel: a record of Foliant's contradicts another one, which `text` says. It
// does not return; if it does, it is called again.
extern void foliant_panic(const char *text);

// Makes the pool of `order` (9 or 18) have `want` pages, as far as memory goes. Pages in use
// cannot be given up: they become surplus, and go when they come back.
enum foliant_status foliant_pool_resize(const struct foliant_manager *manager,
                                        uint32_t order,
                                        uint64_t want,
                                        struct foliant_resized *resized,
                                        struct foliant_error *error);

// The counts of the pool of `order` (9 or 18).
enum foliant_status foliant_pool_counters(const struct foliant_manager *manager,
                                          uint32_t order,
                                          struct foliant_pool *pool,
                                          struct foliant_error *error);

// Makes an empty space. Its charge may not exceed `limit` pages; 0 stands for no limit.
enum foliant_status foliant_space_create(const struct foliant_manager *manager,
                                         uint64_t limit,
                                         struct foliant_space *space,
                                         struct foliant_error *error);

// Makes a second space with the same areas and pages; a page is copied when either side writes it.
enum foliant_status foliant_space_fork(const struct foliant_manager *manager,
                                       struct foliant_space parent,
                                       struct foliant_space *child,
                                       struct foliant_error *error);

// Ends a space. No CPU may run it.
enum foliant_status foliant_space_end(const struct foliant_manager *manager,
                                      struct foliant_space space,
                                      struct foliant_error *error);

// Makes the calling CPU run a space, or with all zeros the kernel's tables alone.
enum foliant_status foliant_space_switch(const struct foliant_manager *manager,
                                         struct foliant_space space,
                                         struct foliant_error *error);

// Puts an area into a space, and gives its first address. Nothing is present in it yet.
enum foliant_status foliant_space_map(const struct foliant_manager *manager,
                                      struct foliant_space space,
                                      const struct foliant_map_request *request,
                                      uint64_t *va,
                                      struct foliant_error *error);

// Takes everything out of a range. Holes are skipped. When it returns no CPU reaches the memory
// any more.
enum foliant_status foliant_space_unmap(const struct foliant_manager *manager,
                                        struct foliant_space space,
                                        uint64_t va,
                                        uint64_t bytes,
                                        struct foliant_error *error);

// Gives a range other rights: `FOLIANT_READ`, `FOLIANT_WRITE`, `FOLIANT_EXEC`, or 0.
enum foliant_status foliant_space_protect(const struct foliant_manager *manager,
                                          struct foliant_space space,
                                          uint64_t va,
                                          uint64_t bytes,
                                          uint32_t rights,
                                          struct foliant_error *error);

// Takes advice (`enum foliant_advice`) about a range. Of guards for which memory runs out half
// way, and of pages that are made present, those that are done stay.
enum foliant_status foliant_space_advise(const struct foliant_manager *manager,
                                         struct foliant_space space,
                                         uint64_t va,
                                         uint64_t bytes,
                                         uint32_t advice,
                                         struct foliant_error *error);

// Handles a page fault of a program: an access (`enum foliant_access`) to `va`. With
// `FOLIANT_STATUS_OK` the access is to be made again, and `done`, which may be null, says what was
// done; any other status is the program's death, or for `FOLIANT_STATUS_USERFAULT` its own to fill
// the page.
enum foliant_status foliant_space_fault(const struct foliant_manager *manager,
                                        struct foliant_space space,
                                        uint64_t va,
                                        uint32_t access,
                                        struct foliant_fault *done,
                                        struct foliant_error *error);

// What a space takes of memory.
enum foliant_status foliant_space_charge(const struct foliant_manager *manager,
                                         struct foliant_space space,
                                         struct foliant_charge *charge,
                                         struct foliant_error *error);

// The frame of a folio that a space has at `va`, at this moment; shared zeros are none.
enum foliant_status foliant_space_frame(const struct foliant_manager *manager,
                                        struct foliant_space space,
                                        uint64_t va,
                                        uint64_t *frame,
                                        struct foliant_error *error);

// How much memory a handle of page tables needs.
struct foliant_layout foliant_tables_layout(void);

// Makes new page tables for a half (`enum foliant_half`). `root` is the physical address of a
// frame that is lent as the top table, and cleared here.
//
// # Safety
// P1 to P3.
enum foliant_status foliant_tables_new(void *memory,
                                       uint64_t bytes,
                                       const struct foliant_machine *machine,
                                       uint64_t root,
                                       uint32_t half,
                                       const struct foliant_tables **tables,
                                       struct foliant_error *error);

// A handle of page tables that exist: those that the kernel booted with, or that another handle
// made. Bit 9 of words that lead to tables must be 0: it is the lock.
//
// # Safety
// P1 to P3, and the tables are of the format, in frames behind the direct map.
enum foliant_status foliant_tables_adopt(void *memory,
                                         uint64_t bytes,
                                         const struct foliant_machine *machine,
                                         uint64_t root,
                                         uint32_t half,
                                         const struct foliant_tables **tables,
                                         struct foliant_error *error);

// Puts a frame into a spare: it is cleared here, and is a page table once an operation took it.
//
// # Safety
// P1, and the frame is memory behind the direct map that nobody else uses (P3).
enum foliant_status foliant_spare_lend(const struct foliant_tables *tables,
                                       struct foliant_spare *spare,
                                       uint64_t frame,
                                       struct foliant_error *error);

// Maps `bytes` from `va` on to the frames from number `frame` on, with leaves of level `largest`
// (`enum foliant_leaf`) where they fit, smaller ones elsewhere, and with `attrs`
// (`FOLIANT_ATTR_*`). A range in which something is mapped already is refused before any change.
//
// Where the spare has no frame left for a table the call ends with `FOLIANT_STATUS_NEED_TABLE`:
// everything below `*upto` is mapped. Lend a frame and map the rest from there on. Needs no flush.
//
// # Safety
// P1 and P3: the frames of the spare were put in by `foliant_spare_lend`, and what is mapped is
// memory that the code run on these tables may reach.
enum foliant_status foliant_tables_map(const struct foliant_tables *tables,
                                       uint64_t va,
                                       uint64_t bytes,
                                       uint64_t frame,
                                       uint32_t attrs,
                                       uint32_t largest,
                                       struct foliant_spare *spare,
                                       uint64_t *upto,
                                       struct foliant_error *error);

// Takes everything out of `bytes` from `va` on, and page tables that become empty as `prune`
// (`enum foliant_prune`) says. What was there is in the gather afterwards: flush it, and then use
// the frames again. Everything below `*upto` is done; with `FOLIANT_STATUS_FULL` flush and go on
// from there.
enum foliant_status foliant_tables_unmap(const struct foliant_tables *tables,
                                         uint64_t va,
                                         uint64_t bytes,
                                         uint32_t prune,
                                         struct foliant_gather *gather,
                                         uint64_t *upto,
                                         struct foliant_error *error);

// Ends what the CPUs of `cpus`, and the calling one, may have cached of what the gather holds.
// When it returns its frames are the caller's: those of `runs` that were its own, and those of
// `tables` once no `foliant_tables_look_up` that began before is at work.
enum foliant_status foliant_tables_flush(const struct foliant_tables *tables,
                                         const struct foliant_cpu_set *cpus,
                                         struct foliant_gather *gather,
                                         struct foliant_error *error);

// The leaf that translates `va`, or `FOLIANT_STATUS_NOT_MAPPED`. It takes no lock: the leaf may be
// another one by the time that the call returns, and no frame of a removed page table is used
// again while a call is at work that began before the removal.
enum foliant_status foliant_tables_look_up(const struct foliant_tables *tables,
                                           uint64_t va,
                                           struct foliant_translation *translation,
                                           struct foliant_error *error);

// Takes kernel memory, and gives its first address. Where there is no block for a large leaf,
// memory is compacted for a short while, and then smaller leaves are used.
enum foliant_status foliant_vmalloc(const struct foliant_manager *manager,
                                    const struct foliant_vmalloc_request *request,
                                    uint64_t *va,
                                    struct foliant_error *error);

// Gives kernel memory back, by its first address. Its frames are free at once; its addresses may
// be used again after a purge, of which one comes by itself when many are waiting.
enum foliant_status foliant_vfree(const struct foliant_manager *manager,
                                  uint64_t va,
                                  struct foliant_error *error);

// The same from where nothing may be waited for, as an interrupt handler: it is done by the next
// `foliant_vmalloc_purge`.
enum foliant_status foliant_vfree_later(const struct foliant_manager *manager,
                                        uint64_t va,
                                        struct foliant_error *error);

// Makes the addresses of all ranges that were given back usable again, with one flush. `pages`,
// which may be null, says how many they are.
enum foliant_status foliant_vmalloc_purge(const struct foliant_manager *manager,
                                          uint64_t *pages,
                                          struct foliant_error *error);

// Maps a device: `bytes` of registers from the physical address `pa` on, uncached. The address
// given has the offset of `pa` in its page. Memory that the manager has is refused.
enum foliant_status foliant_ioremap(const struct foliant_manager *manager,
                                    uint64_t pa,
                                    uint64_t bytes,
                                    uint64_t caller,
                                    uint64_t *va,
                                    struct foliant_error *error);

// Ends the mapping of a device, by the address that `foliant_ioremap` gave.
enum foliant_status foliant_iounmap(const struct foliant_manager *manager,
                                    uint64_t va,
                                    struct foliant_error *error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FOLIANT_H */
