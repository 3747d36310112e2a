//! `zeroed_before_user`.

use crate::*;
use foliant_machine::{Scope, Tables};

const HERE: &str = "zeroed_before_user";
/// What is said of frames that an earlier owner left.
const OLD: &str = "with an old owner's bytes";

/// A machine with tables for a user's leaf at [`VA`].
fn tables() -> Sim {
    let sim = machine(X86);
    chain(&sim, ROOT, VA, 0);
    run(&sim, 0, ROOT);
    sim
}

/// A user reaches the memory at [`SIZE_1G`] by a leaf of `level`, for a moment.
fn reach_by(sim: &Sim, level: u8) {
    let word = map(sim, VA, level, SIZE_1G);
    touch(sim, 0, VA, Access::Read);
    put(sim, word, 0);
    sim.invalidate(&one(Scope::Space(Pa::new(ROOT)), VA, level, Tables::Removed));
}

fn deliver(sim: &Sim) {
    reach_by(sim, 0);
}

/// Frames of an earlier owner at [`SIZE_1G`], which are a user's now after `between`; a user
/// reaches the first.
fn reused(between: impl Fn(&Sim)) -> Sim {
    let sim = tables();
    own(&sim, SIZE_1G, 4, Owner::Table);
    own(&sim, SIZE_1G, 4, Owner::Claimed);
    between(&sim);
    own(&sim, SIZE_1G, 4, Owner::User);
    deliver(&sim);
    sim
}

fn dirty(sim: &Sim) {
    let frame = Pa::new(SIZE_1G).frame();
    found(sim, &[(HERE, &format!("users reach {frame:?} at {:?} {OLD}", Va::new(VA)))]);
}

#[test]
fn what_is_cleared_for_a_user_adds_up_across_the_statement() {
    let sim = tables();
    own(&sim, SIZE_1G, 4, Owner::Table);
    own(&sim, SIZE_1G, 4, Owner::Claimed);
    clear(&sim, SIZE_1G, PAGE / 2);
    own(&sim, SIZE_1G, 4, Owner::User);
    clear(&sim, SIZE_1G + PAGE / 2, PAGE / 2);
    deliver(&sim);
    clean(&sim);
}

#[test]
fn memory_of_a_new_machine_is_clean_and_what_the_manager_writes_is_its_own_business() {
    let sim = tables();
    own(&sim, SIZE_1G, 1, Owner::User);
    deliver(&sim);
    clean(&sim);
    for write in WRITES {
        let sim = tables();
        own(&sim, SIZE_1G, 1, Owner::Claimed);
        write(&sim);
        own(&sim, SIZE_1G, 1, Owner::User);
        deliver(&sim);
        clean(&sim);
    }
}

/// Ways in which the manager writes into the frame at [`SIZE_1G`].
const WRITES: [fn(&Sim); 5] = [
    |sim| put(sim, SIZE_1G + 4088, 7),
    |sim| _ = reach(sim, SIZE_1G - 8, 16),
    |sim| _ = reach(sim, SIZE_1G, 0),
    |sim| copy(sim, SIZE_1G + 4 * PAGE, SIZE_1G, 64),
    |sim| copy(sim, SIZE_1G + 4 * PAGE, SIZE_1G, PAGE),
];

#[test]
fn what_was_written_and_given_up_is_unclean() {
    for write in WRITES {
        for owner in [Owner::Free, Owner::Reserved] {
            let sim = tables();
            own(&sim, SIZE_1G, 1, Owner::Claimed);
            write(&sim);
            own(&sim, SIZE_1G, 1, owner);
            own(&sim, SIZE_1G, 1, Owner::User);
            deliver(&sim);
            dirty(&sim);
        }
    }
    // What was not written is not unclean.
    for owner in [Owner::Free, Owner::Reserved, Owner::Claimed] {
        let sim = tables();
        own(&sim, SIZE_1G, 1, Owner::Kept);
        own(&sim, SIZE_1G, 1, Owner::Claimed);
        put(&sim, SIZE_1G + PAGE, 1);
        put(&sim, SIZE_1G - 8, 1);
        assert!(look(&sim, SIZE_1G, PAGE), "who looks leaves it as it is");
        if owner != Owner::Claimed {
            own(&sim, SIZE_1G, 1, owner);
        }
        own(&sim, SIZE_1G, 1, Owner::User);
        deliver(&sim);
        clean(&sim);
    }
}

#[test]
fn what_users_had_is_unclean_whoever_had_it_in_between() {
    for between in [Owner::Free, Owner::Claimed] {
        let sim = tables();
        own(&sim, SIZE_1G, 1, Owner::User);
        deliver(&sim);
        own(&sim, SIZE_1G, 1, between);
        own(&sim, SIZE_1G, 1, Owner::User);
        deliver(&sim);
        dirty(&sim);
    }
}

#[test]
fn a_page_of_a_pool_is_unclean_when_it_is_used_again() {
    let sim = tables();
    own(&sim, SIZE_1G, 1, Owner::Claimed);
    put(&sim, SIZE_1G, 1);
    own(&sim, SIZE_1G, 1, Owner::Kept);
    own(&sim, SIZE_1G, 1, Owner::User); // without a claim: the checker that demands one says so
    deliver(&sim);
    let used = (HERE, OLD);
    found(&sim, &[("no_shared_owner", "is Kept, now User"), used]);
}

#[test]
fn tables_and_records_are_unclean_whatever_is_in_them() {
    for owner in [Owner::Table, Owner::Records] {
        let sim = tables();
        own(&sim, SIZE_1G, 1, owner);
        own(&sim, SIZE_1G, 1, Owner::Free);
        own(&sim, SIZE_1G, 1, Owner::User);
        deliver(&sim);
        dirty(&sim);
    }
}

#[test]
fn what_the_kernel_had_is_unclean_since_its_writes_are_not_seen() {
    for (owner, is_clean) in [(Owner::Kernel, false), (Owner::Claimed, true)] {
        let sim = tables();
        own(&sim, SIZE_1G, 1, owner);
        own(&sim, SIZE_1G, 1, Owner::Free);
        own(&sim, SIZE_1G, 1, Owner::User);
        deliver(&sim);
        if is_clean { clean(&sim) } else { dirty(&sim) }
    }
}

#[test]
fn users_reach_clean_memory_of_the_kernels_and_the_zero_page() {
    for owner in [Owner::Kernel, Owner::Zero] {
        let sim = tables();
        own(&sim, SIZE_1G, 1, owner);
        deliver(&sim);
        clean(&sim);
        let sim = tables();
        own(&sim, SIZE_1G, 1, Owner::Table);
        own(&sim, SIZE_1G, 1, Owner::Claimed);
        own(&sim, SIZE_1G, 1, owner);
        deliver(&sim);
        dirty(&sim);
    }
}

#[test]
fn an_unclean_frame_is_cleared_or_copied_over_whole() {
    type Parts = &'static [(u64, u64)];
    const COVERS: [(&str, Parts, bool); 9] = [
        ("nothing", &[], false),
        ("all of it", &[(0, PAGE)], true),
        ("halves", &[(2048, 2048), (0, 2048)], true),
        ("one line too few", &[(0, 4032)], false),
        ("one line too few at the front", &[(64, 4032)], false),
        ("a half twice", &[(0, 2048), (0, 2048)], false),
        ("the frame before and all but a line", &[(PAGE, 0), (64, PAGE)], false),
        ("a line and a long rest", &[(0, 64), (64, 2 * PAGE)], true),
        ("more than all of it", &[(0, 3 * PAGE)], true),
    ];
    type Cover = fn(&Sim, u64, u64);
    const HOW: [(&str, Cover); 3] = [
        ("cleared", |sim, at, bytes| clear(sim, SIZE_1G + at, bytes)),
        ("copied", |sim, at, bytes| copy(sim, SIZE_1G + 8 * PAGE, SIZE_1G + at, bytes)),
        ("either", |sim, at, bytes| match at {
            0 => clear(sim, SIZE_1G, bytes),
            _ => copy(sim, SIZE_1G + 8 * PAGE, SIZE_1G + at, bytes),
        }),
    ];
    for (what, parts, is_covered) in COVERS {
        for (how, cover) in HOW {
            let sim = reused(|sim| {
                let parts = parts.iter().filter(|(_, bytes)| *bytes > 0);
                parts.for_each(|(at, bytes)| cover(sim, *at, *bytes));
            });
            assert_eq!(sim.violations().is_empty(), is_covered, "{how}: {what}");
        }
    }
}

#[test]
fn a_cover_ends_where_it_ends() {
    for (at, bytes) in [(PAGE, 3 * PAGE), (64, 4 * PAGE - 64)] {
        dirty(&reused(|sim| clear(sim, SIZE_1G + at, bytes)));
    }
    // These come from the frames before it, and go to its end and to a line short of its end.
    clean(&reused(|sim| clear(sim, SIZE_1G - PAGE, 2 * PAGE)));
    clean(&reused(|sim| clear(sim, SIZE_1G - 64, PAGE + 64)));
    dirty(&reused(|sim| clear(sim, SIZE_1G - PAGE, 2 * PAGE - 64)));
}

#[test]
fn frames_beside_a_copy_stay_as_they_are() {
    for (at, bytes) in
        [(SIZE_1G - PAGE, PAGE), (SIZE_1G - 64, 64), (SIZE_1G + PAGE, PAGE), (SIZE_1G + PAGE, 64)]
    {
        let sim = tables();
        own(&sim, SIZE_1G - PAGE, 3, Owner::Claimed);
        copy(&sim, SIZE_1G + 8 * PAGE, at, bytes);
        own(&sim, SIZE_1G, 1, Owner::Free);
        own(&sim, SIZE_1G, 1, Owner::User);
        deliver(&sim);
        clean(&sim);
    }
}

#[test]
fn a_clean_frame_that_is_cleared_in_parts_stays_clean() {
    let sim = tables();
    own(&sim, SIZE_1G, 1, Owner::Claimed);
    clear(&sim, SIZE_1G, 2048);
    clear(&sim, SIZE_1G + 2048, 2048);
    own(&sim, SIZE_1G, 1, Owner::Free);
    own(&sim, SIZE_1G, 1, Owner::User);
    deliver(&sim);
    clean(&sim);
}

#[test]
fn lines_that_were_covered_for_one_owner_are_not_for_the_next() {
    for before in [&[2048][..], &[2048, PAGE], &[PAGE]] {
        for owner in [
            Owner::Free,
            Owner::Claimed,
            Owner::Kept,
            Owner::Reserved,
            Owner::Table,
            Owner::Records,
        ] {
            let sim = reused(|sim| {
                before.iter().for_each(|bytes| clear(sim, SIZE_1G, *bytes));
                put(sim, SIZE_1G, 7);
                own(sim, SIZE_1G, 4, owner);
                clear(sim, SIZE_1G + 2048, 2048);
            });
            let all = sim.violations();
            let old = all.iter().filter(|found| found.text.contains(OLD)).count();
            assert_eq!(old, 1, "{before:?}, then {owner:?}: {all:#?}");
        }
    }
    // All lines are cleared in turn, and then one for the next owner.
    dirty(&reused(|sim| {
        clear(sim, SIZE_1G, 2048);
        clear(sim, SIZE_1G + 2048, 2048);
        own(sim, SIZE_1G, 4, Owner::Table);
        own(sim, SIZE_1G, 4, Owner::Claimed);
        clear(sim, SIZE_1G, 64);
    }));
}

#[test]
fn lines_that_add_up_are_touched_and_unclean_when_they_are_given_up() {
    let sim = reused(|sim| {
        clear(sim, SIZE_1G, 2048);
        clear(sim, SIZE_1G + 2048, 2048);
        own(sim, SIZE_1G, 4, Owner::Free);
    });
    dirty(&sim);
    // What was cleared as a whole is clean, also when it is given up.
    let sim = reused(|sim| {
        clear(sim, SIZE_1G, PAGE);
        own(sim, SIZE_1G, 4, Owner::Free);
    });
    clean(&sim);
    let sim = reused(|sim| {
        copy(sim, SIZE_1G + 8 * PAGE, SIZE_1G, PAGE);
        own(sim, SIZE_1G, 4, Owner::Free);
    });
    dirty(&sim);
}

#[test]
fn writing_does_not_make_clean() {
    dirty(&reused(|sim| put(sim, SIZE_1G, 0)));
    dirty(&reused(|sim| _ = reach(sim, SIZE_1G, PAGE)));
}

#[test]
fn what_users_reach_is_theirs_whatever_is_done_to_it() {
    let covers: [fn(&Sim); 3] = [
        |sim| clear(sim, SIZE_1G, PAGE),
        |sim| copy(sim, SIZE_1G + PAGE, SIZE_1G, 64),
        |sim| put(sim, SIZE_1G, 0),
    ];
    for cover in covers {
        let sim = tables();
        own(&sim, SIZE_1G, 1, Owner::User);
        deliver(&sim);
        cover(&sim);
        own(&sim, SIZE_1G, 1, Owner::Free);
        own(&sim, SIZE_1G, 1, Owner::User);
        deliver(&sim);
        let all = sim.violations();
        assert_eq!(all.iter().filter(|v| v.checker == HERE).count(), 1, "{all:#?}");
    }
}

#[test]
fn every_frame_of_a_large_page_is_looked_at() {
    for (level, frames) in [(0, 1), (1, 512), (2, 1 << 18)] {
        for (nth, is_inside) in [(0, true), (frames / 2, true), (frames - 1, true), (frames, false)]
        {
            let sim = machine(X86);
            run(&sim, 0, ROOT);
            own(&sim, SIZE_1G + nth * PAGE, 1, Owner::Table);
            own(&sim, SIZE_1G + nth * PAGE, 1, Owner::Free);
            own(&sim, SIZE_1G, frames + 1, Owner::User);
            reach_by(&sim, level);
            let all = sim.violations();
            assert_eq!(all.len(), usize::from(is_inside), "{level} {nth}");
            if is_inside {
                let frame = Pa::new(SIZE_1G + nth * PAGE).frame();
                assert!(all[0].text.contains(&format!("{frame:?} at")), "{}", all[0]);
            }
        }
    }
}

#[test]
fn the_kernel_a_walker_and_a_user_of_reserved_memory_reach_what_was_somebodys() {
    let sim = machine(X86);
    let word = chain(&sim, ROOT, KERNEL, 0);
    put(&sim, word, leaf_word(X86, 0, SIZE_1G, Right::Writable, 0));
    own(&sim, SIZE_1G, 1, Owner::Table);
    own(&sim, SIZE_1G, 1, Owner::Claimed);
    own(&sim, SIZE_1G, 1, Owner::Kernel);
    run(&sim, 0, ROOT);
    sim.kernel_touch(Va::new(KERNEL), Access::Read).unwrap();
    clean(&sim);

    // A pointer to an unclean frame that is no table by the statements is another checker's to
    // report.
    let sim = machine(X86);
    let upper = chain(&sim, ROOT, VA, 1);
    put(&sim, upper, table_word(X86, SIZE_1G));
    own(&sim, SIZE_1G, 1, Owner::Table);
    own(&sim, SIZE_1G, 1, Owner::Claimed);
    own(&sim, SIZE_1G, 1, Owner::User);
    run(&sim, 0, ROOT);
    assert!(sim.user_touch(Va::new(VA), Access::Read).is_err());
    clean(&sim);

    let sim = tables();
    own(&sim, SIZE_1G, 1, Owner::Table);
    own(&sim, SIZE_1G, 1, Owner::Claimed);
    own(&sim, SIZE_1G, 1, Owner::Reserved);
    deliver(&sim);
    clean(&sim);
}

#[test]
fn one_old_owner_is_said_once() {
    let sim = reused(|_| ());
    deliver(&sim);
    dirty(&sim);
}

#[test]
fn what_was_in_memory_before_it_was_lent_is_an_old_owners() {
    for is_junk in [true, false] {
        let sim = tables();
        if is_junk {
            let frames = FrameRange::new(Pa::new(SIZE_1G).frame(), Pages::new(4)).unwrap();
            sim.leave_junk(frames, Pages::new(2));
            let words = [0, PAGE - 8, 2 * PAGE, 3 * PAGE - 8].map(|at| get(&sim, SIZE_1G + at));
            assert!(words.iter().all(|word| word & 1 == 1), "{words:x?}");
            assert_eq!([PAGE, 4 * PAGE - 8].map(|at| get(&sim, SIZE_1G + at)), [0, 0]);
        }
        own(&sim, SIZE_1G, 4, Owner::Free);
        own(&sim, SIZE_1G, 4, Owner::Claimed);
        own(&sim, SIZE_1G, 4, Owner::User);
        deliver(&sim);
        if is_junk { dirty(&sim) } else { clean(&sim) }
    }
}
