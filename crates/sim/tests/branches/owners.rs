//! `no_shared_owner`.

use crate::*;
use foliant_machine::{Invalidation, Scope};

const OWNERS: [Owner; 9] = [
    Owner::Free,
    Owner::Claimed,
    Owner::Table,
    Owner::Records,
    Owner::Kept,
    Owner::User,
    Owner::Kernel,
    Owner::Zero,
    Owner::Reserved,
];

#[test]
fn frames_change_hands_as_the_contract_says_and_no_other_way() {
    for old in OWNERS {
        for new in OWNERS {
            let follows = match old {
                Owner::Reserved | Owner::Free => true,
                Owner::Claimed => new != Owner::Claimed,
                Owner::Zero => false,
                _ => new == Owner::Free || new == Owner::Claimed,
            };
            let sim = machine(X86);
            own(&sim, SIZE_1G, 1, old);
            own(&sim, SIZE_1G - PAGE, 2, new);
            let all = sim.violations();
            let told: Vec<_> = all.iter().filter(|v| v.checker == "no_shared_owner").collect();
            assert_eq!(told.is_empty(), follows, "{old:?} to {new:?}: {told:?}");
            if let Some(first) = told.first() {
                let frame = Pa::new(SIZE_1G).frame();
                let text = format!("{frame:?} of {:?} is {old:?}, now {new:?}", range());
                assert_eq!((told.len(), &first.text), (1, &text));
            }
            // The second statement counts from now on, also where it was wrong.
            if old != Owner::Free || new != Owner::Free {
                assert_eq!(
                    sim.stated_frames(new),
                    Pages::new(if new == Owner::Reserved { 0 } else { 2 })
                );
            }
        }
    }
}

fn range() -> FrameRange {
    FrameRange::new(Pa::new(SIZE_1G - PAGE).frame(), Pages::new(2)).unwrap()
}

#[test]
fn users_reach_no_frame_of_the_managers_own() {
    for owner in [Owner::Table, Owner::Records, Owner::Claimed, Owner::Kept] {
        for (level, last) in [(0, 0), (1, 511), (2, (1 << 18) - 1)] {
            let sim = machine(X86);
            map(&sim, VA, level, SIZE_1G);
            run(&sim, 0, ROOT);
            own(&sim, SIZE_1G - PAGE, 1, owner);
            own(&sim, SIZE_1G + (last + 1) * PAGE, 1, owner);
            touch(&sim, 0, VA, Access::Read);
            clean(&sim);
            sim.invalidate(&Invalidation::all(Scope::Space(Pa::new(ROOT))));
            own(&sim, SIZE_1G + last * PAGE, 1, owner);
            touch(&sim, 0, VA, Access::Read);
            let frame = Pa::new(SIZE_1G + last * PAGE).frame();
            let text = format!("users reach {frame:?}, which is {owner:?}");
            found(&sim, &[("no_shared_owner", &text)]);
        }
    }
}

#[test]
fn users_reach_what_is_theirs_the_embedders_the_kernels_and_the_zero_page() {
    for owner in [Owner::User, Owner::Kernel, Owner::Zero, Owner::Reserved] {
        let sim = machine(X86);
        map(&sim, VA, 0, SIZE_1G);
        run(&sim, 0, ROOT);
        own(&sim, SIZE_1G, 1, owner);
        touch(&sim, 0, VA, Access::Read);
        clean(&sim);
    }
}

#[test]
fn the_kernel_reaches_the_managers_frames_and_walkers_reach_tables() {
    let sim = machine(X86);
    let word = chain(&sim, ROOT, KERNEL, 0);
    own(&sim, ROOT, 4, Owner::Table); // walkers of users cache pointers to these
    put(&sim, word, leaf_word(X86, 0, SIZE_1G, Right::Writable, 0));
    run(&sim, 0, ROOT);
    own(&sim, SIZE_1G, 1, Owner::Records);
    sim.kernel_touch(Va::new(KERNEL), Access::Write).unwrap();
    clean(&sim);
}

#[test]
fn the_zero_page_is_written_by_nobody() {
    type Write = fn(&Sim);
    let writes: [(&str, Write); 6] = [
        ("a user", |sim| touch(sim, 0, VA, Access::Write)),
        ("the kernel", |sim| sim.kernel_touch(Va::new(VA), Access::Write).unwrap()),
        ("a clear", |sim| clear(sim, SIZE_1G, PAGE)),
        ("a clear that begins before it", |sim| clear(sim, SIZE_1G - 64, 128)),
        ("a copy", |sim| copy(sim, SIZE_1G + PAGE, SIZE_1G, 64)),
        ("a copy that begins before it", |sim| copy(sim, SIZE_1G + PAGE, SIZE_1G - 64, 128)),
    ];
    for (who, write) in writes {
        let sim = zero_page();
        write(&sim);
        let text = "the shared zero page is written at";
        assert_eq!(sim.violations().len(), 1, "{who}");
        found(&sim, &[("no_shared_owner", text)]);
    }
}

fn zero_page() -> Sim {
    let sim = machine(X86);
    map(&sim, VA, 0, SIZE_1G);
    run(&sim, 0, ROOT);
    own(&sim, SIZE_1G, 1, Owner::Zero);
    sim
}

#[test]
fn the_zero_page_is_read_copied_from_and_lies_beside_others() {
    let sim = zero_page();
    touch(&sim, 0, VA, Access::Read);
    touch(&sim, 0, VA, Access::Exec);
    copy(&sim, SIZE_1G, SIZE_1G + PAGE, PAGE);
    clear(&sim, SIZE_1G - PAGE, PAGE);
    map(&sim, VA + PAGE, 0, SIZE_1G - PAGE);
    touch(&sim, 0, VA + 2 * PAGE - 1, Access::Write); // its last byte
    clear(&sim, SIZE_1G + PAGE, PAGE);
    clean(&sim);
}

#[test]
fn page_table_words_are_written_into_tables() {
    for owner in [Owner::Records, Owner::Kept, Owner::User, Owner::Kernel, Owner::Zero] {
        let sim = machine(X86);
        own(&sim, SIZE_1G, 1, owner);
        put(&sim, SIZE_1G + 4088, 0);
        let text =
            format!("page-table word written at {:?}, which is {owner:?}", Pa::new(SIZE_1G + 4088));
        found(&sim, &[("no_shared_owner", &text)]);
    }
    for owner in [Owner::Table, Owner::Claimed, Owner::Reserved] {
        let sim = machine(X86);
        own(&sim, SIZE_1G, 1, owner);
        put(&sim, SIZE_1G, 0);
        clean(&sim);
    }
}
