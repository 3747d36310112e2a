//! Making an area: addresses, frames, leaves, in whole attempts.
//!
//! ```text
//!   plan of 1 GiB leaves ──short──▶ plan of 2 MiB ──short──▶ plan of base pages, size and alignment as asked
//!        │                              │                          │
//!        └──────────────────────────────┴───── all or nothing ─────┘
//! ```
//!
//! An attempt that is short of anything gives everything back before the next one begins, so no
//! area has a part that was made by another attempt (G7, TR-V2).

use super::area::{AreaWord, Mark};
use super::record::{Record, RecordWord};
use super::slots::fitting;
use super::{
    Backing, Guard, HugeVmalloc, LeafSizes, Nodes, Request, Rest, Rights, Short, Vmap, VmapError,
    deferred,
};
use crate::folio::Class;
use crate::frame::{Claim, Link};
use crate::ranges::{Edge, GapNeed};
use crate::stock::Event;
use crate::sync::{Ordering, Outside};
use crate::table::{Attrs, Paging};
use foliant_machine::Machine;
use foliant_units::{Bytes, FRAME_BYTES, Level, Node, Order, Pages, Va, VaRange};

/// How kernel memory is mapped: no walker has to note anything.
pub(super) const KERNEL: Attrs = Attrs::GLOBAL.with(Attrs::TOUCHED);
/// The order of the largest block that is taken for base pages: 1 MiB (record 016), half of what a
/// table of base entries maps. A block that begins at a multiple of its size lies in one table, as
/// `write` demands, up to order 9.
const BLOCK_MAX: u8 = 8;

/// Addresses for an area.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) pages: Pages,
    pub(super) align: Bytes,
    pub(super) guard: Guard,
}

/// One attempt: what it maps, and by which leaves at most.
#[derive(Clone, Copy, Debug)]
struct Attempt<'r> {
    request: &'r Request,
    place: Wanted,
    largest: Level,
    /// Which leaves it may have, groups of small ones included.
    leaves: LeafSizes,
}

/// A request that was checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish<'r> {
    request: &'r Request,
    pages: Pages,
    largest: Level,
}

impl Wish<'_> {
    /// The level of the largest leaf that it may get.
    pub(crate) const fn largest(&self) -> Level {
        self.largest
    }
    /// How many blocks of 2 MiB its leaves of 2 MiB take. `None` where it may have no such leaves,
    /// or where it matters on which node they lie.
    pub(crate) fn blocks(&self) -> Option<u64> {
        let anywhere = self.request.nodes == Nodes::Near;
        let blocks = self.pages.get() / Order::SIZE_2M.pages().get();
        (anywhere && self.largest >= Level::SIZE_2M).then_some(blocks)
    }
}

impl<'a, 'm, M: Machine, P: Paging> Vmap<'a, 'm, M, P> {
    /// Takes memory and maps it; see [`Request`]. Gives the addresses of the pages that were asked
    /// for. No memory is compacted for it: the face does that
    /// ([`Manager::vmalloc`](crate::Manager::vmalloc)).
    pub fn alloc(&self, request: &Request) -> Result<VaRange, VmapError> {
        let wish = self.wish(request)?;
        Ok(self.serve(&wish, (wish.largest, Level::BASE), &mut Outside::at_the_face())?)
    }
    /// Refuses a request that makes no sense, and counts one for large leaves.
    pub(crate) fn wish<'r>(&self, request: &'r Request) -> Result<Wish<'r>, VmapError> {
        self.collect();
        let pages = self.check(request)?;
        let largest = self.largest(request, pages);
        if largest > Level::BASE {
            self.stock.count(Event::VmallocHuge);
        }
        Ok(Wish { request, pages, largest })
    }
    /// Works a request off, with leaves of the larger level at most; where an attempt fails, with
    /// smaller ones, down to the other level.
    pub(crate) fn serve(
        &self,
        wish: &Wish<'_>,
        (largest, least): (Level, Level),
        outside: &mut Outside,
    ) -> Result<VaRange, Short> {
        let _work = self.stock.at_work();
        let start = self.descend((largest, least), |largest| {
            let done = self.attempt(&self.plan(wish.request, wish.pages, largest), outside);
            done.inspect_err(|short| {
                if largest > Level::BASE {
                    self.stock.count(short.event());
                }
            })
        })?;
        Ok(VaRange::sized(start, wish.pages.bytes()).expect("it lies in the range"))
    }
    /// Makes attempts with smaller and smaller leaves, each of them whole (G7).
    pub(super) fn descend<R>(
        &self,
        (mut largest, least): (Level, Level),
        mut attempt: impl FnMut(Level) -> Result<R, Short>,
    ) -> Result<R, Short> {
        loop {
            match (attempt(largest), largest.down()) {
                (Err(_), Some(down)) if largest > least => largest = down,
                (done, _) => return done,
            }
        }
    }

    /// Refuses a request that makes no sense; says how many pages any other is for.
    fn check(&self, request: &Request) -> Result<Pages, VmapError> {
        let asked = request.bytes;
        if asked.get() == 0 {
            return Err(VmapError::Empty);
        }
        check_align(request.align)?;
        let installed = self.stock.folios.ranges().map(|range| range.pages().bytes().get()).sum();
        if asked.get() > installed {
            return Err(VmapError::TooLarge { asked, installed: Bytes::new(installed) });
        }
        match request.nodes {
            Nodes::On(node) if !self.stock.folios.nodes().any(|known| known == node) => {
                Err(VmapError::Node(node))
            }
            _ => Ok(Pages::new(asked.get().div_ceil(FRAME_BYTES))),
        }
    }
    /// The largest leaf that the request, the switches and the format allow. Where nodes take turns
    /// it is one that every node gets at least one of.
    fn largest(&self, request: &Request, pages: Pages) -> Level {
        let parts = match request.nodes {
            Nodes::Interleave => self.stock.folios.nodes().count() as u64,
            Nodes::Near | Nodes::On(_) => 1,
        };
        let fits = |level: &Level| level.span().get() <= pages.bytes().get() / parts;
        let large = [Level::SIZE_1G, Level::SIZE_2M].into_iter();
        let top = self.leaves(request).largest().min(P::LEAF_TOP);
        large.filter(|level| *level <= top).find(fits).unwrap_or(Level::BASE)
    }
    /// The leaves that the request's rights and the switches allow. A part of base leaves can have
    /// other rights, in whatever format.
    fn leaves(&self, request: &Request) -> LeafSizes {
        let allowed =
            request.rights == Rights::Data && self.controls().huge_vmalloc == HugeVmalloc::Allowed;
        if allowed { request.leaves } else { LeafSizes::Base }
    }
    fn plan<'r>(&self, request: &'r Request, pages: Pages, largest: Level) -> Attempt<'r> {
        let round = largest > Level::BASE && self.controls().rest == Rest::Rounded;
        let unit = if round { Order::SIZE_2M.pages().get() } else { 1 };
        let place = Wanted {
            pages: Pages::new(pages.get().next_multiple_of(unit)),
            align: request.align.max(largest.span()),
            guard: request.guard,
        };
        Attempt { request, place, largest, leaves: self.leaves(request) }
    }

    fn attempt(&self, plan: &Attempt<'_>, outside: &mut Outside) -> Result<Va, Short> {
        // The block that is hardest to get comes first: without it nothing else is touched.
        let first = match plan.largest {
            Level::BASE => None,
            level => Some(self.block(plan, level)?),
        };
        let area = match self.place(&plan.place, Backing::Pages) {
            Ok(area) => area,
            Err(short) => {
                first.into_iter().for_each(|claim| self.stock.put_back(claim));
                return Err(short);
            }
        };
        area.set(RecordWord::Bytes, plan.request.bytes.get());
        area.set(RecordWord::Caller, plan.request.caller.0);
        if plan.request.users == super::Users::Yes {
            AreaWord::of(&area).with(Mark::Users).put(&area);
        }
        match self.fill(plan, &area, first, outside) {
            Ok(()) => {
                let wanted = plan.request.bytes.get().next_multiple_of(FRAME_BYTES);
                let rounded = plan.place.pages.bytes().get() - wanted;
                self.stock.count_by(Event::VmallocRounded, rounded);
                let start = area.start();
                self.let_go(&area); // its record is anybody's from here on
                Ok(start)
            }
            Err(short) => {
                self.dismantle(&area);
                Err(short)
            }
        }
    }

    /// Takes addresses for an area. Where there are none it purges and tries once more.
    pub(super) fn place(&self, place: &Wanted, kind: Backing) -> Result<Record<'m>, Short> {
        let guard = if place.guard == Guard::Page { FRAME_BYTES } else { 0 };
        let bytes = place.pages.bytes().get().checked_add(guard);
        let bytes = bytes.ok_or(Short::Addresses(place.pages.bytes()))?;
        let bytes = Bytes::new(bytes);
        let need = GapNeed { bytes, align: place.align, within: self.state.range, from: Edge::Low };
        for purged in [false, true] {
            if purged {
                self.purge();
            }
            let opened = self.open_for_one_more().map_err(|_| Short::Record)?;
            let Some(start) = opened.gap(&need) else { continue };
            let new = opened.take_record();
            new.set(RecordWord::Start, start.get());
            new.set(RecordWord::End, start.get() + bytes.get());
            new.set(RecordWord::Pages, place.pages.get());
            new.set(RecordWord::Bytes, place.pages.bytes().get());
            new.set(RecordWord::Caller, 0);
            new.set(RecordWord::Phys, 0);
            AreaWord::new(kind).put(&new);
            opened.insert(new);
            return Ok(new);
        }
        Err(Short::Addresses(bytes))
    }

    /// Maps all of an area, chunk by chunk, beginning with `first` where there is one.
    fn fill(
        &self,
        plan: &Attempt<'_>,
        area: &Record<'m>,
        mut first: Option<Claim>,
        outside: &mut Outside,
    ) -> Result<(), Short> {
        let range = area.mapped();
        let mut done = self.clear_slots(range, plan.largest);
        let mut va = range.start();
        while va < range.end() && done.is_ok() {
            let level = fitting(va, range.end(), plan.largest);
            done = match first.take().map_or_else(|| self.chunk(plan, (va, range.end()), level), Ok)
            {
                Ok(claim) => {
                    let start = va;
                    va = va.add(claim.order().bytes().get());
                    self.publish(area, (start, level), claim, (plan, &mut *outside))
                }
                Err(short) => Err(short),
            };
        }
        first.into_iter().for_each(|claim| self.stock.put_back(claim));
        done
    }
    /// A block for a leaf.
    fn block(&self, plan: &Attempt<'_>, level: Level) -> Result<Claim, Short> {
        let order = level.order().expect("leaves end at 1 GiB");
        let claim = self.stock.claim_on(self.node(plan), order, Class::Unmovable);
        claim.map_err(|_| Short::Block(order))
    }
    /// A block for the chunk that begins at `va`: that of a leaf, or for base pages the largest one
    /// that fits and is free.
    fn chunk(&self, plan: &Attempt<'_>, (va, end): (Va, Va), level: Level) -> Result<Claim, Short> {
        if level > Level::BASE {
            return self.block(plan, level);
        }
        let (left, node) = (end.offset_from(va) / FRAME_BYTES, self.node(plan));
        // Where nodes take turns each gets one page; else the block is the largest that can be had.
        let turns = plan.request.nodes == Nodes::Interleave;
        let most = if turns { 0 } else { BLOCK_MAX };
        let fits = |order: &Order| {
            order.get() <= most && order.pages().get() <= left && va.is_aligned(order.bytes())
        };
        let claim = |node, order| self.stock.claim_on(node, order, Class::Unmovable).ok();
        let mut orders = Order::all().rev().filter(fits);
        let got = orders.find_map(|order| claim(node, order));
        // A node that is full passes its turn on.
        let got = got.or_else(|| turns.then(|| claim(None, Order::BASE)).flatten());
        got.ok_or(Short::Block(Order::BASE))
    }
    fn node(&self, plan: &Attempt<'_>) -> Option<Node> {
        match plan.request.nodes {
            Nodes::Near => None,
            Nodes::On(node) => Some(node),
            Nodes::Interleave => {
                let turn = self.state.turn.fetch_add(1, Ordering::Relaxed);
                let nodes = || self.stock.folios.nodes();
                nodes().nth((turn % nodes().count() as u64) as usize)
            }
        }
    }
    /// Makes pages of a block and maps them at `va`.
    fn publish(
        &self,
        area: &Record<'m>,
        (va, level): (Va, Level),
        claim: Claim,
        (plan, outside): (&Attempt<'_>, &mut Outside),
    ) -> Result<(), Short> {
        if let Err(short) = self.reach(va, level) {
            self.stock.put_back(claim);
            return Err(short);
        }
        if plan.request.is_zeroed() {
            crate::zero::clear_yielding(self.stock, &claim, outside);
        }
        let frames = self.stock.enlist_kernel(claim);
        if va == area.start() {
            // It says so from before it can be found (deferred::D1).
            self.stock.set_link(frames.start(), Link::Before, deferred::in_use(va));
        }
        let attrs = KERNEL | plan.request.rights.attrs();
        let written = self.write(area, (va, level), frames, attrs, plan.leaves);
        if written.is_err() {
            self.stock.drop_kernel(frames);
        }
        written
    }
}

pub(super) fn check_align(align: Bytes) -> Result<(), VmapError> {
    let (least, most) = (FRAME_BYTES, Level::SIZE_1G.span().get());
    if align.get().is_power_of_two() && (least..=most).contains(&align.get()) {
        return Ok(());
    }
    Err(VmapError::Alignment(align))
}

impl Short {
    /// The event that counts attempts that ended so.
    const fn event(self) -> Event {
        match self {
            Short::Block(_) => Event::VmallocNoBlock,
            Short::Addresses(_) => Event::VmallocNoRoom,
            Short::Record => Event::VmallocNoRecord,
            Short::Slot(_) => Event::VmallocNoSlot,
        }
    }
}
