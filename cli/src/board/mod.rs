//! The scoreboard: each system at grain 1 and at the chosen grain, in one measure, beside what was
//! published.
//!
//! ```text
//!   hugetlb   a pool of huge pages filled and emptied          modelled time of a page
//!   vmalloc   a hash table in kernel memory, probed            misses of the data TLB per probe
//!   split     faults in fragmented memory                      modelled time of a fault
//!   zero      huge pages cleared, on this machine's memory     real time of a page
//!   faults    a recorded C compilation, replayed               modelled kernel time
//! ```
//!
//! **Invariants**
//! - B1. In every measure less is better, and a ratio is the chosen grain's to that of grain 1.
//! - B2. Both columns come from one run of one code on one machine; what was published is another
//!   machine's, so ratios stand beside each other and values do not.
//! - B3. Every row names the command that shows all of it.
//!
//! **Not here**: the measuring of each system (`systems`, and the rooms behind it); the table
//! (`show`).
#![cfg(target_arch = "x86_64")]

mod show;
mod systems;

use crate::document::{self, Document};
use crate::failure::{Done, print};
use crate::progress;
use foliant_units::Bytes;
use schemars::JsonSchema;
use serde::Serialize;

/// A system, measured twice.
#[derive(Serialize, JsonSchema, Debug)]
pub(crate) struct Row {
    /// The system's name.
    pub(crate) system: &'static str,
    /// What was done.
    pub(crate) work: String,
    /// What grain 1 and the chosen grain are here.
    pub(crate) grains: [&'static str; 2],
    /// What `grain1` and `chosen` are, with the unit.
    pub(crate) measure: &'static str,
    /// At grain 1.
    pub(crate) grain1: f64,
    /// At the grain that is chosen.
    pub(crate) chosen: f64,
    /// Of `chosen` to `grain1`: less is better.
    pub(crate) ratio: f64,
    /// The same, elsewhere.
    pub(crate) published: Published,
    /// What was counted meanwhile.
    pub(crate) counts: Vec<Count>,
    /// The command that shows all of it.
    pub(crate) command: String,
}

/// What somebody else measured of the same idea, elsewhere.
#[derive(Serialize, JsonSchema, Debug)]
pub(crate) struct Published {
    /// What `grain1` and `chosen` are, with the unit.
    pub(crate) measure: &'static str,
    /// At grain 1.
    pub(crate) grain1: f64,
    /// At the grain that was chosen there.
    pub(crate) chosen: f64,
    /// Of `chosen` to `grain1`.
    pub(crate) ratio: f64,
    /// Who published it, and where.
    pub(crate) source: &'static str,
}

/// Something counted in both runs.
#[derive(Serialize, JsonSchema, Debug)]
pub(crate) struct Count {
    /// What was counted.
    pub(crate) name: &'static str,
    /// At grain 1.
    pub(crate) grain1: u64,
    /// At the grain that is chosen.
    pub(crate) chosen: u64,
}

/// How much of each is done.
pub(crate) struct Scale {
    pub(crate) pool_pages: u64,
    pub(crate) pool_cpus: usize,
    pub(crate) table: Bytes,
    pub(crate) threads: &'static [u64],
    pub(crate) cleared: Bytes,
    pub(crate) rounds: u32,
}

impl Scale {
    /// Large enough for the published effects, and together well below a minute and a half.
    pub(crate) const FULL: Scale = Scale {
        pool_pages: 20_000,
        pool_cpus: 252,
        table: Bytes::SIZE_1G,
        threads: &[1, 3, 5, 7, 12, 18, 24, 30, 32],
        cleared: Bytes::SIZE_1G,
        rounds: 3,
    };
    /// What takes a second or two.
    pub(crate) const QUICK: Scale = Scale {
        pool_pages: 1024,
        pool_cpus: 8,
        table: Bytes::new(64 << 20),
        threads: &[3],
        cleared: Bytes::new(8 << 20),
        rounds: 1,
    };
}

/// All systems at grain 1 and at the chosen grain, beside what was published.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Whole<'r> {
    /// In the order of the table.
    systems: &'r [Row],
}

impl Document for Whole<'_> {
    const NAME: &'static str = "lab";
    const COMMAND: &'static str = "foliant lab --json";
}

/// `foliant lab` without a name.
pub(crate) fn run(as_json: bool) -> Done {
    let rows = rows(&Scale::FULL)?;
    if as_json {
        print(&document::text(&Whole { systems: &rows })?)
    } else {
        print(&show::text(&rows))
    }
}

/// All systems, one after another.
pub(crate) fn rows(scale: &Scale) -> Done<Vec<Row>> {
    let bar = progress::bar("", systems::ALL.len() as u64);
    let row = |(name, system): &systems::Named| {
        bar.set_message(format!("measuring {name}"));
        let row = system(scale);
        bar.inc(1);
        row
    };
    let rows = systems::ALL.iter().map(row).collect();
    bar.finish_and_clear();
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_system_has_a_row_whose_counts_fall() {
        let rows = rows(&Scale::QUICK).unwrap();
        let names: Vec<_> = rows.iter().map(|row| row.system).collect();
        assert_eq!(names, ["hugetlb", "vmalloc", "split", "zero", "faults"]);
        for row in &rows {
            for (ratio, of, to) in [
                (row.ratio, row.chosen, row.grain1),
                (row.published.ratio, row.published.chosen, row.published.grain1),
            ] {
                assert!((ratio - of / to).abs() < 1e-9, "{row:?}");
                assert!(ratio.is_finite() && ratio > 0.0, "{row:?}");
            }
            assert!(row.published.ratio < 1.0, "{row:?}");
            assert!(row.command.starts_with("foliant "), "{row:?}");
            let first = &row.counts[0];
            assert!(first.chosen < first.grain1, "{row:?}");
            // Times of this machine's own are not asserted.
            assert!(row.system == "zero" || row.ratio < 1.0, "{row:?}");
        }
        let text = show::text(&rows);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for row in &rows {
            assert!(words.contains(&row.command) && words.contains(row.published.source), "{text}");
        }
        document::tests::holds(&Whole { systems: &rows });
        assert!(text.lines().all(|line| line.chars().count() <= 140), "{text}");
    }
}
