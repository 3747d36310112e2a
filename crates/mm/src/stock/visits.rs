//! Which space a CPU runs, and which ones it ran last.
//!
//! ```text
//!   running: name          left: name, flushes │ name, flushes │ ...      a few, one of the older makes room
//! ```
//!
//! A CPU whose machine tags translations still has those of a space that it left. They are good as
//! long as no flush of that space began since (flush::F3), so the number of its flushes is kept
//! beside the name. The name carries the stamp: a space made later in the same frames is another
//! one.
//!
//! **Invariants**: a space that runs is not among those left; no space is there twice.
//!
//! **Locking**: none. Only the CPU itself reads and writes its line; the words are atomics because
//! records are shared memory.
//!
//! **Not here**: what the number means and when it may be kept (`flush`), loading roots (`space`).

use crate::sync::{AtomicU64, Ordering};
use foliant_units::Frame;

/// How many spaces a CPU remembers. Hardware has few tags too, and what was left long ago is cold.
const LEFT_MAX: usize = 4;

/// A space, told from all others that were ever in its frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Name {
    /// The frame of its record.
    pub(crate) frame: Frame,
    /// Its stamp, never 0.
    pub(crate) stamp: u32,
}

/// See the module's text. Valid when cleared.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Visits {
    running: VisitSlot,
    left: [Left; LEFT_MAX],
    turn: AtomicU64,
}

/// Room for a name; stamp 0 stands for none.
#[derive(Default)]
#[repr(C)]
struct VisitSlot {
    frame: AtomicU64,
    stamp: AtomicU64,
}

#[derive(Default)]
#[repr(C)]
struct Left {
    name: VisitSlot,
    flushes: AtomicU64,
}

impl VisitSlot {
    fn get(&self) -> Option<Name> {
        let stamp = self.stamp.load(Ordering::Relaxed) as u32;
        let frame = Frame::new(self.frame.load(Ordering::Relaxed));
        (stamp != 0).then_some(Name { frame, stamp })
    }
    fn set(&self, name: Option<Name>) {
        let (frame, stamp) = name.map_or((0, 0), |name| (name.frame.get(), name.stamp.into()));
        self.frame.store(frame, Ordering::Relaxed);
        self.stamp.store(stamp, Ordering::Relaxed);
    }
}

impl Visits {
    /// The space that the CPU runs.
    pub(crate) fn running(&self) -> Option<Name> {
        self.running.get()
    }
    /// Notes that the CPU runs `name` from now on.
    pub(crate) fn run(&self, name: Option<Name>) {
        self.running.set(name);
    }

    /// Remembers that `name` was left after so many flushes.
    pub(crate) fn remember(&self, name: Name, flushes: u64) {
        let turn = self.turn.load(Ordering::Relaxed);
        let oldest = &self.left[turn as usize % LEFT_MAX];
        let place = self.left.iter().find(|left| left.name.get().is_none()).unwrap_or_else(|| {
            self.turn.store(turn.wrapping_add(1), Ordering::Relaxed);
            oldest
        });
        place.name.set(Some(name));
        place.flushes.store(flushes, Ordering::Relaxed);
    }
    /// Forgets `name`, and says after how many flushes it was left.
    pub(crate) fn recall(&self, name: Name) -> Option<u64> {
        let place = self.left.iter().find(|left| left.name.get() == Some(name))?;
        place.name.set(None);
        Some(place.flushes.load(Ordering::Relaxed))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn place() -> VisitSlot {
        VisitSlot { frame: AtomicU64::new(0), stamp: AtomicU64::new(0) }
    }
    fn cleared() -> Visits {
        let left = || Left { name: place(), flushes: AtomicU64::new(0) };
        Visits { running: place(), left: core::array::from_fn(|_| left()), turn: AtomicU64::new(0) }
    }
    fn name(frame: u64, stamp: u32) -> Name {
        Name { frame: Frame::new(frame), stamp }
    }

    #[test]
    fn a_space_is_recalled_once_and_by_its_whole_name() {
        let visits = cleared();
        assert_eq!((visits.running(), visits.recall(name(0, 1))), (None, None));
        visits.run(Some(name(0, 1)));
        assert_eq!(visits.running(), Some(name(0, 1)), "a record may lie in frame 0");
        visits.remember(name(7, 1), 30);
        assert_eq!(visits.recall(name(7, 2)), None, "another space in the same frame");
        assert_eq!(visits.recall(name(8, 1)), None);
        assert_eq!((visits.recall(name(7, 1)), visits.recall(name(7, 1))), (Some(30), None));
    }

    #[test]
    fn the_last_ones_left_are_remembered() {
        let visits = cleared();
        for n in 1..=9 {
            visits.remember(name(n, 1), 10 * n);
        }
        for n in 1..=9 {
            let expect = (n > 9 - LEFT_MAX as u64).then_some(10 * n);
            assert_eq!(visits.recall(name(n, 1)), expect, "{n}");
        }
    }
}
