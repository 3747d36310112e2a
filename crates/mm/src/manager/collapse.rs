//! The face of collapse: on request, and by a scanner in the background.

use super::Manager;
use crate::compact::{CollapseError, collapse};
use crate::fault::{Access, Demand, Orders, Outcome, ProcessSwitch};
use crate::frame::{Flag, Identity};
use crate::space::{Flags, SpaceId};
use crate::stock::{Event, SizeEvent};
use crate::sync::Outside;
use crate::table::{Attrs, Entry, Paging};
use foliant_machine::Machine;
use foliant_units::{FRAME_BYTES, Frame, Level, Order, Pages, Va, VaRange};

/// Limits on a range that is collapsed, whatever its size. The names are as in Linux's
/// `khugepaged`.
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

    /// What is left of limits for 2 MiB where a scanner looks at a smaller range: all pages, or
    /// none. With a limit between, each collapse would fill or copy what the next larger one counts
    /// (TR-A6).
    fn scaled(self, order: Order) -> CollapseLimits {
        let part = |pages: Pages| {
            let is_all = pages.get() + 1 >= Order::SIZE_2M.pages().get();
            match is_all || order == Order::SIZE_2M {
                true => Pages::new(pages.get() >> (Order::SIZE_2M.get() - order.get())),
                false => Pages::new(0),
            }
        };
        CollapseLimits {
            max_ptes_none: part(self.max_ptes_none),
            max_ptes_shared: part(self.max_ptes_shared),
        }
    }
}

/// What a scan did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Scanned {
    /// Ranges of the largest size that were looked at, with all that is smaller in them.
    pub ranges: u64,
    /// Folios that were made of them.
    pub collapsed: u64,
}

impl<'m, M: Machine, P: Paging> Manager<'m, M, P> {
    /// Makes one folio of `order` of the pages that a space has at `va`, unless one of that size or
    /// a larger one has them. The switches of folio sizes are not asked, but the area's
    /// `NOHUGEPAGE` and the process's switch are. Where the area maps an object its pages become
    /// one, as by [`collapse_object`](Manager::collapse_object), and what is mapped of them here is
    /// mapped anew, by one leaf where they are 2 MiB.
    pub fn collapse(
        &self,
        id: SpaceId,
        va: Va,
        order: Order,
        limits: CollapseLimits,
    ) -> Result<(), CollapseError> {
        let space = id.pin(&self.stock).ok_or(CollapseError::NoSpace)?;
        if !Orders::ANON.contains(order) {
            return Err(CollapseError::NoSize(order));
        }
        if !va.is_aligned(order.bytes()) {
            return Err(CollapseError::Misaligned(va, order));
        }
        let whole = VaRange::sized(va, order.bytes()).ok_or(CollapseError::Unsuitable(va))?;
        let suits = |flags: Flags| {
            // What is missing is no zeros where the program fills it. An object has its own pages.
            let of_object = flags.has(Flags::OBJECT);
            let barred = if of_object { Flags::NONE } else { Flags::ARMED };
            (of_object || flags.has(Flags::READ_WRITE))
                && flags.and(Flags::KERNEL.with(Flags::NOHUGEPAGE).with(barred)) == Flags::NONE
                && flags.huge_order().is_none()
        };
        let mut outside = Outside::at_the_face();
        let area = self.area(id, va).or_else(|| self.settled_area(id, va, &mut outside));
        let area = area
            .filter(|area| area.range.covers(whole) && suits(area.flags))
            .filter(|_| space.thp_off() == ProcessSwitch::On)
            .ok_or(CollapseError::Unsuitable(va))?;
        if area.flags.has(Flags::OBJECT) {
            return self.collapse_shown(id, &area, (whole, order), limits);
        }
        self.within(id, (whole, order), limits)?;
        for nth in 0..whole.pages().get() {
            self.own(id, va.add(nth * FRAME_BYTES))?;
        }
        collapse(self.splitter(), &space, (whole, order), &mut outside)
    }

    /// Looks whether a range is within the limits, and whether a folio has all of it already.
    fn within(
        &self,
        id: SpaceId,
        (whole, order): (VaRange, Order),
        limits: CollapseLimits,
    ) -> Result<(), CollapseError> {
        let counted = self.with_leaves(id, whole, |leaves| {
            let (mut there, mut shared) = (0, 0);
            let mut row = None; // the first frame, as long as the others follow it
            for leaf in leaves {
                match leaf.entry {
                    _ if leaf.level > Level::BASE => {
                        return Err(CollapseError::Collapsed(whole.start()));
                    }
                    Entry::Leaf { attrs, .. } if attrs.has(Attrs::SPECIAL) => {}
                    Entry::Leaf { pa, attrs } => {
                        row = match there {
                            0 => Some(pa.frame()),
                            _ => row
                                .filter(|first: &Frame| first.add(Pages::new(there)) == pa.frame()),
                        };
                        there += 1;
                        shared += u64::from(!attrs.has(Attrs::EXCLUSIVE));
                    }
                    _ => return Err(CollapseError::Changed(leaf.va)),
                }
            }
            Ok((Pages::new(whole.pages().get() - there), Pages::new(shared), row))
        });
        let (none, shared, row) = counted.ok_or(CollapseError::NoSpace)??;
        if none > limits.max_ptes_none || none == whole.pages() {
            let of_2m = Event::ThpScanExceedNonePte;
            self.stock.count_thp(order, SizeEvent::CollapseExceedNone, of_2m);
            return Err(CollapseError::Empty(none));
        }
        if shared > limits.max_ptes_shared {
            let of_2m = Event::ThpScanExceedSharePte;
            self.stock.count_thp(order, SizeEvent::CollapseExceedShared, of_2m);
            return Err(CollapseError::Shared(shared));
        }
        // One that one leaf is to map is mapped page by page here, and a part of a larger one that
        // has lost pages is worth a folio of its own: what it has lost comes free.
        let row = row.filter(|first| none == Pages::new(0) && first.is_aligned(order.pages()));
        let folio = row.map(|first| self.identity(self.identity(first).head(first)));
        let is_whole = |folio: &Identity| folio.order() >= order && !folio.has(Flag::PartlyMapped);
        match folio.filter(is_whole) {
            Some(_) if order < Order::SIZE_2M => Err(CollapseError::Collapsed(whole.start())),
            _ => Ok(()),
        }
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
            false => match self.resolve(id, Demand::page(va, Access::Write)) {
                Outcome::OutOfMemory | Outcome::OverLimit => Err(CollapseError::NoMemory),
                Outcome::Refused(_)
                | Outcome::Userfault(_)
                | Outcome::UserfaultWrite(_)
                | Outcome::UserfaultPresent(_)
                | Outcome::NoHugePage(_) => Err(CollapseError::Changed(va)),
                _ => Ok(()),
            },
        }
    }

    /// Goes through the areas of a space's own memory from `from` on, and collapses what is within
    /// the limits, which are those of 2 MiB: into a folio of the largest size that is switched on,
    /// or into smaller ones where that does not come about. Looks at up to `ranges` of the largest
    /// size. Says where to go on, unless it came to the end.
    pub fn collapse_scan(
        &self,
        id: SpaceId,
        from: Va,
        ranges: u64,
        limits: CollapseLimits,
    ) -> (Scanned, Option<Va>) {
        let (mut done, mut at, mut window) = (Scanned::default(), from, None);
        let mut outside = Outside::at_the_face();
        while let Some(area) = self.area_at_or_after(id, at) {
            let orders = self.policy().allowed(area.flags, ProcessSwitch::On);
            let largest = orders.largest_first().next().unwrap_or(Order::SIZE_2M);
            let step = orders.largest_first().last().unwrap_or(largest).bytes();
            at = Va::new(area.range.start().max(at).get().next_multiple_of(step.get()));
            let rest = VaRange::new(at, area.range.end());
            let is_own = !area.flags.has(Flags::OBJECT);
            let fits = |rest: &VaRange| is_own && rest.bytes() >= step && !orders.is_empty();
            let Some(rest) = rest.filter(fits) else {
                at = area.range.end();
                continue;
            };
            let here = Some(at.align_down(largest.bytes()));
            if window != here {
                if done.ranges == ranges {
                    return (done, Some(at));
                }
                (done.ranges, window) = (done.ranges + 1, here);
            }
            let (settled, made) = self.collapse_first(id, rest, orders, limits);
            done.collapsed += made;
            at = at.add(settled.bytes().get());
            outside.yield_now(self.stock.machine);
        }
        (done, None)
    }

    /// Makes the largest folio that can be made at the beginning of a range. Says how much of the
    /// range that settles, and how many folios were made.
    fn collapse_first(
        &self,
        id: SpaceId,
        range: VaRange,
        orders: Orders,
        limits: CollapseLimits,
    ) -> (Order, u64) {
        let at = range.start();
        let fits = |order: &Order| at.is_aligned(order.bytes()) && order.bytes() <= range.bytes();
        let mut settled = Order::BASE; // the smallest in the end
        for order in orders.largest_first().filter(fits) {
            match self.collapse(id, at, order, limits.scaled(order)) {
                Ok(()) => return (order, 1),
                // Nothing smaller is to be made in there.
                Err(CollapseError::Collapsed(_)) => return (order, 0),
                Err(CollapseError::Empty(pages)) if pages == order.pages() => return (order, 0),
                Err(_) => settled = order,
            }
        }
        (settled, 0)
    }
}
