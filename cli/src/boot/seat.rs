//! The terminal that a person sits at, while a program inside has it.
//!
//! ```text
//!   keys ─▶ raw: each goes to the guest, whose own terminal makes lines and signals of them
//!             └─ Ctrl-] x ─▶ the guest ends
//!   size ─▶ the kernel's words, and a frame whenever it changes
//! ```
//!
//! **Invariants**
//! - S1. The terminal is as it was found when [`Raw`] is dropped, however the program ended.
//!
//! **Not here**: what is done with keys (`frame`).

use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::{stderr, stdin, stdout};

/// A terminal that says nothing of its size is as large as this.
const USUAL: [u16; 2] = [24, 80];

/// What is known of the terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Seat {
    pub(super) size: [u16; 2],
    /// Whether standard error goes elsewhere.
    pub(super) errors_are_apart: bool,
}

impl Seat {
    /// The terminal that this command reads and writes. `None` where it does not do both: then what
    /// is read is no keys, or what is written is no picture.
    pub(super) fn find() -> Option<Seat> {
        let is_seat = isatty(stdin()) && isatty(stdout());
        is_seat.then(|| Seat { size: size(), errors_are_apart: !isatty(stderr()) })
    }
}

/// Rows and columns of the terminal.
pub(super) fn size() -> [u16; 2] {
    let found = tcgetwinsize(stdout()).ok().map(|size| [size.ws_row, size.ws_col]);
    found.filter(|size| *size != [0; 2]).unwrap_or(USUAL)
}

/// The terminal, which hands on every key while this lives.
pub(super) struct Raw {
    before: Termios,
}

impl Raw {
    pub(super) fn new() -> Option<Raw> {
        let before = tcgetattr(stdin()).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Now, &raw).ok()?;
        Some(Raw { before })
    }
}

impl Drop for Raw {
    /// S1.
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), OptionalActions::Drain, &self.before); // it may be gone
    }
}
