//! No frame gets a second owner while the first still has it.
//!
//! ```text
//!   Reserved, Free ─▶ any          Claimed ─▶ any but Claimed
//!   Table, Records, Kept, User, Kernel ─▶ Free or Claimed, nothing else          Zero ─▶ nothing
//! ```
//!
//! Users reach none of the manager's own frames, and nobody writes page-table words into frames
//! that are no tables, nor anything into the zero page.

use super::spans::Spans;
use super::{Checker, Event, Report, Seen};
use crate::Access;
use foliant_machine::Owner;
use foliant_units::{FRAME_BYTES, FRAME_SHIFT, Frame, Pa};

#[derive(Debug)]
pub(super) struct NoSharedOwner {
    owners: Spans<Owner>,
}

const fn legal(old: Owner, new: Owner) -> bool {
    match old {
        // A second statement that frames are free is another checker's business.
        Owner::Reserved | Owner::Free => true,
        Owner::Claimed => !matches!(new, Owner::Claimed),
        Owner::Table | Owner::Records | Owner::Kept | Owner::User | Owner::Kernel => {
            matches!(new, Owner::Free | Owner::Claimed)
        }
        Owner::Zero => false,
    }
}

impl NoSharedOwner {
    pub(super) fn new() -> NoSharedOwner {
        NoSharedOwner { owners: Spans::new(Owner::Reserved) }
    }

    /// Reports a write to the zero page, be it a user's or the kernel's: the page is shared by all.
    fn written(&self, pa: Pa, bytes: u64, report: &mut Report<'_>) {
        let last = pa.get() + bytes.max(1) - 1;
        let mut pieces = self.owners.pieces(pa.get() >> FRAME_SHIFT, (last >> FRAME_SHIFT) + 1);
        if pieces.any(|piece| piece.value == Owner::Zero) {
            report(format!("the shared zero page is written at {pa:?}"));
        }
    }
}

impl Checker for NoSharedOwner {
    fn name(&self) -> &'static str {
        "no_shared_owner"
    }

    fn event(&mut self, _: &Seen<'_>, event: &Event<'_>, report: &mut Report<'_>) {
        match *event {
            Event::Owned { frames, owner } => {
                let (start, end) = (frames.start().get(), frames.end().get());
                for piece in self.owners.pieces(start, end) {
                    if !legal(piece.value, owner) {
                        let frame = Frame::new(piece.start);
                        report(format!(
                            "{frame:?} of {frames:?} is {:?}, now {owner:?}",
                            piece.value
                        ));
                    }
                }
                self.owners.set(start, end, owner);
            }
            Event::Filled { entry } if !entry.table && entry.rights.user => {
                let start = entry.base.get() >> FRAME_SHIFT;
                let mut pieces = self.owners.pieces(start, start + entry.bytes() / FRAME_BYTES);
                let wrong = |owner| {
                    matches!(owner, Owner::Table | Owner::Records | Owner::Claimed | Owner::Kept)
                };
                if let Some(piece) = pieces.find(|piece| wrong(piece.value)) {
                    let (frame, va) = (Frame::new(piece.start), entry.va);
                    report(format!("users reach {frame:?}, which is {:?}, at {va:?}", piece.value));
                }
            }
            Event::Used { pa, access: Access::Write, .. } => self.written(pa, 1, report),
            Event::Cleared { pa, bytes } => self.written(pa, bytes, report),
            Event::Copied { to: pa, bytes, .. } | Event::Written { pa, bytes } => {
                self.written(pa, bytes, report);
            }
            Event::Stored { pa, .. } => {
                let owner = self.owners.get(pa.frame().get());
                if !matches!(owner, Owner::Table | Owner::Claimed | Owner::Reserved | Owner::Free) {
                    report(format!("page-table word written at {pa:?}, which is {owner:?}"));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_ends_with_its_last_byte() {
        let mut checker = NoSharedOwner::new();
        checker.owners.set(5, 6, Owner::Zero);
        let is_one = |pa: u64, bytes: u64| {
            let mut told = false;
            checker.written(Pa::new(pa), bytes, &mut |_| told = true);
            told
        };
        assert!(!is_one(0x4fff, 1) && is_one(0x4fff, 2));
        assert!(is_one(0x5fff, 1) && !is_one(0x6000, 1));
        assert!(is_one(0x5000, 0), "where nothing is touched its place counts");
    }
}
