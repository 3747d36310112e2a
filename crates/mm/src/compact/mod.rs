//! Compaction: folios are moved together, so that blocks of 2 MiB are whole again.
//!
//! Movable memory lies scattered after a while: every block holds something, half of memory is
//! free, and no large folio is to be had. A caller that needs one has blocks emptied into others.
//!
//! ```text
//!   a window of blocks, by how much of each is in use:
//!
//!     free │ sources: least first ─▶ . . . . . . . . . . ◀─ targets: fullest first │ held: 2 MiB and more
//!            │                                                  ▲ what holds something that cannot move, before all others
//!            │   isolate  its free frames, so that nobody moves in there
//!            │   look     everything in it can move? else it is a target from now on, and it is said why
//!            └─▶ move     folio by folio to a block of its order in a target, many with one flush (`split::MigrationBatch`)
//!                join     all 512 frames are here: one block ─▶ the caller's, or free
//! ```
//!
//! **Invariants**
//! - C1. A block is a source only where its folios fit into the rest of its window and some frames
//!   are left over, so compaction causes no shortage of memory. Meanwhile it keeps to itself
//!   the isolated frames of one source and the blocks that folios are about to move to: as many
//!   frames as one block has, at most.
//! - C2. Where a block cannot be emptied, all that was taken of it is free again, and what has
//!   moved stays in its new place.
//! - C3. Nothing that is free, nothing that is held as 2 MiB or more, and no page of a pool is
//!   touched. Memory that is in use and is no anonymous folio (tables, records, the kernel's own)
//!   stays where it is, and so does what is pinned or broken.
//! - C4. Compaction waits for no holder of a folio: a folio that somebody else holds stays. Where
//!   it looks at a frame it may wait for a stretch that is being moved, which can take a grace
//!   period (stock::speculate::P1).
//!
//! **Locking**: none of its own. Several CPUs compact at a time; they begin in different windows.
//! Where they meet, the isolated frames of one look to the other like memory that cannot move. As
//! split::T6 asks, nothing here runs in a reader's section or under a writer's lock.
//!
//! **Not here**: whether a caller should wait for it (`fault::Defrag`, the face), blocks above
//! 2 MiB.

mod collapse;
mod empty;
mod fragmentation;
mod run;
#[cfg(all(test, not(loom)))]
mod tests;
mod window;

pub use collapse::CollapseError;
pub(crate) use collapse::collapse;
pub use fragmentation::{Fragmentation, fragmentation};
pub use run::{CompactRequest, Compacted, Effort, End, Obstacle, Want, Why};
pub(crate) use run::{CompactState, Compactor};

/// Runs `test` over memory of so many blocks, from frame 512 on. A frame is free where `is_free`
/// accepts its number in that memory.
#[cfg(all(test, not(loom)))]
fn partly_free<R>(
    blocks: u64,
    is_free: impl Fn(u64) -> bool,
    test: impl FnOnce(&crate::folio::Folios<'_>, foliant_units::FrameRange) -> R,
) -> R {
    use crate::folio::{Class, CpuCount, Folios, Word};
    use foliant_units::{Cpu, Frame, FrameRange, Order, Pages};

    let block = Order::SIZE_2M.pages().get();
    let (first, all) = (Frame::new(block), Pages::new(block * blocks));
    let memory = FrameRange::new(first, all).expect("a few blocks");
    let words = Folios::layout(&[memory], CpuCount(1)).expect("a range is laid out");
    let meta: std::vec::Vec<Word> = (0..words.0).map(|_| Word::new(0)).collect();
    let folios = Folios::new(&[memory], CpuCount(1), &meta).expect("so much was lent");
    while folios.alloc(Cpu(0), Order::BASE, Class::Movable).is_ok() {}
    for frame in memory.iter().filter(|frame| is_free(frame.get() - first.get())) {
        folios.free(Cpu(0), frame, Order::BASE).expect("all were taken");
    }
    test(&folios, memory)
}
