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
use super::process::Process;
use super::sockets::Task;
use super::thread::Thread;
use super::{texts, world};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use foliant_files::{Caller, Facts, NodeId, Owner};
use foliant_linux::Errno;
use foliant_linux::credentials::{By, Credentials, Guarded};
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

/// Who walks: a thread's credentials, and the process that links are asked for.
pub(super) struct Walker<'t> {
    pub(super) process: &'t Process,
    pub(super) credentials: &'t Credentials,
}

impl Caller<Content> for Walker<'_> {
    fn link(&self, leaf: &Content) -> Option<Vec<u8>> {
        leaf.link(self.process.id)
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
/// Who may do what with a file.
pub(super) fn guarded(facts: &Facts) -> Guarded {
    Guarded { uid: facts.uid, gid: facts.gid, mode: facts.mode }
}
/// Refuses what a file does not let somebody do.
pub(super) fn allowed(by: &Credentials, node: NodeId, wanted: u32) -> Result<(), Errno> {
    let facts = world().files.read().facts(node).ok_or(Errno(ESTALE))?;
    if by.may(&guarded(&facts), wanted) { Ok(()) } else { Err(Errno(EACCES)) }
}

impl Thread {
    /// Who it is now.
    pub(super) fn credentials(&self) -> Arc<Credentials> {
        self.credentials.get()
    }
    /// Who it is to whoever is at the other end of its sockets.
    pub(super) fn task(&self) -> Task {
        let own = self.credentials();
        [self.process.id, own.user.effective, own.group.effective]
    }
    /// Refuses whoever is not root.
    pub(super) fn needs_root(&self) -> Result<(), Errno> {
        if self.credentials().is_root() { Ok(()) } else { Err(Errno::PERM) }
    }
    /// Has it be somebody else from now on.
    pub(super) fn become_other(&self, new: Credentials) {
        let before = self.credentials();
        if new == *before {
            return;
        }
        let process = &self.process;
        if new.hides_from(&before) {
            process.is_dumpable.store(false, Ordering::Relaxed);
            process.dies_with.store(0, Ordering::Relaxed);
        }
        self.credentials.set(Arc::new(new));
        texts::note_owner(process);
    }
    /// Whether it may look at a process's memory.
    pub(super) fn may_look_at(&self, other: &Process, by: By) -> bool {
        let own = self.credentials();
        let is_shown = || other.is_dumpable.load(Ordering::Relaxed) || own.is_root();
        other.id == self.process.id || own.may_look_at(&other.credentials.get(), by) && is_shown()
    }
}
