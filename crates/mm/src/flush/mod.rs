//! The gather: what was taken out of page tables, which CPUs may still reach it, and what may be
//! freed only afterwards.
//!
//! ```text
//!   under the table's lock          after the lock                          after the wait
//!   ───────────────────────         ─────────────────────────────           ─────────────────────
//!   take the word                   invalidate here                         references dropped,
//!   note(range, level, accessed) ─▶ ask the CPUs that may use it   ─wait─▶  tables given back
//!   defer(folio, references)        (nobody, if nothing was accessed)
//! ```
//!
//! Each noted range carries its level, so a 2 MiB leaf is one entry: the ceiling above which
//! everything is flushed counts entries, not 4 KiB pages. Ranges that touch at the same level
//! become one.
//!
//! **Invariants**
//! - F1. A deferred drop is done only after every CPU that may use a translation to the memory
//!   carried the flush out (G1). A CPU that was not asked may still keep one, and never uses it
//!   again (F3).
//! - F2. From the first noted entry until the flush is done the space counts as pending: `started`
//!   is ahead of `finished`. The flush is counted before the table's lock is released, or while the
//!   word is breaking, which is waited for, or, in kernel ranges, while no other call has the area.
//!   Where a table is taken out, it is counted before the word that named the table is empty,
//!   because the table's own lock goes with that word ([`Gather::note_table`]). An operation that
//!   finds an entry absent or read-only under that lock, and wants to conclude that nobody can use
//!   the old one, calls [`Gather::settle`] first (G5).
//! - F3. A CPU is asked only if it is announced in the space, which it is from before it loads the
//!   root until after it has loaded another. A CPU that is not announced may keep translations
//!   under the root's tag, and uses them again only if no flush began since it left; the proof is
//!   below.
//! - F4. A gather dropped with work pending completes it.
//! - F5. Memory for the lists, of drops and of tables, is taken before the table's lock; without
//!   any a list has room for a few words in itself, and the caller flushes more often (G6).
//! - F6. Between two flushes a gather notes at most as many entries as its grain, which was read
//!   when it was made. A caller that notes several asks [`Gather::is_full`] or [`Gather::left`]
//!   before each; where the gather is full, it lets go of the table's lock, flushes, and goes on.
//!   Two go beyond the grain. The leaves of a collapse's table go in one step, so
//!   [`Gather::note_collapsed`] notes all 512 at once, in a gather that holds nothing else. And the
//!   entries of a group change as one (table::I11), so all of them are noted where one has room.
//! - F7. An operation frees what is left at its end after it has let go of the space's writer.
//!   The flush is done under the writer, because the next map may be in the same place, but readers
//!   are waited for without it ([`Gather::shoot`], and the end of the gather), in a grace period
//!   that all waiters share (`sync::Grace`). Flushes on the way free what is no table; tables,
//!   which readers may walk through, are kept for the end as long as there is room.
//! - F8. Every translation that was there is noted at its own level: an item of one level ends
//!   nothing below it. A table that was emptied leaves only pointers to itself behind; one that
//!   goes with its leaves leaves those too. The two are values of different types, made where the
//!   table is taken out: a `Collapsed` brings range and level of its leaves with it; for a
//!   `Detached` the same code that empties the word tells [`Gather::note_table`] the table's range
//!   and the level of that word.
//!
//! **Which CPUs are asked, which are not, and why that is enough** (F3)
//!
//! ```text
//!   leaving   l1 read finished, then started; if equal, remember the number     flushing  s1 change words
//!             l2 load another root                                                        s2 started + 1, fence
//!             l3 take the announcement back                                               s3 read the announced CPUs
//!   coming    r1 announce, fence                                                          s4 ask them, wait
//!             r2 read started                                                             s5 finished + 1
//!             r3 load the root: `Unchanged` if r2 is the number remembered, else `Nothing`
//! ```
//!
//! 1. A CPU that s3 sees has carried the request out before s5, whatever root it runs then: an
//!    invalidation of a space covers what is kept under its tag. So a flush that begins between r2
//!    and r3 is not lost.
//! 2. A CPU that s3 does not see is outside the space, and its next r2 sees s2: r1 and s2 each come
//!    before a fence, r2 and s3 after one, so one of the two reads sees the other side.
//! 3. That next r3 says `Nothing`. A remembered number n comes from an earlier l1, at which the CPU
//!    was announced; so s3, and s5 with it, came after that l1. If s2 came after it as well, r2
//!    reads more than n. If it did not, the flush was pending at l1, and nothing was remembered.
//!    From r3 on walks see s1.
//! 4. So a translation that s1 made stale is used by no CPU after s5, which is all that F1 needs.
//!
//! Names of spaces carry stamps: a space made in the frames of one that ended has another name, and
//! is loaded with `Nothing` first. The kernel half needs none of this: its top words are the same
//! in every root and never change (`manager::setup`), and what changes below them is invalidated as
//! the kernel's, which covers every tag. An entry that no walker ever used is in no cache under any
//! tag, so entries spared for that reason begin no flush. More rights and new entries need none
//! either: a CPU that kept a translation with fewer rights faults once, and forgets it.
//!
//! **Locking.** A gather belongs to one CPU's stack. `Target`'s words are atomics.
//!
//! **Not here**: which entries to take (`space`), how a CPU is interrupted (`machine`).

mod drops;
mod gather;
mod grain;
mod target;

pub use grain::FlushGrain;
#[cfg(all(loom, test))]
mod loom_tests;

pub(crate) use gather::{Gather, Used};
pub(crate) use target::Target;
