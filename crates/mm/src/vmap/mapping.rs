//! Mapping memory that is not the room's own: frames of the caller's, and devices.

use super::fill::{KERNEL, Wanted};
use super::record::{Record, RecordWord};
use super::slots::fitting;
use super::{
    Backing, Caller, Guard, HugeIomap, HugeVmalloc, LeafSizes, Rights, Short, Vmap, VmapError,
};
use crate::table::{Attrs, Paging};
use foliant_machine::Machine;
use foliant_units::{Bytes, FRAME_BYTES, Frame, FrameRange, Level, Order, Pa, Pages, Va, VaRange};

/// How frames of the caller's are mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameMapping {
    /// Which leaves; large ones for plain rights only.
    pub leaves: LeafSizes,
    /// What kernel mode may do with it.
    pub rights: Rights,
    /// What follows behind.
    pub guard: Guard,
    /// The caller that asked.
    pub caller: Caller,
}

impl FrameMapping {
    /// Plain memory, by base pages, with a guard.
    pub const PLAIN: FrameMapping = FrameMapping {
        leaves: LeafSizes::Base,
        rights: Rights::Data,
        guard: Guard::Page,
        caller: Caller(0),
    };
}

/// Consecutive frames that are mapped as one, from an address on.
#[derive(Clone, Copy)]
struct MappedRun {
    va: Va,
    frames: FrameRange,
    attrs: Attrs,
    leaves: LeafSizes,
    largest: Level,
}

impl<'m, M: Machine, P: Paging> Vmap<'_, 'm, M, P> {
    /// Maps frames of the caller's one behind the other. Frames that follow each other in memory
    /// share large leaves, where those are wanted. The frames stay the caller's, and it gives them
    /// up only after [`unmap`](Self::unmap) and, where they may have another owner then, a
    /// [`purge`](Self::purge).
    pub fn map(&self, frames: &[Frame], how: &FrameMapping) -> Result<VaRange, VmapError> {
        let limit = 1u64 << (P::PA_BITS - 12);
        if frames.is_empty() {
            return Err(VmapError::Empty);
        }
        if let Some(beyond) = frames.iter().find(|frame| frame.get() >= limit) {
            return Err(VmapError::Frame(*beyond));
        }
        let top = how.leaves.largest().min(P::LEAF_TOP);
        let huge = top > Level::BASE
            && how.rights == Rights::Data
            && self.controls().huge_vmalloc == HugeVmalloc::Allowed;
        let pages = Pages::new(frames.len() as u64);
        let attrs = KERNEL | how.rights.attrs();
        let fits = |level: Level| level <= top && longest(frames, level);
        let done = self.descend((largest(huge, fits), Level::BASE), |largest| {
            let align = largest.span();
            let place = Wanted { pages, align, guard: how.guard };
            let area = self.place(&place, Backing::Frames)?;
            area.set(RecordWord::Caller, how.caller.0);
            let leaves = if huge { LeafSizes::Huge } else { LeafSizes::Base };
            let done = runs(frames).try_for_each(|(nth, run)| {
                let va = area.start().add(nth * FRAME_BYTES);
                self.lay(&area, MappedRun { va, frames: run, attrs, leaves, largest })
            });
            self.finish(&area, done)
        });
        done.map_err(VmapError::Short)
    }

    /// Maps a device: registers from `pa` on, uncached, by the largest leaves that fit unless
    /// [`HugeIomap::Never`] is set. The address returned has the offset of `pa` in its page.
    pub fn map_device(&self, pa: Pa, bytes: Bytes, caller: Caller) -> Result<Va, VmapError> {
        let inside = pa.get() % FRAME_BYTES;
        let frames = device_frames::<P>(pa, bytes)?;
        if let Some(range) = self.stock.folios.ranges().find(|range| range.overlaps(frames)) {
            return Err(VmapError::Managed(range.start().max(frames.start())));
        }
        let huge = self.controls().huge_iomap == HugeIomap::Allowed;
        let attrs = KERNEL | Rights::Data.attrs() | Attrs::DEVICE;
        let fits = |level: Level| {
            let align = level.order().unwrap_or(Order::BASE).pages();
            level <= P::LEAF_TOP && frames.start().is_aligned(align) && frames.pages() >= align
        };
        let range = self.descend((largest(huge, fits), Level::BASE), |largest| {
            let place = Wanted { pages: frames.pages(), align: largest.span(), guard: Guard::Page };
            let area = self.place(&place, Backing::Device)?;
            area.set(RecordWord::Caller, caller.0);
            area.set(RecordWord::Phys, pa.get());
            area.set(RecordWord::Bytes, bytes.get());
            let (va, leaves) = (area.start(), if huge { LeafSizes::Huge } else { LeafSizes::Base });
            let done = self.lay(&area, MappedRun { va, frames, attrs, leaves, largest });
            self.finish(&area, done)
        })?;
        Ok(range.start().add(inside))
    }

    fn finish(&self, area: &Record<'m>, done: Result<(), Short>) -> Result<VaRange, Short> {
        match done {
            Ok(()) => {
                let range = area.mapped();
                self.let_go(area); // its record is anybody's from here on
                Ok(range)
            }
            Err(short) => {
                self.dismantle(area);
                Err(short)
            }
        }
    }
    /// Maps consecutive frames, by the largest leaves for which both addresses are aligned.
    fn lay(&self, area: &Record<'m>, stretch: MappedRun) -> Result<(), Short> {
        let end = stretch.va.add(stretch.frames.pages().bytes().get());
        let whole = VaRange::new(stretch.va, end).expect("it grows");
        let matching = |va: Va| {
            let pa = stretch.frames.start().pa().add(va.offset_from(whole.start()));
            let mut level = fitting(va, end, stretch.largest);
            while let Some(down) = level.down().filter(|_| !pa.is_aligned(level.span())) {
                level = down;
            }
            (level, pa.frame())
        };
        let mut va = whole.start();
        while va < end {
            let (level, frame) = matching(va);
            let span = level.span().get();
            // Leaves of this level follow each other in this table up to `upto`.
            let table = va.align_down(level.up().span()).add(level.up().span().get()).min(end);
            let mut upto = va.add(span);
            while upto < table && matching(upto).0 == level {
                upto = upto.add(span);
            }
            let part = VaRange::new(va, upto).expect("it grows");
            if level > Level::BASE {
                self.clear_slots(part, level)?;
            }
            self.reach(va, level)?;
            let frames = FrameRange::new(frame, part.pages()).expect("frames that were checked");
            self.write(area, (va, level), frames, stretch.attrs, stretch.leaves)?;
            va = upto;
        }
        Ok(())
    }
}

/// The largest leaf that fits, if large ones are wanted.
fn largest(huge: bool, fits: impl Fn(Level) -> bool) -> Level {
    let wanted =
        [Level::SIZE_1G, Level::SIZE_2M].into_iter().filter(|_| huge).find(|level| fits(*level));
    wanted.unwrap_or(Level::BASE)
}

/// Frames that follow each other, and where in the list they begin.
fn runs(frames: &[Frame]) -> impl Iterator<Item = (u64, FrameRange)> {
    let mut at = 0;
    frames.chunk_by(|a, b| a.get() + 1 == b.get()).map(move |run| {
        let first = at;
        at += run.len() as u64;
        let pages = Pages::new(run.len() as u64);
        (first, FrameRange::new(run[0], pages).expect("frames that were checked"))
    })
}

/// Whether some leaf of `level` can map a part of the list, where the area is aligned to the leaf.
fn longest(frames: &[Frame], level: Level) -> bool {
    let pages = level.order().unwrap_or(Order::BASE).pages();
    runs(frames).any(|(nth, run)| {
        let skip = nth.next_multiple_of(pages.get()) - nth;
        run.start().add(Pages::new(skip)).is_aligned(pages)
            && run.pages().get() >= skip.saturating_add(pages.get())
    })
}

fn device_frames<P: Paging>(pa: Pa, bytes: Bytes) -> Result<FrameRange, VmapError> {
    if bytes.get() == 0 {
        return Err(VmapError::Empty);
    }
    let end = pa.get().checked_add(bytes.get()).filter(|end| *end <= 1 << P::PA_BITS);
    let end = end.ok_or(VmapError::Overflow(pa, bytes))?;
    let pages = end.div_ceil(FRAME_BYTES) - pa.frame().get();
    FrameRange::new(pa.frame(), Pages::new(pages)).ok_or(VmapError::Overflow(pa, bytes))
}
