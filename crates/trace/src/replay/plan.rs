//! A trace in the manager's terms, made once and replayed under every policy.
//!
//! The naive model of 4 KiB pages walks along: it knows the areas of every space, which the manager's calls
//! need (a range that covers two areas becomes two calls), and which page each fault touches first.
//!
//! **Invariants**
//! - P1. Only areas of private memory are mapped: anonymous ones and private maps of files.
//! - P2. A range in a step lies within one area, but for unmapping.

use crate::event::{
    Access, AreaKind, Event, EventKind, Exec, Fault, MapFlags, Prot, SpaceId, Standing, ThreadId,
    advice, brk_pages,
};
use crate::lineage::Lineage;
use crate::naive::{DONTFORK, Model, Piece, Space, State, Verdict, WIPEONFORK};
use foliant::space::{Advice, Flags};
use foliant_units::{Bytes, FRAME_BYTES, Order, Va, VaRange};
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// What a step does.
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// A new space. The switch is the one that its program inherited.
    Create {
        thp_off: bool,
    },
    /// A new space, a copy of the step's; then the child loses these ranges, or what is in them.
    Fork {
        child: SpaceId,
        unmap: Vec<VaRange>,
        empty: Vec<VaRange>,
    },
    /// The step's space is gone.
    End,
    /// The thread no longer runs.
    Leave,
    /// The entry and exit of a system call.
    Syscall,
    Map {
        range: VaRange,
        flags: Flags,
        tag: u64,
    },
    Unmap {
        range: VaRange,
    },
    Protect {
        range: VaRange,
        rights: Flags,
    },
    /// Within one area; the target is free or unmapped by it.
    Move {
        old: VaRange,
        new: VaRange,
    },
    Advise {
        range: VaRange,
        advice: Advice,
    },
    /// Filled by the kernel without a fault.
    Populate {
        range: VaRange,
        access: Access,
        touched: u64,
        base_only: bool,
    },
    ThpOff {
        off: bool,
    },
    /// An access to anonymous memory that faulted.
    Touch {
        va: Va,
        access: Access,
        first: bool,
    },
    /// One that found the page there already. `leader` is the step that it raced with.
    Again {
        va: Va,
        access: Access,
        leader: Option<u32>,
    },
    /// A write to a private map of a file.
    FileWrite {
        va: Va,
    },
}

/// One call of the manager or access of a user.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) space: SpaceId,
    pub(super) thread: ThreadId,
    pub(super) op: Op,
}

/// A trace, ready to be replayed.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Recorded faults in private memory without a file.
    pub recorded_anonymous_faults: u64,
    /// Recorded faults of all kinds.
    pub recorded_faults: u64,
    /// Reads of private maps of files.
    pub file_reads: u64,
    /// Writes to private maps of files.
    pub file_writes: u64,
    /// Faults in shared memory and special areas.
    pub shared_faults: u64,
    /// Faults that the kernel refused.
    pub refused_faults: u64,
    /// Faults on pages that were there already.
    pub repeated: u64,
    /// The most that 2 MiB blocks around touched pages of all spaces came to: no policy needs more.
    pub peak_blocks: Bytes,
    pub(super) steps: Vec<Step>,
}

/// An event that breaks the rules of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanError {
    /// Its place in the trace, from 0.
    pub index: u64,
    /// Which rule.
    pub why: &'static str,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {} breaks the rules of a trace: {}", self.index, self.why)
    }
}

impl std::error::Error for PlanError {}

impl Plan {
    /// Makes a plan of the events of one trace.
    pub fn new<'a>(events: impl IntoIterator<Item = &'a Event>) -> Result<Plan, PlanError> {
        let mut maker = Maker::default();
        for (index, event) in events.into_iter().enumerate() {
            maker.add(event).map_err(|why| PlanError { index: index as u64, why })?;
        }
        Ok(maker.plan)
    }

    /// How many steps a replay takes.
    pub fn steps(&self) -> u64 {
        self.steps.len() as u64
    }

    /// Faults that are the same under every policy: all but the anonymous ones.
    pub const fn other_faults(&self) -> u64 {
        self.recorded_faults - self.recorded_anonymous_faults
    }
}

/// Areas whose memory is replayed; see P1.
fn is_replayed(kind: AreaKind) -> bool {
    kind.is_anonymous_private() || kind == AreaKind::FilePrivate
}

/// Anonymous memory and the heap may become one area; others stay apart.
fn tag(kind: AreaKind) -> u64 {
    if kind == AreaKind::Heap { AreaKind::Anonymous as u64 } else { kind as u64 }
}

fn rights(prot: Prot) -> Flags {
    let mut flags = Flags::NONE;
    if prot != Prot::NONE {
        flags = flags.with(Flags::READ); // what can be accessed at all can be read
    }
    if prot.contains(Prot::WRITE) {
        flags = flags.with(Flags::WRITE);
    }
    if prot.contains(Prot::EXEC) {
        flags = flags.with(Flags::EXEC);
    }
    flags
}

fn flags(piece: &Piece) -> Flags {
    let mut flags = rights(piece.prot);
    if piece.flags.contains(MapFlags::GROWSDOWN) {
        flags = flags.with(Flags::GROWS_DOWN);
    }
    // Linux since 6.7 takes MAP_STACK for MADV_NOHUGEPAGE.
    if piece.kind == AreaKind::FilePrivate || piece.flags.contains(MapFlags::STACK) {
        flags = flags.with(Flags::NOHUGEPAGE);
    }
    flags
}

fn range_of(start: u64, end: u64) -> Option<VaRange> {
    VaRange::new(Va::new(start), Va::new(end)).filter(|range| !range.is_empty())
}

#[derive(Default)]
struct Maker {
    plan: Plan,
    model: Model,
    lineage: Lineage,
    /// Large pages switched off, by space.
    thp_off: HashMap<SpaceId, bool>,
    /// The step of the last fault that changed a page.
    leaders: HashMap<(SpaceId, Va), u32>,
    /// Touched pages by 2 MiB block.
    blocks: HashMap<SpaceId, BTreeMap<u64, u64>>,
    blocks_now: u64,
}

impl Maker {
    fn add(&mut self, event: &Event) -> Result<(), &'static str> {
        let from = self.lineage.space_of(event.thread);
        let died = self.lineage.apply(event)?;
        self.before(event, from);
        let was = self.state_at(event);
        if let Some((fault, verdict)) = self.model.follow(event) {
            self.fault(event, fault, verdict, was);
        }
        self.after(event);
        if let Some(space) = died {
            self.push(SpaceId(space.0), event.thread, Op::End);
            self.leaders.retain(|(at, _), _| *at != space);
            let blocks = self.blocks.remove(&space).unwrap_or_default();
            self.blocks_now -= blocks.len() as u64;
        }
        Ok(())
    }

    fn push(&mut self, space: SpaceId, thread: ThreadId, op: Op) {
        self.plan.steps.push(Step { space, thread, op });
    }
    fn step(&mut self, event: &Event, op: Op) {
        self.push(event.space, event.thread, op);
    }

    /// The replayed parts of areas in `range`, as the model has them now.
    fn pieces(&self, space: SpaceId, range: VaRange) -> Vec<(VaRange, Piece)> {
        let Some(space) = self.model.spaces.get(space.0 as usize) else { return Vec::new() };
        pieces(space, range)
    }

    /// What the call does is known only while the model still has the areas from before it.
    fn before(&mut self, event: &Event, from: Option<SpaceId>) {
        let space = event.space;
        match &event.kind {
            EventKind::Exec(_) => {
                let thp_off = from.is_some_and(|old| self.thp_off.get(&old) == Some(&true));
                self.thp_off.insert(space, thp_off);
                self.step(event, Op::Leave);
                self.step(event, Op::Create { thp_off });
            }
            EventKind::Exit { .. } => self.step(event, Op::Leave),
            EventKind::Map(area) => {
                self.step(event, Op::Syscall);
                self.unmap(event, area.range);
            }
            EventKind::Unmap { range } => {
                self.step(event, Op::Syscall);
                self.unmap(event, *range);
            }
            EventKind::Brk { old, new } => {
                self.step(event, Op::Syscall);
                let (more, less) = brk_pages(*old, *new);
                self.unmap(event, less);
                self.unmap(event, more);
            }
            EventKind::Remap { old, new, keep_old } => {
                self.step(event, Op::Syscall);
                self.remap(event, *old, *new, *keep_old);
            }
            EventKind::Populate { range, access } => self.populate(event, *range, *access, false),
            EventKind::Advise { range, advice } => {
                self.step(event, Op::Syscall);
                self.advise(event, *range, *advice);
            }
            EventKind::Protect { range, prot } => {
                self.step(event, Op::Syscall);
                for (range, _) in self.pieces(space, *range) {
                    self.step(event, Op::Protect { range, rights: rights(*prot) });
                }
            }
            EventKind::ThpPrctl { args } => {
                // The flag "except advised" (2) still forbids what a row adds by itself.
                self.thp_off.insert(space, args[0] != 0);
                self.step(event, Op::Syscall);
                self.step(event, Op::ThpOff { off: args[0] != 0 });
            }
            EventKind::Fork { .. } | EventKind::Share { .. } => self.step(event, Op::Syscall),
            EventKind::Fault(_) => {}
        }
    }

    /// What the call made is read from the model.
    fn after(&mut self, event: &Event) {
        let space = event.space;
        match &event.kind {
            EventKind::Exec(exec) => self.exec(event, exec),
            EventKind::Map(area) => self.map(event, area.range),
            EventKind::Brk { old, new } => self.map(event, brk_pages(*old, *new).0),
            EventKind::Fork { child, .. } => self.fork(event, *child),
            EventKind::Unmap { range } => self.forget(space, *range),
            EventKind::Advise { range, advice: advice::DONTNEED | advice::DONTNEED_LOCKED } => {
                self.forget(space, *range);
            }
            EventKind::Remap { old, .. } => self.forget(space, *old),
            _ => {}
        }
    }

    /// Unmaps where something is mapped; a range that is free costs a system call and nothing more.
    fn unmap(&mut self, event: &Event, range: VaRange) {
        if !self.pieces(event.space, range).is_empty() {
            self.step(event, Op::Unmap { range });
        }
        self.forget(event.space, range);
    }

    fn map(&mut self, event: &Event, range: VaRange) {
        for (range, piece) in self.pieces(event.space, range) {
            let op = Op::Map { range, flags: flags(&piece), tag: tag(piece.kind) };
            self.step(event, op);
        }
    }

    fn exec(&mut self, event: &Event, exec: &Exec) {
        for area in &exec.areas {
            self.map(event, area.range);
        }
        for &range in &exec.present {
            // The stack is a provisional one while arguments are placed: it gets no large folios.
            let pieces = self.pieces(event.space, range);
            for (range, _) in pieces.into_iter().filter(|(_, p)| p.kind.is_anonymous_private()) {
                let touched = range.pages().get();
                let (access, base_only) = (Access::Write, true);
                self.step(event, Op::Populate { range, access, touched, base_only });
                self.touch_range(event.space, range);
            }
        }
    }

    fn fork(&mut self, event: &Event, child: SpaceId) {
        let off = self.thp_off.get(&event.space) == Some(&true);
        self.thp_off.insert(child, off);
        let (mut unmap, mut empty) = (Vec::new(), Vec::new());
        if let Some(space) = self.model.spaces.get(event.space.0 as usize) {
            for (&start, piece) in &space.areas {
                let Some(range) = range_of(start, piece.end) else { continue };
                if !is_replayed(piece.kind) {
                    continue;
                }
                if piece.advised & DONTFORK != 0 {
                    unmap.push(range);
                } else if piece.advised & WIPEONFORK != 0
                    || !piece.written && piece.kind.is_anonymous_private()
                {
                    // Linux copies the pages of an area only if something was ever written in it.
                    empty.push(range);
                }
            }
        }
        let blocks = self.blocks.get(&event.space).cloned().unwrap_or_default();
        self.blocks_now += blocks.len() as u64;
        self.blocks.insert(child, blocks);
        self.note_peak();
        self.step(event, Op::Fork { child, unmap, empty });
    }

    fn remap(&mut self, event: &Event, old: VaRange, new: VaRange, keep_old: bool) {
        let pieces = self.pieces(event.space, old);
        let in_place = old.start() == new.start();
        if in_place {
            if let Some(rest) = range_of(new.end().get(), old.end().get()) {
                return self.unmap(event, rest);
            }
            let Some(more) = range_of(old.end().get(), new.end().get()) else { return };
            self.unmap(event, more);
            if let Some((range, piece)) = pieces.last()
                && range.end() == old.end()
            {
                let op = Op::Map { range: more, flags: advised(piece), tag: tag(piece.kind) };
                self.step(event, op);
            }
            return;
        }
        self.unmap(event, new);
        let moved_end = old.end().get().min(old.start().get().saturating_add(new.bytes().get()));
        for (range, piece) in &pieces {
            let start = range.start().get();
            let to = |at: u64| new.start().get().saturating_add(at - old.start().get());
            if start < moved_end {
                let end = if range.end().get() >= moved_end {
                    new.end().get()
                } else {
                    to(range.end().get())
                };
                if let Some(target) = range_of(to(start), end) {
                    self.step(event, Op::Move { old: *range, new: target });
                }
            } else {
                self.step(event, Op::Unmap { range: *range });
            }
            if keep_old {
                let op = Op::Map { range: *range, flags: advised(piece), tag: tag(piece.kind) };
                self.step(event, op);
            }
        }
    }

    fn advise(&mut self, event: &Event, range: VaRange, number: u32) {
        let advice = match number {
            advice::DONTNEED | advice::DONTNEED_LOCKED => Advice::DontNeed,
            advice::FREE => Advice::Free,
            advice::HUGEPAGE => Advice::HugePage,
            advice::NOHUGEPAGE => Advice::NoHugePage,
            advice::GUARD_INSTALL => Advice::GuardInstall,
            advice::GUARD_REMOVE => Advice::GuardRemove,
            advice::POPULATE_READ => return self.populate(event, range, Access::Read, false),
            advice::POPULATE_WRITE => return self.populate(event, range, Access::Write, false),
            _ => return,
        };
        for (range, piece) in self.pieces(event.space, range) {
            if piece.kind.is_anonymous_private() || advice == Advice::DontNeed {
                self.step(event, Op::Advise { range, advice });
            }
        }
    }

    fn populate(&mut self, event: &Event, range: VaRange, access: Access, base_only: bool) {
        for (range, piece) in self.pieces(event.space, range) {
            if !piece.kind.is_anonymous_private() || !piece.prot.permits(access) {
                continue;
            }
            let touched = self.untouched(event.space, range, access);
            self.step(event, Op::Populate { range, access, touched, base_only });
            if access == Access::Write {
                self.touch_range(event.space, range);
            }
        }
    }

    /// How many pages of the range a write still has to bring: absent ones, and zero pages.
    fn untouched(&self, space: SpaceId, range: VaRange, access: Access) -> u64 {
        let Some(space) = self.model.spaces.get(space.0 as usize) else { return 0 };
        if access != Access::Write {
            return 0;
        }
        let inside = range.start().get()..range.end().get();
        let there = space.pages.range(inside).filter(|(_, p)| p.state != State::Zero).count();
        range.pages().get().saturating_sub(there as u64)
    }

    /// What the model has at a fault's page before it follows the fault.
    fn state_at(&self, event: &Event) -> Option<State> {
        let EventKind::Fault(fault) = &event.kind else { return None };
        let space = self.model.spaces.get(event.space.0 as usize)?;
        space.pages.get(&fault.page().get()).map(|page| page.state)
    }

    fn fault(&mut self, event: &Event, fault: &Fault, verdict: Verdict, was: Option<State>) {
        self.plan.recorded_faults += 1;
        let (page, va) = (fault.page(), fault.va);
        let at = self.pieces(event.space, page_range(page)).first().map(|(_, piece)| *piece);
        let access = match fault.access {
            Access::Exec if at.is_some_and(|p| p.prot.contains(Prot::EXEC)) => Access::Exec,
            Access::Exec => Access::Read,
            other => other,
        };
        let next = self.plan.steps.len() as u32;
        match verdict {
            Verdict::Refused => self.plan.refused_faults += 1,
            Verdict::Other if at.is_none() => self.plan.shared_faults += 1,
            Verdict::Other if fault.access == Access::Write => {
                self.plan.file_writes += 1;
                self.touch(event.space, page);
                self.step(event, Op::FileWrite { va });
            }
            Verdict::Other => self.plan.file_reads += 1,
            Verdict::Needed { .. } => {
                self.plan.recorded_anonymous_faults += 1;
                self.leaders.insert((event.space, page), next);
                self.touch(event.space, page);
                self.step(event, Op::Touch { va, access, first: was.is_none() });
            }
            Verdict::Needless { standing, .. } => {
                self.plan.recorded_anonymous_faults += 1;
                self.plan.repeated += 1;
                let raced = standing == Standing::Raced;
                let leader = self.leaders.get(&(event.space, page)).copied().filter(|_| raced);
                self.step(event, Op::Again { va, access, leader });
            }
        }
    }

    fn touch(&mut self, space: SpaceId, page: Va) {
        let block = page.align_down(Order::MEGA.bytes()).get();
        let pages = self.blocks.entry(space).or_default().entry(block).or_insert_with(|| {
            self.blocks_now += 1;
            0
        });
        *pages += 1;
        self.note_peak();
    }
    fn touch_range(&mut self, space: SpaceId, range: VaRange) {
        let mut at = range.start().align_down(Order::MEGA.bytes());
        while at < range.end() {
            self.touch(space, at);
            at = at.add(Order::MEGA.bytes().get());
        }
    }
    fn note_peak(&mut self) {
        let bytes = self.blocks_now.saturating_mul(Order::MEGA.bytes().get());
        self.plan.peak_blocks = self.plan.peak_blocks.max(Bytes::new(bytes));
    }
    /// Whole blocks of the range hold nothing any more.
    fn forget(&mut self, space: SpaceId, range: VaRange) {
        let Some(blocks) = self.blocks.get_mut(&space) else { return };
        let mega = Order::MEGA.bytes();
        let Some(first) = range.start().align_up(mega) else { return };
        let last = range.end().align_down(mega);
        if first < last {
            let gone: Vec<u64> = blocks.range(first.get()..last.get()).map(|(b, _)| *b).collect();
            self.blocks_now -= gone.len() as u64;
            gone.iter().for_each(|block| {
                blocks.remove(block);
            });
        }
    }
}

/// The flags of an area with the wishes that were made for it since it was mapped.
fn advised(piece: &Piece) -> Flags {
    let (wants, refuses) = (4, 8); // bits of naive::LASTING
    let mut flags = flags(piece);
    if piece.advised & wants != 0 {
        flags = flags.without(Flags::NOHUGEPAGE).with(Flags::HUGEPAGE);
    }
    if piece.advised & refuses != 0 {
        flags = flags.with(Flags::NOHUGEPAGE);
    }
    flags
}

fn page_range(page: Va) -> VaRange {
    VaRange::sized(page, Bytes::new(FRAME_BYTES)).unwrap_or_else(|| crate::event::empty_at(page))
}

fn pieces(space: &Space, range: VaRange) -> Vec<(VaRange, Piece)> {
    if range.is_empty() {
        return Vec::new();
    }
    let (start, end) = (range.start().get(), range.end().get());
    let first = space.areas.range(..=start).next_back().map_or(start, |(&at, _)| at);
    let areas = space.areas.range(first..end.max(first));
    let inside = |(&at, piece): (&u64, &Piece)| {
        let part = range_of(at.max(start), piece.end.min(end))?;
        is_replayed(piece.kind).then_some((part, *piece))
    };
    areas.filter_map(inside).collect()
}
