//! The tree of areas, ordered by address, which knows the gaps between them.
//!
//! It is a treap: ordered by start, and by random priorities from the root down, so that its depth
//! is logarithmic in whichever order areas come and go. Each record knows where the area before it
//! ends, so the gap below it needs no record of its own, and how much fits into the best gap of its
//! subtree when it has to be aligned to 4 KiB, 2 MiB or 1 GiB.
//!
//! ```text
//!   range.start                                              last_end        range.end
//!   │  gap  │ area │ gap │ area │area│     gap      │ area │◀─── last gap ───▶│
//! ```
//!
//! **Invariants**
//! - T1. `Gap` of a record is the end of the area before, or the start of the range; `last_end` the
//!   end of the last one.
//! - T2. `Best` of a record is what a recount of its subtree gives.
//! - T3. The lowest gap that fits is found in O(log n) where the alignment is one of the three.
//!
//! **Locking**: a [`Tree`] is the lock `[l]`, held.

use super::record::{Id, PER_FRAME, Record, RecordWord};
use super::{Vmap, VmapState};
use crate::stock::NoBlock;
use crate::sync::{AtomicU64, Ordering, SpinGuard};
use crate::table::Paging;
use foliant_machine::{Machine, Owner};
use foliant_units::{Bytes, Level, Va};

/// The alignments for which the best gap is known.
const CLASSES: [Bytes; 3] = [Level::BASE.span(), Level::SIZE_2M.span(), Level::SIZE_1G.span()];

/// Where an area fits.
pub(super) type Fit = Va;

/// What an area needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct GapNeed {
    pub(super) bytes: u64,
    pub(super) align: Bytes,
}

/// The tree with the lock held; see the module's text.
pub(super) struct Tree<'a, 'm, M> {
    machine: &'m M,
    state: &'a VmapState,
    _held: SpinGuard<'a>,
}

fn get(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}
fn set(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Relaxed);
}

/// How much fits between the two addresses if it starts at a multiple of `align`.
fn capacity(from: u64, to: u64, align: Bytes) -> u64 {
    let start = Va::new(from).align_up(align).map_or(to, Va::get);
    to.saturating_sub(start)
}

impl GapNeed {
    /// The start of the area if it fits between the two addresses.
    fn fits(&self, from: u64, to: u64) -> Option<Va> {
        let start = Va::new(from).align_up(self.align)?;
        (capacity(from, to, self.align) >= self.bytes).then_some(start)
    }
    /// The largest class that is not larger than the alignment.
    fn class(&self) -> usize {
        CLASSES.iter().rposition(|class| *class <= self.align).unwrap_or(0)
    }
}

impl<'a, 'm, M: Machine> Tree<'a, 'm, M> {
    pub(super) fn new(machine: &'m M, state: &'a VmapState) -> Tree<'a, 'm, M> {
        Tree { machine, state, _held: state.lock.lock(machine) }
    }
    fn at(&self, id: Id) -> Record<'m> {
        Record::at(self.machine, id)
    }
    fn root(&self) -> Id {
        Id(get(&self.state.root))
    }
    /// Where an empty range, or the last gap, begins.
    fn last_end(&self) -> u64 {
        get(&self.state.last_end)
    }

    /// Where the area starts in a gap that it fits into: in the lowest one where the alignment is
    /// one of the three (T3), else perhaps in a higher one.
    pub(super) fn lowest(&self, need: GapNeed) -> Option<Fit> {
        let class = need.class();
        // A gap with so much room for its class is enough, wherever it begins.
        let slack = need.align.get() - CLASSES[class].get();
        let sure = need.bytes.checked_add(slack)?;
        let found = self.search(self.root(), class, sure, need);
        let found = found.or_else(|| need.fits(self.last_end(), self.state.range.end().get()));
        if found.is_some() || slack == 0 {
            return found;
        }
        // Each gap that might do is tried before giving up.
        self.search(self.root(), class, need.bytes, need)
    }
    fn search(&self, id: Id, class: usize, enough: u64, need: GapNeed) -> Option<Fit> {
        let node = self.at(id.some()?);
        if node.nth(RecordWord::Best, class) < enough {
            return None;
        }
        let own = || need.fits(node.get(RecordWord::Gap), node.get(RecordWord::Start));
        self.search(node.link(RecordWord::Left), class, enough, need)
            .or_else(own)
            .or_else(|| self.search(node.link(RecordWord::Right), class, enough, need))
    }

    /// Puts in a record whose `Start` and `End` lie in a gap.
    pub(super) fn insert(&self, new: Record<'m>) {
        let priority = mixed(self.state.seed.fetch_add(1, Ordering::Relaxed));
        new.set(RecordWord::Priority, priority);
        new.set(RecordWord::Left, 0);
        new.set(RecordWord::Right, 0);
        let (low, high) = self.split(self.root(), new.get(RecordWord::Start));
        let gap = self.move_gap(high, new.get(RecordWord::End));
        new.set(RecordWord::Gap, gap);
        self.pull(new);
        let low = self.merge(low, new.id);
        set(&self.state.root, self.merge(low, high).0);
        self.state.areas.fetch_add(1, Ordering::Relaxed);
    }
    /// Takes a record out.
    pub(super) fn remove(&self, old: Record<'m>) {
        let start = old.get(RecordWord::Start);
        let (low, rest) = self.split(self.root(), start);
        let (only, high) = self.split(rest, start + 1);
        assert!(only == old.id, "the area at {start:#x} is in the tree once (vmap::V1)");
        self.move_gap(high, old.get(RecordWord::Gap));
        set(&self.state.root, self.merge(low, high).0);
        self.state.areas.fetch_sub(1, Ordering::Relaxed);
    }
    /// From now on the area before the first one of `tree` ends at `end`; says where it ended
    /// before. An empty tree stands for the last gap.
    fn move_gap(&self, tree: Id, end: u64) -> u64 {
        let Some(id) = tree.some() else {
            let old = self.last_end();
            set(&self.state.last_end, end);
            return old;
        };
        let node = self.at(id);
        let old = match node.link(RecordWord::Left).some() {
            Some(left) => self.move_gap(left, end),
            None => {
                let old = node.get(RecordWord::Gap);
                node.set(RecordWord::Gap, end);
                old
            }
        };
        self.pull(node);
        old
    }
    /// The records that start below `key`, and the rest.
    fn split(&self, tree: Id, key: u64) -> (Id, Id) {
        let Some(id) = tree.some() else { return (Id::NONE, Id::NONE) };
        let node = self.at(id);
        if node.get(RecordWord::Start) < key {
            let (low, high) = self.split(node.link(RecordWord::Right), key);
            node.set(RecordWord::Right, low.0);
            self.pull(node);
            (id, high)
        } else {
            let (low, high) = self.split(node.link(RecordWord::Left), key);
            node.set(RecordWord::Left, high.0);
            self.pull(node);
            (low, id)
        }
    }
    /// One tree of two, all of `low` below all of `high`.
    fn merge(&self, low: Id, high: Id) -> Id {
        let (Some(a), Some(b)) = (low.some(), high.some()) else {
            return if low == Id::NONE { high } else { low };
        };
        let (a, b) = (self.at(a), self.at(b));
        if a.get(RecordWord::Priority) > b.get(RecordWord::Priority) {
            a.set(RecordWord::Right, self.merge(a.link(RecordWord::Right), high).0);
            self.pull(a);
            low
        } else {
            b.set(RecordWord::Left, self.merge(low, b.link(RecordWord::Left)).0);
            self.pull(b);
            high
        }
    }
    /// Makes `Best` what it should be (T2), its children being right.
    fn pull(&self, node: Record<'m>) {
        for (n, class) in CLASSES.into_iter().enumerate() {
            node.set_nth(RecordWord::Best, n, self.recount(node, n, class));
        }
    }
    fn recount(&self, node: Record<'m>, n: usize, class: Bytes) -> u64 {
        let below =
            |side| node.link(side).some().map_or(0, |id| self.at(id).nth(RecordWord::Best, n));
        let own = capacity(node.get(RecordWord::Gap), node.get(RecordWord::Start), class);
        own.max(below(RecordWord::Left)).max(below(RecordWord::Right))
    }

    /// The first area that ends above `va`.
    pub(super) fn at_or_after(&self, va: Va) -> Option<Record<'m>> {
        let (mut next, mut found) = (self.root(), None);
        while let Some(id) = next.some() {
            let node = self.at(id);
            let above = node.get(RecordWord::End) > va.get();
            found = if above { Some(node) } else { found };
            next = node.link(if above { RecordWord::Left } else { RecordWord::Right });
        }
        found
    }
    /// The area that contains `va`, guard included.
    pub(super) fn find(&self, va: Va) -> Option<Record<'m>> {
        self.at_or_after(va).filter(|area| area.whole().contains(va))
    }
    pub(super) fn count(&self) -> u64 {
        get(&self.state.areas)
    }

    pub(super) fn pop_spare(&self) -> Option<Id> {
        let id = Id(get(&self.state.spare)).some()?;
        set(&self.state.spare, self.at(id).get(RecordWord::Next));
        Some(id)
    }
    /// How many records are spare.
    #[cfg(feature = "verify")]
    pub(super) fn count_spare(&self) -> u64 {
        let first = Id(get(&self.state.spare)).some();
        let behind = |id: &Id| Id(self.at(*id).get(RecordWord::Next)).some();
        core::iter::successors(first, behind).count() as u64
    }
    pub(super) fn push_spare(&self, id: Id) {
        self.at(id).set(RecordWord::Next, get(&self.state.spare));
        set(&self.state.spare, id.0);
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
        area.set(RecordWord::Next, get(&self.state.lazy));
        set(&self.state.lazy, area.id.0);
        let pages = get(&self.state.lazy_pages) + area.whole().pages().get();
        set(&self.state.lazy_pages, pages);
        pages
    }
    /// Takes all of them: the first one, and how many pages they have.
    pub(super) fn take_lazy(&self) -> (Id, u64) {
        let taken = (Id(get(&self.state.lazy)), get(&self.state.lazy_pages));
        set(&self.state.lazy, 0);
        set(&self.state.lazy_pages, 0);
        taken
    }
    /// Takes at most `most` of them, those that were given back last: the first one, and how many
    /// pages they have.
    pub(super) fn take_some_lazy(&self, most: u64) -> (Id, u64) {
        let first = Id(get(&self.state.lazy));
        let (mut next, mut last, mut pages) = (first, None, 0);
        for _ in 0..most {
            let Some(id) = next.some() else { break };
            let area = self.at(id);
            pages += area.whole().pages().get();
            next = area.link(RecordWord::Next);
            last = Some(area);
        }
        if let Some(last) = last {
            last.set(RecordWord::Next, Id::NONE.0);
        }
        set(&self.state.lazy, next.0);
        set(&self.state.lazy_pages, get(&self.state.lazy_pages) - pages);
        (first, pages)
    }
    pub(super) fn lazy_pages(&self) -> u64 {
        get(&self.state.lazy_pages)
    }

    /// How many records lie on the longest way down.
    #[cfg(all(test, not(loom)))]
    pub(super) fn depth(&self) -> usize {
        self.depth_below(self.root())
    }
    #[cfg(all(test, not(loom)))]
    fn depth_below(&self, tree: Id) -> usize {
        let Some(id) = tree.some() else { return 0 };
        let node = self.at(id);
        let below = |side| self.depth_below(node.link(side));
        1 + below(RecordWord::Left).max(below(RecordWord::Right))
    }

    /// Whether order, gaps and best gaps are what a walk over all areas gives.
    #[cfg(any(all(test, not(loom)), feature = "verify"))]
    pub(super) fn is_sound(&self) -> bool {
        let mut end = self.state.range.start().get();
        let mut count = 0;
        let sound = self.is_sound_below(self.root(), &mut end, &mut count);
        sound && end == self.last_end() && count == self.count()
    }
    #[cfg(any(all(test, not(loom)), feature = "verify"))]
    fn is_sound_below(&self, tree: Id, end: &mut u64, count: &mut u64) -> bool {
        let Some(id) = tree.some() else { return true };
        let node = self.at(id);
        let left = self.is_sound_below(node.link(RecordWord::Left), end, count);
        let here = node.get(RecordWord::Gap) == *end
            && node.get(RecordWord::Start) >= *end
            && CLASSES
                .into_iter()
                .enumerate()
                .all(|(n, class)| node.nth(RecordWord::Best, n) == self.recount(node, n, class));
        *end = node.get(RecordWord::End);
        *count += 1;
        left && here && self.is_sound_below(node.link(RecordWord::Right), end, count)
    }
}

/// A well-spread number for each number: a fixed bijection, so that runs can be repeated.
const fn mixed(n: u64) -> u64 {
    let n = (n ^ n >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ n >> 29).wrapping_mul(0xd6e8_feb8_6659_fd93);
    n ^ n >> 32
}

impl<'a, 'm, M: Machine, P: Paging> Vmap<'a, 'm, M, P> {
    pub(super) fn record(&self, id: Id) -> Record<'m> {
        Record::at(self.stock.machine, id)
    }
    /// Takes the lock.
    pub(super) fn open(&self) -> Tree<'a, 'm, M> {
        Tree::new(self.stock.machine, self.state)
    }
    /// Takes a spare record, and makes some where there is none.
    pub(super) fn take_record(&self) -> Result<Record<'m>, NoBlock> {
        loop {
            if let Some(id) = self.open().pop_spare() {
                return Ok(self.record(id));
            }
            let (frame, _) = self.stock.claim_cleared(Owner::Records)?.into_raw();
            let tree = self.open();
            (0..PER_FRAME).rev().for_each(|nth| tree.push_spare(Id::of(frame, nth)));
        }
    }
}
