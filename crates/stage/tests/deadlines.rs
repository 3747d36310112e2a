//! Deadlines for latency, in steps: at a scale that every run can afford.
//! `foliant lab deadlines full` measures the full one.

use foliant::manager::Setup;
use foliant::steps::{self, Critical};
use foliant::table::X86_64;
use foliant::vmap::Request;
use foliant::{Manager, Policy};
use foliant_lab::Stepped;
use foliant_sim::{Config, Sim};
use foliant_stage::{Row, Scale, deadlines};
use foliant_units::Bytes;

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

/// Empty tables are read in short sections, by a visit and by a look at tables: others wait for
/// their readers.
#[test]
fn finding_bv_a_reader_of_empty_tables_is_soon_over() {
    let sim = Sim::new(Config::seeded(1, Bytes::new(64 << 20), 1)).unwrap();
    let machine = Stepped::new(sim, steps::take, steps::rested);
    let memory = machine.machine().config().memory.clone();
    let setup = Setup::of(&memory, Policy::BASE_ONLY);
    let mm: Manager<'_, _, X86_64<4>> = Manager::new(&machine, &setup).unwrap();
    mm.online();
    let pages = 8192;
    let range = mm.vmalloc(&Request::of(Bytes::new(pages * 4096))).unwrap();
    mm.vfree(range.start()).unwrap();
    mm.purge_vmalloc(); // its tables are left
    let visit = || mm.vmap().apply(range, |_, _| panic!("nothing is mapped")).unwrap();
    let count = || assert_eq!(mm.kernel_tables().leaves(range).count(), 0);
    let first = || assert!(mm.kernel_tables().leaves(range).next().is_none());
    for read in [&visit as &dyn Fn(), &count, &first] {
        steps::reset();
        read();
        let [longest, all] = [steps::longest(Critical::Section), steps::taken()];
        assert!(all > pages && longest < 600, "{longest} of {all} steps in one section");
    }
}
