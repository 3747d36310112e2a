//! The lines to whoever started the program: what it reads and writes without a file.
//!
//! ```text
//!   second serial line   ─▶ standard input, `ff` before each byte that is `ff`, `ff 00` at the end
//!                        ◀─ standard output
//!   debug port e9        ◀─ standard error
//! ```
//!
//! **Locking**: one lock for what came in, one for what goes out.

use super::clock;
use super::sched;
use super::signal::CUT;
use crate::port::{in8, out8};
use foliant_linux::Errno;
use linux_raw_sys::errno::EBADF;
use spin::Mutex;

const LINE: u16 = 0x2f8;
const STATUS: u16 = LINE + 5;
const HAS_BYTE: u8 = 1 << 0;
const CAN_SEND: u8 = 1 << 5;
const ERRORS: u16 = 0xe9;
/// What says that the next byte is meant otherwise.
const ESCAPE: u8 = 0xff;
/// Behind it: nothing more comes.
const END: u8 = 0;

/// Nanoseconds after which a thread that waits for input looks again.
const LOOK: u64 = 1_000_000;

/// One of the lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stream {
    /// What comes in.
    Input,
    /// What goes out.
    Output,
    /// What goes out besides.
    Errors,
}

static IS_OVER: Mutex<bool> = Mutex::new(false);
/// What one call writes comes in one piece, up to a page.
static WRITES: Mutex<()> = Mutex::new(());

/// Sets the line up: eight bits, no interrupts.
pub(super) fn start() {
    out8(LINE + 1, 0);
    out8(LINE + 3, 3);
}

impl Stream {
    /// Waits for bytes, and takes those that are there; none at the end.
    pub(super) fn read(self, into: &mut [u8]) -> Result<usize, Errno> {
        if self != Stream::Input {
            return Err(Errno(EBADF));
        }
        while !self.is_ready() {
            sched::sleep(clock::uptime() + LOOK).map_err(|_| CUT)?;
        }
        let mut is_over = IS_OVER.lock();
        let mut count = 0;
        while count < into.len() && !*is_over && (count == 0 || has_byte()) {
            match next() {
                ESCAPE if next() == END => *is_over = true,
                byte => {
                    into[count] = byte;
                    count += 1;
                }
            }
        }
        Ok(count)
    }
    /// Writes bytes.
    pub(super) fn write(self, bytes: &[u8]) -> Result<usize, Errno> {
        let _writes = WRITES.lock();
        match self {
            Stream::Input => return Err(Errno(EBADF)),
            Stream::Output => bytes.iter().for_each(|byte| send(*byte)),
            Stream::Errors => bytes.iter().for_each(|byte| out8(ERRORS, *byte)),
        }
        Ok(bytes.len())
    }
    /// Whether a read does not wait.
    pub(super) fn is_ready(self) -> bool {
        self != Stream::Input || *IS_OVER.lock() || has_byte()
    }
}

fn has_byte() -> bool {
    in8(STATUS) & HAS_BYTE != 0
}
/// The next byte of the line.
fn next() -> u8 {
    while !has_byte() {
        core::hint::spin_loop();
    }
    in8(LINE)
}
fn send(byte: u8) {
    while in8(STATUS) & CAN_SEND == 0 {
        core::hint::spin_loop();
    }
    out8(LINE, byte);
}
