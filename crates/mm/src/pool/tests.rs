//! What is possible only from inside: a mark whose reporter has not come to the pool yet.

use super::*;
use crate::Manager;
use crate::fault::Policy;
use crate::manager::Setup;
use crate::table::X86_64;
use foliant_sim::{Config, Sim};
use foliant_units::{Bytes, Frame};

/// A page is marked as broken and its reporter has not yet come to the pool: it is not handed out,
/// nor does another one go in its place that is reserved.
#[test]
fn finding_aq_a_page_with_the_mark_is_not_taken() {
    let sim = Sim::new(Config::seeded(1, Bytes::new(64 << 20), 1)).unwrap();
    let setup = Setup::of(&sim.config().memory, Policy::BASE_ONLY);
    let mm: Manager<'_, _, X86_64<4>> = Manager::new(&sim, &setup).unwrap();
    let (pools, size) = (mm.pools(), Order::SIZE_2M);
    mm.resize_pool(size, 3, Budget::ALL).unwrap();
    let mark_first = || {
        let open = pools.open(pools.pool(size).unwrap());
        let huge = open.pop_any(size).unwrap();
        let head: Frame = huge.head();
        open.shelve(huge);
        drop(open);
        assert!(pools.stock.poison(head));
        head
    };
    let broken = mark_first();
    let Taken::Page(taken) = pools.take(size, Ground::Unreserved) else { panic!("2 are left") };
    assert_ne!(taken.head(), broken);
    pools.put_back(taken, Ground::Unreserved);
    pools.reserve(size, 1).unwrap();
    mark_first();
    assert!(matches!(pools.take(size, Ground::Unreserved), Taken::Nothing), "it is reserved");
    mm.resize_pool(size, 0, Budget::ALL).unwrap();
    let now = mm.pool(size).unwrap();
    assert_eq!((now.broken, now.free_hugepages, now.resv_hugepages), (2, 1, 1));
    pools.retire(broken); // the reporter comes
    assert_eq!(mm.pool(size).unwrap(), now);
    mm.audit(&[]).unwrap();
}

/// The only page is with a fault that may be about the same entry: the next one waits until it is
/// mapped or comes back, made on demand or not.
#[test]
fn finding_bk_a_fault_without_a_page_waits_for_the_one_that_is_out() {
    let sim = Sim::new(Config::seeded(1, Bytes::new(64 << 20), 1)).unwrap();
    let setup = Setup::of(&sim.config().memory, Policy::BASE_ONLY);
    let mm: Manager<'_, _, X86_64<4>> = Manager::new(&sim, &setup).unwrap();
    let (pools, size) = (mm.pools(), Order::SIZE_2M);
    let take = || pools.take(size, Ground::Unreserved);
    for (pages, on_demand) in [(1, 0), (0, 1)] {
        mm.resize_pool(size, pages, Budget::ALL).unwrap();
        pools.set_overcommit(size, on_demand).unwrap();
        let Taken::Page(only) = take() else { panic!("there is one") };
        assert!(matches!(take(), Taken::Wait), "it may come back");
        pools.put_back(only, Ground::Unreserved);
        let Taken::Page(only) = take() else { panic!("it came back") };
        pools.commit(size, Ground::Unreserved);
        assert!(matches!(take(), Taken::Nothing), "it is mapped");
        pools.open(pools.pool(size).unwrap()).lend();
        pools.put_back(only, Ground::Unreserved);
    }
    mm.resize_pool(size, 0, Budget::ALL).unwrap();
    mm.audit(&[]).unwrap();
}

/// Two are reserved and one was lost: a fault that finds none waits for the one that is held.
#[test]
fn finding_bk_a_reservation_without_a_page_waits_for_the_one_that_is_held() {
    let sim = Sim::new(Config::seeded(1, Bytes::new(64 << 20), 1)).unwrap();
    let setup = Setup::of(&sim.config().memory, Policy::BASE_ONLY);
    let mm: Manager<'_, _, X86_64<4>> = Manager::new(&sim, &setup).unwrap();
    let (pools, size) = (mm.pools(), Order::SIZE_2M);
    mm.resize_pool(size, 2, Budget::ALL).unwrap();
    pools.reserve(size, 2).unwrap();
    let head = {
        let open = pools.open(pools.pool(size).unwrap());
        let huge = open.pop_any(size).unwrap();
        let head = huge.head();
        open.shelve(huge);
        head
    };
    assert!(pools.stock.poison(head));
    pools.retire(head);
    let take = || pools.take(size, Ground::Reserved);
    let Taken::Page(only) = take() else { panic!("one is left") };
    assert!(matches!(take(), Taken::Wait), "it may come back");
    pools.put_back(only, Ground::Reserved);
    let Taken::Page(only) = take() else { panic!("it came back") };
    pools.commit(size, Ground::Reserved);
    assert!(matches!(take(), Taken::Nothing), "it is mapped");
    pools.unreserve(size, 1);
    pools.open(pools.pool(size).unwrap()).lend();
    pools.put_back(only, Ground::Unreserved);
    mm.resize_pool(size, 0, Budget::ALL).unwrap();
    mm.audit(&[]).unwrap();
}

/// A page with the mark does not go back to the allocator, and nobody is told that it did.
#[test]
fn finding_bb_a_page_with_the_mark_is_not_dissolved() {
    let sim = Sim::new(Config::seeded(1, Bytes::new(64 << 20), 1)).unwrap();
    let setup = Setup::of(&sim.config().memory, Policy::BASE_ONLY);
    let mm: Manager<'_, _, X86_64<4>> = Manager::new(&sim, &setup).unwrap();
    let (pools, size) = (mm.pools(), Order::SIZE_2M);
    mm.resize_pool(size, 2, Budget::ALL).unwrap();
    let huge = pools.open(pools.pool(size).unwrap()).pop_any(size).unwrap();
    let head = huge.head();
    pools.open(pools.pool(size).unwrap()).shelve(huge);
    assert!(pools.stock.poison(head));
    assert_eq!(pools.dissolve(head), Err(NotDissolved::Broken(head)));
    assert_eq!(mm.pool(size).unwrap().broken, 1);
    mm.audit(&[]).unwrap();
}
