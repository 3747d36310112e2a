//! What is possible only from inside: a mark whose reporter has not come to the pool yet.

use super::shelf::Open;
use super::*;
use crate::Manager;
use crate::fault::Policy;
use crate::manager::Setup;
use crate::table::X86_64;
use foliant_sim::{Config, Sim};
use foliant_units::{Bytes, Frame};

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
        let Taken::Page(taken) = pools.take(SIZE, Ground::Unreserved) else { panic!("2 are left") };
        assert_ne!(taken.head(), broken);
        pools.put_back(taken, Ground::Unreserved);
        pools.reserve(SIZE, 1).unwrap();
        mark_first(pools);
        assert!(matches!(pools.take(SIZE, Ground::Unreserved), Taken::Nothing), "it is reserved");
        mm.resize_pool(SIZE, 0, Budget::ALL).unwrap();
        let now = mm.pool(SIZE).unwrap();
        assert_eq!((now.broken, now.free_hugepages, now.resv_hugepages), (2, 1, 1));
        pools.retire(broken); // the reporter comes
        assert_eq!(mm.pool(SIZE).unwrap(), now);
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
