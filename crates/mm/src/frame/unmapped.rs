//! References on their way out.

use foliant_units::Frame;

/// References to one folio, one for each of its entries that were taken out of page tables. Some
/// CPU may still reach the folio by these, so the references keep it until a gather that takes them
/// has flushed.
#[must_use = "references that nobody drops keep their folio for good"]
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unmapped {
    head: Frame,
    entries: u64,
}

impl Unmapped {
    /// The references of so many entries to the folio at `head`, taken out of page tables by the
    /// caller, or taken off a list of such.
    pub(crate) const fn of(head: Frame, entries: u64) -> Unmapped {
        Unmapped { head, entries }
    }
    /// Joins those of as many more entries, if they are of the same folio.
    pub(crate) fn join(&mut self, other: Unmapped) -> Result<(), Unmapped> {
        if other.head != self.head {
            return Err(other);
        }
        self.entries += other.entries;
        Ok(())
    }
    /// Gives the token up for its parts, for a list that is worked off after the flush.
    pub(crate) const fn into_raw(self) -> (Frame, u64) {
        (self.head, self.entries)
    }
}
