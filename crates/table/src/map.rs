//! Mapping a range of addresses to consecutive frames, with the largest leaves that fit.

use super::attrs::{Attrs, Entry, Slots};
use super::lock::{Gap, Missing};
use super::paging::Paging;
use super::spare::Spare;
use super::tables::{Blocked, Refused, Tables};
use super::word::prepared;
use foliant_claim::Claim;
use foliant_machine::{Cpus, PhysMem, Witness};
use foliant_units::{FRAME_BYTES, Frame, FrameRange, Level, Pa, Va, VaRange};

/// How far a map operation got. Everything below `upto` is mapped, nothing from there on.
#[must_use = "the rest of the range is not mapped"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapped {
    /// The first address that is not mapped; the range's end where all is done.
    pub upto: Va,
    /// Why it ended there.
    pub why: MapStop,
}

/// Why a map operation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapStop {
    /// All is mapped.
    Done,
    /// The stock is empty; a table that holds entries of this level comes next. Refill and map the
    /// rest.
    NeedTable(Level),
    /// Somebody else mapped this address since the operation began.
    Live(Va),
}

/// The request, and how far it is done.
struct Job {
    va: Va,
    end: Va,
    pa: Pa,
    attrs: Attrs,
    largest: Level,
}

impl Job {
    /// The largest level whose leaf fits here.
    fn fit(&self) -> Level {
        let left = self.end.offset_from(self.va);
        let mut level = self.largest;
        while let Some(down) = level.down() {
            let span = level.span();
            if self.va.is_aligned(span) && self.pa.is_aligned(span) && left >= span.get() {
                break;
            }
            level = down;
        }
        level
    }
    fn advance(&mut self, bytes: u64) {
        self.va = self.va.add(bytes);
        self.pa = self.pa.add(bytes);
    }
}

impl<M: PhysMem + Cpus + Witness, P: Paging> Tables<'_, M, P> {
    /// Maps `frames` to the addresses from `at` on, with the largest leaves that fit: [`map`] in
    /// one call. Tables come from `spare`, and where that is empty from `lend`, which gives single
    /// frames with any contents and is called while no table is locked. A frame that is lent and
    /// not needed, because another CPU made the table first, stays in `spare`, as a cleared table.
    ///
    /// Refused as by [`map`], with nothing lent. Where `lend` has none left it ends with
    /// [`MapStop::NeedTable`]; mapping the frames behind `upto` completes it.
    ///
    /// [`map`]: Tables::map
    pub fn map_frames(
        &self,
        at: Va,
        frames: FrameRange,
        attrs: Attrs,
        spare: &mut Spare,
        mut lend: impl FnMut() -> Option<Claim>,
    ) -> Result<Mapped, Refused> {
        let range = VaRange::sized(at, frames.pages().bytes()).ok_or(Refused::Outside(at))?;
        let (mut rest, mut first) = (range, frames.start());
        loop {
            let done = self.map(rest, first, attrs, Level::SIZE_1G, spare)?;
            let MapStop::NeedTable(_) = done.why else { return Ok(done) };
            let Some(claim) = lend() else { return Ok(done) };
            spare.push(prepared(self.machine(), claim)).expect("it is empty, or it would be used");
            rest = VaRange::new(done.upto, range.end()).expect("it goes on inside the range");
            first = Frame::new(frames.start().get() + done.upto.offset_from(at) / FRAME_BYTES);
        }
    }
}

impl<M: PhysMem + Cpus, P: Paging> Tables<'_, M, P> {
    /// Maps `range` to the frames from `first` on, with leaves of `largest` level or below, in
    /// groups where the format has them. An address that is mapped already (or holds a software
    /// word) refuses the whole range before any change.
    ///
    /// Where a table of a lower level is in the way of a larger leaf, even an empty one, the
    /// smaller leaves are used: replacing it would need a flush.
    ///
    /// Needs no flush: only words that were 0 change (machine::M2).
    pub fn map(
        &self,
        range: VaRange,
        first: Frame,
        attrs: Attrs,
        largest: Level,
        spare: &mut Spare,
    ) -> Result<Mapped, Refused> {
        self.check_map(range, first)?;
        let mut job = Job {
            va: range.start(),
            end: range.end(),
            pa: first.pa(),
            attrs: attrs.without(Attrs::GROUPED),
            largest: largest.min(P::LEAF_TOP),
        };
        while job.va < job.end {
            let level = job.fit();
            if let Err(why) = self.map_one_table(&mut job, level, spare) {
                return Ok(Mapped { upto: job.va, why });
            }
        }
        Ok(Mapped { upto: job.va, why: MapStop::Done })
    }
    /// Whether [`map`](Tables::map) would refuse the range.
    pub fn check_map(&self, range: VaRange, first: Frame) -> Result<(), Refused> {
        self.check(range)?;
        let frames = 1u64 << (P::PA_BITS - 12);
        if first.get() >= frames || range.pages().get() > frames - first.get() {
            return Err(Refused::Frames(first));
        }
        match self.leaves(range).next() {
            Some(live) => Err(Refused::Live(live.va.max(range.start()))),
            None => Ok(()),
        }
    }
    /// Maps what lies in the one table of `level` (or below, where a table is in the way).
    fn map_one_table(&self, job: &mut Job, level: Level, spare: &mut Spare) -> Result<(), MapStop> {
        let live = MapStop::Live(job.va);
        let lock = loop {
            match self.lock(job.va, level) {
                Ok(lock) => break lock,
                Err(Missing { what: Gap::None, .. }) => {}
                Err(_) => return Err(live),
            }
            match self.ensure(job.va, level, spare) {
                Ok(()) => {}
                Err(Blocked::NeedTable(made)) => return Err(MapStop::NeedTable(made)),
                Err(_) => return Err(live),
            }
        };
        let first = lock.index_of(job.va);
        let fits = (job.end.offset_from(job.va) / level.span().get()) as usize;
        let room = fits.min(Level::ENTRIES - first.index());
        let slots = Slots::new(first, room).expect("one leaf fits, and lies in the table");
        let free = lock.first_used(slots).map_or(room, |used| used.index() - first.index());
        if let Some(free) = Slots::new(first, free) {
            lock.map(free, job.pa.frame(), job.attrs);
            job.advance(free.len() as u64 * level.span().get());
            return Ok(());
        }
        match (lock.entry(first), level.down()) {
            (Entry::Table(_), Some(down)) => {
                drop(lock);
                self.map_one_table(job, down, spare) // at most as deep as there are levels
            }
            (Entry::None, _) => Ok(()), // the table in the way has just been removed
            _ => Err(live),
        }
    }
}
