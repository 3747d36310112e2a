//! A trace in the manager's terms, made once and replayed under every policy.
//!
//! The naive model of 4 KiB pages walks along: it knows the areas of every space, which the
//! manager's calls need (a range that covers two areas becomes two calls), and which page each
//! fault touches first.
//!
//! What the model, the steps and the blocks hold is drawn from a budget ([`crate::budget`]).
//!
//! **Invariants**
//! - P1. Only areas of private memory are mapped, anonymous ones and private maps of files, and
//!   shared ones whose object the recording tells.
//! - P2. A range in a step lies within one area, but for unmapping.
//! - P3. An object has its name up to the last step that names it: from there on it is there as
//!   long as somebody maps it. What held it in the recorded run, a descriptor or a name of a file,
//!   is not known.

use crate::budget::{Budget, Map, Purse, Spent, Thing, cost};
use crate::error::TraceError;
use crate::event::{
    Access, AreaKind, Backing, Event, EventKind, Exec, Fault, MapFlags, ObjectId, Prot, SpaceId,
    Standing, ThreadId, advice, brk_pages,
};
use crate::lineage::Lineage;
use crate::mapping::{Labels, Mapping};
use crate::naive::{Memory, Model, Space, State, Verdict, span};
use crate::objects::end_of;
use crate::piece::{
    DONTFORK, FILLED, HUGEPAGE, LASTING, LOCKED, NOHUGEPAGE, Piece, WATCHED, WIPEONFORK,
};
use crate::reader::{About, Reader};
use foliant::object::Around;
use foliant::space::{Advice, Flags};
use foliant_units::{Bytes, FRAME_BYTES, Order, Pages, Va, VaRange};
use std::collections::HashMap;
use std::fmt;
use std::io::Read;
use std::ops::Range;

/// What a step does.
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// A new space. The switch is the one that its program inherited.
    Create {
        thp_off: bool,
    },
    /// A new space, a copy of the step's with so many areas; then the child loses these ranges, or
    /// what is in them.
    Fork {
        child: SpaceId,
        areas: u64,
        unmap: Vec<VaRange>,
        empty: Vec<VaRange>,
    },
    /// The step's space is gone.
    End,
    /// The thread no longer runs.
    Leave,
    /// The entry and exit of a system call.
    Syscall,
    /// With an object, the area maps it from this page on.
    Map {
        range: VaRange,
        flags: Flags,
        tag: u64,
        of: Option<(ObjectId, Pages)>,
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
    /// Each whole 2 MiB of the range in which there is something becomes one folio, whatever the
    /// policy says.
    Collapse {
        range: VaRange,
    },
    /// Filled by the kernel without a fault.
    Populate {
        range: VaRange,
        access: Access,
        touched: u64,
        sizes: Sizes,
    },
    ThpOff {
        off: bool,
    },
    /// An access to anonymous or shared memory that faulted. It is the first one to its page: of
    /// the space where that is private, of all where it is an object's.
    Touch {
        va: Va,
        access: Access,
        memory: Memory,
        first: bool,
        sizes: Sizes,
    },
    /// The area is known by its name from here on: what is wished for that is advised.
    Named {
        range: VaRange,
    },
    /// One that found the page there already. `leader` is the step that it raced with.
    Again {
        va: Va,
        access: Access,
        memory: Memory,
        leader: Option<u32>,
    },
    /// An object has room for so many pages; it is made if it is new.
    Room {
        object: ObjectId,
        pages: Pages,
        around: Around,
    },
    /// A call has brought pages of an object: those from the first to before the second.
    Fill {
        object: ObjectId,
        pages: (Pages, Pages),
    },
    /// A call has taken pages out of an object.
    Punch {
        object: ObjectId,
        pages: (Pages, Pages),
    },
    /// A write to a private map of a file.
    FileWrite {
        va: Va,
    },
}

impl Op {
    /// A place in what it is about.
    fn place(&self) -> Option<Va> {
        match self {
            Op::Map { range, .. }
            | Op::Unmap { range }
            | Op::Protect { range, .. }
            | Op::Advise { range, .. }
            | Op::Collapse { range }
            | Op::Populate { range, .. }
            | Op::Named { range }
            | Op::Move { old: range, .. } => Some(range.start()),
            Op::Touch { va, .. } | Op::Again { va, .. } | Op::FileWrite { va } => Some(*va),
            Op::Create { .. }
            | Op::Fork { .. }
            | Op::End
            | Op::Leave
            | Op::Syscall
            | Op::Room { .. }
            | Op::Fill { .. }
            | Op::Punch { .. }
            | Op::ThpOff { .. } => None,
        }
    }

    /// The object that it names.
    fn object(&self) -> Option<ObjectId> {
        match self {
            Op::Map { of, .. } => of.map(|(object, _)| object),
            Op::Room { object, .. } | Op::Fill { object, .. } | Op::Punch { object, .. } => {
                Some(*object)
            }
            _ => None,
        }
    }
}

/// Which of a policy's sizes memory may get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sizes {
    All,
    /// 4 KiB alone.
    Base,
    /// 2 MiB or 4 KiB.
    Huge,
}

impl Sizes {
    /// Those of an area. A program that fills pages fills small ones, and where it is told of
    /// writes Linux makes large leaves or none.
    fn of(piece: &Piece) -> Sizes {
        match piece.advised {
            advised if advised & FILLED != 0 => Sizes::Base,
            // An object's folios know no wishes of areas.
            advised if advised & NOHUGEPAGE != 0 && piece.attached.is_some() => Sizes::Base,
            advised if advised & WATCHED != 0 => Sizes::Huge,
            _ => Sizes::All,
        }
    }
}

/// One call of the manager or access of a user.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// When its event was, in the recording's nanoseconds.
    pub(super) time_ns: u64,
    pub(super) space: SpaceId,
    pub(super) thread: ThreadId,
    /// The number of the mapping that it is about; of the first of several.
    pub(super) mapping: u16,
    pub(super) op: Op,
}

/// What becomes of shared memory whose object is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shared {
    /// It is replayed: the sizes of a row are those of `enabled` and of `shmem_enabled` alike.
    Replayed,
    /// Its faults are counted, as those of files: the sizes of a row are those of `enabled` alone.
    Counted,
}

/// A trace, ready to be replayed.
#[derive(Debug)]
pub struct Plan {
    /// Recorded faults in private memory without a file.
    pub recorded_anonymous_faults: u64,
    /// Recorded faults in shared memory that is replayed.
    pub recorded_shared_faults: u64,
    /// Recorded faults of all kinds.
    pub recorded_faults: u64,
    /// Reads of private maps of files.
    pub file_reads: u64,
    /// Writes to private maps of files.
    pub file_writes: u64,
    /// Faults in shared memory that is not replayed, and in special areas.
    pub shared_faults: u64,
    /// Of them, those in shared memory without a file of which the recording does not say what it
    /// is: it is older than the recorder's knowing.
    pub nameless_faults: u64,
    /// Faults that the kernel refused.
    pub refused_faults: u64,
    /// Faults where the recording has no memory, and after which the program went on: no policy
    /// changes their number here, and it may be otherwise.
    pub stray_faults: u64,
    /// Faults on pages that were there already.
    pub repeated: u64,
    /// The most that 2 MiB blocks around touched pages of all spaces came to: no policy needs more.
    pub peak_blocks: Bytes,
    /// The mappings that steps are about, by their numbers.
    pub(super) mappings: Vec<Mapping>,
    /// What they are drawn from.
    names: Purse,
    /// When the last event was, in nanoseconds.
    last_ns: u64,
    pub(super) steps: Vec<Step>,
    /// Each object with the last step that names it, in order of these (P3).
    pub(super) last_named: Vec<(u64, ObjectId)>,
    /// The most spaces, areas in them, and 2 MiB blocks with a page table of their own that there
    /// were at once.
    pub(super) peak: Records,
    /// What the steps are drawn from, and what a replay draws on.
    purse: Purse,
}

/// Equal parts of the recorded time that figures are told apart by.
pub const PARTS: usize = 20;

/// What a manager keeps records and tables of.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Records {
    pub(super) spaces: u64,
    pub(super) areas: u64,
    pub(super) tables: u64,
}

/// Why there is no plan.
#[derive(Debug)]
pub enum PlanError {
    /// The trace cannot be read.
    Unread(TraceError),
    /// An event breaks the rules of a trace.
    Broken {
        /// Its place in the trace, from 0.
        index: u64,
        /// Which rule.
        why: &'static str,
    },
    /// It takes more than the planner was given.
    Spent(Spent),
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanError::Unread(error) => write!(f, "{error}"),
            PlanError::Broken { index, why } => {
                write!(f, "event {index} breaks the rules of a trace: {why}")
            }
            PlanError::Spent(spent) => write!(f, "{spent}"),
        }
    }
}

impl std::error::Error for PlanError {}

impl From<TraceError> for PlanError {
    fn from(error: TraceError) -> PlanError {
        match error {
            TraceError::Spent(spent) => PlanError::Spent(spent),
            other => PlanError::Unread(other),
        }
    }
}

impl From<Spent> for PlanError {
    fn from(spent: Spent) -> PlanError {
        PlanError::Spent(spent)
    }
}

impl Plan {
    /// Makes a plan of the events of one trace.
    pub fn new<'a>(
        events: impl IntoIterator<Item = &'a Event>,
        budget: &Budget,
    ) -> Result<Plan, PlanError> {
        let mut planner = Planner::new(Shared::Replayed, budget);
        for event in events {
            planner.add(event)?;
        }
        Ok(planner.finish())
    }

    /// Reads a trace and makes its plan; events are not kept.
    pub fn read(
        input: impl Read,
        shared: Shared,
        budget: &Budget,
    ) -> Result<(About, Plan), PlanError> {
        let mut reader = Reader::new(input, budget)?;
        let mut planner = Planner::new(shared, budget);
        for event in reader.by_ref() {
            planner.add(&event?)?;
        }
        Ok((reader.finish()?, planner.finish()))
    }

    /// When the first and the last event that a replay has a step for were, in nanoseconds.
    pub(super) fn times(&self) -> (u64, u64) {
        let time = |step: Option<&Step>| step.map_or(0, |step| step.time_ns);
        (time(self.steps.first()), time(self.steps.last()))
    }

    /// How many steps a replay takes.
    pub fn steps(&self) -> u64 {
        self.steps.len() as u64
    }

    /// The mappings that there were.
    pub fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }

    /// From the beginning of the recording to its last event, in nanoseconds.
    pub const fn span_ns(&self) -> u64 {
        self.last_ns
    }

    /// In which of [`PARTS`] parts of the recorded time a step was.
    pub(super) fn part_of(&self, step: usize) -> usize {
        let time = self.steps.get(step).map_or(self.last_ns, |step| step.time_ns);
        let part = u128::from(time) * PARTS as u128 / u128::from(self.last_ns.max(1));
        (part as usize).min(PARTS - 1)
    }

    /// Faults that are the same under every policy: all but those in memory that is replayed.
    pub const fn other_faults(&self) -> u64 {
        self.recorded_faults - self.recorded_anonymous_faults - self.recorded_shared_faults
    }

    /// What the plan was drawn from.
    pub(super) fn budget(&self) -> &Budget {
        self.purse.budget()
    }
}

/// Advice that keeps an area apart from neighbours without it, by its bits.
const PARTING: u8 = DONTFORK | WIPEONFORK | LOCKED | FILLED | WATCHED;

/// Whether advice sets or clears one of these.
fn parts(advice: u32) -> bool {
    let of = |(bit, on, off): &(u8, u32, u32)| PARTING & bit != 0 && [*on, *off].contains(&advice);
    LASTING.iter().any(of)
}

/// Areas whose memory is replayed; see P1.
fn is_replayed(piece: &Piece) -> bool {
    piece.kind.is_anonymous_private()
        || piece.kind == AreaKind::FilePrivate
        || piece.attached.is_some()
}

/// The step that maps a part of an area.
fn mapped(range: VaRange, piece: &Piece, flags: Flags) -> Op {
    let page = |at: u64| Pages::new(at / FRAME_BYTES);
    let of = piece.attached.map(|at| (at.object, page(at.place(range.start().get()))));
    Op::Map { range, flags, tag: tag(piece), of }
}

/// Pages of an object, by their places in it.
fn pages_of(bytes: &Range<u64>) -> (Pages, Pages) {
    (Pages::new(bytes.start / FRAME_BYTES), Pages::new(bytes.end / FRAME_BYTES))
}

/// What keeps an area apart from its neighbours beside rights and wishes: its kind, where anonymous
/// memory and the heap are one; whether a child gets it, it is locked, or the program fills it; and
/// what Linux knows besides ([`crate::piece`]).
fn tag(piece: &Piece) -> u64 {
    let advised = u64::from(piece.advised & PARTING);
    piece.parting_kind() as u64 | advised << 8 | u64::from(piece.colour) << 16
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
    if piece.attached.is_some() {
        return flags.with(Flags::SHARED);
    }
    if piece.grows_down() {
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

/// Makes a plan of events as they come, so that a trace need not be in memory.
pub struct Planner {
    plan: Plan,
    shared: Shared,
    index: u64,
    model: Model,
    lineage: Lineage,
    labels: Labels,
    /// What is kept of each space that is alive.
    spaces: HashMap<SpaceId, Kept>,
    now: Records,
    blocks_now: u64,
    /// The last step that names each object.
    last_named: HashMap<ObjectId, u64>,
    /// Blocks of 2 MiB with pages of objects, which are counted to the end: by the object's number
    /// and the block's.
    object_blocks: Map<()>,
}

/// What a planner keeps of a space, besides the model's.
#[derive(Debug)]
struct Kept {
    /// Large pages switched off.
    thp_off: bool,
    /// The step of the last fault that changed a page.
    leaders: Map<u32>,
    /// 2 MiB blocks with pages in them, and whether some of these take memory: zero pages take
    /// none.
    blocks: Map<Holds>,
    /// Those that take memory.
    holding: u64,
    /// The areas that were counted.
    areas: u64,
}

/// What there was at a fault's page before it.
#[derive(Clone, Copy, Default)]
struct Was {
    state: Option<State>,
    /// The page is an object's, and was not in it.
    lacked: bool,
}

/// Whether a block of a space takes memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holds {
    Memory,
    Nothing,
}

impl Planner {
    /// A planner that draws on this budget.
    pub fn new(shared: Shared, budget: &Budget) -> Planner {
        let plan = Plan {
            recorded_anonymous_faults: 0,
            recorded_shared_faults: 0,
            recorded_faults: 0,
            file_reads: 0,
            file_writes: 0,
            shared_faults: 0,
            nameless_faults: 0,
            refused_faults: 0,
            stray_faults: 0,
            repeated: 0,
            peak_blocks: Bytes::default(),
            mappings: Vec::new(),
            names: Purse::new(budget),
            last_ns: 0,
            steps: Vec::new(),
            last_named: Vec::new(),
            peak: Records::default(),
            purse: Purse::new(budget),
        };
        Planner {
            plan,
            shared,
            index: 0,
            model: Model::new(budget),
            lineage: Lineage::new(),
            labels: Labels::new(budget),
            spaces: HashMap::new(),
            now: Records::default(),
            blocks_now: 0,
            last_named: HashMap::new(),
            object_blocks: Map::new(budget, Thing::Pages, cost::BLOCK),
        }
    }

    /// The plan of all that was taken in.
    pub fn finish(mut self) -> Plan {
        let (mappings, held) = self.labels.finish();
        (self.plan.mappings, self.plan.names) = (mappings, held);
        self.plan.last_named = self.last_named.into_iter().map(|(of, step)| (step, of)).collect();
        self.plan.last_named.sort_unstable();
        self.plan
    }

    /// Takes in one event.
    pub fn add(&mut self, event: &Event) -> Result<(), PlanError> {
        let index = self.index;
        self.index += 1;
        let from = self.lineage.space_of(event.thread);
        self.plan.last_ns = event.time_ns;
        let died = self.lineage.apply(event).map_err(|why| PlanError::Broken { index, why })?;
        self.plan.purse.take(Thing::Spaces, event.kind.births(), cost::BIRTH)?;
        if self.leaves_out(event) {
            return Ok(());
        }
        self.before(event, from)?;
        let was = self.state_at(event);
        let judged = self.model.follow(event)?;
        if let (EventKind::Fault(fault), Some(judged)) = (&event.kind, judged) {
            self.fault(event, fault, judged, was)?;
        }
        self.labels.follow(event, died)?;
        self.after(event)?;
        self.retag(event)?;
        self.count_areas(event.space);
        if let Some(space) = died {
            self.push(event, space, Op::End)?;
            self.died(space)?;
        }
        Ok(())
    }

    /// Whether an event is about objects, which are left out.
    fn leaves_out(&self, event: &Event) -> bool {
        let is_of_objects = matches!(
            event.kind,
            EventKind::Object { .. } | EventKind::Attach { .. } | EventKind::Punch { .. }
        );
        self.shared == Shared::Counted && is_of_objects
    }

    fn born(&mut self, space: SpaceId, thp_off: bool) -> Result<(), Spent> {
        self.plan.purse.take(Thing::Spaces, 1, cost::SPACE)?;
        let budget = self.plan.purse.budget();
        let kept = Kept {
            thp_off,
            leaders: Map::new(budget, Thing::Pages, cost::LEADER),
            blocks: Map::new(budget, Thing::Pages, cost::BLOCK),
            holding: 0,
            areas: 0,
        };
        self.spaces.insert(space, kept);
        self.now.spaces += 1;
        self.plan.peak.spaces = self.plan.peak.spaces.max(self.now.spaces);
        Ok(())
    }

    fn died(&mut self, space: SpaceId) -> Result<(), Spent> {
        let Some(kept) = self.spaces.remove(&space) else { return Ok(()) };
        self.plan.purse.give(1, cost::SPACE);
        self.now.spaces -= 1;
        self.now.areas -= kept.areas;
        self.now.tables -= kept.blocks.len();
        self.blocks_now -= kept.holding;
        self.plan.purse.work(kept.leaders.len() + kept.blocks.len())
    }

    /// Follows how many areas a space has.
    fn count_areas(&mut self, space: SpaceId) {
        let there = self.model.spaces.get(&space).map_or(0, |space| space.areas.len());
        if let Some(kept) = self.spaces.get_mut(&space) {
            self.now.areas = self.now.areas - kept.areas + there;
            kept.areas = there;
            self.plan.peak.areas = self.plan.peak.areas.max(self.now.areas);
        }
    }

    fn push(&mut self, event: &Event, space: SpaceId, op: Op) -> Result<(), Spent> {
        let mapping = op.place().map_or(0, |at| self.labels.at(space, at));
        self.push_of(mapping, event, space, op)
    }
    fn push_of(
        &mut self,
        mapping: u16,
        event: &Event,
        space: SpaceId,
        op: Op,
    ) -> Result<(), Spent> {
        let Plan { steps, purse, .. } = &mut self.plan;
        let Event { time_ns, thread, .. } = *event;
        purse.work(1)?;
        if let Some(object) = op.object() {
            let before = self.last_named.insert(object, steps.len() as u64);
            // In the map and in the list that is made of it.
            purse.take(Thing::Spaces, u64::from(before.is_none()), cost::BIRTH)?;
        }
        purse.push(Thing::Steps, steps, Step { time_ns, space, thread, mapping, op })
    }
    fn step(&mut self, event: &Event, op: Op) -> Result<(), Spent> {
        self.push(event, event.space, op)
    }

    /// The replayed parts of areas in `range`, as the model has them now.
    fn pieces(&self, space: SpaceId, range: VaRange) -> Result<Vec<(VaRange, Piece)>, Spent> {
        let Some(space) = self.model.spaces.get(&space) else { return Ok(Vec::new()) };
        pieces(space, range)
    }

    /// What the call does is known only while the model still has the areas from before it.
    fn before(&mut self, event: &Event, from: Option<SpaceId>) -> Result<(), Spent> {
        let space = event.space;
        match &event.kind {
            EventKind::Exec(_) => {
                let thp_off = from.is_some_and(|old| self.is_thp_off(old));
                self.born(space, thp_off)?;
                self.step(event, Op::Leave)?;
                self.step(event, Op::Create { thp_off })?;
            }
            EventKind::Exit { .. } => self.step(event, Op::Leave)?,
            EventKind::Map(area) => {
                self.step(event, Op::Syscall)?;
                self.unmap(event, area.range)?;
            }
            EventKind::Unmap { range } => {
                self.step(event, Op::Syscall)?;
                self.unmap(event, *range)?;
            }
            EventKind::Brk { old, new } => {
                self.step(event, Op::Syscall)?;
                let (more, less) = brk_pages(*old, *new);
                self.unmap(event, less)?;
                self.unmap(event, more)?;
            }
            EventKind::Remap { old, new, keep_old } => {
                self.step(event, Op::Syscall)?;
                self.remap(event, *old, *new, *keep_old)?;
            }
            EventKind::Populate { range, access } => self.populate(event, *range, *access)?,
            EventKind::Advise { range, advice } => {
                self.step(event, Op::Syscall)?;
                self.advise(event, *range, *advice)?;
            }
            EventKind::Protect { range, prot } => {
                self.step(event, Op::Syscall)?;
                for (range, _) in self.pieces(space, *range)? {
                    self.step(event, Op::Protect { range, rights: rights(*prot) })?;
                }
            }
            EventKind::ThpPrctl { args } => {
                // The flag "except advised" (2) still forbids what a row adds by itself.
                if let Some(kept) = self.spaces.get_mut(&space) {
                    kept.thp_off = args[0] != 0;
                }
                self.step(event, Op::Syscall)?;
                self.step(event, Op::ThpOff { off: args[0] != 0 })?;
            }
            EventKind::Fork { .. } | EventKind::Share { .. } => self.step(event, Op::Syscall)?,
            EventKind::Object { object, backing, room, present } => {
                self.object(event, (*object, *backing), *room, present)?;
            }
            EventKind::Punch { object, pages } => {
                let (start, end) = (pages.start().get(), pages.end().get());
                self.punch(event, *object, &(start..end))?;
            }
            // Whoever attaches twice maps the last.
            EventKind::Attach { range, .. } => {
                for (range, _) in self.attached(space, *range)? {
                    self.step(event, Op::Unmap { range })?;
                }
            }
            EventKind::Fault(_) | EventKind::Name { .. } => {}
        }
        Ok(())
    }

    /// What the call made is read from the model.
    fn after(&mut self, event: &Event) -> Result<(), Spent> {
        let space = event.space;
        match &event.kind {
            EventKind::Exec(exec) => self.exec(event, exec),
            EventKind::Map(area) => self.map(event, area.range),
            EventKind::Attach { range, .. } => {
                for (range, piece) in self.attached(space, *range)? {
                    self.step(event, mapped(range, &piece, flags(&piece)))?;
                }
                Ok(())
            }
            EventKind::Brk { old, new } => self.map(event, brk_pages(*old, *new).0),
            EventKind::Fork { child, .. } => self.fork(event, *child),
            EventKind::Unmap { range } => self.forget(space, *range),
            EventKind::Advise { range, advice: advice::DONTNEED | advice::DONTNEED_LOCKED } => {
                self.forget(space, *range)
            }
            EventKind::Remap { old, .. } => self.forget(space, *old),
            EventKind::Name { range, .. } => {
                let pieces = self.pieces(space, *range)?;
                let those = pieces.into_iter().filter(|(_, p)| p.kind.is_anonymous_private());
                for (range, _) in those {
                    self.step(event, Op::Named { range })?;
                }
                Ok(())
            }
            EventKind::Advise { range, advice } if parts(*advice) => {
                for (range, piece) in self.pieces(space, *range)? {
                    let advice = Advice::Tag(tag(&piece));
                    self.step(event, Op::Advise { range, advice })?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Tells the manager which areas are none of their neighbours', or are so no longer.
    fn retag(&mut self, event: &Event) -> Result<(), Spent> {
        let space = self.model.spaces.get_mut(&event.space);
        let recoloured = space.map(|space| std::mem::take(&mut space.recoloured));
        for changed in recoloured.unwrap_or_default() {
            let Some(range) = range_of(changed.start, changed.end) else { continue };
            for (range, piece) in self.pieces(event.space, range)? {
                let advice = Advice::Tag(tag(&piece));
                self.step(event, Op::Advise { range, advice })?;
            }
        }
        Ok(())
    }

    fn is_thp_off(&self, space: SpaceId) -> bool {
        self.spaces.get(&space).is_some_and(|kept| kept.thp_off)
    }

    /// Unmaps where something is mapped; a range that is free costs a system call and nothing more.
    fn unmap(&mut self, event: &Event, range: VaRange) -> Result<(), Spent> {
        if !self.pieces(event.space, range)?.is_empty() {
            self.step(event, Op::Unmap { range })?;
        }
        self.forget(event.space, range)
    }

    fn map(&mut self, event: &Event, range: VaRange) -> Result<(), Spent> {
        for (range, piece) in self.pieces(event.space, range)? {
            self.step(event, mapped(range, &piece, flags(&piece)))?;
        }
        Ok(())
    }

    /// The parts of shared areas in a range that are replayed.
    fn attached(&self, space: SpaceId, range: VaRange) -> Result<Vec<(VaRange, Piece)>, Spent> {
        let mut pieces = self.pieces(space, range)?;
        pieces.retain(|(_, piece)| piece.attached.is_some());
        Ok(pieces)
    }

    /// An object has this room, and these pages, some of which may be new.
    fn object(
        &mut self,
        event: &Event,
        (object, backing): (ObjectId, Backing),
        room: u64,
        present: &[VaRange],
    ) -> Result<(), Spent> {
        let end = end_of(room);
        let around = if backing.maps_around() { Around::Present } else { Around::Nothing };
        self.step(event, Op::Room { object, pages: pages_of(&(0..end)).1, around })?;
        for range in present {
            let bytes = range.start().get()..range.end().get().min(end);
            for bytes in self.lacking(object, bytes)? {
                self.object_touched(object, &bytes)?;
                self.step(event, Op::Fill { object, pages: pages_of(&bytes) })?;
            }
        }
        Ok(())
    }

    /// The runs of pages that an object has not.
    fn lacking(&self, object: ObjectId, bytes: Range<u64>) -> Result<Vec<Range<u64>>, Spent> {
        let Some(known) = self.model.objects.get(object) else { return Ok(vec![bytes]) };
        let (mut runs, mut from) = (Vec::new(), bytes.start);
        for at in known.pages_in(&bytes)? {
            runs.push(from..at);
            from = at + FRAME_BYTES;
        }
        runs.push(from..bytes.end);
        runs.retain(|run| !run.is_empty());
        Ok(runs)
    }

    fn punch(&mut self, event: &Event, object: ObjectId, bytes: &Range<u64>) -> Result<(), Spent> {
        if self.model.objects.get(object).is_none() || bytes.is_empty() {
            return Ok(());
        }
        let end = end_of(u64::MAX);
        let bytes = bytes.start.min(end)..bytes.end.min(end);
        self.step(event, Op::Punch { object, pages: pages_of(&bytes) })
    }

    /// Pages have come into an object.
    fn object_touched(&mut self, object: ObjectId, bytes: &Range<u64>) -> Result<(), Spent> {
        let block = Order::SIZE_2M.bytes().get();
        // No object has more blocks than this shift leaves room for.
        let of = |at: u64| (u64::from(object.0) << 26) | (at / block);
        let first = bytes.start / block * block;
        for at in (first..bytes.end).step_by(block as usize) {
            if self.object_blocks.get(of(at)).is_none() {
                self.object_blocks.insert(of(at), ())?;
                self.blocks_now += 1;
                self.now.tables += 1;
            }
        }
        self.note_peak();
        Ok(())
    }

    fn exec(&mut self, event: &Event, exec: &Exec) -> Result<(), Spent> {
        for area in &exec.areas {
            self.map(event, area.range)?;
        }
        for &range in &exec.present {
            // The stack is a provisional one while arguments are placed: it gets no large folios.
            let pieces = self.pieces(event.space, range)?;
            for (range, _) in pieces.into_iter().filter(|(_, p)| p.kind.is_anonymous_private()) {
                let touched = range.pages().get();
                let (access, sizes) = (Access::Write, Sizes::Base);
                self.step(event, Op::Populate { range, access, touched, sizes })?;
                self.touch_range(event.space, range, Holds::Memory)?;
            }
        }
        Ok(())
    }

    fn fork(&mut self, event: &Event, child: SpaceId) -> Result<(), Spent> {
        let (mut unmap, mut empty, mut areas) = (Vec::new(), Vec::new(), 0);
        if let Some(space) = self.model.spaces.get(&event.space) {
            areas = space.areas.len();
            // Most are in neither list; both are the step's for good.
            self.plan.purse.work(areas)?;
            for (&start, piece) in space.areas.iter() {
                let Some(range) = range_of(start, piece.end) else { continue };
                let list = if !is_replayed(piece) {
                    continue;
                } else if piece.advised & DONTFORK != 0 {
                    &mut unmap
                } else if piece.advised & WIPEONFORK != 0
                    || piece.family.is_none() && piece.kind.is_anonymous_private()
                {
                    // Linux copies the pages of an area only if something was ever written in it.
                    &mut empty
                } else {
                    continue;
                };
                self.plan.purse.push(Thing::Steps, list, range)?;
            }
        }
        self.born(child, self.is_thp_off(event.space))?;
        let copy =
            self.spaces.get(&event.space).map(|kept| Ok((kept.blocks.copy()?, kept.holding)));
        let copy: Option<Result<_, Spent>> = copy;
        if let Some((blocks, holding)) = copy.transpose()?
            && let Some(kept) = self.spaces.get_mut(&child)
        {
            self.blocks_now += holding;
            self.now.tables += blocks.len();
            (kept.blocks, kept.holding) = (blocks, holding);
        }
        self.count_areas(child);
        self.note_peak();
        self.step(event, Op::Fork { child, areas, unmap, empty })
    }

    fn remap(
        &mut self,
        event: &Event,
        old: VaRange,
        new: VaRange,
        keep_old: bool,
    ) -> Result<(), Spent> {
        let pieces = self.pieces(event.space, old)?;
        let in_place = old.start() == new.start();
        if in_place {
            if let Some(rest) = range_of(new.end().get(), old.end().get()) {
                return self.unmap(event, rest);
            }
            let Some(more) = range_of(old.end().get(), new.end().get()) else { return Ok(()) };
            self.unmap(event, more)?;
            if let Some((range, piece)) = pieces.last()
                && range.end() == old.end()
            {
                let op = mapped(more, piece, advised(piece));
                // It becomes a part of what it grows from, and is not labelled yet.
                let mapping = self.labels.at(event.space, range.start());
                self.push_of(mapping, event, event.space, op)?;
            }
            return Ok(());
        }
        if old.is_empty() {
            return self.map_again(event, old.start(), new);
        }
        self.unmap(event, new)?;
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
                    self.step(event, Op::Move { old: *range, new: target })?;
                }
            } else {
                self.step(event, Op::Unmap { range: *range })?;
            }
            if keep_old {
                self.step(event, mapped(*range, piece, advised(piece)))?;
            }
        }
        Ok(())
    }

    /// What is mapped at an address is mapped a second time.
    fn map_again(&mut self, event: &Event, old: Va, new: VaRange) -> Result<(), Spent> {
        let found = self.attached(event.space, page_range(old))?;
        self.unmap(event, new)?;
        let (Some((_, piece)), false) = (found.first(), new.is_empty()) else { return Ok(()) };
        let by = new.start().get().wrapping_sub(old.get());
        let attached = piece.attached.and_then(|it| it.moved(by, &span(new)));
        let piece = Piece { attached, ..*piece };
        self.step(event, mapped(new, &piece, advised(&piece)))
    }

    fn advise(&mut self, event: &Event, range: VaRange, number: u32) -> Result<(), Spent> {
        let advice = match number {
            advice::DONTNEED | advice::DONTNEED_LOCKED => Advice::DontNeed,
            advice::FREE => Advice::Free,
            advice::HUGEPAGE => Advice::HugePage,
            advice::NOHUGEPAGE => Advice::NoHugePage,
            advice::GUARD_INSTALL => Advice::GuardInstall,
            advice::GUARD_REMOVE => Advice::GuardRemove,
            advice::COLLAPSE => return self.collapse(event, range),
            advice::POPULATE_READ => return self.populate(event, range, Access::Read),
            advice::POPULATE_WRITE => {
                self.populate(event, range, Access::Write)?;
                return self.populate_shared(event, range, Access::Write);
            }
            advice::REMOVE => return self.remove(event, range),
            _ => return Ok(()),
        };
        for (range, piece) in self.pieces(event.space, range)? {
            if advice == Advice::DontNeed {
                self.drop_pages(event, range, &piece)?;
            } else if piece.kind.is_anonymous_private() {
                self.step(event, Op::Advise { range, advice })?;
            }
        }
        Ok(())
    }

    /// What the range maps of objects is taken out of these.
    fn remove(&mut self, event: &Event, range: VaRange) -> Result<(), Spent> {
        for (range, piece) in self.attached(event.space, range)? {
            let Some(attached) = piece.attached else { continue };
            let place = |at: Va| attached.place(at.get());
            let bytes = place(range.start())..place(range.end());
            self.punch(event, attached.object, &bytes)?;
        }
        Ok(())
    }

    /// What a range of one area holds is dropped. Where that empties the page table of a whole
    /// block, Linux since 6.14 gives the table back, and the block can be a large leaf again.
    fn drop_pages(&mut self, event: &Event, range: VaRange, piece: &Piece) -> Result<(), Spent> {
        let size_2m = Order::SIZE_2M.bytes();
        let first = range.start().align_up(size_2m).unwrap_or(range.end()).min(range.end());
        let last = range.end().align_down(size_2m).max(first);
        let whole = VaRange::new(first, last).unwrap_or_default();
        let advice = Advice::DontNeed;
        // An area that was moved is not to be had again by mapping it, nor are guards.
        if whole.is_empty()
            || piece.moved != 0
            || piece.attached.is_some()
            || self.has_guards(event.space, whole)?
        {
            return self.step(event, Op::Advise { range, advice });
        }
        for rest in [(range.start(), first), (last, range.end())] {
            if let Some(range) = range_of(rest.0.get(), rest.1.get()) {
                self.step(event, Op::Advise { range, advice })?;
            }
        }
        self.step(event, Op::Unmap { range: whole })?;
        self.step(event, mapped(whole, piece, advised(piece)))
    }

    fn has_guards(&self, space: SpaceId, range: VaRange) -> Result<bool, Spent> {
        let Some(space) = self.model.spaces.get(&space) else { return Ok(false) };
        let mut pages = space.pages.range(span(range));
        let (mut seen, mut found) = (0, false);
        while let Some((_, page)) = pages.next().filter(|_| !found) {
            (seen, found) = (seen + 1, page.state == State::Guard);
        }
        space.pages.work(seen)?;
        Ok(found)
    }

    fn collapse(&mut self, event: &Event, range: VaRange) -> Result<(), Spent> {
        let pieces = self.pieces(event.space, range)?;
        for (range, _) in pieces.into_iter().filter(|(_, p)| p.kind.is_anonymous_private()) {
            self.plan.purse.work(range.pages().get())?;
            self.step(event, Op::Collapse { range })?;
        }
        Ok(())
    }

    /// Shared areas are filled as far as their objects reach.
    fn populate_shared(
        &mut self,
        event: &Event,
        range: VaRange,
        access: Access,
    ) -> Result<(), Spent> {
        for (range, piece) in self.attached(event.space, range)? {
            let Some(attached) = piece.attached.filter(|_| piece.prot.permits(access)) else {
                continue;
            };
            let Some(object) = self.model.objects.get(attached.object) else { continue };
            let start = attached.place(range.start().get());
            let bytes = start..(start + range.bytes().get()).min(object.end()).max(start);
            let (touched, length) = (object.missing(&bytes)?, Bytes::new(bytes.end - start));
            let Some(range) = VaRange::sized(range.start(), length).filter(|r| !r.is_empty())
            else {
                continue;
            };
            let sizes = self.shared_sizes(event.space, &piece);
            self.step(event, Op::Populate { range, access, touched, sizes })?;
            self.touch_range(event.space, range, Holds::Nothing)?;
            self.object_touched(attached.object, &bytes)?;
        }
        Ok(())
    }

    /// Which sizes a fault in a shared area may bring: large pages are off for a process, not for
    /// an object.
    fn shared_sizes(&self, space: SpaceId, piece: &Piece) -> Sizes {
        if self.is_thp_off(space) { Sizes::Base } else { Sizes::of(piece) }
    }

    fn populate(&mut self, event: &Event, range: VaRange, access: Access) -> Result<(), Spent> {
        if access != Access::Write {
            self.populate_shared(event, range, access)?;
        }
        for (range, piece) in self.pieces(event.space, range)? {
            if !piece.kind.is_anonymous_private() || !piece.prot.permits(access) {
                continue;
            }
            let touched = self.untouched(event.space, range, access)?;
            let sizes = Sizes::of(&piece);
            self.step(event, Op::Populate { range, access, touched, sizes })?;
            let holds = if access == Access::Write { Holds::Memory } else { Holds::Nothing };
            self.touch_range(event.space, range, holds)?;
        }
        Ok(())
    }

    /// How many pages of the range a write still has to bring: absent ones, and zero pages.
    fn untouched(&self, space: SpaceId, range: VaRange, access: Access) -> Result<u64, Spent> {
        let Some(space) = self.model.spaces.get(&space) else { return Ok(0) };
        if access != Access::Write {
            return Ok(0);
        }
        let (mut seen, mut there) = (0, 0);
        for (_, page) in space.pages.range(span(range)) {
            seen += 1;
            there += u64::from(matches!(page.state, State::Own | State::Shared | State::Protected));
        }
        space.pages.work(seen)?;
        Ok(range.pages().get().saturating_sub(there))
    }

    /// What the model has at a fault's page before it follows the fault.
    fn state_at(&self, event: &Event) -> Was {
        let EventKind::Fault(fault) = &event.kind else { return Was::default() };
        let page = fault.page();
        let lacked = self.model.lacks(event.space, page);
        let space = self.model.spaces.get(&event.space);
        let was = space.and_then(|space| space.pages.get(page.get()));
        Was { state: was.map(|page| page.state), lacked }
    }

    fn fault(
        &mut self,
        event: &Event,
        fault: &Fault,
        (verdict, memory): (Verdict, Memory),
        was: Was,
    ) -> Result<(), Spent> {
        self.plan.recorded_faults += 1;
        if verdict.is_replayed() {
            match memory {
                Memory::Private => self.plan.recorded_anonymous_faults += 1,
                Memory::Shared => self.plan.recorded_shared_faults += 1,
            }
        }
        let (page, va, space) = (fault.page(), fault.va, event.space);
        let at = self.pieces(space, page_range(page))?.first().map(|(_, piece)| *piece);
        let access = match fault.access {
            Access::Exec if at.is_some_and(|p| p.prot.contains(Prot::EXEC)) => Access::Exec,
            Access::Exec => Access::Read,
            other => other,
        };
        match verdict {
            Verdict::Refused if fault.standing == Standing::Unexplained => {
                self.plan.stray_faults += 1
            }
            Verdict::Refused => self.plan.refused_faults += 1,
            Verdict::Other if at.is_none() => {
                self.plan.shared_faults += 1;
                self.plan.nameless_faults += u64::from(self.is_nameless(space, page));
            }
            Verdict::Other if fault.access == Access::Write => {
                self.plan.file_writes += 1;
                self.touch(space, page, Holds::Memory)?;
                self.step(event, Op::FileWrite { va })?;
            }
            Verdict::Other => self.plan.file_reads += 1,
            // Whether somebody else was mapping the page was chance, which a replay does not have.
            Verdict::PassedOver => {
                self.step(event, Op::Again { va, access, memory, leader: None })?;
            }
            // The handler finds that it is for the program to say, whatever the size.
            Verdict::Needed { .. } if was.state == Some(State::Protected) => {
                self.step(event, Op::Again { va, access, memory, leader: None })?;
            }
            Verdict::Needed { .. } => {
                // A plan with more steps than fit into the number has no leaders from there on.
                if let Ok(next) = u32::try_from(self.plan.steps.len())
                    && let Some(kept) = self.spaces.get_mut(&space)
                {
                    kept.leaders.insert(page.get(), next)?;
                }
                let (first, sizes) = self.touched(event, page, at.as_ref(), was)?;
                self.step(event, Op::Touch { va, access, memory, first, sizes })?;
            }
            Verdict::Needless { standing, .. } => {
                self.plan.repeated += 1;
                let raced = standing == Standing::Raced;
                let leaders = self.spaces.get(&space).map(|kept| &kept.leaders);
                let leader = leaders.and_then(|leaders| leaders.get(page.get()));
                let leader = leader.copied().filter(|_| raced);
                self.step(event, Op::Again { va, access, memory, leader })?;
            }
        }
        Ok(())
    }

    /// A fault has brought its page, of this area: whether it is the first to use it, and which
    /// sizes it may get.
    fn touched(
        &mut self,
        event: &Event,
        page: Va,
        piece: Option<&Piece>,
        was: Was,
    ) -> Result<(bool, Sizes), Spent> {
        let Some((piece, attached)) = piece.and_then(|piece| Some((piece, piece.attached?))) else {
            self.touch(event.space, page, Holds::Memory)?;
            return Ok((was.state.is_none(), piece.map_or(Sizes::All, Sizes::of)));
        };
        self.touch(event.space, page, Holds::Nothing)?;
        let at = attached.place(page.get());
        self.object_touched(attached.object, &(at..at + FRAME_BYTES))?;
        Ok((was.lacked, self.shared_sizes(event.space, piece)))
    }

    /// Whether a page is shared memory without a file of which nothing more is known.
    fn is_nameless(&self, space: SpaceId, page: Va) -> bool {
        let areas = self.model.spaces.get(&space).map(|space| &space.areas);
        let area = areas.and_then(|areas| areas.range(..=page.get()).next_back());
        self.shared == Shared::Replayed
            && area.is_some_and(|(_, area)| area.kind == AreaKind::SharedAnonymous)
    }

    fn touch(&mut self, space: SpaceId, page: Va, holds: Holds) -> Result<(), Spent> {
        let Some(kept) = self.spaces.get_mut(&space) else { return Ok(()) };
        let block = page.align_down(Order::SIZE_2M.bytes()).get();
        let was = kept.blocks.get(block).copied();
        if was == Some(Holds::Memory) || was == Some(holds) {
            return kept.blocks.work(1);
        }
        kept.blocks.insert(block, holds)?;
        let more = u64::from(holds == Holds::Memory);
        kept.holding += more;
        self.blocks_now += more;
        self.now.tables += u64::from(was.is_none());
        self.note_peak();
        Ok(())
    }
    fn touch_range(&mut self, space: SpaceId, range: VaRange, holds: Holds) -> Result<(), Spent> {
        let first = range.start().align_down(Order::SIZE_2M.bytes()).get();
        for block in (first..range.end().get()).step_by(Order::SIZE_2M.bytes().get() as usize) {
            self.touch(space, Va::new(block), holds)?;
        }
        Ok(())
    }
    fn note_peak(&mut self) {
        let bytes = self.blocks_now.saturating_mul(Order::SIZE_2M.bytes().get());
        self.plan.peak_blocks = self.plan.peak_blocks.max(Bytes::new(bytes));
        self.plan.peak.tables = self.plan.peak.tables.max(self.now.tables);
    }
    /// Whole blocks of the range hold nothing any more.
    fn forget(&mut self, space: SpaceId, range: VaRange) -> Result<(), Spent> {
        let Some(kept) = self.spaces.get_mut(&space) else { return Ok(()) };
        let size_2m = Order::SIZE_2M.bytes();
        let Some(first) = range.start().align_up(size_2m) else { return Ok(()) };
        let last = range.end().align_down(size_2m);
        if first >= last {
            return Ok(());
        }
        let (mut gone, mut holding) = (0, 0);
        kept.blocks.clear_range(&(first.get()..last.get()), |_, holds| {
            gone += 1;
            holding += u64::from(holds == Holds::Memory);
        })?;
        kept.holding -= holding;
        self.blocks_now -= holding;
        self.now.tables -= gone;
        Ok(())
    }
}

/// The flags of an area with the wishes that were made for it since it was mapped.
fn advised(piece: &Piece) -> Flags {
    let mut flags = flags(piece);
    if piece.advised & HUGEPAGE != 0 {
        flags = flags.without(Flags::NOHUGEPAGE).with(Flags::HUGEPAGE);
    }
    if piece.advised & NOHUGEPAGE != 0 {
        flags = flags.with(Flags::NOHUGEPAGE);
    }
    flags
}

fn page_range(page: Va) -> VaRange {
    VaRange::sized(page, Bytes::new(FRAME_BYTES)).unwrap_or_else(|| crate::event::empty_at(page))
}

fn pieces(space: &Space, range: VaRange) -> Result<Vec<(VaRange, Piece)>, Spent> {
    if range.is_empty() {
        return Ok(Vec::new());
    }
    let (start, end) = (range.start().get(), range.end().get());
    let first = space.areas.range(..=start).next_back().map_or(start, |(&at, _)| at);
    let areas = space.areas.range(first..end.max(first));
    let mut seen = 0;
    let inside = |(&at, piece): (&u64, &Piece)| {
        seen += 1;
        let part = range_of(at.max(start), piece.end.min(end))?;
        is_replayed(piece).then_some((part, *piece))
    };
    let pieces = areas.filter_map(inside).collect();
    space.areas.work(seen)?;
    Ok(pieces)
}
