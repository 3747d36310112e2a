//! Taking pages out of a range, and the tables that nothing needs any more.
//!
//! ```text
//!   word ─▶ Zap: 0, a guard, a spent entry ─▶ Zapped, run by run: noted, uncharged, and a drop of n references for each folio
//! ```

use super::places::{
    DROPPED, LOST, MARKER, SPENT, SPENT_BEHIND, plain_place, poisoned_place, watched_place,
};
use super::record::Space;
use super::steps::Steps;
use super::walk;
use crate::flush::{Gather, Used};
use crate::frame::{Kind, Unmapped};
use crate::stock::{Event, Stock};
use crate::table::{
    At, Attrs, Edit, Locked, Paging, Progress, Prune, Run, Sink, Soft, SoftKind, Tables, Verdict,
    What, rewritten,
};
use core::cell::Cell;
use foliant_machine::Machine;
use foliant_units::{Frame, Level, Order, Pa, Pages, Va, VaRange};

/// What becomes of guard entries in the range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Guards {
    /// They stay: the contents were dropped, not the mapping.
    Keep,
    /// They go with the mapping.
    Drop,
    /// They stay, and each page that is there or could be becomes one, in one step.
    Put,
}

/// Room for drops that a table begins with: with less the list grows, and with none left the walk
/// stops inside a table.
const DROPS: usize = 16;
/// A guard.
const GUARD: u64 = Soft { kind: SoftKind::Guard, payload: 0 }.word();

/// Taking pages out, for one operation.
pub(super) struct Zap<'z, 'm, M: Machine, P: Paging> {
    stock: &'z Stock<'m, M, P>,
    space: &'z Space,
    guards: Guards,
    prune: Prune,
    /// Huge pages and spent entries taken out so far: in an area with reservations, the entries
    /// that stood for none any more. Huge pages of other areas are counted too.
    kept: Cell<u64>,
    /// Whether poison stays: the contents change, and no program dropped them (fault::fill::L7).
    keeps_poison: bool,
    /// Whether the space is at its end, and no CPU runs it (life::N1).
    at_end: bool,
    /// Whether tables of base level go too that lie in areas (S2).
    reclaims: bool,
}

impl<'z, 'm, M: Machine, P: Paging> Zap<'z, 'm, M, P> {
    pub(super) fn new(stock: &'z Stock<'m, M, P>, space: &'z Space, guards: Guards) -> Self {
        let (prune, kept) = (Prune::Keep, Cell::new(0));
        Zap {
            stock,
            space,
            guards,
            prune,
            kept,
            keeps_poison: false,
            at_end: false,
            reclaims: false,
        }
    }
    /// The same, which leaves poison where it is.
    pub(super) fn keeping_poison(self) -> Self {
        Zap { keeps_poison: true, ..self }
    }
    /// For the end of the space, which no CPU runs any more.
    pub(super) fn at_end(self) -> Self {
        Zap { at_end: true, ..self }
    }
    /// The same, which also removes the tables that it has emptied or found empty, where no area
    /// lies in all that they cover (S2).
    pub(super) fn pruning(self, prune: Prune) -> Self {
        Zap { prune, ..self }
    }
    /// The same, which also removes the tables of base level that the range covers whole and that
    /// are empty then, whatever areas lie there: a leaf of 2 MiB may come in their place (S2).
    pub(super) fn reclaiming(self) -> Self {
        Zap { prune: Prune::Emptied, reclaims: true, ..self }
    }
    /// Removes the tables of `range`, whose pages were taken out before.
    pub(super) fn tables(
        self,
        gather: &mut Gather<'z, 'm, M, P>,
        range: VaRange,
        prune: Prune,
        steps: &mut Steps,
    ) {
        self.pruning(prune).entries(gather, range, steps);
    }

    /// Takes every page of `range` out; the caller flushes. Entries that others had taken out are
    /// settled before it returns (G5).
    pub(super) fn range(
        &self,
        gather: &mut Gather<'z, 'm, M, P>,
        range: VaRange,
        steps: &mut Steps,
    ) {
        self.entries(gather, range, steps);
        gather.settle();
    }
    /// Does what [`range`](Self::range) does, but leaves it to the caller to settle.
    pub(super) fn entries(
        &self,
        gather: &mut Gather<'z, 'm, M, P>,
        range: VaRange,
        steps: &mut Steps,
    ) {
        self.edit::<{ usize::MAX }>(gather, range, self, steps);
    }
    /// Takes the pages of the object in this frame out, and leaves others where they are.
    pub(super) fn range_of(
        &self,
        gather: &mut Gather<'z, 'm, M, P>,
        range: VaRange,
        object: Frame,
        steps: &mut Steps,
    ) {
        let is_its = |pa: Pa| self.stock.origin(self.stock.head_of(pa.frame())).tree == object;
        let leaf = |at, word, pa, attrs: Attrs| match !attrs.has(Attrs::SPECIAL) && is_its(pa) {
            true => self.leaf(at, word, pa, attrs),
            false => Verdict::Keep,
        };
        // What is alike to the walk may be the object's and others': each word is a run.
        let chosen = Chosen { zap: self, keeps_markers: false, leaf };
        self.edit::<1>(gather, range, &chosen, steps);
        gather.settle();
    }
    /// Takes pages of an area out in which what is watched stays so (watch::H5): those of an
    /// object, or all.
    #[inline(never)] // few areas are such
    pub(super) fn range_watched(
        &self,
        gather: &mut Gather<'z, 'm, M, P>,
        range: VaRange,
        object: Option<Frame>,
        steps: &mut Steps,
    ) {
        let origin = |pa: Pa| self.stock.origin(self.stock.head_of(pa.frame())).tree;
        let goes = |pa, attrs: Attrs| {
            object.is_none_or(|object| !attrs.has(Attrs::SPECIAL) && origin(pa) == object)
        };
        let leaf = |at: At, word, pa, attrs: Attrs| match at.level {
            _ if !goes(pa, attrs) => Verdict::Keep,
            _ if !attrs.has(Attrs::UFFD_WP) => self.leaf(at, word, pa, attrs),
            Level::BASE => Verdict::Take(MARKER),
            _ if self.is_huge(pa.frame()) => match self.leaf(at, word, pa, attrs) {
                Verdict::Take(place) => Verdict::Take(watched_place(place)),
                other => other,
            },
            _ => Verdict::Split, // each of its pages leaves one
        };
        let watched = Chosen { zap: self, keeps_markers: true, leaf };
        self.edit::<1>(gather, range, &watched, steps);
        gather.settle();
    }
    /// Takes a huge page away where a place of `range` has it, so that no other page comes there.
    /// Says whether one had it.
    pub(super) fn lose(
        &self,
        gather: &mut Gather<'z, 'm, M, P>,
        range: VaRange,
        head: Frame,
        steps: &mut Steps,
    ) -> bool {
        self.put_for(gather, range, (head, |_| LOST), steps);
        self.kept() > 0
    }
    /// Poisons the places of `range`, of an area that has reservations if it `is_reserved`, where a
    /// huge page is whose memory is broken.
    pub(super) fn poison(
        &self,
        gather: &mut Gather<'z, 'm, M, P>,
        range: VaRange,
        (head, is_reserved): (Frame, bool),
        steps: &mut Steps,
    ) {
        let place = |attrs| match is_reserved && self.is_used(head, attrs) {
            true => poisoned_place(SPENT),
            false => poisoned_place(0),
        };
        self.put_for(gather, range, (head, place), steps);
    }
    /// Puts a word where a huge page is, and leaves all else as it is.
    fn put_for(
        &self,
        gather: &mut Gather<'z, 'm, M, P>,
        range: VaRange,
        (head, word): (Frame, impl Fn(Attrs) -> u64),
        steps: &mut Steps,
    ) {
        let leaf = |_, _, pa: Pa, attrs| match pa.frame() == head {
            true => Verdict::Take(word(attrs)),
            false => Verdict::Keep,
        };
        let chosen = Chosen { zap: self, keeps_markers: true, leaf };
        self.edit::<1>(gather, range, &chosen, steps);
        gather.settle();
    }
    /// Takes out what `edit` says, in runs of at most so many words.
    fn edit<const MOST: usize>(
        &self,
        gather: &mut Gather<'z, 'm, M, P>,
        range: VaRange,
        edit: &impl Edit<P>,
        steps: &mut Steps,
    ) {
        let zap = self;
        let (run, deposits, rest) = (None, 0, None);
        let mut taken = Zapped::<_, _, MOST> { zap, gather, steps, range, run, deposits, rest };
        walk::edit(self.stock, self.space, range, edit, &mut taken);
    }
    /// How many reservations were used in what was taken out, if all of it lay in areas that have
    /// reservations.
    pub(super) fn kept(&self) -> u64 {
        self.kept.get()
    }

    /// What stands in the place of a page that was taken out.
    const fn left(&self) -> u64 {
        match self.guards {
            Guards::Put => GUARD,
            Guards::Keep | Guards::Drop => 0,
        }
    }
    fn is_huge(&self, frame: Frame) -> bool {
        self.stock.identity(frame).kind() == Kind::Huge
    }
    /// Whether the reservation of the place of a huge page was used, in an area that has any: that
    /// of an object's page in a private area was not, unless its entry says so.
    fn is_used(&self, head: Frame, attrs: Attrs) -> bool {
        attrs.has(SPENT_BEHIND) || self.stock.origin(head).tree == self.space.member.tree()
    }
    /// What stands in the place of a huge page that was dropped, in an area that has reservations.
    #[inline(never)] // most pages are small
    fn left_of_huge(&self, head: Frame, attrs: Attrs) -> u64 {
        match self.stock.origin(head).tree == self.space.member.tree() {
            true if self.space.object_huge().is_some() => SPENT, // the page of an object
            true => DROPPED,
            false if attrs.has(SPENT_BEHIND) => SPENT,
            false => 0,
        }
    }
    fn is_reserved(&self, va: Va) -> bool {
        let area = self.space.areas.find(self.stock.machine, va);
        area.is_some_and(|area| area.flags.reserved().is_some())
    }
}

impl<M: Machine, P: Paging> Edit<P> for Zap<'_, '_, M, P> {
    /// What is noted of a run depends on the bits that walkers set.
    fn ignores(&self) -> u64 {
        0
    }
    fn is_alone(&self) -> bool {
        self.at_end
    }
    fn repeats(&self, attrs: Attrs) -> bool {
        attrs.has(Attrs::SPECIAL)
    }
    fn leaf(&self, at: At, _: u64, pa: Pa, attrs: Attrs) -> Verdict {
        if at.level == Level::BASE {
            return Verdict::Take(self.left());
        }
        if self.guards == Guards::Put {
            return Verdict::Split; // each page becomes a guard
        }
        let is_huge = || self.is_huge(pa.frame()) && self.is_reserved(at.va);
        let is_kept = self.guards == Guards::Keep && !attrs.has(Attrs::SPECIAL);
        Verdict::Take(if is_kept && is_huge() { self.left_of_huge(pa.frame(), attrs) } else { 0 })
    }
    #[inline(always)]
    fn rewrite(&self, at: At, word: u64) -> u64 {
        if at.level == Level::BASE {
            return self.left();
        }
        rewritten(self, at, word)
    }
    fn soft(&self, at: At, soft: Soft) -> Verdict {
        let is_base = at.level == Level::BASE;
        match self.guards {
            _ if soft.is_waited_for() => Verdict::Busy,
            _ if soft.kind == SoftKind::Poison && self.keeps_poison => Verdict::Keep,
            Guards::Keep | Guards::Put if is_base && soft.kind == SoftKind::Guard => Verdict::Keep,
            _ if is_base => Verdict::Put(self.left()),
            Guards::Drop if plain_place(soft.word()) == 0 => Verdict::Put(0),
            Guards::Drop => Verdict::Take(0),
            Guards::Keep | Guards::Put => Verdict::Put(plain_place(soft.word())),
        }
    }
    #[inline(always)]
    fn fills(&self) -> bool {
        self.left() != 0
    }
    fn empty(&self, _: At) -> u64 {
        self.left()
    }
}

/// Takes those leaves out that `leaf` says.
struct Chosen<'c, 'z, 'm, M: Machine, P: Paging, F> {
    zap: &'c Zap<'z, 'm, M, P>,
    keeps_markers: bool,
    leaf: F,
}

impl<M: Machine, P: Paging, F> Edit<P> for Chosen<'_, '_, '_, M, P, F>
where
    F: Fn(At, u64, Pa, Attrs) -> Verdict,
{
    fn ignores(&self) -> u64 {
        self.zap.ignores()
    }
    fn leaf(&self, at: At, word: u64, pa: Pa, attrs: Attrs) -> Verdict {
        (self.leaf)(at, word, pa, attrs)
    }
    fn soft(&self, at: At, soft: Soft) -> Verdict {
        match soft.kind {
            SoftKind::Marker if self.keeps_markers => Verdict::Keep,
            _ => self.zap.soft(at, soft),
        }
    }
}

/// The sink of what is taken out, in runs of at most so many words.
struct Zapped<'t, 'z, 'm, M: Machine, P: Paging, const MOST: usize> {
    zap: &'t Zap<'z, 'm, M, P>,
    gather: &'t mut Gather<'z, 'm, M, P>,
    steps: &'t mut Steps,
    /// What is gone over.
    range: VaRange,
    /// References to one folio that were taken out one after the other.
    run: Option<Unmapped>,
    /// Large leaves taken out whose tables are still kept.
    deposits: u64,
    /// Tables from this level on are still to be removed: the gather was full.
    rest: Option<(Level, Progress)>,
}

impl<'m, M: Machine, P: Paging, const MOST: usize> Sink<M, P> for Zapped<'_, '_, 'm, M, P, MOST> {
    const WAITS: bool = true;

    fn prepare(&mut self) -> bool {
        self.gather.room(DROPS);
        if self.zap.prune != Prune::Keep {
            self.gather.room_for_tables(usize::from(P::LEVELS));
        }
        true
    }
    /// Each word may be another folio's, and the drops of the one before are not on the list yet.
    fn most(&self) -> usize {
        MOST.min(self.gather.left()).min(self.gather.room_left().saturating_sub(1))
    }
    fn add(&mut self, run: Run) {
        let (stock, space) = (self.zap.stock, self.zap.space);
        let What::Mapped { pa, attrs } = run.what else {
            // It is a spent entry: the sink is not told of software words of base level.
            return self.zap.kept.set(self.zap.kept.get() + 1);
        };
        self.gather.note(run.range(), run.level, Used::of(attrs));
        if attrs.has(Attrs::SPECIAL) {
            self.deposits += if run.level > Level::BASE { u64::from(run.count) } else { 0 };
            return;
        }
        let pages = run.range().pages();
        if run.level == Level::BASE {
            space.uncharge(stock.machine.me(), pages.get());
        } else {
            let each = Pages::new(pages.get() / u64::from(run.count));
            (0..run.count).for_each(|n| {
                self.large(pa.frame().add(Pages::new(each.get() * u64::from(n))), each, attrs);
            });
        }
        stock.each_folio(pa.frame(), pages, |head, order, n| {
            let unmapped = Unmapped::of(head, n);
            if order == Order::BASE {
                self.run.take().into_iter().for_each(|run| self.gather.defer(run));
                return self.gather.defer_pages(unmapped);
            }
            join(&mut self.run, self.gather, unmapped);
        });
    }
    fn leave(&mut self, tables: &Tables<'_, M, P>, lock: Locked<'_, M, P>, progress: Progress) {
        self.run.take().into_iter().for_each(|run| self.gather.defer(run));
        self.prune(tables, lock, progress);
    }
    fn between(&mut self, words: u64) {
        let (stock, space) = (self.zap.stock, self.zap.space);
        for _ in 0..core::mem::take(&mut self.deposits) {
            stock.count(Event::TableFreed);
            stock.release_charged(&space.charge, space.withdraw(stock));
        }
        let tables: Tables<'m, M, P> = space.tables(stock);
        while let Some((level, progress)) = self.rest.take() {
            self.gather.room_for_tables(1);
            if let Ok(lock) = tables.lock(progress.from, level) {
                self.prune(&tables, lock, progress);
            }
        }
        self.steps.take_flushed(self.gather, stock.machine, words);
    }
}

impl<M: Machine, P: Paging, const MOST: usize> Zapped<'_, '_, '_, M, P, MOST> {
    /// Removes the table that was gone over, and those above it, where nothing needs them (S2), as
    /// far as there is room.
    fn prune<'l>(
        &mut self,
        tables: &'l Tables<'_, M, P>,
        lock: Locked<'l, M, P>,
        progress: Progress,
    ) {
        let Zap { stock, space, prune, reclaims, .. } = self.zap;
        let (gather, rest, range) = (&mut *self.gather, &mut self.rest, self.range);
        let is_needed = |table: &Locked<'_, M, P>| match table.level() {
            Level::BASE if *reclaims => !range.covers(table.range()),
            _ => space.areas.overlapping(stock.machine, table.range()).next().is_some(),
        };
        tables.prune(lock, progress, *prune, |table| {
            if is_needed(&table) {
                return false;
            }
            if gather.is_full() || !gather.has_room_for_table() {
                *rest = Some((table.level(), progress));
                return false;
            }
            match table.detach(*prune, |range, above| gather.note_table(range, above)) {
                Ok((table, noted)) => {
                    space.charge.uncharge_records(stock.machine.me(), 1);
                    gather.remove_table(table, noted);
                    true
                }
                Err(_) => false,
            }
        });
    }
    /// Counts what goes with the leaf of a whole large page.
    fn large(&mut self, head: Frame, pages: Pages, attrs: Attrs) {
        let Zap { stock, space, kept, .. } = self.zap;
        let me = stock.machine.me();
        if self.zap.is_huge(head) {
            kept.set(kept.get() + u64::from(self.zap.is_used(head, attrs)));
            space.uncount_huge(me, pages.get());
        } else {
            space.uncharge(me, pages.get());
            self.deposits += 1;
        }
    }
}

/// Joins references that were taken out one after the other, while they are of one folio.
fn join<M: Machine, P: Paging>(
    run: &mut Option<Unmapped>,
    gather: &mut Gather<'_, '_, M, P>,
    more: Unmapped,
) {
    let Some(same) = run else { return *run = Some(more) };
    if let Err(other) = same.join(more) {
        gather.defer(core::mem::replace(same, other));
    }
}

/// The first address behind the entry of `level` that covers `va`.
pub(crate) fn behind(va: Va, level: Level) -> Va {
    va.align_down(level.span()).add(level.span().get())
}
