//! Steps, and where they are taken: for measuring latencies as counts, on a host.
//!
//! A step is one access to a word of the manager's records or one call of the machine's; a bulk
//! call counts one for each line of 64 bytes. Steps are counted per thread. A CPU of a simulated
//! machine is a thread, or has counts of its own where CPUs take turns on one (`Counts`). Without
//! the feature `steps` nothing of this is left but a mark without a size.
//!
//! Under the feature a thread can also be watched (`watch`): its watcher is told of each access to
//! a word before the access is made, and may have another CPU go on in between.
//!
//! **Invariants**
//! - N1. A preemption point while a mark of any place but [`Critical::Patient`] is alive is a
//!   defect, and panics (`outside`).
//!
//! **Not here**: which operation takes so many steps; the caller says what it asked for.

#[cfg(all(feature = "steps", not(feature = "loom")))]
mod on;
#[cfg(all(feature = "steps", not(feature = "loom")))]
pub use super::counting::AtomicU64 as Word;
#[cfg(all(feature = "steps", not(feature = "loom")))]
pub(crate) use on::told;
#[cfg(all(feature = "steps", not(feature = "loom")))]
pub use on::{Counts, Watcher, longest, reset, rested, take, taken, trade, watch};

/// An access to a word of the manager's records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touch {
    /// The word is about to be read.
    Read,
    /// The word is about to be changed, or compared and changed.
    Write,
    /// The word was changed.
    Written,
}

/// A place where a CPU keeps others waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Critical {
    /// In a patient lock, such as that of a space's writer; its holder yields.
    Patient,
    /// In a lock that is held over long work, such as a pool's resizing or a purge.
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
pub struct Inside {
    #[cfg(all(feature = "steps", not(feature = "loom")))]
    place: Option<Critical>,
}

impl Inside {
    #[inline]
    /// Begins the stay.
    pub fn enter(place: Critical) -> Inside {
        #[cfg(all(feature = "steps", not(feature = "loom")))]
        {
            on::enter(place);
            Inside { place: Some(place) }
        }
        #[cfg(not(all(feature = "steps", not(feature = "loom"))))]
        {
            let _ = place;
            Inside {}
        }
    }
    /// Ends the mark early, for a guard that is forgotten instead of dropped.
    #[inline]
    #[allow(clippy::unused_self, clippy::needless_pass_by_ref_mut, reason = "as the feature says")]
    pub fn leave(&mut self) {
        #[cfg(all(feature = "steps", not(feature = "loom")))]
        if let Some(place) = self.place.take() {
            on::leave(place);
        }
    }
}

#[cfg(all(feature = "steps", not(feature = "loom")))]
impl Drop for Inside {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Notes that a preemption point is reached: the unbroken work before it ends.
#[inline]
pub fn yielded() {
    #[cfg(all(feature = "steps", not(feature = "loom")))]
    on::yielded();
}
