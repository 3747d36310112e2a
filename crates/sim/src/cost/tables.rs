//! The three models, with the source of every constant.
//!
//! `this-host` is fitted to measurements of a two-CPU guest (Xeon with AVX-512, Linux 6.18). The other
//! two take the price of a shootdown from the reference tables, which time 500 000 and 524 288 huge
//! pages with folded descriptors and without, two shootdowns a page; what those tables do not say is
//! taken from `this-host`.

use super::{ClockKind, Constant, CostModel, Work};

const fn c(work: Work, nanos: f64, unit: &'static str, source: &'static str) -> Constant {
    Constant { work, nanos, unit, source }
}

const FIT: &str = "fit to first touch of 512 MB at nine sizes: 4 KiB 1340 ns, 64 KiB 8103 ns, \
                   2 MiB 226 us; fault + alloc + entry writes + clearing, within 8 %";
const UNMAP: &str = "fit to munmap per GB: 4 KiB 35 ms, 16 KiB 18.6, 32 KiB 12.9, 64 KiB 9.6, \
                     2 MiB 2.5; free + entry writes + frames, within 15 %";
const HOST: &str = "taken from this-host; the reference table does not say";

/// Fitted to measurements on a two-CPU guest.
pub(super) const THIS_HOST: CostModel = CostModel {
    name: "this-host",
    about: "a guest with 2 CPUs, Xeon with AVX-512, Linux 6.18",
    constants: &[
        c(Work::Fault, 725.0, "fault", FIT),
        c(Work::Syscall, 83.0, "call", "measured: an empty system call"),
        c(Work::Alloc, 150.0, "block", FIT),
        c(Work::Free, 115.0, "block", UNMAP),
        c(Work::FreeFrame, 9.2, "frame", UNMAP),
        c(Work::EntryWrite, 25.0, "word", UNMAP),
        c(Work::ClearByte, 1.0 / 9.3, "byte", "measured: stores 4 KiB at a time, 9.3 GB/s"),
        c(Work::ClearByteLarge, 1.0 / 10.4, "byte", "measured: stores in 2 MiB extents, 10.4 GB/s"),
        c(
            Work::CopyByte,
            2.0 / 9.3,
            "byte",
            "assumed: twice the traffic of clearing, as it reads too",
        ),
        c(
            Work::InvalidateEntry,
            60.0,
            "entry",
            "upper bound: DONTNEED of 512 pages 32 us less one page 0.64 us, over 511",
        ),
        c(Work::FullFlush, 500.0, "flush", "assumed: about eight entries; refills are walks"),
        c(Work::Activate, 200.0, "load", "assumed: less than a system call with its mitigations"),
        c(Work::InterruptSend, 120.0, "shootdown", "measured: membarrier with no other thread"),
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

const SOCKETS: &str = "hugetlb-hvo.tsv: (28.973 s - 4.119 s) / 500000 pages / 2 shootdowns = \
                       24.854 us; the table does not give the number of CPUs, so none of it is \
                       charged per target";

/// Bare metal with eight sockets.
pub(super) const HOST_8_SOCKET: CostModel = CostModel {
    name: "host-8-socket",
    about: "8-socket Xeon E7-8895, bare metal; shootdowns from the reference table",
    constants: &[
        c(Work::Fault, 725.0, "fault", HOST),
        c(Work::Syscall, 83.0, "call", HOST),
        c(Work::Alloc, 150.0, "block", HOST),
        c(Work::Free, 115.0, "block", HOST),
        c(Work::FreeFrame, 9.2, "frame", HOST),
        c(Work::EntryWrite, 25.0, "word", HOST),
        c(Work::ClearByte, 1.0 / 9.3, "byte", HOST),
        c(Work::ClearByteLarge, 1.0 / 10.4, "byte", HOST),
        c(Work::CopyByte, 2.0 / 9.3, "byte", HOST),
        c(Work::InvalidateEntry, 60.0, "entry", HOST),
        c(Work::FullFlush, 500.0, "flush", HOST),
        c(Work::Activate, 200.0, "load", HOST),
        c(Work::InterruptSend, 120.0, "shootdown", HOST),
        c(Work::InterruptTarget, 0.0, "target", SOCKETS),
        c(Work::InterruptWait, 24_734.0, "shootdown", SOCKETS),
        c(Work::InterruptTaken, 1000.0, "target", HOST),
        c(Work::Walk, 21.0, "walk", HOST),
    ],
    clock: ClockKind::Virtual,
};

const GUEST: &str = "hugetlb-hvo.tsv: (147.609 s - 2.463 s) / 524288 pages / 2 shootdowns = \
                     138.421 us for 251 other CPUs";
const GUEST_CLEAR: &str = "later upstream figures for the same processor family: 11.89 GB/s page at \
                           a time, 16.12 GB/s in extents of 2 MiB";

/// A guest with 252 CPUs.
pub(super) const GUEST_252: CostModel = CostModel {
    name: "guest-252",
    about: "a guest with 252 CPUs on a 2-socket EPYC 7J13; shootdowns from the reference table",
    constants: &[
        c(Work::Fault, 725.0, "fault", HOST),
        c(Work::Syscall, 83.0, "call", HOST),
        c(Work::Alloc, 150.0, "block", HOST),
        c(Work::Free, 115.0, "block", HOST),
        c(Work::FreeFrame, 9.2, "frame", HOST),
        c(Work::EntryWrite, 25.0, "word", HOST),
        c(Work::ClearByte, 1.0 / 11.89, "byte", GUEST_CLEAR),
        c(Work::ClearByteLarge, 1.0 / 16.12, "byte", GUEST_CLEAR),
        c(Work::CopyByte, 2.0 / 11.89, "byte", "assumed: twice the traffic of clearing"),
        c(Work::InvalidateEntry, 60.0, "entry", HOST),
        c(Work::FullFlush, 500.0, "flush", HOST),
        c(Work::Activate, 200.0, "load", HOST),
        c(Work::InterruptSend, 120.0, "shootdown", HOST),
        c(Work::InterruptTarget, 551.0, "target", GUEST),
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
