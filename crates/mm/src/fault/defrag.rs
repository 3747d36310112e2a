//! What a fault does for a large folio where no block is free: the switch `defrag`.

use crate::frame::{Claim, Contents};
use crate::space::Flags;
use crate::stock::Stock;
use crate::table::Paging;
use core::cell::Cell;
use core::{error, fmt, str};
use foliant_machine::Machine;
use foliant_units::Order;

/// Whether a fault waits until memory is compacted, or asks for it to be done later, or neither.
/// The words and answers are those of Linux's `/sys/kernel/mm/transparent_hugepage/defrag`.
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
    pub const fn answer(self, flags: Flags) -> OnShortage {
        match (self, flags.has(Flags::HUGEPAGE)) {
            (Defrag::Always, _) | (Defrag::DeferMadvise | Defrag::Madvise, true) => {
                OnShortage::Wait
            }
            (Defrag::Defer, _) | (Defrag::DeferMadvise, false) => OnShortage::Later,
            (Defrag::Madvise, false) | (Defrag::Never, _) => OnShortage::StepDown,
        }
    }
}

/// What is done where no block is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnShortage {
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
pub(crate) struct BlockOffer {
    pub(crate) tried: Cell<Tried>,
    /// For which order the face was asked to have memory compacted.
    asked: Cell<Option<Order>>,
    claim: Cell<Option<Claim>>,
    /// Of the claim, if there is one.
    contents: Cell<Contents>,
}

impl BlockOffer {
    /// Notes that the face is asked for a block of `order`.
    pub(super) fn ask(&self, order: Order) {
        self.asked.set(Some(order));
    }
    pub(super) fn asked(&self) -> Option<Order> {
        self.asked.get()
    }
    /// Keeps `claim`, with any contents, for the fault, which has no block yet.
    pub(super) fn keep(&self, claim: Claim) {
        let before = self.claim.replace(Some(claim));
        assert!(before.is_none(), "a fault has one block at a time");
        self.contents.set(Contents::Any);
    }
    /// Has the block that is kept cleared.
    pub(crate) fn clear(&self, clear: impl FnOnce(&Claim)) {
        let claim = self.claim.take().expect("zeros are asked for with a block");
        clear(&claim);
        self.claim.set(Some(claim));
        self.contents.set(Contents::Zero);
    }
    /// The order of the block, if it has one.
    pub(crate) fn order(&self) -> Option<Order> {
        let claim = self.claim.take();
        let order = claim.as_ref().map(Claim::order);
        self.claim.set(claim);
        order
    }
    /// The order of the block, if it was cleared.
    pub(crate) fn cleared(&self) -> Option<Order> {
        self.order().filter(|_| self.contents.get() == Contents::Zero)
    }
    /// Gives the block back, if there is one.
    pub(crate) fn give_back<M: Machine, P: Paging>(&self, stock: &Stock<'_, M, P>) {
        let Some(claim) = self.claim.take() else { return };
        match self.contents.get() {
            Contents::Any => stock.put_back(claim),
            Contents::Zero => stock.drop_cleared(claim),
        }
    }
    /// The block, if it is of `order`.
    pub(crate) fn take(&self, order: Order) -> Option<(Claim, Contents)> {
        match self.claim.take() {
            Some(claim) if claim.order() == order => Some((claim, self.contents.get())),
            other => {
                self.claim.set(other);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_answers_are_those_of_linux() {
        use OnShortage::{Later, StepDown, Wait};
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
