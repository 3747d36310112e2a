//! What a terminal has of what was typed, and what it is set to.
//!
//! ```text
//!   tail          canon                head
//!    │ complete lines │ the line that is typed │
//! ```

use crate::kept::{Echo, Kept};
use crate::screen::Screen;
use crate::settings::Settings;
use alloc::collections::{TryReserveError, VecDeque};
use linux_raw_sys::general::{ICANON, IXON, VMIN, VTIME};

/// Bytes that wait to be read, at most.
pub const SIZE: usize = 4096;
/// Echoes that wait to be shown, at most; the oldest go first.
pub(crate) const ECHOES: usize = 4096;

/// What becomes of bytes between a terminal and programs.
#[derive(Debug)]
pub struct Discipline {
    pub(crate) settings: Settings,
    /// Bytes that mean more than themselves.
    pub(crate) special: [bool; 256],
    /// What waits, from `tail` on.
    pub(crate) bytes: VecDeque<Kept>,
    /// How many bytes were read since all was forgotten.
    pub(crate) tail: u64,
    /// Where the line begins that is being typed.
    pub(crate) canon: u64,
    /// Where bytes end that may be read by a program that wants no lines.
    pub(crate) commit: u64,
    /// What comes next is a byte, whatever it means.
    pub(crate) is_quoted: bool,
    /// What is erased is being shown.
    pub(crate) is_erasing: bool,
    /// Nothing is shown until it is started.
    pub(crate) is_stopped: bool,
    pub(crate) echoes: VecDeque<Echo>,
    /// Where the next character is shown, and where the line began.
    pub(crate) column: u32,
    pub(crate) canon_column: u32,
}

impl Discipline {
    /// One that is set so; refused where there is no memory for it.
    pub fn new(settings: Settings) -> Result<Discipline, TryReserveError> {
        let (mut bytes, mut echoes) = (VecDeque::new(), VecDeque::new());
        bytes.try_reserve_exact(SIZE)?;
        echoes.try_reserve_exact(ECHOES)?;
        let settings = settings.kept();
        Ok(Discipline {
            special: settings.special(),
            settings,
            bytes,
            tail: 0,
            canon: 0,
            commit: 0,
            is_quoted: false,
            is_erasing: false,
            is_stopped: false,
            echoes,
            column: 0,
            canon_column: 0,
        })
    }
    /// What it is set to.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
    /// Sets it. Where it gives lines from now on what waits is one, and where it gives none any
    /// more the line that is being typed may be read.
    pub fn set(&mut self, settings: Settings, screen: &mut impl Screen) {
        let before = core::mem::replace(&mut self.settings, settings.kept());
        self.special = self.settings.special();
        if before.has_local(ICANON) != self.is_canonical() {
            self.bytes.iter_mut().for_each(|kept| kept.ends = false);
            match self.bytes.back_mut() {
                Some(last) if self.settings.has_local(ICANON) => {
                    last.ends = true;
                    self.canon = self.head();
                }
                _ => self.canon = self.tail,
            }
            self.commit = self.head();
            (self.is_erasing, self.is_quoted) = (false, false);
        }
        if before.has_input(IXON) && !self.settings.has_input(IXON) {
            self.start(screen);
        }
    }

    pub(crate) fn is_canonical(&self) -> bool {
        self.settings.has_local(ICANON)
    }
    /// Where the next byte comes.
    pub(crate) fn head(&self) -> u64 {
        self.tail + self.bytes.len() as u64
    }
    pub(crate) fn keep(&mut self, byte: u8) {
        if self.bytes.len() < SIZE {
            self.bytes.push_back(Kept { byte, ends: false });
        }
    }

    /// Whether a read has something: a line, or a byte.
    pub fn has(&self) -> bool {
        if self.is_canonical() { self.canon != self.tail } else { self.commit != self.tail }
    }
    /// Whether a read is worth it: where it wants so many bytes, whether these are there.
    pub fn is_ready(&self) -> bool {
        let least = match self.settings.char(VTIME) {
            0 => u64::from(self.settings.char(VMIN)).max(1),
            _ => 1,
        };
        match self.is_canonical() {
            true => self.canon != self.tail,
            false => self.commit - self.tail >= least,
        }
    }
    /// Bytes that may be read: `FIONREAD`.
    pub fn count(&self) -> usize {
        if !self.is_canonical() {
            return self.bytes.len();
        }
        let lines = self.bytes.iter().take((self.canon - self.tail) as usize);
        lines.filter(|kept| !kept.is_end()).count()
    }
    /// Forgets what was typed and not read.
    pub fn forget(&mut self) {
        self.bytes.clear();
        (self.tail, self.canon, self.commit) = (0, 0, 0);
        self.is_erasing = false;
    }
    /// Shows nothing until it is started.
    pub fn stop(&mut self) {
        self.is_stopped = true;
    }
    /// Goes on.
    pub fn start(&mut self, screen: &mut impl Screen) {
        self.is_stopped = false;
        self.show_echoes(screen);
    }
}
