//! Frames of every page size, for code that takes a `FrameAllocator`.
#![allow(unsafe_code)]

use crate::folio::{Class, Folios};
use crate::manager::{Manager, NotLent};
use crate::table::Paging;
use foliant_machine::Machine;
use foliant_units::{Bytes, Cpu, Frame, Order, Pa};
use x86_64::PhysAddr;
use x86_64::structures::paging::{FrameAllocator, FrameDeallocator, PageSize, PhysFrame};

/// A source that frames come from and go back to: the allocator alone, or a manager.
pub trait FrameSource {
    /// Takes a block, whatever is in it.
    fn take(&self, order: Order) -> Option<Frame>;
    /// Gives it back.
    fn give(&self, frame: Frame, order: Order) -> Result<(), NotLent>;
}

/// The allocator alone, as one CPU uses it.
#[derive(Clone, Copy, Debug)]
pub struct OneCpu<'a, 'm> {
    /// The allocator.
    pub folios: &'a Folios<'m>,
    /// The CPU that asks.
    pub cpu: Cpu,
    /// What the frames are for.
    pub class: Class,
}

impl FrameSource for OneCpu<'_, '_> {
    fn take(&self, order: Order) -> Option<Frame> {
        self.folios.alloc(self.cpu, order, self.class).ok()
    }
    fn give(&self, frame: Frame, order: Order) -> Result<(), NotLent> {
        Ok(self.folios.free(self.cpu, frame, order)?)
    }
}

/// Frames that a manager lends the kernel around it.
impl<M: Machine, P: Paging> FrameSource for &Manager<'_, M, P> {
    fn take(&self, order: Order) -> Option<Frame> {
        self.lend(order).ok()
    }
    fn give(&self, frame: Frame, order: Order) -> Result<(), NotLent> {
        self.take_back(frame, order)
    }
}

/// A `FrameAllocator` and `FrameDeallocator` of 4 KiB, 2 MiB and 1 GiB.
#[derive(Clone, Copy, Debug)]
pub struct Frames<S> {
    source: S,
    refused: Option<NotLent>,
}

impl<S: FrameSource> Frames<S> {
    /// Frames from `source`.
    pub const fn new(source: S) -> Frames<S> {
        Frames { source, refused: None }
    }
    /// The last frame that was given back and not taken, with the reason.
    pub const fn refused(&self) -> Option<NotLent> {
        self.refused
    }
}

/// The order of a page size.
fn order<S: PageSize>() -> Option<Order> {
    Order::fitting(Bytes::new(S::SIZE)).filter(|order| order.bytes().get() == S::SIZE)
}

// SAFETY: adapt::B1: a block is out once, from when the allocator hands it out to when it comes
// back (folio::I1).
unsafe impl<S: FrameSource, Z: PageSize> FrameAllocator<Z> for Frames<S> {
    /// Gives none where no block of that size is free, or none that the crate has an address for
    /// (52 bits).
    fn allocate_frame(&mut self) -> Option<PhysFrame<Z>> {
        let order = order::<Z>()?;
        let frame = self.source.take(order)?;
        let named = PhysAddr::try_new(frame.pa().get()).ok();
        if named.is_none() {
            self.refused = self.source.give(frame, order).err().or(self.refused);
        }
        named.map(PhysFrame::containing_address)
    }
}

impl<S: FrameSource, Z: PageSize> FrameDeallocator<Z> for Frames<S> {
    /// The frame must not be mapped any more on any CPU, flushed everywhere. Misuse changes nothing
    /// ([`refused`](Frames::refused)).
    unsafe fn deallocate_frame(&mut self, frame: PhysFrame<Z>) {
        let pa = Pa::new(frame.start_address().as_u64());
        if let Some(order) = order::<Z>() {
            self.refused = self.source.give(pa.frame(), order).err().or(self.refused);
        }
    }
}
