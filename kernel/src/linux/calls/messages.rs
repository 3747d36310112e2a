//! Calls that send and receive, with addresses and descriptors.

use super::super::opened::{Descriptor, Opened};
use super::super::sockets::{Address, Files, Kind, Received, Receiving, Sending, Socket};
use super::super::thread::Thread;
use super::super::transfer::Transfer;
use super::super::user;
use super::Answer;
use super::bytes::{buffers, one, opened, told};
use super::numbers::MSG_WAITFORONE;
use super::sockets::{as_socket, find, get_address, put_address, waits};
use alloc::sync::Arc;
use alloc::vec::Vec;
use foliant_linux::Errno;
use linux_raw_sys::errno::{EINVAL, EMSGSIZE, ENOBUFS, EOPNOTSUPP};
use linux_raw_sys::net::{
    MSG_CMSG_CLOEXEC, MSG_CTRUNC, MSG_NOSIGNAL, MSG_OOB, MSG_PEEK, MSG_TRUNC, MSG_WAITALL,
    SCM_RIGHTS, SOL_SOCKET, cmsghdr,
};

type Six = [u64; 6];

/// Bytes beside those of a message, at most.
const CONTROL_MAX: u64 = 20_480;
/// Descriptors that come with one message, at most.
const FILES_MAX: usize = 253;
/// Messages of one call, at most.
const MESSAGES_MAX: u64 = 1024;
const HEAD: usize = size_of::<cmsghdr>();
/// Where a message's flags are.
const FLAGS_AT: u64 = 48;
/// Bytes of a message's head among others, with what it moved.
const MANY: u64 = 64;
const MOVED_AT: u64 = 56;

/// A message's head: where the address is and how long, buffers and how many, what comes besides
/// and how long, flags.
type Head = [u64; 7];

fn send(
    thread: &Arc<Thread>,
    (opened, flags): (&Opened, u32),
    from: &mut Transfer,
    (to, files): (Option<Address>, Files),
) -> Answer {
    let socket = as_socket(opened)?;
    if flags & MSG_OOB != 0 {
        return Err(Errno(EOPNOTSUPP));
    }
    let to = match to {
        Some(to) if socket.kind == Kind::Datagram => match find(thread, socket, to) {
            // On a network nobody says that nobody is there.
            Err(Errno(linux_raw_sys::errno::ECONNREFUSED)) if socket.goes_nowhere() => {
                return Ok(from.left() as u64);
            }
            found => Some(found?),
        },
        Some(to) => socket.foreign(to)?,
        None => None,
    };
    let sent = socket.send(from, Sending { to, files, waits: waits(opened, flags) });
    let sent = sent.map(|count| count as u64);
    let is_told = socket.kind == Kind::Stream && flags & MSG_NOSIGNAL == 0;
    if is_told { told(thread, sent) } else { sent }
}
pub(super) fn sendto(thread: &Arc<Thread>, [number, at, bytes, flags, to, size]: Six) -> Answer {
    let opened = opened(thread, number)?;
    let family = as_socket(&opened)?.family;
    let is_named = to != 0 && size as u32 != 0;
    let to = if is_named { Some(get_address(family, to, size)?) } else { None };
    send(thread, (&opened, flags as u32), &mut one(at, bytes), (to, Files::default()))
}
fn send_message(thread: &Arc<Thread>, opened: &Opened, at: u64, flags: u32) -> Answer {
    let family = as_socket(opened)?.family;
    let [to, size, list, count, control, control_size, _]: Head = user::get(at)?;
    let is_named = to != 0 && size as u32 != 0;
    let to = if is_named { Some(get_address(family, to, size)?) } else { None };
    if count > 1024 {
        return Err(Errno(EMSGSIZE));
    }
    let mut from = Transfer::of(buffers(list, count)?);
    let control_size = if control == 0 { 0 } else { control_size };
    let files = files_of(thread, control, control_size)?;
    send(thread, (opened, flags), &mut from, (to, files))
}
pub(super) fn sendmsg(thread: &Arc<Thread>, [number, at, flags, ..]: Six) -> Answer {
    let opened = opened(thread, number)?;
    send_message(thread, &opened, at, flags as u32)
}
/// The descriptors that come with a message.
fn files_of(thread: &Thread, at: u64, bytes: u64) -> Result<Files, Errno> {
    if bytes > CONTROL_MAX {
        return Err(Errno(ENOBUFS));
    }
    let all = user::get_bytes(at, bytes as usize)?;
    let word = |from: usize| {
        let word = all.get(from..from + 4).and_then(|word| word.try_into().ok());
        word.map_or(0, u32::from_le_bytes)
    };
    let (mut at, mut files) = (0, Vec::new());
    while at + HEAD <= all.len() {
        let size = word(at) as usize;
        if size < HEAD || size > all.len() - at || word(at + 4) != 0 {
            return Err(Errno(EINVAL));
        }
        if (word(at + 8), word(at + 12)) == (SOL_SOCKET, SCM_RIGHTS) {
            let descriptors = thread.process.descriptors.lock();
            for nth in 0..(size - HEAD) / 4 {
                let number = word(at + HEAD + nth * 4);
                files.push(descriptors.get(number.into())?.opened.clone());
                if files.len() > FILES_MAX {
                    return Err(Errno(EINVAL));
                }
            }
        }
        at += size.next_multiple_of(8);
    }
    Files::of(files)
}

fn receive(opened: &Opened, into: &mut Transfer, flags: u32) -> Result<Received, Errno> {
    let socket = as_socket(opened)?;
    if flags & MSG_OOB != 0 {
        return Err(Errno(EINVAL));
    }
    let (peeks, all) = (flags & MSG_PEEK != 0, flags & MSG_WAITALL != 0);
    socket.receive(into, Receiving { waits: waits(opened, flags), peeks, all })
}
/// What a call that received says.
fn count_of(socket: &Socket, received: &Received, flags: u32) -> u64 {
    let is_whole = flags & MSG_TRUNC != 0 && socket.kind != Kind::Stream;
    (if is_whole { received.whole } else { received.count }) as u64
}
/// The address of who sent it, where somebody has one.
fn sender_of(socket: &Socket, received: &Received) -> Vec<u8> {
    match &received.from {
        Address::None => Vec::new(),
        from => socket.family.written(from),
    }
}
pub(super) fn recvfrom(
    thread: &Arc<Thread>,
    [number, at, bytes, flags, from, room]: Six,
) -> Answer {
    let opened = opened(thread, number)?;
    let socket = as_socket(&opened)?;
    let received = receive(&opened, &mut one(at, bytes), flags as u32)?;
    put_address(&sender_of(socket, &received), from, room)?;
    Ok(count_of(socket, &received, flags as u32))
}
fn receive_message(thread: &Arc<Thread>, opened: &Opened, at: u64, flags: u32) -> Answer {
    let socket = as_socket(opened)?;
    let [from, _, list, count, control, control_size, _]: Head = user::get(at)?;
    if count > 1024 {
        return Err(Errno(EMSGSIZE));
    }
    let mut into = Transfer::of(buffers(list, count)?);
    let received = receive(opened, &mut into, flags)?;
    let count = count_of(socket, &received, flags);
    let mut told = flags & MSG_CMSG_CLOEXEC;
    if received.count < received.whole {
        told |= MSG_TRUNC;
    }
    let sender = sender_of(socket, &received);
    let size_at = at.wrapping_add(8);
    put_address(&sender, from, size_at)?;
    let files = received.files.take();
    let mut used = 0;
    if !files.is_empty() {
        let closes = flags & MSG_CMSG_CLOEXEC != 0;
        let wanted = files.len();
        let room = (control_size as usize).saturating_sub(HEAD) / 4;
        let numbers = take_over(thread, files, room, closes);
        if numbers.len() < wanted {
            told |= MSG_CTRUNC;
        }
        if !numbers.is_empty() {
            let mut out = (HEAD + numbers.len() * 4).to_le_bytes().to_vec();
            out.extend(SOL_SOCKET.to_le_bytes());
            out.extend(SCM_RIGHTS.to_le_bytes());
            out.extend(numbers.iter().flat_map(|number| (*number as u32).to_le_bytes()));
            user::put_bytes(control, &out)?;
            used = out.len().next_multiple_of(8).min(control_size as usize);
        }
    }
    user::put(at.wrapping_add(40), &(used as u64))?;
    user::put(at.wrapping_add(FLAGS_AT), &told)?;
    Ok(count)
}
/// Files that came become descriptors, as far as there is room; the others are closed.
fn take_over(thread: &Thread, files: Vec<Arc<Opened>>, room: usize, closes: bool) -> Vec<u64> {
    let mut numbers = Vec::new();
    for opened in files {
        if numbers.len() < room {
            let added = thread.process.descriptors.lock().add(0, Descriptor { opened, closes });
            numbers.extend(added.ok());
        }
    }
    numbers
}
pub(super) fn recvmsg(thread: &Arc<Thread>, [number, at, flags, ..]: Six) -> Answer {
    let opened = opened(thread, number)?;
    receive_message(thread, &opened, at, flags as u32)
}

/// Goes through messages up to the first that is refused.
fn each(count: u64, at: u64, mut one: impl FnMut(u64) -> Answer) -> Answer {
    let count = u64::from(count as u32).min(MESSAGES_MAX);
    for nth in 0..count {
        let at = at.wrapping_add(nth * MANY);
        match one(at) {
            Ok(moved) => user::put(at.wrapping_add(MOVED_AT), &(moved as u32))?,
            Err(why) if nth == 0 => return Err(why),
            Err(_) => return Ok(nth),
        }
    }
    Ok(count)
}
pub(super) fn sendmmsg(thread: &Arc<Thread>, [number, at, count, flags, ..]: Six) -> Answer {
    let opened = opened(thread, number)?;
    as_socket(&opened)?;
    each(count, at, |at| send_message(thread, &opened, at, flags as u32))
}
pub(super) fn recvmmsg(thread: &Arc<Thread>, [number, at, count, flags, ..]: Six) -> Answer {
    use linux_raw_sys::net::MSG_DONTWAIT;
    let opened = opened(thread, number)?;
    as_socket(&opened)?;
    let mut flags = flags as u32;
    each(count, at, |at| {
        let answer = receive_message(thread, &opened, at, flags & !MSG_WAITFORONE);
        if flags & MSG_WAITFORONE != 0 {
            flags |= MSG_DONTWAIT;
        }
        answer
    })
}
