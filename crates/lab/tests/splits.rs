//! `split` and `thpscale` on the simulator: what they count, and what they leave behind.

use foliant_lab::{LabError, Parameters, Report, Row, Scenario};
use foliant_sim::{Config, CostModel};
use foliant_stage::SimStage;
use foliant_units::Bytes;

fn parameters(scenario: Scenario, words: &str) -> Parameters {
    Parameters::parse(scenario, words.split_whitespace()).unwrap()
}

fn run(scenario: Scenario, words: &str, cpus: usize, seed: u64) -> Report {
    let parameters = parameters(scenario, words);
    let memory = scenario.memory(&parameters).unwrap();
    let config = Config { model: CostModel::host_8_socket(), ..Config::seeded(cpus, memory, seed) };
    let machine = SimStage::machine(config).unwrap();
    let stage = SimStage::new(&machine).unwrap();
    let report = scenario.run(&stage, &parameters).unwrap();
    assert_eq!(stage_left(&stage), (0, "madvise whole".to_owned()), "it leaves nothing behind");
    let violations = machine.machine().finish();
    assert!(violations.is_empty(), "{violations:#?}");
    report
}
fn stage_left(stage: &SimStage<'_>) -> (u64, String) {
    use foliant_lab::Stage;
    let manager = stage.manager();
    (manager.anonymous().get(), format!("{} {}", manager.defrag(), manager.flush_grain()))
}

fn count(row: &Row, name: &str) -> u64 {
    *row.counts.get(name).unwrap_or_else(|| panic!("{} has no {name}", row.name))
}
fn ticks(row: &Row, name: &str) -> u64 {
    *row.ticks.get(name).unwrap_or_else(|| panic!("{} has no {name}", row.name))
}

/// 512 shootdowns for each mapping, one for each folio and space, one for 64 folios and each space:
/// of spaces that another CPU runs.
#[test]
fn shootdowns_go_by_entries_folios_and_lists() {
    let report = run(Scenario::Split, "spaces=1,3,4 folios=64", 4, 1);
    for (rows, asked) in report.rows.chunks(3).zip([1u64, 3, 3]) {
        for (row, each) in rows.iter().zip([512 * 64, 64, 1]) {
            assert_eq!(count(row, "folios_split"), 64, "{}", row.name);
            assert_eq!(count(row, "shootdowns"), asked * each, "{}", row.name);
            assert_eq!(count(row, "interrupts"), 3 * each, "{}", row.name);
        }
        let [entry, folio, list] = [0, 1, 2].map(|n| ticks(&rows[n], "all"));
        assert!(entry > 20 * folio && folio > list, "{report:#?}");
    }
    assert_eq!(report.ratios.len(), 12);
}

/// Folios of an object take as many: its own entries ask nobody.
#[test]
fn folios_of_an_object_are_split_with_as_many() {
    let report = run(Scenario::Split, "spaces=1,4 folios=64 memory=shared grains=folio,list", 4, 1);
    for (rows, asked) in report.rows.chunks(2).zip([1u64, 3]) {
        assert!(rows[0].name.starts_with("shared, "), "{}", rows[0].name);
        for (row, each) in rows.iter().zip([64, 1]) {
            assert_eq!(count(row, "folios_split"), 64, "{}", row.name);
            assert_eq!(count(row, "shootdowns"), asked * each, "{}", row.name);
            assert_eq!(count(row, "interrupts"), 3 * each, "{}", row.name);
        }
    }
    assert_eq!(report.ratios.len(), 4);
}

#[test]
fn who_runs_alone_asks_nobody() {
    let report = run(Scenario::Split, "spaces=1,5 folios=3", 1, 1);
    assert!(report.rows.iter().all(|row| count(row, "shootdowns") == 0));
    assert!(report.rows.iter().all(|row| count(row, "folios_split") == 3));
}

/// The published geometric mean of time is 0.79; modelled time is a count.
#[test]
fn a_batch_beats_grain_1_at_every_number_of_threads() {
    let report = run(Scenario::Thpscale, "workers=1,3,7,12 turns=96", 12, 1);
    let mut product = 1.0;
    for pair in report.rows.chunks(2) {
        let [one, whole] = [&pair[0], &pair[1]].map(|row| ticks(row, "both"));
        assert!(whole < one, "{}: {whole} and {one}", pair[1].name);
        product *= whole as f64 / one as f64;
        for row in pair {
            assert!(count(row, "compact_success") * 2 > count(row, "faults") / 2, "{row:?}");
            assert!(count(row, "folios_split") > 0 && count(row, "pages_moved") > 0, "{row:?}");
            assert!(ticks(row, "huge_50") <= ticks(row, "huge_95"));
            assert!(ticks(row, "huge_95") <= ticks(row, "huge_99"));
        }
    }
    let mean = f64::powf(product, 1.0 / 4.0);
    assert!(mean <= 0.79, "{mean}");
    assert_eq!(report.ratios.len(), 4);
}

/// Threads take turns, so the interleaving of their CPUs does not show.
#[test]
fn only_parameters_show() {
    let counts = |seed| {
        let report = run(Scenario::Thpscale, "workers=4 turns=24", 5, seed);
        let row = |row: &Row| row.counts.iter().map(|(_, n)| *n).collect::<Vec<_>>();
        report.rows.iter().map(row).collect::<Vec<_>>()
    };
    assert_eq!(counts(1), counts(2));
    let report = run(Scenario::Thpscale, "workers=2,9 turns=24 grains=whole", 4, 1);
    assert_eq!(
        (report.rows.len(), report.ratios.len()),
        (1, 0),
        "nine are more than there are CPUs"
    );
}

#[test]
fn too_little_memory_is_an_answer() {
    let machine = SimStage::machine(Config::seeded(2, Bytes::new(24 << 20), 1)).unwrap();
    let stage = SimStage::new(&machine).unwrap();
    let before = stage_left(&stage);
    for (scenario, words) in
        [(Scenario::Thpscale, "workers=2 turns=8"), (Scenario::Split, "folios=64 spaces=2")]
    {
        let done = scenario.run(&stage, &parameters(scenario, words));
        assert_eq!(done, Err(LabError::NoMemory), "{scenario}");
        assert_eq!(stage_left(&stage), before, "{scenario}");
    }
}
