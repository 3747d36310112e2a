//! What the kernel around the manager takes for itself: blocks, and leaves in its half of the address space.

use super::Manager;
use crate::folio::{Class, Misuse, State};
use crate::stock::NoBlock;
use crate::table::{Attrs, Blocked, MapStop, Paging, Refused, Spare, Tables};
use core::{error, fmt};
use foliant_machine::{Machine, Owner};
use foliant_units::{Frame, FrameRange, Level, Order, Va, VaRange};

/// Why a kernel range was not mapped. Nothing of it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelMapError {
    /// The request itself was wrong, or something is there already.
    Refused(Refused),
    /// No frame for a page table.
    NoMemory,
}

impl fmt::Display for KernelMapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KernelMapError::Refused(refused) => refused.fmt(f),
            KernelMapError::NoMemory => f.write_str("no frame is left for a page table"),
        }
    }
}
impl error::Error for KernelMapError {}

impl<'m, M: Machine, P: Paging> Manager<'m, M, P> {
    /// Takes a block for the kernel's own use: stacks, per-CPU data, a heap. It has no descriptors, holds whatever was in
    /// it before, and is the embedder's until [`take_back`](Manager::take_back).
    pub fn lend(&self, order: Order) -> Result<Frame, NoBlock> {
        let claim = self.stock.claim_undescribed(order, Class::Unmovable)?;
        self.stock.machine.owned(claim.frames(), Owner::Reserved);
        Ok(claim.give().0)
    }
    /// Takes a lent block back. Nothing maps it any more, flushed everywhere. A block that was not lent is refused.
    pub fn take_back(&self, frame: Frame, order: Order) -> Result<(), Misuse> {
        let lent = State::Allocated { head: frame, order };
        if self.stock.folios.state(frame) == lent
            && let Some(frames) = FrameRange::new(frame, order.pages())
        {
            self.stock.machine.owned(frames, Owner::Free); // before anybody can get it
        }
        self.stock.folios.free(self.stock.machine.me(), frame, order)
    }

    /// The tables of the kernel half. Their top words are made at setup: spaces repeat them.
    pub fn kernel_tables(&self) -> Tables<'m, M, P> {
        self.stock.kernel
    }

    /// Makes the tables for a kernel address down to the one that holds entries of `level`.
    pub fn reach_kernel(&self, va: Va, level: Level) -> Result<(), KernelMapError> {
        self.with_spare(|spare| match self.stock.kernel.ensure(va, level, spare) {
            Ok(()) => Some(Ok(())),
            Err(Blocked::NeedTable(_)) => None,
            Err(Blocked::Refused(refused)) => Some(Err(KernelMapError::Refused(refused))),
            Err(_) => Some(Err(KernelMapError::Refused(Refused::Live(va)))),
        })
    }

    /// Maps a kernel range to the frames from `first` on, by base pages. What was absent becomes present, so nothing is
    /// flushed. All tables are made first: where memory runs out, nothing was mapped.
    pub fn map_kernel(
        &self,
        range: VaRange,
        first: Frame,
        attrs: Attrs,
    ) -> Result<(), KernelMapError> {
        let mut va = range.start();
        while va < range.end() {
            self.reach_kernel(va, Level::BASE)?;
            va = va.align_down(Level::MEGA.span()).add(Level::MEGA.span().get());
        }
        let mapped = self.stock.kernel.map(range, first, attrs, Level::BASE, &mut Spare::new());
        let mapped = mapped.map_err(KernelMapError::Refused)?;
        assert_eq!(mapped.why, MapStop::Done, "all tables were made before");
        Ok(())
    }

    /// Repeats `step` until it has an answer; before each next try one more table is ready.
    fn with_spare(
        &self,
        step: impl Fn(&mut Spare) -> Option<Result<(), KernelMapError>>,
    ) -> Result<(), KernelMapError> {
        let mut spare = Spare::new();
        let done = loop {
            if let Some(done) = step(&mut spare) {
                break done;
            }
            if self.stock.refill(&mut spare, 1).is_err() {
                break Err(KernelMapError::NoMemory);
            }
        };
        self.stock.drain(&mut spare);
        done
    }
}
