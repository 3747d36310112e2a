//! A recount of everything from the bottom bits, for tests and simulations. Nothing may be in
//! flight meanwhile.
//!
//! **Invariants**: I1. Nothing here changes anything, nor trusts a count that it has not made
//! itself.
//!
//! **Not here**: repair.

use super::Folios;
use super::entry::{BlockEntry, BlockKind, FIT_WHOLE, Owner};
use super::index::List;
use super::region::Region;
use super::seats::Seats;
use core::fmt;
use foliant_units::{Cpu, Frame, Order};

/// The first thing found that does not agree with the bits below it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Disagreement {
    /// The first frame of the 2 MiB block concerned.
    pub block: Frame,
    /// The disagreement that was found there.
    pub what: Conflict,
}

/// A disagreement between an entry, a field, a list or a seat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Conflict {
    /// The entry's bound of the largest free order lies below the truth; both numbers are the order
    /// plus one.
    Fit {
        /// The bound.
        bound: u32,
        /// The truth.
        found: u32,
    },
    /// A word of the field is not a legal one.
    Shape {
        /// The first frame of the word.
        frame: Frame,
    },
    /// A block is in one piece, free or held, and its field is not closed.
    Open,
    /// A block without owner is all free, or its bound says so, but it is not whole.
    Loose,
    /// The blocks of a run of this order do not agree on it.
    Run {
        /// The order.
        order: Order,
    },
    /// An operation is still in flight.
    InFlight,
    /// The block is missing on its list.
    Unlisted,
    /// A list has a word that the level above does not know.
    Index,
    /// The owner's seat names another block.
    Seat {
        /// The owner.
        cpu: Cpu,
    },
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the 2 MiB block at {} disagrees: {:?}", self.block, self.what)
    }
}

impl core::error::Error for Disagreement {}

impl<'m> Folios<'m> {
    /// Recounts everything. Nothing may be in flight.
    pub fn validate(&self) -> Result<(), Disagreement> {
        for (number, region) in self.regions.iter() {
            for block in 0..region.blocks() {
                let head = region.frame(block, super::field::Offset(0));
                check_block(region, block)
                    .and_then(|()| self.check_seat(number, region, block))
                    .map_err(|what| Disagreement { block: head, what })?;
            }
            if List::all().any(|list| region.index().broken(list).is_some()) {
                return Err(Disagreement { block: region.range().start(), what: Conflict::Index });
            }
        }
        Ok(())
    }
    /// Checks seats::I1.
    fn check_seat(&self, number: usize, region: &Region<'m>, block: usize) -> Result<(), Conflict> {
        let Some((cpu, seat)) = region.load(block).owner().seated() else { return Ok(()) };
        let place = self.seats(cpu).and_then(|seats: Seats<'m>| seats.all().nth(seat)?.place());
        match place {
            Some(place) if (place.region, place.block) == (number, block) => Ok(()),
            _ => Err(Conflict::Seat { cpu }),
        }
    }
}

fn check_block(region: &Region<'_>, block: usize) -> Result<(), Conflict> {
    let entry = region.load(block);
    match entry.kind() {
        BlockKind::Busy => return Err(Conflict::InFlight),
        BlockKind::Whole => check_closed(region, block)?,
        BlockKind::Held => check_run(region, block, entry)?,
        BlockKind::Small => check_small(region, block, entry)?,
    }
    let listed = |list| {
        region.index().load(list, region.bit(block) / 64) >> (region.bit(block) % 64) & 1 == 1
    };
    if entry.list().is_none_or(listed) { Ok(()) } else { Err(Conflict::Unlisted) }
}

fn check_small(region: &Region<'_>, block: usize, entry: BlockEntry) -> Result<(), Conflict> {
    let field = region.field(block);
    if let Some(at) = field.broken() {
        return Err(Conflict::Shape { frame: region.frame(block, at) });
    }
    let (bound, found) = (entry.fit(), field.fit());
    if bound < found {
        return Err(Conflict::Fit { bound, found });
    }
    let loose = entry.owner() == Owner::NONE && (field.is_free() || bound == FIT_WHOLE);
    if loose { Err(Conflict::Loose) } else { Ok(()) }
}

fn check_closed(region: &Region<'_>, block: usize) -> Result<(), Conflict> {
    if region.field(block).is_closed() { Ok(()) } else { Err(Conflict::Open) }
}

/// Checks that all blocks of the run are held with its order, and that the field of this one is
/// closed.
fn check_run(region: &Region<'_>, block: usize, entry: BlockEntry) -> Result<(), Conflict> {
    check_closed(region, block)?;
    let order = Order::new(entry.order() as u8).ok_or(Conflict::InFlight)?;
    let run = 1 << (order.get() - Order::SIZE_2M.get());
    let bit = region.bit(block) & !(run - 1);
    if bit < region.bit(0) || region.blk(bit) + run > region.blocks() {
        return Err(Conflict::Run { order });
    }
    let head = region.blk(bit);
    let same = |e: BlockEntry| e.kind() == BlockKind::Held && e.order() == entry.order();
    let agree = (head..head + run).all(|block| same(region.load(block)));
    if agree { Ok(()) } else { Err(Conflict::Run { order }) }
}
