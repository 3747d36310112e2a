//! The kernel's verdict, as the exit status of the emulator.

use crate::port::{disable, enable_and_halt, out32};

const DEVICE: u16 = 0xf4;
/// Added to every code, so that none looks like a reset.
const BASE: u32 = 0x10;

/// How the kernel ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Code {
    /// Everything that was asked for was done.
    Passed = 0,
    /// A check failed.
    Failed = 1,
    /// The command line asked for something unknown.
    Usage = 2,
    /// A panic.
    Panic = 101,
}

/// Ends the emulator. Where there is none, the CPU halts.
pub(crate) fn with(code: Code) -> ! {
    out32(DEVICE, BASE + code as u32);
    loop {
        disable();
        enable_and_halt();
    }
}
