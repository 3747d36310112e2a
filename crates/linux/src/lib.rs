//! Linux's memory calls over a [`Manager`](foliant::Manager).
//!
//! A kernel that runs programs written for Linux hands their calls on, and gets back what Linux
//! would have answered: a number, or an errno. An access that the processor refuses becomes a page
//! that is there, or a signal. What Linux shows of memory in text files is made here too, and
//! [`credentials`] say what a task may do by its user, its groups and its [`capabilities`].
//!
//! ```text
//!   program ──call──▶ embedder: registers ──▶ Process::mmap(addr, len, …) ──▶ Manager::map, protect, …
//!           ◀─number or errno──                        │
//!   program ──fault─▶ embedder: address, access ──▶ Process::fault ──▶ Manager::fault
//!           ◀─page, or signal──
//! ```
//!
//! **Invariants**
//! - X1. What areas a process has stands in the manager alone. What Linux knows of an area and the
//!   manager does not is in the area's tag ([`Tag`]). How many pages they have is counted where
//!   they come and go (`put_as`, `take_out`, a move), and nowhere else (`status`).
//! - X2. A *vma* is a longest row of neighbouring areas of equal properties and tags. Two vmas that
//!   touch are different to Linux too: where Linux would make one of them, their tags are made
//!   equal before the call returns (`join`).
//! - X3. No argument panics. What the manager refuses for want of memory is ENOMEM.
//! - X4. Numbers of Linux come from the crate `linux-raw-sys`; none is written here but those of
//!   System V, of `kpageflags`, of memory policies and of capabilities, which it does not have
//!   ([`sysv`], [`kpage`], [`mempolicy`], [`capabilities`]).
//!
//! **Locking.** A call that changes areas takes `&mut self`, as Linux takes a process's `mmap_lock`
//! to write. [`Process::fault`] takes `&self`, as faults run beside each other; a first write to an
//! area wants `&mut self` and says so ([`Fault::Alone`]). Calls that change the length of a
//! [`MemoryFile`], or write to it, are made one after the other.
//!
//! **Which Linux.** 6.18: neighbours are joined as since 6.15, and a move may take several areas
//! along as since 6.17.
//!
//! **Not here**: tasks, files of a disk, descriptors, the processor, and how memory is managed.
//!
//! # What Linux does and this does not
//!
//! | call | here |
//! |---|---|
//! | `mmap` of a file | of one in memory, whose descriptor the embedder looked up; any process may read and write it |
//! | `mmap` of a file from 2^47 bytes on | ENOMEM; `pwrite` there is EFBIG |
//! | `fallocate` of a file of huge pages | to whole pages; what it brings beyond the end stays only where the file becomes longer |
//! | `mmap` of a file of huge pages beyond its end, read only | reserves nothing there |
//! | `fallocate` without memory for all | ENOSPC before any page comes; beyond the length of a file none stays |
//! | `madvise` `MADV_COLLAPSE` of 2 MiB that a file ends in | EINVAL |
//! | `mmap` with `MAP_DROPPABLE` | as private memory, dropped by `MADV_PAGEOUT` alone |
//! | `mmap` that only executes | may be read, as on a processor without protection keys |
//! | `madvise` `MADV_MERGEABLE`, `MADV_UNMERGEABLE` | EINVAL, as a kernel without these |
//! | `madvise` `MADV_HWPOISON` | the embedder's, by [`Process::retire`] (EINVAL from `foliant boot` until `vm.memory_failure_recovery` is 1); of pinned memory EBUSY |
//! | `madvise` `MADV_SOFT_OFFLINE` | the same; a large folio goes elsewhere whole |
//! | `madvise` `MADV_FREE` | the contents stay for good |
//! | `madvise` `MADV_COLD`, `MADV_PAGEOUT`, `MADV_WILLNEED` | nothing: there is nowhere to page out to, and pages of files stay in page tables |
//! | `mremap` of a part of a private area of huge pages | keeps its reservation, where Linux loses one for ever |
//! | `smaps` | a page that is not exclusively the process's, or is a file's, counts as shared by two; `LazyFree` is 0 |
//! | `meminfo`, `vmstat` | what the manager counts, and what files and processes have that are handed in ([`meminfo::Listed`]): a page of a file counts as mapped for each process; no lines of the processor's own map |
//! | `meminfo`, `ShmemHugePages` | those that large leaves map; others of files are in `AnonHugePages` |
//! | `zoneinfo` | one zone, without watermarks and lists of pages by age |
//! | `pagetypeinfo` | all that is free counts as movable |
//! | `vmallocinfo` | callers have the names that the embedder has for them |
//! | `kpageflags` | a page of a file counts as anonymous; tables, records and zeros say 0, and nothing is on a list by age |
//! | `kpagecount` | of a page of a file one more, for the file's own entry; of a pool's page 0 |
//! | `pagemap` | a page of a pool that others had is not exclusive before it is written; one that a private mapping shows of a file is not a file's |
//! | `clear_refs` | on a format of page tables without a bit for it, what is absent alone becomes clean |
//! | `status` | `VmExe` is 0: all that is executed counts as `VmLib`; `VmHWM` is with pages of pools |
//! | `shmem_enabled` | of every file in memory, also of a `memfd`; `always` is `within_size`, and no vma's advice reaches a file; 8 KiB takes `never` alone |
//! | `khugepaged`, what it scans | private anonymous memory; sizes below 2 MiB as well, where they are switched on |
//! | `khugepaged/defrag` | with 1 a go that finds no block free has memory compacted once, before it begins |
//! | `khugepaged/max_ptes_swap` | is kept, and asked by nobody: nothing is swapped |
//! | `split_huge_pages` | an offset in the folio is read, and all pieces are of one size |
//! | `drop_caches` | nothing: there are no caches |
//! | `overcommit_memory` | the embedder counts what was promised ([`overcommit`]); with 2 pages of files in memory count and are refused to nobody |
//! | `compact_unevictable_allowed` | takes 1 alone: what is locked is moved as all else |
//! | `mbind`, `set_mempolicy_home_node` | there is one node; of a file in memory the policy is the vma's, where Linux keeps it with the file for all who map it; ENOMEM where a process's vmas have 63 policies already |
//! | `set_mempolicy` | the embedder's, whose threads have policies ([`mempolicy`]) |
//! | `numa_maps` | no `mapmax`, `active`, `swapcache` and `writeback` |
//! | `membarrier` | the embedder's: it is about CPUs, and no memory changes |
//! | `shmctl` with `SHM_STAT`, `IPC_INFO`, `SHM_INFO`; `/proc/sysvipc/shm` | the embedder's, who knows owners and times |
//! | `mmap` of address 0 | EPERM, whoever asks: the manager has a lowest address |
//! | `prctl` | `PR_SET_THP_DISABLE`, `PR_SET_MDWE` and what asks for them; all else is the embedder's |
//! | `userfaultfd` | of memory of the program's own, of files in memory, and of huge pages of a pool; one descriptor has vmas at a time, another one gets EBUSY |
//! | `userfaultfd`, features | `PAGEFAULT_FLAG_WP`, `WP_UNPOPULATED`, `WP_HUGETLBFS_SHMEM`, `MISSING_SHMEM`, `MISSING_HUGETLBFS`, `SIGBUS`, `EXACT_ADDRESS`, `EVENT_FORK`, `EVENT_REMAP`, `EVENT_REMOVE`, `EVENT_UNMAP`, `MINOR_SHMEM`, `MINOR_HUGETLBFS`, `POISON`, `WP_ASYNC`: no moves |
//! | `userfaultfd`, `MINOR` | of what has a file: a private mapping of huge pages without one is refused |
//! | `userfaultfd`, events | none of what another process advises |
//! | `userfaultfd`, large pages | none come to vmas that are armed for writes alone, nor are pages of one collapsed |
//! | `userfaultfd`, a write to a page that is missing and protected | is told, and no page comes before |
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod access;
mod advise;
pub mod broken;
mod bytes;
pub mod capabilities;
mod changes;
pub mod controls;
pub mod credentials;
mod errno;
mod family;
mod fcntl;
mod file;
mod heap;
mod join;
mod khugepaged;
pub mod kpage;
mod lock;
mod look;
mod map;
mod maps;
mod mbind;
pub mod meminfo;
pub mod mempolicy;
mod numbers;
pub mod overcommit;
mod pagemap;
mod pages;
mod place;
mod prctl;
mod process;
mod protect;
mod put;
mod remap;
mod rows;
mod scan;
mod seal;
mod segments;
mod shm;
mod shmem_enabled;
mod shown;
mod situation;
mod size;
mod split_huge_pages;
mod status;
mod switches;
pub mod sys;
pub mod sysv;
mod thp_anon;
mod told;
mod transfer;
mod userfault;
mod view;
pub mod vm;
mod vma;
mod windows;
pub mod zones;

#[cfg(test)]
mod tests;

pub use access::{Fault, Signal};
pub use advise::Adviser;
pub use errno::Errno;
pub use file::MemoryFile;
pub use khugepaged::Khugepaged;
pub use look::MemoryKey;
pub use mbind::PageStatus;
pub use pagemap::Frames;
pub use process::{Layout, Limits, Process};
pub use scan::Scan;
pub use segments::{SegmentLimits, SegmentStat, Segments};
pub use shmem_enabled::ShmemEnabled;
pub use split_huge_pages::{split_huge_pages, split_huge_pages_of_file};
pub use thp_anon::{ThpAnonError, Wrong, thp_anon};
pub use told::{Change, Told, Userfaultfd};
pub use userfault::Answer;
pub use vma::{Marks, Tag, Vma};

pub use linux_raw_sys as raw;
