//! What a fault does: look the area up, choose an order, prepare a folio, publish it.
//!
//! ```text
//!   area ─▶ entry? ── none ───── read ──▶ shared zeros: 2 MiB where a folio of that size may be, else a page
//!     │        │         └────── write ─▶ orders allowed, largest first:
//!     │        │                          fits the area ▸ range empty ▸ block ▸ charge ─▶ clear ─▶ publish
//!     │        ├── none, of an object ─▶ its folio, or a copy of a page of it (`object`)
//!     │        ├── zeros of 2 MiB, write ▶ a folio in their place; else split into pages of zeros
//!     │        └── read-only ─── write ─▶ exclusive or last owner: make writable; else copy one page
//!     └── none ─▶ nor behind the writer: refused
//! ```
//!
//! **Invariants**
//! - E1. All entries of a folio's range are published under one hold of the table's lock, after
//!   every one of them was seen empty under it and the area was looked up again (space::seen): all
//!   of them or none (TR-A2). A folio in the place of shared zeros of 2 MiB is published behind the
//!   flush that ends their translations: no CPU reads old zeros once the fault is over (TR-A10).
//!   Where another operation has taken the zeros out, that operation's flush ends them: until it is
//!   over a CPU may read what was there before it.
//! - E2. From when a fault begins until it ends or needs something, every order is chosen on one
//!   snapshot of the size switches, which are one word (TR-A9). A fault that begins anew takes a
//!   new one. The switch `defrag` is a word of its own, read once beside the snapshot; the switch
//!   of the process is read once each time that the fault looks at its page.
//! - E3. Where a larger order does not get its block, a table or the charge, that is counted, and
//!   the fault steps down to the next enabled order. Only at order 0 such a failure ends the fault:
//!   as over the limit where a charge was refused, else as out-of-memory. For shared zeros of 2 MiB
//!   a block that is not had is counted too, and a page of zeros takes its place; the leaf needs a
//!   table as the page would, so without one the fault ends, before the block is kept for good.
//!   Zeros that get no folio are split, which needs no memory (space::S4).
//! - E4. The charge and the frames of what was prepared and not published go back exactly once; a
//!   folio that another CPU found and pinned meanwhile goes back with the last reference to it.
//! - E5. The fault looks at the entry once. It acts on that look and on the area that it found
//!   before.
//! - E6. A fault has a page or a block on offer, never both: where a fault that begins anew is in
//!   the other kind of area, the offer for the first kind goes back. When the fault is over nothing
//!   is on offer any more, however it ended.
//! - E7. What a fault prepares may be the very page that another one asks for. So a fault that is
//!   refused memory, the charge or a page of a pool gives back what it has, waits outside of its
//!   section until all that were at work have mapped what they had or given it back, and looks once
//!   more, as the only one of those that were refused (stock::work). What a caller takes that began
//!   later is that caller's. One that was promised a page of a pool takes it from children then,
//!   and looks again until none has it.
//! - E8. Where a range is populated, pages come by naturally aligned blocks of a short go at most:
//!   each is a folio of its own, or shows the zeros, and no larger folio was had for the first.
//!   They are published under one hold, all or none (E1), and the outcome names the block; where a
//!   block is not to be had, or its charge, the page comes alone.
//! - E9. A fault that finds no area is refused only where there is none behind the space's writer
//!   either, which it waits for outside of its section: a move takes its areas out before it may be
//!   refused (space::S13). Where there is one, or one that grows, the fault begins anew.
//!
//! **Locking.** A fault runs inside a reader's section, and clears no more than a short go in it,
//! but for the descriptors of a section of memory that it is the first to claim (zero::Z6). It
//! locks one table at a time: of its space, to hang a new table into it and to write entries; of
//! the descriptor array, where it claims a block without descriptors. Under the lock for the
//! publication it takes one leaf lock, that of the deposits (`Space::deposit`). Areas are read
//! without a lock. What it waits for in the section comes to its end without a section, a space's
//! writer or a preemption point: holders of tables' locks and of leaf locks, a change of the area
//! tree, a stretch that another claimer populates, breaking entries, and shootdowns of its own,
//! which it asks for without a lock (space::seen, `Fault::keep_original`). A folio that is being
//! split or moved takes longer, and so may the flushes that are pending in the space, of which
//! others begin meanwhile: the fault leaves the section, the face relaxes, and the fault begins
//! anew (`Need::Wait`).
//!
//! **Huge pages of a pool** are taken outside of the reader's section, because the pool may have to
//! wait for readers: the fault says what it needs (`Need`), and the face takes a page and runs the
//! fault again with it (`Offers`). The same goes for a block for a large folio where none is free:
//! the face has memory compacted once a look, if the switch `defrag` says so, and the fault goes on
//! with the block or steps down.
//!
//! **Clearing** more than a short go (`zero::is_short`) is the face's task too, with preemption
//! points: a section would hold back every grace period, and a preemption point in it could let
//! another task of this CPU wait for one (`sync::Outside`). The fault takes the block, the face
//! clears it, and the fault begins anew: it looks the area up again, which may be gone.
//!
//! **Not here**: how areas change (`space`), what happens when order 0 fails (the face and its
//! embedder decide).

mod anonymous;
mod copy;
mod defrag;
mod fill;
mod hugetlb;
mod object;
mod policy;
mod tuned;

pub use policy::{Global, Orders, Policy, PolicyError, Size, UseZeroPage, fitting, parse_order};

pub use crate::space::ProcessSwitch;

pub(crate) use defrag::{BlockOffer, Tried};
pub use defrag::{Defrag, OnShortage, UnknownDefrag};
pub(crate) use fill::Filling;
pub use fill::{FillError, FillWith, Unfilled};
pub use hugetlb::HugeContents;
pub(crate) use hugetlb::Offer;
pub(crate) use policy::Switches;
use policy::{DefragSeen, Snapshot};

use crate::frame::Claim;
use crate::pool::Ground;
use crate::space::{Area, Flags, Seen, SeenTables, Space, SpaceId, attrs};
use crate::stock::{Event, Stock, Turn};
use crate::table::{Attrs, Entry, Found, Paging, SoftKind};
use core::cell::Cell;
use foliant_machine::{Faults, Invalidation, Item, Machine, Tables as Went};
use foliant_units::{Bytes, FRAME_BYTES, Frame, Level, Order, Va, VaRange};

/// What an access wants to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Fetch an instruction.
    Execute,
}

/// Areas in which a missing page does not come as anonymous memory does.
const APART: Flags = Flags::KERNEL.with(Flags::OBJECT).with(Flags::USERFAULT);

/// What became of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// A new folio of this order is mapped.
    Mapped(Order),
    /// Shared zeros of this order are mapped, read-only.
    ZeroPage(Order),
    /// A page was copied.
    Copied,
    /// The page had no other owner left and is writable again.
    Reused,
    /// The access was possible already: another CPU was faster.
    Spurious,
    /// The fault is handed to the program, which fills the page and tries again.
    Userfault(Va),
    /// The write is handed to the program, which watches the page, lifts that and tries again.
    UserfaultWrite(Va),
    /// The fault is handed to the program, which lets the page in that the object has, and tries
    /// again.
    UserfaultPresent(Va),
    /// The access is not allowed.
    Refused(Refusal),
    /// No huge page of this size is left: none was reserved, and the pool is empty.
    NoHugePage(Order),
    /// Not even a base page was to be had.
    OutOfMemory,
    /// A base page was to be had, but the space's charge limit is reached.
    OverLimit,
}

/// Why an access is not allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// There is no such space (any more).
    NoSpace,
    /// No area contains the address.
    NoArea(Va),
    /// The area does not grant this right.
    NoRight(Va, Access),
    /// A guard lies there.
    Guard(Va),
    /// The object that is mapped there ends before.
    Beyond(Va),
    /// Kernel memory was mapped there and is not any more: no fault brings it back.
    Kernel(Va),
    /// The memory of the page there was reported broken: it is neither mapped nor copied. Or the
    /// place was poisoned ([`FillWith::Poison`]).
    Broken(Va),
    /// The caller does not admit the area ([`Manager::fault_where`](crate::Manager::fault_where)).
    NotAdmitted(Va),
}

/// What is accessed.
#[derive(Clone, Copy)]
pub(crate) struct Demand<'d> {
    /// The address.
    pub(crate) va: Va,
    pub(crate) access: Access,
    /// Up to where pages may come with the one that is accessed (E8).
    pub(crate) end: Va,
    /// Which areas the caller admits, if not all.
    pub(crate) admits: Option<&'d Admits<'d>>,
    pub(crate) purpose: Purpose,
}

/// What a fault is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// An access.
    Access,
    /// An anchor: the page is to be the space's alone, even if it is only read.
    Anchor,
    /// A collapse: what an object has is mapped as it is, all of a folio, though it may be a
    /// handler's to let in.
    Collapse,
}

/// Says of an area whether a fault may bring a page there.
pub(crate) type Admits<'a> = dyn Fn(&Area) -> bool + 'a;

impl<'d> Demand<'d> {
    /// For a page by itself.
    pub(crate) fn page(va: Va, access: Access) -> Demand<'d> {
        Demand { va, access, end: va, admits: None, purpose: Purpose::Access }
    }
}

/// A fault at work.
pub(crate) struct Fault<'f, 'm, M: Machine, P: Paging> {
    pub(crate) stock: &'f Stock<'m, M, P>,
    pub(crate) space: &'f Space,
    /// Its tables: written to on agreed ground only (space::seen).
    pub(crate) view: SeenTables<'f, 'm, M, P>,
    switches: Snapshot,
    /// The page accessed.
    pub(crate) va: Va,
    pub(crate) access: Access,
    end: Va,
    admits: Option<&'f Admits<'f>>,
    purpose: Purpose,
    /// What is done where no block is free.
    defrag: DefragSeen,
    /// What the face took for this fault.
    pub(crate) offers: &'f Offers,
}

/// What the face took for a fault.
#[derive(Default)]
pub(crate) struct Offers {
    /// A huge page.
    pub(crate) page: Cell<Option<Offer>>,
    /// A block for a folio.
    pub(crate) block: BlockOffer,
    /// The space of the object that a page is asked of ([`Need::OfObject`]).
    pub(crate) object: Cell<Option<SpaceId>>,
    /// Whether an object had none and made one for this fault, which nobody is told of.
    pub(crate) came: Cell<bool>,
    work: Cell<Option<Turn>>,
}

impl Offers {
    /// Counts the fault as at work, before something is taken for it (stock::work::W1).
    pub(crate) fn begin_work<M: Machine, P: Paging>(&self, stock: &Stock<'_, M, P>) {
        let turn = self.work.take().unwrap_or_else(|| stock.begin_work());
        self.work.set(Some(turn));
    }
    /// Keeps a block with any contents for the fault, which has none yet.
    pub(crate) fn keep_block<M: Machine, P: Paging>(&self, stock: &Stock<'_, M, P>, claim: Claim) {
        self.begin_work(stock);
        self.block.keep(claim);
    }
    /// Whether nothing is in hand.
    pub(crate) fn are_none(&self) -> bool {
        let page = self.page.take();
        let has_page = page.is_some();
        self.page.set(page);
        !has_page && self.block.order().is_none()
    }
    /// Whether nothing was taken for the fault, and nothing is left to be done for it.
    pub(crate) fn are_untouched(&self) -> bool {
        let work = self.work.take();
        let took = work.is_some();
        self.work.set(work);
        debug_assert!(took || self.are_none(), "what is taken is counted (stock::work::W1)");
        !took && self.block.tried.get() == Tried::No
    }
    /// Ends the count: all that was in hand is mapped or back.
    pub(crate) fn end_work<M: Machine, P: Paging>(&self, stock: &Stock<'_, M, P>) {
        self.work.take().into_iter().for_each(|turn| stock.end_work(turn));
    }
}

/// How a step of a fault ended.
pub(crate) enum Step {
    /// The fault is over.
    Done(Outcome),
    /// Something changed meanwhile: look again.
    Again,
    /// The face has to do something first, outside of the reader's section.
    Need(Need),
}

/// What a fault needs to go on. The face sees to it and runs the fault again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// A huge page, as an [`Offer`].
    Page(Order, Ground),
    /// A block of this order: memory has to be compacted.
    Block(Order),
    /// The block that is offered is to be cleared, the neighbourhood of this frame last: that takes
    /// too long for a reader's section.
    BlockZeros(Frame),
    /// The same for the huge page that is offered.
    PageZeros(Frame),
    /// The huge page that is offered gets the contents that a handler has for it.
    PageContents,
    /// The huge page that is offered becomes a copy of its original.
    Copy,
    /// Empty tables are in the place of a huge page at this address.
    Clear(Va, Order),
    /// A page of the object in [`Offers::object`], at this address of its space.
    OfObject(Va),
    /// The folio is being split or moved by another CPU, or a flush is pending that the fault has
    /// to see the end of: the face relaxes (`Cpus::relax`), and the fault begins anew.
    Wait,
}

impl<'f, 'm, M: Machine, P: Paging> Fault<'f, 'm, M, P> {
    pub(crate) fn new(
        stock: &'f Stock<'m, M, P>,
        space: &'f Space,
        switches: &Switches,
        Demand { va, access, end, admits, purpose }: Demand<'f>,
        offers: &'f Offers,
    ) -> Self {
        let va = va.align_down(Bytes::new(FRAME_BYTES));
        let (switches, defrag) = (switches.snapshot(), switches.defrag_seen()); // E2
        let view = SeenTables::new(stock, space);
        Fault { stock, space, view, switches, va, access, end, admits, purpose, defrag, offers }
    }

    /// Runs the fault to its end. The caller is in a reader's section.
    #[inline]
    pub(crate) fn run(&self) -> Result<Outcome, Need> {
        loop {
            let Some(area) = self.view.area(self.va) else {
                return Ok(Outcome::Refused(Refusal::NoArea(self.va)));
            };
            if self.admits.is_some_and(|admits| !admits(&area)) {
                return Ok(Outcome::Refused(Refusal::NotAdmitted(self.va)));
            }
            if !grants(area.flags, self.access) {
                return Ok(Outcome::Refused(Refusal::NoRight(self.va, self.access)));
            }
            let found = self.view.walk(self.va); // one look, on which all else is decided
            let step = match area.flags.huge_order() {
                Some(order) => self.hugetlb(&area, order, &found),
                None => self.step(&area, &found),
            };
            match step {
                Step::Done(outcome) => return Ok(outcome),
                Step::Need(need) => return Err(need),
                // What is pending in the space may be as long as another's work is.
                Step::Again if self.view.is_pending() => return Err(Need::Wait),
                Step::Again => self.stock.machine.relax(),
            }
        }
    }

    fn step(&self, area: &Area, found: &Found) -> Step {
        match found.entry {
            Entry::None if area.flags.and(APART) != Flags::NONE => self.apart(area, found),
            Entry::None if self.access == Access::Write || self.purpose == Purpose::Anchor => {
                self.anonymous(area, found)
            }
            Entry::None => self.zero(area, found),
            Entry::Leaf { attrs, .. } if self.lags(attrs) => Step::Need(Need::Wait),
            Entry::Leaf { attrs, .. } if self.is_barred(attrs) => self.write_protected(area, found),
            Entry::Leaf { .. } => {
                self.forget_here(found.level);
                self.stock.count(Event::Spurious);
                Step::Done(Outcome::Spurious)
            }
            Entry::Table(_) => Step::Again,
            Entry::Soft(soft) => match soft.kind {
                SoftKind::Guard => Step::Done(Outcome::Refused(Refusal::Guard(self.va))),
                SoftKind::Marker => self.marked(area, found),
                SoftKind::Migration => Step::Need(Need::Wait),
                SoftKind::Poison => Step::Done(Outcome::Refused(Refusal::Broken(self.va))),
                _ => Step::Again,
            },
        }
    }

    /// A missing page that does not come as anonymous memory does.
    #[inline(never)] // most do
    fn apart(&self, area: &Area, found: &Found) -> Step {
        match area.flags {
            flags if flags.has(Flags::KERNEL) => {
                Step::Done(Outcome::Refused(Refusal::Kernel(self.va)))
            }
            flags if flags.has(Flags::OBJECT) => self.of_object(area, found),
            _ => Step::Done(Outcome::Userfault(self.va)),
        }
    }
    /// A missing page that is watched (space::watch::H3).
    #[inline(never)] // seldom are any
    fn marked(&self, area: &Area, found: &Found) -> Step {
        match self.access {
            // It is watched no more, and the marker is about to go.
            _ if !area.flags.has(Flags::USERFAULT_WRITE) => Step::Need(Need::Wait),
            _ if area.flags.has(Flags::OBJECT) => self.of_object(area, found),
            _ if area.flags.has(Flags::USERFAULT) => Step::Done(Outcome::Userfault(self.va)),
            Access::Write => Step::Done(Outcome::UserfaultWrite(self.va)),
            Access::Read | Access::Execute => self.zero_alone(area, found),
        }
    }

    /// Whether a leaf does not allow the access: the page is to be written to, or to be the space's
    /// alone.
    fn is_barred(&self, attrs: Attrs) -> bool {
        self.access == Access::Write && !attrs.has(Attrs::WRITE)
            || self.purpose == Purpose::Anchor && !attrs.has(Attrs::EXCLUSIVE)
    }
    /// What the entry of a page that becomes the space's alone says, where it had `old`: the right
    /// to write comes with a write, and what is told or noted of writes stays without one.
    fn own_attrs(&self, area: &Area, old: Attrs) -> Attrs {
        let own = attrs(area.flags) | Attrs::EXCLUSIVE | Attrs::TOUCHED;
        match self.access {
            Access::Write => own | Attrs::WRITE | Attrs::SOFT_DIRTY,
            _ => own | old.and(Attrs::SOFT_DIRTY | Attrs::UFFD_WP),
        }
    }
    /// Whether an entry has yet to get the right of its area that the access asks for: the area was
    /// opened again, or what is in it may be fetched now. The entry follows, and the CPU that sees
    /// to it may yield meanwhile.
    fn lags(&self, attrs: Attrs) -> bool {
        !attrs.has(Attrs::USER) || self.access == Access::Execute && !attrs.has(Attrs::EXEC)
    }

    /// Sees that this CPU does not fault again by its translation of the page, which grants less
    /// than the entry by now. More rights need no shootdown: a CPU with the old translation faults
    /// once, and comes here.
    fn forget_here(&self, level: Level) {
        if self.stock.machine.rules().faults == Faults::EndTranslation {
            return; // where there was no fault, as for a populated page, it comes later
        }
        let base = self.va.align_down(level.span());
        let range = VaRange::sized(base, level.span()).expect("a user page");
        let mut here = Invalidation::none(self.space.member.target.scope());
        here.push(Item { range, level, tables: Went::Kept }).expect("there is room for one");
        self.stock.machine.invalidate(&here);
        self.stock.count(Event::LocalOne);
    }

    /// The one entry of `level` for the fault's address, as it was found in `area`.
    fn seen<'a>(&self, area: &'a Area, level: Level, word: u64) -> Seen<'a> {
        Seen::one(area, self.va, level, word)
    }
}

fn grants(flags: Flags, access: Access) -> bool {
    flags.has(match access {
        Access::Read => Flags::READ,
        Access::Write => Flags::WRITE,
        Access::Execute => Flags::EXEC,
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Offers;

    /// A fault that has nothing in hand lets go of its count before it waits.
    #[test]
    fn nothing_is_in_hand_at_first() {
        assert!(Offers::default().are_none());
    }
}
