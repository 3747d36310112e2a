//! Every interleaving of two or three threads over the single-word protocols.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p foliant-folio --lib --release loom_tests`. In loom an
//! access is acquire and release at most, and only a fence is more. So the room sets one wherever
//! it relies on sequential consistency (`index::full_fence`).

use super::bits::{BitState, Bits, Phase};
use super::entry::{FIT_WHOLE, Owner};
use super::evict::Joined;
use super::field::{Field, Offset};
use super::index::{List, Pyramids};
use super::region::Region;
use super::{Class, Word};
use foliant_units::{Cpu, Frame, FrameRange, Pages};
use std::vec::Vec;

extern crate loom;
use loom::thread;

fn check(test: impl Fn() + Sync + Send + 'static) {
    check_bounded(3, test);
}

/// Runs every interleaving with up to `preemptions` preemptions.
fn check_bounded(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 20_000;
    model.check(test);
}

/// Words that outlive the threads of one execution.
fn lend<const N: usize>() -> &'static [Word; N] {
    lend_words(N).first_chunk().unwrap()
}
fn lend_words(count: usize) -> &'static [Word] {
    (0..count).map(|_| Word::new(0)).collect::<Vec<Word>>().leak()
}

fn field() -> Field<'static> {
    let field = Field(lend());
    field.open();
    field
}

#[test]
fn two_takers_never_get_the_same_frame() {
    check(|| {
        let field = field();
        let other = thread::spawn(move || field.take(4, 0));
        let mine = field.take(4, 0);
        let theirs = other.join().unwrap();
        assert!(mine.is_some() && theirs.is_some() && mine != theirs);
    });
}

#[test]
fn a_block_freed_twice_is_freed_once() {
    check(|| {
        let field = field();
        let at = field.take_wide(6).0.unwrap();
        let other = thread::spawn(move || field.give(6, at).is_some());
        let mine = field.give(6, at).is_some();
        assert!(mine ^ other.join().unwrap());
        assert_eq!(field.count(), 512);
    });
}

#[test]
fn a_split_and_a_free_of_the_whole_exclude_each_other() {
    check(|| {
        let field = field();
        let at = field.take_wide(6).0.unwrap();
        let other = thread::spawn(move || field.give(6, at).is_some());
        let split = field.split(6, at, 3).is_some();
        assert!(split ^ other.join().unwrap());
        assert_eq!(field.count(), if split { 512 - 64 } else { 512 });
    });
}

/// Single frames become one block in words of which another CPU takes and frees at the time.
#[test]
fn a_join_loses_nothing_that_others_do_in_its_words() {
    for order in [3, 6] {
        check(move || {
            let field = field();
            let at = match order {
                6 => field.take_wide(order).0.unwrap(),
                _ => field.take(order, 0).unwrap(),
            };
            field.split(order, at, 0).unwrap();
            let other = thread::spawn(move || {
                let taken = field.take(2, 0).unwrap();
                field.give(2, taken).is_some()
            });
            assert!(field.join(order, at).is_some() && other.join().unwrap());
            assert_eq!(field.spot(at), BitState::Block { head: at.0, order });
            assert_eq!(field.count(), 512 - (1 << order));
        });
    }
}

#[test]
fn of_two_that_free_halves_one_sees_the_whole() {
    check(|| {
        let field = field();
        let (a, b) = (field.take(5, 0).unwrap(), field.take(5, 1).unwrap());
        let other = thread::spawn(move || field.raised(0, field.give(5, b).unwrap()));
        let mine = field.raised(0, field.give(5, a).unwrap());
        assert_eq!(mine.max(other.join().unwrap()), FIT_WHOLE);
    });
}

/// Two free parts of a word, each its pages together: the second sees what both made free.
#[test]
fn of_two_that_free_pages_together_one_sees_the_whole() {
    check(|| {
        let field = field();
        let taken = (0..32).map(|_| field.take(0, 0).unwrap().0);
        assert!(taken.eq(0..32));
        let give = move |low, high| field.raised(0, field.give_each(0, low, high).unwrap());
        let other = thread::spawn(move || give(5, 32));
        let mine = give(0, 5);
        assert_eq!(mine.max(other.join().unwrap()), FIT_WHOLE);
        assert!(field.give_each(0, 4, 6).is_none(), "they are free");
    });
}

/// The block becomes whole, whether its owner or the one that frees its last pages is later.
#[test]
fn the_last_to_free_pages_together_or_to_disown_makes_a_block_whole() {
    check(|| {
        let region = region();
        let claim = (owner(0), Some(Class::Movable));
        let first = region.claim(0, List::WHOLE, 0, claim).unwrap().0;
        let second = region.take_owned(0, Some(owner(0)), 0, 0).unwrap().0;
        assert_eq!((first, second), (0, 1));
        let other = thread::spawn(move || region.give_each(0, 0, 2).unwrap());
        region.disown(0, owner(0));
        other.join().unwrap();
        assert!(region.load(0).is_whole(), "{:?}", region.load(0));
        assert_eq!(region.index().next(List::WHOLE, 0), Some(0));
    });
}

#[test]
fn a_closing_field_shuts_takers_out_or_stays_open() {
    check(|| {
        let field = field();
        let other = thread::spawn(move || field.take(0, 1));
        let closed = field.close(Bits::FREE);
        assert!(closed ^ other.join().unwrap().is_some());
        assert_eq!(field.count(), if closed { 0 } else { 511 });
    });
}

/// A bit of the second word, which is found by way of the level above only.
const BIT: usize = 70;

/// The thing that the bit stands for is a word of its own. The index must show the bit whenever the
/// thing is true at the end.
#[test]
fn a_bit_dropped_in_haste_is_set_back() {
    use foliant_sync::Ordering::SeqCst;
    check(|| {
        let index: Pyramids<'static> = Pyramids::new(128, lend_words(Pyramids::words(128)));
        let [thing] = lend::<1>();
        index.set(List::WHOLE, BIT);
        let other = thread::spawn(move || {
            thing.store(1, SeqCst);
            index.set(List::WHOLE, BIT);
        });
        index.clear(List::WHOLE, BIT);
        if thing.load(SeqCst) == 1 {
            index.set(List::WHOLE, BIT);
        }
        other.join().unwrap();
        assert_eq!(index.next(List::WHOLE, 0), Some(BIT));
    });
}

/// A region of one block.
fn region() -> Region<'static> {
    let range = FrameRange::new(Frame::new(0), Pages::new(512)).unwrap();
    Region::new(range, foliant_units::Node(0), lend_words(Region::words(range)))
}

fn owner(cpu: u16) -> Owner {
    Owner::seat(Cpu(cpu), 0)
}

#[test]
fn the_last_to_free_or_to_disown_makes_a_block_whole() {
    check(|| {
        let region = region();
        let claim = (owner(0), Some(Class::Movable));
        let at = region.claim(0, List::WHOLE, 0, claim).unwrap();
        let other = thread::spawn(move || region.give(0, 0, at).unwrap());
        region.disown(0, owner(0));
        other.join().unwrap();
        assert!(region.load(0).is_whole(), "{:?}", region.load(0));
        assert_eq!(region.index().next(List::WHOLE, 0), Some(0));
    });
}

#[test]
fn a_block_is_never_huge_and_small_at_once() {
    check_bounded(1, || {
        let region = region();
        let claim = (owner(1), Some(Class::Table));
        let other = thread::spawn(move || region.claim(0, List::WHOLE, 0, claim));
        let huge = region.claim_free(0, 9, Class::Movable, Phase::Complete);
        let small = other.join().unwrap();
        assert!(!(huge && small.is_some()));
        assert_eq!(region.free(0), if huge { 0 } else { 512 - u32::from(small.is_some()) });
    });
}

#[test]
fn an_open_block_is_taken_whole_or_in_part() {
    check(|| {
        let region = region();
        let at = region.claim(0, List::WHOLE, 0, (owner(0), Some(Class::Movable))).unwrap();
        region.give(0, 0, at).unwrap();
        let other = thread::spawn(move || region.take_owned(0, Some(owner(0)), 0, 0));
        let huge = region.claim_free(0, 9, Class::Movable, Phase::Complete);
        let small = other.join().unwrap();
        assert!(huge ^ small.is_some(), "{huge} {small:?}");
    });
}

/// A partly used block without owner, with `N` of its frames in use.
fn used<const N: usize>() -> (Region<'static>, [Offset; N]) {
    let region = region();
    let first = region.claim(0, List::WHOLE, 0, (owner(0), Some(Class::Movable))).unwrap();
    region.give(0, 0, first).unwrap();
    let frames = core::array::from_fn(|_| region.take_here(0, 0).unwrap());
    region.disown(0, owner(0));
    (region, frames)
}

#[test]
fn what_two_free_while_the_block_is_emptied_is_isolated_once() {
    check_bounded(2, || {
        let (region, [a, b, left]) = used();
        let free = move |at| thread::spawn(move || region.give(0, 0, at).unwrap());
        let others = [free(a), free(b)];
        let first = region.isolate(0);
        others.into_iter().for_each(|other| other.join().unwrap());
        let mut all = region.isolate(0);
        assert_eq!(first.count() + all.count(), 511, "no frame is in both, and none is missing");
        all.join(&first);
        all.add(left.0.into(), 1);
        assert!(all.count() == 512 && join(&region));
        assert_eq!((region.load(0).order(), region.free(0)), (9, 0));
    });
}

/// Joins all frames of the block, which are the caller's.
fn join(region: &Region<'_>) -> bool {
    loop {
        match region.join(0, Class::Movable) {
            Some(Joined::Later) => loom::thread::yield_now(),
            other => return other.is_some(),
        }
    }
}

/// The CPU that freed the last frame looks whether the block is all free, since it was: whoever has
/// all of it by then joins it all the same.
#[test]
fn finding_ay_a_block_is_joined_beside_a_late_look() {
    check_bounded(2, || {
        let (region, [last]) = used();
        let other = thread::spawn(move || region.give(0, 0, last).unwrap());
        let all = region.isolate(0);
        let mut taken = 0;
        while all.count() + taken < 512 && region.take_here(0, 0).is_some() {
            taken += 1;
        }
        if all.count() + taken == 512 {
            assert!(join(&region), "all of its frames are ours");
        }
        other.join().unwrap();
    });
}

#[test]
fn of_a_block_that_is_joined_nobody_gets_a_frame() {
    check_bounded(2, || {
        let (region, [last]) = used();
        let mut all = region.isolate(0);
        let other = thread::spawn(move || region.take_here(0, 0));
        region.give(0, 0, last).unwrap();
        all.join(&region.isolate(0));
        let joined = all.count() == 512 && join(&region);
        assert!(joined ^ other.join().unwrap().is_some(), "the last frame is one of theirs");
    });
}

#[test]
fn what_is_given_up_while_others_take_and_free_is_free_in_the_end() {
    check_bounded(1, || {
        let (region, [last]) = used();
        let isolated = region.isolate(0);
        let other = thread::spawn(move || {
            let taken = region.take_here(0, 0);
            region.give(0, 0, last).unwrap();
            taken
        });
        region.give_up(0, &isolated).unwrap();
        if let Some(taken) = other.join().unwrap() {
            assert_eq!(region.free(0), 511);
            region.give(0, 0, taken).unwrap();
        }
        assert!(region.load(0).is_whole(), "{:?}", region.load(0));
    });
}

/// A compaction gives up, the owner leaves, and a third CPU takes a frame in between. Nobody owns
/// the block then, and once all of it is free it is whole, however the three looked past each
/// other.
#[test]
fn finding_q4_a_bound_is_raised_for_an_owner_that_is_still_there() {
    check_bounded(2, || {
        let region = region();
        let claim = (owner(0), Some(Class::Movable));
        let mine = region.claim(0, List::WHOLE, 0, claim).unwrap();
        let isolated = region.isolate(0);
        region.give(0, 0, mine).unwrap();
        let leaves = thread::spawn(move || region.disown(0, owner(0)));
        let takes = thread::spawn(move || region.take_here(0, 0));
        region.give_up(0, &isolated).unwrap();
        leaves.join().unwrap();
        if let Some(taken) = takes.join().unwrap() {
            region.give(0, 0, taken).unwrap();
        }
        assert!(region.load(0).is_whole(), "{:?}", region.load(0));
        assert_eq!(region.index().next(List::WHOLE, 0), Some(0));
    });
}

/// A claimer of whole blocks finds that the block's owner has taken a frame, and the owner leaves
/// while the claimer finds out: nobody owns the block afterwards.
#[test]
fn finding_s2_a_seat_that_is_left_beside_a_claimer_owns_nothing() {
    check_bounded(3, || {
        let region = region();
        let claim = (owner(1), Some(Class::Table));
        let first = region.claim(0, List::WHOLE, 0, claim).unwrap();
        region.give(0, 0, first).unwrap();
        let other = thread::spawn(move || {
            let taken = region.take_owned(0, Some(owner(1)), 0, 0);
            region.disown(0, owner(1));
            taken
        });
        let huge = region.claim_free(0, 9, Class::Movable, Phase::Complete);
        let small = other.join().unwrap();
        assert!(!(huge && small.is_some()));
        assert_eq!(region.load(0).owner(), Owner::NONE, "{:?}", region.load(0));
        if let Some(taken) = small {
            region.give(0, 0, taken).unwrap();
        }
        assert!(huge || region.load(0).is_whole(), "{:?}", region.load(0));
    });
}
