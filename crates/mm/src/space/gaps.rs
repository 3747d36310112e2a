//! Where a space has room: gaps in the area tree, found without a walk along all areas.
//!
//! The gap of an area lies before it, from the end of the area before (or from [`FLOOR`]) to its
//! start; behind the last one is one more. A search goes down from the right, past children whose
//! gaps are all too small.
//!
//! **Invariants**
//! - G1. Between changes an inner entry notes the largest gap of the areas below it.
//!
//! **Locking.** All of this is done by the holder of the space's writer lock, or of a child by its
//! fork (space, Locking).

use super::areas::Areas;
use super::node::{Node, Rank};
use foliant_machine::Machine;
use foliant_units::{Bytes, Va, VaRange};

/// Addresses below are never chosen for an area: null pointers shall fault.
pub(super) const FLOOR: Va = Va::new(0x1_0000);

impl Areas {
    /// The highest gap of at least `bytes` that ends at `below` or before. Of a gap that reaches
    /// beyond `below`, the part up to it counts.
    pub(crate) fn highest_gap(
        &self,
        machine: &impl Machine,
        below: Va,
        bytes: Bytes,
    ) -> Option<VaRange> {
        if below <= FLOOR {
            return None;
        }
        let last = self.before(machine, Va::new(below.get() - 1));
        let end = last.map_or(FLOOR, |area| area.range.end().max(FLOOR));
        match VaRange::new(end, below).filter(|gap| !gap.is_empty() && gap.bytes() >= bytes) {
            Some(gap) => Some(gap),
            None => self.gap_upto(machine, self.root(machine)?, last?.range.start(), bytes),
        }
    }
    /// Of the areas below `node` that start at `upto` or before, the highest gap of at least
    /// `bytes`.
    fn gap_upto<'m>(
        &self,
        machine: &'m impl Machine,
        node: Node<'m>,
        upto: Va,
        bytes: Bytes,
    ) -> Option<VaRange> {
        let fits = |gap: &VaRange| gap.bytes() >= bytes && !gap.is_empty();
        let before = node.position(upto);
        match node.rank() {
            Rank::Leaf => {
                let mut areas = (0..before).rev();
                areas.find_map(|i| self.gap_before(machine, node, i).filter(fits))
            }
            // The first child has the areas below its bound, too. The child of `upto` can have none
            // after all: its largest gap may lie above.
            Rank::Inner => (0..before.max(1))
                .rev()
                .filter(|i| node.gap(*i) >= bytes)
                .find_map(|i| self.gap_upto(machine, self.child(machine, node, i), upto, bytes)),
        }
    }
    /// The gap of area `i` of a leaf.
    fn gap_before(&self, machine: &impl Machine, leaf: Node<'_>, i: usize) -> Option<VaRange> {
        let start = Va::new(leaf.key(i));
        let before = match i.checked_sub(1) {
            Some(before) => leaf.area(before),
            None => self.before(machine, Va::new(start.get().checked_sub(1)?)),
        };
        VaRange::new(before.map_or(FLOOR, |area| area.range.end().max(FLOOR)), start)
    }
    /// The largest gap of the areas below `node`.
    pub(super) fn largest_gap(&self, machine: &impl Machine, node: Node<'_>) -> Bytes {
        let gaps = 0..node.len();
        let largest = match node.rank() {
            Rank::Leaf => {
                gaps.filter_map(|i| self.gap_before(machine, node, i)).map(|gap| gap.bytes()).max()
            }
            Rank::Inner => gaps.map(|i| node.gap(i)).max(),
        };
        largest.unwrap_or_default()
    }
    /// Notes gaps anew after areas in `range` came or went: on the way to where it starts, and to
    /// the area behind it.
    pub(super) fn note_gaps(&self, machine: &impl Machine, range: VaRange) {
        if self.root(machine).is_none_or(|root| root.rank() == Rank::Leaf) {
            return; // there is no entry to note them in
        }
        self.note_gaps_on_the_way(machine, range.start());
        if let Some(behind) = self.after(machine, Va::new(range.end().get() - 1)) {
            self.note_gaps_on_the_way(machine, behind.range.start());
        }
    }
    fn note_gaps_on_the_way(&self, machine: &impl Machine, va: Va) {
        let (path, depth) = self.path(machine, va);
        for pair in path[..depth].windows(2).rev() {
            let [Some((above, child)), Some((node, _))] = pair else { continue };
            above.set_gap(*child, self.largest_gap(machine, *node));
        }
    }

    /// Recounts every gap that is noted (G1).
    #[cfg(test)]
    pub(super) fn check_gaps(&self, machine: &impl Machine) {
        if let Some(root) = self.root(machine) {
            self.check_gaps_below(machine, root);
        }
    }
    #[cfg(test)]
    fn check_gaps_below(&self, machine: &impl Machine, node: Node<'_>) -> Bytes {
        if node.rank() == Rank::Leaf {
            return self.largest_gap(machine, node);
        }
        let gaps = (0..node.len()).map(|i| {
            let counted = self.check_gaps_below(machine, self.child(machine, node, i));
            assert_eq!(node.gap(i), counted, "the gap of child {i} (G1)");
            counted
        });
        gaps.max().unwrap_or_default()
    }
}
