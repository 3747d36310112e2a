//! The three models, with the source of every constant.
//!
//! `xeon-guest-2` is fitted to measurements of a two-CPU guest (Xeon with AVX-512, Linux 6.18). The
//! other two take a pool's pages and the price of a shootdown from published times (`hugetlb`);
//! what those do not say is taken from `xeon-guest-2`.

use super::hugetlb::{self, FOLDING, HERE_OFF, PoolRows};
use super::{ClockKind, Constant, CostModel, Work};

const fn c(work: Work, nanos: f64, unit: &'static str, source: &'static str) -> Constant {
    Constant { work, nanos, unit, source }
}

const ALLOC: f64 = 150.0;
const FREE: f64 = 115.0;
const ENTRY_WRITE: f64 = 25.0;
const INTERRUPT_SEND: f64 = 120.0;
/// The price is also that of what the asking CPU does itself in a shootdown; eight entries are
/// about as much.
const FULL_FLUSH: f64 = 500.0;
/// The descriptors of a 2 MiB page, the frames that hold them, and the bytes of a frame.
const DESCRIPTORS: f64 = 512.0;
const STRETCH: f64 = 8.0;
const FRAME: f64 = 4096.0;
/// For a pool's page here, folding off, a block is taken, and the rest is writing descriptors.
const KERNEL_WRITE: f64 = (HERE_OFF.fill - ALLOC) / DESCRIPTORS;
/// The price that the fit gives for a frame includes the writing of its descriptor.
const FREE_FRAME: f64 = 9.2 - KERNEL_WRITE;
/// Unfolding takes seven blocks and writes seven words; the rest is copying seven frames.
const COPY_BYTE: f64 =
    (FOLDING.drain - (STRETCH - 1.0) * (ALLOC + ENTRY_WRITE)) / ((STRETCH - 1.0) * FRAME);
/// What is left of folding when a block is taken, eight words of a split leaf and eight of the fold
/// are written, a frame is copied, and eight frames are given back.
const FOLD: f64 = FOLDING.fill
    - ALLOC
    - 2.0 * STRETCH * ENTRY_WRITE
    - FRAME * COPY_BYTE
    - STRETCH * (FREE + FREE_FRAME);
/// Looking at a frame, and moving a page, in Linux's compaction.
const COMPACT_FRAME: f64 = 2.5;
const PAGE_MOVED: f64 = 2170.0;
/// What the machine charges for moving one: a block, its entry out and in again, an invalidation,
/// descriptors, and 700 ns of copying.
const MOVE_SEEN: f64 = 1050.0;

/// What a pool's page takes besides the block and its descriptors, in a host's published times.
const fn pool_fill(rows: &PoolRows) -> f64 {
    rows.base().fill - ALLOC - DESCRIPTORS * KERNEL_WRITE
}
/// What giving it back takes besides the freeing of its frames.
const fn pool_drain(rows: &PoolRows) -> f64 {
    rows.base().drain - FREE - DESCRIPTORS * (FREE_FRAME + KERNEL_WRITE)
}
/// What a shootdown takes besides sending it, and the flush on the asking CPU.
const fn asked(rows: &PoolRows) -> f64 {
    rows.shootdown() - INTERRUPT_SEND - FULL_FLUSH
}

const FIT: &str = "fit to first touch of 512 MB at nine sizes: 4 KiB 1340 ns, 64 KiB 8103 ns, \
                   2 MiB 226 us; fault + alloc + entry writes + clearing, within 8 %";
const UNMAP: &str = "fit to munmap per GB: 4 KiB 35 ms, 16 KiB 18.6, 32 KiB 12.9, 64 KiB 9.6, \
                     2 MiB 2.5; free + entry writes + frames, within 15 %";
const UNMAP_FRAME: &str = "the same, 9.2 ns a frame, less the writing of its descriptor";
const DESCRIBE: &str = "measured: a page of the pool of 2 MiB pages, folding off, filling, 2.6 us, less the block; 512 \
                        descriptors";
const UNFOLD: &str = "measured: draining that pool with folding 8.6 us, without 2.5; less seven blocks and seven \
                      words, seven frames copied";
const FOLDED: &str = "measured: filling that pool with folding 7.7 us, without 2.6; less block, words, copy and \
                      eight freed frames";
const COMPACTED: &str = "fit to 56 writes to compact_memory on a guest with 2 CPUs, EPYC, Linux 6.18, 0 to 180,000 pages \
                         moved: 2.5 ns a frame scanned and 2.17 us a page moved, half of them within 19 %";
const COMPACTED_MOVE: &str = "the same, 2.17 us a page, less 1.05 us that the machine charges for block, words, flush and copy";
const HOST: &str = "taken from xeon-guest-2; the published times do not say";

/// Fitted to measurements on a two-CPU guest.
pub(super) const XEON_GUEST_2: CostModel = CostModel {
    name: "xeon-guest-2",
    about: "a guest with 2 CPUs, Xeon with AVX-512, Linux 6.18",
    constants: &[
        c(Work::Fault, 725.0, "fault", FIT),
        c(Work::Syscall, 83.0, "call", "measured: an empty system call"),
        c(Work::Alloc, ALLOC, "block", FIT),
        c(Work::Free, FREE, "block", UNMAP),
        c(Work::FreeFrame, FREE_FRAME, "frame", UNMAP_FRAME),
        c(Work::EntryWrite, ENTRY_WRITE, "word", UNMAP),
        c(Work::ClearByte, 1.0 / 9.3, "byte", "measured: stores 4 KiB at a time, 9.3 GB/s"),
        c(Work::ClearByteLarge, 1.0 / 10.4, "byte", "measured: stores in 2 MiB extents, 10.4 GB/s"),
        c(Work::CopyByte, COPY_BYTE, "byte", UNFOLD),
        c(Work::KernelWrite, KERNEL_WRITE, "word", DESCRIBE),
        c(Work::PoolFill, 0.0, "page", "block and descriptors are all of it, by their fit"),
        c(
            Work::PoolDrain,
            0.0,
            "page",
            "measured: draining the pool 2.5 us a page, which freeing 512 frames exceeds",
        ),
        c(Work::Fold, FOLD, "page", FOLDED),
        c(Work::CompactFrame, COMPACT_FRAME, "frame", COMPACTED),
        c(Work::CompactMove, PAGE_MOVED - MOVE_SEEN, "folio", COMPACTED_MOVE),
        c(
            Work::InvalidateEntry,
            60.0,
            "entry",
            "upper bound: DONTNEED of 512 pages 32 us less one page 0.64 us, over 511",
        ),
        c(Work::FullFlush, FULL_FLUSH, "flush", "assumed: about eight entries; refills are walks"),
        c(Work::Activate, 200.0, "load", "assumed: less than a system call with its mitigations"),
        c(
            Work::InterruptSend,
            INTERRUPT_SEND,
            "shootdown",
            "measured: membarrier with no other thread",
        ),
        c(Work::InterruptTarget, 0.0, "target", "two CPUs: not to be told apart from the wait"),
        c(
            Work::InterruptWait,
            13_480.0,
            "shootdown",
            "measured: membarrier with a second thread running 13.6 us, less the send",
        ),
        c(Work::InterruptTaken, 1000.0, "target", "assumed: a little more than a fault's entry"),
        c(
            Work::Walk,
            21.0,
            "walk",
            "measured: second touch of 4 KiB pages 46 ns, of 2 MiB pages 25 ns",
        ),
    ],
    clock: ClockKind::Virtual,
};

const POOL: &str = "published: folding off, 2 MiB pages, mean of two kernels; less block and descriptors, or freed frames";
const SOCKETS: &str = "published: folding on, not batched, less folding off and less the folding measured on \
                       xeon-guest-2, 2 + 1/64 shootdowns for filling and draining; the number of CPUs is not \
                       published, so none of it is charged per target";

/// Bare metal with eight sockets.
pub(super) const HOST_8_SOCKET: CostModel = CostModel {
    name: "host-8-socket",
    about: "8-socket Xeon E7-8895, bare metal; pool pages and shootdowns as published",
    constants: &[
        c(Work::Fault, 725.0, "fault", HOST),
        c(Work::Syscall, 83.0, "call", HOST),
        c(Work::Alloc, ALLOC, "block", HOST),
        c(Work::Free, FREE, "block", HOST),
        c(Work::FreeFrame, FREE_FRAME, "frame", HOST),
        c(Work::EntryWrite, ENTRY_WRITE, "word", HOST),
        c(Work::ClearByte, 1.0 / 9.3, "byte", HOST),
        c(Work::ClearByteLarge, 1.0 / 10.4, "byte", HOST),
        c(Work::CopyByte, COPY_BYTE, "byte", HOST),
        c(Work::KernelWrite, KERNEL_WRITE, "word", HOST),
        c(Work::PoolFill, pool_fill(&hugetlb::HOST_8_SOCKET), "page", POOL),
        c(Work::PoolDrain, pool_drain(&hugetlb::HOST_8_SOCKET), "page", POOL),
        c(Work::Fold, FOLD, "page", HOST),
        c(Work::CompactFrame, COMPACT_FRAME, "frame", HOST),
        c(Work::CompactMove, PAGE_MOVED - MOVE_SEEN, "folio", HOST),
        c(Work::InvalidateEntry, 60.0, "entry", HOST),
        c(Work::FullFlush, FULL_FLUSH, "flush", HOST),
        c(Work::Activate, 200.0, "load", HOST),
        c(Work::InterruptSend, INTERRUPT_SEND, "shootdown", HOST),
        c(Work::InterruptTarget, 0.0, "target", SOCKETS),
        c(Work::InterruptWait, asked(&hugetlb::HOST_8_SOCKET), "shootdown", SOCKETS),
        c(Work::InterruptTaken, 1000.0, "target", HOST),
        c(Work::Walk, 21.0, "walk", HOST),
    ],
    clock: ClockKind::Virtual,
};

const GUEST: &str = "published: as for host-8-socket; for 251 other CPUs";
const GUEST_CLEAR: &str = "later upstream figures for the same processor family: 11.89 GB/s page at \
                           a time, 16.12 GB/s in extents of 2 MiB";

/// A guest with 252 CPUs.
pub(super) const GUEST_252: CostModel = CostModel {
    name: "guest-252",
    about: "a guest with 252 CPUs on a 2-socket EPYC 7J13; pool pages and shootdowns as published",
    constants: &[
        c(Work::Fault, 725.0, "fault", HOST),
        c(Work::Syscall, 83.0, "call", HOST),
        c(Work::Alloc, ALLOC, "block", HOST),
        c(Work::Free, FREE, "block", HOST),
        c(Work::FreeFrame, FREE_FRAME, "frame", HOST),
        c(Work::EntryWrite, ENTRY_WRITE, "word", HOST),
        c(Work::ClearByte, 1.0 / 11.89, "byte", GUEST_CLEAR),
        c(Work::ClearByteLarge, 1.0 / 16.12, "byte", GUEST_CLEAR),
        c(Work::CopyByte, COPY_BYTE, "byte", HOST),
        c(Work::KernelWrite, KERNEL_WRITE, "word", HOST),
        c(Work::PoolFill, pool_fill(&hugetlb::GUEST_252), "page", POOL),
        c(Work::PoolDrain, pool_drain(&hugetlb::GUEST_252), "page", POOL),
        c(Work::Fold, FOLD, "page", HOST),
        c(Work::CompactFrame, COMPACT_FRAME, "frame", HOST),
        c(Work::CompactMove, PAGE_MOVED - MOVE_SEEN, "folio", HOST),
        c(Work::InvalidateEntry, 60.0, "entry", HOST),
        c(Work::FullFlush, FULL_FLUSH, "flush", HOST),
        c(Work::Activate, 200.0, "load", HOST),
        c(Work::InterruptSend, INTERRUPT_SEND, "shootdown", HOST),
        c(Work::InterruptTarget, asked(&hugetlb::GUEST_252) / 251.0, "target", GUEST),
        c(
            Work::InterruptWait,
            0.0,
            "shootdown",
            "in the price per target: each one exits the guest",
        ),
        c(Work::InterruptTaken, 1000.0, "target", HOST),
        c(Work::Walk, 21.0, "walk", HOST),
    ],
    clock: ClockKind::Virtual,
};
