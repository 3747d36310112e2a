//! Random histories against the obvious version: a map from page to frame and attributes.
//!
//! The twin notes a walker's access on the one page that was accessed; the tables note it on the
//! leaf. So the tables may know of more, never of less: an access that is lost is a failure.

use super::board::Board;
use crate::*;
use foliant_machine::Replace;
use foliant_units::{Frame, Level, Pa, Va, VaRange};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::collections::BTreeMap;
use std::vec::Vec;

/// The window: 6 MiB, begun 2 MiB below a 1 GiB boundary so that two tables of level 1 share it.
const BASE: u64 = (1 << 30) - (2 << 20);
const PAGES: u64 = 1536;
const OWN: Attrs = Attrs::TOUCHED.with(Attrs::GROUPED);

#[derive(Clone, Debug)]
enum Op {
    Map { at: u64, pages: u64, frame: u64, attrs: Attrs, largest: Level },
    Unmap { at: u64, pages: u64, prune: Prune },
    Protect { at: u64, pages: u64, change: Change },
    Split { at: u64, level: Level },
    Collapse { at: u64 },
    Touch { at: u64, bits: Attrs },
    Detach { at: u64, level: Level },
}

fn attrs() -> impl Strategy<Value = Attrs> {
    (0..1u16 << Attrs::BITS).prop_map(|bits| Attrs::from_bits(bits).without(Attrs::GROUPED))
}

/// Page numbers that favour the boundaries of groups and leaves.
fn page() -> impl Strategy<Value = u64> {
    prop_oneof![0..PAGES, (0..PAGES / 16).prop_map(|n| n * 16), (0..3u64).prop_map(|n| n * 512)]
}

fn pages() -> impl Strategy<Value = u64> {
    prop_oneof![1..40u64, (1..40u64).prop_map(|n| n * 16), (1..4u64).prop_map(|n| n * 512)]
}

fn op() -> impl Strategy<Value = Op> {
    let level = || (0..2u8).prop_map(Level);
    let prune = prop_oneof![Just(Prune::Keep), Just(Prune::Emptied), Just(Prune::All)];
    prop_oneof![
        4 => (page(), pages(), prop_oneof![Just(0), Just(512u64), 0..600u64], attrs(), level())
            .prop_map(|(at, pages, shift, attrs, largest)| Op::Map {
                at, pages, frame: at + shift, attrs, largest
            }),
        2 => (page(), pages(), prune).prop_map(|(at, pages, prune)| Op::Unmap { at, pages, prune }),
        2 => (page(), pages(), attrs(), attrs()).prop_map(|(at, pages, set, clear)| Op::Protect {
            at, pages, change: Change { set, clear }
        }),
        1 => (page(), level()).prop_map(|(at, level)| Op::Split { at, level }),
        1 => page().prop_map(|at| Op::Collapse { at }),
        1 => (page(), prop_oneof![Just(Attrs::ACCESSED), Just(Attrs::TOUCHED)])
            .prop_map(|(at, bits)| Op::Touch { at, bits }),
        1 => (page(), level()).prop_map(|(at, level)| Op::Detach { at, level }),
    ]
}

struct World<'b, P> {
    board: &'b Board,
    tables: Tables<'b, Board, P>,
    replace: Replace,
    twin: BTreeMap<u64, (u64, Attrs)>,
    spare: Spare,
    stock: usize,
    freed: usize,
}

fn va(page: u64) -> Va {
    Va::new(BASE + page * 4096)
}

fn cut(at: u64, pages: u64) -> (u64, u64, VaRange) {
    let end = (at + pages).min(PAGES);
    (at, end, VaRange::new(va(at), va(end)).unwrap())
}

impl<P: Paging> World<'_, P> {
    fn refill(&mut self) {
        while self.spare.len() < self.stock {
            self.spare.push(self.board.claim()).unwrap();
        }
    }
    fn split(&mut self, at: Va, level: Level) -> Result<Run, Stuck> {
        self.refill();
        match self.replace {
            Replace::InPlace => self.tables.split(at, level, &mut self.spare),
            Replace::BreakBeforeMake => {
                assert_eq!(self.tables.split(at, level, &mut self.spare), Err(Stuck::BreakFirst));
                let begun = self.tables.split_begin(at, level)?;
                let seen = self.tables.walk(at);
                assert!(matches!(seen.entry, Entry::Soft(Soft { kind: SoftKind::Breaking, .. })));
                let done = self.tables.split_finish(at, level, &mut self.spare)?;
                assert_eq!(begun.range(), done.range());
                Ok(begun)
            }
        }
    }
    /// Runs an operation over a range to its end, and sees to all that it stops for; gives the
    /// runs.
    fn drive(
        &mut self,
        range: VaRange,
        op: impl Fn(&Tables<'_, Board, P>, VaRange, &mut Harvest) -> Swept,
    ) -> Vec<Run> {
        let (mut at, mut runs) = (range.start(), Vec::new());
        let mut harvest = Harvest::new();
        loop {
            let rest = VaRange::new(at, range.end()).unwrap();
            let swept = op(&self.tables, rest, &mut harvest);
            assert!(swept.upto >= at && swept.upto <= range.end());
            runs.extend(harvest.runs().copied());
            harvest.clear_runs();
            while let Some(_table) = harvest.pop_table() {
                self.freed += 1;
            }
            at = swept.upto;
            match swept.why {
                Stop::Done => return runs,
                Stop::Full => {}
                Stop::Straddles { va, level } => {
                    self.split(va, level).unwrap();
                }
                Stop::Busy(va) => panic!("{va} is busy"),
            }
        }
    }
    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Map { at, pages, frame, attrs, largest } => {
                self.map(cut(at, pages), frame, attrs, largest);
            }
            Op::Unmap { at, pages, prune } => {
                let (at, end, range) = cut(at, pages);
                let runs = self.drive(range, |t, r, h| t.unmap(r, prune, h).unwrap());
                let gone = self.compare_runs(&runs);
                let expect = self.twin.range(at..end).count();
                assert_eq!(gone, expect as u64);
                self.twin.retain(|page, _| !(at..end).contains(page));
            }
            Op::Protect { at, pages, change } => self.protect(cut(at, pages), change),
            Op::Split { at, level } => {
                let before = self.tables.walk(va(at));
                match self.split(va(at), level) {
                    Ok(run) => assert_eq!(run.level, before.level),
                    Err(stuck) => assert!(!matches!(stuck, Stuck::NeedTable), "{stuck:?}"),
                }
            }
            Op::Collapse { at } => self.collapse(at),
            Op::Touch { at, bits } => self.touch(at, bits),
            Op::Detach { at, level } => match self.tables.detach(va(at), level, Prune::All) {
                Ok(_table) => self.freed += 1,
                Err(Kept::Occupied | Kept::Missing(_)) => {}
                Err(Kept::Pinned) => panic!("all may go"),
            },
        }
    }
    fn map(&mut self, (at, end, range): (u64, u64, VaRange), frame: u64, attrs: Attrs, top: Level) {
        if let Some((page, _)) = self.twin.range(at..end).next() {
            let first = self.tables.map(range, Frame::new(frame), attrs, top, &mut self.spare);
            let Err(Refused::Live(live)) = first else { panic!("{first:?}") };
            assert_eq!(live, va(*page));
            return;
        }
        let mut done = at;
        while done < end {
            self.refill();
            let rest = VaRange::new(va(done), range.end()).unwrap();
            let first = Frame::new(frame + done - at);
            let mapped = self.tables.map(rest, first, attrs, top, &mut self.spare).unwrap();
            done = mapped.upto.offset_from(va(0)) / 4096;
            let count = self.tables.leaves(VaRange::new(mapped.upto, range.end()).unwrap()).count();
            assert_eq!(count, 0, "nothing from upto on");
            assert_eq!(done == end, mapped.why == MapStop::Done);
            assert!(!matches!(mapped.why, MapStop::Live(_)));
        }
        let held = attrs.and(P::KEEPS).without(Attrs::GROUPED);
        self.twin.extend((at..end).map(|page| (page, (frame + page - at, held))));
    }
    fn protect(&mut self, (at, end, range): (u64, u64, VaRange), change: Change) {
        let runs = self.drive(range, |tables, rest, harvest| {
            let swept = tables.protect(rest, change, harvest).unwrap();
            let done = VaRange::new(rest.start(), swept.upto).unwrap();
            if !done.is_empty() {
                assert_eq!(tables.mend(done).unwrap().why, Stop::Done);
            }
            swept
        });
        for run in runs {
            assert!(range.covers(run.range()));
        }
        for (_, (_, attrs)) in self.twin.range_mut(at..end) {
            *attrs = change.of(*attrs).and(P::KEEPS);
        }
    }
    fn collapse(&mut self, at: u64) {
        let head = at / 512 * 512;
        let first = self.twin.get(&head).copied();
        let even = first.is_some_and(|(frame, attrs)| {
            let same = |page: u64| {
                self.twin.get(&page).is_some_and(|(f, a)| {
                    *f == frame + page - head && a.without(OWN) == attrs.without(OWN)
                })
            };
            frame % 512 == 0 && (head..head + 512).all(same)
        });
        let small = self.tables.walk(va(at)).level == Level::BASE;
        let collapsed = match self.replace {
            Replace::InPlace => self.tables.collapse(va(at), Level::SIZE_2M),
            Replace::BreakBeforeMake => {
                assert_eq!(self.tables.collapse(va(at), Level::SIZE_2M), Err(Stuck::BreakFirst));
                self.tables.collapse_begin(va(at), Level::SIZE_2M)
            }
        };
        assert_eq!(collapsed.is_ok(), even && small, "{collapsed:?}");
        if let Ok(collapsed) = collapsed {
            self.freed += 1;
            let _ = self.tables.mend(collapsed.run.range()).unwrap();
            assert_eq!(self.tables.walk(va(at)).level, Level::SIZE_2M);
        }
    }
    fn touch(&mut self, at: u64, bits: Attrs) {
        let found = self.tables.walk(va(at));
        if let Entry::Leaf { pa, attrs } = found.entry {
            let bits = if attrs.has(Attrs::WRITE) { bits } else { Attrs::ACCESSED };
            let new = P::leaf(pa, found.level, attrs | bits);
            self.board.walker_changes(found.at, found.word, new);
            self.twin.get_mut(&at).unwrap().1 = self.twin[&at].1 | bits;
        }
    }
    /// Checks that runs say what the twin says; gives their pages.
    fn compare_runs(&self, runs: &[Run]) -> u64 {
        let mut pages = 0;
        for run in runs {
            let What::Mapped { pa, attrs } = run.what else { panic!("{run:?}") };
            let (first, count) = (page_of(run.va), run.range().bytes().get() / 4096);
            for n in 0..count {
                let (frame, known) = self.twin[&(first + n)];
                assert_eq!(pa.frame().get() + n, frame, "{run:?}");
                assert_eq!(attrs.without(OWN), known.without(OWN), "{run:?}");
                assert!(attrs.has(known.and(Attrs::TOUCHED)), "lost an access: {run:?}");
            }
            pages += count;
        }
        pages
    }
    fn compare(&self) {
        let mut seen = 0;
        for found in self.tables.leaves(cut(0, PAGES).2) {
            let Entry::Leaf { pa, attrs } = found.entry else { panic!("{found:?}") };
            for n in 0..found.level.span().get() / 4096 {
                let (frame, known) = self.twin[&(page_of(found.va) + n)];
                assert_eq!(pa.frame().get() + n, frame, "{found:?}");
                assert_eq!(attrs.without(OWN), known.without(OWN), "{found:?}");
                assert!(attrs.has(known.and(Attrs::TOUCHED)), "lost an access: {found:?}");
                seen += 1;
            }
        }
        assert_eq!(seen, self.twin.len());
        // Each frame used is a reachable table (the root too), in stock, or was given back.
        let tables = count_tables::<P>(self.board, self.tables.root(), P::TOP);
        assert_eq!(tables + self.spare.len() + self.freed, self.board.used());
    }
}

fn page_of(at: Va) -> u64 {
    at.offset_from(va(0)) / 4096
}

/// The tables below the one at `pa`, itself included.
fn count_tables<P: Paging>(board: &Board, pa: Pa, level: Level) -> usize {
    let below = |slot: Slot| {
        let word = board.peek(Pa::new(pa.get() + slot.index() as u64 * 8));
        match P::decode(word, level, slot) {
            Entry::Table(next) => {
                assert_eq!(word & P::LOCK, 0, "a lock was left behind");
                count_tables::<P>(board, next, level.down().unwrap())
            }
            _ => 0,
        }
    };
    1 + Slots::ALL.iter().map(below).sum::<usize>()
}

fn check<P: Paging>(replace: Replace, stock: usize, ops: &[Op]) {
    let board = Board::new(ops.len() * 8 + 64, replace);
    let tables = board.tables::<P>(Half::User);
    let mut world = World {
        board: &board,
        tables,
        replace,
        twin: BTreeMap::new(),
        spare: Spare::new(),
        stock,
        freed: 0,
    };
    for op in ops {
        world.apply(op);
        world.compare();
    }
}

/// So many cases, the same ones every time.
fn seeded(cases: u32) -> ProptestConfig {
    let rng_seed = RngSeed::Fixed(1);
    ProptestConfig { cases, rng_seed, failure_persistence: None, ..Default::default() }
}

proptest! {
    #![proptest_config(seeded(64))]

    #[test]
    fn tables_say_what_the_twin_says(
        ops in prop::collection::vec(op(), 1..40),
        stock in 1..=Spare::MAX,
    ) {
        check::<X86_64<4>>(Replace::InPlace, stock, &ops);
        check::<X86_64<5>>(Replace::BreakBeforeMake, stock, &ops);
        check::<Aarch64>(Replace::BreakBeforeMake, stock, &ops);
        check::<Aarch64>(Replace::InPlace, stock, &ops);
        check::<Sv39>(Replace::InPlace, stock, &ops);
        check::<Sv48>(Replace::InPlace, stock, &ops);
        check::<Sv57>(Replace::InPlace, stock, &ops);
    }
}
