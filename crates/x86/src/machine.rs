//! The machine: what a kernel lends, the check of it, and the smaller traits of the contract.
//!
//! **Invariants**
//! - X5. The settings are checked once, by [`X86::new`]; nothing else here asks again.
//!
//! **Not here**: memory (`memory`, `guarded`), translations (`tlb`).
#![allow(unsafe_code)]

use crate::own;
use crate::{
    Apic, ApicId, Clear, ClearPlan, Features, Line, SPURIOUS_VECTOR, TscClock, control, ticks,
};
use core::fmt;
use core::sync::atomic::AtomicU64;
use foliant_machine::{Clock, Cpus, Witness};
use foliant_units::{Bytes, CPUS_MAX, Cpu, FRAME_BYTES, Nanos, Va};

/// What the machine asks of the kernel around it.
pub trait Host: Sync {
    /// The number of the CPU that runs the caller. With interrupts off it stays true.
    fn me(&self) -> Cpu;

    /// Runs `work` without moving to another CPU. It may nest.
    fn pinned<R>(&self, work: impl FnOnce(Cpu) -> R) -> R;

    /// A point of long work where a cooperative kernel may switch to another task.
    fn yield_now(&self);
}

/// What the kernel lends.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'k> {
    /// Where physical address 0 appears: all memory given to Foliant is mapped from here on,
    /// writable, in every root, and none of it at address 0.
    pub direct_map: Va,
    /// The interrupt vector of requests. Its handler calls [`X86::serve`] and signals the end of
    /// interrupt.
    pub vector: u8,
    /// How interrupts are sent.
    pub apic: Apic,
    /// The interrupt controller of each CPU, by the CPU's number. Every controller that is switched
    /// on is listed, because a request to all other CPUs may be sent to all controllers at once.
    pub apic_ids: &'k [ApicId],
    /// The rate of the time-stamp counter.
    pub clock: TscClock,
    /// How memory is cleared.
    pub clear: ClearPlan,
    /// What the CPUs can do, all of them.
    pub features: Features,
}

/// Why the settings are refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetupError {
    /// No CPU is listed.
    NoCpu,
    /// More CPUs are listed than a set can name.
    TooManyCpus {
        /// How many.
        cpus: usize,
    },
    /// There are fewer lines than CPUs.
    TooFewLines {
        /// Lines lent.
        lines: usize,
        /// CPUs listed.
        cpus: usize,
    },
    /// The vector is a CPU exception's or the spurious one.
    Vector {
        /// The vector.
        vector: u8,
    },
    /// The direct map does not start at a page boundary.
    DirectMap {
        /// Where it starts.
        va: Va,
    },
    /// The CPUs lack the primitive.
    Clear {
        /// The primitive.
        clear: Clear,
    },
    /// The CPUs lack x2APIC.
    NoX2Apic,
    /// The APIC's registers do not start at a page boundary.
    ApicWindow {
        /// Where they start.
        va: Va,
    },
    /// The interrupt controller cannot be named in the chosen mode.
    ApicIdRange {
        /// The CPU that it belongs to.
        cpu: Cpu,
        /// Its number.
        id: ApicId,
    },
    /// Two CPUs have one interrupt controller.
    SharedApicId {
        /// The first.
        first: Cpu,
        /// The second.
        second: Cpu,
    },
}

/// An x86-64 machine.
pub struct X86<'k, H> {
    host: H,
    settings: Settings<'k>,
    lines: &'k [Line],
}

impl<'k, H: Host> X86<'k, H> {
    /// A machine of what the kernel lends: `lines` holds at least one line per CPU, for this
    /// machine alone.
    pub fn new(
        host: H,
        settings: Settings<'k>,
        lines: &'k [Line],
    ) -> Result<X86<'k, H>, SetupError> {
        settings.check()?;
        let cpus = settings.apic_ids.len();
        let lines =
            lines.get(..cpus).ok_or(SetupError::TooFewLines { lines: lines.len(), cpus })?;
        Ok(X86 { host, settings, lines })
    }

    /// Makes the calling CPU ready: sets up global pages, tags where there are any, write
    /// protection for ring 0 too, no execution of data where there is that, and what else its
    /// features need.
    ///
    /// # Safety
    /// Called in ring 0, once on each CPU, before any other method there; the settings are true for
    /// all CPUs and stay so; the handler of the settings' vector stands and the APIC is on before
    /// another CPU asks this one.
    pub unsafe fn online(&self) {
        // SAFETY: the caller's promise.
        unsafe { control::paging(&self.settings.features) };
    }

    /// What the CPUs can do, as the kernel said.
    pub fn features(&self) -> &Features {
        &self.settings.features
    }

    /// The kernel around it.
    pub fn host(&self) -> &H {
        &self.host
    }
}

impl<'k, H> X86<'k, H> {
    pub(crate) fn settings(&self) -> &Settings<'k> {
        &self.settings
    }
    pub(crate) fn lines(&self) -> &'k [Line] {
        self.lines
    }
}

impl Settings<'_> {
    fn check(&self) -> Result<(), SetupError> {
        let page = Bytes::new(FRAME_BYTES);
        if self.vector < 32 || self.vector == SPURIOUS_VECTOR {
            return Err(SetupError::Vector { vector: self.vector });
        }
        if !self.direct_map.is_aligned(page) {
            return Err(SetupError::DirectMap { va: self.direct_map });
        }
        let lacks = |clear: &Clear| !clear.is_usable(&self.features);
        if let Some(clear) = self.clear.all().into_iter().find(lacks) {
            return Err(SetupError::Clear { clear });
        }
        match self.apic {
            Apic::X2 if !self.features.x2apic => return Err(SetupError::NoX2Apic),
            Apic::X2 => (),
            Apic::X1(window) => {
                let va = Va::new(window.as_ptr() as u64);
                if !va.is_aligned(page) {
                    return Err(SetupError::ApicWindow { va });
                }
            }
        }
        self.check_ids(self.apic.highest())
    }

    fn check_ids(&self, highest: ApicId) -> Result<(), SetupError> {
        match self.apic_ids.len() {
            0 => return Err(SetupError::NoCpu),
            cpus if cpus > CPUS_MAX => return Err(SetupError::TooManyCpus { cpus }),
            _ => (),
        }
        for (second, id) in self.apic_ids.iter().enumerate() {
            let cpu = Cpu(second as u16);
            if *id > highest {
                return Err(SetupError::ApicIdRange { cpu, id: *id });
            }
            if let Some(first) = self.apic_ids[..second].iter().position(|other| other == id) {
                return Err(SetupError::SharedApicId { first: Cpu(first as u16), second: cpu });
            }
        }
        Ok(())
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetupError::NoCpu => write!(f, "no cpu is listed: list the apic id of each"),
            SetupError::TooManyCpus { cpus } => {
                write!(f, "{cpus} cpus are listed: leave those from {CPUS_MAX} on offline")
            }
            SetupError::TooFewLines { lines, cpus } => {
                write!(f, "{lines} lines for {cpus} cpus: lend one per cpu")
            }
            SetupError::Vector { vector } => {
                write!(f, "vector {vector:#x} is taken: choose one from 0x20 to 0xfe")
            }
            SetupError::DirectMap { va } => {
                write!(f, "the direct map starts at {va}: move it to a page boundary")
            }
            SetupError::Clear { clear } => {
                write!(f, "the cpu has no {clear}: take what Choice::measure says")
            }
            SetupError::NoX2Apic => write!(f, "the cpu has no x2apic: map the registers, use X1"),
            SetupError::ApicWindow { va } => {
                write!(f, "apic registers at {va}: they start at a page boundary")
            }
            SetupError::ApicIdRange { cpu, id } => {
                write!(f, "cpu {}: apic id {:#x} needs x2apic, or is everybody's", cpu.0, id.0)
            }
            SetupError::SharedApicId { first, second } => {
                write!(f, "cpus {} and {} have one apic id: list each cpu once", first.0, second.0)
            }
        }
    }
}

impl core::error::Error for SetupError {}

impl<H: Host> Cpus for X86<'_, H> {
    fn me(&self) -> Cpu {
        self.host.me()
    }
    fn count(&self) -> usize {
        self.settings.apic_ids.len()
    }
    fn pinned<R>(&self, work: impl FnOnce(Cpu) -> R) -> R {
        self.host.pinned(work)
    }
    fn relax(&self) {
        core::hint::spin_loop();
        self.poll();
    }
    fn add_own(&self, word: &AtomicU64, by: u64) {
        own::add(word, by);
    }
}

impl<H: Host> Clock for X86<'_, H> {
    fn now(&self) -> Nanos {
        self.settings.clock.at(ticks())
    }
    fn yield_now(&self) {
        self.poll();
        self.host.yield_now();
    }
}

impl<H: Host> Witness for X86<'_, H> {}
