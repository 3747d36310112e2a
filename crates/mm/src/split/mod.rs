//! Taking folios apart, and moving them: their mappings are taken out of use, flushed once, and put
//! back to something else.
//!
//! ```text
//!   hold      pinned and locked; pinned by others? refused, nothing has changed
//!   take      every entry that maps it ─▶ migration entry, noted in a gather of its space      ┐ for each folio
//!   flush     one shootdown for each space, whatever was noted in it                           ┘ of a list
//!   freeze    the count must be what was taken, and no pin: or everything goes back where it was
//!   divide    descriptors of the pieces, first piece last          │ relocate   the contents to another block
//!   put       migration entries ─▶ leaves of the pieces            │            migration entries ─▶ leaves of it
//! ```
//!
//! A leaf of 2 MiB becomes one migration entry of that size, and a table comes in its place only
//! when the pieces are put. So no page is ever mapped small and huge at once (G3), the table needs
//! no flush of its own, and where the split fails the entry is a leaf again. The table is the one
//! that lies in deposit for the leaf: putting needs no memory.
//!
//! A caller that moves folios fills a `MigrationBatch` with as many as one flush shall cover, each
//! with a block of its order to go to.
//!
//! **Invariants**
//! - T1. Between the flush and the put no CPU has a translation to a frame of the folio.
//! - T2. The splitter or mover that takes entries does the flush itself, after the last of them and
//!   before the freeze, on every way out (TR-T9).
//! - T3. A migration entry keeps everything of the leaf: rights, exclusive, accessed, dirty,
//!   soft-dirty, userfault, and that it is one of a group: the entries of a group are taken and put
//!   back together, and are a group again unless the pieces are smaller than one (space::S10).
//!   Where a CPU could write through it until the flush it is taken for dirty (G4).
//! - T4. Migration entries are counted as the leaves were, by folio and space, until they are
//!   leaves again.
//! - T5. No memory is needed after the first entry was taken, so a split cannot fail for lack of
//!   it.
//! - T6. Entries are put back by the splitter or mover that took them. Meanwhile it waits for
//!   nothing that may wait for migration entries: neither for the writer of a space nor for a
//!   reader's section, nor for a stretch of descriptors whose mover waits for sections. The next
//!   folio of a list is held by `Stock::hold`, which refuses instead.
//! - T7. An entry may have been moved from another address a moment ago, by a remap that has not
//!   flushed that address yet: so where another flush is pending in a space, this one covers all of
//!   the space.
//! - T8. The pieces are held until the last entry is put. Another splitter or mover that took
//!   entries of a piece before that would have migration entries of frames of which the first
//!   splitter has some too, and each of the two would put back the other's.
//!
//! **Late observers** (G5). A flush is pending only while the entries that it is for are migration
//! entries. A fault, unmap, protect, remap, advice or fork that wants to conclude something from
//! such an entry waits until it is a leaf again, and by then the flush is done. Besides, the gather
//! counts as pending in its space, for `Gather::settle` (flush::F2). So a split needs no generation
//! scheme beside the gather's two counts, and when it is over nothing of it is left for anybody to
//! compare with.
//!
//! **Locking.** A split takes the folio's `Locked` flag, one table's lock at a time, and no
//! writer's lock of a space. In a list several folios are held, and none of them is waited for: a
//! folio that another CPU holds is refused.
//!
//! **Not here**: folios of files, swap, splitting the huge pages of pools.

mod batch;
mod broken;
mod error;
mod huge;
mod keep;
mod mapped;
mod migration;
mod pieces;
mod put;
mod run;
mod shrink;
mod walk;
mod zeros;

pub use error::{RelocateError, SplitError};
pub use mapped::Mappings;
pub(crate) use mapped::{mappings, page_mappings};
pub use migration::{LIST_MAX, MoveGrain};
pub(crate) use migration::{MigrationBatch, Went};
pub use pieces::{Pieces, ZeroPieces};
pub(crate) use run::Splitter;
pub use run::{SplitInto, SplitRequest};
pub use shrink::{Shrink, Shrunk};
