//! A terminal: what comes, what is shown of it, who waits.

use super::super::channel::Waits;
use super::super::events::Events;
use super::super::queue::Queue;
use super::super::signal::bit;
use super::super::transfer::Transfer;
use super::super::waiters::Waiters;
use super::super::{streams, user};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};
use foliant_linux::Errno;
use foliant_terminal::{Discipline, Screen, Settings};
use linux_raw_sys::errno::EIO;
use linux_raw_sys::general::SIGWINCH;
use spin::Mutex;

/// Bytes that wait on either side.
const ROOM: usize = 64 << 10;
/// Bytes that are moved in one piece.
pub(super) const PIECE: usize = 256;
/// Bytes of what was shown that stay where all that nobody has seen is dropped: those that Linux
/// has handed on already.
const SEEN: usize = 4095;

/// A terminal.
pub(super) struct Tty {
    pub(super) device: u64,
    pub(super) inside: Mutex<Inside>,
    /// Who waits to read it, or for room.
    pub(super) waiting: Waiters,
    /// Who waits at the other end.
    pub(super) others: Waiters,
    /// Whose it is, and which group is in the foreground; 0 is none.
    pub(super) session: AtomicU32,
    pub(super) front: AtomicU32,
}

/// What its lock guards.
pub(super) struct Inside {
    pub(super) discipline: Discipline,
    /// What was typed, before the discipline takes it.
    pub(super) came: Queue,
    pub(super) shown: Shown,
    /// Rows, columns, and both in dots.
    pub(super) window: [u16; 4],
    /// The other end is gone (Y3).
    pub(super) is_hung_up: bool,
    /// Opened files of it, and whether there was one.
    pub(super) opened: usize,
    pub(super) was_opened: bool,
    /// Nobody may open it yet.
    pub(super) is_locked: bool,
}

/// Where it is shown.
pub(super) enum Shown {
    /// By whoever started the program.
    Line,
    /// By another program.
    Queue(Queue),
}

impl Screen for Shown {
    fn room(&self) -> usize {
        match self {
            Shown::Line => usize::MAX,
            Shown::Queue(queue) => queue.room(),
        }
    }
    fn show(&mut self, bytes: &[u8]) {
        match self {
            Shown::Line => streams::show(bytes),
            Shown::Queue(queue) => _ = queue.push(bytes), // where memory runs out it is not seen
        }
    }
    fn flush(&mut self) {
        if let Shown::Queue(queue) = self {
            queue.truncate(SEEN);
        }
    }
}

impl Inside {
    /// Lets the discipline take what came; says which signals follow.
    fn take_in(&mut self) -> u64 {
        let mut signals = 0;
        loop {
            let mut piece = [0; PIECE];
            let into = &mut Transfer::within(&mut piece);
            let count = self.came.peek(PIECE, into).unwrap_or(0);
            let received = self.discipline.receive(&piece[..count], &mut self.shown);
            self.came.skip(received.taken);
            signals |= received.signals;
            if received.taken < PIECE {
                return signals;
            }
        }
    }
}

impl Tty {
    pub(super) fn new(device: u64, is_line: bool, window: [u16; 4]) -> Result<Arc<Tty>, Errno> {
        let discipline = Discipline::new(Settings::USUAL).map_err(|_| Errno::NOMEM)?;
        let inside = Inside {
            discipline,
            came: Queue::of(ROOM),
            shown: if is_line { Shown::Line } else { Shown::Queue(Queue::of(ROOM)) },
            window,
            is_hung_up: false,
            opened: 0,
            was_opened: false,
            is_locked: !is_line,
        };
        Ok(Arc::new(Tty {
            device,
            inside: Mutex::new(inside),
            waiting: Waiters::new(),
            others: Waiters::new(),
            session: AtomicU32::new(0),
            front: AtomicU32::new(0),
        }))
    }
    /// Bytes that are typed, as far as there is room.
    pub(super) fn type_in(&self, bytes: &[u8]) -> Result<usize, Errno> {
        let (taken, signals) = {
            let mut inside = self.inside.lock();
            let taken = inside.came.push(bytes)?;
            (taken, inside.take_in())
        };
        self.tell(signals);
        Ok(taken)
    }
    /// What came is taken in, behind a read or other settings.
    pub(super) fn take_in(&self) {
        let signals = self.inside.lock().take_in();
        self.tell(signals);
    }
    /// Signals, and wakes all that may go on (Y1).
    fn tell(&self, signals: u64) {
        self.signal_front(signals);
        self.waiting.wake();
        self.others.wake();
    }

    /// Shows what a program writes.
    pub(super) fn write(&self, from: &mut Transfer, waits: Waits) -> Result<usize, Errno> {
        self.may_write()?;
        from.hand_on::<PIECE>(|piece| {
            let put_some = || {
                let mut inside = self.inside.lock();
                let Inside { discipline, shown, is_hung_up, .. } = &mut *inside;
                if *is_hung_up {
                    return Some(Err(Errno(EIO)));
                }
                let some = discipline.write(piece, shown);
                (some > 0).then_some(Ok(some))
            };
            let some = waits.get(&self.waiting, put_some).flatten()?;
            self.others.wake_for(Events::IN);
            Ok(some)
        })
    }
    /// What may be done with it now.
    pub(super) fn events(&self) -> Events {
        let inside = self.inside.lock();
        if inside.is_hung_up {
            return Events::IN | Events::OUT | Events::ERROR | Events::HANGUP;
        }
        let has_room = inside.shown.room() >= PIECE;
        Events::IN.when(inside.discipline.is_ready()) | Events::OUT.when(has_room)
    }
    /// The other end is gone: who reads it hears so.
    pub(super) fn hang_up(&self) {
        self.inside.lock().is_hung_up = true;
        self.tell_leader();
        self.waiting.wake();
        self.others.wake();
    }
    /// Sets how large it is; where that is another size, who is in front hears of it.
    pub(super) fn set_window(&self, window: [u16; 4]) {
        let before = core::mem::replace(&mut self.inside.lock().window, window);
        if before != window {
            self.signal_front(bit(SIGWINCH));
        }
    }
    pub(super) fn window_at(&self, at: u64) -> Result<u64, Errno> {
        let window = self.inside.lock().window;
        let mut bytes = [0; 8];
        for (to, word) in bytes.chunks_exact_mut(2).zip(window) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        user::put_bytes(at, &bytes).map(|()| 0)
    }
    pub(super) fn session(&self) -> u32 {
        self.session.load(Ordering::Acquire)
    }
    pub(super) fn front(&self) -> u32 {
        self.front.load(Ordering::Acquire)
    }
}
