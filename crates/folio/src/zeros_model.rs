//! Knowledge of zeros against a naive twin, which keeps the content of every frame. Blocks are
//! taken, asked about, cleared or dirtied, cut up and given back by several CPUs, and memory is
//! added; a frame that is said to be zero is zero.

use super::model::lend;
use super::*;
use foliant_units::{FrameRange, Order, Pages};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::collections::BTreeMap;
use std::vec::Vec;

#[derive(Clone, Copy, Debug)]
enum Op {
    Alloc { cpu: u16, order: u8, class: u8, dirty: bool },
    Free { cpu: u16, pick: usize, how: u8 },
    Split { pick: usize, into: u8 },
    Ahead { cpu: u16, pages: u64 },
    Add { zero: bool },
}

/// The first range, and the one that is added. A hole is between them, and neither is aligned.
const FIRST: (u64, u64) = (0x10, 512 * 5 + 100);
const ADDED: (u64, u64) = (0x10 + 512 * 6, 512 * 3 + 7);

#[derive(Default)]
struct Twin {
    /// Whether a frame holds zeros.
    zero: BTreeMap<u64, bool>,
    /// Whether a frame must be known to hold zeros, if it is free.
    known: BTreeMap<u64, bool>,
    /// Blocks taken, and whether they were written to since.
    blocks: Vec<(Frame, Order, bool)>,
}

fn frames(head: Frame, order: Order) -> core::ops::Range<u64> {
    head.get()..head.get() + order.pages().get()
}

impl Twin {
    fn add(&mut self, (start, pages): (u64, u64), zero: bool) {
        self.zero.extend((start..start + pages).map(|frame| (frame, zero)));
        self.known.extend((start..start + pages).map(|frame| (frame, zero)));
    }
    /// Checks that the allocator says of a block just taken exactly what is known, up to the hull
    /// per 2 MiB.
    fn look(&self, folios: &Folios<'_>, head: Frame, order: Order) {
        let all = frames(head, order);
        let mut at = all.start;
        while at < all.end {
            let upto = all.end.min((at / 512 + 1) * 512);
            let range = FrameRange::new(Frame::new(at), Pages::new(upto - at)).unwrap();
            let said = self.hull(folios, range);
            let outside = |frame: &u64| !said.as_ref().is_some_and(|said| said.contains(frame));
            assert!((at..upto).filter(outside).all(|frame| self.zero[&frame]), "{range:?}");
            at = upto;
        }
        let range = FrameRange::new(head, order.pages()).unwrap();
        self.hull(folios, range); // of several blocks, where the order is above theirs
    }
    /// Checks that the unknown part of `range` runs from the first unknown frame to the last.
    fn hull(&self, folios: &Folios<'_>, range: FrameRange) -> Option<core::ops::Range<u64>> {
        let (start, end) = (range.start().get(), range.end().get());
        let unknown: Vec<u64> = (start..end).filter(|frame| !self.known[frame]).collect();
        let hull = unknown.first().zip(unknown.last()).map(|(first, last)| *first..*last + 1);
        let said = folios.unknown(range).map(|r| r.start().get()..r.end().get());
        assert_eq!(said, hull, "{range:?}");
        said
    }
    fn step(&mut self, folios: &Folios<'_>, added: &mut Option<Vec<Word>>, op: Op) -> Option<bool> {
        match op {
            Op::Alloc { cpu, order, class, dirty } => {
                let order = Order::new(order).unwrap();
                let class = Class::ALL[class as usize];
                let Ok(head) = folios.alloc(Cpu(cpu), order, class) else { return None };
                self.look(folios, head, order);
                if dirty {
                    self.zero.extend(frames(head, order).map(|frame| (frame, false)));
                }
                self.blocks.push((head, order, dirty));
            }
            Op::Free { cpu, pick, how } => {
                if self.blocks.is_empty() {
                    return None;
                }
                let (head, order, dirty) = self.blocks.swap_remove(pick % self.blocks.len());
                let (cpu, all) = (Cpu(cpu), frames(head, order));
                match how {
                    0 => {
                        self.zero.extend(all.clone().map(|frame| (frame, true)));
                        self.known.extend(all.map(|frame| (frame, true)));
                        folios.free_zeroed(cpu, head, order).unwrap();
                    }
                    1 if !dirty => {
                        folios.free_knowing(cpu, head, order, Known::AsBefore).unwrap();
                    }
                    _ => {
                        self.known.extend(all.map(|frame| (frame, false)));
                        match order {
                            // As one of many.
                            Order::BASE if how == 2 => {
                                let one = FrameRange::new(head, Pages::new(1)).unwrap();
                                folios.free_each(one).unwrap();
                            }
                            _ => folios.free(cpu, head, order).unwrap(),
                        }
                    }
                }
                assert!(folios.free_zeroed(cpu, head, order).is_err(), "it is free already");
            }
            Op::Split { pick, into } => {
                if self.blocks.is_empty() {
                    return None;
                }
                let (head, order, dirty) = self.blocks.swap_remove(pick % self.blocks.len());
                let into = Order::new(into.min(order.get())).unwrap();
                folios.split(head, order, into).unwrap();
                for part in frames(head, order).step_by(into.pages().get() as usize) {
                    self.blocks.push((Frame::new(part), into, dirty));
                }
            }
            Op::Ahead { cpu, pages } => {
                let seek = || folios.seek_unknown(Cpu(cpu), Class::Movable);
                let Sought::Block(head) =
                    std::iter::repeat_with(seek).find(|sought| *sought != Sought::More)?
                else {
                    return None;
                };
                self.look(folios, head, Order::SIZE_2M);
                let range = FrameRange::new(head, Pages::new(512)).unwrap();
                let unknown = folios.unknown(range).expect("it was chosen for that");
                let part = unknown.pages().min(Pages::new(pages));
                folios.declare_zero(FrameRange::new(unknown.start(), part).unwrap());
                for frame in unknown.start().get()..unknown.start().get() + part.get() {
                    self.zero.insert(frame, true);
                    self.known.insert(frame, true);
                }
                folios.free_knowing(Cpu(cpu), head, Order::SIZE_2M, Known::AsBefore).unwrap();
            }
            Op::Add { zero } => return (added.is_none()).then_some(zero),
        }
        None
    }
    /// Free frames that are known to be zero.
    fn free_known(&self) -> u64 {
        let taken = self.blocks.iter().flat_map(|(head, order, _)| frames(*head, *order));
        let known = self.known.values().filter(|known| **known).count();
        (known - taken.filter(|frame| self.known[frame]).count()) as u64
    }
}

fn op() -> impl Strategy<Value = Op> {
    let (cpu, pick) = (0u16..2, any::<usize>());
    prop_oneof![
        8 => (cpu.clone(), prop_oneof![4 => 0u8..=9, 1 => Just(10u8)], 0u8..3, any::<bool>())
            .prop_map(|(cpu, order, class, dirty)| Op::Alloc { cpu, order, class, dirty }),
        8 => (cpu.clone(), pick, 0u8..3)
            .prop_map(|(cpu, pick, how)| Op::Free { cpu, pick, how }),
        2 => (pick, 0u8..9).prop_map(|(pick, into)| Op::Split { pick, into }),
        2 => (cpu, 1u64..600).prop_map(|(cpu, pages)| Op::Ahead { cpu, pages }),
        1 => any::<bool>().prop_map(|zero| Op::Add { zero }),
    ]
}

fn range((start, pages): (u64, u64)) -> FrameRange {
    FrameRange::new(Frame::new(start), Pages::new(pages)).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64, failure_persistence: None, rng_seed: RngSeed::Fixed(5), ..ProptestConfig::default()
    })]

    #[test]
    fn what_is_said_to_be_zero_is(
        fresh in any::<bool>(), ops in proptest::collection::vec(op(), 1..300),
    ) {
        let memory = [range(FIRST)];
        let meta = lend(Folios::layout(&memory, CpuCount(2)).unwrap());
        let more = lend(Folios::layout_added(range(ADDED)).unwrap());
        let folios = Folios::new(&memory, CpuCount(2), &meta).unwrap();
        let (mut twin, mut added) = (Twin::default(), None);
        if fresh {
            folios.declare_zero(range((0, 1 << 20)));
        }
        twin.add(FIRST, fresh);
        for op in ops {
            if let Some(zero) = twin.step(&folios, &mut added, op) {
                let known = if zero { Known::Zero } else { Known::Nothing };
                folios.add(range(ADDED), Node(0), known, &more).unwrap();
                twin.add(ADDED, zero);
                added = Some(Vec::new());
            }
            prop_assert_eq!(folios.known_zero().get(), twin.free_known(), "after {:?}", op);
        }
        folios.validate().unwrap();
    }
}
