//! A line that is being typed.
//!
//! ```text
//!   printable   into the line            backspace, delete   the last one out
//!   ^U          the whole line out       ^C                  the line is dropped
//!   return      the line is done         ^D                  the end, where nothing is typed yet
//! ```
//!
//! What a terminal sends for arrows and the like (`ESC [ … letter`) is taken out whole. Of a line
//! that is full, and of bytes that are no ASCII, the bell rings.
//!
//! **Invariants**
//! - T1. What is in the line is printable ASCII.

use super::keyboard::Keyboard;
use crate::serial;

const ROOM: usize = 256;

/// How the reading of a line ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Read {
    /// There is a line.
    Line,
    /// It was dropped.
    Dropped,
    /// There will be no more.
    End,
}

/// What a byte did to the line.
enum Key {
    Nothing,
    Typed(char),
    Erased(usize),
    Refused,
    Done(Read),
}

/// Where in a sequence of bytes the next one is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Text,
    /// Behind a carriage return: a line feed belongs to it.
    Returned,
    /// Behind ESC.
    Escape,
    /// Behind `ESC [`.
    Sequence,
}

/// The line.
pub(super) struct Line {
    text: [u8; ROOM],
    len: usize,
    place: Place,
}

impl Line {
    pub(super) const fn new() -> Line {
        Line { text: [0; ROOM], len: 0, place: Place::Text }
    }

    /// What was typed.
    pub(super) fn text(&self) -> &str {
        core::str::from_utf8(&self.text[..self.len]).expect("T1")
    }

    /// Reads a new line, and shows what is typed.
    pub(super) fn read(&mut self, keyboard: &Keyboard) -> Read {
        self.len = 0;
        loop {
            match self.key(keyboard.next()) {
                Key::Nothing => {}
                Key::Typed(character) => serial::print(format_args!("{character}")),
                Key::Erased(count) => {
                    for _ in 0..count {
                        serial::print(format_args!("\x08 \x08"));
                    }
                }
                Key::Refused => serial::print(format_args!("\x07")),
                Key::Done(read) => {
                    serial::print(format_args!(
                        "{}\n",
                        if read == Read::Dropped { "^C" } else { "" }
                    ));
                    return read;
                }
            }
        }
    }

    fn key(&mut self, byte: u8) -> Key {
        let place = core::mem::replace(&mut self.place, Place::Text);
        match (place, byte) {
            (Place::Escape, b'[') => self.place = Place::Sequence,
            (Place::Escape, _) | (Place::Sequence, 0x40..=0x7e) | (Place::Returned, b'\n') => {}
            (Place::Sequence, 0x20..=0x3f) => self.place = Place::Sequence,
            _ => return self.plain(byte),
        }
        Key::Nothing
    }

    fn plain(&mut self, byte: u8) -> Key {
        match byte {
            b'\r' => {
                self.place = Place::Returned;
                Key::Done(Read::Line)
            }
            b'\n' => Key::Done(Read::Line),
            0x03 => Key::Done(Read::Dropped),
            0x04 if self.len == 0 => Key::Done(Read::End),
            0x08 | 0x7f => self.erase(1),
            0x15 => self.erase(ROOM),
            0x1b => {
                self.place = Place::Escape;
                Key::Nothing
            }
            b'\t' => self.put(b' '),
            b' '..=b'~' => self.put(byte),
            _ => Key::Refused,
        }
    }

    fn put(&mut self, byte: u8) -> Key {
        let Some(slot) = self.text.get_mut(self.len) else { return Key::Refused };
        *slot = byte;
        self.len += 1;
        Key::Typed(byte.into())
    }

    fn erase(&mut self, most: usize) -> Key {
        let count = most.min(self.len);
        self.len -= count;
        Key::Erased(count)
    }
}
