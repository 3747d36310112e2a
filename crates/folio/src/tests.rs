//! Behaviour: one rule, one test.

use super::entry::{BlockEntry, FIT_PART, FIT_WHOLE};
use super::index::{List, Pyramids};
use super::known::LOOK;
use super::model::lend;
use super::stress::Dice;
use super::*;
use foliant_sync::Ordering::SeqCst;
use foliant_units::{FrameRange, Order, Pages};
use std::collections::BTreeSet;
use std::string::ToString;
use std::vec::Vec;

const MOVABLE: Class = Class::Movable;

fn range(start: u64, pages: u64) -> FrameRange {
    FrameRange::new(Frame::new(start), Pages::new(pages)).unwrap()
}
fn order(n: u8) -> Order {
    Order::new(n).unwrap()
}
/// Runs `test` on an allocator over `ranges`, then recounts.
fn check(ranges: &[FrameRange], test: impl FnOnce(&Folios<'_>)) {
    let meta = lend(Folios::layout(ranges, CpuCount(4)).unwrap());
    let folios = Folios::new(ranges, CpuCount(4), &meta).unwrap();
    test(&folios);
    folios.validate().unwrap();
}

#[test]
fn ranges_are_refused_by_name() {
    let refused = |ranges: &[FrameRange], cpus| Folios::layout(ranges, CpuCount(cpus)).unwrap_err();
    let (a, b, empty) = (range(0, 10), range(9, 10), range(5, 0));
    let large = range(1, (1 << 32) + 1);
    assert_eq!(refused(&[a, b], 1), RegionError::Overlap(a, b));
    assert_eq!(refused(&[a, empty], 1), RegionError::Empty(empty));
    assert_eq!(refused(&[large], 1), RegionError::TooLarge(large));
    let halves = [range(0, 1 << 31), range(1 << 31, (1 << 31) + 1)];
    let whole = RegionError::TooLarge(range(0, (1 << 32) + 1));
    assert_eq!(refused(&halves, 1), whole, "ranges that touch are one");
    assert_eq!(refused(&[a], 0), RegionError::Cpus(CpuCount(0)));
    assert_eq!(refused(&[a], 1025), RegionError::Cpus(CpuCount(1025)));
    let many: Vec<_> = (0..65).map(|n| range(n * 100, 50)).collect();
    assert_eq!(refused(&many, 1), RegionError::TooMany(many[64]));
    assert!(Folios::layout(&many[..64], CpuCount(1)).is_ok());
    let meta = lend(WordCount(10));
    let why = Folios::new(&[a], CpuCount(1), &meta).unwrap_err();
    assert!(matches!(why, RegionError::Metadata { lent: WordCount(10), .. }), "{why}");
}

#[test]
fn a_view_tells_what_the_allocator_tells() {
    check(&[range(0x200, 0x1000)], |folios| {
        let view = folios.view();
        folios.declare_zero(range(0x200, 0x200));
        folios.alloc(Cpu(1), order(0), MOVABLE).unwrap();
        assert_eq!(view.end(), Frame::new(0x1200));
        assert_eq!(
            (view.free_frames(), view.known_zero()),
            (Pages::new(0xfff), folios.known_zero())
        );
        assert!(view.known_zero().get() >= 0x1ff, "{:?}", view.known_zero());
    });
}

#[test]
fn what_is_given_up_outside_of_memory_is_named() {
    check(&[range(0x200, 0x200)], |folios| {
        let wrong = folios.give_up(Frame::new(0x600), &Pick::default()).unwrap_err();
        assert!(wrong.to_string().contains("0x600"), "{wrong}");
    });
}

#[test]
fn ranges_that_touch_are_one() {
    check(&[range(0x300, 0x100), range(0, 0x300)], |folios| {
        assert!(folios.ranges().eq([range(0, 0x400)]));
        assert_eq!(folios.alloc(Cpu(0), order(10), MOVABLE), Ok(Frame::new(0)));
    });
}

#[test]
fn holes_and_ragged_ends_are_never_allocated() {
    let ranges = [range(0x103, 0x7e), range(0x1f0, 0x333), range(0x2345, 1)];
    check(&ranges, |folios| {
        let mut seen = Vec::new();
        while let Ok(frame) = folios.alloc(Cpu(seen.len() as u16 % 4), Order::BASE, MOVABLE) {
            seen.push(frame);
        }
        seen.sort();
        assert!(seen.into_iter().eq(ranges.iter().flat_map(|range| range.iter())));
    });
}

#[test]
fn every_order_comes_and_goes() {
    check(&[range(0, 1 << 19)], |folios| {
        for order in Order::all() {
            let frame = folios.alloc(Cpu(1), order, MOVABLE).unwrap();
            assert!(frame.is_aligned(order.pages()));
            assert_eq!(folios.state(frame), FrameState::Allocated { head: frame, order });
            assert_eq!(folios.free_frames().get(), (1 << 19) - order.pages().get());
            folios.free(Cpu(2), frame, order).unwrap();
            folios.validate().unwrap();
            assert_eq!(folios.free_blocks(Order::SIZE_1G), 2);
        }
    });
}

/// Pages that are freed together are each a block of its own; of others the first is named.
#[test]
fn pages_that_are_freed_together_are_blocks_of_their_own() {
    check(&[range(0x400, 0x1400)], |folios| {
        let pages: Vec<Frame> =
            (0..600).map(|_| folios.alloc(Cpu(0), order(0), MOVABLE).unwrap()).collect();
        let first = *pages.iter().min().unwrap();
        let large = folios.alloc(Cpu(0), order(3), MOVABLE).unwrap();
        let all = |start: Frame, n| FrameRange::new(start, Pages::new(n)).unwrap();
        let up = |n| first.add(Pages::new(n));
        // One of them is free, and one is none.
        folios.free(Cpu(0), up(70), order(0)).unwrap();
        let free = Misuse::NotAllocated { frame: up(70), order: order(0) };
        assert_eq!(folios.free_each(all(up(65), 10)), Err(free));
        let wrong =
            Misuse::WrongOrder { frame: large, order: order(0), head: large, held: order(3) };
        assert_eq!(folios.free_each(all(large, 2)), Err(wrong));
        let none = Misuse::Foreign { frame: Frame::new(0x3ff), order: order(0) };
        assert_eq!(folios.free_each(all(Frame::new(0x3ff), 2)), Err(none));
        // What stands before the word with the wrong one is free by now, and no more.
        let frames = folios.free_frames().get();
        assert_eq!(folios.free_each(all(up(0), 70)), Ok(()));
        assert_eq!(folios.free_each(all(up(71), 600 - 71)), Ok(()));
        assert_eq!(folios.free_frames().get(), frames + 599);
        folios.free(Cpu(0), large, order(3)).unwrap();
        folios.validate().unwrap();
    });
}

#[test]
fn misuse_is_told_apart_and_changes_nothing() {
    check(&[range(0x400, 0x1400)], |folios| {
        let take = |n| folios.alloc(Cpu(0), order(n), MOVABLE).unwrap();
        let (small, wide, huge, run) = (take(3), take(7), take(9), take(10));
        folios.reserve(range(0x1700, 2)).unwrap();
        let wrong = |frame: Frame, n, head, held: u8| Misuse::WrongOrder {
            frame,
            order: order(n),
            head,
            held: order(held),
        };
        let up = |frame: Frame, n| frame.add(Pages::new(n));
        for (frame, n, why) in [
            (small, 0, wrong(small, 0, small, 3)),
            (small, 2, wrong(small, 2, small, 3)),
            (up(small, 4), 2, wrong(up(small, 4), 2, small, 3)),
            (up(small, 7), 0, wrong(up(small, 7), 0, small, 3)),
            (small, 7, wrong(small, 7, small, 3)),
            (wide, 0, wrong(wide, 0, wide, 7)),
            (wide, 6, wrong(wide, 6, wide, 7)),
            (up(wide, 64), 6, wrong(up(wide, 64), 6, wide, 7)),
            (up(wide, 32), 5, wrong(up(wide, 32), 5, wide, 7)),
            (huge, 0, wrong(huge, 0, huge, 9)),
            (up(huge, 256), 8, wrong(up(huge, 256), 8, huge, 9)),
            (run, 9, wrong(run, 9, run, 10)),
            (up(run, 512), 9, wrong(up(run, 512), 9, run, 10)),
            (up(run, 513), 0, wrong(up(run, 513), 0, run, 10)),
            (up(small, 1), 3, Misuse::Misaligned { frame: up(small, 1), order: order(3) }),
            (Frame::new(0x3ff), 0, Misuse::Foreign { frame: Frame::new(0x3ff), order: order(0) }),
            (Frame::new(0), 18, Misuse::Foreign { frame: Frame::new(0), order: order(18) }),
            (
                Frame::new(0x1701),
                0,
                Misuse::Reserved { frame: Frame::new(0x1701), order: order(0) },
            ),
            (
                Frame::new(0x17f0),
                2,
                Misuse::NotAllocated { frame: Frame::new(0x17f0), order: order(2) },
            ),
        ] {
            let before = folios.census();
            assert_eq!(folios.free(Cpu(1), frame, order(n)), Err(why), "{why}");
            assert_eq!(folios.split(frame, order(n), order(0)), Err(why), "{why}");
            assert!(why.to_string().contains(&frame.to_string()), "{why}");
            assert_eq!(folios.census(), before);
        }
        for (frame, n) in [(small, 3), (wide, 7), (huge, 9), (run, 10)] {
            assert_eq!(folios.free(Cpu(1), frame, order(n)), Ok(()));
            let again = Misuse::NotAllocated { frame, order: order(n) };
            assert_eq!(folios.free(Cpu(1), frame, order(n)), Err(again));
        }
        let cpu = Cpu(4);
        let why = Misuse::UnknownCpu { frame: small, order: order(3), cpu };
        assert_eq!(folios.free(cpu, small, order(3)), Err(why));
        let why = AllocError::UnknownCpu { cpu, cpus: CpuCount(4) };
        assert_eq!(folios.alloc(cpu, order(3), MOVABLE), Err(why));
    });
}

#[test]
fn a_block_splits_in_place_from_every_order_into_every_smaller() {
    check(&[range(0, 1 << 18)], |folios| {
        for (from, into) in (0..=18).flat_map(|from| (0..=from).map(move |into| (from, into))) {
            let (from, into) = (order(from), order(into));
            let frame = folios.alloc(Cpu(0), from, MOVABLE).unwrap();
            let free = folios.free_frames();
            folios.split(frame, from, into).unwrap();
            assert_eq!(folios.free_frames(), free);
            let parts = FrameRange::new(frame, from.pages()).unwrap();
            for part in parts.iter().step_by(into.pages().get() as usize) {
                assert_eq!(folios.free(Cpu(1), part, into), Ok(()), "{from:?} {into:?}");
            }
            assert_eq!(folios.free_blocks(Order::SIZE_1G), 1, "{from:?} into {into:?}");
        }
        let why = Misuse::Widening { frame: Frame::new(0), order: order(1), into: order(2) };
        assert_eq!(folios.split(Frame::new(0), order(1), order(2)), Err(why));
    });
}

#[test]
fn reserved_frames_stay_out_and_a_refusal_leaves_no_trace() {
    check(&[range(0, 0x800)], |folios| {
        folios.reserve(range(0x1f0, 0x230)).unwrap();
        assert_eq!(folios.state(Frame::new(0x300)), FrameState::Reserved);
        let before = folios.census();
        let why = folios.reserve(range(0x420, 0x1000)).unwrap_err();
        assert_eq!(why, ReserveError::Foreign(Frame::new(0x800)));
        let why = folios.reserve(range(0x1e0, 0x400)).unwrap_err();
        assert_eq!(why, ReserveError::InUse(Frame::new(0x1f0)));
        assert_eq!(folios.census(), before);
        let mut taken = 0;
        while let Ok(frame) = folios.alloc(Cpu(0), Order::BASE, Class::Unmovable) {
            assert!(!range(0x1f0, 0x230).contains(frame));
            taken += 1;
        }
        assert_eq!(taken, 0x800 - 0x230);
    });
}

#[test]
fn memory_is_added_while_in_use() {
    let meta = lend(Folios::layout_added(range(0x800, 0x400)).unwrap());
    let ranges = [range(0, 0x400)];
    let first = lend(Folios::layout(&ranges, CpuCount(2)).unwrap());
    let folios = Folios::new(&ranges, CpuCount(2), &first).unwrap();
    while folios.alloc(Cpu(0), Order::SIZE_2M, MOVABLE).is_ok() {}
    let overlap = range(0x3ff, 4);
    assert_eq!(
        folios.add(overlap, Node(0), Known::Nothing, &meta),
        Err(RegionError::Overlap(ranges[0], overlap))
    );
    folios.add(range(0x800, 0x400), Node(0), Known::Nothing, &meta).unwrap();
    assert_eq!(folios.alloc(Cpu(1), order(10), MOVABLE), Ok(Frame::new(0x800)));
    folios.free(Cpu(1), Frame::new(0x800), order(10)).unwrap();
    assert!(folios.alloc(Cpu(0), Order::BASE, MOVABLE).is_ok());
    folios.validate().unwrap();
}

#[test]
fn a_range_that_cannot_be_taken_in_is_refused_by_name() {
    let ranges: Vec<_> = (0..63).map(|n| range(n * 0x800, 0x200)).collect();
    let first = lend(Folios::layout(&ranges, CpuCount(1)).unwrap());
    let folios = Folios::new(&ranges, CpuCount(1), &first).unwrap();
    assert_eq!(folios.end(), Frame::new(62 * 0x800 + 0x200));
    let metas: Vec<_> =
        (0..2).map(|_| lend(Folios::layout_added(range(0, 0x200)).unwrap())).collect();
    let add = |start, node, nth: usize| {
        folios.add(range(start, 0x200), Node(node), Known::Nothing, &metas[nth])
    };
    let most = NODES_MAX as u8;
    let low = 0x400;
    for node in [most, most + 1] {
        assert_eq!(add(low, node, 0), Err(RegionError::Node(Node(node), range(low, 0x200))));
    }
    assert_eq!(add(low, most - 1, 0), Ok(()));
    assert_eq!(folios.end(), Frame::new(62 * 0x800 + 0x200), "the highest, not the last");
    let many = RegionError::TooMany(range(0xc00, 0x200));
    assert_eq!(folios.admit(range(0xc00, 0x200), Node(0)).err(), Some(many), "before it is built");
    assert_eq!(add(0xc00, 0, 1), Err(many));
    folios.validate().unwrap();
}

/// A block that is not 512 single pages stays as it is, wherever the odd one lies.
#[test]
fn blocks_that_are_not_all_single_pages_are_not_joined() {
    for odd in [0, 31, 32, 100, 511] {
        check(&[range(0x200, 0x400)], |folios| {
            let first = Frame::new(0x200);
            let join = || folios.join(first, Order::SIZE_2M, MOVABLE);
            let misuse = |why: Misuse| {
                matches!(why, Misuse::NotAllocated { .. } | Misuse::WrongOrder { .. })
            };
            assert!(misuse(join().unwrap_err()), "a whole block");
            for _ in 0..512 {
                folios.alloc(Cpu(0), Order::BASE, MOVABLE).unwrap();
            }
            let page = first.add(Pages::new(odd));
            folios.free(Cpu(0), page, Order::BASE).unwrap();
            assert!(misuse(join().unwrap_err()), "{odd} is free");
            folios.validate().unwrap();
            assert_eq!(folios.state(page), FrameState::Free);
            assert_eq!(folios.free_frames(), Pages::new(512 + 1));
            assert_eq!(
                folios.alloc(Cpu(0), Order::BASE, MOVABLE),
                Ok(page),
                "it is still to be had"
            );
            assert_eq!(join(), Ok(Joined::Whole));
            assert_eq!(
                folios.state(page),
                FrameState::Allocated { head: first, order: Order::SIZE_2M }
            );
            let nowhere = Frame::new(0x600);
            assert!(folios.join(nowhere, Order::SIZE_2M, MOVABLE).is_err(), "no memory");
            folios.free(Cpu(0), first, Order::SIZE_2M).unwrap();
        });
    }
}

#[test]
fn a_huge_block_comes_from_the_node_asked_for_or_not_at_all() {
    let ranges = [range(0, 0x40000), range(0x40000, 0x80000), range(0x100000, 0x1000)];
    let nodes = [Node(3), Node(1)]; // the last one is node 0's
    let words = Folios::layout_on(&ranges, &nodes, CpuCount(1)).unwrap();
    let lent = lend(words);
    let folios = Folios::new_on(&ranges, &nodes, CpuCount(1), &lent).unwrap();
    assert_eq!(folios.nodes().collect::<Vec<_>>(), [Node(0), Node(1), Node(3)]);
    for (node, of_2m, of_1g) in
        [(Node(0), 8, 0), (Node(1), 1024, 2), (Node(3), 512, 1), (Node(2), 0, 0)]
    {
        for (order, count) in [(Order::SIZE_1G, of_1g), (Order::SIZE_2M, of_2m)] {
            let mut got = Vec::new();
            while let Ok(frame) = folios.alloc_on(Cpu(0), node, order, MOVABLE) {
                assert_eq!(folios.node_of(frame), Some(node));
                got.push(frame);
            }
            assert_eq!(got.len(), count, "{node:?} {order:?}");
            got.iter().for_each(|frame| folios.free(Cpu(0), *frame, order).unwrap());
        }
    }
    let far = [Node(NODES_MAX as u8)];
    let refused = Folios::layout_on(&ranges, &far, CpuCount(1));
    assert_eq!(refused, Err(RegionError::Node(far[0], ranges[0])));
    folios.validate().unwrap();
}

#[test]
fn classes_do_not_share_a_block_while_memory_is_plenty() {
    check(&[range(0, 64 * 512)], |folios| {
        let mut blocks = [const { Vec::new() }; 3];
        for round in 0..3000u16 {
            let class = Class::ALL[round as usize % 3];
            let frame = folios.alloc(Cpu(round / 3 % 4), Order::BASE, class).unwrap();
            blocks[class as usize].push(frame.get() / 512);
        }
        for (a, b) in [(0, 1), (0, 2), (1, 2)] {
            assert!(!blocks[a].iter().any(|block| blocks[b].contains(block)));
        }
        // Three classes with 1,000 frames each work in two blocks each, the four CPUs together; the
        // others are whole.
        assert_eq!(folios.census().within(Order::SIZE_2M), 64 - 6);
    });
}

#[test]
fn what_one_cpu_prefers_is_not_lost_to_the_others() {
    check(&[range(0, 8 * 512)], |folios| {
        for cpu in 0..4 {
            folios.alloc(Cpu(cpu), Order::BASE, MOVABLE).unwrap();
            folios.alloc(Cpu(cpu), order(3), MOVABLE).unwrap();
        }
        let mut rest = 0;
        while folios.alloc(Cpu(0), Order::BASE, Class::Table).is_ok() {
            rest += 1;
        }
        assert_eq!(rest, 8 * 512 - 4 * 9);
    });
    // A block that a CPU prefers, all free again, serves a huge request and a run.
    check(&[range(0, 2 * 512)], |folios| {
        let frame = folios.alloc(Cpu(0), Order::BASE, MOVABLE).unwrap();
        folios.free(Cpu(0), frame, Order::BASE).unwrap();
        let run = folios.alloc(Cpu(1), order(10), MOVABLE).unwrap();
        folios.free(Cpu(1), run, order(10)).unwrap();
        assert!((0..2).all(|_| folios.alloc(Cpu(1), Order::SIZE_2M, MOVABLE).is_ok()));
    });
}

#[test]
fn small_blocks_gather_in_used_huge_blocks() {
    check(&[range(0, 256 * 512)], |folios| {
        let all: Vec<_> =
            (0..128 * 512).map(|_| folios.alloc(Cpu(0), Order::BASE, MOVABLE).unwrap()).collect();
        // One frame in eight stays; the next ones fill the gaps and leave the other blocks whole.
        let freed: Vec<_> = all.iter().filter(|f| f.get() % 8 != 0).collect();
        freed.iter().for_each(|f| folios.free(Cpu(0), **f, Order::BASE).unwrap());
        for _ in 0..freed.len() {
            folios.alloc(Cpu(0), Order::BASE, MOVABLE).unwrap();
        }
        assert_eq!(folios.census().pages().get(), 128 * 512);
        assert!(folios.free_blocks(order(16)) == 1, "{:?}", folios.census());
    });
}

#[test]
fn a_terabyte_is_as_good_as_a_gigabyte() {
    let ranges = [range(0x100, 1 << 28)];
    check(&ranges, |folios| {
        let small = folios.alloc(Cpu(0), Order::BASE, MOVABLE).unwrap();
        let size_1g = folios.alloc(Cpu(3), Order::SIZE_1G, MOVABLE).unwrap();
        assert_eq!(folios.free_frames().get(), (1 << 28) - 1 - (1 << 18));
        folios.free(Cpu(0), size_1g, Order::SIZE_1G).unwrap();
        folios.free(Cpu(0), small, Order::BASE).unwrap();
        assert_eq!(folios.free_blocks(Order::SIZE_1G), 1023);
    });
}

/// A seat is left while a claimer tries to have its block whole. The attempt fails, and nobody owns
/// the block afterwards.
#[test]
fn finding_s2_a_seat_left_while_its_block_is_in_flight_is_left() {
    check(&[range(0, 8 * 512)], |folios| {
        let taken = folios.alloc(Cpu(1), Order::BASE, MOVABLE).unwrap();
        let (_, region) = folios.region_of(taken).unwrap();
        let (block, _) = region.locate(taken);
        let begun = region.begin(block, |_| true).unwrap();
        folios.drain(Cpu(1));
        region.resume(block, begun);
        region.recheck(block);
        folios.validate().unwrap();
        // The block stands where others look first: the next small block is cut from it, not from a
        // whole one.
        let next = folios.alloc(Cpu(0), Order::BASE, MOVABLE).unwrap();
        assert_eq!(region.locate(next).0, block);
    });
}

/// An entry without owner cannot have the bound of a block that is all free: such a block is whole.
#[test]
fn finding_q4_only_an_owner_has_a_bound_of_all() {
    let cpu = super::entry::Owner::seat(Cpu(1), 2);
    let owned = BlockEntry::opened(MOVABLE, cpu);
    assert_eq!((owned.fit(), owned.owner()), (FIT_WHOLE, cpu));
    let left = owned.with_owner(super::entry::Owner::NONE);
    assert_eq!((left.fit(), left.with_fit(FIT_WHOLE).fit()), (FIT_PART, FIT_PART));
    assert_eq!(left.with_owner(cpu).with_fit(FIT_WHOLE).fit(), FIT_WHOLE);
}

/// Only a block that is cut up offers parts, and those its bound allows.
#[test]
fn an_entry_offers_what_is_open_and_within_its_bound() {
    let offers = |entry: BlockEntry| (0..9).filter(|order| entry.offers(*order)).count();
    let held = BlockEntry::held(12, MOVABLE, bits::Phase::Complete);
    assert_eq!([BlockEntry::WHOLE, held, held.busy()].map(offers), [0, 0, 0]);
    for fit in 0..=FIT_PART {
        let open = BlockEntry::small(MOVABLE, fit);
        assert_eq!([open, open.busy()].map(offers), [fit as usize, 0]);
    }
}

/// The blocks that 64 CPUs work in are few where memory is small, and their own where it is large.
#[test]
fn finding_q10_seats_do_not_hold_what_memory_has_not_got() {
    for (blocks, spent) in [(1024, 5), (16 * 1024, 64)] {
        let ranges = [range(0, blocks * 512)];
        let meta = lend(Folios::layout(&ranges, CpuCount(64)).unwrap());
        let folios = Folios::new(&ranges, CpuCount(64), &meta).unwrap();
        let taken: Vec<_> =
            (0..64).map(|cpu| folios.alloc(Cpu(cpu), Order::BASE, MOVABLE).unwrap()).collect();
        assert_eq!(folios.census().within(Order::SIZE_2M), blocks - spent);
        folios.validate().unwrap();
        taken.iter().for_each(|frame| folios.free(Cpu(63), *frame, Order::BASE).unwrap());
        (0..64).for_each(|cpu| folios.drain(Cpu(cpu)));
        assert_eq!(folios.census().within(Order::SIZE_2M), blocks);
        folios.validate().unwrap();
    }
}

/// A hole that fits is filled before a larger one is broken up, also where the larger one is the
/// seat's.
#[test]
fn finding_q10_a_hole_that_fits_goes_before_the_seat() {
    for n in 3..=7 {
        check(&[range(0, 8 * 512)], |folios| {
            let take = |n: u8| folios.alloc(Cpu(0), order(n), MOVABLE).unwrap();
            let filled: Vec<_> = (0..1 << (9 - n)).map(|_| take(n)).collect();
            // The seat goes to another block, of which half is left.
            take(8);
            let hole = filled[filled.len() / 2];
            folios.free(Cpu(0), hole, order(n)).unwrap();
            assert_eq!(take(n), hole, "order {n}");
            assert_eq!(folios.census().within(Order::SIZE_2M), 6);
        });
    }
}

/// A search for memory to clear ends soon, the next one goes on where it ended, and all of memory
/// is visited before a search says that there is nothing.
#[test]
fn finding_q9_looking_for_memory_to_clear_goes_in_steps() {
    let blocks = 16 * LOOK;
    let ranges = [range(0, blocks * 512)];
    check(&ranges, |folios| {
        folios.declare_zero(ranges[0]);
        let seek = || folios.seek_unknown(Cpu(1), MOVABLE);
        assert!((0..10).all(|_| seek() == Sought::More), "ten steps do not see it all");
        // Two blocks hold something now: one that the search was at a while ago, and one that it
        // comes to next.
        for block in [3, 11 * LOOK] {
            folios.forget(range(block * 512 + 7, 1));
        }
        assert_eq!(seek(), Sought::More);
        let found = |block: u64| Sought::Block(Frame::new(block * 512));
        assert_eq!(seek(), found(11 * LOOK));
        let steps = std::iter::repeat_with(seek).take_while(|sought| *sought == Sought::More);
        assert_eq!(steps.count(), 5, "up to the end of memory, then from its start");
        // `take_while` took the block that was found with it.
        let steps = std::iter::repeat_with(seek).take_while(|sought| *sought == Sought::More);
        assert_eq!(steps.count(), 16, "a whole round in vain");
        assert_eq!(folios.free_frames().get(), (blocks - 2) * 512);
    });
    // One range after the other.
    let ranges = [range(0, 512), range(2048, 512), range(4096, 512)];
    check(&ranges, |folios| {
        let found = ranges.map(|_| folios.seek_unknown(Cpu(1), MOVABLE));
        assert_eq!(found, ranges.map(|range| Sought::Block(range.start())));
    });
}

/// Whole blocks are counted as far as the caller asks, and exactly: those that a seat has open
/// count, and hints in vain do not.
#[test]
fn finding_r10_whole_blocks_are_counted_as_far_as_asked() {
    check(&[range(0, 64 * 512)], |folios| {
        let taken = folios.alloc(Cpu(0), Order::BASE, MOVABLE).unwrap();
        let huge = folios.alloc(Cpu(1), Order::SIZE_2M, MOVABLE).unwrap();
        assert_eq!([0, 5, 62, 1000].map(|most| folios.whole_blocks(most)), [0, 5, 62, 62]);
        folios.free(Cpu(0), taken, Order::BASE).unwrap();
        assert_eq!(folios.whole_blocks(u64::MAX), 63);
        folios.free(Cpu(1), huge, Order::SIZE_2M).unwrap();
        assert_eq!(folios.whole_blocks(u64::MAX), 64);
    });
}

/// Where no block is whole any more, movable memory goes into the tightest hole of another class
/// and leaves its tag alone; memory that stays where it is takes the roomiest, and tags it.
#[test]
fn the_last_holes_are_filled_by_what_may_leave_them_again() {
    for (class, hole, tag) in [(MOVABLE, 2, Class::Unmovable), (Class::Table, 6, Class::Table)] {
        check(&[range(0, 1024)], |folios| {
            let take = |n| folios.alloc(Cpu(0), order(n), Class::Unmovable).unwrap();
            let holes = [2, 6].map(|n| {
                let filled: Vec<_> = (0..1 << (9 - n)).map(|_| take(n)).collect();
                (n, filled[3])
            });
            holes.iter().for_each(|(n, at)| folios.free(Cpu(0), *at, order(*n)).unwrap());
            folios.drain(Cpu(0));
            let taken = folios.alloc(Cpu(1), Order::BASE, class).unwrap();
            let (_, at) = holes.into_iter().find(|(n, _)| *n == hole).unwrap();
            assert_eq!(taken.get() / 512, at.get() / 512, "{class:?}");
            let (_, region) = folios.region_of(taken).unwrap();
            assert_eq!(region.load(region.locate(taken).0).class(), tag);
        });
    }
}

/// The blocks of a run are on no list when they are taken, nor when the first of them could not be.
#[test]
fn a_run_leaves_no_hints_behind() {
    check(&[range(0, 1024)], |folios| {
        let (_, region) = folios.region_of(Frame::new(0)).unwrap();
        let listed = || region.index().load(List::WHOLE, 0);
        assert_eq!(listed(), 0b11);
        folios.alloc(Cpu(0), order(10), MOVABLE).unwrap();
        assert_eq!(listed(), 0);
        region.index().set(List::WHOLE, 0);
        region.index().set(List::WHOLE, 1);
        assert!(folios.alloc(Cpu(0), order(10), MOVABLE).is_err());
        assert_eq!(listed(), 0b10, "the one that was found to be taken is off the list");
    });
}

/// CPUs that sit with another one each begin at a word of their own.
#[test]
fn guests_of_one_seat_keep_to_words_of_their_own() {
    let ranges = [range(0, 512)];
    let meta = lend(Folios::layout(&ranges, CpuCount(16)).unwrap());
    let folios = Folios::new(&ranges, CpuCount(16), &meta).unwrap();
    let word = |cpu| folios.alloc(Cpu(cpu), Order::BASE, MOVABLE).unwrap().get() / 32;
    assert!((0..16).map(word).eq(0..16));
}

/// A small block is cut from a hole of just its size where there is one, and the next ones from
/// the holes beside that. Any other hole becomes the seat's, and the next ones stay there.
#[test]
fn small_blocks_stay_in_the_hole_that_they_began() {
    for n in 0..3 {
        check(&[range(0, 8 * 512)], |folios| {
            let take = || folios.alloc(Cpu(0), order(n), MOVABLE).unwrap();
            let free = |frame: Frame| folios.free(Cpu(0), frame, order(n)).unwrap();
            let mut filled: Vec<_> = (0..2 << (9 - n)).map(|_| take()).collect();
            filled.sort();
            folios.drain(Cpu(0));
            // The second block has a hole of two, and the first one then has a hole of just the
            // size.
            let (low, high) = filled.split_at(filled.len() / 2);
            free(high[0]);
            free(high[1]);
            assert_eq!(take(), high[0]);
            free(low[2]);
            assert_eq!(take(), high[1], "the seat goes before a hole of the size");
            assert_eq!(take(), low[2], "and that one before a whole block");
            free(low[1]);
            free(high[3]);
            assert_eq!(
                [take(), take()],
                [low[1], high[3]],
                "the seat is where it took a hole last"
            );
            let last = high[high.len() - 1];
            [low[4], last].into_iter().for_each(free);
            assert_eq!(take(), last, "and stays there while holes of the size are left");
            [high[6], high[7]].into_iter().for_each(free);
            assert_eq!(take(), low[4], "but for larger ones");
        });
    }
}

/// A seat takes what is left of its word without a look at the block, which may be another CPU's by
/// now, and of another class; no word more than that one.
#[test]
fn a_word_at_hand_is_the_last_of_a_block_that_was_lost() {
    check(&[range(0, 2 * 512)], |folios| {
        let take = |cpu, class| folios.alloc(Cpu(cpu), Order::BASE, class).unwrap();
        let first = take(0, MOVABLE);
        folios.free(Cpu(0), first, Order::BASE).unwrap();
        let whole = [(); 2].map(|()| folios.alloc(Cpu(1), Order::SIZE_2M, MOVABLE).unwrap());
        let (lost, other) =
            if whole[0] <= first { (whole[0], whole[1]) } else { (whole[1], whole[0]) };
        folios.free(Cpu(1), lost, Order::SIZE_2M).unwrap();
        assert_eq!(take(1, Class::Unmovable), lost);
        folios.free(Cpu(1), other, Order::SIZE_2M).unwrap();
        let taken: Vec<_> = (0..512).map(|_| take(0, MOVABLE)).collect();
        let from_lost = taken.iter().filter(|page| page.get() / 512 == lost.get() / 512);
        assert_eq!(from_lost.count(), 31);
        assert!(taken[..31].iter().all(|page| page.get() / 512 == lost.get() / 512));
    });
}

/// Movable memory goes into a hole of another class before a whole block is opened, if it fits in
/// exactly. Memory that stays where it is opens a block.
#[test]
fn a_hole_of_another_class_is_used_where_it_fits_exactly() {
    for n in 3..=7 {
        for (class, exact, fits) in [
            (MOVABLE, true, true),
            (MOVABLE, false, false),
            (Class::Table, true, false),
            (Class::Table, false, false),
        ] {
            check(&[range(0, 8 * 512)], |folios| {
                let take = |class| folios.alloc(Cpu(0), order(n), class).unwrap();
                let filled: Vec<_> = (0..1 << (9 - n)).map(|_| take(Class::Unmovable)).collect();
                folios.drain(Cpu(0));
                for hole in &filled[..if exact { 1 } else { 2 }] {
                    folios.free(Cpu(0), *hole, order(n)).unwrap();
                }
                let is_inside = take(class).get() / 512 == filled[0].get() / 512;
                assert_eq!(is_inside, fits, "order {n} of {class:?}, exact: {exact}");
            });
        }
    }
}

/// CPUs begin to look for whole blocks as far from each other as may be, by whole words of the
/// index. A range counts in whole GiB there, as its index does.
#[test]
fn each_cpu_has_its_first_huge_block_far_from_the_others() {
    let gib = 512 * 512;
    for (ranges, firsts) in [
        (&[range(0, 4 * gib)][..], &[0, 512, 1024, 1536][..]),
        (&[range(0, 4 * gib)], &[0, 640, 1344]),
        (&[range(0, 3 * gib)], &[0, 192, 384, 640, 832, 1088, 1280]),
        (&[range(0, 512 * 300)], &[0, 256]),
        // Of two ranges the second one begins at block 8192.
        (&[range(0, 2 * gib), range(16 * gib, 2 * gib)], &[0, 512, 8192, 8704]),
        (&[range(0, gib), range(16 * gib, 3 * gib)], &[0, 8192 + 128, 8192 + 832]),
    ] {
        let cpus = CpuCount(firsts.len() as u16);
        let meta = lend(Folios::layout(ranges, cpus).unwrap());
        let folios = Folios::new(ranges, cpus, &meta).unwrap();
        let first = |cpu: u16| folios.alloc(Cpu(cpu), Order::SIZE_2M, MOVABLE).unwrap().get() / 512;
        let got: Vec<_> = (0..firsts.len() as u16).map(first).collect();
        assert_eq!(got, firsts, "{ranges:?}");
    }
}

/// The lists of an index against sets. Bits above that stand for nothing, as races leave them, are
/// dropped by the search that follows them.
#[test]
fn an_index_is_a_set_of_blocks_for_each_list() {
    const BLOCKS: usize = 3 * 64 * 64 * 8;
    let words = lend(WordCount(Pyramids::words(BLOCKS) as u64));
    let index = Pyramids::new(BLOCKS, &words);
    let lists = [List::WHOLE, List::class(Class::Table, 9), List::owned(10)];
    let mut sets = [const { BTreeSet::new() }; 3];
    let mut dice = Dice(1);
    for _ in 0..20_000 {
        let (nth, bit) = (dice.roll(3), dice.roll(BLOCKS as u64) as usize);
        let (list, set) = (lists[nth as usize], &mut sets[nth as usize]);
        match dice.roll(4) {
            0 => {
                index.set(list, bit);
                set.insert(bit);
            }
            1 => {
                let old = set.range(bit..).next().copied();
                old.inspect(|bit| index.clear(list, *bit));
                old.inspect(|bit| assert!(set.remove(bit)));
            }
            _ => assert_eq!(index.next(list, bit), set.range(bit..).next().copied()),
        }
        assert_eq!(index.is_empty(list), set.is_empty());
        assert_eq!(index.broken(list), None);
    }
    for (list, set) in lists.into_iter().zip(sets) {
        set.into_iter().for_each(|bit| index.clear(list, bit));
        assert!(index.is_empty(list));
    }
    let (list, one) = (List::WHOLE, 64 * 64 + 7);
    for (level, at, bits) in [(1, 0, 1 << 5), (1, 2, 1 << 5), (2, 0, 0b10_0101)] {
        index.word(list, level, at).store(bits, SeqCst);
    }
    index.set(list, one);
    assert_eq!(index.next(list, one + 1), None);
    index.clear(list, one);
    assert!(!index.is_empty(list), "before it there is one that nobody followed");
    assert_eq!(index.next(list, 0), None);
    assert!(index.is_empty(list));
}

/// Free blocks by order, each counted once, wherever memory begins and ends.
#[test]
fn a_census_counts_each_free_run_once_at_its_largest_size() {
    let mut dice = Dice(2);
    for (start, blocks) in [
        (0, 1),
        (0, 3),
        (0, 512),
        (0, 1024),
        (1, 6),
        (5, 1),
        (6, 2),
        (510, 5),
        (511, 1),
        (300, 800),
    ] {
        let end = start + blocks;
        check(&[range(start * 512, blocks * 512)], |folios| {
            let taken = |folios: &Folios<'_>| folios.alloc(Cpu(0), Order::SIZE_2M, MOVABLE).ok();
            let all: Vec<_> = std::iter::from_fn(|| taken(folios)).collect();
            assert_eq!(all.len() as u64, blocks);
            let mut free = BTreeSet::new();
            for share in [0, 4, 4, 2, 1] {
                // More and more of them are free, and in the end all are.
                for frame in &all {
                    let block = frame.get() / 512;
                    if share > 0 && dice.roll(share) == 0 && free.insert(block) {
                        folios.free(Cpu(0), *frame, Order::SIZE_2M).unwrap();
                    }
                }
                let census = folios.census();
                assert_eq!(census.pages().get(), free.len() as u64 * 512);
                let is_free = |block: u64, size: u64| {
                    let whole = block.is_multiple_of(size) && block >= start && block + size <= end;
                    whole && free.range(block..block + size).count() as u64 == size
                };
                let sizes = (0..=9).map(|n| (Order::new(9 + n).unwrap(), 1 << n));
                for (order, size) in sizes {
                    let heads = || (start..end).filter(|block| is_free(*block, size));
                    let of_larger = |block: &u64| {
                        order < Order::SIZE_1G && is_free(block & !(2 * size - 1), 2 * size)
                    };
                    let maximal = heads().filter(|block| !of_larger(block)).count() as u64;
                    assert_eq!(census.blocks(order), maximal, "{order:?} of {start}..{end}");
                    assert_eq!(census.within(order), heads().count() as u64);
                }
                let largest = Order::all().rev().find(|order| census.within(*order) > 0);
                assert_eq!(census.largest(), largest);
            }
        });
    }
}

#[test]
fn a_block_that_reaches_beyond_memory_is_refused_whatever_is_known_of_it() {
    check(&[range(0, 2 * 512)], |folios| {
        folios.declare_zero(range(0, 2 * 512));
        for known in [Pages::new(2 * 512), Pages::new(0)] {
            assert_eq!(folios.known_zero(), known);
            for says in [Known::Nothing, Known::Zero] {
                let back = folios.free_knowing(Cpu(0), Frame::new(0), order(11), says);
                assert!(back.is_err(), "{says:?}: {back:?}");
            }
            assert_eq!(folios.known_zero(), known);
            let all = folios.alloc(Cpu(0), order(10), MOVABLE).unwrap();
            folios.free(Cpu(0), all, order(10)).unwrap(); // from here on nothing is known
        }
    });
}

/// A search that found nothing in a block lowers the block's bound, so that the next one does not
/// look there.
#[test]
fn a_bound_that_promised_too_much_is_lowered() {
    let bound = |folios: &Folios<'_>, frame: Frame| {
        let (_, region) = folios.region_of(frame).unwrap();
        region.load(region.locate(frame).0).fit()
    };
    check(&[range(0, 512)], |folios| {
        let page = folios.alloc(Cpu(0), Order::BASE, MOVABLE).unwrap();
        while folios.alloc_in(page, order(3)).is_some() {}
        assert_eq!(bound(folios, page), 3, "7 frames are free around {page}: a block of order 2");
    });
    check(&[range(0, 2048)], |folios| {
        let page = folios.alloc(Cpu(0), Order::BASE, MOVABLE).unwrap();
        folios.free(Cpu(0), page, Order::BASE).unwrap();
        folios.alloc(Cpu(0), Order::BASE, MOVABLE).unwrap();
        assert_eq!(bound(folios, page), FIT_WHOLE, "nobody has looked");
        assert!(folios.alloc(Cpu(1), order(11), MOVABLE).is_err());
        assert!(bound(folios, page) < FIT_WHOLE);
    });
}

/// Until all words of a wide block are taken nobody can give it back.
#[cfg(feature = "steps")]
#[test]
fn a_wide_block_is_not_complete_before_all_of_it_is_taken() {
    use super::field::{Field, Offset};
    use foliant_sync::steps::{Touch, watch};
    use std::cell::Cell;
    std::thread_local! {
        static LOOKED: Cell<(u64, Option<Field<'static>>)> = const { Cell::new((0, None)) };
    }
    fn look(_: usize, touch: Touch) {
        let (times, Some(field)) = LOOKED.take() else { return };
        if touch != Touch::Written {
            assert!(field.give(6, Offset(0)).is_none(), "given back at touch {times}");
        }
        LOOKED.set((times + 1, Some(field)));
    }
    let words: Vec<Word> = (0..16).map(|_| Word::new(0)).collect();
    let field = Field(words.leak().first_chunk().unwrap());
    field.open();
    LOOKED.set((0, Some(field)));
    watch(Some(look));
    let taken = field.take_wide(6).0;
    watch(None);
    assert_eq!(taken, Some(Offset(0)));
    assert!(LOOKED.get().0 > 4, "both words are read and changed");
    assert!(field.give(6, Offset(0)).is_some());
}

/// A wide block is taken at one place in vain and then at another. Others free beside the first one
/// meanwhile, and see its words in use: what is free there is found afterwards all the same,
/// whenever they come.
#[cfg(feature = "steps")]
#[test]
fn finding_ci_words_that_were_taken_in_vain_hide_nothing() {
    use foliant_sync::steps::{Touch, watch};
    use std::boxed::Box;
    use std::cell::Cell;
    struct Others {
        folios: &'static Folios<'static>,
        step: u64,
        at: [u64; 2],
        beside: Frame,
        small: Option<Frame>,
    }
    std::thread_local! {
        static OTHERS: Cell<Option<Others>> = const { Cell::new(None) };
    }
    fn look(_: usize, touch: Touch) {
        let Some(mut others) = OTHERS.take() else { return };
        if touch != Touch::Written {
            let folios = others.folios;
            if others.step == others.at[0] {
                others.small = folios.alloc(Cpu(2), order(3), MOVABLE).ok();
            }
            if others.step == others.at[1] {
                folios.free(Cpu(3), others.beside, order(6)).unwrap();
                if let Some(small) = others.small.take() {
                    folios.free(Cpu(2), small, order(3)).unwrap();
                }
            }
            others.step += 1;
        }
        OTHERS.set(Some(others));
    }
    let (mut elsewhere, mut steps) = (0, 1);
    let mut first = 0;
    while first < steps {
        for second in first + 1..steps.max(first + 2) {
            let ranges = [range(0, 512)];
            let meta = lend(Folios::layout(&ranges, CpuCount(4)).unwrap()).leak();
            let folios = Folios::new(&ranges, CpuCount(4), meta).unwrap();
            let folios: &'static Folios<'static> = Box::leak(Box::new(folios));
            (0..8).for_each(|_| _ = folios.alloc(Cpu(0), order(6), MOVABLE).unwrap());
            for n in [1, 2] {
                folios.free(Cpu(0), Frame::new(64 * n), order(6)).unwrap();
            }
            folios.drain(Cpu(0));
            let at = [first, second];
            let beside = Frame::new(0);
            OTHERS.set(Some(Others { folios, step: 0, at, beside, small: None }));
            watch(Some(look));
            let taken = folios.alloc(Cpu(1), order(6), MOVABLE).unwrap();
            watch(None);
            let others = OTHERS.take().unwrap();
            steps = steps.max(others.step);
            if taken == Frame::new(128) && others.step > second && others.small.is_none() {
                elsewhere += 1;
                (0..4).for_each(|cpu| folios.drain(Cpu(cpu)));
                let whole = folios.alloc(Cpu(0), order(7), MOVABLE);
                assert_eq!(whole, Ok(beside), "others came at steps {at:?}");
            }
        }
        first += 1;
    }
    assert!(elsewhere > 0, "the first place was always had");
}

/// One word with a free block is enough.
#[test]
fn a_block_that_is_free_in_one_word_is_free() {
    use super::field::{Field, Offset};
    let words: Vec<Word> = (0..16).map(|_| Word::new(0)).collect();
    let field = Field(words.leak().first_chunk().unwrap());
    field.open();
    (0..512).for_each(|_| assert!(field.take(0, 0).is_some()));
    assert!(!field.has(0));
    assert!([162, 163].iter().all(|at| field.give(0, Offset(*at)).is_some()));
    assert_eq!([0, 1, 2].map(|order| field.has(order)), [true, true, false]);
}

/// A CPU goes on in the word that it used last, though a frame came back in an earlier word.
#[test]
fn a_seat_remembers_the_word_used_last() {
    check(&[range(0, 1024)], |folios| {
        let take = || folios.alloc(Cpu(0), Order::BASE, MOVABLE).unwrap();
        let taken: Vec<Frame> = (0..33).map(|_| take()).collect();
        folios.free(Cpu(0), taken[5], Order::BASE).unwrap();
        assert_eq!(take(), taken[32].add(Pages::new(1)));
        folios.free(Cpu(0), taken[32].add(Pages::new(1)), Order::BASE).unwrap();
        taken.iter().filter(|frame| **frame != taken[5]).for_each(|frame| {
            folios.free(Cpu(0), *frame, Order::BASE).unwrap();
        });
    });
}

/// A whole block that comes back a little behind the cursor is found before memory that was not
/// used yet.
#[test]
fn whole_blocks_that_come_back_are_used_before_new_ones() {
    check(&[range(0, 512 * 8)], |folios| {
        let take = || folios.alloc(Cpu(0), Order::SIZE_2M, MOVABLE).unwrap();
        let taken: Vec<Frame> = (0..4).map(|_| take()).collect();
        for back in [taken[1], taken[2]] {
            folios.free(Cpu(0), back, Order::SIZE_2M).unwrap();
        }
        assert_eq!([take(), take()], [taken[2], taken[1]]);
        taken.into_iter().for_each(|frame| folios.free(Cpu(0), frame, Order::SIZE_2M).unwrap());
    });
    // A little is 2 GiB.
    for (blocks, is_near) in [(1024, true), (1025, false)] {
        check(&[range(0, 512 * 2048)], |folios| {
            let take = || folios.alloc(Cpu(0), Order::SIZE_2M, MOVABLE).unwrap();
            let taken: Vec<Frame> = (0..=blocks).map(|_| take()).collect();
            // The one freed last is found anyway.
            for back in [taken[0], taken[blocks]] {
                folios.free(Cpu(0), back, Order::SIZE_2M).unwrap();
            }
            assert_eq!(take(), taken[blocks]);
            assert_eq!(take() == taken[0], is_near, "{blocks}");
        });
    }
}

/// A word that is emptied while another CPU sets a bit in it keeps its bit one level up
/// (index::I2), at whichever access of the one that clears the other CPU comes.
#[cfg(feature = "steps")]
#[test]
fn a_bit_that_is_set_beside_one_that_is_cleared_is_found() {
    use foliant_sync::steps::{Touch, watch};
    use std::cell::Cell;
    std::thread_local! {
        static BESIDE: Cell<(u64, Option<Pyramids<'static>>)> = const { Cell::new((0, None)) };
    }
    fn look(_: usize, touch: Touch) {
        let (left, Some(pyramids)) = BESIDE.take() else { return };
        match left {
            0 if touch != Touch::Written => pyramids.set(List::WHOLE, 70),
            0 => BESIDE.set((0, Some(pyramids))),
            _ => BESIDE.set((left - u64::from(touch != Touch::Written), Some(pyramids))),
        }
    }
    for step in 0..9 {
        let words: Vec<Word> = (0..Pyramids::words(1 << 13)).map(|_| Word::new(0)).collect();
        let pyramids = Pyramids::new(1 << 13, words.leak());
        pyramids.set(List::WHOLE, 65);
        BESIDE.set((step, Some(pyramids)));
        watch(Some(look));
        pyramids.clear(List::WHOLE, 65);
        watch(None);
        let came = BESIDE.take().1.is_none();
        assert_eq!(pyramids.broken(List::WHOLE), None, "step {step}");
        assert_eq!(pyramids.next(List::WHOLE, 0), came.then_some(70), "step {step}");
        assert_eq!(came, step < 8, "a clear makes eight accesses");
    }
}

/// The block freed last is a hint for one claim.
#[test]
fn the_block_freed_last_is_named_once() {
    use super::seats::{Hinted, Seats, WORDS};
    let words: Vec<Word> = (0..WORDS).map(|_| Word::new(0)).collect();
    let seats = Seats { cpu: Cpu(0), words: words.first_chunk().unwrap(), guest: None };
    let place = Hinted { region: 1, block: 7, word: 3 };
    seats.set_recent(place);
    assert_eq!([seats.take_recent(), seats.take_recent()], [Some(place), None]);
}
