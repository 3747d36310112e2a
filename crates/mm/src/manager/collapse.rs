//! The face of collapse: on request, and by a scanner in the background.

use super::Manager;
use crate::compact::{CollapseError, collapse};
use crate::fault::{Access, Outcome, ProcessSwitch};
use crate::space::{Flags, SpaceId};
use crate::stock::Event;
use crate::sync::Outside;
use crate::table::{Attrs, Entry, Paging};
use foliant_machine::Machine;
use foliant_units::{FRAME_BYTES, Level, Order, Pages, Va, VaRange};

/// Limits on a range that is collapsed. The names are as in Linux's `khugepaged`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CollapseLimits {
    /// Pages that may be missing or zeros, at most.
    pub max_ptes_none: Pages,
    /// Pages that other spaces may have too, at most: each is copied, unless the space turns out to
    /// be its only owner and takes it over.
    pub max_ptes_shared: Pages,
}

impl CollapseLimits {
    /// No limit, as by `MADV_COLLAPSE`. A range without any page is refused all the same, and so is
    /// one with a large leaf, or with an entry that is neither empty nor a page's.
    pub const NONE: CollapseLimits =
        CollapseLimits { max_ptes_none: Pages::new(512), max_ptes_shared: Pages::new(512) };
    /// For a scanner. Only a range whose pages are all there is collapsed, so that no collapse
    /// makes the next one possible.
    pub const SCAN: CollapseLimits =
        CollapseLimits { max_ptes_none: Pages::new(0), max_ptes_shared: Pages::new(256) };
}

/// What a scan did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Scanned {
    /// Ranges that were looked at.
    pub ranges: u64,
    /// Of these, those that are one folio now.
    pub collapsed: u64,
}

impl<'m, M: Machine, P: Paging> Manager<'m, M, P> {
    /// Makes one folio of 2 MiB of the pages that a space has at `va`. The switches of folio sizes
    /// are not asked, but the area's `NOHUGEPAGE` and the process's switch are.
    pub fn collapse(
        &self,
        id: SpaceId,
        va: Va,
        limits: CollapseLimits,
    ) -> Result<(), CollapseError> {
        let space = id.pin(&self.stock).ok_or(CollapseError::NoSpace)?;
        if !va.is_aligned(Order::SIZE_2M.bytes()) {
            return Err(CollapseError::Misaligned(va));
        }
        let whole =
            VaRange::sized(va, Order::SIZE_2M.bytes()).ok_or(CollapseError::Unsuitable(va))?;
        let suits = |flags: Flags| {
            let off = Flags::NOHUGEPAGE.with(Flags::USERFAULT).with(Flags::KERNEL);
            flags.has(Flags::READ_WRITE)
                && flags.and(off) == Flags::NONE
                && flags.huge_order().is_none()
        };
        let area = self.area(id, va);
        area.filter(|area| area.range.covers(whole) && suits(area.flags))
            .filter(|_| space.thp_off() == ProcessSwitch::On)
            .ok_or(CollapseError::Unsuitable(va))?;
        self.within(id, whole, limits)?;
        for nth in 0..whole.pages().get() {
            self.own(id, va.add(nth * FRAME_BYTES))?;
        }
        collapse(&self.splitter(), &space, va, &mut Outside::at_the_face())
    }

    /// Looks whether a range is within the limits.
    fn within(
        &self,
        id: SpaceId,
        whole: VaRange,
        limits: CollapseLimits,
    ) -> Result<(), CollapseError> {
        let counted = self.with_leaves(id, whole, |leaves| {
            let (mut there, mut shared) = (0, 0);
            for leaf in leaves {
                match leaf.entry {
                    _ if leaf.level > Level::BASE => {
                        return Err(CollapseError::Collapsed(whole.start()));
                    }
                    Entry::Leaf { attrs, .. } if attrs.has(Attrs::SPECIAL) => {}
                    Entry::Leaf { attrs, .. } => {
                        there += 1;
                        shared += u64::from(!attrs.has(Attrs::EXCLUSIVE));
                    }
                    _ => return Err(CollapseError::Changed(leaf.va)),
                }
            }
            Ok((Pages::new(whole.pages().get() - there), Pages::new(shared)))
        });
        let (none, shared) = counted.ok_or(CollapseError::NoSpace)??;
        if none > limits.max_ptes_none || none == whole.pages() {
            self.stock.count(Event::ThpScanExceedNonePte);
            return Err(CollapseError::Empty(none));
        }
        if shared > limits.max_ptes_shared {
            self.stock.count(Event::ThpScanExceedSharePte);
            return Err(CollapseError::Shared(shared));
        }
        Ok(())
    }
    /// Makes the page at `va` one of the space's own.
    fn own(&self, id: SpaceId, va: Va) -> Result<(), CollapseError> {
        let page = VaRange::sized(va, Order::BASE.bytes()).ok_or(CollapseError::Unsuitable(va))?;
        let wanted = Attrs::WRITE.with(Attrs::EXCLUSIVE);
        let is_own = self.with_leaves(id, page, |mut leaves| {
            let entry = leaves.next().map(|leaf| leaf.entry);
            matches!(entry, Some(Entry::Leaf { attrs, .. }) if attrs.has(wanted))
        });
        match is_own.ok_or(CollapseError::NoSpace)? {
            true => Ok(()),
            false => match self.resolve(id, va, Access::Write) {
                Outcome::OutOfMemory | Outcome::OverLimit => Err(CollapseError::NoMemory),
                Outcome::Refused(_) | Outcome::Userfault(_) | Outcome::NoHugePage(_) => {
                    Err(CollapseError::Changed(va))
                }
                _ => Ok(()),
            },
        }
    }

    /// Goes through the areas of a space from `from` on, and collapses ranges that are within the
    /// limits, where 2 MiB folios are switched on; looks at up to `ranges` of them. Says where to
    /// go on, unless it came to the end.
    pub fn collapse_scan(
        &self,
        id: SpaceId,
        from: Va,
        ranges: u64,
        limits: CollapseLimits,
    ) -> (Scanned, Option<Va>) {
        let (mut done, mut at) = (Scanned::default(), from);
        let mut outside = Outside::at_the_face();
        while let Some(area) = self.area_at_or_after(id, at) {
            let start =
                area.range.start().max(at).get().next_multiple_of(Level::SIZE_2M.span().get());
            let allowed = self.policy().allowed(area.flags, ProcessSwitch::On);
            let fits = start.saturating_add(Level::SIZE_2M.span().get()) <= area.range.end().get();
            if !fits || !allowed.contains(Order::SIZE_2M) {
                at = area.range.end();
                continue;
            }
            if done.ranges == ranges {
                return (done, Some(Va::new(start)));
            }
            done.ranges += 1;
            done.collapsed += u64::from(self.collapse(id, Va::new(start), limits).is_ok());
            at = Va::new(start + Level::SIZE_2M.span().get());
            outside.yield_now(self.stock.machine);
        }
        (done, None)
    }
}
