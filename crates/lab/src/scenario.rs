//! The table of scenarios.

use crate::{
    About, LabError, ParameterError, Parameters, Report, Stage, compare, faults, flush, hugetlb,
    split, thpscale, vmalloc, zero,
};
use alloc::vec;
use alloc::vec::Vec;
use core::{error, fmt, str};
use foliant_units::Bytes;

macro_rules! scenarios {
    ($($(#[$doc:meta])* $name:ident => $module:ident,)*) => {
        /// The scenarios.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Scenario {
            $($(#[$doc])* $name,)*
        }

        impl Scenario {
            /// All of them.
            pub const ALL: &'static [Scenario] = &[$(Scenario::$name),*];

            /// What it is.
            pub const fn about(self) -> &'static About {
                match self {
                    $(Scenario::$name => &$module::SCENARIO,)*
                }
            }
            /// Runs it on CPU 0 of the stage.
            pub fn run<'m, S: Stage<'m>>(
                self,
                stage: &S,
                parameters: &Parameters,
            ) -> Result<Report, LabError> {
                match self {
                    $(Scenario::$name => $module::run(stage, parameters),)*
                }
            }
        }
    };
}

scenarios! {
    /// Faults at several folio sizes.
    Faults => faults,
    /// Flushes at several grains.
    Flush => flush,
    /// Clearing huge pages.
    Zero => zero,
    /// A pool of huge pages, its descriptors folded or not.
    Hugetlb => hugetlb,
    /// A kernel hash table by leaves of several sizes.
    Vmalloc => vmalloc,
    /// Huge folios that are split at several grains.
    Split => split,
    /// Faults for huge and base memory while memory is fragmented.
    Thpscale => thpscale,
    /// What another kernel can be asked for as well.
    Compare => compare,
}

impl Scenario {
    /// Its runs: each wants a machine that was just built, because it changes for good how
    /// descriptors are mapped. [`Report::join`] makes one report of theirs.
    pub fn parts(self, parameters: &Parameters) -> Vec<Parameters> {
        match self {
            Scenario::Hugetlb => hugetlb::parts(parameters),
            _ => vec![parameters.clone()],
        }
    }
    /// How much memory a machine must have for it, where the parameters say how much.
    pub fn memory(self, parameters: &Parameters) -> Option<Bytes> {
        match self {
            Scenario::Hugetlb => Some(hugetlb::memory(parameters)),
            Scenario::Vmalloc => Some(vmalloc::memory(parameters)),
            Scenario::Split => Some(split::memory(parameters)),
            Scenario::Thpscale => Some(thpscale::memory(parameters)),
            Scenario::Compare => Some(compare::memory(parameters)),
            _ => None,
        }
    }
}

impl Parameters {
    /// Those of `scenario` that `words` give, and the defaults of the others. Of a parameter that
    /// is given twice the last word counts.
    pub fn parse<'w>(
        scenario: Scenario,
        words: impl IntoIterator<Item = &'w str>,
    ) -> Result<Parameters, ParameterError> {
        Parameters::read(scenario.about(), words)
    }
}

/// There is no scenario of that name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownScenario;

impl fmt::Display for UnknownScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no such scenario; there are")?;
        Scenario::ALL
            .iter()
            .enumerate()
            .try_for_each(|(n, scenario)| write!(f, "{} {scenario}", if n == 0 { "" } else { "," }))
    }
}
impl error::Error for UnknownScenario {}

impl str::FromStr for Scenario {
    type Err = UnknownScenario;
    fn from_str(name: &str) -> Result<Scenario, UnknownScenario> {
        let named = Scenario::ALL.iter().find(|scenario| scenario.about().name == name);
        named.copied().ok_or(UnknownScenario)
    }
}
impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.about().name)
    }
}
