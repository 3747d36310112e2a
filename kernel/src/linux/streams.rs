//! The lines to whoever started the program: what it reads and writes without a file.
//!
//! ```text
//!   second serial line   ─▶ ff 01, standard input with `ff` before each byte that is `ff`, ff 00
//!                        ◀─ standard output
//!   debug port e9        ◀─ standard error
//! ```
//!
//! What comes before the beginning means nothing: switching the line's queue on may lose some of
//! it.
//!
//! **Locking**: one lock for what came in, one for what goes out.

use super::signal::CUT;
use super::{clock, sched};
use crate::port::{in8, out8};
use alloc::collections::VecDeque;
use foliant_linux::Errno;
use linux_raw_sys::errno::EBADF;
use spin::Mutex;

const LINE: u16 = 0x2f8;
const STATUS: u16 = LINE + 5;
const HAS_BYTE: u8 = 1 << 0;
const CAN_SEND: u8 = 1 << 5;
const ERRORS: u16 = 0xe9;
/// What says that the next byte is meant otherwise.
const MARK: u8 = 0xff;
/// Behind it: nothing more comes.
const END: u8 = 0;
/// Behind it: input begins.
const BEGIN: u8 = 1;
/// Bytes that wait here; the rest waits in the line.
const ROOM: usize = 64 << 10;
/// Nanoseconds that the next byte of a row takes at most.
const ROW: u64 = 100_000;
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

/// What came in.
struct Came {
    bytes: VecDeque<u8>,
    has_begun: bool,
    is_over: bool,
    /// The last byte was a mark.
    is_marked: bool,
}

static CAME: Mutex<Came> =
    Mutex::new(Came { bytes: VecDeque::new(), has_begun: false, is_over: false, is_marked: false });
/// What one call writes comes in one piece, up to a page.
static WRITES: Mutex<()> = Mutex::new(());

/// Sets the line up: eight bits, a queue, no interrupts.
pub(super) fn start() {
    out8(LINE + 1, 0);
    out8(LINE + 3, 3);
    out8(LINE + 2, 1);
}

impl Came {
    /// Takes what the line has, up to a pause.
    fn take_in(&mut self) {
        while self.bytes.len() < ROOM && !self.is_over && follows() {
            let byte = in8(LINE);
            match byte {
                MARK if !self.is_marked => {
                    self.is_marked = true;
                    continue;
                }
                END if self.is_marked => self.is_over = true,
                BEGIN if self.is_marked => self.has_begun = true,
                _ if self.has_begun => self.bytes.push_back(byte),
                _ => {}
            }
            self.is_marked = false;
        }
    }
    fn is_ready(&self) -> bool {
        self.is_over || !self.bytes.is_empty()
    }
}

/// Whether a byte is there, or comes at once.
fn follows() -> bool {
    let has_byte = || in8(STATUS) & HAS_BYTE != 0;
    if has_byte() {
        return true;
    }
    let end = clock::uptime() + ROW;
    while clock::uptime() < end {
        if has_byte() {
            return true;
        }
        core::hint::spin_loop();
    }
    false
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
        let mut came = CAME.lock();
        let count = into.len().min(came.bytes.len());
        for (to, from) in into.iter_mut().zip(came.bytes.drain(..count)) {
            *to = from;
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
        if self != Stream::Input {
            return true;
        }
        let mut came = CAME.lock();
        if !came.is_ready() {
            came.take_in();
        }
        came.is_ready()
    }
}

fn send(byte: u8) {
    while in8(STATUS) & CAN_SEND == 0 {
        core::hint::spin_loop();
    }
    out8(LINE, byte);
}
