//! Guest memory of real pools through the real traits.

use foliant::manager::Setup;
use foliant::pool::Budget;
use foliant::space::MapError;
use foliant::{Manager, Policy, table::X86_64};
use foliant_guest::{GuestError, GuestRam};
use foliant_sim::{Config, Failing, Sim};
use foliant_units::{Bytes, Order, Pages};
use std::sync::atomic::Ordering;
use vm_memory::{
    Bytes as _, GuestAddress, GuestMemory, GuestMemoryBackend, GuestMemoryRegion, Permissions,
};

type Host<'m> = Manager<'m, Sim, X86_64<4>>;

const SIZE_2M: Bytes = Bytes::SIZE_2M;
const HOLE: u64 = 3 << 30;
const HIGH: u64 = 4 << 30;

fn machine(memory: Bytes) -> Sim {
    Sim::new(Config::seeded(2, memory, 1)).unwrap()
}
fn host(machine: &Sim, order: Order, pages: u64) -> Host<'_> {
    let setup = Setup::of(&machine.config().memory, Policy::BASE_ONLY);
    let host: Host<'_> = Manager::new(machine, &setup).unwrap();
    host.describe_all().unwrap();
    assert_eq!(host.resize_pool(order, pages, Budget::ALL).unwrap().reached, pages);
    host
}
fn ranges(pages: u64) -> [(GuestAddress, Bytes); 2] {
    [
        (GuestAddress(HOLE - pages * SIZE_2M.get()), Bytes::new(pages * SIZE_2M.get())),
        (GuestAddress(HIGH), SIZE_2M),
    ]
}
/// Free pages of the pool, reserved ones, free frames.
fn books(host: &Host<'_>, order: Order) -> (u64, u64, Pages) {
    let pool = host.pool(order).unwrap();
    (pool.free_hugepages, pool.resv_hugepages, host.memory().free)
}

#[test]
fn every_byte_is_where_it_was_written() {
    let machine = machine(Bytes::new(64 << 20));
    let host = host(&machine, Order::SIZE_2M, 8);
    let before = books(&host, Order::SIZE_2M);
    let guest = GuestRam::new(&host, Order::SIZE_2M, &ranges(3)).unwrap();
    assert_eq!((guest.num_regions(), books(&host, Order::SIZE_2M).0), (4, 4));
    let low = HOLE - 3 * SIZE_2M.get();

    // One word in each 4 KiB, and a buffer over each edge of a page.
    let words = |guest: &GuestRam<'_, '_, Sim, X86_64<4>>, write: bool| {
        for at in (low..HOLE).chain(HIGH..HIGH + SIZE_2M.get()).step_by(4096) {
            match write {
                true => guest.store(at, GuestAddress(at), Ordering::Relaxed).unwrap(),
                false => {
                    assert_eq!(guest.load::<u64>(GuestAddress(at), Ordering::Relaxed).unwrap(), at)
                }
            }
        }
    };
    assert_eq!(guest.load::<u64>(GuestAddress(low), Ordering::Relaxed).unwrap(), 0, "cleared");
    words(&guest, true);
    words(&guest, false);
    for edge in [low + SIZE_2M.get(), low + 2 * SIZE_2M.get()] {
        let at = GuestAddress(edge - 3);
        guest.write_slice(b"across", at).unwrap();
        let mut read = [0; 6];
        guest.read_slice(&mut read, at).unwrap();
        assert_eq!(&read, b"across");
        let parts: Vec<usize> = GuestMemoryBackend::get_slices(&guest, at, 6)
            .map(|slice| slice.unwrap().len())
            .collect();
        assert_eq!(parts, [3, 3]);
    }
    // What the pages hold is what a nested table would show: no two are the same frames.
    let mut frames: Vec<u64> = guest.iter().map(|page| page.frame().get()).collect();
    frames.sort_unstable();
    assert!(frames.windows(2).all(|two| two[1] - two[0] >= 512), "{frames:?}");
    assert_eq!(machine.violations(), []);
    drop(guest);
    assert_eq!(books(&host, Order::SIZE_2M), before);
    host.audit(&[]).unwrap();
    assert_eq!(machine.finish(), []);
}

#[test]
fn addresses_outside_are_refused() {
    let machine = machine(Bytes::new(64 << 20));
    let host = host(&machine, Order::SIZE_2M, 4);
    let guest = GuestRam::new(&host, Order::SIZE_2M, &ranges(3)).unwrap();
    let low = HOLE - 3 * SIZE_2M.get();
    for (at, bytes) in
        [(0, 1), (low - 1, 2), (HOLE, 1), (HIGH - 1, 1), (HIGH + SIZE_2M.get(), 1), (u64::MAX, 1)]
    {
        assert!(guest.write_slice(&vec![1; bytes], GuestAddress(at)).is_err(), "{at:#x}");
    }
    // The hole is not jumped over, and the last byte is the last.
    assert!(!GuestMemory::check_range(&guest, GuestAddress(HOLE - 1), 2, Permissions::Write));
    assert!(guest.write_slice(&[1], GuestAddress(HIGH + SIZE_2M.get() - 1)).is_ok());
    assert!(guest.find_region(GuestAddress(HOLE)).is_none());
    let page = guest.find_region(GuestAddress(HIGH)).unwrap();
    assert!(page.get_slice(vm_memory::MemoryRegionAddress(1), SIZE_2M.get() as usize).is_err());
    assert!(page.get_slice(vm_memory::MemoryRegionAddress(u64::MAX), 2).is_err());
    assert!(page.get_host_address(vm_memory::MemoryRegionAddress(SIZE_2M.get())).is_err());
    assert!(page.get_host_address(vm_memory::MemoryRegionAddress(SIZE_2M.get() - 1)).is_ok());
}

#[test]
fn ranges_that_are_none_are_named() {
    let machine = machine(Bytes::new(64 << 20));
    let host = host(&machine, Order::SIZE_2M, 8);
    let before = books(&host, Order::SIZE_2M);
    let at = GuestAddress;
    let page = |start| (at(start), SIZE_2M);
    let last = 0u64.wrapping_sub(SIZE_2M.get());
    for (ranges, error) in [
        (&[][..], GuestError::Empty),
        (&[(at(0), Bytes::new(0))], GuestError::Empty),
        (&[(at(4096), SIZE_2M)], GuestError::Misaligned(at(4096), SIZE_2M, Order::SIZE_2M)),
        (&[(at(0), Bytes::new(1))], GuestError::Misaligned(at(0), Bytes::new(1), Order::SIZE_2M)),
        (&[page(0), page(0)], GuestError::Overlap(at(SIZE_2M.get()), at(0))),
        (&[page(HIGH), page(0)], GuestError::Overlap(at(HIGH + SIZE_2M.get()), at(0))),
        (&[page(last)], GuestError::Beyond(at(last), SIZE_2M)),
    ] {
        let got = GuestRam::new(&host, Order::SIZE_2M, ranges).map(drop);
        assert_eq!(got, Err(error), "{error}");
    }
    let small = Order::new(4).unwrap();
    let got = GuestRam::new(&host, small, &[page(0)]).map(drop);
    assert_eq!(got, Err(GuestError::Order(small)));
    assert_eq!(books(&host, Order::SIZE_2M), before);
}

/// The second of two ranges finds the pool empty: the first one's pages are back.
#[test]
fn a_pool_that_is_too_small_loses_nothing() {
    let machine = machine(Bytes::new(64 << 20));
    let host = host(&machine, Order::SIZE_2M, 3);
    let before = books(&host, Order::SIZE_2M);
    let got = GuestRam::new(&host, Order::SIZE_2M, &ranges(3)).map(drop);
    assert!(matches!(got, Err(GuestError::Map(MapError::NoHugePages(_)))), "{got:?}");
    assert_eq!(books(&host, Order::SIZE_2M), before);
    host.audit(&[]).unwrap();
}

/// Every allocation on the way fails once.
#[test]
fn a_refused_allocation_leaves_no_trace() {
    let machine = machine(Bytes::new(64 << 20));
    let host = host(&machine, Order::SIZE_2M, 4);
    let before = books(&host, Order::SIZE_2M);
    let mut refused = 0;
    for k in 1.. {
        machine.fault_plan().set(Failing::Kth(k));
        let got = GuestRam::new(&host, Order::SIZE_2M, &ranges(3)).map(drop);
        let hit = machine.fault_plan().refused() > 0;
        machine.fault_plan().set(Failing::Nothing);
        assert_eq!(books(&host, Order::SIZE_2M), before, "k = {k}: {got:?}");
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

#[test]
fn a_page_of_1_gib() {
    let machine = machine(Bytes::new(3 << 30));
    let host = host(&machine, Order::SIZE_1G, 1);
    let before = books(&host, Order::SIZE_1G);
    let guest =
        GuestRam::new(&host, Order::SIZE_1G, &[(GuestAddress(HIGH), Bytes::SIZE_1G)]).unwrap();
    assert_eq!(guest.num_regions(), 1);
    let last = GuestAddress(HIGH + Bytes::SIZE_1G.get() - 5);
    guest.write_slice(b"ends", last).unwrap();
    let mut read = [0; 4];
    guest.read_slice(&mut read, last).unwrap();
    assert_eq!(&read, b"ends");
    drop(guest);
    assert_eq!(books(&host, Order::SIZE_1G), before);
}

/// Devices have threads of their own.
#[test]
fn threads_share_it() {
    fn shared<T: Send + Sync>(_: &T) {}
    let machine = machine(Bytes::new(64 << 20));
    let host = host(&machine, Order::SIZE_2M, 1);
    let guest = GuestRam::new(&host, Order::SIZE_2M, &[(GuestAddress(0), SIZE_2M)]).unwrap();
    shared(&guest);
}
