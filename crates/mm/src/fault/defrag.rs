//! What a fault does for a large folio where no block is free: the switch `defrag`.

use crate::frame::Claim;
use crate::space::Flags;
use core::cell::Cell;
use core::{error, fmt, str};

/// Whether a fault waits until memory is compacted, or asks for it to be done later, or neither. As Linux's
/// `/sys/kernel/mm/transparent_hugepage/defrag`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Defrag {
    /// Every fault waits.
    Always,
    /// None waits; memory is compacted in the background.
    Defer,
    /// Faults in areas that asked for large folios wait, the others as with `Defer`.
    DeferMadvise,
    /// Faults in areas that asked for large folios wait; for others nothing is done.
    #[default]
    Madvise,
    /// Nothing is done.
    Never,
}

impl Defrag {
    /// All of them.
    pub const ALL: [Defrag; 5] =
        [Defrag::Always, Defrag::Defer, Defrag::DeferMadvise, Defrag::Madvise, Defrag::Never];

    /// Linux's word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Defrag::Always => "always",
            Defrag::Defer => "defer",
            Defrag::DeferMadvise => "defer+madvise",
            Defrag::Madvise => "madvise",
            Defrag::Never => "never",
        }
    }
    /// What a fault in an area with `flags` does.
    pub const fn answer(self, flags: Flags) -> Shortage {
        match (self, flags.has(Flags::HUGEPAGE)) {
            (Defrag::Always, _) | (Defrag::DeferMadvise | Defrag::Madvise, true) => Shortage::Wait,
            (Defrag::Defer, _) | (Defrag::DeferMadvise, false) => Shortage::Later,
            (Defrag::Madvise, false) | (Defrag::Never, _) => Shortage::StepDown,
        }
    }
}

/// What is done where no block is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shortage {
    /// The fault waits for compaction.
    Wait,
    /// It takes a smaller folio, and wants memory compacted later.
    Later,
    /// It takes a smaller folio.
    StepDown,
}

/// The word is none of the five.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownDefrag;

impl fmt::Display for UnknownDefrag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("defrag is one of always, defer, defer+madvise, madvise, never")
    }
}
impl error::Error for UnknownDefrag {}

impl str::FromStr for Defrag {
    type Err = UnknownDefrag;
    fn from_str(word: &str) -> Result<Defrag, UnknownDefrag> {
        Defrag::ALL.into_iter().find(|defrag| defrag.word() == word).ok_or(UnknownDefrag)
    }
}
impl fmt::Display for Defrag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// How far the face went to find a block for a fault.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Tried {
    /// Nothing was done so far.
    #[default]
    No,
    /// The fault steps down, and memory shall be compacted later.
    Later,
    /// Memory was compacted, with or without success.
    Yes,
}

/// What the face did for a block, and the block.
#[derive(Default)]
pub(crate) struct Block {
    pub(crate) tried: Cell<Tried>,
    pub(crate) claim: Cell<Option<Claim>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_answers_are_those_of_linux() {
        use Shortage::{Later, StepDown, Wait};
        let asks = Flags::READ_WRITE.with(Flags::HUGEPAGE);
        for (word, plain, hinted) in [
            ("always", Wait, Wait),
            ("defer", Later, Later),
            ("defer+madvise", Later, Wait),
            ("madvise", StepDown, Wait),
            ("never", StepDown, StepDown),
        ] {
            let defrag: Defrag = word.parse().unwrap();
            assert_eq!(defrag.to_string(), word);
            assert_eq!(defrag.answer(Flags::READ_WRITE), plain, "{word}");
            assert_eq!(defrag.answer(asks), hinted, "{word}");
        }
        for word in ["", "Always", "defer ", "defer+"] {
            assert_eq!(word.parse::<Defrag>(), Err(UnknownDefrag));
        }
    }
}
