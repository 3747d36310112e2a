//! Two CPUs at one address, one of them in the middle of its fault.

mod common;
use common::*;
use foliant::fault::Orders;
use foliant::{Access, Outcome, Policy};
use foliant_units::{Order, Va};

#[test]
fn a_read_that_meets_a_new_large_leaf_is_not_out_of_memory() {
    let (machine, mm) = meddled(2, 64, Policy::always(Orders::of(Order::MEGA)));
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(mm, id, BASE, 4 * MB);
    // The reader has just cleared a page table when the writer maps the 2 MiB around it.
    machine.after_clearing(4096, move || {
        machine.sim.on(cpu(1), || {
            mm.online();
            mm.switch(Some(id)).unwrap();
            let outcome = mm.fault(id, Va::new(BASE), Access::Write);
            assert_eq!(outcome, Outcome::Mapped(Order::MEGA));
        });
    });
    assert_eq!(mm.fault(id, Va::new(BASE), Access::Read), Outcome::Spurious);
    for n in 0..2 {
        machine.sim.on(cpu(n), || mm.switch(None).unwrap());
    }
    mm.end(id).unwrap();
    mm.audit(&[]).unwrap();
}
