//! Other rights for a part of an area.
//!
//! ```text
//!   2 MiB leaf, data ─split─▶ 512 entries, data ─flush─▶ ─change─▶ data │ constant, the pages meant │ data ─flush─▶ done
//! ```
//!
//! Old translations of the same frames elsewhere may still be writable: lazy ranges are purged
//! before. Where live entries are not replaced in place, the leaves meant are broken, flushed and
//! made again; an access to them meanwhile faults, so the caller sees to it that there is none. A
//! leaf that reaches over an end cannot be split there at all: its neighbours are in use.

use super::area::{AreaWord, For, Mark};
use super::record::Record;
use super::{Rights, Short, Vmap, VmapError};
use crate::flush::{Gather, Used};
use crate::stock::{Event, Supply};
use crate::table::{Change, Entry, Harvest, Paging, Spare, Stop};
use foliant_machine::{Machine, Replace};
use foliant_units::{Bytes, Level, Va, VaRange};

impl<'a, 'm, M: Machine, P: Paging> Vmap<'a, 'm, M, P> {
    /// Gives `range`, which lies in one area, other rights. Its neighbours keep theirs. When the
    /// area is given back it is flushed before its frames go.
    pub fn protect(&self, range: VaRange, rights: Rights) -> Result<(), VmapError> {
        for va in [range.start(), range.end()] {
            if !va.is_aligned(Level::BASE.span()) {
                return Err(VmapError::Misaligned(va));
            }
        }
        if range.is_empty() {
            return Err(VmapError::Empty);
        }
        let area = self.seize(range.start(), For::Any, |_| Ok(()))?;
        let done = self.protect_area(&area, range, rights);
        self.let_go(&area);
        done
    }

    fn protect_area(
        &self,
        area: &Record<'m>,
        range: VaRange,
        rights: Rights,
    ) -> Result<(), VmapError> {
        if !area.mapped().covers(range) {
            return Err(VmapError::Beyond { va: area.mapped().end() });
        }
        let ends = [range.start(), range.end()];
        ends.into_iter().try_for_each(|va| self.check_cut(area, va))?;
        self.purge();
        let mut gather = Gather::whole(self.stock, self.kernel);
        let cut = ends.into_iter().try_for_each(|va| self.cut(area, va, &mut gather));
        // The parts of a leaf say what it said until no CPU has the leaf (G3).
        gather.flush();
        if cut.is_ok() {
            AreaWord::of(area).with(Mark::Changed).put(area);
            self.change(range, rights, &mut gather);
        }
        gather.flush();
        cut
    }

    /// The leaf, or the group of leaves, that `va` is inside of and not at an end of.
    fn straddling(&self, va: Va) -> Option<(Va, Level)> {
        let found = self.stock.kernel.walk(va);
        let Entry::Leaf { attrs, .. } = found.entry else { return None };
        let words = P::unit(found.level, attrs) as u64;
        let span = Bytes::new(words * found.level.span().get());
        (!va.is_aligned(span)).then_some((va.align_down(span), found.level))
    }
    /// Refuses a cut that the machine does not allow.
    fn check_cut(&self, area: &Record<'m>, va: Va) -> Result<(), VmapError> {
        // What is outside of the area may be another's, whose tables may go: it is not walked (V3).
        if self.stock.machine.rules().replace == Replace::InPlace || !area.mapped().contains(va) {
            return Ok(());
        }
        let straddling = self.straddling(va);
        straddling.map_or(Ok(()), |(base, level)| Err(VmapError::CannotSplit(base, level)))
    }
    /// Makes `va` a boundary between leaves.
    fn cut(
        &self,
        area: &Record<'m>,
        va: Va,
        gather: &mut Gather<'a, 'm, M, P>,
    ) -> Result<(), VmapError> {
        while area.mapped().contains(va)
            && let Some((_, level)) = self.straddling(va)
        {
            let (mut supply, mut none) = (Supply::of_kernel(self.stock), Spare::new());
            // A group becomes single leaves in its own table.
            let spare = match level {
                Level::BASE => &mut none,
                _ => supply.one().map_err(|_| VmapError::Short(Short::Record))?,
            };
            let run = self.stock.kernel.split(va, level, spare);
            let run = run.expect("a leaf of an area that is this call's alone");
            gather.note(run.range(), level, Used::Yes);
            self.stock.count(Event::VmapSplit);
            let below = level.down().unwrap_or(Level::BASE);
            AreaWord::of(area).with_leaves(below).put(area);
        }
        Ok(())
    }
    /// Changes the leaves of `range`, none of which reaches over an end.
    fn change(&self, range: VaRange, rights: Rights, gather: &mut Gather<'a, 'm, M, P>) {
        let set = rights.attrs();
        let change = Change { set, clear: Rights::ALL.without(set) };
        let mut harvest = Harvest::new();
        let mut va = range.start();
        while va < range.end() {
            let left = VaRange::new(va, range.end()).expect("not behind the end");
            let swept = self.stock.kernel.protect(left, change, &mut harvest);
            let swept = swept.expect("an area lies in the kernel half");
            assert!(matches!(swept.why, Stop::Done | Stop::Full), "its leaves were cut (vmap::V4)");
            harvest.runs().for_each(|run| gather.note(run.range(), run.level, Used::Yes));
            harvest.clear_runs();
            va = swept.upto;
        }
        if self.stock.machine.rules().replace == Replace::BreakBeforeMake {
            gather.flush();
            let mended = self.stock.kernel.mend(range).expect("an area lies in the kernel half");
            assert_eq!(mended.why, Stop::Done, "nobody else works on the area");
        }
    }
}
