//! The scenario `vmalloc` on the simulator: leaves, tables, misses beside, mapping time, waste, and
//! what it leaves behind.

use foliant::Event;
use foliant::vmap::{Controls, PurgeMode};
use foliant_lab::{LabError, Parameters, Report, Row, Scenario, Stage};
use foliant_sim::{Config, Failing};
use foliant_stage::SimStage;
use foliant_units::{Bytes, Pages};

const MB: u64 = 1 << 20;

fn parameters(words: &str) -> Parameters {
    Parameters::parse(Scenario::Vmalloc, words.split_whitespace()).unwrap()
}

fn run(config: Config, words: &str) -> Report {
    let machine = SimStage::machine(config).unwrap();
    let stage = SimStage::new(&machine).unwrap();
    let report = Scenario::Vmalloc.run(&stage, &parameters(words)).unwrap();
    assert_left_behind(&stage, Controls::DEFAULT);
    let violations = machine.machine().finish();
    assert!(violations.is_empty(), "{violations:#?}");
    report
}

/// L3: no area, in use or waiting, and the switches as they were.
fn assert_left_behind(stage: &SimStage<'_>, controls: Controls) {
    let counters = stage.manager().vmalloc_counters();
    assert_eq!((counters.areas, counters.pages, counters.lazy), (0, Pages::new(0), Pages::new(0)));
    assert_eq!(stage.manager().vmap().controls(), controls);
}

fn row<'r>(report: &'r Report, name: &str) -> &'r Row {
    report.rows.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no row {name}"))
}
fn count(row: &Row, what: &str) -> u64 {
    *row.counts.get(what).unwrap_or_else(|| panic!("{} has no {what}", row.name))
}
fn leaves(row: &Row) -> [u64; 3] {
    ["leaves_4k", "leaves_2m", "leaves_1g"].map(|what| count(row, what))
}
fn ratio(report: &Report, name: &str) -> (u64, u64) {
    let found = report.ratios.iter().find(|ratio| ratio.name == name);
    let found = found.unwrap_or_else(|| panic!("no ratio {name} in {:?}", report.ratios));
    (found.of, found.to)
}

/// HG4, at the size of a big server's directory cache: 4 KiB entries do not reach over it, those of
/// 2 MiB do.
#[test]
fn a_gigabyte_has_512_times_fewer_leaves_and_tables_and_28_times_fewer_misses() {
    let words = parameters("table-size=1g sizes=1");
    let report =
        run(Config::free(2, Scenario::Vmalloc.memory(&words).unwrap()), "table-size=1g sizes=1");
    assert_eq!(leaves(row(&report, "4k")), [262_144, 0, 0]);
    assert_eq!(leaves(row(&report, "2m")), [0, 512, 0]);
    assert_eq!(leaves(row(&report, "1g")), [0, 0, 1]);
    assert_eq!(leaves(row(&report, "rounded")), [0, 0, 1]);
    assert_eq!(ratio(&report, "leaves, 4k to 2m"), (262_144, 512));
    assert_eq!(ratio(&report, "table bytes, 4k to 2m"), (512 * 4096, 4096));
    let (of, to) = ratio(&report, "dtlb misses, 4k to 2m");
    // Nearly every probe misses by 4 KiB; by 2 MiB each leaf does once.
    assert!(of * 100 >= 98 * 262_144 && to == 512, "{of} to {to}");
    assert!(of >= 28 * to, "{of} to {to}");
    assert_eq!(count(row(&report, "1g"), "dtlb_misses"), 1);
    let (of, to) = ratio(&report, "walk steps, 4k to 2m");
    assert!(of >= 28 * to, "{of} to {to}");
    // Mapping takes at most 1/50: modelled, so a count.
    for what in ["map", "unmap"] {
        for leaf in ["2m", "1g"] {
            let name = format!("{what}, ioremap 1g by 4k to ioremap 1g by {leaf}");
            let (of, to) = ratio(&report, &name);
            assert!(of >= 50 * to && to > 0, "{name}: {of} to {to}");
        }
    }
}

#[test]
fn within_the_reach_of_4k_entries_only_the_first_probe_of_a_page_misses() {
    // 1,024 pages, 1,536 entries: every page that is probed at all is missed once.
    let report = run(Config::seeded(2, Bytes::new(512 * MB), 1), "table-size=4m sizes=1 device=4m");
    let base = row(&report, "4k");
    let misses = count(base, "dtlb_misses");
    assert!((600..=1024).contains(&misses), "{misses}");
    // With as many probes as pages, a share of 1 - 1/e of the pages is probed.
    assert!(misses.abs_diff(1024 * 632 / 1000) < 40, "{misses}");
    assert_eq!(count(row(&report, "2m"), "dtlb_misses"), 2);
    // Probes cost what the walks cost.
    assert_eq!(base.ticks.get("probe"), Some(&(21 * misses)));
}

#[test]
fn tails_are_split_and_only_rounding_wastes() {
    let report =
        run(Config::seeded(3, Bytes::new(512 * MB), 2), "table-size=2560k sizes=60 device=4m");
    assert_eq!(leaves(row(&report, "4k")), [640, 0, 0]);
    assert_eq!(leaves(row(&report, "2m")), [128, 1, 0]);
    assert_eq!(leaves(row(&report, "rounded")), [0, 2, 0]);
    let waste = |name: &str| count(row(&report, name), "waste_bytes");
    assert_eq!((waste("4k"), waste("2m"), waste("rounded")), (0, 0, 3 * MB / 2));
    // By 4 KiB two tables, in the place of one leaf and of the tail; with a leaf, its own table and
    // the tail's.
    let tables = |name: &str| count(row(&report, name), "table_bytes") / 4096;
    assert_eq!((tables("4k"), tables("2m"), tables("rounded")), (2, 2, 1));
    let (split, rounded) = (row(&report, "sizes, split"), row(&report, "sizes, rounded"));
    assert_eq!((count(split, "waste_bytes"), count(split, "areas")), (0, 60));
    let most = count(rounded, "waste_most");
    assert!(most > 0 && most < 2 * MB, "{most}");
    assert!(count(rounded, "waste_bytes") <= 60 * most);
    // Both mapped the same sizes; what is wasted was mapped on top.
    let mapped = |row: &Row| 4096 * (leaves(row)[0] + 512 * leaves(row)[1]);
    assert_eq!(mapped(split), 4096 * split.pages);
    assert_eq!(mapped(rounded), mapped(split) + count(rounded, "waste_bytes"));
}

#[test]
fn a_life_costs_one_shootdown_whatever_the_leaf_and_words_go_by_leaves() {
    for cpus in [1u64, 2, 7] {
        let report = run(
            Config::seeded(cpus as usize, Bytes::new(512 * MB), 3),
            "table-size=8m sizes=1 device=4m",
        );
        for row in report.rows.iter().filter(|row| row.counts.get("shootdowns").is_some()) {
            let asked = u64::from(cpus > 1);
            assert_eq!(count(row, "shootdowns"), asked, "{}", row.name);
            assert_eq!(count(row, "interrupts"), cpus - 1, "{}", row.name);
        }
        // A word for each leaf; two for the lock of a table, at each block of up to 1 MiB or each
        // leaf.
        assert_eq!(count(row(&report, "4k"), "entries_written"), 2048 + 2 * 8);
        // The places of all leaves were looked at before, by one more lock for the table.
        assert_eq!(count(row(&report, "2m"), "entries_written"), 4 + 2 * 4 + 2);
    }
}

/// The numbers of a scenario do not depend on what was mapped before it, nor on switches that
/// somebody set.
#[test]
fn a_second_run_counts_the_same_and_switches_come_back() {
    let machine = SimStage::machine(Config::seeded(2, Bytes::new(512 * MB), 4)).unwrap();
    let stage = SimStage::new(&machine).unwrap();
    let eager = Controls { purge: PurgeMode::Eager, ..Controls::DEFAULT };
    stage.manager().vmap().set_controls(eager);
    let run =
        || Scenario::Vmalloc.run(&stage, &parameters("table-size=6m sizes=20 device=4m")).unwrap();
    let counts = |report: &Report| {
        let each = |row: &Row| (row.name.to_string(), row.counts.clone());
        report.rows.iter().map(each).collect::<Vec<_>>()
    };
    let first = run();
    assert_left_behind(&stage, eager);
    assert_eq!(counts(&run()), counts(&first));
    assert!(machine.machine().finish().is_empty());
}

#[test]
fn running_out_of_memory_is_an_answer() {
    let machine = SimStage::machine(Config::seeded(2, Bytes::new(32 * MB), 1)).unwrap();
    let stage = SimStage::new(&machine).unwrap();
    for words in ["table-size=31m", "table-size=64m"] {
        let error = Scenario::Vmalloc.run(&stage, &parameters(words)).unwrap_err();
        let expect = words.ends_with("31m");
        assert_eq!(error == LabError::NoMemory, expect, "{error}");
        assert_left_behind(&stage, Controls::DEFAULT);
    }
    assert!(machine.machine().finish().is_empty());
}

#[test]
fn every_allocation_may_fail() {
    // Large leaves give way to small ones, so most failures are no errors.
    let (mut failed, mut gave_way) = (0, 0);
    for k in 1.. {
        let machine = SimStage::machine(Config::seeded(2, Bytes::new(64 * MB), 7)).unwrap();
        let stage = SimStage::new(&machine).unwrap();
        stage.manager().describe_all().unwrap();
        // Records and tables that stay are there before.
        let words = parameters("table-size=2500k sizes=3 device=2m");
        Scenario::Vmalloc.run(&stage, &words).unwrap();
        let used = || {
            let tables = stage.manager().total(Event::TableMade);
            let free = stage.manager().memory().free.get();
            free + tables - stage.manager().total(Event::TableFreed)
        };
        let before = used();
        machine.machine().fault_plan().set(Failing::Kth(k));
        let result = Scenario::Vmalloc.run(&stage, &words);
        let refused = machine.machine().fault_plan().refused();
        machine.machine().fault_plan().set(Failing::Nothing);
        assert_left_behind(&stage, Controls::DEFAULT);
        assert_eq!(used(), before, "allocation {k}");
        let violations = machine.machine().finish();
        assert!(violations.is_empty(), "allocation {k}: {violations:#?}");
        match result {
            Err(error) => {
                assert_eq!(error, LabError::NoMemory, "allocation {k}");
                failed += 1;
            }
            Ok(_) if refused == 0 => break,
            Ok(_) => gave_way += 1,
        }
    }
    assert!(failed > 0 && gave_way > 0, "{failed} failures, {gave_way} times smaller leaves");
}
