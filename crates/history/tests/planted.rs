//! Every planted bug is caught by the checker that is named for it.

use foliant_history::{CHECKERS, Plant, plants, run_planted};

#[test]
fn every_planted_bug_is_caught_by_name() {
    // A bug that was found has struck: else the report blames something that did not happen.
    let is_missed = |plant: &Plant| {
        let found = run_planted(*plant, 0..160).by_name; // one in twenty meets the rarest
        found.is_none_or(|report| report.struck == 0)
    };
    let missed: Vec<Plant> = std::thread::scope(|scope| {
        let halves = plants();
        let (low, high) = halves.split_at(halves.len() / 2);
        let (low, high) = (low.to_vec(), high.to_vec());
        let other = scope.spawn(move || low.into_iter().filter(is_missed).collect::<Vec<_>>());
        let mut missed: Vec<Plant> = high.into_iter().filter(is_missed).collect();
        missed.extend(other.join().expect("a planted bug panics inside its history only"));
        missed
    });
    assert!(missed.is_empty(), "not caught: {missed:?}");
}

#[test]
fn every_plant_has_a_name_and_a_checker_of_its_own() {
    for plant in plants() {
        assert_eq!(Plant::parse(plant.name()), Some(plant));
        let checkers = foliant_sim::CHECKERS.iter().chain(&CHECKERS);
        assert!(checkers.into_iter().any(|name| *name == plant.checker()), "{plant}");
    }
    assert!(plants().len() >= 12);
    assert_eq!(Plant::parse("no such bug"), None);
}
