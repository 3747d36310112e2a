//! One word of a block's field: 32 frames, two bits each, and every change of it as a pure
//! function.
//!
//! A block of up to 32 frames lies in one word, so that allocating, freeing and splitting it is one
//! compare-and-exchange of a value computed here, and the word alone says where each block begins
//! and ends.
//!
//! ```text
//!   63           used           32 31           mark            0
//!  ┌──────────────────────────────┬──────────────────────────────┐     used mark
//!  │ u31 ...                u1 u0 │ m31 ...                m1 m0 │       0    0   closed: a hole, reserved, or all 2 MiB are whole
//!  └──────────────────────────────┴──────────────────────────────┘       0    1   free
//!                                                                        1    0   in a block, not its last frame
//!  all used, m31 = 0: the word is part of a block of order 6 to 8        1    1   the last frame of a block
//!     m3..m0 = its order, m8 = it is being taken or given back
//! ```
//!
//! **Invariants**
//! - I1. Blocks are naturally aligned; a block of up to 32 frames ends inside its word. Hence m31
//!   of a word full of such blocks is 1, and the pattern "all used, m31 = 0" is free to mean
//!   something else.
//! - I2. All words of a wide block (order 6 to 8) carry its order; the head word alone says whether
//!   it is in flight.
//! - I3. No change computed here takes a closed frame. So closing a word shuts everybody out of it.
//!
//! **Not here**: atomics (`field`).

/// Frames that one word describes.
pub(super) const SPAN: u32 = 32;
/// The largest order that fits one word.
pub(super) const NARROW: u32 = 5;

const BUSY: u64 = 1 << 8;

/// Frames at which a block of order 0 to 5 may begin.
const HEADS: [u32; 6] = [!0, 0x5555_5555, 0x1111_1111, 0x0101_0101, 0x0001_0001, 1];

const _: () = assert!(1 << NARROW == SPAN);

/// Whether a block is complete, or is being taken, given back or cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Complete,
    InFlight,
}

/// The state of one frame, as the word has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BitState {
    Free,
    Closed,
    /// In the block of `order` that begins at frame `head` of this word.
    Block {
        head: u32,
        order: u32,
    },
    /// In a wide block of this order.
    Wide {
        order: u32,
    },
}

/// A word of the field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Bits(pub(super) u64);

impl Bits {
    /// All 32 frames free.
    pub(super) const FREE: Bits = Bits(u32::MAX as u64);
    /// All 32 frames closed.
    pub(super) const CLOSED: Bits = Bits(0);

    const fn used(self) -> u32 {
        (self.0 >> SPAN) as u32
    }
    const fn mark(self) -> u32 {
        self.0 as u32
    }
    /// The free frames.
    pub(super) const fn free(self) -> u32 {
        self.mark() & !self.used()
    }
    /// A word of a wide block.
    pub(super) const fn wide(order: u32, phase: Phase) -> Bits {
        let word = (u32::MAX as u64) << SPAN | order as u64;
        Bits(if matches!(phase, Phase::InFlight) { word | BUSY } else { word })
    }
    /// The order and phase, where the word is part of a wide block (I1).
    pub(super) const fn as_wide(self) -> Option<(u32, Phase)> {
        if self.used() != u32::MAX || self.mark() >> 31 == 1 {
            return None;
        }
        let phase = if self.0 & BUSY == 0 { Phase::Complete } else { Phase::InFlight };
        Some((self.mark() & 15, phase))
    }
    /// A word full of allocated blocks of `order`, up to 5.
    pub(super) const fn full(order: u32) -> Bits {
        let ends = HEADS[order as usize] << ((1 << order) - 1);
        Bits((u32::MAX as u64) << SPAN | ends as u64)
    }

    /// The lowest free, aligned run of 2^`order` frames.
    #[inline]
    pub(super) fn find(self, order: u32) -> Option<u32> {
        let runs = self.runs(order);
        (runs != 0).then(|| runs.trailing_zeros())
    }
    #[inline]
    fn runs(self, order: u32) -> u32 {
        let mut runs = self.free();
        for step in 0..order {
            runs &= runs >> (1 << step);
        }
        runs & HEADS[order as usize]
    }
    /// Whether the aligned run of 2^`order` frames around frame `at` is free.
    pub(super) const fn is_free_around(self, at: u32, order: u32) -> bool {
        let run = mask(order) << (at & !((1 << order) - 1));
        self.free() & run == run
    }
    /// The word with the free run at `at` allocated as one block.
    #[inline]
    pub(super) const fn take(self, order: u32, at: u32) -> Bits {
        let run = (mask(order) as u64) << at;
        Bits(self.0 & !run | run << SPAN | last_of(order, at))
    }
    /// The word with the block of `order` at `at` free again, or `None` where no such block stands
    /// there.
    #[inline]
    pub(super) const fn give(self, order: u32, at: u32) -> Option<Bits> {
        let run = (mask(order) as u64) << at;
        if self.holds(order, at) { Some(Bits(self.0 & !(run << SPAN) | run)) } else { None }
    }
    /// The word with the block of `order` at `at` cut into blocks of `into`, or `None` where no
    /// such block stands there.
    pub(super) const fn split(self, order: u32, at: u32, into: u32) -> Option<Bits> {
        if !self.holds(order, at) {
            return None;
        }
        let run = (mask(order) as u64) << at;
        Some(Bits(self.0 | Bits::full(into).0 & run))
    }
    /// The word with the run of 2^`order` frames at `at`, each a block of its own, as one block;
    /// `None` where one is not.
    pub(super) const fn join(self, order: u32, at: u32) -> Option<Bits> {
        match self.give_all(mask(order) << at) {
            Some(free) => Some(free.take(order, at)),
            None => None,
        }
    }
    /// Whether exactly the block of `order` at `at` is allocated: all its frames are used, the last
    /// and only the last is marked, and the frame before is not the middle of a longer block.
    #[inline]
    const fn holds(self, order: u32, at: u32) -> bool {
        let run = (mask(order) as u64) << at;
        let both = run | run << SPAN;
        let middle = (self.used() & !self.mark()) as u64;
        self.0 & both == run << SPAN | last_of(order, at)
            && middle << 1 >> at & 1 == 0
            && self.as_wide().is_none()
    }
    /// The word with all its free frames allocated, each as a block of its own.
    pub(super) const fn take_all(self) -> Bits {
        Bits(self.0 | (self.free() as u64) << SPAN)
    }
    /// The word with these frames free again, each of which is a block of its own; `None` where one
    /// is not.
    pub(super) const fn give_all(self, frames: u32) -> Option<Bits> {
        let ends = self.used() & self.mark();
        let middle = self.used() & !self.mark();
        if frames & !ends != 0 || frames & middle << 1 != 0 || self.as_wide().is_some() {
            return None;
        }
        Some(Bits(self.0 & !((frames as u64) << SPAN)))
    }
    /// The state of frame `at`, as the word has it.
    pub(super) const fn spot(self, at: u32) -> BitState {
        if let Some((order, _)) = self.as_wide() {
            return BitState::Wide { order };
        }
        match (self.used() >> at & 1, self.mark() >> at & 1) {
            (0, 1) => BitState::Free,
            (0, _) => BitState::Closed,
            _ => {
                let end = at + ((self.used() & self.mark()) >> at).trailing_zeros();
                // The frames right below `at` that are used and no end belong to its block.
                let middle = (self.used() & !self.mark()) as u64;
                let head = at - (middle << SPAN << (SPAN - at)).leading_ones();
                BitState::Block { head, order: (end + 1 - head).trailing_zeros() }
            }
        }
    }
    /// The word with the frames from `from` up to `to` closed, or `None` where one is not free.
    pub(super) const fn close(self, from: u32, to: u32) -> Option<Bits> {
        let run = between(from, to);
        if self.free() & run == run { Some(Bits(self.0 & !(run as u64))) } else { None }
    }
    /// The word with the frames from `from` up to `to`, which are closed, free again.
    pub(super) const fn open(self, from: u32, to: u32) -> Bits {
        Bits(self.0 | between(from, to) as u64)
    }
    /// One more than the largest order with a free block in the word, or `least` where that is
    /// more.
    pub(super) fn fit(self, least: u32) -> u32 {
        let mut fit = least;
        while fit <= NARROW && self.runs(fit) != 0 {
            fit += 1;
        }
        fit
    }
    /// Adds, per order, the free blocks that are not halves of larger free blocks. A wholly free
    /// word adds nothing.
    pub(super) fn count_maximal(self, into: &mut [u64; 19]) {
        for order in 0..NARROW {
            let own = self.runs(order);
            let above = self.runs(order + 1);
            let covered = above | above << (1 << order);
            into[order as usize] += u64::from((own & !covered).count_ones());
        }
    }
    /// Whether the word is a legal one: every block in it is a power of two in size and naturally
    /// aligned (I1).
    #[cfg(any(test, feature = "verify"))]
    pub(super) fn is_legal(self) -> bool {
        if let Some((order, _)) = self.as_wide() {
            return (NARROW + 1..=8).contains(&order) && self.mark() & !0x10f == 0;
        }
        (0..SPAN).all(|at| match self.spot(at) {
            BitState::Block { head, order } => {
                let end = head + (1 << order);
                order <= NARROW && head % (1 << order) == 0 && at < end && self.holds(order, head)
            }
            _ => true,
        })
    }
}

/// 2^`order` low bits, for orders up to 5.
const fn mask(order: u32) -> u32 {
    const MASKS: [u32; 6] = [1, 3, 0xf, 0xff, 0xffff, !0];
    MASKS[order as usize]
}

pub(super) const fn between(from: u32, to: u32) -> u32 {
    ((1u64 << to) - (1u64 << from)) as u32
}

const fn last_of(order: u32, at: u32) -> u64 {
    1 << (at + (1 << order) - 1)
}
