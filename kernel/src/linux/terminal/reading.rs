//! Reading a terminal: a line, or as many bytes as were asked for.
//!
//! ```text
//!   VMIN   VTIME    without lines a read ends
//!    0       0      at once
//!    0       t      with a byte, or after t tenths of a second
//!    n       0      with n bytes
//!    n       t      with n bytes, or t tenths behind the last one
//! ```

use super::super::channel::Waits;
use super::super::clock;
use super::super::signal::CUT;
use super::super::transfer::Transfer;
use super::super::waiters::Cut;
use super::tty::{PIECE, Tty};
use foliant_linux::Errno;
use linux_raw_sys::errno::{EAGAIN, EFAULT};
use linux_raw_sys::general::{ICANON, VMIN, VTIME};

/// Nanoseconds that `VTIME` counts.
const TENTH: u64 = 100_000_000;

/// What ends a read.
struct Wanted {
    is_line: bool,
    least: usize,
    time: u64,
}

impl Tty {
    fn wanted(&self) -> Wanted {
        let inside = self.inside.lock();
        let settings = inside.discipline.settings();
        Wanted {
            is_line: settings.has_local(ICANON),
            least: settings.char(VMIN).into(),
            time: u64::from(settings.char(VTIME)) * TENTH,
        }
    }
    /// Moves what is there: of lines, one.
    fn move_out(&self, into: &mut Transfer, is_line: bool) -> Result<usize, Errno> {
        let mut done = 0;
        while into.left() > 0 {
            let mut piece = [0; PIECE];
            let room = PIECE.min(into.left());
            let read = self.inside.lock().discipline.read(&mut piece[..room]);
            let put = into.put(&piece[..read.count]);
            done += put;
            if put < read.count {
                return if done == 0 { Err(Errno(EFAULT)) } else { Ok(done) };
            }
            let goes_on = if is_line { read.goes_on } else { read.count == room };
            if !goes_on {
                break;
            }
        }
        Ok(done)
    }
    pub(super) fn read(&self, into: &mut Transfer, waits: Waits) -> Result<usize, Errno> {
        if into.left() == 0 {
            return Ok(0);
        }
        self.may_read()?;
        let first = self.wanted();
        let is_timed = !first.is_line && first.least == 0;
        let mut until = is_timed.then(|| clock::uptime() + first.time);
        let mut done = 0;
        loop {
            let wanted = self.wanted();
            let (has, is_over) = {
                let inside = self.inside.lock();
                (inside.discipline.has(), inside.is_hung_up)
            };
            if is_over {
                return Ok(done);
            }
            if has {
                done += match self.move_out(into, wanted.is_line) {
                    Err(why) if done == 0 => return Err(why),
                    moved => moved.unwrap_or(0),
                };
                self.take_in();
                let least = if wanted.is_line { 0 } else { wanted.least };
                if done >= least || into.left() == 0 {
                    return Ok(done);
                }
                until = (wanted.time > 0).then(|| clock::uptime() + wanted.time);
                continue;
            }
            if until.is_some_and(|until| clock::uptime() >= until) {
                return Ok(done);
            }
            if waits == Waits::No {
                return if done > 0 { Ok(done) } else { Err(Errno(EAGAIN)) };
            }
            let look = || {
                let inside = self.inside.lock();
                (inside.discipline.has() || inside.is_hung_up).then_some(())
            };
            match self.waiting.wait(until, look) {
                Ok(()) => {}
                Err(Cut::Signal) if done == 0 => return Err(CUT),
                Err(_) => return Ok(done),
            }
        }
    }
}
