//! What is echoed of what was typed.

use crate::discipline::{Discipline, ECHOES};
use crate::kept::{Behind, Echo};
use crate::letters::is_control;
use crate::screen::{LONGEST, Screen};
use linux_raw_sys::general::{ECHOCTL, OPOST};

/// The byte that Linux's own list of echoes has a meaning for.
const MARK: u8 = 0xff;

impl Discipline {
    pub(crate) fn echo(&mut self, echo: Echo) {
        if self.echoes.len() == ECHOES {
            self.echoes.pop_front();
        }
        self.echoes.push_back(echo);
    }
    /// A byte as it is sent out.
    pub(crate) fn echo_raw(&mut self, byte: u8) {
        self.echo(if byte == MARK { Echo::Plain(byte) } else { Echo::Byte(byte) });
    }
    /// A character that was typed.
    pub(crate) fn echo_char(&mut self, byte: u8) {
        let is_control = is_control(byte) && byte != b'\t';
        match is_control && self.settings.has_local(ECHOCTL) {
            true => self.echo(Echo::Control(byte)),
            false => self.echo_raw(byte),
        }
    }
    /// What was erased is shown to its end.
    pub(crate) fn finish_erasing(&mut self) {
        if core::mem::take(&mut self.is_erasing) {
            self.echo_raw(b'/');
        }
    }
    /// Shows what is to be shown, as far as there is room.
    pub(crate) fn show_echoes(&mut self, screen: &mut impl Screen) {
        while !self.is_stopped && screen.room() >= LONGEST {
            let Some(echo) = self.echoes.pop_front() else { return };
            self.show_echo(echo, screen);
        }
    }
    fn show_echo(&mut self, echo: Echo, screen: &mut impl Screen) {
        match echo {
            Echo::Byte(byte) if self.settings.has_output(OPOST) => self.show(byte, screen),
            Echo::Byte(byte) => screen.show(&[byte]),
            Echo::Control(byte) => {
                screen.show(&[b'^', byte ^ 0x40]);
                self.column += 2;
            }
            Echo::Plain(byte) => {
                screen.show(&[byte]);
                self.column += 1;
            }
            Echo::Back(columns, behind) => {
                let before = u32::from(columns)
                    + match behind {
                        Behind::Line => self.canon_column,
                        Behind::Tab => 0,
                    };
                for _ in before & 7..8 {
                    screen.show(b"\x08");
                    self.column = self.column.saturating_sub(1);
                }
            }
            Echo::Begin => self.canon_column = self.column,
            Echo::Left => self.column = self.column.saturating_sub(1),
        }
    }
}
