//! The frames behind a guest's space.

use foliant::Manager;
use foliant::space::SpaceId;
use foliant::table::{Entry, Paging};
use foliant_machine::Machine;
use foliant_units::{Frame, Va, VaRange};

/// The frames of the leaves in a range, with their addresses.
pub(crate) fn frames<M: Machine, P: Paging>(
    host: &Manager<'_, M, P>,
    space: SpaceId,
    area: VaRange,
) -> Vec<(Frame, Va)> {
    let read = host.with_leaves(space, area, |leaves| {
        let frame = |entry| match entry {
            Entry::Leaf { pa, .. } => Some(pa.frame()),
            _ => None,
        };
        leaves.filter_map(|leaf| Some((frame(leaf.entry)?, leaf.va))).collect()
    });
    read.unwrap_or_default()
}

/// The frame behind one page, if it is present.
pub(crate) fn frame_of<M: Machine, P: Paging>(
    host: &Manager<'_, M, P>,
    space: SpaceId,
    page: VaRange,
) -> Option<Frame> {
    frames(host, space, page).first().map(|(frame, _)| *frame)
}
