//! The areas with the lock held: the map of their ranges, and the lists of their records.

use super::record::{Record, Recorded, Records};
use super::{Vmap, VmapState};
use crate::ranges::{GapNeed, Rank};
use crate::stock::NoBlock;
use crate::sync::{AtomicU64, Ordering, SpinGuard};
use crate::table::Paging;
use foliant_machine::{Machine, Owner};
use foliant_units::Va;

/// The room's state with the lock held.
pub(super) struct Opened<'a, 'm, M> {
    machine: &'m M,
    state: &'a VmapState,
    _held: SpinGuard<'a>,
}

/// What a request has to bring before it can take addresses.
enum Lacking {
    Record,
    Node(Rank),
}

fn get(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}
fn set(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Relaxed);
}

impl<'a, 'm, M: Machine, P: Paging> Vmap<'a, 'm, M, P> {
    /// Takes the lock.
    pub(super) fn open(&self) -> Opened<'a, 'm, M> {
        let (machine, state) = (self.stock.machine, self.state);
        Opened { machine, state, _held: state.lock.lock(machine) }
    }
    /// Takes the lock, with a spare record and the nodes for one area more.
    pub(super) fn open_for_one_more(&self) -> Result<Opened<'a, 'm, M>, NoBlock> {
        loop {
            let opened = self.open();
            let Some(lacking) = opened.lacks() else { return Ok(opened) };
            drop(opened);
            let frame = self.stock.claim_cleared(Owner::Records)?;
            let Opened { machine, state, _held } = self.open();
            match lacking {
                Lacking::Record => state.spare.cut(machine, frame),
                Lacking::Node(rank) => state.ranges.supply(machine, frame, rank),
            }
        }
    }
}

impl<'m, M: Machine> Opened<'_, 'm, M> {
    fn lacks(&self) -> Option<Lacking> {
        if self.state.spare.count() == 0 {
            return Some(Lacking::Record);
        }
        self.state.ranges.lacks(self.machine, 1).map(Lacking::Node)
    }
    /// Where an area fits.
    pub(super) fn gap(&self, need: &GapNeed) -> Option<Va> {
        self.state.ranges.gap(self.machine, need)
    }
    /// A record, for a call that has seen to it that there is one.
    pub(super) fn take_record(&self) -> Record<'m> {
        let id = self.state.spare.pop(self.machine).expect("a spare record was seen to");
        Record::at(self.machine, id)
    }
    /// Puts an area in whose place lies in a gap. Its nodes were seen to (ranges::M6).
    pub(super) fn insert(&self, new: Record<'m>) {
        self.state.ranges.insert(self.machine, &Recorded { range: new.whole(), id: new.id });
    }
    /// Takes an area out; its record is spare from now on.
    pub(super) fn remove(&self, old: Record<'m>) {
        self.state.ranges.remove(self.machine, old.start());
        self.state.spare.push(self.machine, old.id);
    }
    /// The first area that ends above `va`.
    pub(super) fn at_or_after(&self, va: Va) -> Option<Record<'m>> {
        let found = self.state.ranges.at_or_after(self.machine, va)?;
        Some(Record::at(self.machine, found.id))
    }
    /// The area that contains `va`, guard included.
    pub(super) fn find(&self, va: Va) -> Option<Record<'m>> {
        let found = self.state.ranges.find(self.machine, va)?;
        Some(Record::at(self.machine, found.id))
    }
    pub(super) fn count(&self) -> u64 {
        self.state.ranges.count()
    }

    /// Notes that the frames of an area go back from here on, while its addresses are not among
    /// those that wait for a purge yet.
    pub(super) fn begin_emptying(&self) {
        set(&self.state.emptied, get(&self.state.emptied) + 1);
    }
    /// Whether any area is at that.
    pub(super) fn is_emptying(&self) -> bool {
        get(&self.state.emptied) > 0
    }
    /// Puts an area whose frames went back among those that wait for a purge; says how many pages
    /// wait.
    pub(super) fn push_lazy(&self, area: Record<'m>) -> u64 {
        let others = get(&self.state.emptied).checked_sub(1);
        set(&self.state.emptied, others.expect("it was counted by `begin_emptying`"));
        self.state.lazy.push(self.machine, area.id);
        let pages = get(&self.state.lazy_pages) + area.whole().pages().get();
        set(&self.state.lazy_pages, pages);
        pages
    }
    /// Takes all of them, and says how many pages they have.
    pub(super) fn take_lazy(&self) -> (Records, u64) {
        let pages = get(&self.state.lazy_pages);
        set(&self.state.lazy_pages, 0);
        (self.state.lazy.take(), pages)
    }
    /// Takes at most `most` of them, those that were given back last, and says how many pages they
    /// have.
    pub(super) fn take_some_lazy(&self, most: usize) -> (Records, u64) {
        let (taken, mut pages) = (Records::default(), 0);
        for id in core::iter::from_fn(|| self.state.lazy.pop(self.machine)).take(most) {
            pages += Record::at(self.machine, id).whole().pages().get();
            taken.push(self.machine, id);
        }
        set(&self.state.lazy_pages, get(&self.state.lazy_pages) - pages);
        (taken, pages)
    }
    pub(super) fn lazy_pages(&self) -> u64 {
        get(&self.state.lazy_pages)
    }

    /// The frames of records and nodes, where all records are spare or an area's; `None` where one
    /// is missing, or the map is not what a walk over all of it gives.
    #[cfg(feature = "verify")]
    pub(super) fn recount(&self) -> Option<u64> {
        let state = self.state;
        let listed = state.spare.each(self.machine).count() as u64;
        let records = listed + self.count();
        let sound = listed == state.spare.count()
            && records.is_multiple_of(super::record::Id::PER_FRAME)
            && state.ranges.is_sound(self.machine, state.range.start());
        let nodes = state.ranges.count_frames(self.machine);
        sound.then_some(records / super::record::Id::PER_FRAME + nodes)
    }
}
