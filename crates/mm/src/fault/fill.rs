//! A page that is put where none is, by the handler that faults of an armed area are told to.
//!
//! ```text
//!   handler ─▶ block ▸ charge ▸ contents written ▸ folio ─▶ lock: still armed, still nothing? ─▶ one store
//!                                                             no ─▶ looked at again, or there already
//! ```
//!
//! The handler is told where a page is missing ([`Outcome::Userfault`]) and answers by a page with
//! contents of its own, or by zeros. It may do so before anybody asks. Which threads wait for the
//! page, and how they go on, is the embedder's.
//!
//! **Invariants**
//! - L1. A page comes only where nothing is, in an area that is armed; a marker of a missing page
//!   that is watched and a poison count as nothing, but not for the program's own zeros. Both are
//!   so under the lock of the table under which its entry is stored (space::seen::W1). So a fault,
//!   another fill, and an operation that changes the area find the page, or keep it from coming
//!   (space::S1); an entry that a split or a move has out of use is something, and is waited for.
//! - L2. The contents are complete before the entry, which is one store, says where they are: a CPU
//!   finds nothing there, or all of them. Nothing was present, so nothing is flushed.
//! - L3. A page that was not published goes back as one with any contents.
//! - L4. Pages come one by one, in the order of their addresses. The first that does not come ends
//!   the fill: those before it stay, none behind it was touched, and it is told how many came.
//! - L5. Where the contents of a huge page end early, it goes back to its pool, and none is mapped.
//! - L6. What the object has and the area does not map is let in as it is: none is made. Where the
//!   object has none the fill ends.
//! - L7. A place is poisoned where nothing is, not even a marker, whatever the object has there. It
//!   is so in that space alone, and says nothing of memory: an access is refused as one to memory
//!   that is broken, whether the area is armed or not, until the handler fills the place or its
//!   contents are dropped, or may be. It moves with the area, and what is not shared has it in a
//!   child too.
//!
//! **Locking.** As a fault (`fault`), with one page in hand.
//!
//! A page of an object comes in two steps: into the object, by the same fill in its space, where
//! nobody asks whether it is armed, and into the area then (fault::object::J6). Without memory for
//! the second it stays in the object, with all that is in it.
//!
//! A huge page of a pool is filled as a whole: the face takes one, as for a fault (`hugetlb`), and
//! has the handler's contents written into it outside of sections, with preemption points. It is
//! published where a fault would have published zeros, with the reservation of that place.
//!
//! **Not here**: replacing pages that are there.

use super::hugetlb::{Brought, Filled, is_place};
use super::{Fault, Need, Outcome, Refusal, Step};
use crate::folio::Class;
use crate::space::{
    Area, Flags, RangeError, Seen, attrs, is_lost, level_of, poisoned_place, watched,
};
use crate::stock::{Event, NoTable};
use crate::table::{Attrs, Entry, Found, Paging, SoftKind};
use crate::zero;
use core::{error, fmt};
use foliant_machine::Machine;
use foliant_units::{Bytes, FRAME_BYTES, Level, Order, Pages, Va};

/// What missing pages become, from an address on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FillWith<'c> {
    /// Pages with these contents.
    Copy(&'c [[u8; FRAME_BYTES as usize]]),
    /// The same, watched from the start ([`Watch`](crate::space::Watch)): in an area that is armed
    /// for writes.
    Watched(&'c [[u8; FRAME_BYTES as usize]]),
    /// So many that show the shared page of zeros, until each is written to.
    Zeros(Pages),
    /// The page that the object has, small or huge ([`Outcome::UserfaultPresent`]): one.
    Present,
    /// The same, watched from the start.
    PresentWatched,
    /// No page: an access is refused as one to broken memory ([`Refusal::Broken`]). One place, of a
    /// small page or of a huge one.
    Poison,
}

impl<'c> FillWith<'c> {
    /// How many pages.
    pub fn pages(self) -> Pages {
        match self {
            FillWith::Copy(contents) | FillWith::Watched(contents) => {
                Pages::new(contents.len() as u64)
            }
            FillWith::Zeros(pages) => pages,
            FillWith::Present | FillWith::PresentWatched | FillWith::Poison => Pages::new(1),
        }
    }
    /// What the nth of them becomes.
    pub(crate) fn page(self, nth: u64) -> Filling<'c> {
        match self {
            FillWith::Copy(contents) => Filling::Copy(&contents[nth as usize]),
            FillWith::Watched(contents) => Filling::Watched(&contents[nth as usize]),
            FillWith::Zeros(_) => Filling::Zeros,
            FillWith::Present => Filling::Present { is_watched: false },
            FillWith::PresentWatched => Filling::Present { is_watched: true },
            FillWith::Poison => Filling::Poison,
        }
    }
}

/// What one missing page becomes.
#[derive(Clone, Copy)]
pub(crate) enum Filling<'c> {
    Copy(&'c [u8; FRAME_BYTES as usize]),
    Watched(&'c [u8; FRAME_BYTES as usize]),
    Zeros,
    /// A huge page of a pool, with contents that the face writes (L5).
    Huge {
        is_watched: bool,
    },
    /// What the object has, of either size (L6).
    Present {
        is_watched: bool,
    },
    /// Nothing (L7).
    Poison,
}

impl Filling<'_> {
    /// Whether the page is watched from the start.
    pub(super) fn is_watched(&self) -> bool {
        match *self {
            Filling::Copy(_) | Filling::Zeros | Filling::Poison => false,
            Filling::Watched(_) => true,
            Filling::Huge { is_watched } | Filling::Present { is_watched } => is_watched,
        }
    }
    /// Whether it is what the object has already.
    pub(crate) fn is_present(&self) -> bool {
        matches!(self, Filling::Present { .. })
    }
    /// Whether the handler may fill the missing page at an address of an area with it.
    pub(crate) fn suits(&self, area: &Area, va: Va) -> bool {
        let is_armed = match self.is_watched() {
            true => area.flags.has(Flags::USERFAULT_WRITE),
            false => area.is_armed(),
        };
        let is_of_size = match (self, area.flags.huge_order()) {
            (Filling::Huge { .. } | Filling::Present { .. } | Filling::Poison, Some(order)) => {
                va.is_aligned(order.bytes())
            }
            (Filling::Huge { .. }, None) | (_, Some(_)) => false,
            (_, None) => true,
        };
        let has_object = area.flags.has(Flags::OBJECT) || !self.is_present();
        is_armed && is_of_size && has_object && !area.flags.has(Flags::KERNEL)
    }
}

/// Why a page was not filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FillError {
    /// The range is refused, or there is no memory for the page.
    Range(RangeError),
    /// No area that is armed, for writes where pages are to be watched, is at this address.
    Unarmed(Va),
    /// The object that is mapped at this address ends before.
    Beyond(Va),
    /// Something is at this address already: a page, or a guard.
    Present(Va),
    /// The contents of the huge page at this address ended early, or the object has no page to let
    /// in there.
    NoContents(Va),
}

impl From<RangeError> for FillError {
    fn from(error: RangeError) -> FillError {
        FillError::Range(error)
    }
}
impl fmt::Display for FillError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FillError::Range(error) => error.fmt(f),
            FillError::Unarmed(va) => {
                write!(f, "missing pages at {va} are nobody's to fill: arm memory there")
            }
            FillError::Beyond(va) => {
                write!(f, "the object that is mapped at {va} ends before: make it longer")
            }
            FillError::Present(va) => {
                write!(f, "something is at {va} already: let its program go on")
            }
            FillError::NoContents(va) => {
                write!(f, "the contents of the page at {va} are not all there: have all of them")
            }
        }
    }
}
impl error::Error for FillError {}

/// A fill that ended early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unfilled {
    /// How much of it was done, from its first address on (L4).
    pub done: Bytes,
    /// Why the page behind that was not filled.
    pub why: FillError,
}

impl fmt::Display for Unfilled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "after {}: {}", self.done, self.why)
    }
}
impl error::Error for Unfilled {}

/// Whether nothing is there, or what counts as nothing (L1).
fn is_vacant(found: &Found) -> bool {
    match found.entry {
        Entry::None => true,
        Entry::Soft(soft) => matches!(soft.kind, SoftKind::Marker | SoftKind::Poison),
        _ => false,
    }
}

/// Whether a place is poisoned that the object does not reach: a huge one, as Linux has it.
fn may_lie_beyond(area: &Area) -> bool {
    area.flags.huge_order().is_some()
}

impl<'f, 'm, M: Machine, P: Paging> Fault<'f, 'm, M, P> {
    /// Fills the page at the fault's address. What is there already makes it
    /// [`Outcome::Spurious`], and an area that is not to be filled is none. `came` says that the
    /// page is in the area's object already, by this fill. The caller is in a reader's section.
    pub(crate) fn fill(&self, with: Filling<'_>, came: bool) -> Result<Outcome, Need> {
        // In an object nobody asks whether it is armed.
        let suits = |area: &Area| self.space.is_object() || with.suits(area, self.va);
        loop {
            let Some(area) = self.view.area(self.va).filter(suits) else {
                return Ok(Outcome::Refused(Refusal::NoArea(self.va)));
            };
            let is_poison = matches!(with, Filling::Poison);
            if self.is_beyond(&area) && !(is_poison && may_lie_beyond(&area)) {
                return Ok(Outcome::Refused(Refusal::Beyond(self.va)));
            }
            let found = self.view.walk(self.va);
            let step = match area.flags.huge_order() {
                Some(order) => self.fill_huge(&area, order, &found, (with, came)),
                None => self.fill_small(&area, &found, with, came),
            };
            match step {
                Step::Done(outcome) => return Ok(outcome),
                Step::Need(need) => return Err(need),
                Step::Again if self.view.is_pending() => return Err(Need::Wait),
                Step::Again => self.stock.machine.relax(),
            }
        }
    }
    fn fill_small(&self, area: &Area, found: &Found, with: Filling<'_>, came: bool) -> Step {
        let is_vacant = is_vacant(found);
        match (found.entry, with) {
            (Entry::Soft(soft), _) if soft.is_waited_for() => Step::Need(Need::Wait),
            (_, Filling::Poison) if is_vacant => self.poison(area, found, Order::BASE),
            (_, Filling::Present { is_watched }) if is_vacant => {
                self.fill_present(area, found, is_watched)
            }
            _ if is_vacant && area.flags.has(Flags::OBJECT.with(Flags::SHARED)) => {
                self.fill_shared(area, found, with, came)
            }
            (Entry::None, Filling::Zeros) if area.flags.has(Flags::OBJECT) => {
                self.zero_alone(area, found)
            }
            // The pages of an object are its own.
            (Entry::None, Filling::Zeros) if !self.space.is_object() => self.zero(area, found),
            (Entry::Soft(_), Filling::Zeros) => Step::Done(Outcome::Spurious), // L1
            _ if is_vacant => self.put(area, found, with),
            (Entry::Table(_), _) => Step::Again,
            _ => Step::Done(Outcome::Spurious),
        }
    }
    fn fill_huge(
        &self,
        area: &Area,
        order: Order,
        found: &Found,
        (with, came): (Filling<'_>, bool),
    ) -> Step {
        // An object's own entries are not watched (space::watch::H1).
        let is_watched = with.is_watched() && !self.space.is_object();
        match found.entry {
            _ if found.level < level_of(order) => Step::Need(Need::Clear(self.va, order)),
            _ if is_lost(found.word) => Step::Done(Outcome::NoHugePage(order)),
            Entry::Soft(soft) if soft.is_waited_for() => Step::Need(Need::Wait),
            Entry::Table(_) => Step::Again,
            _ if !is_place(found) => Step::Done(Outcome::Spurious),
            _ if matches!(with, Filling::Poison) => self.poison(area, found, order),
            _ if with.is_present() => {
                self.huge_of_object(area, order, found, (Brought::ByHandler, is_watched))
            }
            _ if area.flags.has(Flags::OBJECT.with(Flags::SHARED)) => {
                self.fill_huge_shared(area, order, found, (is_watched, came))
            }
            _ => self.publish_huge(area, found, Filled::Contents, is_watched),
        }
    }

    /// Poisons the place that was found, if nothing stands there (L7).
    fn poison(&self, area: &Area, found: &Found, order: Order) -> Step {
        let (level, word) = (level_of(order), poisoned_place(found.word));
        if word == found.word {
            return Step::Done(Outcome::Spurious);
        }
        match self.ensure(level, found) {
            Ok(()) => {}
            Err(NoTable::Record(why)) => return Step::Done(Self::refusal(why)),
            Err(NoTable::Blocked(_)) => return Step::Again,
        }
        let agreed = self.view.agree(&self.seen(area, level, found.word));
        let Some(agreed) = agreed.filter(|_| !self.is_beyond(area) || may_lie_beyond(area)) else {
            return Step::Again;
        };
        agreed.repeat(word);
        Step::Done(Outcome::Mapped(order))
    }

    /// Makes a folio of one page with these contents, and publishes it where nothing was found.
    fn put(&self, area: &Area, found: &Found, with: Filling<'_>) -> Step {
        match self.ensure(Level::BASE, found) {
            Ok(()) => {}
            Err(NoTable::Record(why)) => return Step::Done(Self::refusal(why)),
            // Something is in the way of its table that was not there before.
            Err(NoTable::Blocked(_)) => return Step::Again,
        }
        let me = self.stock.machine.me();
        let Ok(claim) = self.stock.claim(Order::BASE, Class::Movable) else {
            return Step::Done(Outcome::OutOfMemory);
        };
        if self.space.charge(me, 1).is_err() {
            self.stock.put_back(claim);
            return Step::Done(Outcome::OverLimit);
        }
        match with {
            Filling::Copy(contents) | Filling::Watched(contents) => {
                zero::write_page(self.stock.machine, contents, &claim); // L2
                self.stock.count_by(Event::CopiedBytes, FRAME_BYTES);
            }
            Filling::Zeros => self.stock.clear(&claim),
            Filling::Huge { .. } => unreachable!("it is published as a huge page"),
            Filling::Present { .. } => unreachable!("it is the object's"),
            Filling::Poison => unreachable!("no page comes"),
        }
        let origin = self.space.member.origin(self.va, area.offset(self.stock));
        let head = self.stock.enlist(claim, 1, origin);
        let seen = Seen::one(area, self.va, Level::BASE, found.word);
        let Some(agreed) = self.view.agree(&seen).filter(|_| !self.is_beyond(area)) else {
            let claim = self.stock.delist(head, 1);
            claim.into_iter().for_each(|claim| self.stock.release(claim)); // L3
            self.space.uncharge(me, 1);
            self.stock.count(Event::LostRace);
            return Step::Again;
        };
        let writable = if area.flags.has(Flags::WRITE) { Attrs::WRITE } else { Attrs::NONE };
        let attrs = attrs(area.flags) | writable | Attrs::EXCLUSIVE | Attrs::SOFT_DIRTY;
        let attrs =
            if with.is_watched() && !self.space.is_object() { watched(attrs) } else { attrs };
        agreed.map(head, Order::BASE, attrs | Attrs::TOUCHED);
        Step::Done(Outcome::Mapped(Order::BASE))
    }
}
