//! Giving blocks back, cutting them up, and taking frames out.
//!
//! ```text
//!  free_each(frames):   by words of the field: each a block of its own? all are free ─▶ as below
//!  free(frame, order):  order 0..8   field: exactly this block? free it ─▶ more fits now? entry ─▶ index
//!                       order 9      entry: held, of this order? released ─▶ index
//!                       order 10..   head in flight ─▶ the others released ─▶ head released
//! ```
//!
//! **Invariants**
//! - I1. The step that claims a block for freeing or splitting is one compare-and-exchange on the
//!   word that names the block's bounds. Of two calls that free the same block one wins, and the
//!   other gets a [`Misuse`].
//!
//! **Locking**: none. **Not here**: which caller may free (this room knows no ownership tokens).

use super::bits::Phase;
use super::entry::FRAMES;
use super::field::Offset;
use super::region::Region;
use super::seats::Hinted;
use super::{Folios, FrameState, Known, Misuse, ReserveError};
use foliant_units::{Cpu, Frame, FrameRange, Order, Pages};

const SIZE_2M: u32 = Order::SIZE_2M.get() as u32;

impl<'m> Folios<'m> {
    /// Gives the block of 2^`order` frames at `frame` back, whatever it holds.
    pub fn free(&self, cpu: Cpu, frame: Frame, order: Order) -> Result<(), Misuse> {
        self.free_knowing(cpu, frame, order, Known::Nothing)
    }

    /// Gives the block back; `known` tells whether it holds zeros.
    #[inline]
    pub fn free_knowing(
        &self,
        cpu: Cpu,
        frame: Frame,
        order: Order,
        known: Known,
    ) -> Result<(), Misuse> {
        // The commonest case has code of its own, so that its masks are constants.
        if order == Order::BASE
            && let Some((_, region)) = self.region_of(frame)
            && self.seats(cpu).is_some()
        {
            let (block, at) = region.locate(frame);
            if !region.zeros().differs(block, at, 0, known) {
                return region.give(block, 0, at).ok_or_else(|| self.misuse(frame, order));
            }
        }
        self.free_any(cpu, frame, order, known)
    }
    fn free_any(&self, cpu: Cpu, frame: Frame, order: Order, known: Known) -> Result<(), Misuse> {
        let Some(seats) = self.seats(cpu) else {
            return Err(Misuse::UnknownCpu { frame, order, cpu });
        };
        let (number, region) = self.named(frame, order)?;
        let (block, at) = region.locate(frame);
        let order_bits = order.get() as u32;
        if region.zeros().differs(block, at, order_bits, known) {
            self.learn((frame, order), region, known)?;
        }
        let done = if order_bits < SIZE_2M {
            region.give(block, order_bits, at)
        } else if order_bits == SIZE_2M {
            let place = Hinted { region: number, block, word: 0 };
            region.give_2m(block).inspect(|()| {
                seats.set_recent(place);
                seats.pull_cursor(Hinted { block: region.bit(block), ..place });
            })
        } else {
            give_run(region, block, order_bits)
        };
        done.ok_or_else(|| self.misuse(frame, order))
    }

    /// Gives the frames of `range` back, whatever they hold: each is a block of its own.
    ///
    /// Where one is none, that is said, and some of those before it may be free by then.
    pub fn free_each(&self, range: FrameRange) -> Result<(), Misuse> {
        let mut at = range.start();
        while at < range.end() {
            let (_, region) = self.named(at, Order::BASE)?;
            let (block, from, to) = within_block(region, at, range.end());
            if region.zeros().ever() {
                for nth in from..to {
                    if region.zeros().differs(block, Offset(nth), 0, Known::Nothing) {
                        let frame = region.frame(block, Offset(nth));
                        self.learn((frame, Order::BASE), region, Known::Nothing)?;
                    }
                }
            }
            region
                .give_each(block, from, to)
                .map_err(|word| self.first_misuse(region, block, word))?;
            at = at.add(Pages::new((to - from).into()));
        }
        Ok(())
    }
    /// Why the frames of a word, from `at` on, are not each a block of its own.
    #[cold]
    fn first_misuse(&self, region: &Region<'m>, block: usize, at: Offset) -> Misuse {
        let frames = (at.0..FRAMES).map(|nth| region.frame(block, Offset(nth)));
        let is_own = |frame: &Frame| {
            self.state(*frame) == FrameState::Allocated { head: *frame, order: Order::BASE }
        };
        let wrong = frames.clone().find(|frame| !is_own(frame));
        self.misuse(wrong.unwrap_or(region.frame(block, at)), Order::BASE)
    }

    /// Notes the owner's knowledge of a block that is about to be free, unless no such block is
    /// there.
    #[cold]
    fn learn(
        &self,
        (frame, order): (Frame, Order),
        region: &Region<'m>,
        known: Known,
    ) -> Result<(), Misuse> {
        let held = FrameState::Allocated { head: frame, order };
        if self.state(frame) != held {
            return Err(self.misuse(frame, order));
        }
        let (block, at) = region.locate(frame);
        region.zeros().learn(block, at, order.get() as u32, known);
        Ok(())
    }

    /// Cuts the block of 2^`order` frames at `frame` into blocks of 2^`into` frames, each to be
    /// freed for itself.
    ///
    /// Needs no memory and changes no count. The parts belong to the caller once this returns.
    pub fn split(&self, frame: Frame, order: Order, into: Order) -> Result<(), Misuse> {
        if into > order {
            return Err(Misuse::Widening { frame, order, into });
        }
        let (_, region) = self.named(frame, order)?;
        let (block, at) = region.locate(frame);
        let (order_bits, into_bits) = (order.get() as u32, into.get() as u32);
        let done = if order_bits < SIZE_2M {
            region.field(block).split(order_bits, at, into_bits)
        } else {
            split_run(region, block, order_bits, into_bits)
        };
        done.ok_or_else(|| self.misuse(frame, order))
    }

    /// Takes the frames of `range` out, like those of the kernel's image: for good, as only the
    /// manager can put frames back. All must be free.
    pub fn reserve(&self, range: FrameRange) -> Result<(), ReserveError> {
        let mut done = range.start();
        let why = loop {
            if done >= range.end() {
                return Ok(());
            }
            match self.reserve_in_block(done, range.end()) {
                Ok(upto) => done = upto,
                Err(why) => break why,
            }
        };
        let pages = Pages::new(done.get() - range.start().get());
        self.restore(FrameRange::new(range.start(), pages).expect("a part of the range"));
        Err(why)
    }
    /// Undoes [`reserve`](Folios::reserve), which the caller did for the same range.
    pub fn restore(&self, range: FrameRange) {
        let mut at = range.start();
        while at < range.end() {
            let (_, region) = self.region_of(at).expect("what was reserved is memory");
            let (block, from, to) = within_block(region, at, range.end());
            region.restore(block, from, to);
            at = at.add(Pages::new((to - from) as u64));
        }
    }
    /// Reserves from `at` up to `end` or to where the block or the region ends; returns where that
    /// is.
    fn reserve_in_block(&self, at: Frame, end: Frame) -> Result<Frame, ReserveError> {
        let (_, region) = self.region_of(at).ok_or(ReserveError::Foreign(at))?;
        let (block, from, to) = within_block(region, at, end);
        match region.withhold(block, from, to) {
            Ok(()) => Ok(at.add(Pages::new((to - from) as u64))),
            Err(used) => Err(ReserveError::InUse(region.frame(block, used))),
        }
    }

    /// The region of a block that is named from outside.
    #[inline(always)]
    pub(super) fn named(&self, frame: Frame, order: Order) -> Result<(usize, &Region<'m>), Misuse> {
        if !frame.is_aligned(order.pages()) {
            return Err(Misuse::Misaligned { frame, order });
        }
        self.region_of(frame).ok_or(Misuse::Foreign { frame, order })
    }
    /// Why there is no allocated block of `order` at `frame`.
    #[cold]
    pub fn misuse(&self, frame: Frame, order: Order) -> Misuse {
        match self.state(frame) {
            FrameState::Foreign => Misuse::Foreign { frame, order },
            FrameState::Reserved => Misuse::Reserved { frame, order },
            FrameState::Allocated { head, order: held } if (head, held) != (frame, order) => {
                Misuse::WrongOrder { frame, order, head, held }
            }
            // The frame is free; or another call took it at this moment, and then it was free when
            // we looked first.
            FrameState::Free | FrameState::Allocated { .. } => {
                Misuse::NotAllocated { frame, order }
            }
        }
    }
}

/// The block of `at`, and the part of it from `at` up to `end` or the end of the block or region.
pub(super) fn within_block(region: &Region<'_>, at: Frame, end: Frame) -> (usize, u32, u32) {
    let (block, from) = region.locate(at);
    let end = end.min(region.range().end());
    let to = (from.0 as u64 + end.get() - at.get()).min(FRAMES as u64) as u32;
    (block, from.0, to)
}

fn give_run(region: &Region<'_>, head: usize, order: u32) -> Option<()> {
    region.phase(head, order, Phase::InFlight)?;
    let run = 1 << (order - SIZE_2M);
    (head..head + run).rev().for_each(|block| region.release_whole(block));
    Some(())
}

fn split_run(region: &Region<'_>, head: usize, order: u32, into: u32) -> Option<()> {
    region.phase(head, order, Phase::InFlight)?;
    let run = 1 << (order - SIZE_2M);
    (head..head + run).rev().for_each(|block| region.recut(block, into));
    Some(())
}
