//! Packets and datagrams: messages that come as they were sent, or not at all.

use super::super::events::Events;
use super::super::transfer::Transfer;
use super::address::{Address, Family};
use super::end::{End, Kind, Message, ROOM};
use super::{Received, Receiving, Sending, Socket, files};
use crate::heap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use foliant_linux::Errno;
use linux_raw_sys::errno::{
    ECONNREFUSED, EDESTADDRREQ, EISCONN, EMSGSIZE, ENOTCONN, EPIPE, EPROTOTYPE,
};

/// Bytes of a message, at most.
fn most(family: Family) -> usize {
    match family {
        Family::Unix => ROOM - 32,
        Family::Four => 65_507,
        Family::Six => 65_527,
    }
}

impl Socket {
    pub(super) fn send_message(&self, from: &mut Transfer, how: Sending) -> Result<usize, Errno> {
        let (peer, local, is_shut) = {
            let link = self.link.lock();
            (link.peer.clone(), link.local.clone(), link.is_shut)
        };
        if self.kind == Kind::Packet && how.to.is_some() {
            return Err(Errno(if peer.is_some() { EISCONN } else { ENOTCONN }));
        }
        if let Some(why) = self.own.inside.lock().error.take() {
            return Err(why);
        }
        let is_network = self.family != Family::Unix;
        let to = match how.to.map(|(to, _)| to).or(peer) {
            Some(to) => to,
            None if is_network => return Err(Errno(EDESTADDRREQ)),
            None => return Err(Errno(ENOTCONN)),
        };
        if is_shut {
            return Err(Errno(EPIPE));
        }
        let count = from.left();
        if count > most(self.family) {
            return Err(Errno(EMSGSIZE));
        }
        if to.kind != self.kind {
            return Err(Errno(EPROTOTYPE));
        }
        let local = match local {
            Address::None if is_network => self.claim_any(&Address::None)?,
            local => local,
        };
        let mut bytes = Vec::new();
        if heap::is_low() {
            return Err(Errno::NOMEM);
        }
        bytes.try_reserve_exact(count).map_err(|_| Errno::NOMEM)?;
        bytes.resize(count, 0);
        if from.take(&mut bytes) < count {
            return Err(Errno::FAULT);
        }
        let mut message = Some(Message { bytes, from: local, files: how.files });
        let until = self.options.lock().send_limit();
        let put = || self.put(&to, &mut message);
        Socket::get(how.waits, (&to.waiting, until), put)?;
        to.waiting.wake_for(Events::IN);
        Ok(count)
    }
    /// Puts a message into an end; `None` where there is no room.
    fn put(&self, to: &Arc<End>, message: &mut Option<Message>) -> Option<Result<(), Errno>> {
        let mut inside = to.inside.lock();
        let count = message.as_ref().map_or(0, |message| message.bytes.len());
        let is_network = inside.is_network;
        if inside.is_closed || inside.is_shut {
            let why = match self.kind {
                Kind::Datagram if inside.is_closed => ECONNREFUSED,
                _ => EPIPE,
            };
            return match is_network {
                true => {
                    // The refusal comes back, and is told next.
                    drop(inside);
                    let is_connected = self.peer().is_some();
                    let mut own = self.own.inside.lock();
                    own.error = is_connected.then_some(Errno(ECONNREFUSED)).or(own.error);
                    Some(Ok(()))
                }
                false => Some(Err(Errno(why))),
            };
        }
        if !inside.takes(count) {
            // Networks lose what has no room.
            return is_network.then_some(Ok(()));
        }
        if let Some(message) = message.take() {
            inside.put(message);
        }
        Some(Ok(()))
    }

    pub(super) fn receive_message(
        &self,
        into: &mut Transfer,
        how: Receiving,
    ) -> Result<Received, Errno> {
        if self.kind == Kind::Packet && self.peer().is_none() {
            return Err(Errno(ENOTCONN));
        }
        let until = self.options.lock().receive_limit();
        let take = || {
            let mut inside = self.own.inside.lock();
            if let Some(why) = inside.error.take() {
                return Some(Err(why));
            }
            let is_over = inside.is_shut || inside.is_over && self.kind != Kind::Datagram;
            if inside.messages.is_empty() {
                return is_over.then(|| Ok(Received::default()));
            }
            let message = match how.peeks {
                false => inside.take()?,
                true => {
                    let first = inside.messages.front()?;
                    let count = into.left().min(first.bytes.len());
                    let whole = first.bytes.len();
                    let (from, files) = (first.from.clone(), first.files.again());
                    let put = into.put_all(&first.bytes[..count]);
                    return Some(put.map(|count| Received { count, whole, from, files }));
                }
            };
            drop(inside);
            let (whole, from) = (message.bytes.len(), message.from);
            let put = into.put_all(&message.bytes[..into.left().min(whole)]);
            Some(match put {
                Ok(count) => Ok(Received { count, whole, from, files: message.files }),
                Err(why) => {
                    files::let_go([message.files].into());
                    Err(why)
                }
            })
        };
        let received = Socket::get(how.waits, (&self.own.waiting, until), take);
        self.own.waiting.wake_for(Events::OUT);
        if let Some(peer) = self.peer() {
            peer.waiting.wake_for(Events::OUT);
        }
        received
    }
}
