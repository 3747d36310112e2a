//! Where there is room: a gap of a size, found without a walk along all ranges.

use super::node::Node;
use super::{Ranged, Ranges, Rank, get};
use foliant_machine::Machine;
use foliant_units::{Bytes, Level, Va, VaRange};

/// How many gaps that are large enough are looked at before one with room to spare is looked for.
/// Only a request that is aligned to more than a page finds room that late.
const GAPS_TRIED: u64 = 16;

/// At which end of all addresses a search begins, and at which end of a gap the room lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Edge {
    /// At the lowest address.
    Low,
    /// At the highest.
    High,
}

/// What room is looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GapNeed {
    pub(crate) bytes: Bytes,
    /// Where it may begin: a multiple of this.
    pub(crate) align: Bytes,
    pub(crate) within: VaRange,
    pub(crate) from: Edge,
}

impl GapNeed {
    /// Where the room begins in a gap that has some.
    fn fits(&self, from: u64, to: u64) -> Option<Va> {
        let from = Va::new(from).max(self.within.start());
        let to = Va::new(to).min(self.within.end());
        let start = match self.from {
            Edge::Low => from.align_up(self.align)?,
            Edge::High => Va::new(to.get().checked_sub(self.bytes.get())?).align_down(self.align),
        };
        let end = start.checked_add(self.bytes.get())?;
        (start >= from && end <= to).then_some(start)
    }
}

/// A search: for gaps of so many bytes, and how many more of them it looks at.
pub(super) struct Search<'n> {
    pub(super) need: &'n GapNeed,
    pub(super) bytes: u64,
    pub(super) left: u64,
}

impl<T: Ranged> Ranges<T> {
    /// Room in the gap that is nearest to the end where the search begins, unless the need is
    /// aligned to more than a page: then, where many gaps are large enough and have no multiple of
    /// the alignment at the right place, it is in the nearest gap with room to spare. Where none
    /// has room to spare either, each gap is looked at before none is found.
    pub(crate) fn gap(&self, machine: &impl Machine, need: &GapNeed) -> Option<Va> {
        let bytes = need.bytes.get();
        let roomy = bytes.checked_add(need.align.get() - Level::BASE.span().get())?;
        let look = |bytes, most| {
            let mut search = Search { need, bytes, left: most };
            (self.search(machine, &mut search), search.left)
        };
        match look(bytes, if roomy == bytes { u64::MAX } else { GAPS_TRIED }) {
            (None, 0) => look(roomy, u64::MAX).0.or_else(|| look(bytes, u64::MAX).0),
            (found, _) => found,
        }
    }
    pub(super) fn search(&self, machine: &impl Machine, search: &mut Search<'_>) -> Option<Va> {
        let (root, end) = (self.root(machine), get(&self.last_end));
        let last = |need: &GapNeed| need.fits(end, u64::MAX);
        if search.need.from == Edge::High
            && let Some(found) = last(search.need)
        {
            return Some(found);
        }
        let found = root.and_then(|root| Self::search_below(machine, &root, search));
        let ended = found.is_some() || search.left == 0 || search.need.from == Edge::High;
        if ended { found } else { last(search.need) }
    }
    fn search_below(
        machine: &impl Machine,
        node: &Node<'_, T>,
        search: &mut Search<'_>,
    ) -> Option<Va> {
        // The gap of an entry ends where its range starts, and of a child those between its ranges
        // come after that; the last one begins behind the entry before.
        let within = search.need.within;
        let first = node.position(within.start());
        let first = if node.rank == Rank::Leaf { first } else { first.saturating_sub(1) };
        let mut left = first..node.len().min(node.position(within.end()) + 1);
        loop {
            let fits = |gap: u64| gap >= search.bytes;
            if left.is_empty() {
                return None;
            }
            let mut gaps = node.gaps().skip(left.start).take(left.len());
            let i = match search.need.from {
                Edge::Low => left.start + gaps.position(fits)?,
                Edge::High => left.start + gaps.rposition(fits)?,
            };
            left = if search.need.from == Edge::Low { i + 1..left.end } else { left.start..i };
            let found = if node.rank == Rank::Inner {
                Self::search_below(machine, &Self::child(machine, node, i), search)
            } else {
                search.left -= 1;
                search.need.fits(node.start(i) - node.gap(i), node.start(i))
            };
            if found.is_some() || search.left == 0 {
                return found;
            }
        }
    }
}
