//! The face of anchors (space::anchor).

use super::Manager;
use crate::fault::{Access, Demand, Outcome, Purpose, Refusal};
use crate::object;
use crate::pool::{Ground, Taken};
use crate::space::{self, Flags, SpaceId};
use crate::stock::{Event, NoAnchor, Reference};
use crate::sync::Outside;
use crate::table::Paging;
use crate::zero;
use core::{error, fmt};
use foliant_machine::Machine;
use foliant_units::{Bytes, FRAME_BYTES, Frame, FrameRange, Order, Pages, Va, VaRange};

/// What keeps a folio for an embedder, or a huge page, which goes back to its pool when this ends.
pub(super) struct Keeping<'a, 'm, M: Machine, P: Paging> {
    manager: &'a Manager<'m, M, P>,
    /// Until it is dropped.
    reference: Option<Reference<'a, 'm, M, P>>,
}

impl<'a, 'm, M: Machine, P: Paging> Keeping<'a, 'm, M, P> {
    pub(super) fn of(manager: &'a Manager<'m, M, P>, reference: Reference<'a, 'm, M, P>) -> Self {
        Keeping { manager, reference: Some(reference) }
    }
    pub(super) fn machine(&self) -> &'m M {
        self.manager.stock.machine
    }
}

impl<M: Machine, P: Paging> Drop for Keeping<'_, '_, M, P> {
    fn drop(&mut self) {
        let may_be_huge = self.reference.take().is_some_and(|reference| reference.is_anchor());
        if may_be_huge {
            self.manager.collect();
        }
    }
}

/// Pages that keep their memory and their place as long as this lives.
pub struct Anchor<'a, 'm, M: Machine, P: Paging> {
    kept: Keeping<'a, 'm, M, P>,
    frames: FrameRange,
}

impl<M: Machine, P: Paging> Anchor<'_, '_, M, P> {
    /// The pages, in the order of their addresses: at least one, all of one folio.
    pub fn frames(&self) -> FrameRange {
        self.frames
    }
    /// Reads bytes of its pages, from byte `at` on into `into`, up to their end; says how many.
    /// Programs may write them meanwhile: each byte is there at some moment of the call.
    pub fn read(&self, at: Bytes, into: &mut [u8]) -> usize {
        let machine = self.kept.machine();
        let (mut at, mut done) = (at.get(), 0);
        while done < into.len() && at / FRAME_BYTES < self.frames.pages().get() {
            let (frame, inside) = (Pages::new(at / FRAME_BYTES), at % FRAME_BYTES);
            let frame = self.frames.start().add(frame);
            let upto = into.len().min(done + (FRAME_BYTES - inside) as usize);
            object::read(machine, frame, Bytes::new(inside), &mut into[done..upto]);
            at += (upto - done) as u64;
            done = upto;
        }
        done
    }
}

impl<M: Machine, P: Paging> fmt::Debug for Anchor<'_, '_, M, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Anchor({:?})", self.frames)
    }
}

/// Why nothing was anchored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AnchorError {
    /// No access would have brought the page either: how that would have ended. What is told to a
    /// handler is tried again when the handler has filled the page.
    NoPage(Outcome),
    /// Kernel memory is mapped there.
    Kernel(Va),
    /// The folio at this frame has as many anchors and pins as it may have, about 8,000 anchors:
    /// it can have more when some are let go of.
    TooMany(Frame),
}

impl fmt::Display for AnchorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnchorError::NoPage(outcome) => write!(f, "no page to anchor: {outcome:?}"),
            AnchorError::Kernel(va) => {
                write!(f, "kernel memory is mapped at {va}: it stays as long as its area does")
            }
            AnchorError::TooMany(head) => write!(
                f,
                "the folio at {head} has as many anchors as it may have: let go of some first"
            ),
        }
    }
}
impl error::Error for AnchorError {}

impl<'m, M: Machine, P: Paging> Manager<'m, M, P> {
    /// Anchors the page at the beginning of `range`, and as many behind it as are of the same folio
    /// and lie side by side: for a device, or a kernel, that reaches them past the tables and for
    /// longer. A caller that wants all of the range goes on behind what it got. Pages that are
    /// missing come by a fault, which is not counted, and one that others have too is copied first,
    /// even where it is only read.
    ///
    /// As long as the anchor lives, the program and its holder see each other's writes there: a
    /// fork gives the child a copy at once. A page that the program unmaps or drops stays the
    /// holder's, at no address. With [`Access::Write`] the holder may write.
    #[doc(alias = "pin_user_pages")]
    #[doc(alias = "FOLL_LONGTERM")]
    pub fn anchor(
        &self,
        id: SpaceId,
        range: VaRange,
        access: Access,
    ) -> Result<Anchor<'_, 'm, M, P>, AnchorError> {
        let va = range.start().align_down(Bytes::new(FRAME_BYTES));
        let rights = match access {
            Access::Read => Flags::READ,
            Access::Write => Flags::WRITE,
            Access::Execute => Flags::EXEC,
        };
        let none = |why| AnchorError::NoPage(Outcome::Refused(why));
        loop {
            let found = {
                let _reading = self.stock.reading();
                let space = id.peek(&self.stock).ok_or(none(Refusal::NoSpace))?;
                space::anchor(&self.stock, space, (va, range.end()), rights)
            };
            match found {
                Ok((reference, frames)) => {
                    return Ok(Anchor { kept: Keeping::of(self, reference), frames });
                }
                Err(NoAnchor::NotYet) => {}
                Err(NoAnchor::Broken) => return Err(none(Refusal::Broken(va))),
                Err(NoAnchor::Kernel) => return Err(AnchorError::Kernel(va)),
                Err(NoAnchor::TooMany(head)) => return Err(AnchorError::TooMany(head)),
            }
            let demand =
                Demand { end: range.end(), purpose: Purpose::Anchor, ..Demand::page(va, access) };
            match self.resolve(id, demand) {
                Outcome::Mapped(_) | Outcome::Copied | Outcome::Reused => {}
                // It was there, for a moment.
                Outcome::ZeroPage(_) | Outcome::Spurious => self.stock.machine.relax(),
                outcome => return Err(AnchorError::NoPage(outcome)),
            }
        }
    }

    /// Takes a huge page of the pool for a child of a fork, with what the one at `original` holds
    /// in it, which is its parent's (fork).
    pub(super) fn copy_huge(
        &self,
        original: Frame,
        order: Order,
        outside: &mut Outside,
    ) -> Option<FrameRange> {
        let huge = loop {
            match self.pools().take(order, Ground::Unreserved(self.stock.subpool_of(original))) {
                Taken::Page(huge) => break huge,
                Taken::Nothing => return None,
                Taken::Wait => {
                    self.stock.machine.relax();
                    outside.yield_now(self.stock.machine);
                }
            }
        };
        zero::copy_yielding(&self.stock, original.pa(), huge.frames(), outside);
        self.stock.count_by(Event::CopiedBytes, order.bytes().get());
        Some(huge.frames())
    }
}
