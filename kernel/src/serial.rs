//! The serial line: what the kernel says and, for the shell, hears.
//!
//! **Locking**: one lock per line of text, held with interrupts out, so a handler never waits for
//! its own CPU. Whoever waits, for the lock or for the line to take a byte, carries out what other
//! CPUs ask (`lock`).

#![allow(unsafe_code)]

use crate::lock::Served;
use crate::port::{in8, out8};
use crate::{giving_up, memory};
use core::fmt::{self, Write};

const PORT: u16 = 0x3f8;
const STATUS: u16 = PORT + 5;
const CAN_SEND: u8 = 1 << 5;
const HAS_BYTE: u8 = 1 << 0;

/// Looks at a line that takes no byte before the byte is dropped: a second's worth, and nothing
/// that hangs.
const LOOKS: u32 = 1 << 20;

static LINE: Served<Line> = Served::new(Line);

struct Line;

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if byte == b'\n' {
                send(b'\r');
            }
            send(byte);
        }
        Ok(())
    }
}

fn send(byte: u8) {
    for _ in 0..LOOKS {
        if in8(STATUS) & CAN_SEND != 0 {
            break;
        }
        memory::serve();
    }
    out8(PORT, byte);
}

/// Sets the line up: eight bits, no interrupts yet. Its queue stays off: switching it on would drop
/// what was typed before.
pub(crate) fn start() {
    out8(PORT + 1, 0);
    out8(PORT + 3, 3);
}

/// Prints a text.
pub(crate) fn print(text: fmt::Arguments<'_>) {
    LINE.with(|line| {
        if !giving_up::is_elsewhere() {
            let _ = line.write_fmt(text);
        }
    });
}

/// Takes the line whoever holds it: the last words of a kernel that gives up.
pub(crate) fn seize() {
    // SAFETY: the holder is this CPU in the middle of a line, or one that is about to be stopped;
    // at worst two texts mix.
    unsafe { LINE.seize() }
}

/// Whether a typed byte waits.
pub(crate) fn has_byte() -> bool {
    in8(STATUS) & HAS_BYTE != 0
}
/// The next byte that was typed, if there is one.
pub(crate) fn read() -> Option<u8> {
    has_byte().then(|| in8(PORT))
}
/// Makes each byte that is typed raise the line's interrupt, and lets that out of the device.
pub(crate) fn interrupt_on_byte() {
    out8(PORT + 1, 1);
    out8(PORT + 4, 0b1011);
}

/// Prints a line.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::serial::print(format_args!("{}\n", format_args!($($text)*))) };
}
