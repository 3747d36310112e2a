//! What a simulated machine is made of.
//!
//! A [`Config`] is plain data. [`Config::seeded`] and [`Config::free`] give the two usual machines;
//! everything else is a field to change. It is checked once, in `Sim::new`.

use crate::cost::CostModel;
use crate::lanes::Trade;
use core::fmt;
use foliant_machine::{Accessed, Faults, MmuRules, Replace};
use foliant_units::{Bytes, CPUS_MAX, FRAME_BYTES, Frame, FrameRange, Pages};

/// How many levels an x86-64 page table has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum X86Levels {
    /// 48-bit addresses.
    Four,
    /// 57-bit addresses.
    Five,
}

/// Which riscv64 translation scheme is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RiscvMode {
    /// Three levels, 39-bit addresses.
    Sv39,
    /// Four levels, 48-bit addresses.
    Sv48,
    /// Five levels, 57-bit addresses.
    Sv57,
}

/// The page-table format that the walker decodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// x86-64: one root for both halves.
    X86_64(X86Levels),
    /// aarch64, 4 KiB granule, 48-bit addresses: a root for each half.
    Aarch64,
    /// riscv64: one root for both halves.
    Riscv64(RiscvMode),
}

impl Format {
    /// Levels of tables.
    pub const fn levels(self) -> u8 {
        match self {
            Format::X86_64(X86Levels::Five) | Format::Riscv64(RiscvMode::Sv57) => 5,
            Format::Riscv64(RiscvMode::Sv39) => 3,
            _ => 4,
        }
    }

    /// The rules that hardware of this format usually has.
    pub const fn usual_rules(self) -> MmuRules {
        match self {
            Format::X86_64(_) => MmuRules {
                replace: Replace::InPlace,
                accessed: Accessed::SetBeforeCached,
                faults: Faults::EndTranslation,
                ceiling_entries: 33,
            },
            Format::Aarch64 => MmuRules {
                replace: Replace::BreakBeforeMake,
                accessed: Accessed::Independent,
                faults: Faults::KeepTranslation,
                ceiling_entries: 512,
            },
            Format::Riscv64(_) => MmuRules {
                replace: Replace::InPlace,
                accessed: Accessed::Independent,
                faults: Faults::KeepTranslation,
                ceiling_entries: 64,
            },
        }
    }
}

/// The size of one translation cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Sets, rounded up to a power of two.
    pub sets: u32,
    /// Entries in a set.
    pub ways: u32,
}

/// The translation caches of each CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Geometry {
    /// Nothing is ever evicted: the meanest machine, every stale entry stays until it is flushed.
    Keep,
    /// Arrays of fixed size for each page size and for each level of cached table pointers.
    Sized {
        /// 4 KiB translations.
        base: Shape,
        /// 2 MiB translations.
        size_2m: Shape,
        /// 1 GiB translations.
        size_1g: Shape,
        /// Cached pointers to tables, for each level.
        tables: Shape,
    },
}

impl Geometry {
    /// About what a server core has in its second level.
    pub const SERVER: Geometry = Geometry::Sized {
        base: Shape { sets: 256, ways: 8 },
        size_2m: Shape { sets: 128, ways: 8 },
        size_1g: Shape { sets: 4, ways: 4 },
        tables: Shape { sets: 8, ways: 4 },
    };
}

/// Whether cached translations carry the tag of the root through which they were read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tags {
    /// No: loading a root ends everything that is not global.
    Absent,
    /// Yes, a tag for each root: what was cached through a root stays while others run.
    Present,
}

/// How the CPUs share the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// One CPU at a time, switching at contract calls as this seed says.
    Seeded(u64),
    /// Real threads, for benchmarks and sanitizers.
    Free,
}

/// What the CPUs of a seeded run are on the host. A seed gives the same history either way.
#[derive(Clone, Copy, Debug)]
pub enum Turns {
    /// A thread each, of which one is awake.
    Threads,
    /// Stacks on the calling thread, which takes turns on them without the host: many times as
    /// fast. The function makes a [`Trade`] for each CPU, which exchanges at each turn what is kept
    /// per thread and has to be per CPU.
    Stacks(fn() -> Trade),
}

/// Whether the checkers watch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checks {
    /// All of them.
    All,
    /// None; nothing is recorded and nothing is paid.
    None,
}

/// Whether clearing touches host memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clearing {
    /// Frames that are known to hold zeros are left alone, and large ones are given back to the
    /// host.
    Lazy,
    /// Every byte is written, for benchmarks of clearing itself.
    Real,
}

/// How the host holds the machine's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// Every frame that was written takes a frame of the host.
    Whole,
    /// The same, in a file that this process can map at other addresses too
    /// ([`Sim::memory_file`](crate::Sim::memory_file)). A fork shares it.
    File,
    /// Frames of descriptors that are all alike take a word, so that a terabyte fits into little.
    /// One CPU at a time is at work: what another one reads meanwhile is not defined.
    Compact,
}

/// How often chance strikes in a seeded run: once in so many opportunities on average; 0 is never.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chance {
    /// Contract calls until another CPU gets the baton.
    pub switch: u32,
    /// Contract calls until a waiting interrupt is taken.
    pub interrupt: u32,
    /// Accesses until a neighbouring address is cached on speculation.
    pub speculate: u32,
}

/// A machine to build.
#[derive(Clone, Debug)]
pub struct Config {
    /// CPUs, 1 to 1024.
    pub cpus: usize,
    /// Physical memory: ranges that do not overlap, together up to 1 TiB. What lies between is a
    /// hole.
    pub memory: Vec<FrameRange>,
    /// The page-table format.
    pub format: Format,
    /// What the translation hardware promises and forbids.
    pub rules: MmuRules,
    /// The translation caches.
    pub geometry: Geometry,
    /// Whether they are tagged.
    pub tags: Tags,
    /// What work costs.
    pub model: CostModel,
    /// How the CPUs share the host.
    pub mode: Mode,
    /// What they are on the host in a seeded run.
    pub turns: Turns,
    /// Whether the checkers watch.
    pub checks: Checks,
    /// Whether clearing touches host memory.
    pub clearing: Clearing,
    /// How the host holds the memory.
    pub backing: Backing,
    /// How often chance strikes.
    pub chance: Chance,
}

impl Config {
    /// A machine for finding mistakes: seeded, checked, tagged, nothing evicted. Memory starts at 1
    /// MiB.
    pub fn seeded(cpus: usize, memory: Bytes, seed: u64) -> Config {
        let format = Format::X86_64(X86Levels::Four);
        Config {
            cpus,
            memory: one_range(memory),
            format,
            rules: format.usual_rules(),
            geometry: Geometry::Keep,
            tags: Tags::Present,
            model: CostModel::xeon_guest_2(),
            mode: Mode::Seeded(seed),
            turns: Turns::Threads,
            checks: Checks::All,
            clearing: Clearing::Lazy,
            backing: Backing::Whole,
            chance: Chance { switch: 16, interrupt: 8, speculate: 8 },
        }
    }

    /// A machine for replays: free-running, unchecked, caches of a server. Memory starts at 1 MiB.
    pub fn free(cpus: usize, memory: Bytes) -> Config {
        Config {
            geometry: Geometry::SERVER,
            mode: Mode::Free,
            checks: Checks::None,
            chance: Chance { switch: 0, interrupt: 0, speculate: 0 },
            ..Config::seeded(cpus, memory, 0)
        }
    }

    /// The same machine with another format and the rules that are usual for it.
    pub fn with_format(self, format: Format) -> Config {
        Config { format, rules: format.usual_rules(), ..self }
    }

    pub(crate) fn checked(mut self) -> Result<Config, SimError> {
        if self.cpus == 0 || self.cpus > CPUS_MAX {
            return Err(SimError::Cpus { asked: self.cpus });
        }
        self.memory.retain(|r| r.pages().get() > 0);
        self.memory.sort_by_key(|r| r.start());
        if self.memory.is_empty() {
            return Err(SimError::NoMemory);
        }
        for pair in self.memory.windows(2) {
            if pair[0].overlaps(pair[1]) {
                return Err(SimError::Overlap { first: pair[0], second: pair[1] });
            }
        }
        let total = self.memory.iter().map(|r| u128::from(r.pages().get())).sum::<u128>();
        if total * u128::from(FRAME_BYTES) > u128::from(SimError::MEMORY_MAX.get()) {
            return Err(SimError::TooMuchMemory { asked_frames: total });
        }
        Ok(self)
    }
}

fn one_range(memory: Bytes) -> Vec<FrameRange> {
    let pages = Pages::new(memory.get() / FRAME_BYTES);
    FrameRange::new(Frame::new(256), pages).into_iter().collect()
}

/// Why a machine could not be built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SimError {
    /// There are 1 to 1024 CPUs.
    Cpus {
        /// The number asked for.
        asked: usize,
    },
    /// No frame of memory was given.
    NoMemory,
    /// Two ranges share a frame.
    Overlap {
        /// The lower one.
        first: FrameRange,
        /// The upper one.
        second: FrameRange,
    },
    /// More than [`SimError::MEMORY_MAX`] in all.
    TooMuchMemory {
        /// Frames asked for.
        asked_frames: u128,
    },
    /// The host refused the address space.
    Host {
        /// The range that it refused.
        range: FrameRange,
    },
}

impl SimError {
    /// The most memory that a machine can have.
    pub const MEMORY_MAX: Bytes = Bytes::new(1 << 40);
}

impl fmt::Display for SimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SimError::Cpus { asked } => write!(f, "{asked} CPUs asked for, 1 to {CPUS_MAX} work"),
            SimError::NoMemory => f.write_str("a machine needs at least one frame of memory"),
            SimError::Overlap { first, second } => {
                write!(f, "memory ranges {first:?} and {second:?} overlap")
            }
            SimError::TooMuchMemory { asked_frames } => {
                write!(f, "{asked_frames} frames asked for, {} at most", SimError::MEMORY_MAX)
            }
            SimError::Host { range } => write!(f, "the host has no address space for {range:?}"),
        }
    }
}

impl core::error::Error for SimError {}
