//! Who a thread is, and what it may do by that.
//!
//! ```text
//!   Process ─▶ Seat ◀─ its first thread      others ─▶ Seats of their own
//!                │
//!                └─▶ Credentials (`foliant-linux`), never changed, but others put there
//! ```
//!
//! Each thread has its own, as on Linux, where a library that wants them to be a process's has each
//! thread set them. What others see of a process are its first thread's, also when that has ended.
//!
//! **Invariants**
//! - R1. A thread sets its own credentials alone, and a program that begins those of its process.
//! - R2. Whoever is at a call has the credentials of the call's beginning until its end.
//!
//! **Locking**: one lock, with nothing under it.
//!
//! **Not here**: what credentials mean (`foliant-linux`).

use super::content::Content;
use super::world;
use alloc::sync::Arc;
use alloc::vec::Vec;
use foliant_files::{Caller, Facts, NodeId, Owner};
use foliant_linux::Errno;
use foliant_linux::credentials::{Credentials, Guarded};
use linux_raw_sys::errno::{EACCES, ESTALE};
use spin::Mutex;

/// Where credentials are kept.
pub(super) struct Seat(Mutex<Arc<Credentials>>);

impl Seat {
    /// Root's.
    pub(super) fn of_root() -> Arc<Seat> {
        Arc::new(Seat(Mutex::new(Arc::new(Credentials::ROOT))))
    }
    pub(super) fn get(&self) -> Arc<Credentials> {
        self.0.lock().clone()
    }
    pub(super) fn set(&self, to: Arc<Credentials>) {
        *self.0.lock() = to;
    }
}

/// Who walks: a thread's credentials, and the number of the process that links are asked for.
pub(super) struct Walker<'t> {
    pub(super) process: u32,
    pub(super) credentials: &'t Credentials,
}

impl Caller<Content> for Walker<'_> {
    fn link(&self, leaf: &Content) -> Option<Vec<u8>> {
        leaf.link(self.process)
    }
    fn may(&self, facts: &Facts, wanted: u32) -> bool {
        self.credentials.may(&guarded(facts), wanted)
    }
    fn owner(&self) -> Owner {
        owner(self.credentials)
    }
}

/// Whose the new files of somebody are.
pub(super) fn owner(by: &Credentials) -> Owner {
    Owner { uid: by.user.files, gid: by.group.files }
}
/// The permissions of a file.
pub(super) fn guarded(facts: &Facts) -> Guarded {
    Guarded { uid: facts.uid, gid: facts.gid, mode: facts.mode }
}
/// Refuses what a file does not let somebody do.
pub(super) fn allowed(by: &Credentials, node: NodeId, wanted: u32) -> Result<(), Errno> {
    let facts = world().files.read().facts(node).ok_or(Errno(ESTALE))?;
    if by.may(&guarded(&facts), wanted) { Ok(()) } else { Err(Errno(EACCES)) }
}
