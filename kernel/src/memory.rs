//! The machine and its manager: from the loader's memory map to Foliant.
//!
//! ```text
//!   loader's map ─▶ whole frames above 1 MiB ─▶ Setup.memory       holes stay holes, regions above 4 GiB included
//!   image, module ───────────────────────────▶ Setup.reserved
//! ```
#![allow(unsafe_code)]

use crate::info::{self, Info};
use crate::layout::{self, DIRECT, DIRECT_MAX, LOW_END};
use crate::plant::Plant;
use crate::{cpu, port, programs, tables};
use core::fmt;
use foliant::Manager;
use foliant::manager::{KernelMapError, Setup, SetupError, VmapSetup};
use foliant::table::{Attrs, X86_64};
use foliant::vmap::VmapError;
use foliant::zero::Clearing;
use foliant::{NoBlock, Policy};
use foliant_lab::Counted;
use foliant_units::{Bytes, Cpu, FRAME_BYTES, Frame, FrameRange, Pa, Pages, Va};
use foliant_x86::boot::{NoMap, Ranges};
use foliant_x86::{Apic, ApicId, Choice, Features, Host, Line, Settings, TscClock, X86};
use spin::Once;

/// CPUs that the kernel starts at most; others stay asleep.
pub(crate) const CPUS_MAX: usize = 256;

/// Page tables of four levels.
pub(crate) type Format = X86_64<4>;
/// The machine: x86-64, a place to leave a flush out, and counters.
pub(crate) type Machine = Counted<Plant<X86<'static, Here>>>;
/// The manager of all memory.
pub(crate) type Memory = Manager<'static, Machine, Format>;

/// What the machine asks of this kernel: it has one thread per CPU, which never moves.
pub(crate) struct Here;

impl Host for Here {
    fn me(&self) -> Cpu {
        cpu::me()
    }
    fn pinned<R>(&self, work: impl FnOnce(Cpu) -> R) -> R {
        work(cpu::me())
    }
    fn yield_now(&self) {
        if port::interrupts_on() {
            core::hint::spin_loop();
        } else {
            machine().serve();
        }
    }
}

static MACHINE: Once<Machine> = Once::new();
static MANAGER: Once<Memory> = Once::new();
static CHOICE: Once<Choice> = Once::new();
static CLOCK: Once<TscClock> = Once::new();
static APIC_IDS: Once<[ApicId; CPUS_MAX]> = Once::new();

/// The x86-64 machine under the counters.
pub(crate) fn machine() -> &'static X86<'static, Here> {
    counted().machine().sound()
}
/// The machine with its counters.
pub(crate) fn counted() -> &'static Machine {
    MACHINE.get().expect("the machine is made before interrupts come")
}
/// Carries out what other CPUs ask of this one, which has interrupts out. Before the machine is
/// made nobody asks.
pub(crate) fn serve() {
    if let Some(machine) = MACHINE.get() {
        machine.machine().sound().serve();
    }
}
/// The manager.
pub(crate) fn manager() -> &'static Memory {
    MANAGER.get().expect("the manager is made before anybody asks")
}

/// Memory that the manager has. It stays as much.
pub(crate) fn managed() -> Pages {
    static MANAGED: Once<Pages> = Once::new();
    *MANAGED.call_once(|| manager().memory().managed)
}

/// All frames that hold a part of the stretch.
fn around(start: Pa, end: Pa) -> FrameRange {
    let first = start.get() / FRAME_BYTES;
    let pages = end.get().div_ceil(FRAME_BYTES) - first;
    FrameRange::new(Frame::new(first), Pages::new(pages)).unwrap_or_default()
}

/// What keeps the kernel from its work.
pub(crate) enum Trouble {
    /// The machine is none that `foliant-x86` takes.
    Machine(foliant_x86::SetupError),
    /// The memory is none that the manager takes.
    Manager(SetupError),
    /// No block was left.
    NoBlock(NoBlock),
    /// No memory for what a CPU has for itself.
    NoRoom(Cpu, VmapError),
    /// A range of the window was not mapped.
    Window(KernelMapError),
    /// No memory is usable above the firmware's.
    NoMemory,
    /// The loader gives no memory map.
    NoMap(NoMap),
    /// A CPU that answered before does not start.
    Silent(Cpu, ApicId),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Machine(error) => error.fmt(f),
            Trouble::Manager(error) => error.fmt(f),
            Trouble::NoBlock(none) => none.fmt(f),
            Trouble::NoRoom(cpu, error) => {
                write!(
                    f,
                    "{error} for what CPU {} has for itself; give it more memory, or fewer CPUs",
                    cpu.0
                )
            }
            Trouble::Window(error) => error.fmt(f),
            Trouble::NoMemory => {
                write!(f, "no memory from {LOW_END:#x} to {DIRECT_MAX:#x} is usable")
            }
            Trouble::NoMap(none) => none.fmt(f),
            Trouble::Silent(cpu, id) => write!(f, "CPU {} (APIC {}) does not answer", cpu.0, id.0),
        }
    }
}
impl From<NoBlock> for Trouble {
    fn from(none: NoBlock) -> Trouble {
        Trouble::NoBlock(none)
    }
}
impl From<KernelMapError> for Trouble {
    fn from(error: KernelMapError) -> Trouble {
        Trouble::Window(error)
    }
}

/// Makes the machine and the manager, and maps what the window holds from the start.
pub(crate) fn start(
    info: &Info,
    ids: &[ApicId],
    features: Features,
    apic: Apic,
    clock: TscClock,
) -> Result<(), Trouble> {
    CLOCK.call_once(|| clock);
    let entries = info.entries().map_err(Trouble::NoMap)?;
    let memory = Ranges::usable(entries, Pa::new(LOW_END), info::reach(&features));
    if memory.get().is_empty() {
        return Err(Trouble::NoMemory);
    }
    let (image_start, image_end) = tables::image();
    let module = info.module().map(|(start, file)| around(start, start.add(file.len() as u64)));
    // A module may begin in the image's last frame, or lie outside the memory that is handed over.
    let inside = |range: &FrameRange| memory.around(*range).is_some();
    let module_inside = module.filter(inside);
    let mut reserved =
        [around(image_start, image_end), module_inside.unwrap_or_default(), FrameRange::default()];
    let loaded = if module_inside.is_some() { 2 } else { 1 };
    let firmwares = around(Pa::new(0), Pa::new(LOW_END));
    let others = [Some(firmwares), Some(around(image_start, image_end)), module];
    let top = tables::load(memory.get().iter().copied().chain(others.into_iter().flatten()));

    let own =
        APIC_IDS.call_once(|| core::array::from_fn(|n| ids.get(n).copied().unwrap_or(ApicId(0))));
    reserved[loaded] = place_of_lines(ids.len(), memory.get(), &reserved[..loaded])?;
    let lines = lines(reserved[loaded], ids.len());
    let reserved = &reserved[..=loaded];
    let settings = Settings {
        direct_map: Va::new(DIRECT),
        vector: crate::apic::SHOOTDOWN,
        apic,
        apic_ids: &own[..ids.len()],
        clock,
        clear: choose(&features, memory.get(), reserved).plan,
        features,
    };
    let x86 = X86::new(Here, settings, lines).map_err(Trouble::Machine)?;
    let machine = MACHINE.call_once(|| Counted::new(Plant::new(x86), |_| foliant_x86::ticks()));
    // SAFETY: CPU 0, once, in ring 0.
    unsafe { self::machine().online() };
    let ranges = layout::range(Va::new(layout::RANGES), layout::RANGES_BYTES);
    let vmap = VmapSetup { range: Some(ranges), ..VmapSetup::DEFAULT };
    let kernel_top = Some(top);
    let areas = foliant_lab::AREAS;
    let setup =
        Setup { reserved, kernel_top, vmap, areas, ..Setup::of(memory.get(), Policy::default()) };
    let made = Manager::new(machine, &setup).map_err(Trouble::Manager)?;
    let manager = MANAGER.call_once(|| made);
    let refetch = clock.at(choice().refetch);
    manager.set_clearing(Clearing { refetch, ..manager.clearing() });
    furnish(manager).map_err(Trouble::Window)
}

/// Memory on which clearing is measured, at most.
const TRIAL: Pages = Pages::new((4 << 20) / FRAME_BYTES);

/// Memory that nobody uses yet, so many pages of it at most: at the end of a range, or below what
/// is reserved in it.
fn unused(memory: &[FrameRange], reserved: &[FrameRange], most: Pages) -> Option<FrameRange> {
    let below = |range: FrameRange, end: Frame| {
        let start = end.get().saturating_sub(most.get()).max(range.start().get());
        FrameRange::new(Frame::new(start), Pages::new(end.get().saturating_sub(start)))
    };
    let ends = |range: FrameRange| {
        let used = reserved.iter().filter(move |used| used.overlaps(range));
        let borders = used.map(|used| used.start()).chain([range.end()]);
        borders.filter_map(move |end| below(range, end))
    };
    let is_free = |range: &FrameRange| !reserved.iter().any(|used| used.overlaps(*range));
    memory.iter().copied().flat_map(ends).filter(is_free).max_by_key(|range| range.pages())
}

/// Where the mailboxes of so many CPUs lie. They are not part of the image, which has to fit beside
/// a module of its own size.
fn place_of_lines(
    cpus: usize,
    memory: &[FrameRange],
    reserved: &[FrameRange],
) -> Result<FrameRange, Trouble> {
    let pages = Pages::new((cpus * size_of::<Line>()).div_ceil(FRAME_BYTES as usize) as u64);
    let place = unused(memory, reserved, pages).filter(|place| place.pages() == pages);
    place.ok_or(Trouble::NoMemory)
}
/// Makes them there.
fn lines(place: FrameRange, cpus: usize) -> &'static [Line] {
    let first = (DIRECT + place.start().pa().get()) as *mut Line;
    for nth in 0..cpus {
        // SAFETY: so many fit into whole frames of memory that the loader gave us, that nothing
        // lies in, and that are reserved; the direct map reaches them.
        unsafe { first.wrapping_add(nth).write(Line::new()) };
    }
    // SAFETY: as above; they are never given back.
    unsafe { core::slice::from_raw_parts(first, cpus) }
}

/// Measures how memory is cleared best, on memory that nobody uses yet.
fn choose(features: &Features, memory: &[FrameRange], reserved: &[FrameRange]) -> Choice {
    let trial = unused(memory, reserved, TRIAL).unwrap_or_default();
    let (va, bytes) = (DIRECT + trial.start().pa().get(), trial.pages().bytes().get() as usize);
    // SAFETY: whole frames of memory that the loader gave us and nothing lies in; the direct map
    // reaches them.
    let lent = unsafe { core::slice::from_raw_parts_mut(va as *mut u8, bytes) };
    let choice = Choice::measure(features, lent);
    CHOICE.call_once(|| choice);
    choice
}

/// What was measured of clearing at the start.
pub(crate) fn choice() -> &'static Choice {
    CHOICE.get().expect("it was measured at the start")
}

/// Maps the APIC's registers and the user programs.
fn furnish(manager: &Memory) -> Result<(), KernelMapError> {
    let page = |va| layout::range(va, Bytes::new(FRAME_BYTES));
    let device = Attrs::WRITE | Attrs::DEVICE | Attrs::GLOBAL | Attrs::TOUCHED;
    manager.map_kernel(page(layout::APIC), crate::apic::REGISTERS.frame(), device)?;
    let (start, bytes) = programs::image();
    let rights = Attrs::USER | Attrs::EXEC | Attrs::GLOBAL | Attrs::TOUCHED;
    manager.map_kernel(
        layout::range(layout::PROGRAMS, bytes),
        tables::image_pa(start).frame(),
        rights,
    )
}

/// The top table of the kernel half, for a CPU that starts.
pub(crate) fn top() -> Pa {
    manager().kernel_tables().root()
}

/// How the machine tells time.
pub(crate) fn clock() -> TscClock {
    *CLOCK.get().expect("it was found at the start")
}

/// The interrupt controller of a CPU.
pub(crate) fn apic_id(cpu: Cpu) -> ApicId {
    APIC_IDS.get().expect("they were listed at the start")[cpu.index()]
}
