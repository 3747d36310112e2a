//! Options of a socket: those that change what it does, and those that are only kept.

use super::super::clock;
use alloc::collections::BTreeMap;
use linux_raw_sys::net::{
    IP_TOS, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, IPV6_TCLASS, IPV6_V6ONLY, SO_BROADCAST,
    SO_DONTROUTE, SO_KEEPALIVE, SO_OOBINLINE, SO_PASSCRED, SO_PRIORITY, SO_RCVLOWAT, SO_REUSEADDR,
    SO_REUSEPORT, SO_TIMESTAMP, SOL_SOCKET, TCP_CORK, TCP_DEFER_ACCEPT, TCP_KEEPCNT, TCP_KEEPIDLE,
    TCP_KEEPINTVL, TCP_NODELAY, TCP_QUICKACK, TCP_SYNCNT, TCP_USER_TIMEOUT,
};

const TCP: u32 = IPPROTO_TCP as u32;
const FOUR: u32 = IPPROTO_IP as u32;
const SIX: u32 = IPPROTO_IPV6 as u32;

/// Whether an option is a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holds {
    Switch,
    Number,
}
use Holds::{Number, Switch};

/// Options that hold a number: level, name, what they hold, and what they are at first.
const KNOWN: [(u32, u32, Holds, i32); 22] = [
    (SOL_SOCKET, SO_BROADCAST, Switch, 0),
    (SOL_SOCKET, SO_DONTROUTE, Switch, 0),
    (SOL_SOCKET, SO_KEEPALIVE, Switch, 0),
    (SOL_SOCKET, SO_OOBINLINE, Switch, 0),
    (SOL_SOCKET, SO_PASSCRED, Switch, 0),
    (SOL_SOCKET, SO_PRIORITY, Number, 0),
    (SOL_SOCKET, SO_RCVLOWAT, Number, 1),
    (SOL_SOCKET, SO_REUSEADDR, Switch, 0),
    (SOL_SOCKET, SO_REUSEPORT, Switch, 0),
    (SOL_SOCKET, SO_TIMESTAMP, Switch, 0),
    (TCP, TCP_CORK, Switch, 0),
    (TCP, TCP_DEFER_ACCEPT, Number, 0),
    (TCP, TCP_KEEPCNT, Number, 9),
    (TCP, TCP_KEEPIDLE, Number, 7200),
    (TCP, TCP_KEEPINTVL, Number, 75),
    (TCP, TCP_NODELAY, Switch, 0),
    (TCP, TCP_QUICKACK, Switch, 1),
    (TCP, TCP_SYNCNT, Number, 6),
    (TCP, TCP_USER_TIMEOUT, Number, 0),
    (FOUR, IP_TOS, Number, 0),
    (SIX, IPV6_TCLASS, Number, 0),
    (SIX, IPV6_V6ONLY, Switch, 0),
];

/// Options of a socket.
#[derive(Default)]
pub(in super::super) struct Options {
    /// Those that were set, by level and name.
    set: BTreeMap<(u32, u32), i32>,
    /// Nanoseconds that a call waits to send, and to receive.
    pub(in super::super) send_for: Option<u64>,
    pub(in super::super) receive_for: Option<u64>,
    /// Whether it lingers, and for how long.
    pub(in super::super) lingers: [i32; 2],
    /// Bytes that were asked for to send, and to receive.
    pub(in super::super) rooms: [Option<i32>; 2],
}

impl Options {
    /// The number of an option, if there is such one.
    pub(in super::super) fn get(&self, level: u32, name: u32) -> Option<i32> {
        let known = KNOWN.iter().find(|known| (known.0, known.1) == (level, name))?;
        Some(self.set.get(&(level, name)).copied().unwrap_or(known.3))
    }
    /// Sets it; says whether there is such one.
    pub(in super::super) fn set(&mut self, level: u32, name: u32, value: i32) -> bool {
        let Some(known) = KNOWN.iter().find(|known| (known.0, known.1) == (level, name)) else {
            return false;
        };
        let value = if known.2 == Switch { i32::from(value != 0) } else { value };
        self.set.insert((level, name), value);
        true
    }
    fn is_on(&self, level: u32, name: u32) -> bool {
        self.get(level, name) == Some(1)
    }
    pub(super) fn shares(&self) -> bool {
        self.is_on(SOL_SOCKET, SO_REUSEADDR) || self.is_on(SOL_SOCKET, SO_REUSEPORT)
    }
    pub(super) fn six_only(&self) -> bool {
        self.is_on(SIX, IPV6_V6ONLY)
    }
    /// When a call that sends, or receives, waits no more.
    pub(super) fn send_limit(&self) -> Option<u64> {
        self.send_for.map(|nanos| clock::uptime().saturating_add(nanos))
    }
    pub(super) fn receive_limit(&self) -> Option<u64> {
        self.receive_for.map(|nanos| clock::uptime().saturating_add(nanos))
    }
}
