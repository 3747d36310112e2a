//! A line that is typed on a terminal: edited in place, remembered, completed. The kernel's shell
//! reads its commands so.
//!
//! ```text
//!   bytes ─▶ keys ─▶ line, history, completion ─▶ what the terminal is told, and at the end a Read
//! ```
//!
//! | key | does |
//! |---|---|
//! | left, Ctrl-B; right, Ctrl-F | one character back; one on |
//! | home, Ctrl-A; end, Ctrl-E | to the begin; to the end |
//! | up, Ctrl-P; down, Ctrl-N | an older line; a newer one |
//! | backspace, Ctrl-H; delete, Ctrl-D | takes out the character before the cursor; the one under it |
//! | Ctrl-U; Ctrl-K; Ctrl-W | takes out all before the cursor; all from it on; the word before it |
//! | Tab | completes the word before the cursor, or lists what it may become |
//! | Ctrl-L | clears the screen |
//! | Ctrl-C | drops the line |
//! | Ctrl-D in an empty line | the end |
//!
//! The terminal is asked for nothing, so that a pipe in its place is served as well. It is taken to
//! be [`COLUMNS`] wide: of a longer line the part around the cursor is shown.
//!
//! **Invariants**
//! - T1. What is in the line is printable ASCII, and the cursor is in it or at its end.
//! - T2. A byte of a sequence that is no key (`ESC [ … letter`) does not get into the line.
//! - T3. A line in the history is never changed: what is edited is a copy.
//!
//! **Not here**: where bytes come from, and what a line means.
//!
//! ```
//! use foliant_prompt::{Prompt, Read};
//!
//! let mut prompt = Prompt::new("> ");
//! let mut shown = String::new();
//! prompt.begin(&mut shown);
//! // `hlp`, left, left, `e`, return.
//! let typed = b"hlp\x1b[D\x1b[De\r";
//! let read = typed.iter().find_map(|byte| prompt.byte(*byte, &|_, _| {}, &mut shown));
//! assert_eq!((read, prompt.text()), (Some(Read::Line), "help"));
//! ```
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod complete;
mod history;
mod key;
mod line;
mod prompt;

#[cfg(test)]
mod tests;

pub use complete::Words;
pub use prompt::{COLUMNS, Prompt, Read};
