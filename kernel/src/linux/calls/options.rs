//! Calls about options of sockets.

use super::super::sockets::{Family, Kind, Socket};
use super::super::thread::Thread;
use super::super::user;
use super::Answer;
use super::bytes::opened;
use super::sockets::as_socket;
use alloc::sync::Arc;
use foliant_linux::Errno;
use linux_raw_sys::errno::{EDOM, EINVAL, ENOPROTOOPT, EOPNOTSUPP};
use linux_raw_sys::general::timeval;
use linux_raw_sys::net::{
    IPPROTO_TCP, IPPROTO_UDP, SO_ACCEPTCONN, SO_DOMAIN, SO_ERROR, SO_LINGER, SO_PEERCRED,
    SO_PROTOCOL, SO_RCVBUF, SO_RCVTIMEO, SO_SNDBUF, SO_SNDTIMEO, SO_TYPE, SOCK_DGRAM,
    SOCK_SEQPACKET, SOCK_STREAM, SOL_SOCKET,
};

type Six = [u64; 6];

const SECOND: u64 = 1_000_000_000;
/// Bytes that a socket may ask room for, and what it gets at least, of those to send and those to
/// receive. Linux doubles what is asked for.
const ROOM_MAX: i32 = 212_992;
const ROOM_MIN: [i32; 2] = [4608, 2304];

/// Whether an option is of a level that the socket has.
fn has_level(socket: &Socket, level: u32) -> Result<(), Errno> {
    match level {
        SOL_SOCKET => Ok(()),
        _ if socket.family == Family::Unix => Err(Errno(EOPNOTSUPP)),
        level if level == IPPROTO_TCP as u32 && socket.kind != Kind::Stream => {
            Err(Errno(ENOPROTOOPT))
        }
        _ => Ok(()),
    }
}
pub(super) fn setsockopt(thread: &Arc<Thread>, [number, level, name, at, bytes, _]: Six) -> Answer {
    let opened = opened(thread, number)?;
    let socket = as_socket(&opened)?;
    let (level, name, bytes) = (level as u32, name as u32, bytes as i32);
    has_level(socket, level)?;
    let has = |size: usize| if bytes >= size as i32 { Ok(()) } else { Err(Errno(EINVAL)) };
    has(4)?;
    match (level, name) {
        (SOL_SOCKET, SO_RCVTIMEO | SO_SNDTIMEO) => {
            has(size_of::<timeval>())?;
            let it: timeval = user::get(at)?;
            if !(0..1_000_000).contains(&it.tv_usec) {
                return Err(Errno(EDOM));
            }
            let nanos = u64::try_from(it.tv_sec).unwrap_or(0).saturating_mul(SECOND);
            let nanos = nanos.saturating_add(it.tv_usec as u64 * 1000);
            let limit = Some(nanos).filter(|nanos| *nanos > 0);
            let mut options = socket.options.lock();
            match name {
                SO_RCVTIMEO => options.receive_for = limit,
                _ => options.send_for = limit,
            }
        }
        (SOL_SOCKET, SO_LINGER) => {
            has(8)?;
            let value = user::get(at)?;
            socket.options.lock().lingers = value;
        }
        (SOL_SOCKET, SO_SNDBUF | SO_RCVBUF) => {
            let value: i32 = user::get(at)?;
            let which = usize::from(name == SO_RCVBUF);
            let room = value.clamp(0, ROOM_MAX).saturating_mul(2).max(ROOM_MIN[which]);
            socket.options.lock().rooms[which] = Some(room);
            if name == SO_RCVBUF {
                socket.set_room(room as usize);
            }
        }
        _ => {
            let value: i32 = user::get(at)?;
            if !socket.options.lock().set(level, name, value) {
                return Err(Errno(ENOPROTOOPT));
            }
        }
    }
    Ok(0)
}

/// Puts as much of an option's value as there is room for.
fn put(value: &[u8], at: u64, room: u64, most: i32) -> Answer {
    let most = usize::try_from(most).map_err(|_| Errno(EINVAL))?;
    let value = &value[..value.len().min(most)];
    user::put_bytes(at, value)?;
    user::put(room, &(value.len() as u32)).map(|()| 0)
}
pub(super) fn getsockopt(thread: &Arc<Thread>, [number, level, name, at, room, _]: Six) -> Answer {
    let opened = opened(thread, number)?;
    let socket = as_socket(&opened)?;
    let most: i32 = user::get(room)?;
    let (level, name) = (level as u32, name as u32);
    has_level(socket, level)?;
    let is_unix = socket.family == Family::Unix;
    let words = |words: &[u32]| {
        let bytes: alloc::vec::Vec<u8> = words.iter().flat_map(|it| it.to_le_bytes()).collect();
        put(&bytes, at, room, most)
    };
    if level != SOL_SOCKET {
        let value = socket.options.lock().get(level, name).ok_or(Errno(ENOPROTOOPT))?;
        return words(&[value as u32]);
    }
    match name {
        SO_TYPE => words(&[match socket.kind {
            Kind::Stream => SOCK_STREAM,
            Kind::Datagram => SOCK_DGRAM,
            Kind::Packet => SOCK_SEQPACKET,
        }]),
        SO_DOMAIN => words(&[socket.family.number()]),
        SO_PROTOCOL => words(&[match socket.kind {
            _ if is_unix => 0,
            Kind::Stream => IPPROTO_TCP as u32,
            Kind::Datagram | Kind::Packet => IPPROTO_UDP as u32,
        }]),
        SO_ERROR => words(&[socket.take_error().map_or(0, |why| why.0)]),
        SO_ACCEPTCONN => words(&[socket.is_listening().into()]),
        SO_PEERCRED if is_unix => words(&socket.peer_task()),
        SO_LINGER => words(&socket.options.lock().lingers.map(|it| it as u32)),
        SO_SNDBUF | SO_RCVBUF => {
            let value = socket.options.lock().rooms[usize::from(name == SO_RCVBUF)];
            words(&[value.unwrap_or(ROOM_MAX) as u32])
        }
        SO_RCVTIMEO | SO_SNDTIMEO => {
            let options = socket.options.lock();
            let limit = if name == SO_RCVTIMEO { options.receive_for } else { options.send_for };
            drop(options);
            let nanos = limit.unwrap_or(0);
            let value = [nanos / SECOND, nanos % SECOND / 1000].map(u64::to_le_bytes);
            put(value.as_flattened(), at, room, most)
        }
        name => {
            let value = socket.options.lock().get(level, name).ok_or(Errno(ENOPROTOOPT))?;
            words(&[value as u32])
        }
    }
}
