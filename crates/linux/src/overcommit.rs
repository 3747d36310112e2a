//! How much memory may be promised: `vm.overcommit_memory`, and what belongs to it.
//!
//! ```text
//!   0  a guess   one call may ask for as much as there is
//!   1  always    for anything
//!   2  never     what all were promised stays below a limit (CommitLimit), less what is kept for
//!                root, and for a program itself: MAP_NORESERVE is passed over
//! ```
//!
//! **Invariants**
//! - O1. One of `overcommit_ratio` and `overcommit_kbytes` is 0 after a write of the other.
//! - O2. With 2 the embedder counts what was promised ([`Listed`]) right before each call that may
//!   promise more, and has one such call at work at a time. What the call itself promises counts
//!   from then on, as does a stack that grows: up to the next call by what was left at the last.
//!
//! **Not here**: counting (`meminfo`), and asking (`process`).
//!
//! [`Listed`]: crate::meminfo::Listed

use crate::errno::Errno;
use crate::numbers::{int_of_proc, of_proc};
use crate::pages::PAGE_KB;
use alloc::string::{String, ToString};
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use foliant_units::Pages;

/// What a call may ask for that memory has to be promised for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Promise {
    /// So much, whatever was promised before.
    Guess(Pages),
    /// Anything.
    Always,
    /// So much with all other calls since this was said.
    Never(Pages),
}

/// What a promise depends on where promises are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counted {
    /// Whether root asks.
    pub is_admin: bool,
    /// All that the process maps.
    pub own: Pages,
    /// What was promised to all.
    pub committed: Pages,
    /// What the pools have.
    pub pooled: Pages,
}

/// The words of a machine about promises.
#[derive(Debug)]
pub struct Overcommit {
    managed: Pages,
    mode: AtomicI32,
    ratio: AtomicI32,
    kilobytes: AtomicU64,
    of_root: AtomicU64,
    of_user: AtomicU64,
}

/// The words that are files.
#[derive(Clone, Copy)]
pub(crate) enum Word {
    Mode,
    Ratio,
    Kilobytes,
    OfRoot,
    OfUser,
}

impl Overcommit {
    /// A guess; half of memory otherwise. A 32nd of what is `free` as Linux begins is kept for
    /// root, 8 MiB at most, and for each program, 128 MiB at most.
    pub fn new(managed: Pages, free: Pages) -> Overcommit {
        let part = free.get() * PAGE_KB / 32;
        Overcommit {
            managed,
            mode: AtomicI32::new(0),
            ratio: AtomicI32::new(50),
            kilobytes: AtomicU64::new(0),
            of_root: AtomicU64::new(part.min(8 << 10)),
            of_user: AtomicU64::new(part.min(128 << 10)),
        }
    }
    /// Whether promises are counted (O2).
    pub fn is_strict(&self) -> bool {
        self.mode.load(Ordering::Relaxed) == 2
    }
    /// What may be promised to all, where that is counted: pages of the pools cannot.
    pub fn limit(&self, pooled: Pages) -> Pages {
        let kilobytes = self.kilobytes.load(Ordering::Relaxed);
        if kilobytes > 0 {
            return Pages::new(kilobytes / PAGE_KB);
        }
        let some = self.managed.get().saturating_sub(pooled.get());
        let ratio = i64::from(self.ratio.load(Ordering::Relaxed)) as u64;
        Pages::new(some.wrapping_mul(ratio) / 100)
    }
    /// What calls of a process may ask for.
    pub fn promise(&self, counted: impl FnOnce() -> Counted) -> Promise {
        match self.mode.load(Ordering::Relaxed) {
            0 => Promise::Guess(self.managed),
            1 => Promise::Always,
            _ => {
                let counted = counted();
                let pages = |kept: &AtomicU64| kept.load(Ordering::Relaxed) / PAGE_KB;
                let for_root = if counted.is_admin { 0 } else { pages(&self.of_root) };
                let for_user = (counted.own.get() / 32).min(pages(&self.of_user));
                let limit = self.limit(counted.pooled).get();
                // The limit itself is not reached.
                let gone = [for_root, for_user, counted.committed.get(), 1];
                Promise::Never(Pages::new(gone.into_iter().fold(limit, u64::saturating_sub)))
            }
        }
    }

    /// What a file shows.
    pub(crate) fn show(&self, word: Word) -> String {
        match word {
            Word::Mode => self.mode.load(Ordering::Relaxed).to_string(),
            Word::Ratio => self.ratio.load(Ordering::Relaxed).to_string(),
            Word::Kilobytes => self.kilobytes.load(Ordering::Relaxed).to_string(),
            Word::OfRoot => self.of_root.load(Ordering::Relaxed).to_string(),
            Word::OfUser => self.of_user.load(Ordering::Relaxed).to_string(),
        }
    }
    /// Takes what is written to a file.
    pub(crate) fn take(&self, word: Word, text: &str) -> Result<(), Errno> {
        match word {
            Word::Mode => match int_of_proc(text)? {
                mode @ 0..=2 => self.mode.store(mode, Ordering::Relaxed),
                _ => return Err(Errno::INVAL),
            },
            Word::Ratio => {
                self.ratio.store(int_of_proc(text)?, Ordering::Relaxed);
                self.kilobytes.store(0, Ordering::Relaxed); // O1
            }
            Word::Kilobytes => {
                self.kilobytes.store(of_proc(text)?, Ordering::Relaxed);
                self.ratio.store(0, Ordering::Relaxed); // O1
            }
            Word::OfRoot => self.of_root.store(of_proc(text)?, Ordering::Relaxed),
            Word::OfUser => self.of_user.store(of_proc(text)?, Ordering::Relaxed),
        }
        Ok(())
    }
}
