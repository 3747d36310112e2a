//! Guest memory of real pools through the real traits.

mod common;

use common::{Host, KINDS, Kind, PAGE, Ram, SIZE_2M, books, host, range, scatter};
use foliant::manager::{BootPages, Setup};
use foliant::pool::Folding;
use foliant::space::MapError;
use foliant::{Manager, Policy};
use foliant_guest::{FrameFile, GuestError, GuestRam, HostCall};
use foliant_sim::{Config, Failing, Sim};
use foliant_units::{Bytes, Frame, Order};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vm_memory::{
    Bytes as _, GuestAddress, GuestMemory, GuestMemoryBackend, GuestMemoryRegion,
    MemoryRegionAddress, Permissions,
};

const HOLE: u64 = 3 << 30;
const HIGH: u64 = 4 << 30;

fn ranges(pages: u64) -> [(GuestAddress, Bytes); 2] {
    [range(HOLE - pages * PAGE, pages), range(HIGH, 1)]
}

/// How many mappings of the machine's file this process has.
fn mappings(machine: &Sim) -> usize {
    let Some((file, _)) = machine.memory_file() else { return 0 };
    let inode = file.metadata().unwrap().ino().to_string();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.split_whitespace().nth(4) == Some(&inode)).count()
}

#[test]
fn every_byte_is_where_it_was_written() {
    for kind in KINDS {
        let machine = kind.small();
        let host = host(&machine, Order::SIZE_2M, 8);
        let before = (books(&host, Order::SIZE_2M), mappings(&machine));
        let guest = kind.guest(&host, Order::SIZE_2M, &ranges(3)).unwrap();
        assert_eq!((guest.num_regions(), books(&host, Order::SIZE_2M).0), (2, 4), "{kind:?}");
        let low = HOLE - 3 * PAGE;

        // One word in each 4 KiB, and a buffer over each edge of a page.
        let words = |guest: &Ram<'_, '_>, write: bool| {
            for at in (low..HOLE).chain(HIGH..HIGH + PAGE).step_by(4096) {
                match write {
                    true => guest.store(at, GuestAddress(at), Ordering::Relaxed).unwrap(),
                    false => {
                        let word: u64 = guest.load(GuestAddress(at), Ordering::Relaxed).unwrap();
                        assert_eq!(word, at)
                    }
                }
            }
        };
        words(&guest, true);
        words(&guest, false);
        across(&guest, &[low + PAGE, low + 2 * PAGE]);
        // What the pages hold is what a nested table would show: no two are the same frames.
        let frames = |region: &<Ram<'_, '_> as GuestMemoryBackend>::R| {
            let at = (0..region.len()).step_by(PAGE as usize);
            at.map(|at| region.frame(MemoryRegionAddress(at)).unwrap().get()).collect::<Vec<_>>()
        };
        let mut frames: Vec<u64> = guest.iter().flat_map(frames).collect();
        frames.sort_unstable();
        assert!(frames.windows(2).all(|two| two[1] - two[0] >= 512), "{frames:?}");
        assert_eq!(frames.len(), 4);
        assert_eq!(machine.violations(), []);
        drop(guest);
        assert_eq!((books(&host, Order::SIZE_2M), mappings(&machine)), before);
        host.audit(&[]).unwrap();
        assert_eq!(machine.finish(), []);
    }
}

/// At each of these edges between two pages of one region.
fn across(guest: &Ram<'_, '_>, edges: &[u64]) {
    for edge in edges {
        let at = GuestAddress(edge - 3);
        guest.write_slice(b"across", at).unwrap();
        let mut read = [0; 6];
        guest.read_slice(&mut read, at).unwrap();
        assert_eq!(&read, b"across");
        let parts = GuestMemoryBackend::get_slices(guest, at, 6);
        assert_eq!(parts.map(|slice| slice.unwrap().len()).collect::<Vec<_>>(), [6]);
        // An atomic word on either side, and one over the edge, which nothing may have.
        for (at, word) in [(edge - 8, 0x1111_2222_3333_4444_u64), (*edge, !0)] {
            guest.store(word, GuestAddress(at), Ordering::SeqCst).unwrap();
            assert_eq!(guest.load::<u64>(GuestAddress(at), Ordering::SeqCst).unwrap(), word);
        }
        assert!(guest.store(1u64, GuestAddress(edge - 4), Ordering::SeqCst).is_err());
        assert_eq!(guest.read_obj::<u64>(GuestAddress(edge - 4)).unwrap(), 0xffff_ffff_1111_2222);
    }
}

/// A guest of 8 GiB has one region, one slice goes over all of it, and its addresses in the process
/// are side by side. In the direct map it has as many as the pool has runs of pages, which are
/// few in one that was filled at boot: the manager's own frames lie between.
#[test]
fn all_of_8_gib_is_one_region() {
    const PAGES: u64 = 4096;
    // Ranges that touch are one.
    let ranges = [range(0, PAGES / 2), range(PAGES / 2 * PAGE, PAGES / 2)];
    for (kind, most) in [(Kind::Direct, 16), (Kind::InView, 1)] {
        let machine = kind.machine(Config::free(1, Bytes::new(9 << 30)));
        let boot = BootPages { size_2m: PAGES, size_1g: 0, folding: Folding::On };
        let setup = Setup { boot, ..Setup::of(&machine.config().memory, Policy::BASE_ONLY) };
        let host: Host<'_> = Manager::new(&machine, &setup).unwrap();
        let guest = kind.guest(&host, Order::SIZE_2M, &ranges).unwrap();
        assert!((1..=most).contains(&guest.num_regions()), "{kind:?}: {}", guest.num_regions());
        assert_eq!(guest.iter().map(GuestMemoryRegion::len).sum::<u64>(), PAGES * PAGE);
        for region in guest.iter() {
            assert_eq!(region.as_volatile_slice().unwrap().len() as u64, region.len());
            let (start, end) = (region.start_addr().0, region.last_addr().0 + 1);
            let mut edges = vec![start + PAGE, (start + end) / 2 / PAGE * PAGE, end - PAGE];
            edges.retain(|edge| (start + 1..end).contains(edge));
            across(&guest, &edges);
            let first = guest.get_host_address(GuestAddress(start)).unwrap();
            for at in (start..end).step_by(PAGE as usize) {
                let (found, offset) = guest.to_region_addr(GuestAddress(at)).unwrap();
                assert_eq!((found.start_addr().0, offset.0), (start, at - start));
                let here = guest.get_host_address(GuestAddress(at)).unwrap();
                assert_eq!(here.addr() - first.addr(), (at - start) as usize);
            }
        }
    }
}

/// Where no two of the pool's pages are neighbours a view is one region all the same, and without
/// one there are as many regions as runs.
#[test]
fn pages_that_are_no_neighbours_are_side_by_side_in_view() {
    let machine = Kind::InView.small();
    let host = host(&machine, Order::SIZE_2M, 24);
    let others = scatter(&host);
    assert_eq!(host.pool(Order::SIZE_2M).unwrap().free_hugepages, 12);
    let before = mappings(&machine);
    for (kind, regions) in [(Kind::Direct, 8), (Kind::InView, 1)] {
        let guest = kind.guest(&host, Order::SIZE_2M, &[range(PAGE, 8)]).unwrap();
        assert_eq!(guest.num_regions(), regions, "{kind:?}");
        assert_eq!(guest.iter().map(GuestMemoryRegion::len).sum::<u64>(), 8 * PAGE);
        let pattern: Vec<u8> = (0..8 * PAGE).map(|at| (at / 4096) as u8 ^ at as u8).collect();
        guest.write_slice(&pattern, GuestAddress(PAGE)).unwrap();
        let mut read = vec![0; pattern.len()];
        guest.read_slice(&mut read, GuestAddress(PAGE)).unwrap();
        assert!(read == pattern);
        if kind == Kind::InView {
            across(&guest, &(2..9).map(|nth| nth * PAGE).collect::<Vec<_>>());
            assert_eq!(mappings(&machine), before + 8, "a mapping for each run");
        }
    }
    drop(others);
    assert_eq!(mappings(&machine), before);
}

#[test]
fn addresses_outside_are_refused() {
    for kind in KINDS {
        let machine = kind.small();
        let host = host(&machine, Order::SIZE_2M, 4);
        let guest = kind.guest(&host, Order::SIZE_2M, &ranges(3)).unwrap();
        let low = HOLE - 3 * PAGE;
        for (at, bytes) in
            [(0, 1), (low - 1, 2), (HOLE, 1), (HIGH - 1, 1), (HIGH + PAGE, 1), (u64::MAX, 1)]
        {
            assert!(guest.write_slice(&vec![1; bytes], GuestAddress(at)).is_err(), "{at:#x}");
        }
        // The hole is not jumped over, and the last byte is the last.
        assert!(!GuestMemory::check_range(&guest, GuestAddress(HOLE - 1), 2, Permissions::Write));
        assert!(guest.write_slice(&[1], GuestAddress(HIGH + PAGE - 1)).is_ok());
        assert!(guest.find_region(GuestAddress(HOLE)).is_none());
        let region = guest.find_region(GuestAddress(HIGH)).unwrap();
        let at = MemoryRegionAddress;
        assert!(region.get_slice(at(1), PAGE as usize).is_err());
        assert!(region.get_slice(at(u64::MAX), 2).is_err());
        assert!(region.get_host_address(at(PAGE)).is_err());
        assert!(region.get_host_address(at(PAGE - 1)).is_ok());
        assert!(region.frame(at(PAGE - 1)).is_some() && region.frame(at(PAGE)).is_none());
        // The region's own accesses: as far as it goes, or not at all.
        assert_eq!(region.write(b"end", at(PAGE - 2)).unwrap(), 2);
        assert_eq!(region.read(&mut [0; 3], at(PAGE - 2)).unwrap(), 2);
        assert_eq!(region.write(b"", at(PAGE)).unwrap(), 0);
        assert!(region.write(b"end", at(PAGE)).is_err());
        assert!(region.write_slice(b"end", at(PAGE - 2)).is_err());
        assert!(region.read_slice(&mut [0; 3], at(PAGE - 2)).is_err());
        assert!(region.store(1u64, at(PAGE - 4), Ordering::Relaxed).is_err());
        assert!(region.load::<u64>(at(PAGE - 8), Ordering::Relaxed).is_ok());
        assert!(region.load::<u64>(at(u64::MAX - 7), Ordering::Relaxed).is_err());
        let mut from = &b"four"[..];
        assert_eq!(region.read_volatile_from(at(PAGE - 2), &mut from, 4).unwrap(), 2);
        assert!(region.read_exact_volatile_from(at(PAGE - 2), &mut from, 4).is_err());
        let mut to = Vec::new();
        assert_eq!(region.write_volatile_to(at(PAGE - 2), &mut to, 4).unwrap(), 2);
        assert_eq!(to, b"fo");
        assert!(region.write_all_volatile_to(at(PAGE - 2), &mut to, 4).is_err());
    }
}

#[test]
fn ranges_that_are_none_are_named() {
    for kind in KINDS {
        let machine = kind.small();
        let host = host(&machine, Order::SIZE_2M, 8);
        let before = books(&host, Order::SIZE_2M);
        let at = GuestAddress;
        let page = |start| (at(start), SIZE_2M);
        let last = 0u64.wrapping_sub(PAGE);
        for (ranges, error) in [
            (&[][..], GuestError::Empty),
            (&[(at(0), Bytes::new(0))], GuestError::Empty),
            (&[(at(4096), SIZE_2M)], GuestError::Misaligned(at(4096), SIZE_2M, Order::SIZE_2M)),
            (
                &[(at(0), Bytes::new(1))],
                GuestError::Misaligned(at(0), Bytes::new(1), Order::SIZE_2M),
            ),
            (&[page(0), page(0)], GuestError::Overlap(at(PAGE), at(0))),
            (&[page(HIGH), page(0)], GuestError::Overlap(at(HIGH + PAGE), at(0))),
            (&[page(last)], GuestError::Beyond(at(last), SIZE_2M)),
        ] {
            let got = kind.guest(&host, Order::SIZE_2M, ranges).map(drop);
            assert_eq!(got, Err(error), "{error}");
        }
        let small = Order::new(4).unwrap();
        let got = kind.guest(&host, small, &[page(0)]).map(drop);
        assert_eq!(got, Err(GuestError::Order(small)));
        let huge = kind.guest(&host, Order::SIZE_2M, &[(at(0), Bytes::new(1 << 60))]).map(drop);
        assert!(matches!(huge, Err(GuestError::Map(_))), "{huge:?}");
        assert_eq!(books(&host, Order::SIZE_2M), before);
    }
}

/// A file that is not the machine's, as far as can be seen: too short, begins later, or cannot be
/// written to.
#[test]
#[allow(unsafe_code)]
fn a_file_that_does_not_hold_the_pages_is_refused() {
    let machine = Kind::InView.small();
    let host = host(&machine, Order::SIZE_2M, 8);
    let before = (books(&host, Order::SIZE_2M), mappings(&machine));
    let (memory, first) = machine.memory_file().unwrap();
    let made = |file, first| {
        // SAFETY: not so, which the guest finds before it maps any of it.
        let file = unsafe { FrameFile::new(file, first) };
        GuestRam::in_file(&host, &file, Order::SIZE_2M, &ranges(3)).map(drop)
    };
    let short = tempfile();
    short.set_len(1 << 20).unwrap();
    let late = Frame::new(1 << 20);
    for (got, begins, length) in [
        (made(Arc::new(short), first), first, Bytes::new(1 << 20)),
        (made(memory.clone(), late), late, Bytes::new(memory.metadata().unwrap().len())),
    ] {
        let Err(GuestError::NotInFile(_, named, of)) = got else { panic!("{got:?}") };
        assert_eq!((named, of), (begins, length));
    }
    let read_only = std::fs::File::open("/proc/self/exe").unwrap();
    let got = made(Arc::new(read_only), first);
    assert!(
        matches!(got, Err(GuestError::NotInFile(..) | GuestError::Host(HostCall::Show, _))),
        "{got:?}"
    );
    assert_eq!((books(&host, Order::SIZE_2M), mappings(&machine)), before);
}

fn tempfile() -> std::fs::File {
    let path = std::env::temp_dir().join(format!("foliant-guest-{}", std::process::id()));
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file
}

/// The second of two ranges finds the pool empty: the first one's pages are back.
#[test]
fn a_pool_that_is_too_small_loses_nothing() {
    for kind in KINDS {
        let machine = kind.small();
        let host = host(&machine, Order::SIZE_2M, 3);
        let before = books(&host, Order::SIZE_2M);
        let got = kind.guest(&host, Order::SIZE_2M, &ranges(3)).map(drop);
        assert!(matches!(got, Err(GuestError::Map(MapError::NoHugePages(_)))), "{got:?}");
        assert_eq!(books(&host, Order::SIZE_2M), before);
        host.audit(&[]).unwrap();
    }
}

/// Every allocation on the way fails once.
#[test]
fn a_refused_allocation_leaves_no_trace() {
    for kind in KINDS {
        let machine = kind.small();
        let host = host(&machine, Order::SIZE_2M, 4);
        let before = (books(&host, Order::SIZE_2M), mappings(&machine));
        let mut refused = 0;
        for k in 1.. {
            machine.fault_plan().set(Failing::Kth(k));
            let got = kind.guest(&host, Order::SIZE_2M, &ranges(3)).map(drop);
            let hit = machine.fault_plan().refused() > 0;
            machine.fault_plan().set(Failing::Nothing);
            let after = (books(&host, Order::SIZE_2M), mappings(&machine));
            assert_eq!(after, before, "k = {k}: {got:?}");
            host.audit(&[]).unwrap();
            if !hit {
                assert_eq!(got, Ok(()));
                break;
            }
            refused += u32::from(got.is_err());
        }
        assert!(refused >= 3, "the space, an area, a table: {refused}");
        assert_eq!(machine.finish(), []);
    }
}

#[test]
fn a_page_of_1_gib() {
    for kind in KINDS {
        let machine = kind.machine(Config::seeded(2, Bytes::new(3 << 30), 1));
        let host = host(&machine, Order::SIZE_1G, 1);
        let before = books(&host, Order::SIZE_1G);
        let guest =
            kind.guest(&host, Order::SIZE_1G, &[(GuestAddress(HIGH), Bytes::SIZE_1G)]).unwrap();
        assert_eq!(guest.num_regions(), 1);
        let last = GuestAddress(HIGH + Bytes::SIZE_1G.get() - 5);
        guest.write_slice(b"ends", last).unwrap();
        let mut read = [0; 4];
        guest.read_slice(&mut read, last).unwrap();
        assert_eq!(&read, b"ends");
        drop(guest);
        assert_eq!(books(&host, Order::SIZE_1G), before);
    }
}

/// Devices have threads of their own.
#[test]
fn threads_share_it() {
    fn shared<T: Send + Sync>(_: &T) {}
    for kind in KINDS {
        let machine = kind.small();
        let host: Host<'_> = host(&machine, Order::SIZE_2M, 1);
        let guest = kind.guest(&host, Order::SIZE_2M, &[range(0, 1)]).unwrap();
        shared(&guest);
        shared(&guest.tracked::<vm_memory::bitmap::AtomicBitmap>());
    }
}
