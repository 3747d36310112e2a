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
    /// Groups of entries that the format's hardware may cache as one: made, and taken apart.
    pub groups: [u64; 2],
    /// Pages of sizes that the manager chose that were given back, because nobody used them.
    pub taken: u64,
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
    /// The operations that there were, in lines of some hundred characters.
    fn named(&self) -> String {
        const WIDTH: usize = 100;
        let (mut text, mut width) = (String::new(), "  operations:".len());
        for (name, count) in &self.operations {
            let word = format!(" {name} {count},");
            if width + word.len() > WIDTH {
                text += "\n   ";
                width = 3;
            }
            width += word.len();
            text += &word;
        }
        text.trim_end_matches(',').to_owned()
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
        writeln!(f, "  operations:{}", self.named())?;
        writeln!(
            f,
            "  {} faults, {} flushes that asked {} CPUs, {} switches that kept what was cached",
            self.faults, self.shootdowns, self.interrupts, self.kept
        )?;
        writeln!(
            f,
            "  {} allocations and {} operations refused, digest {:016x}",
            self.refused_allocations, self.refused_operations, self.digest
        )?;
        if let [made, apart] = self.groups
            && made > 0
        {
            writeln!(f, "  {made} groups of entries made, {apart} taken apart")?;
        }
        if let Some(plant) = self.shape.plant {
            writeln!(f, "planted: {}; it struck {} times", plant.about(), self.struck)?;
        }
        if self.is_clean() {
            return writeln!(f, "clean: no checker has found anything");
        }
        writeln!(f, "found:")?;
        const SHOWN: usize = 12;
        for finding in self.findings.iter().take(SHOWN) {
            writeln!(f, "  {finding}")?;
        }
        if self.findings.len() > SHOWN {
            writeln!(f, "  ... and {} more", self.findings.len() - SHOWN)?;
        }
        writeln!(f, "again: {}", self.replay())
    }
}
