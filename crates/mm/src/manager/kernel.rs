//! The things that the kernel around the manager takes for itself: blocks, and leaves in its half
//! of the address space.

use super::Manager;
use super::look::KernelTables;
use crate::folio::{Class, FrameState, Misuse, ReserveError};
use crate::frame::{Claim, Kind};
use crate::stock::{NoBlock, NoTable, Supply};
use crate::sync::{Ordering, Outside};
use crate::table::{Attrs, Blocked, Entry, Half, MapStop, Paging, Refused, Roots, Spare};
use core::{error, fmt};
use foliant_machine::{Machine, Owner};
use foliant_units::{Frame, FrameRange, Level, Order, Va, VaRange};

/// Why a kernel range was not mapped. Nothing of it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelMapError {
    /// The request itself was wrong, or something is there already.
    Refused(Refused),
    /// The address is one of the manager's own: its descriptors or its kernel ranges lie there.
    Own(Va),
    /// The top table has no word for this address, and spaces have copies of it that would not get
    /// the new one.
    Top(Va),
    /// No frame for a page table.
    NoMemory,
}

impl fmt::Display for KernelMapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KernelMapError::Refused(refused) => refused.fmt(f),
            KernelMapError::Own(va) => {
                write!(
                    f,
                    "{va} is the manager's: descriptors or kernel ranges lie there, choose others"
                )
            }
            KernelMapError::Top(va) => write!(
                f,
                "the top table has no word for {va}, and spaces have copies of it: reach the address before the first space is made"
            ),
            KernelMapError::NoMemory => f.write_str("no frame is left for a page table"),
        }
    }
}
impl error::Error for KernelMapError {}

impl KernelMapError {
    /// Why tables for `va` were not made.
    fn unreached(why: NoTable, va: Va) -> KernelMapError {
        match why {
            NoTable::Record(_) => KernelMapError::NoMemory,
            NoTable::Blocked(Blocked::Refused(refused)) => KernelMapError::Refused(refused),
            NoTable::Blocked(_) => KernelMapError::Refused(Refused::Live(va)),
        }
    }
}

/// Why a block was not taken back. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotLent {
    /// No such block is out at all.
    NoBlock(Misuse),
    /// The block is in use, and was not lent.
    InUse {
        /// Its first frame.
        frame: Frame,
        /// Its size.
        order: Order,
        /// Its kind: plain is a table or a record of the manager's, or a block that is just being
        /// taken.
        kind: Kind,
    },
}

impl fmt::Display for NotLent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotLent::NoBlock(misuse) => misuse.fmt(f),
            NotLent::InUse { frame, order, kind } => write!(
                f,
                "frame {frame} (order {order}) is in use as {kind:?} and was not lent: give back what `lend` returned"
            ),
        }
    }
}
impl error::Error for NotLent {}
impl From<Misuse> for NotLent {
    fn from(misuse: Misuse) -> NotLent {
        NotLent::NoBlock(misuse)
    }
}

impl<'m, M: Machine, P: Paging> Manager<'m, M, P> {
    /// Takes a block for the kernel's own use: stacks, per-CPU data, a heap. No descriptors are
    /// made for it. It keeps its former contents, and is the embedder's until
    /// [`take_back`](Manager::take_back).
    pub fn lend(&self, order: Order) -> Result<Frame, NoBlock> {
        let _work = self.stock.at_work();
        Ok(self.hand_out(self.claim_loan(order)?))
    }
    /// Takes a block to be lent, with all that its loan needs.
    pub(super) fn claim_loan(&self, order: Order) -> Result<Claim, NoBlock> {
        let claim = self.stock.claim_undescribed(order, Class::Unmovable)?;
        match self.stock.ready_loan(claim.frame()) {
            Ok(()) => Ok(claim),
            Err(NoBlock { .. }) => {
                self.stock.put_back(claim);
                Err(NoBlock { order })
            }
        }
    }
    /// Lends it.
    pub(super) fn hand_out(&self, claim: Claim) -> Frame {
        self.stock.begin_loan(claim.frame());
        self.stock.machine.owned(claim.frames(), Owner::Reserved);
        claim.into_raw().0
    }
    /// Takes a lent block back. The caller has ended all mappings of it, and flushed them
    /// everywhere. A block that was not lent, or not as this block, is refused, whatever else it
    /// is.
    pub fn take_back(&self, frame: Frame, order: Order) -> Result<(), NotLent> {
        let (folios, me) = (&self.stock.folios, self.stock.machine.me());
        let block = FrameState::Allocated { head: frame, order };
        // A wrong order leaves the loan to the caller that knows the right one.
        if folios.state(frame) != block {
            return Err(NotLent::NoBlock(folios.misuse(frame, order)));
        }
        if !self.stock.end_loan(frame) {
            return Err(NotLent::InUse { frame, order, kind: self.stock.look(frame).kind() });
        }
        // It is this call's alone from here on (stock::lent::N1).
        if folios.state(frame) == block
            && let Some(frames) = FrameRange::new(frame, order.pages())
        {
            self.stock.machine.owned(frames, Owner::Free); // before anybody can get it
        }
        folios.free(me, frame, order).map_err(|misuse| {
            self.stock.begin_loan(frame);
            NotLent::NoBlock(misuse)
        })
    }
    /// Takes frames out for good: broken ones that nobody has. All must be free.
    pub fn reserve(&self, range: FrameRange) -> Result<(), ReserveError> {
        loop {
            match self.stock.folios.reserve(range) {
                Ok(()) => break,
                // Its block is closed for a moment, or the frame has just come back: look again.
                Err(ReserveError::InUse(frame))
                    if self.stock.folios.state(frame) == FrameState::Free =>
                {
                    self.stock.machine.relax();
                }
                Err(why) => return Err(why),
            }
        }
        self.stock.machine.owned(range, Owner::Reserved);
        Ok(())
    }

    /// The tables of the kernel half, to look at.
    pub fn kernel_tables(&self) -> KernelTables<'_, 'm, M, P> {
        KernelTables::new(&self.stock)
    }

    /// Makes the tables for a kernel address down to the one that holds entries of `level`. Where
    /// both halves have one root, the part of the kernel half that one word of the top table
    /// translates is to be reached before the first space is made: a space has a copy of that word
    /// from its beginning.
    pub fn reach_kernel(&self, va: Va, level: Level) -> Result<(), KernelMapError> {
        let _mapping = self.mapping.lock(self.stock.machine, &mut Outside::at_the_face());
        if self.own.iter().any(|own| own.contains(va)) {
            return Err(KernelMapError::Own(va));
        }
        if self.is_closed(va) {
            return Err(KernelMapError::Top(va));
        }
        let done = Supply::of_kernel(&self.stock).ensure(&self.stock.kernel, va, level);
        done.map_err(|why| KernelMapError::unreached(why, va))
    }
    /// Whether the top table has no word for a kernel address and gets none any more, because
    /// spaces have copies of it (table::I7). The caller holds `mapping`.
    fn is_closed(&self, va: Va) -> bool {
        let is_shared = P::ROOTS == Roots::Shared && self.has_spaces.load(Ordering::Relaxed) != 0;
        let found = self.stock.kernel.walk(va);
        let is_empty = found.level == P::TOP && found.entry == Entry::None;
        is_shared && is_empty && P::half_of(va) == Some(Half::Kernel)
    }
    /// Makes a space, or what else has a copy of the kernel half's top words: once there is one,
    /// they stay as they are.
    pub(super) fn copying_top<R, E>(&self, make: impl FnOnce() -> Result<R, E>) -> Result<R, E> {
        if self.has_spaces.load(Ordering::Acquire) != 0 {
            return make();
        }
        let _mapping = self.mapping.lock(self.stock.machine, &mut Outside::at_the_face());
        let made = make()?;
        self.has_spaces.store(1, Ordering::Release);
        Ok(made)
    }

    /// Maps a kernel range to the frames from `first` on, by base pages. Entries that were absent
    /// become present, so nothing is flushed. All tables are made first: where memory runs out,
    /// nothing was mapped, and where it is seen that it would, none was made. One such call is at
    /// work at a time. Once there are spaces, a range is refused for which the top table has no
    /// word, as for [`reach_kernel`](Self::reach_kernel).
    pub fn map_kernel(
        &self,
        range: VaRange,
        first: Frame,
        attrs: Attrs,
    ) -> Result<(), KernelMapError> {
        if let Some(own) = self.own.iter().find(|own| own.overlaps(range)) {
            return Err(KernelMapError::Own(own.intersect(range).start()));
        }
        let machine = self.stock.machine;
        let _mapping = self.mapping.lock(machine, &mut Outside::at_the_face());
        // Tables of the kernel half stay, so none is made for a range that is refused (M1).
        self.stock.kernel.check_map(range, first).map_err(KernelMapError::Refused)?;
        let mut next = Some(range.start());
        while let Some(va) = next.filter(|va| *va < range.end()) {
            if self.is_closed(va) {
                return Err(KernelMapError::Top(va));
            }
            next = va.align_down(P::TOP.span()).checked_add(P::TOP.span().get());
        }
        if self.stock.kernel.missing_in(range, || ()) > self.stock.folios.free_frames() {
            return Err(KernelMapError::NoMemory);
        }
        let reached = Supply::of_kernel(&self.stock).ensure_range(
            &self.stock.kernel,
            range,
            Level::BASE,
            || (),
        );
        reached.map_err(|why| KernelMapError::unreached(why, range.start()))?;
        let mapped = self.stock.kernel.map(range, first, attrs, Level::BASE, &mut Spare::new());
        let mapped = mapped.map_err(KernelMapError::Refused)?;
        assert_eq!(mapped.why, MapStop::Done, "its tables are there, and nobody else maps");
        Ok(())
    }
}
