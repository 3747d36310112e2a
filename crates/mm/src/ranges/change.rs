//! Putting ranges in, taking them out, moving their ends. Gaps are right after each of these (M3).

use super::node::Node;
use super::{InLeaf, Ranged, Ranges, Rank, get, set};
use crate::stock::Lot;
use foliant_machine::Machine;
use foliant_units::Va;

/// Bits of a step of the way that say which child is the next node.
const CHILD_BITS: u32 = 8;

impl<T: Ranged> Ranges<T> {
    /// Notes the way to a leaf, if it is not the one that is known, and says how many nodes are
    /// above it.
    fn find_way(&self, machine: &impl Machine, leaf: &Node<'_, T>) -> usize {
        let above = get(&self.depth) as usize - 1;
        if get(&self.way_to) != leaf.lot.name() {
            let mut node = self.root(machine).expect("there is a leaf");
            for step in &self.way[..above] {
                let child = node.position(Va::new(leaf.start(0))).saturating_sub(1);
                set(step, node.lot.name() << CHILD_BITS | child as u64);
                node = Self::child(machine, &node, child);
            }
            set(&self.way_to, leaf.lot.name());
        }
        above
    }
    /// Step `nth` of the way: a node, and which of its children is the next one.
    fn step<'m>(&self, machine: &'m impl Machine, nth: usize) -> (Node<'m, T>, usize) {
        let word = get(&self.way[nth]);
        let lot = Lot::named(word >> CHILD_BITS).expect("the way was noted");
        (Self::node(machine, lot), (word & ((1 << CHILD_BITS) - 1)) as usize)
    }
    /// Notes what there is below the first `above` nodes of the way, from `node` upwards, as far as
    /// that is new (M3).
    fn sum_up<'m>(&self, machine: &'m impl Machine, mut node: Node<'m, T>, above: usize) {
        for nth in (0..above).rev() {
            let (upper, child) = self.step(machine, nth);
            if !upper.sum_up(child, &node) {
                return;
            }
            node = upper;
        }
    }
    /// Notes that ranges of a leaf came, went or moved.
    fn changed<'m>(&self, machine: &'m impl Machine, leaf: &Node<'m, T>) {
        if get(&self.depth) > 1 {
            self.sum_up(machine, *leaf, self.find_way(machine, leaf));
        }
    }
    /// The leaf of the range that starts at `start`, and its place there.
    fn leaf_of<'m>(&self, machine: &'m impl Machine, start: Va) -> (InLeaf<'m, T>, usize) {
        let found = self.leaf(machine, start).and_then(|leaf| {
            let i = leaf.position.checked_sub(1)?;
            (leaf.node.start(i) == start.get()).then_some((leaf, i))
        });
        found.unwrap_or_else(|| panic!("no range starts at {start}"))
    }
    /// From now on the range before the one at place `i` of the leaf, or before the first one
    /// behind it, or before the end of all, ends at `end`. Says where it ended.
    fn move_end(&self, machine: &impl Machine, leaf: &InLeaf<'_, T>, i: usize, end: u64) -> u64 {
        let moved = |node: &Node<'_, T>, i: usize| {
            let (start, gap) = (node.start(i), node.gap(i));
            node.set_gap(i, start - end);
            start - gap
        };
        if i < leaf.node.len() {
            return moved(&leaf.node, i);
        }
        let Some(behind) = leaf.behind else {
            let old = get(&self.last_end);
            set(&self.last_end, end);
            return old;
        };
        let (next, i) = self.leaf_of(machine, behind);
        let old = moved(&next.node, i);
        self.changed(machine, &next.node);
        old
    }

    /// Puts a range in where nothing lies. Nodes were supplied (M6).
    pub(crate) fn insert(&self, machine: &impl Machine, new: &T) {
        let (start, end) = (new.range().start(), new.range().end());
        if self.root(machine).is_none() {
            self.set_root(Some(self.take_spare(machine, Rank::Leaf).lot), 1);
        }
        let find = || self.leaf(machine, start).expect("there is a root");
        let mut leaf = find();
        if leaf.node.len() == leaf.node.max() {
            self.make_room(machine, start);
            leaf = find();
        }
        let (node, i) = (leaf.node, leaf.position);
        let before = self.move_end(machine, &leaf, i, end.get());
        node.open(i);
        node.set_range(i, new);
        node.set_gap(i, start.get() - before);
        set(&self.count, self.count() + 1);
        self.changed(machine, &node);
        self.note_recent(&leaf);
    }
    /// Splits full nodes on the way to `va`, from the top, so that an entry fits in below.
    fn make_room(&self, machine: &impl Machine, va: Va) {
        self.forget_recent();
        let root = self.root(machine).expect("it is full");
        if root.len() == root.max() {
            let top = self.take_spare(machine, Rank::Inner);
            top.open(0);
            top.set_child(0, &root);
            self.set_root(Some(top.lot), get(&self.depth) + 1);
        }
        let mut node = self.root(machine).expect("just there");
        while node.rank == Rank::Inner {
            let mut child = node.position(va).saturating_sub(1);
            let mut below = Self::child(machine, &node, child);
            if below.len() == below.max() {
                let right = self.take_spare(machine, below.rank);
                below.halve(&right);
                node.open(child + 1);
                node.set_child(child + 1, &right);
                node.sum_up(child, &below);
                if node.start(child + 1) <= va.get() {
                    child += 1;
                    below = right;
                }
            }
            node = below;
        }
    }
    /// Takes the range out that starts at `start`.
    pub(crate) fn remove(&self, machine: &impl Machine, start: Va) {
        let (leaf, i) = self.leaf_of(machine, start);
        let node = leaf.node;
        self.move_end(machine, &leaf, i + 1, start.get() - node.gap(i));
        set(&self.count, self.count() - 1);
        if node.len() == 1 {
            self.unhang(machine, &node);
            return;
        }
        node.close(i);
        self.changed(machine, &node);
        self.note_recent(&leaf);
    }
    /// Takes a leaf with one range out, and the nodes above that have nothing else (M4).
    fn unhang<'m>(&self, machine: &'m impl Machine, leaf: &Node<'m, T>) {
        let (mut node, mut above) = (*leaf, self.find_way(machine, leaf));
        self.forget_recent();
        leaf.close(0);
        while node.len() == 0 {
            self.put_spare(machine, &node);
            let Some(upper) = above.checked_sub(1) else {
                self.set_root(None, 0);
                return;
            };
            let (parent, child) = self.step(machine, upper);
            parent.close(child);
            (node, above) = (parent, upper);
        }
        self.sum_up(machine, node, above);
        while let Some(root) = self.root(machine)
            && root.rank == Rank::Inner
            && root.len() == 1
        {
            self.set_root(root.child(0), get(&self.depth) - 1);
            self.put_spare(machine, &root);
        }
    }
    /// Moves the boundary of two ranges that touch from `from` to `to`; both keep something. Where
    /// they lie in two leaves nothing changes. Says whether it moved.
    pub(crate) fn move_boundary(&self, machine: &impl Machine, from: Va, to: Va) -> bool {
        let (leaf, i) = self.leaf_of(machine, from);
        let Some(before) = i.checked_sub(1) else { return false };
        leaf.node.move_boundary(before, to);
        self.note_recent(&leaf);
        true
    }
    /// Replaces the range that starts where `new` does. Nothing else lies where `new` does.
    pub(crate) fn replace(&self, machine: &impl Machine, new: &T) {
        let (leaf, i) = self.leaf_of(machine, new.range().start());
        leaf.node.set_range(i, new);
        self.move_end(machine, &leaf, i + 1, new.range().end().get());
        self.changed(machine, &leaf.node);
        self.note_recent(&leaf);
    }
}
