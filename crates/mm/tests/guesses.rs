//! Sizes that the manager chooses (`Size::Auto`): what is used is found to be, what is not comes
//! back, and however a program touches its memory, little of it is idle.

use crate::common::*;
use foliant::fault::{Orders, Size};
use foliant::space::{Advice, SpaceId};
use foliant::table::Paging;
use foliant::{Access, Event, Outcome, Policy};
use foliant_sim::Sim;
use foliant_units::{Order, Va};
use proptest::prelude::*;
use std::collections::BTreeSet;

const AUTO: Policy = Policy::tuned(Orders::ANON);
/// What may be idle of so many pages at most, and a folio more (fault::tuned::U1).
fn limit(most: u64) -> u64 {
    most / 50 + 256 + most / 12 + 2048 + 511
}

/// Pages side by side behind which memory grows.
const RUN: u64 = 4;

/// A space that CPU 0 runs, with so many MiB at `BASE`.
fn space(mm: &AnyMm<'_, impl Paging>, megabytes: u64) -> SpaceId {
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(mm, id, BASE, megabytes * MB);
    id
}
/// A program writes to a page. Gives what it mapped, if it faulted.
fn write(sim: &Sim, mm: &AnyMm<'_, impl Paging>, id: SpaceId, nth: u64) -> Option<Outcome> {
    let va = Va::new(BASE + nth * PAGE);
    let mut outcome = None;
    while sim.user_store(va, 8, nth + 1).is_err() {
        outcome = Some(mm.fault(id, va, Access::Write));
    }
    outcome
}

/// A program reads a page that nobody wrote to. Gives what it mapped, if it faulted.
fn read(sim: &Sim, mm: &AnyMm<'_, impl Paging>, id: SpaceId, nth: u64) -> Option<Outcome> {
    let va = Va::new(BASE + nth * PAGE);
    let mut outcome = None;
    loop {
        match sim.user_load(va, 8) {
            Ok(word) => {
                assert_eq!(word, 0, "page {nth}");
                return outcome;
            }
            Err(_) => outcome = Some(mm.fault(id, va, Access::Read)),
        }
    }
}
/// Whether something is mapped at a page.
fn is_there(mm: &AnyMm<'_, impl Paging>, id: SpaceId, nth: u64) -> bool {
    mm.frame_at(id, Va::new(BASE + nth * PAGE)).is_some()
}

#[test]
fn memory_that_is_filled_gets_large_folios_and_nothing_is_idle() {
    let sim = sim(1, 96);
    let mm = manager(&sim, AUTO);
    let id = space(&mm, 64);
    let faults = (0..64 * MB / PAGE).filter(|nth| write(&sim, &mm, id, *nth).is_some()).count();
    assert!(faults < 160, "{faults} for 16,384 pages");
    assert!(mm.mappings(mm.frame_at(id, Va::new(BASE + 63 * MB)).unwrap()).unwrap().whole == 1);
    assert_eq!(mm.total(Event::GuessTaken), 0);
    assert!(mm.idle().get() < 4 * 512, "{:?}", mm.idle());
    assert_eq!(mm.anonymous().get(), 64 * MB / PAGE);
}

#[test]
fn pages_far_from_each_other_come_alone() {
    let sim = sim(1, 64);
    let mm = manager(&sim, AUTO);
    let id = space(&mm, 8192);
    (0..4096u64).for_each(|nth| _ = write(&sim, &mm, id, nth * 512));
    assert_eq!(mm.anonymous().get(), 4096);
}

/// A program that begins each 2 MiB as if it were to fill them.
#[test]
fn what_grows_by_five_pages_soon_comes_alone() {
    let sim = sim(1, 256);
    let mm = manager(&sim, AUTO);
    let id = space(&mm, 8192);
    let pages = || (0..4096u64).flat_map(|nth| (0..=RUN).map(move |page| nth * 512 + page));
    pages().for_each(|nth| _ = write(&sim, &mm, id, nth));
    let (there, least) = (mm.anonymous().get(), 4096 * (RUN + 1));
    assert!(there <= least + limit(least), "{there}");
    let alone = mm.size_stats(Order::BASE).get(foliant::SizeEvent::AnonFaultAlloc);
    assert!(alone > least - 500, "{alone} of {least}");
    for nth in pages() {
        assert_eq!(load(&sim, &mm, id, BASE + nth * PAGE), nth + 1);
    }
    let behind = |nth: u64| load(&sim, &mm, id, BASE + (nth * 512 + RUN + 1) * PAGE);
    assert!((0..4096).all(|nth| behind(nth) == 0));
}

/// A page of a folio that was half given back is zero again, and takes a folio of its own.
#[test]
fn what_was_given_back_faults_again() {
    let sim = sim(1, 96);
    let mm = manager(&sim, AUTO);
    let id = space(&mm, 80);
    // A leaf of which one page is used, and much that is filled behind it.
    (0..1024).for_each(|nth| _ = write(&sim, &mm, id, nth));
    write(&sim, &mm, id, 1024);
    (4096..80 * MB / PAGE).for_each(|nth| _ = write(&sim, &mm, id, nth));
    assert_eq!(mm.total(Event::GuessTaken), 511);
    assert_eq!(mm.frame_at(id, Va::new(BASE + 1500 * PAGE)), None);
    assert_eq!(load(&sim, &mm, id, BASE + 1024 * PAGE), 1025);
    let again = write(&sim, &mm, id, 1500);
    assert!(matches!(again, Some(Outcome::Mapped(order)) if order > Order::BASE), "{again:?}");
}

/// A page of zeros that is there when a program asks for what is missing is not missing afterwards,
/// whoever finds out that it holds nothing.
#[test]
fn a_page_that_was_there_is_not_handed_to_the_program() {
    let sim = sim(1, 96);
    let mm = manager(&sim, AUTO);
    let id = space(&mm, 80);
    (0..1024).for_each(|nth| _ = write(&sim, &mm, id, nth));
    write(&sim, &mm, id, 1024);
    let there: Vec<u64> = (1025..4096).filter(|nth| is_there(&mm, id, *nth)).collect();
    mm.advise(id, range(BASE + 1024 * PAGE, 3072 * PAGE), Advice::UserfaultArm).unwrap();
    (4096..80 * MB / PAGE).for_each(|nth| _ = write(&sim, &mm, id, nth));
    assert!(mm.total(Event::GuessTaken) > 0);
    assert!(!there.is_empty());
    for nth in there {
        assert_eq!(sim.user_load(Va::new(BASE + nth * PAGE), 8).ok(), Some(0), "page {nth}");
    }
}

/// What a program asked for is not looked at as a guess, however little of it is used.
#[test]
fn what_was_asked_for_stays_whole_beside_guesses() {
    let sim = sim(1, 256);
    let mm = manager(&sim, AUTO);
    let id = space(&mm, 8192);
    mm.advise(id, range(BASE, SIZE_2M), Advice::HugePage).unwrap();
    assert_eq!(write(&sim, &mm, id, 7), Some(Outcome::Mapped(Order::SIZE_2M)));
    (1..4096).for_each(|nth| _ = write(&sim, &mm, id, nth * 512));
    assert!(mm.total(Event::GuessTaken) > 0);
    assert!((0..512).all(|nth| is_there(&mm, id, nth)));
}

/// Memory that is populated was asked for, page by page.
#[test]
fn what_is_populated_is_no_guess() {
    let sim = sim(1, 256);
    let mm = manager(&sim, AUTO);
    let id = space(&mm, 8192);
    mm.advise(id, range(BASE, 3 * SIZE_2M), Advice::PopulateWrite).unwrap();
    assert_eq!(mm.idle().get(), 0);
    (3..4096).for_each(|nth| _ = write(&sim, &mm, id, nth * 512));
    assert!(mm.total(Event::GuessTaken) > 0);
    assert!((0..3 * 512).all(|nth| is_there(&mm, id, nth)));
}
#[test]
fn what_comes_beside_a_populated_page_is_a_guess() {
    // The first of the pages that the folio has, and the last.
    for (run, page) in [(128 - RUN, 128), (256, 255)] {
        let sim = sim(1, 64);
        let mm = manager(&sim, AUTO);
        let id = space(&mm, 8);
        mm.advise(id, range(BASE + run * PAGE, RUN * PAGE), Advice::PopulateWrite).unwrap();
        assert_eq!((mm.pages(id).unwrap().get(), mm.idle().get()), (RUN, 0));
        mm.advise(id, range(BASE + page * PAGE, PAGE), Advice::PopulateWrite).unwrap();
        assert_eq!(mm.pages(id).unwrap().get(), RUN + 128, "half of the room");
        assert_eq!(mm.idle().get(), 127, "{page}");
    }
}

/// The manager chooses whether 2 MiB are taken.
fn leaves_alone() -> Policy {
    let mut policy = Policy::BASE_ONLY;
    policy.set(Order::SIZE_2M, Size::Auto).unwrap();
    policy
}
/// So many pages come alone, far away, after as many as `from`.
fn let_time_pass(sim: &Sim, mm: &AnyMm<'_, impl Paging>, id: SpaceId, pages: std::ops::Range<u64>) {
    pages.for_each(|nth| _ = write(sim, mm, id, 100 * 512 + 2 * nth));
}

#[test]
fn a_leaf_is_begun_where_memory_grows_on_either_side() {
    let leaf = |first: u64, run, next| {
        let sim = sim(1, 64);
        let mm = manager(&sim, leaves_alone());
        let id = space(&mm, 8);
        (first..first + run).for_each(|nth| _ = write(&sim, &mm, id, nth));
        write(&sim, &mm, id, next)
    };
    let [page, whole] = [Order::BASE, Order::SIZE_2M].map(|order| Some(Outcome::Mapped(order)));
    assert_eq!(leaf(512 - RUN, RUN, 512), whole);
    assert_eq!(leaf(513 - RUN, RUN - 1, 512), page, "one page less");
    assert_eq!(leaf(512 - RUN, RUN - 1, 512), page, "the last one is missing");
    assert_eq!(leaf(512 - RUN, RUN, 513), page, "one page further on");
    assert_eq!(leaf(1024, RUN, 1023), whole);
    assert_eq!(leaf(1024, RUN - 1, 1023), page);
}

#[test]
fn a_guess_that_still_comes_into_use_stays() {
    let sim = sim(1, 64);
    let mm = manager(&sim, leaves_alone());
    let id = space(&mm, 512);
    (512 - RUN..512).for_each(|nth| _ = write(&sim, &mm, id, nth));
    assert_eq!(write(&sim, &mm, id, 512), Some(Outcome::Mapped(Order::SIZE_2M)));
    let_time_pass(&sim, &mm, id, 0..2100);
    (512..576).for_each(|nth| _ = write(&sim, &mm, id, nth));
    let_time_pass(&sim, &mm, id, 2100..3300);
    assert_eq!(mm.total(Event::GuessTaken), 0, "it is long since it came, and it was used since");
    let_time_pass(&sim, &mm, id, 3300..4400);
    assert_eq!(mm.total(Event::GuessTaken), 0, "nothing was used, but not for long");
    let_time_pass(&sim, &mm, id, 4400..7100);
    assert_eq!(mm.total(Event::GuessTaken), 448);
}

/// What lost a page is split when its turn comes, however much of it is used.
#[test]
fn a_guess_that_lost_a_page_gives_it_back() {
    let sim = sim(1, 64);
    let mm = manager(&sim, leaves_alone());
    let id = space(&mm, 512);
    (512 - RUN..512).for_each(|nth| _ = write(&sim, &mm, id, nth));
    (512..1024).for_each(|nth| _ = write(&sim, &mm, id, nth));
    mm.advise(id, range(BASE + 700 * PAGE, PAGE), Advice::DontNeed).unwrap();
    assert_eq!(mm.anonymous().get(), mm.pages(id).unwrap().get() + 1);
    let_time_pass(&sim, &mm, id, 0..1200);
    assert_eq!(mm.anonymous(), mm.pages(id).unwrap());
}

#[test]
fn a_program_that_asks_gets_the_size_without_a_guess() {
    let sim = sim(1, 64);
    let mm = manager(&sim, leaves_alone());
    let id = space(&mm, 8);
    let write = |va| mm.fault(id, Va::new(va), Access::Write);
    assert_eq!(write(BASE), Outcome::Mapped(Order::BASE), "nothing beside it");
    mm.advise(id, range(BASE, 4 * MB), Advice::HugePage).unwrap();
    assert_eq!(write(BASE + SIZE_2M), Outcome::Mapped(Order::SIZE_2M));
    assert_eq!(mm.idle().get(), 0);
    assert_eq!(write(BASE + 2 * SIZE_2M), Outcome::Mapped(Order::SIZE_2M), "beside memory");
    assert_eq!(mm.idle().get(), 511);
    mm.advise(id, range(BASE, 8 * MB), Advice::NoHugePage).unwrap();
    assert_eq!(write(BASE + 3 * SIZE_2M), Outcome::Mapped(Order::BASE));
    mm.unmap(id, range(BASE + 2 * SIZE_2M, SIZE_2M)).unwrap();
    assert_eq!(mm.idle().get(), 0, "a guess ends with its folio");
}

const ZERO: Option<Outcome> = Some(Outcome::ZeroPage(Order::BASE));

/// Every second page is read and then written to: once that is known a read takes the page, but for
/// one of sixteen.
#[test]
fn a_read_takes_a_page_where_writes_follow() {
    let sim = sim(1, 64);
    let mm = manager(&sim, AUTO);
    let id = space(&mm, 512);
    for nth in 0..16 {
        assert_eq!(read(&sim, &mm, id, 20_000 + 2 * nth), ZERO);
        assert!(write(&sim, &mm, id, 20_000 + 2 * nth).is_some());
    }
    let taken = (0..4096u64).filter(|nth| {
        let page = 30_000 + 2 * nth;
        let is_taken = read(&sim, &mm, id, page) != ZERO;
        assert_eq!(write(&sim, &mm, id, page).is_none(), is_taken, "no second fault");
        assert_eq!(load(&sim, &mm, id, BASE + page * PAGE), page + 1);
        is_taken
    });
    let taken = taken.count();
    assert!((3700..3900).contains(&taken), "{taken}");
}
#[test]
fn a_read_that_no_write_follows_takes_nothing() {
    let sim = sim(1, 64);
    let mm = manager(&sim, AUTO);
    let id = space(&mm, 512);
    // What is written to was not read before, and is not what counts.
    (0..64).for_each(|nth| _ = write(&sim, &mm, id, nth * 16));
    let before = mm.anonymous();
    assert!((0..4096).all(|nth| read(&sim, &mm, id, 2048 + nth * 16) == ZERO));
    assert_eq!(mm.anonymous(), before);
}
/// A space of a program that wrote to what it read so far.
fn writes_follow(sim: &Sim, mm: &AnyMm<'_, impl Paging>) -> SpaceId {
    let id = space(mm, 512);
    for nth in 0..64 {
        read(sim, mm, id, 2 * nth);
        write(sim, mm, id, 2 * nth);
    }
    id
}
/// A program that wrote after its reads and does not any more: little is taken in vain.
#[test]
fn reads_that_take_in_vain_end() {
    let sim = sim(1, 64);
    let mm = manager(&sim, AUTO);
    let id = writes_follow(&sim, &mm);
    let before = mm.anonymous().get();
    let zeros = (0..16384).filter(|nth| read(&sim, &mm, id, 1024 + nth * 7) == ZERO).count();
    let taken = mm.anonymous().get() - before;
    assert!((100..=512).contains(&taken), "{taken}");
    assert!(zeros > 15_800, "{zeros}");
    // They are idle and take the room, which would be for 128 pages.
    let far = 480 * MB / PAGE + 128;
    (far - RUN..far).for_each(|nth| _ = write(&sim, &mm, id, nth));
    let Some(Outcome::Mapped(order)) = write(&sim, &mm, id, far) else { panic!("it faults") };
    assert_eq!(order.get(), 4);
}
/// What may only be read is shown zeros, and so is a page that a program has populated for reading.
#[test]
fn a_read_takes_nothing_where_no_write_can_follow() {
    let sim = sim(1, 64);
    let mm = manager(&sim, AUTO);
    let id = writes_follow(&sim, &mm);
    let only = range(BASE + 64 * MB, MB);
    mm.protect(id, only, foliant::space::Flags::READ).unwrap();
    let pages = mm.pages(id).unwrap();
    assert!((0..32).all(|nth| read(&sim, &mm, id, 64 * MB / PAGE + 2 * nth) == ZERO));
    mm.advise(id, range(BASE + 128 * MB, MB), Advice::PopulateRead).unwrap();
    assert_eq!(mm.pages(id).unwrap(), pages);
}

/// After how many programs that write to `pages` from one that is not the same, and end, the next
/// one gets the last of a run alone.
fn programs_until_one_page(pages: u64) -> usize {
    let sim = sim(1, 64);
    let mm = manager(&sim, AUTO);
    let first = |nth: u64| {
        let id = space(&mm, 1);
        let write = |page| write(&sim, &mm, id, (nth % (256 - RUN) + page) % 256);
        (0..RUN).for_each(|page| _ = write(page));
        let outcome = write(RUN);
        (RUN + 1..pages).for_each(|page| _ = write(page));
        mm.switch(None).unwrap();
        mm.end(id).unwrap();
        outcome
    };
    let programs = (0..2048).take_while(|nth| first(*nth) != Some(Outcome::Mapped(Order::BASE)));
    let programs = programs.count();
    assert_eq!(mm.idle().get(), 0);
    programs
}
/// What programs that end early did not use is found to be lost at their end, so that many small
/// ones come to single pages.
#[test]
fn programs_that_end_early_are_not_guessed_for_for_ever() {
    let programs = programs_until_one_page(RUN + 1);
    assert!((4..64).contains(&programs), "{programs}");
}
/// What they did use is found to be saved, and they go on getting more than they ask for.
#[test]
fn programs_that_use_what_they_get_are_guessed_for() {
    assert_eq!(programs_until_one_page(256), 2048);
}

/// How a program goes through its memory.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// So many pages from one, each the next but so many.
    Stride(u64, u64, u64),
    /// So many at random places.
    Scattered(u64, u64),
    /// So many pages from one, each the next but so many, are read.
    Read(u64, u64, u64),
    /// So many pages from one are dropped.
    Drop(u64, u64),
    /// A child writes so many pages from one, and ends.
    Child(u64, u64),
}

fn ways() -> impl Strategy<Value = Way> {
    let (page, some) = (0..PAGES, 1..600u64);
    let stride =
        prop_oneof![Just(1u64), Just(2), Just(15), Just(16), Just(17), Just(512), 1..2000u64];
    prop_oneof![
        4 => (page.clone(), some.clone(), stride.clone()).prop_map(|(a, n, by)| Way::Stride(a, n, by)),
        3 => (page.clone(), some.clone(), stride).prop_map(|(a, n, by)| Way::Read(a, n, by)),
        2 => (any::<u64>(), some.clone()).prop_map(|(seed, n)| Way::Scattered(seed, n)),
        2 => (page.clone(), 1..4000u64).prop_map(|(a, n)| Way::Drop(a, n)),
        1 => (page, 1..64u64).prop_map(|(a, n)| Way::Child(a, n)),
    ]
}
/// The page that is the `nth` of scattered ones.
fn scattered(seed: u64, nth: u64) -> u64 {
    (seed ^ nth).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}
/// 256 MiB of addresses.
const PAGES: u64 = 256 * MB / PAGE;

/// A program reads a page, whatever is in it.
fn look(sim: &Sim, mm: &AnyMm<'_, impl Paging>, id: SpaceId, nth: u64) {
    load(sim, mm, id, BASE + nth % PAGES * PAGE);
}

/// What a program takes of the kernel's time that goes through its memory in these ways, without
/// children, in ns.
fn time_of(policy: Policy, ways: &[Way]) -> u64 {
    let sim = sim(1, 384);
    let mm = manager(&sim, policy);
    let id = space(&mm, 256);
    let began = sim.kernel_time_total().0;
    let touch = |nth: u64| _ = write(&sim, &mm, id, nth % PAGES);
    for way in ways {
        match *way {
            Way::Stride(from, n, by) => (0..n).for_each(|k| touch(from + k * by)),
            Way::Read(from, n, by) => (0..n).for_each(|k| look(&sim, &mm, id, from + k * by)),
            Way::Scattered(seed, n) => (0..n).for_each(|k| touch(scattered(seed, k))),
            Way::Drop(from, n) => {
                let n = n.min(PAGES - from);
                mm.advise(id, range(BASE + from * PAGE, n * PAGE), Advice::DontNeed).unwrap();
            }
            Way::Child(..) => {}
        }
    }
    sim.kernel_time_total().0 - began
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// The bound of docs/auto.md, "Time against 4 KiB".
    #[test]
    fn whatever_a_program_does_it_takes_little_longer_than_by_pages(
        ways in prop::collection::vec(ways(), 1..24),
    ) {
        let (pages, auto) = (time_of(Policy::BASE_ONLY, &ways), time_of(AUTO, &ways));
        prop_assert!(auto <= pages + pages / 6 + 1_000_000, "{auto} ns, {pages} by pages");
    }
    /// After each way what is idle is within the limit, and memory is what was touched and that,
    /// and what looks missed that saw a part of some folios: a tenth.
    #[test]
    fn whatever_a_program_touches_little_is_idle(ways in prop::collection::vec(ways(), 1..24)) {
        let sim = sim(1, 384);
        let mm = manager(&sim, AUTO);
        let id = space(&mm, 256);
        let (mut touched, mut most) = (BTreeSet::new(), 0);
        let touch = |nth: u64, touched: &mut BTreeSet<u64>| {
            write(&sim, &mm, id, nth % PAGES);
            touched.insert(nth % PAGES);
        };
        for way in ways {
            match way {
                Way::Stride(from, n, by) => (0..n).for_each(|k| touch(from + k * by, &mut touched)),
                Way::Read(from, n, by) => {
                    (0..n).for_each(|k| look(&sim, &mm, id, from + k * by));
                }
                Way::Scattered(seed, n) => {
                    (0..n).for_each(|k| touch(scattered(seed, k), &mut touched));
                }
                Way::Drop(from, n) => {
                    let n = n.min(PAGES - from);
                    mm.advise(id, range(BASE + from * PAGE, n * PAGE), Advice::DontNeed).unwrap();
                    touched.retain(|nth| !(from..from + n).contains(nth));
                }
                Way::Child(from, n) => {
                    let child = mm.fork(id).unwrap();
                    mm.switch(Some(child)).unwrap();
                    (0..n).for_each(|k| _ = write(&sim, &mm, child, (from + k * 7) % PAGES));
                    mm.switch(Some(id)).unwrap();
                    mm.end(child).unwrap();
                }
            }
            most = most.max(mm.anonymous().get());
            prop_assert!(mm.idle().get() <= limit(most) + most, "{:?} {way:?}", mm.idle());
            let least = touched.len() as u64;
            let bound = least + least / 10 + limit(most);
            prop_assert!(mm.pages(id).unwrap().get() <= bound, "{way:?}: {:?}, {least} touched", mm.pages(id));
        }
        for nth in &touched {
            prop_assert_eq!(load(&sim, &mm, id, BASE + nth * PAGE), nth + 1);
        }
    }
}
