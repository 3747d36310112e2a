//! A guest on two CPUs of the simulated machine, whose checkers see a stale translation.

use foliant_sim::{Config, Sim};
use foliant_table::claim::Claim;
use foliant_table::machine::{Caching, Kept, Owner, PhysMem, Root, Scope, Tlb, Witness};
use foliant_table::units::{Bytes, Cpu, CpuSet, Frame, FrameRange, Order, Pages, Va, VaRange};
use outside_tables::Guest;

#[test]
fn a_guest_gets_memory_and_loses_it() {
    let machine = Sim::new(Config::seeded(2, Bytes::new(64 << 20), 1)).unwrap();
    let memory = machine.config().memory[0];
    // SAFETY: nobody else has the machine's memory.
    let mut frames = memory.iter().map(|frame| unsafe { Claim::from_raw(frame, Order::BASE) });
    // SAFETY: the guest gets memory that is its own.
    let guest = unsafe { Guest::new(&machine, frames.next().unwrap(), CpuSet::first(2)) };

    let ram = FrameRange::new(Frame::new(0x1000), Pages::new(2500)).unwrap();
    machine.owned(ram, Owner::Claimed);
    // SAFETY: as above.
    unsafe { machine.clear(ram.start().pa(), ram.pages().bytes(), Caching::NonTemporal) };
    machine.owned(ram, Owner::User);
    guest.give(Va::new(0), ram, || frames.next()).unwrap();

    let Scope::Space(root) = guest.scope() else { panic!("a guest is a space") };
    machine.on(Cpu::new(1), || {
        machine.activate(Root { user: root, kernel: root }, Kept::Nothing);
        machine.user_store(Va::new(0x5000), 8, 42).unwrap();
    });
    let mut tables = 0;
    let range = VaRange::sized(Va::new(0), ram.pages().bytes()).unwrap();
    guest.take(range, |_| tables += 1).unwrap();
    assert_eq!(tables, 3);
    machine.owned(ram, Owner::Free);
    assert!(machine.on(Cpu::new(1), || machine.user_load(Va::new(0x5000), 8)).is_err());
    assert_eq!(machine.violations(), []);
}
