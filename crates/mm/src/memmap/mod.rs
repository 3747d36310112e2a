//! The descriptor array as mapped memory: absent, dense and folded stretches, and the batched moves
//! between them.
//!
//! A descriptor takes 64 bytes. The 512 descriptors of a 2 MiB block fill 8 frames, the block's
//! *stretch*, and those of a 1 GiB block fill 4096. A huge page needs one of these frames for
//! itself, because its tails are all alike.
//!
//! ```text
//!   absent ──populate──▶ dense by a leaf ──split──▶ dense by entries ──fold──▶ folded: head frame + shared tail frame
//!     ▲ │                                                │   ◀──unfold──           │ ▲
//!     │ └──────────────────────────────────── born folded ─────────────────────────┼─┘
//!     └────────────────────────── release ───────────────┴────────────────────────┘
//!
//!   folded 2 MiB    │ own │ T │ T │ T │ T │ T │ T │ T │      own: read and write, 64 descriptors, the head among them
//!   folded 1 GiB    │ own │ T │ T │ ...  4095 times   │      T: read only, one frame per order for all huge pages
//! ```
//!
//! # How to use it
//!
//! [`Memmap`] is the handle, [`Huge`] the token of one huge page that is exclusively its holder's
//! (references 0), dense or folded, and [`Batch`] holds up to [`Batch::MAX`] of them.
//!
//! | call | from | to | shootdowns a batch | grace periods |
//! |---|---|---|---|---|
//! | [`Memmap::claim`] with [`Form::Folded`] | a free block, absent | folded | **0** | 0 |
//! | | a free block, dense already | dense | 0 | 0 |
//! | [`Memmap::claim`] with [`Form::Dense`] | a free block | dense | 0 | 0 |
//! | [`Memmap::fold`] | dense | folded | at most 2, 1 more per recovery | 1 |
//! | [`Memmap::unfold`] | folded | dense | 1 | 0 |
//! | [`Memmap::release`] | folded, or dense by entries | a free block, absent | 1 | 1 |
//! | | dense by a leaf | a free block, dense | 0 | 0 |
//! | [`Memmap::free`] | dense | a free block, dense | 0 | 0 |
//! | [`Memmap::reclaim`] | free but for its own descriptors | a free block, absent | 1 per 32 blocks | 1 per 32 blocks |
//!
//! None of these counts depends on the number of CPUs. A claim that finds no block does a part of
//! what [`Memmap::reclaim`] does first, at its cost, where any block holds its own descriptors. At
//! a flush grain of n pages ([`Manager::set_flush_grain`]) a batch is worked off n pages at a time,
//! each part with shootdowns of its own, and a release with a grace period of its own; grain 1 is
//! the form with two shootdowns a page. Where live entries may not be replaced (`fold`) each part
//! of a fold or an unfold takes 1 shootdown and 1 grace period.
//!
//! ```
//! # use foliant::{Manager, Policy, manager::Setup, table::X86_64};
//! # use foliant_sim::{Config, Sim};
//! # use foliant_units::{Bytes, Frame, Order};
//! use foliant::memmap::{Batch, Form};
//! # let sim = Sim::new(Config::seeded(2, Bytes::new(64 << 20), 1)).unwrap();
//! # let setup = Setup::of(&sim.config().memory, Policy::BASE_ONLY);
//! # let manager: Manager<'_, _, X86_64<4>> = Manager::new(&sim, &setup).unwrap();
//! let memmap = manager.memmap();
//! let mut batch = Batch::new(&memmap);
//! while let Ok(huge) = memmap.claim(Order::SIZE_2M, Form::Folded) {
//!     batch.push(huge).unwrap();
//! }
//! assert!(batch.len() > 10);
//! assert_eq!(memmap.census().folded, batch.len() as u64);
//! memmap.release(&mut batch); // all blocks are free again, without any descriptors
//! assert_eq!((batch.len(), memmap.census().folded), (0, 0));
//! ```
//!
//! [`Manager::set_flush_grain`]: crate::Manager::set_flush_grain
//!
//! **Invariants**
//! - H1. From the first changed entry of a page until the flush that covers it is done, nobody
//!   writes a descriptor whose entry changes (rule W, see `fold`). Other pages of the batch may be
//!   written to meanwhile, and so may a head whose entry stays, as in an unfold. At no time does
//!   anybody write a descriptor through a shared frame.
//! - H2. A frame that was taken out of the array is freed only after a flush that covers it (G1,
//!   flush::F1).
//! - H3. `Flag::Optimized` is set from before the first tail is folded until after the last one is
//!   unfolded.
//! - H4. The head's descriptor of a `Huge` says `Kind::Huge`; every operation looks, and refuses a
//!   page that does not say so (TR-H4). The mark goes only with the whole stretch, or when nothing
//!   is folded any more. A `Huge` carries the brand of its manager, and another manager refuses it.
//! - H5. Everything that can fail is done before the first entry of a page changes. So a page is
//!   dense or folded, never in between, and nothing is ever put back (record 012).
//! - H6. A huge page's block holds none of its own descriptors: the block is allocated as a whole,
//!   so no frame of it is a block that was allocated for descriptors, before or while it is out.
//! - H7. A leaf that is split counts as pending from before its table can be found until it is
//!   flushed. A caller that finds the table and replaces entries in it would free frames that the
//!   leaf, cached on some CPU, still reaches. So a flush covers everything while another flush of
//!   the kernel half is pending.
//!
//! **Locking.** Entries change under their table's lock, in pieces. `splitting` makes
//! breaking up the block behind a leaf and splitting the leaf one step; nothing is allocated,
//! cleared or waited for under it. Batches of different callers do not exclude each other. Nothing
//! here is called in a reader's section.
//!
//! **Not here**: which pages to fold, pools, reservations (`pool`); when a block is described for
//! base pages (`stock`).

mod batch;
mod census;
mod entries;
mod fold;
mod huge;
mod make;
mod reclaim;
mod release;
mod shares;
mod stash;
mod unfold;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

pub use batch::Batch;
pub use census::{Census, Described};
pub use fold::Folded;
pub use huge::{Declined, Huge, MemmapError};
pub use make::Form;
pub use release::Released;
pub use unfold::Unfolded;

use crate::flush::{FlushGrain, Gather, Target};
use crate::frame::DESCRIPTOR_BYTES;
use crate::stock::{Event, Stock};
use crate::sync::Long;
use crate::table::Paging;
use foliant_machine::Machine;
use foliant_units::{Bytes, FRAME_BYTES, Order, Pages};
use shares::Shares;

/// What the room keeps.
#[derive(Default)]
pub(crate) struct MemmapState {
    shares: Shares,
    /// Held by a caller that splits the leaf over a stretch.
    splitting: Long,
}

/// The descriptor array of a manager; see the module's text.
pub struct Memmap<'a, 'm, M: Machine, P: Paging> {
    stock: &'a Stock<'m, M, P>,
    kernel: &'a Target,
    state: &'a MemmapState,
}

impl<M: Machine, P: Paging> Clone for Memmap<'_, '_, M, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<M: Machine, P: Paging> Copy for Memmap<'_, '_, M, P> {}

impl<'a, 'm, M: Machine, P: Paging> Memmap<'a, 'm, M, P> {
    pub(crate) fn new(
        stock: &'a Stock<'m, M, P>,
        kernel: &'a Target,
        state: &'a MemmapState,
    ) -> Self {
        Memmap { stock, kernel, state }
    }

    /// How many frames of descriptors folding a huge page of `order` saves.
    pub const fn savable(order: Order) -> Pages {
        savable(order, DESCRIPTOR_BYTES)
    }

    fn gather(&self) -> Gather<'a, 'm, M, P> {
        Gather::whole(self.stock, self.kernel)
    }
    /// Flushes and frees what was gathered, and counts `cause` if a CPU has to invalidate
    /// something.
    fn flush(&self, gather: &mut Gather<'a, 'm, M, P>, cause: Event) {
        if gather.is_pending() {
            self.stock.count(cause);
        }
        gather.cover_others(); // H7
        gather.flush();
    }
    /// How many pages share a flush.
    fn grain(&self) -> usize {
        FlushGrain::load(self.stock).get().map_or(Batch::<M, P>::MAX, |n| n.get() as usize)
    }
    fn wait_for_readers(&self) {
        self.stock.count(Event::MemmapGrace);
        self.stock.wait_for_readers();
    }
}

/// How many frames folding saves where a descriptor takes `descriptor` bytes. It saves nothing
/// where descriptors do not fill a frame exactly (one would reach over the frame's end), or where
/// there is only one frame.
const fn savable(order: Order, descriptor: Bytes) -> Pages {
    if !descriptor.get().is_power_of_two() || descriptor.get() > FRAME_BYTES {
        return Pages::new(0);
    }
    let frames = order.pages().get() * descriptor.get() / FRAME_BYTES;
    Pages::new(frames.saturating_sub(1))
}
