//! Addresses, frame numbers, orders, sizes and ranges: the quantities that every other crate counts
//! in.
//!
//! A newtype for every quantity, so that a frame number is never added to an address and a page
//! count is never taken for bytes. Conversions exist between neighbours only:
//!
//! ```text
//!   Pa ──frame()──▶ Frame ──pa()──▶ Pa        physical address, number of a 4 KiB frame
//!   Bytes ◀──bytes()── Order ──pages()──▶ Pages   2^order frames, naturally aligned
//!   Va ──align_down(Bytes)──▶ Va              virtual address
//! ```
//!
//! **Invariants**
//! - I1. `Order` is 0..=18 (4 KiB to 1 GiB); there is no way to hold a larger one.
//! - I2. A range's start never lies behind its end; an empty range is legal and contains nothing.
//! - I3. Nothing here panics on a value that came from outside: constructors that can refuse return
//!   `Option` or `Result`.
//!
//! **Not here**: page-table formats (`foliant::table`), node topology, anything that touches
//! memory.
//!
//! ```
//! use foliant_units::{Bytes, Cpu, Frame, Nanos, Order, Pa};
//! let order = Order::fitting(Bytes::parse("64k").unwrap()).unwrap();
//! assert_eq!(order.pages().get(), 16);
//! assert_eq!(Frame::new(3).pa(), Pa::new(0x3000));
//! assert_eq!((Cpu::new(1).index(), Nanos::new(250).get()), (1, 250));
//! ```
#![no_std]
#![forbid(unsafe_code)]

mod addr;
mod count;
mod level;
mod order;
mod range;
mod size;

pub use addr::{Frame, Pa, Va};
pub use count::{Cpu, CpuSet, Nanos, Node, Pages};
pub use level::Level;
pub use order::Order;
pub use range::{FrameRange, VaRange};
pub use size::{Bytes, SizeError};

/// Bytes of one base frame: 4 KiB.
pub const FRAME_BYTES: u64 = 4096;
/// log2 of [`FRAME_BYTES`].
pub const FRAME_SHIFT: u32 = 12;
/// The largest number of CPUs that a [`CpuSet`] can name.
pub const CPUS_MAX: usize = 1024;
