//! Seals of files in memory, which `fcntl` adds: what nobody may do to one any more.
//!
//! ```text
//!   SEAL                   more seals
//!   SHRINK, GROW           another length; GROW also fallocate and bytes written beyond the end
//!   WRITE                  shared mappings that may be written, refused while one is there; bytes
//!                          written, holes
//!   FUTURE_WRITE           the same, and those that are there stay
//!   EXEC                   another mode; of a file that may be executed it brings all but SEAL
//! ```
//!
//! A shared mapping of a file that nobody may write never gets the right to write, whatever
//! `mprotect` asks for.
//!
//! **Locking.** Seals are added as a length is changed (`file`). No mapping of a file begins beside
//! that: one that did might be writable where the seal found none.
//!
//! **Not here**: descriptors that may not write, modes of files, and the calls that seals refuse.

use crate::errno::Errno;
use core::sync::atomic::{AtomicU32, Ordering};
use linux_raw_sys::general::{
    F_SEAL_EXEC, F_SEAL_FUTURE_WRITE, F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_WRITE,
    MFD_ALLOW_SEALING, MFD_NOEXEC_SEAL,
};

/// Each of which keeps from writing.
pub(crate) const ANY_WRITE: u32 = F_SEAL_WRITE | F_SEAL_FUTURE_WRITE;
/// What a file that may be executed gets with [`F_SEAL_EXEC`].
const FROZEN: u32 = F_SEAL_SHRINK | F_SEAL_GROW | ANY_WRITE;
const ALL: u32 = F_SEAL_SEAL | F_SEAL_EXEC | FROZEN;

/// The seals of a file.
pub(crate) struct Seals {
    now: AtomicU32,
    is_executable: bool,
}

impl Seals {
    /// Those of a file that `memfd_create` makes.
    pub(crate) fn of(flags: u32) -> Seals {
        let is_executable = flags & MFD_NOEXEC_SEAL == 0;
        let now = match is_executable {
            false => F_SEAL_EXEC,
            true if flags & MFD_ALLOW_SEALING != 0 => 0,
            true => F_SEAL_SEAL,
        };
        Seals { now: AtomicU32::new(now), is_executable }
    }
    /// Which there are.
    pub(crate) fn now(&self) -> u32 {
        self.now.load(Ordering::Relaxed)
    }
    /// Whether one of these is there.
    pub(crate) fn has(&self, any: u32) -> bool {
        self.now() & any != 0
    }
    /// Adds some to a file that is mapped as is said: whether it is shared and may be written.
    pub(crate) fn add(&self, seals: u32, is_written: impl FnOnce() -> bool) -> Result<(), Errno> {
        if seals & !ALL != 0 {
            return Err(Errno::INVAL);
        }
        if self.has(F_SEAL_SEAL) {
            return Err(Errno::PERM);
        }
        let brought = if seals & F_SEAL_EXEC != 0 && self.is_executable { FROZEN } else { 0 };
        let added = (seals | brought) & !self.now();
        if added & F_SEAL_WRITE != 0 && is_written() {
            return Err(Errno::BUSY);
        }
        self.now.fetch_or(added, Ordering::Relaxed);
        Ok(())
    }
}
