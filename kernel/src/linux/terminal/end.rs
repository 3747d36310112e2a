//! A terminal as programs have it opened.

use super::super::channel::{Channel, Waits};
use super::super::content::number;
use super::super::events::Events;
use super::super::transfer::Transfer;
use super::super::waiters::Waiters;
use super::job;
use super::requests::Side;
use super::tty::Tty;
use alloc::string::String;
use alloc::sync::Arc;
use foliant_linux::Errno;
use linux_raw_sys::errno::{EIO, ENXIO};
use linux_raw_sys::general::O_NOCTTY;

/// A terminal by its name.
pub(super) struct Named(pub(super) Arc<Tty>);

/// An opened file of a terminal; it is counted until it is dropped.
pub(super) struct End(Arc<Tty>);

/// `/dev/tty`: the terminal of whoever opens it.
pub(super) struct Own;

impl End {
    pub(super) fn of(tty: Arc<Tty>) -> Result<Arc<End>, Errno> {
        {
            let mut inside = tty.inside.lock();
            if inside.is_hung_up || inside.is_locked {
                return Err(Errno(EIO));
            }
            inside.opened += 1;
            inside.was_opened = true;
        }
        tty.others.wake();
        Ok(Arc::new(End(tty)))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.0.inside.lock().opened -= 1;
        self.0.others.wake();
    }
}

impl Channel for End {
    fn read(&self, into: &mut Transfer, waits: Waits) -> Result<usize, Errno> {
        self.0.read(into, waits)
    }
    fn write(&self, from: &mut Transfer, waits: Waits) -> Result<usize, Errno> {
        self.0.write(from, waits)
    }
    fn events(&self) -> Events {
        self.0.events()
    }
    fn waiters(&self) -> &Waiters {
        &self.0.waiting
    }
    fn device(&self) -> u64 {
        self.0.device
    }
    fn ioctl(&self, request: u32, at: u64) -> Result<u64, Errno> {
        self.0.request(Side::Own, request, at)
    }
    fn label(&self, _: u64) -> String {
        String::from("/dev/pts (deleted)")
    }
}

impl Channel for Named {
    fn device(&self) -> u64 {
        self.0.device
    }
    fn open(self: Arc<Named>, flags: u32) -> Result<Arc<dyn Channel>, Errno> {
        let end = End::of(self.0.clone())?;
        if flags & O_NOCTTY == 0 {
            let _ = self.0.take_control(false); // only a leader without a terminal wants one
        }
        Ok(end)
    }
}

impl Channel for Own {
    fn device(&self) -> u64 {
        number(5, 0)
    }
    fn open(self: Arc<Own>, _: u32) -> Result<Arc<dyn Channel>, Errno> {
        let tty = job::terminal_of(&*job::own()?).ok_or(Errno(ENXIO))?;
        Ok(End::of(tty)?)
    }
}
