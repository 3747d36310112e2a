//! The name of a scene, which says all of it.
//!
//! ```text
//!   aarch64 huge fork1 refuse1: Write + Load | Unmap & Compact
//!   format  folios  options   ^ CPU 0        ^ CPU 1, two tasks that take turns where they yield
//! ```

use crate::machine::Flaw;
use crate::mix::LANES_MAX;
use crate::operation::Operation;
use core::fmt;
use core::str::FromStr;

/// The page tables of the machine, and the rules that go with them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Four levels; entries are replaced in place.
    X86_64,
    /// Entries are broken before others are made.
    Aarch64,
    /// Accessed bits are not set before an entry is cached.
    Riscv64,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 3] = [Format::X86_64, Format::Aarch64, Format::Riscv64];
}

/// The size of the folios that faults make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Folios {
    /// 4 KiB.
    Base,
    /// 64 KiB.
    Small,
    /// 2 MiB.
    Huge,
    /// 2 MiB, and shared zeros of 2 MiB are there before any operation begins.
    Zeros,
    /// As large as the manager chooses; with the next fault the first one loses what is idle of it.
    Auto,
}

impl Folios {
    /// All of them.
    pub const ALL: [Folios; 5] =
        [Folios::Base, Folios::Small, Folios::Huge, Folios::Zeros, Folios::Auto];
}

/// What meets in a scene, and on what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The machine.
    pub format: Format,
    /// The folios.
    pub folios: Folios,
    /// Children that share everything.
    pub forks: usize,
    /// Further areas, one behind the other.
    pub areas: u64,
    /// What the space may be charged; 0 is no limit.
    pub limit: u64,
    /// Whether no memory is free but for so many blocks of 2 MiB.
    pub free: Option<usize>,
    /// Allocations that may be refused, each at every place.
    pub refusals: u32,
    /// What is wrong with the machine.
    pub flaw: Option<Flaw>,
    /// Operations of each task of each CPU.
    pub cpus: Vec<Vec<Vec<Operation>>>,
}

impl Plan {
    /// One operation for each CPU.
    pub fn of(folios: Folios, forks: usize, operations: &[Operation]) -> Plan {
        let cpus = operations.iter().map(|op| vec![vec![*op]]).collect();
        let format = Format::X86_64;
        Plan {
            format,
            folios,
            forks,
            areas: 0,
            limit: 0,
            free: None,
            refusals: 0,
            flaw: None,
            cpus,
        }
    }
    pub(crate) fn operations(&self) -> impl Iterator<Item = Operation> {
        self.cpus.iter().flatten().flatten().copied()
    }
    /// The CPU of each lane, and what it does.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = (usize, &[Operation])> {
        self.cpus
            .iter()
            .enumerate()
            .flat_map(|(cpu, tasks)| tasks.iter().map(move |ops| (cpu, ops.as_slice())))
    }
}

/// No block is free, or one.
const FREE: [&str; 2] = ["full", "block"];

fn lower(text: &impl fmt::Debug) -> String {
    format!("{text:?}").to_lowercase()
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", lower(&self.format), lower(&self.folios))?;
        let options = [
            ("fork", self.forks as u64),
            ("areas", self.areas),
            ("limit", self.limit),
            ("refuse", u64::from(self.refusals)),
        ];
        for (name, value) in options.iter().filter(|(_, value)| *value > 0) {
            write!(f, " {name}{value}")?;
        }
        if let Some(blocks) = self.free {
            write!(f, " {}", FREE[blocks])?;
        }
        let task = |ops: &Vec<Operation>| {
            ops.iter().map(|op| format!("{op:?}")).collect::<Vec<_>>().join(" + ")
        };
        let cpu =
            |tasks: &Vec<Vec<Operation>>| tasks.iter().map(task).collect::<Vec<_>>().join(" & ");
        write!(f, ": {}", self.cpus.iter().map(cpu).collect::<Vec<_>>().join(" | "))
    }
}

impl FromStr for Plan {
    type Err = String;

    fn from_str(text: &str) -> Result<Plan, String> {
        let shape = "a scene is like 'x86_64 base fork1: Write + Load | Unmap & Compact'";
        let (head, body) =
            text.split_once(':').ok_or(format!("'{text}' names no scene: {shape}"))?;
        let mut plan = Plan::of(Folios::Base, 0, &[]);
        for word in head.split_whitespace() {
            let number = |name: &str| word.strip_prefix(name).and_then(|rest| rest.parse().ok());
            if let Some(format) = Format::ALL.into_iter().find(|format| lower(format) == word) {
                plan.format = format;
            } else if let Some(folios) = Folios::ALL.into_iter().find(|f| lower(f) == word) {
                plan.folios = folios;
            } else if let Some(forks) = number("fork") {
                plan.forks = forks as usize;
            } else if let Some(areas) = number("areas") {
                plan.areas = areas;
            } else if let Some(limit) = number("limit") {
                plan.limit = limit;
            } else if let Some(refusals) = number("refuse") {
                plan.refusals = refusals as u32;
            } else if let Some(blocks) = FREE.iter().position(|free| *free == word) {
                plan.free = Some(blocks);
            } else {
                return Err(format!("'{word}' is no part of a scene's name: {shape}"));
            }
        }
        for cpu in body.split('|') {
            let mut tasks = Vec::new();
            for task in cpu.split('&') {
                let operation = |name: &str| {
                    let name = name.trim();
                    Operation::parse(name).ok_or(format!("'{name}' is no operation: see --list"))
                };
                tasks.push(task.split('+').map(operation).collect::<Result<Vec<_>, _>>()?);
            }
            plan.cpus.push(tasks);
        }
        if plan.lanes().count() > LANES_MAX {
            return Err(format!("'{text}' has more than {LANES_MAX} tasks"));
        }
        Ok(plan)
    }
}
