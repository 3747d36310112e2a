//! Who makes a call, and what that one may do beside reaching files.

use super::super::process::Process;
use super::super::sockets::Task;
use super::super::texts;
use super::super::thread::Thread;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use foliant_linux::Errno;
use foliant_linux::capabilities::Capability;
use foliant_linux::credentials::{By, Credentials};

impl Thread {
    /// Who it is to whoever is at the other end of its sockets.
    pub(super) fn task(&self) -> Task {
        let own = self.credentials();
        [self.process.id, own.user.effective, own.group.effective]
    }
    /// Whether it has a capability.
    pub(in super::super) fn has(&self, one: Capability) -> bool {
        self.credentials().has(one)
    }
    /// Refuses whoever has not.
    pub(super) fn needs(&self, one: Capability) -> Result<(), Errno> {
        if self.has(one) { Ok(()) } else { Err(Errno::PERM) }
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
        let is_shown =
            || other.is_dumpable.load(Ordering::Relaxed) || own.has(Capability::SysPtrace);
        other.id == self.process.id || own.may_look_at(&other.credentials.get(), by) && is_shown()
    }
}
