//! The machine without privileges: its settings, its memory, its clock.
#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code)]

mod common;

use common::{Program, YIELDS, machine, settings};
use core::ptr::NonNull;
use foliant_machine::{Accessed, Caching, Clock, Cpus, Faults, Machine, PhysMem, Replace, Tlb};
use foliant_units::{Bytes, CPUS_MAX, Cpu, CpuSet, Pa, Va};
use foliant_x86::{Apic, ApicId, Clear, ClearPlan, Features, Line, Settings, SetupError, X86};

fn listed(apic_ids: &[ApicId]) -> Settings<'_> {
    Settings { apic_ids, ..settings() }
}

fn listed_in_memory(apic_ids: &[ApicId]) -> Settings<'_> {
    Settings { apic: window(0xfee0_0000), ..listed(apic_ids) }
}

/// Whether `settings` are refused, and how.
fn refused(settings: Settings<'_>, lines: &[Line]) -> Option<SetupError> {
    let error = X86::new(Program, settings, lines).err();
    if let Some(error) = error {
        assert!(error.to_string().contains(": "), "{error} says no way out");
    }
    error
}

fn window(address: usize) -> Apic {
    Apic::X1(NonNull::new(address as *mut u8).unwrap())
}

#[test]
fn settings_that_cannot_work_are_refused_by_name() {
    let lines = [const { Line::new() }; 3];
    let good = settings();
    assert_eq!(refused(good, &lines), None);
    for vector in [32, 0xfe] {
        assert_eq!(refused(Settings { vector, ..good }, &lines), None);
    }
    for vector in [0, 14, 31, 0xff] {
        let error = refused(Settings { vector, ..good }, &lines);
        assert_eq!(error, Some(SetupError::Vector { vector }));
    }
    let va = Va::new(0xffff_8000_0000_0800);
    let error = refused(Settings { direct_map: va, ..good }, &lines);
    assert_eq!(error, Some(SetupError::DirectMap { va }));
    for clear in [Clear::StoreB, Clear::ClZero] {
        let error = refused(
            Settings { clear: ClearPlan { non_temporal: clear, ..good.clear }, ..good },
            &lines,
        );
        assert_eq!(error, Some(SetupError::Clear { clear }));
    }
    let error = refused(Settings { features: Features::BASELINE, ..good }, &lines);
    assert_eq!(error, Some(SetupError::NoX2Apic));
    let error = refused(Settings { apic: window(0xfee0_0010), ..good }, &lines);
    assert_eq!(error, Some(SetupError::ApicWindow { va: Va::new(0xfee0_0010) }));
}

#[test]
fn cpus_are_counted_and_told_apart() {
    let lines = [const { Line::new() }; 3];
    assert_eq!(refused(listed(&[]), &lines), Some(SetupError::NoCpu));
    let four = [0, 1, 2, 3].map(ApicId);
    let error = refused(listed(&four), &lines);
    assert_eq!(error, Some(SetupError::TooFewLines { lines: 3, cpus: 4 }));
    let many: Vec<ApicId> = (0..=CPUS_MAX as u32).map(ApicId).collect();
    let error = refused(listed(&many), &lines);
    assert_eq!(error, Some(SetupError::TooManyCpus { cpus: CPUS_MAX + 1 }));
    let error = refused(listed(&many[..CPUS_MAX]), &lines);
    assert_eq!(error, Some(SetupError::TooFewLines { lines: 3, cpus: CPUS_MAX }));
    let error = refused(listed(&[ApicId(4), ApicId(5), ApicId(4)]), &lines);
    assert_eq!(error, Some(SetupError::SharedApicId { first: Cpu(0), second: Cpu(2) }));

    let (high, everybody) = (ApicId(0xff), ApicId(u32::MAX));
    let out_of_range = |cpu, id| Some(SetupError::ApicIdRange { cpu: Cpu(cpu), id });
    assert_eq!(refused(listed(&[ApicId(0), high]), &lines), None);
    assert_eq!(refused(listed(&[ApicId(0), everybody]), &lines), out_of_range(1, everybody));
    assert_eq!(refused(listed_in_memory(&[ApicId(0xfe)]), &lines), None);
    assert_eq!(refused(listed_in_memory(&[high]), &lines), out_of_range(0, high));
}

#[test]
fn it_is_a_machine() {
    fn whole<M: Machine + Send>(machine: &M) -> usize {
        machine.count()
    }
    let lines = [const { Line::new() }; 5];
    let machine = machine(settings(), &lines);
    assert_eq!(whole(&machine), 1, "lines beyond the CPUs are not CPUs");
    assert_eq!(machine.pinned(|outer| machine.pinned(|inner| (outer, inner))), (Cpu(0), Cpu(0)));
    let rules = machine.rules();
    assert_eq!((rules.replace, rules.accessed), (Replace::InPlace, Accessed::SetBeforeCached));
    assert_eq!(rules.faults, Faults::EndTranslation);
    machine.relax();
    let before = machine.now();
    machine.yield_now();
    assert_eq!(YIELDS.get(), 1, "it is the program that yields");
    assert!(machine.now() >= before);
}

/// No privileged instruction runs where no CPU is to be asked: this test has no privileges.
#[test]
fn asking_nobody_costs_nothing() {
    let lines = [const { Line::new() }; 1];
    let machine = machine(settings(), &lines);
    let what = foliant_machine::Invalidation::all(foliant_machine::Scope::Kernel);
    for cpus in [CpuSet::EMPTY, CpuSet::first(1), CpuSet::first(CPUS_MAX)] {
        machine.wait(machine.ask(&cpus, &what));
    }
}

/// Sixteen frames, and the direct map, starting at `base`, that they are in.
struct Frames {
    memory: Box<[Page]>,
    base: Va,
}

#[repr(align(4096))]
#[derive(Clone)]
struct Page([u8; 4096]);

impl Frames {
    fn new(base: Va) -> Frames {
        Frames { memory: vec![Page([0xee; 4096]); 16].into_boxed_slice(), base }
    }
    fn pa(&self) -> Pa {
        Pa::new((self.memory.as_ptr() as u64).wrapping_sub(self.base.get()))
    }
    fn bytes(&self) -> Vec<u8> {
        self.memory.iter().flat_map(|page| page.0).collect()
    }
}

#[test]
fn memory_is_reached_through_the_direct_map() {
    let lines = [const { Line::new() }; 1];
    let features = Features { x2apic: true, ..Features::detect() };
    // Each base is where physical address 0 appears. The last one lies above the memory, so that
    // addresses wrap.
    for (base, clear) in [0, 4096, 0xffff_8000_0000_0000].into_iter().zip([
        Clear::StoreQ,
        Clear::Past16,
        Clear::Store16,
    ]) {
        let direct_map = Va::new(base);
        let machine = machine(
            Settings { direct_map, clear: ClearPlan::only(clear), features, ..settings() },
            &lines,
        );
        let (source, target) = (Frames::new(direct_map), Frames::new(direct_map));
        let (at, bytes) = (source.pa(), Bytes::new(4096));
        // SAFETY: frames of this test; so for all below.
        unsafe { machine.clear(at, bytes, Caching::Cached) };
        // SAFETY: as above.
        unsafe { machine.store(at.add(8), 5) };
        // SAFETY: as above.
        let exchange = |old, new| unsafe { machine.compare_exchange(at.add(8), old, new) };
        assert_eq!((exchange(4, 6), exchange(5, 6)), (Err(5), Ok(5)));
        // SAFETY: as above.
        assert_eq!(unsafe { machine.load(at.add(8)) }, 6);
        // SAFETY: as above.
        let reached = unsafe { machine.reach(at, bytes) };
        assert_eq!(reached.as_ptr() as *const Page, source.memory.as_ptr());
        // SAFETY: as above.
        unsafe { machine.copy(at, target.pa().add(64), Bytes::new(4096 + 64)) };
        let mut want = vec![0xee; 16 * 4096];
        want[64..64 + 4096].fill(0);
        want[64 + 8] = 6;
        assert!(target.bytes() == want, "{clear:?} at {direct_map}");
        want = vec![0xee; 16 * 4096];
        want[..4096].fill(0);
        want[8] = 6;
        assert!(source.bytes() == want, "{clear:?} at {direct_map}");
    }
}
