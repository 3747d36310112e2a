//! Giving an area back.

use super::area::{AreaState, AreaWord, For, Mark};
use super::record::Record;
use super::{Backing, PurgeMode, Vmap, VmapError, deferred};
use crate::flush::Gather;
use crate::frame::Link;
use crate::stock::Event;
use crate::table::{
    At, Attrs, Edit, Harvest, Paging, Prune, Run, Soft, Stop, Untold, Verdict, What,
};
use foliant_machine::{Machine, Retired};
use foliant_units::{FrameRange, Pa, Va, VaRange};

impl<'a, 'm, M: Machine, P: Paging> Vmap<'a, 'm, M, P> {
    /// Gives memory back, by its first address. Nobody uses it any more. Pages that programs map,
    /// or walkers hold, stay theirs until they let go.
    pub fn free(&self, va: Va) -> Result<(), VmapError> {
        let area = self.seize_named(va, For::Memory, |_| Ok(()))?;
        self.dismantle(&area);
        Ok(())
    }
    /// Ends a mapping of frames or of a device, by the address that was given for it. The frames
    /// are the caller's as before; on other CPUs translations to them may be cached until the next
    /// purge.
    pub fn unmap(&self, va: Va) -> Result<(), VmapError> {
        let area = self.seize_named(va, For::Mappings, |_| Ok(()))?;
        self.dismantle(&area);
        Ok(())
    }

    /// Takes apart an area that is this call's alone, whole or half made.
    pub(super) fn dismantle(&self, area: &Record<'m>) {
        let changed = AreaWord::of(area).has(Mark::Changed);
        if changed || self.controls().purge == PurgeMode::Eager {
            self.break_leaves(area);
            let mut gather = Gather::whole(self.stock, self.kernel);
            self.note(&mut gather, area);
            if gather.is_pending() {
                self.stock.count(Event::VmapFlush);
            }
            gather.flush();
            self.empty(area, None);
            self.vanish(area);
            return;
        }
        self.open().begin_emptying();
        self.empty(area, Some(Retired::Lazily));
        let opened = self.open();
        AreaWord::of(area).turned(AreaState::Lazy).put(area);
        let waiting = opened.push_lazy(*area);
        drop(opened);
        if waiting > self.lazy_max().get() {
            self.purge_some();
        }
    }
    /// Takes an area out of the map. No CPU has a translation of its addresses cached any more.
    pub(super) fn vanish(&self, area: &Record<'m>) {
        self.stock.machine.retired(area.whole(), Retired::Purged);
        self.open().remove(*area);
    }

    /// Makes every leaf of the area not present, and leaves in its place what it mapped.
    fn break_leaves(&self, area: &Record<'m>) {
        let swept = self.stock.kernel.edit(area.mapped(), &BreakAll, &mut Untold);
        assert_eq!(swept.expect("an area lies in the kernel half").why, Stop::Done, "vmap::V4");
    }

    /// Clears the entries, and gives the pages behind them back where they are the area's own (V5).
    fn empty(&self, area: &Record<'m>, retired: Option<Retired>) {
        let own = AreaWord::of(area).kind() == Backing::Pages;
        let range = area.mapped();
        let mut harvest = Harvest::new();
        let mut va = range.start();
        while va < range.end() {
            let left = VaRange::new(va, range.end()).expect("not behind the end");
            let swept = self.stock.kernel.unmap(left, Prune::Keep, &mut harvest);
            let swept = swept.expect("an area lies in the kernel half");
            assert!(
                matches!(swept.why, Stop::Done | Stop::Full),
                "its leaves are whole (vmap::V4)"
            );
            if let (Some(how), Some(done)) = (retired, VaRange::new(va, swept.upto)) {
                self.stock.machine.retired(done, how);
            }
            if own {
                harvest.runs().for_each(|run| self.give_back(area, run));
            }
            harvest.clear_runs();
            va = swept.upto;
        }
    }
    fn give_back(&self, area: &Record<'m>, run: &Run) {
        let What::Mapped { pa, .. } = run.what else { return };
        let start = run.range().start();
        if start == area.start() {
            // One that is on the list stays there until it is collected (deferred::D2).
            self.stock.replace_link(pa.frame(), Link::Before, deferred::in_use(start), 0);
        }
        let frames = FrameRange::new(pa.frame(), run.range().pages());
        self.stock.drop_kernel(frames.expect("its entries named them"));
    }
}

/// Takes every leaf out of use. The area is noted as a whole.
struct BreakAll;

impl<P: Paging> Edit<P> for BreakAll {
    fn leaf(&self, _: At, _: u64, pa: Pa, attrs: Attrs) -> Verdict {
        Verdict::Put(Soft::breaking(pa, attrs).word())
    }
    fn soft(&self, _: At, _: Soft) -> Verdict {
        Verdict::Keep
    }
}
