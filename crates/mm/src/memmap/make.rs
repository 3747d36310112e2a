//! Making a huge page of a free block, folded from the start where that is possible.
//!
//! Where the block's stretch is absent, one frame is filled with the head and 63 tails, and every
//! other entry names the shared frame. Entries that were not present become present: no CPU can
//! have anything cached (machine::M2), so nothing is flushed. The frames that folding saves are
//! neither allocated nor written.

use super::entries::{own, shared};
use super::{Huge, Memmap, MemmapError};
use crate::folio::Class;
use crate::frame::{Claim, Flag, Identity, Kind};
use crate::stock::{DescribedBy, Event, NoBlock, Stretch, words};
use crate::sync::Ordering;
use crate::table::Paging;
use foliant_machine::Machine;
use foliant_units::{Frame, Level, Node, Order, Pages};

/// The form of a huge page's descriptors when it is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// With all its descriptors.
    Dense,
    /// Folded, where its block has no descriptors yet; else dense.
    Folded,
}

impl<M: Machine, P: Paging> Memmap<'_, '_, M, P> {
    /// Takes a free block of 2 MiB or 1 GiB and makes a huge page of it.
    pub fn claim(&self, order: Order, form: Form) -> Result<Huge, MemmapError> {
        let huge = self.claim_unwritten(None, order, form)?;
        self.stock.folios.forget(huge.frames()); // its owner may write to it as it likes
        Ok(huge)
    }
    /// [`claim`](Memmap::claim), on `node` alone where one is named, for an owner that writes to
    /// the page through `zero` only: frames of it that are known to be zero stay known.
    pub(crate) fn claim_unwritten(
        &self,
        node: Option<Node>,
        order: Order,
        form: Form,
    ) -> Result<Huge, MemmapError> {
        if ![Order::SIZE_2M, Order::SIZE_1G].contains(&order) {
            return Err(MemmapError::Order(order));
        }
        let take = || self.stock.claim_block(node, order, Class::Movable);
        let claim =
            take().or_else(|none| if self.reclaim_some().whole > 0 { take() } else { Err(none) });
        let claim = claim.map_err(|_| MemmapError::NoMemory(order))?;
        self.make(claim, form).map_err(|claim| {
            self.stock.put_back(claim);
            MemmapError::NoMemory(order)
        })
    }

    /// Makes a huge page of a block of 2 MiB or 1 GiB. The block comes back where there is no
    /// memory for its descriptors.
    pub(crate) fn make(&self, claim: Claim, form: Form) -> Result<Huge, Claim> {
        let huge = Huge::from_raw(self.stock.brand(), claim.frame(), claim.order());
        if form == Form::Folded
            && Memmap::<M, P>::savable(huge.order()).get() > 0
            && self.hold(&huge)
        {
            let born = self.born(&huge);
            let now = if born == Ok(DescribedBy::Now) { Stretch::Ready } else { Stretch::Absent };
            self.let_go(&huge, now);
            if born == Ok(DescribedBy::Now) {
                self.stock.count(Event::Folded);
                self.stock.count(Event::BornFolded);
                claim.into_raw();
                return Ok(huge);
            }
            // Another caller mapped a leaf first, or there is no memory, not even for the head's
            // frame.
            if born.is_err() {
                return Err(claim);
            }
        }
        if self.stock.describe(huge.frames()).is_err() {
            return Err(claim);
        }
        let (head, order) = claim.into_raw();
        let tails = order.pages().get() - 1;
        let tail = Identity::new(Kind::HugeTail, order);
        self.stock.set_identities(head.add(Pages::new(1)), tails, tail);
        self.stock.set_identity(head, Identity::new(Kind::Huge, order));
        Ok(huge)
    }

    /// Sets all stretches of a claimed block `Moving` if all are absent.
    fn hold(&self, huge: &Huge) -> bool {
        let stretches = &self.stock.stretches;
        let held = huge
            .blocks()
            .take_while(|block| stretches.change(*block, Stretch::Absent, Stretch::Moving))
            .count();
        let all = held == huge.blocks().count();
        if !all {
            huge.blocks().take(held).for_each(|block| {
                stretches.change(block, Stretch::Moving, Stretch::Absent);
            });
        }
        all
    }
    /// Ends `Moving` for all stretches of a page, that of the head first.
    pub(super) fn let_go(&self, huge: &Huge, now: Stretch) {
        for block in huge.blocks().rev() {
            self.stock.stretches.change(block, Stretch::Moving, now);
        }
    }

    /// Maps a folded stretch where nothing is mapped. All memory is taken before the first entry is
    /// written.
    fn born(&self, huge: &Huge) -> Result<DescribedBy, NoBlock> {
        let range = self.range(huge);
        for part in self.sections(range) {
            if self.stock.reach_table(part.start(), Level::BASE)? == DescribedBy::Before {
                return Ok(DescribedBy::Before);
            }
        }
        // Any of them: others of a section may have been taken away again.
        if huge.blocks().any(|block| self.stock.is_mapped(self.stock.stretch(block).start())) {
            return Ok(DescribedBy::Before);
        }
        let tail = self.share(huge.order())?;
        let head = self.fill_head(self.head_frame()?, tail);
        self.mark(head, huge.order());
        let mut first = Some(own::<P>(head));
        // Nothing is replaced, so nothing is gathered.
        let mut gather = self.gather();
        self.rewrite(range, &mut gather, || first.take().unwrap_or(shared::<P>(tail)));
        debug_assert!(gather.is_empty(), "something was mapped in an absent stretch");
        Ok(DescribedBy::Now)
    }
    /// Makes the first descriptor of a frame of tails the head of a folded page. Nobody else can
    /// reach it yet.
    fn mark(&self, frame: Frame, order: Order) {
        let head = Identity::new(Kind::Huge, order).with(Flag::Optimized).with(Flag::Born);
        words(self.stock.machine, frame.pa())[0].store(head.word(), Ordering::Relaxed);
    }
}
