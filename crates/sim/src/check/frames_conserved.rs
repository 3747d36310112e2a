//! Every frame has exactly one stated owner, and a frame that is stated to be free is not used.
//!
//! Frames start as `Reserved`: the embedder has not lent them yet.

use super::spans::Spans;
use super::{Checker, Event, Report, Seen};
use foliant_machine::Owner;
use foliant_units::{FRAME_SHIFT, Frame, FrameRange, Pa, Pages};

#[derive(Debug)]
pub(super) struct FramesConserved {
    owners: Spans<Owner>,
}

impl FramesConserved {
    pub(super) fn new() -> FramesConserved {
        FramesConserved { owners: Spans::new(Owner::Reserved) }
    }

    fn unused(&self, pa: Pa, bytes: u64, what: &str, report: &mut Report<'_>) {
        let last = pa.get() + bytes.max(1) - 1;
        let mut pieces = self.owners.pieces(pa.get() >> FRAME_SHIFT, (last >> FRAME_SHIFT) + 1);
        if let Some(free) = pieces.find(|piece| piece.value == Owner::Free) {
            let frame = Frame::new(free.start);
            report(format!("{what} at {pa:?} although {frame:?} is stated to be free"));
        }
    }
}

impl Checker for FramesConserved {
    fn name(&self) -> &'static str {
        "frames_conserved"
    }

    fn event(&mut self, seen: &Seen<'_>, event: &Event<'_>, report: &mut Report<'_>) {
        match *event {
            Event::Owned { frames, owner } => {
                if owner != Owner::Reserved && !seen.memory.holds(frames) {
                    return report(format!("{frames:?} stated as {owner:?} is not memory"));
                }
                let (start, end) = (frames.start().get(), frames.end().get());
                if owner == Owner::Free {
                    for piece in self.owners.pieces(start, end) {
                        if piece.value == Owner::Free {
                            let pages = Pages::new(piece.end - piece.start);
                            let twice = FrameRange::new(Frame::new(piece.start), pages);
                            report(format!("freed twice: {:?}", twice.unwrap_or(frames)));
                        }
                    }
                }
                self.owners.set(start, end, owner);
            }
            Event::Stored { pa, .. } => self.unused(pa, 8, "page-table word written", report),
            Event::Loaded { pa } => self.unused(pa, 8, "page-table word read", report),
            Event::Cleared { pa, bytes } => self.unused(pa, bytes, "cleared", report),
            Event::Written { pa, bytes } => self.unused(pa, bytes, "written", report),
            Event::Reached { pa, bytes } => self.unused(pa, bytes, "reached", report),
            Event::Looked { pa, bytes } => self.unused(pa, bytes, "looked into", report),
            Event::Copied { from, to, bytes } => {
                self.unused(from, bytes, "copied from", report);
                self.unused(to, bytes, "copied to", report);
            }
            _ => {}
        }
    }

    fn stated(&self, owner: Owner) -> Option<u64> {
        Some(self.owners.count(owner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_ends_with_its_last_byte() {
        let mut checker = FramesConserved::new();
        checker.owners.set(5, 6, Owner::Free);
        let is_one = |pa: u64, bytes: u64| {
            let mut told = false;
            checker.unused(Pa::new(pa), bytes, "used", &mut |_| told = true);
            told
        };
        assert!(!is_one(0x4fff, 1) && is_one(0x4fff, 2));
        assert!(is_one(0x5fff, 1) && !is_one(0x6000, 1));
        assert!(is_one(0x5000, 0), "where nothing is touched its place counts");
    }
}
