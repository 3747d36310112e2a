//! A terminal's line discipline, as Linux has it: what becomes of bytes that are typed until a
//! program reads them, and of bytes that a program writes until they are shown.
//!
//! ```text
//!              ┌──────────────────── Discipline ────────────────────┐
//!   typed ────▶│ receive ─▶ mapped, signals ─▶ the line ─▶ lines    │────▶ read, by a program
//!              │               │ echoes          │ edited           │
//!   shown ◀────│ Screen ◀──────┴─────────────────┘ ◀── output flags │◀──── write, by a program
//!              └────────────────────────────────────────────────────┘
//! ```
//!
//! A kernel has one [`Discipline`] for each terminal. It gives it the bytes that come in and those
//! that programs write; what is to be shown goes to a [`Screen`], and what is to be signalled comes
//! back as a value. [`Settings`] are Linux's `termios`, byte for byte.
//!
//! | request of Linux | here |
//! |---|---|
//! | `TCGETS`, `TCSETS` and their like | [`Settings::of_bytes`], [`Settings::bytes`], [`Discipline::set`] |
//! | `read` | [`Discipline::read`], when [`Discipline::has`] says so |
//! | `poll`; `FIONREAD` | [`Discipline::is_ready`]; [`Discipline::count`] |
//! | `TCFLSH`; `TCXONC` | [`Discipline::forget`]; [`Discipline::stop`], [`Discipline::start`] |
//!
//! **Invariants**
//! - L1. No more than [`SIZE`] bytes wait to be read. What does not fit is not taken, but where no
//!   line is complete: then the last byte gives its place to what comes, so that a line can end.
//! - L2. Nothing is allocated once it was made.
//! - L3. What is echoed is shown when all bytes of one [`Discipline::receive`] were looked at: a
//!   signal among them takes away what was not shown yet, as Linux does.
//!
//! **Locking**: its owner's lock. Nothing here waits.
//!
//! **Not here**: who waits for what (the kernel's `terminal`); who is signalled, and who may read;
//! parity and breaks, which no line here has; packet mode; `EXTPROC`.
//!
//! ```
//! use foliant_terminal::{Discipline, Screen, Settings};
//!
//! struct Shown(Vec<u8>);
//! impl Screen for Shown {
//!     fn room(&self) -> usize {
//!         usize::MAX
//!     }
//!     fn show(&mut self, bytes: &[u8]) {
//!         self.0.extend(bytes);
//!     }
//!     fn flush(&mut self) {
//!         self.0.clear();
//!     }
//! }
//!
//! let (mut terminal, mut shown) = (Discipline::new(Settings::USUAL).unwrap(), Shown(vec![]));
//! terminal.receive(b"lx\x7fs\r", &mut shown);
//! assert_eq!(shown.0, b"lx\x08 \x08s\r\n");
//! let mut line = [0; 80];
//! let read = terminal.read(&mut line);
//! assert_eq!(&line[..read.count], b"ls\n");
//! ```
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod discipline;
mod echo;
mod erase;
mod kept;
mod letters;
mod output;
mod read;
mod receive;
mod screen;
mod settings;

#[cfg(test)]
mod tests;

pub use discipline::{Discipline, SIZE};
pub use read::Read;
pub use receive::Received;
pub use screen::Screen;
pub use settings::{LONG, SHORT, Settings};
