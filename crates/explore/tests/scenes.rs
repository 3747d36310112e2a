//! Scenes that are explored whole, and one that must be found. A program of one thread: each branch of a schedule is a fork.

use foliant_explore::{Effort, Flaw, Operation, Outcome, Plan, explore, pairs, triples};
use std::collections::BTreeSet;
use std::time::Duration;

fn main() {
    let tests: &[(&str, fn())] = &[
        ("names_say_all_of_a_scene", names_say_all_of_a_scene),
        ("bad_names_are_refused", bad_names_are_refused),
        ("every_pair_is_named_once", every_pair_is_named_once),
        ("scenes_are_clean", scenes_are_clean),
        ("the_same_scene_gives_the_same_schedules", the_same_scene_gives_the_same_schedules),
        ("passes_leave_nothing_out", passes_leave_nothing_out),
        ("a_flush_that_is_not_waited_for_is_found", a_flush_that_is_not_waited_for_is_found),
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
fn explored(names: &[&str]) -> Vec<Outcome> {
    let plans: Vec<Plan> = names.iter().map(|name| plan(name)).collect();
    let mut outcomes = explore(&plans, Effort::default(), |_, _| {});
    outcomes.sort_by_key(|outcome| plans.iter().position(|plan| *plan == outcome.plan));
    outcomes
}

fn names_say_all_of_a_scene() {
    let names = [
        "x86_64 base: Write | ReadOnly",
        "aarch64 small fork1: Write + Load | Unmap & Compact",
        "riscv64 mega fork2 areas40 refuse1: EndChild | EndSecond | Mappings",
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
    let apart = 3;
    let all = Operation::ALL.len() - apart;
    assert_eq!(names.len(), all * (all + 1) / 2);
    assert_eq!(triples(folios).len(), 15 * 16 * 17 / 6);
}

fn scenes_are_clean() {
    let outcomes = explored(&[
        "x86_64 base fork1: Write | ReadOnly",
        "x86_64 mega: WriteHuge | DropHuge",
        "aarch64 small: WriteEmpty | DontNeed",
        "riscv64 base: Relocate | Load",
        "x86_64 base refuse1: WriteEmpty | Fork",
        "x86_64 mega: Compact & Collapse | Store",
    ]);
    for outcome in outcomes {
        assert_eq!(outcome.failures, 0, "{}: {}", outcome.plan, outcome.text);
        assert!(outcome.schedules > 4 && !outcome.is_cut, "{outcome:?}");
    }
}

fn the_same_scene_gives_the_same_schedules() {
    let numbers = |outcome: &Outcome| (outcome.schedules, outcome.points, outcome.pruned);
    let name = "x86_64 base fork1: Relocate | ChildWrite";
    let twice = explored(&[name, name]);
    assert_eq!(numbers(&twice[0]), numbers(&twice[1]));
}

fn passes_leave_nothing_out() {
    let in_passes = |passes| {
        let effort = Effort { passes, ..Effort::default() };
        let outcomes = explore(&[plan("x86_64 base fork1: Write | DontNeed")], effort, |_, _| {});
        assert!(!outcomes[0].is_cut, "{outcomes:?}");
        outcomes[0].schedules
    };
    // Each pass has schedules without a switch of its own.
    assert!(in_passes(8) > in_passes(1), "{} and {}", in_passes(8), in_passes(1));
}

fn a_flush_that_is_not_waited_for_is_found() {
    let mut plan = plan("x86_64 base: Unmap | LoadTwice");
    plan.flaw = Some(Flaw::NoWait);
    let outcomes = explore(&[plan.clone()], Effort::default(), |_, _| {});
    // And again, by the choices that it tells.
    let text = &outcomes[0].text;
    let choices = text
        .split_once("no_stale_translation")
        .and_then(|(_, rest)| rest.split_once("--replay '"))
        .and_then(|(_, rest)| rest.split_once('\''))
        .unwrap_or_else(|| panic!("a stale translation is not found: {text}"))
        .0;
    let again = foliant_explore::replay(&plan, choices).expect("it is well formed");
    assert!(again.contains("no_stale_translation"), "{again}");
}

fn a_limit_is_told() {
    let effort = Effort { schedules: 3, time: Duration::from_secs(9), ..Effort::default() };
    let outcomes = explore(&[plan("x86_64 base fork1: Write | Fork")], effort, |_, _| {});
    assert!(outcomes[0].is_cut && outcomes[0].schedules <= 4, "{outcomes:?}");
}
