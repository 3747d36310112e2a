//! Which stretches of the descriptor array are there: two bits per 2 MiB block.
//!
//! ```text
//!                ┌──────────── Moving ────────────┐        Moving: one CPU is changing the stretch, nobody else looks
//!                │   ▲                    ▲   │    ▼
//!              Ready │                    │   └▶ Absent    Absent ─▶ Ready at once for a whole section: one leaf
//!                └───┘                    └───────┘
//! ```
//!
//! **Invariants**
//! - S1. A walker that reads or writes a descriptor speculatively does so in a reader's section in
//!   which it saw `Ready`. A CPU that unmaps descriptors sets `Moving` and then waits for the
//!   sections that began earlier. So no such access finds nothing mapped.
//! - S2. The CPU that set `Moving` is the only one that changes it. Meanwhile it waits for other
//!   stretches only where they are populated, which waits for none. `Absent` becomes `Ready`
//!   without it only while a leaf maps the stretch: under the lock of the leaf's table, which a
//!   split of the leaf takes.
//!
//! **Locking.** `Moving` is a lock of the stretch; its waiters hold no table's lock
//! and no leaf lock. A caller that has claimed a frame of the block, perhaps in a reader's section,
//! waits for another one that populates: a short wait, because populating waits for no stretch and
//! for no reader. `memmap` holds it over a grace period; its caller has all of the block, so only
//! walkers of frame numbers (`speculate`) and `Manager::describe_all` wait for that, in no section.
//! Behind the grace period it gives frames of the block's own descriptors back, and their next
//! owner waits for the rest of the flush.
//!
//! **Not here**: whether a stretch that is there is dense or folded; the page tables say that
//! (`memmap`).

use crate::sync::{AtomicU64, Ordering};
use foliant_units::{Frame, Order};

/// The number of a 2 MiB block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Block(pub(crate) u64);

impl Block {
    /// The one that holds `frame`.
    pub(crate) const fn of(frame: Frame) -> Block {
        Block(frame.get() >> Order::SIZE_2M.get())
    }
    /// Its first frame.
    pub(crate) const fn first(self) -> Frame {
        Frame::new(self.0 << Order::SIZE_2M.get())
    }
}

/// What is known of the descriptors of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stretch {
    /// There are none.
    Absent = 0,
    /// They are mapped.
    Ready = 1,
    /// Somebody is changing that.
    Moving = 2,
}

const PER_WORD: u64 = 32;
/// `Ready` for every block of a word.
const ALL_READY: u64 = 0x5555_5555_5555_5555;

/// See the module's text.
///
/// Key: `[a]` atomic.
pub(crate) struct Stretches<'m> {
    words: &'m [AtomicU64], // [a]
    hosts: AtomicU64,       // [a] blocks that hold frames of their own stretch
    cursor: AtomicU64,      // [a] where to look for one of those next; a hint
}

impl<'m> Stretches<'m> {
    /// How many words it takes for frames below `end`. There is one block more, so that an end is a
    /// block too.
    pub(crate) const fn words(end: Frame) -> u64 {
        (Block::of(end).0 + 1).div_ceil(2 * PER_WORD) * 2
    }
    /// Over cleared words.
    pub(crate) fn new(words: &'m [AtomicU64]) -> Stretches<'m> {
        Stretches { words, hosts: AtomicU64::new(0), cursor: AtomicU64::new(0) }
    }
    /// How many blocks hold frames of their own stretch.
    pub(crate) fn hosts(&self) -> u64 {
        self.hosts.load(Ordering::Relaxed)
    }
    /// Notes that a block was given frames of its own for its stretch.
    pub(crate) fn hosted(&self) {
        self.hosts.fetch_add(1, Ordering::Relaxed);
    }
    /// Notes that such a block has lost its stretch.
    pub(crate) fn unhosted(&self) {
        let were = self.hosts.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(were > 0, "each of them was counted by `hosted`");
    }
    /// Where to look for them next.
    pub(crate) fn cursor(&self) -> u64 {
        self.cursor.load(Ordering::Relaxed)
    }
    pub(crate) fn set_cursor(&self, at: u64) {
        self.cursor.store(at, Ordering::Relaxed);
    }

    fn place(&self, block: Block) -> Option<(&'m AtomicU64, u64)> {
        let word = self.words.get(usize::try_from(block.0 / PER_WORD).ok()?)?;
        Some((word, block.0 % PER_WORD * 2))
    }
    /// The state of a block; one beyond all memory is absent.
    #[inline]
    pub(crate) fn get(&self, block: Block) -> Stretch {
        let Some((word, shift)) = self.place(block) else { return Stretch::Absent };
        Stretches::read(word.load(Ordering::Acquire) >> shift)
    }
    const fn read(bits: u64) -> Stretch {
        match bits & 3 {
            0 => Stretch::Absent,
            1 => Stretch::Ready,
            _ => Stretch::Moving,
        }
    }
    /// Changes the state of a block if it is `from`, and says whether it was.
    pub(crate) fn change(&self, block: Block, from: Stretch, to: Stretch) -> bool {
        let Some((word, shift)) = self.place(block) else { return false };
        let change = |bits: u64| {
            let is = Stretches::read(bits >> shift) == from;
            is.then_some(bits & !(3 << shift) | (to as u64) << shift)
        };
        word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change).is_ok()
    }
    /// Notes that a leaf was mapped: all blocks of the section that holds `block` are there, except
    /// those that a CPU is moving. The caller has the lock of the leaf's table.
    pub(crate) fn ready_section(&self, block: Block) {
        let first = ((block.0 / PER_WORD) & !1) as usize;
        for word in self.words.iter().skip(first).take(2) {
            let fill = |bits: u64| Some(bits | ALL_READY & !(bits >> 1));
            let _ = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fill);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_leaves_alone_what_somebody_moves() {
        let words: [AtomicU64; 4] = core::array::from_fn(|_| AtomicU64::new(0));
        let stretches = Stretches::new(&words);
        assert_eq!(Stretches::words(Frame::new(128 * 512 - 1)), 4);
        assert_eq!(Stretches::words(Frame::new(128 * 512)), 6);
        assert!(stretches.change(Block(70), Stretch::Absent, Stretch::Moving));
        assert!(!stretches.change(Block(70), Stretch::Absent, Stretch::Moving));
        assert!(stretches.change(Block(81), Stretch::Absent, Stretch::Ready));
        stretches.ready_section(Block(100));
        let expect = |n| match n {
            70 => Stretch::Moving,
            64..128 => Stretch::Ready,
            _ => Stretch::Absent,
        };
        for n in 0..140 {
            assert_eq!(stretches.get(Block(n)), expect(n), "{n}");
        }
        assert!(stretches.change(Block(70), Stretch::Moving, Stretch::Absent));
        assert!(!stretches.change(Block(140), Stretch::Absent, Stretch::Moving), "no such block");
    }
}
