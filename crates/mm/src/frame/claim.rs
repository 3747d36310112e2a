//! Ownership tokens of blocks of frames.

use foliant_units::{Frame, FrameRange, Order};

/// An allocated block that is mapped nowhere and is exclusively the holder's.
///
/// It can be neither copied nor cloned; dropping it leaks the block, which the conservation checker
/// reports.
///
/// ```compile_fail
/// fn twice(claim: foliant::frame::Claim) -> (foliant::frame::Claim, foliant::frame::Claim) {
///     (claim.clone(), claim) // a Claim is not Clone
/// }
/// ```
/// ```compile_fail
/// fn twice(claim: foliant::frame::Claim) -> (foliant::frame::Claim, foliant::frame::Claim) {
///     (claim, claim) // nor Copy
/// }
/// ```
#[must_use = "a dropped claim leaks its frames"]
#[derive(Debug, PartialEq, Eq)]
pub struct Claim {
    frame: Frame,
    order: Order,
    touched: Touched,
}

/// Whether a block was written to since it was taken. Only if it was not, the allocator's knowledge
/// of its contents still holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Touched {
    /// It was not.
    No,
    /// It may have been.
    Perhaps,
}

impl Claim {
    /// States that the caller owns the block: it is allocated, mapped nowhere, and nobody else's
    /// (frame::I1). The caller has just allocated it or was lent it (`Spare::lend`), has cut it off
    /// another claim, takes up again what it had put away ([`into_raw`](Claim::into_raw)), or has
    /// ended what the block was, with the flush and the readers that could still come to it behind
    /// it (frame::I2). From here on the claim alone stands for the block.
    pub(crate) const fn from_raw(frame: Frame, order: Order) -> Claim {
        Claim { frame, order, touched: Touched::Perhaps }
    }
    /// States the same of a block for which all that the allocator knows of its contents holds: it
    /// handed the block out just now, or was told of every writer since (`Folios::forget`).
    pub(crate) const fn taken(frame: Frame, order: Order) -> Claim {
        Claim { frame, order, touched: Touched::No }
    }
    /// A part of another claim.
    pub(super) const fn of(frame: Frame, order: Order, touched: Touched) -> Claim {
        Claim { frame, order, touched }
    }
    /// Whether it was written to since it was taken.
    pub(crate) const fn touched(&self) -> Touched {
        self.touched
    }
    /// The first frame.
    pub const fn frame(&self) -> Frame {
        self.frame
    }
    /// The size.
    pub const fn order(&self) -> Order {
        self.order
    }
    /// All its frames.
    pub fn frames(&self) -> FrameRange {
        FrameRange::new(self.frame, self.order.pages()).expect("a claim lies in memory")
    }
    /// Gives the token up for its parts: the block changes hands by other means (it is mapped, or
    /// becomes a page table).
    pub(crate) const fn into_raw(self) -> (Frame, Order) {
        (self.frame, self.order)
    }
}

/// A block that was unmapped and that other CPUs may still reach through stale translations.
///
/// ```
/// # use foliant::frame::{Claim, Flushed, Stale};
/// fn behind(stale: Stale, flushed: Flushed) -> Claim {
///     stale.flushed(flushed) // only a completed flush makes a Claim of it
/// }
/// ```
/// ```compile_fail
/// # use foliant::frame::{Claim, Flushed, Stale};
/// fn hasty(stale: Stale) -> Claim {
///     stale.flushed() // nothing was flushed
/// }
/// ```
/// ```compile_fail
/// # use foliant::frame::{Claim, Flushed, Stale};
/// fn twice(stale: Stale, flushed: Flushed) -> (Claim, Claim) {
///     (stale.flushed(flushed), stale.flushed(flushed)) // there is one block
/// }
/// ```
#[must_use = "a dropped stale block leaks its frames"]
#[derive(Debug, PartialEq, Eq)]
pub struct Stale {
    frame: Frame,
    order: Order,
}

impl Stale {
    /// The block of these parts of a claim, taken out of page tables by the caller, or taken off a
    /// list of such blocks.
    pub(crate) const fn unmapped(frame: Frame, order: Order) -> Stale {
        Stale { frame, order }
    }
    /// The first frame.
    pub const fn frame(&self) -> Frame {
        self.frame
    }
    /// The size.
    pub const fn order(&self) -> Order {
        self.order
    }
    /// The claim that a completed flush makes of it (frame::I2).
    pub const fn flushed(self, _: Flushed) -> Claim {
        Claim::from_raw(self.frame, self.order)
    }
    /// Gives the token up for its parts, for a list that is worked off after the flush: it is made
    /// anew there ([`Stale::unmapped`]).
    pub(crate) const fn into_raw(self) -> (Frame, Order) {
        (self.frame, self.order)
    }
}

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

/// Says that a flush is done: what was taken out before it is in no CPU's caches any more. The
/// manager's wait for a flush issues it (`cargo xtask tidy` looks). It does not name its flush: the
/// holder knows that the flush covers what the proof is used for. A caller that uses page tables
/// without a manager flushes by itself, and vouches for each block ([`Stale::vouched`]).
///
/// ```compile_fail
/// # use foliant::frame::Flushed;
/// fn forged() -> Flushed {
///     Flushed(()) // nothing was flushed
/// }
/// ```
/// ```compile_fail
/// # use foliant::frame::{Claim, Stale};
/// fn careless(stale: Stale) -> Claim {
///     stale.vouched() // vouching is unsafe
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Flushed(());

impl Flushed {
    /// For the wait.
    pub(crate) const fn waited() -> Flushed {
        Flushed(())
    }
}
