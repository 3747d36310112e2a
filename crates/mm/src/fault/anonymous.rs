//! A fault where nothing is mapped, or shared zeros of 2 MiB are: zeros for a read, a folio for a
//! write.

use super::{Fault, Need, OnShortage, Orders, Outcome, Step, Tried, UseZeroPage, fitting};
use crate::folio::Class;
use crate::frame::{Claim, Contents};
use crate::space::{Area, Flags, Seen, attrs, level_of};
use crate::stock::{Event, NoBlock, NoRecord, NoTable, SizeEvent, Supply};
use crate::table::{Attrs, Entry, Found, Paging, Slot};
use crate::zero;
use foliant_machine::{Machine, Owner};
use foliant_units::{FRAME_BYTES, Frame, Level, Order, Pages, VaRange};

/// Why an order was not used.
enum Skip {
    /// It does not fit, or something is mapped in its range.
    Unsuitable,
    /// Something is in the way of its table that was not there before.
    Changed,
    /// No block.
    NoBlock,
    /// The charge was refused.
    NoCharge,
    /// Its block is kept until the face has cleared it, the neighbourhood of this frame last.
    Uncleared(Frame),
}

impl From<NoRecord> for Skip {
    fn from(why: NoRecord) -> Skip {
        match why {
            NoRecord::Block => Skip::NoBlock,
            NoRecord::Limit(_) => Skip::NoCharge,
        }
    }
}

/// A folio ready to be published, or pages side by side, and what belongs to it.
struct Prepared {
    claim: Claim,
    range: VaRange,
    /// For a leaf: the table kept for its split (space::S4).
    deposit: Option<Claim>,
}

/// What is counted of a size.
struct FolioEvents {
    alloc: SizeEvent,
    fallback: SizeEvent,
    refused: SizeEvent,
}

impl FolioEvents {
    const ANON: FolioEvents = FolioEvents {
        alloc: SizeEvent::AnonFaultAlloc,
        fallback: SizeEvent::AnonFaultFallback,
        refused: SizeEvent::AnonFaultFallbackCharge,
    };
    const SHMEM: FolioEvents = FolioEvents {
        alloc: SizeEvent::ShmemAlloc,
        fallback: SizeEvent::ShmemFallback,
        refused: SizeEvent::ShmemFallbackCharge,
    };
}

/// What becomes of it.
#[derive(Clone, Copy)]
enum Becomes {
    Folio,
    /// A folio whose size the manager chose.
    Guess,
    /// Folios of one page each.
    Pages,
}

impl<'f, 'm, M: Machine, P: Paging> Fault<'f, 'm, M, P> {
    /// Maps shared zeros, read-only: 2 MiB of them where a folio of that size may be, else a page.
    #[inline(never)]
    pub(super) fn zero(&self, area: &Area, found: &Found) -> Step {
        let is_counted = self.switches.has_auto() && self.may_be_written(area);
        if is_counted && self.takes_page() {
            return self.page_for_read(area, found);
        }
        let wanted = if self.wants_zero_block(area, found) { Order::SIZE_2M } else { Order::BASE };
        let mut order = wanted;
        let level = loop {
            let level = level_of(order);
            match self.ensure(level, found) {
                Ok(()) => {}
                Err(NoTable::Record(why)) => return Step::Done(Self::refusal(why)),
                // Another CPU mapped a large leaf meanwhile.
                Err(NoTable::Blocked(_)) => return Step::Again,
            }
            match self.has_zeros(order) {
                Ok(true) => break level,
                Ok(false) => order = Order::BASE,
                Err(need) => return Step::Need(need),
            }
        };
        // A page of zeros would need a table here as well.
        let deposit = match self.table_for(level) {
            Ok(deposit) => deposit,
            Err(why) => return Step::Done(Self::refusal(why)),
        };
        let frame = self.zeros_of(order);
        // Several pages show the one page of zeros.
        let shown = if order == Order::BASE { self.side_by_side(area, found) } else { order };
        let entries = if level == Level::BASE { shown.pages().get() as usize } else { 1 };
        let seen = Seen { entries, ..self.seen(area, level, 0) };
        let Some(agreed) = self.view.agree(&seen) else {
            self.drop_table(deposit);
            return Step::Again;
        };
        if order < wanted {
            self.stock.count(Event::ThpZeroPageAllocFailed);
        }
        if let Some(table) = deposit {
            self.space.deposit(self.stock, table);
        }
        let attrs = attrs(area.flags).with(Attrs::SPECIAL).with(Attrs::ACCESSED);
        agreed.repeat(P::leaf(frame.pa(), level, attrs));
        self.stock.count_by(Event::ZeroPage, entries as u64);
        if is_counted && order == Order::BASE {
            self.stock.reads.note_shown();
        }
        Step::Done(Outcome::ZeroPage(shown))
    }
    /// What a read takes where a write would follow.
    #[inline(never)] // most switches leave no choice
    fn page_for_read(&self, area: &Area, found: &Found) -> Step {
        let step = self.anonymous(area, found);
        if matches!(step, Step::Done(Outcome::Mapped(_))) {
            self.stock.reads.note_taken();
        }
        step
    }
    /// The same for one page: watched in the place of a marker, or in a private area of an object
    /// that does not end before (fault::object::J6).
    #[inline(never)] // seldom is one such
    pub(super) fn zero_alone(&self, area: &Area, found: &Found) -> Step {
        match self.ensure(Level::BASE, found) {
            Ok(()) => {}
            Err(NoTable::Record(why)) => return Step::Done(Self::refusal(why)),
            Err(NoTable::Blocked(_)) => return Step::Again,
        }
        let seen = self.seen(area, Level::BASE, found.word);
        let Some(agreed) = self.view.agree(&seen).filter(|_| !self.is_beyond(area)) else {
            return Step::Again;
        };
        let watched = if found.word == 0 { Attrs::NONE } else { Attrs::UFFD_WP };
        let attrs = attrs(area.flags) | Attrs::SPECIAL | Attrs::ACCESSED | watched;
        agreed.repeat(P::leaf(self.stock.zeros.page().pa(), Level::BASE, attrs));
        self.stock.count(Event::ZeroPage);
        Step::Done(Outcome::ZeroPage(Order::BASE))
    }
    /// Whether the page comes without others.
    pub(super) fn is_alone(&self) -> bool {
        self.end <= self.va.add(FRAME_BYTES)
    }
    /// The block of this order that begins with the page accessed, if all of it is demanded.
    fn demanded(&self, area: &Area, order: Order) -> Option<VaRange> {
        let block = fitting(order, self.va, area.range)?;
        (block.start() == self.va && block.end() <= self.end).then_some(block)
    }
    /// The order of the largest block that begins with the page accessed, has nothing mapped in it,
    /// and is no larger than a short go and what is demanded (E8).
    fn side_by_side(&self, area: &Area, found: &Found) -> Order {
        // Where a table was missing it is not known what it holds by now.
        if self.is_alone() || found.level > Level::BASE {
            return Order::BASE;
        }
        let fits = |order: &Order| {
            self.demanded(area, *order).is_some_and(|range| {
                zero::is_short_now(self.stock, *order) && self.is_empty(range, Level::BASE, found)
            })
        };
        let mut orders = (1..Order::SIZE_2M.get()).rev().filter_map(Order::new);
        orders.find(fits).unwrap_or(Order::BASE)
    }
    /// Whether the fault may map 2 MiB of zeros.
    fn wants_zero_block(&self, area: &Area, found: &Found) -> bool {
        found.level > Level::BASE && self.may_have_zero_block(area, found)
    }
    #[inline(never)] // most faults find a table
    fn may_have_zero_block(&self, area: &Area, found: &Found) -> bool {
        let (order, (allowed, guessed)) = (Order::SIZE_2M, self.sizes(area, found));
        self.switches.policy().use_zero_page == UseZeroPage::Yes
            && allowed.with(guessed).contains(order)
            && fitting(order, self.va, area.range).is_some()
    }
    /// The sizes that the switches allow here, and those that are a guess.
    #[inline]
    fn sizes(&self, area: &Area, found: &Found) -> (Orders, Orders) {
        let allowed = self.switches.policy().allowed(area.flags, self.space.thp_off());
        (allowed, self.guess(area, found))
    }
    /// Whether there are shared zeros of `order`, a page or 2 MiB, or a block that the face has
    /// cleared for this fault. Where there is none it does so, if one is free.
    fn has_zeros(&self, order: Order) -> Result<bool, Need> {
        let stock = self.stock;
        let has_block = || stock.zeros.block().is_some();
        if order == Order::BASE || has_block() || self.offers.block.cleared() == Some(order) {
            return Ok(true);
        }
        let Ok(claim) = stock.claim_undescribed(order, Class::Unmovable) else {
            return Ok(false);
        };
        let nth = Slot::of(self.va, Level::BASE).index() as u64;
        let touched = claim.frame().add(Pages::new(nth));
        self.keep_uncleared(claim);
        Err(Need::BlockZeros(touched))
    }
    /// The zeros that there are. A block that was cleared for this fault becomes the manager's for
    /// good: all else that the fault needs comes before.
    fn zeros_of(&self, order: Order) -> Frame {
        let zeros = &self.stock.zeros;
        let keep = || {
            let (claim, _) = self.offers.block.take(order).expect("there are zeros");
            self.stock.keep_zeros(claim)
        };
        match order {
            Order::BASE => zeros.page(),
            _ => zeros.block().unwrap_or_else(keep),
        }
    }

    /// Maps a new folio of the largest order that the switches, the area and memory allow. Where
    /// shared zeros of 2 MiB were found it takes their place, or they are split.
    #[inline(never)]
    pub(super) fn anonymous(&self, area: &Area, found: &Found) -> Step {
        let (allowed, guessed) = self.sizes(area, found);
        let orders = allowed.with(guessed).with(Orders::of(Order::BASE));
        let least = match found.entry {
            Entry::Leaf { .. } => Order::SIZE_2M,
            _ => Order::BASE,
        };
        // Orders that were too large before the face cleared a block are neither tried nor counted
        // again.
        let cleared = self.offers.block.cleared();
        let most = cleared.unwrap_or(Order::SIZE_2M);
        for order in orders.largest_first().filter(|order| (least..=most).contains(order)) {
            if order == Order::BASE
                && !self.is_alone()
                && let Some(step) = self.pages(area, found)
            {
                return step;
            }
            let prepared = match self.prepare(area, found, order) {
                Ok(prepared) => prepared,
                Err(Skip::NoBlock) if self.wants_block(area, order) => {
                    return Step::Need(Need::Block(order));
                }
                Err(Skip::Changed) => return Step::Again,
                Err(Skip::Uncleared(touched)) => return Step::Need(Need::BlockZeros(touched)),
                Err(skip) => {
                    // Larger ones were counted before memory was compacted for this one.
                    if self.offers.block.asked().is_none_or(|asked| order <= asked) {
                        self.count_skip(order, &skip);
                    }
                    match skip {
                        Skip::NoBlock if order == Order::BASE => {
                            return Step::Done(Outcome::OutOfMemory);
                        }
                        Skip::NoCharge if order == Order::BASE => {
                            return Step::Done(Outcome::OverLimit);
                        }
                        Skip::Unsuitable if order == Order::BASE => return Step::Again,
                        _ => continue,
                    }
                }
            };
            let is_guess = guessed.contains(order) && self.demanded(area, order).is_none();
            let becomes = if is_guess { Becomes::Guess } else { Becomes::Folio };
            return self.publish(area, found, prepared, becomes);
        }
        self.split(area, found)
    }

    /// Whether the fault asks the face for a block, which it does once at most.
    fn wants_block(&self, area: &Area, order: Order) -> bool {
        let tried = &self.offers.block.tried;
        if order == Order::BASE || tried.get() == Tried::Yes {
            return false;
        }
        match self.defrag.get().answer(area.flags) {
            OnShortage::Wait => {
                self.offers.block.ask(order);
                true
            }
            OnShortage::Later => {
                tried.set(Tried::Later);
                false
            }
            OnShortage::StepDown => false,
        }
    }
    /// Takes the block that the face has for this fault, or else any.
    fn claim(&self, order: Order) -> Result<(Claim, Contents), NoBlock> {
        let Some((claim, contents)) = self.offers.block.take(order) else {
            let mut claim = self.stock.claim(order, Class::Movable);
            // The block that is kept for this fault may be all that there is.
            if claim.is_err() && self.offers.block.order().is_some() {
                self.offers.block.give_back(self.stock);
                claim = self.stock.claim(order, Class::Movable);
            }
            return claim.map(|claim| (claim, Contents::Any));
        };
        match self.stock.describe(claim.frames()) {
            Ok(()) => Ok((claim, contents)),
            Err(none) => {
                self.stock.release(claim);
                Err(none)
            }
        }
    }
    /// Keeps a block for the face to clear.
    fn keep_uncleared(&self, claim: Claim) {
        // A block of another order that was cleared for this fault does not fit any more.
        self.offers.block.give_back(self.stock);
        self.offers.keep_block(self.stock, claim);
    }
    /// A table to be kept for the split of a leaf of `level`, which a large one needs (space::S4).
    pub(super) fn table_for(&self, level: Level) -> Result<Option<Claim>, NoRecord> {
        let claim = || self.stock.claim_charged(&self.space.charge, Owner::Table);
        (level > Level::BASE).then(claim).transpose()
    }
    /// Gives it back.
    pub(super) fn drop_table(&self, deposit: Option<Claim>) {
        let charge = &self.space.charge;
        deposit.into_iter().for_each(|table| self.stock.release_charged(charge, table));
    }

    /// What folios of the space are counted as.
    #[inline(always)]
    fn counts(&self) -> FolioEvents {
        if self.space.is_object() { FolioEvents::SHMEM } else { FolioEvents::ANON }
    }
    fn count_skip(&self, order: Order, skip: &Skip) {
        match skip {
            _ if order == Order::BASE => {} // there is nothing to step down to
            Skip::Unsuitable | Skip::Changed | Skip::Uncleared(_) => {}
            Skip::NoBlock => self.stock.count_size(order, self.counts().fallback),
            Skip::NoCharge => {
                self.stock.count_size(order, self.counts().fallback);
                self.stock.count_size(order, self.counts().refused);
            }
        }
    }

    fn prepare(&self, area: &Area, found: &Found, order: Order) -> Result<Prepared, Skip> {
        let range = fitting(order, self.va, area.range).ok_or(Skip::Unsuitable)?;
        let level = level_of(order);
        if !self.is_empty(range, level, found) {
            return Err(Skip::Unsuitable);
        }
        let (pages, me) = (order.pages().get(), self.stock.machine.me());
        let is_short = zero::is_short_now(self.stock, order);
        self.ensure(level, found).map_err(|why| match why {
            NoTable::Blocked(_) => Skip::Changed,
            NoTable::Record(why) => why.into(),
        })?;
        let is_to_clear = !is_short && self.offers.block.cleared() != Some(order);
        // Shared zeros leave the table that is kept for them to the folio in their place.
        let kept_at = if matches!(found.entry, Entry::Leaf { .. }) { Level::BASE } else { level };
        let deposited = u64::from(kept_at > Level::BASE);
        if is_to_clear && !self.space.admits(pages + deposited) {
            return Err(Skip::NoCharge); // before it is cleared in vain
        }
        let (claim, contents) = self.claim(order).map_err(|_| Skip::NoBlock)?;
        let inside = (self.va.get() - range.start().get()) / FRAME_BYTES;
        let touched = claim.frame().add(Pages::new(inside));
        if !is_short && contents == Contents::Any {
            self.keep_uncleared(claim);
            return Err(Skip::Uncleared(touched));
        }
        let undo = |skip, claim: Claim| {
            match contents {
                Contents::Any => self.stock.put_back(claim),
                Contents::Zero => {
                    self.stock.count_by(Event::DroppedBytes, order.bytes().get());
                    self.stock.release_cleared(claim);
                }
            }
            Err(skip)
        };
        let deposit = match self.table_for(kept_at) {
            Ok(deposit) => deposit,
            Err(why) => return undo(why.into(), claim),
        };
        if self.space.charge(me, pages).is_err() {
            self.drop_table(deposit);
            return undo(Skip::NoCharge, claim);
        }
        if contents == Contents::Any {
            self.stock.clear(&claim);
        }
        Ok(Prepared { claim, range, deposit })
    }
    /// Maps several pages, where that is demanded and easily done: no larger folio is had (E8).
    #[inline(never)]
    fn pages(&self, area: &Area, found: &Found) -> Option<Step> {
        let order = self.side_by_side(area, found);
        let pages = order.pages().get();
        if order == Order::BASE || !self.space.admits(pages) {
            return None;
        }
        let range = fitting(order, self.va, area.range)?;
        let claim = self.stock.claim(order, Class::Movable).ok()?;
        if self.space.charge(self.stock.machine.me(), pages).is_err() {
            self.stock.put_back(claim);
            return None;
        }
        self.stock.clear(&claim);
        let prepared = Prepared { claim, range, deposit: None };
        Some(self.publish(area, found, prepared, Becomes::Pages))
    }

    /// Looks without a lock whether a range is empty, so that no folio is prepared in vain. The
    /// page accessed is empty: nothing was `found` for it.
    pub(super) fn is_empty(&self, range: VaRange, level: Level, found: &Found) -> bool {
        match (found.level > Level::BASE, level > Level::BASE) {
            (true, _) => true, // no table is there yet, nor anything that it would hold
            (false, true) => false,
            (false, false) => range.pages().get() == 1 || self.view.is_empty(found, range),
        }
    }

    /// Makes the tables down to `level`, if what was `found` stands above.
    pub(super) fn ensure(&self, level: Level, found: &Found) -> Result<(), NoTable> {
        if found.level <= level {
            return Ok(());
        }
        let mut supply = Supply::of(self.stock, &self.space.charge);
        supply.until(|spare| self.view.ensure(self.va, level, spare))
    }
    /// How a fault ends that got no table.
    pub(super) fn refusal(why: NoRecord) -> Outcome {
        match why {
            NoRecord::Block => Outcome::OutOfMemory,
            NoRecord::Limit(_) => Outcome::OverLimit,
        }
    }

    /// Publishes the folio if its range still holds what was `found`, nothing or shared zeros, and
    /// its area is still the same (E1).
    #[inline(always)]
    fn publish(&self, area: &Area, found: &Found, prepared: Prepared, becomes: Becomes) -> Step {
        let Prepared { claim, range, deposit } = prepared;
        let (block, pages) = (claim.order(), claim.order().pages().get());
        let level = level_of(block);
        let entries = if level == Level::BASE { pages as usize } else { 1 };
        // Of an object's area nothing is found that leads here.
        let origin = self.space.member.origin(range.start(), area.own_offset());
        // References come before entries (frame::descriptor::D2).
        let (order, head) = match becomes {
            Becomes::Folio => (block, self.stock.enlist(claim, pages, origin)),
            Becomes::Guess => (block, self.stock.enlist_guessed(claim, pages, origin)),
            Becomes::Pages => {
                let origin = |nth| origin.piece(Pages::new(nth));
                (Order::BASE, self.stock.enlist_pages(claim, origin))
            }
        };
        let folios = pages / order.pages().get();
        let seen = Seen { entries, ..Seen::one(area, range.start(), level, found.word) };
        let Some(agreed) = self.view.agree(&seen) else {
            // It was never mapped. Where no pin keeps a folio, that goes back as cleared.
            for nth in 0..folios {
                let head = head.add(Pages::new(nth * order.pages().get()));
                let claim = self.stock.delist(head, order.pages().get());
                claim.into_iter().for_each(|claim| self.stock.release_cleared(claim));
            }
            self.stock.count_by(Event::DroppedBytes, block.bytes().get());
            self.drop_table(deposit);
            self.space.uncharge(self.stock.machine.me(), pages);
            self.stock.count(Event::LostRace);
            return Step::Again;
        };
        if let Some(table) = deposit {
            self.space.deposit(self.stock, table);
        }
        // A page that is only to be read comes in place of zeros as well (`Purpose::Anchor`).
        let write = if area.flags.has(Flags::WRITE) { Attrs::WRITE } else { Attrs::NONE };
        let attrs = attrs(area.flags) | write | Attrs::EXCLUSIVE | Attrs::SOFT_DIRTY;
        let attrs = attrs | Attrs::TOUCHED;
        match found.entry {
            Entry::Leaf { .. } => {
                agreed.replace(|| P::leaf(head.pa(), level, attrs));
            }
            _ => {
                agreed.map(head, order, attrs);
                if let Some(group) = P::group(level) {
                    let in_each = entries as u64 / folios / group.entries() as u64;
                    self.stock.count_by(Event::ContMapped, folios * in_each);
                }
            }
        }
        self.stock.count_size_by(order, self.counts().alloc, folios);
        Step::Done(Outcome::Mapped(block))
    }
}
