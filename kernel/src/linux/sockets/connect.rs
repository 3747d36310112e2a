//! Names and connections: how one socket finds another.

use super::super::channel::{Channel, Waits};
use super::super::events::Events;
use super::address::{Address, Family};
use super::end::{Backlog, Client, End, Kind, NO_TASK, Task};
use super::ports::{self, Claim, Named};
use super::{Link, Options, Socket};
use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use foliant_linux::Errno;
use linux_raw_sys::errno::{
    ECONNREFUSED, EINVAL, EISCONN, ENETUNREACH, ENOTCONN, EOPNOTSUPP, EPROTOTYPE,
};
use spin::Mutex;

/// Those that wait to be accepted, at most: Linux's own bound.
const BACKLOG_MAX: usize = 4096;

/// What a name of a file leads to.
pub(in super::super) struct Bound(Weak<End>);

impl Bound {
    pub(in super::super) fn end(&self) -> Option<Arc<End>> {
        self.0.upgrade()
    }
}

/// It is a name alone.
impl Channel for Bound {}

impl Socket {
    fn of(own: Arc<End>, link: Link) -> Arc<Socket> {
        let options = Mutex::new(Options::default());
        Arc::new(Socket {
            family: own.family,
            kind: own.kind,
            own,
            link: Mutex::new(link),
            options,
        })
    }
    pub(in super::super) fn new(family: Family, kind: Kind, task: Task) -> Arc<Socket> {
        Socket::of(End::new(kind, family, task), Link::default())
    }
    /// Two that are connected.
    pub(in super::super) fn pair(kind: Kind, task: Task) -> [Arc<Socket>; 2] {
        let ends = [(); 2].map(|()| End::new(kind, Family::Unix, task));
        let of = |own: usize| {
            let peer = Some(ends[1 - own].clone());
            Socket::of(ends[own].clone(), Link { peer, ..Link::default() })
        };
        [of(0), of(1)]
    }

    /// What the name of a file that it gets is to lead to.
    pub(in super::super) fn bound(&self) -> Arc<Bound> {
        Arc::new(Bound(Arc::downgrade(&self.own)))
    }
    pub(in super::super) fn is_bound(&self) -> bool {
        self.link.lock().local != Address::None
    }
    /// It has the name of a file now.
    pub(in super::super) fn set_path(&self, path: Address) {
        let mut link = self.link.lock();
        (link.local, link.name) = (path, Some(Named::Path));
    }
    /// Gives it a name that is no file's, or a port.
    pub(in super::super) fn claim(&self, address: &Address) -> Result<(), Errno> {
        if self.is_bound() {
            return Err(Errno(EINVAL));
        }
        self.claim_any(address).map(|_| ())
    }
    /// The same without asking whether it has one.
    pub(super) fn claim_any(&self, address: &Address) -> Result<Address, Errno> {
        let (name, local) = match address {
            Address::Path(_) => return Err(Errno(EINVAL)),
            Address::None if self.family == Family::Unix => {
                let text = ports::free_text();
                (ports::claim_text(&self.own, &text)?, Address::Abstract(text))
            }
            Address::None => {
                let any = (self.family.any(), 0);
                ports::claim_port(&self.own, any, self.claim_kind())?
            }
            Address::Abstract(text) => (ports::claim_text(&self.own, text)?, address.clone()),
            Address::Port(host, port) => {
                ports::claim_port(&self.own, (*host, *port), self.claim_kind())?
            }
        };
        let before = {
            let mut link = self.link.lock();
            link.local = local.clone();
            link.name.replace(name)
        };
        drop(before);
        Ok(local)
    }
    fn claim_kind(&self) -> Claim {
        let options = self.options.lock();
        Claim { shares: options.shares(), six_only: options.six_only() }
    }
    /// Its own name, and whom it is connected to.
    pub(in super::super) fn name(&self) -> Address {
        self.link.lock().local.clone()
    }
    pub(in super::super) fn peer_name(&self) -> Result<Address, Errno> {
        let link = self.link.lock();
        link.peer.as_ref().map(|_| link.remote.clone()).ok_or(Errno(ENOTCONN))
    }
    /// Who is at the other end.
    pub(in super::super) fn peer_task(&self) -> Task {
        self.peer().map_or(NO_TASK, |peer| peer.task())
    }
    /// What the next call would be told.
    pub(in super::super) fn take_error(&self) -> Option<Errno> {
        self.own.inside.lock().error.take()
    }
    pub(in super::super) fn set_error(&self, why: Errno) {
        self.own.inside.lock().error = Some(why);
        self.own.waiting.wake();
    }
    /// Whether a connection that is refused is told of by the next call.
    pub(in super::super) fn is_told_later(&self, waits: Waits) -> bool {
        waits == Waits::No && self.kind == Kind::Stream && self.family != Family::Unix
    }
    pub(in super::super) fn is_listening(&self) -> bool {
        self.own.inside.lock().backlog.is_some()
    }
    /// Gives what comes for it another bound.
    pub(in super::super) fn set_room(&self, bytes: usize) {
        self.own.inside.lock().bytes.set_most(bytes);
    }

    /// Where an address leads that is no name of a file.
    pub(in super::super) fn find(&self, address: &Address) -> Result<Arc<End>, Errno> {
        match address {
            Address::None | Address::Path(_) => Err(Errno(EINVAL)),
            Address::Abstract(text) => ports::find_text(self.kind, text).ok_or(Errno(ECONNREFUSED)),
            Address::Port(host, _) if !host.is_own() => Err(Errno(ENETUNREACH)),
            Address::Port(host, port) => {
                let found = ports::find_port(self.kind, host.reached(), *port);
                found.ok_or(Errno(ECONNREFUSED))
            }
        }
    }

    pub(in super::super) fn listen(&self, most: usize, task: Task) -> Result<(), Errno> {
        if self.kind == Kind::Datagram {
            return Err(Errno(EOPNOTSUPP));
        }
        if self.peer().is_some() {
            return Err(Errno(EINVAL));
        }
        if !self.is_bound() {
            if self.family == Family::Unix {
                return Err(Errno(EINVAL));
            }
            self.claim_any(&Address::None)?;
        }
        self.own.set_task(task);
        let most = most.min(BACKLOG_MAX);
        let mut inside = self.own.inside.lock();
        match &mut inside.backlog {
            Some(backlog) => backlog.most = most,
            none => *none = Some(Backlog { most, clients: VecDeque::new() }),
        }
        Ok(())
    }

    /// Connects it; one for datagrams only notes where they go.
    pub(in super::super) fn connect(
        &self,
        (to, address): (Arc<End>, Address),
        waits: Waits,
        task: Task,
    ) -> Result<(), Errno> {
        if to.kind != self.kind {
            return Err(Errno(EPROTOTYPE));
        }
        let (remote, source) = match address {
            Address::Port(host, port) => {
                (Address::Port(host.reached(), port), Some(host.reached().source()))
            }
            address => (address, None),
        };
        if self.kind != Kind::Datagram {
            if self.is_listening() {
                return Err(Errno(EINVAL));
            }
            if self.peer().is_some() {
                return Err(Errno(EISCONN));
            }
        }
        if let Some(source) = source {
            if !self.is_bound() {
                self.claim_any(&Address::None)?;
            }
            let mut link = self.link.lock();
            if let Address::Port(host, port) = link.local
                && host.is_any()
            {
                link.local = Address::Port(source, port);
            }
        }
        if self.kind == Kind::Datagram {
            let before = {
                let mut link = self.link.lock();
                link.remote = remote;
                link.peer.replace(to)
            };
            drop(before);
            return Ok(());
        }
        self.own.set_task(task);
        let (own, local) = (End::new(to.kind, to.family, to.task()), self.name());
        {
            let mut link = self.link.lock();
            if link.peer.is_some() {
                return Err(Errno(EISCONN));
            }
            link.peer = Some(own.clone());
            link.remote = remote.clone();
        }
        let mut client = Some(Client { own, peer: self.own.clone(), local: remote, remote: local });
        let join = || {
            let mut inside = to.inside.lock();
            let Some(backlog) = &mut inside.backlog else { return Some(Err(Errno(ECONNREFUSED))) };
            if backlog.clients.len() > backlog.most {
                return None;
            }
            backlog.clients.extend(client.take());
            Some(Ok(()))
        };
        let until = self.options.lock().send_limit();
        let joined = Socket::get(waits, (&to.waiting, until), join);
        if joined.is_err() {
            let mut link = self.link.lock();
            (link.peer, link.remote) = (None, Address::None);
        } else {
            to.waiting.wake_for(Events::IN);
            self.own.waiting.wake_for(Events::OUT);
        }
        joined
    }
    /// Lets a datagram's socket go where it is told to again.
    pub(in super::super) fn disconnect(&self) {
        let before = {
            let mut link = self.link.lock();
            link.remote = Address::None;
            link.peer.take()
        };
        drop(before);
    }

    /// Waits for somebody who connects.
    pub(in super::super) fn accept(&self, waits: Waits) -> Result<(Arc<Socket>, Address), Errno> {
        if self.kind == Kind::Datagram {
            return Err(Errno(EOPNOTSUPP));
        }
        let take = || {
            let mut inside = self.own.inside.lock();
            let Some(backlog) = &mut inside.backlog else { return Some(Err(Errno(EINVAL))) };
            backlog.clients.pop_front().map(Ok)
        };
        let until = self.options.lock().receive_limit();
        let client = Socket::get(waits, (&self.own.waiting, until), take)?;
        self.own.waiting.wake_for(Events::OUT);
        let Client { own, peer, local, remote } = client;
        let from = remote.clone();
        let link = Link { local, remote, peer: Some(peer), ..Link::default() };
        Ok((Socket::of(own, link), from))
    }

    /// Ends what it receives, what it sends, or both.
    pub(in super::super) fn shut(&self, reads: bool, writes: bool) -> Result<(), Errno> {
        let peer = {
            let mut link = self.link.lock();
            let is_listening = self.own.inside.lock().backlog.is_some();
            if link.peer.is_none() && self.family != Family::Unix && !is_listening {
                return Err(Errno(ENOTCONN));
            }
            link.is_shut |= writes;
            link.peer.clone()
        };
        let clients = {
            let mut own = self.own.inside.lock();
            own.is_shut |= reads;
            let is_network = own.is_network;
            let closed = own.backlog.take_if(|_| reads && is_network);
            closed.map(|backlog| backlog.clients)
        };
        for client in clients.into_iter().flatten() {
            client.peer.lose_peer(true);
        }
        if let Some(peer) = peer {
            if writes && self.kind != Kind::Datagram {
                peer.inside.lock().is_over = true;
            }
            peer.waiting.wake();
        }
        self.own.waiting.wake();
        Ok(())
    }
    /// Whether what it sends may go where nobody is.
    pub(in super::super) fn goes_nowhere(&self) -> bool {
        self.kind == Kind::Datagram && self.family != Family::Unix
    }
    /// Where a connected socket sends what has an address: nowhere else.
    pub(in super::super) fn foreign(
        &self,
        address: Address,
    ) -> Result<Option<(Arc<End>, Address)>, Errno> {
        match self.family {
            // The address of a stream on a network is not looked at.
            Family::Four | Family::Six => Ok(None),
            Family::Unix => Ok(Some((self.own.clone(), address))),
        }
    }
}
