//! The laws of the contract hold on a machine behind a table.
#![allow(unsafe_code)]

use super::sim_table::table;
use crate::machine::{CMachine, Machine};
use foliant_machine::laws::{self, Bench, Right, SCRATCH_FRAMES, WINDOW_PAGES};
use foliant_machine::{Kept, PhysMem, Root, Tlb};
use foliant_sim::{Config, Sim};
use foliant_units::{Bytes, Cpu, Frame, FrameRange, Level, Pa, Va, VaRange};

const ROOT: u64 = 0x10_0000;
const OTHER: u64 = 0x18_0000;
const SCRATCH: u64 = 0x20_0000;
const WINDOW: u64 = 0xffff_ffff_8000_0000;
const SIZE_2M: u64 = WINDOW + (8 << 20);

struct TableBench<'a> {
    sim: &'a Sim,
    machine: CMachine,
}

/// The tables of the window: one frame each, from `ROOT` down.
fn tables_for_window(sim: &Sim) {
    let put = |pa: u64, word: u64| {
        // SAFETY: the test owns all memory of the machine.
        unsafe { sim.store(Pa::new(pa), word) }
    };
    for level in [3, 2, 1] {
        let table = ROOT + (3 - level) * 4096;
        put(table + (WINDOW >> (12 + 9 * level) & 511) * 8, (table + 4096) | 0b111);
    }
    put(OTHER + 511 * 8, (ROOT + 4096) | 0b111);
    for cpu in 0..foliant_machine::Cpus::count(sim) {
        let root = Root { user: Pa::new(ROOT), kernel: Pa::new(ROOT) };
        sim.on(Cpu(cpu as u16), || sim.activate(root, Kept::Nothing));
    }
}

impl Bench for TableBench<'_> {
    type Machine = CMachine;

    fn machine(&self) -> &CMachine {
        &self.machine
    }
    fn scratch(&self) -> FrameRange {
        FrameRange::new(Pa::new(SCRATCH).frame(), SCRATCH_FRAMES).unwrap()
    }
    fn root(&self) -> Root {
        Root { user: Pa::new(ROOT), kernel: Pa::new(ROOT) }
    }
    fn other_root(&self) -> Root {
        Root { user: Pa::new(OTHER), kernel: Pa::new(ROOT) }
    }
    fn window(&self) -> VaRange {
        VaRange::sized(Va::new(WINDOW), WINDOW_PAGES.bytes()).unwrap()
    }
    fn word(&self, page: Va) -> Pa {
        Pa::new(ROOT + 3 * 4096 + (page.get() >> 12 & 511) * 8)
    }
    fn size_2m(&self) -> (Va, Pa) {
        (Va::new(SIZE_2M), Pa::new(ROOT + 2 * 4096 + (SIZE_2M >> 21 & 511) * 8))
    }
    fn leaf(&self, level: Level, frame: Frame, right: Right) -> u64 {
        let large = u64::from(level > Level::BASE) << 7;
        frame.pa().get() | 1 | u64::from(right == Right::Writable) << 1 | large
    }
    fn table(&self, frame: Frame) -> u64 {
        frame.pa().get() | 0b111
    }
    fn accessed(&self, leaf: u64) -> Option<bool> {
        Some(leaf >> 5 & 1 == 1)
    }
    fn dirty(&self, leaf: u64) -> Option<bool> {
        Some(leaf >> 6 & 1 == 1)
    }
    fn on(&self, cpu: Cpu, work: &(dyn Fn() + Sync)) {
        self.sim.on(cpu, work);
    }
    fn together(&self, work: &(dyn Fn(Cpu) + Sync)) {
        self.sim.parallel(foliant_machine::Cpus::count(self.sim), work);
    }
}

fn hold(sim: &Sim, table: &Machine, what: &str) {
    tables_for_window(sim);
    // SAFETY: the functions lead to a simulated machine, which keeps the contract.
    let machine = unsafe { CMachine::checked(table) }.unwrap();
    let tally = laws::run(&TableBench { sim, machine }, &mut |name, verdict| {
        if let Err(seen) = verdict {
            panic!("{what}: {name}: {seen}");
        }
    });
    assert_eq!((tally.held as usize, tally.broken), (laws::COUNT, 0));
    assert_eq!(sim.finish(), [], "{what}");
}

#[test]
fn the_laws_hold_behind_a_table() {
    for cpus in [1, 3, 16] {
        let sim = Sim::new(Config::seeded(cpus, Bytes::new(16 << 20), 70 + cpus as u64)).unwrap();
        hold(&sim, &table(&sim), &format!("{cpus} CPUs"));
    }
}

/// What stands in the place of functions that are null keeps the laws too: words, clears and copies
/// by the direct map. The simulator's checkers see nothing of it and are off.
#[test]
fn the_laws_hold_where_the_optional_functions_are_null() {
    for cpus in [1, 4] {
        let sim = Sim::new(Config::free(cpus, Bytes::new(16 << 20))).unwrap();
        let table = Machine {
            load: None,
            store: None,
            compare_exchange: None,
            clear: None,
            copy: None,
            owned: None,
            retired: None,
            refuse: None,
            ..table(&sim)
        };
        hold(&sim, &table, &format!("{cpus} CPUs by the direct map"));
    }
}

/// Where the kernel's accesses are the processor's own, they are made at the very address.
#[test]
fn kernel_words_are_accessed_where_they_are() {
    let sim = Sim::new(Config::free(1, Bytes::new(1 << 20))).unwrap();
    let table = Machine {
        kernel_load: None,
        kernel_store: None,
        kernel_compare_exchange: None,
        ..table(&sim)
    };
    // SAFETY: as above.
    let machine = unsafe { CMachine::checked(&table) }.unwrap();
    let words = [const { core::sync::atomic::AtomicU64::new(0) }; 3];
    let va = |nth: usize| Va::new((&raw const words[nth]).expose_provenance() as u64);
    use foliant_machine::KernelVa;
    // SAFETY: a word of this test.
    assert_eq!(unsafe { machine.kernel_store(va(1), 5) }, Ok(()));
    // SAFETY: the same.
    assert_eq!(unsafe { machine.kernel_load(va(1)) }, Ok(5));
    // SAFETY: the same.
    assert_eq!(unsafe { machine.kernel_compare_exchange(va(1), 4, 6) }, Ok(Err(5)));
    // SAFETY: the same.
    assert_eq!(unsafe { machine.kernel_compare_exchange(va(1), 5, 6) }, Ok(Ok(5)));
    // SAFETY: two words of this test.
    assert_eq!(unsafe { machine.kernel_fill(va(1), Bytes::new(8), 2, 9) }, Ok(()));
    let now = words.map(core::sync::atomic::AtomicU64::into_inner);
    assert_eq!(now, [0, 9, 9]);
}
