//! What one history was like and what was found in it.

use crate::shape::Shape;
use core::fmt;
use std::collections::BTreeMap;

/// Something that must not be, and the checker that saw it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// A checker of the machine (`foliant_sim::CHECKERS`), or one of [`CHECKERS`](crate::CHECKERS).
    pub checker: &'static str,
    /// What it saw.
    pub text: String,
}

/// One history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// What it was made of.
    pub shape: Shape,
    /// Operations by name.
    pub operations: BTreeMap<&'static str, u64>,
    /// Faults that the manager handled.
    pub faults: u64,
    /// Flushes that asked other CPUs.
    pub shootdowns: u64,
    /// CPUs that they asked.
    pub interrupts: u64,
    /// Switches to a space of which the CPU kept what it had cached.
    pub kept: u64,
    /// Allocations that the fault plan refused.
    pub refused_allocations: u64,
    /// Operations and accesses refused for lack of memory.
    pub refused_operations: u64,
    /// How often the planted bug struck.
    pub struck: u64,
    /// Equal for equal seeds and shapes.
    pub digest: u64,
    /// What was found; nothing in a clean history.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether nothing was found.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }
    /// Whether `checker` found something.
    pub fn found_by(&self, checker: &str) -> bool {
        self.findings.iter().any(|finding| finding.checker == checker)
    }
    /// The command that replays it.
    pub fn replay(&self) -> String {
        self.shape.replay(self.seed)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.checker, self.text)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.shape)?;
        write!(f, " ")?;
        for (name, count) in &self.operations {
            write!(f, " {name} {count}")?;
        }
        writeln!(f)?;
        writeln!(
            f,
            "  faults {}, shootdowns {} of {} CPUs, kept switches {}, refused allocations {}, refused operations {}, digest {:016x}",
            self.faults,
            self.shootdowns,
            self.interrupts,
            self.kept,
            self.refused_allocations,
            self.refused_operations,
            self.digest
        )?;
        if self.is_clean() {
            return Ok(());
        }
        const SHOWN: usize = 12;
        for finding in self.findings.iter().take(SHOWN) {
            writeln!(f, "  {finding}")?;
        }
        if self.findings.len() > SHOWN {
            writeln!(f, "  ... and {} more", self.findings.len() - SHOWN)?;
        }
        writeln!(f, "  replay: {}", self.replay())
    }
}
