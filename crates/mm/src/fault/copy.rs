//! A write to a page that is mapped read-only.

use super::{Access, Fault, Outcome, Refusal, Step};
use crate::folio::Class;
use crate::frame::{Flag, Kind, References, Unmapped};
use crate::space::{Agreed, Area, Flags};
use crate::stock::{Event, SizeEvent};
use crate::table::{Attrs, Entry, Found, Paging, Slot};
use crate::zero;
use foliant_machine::{Machine, Replace};
use foliant_units::{FRAME_BYTES, Frame, FrameRange, Level, Order, Pa, VaRange};

impl<'f, 'm, M: Machine, P: Paging> Fault<'f, 'm, M, P> {
    /// Makes the page writable if nobody else has it, else copies it.
    #[inline(never)]
    pub(super) fn write_protected(&self, area: &Area, found: &Found) -> Step {
        let Entry::Leaf { pa, attrs } = found.entry else { return Step::Again };
        match (attrs.has(Attrs::SPECIAL), found.level) {
            _ if self.tells_of_write(area, attrs) => {
                return Step::Done(Outcome::UserfaultWrite(self.va)); // space::S12
            }
            (true, Level::BASE) => {}
            (true, _) if self.access != Access::Write && attrs.has(Attrs::UFFD_WP) => {
                return self.split(area, found); // each of its pages stays watched
            }
            (true, _) => return self.anonymous(area, found),
            // One entry of a group does not become writable alone (space::S10).
            (false, _) if attrs.has(Attrs::GROUPED) => return self.split(area, found),
            (false, level) if !attrs.has(Attrs::EXCLUSIVE) && self.is_shared(pa.frame()) => {
                if level > Level::BASE {
                    return self.split(area, found);
                }
            }
            (false, level) => match self.reuse(area, level, found.word) {
                Some(step) => return step,
                None if level > Level::BASE => return self.split(area, found),
                None => {}
            },
        }
        self.copy(area, found.word, pa.frame(), attrs)
    }
    /// Whether the access is a write that the program wants to be told of.
    pub(super) fn tells_of_write(&self, area: &Area, attrs: Attrs) -> bool {
        self.access == Access::Write
            && attrs.has(Attrs::UFFD_WP)
            && area.flags.has(Flags::USERFAULT_WRITE)
    }
    /// Takes the large leaf that was found apart. What the access needs is in the table, by itself.
    pub(super) fn split(&self, area: &Area, found: &Found) -> Step {
        if let Some(agreed) = self.view.agree(&self.seen(area, found.level, found.word)) {
            agreed.split();
        }
        Step::Again
    }

    /// Whether the folio of `frame`, which was found in an entry of this space, has more entries
    /// than one space can have of it. It may have fewer by now; then a page is copied in vain.
    fn is_shared(&self, frame: Frame) -> bool {
        let identity = self.stock.identity(frame);
        // The frame may be another block's by now; the head of a folio is described with it.
        matches!(identity.kind(), Kind::Anon | Kind::Tail)
            && self.stock.counts(identity.head(frame)).entries() > identity.order().pages().get()
    }

    /// Whether every entry that names the folio is this space's (space::S5). While the table is
    /// locked its entries do not become shared; entries outside of this table count as others'.
    fn is_ours(
        &self,
        area: &Area,
        agreed: &Agreed<'_, 'm, M, P>,
        (pa, attrs): (Pa, Attrs),
    ) -> bool {
        if attrs.has(Attrs::EXCLUSIVE) {
            return true;
        }
        let identity = self.stock.identity(pa.frame());
        let (head, pages) = (identity.head(pa.frame()), identity.order().pages());
        // A page that has left its object is on its way out of here too, if nobody else has it.
        let is_object = area.flags.has(Flags::OBJECT);
        if is_object && self.stock.origin(head).tree != self.space.member.tree() {
            return false;
        }
        let references = self.stock.references(head);
        if identity.kind() == Kind::Huge {
            // A holder's pin takes nothing from the page, and there may be no other one to copy to.
            return References::from_word(references).entries() == pages.get();
        }
        if agreed.level() > Level::BASE {
            return references == pages.get();
        }
        let block = FrameRange::new(head, pages).expect("a folio lies in memory");
        references == agreed.count_beside(pa.frame(), block)
    }

    /// Makes the entry writable where nobody else has the page. Gives `None` where another owner
    /// has it, or may have it, and where the leaf reaches over areas: the others may have other
    /// rights until the change of theirs has split it (space::S9).
    pub(super) fn reuse(&self, area: &Area, level: Level, word: u64) -> Option<Step> {
        let slot = Slot::of(self.va, level);
        let leaf = VaRange::sized(self.va.align_down(level.span()), level.span())?;
        if !area.range.covers(leaf) {
            return None;
        }
        let Entry::Leaf { pa, attrs } = P::decode(word, level, slot) else {
            return Some(Step::Again);
        };
        let wider = Attrs::WRITE | Attrs::EXCLUSIVE | Attrs::TOUCHED | Attrs::SOFT_DIRTY;
        // All that walkers note is in it. Where the area is not armed any more, the bit is about to
        // go (space::S12).
        let written = P::leaf(pa, level, attrs.without(Attrs::UFFD_WP) | wider);
        let owned = |word| match P::decode(word, level, slot) {
            Entry::Leaf { pa, attrs } => P::leaf(pa, level, attrs | Attrs::EXCLUSIVE),
            _ => word,
        };
        let Some(agreed) = self.view.agree(&self.seen(area, level, word)) else {
            return Some(Step::Again);
        };
        match self.stock.machine.rules().replace {
            Replace::InPlace if self.is_ours(area, &agreed, (pa, attrs)) => match self.access {
                Access::Write => agreed.update(|_| written),
                _ => agreed.update(owned),
            },
            // An exclusive entry stays exclusive over a break. A shared page with no other owner
            // left may have one again after the break, so it is copied.
            Replace::BreakBeforeMake if attrs.has(Attrs::EXCLUSIVE) && level == Level::BASE => {
                agreed.replace(|| written);
            }
            _ => return None,
        }
        self.forget_here(level);
        self.stock.count(Event::Reused);
        Some(Step::Done(Outcome::Reused))
    }

    /// Whether the memory of the folio that holds `frame` was reported broken. The caller has found
    /// the frame in an entry, in this section.
    pub(super) fn is_broken(&self, frame: Frame) -> bool {
        let identity = self.stock.identity(frame);
        let head = identity.head(frame);
        let of_head = if head == frame { identity } else { self.stock.identity(head) };
        // A split in between leaves another piece at the head, and the mark there is that piece's.
        of_head.has(Flag::Poisoned) && of_head.order() == identity.order()
    }

    /// Copies one page. The old entry is broken and flushed before the copy begins, so that no
    /// store through a stale translation is lost, and before the new entry is made, so that no CPU
    /// uses both.
    #[inline(never)]
    fn copy(&self, area: &Area, word: u64, from: Frame, old: Attrs) -> Step {
        let me = self.stock.machine.me();
        let is_zero = old.has(Attrs::SPECIAL);
        if !is_zero && self.is_broken(from) {
            // It may be elsewhere since it was found, and sound there.
            return match self.view.walk(self.va).word == word {
                true => Step::Done(Outcome::Refused(Refusal::Broken(self.va))),
                false => Step::Again,
            };
        }
        let Ok(claim) = self.stock.claim(Order::BASE, Class::Movable) else {
            return Step::Done(Outcome::OutOfMemory);
        };
        // The page that goes was charged already, unless it is the zero page.
        if is_zero && self.space.charge(me, 1).is_err() {
            self.stock.put_back(claim);
            return Step::Done(Outcome::OverLimit);
        }
        let Some(agreed) = self.view.agree(&self.seen(area, Level::BASE, word)) else {
            if is_zero {
                self.space.uncharge(me, 1);
            }
            self.stock.put_back(claim);
            return Step::Again;
        };
        let flushed = agreed.replace(|| {
            if is_zero {
                self.stock.clear(&claim);
            } else {
                zero::copy_page(self.stock.machine, from.pa(), &claim);
                self.stock.count_by(Event::CopiedBytes, FRAME_BYTES);
            }
            let head = self.stock.enlist(
                claim,
                1,
                self.space.member.origin(self.va, area.offset(self.stock)),
            );
            P::leaf(head.pa(), Level::BASE, self.own_attrs(area, old))
        });
        if is_zero {
            if self.may_choose(area) {
                self.stock.reads.note_written();
            }
            self.stock.count_size(Order::BASE, SizeEvent::AnonFaultAlloc);
            return Step::Done(Outcome::Mapped(Order::BASE));
        }
        self.stock.drop_references(Unmapped::of(self.stock.head_of(from), 1), flushed);
        self.stock.count(Event::Copied);
        Step::Done(Outcome::Copied)
    }
}
