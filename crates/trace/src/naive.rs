//! The obvious model of 4 KiB pages: which recorded faults had to be, and why the others were
//! taken.
//!
//! A trace is only worth replaying if a replay with 4 KiB pages takes the very faults that were
//! recorded. This model is the simplest that can tell: a map of areas and a map of present pages
//! per space, following the rules that Linux follows for private memory without a file. A page is
//! absent or in one of three states, if its memory is private:
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
//! A page of a shared area whose object is known ([`EventKind::Attach`]) is absent or mapped: any
//! access brings it, a read with what the object has around it (`objects`), and none that the area
//! permits faults again. A fork's child has the area and none of its pages.
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
    Access, Area, AreaKind, Event, EventKind, Fault, Found, MapFlags, ObjectId, Origin, Prot,
    SpaceId, Standing, ThreadId, advice, brk_pages, push_page,
};
use crate::lineage::Lineage;
use crate::objects::{Attached, Object, Objects, around};
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
    /// Recorded faults in shared memory whose object is known.
    pub recorded_shared_faults: u64,
    /// How many of both a replay with 4 KiB pages takes: those the model expects, and those that
    /// the trace marks as raced or stale.
    pub predicted: u64,
    /// Of the recorded ones: found their page brought by another thread a moment before.
    pub raced: u64,
    /// Of the recorded ones: caused by a translation that the processor had kept.
    pub stale: u64,
    /// Of the recorded ones: a read beside the page had passed it over, because somebody else was
    /// mapping it.
    pub passed_over: u64,
    /// Faults in maps of files, in shared memory that the recording does not tell apart, and in
    /// special areas.
    pub other_faults: u64,
    /// Faults outside every area or against access rights: the program got a signal.
    pub refused: u64,
    /// The same, but the program went on: what it accessed is not in the recording.
    pub strays: u64,
    /// Faults where the processor found a page and the model none: something brought the page
    /// without a fault and without an event. They count as predicted.
    pub brought_unseen: u64,
    /// Recorded faults in anonymous and shared memory that the model does not expect.
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
        let judged = self.model.follow(event)?;
        self.count(event, judged);
        Ok(())
    }

    /// Takes in one event after the standing of a fault was set, as [`classify`] does it;
    /// `signalled` tells whether the program got a signal for it.
    pub(crate) fn settle(&mut self, event: &mut Event, signalled: bool) -> Result<(), Spent> {
        let judged = self.model.follow(event)?;
        if let EventKind::Fault(fault) = &mut event.kind {
            fault.standing = standing(judged.map(|(verdict, _)| verdict), fault.origin, signalled);
        }
        self.count(event, judged);
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

    fn count(&mut self, event: &Event, judged: Option<(Verdict, Memory)>) {
        let index = self.index;
        self.index += 1;
        let (EventKind::Fault(fault), Some((verdict, memory))) = (&event.kind, judged) else {
            return;
        };
        let report = &mut self.report;
        if verdict.is_replayed() {
            match memory {
                Memory::Private => report.recorded_anonymous_faults += 1,
                Memory::Shared => report.recorded_shared_faults += 1,
            }
        }
        match verdict {
            Verdict::Other => report.other_faults += 1,
            Verdict::Refused if fault.standing == Standing::Unexplained => report.strays += 1,
            Verdict::Refused => report.refused += 1,
            Verdict::Needed { unseen } => {
                report.predicted += 1;
                report.brought_unseen += u64::from(unseen);
            }
            Verdict::PassedOver => {
                (report.passed_over, report.predicted) =
                    (report.passed_over + 1, report.predicted + 1)
            }
            Verdict::Needless { why, .. } => match fault.standing {
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
            },
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

/// Whose a page is that faulted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// Of a space's own.
    Private,
    /// Of an object's.
    Shared,
}

/// What the model says of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Neither in private memory without a file nor in that of a known object.
    Other,
    /// Not permitted at all.
    Refused,
    /// It had to be.
    Needed { unseen: bool },
    /// It had to be, because a read beside its page has passed this one over.
    PassedOver,
    /// It found nothing to do.
    Needless { standing: Standing, why: &'static str },
}

impl Verdict {
    /// Whether it is in memory that a replay reproduces the faults of.
    pub(crate) fn is_replayed(self) -> bool {
        !matches!(self, Verdict::Other | Verdict::Refused)
    }
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
    /// An object's, for any access that the area permits.
    Object,
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
    /// It came with a read beside it, if at all: Linux passes over a page that somebody else is
    /// mapping at that moment.
    around: bool,
}

impl Page {
    fn new(state: State, event: &Event) -> Page {
        let (last, since) = (event.thread, event.time_ns);
        Page { state, last, mixed: false, since, upgraded: false, around: false }
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
    pub(crate) objects: Objects,
    purse: Purse,
}

impl Model {
    pub(crate) fn new(budget: &Budget) -> Model {
        let (lineage, spaces) = (Lineage::new(), BTreeMap::new());
        let objects = Objects::new(Purse::new(budget));
        Model { lineage, spaces, objects, purse: Purse::new(budget) }
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
        let is_there = |page: &Page| ![State::Guard, State::Object].contains(&page.state);
        let present = space.pages.iter().filter(|(_, page)| is_there(page));
        present.map(|(&at, _)| Va::new(at)).collect()
    }

    /// Pages leave an object, and every space that maps them.
    fn punch(&mut self, object: ObjectId, bytes: &Range<u64>) -> Result<(), Spent> {
        self.objects.punch(object, bytes)?;
        self.spaces.values_mut().try_for_each(|space| space.zap(object, bytes))
    }

    /// What a call did to objects, whoever maps them.
    fn follow_objects(&mut self, event: &Event) -> Result<(), Spent> {
        match &event.kind {
            EventKind::Object { object, backing, room, present } => {
                let gone = self.objects.tell((*object, *backing), *room, present)?;
                self.punch(*object, &gone)
            }
            EventKind::Punch { object, pages } => self.punch(*object, &span(*pages)),
            EventKind::Advise { range, advice: advice::REMOVE } => {
                let Some(space) = self.spaces.get(&event.space) else { return Ok(()) };
                for (object, bytes) in space.shared(&span(*range))? {
                    self.punch(object, &bytes)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Whether a page lies in a shared area whose object is known and has it not.
    pub(crate) fn lacks(&self, space: SpaceId, page: Va) -> bool {
        let area = self.spaces.get(&space).and_then(|space| space.attached_at(page.get()));
        let object = area.and_then(|area| Some((area, self.objects.get(area.object)?)));
        object.is_some_and(|(area, object)| !object.has(area.place(page.get())))
    }

    /// Applies one event; for a fault, also says what the model thinks of it.
    pub(crate) fn follow(&mut self, event: &Event) -> Result<Option<(Verdict, Memory)>, Spent> {
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
        self.follow_objects(event)?;
        let objects = &mut self.objects;
        let Some(space) = self.spaces.get_mut(&event.space) else { return Ok(None) };
        space.recoloured.clear();
        match &event.kind {
            EventKind::Exec(exec) => {
                for area in &exec.areas {
                    space.map(area)?;
                }
                for &range in &exec.present {
                    space.populate(range, Access::Write, event, objects)?;
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
            EventKind::Advise { range, advice } => {
                space.advise(*range, *advice, event, objects)?;
            }
            EventKind::Brk { old, new } => {
                let (more, less) = brk_pages(*old, *new);
                space.unmap(span(less))?;
                if !more.is_empty() {
                    let (kind, flags) = (AreaKind::Heap, MapFlags::NONE);
                    space.map(&Area { range: more, prot: Prot::RW, kind, flags })?;
                }
            }
            EventKind::Populate { range, access } => {
                space.populate(*range, *access, event, objects)?;
            }
            EventKind::Fault(fault) => {
                return Ok(Some(space.fault(fault, event, together, objects)?));
            }
            EventKind::Attach { range, object, first } => {
                space.attach(*range, *object, *first)?;
            }
            EventKind::Object { .. }
            | EventKind::Punch { .. }
            | EventKind::Share { .. }
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

    fn fault(
        &mut self,
        fault: &Fault,
        event: &Event,
        together: bool,
        objects: &mut Objects,
    ) -> Result<(Verdict, Memory), Spent> {
        let refused = (Verdict::Refused, Memory::Private);
        let page = fault.page().get();
        let Some((start, area)) = self.area_at(page)? else { return Ok(refused) };
        let was = self.pages.get(page).copied();
        let guarded = was.is_some_and(|page| page.state == State::Guard);
        if !area.prot.permits(fault.access) || guarded {
            return Ok(refused);
        }
        if area.kind.is_anonymous_private() {
            let verdict = match was {
                Some(was) => self.again((start, was), fault, event, together)?,
                None => {
                    let own = fault.access == Access::Write;
                    let state = if own { State::Own } else { State::Zero };
                    self.put(start, page, Page::new(state, event))?;
                    Verdict::Needed { unseen: fault.found == Found::Protected }
                }
            };
            return Ok((verdict, Memory::Private));
        }
        let attached = area.attached.and_then(|at| Some((at, objects.get_mut(at.object)?)));
        let Some((attached, object)) = attached else {
            return Ok((Verdict::Other, Memory::Private));
        };
        if !object.reaches(attached.place(page)) {
            return Ok(refused);
        }
        let verdict = match was {
            Some(was) if was.around && fault.found != Found::Protected => Verdict::PassedOver,
            Some(was) => self.again((start, was), fault, event, together)?,
            None => Verdict::Needed { unseen: fault.found == Found::Protected },
        };
        if matches!(verdict, Verdict::Needed { .. } | Verdict::PassedOver) {
            self.bring(page, (start, attached, &area), fault.access, event, object)?;
        }
        Ok((verdict, Memory::Shared))
    }

    /// A fault in a shared area where nothing is mapped: what comes of the object.
    fn bring(
        &mut self,
        page: u64,
        (start, attached, area): (u64, Attached, &Piece),
        access: Access,
        event: &Event,
        object: &mut Object,
    ) -> Result<(), Spent> {
        if access != Access::Write && object.backing.maps_around() && area.advised & WATCHED == 0 {
            for at in around(page, start..area.end).step_by(FRAME_BYTES as usize) {
                if object.has(attached.place(at)) && self.pages.get(at).is_none() {
                    let found = Page { around: true, ..Page::new(State::Object, event) };
                    self.pages.insert(at, found)?;
                }
            }
        }
        object.bring(attached.place(page))?;
        self.pages.insert(page, Page::new(State::Object, event))
    }

    /// A fault on a page that is there.
    fn again(
        &mut self,
        (start, was): (u64, Page),
        fault: &Fault,
        event: &Event,
        together: bool,
    ) -> Result<Verdict, Spent> {
        let (thread, since) = (event.thread, event.time_ns);
        let page = fault.page().get();
        let write = fault.access == Access::Write;
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
            let state = match (was.state, write) {
                (State::Object, _) => State::Object,
                (_, true) => State::Own,
                (_, false) => State::Zero,
            };
            self.put(start, page, Page { state, since, upgraded: false, ..now })?;
            return Ok(unexplained("the page is there, the processor found none"));
        }
        if write && was.state == State::Protected {
            return Ok(Verdict::Needed { unseen: false });
        }
        if write && ![State::Own, State::Object].contains(&was.state) {
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
        if !piece.grows_down() {
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

    /// Shared areas in a range map an object from now on, from its page `first` on.
    fn attach(&mut self, range: VaRange, object: ObjectId, first: u64) -> Result<(), Spent> {
        let Some(attached) = Attached::new(range, object, first) else { return Ok(()) };
        let range = span(range);
        self.cut(&range)?;
        let (mut steps, kinds) = (0, [AreaKind::FileShared, AreaKind::SharedAnonymous]);
        for (_, piece) in self.areas.range_mut(range.clone()) {
            steps += 1;
            piece.attached = kinds.contains(&piece.kind).then_some(attached);
        }
        self.areas.work(steps)?;
        self.merge(range)
    }

    /// What the area of a page maps.
    fn attached_at(&self, page: u64) -> Option<Attached> {
        let (_, piece) = self.areas.range(..=page).next_back()?;
        piece.attached.filter(|_| page < piece.end)
    }

    /// Areas that map an object, whole.
    fn attachments(&self, steps: &mut u64) -> Vec<(Range<u64>, Attached)> {
        *steps += self.areas.len();
        let all = self.areas.iter();
        all.filter_map(|(&start, piece)| Some((start..piece.end, piece.attached?))).collect()
    }

    /// The parts of objects that a range maps, in bytes.
    fn shared(&self, range: &Range<u64>) -> Result<Vec<(ObjectId, Range<u64>)>, Spent> {
        let mut steps = 0;
        let part = |(area, attached): (Range<u64>, Attached)| {
            let (start, end) = (area.start.max(range.start), area.end.min(range.end));
            (start < end).then(|| (attached.object, attached.place(start)..attached.place(end)))
        };
        let shared = self.attachments(&mut steps).into_iter().filter_map(part).collect();
        self.areas.work(steps)?;
        Ok(shared)
    }

    /// Pages that have left an object are mapped no more.
    fn zap(&mut self, object: ObjectId, bytes: &Range<u64>) -> Result<(), Spent> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut steps = 0;
        let those = |(_, attached): &(Range<u64>, Attached)| attached.object == object;
        for (area, attached) in self.attachments(&mut steps).into_iter().filter(those) {
            let gone = attached.addresses(&area, bytes);
            self.pages.clear_those(&gone, |page| page.state == State::Object, |_, _| ())?;
        }
        self.areas.work(steps)
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
                page.upgraded |= [State::Own, State::Object].contains(&page.state);
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
        if old.is_empty() {
            return self.map_again(old.start, new);
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
        if keep_old {
            for &(start, piece) in &pieces {
                // An area that has moved as a whole leaves one behind as if it were new.
                let family = piece.family.filter(|_| !whole);
                let advised = piece.advised & !LOCKED;
                self.areas.insert(start, Piece { family, advised, ..piece })?;
            }
        }
        self.unmap(new.clone())?; // also what has just been left there
        let (from, by) = (old.start, new.start.wrapping_sub(old.start));
        let to = |at: u64| new.start.saturating_add(at - from);
        for &(start, piece) in &pieces {
            if start < moved_end {
                // What the area gains at its end belongs to its last piece.
                let end = if piece.end >= moved_end { new.end } else { to(piece.end) };
                // Where nothing was written, nothing depends on where it was.
                let moved = piece.family.map_or(0, |_| piece.moved.wrapping_add(by));
                let advised = piece.advised & !(FILLED | WATCHED);
                let attached = piece.attached.and_then(|it| it.moved(by, &(to(start)..end)));
                self.areas.insert(to(start), Piece { end, moved, advised, attached, ..piece })?;
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

    /// What is mapped at an address is mapped a second time.
    fn map_again(&mut self, old: u64, new: Range<u64>) -> Result<(), Spent> {
        let piece = self.area_at(old)?.map(|(_, piece)| piece);
        self.unmap(new.clone())?;
        let Some(piece) = piece.filter(|piece| piece.attached.is_some() && !new.is_empty()) else {
            return Ok(());
        };
        let by = new.start.wrapping_sub(old);
        let attached = piece.attached.and_then(|it| it.moved(by, &new));
        self.areas.insert(new.start, Piece { end: new.end, attached, ..piece })?;
        self.merge(new)
    }

    fn advise(
        &mut self,
        range: VaRange,
        number: u32,
        event: &Event,
        objects: &mut Objects,
    ) -> Result<(), Spent> {
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
            advice::POPULATE_READ => self.populate(range, Access::Read, event, objects)?,
            advice::POPULATE_WRITE => {
                self.populate(range, Access::Write, event, objects)?;
                self.populate_shared(&pages, Access::Write, event, objects)?;
            }
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

    /// Fills shared areas. A call that does so by writing says it by its advice: `mlock` and
    /// `MAP_POPULATE` fill them as by reading.
    fn populate_shared(
        &mut self,
        range: &Range<u64>,
        access: Access,
        event: &Event,
        objects: &mut Objects,
    ) -> Result<(), Spent> {
        let first = self.areas.range(..=range.start).next_back().map_or(range.start, |(&s, _)| s);
        let all = self.areas.range(first..range.end.max(first)).map(|(&s, &p)| (s, p));
        let areas: Vec<_> = all.filter(|(_, p)| p.attached.is_some()).collect();
        self.areas.work(areas.len() as u64)?;
        for (start, area) in areas.into_iter().filter(|(_, area)| area.prot.permits(access)) {
            let found = area.attached.and_then(|at| Some((at, objects.get_mut(at.object)?)));
            let Some((attached, object)) = found else { continue };
            let from = start.max(range.start);
            // What lies behind the object's end is not gone over: it may be all addresses.
            let reached = object.end().saturating_sub(attached.place(from));
            let to = area.end.min(range.end).min(from.saturating_add(reached));
            for page in (from..to).step_by(FRAME_BYTES as usize) {
                self.pages.work(1)?;
                if self.pages.get(page).is_none() {
                    self.bring(page, (start, attached, &area), access, event, object)?;
                }
            }
        }
        Ok(())
    }

    fn populate(
        &mut self,
        range: VaRange,
        access: Access,
        event: &Event,
        objects: &mut Objects,
    ) -> Result<(), Spent> {
        let range = span(range);
        if access != Access::Write {
            self.populate_shared(&range, access, event, objects)?;
        }
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
            debug_assert!(!copies || piece.attached.is_none(), "a shared area has no family");
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

pub(crate) fn span(range: VaRange) -> Range<u64> {
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
