//! The areas of a space: an ordered tree that faults read without a lock.
//!
//! It is a B+tree whose nodes are frames: two levels hold 21,000 areas. The lower bound of a child
//! in an inner node is where the child began once: areas that came later may lie below the bound of
//! the first child, and after removals the first area of a child may lie above its bound.
//!
//! **Invariants**
//! - A1. Areas are page-aligned, not empty and do not overlap. Between changes, two that touch
//!   differ in flags, tag or offset.
//! - A2. Nodes stay nodes of this tree, and of their rank, until the space ends: an emptied one
//!   goes to the spare list of its rank. The word where an inner node keeps a child's number is
//!   therefore at any time the number of a node, or 0. So a reader that raced with a writer looks
//!   at nodes in any case, and the sequence counter tells it to look again.
//! - A3. No node but the root is empty.
//! - A4. A change takes all nodes that it could need before it begins, so it happens or leaves no
//!   trace.
//!
//! - A5. Between changes the tree has no more areas than it may: a change that would leave more is
//!   refused before it begins.
//!
//! **Locking.** [w] words are used only by the holder of the space's writer lock, or by the call
//! that ends or forks off the space (space, Locking); [s] words are looked at by readers under the
//! sequence; [c] words are constant from the first area on.

use super::area::{Area, AreaLimit, Flags};
use super::node::{LINK, Node, Rank};
use crate::frame::Claim;
use crate::stock::{Charge, NoRecord, OwnFrames, Stock, words};
use crate::sync::{AtomicU64, Edition, Ordering, Sequence};
use crate::table::Paging;
use foliant_machine::{Machine, Owner};
use foliant_units::{Frame, Va, VaRange};

/// Levels that the deepest tree can have: 127 * 170^5 areas.
const DEPTH_MAX: usize = 6;

/// See the module's text. All words; valid when cleared.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Areas {
    sequence: Sequence,
    /// Frame number of the root, or 0.
    root: AtomicU64, // [s]
    spare: [Spares; 2], // [w] by rank (A2)
    count: AtomicU64,   // [w]
    /// One more than the areas that there may be; 0 stands for no limit.
    limit: AtomicU64, // [c]
}

/// The change would leave more areas than there may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TooMany(pub(super) AreaLimit);

/// Spare nodes of one rank.
#[derive(Default)]
#[repr(C)]
struct Spares {
    nodes: OwnFrames<LINK>,
    count: AtomicU64,
}

pub(super) type Path<'m> = [Option<(Node<'m>, usize)>; DEPTH_MAX];

impl Areas {
    pub(super) fn node<'m>(&self, machine: &'m impl Machine, frame: Frame) -> Node<'m> {
        Node::new(frame, words(machine, frame.pa()))
    }
    pub(super) fn root<'m>(&self, machine: &'m impl Machine) -> Option<Node<'m>> {
        match self.root.load(Ordering::Acquire) {
            0 => None,
            frame => Some(self.node(machine, Frame::new(frame))),
        }
    }

    /// The area that contains `va`.
    pub(crate) fn find(&self, machine: &impl Machine, va: Va) -> Option<Area> {
        self.find_edition(machine, va).0
    }
    /// The same, and the edition of the areas in which it was found.
    pub(super) fn find_edition(&self, machine: &impl Machine, va: Va) -> (Option<Area>, Edition) {
        let (before, edition) = self.sequence.read_edition(machine, || self.before(machine, va));
        (before.filter(|area| area.range.contains(va)), edition)
    }
    /// Whether the areas are still those of an edition.
    pub(super) fn are_at(&self, edition: Edition) -> bool {
        self.sequence.is_at(edition)
    }
    /// The first area that ends above `va`.
    pub(crate) fn at_or_after(&self, machine: &impl Machine, va: Va) -> Option<Area> {
        self.sequence.read(machine, || {
            match self.before(machine, va).filter(|area| area.range.contains(va)) {
                Some(area) => Some(area),
                None => self.after(machine, va),
            }
        })
    }
    /// The areas that share an address with `range`, each whole. The caller keeps writers out.
    pub(crate) fn overlapping<'a, M: Machine>(
        &'a self,
        machine: &'a M,
        range: VaRange,
    ) -> impl Iterator<Item = Area> + use<'a, M> {
        let mut from = range.start();
        core::iter::from_fn(move || {
            let area = self.at_or_after(machine, from)?;
            from = area.range.end();
            area.range.overlaps(range).then_some(area)
        })
    }

    /// The last area that starts at or below `va`.
    pub(super) fn before(&self, machine: &impl Machine, va: Va) -> Option<Area> {
        let mut node = self.root(machine)?;
        // Where a lower bound lies below its subtree's first start, the area is in the subtree
        // before.
        let mut left: Option<Node<'_>> = None;
        for _ in 0..DEPTH_MAX {
            let position = node.position(va);
            if node.rank() == Rank::Leaf {
                return match position.checked_sub(1) {
                    Some(i) => node.area(i),
                    None => self.last(machine, left?),
                };
            }
            let child = position.saturating_sub(1);
            if child > 0 {
                left = Some(self.node(machine, node.child(child - 1)?));
            } else if let Some(l) = left {
                left = Some(self.last_child(machine, l)?);
            }
            node = self.node(machine, node.child(child)?);
        }
        None
    }
    fn last_child<'m>(&self, machine: &'m impl Machine, node: Node<'m>) -> Option<Node<'m>> {
        match node.rank() {
            Rank::Leaf => Some(node),
            Rank::Inner => Some(self.node(machine, node.child(node.len().checked_sub(1)?)?)),
        }
    }
    fn last(&self, machine: &impl Machine, node: Node<'_>) -> Option<Area> {
        let mut node = node;
        for _ in 0..DEPTH_MAX {
            let last = node.len().checked_sub(1)?;
            match node.rank() {
                Rank::Leaf => return node.area(last),
                Rank::Inner => node = self.node(machine, node.child(last)?),
            }
        }
        None
    }
    /// The first area that starts above `va`.
    pub(super) fn after(&self, machine: &impl Machine, va: Va) -> Option<Area> {
        let mut node = self.root(machine)?;
        let mut right: Option<Node<'_>> = None;
        for _ in 0..DEPTH_MAX {
            let position = node.position(va);
            if node.rank() == Rank::Leaf {
                if position < node.len() {
                    return node.area(position);
                }
                return self.first(machine, right?);
            }
            let child = position.saturating_sub(1);
            if child + 1 < node.len() {
                right = Some(self.node(machine, node.child(child + 1)?));
            }
            node = self.node(machine, node.child(child)?);
        }
        None
    }
    fn first(&self, machine: &impl Machine, node: Node<'_>) -> Option<Area> {
        let mut node = node;
        for _ in 0..DEPTH_MAX {
            match node.rank() {
                Rank::Leaf => return if node.len() > 0 { node.area(0) } else { None },
                Rank::Inner => node = self.node(machine, node.child(0)?),
            }
        }
        None
    }

    /// Takes the nodes that one change can need, two areas split and one put in (A4).
    pub(crate) fn prepare<M: Machine, P: Paging>(
        &self,
        stock: &Stock<'_, M, P>,
        charge: &Charge,
    ) -> Result<(), NoRecord> {
        self.prepare_for(stock, charge, 3)
    }
    /// Takes the nodes that so many insertions can need; a range cut at both ends counts as two.
    pub(crate) fn prepare_for<M: Machine, P: Paging>(
        &self,
        stock: &Stock<'_, M, P>,
        charge: &Charge,
        insertions: u64,
    ) -> Result<(), NoRecord> {
        // The tree may grow by a level on the way, and by no more.
        let (leaves, inner) = self.needs(stock.machine, insertions);
        for (rank, needed) in [(Rank::Leaf, leaves), (Rank::Inner, inner)] {
            while self.spare[rank as usize].count.load(Ordering::Relaxed) < needed {
                let frame = stock.claim_charged(charge, Owner::Records)?;
                self.put_spare(stock.machine, frame, rank);
            }
        }
        Ok(())
    }
    /// How many leaves and inner nodes so many insertions can need.
    fn needs(&self, machine: &impl Machine, insertions: u64) -> (u64, u64) {
        match self.root(machine) {
            None => return (1, 0),
            Some(root) if root.rank() == Rank::Leaf && root.has_room(insertions as usize) => {
                return (0, 0);
            }
            Some(_) => {}
        }
        let above = self.depth(machine) as u64 + u64::from(insertions > 3);
        (insertions, insertions * above.min(DEPTH_MAX as u64))
    }
    fn depth(&self, machine: &impl Machine) -> usize {
        let mut depth = 0;
        let mut next = self.root(machine);
        while let Some(node) = next {
            depth += 1;
            next = match node.rank() {
                Rank::Leaf => None,
                Rank::Inner => Some(self.child(machine, node, 0)),
            };
        }
        depth
    }
    /// A child, as the writer sees it.
    pub(super) fn child<'m>(
        &self,
        machine: &'m impl Machine,
        node: Node<'m>,
        i: usize,
    ) -> Node<'m> {
        self.node(machine, node.child(i).expect("only readers race with the writer"))
    }
    fn put_spare(&self, machine: &impl Machine, frame: Claim, rank: Rank) {
        let spare = &self.spare[rank as usize];
        spare.nodes.push(machine, frame);
        spare.count.fetch_add(1, Ordering::Relaxed);
    }
    fn take_spare<'m>(&self, machine: &'m impl Machine, rank: Rank) -> Node<'m> {
        let frame = self.pop_spare(machine, rank).expect("the change was prepared (areas::A4)");
        let node = self.node(machine, frame.into_raw().0);
        node.begin(rank);
        node
    }
    fn pop_spare(&self, machine: &impl Machine, rank: Rank) -> Option<Claim> {
        let spare = &self.spare[rank as usize];
        let frame = spare.nodes.pop(machine)?;
        spare.count.fetch_sub(1, Ordering::Relaxed);
        Some(frame)
    }

    /// The path to the leaf where an area that starts at `va` belongs.
    pub(super) fn path<'m>(&self, machine: &'m impl Machine, va: Va) -> (Path<'m>, usize) {
        let mut path: Path<'m> = [None; DEPTH_MAX];
        let mut depth = 0;
        let mut next = self.root(machine);
        while let Some(node) = next {
            let position = node.position(va);
            next = match node.rank() {
                Rank::Leaf => {
                    path[depth] = Some((node, position));
                    None
                }
                Rank::Inner => {
                    let child = position.saturating_sub(1);
                    path[depth] = Some((node, child));
                    Some(self.child(machine, node, child))
                }
            };
            depth += 1;
        }
        (path, depth)
    }

    fn insert(&self, machine: &impl Machine, area: &Area) {
        if self.root(machine).is_none() {
            let leaf = self.take_spare(machine, Rank::Leaf);
            self.root.store(leaf.frame.get(), Ordering::Release);
        }
        self.make_room(machine, area.range.start());
        let (path, depth) = self.path(machine, area.range.start());
        let (leaf, position) = path[depth - 1].expect("a path ends in a leaf");
        leaf.open(position);
        leaf.set_area(position, area);
        self.count.fetch_add(1, Ordering::Relaxed);
    }
    /// Splits full nodes on the way to `va`, from the top, so that an entry fits in below.
    fn make_room(&self, machine: &impl Machine, va: Va) {
        let root = self.root(machine).expect("the caller made a root");
        if root.is_full() {
            let top = self.take_spare(machine, Rank::Inner);
            top.open(0);
            top.set_child(0, root.key(0), root.frame);
            top.set_gap(0, self.largest_gap(machine, root));
            self.root.store(top.frame.get(), Ordering::Release);
        }
        let mut node = self.root(machine).expect("just there");
        while node.rank() == Rank::Inner {
            let mut child = node.position(va).saturating_sub(1);
            let below = self.child(machine, node, child);
            if below.is_full() {
                let right = self.take_spare(machine, below.rank());
                let bound = below.halve(&right);
                node.open(child + 1);
                node.set_child(child + 1, bound, right.frame);
                node.set_gap(child, self.largest_gap(machine, below));
                node.set_gap(child + 1, self.largest_gap(machine, right));
                if bound <= va.get() {
                    child += 1;
                }
            }
            node = self.child(machine, node, child);
        }
    }
    fn remove(&self, machine: &impl Machine, start: Va) {
        let (path, depth) = self.path(machine, start);
        let (leaf, position) = path[depth - 1].expect("a path ends in a leaf");
        assert!(position > 0 && leaf.key(position - 1) == start.get(), "no area starts at {start}");
        leaf.close(position - 1);
        self.count.fetch_sub(1, Ordering::Relaxed);
        for level in (0..depth).rev() {
            let (node, _) = path[level].expect("within the path");
            if node.len() > 0 {
                break;
            }
            if level == 0 {
                self.root.store(0, Ordering::Release);
            } else {
                let (parent, child) = path[level - 1].expect("within the path");
                parent.close(child);
            }
            self.put_spare(machine, node.retire(), node.rank());
        }
        while let Some(root) = self.root(machine)
            && root.rank() == Rank::Inner
            && root.len() == 1
        {
            let only = root.child(0).expect("only readers race with the writer");
            self.root.store(only.get(), Ordering::Release);
            self.put_spare(machine, root.retire(), Rank::Inner);
        }
    }
    fn overwrite(&self, machine: &impl Machine, old_start: Va, area: &Area) {
        let (path, depth) = self.path(machine, old_start);
        let (leaf, position) = path[depth - 1].expect("a path ends in a leaf");
        assert!(leaf.key(position - 1) == old_start.get(), "no area starts at {old_start}");
        leaf.set_area(position - 1, area);
    }

    /// Replaces each area in `range` by what `change` makes of it: an area in the same place with
    /// other properties, or nothing; if it makes nothing of one, it does so of all. Pieces outside
    /// stay. The caller is the only writer and called [`prepare`](Self::prepare) first.
    pub(crate) fn change(
        &self,
        machine: &impl Machine,
        range: VaRange,
        mut change: impl FnMut(Area) -> Option<(Flags, u64)>,
    ) {
        // Each area is changed by itself: a reader waits for one change, not for all of them.
        self.sequence.write(|| {
            self.cut(machine, range.start());
            self.cut(machine, range.end());
        });
        let (mut from, mut removed) = (range.start(), false);
        while let Some(area) = self.raw_at_or_after(machine, from)
            && area.range.overlaps(range)
        {
            from = area.range.end();
            self.sequence.write(|| match change(area) {
                Some((flags, tag)) => {
                    self.overwrite(machine, area.range.start(), &Area { flags, tag, ..area });
                }
                None => {
                    self.remove(machine, area.range.start());
                    removed = true;
                }
            });
        }
        self.join(machine, range);
        if removed {
            self.note_gaps(machine, range);
        }
    }
    /// Puts `area` in where nothing lies. The caller is the only writer and called
    /// [`prepare`](Self::prepare) first, as for [`change`](Self::change).
    pub(crate) fn put(&self, machine: &impl Machine, area: &Area) {
        self.sequence.write(|| self.insert(machine, area));
        self.join(machine, area.range);
        self.note_gaps(machine, area.range);
    }
    pub(super) fn raw_at_or_after(&self, machine: &impl Machine, va: Va) -> Option<Area> {
        match self.before(machine, va).filter(|a| a.range.contains(va)) {
            Some(area) => Some(area),
            None => self.after(machine, va),
        }
    }
    /// Whether `range` begins or ends within an area, so that a change of it needs nodes
    /// ([`prepare`](Self::prepare)).
    pub(super) fn is_cut(&self, machine: &impl Machine, range: VaRange) -> bool {
        let inside = |va| self.find(machine, va).is_some_and(|area| area.range.start() < va);
        inside(range.start()) || inside(range.end())
    }
    /// Makes `va` a boundary.
    fn cut(&self, machine: &impl Machine, va: Va) {
        let Some(area) = self.before(machine, va).filter(|a| a.range.contains(va)) else { return };
        if area.range.start() == va {
            return;
        }
        let piece = |a, b| VaRange::new(a, b).expect("va lies inside");
        let low = Area { range: piece(area.range.start(), va), ..area };
        let high = Area { range: piece(va, area.range.end()), ..area };
        self.overwrite(machine, area.range.start(), &low);
        self.insert(machine, &high);
    }
    /// Joins areas that are alike and touch, from the one before `range` to the one behind it (A1).
    fn join(&self, machine: &impl Machine, range: VaRange) {
        let below = Va::new(range.start().get().saturating_sub(1));
        let Some(mut area) = self.raw_at_or_after(machine, below) else { return };
        while let Some(next) = self.after(machine, area.range.start())
            && next.range.start() <= range.end()
        {
            if area.range.end() == next.range.start() && area.is_like(&next) {
                let whole = VaRange::new(area.range.start(), next.range.end());
                area.range = whole.expect("ranges grow up");
                self.sequence.write(|| {
                    self.remove(machine, next.range.start());
                    self.overwrite(machine, area.range.start(), &area);
                });
            } else {
                area = next;
            }
        }
    }

    /// Sets how many areas there may be. The caller does so before there is one.
    pub(super) fn set_limit(&self, limit: AreaLimit) {
        self.limit.store(limit.0.saturating_add(1), Ordering::Relaxed);
    }
    pub(super) fn limit(&self) -> AreaLimit {
        AreaLimit(self.limit.load(Ordering::Relaxed).wrapping_sub(1))
    }
    /// How many areas there are.
    #[cfg(test)]
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
    /// Refuses a [`change`](Self::change) of `range` and then a [`put`](Self::put) if, with `more`
    /// areas besides, they would leave more areas than there may be (A5). Areas that become one
    /// count once.
    pub(crate) fn admit(
        &self,
        machine: &impl Machine,
        range: VaRange,
        change: impl Fn(Area) -> Option<(Flags, u64)>,
        put: Option<&Area>,
        more: u64,
    ) -> Result<(), TooMany> {
        /// By how much one change and one put raise the count at most: the area around them becomes
        /// three.
        const MOST: u64 = 2;
        let (count, limit) = (self.count.load(Ordering::Relaxed), self.limit().0);
        if count.saturating_add(MOST + more) <= limit {
            return Ok(());
        }
        let (gone, come) = self.pieces(machine, range, change, put);
        if count - gone + come + more <= limit { Ok(()) } else { Err(TooMany(AreaLimit(limit))) }
    }
    /// How many areas touch `range`, and how many there will be in their place.
    fn pieces(
        &self,
        machine: &impl Machine,
        range: VaRange,
        change: impl Fn(Area) -> Option<(Flags, u64)>,
        put: Option<&Area>,
    ) -> (u64, u64) {
        let (mut gone, mut come, mut last) = (0, 0, None::<Area>);
        let mut add = |piece: Area| {
            let joins = last.is_some_and(|last| {
                last.range.end() == piece.range.start() && last.is_like(&piece)
            });
            come += u64::from(!joins);
            last = Some(piece);
        };
        let mut put = put;
        let mut from = Va::new(range.start().get().saturating_sub(1));
        while let Some(area) = self.raw_at_or_after(machine, from)
            && area.range.start() <= range.end()
        {
            from = area.range.end();
            gone += 1;
            let part = |within: Option<VaRange>| {
                let part = area.range.intersect(within?);
                (!part.is_empty()).then_some(Area { range: part, ..area })
            };
            let all = (Va::new(0), area.range.end().max(range.end()));
            part(VaRange::new(all.0, range.start())).into_iter().for_each(&mut add);
            if let Some(inside) = part(Some(range))
                && let Some((flags, tag)) = change(inside)
            {
                add(Area { flags, tag, ..inside });
            }
            if let Some(behind) = part(VaRange::new(range.end(), all.1)) {
                put.take().into_iter().for_each(|new| add(*new));
                add(behind);
            }
        }
        put.into_iter().for_each(|new| add(*new));
        (gone, come)
    }

    /// How many nodes there are, spare ones included.
    #[cfg(feature = "verify")]
    pub(super) fn count_nodes(&self, machine: &impl Machine) -> u64 {
        let spare = self.spare.iter().map(|spare| spare.count.load(Ordering::Relaxed)).sum::<u64>();
        spare + self.root(machine).map_or(0, |root| self.count_below(machine, root))
    }
    #[cfg(feature = "verify")]
    fn count_below(&self, machine: &impl Machine, node: Node<'_>) -> u64 {
        let below = match node.rank() {
            Rank::Leaf => 0,
            Rank::Inner => {
                let children = (0..node.len()).map(|i| self.child(machine, node, i));
                children.map(|child| self.count_below(machine, child)).sum()
            }
        };
        1 + below
    }

    /// Gives all nodes back. No reader is left.
    pub(crate) fn dissolve<M: Machine, P: Paging>(&self, stock: &Stock<'_, M, P>) {
        if let Some(root) = self.root(stock.machine) {
            self.root.store(0, Ordering::Release);
            self.retire(stock.machine, root, 0);
        }
        for rank in [Rank::Leaf, Rank::Inner] {
            while let Some(frame) = self.pop_spare(stock.machine, rank) {
                stock.release(frame);
            }
        }
    }
    fn retire(&self, machine: &impl Machine, node: Node<'_>, depth: usize) {
        assert!(depth < DEPTH_MAX, "the tree is no deeper");
        if node.rank() == Rank::Inner {
            for i in 0..node.len() {
                self.retire(machine, self.child(machine, node, i), depth + 1);
            }
        }
        self.put_spare(machine, node.retire(), node.rank());
    }
}
