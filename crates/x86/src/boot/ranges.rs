//! From a loader's map to ranges of frames.

use super::Entry;
use foliant_units::{FRAME_BYTES, Frame, FrameRange, Pa, Pages};

/// Ranges of usable frames, in order and disjoint, without a heap.
#[derive(Clone, Copy, Debug)]
pub struct Ranges {
    list: [FrameRange; Ranges::MAX],
    len: usize,
}

impl Ranges {
    /// How many there are at most.
    pub const MAX: usize = 32;

    /// The frames from `above` to `below` that lie wholly in usable memory. Where entries
    /// contradict each other, the one that is not usable memory is right. Ranges that do not fit
    /// the list are left unused.
    pub fn usable(entries: impl Iterator<Item = Entry> + Clone, above: Pa, below: Pa) -> Ranges {
        let mut ranges = Ranges { list: [FrameRange::default(); Ranges::MAX], len: 0 };
        let entries = entries.filter(|entry| entry.bytes.get() > 0);
        let inside = |entry: &Entry| {
            let end = entry.start.get().saturating_add(entry.bytes.get());
            (entry.start.get().max(above.get()), end.min(below.get()))
        };
        for (start, end) in entries.clone().filter(Entry::is_ram).map(|entry| inside(&entry)) {
            ranges.add(start.div_ceil(FRAME_BYTES), end / FRAME_BYTES);
        }
        for (start, end) in entries.filter(|entry| !entry.is_ram()).map(|entry| inside(&entry)) {
            ranges.cut(start / FRAME_BYTES, end.div_ceil(FRAME_BYTES));
        }
        ranges
    }
    /// The ranges, lowest first.
    pub fn get(&self) -> &[FrameRange] {
        &self.list[..self.len]
    }
    /// The range that holds all of `part`.
    pub fn around(&self, part: FrameRange) -> Option<FrameRange> {
        let mut ranges = self.get().iter().copied();
        ranges.find(|range| range.start() <= part.start() && part.end() <= range.end())
    }

    /// Takes frames in, and makes one range of them and the ranges that they touch.
    fn add(&mut self, mut start: u64, mut end: u64) {
        let mut kept = 0;
        for n in 0..self.len {
            let (first, last) = self.ends(n);
            if last < start || end < first {
                self.list[kept] = self.list[n];
                kept += 1;
            } else {
                (start, end) = (start.min(first), end.max(last));
            }
        }
        self.len = kept;
        self.insert(start, end);
    }
    /// Takes frames out. The parts that are left of a range end where the cut begins, or begin
    /// where it ends, and the loop passes them by.
    fn cut(&mut self, start: u64, end: u64) {
        let mut n = 0;
        while n < self.len {
            let (first, last) = self.ends(n);
            if last <= start || end <= first {
                n += 1;
                continue;
            }
            self.list.copy_within(n + 1..self.len, n);
            self.len -= 1;
            // The larger part goes in first: where the list is full the other one is left out.
            let mut parts = [(first, start), (end, last)];
            parts.sort_unstable_by_key(|(first, last)| {
                core::cmp::Reverse(last.saturating_sub(*first))
            });
            for (first, last) in parts {
                self.insert(first, last);
            }
        }
    }
    /// Puts frames that touch no other range in their place, if there are any and there is room.
    fn insert(&mut self, start: u64, end: u64) {
        let pages = Pages::new(end.saturating_sub(start));
        let range = FrameRange::new(Frame::new(start), pages).filter(|_| pages.get() > 0);
        let Some(range) = range.filter(|_| self.len < Ranges::MAX) else { return };
        let at = self.get().partition_point(|other| other.start() < range.start());
        self.list.copy_within(at..self.len, at + 1);
        self.list[at] = range;
        self.len += 1;
    }
    fn ends(&self, n: usize) -> (u64, u64) {
        (self.list[n].start().get(), self.list[n].end().get())
    }
}
