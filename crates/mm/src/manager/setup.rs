#![allow(unsafe_code)]
//! Building a manager from lent memory.

use super::{Contents, Manager};
use crate::compact::{self as compaction, Effort};
use crate::fault::{Policy, Switches};
use crate::flush::Target;
use crate::folio::{CpuCount, Folios, Known, Newcomer, RegionError, ReserveError, Word};
use crate::frame::{Claim, DESCRIPTOR_BYTES};
use crate::memmap;
use crate::pool::{self, Folding};
use crate::space::AreaLimit;
use crate::stock::{
    Lent, NoBlock, NoTable, PerCpu, SECTION_BYTES, Stock, Stretches, Supply, records,
};
use crate::sync::{AtomicU64, Ordering, Patient};
use crate::table::{Half, Paging, Tables};
use crate::vmap::{self, Controls};
use core::{error, fmt};
use foliant_machine::{Machine, Owner};
use foliant_units::{
    Bytes, Cpu, FRAME_BYTES, Frame, FrameRange, Level, Node, Order, Pa, Pages, VaRange,
};

/// Addresses for kernel ranges, at least.
const VMAP_LEAST: Bytes = Bytes::new(4 << 30);

/// What a manager starts with.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// The memory to manage; ranges that do not overlap, holes between them.
    pub memory: &'a [FrameRange],
    /// The node of each range; node 0 where the list ends early.
    pub nodes: &'a [Node],
    /// The contents of all of it that is not reserved.
    pub contents: Contents,
    /// Parts of it that are in use already: the kernel's image, boot modules.
    pub reserved: &'a [FrameRange],
    /// The first frame number that will never be added later; 0 for none beyond `memory`.
    pub added_below: Frame,
    /// The top table that the kernel runs already, with its own words in the kernel half. The
    /// manager's top table repeats them; none may lie where the descriptor array goes, at the start
    /// of the half. They cannot change later.
    pub kernel_top: Option<Pa>,
    /// The switches of folio sizes.
    pub policy: Policy,
    /// Huge pages that are put into the pools before anything else takes memory.
    pub boot: BootPages,
    /// Where kernel ranges go and how they are mapped.
    pub vmap: VmapSetup,
    /// How many areas a space may have ([`Manager::set_area_limit`]).
    pub areas: AreaLimit,
}

impl<'a> Setup<'a> {
    /// Takes all of `memory` on one node, with unknown contents, nothing reserved, nothing added
    /// later, no pools, and areas as Linux limits them.
    pub const fn of(memory: &'a [FrameRange], policy: Policy) -> Setup<'a> {
        Setup {
            memory,
            nodes: &[],
            contents: Contents::Any,
            reserved: &[],
            added_below: Frame::new(0),
            kernel_top: None,
            policy,
            boot: BootPages { size_2m: 0, size_1g: 0, folding: Folding::Off },
            vmap: VmapSetup::DEFAULT,
            areas: AreaLimit::LINUX,
        }
    }
}

/// The kernel's virtual ranges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VmapSetup {
    /// Their addresses in the kernel half: whole spans of top-level entries in which nothing else
    /// lies. Without any they are put behind the descriptor array, with room for four times the
    /// memory.
    pub range: Option<VaRange>,
    /// The switches to begin with.
    pub controls: Controls,
    /// How much may be compacted for a request that finds no block for a leaf of 2 MiB, while it
    /// waits. With [`Effort::NONE`] the request gets smaller leaves at once.
    pub effort: Effort,
}

impl VmapSetup {
    /// Behind the descriptor array, with large leaves, and a short wait for them.
    pub const DEFAULT: VmapSetup =
        VmapSetup { range: None, controls: Controls::DEFAULT, effort: Effort::KERNEL };
}

/// Huge pages from the start: as many of each size as there are blocks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BootPages {
    /// Pages of 2 MiB.
    pub size_2m: u64,
    /// Pages of 1 GiB; they come first.
    pub size_1g: u64,
    /// Whether huge pages give their descriptors back, from the start.
    pub folding: Folding,
}

/// Why no manager was built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetupError {
    /// The ranges are none that can be managed.
    Memory(RegionError),
    /// A reserved range is not part of the memory.
    Reserved(ReserveError),
    /// This many contiguous pages are not to be had for the manager's records.
    TooSmall(Pages),
    /// A frame number lies beyond what the page-table format can name.
    Beyond(Frame),
    /// This is no range for the kernel's addresses: it leaves the half, cuts a top-level entry, or
    /// something lies there, if only the descriptors.
    VmapRange(VaRange),
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetupError::Memory(error) => error.fmt(f),
            SetupError::Reserved(error) => error.fmt(f),
            SetupError::TooSmall(pages) => {
                write!(
                    f,
                    "no {} free pages in a row for the records; lend more memory",
                    pages.get()
                )
            }
            SetupError::Beyond(frame) => write!(f, "frame {frame} lies beyond the format's reach"),
            SetupError::VmapRange(range) => write!(
                f,
                "{range:?} is no range for kernel addresses: give whole top-level entries of the kernel half, \
                 behind the descriptors, in which nothing is mapped"
            ),
        }
    }
}
impl error::Error for SetupError {}
impl From<RegionError> for SetupError {
    fn from(error: RegionError) -> SetupError {
        SetupError::Memory(error)
    }
}

/// Bits of a frame number in the manager's records, as `frame::Origin`: 4 PiB.
const FRAME_BITS: u32 = 40;

/// The records that are there from the start, in contiguous frames.
struct Layout {
    cpus: u64,
    words: u64,
    stretches: u64,
    lent: u64,
}

/// The records among them that describe memory and CPUs.
struct Lines<'m> {
    described: &'m [AtomicU64],
    lent: &'m [AtomicU64],
    cpus: &'m [PerCpu],
    frames: Pages,
}

impl Layout {
    fn page_up(bytes: u64) -> u64 {
        bytes.next_multiple_of(FRAME_BYTES)
    }
    fn per_cpu(&self) -> u64 {
        Layout::page_up(self.cpus * size_of::<PerCpu>() as u64)
    }
    fn described(&self) -> u64 {
        Layout::page_up((self.stretches + self.lent) * 8)
    }
    fn bytes(&self) -> u64 {
        self.per_cpu() + self.described() + Layout::page_up(self.words * 8)
    }
}

impl<'m, M: Machine, P: Paging> Manager<'m, M, P> {
    /// Makes a manager of the lent memory. Its records take about 1/8000 of it at once, and
    /// descriptors 1/64 of the memory that is used. The calling CPU is made ready; every other CPU
    /// calls [`online`](Manager::online) before anything else.
    pub fn new(machine: &'m M, setup: &Setup<'_>) -> Result<Manager<'m, M, P>, SetupError> {
        let cpus = CpuCount(u16::try_from(machine.count()).unwrap_or(u16::MAX));
        let end = setup.memory.iter().map(|r| r.end()).max().unwrap_or_default();
        let end = end.max(setup.added_below);
        if end.get() > 1 << (P::PA_BITS - 12).min(FRAME_BITS) {
            return Err(SetupError::Beyond(end));
        }
        let ranges = vmap_range::<P>(setup, end)?; // before anything is written
        let plan = Layout {
            cpus: cpus.0 as u64,
            words: Folios::layout_on(setup.memory, setup.nodes, cpus)?.0,
            stretches: Stretches::words(end),
            lent: Lent::words(end),
        };
        let home = home(setup, Pages::new(plan.bytes() / FRAME_BYTES))
            .ok_or(SetupError::TooSmall(Pages::new(plan.bytes() / FRAME_BYTES)))?;
        crate::stock::clear_range(machine, home);
        machine.owned(home, Owner::Records);
        let at = |offset: u64| home.start().pa().add(offset);
        let cpu_lines: &[PerCpu] = records(machine, at(0), plan.cpus as usize);
        let described: &[AtomicU64] =
            records(machine, at(plan.per_cpu()), (plan.stretches + plan.lent) as usize);
        let (described, lent) = described.split_at(plan.stretches as usize);
        let meta: &[Word] =
            records(machine, at(plan.per_cpu() + plan.described()), plan.words as usize);
        let folios = Folios::new_on(setup.memory, setup.nodes, cpus, meta)?;
        if setup.contents == Contents::Zero {
            setup.memory.iter().for_each(|range| folios.declare_zero(*range));
        }
        for range in setup.reserved.iter().chain([&home]) {
            folios.reserve(*range).map_err(SetupError::Reserved)?;
        }
        for range in setup.reserved {
            machine.owned(*range, Owner::Reserved);
        }
        Manager::furnish(
            machine,
            folios,
            Lines { described, lent, cpus: cpu_lines, frames: home.pages() },
            setup,
            (end, ranges),
        )
    }

    /// Makes the kernel half's top table and the zero page.
    fn furnish(
        machine: &'m M,
        folios: Folios<'m>,
        lines: Lines<'m>,
        setup: &Setup<'_>,
        (end, ranges): (Frame, VaRange),
    ) -> Result<Manager<'m, M, P>, SetupError> {
        let none = SetupError::TooSmall(Pages::new(2));
        let page = |owner| {
            let class = crate::folio::Class::Table;
            let frame = folios.alloc(machine.me(), Order::BASE, class).map_err(|_| none)?;
            // SAFETY: the allocator handed it out just now, before there is a stock.
            let claim = unsafe { Claim::taken(frame, Order::BASE) };
            machine.owned(claim.frames(), Owner::Claimed);
            crate::stock::clear_range(machine, claim.frames());
            machine.owned(claim.frames(), owner);
            Ok::<Frame, SetupError>(claim.into_raw().0)
        };
        let (root, zero_page) = (page(Owner::Table)?, page(Owner::Zero)?);
        // SAFETY: cleared, and a top table from here on.
        let kernel = unsafe { Tables::adopt(machine, root.pa(), Half::Kernel) };
        if let Some(top) = setup.kernel_top {
            // SAFETY: as the embedder says of it.
            kernel.share_kernel(&unsafe { Tables::adopt(machine, top, Half::Kernel) });
        }
        let array = P::half(Half::Kernel).0;
        let stretches = Stretches::new(lines.described);
        let stock = Stock::new(machine, folios, kernel, array, stretches, lines.cpus)
            .furnished(Lent::new(lines.lent), zero_page);
        let array = array_range::<P>(end)?;
        let manager = Manager {
            stock,
            end,
            own: [array, ranges],
            mapping: Patient::default(),
            has_spaces: AtomicU64::new(0),
            switches: Switches::new(setup.policy),
            object_switches: Switches::new(Policy::BASE_ONLY),
            stamps: AtomicU64::new(0),
            homes: AtomicU64::new(lines.frames.get()),
            kernel: Target::kernel(),
            memmap: memmap::MemmapState::default(),
            compaction: compaction::CompactState::default(),
            pool: pool::PoolState::default(),
            vmap: vmap::VmapState::new(ranges, setup.vmap.controls),
            vmap_effort: setup.vmap.effort,
        };
        manager.set_area_limit(setup.areas);
        manager.reach(array, end)?;
        manager.check_empty(ranges)?;
        manager.reach(ranges, end)?;
        manager.online();
        manager.fill_pools(&setup.boot);
        Ok(manager)
    }

    /// Refuses a range in which the kernel that was there before has something.
    fn check_empty(&self, range: VaRange) -> Result<(), SetupError> {
        let mut va = range.start();
        while va < range.end() {
            if self.stock.kernel.walk(va).level < P::TOP {
                return Err(SetupError::VmapRange(range));
            }
            va = va.add(P::TOP.span().get());
        }
        Ok(())
    }

    /// Makes the tables that hang in the kernel's top table for the descriptor array or for kernel
    /// ranges. Spaces copy the top table when they are made, so its words must not change
    /// afterwards.
    fn reach(&self, range: VaRange, end: Frame) -> Result<(), SetupError> {
        let (stock, below_top) = (&self.stock, Level(P::LEVELS - 2));
        let mut supply = Supply::of_kernel(stock);
        let done = supply.ensure_range(&stock.kernel, range, below_top, || ());
        done.map_err(|why| match why {
            NoTable::Record(_) => SetupError::TooSmall(Pages::new(1)),
            NoTable::Blocked(_) => SetupError::Beyond(end),
        })
    }
}

/// Where the descriptor array lies, in whole sections, if the kernel half has room for it.
pub(super) fn array_range<P: Paging>(end: Frame) -> Result<VaRange, SetupError> {
    let (array, last) = P::half(Half::Kernel);
    let bytes = end.get().checked_add(1).and_then(|n| n.checked_mul(DESCRIPTOR_BYTES.get()));
    let upto = bytes.and_then(|bytes| array.checked_add(bytes)?.align_up(SECTION_BYTES));
    let upto = upto.filter(|upto| *upto <= last);
    upto.and_then(|upto| VaRange::new(array, upto)).ok_or(SetupError::Beyond(end))
}

/// Where kernel ranges lie.
fn vmap_range<P: Paging>(setup: &Setup<'_>, end: Frame) -> Result<VaRange, SetupError> {
    let span = P::TOP.span();
    let array_end = array_range::<P>(end)?.end();
    let array_end = array_end.align_up(span).ok_or(SetupError::Beyond(end))?;
    let range = match setup.vmap.range {
        Some(range) => range,
        None => {
            let wanted = (end.pa().get().saturating_mul(4)).max(VMAP_LEAST.get());
            let room = P::half(Half::Kernel).1.offset_from(array_end) / 2;
            let bytes = wanted.next_multiple_of(span.get()).min(room / span.get() * span.get());
            VaRange::sized(array_end, Bytes::new(bytes)).ok_or(SetupError::Beyond(end))?
        }
    };
    let fits = P::outside(Half::Kernel, range).is_none() && range.start() >= array_end;
    if range.is_empty() || !fits || !range.is_aligned(span) {
        return Err(SetupError::VmapRange(range));
    }
    Ok(range)
}

/// Where the first records go: the highest place at the end of a range, or just below reserved
/// frames of one, that lies in the range and in which nothing is reserved.
fn home(setup: &Setup<'_>, pages: Pages) -> Option<FrameRange> {
    let fits = |range: &FrameRange| {
        let start = range.end().get().checked_sub(pages.get())?;
        let home = FrameRange::new(Frame::new(start), pages)?;
        let free = !setup.reserved.iter().any(|r| r.overlaps(home));
        (start >= range.start().get() && free).then_some(home)
    };
    // Reserved ranges at a range's end leave the places just below them, of which the highest that
    // fits is taken.
    let candidates = setup.memory.iter().flat_map(|range| {
        let below = setup.reserved.iter().filter(|r| r.overlaps(*range)).map(move |r| {
            let end = r.start().max(range.start());
            let pages = Pages::new(end.get() - range.start().get());
            FrameRange::new(range.start(), pages).unwrap_or_default()
        });
        core::iter::once(*range).chain(below)
    });
    candidates.filter_map(|range| fits(&range)).max_by_key(|home| home.start())
}

impl<M: Machine, P: Paging> Manager<'_, M, P> {
    /// Takes more memory of node 0 in while the manager is in use. Its records come out of the
    /// range itself.
    pub fn add_memory(&self, range: FrameRange) -> Result<(), SetupError> {
        self.add_memory_of(range, Node(0), Contents::Any)
    }

    /// [`add_memory`](Manager::add_memory) of any node, and of memory whose contents are known.
    pub fn add_memory_of(
        &self,
        range: FrameRange,
        node: Node,
        contents: Contents,
    ) -> Result<(), SetupError> {
        let words = Folios::layout_added(range)?.0;
        let bytes = Layout::page_up(words * 8);
        let pages = Pages::new(bytes / FRAME_BYTES);
        let home = range.end().get().checked_sub(pages.get()).map(Frame::new);
        let home = home
            .filter(|start| *start > range.start())
            .and_then(|start| FrameRange::new(start, pages))
            .ok_or(SetupError::TooSmall(pages))?;
        if range.end() > self.end {
            return Err(SetupError::Beyond(range.end()));
        }
        let newcomer: Newcomer<'_, '_> = self.stock.folios.admit(range, node)?;
        let machine = self.stock.machine;
        // Nobody else has begun to use it (folio::setup::I3).
        crate::stock::clear_range(machine, home);
        machine.owned(home, Owner::Records);
        let meta: &[Word] = records(machine, home.start().pa(), words as usize);
        let known = match contents {
            Contents::Zero => Known::Zero,
            Contents::Any => Known::Nothing,
        };
        self.homes.fetch_add(home.pages().get(), Ordering::Relaxed);
        newcomer.publish(known, meta, Some(home)).map_err(SetupError::Memory)
    }

    /// Maps the descriptors of all memory now. Otherwise they come when the first frame of a
    /// section or a block is handed out. This is for callers that want no such first time in a
    /// fault, or that compare faults.
    pub fn describe_all(&self) -> Result<(), SetupError> {
        let few = |none: NoBlock| SetupError::TooSmall(none.order.pages());
        self.ranges().try_for_each(|range| self.stock.describe(range).map_err(few))
    }

    /// How many CPUs the manager was built for.
    pub fn cpus(&self) -> impl Iterator<Item = Cpu> {
        (0..self.stock.machine.count()).map(|n| Cpu(n as u16))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::table::{Sv39, X86_64};

    /// Kernel ranges have four times the addresses that memory has, where the format has so many;
    /// else half of what is left beside the descriptors.
    #[test]
    fn kernel_ranges_have_room_and_leave_some() {
        let memory = [FrameRange::new(Frame::new(0), Pages::new(1)).unwrap()];
        let setup = Setup::of(&memory, crate::Policy::BASE_ONLY);
        let (end, gb) = (Pa::new(64 << 30).frame(), 1u64 << 30);
        let large = vmap_range::<X86_64<4>>(&setup, end).unwrap();
        assert_eq!(large.bytes().get(), X86_64::<4>::TOP.span().get());
        let small = vmap_range::<Sv39>(&setup, end).unwrap();
        let (took, all) = (small.bytes().get() / gb, 256);
        assert!(2 * took < all && 3 * took > all, "{took} GiB of {all}");
    }
}
