//! What a terminal is set to: Linux's `termios`.
//!
//! ```text
//!   bytes   0       4        8         12      16     17          36       44
//!           input   output   control   local   line   characters  speeds
//!           └──────────────────── SHORT ──────────────────────┘
//!           └──────────────────── LONG ────────────────────────────────┘
//! ```

use linux_raw_sys::general::{
    B38400, BOTHER, CBAUD, CREAD, CS8, CSIZE, ECHO, ECHOCTL, ECHOE, ECHOK, ECHOKE, IBSHIFT, ICANON,
    ICRNL, IEXTEN, IGNCR, INLCR, ISIG, ISTRIP, IUCLC, IXON, ONLCR, OPOST, PARENB, PARMRK, VDISCARD,
    VEOF, VEOL, VEOL2, VERASE, VINTR, VKILL, VLNEXT, VMIN, VQUIT, VREPRINT, VSTART, VSTOP, VSUSP,
    VWERASE,
};

/// Characters that mean something.
const CHARS: usize = 19;
/// Bytes of settings without speeds: those of `TCGETS`.
pub const SHORT: usize = 36;
/// Bytes of settings with speeds: those of `TCGETS2`.
pub const LONG: usize = SHORT + 8;

/// A character that stands for none.
pub(crate) const NONE: u8 = 0;

/// Bits a second, by the number that Linux has for them; the numbers from 16 on have a bit of
/// their own.
const SPEEDS: [u32; 31] = [
    0, 50, 75, 110, 134, 150, 200, 300, 600, 1200, 1800, 2400, 4800, 9600, 19200, 38400, 57600,
    115200, 230400, 460800, 500000, 576000, 921600, 1000000, 1152000, 1500000, 2000000, 2500000,
    3000000, 3500000, 4000000,
];

/// What a terminal is set to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// What becomes of bytes that come in.
    pub input: u32,
    /// What becomes of bytes that go out.
    pub output: u32,
    /// What a line would be set to, speeds included.
    pub control: u32,
    /// Echoes, lines, signals.
    pub local: u32,
    /// The number of the discipline.
    pub line: u8,
    /// Characters that mean something, by Linux's numbers.
    pub chars: [u8; CHARS],
    /// Bits a second, in and out.
    pub speeds: [u32; 2],
}

impl Settings {
    /// What a terminal begins with.
    pub const USUAL: Settings = {
        let mut chars = [NONE; CHARS];
        chars[VINTR as usize] = 3; // ^C
        chars[VQUIT as usize] = 28; // ^\
        chars[VERASE as usize] = 127;
        chars[VKILL as usize] = 21; // ^U
        chars[VEOF as usize] = 4; // ^D
        chars[VMIN as usize] = 1;
        chars[VSTART as usize] = 17; // ^Q
        chars[VSTOP as usize] = 19; // ^S
        chars[VSUSP as usize] = 26; // ^Z
        chars[VREPRINT as usize] = 18; // ^R
        chars[VDISCARD as usize] = 15; // ^O
        chars[VWERASE as usize] = 23; // ^W
        chars[VLNEXT as usize] = 22; // ^V
        Settings {
            input: ICRNL | IXON,
            output: OPOST | ONLCR,
            control: B38400 | CS8 | CREAD,
            local: ISIG | ICANON | ECHO | ECHOE | ECHOK | ECHOCTL | ECHOKE | IEXTEN,
            line: 0,
            chars,
            speeds: [38400; 2],
        }
    };

    /// As a program has them: [`SHORT`] bytes, or [`LONG`]; what is missing is 0.
    pub fn of_bytes(bytes: &[u8]) -> Settings {
        let word = |at: usize| {
            let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
            word.map_or(0, u32::from_le_bytes)
        };
        let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
        Settings {
            input: word(0),
            output: word(4),
            control: word(8),
            local: word(12),
            line: byte(16),
            chars: core::array::from_fn(|nth| byte(17 + nth)),
            speeds: [word(SHORT), word(SHORT + 4)],
        }
    }
    /// As a program has them.
    pub fn bytes(&self) -> [u8; LONG] {
        let mut bytes = [0; LONG];
        let words = [self.input, self.output, self.control, self.local];
        for (at, word) in bytes.chunks_exact_mut(4).zip(words) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        bytes[16] = self.line;
        bytes[17..SHORT].copy_from_slice(&self.chars);
        for (at, speed) in bytes[SHORT..].chunks_exact_mut(4).zip(self.speeds) {
            at.copy_from_slice(&speed.to_le_bytes());
        }
        bytes
    }
    /// As a terminal without a wire keeps them: eight bits, no parity, speeds as they are named.
    pub fn kept(mut self) -> Settings {
        let out = self.speed(self.control, self.speeds[1]);
        let asked = self.control >> IBSHIFT;
        let into = if asked & CBAUD == 0 { out } else { self.speed(asked, self.speeds[0]) };
        self.speeds = [into, out];
        self.control = self.control & !(CSIZE | PARENB) | CS8 | CREAD;
        self
    }
    /// Bits a second that a number stands for; one number stands for those that are told.
    fn speed(&self, number: u32, told: u32) -> u32 {
        match number & CBAUD {
            BOTHER => told,
            low if low & BOTHER == 0 => SPEEDS[low as usize],
            high => SPEEDS.get((high & !BOTHER) as usize + 15).copied().unwrap_or(0),
        }
    }

    pub(crate) fn has_input(&self, any: u32) -> bool {
        self.input & any != 0
    }
    pub(crate) fn has_output(&self, any: u32) -> bool {
        self.output & any != 0
    }
    /// Whether one of these local flags is on.
    pub fn has_local(&self, any: u32) -> bool {
        self.local & any != 0
    }
    /// A character that means something, by Linux's number.
    pub fn char(&self, which: u32) -> u8 {
        self.chars[which as usize]
    }
    /// Whether bytes go through as they are.
    pub(crate) fn is_plain(&self) -> bool {
        let input = ISTRIP | IUCLC | IGNCR | ICRNL | INLCR | IXON | PARMRK;
        !self.has_input(input) && !self.has_local(ICANON | ISIG | ECHO)
    }
    /// Which bytes mean more than themselves.
    pub(crate) fn special(&self) -> [bool; 256] {
        let mut all = [false; 256];
        let mut note = |byte: u8| all[usize::from(byte)] = true;
        if self.has_input(IGNCR | ICRNL) {
            note(b'\r');
        }
        if self.has_input(INLCR) || self.has_local(ICANON) {
            note(b'\n');
        }
        let mut note_all = |which: &[u32]| which.iter().for_each(|it| note(self.char(*it)));
        if self.has_local(ICANON) {
            note_all(&[VERASE, VKILL, VEOF, VEOL]);
            if self.has_local(IEXTEN) {
                note_all(&[VWERASE, VLNEXT, VEOL2]);
                if self.has_local(ECHO) {
                    note_all(&[VREPRINT]);
                }
            }
        }
        if self.has_input(IXON) {
            note_all(&[VSTART, VSTOP]);
        }
        if self.has_local(ISIG) {
            note_all(&[VINTR, VQUIT, VSUSP]);
        }
        all[usize::from(NONE)] = false;
        all
    }
}
