//! One range of frames with its metadata, and the operations on a single 2 MiB block of it.
//!
//! ```text
//!  lent words ─▶ │ fields: 16 words per block │ entries: 1 word per block │ zeros: 8 per block │ index: the lists' pyramids │
//!
//!  take: field                              free: field, then the entry if more fits now, then the index if the list changed
//! ```
//!
//! Entries of neighbouring blocks lie on different cache lines: block `64 g + l` of a group of 512
//! is entry `8 l + g`. Otherwise two CPUs that work in neighbouring blocks would share a line at
//! every operation.
//!
//! **Invariants**: those of `entry`, `field` and `index`, which meet here; every method leaves all
//! of them in place.
//!
//! **Locking**: none. The entry's compare-and-exchange decides.
//!
//! **Not here**: which block to try (`alloc`), what a caller may ask for (`free`).

use super::bits::{Bits, NARROW, Phase, SPAN};
use super::entry::{BlockEntry, BlockKind, FIT_PART, FIT_WHOLE, FRAMES, Owner};
use super::field::{Field, Given, InVain, Offset, WORDS, pieces};
use super::index::{List, Pyramids, full_fence};
use super::zeros::Zeros;
use super::{Class, Word};
use foliant_sync::Ordering::SeqCst;
use foliant_units::{Frame, FrameRange, Node, Order};

/// Entries are laid out in groups of this many.
const GROUP: usize = 512;
/// Blocks in 1 GiB. The index counts from a boundary of 1 GiB, so that runs are aligned words and
/// bits.
const SIZE_1G: u64 = Order::SIZE_1G.pages().get() / FRAMES as u64;
/// log2 of the frames of a block.
const SHIFT: u8 = Order::SIZE_2M.get();
/// The most frames of one range: 16 TiB.
pub(super) const FRAMES_MAX: u64 = 1 << 32;

/// One range of frames: its blocks, and the lists that they are on.
///
/// Key: `[a]` atomic; `[c]` constant after publication.
#[derive(Clone, Copy)]
pub(super) struct Region<'m> {
    range: FrameRange,           // [c]
    node: Node,                  // [c]
    first: u64,                  // [c] number of block 0: its first frame >> 9
    fields: &'m [[Word; WORDS]], // [a]
    entries: &'m [Word],         // [a]
    zeros: Zeros<'m>,            // [a]
    index: Pyramids<'m>,         // [a]
}

impl<'m> Region<'m> {
    fn blocks_of(range: FrameRange) -> core::ops::Range<u64> {
        range.start().get() >> SHIFT..range.end().get().div_ceil(FRAMES as u64)
    }
    /// Bits of the index of `range`.
    fn bits_of(range: FrameRange) -> usize {
        let blocks = Self::blocks_of(range);
        (blocks.end - blocks.start / SIZE_1G * SIZE_1G) as usize
    }
    /// Words of metadata for `range`: a multiple of 16.
    pub(super) fn words(range: FrameRange) -> usize {
        let blocks = Self::blocks_of(range);
        let blocks = (blocks.end - blocks.start) as usize;
        let index = Pyramids::words(Self::bits_of(range)).next_multiple_of(WORDS);
        blocks * WORDS + blocks.next_multiple_of(GROUP) + Zeros::words(blocks) + index
    }
    /// A region over `range` with its metadata in `words`, which are zero and as many as
    /// `Region::words` says. All frames are free but those of the first and the last block that lie
    /// outside the range.
    pub(super) fn new(range: FrameRange, node: Node, words: &'m [Word]) -> Region<'m> {
        let blocks = Self::blocks_of(range);
        let count = (blocks.end - blocks.start) as usize;
        let (fields, rest) = words.split_at(count * WORDS);
        let (entries, rest) = rest.split_at(count.next_multiple_of(GROUP));
        let (zeros, rest) = rest.split_at(Zeros::words(count));
        let index = Pyramids::new(Self::bits_of(range), rest);
        let fields = fields.as_chunks().0;
        let zeros = Zeros::new(zeros);
        let region = Region { range, node, first: blocks.start, fields, entries, zeros, index };
        let start = (range.start().get() % FRAMES as u64) as u32;
        let end = ((blocks.end << SHIFT) - range.end().get()) as u32;
        region.withhold(0, 0, start).expect("a new block is free");
        region.withhold(count - 1, FRAMES - end, FRAMES).expect("a new block is free");
        (0..count).for_each(|blk| region.ensure(blk));
        region
    }

    pub(super) fn range(&self) -> FrameRange {
        self.range
    }
    pub(super) fn node(&self) -> Node {
        self.node
    }
    pub(super) fn index(&self) -> &Pyramids<'m> {
        &self.index
    }
    #[inline]
    pub(super) fn zeros(&self) -> &Zeros<'m> {
        &self.zeros
    }
    /// How many blocks, the partly covered ones included.
    pub(super) fn blocks(&self) -> usize {
        self.fields.len()
    }
    /// The block of `frame`, which lies in the range, and the frame's place in the block.
    #[inline]
    pub(super) fn locate(&self, frame: Frame) -> (usize, Offset) {
        let blk = (frame.get() >> SHIFT) - self.first;
        (blk as usize, Offset((frame.get() % FRAMES as u64) as u32))
    }
    /// The frame at `at` of block `blk`.
    #[inline]
    pub(super) fn frame(&self, blk: usize, at: Offset) -> Frame {
        Frame::new((self.first + blk as u64) << SHIFT | at.0 as u64)
    }
    /// The block's bit in the index.
    #[inline]
    pub(super) fn bit(&self, blk: usize) -> usize {
        (self.first % SIZE_1G) as usize + blk
    }
    /// The block of a bit of the index.
    #[inline]
    pub(super) fn blk(&self, bit: usize) -> usize {
        bit - (self.first % SIZE_1G) as usize
    }
    #[inline]
    pub(super) fn field(&self, blk: usize) -> Field<'m> {
        Field(&self.fields[blk])
    }
    #[inline]
    pub(super) fn entry(&self, blk: usize) -> &'m Word {
        &self.entries[blk / GROUP * GROUP + blk % 64 * 8 + blk / 64 % 8]
    }
    #[inline]
    pub(super) fn load(&self, blk: usize) -> BlockEntry {
        BlockEntry(self.entry(blk).load(SeqCst))
    }
    /// Free frames of the block.
    pub(super) fn free(&self, blk: usize) -> u32 {
        match self.load(blk).kind() {
            BlockKind::Whole => FRAMES,
            BlockKind::Small => self.field(blk).count(),
            BlockKind::Held | BlockKind::Busy => 0,
        }
    }
    /// Whether all of the block is free, in one piece or open.
    pub(super) fn is_free(&self, blk: usize) -> bool {
        let e = self.load(blk);
        e.is_whole() || e.is_small() && self.field(blk).is_free()
    }
    /// Changes the entry by `change`, retried while others change it; `None` where `change`
    /// refuses.
    #[inline]
    fn update(
        &self,
        blk: usize,
        mut change: impl FnMut(BlockEntry) -> Option<BlockEntry>,
    ) -> Option<(BlockEntry, BlockEntry)> {
        let word = self.entry(blk);
        let mut seen = BlockEntry(word.load(SeqCst));
        loop {
            let new = change(seen)?;
            match word.compare_exchange(seen.0, new.0, SeqCst, SeqCst) {
                Ok(_) => return Some((seen, new)),
                Err(now) => seen = BlockEntry(now),
            }
        }
    }

    /// Sees to it that the block is on the list that its entry names.
    pub(super) fn ensure(&self, blk: usize) {
        if let Some(list) = self.load(blk).list() {
            self.index.set(list, self.bit(blk));
        }
    }
    /// Takes the block off `list`, unless it belongs there after all.
    pub(super) fn dismiss(&self, list: List, blk: usize) {
        self.index.clear(list, self.bit(blk));
        self.ensure(blk);
    }
    #[inline]
    fn relist(&self, blk: usize, (old, new): (BlockEntry, BlockEntry)) {
        if old.list() != new.list() {
            self.move_over(blk, old, new);
        }
    }
    #[cold]
    fn move_over(&self, blk: usize, old: BlockEntry, new: BlockEntry) {
        if let Some(list) = new.list() {
            self.index.set(list, self.bit(blk));
        }
        if let Some(list) = old.list() {
            self.dismiss(list, blk);
        }
    }

    /// A block of 2^`order` frames out of block `blk`, if that is owned by `owner` (`None`: by any
    /// owner).
    #[inline(always)]
    pub(super) fn take_owned(
        &self,
        blk: usize,
        owner: Option<Owner>,
        order: u32,
        from: usize,
    ) -> Option<Offset> {
        let e = self.load(blk);
        let fits = owner.map_or(e.owner() != Owner::NONE, |owner| e.owner() == owner);
        if fits && e.offers(order) { self.take(blk, order, from) } else { None }
    }
    /// The same out of a block without owner, if it is of `class` and its largest hole is an exact
    /// fit.
    pub(super) fn take_exact(
        &self,
        blk: usize,
        class: Class,
        order: u32,
        from: usize,
    ) -> Option<Offset> {
        let list = List::class(class, order + 1);
        let is_listed = self.load(blk).list() == Some(list);
        is_listed.then(|| self.take_on_list(blk, list, order, from)).flatten()
    }
    #[inline(always)]
    pub(super) fn take(&self, blk: usize, order: u32, from: usize) -> Option<Offset> {
        if order <= NARROW {
            return self.field(blk).take(order, from);
        }
        let (at, in_vain) = self.field(blk).take_wide(order);
        if in_vain == InVain::Yes {
            self.recheck(blk); // field::I3
        }
        at
    }
    /// The same out of a block on `list` that has no owner. The new owner may have it afterwards,
    /// also where nothing was found.
    pub(super) fn claim(
        &self,
        blk: usize,
        list: List,
        order: u32,
        as_owner: (Owner, Option<Class>),
    ) -> Option<Offset> {
        let (owner, tag) = as_owner;
        let claimed = if list == List::WHOLE {
            self.open(blk, BlockEntry::opened(tag.unwrap_or(Class::Movable), owner))
        } else {
            let change = self.update(blk, |e| {
                let fits = e.list() == Some(list) && e.offers(order);
                fits.then(|| e.with_owner(owner).with_class(tag.unwrap_or(e.class())))
            });
            change.map(|change| self.relist(blk, change)).is_some()
        };
        if !claimed {
            self.dismiss(list, blk);
            return None;
        }
        self.take(blk, order, 0)
    }
    /// The same out of a block on `list` that has no owner and stays without. Its bound is exact
    /// afterwards, so that the next request finds the tightest block again.
    pub(super) fn take_listed(&self, blk: usize, list: List, order: u32) -> Option<Offset> {
        let at = self.take_on_list(blk, list, order, 0)?;
        let fit = self.load(blk).fit();
        if fit > 0 && !self.field(blk).has(fit - 1) {
            self.refresh(blk);
        }
        Some(at)
    }
    /// [`take_listed`](Self::take_listed) for a caller that goes on to take from the block, and
    /// leaves the bound as it is.
    pub(super) fn take_on_list(
        &self,
        blk: usize,
        list: List,
        order: u32,
        from: usize,
    ) -> Option<Offset> {
        let e = self.load(blk);
        let fits = e.list() == Some(list) && e.offers(order);
        let at = if fits { self.take(blk, order, from) } else { None };
        if at.is_none() {
            self.refresh(blk);
            self.dismiss(list, blk);
        }
        at
    }
    /// Opens the field of a whole block and makes the entry `to`.
    fn open(&self, blk: usize, to: BlockEntry) -> bool {
        if self.update(blk, |e| e.is_whole().then(|| e.busy())).is_none() {
            return false;
        }
        self.field(blk).open();
        self.entry(blk).store(to.0, SeqCst);
        self.move_over(blk, BlockEntry::WHOLE, to);
        true
    }
    /// Closes the field of an open block that is all free and makes the entry `to`, if `allowed`
    /// accepts the entry so far. Where this fails, the caller looks at the block once more.
    #[cold]
    fn close(&self, blk: usize, to: BlockEntry, allowed: impl Fn(BlockEntry) -> bool) -> bool {
        if !self.field(blk).is_free() {
            return false;
        }
        let Some(old) = self.begin(blk, allowed) else { return false };
        let closed = self.field(blk).close(Bits::FREE);
        if closed {
            self.end(blk, old, to);
        } else {
            self.resume(blk, old);
        }
        closed
    }
    /// Makes an open block Busy, if `allowed` accepts its entry; returns the entry as it was.
    pub(super) fn begin(
        &self,
        blk: usize,
        allowed: impl Fn(BlockEntry) -> bool,
    ) -> Option<BlockEntry> {
        let change = self.update(blk, |e| (e.is_small() && allowed(e)).then(|| e.busy()));
        change.map(|(old, _)| old)
    }
    /// Gives the entry `new` to a block whose entry was `old` before the caller made it Busy.
    pub(super) fn end(&self, blk: usize, old: BlockEntry, new: BlockEntry) {
        self.entry(blk).store(new.0, SeqCst);
        full_fence();
        self.move_over(blk, old, new);
    }
    /// Puts the entry back to `old`, as it was before the caller made the block Busy, but without
    /// an owner that left meanwhile (`entry::I4`). The caller looks at the block once more.
    pub(super) fn resume(&self, blk: usize, old: BlockEntry) {
        let change = self.update(blk, |now| Some(old.with_owner(now.owner())));
        full_fence();
        if let Some((_, new)) = change {
            self.move_over(blk, old, new);
        }
    }
    /// Raises the bound to the truth, and makes the block whole if it may be (`entry::I2`,
    /// `entry::I3`).
    #[cold]
    pub(super) fn recheck(&self, blk: usize) {
        loop {
            full_fence();
            let e = self.load(blk);
            let truth = self.field(blk).fit();
            let ownerless = e.owner() == Owner::NONE;
            if !e.is_small() || truth <= e.fit().min(FIT_PART) {
                return;
            }
            if truth == FIT_WHOLE && ownerless {
                if self.close(blk, BlockEntry::WHOLE, |e| e.owner() == Owner::NONE) {
                    return;
                }
                continue;
            }
            if truth <= e.fit() {
                return;
            }
            // If the owner has left by now, the bound stays below (`entry::I5`), and the next round
            // makes the block whole.
            let raise =
                |e: BlockEntry| (e.is_small() && e.fit() < truth).then(|| e.with_fit(truth));
            if let Some(change) = self.update(blk, raise) {
                self.relist(blk, change);
            }
        }
    }
    /// Lowers the bound to the truth (`entry::I2`).
    #[cold]
    pub(super) fn refresh(&self, blk: usize) {
        let change = self.update(blk, |e| {
            let fit = self.field(blk).fit();
            (e.is_small() && fit < e.fit()).then(|| e.with_fit(fit))
        });
        if let Some(change) = change {
            self.relist(blk, change);
            self.recheck(blk);
        }
    }
    /// Ends `owner`'s preference for the block, if it has any. The block may be in flight: the CPU
    /// at work on it then looks at it once more.
    #[cold]
    pub(super) fn disown(&self, blk: usize, owner: Owner) {
        let change = self.update(blk, |e| {
            let left = e.with_owner(Owner::NONE);
            let fit = if e.is_small() { self.field(blk).fit() } else { e.fit() };
            (e.owner() == owner).then(|| left.with_fit(fit))
        });
        if let Some(change) = change {
            self.relist(blk, change);
            self.recheck(blk);
        }
    }

    /// Frees a block of 2^`order` frames, order 8 or less; `None`, and nothing is changed, where
    /// there is no such block.
    #[inline(always)]
    pub(super) fn give(&self, blk: usize, order: u32, at: Offset) -> Option<()> {
        let given = self.field(blk).give(order, at)?;
        self.look_again(blk, given);
        Some(())
    }
    /// Frees the frames from `from` up to `to`, each a block of its own. Where one is not, its word
    /// is named, and those of earlier words are free by then.
    pub(super) fn give_each(&self, blk: usize, from: u32, to: u32) -> Result<(), Offset> {
        for (at, low, high) in pieces(from, to) {
            let start = Offset(at as u32 * SPAN + low);
            let given = self.field(blk).give_each(at, low, high).ok_or(start)?;
            self.look_again(blk, given);
        }
        Ok(())
    }
    /// Raises the bound if more fits since a block was given back (`entry::I2`).
    #[inline(always)]
    fn look_again(&self, blk: usize, given: Given) {
        let fit = self.load(blk).fit();
        if fit < FIT_WHOLE && self.field(blk).exceeds(fit, given) {
            self.raise(blk, given);
        }
    }
    /// Raises the bound to what was given back. The CPU that made a block Busy looks at it once
    /// more.
    #[inline(never)]
    fn raise(&self, blk: usize, given: Given) {
        let mut whole = false;
        let change = self.update(blk, |e| {
            if !e.is_small() {
                return None;
            }
            let fit = self.field(blk).raised(e.fit(), given);
            whole = fit == FIT_WHOLE && e.owner() == Owner::NONE;
            (fit > e.fit() && !whole).then(|| e.with_fit(fit))
        });
        if let Some(change) = change {
            self.relist(blk, change);
        } else if whole {
            self.recheck(blk);
        }
    }

    /// Takes the whole block, if it is in one piece. It may stay on its list, as a hint in vain.
    #[inline]
    pub(super) fn claim_whole(&self, blk: usize, order: u32, class: Class, phase: Phase) -> bool {
        let held = BlockEntry::held(order, class, phase);
        self.update(blk, |e| e.is_whole().then_some(held)).is_some()
    }
    /// Takes the whole block, if it is in one piece, or open but all free.
    pub(super) fn claim_free(&self, blk: usize, order: u32, class: Class, phase: Phase) -> bool {
        let got = self.claim_whole(blk, order, class, phase)
            || self.close(blk, BlockEntry::held(order, class, phase), |_| true);
        if !got {
            self.recheck(blk);
        }
        got
    }
    /// Makes the whole block free again. The caller holds it alone.
    pub(super) fn release_whole(&self, blk: usize) {
        self.entry(blk).store(BlockEntry::WHOLE.0, SeqCst);
        self.index.set(List::WHOLE, self.bit(blk));
    }
    /// Puts the head of a run of 2^`order` frames in flight, or completes it; `None` where block
    /// `blk` is no such head.
    pub(super) fn phase(&self, blk: usize, order: u32, to: Phase) -> Option<()> {
        let from = if to == Phase::Complete { BlockKind::Busy } else { BlockKind::Held };
        let turn = |e: BlockEntry| {
            let ours = e.kind() == from && e.order() == order;
            ours.then(|| BlockEntry::held(order, e.class(), to))
        };
        self.update(blk, turn).map(|_| ())
    }
    /// Frees a single held block. `None`, and nothing is changed, where there is no such block.
    #[inline]
    pub(super) fn give_2m(&self, blk: usize) -> Option<()> {
        let order = Order::SIZE_2M.get() as u32;
        let ours = |e: BlockEntry| e.kind() == BlockKind::Held && e.order() == order;
        self.update(blk, |e| ours(e).then_some(BlockEntry::WHOLE))?;
        self.index.set(List::WHOLE, self.bit(blk));
        Some(())
    }
    /// Cuts a block of a run that the caller holds alone into blocks of 2^`into` frames, or makes
    /// it a part of one.
    pub(super) fn recut(&self, blk: usize, into: u32) {
        let class = self.load(blk).class();
        let new = if into < Order::SIZE_2M.get() as u32 {
            self.field(blk).fill(into);
            BlockEntry::small(class, 0)
        } else {
            BlockEntry::held(into, class, Phase::Complete)
        };
        self.entry(blk).store(new.0, SeqCst);
        full_fence();
        if into < Order::SIZE_2M.get() as u32 {
            // A part may be freed before we are done with the others.
            self.recheck(blk);
        }
    }

    /// Closes the frames `from..to` of the block, until `restore`. Where one is in use, that one is
    /// named, and nothing is changed.
    pub(super) fn withhold(&self, blk: usize, from: u32, to: u32) -> Result<(), Offset> {
        if from == to {
            return Ok(());
        }
        self.open(blk, BlockEntry::small(Class::Movable, FIT_PART));
        if !self.load(blk).is_small() {
            return Err(Offset(from));
        }
        let done = self.field(blk).withhold(from, to);
        self.refresh(blk);
        self.recheck(blk);
        done
    }
    /// Undoes `withhold`.
    pub(super) fn restore(&self, blk: usize, from: u32, to: u32) {
        if from < to {
            self.field(blk).restore(from, to);
            self.recheck(blk);
        }
    }
}
