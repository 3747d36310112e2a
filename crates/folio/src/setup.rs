//! Building the allocator from ranges and lent words, and adding ranges while it is in use.
//!
//! ```text
//!  lent words:  │ up to 15 skipped to reach a line pair │ seats: 16 per CPU │ region │ region │ ... │
//! ```
//!
//! **Invariants**
//! - I1. Ranges handed in together are sorted, and merged where they touch and are of one node,
//!   before any metadata is laid out.
//! - I2. A region is complete before it is published (`regions`): frames that are reserved in it
//!   from the start are reserved before anybody can take of it.
//! - I3. Nothing is written to the memory of a range, or of its records, before the caller has the
//!   right to add it: another call that adds the same range may have put it to use meanwhile. So
//!   the right is a value, [`Newcomer`], and a range that is added is published by that alone. The
//!   ranges of a new allocator (`Folios::new_on`) need none: nobody else has the allocator yet.
//!
//! **Not here**: where the words come from. They must not lie in frames that are still to be
//! allocated: reserve those.

use super::entry::FRAMES;
use super::free::within_block;
use super::region::{FRAMES_MAX, Region};
use super::regions::{Adding, NotAdded, REGIONS_MAX, Regions};
use super::{CpuCount, Folios, Known, NODES_MAX, RegionError, Word, WordCount, seats};
use foliant_units::{CPUS_MAX, Frame, FrameRange, Node, Pages};

/// Bytes to which the first word used is aligned: lines are fetched in pairs.
const ALIGN: usize = 128;
/// Words that reaching that alignment may cost.
const SLACK: usize = ALIGN / 8 - 1;

/// Ranges with their nodes, sorted by start, none empty, none touching another of its node.
struct Sorted {
    ranges: [(FrameRange, Node); REGIONS_MAX],
    count: usize,
}

impl Sorted {
    fn new(ranges: &[FrameRange], nodes: &[Node]) -> Result<Sorted, RegionError> {
        let mut sorted = Sorted { ranges: [Default::default(); REGIONS_MAX], count: 0 };
        let nodes = nodes.iter().copied().chain(core::iter::repeat(Node::default()));
        ranges.iter().zip(nodes).try_for_each(|(range, node)| sorted.insert(*range, node))?;
        sorted.merge();
        sorted.iter().try_for_each(|(range, _)| sized(range))?;
        Ok(sorted)
    }
    fn insert(&mut self, range: FrameRange, node: Node) -> Result<(), RegionError> {
        sized(range)?;
        if node.0 as usize >= NODES_MAX {
            return Err(RegionError::Node(node, range));
        }
        if let Some((other, _)) = self.iter().find(|(other, _)| other.overlaps(range)) {
            return Err(RegionError::Overlap(other, range));
        }
        let at = self.iter().filter(|(other, _)| other.start() < range.start()).count();
        if self.count == REGIONS_MAX {
            return Err(RegionError::TooMany(range));
        }
        self.ranges.copy_within(at..self.count, at + 1);
        self.ranges[at] = (range, node);
        self.count += 1;
        Ok(())
    }
    fn merge(&mut self) {
        let mut kept = 0;
        for at in 1..self.count {
            let ((low, node), (high, other)) = (self.ranges[kept], self.ranges[at]);
            let touch = low.end() == high.start() && node == other;
            match joined(low, high).filter(|_| touch) {
                Some(range) => self.ranges[kept].0 = range,
                None => {
                    kept += 1;
                    self.ranges[kept] = (high, other);
                }
            }
        }
        self.count = self.count.min(kept + 1);
    }
    fn iter(&self) -> impl Iterator<Item = (FrameRange, Node)> {
        self.ranges[..self.count].iter().copied()
    }
}

/// A range that may be taken in, and of which nobody can take anything yet (I3). If this is
/// dropped, the range stays outside.
#[must_use = "it is taken in by `publish`"]
pub struct Newcomer<'s, 'm> {
    folios: &'s Folios<'m>,
    right: Adding<'s, 'm>,
    range: FrameRange,
    node: Node,
}

impl<'m> Newcomer<'_, 'm> {
    /// Takes the range in, with its records in `meta`, which must be zero. The frames of `home`,
    /// which lie in the range and hold the records, are reserved in the same step (I2).
    pub fn publish(
        self,
        known: Known,
        meta: &'m [Word],
        home: Option<FrameRange>,
    ) -> Result<(), RegionError> {
        let Newcomer { folios, right, range, node } = self;
        let words = aligned(meta, Region::words(range))?;
        let make = || {
            let region = Region::new(range, node, words);
            if known == Known::Zero {
                (0..region.blocks()).for_each(|blk| region.zeros().note(blk, 0, FRAMES));
            }
            if let Some(home) = home {
                withhold(&region, home);
            }
            region
        };
        right.push(make).map_err(|why| match why {
            NotAdded::Full => RegionError::TooMany(range),
            NotAdded::Busy => RegionError::Busy(range),
        })?;
        folios.invite();
        Ok(())
    }
}

/// Reserves frames of a region that nobody else knows.
fn withhold(region: &Region<'_>, frames: FrameRange) {
    let mut at = frames.start();
    while at < frames.end() {
        let (block, from, to) = within_block(region, at, frames.end());
        region.withhold(block, from, to).expect("all of a new region is free");
        at = at.add(Pages::new(u64::from(to - from)));
    }
}

fn joined(low: FrameRange, high: FrameRange) -> Option<FrameRange> {
    FrameRange::new(low.start(), Pages::new(high.end().get() - low.start().get()))
}

fn sized(range: FrameRange) -> Result<(), RegionError> {
    match range.pages().get() {
        0 => Err(RegionError::Empty(range)),
        1..=FRAMES_MAX => Ok(()),
        _ => Err(RegionError::TooLarge(range)),
    }
}

/// `need` words of `lent`, aligned.
fn aligned(lent: &[Word], need: usize) -> Result<&[Word], RegionError> {
    let skip = match lent.as_ptr().align_offset(ALIGN) {
        skip if skip <= SLACK => skip,
        _ => 0,
    };
    let short = RegionError::Metadata {
        need: WordCount((need + SLACK) as u64),
        lent: WordCount(lent.len() as u64),
    };
    if lent.len() < need + SLACK { Err(short) } else { Ok(&lent[skip..skip + need]) }
}

fn seat_words(cpus: CpuCount) -> Result<usize, RegionError> {
    match cpus.0 as usize {
        1..=CPUS_MAX => Ok(cpus.0 as usize * seats::WORDS),
        _ => Err(RegionError::Cpus(cpus)),
    }
}

impl<'m> Folios<'m> {
    /// How many words [`Folios::new`] needs for these ranges and CPUs: some 25.6 per 2 MiB.
    pub fn layout(ranges: &[FrameRange], cpus: CpuCount) -> Result<WordCount, RegionError> {
        Folios::layout_on(ranges, &[], cpus)
    }
    /// [`layout`](Folios::layout) for ranges of several nodes.
    pub fn layout_on(
        ranges: &[FrameRange],
        nodes: &[Node],
        cpus: CpuCount,
    ) -> Result<WordCount, RegionError> {
        let regions: usize =
            Sorted::new(ranges, nodes)?.iter().map(|(r, _)| Region::words(r)).sum();
        Ok(WordCount((seat_words(cpus)? + regions + SLACK) as u64))
    }
    /// How many words [`Folios::add`] needs for this range.
    pub fn layout_added(range: FrameRange) -> Result<WordCount, RegionError> {
        sized(range)?;
        Ok(WordCount((Region::words(range) + SLACK) as u64))
    }
    /// An allocator over `ranges`, all free, for `cpus` CPUs, with its records in `meta`, which
    /// must be zero.
    pub fn new(
        ranges: &[FrameRange],
        cpus: CpuCount,
        meta: &'m [Word],
    ) -> Result<Folios<'m>, RegionError> {
        Folios::new_on(ranges, &[], cpus, meta)
    }
    /// [`new`](Folios::new) over ranges of several nodes: `nodes` names the node of each range;
    /// ranges beyond its end are on node 0.
    pub fn new_on(
        ranges: &[FrameRange],
        nodes: &[Node],
        cpus: CpuCount,
        meta: &'m [Word],
    ) -> Result<Folios<'m>, RegionError> {
        let sorted = Sorted::new(ranges, nodes)?;
        let seat_words = seat_words(cpus)?;
        let need = seat_words + sorted.iter().map(|(range, _)| Region::words(range)).sum::<usize>();
        let (seats, mut rest) = aligned(meta, need)?.split_at(seat_words);
        let folios =
            Folios { regions: Regions::new(), seats: seats.as_chunks().0, hosts: Word::new(1) };
        let adding = folios.regions.begin().expect("nobody else knows it yet");
        for (range, node) in sorted.iter() {
            let (words, behind) = rest.split_at(Region::words(range));
            adding.push(|| Region::new(range, node, words)).expect("as many as `Sorted` holds");
            rest = behind;
        }
        drop(adding);
        folios.invite();
        Ok(folios)
    }
    /// Takes `range` in while the allocator is in use, with its records in `meta`, which must be
    /// zero and lie elsewhere; `known` tells what the range holds.
    ///
    /// No block will reach from this range into one that it touches.
    pub fn add(
        &self,
        range: FrameRange,
        node: Node,
        known: Known,
        meta: &'m [Word],
    ) -> Result<(), RegionError> {
        self.admit(range, node)?.publish(known, meta, None)
    }
    /// The right to take `range` in, if nothing speaks against it.
    pub fn admit(&self, range: FrameRange, node: Node) -> Result<Newcomer<'_, 'm>, RegionError> {
        sized(range)?;
        if node.0 as usize >= NODES_MAX {
            return Err(RegionError::Node(node, range));
        }
        let right = self.regions.begin().map_err(|_| RegionError::Busy(range))?;
        if let Some(other) = self.ranges().find(|other| other.overlaps(range)) {
            return Err(RegionError::Overlap(other, range));
        }
        if right.is_full() {
            return Err(RegionError::TooMany(range));
        }
        Ok(Newcomer { folios: self, right, range, node })
    }
    /// The frame behind the highest of all ranges.
    pub fn end(&self) -> Frame {
        self.ranges().map(FrameRange::end).max().unwrap_or_default()
    }
}
