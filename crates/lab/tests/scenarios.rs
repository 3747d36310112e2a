//! The scenarios on the simulator: what they count, that nothing but the parameters shows in it,
//! and what they leave behind.

use foliant_lab::{Counted, LabError, Parameters, Report, Row, Scenario, Stage};
use foliant_sim::{Checks, Config, Failing, Sim};
use foliant_stage::SimStage;
use foliant_units::{Bytes, Frame, FrameRange, Order, Pages};

const MB: u64 = 1 << 20;

fn seeded(cpus: usize, seed: u64) -> Config {
    Config::seeded(cpus, Bytes::new(256 * MB), seed)
}

fn run(config: Config, scenario: Scenario, words: &str) -> Report {
    let machine = SimStage::machine(config).unwrap();
    let stage = SimStage::new(&machine).unwrap();
    let report = on(&stage, scenario, words).unwrap();
    let violations = machine.machine().finish();
    assert!(violations.is_empty(), "{violations:#?}");
    report
}

fn on(stage: &SimStage<'_>, scenario: Scenario, words: &str) -> Result<Report, LabError> {
    let parameters = Parameters::parse(scenario, words.split_whitespace()).unwrap();
    scenario.run(stage, &parameters)
}

fn count(row: &Row, name: &str) -> u64 {
    *row.counts.get(name).unwrap_or_else(|| panic!("{} has no {name}", row.name))
}

/// The counts of all rows, without the ticks.
fn counts(report: &Report) -> Vec<(String, Vec<(String, u64)>)> {
    let row = |row: &Row| row.counts.iter().map(|(name, n)| (name.to_owned(), *n)).collect();
    report.rows.iter().map(|r| (r.name.to_string(), row(r))).collect()
}

#[test]
fn a_fault_maps_a_folio_and_every_frame_is_explained() {
    let report = run(seeded(3, 1), Scenario::Faults, "bytes=4m");
    assert_eq!(report.rows.len(), 3);
    let pages = 3 * 1024;
    for (row, order) in report.rows.iter().zip([0, 4, 9]) {
        let folio = Order::new(order).unwrap().pages().get();
        assert_eq!((count(row, "pages"), count(row, "faults")), (pages, pages / folio));
        let size_2m = order == 9;
        let tables = if size_2m { 0 } else { pages / 512 };
        assert_eq!(count(row, "tables"), tables, "{}", row.name);
        let leaves = if size_2m { pages / 512 } else { pages };
        assert_eq!(count(row, "leaves"), leaves);
        // A 2 MiB leaf keeps a table for its split.
        let kept = if size_2m { leaves } else { 0 };
        assert_eq!(count(row, "frames_used"), pages + tables + kept);
        let cleared = 4096 * (pages + tables + kept);
        assert_eq!(count(row, "cleared_bytes"), cleared, "{}", row.name);
        assert_eq!(count(row, "shootdowns") + count(row, "interrupts"), 0);
        assert_eq!(row.pages, 1024);
    }
    assert_eq!((report.ratios[0].of, report.ratios[0].to), (3072, 192));
}

#[test]
fn clearing_and_the_rest_are_told_apart() {
    let report = run(seeded(1, 1), Scenario::Faults, "bytes=8m");
    let ticks = |row: usize, name: &str| *report.rows[row].ticks.get(name).unwrap();
    // As many bytes are cleared for 4 KiB as for 64 KiB; each clear is rounded to a nanosecond.
    assert!(ticks(0, "clearing").abs_diff(ticks(1, "clearing")) < 100, "{report:?}");
    // Of the rest, 64 KiB takes at most 1/6 and 2 MiB at most 1/100: modelled time, so a count.
    assert!(ticks(1, "rest") * 6 <= ticks(0, "rest"), "{report:?}");
    assert!(ticks(2, "rest") * 100 <= ticks(0, "rest"), "{report:?}");
}

#[test]
fn the_grain_is_what_shootdowns_go_by() {
    let report = run(seeded(4, 1), Scenario::Flush, "pages=512 grains=1,64,whole");
    let row = |name: &str| report.rows.iter().find(|row| row.name == name).unwrap();
    for (grain, entries) in [("1", 1), ("64", 64), ("whole", 1000)] {
        for (phase, noted) in [("protect", 512u64), ("fork", 512), ("unmap", 513)] {
            let row = row(&format!("{phase}, grain {grain}"));
            let shootdowns = noted.div_ceil(entries);
            assert_eq!(count(row, "shootdowns"), shootdowns, "{}", row.name);
            assert_eq!(count(row, "interrupts"), 3 * shootdowns, "{}", row.name);
            assert_eq!(count(row, "faults"), 0);
        }
        let copy = row(&format!("copy, grain {grain}"));
        assert_eq!((count(copy, "faults"), count(copy, "shootdowns")), (512, 512));
        assert_eq!(count(copy, "copied_bytes"), 512 * 4096);
        assert_eq!(count(copy, "frames_used"), 512);
        assert_eq!(count(row(&format!("unmap, grain {grain}")), "frames_freed"), 513);
    }
    let ratio = |name: &str| report.ratios.iter().find(|ratio| ratio.name == name).unwrap();
    let shootdowns = ratio("shootdowns, unmap, grain 1 to whole");
    assert_eq!((shootdowns.of, shootdowns.to), (513, 1));
    let ticks = ratio("ticks, unmap, grain 1 to whole");
    assert!(ticks.of > 20 * ticks.to, "{ticks:?}");
}

#[test]
fn clearing_is_counted_by_extents_and_bytes() {
    let report = run(seeded(2, 1), Scenario::Zero, "bytes=8m block=32m");
    let row = |name: &str| report.rows.iter().find(|row| row.name == name).unwrap();
    let tables = 4 * 4096; // one for each folio, kept for its split
    for (name, extents) in [("page at a time", 4 * 513), ("extents", 4 * 3), ("plan", 4 * 3)] {
        let row = row(name);
        assert_eq!((count(row, "faults"), count(row, "spared_bytes")), (4, 0), "{name}");
        assert_eq!(count(row, "cleared_bytes"), 8 * MB + tables, "{name}");
        assert_eq!(count(row, "extents"), extents, "{name}");
    }
    let known = row("known zero");
    assert_eq!((count(known, "cleared_bytes"), count(known, "spared_bytes")), (tables, 8 * MB));
    let lent = row("lent block");
    assert_eq!(count(lent, "cleared_bytes"), 32 * MB);
    // 32 MiB at 10.4 GB/s, with 3 ms from one preemption point to the next: one, and two before the
    // rate is known, as this is the first clear that is timed.
    assert_eq!(count(lent, "preemption_points"), 3);
}

#[test]
fn one_cpu_asks_nobody() {
    let report = run(seeded(1, 1), Scenario::Flush, "pages=100");
    assert!(report.rows.iter().all(|row| count(row, "shootdowns") == 0));
    assert!(report.ratios.iter().any(|ratio| ratio.to == 0), "no ratio to nothing");
}

#[test]
fn what_is_compared_is_counted() {
    let words = "pages=1024 areas=10,200";
    let report = run(seeded(1, 1), Scenario::Compare, words);
    let row = |name: &str| {
        let row = report.rows.iter().find(|row| row.name == name);
        row.unwrap_or_else(|| panic!("no row {name}"))
    };
    let pages = 1024;
    for (size, faults) in [("4k", pages), ("64k", pages / 16), ("2m", pages / 512)] {
        let of = |what: &str| row(&format!("{what}, {size}"));
        let write = of("write fault");
        assert_eq!((count(write, "faults"), write.pages), (faults, pages), "{size}");
        // The area; for each leaf of 2 MiB a table, kept for its split, else those of its entries.
        assert_eq!(count(write, "cleared_bytes"), 4096 * (pages + pages / 512), "{size}");
        assert_eq!(count(of("populate"), "faults"), 0, "{size}");
        let again = of("write after the end");
        assert_eq!((count(again, "copied_bytes"), count(again, "cleared_bytes")), (0, 0), "{size}");
        assert_eq!(count(of("copy on write"), "copied_bytes"), 4096 * pages, "{size}");
        let leaves = if size == "2m" { pages / 512 } else { pages };
        assert_eq!(count(of("unmap"), "faults"), 0);
        for what in ["drop", "read-only", "writable", "fork and end", "unmap"] {
            let entries = count(of(what), "entries_written");
            assert!((leaves..pages * 3).contains(&entries), "{what}, {size}: {entries}");
        }
    }
    assert_eq!(count(row("read fault"), "faults"), pages);
    assert_eq!(count(row("map and unmap, a call"), "faults"), 0);
    assert_eq!(count(row("map, touch and unmap, a call"), "faults"), 256);
    assert_eq!((row("drop, a call").pages, row("pool, fill").pages), (256, 32));
    // What areas there are besides is nothing to a fault.
    let [few, many] = ["10", "200"].map(|n| row(&format!("write fault, {n} areas")));
    assert_eq!((few.pages, &few.counts), (512, &many.counts));
    assert!(report.rows.iter().all(|row| count(row, "shootdowns") == 0), "one CPU asks nobody");
}

#[test]
fn shared_pages_take_a_shootdown_a_call() {
    let report = run(seeded(4, 1), Scenario::Compare, "pages=512 rows=shared");
    assert_eq!(report.rows.len(), 9);
    for row in &report.rows {
        let how = row.name.rsplit(", ").next().unwrap();
        let ways = [("in one call", 1), ("by 32", 16), ("one by one", 512)];
        let calls = ways.into_iter().find(|(name, _)| *name == how).unwrap().1;
        assert_eq!((row.pages, count(row, "shootdowns")), (calls, calls), "{}", row.name);
        assert_eq!((count(row, "faults"), count(row, "copied_bytes")), (0, 0), "{}", row.name);
    }
}

/// L1: interleavings, real threads, memory with holes, more memory: the counts are the same.
#[test]
fn only_the_parameters_show_in_the_counts() {
    for (scenario, words) in [
        (Scenario::Faults, "bytes=2m"),
        (Scenario::Flush, "pages=700"),
        (Scenario::Zero, "bytes=4m block=2m"),
        (Scenario::Vmalloc, "table-size=5m sizes=20 device=34m"),
        (Scenario::Compare, "pages=512 areas=10 rows=sizes,calls,areas,shared"),
    ] {
        let expect = counts(&run(seeded(5, 1), scenario, words));
        let holes = |start, pages| FrameRange::new(Frame::new(start), Pages::new(pages)).unwrap();
        let memory = vec![holes(0x103, 0x7000), holes(0x9001, 0x2fff), holes(0x4_0000, 0x1_2345)];
        let free = Config::free(5, Bytes::new(1024 * MB));
        let machines = [
            ("another seed", seeded(5, 2)),
            ("holes", Config { memory, ..seeded(5, 3) }),
            ("threads", free.clone()),
            ("threads, checked", Config { checks: Checks::All, ..free }),
        ];
        for (what, config) in machines {
            assert_eq!(counts(&run(config, scenario, words)), expect, "{scenario}: {what}");
        }
    }
}

/// Free frames, switches: what a scenario must leave as it found it (L3).
fn state(machine: &Counted<Sim>, stage: &SimStage<'_>) -> (u64, String) {
    let manager = stage.manager();
    assert_eq!(manager.anonymous().get(), 0);
    let violations = machine.machine().violations();
    assert!(violations.is_empty(), "{violations:#?}");
    (manager.memory().free.get(), format!("{:?} {:?}", manager.policy(), manager.flush_grain()))
}

#[test]
fn running_out_of_memory_is_an_answer_and_leaves_nothing_behind() {
    let machine = SimStage::machine(Config::seeded(2, Bytes::new(16 * MB), 1)).unwrap();
    let stage = SimStage::new(&machine).unwrap();
    stage.manager().describe_all().unwrap();
    let before = state(&machine, &stage);
    for (scenario, words) in [
        (Scenario::Faults, "bytes=32m"),
        (Scenario::Faults, "bytes=8m sizes=2m"),
        (Scenario::Flush, "pages=4000"),
        (Scenario::Flush, "pages=2500"),
        (Scenario::Zero, "bytes=2m"),
        (Scenario::Zero, "bytes=32m"),
        (Scenario::Compare, "pages=8192"),
        (Scenario::Compare, "rows=split"),
        (Scenario::Compare, "rows=pool"),
    ] {
        assert_eq!(on(&stage, scenario, words), Err(LabError::NoMemory), "{words}");
        assert_eq!(state(&machine, &stage), before, "{words}");
    }
    for (scenario, words) in [
        (Scenario::Flush, "pages=100"),
        (Scenario::Compare, "pages=512 areas=10 rows=sizes,calls,areas,shared"),
    ] {
        assert!(on(&stage, scenario, words).is_ok());
        assert_eq!(state(&machine, &stage), before, "{words}");
    }
}

#[test]
fn more_than_there_are_addresses_for_is_refused() {
    let machine = SimStage::machine(seeded(3, 1)).unwrap();
    let stage = SimStage::new(&machine).unwrap();
    let error = on(&stage, Scenario::Faults, "bytes=512m").unwrap_err();
    assert_eq!(error.to_string(), "all CPUs together would touch 1536m; at most 1022m work");
}

#[test]
fn every_allocation_may_fail() {
    for (scenario, words) in
        [(Scenario::Faults, "bytes=2m sizes=64k,2m"), (Scenario::Flush, "pages=40 grains=8")]
    {
        let machine = SimStage::machine(Config::seeded(2, Bytes::new(64 * MB), 7)).unwrap();
        let stage = SimStage::new(&machine).unwrap();
        stage.manager().describe_all().unwrap();
        let before = state(&machine, &stage);
        let plan = machine.machine().fault_plan();
        let mut failed = 0;
        for k in 1.. {
            plan.set(Failing::Kth(k));
            let result = on(&stage, scenario, words);
            let refused = plan.refused();
            plan.set(Failing::Nothing);
            assert_eq!(state(&machine, &stage), before, "{scenario}, allocation {k}");
            match result {
                // A 64 KiB or 2 MiB folio that is not to be had is made of smaller ones.
                Err(error) => assert_eq!(error, LabError::NoMemory),
                Ok(_) if refused == 0 => break,
                Ok(_) => continue,
            }
            failed += 1;
        }
        assert!(failed > 3, "{scenario}: {failed} failures only");
    }
}

/// Of a scenario with thousands of allocations, some.
#[test]
fn a_comparison_that_is_refused_memory_leaves_nothing_behind() {
    let words = "pages=512 areas=10 sizes=4k rows=sizes,calls,areas";
    let machine = SimStage::machine(Config::seeded(2, Bytes::new(128 * MB), 7)).unwrap();
    let stage = SimStage::new(&machine).unwrap();
    stage.manager().describe_all().unwrap();
    let before = state(&machine, &stage);
    let plan = machine.machine().fault_plan();
    let mut failed = 0;
    for k in (0..12).map(|n| 1 + 7 * n * n * n) {
        plan.set(Failing::Kth(k));
        let result = on(&stage, Scenario::Compare, words);
        plan.set(Failing::Nothing);
        assert_eq!(state(&machine, &stage), before, "allocation {k}");
        if let Err(error) = result {
            assert_eq!(error, LabError::NoMemory);
            failed += 1;
        }
    }
    assert!(failed > 1, "{failed} failures only");
}
