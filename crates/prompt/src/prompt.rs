//! The prompt: what each key does to the line, and what the terminal is told.

use crate::complete::{Found, Words, complete, last_word};
use crate::history::History;
use crate::key::{Key, Keys};
use crate::line::{Line, ROOM};
use core::fmt::Write;

/// How wide the terminal is taken to be.
pub const COLUMNS: usize = 80;

/// How the reading of a line ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Read {
    /// There is a line.
    Line,
    /// It was dropped, and what was typed is still [`Prompt::text`].
    Dropped,
    /// There will be no more.
    End,
}

/// A line that is being typed, and those before it.
///
/// What `out` says of itself is not looked at: a terminal that is gone types no more either.
#[derive(Debug)]
pub struct Prompt {
    sign: &'static str,
    line: Line,
    keys: Keys,
    past: History,
}

/// What the terminal must be told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Show {
    Nothing,
    /// Nothing came of the key.
    Bell,
    /// The line, as it is now.
    Line,
    /// This character, which is the last one and fits.
    Char(u8),
}

impl Prompt {
    /// A prompt that shows `sign`, printable ASCII, before the line.
    pub const fn new(sign: &'static str) -> Prompt {
        Prompt { sign, line: Line::new(), keys: Keys::new(), past: History::new() }
    }

    /// What was typed: printable ASCII, up to 256 characters.
    pub fn text(&self) -> &str {
        self.line.text()
    }

    /// Begins a new line.
    pub fn begin(&mut self, out: &mut impl Write) {
        self.line = Line::new();
        self.past.leave();
        let _ = out.write_str(self.sign);
    }

    /// Takes the next byte that was typed. `words` names what a word may become; it is asked for
    /// Tab.
    pub fn byte(&mut self, byte: u8, words: &Words<'_>, out: &mut impl Write) -> Option<Read> {
        let key = self.keys.key(byte)?;
        let read = match key {
            Key::Return => Some(Read::Line),
            Key::Interrupt => Some(Read::Dropped),
            Key::EndOrDelete if self.text().is_empty() => Some(Read::End),
            _ => None,
        };
        if let Some(read) = read {
            if read == Read::Line {
                self.past.keep(&self.line);
            }
            let _ = out.write_str(if read == Read::Dropped { "^C\n" } else { "\n" });
            return Some(read);
        }
        match self.press(key, words, out) {
            Show::Nothing => {}
            Show::Bell => {
                let _ = out.write_char('\x07');
            }
            Show::Char(byte) => {
                let _ = out.write_char(byte.into());
            }
            Show::Line => self.show(out),
        }
        None
    }

    fn press(&mut self, key: Key, words: &Words<'_>, out: &mut impl Write) -> Show {
        let before = (self.line.cursor(), self.text().len());
        match key {
            Key::Char(byte) => return self.put(byte),
            Key::Tab => return self.complete(words, out),
            Key::Up => match self.past.older(&self.line) {
                Some(line) => self.line = line,
                None => return Show::Bell,
            },
            Key::Down => match self.past.newer() {
                Some(line) => self.line = line,
                None => return Show::Bell,
            },
            Key::Clear => {
                let _ = out.write_str("\x1b[H\x1b[2J");
            }
            Key::Left => self.line.go(self.line.cursor().saturating_sub(1)),
            Key::Right => self.line.go(self.line.cursor() + 1),
            Key::Home => self.line.go(0),
            Key::End => self.line.go(usize::MAX),
            Key::Backspace => self.line.erase_before(1),
            Key::Delete | Key::EndOrDelete => self.line.erase_behind(1),
            Key::EraseBefore => self.line.erase_before(ROOM),
            Key::EraseBehind => self.line.erase_behind(ROOM),
            Key::EraseWord => self.line.erase_word(),
            Key::Return | Key::Interrupt | Key::Other => return Show::Bell,
        }
        let shows_another = matches!(key, Key::Up | Key::Down | Key::Clear);
        let is_same = before == (self.line.cursor(), self.text().len());
        if is_same && !shows_another { Show::Nothing } else { Show::Line }
    }

    fn put(&mut self, byte: u8) -> Show {
        match self.line.put(byte) {
            Err(_) => Show::Bell,
            Ok(()) if self.line.is_at_end() && self.text().len() < self.columns() => {
                Show::Char(byte)
            }
            Ok(()) => Show::Line,
        }
    }

    fn complete(&mut self, words: &Words<'_>, out: &mut impl Write) -> Show {
        let mut line = self.line;
        let mut room = Ok(());
        let found = complete(self.line.before(), words, |byte| room = room.and(line.put(byte)));
        let has_grown = line.text().len() > self.text().len();
        match found {
            Found::Nothing => return Show::Bell,
            // `name=` wants a value right behind it.
            Found::One if !line.before().ends_with('=') => {
                let _ = line.put(b' ');
            }
            Found::Several if !has_grown => {
                let (before, begun) = last_word(self.line.before());
                let _ = out.write_char('\n');
                words(before, &mut |word| {
                    if word.starts_with(begun) {
                        let _ = write!(out, "{word}  ");
                    }
                });
                let _ = out.write_char('\n');
            }
            Found::One | Found::Several => {}
        }
        self.line = line;
        Show::Line
    }

    /// Columns for the line. The last one of the terminal stays empty, for the cursor.
    fn columns(&self) -> usize {
        COLUMNS.saturating_sub(self.sign.len() + 1).max(1)
    }

    /// Shows the line anew: the part of it that fits, with the cursor in it.
    fn show(&self, out: &mut impl Write) {
        let (text, cursor, columns) = (self.text(), self.line.cursor(), self.columns());
        let start = cursor.saturating_sub(columns);
        let shown = &text[start..text.len().min(start + columns)];
        let _ = write!(out, "\r{}{shown}\x1b[K", self.sign);
        match start + shown.len() - cursor {
            0 => {}
            back => {
                let _ = write!(out, "\x1b[{back}D");
            }
        }
    }
}
