//! Memory over time: a manager on the simulator is given work, and after each step every frame is
//! looked at.
//!
//! ```text
//!   untouched ─▶ a pool, born folded ─▶ filled by a program ─▶ fragmented ─▶ folios of many sizes in the gaps ─▶ compacted
//!            ─▶ a larger pool, folded ─▶ faults of 2 MiB ─▶ split ─▶ programs gone ─▶ pool drained ─▶ empty
//! ```
//!
//! All that is shown is read through what the manager lets any embedder read: the allocator's state
//! of a frame, its descriptor's identity, how the descriptors of its block are mapped, census and
//! counters. Only which folios are pinned is known to whoever holds the pins.

use crate::failure::{Done, Failure};
use foliant::compact::{CompactRequest, Compacted, Fragmentation};
use foliant::fault::{Defrag, Orders};
use foliant::folio::{CpuCount, FrameState};
use foliant::frame::Kind;
use foliant::memmap::Described;
use foliant::pool::{Budget, Folding};
use foliant::space::{Advice, Flags, MapRequest, Place, SpaceId};
use foliant::split::{Shrink, SplitInto, ZeroPieces};
use foliant::table::X86_64;
use foliant::{Access, Event, Manager, Policy};
use foliant_lab::{Counted, Stage};
use foliant_sim::{Config, Sim};
use foliant_stage::SimStage;
use foliant_units::{Bytes, FRAME_BYTES, Frame, Order, Va, VaRange};
use std::collections::BTreeSet;
use std::fmt::Display;

/// The machine.
pub(crate) const MEMORY: Bytes = Bytes::new(126 << 20);
pub(crate) const CPUS: usize = 4;
/// Memory of the three programs, in 2 MiB.
const FIRST: u64 = 48;
const SECOND: u64 = 20;
const THIRD: u64 = 12;
/// How many pages the first program keeps of a block, in turn; some of the places coincide.
const KEPT: [u64; 4] = [2, 6, 20, 60];
/// Blocks with a pinned page.
const PINNED: u64 = 3;
/// Huge pages of the pool, at first.
const POOL: u64 = 8;
const PAGE: Bytes = Bytes::new(FRAME_BYTES);

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum What {
    /// Free.
    Free,
    /// No memory.
    Outside,
    /// The manager's: page tables, descriptors, records.
    Own,
    /// In a folio of this order.
    Folio(Order),
    /// In a folio that somebody has pinned.
    Pinned,
    /// In a huge page of the pool.
    Pool,
}

/// A 2 MiB block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Tile {
    /// Its frames: what so many in a row are.
    pub(crate) runs: Vec<(What, u16)>,
    /// How its descriptors are mapped.
    pub(crate) described: Described,
}

/// What can be said of all memory at once.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Facts {
    pub(crate) free: Bytes,
    /// Free blocks of 2 MiB, those in larger ones included.
    pub(crate) whole: u64,
    /// Linux's index of external fragmentation for 2 MiB.
    pub(crate) fragmentation: Fragmentation,
    /// Free memory by the order of its block, from 4 KiB to 2 MiB and more.
    pub(crate) free_by_order: Vec<(Order, Bytes)>,
    pub(crate) descriptor_frames: u64,
    pub(crate) shootdowns: u64,
}

/// A picture of memory.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Moment {
    pub(crate) name: &'static str,
    pub(crate) says: String,
    pub(crate) tiles: Vec<Tile>,
    pub(crate) facts: Facts,
}

/// All of them.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Story {
    pub(crate) moments: Vec<Moment>,
    /// The moments before and after compaction.
    pub(crate) compaction: [usize; 2],
}

type Mm<'m> = Manager<'m, Counted<Sim>, X86_64<4>>;

/// Has all of it happen.
pub(crate) fn tell() -> Done<Story> {
    let machine = SimStage::machine(Config::free(CPUS, MEMORY)).map_err(Failure::new)?;
    let stage = SimStage::new(&machine).map_err(Failure::new)?;
    let mut teller = Teller { stage: &stage, pins: BTreeSet::new(), moments: Vec::new() };
    let compaction = teller.tell()?;
    Ok(Story { moments: teller.moments, compaction })
}

struct Teller<'s, 'm> {
    stage: &'s SimStage<'m>,
    /// Frames of pinned folios.
    pins: BTreeSet<Frame>,
    moments: Vec<Moment>,
}

/// What cannot go wrong here goes wrong: the machine is always the same.
fn told<T, E: Display>(result: Result<T, E>) -> Done<T> {
    result.map_err(|e| Failure::new(format_args!("the map of memory cannot be made: {e}")))
}

impl<'s, 'm> Teller<'s, 'm> {
    fn mm(&self) -> &'s Mm<'m> {
        self.stage.manager()
    }

    fn tell(&mut self) -> Done<[usize; 2]> {
        let mm = self.mm();
        self.look(
            "At the start",
            "Memory is free and has no descriptors. What is taken are the manager's own records.",
        );
        mm.set_folding(Folding::On);
        self.pool(POOL)?;
        self.look(
            "A pool, born folded",
            format!("{POOL} huge pages are made where nothing was described: a frame of descriptors each, no shootdown."),
        );
        let first = self.program(FIRST)?;
        self.touch(first, Bytes::SIZE_2M)?;
        self.look(
            "Filled",
            format!("A program touches {} MiB, and each fault takes a folio of 2 MiB.", FIRST * 2),
        );
        self.fragment(first)?;
        let pins = self.pinned(first);
        self.pins = pins.iter().map(|pin| pin.head()).collect();
        self.look(
            "Fragmented",
            format!(
                "It keeps {}, {}, {} or {} pages of 4 KiB in each block. {} pages are pinned.",
                KEPT[0],
                KEPT[1],
                KEPT[2],
                KEPT[3],
                pins.len()
            ),
        );
        let second = self.program(SECOND)?;
        mm.set_defrag(Defrag::Never);
        mm.set_policy(Policy::always(Orders::up_to(Order::new(8).unwrap_or(Order::BASE))));
        self.touch(second, PAGE)?;
        self.look(
            "Folios of many sizes",
            format!(
                "A second program touches {} MiB. Each fault takes the largest folio up to 1 MiB that finds room.",
                SECOND * 2
            ),
        );
        let before = self.moments.len() - 1;
        let done = mm.compact(&CompactRequest::ALL, &mut []);
        self.look("Compacted", compacted(&done));
        self.pool(2 * POOL)?;
        self.look(
            "The pool grows",
            format!("{POOL} more huge pages. These blocks had descriptors: of eight frames each, seven are given back."),
        );
        let third = self.program(THIRD)?;
        self.touch(third, Bytes::SIZE_2M)?;
        self.look(
            "Faults of 2 MiB",
            format!("A third program touches {} MiB: one fault for each 2 MiB folio.", THIRD * 2),
        );
        self.split(third)?;
        self.look(
            "Split",
            "Of these some are split into 64 KiB or 256 KiB, some lose half of their memory and become 4 KiB, some stay.",
        );
        drop(pins);
        self.pins.clear();
        self.end(second.0)?;
        self.end(third.0)?;
        self.look(
            "Programs gone",
            "The second and the third program end, and the pins are let go.",
        );
        self.pool(0)?;
        self.look(
            "The pool is drained",
            "Pages that were born folded go without a trace; those that were folded later get their descriptors back.",
        );
        self.end(first.0)?;
        self.look("At the end", "The first program ends. What was described stays so.");
        Ok([before, before + 1])
    }

    fn pool(&self, pages: u64) -> Done {
        told(self.mm().resize_pool(Order::SIZE_2M, pages, Budget::ALL)).map(drop)
    }

    /// A program with so many times 2 MiB, which all CPUs run from now on. Its folios are of 2 MiB.
    fn program(&self, blocks: u64) -> Done<(SpaceId, VaRange)> {
        let mm = self.mm();
        mm.set_policy(Policy::always(Orders::of(Order::SIZE_2M)));
        let space = told(mm.create(None))?;
        let bytes = Bytes::new(blocks * Bytes::SIZE_2M.get());
        let place = Place::NoReplace(Va::new(64 << 30));
        let area =
            told(mm.map(space, &MapRequest { place, bytes, flags: Flags::READ_WRITE, tag: 0 }))?;
        self.run(Some(space));
        Ok((space, area))
    }
    fn touch(&self, (space, area): (SpaceId, VaRange), stride: Bytes) -> Done {
        let stopped = |why| Failure::new(format_args!("the map of memory cannot be made: {why:?}"));
        self.stage.touch(space, area, stride, Access::Write).map_err(stopped)
    }
    fn end(&self, space: SpaceId) -> Done {
        self.run(None);
        told(self.mm().end(space))
    }
    /// Has all CPUs run a space that there is, or none.
    fn run(&self, space: Option<SpaceId>) {
        self.stage.together(CpuCount(CPUS as u16), &|_| {
            let _ = self.mm().switch(space); // refuses only what is not there
        });
    }

    /// All but some pages of each block go, and what stays are pages.
    fn fragment(&self, (space, area): (SpaceId, VaRange)) -> Done {
        let pages = Order::SIZE_2M.pages().get();
        for nth in 0..FIRST {
            let block = area.start().add(nth * Bytes::SIZE_2M.get());
            let kept = KEPT[nth as usize % KEPT.len()];
            let stays: BTreeSet<u64> =
                (0..kept).map(|pin| scrambled(nth << 8 | pin) % pages).collect();
            let mut from = 0;
            for stay in stays.iter().copied().chain([pages]) {
                let bytes = Bytes::new((stay - from) * FRAME_BYTES);
                if let Some(gone) =
                    VaRange::sized(block.add(from * FRAME_BYTES), bytes).filter(|_| stay > from)
                {
                    told(self.mm().advise(space, gone, Advice::DontNeed))?;
                }
                from = stay + 1;
            }
            if let Some(page) = stays.first() {
                told(self.mm().split(space, block.add(page * FRAME_BYTES), SplitInto::BASE))?;
            }
        }
        Ok(())
    }

    /// References to a page in some of the blocks, as somebody takes them who writes to memory
    /// behind the program's back.
    fn pinned(
        &self,
        (space, area): (SpaceId, VaRange),
    ) -> Vec<foliant::Reference<'s, 'm, Counted<Sim>, X86_64<4>>> {
        let page = |nth: u64| {
            let block =
                VaRange::sized(area.start().add(nth * 16 * Bytes::SIZE_2M.get()), Bytes::SIZE_2M)?;
            let mut pages =
                (0..Order::SIZE_2M.pages().get()).map(|n| block.start().add(n * FRAME_BYTES));
            pages.find_map(|va| self.mm().reference(self.mm().frame_at(space, va)?))
        };
        (0..PINNED).filter_map(page).collect()
    }

    fn split(&self, (space, area): (SpaceId, VaRange)) -> Done {
        let mm = self.mm();
        for nth in 0..THIRD {
            let block = area.start().add(nth * Bytes::SIZE_2M.get());
            let into = |order: u8| SplitInto {
                order: Order::new(order).unwrap_or(Order::BASE),
                zeros: ZeroPieces::Keep,
            };
            match nth % 4 {
                1 => drop(told(mm.split(space, block, into(4)))?),
                2 => drop(told(mm.split(space, block, into(6)))?),
                3 => {
                    if let Some(half) = VaRange::sized(block, Bytes::new(1 << 20)) {
                        told(mm.advise(space, half, Advice::DontNeed))?;
                    }
                }
                _ => {}
            }
        }
        mm.shrink_deferred(Shrink { folios: THIRD, zeros_max: None });
        Ok(())
    }

    /// Takes a picture.
    fn look(&mut self, name: &'static str, says: impl Into<String>) {
        let mm = self.mm();
        let frames = mm.ranges().flat_map(|range| [range.start().get(), range.end().get()]);
        let (low, high) = frames.fold((u64::MAX, 0), |(low, high), n| (low.min(n), high.max(n)));
        let pages = Order::SIZE_2M.pages().get();
        let blocks = (low / pages * pages..high).step_by(pages as usize);
        let tiles = blocks.map(|first| self.tile(Frame::new(first))).collect();
        self.moments.push(Moment { name, says: says.into(), tiles, facts: facts(mm) });
    }
    fn tile(&self, first: Frame) -> Tile {
        let mut runs: Vec<(What, u16)> = Vec::new();
        for nth in 0..Order::SIZE_2M.pages().get() {
            let what = self.what(Frame::new(first.get() + nth));
            match runs.last_mut() {
                Some((same, count)) if *same == what => *count += 1,
                _ => runs.push((what, 1)),
            }
        }
        let described = self.mm().memmap().described(first).unwrap_or(Described::Absent);
        Tile { runs, described }
    }
    fn what(&self, frame: Frame) -> What {
        let head = match self.mm().folios().state(frame) {
            FrameState::Allocated { head, .. } => head,
            FrameState::Free => return What::Free,
            FrameState::Reserved => return What::Own,
            FrameState::Foreign => return What::Outside,
        };
        let identity = self.mm().identity(frame);
        match identity.kind() {
            Kind::Anon | Kind::Tail if self.pins.contains(&head) => What::Pinned,
            Kind::Anon | Kind::Tail => What::Folio(identity.order()),
            Kind::Huge | Kind::HugeTail => What::Pool,
            Kind::Plain | Kind::Space | Kind::Kernel => What::Own,
        }
    }
}

fn facts(mm: &Mm<'_>) -> Facts {
    let census = mm.free_blocks();
    let bytes = |order: Order| Bytes::new(census.blocks(order) * order.bytes().get());
    let below = Order::all().take(Order::SIZE_2M.index()).map(|order| (order, bytes(order)));
    let whole: u64 =
        Order::all().skip(Order::SIZE_2M.index()).map(|order| bytes(order).get()).sum();
    Facts {
        free: mm.memory().free.bytes(),
        whole: whole / Bytes::SIZE_2M.get(),
        fragmentation: mm.fragmentation(Order::SIZE_2M),
        free_by_order: below.chain([(Order::SIZE_2M, Bytes::new(whole))]).collect(),
        descriptor_frames: mm.total(Event::MemmapPages),
        shootdowns: mm.total(Event::Shootdown),
    }
}

fn compacted(done: &Compacted) -> String {
    format!(
        "Folios are moved together: {} blocks of 2 MiB are whole again. Pinned pages stay where they were.",
        done.blocks
    )
}

/// A fixed mixing of bits.
fn scrambled(n: u64) -> u64 {
    let n = (n ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 30).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}
