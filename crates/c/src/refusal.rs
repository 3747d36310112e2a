//! Why a call is refused: one value for all that can be wrong, with its code and its words.

use crate::status::Status;
use core::fmt;
use foliant::fault::Refusal as NoAccess;
use foliant::folio::{AllocError, Misuse, RegionError, ReserveError};
use foliant::manager::{NotLent, SetupError, SpaceError};
use foliant::pool::PoolError;
use foliant::space::{MapError, RangeError};
use foliant::table::{Refused, Stop};
use foliant::vmap::{Short, VmapError};
use foliant::{NoBlock, Outcome};
use foliant_units::{Level, Va};

/// Why a call is refused.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal {
    /// This pointer is null.
    Null(&'static str),
    /// This pointer leads to another kind of handle, or to none.
    Handle(&'static str),
    /// The memory lent is too small or not aligned.
    Lent {
        need: u64,
        align: u64,
        bytes: u64,
        at: u64,
    },
    /// No array of so many values lies there.
    Array(&'static str, u64),
    /// More ranges than are taken at most.
    TooMany {
        what: &'static str,
        count: u64,
        most: u64,
    },
    /// The table has no such function.
    NoFunction(&'static str),
    /// The table's number of CPUs.
    Cpus(u32),
    /// Not the number of a CPU.
    Cpu(u32),
    /// The number of what it says stands for nothing.
    Value(&'static str, u64),
    /// The end of the range is no number.
    Overflow {
        start: u64,
        size: u64,
    },
    Region(RegionError),
    Alloc(AllocError),
    Misuse(Misuse),
    Reserve(ReserveError),
    Tables(Refused),
    NeedTable(Level),
    /// Another CPU mapped this address meanwhile.
    Live(Va),
    NotMapped(Va),
    Stop(Stop),
    SpareFull,
    NotFlushed,
    NotPending,
    Setup(SetupError),
    NoBlock(NoBlock),
    NotLent(NotLent),
    Space(SpaceError),
    Range(RangeError),
    Map(MapError),
    Fault(Outcome),
    NoPage(u64),
    Vmap(VmapError),
    Pool(PoolError),
    NoCounter,
}

macro_rules! from {
    ($($variant:ident: $error:ty),* $(,)?) => {$(
        impl From<$error> for Refusal {
            fn from(error: $error) -> Refusal {
                Refusal::$variant(error)
            }
        }
    )*};
}
from! {
    Region: RegionError, Alloc: AllocError, Misuse: Misuse, Reserve: ReserveError,
    Tables: Refused, Setup: SetupError, NoBlock: NoBlock, NotLent: NotLent, Space: SpaceError,
    Range: RangeError, Map: MapError, Vmap: VmapError, Pool: PoolError,
}

impl Refusal {
    /// Its code.
    pub(crate) fn status(&self) -> Status {
        match self {
            Refusal::Null(_) => Status::Null,
            Refusal::Handle(_) => Status::Handle,
            Refusal::Lent { .. } => Status::Lent,
            Refusal::NoFunction(_) | Refusal::Cpus(_) => Status::Machine,
            Refusal::Array(..) | Refusal::Value(..) => Status::Value,
            Refusal::TooMany { .. } => Status::Limit,
            Refusal::Cpu(_) => Status::Cpu,
            Refusal::Overflow { .. } => Status::Range,
            Refusal::Region(error) => region(error),
            Refusal::Alloc(AllocError::NoMemory { .. }) | Refusal::NoBlock(_) => Status::NoMemory,
            Refusal::Alloc(AllocError::UnknownCpu { .. }) => Status::Cpu,
            Refusal::Misuse(misuse) => misused(misuse),
            Refusal::Reserve(error) => reserved(error),
            Refusal::Tables(refused) => tables(refused),
            Refusal::NeedTable(_) => Status::NeedTable,
            Refusal::Live(_) => Status::Mapped,
            Refusal::NotMapped(_) | Refusal::NoPage(_) => Status::NotMapped,
            Refusal::Stop(Stop::Full | Stop::Done) | Refusal::SpareFull => Status::Full,
            Refusal::Stop(Stop::Straddles { .. }) => Status::Straddles,
            Refusal::Stop(Stop::Busy(_)) => Status::Busy,
            Refusal::NotFlushed => Status::NotFlushed,
            Refusal::NotPending => Status::Value,
            Refusal::Setup(error) => match error {
                SetupError::Memory(error) => region(error),
                SetupError::Reserved(error) => reserved(error),
                SetupError::TooSmall(_) => Status::NoMemory,
                SetupError::Beyond(_) | SetupError::VmapRange(_) => Status::Range,
            },
            Refusal::NotLent(NotLent::NoBlock(misuse)) => misused(misuse),
            Refusal::NotLent(NotLent::InUse { .. }) => Status::InUse,
            Refusal::Space(error) => match error {
                SpaceError::NoSpace => Status::NoSpace,
                SpaceError::Running(_) => Status::Running,
                SpaceError::NoMemory => Status::NoMemory,
                SpaceError::OverLimit(_) => Status::Limit,
            },
            Refusal::Range(error) => range(error),
            Refusal::Map(error) => match error {
                MapError::Range(error) => range(error),
                MapError::Occupied(_) => Status::Mapped,
                MapError::NoRoom(_) => Status::NoRoom,
                MapError::NoLeaf(_) | MapError::Flags(_) | MapError::NoSubpool(_) => Status::Value,
                MapError::NoHugePages(_) => Status::NoHugePages,
            },
            Refusal::Fault(outcome) => faulted(outcome),
            Refusal::Vmap(error) => kernel(error),
            Refusal::Pool(PoolError::Order(_) | PoolError::Node(_)) => Status::Value,
            Refusal::NoCounter => Status::NoCounter,
        }
    }
}

fn region(error: &RegionError) -> Status {
    match error {
        RegionError::Cpus(_) => Status::Cpu,
        RegionError::TooMany(_) => Status::Limit,
        RegionError::Metadata { .. } => Status::Lent,
        RegionError::Busy(_) => Status::Busy,
        _ => Status::Range,
    }
}
fn misused(misuse: &Misuse) -> Status {
    match misuse {
        Misuse::Foreign { .. } => Status::Foreign,
        Misuse::Misaligned { .. } => Status::Misaligned,
        Misuse::NotAllocated { .. } => Status::Free,
        Misuse::Reserved { .. } => Status::Reserved,
        Misuse::WrongOrder { .. } => Status::WrongOrder,
        Misuse::Widening { .. } => Status::Value,
        Misuse::UnknownCpu { .. } => Status::Cpu,
    }
}
fn reserved(error: &ReserveError) -> Status {
    match error {
        ReserveError::Foreign(_) => Status::Foreign,
        ReserveError::InUse(_) => Status::InUse,
    }
}
fn tables(refused: &Refused) -> Status {
    match refused {
        Refused::Empty(_) | Refused::Outside(_) | Refused::Frames(_) => Status::Range,
        Refused::Misaligned(..) => Status::Misaligned,
        Refused::Live(_) => Status::Mapped,
        Refused::Level(_) => Status::Value,
    }
}
fn range(error: &RangeError) -> Status {
    match error {
        // Objects have no calls here, so neither has their absence a code.
        RangeError::NoSpace | RangeError::NoObject => Status::NoSpace,
        RangeError::Empty | RangeError::Outside(_) | RangeError::TooLow(..) => Status::Range,
        RangeError::Misaligned(_) => Status::Misaligned,
        RangeError::Hole(_) => Status::NoArea,
        RangeError::Broken(_) => Status::Broken,
        RangeError::Cuts(..) | RangeError::Huge(_) => Status::Huge,
        RangeError::Ceiling(..) => Status::NoRight,
        RangeError::NoMemory => Status::NoMemory,
        RangeError::TooManyAreas(_) | RangeError::OverLimit(_) => Status::Limit,
    }
}
fn faulted(outcome: &Outcome) -> Status {
    match outcome {
        Outcome::Mapped(_)
        | Outcome::ZeroPage(_)
        | Outcome::Copied
        | Outcome::Reused
        | Outcome::Spurious => Status::Ok,
        Outcome::Userfault(_) | Outcome::UserfaultWrite(_) | Outcome::UserfaultPresent(_) => {
            Status::Userfault
        }
        Outcome::NoHugePage(_) => Status::NoHugePages,
        Outcome::OutOfMemory => Status::NoMemory,
        Outcome::OverLimit => Status::Limit,
        Outcome::Refused(why) => match why {
            NoAccess::NoSpace => Status::NoSpace,
            NoAccess::NoArea(_) => Status::NoArea,
            NoAccess::NoRight(..) | NoAccess::NotAdmitted(_) => Status::NoRight,
            NoAccess::Guard(_) => Status::Guard,
            NoAccess::Kernel(_) | NoAccess::Beyond(_) => Status::NotMapped,
            NoAccess::Broken(_) => Status::Broken,
        },
    }
}
fn kernel(error: &VmapError) -> Status {
    match error {
        VmapError::Empty
        | VmapError::TooLarge { .. }
        | VmapError::Overflow(..)
        | VmapError::Frame(_)
        | VmapError::Managed(_)
        | VmapError::Beyond { .. } => Status::Range,
        VmapError::Alignment(_) | VmapError::Node(_) => Status::Value,
        VmapError::Short(Short::Addresses(_)) => Status::NoRoom,
        VmapError::Short(_) => Status::NoMemory,
        VmapError::NoArea(_) => Status::NoArea,
        VmapError::NotStart { .. } | VmapError::NotMemory(_) | VmapError::OtherKind(_) => {
            Status::WrongArea
        }
        VmapError::Freed(_) => Status::Freed,
        VmapError::Busy(_) => Status::Busy,
        VmapError::Misaligned(_) => Status::Misaligned,
        VmapError::Leaf(..) | VmapError::CannotSplit(..) => Status::Straddles,
        VmapError::NotForUsers(_) => Status::NoRight,
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Null(what) => write!(f, "`{what}` is null"),
            Refusal::Handle(what) => {
                write!(f, "`{what}` is no such handle: make it with the `_new` of its kind")
            }
            Refusal::Lent { need, align, bytes, at } => write!(
                f,
                "{bytes} bytes at {at:#x} are lent; {need} are needed, at a multiple of {align}: ask `_layout`"
            ),
            Refusal::Array(what, count) => {
                write!(f, "`{what}` leads to no {count} values: it is not aligned, or too many")
            }
            Refusal::TooMany { what, count, most } => {
                write!(f, "{count} ranges in `{what}`; {most} are the most")
            }
            Refusal::NoFunction(name) => {
                write!(
                    f,
                    "the machine has no function `{name}`: only those marked optional may be null"
                )
            }
            Refusal::Cpus(cpus) => write!(f, "a machine of {cpus} CPUs; there must be 1 to 1024"),
            Refusal::Cpu(cpu) => write!(f, "CPU {cpu}: there are 1024 at most, counted from 0"),
            Refusal::Value(what, number) => write!(f, "{what} {number:#x} stands for nothing"),
            Refusal::Overflow { start, size } => {
                write!(f, "{size:#x} from {start:#x} on end beyond the last number")
            }
            Refusal::Region(error) => error.fmt(f),
            Refusal::Alloc(error) => error.fmt(f),
            Refusal::Misuse(misuse) => misuse.fmt(f),
            Refusal::Reserve(error) => error.fmt(f),
            Refusal::Tables(refused) => refused.fmt(f),
            Refusal::NeedTable(level) => write!(
                f,
                "a table of level {} is missing and the spare is empty: lend it a frame, and map the rest",
                level.0
            ),
            Refusal::Live(va) => write!(f, "another CPU mapped {va} meanwhile"),
            Refusal::NotMapped(va) => write!(f, "nothing is mapped at {va}"),
            Refusal::Stop(Stop::Straddles { va, level }) => write!(
                f,
                "the leaf of {} at {va} reaches over an end of the range: take all of it",
                level.span()
            ),
            Refusal::Stop(Stop::Busy(va)) => {
                write!(f, "another CPU is at work on {va}: go on later")
            }
            Refusal::Stop(_) => f.write_str("the gather is full: flush it, and go on"),
            Refusal::SpareFull => f.write_str("the spare is full: use its frames first"),
            Refusal::NotFlushed => {
                f.write_str("the gather holds what an earlier call took out: flush it first")
            }
            Refusal::NotPending => f.write_str("there is nothing in the gather to be flushed"),
            Refusal::Setup(error) => error.fmt(f),
            Refusal::NoBlock(none) => none.fmt(f),
            Refusal::NotLent(error) => error.fmt(f),
            Refusal::Space(error) => error.fmt(f),
            Refusal::Range(error) => error.fmt(f),
            Refusal::Map(error) => error.fmt(f),
            Refusal::Fault(outcome) => fault(outcome, f),
            Refusal::NoPage(va) => write!(f, "no page of a folio is mapped at {va:#x}"),
            Refusal::Vmap(error) => error.fmt(f),
            Refusal::Pool(error) => error.fmt(f),
            Refusal::NoCounter => f.write_str(
                "nothing of this name is counted: `foliant_count_name` gives the names, one by one",
            ),
        }
    }
}

/// Why a fault ends the access.
fn fault(outcome: &Outcome, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match outcome {
        Outcome::Userfault(va) => write!(f, "the program is to fill the page at {va}"),
        Outcome::UserfaultWrite(va) => write!(f, "the program watches the page at {va}"),
        Outcome::UserfaultPresent(va) => write!(f, "the program is to let in the page at {va}"),
        Outcome::NoHugePage(order) => write!(f, "the pool of {} is empty", order.bytes()),
        Outcome::OutOfMemory => f.write_str("not even a page of 4 KiB is free"),
        Outcome::OverLimit => f.write_str("the space may not be charged for another page"),
        Outcome::Refused(why) => match why {
            NoAccess::NoSpace => f.write_str("there is no such address space"),
            NoAccess::NoArea(va) => write!(f, "no area contains {va}"),
            NoAccess::NoRight(va, access) => {
                write!(f, "the area at {va} does not allow this: {access:?}")
            }
            NoAccess::Guard(va) => write!(f, "a guard lies at {va}"),
            NoAccess::Kernel(va) => write!(f, "kernel memory was mapped at {va} and is gone"),
            NoAccess::Beyond(va) => write!(f, "the object that is mapped at {va} ends before"),
            NoAccess::Broken(va) => write!(f, "the page at {va} was reported broken"),
            NoAccess::NotAdmitted(va) => write!(f, "the area at {va} waits for its owner"),
        },
        done => write!(f, "the access can be made again: {done:?}"),
    }
}
