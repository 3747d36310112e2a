//! Names that lead to an end: those that are no file's, and ports.
//!
//! **Invariants**
//! - K4. A name leads to one end, or to one for each of the machine's addresses. It is free when
//!   its socket is closed.

use super::address::{Address, Host};
use super::end::{End, Kind};
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use foliant_linux::Errno;
use linux_raw_sys::errno::{EADDRINUSE, EADDRNOTAVAIL};
use spin::Mutex;

/// Ports that are given to those that ask for none.
const FREE: core::ops::Range<u16> = 32_768..61_000;

/// How a port is claimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Claim {
    /// Beside others that do so too, and wait for nobody.
    pub(super) shares: bool,
    /// Addresses of four are left to others.
    pub(super) six_only: bool,
}

struct Bound {
    host: Host,
    claim: Claim,
    end: Weak<End>,
}

impl Bound {
    /// Whether whoever connects to this address arrives here.
    fn covers(&self, host: Host) -> bool {
        self.host == host
            || self.host == Host::ANY_FOUR && host.is_four()
            || self.host == Host::ANY_SIX && !(self.claim.six_only && host.is_four())
    }
}

struct Names {
    texts: BTreeMap<(Kind, Vec<u8>), Weak<End>>,
    ports: BTreeMap<(Kind, u16), Vec<Bound>>,
    next: u16,
    next_text: u32,
}

static NAMES: Mutex<Names> = Mutex::new(Names {
    texts: BTreeMap::new(),
    ports: BTreeMap::new(),
    next: FREE.start,
    next_text: 0,
});

/// A name that leads to an end, until it is dropped.
pub(in super::super) enum Named {
    /// A name of a file leads there by itself.
    Path,
    Text(Kind, Vec<u8>),
    Port(Kind, u16, Weak<End>),
}

impl Drop for Named {
    fn drop(&mut self) {
        let mut names = NAMES.lock();
        match self {
            Named::Path => {}
            Named::Text(kind, text) => _ = names.texts.remove(&(*kind, core::mem::take(text))),
            Named::Port(kind, port, end) => {
                let Some(all) = names.ports.get_mut(&(*kind, *port)) else { return };
                all.retain(|bound| !bound.end.ptr_eq(end));
                if all.is_empty() {
                    names.ports.remove(&(*kind, *port));
                }
            }
        }
    }
}

impl Names {
    fn is_free(&self, kind: Kind, port: u16, (host, claim): (Host, Claim)) -> bool {
        let Some(all) = self.ports.get(&(kind, port)) else { return true };
        let own = Bound { host, claim, end: Weak::new() };
        !all.iter().any(|other| {
            let meets = other.covers(host) || own.covers(other.host);
            let listens = || {
                let end = other.end.upgrade();
                end.is_some_and(|end| end.inside.lock().backlog.is_some())
            };
            meets && !(claim.shares && other.claim.shares && !listens())
        })
    }
}

/// Gives an end a name of its own.
pub(super) fn claim_text(end: &Arc<End>, text: &[u8]) -> Result<Named, Errno> {
    let mut names = NAMES.lock();
    let key = (end.kind, text.to_vec());
    if names.texts.contains_key(&key) {
        return Err(Errno(EADDRINUSE));
    }
    names.texts.insert(key, Arc::downgrade(end));
    Ok(Named::Text(end.kind, text.to_vec()))
}
/// A name that no end has.
pub(super) fn free_text() -> Vec<u8> {
    let mut names = NAMES.lock();
    names.next_text = names.next_text.wrapping_add(1);
    alloc::format!("{:05x}", names.next_text & 0xf_ffff).into_bytes()
}
/// The end that such a name leads to.
pub(super) fn find_text(kind: Kind, text: &[u8]) -> Option<Arc<End>> {
    NAMES.lock().texts.get(&(kind, text.to_vec()))?.upgrade()
}
/// Gives an end a port of one address, or of all; 0 is any that is free.
pub(super) fn claim_port(
    end: &Arc<End>,
    (host, port): (Host, u16),
    claim: Claim,
) -> Result<(Named, Address), Errno> {
    if !host.is_own() {
        return Err(Errno(EADDRNOTAVAIL));
    }
    let mut names = NAMES.lock();
    let port = match port {
        0 => {
            let from = names.next - FREE.start;
            let count = FREE.len() as u16;
            let all = (0..count).map(|nth| FREE.start + (from + nth) % count);
            let is_free = |port: &u16| !names.ports.contains_key(&(end.kind, *port));
            let mut all = all.filter(is_free);
            let found = all.next().ok_or(Errno(EADDRINUSE))?;
            names.next = FREE.start + (found + 1 - FREE.start) % count;
            found
        }
        port if names.is_free(end.kind, port, (host, claim)) => port,
        _ => return Err(Errno(EADDRINUSE)),
    };
    let end_of = Arc::downgrade(end);
    let bound = Bound { host, claim, end: end_of.clone() };
    names.ports.entry((end.kind, port)).or_default().push(bound);
    Ok((Named::Port(end.kind, port, end_of), Address::Port(host, port)))
}
/// The end that a port of an address leads to.
pub(super) fn find_port(kind: Kind, host: Host, port: u16) -> Option<Arc<End>> {
    let names = NAMES.lock();
    let all = names.ports.get(&(kind, port))?;
    let exact = all.iter().filter(|bound| bound.host == host);
    let any = all.iter().filter(|bound| bound.host != host && bound.covers(host));
    let mut found = exact.chain(any).filter_map(|bound| bound.end.upgrade());
    match kind {
        Kind::Stream => found.find(|end| end.inside.lock().backlog.is_some()),
        _ => found.next(),
    }
}
