//! The tokens. This is the one file of the crate with unsafe code: what its unsafe functions ask
//! for is the caller's to know.
#![allow(unsafe_code)]

use foliant_units::{Frame, FrameRange, Order};

/// An allocated block that is mapped nowhere and is exclusively the holder's.
///
/// It can be neither copied nor cloned; dropping it leaks the block, which the conservation checker
/// reports.
///
/// ```compile_fail
/// fn twice(claim: foliant_claim::Claim) -> (foliant_claim::Claim, foliant_claim::Claim) {
///     (claim.clone(), claim) // a Claim is not Clone
/// }
/// ```
/// ```compile_fail
/// fn twice(claim: foliant_claim::Claim) -> (foliant_claim::Claim, foliant_claim::Claim) {
///     (claim, claim) // nor Copy
/// }
/// ```
/// ```compile_fail
/// fn forged(frame: foliant_units::Frame) -> foliant_claim::Claim {
///     foliant_claim::Claim::from_raw(frame, foliant_units::Order::BASE) // making one is unsafe
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
pub enum Touched {
    /// It was not.
    No,
    /// It may have been.
    Perhaps,
}

impl Claim {
    /// States that the caller owns the block. From here on the claim alone stands for it.
    ///
    /// # Safety
    /// The block is allocated, mapped nowhere, and nobody else's (claim::I1). The caller has just
    /// allocated it or was lent it, has cut it off another claim, takes up again what it had put
    /// away ([`into_raw`](Claim::into_raw)), or has ended what the block was, with the flush and
    /// the readers that could still come to it behind it (claim::I2).
    #[inline]
    pub const unsafe fn from_raw(frame: Frame, order: Order) -> Claim {
        Claim { frame, order, touched: Touched::Perhaps }
    }
    /// States the same of a block for which all that the allocator knows of its contents holds: it
    /// handed the block out just now, or was told of every writer since (`Folios::forget`).
    ///
    /// # Safety
    /// As [`from_raw`](Claim::from_raw).
    #[inline]
    pub const unsafe fn taken(frame: Frame, order: Order) -> Claim {
        Claim { frame, order, touched: Touched::No }
    }
    /// A part of another claim.
    pub(super) const fn of(frame: Frame, order: Order, touched: Touched) -> Claim {
        Claim { frame, order, touched }
    }
    /// Whether it was written to since it was taken.
    #[inline]
    pub const fn touched(&self) -> Touched {
        self.touched
    }
    /// The first frame.
    #[inline]
    pub const fn frame(&self) -> Frame {
        self.frame
    }
    /// The size.
    #[inline]
    pub const fn order(&self) -> Order {
        self.order
    }
    /// All its frames.
    #[inline]
    pub fn frames(&self) -> FrameRange {
        FrameRange::block(self.frame, self.order)
    }
    /// Gives the token up for its parts: the block changes hands by other means (it is mapped, or
    /// becomes a page table).
    #[inline]
    pub const fn into_raw(self) -> (Frame, Order) {
        (self.frame, self.order)
    }
}

/// A block that was unmapped and that other CPUs may still reach through stale translations.
///
/// ```
/// # use foliant_claim::{Claim, Flushed, Stale};
/// fn behind(stale: Stale, flushed: Flushed) -> Claim {
///     stale.flushed(flushed) // only a completed flush makes a Claim of it
/// }
/// ```
/// ```compile_fail
/// # use foliant_claim::{Claim, Flushed, Stale};
/// fn hasty(stale: Stale) -> Claim {
///     stale.flushed() // nothing was flushed
/// }
/// ```
/// ```compile_fail
/// # use foliant_claim::{Claim, Flushed, Stale};
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
    ///
    /// # Safety
    /// The block is nobody else's, and stands in no page table any more.
    #[inline]
    pub const unsafe fn unmapped(frame: Frame, order: Order) -> Stale {
        Stale { frame, order }
    }
    /// The first frame.
    #[inline]
    pub const fn frame(&self) -> Frame {
        self.frame
    }
    /// The size.
    #[inline]
    pub const fn order(&self) -> Order {
        self.order
    }
    /// The claim that a completed flush makes of it (claim::I2).
    #[inline]
    pub const fn flushed(self, _: Flushed) -> Claim {
        // SAFETY: claim::I2: the flush is done, and the token goes.
        unsafe { Claim::from_raw(self.frame, self.order) }
    }
    /// For a caller that uses page tables without a manager, and has flushed by itself.
    ///
    /// # Safety
    /// The block is in no CPU's translation caches any more, and nobody walks through it any more
    /// if it was a table.
    #[inline]
    pub const unsafe fn vouched(self) -> Claim {
        // SAFETY: the caller's promise.
        self.flushed(unsafe { Flushed::waited() })
    }
    /// Gives the token up for its parts, for a list that is worked off after the flush: it is made
    /// anew there ([`Stale::unmapped`]).
    #[inline]
    pub const fn into_raw(self) -> (Frame, Order) {
        (self.frame, self.order)
    }
}

/// Says that a flush is done: what was taken out before it is in no CPU's caches any more. The
/// manager's wait for a flush issues it (`cargo xtask tidy` looks). It does not name its flush: the
/// holder knows that the flush covers what the proof is used for. A caller that uses page tables
/// without a manager flushes by itself, and vouches for each block ([`Stale::vouched`]).
///
/// ```compile_fail
/// # use foliant_claim::Flushed;
/// fn forged() -> Flushed {
///     Flushed(()) // nothing was flushed
/// }
/// ```
/// ```compile_fail
/// # use foliant_claim::{Claim, Stale};
/// fn careless(stale: Stale) -> Claim {
///     stale.vouched() // vouching is unsafe
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Flushed(());

impl Flushed {
    /// For the wait.
    ///
    /// # Safety
    /// The flush of all that the proof is used for is done on every CPU that could have cached it.
    #[inline]
    pub const unsafe fn waited() -> Flushed {
        Flushed(())
    }
}
