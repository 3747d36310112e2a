#![allow(unsafe_code)]
//! The descriptor array: mapped when a frame is first handed out, and read and written through
//! kernel addresses.
//!
//! ```text
//!   a section, 128 MiB of memory          its 2 MiB of descriptors
//!   │ block │ block │ ...  64 of them │   nothing there, 2 MiB free ─▶ one leaf, all 64 blocks at once
//!                                         a table is there         ─▶ 8 frames for the block that needs them
//! ```
//!
//! The 8 frames come from wherever unmovable memory is gathered, so that the block can become whole
//! again. Where no other memory is left they come out of the block itself. A claim that breaks a
//! whole block takes half of it at most, and the other half is more than the 8 frames and the
//! tables for them: so a claim of less than 2 MiB that finds a whole block does not fail for lack
//! of memory, unless other CPUs take the rest first.
//!
//! **Invariants**
//! - D1. Every frame of a stretch that is mapped by entries is a block of order 0 to the allocator;
//!   a leaf is one of order 9. So each frame can be given back by itself.
//! - D2. A stretch is populated as a whole or not at all, by the CPU that has set it `Moving` or by
//!   a leaf for its section. A leaf comes only while the section has no table, so a CPU that has
//!   found or made the table looks whether one was there before: nobody else maps the stretch then.
//!   A stretch may be `Absent` and mapped: a leaf came while it was `Moving`, and its mover was
//!   refused memory.

use super::{Block, Event, NoBlock, NoTable, Stock, Stretch, Subpool, Supply};
use crate::folio::Class;
use crate::frame::{
    Claim, DESCRIPTOR_BYTES, GUESS, Guess, Identity, Link, ORIGIN, Origin, References, SUBPOOL,
    TALLY, word_at,
};
use crate::sync::{Critical, Inside};
use crate::table::{Attrs, Blocked, Entry, Paging};
use foliant_machine::{KernelFault, Machine, Owner};
use foliant_units::{Bytes, FRAME_BYTES, Frame, FrameRange, Level, Order, Pages, Va, VaRange};

/// Bytes of descriptors that one leaf maps: those of 128 MiB of memory, a section.
pub(crate) const SECTION_BYTES: Bytes = Level::SIZE_2M.span();
/// Frames of descriptors that a 2 MiB block has.
pub(crate) const STRETCH_PAGES: Pages =
    Pages::new(Order::SIZE_2M.pages().get() * DESCRIPTOR_BYTES.get() / FRAME_BYTES);
/// How descriptors are mapped that belong to one block only.
pub(crate) const OWN: Attrs = Attrs::WRITE.with(Attrs::GLOBAL).with(Attrs::TOUCHED);

const FRAMES: usize = STRETCH_PAGES.get() as usize;

/// When descriptors were mapped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum DescribedBy {
    /// Not yet, or by the caller just now.
    Now,
    /// Somebody had mapped a leaf there, or hung in a table where a leaf was meant to go.
    Before,
}

impl<'m, M: Machine, P: Paging> Stock<'m, M, P> {
    /// Makes sure that the descriptors of `frames` are there. The caller holds a frame of each
    /// block, or all of memory is meant.
    pub(crate) fn describe(&self, frames: FrameRange) -> Result<(), NoBlock> {
        let last = Block::of(Frame::new(frames.end().get() - 1));
        let mut block = Block::of(frames.start());
        while block <= last {
            self.describe_block(block)?;
            block = Block(block.0 + 1);
        }
        Ok(())
    }

    #[inline]
    fn describe_block(&self, block: Block) -> Result<(), NoBlock> {
        loop {
            match self.stretches.get(block) {
                Stretch::Ready => return Ok(()),
                Stretch::Moving => self.machine.relax(),
                Stretch::Absent => {
                    // It is cleared before anybody waits for the stretch.
                    let leaf = self.claim_leaf(block);
                    if self.stretches.change(block, Stretch::Absent, Stretch::Moving) {
                        let _inside = Inside::enter(Critical::Moving);
                        let done = self.populate(block, leaf);
                        let now = if done.is_ok() { Stretch::Ready } else { Stretch::Absent };
                        self.stretches.change(block, Stretch::Moving, now);
                        return done;
                    }
                    leaf.into_iter().for_each(|claim| self.release_cleared(claim));
                }
            }
        }
    }

    /// The addresses of a block's descriptors.
    pub(crate) fn stretch(&self, block: Block) -> VaRange {
        VaRange::sized(word_at(self.array, block.first(), 0), STRETCH_PAGES.bytes())
            .expect("inside the kernel half")
    }

    /// Claims a cleared block for the descriptors of a whole section, if nothing is mapped for any
    /// of them and a block is free.
    #[cold]
    fn claim_leaf(&self, block: Block) -> Option<Claim> {
        let found = self.kernel.walk(self.stretch(block).start());
        if found.level < Level::SIZE_2M || found.entry != Entry::None {
            return None;
        }
        let claim = self.claim_undescribed(Order::SIZE_2M, Class::Unmovable).ok()?;
        self.clear(&claim);
        Some(claim)
    }
    /// Maps the descriptors of a block that the caller has set `Moving`, and where it can those of
    /// its whole section, by `leaf`.
    #[cold]
    fn populate(&self, block: Block, leaf: Option<Claim>) -> Result<(), NoBlock> {
        let va = self.stretch(block).start();
        if let Some(claim) = leaf
            && self.map_leaf(block, claim)? == DescribedBy::Now
        {
            return Ok(());
        }
        if self.reach_table(va, Level::BASE)? == DescribedBy::Before || self.is_mapped(va) {
            return Ok(());
        }
        let frames = self.claim_stretch()?;
        if frames.iter().any(|claim| Block::of(claim.frame()) == block) {
            self.stretches.hosted();
        }
        let lock = self.kernel.lock(va, Level::BASE).expect("a table of descriptors stays");
        let words = frames.map(|claim| P::leaf(claim.into_raw().0.pa(), Level::BASE, OWN));
        lock.write(lock.index_of(va), &words);
        Ok(())
    }
    /// Whether something maps the stretch at `va`, which the caller has set `Moving` and found a
    /// table for: a leaf that another CPU mapped and split meanwhile (D2).
    pub(crate) fn is_mapped(&self, va: Va) -> bool {
        self.kernel.walk(va).entry != Entry::None
    }

    /// Frames for one stretch, cleared: one block of them, or wherever they are found.
    fn claim_stretch(&self) -> Result<[Claim; FRAMES], NoBlock> {
        let order = Order::fitting(STRETCH_PAGES.bytes()).expect("a stretch is small");
        let frames = match self.claim_undescribed(order, Class::Unmovable) {
            Ok(claim) => {
                let mut parts = self.cut(claim, Order::BASE);
                core::array::from_fn(|_| parts.next().expect("it is as large"))
            }
            Err(_) => self.claim_singles()?,
        };
        for claim in &frames {
            self.clear(claim);
            self.machine.owned(claim.frames(), Owner::Records);
        }
        self.count_by(Event::MemmapPages, FRAMES as u64);
        Ok(frames)
    }
    fn claim_singles(&self) -> Result<[Claim; FRAMES], NoBlock> {
        let mut got = [const { None }; FRAMES];
        for place in &mut got {
            match self.claim_undescribed(Order::BASE, Class::Unmovable) {
                Ok(claim) => *place = Some(claim),
                Err(none) => {
                    got.into_iter().flatten().for_each(|claim| self.release(claim));
                    return Err(none);
                }
            }
        }
        Ok(got.map(|claim| claim.expect("all were had")))
    }

    /// Maps the descriptors of the section that holds `block` by one leaf, which is cleared, unless
    /// something is there. No flush is needed: what was absent becomes present.
    fn map_leaf(&self, block: Block, claim: Claim) -> Result<DescribedBy, NoBlock> {
        let va = self.stretch(block).start().align_down(SECTION_BYTES);
        if let Err(none) = self.reach_table(va, Level::SIZE_2M) {
            self.release_cleared(claim);
            return Err(none);
        }
        let lock = self.kernel.lock(va, Level::SIZE_2M).expect("no leaf of the array is larger");
        let slot = lock.index_of(va);
        if lock.get(slot) != 0 {
            drop(lock);
            self.release_cleared(claim);
            return Ok(DescribedBy::Before);
        }
        // This is not stated before: a block that is not needed is still cleared.
        self.machine.owned(claim.frames(), Owner::Records);
        let (frame, order) = claim.into_raw();
        lock.set(slot, P::leaf(frame.pa(), Level::SIZE_2M, OWN));
        // Before the lock goes: behind it the leaf may be split, and the descriptors of other
        // blocks taken away.
        self.stretches.ready_section(block);
        drop(lock);
        self.count_by(Event::MemmapPages, order.pages().get());
        Ok(DescribedBy::Now)
    }

    /// Makes the table that holds the entries of `level` for the descriptors at `va`, unless a leaf
    /// is there.
    pub(crate) fn reach_table(&self, va: Va, level: Level) -> Result<DescribedBy, NoBlock> {
        match Supply::of_kernel(self).ensure(&self.kernel, va, level) {
            Ok(()) => Ok(DescribedBy::Now),
            Err(NoTable::Blocked(Blocked::Leaf(_))) => Ok(DescribedBy::Before),
            Err(NoTable::Record(_)) => Err(NoBlock { order: Order::BASE }),
            Err(NoTable::Blocked(why)) => panic!("the descriptor array does not fit: {why}"),
        }
    }

    fn is_described(&self, frame: Frame) -> bool {
        self.stretches.get(Block::of(frame)) == Stretch::Ready
    }

    /// All frames that have descriptors, which are few where memory is large and little of it was
    /// used.
    #[cfg(feature = "verify")]
    pub(crate) fn described(&self) -> impl Iterator<Item = Frame> {
        let within = |range: FrameRange| {
            let (start, end) = (range.start().get(), range.end().get());
            let blocks = Block::of(range.start()).0..=Block::of(Frame::new(end - 1)).0;
            let there = blocks.map(Block).filter(|b| self.is_described(b.first()));
            there.flat_map(move |Block(n)| {
                let all = FrameRange::block(Block(n).first(), Order::SIZE_2M);
                (all.start().get().max(start)..all.end().get().min(end)).map(Frame::new)
            })
        };
        self.folios.ranges().flat_map(within)
    }

    /// What the frame is; frames without descriptors are plain. The caller owns the frame or is in
    /// a reader's section. A frame whose descriptors are being moved is nobody's but the mover's,
    /// and plain to others.
    pub(crate) fn identity(&self, frame: Frame) -> Identity {
        if !self.is_described(frame) {
            return Identity::PLAIN;
        }
        self.identity_of(frame)
    }
    /// What a frame is whose descriptor is there: the caller has it, or has a reference to it.
    #[inline]
    pub(crate) fn identity_of(&self, frame: Frame) -> Identity {
        Identity::from_word(self.load(word_at(self.array, frame, 0)))
    }
    pub(crate) fn set_identity(&self, frame: Frame, identity: Identity) {
        self.store(word_at(self.array, frame, 0), identity.word());
    }
    /// The same identity for `count` frames from `first` on.
    pub(crate) fn set_identities(&self, first: Frame, count: u64, identity: Identity) {
        let va = word_at(self.array, first, 0);
        // SAFETY: as for `store`, for each frame of a folio that is the caller's.
        unsafe { self.machine.kernel_fill(va, DESCRIPTOR_BYTES, count, identity.word()) }
            .unwrap_or_else(|fault| unmapped(&fault));
    }
    /// The same count of references for `count` frames from `first` on.
    pub(crate) fn fill_references(&self, first: Frame, count: u64, n: u64) {
        let va = word_at(self.array, first, 1);
        // SAFETY: as for `set_identities`.
        unsafe { self.machine.kernel_fill(va, DESCRIPTOR_BYTES, count, n) }
            .unwrap_or_else(|fault| unmapped(&fault));
    }
    /// Replaces the identity if it still is `old`.
    pub(crate) fn replace_identity(&self, frame: Frame, old: Identity, new: Identity) -> bool {
        self.swap(word_at(self.array, frame, 0), old.word(), new.word()).is_ok()
    }
    pub(crate) fn references(&self, head: Frame) -> u64 {
        self.load(word_at(self.array, head, 1))
    }
    pub(crate) fn set_references(&self, head: Frame, n: u64) {
        self.store(word_at(self.array, head, 1), n);
    }
    /// The references of an anonymous folio, by kind.
    pub(crate) fn counts(&self, head: Frame) -> References {
        References::from_word(self.references(head))
    }
    /// Where an anonymous folio was made.
    pub(crate) fn origin(&self, head: Frame) -> Origin {
        Origin::from_words([0, 1].map(|n| self.load(word_at(self.array, head, ORIGIN + n))))
    }
    pub(crate) fn set_origin(&self, head: Frame, origin: Origin) {
        for (n, word) in (ORIGIN..).zip(origin.words()) {
            self.store(word_at(self.array, head, n), word);
        }
    }
    /// A word of any frame of a folio that is held, for its holder to count in.
    pub(crate) fn tally(&self, frame: Frame) -> u64 {
        self.load(word_at(self.array, frame, TALLY))
    }
    pub(crate) fn set_tally(&self, frame: Frame, n: u64) {
        self.store(word_at(self.array, frame, TALLY), n);
    }
    /// A word of a head that is its holder's or its list's, see `frame`.
    pub(crate) fn link(&self, head: Frame, link: Link) -> u64 {
        self.load(word_at(self.array, head, link as u64))
    }
    pub(crate) fn set_link(&self, head: Frame, link: Link, word: u64) {
        self.store(word_at(self.array, head, link as u64), word);
    }
    /// What is known of a guessed folio's use.
    pub(crate) fn guess_of(&self, head: Frame) -> Guess {
        Guess::from_word(self.load(word_at(self.array, head, GUESS)))
    }
    pub(crate) fn set_guess(&self, head: Frame, guess: Guess) {
        self.store(word_at(self.array, head, GUESS), guess.word());
    }
    /// The subpool that a huge page counts for, which the caller keeps or has taken.
    pub(crate) fn subpool_of(&self, head: Frame) -> Subpool {
        Subpool::from_word(self.load(word_at(self.array, head, SUBPOOL)))
    }
    pub(crate) fn set_subpool(&self, head: Frame, of: Subpool) {
        self.store(word_at(self.array, head, SUBPOOL), of.word());
    }
    /// Replaces such a word if it still is `old`.
    pub(crate) fn replace_link(&self, head: Frame, link: Link, old: u64, new: u64) -> bool {
        self.swap(word_at(self.array, head, link as u64), old, new).is_ok()
    }
    /// Replaces the count if it still is `old`.
    pub(super) fn replace_references(&self, head: Frame, old: u64, new: u64) -> Result<u64, u64> {
        self.swap(word_at(self.array, head, 1), old, new)
    }

    /// Any word of a descriptor.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn descriptor_word(&self, frame: Frame, word: u64) -> u64 {
        self.load(word_at(self.array, frame, word))
    }
    pub(super) fn load(&self, va: Va) -> u64 {
        // SAFETY: the descriptor is mapped and stays so, as the frame was handed out with it
        // (stock::K1), or its stretch was seen to be there (`identity`, stretches::S1).
        unsafe { self.machine.kernel_load(va) }.unwrap_or_else(|fault| unmapped(&fault))
    }
    fn store(&self, va: Va, word: u64) {
        // SAFETY: mapped, as for `load`; the caller owns the frame (claim::I1) or changes one word
        // by its protocol.
        unsafe { self.machine.kernel_store(va, word) }.unwrap_or_else(|fault| unmapped(&fault));
    }
    fn swap(&self, va: Va, old: u64, new: u64) -> Result<u64, u64> {
        // SAFETY: as for `store`.
        unsafe { self.machine.kernel_compare_exchange(va, old, new) }
            .unwrap_or_else(|fault| unmapped(&fault))
    }
}

fn unmapped(fault: &KernelFault) -> ! {
    let va = fault.va;
    panic!("the descriptor at {va} is not mapped (stock::K1); has this CPU been brought online?")
}
