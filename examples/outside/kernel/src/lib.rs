//! The memory of a kernel for x86-64: Foliant's manager on Foliant's machine. What is left to the
//! kernel is what no crate can know: how it boots, its interrupt table, and which CPU runs.
#![no_std]
#![cfg(target_arch = "x86_64")]

use foliant::fault::Orders;
use foliant::manager::{Setup, SetupError};
use foliant::space::SpaceId;
use foliant::table::X86_64;
use foliant::units::{Cpu, FrameRange, Order, Va};
use foliant::{Access, Manager, Outcome, Policy};
use foliant_x86::{Apic, ApicId, Clear, ClearPlan, Features, Host, Line, Settings, TscClock, X86};

/// What the machine asks of the kernel. This one has a thread on each CPU, which never moves.
pub struct Threads {
    /// The number of the CPU that runs the caller.
    pub me: fn() -> Cpu,
}

impl Host for Threads {
    fn me(&self) -> Cpu {
        (self.me)()
    }
    fn pinned<R>(&self, work: impl FnOnce(Cpu) -> R) -> R {
        work((self.me)())
    }
    fn yield_now(&self) {
        core::hint::spin_loop(); // interrupts are on; there is nobody to switch to
    }
}

pub type Machine = X86<'static, Threads>;
pub type Memory = Manager<'static, Machine, X86_64<4>>;

/// The machine, from what the kernel found out. The handler of interrupt 0xf0 calls
/// `Machine::serve`, and each CPU `Machine::online` before anything else.
pub fn machine(
    threads: Threads,
    direct_map: Va,
    apic_ids: &'static [ApicId],
    clock: TscClock,
    lines: &'static [Line],
) -> Result<Machine, foliant_x86::SetupError> {
    let (features, clear) = (Features::detect(), ClearPlan::only(Clear::StoreQ));
    let apic = Apic::X2;
    let settings = Settings { direct_map, vector: 0xf0, apic, apic_ids, clock, clear, features };
    X86::new(threads, settings, lines)
}

/// The manager of `memory`, but for the kernel's image. Programs get folios of 64 KiB and 2 MiB.
pub fn memory(
    machine: &'static Machine,
    memory: &[FrameRange],
    image: FrameRange,
) -> Result<Memory, SetupError> {
    let small = Order::new(4).unwrap_or(Order::BASE);
    let policy = Policy::always(Orders::of(small).with(Orders::of(Order::SIZE_2M)));
    Manager::new(machine, &Setup { reserved: &[image], ..Setup::of(memory, policy) })
}

/// What becomes of a program whose access faulted.
pub enum Then {
    /// The access is made again.
    Again,
    /// The program is killed, for this reason.
    Killed(Outcome),
}

/// The page-fault handler; `at` is what CR2 says, `error` what the processor pushed.
pub fn page_fault(memory: &Memory, program: SpaceId, at: Va, error: u64) -> Then {
    let access = match error {
        error if error & 1 << 1 != 0 => Access::Write,
        error if error & 1 << 4 != 0 => Access::Execute,
        _ => Access::Read,
    };
    match memory.fault(program, at, access) {
        end @ (Outcome::Refused(_) | Outcome::OutOfMemory | Outcome::OverLimit) => {
            Then::Killed(end)
        }
        _ => Then::Again,
    }
}
