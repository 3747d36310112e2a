//! Guest memory out of a pool of huge pages, behind the traits of the crate `vm-memory`.
//!
//! A monitor that is written against `GuestMemoryBackend` (devices, loaders, virtio queues) runs on
//! Foliant's memory unchanged, and every page of its guest is a huge one. Why a crate of its own:
//! `vm-memory` needs `std`, and `foliant` does without.
//!
//! ```text
//!   pool ──map, populate──▶ a space of its own, run by no CPU ──leaves──▶ Page, Page, Page ...   one region each
//!    ▲                                                                     frame() for nested tables
//!    └────────────────── dropped: the space ends ◀─────────────────────── reads and writes by the direct map
//! ```
//!
//! **Invariants**
//! - G1. Every address of a region is backed when the memory is made, or it is not made: the guest
//!   never waits for memory.
//! - G2. Pages stay where they are until the memory is dropped: they are mapped in a space whose
//!   name nobody else knows, and huge pages of a pool are neither split nor moved.
//! - G3. Regions are in the order of their addresses and do not overlap.
//!
//! **Not here**: nested tables, dirty tracking, memory that is given to a guest later or taken
//! back.
//!
//! ```
//! use foliant::{Manager, Policy, manager::Setup, pool::Budget, table::X86_64};
//! use foliant_guest::GuestRam;
//! use foliant_sim::{Config, Sim};
//! use foliant_units::{Bytes, Order};
//! use vm_memory::{Bytes as _, GuestAddress, GuestMemoryBackend};
//!
//! let machine = Sim::new(Config::seeded(1, Bytes::new(64 << 20), 1)).unwrap();
//! let setup = Setup::of(&machine.config().memory, Policy::BASE_ONLY);
//! let host: Manager<'_, Sim, X86_64<4>> = Manager::new(&machine, &setup).unwrap();
//! host.resize_pool(Order::SIZE_2M, 8, Budget::ALL).unwrap();
//!
//! // 8 MiB from 0 on, and 2 MiB at 4 GiB.
//! let ranges = [(GuestAddress(0), Bytes::new(8 << 20)), (GuestAddress(4 << 30), Bytes::SIZE_2M)];
//! let guest = GuestRam::new(&host, Order::SIZE_2M, &ranges).unwrap();
//! guest.write_slice(b"over the edge", GuestAddress(0x1f_fffa)).unwrap();
//! let mut read = [0; 13];
//! guest.read_slice(&mut read, GuestAddress(0x1f_fffa)).unwrap();
//! assert_eq!((&read, guest.num_regions()), (b"over the edge", 5));
//! assert!(guest.write_slice(&read, GuestAddress(8 << 20)).is_err());
//!
//! drop(guest);
//! assert_eq!(host.pool(Order::SIZE_2M).unwrap().free_hugepages, 8);
//! ```

mod error;
mod page;
mod ram;

pub use error::GuestError;
pub use page::Page;
pub use ram::GuestRam;
