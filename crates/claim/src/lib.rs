//! Tokens that say which caller owns a block of frames.
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
//!   becomes a `Claim` by a [`Flushed`] alone, which the wait for a flush issues. Until then a
//!   gather's list of drops keeps its parts (flush::F1).
//! - I3. Neither is `Clone` or `Copy`, and only a `Claim` can be freed.
//!
//! A token that is made of a number is a promise, which its maker gives in an unsafe block:
//! [`Claim::from_raw`], [`Claim::taken`], [`Stale::unmapped`], [`Flushed::waited`]. All else that
//! is done with tokens is safe.
//!
//! **Not here**: memory, tables, flushes; references to what is mapped (`foliant::frame`).
//!
//! ```
//! use foliant_claim::{Claim, Flushed, Stale};
//! use foliant_units::{Frame, Order};
//!
//! // SAFETY: in this example nobody else knows the frame.
//! let claim = unsafe { Claim::from_raw(Frame::new(512), Order::SIZE_2M) };
//! let mut halves = claim.into_parts(Order::new(8).unwrap());
//! let (first, _second) = (halves.next().unwrap(), halves.next().unwrap());
//!
//! let (frame, order) = first.into_raw(); // it is mapped, and its entry stands for it
//! // SAFETY: its entry was taken out just now, and nothing else stands for it.
//! let stale = unsafe { Stale::unmapped(frame, order) };
//! // SAFETY: the flush is over.
//! let flushed = unsafe { Flushed::waited() };
//! assert_eq!(stale.flushed(flushed).frame(), Frame::new(512));
//! ```
#![cfg_attr(not(test), no_std)]

mod claim;
mod parts;

pub use claim::{Claim, Flushed, Stale, Touched};
pub use parts::Parts;
