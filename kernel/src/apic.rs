//! Which APIC this machine has, and which interrupts it sends.

use crate::layout;
use core::ptr::NonNull;
use foliant_units::Pa;
use foliant_x86::{Apic, Features};

/// The interrupt of a shootdown.
pub(crate) const SHOOTDOWN: u8 = 0xf0;
/// The interrupt that ends a halt.
pub(crate) const WAKE: u8 = 0xf1;
/// The interrupt of the storm.
pub(crate) const STORM: u8 = 0xf2;

/// The interrupt of the timer.
pub(crate) const TICK: u8 = 0xf3;

/// Where the registers are after reset, and are put again, where they are memory.
pub(crate) const REGISTERS: Pa = Pa::new(0xfee0_0000);

/// Whether x2APIC mode may be used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Where the CPU has it.
    Newest,
    /// Registers in memory, for testing them.
    Memory,
}

/// How APIC registers are reached. The window's page is mapped before the first use.
pub(crate) fn choose(features: &Features, wish: Wish) -> Apic {
    if features.x2apic && wish == Wish::Newest {
        Apic::X2
    } else {
        Apic::X1(NonNull::new(layout::APIC.get() as *mut u8).expect("the window is not at 0"))
    }
}

/// The same before that page is mapped: on the tables of `boot.s`, which reach everything.
pub(crate) fn before_the_window(apic: Apic) -> Apic {
    match apic {
        Apic::X2 => Apic::X2,
        Apic::X1(_) => Apic::X1(NonNull::new(layout::direct(REGISTERS)).expect("it is not at 0")),
    }
}
