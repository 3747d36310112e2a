//! The stock: machine, allocator, descriptors, per-CPU counters and the memory of records, as every
//! later room uses them.
//!
//! One reference to it is what a mechanism needs to take frames, give them back and count what it
//! did.
//!
//! ```text
//!   claim(order) ──▶ descriptors of its block ready ──▶ Claim ──enlist──▶ folio with references
//!                                                           ▲                     │ drop_references, behind the flush
//!                                                           └──── last one ───────┘
//! ```
//!
//! **Invariants**
//! - K1. A frame that gets an identity or references is handed out only after the descriptors of
//!   its 2 MiB block are mapped and its own descriptor is plain (`claim`). They stay mapped while
//!   any frame of the block is out, unless one caller has all of the block: it may take them away
//!   (`memmap`). `claim_undescribed` and `claim_block` hand frames out without: for tables, records
//!   and lent blocks, of which nobody writes a descriptor, and for a caller that sees to the
//!   descriptors itself before it writes any.
//! - K2. Every change of ownership is stated to the machine's witness, in the order that `Witness`
//!   asks for.
//! - K3. Counters are written with one relaxed addition on the calling CPU's lines and summed on
//!   reading; a count of what is alive (folios) may go up on one CPU and down on another.
//!
//! **Not here**: free-block bookkeeping (`folio`), what a descriptor's words mean (`frame`).

mod charge;
mod claims;
mod clear;
mod counters;
mod deferred;
mod describe;
mod guesses;
mod holds;
mod isolated;
mod lent;
mod look;
mod lots;
mod own;
mod pace;
mod pile;
mod reads;
mod records;
mod returned;
mod speculate;
mod stretches;
mod supply;
mod visits;
mod work;
mod zeros;

#[cfg(test)]
pub(crate) mod bare;
#[cfg(all(test, loom))]
pub(crate) mod loom_tests;

pub use counters::{Event, SizeEvent, SizeStats};

pub(crate) use charge::{Charge, NoRecord, OverLimit};
pub use claims::NoBlock;
pub use clear::Tally;
pub(crate) use clear::{clear_bytes, clear_once, clear_range};
pub(crate) use counters::{ANON_ORDERS, PerCpu, or_none};
pub(crate) use describe::{DescribedBy, OWN, SECTION_BYTES, STRETCH_PAGES};
pub(crate) use guesses::GuessCounts;
pub(crate) use holds::{Frozen, Held, NotHeld};
pub(crate) use isolated::Isolated;
pub(crate) use lent::Lent;
pub(crate) use lots::{Lot, Lots};
pub(crate) use own::OwnFrames;
pub use pace::Pace;
pub(crate) use pace::SAMPLE;
pub(crate) use pile::Pile;
pub(crate) use records::{Record, Words, record, records, words};
pub(crate) use speculate::NoAnchor;
pub use speculate::Reference;
pub(crate) use stretches::{Block, Stretch, Stretches};
pub(crate) use supply::{NoTable, Supply};
pub(crate) use visits::Name;
pub(crate) use work::Turn;

use crate::folio::Folios;
use crate::sync::{self, AtomicU64, Grace, Ordering, Outside};
use crate::table::{Paging, Tables};
use deferred::Deferred;
use foliant_machine::Machine;
use foliant_units::{Frame, Order, Va};
use reads::Reads;
use returned::Returned;
pub(crate) use returned::{SUBPOOLS, Subpool};
use work::Work;
use zeros::SharedZeros;

/// The manager that a token is of: no other one of this program has the same, not even a later one
/// on the same memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Brand(u64);

impl Brand {
    fn new() -> Brand {
        static MADE: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(0);
        Brand(MADE.fetch_add(1, core::sync::atomic::Ordering::Relaxed))
    }
}

/// Words of page tables that are read in one section: empty ones count, and tables that are empty
/// are many.
pub(crate) const READ_MOST: u64 = 512;

/// See the module's text.
pub(crate) struct Stock<'m, M, P> {
    pub(crate) machine: &'m M,
    pub(crate) folios: Folios<'m>,
    pub(crate) grace: Grace,
    /// The kernel half's tables.
    pub(crate) kernel: Tables<'m, M, P>,
    /// Entries per flush, 0 for all of an operation; read and written by `flush::FlushGrain`.
    pub(crate) flush_grain: AtomicU64,
    /// The lowest address that an area may have; read and written by `space::ops` and the face.
    pub(crate) lowest: AtomicU64,
    /// How many areas a space may have; read and written by `space::record` and the face.
    pub(crate) area_limit: AtomicU64,
    /// How memory is cleared; read and written by `zero::Clearing`.
    pub(crate) clearing: [AtomicU64; 5],
    /// Operations that have memory in hand; see `work`.
    work: Work,
    /// Where the descriptor array starts.
    pub(crate) array: Va,
    /// Which parts of it are there.
    pub(crate) stretches: Stretches<'m>,
    /// Which blocks are lent.
    lent: Lent<'m>,
    returned: Returned,
    deferred: Deferred,
    pub(crate) zeros: SharedZeros,
    pub(crate) reads: Reads,
    brand: Brand,
    cpus: &'m [PerCpu],
}

impl<'m, M: Machine, P: Paging> Stock<'m, M, P> {
    /// The lowest address of areas to begin with, as Linux's `mmap_min_addr`.
    const LOWEST: u64 = 0x1_0000;

    pub(crate) fn new(
        machine: &'m M,
        folios: Folios<'m>,
        kernel: Tables<'m, M, P>,
        array: Va,
        stretches: Stretches<'m>,
        cpus: &'m [PerCpu],
    ) -> Self {
        let (grace, flush_grain) = (Grace::default(), AtomicU64::new(0));
        let clearing = core::array::from_fn(|_| AtomicU64::new(0));
        let lowest = AtomicU64::new(Stock::<M, P>::LOWEST);
        let (returned, deferred) = (Returned::default(), Deferred::default());
        Stock {
            machine,
            folios,
            grace,
            kernel,
            flush_grain,
            lowest,
            area_limit: AtomicU64::new(u64::MAX),
            clearing,
            work: Work::default(),
            array,
            stretches,
            lent: Lent::new(&[]),
            returned,
            deferred,
            zeros: SharedZeros::default(),
            reads: Reads::default(),
            brand: Brand::new(),
            cpus,
        }
    }

    /// With a place for notes of what is lent, and a page of zeros.
    pub(crate) fn furnished(self, lent: Lent<'m>, zero_page: Frame) -> Self {
        Stock { lent, zeros: SharedZeros::of(zero_page), ..self }
    }
    /// What tells the tokens of this manager from another one's.
    pub(crate) fn brand(&self) -> Brand {
        self.brand
    }

    /// The calling CPU's line.
    pub(crate) fn mine(&self) -> &'m PerCpu {
        &self.cpus[self.machine.me().index()]
    }

    /// Adds `n` to a word of the calling CPU's line.
    #[inline]
    fn add_own(&self, word: impl FnOnce(&'m PerCpu) -> &'m AtomicU64, n: u64) {
        let machine = self.machine;
        machine.pinned(|cpu| sync::add_own(machine, word(&self.cpus[cpu.index()]), n));
    }
    /// Counts `event`.
    pub(crate) fn count(&self, event: Event) {
        self.count_by(event, 1);
    }
    /// Counts `event` `n` times.
    pub(crate) fn count_by(&self, event: Event, n: u64) {
        self.add_own(|cpu| &cpu.events[event as usize], n);
    }
    /// Takes `n` of `event` back: it counts things alive.
    pub(crate) fn uncount_by(&self, event: Event, n: u64) {
        self.count_by(event, n.wrapping_neg());
    }
    /// Counts `event` of a size.
    pub(crate) fn count_size(&self, order: foliant_units::Order, event: SizeEvent) {
        self.count_size_by(order, event, 1);
    }
    /// Counts `n` times `event` of a size.
    pub(crate) fn count_size_by(&self, order: foliant_units::Order, event: SizeEvent, n: u64) {
        if order.index() < ANON_ORDERS {
            self.add_own(|cpu| &cpu.sizes[order.index()][event as usize], n);
        }
    }
    /// Counts `event` of a size, which has a name of its own, `of_2m`, where that is 2 MiB.
    pub(crate) fn count_thp(&self, order: foliant_units::Order, event: SizeEvent, of_2m: Event) {
        self.count_size(order, event);
        if order == foliant_units::Order::SIZE_2M {
            self.count(of_2m);
        }
    }
    /// Takes one `event` of a size back: it counts things alive.
    pub(crate) fn uncount_size(&self, order: foliant_units::Order, event: SizeEvent) {
        self.uncount_size_by(order, event, 1);
    }
    /// Takes `n` of them back.
    pub(crate) fn uncount_size_by(&self, order: foliant_units::Order, event: SizeEvent, n: u64) {
        self.count_size_by(order, event, n.wrapping_neg());
    }
    /// How often `event` was counted.
    pub(crate) fn total(&self, event: Event) -> u64 {
        let counts = self.cpus.iter().map(|c| c.events[event as usize].load(Ordering::Relaxed));
        or_none(counts.fold(0, u64::wrapping_add))
    }
    /// Pages in anonymous folios.
    pub(crate) fn anonymous(&self) -> u64 {
        let alive = |order: Order| self.size_total(order, SizeEvent::NrAnon) * order.pages().get();
        Order::all().take(Order::SIZE_2M.index() + 1).map(alive).sum()
    }
    /// The counts of one size.
    pub(crate) fn size_stats(&self, order: foliant_units::Order) -> SizeStats {
        SizeStats::sum(self.cpus, order)
    }
    /// One count of one size.
    pub(crate) fn size_total(&self, order: Order, event: SizeEvent) -> u64 {
        SizeStats::sum_of(self.cpus, order, event)
    }

    /// Begins a section in which nothing that was reachable is given back.
    pub(crate) fn reading(&self) -> impl Drop + use<'_, 'm, M, P> {
        self.grace.enter(self.machine, |cpu| &self.cpus[cpu.index()].grace)
    }
    /// [`reading`](Self::reading) for a caller that can yield: it cannot as long as the section
    /// lasts.
    pub(crate) fn reading_of<'o>(
        &'o self,
        _outside: &'o mut Outside,
    ) -> impl Drop + use<'o, 'm, M, P> {
        self.reading()
    }
    /// Waits until every section that began earlier has ended, in a grace period that is shared
    /// with all other waiters.
    pub(crate) fn wait_for_readers(&self) {
        let driven = self.grace.wait(self.machine, || self.cpus.iter().map(|cpu| &cpu.grace));
        self.count_by(Event::GracePeriods, driven);
    }
}
