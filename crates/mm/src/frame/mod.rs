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
//!   becomes a `Claim` that is written or freed only after a completed flush. The gather, which
//!   does the flush, alone turns one into a `Claim` before it: to put the frame on its list of
//!   drops (flush::F1).
//! - I3. Neither is `Clone` or `Copy`, and only a `Claim` can be freed.
mod claim;
mod contents;
mod descriptor;
mod origin;

pub(crate) use claim::Touched;
pub use claim::{Claim, Stale};
pub use contents::Contents;
pub use descriptor::{DESCRIPTOR_BYTES, Flag, Identity, Kind, word_at};
pub(crate) use descriptor::{Link, ORIGIN, References, TALLY};
pub use origin::AnonOffset;
pub(crate) use origin::{Index, Origin};
