//! The map beside a sorted vector.

use super::gap::Search;
use super::{Edge, GapNeed, Ranged, Ranges, get, set};
use crate::stock::bare::{Bare, stock};
use alloc::vec;
use alloc::vec::Vec;
use foliant_machine::Owner;
use foliant_sim::{Config, Sim};
use foliant_units::{Bytes, FRAME_BYTES, Pages, Va, VaRange};
use proptest::prelude::*;

const FLOOR: u64 = 0xffff_8080_0000_0000;
/// Three times 1 GiB and a bit.
const PAGES: u64 = (3 << 18) + 700;

/// A range with so many words beside it, each of them another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Kept<const WORDS: usize> {
    range: VaRange,
    words: [u64; WORDS],
}

impl<const WORDS: usize> Ranged for Kept<WORDS> {
    const WORDS: usize = WORDS;

    fn range(&self) -> VaRange {
        self.range
    }
    fn word(&self, nth: usize) -> u64 {
        self.words[nth]
    }
    fn read(range: VaRange, word: impl Fn(usize) -> u64) -> Kept<WORDS> {
        Kept { range, words: core::array::from_fn(word) }
    }
}

fn kept<const WORDS: usize>(start: u64, end: u64, seed: u64) -> Kept<WORDS> {
    let range = VaRange::new(Va::new(start), Va::new(end)).unwrap();
    Kept { range, words: core::array::from_fn(|n| seed * 7 + n as u64) }
}

fn at(page: u64) -> u64 {
    FLOOR + page * FRAME_BYTES
}

fn need(pages: u64, order: u32, from: Edge) -> GapNeed {
    let align = Bytes::new(FRAME_BYTES << order);
    GapNeed { bytes: Bytes::new(pages * FRAME_BYTES), align, within: whole(), from }
}
fn whole() -> VaRange {
    VaRange::new(Va::new(FLOOR), Va::new(at(PAGES))).unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    /// So many pages, at a multiple of 2^n pages, from one end.
    Take(u64, u32, Edge),
    /// A page at a place, if it is free.
    Put(u64),
    Leave(usize),
    /// Another end, as far as there is room, and other words.
    Move(usize, u64),
    /// The next one begins where it ends, or nothing happens; then the boundary moves to a place in
    /// the two.
    MoveBoundary(usize, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let pages = prop_oneof![6 => 1u64..9, 3 => 1u64..1200, 1 => Just(1 << 18)];
    let align = prop_oneof![4 => Just(0u32), 3 => Just(9u32), 1 => Just(18u32), 3 => 1u32..18];
    let end = prop_oneof![Just(Edge::Low), Just(Edge::High)];
    prop_oneof![
        3 => (pages.clone(), align, end).prop_map(|(pages, align, end)| Step::Take(pages, align, end)),
        4 => (0..600u64).prop_map(|place| Step::Put(3 * place)),
        3 => any::<usize>().prop_map(Step::Leave),
        1 => (any::<usize>(), pages.clone()).prop_map(|(nth, pages)| Step::Move(nth, pages)),
        1 => (any::<usize>(), pages).prop_map(|(nth, pages)| Step::MoveBoundary(nth, pages)),
    ]
}

/// A map and the vector.
struct Twin<'m, const WORDS: usize> {
    sim: &'m Sim,
    stock: Bare<'m>,
    map: Ranges<Kept<WORDS>>,
    listed: Vec<Kept<WORDS>>,
    seed: u64,
    free: Pages,
}

impl<const WORDS: usize> Twin<'_, WORDS> {
    fn new(sim: &Sim) -> Twin<'_, WORDS> {
        let map = Ranges::from(Va::new(FLOOR));
        let stock = stock(sim);
        let free = stock.folios.free_frames();
        Twin { sim, stock, map, listed: vec![], seed: 0, free }
    }
    fn supply(&self) {
        while let Some(rank) = self.map.lacks(self.sim, 1) {
            let frame = self.stock.claim_cleared(Owner::Records).unwrap();
            self.map.supply(self.sim, frame, rank);
        }
    }
    /// Bounds of the gaps, lowest first.
    fn gaps(&self) -> Vec<(u64, u64)> {
        let ends = self.listed.iter().map(|kept| kept.range.end().get());
        let starts = self.listed.iter().map(|kept| kept.range.start().get());
        [FLOOR].into_iter().chain(ends).zip(starts.chain([at(PAGES)])).collect()
    }
    /// Every place where the need could be met: one of each gap, the nearest end first.
    fn places(&self, need: &GapNeed) -> Vec<u64> {
        let (bytes, align) = (need.bytes.get(), need.align.get());
        let low = |(from, to): (u64, u64)| {
            let start = from.next_multiple_of(align);
            (start + bytes <= to).then_some(start)
        };
        let high = |(from, to): (u64, u64)| {
            let start = to.checked_sub(bytes)? / align * align;
            (start >= from).then_some(start)
        };
        let gaps = self.gaps().into_iter();
        match need.from {
            Edge::Low => gaps.filter_map(low).collect(),
            Edge::High => gaps.rev().filter_map(high).collect(),
        }
    }
    fn gap(&self, need: &GapNeed) -> Option<u64> {
        let (found, places) = (self.map.gap(self.sim, need).map(Va::get), self.places(need));
        assert_eq!(found.is_some(), !places.is_empty(), "{need:?}");
        assert!(found.is_none_or(|start| places.contains(&start)), "{need:?}: {found:?}");
        let passed = self.gaps().iter().filter(|(from, to)| to - from >= need.bytes.get()).count();
        if need.align.get() == FRAME_BYTES || passed < 16 {
            assert_eq!(found, places.first().copied(), "the nearest: {need:?}");
        }
        found
    }
    fn put(&mut self, start: u64, end: u64) {
        self.supply();
        self.seed += 1;
        let new = kept(start, end, self.seed);
        self.map.insert(self.sim, &new);
        let nth = self.listed.partition_point(|kept| kept.range.start() < new.range.start());
        self.listed.insert(nth, new);
    }
    fn take(&mut self, nth: usize) {
        self.map.remove(self.sim, self.listed.remove(nth).range.start());
    }
    fn step(&mut self, step: &Step) {
        match *step {
            Step::Take(pages, order, from) => {
                let need = need(pages, order, from);
                if let Some(start) = self.gap(&need) {
                    self.put(start, start + pages * FRAME_BYTES);
                }
            }
            Step::Put(page) => {
                if self.gaps().iter().any(|(from, to)| *from <= at(page) && at(page + 1) <= *to) {
                    self.put(at(page), at(page + 1));
                }
            }
            Step::Leave(nth) if !self.listed.is_empty() => self.take(nth % self.listed.len()),
            Step::Move(nth, pages) if !self.listed.is_empty() => {
                let nth = nth % self.listed.len();
                let (start, most) = (self.listed[nth].range.start().get(), self.gaps()[nth + 1].1);
                self.seed += 1;
                let end = (start + pages * FRAME_BYTES).min(most);
                self.listed[nth] = kept(start, end, self.seed);
                self.map.replace(self.sim, &self.listed[nth]);
            }
            Step::MoveBoundary(nth, pages) if self.listed.len() > 1 => {
                self.move_boundary(nth % (self.listed.len() - 1), pages);
            }
            Step::Leave(_) | Step::Move(..) | Step::MoveBoundary(..) => {}
        }
    }
    /// Lets a range end where the next one begins, and then, where both are in one leaf, so many
    /// pages behind its start, as far as the next one keeps something.
    fn move_boundary(&mut self, nth: usize, pages: u64) {
        let [one, next] = [self.listed[nth], self.listed[nth + 1]];
        let (start, from, end) = (one.range.start(), next.range.start(), next.range.end());
        let words = |kept: &Kept<WORDS>, from: Va, to: Va| Kept {
            range: VaRange::new(from, to).unwrap(),
            ..*kept
        };
        self.listed[nth] = words(&one, start, from);
        self.map.replace(self.sim, &self.listed[nth]);
        let to = start.add(pages * FRAME_BYTES).min(Va::new(end.get() - FRAME_BYTES));
        if self.map.move_boundary(self.sim, from, to) {
            (self.listed[nth], self.listed[nth + 1]) =
                (words(&one, start, to), words(&next, to, end));
        }
    }
    fn compare(&self) {
        assert!(self.map.is_sound(self.sim, Va::new(FLOOR)));
        assert_eq!(self.map.count(), self.listed.len() as u64);
        let mut from = Va::new(0);
        let walk = core::iter::from_fn(|| {
            let kept = self.map.at_or_after(self.sim, from)?;
            from = kept.range.end();
            Some(kept)
        });
        assert_eq!(walk.collect::<Vec<_>>(), self.listed);
        for place in self.listed.iter().flat_map(|kept| [kept.range.start(), kept.range.end()]) {
            for va in [Va::new(place.get() - 1), place] {
                let inside = self.listed.iter().copied().find(|kept| kept.range.contains(va));
                let before =
                    self.listed.iter().copied().rev().find(|kept| kept.range.start() <= va);
                assert_eq!(self.map.find(self.sim, va), inside, "{va}");
                assert_eq!(self.map.at_or_before(self.sim, va), before, "{va}");
                let nth = self.listed.iter().take_while(|kept| kept.range.end() <= va).count();
                let around = [nth.checked_sub(1), Some(nth), Some(nth + 1)]
                    .map(|nth| self.listed.get(nth?).copied());
                assert_eq!(self.map.around(self.sim, va), around, "{va}");
            }
        }
    }
    /// The leaf that is remembered has what belongs there, at its ends as well (M5).
    fn look_around_the_last_change(&self) {
        for bound in self.map.recent[1..].iter().map(get) {
            for va in [bound.saturating_sub(1), bound].map(Va::new) {
                let before = self.listed.iter().rev().find(|kept| kept.range.start() <= va);
                assert_eq!(self.map.at_or_before(self.sim, va), before.copied(), "{va}");
            }
        }
    }
    /// Takes everything out, and finds all frames again.
    fn end(self) {
        self.map.dissolve(self.sim, |frame| self.stock.release(frame));
        assert_eq!(self.stock.folios.free_frames(), self.free);
    }
}

fn history<const WORDS: usize>(steps: &[Step]) {
    let sim = Sim::new(Config::seeded(1, Bytes::new(16 << 20), 1)).unwrap();
    let mut twin = Twin::<WORDS>::new(&sim);
    for step in steps {
        twin.step(step);
        assert!(twin.map.is_sound(&sim, Va::new(FLOOR)), "after {step:?}");
        twin.look_around_the_last_change();
    }
    twin.compare();
    for order in [0, 3, 9, 18] {
        for pages in [1, 2, 5, 40, 260, 1 << 18] {
            for from in [Edge::Low, Edge::High] {
                twin.gap(&need(pages, order, from));
            }
        }
    }
    twin.end();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Hundreds of ranges make a map of several levels; the vector says what must be in it, and
    /// where there is room.
    #[test]
    fn the_map_is_what_the_vector_says(steps in prop::collection::vec(step(), 1..500)) {
        history::<1>(&steps);
        history::<2>(&steps);
    }
}

/// Enough ranges for four levels, put in and taken out, each time in another order. The frames of
/// the nodes are counted, spare ones included, and come back.
#[test]
fn a_map_of_four_levels_grows_and_shrinks() {
    let sim = Sim::new(Config::seeded(1, Bytes::new(64 << 20), 1)).unwrap();
    let twin = Twin::<2>::new(&sim);
    let count = 40_000u64;
    // The strides meet every number once.
    for n in (0..count).map(|n| n * 7919 % count) {
        twin.supply();
        twin.map.insert(&sim, &kept(at(2 * n), at(2 * n + 1), n));
    }
    assert!(get(&twin.map.depth) >= 4 && twin.map.is_sound(&sim, Va::new(FLOOR)));
    for n in 0..count {
        assert_eq!(
            twin.map.find(&sim, Va::new(at(2 * n))),
            Some(kept(at(2 * n), at(2 * n + 1), n))
        );
        assert_eq!(twin.map.find(&sim, Va::new(at(2 * n + 1))), None);
    }
    for n in (0..count).map(|n| n * 104_729 % count) {
        twin.map.remove(&sim, Va::new(at(2 * n)));
        if n % 10_000 == 0 {
            assert!(twin.map.is_sound(&sim, Va::new(FLOOR)));
        }
    }
    assert_eq!((twin.map.count(), get(&twin.map.depth)), (0, 0));
    assert_eq!(twin.map.at_or_after(&sim, Va::new(0)), None);
    twin.end();
}

/// Ranges put in one below the other, as a program's mappings come, and one above the other.
#[test]
fn finding_aj_the_gap_below_the_lowest_ranges_is_found() {
    for down in [true, false] {
        let sim = Sim::new(Config::seeded(1, Bytes::new(16 << 20), 1)).unwrap();
        let mut twin = Twin::<2>::new(&sim);
        for n in 0..300 {
            let place = at(1000 + 2 * if down { 299 - n } else { n });
            twin.put(place, place + FRAME_BYTES);
        }
        twin.compare();
        for below in (990..1610).map(|page| Va::new(at(page))) {
            for pages in [1, 2, 100] {
                let within = VaRange::new(Va::new(FLOOR), below).unwrap();
                let need = GapNeed { within, ..need(pages, 0, Edge::High) };
                let found = twin.map.gap(&sim, &need).map(Va::get);
                let cut = twin.gaps().into_iter().map(|(from, to)| (from, to.min(below.get())));
                let fits = |(from, to): (u64, u64)| {
                    to.checked_sub(pages * FRAME_BYTES).filter(|start| *start >= from)
                };
                assert_eq!(found, cut.rev().find_map(fits), "{pages} pages below {below}");
            }
        }
        twin.end();
    }
}

/// Room in a stretch is found by a look at the gaps that share an address with it, wherever others
/// are that have room.
#[test]
fn gaps_outside_of_the_stretch_are_not_looked_at() {
    let sim = Sim::new(Config::seeded(1, Bytes::new(16 << 20), 1)).unwrap();
    let mut twin = Twin::<2>::new(&sim);
    // Gaps of 1 page and of 3, in turn.
    let place = |n: u64| 2 * n + n / 2 * 2;
    for n in 0..400 {
        twin.put(at(1000 + place(n)), at(1001 + place(n)));
    }
    twin.compare();
    for (low, high) in
        [(0, 990), (998, 1003), (1001, 1200), (1333, 1340), (1990, 3000), (2590, 2601)]
    {
        let within = VaRange::new(Va::new(at(low)), Va::new(at(high))).unwrap();
        let inside = |(from, to): (u64, u64)| (from.max(at(low)), to.min(at(high)));
        for (pages, from) in [1, 2, 3, 4].iter().flat_map(|n| [(*n, Edge::Low), (*n, Edge::High)]) {
            let need = GapNeed { within, ..need(pages, 0, from) };
            let bytes = need.bytes.get();
            let mut search = Search { need: &need, bytes, left: u64::MAX };
            let found = twin.map.search(&sim, &mut search).map(Va::get);
            let mut fits =
                twin.gaps().into_iter().map(inside).filter(|(from, to)| from + bytes <= *to);
            let expected = match from {
                Edge::Low => fits.next().map(|(from, _)| from),
                Edge::High => fits.next_back().map(|(_, to)| to - bytes),
            };
            assert_eq!(found, expected, "{pages} pages of {low}..{high} from {from:?}");
            let touched =
                twin.gaps().into_iter().filter(|(from, to)| *from <= at(high) && *to >= at(low));
            let looks = u64::MAX - search.left;
            assert!(looks <= touched.count() as u64, "{looks} looks for {pages} of {low}..{high}");
        }
    }
    twin.end();
}

/// A hundred gaps are large enough and wrongly aligned: one with room to spare is found, and where
/// there is none, the only one that fits.
#[test]
fn an_aligned_need_is_met_wherever_it_can_be() {
    for from in [Edge::Low, Edge::High] {
        let sim = Sim::new(Config::seeded(1, Bytes::new(16 << 20), 1)).unwrap();
        let mut twin = Twin::<1>::new(&sim);
        let mut place = |from: u64, to: u64| twin.put(at(from), at(to));
        // Gaps of two pages at odd places, but for one in the middle; then all that is left.
        place(0, 1);
        for n in 0..100 {
            let (start, end) = (4 * n + 3, 4 * n + 5);
            place(if n == 50 { 204 } else { start }, if n == 49 { 202 } else { end });
        }
        place(401, PAGES - 64);
        place(PAGES - 60, PAGES);
        let wanted = need(2, 1, from);
        let roomy = if from == Edge::Low { PAGES - 64 } else { PAGES - 62 };
        assert_eq!(twin.gap(&wanted), Some(at(roomy)), "there is room to spare");
        twin.put(at(PAGES - 64), at(PAGES - 60));
        assert_eq!(twin.gap(&wanted), Some(at(202)), "the only one");
        twin.put(at(202), at(203));
        assert_eq!(twin.gap(&wanted), None);
        twin.end();
    }
}

/// The walk that says whether a map is sound tells each wrong word, also where all others are
/// right.
#[test]
fn a_wrong_word_makes_a_map_unsound() {
    let sim = Sim::new(Config::seeded(1, Bytes::new(16 << 20), 1)).unwrap();
    let mut twin = Twin::<1>::new(&sim);
    (0..60).for_each(|n| twin.put(at(3 * n + 1), at(3 * n + 2)));
    let map = &twin.map;
    let wrong = |word: &dyn Fn(u64)| {
        assert!(map.is_sound(&sim, Va::new(FLOOR)));
        word(1);
        let sound = map.is_sound(&sim, Va::new(FLOOR));
        word(0);
        !sound
    };
    for count in [&map.last_end, &map.count, &map.depth] {
        let right = get(count);
        assert!(wrong(&|by| set(count, right + by)));
    }
    let root = map.root(&sim).unwrap();
    for node in [root, Ranges::child(&sim, &root, 1)] {
        for i in 0..node.len() {
            let gap = node.gap(i);
            assert!(wrong(&|by| node.set_gap(i, gap + by)));
        }
    }
    assert!(!map.is_sound(&sim, Va::new(FLOOR + FRAME_BYTES)));
    twin.end();
}

/// The leaf of the last change is known: what lies in it is found without the way down.
#[cfg(feature = "steps")]
#[test]
fn what_lies_beside_the_last_change_is_found_in_fewer_steps() {
    let sim = Sim::new(Config::free(1, Bytes::new(16 << 20))).unwrap();
    let mut twin = Twin::<1>::new(&sim);
    (0..600).for_each(|nth| twin.put(at(3 * nth), at(3 * nth + 1)));
    twin.map.replace(&sim, &twin.listed[300]);
    let steps = |page| {
        let before = crate::sync::steps::taken();
        twin.map.find(&sim, Va::new(at(page))).unwrap();
        crate::sync::steps::taken() - before
    };
    assert!(steps(3 * 301) < steps(3 * 100), "{} and {}", steps(3 * 301), steps(3 * 100));
    twin.end();
}
