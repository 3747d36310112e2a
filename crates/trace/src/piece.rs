//! Areas as Linux has them: which neighbours are one.
//!
//! A folio lies within one area, so a prediction is only as good as the edges of areas. Linux joins
//! neighbours that touch where all of these are equal: rights, kind, lasting advice, whether the
//! memory is accounted for, how far it was moved since it was first written, and the *family*, by
//! which the kernel finds who maps a page (its name there: anon_vma). An area joins a family with
//! its first write:
//!
//! ```text
//!   no family ──first write──▶ the upper neighbour's, else the lower one's, if it differs in
//!                              nothing but rights and has not inherited its own; else a new one
//!   fork: each area that has one gets a new one in the child, and that is inherited
//! ```
//!
//! Two areas of one family are joined, two without one as well; one with and one without only where
//! the family is not inherited. That is so since Linux 6.15; up to 6.14 a change of rights or
//! advice did not join a range that has one to a neighbour without.
//!
//! **Invariants**
//! - P1. Neighbours that the manager would take for one area and Linux does not have different
//!   colours, which go into the tag that the manager keeps with an area.

use crate::event::{AreaKind, MapFlags, Prot, advice};
use crate::objects::Attached;

/// What a space knows of an area, by its first address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) end: u64,
    pub(crate) prot: Prot,
    pub(crate) kind: AreaKind,
    pub(crate) flags: MapFlags,
    /// Advice that lasts, as bits by [`LASTING`].
    pub(crate) advised: u8,
    /// Since something was written here; a fork copies the pages of such areas only.
    pub(crate) family: Option<Family>,
    /// How far its pages were moved, in bytes and modulo 2^64.
    pub(crate) moved: u64,
    /// The kernel counts all of it as memory that it has promised.
    pub(crate) accounted: bool,
    /// See P1.
    pub(crate) colour: u8,
    /// What it maps, if it is shared and the recording says what.
    pub(crate) attached: Option<Attached>,
}

/// What the kernel finds the mappings of an area's pages by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Family {
    /// Its number in its space.
    pub(crate) number: u32,
    /// The area came with a fork, so its pages may be other spaces' too.
    pub(crate) inherited: bool,
}

/// Advice that stays with an area: bit, number that sets it, number that clears it.
pub(crate) const LASTING: [(u8, u32, u32); 7] = [
    (DONTFORK, advice::DONTFORK, advice::DOFORK),
    (WIPEONFORK, advice::WIPEONFORK, advice::KEEPONFORK),
    (HUGEPAGE, advice::HUGEPAGE, advice::NOHUGEPAGE),
    (NOHUGEPAGE, advice::NOHUGEPAGE, advice::HUGEPAGE),
    (LOCKED, advice::LOCK, advice::UNLOCK),
    (FILLED, advice::FILLED, advice::UNWATCHED),
    (WATCHED, advice::WATCHED, advice::UNWATCHED),
];
pub(crate) const DONTFORK: u8 = 1;
pub(crate) const WIPEONFORK: u8 = 2;
pub(crate) const HUGEPAGE: u8 = 4;
pub(crate) const NOHUGEPAGE: u8 = 8;
pub(crate) const LOCKED: u8 = 16;
/// The program fills missing pages.
pub(crate) const FILLED: u8 = 32;
/// The program is told of writes to pages that it protects.
pub(crate) const WATCHED: u8 = 64;

impl Piece {
    /// A new area.
    pub(crate) fn new(end: u64, prot: Prot, kind: AreaKind, flags: MapFlags) -> Piece {
        let advised = if flags.contains(MapFlags::LOCKED) { LOCKED } else { 0 };
        let accounted = prot.contains(Prot::WRITE) && !flags.contains(MapFlags::NORESERVE);
        let (family, attached) = (None, None);
        Piece { end, prot, kind, flags, advised, family, moved: 0, accounted, colour: 0, attached }
    }

    /// Gives it other rights.
    pub(crate) fn protect(&mut self, prot: Prot) {
        let write = |prot: Prot| prot.contains(Prot::WRITE);
        if self.prot == prot {
            return;
        }
        if write(prot) {
            self.accounted |= !write(self.prot) && !self.flags.contains(MapFlags::NORESERVE);
        } else {
            // What was never written is given back.
            self.accounted &= self.family.is_some();
        }
        self.prot = prot;
    }

    /// Its kind as far as it parts areas: anonymous memory and the heap are one.
    pub(crate) fn parting_kind(&self) -> AreaKind {
        if self.kind == AreaKind::Heap { AreaKind::Anonymous } else { self.kind }
    }

    /// Whether a fault below it makes it larger. One that maps an object has nothing below.
    pub(crate) fn grows_down(&self) -> bool {
        self.flags.contains(MapFlags::GROWSDOWN) && self.attached.is_none()
    }

    fn parting_flags(&self) -> u8 {
        let part = MapFlags::GROWSDOWN.with(MapFlags::STACK).with(MapFlags::NORESERVE);
        self.flags.bits() & part.bits()
    }

    /// Whether it and the area above it differ in nothing but rights and families.
    fn is_akin(&self, above: &Piece) -> bool {
        let parting = |p: &Piece| (p.parting_kind(), p.advised, p.parting_flags());
        (self.kind.is_anonymous_private() || self.attached.is_some())
            && parting(self) == parting(above)
            && (self.accounted, self.moved) == (above.accounted, above.moved)
            && self.attached == above.attached
    }

    /// Whether Linux has this and the area above it, which it touches, as one.
    pub(crate) fn is_one_with(&self, above: &Piece) -> bool {
        let families = match (self.family, above.family) {
            (None, None) => true,
            (Some(a), Some(b)) => a.number == b.number,
            (Some(one), None) | (None, Some(one)) => !one.inherited,
        };
        families && self.prot == above.prot && self.is_akin(above)
    }

    /// Whether the manager would take the two for one area, were it not for their colours. It may
    /// know less of how far they were moved.
    pub(crate) fn looks_like(&self, above: &Piece) -> bool {
        let seen = |p: &Piece| (p.parting_kind(), p.advised, p.prot);
        let seen_flags = MapFlags::GROWSDOWN.with(MapFlags::STACK).bits();
        self.kind.is_anonymous_private()
            && seen(self) == seen(above)
            && (self.flags.bits() ^ above.flags.bits()) & seen_flags == 0
    }

    /// The family that an area without one shares with this neighbour; `lower` and `upper` are the
    /// two of them.
    pub(crate) fn lends(&self, lower: &Piece, upper: &Piece) -> Option<Family> {
        self.family.filter(|family| !family.inherited && lower.is_akin(upper))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use crate::event::{Access, Fault, Found, Origin, Source, Standing};
    use crate::event::{Area, Event, EventKind, Exec, SpaceId, ThreadId};
    use crate::naive::{Model, Space};
    use foliant_units::{FRAME_BYTES, Va, VaRange};
    use proptest::prelude::*;

    const BASE: u64 = 0x7000_0000_0000;

    fn pages(first: u64, count: u64) -> VaRange {
        let at = |page: u64| Va::new(BASE + page * FRAME_BYTES);
        VaRange::new(at(first), at(first + count)).unwrap()
    }

    fn area(first: u64, count: u64, prot: Prot) -> Area {
        let (range, flags) = (pages(first, count), MapFlags::NONE);
        Area { range, prot, kind: AreaKind::Anonymous, flags }
    }

    /// A program in the making; it has forked once where a test says so.
    struct Program {
        model: Model,
        who: u32,
    }

    impl Program {
        fn new() -> Program {
            let exec = Exec {
                program: "p".into(),
                brk: Va::new(BASE),
                areas: Vec::new(),
                present: Vec::new(),
            };
            let mut program = Program { model: Model::new(&Budget::default()), who: 0 };
            program.tell(EventKind::Exec(exec));
            program
        }
        fn tell(&mut self, kind: EventKind) -> &mut Program {
            let (thread, space) = (ThreadId(self.who), SpaceId(self.who));
            self.model.follow(&Event { time_ns: 0, thread, space, kind }).unwrap();
            self
        }
        fn map(&mut self, first: u64, count: u64) -> &mut Program {
            self.tell(EventKind::Map(area(first, count, Prot::RW)))
        }
        fn protect(&mut self, first: u64, count: u64, prot: Prot) -> &mut Program {
            self.tell(EventKind::Protect { range: pages(first, count), prot })
        }
        fn advise(&mut self, first: u64, count: u64, advice: u32) -> &mut Program {
            self.tell(EventKind::Advise { range: pages(first, count), advice })
        }
        fn remap(&mut self, old: (u64, u64), new: (u64, u64), keep_old: bool) -> &mut Program {
            let (old, new) = (pages(old.0, old.1), pages(new.0, new.1));
            self.tell(EventKind::Remap { old, new, keep_old })
        }
        fn write(&mut self, page: u64) -> &mut Program {
            let (origin, source) = (Origin::User, Source::Hardware);
            let (found, standing) = (Found::Unknown, Standing::Regular);
            let (va, access) = (pages(page, 1).start(), Access::Write);
            self.tell(EventKind::Fault(Fault { va, access, origin, source, found, standing }))
        }
        /// From here on the child tells.
        fn fork(&mut self) -> &mut Program {
            self.tell(EventKind::Fork { child: SpaceId(1), thread: ThreadId(1) });
            self.who = 1;
            self
        }
        fn space(&self) -> &Space {
            &self.model.spaces[&SpaceId(self.who)]
        }
        /// Its areas, as first and last page, the latter not included.
        fn areas(&self) -> Vec<(u64, u64)> {
            let page = |at: u64| (at - BASE) / FRAME_BYTES;
            self.space().areas.iter().map(|(&at, piece)| (page(at), page(piece.end))).collect()
        }
    }

    #[test]
    fn neighbours_are_one_unless_both_were_written_before_they_met() {
        let mut both = Program::new();
        both.map(0, 8).advise(0, 4, advice::DONTFORK).write(0).write(4).advise(
            0,
            4,
            advice::DOFORK,
        );
        assert_eq!(both.areas(), [(0, 4), (4, 8)]);
        both.advise(0, 8, advice::HUGEPAGE);
        assert_eq!(both.areas(), [(0, 4), (4, 8)], "no later change makes them one");
        let mut one = Program::new();
        one.map(0, 8).advise(0, 4, advice::DONTFORK).write(0).advise(0, 4, advice::DOFORK);
        assert_eq!(one.areas(), [(0, 8)]);
        let mut between = Program::new();
        between.map(0, 4).write(0).map(8, 4).write(8).map(4, 4);
        assert_eq!(between.areas(), [(0, 8), (8, 12)], "with the lower one");
    }

    #[test]
    fn a_first_write_shares_a_neighbours_family_where_rights_alone_differ() {
        for (first, second) in [(0, 4), (4, 0)] {
            let mut program = Program::new();
            program.map(0, 8).write(first).protect(first, 4, Prot::READ);
            program.write(second).protect(0, 8, Prot::RW);
            assert_eq!(program.areas(), [(0, 8)], "{first} first");
        }
    }

    #[test]
    fn what_came_with_a_fork_is_not_one_with_what_is_new() {
        let mut child = Program::new();
        child.map(0, 4).write(0).map(8, 4).fork().map(4, 4);
        assert_eq!(child.areas(), [(0, 4), (4, 12)], "the upper one was never written");
        child.write(4).protect(0, 2, Prot::READ).protect(0, 2, Prot::RW);
        assert_eq!(child.areas(), [(0, 4), (4, 12)]);
        let mut guarded = Program::new();
        guarded.map(0, 8).write(0).advise(2, 2, advice::GUARD_INSTALL).fork();
        guarded.advise(2, 2, advice::GUARD_REMOVE);
        assert_eq!(guarded.areas(), [(0, 8)], "a guard parts nothing");
    }

    #[test]
    fn what_was_writable_once_is_accounted_for_if_it_was_written() {
        let read_only = || {
            let mut program = Program::new();
            program.tell(EventKind::Map(area(0, 8, Prot::READ))).protect(2, 2, Prot::RW);
            program
        };
        assert_eq!(read_only().protect(2, 2, Prot::READ).areas(), [(0, 8)]);
        let mut written = read_only();
        written.write(2).protect(2, 2, Prot::READ);
        assert_eq!(written.areas(), [(0, 2), (2, 4), (4, 8)]);
        assert_eq!(written.protect(0, 8, Prot::RW).areas(), [(0, 8)]);
    }

    #[test]
    fn what_was_written_and_moved_is_one_with_what_moved_as_far() {
        let mut program = Program::new();
        program.map(0, 8).write(0).remap((0, 4), (20, 4), false).map(24, 4);
        assert_eq!(program.areas(), [(4, 8), (20, 24), (24, 28)]);
        program.remap((4, 4), (24, 4), false);
        assert_eq!(program.areas(), [(20, 28)], "both of one area, as far apart as before");
        let mut empty = Program::new();
        empty.map(0, 4).remap((0, 4), (20, 4), false).map(24, 4);
        assert_eq!(empty.areas(), [(20, 28)], "where nothing was written, nothing depends on it");
        let mut left = Program::new();
        left.map(0, 4).write(0).remap((0, 4), (20, 4), true).map(4, 4).write(4).write(0);
        assert_eq!(left.areas(), [(0, 8), (20, 24)], "what stays behind is as new");
    }

    /// A call, by numbers: which, on which pages.
    fn call(program: &mut Program, (which, first, count): (u8, u64, u64)) {
        let to = (first + 40, count);
        match which {
            0 | 1 => program.map(first, count),
            2 => program.tell(EventKind::Unmap { range: pages(first, count) }),
            3 => program.protect(first, count, Prot::READ),
            4 => program.protect(first, count, Prot::RW),
            5 => program.advise(first, count, advice::DONTFORK),
            6 => program.advise(first, count, advice::DOFORK),
            7 => program.advise(first, count, advice::GUARD_INSTALL),
            8 => program.advise(first, count, advice::GUARD_REMOVE),
            9 => program.remap((first, count), to, false),
            10 => program.remap(to, (first, count), true),
            _ => program.write(first),
        };
    }

    proptest! {
        /// P1, after every call, and that a colour which a call changes is told.
        #[test]
        fn neighbours_that_are_not_one_are_told_apart(
            calls in prop::collection::vec((0u8..16, 0u64..32, 1u64..8), 1..60),
            fork_at in 0usize..80,
        ) {
            let mut program = Program::new();
            for (n, one) in calls.into_iter().enumerate() {
                if n == fork_at {
                    program.fork();
                }
                call(&mut program, one);
                let areas: Vec<_> = program.space().areas.iter().collect();
                for pair in areas.windows(2) {
                    let [(_, a), (&start, b)] = [pair[0], pair[1]];
                    if a.end != start {
                        continue;
                    }
                    prop_assert!(!a.is_one_with(b), "{:?} {:?}", a, b);
                    if a.looks_like(b) {
                        prop_assert_ne!(a.colour, b.colour, "{:?} {:?}", a, b);
                    }
                }
            }
        }
    }
}
