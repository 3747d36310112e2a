//! The host's side: a pseudo terminal of its own.

use crate::Settings;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, read, write};
use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use rustix::termios::{
    ControlModes, InputModes, LocalModes, OptionalActions, OutputModes, SpecialCodeIndex, Termios,
    tcgetattr, tcsetattr,
};
use std::os::fd::OwnedFd;
use std::time::Duration;

pub(super) struct Host {
    master: OwnedFd,
    slave: OwnedFd,
    /// How long what was written takes to arrive.
    pause: Duration,
}

/// The characters that mean something, by Linux's numbers.
const CODES: [(u32, SpecialCodeIndex); 17] = {
    use SpecialCodeIndex as Code;
    [
        (0, Code::VINTR),
        (1, Code::VQUIT),
        (2, Code::VERASE),
        (3, Code::VKILL),
        (4, Code::VEOF),
        (5, Code::VTIME),
        (6, Code::VMIN),
        (7, Code::VSWTC),
        (8, Code::VSTART),
        (9, Code::VSTOP),
        (10, Code::VSUSP),
        (11, Code::VEOL),
        (12, Code::VREPRINT),
        (13, Code::VDISCARD),
        (14, Code::VWERASE),
        (15, Code::VLNEXT),
        (16, Code::VEOL2),
    ]
};

impl Host {
    /// `None` where there are no pseudo terminals.
    pub(super) fn new(pause: Duration) -> Option<Host> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).ok()?;
        unlockpt(&master).ok()?;
        let name = ptsname(&master, Vec::new()).ok()?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK;
        let slave = open(name, flags, Mode::empty()).ok()?;
        rustix::io::ioctl_fionbio(&master, true).ok()?;
        Some(Host { master, slave, pause })
    }
    pub(super) fn receive(&mut self, bytes: &[u8]) {
        assert_eq!(write(&self.master, bytes), Ok(bytes.len()));
        std::thread::sleep(self.pause);
    }
    pub(super) fn write(&mut self, bytes: &[u8]) -> usize {
        let count = match write(&self.slave, bytes) {
            Err(Errno::AGAIN) => 0,
            other => other.unwrap(),
        };
        std::thread::sleep(self.pause);
        count
    }
    pub(super) fn set(&mut self, settings: &Settings) {
        let mut termios = tcgetattr(&self.slave).unwrap();
        termios.input_modes = InputModes::from_bits_retain(settings.input);
        termios.output_modes = OutputModes::from_bits_retain(settings.output);
        termios.control_modes = ControlModes::from_bits_retain(settings.control);
        termios.local_modes = LocalModes::from_bits_retain(settings.local);
        for (number, code) in CODES {
            termios.special_codes[code] = settings.char(number);
        }
        tcsetattr(&self.slave, OptionalActions::Now, &termios).unwrap();
        std::thread::sleep(self.pause);
    }
    pub(super) fn settings(&self) -> Settings {
        let termios: Termios = tcgetattr(&self.slave).unwrap();
        let mut chars = Settings::USUAL.chars;
        for (number, code) in CODES {
            chars[number as usize] = termios.special_codes[code];
        }
        Settings {
            input: termios.input_modes.bits(),
            output: termios.output_modes.bits(),
            control: termios.control_modes.bits(),
            local: termios.local_modes.bits(),
            line: 0,
            chars,
            speeds: [termios.input_speed(), termios.output_speed()],
        }
    }
    pub(super) fn shown(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        let mut bytes = [0; 4096];
        loop {
            match read(&self.master, &mut bytes) {
                Ok(count @ 1..) => all.extend(&bytes[..count]),
                Ok(_) | Err(Errno::AGAIN) => return all,
                Err(why) => panic!("{why}"),
            }
        }
    }
    pub(super) fn read(&mut self, most: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; most];
        match read(&self.slave, &mut bytes) {
            Ok(count) => {
                bytes.truncate(count);
                Some(bytes)
            }
            Err(Errno::AGAIN) => None,
            Err(why) => panic!("{why}"),
        }
    }
    pub(super) fn count(&self) -> usize {
        rustix::io::ioctl_fionread(&self.slave).unwrap() as usize
    }
    pub(super) fn is_ready(&self) -> bool {
        let mut all = [PollFd::new(&self.slave, PollFlags::IN)];
        poll(&mut all, Some(&Default::default())).unwrap();
        all[0].revents().contains(PollFlags::IN)
    }
}
