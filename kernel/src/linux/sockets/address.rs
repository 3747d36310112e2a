//! Addresses of sockets, and how Linux writes them.

use alloc::vec::Vec;
use foliant_linux::Errno;
use linux_raw_sys::errno::{EAFNOSUPPORT, EINVAL};
use linux_raw_sys::net::{AF_INET, AF_INET6, AF_UNIX, sockaddr_in, sockaddr_in6, sockaddr_un};

/// Bytes in front of a name of a file.
const FAMILY: usize = 2;
/// Bytes of an address of six with its scope left out.
const SIX_MIN: usize = 24;
/// What an address of four begins with as one of six.
const MAPPED: u128 = 0xffff << 32;

/// Which addresses a socket has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Family {
    Unix,
    Four,
    Six,
}

/// A machine's address, as one of six.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in super::super) struct Host(pub(in super::super) u128);

impl Host {
    pub(super) const ANY_FOUR: Host = Host(MAPPED);
    pub(super) const ANY_SIX: Host = Host(0);
    const OWN_FOUR: Host = Host(MAPPED | 0x7f00_0001);
    const OWN_SIX: Host = Host(1);

    pub(super) fn is_four(self) -> bool {
        self.0 >> 32 == 0xffff
    }
    pub(super) fn is_any(self) -> bool {
        self == Host::ANY_FOUR || self == Host::ANY_SIX
    }
    /// Whether it is this machine's.
    pub(super) fn is_own(self) -> bool {
        self.is_any() || self == Host::OWN_SIX || self.is_four() && self.0 as u32 >> 24 == 0x7f
    }
    /// Where whoever connects to it arrives.
    pub(super) fn reached(self) -> Host {
        match self {
            Host::ANY_FOUR => Host::OWN_FOUR,
            Host::ANY_SIX => Host::OWN_SIX,
            host => host,
        }
    }
    /// Where those that send to it come from.
    pub(super) fn source(self) -> Host {
        if self.is_four() { Host::OWN_FOUR } else { Host::OWN_SIX }
    }
}

/// An address.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(in super::super) enum Address {
    #[default]
    None,
    /// A name of a file.
    Path(Vec<u8>),
    /// A name that is no file's.
    Abstract(Vec<u8>),
    Port(Host, u16),
}

impl Family {
    /// The number of Linux's.
    pub(in super::super) fn number(self) -> u32 {
        match self {
            Family::Unix => AF_UNIX,
            Family::Four => AF_INET,
            Family::Six => AF_INET6,
        }
    }
    /// Reads an address as a program gives it.
    pub(in super::super) fn read(self, bytes: &[u8]) -> Result<Address, Errno> {
        let invalid = Errno(EINVAL);
        let [low, high, rest @ ..] = bytes else { return Err(invalid) };
        let family = u32::from(u16::from_le_bytes([*low, *high]));
        let foreign = if self == Family::Unix { invalid } else { Errno(EAFNOSUPPORT) };
        let least = match self {
            Family::Unix => FAMILY,
            Family::Four => size_of::<sockaddr_in>(),
            Family::Six => SIX_MIN,
        };
        if self == Family::Unix && bytes.len() > size_of::<sockaddr_un>() || bytes.len() < least {
            return Err(invalid);
        }
        if family != self.number() {
            return Err(foreign);
        }
        let port = || u16::from_be_bytes([rest[0], rest[1]]);
        Ok(match (self, rest) {
            (Family::Unix, []) => Address::None,
            (Family::Unix, [0, name @ ..]) => Address::Abstract(name.to_vec()),
            (Family::Unix, path) => {
                let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
                Address::Path(path[..end].to_vec())
            }
            (Family::Four, rest) => {
                let host = [rest[2], rest[3], rest[4], rest[5]];
                let host = MAPPED | u128::from(u32::from_be_bytes(host));
                Address::Port(Host(host), port())
            }
            (Family::Six, rest) => {
                let mut host = [0; 16];
                host.copy_from_slice(&rest[6..22]);
                Address::Port(Host(u128::from_be_bytes(host)), port())
            }
        })
    }
    /// Writes an address as a program reads it.
    pub(in super::super) fn written(self, address: &Address) -> Vec<u8> {
        let mut bytes = (self.number() as u16).to_le_bytes().to_vec();
        let (host, port) = match address {
            Address::None if self == Family::Unix => return bytes,
            Address::None if self == Family::Four => (Host::ANY_FOUR, 0),
            Address::None => (Host::ANY_SIX, 0),
            Address::Path(path) => {
                bytes.extend(path);
                bytes.push(0);
                return bytes;
            }
            Address::Abstract(name) => {
                bytes.push(0);
                bytes.extend(name);
                return bytes;
            }
            Address::Port(host, port) => (*host, *port),
        };
        bytes.extend(port.to_be_bytes());
        match self {
            Family::Four => bytes.extend((host.0 as u32).to_be_bytes()),
            _ => {
                bytes.extend([0; 4]);
                bytes.extend(host.0.to_be_bytes());
            }
        }
        let size =
            if self == Family::Four { size_of::<sockaddr_in>() } else { size_of::<sockaddr_in6>() };
        bytes.resize(size, 0);
        bytes
    }
    /// The address that stands for all of the machine's.
    pub(super) fn any(self) -> Host {
        if self == Family::Four { Host::ANY_FOUR } else { Host::ANY_SIX }
    }
}
