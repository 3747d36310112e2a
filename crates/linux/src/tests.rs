//! Calls on the simulated machine: each flag, and arguments that make no sense. What follows from
//! sequences of calls the oracle compares with Linux.

mod shared;

use crate::overcommit::{Overcommit, Promise};
use crate::{Errno, Fault, Layout, Limits, Marks, Process, Signal, meminfo, sys};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use foliant::manager::Setup;
use foliant::table::X86_64;
use foliant::{Access, Manager, Policy};
use foliant_sim::{Config, Sim};
use foliant_units::{Bytes, Pages, Va};
use linux_raw_sys::errno::{EACCES, ENOENT};
use linux_raw_sys::general::*;

mod bytes;
mod fcntl;
mod files;
mod mbind;
mod pooled;
mod prctl;
mod scan;
mod seal;
mod shm;
mod situation;
mod size;
mod suites;
mod userfault;

const PAGE: u64 = 4096;
const HUGE: u64 = 2 << 20;
const SIZE: u64 = (1 << 47) - PAGE;
const BASE: u64 = 0x10_0000_0000;
const TOP: u64 = 0x7fff_0000_0000;
const HEAP: u64 = 0x6000_0000;
const STACK: u64 = 0x7fff_f000_0000;
const RW: u32 = PROT_READ | PROT_WRITE;
const PRIVATE: u32 = MAP_PRIVATE | MAP_ANONYMOUS;
const FIXED: u32 = PRIVATE | MAP_FIXED;

type P<'a, 'm> = Process<'a, 'm, Sim, X86_64<4>>;

const LAYOUT: Layout = Layout { heap: Va::new(HEAP), top: Va::new(TOP), stack: Va::new(STACK) };

/// Runs `test` with a process that has no area; all is given back and recounted afterwards.
fn with(test: impl FnOnce(&mut P<'_, '_>, &Sim)) {
    let sim = Sim::new(Config::seeded(1, Bytes::new(64 << 20), 1)).unwrap();
    let mm = Manager::new(&sim, &Setup::of(&sim.config().memory, Policy::default())).unwrap();
    mm.online();
    let mut process = P::new(&mm, LAYOUT, Limits::NONE).unwrap();
    mm.switch(Some(process.space())).unwrap();
    test(&mut process, &sim);
    mm.switch(None).unwrap();
    process.end().unwrap();
    mm.audit(&[]).unwrap();
    assert_eq!(sim.violations(), []);
}

/// Stores a byte as the program would.
fn store(process: &mut P<'_, '_>, sim: &Sim, addr: u64, byte: u8) -> Result<(), Signal> {
    for _ in 0..8 {
        if sim.user_store(Va::new(addr), 1, u64::from(byte)).is_ok() {
            return Ok(());
        }
        let fault = match process.fault(addr, Access::Write) {
            Fault::Alone => process.fault_alone(addr, Access::Write),
            fault => fault,
        };
        match fault {
            Fault::Done => {}
            Fault::Signal(signal) => return Err(signal),
            other => panic!("{other:?}"),
        }
    }
    panic!("a store to {addr:#x} never got through")
}

/// Its areas: first page from `BASE` on, pages, rights.
fn areas(process: &P<'_, '_>) -> Vec<(u64, u64, u32)> {
    let seen = |vma: crate::Vma| {
        let first = vma.start().wrapping_sub(BASE) / PAGE;
        (first, vma.range.pages().get(), vma.prot())
    };
    process.vmas().map(seen).collect()
}

fn put(process: &mut P<'_, '_>, first: u64, pages: u64, prot: u32) {
    let at = BASE + first * PAGE;
    assert_eq!(process.mmap(at, pages * PAGE, prot, FIXED, None, 0), Ok(at));
}

#[test]
fn mmap_looks_at_its_arguments_in_linuxs_order() {
    with(|p, _| {
        let (inval, nomem) = (Err(Errno::INVAL), Err(Errno::NOMEM));
        put(p, 0, 2, RW);
        let huge = |log: u32| PRIVATE | MAP_HUGETLB | log << MAP_HUGE_SHIFT;
        for (addr, len, flags, offset, answer) in [
            (0, PAGE, PRIVATE, 8, inval),
            (0, PAGE, MAP_PRIVATE, 0, Err(Errno::BADF)),
            (0, 0, PRIVATE, 0, inval),
            (0, u64::MAX, PRIVATE, 0, nomem),
            (0, 1 << 47, PRIVATE, 0, nomem),
            (0, SIZE, PRIVATE, 0, nomem),
            (0, PAGE, MAP_ANONYMOUS, 0, inval),
            (0, PAGE, MAP_ANONYMOUS | MAP_SHARED_VALIDATE, 0, inval),
            (0, PAGE, MAP_ANONYMOUS | MAP_SHARED | MAP_GROWSDOWN, 0, inval),
            (0, PAGE, MAP_ANONYMOUS | MAP_DROPPABLE | MAP_LOCKED, 0, inval),
            (BASE + 8, PAGE, FIXED, 0, inval),
            (SIZE, PAGE, FIXED, 0, nomem),
            (0, PAGE, FIXED, 0, Err(Errno::PERM)),
            (BASE + PAGE, PAGE, PRIVATE | MAP_FIXED_NOREPLACE, 0, Err(Errno::EXIST)),
            (0, PAGE, huge(12), 0, inval),
            (0, 0, huge(21), 0, inval),
            (0, PAGE, huge(0), 0, nomem),
            (BASE + PAGE, PAGE, huge(21) | MAP_FIXED, 0, inval),
        ] {
            let got = p.mmap(addr, len, RW, flags, None, offset);
            assert_eq!(got, answer, "{addr:#x} {len:#x} {flags:#x} {offset}");
        }
        assert_eq!(areas(p), [(0, 2, RW)], "nothing was mapped");
    });
}

#[test]
fn areas_are_placed_downwards_and_large_ones_at_2_mib() {
    with(|p, sim| {
        let mut map = |addr, len, flags| p.mmap(addr, len, RW, PRIVATE | flags, None, 0).unwrap();
        assert_eq!(map(0, PAGE, 0), TOP - PAGE);
        assert_eq!(map(0, 2 * PAGE, 0), TOP - 3 * PAGE);
        let huge = map(0, HUGE, 0);
        assert_eq!(huge, TOP - 2 * HUGE, "the highest multiple of its size");
        assert_eq!(map(0, HUGE + PAGE, 0), huge - HUGE - PAGE, "whole 2 MiB alone are aligned");
        assert_eq!(map(BASE + 5, PAGE, 0), BASE, "a hint, rounded down");
        assert_eq!(map(1, PAGE, 0) % 0x1_0000, 0, "the lowest address");
        assert_eq!(map(0, PAGE, MAP_32BIT), 0x4000_0000);
        assert_eq!(map(0, PAGE, MAP_ABOVE4G), TOP - 4 * PAGE);
        // What grows downwards keeps 1 MiB.
        let stack = map(BASE + HUGE, PAGE, MAP_GROWSDOWN);
        assert_eq!(map(stack - PAGE, PAGE, 0), TOP - 5 * PAGE, "no place for a hint");
        assert_eq!(store(p, sim, stack - 3 * PAGE, 1), Ok(()));
        assert_eq!(p.vma(stack).unwrap().start(), stack - 3 * PAGE);
        let far = stack - (8 << 20);
        let signal = Signal { number: SIGSEGV, code: SEGV_MAPERR, addr: far, lsb: 0 };
        assert_eq!(store(p, sim, far, 1), Err(signal), "beyond the limit of a stack");
    });
}

#[test]
fn a_hole_ends_mprotect_after_what_lies_before() {
    with(|p, sim| {
        put(p, 0, 4, RW);
        put(p, 6, 4, RW);
        assert_eq!(p.mprotect(BASE + 2 * PAGE, 6 * PAGE, PROT_READ), Err(Errno::NOMEM));
        assert_eq!(areas(p), [(0, 2, RW), (2, 2, PROT_READ), (6, 4, RW)]);
        let signal =
            Signal { number: SIGSEGV, code: SEGV_ACCERR, addr: BASE + 2 * PAGE + 7, lsb: 0 };
        assert_eq!(store(p, sim, signal.addr, 1), Err(signal));
        let inval = Err(Errno::INVAL);
        for (addr, len, prot, answer) in [
            (BASE + 1, PAGE, RW, inval),
            (BASE, 0, 0x40, Ok(0)),
            (BASE, PAGE, 0x40, inval),
            (BASE, PAGE, PROT_GROWSDOWN | PROT_GROWSUP, inval),
            (BASE, PAGE, RW | PROT_GROWSDOWN, inval),
            (BASE, u64::MAX, RW, Err(Errno::NOMEM)),
            (BASE + 4 * PAGE, PAGE, RW, Err(Errno::NOMEM)),
            (BASE, PAGE, RW | PROT_SEM, Ok(0)),
        ] {
            assert_eq!(p.mprotect(addr, len, prot), answer, "{addr:#x} {len:#x} {prot:#x}");
        }
        assert_eq!(p.mprotect(BASE, 4 * PAGE, PROT_WRITE), Ok(0));
        assert_eq!(areas(p), [(0, 4, PROT_WRITE), (6, 4, RW)], "the two are one again");
    });
}

#[test]
fn madvise_works_on_the_whole_range_though_there_is_a_hole() {
    with(|p, sim| {
        put(p, 0, 2, RW);
        put(p, 4, 2, RW);
        for page in [0, 5] {
            assert_eq!(store(p, sim, BASE + page * PAGE, 9), Ok(()));
        }
        assert_eq!(p.madvise(BASE, 6 * PAGE, MADV_DONTNEED), Err(Errno::NOMEM));
        assert_eq!(p.present_in(BASE, BASE + 6 * PAGE), 0);
        let inval = Err(Errno::INVAL);
        for (addr, len, advice, answer) in [
            (BASE, 0, 77, inval),
            (BASE, 0, MADV_DONTNEED, Ok(0)),
            (BASE + 1, 0, MADV_DONTNEED, inval),
            (BASE, u64::MAX, MADV_DONTNEED, inval),
            (BASE, PAGE, MADV_REMOVE, inval),
            (BASE, PAGE, MADV_MERGEABLE, inval),
            (BASE, PAGE, MADV_COLLAPSE, inval),
            (BASE, 3 * PAGE, MADV_POPULATE_WRITE, Err(Errno::NOMEM)),
            (BASE, PAGE, MADV_COLD, Ok(0)),
        ] {
            assert_eq!(p.madvise(addr, len, advice), answer, "{addr:#x} {len:#x} {advice}");
        }
        assert_eq!(p.present_in(BASE, BASE + 6 * PAGE), 2, "those before the hole");
        assert_eq!(p.mlock(BASE, PAGE), Ok(0));
        for advice in [MADV_DONTNEED, MADV_FREE, MADV_COLD, MADV_PAGEOUT, MADV_GUARD_INSTALL] {
            assert_eq!(p.madvise(BASE, PAGE, advice), inval, "{advice} of locked memory");
        }
        assert_eq!(p.madvise(BASE, PAGE, MADV_DONTNEED_LOCKED), Ok(0));
        assert_eq!(p.munlock(BASE, PAGE), Ok(0));
        assert_eq!(areas(p).len(), 2, "what is unlocked is one with its neighbour");
        let read_only = BASE + 4 * PAGE;
        assert_eq!(p.mprotect(read_only, PAGE, PROT_READ), Ok(0));
        assert_eq!(p.madvise(read_only, PAGE, MADV_POPULATE_WRITE), inval);
        assert_eq!(p.madvise(BASE, PAGE, MADV_GUARD_INSTALL), Ok(0));
        assert_eq!(p.madvise(BASE, PAGE, MADV_POPULATE_READ), Err(Errno::FAULT));
        let signal = Signal { number: SIGSEGV, code: SEGV_MAPERR, addr: BASE, lsb: 0 };
        assert_eq!(store(p, sim, BASE, 1), Err(signal), "a guard");
    });
}

#[test]
fn mremap_moves_pages_and_leaves_or_takes_the_old_area() {
    with(|p, sim| {
        put(p, 0, 4, RW);
        assert_eq!(store(p, sim, BASE + PAGE, 7), Ok(()));
        let (inval, fault) = (Err(Errno::INVAL), Err(Errno::FAULT));
        let (may, fixed) = (MREMAP_MAYMOVE, MREMAP_MAYMOVE | MREMAP_FIXED);
        let to = BASE + 100 * PAGE;
        for (addr, old, new, flags, target, answer) in [
            (BASE, PAGE, 0, 0, 0, inval),
            (BASE, PAGE, PAGE, 8, 0, inval),
            (BASE + 8, PAGE, PAGE, 0, 0, inval),
            (BASE, PAGE, PAGE, MREMAP_FIXED, to, inval),
            (BASE, PAGE, 2 * PAGE, may | MREMAP_DONTUNMAP, to, inval),
            (BASE, 2 * PAGE, 2 * PAGE, fixed, BASE + PAGE, inval),
            (BASE, PAGE, PAGE, fixed, SIZE, inval),
            (BASE, 0, PAGE, may, 0, inval),
            (BASE + 4 * PAGE, PAGE, PAGE, may, 0, fault),
            (BASE, 8 * PAGE, 9 * PAGE, may, 0, fault),
            (BASE, PAGE, 2 * PAGE, 0, 0, Err(Errno::NOMEM)),
            (BASE, 4 * PAGE, 6 * PAGE, 0, 0, Ok(BASE)),
            (BASE, 6 * PAGE, 4 * PAGE, 0, 0, Ok(BASE)),
            (BASE, u64::MAX - PAGE, PAGE, 0, 0, inval),
        ] {
            let got = p.mremap(addr, old, new, flags, target);
            assert_eq!(got, answer, "{addr:#x} {old:#x} {new:#x} {flags} {target:#x}");
        }
        let stay = fixed | MREMAP_DONTUNMAP;
        assert_eq!(p.mremap(BASE, 4 * PAGE, 4 * PAGE, stay, to), Ok(to));
        assert_eq!(areas(p), [(0, 4, RW), (100, 4, RW)]);
        assert_eq!(sim.user_load(Va::new(to + PAGE), 1), Ok(7));
        assert_eq!(p.present_in(BASE, BASE + 4 * PAGE), 0);
        put(p, 4, 1, PROT_READ);
        put(p, 6, 1, RW);
        assert_eq!(
            p.mremap(BASE + 3 * PAGE, 4 * PAGE, 4 * PAGE, fixed, to + 10 * PAGE),
            Ok(to + 10 * PAGE)
        );
        let moved = [(0, 3, RW), (100, 4, RW), (110, 1, RW), (111, 1, PROT_READ), (113, 1, RW)];
        assert_eq!(areas(p), moved, "several go with the gaps between them");
    });
}

#[test]
fn a_target_may_take_away_what_was_to_move() {
    with(|p, _| {
        put(p, 0, 20, RW);
        let fixed = MREMAP_MAYMOVE | MREMAP_FIXED;
        let all_but_one = 0u64.wrapping_sub(2 * PAGE);
        let done = p.mremap(BASE + 5 * PAGE, all_but_one, 9 * PAGE, fixed, BASE + 4 * PAGE);
        assert_eq!(done, Err(Errno::FAULT), "its end wraps around, so nothing overlaps");
        assert_eq!(areas(p), [(0, 4, RW), (13, 7, RW)]);
    });
}

#[test]
fn the_heap_moves_until_something_is_in_its_way() {
    with(|p, sim| {
        assert_eq!(p.brk(0), HEAP);
        assert_eq!(p.brk(HEAP + 5 * PAGE + 1), HEAP + 5 * PAGE + 1);
        assert_eq!(store(p, sim, HEAP + 5 * PAGE, 1), Ok(()));
        assert_eq!(p.brk(HEAP - 1), HEAP + 5 * PAGE + 1);
        assert_eq!(p.mmap(HEAP + 8 * PAGE, PAGE, RW, FIXED, None, 0), Ok(HEAP + 8 * PAGE));
        assert_eq!(p.brk(HEAP + 8 * PAGE), HEAP + 5 * PAGE + 1, "a page stays free");
        assert_eq!(p.brk(HEAP + 7 * PAGE), HEAP + 7 * PAGE);
        assert_eq!(p.munmap(HEAP + 4 * PAGE, 3 * PAGE), Ok(0));
        assert_eq!(p.brk(HEAP + 4 * PAGE), HEAP + 7 * PAGE, "nothing is there to shrink");
        assert_eq!(p.brk(HEAP + PAGE), HEAP + PAGE);
        assert_eq!(p.vma(HEAP).unwrap().range.pages().get(), 1);
    });
}

#[test]
fn a_fork_obeys_what_was_advised() {
    with(|p, sim| {
        put(p, 0, 8, RW);
        for page in 0..8 {
            assert_eq!(store(p, sim, BASE + page * PAGE, page as u8 + 1), Ok(()));
        }
        assert_eq!(p.madvise(BASE, 2 * PAGE, MADV_DONTFORK), Ok(0));
        assert_eq!(p.madvise(BASE + 2 * PAGE, 2 * PAGE, MADV_WIPEONFORK), Ok(0));
        assert_eq!(p.madvise(BASE + 3 * PAGE, PAGE, MADV_GUARD_INSTALL), Ok(0));
        assert_eq!(p.mlock(BASE + 6 * PAGE, 2 * PAGE), Ok(0));
        let mut child = p.fork().unwrap();
        assert_eq!(areas(&child), [(2, 2, RW), (4, 2, RW), (6, 2, RW)]);
        assert_eq!(child.present_in(BASE, BASE + 8 * PAGE), 4);
        assert!(child.vmas().all(|vma| !vma.tag.marks.has(Marks::LOCKED)));
        p.manager().switch(Some(child.space())).unwrap();
        assert_eq!(sim.user_load(Va::new(BASE + 4 * PAGE), 1), Ok(5));
        assert_eq!(store(&mut child, sim, BASE + 3 * PAGE, 1), Ok(()), "a guard is wiped too");
        p.manager().switch(Some(p.space())).unwrap();
        child.end().unwrap();
    });
}

#[test]
fn limits_are_kept() {
    with(|p, _| {
        let (nomem, again) = (Err(Errno::NOMEM), Err(Errno::AGAIN));
        let limits = Limits::NONE;
        put(p, 0, 4, RW);
        let map = |p: &mut P<'_, '_>, flags| p.mmap(0, 2 * PAGE, RW, PRIVATE | flags, None, 0);
        p.set_limits(Limits { address_space: Bytes::new(5 * PAGE), ..limits });
        assert_eq!(map(p, 0), nomem);
        p.set_limits(Limits { data: Bytes::new(5 * PAGE), ..limits });
        assert_eq!(map(p, 0), nomem);
        assert!(p.mmap(0, 2 * PAGE, PROT_READ, PRIVATE, None, 0).is_ok(), "that is no data");
        p.set_limits(Limits { promise: Promise::Guess(Pages::new(1)), ..limits });
        assert_eq!(map(p, 0), nomem);
        assert!(map(p, MAP_NORESERVE).is_ok());
        p.set_limits(Limits { locked: Bytes::new(PAGE), ..limits });
        assert_eq!(map(p, MAP_LOCKED), again);
        assert_eq!(p.mlock(BASE, 2 * PAGE), nomem);
        assert_eq!(p.mlock(BASE, PAGE), Ok(0));
        assert_eq!(p.mlock(BASE, PAGE), Ok(0), "it is locked already");
        p.set_limits(Limits { locked: Bytes::new(0), ..limits });
        assert_eq!(p.mlock(BASE, PAGE), Err(Errno::PERM));
    });
}

#[test]
fn mincore_and_msync_look_at_their_arguments() {
    with(|p, sim| {
        put(p, 0, 3, RW);
        assert_eq!(store(p, sim, BASE + PAGE, 1), Ok(()));
        let mut pages = Vec::new();
        assert_eq!(p.mincore(BASE, 2 * PAGE + 1, |page| pages.push(page)), Ok(0));
        assert_eq!(pages, [0, 1, 0]);
        let (inval, nomem) = (Err(Errno::INVAL), Err(Errno::NOMEM));
        let core = |addr, len| p.mincore(addr, len, |_| ());
        assert_eq!(
            [core(BASE + 1, 1), core(BASE, 4 * PAGE), core(BASE, u64::MAX)],
            [inval, nomem, nomem]
        );
        let sync = |len, flags| p.msync(BASE, len, flags);
        assert_eq!(
            [sync(PAGE, MS_SYNC), sync(0, MS_ASYNC), sync(4 * PAGE, MS_SYNC)],
            [Ok(0), Ok(0), nomem]
        );
        assert_eq!([sync(PAGE, 8), sync(PAGE, MS_SYNC | MS_ASYNC)], [inval; 2]);
        assert_eq!(p.mlock(BASE, PAGE), Ok(0));
        assert_eq!(p.msync(BASE, PAGE, MS_INVALIDATE), Err(Errno::BUSY));
    });
}

#[test]
fn no_argument_panics() {
    with(|p, _| {
        put(p, 0, 8, RW);
        let edge = [
            0,
            1,
            PAGE,
            BASE,
            SIZE - PAGE,
            SIZE,
            1 << 47,
            u64::MAX - PAGE,
            u64::MAX - 4095,
            u64::MAX,
        ];
        for a in edge {
            p.brk(a);
            let _ = p.pagemap(a, &mut [0; 3], crate::Frames::Shown);
            let _ = p.mlockall(a as u32);
            for b in edge {
                let _ = p.mprotect(a, b, PROT_READ);
                let _ = p.mincore(a, b.min(1 << 20), |_| ());
                let _ = p.mincore(a, b, |_| ());
                let _ = p.msync(a, b, MS_SYNC);
                let _ = (p.mlock(a, b), p.munlock(a, b), p.mlock2(a, b, 1));
                let _ = (p.madvise(a, b, MADV_DONTNEED), p.madvise(a, b, MADV_COLLAPSE));
                let _ = (p.fault(a, Access::Write), p.fault_alone(b, Access::Write));
                for c in edge {
                    let _ = p.mmap(a, b, PROT_NONE, PRIVATE, None, c);
                    let _ = p.mmap(a, b, PROT_NONE, PRIVATE | MAP_HUGETLB, None, 0);
                    for flags in 0..8 {
                        let _ = p.mremap(a, b, c, flags, BASE + 64 * PAGE);
                        let _ = p.mremap(BASE, a, b, flags, c);
                    }
                }
            }
        }
        for a in edge {
            for b in edge {
                let _ = (p.mseal(a, b, 0), p.munmap(a, b));
            }
        }
    });
}

#[test]
fn maps_and_smaps_are_linuxs_to_the_byte() {
    with(|p, sim| {
        put(p, 0, 2, RW);
        assert_eq!(p.brk(HEAP + PAGE), HEAP + PAGE);
        let stack = p.mmap(STACK, 2 * PAGE, RW, FIXED | MAP_GROWSDOWN | MAP_NORESERVE, None, 0);
        assert_eq!(stack, Ok(STACK));
        assert_eq!(store(p, sim, BASE + PAGE, 1), Ok(()));
        assert_eq!(p.madvise(BASE, 2 * PAGE, MADV_DONTDUMP), Ok(0));
        assert_eq!(p.mprotect(BASE, PAGE, PROT_EXEC), Ok(0));
        assert_eq!(p.mlock(STACK, PAGE), Ok(0));
        let mut maps = String::new();
        p.maps(&mut maps).unwrap();
        assert_eq!(
            maps,
            "60000000-60001000 rw-p 00000000 00:00 0                                  [heap]\n\
             1000000000-1000001000 --xp 00000000 00:00 0 \n\
             1000001000-1000002000 rw-p 00000000 00:00 0 \n\
             7ffff0000000-7ffff0001000 rw-p 00000000 00:00 0                          [stack]\n\
             7ffff0001000-7ffff0002000 rw-p 00000000 00:00 0 \n"
        );
        // A row tells where the next begins, from any address of its vma on.
        let mut row = String::new();
        assert_eq!(p.maps_row(BASE, &mut row), Ok(Some(BASE + PAGE)));
        assert_eq!(p.maps_row(BASE + PAGE - 1, &mut row), Ok(Some(BASE + PAGE)));
        assert_eq!(p.maps_row(BASE + PAGE, &mut row), Ok(Some(BASE + 2 * PAGE)));
        let [_, first, second, ..] = maps.split_inclusive('\n').collect::<Vec<_>>()[..] else {
            panic!("{maps}")
        };
        assert_eq!(row, [first, first, second].concat());
        assert_eq!(p.maps_row(STACK + 2 * PAGE, &mut row), Ok(None));
        assert_eq!(p.smaps_row(STACK + 2 * PAGE, &mut row), Ok(None));
        let mut smaps = String::new();
        p.smaps(&mut smaps).unwrap();
        assert_eq!(p.smaps_row(BASE, &mut row), Ok(Some(BASE + PAGE)));
        assert!(smaps.contains(row.strip_prefix(&[first, first, second].concat()).unwrap()));
        let parts: Vec<&str> = smaps.split_inclusive("VmFlags").collect();
        let third = parts[2].split_once('\n').unwrap().1;
        assert_eq!(
            third,
            "1000001000-1000002000 rw-p 00000000 00:00 0 \n\
             Size:                  4 kB\n\
             KernelPageSize:        4 kB\n\
             MMUPageSize:           4 kB\n\
             Rss:                   4 kB\n\
             Pss:                   4 kB\n\
             Pss_Dirty:             4 kB\n\
             Shared_Clean:          0 kB\n\
             Shared_Dirty:          0 kB\n\
             Private_Clean:         0 kB\n\
             Private_Dirty:         4 kB\n\
             Referenced:            4 kB\n\
             Anonymous:             4 kB\n\
             KSM:                   0 kB\n\
             LazyFree:              0 kB\n\
             AnonHugePages:         0 kB\n\
             ShmemPmdMapped:        0 kB\n\
             FilePmdMapped:         0 kB\n\
             Shared_Hugetlb:        0 kB\n\
             Private_Hugetlb:       0 kB\n\
             Swap:                  0 kB\n\
             SwapPss:               0 kB\n\
             Locked:                0 kB\n\
             THPeligible:           0\n\
             VmFlags"
        );
        let flags = |nth: usize| parts[nth].lines().next().unwrap();
        assert_eq!(flags(3), ": rd wr mr mw me ac dd sd ");
        assert_eq!(flags(4), ": rd wr mr mw me gd lo nr sd ");
        assert!(smaps.ends_with("VmFlags: rd wr mr mw me gd nr sd \n"));
    });
}

#[test]
fn switches_show_all_words_and_take_one() {
    with(|p, _| {
        let mm = p.manager();
        let read = |path: &str| sys::read(mm, path);
        let write = |path: &str, text: &str| sys::write(mm, path, text);
        let of = |name: &str| format!("transparent_hugepage/{name}");
        let (inval, acces) = (Errno::INVAL, Errno(EACCES));
        for (name, first, word, second, wrong) in [
            ("enabled", "always [madvise] never\n", "never", "always madvise [never]\n", "inherit"),
            (
                "defrag",
                "always defer defer+madvise [madvise] never\n",
                "defer+madvise\n",
                "always defer [defer+madvise] madvise never\n",
                "sometimes",
            ),
            ("use_zero_page", "1\n", "0\n", "0\n", "2"),
            (
                "hugepages-2048kB/enabled",
                "always [inherit] madvise never\n",
                "always\n",
                "[always] inherit madvise never\n",
                "always ",
            ),
            (
                "hugepages-64kB/enabled",
                "always inherit madvise [never]\n",
                "auto",
                "always inherit madvise never [auto]\n",
                "",
            ),
        ] {
            let path = of(name);
            assert_eq!(read(&path).as_deref(), Ok(first));
            assert_eq!(write(&path, wrong), Err(inval), "{name}: {wrong}");
            assert_eq!(read(&path).as_deref(), Ok(first), "nothing changed");
            assert_eq!(write(&path, word), Ok(()));
            assert_eq!(read(&path).as_deref(), Ok(second));
        }
        assert_eq!(read(&of("hpage_pmd_size")).as_deref(), Ok("2097152\n"));
        assert_eq!(write(&of("hpage_pmd_size"), "1"), Err(acces));
        assert_eq!(read(&of("hugepages-64kB/stats/nr_anon")).as_deref(), Ok("0\n"));
        for absent in ["", "absent", "hugepages-8kB/enabled", "hugepages-64kB/stats/x"] {
            assert_eq!(read(&of(absent)), Err(Errno(ENOENT)), "{absent}");
        }
        let pool = |name: &str| format!("hugepages/hugepages-2048kB/{name}");
        assert_eq!(write(&pool("nr_hugepages"), "3\n"), Ok(()));
        assert_eq!(read(&pool("free_hugepages")).as_deref(), Ok("3\n"));
        assert_eq!(write(&pool("free_hugepages"), "1"), Err(acces));
        assert_eq!(write(&pool("nr_hugepages"), "-1"), Err(inval));
        assert_eq!(read(&pool("demote")), Err(Errno(ENOENT)), "nothing is smaller");
        for name in sys::names() {
            match read(&name) {
                Ok(text) => assert!(text.ends_with('\n'), "{name}"),
                Err(why) => assert!(name.ends_with("/demote") && why == acces, "{name}: {why}"),
            }
        }
    });
}

#[test]
fn meminfo_and_vmstat_say_what_there_is() {
    with(|p, sim| {
        put(p, 0, 2, RW);
        assert_eq!(store(p, sim, BASE, 1), Ok(()));
        assert_eq!(sys::write(p.manager(), "hugepages/hugepages-2048kB/nr_hugepages", "2"), Ok(()));
        let mut text = String::new();
        let overcommit = Overcommit::new(Pages::new(0), Pages::new(0));
        let listed = meminfo::Listed::default();
        meminfo::meminfo(p.manager(), &overcommit, &listed, &mut text).unwrap();
        let free = p.manager().memory().free.get() * 4;
        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap();
        assert_eq!(line("MemTotal:"), "MemTotal:          65536 kB");
        assert_eq!(line("MemFree:"), format!("MemFree:        {free:8} kB"));
        assert_eq!(line("AnonPages:"), "AnonPages:             4 kB");
        assert!(text.ends_with(
            "HugePages_Total:       2\nHugePages_Free:        2\nHugePages_Rsvd:        0\n\
             HugePages_Surp:        0\nHugepagesize:       2048 kB\nHugetlb:            4096 kB\n"
        ));
        let mut text = String::new();
        meminfo::vmstat(p.manager(), &meminfo::Listed::default(), &mut text).unwrap();
        assert!(text.starts_with(&format!("nr_free_pages {}\nnr_mlock 0\n", free / 4)));
        assert!(text.contains("\nnr_anon_pages 1\n"));
        assert!(text.contains("\npgfault 1\n"), "{text}");
    });
}
