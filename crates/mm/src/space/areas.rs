//! The areas of a space: an ordered map of ranges that faults read without a lock.
//!
//! **Invariants**
//! - A1. Areas are page-aligned, not empty and do not overlap. Between changes, two that touch
//!   differ in flags, tag or offset.
//! - A4. A change takes all nodes that it could need before it begins, so it happens or leaves no
//!   trace.
//! - A5. A change that would leave more areas than there are, and than there may be at that time,
//!   is refused before it begins.
//!
//! **Locking.** Areas change under the space's writer lock, or in the call that ends or forks off
//! the space (space, Locking); readers look under the sequence.
//!
//! **Not here**: how the map finds areas and gaps (`ranges`).

use super::area::{Area, AreaLimit, Flags};
use crate::ranges::{GapNeed, Ranges};
use crate::stock::{Charge, NoRecord, Stock};
use crate::sync::{Edition, Sequence};
use crate::table::Paging;
use foliant_machine::{Machine, Owner};
use foliant_units::{Va, VaRange};

/// See the module's text. All words; valid when cleared.
///
/// Key: `[w]` the space's writer held; `[s]` changed under it, read under `sequence`; `[c]`
/// constant from the first area on.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Areas {
    sequence: Sequence,
    ranges: Ranges<Area>, // [s], its own words [w]
}

/// The change would leave more areas than there may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TooMany(pub(super) AreaLimit);

impl Areas {
    /// The area that contains `va`.
    pub(crate) fn find(&self, machine: &impl Machine, va: Va) -> Option<Area> {
        self.find_edition(machine, va).0
    }
    /// The same, and the edition of the areas in which it was found.
    pub(super) fn find_edition(&self, machine: &impl Machine, va: Va) -> (Option<Area>, Edition) {
        self.sequence.read_edition(machine, || self.ranges.find(machine, va))
    }
    /// Whether the areas are still those of an edition.
    pub(super) fn are_at(&self, edition: Edition) -> bool {
        self.sequence.is_at(edition)
    }
    /// The first area that ends above `va`.
    pub(crate) fn at_or_after(&self, machine: &impl Machine, va: Va) -> Option<Area> {
        self.sequence.read(machine, || self.ranges.at_or_after(machine, va))
    }
    /// The first area that ends above `va`, between the one before it and the one behind it.
    pub(crate) fn around(&self, machine: &impl Machine, va: Va) -> [Option<Area>; 3] {
        self.sequence.read(machine, || self.ranges.around(machine, va))
    }
    /// Areas in order, from the first one that ends above `va` on, as many as are had at once; says
    /// how many: none where there is none.
    pub(crate) fn some_at_or_after(
        &self,
        machine: &impl Machine,
        va: Va,
        into: &mut [Option<Area>],
    ) -> usize {
        self.sequence.read(machine, || self.ranges.some_at_or_after(machine, va, &mut *into))
    }
    /// The areas that share an address with `range`, each whole. The caller keeps writers out.
    pub(crate) fn overlapping<'a, M: Machine>(
        &'a self,
        machine: &'a M,
        range: VaRange,
    ) -> impl Iterator<Item = Area> + use<'a, M> {
        let mut from = range.start();
        core::iter::from_fn(move || {
            if from >= range.end() {
                return None;
            }
            let area = self.at_or_after(machine, from)?;
            from = area.range.end();
            area.range.overlaps(range).then_some(area)
        })
    }

    /// Where there is room. The caller keeps writers out.
    pub(super) fn gap(&self, machine: &impl Machine, need: &GapNeed) -> Option<Va> {
        self.ranges.gap(machine, need)
    }

    /// Takes the nodes that one change can need, two areas split and one put in (A4).
    pub(crate) fn prepare<M: Machine, P: Paging>(
        &self,
        stock: &Stock<'_, M, P>,
        charge: &Charge,
    ) -> Result<(), NoRecord> {
        self.prepare_for(stock, charge, 3)
    }
    /// Takes the nodes that so many insertions can need; a range cut at both ends counts as two.
    pub(crate) fn prepare_for<M: Machine, P: Paging>(
        &self,
        stock: &Stock<'_, M, P>,
        charge: &Charge,
        insertions: u64,
    ) -> Result<(), NoRecord> {
        while let Some(rank) = self.ranges.lacks(stock.machine, insertions) {
            let frame = stock.claim_charged(charge, Owner::Records)?;
            self.ranges.supply(stock.machine, frame, rank);
        }
        Ok(())
    }

    /// Replaces each area in `range` by what `change` makes of it: an area in the same place with
    /// other properties, or nothing; if it makes nothing of one, it does so of all. Pieces outside
    /// stay. The caller is the only writer and called [`prepare`](Self::prepare) first.
    pub(crate) fn change(
        &self,
        machine: &impl Machine,
        range: VaRange,
        change: impl Fn(Area) -> Option<(Flags, u64)>,
    ) {
        if self.move_boundary(machine, range, &change) {
            return;
        }
        // Each area is changed by itself: a reader needs the time between two changes for its look.
        self.sequence.write(|| {
            self.cut(machine, range.start());
            self.cut(machine, range.end());
        });
        let (mut from, mut removed) = (range.start(), false);
        while from < range.end()
            && let Some(area) = self.ranges.at_or_after(machine, from)
            && area.range.overlaps(range)
        {
            from = area.range.end();
            self.sequence.write(|| match change(area) {
                Some((flags, tag)) => self.ranges.replace(machine, &Area { flags, tag, ..area }),
                None => {
                    self.ranges.remove(machine, area.range.start());
                    removed = true;
                }
            });
        }
        if !removed {
            self.join(machine, range);
        }
    }
    /// Does the same in one step where `range` is a part of one area, at an edge of it, and becomes
    /// like the neighbour there: the boundary between the two moves over `range`. Or in none, where
    /// it lies in one area and stays as it is. Says whether it was so.
    fn move_boundary(
        &self,
        machine: &impl Machine,
        range: VaRange,
        change: impl Fn(Area) -> Option<(Flags, u64)>,
    ) -> bool {
        let find = |va| self.ranges.find(machine, va);
        let Some(area) = find(range.start()) else { return false };
        let Some((flags, tag)) = change(Area { range, ..area }) else { return false };
        let (old, new) = (area.range, Area { flags, tag, ..area });
        match old.covers(range) {
            true if new == area => return true,
            true if old != range => {}
            _ => return false,
        }
        let (from, to, neighbour) = if old.start() == range.start() {
            (range.start(), range.end(), find(Va::new(range.start().get().wrapping_sub(1))))
        } else if old.end() == range.end() {
            (range.end(), range.start(), find(range.end()))
        } else {
            return false;
        };
        neighbour.is_some_and(|area| area.is_like(&new))
            && self.sequence.write(|| self.ranges.move_boundary(machine, from, to))
    }
    /// Puts `area` in where nothing lies. The caller is the only writer and called
    /// [`prepare`](Self::prepare) first, as for [`change`](Self::change).
    pub(crate) fn put(&self, machine: &impl Machine, area: &Area) {
        self.sequence.write(|| self.ranges.insert(machine, area));
        self.join(machine, area.range);
    }
    /// Whether taking `range` out needs a node that nobody may have supplied
    /// ([`prepare`](Self::prepare)): it cuts an area where no two more fit.
    pub(super) fn needs_nodes(&self, machine: &impl Machine, range: VaRange) -> bool {
        let is_inside = |va| self.find(machine, va).is_some_and(|area| area.range.start() < va);
        let ends = [range.start(), range.end()];
        ends.into_iter().any(|va| is_inside(va) && !self.ranges.has_room(machine, va, 2))
    }
    /// Makes `va` a boundary.
    fn cut(&self, machine: &impl Machine, va: Va) {
        let Some(area) = self.ranges.find(machine, va) else { return };
        if area.range.start() == va {
            return;
        }
        let piece = |a, b| Area { range: VaRange::new(a, b).expect("va lies inside"), ..area };
        self.ranges.replace(machine, &piece(area.range.start(), va));
        self.ranges.insert(machine, &piece(va, area.range.end()));
    }
    /// Joins areas that are alike and touch, from the one before `range` to the one behind it (A1).
    fn join(&self, machine: &impl Machine, range: VaRange) {
        let below = Va::new(range.start().get().saturating_sub(1));
        let Some(mut area) = self.ranges.at_or_after(machine, below) else { return };
        while area.range.end() <= range.end()
            && let Some(next) = self.ranges.at_or_after(machine, area.range.end())
        {
            if area.range.end() == next.range.start() && area.is_like(&next) {
                let whole = VaRange::new(area.range.start(), next.range.end());
                area.range = whole.expect("ranges grow up");
                self.sequence.write(|| {
                    self.ranges.remove(machine, next.range.start());
                    self.ranges.replace(machine, &area);
                });
            } else {
                area = next;
            }
        }
    }

    /// How many areas there are.
    #[cfg(test)]
    pub(super) fn count(&self) -> u64 {
        self.ranges.count()
    }
    /// Refuses a [`change`](Self::change) of `range` and then a [`put`](Self::put) if, with `more`
    /// areas besides, they would leave more areas than there may be, and than there are (A5). Areas
    /// that become one count once.
    pub(crate) fn admit(
        &self,
        machine: &impl Machine,
        limit: AreaLimit,
        range: VaRange,
        change: impl Fn(Area) -> Option<(Flags, u64)>,
        (put, more): (Option<&Area>, u64),
    ) -> Result<(), TooMany> {
        /// By how much one change and one put raise the count at most: the area around them becomes
        /// three.
        const MOST: u64 = 2;
        let count = self.ranges.count();
        if count.saturating_add(MOST + more) <= limit.0 {
            return Ok(());
        }
        let (gone, come) = self.pieces(machine, range, change, put);
        let is_none_more = come + more <= gone;
        if is_none_more || count - gone + come + more <= limit.0 {
            return Ok(());
        }
        Err(TooMany(limit))
    }
    /// How many areas touch `range`, and how many there will be in their place.
    fn pieces(
        &self,
        machine: &impl Machine,
        range: VaRange,
        change: impl Fn(Area) -> Option<(Flags, u64)>,
        put: Option<&Area>,
    ) -> (u64, u64) {
        let (mut gone, mut come, mut last) = (0, 0, None::<Area>);
        let mut add = |piece: Area| {
            let joins = last.is_some_and(|last| {
                last.range.end() == piece.range.start() && last.is_like(&piece)
            });
            come += u64::from(!joins);
            last = Some(piece);
        };
        let mut put = put;
        let mut from = Va::new(range.start().get().saturating_sub(1));
        while let Some(area) = self.ranges.at_or_after(machine, from)
            && area.range.start() <= range.end()
        {
            from = area.range.end();
            gone += 1;
            let part = |within: Option<VaRange>| {
                let part = area.range.intersect(within?);
                (!part.is_empty()).then_some(Area { range: part, ..area })
            };
            let all = (Va::new(0), area.range.end().max(range.end()));
            part(VaRange::new(all.0, range.start())).into_iter().for_each(&mut add);
            if let Some(inside) = part(Some(range))
                && let Some((flags, tag)) = change(inside)
            {
                add(Area { flags, tag, ..inside });
            }
            if let Some(behind) = part(VaRange::new(range.end(), all.1)) {
                put.take().into_iter().for_each(|new| add(*new));
                add(behind);
            }
        }
        put.into_iter().for_each(|new| add(*new));
        (gone, come)
    }

    /// Whether the map is what a walk over all areas gives.
    #[cfg(test)]
    pub(super) fn is_sound(&self, machine: &impl Machine) -> bool {
        self.ranges.is_sound(machine, Va::new(0))
    }
    /// How many frames the nodes take, spare ones included.
    #[cfg(feature = "verify")]
    pub(super) fn count_frames(&self, machine: &impl Machine) -> u64 {
        self.ranges.count_frames(machine)
    }
    /// Gives all nodes back. No reader is left.
    pub(crate) fn dissolve<M: Machine, P: Paging>(&self, stock: &Stock<'_, M, P>) {
        self.ranges.dissolve(stock.machine, |frame| stock.release(frame));
    }
}
