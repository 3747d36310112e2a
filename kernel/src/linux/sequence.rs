//! Restartable sequences (rseq): a thread is told which CPU it runs on, in a word of its own, and a
//! short piece of its code begins anew where it was interrupted.
//!
//! ```text
//!   registered ─▶ a CPU has taken the thread, or a handler is about to run
//!                       │
//!                       └─▶ inside a sequence: goes on at its abort ─▶ number of the CPU ─▶ ring 3
//! ```
//!
//! **Invariants**
//! - R1. Ring 3 finds the number of the CPU it runs on, from its first instruction on. A wait while
//!   that is written makes the thread come back on another CPU, so it is written again.
//! - R2. Nothing of a sequence runs behind an interruption but its abort, which bears the mark that
//!   was registered: else no address is gone on at.

use super::user;
use crate::cpu;
use core::cell::Cell;
use foliant_linux::Errno;
use linux_raw_sys::errno::{EBUSY, EFAULT, EINVAL};

/// Linux's `struct rseq` as it began, which its users may be longer than.
pub(super) const AREA: u64 = 32;
/// Bytes of it that mean something, and where the words lie.
pub(super) const FEATURES: u64 = 28;
const SECTION: u64 = 8;
const FLAGS: u64 = 16;
const NODE: u64 = 20;
/// The number of a CPU before one is told.
const NONE: u32 = u32::MAX;
/// The one flag of the call.
const UNREGISTER: u64 = 1;
/// Where addresses of programs end.
const END: u64 = 1 << 47;

/// What a thread registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Area {
    at: u64,
    length: u32,
    mark: u32,
}

/// Of a thread.
pub(super) struct Sequence {
    area: Cell<Option<Area>>,
    /// A CPU took the thread since it was told which.
    moved: Cell<bool>,
}

impl Sequence {
    pub(super) const fn new() -> Sequence {
        Sequence { area: Cell::new(None), moved: Cell::new(false) }
    }
    /// As of the thread that forks.
    pub(super) fn take_from(&self, other: &Sequence) {
        self.area.set(other.area.get());
    }
    /// A new program has none.
    pub(super) fn clear(&self) {
        self.area.set(None);
    }
    /// A CPU took the thread.
    pub(super) fn note_moved(&self) {
        self.moved.set(true);
    }
    /// The call.
    pub(super) fn register(&self, [at, length, flags, mark]: [u64; 4]) -> Result<(), Errno> {
        let asked = Area { at, length: length as u32, mark: mark as u32 };
        let known = self.area.get();
        let is_known = |known: Area| match known {
            _ if (known.at, known.length) != (asked.at, asked.length) => Err(Errno(EINVAL)),
            _ if known.mark != asked.mark => Err(Errno::PERM),
            _ => Ok(()),
        };
        match (flags, known) {
            (UNREGISTER, Some(known)) => {
                is_known(known)?;
                user::put(at, &[0, NONE])?;
                self.area.set(None);
                Ok(())
            }
            (0, Some(known)) => is_known(known).and(Err(Errno(EBUSY))),
            (0, None) => {
                if u64::from(asked.length) < AREA || at % AREA != 0 {
                    return Err(Errno(EINVAL));
                }
                if at >= END {
                    return Err(Errno(EFAULT));
                }
                self.area.set(Some(asked));
                self.moved.set(true);
                Ok(())
            }
            _ => Err(Errno(EINVAL)),
        }
    }
    /// Whether the thread is to be told where it runs, before it goes to ring 3.
    pub(super) fn is_due(&self) -> bool {
        self.moved.get() && self.area.get().is_some()
    }
    /// Tells it (R1). Where it goes on is returned.
    pub(super) fn tell(&self, mut rip: u64) -> Result<u64, Errno> {
        while let Some(area) = self.area.get()
            && self.moved.take()
        {
            rip = self.abort(rip)?;
            let here = u32::from(cpu::me().0);
            user::put(area.at, &[here, here])?;
            user::put(area.at + NODE, &[0, here])?; // and a number below its process's CPUs
        }
        Ok(rip)
    }
    /// Where a thread goes on that was interrupted: at the abort of a sequence that it was in (R2).
    pub(super) fn abort(&self, rip: u64) -> Result<u64, Errno> {
        let Some(area) = self.area.get() else { return Ok(rip) };
        let section: u64 = user::get(area.at + SECTION)?;
        if section == 0 {
            return Ok(rip);
        }
        if section >= END {
            return Err(Errno(EFAULT));
        }
        let refused = Errno(EINVAL);
        let [kind, start, length, to]: [u64; 4] = user::get(section)?; // version and flags first
        let end = start.checked_add(length).filter(|end| *end < END).ok_or(refused)?;
        let flags: u32 = user::get(area.at + FLAGS)?;
        if kind != 0 || flags != 0 || to >= END || (start..end).contains(&to) {
            return Err(refused);
        }
        let mark: u32 = user::get(to.checked_sub(4).ok_or(refused)?)?;
        if mark != area.mark {
            return Err(refused);
        }
        user::put(area.at + SECTION, &0u64)?;
        Ok(if (start..end).contains(&rip) { to } else { rip })
    }
}
