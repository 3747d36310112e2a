//! The face: the calls that an embedder makes.
//!
//! The manager owns the rooms, carries a request from one to the next, and is the only place that
//! knows them all. It borrows the machine and keeps its records in frames of the memory it manages;
//! it needs no heap.
//!
//! **Invariants**
//! - M1. A call that is refused changed nothing; its error names the value that was wrong.
//! - M2. No call panics on the arguments that it is given. The manager panics where one of its own
//!   records contradicts another one.
//! - M3. Every call refuses the name of a space that has ended.
//!
//! **Locking.** Every method takes `&self` and may be called on every CPU at any time. Faults of
//! one space do not exclude each other; changes of its areas do.
//!
//! **Not here**: any mechanism.

mod anchor;
mod audit;
#[cfg(all(test, not(loom), feature = "verify"))]
mod audit_tests;
mod broken;
mod clearing;
mod collapse;
mod compact;
mod fill;
mod kernel;
mod look;
mod object;
#[cfg(all(test, not(loom)))]
mod object_tests;
mod pool;
mod setup;
mod split;
mod vmap;

#[cfg(feature = "verify")]
pub use audit::{Audit, AuditError};

pub use anchor::{Anchor, AnchorError};
pub use broken::{Damage, NotRetired, Poisoned, Retired};
pub use collapse::{CollapseLimits, Scanned};
pub use kernel::{KernelMapError, NotLent};
pub use look::{Entries, KernelTables};
pub use object::{NoPage, ObjectPage};
pub use setup::{BootPages, Setup, SetupError, VmapSetup};
pub use vmap::UserMapError;

use self::pool::Others;
use crate::compact::{self as compaction, Effort};
use crate::fault::{
    Access, Defrag, Demand, Fault, Need, Offers, Outcome, Policy, Refusal, Switches,
};
use crate::flush::{FlushGrain, Target};
use crate::folio::{self, FreeBlocks};
pub use crate::frame::Contents;
use crate::frame::Identity;
use crate::memmap::{self, Memmap};
use crate::pool as pools;
use crate::space::{
    self, Advice, Area, AreaLimit, CopyHuge, Edge, Flags, MapError, MapRequest, Move, RangeError,
    Refs, RemapError, SpaceId, Steps,
};
use crate::stock::{Event, NoRecord, OverLimit, Reference, SizeEvent, SizeStats, Stock, Subpool};
use crate::sync::{AtomicU64, Ordering, Outside, Patient};
use crate::table::{Found, Paging};
use crate::vmap as vmaps;
use core::{error, fmt};
use foliant_machine::{Invalidation, Machine};
use foliant_units::{Bytes, Cpu, FRAME_BYTES, Frame, FrameRange, Order, Pages, Va, VaRange};

/// Bytes that a downward-growing area may reach, and the gap it keeps to the area below.
const GROWTH_MAX: Bytes = Bytes::new(1 << 30);
const GROWTH_GAP: Bytes = Bytes::new(256 * FRAME_BYTES);

/// A huge-page memory manager on machine `M` with page tables of format `P`.
pub struct Manager<'m, M, P> {
    stock: Stock<'m, M, P>,
    switches: Switches,
    /// Those of objects.
    object_switches: Switches,
    /// The first frame number that no memory can have.
    end: Frame,
    /// Kernel addresses that the manager alone maps: descriptors and kernel ranges.
    own: [VaRange; 2],
    /// Held while an embedder's kernel range is mapped or reached, so that nobody else puts leaves
    /// there, and while the first space is made.
    mapping: Patient,
    /// 1 if there are spaces, or were; set by the holder of `mapping`.
    has_spaces: AtomicU64,
    stamps: AtomicU64,
    /// Frames of records that came with memory, and stay.
    homes: AtomicU64,
    /// The CPUs that may have translations of the kernel half.
    kernel: Target,
    memmap: memmap::MemmapState,
    compaction: compaction::CompactState,
    pool: pools::PoolState,
    vmap: vmaps::VmapState,
    /// How much a request for kernel memory may have compacted while it waits.
    vmap_effort: Effort,
}

/// Why a call about a space was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpaceError {
    /// There is no such space (any more).
    NoSpace,
    /// This CPU still runs it.
    Running(Cpu),
    /// No memory for its records or tables.
    NoMemory,
    /// It takes more than this limit on its charge.
    OverLimit(Pages),
}

impl From<NoRecord> for SpaceError {
    fn from(why: NoRecord) -> SpaceError {
        match why {
            NoRecord::Block => SpaceError::NoMemory,
            NoRecord::Limit(OverLimit(limit)) => SpaceError::OverLimit(limit),
        }
    }
}

impl fmt::Display for SpaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpaceError::NoSpace => f.write_str("there is no such address space"),
            SpaceError::Running(cpu) => write!(f, "CPU {} still runs the space", cpu.0),
            SpaceError::NoMemory => f.write_str("no memory for the space's records"),
            SpaceError::OverLimit(limit) => write!(
                f,
                "a limit of {} pages is too low for the space with its tables and records: make it with a higher one",
                limit.get()
            ),
        }
    }
}
impl error::Error for SpaceError {}

/// Where the frames are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// Frames that the allocator owns, free and allocated.
    pub managed: Pages,
    /// Free ones.
    pub free: Pages,
    /// In anonymous folios, mapped or not.
    pub anonymous: Pages,
}

impl<'m, M: Machine, P: Paging> Manager<'m, M, P> {
    /// The allocator, to look at. Blocks are had by [`lend`](Manager::lend).
    pub fn folios(&self) -> folio::View<'_, 'm> {
        self.stock.folios.view()
    }
    /// The machine.
    pub fn machine(&self) -> &'m M {
        self.stock.machine
    }

    /// Makes the calling CPU ready: it runs the kernel's tables, no space. Before, no flush of the
    /// kernel half asks this CPU, so it may use only those kernel addresses that nobody gives back,
    /// whichever tables it runs.
    pub fn online(&self) {
        let machine = self.stock.machine;
        machine.pinned(|me| {
            self.kernel.announce(me);
            let Ok(()) = space::switch(&self.stock, None) else {
                unreachable!("no space is named")
            };
            // What the CPU cached of the kernel half before it was announced may be stale, and a
            // new root ends nothing global. From here on the CPU is asked, and walks these tables.
            machine.invalidate(&Invalidation::all(self.kernel.scope()));
        });
    }

    /// Makes the calling CPU run a space, or none.
    pub fn switch(&self, id: Option<SpaceId>) -> Result<(), SpaceError> {
        loop {
            let reading = self.stock.reading();
            let next = match id {
                Some(id) => Some((id, id.peek(&self.stock).ok_or(SpaceError::NoSpace)?)),
                None => None,
            };
            match space::switch(&self.stock, next) {
                Ok(()) => return Ok(()),
                Err(space::Ending) => {
                    drop(reading); // the call that ends the space waits for readers
                    self.stock.machine.relax();
                }
            }
        }
    }

    /// Makes an empty space. Its charge may not exceed `limit` pages, if there is one: pages that
    /// it maps, but for those of pools, and the tables and records that it causes, beginning with
    /// two for itself.
    pub fn create(&self, limit: Option<Pages>) -> Result<SpaceId, SpaceError> {
        let make = || space::create(&self.stock, self.stamp(), limit);
        self.copying_top(make).map_err(SpaceError::from)
    }
    fn stamp(&self) -> u32 {
        // 0 stands for no space. A stamp repeats after 2^31 - 1 spaces; a name repeats only if the
        // frame is the same too.
        (self.stamps.fetch_add(1, Ordering::Relaxed) % u64::from(u32::MAX >> 1)) as u32 + 1
    }

    /// A second space with the same areas and pages; a page is copied when either side writes it.
    pub fn fork(&self, id: SpaceId) -> Result<SpaceId, SpaceError> {
        self.fork_where(id, &|_| true)
    }
    /// The same, for a caller that knows of some areas that what is present there comes again by a
    /// fault: those for which `shares` says no may be empty in the second space. It is asked with
    /// the space's writer held, more than once of an area perhaps: it calls nothing of the manager.
    pub fn fork_where(
        &self,
        id: SpaceId,
        shares: &dyn Fn(&Area) -> bool,
    ) -> Result<SpaceId, SpaceError> {
        let parent = id.pin(&self.stock).ok_or(SpaceError::NoSpace)?;
        let steps = &mut Steps::at_the_face();
        let copy_huge: &CopyHuge<'_> = &|of, order, outside| self.copy_huge(of, order, outside);
        let means = (shares, copy_huge);
        let done = space::fork(&self.stock, &parent, self.stamp(), means, steps);
        self.collect(); // a child that was only half made gave pages back
        done.map_err(|error| match error {
            RangeError::OverLimit(limit) => SpaceError::OverLimit(limit),
            _ => SpaceError::NoMemory,
        })
    }

    /// Ends a space. No CPU may run it.
    pub fn end(&self, id: SpaceId) -> Result<(), SpaceError> {
        space::end(&self.stock, id, &mut Steps::at_the_face()).map_err(|error| match error {
            space::EndError::NoSpace => SpaceError::NoSpace,
            space::EndError::Running(cpu) => SpaceError::Running(cpu),
        })?;
        self.collect();
        Ok(())
    }

    /// Puts an area into a space. Nothing is present in it yet.
    pub fn map(&self, id: SpaceId, request: &MapRequest) -> Result<VaRange, MapError> {
        let space = id.pin(&self.stock).ok_or(RangeError::NoSpace)?;
        let mut last_look = None;
        let done = loop {
            let done = self.map_once(&space, request);
            if !matches!(done, Err(MapError::NoHugePages(_))) || last_look.is_some() {
                break done;
            }
            last_look = Some(self.stock.last_look(&mut Outside::at_the_face()));
        };
        drop(last_look); // it is held over looks, and over nothing longer (stock::work)
        space::collect(&self.stock, &space);
        self.collect();
        done
    }
    fn map_once(&self, space: &space::Space, request: &MapRequest) -> Result<VaRange, MapError> {
        let _work = request.flags.reserved().map(|_| self.stock.at_work());
        let reserved = self.reserve_pages(space, request, Subpool::NONE)?;
        let done = space::map(&self.stock, space, request, &mut Steps::at_the_face());
        if let (Some((order, pages)), Err(_)) = (reserved, &done) {
            self.pools().unreserve(order, Subpool::NONE, pages);
        }
        done
    }

    /// Takes everything out of a range. Holes are skipped.
    pub fn unmap(&self, id: SpaceId, range: VaRange) -> Result<(), RangeError> {
        let space = id.pin(&self.stock).ok_or(RangeError::NoSpace)?;
        space::unmap(&self.stock, &space, range, &mut Steps::at_the_face())?;
        space::collect(&self.stock, &space);
        self.collect();
        Ok(())
    }

    /// Gives a range other access rights: `READ`, `WRITE`, `EXEC` or none.
    pub fn protect(&self, id: SpaceId, range: VaRange, rights: Flags) -> Result<(), RangeError> {
        let space = id.pin(&self.stock).ok_or(RangeError::NoSpace)?;
        space::protect(&self.stock, &space, range, rights, &mut Steps::at_the_face())
    }

    /// Moves or resizes what lies at `old`, within one area, to `bytes`. Huge pages of a pool move
    /// as they are, to a multiple of their size, with what is reserved for them.
    pub fn remap(
        &self,
        id: SpaceId,
        old: VaRange,
        bytes: Bytes,
        to: Move,
    ) -> Result<VaRange, RemapError> {
        let space = id.pin(&self.stock).ok_or(RangeError::NoSpace)?;
        let done = space::remap(&self.stock, &space, old, bytes, to, &mut Steps::at_the_face());
        space::collect(&self.stock, &space);
        self.collect(); // the target may have been emptied in any case
        done
    }

    /// Takes advice about a range.
    pub fn advise(&self, id: SpaceId, range: VaRange, advice: Advice) -> Result<(), RangeError> {
        {
            let (space, steps) = (id.pin(&self.stock), &mut Steps::at_the_face());
            let space = space.ok_or(RangeError::NoSpace)?;
            if space::advise(&self.stock, &space, range, advice, steps)? > 0 {
                self.regain(&space, range, &mut self.surplus());
            }
        }
        self.collect();
        match advice {
            Advice::PopulateRead => self.populate(id, range, Access::Read),
            Advice::PopulateWrite => self.populate(id, range, Access::Write),
            _ => Ok(()),
        }
    }

    /// Takes the leaf of 2 MiB apart that lies over an address, if one does: its folio stays as it
    /// is, and base entries map it. Refused where the area has huge pages of a pool.
    pub fn cut(&self, id: SpaceId, va: Va) -> Result<(), RangeError> {
        let space = id.pin(&self.stock).ok_or(RangeError::NoSpace)?;
        space::cut(&self.stock, &space, va, &mut Steps::at_the_face())
    }

    /// Forgets that the pages of a range were used, or that they were written: the next use, or the
    /// next write, is noted again. Holes are skipped. A range that begins or ends inside a huge
    /// page of a pool is refused.
    pub fn clear_refs(&self, id: SpaceId, range: VaRange, refs: Refs) -> Result<(), RangeError> {
        let space = id.pin(&self.stock).ok_or(RangeError::NoSpace)?;
        space::clear_refs(&self.stock, &space, range, refs, &mut Steps::at_the_face())
    }

    /// Makes every page of a range present, as if each had been accessed. These accesses are not
    /// counted as faults. Others may run between any two.
    fn populate(&self, id: SpaceId, range: VaRange, access: Access) -> Result<(), RangeError> {
        let (mut va, mut outside) = (range.start(), Outside::at_the_face());
        while va < range.end() {
            outside.yield_now(self.stock.machine);
            let outcome = self.resolve(id, Demand { end: range.end(), ..Demand::page(va, access) });
            va = match outcome {
                Outcome::OverLimit => return Err(self.over_limit(id)),
                Outcome::OutOfMemory | Outcome::NoHugePage(_) => return Err(RangeError::NoMemory),
                Outcome::Refused(Refusal::NoSpace) => return Err(RangeError::NoSpace),
                Outcome::Refused(Refusal::Broken(_)) => return Err(RangeError::Broken(va)),
                Outcome::Refused(_)
                | Outcome::Userfault(_)
                | Outcome::UserfaultWrite(_)
                | Outcome::UserfaultPresent(_) => {
                    return Err(RangeError::Hole(va));
                }
                Outcome::Mapped(order) | Outcome::ZeroPage(order) => {
                    va.align_down(order.bytes()).add(order.bytes().get())
                }
                _ => {
                    let huge = self.area(id, va).and_then(|area| area.flags.huge_order());
                    let bytes = huge.unwrap_or(Order::BASE).bytes();
                    va.align_down(bytes).add(bytes.get())
                }
            };
        }
        Ok(())
    }

    /// That a charge was refused: by a limit, of a space that may have ended since.
    fn over_limit(&self, id: SpaceId) -> RangeError {
        let limit = id.pin(&self.stock).and_then(|space| space.charge.limit());
        limit.map_or(RangeError::NoSpace, RangeError::OverLimit)
    }

    /// Handles a page fault of the space.
    pub fn fault(&self, id: SpaceId, va: Va, access: Access) -> Outcome {
        self.stock.count(Event::Fault);
        self.resolve(id, Demand::page(va, access))
    }
    /// The same for a caller that has something to do first for some areas: where `admits` says no
    /// to the one that contains `va`, the access is refused as [`Refusal::NotAdmitted`] and nothing
    /// comes. It is asked of the area that the page would come by, in a reader's section: it waits
    /// for nobody. An access without an area, or one that is not admitted, is not counted as a
    /// fault: it may be made again.
    pub fn fault_where(
        &self,
        id: SpaceId,
        va: Va,
        access: Access,
        admits: &dyn Fn(&Area) -> bool,
    ) -> Outcome {
        let outcome = self.resolve(id, Demand { admits: Some(admits), ..Demand::page(va, access) });
        if !matches!(outcome, Outcome::Refused(Refusal::NoArea(_) | Refusal::NotAdmitted(_))) {
            self.stock.count(Event::Fault);
        }
        outcome
    }

    #[inline]
    fn resolve(&self, id: SpaceId, demand: Demand<'_>) -> Outcome {
        match self.resolve_once(id, demand) {
            Outcome::Refused(Refusal::NoArea(va)) => self.resolve_grown(id, demand, va),
            outcome => outcome,
        }
    }
    /// The same where no area was found: behind the writer there may be one (fault::E9).
    #[cold]
    #[inline(never)]
    fn resolve_grown(&self, id: SpaceId, demand: Demand<'_>, va: Va) -> Outcome {
        let mut outcome = Outcome::Refused(Refusal::NoArea(va));
        while let Outcome::Refused(Refusal::NoArea(_)) = outcome
            && self.grow(id, demand.va).is_some()
        {
            outcome = self.resolve_once(id, demand);
        }
        outcome
    }

    #[inline]
    fn resolve_once(&self, id: SpaceId, demand: Demand<'_>) -> Outcome {
        let mut outside = Outside::at_the_face();
        let outcome = match self.look(id, demand, &mut outside) {
            Outcome::OutOfMemory | Outcome::OverLimit | Outcome::NoHugePage(_) => {
                self.look_once_more(id, demand, &mut outside)
            }
            outcome => outcome,
        };
        self.pools().collect();
        if let Outcome::Mapped(_) = outcome
            && self.switches.snapshot().has_auto()
        {
            self.tend();
        }
        outcome
    }
    /// The last look of a fault that was refused memory (fault::E7). A huge page may be taken from
    /// others for it, and it looks again then.
    #[cold]
    #[inline(never)]
    fn look_once_more(&self, id: SpaceId, demand: Demand<'_>, outside: &mut Outside) -> Outcome {
        let mut others = Others::Had;
        loop {
            let _looking = self.stock.last_look(outside);
            let last = self.look(id, demand, outside);
            let Outcome::NoHugePage(order) = last else { return last };
            if others == Others::HadNot {
                return last;
            }
            // Those that had it may have let go by now, so it looks again in any case.
            others = self.take_from_others(id, demand, order, outside);
        }
    }
    /// Looks at some folios that wait to be split, where too much may be idle (fault::tuned).
    #[inline(never)]
    fn tend(&self) {
        if self.stock.guess_counts().is_tight() {
            let _work = self.stock.at_work();
            self.splitter().tend(&mut Outside::at_the_face());
        }
    }
    /// Runs a fault to its end. It has nothing in hand then.
    #[inline]
    pub(super) fn look(&self, id: SpaceId, demand: Demand<'_>, outside: &mut Outside) -> Outcome {
        let offers = Offers::default();
        match self.attempt(id, demand, &offers, outside) {
            Ok(outcome) if outcome != Outcome::OutOfMemory && offers.are_untouched() => outcome,
            first => {
                let outcome = self.go_on(id, demand, &offers, outside, first);
                self.withdraw_offers(&offers);
                outcome
            }
        }
    }
    /// Runs a fault that has `got` so far to its end, with all that it needs on the way.
    #[inline(never)] // most faults need nothing
    fn go_on(
        &self,
        id: SpaceId,
        demand: Demand<'_>,
        offers: &Offers,
        outside: &mut Outside,
        got: Result<Outcome, Need>,
    ) -> Outcome {
        let mut got = got;
        loop {
            match got {
                Ok(Outcome::OutOfMemory) if self.relieve() => {}
                Ok(outcome) => return outcome,
                Err(need) => match self.supply((id, demand.va), need, offers, outside) {
                    Ok(()) => {}
                    Err(outcome) => return outcome,
                },
            }
            got = self.attempt(id, demand, offers, outside);
        }
    }
    /// Runs a fault as far as it goes with what it has.
    #[inline(always)]
    fn attempt(
        &self,
        id: SpaceId,
        demand: Demand<'_>,
        offers: &Offers,
        outside: &mut Outside,
    ) -> Result<Outcome, Need> {
        let _reading = self.stock.reading_of(outside);
        let Some(space) = id.peek(&self.stock) else {
            return Ok(Outcome::Refused(Refusal::NoSpace));
        };
        let switches = if id.is_object() { &self.object_switches } else { &self.switches };
        Fault::new(&self.stock, space, switches, demand, offers).run()
    }

    /// Extends the area above `va` downwards to it, if it grows and the gap below stays, or finds
    /// that `va` lies in an area.
    fn grow(&self, id: SpaceId, va: Va) -> Option<()> {
        let space = id.pin(&self.stock)?;
        space::grow(&self.stock, &space, va, GROWTH_MAX, GROWTH_GAP, &mut Steps::at_the_face())
    }

    /// The area at `va`, behind the writer of the space (space::S13).
    pub(super) fn settled_area(&self, id: SpaceId, va: Va, outside: &mut Outside) -> Option<Area> {
        let space = id.pin(&self.stock)?;
        space::settled_area(&self.stock, &space, va, outside)
    }

    /// The area that contains `va`. It waits for nobody: one that is moved, or is about to be
    /// refused to be, is at neither place meanwhile.
    pub fn area(&self, id: SpaceId, va: Va) -> Option<Area> {
        let _reading = self.stock.reading();
        id.peek(&self.stock)?.areas.find(self.stock.machine, va)
    }
    /// The first area that ends above `va`: for listing them all.
    pub fn area_at_or_after(&self, id: SpaceId, va: Va) -> Option<Area> {
        let _reading = self.stock.reading();
        id.peek(&self.stock)?.areas.at_or_after(self.stock.machine, va)
    }
    /// The first area that ends above `va`, between the one before it and the one behind it, which
    /// were there together. Where there is none, the last one of all comes first.
    pub fn areas_around(&self, id: SpaceId, va: Va) -> [Option<Area>; 3] {
        let _reading = self.stock.reading();
        let Some(space) = id.peek(&self.stock) else { return [None; 3] };
        space.areas.around(self.stock.machine, va)
    }
    /// Where nothing lies, in whole pages: of the gaps in `within` that have room for so many bytes
    /// the one nearest to an edge, and the room at that edge of it. What grows down may want some
    /// of it. A writer may be there first.
    pub fn room(&self, id: SpaceId, bytes: Bytes, within: VaRange, from: Edge) -> Option<Va> {
        let space = id.pin(&self.stock)?;
        space::room(&self.stock, &space, (bytes, within, from), &mut Steps::at_the_face())
    }
    /// Areas in order, from the first one that ends above `va` on, as many as are had at once; says
    /// how many, and none where there is none. They were there together; those behind the last one
    /// are asked for by its end.
    pub fn areas_at_or_after(&self, id: SpaceId, va: Va, into: &mut [Option<Area>]) -> usize {
        let _reading = self.stock.reading();
        let Some(space) = id.peek(&self.stock) else { return 0 };
        space.areas.some_at_or_after(self.stock.machine, va, into)
    }
    /// Pages that the space maps, one per entry.
    pub fn pages(&self, id: SpaceId) -> Option<Pages> {
        let _reading = self.stock.reading();
        Some(id.peek(&self.stock)?.pages())
    }
    /// Frames of page tables and records that are charged to the space. The space's limit covers
    /// these and its [`pages`](Manager::pages) together, but for pages of pools.
    pub fn records(&self, id: SpaceId) -> Option<Pages> {
        let _reading = self.stock.reading();
        Some(id.peek(&self.stock)?.charge.records())
    }
    /// Tables of the space below its top one, counted by looking; those that are kept for splits of
    /// large leaves are not among them.
    pub fn tables(&self, id: SpaceId) -> Option<Pages> {
        look::count_tables(&self.stock, id)
    }
    /// The entry that translates an address, or the one where the walk ends, as it was when it was
    /// read; none where there is no such space. An address of the other half reads as nothing.
    pub fn walk(&self, id: SpaceId, va: Va) -> Option<Found> {
        let _reading = self.stock.reading();
        Some(id.peek(&self.stock)?.tables(&self.stock).walk(va))
    }
    /// Has the entries of a range read, if there is such a space. The reader gets copies, because
    /// the entries may change meanwhile; it may do anything.
    pub fn with_leaves<R>(
        &self,
        id: SpaceId,
        range: VaRange,
        read: impl FnOnce(Entries<'_, 'm, M, P>) -> R,
    ) -> Option<R> {
        {
            let _reading = self.stock.reading();
            id.peek(&self.stock)?;
        }
        Some(read(Entries::new(&self.stock, look::Whose::Space(id), range)))
    }

    /// The switches of folio sizes.
    pub fn policy(&self) -> Policy {
        self.switches.load()
    }
    /// Sets them. Faults at work keep what they saw, unless they begin anew (fault::E2).
    pub fn set_policy(&self, policy: Policy) {
        self.switches.store(policy);
    }
    /// The switches of sizes for folios of objects (`shmem_enabled`).
    pub fn object_policy(&self) -> Policy {
        self.object_switches.load()
    }
    /// Sets them, as [`set_policy`](Manager::set_policy).
    pub fn set_object_policy(&self, policy: Policy) {
        self.object_switches.store(policy);
    }
    /// What a fault does where no block is free for a large folio.
    pub fn defrag(&self) -> Defrag {
        self.switches.defrag()
    }
    /// Sets it. Faults at work keep what they saw, unless they begin anew (fault::E2).
    pub fn set_defrag(&self, defrag: Defrag) {
        self.switches.set_defrag(defrag);
    }
    /// The lowest address that a new area may have.
    pub fn lowest_address(&self) -> Va {
        Va::new(self.stock.lowest.load(Ordering::Relaxed))
    }
    /// Sets it, as Linux's `vm.mmap_min_addr`; it is 64 KiB to begin with. No area is made, moved
    /// or extended below it, wherever the request says that it goes. So a null pointer that a
    /// program or the kernel follows leads to nothing. Areas that are there stay. With 0 a request
    /// may name every address of the user half; for a request that names none, no address below 64
    /// KiB is chosen.
    pub fn set_lowest_address(&self, va: Va) {
        self.stock.lowest.store(va.get(), Ordering::Relaxed);
    }
    /// How many areas a space may have.
    pub fn area_limit(&self) -> AreaLimit {
        AreaLimit(self.stock.area_limit.load(Ordering::Relaxed))
    }
    /// Sets it, for all spaces at once, as Linux's `vm.max_map_count`. A space that has more keeps
    /// them, and gets no further one.
    pub fn set_area_limit(&self, limit: AreaLimit) {
        self.stock.area_limit.store(limit.0, Ordering::Relaxed);
    }
    /// How many entries one flush covers.
    pub fn flush_grain(&self) -> FlushGrain {
        FlushGrain::load(&self.stock)
    }
    /// Sets it. Operations at work keep what they saw.
    pub fn set_flush_grain(&self, grain: FlushGrain) {
        grain.store(&self.stock);
    }
    /// Switches large folios off (or back on) for one process; a fork inherits it.
    pub fn set_process_switch(
        &self,
        id: SpaceId,
        switch: crate::fault::ProcessSwitch,
    ) -> Result<(), SpaceError> {
        let space = id.pin(&self.stock).ok_or(SpaceError::NoSpace)?;
        space.set_thp(switch);
        Ok(())
    }

    /// How often something was counted, on all CPUs.
    pub fn total(&self, event: Event) -> u64 {
        self.stock.total(event)
    }
    /// The counters of one folio size, 4 KiB to 2 MiB; zero above.
    pub fn size_stats(&self, order: Order) -> SizeStats {
        self.stock.size_stats(order)
    }
    /// One of the counters that [`size_stats`](Self::size_stats) reads, where the others are not
    /// wanted.
    pub fn size_total(&self, order: Order, event: SizeEvent) -> u64 {
        self.stock.size_total(order, event)
    }
    /// Pages of folios whose size the manager chose ([`Size::Auto`](crate::fault::Size)) that are
    /// not known to be used.
    pub fn idle(&self) -> Pages {
        Pages::new(self.stock.idle())
    }
    /// Pages in anonymous folios.
    pub fn anonymous(&self) -> Pages {
        Pages::new(self.stock.anonymous())
    }
    /// Where the frames are. Reads one word per 2 MiB of memory, and 16 more where the 2 MiB are
    /// partly used.
    pub fn memory(&self) -> Memory {
        let folios = &self.stock.folios;
        let managed = folios.ranges().map(|r| r.pages().get()).sum();
        Memory {
            managed: Pages::new(managed),
            free: folios.free_frames(),
            anonymous: self.anonymous(),
        }
    }
    /// Free blocks by order.
    pub fn free_blocks(&self) -> FreeBlocks {
        self.stock.folios.census()
    }

    /// The descriptor array: huge pages whose descriptors take one frame.
    pub fn memmap(&self) -> Memmap<'_, 'm, M, P> {
        Memmap::new(&self.stock, &self.kernel, &self.memmap)
    }
    /// The identity of a frame at this moment, for walkers of frame numbers: any number may be
    /// asked for. Free frames, tables and records are plain.
    pub fn identity(&self, frame: Frame) -> Identity {
        self.stock.look(frame)
    }
    /// A reference to the folio that holds `frame`, unless the folio has no reference: for walkers
    /// of frame numbers that want to keep the folio that they found. A reference keeps memory, and
    /// no place: the folio is not given back, moved or split, but a program may unmap it. A program
    /// that shares the folio after a fork and writes to it gets a copy at its address, even while a
    /// reference to the original is held; [`anchor`](Manager::anchor) keeps the place too.
    pub fn reference(&self, frame: Frame) -> Option<Reference<'_, 'm, M, P>> {
        self.stock.get_unless_zero(frame)
    }

    /// The ranges of memory it manages.
    pub fn ranges(&self) -> impl Iterator<Item = FrameRange> {
        self.stock.folios.ranges()
    }
}
