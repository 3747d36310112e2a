//! `frames_conserved`.

use crate::*;

const HERE: &str = "frames_conserved";
/// The end of the machine's memory, which begins at 1 MiB.
const END: u64 = (3 << 30) + (1 << 20);

#[test]
fn what_is_stated_is_memory() {
    for start in [END - PAGE, END, 0xff000] {
        let sim = machine(X86);
        own(&sim, start, 2, Owner::User);
        let range = FrameRange::new(Pa::new(start).frame(), Pages::new(2)).unwrap();
        found(&sim, &[(HERE, &format!("{range:?} stated as User is not memory"))]);
        assert_eq!(sim.stated_frames(Owner::User), Pages::new(0));
    }
    let sim = machine(X86);
    own(&sim, END - PAGE, 1, Owner::User);
    own(&sim, END, 2, Owner::Reserved); // a hole is the embedder's
    clean(&sim);
}

#[test]
fn frames_are_freed_once() {
    let sim = machine(X86);
    own(&sim, SIZE_1G, 8, Owner::Free);
    own(&sim, SIZE_1G + 2 * PAGE, 4, Owner::User);
    clean(&sim);
    own(&sim, SIZE_1G + PAGE, 6, Owner::Free);
    let twice = |at: u64| {
        let range = FrameRange::new(Pa::new(SIZE_1G + at * PAGE).frame(), Pages::new(1)).unwrap();
        format!("freed twice: {range:?}")
    };
    found(&sim, &[(HERE, &twice(1)), (HERE, &twice(6))]);
}

#[test]
fn a_free_frame_is_not_used() {
    type Use = fn(&Sim, u64);
    let uses: [(&str, Use); 7] = [
        ("page-table word read", |sim, at| _ = get(sim, at & !7)),
        ("page-table word written", |sim, at| put(sim, at & !7, 1)),
        ("cleared", |sim, at| clear(sim, at & !63, 64)),
        ("reached", |sim, at| _ = reach(sim, at & !7, 8)),
        ("looked into", |sim, at| _ = look(sim, at & !63, 64)),
        ("copied from", |sim, at| copy(sim, at & !63, SIZE_1G - PAGE, 64)),
        ("copied to", |sim, at| copy(sim, SIZE_1G - PAGE, at & !63, 64)),
    ];
    for (what, used) in uses {
        let sim = machine(X86);
        own(&sim, SIZE_1G, 1, Owner::Free);
        used(&sim, SIZE_1G - 1);
        used(&sim, SIZE_1G + PAGE);
        clean(&sim);
        used(&sim, SIZE_1G + PAGE - 1);
        let free = Pa::new(SIZE_1G).frame();
        found(&sim, &[(HERE, &format!("although {free:?} is stated to be free"))]);
        assert!(sim.violations()[0].text.starts_with(what), "{what}");
    }
}

#[test]
fn a_use_that_reaches_into_a_free_frame_is_one_of_it() {
    let sim = machine(X86);
    own(&sim, SIZE_1G, 1, Owner::Free);
    reach(&sim, SIZE_1G - PAGE, PAGE);
    clean(&sim);
    reach(&sim, SIZE_1G - PAGE, PAGE + 8);
    found(&sim, &[(HERE, "reached at")]);
    reach(&sim, SIZE_1G, 0);
    assert_eq!(sim.violations().len(), 2, "a pointer is one, however little is asked for");
}

#[test]
fn what_is_stated_last_is_counted() {
    let sim = machine(X86);
    own(&sim, SIZE_1G, 10, Owner::Free);
    own(&sim, SIZE_1G + PAGE, 3, Owner::Claimed);
    own(&sim, SIZE_1G + 2 * PAGE, 1, Owner::Table);
    let stated = [Owner::Free, Owner::Claimed, Owner::Table].map(|o| sim.stated_frames(o).get());
    assert_eq!(stated, [7, 2, 1]);
}
