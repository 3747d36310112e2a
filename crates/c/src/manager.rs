//! The manager: made in lent memory, with what it lends to the kernel, and its counts.
#![allow(unsafe_code)]

use crate::error::{Error, Text, answer};
use crate::handle::{self, Handle, Opaque};
use crate::lent::{self, Layout};
use crate::machine::{CMachine, Machine};
use crate::refusal::Refusal;
use crate::status::Status;
use crate::tables::Format;
use crate::values::{self, Range, Ranges, addresses};
use core::ffi::{CStr, c_char, c_void};
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use foliant::folio::AllocError;
use foliant::manager::{self, BootPages, Contents, VmapSetup};
use foliant::pool::Folding;
use foliant::space::AreaLimit;
use foliant::{Event, Manager as MemoryManager, Policy};
use foliant_units::{Frame, Pa};

pub(crate) type Inner = MemoryManager<'static, CMachine, Format>;

/// A manager of memory, in lent memory.
pub struct Manager {
    handle: Handle<CMachine, Inner>,
}

impl Opaque for Manager {
    const TAG: u64 = u64::from_le_bytes(*b"manager1");
    const NAME: &'static str = "manager";
    type Base = CMachine;
    type Value = Inner;

    fn handle(&self) -> &Handle<CMachine, Inner> {
        &self.handle
    }
}

/// What a manager starts with. All zeros, but for `memory`, is a good start: pages of 4 KiB, no
/// pools, nothing reserved.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The memory to manage: up to 64 ranges that do not overlap.
    pub memory: *const Range,
    /// How many ranges.
    pub memory_count: usize,
    /// Parts of it that are in use already: the kernel's image, boot modules, the memory lent to
    /// this manager.
    pub reserved: *const Range,
    /// How many; up to 64.
    pub reserved_count: usize,
    /// The physical address of the top table that the kernel runs already, or 0. The manager's
    /// tables repeat its words of the kernel half, so its direct map goes on there. Descriptors lie
    /// at the start of the half, where it must have none.
    pub kernel_top: u64,
    /// Kernel addresses for `foliant_vmalloc`: whole spans of 512 GiB. With 0 bytes they are put
    /// behind the descriptors.
    pub vmalloc_va: u64,
    /// How many bytes of them.
    pub vmalloc_bytes: u64,
    /// Sizes of folios that every area gets: bit n for order n, from 2 (16 KiB) to 9 (2 MiB).
    pub sizes_always: u32,
    /// Sizes for areas with `FOLIANT_HUGEPAGE`, as bits.
    pub sizes_asked: u32,
    /// Not 0: all memory that is not reserved holds zeros.
    pub is_zeroed: u32,
    /// Not 0: huge pages give the frames of their descriptors back.
    pub is_folding: u32,
    /// Huge pages of 2 MiB for the pool, as many as there are blocks for.
    pub pages_2m: u64,
    /// Huge pages of 1 GiB.
    pub pages_1g: u64,
    /// How many areas a space may have; 0 stands for 65,531.
    pub areas_max: u64,
}

/// Where the frames are.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Memory {
    /// Frames that are managed, free and not.
    pub managed: u64,
    /// Free ones.
    pub free: u64,
    /// In anonymous folios, mapped or not.
    pub anonymous: u64,
}

/// The manager of a handle.
pub(crate) fn inner(manager: Option<&Manager>) -> Result<&Inner, Refusal> {
    handle::value(manager)
}

/// How much memory a manager needs for its handle. Its records lie in the memory that it manages.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_manager_layout() -> Layout {
    Layout::of::<Manager>()
}

/// Makes a manager in `memory`, which is lent for as long as the manager is used. Its records take
/// about 1/8000 of the managed memory at once, and descriptors 1/64 of what is used. The calling
/// CPU is made ready; every other CPU calls `foliant_manager_online` before anything else.
/// The call itself takes up to 96 KiB of stack, as the manager is built there first.
///
/// # Safety
/// P1 to P3, for the ranges of the setup too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foliant_manager_new(
    memory: *mut c_void,
    bytes: u64,
    machine: Option<&Machine>,
    setup: Option<&Setup>,
    manager: Option<&mut MaybeUninit<*const Manager>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || {
        let place = lent::place(manager, "manager")?;
        let (table, setup) = (lent::given(machine, "machine")?, lent::given(setup, "setup")?);
        // SAFETY: the caller's promise (P3).
        let machine = unsafe { CMachine::checked(table) }?;
        // SAFETY: the caller's promise (P1).
        let ranges = unsafe { lent::array(setup.memory, setup.memory_count, "memory") }?;
        let ranges = Ranges::of("memory", ranges)?;
        // SAFETY: the caller's promise (P1).
        let reserved = unsafe { lent::array(setup.reserved, setup.reserved_count, "reserved") }?;
        let reserved = Ranges::of("reserved", reserved)?;
        let setup = setup.checked(&ranges, &reserved)?;
        let make = |machine: &'static CMachine, _: NonNull<u8>| Ok(Inner::new(machine, &setup)?);
        let need = Layout::of::<Manager>();
        // SAFETY: the caller's promise (P2).
        place.write(unsafe { handle::make::<Manager>((memory, bytes), need, machine, make) }?);
        Ok(())
    };
    answer(error, work())
}

impl Setup {
    /// All zeros.
    #[cfg(test)]
    pub(crate) const NOTHING: Setup = Setup {
        memory: core::ptr::null(),
        memory_count: 0,
        reserved: core::ptr::null(),
        reserved_count: 0,
        kernel_top: 0,
        vmalloc_va: 0,
        vmalloc_bytes: 0,
        sizes_always: 0,
        sizes_asked: 0,
        is_zeroed: 0,
        is_folding: 0,
        pages_2m: 0,
        pages_1g: 0,
        areas_max: 0,
    };

    /// The setup as the manager takes it.
    fn checked<'a>(
        &self,
        memory: &'a Ranges,
        reserved: &'a Ranges,
    ) -> Result<manager::Setup<'a>, Refusal> {
        let policy = Policy {
            madvise: values::orders(self.sizes_asked)?,
            ..Policy::always(values::orders(self.sizes_always)?)
        };
        let range = match self.vmalloc_bytes {
            0 => None,
            bytes => Some(addresses(self.vmalloc_va, bytes)?),
        };
        let folding = if self.is_folding == 0 { Folding::Off } else { Folding::On };
        let kernel_top = (self.kernel_top != 0).then_some(Pa::new(self.kernel_top));
        if let Some(top) = kernel_top.filter(|top| top.get() & 4095 != 0) {
            return Err(Refusal::Value("kernel_top", top.get()));
        }
        Ok(manager::Setup {
            reserved: reserved.get(),
            contents: if self.is_zeroed == 0 { Contents::Any } else { Contents::Zero },
            kernel_top,
            boot: BootPages { size_2m: self.pages_2m, size_1g: self.pages_1g, folding },
            vmap: VmapSetup { range, ..VmapSetup::DEFAULT },
            areas: match self.areas_max {
                0 => AreaLimit::LINUX,
                most => AreaLimit(most),
            },
            ..manager::Setup::of(memory.get(), policy)
        })
    }
}

/// Makes the calling CPU ready: it runs the kernel's tables, and no space. Before, it may use only
/// those kernel addresses that nobody gives back.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_manager_online(
    manager: Option<&Manager>,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || {
        inner(manager)?.online();
        Ok(())
    };
    answer(error, work())
}

/// Gives up the blocks that a CPU prefers, so that others find them: for a CPU that goes idle or
/// away. One that goes away runs no space (`foliant_space_switch`), and still carries out what it
/// is asked about kernel addresses, or is stopped for good: then the table's `ask` leaves it out.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_manager_drain(
    manager: Option<&Manager>,
    cpu: u32,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || {
        let (folios, cpu) = (inner(manager)?.folios(), values::cpu(cpu)?);
        let cpus = folios.cpus();
        if cpu.0 >= cpus.0 {
            return Err(Refusal::Alloc(AllocError::UnknownCpu { cpu, cpus }));
        }
        folios.drain(cpu);
        Ok(())
    };
    answer(error, work())
}

/// Takes a block for the kernel's own use: stacks, per-CPU data, a heap. It keeps its former
/// contents.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_manager_lend(
    manager: Option<&Manager>,
    order: u32,
    frame: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || {
        let (inner, place) = (inner(manager)?, lent::place(frame, "frame")?);
        place.write(inner.lend(values::order(order)?)?.get());
        Ok(())
    };
    answer(error, work())
}

/// Takes a lent block back. The caller has ended all mappings of it, and flushed them everywhere.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_manager_take_back(
    manager: Option<&Manager>,
    frame: u64,
    order: u32,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || {
        let (inner, order) = (inner(manager)?, values::order(order)?);
        Ok(inner.take_back(Frame::new(frame), order)?)
    };
    answer(error, work())
}

/// Where the frames are. Reads one word for each 2 MiB of memory, and 16 more where the 2 MiB are
/// partly used.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_manager_memory(
    manager: Option<&Manager>,
    memory: Option<&mut MaybeUninit<Memory>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || {
        let (inner, place) = (inner(manager)?, lent::place(memory, "memory")?);
        let manager::Memory { managed, free, anonymous } = inner.memory();
        place.write(Memory {
            managed: managed.get(),
            free: free.get(),
            anonymous: anonymous.get(),
        });
        Ok(())
    };
    answer(error, work())
}

/// How often something was counted, on all CPUs, by its name: `pgfault`, `nr_tlb_remote_flush`.
/// Names that Linux has in `vmstat` mean the same here.
///
/// # Safety
/// P1, and `name` ends with a null byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foliant_manager_count(
    manager: Option<&Manager>,
    name: *const c_char,
    count: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || {
        let (inner, place) = (inner(manager)?, lent::place(count, "count")?);
        if name.is_null() {
            return Err(Refusal::Null("name"));
        }
        // SAFETY: the caller's promise.
        let name = unsafe { CStr::from_ptr(name) };
        let event = Event::ALL.iter().find(|event| event.label().as_bytes() == name.to_bytes());
        place.write(inner.total(*event.ok_or(Refusal::NoCounter)?));
        Ok(())
    };
    answer(error, work())
}

/// The `nth` name of what is counted, from 0 on, in the `text` of `name`; ends with
/// `FOLIANT_STATUS_NO_COUNTER` behind the last.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_count_name(nth: u32, name: Option<&mut MaybeUninit<Error>>) -> Status {
    let Some(place) = name else { return Status::Null };
    match Event::ALL.get(nth as usize) {
        Some(event) => {
            place.write(Error { status: Status::Ok, text: *Text::of(event.label()).bytes() });
            Status::Ok
        }
        None => answer(Some(place), Err(Refusal::NoCounter)),
    }
}
