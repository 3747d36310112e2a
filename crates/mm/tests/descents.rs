//! How often an operation goes down from the root of a space's tables: what each entry would cost
//! if each were looked up.

use crate::common::*;
use foliant::fault::Orders;
use foliant::space::{Advice, Flags, Move, SpaceId};
use foliant::{Access, Outcome, Policy};
use foliant_machine::{Around, Kept, PhysMem, Root, Tlb};
use foliant_sim::Sim;
use foliant_units::{Bytes, Pa, Va};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// A machine that counts reads of the top table that it runs.
struct Counting {
    sim: Sim,
    root: AtomicU64,
    reads: AtomicU64,
}

simulated!(Counting);
#[allow(unsafe_code)]
// SAFETY: all calls go to the simulator as they are.
unsafe impl Around for Counting {
    type Inner = Sim;

    fn inner(&self) -> &Sim {
        &self.sim
    }
    fn activate(&self, root: Root, kept: Kept) {
        self.root.store(root.user.get(), SeqCst);
        self.sim.activate(root, kept);
    }
    unsafe fn load(&self, pa: Pa) -> u64 {
        let is_it = pa.frame().pa().get() == self.root.load(SeqCst);
        self.reads.fetch_add(u64::from(is_it), SeqCst);
        // SAFETY: the caller's promise is passed on.
        unsafe { self.sim.load(pa) }
    }
}

fn counting(megabytes: u64) -> Counting {
    Counting { sim: sim(1, megabytes), root: AtomicU64::new(u64::MAX), reads: AtomicU64::new(0) }
}

impl Counting {
    /// How often `work` goes down from the root.
    fn descents<R>(&self, work: impl FnOnce() -> R) -> u64 {
        let before = self.reads.load(SeqCst);
        work();
        self.reads.load(SeqCst) - before
    }
}

/// A space that runs.
fn running(mm: &Mm<'_>) -> SpaceId {
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    id
}

/// A look finds the table, whatever the size, and it is locked where it was found. Where the face
/// clears a block the fault begins anew.
#[test]
fn a_fault_goes_down_once() {
    for (n, times) in [(0, 1), (2, 1), (4, 1), (8, 2)] {
        let machine = counting(64);
        let mm = manager_on(&machine, &machine.sim.config().memory, only(n));
        let id = running(&mm);
        area(&mm, id, BASE, 8 * MB);
        mm.fault(id, Va::new(BASE), Access::Write);
        let next = Va::new(BASE + (PAGE << n));
        let down = machine.descents(|| {
            assert_eq!(mm.fault(id, next, Access::Write), Outcome::Mapped(order(n)));
        });
        assert_eq!(down, times, "order {n}");
        let down = machine.descents(|| mm.fault(id, next, Access::Write));
        assert!(down <= 1, "order {n}, a second time: {down}");
    }
}

/// A move looks no further when it has found every entry, however many other places there are in
/// the space to which something was moved.
#[test]
fn finding_bz_a_move_ends_when_it_has_found_all_entries() {
    let descents = |moves: u64| {
        let machine = counting(64);
        let mm = manager_on(&machine, &machine.sim.config().memory, Policy::BASE_ONLY);
        let id = running(&mm);
        area(&mm, id, BASE, 8 * MB);
        for nth in 0..moves {
            let from = row(nth * 8, 1);
            mm.fault(id, from.start(), Access::Write);
            let to = Move::To(Va::new(BASE + (1 << 30) + nth * PAGE));
            mm.remap(id, from, Bytes::new(PAGE), to).unwrap();
        }
        mm.fault(id, Va::new(BASE + 7 * MB), Access::Write);
        let frame = mm.frame_at(id, Va::new(BASE + 7 * MB)).unwrap();
        machine.descents(|| _ = mm.relocate(frame).unwrap())
    };
    assert_eq!(descents(40), descents(0));
}

/// Nor does it look at the other spaces of the fork tree, however many there are: neither when it
/// takes the entries nor when it puts them.
#[cfg(feature = "steps")]
#[test]
fn a_move_ends_in_the_space_that_has_all_entries() {
    let steps = |children: u64| {
        let machine = counting(64);
        let mm = manager_on(&machine, &machine.sim.config().memory, Policy::BASE_ONLY);
        let id = running(&mm);
        let page = area(&mm, id, BASE, PAGE);
        mm.fault(id, page.start(), Access::Write);
        for _ in 0..children {
            let child = mm.fork(id).unwrap();
            mm.advise(child, page, Advice::DontNeed).unwrap();
        }
        let frame = mm.frame_at(id, page.start()).unwrap();
        let before = foliant::steps::taken();
        mm.relocate(frame).unwrap();
        foliant::steps::taken() - before
    };
    assert_eq!(steps(20), steps(1));
}

/// Each table is gone down to once, to protect what is in it and to take it out. What is above
/// takes a few more.
#[test]
fn a_range_goes_down_once_for_each_table() {
    const TABLES: u64 = 16;
    let machine = counting(256);
    let policy = Policy::always(Orders::of(order(4)));
    let mm = manager_on(&machine, &machine.sim.config().memory, policy);
    let id = running(&mm);
    let whole = area(&mm, id, BASE, TABLES * SIZE_2M);
    for block in 0..TABLES * 32 {
        mm.fault(id, Va::new(BASE + block * 16 * PAGE), Access::Write);
    }
    let protect = machine.descents(|| mm.protect(id, whole, Flags::READ).unwrap());
    assert!(protect <= TABLES, "protect: {protect} for {TABLES} tables");
    let unmap = machine.descents(|| mm.unmap(id, whole).unwrap());
    assert!(unmap <= TABLES + 2, "unmap: {unmap} for {TABLES} tables, and those above");
}

/// What four CPUs do in their space costs about the same on a machine of 1,024, and in a space of
/// many areas: faults, and drops and unmaps with their shootdowns. (An unmap that frees a table
/// waits for the readers of all CPUs.)
#[cfg(feature = "steps")]
#[test]
fn faults_and_unmaps_cost_the_same_on_a_thousand_cpus_and_among_many_areas() {
    let steps = |cpus: usize, areas: u64| {
        let machine = Counting { sim: sim(cpus, 128), ..counting(1) };
        let mm: AuditedMm<'_> =
            manager_on(&machine, &machine.sim.config().memory, Policy::BASE_ONLY);
        let id = mm.create(None).unwrap();
        for nth in 0..areas {
            area(&mm, id, BASE + (1 << 30) + nth * 2 * PAGE, PAGE);
        }
        area(&mm, id, BASE, 4 * MB);
        for n in 0..4 {
            machine.sim.on(cpu(n), || {
                mm.online();
                mm.switch(Some(id)).unwrap();
            });
        }
        let write = |nth: u64| _ = mm.fault(id, page(nth).start(), Access::Write);
        (0..64).for_each(write);
        mm.unmap(id, page(60)).unwrap();
        let taken = |work: &dyn Fn()| {
            let before = foliant::steps::taken();
            work();
            foliant::steps::taken() - before
        };
        machine.sim.on(cpu(0), || {
            [
                taken(&|| write(100)),
                taken(&|| write(100)),
                taken(&|| mm.advise(id, page(10), Advice::DontNeed).unwrap()),
                taken(&|| mm.unmap(id, page(14)).unwrap()),
            ]
        })
    };
    let few = steps(4, 10);
    for (cpus, areas) in [(1024, 10), (4, 5_000)] {
        let many = steps(cpus, areas);
        for (nth, (few, many)) in few.into_iter().zip(many).enumerate() {
            assert!(many * 5 <= few * 6, "{nth}: {many} steps of {cpus} CPUs, {few} of 4");
        }
    }
}
