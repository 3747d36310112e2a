//! Reads of memory that nobody wrote to yet: whether a write follows.
//!
//! ```text
//!   read ─┬▶ shown zeros ─▶ written: a second fault, a page, a flush
//!         └▶ takes a page that may be written to: where writes followed nearly always
//! ```
//!
//! Both are counted where the manager chooses sizes, and nowhere else.
//!
//! **Invariants**
//! - R1. No read takes a page before 16 writes followed, and of 16 reads one at least is shown
//!   zeros: what is known goes on being found out.
//! - R2. Of the pages that reads took, the part counts as idle that was not written to of those
//!   shown, of all times or of late, whichever is more; a 64th is nothing, as writes come later. No
//!   read takes a page where that is more than there is room for.
//! - R3. No more are counted as written to than were shown, though each process that a fork made
//!   writes to the zeros that one read was shown: no surplus hides the reads that no write follows.

use crate::sync::{AtomicU64, Ordering};

/// Writes that followed before a read takes a page.
const PROOF: u64 = 16;
/// Reads that take a page for each that is shown zeros.
const TAKEN_PART: u64 = 15;
/// Reads that were shown zeros after which they count half.
const RECENT: u64 = 256;
/// The part of pages shown that may not be written to without being noted: writes come later.
const MISSED_PART: u64 = 64;

/// See the module's text.
///
/// Key: `[a]` atomic.
#[derive(Default)]
pub(crate) struct Reads {
    all: ShownZeros,
    recent: ShownZeros,
    taken: AtomicU64, // [a]
}

/// Pages that reads were shown as zeros, and those of them that were written to (R3).
///
/// Key: `[a]` atomic.
#[derive(Default)]
struct ShownZeros {
    shown: AtomicU64,   // [a]
    written: AtomicU64, // [a]
}

/// The same at one moment.
#[derive(Clone, Copy, Debug)]
struct ShownCounts {
    shown: u64,
    written: u64,
}

/// What was counted by one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadCounts {
    /// Of all times, and of late.
    shown: [ShownCounts; 2],
    /// Pages that reads took.
    taken: u64,
}

impl ShownZeros {
    fn counts(&self) -> ShownCounts {
        let [shown, written] =
            [&self.shown, &self.written].map(|count| count.load(Ordering::Relaxed));
        ShownCounts { shown, written }
    }
}

impl ReadCounts {
    /// Pages that reads took and nobody writes to, of so many that there are.
    pub(crate) fn idle(self, pages: u64) -> u64 {
        let unwritten = |of: ShownCounts| {
            // The last one may be about to be written to.
            let unwritten = of.shown.saturating_sub(of.written + 1 + of.shown / MISSED_PART);
            // Years of reads on much memory are more than 64 bits of product.
            let idle = u128::from(self.taken.min(pages)) * u128::from(unwritten);
            (idle / u128::from(of.shown.max(1))) as u64
        };
        let [all, recent] = self.shown.map(unwritten);
        all.max(recent)
    }
    /// Whether a read may take a page, where there are so many and room for so many idle ones.
    pub(crate) fn admit(self, pages: u64, room: u64) -> bool {
        let [all, _] = self.shown;
        let is_known = all.written >= PROOF && self.taken < TAKEN_PART * all.shown;
        is_known && self.idle(pages) <= room
    }
}

impl Reads {
    /// What was counted by now.
    pub(crate) fn counts(&self) -> ReadCounts {
        let shown = [&self.all, &self.recent].map(ShownZeros::counts);
        ReadCounts { shown, taken: self.taken.load(Ordering::Relaxed) }
    }
    /// A read takes a page.
    pub(crate) fn note_taken(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }
    /// A read is shown zeros.
    pub(crate) fn note_shown(&self) {
        let recent = &self.recent;
        self.all.shown.fetch_add(1, Ordering::Relaxed);
        let shown = recent.shown.fetch_add(1, Ordering::Relaxed) + 1;
        if shown >= RECENT {
            // CPUs that do so at once count a little less.
            recent.shown.store(shown / 2, Ordering::Relaxed);
            recent.written.store(recent.written.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
        }
    }
    /// Zeros that a read was shown are written to.
    pub(crate) fn note_written(&self) {
        for ShownZeros { shown, written } in [&self.all, &self.recent] {
            // CPUs that note one at once may go beyond by one each.
            if written.load(Ordering::Relaxed) < shown.load(Ordering::Relaxed) {
                written.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{ReadCounts, Reads, ShownCounts};

    fn counts(all: (u64, u64), recent: (u64, u64), taken: u64) -> ReadCounts {
        let shown = [all, recent].map(|(shown, written)| ShownCounts { shown, written });
        ReadCounts { shown, taken }
    }

    #[test]
    fn reads_take_pages_where_writes_followed() {
        let at = |shown, written, taken| {
            counts((shown, written), (shown, written), taken).admit(1_000_000, 100)
        };
        assert!(!at(15, 15, 0));
        assert!(at(16, 16, 0));
        assert!(at(1000, 16, 100), "little is idle yet, whatever the part");
        assert!(!at(1000, 16, 120));
        assert!(at(16, 16, 239) && !at(16, 16, 240), "one of sixteen is shown zeros");
    }

    #[test]
    fn what_reads_took_is_idle_as_what_they_were_shown() {
        let idle = |all, recent, pages| counts(all, recent, 1000).idle(pages);
        assert_eq!(idle((128, 125), (128, 125), 1 << 40), 0, "one and a 64th may be about to be");
        assert_eq!(idle((128, 124), (128, 124), 1 << 40), 7);
        assert_eq!(idle((128, 61), (128, 128), 500), 250, "no more than there is");
        assert_eq!(idle((10_000, 10_000), (128, 61), 500), 250, "of late");
        assert_eq!(idle((0, 0), (0, 0), 500), 0);
        let long = counts((1 << 50, 1 << 49), (0, 0), 1 << 50).idle(1 << 40);
        assert_eq!(long, (1 << 39) - (1 << 34) - 1, "after years");
    }

    /// A child writes to each page, then its parent does, and nobody to what is read later.
    #[test]
    fn what_two_processes_write_to_counts_once() {
        let reads = Reads::default();
        (0..64).for_each(|_| reads.note_shown());
        (0..128).for_each(|_| reads.note_written());
        assert!(reads.counts().admit(1 << 20, 100));
        (0..1000).for_each(|_| reads.note_taken());
        (0..64).for_each(|_| reads.note_shown());
        assert_eq!(reads.counts().idle(1000), 1000 * 61 / 128);
    }

    /// After many writes that followed it takes as few reads without to see it as after some.
    #[test]
    fn what_is_long_ago_counts_half_as_much_again_and_again() {
        let reads = Reads::default();
        for _ in 0..10_000 {
            reads.note_shown();
            reads.note_written();
            (0..15).for_each(|_| reads.note_taken());
        }
        assert_eq!(reads.counts().idle(1 << 40), 0);
        (0..64).for_each(|_| reads.note_shown());
        let idle = reads.counts().idle(1000);
        assert!((150..500).contains(&idle), "{idle}");
    }
}
