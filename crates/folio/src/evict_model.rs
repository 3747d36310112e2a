//! Emptying blocks against a naive twin, which keeps the state of each frame. Blocks are taken,
//! given back, taken out of a named 2 MiB, isolated, added to the isolated ones, joined and given
//! up.

use super::field::Pick;
use super::model::lend;
use super::*;
use foliant_units::{FrameRange, Order, Pages};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::collections::BTreeMap;
use std::vec::Vec;

#[derive(Clone, Copy, Debug)]
enum Op {
    Alloc {
        order: u8,
        class: u8,
    },
    Free {
        pick: usize,
    },
    In {
        block: u64,
        order: u8,
    },
    Isolate {
        block: u64,
    },
    /// A block that is in use joins the isolated frames of its 2 MiB.
    Leave {
        pick: usize,
    },
    /// The isolated frames become a block, or are given up.
    End {
        block: u64,
    },
}

const BLOCK: u64 = 512;
const BLOCKS: u64 = 4;
/// The last block of this memory is not whole.
const FRAMES: u64 = BLOCK * BLOCKS - 100;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Has {
    Free,
    /// In a block of a user's, of this order.
    Block(Order),
    Isolated,
}

struct Twin {
    frames: Vec<Has>,
    blocks: Vec<(Frame, Order)>,
    isolated: BTreeMap<u64, Pick>,
}

impl Twin {
    fn within(&self, block: u64) -> &[Has] {
        let start = (block * BLOCK) as usize;
        &self.frames[start..self.frames.len().min(start + BLOCK as usize)]
    }
    fn free(&self, block: u64) -> u64 {
        self.within(block).iter().filter(|has| **has == Has::Free).count() as u64
    }
    fn is_huge(&self, block: u64) -> bool {
        matches!(self.within(block)[0], Has::Block(order) if order >= Order::SIZE_2M)
    }
    /// Whether all of the 2 MiB that are memory are free.
    fn is_empty(&self, block: u64) -> bool {
        self.free(block) == self.within(block).len() as u64
    }
    fn has_run(&self, block: u64, order: Order) -> bool {
        let run = order.pages().get() as usize;
        self.within(block).chunks_exact(run).any(|run| run.iter().all(|has| *has == Has::Free))
    }
    fn give(&mut self, head: Frame, order: Order, from: Has, to: Has) {
        let start = head.get() as usize;
        for has in &mut self.frames[start..start + order.pages().get() as usize] {
            assert_eq!(*has, from, "{head} {order:?}");
            *has = to;
        }
    }
    fn take(&mut self, head: Frame, order: Order) {
        assert!(head.is_aligned(order.pages()));
        self.give(head, order, Has::Free, Has::Block(order));
        self.blocks.push((head, order));
    }
    fn picked(&mut self, nth: usize) -> Option<(Frame, Order)> {
        (!self.blocks.is_empty()).then(|| self.blocks.swap_remove(nth % self.blocks.len()))
    }

    fn step(&mut self, folios: &Folios<'_>, op: Op) {
        let first = |block: u64| Frame::new(block * BLOCK);
        match op {
            Op::Alloc { order, class } => {
                let (order, class) = (Order::new(order).unwrap(), Class::ALL[class as usize]);
                if let Ok(head) = folios.alloc(Cpu(0), order, class) {
                    self.take(head, order);
                }
            }
            Op::Free { pick } => {
                if let Some((head, order)) = self.picked(pick) {
                    folios.free(Cpu(0), head, order).unwrap();
                    self.give(head, order, Has::Block(order), Has::Free);
                }
            }
            Op::In { block, order } => {
                let order = Order::new(order).unwrap();
                let got = folios.alloc_in(first(block), order);
                // Where nothing of the block is in use it need not succeed: there is nothing to be
                // filled up.
                let must =
                    !self.is_empty(block) && order < Order::SIZE_2M && self.has_run(block, order);
                assert!(got.is_some() || !must, "{op:?}");
                if let Some(head) = got {
                    assert!(head.get() / BLOCK == block && order < Order::SIZE_2M, "{op:?} {head}");
                    self.take(head, order);
                }
            }
            Op::Isolate { block } => self.isolate(folios, block),
            Op::Leave { pick } => {
                let Some((head, order)) = self.picked(pick) else { return };
                let block = head.get() / BLOCK;
                if order >= Order::SIZE_2M || !self.isolated.contains_key(&block) {
                    return self.blocks.push((head, order));
                }
                folios.split(head, order, Order::BASE).unwrap();
                self.give(head, order, Has::Block(order), Has::Isolated);
                let isolated = self.isolated.get_mut(&block).unwrap();
                isolated.add(head.get() % BLOCK, order.pages().get());
            }
            Op::End { block } => {
                let Some(isolated) = self.isolated.remove(&block) else { return };
                if isolated.count() == BLOCK {
                    folios.join(first(block), Order::SIZE_2M, Class::Movable).unwrap();
                    self.give(
                        first(block),
                        Order::SIZE_2M,
                        Has::Isolated,
                        Has::Block(Order::SIZE_2M),
                    );
                    return self.blocks.push((first(block), Order::SIZE_2M));
                }
                folios.give_up(first(block), &isolated).unwrap();
                for (start, count) in isolated.runs() {
                    for nth in start..start + count {
                        let frame = Frame::new(block * BLOCK + nth);
                        self.give(frame, Order::BASE, Has::Isolated, Has::Free);
                    }
                }
            }
        }
    }
    fn isolate(&mut self, folios: &Folios<'_>, block: u64) {
        let pick = folios.isolate(Frame::new(block * BLOCK));
        let all = self.free(block);
        // A block that is free as a whole need not be isolated: there is nothing to empty.
        assert!(pick.count() == all || pick.count() == 0 && self.is_empty(block));
        for (start, count) in pick.runs() {
            for nth in start..start + count {
                let frame = Frame::new(block * BLOCK + nth);
                self.give(frame, Order::BASE, Has::Free, Has::Isolated);
            }
        }
        self.isolated.entry(block).or_default().join(&pick);
    }
    fn compare(&self, folios: &Folios<'_>) {
        for block in 0..BLOCKS {
            let expected = match self.free(block) {
                _ if self.is_huge(block) => Usage::Held,
                _ if self.is_empty(block) && self.within(block).len() as u64 == BLOCK => {
                    Usage::Free
                }
                free => Usage::Partly(Pages::new(free)),
            };
            assert_eq!(folios.usage(Frame::new(block * BLOCK)), expected, "block {block}");
        }
    }
}

fn op() -> impl Strategy<Value = Op> {
    let (pick, block) = (any::<usize>(), 0..BLOCKS);
    prop_oneof![
        6 => (prop_oneof![4 => 0u8..=8, 1 => Just(9u8)], 0u8..3)
            .prop_map(|(order, class)| Op::Alloc { order, class }),
        5 => pick.prop_map(|pick| Op::Free { pick }),
        4 => (block.clone(), 0u8..=9).prop_map(|(block, order)| Op::In { block, order }),
        3 => block.clone().prop_map(|block| Op::Isolate { block }),
        9 => pick.prop_map(|pick| Op::Leave { pick }),
        2 => block.prop_map(|block| Op::End { block }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 96, failure_persistence: None, rng_seed: RngSeed::Fixed(7), ..ProptestConfig::default()
    })]

    #[test]
    fn emptied_blocks_are_as_a_map_says(ops in proptest::collection::vec(op(), 1..400)) {
        let memory = [FrameRange::new(Frame::new(0), Pages::new(FRAMES)).unwrap()];
        let meta = lend(Folios::layout(&memory, CpuCount(1)).unwrap());
        let folios = Folios::new(&memory, CpuCount(1), &meta).unwrap();
        let frames = (0..FRAMES).map(|_| Has::Free).collect();
        let mut twin = Twin { frames, blocks: Vec::new(), isolated: BTreeMap::new() };
        for op in ops {
            twin.step(&folios, op);
            twin.compare(&folios);
            let free = twin.frames.iter().filter(|has| **has == Has::Free).count() as u64;
            prop_assert_eq!(folios.free_frames().get(), free, "after {:?}", op);
        }
        folios.validate().unwrap();
    }
}
