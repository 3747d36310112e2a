//! The allocator against a naive twin: the same history, the same answers.
//!
//! The twin is a map from each frame to its state; a block is free if all its frames are. It cannot
//! be wrong in an interesting way. Where the allocator picks a block, the twin checks that it was
//! free and follows.

use super::*;
use foliant_units::{FrameRange, Order, Pages};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::collections::BTreeMap;
use std::vec::Vec;

/// One step of a history. Small numbers choose among the blocks that are there at the time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    Alloc {
        cpu: u16,
        order: u8,
        class: u8,
    },
    /// Frees the `pick`-th allocated block, as it should be done.
    Free {
        cpu: u16,
        pick: usize,
    },
    /// Frees so many frames together, at most, that are blocks of their own side by side, from the
    /// `pick`-th allocated block on.
    FreeEach {
        pick: usize,
        most: u64,
    },
    /// Frees something, right or wrong.
    FreeAny {
        frame: u64,
        order: u8,
    },
    Split {
        pick: usize,
        into: u8,
    },
    SplitAny {
        frame: u64,
        order: u8,
        into: u8,
    },
    /// Joins what is around the `pick`-th allocated block.
    Join {
        pick: usize,
        order: u8,
    },
    Reserve {
        frame: u64,
        pages: u64,
    },
    Drain {
        cpu: u16,
    },
}

#[derive(Default)]
pub(super) struct Twin {
    ranges: Vec<FrameRange>,
    frames: BTreeMap<u64, FrameState>,
    blocks: BTreeMap<u64, Order>,
}

impl Twin {
    pub(super) fn new(ranges: &[FrameRange]) -> Twin {
        let frames =
            ranges.iter().flat_map(|r| r.iter()).map(|f| (f.get(), FrameState::Free)).collect();
        Twin { ranges: ranges.to_vec(), frames, blocks: BTreeMap::new() }
    }
    fn state(&self, frame: Frame) -> FrameState {
        self.frames.get(&frame.get()).copied().unwrap_or(FrameState::Foreign)
    }
    fn is_free(&self, head: u64, order: Order) -> bool {
        let end = head + order.pages().get();
        let one_range = self.ranges.iter().any(|r| r.start().get() <= head && end <= r.end().get());
        one_range && (head..end).all(|f| self.frames[&f] == FrameState::Free)
    }
    fn free_heads(&self, order: Order) -> impl Iterator<Item = u64> + '_ {
        let heads = self.frames.keys().copied().filter(move |f| f % order.pages().get() == 0);
        heads.filter(move |f| self.is_free(*f, order))
    }
    fn set(&mut self, head: u64, order: Order, state: FrameState) {
        self.frames.extend((head..head + order.pages().get()).map(|f| (f, state)));
    }
    fn take(&mut self, head: Frame, order: Order) {
        self.blocks.insert(head.get(), order);
        self.set(head.get(), order, FrameState::Allocated { head, order });
    }
    fn check(&self, frame: Frame, order: Order) -> Result<(), Misuse> {
        if !frame.is_aligned(order.pages()) {
            return Err(Misuse::Misaligned { frame, order });
        }
        match self.state(frame) {
            FrameState::Foreign => Err(Misuse::Foreign { frame, order }),
            FrameState::Free => Err(Misuse::NotAllocated { frame, order }),
            FrameState::Reserved => Err(Misuse::Reserved { frame, order }),
            FrameState::Allocated { head, order: held } if (head, held) == (frame, order) => Ok(()),
            FrameState::Allocated { head, order: held } => {
                Err(Misuse::WrongOrder { frame, order, head, held })
            }
        }
    }
    fn free(&mut self, frame: Frame, order: Order) -> Result<(), Misuse> {
        self.check(frame, order)?;
        self.blocks.remove(&frame.get());
        self.set(frame.get(), order, FrameState::Free);
        Ok(())
    }
    fn split(&mut self, frame: Frame, order: Order, into: Order) -> Result<(), Misuse> {
        if into > order {
            return Err(Misuse::Widening { frame, order, into });
        }
        self.check(frame, order)?;
        for head in (0..order.pages().get()).step_by(into.pages().get() as usize) {
            self.take(frame.add(Pages::new(head)), into);
        }
        Ok(())
    }
    fn join(&mut self, frame: Frame, order: Order) -> bool {
        let frames = frame.get()..frame.get() + order.pages().get();
        let single = |frame: u64| self.blocks.get(&frame) == Some(&Order::BASE);
        let joins = frames.clone().all(single);
        if joins {
            self.blocks.retain(|head, _| !frames.contains(head));
            self.take(frame, order);
        }
        joins
    }
    fn reserve(&mut self, range: FrameRange) -> Result<(), ReserveError> {
        // The allocator goes block by block, so the first frame that is wrong is the one named.
        for frame in range.iter() {
            match self.state(frame) {
                FrameState::Free => {}
                FrameState::Foreign => return Err(ReserveError::Foreign(frame)),
                _ => return Err(ReserveError::InUse(frame)),
            }
        }
        self.frames.extend(range.iter().map(|f| (f.get(), FrameState::Reserved)));
        Ok(())
    }
    pub(super) fn census(&self) -> Vec<u64> {
        let parent = |head: u64, order: Order| {
            Order::new(order.get() + 1)
                .is_some_and(|up| self.is_free(up.head(Frame::new(head)).get(), up))
        };
        Order::all().map(|o| self.free_heads(o).filter(|h| !parent(*h, o)).count() as u64).collect()
    }
}

/// Lends metadata.
pub(super) fn lend(words: WordCount) -> Vec<Word> {
    (0..words.0).map(|_| Word::new(0)).collect()
}

/// Runs a step on both and compares.
pub(super) fn step(folios: &Folios<'_>, twin: &mut Twin, op: Op) {
    let order = |n: u8| Order::new(n).unwrap();
    let pick = |twin: &Twin, n: usize| {
        let n = n % twin.blocks.len().max(1);
        twin.blocks.iter().nth(n).map(|(f, o)| (Frame::new(*f), *o))
    };
    match op {
        Op::Alloc { cpu, order: o, class } => {
            let (order, class) = (order(o), Class::ALL[class as usize]);
            match folios.alloc(Cpu(cpu), order, class) {
                Ok(frame) => {
                    assert!(frame.is_aligned(order.pages()), "{frame:?} {order:?}");
                    assert!(twin.is_free(frame.get(), order), "{frame:?} {order:?} was not free");
                    twin.take(frame, order);
                }
                Err(why) => {
                    assert_eq!(why, AllocError::NoMemory { order, class });
                    assert_eq!(twin.free_heads(order).next(), None, "{order:?} was free");
                }
            }
        }
        Op::Free { cpu, pick: n } => {
            if let Some((frame, order)) = pick(twin, n) {
                twin.free(frame, order).unwrap();
                assert_eq!(folios.free(Cpu(cpu), frame, order), Ok(()));
            }
        }
        Op::FreeEach { pick: n, most } => {
            let Some((first, _)) = pick(twin, n) else { return };
            let single = |frame: &Frame| twin.blocks.get(&frame.get()) == Some(&Order::BASE);
            let frames = (0..most).map(|nth| first.add(Pages::new(nth)));
            let count = frames.take_while(single).count() as u64;
            let Some(range) = FrameRange::new(first, Pages::new(count)) else { return };
            range.iter().for_each(|frame| twin.free(frame, Order::BASE).unwrap());
            assert_eq!(folios.free_each(range), Ok(()));
        }
        Op::FreeAny { frame, order: o } => {
            let (frame, order) = (Frame::new(frame), order(o));
            assert_eq!(folios.free(Cpu(0), frame, order), twin.free(frame, order));
        }
        Op::Split { pick: n, into } => {
            if let Some((frame, order)) = pick(twin, n) {
                let into = Order::new(into).unwrap();
                assert_eq!(folios.split(frame, order, into), twin.split(frame, order, into));
            }
        }
        Op::SplitAny { frame, order: o, into } => {
            let (frame, order, into) = (Frame::new(frame), order(o), order(into));
            assert_eq!(folios.split(frame, order, into), twin.split(frame, order, into));
        }
        Op::Join { pick: n, order: o } => {
            if let Some((frame, _)) = pick(twin, n) {
                let (order, before) = (order(o), twin.state(frame));
                let got = folios.join(order.head(frame), order, Class::Movable);
                let joins = twin.join(order.head(frame), order);
                assert_eq!(got.is_ok(), joins, "{got:?}: {frame} is {before:?}");
            }
        }
        Op::Reserve { frame, pages } => {
            let range = FrameRange::new(Frame::new(frame), Pages::new(pages)).unwrap();
            assert_eq!(folios.reserve(range).is_ok(), twin.reserve(range).is_ok());
        }
        Op::Drain { cpu } => folios.drain(Cpu(cpu)),
    }
    folios.validate().unwrap();
}

/// Compares everything that can be asked.
pub(super) fn compare(folios: &Folios<'_>, twin: &Twin) {
    let census = folios.census();
    assert_eq!(Order::all().map(|o| census.blocks(o)).collect::<Vec<_>>(), twin.census());
    assert_eq!(folios.free_frames(), census.pages());
    let of_2m = census.within(Order::SIZE_2M);
    assert_eq!(folios.whole_blocks(u64::MAX), of_2m);
    assert_eq!(folios.whole_blocks(2), of_2m.min(2));
    for frame in twin.frames.keys() {
        assert_eq!(folios.state(Frame::new(*frame)), twin.frames[frame], "frame {frame:#x}");
    }
}

fn run(ranges: &[(u64, u64)], ops: &[Op]) {
    let ranges: Vec<_> = ranges
        .iter()
        .map(|(start, pages)| FrameRange::new(Frame::new(*start), Pages::new(*pages)).unwrap())
        .collect();
    let meta = lend(Folios::layout(&ranges, CpuCount(3)).unwrap());
    let folios = Folios::new(&ranges, CpuCount(3), &meta).unwrap();
    let mut twin = Twin::new(&folios.ranges().collect::<Vec<_>>());
    folios.validate().unwrap();
    ops.iter().for_each(|op| step(&folios, &mut twin, *op));
    compare(&folios, &twin);
}

/// Orders 0 to `max`; small ones more often.
fn orders(max: u8) -> impl Strategy<Value = u8> {
    prop_oneof![3 => 0..=2u8.min(max), 2 => 0..=max, 1 => max.saturating_sub(3)..=max]
}

fn ops(frames: std::ops::Range<u64>, max: u8) -> impl Strategy<Value = Op> {
    prop_oneof![
        10 => (0..3u16, orders(max), 0..3u8)
            .prop_map(|(cpu, order, class)| Op::Alloc { cpu, order, class }),
        6 => (0..3u16, any::<usize>()).prop_map(|(cpu, pick)| Op::Free { cpu, pick }),
        3 => (any::<usize>(), 1..100u64).prop_map(|(pick, most)| Op::FreeEach { pick, most }),
        2 => (frames.clone(), orders(max)).prop_map(|(f, order)| Op::FreeAny { frame: f >> order << order, order }),
        1 => (frames.clone(), orders(max)).prop_map(|(frame, order)| Op::FreeAny { frame, order }),
        2 => (any::<usize>(), 0..=max).prop_map(|(pick, into)| Op::Split { pick, into }),
        1 => (frames.clone(), orders(max), 0..=max)
            .prop_map(|(f, order, into)| Op::SplitAny { frame: f >> order << order, order, into }),
        2 => (any::<usize>(), 0..=max.min(9)).prop_map(|(pick, order)| Op::Join { pick, order }),
        1 => (frames, 1..40u64).prop_map(|(frame, pages)| Op::Reserve { frame, pages }),
        1 => (0..3u16).prop_map(|cpu| Op::Drain { cpu }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, rng_seed: RngSeed::Fixed(41), ..ProptestConfig::default() })]

    /// A few blocks with ragged ends and a hole within one 2 MiB block.
    #[test]
    fn small_ragged_memory(ops in proptest::collection::vec(ops(0x3f0..0x1400, 11), 1..300)) {
        run(&[(0x400, 0x9f), (0x500, 0x700), (0xc00, 0x7f3)], &ops);
    }

    /// One block, nearly always full.
    #[test]
    fn tiny_memory(ops in proptest::collection::vec(ops(0x200..0x400, 9), 1..400)) {
        run(&[(0x200, 0x200)], &ops);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, rng_seed: RngSeed::Fixed(41), ..ProptestConfig::default() })]

    /// A little more than 2 GiB, so that every order up to 1 GiB comes and goes.
    #[test]
    fn large_blocks(ops in proptest::collection::vec(ops(0x3_f000..0x8_1200, 18), 1..60)) {
        run(&[(0x3_fe00, 0x4_1300)], &ops);
    }
}

/// All histories of five steps over a handful of operations, in a world of two 2 MiB blocks.
#[test]
fn every_short_history() {
    let menu = [
        Op::Alloc { cpu: 0, order: 0, class: 0 },
        Op::Alloc { cpu: 1, order: 6, class: 1 },
        Op::Alloc { cpu: 1, order: 9, class: 0 },
        Op::Alloc { cpu: 0, order: 10, class: 0 },
        Op::Free { cpu: 0, pick: 0 },
        Op::Free { cpu: 1, pick: 1 },
        Op::Split { pick: 0, into: 8 },
        Op::Drain { cpu: 0 },
    ];
    let ranges = [FrameRange::new(Frame::new(0x400), Pages::new(0x400)).unwrap()];
    let meta = lend(Folios::layout(&ranges, CpuCount(2)).unwrap());
    for history in 0..menu.len().pow(5) {
        meta.iter().for_each(|word| word.store(0, foliant_sync::Ordering::Relaxed));
        let folios = Folios::new(&ranges, CpuCount(2), &meta).unwrap();
        let mut twin = Twin::new(&ranges);
        let mut rest = history;
        for _ in 0..5 {
            step(&folios, &mut twin, menu[rest % menu.len()]);
            rest /= menu.len();
        }
    }
}
