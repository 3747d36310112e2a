//! Each checker finds the mistake that it is there for, and none finds anything in a clean history.
#![allow(unsafe_code)]

mod common;

use common::*;
use foliant_machine::{
    Caching, Invalidation, Kept, KernelVa, Owner, PhysMem, Refusal, Retired, Scope, Tables, Tlb,
    Witness,
};
use foliant_sim::{Access, CHECKERS, Config, Failing, Format, Sim, Violation};
use foliant_units::{Bytes, Cpu, CpuSet, Frame, FrameRange, Pa, Pages, Va, VaRange};

const ROOT: u64 = 0x10_0000;
const USER: u64 = 0x40_0000;
const VA: u64 = 0x7000_0000;
const CPUS: usize = 3;

fn frames(pa: u64, n: u64) -> FrameRange {
    FrameRange::new(Pa::new(pa).frame(), Pages::new(n)).unwrap()
}

fn clear(sim: &Sim, pa: u64, bytes: u64) {
    // SAFETY: the test owns the memory of its machine.
    unsafe { sim.clear(Pa::new(pa), Bytes::new(bytes), Caching::Cached) };
}

/// What goes wrong in an otherwise clean history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wrong {
    Nothing,
    NoFlush,
    NoRemoteFlush,
    NoWait,
    FreedWhileMapped,
    NotZeroed,
    HalfZeroed,
    TwoOwners,
    ClaimedTwice,
    FreedTwice,
    NotMemory,
    UsedWhileFree,
    Kept,
    TableFreedEarly,
    RootFreed,
    LiveReplaced,
    MadeBeforeFlush,
    Miscounted,
}

/// A history of one frame's life, twice, on a machine of three CPUs.
fn history(wrong: Wrong, format: Format) -> Vec<&'static str> {
    let mut config = Config::seeded(CPUS, Bytes::new(16 << 20), 1).with_format(format);
    config.chance.interrupt = 0;
    let sim = Sim::new(config).unwrap();
    sim.owned(frames(ROOT, 0xf00), Owner::Free);
    let tables = u64::from(format.levels());
    sim.owned(frames(ROOT, tables), Owner::Table);
    clear(&sim, ROOT, tables * 4096);
    let word = chain(&sim, ROOT, VA, 0);
    let leaf = |pa| leaf_word(format, 0, pa, Right::Writable, 1);
    (0..CPUS as u16).for_each(|cpu| run(&sim, cpu, ROOT));
    let touch = |cpu, access| sim.on(Cpu(cpu), || sim.user_touch(Va::new(VA), access));
    let flush = || {
        let what = one(Scope::Space(Pa::new(ROOT)), VA, 0, Tables::Kept);
        if wrong == Wrong::NoFlush {
            return;
        }
        sim.invalidate(&what);
        if wrong == Wrong::NoRemoteFlush {
            return;
        }
        let ticket = sim.ask(&CpuSet::first(CPUS), &what);
        if wrong != Wrong::NoWait {
            sim.wait(ticket);
        }
    };
    for round in 0..2 {
        sim.owned(frames(USER, 1), Owner::Claimed);
        if wrong == Wrong::ClaimedTwice {
            sim.owned(frames(USER, 1), Owner::Claimed);
        }
        match wrong {
            Wrong::NotZeroed => {}
            Wrong::HalfZeroed => clear(&sim, USER, 2048),
            _ => {
                clear(&sim, USER, 1024);
                clear(&sim, USER + 1024, 3072);
            }
        }
        sim.owned(frames(USER, 1), Owner::User);
        put(&sim, word, leaf(USER));
        touch(0, Access::Write).unwrap();
        touch(1, Access::Read).unwrap();
        if wrong == Wrong::TwoOwners {
            sim.owned(frames(USER, 1), Owner::Table);
        }
        if wrong == Wrong::LiveReplaced && round == 1 {
            put(&sim, word, leaf(USER + 4096));
        }
        if wrong != Wrong::FreedWhileMapped {
            put(&sim, word, 0);
        }
        if wrong == Wrong::MadeBeforeFlush {
            put(&sim, word, leaf(USER + 4096));
            put(&sim, word, 0);
        }
        flush();
        if wrong == Wrong::Kept && round == 1 {
            break;
        }
        sim.owned(frames(USER, 1), Owner::Free);
    }
    match wrong {
        Wrong::FreedTwice => sim.owned(frames(USER, 2), Owner::Free),
        Wrong::NotMemory => sim.owned(frames(64 << 20, 1), Owner::Free),
        Wrong::UsedWhileFree => clear(&sim, USER + 4096, 64),
        Wrong::TableFreedEarly => {
            let (base, upper) = (word & !0xfff, (word & !0xfff) - 4096);
            put(&sim, upper + (VA >> 21 & 511) * 8, 0);
            flush();
            sim.owned(frames(base, 1), Owner::Free);
        }
        Wrong::RootFreed => sim.owned(frames(ROOT, 1), Owner::Free),
        Wrong::Miscounted => sim.recount("pages", 3, 4),
        _ => {}
    }
    sim.recount("free", 0xf00 - tables, 0xf00 - tables);
    sim.invalidate(&Invalidation::all(Scope::Space(Pa::new(ROOT))));
    sim.finish().iter().inspect(|v| println!("{wrong:?}: {v}")).map(|v| v.checker).collect()
}

const X86: Format = Format::X86_64(foliant_sim::X86Levels::Four);

#[test]
fn a_clean_history_has_no_violation_in_any_format() {
    for format in [X86, Format::Aarch64, Format::Riscv64(foliant_sim::RiscvMode::Sv39)] {
        assert!(history(Wrong::Nothing, format).is_empty(), "{format:?}");
    }
}

#[test]
fn every_mistake_is_found_by_the_checker_that_is_named_for_it() {
    for (wrong, format, checker) in [
        (Wrong::NoFlush, X86, "no_stale_translation"),
        (Wrong::NoRemoteFlush, X86, "no_stale_translation"),
        (Wrong::NoWait, X86, "no_stale_translation"),
        (Wrong::NoWait, X86, "quiescent"),
        (Wrong::FreedWhileMapped, X86, "no_stale_translation"),
        (Wrong::TableFreedEarly, X86, "no_stale_translation"),
        (Wrong::RootFreed, X86, "no_stale_translation"),
        (Wrong::NotZeroed, X86, "zeroed_before_user"),
        (Wrong::HalfZeroed, X86, "zeroed_before_user"),
        (Wrong::TwoOwners, X86, "no_shared_owner"),
        (Wrong::ClaimedTwice, X86, "no_shared_owner"),
        (Wrong::FreedTwice, X86, "frames_conserved"),
        (Wrong::NotMemory, X86, "frames_conserved"),
        (Wrong::UsedWhileFree, X86, "frames_conserved"),
        (Wrong::Kept, X86, "quiescent"),
        (Wrong::Miscounted, X86, "counters_recount"),
        (Wrong::LiveReplaced, Format::Aarch64, "bbm"),
        (Wrong::MadeBeforeFlush, Format::Aarch64, "bbm"),
    ] {
        let found = history(wrong, format);
        assert!(found.contains(&checker), "{wrong:?}: {checker} is not among {found:?}");
        assert!(found.iter().all(|name| CHECKERS.contains(name)));
    }
    let in_place = history(Wrong::LiveReplaced, X86);
    assert!(!in_place.contains(&"bbm"), "{in_place:?}");
}

#[test]
fn what_a_user_does_through_a_stale_translation_is_seen() {
    let sim = Sim::new(Config::seeded(1, Bytes::new(16 << 20), 1)).unwrap();
    let word = chain(&sim, ROOT, VA, 0);
    put(&sim, word, leaf_word(X86, 0, USER, Right::Writable, 1));
    run(&sim, 0, ROOT);
    sim.user_touch(Va::new(VA), Access::Write).unwrap();
    assert!(sim.violations().is_empty());
    sim.owned(frames(USER, 1), Owner::Free);
    let before = sim.violations().len();
    sim.user_store(Va::new(VA), 8, 1).unwrap();
    let found = sim.violations();
    assert_eq!((before, found.len()), (2, 3));
    assert_eq!(found[2].checker, "no_stale_translation");
    assert!(found[2].text.contains("Write"), "{}", found[2]);
}

/// A page of the kernel half is used, unmapped, perhaps stated to be lazy, and its frame goes to
/// another owner. Gives the machine, whose CPU still has the page cached.
fn retired(lazily: bool) -> (Sim, Va, VaRange) {
    let va = Va::new(0xffff_9000_0000_0000);
    let sim = Sim::new(Config::seeded(1, Bytes::new(16 << 20), 1)).unwrap();
    let word = chain(&sim, ROOT, va.get(), 0);
    put(&sim, word, leaf_word(X86, 0, USER, Right::Writable, 0));
    run(&sim, 0, ROOT);
    sim.owned(frames(USER, 1), Owner::Kernel);
    // SAFETY: mapped just now.
    unsafe { sim.kernel_store(va, 7) }.unwrap();
    put(&sim, word, 0);
    let range = VaRange::sized(va, Bytes::new(4096)).unwrap();
    if lazily {
        sim.retired(range, Retired::Lazily);
    }
    sim.owned(frames(USER, 1), Owner::Free);
    sim.owned(frames(USER, 1), Owner::Claimed);
    (sim, va, range)
}

#[test]
fn a_lazy_range_may_be_cached_and_not_used() {
    let (sim, ..) = retired(false);
    assert!(sim.violations()[0].text.contains("becomes Free"), "nobody said that it is lazy");

    let (sim, va, range) = retired(true);
    assert_eq!(sim.violations(), []);
    // SAFETY: none needed: the simulated machine answers.
    assert_eq!(unsafe { sim.kernel_load(va) }, Ok(7), "through the stale translation");
    let found = sim.violations();
    assert_eq!((found.len(), found[0].checker), (1, "no_stale_translation"));
    assert!(found[0].text.contains("not purged yet"), "{}", found[0]);

    sim.retired(range, Retired::Purged);
    assert!(sim.violations()[1].text.contains("stated to be purged"));

    let (sim, _, range) = retired(true);
    sim.invalidate(&Invalidation::all(Scope::Kernel));
    sim.retired(range, Retired::Purged);
    assert_eq!(sim.violations(), []);
}

/// A CPU leaves a root with a page cached; the page is freed, or its word made again, without the
/// CPU being asked.
fn away(format: Format, kept: Kept, work: impl Fn(&Sim, u64)) -> Vec<Violation> {
    let other = ROOT + 0x4_0000;
    let sim = Sim::new(Config::seeded(2, Bytes::new(16 << 20), 1).with_format(format)).unwrap();
    let word = chain(&sim, ROOT, VA, 0);
    put(&sim, word, leaf_word(format, 0, USER, Right::Writable, 1));
    (0..2).for_each(|cpu| run(&sim, cpu, ROOT));
    sim.user_touch(Va::new(VA), Access::Write).unwrap();
    run(&sim, 0, other);
    work(&sim, word);
    assert!(sim.violations().is_empty(), "it may be stale while it cannot be used");
    run_again(&sim, 0, ROOT, kept);
    sim.violations()
}

#[test]
fn what_is_kept_under_a_tag_may_be_stale_until_its_root_is_activated() {
    let free = |sim: &Sim, word: u64| {
        put(sim, word, 0);
        sim.owned(frames(USER, 1), Owner::Free);
    };
    let remake = |sim: &Sim, word: u64| {
        put(sim, word, 0);
        put(sim, word, leaf_word(Format::Aarch64, 0, USER + 4096, Right::Writable, 1));
    };
    for (format, work, checker) in [
        (X86, &free as &dyn Fn(&Sim, u64), "no_stale_translation"),
        (Format::Aarch64, &free, "no_stale_translation"),
        (Format::Aarch64, &remake, "bbm"),
    ] {
        assert_eq!(away(format, Kept::Nothing, work), []);
        let found = away(format, Kept::Unchanged, work);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!(found[0].checker, checker);
        assert!(found[0].text.contains("activated again"), "{}", found[0]);
    }
}

#[test]
fn statements_are_counted() {
    let sim = Sim::new(Config::seeded(1, Bytes::new(16 << 20), 1)).unwrap();
    sim.owned(frames(ROOT, 100), Owner::Free);
    sim.owned(frames(ROOT + 4096 * 10, 20), Owner::Claimed);
    assert_eq!(sim.stated_frames(Owner::Free), Pages::new(80));
    assert_eq!(sim.stated_frames(Owner::Claimed), Pages::new(20));
    assert_eq!(Frame::new(0x100), Pa::new(ROOT).frame());
}

#[test]
fn the_fault_plan_reaches_the_manager_through_the_contract() {
    let sim = Sim::new(Config::seeded(1, Bytes::new(1 << 20), 1)).unwrap();
    assert_eq!(sim.refusal(), Refusal::Permit);
    sim.fault_plan().set(Failing::Kth(2));
    let answers = [sim.refusal(), sim.refusal(), sim.refusal()];
    assert_eq!(answers, [Refusal::Permit, Refusal::Refuse, Refusal::Permit]);
    assert_eq!((sim.fault_plan().seen(), sim.fault_plan().refused()), (3, 1));
}

/// A test that does not ask the checkers fails by what they found.
#[test]
#[should_panic(expected = "nobody asked what the checkers found")]
fn a_machine_that_nobody_asked_judges_by_itself() {
    let sim = Sim::new(Config::seeded(1, Bytes::new(16 << 20), 1)).unwrap();
    sim.owned(frames(ROOT, 1), Owner::Claimed);
    sim.owned(frames(ROOT, 1), Owner::Claimed);
}
