//! The situation of a range: what lies in it and beside it, as one look finds it.
//!
//! ```text
//!   below │······│ above      nothing inside
//!   [ below = above    ]      one part inside, which reaches over both ends
//!   below [part] above        one part inside
//!   below [a] [b]·[c]         several: they are looked up when they are asked for
//! ```
//!
//! A call that changes a range asks the same of it over and over: whether it is empty, what goes,
//! what it touches. Most ranges are a hole, or lie in one part of a vma, so one look answers all of
//! that. It is of a moment: where areas have changed since, the caller looks again.
//!
//! **Not here**: what becomes of a range (`map`, `protect`, `join`).

use crate::pages::{PAGE, range};
use crate::process::Process;
use crate::vma::{Marks, Vma};
use foliant::table::Paging;
use foliant_machine::Machine;
use foliant_units::VaRange;

/// See the module's text.
#[derive(Clone, Copy)]
pub(crate) struct Situation {
    pub(crate) range: VaRange,
    /// The part of a vma that touches the start from below, or reaches over it.
    pub(crate) below: Option<Vma>,
    inside: Inside,
    /// The same at the end.
    pub(crate) above: Option<Vma>,
}

#[derive(Clone, Copy)]
enum Inside {
    Nothing,
    /// All of the range lies in this part.
    One(Vma),
    Several,
}

impl Situation {
    /// The first address.
    pub(crate) fn start(&self) -> u64 {
        self.range.start().get()
    }
    /// The address behind the last.
    pub(crate) fn end(&self) -> u64 {
        self.range.end().get()
    }
    /// Whether nothing lies in the range.
    pub(crate) fn is_free(&self) -> bool {
        matches!(self.inside, Inside::Nothing)
    }
    /// Those parts that touch the range or reach over an end of it.
    pub(crate) fn beside(&self) -> [Option<Vma>; 2] {
        [self.below, self.above]
    }
}

impl<M: Machine, P: Paging> Process<'_, '_, M, P> {
    /// Looks at a range, which is not empty.
    pub(crate) fn situation(&self, start: u64, end: u64) -> Situation {
        let [below, found, above] = self.parts_around(start);
        let (inside, upper) = match found {
            Some(part) if part.start() >= end => (Inside::Nothing, found),
            None => (Inside::Nothing, None),
            Some(part) if part.start() > start || part.end() < end => {
                (Inside::Several, self.parts_from(end).next())
            }
            Some(part) => (Inside::One(part), if part.end() > end { found } else { above }),
        };
        let lower = if found.is_some_and(|part| part.start() < start) { found } else { below };
        Situation {
            range: range(start, end),
            below: lower.filter(|lower| lower.end() >= start),
            inside,
            above: upper.filter(|upper| upper.start() <= end),
        }
    }
    /// The parts that lie in the range, as they are now if there are several, and each whole.
    pub(crate) fn parts_on(&self, situation: &Situation) -> impl Iterator<Item = Vma> {
        let (one, several) = match situation.inside {
            Inside::Nothing => (None, None),
            Inside::One(part) => (Some(part), None),
            Inside::Several => (None, Some(self.parts_in(situation.start(), situation.end()))),
        };
        one.into_iter().chain(several.into_iter().flatten())
    }
    /// Pages of vmas in the range.
    pub(crate) fn pages_on(&self, situation: &Situation) -> u64 {
        self.counted_on(situation, |_| true)
    }
    /// How many of them are promised memory.
    pub(crate) fn promised_on(&self, situation: &Situation) -> u64 {
        self.counted_on(situation, |part| part.tag.marks.has(Marks::ACCOUNTED))
    }
    fn counted_on(&self, situation: &Situation, counts: impl Fn(&Vma) -> bool) -> u64 {
        let (start, end) = (situation.start(), situation.end());
        let inside = |part: Vma| part.end().min(end) - part.start().max(start);
        self.parts_on(situation).filter(counts).map(inside).sum::<u64>() / PAGE
    }
}
