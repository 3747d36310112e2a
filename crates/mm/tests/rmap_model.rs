//! The reverse map against a naive twin that looks at every entry of every space.

use crate::common::*;
use foliant::fault::Orders;
use foliant::space::{Flags, Move, SpaceId};
use foliant::split::{SplitInto, ZeroPieces};
use foliant::table::{Attrs, Entry};
use foliant::{Access, Policy};
use foliant_units::{Bytes, Frame, Order, Va};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Pages of the window that everything happens in: a bit more than two tables.
const WINDOW: u64 = 1100;

#[derive(Clone, Debug)]
enum Operation {
    Map { at: u64, pages: u64 },
    Touch { at: u64, pages: u64 },
    Unmap { at: u64, pages: u64 },
    Protect { at: u64, pages: u64 },
    Move { at: u64, pages: u64, to: u64 },
    Fork,
    End,
    Split { at: u64, order: u8, share: bool },
    Relocate { at: u64 },
}

fn operation() -> impl Strategy<Value = Operation> {
    let at = || 0..WINDOW;
    let pages = || prop_oneof![1..20u64, 1..600u64];
    prop_oneof![
        3 => (at(), pages()).prop_map(|(at, pages)| Operation::Map { at, pages }),
        5 => (at(), pages()).prop_map(|(at, pages)| Operation::Touch { at, pages }),
        2 => (at(), pages()).prop_map(|(at, pages)| Operation::Unmap { at, pages }),
        1 => (at(), pages()).prop_map(|(at, pages)| Operation::Protect { at, pages }),
        4 => (at(), 1..40u64, at()).prop_map(|(at, pages, to)| Operation::Move { at, pages, to }),
        2 => Just(Operation::Fork),
        1 => Just(Operation::End),
        3 => (at(), 0..7u8, any::<bool>())
            .prop_map(|(at, order, share)| Operation::Split { at, order, share }),
        2 => at().prop_map(|at| Operation::Relocate { at }),
    ]
}

/// Every entry that names a folio: by its head, where it is, and which page.
fn look(mm: &Mm<'_>, spaces: &[SpaceId]) -> BTreeMap<Frame, BTreeSet<(usize, u64, Frame)>> {
    let mut all: BTreeMap<Frame, BTreeSet<(usize, u64, Frame)>> = BTreeMap::new();
    for (nth, id) in spaces.iter().enumerate() {
        mm.with_leaves(*id, range(BASE, 2 * WINDOW * PAGE), |leaves| {
            for leaf in leaves {
                let Entry::Leaf { pa, attrs } = leaf.entry else { continue };
                if attrs.has(Attrs::SPECIAL) {
                    continue;
                }
                for page in 0..leaf.level.span().get() / PAGE {
                    let frame = pa.add(page * PAGE).frame();
                    let head = mm.identity(frame).head(frame);
                    all.entry(head).or_default().insert((nth, leaf.va.get() + page * PAGE, frame));
                }
            }
        });
    }
    all
}

fn apply(mm: &Mm<'_>, spaces: &mut Vec<SpaceId>, nth: usize, operation: &Operation) {
    let id = spaces[nth % spaces.len()];
    let span = |at: u64, pages: u64| {
        let end = (at + pages).min(WINDOW);
        range(BASE + at * PAGE, (end - at) * PAGE)
    };
    let place = |at: u64| Va::new(BASE + at * PAGE);
    match *operation {
        Operation::Map { at, pages } => {
            let request = foliant::space::MapRequest {
                place: foliant::space::Place::Fixed(place(at)),
                bytes: span(at, pages).bytes(),
                flags: Flags::READ_WRITE,
                tag: 0,
            };
            mm.map(id, &request).unwrap();
        }
        Operation::Touch { at, pages } => {
            for page in (at..(at + pages).min(WINDOW)).step_by(5) {
                mm.fault(id, place(page), Access::Write);
            }
        }
        Operation::Unmap { at, pages } => mm.unmap(id, span(at, pages)).unwrap(),
        Operation::Protect { at, pages } => {
            let _ = mm.protect(id, span(at, pages), Flags::READ);
            let _ = mm.protect(id, span(at, pages / 2 + 1), Flags::READ_WRITE);
        }
        Operation::Move { at, pages, to } => {
            let old = span(at, pages);
            let _ = mm.remap(id, old, Bytes::new(old.bytes().get()), Move::To(place(to)));
        }
        Operation::Fork if spaces.len() < 5 => spaces.push(mm.fork(id).unwrap()),
        Operation::End if spaces.len() > 1 => {
            let gone = spaces.remove(nth % spaces.len());
            mm.end(gone).unwrap();
        }
        Operation::Fork | Operation::End => {}
        Operation::Split { at, order, share } => {
            let zeros = if share { ZeroPieces::Share } else { ZeroPieces::Keep };
            let into = SplitInto { order: Order::new(order).unwrap(), zeros };
            let _ = mm.split(id, place(at), into);
        }
        Operation::Relocate { at } => {
            if let Some(frame) = mm.frame_at(id, place(at)) {
                mm.relocate(frame).unwrap();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_walk_finds_what_a_look_at_everything_finds(
        operations in prop::collection::vec((any::<usize>(), operation()), 1..60),
    ) {
        let sim = sim(1, 64);
        let mm = manager(&sim, Policy::always(Orders::ANON));
        let mut spaces = vec![mm.create(None).unwrap(), mm.create(None).unwrap()];
        for (nth, operation) in &operations {
            apply(&mm, &mut spaces, *nth, operation);
            for (head, entries) in look(&mm, &spaces) {
                let found = mm.mappings(head).unwrap();
                let order = mm.identity(head).order();
                let named: BTreeSet<usize> = entries.iter().map(|(space, ..)| *space).collect();
                prop_assert_eq!(found.entries(order), entries.len() as u64, "{:?}", head);
                prop_assert_eq!(found.spaces, named.len() as u64, "{:?}", head);
                // Of one of its pages, another one each time.
                let (.., page) = *entries.iter().nth(nth % entries.len()).unwrap();
                let named = entries.iter().filter(|(.., frame)| *frame == page).count();
                prop_assert_eq!(mm.page_mappings(page), Some(named as u64), "{:?}", page);
            }
        }
    }
}
