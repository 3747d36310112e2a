#![allow(unsafe_code)]
//! Making spaces, finding them by name, and ending them.
//!
//! ```text
//!   end      say so ─▶ does a CPU run it? ── yes ──▶ take it back: refused, and nobody noticed
//!               │                        └── no ───▶ its name is gone ─▶ readers gone ─▶ users gone ─▶ emptied
//!   switch   announce ─▶ does somebody end it? ── yes ──▶ take it back, look again: it goes on, or it is gone
//! ```
//!
//! **Invariants**
//! - N1. A caller that ends a space says so and then looks whether a CPU is announced in it; a CPU
//!   that begins to run the space announces itself and then looks whether the space is being ended.
//!   Each does so with a fence in between, so one of the two sees the other, or both do.
//! - N2. The name of a space goes when its end can no longer be refused. Until then every caller
//!   finds the space by it.

use super::area::AreaLimit;
use super::record::Space;
use super::steps::Steps;
use super::user_half;
use super::zap::{Guards, Zap};
use crate::flush::Gather;
use crate::folio::Class;
use crate::frame::{Identity, Kind, Stale};
use crate::rmap::{Last, Pin};
use crate::stock::{Name, NoRecord, OverLimit, Stock, record};
use crate::sync::Ordering;
use crate::table::{Paging, Prune};
use core::ops::Deref;
use foliant_machine::{Machine, Owner};
use foliant_units::{Cpu, Frame, Order, Pages};

/// The name of an address space, unique among living ones. The name of an ended space is refused,
/// also when its memory serves another one, until 2^32 - 1 spaces were made and stamps repeat.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SpaceId {
    frame: Frame,
    stamp: u32,
}

/// A space that an operation works in; it does not end before this is dropped.
pub(crate) struct Pinned<'s> {
    space: &'s Space,
    _pin: Pin<'s>,
}

impl Deref for Pinned<'_> {
    type Target = Space;
    fn deref(&self) -> &Space {
        self.space
    }
}

/// The frames that every space has: its record and its top table.
pub(crate) const OWN_FRAMES: u64 = 2;

impl SpaceId {
    /// The record's frame, for an embedder's own tables; unique among living spaces.
    pub const fn frame(self) -> Frame {
        self.frame
    }
    /// The number that tells it from other spaces whose record was in the same frame.
    pub const fn stamp(self) -> u32 {
        self.stamp
    }
    /// The name with this [`frame`](SpaceId::frame) and [`stamp`](SpaceId::stamp), for embedders
    /// that keep names as numbers. Any numbers will do: a name that no living space has is refused,
    /// as that of a space that has ended.
    pub const fn from_parts(frame: Frame, stamp: u32) -> SpaceId {
        SpaceId { frame, stamp }
    }

    /// The space whose record is in `frame`, if it lives. Nobody is at work.
    #[cfg(feature = "verify")]
    pub(crate) fn found<M: Machine, P: Paging>(
        stock: &Stock<'_, M, P>,
        frame: Frame,
    ) -> Option<SpaceId> {
        let identity = stock.identity(frame);
        let stamp = (identity.word() >> 32) as u32;
        (identity == Identity::space(stamp)).then_some(SpaceId { frame, stamp })
    }

    /// What a CPU remembers of it.
    pub(super) const fn name(self) -> Name {
        Name { frame: self.frame, stamp: self.stamp }
    }

    /// The space, while the caller is in a reader's section.
    pub(crate) fn peek<'m, M: Machine, P: Paging>(
        self,
        stock: &Stock<'m, M, P>,
    ) -> Option<&'m Space> {
        let identity = stock.identity(self.frame);
        let is_it = identity.kind() == Kind::Space && identity == Identity::space(self.stamp);
        is_it.then(|| record::<Space>(stock.machine, self.frame.pa()))
    }

    /// The space, for an operation that may wait.
    pub(crate) fn pin<'m, M: Machine, P: Paging>(
        self,
        stock: &Stock<'m, M, P>,
    ) -> Option<Pinned<'m>> {
        let _reading = stock.reading();
        let space = self.peek(stock)?;
        Some(Pinned { space, _pin: Pin::new(&space.member) })
    }
}

/// Makes an empty space, told from every other one by `stamp`.
pub(crate) fn create<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    stamp: u32,
    limit: Option<Pages>,
    areas: AreaLimit,
) -> Result<SpaceId, NoRecord> {
    if let Some(limit) = limit.filter(|limit| limit.get() < OWN_FRAMES) {
        return Err(OverLimit(limit).into());
    }
    let claim = stock.claim(Order::BASE, Class::Unmovable)?;
    let root = match stock.claim_cleared(Owner::Table) {
        Ok(root) => root,
        Err(none) => {
            stock.release(claim);
            return Err(none.into());
        }
    };
    stock.clear(&claim);
    stock.machine.owned(claim.frames(), Owner::Records);
    let (frame, _) = claim.into_raw();
    let space: &Space = record(stock.machine, frame.pa());
    space.member.target.set_root(root.into_raw().0.pa());
    space.member.found(frame);
    space.charge.set_limit(limit);
    space.charge.charge_records(stock.machine.me(), OWN_FRAMES).expect("looked at above");
    space.areas.set_limit(areas);
    space.tables(stock).share_kernel(&stock.kernel);
    stock.set_identity(frame, Identity::space(stamp));
    Ok(SpaceId { frame, stamp })
}

/// Why a space did not end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EndError {
    /// There is no such space (any more).
    NoSpace,
    /// A CPU still runs it.
    Running(Cpu),
}

/// Sees to it that the caller alone ends the space, and that no CPU runs it from now on (N1).
fn begin_end<'m, M: Machine, P: Paging>(
    stock: &Stock<'m, M, P>,
    id: SpaceId,
) -> Result<Pinned<'m>, EndError> {
    loop {
        let pinned = id.pin(stock).ok_or(EndError::NoSpace)?;
        let space = pinned.space;
        if !space.begin_end() {
            drop(pinned);
            stock.machine.relax(); // another caller decides: the space is gone then, or goes on
            continue;
        }
        let Some(cpu) = space.member.target.running().iter().next() else { return Ok(pinned) };
        space.give_up_end();
        return Err(EndError::Running(cpu));
    }
}

/// Ends a space: everything that it maps goes, then its tables and records.
pub(crate) fn end<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    id: SpaceId,
    steps: &mut Steps,
) -> Result<(), EndError> {
    let pinned = begin_end(stock, id)?;
    let space = pinned.space;
    // From here on no caller finds the space (N2), and no CPU gets in (N1).
    let hidden = stock.replace_identity(id.frame, Identity::space(id.stamp), Identity::PLAIN);
    assert!(hidden, "one ends a space at a time (life::N1)");
    stock.wait_for_readers();
    drop(pinned);
    while space.member.users.load(Ordering::SeqCst) > 0 {
        stock.machine.relax();
        // The holder of a pin may yield (sync::outside::O3).
        steps.outside().yield_now(stock.machine);
    }
    let all = user_half::<P>();
    // The areas are dissolved whole instead of being removed one by one: that needs no memory.
    let zap = Zap::new(stock, space, Guards::Drop).at_end();
    let mut gather = Gather::new(stock, &space.member.target);
    let mut from = all.start();
    while let Some(area) = space.areas.at_or_after(stock.machine, from) {
        let before = zap.kept();
        zap.range(&mut gather, area.range, steps);
        if let Some(order) = area.flags.reserved() {
            let pages = area.range.bytes().get() / order.bytes().get();
            stock.unreserve(order, pages - (zap.kept() - before));
        }
        from = area.range.end();
    }
    space.areas.dissolve(stock);
    zap.tables(&mut gather, all, Prune::All, steps);
    let flushed = gather.flush();
    drop(gather);
    let root = space.member.target.root();
    // The fork tree's record outlives its first member, and the readers that come to it by way of a
    // folio.
    let (mine, last) = (id.frame, space.member.leave(stock));
    let home = match last {
        Last::Yes(home) => {
            stock.wait_for_readers();
            Some(home)
        }
        Last::No => None,
    };
    let own = (mine != space.member.tree()).then_some(mine);
    for frame in [root.frame()].into_iter().chain(own).chain(home) {
        // SAFETY: the space is at its end, and the frame was its root or record alone.
        let frame = unsafe { Stale::unmapped(frame, Order::BASE) };
        stock.release(frame.flushed(flushed));
    }
    Ok(())
}
