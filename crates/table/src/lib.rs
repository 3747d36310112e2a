//! Page tables of any depth, in any format: walk, map, unmap, protect, split, collapse.
//!
//! There is one code for every page size: the level is a loop variable, and a format is data behind
//! [`Paging`]. An operation on a range goes table by table, so that it costs one walk and one lock
//! per 512 words, and run by run: neighbouring words that map on alike are decoded, counted and
//! noted once (`sweep`). This room allocates nothing and flushes nothing: tables come from the
//! caller's [`Spare`], the entries and tables that were taken out go into the caller's `Sink` (for
//! embedders a [`Harvest`]), and each operation says which flush it needs.
//!
//! ```text
//!   level      4         3         2         1         0
//!   va    [ 56..48 ][ 47..39 ][ 38..30 ][ 29..21 ][ 20..12 ][ 11..0 ]
//!             │         │         │         │         └ word of 4 KiB
//!             │         │         │         └ word of 2 MiB: leaf, or table of level 0 words
//!             │         │         └ word of 1 GiB: leaf, or table of level 1 words
//!             └─────────┴ table or nothing
//!
//!   a word:  0            nothing
//!            present      leaf, or table with the lock of that table in one bit
//!            not present  software word: kind and payload (Soft)
//! ```
//!
//! **Invariants**
//! - I1. Every table word of a table points to a frame that is owned as a table; the maker of the
//!   [`Tables`] vouches for the top table. So the machine's word access is always inside owned
//!   tables.
//! - I2. A table is complete before the word that points to it is written: cleared by the caller
//!   that gave it, or filled by a split. The store is a release, so a walker sees no half-made
//!   table.
//! - I3. Walkers' accessed and dirty updates, the lock bit and the words of the top table (I5)
//!   aside, a word that points to a table changes only under the lock of that table (I4), and any
//!   other word only under the lock of the table that it stands in. A word that a walker may still
//!   update is replaced by compare-and-exchange, so no update is lost before the replacement; a
//!   *final* one (no bit left to set) or one not present by a plain store. [`Locked::set`] and
//!   [`Locked::fill`] store plainly in any case: other rooms call them only for words that are
//!   final or not present.
//! - I4. A word that points to a table becomes another one only with that table's lock held: 0
//!   where the table is empty (detach), and a leaf, or a breaking word that names the leaf, where
//!   the table is collapsed. So no translation is lost with it.
//! - I5. A word of the top table is a table or 0: it goes from 0 by compare-and-exchange without a
//!   lock, and back to 0 with [`Prune::All`] alone. In a top table that no CPU runs yet
//!   [`Tables::share_kernel`] stores it plainly.
//! - I6. A removed table is not reused before the flush with `Tables::Removed`, nor while a
//!   lock-free walk that began before the removal may still read it. The caller sees to both. Until
//!   then the table holds zeros (detach) or the old leaves (collapse), and CPUs that spin for its
//!   lock see their word gone. An empty table ([`Detached`]) left nothing but pointers to it in
//!   caches; a collapsed one ([`Collapsed`]) left every leaf that it had as well, and both are
//!   flushed, each at its level.
//! - I7. Kernel addresses are worked on through the kernel's own top table only: where user top
//!   tables repeat its words, their copies of the lock bit are not looked at, and none of its
//!   empty words is filled any more from the first such table on (`Manager::reach_kernel`).
//! - I8. An operation that is refused changed nothing. One that stopped did all below `upto`,
//!   nothing from there on, and going on from `upto` completes it.
//! - I9. The holder of a table's lock waits for nobody that may need a table's lock: not for the
//!   owner of an entry that is out of use (it comes back for the lock), nor for a flush or for
//!   readers. A holder that meets such an entry gives the lock back first: waiting takes the guard
//!   (`Locked::let_go`). It may wait for leaf locks, for a change of the area tree and, in the
//!   order that **Locking** gives, for a second table: the holders of these come for no table that
//!   is held.
//! - I10. Only under a table's lock is it known that a word of the table is empty, at every level
//!   that has leaves. A walk without the lock may come by an empty word of which another CPU, with
//!   the lock, is about to make a leaf. An empty word of the top table, which never becomes a leaf
//!   (I5), is passed over without a lock: the operation has stated its change before (behind a
//!   fence: sync::sequence::Q3), and the CPU that hangs a table there looks for changes behind one.
//!   A walk of the reverse map has stated nothing: it compares what it found with the folio's
//!   count.
//! - I11. The words of a group ([`Paging::group`]) are one unit: aligned, present with the bit all
//!   of them, of consecutive and aligned blocks, and alike but for what walkers note, in whichever
//!   word they please: a group is accessed, or dirty, where any of its words is. They come and go
//!   under one hold of the lock, so hardware that caches all by one of them caches nothing that the
//!   others do not say or are about to. An operation on a range takes a group as one run, or stops
//!   at it where it reaches over an end, before any of its words changed.
//!
//! **Locking.** The lock of a table is a bit
//! ([`Paging::LOCK`]) in the word that points to it, which walkers ignore. It is taken by
//! compare-and-exchange (a walker may set the word's accessed bit at any time, so the exchange is
//! tried again), and waited for with `Cpus::relax`, which lets shootdowns through. A CPU that finds
//! the word changed walks again. A CPU holds one table lock at a time, but for two operations: a
//! collapse takes the lock of a table and then that of the table below it, a fork that of the
//! parent's table and then that of the child's for the same addresses. The holder of the second
//! never waits for the first. The top table has no lock (I5). No lock is held when an operation
//! returns, but for [`Tables::lock`].
//!
//! **Not here**: allocation, flushes, grace periods, areas, what a fault does.
//!
//! ```
//! use foliant_machine::{Caching, Invalidation, Item, Owner, PhysMem, Scope, Tlb, Witness};
//! use foliant_sim::{Config, Sim};
//! use foliant_table::{Attrs, Half, Harvest, Prune, Spare, Tables, X86_64};
//! use foliant_units::{Bytes, CpuSet, Frame, FrameRange, Level, Pages, Va, VaRange};
//!
//! let machine = Sim::new(Config::seeded(1, Bytes::new(16 << 20), 1)).unwrap(); // or your `PhysMem`
//! let first = machine.config().memory[0].start();
//! let lent = FrameRange::new(first, Pages::new(4)).unwrap();
//! machine.owned(lent, Owner::Table);
//! // SAFETY: four frames that nobody else uses: a top table, and three tables in stock.
//! unsafe { machine.clear(first.pa(), Bytes::new(4 << 12), Caching::Cached) };
//! // SAFETY: the same.
//! let tables: Tables<'_, Sim, X86_64<4>> =
//!     unsafe { Tables::adopt(&machine, first.pa(), Half::User) };
//! let mut spare = Spare::new();
//! for frame in (1..4).map(|nth| first.add(Pages::new(nth))) {
//!     // SAFETY: the same.
//!     unsafe { spare.lend(frame) }.unwrap();
//! }
//!
//! let range = VaRange::sized(Va::new(1 << 30), Bytes::new(4 << 20)).unwrap();
//! let attrs = Attrs::USER | Attrs::WRITE;
//! let done = tables.map(range, Frame::new(0x800), attrs, Level::SIZE_1G, &mut spare).unwrap();
//! assert_eq!(done.upto, range.end()); // two leaves of 2 MiB; it stops where a table is missing
//! assert_eq!(tables.walk(range.start()).level, Level::SIZE_2M);
//!
//! let mut harvest = Harvest::new();
//! tables.unmap(range, Prune::Emptied, &mut harvest).unwrap();
//! let mut what = Invalidation::none(Scope::Space(first.pa()));
//! for run in harvest.runs() {
//!     let tables = foliant_machine::Tables::Removed; // a table became empty, and went
//!     what.push(Item { range: run.range(), level: run.level, tables }).unwrap();
//! }
//! let asked = machine.ask(&CpuSet::first(1), &what);
//! machine.invalidate(&what);
//! machine.wait(asked);
//! harvest.clear_runs();
//! while let Some(table) = harvest.pop_table() {
//!     // SAFETY: the flush is done, and nobody walks here.
//!     let _yours_again = unsafe { table.vouched() }.into_raw();
//! }
//! ```
#![cfg_attr(not(test), no_std)]

mod aarch64;
mod attrs;
mod count;
mod edit;
mod harvest;
mod leaves;
mod lock;
mod map;
mod paging;
mod promise;
mod prune;
mod reshape;
mod riscv64;
mod spare;
mod sweep;
mod tables;
mod way;
mod word;
mod x86_64;

pub use aarch64::Aarch64;
pub use attrs::{Attrs, Entry, Slot, Slots, Soft, SoftKind};
pub use edit::{Change, Kept, Swept};
pub use harvest::{Harvest, Run, What};
pub use leaves::Leaves;
pub use lock::{Gap, LetGo, Locked, Missing};
pub use map::{MapStop, Mapped};
pub use paging::{Group, Half, Paging, Roots};
pub use prune::{Detached, Prune};
pub use reshape::{Collapsed, Stuck};
pub use riscv64::{Riscv64, Sv39, Sv48, Sv57};
pub use spare::Spare;
pub use sweep::{At, Edit, Progress, Sink, Stop, Untold, Verdict, rewritten};
pub use tables::{Blocked, Found, Reached, Refused, Tables};
pub use x86_64::X86_64;

#[cfg(test)]
mod tests;
