//! Planted bugs by their names.
//!
//! **Not here**: which there are and what each does (`plants`).

use crate::plants::ALL;
use crate::saboteur::Bug;
use core::fmt;

/// One deliberate bug.
#[derive(Clone, Copy)]
pub struct Plant(&'static Bug);

impl Plant {
    /// All of them.
    pub(crate) fn all() -> impl Iterator<Item = Plant> {
        ALL.iter().map(Plant)
    }
    /// The bug with this name.
    pub fn parse(name: &str) -> Option<Plant> {
        Plant::all().find(|plant| plant.name() == name)
    }
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        self.0.name
    }
    /// What it does, in one line.
    pub fn about(self) -> &'static str {
        self.0.about
    }
    /// The checker that must catch it.
    pub fn checker(self) -> &'static str {
        self.0.checker
    }
    /// What it does, call by call.
    pub(crate) fn bug(self) -> &'static Bug {
        self.0
    }
}

impl PartialEq for Plant {
    fn eq(&self, other: &Plant) -> bool {
        self.name() == other.name()
    }
}
impl Eq for Plant {}

impl fmt::Debug for Plant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
impl fmt::Display for Plant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
