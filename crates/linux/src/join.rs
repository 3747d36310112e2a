//! Which neighbours are one vma.
//!
//! An area without a family joins one with its first write:
//!
//! ```text
//!   no family ──first write──▶ the upper neighbour's, else the lower one's, if it differs in
//!                              nothing but rights and has not inherited its own; else a new one
//!   fork: each vma that has one gets a new one in the child, and that is inherited
//! ```
//!
//! Neighbours that are equal in all else are one where they have the same family or none, and
//! where one has a family that it has not inherited and the other none. What was moved is one only
//! with what was moved as far. Of those that map a file, those are one whose offsets follow each
//! other (`view`). Those with different memory policies (`mbind`) are never one.
//!
//! Linux looks for neighbours to join where it changes or makes an area, and there alone. So two
//! may be equal and two all the same: a child's, whose locks are gone; what a refused call has cut;
//! a stack that grew down to another. Their colours differ.
//!
//! A vma of a segment does not go for a neighbour: only a part of one is joined with what lies
//! beside it, or one that is new (`shm`).
//!
//! **Not here**: which properties there are (`vma`).

use crate::errno::Errno;
use crate::pages::range;
use crate::process::Process;
use crate::situation::Situation;
use crate::vma::{Colour, Family, Marks, Moved, Tag, Vma};
use foliant::space::{Advice, Flags};
use foliant::table::Paging;
use foliant_machine::Machine;
use foliant_units::VaRange;

/// Whether two vmas differ in nothing but rights and families.
fn are_akin(a: &Vma, b: &Vma) -> bool {
    let marks = |vma: &Vma| vma.tag.marks.without(Marks::UNREAD.with(Marks::JOINED));
    let flags = |vma: &Vma| vma.flags.without(Flags::RIGHTS);
    let of = |vma: &Vma| (marks(vma), flags(vma), vma.tag.bound, vma.tag.moved);
    of(a) == of(b)
}

/// What the tags of two vmas that are one have in common, beside their families.
fn common(tag: Tag) -> Tag {
    let marks = tag.marks.without(Marks::JOINED);
    Tag { marks, family: Family::default(), colour: Colour::default(), ..tag }
}

impl<M: Machine, P: Paging> Process<'_, '_, M, P> {
    /// Makes one of a part of a vma that was changed and its neighbours where Linux would.
    pub(crate) fn join_part(&mut self, old: &Vma, part: VaRange) {
        // Linux takes no vma of a segment away for a neighbour.
        if old.range != part || !self.is_of_segment(old) {
            self.join(part.start().get(), part.end().get());
        }
    }
    /// Makes one of a range, which is one vma or a part of one, and its neighbours where Linux
    /// would. The lower one comes first, and of a segment it is the only one then. What there is no
    /// memory to join stays two.
    pub(crate) fn join(&mut self, start: u64, end: u64) {
        for seam in [start, end] {
            let [below, above, _] = self.parts_around(seam);
            if let (Some(lower), Some(upper)) = (below, above)
                && lower.end() == seam
                && upper.start() == seam
                && self.would_join(&lower, &upper)
                && self.join_two(seam)
                && self.is_of_segment(&upper)
            {
                break;
            }
        }
    }
    /// Whether Linux makes one of two that touch.
    pub(crate) fn would_join(&self, one: &Vma, other: &Vma) -> bool {
        one.flags == other.flags
            && common(one.tag) == common(other.tag)
            && !one.is_huge()
            && self.families.are_one(one.tag.family, other.tag.family)
    }
    /// Makes one of the two that touch there; whether they are one now.
    fn join_two(&mut self, seam: u64) -> bool {
        let (Some(lower), Some(upper)) = (self.vma(seam - 1), self.vma(seam)) else { return false };
        let family = lower.tag.family.max(upper.tag.family); // one of them may be none
        let both = range(lower.start(), upper.end());
        let marks = lower.tag.marks.joined(upper.tag.marks);
        // Where no memory is left they stay two, which shows in a list of areas alone.
        self.retag(both, lower.flags, Tag { family, marks, ..lower.tag }).is_ok()
    }

    /// The tag with a colour by which a range is told from its neighbours.
    pub(crate) fn coloured(&self, situation: &Situation, flags: Flags, tag: Tag) -> Tag {
        let near = situation.beside();
        let is_apart = |tag: &Tag| {
            let differs = |vma: &Option<Vma>| vma.is_none_or(|v| (v.flags, v.tag) != (flags, *tag));
            near.iter().all(differs)
        };
        let with = |colour| Tag { colour, ..tag };
        if is_apart(&tag) {
            return tag;
        }
        Colour::ALL.map(with).into_iter().find(is_apart).expect("three colours, two neighbours")
    }
    /// Makes two of a vma at an address inside of it: they are equal, and two to Linux.
    pub(crate) fn part_at(&mut self, addr: u64) -> Result<(), Errno> {
        let is_inside = |vma: &Vma| vma.start() < addr && addr.is_multiple_of(vma.page_bytes());
        match self.vma(addr).filter(is_inside) {
            None => Ok(()),
            Some(vma) => self.retag(range(addr, vma.end()), vma.flags, vma.tag),
        }
    }

    /// Gives the vma at `addr` a family, before its first page of its own comes.
    pub(crate) fn adopt(&mut self, addr: u64) -> Result<(), Errno> {
        let Some(vma) = self.vma(addr).filter(|vma| vma.tag.family == Family(0)) else {
            return Ok(());
        };
        let situation = self.situation(vma.start(), vma.end());
        let [lower, upper] = situation.beside();
        let lends = |near: Vma| {
            let family = near.tag.family;
            let suits = family != Family(0) && !self.families.is_inherited(family);
            (suits && are_akin(&near, &vma)).then_some(family)
        };
        let lent = upper.and_then(lends).or_else(|| lower.and_then(lends));
        let family = match lent {
            Some(family) => family,
            None => self.families.found(),
        };
        let tag = self.coloured(&situation, vma.flags, Tag { family, ..vma.tag });
        self.mm.advise(self.space, vma.range, Advice::Tag(tag.word()))?;
        self.recount();
        Ok(())
    }

    /// The tag of what a vma has at an address, once that is at another, where it is new. What was
    /// never written is not moved.
    pub(crate) fn moved(&mut self, vma: &Vma, from: u64, to: u64) -> Result<Tag, Errno> {
        let moved = match self.view(vma).map(|view| (view.file.clone(), view.offset(from))) {
            Some((file, offset)) => self.views.number(&file, offset, to)?,
            None if vma.tag.family == Family(0) => Moved::default(),
            None => self.families.further(vma.tag.moved, from, to),
        };
        Ok(Tag { moved, marks: vma.tag.marks.without(Marks::CLEAN), ..vma.tag })
    }
    /// What a vma of a pool's pages is told from its neighbours by: it is one with none of them.
    pub(crate) fn apart(&mut self, tag: Tag) -> Tag {
        Tag { family: self.families.found(), ..tag }
    }
}
