//! Tables that nothing needs any more.

use super::paging::Paging;
use foliant_claim::Stale;
use foliant_units::Level;

/// Which tables go when they have become empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prune {
    /// None: the range will be mapped again.
    Keep,
    /// Those that do not hang in the top table.
    Emptied,
    /// Those too: the space is torn down, or its half has a root of its own that nobody shares.
    All,
}

/// An empty table that was taken out of the one above. Its leaves, if it ever had any, went before
/// it: a CPU's caches hold nothing of it but pointers to it. (A table that goes with its leaves is
/// [`Collapsed`](super::Collapsed).)
#[must_use = "the table must be flushed, then freed"]
#[derive(PartialEq, Eq, Debug)]
pub struct Detached {
    table: Stale,
}

impl Detached {
    #[inline]
    pub(super) const fn of(table: Stale) -> Detached {
        Detached { table }
    }
    /// The table itself.
    #[inline]
    pub fn into_table(self) -> Stale {
        self.table
    }
}

impl Prune {
    /// Whether a table of `level` entries may go.
    pub(super) fn allows<P: Paging>(self, level: Level) -> bool {
        match self {
            Prune::Keep => false,
            Prune::Emptied => level.up() < P::TOP,
            Prune::All => level < P::TOP,
        }
    }
}
