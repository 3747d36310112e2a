//! `quiescent`.

use crate::*;
use foliant_machine::{Invalidation, Scope};
use foliant_units::CpuSet;

const HERE: &str = "quiescent";

/// A machine that runs [`ROOT`], with tables down to a word for [`VA`], all stated.
fn at_rest(format: Format) -> (Sim, u64) {
    let sim = machine(format);
    let word = chain(&sim, ROOT, VA, 0);
    own(&sim, ROOT, u64::from(format.levels()), Owner::Table);
    (0..2).for_each(|cpu| run(&sim, cpu, ROOT));
    (sim, word)
}

#[test]
fn users_memory_and_claims_are_given_back() {
    for owner in [Owner::User, Owner::Claimed] {
        let (sim, _) = at_rest(X86);
        own(&sim, SIZE_1G, 3, owner);
        own(&sim, SIZE_1G + PAGE, 1, Owner::Free);
        sim.finish();
        let first = Pa::new(SIZE_1G).frame();
        found(&sim, &[(HERE, &format!("2 frames are still {owner:?}, the first is {first:?}"))]);
    }
    let (sim, _) = at_rest(X86);
    let stays =
        [Owner::Free, Owner::Records, Owner::Kept, Owner::Kernel, Owner::Zero, Owner::Reserved];
    for (nth, owner) in stays.into_iter().enumerate() {
        own(&sim, SIZE_1G + nth as u64 * PAGE, 1, owner);
    }
    sim.finish();
    clean(&sim);
}

#[test]
fn tickets_are_waited_for() {
    let (sim, _) = at_rest(X86);
    let all = Invalidation::all(Scope::Space(Pa::new(ROOT)));
    let ticket = sim.ask(&CpuSet::first(2), &all);
    sim.on(Cpu(1), || foliant_machine::Cpus::relax(&sim)); // carried out, and not waited for
    sim.finish();
    found(&sim, &[(HERE, "1 tickets were never waited for")]);
    sim.wait(ticket);
    sim.finish();
    assert_eq!(sim.violations().len(), 1);
}

#[test]
fn every_table_hangs_on_a_root_that_runs() {
    for format in FORMATS {
        let (sim, _) = at_rest(format);
        sim.finish();
        clean(&sim);
        // Each level's table in turn is forgotten: its word is cleared, and it is not given back.
        for level in 0..format.levels() - 1 {
            let (sim, _) = at_rest(format);
            put(&sim, chain(&sim, ROOT, VA, level + 1), 0);
            sim.finish();
            let lost = level + 1;
            let first = Pa::new(ROOT + u64::from(format.levels() - lost) * PAGE).frame();
            let text = format!("{lost} tables are reached from no root, the first is {first:?}");
            found(&sim, &[(HERE, &text)]);
        }
        // This table never hung anywhere.
        let (sim, _) = at_rest(format);
        own(&sim, SIZE_1G, 1, Owner::Table);
        sim.finish();
        found(&sim, &[(HERE, "1 tables are reached from no root")]);
    }
}

#[test]
fn a_root_that_no_cpu_runs_any_more_is_lost() {
    let (sim, _) = at_rest(X86);
    own(&sim, OTHER, 1, Owner::Table);
    run(&sim, 1, OTHER);
    sim.finish();
    clean(&sim); // each CPU runs one
    run(&sim, 1, ROOT);
    sim.finish();
    let first = Pa::new(OTHER).frame();
    found(&sim, &[(HERE, &format!("1 tables are reached from no root, the first is {first:?}"))]);
}

#[test]
fn the_kernels_root_is_one() {
    for (user, kernel) in [(ROOT, OTHER), (OTHER, ROOT)] {
        let (sim, _) = at_rest(ARM);
        own(&sim, OTHER, 1, Owner::Table);
        (0..2).for_each(|cpu| run_both(&sim, cpu, user, kernel));
        sim.finish();
        clean(&sim);
    }
}

#[test]
fn a_large_leaf_names_no_table() {
    let (sim, word) = at_rest(X86);
    put(&sim, (word & !0xfff) - PAGE + 8, leaf(&sim, 1, SIZE_1G));
    put(&sim, word, leaf(&sim, 0, SIZE_1G));
    own(&sim, SIZE_1G, 512, Owner::Kernel);
    sim.finish();
    clean(&sim);
}

#[test]
fn each_word_of_a_table_is_looked_at() {
    let (sim, word) = at_rest(X86);
    let (last, upper) = (word & !0xfff, (word & !0xfff) - PAGE);
    (0..512).for_each(|nth| put(&sim, upper + 8 * nth, table_word(X86, SIZE_1G + nth * PAGE)));
    own(&sim, last, 1, Owner::Free);
    own(&sim, SIZE_1G, 512, Owner::Table);
    sim.finish();
    clean(&sim);
}

#[test]
fn what_is_reached_as_a_table_is_stated_to_be_one() {
    for owner in [Owner::Records, Owner::Kept, Owner::Kernel, Owner::Free] {
        let (sim, word) = at_rest(X86);
        put(&sim, (word & !0xfff) - PAGE + 8, table_word(X86, SIZE_1G));
        sim.finish();
        clean(&sim); // the embedder's
        own(&sim, SIZE_1G, 1, owner);
        let before = sim.violations().len();
        sim.finish();
        let all = sim.violations();
        assert_eq!(all.len(), before + 1, "{all:#?}");
        let frame = Pa::new(SIZE_1G).frame();
        let text = format!("{frame:?} is reached as a table, and is stated as {owner:?}");
        assert_eq!((all[before].checker, &all[before].text), (HERE, &text));
    }
}
