//! The gather: what was taken out of page tables, who may still reach it, and what may be freed only afterwards.
//!
//! ```text
//!   under the table's lock          after the lock                          after the wait
//!   ───────────────────────         ─────────────────────────────           ─────────────────────
//!   take the word                   invalidate here                         references dropped,
//!   note(range, level, accessed) ─▶ ask the CPUs that may hold it  ─wait─▶  tables given back
//!   doom(folio, references)         (nobody, if nothing was accessed)
//! ```
//!
//! Each noted range carries its level, so a 2 MiB leaf is one entry: the ceiling above which everything is flushed
//! counts entries, not 4 KiB pages. Ranges that touch at the same level become one.
//!
//! **Invariants**
//! - F1. What is doomed is freed only after every CPU that may hold a translation to it carried the flush out (G1 of
//!   the specification).
//! - F2. From the first noted entry until the flush is done the space counts as pending: `started` is ahead of
//!   `finished`. It is counted before the table's lock is released. Whoever finds an entry absent or read-only
//!   under that lock and wants to conclude that nobody can use the old one calls [`Gather::settle`] first (G5).
//! - F3. A CPU is asked only if it runs the space now. It announced itself before it loaded the root, and the load
//!   dropped everything older, so a CPU outside the set holds nothing.
//! - F4. A gather dropped with work pending completes it.
//! - F5. Memory for the doomed list is taken before the table's lock; without any the list has room for a few words
//!   in itself, and the caller flushes more often (G6).
//!
//! **Locking.** A gather belongs to one CPU's stack. `Target`'s words are atomics: `[a]` announced CPUs, `[p]` pending.
//!
//! **Not here**: which entries to take (`space`), how a CPU is interrupted (`machine`).

mod doomed;
mod gather;
mod target;

pub(crate) use gather::{Gather, Used};
pub(crate) use target::Target;
