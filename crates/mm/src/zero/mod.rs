//! Clearing memory before anybody else sees it.
//!
//! In its simplest form: one extent per block. Order around the fault, breathing points and known-zero bookkeeping
//! belong here and come with system Z.
//!
//! **Invariants**
//! - Z1. Every byte of a block is cleared exactly once, before the block is published.
//!
//! **Locking.** Called with no lock held.

use crate::frame::Claim;
use crate::stock::{Event, Stock};
use crate::table::Paging;
use foliant_machine::Machine;
use foliant_units::FrameRange;

mod extent;

pub(crate) use extent::{copy_huge, copy_page};

/// Clears frames that are not in stock yet: the records that the stock itself is made of.
pub(crate) fn clear_range(machine: &impl Machine, frames: FrameRange) {
    extent::clear(machine, frames.start().pa(), frames.pages().bytes());
}

/// Clears the frames of a huge page that is the caller's.
pub(crate) fn clear_huge<M: Machine, P: Paging>(stock: &Stock<'_, M, P>, frames: FrameRange) {
    clear_range(stock.machine, frames);
    stock.count_by(Event::ZeroedBytes, frames.pages().bytes().get());
}

/// Clears the block.
pub(crate) fn clear<M: Machine, P: Paging>(stock: &Stock<'_, M, P>, claim: &Claim) {
    let bytes = claim.order().bytes();
    extent::clear(stock.machine, claim.frame().pa(), bytes);
    stock.count_by(Event::ZeroedBytes, bytes.get());
}
