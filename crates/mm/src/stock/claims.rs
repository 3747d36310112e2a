#![allow(unsafe_code)]
//! Taking frames and giving them back.

use super::{Event, SizeEvent, Stock};
use crate::folio::{Class, Known};
use crate::frame::{
    Claim, Flag, Flushed, Identity, Kind, Origin, Parts, References, Touched, Unmapped,
};
use crate::table::Paging;
use core::{error, fmt};
use foliant_machine::{Machine, Owner, Refusal};
use foliant_units::{Frame, FrameRange, Node, Order, Pages};

/// Why no block was had: none of this order is free, or the machine's fault plan said no.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoBlock {
    /// The order that was asked for.
    pub order: Order,
}

impl fmt::Display for NoBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no free block of {}", self.order.bytes())
    }
}
impl error::Error for NoBlock {}

/// The parts of a block, to be taken one by one. What is left when it is dropped goes back.
pub(crate) struct BlockParts<'s, 'm, M: Machine, P: Paging> {
    stock: &'s Stock<'m, M, P>,
    parts: Parts,
}

impl<M: Machine, P: Paging> BlockParts<'_, '_, M, P> {
    /// Takes the part at a place, unless it was taken.
    pub(crate) fn part(&mut self, nth: u64) -> Option<Claim> {
        self.parts.part(nth)
    }
}

/// Pages of programs that ended side by side. They are given back together, when one comes that is
/// not behind the last one, or when this is dropped.
struct Ended<'s, 'm, M: Machine, P: Paging> {
    stock: &'s Stock<'m, M, P>,
    first: Frame,
    count: u64,
}

impl<'s, 'm, M: Machine, P: Paging> Ended<'s, 'm, M, P> {
    fn new(stock: &'s Stock<'m, M, P>) -> Self {
        Ended { stock, first: Frame::new(0), count: 0 }
    }
    /// Adds a page that has no references and can get none.
    #[inline]
    fn push(&mut self, frame: Frame) {
        if self.first.add(Pages::new(self.count)) != frame {
            self.give_back();
            self.first = frame;
        }
        self.count += 1;
    }
    fn give_back(&mut self) {
        let count = core::mem::take(&mut self.count);
        if count == 0 {
            return;
        }
        let frames = FrameRange::new(self.first, Pages::new(count)).expect("they lie in memory");
        let Stock { machine, folios, .. } = self.stock;
        self.stock.set_identities(self.first, count, Identity::PLAIN);
        self.stock.uncount_size_by(Order::BASE, SizeEvent::NrAnon, count);
        machine.owned(frames, Owner::Free);
        let done = match count {
            1 => folios.free(machine.me(), self.first, Order::BASE),
            _ => folios.free_each(frames),
        };
        if let Err(misuse) = done {
            panic!("a page that ended is a block of its own (claim::I1): {misuse}");
        }
    }
}

impl<M: Machine, P: Paging> Drop for Ended<'_, '_, M, P> {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Takes the first one that is left.
impl<M: Machine, P: Paging> Iterator for BlockParts<'_, '_, M, P> {
    type Item = Claim;

    fn next(&mut self) -> Option<Claim> {
        self.parts.next()
    }
}

impl<M: Machine, P: Paging> Drop for BlockParts<'_, '_, M, P> {
    fn drop(&mut self) {
        for part in &mut self.parts {
            self.stock.put_back(part);
        }
    }
}

impl<'m, M: Machine, P: Paging> Stock<'m, M, P> {
    /// Takes a block whose descriptors are ready (K1).
    pub(crate) fn claim(&self, order: Order, class: Class) -> Result<Claim, NoBlock> {
        self.claim_on(None, order, class)
    }
    /// [`claim`](Self::claim), of one node if one is named.
    pub(crate) fn claim_on(
        &self,
        node: Option<Node>,
        order: Order,
        class: Class,
    ) -> Result<Claim, NoBlock> {
        let claim = self.claim_block(node, order, class)?;
        match self.describe(claim.frames()) {
            Ok(()) => Ok(claim),
            Err(NoBlock { .. }) => {
                self.put_back(claim);
                Err(NoBlock { order })
            }
        }
    }

    /// Takes a block for memory that needs no descriptor.
    pub(crate) fn claim_undescribed(&self, order: Order, class: Class) -> Result<Claim, NoBlock> {
        self.claim_block(None, order, class)
    }
    /// [`claim_undescribed`](Self::claim_undescribed), of one node if one is named.
    pub(crate) fn claim_block(
        &self,
        node: Option<Node>,
        order: Order,
        class: Class,
    ) -> Result<Claim, NoBlock> {
        let me = self.machine.me();
        let frame = match (self.machine.refusal(), node) {
            (Refusal::Permit, None) => self.folios.alloc(me, order, class).ok(),
            (Refusal::Permit, Some(node)) => self.folios.alloc_on(me, node, order, class).ok(),
            (Refusal::Refuse, _) => None,
        };
        let Some(frame) = frame else {
            self.count(Event::NoMemory);
            return Err(NoBlock { order });
        };
        // SAFETY: the allocator handed it out just now.
        let claim = unsafe { Claim::taken(frame, order) };
        self.machine.owned(claim.frames(), Owner::Claimed);
        Ok(claim)
    }

    /// Gives a block back, whatever it holds.
    pub(crate) fn release(&self, claim: Claim) {
        self.give_back(claim, Known::Nothing);
    }
    /// Gives back a block that was never written to: what was known of it stays known.
    pub(crate) fn put_back(&self, claim: Claim) {
        let known = match claim.touched() {
            Touched::No => Known::AsBefore,
            Touched::Perhaps => Known::Nothing,
        };
        self.give_back(claim, known);
    }
    /// Gives back a block that was cleared and not written to since.
    pub(crate) fn release_cleared(&self, claim: Claim) {
        self.give_back(claim, Known::Zero);
    }
    /// Gives back a block that was cleared in vain, because another CPU was faster. It holds zeros
    /// still.
    pub(crate) fn drop_cleared(&self, claim: Claim) {
        self.count(Event::LostRace);
        self.count_by(Event::DroppedBytes, claim.order().bytes().get());
        self.release_cleared(claim);
    }
    fn give_back(&self, claim: Claim, known: Known) {
        self.machine.owned(claim.frames(), Owner::Free);
        let (frame, order) = claim.into_raw();
        if let Err(misuse) = self.folios.free_knowing(self.machine.me(), frame, order, known) {
            panic!("a claim is the only handle to its block (claim::I1): {misuse}");
        }
    }

    /// Cuts a block into parts, each a block of its own. Those that are not taken go back.
    pub(crate) fn cut(&self, claim: Claim, into: Order) -> BlockParts<'_, 'm, M, P> {
        let split = self.folios.split(claim.frame(), claim.order(), into);
        split.expect("a claim is a block (claim::I1)");
        BlockParts { stock: self, parts: claim.into_parts(into) }
    }
    /// Takes a cleared base frame for tables or records, which need no descriptor.
    pub(crate) fn claim_cleared(&self, owner: Owner) -> Result<Claim, NoBlock> {
        let class = if owner == Owner::Table { Class::Table } else { Class::Unmovable };
        let claim = self.claim_undescribed(Order::BASE, class)?;
        self.clear(&claim);
        self.machine.owned(claim.frames(), owner);
        Ok(claim)
    }

    /// Makes an anonymous folio of `claim`, with so many entries to it, made at `origin`. The
    /// caller maps it next.
    pub(crate) fn enlist(&self, claim: Claim, entries: u64, origin: Origin) -> Frame {
        let (head, order) = self.enlist_plain(claim, entries, origin);
        self.defer_unused(head, order);
        head
    }
    /// Does so for a folio whose size the manager guessed.
    #[inline(never)] // most are not
    pub(crate) fn enlist_guessed(&self, claim: Claim, entries: u64, origin: Origin) -> Frame {
        let (head, order) = self.enlist_plain(claim, entries, origin);
        self.defer_guessed(head, order);
        head
    }
    #[inline(always)]
    fn enlist_plain(&self, claim: Claim, entries: u64, origin: Origin) -> (Frame, Order) {
        let frames = claim.frames();
        let (head, order) = claim.into_raw();
        self.set_identities(
            head.add(Pages::new(1)),
            order.pages().get() - 1,
            Identity::new(Kind::Tail, order),
        );
        self.set_origin(head, origin);
        self.set_references(head, References::of_entries(entries).word());
        self.set_identity(head, Identity::new(Kind::Anon, order));
        self.machine.owned(frames, Owner::User);
        self.count_size(order, SizeEvent::NrAnon);
        (head, order)
    }

    /// Makes folios of one page each of `claim`, with one entry to each, the nth made where
    /// `origin` says. The caller maps them next. Gives the first.
    pub(crate) fn enlist_pages(&self, claim: Claim, origin: impl Fn(u64) -> Origin) -> Frame {
        let frames = claim.frames();
        let (first, order) = claim.into_raw();
        self.folios.split(first, order, Order::BASE).expect("a claim is a block (claim::I1)");
        let pages = frames.pages().get();
        for (nth, frame) in (0..).zip(frames.iter()) {
            self.set_origin(frame, origin(nth));
        }
        self.fill_references(first, pages, References::of_entries(1).word());
        self.set_identities(first, pages, Identity::new(Kind::Anon, Order::BASE));
        self.machine.owned(frames, Owner::User);
        self.count_size_by(Order::BASE, SizeEvent::NrAnon, pages);
        first
    }

    /// Undoes [`enlist`](Self::enlist) for a folio that nothing maps. There is no claim where
    /// somebody else keeps the folio by now, and gives it back with the last reference; nor where
    /// its memory was reported broken.
    pub(crate) fn delist(&self, head: Frame, entries: u64) -> Option<Claim> {
        let identity = self.identity(head);
        let dropped = References::of_entries(entries);
        let last = self.count_down(head, identity, dropped, &mut { dropped })?;
        if last.has(Flag::Poisoned) {
            self.lose_folio(head, last);
            return None;
        }
        Some(self.end_folio(head, last))
    }
    /// A broken folio ends: its memory is kept from all use, for good.
    #[cold]
    fn lose_folio(&self, head: Frame, identity: Identity) {
        self.lose(self.end_folio(head, identity));
    }
    /// The same for the memory of a claim.
    pub(crate) fn lose(&self, claim: Claim) {
        let frames = claim.frames();
        let (head, order) = claim.into_raw();
        let (first, tails) = (head.add(Pages::new(1)), order.pages().get() - 1);
        self.set_identities(first, tails, Identity::new(Kind::Tail, order));
        self.set_references(head, References::NONE.word());
        self.set_identity(head, Identity::new(Kind::Anon, order).with(Flag::Poisoned));
        self.machine.owned(frames, Owner::Reserved);
    }
    /// Takes the memory of an anonymous folio that has no references and can get none: the caller
    /// counted it down, or froze it.
    pub(super) fn end_folio(&self, head: Frame, identity: Identity) -> Claim {
        let order = identity.order();
        assert_eq!(identity.kind(), Kind::Anon, "{head:?} is no folio");
        self.uncount_folio(head, identity);
        let frames = FrameRange::block(head, order);
        self.set_identities(head, frames.pages().get(), Identity::PLAIN);
        self.machine.owned(frames, Owner::Claimed);
        // SAFETY: the folio has no references and can get none, as the caller says.
        unsafe { Claim::from_raw(head, order) }
    }

    /// Makes pages of kernel memory of `claim`, each a block of its own with one reference. The
    /// caller maps them next.
    pub(crate) fn enlist_kernel(&self, claim: Claim) -> FrameRange {
        let frames = claim.frames();
        let (head, order) = claim.into_raw();
        self.folios.split(head, order, Order::BASE).expect("a claim is a block (claim::I1)");
        let pages = frames.pages().get();
        self.fill_references(head, pages, 1);
        self.set_identities(head, pages, Identity::new(Kind::Kernel, Order::BASE));
        self.machine.owned(frames, Owner::Kernel);
        self.count_by(Event::VmallocPages, pages);
        frames
    }
    /// Drops one reference of each of these pages of kernel memory. Pages that nobody else has go
    /// back, neighbours together; broken ones stay as they are.
    pub(crate) fn drop_kernel(&self, frames: FrameRange) {
        let mut start = frames.start();
        let mut gone = 0;
        let page = Identity::new(Kind::Kernel, Order::BASE);
        let one = References::of_entries(1);
        for frame in frames.iter() {
            let last = self.count_down(frame, page, one, &mut { one });
            if last.is_some_and(|last| !last.has(Flag::Poisoned)) {
                gone += 1;
                continue;
            }
            self.release_kernel(start, gone);
            (start, gone) = (frame.add(Pages::new(1)), 0);
        }
        self.release_kernel(start, gone);
    }
    /// Gives back `count` pages from `first` on, the last reference of each of which was dropped.
    fn release_kernel(&self, first: Frame, count: u64) {
        let Some(frames) = FrameRange::new(first, Pages::new(count)).filter(|_| count > 0) else {
            return;
        };
        self.uncount_by(Event::VmallocPages, count);
        self.set_identities(first, count, Identity::PLAIN);
        self.machine.owned(frames, Owner::Free);
        let me = self.machine.me();
        for frame in frames.iter() {
            if let Err(misuse) = self.folios.free(me, frame, Order::BASE) {
                panic!("a page of kernel memory is a block of its own (vmap::V5): {misuse}");
            }
        }
    }

    /// A folio ends: it is counted no more.
    pub(super) fn uncount_folio(&self, head: Frame, identity: Identity) {
        if identity.has(Flag::Deferred) {
            self.undefer(head);
        }
        let order = identity.order();
        if identity.has(Flag::PartlyMapped) {
            self.uncount_size(order, SizeEvent::NrAnonPartiallyMapped);
        }
        self.uncount_size(order, SizeEvent::NrAnon);
    }

    /// Hands a huge page to a user, with references for so many entries, in base pages, made at
    /// `origin`, and says whether its memory is sound. The caller maps it next, or drops the
    /// references. The CPU that marks it either does so before, and this one sees the mark, or it
    /// sees the references.
    #[must_use = "what is broken is not mapped"]
    pub(crate) fn enlist_huge(&self, frames: FrameRange, entries: u64, origin: Origin) -> bool {
        let head = frames.start();
        self.set_origin(head, origin);
        self.set_references(head, References::of_entries(entries).word());
        self.machine.owned(frames, Owner::User);
        loop {
            let identity = self.identity(head);
            if self.replace_identity(head, identity, identity) {
                return !identity.has(Flag::Poisoned);
            }
        }
    }
    /// Takes a huge page back from a user before it was mapped, with the references that it was
    /// handed out with. Says whether it is the caller's again: where somebody has pinned it
    /// meanwhile, it goes back to its pool with that pin.
    #[must_use = "it may not be the caller's"]
    pub(crate) fn delist_huge(&self, frames: FrameRange, entries: u64) -> bool {
        let (head, dropped) = (frames.start(), References::of_entries(entries));
        let mut before = dropped;
        let left = loop {
            let left = before.without(dropped).expect("nobody else drops what maps nothing yet");
            match self.replace_references(head, before.word(), left.word()) {
                Ok(_) => break left,
                Err(now) => before = References::from_word(now),
            }
        };
        let is_ours = left == References::NONE;
        if is_ours {
            self.machine.owned(frames, Owner::Claimed);
        }
        is_ours
    }

    /// The head of the folio that holds `frame`, which a user's entry names.
    pub(crate) fn head_of(&self, frame: Frame) -> Frame {
        self.mapped(frame).head(frame)
    }
    /// The head of the folio that holds `frame`, and what that is. The caller keeps it as it is.
    #[inline]
    pub(crate) fn folio_of(&self, frame: Frame) -> (Frame, Identity) {
        let identity = self.identity_of(frame);
        if identity.order() == Order::BASE {
            return (frame, identity);
        }
        let head = identity.head(frame);
        (head, if head == frame { identity } else { self.identity_of(head) })
    }
    /// Goes over the folios of so many frames from `first` on, which users' entries name. `each`
    /// gets the head of each folio, its order, and how many of the frames are in it; of folios of
    /// one page side by side it gets the first, and how many there are.
    pub(crate) fn each_folio(
        &self,
        first: Frame,
        frames: Pages,
        mut each: impl FnMut(Frame, Order, u64),
    ) {
        let (mut frame, end) = (first, first.add(frames));
        while frame < end {
            let identity = self.mapped(frame);
            let (head, order) = (identity.head(frame), identity.order());
            let mut next = head.add(order.pages()).min(end);
            if order == Order::BASE {
                while next < end && self.mapped(next).order() == Order::BASE {
                    next = next.add(Pages::new(1));
                }
            }
            each(head, order, next.get() - frame.get());
            frame = next;
        }
    }
    fn mapped(&self, frame: Frame) -> Identity {
        let identity = self.identity_of(frame);
        match identity.kind() {
            Kind::Anon | Kind::Tail | Kind::Huge | Kind::HugeTail | Kind::Kernel => identity,
            other => panic!("{frame:?} is mapped by a user but is {other:?}"),
        }
    }

    /// Adds `n` references to the folio at `head`; its caller already holds one.
    pub(crate) fn add_references(&self, head: Frame, n: u64) {
        let mut before = 1; // most of the time there is one entry yet
        while let Err(now) = self.replace_references(head, before, before + n) {
            assert!(now > 0, "{head:?} had no owner to share with");
            before = now;
        }
    }

    /// Drops references behind the flush that covers their entries; the last one gives the folio
    /// back.
    pub(crate) fn drop_references(&self, unmapped: Unmapped, _: Flushed) {
        let (head, entries) = unmapped.into_raw();
        self.unreference(head, References::of_entries(entries));
    }
    /// Drops references that were added and that no entry was made with.
    pub(crate) fn drop_unused(&self, head: Frame, n: u64) {
        self.unreference(head, References::of_entries(n));
    }

    /// Drops a reference of each of so many pages from `first` on, which are folios of their own,
    /// as [`drop_references`](Self::drop_references) does. Those that end are given back together.
    pub(crate) fn drop_pages(&self, first: Frame, count: u64, _: Flushed) {
        let mut ended = Ended::new(self);
        let page = Identity::new(Kind::Anon, Order::BASE);
        let one = References::of_entries(1);
        let mut had = one; // pages of a file have an entry each that is the file's
        for frame in (0..count).map(|nth| first.add(Pages::new(nth))) {
            match self.count_down(frame, page, one, &mut had) {
                Some(last) if last == page => ended.push(frame),
                Some(last) => self.end_of(frame, last),
                None => {}
            }
        }
    }

    /// Drops references of either kind. What nobody keeps any more is given back, except broken
    /// memory.
    pub(super) fn unreference(&self, head: Frame, dropped: References) {
        let identity = self.identity_of(head); // it is described as long as we have references
        // What ends is what it is at the end: a walker may have counted a page on its way from one
        // kind to another, and be the last one to let go.
        // Most of the time nobody else has any.
        if let Some(last) = self.count_down(head, identity, dropped, &mut { dropped }) {
            self.end_of(head, last);
        }
    }
    /// Ends what has no references left and can get none.
    fn end_of(&self, head: Frame, last: Identity) {
        match last.kind() {
            // Its pool looks for broken ones.
            Kind::Huge => self.hand_back(head, last.order()),
            Kind::Anon if last.has(Flag::Poisoned) => self.lose_folio(head, last),
            _ if last.has(Flag::Poisoned) => {} // it stays as it is, for good
            Kind::Kernel => self.release_kernel(head, 1),
            _ => self.release(self.end_folio(head, last)),
        }
    }
    /// Drops references. Where nobody has any left it says what the folio is, which the caller
    /// ends. Apart from a freeze nothing else ends the last one: so exactly one caller ends the
    /// folio, and that caller sees the mark of broken memory, which was made before its maker's
    /// reference went (holds::B4). `had` is how many there were, probably, and then how many there
    /// were.
    #[inline(always)]
    fn count_down(
        &self,
        head: Frame,
        identity: Identity,
        dropped: References,
        had: &mut References,
    ) -> Option<Identity> {
        let order = identity.order();
        let huge = identity.kind() == Kind::Huge;
        loop {
            let Some(left) = had.without(dropped) else {
                panic!("{head:?} had {had:?}, {dropped:?} were dropped")
            };
            // It is marked while our references still keep the folio from being given back.
            if !huge && left.entries() > 0 && left.entries() < order.pages().get() {
                self.mark_partly_mapped(head, order);
            }
            match self.replace_references(head, had.word(), left.word()) {
                Ok(_) => return (left == References::NONE).then(|| self.identity_of(head)),
                Err(now) => *had = References::from_word(now),
            }
        }
    }
}
