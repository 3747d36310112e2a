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

const MEGA: Bytes = Bytes::MEGA;
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
        (GuestAddress(HOLE - pages * MEGA.get()), Bytes::new(pages * MEGA.get())),
        (GuestAddress(HIGH), MEGA),
    ]
}
/// Free pages of the pool, promised ones, free frames.
fn books(host: &Host<'_>, order: Order) -> (u64, u64, Pages) {
    let pool = host.pool(order).unwrap();
    (pool.free_hugepages, pool.resv_hugepages, host.memory().free)
}

#[test]
fn every_byte_is_where_it_was_written() {
    let machine = machine(Bytes::new(64 << 20));
    let host = host(&machine, Order::MEGA, 8);
    let before = books(&host, Order::MEGA);
    let guest = GuestRam::new(&host, Order::MEGA, &ranges(3)).unwrap();
    assert_eq!((guest.num_regions(), books(&host, Order::MEGA).0), (4, 4));
    let low = HOLE - 3 * MEGA.get();

    // One word in each 4 KiB, and a buffer over each edge of a page.
    let words = |guest: &GuestRam<'_, '_, Sim, X86_64<4>>, write: bool| {
        for at in (low..HOLE).chain(HIGH..HIGH + MEGA.get()).step_by(4096) {
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
    for edge in [low + MEGA.get(), low + 2 * MEGA.get()] {
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
    assert_eq!(books(&host, Order::MEGA), before);
    host.audit(&[]).unwrap();
    assert_eq!(machine.finish(), []);
}

#[test]
fn addresses_outside_are_refused() {
    let machine = machine(Bytes::new(64 << 20));
    let host = host(&machine, Order::MEGA, 4);
    let guest = GuestRam::new(&host, Order::MEGA, &ranges(3)).unwrap();
    let low = HOLE - 3 * MEGA.get();
    for (at, bytes) in
        [(0, 1), (low - 1, 2), (HOLE, 1), (HIGH - 1, 1), (HIGH + MEGA.get(), 1), (u64::MAX, 1)]
    {
        assert!(guest.write_slice(&vec![1; bytes], GuestAddress(at)).is_err(), "{at:#x}");
    }
    // The hole is not jumped over, and the last byte is the last.
    assert!(!GuestMemory::check_range(&guest, GuestAddress(HOLE - 1), 2, Permissions::Write));
    assert!(guest.write_slice(&[1], GuestAddress(HIGH + MEGA.get() - 1)).is_ok());
    assert!(guest.find_region(GuestAddress(HOLE)).is_none());
    let page = guest.find_region(GuestAddress(HIGH)).unwrap();
    assert!(page.get_slice(vm_memory::MemoryRegionAddress(1), MEGA.get() as usize).is_err());
    assert!(page.get_slice(vm_memory::MemoryRegionAddress(u64::MAX), 2).is_err());
    assert!(page.get_host_address(vm_memory::MemoryRegionAddress(MEGA.get())).is_err());
    assert!(page.get_host_address(vm_memory::MemoryRegionAddress(MEGA.get() - 1)).is_ok());
}

#[test]
fn ranges_that_are_none_are_named() {
    let machine = machine(Bytes::new(64 << 20));
    let host = host(&machine, Order::MEGA, 8);
    let before = books(&host, Order::MEGA);
    let at = GuestAddress;
    let page = |start| (at(start), MEGA);
    let last = 0u64.wrapping_sub(MEGA.get());
    for (ranges, error) in [
        (&[][..], GuestError::Empty),
        (&[(at(0), Bytes::new(0))], GuestError::Empty),
        (&[(at(4096), MEGA)], GuestError::Misaligned(at(4096), MEGA, Order::MEGA)),
        (&[(at(0), Bytes::new(1))], GuestError::Misaligned(at(0), Bytes::new(1), Order::MEGA)),
        (&[page(0), page(0)], GuestError::Overlap(at(MEGA.get()), at(0))),
        (&[page(HIGH), page(0)], GuestError::Overlap(at(HIGH + MEGA.get()), at(0))),
        (&[page(last)], GuestError::Beyond(at(last), MEGA)),
    ] {
        let got = GuestRam::new(&host, Order::MEGA, ranges).map(drop);
        assert_eq!(got, Err(error), "{error}");
    }
    let small = Order::new(4).unwrap();
    let got = GuestRam::new(&host, small, &[page(0)]).map(drop);
    assert_eq!(got, Err(GuestError::Order(small)));
    assert_eq!(books(&host, Order::MEGA), before);
}

/// The second of two ranges finds the pool empty: the first one's pages are back.
#[test]
fn a_pool_that_is_too_small_loses_nothing() {
    let machine = machine(Bytes::new(64 << 20));
    let host = host(&machine, Order::MEGA, 3);
    let before = books(&host, Order::MEGA);
    let got = GuestRam::new(&host, Order::MEGA, &ranges(3)).map(drop);
    assert!(matches!(got, Err(GuestError::Map(MapError::NoHugePages(_)))), "{got:?}");
    assert_eq!(books(&host, Order::MEGA), before);
    host.audit(&[]).unwrap();
}

/// Every allocation on the way fails once.
#[test]
fn a_refused_allocation_leaves_no_trace() {
    let machine = machine(Bytes::new(64 << 20));
    let host = host(&machine, Order::MEGA, 4);
    let before = books(&host, Order::MEGA);
    let mut refused = 0;
    for k in 1.. {
        machine.fault_plan().set(Failing::Kth(k));
        let got = GuestRam::new(&host, Order::MEGA, &ranges(3)).map(drop);
        let hit = machine.fault_plan().refused() > 0;
        machine.fault_plan().set(Failing::Nothing);
        assert_eq!(books(&host, Order::MEGA), before, "k = {k}: {got:?}");
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
    let host = host(&machine, Order::GIGA, 1);
    let before = books(&host, Order::GIGA);
    let guest = GuestRam::new(&host, Order::GIGA, &[(GuestAddress(HIGH), Bytes::GIGA)]).unwrap();
    assert_eq!(guest.num_regions(), 1);
    let last = GuestAddress(HIGH + Bytes::GIGA.get() - 5);
    guest.write_slice(b"ends", last).unwrap();
    let mut read = [0; 4];
    guest.read_slice(&mut read, last).unwrap();
    assert_eq!(&read, b"ends");
    drop(guest);
    assert_eq!(books(&host, Order::GIGA), before);
}

/// Devices have threads of their own.
#[test]
fn threads_share_it() {
    fn shared<T: Send + Sync>(_: &T) {}
    let machine = machine(Bytes::new(64 << 20));
    let host = host(&machine, Order::MEGA, 1);
    let guest = GuestRam::new(&host, Order::MEGA, &[(GuestAddress(0), MEGA)]).unwrap();
    shared(&guest);
}
