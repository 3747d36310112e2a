//! The scenario `compare`: a table of its own, and what Linux takes beside it where ticks are
//! instructions.
//!
//! ```text
//!   report ─▶ rows per unit ──┐
//!   compare.tsv ─▶ Linux ─────┴─▶ Line ─▶ a table, JSON
//! ```
//!
//! Linux's numbers are instructions that a guest of the same emulator counted, each with a number
//! of CPUs: beside other ticks, or another number of CPUs, they say nothing and are not shown.
//!
//! **Not here**: the scenario (`foliant-lab`), whether a row has become worse (`xtask`).

use super::show::{heading, tenths};
use crate::args::Lab;
use crate::calibrate::model::caption;
use crate::document::{self, Document};
use crate::failure::{Done, print};
use crate::scenario::{simulate, with_model};
use crate::table::{columns, count};
use crate::terminal::prose;
use foliant_lab::{Named, Parameters, Report, Row, Scenario};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// Its head says how each number follows.
const LINUX: &str = include_str!("compare.tsv");

/// What a tick of a report is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Tick {
    /// An instruction of the guest.
    Instruction,
    /// Something that only ratios within one report are worth anything of.
    Other(String),
}

impl fmt::Display for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tick::Instruction => "guest instructions",
            Tick::Other(what) => what,
        })
    }
}

/// Which ticks of a row are compared.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(rename_all = "lowercase")]
enum Part {
    /// Those that are neither clearing nor copying.
    Rest,
    /// All of them: Linux's clearing cannot be told from the rest.
    All,
}

/// A line of the file.
struct Linux<'t> {
    row: &'t str,
    cpus: u64,
    part: Part,
    /// 6.1, 6.12, 7.2.
    instructions: [Option<f64>; 3],
}

/// A row of the report beside what Linux takes.
#[derive(Serialize, JsonSchema, Debug)]
struct Line<'r> {
    /// What was done.
    name: &'r str,
    /// How often: what ticks are divided by.
    units: u64,
    /// Which ticks are compared.
    part: Part,
    /// Guest instructions for a unit; nothing where ticks are something else.
    instructions: Option<f64>,
    /// What Linux 6.1 takes, where it was counted on as many CPUs.
    linux_6_1: Option<f64>,
    /// What Linux 6.12 takes.
    linux_6_12: Option<f64>,
    /// What Linux 7.2 takes.
    linux_7_2: Option<f64>,
    /// Of `instructions` to `linux_6_12`: less is better.
    ratio: Option<f64>,
    /// What was counted, by name.
    #[schemars(with = "BTreeMap<String, u64>")]
    counts: &'r Named<u64>,
    /// What it took in all: clearing, copying and the rest.
    #[schemars(with = "BTreeMap<String, u64>")]
    ticks: &'r Named<u64>,
}

/// Rows of work beside what Linux takes for the same.
#[derive(Serialize, JsonSchema, Debug)]
pub(crate) struct Whole<'r> {
    /// The scenario: `compare`.
    scenario: &'r str,
    /// Where it ran: `simulator`, `kernel`.
    machine: &'r str,
    /// On how many CPUs.
    cpus: u64,
    /// Its parameters.
    #[schemars(with = "BTreeMap<String, String>")]
    parameters: &'r Named<String>,
    /// In the order of the table.
    rows: Vec<Line<'r>>,
}

impl Document for Whole<'_> {
    const NAME: &'static str = "lab-compare";
    const COMMAND: &'static str = "foliant lab compare --json, foliant boot --lab compare --json";
}

/// `foliant lab compare`.
pub(super) fn run(args: &Lab, parameters: &Parameters) -> Done {
    let scenario = (Scenario::Compare, parameters);
    let report = simulate(scenario, args.size, |config| with_model(config, args))?;
    let model = caption(&args.model());
    let tick = Tick::Other(format!("nanoseconds of modelled kernel time, model {model}"));
    match args.json {
        true => print(&json(&report, &tick)?),
        false => print(&table(&report, &tick)),
    }
}

/// A line of the file, if it is one.
fn linux(line: &str) -> Option<Linux<'_>> {
    let cells: Vec<&str> = line.split('\t').collect();
    let [row, cpus, part, instructions @ ..] = cells.as_slice() else { return None };
    let part = match *part {
        "rest" => Part::Rest,
        "all" => Part::All,
        _ => return None, // the heads
    };
    let [old, long, new] = instructions else { return None };
    let instructions = [old, long, new].map(|cell| cell.parse().ok());
    Some(Linux { row, cpus: cpus.parse().ok()?, part, instructions })
}

fn lines<'r>(report: &'r Report, tick: &Tick) -> Vec<Line<'r>> {
    let line = |row: &'r Row| {
        let counted = *tick == Tick::Instruction;
        let linux = LINUX.lines().filter_map(linux).find(|linux| linux.row == row.name);
        let part = linux.as_ref().map_or(Part::Rest, |linux| linux.part);
        let known = linux.filter(|linux| counted && linux.cpus == report.cpus);
        let [linux_6_1, linux_6_12, linux_7_2] =
            known.map_or([None; 3], |linux| linux.instructions);
        let instructions = (counted && row.pages > 0).then(|| ticks(row, part) / row.pages as f64);
        let ratio = instructions.zip(linux_6_12).map(|(own, linux)| own / linux);
        Line {
            name: &row.name,
            units: row.pages,
            part,
            instructions,
            linux_6_1,
            linux_6_12,
            linux_7_2,
            ratio,
            counts: &row.counts,
            ticks: &row.ticks,
        }
    };
    report.rows.iter().map(line).collect()
}

fn ticks(row: &Row, part: Part) -> f64 {
    let compared = |name: &str| part == Part::All || name == "rest";
    row.ticks.iter().filter(|(name, _)| compared(name)).map(|(_, n)| *n as f64).sum()
}

/// The report as JSON, each row with what Linux takes.
pub(crate) fn json(report: &Report, tick: &Tick) -> Done<String> {
    document::text(&Whole {
        scenario: &report.scenario,
        machine: &report.machine,
        cpus: report.cpus,
        parameters: &report.parameters,
        rows: lines(report, tick),
    })
}

/// The report as a table, with what to know of it.
pub(crate) fn table(report: &Report, tick: &Tick) -> String {
    let own = match tick {
        Tick::Instruction => "instructions",
        Tick::Other(_) => "ticks",
    };
    let mut heads = vec!["row", own, "clearing", "copying", "faults", "shootdowns", "entries"];
    if *tick == Tick::Instruction {
        heads.extend(["Linux 6.1", "Linux 6.12", "Linux 7.2", "x 6.12"]);
    }
    let cells = |line: &Line<'_>| {
        let ticks =
            |name: &str| line.ticks.get(name).map_or("-".into(), |n| tenths(*n, line.units));
        let counted = |name: &str| line.counts.get(name).copied();
        let total = |name: &str| counted(name).map_or("-".into(), count);
        let mark = if line.part == Part::All { " *" } else { "" };
        let entries = counted("entries_written").map_or("-".into(), |n| tenths(n, line.units));
        let mut cells = vec![format!("{}{mark}", line.name), ticks("rest"), ticks("clearing")];
        cells.extend([ticks("copying"), total("faults"), total("shootdowns"), entries]);
        if *tick == Tick::Instruction {
            let theirs = [line.linux_6_1, line.linux_6_12, line.linux_7_2];
            cells.extend(
                theirs.map(|n| n.map_or("-".into(), |n| tenths((n * 10.0).round() as u64, 10))),
            );
            cells.push(line.ratio.map_or("-".into(), |ratio| format!("{ratio:.2}")));
        }
        cells
    };
    let lines = lines(report, tick);
    let rows = columns(&heads, lines.iter().map(cells));
    format!("{}\n{rows}\n{}", heading(report), below(tick))
}

/// What to know of the table.
fn below(tick: &Tick) -> String {
    let units = "A unit is a page of 4 KiB; of shared, and where the row says so, a call; of split and pool a folio of 2 MiB; of fork \
                 and end, empty both together. Ticks and entries are per unit, faults and shootdowns of the whole row. Clearing \
                 and copying are not in the first column.\n";
    prose(&match tick {
        Tick::Other(unit) => format!(
            "{units}Ticks are {unit}.\n\
             What Linux takes is counted in instructions: foliant boot --lab compare --icount shows it, and the ratios.\n"
        ),
        Tick::Instruction => format!(
            "{units}* compared with clearing in, on both sides.\n\
             Linux was counted with 1 CPU, the rows of shared (6.12 alone) with 4: --cpus says which of them are shown.\n\
             Not level ground: Linux's rows contain what it accounts (memcg, LRU, statistics) and, where a call is timed, the \
             system call; ours the lab's counting wrappers and no system call. -icount charges a locked instruction, an \
             invalidation and a cache miss as 1 each.\n"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use foliant_sim::Config;
    use foliant_stage::SimStage;
    use foliant_units::Bytes;

    fn row(name: &'static str, units: u64, ticks: [u64; 3]) -> Row {
        let [clearing, copying, rest] = ticks;
        Row {
            name: name.into(),
            counts: Named::from_iter([
                ("faults", 1234),
                ("shootdowns", 0),
                ("entries_written", 3 * units),
            ]),
            pages: units,
            ticks: Named::from_iter([("clearing", clearing), ("copying", copying), ("rest", rest)]),
        }
    }

    fn report(cpus: u64) -> Report {
        Report {
            scenario: "compare".into(),
            machine: "kernel".into(),
            cpus,
            parameters: Named::from_iter([("pages", "512".to_owned())]),
            page: "unit of the row".into(),
            rows: vec![
                row("unmap, 4k", 512, [0, 0, 512 * 511]),
                row("map, touch and unmap, a call", 10, [5_000, 0, 145_530]),
                row("shared, drop, one by one", 512, [0, 0, 512 * 11_108]),
                row("write fault, 10 areas", 512, [512 * 488, 0, 512 * 2_000]),
            ],
            ratios: Vec::new(),
        }
    }

    fn ratios(report: &Report, tick: &Tick) -> Vec<Option<String>> {
        let text = |line: &Line<'_>| line.ratio.map(|ratio| format!("{ratio:.2}"));
        lines(report, tick).iter().map(text).collect()
    }

    #[test]
    fn a_row_is_compared_where_linux_counted_the_same() {
        let some = |text: &str| Some(text.to_owned());
        let instruction = Tick::Instruction;
        assert_eq!(ratios(&report(1), &instruction), [some("0.50"), some("1.00"), None, None]);
        assert_eq!(ratios(&report(4), &instruction), [None, None, some("2.00"), None]);
        assert_eq!(ratios(&report(2), &instruction), [None, None, None, None]);
        let cycles = Tick::Other("cycles".to_owned());
        assert_eq!(ratios(&report(1), &cycles), [None, None, None, None]);
        assert!(lines(&report(1), &cycles).iter().all(|line| line.instructions.is_none()));
    }

    #[test]
    fn the_table_says_what_was_counted_and_what_is_not_level() {
        let text = table(&report(1), &Tick::Instruction);
        assert!(text.starts_with("compare in the kernel, 1 CPU: pages=512\n"), "{text}");
        let line = |text: &str, name: &str| -> Vec<String> {
            let line = text.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
            line.trim_start()[name.len()..].split_whitespace().map(str::to_owned).collect()
        };
        let unmap =
            ["511.0", "0.0", "0.0", "1,234", "0", "3.0", "1,230.0", "1,021.8", "1,139.5", "0.50"];
        assert_eq!(line(&text, "unmap, 4k"), unmap);
        assert_eq!(line(&text, "map, touch and unmap, a call")[..3], ["*", "14,553.0", "500.0"]);
        assert_eq!(line(&text, "write fault, 10 areas")[6..], ["-"; 4]);
        assert!(text.contains("Not level ground"), "{text}");
        let text = table(&report(1), &Tick::Other("of a cuckoo clock".to_owned()));
        assert_eq!(line(&text, "unmap, 4k"), &unmap[..6]);
        assert!(text.contains("Ticks are of a cuckoo clock.") && text.contains("--icount"));
        assert!(!text.contains("6.12"), "{text}");
    }

    #[test]
    fn each_line_of_the_file_is_of_a_row_that_is_run() {
        let words = ["pages=512", "areas=10"];
        let parameters = Parameters::parse(Scenario::Compare, words).unwrap();
        let memory = Scenario::Compare.memory(&parameters).unwrap();
        let machine = SimStage::machine(Config::free(1, Bytes::new(memory.get()))).unwrap();
        let stage = SimStage::new(&machine).unwrap();
        let report = Scenario::Compare.run(&stage, &parameters).unwrap();
        let mut names = Vec::new();
        let lines = LINUX.lines().filter(|line| !line.starts_with('#')).skip(1);
        for line in lines {
            let read = linux(line).unwrap_or_else(|| panic!("{line}"));
            let cells = line.split('\t').skip(3).zip(read.instructions);
            for (cell, number) in cells {
                assert!(cell == "-" || number.is_some_and(|n| n > 0.0), "{line}");
            }
            assert!(report.rows.iter().any(|row| row.name == read.row), "no row: {line}");
            assert_eq!(read.cpus, if read.row.starts_with("shared") { 4 } else { 1 }, "{line}");
            names.push(read.row);
        }
        let count = names.len();
        names.sort();
        names.dedup();
        assert!(count > 40 && names.len() == count, "a row is there twice, or lost: {count}");
    }
}
