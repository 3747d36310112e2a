//! Calls about sockets: how they are made, named and connected.

use super::super::channel::Waits;
use super::super::content::Content;
use super::super::opened::Opened;
use super::super::sockets::{Address, Bound, End, Family, Kind, Socket};
use super::super::thread::Thread;
use super::super::{credentials, user, world};
use super::bytes::opened;
use super::events::{add, as_channel};
use super::{Answer, paths};
use alloc::sync::Arc;
use core::any::Any;
use foliant_files::{Body, Last};
use foliant_linux::Errno;
use foliant_linux::capabilities::Capability;
use linux_raw_sys::errno::{
    EACCES, EADDRINUSE, EAFNOSUPPORT, ECONNREFUSED, EEXIST, EINPROGRESS, EINVAL, ENOTSOCK,
    EOPNOTSUPP, EPROTONOSUPPORT, ESOCKTNOSUPPORT,
};
use linux_raw_sys::general::{O_CLOEXEC, O_NONBLOCK, S_IFSOCK, W_OK};
use linux_raw_sys::net::{
    AF_INET, AF_INET6, AF_UNIX, AF_UNSPEC, IPPROTO_TCP, IPPROTO_UDP, SHUT_RD, SHUT_RDWR, SHUT_WR,
    SOCK_DGRAM, SOCK_SEQPACKET, SOCK_STREAM,
};

type Six = [u64; 6];

/// Bytes of an address, at most.
const ADDRESS_MAX: usize = 128;
/// The flags beside a kind.
const FLAGS: u32 = O_CLOEXEC | O_NONBLOCK;
/// The bits of a kind.
const KINDS: u32 = 0xf;
const MODE: u32 = S_IFSOCK | 0o777;
/// Ports below are for root.
const ROOTS: u16 = 1024;

/// What a descriptor is, if it is a socket.
pub(super) fn as_socket(opened: &Opened) -> Result<&Socket, Errno> {
    as_channel(opened).ok_or(Errno(ENOTSOCK))
}
/// The address that a program gives.
pub(super) fn get_address(family: Family, at: u64, bytes: u64) -> Result<Address, Errno> {
    let bytes = bytes as u32 as usize;
    if bytes > ADDRESS_MAX {
        return Err(Errno(EINVAL));
    }
    family.read(&user::get_bytes(at, bytes)?)
}
/// Puts an address where a program wants it, as far as there is room; says how long it is.
pub(super) fn put_address(address: &[u8], at: u64, room: u64) -> Result<(), Errno> {
    if at == 0 {
        return Ok(());
    }
    let bytes: i32 = user::get(room)?;
    let bytes = usize::try_from(bytes).map_err(|_| Errno(EINVAL))?;
    user::put_bytes(at, &address[..address.len().min(bytes)])?;
    user::put(room, &(address.len() as u32))
}

/// What a domain, a kind and a protocol make.
fn kind_of(domain: u64, kind: u64, protocol: u64) -> Result<(Family, Kind), Errno> {
    let family = match domain as u32 {
        AF_UNIX => Family::Unix,
        AF_INET => Family::Four,
        AF_INET6 => Family::Six,
        _ => return Err(Errno(EAFNOSUPPORT)),
    };
    let is_unix = family == Family::Unix;
    if kind as u32 & !FLAGS & !KINDS != 0 {
        return Err(Errno(EINVAL));
    }
    let (kind, own) = match kind as u32 & !FLAGS {
        SOCK_STREAM => (Kind::Stream, IPPROTO_TCP as u64),
        SOCK_DGRAM => (Kind::Datagram, IPPROTO_UDP as u64),
        SOCK_SEQPACKET if is_unix => (Kind::Packet, 0),
        _ => return Err(Errno(ESOCKTNOSUPPORT)),
    };
    let own = if is_unix { AF_UNIX.into() } else { own };
    if protocol == 0 || protocol == own { Ok((family, kind)) } else { Err(Errno(EPROTONOSUPPORT)) }
}
pub(super) fn socket(thread: &Arc<Thread>, [domain, kind, protocol, ..]: Six) -> Answer {
    let (family, of) = kind_of(domain, kind, protocol)?;
    let socket = Socket::new(family, of, thread.task());
    add(thread, socket, MODE, kind as u32 & FLAGS)
}
pub(super) fn socketpair(thread: &Arc<Thread>, [domain, kind, protocol, at, ..]: Six) -> Answer {
    let (family, of) = kind_of(domain, kind, protocol)?;
    if family != Family::Unix {
        return Err(Errno(EOPNOTSUPP));
    }
    let flags = kind as u32 & FLAGS;
    let take = |number| drop(thread.process.descriptors.lock().take(number));
    let [one, two] = Socket::pair(of, thread.task());
    let one = add(thread, one, MODE, flags)?;
    let two = add(thread, two, MODE, flags).inspect_err(|_| take(one))?;
    let put = user::put(at, &(one | two << 32));
    put.map(|()| 0).inspect_err(|_| [one, two].into_iter().for_each(take))
}

pub(super) fn bind(thread: &Arc<Thread>, [number, at, bytes, ..]: Six) -> Answer {
    let opened = opened(thread, number)?;
    let socket = as_socket(&opened)?;
    let address = get_address(socket.family, at, bytes)?;
    if let Address::Port(_, 1..ROOTS) = address
        && !thread.has(Capability::NetBindService)
    {
        return Err(Errno(EACCES));
    }
    let Address::Path(path) = &address else { return socket.claim(&address).map(|()| 0) };
    if socket.is_bound() {
        return Err(Errno(EINVAL));
    }
    let process = &thread.process;
    let place = paths::place_from(thread, process.folder(), path)?;
    let body = Body::Leaf(Content::Channel(socket.bound()));
    let mode = S_IFSOCK | process.masked(0o777);
    let made = paths::changing(|files, now| files.make(&place, mode, body, now));
    made.map_err(|why| if why == Errno(EEXIST) { Errno(EADDRINUSE) } else { why })?;
    socket.set_path(address);
    Ok(0)
}
/// Where an address leads.
pub(super) fn find(
    thread: &Thread,
    socket: &Socket,
    address: Address,
) -> Result<(Arc<End>, Address), Errno> {
    let Address::Path(path) = &address else { return Ok((socket.find(&address)?, address)) };
    let process = &thread.process;
    let by = thread.credentials();
    let node = process.walk(&by, process.folder(), path, Last::Follow)?;
    credentials::allowed(&by, node, W_OK)?;
    let refused = Errno(ECONNREFUSED);
    let Content::Channel(channel) = world().content(node).map_err(|_| refused)? else {
        return Err(refused);
    };
    let channel: &dyn Any = &*channel;
    let bound: &Bound = channel.downcast_ref().ok_or(refused)?;
    Ok((bound.end().ok_or(refused)?, address))
}
pub(super) fn connect(thread: &Arc<Thread>, [number, at, bytes, ..]: Six) -> Answer {
    let opened = opened(thread, number)?;
    let socket = as_socket(&opened)?;
    if (2..=ADDRESS_MAX as u64).contains(&bytes) && socket.kind == Kind::Datagram {
        let family = user::get_bytes(at, 2)?;
        if u32::from(u16::from_le_bytes([family[0], family[1]])) == AF_UNSPEC {
            socket.disconnect();
            return Ok(0);
        }
    }
    let address = get_address(socket.family, at, bytes)?;
    let found = match find(thread, socket, address.clone()) {
        // A datagram goes nowhere as well as somewhere.
        Err(Errno(ECONNREFUSED)) if socket.goes_nowhere() => {
            let nobody = End::nobody(socket.kind, socket.family);
            (nobody, address)
        }
        // Who does not wait is told later, as on a network.
        Err(why @ Errno(ECONNREFUSED)) if socket.is_told_later(opened.waits()) => {
            socket.set_error(why);
            return Err(Errno(EINPROGRESS));
        }
        found => found?,
    };
    socket.connect(found, opened.waits(), thread.task()).map(|()| 0)
}
pub(super) fn listen(thread: &Arc<Thread>, [number, most, ..]: Six) -> Answer {
    let opened = opened(thread, number)?;
    let most = usize::try_from(most as i32).unwrap_or(usize::MAX);
    as_socket(&opened)?.listen(most, thread.task()).map(|()| 0)
}
pub(super) fn accept(thread: &Arc<Thread>, [number, at, room, ..]: Six) -> Answer {
    accept4(thread, [number, at, room, 0, 0, 0])
}
pub(super) fn accept4(thread: &Arc<Thread>, [number, at, room, flags, ..]: Six) -> Answer {
    let flags = flags as u32;
    if flags & !FLAGS != 0 {
        return Err(Errno(EINVAL));
    }
    let opened = opened(thread, number)?;
    let listening = as_socket(&opened)?;
    let (socket, from) = listening.accept(opened.waits())?;
    put_address(&listening.family.written(&from), at, room)?;
    add(thread, socket, MODE, flags)
}
pub(super) fn shutdown(thread: &Arc<Thread>, [number, how, ..]: Six) -> Answer {
    let opened = opened(thread, number)?;
    let socket = as_socket(&opened)?;
    let (reads, writes) = match how as u32 {
        SHUT_RD => (true, false),
        SHUT_WR => (false, true),
        SHUT_RDWR => (true, true),
        _ => return Err(Errno(EINVAL)),
    };
    socket.shut(reads, writes).map(|()| 0)
}
pub(super) fn getsockname(thread: &Arc<Thread>, [number, at, room, ..]: Six) -> Answer {
    let opened = opened(thread, number)?;
    let socket = as_socket(&opened)?;
    put_address(&socket.family.written(&socket.name()), at, room).map(|()| 0)
}
pub(super) fn getpeername(thread: &Arc<Thread>, [number, at, room, ..]: Six) -> Answer {
    let opened = opened(thread, number)?;
    let socket = as_socket(&opened)?;
    put_address(&socket.family.written(&socket.peer_name()?), at, room).map(|()| 0)
}
/// Whether a call with these flags waits.
pub(super) fn waits(opened: &Opened, flags: u32) -> Waits {
    use linux_raw_sys::net::MSG_DONTWAIT;
    if flags & MSG_DONTWAIT != 0 { Waits::No } else { opened.waits() }
}
