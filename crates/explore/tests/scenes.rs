//! Scenes that are explored whole, and flaws that must be found. The program has one thread: each
//! branch of a schedule is a fork.

use foliant_explore::{Extent, Flaw, Operation, Plan, Report, explore, pairs, triples};
use std::collections::BTreeSet;
use std::time::Duration;

fn main() {
    let tests: &[(&str, fn())] = &[
        ("names_say_all_of_a_scene", names_say_all_of_a_scene),
        ("bad_names_are_refused", bad_names_are_refused),
        ("every_pair_is_named_once", every_pair_is_named_once),
        ("scenes_are_clean", scenes_are_clean),
        (
            "finding_ee_who_takes_an_attachment_off_yields_to_who_has_it_pinned",
            finding_ee_who_takes_an_attachment_off_yields_to_who_has_it_pinned,
        ),
        (
            "finding_ah_a_table_counts_as_pending_before_its_word_is_empty",
            finding_ah_a_table_counts_as_pending_before_its_word_is_empty,
        ),
        (
            "finding_bo_a_page_that_another_fault_has_is_not_missing",
            finding_bo_a_page_that_another_fault_has_is_not_missing,
        ),
        (
            "finding_bl_a_fault_is_refused_only_when_no_other_brings_its_page",
            finding_bl_a_fault_is_refused_only_when_no_other_brings_its_page,
        ),
        (
            "a_move_that_is_refused_takes_no_area_from_a_program",
            a_move_that_is_refused_takes_no_area_from_a_program,
        ),
        ("the_same_scene_gives_the_same_schedules", the_same_scene_gives_the_same_schedules),
        ("passes_leave_nothing_out", passes_leave_nothing_out),
        (
            "what_is_left_out_is_another_schedule_once_more",
            what_is_left_out_is_another_schedule_once_more,
        ),
        ("a_flush_that_is_not_waited_for_is_found", a_flush_that_is_not_waited_for_is_found),
        ("a_process_that_dies_is_found", a_process_that_dies_is_found),
        ("a_serial_order_tries_again_by_itself", a_serial_order_tries_again_by_itself),
        ("a_limit_is_told", a_limit_is_told),
    ];
    for (name, test) in tests {
        test();
        println!("test {name} ... ok");
    }
}

fn plan(name: &str) -> Plan {
    name.parse().unwrap_or_else(|why| panic!("{why}"))
}
fn explored(names: &[&str]) -> Vec<Report> {
    let plans: Vec<Plan> = names.iter().map(|name| plan(name)).collect();
    // Schedules bound them, and not the time that the host takes for one.
    let extent = Extent { time: Duration::from_secs(300), ..Extent::default() };
    let mut reports = explore(&plans, extent, |_, _| {});
    reports.sort_by_key(|report| plans.iter().position(|plan| *plan == report.plan));
    reports
}

fn names_say_all_of_a_scene() {
    let names = [
        "x86_64 base: Write | ReadOnly",
        "aarch64 small fork1: Write + Load | Unmap & Compact",
        "riscv64 huge fork2 areas40 limit30 refuse1: EndChild | EndSecond | Mappings",
    ];
    names.iter().for_each(|name| assert_eq!(plan(name).to_string(), *name));
    let all: BTreeSet<String> = Operation::ALL.iter().map(|op| format!("{op:?}")).collect();
    all.iter().for_each(|op| {
        assert_eq!(Operation::parse(op).map(|op| format!("{op:?}")), Some(op.clone()))
    });
}

fn bad_names_are_refused() {
    let says = |name: &str, part: &str| {
        let why = name.parse::<Plan>().unwrap_err();
        assert!(why.contains(part), "{name}: {why}");
    };
    says("Write | Read", "names no scene");
    says("x86_64 large: Write", "'large' is no part");
    says("x86_64 base: Write | Fly", "'Fly' is no operation");
    says("x86_64 base: Write | Write | Write | Write | Write", "more than 4");
}

fn every_pair_is_named_once() {
    let folios = foliant_explore::Folios::Base;
    let names: BTreeSet<String> = pairs(folios, 1).iter().map(Plan::to_string).collect();
    let on_objects = 32 + 17;
    let apart = 7 + on_objects;
    let all = Operation::ALL.len() - apart;
    assert_eq!(names.len(), all * (all + 1) / 2);
    let with_a_guess = pairs(foliant_explore::Folios::Auto, 1);
    assert_eq!(with_a_guess.len(), all + 1);
    let pairs_with_one = |plan: &&Plan| plan.to_string().contains("Guess");
    assert_eq!(with_a_guess.iter().filter(pairs_with_one).count(), all + 1);
    assert_eq!(triples(folios).len(), 15 * 16 * 17 / 6);
}

fn scenes_are_clean() {
    let reports = explored(&[
        "x86_64 huge: ForgetUse | Split",
        "x86_64 small fork1: ForgetWrites | Write",
        "x86_64 base fork1: Write | ReadOnly",
        "x86_64 huge: WriteHuge | DropHuge",
        "x86_64 small: UserFill | Load",
        "x86_64 small: UserTransfer | Store",
        "aarch64 huge: UserTransferBlock | Relocate",
        "x86_64 small fork1: Watch | Store",
        "aarch64 small: WriteEmpty | DontNeed",
        "riscv64 base: Relocate | Load",
        "x86_64 base refuse1: WriteEmpty | Fork",
        "x86_64 huge: Compact & Collapse | Store",
        "x86_64 auto fork1: Guess | StoreEmpty",
        "x86_64 small: StorePrivate | PunchObject",
        "aarch64 base fork1: Fork | RegrowObject",
        "x86_64 base: MoveObjectOnto | PunchObject",
        "x86_64 base fork1: WritePooled | ChildPooled",
        "riscv64 base: DropPooled | PunchPooled",
        "x86_64 base: CollapseSmall | Anchor",
        "aarch64 base: Anchor | Fork",
        "x86_64 base: PunchPooled | PageOfPooled",
        "x86_64 small fork1: Lose | Write",
        "aarch64 base fork1: LoseHuge | Fork",
        "riscv64 base: LeavePooled | LeavePooled",
        "x86_64 base fork1: LeaveHuge | WriteHuge",
    ]);
    for report in reports {
        assert_eq!(report.failures, 0, "{}: {}", report.plan, report.text);
        assert!(report.schedules > 4 && !report.is_cut, "{report:?}");
    }
}

fn finding_ee_who_takes_an_attachment_off_yields_to_who_has_it_pinned() {
    // The punch has an attachment pinned and waits for the space, which the move has; the task that
    // unmaps is on the CPU of the punch.
    let extent = Extent { bound: 2, schedules: 300, ..Extent::default() };
    let name = "x86_64 base: MoveObject | PunchObject & UnmapPrivate";
    let report = explore(&[plan(name)], extent, |_, _| {}).remove(0);
    assert_eq!(report.failures, 0, "{name}: {}", report.text);
}

fn finding_ah_a_table_counts_as_pending_before_its_word_is_empty() {
    // The fault finds its area, the unmap empties the word above, and the fault comes to it: two
    // switches.
    let extent = Extent { bound: 2, ..Extent::default() };
    for name in ["aarch64 base: Write | UnmapDropped", "aarch64 base: WriteEmpty | UnmapDropped"] {
        let report = explore(&[plan(name)], extent, |_, _| {}).remove(0);
        assert_eq!(report.failures, 0, "{name}: {}", report.text);
        assert!(report.schedules > 400 && !report.is_cut, "{report:?}");
    }
}

fn finding_bl_a_fault_is_refused_only_when_no_other_brings_its_page() {
    // One page is left below the limit. Both programs store to it in every serial order.
    let reports = explored(&["x86_64 base limit12: StoreEmpty | StoreEmpty"]);
    assert_eq!(reports[0].failures, 0, "{}", reports[0].text);
    assert!(reports[0].schedules > 20 && !reports[0].is_cut, "{reports:?}");
}

fn finding_bo_a_page_that_another_fault_has_is_not_missing() {
    // In every serial order all these programs go on.
    let reports =
        explored(&["x86_64 base: FillHuge | FillHuge", "x86_64 base: FillSurplus | FillSurplus"]);
    for report in reports {
        assert_eq!(report.failures, 0, "{}: {}", report.plan, report.text);
        assert!(report.schedules > 10 && !report.is_cut, "{report:?}");
    }
    // The fault beside collects the page that was dropped.
    let extent = Extent { bound: 2, ..Extent::default() };
    let report = explore(&[plan("x86_64 base: RefillHuge | WriteEmpty")], extent, |_, _| {});
    assert_eq!(report[0].failures, 0, "{}", report[0].text);
    assert!(report[0].schedules > 100 && !report[0].is_cut, "{report:?}");
    // All memory is in one folio, mostly zeros, which the first one that is refused looks into; or
    // a block is left, which the first one keeps and clears.
    // Schedules bound them, and not the time that the host takes for one.
    let time = Duration::from_secs(300);
    let extent = Extent { schedules: 60, time, ..Extent::default() };
    for name in ["x86_64 huge full: FillFull | FillFull", "x86_64 huge block: FillFull | FillFull"]
    {
        let report = explore(&[plan(name)], extent, |_, _| {}).remove(0);
        assert_eq!(report.failures, 0, "{name}: {}", report.text);
        assert!(report.schedules > 50, "{report:?}");
    }
}

fn a_move_that_is_refused_takes_no_area_from_a_program() {
    // Nothing is left below the limit, so the move gets no table: in every serial order the store
    // is one over the limit.
    let reports = explored(&["x86_64 base limit11: MoveAway | StoreEmpty"]);
    assert_eq!(reports[0].failures, 0, "{}", reports[0].text);
    assert!(reports[0].schedules > 20 && !reports[0].is_cut, "{reports:?}");
}

fn the_same_scene_gives_the_same_schedules() {
    let numbers = |report: &Report| (report.schedules, report.points, report.pruned);
    let name = "x86_64 base fork1: Relocate | ChildWrite";
    let twice = explored(&[name, name]);
    assert_eq!(numbers(&twice[0]), numbers(&twice[1]));
}

fn passes_leave_nothing_out() {
    let in_passes = |passes| {
        let extent = Extent { passes, ..Extent::default() };
        let reports = explore(&[plan("x86_64 base fork1: Write | DontNeed")], extent, |_, _| {});
        assert!(!reports[0].is_cut, "{reports:?}");
        reports[0].orders
    };
    assert_eq!(in_passes(8), in_passes(1));
}

fn what_is_left_out_is_another_schedule_once_more() {
    let both = |name: &str, bound: u32| {
        let made = |repeats| {
            let extent = Extent { bound, repeats, ..Extent::default() };
            explore(&[plan(name)], extent, |_, _| {}).remove(0)
        };
        let (few, all) = (made(false), made(true));
        assert!(!few.is_cut && !all.is_cut, "{few:?} {all:?}");
        assert_eq!(few.orders, all.orders, "{name}");
        assert!(few.schedules < all.schedules, "{name}: {} schedules", few.schedules);
    };
    both("x86_64 small fork1: Compact | Fork", 1); // footprints grow in later rounds
    both("x86_64 base: VmallocKeep | Vfree", 1); // what kernel addresses mean
    both("x86_64 huge: WriteHuge | DropHuge", 1);
    both("aarch64 base fork1: Write | DontNeed", 1);
    both("x86_64 base refuse1: WriteEmpty | Fork", 1); // refusals between two points
    both("x86_64 base: Write | Unmap | Load", 1); // a third lane goes on in a visit
    both("riscv64 small: Keep | Unmap", 2); // visits in visits
    both("x86_64 base: Write | ReadOnly | Load", 2);
}

/// Finds this text on a machine with this flaw, and gives what is found when the choices that are
/// told with it are replayed.
fn found_and_replayed(name: &str, flaw: Flaw, text: &str) -> String {
    let mut plan = plan(name);
    plan.flaw = Some(flaw);
    let found = explore(&[plan.clone()], Extent::default(), |_, _| {}).remove(0).text;
    let choices = found
        .split_once(text)
        .and_then(|(_, rest)| rest.split_once("--replay '"))
        .and_then(|(_, rest)| rest.split_once('\''))
        .unwrap_or_else(|| panic!("'{text}' is not found: {found}"))
        .0;
    foliant_explore::replay(&plan, choices).expect("it is well formed")
}

fn a_flush_that_is_not_waited_for_is_found() {
    let text = "no_stale_translation";
    let again = found_and_replayed("x86_64 base: Unmap | LoadTwice", Flaw::NoWait, text);
    assert!(again.contains(text), "{again}");
}

fn a_process_that_dies_is_found() {
    // Only where it copies does the first lane wait for the other CPU: both choices made before are
    // in the list.
    let name = "x86_64 base fork1: Write | Look";
    let again = found_and_replayed(name, Flaw::Aborts, "ended by signal 6");
    assert!(again.contains("ended by signal 6"), "{again}");
}

fn a_serial_order_tries_again_by_itself() {
    // The store splits what is shared, and tries again: that the fork comes behind all of it is
    // legal.
    let extent = Extent { schedules: 200, ..Extent::default() };
    let reports = explore(&[plan("x86_64 huge fork1: StoreEmpty | Fork")], extent, |_, _| {});
    assert_eq!(reports[0].failures, 0, "{}", reports[0].text);
}

fn a_limit_is_told() {
    let extent = Extent { schedules: 3, time: Duration::from_secs(9), ..Extent::default() };
    let reports = explore(&[plan("x86_64 base fork1: Write | Fork")], extent, |_, _| {});
    assert!(reports[0].is_cut && reports[0].schedules <= 4, "{reports:?}");
}
