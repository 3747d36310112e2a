//! A recount of everything from the bottom bits, for tests and simulations. Nothing may be in flight meanwhile.
//!
//! **Invariants**: I1. Nothing here changes anything, nor trusts a count that it has not made itself.
//!
//! **Not here**: repair.

use super::Folios;
use super::entry::{Entry, FIT_WHOLE, Kind, Owner};
use super::index::List;
use super::seats::Seats;
use super::section::Section;
use core::fmt;
use foliant_units::{Cpu, Frame, Order};

/// The first thing found that does not agree with the bits below it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Disagreement {
    /// The first frame of the 2 MiB block concerned.
    pub block: Frame,
    /// What disagrees there.
    pub what: What,
}

/// What can disagree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// The entry's bound of the largest free order lies below the truth; both plus one.
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
    /// A block is whole, free or held, and its field is not closed.
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
        for (number, section) in self.sections.iter() {
            for block in 0..section.blocks() {
                let head = section.frame(block, super::field::Offset(0));
                check_block(section, block)
                    .and_then(|()| self.check_seat(number, section, block))
                    .map_err(|what| Disagreement { block: head, what })?;
            }
            if List::all().any(|list| section.index().broken(list).is_some()) {
                return Err(Disagreement { block: section.range().start(), what: What::Index });
            }
        }
        Ok(())
    }
    /// seats::I1.
    fn check_seat(&self, number: usize, section: &Section<'m>, block: usize) -> Result<(), What> {
        let Some((cpu, seat)) = section.load(block).owner().seated() else { return Ok(()) };
        let place = self.seats(cpu).and_then(|seats: Seats<'m>| seats.all().nth(seat)?.place());
        match place {
            Some(place) if (place.section, place.block) == (number, block) => Ok(()),
            _ => Err(What::Seat { cpu }),
        }
    }
}

fn check_block(section: &Section<'_>, block: usize) -> Result<(), What> {
    let entry = section.load(block);
    match entry.kind() {
        Kind::Busy => return Err(What::InFlight),
        Kind::Whole => check_closed(section, block)?,
        Kind::Held => check_run(section, block, entry)?,
        Kind::Small => check_small(section, block, entry)?,
    }
    let listed = |list| {
        section.index().load(list, section.bit(block) / 64) >> (section.bit(block) % 64) & 1 == 1
    };
    if entry.list().is_none_or(listed) { Ok(()) } else { Err(What::Unlisted) }
}

fn check_small(section: &Section<'_>, block: usize, entry: Entry) -> Result<(), What> {
    let field = section.field(block);
    if let Some(at) = field.broken() {
        return Err(What::Shape { frame: section.frame(block, at) });
    }
    let (bound, found) = (entry.fit(), field.fit());
    if bound < found {
        return Err(What::Fit { bound, found });
    }
    let loose = entry.owner() == Owner::NONE && (field.is_free() || bound == FIT_WHOLE);
    if loose { Err(What::Loose) } else { Ok(()) }
}

fn check_closed(section: &Section<'_>, block: usize) -> Result<(), What> {
    if section.field(block).is_closed() { Ok(()) } else { Err(What::Open) }
}

/// All blocks of the run are held with its order, and their fields are untouched.
fn check_run(section: &Section<'_>, block: usize, entry: Entry) -> Result<(), What> {
    check_closed(section, block)?;
    let order = Order::new(entry.order() as u8).ok_or(What::InFlight)?;
    let run = 1 << (order.get() - Order::MEGA.get());
    let bit = section.bit(block) & !(run - 1);
    if bit < section.bit(0) || section.blk(bit) + run > section.blocks() {
        return Err(What::Run { order });
    }
    let head = section.blk(bit);
    let same = |e: Entry| e.kind() == Kind::Held && e.order() == entry.order();
    let agree = (head..head + run).all(|block| same(section.load(block)));
    if agree { Ok(()) } else { Err(What::Run { order }) }
}
