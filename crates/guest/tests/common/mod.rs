//! Pools on simulated machines, and guests of both kinds.
#![allow(unsafe_code, dead_code, reason = "each test uses some; a file's frames are vouched for")]

use foliant::manager::Setup;
use foliant::pool::Budget;
use foliant::{Manager, Policy, table::X86_64};
use foliant_guest::{FrameFile, GuestError, GuestRam};
use foliant_sim::{Backing, Config, Sim};
use foliant_units::{Bytes, Order, Pages};
use vm_memory::GuestAddress;

pub(crate) type Host<'m> = Manager<'m, Sim, X86_64<4>>;
pub(crate) type Ram<'a, 'm, B = ()> = GuestRam<'a, 'm, Sim, X86_64<4>, B>;

pub(crate) const SIZE_2M: Bytes = Bytes::SIZE_2M;
pub(crate) const PAGE: u64 = SIZE_2M.get();

/// How a guest's memory is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Direct,
    InView,
}

pub(crate) const KINDS: [Kind; 2] = [Kind::Direct, Kind::InView];

impl Kind {
    pub(crate) fn machine(self, config: Config) -> Sim {
        let backing = match self {
            Kind::Direct => Backing::Whole,
            Kind::InView => Backing::File,
        };
        Sim::new(Config { backing, ..config }).unwrap()
    }
    pub(crate) fn small(self) -> Sim {
        self.machine(Config::seeded(2, Bytes::new(64 << 20), 1))
    }
    pub(crate) fn guest<'a, 'm>(
        self,
        host: &'a Host<'m>,
        order: Order,
        ranges: &[(GuestAddress, Bytes)],
    ) -> Result<Ram<'a, 'm>, GuestError> {
        match self {
            Kind::Direct => GuestRam::new(host, order, ranges),
            Kind::InView => GuestRam::in_file(host, &file(host.machine()), order, ranges),
        }
    }
}

/// The file of a machine that has one.
pub(crate) fn file(machine: &Sim) -> FrameFile {
    let (file, first) = machine.memory_file().unwrap();
    // SAFETY: the machine maps its memory from there, shared.
    unsafe { FrameFile::new(file, first) }
}

pub(crate) fn host(machine: &Sim, order: Order, pages: u64) -> Host<'_> {
    let setup = Setup::of(&machine.config().memory, Policy::BASE_ONLY);
    let host: Host<'_> = Manager::new(machine, &setup).unwrap();
    host.describe_all().unwrap();
    assert_eq!(host.resize_pool(order, pages, Budget::ALL).unwrap().reached, pages);
    host
}

/// `pages` of 2 MiB from `at` on.
pub(crate) fn range(at: u64, pages: u64) -> (GuestAddress, Bytes) {
    (GuestAddress(at), Bytes::new(pages * PAGE))
}

/// Free pages of the pool, reserved ones, free frames.
pub(crate) fn books(host: &Host<'_>, order: Order) -> (u64, u64, Pages) {
    let pool = host.pool(order).unwrap();
    (pool.free_hugepages, pool.resv_hugepages, host.memory().free)
}

/// Guests of a page each, of which every other one is gone again: the pool's free pages have no
/// neighbours.
pub(crate) fn scatter<'a, 'm>(host: &'a Host<'m>) -> Vec<Ram<'a, 'm>> {
    let pages = host.pool(Order::SIZE_2M).unwrap().free_hugepages;
    let one = |_| GuestRam::new(host, Order::SIZE_2M, &[range(0, 1)]).unwrap();
    let mut all: Vec<Ram<'a, 'm>> = (0..pages).map(one).collect();
    all.sort_by_key(|guest| {
        use vm_memory::GuestMemoryBackend;
        guest.iter().next().unwrap().frame(vm_memory::MemoryRegionAddress(0))
    });
    let mut nth = 0;
    all.retain(|_| {
        nth += 1;
        nth % 2 == 0
    });
    all
}
