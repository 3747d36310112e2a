//! Deadlines for latency, in steps: at a scale that every run can afford.
//! `foliant lab deadlines full` measures the full one.

use foliant::steps::Critical;
use foliant_stage::{Row, Scale, deadlines};

/// Clearing the descriptors of a section, once for 128 MiB of memory, is the longest that a
/// reader's section takes.
const SECTION: u64 = 40_000;
/// Two passes over the words of a table, and what is said of each.
const TABLE: u64 = 6_000;
/// A batch of a pool.
const LEAF: u64 = 4_000;
/// The table entries of a stretch.
const MOVING: u64 = 100;
/// Under a space's writer or a long lock: for each area, and for each page of what was asked for.
/// Faults go on meanwhile, and the writer yields.
const AREA: u64 = 1_000;
const PAGE: u64 = 40;

#[test]
fn finding_r1_no_stay_is_longer_than_what_was_asked_for_allows() {
    let scale = Scale::SMALL;
    let long = scale.areas * AREA + scale.touched.get() / 4096 * PAGE;
    let mut rows = 0;
    let check = |row: &Row| {
        rows += 1;
        let bounds = [
            (Critical::Patient, long),
            (Critical::Long, long),
            (Critical::Leaf, LEAF),
            (Critical::Table, TABLE),
            (Critical::Section, SECTION),
            (Critical::Moving, MOVING),
        ];
        for (place, most) in bounds {
            let steps = row.longest(place);
            assert!(steps <= most, "{}: {steps} steps in {place:?}, {most} at most", row.operation);
        }
    };
    deadlines(scale, check).unwrap();
    assert!(rows > 40, "{rows} operations");
}

/// A count, not a time: the same at every run.
#[test]
fn steps_are_the_same_at_every_run() {
    let all = || {
        let mut rows: Vec<Row> = Vec::new();
        deadlines(Scale { areas: 100, ..Scale::SMALL }, |row| rows.push(row.clone())).unwrap();
        rows
    };
    assert_eq!(all(), all());
}
