//! The tree of areas beside a sorted vector.

use super::record::{Id, Record, RecordWord};
use super::tree::{GapNeed, Tree};
use super::{Controls, VmapState};
use crate::sync::Ordering;
use alloc::vec;
use alloc::vec::Vec;
use foliant_sim::{Config, Sim};
use foliant_units::{Bytes, FRAME_BYTES, Va, VaRange};
use proptest::prelude::*;

const START: u64 = 0xffff_8080_0000_0000;
/// Three times 1 GiB and a bit.
const PAGES: u64 = (3 << 18) + 700;

#[derive(Clone, Debug)]
enum Step {
    /// So many pages, at a multiple of 2^n pages.
    Take(u64, u32),
    Leave(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let pages = prop_oneof![6 => 1u64..9, 3 => 1u64..1200, 1 => Just(1 << 18)];
    let align = prop_oneof![4 => Just(0u32), 3 => Just(9u32), 1 => Just(18u32), 3 => 1u32..18];
    prop_oneof![
        3 => (pages, align).prop_map(|(pages, align)| Step::Take(pages, align)),
        2 => any::<usize>().prop_map(Step::Leave),
    ]
}

/// The lowest place in a sorted vector of pieces.
fn lowest(taken: &[(u64, u64)], bytes: u64, align: u64) -> Option<u64> {
    let mut at = START;
    for (start, end) in taken.iter().copied().chain([(START + PAGES * FRAME_BYTES, 0)]) {
        let fit = at.next_multiple_of(align);
        if fit + bytes <= start {
            return Some(fit);
        }
        at = end;
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn the_lowest_gap_is_what_a_walk_finds(steps in prop::collection::vec(step(), 1..300)) {
        let sim = Sim::new(Config::seeded(1, Bytes::new(4 << 20), 1)).unwrap();
        let range = VaRange::sized(Va::new(START), Bytes::new(PAGES * FRAME_BYTES)).unwrap();
        let state = VmapState::new(range, Controls::DEFAULT);
        let tree = Tree::new(&sim, &state);
        let first = sim.config().memory[0].start().get() * 32 + 1;
        let mut free: Vec<u64> = (first..first + 320).rev().collect();
        let mut taken: Vec<(u64, u64)> = vec![];
        let mut records: Vec<Record<'_>> = vec![];
        for step in steps {
            match step {
                Step::Take(pages, order) => {
                    let (bytes, align) = (pages * FRAME_BYTES, FRAME_BYTES << order);
                    let found = tree.lowest(GapNeed { bytes, align: Bytes::new(align) });
                    let naive = lowest(&taken, bytes, align);
                    if matches!(order, 0 | 9 | 18) {
                        prop_assert_eq!(found.map(Va::get), naive);
                    }
                    prop_assert_eq!(found.is_some(), naive.is_some());
                    let Some(start) = found.map(Va::get) else { continue };
                    prop_assert_eq!(start % align, 0);
                    prop_assert!(taken.iter().all(|(s, e)| *e <= start || start + bytes <= *s));
                    let record = Record::at(&sim, Id(free.pop().unwrap()));
                    record.set(RecordWord::Start, start);
                    record.set(RecordWord::End, start + bytes);
                    tree.insert(record);
                    let at = taken.partition_point(|piece| *piece < (start, 0));
                    taken.insert(at, (start, start + bytes));
                    records.insert(at, record);
                }
                Step::Leave(nth) if !taken.is_empty() => {
                    let nth = nth % taken.len();
                    taken.remove(nth);
                    let record = records.remove(nth);
                    tree.remove(record);
                    free.push(record.id.0);
                }
                Step::Leave(_) => {}
            }
            prop_assert!(tree.is_sound());
        }
        for (start, end) in &taken {
            let inside = Va::new(start + (end - start) / 2);
            prop_assert_eq!(tree.find(inside).map(|area| area.start().get()), Some(*start));
        }
    }
}

/// A search looks at few records however many areas there are: the depth is that of a balanced
/// tree.
#[test]
fn a_thousand_areas_in_a_row_make_a_shallow_tree() {
    let sim = Sim::new(Config::seeded(1, Bytes::new(4 << 20), 1)).unwrap();
    let range = VaRange::sized(Va::new(START), Bytes::new(PAGES * FRAME_BYTES)).unwrap();
    let state = VmapState::new(range, Controls::DEFAULT);
    let tree = Tree::new(&sim, &state);
    let first = sim.config().memory[0].start().get() * 32 + 1;
    for nth in 0..4096 {
        let record = Record::at(&sim, Id(first + nth));
        let need = GapNeed { bytes: 2 * FRAME_BYTES, align: Bytes::new(FRAME_BYTES) };
        let start = tree.lowest(need).unwrap();
        assert_eq!(start.get(), START + nth * 2 * FRAME_BYTES);
        record.set(RecordWord::Start, start.get());
        record.set(RecordWord::End, start.get() + 2 * FRAME_BYTES);
        tree.insert(record);
    }
    assert!(tree.is_sound());
    assert!(tree.depth() < 40, "{} levels for 4096 areas", tree.depth());
}

/// The walk that says whether a tree is sound tells each wrong word, also where all others are
/// right.
#[test]
fn a_wrong_word_makes_a_tree_unsound() {
    let sim = Sim::new(Config::seeded(1, Bytes::new(4 << 20), 1)).unwrap();
    let range = VaRange::sized(Va::new(START), Bytes::new(PAGES * FRAME_BYTES)).unwrap();
    let state = VmapState::new(range, Controls::DEFAULT);
    let tree = Tree::new(&sim, &state);
    let first = sim.config().memory[0].start().get() * 32 + 1;
    let records = (0..9).map(|nth| Record::at(&sim, Id(first + nth)));
    let records: Vec<Record<'_>> = records.collect();
    for (nth, record) in (0..).zip(&records) {
        let start = START + (3 * nth + 1) * FRAME_BYTES;
        record.set(RecordWord::Start, start);
        record.set(RecordWord::End, start + FRAME_BYTES);
        tree.insert(*record);
    }
    let wrong = |word: &dyn Fn(u64)| {
        assert!(tree.is_sound());
        word(1);
        let sound = tree.is_sound();
        word(0);
        !sound
    };
    for count in [&state.last_end, &state.areas] {
        let right = count.load(Ordering::Relaxed);
        assert!(wrong(&|by| count.store(right + by, Ordering::Relaxed)));
    }
    for record in records {
        for field in [RecordWord::Gap, RecordWord::Best, RecordWord::End] {
            let right = record.get(field);
            assert!(wrong(&|by| record.set(field, right + by)));
        }
    }
    assert!(tree.is_sound());
}
