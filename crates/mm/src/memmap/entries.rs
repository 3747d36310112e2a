//! Changing the entries of a stretch, and splitting the leaves above them.

use super::Memmap;
use crate::flush::{Gather, Used};
use crate::folio::Class;
use crate::frame::Claim;
use crate::stock::{Block, Event, NoBlock, OWN, SECTION_BYTES, Supply};
use crate::table::{Attrs, Entry, Paging};
use foliant_machine::{Machine, Owner};
use foliant_units::{FRAME_BYTES, Frame, Level, Order, Va, VaRange};

/// Words that the gather must have room for: the run that ends, and the one that begins.
const ROOM: usize = 2;

/// How a shared tail frame is mapped.
const SHARED: Attrs = Attrs::GLOBAL.with(Attrs::ACCESSED);

/// The word that maps a frame of descriptors for one block only.
pub(super) fn own<P: Paging>(frame: Frame) -> u64 {
    P::leaf(frame.pa(), Level::BASE, OWN)
}
/// The word that maps a shared tail frame.
pub(super) fn shared<P: Paging>(frame: Frame) -> u64 {
    P::leaf(frame.pa(), Level::BASE, SHARED)
}

/// Frames side by side that are freed together.
#[derive(Default)]
struct FrameRun {
    first: Frame,
    count: u64,
}

impl FrameRun {
    /// Takes `frame` in, if it is the next one.
    fn takes(&mut self, frame: Frame) -> bool {
        let follows = self.count > 0 && self.first.get() + self.count == frame.get();
        self.count += u64::from(follows);
        follows
    }
}

impl<'a, 'm, M: Machine, P: Paging> Memmap<'a, 'm, M, P> {
    /// Writes the words that `make` gives into the entries of `range`, lowest first; no leaf is
    /// above them. The gather notes every entry that was present, and frees a replaced frame after
    /// the flush unless it is shared. The gather may be flushed in between, where it finds no
    /// memory for its list.
    pub(super) fn rewrite(
        &self,
        range: VaRange,
        gather: &mut Gather<'a, 'm, M, P>,
        mut make: impl FnMut() -> u64,
    ) {
        let mut left = range;
        while !left.is_empty() {
            if gather.grow(ROOM) < ROOM {
                self.flush(gather, Event::FlushRecovery);
                gather.grow(ROOM);
            }
            let upto = self.rewrite_table(left, gather, &mut make);
            left = VaRange::new(upto, range.end()).expect("not behind the end");
        }
    }

    /// Does what `rewrite` does, in the first table of `range`, and for as many runs of frames as
    /// the gather has room for. Says how far it got.
    fn rewrite_table(
        &self,
        range: VaRange,
        gather: &mut Gather<'a, 'm, M, P>,
        make: &mut impl FnMut() -> u64,
    ) -> Va {
        let lock = self.stock.kernel.lock(range.start(), Level::BASE);
        let lock = lock.expect("leaves were split, and tables of descriptors stay");
        let (mut run, mut live) = (FrameRun::default(), false);
        let done = lock.replace_each(lock.slots_of(range), |entry| {
            if let Entry::Leaf { pa, .. } = entry {
                let frame = pa.frame();
                if !self.state.shares.has(frame) && !run.takes(frame) {
                    if run.count > 0 && gather.room_left() < ROOM {
                        return None;
                    }
                    defer_run(gather, &run);
                    run = FrameRun { first: frame, count: 1 };
                }
                live = true;
            }
            Some(make())
        });
        defer_run(gather, &run);
        let upto = range.start().add(done as u64 * FRAME_BYTES);
        if live {
            let changed = VaRange::new(range.start(), upto).expect("it grows");
            gather.note(changed, Level::BASE, Used::Yes); // before the lock goes (flush::F2)
        }
        upto
    }

    /// The frame that holds the descriptors at `va`, which are mapped by an entry.
    pub(super) fn frame_at(&self, va: Va) -> Frame {
        match self.stock.kernel.walk(va).entry {
            Entry::Leaf { pa, .. } => pa.frame(),
            other => panic!("the descriptors at {va} are {other:?}"),
        }
    }

    /// Splits the leaves that map a part of `range`, and notes them. Where memory for a table is
    /// missing, the leaves before that one are split.
    pub(super) fn split_leaves(
        &self,
        range: VaRange,
        gather: &mut Gather<'a, 'm, M, P>,
    ) -> Result<(), NoBlock> {
        self.sections(range).try_for_each(|part| self.split_leaf(part.start(), gather))
    }

    fn split_leaf(&self, va: Va, gather: &mut Gather<'a, 'm, M, P>) -> Result<(), NoBlock> {
        if self.leaf_at(va).is_none() {
            return Ok(());
        }
        let mut supply = Supply::of_kernel(self.stock);
        let spare = supply.one().map_err(|_| NoBlock { order: Order::BASE })?;
        {
            let _held = self.state.splitting.lock(self.stock.machine);
            // Another caller may have split the leaf meanwhile; none does from here on.
            if let Some(frame) = self.leaf_at(va) {
                // The leaf is pending before anybody can find the table, and its frames are blocks
                // of order 0 before anybody can give one of them back (H7).
                let section = va.align_down(SECTION_BYTES);
                let leaf = VaRange::sized(section, SECTION_BYTES).expect("in the kernel half");
                gather.note(leaf, Level::SIZE_2M, Used::Yes);
                self.stock
                    .folios
                    .split(frame, Order::SIZE_2M, Order::BASE)
                    .expect("a leaf's frames are one block (stock::describe::D1)");
                // If the section has the leaf's own block, that is a block now that holds its own
                // stretch, and the descriptors of 63 others.
                if leaf.covers(self.stock.stretch(Block::of(frame))) {
                    self.stock.stretches.hosted();
                }
                self.stock.kernel.split(va, Level::SIZE_2M, spare).expect("it is a leaf");
            }
        }
        Ok(())
    }

    /// The frames behind the leaf that maps the descriptors at `va`, if a leaf does.
    fn leaf_at(&self, va: Va) -> Option<Frame> {
        let found = self.stock.kernel.walk(va);
        match found.entry {
            Entry::Leaf { pa, .. } if found.level == Level::SIZE_2M => Some(pa.frame()),
            _ => None,
        }
    }

    /// Takes a frame for the head of a page and the 63 descriptors behind it, for `fill_head`.
    pub(super) fn head_frame(&self) -> Result<Claim, NoBlock> {
        self.stock.claim_undescribed(Order::BASE, Class::Unmovable)
    }
    /// Fills it with a copy of `from`.
    pub(super) fn fill_head(&self, claim: Claim, from: Frame) -> Frame {
        crate::zero::copy_page(self.stock.machine, from.pa(), &claim);
        self.stock.machine.owned(claim.frames(), Owner::Records);
        self.stock.count(Event::MemmapPages);
        claim.into_raw().0
    }
}

fn defer_run<M: Machine, P: Paging>(gather: &mut Gather<'_, '_, M, P>, run: &FrameRun) {
    if run.count > 0 {
        gather.defer_descriptors(run.first, run.count);
    }
}
