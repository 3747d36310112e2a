//! Where a block is taken from.
//!
//! ```text
//!  order 0      the word that the own seat names ─▶ as below
//!  order 0..2   own seat ─▶ exact fit of the class: the seat names it and owns nothing ─▶ partly used of the class, tightest first
//!                        ─▶ a whole 2 MiB block ─▶ partly used of another class ─▶ any CPU's own block, in place
//!  order 3..8   partly used of the class, tightest first, in place; a block half free comes after the own seat
//!                        ─▶ movable memory: exact fit of another class, in place ─▶ a whole block ─▶ as above
//!  order 9      the one freed last ─▶ from the cursor on ─▶ whole blocks that some CPU has for itself
//!  order 10..   aligned runs of bits over both kinds of whole blocks
//! ```
//!
//! Of the blocks of another class, movable memory takes the tightest and leaves its tag alone;
//! memory that cannot be moved takes the roomiest and tags it, so that later requests gather there
//! instead of spoiling the next 2 MiB. Opening whole blocks is what uses them up, so every hole
//! that fits exactly goes before (record 070; `benches/frag.rs` has the figures).
//!
//! **Invariants**
//! - I1. A search visits every list on which a fitting block may stand. So while nobody else acts,
//!   "no memory" means that no aligned free block of the order exists.
//! - I2. A search goes forward only, so it ends whatever others do.
//! - I3. A page is taken from the word that the seat names without a look at the block's entry. The
//!   block may be another's by now; then the page is as free as any, and the word, once it has none
//!   left, is the last that is used so.
//!
//! A search for a block of one node goes over the regions of that node only.
//!
//! **Locking**: none. **Not here**: which node to ask for.

use super::bits::Phase;
use super::entry::{FIT_PART, FIT_WHOLE};
use super::field::Offset;
use super::index::List;
use super::region::Region;
use super::seats::{Hinted, MIDDLE, Seat, Seats};
use super::{AllocError, Class, Folios};
use core::ops::RangeInclusive;
use foliant_units::{Cpu, Frame, Node, Order};

const SIZE_2M: u32 = Order::SIZE_2M.get() as u32;

/// Bits of the index in one cache line.
const LINE: usize = 512;

/// How often all lists are searched before an allocation fails: a block that changes lists during a
/// search may slip past it once.
const PASSES: usize = 2;

impl<'m> Folios<'m> {
    /// A naturally aligned block of 2^`order` frames for memory of `class`, near what `cpu` took
    /// before.
    pub fn alloc(&self, cpu: Cpu, order: Order, class: Class) -> Result<Frame, AllocError> {
        self.alloc_where(cpu, None, order, class)
    }
    /// [`alloc`](Folios::alloc) of a block that lies on `node`.
    pub fn alloc_on(
        &self,
        cpu: Cpu,
        node: Node,
        order: Order,
        class: Class,
    ) -> Result<Frame, AllocError> {
        self.alloc_where(cpu, Some(node), order, class)
    }
    #[inline]
    fn alloc_where(
        &self,
        cpu: Cpu,
        node: Option<Node>,
        order: Order,
        class: Class,
    ) -> Result<Frame, AllocError> {
        if order == Order::BASE
            && let Some(page) = self.page_at_hand(cpu, node, class)
        {
            return Ok(page);
        }
        self.search(cpu, node, order, class)
    }
    /// A page out of the word that the CPU's own seat names, if one is free there (I3).
    #[inline]
    fn page_at_hand(&self, cpu: Cpu, node: Option<Node>, class: Class) -> Option<Frame> {
        let place = self.seats(cpu)?.seat(class, 0).place()?;
        let region = self.regions.get(place.region).filter(|region| is_on(region, node))?;
        let at = region.field(place.block).take_page(place.word)?;
        Some(region.frame(place.block, at))
    }
    fn search(
        &self,
        cpu: Cpu,
        node: Option<Node>,
        order: Order,
        class: Class,
    ) -> Result<Frame, AllocError> {
        let Some(seats) = self.seats(cpu) else {
            return Err(AllocError::UnknownCpu { cpu, cpus: self.cpus() });
        };
        let order_bits = order.get() as u32;
        let seat = || self.host(seats).seat(class, order_bits);
        let found = match order_bits {
            0..MIDDLE => self.alloc_small(seat(), order_bits, class, node),
            MIDDLE..SIZE_2M => self.alloc_middle(seat(), order_bits, class, node),
            SIZE_2M => self.alloc_2m(seats, class, node),
            _ => self.alloc_run(order_bits, class, node),
        };
        found.ok_or(AllocError::NoMemory { order, class })
    }

    #[inline]
    fn alloc_small(
        &self,
        seat: Seat<'m>,
        order: u32,
        class: Class,
        node: Option<Node>,
    ) -> Option<Frame> {
        self.take_seated(seat, order, class, node).or_else(|| self.refill(seat, order, class, node))
    }
    /// Blocks of these orders fill most of memory, so each is fitted into the tightest hole. Only
    /// where that is half a block or more, the seat is as good.
    fn alloc_middle(
        &self,
        seat: Seat<'m>,
        order: u32,
        class: Class,
        node: Option<Node>,
    ) -> Option<Frame> {
        self.take_listed(order + 1..=FIT_PART - 1, order, class, node)
            .or_else(|| self.take_seated(seat, order, class, node))
            .or_else(|| self.refill(seat, order, class, node))
    }
    /// Takes a block from the 2 MiB block that the seat names: the seat's own, or one with holes
    /// that fit.
    fn take_seated(
        &self,
        seat: Seat<'m>,
        order: u32,
        class: Class,
        node: Option<Node>,
    ) -> Option<Frame> {
        let place = seat.place()?;
        let region = self.regions.get(place.region).filter(|region| is_on(region, node))?;
        let at = region
            .take_owned(place.block, Some(seat.owner), order, place.word)
            .or_else(|| region.take_exact(place.block, class, order, place.word))?;
        seat.remember(place, at.word());
        Some(region.frame(place.block, at))
    }
    /// Takes a block from a partly used 2 MiB block without owner, tightest first; the 2 MiB block
    /// stays without owner.
    fn take_listed(
        &self,
        fits: RangeInclusive<u32>,
        order: u32,
        class: Class,
        node: Option<Node>,
    ) -> Option<Frame> {
        fits.into_iter().find_map(|fit| {
            let list = List::class(class, fit);
            self.search_on(node, list, |_, region, block| {
                let at = region.take_listed(block, list, order)?;
                Some(region.frame(block, at))
            })
        })
    }
    #[cold]
    fn refill(
        &self,
        seat: Seat<'m>,
        order: u32,
        class: Class,
        node: Option<Node>,
    ) -> Option<Frame> {
        (0..PASSES).find_map(|_| {
            self.claim_any(seat, order, class, node).or_else(|| self.take_from_others(order, node))
        })
    }
    /// Takes a block from a 2 MiB block without owner. That block becomes the seat's, unless the
    /// hole is one to be used in place.
    fn claim_any(
        &self,
        seat: Seat<'m>,
        order: u32,
        class: Class,
        node: Option<Node>,
    ) -> Option<Frame> {
        let fits = order + 1..=FIT_PART;
        let exact = order + 1..=order + 1;
        let here = |fits, class| self.take_listed(fits, order, class, node);
        let own = |list: List| self.claim_from(list, seat, order, (Some(class), node));
        let others = || Class::ALL.into_iter().filter(move |other| *other != class);
        let partly = if order < MIDDLE {
            let tightest = || fits.clone().find_map(|fit| own(List::class(class, fit)));
            self.sit_at_holes(seat, order, class, node).or_else(tightest)
        } else if class == Class::Movable {
            here(fits.clone(), class)
                .or_else(|| others().find_map(|other| here(exact.clone(), other)))
        } else {
            here(fits.clone(), class)
        };
        if let Some(frame) = partly.or_else(|| own(List::WHOLE)) {
            return Some(frame);
        }
        if class == Class::Movable {
            let keep = |list: List| self.claim_from(list, seat, order, (None, node));
            others().find_map(|c| fits.clone().find_map(|fit| keep(List::class(c, fit))))
        } else {
            others().find_map(|c| fits.clone().rev().find_map(|fit| own(List::class(c, fit))))
        }
    }
    /// Takes a block from a 2 MiB block without owner whose largest holes fit exactly. The seat
    /// names it from now on and does not own it, for nobody is kept from whole blocks by it.
    fn sit_at_holes(
        &self,
        seat: Seat<'m>,
        order: u32,
        class: Class,
        node: Option<Node>,
    ) -> Option<Frame> {
        let list = List::class(class, order + 1);
        self.search_on(node, list, |number, region, block| {
            let at = region.take_on_list(block, list, order, 0)?;
            self.sit(seat, Some(Hinted { region: number, block, word: at.word() }));
            Some(region.frame(block, at))
        })
    }
    fn claim_from(
        &self,
        list: List,
        seat: Seat<'m>,
        order: u32,
        (tag, node): (Option<Class>, Option<Node>),
    ) -> Option<Frame> {
        self.search_on(node, list, |number, region, block| {
            let Some(at) = region.claim(block, list, order, (seat.owner, tag)) else {
                // The block may be ours by now although others took its free frames.
                region.disown(block, seat.owner);
                return None;
            };
            self.sit(seat, Some(Hinted { region: number, block, word: at.word() }));
            Some(region.frame(block, at))
        })
    }
    /// Seats `place` and disowns the block that sat there.
    pub(super) fn sit(&self, seat: Seat<'m>, place: Option<Hinted>) {
        let Some(old) = seat.exchange(place) else { return };
        let stays = place.is_some_and(|new| (new.region, new.block) == (old.region, old.block));
        if let Some(region) = self.regions.get(old.region)
            && !stays
        {
            region.disown(old.block, seat.owner);
        }
    }
    /// Takes a block from a 2 MiB block that some CPU has for itself; that CPU stays its owner.
    fn take_from_others(&self, order: u32, node: Option<Node>) -> Option<Frame> {
        (order + 1..=FIT_WHOLE).find_map(|fit| {
            let list = List::owned(fit);
            self.search_on(node, list, |_, region, block| {
                let at = region.take_owned(block, None, order, 0);
                if at.is_none() {
                    region.refresh(block);
                    region.dismiss(list, block);
                }
                at.map(|at| region.frame(block, at))
            })
        })
    }
    /// The first block on `list`, of one node if one is named, that `visit` takes.
    fn search_on<T>(
        &self,
        node: Option<Node>,
        list: List,
        mut visit: impl FnMut(usize, &Region<'m>, usize) -> Option<T>,
    ) -> Option<T> {
        for (number, region) in self.regions.iter().filter(|(_, region)| is_on(region, node)) {
            if region.index().is_empty(list) {
                continue;
            }
            let mut from = 0;
            while let Some(bit) = region.index().next(list, from) {
                if let Some(found) = visit(number, region, region.blk(bit)) {
                    return Some(found);
                }
                from = bit + 1;
            }
        }
        None
    }

    #[inline]
    fn alloc_2m(&self, seats: Seats<'m>, class: Class, node: Option<Node>) -> Option<Frame> {
        if let Some(place) = seats.take_recent()
            && let Some(region) = self.regions.get(place.region)
            && is_on(region, node)
            && region.claim_whole(place.block, SIZE_2M, class, Phase::Complete)
        {
            return Some(region.frame(place.block, Offset(0)));
        }
        (0..PASSES).find_map(|_| {
            self.take_2m_from_cursor(seats, class, node)
                .or_else(|| self.take_2m_from_others(class, node))
        })
    }
    fn take_2m_from_cursor(
        &self,
        seats: Seats<'m>,
        class: Class,
        node: Option<Node>,
    ) -> Option<Frame> {
        let start = seats.cursor().unwrap_or_else(|| self.home(seats.cpu));
        let count = self.regions.count();
        if count == 0 {
            return None; // ranges may be added later
        }
        for step in 0..=count {
            let number = (start.region + step) % count;
            let region = self.regions.get(number)?;
            if !is_on(region, node) {
                continue;
            }
            let mut from = if step == 0 { start.block } else { 0 };
            while let Some(bit) = region.index().next(List::WHOLE, from) {
                let block = region.blk(bit);
                let got = region.claim_whole(block, SIZE_2M, class, Phase::Complete);
                region.dismiss(List::WHOLE, block);
                if got {
                    seats.set_cursor(Hinted { region: number, block: bit, word: 0 });
                    return Some(region.frame(block, Offset(0)));
                }
                // Another CPU was here before us. The first step keeps away from the lines of the
                // index that it uses; later steps do not.
                from = if step == 0 { (bit | (LINE - 1)) + 1 } else { bit + 1 };
            }
        }
        None
    }
    /// Where `cpu` begins to look for whole blocks: as far from the others as may be, by whole
    /// words of the index.
    fn home(&self, cpu: Cpu) -> Hinted {
        let bits = |region: &Region<'m>| region.index().len() * 64;
        let total: usize = self.regions.iter().map(|(_, region)| bits(region)).sum();
        let mut at = total / self.seats.len() * cpu.index() / 64 * 64;
        for (region, s) in self.regions.iter() {
            if at < bits(s) {
                return Hinted { region, block: at, word: 0 };
            }
            at -= bits(s);
        }
        Hinted { region: 0, block: 0, word: 0 }
    }
    fn take_2m_from_others(&self, class: Class, node: Option<Node>) -> Option<Frame> {
        let list = List::owned(FIT_WHOLE);
        self.search_on(node, list, |_, region, block| {
            let got = region.claim_free(block, SIZE_2M, class, Phase::Complete);
            if !got {
                region.refresh(block);
            }
            region.dismiss(list, block);
            got.then(|| region.frame(block, Offset(0)))
        })
    }

    /// A run of 2^(`order` - 9) whole blocks.
    #[cold]
    fn alloc_run(&self, order: u32, class: Class, node: Option<Node>) -> Option<Frame> {
        (0..PASSES).find_map(|_| {
            let mut regions = self.regions.iter().filter(|(_, region)| is_on(region, node));
            regions.find_map(|(_, region)| run_in(region, order, class))
        })
    }
}

fn is_on(region: &Region<'_>, node: Option<Node>) -> bool {
    node.is_none_or(|node| region.node() == node)
}

/// Bits of index word `at` whose blocks may be whole.
fn whole(region: &Region<'_>, at: usize) -> u64 {
    let index = region.index();
    index.load(List::WHOLE, at) | index.load(List::owned(FIT_WHOLE), at)
}

fn run_in(region: &Region<'_>, order: u32, class: Class) -> Option<Frame> {
    let run = 1usize << (order - SIZE_2M);
    if run > 64 {
        let words = run / 64;
        return (0..region.index().len()).step_by(words).find_map(|at| {
            let full = (at..at + words).all(|at| whole(region, at) == !0);
            full.then(|| claim_run(region, at * 64, order, class)).flatten()
        });
    }
    (0..region.index().len()).find_map(|at| {
        let bits = whole(region, at);
        let mask = !0u64 >> (64 - run);
        (0..64)
            .step_by(run)
            .filter(|bit| bits >> bit & mask == mask)
            .find_map(|bit| claim_run(region, at * 64 + bit, order, class))
    })
}

/// Takes the run of blocks at `bit`, or none of it. The run is in flight until all its blocks are
/// taken; a block that is not whole leaves the lists.
fn claim_run(region: &Region<'_>, bit: usize, order: u32, class: Class) -> Option<Frame> {
    let (head, run) = (region.blk(bit), 1 << (order - SIZE_2M));
    for block in head..head + run {
        let phase = if block == head { Phase::InFlight } else { Phase::Complete };
        if !region.claim_free(block, order, class, phase) {
            region.refresh(block);
            drop_hints(region, block);
            (head..block).for_each(|block| region.release_whole(block));
            return None;
        }
    }
    (head..head + run).for_each(|block| drop_hints(region, block));
    region.phase(head, order, Phase::Complete).expect("we alone hold a block in flight");
    Some(region.frame(head, Offset(0)))
}

fn drop_hints(region: &Region<'_>, block: usize) {
    region.dismiss(List::WHOLE, block);
    region.dismiss(List::owned(FIT_WHOLE), block);
}
