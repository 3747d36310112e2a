//! Half-open ranges of frames and of virtual addresses.

use crate::{Bytes, FRAME_BYTES, Frame, Order, Pages, Va};
use core::fmt;

/// Frames from `start` on, `pages` of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct FrameRange {
    start: Frame,
    pages: Pages,
}

impl FrameRange {
    /// The range, or `None` where its end would not be a frame of a 64-bit address.
    pub const fn new(start: Frame, pages: Pages) -> Option<FrameRange> {
        let range = FrameRange { start, pages };
        if range.is_possible() { Some(range) } else { None }
    }
    /// The frames of the block of `order` that begins with `head`, which lies in memory.
    #[inline]
    pub const fn block(head: Frame, order: Order) -> FrameRange {
        let range = FrameRange { start: head, pages: order.pages() };
        debug_assert!(range.is_possible(), "a block lies in memory");
        range
    }
    const fn is_possible(self) -> bool {
        const LIMIT: u64 = 1 << 52;
        self.start.get() <= LIMIT && self.pages.get() <= LIMIT - self.start.get()
    }
    /// The first frame.
    pub const fn start(self) -> Frame {
        self.start
    }
    /// The frame behind the last.
    pub const fn end(self) -> Frame {
        self.start.add(self.pages)
    }
    /// How many frames.
    pub const fn pages(self) -> Pages {
        self.pages
    }
    /// Whether `frame` lies inside.
    pub const fn contains(self, frame: Frame) -> bool {
        frame.get() >= self.start.get() && frame.get() < self.end().get()
    }
    /// Whether the two share a frame.
    pub const fn overlaps(self, other: FrameRange) -> bool {
        self.start.get() < other.end().get() && other.start.get() < self.end().get()
    }
    /// The frames, lowest first.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = Frame> {
        (self.start.get()..self.end().get()).map(Frame::new)
    }
}

/// Virtual addresses from `start` up to but not including `end`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct VaRange {
    start: Va,
    end: Va,
}

impl VaRange {
    /// `start..end`, or `None` where `end` lies below `start`.
    pub const fn new(start: Va, end: Va) -> Option<VaRange> {
        if start.get() <= end.get() { Some(VaRange { start, end }) } else { None }
    }
    /// `bytes` from `start` on, or `None` where that overflows.
    pub const fn sized(start: Va, bytes: Bytes) -> Option<VaRange> {
        match start.checked_add(bytes.get()) {
            Some(end) => Some(VaRange { start, end }),
            None => None,
        }
    }
    /// The first address.
    pub const fn start(self) -> Va {
        self.start
    }
    /// The address behind the last.
    pub const fn end(self) -> Va {
        self.end
    }
    /// Bytes inside.
    pub const fn bytes(self) -> Bytes {
        Bytes::new(self.end.get() - self.start.get())
    }
    /// Pages inside; both ends must be page-aligned.
    pub const fn pages(self) -> Pages {
        Pages::new((self.end.get() - self.start.get()) / FRAME_BYTES)
    }
    /// Whether nothing lies inside.
    pub const fn is_empty(self) -> bool {
        self.start.get() == self.end.get()
    }
    /// Whether `va` lies inside.
    pub const fn contains(self, va: Va) -> bool {
        va.get() >= self.start.get() && va.get() < self.end.get()
    }
    /// Whether the whole of `other` lies inside.
    pub const fn covers(self, other: VaRange) -> bool {
        other.start.get() >= self.start.get() && other.end.get() <= self.end.get()
    }
    /// Whether the two share an address.
    pub const fn overlaps(self, other: VaRange) -> bool {
        self.start.get() < other.end.get() && other.start.get() < self.end.get()
    }
    /// What the two share; empty (at a bound of `self`) where that is nothing.
    pub fn intersect(self, other: VaRange) -> VaRange {
        let start = self.start.max(other.start).min(self.end);
        VaRange { start, end: self.end.min(other.end).max(start) }
    }
    /// Whether both ends are multiples of `size`, a power of two.
    pub const fn is_aligned(self, size: Bytes) -> bool {
        self.start.is_aligned(size) && self.end.is_aligned(size)
    }
}

impl fmt::Debug for FrameRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}+{:#x}", self.start, self.pages.get())
    }
}

impl fmt::Debug for VaRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}..{:#x}", self.start.get(), self.end.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_refuse_what_overflows() {
        assert!(VaRange::sized(Va::new(u64::MAX), Bytes::new(2)).is_none());
        assert!(VaRange::new(Va::new(2), Va::new(1)).is_none());
        assert!(FrameRange::new(Frame::new(1 << 52), Pages::new(1)).is_none());
    }

    #[test]
    fn intersections_are_never_inverted() {
        let r = |a, b| VaRange::new(Va::new(a), Va::new(b)).unwrap();
        assert_eq!(r(10, 20).intersect(r(15, 30)), r(15, 20));
        assert!(r(10, 20).intersect(r(30, 40)).is_empty());
        assert!(r(30, 40).intersect(r(10, 20)).is_empty());
        assert!(!r(10, 20).overlaps(r(20, 30)));
    }
}
