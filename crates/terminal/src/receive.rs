//! What becomes of bytes that are typed.

use crate::discipline::{Discipline, SIZE};
use crate::kept::Echo;
use crate::letters::lower;
use crate::screen::Screen;
use crate::settings::NONE;
use linux_raw_sys::general::{
    ECHO, ECHOCTL, ECHONL, ICRNL, IEXTEN, IGNCR, INLCR, ISIG, ISTRIP, IUCLC, IXANY, IXON, NOFLSH,
    PARMRK, SIGINT, SIGQUIT, SIGTSTP, VEOF, VEOL, VEOL2, VERASE, VINTR, VKILL, VLNEXT, VQUIT,
    VREPRINT, VSTART, VSTOP, VSUSP, VWERASE,
};

/// What was done with bytes that came.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Received {
    /// So many were taken; there is no room for more.
    pub taken: usize,
    /// Signals for the group in the foreground, a bit each: that of signal 1 is the lowest.
    pub signals: u64,
}

impl Received {
    /// The signals by number.
    pub fn signals(self) -> impl Iterator<Item = u32> {
        (1..=u64::BITS).filter(move |number| self.signals >> (number - 1) & 1 != 0)
    }
}

impl Discipline {
    /// Takes bytes that were typed, as far as there is room (L1).
    pub fn receive(&mut self, bytes: &[u8], screen: &mut impl Screen) -> Received {
        let mut all = Received::default();
        while all.taken < bytes.len() {
            let room = self.make_room();
            let count = room.min(bytes.len() - all.taken);
            if count == 0 {
                break;
            }
            all.signals |= self.take_in(&bytes[all.taken..all.taken + count], screen);
            all.taken += count;
        }
        all
    }
    /// How many bytes may come now.
    fn make_room(&mut self) -> usize {
        let free = SIZE - self.bytes.len();
        // A byte may be marked by two others.
        let free = if self.settings.has_input(PARMRK) { free.div_ceil(3) } else { free };
        if free > 1 {
            return free - 1;
        }
        let overflows = self.is_canonical() && self.canon == self.tail;
        if overflows && free == 0 {
            self.bytes.pop_back();
        }
        usize::from(overflows)
    }
    fn take_in(&mut self, bytes: &[u8], screen: &mut impl Screen) -> u64 {
        let mut signals = 0;
        if self.settings.is_plain() {
            bytes.iter().for_each(|byte| self.keep(*byte));
        } else {
            for byte in bytes {
                signals |= self.take_one(*byte, screen);
            }
            self.show_echoes(screen); // L3
        }
        if !self.is_canonical() {
            self.commit = self.head();
        }
        signals
    }
    fn take_one(&mut self, byte: u8, screen: &mut impl Screen) -> u64 {
        let is_quoted = core::mem::take(&mut self.is_quoted);
        let mut byte = byte;
        if self.settings.has_input(ISTRIP) {
            byte &= 0x7f;
        }
        if self.settings.has_input(IUCLC) && self.settings.has_local(IEXTEN) {
            byte = lower(byte);
        }
        match self.special[usize::from(byte)] && !is_quoted {
            true => return self.take_special(byte, screen),
            false => self.take_char(byte, screen),
        }
        0
    }
    /// Goes on where any character does that.
    fn start_by_any(&mut self, screen: &mut impl Screen) {
        if self.is_stopped && self.settings.has_input(IXON) && self.settings.has_input(IXANY) {
            self.start(screen);
        }
    }
    /// A character that means itself.
    fn take_char(&mut self, byte: u8, screen: &mut impl Screen) {
        self.start_by_any(screen);
        if self.settings.has_local(ECHO) {
            self.finish_erasing();
            self.begin_line();
            self.echo_char(byte);
        }
        self.keep_marked(byte);
    }
    fn begin_line(&mut self) {
        if self.canon == self.head() {
            self.echo(Echo::Begin);
        }
    }
    fn keep_marked(&mut self, byte: u8) {
        if byte == 0xff && self.settings.has_input(PARMRK) {
            self.keep(byte);
        }
        self.keep(byte);
    }
    /// A character that may mean more than itself.
    fn take_special(&mut self, byte: u8, screen: &mut impl Screen) -> u64 {
        let is = |which| byte == self.settings.char(which);
        if self.settings.has_input(IXON) {
            if is(VSTART) {
                self.start(screen);
                return 0;
            }
            if is(VSTOP) {
                self.stop();
                return 0;
            }
        }
        if self.settings.has_local(ISIG) {
            let signals = [(VINTR, SIGINT), (VQUIT, SIGQUIT), (VSUSP, SIGTSTP)];
            if let Some((_, number)) = signals.into_iter().find(|(which, _)| is(*which)) {
                self.signal(byte, screen);
                return 1 << (number - 1);
            }
        }
        self.start_by_any(screen);
        let byte = match byte {
            b'\r' if self.settings.has_input(IGNCR) => return 0,
            b'\r' if self.settings.has_input(ICRNL) => b'\n',
            b'\n' if self.settings.has_input(INLCR) => b'\r',
            byte => byte,
        };
        if self.is_canonical() && self.take_in_line(byte) {
            return 0;
        }
        if self.settings.has_local(ECHO) {
            self.finish_erasing();
            if byte == b'\n' {
                self.echo_raw(byte);
            } else {
                self.begin_line();
                self.echo_char(byte);
            }
        }
        self.keep_marked(byte);
        0
    }
    /// A signal takes away what waits on both sides, unless it shall not.
    fn signal(&mut self, byte: u8, screen: &mut impl Screen) {
        if !self.settings.has_local(NOFLSH) {
            self.echoes.clear();
            screen.flush();
            self.forget();
        }
        if self.settings.has_input(IXON) {
            self.is_stopped = false;
        }
        match self.settings.has_local(ECHO) {
            true => self.echo_char(byte), // shown with the others (L3)
            false => self.show_echoes(screen),
        }
    }
    /// What a character does to a line. Whether it was anything else than a character of it.
    fn take_in_line(&mut self, byte: u8) -> bool {
        let settings = self.settings;
        let (is, has) = (|which| byte == settings.char(which), |flag| settings.has_local(flag));
        match () {
            () if is(VERASE) || is(VKILL) || is(VWERASE) && has(IEXTEN) => self.erase(byte),
            () if is(VLNEXT) && has(IEXTEN) => {
                self.is_quoted = true;
                if has(ECHO) {
                    self.finish_erasing();
                    if has(ECHOCTL) {
                        self.echo_raw(b'^');
                        self.echo_raw(b'\x08');
                    }
                }
            }
            () if is(VREPRINT) && has(ECHO) && has(IEXTEN) => {
                self.finish_erasing();
                self.echo_char(byte);
                self.echo_raw(b'\n');
                for nth in (self.canon - self.tail) as usize..self.bytes.len() {
                    self.echo_char(self.bytes[nth].byte);
                }
            }
            () if byte == b'\n' => {
                if has(ECHO | ECHONL) {
                    self.echo_raw(byte);
                }
                self.end_line(byte);
            }
            () if is(VEOF) => self.end_line(NONE),
            () if is(VEOL) || is(VEOL2) && has(IEXTEN) => {
                if has(ECHO) {
                    self.begin_line();
                    self.echo_char(byte);
                }
                if byte == 0xff && settings.has_input(PARMRK) {
                    self.keep(byte);
                }
                self.end_line(byte);
            }
            () => return false,
        }
        true
    }
    fn end_line(&mut self, byte: u8) {
        self.keep(byte);
        if let Some(last) = self.bytes.back_mut() {
            last.ends = true;
        }
        self.canon = self.head();
    }
}
