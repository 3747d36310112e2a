//! The shared tail frames: one per size of huge page, made when the first page of the size is
//! folded, kept for good.

use super::Memmap;
use crate::folio::Class;
use crate::frame::{DESCRIPTOR_BYTES, Identity, Kind};
use crate::stock::{Event, NoBlock, Words, words};
use crate::sync::{AtomicU64, Ordering};
use crate::table::Paging;
use foliant_machine::{Machine, Owner};
use foliant_units::{Frame, Order};

/// Words of a descriptor.
const STEP: usize = DESCRIPTOR_BYTES.get() as usize / 8;

/// The frames, with 1 added; 0 for none yet.
#[derive(Default)]
pub(super) struct Shares {
    size_2m: AtomicU64,
    size_1g: AtomicU64,
}

impl Shares {
    fn of(&self, order: Order) -> &AtomicU64 {
        if order == Order::SIZE_2M { &self.size_2m } else { &self.size_1g }
    }
    /// The tail frame for `order`, if it is there.
    pub(super) fn get(&self, order: Order) -> Option<Frame> {
        self.of(order).load(Ordering::Acquire).checked_sub(1).map(Frame::new)
    }
    /// Whether `frame` is one of them.
    pub(super) fn has(&self, frame: Frame) -> bool {
        [Order::SIZE_2M, Order::SIZE_1G].into_iter().any(|order| self.get(order) == Some(frame))
    }
}

impl<M: Machine, P: Paging> Memmap<'_, '_, M, P> {
    /// The tail frame for `order`. It is filled before anybody can map it (G2).
    pub(super) fn share(&self, order: Order) -> Result<Frame, NoBlock> {
        let shares = &self.state.shares;
        if let Some(frame) = shares.get(order) {
            return Ok(frame);
        }
        let claim = self.stock.claim_undescribed(Order::BASE, Class::Unmovable)?;
        self.stock.clear(&claim);
        self.stock.machine.owned(claim.frames(), Owner::Records);
        let page: &Words = words(self.stock.machine, claim.frame().pa());
        let tail = Identity::new(Kind::HugeTail, order).word();
        page.iter().step_by(STEP).for_each(|word| word.store(tail, Ordering::Relaxed));
        let made = claim.frame().get() + 1;
        match shares.of(order).compare_exchange(0, made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                self.stock.count(Event::MemmapPages);
                Ok(claim.into_raw().0)
            }
            Err(other) => {
                self.stock.release(claim);
                Ok(Frame::new(other - 1))
            }
        }
    }
}
