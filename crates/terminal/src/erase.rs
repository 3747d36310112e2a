//! What was typed is taken back: a character, a word, the line.

use crate::discipline::Discipline;
use crate::kept::{Behind, Echo};
use crate::letters::{is_control, is_lower, is_upper};
use linux_raw_sys::general::{
    ECHO, ECHOCTL, ECHOE, ECHOK, ECHOKE, ECHOPRT, VERASE, VKILL, VWERASE,
};

/// How much is taken back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Erase {
    Char,
    Word,
    Line,
}

impl Discipline {
    /// Takes back what a character says: that of `VERASE`, `VWERASE` or `VKILL`.
    pub(crate) fn erase(&mut self, by: u8) {
        if self.head() == self.canon {
            return;
        }
        let has = |flag| self.settings.has_local(flag);
        let what = match by {
            by if by == self.settings.char(VERASE) => Erase::Char,
            by if by == self.settings.char(VWERASE) => Erase::Word,
            _ if !has(ECHO) => return self.drop_line(),
            _ if !(has(ECHOK) && has(ECHOKE) && has(ECHOE)) => {
                let ends = has(ECHOK);
                self.drop_line();
                self.finish_erasing();
                self.echo_char(self.settings.char(VKILL));
                if ends {
                    self.echo_raw(b'\n');
                }
                return;
            }
            _ => Erase::Line,
        };
        let mut has_begun = false;
        while self.head() != self.canon {
            let Some((first, count)) = self.last_char() else { break };
            if what == Erase::Word {
                let is_word = is_lower(first) || is_upper(first) || first.is_ascii_digit();
                if is_word || first == b'_' {
                    has_begun = true;
                } else if has_begun {
                    break;
                }
            }
            let at = self.bytes.len() - count;
            if self.settings.has_local(ECHO) {
                self.show_erased(first, at, what);
            }
            self.bytes.truncate(at);
            if what == Erase::Char {
                break;
            }
        }
        if self.head() == self.canon && self.settings.has_local(ECHO) {
            self.finish_erasing();
        }
    }
    /// Bytes of the line that is being typed.
    fn typed(&self) -> usize {
        (self.head() - self.canon) as usize
    }
    fn drop_line(&mut self) {
        self.bytes.truncate(self.bytes.len() - self.typed());
    }
    /// The first byte of the last character, and its bytes; `None` where it has no beginning.
    fn last_char(&self) -> Option<(u8, usize)> {
        let typed = self.bytes.iter().rev().take(self.typed());
        let (nth, first) = typed.enumerate().find(|(_, kept)| !self.is_rest(kept.byte))?;
        Some((first.byte, nth + 1))
    }
    /// Shows that a character is gone, which begins at `at` with `first`.
    fn show_erased(&mut self, first: u8, at: usize, what: Erase) {
        let has = |flag| self.settings.has_local(flag);
        if has(ECHOPRT) {
            if !self.is_erasing {
                self.echo_raw(b'\\');
                self.is_erasing = true;
            }
            self.echo_char(first);
            for nth in at + 1..self.bytes.len() {
                self.echo_raw(self.bytes[nth].byte);
                self.echo(Echo::Left);
            }
        } else if what == Erase::Char && !has(ECHOE) {
            self.echo_char(self.settings.char(VERASE));
        } else if first == b'\t' {
            let (columns, behind) = self.columns_before(at);
            self.echo(Echo::Back(columns, behind));
        } else {
            let (is_control, shows) = (is_control(first), has(ECHOCTL));
            let times = match (is_control, shows) {
                (true, true) => 2,
                (true, false) => 0,
                (false, _) => 1,
            };
            for _ in 0..times {
                b"\x08 \x08".iter().for_each(|byte| self.echo_raw(*byte));
            }
        }
    }
    /// Columns of the line up to `at`, from its beginning or from its last tab on.
    fn columns_before(&self, at: usize) -> (u8, Behind) {
        let begin = self.bytes.len() - self.typed();
        let mut columns = 0u8;
        for kept in self.bytes.range(begin..at).rev() {
            columns = match kept.byte {
                b'\t' => return (columns & 7, Behind::Tab),
                byte if is_control(byte) && self.settings.has_local(ECHOCTL) => {
                    columns.wrapping_add(2)
                }
                byte if is_control(byte) || self.is_rest(byte) => columns,
                _ => columns.wrapping_add(1),
            };
        }
        (columns & 7, Behind::Line)
    }
}
