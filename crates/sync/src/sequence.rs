//! A sequence counter: readers find out that a writer was at work, and read again.

use super::{AtomicU64, Ordering, fence};
use foliant_machine::Cpus;

/// A counter that is even while the structure is at rest and odd while a writer changes it.
///
/// **Invariants**
/// - Q1. Everything that a reader looks at is atomic, and stays readable memory while any reader
///   may be there.
/// - Q2. Writers exclude each other by another lock.
/// - Q3. What a writer loads after its change is loaded when others can see the change. So if it
///   misses a word that a reader stored, and the reader stored it before a fence of its own and
///   asked for the edition behind that, then the reader sees the change.
#[derive(Debug, Default)]
pub struct Sequence {
    count: AtomicU64,
}

/// A state of the structure between two writers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Edition(u64);

impl Sequence {
    /// Runs `look` until no writer was at work meanwhile. `look` must end on any mixture of old and
    /// new.
    pub fn read<R>(&self, cpus: &impl Cpus, look: impl FnMut() -> R) -> R {
        self.read_edition(cpus, look).0
    }
    /// The same; says also which edition was read.
    #[inline(always)]
    pub fn read_edition<R>(&self, cpus: &impl Cpus, mut look: impl FnMut() -> R) -> (R, Edition) {
        loop {
            let before = self.count.load(Ordering::Acquire);
            if before & 1 == 0 {
                let seen = look();
                fence(Ordering::Acquire);
                if self.count.load(Ordering::Relaxed) == before {
                    return (seen, Edition(before));
                }
            }
            cpus.relax();
        }
    }
    /// Whether no writer has begun since `edition` was read.
    #[inline]
    pub fn is_at(&self, edition: Edition) -> bool {
        self.count.load(Ordering::Acquire) == edition.0
    }
    /// Runs `change` as a writer; the caller holds the lock that excludes other writers (Q2).
    pub fn write<R>(&self, change: impl FnOnce() -> R) -> R {
        let before = self.count.load(Ordering::Relaxed);
        self.count.store(before + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        let done = change();
        self.count.store(before + 2, Ordering::Release);
        fence(Ordering::SeqCst); // (Q3)
        done
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    struct Alone;
    impl Cpus for Alone {
        fn me(&self) -> foliant_units::Cpu {
            foliant_units::Cpu(0)
        }
        fn count(&self) -> usize {
            1
        }
        fn pinned<R>(&self, work: impl FnOnce(foliant_units::Cpu) -> R) -> R {
            work(self.me())
        }
        fn relax(&self) {
            unreachable!("nobody writes")
        }
    }

    #[test]
    fn an_edition_lasts_until_the_next_writer_begins() {
        let sequence = Sequence::default();
        let (seen, first) = sequence.read_edition(&Alone, || 7);
        assert_eq!(seen, 7);
        assert!(sequence.is_at(first) && sequence.is_at(first));
        sequence.write(|| assert!(!sequence.is_at(first), "a writer is at work"));
        assert!(!sequence.is_at(first));
        let (_, second) = sequence.read_edition(&Alone, || ());
        assert!(sequence.is_at(second));
        assert_ne!(first, second);
    }
}
