//! Kernel virtual ranges: memory for the kernel around the manager that is contiguous in its
//! addresses and not in frames, mapped by the largest leaves that fit.
//!
//! A hash table of a gigabyte that is mapped by 4 KiB entries misses the TLB at every probe; mapped
//! by leaves of 2 MiB it needs 512 times fewer of them, and 512 times less memory for tables. The
//! leaf is a matter of this room alone: the owner of the memory sees base pages. Each is a block of
//! its own, can be referenced and mapped into a program, and is given back when its own last
//! reference goes.
//!
//! ```text
//!   2.5 MiB, large leaves wanted                           │ guard │
//!   │◀────────── one leaf of 2 MiB ──────────▶│◀ 128 entries ▶│ none │
//!    a block of order 9, broken into 512 pages  blocks of any order, nothing rounded up
//! ```
//!
//! # How to use it
//!
//! [`Vmap`] is the handle ([`Manager::vmap`](crate::Manager::vmap)); the face has the common calls
//! by name.
//!
//! | call | what it does |
//! |---|---|
//! | [`Vmap::alloc`] / [`Vmap::free`] | memory of its own, by a [`Request`]; `free` takes the first address |
//! | [`Vmap::free_later`] | the same from an interrupt; [`Vmap::collect`] does it |
//! | [`Vmap::map`] / [`Vmap::unmap`] | frames that the caller has |
//! | [`Vmap::map_device`] / [`Vmap::unmap`] | registers and other memory that nobody manages |
//! | [`Vmap::protect`] | other rights for a part of a range; large leaves across its ends are split |
//! | [`Vmap::frame_at`] | the frame behind an address, whatever the level of the leaf |
//! | [`Vmap::apply`] | a visit to each entry; refused where a large leaf is in the way |
//! | [`Vmap::purge`] | ends what CPUs may have cached of ranges that were given back |
//! | [`Vmap::areas`] | the listing, with the columns of `/proc/vmallocinfo` |
//!
//! A request gets large leaves only if it asks for them ([`Request::huge`]), with the kernel's
//! plain rights, and while [`Controls`] allow them. If a block, an address, a table or a record for
//! them is not to be had, everything that was taken is given back, and the request is worked off
//! with the next smaller leaf, in the size and alignment that were asked for.
//!
//! # Giving back
//!
//! ```text
//!              free: clear entries, give the frames back at once        purge: one flush for many
//!   in use ───────────────────────────────────────────────────▶ lazy ─────────────────────────────▶ free addresses
//!      └─── eager, or rights were changed: break entries, flush, then give the frames back ──────────────▶┘
//! ```
//!
//! A shootdown for each range would cost more than the range. So the addresses wait: nobody may use
//! them, and CPUs may still have translations of them cached. A purge ends all of these with one
//! flush when addresses run out, before attributes are changed, or when the embedder asks for it. A
//! call that gives a range back while more than `fls(CPUs) * 32 MiB` are waiting purges a slice of
//! them: 256 ranges at most, those that were given back last. The frames do not wait. That is the
//! one exception from "no frame is freed before its flush" (G1): it holds because correct code
//! never touches a range that it gave back, and a checker watches just that
//! ([`Retired`](foliant_machine::Retired)).
//!
//! **Invariants**
//! - V1. The ranges in use, those being worked on and the lazy ones do not overlap, guard pages
//!   included.
//! - V2. No address is handed out again before the purge that covers it.
//! - V3. No entry that says anything is overwritten by a leaf. A table is removed only when it is
//!   empty, and freed after a flush of paging-structure caches and a grace period: a walk without a
//!   lock is in a reader's section.
//! - V4. An area that was handed out is mapped from its first address to its last requested page,
//!   by one attempt: leaf levels and block orders agree, since each leaf is written from the claim
//!   of the very block.
//! - V5. Frames are known from the entries alone. In an area with pages of its own, the call that
//!   clears an entry gives the pages behind it back.
//! - V6. A request that is refused leaves addresses, frames and records as they were, but for lazy
//!   addresses, for tables (those that were made stay, and empty ones may be gone) and for spare
//!   records, which stay (record::R2).
//!
//! **Locking.** `lock` guards the map of ranges, the records and lists; it is held for a few
//! steps of a map and nothing is allocated, cleared, flushed or waited for under it. An area that
//! a call works on is marked in its record, so calls for different areas do not exclude each other,
//! and a second call for the same one is refused. `purging` is held over a purge, or a slice of
//! one; `lock` is taken inside of it. [`Vmap::free_later`] and [`Vmap::frame_at`] take no lock and
//! may be called in a reader's section and under other locks; nothing else here is.
//!
//! **Not here**: compaction (a [`Short`] says what was missing, and the face gets it), the kernel's
//! own map and stacks, and which node is near.

mod area;
mod audit;
mod controls;
mod deferred;
mod error;
mod fill;
mod free;
mod list;
mod lookup;
mod mapping;
mod opened;
mod protect;
mod purge;
mod record;
mod request;
mod slots;

pub use crate::frame::Contents;
pub use area::Backing;
#[cfg(feature = "verify")]
pub use audit::VmapAudit;
pub use controls::{Controls, HugeIomap, HugeVmalloc, PurgeMode, Rest};
pub use error::{Short, VmapError};
pub use list::{AreaInfo, AreaUse, Counters, Line, VmapAreas};
pub use mapping::FrameMapping;
pub use request::{Caller, Guard, LeafSizes, Nodes, Request, Rights, Users};

use crate::flush::Target;
use crate::ranges::Ranges;
use crate::stock::{Pile, Stock};
use crate::sync::{AtomicU64, Long, Spin};
use crate::table::Paging;
use foliant_machine::Machine;
use foliant_units::{Bytes, VaRange};
use record::{Recorded, Records};

/// How much may be lazy for each power of two of CPUs before a purge is due.
const LAZY_BYTES: Bytes = Bytes::new(32 << 20);

/// What the room keeps.
///
/// Key: `[l]` `lock` held; `[c]` constant.
pub(crate) struct VmapState {
    range: VaRange, // [c]
    lock: Spin,
    purging: Long,
    ranges: Ranges<Recorded>, // [l] areas, lazy ones included
    spare: Records,           // [l] spare records
    lazy: Records,            // [l] areas that wait for a purge
    lazy_pages: AtomicU64,    // [l] pages of them, guards included
    emptied: AtomicU64,       // [l] areas that are given back and not on that list yet
    controls: AtomicU64,
    /// Counts chunks that went to the nodes in turn.
    turn: AtomicU64,
    /// First pages of what is to be freed: see `deferred`.
    deferred: Pile,
}

impl VmapState {
    pub(crate) fn new(range: VaRange, controls: Controls) -> VmapState {
        let zero = AtomicU64::default;
        VmapState {
            range,
            lock: Spin::default(),
            purging: Long::default(),
            ranges: Ranges::from(range.start()),
            spare: Records::default(),
            lazy: Records::default(),
            lazy_pages: zero(),
            emptied: zero(),
            controls: AtomicU64::new(controls.word()),
            turn: zero(),
            deferred: Pile::default(),
        }
    }
}

/// The kernel ranges of a manager; see the module's text.
pub struct Vmap<'a, 'm, M: Machine, P: Paging> {
    stock: &'a Stock<'m, M, P>,
    kernel: &'a Target,
    state: &'a VmapState,
}

impl<M: Machine, P: Paging> Clone for Vmap<'_, '_, M, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<M: Machine, P: Paging> Copy for Vmap<'_, '_, M, P> {}

impl<'a, 'm, M: Machine, P: Paging> Vmap<'a, 'm, M, P> {
    pub(crate) fn new(
        stock: &'a Stock<'m, M, P>,
        kernel: &'a Target,
        state: &'a VmapState,
    ) -> Self {
        Vmap { stock, kernel, state }
    }
    /// The addresses that areas lie in.
    pub fn range(&self) -> VaRange {
        self.state.range
    }
}
