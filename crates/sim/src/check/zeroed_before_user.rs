//! Nothing of an earlier owner is left in a frame when a user first reaches it.
//!
//! ```text
//!            written by the manager            stated User, then cached for users
//!   Clean ───────────────────────▶ Touched ───────────────────────────────────────▶ Delivered
//!     ▲ cleared whole    ▲ copied over whole                                           │
//!     └──────────────────┴──────── Unclean ◀── given up (also Touched; tables, records) ┘
//! ```
//!
//! Memory of a new machine is `Clean`. Parts of an unclean frame are remembered in lines of 64
//! bytes until they add up, or the frame is given up. What the manager writes itself into a clean
//! frame is its business, until it gives the frame up.

use super::spans::Spans;
use super::{Checker, Event, Report, Seen};
use foliant_machine::Owner;
use foliant_units::{FRAME_BYTES, FRAME_SHIFT, Frame};
use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Clean,
    Touched,
    Delivered,
    Unclean,
}

#[derive(Debug)]
pub(super) struct ZeroedBeforeUser {
    states: Spans<State>,
    owners: Spans<Owner>,
    /// Lines of unclean frames that were cleared or copied over.
    lines: BTreeMap<u64, u64>,
}

impl ZeroedBeforeUser {
    pub(super) fn new() -> ZeroedBeforeUser {
        ZeroedBeforeUser {
            states: Spans::new(State::Clean),
            owners: Spans::new(Owner::Reserved),
            lines: BTreeMap::new(),
        }
    }

    fn turn(&mut self, start: u64, end: u64, which: fn(State) -> bool, into: State) {
        let mut at = start;
        while at < end {
            let piece = self.states.first(at, end);
            if which(piece.value) {
                self.states.set(piece.start, piece.end, into);
            }
            at = piece.end;
        }
    }

    /// Bytes were cleared (`Clean`) or copied over (`Touched`).
    fn covered(&mut self, at: u64, bytes: u64, into: State) {
        let (end, size) = (at + bytes, FRAME_BYTES);
        let first = at.next_multiple_of(size) >> FRAME_SHIFT;
        let last = (end >> FRAME_SHIFT).max(first);
        self.turn(first, last, |s| s != State::Delivered, into);
        // What is left at either end is a part of a frame, perhaps of the same frame at both.
        let head = (at, end.min(at.next_multiple_of(size)));
        let tail = (at.max(end & !(size - 1)), end);
        for (from, to) in [head, tail].into_iter().filter(|(from, to)| from < to) {
            let frame = from >> FRAME_SHIFT;
            if self.states.get(frame) != State::Unclean {
                self.turn(frame, frame + 1, |s| s == State::Clean, into);
                continue;
            }
            let lines = self.lines.entry(frame).or_default();
            for line in from / 64..to / 64 {
                *lines |= 1 << (line % 64);
            }
            if *lines == u64::MAX {
                self.states.set(frame, frame + 1, State::Touched);
            }
        }
    }

    /// Lines that were covered for one owner are not covered for the next.
    fn forget_lines(&mut self, start: u64, end: u64) {
        let some: Vec<u64> = self.lines.range(start..end).map(|(frame, _)| *frame).collect();
        some.iter().for_each(|frame| {
            self.lines.remove(frame);
        });
    }

    fn written(&mut self, at: u64, bytes: u64) {
        let end = ((at + bytes.max(1) - 1) >> FRAME_SHIFT) + 1;
        self.turn(at >> FRAME_SHIFT, end, |s| s == State::Clean, State::Touched);
    }
}

impl Checker for ZeroedBeforeUser {
    fn name(&self) -> &'static str {
        "zeroed_before_user"
    }

    fn event(&mut self, _: &Seen<'_>, event: &Event<'_>, report: &mut Report<'_>) {
        match *event {
            Event::Owned { frames, owner } => {
                let (start, end) = (frames.start().get(), frames.end().get());
                match owner {
                    Owner::User | Owner::Kernel | Owner::Zero => {}
                    Owner::Table | Owner::Records => {
                        self.turn(start, end, |_| true, State::Unclean)
                    }
                    Owner::Free | Owner::Claimed | Owner::Kept | Owner::Reserved => {
                        let left = |s| matches!(s, State::Touched | State::Delivered);
                        self.turn(start, end, left, State::Unclean);
                        // What the kernel wrote at its own addresses was not seen.
                        for piece in self.owners.pieces(start, end) {
                            if piece.value == Owner::Kernel {
                                self.states.set(piece.start, piece.end, State::Unclean);
                            }
                        }
                    }
                }
                if !matches!(owner, Owner::User | Owner::Kernel | Owner::Zero) {
                    self.forget_lines(start, end);
                }
                self.owners.set(start, end, owner);
            }
            Event::Cleared { pa, bytes } => self.covered(pa.get(), bytes, State::Clean),
            Event::Copied { to, bytes, .. } => self.covered(to.get(), bytes, State::Touched),
            Event::Written { pa, bytes } => self.covered(pa.get(), bytes, State::Touched),
            Event::Stored { pa, .. } => self.written(pa.get(), 8),
            Event::Reached { pa, bytes } => self.written(pa.get(), bytes),
            Event::Filled { entry } if !entry.table && entry.rights.user => {
                let start = entry.base.get() >> FRAME_SHIFT;
                let end = start + entry.bytes() / FRAME_BYTES;
                for owned in self.owners.pieces(start, end) {
                    if !matches!(owned.value, Owner::User | Owner::Kernel | Owner::Zero) {
                        continue;
                    }
                    let mut pieces = self.states.pieces(owned.start, owned.end);
                    if let Some(bad) = pieces.find(|p| p.value == State::Unclean) {
                        let (frame, va) = (Frame::new(bad.start), entry.va);
                        report(format!(
                            "users reach {frame:?} at {va:?} with an old owner's bytes"
                        ));
                    }
                    drop(pieces);
                    self.states.set(owned.start, owned.end, State::Delivered);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames 0 to 3 with an old owner's bytes.
    fn unclean() -> ZeroedBeforeUser {
        let mut checker = ZeroedBeforeUser::new();
        checker.states.set(0, 4, State::Unclean);
        checker
    }
    fn states(checker: &ZeroedBeforeUser) -> [State; 4] {
        core::array::from_fn(|frame| checker.states.get(frame as u64))
    }

    #[test]
    fn parts_add_up_to_their_own_frame() {
        use State::{Touched, Unclean};
        let mut checker = unclean();
        checker.covered(0x1000 - 0x40, 0x80, State::Clean); // the end of one, the start of the next
        checker.covered(0x1040, 0x1000 - 0x80, State::Clean);
        assert_eq!(states(&checker), [Unclean; 4], "a line of frame 1 is missing");
        checker.covered(0x2000 - 0x40, 0x40, State::Clean);
        assert_eq!(states(&checker), [Unclean, Touched, Unclean, Unclean]);
        checker.covered(0, 0x1000 - 0x40, State::Clean);
        assert_eq!(states(&checker), [Touched, Touched, Unclean, Unclean]);
    }

    #[test]
    fn a_write_ends_with_its_last_byte() {
        let mut checker = ZeroedBeforeUser::new();
        checker.written(0xfff, 1);
        checker.written(0x2fff, 2);
        checker.written(0x5000, 0);
        let touched: Vec<u64> = checker.states.each(State::Touched).collect();
        assert_eq!(touched, [0, 2, 3, 5]);
    }

    #[test]
    fn only_what_is_given_up_is_forgotten() {
        let mut checker = unclean();
        (0..4).for_each(|frame| checker.covered(frame << 12, 0x800, State::Clean));
        checker.forget_lines(1, 3);
        (0..4).for_each(|frame| checker.covered(frame << 12 | 0x800, 0x800, State::Clean));
        let whole = states(&checker).map(|state| state == State::Touched);
        assert_eq!(whole, [true, false, false, true]);
    }
}
