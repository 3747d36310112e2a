//! The obvious model of 4 KiB pages: which recorded faults had to be, and why the others were
//! taken.
//!
//! A trace is only worth replaying if a replay with 4 KiB pages takes the very faults that were
//! recorded. This model is the simplest that can tell: a map of areas and a map of present pages
//! per space, following the rules that Linux follows for private memory without a file. A page is
//! absent or in one of three states:
//!
//! ```text
//!             read              write                    another space writes, or leaves
//!   absent ─────────▶ zero ─────────────▶ own                (changes nothing here)
//!      └──────────────write──────────────▶ own ◀──write── shared
//!                                           └────fork────▶ shared       (both sides)
//! ```
//!
//! Absent takes a fault on any access, zero and shared on a write, own never: also not after its
//! area was write-protected and made writable again. `fork` copies an area's pages only if
//! something was ever written in it, so zero pages of an area that was only read are absent in the
//! child.
//!
//! Some recorded faults found nothing to do: two threads touch one page and both take a fault, or
//! the processor still holds a translation that was good before `mprotect`. [`classify`] marks
//! these with their [`Standing`], and a replay delivers them as faults on a page that is there
//! already.
//!
//! **Invariants**
//! - N1. Every recorded fault is in exactly one count of [`Report`].
//! - N2. A fault leaves its page as the kernel would, also when the model did not expect it, so one
//!   mismatch does not cause others.
//! - N3. Areas, pages and spaces are drawn from a budget ([`crate::budget`]); once it is spent the
//!   model is of no use any more.

use crate::budget::{Budget, Map, Purse, Spent, Thing, cost};
use crate::event::{
    Access, Area, AreaKind, Event, EventKind, Fault, Found, MapFlags, Origin, Prot, SpaceId,
    Standing, ThreadId, advice, brk_pages,
};
use crate::lineage::Lineage;
use foliant_units::{FRAME_BYTES, Va, VaRange};
use std::collections::BTreeMap;
use std::ops::Range;

/// How many mismatches a [`Report`] keeps in full.
pub const MISMATCHES_KEPT: usize = 20;

/// What a replay with 4 KiB pages gives.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Recorded faults in private memory without a file (anonymous, heap, stack).
    pub recorded_anonymous_faults: u64,
    /// How many of them a replay with 4 KiB pages takes: those the model expects, and those that
    /// the trace marks as raced or stale.
    pub predicted: u64,
    /// Of the recorded ones: found their page brought by another thread a moment before.
    pub raced: u64,
    /// Of the recorded ones: caused by a translation that the processor had kept.
    pub stale: u64,
    /// Faults in maps of files, shared memory and special areas.
    pub other_faults: u64,
    /// Faults outside every area or against access rights: the program got a signal.
    pub refused: u64,
    /// The same, but the program went on: what it accessed is not in the recording.
    pub strays: u64,
    /// Faults where the processor found a page and the model none: something brought the page
    /// without a fault and without an event. They count as predicted.
    pub brought_unseen: u64,
    /// Recorded anonymous faults that the model does not expect.
    pub mismatched: u64,
    /// The first few of them.
    pub mismatches: Vec<Mismatch>,
}

/// A fault that the model does not expect.
#[derive(Clone, Debug)]
pub struct Mismatch {
    /// The event's place in the trace, from 0.
    pub index: u64,
    /// The event.
    pub event: Event,
    /// What the model has there.
    pub why: &'static str,
}

/// Two faults on one page that lie further apart than this did not race: a thread that has taken a
/// fault is held up by others for some time slices, not for longer.
const RACE_NS: u64 = 100_000_000;

/// Replays events on the model; see the module's text. The events must follow the rules of a trace,
/// as those from a [`crate::Reader`] do; others are skipped.
pub fn naive_replay<'a>(
    events: impl IntoIterator<Item = &'a Event>,
    budget: &Budget,
) -> Result<Report, Spent> {
    let mut naive = Naive::new(budget);
    for event in events {
        naive.add(event)?;
    }
    Ok(naive.finish())
}

/// Replays events on the model as they come, so that a trace need not be in memory.
pub struct Naive {
    model: Model,
    index: u64,
    report: Report,
}

impl Naive {
    /// A model that draws on this budget.
    pub fn new(budget: &Budget) -> Naive {
        Naive { model: Model::new(budget), index: 0, report: Report::default() }
    }

    /// Takes in one event.
    pub fn add(&mut self, event: &Event) -> Result<(), Spent> {
        let verdict = self.model.follow(event)?.map(|(_, verdict)| verdict);
        self.count(event, verdict);
        Ok(())
    }

    /// Takes in one event after the standing of a fault was set, as [`classify`] does it;
    /// `signalled` tells whether the program got a signal for it.
    pub(crate) fn settle(&mut self, event: &mut Event, signalled: bool) -> Result<(), Spent> {
        let verdict = self.model.follow(event)?.map(|(_, verdict)| verdict);
        if let EventKind::Fault(fault) = &mut event.kind {
            fault.standing = standing(verdict, fault.origin, signalled);
        }
        self.count(event, verdict);
        Ok(())
    }

    /// Present pages of a space, of private memory without a file.
    pub(crate) fn present(&self, space: SpaceId) -> Vec<Va> {
        self.model.present(space)
    }

    fn count(&mut self, event: &Event, verdict: Option<Verdict>) {
        let index = self.index;
        self.index += 1;
        let (EventKind::Fault(fault), Some(verdict)) = (&event.kind, verdict) else { return };
        let report = &mut self.report;
        match verdict {
            Verdict::Other => report.other_faults += 1,
            Verdict::Refused if fault.standing == Standing::Unexplained => report.strays += 1,
            Verdict::Refused => report.refused += 1,
            Verdict::Needed { unseen } => {
                report.recorded_anonymous_faults += 1;
                report.predicted += 1;
                report.brought_unseen += u64::from(unseen);
            }
            Verdict::Needless { why, .. } => {
                report.recorded_anonymous_faults += 1;
                match fault.standing {
                    Standing::Raced => {
                        (report.raced, report.predicted) = (report.raced + 1, report.predicted + 1)
                    }
                    Standing::Stale => {
                        (report.stale, report.predicted) = (report.stale + 1, report.predicted + 1)
                    }
                    Standing::Regular | Standing::Unexplained => {
                        report.mismatched += 1;
                        if report.mismatches.len() < MISMATCHES_KEPT {
                            let event = event.clone(); // a fault, which is small
                            report.mismatches.push(Mismatch { index, event, why });
                        }
                    }
                }
            }
        }
    }

    /// What came of all that was taken in.
    pub fn finish(self) -> Report {
        self.report
    }
}

/// Sets the [`Standing`] of every fault, where the program got a signal for each that is refused.
pub fn classify(events: &mut [Event], budget: &Budget) -> Result<(), Spent> {
    let mut naive = Naive::new(budget);
    events.iter_mut().try_for_each(|event| naive.settle(event, true))
}

/// The standing of a fault of which the model says this.
fn standing(verdict: Option<Verdict>, origin: Origin, signalled: bool) -> Standing {
    match verdict {
        Some(Verdict::Needless { standing, .. }) => standing,
        // The kernel itself is only told that the address is bad.
        Some(Verdict::Refused) if origin == Origin::User && !signalled => Standing::Unexplained,
        _ => Standing::Regular,
    }
}

/// What the model says of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Not in private memory without a file.
    Other,
    /// Not permitted at all.
    Refused,
    /// It had to be.
    Needed { unseen: bool },
    /// It found nothing to do.
    Needless { standing: Standing, why: &'static str },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Zero,
    Own,
    Shared,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Page {
    pub(crate) state: State,
    /// Who faulted here last, and whether two threads ever did.
    last: ThreadId,
    mixed: bool,
    /// When a fault last found something to do here.
    since: u64,
    /// Made writable in place: by `mprotect`, or by a write after a fork when nobody else had it
    /// any more. That takes no flush, so every other CPU may still find it protected, once.
    upgraded: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) end: u64,
    pub(crate) prot: Prot,
    pub(crate) kind: AreaKind,
    pub(crate) flags: MapFlags,
    /// Advice that lasts, as bits by [`LASTING`].
    pub(crate) advised: u8,
    /// Something was written here once, so a fork copies the pages.
    pub(crate) written: bool,
}

/// Advice that stays with an area: bit, number that sets it, number that clears it.
const LASTING: [(u8, u32, u32); 6] = [
    (1, advice::DONTFORK, advice::DOFORK),
    (2, advice::WIPEONFORK, advice::KEEPONFORK),
    (4, advice::HUGEPAGE, advice::NOHUGEPAGE),
    (8, advice::NOHUGEPAGE, advice::HUGEPAGE),
    (16, advice::GUARD_INSTALL, advice::GUARD_REMOVE),
    (32, advice::LOCK, advice::UNLOCK),
];
pub(crate) const DONTFORK: u8 = 1;
pub(crate) const WIPEONFORK: u8 = 2;
const GUARD: u8 = 16;
pub(crate) const LOCKED: u8 = 32;

#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) areas: Map<Piece>,
    pub(crate) pages: Map<Page>,
}

pub(crate) struct Model {
    lineage: Lineage,
    /// Those that are alive.
    pub(crate) spaces: BTreeMap<SpaceId, Space>,
    purse: Purse,
}

impl Model {
    pub(crate) fn new(budget: &Budget) -> Model {
        let (lineage, spaces) = (Lineage::new(), BTreeMap::new());
        Model { lineage, spaces, purse: Purse::new(budget) }
    }

    fn present(&self, space: SpaceId) -> Vec<Va> {
        let Some(space) = self.spaces.get(&space) else { return Vec::new() };
        space.pages.iter().map(|(&at, _)| Va::new(at)).collect()
    }

    /// Applies one event; for a fault, also says what the model thinks of it.
    pub(crate) fn follow<'a>(
        &mut self,
        event: &'a Event,
    ) -> Result<Option<(&'a Fault, Verdict)>, Spent> {
        self.purse.work(1)?;
        let Ok(died) = self.lineage.apply(event) else { return Ok(None) };
        self.purse.take(Thing::Spaces, event.kind.births(), cost::BIRTH)?;
        if let Some(died) = died
            && let Some(gone) = self.spaces.remove(&died)
        {
            self.purse.work(gone.areas.len() + gone.pages.len())?;
            self.purse.give(1, cost::SPACE);
        }
        if let EventKind::Exec(_) = event.kind {
            self.purse.take(Thing::Spaces, 1, cost::SPACE)?;
            self.spaces.insert(event.space, Space::new(self.purse.budget()));
        }
        let together = self.lineage.residents(event.space) > 1;
        let Some(space) = self.spaces.get_mut(&event.space) else { return Ok(None) };
        match &event.kind {
            EventKind::Exec(exec) => {
                for area in &exec.areas {
                    space.map(area)?;
                }
                for &range in &exec.present {
                    space.populate(range, Access::Write, event)?;
                }
            }
            EventKind::Fork { child, .. } => {
                self.purse.take(Thing::Spaces, 1, cost::SPACE)?;
                let copy = space.fork(self.purse.budget())?;
                self.spaces.insert(*child, copy);
            }
            EventKind::Map(area) => space.map(area)?,
            EventKind::Unmap { range } => space.unmap(span(*range))?,
            EventKind::Protect { range, prot } => space.protect(span(*range), *prot)?,
            EventKind::Remap { old, new, keep_old } => {
                space.remap(span(*old), span(*new), *keep_old)?;
            }
            EventKind::Advise { range, advice } => space.advise(*range, *advice, event)?,
            EventKind::Brk { old, new } => {
                let (more, less) = brk_pages(*old, *new);
                space.unmap(span(less))?;
                if !more.is_empty() {
                    let (kind, flags) = (AreaKind::Heap, MapFlags::NONE);
                    space.map(&Area { range: more, prot: Prot::RW, kind, flags })?;
                }
            }
            EventKind::Populate { range, access } => {
                space.populate(*range, *access, event)?;
            }
            EventKind::Fault(fault) => {
                return Ok(Some((fault, space.fault(fault, event, together)?)));
            }
            EventKind::Share { .. } | EventKind::Exit { .. } | EventKind::ThpPrctl { .. } => {}
        }
        Ok(None)
    }
}

impl Space {
    fn new(budget: &Budget) -> Space {
        Space {
            areas: Map::new(budget, Thing::Areas, cost::AREA),
            pages: Map::new(budget, Thing::Pages, cost::PAGE),
        }
    }

    fn fault(&mut self, fault: &Fault, event: &Event, together: bool) -> Result<Verdict, Spent> {
        let (thread, since) = (event.thread, event.time_ns);
        let page = fault.page().get();
        let Some((start, area)) = self.area_at(page)? else { return Ok(Verdict::Refused) };
        if !area.prot.permits(fault.access) || area.advised & GUARD != 0 {
            return Ok(Verdict::Refused);
        }
        if !area.kind.is_anonymous_private() {
            return Ok(Verdict::Other);
        }
        let write = fault.access == Access::Write;
        let Some(was) = self.pages.get(page).copied() else {
            let state = if write { State::Own } else { State::Zero };
            let now = Page { state, last: thread, mixed: false, since, upgraded: false };
            self.put(start, page, now)?;
            return Ok(Verdict::Needed { unseen: fault.found == Found::Protected });
        };
        let others = was.mixed || was.last != thread;
        let now = Page { last: thread, mixed: others, ..was };
        let raced =
            Verdict::Needless { standing: Standing::Raced, why: "another thread was first" };
        let close = together && since - was.since.min(since) <= RACE_NS;
        if fault.found == Found::Absent {
            if close {
                // It lost the race for an absent page: whatever it wanted, it changed nothing.
                self.put(start, page, Page { mixed: true, ..was })?;
                return Ok(raced);
            }
            let state = if write { State::Own } else { State::Zero };
            self.put(start, page, Page { state, since, upgraded: false, ..now })?;
            return Ok(unexplained("the page is there, the processor found none"));
        }
        if write && was.state != State::Own {
            let upgraded = was.state == State::Shared;
            self.put(start, page, Page { state: State::Own, since, upgraded, ..now })?;
            return Ok(Verdict::Needed { unseen: false });
        }
        self.put(start, page, now)?;
        if close && others {
            return Ok(raced);
        }
        // A page that is made writable needs no flush, so another CPU may not know of it yet.
        if write && (was.upgraded || together && others) {
            return Ok(Verdict::Needless {
                standing: Standing::Stale,
                why: "the page was made writable without a flush",
            });
        }
        let why = if write { "the page is there and writable" } else { "the page is there" };
        Ok(unexplained(why))
    }

    /// The area of a page; one that grows down is made larger first.
    fn area_at(&mut self, page: u64) -> Result<Option<(u64, Piece)>, Spent> {
        if let Some((&start, &piece)) = self.areas.range(..=page).next_back()
            && page < piece.end
        {
            return Ok(Some((start, piece)));
        }
        let Some((&above, &piece)) = self.areas.range(page..).next() else { return Ok(None) };
        if !piece.flags.contains(MapFlags::GROWSDOWN) {
            return Ok(None);
        }
        self.areas.remove(above);
        self.areas.insert(page, piece)?;
        Ok(Some((page, piece)))
    }

    fn put(&mut self, start: u64, page: u64, to: Page) -> Result<(), Spent> {
        if to.state == State::Own
            && let Some(piece) = self.areas.get_mut(start)
        {
            piece.written = true;
        }
        self.pages.insert(page, to)
    }

    fn map(&mut self, area: &Area) -> Result<(), Spent> {
        let range = span(area.range);
        self.unmap(range.clone())?;
        let Area { prot, kind, flags, .. } = *area;
        if range.is_empty() {
            return Ok(());
        }
        let advised = if flags.contains(MapFlags::LOCKED) { LOCKED } else { 0 };
        let piece = Piece { end: range.end, prot, kind, flags, advised, written: false };
        self.areas.insert(range.start, piece)?;
        self.merge(range)
    }

    fn unmap(&mut self, range: Range<u64>) -> Result<(), Spent> {
        self.cut(&range)?;
        self.areas.clear_range(&range, |_, _| ())?;
        self.pages.clear_range(&range, |_, _| ())
    }

    fn protect(&mut self, range: Range<u64>, prot: Prot) -> Result<(), Spent> {
        self.cut(&range)?;
        let (mut opened, mut steps) = (Vec::new(), 0);
        for (&start, piece) in self.areas.range_mut(range.clone()) {
            steps += 1;
            if prot.contains(Prot::WRITE) && !piece.prot.contains(Prot::WRITE) {
                opened.push(start..piece.end);
            }
            piece.prot = prot;
        }
        for range in opened {
            for page in self.pages.range_mut(range).map(|(_, page)| page) {
                steps += 1;
                page.upgraded |= page.state == State::Own;
            }
        }
        self.areas.work(steps)?;
        self.merge(range)
    }

    fn remap(&mut self, old: Range<u64>, new: Range<u64>, keep_old: bool) -> Result<(), Spent> {
        if old.start == new.start {
            self.unmap(new.end.min(old.end)..old.end)?;
            if new.end > old.end
                && let Some((_, piece)) = self.area_at(old.end.saturating_sub(FRAME_BYTES))?
            {
                self.unmap(old.end..new.end)?;
                self.areas.insert(old.end, Piece { end: new.end, ..piece })?;
                self.merge(old.end..new.end)?;
            }
            return Ok(());
        }
        self.cut(&old)?;
        let moved_end = old.end.min(old.start.saturating_add(new.end - new.start));
        let pieces: Vec<_> = self.areas.range(old.clone()).map(|(&s, &p)| (s, p)).collect();
        // Taken for as long as they are in neither place.
        let mut moving = Purse::new(self.pages.budget());
        let count = self.pages.range(old.start..moved_end).count() as u64;
        moving.work(pieces.len() as u64 + count)?;
        moving.take(Thing::Pages, count, cost::MOVED)?;
        let pages: Vec<_> =
            self.pages.range(old.start..moved_end).map(|(&at, &page)| (at, page)).collect();
        self.unmap(old.clone())?;
        self.unmap(new.clone())?;
        let to = |at: u64| new.start.saturating_add(at - old.start);
        for &(start, piece) in &pieces {
            if keep_old {
                self.areas.insert(start, piece)?;
            }
            if start < moved_end {
                // What the area gains at its end belongs to its last piece.
                let end = if piece.end >= moved_end { new.end } else { to(piece.end) };
                self.areas.insert(to(start), Piece { end, ..piece })?;
            }
        }
        for (at, page) in pages {
            self.pages.insert(to(at), page)?;
        }
        self.merge(new)
    }

    fn advise(&mut self, range: VaRange, number: u32, event: &Event) -> Result<(), Spent> {
        match number {
            advice::DONTNEED | advice::DONTNEED_LOCKED | advice::GUARD_INSTALL => {
                self.pages.clear_range(&span(range), |_, _| ())?;
            }
            advice::POPULATE_READ => self.populate(range, Access::Read, event)?,
            advice::POPULATE_WRITE => self.populate(range, Access::Write, event)?,
            _ => {}
        }
        let (mut set, mut clear) = (0, 0);
        for (bit, on, off) in LASTING {
            set |= if number == on { bit } else { 0 };
            clear |= if number == off { bit } else { 0 };
        }
        if set | clear == 0 {
            return Ok(());
        }
        let range = span(range);
        self.cut(&range)?;
        let mut steps = 0;
        for (_, piece) in self.areas.range_mut(range.clone()) {
            steps += 1;
            piece.advised = piece.advised & !clear | set;
        }
        self.areas.work(steps)?;
        self.merge(range)
    }

    fn populate(&mut self, range: VaRange, access: Access, event: &Event) -> Result<(), Spent> {
        let range = span(range);
        let first = self.areas.range(..=range.start).next_back().map_or(range.start, |(&s, _)| s);
        let areas: Vec<_> =
            self.areas.range(first..range.end.max(first)).map(|(&s, &p)| (s, p)).collect();
        self.areas.work(areas.len() as u64)?;
        for (start, piece) in areas {
            if !piece.kind.is_anonymous_private() || !piece.prot.permits(access) {
                continue;
            }
            let (from, to) = (start.max(range.start), piece.end.min(range.end));
            for page in (from..to).step_by(FRAME_BYTES as usize) {
                let was = self.pages.get(page).map(|p| p.state);
                let state = match (access, was) {
                    (Access::Write, _) => State::Own,
                    (_, None) => State::Zero,
                    (_, Some(state)) => state,
                };
                let (last, since) = (event.thread, event.time_ns);
                let now = Page { state, last, mixed: false, since, upgraded: false };
                self.put(start, page, now)?;
            }
        }
        Ok(())
    }

    /// Write-protects this space's pages and returns the child's.
    fn fork(&mut self, budget: &Budget) -> Result<Space, Spent> {
        let mut child = Space::new(budget);
        for (&start, &piece) in self.areas.iter() {
            if piece.advised & DONTFORK != 0 {
                continue;
            }
            let copies = piece.written && piece.advised & WIPEONFORK == 0;
            let advised = piece.advised & !LOCKED; // a child locks nothing
            child.areas.insert(start, Piece { written: copies, advised, ..piece })?;
            if !copies {
                continue;
            }
            for (&at, page) in self.pages.range_mut(start..piece.end) {
                if page.state == State::Own {
                    page.state = State::Shared;
                }
                child.pages.insert(at, *page)?;
            }
        }
        Ok(child)
    }

    /// Splits the areas at both ends of the range.
    fn cut(&mut self, range: &Range<u64>) -> Result<(), Spent> {
        for at in [range.start, range.end] {
            if let Some((_, piece)) = self.areas.range_mut(..at).next_back()
                && piece.end > at
            {
                let upper = *piece;
                piece.end = at;
                self.areas.insert(at, upper)?;
            }
        }
        Ok(())
    }

    /// Joins equal neighbours in and around the range, as the kernel does.
    fn merge(&mut self, range: Range<u64>) -> Result<(), Spent> {
        let first = self.areas.range(..range.start).next_back().map_or(range.start, |(&s, _)| s);
        let starts: Vec<u64> = self.areas.range(first..=range.end).map(|(&s, _)| s).collect();
        self.areas.work(2 * starts.len() as u64)?;
        let same = |flags: MapFlags| {
            MapFlags::GROWSDOWN.with(MapFlags::STACK).with(MapFlags::NORESERVE).bits()
                & flags.bits()
        };
        let Some(&(mut lower)) = starts.first() else { return Ok(()) };
        for start in starts.into_iter().skip(1) {
            let (Some(a), Some(b)) = (self.areas.get(lower), self.areas.get(start)) else {
                break;
            };
            let (a, b) = (*a, *b);
            let equal = a.end == start
                && (a.prot, a.kind, a.advised) == (b.prot, b.kind, b.advised)
                && same(a.flags) == same(b.flags)
                && a.kind.is_anonymous_private();
            if equal {
                self.areas.remove(start);
                let joined = Piece { end: b.end, written: a.written || b.written, ..a };
                self.areas.insert(lower, joined)?;
            } else {
                lower = start;
            }
        }
        Ok(())
    }
}

fn unexplained(why: &'static str) -> Verdict {
    Verdict::Needless { standing: Standing::Unexplained, why }
}

fn span(range: VaRange) -> Range<u64> {
    range.start().get()..range.end().get()
}

/// The areas of all spaces at one point, as the model has them.
pub(crate) struct Snapshot {
    model: Model,
}

impl Snapshot {
    pub(crate) fn new(budget: &Budget) -> Snapshot {
        Snapshot { model: Model::new(budget) }
    }

    pub(crate) fn follow(&mut self, event: &Event) -> Result<(), Spent> {
        self.model.follow(event).map(drop)
    }

    /// Whether a page lies in an area that is not writable.
    pub(crate) fn forbids_write(&self, space: SpaceId, page: Va) -> bool {
        let areas = self.model.spaces.get(&space).map(|s| &s.areas);
        let area = areas.and_then(|a| a.range(..=page.get()).next_back());
        area.is_some_and(|(_, p)| page.get() < p.end && !p.prot.contains(Prot::WRITE))
    }

    /// Whether a space is alive.
    pub(crate) fn has(&self, space: SpaceId) -> bool {
        self.model.spaces.contains_key(&space)
    }
}
