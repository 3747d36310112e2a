//! Memory that two programs share: an object, mapped at two addresses, in one folio of 2 MiB.
//!
//! ```text
//!   database   0x10_0000_0000 ─┐
//!                              ├▶ object, 4 MiB ◀─ read by the kernel through its direct map
//!   worker     0x20_0000_0000 ─┘
//! ```
//!
//! Run it with `cargo run --example shared`.

use foliant::fault::Orders;
use foliant::manager::Setup;
use foliant::object::ObjectRequest;
use foliant::space::{Flags, MapRequest, ObjectId, Place, SpaceId};
use foliant::split::SplitInto;
use foliant::table::X86_64;
use foliant::{Access, Event, Manager, Outcome, Policy};
use foliant_sim::{Config, Sim};
use foliant_units::{Bytes, Cpu, Order, Pages, Va};

type Memory<'m> = Manager<'m, Sim, X86_64<4>>;

/// Maps all of an object at `at`.
fn map(memory: &Memory<'_>, space: SpaceId, object: ObjectId, at: u64) {
    let request = MapRequest {
        place: Place::Fixed(Va::new(at)),
        bytes: Bytes::new(4 << 20),
        flags: Flags::READ_WRITE.with(Flags::SHARED),
        tag: 0,
    };
    memory.map_object(space, &request, (object, Pages::new(0))).expect("there is room");
}

fn main() {
    let sim = Sim::new(Config::seeded(2, Bytes::new(64 << 20), 1)).expect("a machine");
    let setup = Setup::of(&sim.config().memory, Policy::BASE_ONLY);
    let memory: Memory<'_> = Manager::new(&sim, &setup).expect("enough memory");
    memory.set_object_policy(Policy::always(Orders::of(Order::SIZE_2M)));
    let object = memory
        .create_object(&ObjectRequest { pages: Pages::new(1024), ..ObjectRequest::default() })
        .expect("memory for its records");
    let [database, worker] = [(); 2].map(|()| memory.create(None).expect("memory for its records"));
    map(&memory, database, object, 0x10_0000_0000);
    map(&memory, worker, object, 0x20_0000_0000);

    // The database writes. One fault brings 2 MiB, for itself and for the object.
    sim.on(Cpu(0), || {
        memory.switch(Some(database)).expect("it lives");
        let va = Va::new(0x10_0000_1000);
        let outcome = memory.fault(database, va, Access::Write);
        assert_eq!(outcome, Outcome::Mapped(Order::SIZE_2M));
        sim.user_store(va, 8, 42).expect("it is mapped");
    });
    // The worker reads what was written, at its own address.
    sim.on(Cpu(1), || {
        memory.online();
        memory.switch(Some(worker)).expect("it lives");
        let va = Va::new(0x20_0000_1000);
        assert_eq!(memory.fault(worker, va, Access::Read), Outcome::Mapped(Order::SIZE_2M));
        assert_eq!(sim.user_load(va, 8), Ok(42));
    });
    assert_eq!(memory.object_pages(object), Some(Pages::new(512)));

    // A split reaches both programs, with one shootdown for each that runs.
    let before = memory.total(Event::Shootdown);
    memory.split(database, Va::new(0x10_0000_0000), SplitInto::BASE).expect("nobody else uses it");
    println!("split: {} shootdowns", memory.total(Event::Shootdown) - before);

    // What is dropped is gone for both; what comes then is zeros.
    memory.punch_object(object, Pages::new(1), Pages::new(2)).expect("it lives");
    sim.on(Cpu(1), || {
        let va = Va::new(0x20_0000_1000);
        assert!(sim.user_load(va, 8).is_err(), "no translation is left");
        memory.fault(worker, va, Access::Read);
        assert_eq!(sim.user_load(va, 8), Ok(0));
    });

    // The object is there until its name is gone and nobody maps it.
    memory.end_object(object).expect("it lives");
    for (cpu, space) in [database, worker].into_iter().enumerate() {
        sim.on(Cpu(cpu as u16), || memory.switch(None).expect("nothing is named"));
        memory.end(space).expect("no CPU runs it");
    }
    assert_eq!(memory.anonymous(), Pages::new(0));
    assert!(sim.finish().is_empty(), "no CPU saw what it should not");
    println!("all memory is free again");
}
