//! A kernel's life through the interface, under the simulator's checkers.
#![allow(unsafe_code)]

use super::sim_table::table;
use super::{Lent, done, refused, well};
use crate::lent::Layout;
use crate::manager::*;
use crate::pool::*;
use crate::space::*;
use crate::status::Status;
use crate::values::*;
use crate::vmalloc::*;
use core::ptr;
use foliant_machine::{Cpus, KernelVa};
use foliant_sim::{Config, Failing, Sim};
use foliant_units::{Bytes, Cpu, Va};

/// A simulated machine with a manager that was made through the interface.
pub(super) struct World {
    pub(super) sim: Sim,
    pub(super) lent: Lent,
    pub(super) manager: *const Manager,
}

impl World {
    pub(super) fn new(config: Config) -> Box<World> {
        World::with(config, |setup| setup)
    }
    /// The same, with a setup that `change` gives.
    fn with(config: Config, change: impl FnOnce(Setup) -> Setup) -> Box<World> {
        let Layout { bytes, align } = foliant_manager_layout();
        assert!(align <= 128);
        let (sim, lent) = (Sim::new(config).unwrap(), Lent::of(bytes));
        let mut world = Box::new(World { sim, lent, manager: ptr::null() });
        let memory: Vec<Range> = world.sim.config().memory.iter().map(Range::of).collect();
        let reserved = [Range { first: memory[0].first + 0x80, pages: 16 }];
        let setup = change(Setup {
            memory: memory.as_ptr(),
            memory_count: memory.len(),
            reserved: reserved.as_ptr(),
            reserved_count: 1,
            sizes_always: 1 << 9 | 1 << 4,
            ..Setup::NOTHING
        });
        let (table, at) = (table(&world.sim), world.lent.at());
        world.manager = done(|place, why| {
            // SAFETY: lent memory, and a table that leads to the machine beside it.
            unsafe { foliant_manager_new(at, bytes, Some(&table), Some(&setup), place, why) }
        });
        for cpu in 1..world.sim.count() {
            let mm = world.mm();
            world.sim.on(Cpu(cpu as u16), || well(|why| foliant_manager_online(mm, why)));
        }
        world
    }
    pub(super) fn mm(&self) -> Option<&Manager> {
        // SAFETY: made in memory that the world has.
        Some(unsafe { &*self.manager })
    }
    pub(super) fn count(&self, name: &core::ffi::CStr) -> u64 {
        done(|place, why| {
            // SAFETY: a text of this test.
            unsafe { foliant_manager_count(self.mm(), name.as_ptr(), place, why) }
        })
    }
    fn memory(&self) -> Memory {
        done(|place, why| foliant_manager_memory(self.mm(), place, why))
    }
    fn store(&self, space: Space, va: u64, word: u64) {
        while self.sim.user_store(Va::new(va), 8, word).is_err() {
            let write = Access::Write as u32;
            let _: Fault =
                done(|place, why| foliant_space_fault(self.mm(), space, va, write, place, why));
        }
    }
    fn load(&self, space: Space, va: u64) -> u64 {
        loop {
            if let Ok(word) = self.sim.user_load(Va::new(va), 8) {
                return word;
            }
            let read = Access::Read as u32;
            well(|why| foliant_space_fault(self.mm(), space, va, read, None, why));
        }
    }
}

const ASKED: MapRequest = MapRequest {
    va: 1 << 30,
    bytes: (4 << 20) + 0x1_0000,
    place: Place::Hint as u32,
    flags: FOLIANT_READ | FOLIANT_WRITE,
    tag: 0,
};

fn round(world: &World) {
    let (sim, mm) = (&world.sim, world.mm());
    let parent: Space = done(|place, why| foliant_space_create(mm, 0, place, why));
    for cpu in [0, 1] {
        sim.on(Cpu(cpu), || well(|why| foliant_space_switch(mm, parent, why)));
    }
    let va: u64 = done(|place, why| foliant_space_map(mm, parent, Some(&ASKED), place, why));
    let last = va + ASKED.bytes - 8;
    sim.on(Cpu(0), || world.store(parent, va, 42));
    sim.on(Cpu(1), || world.store(parent, last, 43));
    let charge: Charge = done(|place, why| foliant_space_charge(mm, parent, place, why));
    assert_eq!((charge.pages, charge.records > 2), (512 + 16, true));

    let child: Space =
        sim.on(Cpu(1), || done(|place, why| foliant_space_fork(mm, parent, place, why)));
    sim.on(Cpu(0), || world.store(parent, va, 44));
    sim.on(Cpu(1), || {
        well(|why| foliant_space_switch(mm, child, why));
        assert_eq!((world.load(child, va), world.load(child, last)), (42, 43));
        let told = refused(Status::Running, |why| foliant_space_end(mm, child, why));
        assert_eq!(told, "CPU 1 still runs the space");
        well(|why| foliant_space_switch(mm, parent, why));
        assert_eq!(world.load(parent, va), 44);
    });
    well(|why| foliant_space_end(mm, child, why));
    refused(Status::NoSpace, |why| foliant_space_switch(mm, child, why));

    let page = 4096;
    well(|why| foliant_space_protect(mm, parent, va, page, FOLIANT_READ, why));
    let write = Access::Write as u32;
    refused(Status::NoRight, |why| foliant_space_fault(mm, parent, va, write, None, why));
    let advice = Advice::PopulateWrite as u32;
    let rest = ASKED.bytes - page;
    well(|why| foliant_space_advise(mm, parent, va + page, rest, advice, why));
    sim.on(Cpu(1), || assert_eq!(world.load(parent, last), 43));
    let _: u64 = done(|place, why| foliant_space_frame(mm, parent, last, place, why));
    sim.on(Cpu(0), || well(|why| foliant_space_unmap(mm, parent, va, ASKED.bytes, why)));
    assert!(sim.on(Cpu(1), || sim.user_load(Va::new(last), 8)).is_err());
    refused(Status::NotMapped, |why| {
        foliant_space_frame(mm, parent, last, Some(&mut core::mem::MaybeUninit::uninit()), why)
    });
    for cpu in [0, 1] {
        sim.on(Cpu(cpu), || well(|why| foliant_space_switch(mm, Space::default(), why)));
    }
    well(|why| foliant_space_end(mm, parent, why));

    let request = VmallocRequest {
        bytes: (2 << 20) + 8192,
        largest: LeafLevel::Size_2m as u32,
        ..VmallocRequest::default()
    };
    let va: u64 = done(|place, why| foliant_vmalloc(mm, Some(&request), place, why));
    let small: u64 = done(|place, why| {
        let code = VmallocRequest {
            bytes: 1,
            rights: FOLIANT_READ | FOLIANT_EXEC,
            is_zeroed: 1,
            is_unguarded: 1,
            align: 1 << 16,
            ..VmallocRequest::default()
        };
        foliant_vmalloc(mm, Some(&code), place, why)
    });
    assert_eq!((world.count(c"nr_vmalloc_pages"), small % (1 << 16)), (512 + 2 + 1, 0));
    // SAFETY: mapped, and nobody uses it.
    assert_eq!(unsafe { sim.kernel_load(Va::new(small)) }, Ok(0));
    // SAFETY: the store is refused, as the memory is for code.
    assert!(unsafe { sim.kernel_store(Va::new(small), 1) }.is_err());
    well(|why| foliant_vfree(mm, va, why));
    refused(Status::Freed, |why| foliant_vfree(mm, va, why));
    well(|why| foliant_vfree_later(mm, small, why));
    let device: u64 = done(|place, why| foliant_ioremap(mm, 4 << 30, 100, 7, place, why));
    well(|why| foliant_iounmap(mm, device, why));
    let purged: u64 = done(|place, why| foliant_vmalloc_purge(mm, place, why));
    assert_eq!(purged, (512 + 2 + 1) + 1 + (1 + 1));

    let block: u64 = done(|place, why| foliant_manager_lend(mm, 3, place, why));
    let told = refused(Status::WrongOrder, |why| foliant_manager_take_back(mm, block, 2, why));
    assert!(told.contains("block of order 3"), "{told}");
    well(|why| foliant_manager_take_back(mm, block, 3, why));
    let resized: Resized = done(|place, why| foliant_pool_resize(mm, 9, 3, place, why));
    assert_eq!(resized, Resized { reached: 3, end: PoolEnd::Reached });
    let resized: Resized = done(|place, why| foliant_pool_resize(mm, 18, 1, place, why));
    assert_eq!(resized, Resized { reached: 0, end: PoolEnd::NoMemory });
    let pool: Pool = done(|place, why| foliant_pool_counters(mm, 9, place, why));
    assert_eq!((pool.pages, pool.free, pool.reserved, pool.surplus), (3, 3, 0, 0));
    let _: Resized = done(|place, why| foliant_pool_resize(mm, 9, 0, place, why));
    well(|why| foliant_manager_drain(mm, 1, why));
}

#[test]
fn a_kernel_lives_under_the_checkers() {
    for seed in 0..4 {
        let world = World::new(Config::seeded(2, Bytes::new(64 << 20), seed));
        round(&world);
        let before = world.memory();
        round(&world);
        let after = world.memory();
        assert_eq!((after.free, after.anonymous), (before.free, 0));
        assert_eq!(world.count(c"nr_vmalloc_pages"), 0);
        assert_eq!(world.sim.finish(), []);
    }
}

#[test]
fn a_setup_is_taken_as_it_is_given() {
    let (at, bytes) = (0xffff_9000_0000_0000, 1 << 39);
    let config = || Config::seeded(1, Bytes::new(64 << 20), 8);
    let world = World::with(config(), |setup| Setup {
        vmalloc_va: at,
        vmalloc_bytes: bytes,
        sizes_always: 0,
        sizes_asked: 1 << 4,
        is_folding: 1,
        pages_2m: 2,
        areas_max: 1,
        ..setup
    });
    let mm = world.mm();
    let reserved = world.sim.config().memory[0].start().get() + 0x80;
    refused(Status::Reserved, |why| foliant_manager_take_back(mm, reserved, 0, why));
    let request = VmallocRequest { bytes: 1, ..VmallocRequest::default() };
    let va: u64 = done(|place, why| foliant_vmalloc(mm, Some(&request), place, why));
    assert_eq!(va, at);
    well(|why| foliant_vfree(mm, va, why));
    let pool: Pool = done(|place, why| foliant_pool_counters(mm, 9, place, why));
    assert_eq!((pool.pages, world.count(c"hugetlb_optimized")), (2, 2));

    let space: Space = done(|place, why| foliant_space_create(mm, 0, place, why));
    let va: u64 = done(|place, why| foliant_space_map(mm, space, Some(&ASKED), place, why));
    let second = MapRequest { tag: 1, ..ASKED };
    refused(Status::Limit, |why| {
        foliant_space_map(
            mm,
            space,
            Some(&second),
            Some(&mut core::mem::MaybeUninit::uninit()),
            why,
        )
    });
    let write = |va| -> Fault {
        let access = Access::Write as u32;
        done(|place, why| foliant_space_fault(mm, space, va, access, place, why))
    };
    assert_eq!(write(va).order, 0, "no size is for all areas");
    let advice = Advice::HugePage as u32;
    well(|why| foliant_space_advise(mm, space, va, ASKED.bytes, advice, why));
    assert_eq!(write(va + (1 << 20)).order, 4);
    let read = Access::Read as u32;
    let zeros: Fault =
        done(|place, why| foliant_space_fault(mm, space, va + (2 << 20), read, place, why));
    assert_eq!(zeros.end, FaultEnd::ZeroPage);
    well(|why| foliant_space_end(mm, space, why));
    assert_eq!(world.sim.finish(), []);
}

/// A table's `refuse` is asked, and what it refuses is told by a code.
#[test]
fn a_refused_allocation_is_told() {
    let world = World::new(Config::seeded(1, Bytes::new(64 << 20), 9));
    world.sim.fault_plan().set(Failing::From(1));
    refused(Status::NoMemory, |why| {
        foliant_manager_lend(world.mm(), 0, Some(&mut core::mem::MaybeUninit::uninit()), why)
    });
    world.sim.fault_plan().set(Failing::Nothing);
    let frame: u64 = done(|place, why| foliant_manager_lend(world.mm(), 0, place, why));
    well(|why| foliant_manager_take_back(world.mm(), frame, 0, why));
}

/// Every name that is listed is counted, and behind the last nothing is.
#[test]
fn counters_have_names() {
    let world = World::new(Config::seeded(1, Bytes::new(64 << 20), 9));
    let mut names = 0;
    for nth in 0.. {
        let mut place = core::mem::MaybeUninit::uninit();
        if foliant_count_name(nth, Some(&mut place)) != Status::Ok {
            assert_eq!(foliant_count_name(nth, Some(&mut place)), Status::NoCounter);
            break;
        }
        // SAFETY: the call went well.
        let name = unsafe { place.assume_init() };
        let _: u64 = done(|place, why| {
            // SAFETY: a text that ends.
            unsafe { foliant_manager_count(world.mm(), name.text.as_ptr(), place, why) }
        });
        names += 1;
    }
    assert_eq!(names, foliant::Event::ALL.len());
}
