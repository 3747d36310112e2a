//! Guest memory out of a pool of huge pages, behind the traits of the crate `vm-memory`.
//!
//! A monitor that is written against `GuestMemoryBackend` (devices, loaders, virtio queues) runs on
//! Foliant's memory unchanged, and every page of its guest is a huge one. Why a crate of its own:
//! `vm-memory` needs `std`, and `foliant` does without.
//!
//! ```text
//!   pool ──map, populate──▶ a space of its own, run by no CPU ──leaves, by frame──▶ page, page, page ...
//!    ▲  ▲                                                                            │
//!    │  │                                     GuestRam::new: a run of neighbours in the direct map ──▶ Region
//!    │  └── given back: hidden, freed, dropped ◀── GuestRam::in_file: all of a range, shown in view ──▶ Region
//!    │                                                                                        │
//!    └────────────────── dropped: the space ends ◀──────────────────────── reads and writes ──┘ frame() for nested tables
//! ```
//!
//! *In view*: a range of this process's addresses is taken once and for all, and each page is
//! mapped into it from the machine's file, wherever its frame lies there. So 8 GiB are one region,
//! which a slice or a slot of KVM covers, and not 4,096. Without a file a region is a run of pages
//! that follow one another in the direct map; the guest's pages are put in the order of their
//! frames, so a pool that was filled at boot gives few and long ones.
//!
//! **Invariants**
//! - G1. Every address of a region is backed when the memory is made, or it is not made: until it
//!   gives pages back, the guest never waits for memory.
//! - G2. Pages stay where they are until they are given back or the memory is dropped: they are
//!   mapped in a space whose name nobody else knows, and huge pages of a pool are neither split nor
//!   moved.
//! - G3. Regions are in the order of their addresses, do not overlap, and in view do not touch.
//! - G4. An address that was handed out is the same memory of the guest for as long as the region
//!   lives, or zeros of this process while the page is given back; never a frame that somebody else
//!   has. So a page is hidden before it is freed and dropped, and only views give pages back.
//! - G5. Who was told where a region lies in the file (`file_offset`) may map it there, past G4:
//!   such a region gives nothing back. A region that gave something back does not say.
//! - G6. A slice is handed out of pages that are there: what was given back comes back first, or
//!   the access is refused.
//!
//! **Locking**: reads and writes take none; they look at one counter, and at the pages in question
//! where it is not 0. A region's `changing` is held by whoever gives back or has come back, over
//! the calls of the manager that it takes. Those yield, and so do its waiters (`Clock::yield_now`).
//! Whoever gives back, has come back, or touches what was given back calls the manager, so it is
//! one of the machine's CPUs.
//!
//! **Not here**: nested tables, what virtual CPUs write, ranges that are given to a guest later.
//!
//! ```
//! use foliant::{Manager, Policy, manager::Setup, pool::Budget, table::X86_64};
//! use foliant_guest::GuestRam;
//! use foliant_sim::{Config, Sim};
//! use foliant_units::{Bytes, Order};
//! use vm_memory::{Bytes as _, GuestAddress};
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
//! assert_eq!(&read, b"over the edge");
//! assert!(guest.write_slice(&read, GuestAddress(8 << 20)).is_err());
//!
//! drop(guest);
//! assert_eq!(host.pool(Order::SIZE_2M).unwrap().free_hugepages, 8);
//! ```
//!
//! Where the machine's memory is a file, pages go back and come back:
//!
//! ```
//! # use foliant::{Manager, Policy, manager::Setup, pool::Budget, table::X86_64};
//! # use foliant_guest::{FrameFile, GuestRam};
//! # use foliant_sim::{Backing, Config, Sim};
//! # use foliant_units::{Bytes, Order};
//! # use vm_memory::{Bytes as _, GuestAddress, GuestMemoryBackend};
//! let config = Config { backing: Backing::File, ..Config::seeded(1, Bytes::new(64 << 20), 1) };
//! let machine = Sim::new(config).unwrap();
//! # let setup = Setup::of(&machine.config().memory, Policy::BASE_ONLY);
//! # let host: Manager<'_, Sim, X86_64<4>> = Manager::new(&machine, &setup).unwrap();
//! # host.resize_pool(Order::SIZE_2M, 8, Budget::ALL).unwrap();
//! let (file, first) = machine.memory_file().unwrap();
//! // SAFETY: the machine maps its memory from there, shared.
//! let file = unsafe { FrameFile::new(file, first) };
//! let ranges = [(GuestAddress(0), Bytes::new(8 << 20))];
//! let guest = GuestRam::in_file(&host, &file, Order::SIZE_2M, &ranges).unwrap();
//! assert_eq!(guest.num_regions(), 1); // four huge pages
//! guest.write_obj(42u64, GuestAddress(4 << 20)).unwrap();
//!
//! assert_eq!(guest.give_back(GuestAddress(4 << 20), Bytes::SIZE_2M), Ok(Bytes::SIZE_2M));
//! assert_eq!(host.pool(Order::SIZE_2M).unwrap().free_hugepages, 5);
//! assert_eq!(guest.read_obj::<u64>(GuestAddress(4 << 20)).unwrap(), 0); // it comes back
//! assert_eq!(host.pool(Order::SIZE_2M).unwrap().free_hugepages, 4);
//! ```

mod error;
mod leaves;
mod ram;
mod region;
mod view;

pub use error::{GuestError, HostCall};
pub use ram::GuestRam;
pub use region::Region;
pub use view::FrameFile;
