//! What is possible only from inside: a folio that became pages a moment ago.

use super::empty::Cut;
use super::{CompactRequest, CompactState, Compactor, Effort, End};
use crate::Manager;
use crate::fault::{Access, Orders, Policy};
use crate::manager::Setup;
use crate::space::{Flags, MapRequest, Place};
use crate::split::MoveGrain;
use crate::sync::{Ordering, Outside};
use crate::table::X86_64;
use foliant_sim::{Config, Sim};
use foliant_units::{Bytes, Order, Va, VaRange};

/// Another CPU split the folio for which there was no block: it is pages, as was wanted. One that
/// is pinned stays, and does not end the window.
#[test]
fn finding_aw_a_folio_that_another_cpu_has_split_is_cut() {
    let sim = Sim::new(Config::seeded(1, Bytes::new(64 << 20), 1)).unwrap();
    let setup = Setup::of(&sim.config().memory, Policy::BASE_ONLY);
    let mm: Manager<'_, _, X86_64<4>> = Manager::new(&sim, &setup).unwrap();
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    let va = Va::new(0x10_0000_0000);
    let (place, bytes) = (Place::NoReplace(va), Bytes::new(1 << 20));
    mm.map(id, &MapRequest { place, bytes, flags: Flags::READ_WRITE, tag: 0 }).unwrap();
    mm.fault(id, va, Access::Write);
    let page = mm.frame_at(id, va).unwrap();
    assert_eq!(mm.compactor(MoveGrain::ONE).cut(page), Cut::Pages);
    mm.set_policy(Policy::always(Orders::of(Order::new(4).unwrap())));
    let other = va.add(64 << 10);
    mm.fault(id, other, Access::Write);
    let folio = mm.frame_at(id, other).unwrap();
    let pin = mm.reference(folio).unwrap();
    assert_eq!(mm.compactor(MoveGrain::ONE).cut(folio), Cut::Stayed);
    drop(pin);
    assert_eq!(mm.compactor(MoveGrain::ONE).cut(folio), Cut::Pages);
}

/// A request that was spent is where the next one begins; behind one that went through everything
/// it is the next window.
#[test]
fn a_spent_request_is_taken_up_where_it_ended() {
    let sim = Sim::new(Config::seeded(1, Bytes::new(16 << 20), 1)).unwrap();
    let setup = Setup::of(&sim.config().memory, Policy::BASE_ONLY);
    let mm: Manager<'_, _, X86_64<4>> = Manager::new(&sim, &setup).unwrap();
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    let va = Va::new(0x10_0000_0000);
    let (place, bytes) = (Place::NoReplace(va), Bytes::new(4 << 20));
    mm.map(id, &MapRequest { place, bytes, flags: Flags::READ_WRITE, tag: 0 }).unwrap();
    let pages = || (0..1024).map(|nth| va.add(nth * 4096));
    pages().for_each(|va| _ = mm.fault(id, va, Access::Write));
    pages().step_by(2).for_each(|va| {
        mm.unmap(id, VaRange::sized(va, Bytes::new(4096)).unwrap()).unwrap();
    });
    let state = CompactState::default();
    let run = |effort| {
        let compactor = Compactor { state: &state, ..mm.compactor(MoveGrain::ONE) };
        let request = CompactRequest { effort, ..CompactRequest::ALL };
        let (done, _) = compactor.run(&request, &mut [], &mut Outside::at_the_face());
        (done.end, state.cursor.load(Ordering::Relaxed))
    };
    assert_eq!(run(Effort { folios: 3, ..Effort::ALL }), (End::Spent, 0));
    assert_eq!(run(Effort::ALL), (End::Through, 1));
}
