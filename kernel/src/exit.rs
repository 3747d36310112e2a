//! The kernel's verdict, as the exit status of the emulator.

use crate::port::{disable, out8, out32, triple_fault};
use crate::say;
use core::fmt;

const DEVICE: u16 = 0xf4;
/// Added to every code, so that none looks like a reset.
const BASE: u32 = 0x10;
/// The keyboard controller, and what makes it reset the machine.
const KEYBOARD: u16 = 0x64;
const RESET: u8 = 0xfe;

/// How the kernel ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Code {
    /// Everything that was asked for was done.
    Passed = 0,
    /// A check failed.
    Failed = 1,
    /// The command line asked for something unknown.
    Usage = 2,
    /// The machine, or what its loader says of it, is none that the kernel can run on. `boot.s` has
    /// the number too.
    Unfit = 3,
    /// A panic.
    Panic = 101,
}

/// Ends the emulator. Where nobody takes the verdict it is said, and the machine is reset, which
/// ends the emulators that know no other way.
pub(crate) fn with(code: Code) -> ! {
    out32(DEVICE, BASE + code as u32);
    disable();
    say!("exit code {}; no debug port took it", code as u32);
    out8(KEYBOARD, RESET);
    triple_fault()
}

/// Ends the kernel where it cannot run, and says why.
pub(crate) fn unfit(why: impl fmt::Display) -> ! {
    say!("foliant cannot run here: {why}");
    with(Code::Unfit)
}
