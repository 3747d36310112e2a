//! Descriptors of frames, and tokens that say which caller owns a block of them.
//!
//! Ownership is carried by tokens, so that the mistakes that cost the most have no spelling:
//!
//! ```text
//!   folio allocator ──alloc──▶ Claim ──map──▶ (mapped)
//!          ▲                     ▲               │ unmap
//!          └───────free──────────┤               ▼
//!                                └──flush──── Stale
//! ```
//!
//! **Invariants**
//! - I1. A [`Claim`] is the only handle to an allocated, unmapped block: nobody else reads, writes
//!   or maps its frames while it exists.
//! - I2. A [`Stale`] block was taken out of page tables, and some CPU may still reach it. It
//!   becomes a `Claim` by a `Flushed` alone, which the wait for a flush issues. Until then a
//!   gather's list of drops keeps its parts (flush::F1).
//! - I3. Neither is `Clone` or `Copy`, and only a `Claim` can be freed.
//! - I4. References of entries that were taken out are `Unmapped`, and are dropped with a
//!   `Flushed`.
mod claim;
mod contents;
mod descriptor;
mod origin;
mod parts;

pub use claim::{Claim, Flushed, Stale};
pub(crate) use claim::{Touched, Unmapped};
pub use contents::Contents;
pub use descriptor::{DESCRIPTOR_BYTES, Flag, Identity, Kind, word_at};
pub(crate) use descriptor::{Link, ORIGIN, References, TALLY};
pub use origin::AnonOffset;
pub(crate) use origin::{Index, Origin};
pub(crate) use parts::Parts;
