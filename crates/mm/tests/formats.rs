//! One life of a program on every page-table format, with the rules that are usual for it and every
//! checker on.

#![allow(unsafe_code)]

use crate::common::*;
use foliant::fault::Orders;
use foliant::frame::Kind;
use foliant::manager::Setup;
use foliant::space::{Advice, Flags, Move, RangeError};
use foliant::table::{Aarch64, Paging, Riscv64, X86_64};
use foliant::vmap::{Request, Rights};
use foliant::{Access, Event, Outcome, Policy};
use foliant_machine::{Around, Invalidation, Reach, Tlb};
use foliant_sim::{Config, Format, RiscvMode, Sim, X86Levels};
use foliant_units::{Bytes, Order, Pages, Va};
use std::collections::BTreeSet;
use std::sync::Mutex;

fn life<P: Paging>(format: Format) {
    let config = Config::seeded(2, Bytes::new(64 * MB), 3).with_format(format);
    let sim = Sim::new(config).unwrap();
    let memory = sim.config().memory.clone();
    let policy = Policy::always(Orders::ANON);
    let setup = Setup::of(&memory, policy);
    let mm: Audited<'_, P> = audited(&sim, &setup);
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    // The user half of Sv39 ends at 256 GiB.
    area(&mm, id, BASE, 4 * MB);
    for page in [0, 1, 511, 512, 600, 1023] {
        store(&sim, &mm, id, BASE + page * 4096, 100 + page);
    }
    mm.protect(id, range(BASE + 4096, 2 * MB - 4096), Flags::READ).unwrap();
    let child = mm.fork(id).unwrap();
    store(&sim, &mm, id, BASE, 1);
    store(&sim, &mm, id, BASE + 600 * 4096, 2);
    mm.switch(Some(child)).unwrap();
    for page in [0, 1, 511, 512, 600, 1023] {
        assert_eq!(load(&sim, &mm, child, BASE + page * 4096), 100 + page, "{format:?}");
    }
    store(&sim, &mm, child, BASE + 1023 * 4096, 3);
    let moved =
        mm.remap(child, range(BASE + 2 * MB, 2 * MB), Bytes::new(3 * MB), Move::MayMove).unwrap();
    assert_eq!(load(&sim, &mm, child, moved.start().get() + 511 * 4096), 3);
    mm.advise(child, range(BASE, 8192), Advice::Free).unwrap();
    mm.advise(child, range(BASE + 4096, 4096), Advice::DontNeed).unwrap();
    assert_eq!(load(&sim, &mm, child, BASE + 4096), 0);
    assert_eq!(load(&sim, &mm, child, BASE), 100);
    mm.switch(Some(id)).unwrap();
    mm.unmap(id, range(BASE + 511 * 4096, 8192)).unwrap();
    assert_eq!(load(&sim, &mm, id, BASE + 600 * 4096), 2);
    mm.protect(id, range(BASE, MB), Flags::READ_WRITE).unwrap();
    store(&sim, &mm, id, BASE + 4096, 9);
    assert_eq!(load(&sim, &mm, id, BASE), 1);
}

/// Pages that are populated together are folios of their own, in no group, and come as far as they
/// may.
fn populate<P: Paging>(format: Format) {
    let sim = Sim::new(Config::seeded(1, Bytes::new(64 * MB), 1).with_format(format)).unwrap();
    let mm: Audited<'_, P> = audited(&sim, &Setup::of(&sim.config().memory, Policy::BASE_ONLY));
    let limit = Pages::new(200);
    let id = mm.create(Some(limit)).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, 2 * MB);
    let populate = |from: u64, pages: u64| {
        mm.advise(id, range(BASE + from * PAGE, pages * PAGE), Advice::PopulateWrite)
    };
    store(&sim, &mm, id, BASE + 9 * PAGE, 7);
    populate(3, 45).unwrap();
    assert_eq!(mm.pages(id), Some(Pages::new(45)));
    assert_eq!(load(&sim, &mm, id, BASE + 9 * PAGE), 7, "what was there stays");
    for nth in 3..48 {
        let va = Va::new(BASE + nth * PAGE);
        assert_eq!(store(&sim, &mm, id, va.get(), nth), [], "{format:?}: page {nth} is there");
        let identity = mm.identity(mm.frame_at(id, va).unwrap());
        assert_eq!((identity.kind(), identity.order()), (Kind::Anon, Order::BASE));
    }
    // Each goes by itself.
    (3..48).step_by(2).for_each(|nth| mm.unmap(id, range(BASE + nth * PAGE, PAGE)).unwrap());
    for nth in (4..48).step_by(2) {
        assert_eq!(load(&sim, &mm, id, BASE + nth * PAGE), nth);
    }
    // The limit is met to the page.
    let room = limit.get() - mm.pages(id).unwrap().get() - mm.records(id).unwrap().get();
    assert_eq!(populate(64, 400), Err(RangeError::OverLimit(limit)));
    let last = Va::new(BASE + (63 + room) * PAGE);
    assert!(mm.frame_at(id, last).is_some(), "{format:?}");
    assert!(mm.frame_at(id, last.add(PAGE)).is_none(), "{format:?}");
}

#[test]
fn populated_pages_are_as_if_each_had_been_touched() {
    populate::<X86_64<4>>(Format::X86_64(X86Levels::Four));
    populate::<Aarch64>(Format::Aarch64);
    populate::<Riscv64<4>>(Format::Riscv64(RiscvMode::Sv48));
}

#[test]
fn x86_64_with_four_and_five_levels() {
    life::<X86_64<4>>(Format::X86_64(X86Levels::Four));
    life::<X86_64<5>>(Format::X86_64(X86Levels::Five));
}

#[test]
fn aarch64_breaks_before_it_makes() {
    life::<Aarch64>(Format::Aarch64);
}

#[test]
fn riscv64_with_three_to_five_levels() {
    life::<Riscv64<3>>(Format::Riscv64(RiscvMode::Sv39));
    life::<Riscv64<4>>(Format::Riscv64(RiscvMode::Sv48));
    life::<Riscv64<5>>(Format::Riscv64(RiscvMode::Sv57));
}

/// Who may fetch instructions from a user's page, and from the kernel's: users, the kernel.
fn fetches<P: Paging>(format: Format, users: Flags, kernels: Rights) -> [[bool; 2]; 2] {
    use foliant_sim::Access::Exec;
    let config = Config::seeded(1, Bytes::new(64 * MB), 3).with_format(format);
    let sim = Sim::new(config).unwrap();
    let mm: Audited<'_, P> = manager_on(&sim, &sim.config().memory, Policy::BASE_ONLY);
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, 4096);
    store(&sim, &mm, id, BASE, 1);
    mm.protect(id, range(BASE, 4096), users).unwrap();
    load(&sim, &mm, id, BASE);
    let request = Request::of(Bytes::new(4096)).with_rights(kernels);
    let code = mm.vmalloc(&request).unwrap().start();
    let fetched = [Va::new(BASE), code]
        .map(|va| [sim.user_touch(va, Exec).is_ok(), sim.kernel_touch(va, Exec).is_ok()]);
    mm.vfree(code).unwrap();
    mm.purge_vmalloc();
    finish(&sim, &mm, &[id]);
    fetched
}

#[test]
fn programs_and_the_kernel_fetch_instructions_from_what_is_theirs() {
    let none = [false, false];
    type Fetches = fn(Flags, Rights) -> [[bool; 2]; 2];
    let fetches: [Fetches; 3] = [
        |users, kernels| fetches::<X86_64<4>>(Format::X86_64(X86Levels::Four), users, kernels),
        |users, kernels| fetches::<Aarch64>(Format::Aarch64, users, kernels),
        |users, kernels| fetches::<Riscv64<4>>(Format::Riscv64(RiscvMode::Sv48), users, kernels),
    ];
    for fetches in fetches {
        let code = fetches(Flags::READ.with(Flags::EXEC), Rights::Code);
        assert_eq!(code, [[true, false], [false, true]]);
        assert_eq!(fetches(Flags::READ, Rights::Data), [none, none]);
        assert_eq!(fetches(Flags::READ_WRITE, Rights::Constant), [none, none]);
    }
}

/// A machine with one CPU that remembers of user addresses that nothing is there, as riscv64
/// without Svvptc may (machine::M2): of the page that a program met, and of those around it.
struct Remembers {
    sim: Sim,
    absent: Mutex<BTreeSet<u64>>,
    /// Whether an invalidation ends that.
    ends: bool,
}

simulated!(Remembers);
// SAFETY: memory is the inner machine's.
unsafe impl Around for Remembers {
    type Inner = Sim;

    fn inner(&self) -> &Sim {
        &self.sim
    }
    fn invalidate(&self, what: &Invalidation) {
        Tlb::invalidate(&self.sim, what);
        let ended = |page: u64| {
            let covers = |item: &foliant_machine::Item| item.range.contains(Va::new(page));
            what.reach() == Reach::All || what.items().iter().any(covers)
        };
        self.absent.lock().unwrap().retain(|page| !(self.ends && ended(*page)));
    }
}

impl Remembers {
    /// A program's access of a page.
    fn touch(&self, page: u64, access: foliant_sim::Access) -> bool {
        let mut absent = self.absent.lock().unwrap();
        if absent.contains(&page) {
            return false;
        }
        let Err(fault) = self.sim.user_touch(Va::new(page), access) else { return true };
        if !fault.present {
            let around = (page - 8 * 4096..=page + 8 * 4096).step_by(4096);
            let is_absent =
                |at: &u64| self.sim.user_touch(Va::new(*at), foliant_sim::Access::Read).is_err();
            absent.extend(around.filter(is_absent));
        }
        false
    }
}

/// How each page of an area is reached for the first time, by a read or a write: the outcomes of
/// its faults.
fn first_touches(policy: Policy, ends: bool, write: impl Fn(u64) -> bool) -> Vec<Vec<Outcome>> {
    let sv48 = Format::Riscv64(RiscvMode::Sv48);
    let config = Config::seeded(1, Bytes::new(64 * MB), 7).with_format(sv48);
    let sim = Sim::new(config).unwrap();
    let machine = Remembers { sim, absent: Mutex::default(), ends };
    let memory = machine.sim.config().memory.clone();
    let setup = Setup::of(&memory, policy);
    let mm: Audited<'_, Riscv64<4>> = audited(&machine, &setup);
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, 4 * MB);
    let reach = |page: u64| {
        let va = BASE + page * 4096;
        let (access, wanted) = match write(page) {
            true => (foliant_sim::Access::Write, Access::Write),
            false => (foliant_sim::Access::Read, Access::Read),
        };
        let mut outcomes = Vec::new();
        while outcomes.len() < 10 && !machine.touch(va, access) {
            outcomes.push(mm.fault(id, Va::new(va), wanted));
        }
        outcomes
    };
    let all: Vec<_> = (0..1024).map(reach).collect();
    let spurious = all.iter().flatten().filter(|outcome| **outcome == Outcome::Spurious).count();
    assert_eq!(mm.total(Event::Spurious), spurious as u64);
    finish(&machine.sim, &mm, &[id]);
    all
}

/// "Not present is never cached" does not hold everywhere. Where it does not, an access faults
/// again although the entry is there by now; the fault path ends that on its CPU, and one fault
/// more is the whole price.
#[test]
fn finding_r11_an_absence_that_is_remembered_costs_one_fault() {
    let even = |page| page % 2 == 0;
    for policy in [Policy::BASE_ONLY, Policy::always(Orders::ANON)] {
        let all = first_touches(policy, true, even);
        assert!(all.iter().all(|outcomes| outcomes.len() <= 2), "{all:?}");
        let again = all.iter().filter(|outcomes| outcomes.contains(&Outcome::Spurious)).count();
        assert!(again > 0, "no absence was remembered: {policy:?}");
        let last = |outcomes: &&Vec<Outcome>| outcomes.last() == Some(&Outcome::Spurious);
        assert_eq!(all.iter().filter(last).count(), again, "a fault that is spurious is the last");
        // A machine on which nothing ends it: no access gets through.
        let never = first_touches(policy, false, even);
        assert!(never[0].len() == 10, "{:?}", never[0]);
    }
}
