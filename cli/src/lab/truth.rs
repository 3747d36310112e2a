//! `foliant lab --truth`: each scenario on the simulator and in the kernel, with the same
//! parameters, count by count.
//!
//! A count must be equal, or the difference has a written reason here.

use crate::args::{Lab, Size};
use crate::boot::{self, Mode, Options};
use crate::document::{self, Document};
use crate::failure::{Done, Failure, print};
use crate::progress;
use crate::scenario::{parse, simulate, with_model};
use crate::table::{Mark, count, marked_with_text};
use foliant_lab::{Parameters, Report, Row, Scenario};
use schemars::JsonSchema;
use serde::Serialize;

/// A difference that is known, and why it is no mistake.
struct Known {
    scenario: &'static str,
    count: &'static str,
    reason: &'static str,
}

/// Why misses stand on one side only.
const UNWATCHED: &str =
    "an emulator has no TLB of a real size to count; the caches are beside the simulator";

/// All of them.
const KNOWN: &[Known] = &[
    Known {
        scenario: "zero",
        count: "preemption_points",
        reason: "preemption points go by the machine's clock",
    },
    Known { scenario: "zero", count: "extents", reason: "preemption points cut extents" },
    Known {
        scenario: "zero",
        count: "stored_bytes",
        reason: "the simulated machine has no primitives to choose from",
    },
    Known { scenario: "vmalloc", count: "dtlb_misses", reason: UNWATCHED },
    Known { scenario: "vmalloc", count: "walk_steps", reason: UNWATCHED },
    thpscale("shootdowns"),
    thpscale("interrupts"),
    thpscale("folios_split"),
    thpscale("compact_stall"),
    thpscale("compact_success"),
    thpscale("blocks_emptied"),
    thpscale("pages_moved"),
];

/// A count of what it takes to make blocks.
const fn thpscale(count: &'static str) -> Known {
    let reason =
        "where tables and records lie decides which blocks can be emptied, and by how many moves";
    Known { scenario: "thpscale", count, reason }
}

/// One count on both machines.
#[derive(Serialize, JsonSchema, PartialEq, Eq, Debug)]
struct Pair {
    /// The scenario.
    scenario: String,
    /// The row of its report.
    row: String,
    /// The count's name.
    count: String,
    /// What the simulator counted; nothing where it has no such count.
    simulator: Option<u64>,
    /// What the kernel counted, likewise.
    kernel: Option<u64>,
    /// Why the two differ, where that is known.
    reason: Option<&'static str>,
}

/// Scenarios on the simulator and in the kernel, count by count.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Whole {
    /// Every count of every row.
    counts: Vec<Pair>,
}

impl Document for Whole {
    const NAME: &'static str = "lab-truth";
    const COMMAND: &'static str = "foliant lab --truth --json";
}

impl Pair {
    fn is_equal(&self) -> bool {
        self.simulator == self.kernel
    }
    fn is_explained(&self) -> bool {
        self.is_equal() || self.reason.is_some()
    }
}

pub(super) fn run(args: &Lab) -> Done {
    let mut pairs = Vec::new();
    for (scenario, parameters) in asked(&args.words, args.size)? {
        let adjust = |config| with_model(config, args);
        let simulated = simulate((scenario, &parameters), args.size, adjust)?;
        let real = in_the_kernel(args, scenario, parameters)?;
        pairs.extend(compare(&simulated, &real, KNOWN));
    }
    let (all, unexplained) =
        (pairs.len(), pairs.iter().filter(|pair| !pair.is_explained()).count());
    print(&match args.json {
        true => document::text(&Whole { counts: pairs })?,
        false => table(&pairs),
    })?;
    match unexplained {
        0 => Ok(()),
        n => Err(Failure::Coded(1, format!("{n} of {all} counts differ without a reason"))),
    }
}

/// The scenarios that the words name, or all. Parameters are those of the scenario named before
/// them.
fn asked(words: &[String], size: Size) -> Done<Vec<(Scenario, Parameters)>> {
    if words.is_empty() {
        let all =
            Scenario::ALL.iter().map(|scenario| parse(&scenario.to_string(), [].iter(), size));
        return all.collect();
    }
    let mut asked = Vec::new();
    let mut rest = words;
    while let Some((name, more)) = rest.split_first() {
        let parameters = more.iter().take_while(|word| word.contains('=')).count();
        let (mine, others) = more.split_at(parameters);
        asked.push(parse(name, mine.iter(), size)?);
        rest = others;
    }
    Ok(asked)
}

fn in_the_kernel(args: &Lab, scenario: Scenario, parameters: Parameters) -> Done<Report> {
    let guest = args.guest.clone();
    let mode = Mode::Lab(scenario, parameters);
    let options = Options { mode, size: args.size, guest };
    let spinner =
        progress::spinner(&format!("{scenario} in the kernel, {} CPUs", args.size.cpus()));
    let report = boot::reported(&options, |line| {
        spinner.suspend(|| crate::failure::tell(line));
        Ok(())
    });
    spinner.finish_and_clear();
    report
}

/// Every count of every row of both.
fn compare(simulated: &Report, real: &Report, known: &[Known]) -> Vec<Pair> {
    let row = |report: &Report, name: &str| -> Option<Row> {
        report.rows.iter().find(|row| row.name == name).cloned()
    };
    let mut pairs = Vec::new();
    let mut add = |name: &str| {
        let rows = [row(simulated, name), row(real, name)];
        let mut counts: Vec<&str> = Vec::new();
        for count in rows.iter().flatten().flat_map(|row| row.counts.iter().map(|(name, _)| name)) {
            if !counts.contains(&count) {
                counts.push(count);
            }
        }
        for count in counts {
            let [simulator, kernel] =
                [0, 1].map(|n| rows[n].as_ref().and_then(|row| row.counts.get(count).copied()));
            let is_it = |k: &&Known| k.scenario == simulated.scenario && k.count == count;
            let reason = known.iter().find(is_it).map(|k| k.reason);
            let reason = reason.filter(|_| simulator != kernel);
            let (scenario, row) = (simulated.scenario.to_string(), name.to_owned());
            pairs.push(Pair { scenario, row, count: count.to_owned(), simulator, kernel, reason });
        }
    };
    simulated.rows.iter().for_each(|row| add(&row.name));
    let only_there = |row: &&Row| simulated.rows.iter().all(|other| other.name != row.name);
    real.rows.iter().filter(only_there).for_each(|row| add(&row.name));
    pairs
}

fn table(pairs: &[Pair]) -> String {
    let value = |n: Option<u64>| n.map_or("-".to_owned(), count);
    let line = |pair: &Pair| {
        let (mark, verdict) = match pair.reason {
            _ if pair.is_equal() => (Mark::Plain, "equal"),
            Some(reason) => (Mark::Plain, reason),
            None => (Mark::Bad, "DIFFERENT"),
        };
        let what = format!("{}, {}: {}", pair.scenario, pair.row, pair.count.replace('_', " "));
        (mark, vec![what, value(pair.simulator), value(pair.kernel), verdict.to_owned()])
    };
    marked_with_text(&["count", "simulator", "kernel", ""], pairs.iter().map(line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use foliant_lab::Named;

    fn report(rows: &[(&'static str, &[(&'static str, u64)])]) -> Report {
        let row = |(name, counts): &(&'static str, &[(&'static str, u64)])| Row {
            name: (*name).into(),
            counts: counts.iter().copied().collect(),
            pages: 1,
            ticks: Named::from_iter([("all", 1)]),
        };
        Report {
            scenario: "flush".into(),
            machine: "simulator".into(),
            cpus: 2,
            parameters: Named::default(),
            page: "4k".into(),
            rows: rows.iter().map(row).collect(),
            ratios: Vec::new(),
        }
    }

    fn unexplained(pairs: &[Pair]) -> Vec<String> {
        let name = |pair: &Pair| format!("{} {}", pair.row, pair.count);
        pairs.iter().filter(|pair| !pair.is_explained()).map(name).collect()
    }

    #[test]
    fn what_differs_or_is_missing_on_one_side_is_found() {
        let one = report(&[("a", &[("faults", 1), ("leaves", 2)]), ("b", &[("faults", 3)])]);
        assert!(unexplained(&compare(&one, &one, KNOWN)).is_empty());
        let two =
            report(&[("a", &[("faults", 1), ("leaves", 3), ("more", 0)]), ("c", &[("x", 0)])]);
        let pairs = compare(&one, &two, KNOWN);
        assert_eq!(unexplained(&pairs), ["a leaves", "a more", "b faults", "c x"]);
        assert!(table(&pairs).contains("DIFFERENT"));
    }

    #[test]
    fn a_known_difference_has_its_reason() {
        let (one, two) = (report(&[("a", &[("faults", 1)])]), report(&[("a", &[("faults", 2)])]));
        let known = [Known { scenario: "flush", count: "faults", reason: "it is so" }];
        let pairs = compare(&one, &two, &known);
        assert!(unexplained(&pairs).is_empty());
        assert!(table(&pairs).contains("it is so"), "{}", table(&pairs));
        assert!(compare(&one, &one, &known)[0].reason.is_none(), "there is nothing to explain");
        document::tests::holds(&Whole { counts: pairs });
    }

    #[test]
    fn parameters_belong_to_the_scenario_before_them() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let size = Size { cpus: None, memory: None };
        let asked = asked(&words("flush pages=9 faults flush"), size).unwrap();
        let texts: Vec<String> =
            asked.iter().map(|(s, p)| format!("{s} {}", p.words().next().unwrap())).collect();
        assert_eq!(texts, ["flush pages=9", "faults bytes=8m", "flush pages=512"]);
        assert!(super::asked(&words("pages=9"), size).is_err());
    }
}
