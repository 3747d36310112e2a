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
    Standing, ThreadId, advice, brk_pages, push_page,
};
use crate::lineage::Lineage;
use crate::piece::{DONTFORK, FILLED, Family, LASTING, LOCKED, Piece, WATCHED, WIPEONFORK};
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

    /// Of pages that are there, those that nothing explains, as what has filled them.
    pub(crate) fn unexplained(&self, found: &Event) -> Result<Vec<Event>, Spent> {
        let EventKind::Advise { range, .. } = found.kind else { return Ok(Vec::new()) };
        let fill = |range| {
            let kind = EventKind::Populate { range, access: Access::Write };
            Event { kind, ..*found }
        };
        Ok(self.model.unexplained(found.space, range)?.into_iter().map(fill).collect())
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
    /// Nothing, and any access is refused.
    Guard,
    /// Own, and a write waits until the program allows it.
    Protected,
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

impl Page {
    fn new(state: State, event: &Event) -> Page {
        let (last, since) = (event.thread, event.time_ns);
        Page { state, last, mixed: false, since, upgraded: false }
    }
}

#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) areas: Map<Piece>,
    pub(crate) pages: Map<Page>,
    /// Families that it ever had.
    families: u32,
    /// Areas, or parts of what became one, whose colour changed with the last event.
    pub(crate) recoloured: Vec<Range<u64>>,
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

    /// Of pages that are there, those that nothing explains, in runs: the model has none there, or
    /// zeros. Only anonymous memory is looked at.
    pub(crate) fn unexplained(
        &self,
        space: SpaceId,
        range: VaRange,
    ) -> Result<Vec<VaRange>, Spent> {
        let Some(space) = self.spaces.get(&space) else { return Ok(Vec::new()) };
        let (mut found, mut steps): (Vec<VaRange>, u64) = (Vec::new(), 0);
        for (start, piece) in space.anonymous(&span(range))? {
            let (from, to) = (start.max(range.start().get()), piece.end.min(range.end().get()));
            for page in (from..to).step_by(FRAME_BYTES as usize) {
                steps += 1;
                let state = space.pages.get(page).map(|page| page.state);
                if matches!(state, None | Some(State::Zero)) {
                    push_page(&mut found, Va::new(page));
                }
            }
        }
        space.pages.work(steps)?;
        Ok(found)
    }

    fn present(&self, space: SpaceId) -> Vec<Va> {
        let Some(space) = self.spaces.get(&space) else { return Vec::new() };
        let present = space.pages.iter().filter(|(_, page)| page.state != State::Guard);
        present.map(|(&at, _)| Va::new(at)).collect()
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
        space.recoloured.clear();
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
            EventKind::Share { .. }
            | EventKind::Exit { .. }
            | EventKind::ThpPrctl { .. }
            | EventKind::Name { .. } => {}
        }
        Ok(None)
    }
}

impl Space {
    fn new(budget: &Budget) -> Space {
        Space {
            areas: Map::new(budget, Thing::Areas, cost::AREA),
            pages: Map::new(budget, Thing::Pages, cost::PAGE),
            families: 0,
            recoloured: Vec::new(),
        }
    }

    fn fault(&mut self, fault: &Fault, event: &Event, together: bool) -> Result<Verdict, Spent> {
        let (thread, since) = (event.thread, event.time_ns);
        let page = fault.page().get();
        let Some((start, area)) = self.area_at(page)? else { return Ok(Verdict::Refused) };
        let was = self.pages.get(page).copied();
        let guarded = was.is_some_and(|page| page.state == State::Guard);
        if !area.prot.permits(fault.access) || guarded {
            return Ok(Verdict::Refused);
        }
        if !area.kind.is_anonymous_private() {
            return Ok(Verdict::Other);
        }
        let write = fault.access == Access::Write;
        let Some(was) = was else {
            let state = if write { State::Own } else { State::Zero };
            self.put(start, page, Page::new(state, event))?;
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
        if write && was.state == State::Protected {
            return Ok(Verdict::Needed { unseen: false });
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
        if to.state == State::Own {
            self.adopt(start);
        }
        self.pages.insert(page, to)
    }

    /// An area joins a family, if it has none, because something is written in it.
    fn adopt(&mut self, start: u64) {
        let Some(piece) = self.areas.get(start).copied().filter(|p| p.family.is_none()) else {
            return;
        };
        let above = self.areas.get(piece.end).and_then(|above| above.lends(&piece, above));
        let below = || {
            let (_, below) = self.areas.range(..start).next_back()?;
            below.lends(below, &piece).filter(|_| below.end == start)
        };
        let family = above.or_else(below).unwrap_or_else(|| {
            self.families += 1;
            Family { number: self.families, inherited: false }
        });
        if let Some(piece) = self.areas.get_mut(start) {
            piece.family = Some(family);
        }
    }

    fn map(&mut self, area: &Area) -> Result<(), Spent> {
        let range = span(area.range);
        self.unmap(range.clone())?;
        if range.is_empty() {
            return Ok(());
        }
        let piece = Piece::new(range.end, area.prot, area.kind, area.flags);
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
            piece.protect(prot);
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
        let whole = self.areas.get(old.start).is_some_and(|piece| piece.end == old.end);
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
        let (from, by) = (old.start, new.start.wrapping_sub(old.start));
        let to = |at: u64| new.start.saturating_add(at - from);
        for &(start, piece) in &pieces {
            if keep_old {
                // An area that has moved as a whole leaves one behind as if it were new.
                let family = piece.family.filter(|_| !whole);
                let advised = piece.advised & !LOCKED;
                self.areas.insert(start, Piece { family, advised, ..piece })?;
            }
            if start < moved_end {
                // What the area gains at its end belongs to its last piece.
                let end = if piece.end >= moved_end { new.end } else { to(piece.end) };
                // Where nothing was written, nothing depends on where it was.
                let moved = piece.family.map_or(0, |_| piece.moved.wrapping_add(by));
                let advised = piece.advised & !(FILLED | WATCHED);
                self.areas.insert(to(start), Piece { end, moved, advised, ..piece })?;
            }
        }
        if keep_old {
            self.merge(old)?;
        }
        for (at, page) in pages {
            self.pages.insert(to(at), page)?;
        }
        self.merge(new)
    }

    fn advise(&mut self, range: VaRange, number: u32, event: &Event) -> Result<(), Spent> {
        let pages = span(range);
        match number {
            advice::DONTNEED | advice::DONTNEED_LOCKED => {
                self.pages.clear_those(&pages, |page| page.state != State::Guard, |_, _| ())?;
            }
            advice::GUARD_INSTALL => self.guard(pages, event)?,
            advice::GUARD_REMOVE => {
                self.pages.clear_those(&pages, |page| page.state == State::Guard, |_, _| ())?;
            }
            advice::WRITE_PROTECT => self.turn(pages, State::Own, State::Protected)?,
            advice::WRITE_ALLOW | advice::UNWATCHED => {
                self.turn(pages, State::Protected, State::Own)?;
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

    /// Pages of one state get another one, by a call of the program's for these.
    fn turn(&mut self, range: Range<u64>, from: State, to: State) -> Result<(), Spent> {
        let mut steps = 0;
        for (_, page) in self.pages.range_mut(range) {
            steps += 1;
            if page.state == from {
                (page.state, page.upgraded) = (to, to == State::Own);
            }
        }
        self.pages.work(steps)
    }

    /// The anonymous areas in the range, whole.
    fn anonymous(&self, range: &Range<u64>) -> Result<Vec<(u64, Piece)>, Spent> {
        let first = self.areas.range(..=range.start).next_back().map_or(range.start, |(&s, _)| s);
        let all = self.areas.range(first..range.end.max(first)).map(|(&s, &p)| (s, p));
        let areas: Vec<_> = all.filter(|(_, piece)| piece.kind.is_anonymous_private()).collect();
        self.areas.work(areas.len() as u64)?;
        Ok(areas)
    }

    fn populate(&mut self, range: VaRange, access: Access, event: &Event) -> Result<(), Spent> {
        let range = span(range);
        for (start, piece) in self.anonymous(&range)? {
            if !piece.prot.permits(access) {
                continue;
            }
            let (from, to) = (start.max(range.start), piece.end.min(range.end));
            for page in (from..to).step_by(FRAME_BYTES as usize) {
                let was = self.pages.get(page).map(|p| p.state);
                let state = match (access, was) {
                    (_, Some(State::Guard | State::Protected)) => continue,
                    (Access::Write, _) => State::Own,
                    (_, None) => State::Zero,
                    (_, Some(state)) => state,
                };
                self.put(start, page, Page::new(state, event))?;
            }
        }
        Ok(())
    }

    fn guard(&mut self, range: Range<u64>, event: &Event) -> Result<(), Spent> {
        for (start, piece) in self.anonymous(&range)? {
            // A fork copies guards, so their area needs a family.
            self.adopt(start);
            let (from, to) = (start.max(range.start), piece.end.min(range.end));
            for page in (from..to).step_by(FRAME_BYTES as usize) {
                self.pages.insert(page, Page::new(State::Guard, event))?;
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
            let copies = piece.family.is_some() && piece.advised & WIPEONFORK == 0;
            child.families += u32::from(copies);
            let family = copies.then_some(Family { number: child.families, inherited: true });
            // A child locks nothing, and is not told.
            let advised = piece.advised & !(LOCKED | FILLED | WATCHED);
            child.areas.insert(start, Piece { family, advised, ..piece })?;
            if !copies {
                continue;
            }
            for (&at, page) in self.pages.range_mut(start..piece.end) {
                let mut copy = *page;
                if [State::Own, State::Protected].contains(&page.state) {
                    copy.state = State::Shared;
                }
                if page.state == State::Own {
                    page.state = State::Shared;
                }
                child.pages.insert(at, copy)?;
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

    /// Joins neighbours that are one, in and around the range, and keeps apart what only looks so.
    fn merge(&mut self, range: Range<u64>) -> Result<(), Spent> {
        let first = self.areas.range(..range.start).next_back().map_or(range.start, |(&s, _)| s);
        let (mut lower, mut until) = (None, range.end);
        let mut next = first;
        while let Some((&start, &b)) =
            self.areas.range(next..).next().filter(|(at, _)| **at <= until)
        {
            self.areas.work(2)?;
            next = start + 1;
            let below: Option<(u64, Piece)> = lower.filter(|(_, a): &(_, Piece)| a.end == start);
            lower = Some((start, b));
            let Some((at, a)) = below else { continue };
            if a.is_one_with(&b) {
                let joined = Piece { end: b.end, family: a.family.or(b.family), ..a };
                self.areas.remove(start);
                self.areas.insert(at, joined)?;
                lower = Some((at, joined));
                until = until.max(b.end); // what lies above has another neighbour now
                if a.colour != b.colour {
                    self.recoloured.push(start..b.end);
                }
            } else if a.looks_like(&b) && a.colour == b.colour {
                let above = self.areas.get(b.end).map(|above| above.colour);
                let other = |colour: &u8| *colour != a.colour && Some(*colour) != above;
                let colour = (0..3).find(other).unwrap_or_default(); // two of three are taken
                self.areas.insert(start, Piece { colour, ..b })?;
                lower = Some((start, Piece { colour, ..b }));
                self.recoloured.push(start..b.end);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Exec;

    #[test]
    fn of_pages_that_are_there_those_are_told_that_nothing_explains() {
        let pages = |first: u64, count: u64| {
            let at = |page: u64| Va::new((64 + page) * FRAME_BYTES);
            VaRange::new(at(first), at(first + count)).unwrap()
        };
        let area = |first, count, kind| {
            let (prot, flags) = (Prot::RW, MapFlags::NONE);
            Area { range: pages(first, count), prot, kind, flags }
        };
        let mut model = Model::new(&Budget::default());
        let areas = vec![area(0, 8, AreaKind::Anonymous), area(8, 8, AreaKind::FilePrivate)];
        let exec = Exec { program: "p".into(), brk: Va::new(0), areas, present: vec![pages(3, 1)] };
        let mut tell = |kind| {
            let (thread, space) = (ThreadId(0), SpaceId(0));
            model.follow(&Event { time_ns: 0, thread, space, kind }).unwrap();
        };
        tell(EventKind::Exec(exec));
        tell(EventKind::Populate { range: pages(5, 1), access: Access::Read });
        let found = |range| model.unexplained(SpaceId(0), range).unwrap();
        assert_eq!(found(pages(1, 12)), [pages(1, 2), pages(4, 4)], "zeros are no memory");
        assert_eq!(found(pages(3, 1)), []);
        assert_eq!(model.unexplained(SpaceId(1), pages(0, 8)).unwrap(), []);
    }
}
