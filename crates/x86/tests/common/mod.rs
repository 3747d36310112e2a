//! A machine in a program: no privileges, one CPU, the program's own addresses as direct map.

use core::cell::Cell;
use foliant_units::{Cpu, Va};
use foliant_x86::{Apic, ApicId, Clear, ClearPlan, Features, Host, Line, Settings, TscClock, X86};

thread_local! {
    /// How often the program was asked to yield.
    pub(crate) static YIELDS: Cell<u64> = const { Cell::new(0) };
}

/// A program as the kernel around the machine.
pub(crate) struct Program;

impl Host for Program {
    fn me(&self) -> Cpu {
        Cpu(0)
    }
    fn pinned<R>(&self, work: impl FnOnce(Cpu) -> R) -> R {
        work(Cpu(0))
    }
    fn yield_now(&self) {
        YIELDS.set(YIELDS.get() + 1);
    }
}

/// Settings that are accepted.
pub(crate) fn settings() -> Settings<'static> {
    Settings {
        direct_map: Va::new(0),
        vector: 0xf0,
        apic: Apic::X2,
        apic_ids: &[ApicId(0)],
        clock: TscClock::new(2_000_000_000).unwrap(),
        clear: ClearPlan::only(Clear::StoreQ),
        features: Features { x2apic: true, ..Features::BASELINE },
    }
}

/// A machine of them.
pub(crate) fn machine<'k>(settings: Settings<'k>, lines: &'k [Line]) -> X86<'k, Program> {
    X86::new(Program, settings, lines).unwrap()
}
