//! `hugetlb`: what it costs to fill and to empty a pool of huge pages whose descriptors are folded.
//! The fold grain is the pages that share a shootdown; folding off is the baseline.
//!
//! ```text
//!   row           the blocks' descriptors at first   filling                   emptying
//!   off           dense, by leaves                   -                         -
//!   grain1        dense, by leaves                   folded, page by page      unfolded, page by page
//!   batched       dense, by leaves                   folded, batch by batch    unfolded, batch by batch
//!   born_folded   absent                             one frame for each page   released, batch by batch
//! ```
//!
//! Each row wants a machine that was just built ([`parts`]): a leaf that was split stays so, and
//! the second row would find less to do. How many leaves there are goes by where the pages lie: at
//! grain 1 each is a shootdown more.
//!
//! Ticks are those that passed for CPU 0, which does all of it; the other CPUs are only asked. With
//! more rounds than one the counts are those of the first, and `nanos` is the median of the later
//! ones: the first finds memory that the host has never used.
//!
//! `descriptor_frames` are those of the pool's pages: 8 or 4096 of each dense one, 1 of each folded
//! one, and the shared one. After each phase the first pages are looked at as a listing would:
//! `heads` and `tails` among their frames.

use crate::named::Named;
use crate::parameters::About;
use crate::{Counted, Counts, Kind, LabError, Parameter, Parameters, PoolStep, Report, Row, Stage};
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use foliant::frame::Kind as FrameKind;
use foliant::memmap::{Batch, Form};
use foliant::pool::{Budget, Folding, ResizeEnd};
use foliant::table::Paging;
use foliant::{Event, FlushGrain, Manager};
use foliant_machine::{Clock, Machine};
use foliant_units::{Bytes, Frame, FrameRange, Order, Pages};

/// Makes a pool larger or smaller, batch by batch.
pub(crate) fn resize<M: Machine, P: Paging>(
    manager: &Manager<'_, M, P>,
    order: Order,
    pages: u64,
    batch: Budget,
) -> Result<(), LabError> {
    loop {
        match manager.resize_pool(order, pages, batch).map(|resized| resized.end) {
            Ok(ResizeEnd::Reached) => return Ok(()),
            Ok(ResizeEnd::Budget) => {}
            Ok(ResizeEnd::NoMemory | ResizeEnd::Superseded) | Err(_) => {
                return Err(LabError::NoMemory);
            }
        }
    }
}

/// How a pool's pages are folded.
const ROWS: &[&str] = &["off", "grain1", "batched", "born_folded"];
/// Frames that are looked at in a listing.
const LISTED: u64 = 64 * 512;
/// Memory of a machine besides the pool: a manager, a kernel, tables.
const BESIDES: Bytes = Bytes::new(96 << 20);

/// See the module's text.
pub(crate) const SCENARIO: About = About {
    name: "hugetlb",
    purpose: "fill and empty a pool of huge pages, their descriptors folded in several ways",
    parameters: &[
        Parameter {
            name: "pages",
            default: "1000",
            kind: Kind::Pages(Pages::new(500_000)),
            about: "how many huge pages",
        },
        Parameter { name: "size", default: "2m", kind: Kind::Huge, about: "their size" },
        Parameter {
            name: "batch",
            default: "1024",
            kind: Kind::Pages(Pages::new(1024)),
            about: "how many the pool takes or gives at once",
        },
        Parameter {
            name: "rows",
            default: "off,grain1,batched,born_folded",
            kind: Kind::Names(ROWS),
            about: "how they are folded; ratios are to off",
        },
        Parameter {
            name: "rounds",
            default: "1",
            kind: Kind::Pages(Pages::new(99)),
            about: "how often each row is run",
        },
    ],
};

/// Each row on its own.
pub(crate) fn parts(parameters: &Parameters) -> Vec<Parameters> {
    parameters.names("rows").iter().map(|row| parameters.with("rows", row)).collect()
}

/// The pool with all its descriptors, aligned as it must be.
pub(crate) fn memory(parameters: &Parameters) -> Bytes {
    let size = parameters.huge("size").bytes().get();
    let pool = (parameters.pages("pages").get() + u64::from(size > Bytes::SIZE_2M.get())) * size;
    // The descriptors of all memory, their own included, and a table for every 128 MiB.
    let memory = pool + pool / 63 + pool / 16384 + BESIDES.get();
    Bytes::new(memory.next_multiple_of(Bytes::SIZE_2M.get()))
}

pub(crate) fn run<'m, S: Stage<'m>>(
    stage: &S,
    parameters: &Parameters,
) -> Result<Report, LabError> {
    let mut rows = Vec::new();
    for name in parameters.names("rows") {
        Pool::new(stage, parameters, name).run(parameters.pages("rounds").get(), &mut rows)?;
    }
    Ok(Report::of(
        (&SCENARIO, parameters),
        stage,
        parameters.huge("size").bytes().to_string(),
        rows,
        Vec::new(),
    ))
}

/// A pool that is filled and emptied in one way. Dropping it empties it and puts the switches back.
struct Pool<'s, 'm, S: Stage<'m>> {
    stage: &'s S,
    manager: &'s Manager<'m, Counted<S::Machine>, S::Paging>,
    name: &'static str,
    order: Order,
    pages: u64,
    batch: Budget,
    had: u64,
    before: (Folding, FlushGrain),
}

#[derive(Clone, Copy)]
enum Phase {
    Fill,
    Drain,
}

/// What happened in one phase.
struct Span {
    machine: Counts,
    frames: [u64; 2],
    elapsed: u64,
    nanos: u64,
    heads: u64,
    tails: u64,
}

impl<'s, 'm, S: Stage<'m>> Pool<'s, 'm, S> {
    fn new(stage: &'s S, parameters: &Parameters, name: &'static str) -> Self {
        let manager = stage.manager();
        let order = parameters.huge("size");
        let had = manager.pool(order).map_or(0, |pool| pool.persistent());
        let before = (manager.folding(), manager.flush_grain());
        manager.set_folding(if name == "off" { Folding::Off } else { Folding::On });
        manager.set_flush_grain(match name {
            "grain1" => FlushGrain::new(1).expect("1 is a grain"),
            _ => FlushGrain::WHOLE,
        });
        let pages = parameters.pages("pages").get();
        let batch = Budget(parameters.pages("batch").get());
        Pool { stage, manager, name, order, pages, batch, had, before }
    }

    fn run(self, rounds: u64, rows: &mut Vec<Row>) -> Result<(), LabError> {
        self.prepare()?;
        // Frames of descriptors that are not those of the pool's pages.
        let dense = self.pages * (self.order.pages().get() / 64);
        let absent = self.name == "born_folded";
        let others = self.frames().saturating_sub(if absent { 0 } else { dense });
        let mut spans = Vec::new();
        for _ in 0..rounds {
            self.stage.go_on()?;
            spans.push([self.phase(Phase::Fill, others)?, self.phase(Phase::Drain, others)?]);
        }
        for (at, phase) in ["fill", "drain"].into_iter().enumerate() {
            let first = &spans[0][at];
            let later = spans.iter().skip(usize::from(rounds > 1)).map(|span| span[at].nanos);
            let mut nanos: Vec<u64> = later.collect();
            nanos.sort_unstable();
            rows.push(Row {
                name: format!("{}, {phase}", self.name).into(),
                counts: Named::from_iter([
                    ("remote_shootdowns", first.machine.shootdowns),
                    ("interrupts", first.machine.interrupts),
                    ("local_invalidations", first.machine.invalidations),
                    ("descriptor_frames_before", first.frames[0]),
                    ("descriptor_frames_after", first.frames[1]),
                    ("heads", first.heads),
                    ("tails", first.tails),
                ]),
                pages: self.pages,
                ticks: Named::from_iter([
                    ("elapsed", first.elapsed),
                    ("nanos", nanos[(nanos.len() - 1) / 2]),
                ]),
            });
        }
        Ok(())
    }

    /// Descriptors as the row wants them at first.
    fn prepare(&self) -> Result<(), LabError> {
        if self.name == "born_folded" {
            self.take_away()
        } else {
            Ok(self.manager.describe_all()?)
        }
    }

    /// Takes the descriptors of free blocks away until the allocator hands out only such.
    fn take_away(&self) -> Result<(), LabError> {
        while self.dense_blocks()? > 0 {}
        Ok(())
    }

    /// Takes as many blocks as the pool will, and gives them back without descriptors: what has
    /// some is folded, which splits the leaf that maps them, and then released. Says how many had
    /// some.
    fn dense_blocks(&self) -> Result<u64, LabError> {
        let memmap = self.manager.memmap();
        let (mut batches, mut claimed, mut dense) = (Vec::new(), 0, 0);
        let mut batch = Batch::new(&memmap);
        while claimed < self.pages
            && let Ok(huge) = memmap.claim(self.order, Form::Folded)
        {
            claimed += 1;
            dense += u64::from(!memmap.is_folded(&huge));
            if let Err(full) = batch.push(huge) {
                batches.push(core::mem::replace(&mut batch, Batch::new(&memmap)));
                let pushed = batch.push(full.huge);
                assert!(pushed.is_ok(), "an empty batch takes a page: {pushed:?}");
            }
        }
        batches.push(batch);
        for mut batch in batches {
            memmap.fold(&mut batch);
            memmap.release(&mut batch);
        }
        if claimed < self.pages { Err(LabError::NoMemory) } else { Ok(dense) }
    }

    /// Makes the pool larger or smaller, batch by batch.
    fn resize(&self, pages: u64) -> Result<(), LabError> {
        resize(self.manager, self.order, self.had + pages, self.batch)
    }

    /// Frames that hold descriptors, the pool's and others.
    fn frames(&self) -> u64 {
        self.manager.total(Event::MemmapPages)
    }

    fn phase(&self, phase: Phase, others: u64) -> Result<Span, LabError> {
        let machine = self.manager.machine();
        let folded = || self.manager.total(Event::Folded) - self.manager.total(Event::BornFolded);
        let (frames, before) = (self.frames().saturating_sub(others), folded());
        let (counts, elapsed, now) = (machine.counts(), self.stage.elapsed(), machine.now());
        match phase {
            Phase::Fill => self.resize(self.pages)?,
            Phase::Drain => self.resize(0)?,
        }
        let nanos = machine.now().0.saturating_sub(now.0);
        let of_2m = self.order.pages().get() >> Order::SIZE_2M.get();
        self.stage.pooled(PoolStep::Fold, (folded() - before) * of_2m);
        match phase {
            Phase::Fill => self.stage.pooled(PoolStep::Fill, self.pages),
            Phase::Drain => self.stage.pooled(PoolStep::Drain, self.pages),
        }
        let elapsed = self.stage.elapsed().saturating_sub(elapsed);
        let counts = machine.counts().since(&counts);
        let (heads, tails) = self.list();
        let frames = [frames, self.frames().saturating_sub(others)];
        Ok(Span { machine: counts, frames, elapsed, nanos, heads, tails })
    }

    /// Heads and tails among the frames of the first huge pages that there are.
    fn list(&self) -> (u64, u64) {
        let (mut heads, mut tails) = (0, 0);
        let size = self.order.pages().get();
        for frame in self.huge_pages().take((LISTED / size).max(1) as usize) {
            for n in 0..size {
                match self.manager.identity(frame.add(Pages::new(n))).kind() {
                    FrameKind::Huge => heads += 1,
                    FrameKind::HugeTail => tails += 1,
                    _ => {}
                }
            }
        }
        (heads, tails)
    }
    fn huge_pages(&self) -> impl Iterator<Item = Frame> {
        let size = self.order.pages().get();
        let aligned = move |range: FrameRange| {
            let start = range.start().get().next_multiple_of(size);
            (start..range.end().get()).step_by(size as usize).map(Frame::new)
        };
        let is_huge = |frame: &Frame| self.manager.identity(*frame).kind() == FrameKind::Huge;
        self.manager.ranges().flat_map(aligned).filter(is_huge)
    }
}

impl<'m, S: Stage<'m>> Drop for Pool<'_, 'm, S> {
    fn drop(&mut self) {
        let emptied = self.resize(0);
        debug_assert!(emptied.is_ok(), "nobody uses a page of the pool: {emptied:?}");
        self.manager.set_folding(self.before.0);
        self.manager.set_flush_grain(self.before.1);
    }
}
