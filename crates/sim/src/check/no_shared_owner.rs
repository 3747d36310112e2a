//! No frame gets a second owner while the first still has it.
//!
//! ```text
//!   Reserved, Free ─▶ any          Claimed ─▶ any but Claimed
//!   Table, Records, User, Kernel ─▶ Free or Claimed, nothing else
//! ```

use super::spans::Spans;
use super::{Checker, Event, Report, Seen};
use crate::Access;
use foliant_machine::Owner;
use foliant_units::{FRAME_BYTES, FRAME_SHIFT, Frame};

#[derive(Debug)]
pub(super) struct NoSharedOwner {
    owners: Spans<Owner>,
}

const fn legal(old: Owner, new: Owner) -> bool {
    match old {
        // A second statement that frames are free is another checker's business.
        Owner::Reserved | Owner::Free => true,
        Owner::Claimed => !matches!(new, Owner::Claimed),
        Owner::Table | Owner::Records | Owner::Kept | Owner::User | Owner::Kernel | Owner::Zero => {
            matches!(new, Owner::Free | Owner::Claimed)
        }
    }
}

impl NoSharedOwner {
    pub(super) fn new() -> NoSharedOwner {
        NoSharedOwner { owners: Spans::new(Owner::Reserved) }
    }
}

impl Checker for NoSharedOwner {
    fn name(&self) -> &'static str {
        "no_shared_owner"
    }

    fn event(&mut self, _: &Seen<'_>, event: &Event, report: &mut Report<'_>) {
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
                let pieces = self.owners.pieces(start, start + entry.bytes() / FRAME_BYTES);
                let wrong = |owner| {
                    matches!(owner, Owner::Table | Owner::Records | Owner::Claimed | Owner::Kept)
                };
                if let Some(piece) = pieces.iter().find(|piece| wrong(piece.value)) {
                    let (frame, va) = (Frame::new(piece.start), entry.va);
                    report(format!("users reach {frame:?}, which is {:?}, at {va:?}", piece.value));
                }
            }
            Event::Used { pa, access: Access::Write, user: true, .. }
                if self.owners.get(pa.frame().get()) == Owner::Zero =>
            {
                report(format!("a user writes the shared zero page at {pa:?}"));
            }
            Event::Stored { pa, .. } if self.owners.get(pa.frame().get()) == Owner::User => {
                report(format!("page-table word written at {pa:?}, which users own"));
            }
            _ => {}
        }
    }
}
