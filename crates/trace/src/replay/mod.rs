//! Replaying a trace through the real memory manager, one row of figures per policy.
//!
//! ```text
//!   events ──Plan::new──▶ steps ──▶ Run: a fresh machine and manager per policy ──▶ Row
//!             (once)        └─────▶ Run ──▶ Row        (independent, so side by side)
//! ```
//!
//! A [`Plan`] is the trace in the manager's terms: each recorded space is a space of the manager,
//! each change of its areas the same change at the recorded addresses, each fault in anonymous
//! memory an access by the CPU that stands for the thread. Whether that access faults is up to the
//! manager and the machine: with 4 KiB pages every one does, with larger folios most find their
//! page there.
//!
//! **What is replayed, and what is only counted**
//! - Private memory without a file (anonymous, heap, stack) is anonymous memory of the manager.
//!   Areas of `MAP_STACK` get no large folios, as in Linux since 6.7, and neither do the arguments
//!   that exec places.
//! - Private maps of files are areas without large folios; only writes to them are replayed, each
//!   of which takes a base page. They appear in [`Row::file_copies`], not in
//!   [`Row::anonymous_faults`].
//! - Shared memory whose object the recording tells
//!   ([`EventKind::Attach`](crate::EventKind::Attach): shared anonymous memory, memfds, files of a
//!   tmpfs, System V segments) is an object of the manager's that all its areas map; its faults are
//!   [`Row::shared_faults`]. The sizes of a row are those of both kinds of memory, as if
//!   `shmem_enabled` of each size said what `enabled` says; an area that is advised
//!   `MADV_NOHUGEPAGE`, and a process without large pages, bring 4 KiB. With [`Shared::Counted`]
//!   such faults are only counted.
//! - Faults in other shared memory and special areas, reads of files, and faults that the kernel
//!   refused with a signal are counted in [`Plan`] and cost nothing in any row. Pages of files on a
//!   disk are the page cache's, which is not ours; so are private maps of files in memory, whose
//!   reads are counted and whose written pages are copies.
//! - A fault that lost a race is taken again where, at this policy, the fault that won it is taken
//!   too.
//! - Programs' own `madvise` and `prctl` calls are honoured.
//! - Of a [`Trial`] with a remedy each mapping that a wish fits is advised when it is mapped, or
//!   when its name is told, by a system call that is charged. `MADV_COLLAPSE` changes nothing here:
//!   when memory was just mapped, nothing is there.
//!
//! **Invariants**
//! - R1. With 4 KiB pages a row has exactly [`Plan::recorded_anonymous_faults`] and
//!   [`Plan::recorded_shared_faults`], where the naive model finds no mismatch in the trace.
//! - R2. A row depends on the plan, the policy and the settings alone: replays are deterministic.
//! - R3. Nothing a trace contains makes a replay panic; what the manager refuses is counted or an
//!   error.
//!
//! **Not here**: caches of file pages, swap, reclaim, khugepaged.

mod course;
mod fragment;
mod ledger;
mod plan;
mod policy;
mod row;
mod rule;
mod run;
mod settings;
mod sights;
mod stop;

pub use course::{MOMENTS, Moment};
pub use fragment::{PINS_PER_BLOCK, Percent};
pub use ledger::{Origins, Share};
pub use plan::{PARTS, Plan, PlanError, Planner, Shared};
pub use policy::{Choice, ChoiceError, WrongName};
pub use row::Row;
pub use rule::Trial;
pub use run::{Explained, explain_all, explain_each, replay, replay_all, sights_at};
pub use settings::{MEMORY_LEAST, ReplayError, Settings};
pub use sights::{MappedRun, Sight, Sights};
