//! An end: what came for a socket, and who waits for it.

use super::super::events::Events;
use super::super::queue::Queue;
use super::super::waiters::Waiters;
use super::address::{Address, Family};
use super::files::Files;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use foliant_linux::Errno;
use linux_raw_sys::errno::ECONNRESET;
use spin::Mutex;

/// Bytes that wait in an end, at most.
pub(super) const ROOM: usize = 212_992;
/// Bytes that a message costs besides its own (sockets::K2).
const COST: usize = 576;
/// A bit that no event has: those that connect are waited for.
pub(super) const LISTENS: Events = Events(1 << 31);

/// What a socket sends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in super::super) enum Kind {
    /// Bytes.
    Stream,
    /// Messages to whom it is connected.
    Packet,
    /// Messages to anybody.
    Datagram,
}

/// Who made an end: a process, and its effective user and group.
pub(in super::super) type Task = [u32; 3];
/// Nobody, as Linux tells of it.
pub(super) const NO_TASK: Task = [0, u32::MAX, u32::MAX];

/// An end.
pub(in super::super) struct End {
    pub(in super::super) kind: Kind,
    pub(super) family: Family,
    /// Who made it.
    task: Mutex<Task>,
    pub(super) inside: Mutex<Inside>,
    pub(super) waiting: Waiters,
}

/// A message.
pub(super) struct Message {
    pub(super) bytes: Vec<u8>,
    pub(super) from: Address,
    pub(super) files: Files,
}

/// Somebody who has connected: an end for the socket that accepts, and the other one's.
pub(super) struct Client {
    pub(super) own: Arc<End>,
    pub(super) peer: Arc<End>,
    pub(super) local: Address,
    pub(super) remote: Address,
}

/// Those that have connected, and are not accepted yet.
pub(super) struct Backlog {
    pub(super) most: usize,
    pub(super) clients: VecDeque<Client>,
}

pub(super) struct Inside {
    pub(super) bytes: Queue,
    /// Bytes of the stream that were taken so far.
    pub(super) taken: u64,
    /// Descriptors, each with the bytes of the stream that they come with.
    pub(super) files: VecDeque<(Range<u64>, Files)>,
    pub(super) messages: VecDeque<Message>,
    /// Bytes of the messages, and what they cost besides.
    pub(super) cost: usize,
    pub(super) backlog: Option<Backlog>,
    /// Nothing more comes: the other one said so.
    pub(super) is_over: bool,
    /// The other one is closed.
    pub(super) is_alone: bool,
    /// It takes no more itself.
    pub(super) is_shut: bool,
    /// Its socket is closed.
    pub(super) is_closed: bool,
    /// It came by a port.
    pub(super) is_network: bool,
    /// The other one was closed early; or this one is closed, and has been written to.
    pub(super) is_reset: bool,
    /// What the next call is told.
    pub(super) error: Option<Errno>,
}

/// What an end has left when its socket is closed.
pub(super) struct Left {
    pub(super) had_bytes: bool,
    pub(super) clients: Vec<Arc<End>>,
    pub(super) files: Vec<Files>,
}

impl End {
    pub(super) fn new(kind: Kind, family: Family, task: Task) -> Arc<End> {
        let inside = Inside {
            bytes: Queue::of(ROOM),
            taken: 0,
            files: VecDeque::new(),
            messages: VecDeque::new(),
            cost: 0,
            backlog: None,
            is_over: false,
            is_alone: false,
            is_shut: false,
            is_closed: false,
            is_network: family != Family::Unix,
            is_reset: false,
            error: None,
        };
        let task = Mutex::new(task);
        Arc::new(End { kind, family, task, inside: Mutex::new(inside), waiting: Waiters::new() })
    }
    /// An end that nobody has.
    pub(in super::super) fn nobody(kind: Kind, family: Family) -> Arc<End> {
        let end = End::new(kind, family, NO_TASK);
        end.inside.lock().is_closed = true;
        end
    }
    pub(super) fn task(&self) -> Task {
        *self.task.lock()
    }
    pub(super) fn set_task(&self, task: Task) {
        *self.task.lock() = task;
    }
    /// The other one is closed; it may not have read everything.
    pub(super) fn lose_peer(&self, is_early: bool) {
        {
            let mut inside = self.inside.lock();
            (inside.is_over, inside.is_alone) = (true, true);
            if is_early {
                inside.is_reset = true;
                inside.error = Some(Errno(ECONNRESET));
            }
        }
        self.waiting.wake();
    }
}

impl Inside {
    /// Bytes that a read gets at most.
    pub(super) fn waits(&self) -> usize {
        self.bytes.len() + self.messages.front().map_or(0, |message| message.bytes.len())
    }
    /// Whether a stream's end, or one for messages, has room for what is sent next.
    pub(super) fn has_room(&self, kind: Kind) -> bool {
        self.is_closed
            || self.is_shut
            || match kind {
                Kind::Stream => self.bytes.room() >= self.bytes.most() / 4,
                Kind::Packet | Kind::Datagram => self.cost <= self.bytes.most() / 4 * 3,
            }
    }
    /// Whether a message of so many bytes has room; one has always.
    pub(super) fn takes(&self, bytes: usize) -> bool {
        self.messages.is_empty() || self.cost + COST + bytes <= self.bytes.most()
    }
    pub(super) fn put(&mut self, message: Message) {
        self.cost += COST + message.bytes.len();
        self.messages.push_back(message);
    }
    pub(super) fn take(&mut self) -> Option<Message> {
        let message = self.messages.pop_front()?;
        self.cost -= COST + message.bytes.len();
        Some(message)
    }
    /// What `poll` tells of it, but for room at the other end.
    pub(super) fn events(&self, kind: Kind) -> Events {
        if let Some(backlog) = &self.backlog {
            return LISTENS | Events::IN.when(!backlog.clients.is_empty());
        }
        let is_over = self.is_over || self.is_shut;
        let has_some = is_over || !self.bytes.is_empty() || !self.messages.is_empty();
        let is_gone = self.is_alone && kind != Kind::Datagram && !self.is_streams_half();
        Events::IN.when(has_some)
            | Events::READ_HANGUP.when(is_over)
            | Events::HANGUP.when(is_gone)
            | Events::ERROR.when(self.error.is_some())
    }
    /// Whether the other end's close is only the end of what it sends: so it is on a network.
    fn is_streams_half(&self) -> bool {
        self.is_network && !self.is_reset && self.error.is_none()
    }
    pub(super) fn close(&mut self) -> Left {
        self.is_closed = true;
        let had_bytes = !self.bytes.is_empty() || !self.messages.is_empty();
        self.bytes = Queue::of(0);
        let files = core::mem::take(&mut self.files).into_iter().map(|(_, files)| files);
        let messages = core::mem::take(&mut self.messages).into_iter();
        let files = files.chain(messages.map(|message| message.files)).collect();
        let backlog = self.backlog.take().map(|backlog| backlog.clients);
        let clients = backlog.into_iter().flatten().map(|client| client.peer).collect();
        Left { had_bytes, clients, files }
    }
}
