//! Descriptors of frames, and tokens that say which caller owns a block of them.
//!
//! A block's tokens are those of [`foliant_claim`], where their invariants stand.
//!
//! **Invariants**
//! - I4. References of entries that were taken out are `Unmapped`, and are dropped with a
//!   `Flushed`.
mod contents;
mod descriptor;
mod origin;
mod unmapped;

pub use contents::Contents;
pub use descriptor::{DESCRIPTOR_BYTES, Flag, Identity, Kind, word_at};
pub(crate) use descriptor::{GUESS, Guess, Link, ORIGIN, References, SUBPOOL, TALLY};
pub use foliant_claim::{Claim, Flushed, Stale};
pub(crate) use foliant_claim::{Parts, Touched};
pub use origin::AnonOffset;
pub(crate) use origin::{Index, Origin};
pub(crate) use unmapped::Unmapped;
