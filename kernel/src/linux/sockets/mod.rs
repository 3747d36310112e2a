//! Sockets: streams, packets and datagrams between programs, by names of files, by names of their
//! own, or by the ports of this machine.
//!
//! ```text
//!   Socket ── own ─▶ End: what came for it, who waits
//!     └─ peer ─▶ End of the other one ◀─ own ── Socket
//!
//!   bind: a name leads to the end · listen: ends of its own for whoever connects · accept: a Socket
//! ```
//!
//! **Invariants**
//! - K1. A socket holds the end that it sends to, never the other socket: where that is closed, its
//!   end says so.
//! - K2. What waits in an end has a bound, of bytes and of what each message costs besides.
//! - K3. Descriptors on their way are counted for all sockets together, and let go of one after the
//!   other: a socket within a socket takes no stack. Those that lead in a circle stay for ever, and
//!   count.
//!
//! **Locking**: a socket's link; an end's inside; names. None is held under another one, but names
//! under nothing and ends under names. Waiters are woken without any.
//!
//! **Not here**: networks. Addresses beside those of the machine itself are not reached.

mod address;
mod connect;
mod end;
mod files;
mod message;
mod options;
mod ports;
mod stream;

use super::channel::{Channel, Waits};
use super::events::Events;
use super::transfer::Transfer;
use super::user;
use super::waiters::Waiters;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use foliant_linux::Errno;
use linux_raw_sys::errno::ENOTTY;
use linux_raw_sys::ioctl::{FIONREAD, TIOCOUTQ};
use spin::Mutex;

pub(super) use address::{Address, Family};
pub(super) use connect::Bound;
pub(super) use end::{End, Kind, Task};
pub(super) use files::Files;
use options::Options;
use ports::Named;

/// A socket.
pub(super) struct Socket {
    pub(super) family: Family,
    pub(super) kind: Kind,
    own: Arc<End>,
    link: Mutex<Link>,
    pub(super) options: Mutex<Options>,
}

/// Whom a socket is connected to, and its names.
#[derive(Default)]
struct Link {
    local: Address,
    remote: Address,
    peer: Option<Arc<End>>,
    /// The name that leads to it.
    name: Option<Named>,
    /// It sends no more.
    is_shut: bool,
}

/// How a call sends.
pub(super) struct Sending {
    /// Where it goes, if not to whom the socket is connected.
    pub(super) to: Option<(Arc<End>, Address)>,
    pub(super) files: Files,
    pub(super) waits: Waits,
}

/// How a call receives.
#[derive(Clone, Copy)]
pub(super) struct Receiving {
    pub(super) waits: Waits,
    /// What is received stays.
    pub(super) peeks: bool,
    /// It waits until there is no more room.
    pub(super) all: bool,
}

/// What a call received.
#[derive(Default)]
pub(super) struct Received {
    pub(super) count: usize,
    /// Bytes that the message had, of which some may be lost.
    pub(super) whole: usize,
    pub(super) from: Address,
    pub(super) files: Files,
}

impl Socket {
    pub(super) fn send(&self, from: &mut Transfer, how: Sending) -> Result<usize, Errno> {
        match self.kind {
            Kind::Stream => self.send_stream(from, how),
            Kind::Packet | Kind::Datagram => self.send_message(from, how),
        }
    }
    pub(super) fn receive(&self, into: &mut Transfer, how: Receiving) -> Result<Received, Errno> {
        match self.kind {
            Kind::Stream => self.receive_stream(into, how),
            Kind::Packet | Kind::Datagram => self.receive_message(into, how),
        }
    }
    fn peer(&self) -> Option<Arc<End>> {
        self.link.lock().peer.clone()
    }
}

impl Channel for Socket {
    fn read(&self, into: &mut Transfer, waits: Waits) -> Result<usize, Errno> {
        let received = self.receive(into, Receiving { waits, peeks: false, all: false })?;
        Ok(received.count)
    }
    fn write(&self, from: &mut Transfer, waits: Waits) -> Result<usize, Errno> {
        self.send(from, Sending { to: None, files: Files::default(), waits })
    }
    fn events(&self) -> Events {
        let (peer, is_shut) = {
            let link = self.link.lock();
            (link.peer.clone(), link.is_shut)
        };
        let own = self.own.inside.lock().events(self.kind);
        let own = match (&own, self.kind) {
            (own, Kind::Datagram) => *own,
            (own, _) if own.has(end::LISTENS) => return *own & Events(!end::LISTENS.0),
            (own, _) if peer.is_none() => *own | Events::HANGUP,
            (own, _) => *own,
        };
        let (has_room, is_refused) = peer.map_or((true, false), |peer| {
            let inside = peer.inside.lock();
            (inside.has_room(self.kind), inside.is_shut && self.family == Family::Unix)
        });
        let has_room = is_shut || has_room;
        let is_over = own.has(Events::READ_HANGUP) && (is_shut || is_refused);
        own | Events::HANGUP.when(is_over && self.kind != Kind::Datagram)
            | Events::OUT.when(has_room)
    }
    fn waiters(&self) -> &Waiters {
        &self.own.waiting
    }
    fn ioctl(&self, request: u32, at: u64) -> Result<u64, Errno> {
        let count = match request {
            FIONREAD => self.own.inside.lock().waits() as u32,
            TIOCOUTQ => 0,
            _ => return Err(Errno(ENOTTY)),
        };
        user::put(at, &count).map(|()| 0)
    }
    fn label(&self, inode: u64) -> String {
        format!("socket:[{inode}]")
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let link = core::mem::take(self.link.get_mut());
        let left = self.own.inside.lock().close();
        if let Some(peer) = link.peer
            && self.kind != Kind::Datagram
        {
            peer.lose_peer(left.had_bytes);
        }
        for client in left.clients {
            client.lose_peer(true);
        }
        self.own.waiting.wake();
        let files: Vec<Files> = left.files;
        files::let_go(files); // K3
    }
}
