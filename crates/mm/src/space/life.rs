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

use super::attach;
use super::names::{Pinned, SpaceId};
use super::record::Space;
use super::steps::Steps;
use super::user_half;
use super::zap::{Guards, Zap};
use crate::flush::Gather;
use crate::folio::Class;
use crate::frame::{Identity, Stale};
use crate::rmap::Last;
use crate::stock::{NoRecord, OverLimit, Stock, record};
use crate::sync::Ordering;
use crate::table::{Paging, Prune};
use foliant_machine::{Machine, Owner};
use foliant_units::{Cpu, Order, Pages};

/// The frames that every space has: its record and its top table.
pub(crate) const OWN_FRAMES: u64 = 2;

/// Makes an empty space, told from every other one by `stamp`.
pub(crate) fn create<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    stamp: u32,
    limit: Option<Pages>,
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
    dissolve(stock, space, steps);
    Ok(())
}
/// Gives back all that a space has, which nobody finds by its name any more: a grace period is over
/// since that went.
pub(super) fn dissolve<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    steps: &mut Steps,
) {
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
            let of = attach::subpool(stock, space, &area);
            stock.unreserve(order, of, pages - (zap.kept() - before));
        }
        from = area.range.end();
    }
    space.areas.dissolve(stock);
    zap.tables(&mut gather, all, Prune::All, steps);
    let flushed = gather.flush();
    drop(gather);
    while let Some(object) = attach::detach_any(stock, space, steps) {
        end_unheld(stock, object, steps);
    }
    let root = space.member.target.root();
    // The fork tree's record outlives its first member, and the readers that come to it by way of a
    // folio.
    let (mine, last) = (space.member.frame(), space.member.leave(stock));
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
}
/// Ends an object if nobody holds it any more: the caller has let go of it (names::B2).
pub(super) fn end_unheld<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    object: Option<&Space>,
    steps: &mut Steps,
) {
    let Some(object) = object else { return };
    let frame = object.member.frame();
    let hidden = stock.replace_identity(frame, stock.identity(frame), Identity::PLAIN);
    assert!(hidden, "the call that lets go of an object last ends it (names::B2)");
    stock.wait_for_readers();
    dissolve(stock, object, steps);
}
