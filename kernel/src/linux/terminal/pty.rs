//! Pseudo terminals: what one program types and sees, another one reads and writes.
//!
//! ```text
//!   open /dev/ptmx ─▶ Master ─▶ Tty ─▶ /dev/pts/N ─▶ End
//!        closed ─▶ the name goes, who has an end hears a hangup
//! ```

use super::super::channel::{Channel, Waits};
use super::super::content::{Content, number};
use super::super::events::Events;
use super::super::hold::Hold;
use super::super::opened::Opened;
use super::super::transfer::Transfer;
use super::super::waiters::Waiters;
use super::super::{names, user};
use super::end::Named;
use super::requests::Side;
use super::tty::{PIECE, Shown, Tty};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::any::Any;
use foliant_files::Body;
use foliant_linux::Errno;
use linux_raw_sys::errno::{EFAULT, EIO, ENOSPC, ENOTTY};
use linux_raw_sys::general::S_IFCHR;
use linux_raw_sys::ioctl::{TIOCGPTLCK, TIOCGPTN, TIOCSPTLCK};
use spin::Mutex;

/// Pseudo terminals, at most.
const MOST: u32 = 4096;

static NUMBERS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// `/dev/ptmx`: each opened file of it is a new pseudo terminal.
pub(super) struct Multiplexer;

/// The end at which it is typed.
pub(super) struct Master {
    tty: Arc<Tty>,
    number: Number,
}

/// A number that no other pseudo terminal has.
struct Number(u32);

impl Number {
    fn take() -> Result<Number, Errno> {
        let mut all = NUMBERS.lock();
        let free = (0..MOST).find(|number| !all.contains(number)).ok_or(Errno(ENOSPC))?;
        all.insert(free);
        Ok(Number(free))
    }
    fn name(&self) -> String {
        format!("/dev/pts/{}", self.0)
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        NUMBERS.lock().remove(&self.0);
    }
}

impl Channel for Multiplexer {
    fn device(&self) -> u64 {
        number(5, 2)
    }
    fn open(self: Arc<Multiplexer>, _: u32) -> Result<Arc<dyn Channel>, Errno> {
        let own = Number::take()?;
        let device = number(136, own.0.into());
        let tty = Tty::new(device, false, [0; 4])?;
        tty.enlist();
        let content = Content::Channel(Arc::new(Named(tty.clone())));
        names::make(own.name().as_bytes(), S_IFCHR | 0o620, Body::Leaf(content))
            .map_err(|why| Errno(why.errno()))?;
        Ok(Arc::new(Master { tty, number: own }))
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        names::remove(self.number.name().as_bytes());
        self.tty.hang_up();
    }
}

impl Channel for Master {
    fn read(&self, into: &mut Transfer, waits: Waits) -> Result<usize, Errno> {
        let mut done = 0;
        while into.left() > 0 {
            let mut piece = [0; PIECE];
            let room = PIECE.min(into.left());
            let take = || {
                let mut inside = self.tty.inside.lock();
                let is_left = inside.was_opened && inside.opened == 0;
                let Shown::Queue(queue) = &mut inside.shown else { return Some(Err(Errno(EIO))) };
                match queue.is_empty() {
                    true if done > 0 => Some(Ok(0)),
                    true => is_left.then_some(Err(Errno(EIO))),
                    false => Some(queue.take(&mut Transfer::within(&mut piece[..room]))),
                }
            };
            let count = waits.get(&self.tty.others, take).flatten()?;
            let put = into.put(&piece[..count]);
            done += put;
            if put < count || count < room {
                break;
            }
        }
        self.tty.take_in(); // echoes may have waited for room
        if done == 0 && into.left() > 0 { Err(Errno(EFAULT)) } else { Ok(done) }
    }
    fn write(&self, from: &mut Transfer, waits: Waits) -> Result<usize, Errno> {
        from.hand_on::<PIECE>(|piece| {
            let type_in = || match self.tty.type_in(piece) {
                Ok(0) => None,
                answer => Some(answer),
            };
            waits.get(&self.tty.others, type_in).flatten()
        })
    }
    fn events(&self) -> Events {
        let inside = self.tty.inside.lock();
        let has = matches!(&inside.shown, Shown::Queue(queue) if !queue.is_empty());
        let is_left = inside.was_opened && inside.opened == 0;
        let has_room = inside.came.room() > 0;
        Events::IN.when(has) | Events::OUT.when(has_room) | Events::HANGUP.when(is_left)
    }
    fn waiters(&self) -> &Waiters {
        &self.tty.others
    }
    fn device(&self) -> u64 {
        number(5, 2)
    }
    fn ioctl(&self, request: u32, at: u64) -> Result<u64, Errno> {
        match request {
            TIOCGPTN => user::put(at, &self.number.0).map(|()| 0),
            TIOCGPTLCK => {
                let is_locked = self.tty.inside.lock().is_locked;
                user::put(at, &u32::from(is_locked)).map(|()| 0)
            }
            TIOCSPTLCK => {
                let is_locked = user::get::<u32>(at)? != 0;
                self.tty.inside.lock().is_locked = is_locked;
                Ok(0)
            }
            _ => self.tty.request(Side::Other, request, at),
        }
    }
}

/// Opens the other end of a pseudo terminal, without its name.
pub(in super::super) fn peer(master: &dyn Channel, flags: u32) -> Result<Arc<Opened>, Errno> {
    let master: &dyn Any = master;
    let Some(master) = master.downcast_ref::<Master>() else { return Err(Errno(ENOTTY)) };
    let node = names::find(master.number.name().as_bytes()).ok_or(Errno(EIO))?;
    Opened::of(Hold::of(node), flags)
}
