//! Streams: bytes, and descriptors that come with one of them.

use super::super::channel::Waits;
use super::super::events::Events;
use super::super::signal::CUT;
use super::super::transfer::Transfer;
use super::super::waiters::{Cut, Waiters};
use super::address::Family;
use super::files::Files;
use super::{End, Received, Receiving, Sending, Socket, files};
use alloc::vec::Vec;
use foliant_linux::Errno;
use linux_raw_sys::errno::{EAGAIN, EINVAL, EISCONN, ENOTCONN, EOPNOTSUPP, EPIPE};

/// Bytes that are taken from a program at a time.
const PIECE: usize = 4096;

impl Socket {
    /// What `done` has: now, or when it has something and these are woken, up to a time.
    pub(super) fn get<R>(
        waits: Waits,
        (waiters, until): (&Waiters, Option<u64>),
        mut done: impl FnMut() -> Option<Result<R, Errno>>,
    ) -> Result<R, Errno> {
        if waits == Waits::No {
            return done().unwrap_or(Err(Errno(EAGAIN)));
        }
        waiters.wait(until, done).unwrap_or_else(|cut| {
            Err(match cut {
                Cut::Time => Errno(EAGAIN),
                // A call with a limit of its own is not made again.
                Cut::Signal if until.is_some() => Errno(linux_raw_sys::errno::EINTR),
                Cut::Signal => CUT,
            })
        })
    }

    pub(super) fn send_stream(&self, from: &mut Transfer, how: Sending) -> Result<usize, Errno> {
        let (peer, is_shut) = {
            let link = self.link.lock();
            (link.peer.clone(), link.is_shut)
        };
        if how.to.is_some() && self.family == Family::Unix {
            return Err(Errno(if peer.is_some() { EISCONN } else { EOPNOTSUPP }));
        }
        let (error, is_reset) = {
            let mut own = self.own.inside.lock();
            (own.error.take(), own.is_reset)
        };
        if let Some(why) = error {
            return Err(if self.family == Family::Unix { Errno(EPIPE) } else { why });
        }
        let Some(peer) = peer else {
            return Err(Errno(if self.family == Family::Unix { ENOTCONN } else { EPIPE }));
        };
        if is_shut || is_reset {
            return Err(Errno(EPIPE));
        }
        let until = self.options.lock().send_limit();
        let mut files = how.files;
        let done = from.hand_on::<PIECE>(|piece| {
            let mut push = || push(&peer, piece, &mut files);
            push().unwrap_or_else(|| {
                // What was put there so far is told of before this one waits for room.
                peer.waiting.wake_for(Events::IN);
                Socket::get(how.waits, (&self.own.waiting, until), push)
            })
        })?;
        peer.waiting.wake_for(Events::IN);
        Ok(done)
    }

    pub(super) fn receive_stream(
        &self,
        into: &mut Transfer,
        how: Receiving,
    ) -> Result<Received, Errno> {
        let peer = self.peer();
        if self.own.inside.lock().backlog.is_some() || peer.is_none() {
            let is_unix = self.family == Family::Unix;
            return Err(Errno(if is_unix { EINVAL } else { ENOTCONN }));
        }
        let until = self.options.lock().receive_limit();
        let mut received = Received::default();
        let room = into.left();
        loop {
            let take = || self.take(into, how, &mut received);
            let taken = Socket::get(how.waits, (&self.own.waiting, until), take);
            if let Some(peer) = &peer
                && !how.peeks
            {
                peer.waiting.wake_for(Events::OUT);
            }
            let count = match taken {
                Ok(count) => count,
                Err(_) if received.count > 0 => 0,
                Err(why) => return Err(why),
            };
            received.count += count;
            let is_done = count == 0 || received.count == room || !received.files.is_empty();
            if is_done || !how.all || how.peeks {
                received.whole = received.count;
                return Ok(received);
            }
        }
    }
    /// Takes what is there up to the last byte that comes with descriptors; none at the end.
    fn take(
        &self,
        into: &mut Transfer,
        how: Receiving,
        received: &mut Received,
    ) -> Option<Result<usize, Errno>> {
        if into.left() == 0 {
            return Some(Ok(0));
        }
        let mut lost = Vec::new();
        let taken = {
            let mut inside = self.own.inside.lock();
            if inside.bytes.is_empty() {
                if let Some(why) = inside.error.take() {
                    return Some(Err(why));
                }
                return (inside.is_over || inside.is_shut).then_some(Ok(0));
            }
            let (at, with) = (inside.taken, inside.files.front().map(|(with, _)| with.clone()));
            // Bytes in front of those with descriptors come along, those behind do not.
            let most = with.as_ref().map_or(usize::MAX, |with| (with.end - at) as usize);
            let taken = inside.bytes.peek(most, into);
            let end = at + taken.map_or(0, |count| count as u64);
            if with.is_some_and(|with| with.start < end) {
                let files = match how.peeks {
                    true => inside.files.front().map(|(_, files)| files.again()),
                    false => inside.files.pop_front().map(|(_, files)| files),
                };
                lost.push(core::mem::replace(&mut received.files, files.unwrap_or_default()));
            }
            if let (Ok(count), false) = (taken, how.peeks) {
                inside.bytes.skip(count);
                inside.taken += count as u64;
            }
            taken
        };
        files::let_go(lost);
        Some(taken)
    }
}

/// Puts bytes into an end, with descriptors that come with the first of them; `None` where there is
/// no room.
fn push(to: &End, bytes: &[u8], files: &mut Files) -> Option<Result<usize, Errno>> {
    let mut inside = to.inside.lock();
    if inside.is_closed && inside.is_network && !inside.is_reset {
        // On a network nobody knows until it was sent.
        inside.is_reset = true;
        return Some(Ok(bytes.len()));
    }
    if inside.is_closed || inside.is_shut && !inside.is_network {
        return Some(Err(Errno(EPIPE)));
    }
    if inside.bytes.room() == 0 {
        return None;
    }
    let at = inside.taken + inside.bytes.len() as u64;
    let pushed = inside.bytes.push(bytes);
    if pushed.is_ok() && !files.is_empty() {
        let with = at..at + pushed.unwrap_or(0) as u64;
        inside.files.push_back((with, core::mem::take(files)));
    }
    Some(pushed)
}
