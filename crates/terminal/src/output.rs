//! What becomes of bytes that are shown.

use crate::discipline::Discipline;
use crate::letters::{is_control, upper};
use crate::screen::{LONGEST, Screen};
use linux_raw_sys::general::{IUTF8, OCRNL, OLCUC, ONLCR, ONLRET, ONOCR, OPOST, TABDLY, XTABS};

const SPACES: [u8; LONGEST] = [b' '; LONGEST];

impl Discipline {
    /// Shows what a program writes, as far as there is room; says how many bytes of it.
    pub fn write(&mut self, bytes: &[u8], screen: &mut impl Screen) -> usize {
        self.show_echoes(screen);
        if self.is_stopped {
            return 0;
        }
        if !self.settings.has_output(OPOST) {
            let count = bytes.len().min(screen.room());
            screen.show(&bytes[..count]);
            return count;
        }
        let mut done = 0;
        while done < bytes.len() && screen.room() >= LONGEST {
            self.show(bytes[done], screen);
            done += 1;
        }
        done
    }
    /// Shows one byte as the output flags say.
    pub(crate) fn show(&mut self, byte: u8, screen: &mut impl Screen) {
        let has = |flag| self.settings.has_output(flag);
        let mut shown = byte;
        match byte {
            b'\n' => {
                if has(ONLRET) {
                    self.column = 0;
                }
                if has(ONLCR) {
                    (self.column, self.canon_column) = (0, 0);
                    return screen.show(b"\r\n");
                }
                self.canon_column = self.column;
            }
            b'\r' if has(ONOCR) && self.column == 0 => return,
            b'\r' if has(OCRNL) => {
                shown = b'\n';
                if has(ONLRET) {
                    (self.column, self.canon_column) = (0, 0);
                }
            }
            b'\r' => (self.column, self.canon_column) = (0, 0),
            b'\t' => {
                let count = 8 - (self.column & 7);
                self.column += count;
                if self.settings.output & TABDLY == XTABS {
                    return screen.show(&SPACES[..count as usize]);
                }
            }
            b'\x08' => self.column = self.column.saturating_sub(1),
            _ if is_control(byte) => {}
            _ => {
                if has(OLCUC) {
                    shown = upper(byte);
                }
                if !self.is_rest(shown) {
                    self.column += 1;
                }
            }
        }
        screen.show(&[shown]);
    }
    /// Whether a byte goes on with the character before it.
    pub(crate) fn is_rest(&self, byte: u8) -> bool {
        self.settings.has_input(IUTF8) && byte & 0xc0 == 0x80
    }
}
