//! Terminals: a console on the lines to whoever started the program, and pseudo terminals.
//!
//! ```text
//!                          ┌──────────────── Tty ────────────────┐
//!   lines ──▶ console ────▶│ came ─▶ Discipline ─▶ lines         │──▶ End: /dev/console, /dev/pts/N,
//!   another program ─▶     │            │                        │        /dev/tty
//!            Master ◀──────│ screen ◀───┴── written              │◀── writes
//!                          └─ session, group in the foreground ──┘ signals
//! ```
//!
//! | file | what is there |
//! |---|---|
//! | `tty` | a terminal: what comes, what is shown, who waits |
//! | `reading` | a read, with lines or without |
//! | `job` | whose terminal it is, and who is in the foreground |
//! | `requests` | `ioctl` |
//! | `end` | a terminal as programs have it opened |
//! | `pty` | pseudo terminals: `/dev/ptmx`, `/dev/pts` |
//! | `console` | the terminal of the first session |
//!
//! **Invariants**
//! - Y1. Who is signalled is signalled with no lock of a terminal held.
//! - Y2. A terminal is one session's at most, and a session has one at most: whose it is is asked
//!   of the terminals, so the processes of a session that lost its terminal have nothing to lose.
//! - Y3. A terminal whose other end is gone stays so: reads end, writes fail.
//!
//! **Locking**: a terminal's inside, for as long as bytes are moved within the kernel; whose it is
//! under no other lock. Waiters are woken without any.
//!
//! **Not here**: what becomes of bytes (`foliant-terminal`); stops of processes
//! (`process::stops`); packet mode, locked settings, `TIOCSTI`.

pub(super) mod console;
mod end;
mod job;
mod pty;
mod reading;
mod requests;
mod tty;

use super::content::Content;
use super::names;
use alloc::sync::Arc;
use foliant_files::{Body, Refused};
use linux_raw_sys::general::S_IFCHR;

pub(super) use job::{end_session, of_process};
pub(super) use pty::peer;

/// Makes the names that every machine has.
pub(super) fn make_names() -> Result<(), Refused> {
    names::make(b"dev/pts", 0o755, Body::Folder)?;
    let leaf = |path: &[u8], content| names::make(path, S_IFCHR | 0o666, Body::Leaf(content));
    leaf(b"dev/tty", Content::Channel(Arc::new(end::Own)))?;
    leaf(b"dev/ptmx", Content::Channel(Arc::new(pty::Multiplexer))).map(drop)
}
