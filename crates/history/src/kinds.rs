//! The kinds of history that there are: what CPUs share, which format and rules the machine has,
//! what is refused.

use core::fmt;

/// How CPUs share addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// Each CPU has address ranges of its own in spaces that all run: the model predicts every
    /// load, every refusal.
    Partitioned,
    /// All CPUs work on the same ranges: the model knows which values a load may give.
    Racing,
    /// CPUs make huge pages and fold, unfold and give back their descriptors: the model knows what
    /// each descriptor says.
    Folding,
    /// CPUs map huge pages of one pool, which others make larger and smaller: the model knows what
    /// each page holds, and what was reserved.
    Pooled,
    /// CPUs take kernel memory and give it back: the model knows what each page holds and whether
    /// it may be written.
    Ranges,
    /// CPUs map a few objects, shared and privately, which others write to, cut and end: the model
    /// knows which values a load may give.
    Objects,
}

/// The page-table format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// x86-64 with four levels.
    X86Four,
    /// x86-64 with five levels.
    X86Five,
    /// aarch64, which breaks before it makes.
    Aarch64,
    /// riscv64 with three levels.
    Sv39,
    /// riscv64 with four levels.
    Sv48,
}

/// Which allocations are refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// None.
    Nothing,
    /// One in so many.
    OneIn(u32),
    /// The one with this number, counted from the start of the operations.
    Kth(u64),
}

/// The rules of the machine about live entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Live {
    /// What is usual for the format.
    Usual,
    /// Break before make.
    BreakBeforeMake,
}

/// Which sizes of folios the switches say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sizes {
    /// Any, as chance has it.
    Any,
    /// All that there are, as the manager chooses.
    Auto,
}

impl Style {
    /// All of them.
    pub const ALL: [Style; 6] = [
        Style::Partitioned,
        Style::Racing,
        Style::Folding,
        Style::Pooled,
        Style::Ranges,
        Style::Objects,
    ];
}

impl fmt::Display for Style {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Style::Partitioned => "partitioned",
            Style::Racing => "racing",
            Style::Folding => "folding",
            Style::Pooled => "pooled",
            Style::Ranges => "ranges",
            Style::Objects => "objects",
        })
    }
}

impl core::str::FromStr for Style {
    type Err = ();
    fn from_str(text: &str) -> Result<Style, ()> {
        Style::ALL.into_iter().find(|s| s.to_string() == text).ok_or(())
    }
}
