//! Page tables of any depth, in any format: walk, map, unmap, protect, split, collapse.
//!
//! There is one code for every page size: the level is a loop variable, and a format is data behind
//! [`Paging`]. An operation on a range goes table by table, so that it costs one walk and one lock
//! per 512 words, and run by run: neighbouring words that map on alike are decoded, counted and
//! noted once (`sweep`). No operation of this room allocates or flushes: tables come from the
//! caller's [`Spare`], the entries and tables that were taken out go into the caller's `Sink` (for
//! embedders a [`Harvest`]), and each operation says which flush it needs. A caller that has no
//! manager above has two calls that do both ends for it: [`Tables::map_frames`] goes on with
//! frames that it is lent, and [`Harvest::flush`] is the flush of what was taken out.
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
//! **Not here**: allocation, which CPUs run the tables, grace periods, areas, what a fault does.
//!
//! ```
//! use foliant_sim::{Config, Sim};
//! use foliant_table::claim::Claim;
//! use foliant_table::machine::Scope;
//! use foliant_table::units::{Bytes, CpuSet, Frame, FrameRange, Level, Order, Pages, Va, VaRange};
//! use foliant_table::{Attrs, Half, Harvest, MapStop, Prune, Spare, Tables, X86_64};
//!
//! let machine = Sim::new(Config::seeded(1, Bytes::new(16 << 20), 1)).unwrap(); // or your `PhysMem`
//! let memory = machine.config().memory[0];
//! // Frames that nobody else uses: a top table, and tables in stock.
//! let mut frames = memory.iter().map(|frame| unsafe { Claim::from_raw(frame, Order::BASE) });
//! // SAFETY: what is mapped below is memory of this example's.
//! let tables: Tables<'_, Sim, X86_64<4>> =
//!     unsafe { Tables::create(&machine, frames.next().unwrap(), Half::User) };
//!
//! let block = FrameRange::new(Frame::new(0x800), Pages::new(0x400)).unwrap();
//! let range = VaRange::sized(Va::new(1 << 30), block.pages().bytes()).unwrap();
//! let attrs = Attrs::USER | Attrs::WRITE;
//! let mut spare = Spare::new();
//! let done = tables.map_frames(range.start(), block, attrs, &mut spare, || frames.next()).unwrap();
//! assert_eq!(done.why, MapStop::Done); // two leaves of 2 MiB
//! assert_eq!(tables.walk(range.start()).level, Level::SIZE_2M);
//!
//! let mut harvest = Harvest::new();
//! tables.unmap(range, Prune::Emptied, &mut harvest).unwrap();
//! let runs = harvest.flush(&machine, Scope::Space(tables.root()), &CpuSet::first(1));
//! assert!(runs.map(|run| run.range()).eq([range])); // its frames may have other users now
//! while let Some(table) = harvest.pop_table() {
//!     // SAFETY: the flush is done, and nobody walks here.
//!     let _yours_again = unsafe { table.vouched() };
//! }
//! ```
#![cfg_attr(not(test), no_std)]

mod aarch64;
mod attrs;
mod begun;
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

pub use foliant_claim as claim;
pub use foliant_machine as machine;
pub use foliant_units as units;

pub use aarch64::Aarch64;
pub use attrs::{Attrs, Entry, Slot, Slots, Soft, SoftKind};
pub use edit::{Change, Kept, Swept};
pub use harvest::{EndedRuns, Harvest, Run, What};
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
