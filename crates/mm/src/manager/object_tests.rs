//! An object that three callers let go of at once.

use super::Manager;
use crate::fault::Policy;
use crate::manager::Setup;
use crate::object::ObjectRequest;
use crate::space::{Flags, MapRequest, Place, SpaceId};
use crate::table::X86_64;
use foliant_sim::{Config, Sim};
use foliant_units::{Bytes, Cpu, Pages, Va};
use std::thread;

/// A fault that found its area in a section finds the object there to the end of it, though another
/// CPU has unmapped the area meanwhile, and a third one taken the object's name.
#[test]
fn finding_ef_an_object_is_there_for_a_fault_that_found_its_area() {
    let sim = Sim::new(Config::free(3, Bytes::new(32 << 20))).unwrap();
    let setup = Setup::of(&sim.config().memory, Policy::BASE_ONLY);
    let mm: Manager<'_, Sim, X86_64<4>> = Manager::new(&sim, &setup).unwrap();
    let id = mm.create(None).unwrap();
    let request = ObjectRequest { pages: Pages::new(4), ..ObjectRequest::default() };
    let object = mm.create_object(&request).unwrap();
    let request = MapRequest {
        place: Place::Anywhere,
        bytes: Bytes::new(4 * 4096),
        flags: Flags::READ_WRITE.with(Flags::SHARED),
        tag: 0,
    };
    // Nothing is touched, so the unmap has no table to wait for.
    let range = mm.map_object(id, &request, (object, Pages::new(0))).unwrap();
    let on = |cpu, act: &(dyn Fn() + Sync)| {
        sim.on(Cpu(cpu), || {
            mm.online();
            act();
        });
    };
    let is_listed = || {
        let there = object.space().pin(&mm.stock).expect("it is there");
        there.member.first_attachment(&mm.stock).is_some()
    };
    let found = || SpaceId::found(&mm.stock, object.frame()).is_some();
    thread::scope(|scope| {
        sim.on(Cpu(0), || {
            let reading = mm.stock.reading();
            scope.spawn(|| on(1, &|| mm.unmap(id, range).unwrap()));
            while is_listed() {
                thread::yield_now();
            }
            scope.spawn(|| on(2, &|| mm.end_object(object).unwrap()));
            while object.peek(&mm.stock).is_some() {
                thread::yield_now();
            }
            for _ in 0..1000 {
                thread::yield_now();
                assert!(found(), "the section in which the area was found is not over");
            }
            drop(reading);
        });
    });
    assert!(!found(), "nobody holds it any more");
    assert_eq!(mm.area(id, Va::new(range.start().get())), None);
    mm.end(id).unwrap();
}
