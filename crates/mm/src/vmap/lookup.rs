//! From an address to its frame, and visits to entries.

use super::area::{AreaState, AreaWord, Mark};
use super::record::RecordWord;
use super::{Vmap, VmapError};
use crate::stock::READ_MOST;
use crate::table::{Entry, Paging};
use foliant_machine::Machine;
use foliant_units::{Bytes, FRAME_BYTES, Frame, Level, Va, VaRange};

/// Pages that are visited together.
const COPIED: usize = 16;

/// Some pages of a range, and where the next one may be.
struct Copied {
    pages: [Option<(Va, Frame)>; COPIED],
    upto: Va,
}

impl<'m, M: Machine, P: Paging> Vmap<'_, 'm, M, P> {
    /// The frame of the base page at `va`, and the level of the leaf that maps it. Takes no lock.
    pub fn frame_at(&self, va: Va) -> Option<(Frame, Level)> {
        if !self.state.range.contains(va) {
            return None;
        }
        let _reading = self.stock.reading();
        self.page_at(va)
    }
    /// The same of an address whose tables stay: the caller is in a reader's section, or the area
    /// is lent to it.
    fn page_at(&self, va: Va) -> Option<(Frame, Level)> {
        let found = self.stock.kernel.walk(va);
        let Entry::Leaf { pa, .. } = found.entry else { return None };
        Some((pa.add(va.offset_from(found.va)).frame(), found.level))
    }

    /// Whether `bytes` from `va` on lie in one area that is in use, within the size that was asked
    /// for. A copy to or from a program has to know this.
    pub fn check_bounds(&self, va: Va, bytes: Bytes) -> Result<(), VmapError> {
        let opened = self.open();
        let area = opened.find(va).ok_or(VmapError::NoArea(va))?;
        match AreaWord::of(&area).state() {
            AreaState::Lazy => return Err(VmapError::Freed(area.start())),
            AreaState::Building => return Err(VmapError::Busy(area.start())),
            AreaState::InUse | AreaState::Working => {}
        }
        let start = area.name();
        let end = start.add(area.get(RecordWord::Bytes));
        if va < start {
            return Err(VmapError::Beyond { va });
        }
        let last = va.checked_add(bytes.get()).filter(|upto| *upto <= end && va < end);
        last.map(|_| ()).ok_or(VmapError::Beyond { va: end.max(va) })
    }

    /// Hands each base page of `range` to `visit`. A leaf above base pages in it refuses the visit
    /// before it begins: code that works on entries would take the leaf for a table. The visitor
    /// gets copies of entries, a few at a time, and may do anything. If it, or another caller, has
    /// a large leaf put there meanwhile, the visit ends at that leaf.
    pub fn apply(&self, range: VaRange, mut visit: impl FnMut(Va, Frame)) -> Result<(), VmapError> {
        for va in [range.start(), range.end()] {
            if !va.is_aligned(Level::BASE.span()) {
                return Err(VmapError::Misaligned(va));
            }
        }
        if !self.state.range.covers(range) {
            return Err(VmapError::NoArea(range.start()));
        }
        let mut from = range.start();
        while from < range.end() {
            from = self.copy(from, range.end())?.upto;
        }
        let mut from = range.start();
        while from < range.end() {
            let copy = self.copy(from, range.end())?;
            copy.pages.into_iter().flatten().for_each(|(va, frame)| visit(va, frame));
            from = copy.upto;
        }
        Ok(())
    }
    /// Copies some of the pages from an address on, in a section of its own.
    fn copy(&self, from: Va, end: Va) -> Result<Copied, VmapError> {
        let range = VaRange::new(from, end).expect("what is left of a range");
        let mut pages = [None; COPIED];
        let _reading = self.stock.reading();
        let mut leaves = self.stock.kernel.leaves(range).within(READ_MOST);
        for (page, leaf) in pages.iter_mut().zip(&mut leaves) {
            if leaf.level > Level::BASE {
                return Err(VmapError::Leaf(leaf.va, leaf.level));
            }
            if let Entry::Leaf { pa, .. } = leaf.entry {
                *page = Some((leaf.va, pa.frame()));
            }
        }
        Ok(Copied { pages, upto: leaves.upto() })
    }

    /// Has `share` map the pages from `va` on elsewhere, while the area cannot go. `share` is
    /// handed a function that gives the n-th frame, which waits for nobody. Any number of such
    /// calls work together.
    pub(crate) fn shared<R>(
        &self,
        va: Va,
        bytes: Bytes,
        share: impl FnOnce(&dyn Fn(u64) -> Frame) -> R,
    ) -> Result<R, VmapError> {
        if !va.is_aligned(Level::BASE.span()) {
            return Err(VmapError::Misaligned(va));
        }
        let area = self.lend(va)?;
        let mapped = area.mapped();
        let wanted = mapped.start().add(area.get(RecordWord::Bytes).next_multiple_of(FRAME_BYTES));
        let inside = va.checked_add(bytes.get()).is_some_and(|end| end <= wanted);
        let done = if !AreaWord::of(&area).has(Mark::Users) {
            Err(VmapError::NotForUsers(area.start()))
        } else if !inside {
            Err(VmapError::Beyond { va: wanted })
        } else {
            let frame = |n: u64| self.page_at(va.add(n * FRAME_BYTES));
            Ok(share(&|n| frame(n).expect("an area in use is mapped (vmap::V4)").0))
        };
        self.take_back(&area);
        done
    }
}
