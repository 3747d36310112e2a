//! What work costs: named tables of constants that charge per-CPU virtual clocks.
//!
//! A model is data: every constant has a value, a unit and the source it was taken or derived from,
//! so that a modelled time can be traced back to a measurement. The machine charges what it sees
//! (faults, page-table words, clearing, invalidations, interrupts, statements of ownership); work
//! that it cannot see (a system call's entry) is charged by the code that replays it.
//!
//! **Not here**: caches and memory bandwidth shared between CPUs, waiting for locks, the time that
//! an initiator loses because a target has interrupts off.

mod hugetlb;
mod tables;

pub use hugetlb::{Phases, PoolRows};

use core::fmt;
use foliant_machine::Caching;
use foliant_units::Nanos;

macro_rules! works {
    ($($(#[$doc:meta])* $name:ident = $text:literal),* $(,)?) => {
        /// A kind of work that has a price.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Work {
            $($(#[$doc])* $name,)*
        }

        impl Work {
            /// All kinds.
            pub const ALL: &'static [Work] = &[$(Work::$name),*];

            /// Its name in tables.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Work::$name => $text,)*
                }
            }
        }
    };
}

works! {
    /// Entry and exit of a page fault, with the work that every fault does.
    Fault = "fault",
    /// Entry and exit of a system call.
    Syscall = "syscall",
    /// Taking a block from the allocator: once per statement that frames got an owner.
    Alloc = "alloc",
    /// Giving a block back: once per statement that frames are free.
    Free = "free",
    /// Giving back, for each frame of the block.
    FreeFrame = "free_frame",
    /// Writing a page-table word.
    EntryWrite = "entry_write",
    /// Clearing a byte in an extent below 2 MiB.
    ClearByte = "clear_byte",
    /// Clearing a byte in an extent of 2 MiB and more, or in one that is streamed past the caches.
    ClearByteLarge = "clear_byte_large",
    /// Copying a byte.
    CopyByte = "copy_byte",
    /// Writing a word at a kernel address: descriptors. A compare-and-exchange too, if it succeeds.
    KernelWrite = "kernel_write",
    /// Taking a huge page into a pool: what the machine does not see of it. The code that runs the
    /// pool charges it.
    PoolFill = "pool_fill",
    /// Giving one back: likewise.
    PoolDrain = "pool_drain",
    /// Folding the descriptors of a 2 MiB page: likewise.
    Fold = "fold",
    /// Looking at a frame of a block that is to be emptied: what the machine does not see of it.
    /// The code that has memory compacted charges it.
    CompactFrame = "compact_frame",
    /// Moving a folio out of one, besides the entries, the copy and the flush: likewise.
    CompactMove = "compact_move",
    /// Invalidating one entry on the CPU itself.
    InvalidateEntry = "invalidate_entry",
    /// Invalidating a whole scope on the CPU itself.
    FullFlush = "full_flush",
    /// Loading a root.
    Activate = "activate",
    /// Issuing a shootdown, whatever the number of targets.
    InterruptSend = "interrupt_send",
    /// The same, for each target.
    InterruptTarget = "interrupt_target",
    /// Waiting for a shootdown.
    InterruptWait = "interrupt_wait",
    /// Taking an interrupt, on the target, without the invalidation.
    InterruptTaken = "interrupt_taken",
    /// A walk of the page tables, for an access of a program or of the kernel.
    Walk = "walk",
}

/// The price of one kind of work.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Constant {
    /// The work.
    pub work: Work,
    /// Nanoseconds for one unit of it.
    pub nanos: f64,
    /// What one unit is.
    pub unit: &'static str,
    /// Where the value is from.
    pub source: &'static str,
}

/// What the machine's clock shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClockKind {
    /// The charged time of the CPU.
    Virtual,
    /// The host's monotonic clock; charges are kept, but not shown by it.
    Real,
}

/// A named table of prices.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CostModel {
    /// The name by which it is chosen.
    pub name: &'static str,
    /// What it stands for.
    pub about: &'static str,
    /// One constant for each kind of work; what is missing is free.
    pub constants: &'static [Constant],
    /// What the machine's clock shows.
    pub clock: ClockKind,
}

impl CostModel {
    /// All models, the default first.
    pub const ALL: [CostModel; 3] =
        [tables::XEON_GUEST_2, tables::HOST_8_SOCKET, tables::GUEST_252];

    /// The model of this name.
    pub fn named(name: &str) -> Option<CostModel> {
        CostModel::ALL.into_iter().find(|model| model.name == name)
    }

    /// A guest with two CPUs that Foliant was measured on. Not the host at hand, whatever that is.
    pub const fn xeon_guest_2() -> CostModel {
        tables::XEON_GUEST_2
    }

    /// Bare metal with eight sockets.
    pub const fn host_8_socket() -> CostModel {
        tables::HOST_8_SOCKET
    }

    /// A guest with 252 CPUs.
    pub const fn guest_252() -> CostModel {
        tables::GUEST_252
    }

    /// Published times of pools on the host that the model stands for.
    pub fn published(&self) -> Option<&'static PoolRows> {
        match self.name {
            name if name == tables::HOST_8_SOCKET.name => Some(&hugetlb::HOST_8_SOCKET),
            name if name == tables::GUEST_252.name => Some(&hugetlb::GUEST_252),
            _ => None,
        }
    }

    /// The same prices with a clock that shows real time.
    pub const fn with_real_clock(self) -> CostModel {
        CostModel { clock: ClockKind::Real, ..self }
    }

    /// Nanoseconds for `units` of `work`.
    pub fn nanos(&self, work: Work, units: u64) -> f64 {
        let price = self.constants.iter().find(|c| c.work == work).map_or(0.0, |c| c.nanos);
        price * units as f64
    }

    /// Nanoseconds to clear `bytes` in extents of `grain` bytes.
    pub fn clear_nanos(&self, bytes: u64, grain: u64) -> f64 {
        self.nanos(clear_work(grain, Caching::Cached), bytes)
    }
}

/// The kind of work that clearing an extent of `bytes` is. An extent that is streamed is part of a
/// large folio.
pub(crate) const fn clear_work(bytes: u64, caching: Caching) -> Work {
    match caching {
        Caching::Cached if bytes < 2 << 20 => Work::ClearByte,
        Caching::Cached | Caching::NonTemporal => Work::ClearByteLarge,
    }
}

impl fmt::Display for CostModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.name, self.about)?;
        for c in self.constants {
            writeln!(f, "  {:<18} {:>12.4} ns/{:<9} {}", c.work.name(), c.nanos, c.unit, c.source)?;
        }
        Ok(())
    }
}

/// A model resolved for charging: picoseconds per unit, indexed by kind.
#[derive(Clone, Debug)]
pub(crate) struct Prices {
    picos: [u64; Work::ALL.len()],
}

impl Prices {
    pub(crate) fn new(model: &CostModel) -> Prices {
        let mut picos = [0; Work::ALL.len()];
        for work in Work::ALL {
            picos[*work as usize] = (model.nanos(*work, 1) * 1000.0).round() as u64;
        }
        Prices { picos }
    }

    #[inline]
    pub(crate) fn picos(&self, work: Work, units: u64) -> u64 {
        self.picos[work as usize] * units
    }
}

/// Picoseconds, rounded down to nanoseconds.
pub(crate) const fn nanos(picos: u64) -> Nanos {
    Nanos(picos / 1000)
}

#[cfg(test)]
mod tests;
