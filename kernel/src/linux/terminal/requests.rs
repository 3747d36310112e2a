//! `ioctl` of a terminal.

use super::super::user;
use super::tty::{Inside, Shown, Tty};
use foliant_linux::Errno;
use foliant_terminal::{LONG, SHORT, Screen, Settings};
use linux_raw_sys::errno::{EINVAL, EIO, ENOTTY};
use linux_raw_sys::general::{
    TCIFLUSH, TCIOFF, TCIOFLUSH, TCION, TCOFLUSH, TCOOFF, TCOON, VSTART, VSTOP,
};
use linux_raw_sys::ioctl::{
    FIONREAD, TCFLSH, TCGETS, TCGETS2, TCSBRK, TCSBRKP, TCSETS, TCSETS2, TCSETSF, TCSETSF2,
    TCSETSW, TCSETSW2, TCXONC, TIOCGETD, TIOCGPGRP, TIOCGSID, TIOCGWINSZ, TIOCNOTTY, TIOCOUTQ,
    TIOCSCTTY, TIOCSETD, TIOCSPGRP, TIOCSWINSZ, TIOCVHANGUP,
};

/// At which end a request is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    /// Where programs read what is typed.
    Own,
    /// Where it is typed.
    Other,
}

impl Tty {
    pub(super) fn request(&self, side: Side, request: u32, at: u64) -> Result<u64, Errno> {
        if side == Side::Own && self.inside.lock().is_hung_up {
            return Err(Errno(if request == TIOCSPGRP { ENOTTY } else { EIO }));
        }
        let is_other = side == Side::Other;
        let changes = || if is_other { Ok(()) } else { self.may_change() };
        match request {
            TCGETS | TCGETS2 => {
                let bytes = self.inside.lock().discipline.settings().bytes();
                let count = if request == TCGETS { SHORT } else { LONG };
                user::put_bytes(at, &bytes[..count]).map(|()| 0)
            }
            TCSETS | TCSETSW | TCSETSF => {
                changes()?;
                self.set(at, SHORT, request == TCSETSF)
            }
            TCSETS2 | TCSETSW2 | TCSETSF2 => {
                changes()?;
                self.set(at, LONG, request == TCSETSF2)
            }
            // What was written is on its way to whoever sees it.
            TCSBRK | TCSBRKP => changes().map(|()| 0),
            TCXONC => {
                changes()?;
                self.flow(at)
            }
            TCFLSH => {
                changes()?;
                self.flush(side, at)
            }
            FIONREAD => {
                let count = {
                    let inside = self.inside.lock();
                    match (&inside.shown, side) {
                        (Shown::Queue(queue), Side::Other) => queue.len(),
                        _ => inside.discipline.count(),
                    }
                };
                user::put(at, &(count as u32)).map(|()| 0)
            }
            TIOCOUTQ | TIOCGETD => user::put(at, &0u32).map(|()| 0),
            TIOCSETD => match user::get::<u32>(at)? {
                0 => Ok(0),
                _ => Err(Errno(EINVAL)), // there is one discipline
            },
            TIOCGWINSZ => self.window_at(at),
            TIOCSWINSZ => {
                let bytes = user::get_bytes(at, 8)?;
                let word = |nth: usize| u16::from_le_bytes([bytes[2 * nth], bytes[2 * nth + 1]]);
                self.set_window(core::array::from_fn(word));
                Ok(0)
            }
            TIOCGPGRP => user::put(at, &self.told_front(is_other)?).map(|()| 0),
            TIOCSPGRP => {
                changes()?;
                self.set_front(user::get::<u32>(at)? as i32)
            }
            TIOCGSID => user::put(at, &self.told_session(is_other)?).map(|()| 0),
            TIOCSCTTY if !is_other => self.take_control(at == 1),
            TIOCNOTTY if !is_other => self.give_up(),
            TIOCVHANGUP if !is_other => {
                self.hang_up();
                Ok(0)
            }
            _ => Err(Errno(ENOTTY)),
        }
    }
    fn set(&self, at: u64, count: usize, forgets: bool) -> Result<u64, Errno> {
        let mut bytes = [0; LONG];
        bytes[..count].copy_from_slice(&user::get_bytes(at, count)?);
        {
            let mut inside = self.inside.lock();
            let Inside { discipline, came, shown, .. } = &mut *inside;
            if forgets {
                discipline.forget();
                came.skip(usize::MAX);
            }
            discipline.set(Settings::of_bytes(&bytes), shown);
        }
        self.take_in();
        Ok(0)
    }
    fn flow(&self, what: u64) -> Result<u64, Errno> {
        {
            let mut inside = self.inside.lock();
            let Inside { discipline, shown, .. } = &mut *inside;
            let char = |which| discipline.settings().char(which);
            match what as u32 {
                TCOOFF => discipline.stop(),
                TCOON => discipline.start(shown),
                TCIOFF => shown.show(&[char(VSTOP)]),
                TCION => shown.show(&[char(VSTART)]),
                _ => return Err(Errno(EINVAL)),
            }
        }
        self.waiting.wake();
        self.others.wake();
        Ok(0)
    }
    fn flush(&self, side: Side, what: u64) -> Result<u64, Errno> {
        let what = what as u32;
        if !matches!(what, TCIFLUSH | TCOFLUSH | TCIOFLUSH) {
            return Err(Errno(EINVAL));
        }
        {
            let mut inside = self.inside.lock();
            let Inside { discipline, came, shown, .. } = &mut *inside;
            // What one end reads the other one wrote.
            let typed = if side == Side::Own { TCIFLUSH } else { TCOFLUSH };
            if what == typed || what == TCIOFLUSH {
                came.skip(usize::MAX);
                if side == Side::Own {
                    discipline.forget();
                }
            }
            if what != typed {
                match (shown, side) {
                    (Shown::Queue(queue), Side::Other) => queue.truncate(0),
                    (shown, _) => shown.flush(),
                }
            }
        }
        self.waiting.wake();
        self.others.wake();
        Ok(0)
    }
}
