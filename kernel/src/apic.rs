//! Which APIC this machine has, and how fast its time-stamp counter runs.
#![allow(unsafe_code)]

use crate::layout;
use crate::port::{in8, out8};
use core::ptr::NonNull;
use foliant_units::Pa;
use foliant_x86::{Apic, Features, TscClock, ticks};

/// Where the registers are after reset, where they are memory.
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

const PIT_HZ: u64 = 1_193_182;
/// Ticks of the interval timer that are measured: 10 ms.
const PIT_TICKS: u16 = 11_932;

/// Measures the time-stamp counter against the interval timer's second channel, which needs no interrupt.
pub(crate) fn measure_clock() -> Option<TscClock> {
    let gate = in8(0x61) & !0b11;
    out8(0x61, gate | 1);
    out8(0x43, 0b1011_0000); // channel 2, both bytes, counts down once
    out8(0x42, PIT_TICKS as u8);
    out8(0x42, (PIT_TICKS >> 8) as u8);
    let start = ticks();
    // The output goes up when the count is done. A timer that never ends is given up after a while.
    while in8(0x61) & 1 << 5 == 0 && ticks() - start < 1 << 36 {
        core::hint::spin_loop();
    }
    let passed = ticks() - start;
    TscClock::new(passed * PIT_HZ / u64::from(PIT_TICKS))
}
