//! Histories of the manager as it is: nothing is found.

use foliant_history::{
    Format, Go, Histories, History, Live, Refused, Report, Shape, Sizes, Small, Style,
};
use foliant_units::Order;

fn clean(shape: impl Fn(u64) -> Shape + Sync, seeds: core::ops::Range<u64>) -> Vec<Report> {
    let reports = Histories::seeds(seeds, 2, shape, |_| {});
    let bad: Vec<String> =
        reports.iter().filter(|report| !report.is_clean()).map(|r| r.to_string()).collect();
    assert!(bad.is_empty(), "{}", bad.join("\n"));
    reports
}

#[test]
fn histories_of_all_shapes_are_clean() {
    let reports = clean(|seed| Shape { steps: 800, ..Shape::of(seed) }, 0..30);
    // They go in and out of spaces often enough to say something about what is kept.
    let keeping = reports.iter().filter(|report| report.kept > 0).count();
    assert!(keeping > 20, "only {keeping} of {} histories kept translations", reports.len());
}

#[test]
fn every_format_is_clean() {
    let formats = [Format::X86Four, Format::X86Five, Format::Aarch64, Format::Sv39, Format::Sv48];
    for format in formats {
        clean(|seed| Shape { steps: 400, cpus: 4, format, ..Shape::of(seed) }, 100..104);
    }
}

#[test]
fn folding_histories_are_clean() {
    let style = Style::Folding;
    let reports = clean(|seed| Shape { steps: 1200, style, ..Shape::of(seed) }, 0..24);
    let folds: u64 = reports.iter().filter_map(|r| r.operations.get("fold")).sum();
    assert!(folds > 200, "only {folds} batches were folded");
    let live = Live::BreakBeforeMake;
    clean(|seed| Shape { steps: 1200, style, live, ..Shape::of(seed) }, 50..56);
}

#[test]
fn pooled_histories_are_clean() {
    let style = Style::Pooled;
    let reports = clean(|seed| Shape { steps: 1600, style, ..Shape::of(seed) }, 0..24);
    let sum = |name| reports.iter().filter_map(|r| r.operations.get(name)).sum::<u64>();
    assert!(sum("resize") > 100 && sum("fork") > 100 && sum("touch") > 1000);
    let live = Live::BreakBeforeMake;
    clean(|seed| Shape { steps: 1600, style, live, ..Shape::of(seed) }, 50..58);
}

#[test]
fn histories_of_kernel_ranges_are_clean() {
    let style = Style::Ranges;
    let reports = clean(|seed| Shape { steps: 1600, style, ..Shape::of(seed) }, 0..24);
    let sum = |name| reports.iter().filter_map(|r| r.operations.get(name)).sum::<u64>();
    assert!(sum("vmalloc") > 1000 && sum("vfree_atomic") > 100 && sum("protect") > 500);
    let live = Live::BreakBeforeMake;
    clean(|seed| Shape { steps: 1600, style, live, ..Shape::of(seed) }, 50..58);
}

/// With one CPU the model is exact; with several it knows which values may be found.
#[test]
fn histories_of_objects_are_clean() {
    let style = Style::Objects;
    let reports = clean(|seed| Shape { steps: 1600, style, ..Shape::of(seed) }, 0..24);
    let sum = |name| reports.iter().filter_map(|r| r.operations.get(name)).sum::<u64>();
    assert!(sum("resize") > 200 && sum("punch") > 200 && sum("move") > 300 && sum("fork") > 200);
    clean(|seed| Shape { steps: 800, style, cpus: 1, ..Shape::of(seed) }, 30..40);
    let live = Live::BreakBeforeMake;
    clean(|seed| Shape { steps: 1600, style, live, ..Shape::of(seed) }, 50..58);
    for format in [Format::Aarch64, Format::Sv39, Format::Sv48] {
        clean(|seed| Shape { steps: 800, cpus: 4, style, format, ..Shape::of(seed) }, 60..64);
    }
}

/// The shapes in which bugs are planted, without one: what is found there is the bug's doing.
#[test]
fn without_a_bug_the_seeds_of_the_planted_ones_are_clean() {
    for plant in foliant_history::plants() {
        clean(|seed| Shape { plant: None, ..Shape::planted(seed, plant) }, 0..1);
    }
}

#[test]
fn the_same_seed_gives_the_same_history() {
    for style in Style::ALL {
        let shape = Shape { steps: 500, style, refused: Refused::OneIn(30), ..Shape::of(5) };
        let (one, two) = (History::run(5, shape), History::run(5, shape));
        assert_eq!(one, two);
        assert_ne!(one.digest, History::run(6, shape).digest);
    }
}

/// The bytes that a fuzzer hands in decide, and nothing else but the seed does.
#[test]
fn draws_from_outside_decide() {
    for style in Style::ALL {
        let shape = Shape { cpus: 2, steps: 60, style, ..Shape::of(5) };
        let run = |bytes: &[u8]| History::run_drawn(5, shape, bytes);
        let bytes: Vec<u8> = (0..200u8).map(|n| n.wrapping_mul(167)).collect();
        let one = run(&bytes);
        assert!(one.is_clean(), "{one}");
        assert_eq!(one, run(&bytes));
        let other: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
        assert_ne!(one.operations, run(&other).operations, "{style}");
    }
}

#[test]
fn every_allocation_may_be_refused() {
    let runs = [1, 2, 3].map(|seed| {
        History::every_kth(seed, 80, |report| {
            assert!(report.is_clean(), "{report}");
            Go::On
        })
    });
    assert!(runs.iter().sum::<u64>() > 40, "only {runs:?} allocations");
}

#[test]
fn every_sequence_of_four_operations_is_clean() {
    for order in [Order::BASE, Order::new(2).expect("an order")] {
        let small = Small::run(4, order);
        assert!(small.findings.is_empty(), "{:#?}", small.findings);
        assert_eq!(small.sequences, 12 * 12 * 12 * 12);
    }
}

/// Sizes that the manager chooses: guesses are looked at and taken back beside everything else.
#[test]
fn guesses_are_made_and_taken_back() {
    for style in [Style::Partitioned, Style::Racing] {
        let shape = |seed| Shape { cpus: 4, style, sizes: Sizes::Auto, ..Shape::of(seed) };
        let reports = clean(shape, 320..336);
        let taken: u64 = reports.iter().map(|report| report.taken).sum();
        assert!(taken > 500, "{style}: {taken} pages were given back");
    }
}

/// Formats with groups of entries have them in histories, and take them apart.
#[test]
fn groups_are_made_and_taken_apart() {
    for format in [Format::Aarch64, Format::Sv39, Format::Sv48] {
        let shape = |seed| Shape { steps: 800, cpus: 4, format, ..Shape::of(seed) };
        let reports = clean(shape, 200..216);
        let [made, apart] = [0, 1].map(|nth| reports.iter().map(|r| r.groups[nth]).sum::<u64>());
        assert!(made > 50 && apart > 5, "{format:?}: {made} made, {apart} taken apart");
    }
    let x86 =
        clean(|seed| Shape { steps: 200, format: Format::X86Four, ..Shape::of(seed) }, 200..202);
    assert!(x86.iter().all(|report| report.groups == [0, 0]));
}
