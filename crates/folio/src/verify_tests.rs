//! The recount finds each thing that can be wrong, where it is wrong.

use super::bits::{Bits, Phase};
use super::entry::{BlockEntry, FIT_WHOLE};
use super::index::{List, Pyramids};
use super::model::lend;
use super::region::Region;
use super::*;
use foliant_sync::Ordering::SeqCst;
use foliant_units::{FrameRange, Pages};
use std::string::ToString;
use std::vec::Vec;

const SIZE_2M: u64 = Order::SIZE_2M.pages().get();
/// The first frame, at the end of 1 GiB.
const FIRST: u64 = 1 << 18;

fn order(n: u8) -> Order {
    Order::new(n).unwrap()
}

/// Recounts an allocator over so many blocks from `first` on, as `prepare` and then `spoil` leave
/// it. Gives what the recount says, with the number of the block.
fn recounted(
    (first, blocks): (u64, u64),
    prepare: impl FnOnce(&Folios<'_>),
    spoil: impl FnOnce(&Folios<'_>, &Region<'_>),
) -> Result<(), (u64, Conflict)> {
    let range = FrameRange::new(Frame::new(first), Pages::new(blocks * SIZE_2M)).unwrap();
    let meta = lend(Folios::layout(&[range], CpuCount(2)).unwrap());
    let folios = Folios::new(&[range], CpuCount(2), &meta).unwrap();
    prepare(&folios);
    folios.validate().unwrap();
    let region = *folios.regions.get(0).unwrap();
    spoil(&folios, &region);
    folios.validate().map_err(|found| ((found.block.get() - first) / SIZE_2M, found.what))
}

/// One page is taken by CPU 1, in the first block.
fn one_page(folios: &Folios<'_>) {
    assert_eq!(folios.alloc(Cpu(1), Order::BASE, Class::Movable), Ok(Frame::new(FIRST)));
}
fn set(region: &Region<'_>, block: usize, entry: BlockEntry) {
    region.entry(block).store(entry.0, SeqCst);
}

#[test]
fn a_bound_below_the_truth_is_found() {
    let found = recounted((FIRST, 2), one_page, |_, region| {
        let entry = region.load(0);
        region.index().set(List::owned(8), 0);
        set(region, 0, entry.with_fit(8));
    });
    assert_eq!(found, Err((0, Conflict::Fit { bound: 8, found: 9 })));
    let higher = recounted((FIRST, 2), one_page, |_, region| {
        let entry = region.load(0);
        region.index().set(List::owned(10), 0);
        set(region, 0, entry.with_fit(10));
    });
    assert_eq!(higher, Ok(()), "a bound may lie above it");
}

#[test]
fn words_that_no_change_makes_are_found() {
    let word = |nth: usize, bits: Bits| {
        recounted((FIRST, 2), one_page, |_, region| {
            region.field(0).0[nth].store(bits.0, SeqCst);
        })
    };
    let shape = |frame| Err((0, Conflict::Shape { frame: Frame::new(FIRST + frame) }));
    let unended = Bits(0b10 << 32 | u64::from(!0b10u32)); // a block that begins and does not end
    assert_eq!(word(2, unended), shape(64));
    assert_eq!(word(3, Bits::wide(6, Phase::Complete)), shape(96), "half of 64 frames");
    assert_eq!(word(4, Bits::wide(6, Phase::InFlight)), shape(128));
    assert_eq!(word(15, Bits::wide(3, Phase::Complete)), shape(480), "no wide order");
}

#[test]
fn a_field_that_should_be_closed_is_found() {
    let open = |prepare: fn(&Folios<'_>), nth: usize| {
        recounted((FIRST, 3), prepare, |_, region| {
            region.field(1).0[nth].store(Bits::FREE.0, SeqCst);
        })
    };
    for nth in [0, 15] {
        assert_eq!(open(|_| {}, nth), Err((1, Conflict::Open)), "a whole block");
        let held = |folios: &Folios<'_>| {
            for _ in 0..3 {
                folios.alloc(Cpu(0), Order::SIZE_2M, Class::Movable).unwrap();
            }
        };
        assert_eq!(open(held, nth), Err((1, Conflict::Open)), "a held one");
    }
}

#[test]
fn a_block_that_nobody_has_and_that_is_not_whole_is_found() {
    let free_again = |folios: &Folios<'_>| {
        one_page(folios);
        folios.free(Cpu(1), Frame::new(FIRST), Order::BASE).unwrap();
    };
    let found = recounted((FIRST, 2), free_again, |_, region| {
        region.index().set(List::class(Class::Movable, 9), 0);
        set(region, 0, BlockEntry::small(Class::Movable, 9));
    });
    assert_eq!(
        found,
        Err((0, Conflict::Fit { bound: 9, found: FIT_WHOLE })),
        "the bound is told first"
    );
    // Bounds of blocks without owner end at 9, so one of 10 is written by hand.
    let bound = recounted((FIRST, 2), one_page, |_, region| {
        let fit = u64::from(FIT_WHOLE ^ 9) << 12;
        region.index().set(List::class(Class::Movable, 9), 0);
        set(region, 0, BlockEntry(BlockEntry::small(Class::Movable, 9).0 ^ fit));
    });
    assert_eq!(bound, Err((0, Conflict::Loose)));
    let open = recounted((FIRST, 2), free_again, |_, region| {
        let fit = u64::from(FIT_WHOLE ^ 9) << 12;
        set(region, 0, BlockEntry(BlockEntry::small(Class::Movable, 9).0 ^ fit));
    });
    assert_eq!(open, Err((0, Conflict::Loose)));
}

#[test]
fn a_run_whose_blocks_disagree_is_found() {
    let run = |folios: &Folios<'_>| {
        assert_eq!(folios.alloc(Cpu(0), order(11), Class::Movable), Ok(Frame::new(FIRST)));
    };
    for block in 0..4 {
        let found = recounted((FIRST, 5), run, |_, region| {
            set(region, block, BlockEntry::held(9, Class::Movable, Phase::Complete));
        });
        let first = u64::from(block == 0);
        assert_eq!(found, Err((first, Conflict::Run { order: order(11) })), "block {block}");
    }
    let lone = |first: u64, blocks: u64, block: usize| {
        recounted(
            (first, blocks),
            |_| {},
            |_, region| {
                set(region, block, BlockEntry::held(10, Class::Movable, Phase::Complete));
            },
        )
    };
    let wrong = Conflict::Run { order: order(10) };
    assert_eq!(lone(FIRST + SIZE_2M, 4, 0), Err((0, wrong)), "its head lies before the range");
    assert_eq!(lone(FIRST, 3, 2), Err((2, wrong)), "its end lies behind");
}

#[test]
fn what_is_in_flight_is_found() {
    let found = recounted(
        (FIRST, 3),
        |_| {},
        |_, region| {
            let entry = region.load(2).busy();
            set(region, 2, entry);
        },
    );
    assert_eq!(found, Err((2, Conflict::InFlight)));
}

#[test]
fn a_block_that_its_list_misses_is_found() {
    for block in 0..3 {
        let found = recounted(
            (FIRST, 3),
            |_| {},
            |_, region| {
                region.index().clear(List::WHOLE, block);
            },
        );
        assert_eq!(found, Err((block as u64, Conflict::Unlisted)));
    }
    let partly = recounted((FIRST, 3), one_page, |_, region| {
        let list = region.load(0).list().unwrap();
        region.index().clear(list, 0);
    });
    assert_eq!(partly, Err((0, Conflict::Unlisted)));
}

#[test]
fn a_list_that_the_level_above_does_not_know_is_found() {
    for level in [1, 2] {
        for list in [List::WHOLE, List::owned(9)] {
            let found = recounted((FIRST, 3), one_page, |_, region| {
                region.index().set(list, 1);
                region.index().word(list, level, 0).store(0, SeqCst);
            });
            assert_eq!(found, Err((0, Conflict::Index)), "level {level}");
        }
    }
}

#[test]
fn a_seat_that_names_another_block_is_found() {
    let seat = |place: Option<(usize, usize)>| {
        recounted((FIRST, 3), one_page, |folios, _| {
            // Memory is so small that CPU 1 sits where CPU 0 does.
            let seats = folios.seats(Cpu(0)).unwrap();
            let place = place.map(|(region, block)| seats::Hinted { region, block, word: 0 });
            seats.all().filter(|seat| seat.place().is_some()).for_each(|seat| {
                seat.exchange(place);
            });
        })
    };
    let wrong = Err((0, Conflict::Seat { cpu: Cpu(0) }));
    assert_eq!(seat(None), wrong);
    assert_eq!(seat(Some((0, 1))), wrong);
    assert_eq!(seat(Some((1, 0))), wrong);
    assert_eq!(seat(Some((0, 0))), Ok(()));
}

#[test]
fn what_is_found_is_told_with_its_place() {
    let found = Disagreement { block: Frame::new(0x200), what: Conflict::Loose };
    assert_eq!(found.to_string(), "the 2 MiB block at 0x200 disagrees: Loose");
}

/// The index is one of 4 TiB, where each level has words enough to be taken for another.
#[test]
fn an_index_that_is_emptied_says_so() {
    let bits = 1 << 21;
    let words: Vec<Word> = lend(WordCount(Pyramids::words(bits) as u64));
    let index = Pyramids::new(bits, &words);
    for bit in [0, 63, 64, 64 * 64 - 1, 64 * 70 + 3, 64 * 64 * 9 + 64 * 5, bits - 1] {
        assert!(index.is_empty(List::WHOLE));
        index.set(List::WHOLE, bit);
        index.set(List::owned(3), bit);
        assert_eq!(index.broken(List::WHOLE), None);
        assert_eq!(
            (index.next(List::WHOLE, 0), index.next(List::WHOLE, bit + 1)),
            (Some(bit), None)
        );
        assert!(!index.is_empty(List::WHOLE));
        index.clear(List::WHOLE, bit);
        assert_eq!(index.next(List::owned(3), bit), Some(bit), "of another list");
        index.clear(List::owned(3), bit);
    }
    assert!(words.iter().all(|word| word.load(SeqCst) == 0), "nothing is left at any level");
}
