//! Steps, and where they are taken: for measuring latencies as counts, on a host.
//!
//! A step is one access to a word of the manager's records or one call of the machine's; a bulk call counts one for each line
//! of 64 bytes. What a thread does is counted for that thread: on a simulated machine each CPU is one. Without the feature
//! `steps` there is nothing of this but a mark without a size.
//!
//! Under it a thread can also be watched (`watch`): each access to a word is told before it is made, so that the watcher may have another
//! CPU go on in between.
//!
//! **Invariants**
//! - N1. A preemption point while a mark is alive, of any place but [`Critical::Patient`], is a defect, and panics (`outside`).
//!
//! **Not here**: what takes so many steps; the caller says what it asked for.

#[cfg(all(feature = "steps", not(loom)))]
mod on;
#[cfg(all(feature = "steps", not(loom)))]
pub use super::counting::AtomicU64 as Word;
#[cfg(all(feature = "steps", not(loom)))]
pub(crate) use on::told;
#[cfg(all(feature = "steps", not(loom)))]
pub use on::{Counts, Watcher, longest, reset, rested, take, taken, trade, watch};

/// What is done to a word of the manager's records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touch {
    /// It is about to be read.
    Read,
    /// It is about to be changed, or compared and changed.
    Write,
    /// It was changed.
    Written,
}

/// Where a CPU is that others wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Critical {
    /// In the lock of a space's writer, whose holder yields.
    Patient,
    /// In a lock that is held over long work: a pool's resizing, a purge.
    Long,
    /// In a leaf lock.
    Leaf,
    /// In a page table's lock.
    Table,
    /// In a reader's section.
    Section,
    /// In a stretch of descriptors that moves.
    Moving,
    /// Anywhere: from one preemption point or turn of a spin loop to the next.
    Unbroken,
}

impl Critical {
    /// All of them.
    pub const ALL: [Critical; 7] = [
        Critical::Patient,
        Critical::Long,
        Critical::Leaf,
        Critical::Table,
        Critical::Section,
        Critical::Moving,
        Critical::Unbroken,
    ];
}

/// Marks the time in a place until it is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Inside {
    #[cfg(all(feature = "steps", not(loom)))]
    place: Option<Critical>,
}

impl Inside {
    #[inline]
    pub(crate) fn enter(place: Critical) -> Inside {
        #[cfg(all(feature = "steps", not(loom)))]
        {
            on::enter(place);
            Inside { place: Some(place) }
        }
        #[cfg(not(all(feature = "steps", not(loom))))]
        {
            let _ = place;
            Inside {}
        }
    }
    /// Ends it early, for who is forgotten instead of dropped.
    #[inline]
    #[allow(clippy::unused_self, clippy::needless_pass_by_ref_mut, reason = "as the feature says")]
    pub(crate) fn leave(&mut self) {
        #[cfg(all(feature = "steps", not(loom)))]
        if let Some(place) = self.place.take() {
            on::leave(place);
        }
    }
}

#[cfg(all(feature = "steps", not(loom)))]
impl Drop for Inside {
    fn drop(&mut self) {
        self.leave();
    }
}

/// A preemption point is taken: a stretch of work ends.
#[inline]
pub(crate) fn yielded() {
    #[cfg(all(feature = "steps", not(loom)))]
    on::yielded();
}
