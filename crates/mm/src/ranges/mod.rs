//! An ordered map of address ranges that knows the gaps between them: the areas of a program, and
//! the kernel's ranges.
//!
//! It is a B+tree whose nodes are lots of own frames. The gap of a range lies below it, from the
//! end of the range before to its start; what lies behind the last one is one more.
//!
//! ```text
//!   0      last_end as it began                                                   last_end
//!          │ gap │ range │ gap │ range │range│   gap   │ range │◀─── last gap ───▶
//! ```
//!
//! **Invariants**
//! - M1. Ranges are page-aligned and do not overlap.
//! - M2. Nodes stay nodes of this map, and of their rank, until it is dissolved: an emptied one
//!   goes to the spare list of its rank. The word where an inner node keeps a child's number is
//!   therefore at any time the number of a node, or 0. So a reader that raced with a writer looks
//!   at nodes in any case, and ends; the caller's sequence counter tells it to look again.
//! - M3. Between changes an entry of an inner node says where the first range below it starts, and
//!   how large the largest gap below it is; an entry of a leaf, how large the gap of its range is;
//!   and each node, how large its largest gap is.
//! - M4. No node is empty.
//! - M5. `recent` names the leaf that was changed last, and addresses for which a way from the root
//!   ends there; `way` is the way to the leaf `way_to`. So what is done where the last change was
//!   costs the same however many ranges there are.
//! - M6. A change takes its nodes from the spare ones, which the caller has supplied
//!   ([`lacks`](Ranges::lacks)): it happens, or has not begun.
//!
//! **Locking.** One caller at a time works on a map, as its owner says. Readers without a lock look
//! at its nodes and at some of its words, where the owner has a sequence counter for them:
//! `at_or_before`, `find`, `at_or_after`, `around` and `some_at_or_after` alone.
//!
//! **Not here**: what a range is for, and what becomes of neighbours that are alike.

mod change;
mod gap;
mod node;

#[cfg(all(test, not(loom)))]
mod model;

pub use gap::Edge;
pub(crate) use gap::GapNeed;
pub(crate) use node::Rank;

use crate::frame::Claim;
use crate::stock::{Lot, Lots};
use crate::sync::{AtomicU64, Ordering};
use core::marker::PhantomData;
use foliant_machine::Machine;
use foliant_units::{Va, VaRange};
#[cfg(any(test, feature = "verify"))]
use node::Sum;
use node::{LINK, Node, WORDS};

/// Levels that the deepest map can have: to make more takes more than 12 * 21^9 insertions.
const DEPTH_MAX: usize = 10;

/// What is kept in such a map: a range, and some words.
pub(crate) trait Ranged: Copy {
    /// How many words are kept beside the range.
    const WORDS: usize;
    fn range(&self) -> VaRange;
    fn word(&self, nth: usize) -> u64;
    fn read(range: VaRange, word: impl Fn(usize) -> u64) -> Self;
}

/// A leaf, and a place in it.
struct InLeaf<'m, T> {
    node: Node<'m, T>,
    /// How many ranges of it start at the address that was looked for, or below.
    position: usize,
    /// Where the first range behind the leaf starts.
    behind: Option<Va>,
}

impl<'m, T: Ranged> InLeaf<'m, T> {
    #[inline]
    fn of(node: Node<'m, T>, va: Va, behind: Option<Va>) -> InLeaf<'m, T> {
        InLeaf { node, position: node.position(va), behind }
    }
}

/// See the module's text. All words; valid when cleared, for gaps from address 0 on.
///
/// Key: `[w]` the caller at work; `[s]` changed by it, read under the owner's sequence.
#[repr(C)]
pub(crate) struct Ranges<T> {
    /// The number of the root, or 0.
    root: AtomicU64, // [s]
    spare: [Lots<WORDS, LINK>; 2], // [w] by rank (M2)
    count: AtomicU64,              // [w]
    depth: AtomicU64,              // [w] levels
    last_end: AtomicU64,           // [w] where the last range ends
    /// The leaf that was changed last, or 0, and which addresses belong there.
    recent: [AtomicU64; 3], // [s]
    /// The leaf to which a way is known, or 0, and the way.
    way_to: AtomicU64, // [w]
    way: [AtomicU64; DEPTH_MAX],   // [w]
    kind: PhantomData<fn() -> T>,
}

impl<T> Default for Ranges<T> {
    fn default() -> Ranges<T> {
        Ranges::from(Va::new(0))
    }
}
/// Gaps are counted from an address on.
impl<T> From<Va> for Ranges<T> {
    fn from(floor: Va) -> Ranges<T> {
        Ranges {
            root: AtomicU64::default(),
            spare: Default::default(),
            count: AtomicU64::default(),
            depth: AtomicU64::default(),
            last_end: AtomicU64::new(floor.get()),
            recent: Default::default(),
            way_to: AtomicU64::default(),
            way: Default::default(),
            kind: PhantomData,
        }
    }
}

fn get(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}
fn set(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Relaxed);
}

impl<T: Ranged> Ranges<T> {
    fn node<'m>(machine: &'m impl Machine, lot: Lot<WORDS>) -> Node<'m, T> {
        Node::new(lot, lot.words(machine))
    }
    fn root<'m>(&self, machine: &'m impl Machine) -> Option<Node<'m, T>> {
        Some(Self::node(machine, Lot::named(self.root.load(Ordering::Acquire))?))
    }
    fn set_root(&self, root: Option<Lot<WORDS>>, depth: u64) {
        self.root.store(root.map_or(0, Lot::name), Ordering::Release);
        set(&self.depth, depth);
    }
    /// A child, as a caller that excludes writers sees it.
    fn child<'m>(machine: &'m impl Machine, node: &Node<'m, T>, i: usize) -> Node<'m, T> {
        Self::node(machine, node.child(i).expect("only readers race with the writer"))
    }

    /// The leaf where a range that starts at `va` belongs.
    #[inline]
    fn leaf<'m>(&self, machine: &'m impl Machine, va: Va) -> Option<InLeaf<'m, T>> {
        let recent = self.recent[0].load(Ordering::Acquire); // as for a child (M2)
        let [from, to] = [1, 2].map(|n| get(&self.recent[n]));
        if let Some(lot) = Lot::named(recent)
            && (from..to).contains(&va.get())
        {
            let behind = Some(Va::new(to)).filter(|_| to < u64::MAX);
            return Some(InLeaf::of(Node::leaf(lot, lot.words(machine)), va, behind));
        }
        self.descend(machine, va)
    }
    /// The same from the root.
    #[inline(never)]
    fn descend<'m>(&self, machine: &'m impl Machine, va: Va) -> Option<InLeaf<'m, T>> {
        let (mut node, mut behind) = (self.root(machine)?, None);
        for _ in 0..DEPTH_MAX {
            if node.rank == Rank::Leaf {
                return Some(InLeaf::of(node, va, behind));
            }
            let child = node.position(va).saturating_sub(1);
            if child + 1 < node.len() {
                behind = Some(Va::new(node.start(child + 1)));
            }
            node = Self::node(machine, node.child(child)?);
        }
        None
    }
    /// Notes the leaf that was changed (M5).
    fn note_recent(&self, leaf: &InLeaf<'_, T>) {
        let (name, to) = (leaf.node.lot.name(), leaf.behind.map_or(u64::MAX, Va::get));
        let words = [name, leaf.node.start(0), to];
        self.recent.iter().zip(words).for_each(|(word, value)| set(word, value));
    }
    /// Forgets leaf and way, before inner nodes change.
    fn forget_recent(&self) {
        set(&self.recent[0], 0);
        set(&self.way_to, 0);
    }
    /// The last range that starts at or below `va`.
    #[inline]
    pub(crate) fn at_or_before(&self, machine: &impl Machine, va: Va) -> Option<T> {
        let leaf = self.leaf(machine, va)?;
        leaf.node.range(leaf.position.checked_sub(1)?)
    }
    /// The range that contains `va`.
    #[inline]
    pub(crate) fn find(&self, machine: &impl Machine, va: Va) -> Option<T> {
        self.at_or_before(machine, va).filter(|found| found.range().contains(va))
    }
    /// The first range that ends above `va`.
    pub(crate) fn at_or_after(&self, machine: &impl Machine, va: Va) -> Option<T> {
        let InLeaf { node, position, behind } = self.leaf(machine, va)?;
        let before = position.checked_sub(1).and_then(|i| node.range(i));
        match before.filter(|found| found.range().end() > va) {
            Some(found) => Some(found),
            None if position < node.len() => node.range(position),
            None => self.at_or_before(machine, behind?),
        }
    }
    /// The first range that ends above `va`, between the one before it and the one behind it. Where
    /// there is none, the last one of all comes first.
    pub(crate) fn around(&self, machine: &impl Machine, va: Va) -> [Option<T>; 3] {
        let Some(InLeaf { node, position, behind }) = self.leaf(machine, va) else {
            return [None; 3];
        };
        let range = |nth: usize| if nth < node.len() { node.range(nth) } else { None };
        let next_leafs = || self.at_or_before(machine, behind?);
        let before = position.checked_sub(1).and_then(range);
        let is_above = before.is_some_and(|found| found.range().end() > va);
        let nth = position - usize::from(is_above);
        let found = range(nth).or_else(next_leafs);
        let below = match nth.checked_sub(1) {
            Some(nth) => range(nth),
            None => found.and_then(|found| {
                let last = found.range().start().get().checked_sub(1)?;
                self.at_or_before(machine, Va::new(last))
            }),
        };
        let above = match (nth + 1).cmp(&node.len()) {
            core::cmp::Ordering::Less => range(nth + 1),
            core::cmp::Ordering::Equal => next_leafs(),
            core::cmp::Ordering::Greater => {
                found.and_then(|found| self.at_or_after(machine, found.range().end()))
            }
        };
        [below, found, above]
    }
    /// Ranges that lie side by side in a leaf, from the first one that ends above `va` on, as many
    /// as fit; says how many. There are more where one is left behind the last of them.
    pub(crate) fn some_at_or_after(
        &self,
        machine: &impl Machine,
        va: Va,
        into: &mut [Option<T>],
    ) -> usize {
        let Some(InLeaf { node, position, behind }) = self.leaf(machine, va) else { return 0 };
        let before = position.checked_sub(1).and_then(|i| node.range(i));
        let first = position - usize::from(before.is_some_and(|found| found.range().end() > va));
        let mut count = 0;
        for (place, nth) in into.iter_mut().zip(first..node.len()) {
            *place = node.range(nth);
            count += 1;
        }
        match (count, into, behind) {
            (0, [place, ..], Some(behind)) => {
                *place = self.at_or_before(machine, behind);
                usize::from(place.is_some())
            }
            _ => count,
        }
    }
    /// How many ranges there are.
    pub(crate) fn count(&self) -> u64 {
        get(&self.count)
    }

    /// Which node is missing for so many insertions (M6). The caller supplies one and asks again.
    pub(crate) fn lacks(&self, machine: &impl Machine, insertions: u64) -> Option<Rank> {
        let (leaves, inner) = match self.root(machine) {
            None => (1, 0),
            Some(root)
                if root.rank == Rank::Leaf
                    && root.len() as u64 + insertions <= root.max() as u64 =>
            {
                (0, 0)
            }
            // The map may grow by a level on the way, and by no more.
            Some(_) => (insertions, insertions * get(&self.depth)),
        };
        let has = |rank: Rank, count| self.spare[rank as usize].count() >= count;
        let missing = [(Rank::Leaf, leaves), (Rank::Inner, inner)];
        missing.into_iter().find(|(rank, count)| !has(*rank, *count)).map(|(rank, _)| rank)
    }
    /// Whether `insertions` of ranges that start at `va`, or behind it in the same leaf, need no
    /// node.
    pub(crate) fn has_room(&self, machine: &impl Machine, va: Va, insertions: usize) -> bool {
        let leaf = self.leaf(machine, va);
        leaf.is_some_and(|leaf| leaf.node.len() + insertions <= leaf.node.max())
    }
    /// Makes spare nodes of a frame.
    pub(crate) fn supply(&self, machine: &impl Machine, frame: Claim, rank: Rank) {
        self.spare[rank as usize].cut(machine, frame);
    }
    fn take_spare<'m>(&self, machine: &'m impl Machine, rank: Rank) -> Node<'m, T> {
        let lot = self.spare[rank as usize].pop(machine);
        let lot = lot.expect("the change was supplied (ranges::M6)");
        Node::begin(lot, lot.words(machine), rank)
    }
    /// Keeps a node that is in the map no more. Readers that raced with the writer may still look
    /// at it (M2).
    fn put_spare(&self, machine: &impl Machine, node: &Node<'_, T>) {
        self.spare[node.rank as usize].push(machine, node.lot);
    }

    /// How many frames its nodes take, spare ones included.
    #[cfg(feature = "verify")]
    pub(crate) fn count_frames(&self, machine: &impl Machine) -> u64 {
        let spare = self.spare.iter().map(Lots::count).sum::<u64>();
        let nodes = spare + self.root(machine).map_or(0, |root| Self::count_below(machine, &root));
        nodes.div_ceil(Lot::<WORDS>::PER_FRAME)
    }
    #[cfg(feature = "verify")]
    fn count_below(machine: &impl Machine, node: &Node<'_, T>) -> u64 {
        let children = if node.rank == Rank::Leaf { 0 } else { node.len() };
        let below = |i| Self::count_below(machine, &Self::child(machine, node, i));
        1 + (0..children).map(below).sum::<u64>()
    }
    /// Whether order, gaps and counts are what a walk over all ranges gives (M1, M3, M4).
    #[cfg(any(test, feature = "verify"))]
    pub(crate) fn is_sound(&self, machine: &impl Machine, floor: Va) -> bool {
        let (mut end, mut count) = (floor.get(), 0);
        let walked = (&mut end, &mut count);
        let sound = match self.root(machine) {
            Some(root) => Self::recount(machine, &root, get(&self.depth), walked).is_some(),
            None => get(&self.depth) == 0,
        };
        sound && (end, count) == (get(&self.last_end), self.count())
    }
    #[cfg(any(test, feature = "verify"))]
    fn recount(
        machine: &impl Machine,
        node: &Node<'_, T>,
        levels: u64,
        (end, count): (&mut u64, &mut u64),
    ) -> Option<Sum> {
        let is_one = node.len() > 0 && (node.rank == Rank::Leaf) == (levels == 1);
        if !is_one || !node.knows_its_gaps() {
            return None;
        }
        for i in 0..node.len() {
            let counted = match node.rank {
                Rank::Leaf => {
                    let range = node.range(i)?.range();
                    let gap = range.start().get().checked_sub(*end)?;
                    *end = range.end().get();
                    *count += 1;
                    (range.start().get(), gap)
                }
                Rank::Inner => {
                    let child = Self::child(machine, node, i);
                    Self::recount(machine, &child, levels - 1, (&mut *end, &mut *count))?
                }
            };
            if counted != (node.start(i), node.gap(i)) {
                return None;
            }
        }
        Some(node.sum())
    }

    /// Hands out the frames of all nodes. No reader is left.
    pub(crate) fn dissolve(&self, machine: &impl Machine, mut give: impl FnMut(Claim)) {
        if let Some(root) = self.root(machine) {
            self.set_root(None, 0);
            self.forget_recent();
            self.retire(machine, &root);
        }
        self.spare.iter().for_each(|spare| spare.take().into_frames(machine, &mut give));
    }
    fn retire(&self, machine: &impl Machine, node: &Node<'_, T>) {
        if node.rank == Rank::Inner {
            (0..node.len()).for_each(|i| self.retire(machine, &Self::child(machine, node, i)));
        }
        self.put_spare(machine, node);
    }
}
