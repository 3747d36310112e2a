//! A machine, a manager and a space for tests of behaviour.
#![allow(unreachable_pub, reason = "what the tests beside it use")]

pub mod beside;
pub mod kernel;
pub mod meddler;
pub mod recorder;
pub mod watch;

use beside::Beside;
use foliant::fault::Orders;
use foliant::manager::Setup;
use foliant::space::{Flags, MapRequest, ObjectId, Place, SpaceId};
use foliant::table::{Attrs, Entry, Paging, X86_64};
use foliant::{Access, Manager, Outcome, Policy};
use foliant_machine::{AnyMachine, Machine, Owner};
use foliant_sim::{Config, Sim};
use foliant_units::{Bytes, Cpu, FrameRange, Order, Va, VaRange};
use meddler::Meddler;
use recorder::Recorder;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use watch::Watch;

/// A manager of a machine of any type: it is compiled once for all of them.
pub type AnyMm<'m, P> = Manager<'m, AnyMachine<'m>, P>;
pub type Mm<'m> = AnyMm<'m, X86_64<4>>;
pub type AuditedMm<'m> = Audited<'m, X86_64<4>>;

pub const MB: u64 = 1 << 20;
pub const GB: u64 = 1 << 30;
pub const PAGE: u64 = 4096;
pub const SIZE_2M: u64 = 2 * MB;
pub const BASE: u64 = 0x10_0000_0000;

pub fn order(n: u8) -> Order {
    Order::new(n).unwrap()
}

/// Folios of 2^`n` pages and single pages, no other size.
pub fn only(n: u8) -> Policy {
    Policy::always(Orders::of(order(n)))
}

pub fn sim(cpus: usize, megabytes: u64) -> Sim {
    Sim::new(Config::seeded(cpus, Bytes::new(megabytes * MB), 1)).unwrap()
}

/// A machine of the tests: the simulator, or one around it.
pub trait Simulated: Machine {
    fn sim(&self) -> &Sim;
}

impl Simulated for Sim {
    fn sim(&self) -> &Sim {
        self
    }
}
macro_rules! simulated {
    ($($machine:ty),*) => {
        $(impl $crate::common::Simulated for $machine {
            fn sim(&self) -> &foliant_sim::Sim {
                &self.sim
            }
        })*
    };
}
pub(crate) use simulated;
simulated!(Beside, Meddler, Recorder, Watch);

/// `machine` without its type, for as long as the program runs.
pub fn untyped<'m>(machine: &'m impl Machine) -> &'m AnyMachine<'m> {
    Box::leak(Box::new(AnyMachine::new(machine)))
}

/// A manager whose test is over when it is dropped: the spaces that live are ended, everything is
/// recounted, and every checker has to be content. So no test has to remember it.
pub struct Audited<'m, P: Paging> {
    mm: AnyMm<'m, P>,
    sim: &'m Sim,
    undone: AtomicBool,
}

impl<P: Paging> Audited<'_, P> {
    /// Says what a test leaves undone on purpose: nothing is looked at in the end.
    pub fn leaves(&self, _what: &str) {
        self.undone.store(true, Ordering::Relaxed);
    }
}

impl<'m, P: Paging> Deref for Audited<'m, P> {
    type Target = AnyMm<'m, P>;

    fn deref(&self) -> &AnyMm<'m, P> {
        &self.mm
    }
}

impl<P: Paging> Drop for Audited<'_, P> {
    fn drop(&mut self) {
        if !*self.undone.get_mut() {
            end(self.sim, &self.mm);
        }
    }
}

/// What ends the test of a manager that hooks of its machine know, so that both stay for as long as
/// the program runs.
pub struct Over(Option<Box<dyn Fn()>>);

impl Over {
    pub fn of<P: Paging>(sim: &'static Sim, mm: &'static AnyMm<'static, P>) -> Over {
        Over(Some(Box::new(|| end(sim, mm))))
    }
    /// Says what a test leaves undone on purpose: nothing is looked at in the end.
    pub fn leaves(mut self, _what: &str) {
        self.0 = None;
    }
}

impl Drop for Over {
    fn drop(&mut self) {
        if let Some(end) = &self.0 {
            end();
        }
    }
}

/// Calls a test on every format, by its own rule for live entries and, on x86-64, by the other.
macro_rules! on_every_format {
    ($test:ident) => {{
        use foliant::table::{Aarch64, Riscv64, X86_64};
        use foliant_sim::{Format, RiscvMode, X86Levels};
        let x86 = Format::X86_64(X86Levels::Four);
        $test::<X86_64<4>>(x86, None);
        $test::<X86_64<4>>(x86, Some(foliant_machine::Replace::BreakBeforeMake));
        $test::<X86_64<5>>(Format::X86_64(X86Levels::Five), None);
        $test::<Aarch64>(Format::Aarch64, None);
        $test::<Riscv64<3>>(Format::Riscv64(RiscvMode::Sv39), None);
        $test::<Riscv64<4>>(Format::Riscv64(RiscvMode::Sv48), None);
    }};
}
pub(crate) use on_every_format;

/// A machine, its manager, and what ends the test.
pub type World<M> = (&'static M, &'static Mm<'static>, Over);

/// Both, for as long as the program runs.
pub fn kept<M: Simulated>(machine: M, policy: Policy) -> World<M> {
    let machine: &'static M = Box::leak(Box::new(machine));
    let memory = machine.sim().config().memory.clone();
    kept_as(machine, &Setup::of(&memory, policy))
}
pub fn kept_as<M: Simulated>(machine: &'static M, setup: &Setup<'_>) -> World<M> {
    let mm: &'static Mm<'static> =
        Box::leak(Box::new(Manager::new(untyped(machine), setup).unwrap()));
    (machine, mm, Over::of(machine.sim(), mm))
}

fn end(sim: &Sim, mm: &AnyMm<'_, impl Paging>) {
    if !std::thread::panicking() {
        let living: Vec<SpaceId> = mm.spaces().collect();
        finish(sim, mm, &living);
    }
}

pub fn manager(sim: &Sim, policy: Policy) -> AuditedMm<'_> {
    manager_on(sim, &sim.config().memory, policy)
}

pub fn manager_on<'m, M: Simulated, P: Paging>(
    machine: &'m M,
    memory: &[FrameRange],
    policy: Policy,
) -> Audited<'m, P> {
    audited(machine, &Setup::of(memory, policy))
}

pub fn audited<'m, M: Simulated, P: Paging>(machine: &'m M, setup: &Setup<'_>) -> Audited<'m, P> {
    let mm = Manager::new(untyped(machine), setup).unwrap();
    Audited { mm, sim: machine.sim(), undone: AtomicBool::new(false) }
}

/// A machine with a hook and its manager.
pub fn meddled(cpus: usize, megabytes: u64, policy: Policy) -> World<Meddler> {
    kept(Meddler::new(sim(cpus, megabytes)), policy)
}

/// A machine with a log and its manager.
pub fn recorded(cpus: usize, megabytes: u64, policy: Policy) -> World<Recorder> {
    kept(Recorder::new(sim(cpus, megabytes)), policy)
}

pub fn range(start: u64, bytes: u64) -> VaRange {
    VaRange::sized(Va::new(start), Bytes::new(bytes)).unwrap()
}

/// So many pages in a row, from the `from`-th behind `BASE` on.
pub fn row(from: u64, count: u64) -> VaRange {
    range(BASE + from * PAGE, count * PAGE)
}

pub fn page(nth: u64) -> VaRange {
    row(nth, 1)
}

/// What the leaf at the nth page behind `BASE` says, if one is there.
pub fn entry(mm: &AnyMm<'_, impl Paging>, id: SpaceId, nth: u64) -> Option<Attrs> {
    mm.with_leaves(id, page(nth), |mut leaves| match leaves.next()?.entry {
        Entry::Leaf { attrs, .. } => Some(attrs),
        _ => None,
    })
    .unwrap()
}

pub fn request(place: Place, bytes: u64, flags: Flags) -> MapRequest {
    MapRequest { place, bytes: Bytes::new(bytes), flags, tag: 0 }
}

/// Maps readable and writable memory at `start`.
pub fn area(mm: &AnyMm<'_, impl Paging>, id: SpaceId, start: u64, bytes: u64) -> VaRange {
    let place = Place::NoReplace(Va::new(start));
    mm.map(id, &request(place, bytes, Flags::READ_WRITE)).unwrap()
}

/// Stores as a program does: faults are handed to the manager.
pub fn store(
    sim: &Sim,
    mm: &AnyMm<'_, impl Paging>,
    id: SpaceId,
    va: u64,
    value: u64,
) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    while sim.user_store(Va::new(va), 8, value).is_err() {
        outcomes.push(mm.fault(id, Va::new(va), Access::Write));
        if let Some(
            Outcome::Refused(_)
            | Outcome::Userfault(_)
            | Outcome::UserfaultWrite(_)
            | Outcome::OutOfMemory
            | Outcome::OverLimit
            | Outcome::NoHugePage(_),
        ) = outcomes.last()
        {
            return outcomes;
        }
        assert!(outcomes.len() < 10, "the store at {va:#x} never gets through: {outcomes:?}");
    }
    outcomes
}

/// Loads as a program does.
pub fn load(sim: &Sim, mm: &AnyMm<'_, impl Paging>, id: SpaceId, va: u64) -> u64 {
    for _ in 0..10 {
        match sim.user_load(Va::new(va), 8) {
            Ok(value) => return value,
            Err(_) => {
                let outcome = mm.fault(id, Va::new(va), Access::Read);
                let never = matches!(outcome, Outcome::Refused(_) | Outcome::NoHugePage(_));
                assert!(!never, "{outcome:?}");
            }
        }
    }
    panic!("the load at {va:#x} never gets through");
}

/// Recounts, and compares tables and records with what is stated.
pub fn recount(sim: &Sim, mm: &AnyMm<'_, impl Paging>, spaces: &[SpaceId]) {
    let audit = mm.audit(spaces).unwrap();
    let stated = |owner| sim.stated_frames(owner).get();
    sim.recount("tables", stated(Owner::Table), audit.tables.get());
    sim.recount("frames of records", stated(Owner::Records), audit.records.get());
}

/// Ends the spaces, and demands that every checker and every counter is content.
pub fn finish(sim: &Sim, mm: &AnyMm<'_, impl Paging>, spaces: &[SpaceId]) {
    recount(sim, mm, spaces);
    for cpu in mm.cpus() {
        sim.on(cpu, || mm.switch(None).unwrap());
    }
    for id in spaces {
        mm.end(*id).unwrap();
    }
    let objects: Vec<ObjectId> = mm.objects().collect();
    objects.into_iter().for_each(|id| mm.end_object(id).unwrap());
    recount(sim, mm, &[]);
    assert_eq!(mm.anonymous().get(), 0);
    let violations = sim.finish();
    assert!(violations.is_empty(), "{violations:#?}");
}

pub fn cpu(n: u16) -> Cpu {
    Cpu(n)
}
