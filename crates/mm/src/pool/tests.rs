//! What is possible only from inside: a mark whose reporter has not come to the pool yet.

use super::shelf::Open;
use super::*;
use crate::Manager;
use crate::fault::Policy;
use crate::frame::Origin;
use crate::manager::Setup;
use crate::memmap::Huge;
use crate::stock::Subpool;
use crate::table::X86_64;
use foliant_sim::{Config, Sim};
use foliant_units::{Bytes, Frame};
use std::boxed::Box;
use std::cell::Cell;

type Mm<'m> = Manager<'m, Sim, X86_64<4>>;
const SIZE: Order = Order::SIZE_2M;

/// Runs `work` with a pool of so many pages. The recount is content afterwards.
fn with_pool(pages: u64, work: impl FnOnce(&Mm<'_>, &Pools<'_, '_, Sim, X86_64<4>>)) {
    let sim = Sim::new(Config::seeded(1, Bytes::new(64 << 20), 1)).unwrap();
    let setup = Setup::of(&sim.config().memory, Policy::BASE_ONLY);
    let mm: Mm<'_> = Manager::new(&sim, &setup).unwrap();
    mm.resize_pool(SIZE, pages, Budget::ALL).unwrap();
    work(&mm, &mm.pools());
    mm.audit(&[]).unwrap();
}
fn open<'a, 'm>(pools: &Pools<'a, 'm, Sim, X86_64<4>>) -> Open<'a, 'm, Sim, X86_64<4>> {
    pools.open(pools.pool(SIZE).unwrap())
}
/// Marks the page as broken that is taken next.
fn mark_first(pools: &Pools<'_, '_, Sim, X86_64<4>>) -> Frame {
    let head = {
        let open = open(pools);
        let huge = open.pop_any(SIZE).unwrap();
        let head = huge.head();
        open.shelve(huge);
        head
    };
    assert!(pools.stock.poison(head));
    head
}

/// A page is marked as broken and its reporter has not yet come to the pool: it is not handed out,
/// nor does another one go in its place that is reserved.
#[test]
fn finding_aq_a_page_with_the_mark_is_not_taken() {
    with_pool(3, |mm, pools| {
        let broken = mark_first(pools);
        let Taken::Page(taken) = pools.take(SIZE, Ground::FREE) else { panic!("2 are left") };
        assert_ne!(taken.head(), broken);
        pools.put_back(taken, Ground::FREE);
        pools.reserve(SIZE, Subpool::NONE, 1).unwrap();
        mark_first(pools);
        assert!(matches!(pools.take(SIZE, Ground::FREE), Taken::Nothing), "it is reserved");
        mm.resize_pool(SIZE, 0, Budget::ALL).unwrap();
        let now = mm.pool(SIZE).unwrap();
        assert_eq!((now.broken, now.free_hugepages, now.resv_hugepages), (2, 1, 1));
        pools.retire(broken); // the reporter comes
        assert_eq!(mm.pool(SIZE).unwrap(), now);
    });
}

/// A page whose last reference went, deep inside of some operation, serves the fault that comes
/// before that operation has collected it.
#[test]
fn a_page_that_came_back_is_taken() {
    with_pool(1, |_, pools| {
        let Taken::Page(huge) = pools.take(SIZE, Ground::FREE) else { panic!("one is free") };
        let head = hand_out(pools, huge);
        assert!(matches!(pools.take(SIZE, Ground::FREE), Taken::Nothing));
        pools.stock.drop_unused(head, SIZE.pages().get());
        let Taken::Page(huge) = pools.take(SIZE, Ground::FREE) else { panic!("it is back") };
        pools.put_back(huge, Ground::FREE);
    });
}
/// As a fault does that maps the page.
fn hand_out(pools: &Pools<'_, '_, Sim, X86_64<4>>, huge: Huge) -> Frame {
    let frames = huge.frames();
    assert!(pools.stock.enlist_huge(frames, frames.pages().get(), Origin::from_words([0; 2])));
    frames.start()
}

/// Does `work`, and `before` on its way to the lock of those that make pages.
#[cfg(feature = "steps")]
fn before_making<R>(
    pools: &Pools<'_, '_, Sim, X86_64<4>>,
    before: impl FnOnce(),
    work: impl FnOnce() -> R,
) -> R {
    use crate::sync::steps::{Touch, watch};
    use core::ops::Range;
    std::thread_local! {
        static RESIZING: Cell<Option<Range<usize>>> = const { Cell::new(None) };
        static BEFORE: Cell<Option<Box<dyn FnOnce()>>> = const { Cell::new(None) };
    }
    fn beside(at: usize, _: Touch) {
        let Some(resizing) = RESIZING.take() else { return };
        match resizing.contains(&at) {
            true => BEFORE.take().into_iter().for_each(|before| before()),
            false => RESIZING.set(Some(resizing)),
        }
    }
    let resizing = &pools.pool(SIZE).unwrap().resizing;
    let at = core::ptr::from_ref(resizing).addr();
    RESIZING.set(Some(at..at + size_of_val(resizing)));
    let before: Box<dyn FnOnce()> = Box::new(before);
    #[allow(unsafe_code)]
    // SAFETY: it is called below or not at all, while what it borrows is there.
    BEFORE.set(Some(unsafe { core::mem::transmute::<Box<dyn FnOnce()>, Box<_>>(before) }));
    watch(Some(beside));
    let done = work();
    watch(None);
    assert!(BEFORE.take().is_none(), "it took the lock");
    done
}
/// A page comes back while a fault is about to make one on demand, and has not begun: it looks
/// again, and makes none.
#[cfg(feature = "steps")]
#[test]
fn a_page_that_comes_back_meanwhile_is_seen() {
    with_pool(1, |mm, pools| {
        pools.set_overcommit(SIZE, 1).unwrap();
        let Taken::Page(huge) = pools.take(SIZE, Ground::FREE) else { panic!("one is free") };
        let head = hand_out(pools, huge);
        let back = || {
            pools.stock.drop_unused(head, SIZE.pages().get());
            _ = pools.collect();
        };
        let taken = before_making(pools, back, || pools.take(SIZE, Ground::FREE));
        assert!(matches!(taken, Taken::Wait));
        let now = mm.pool(SIZE).unwrap();
        assert_eq!((now.free_hugepages, now.surplus_hugepages), (1, 0));
    });
}
/// Pages that are kept for a subpool are nobody else's while more are made for it.
#[cfg(feature = "steps")]
#[test]
fn what_is_kept_stays_kept_on_its_way_into_a_reservation() {
    with_pool(2, |mm, pools| {
        pools.set_overcommit(SIZE, 1).unwrap();
        let id = pools.make_subpool(SIZE, SubpoolLimits { most: 3, least: 2 }).unwrap();
        let meanwhile = || assert_eq!(open(pools).unreserved(), 0);
        before_making(pools, meanwhile, || pools.reserve(SIZE, id.name, 3)).unwrap();
        assert_eq!(pools.subpool(id).map(|now| now.used), Some(3));
        pools.unreserve(SIZE, id.name, 3);
        pools.end_subpool(id);
        let now = mm.pool(SIZE).unwrap();
        assert_eq!((now.nr_hugepages, now.resv_hugepages), (2, 0));
    });
}

/// A page with the mark does not go back to the allocator, and nobody is told that it did.
#[test]
fn finding_bb_a_page_with_the_mark_is_not_dissolved() {
    with_pool(2, |mm, pools| {
        let head = mark_first(pools);
        assert_eq!(pools.dissolve(head), Err(NotDissolved::Broken(head)));
        assert_eq!(mm.pool(SIZE).unwrap().broken, 1);
    });
}

/// Reservations that an ended subpool gave up are on their way while the next one with its number
/// begins: they are nobody's, and come back all the same.
#[test]
fn what_a_subpool_gave_up_is_collected_under_the_next_one() {
    with_pool(2, |mm, pools| {
        let stock = pools.stock;
        let old = stock.new_subpool(SIZE, 3);
        pools.reserve(SIZE, old, 2).unwrap();
        stock.unreserve(SIZE, old, 1);
        let new = stock.new_subpool(SIZE, 3);
        assert!(new != old && new.nth() == old.nth());
        stock.unreserve(SIZE, old, 1);
        assert_eq!(stock.take_unreserved_of(SIZE).count(), 0, "none is the new one's");
        assert_eq!(mm.pool(SIZE).unwrap().resv_hugepages, 0);
    });
}
