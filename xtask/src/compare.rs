//! Instructions of each operation that `foliant boot --lab compare --icount` counts, against a
//! table that is committed: what became slower is seen in the change that made it so.
//!
//! An emulator that counts instructions gives the same numbers in every run and on every host, so
//! a small step shows that no clock would show. It sees no cache miss and no waiting.
//!
//! **Not here**: the operations (`foliant-lab`), what Linux takes (`cli/src/lab/compare.rs`).

use crate::boot::qemu;
use crate::run::{foliant_output, root};
use clap::Args;
use serde_json::Value;
use std::fmt;
use std::fs;

/// The table, from the root of the workspace.
const TABLE: &str = "xtask/compare.tsv";
/// Its first lines.
const HEAD: &str = "\
# Guest instructions per unit of each row of `compare`, without clearing and copying (of `map, touch and
# unmap, a call` with them), by QEMU 7.2. `cargo xtask compare` counts them again and fails where one is
# worse by more than 2 %; `cargo xtask compare --accept` writes this file. They depend on the compiler,
# which rust-toolchain.toml pins: with another one write the file before anything else changes.
row\tcpus\tinstructions
";
/// Numbers of CPUs that are booted.
const CPUS: [u64; 2] = [1, 4];
/// A run that is short enough for every commit.
const PARAMETERS: [&str; 2] = ["pages=2048", "areas=10,1000"];
/// Instructions that a row may differ by, whatever part of it that is: more are not in the table.
const HANDFUL: f64 = 1.0;

/// Counts the instructions of each operation in the kernel, and looks whether one became worse.
#[derive(Args, Debug)]
pub(crate) struct Compare {
    /// Writes what is counted to the table, as what is right from now on
    #[arg(long)]
    accept: bool,
}

/// Instructions of one row with one number of CPUs.
#[derive(Clone, PartialEq, Debug)]
struct Count {
    row: String,
    cpus: u64,
    instructions: f64,
}

/// What became of a row.
#[derive(Clone, PartialEq, Debug)]
enum Change {
    Worse { before: Count, now: f64 },
    Better { before: Count, now: f64 },
    New(Count),
    Gone(Count),
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.cpus == 1 { "CPU" } else { "CPUs" };
        write!(f, "{} ({} {plural}): {:.1}", self.row, self.cpus, self.instructions)
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut change = |word, before: &Count, now: f64| {
            let percent = 100.0 * (now / before.instructions - 1.0);
            write!(f, "{word} {before} instructions before, {now:.1} now, {percent:+.1} %")
        };
        match self {
            Change::Worse { before, now } => change("worse: ", before, *now),
            Change::Better { before, now } => change("better:", before, *now),
            Change::New(now) => write!(f, "new:    {now} instructions, and no row of the table"),
            Change::Gone(before) => write!(f, "gone:   {before} instructions before, and not run"),
        }
    }
}

/// `cargo xtask compare`.
pub(crate) fn compare(asked: &Compare) -> Result<(), String> {
    if !qemu() {
        return Err("nothing to boot with".into());
    }
    match asked.accept {
        true => accept(),
        false => check(),
    }
}

fn accept() -> Result<(), String> {
    let before = read().unwrap_or_default(); // there may be none yet, or one that no longer reads
    let now = counted()?;
    for change in changes(&before, &now) {
        println!("{change}");
    }
    let path = root().join(TABLE);
    fs::write(&path, text(&now)).map_err(|e| format!("{TABLE}: {e}"))?;
    println!("{TABLE} has {} rows", now.len());
    Ok(())
}

/// Fails where a row is worse than the table says, or is not in it.
pub(crate) fn check() -> Result<(), String> {
    let before = read()?;
    let changes = changes(&before, &counted()?);
    for change in &changes {
        println!("{change}");
    }
    let is_fine = |change: &Change| matches!(change, Change::Better { .. });
    match changes.iter().filter(|change| !is_fine(change)).count() {
        0 => Ok(()),
        n => Err(format!(
            "{n} rows are worse than {TABLE} says, or are not the same rows; where that is meant: \
             cargo xtask compare --accept"
        )),
    }
}

/// Boots the kernel with each number of CPUs.
fn counted() -> Result<Vec<Count>, String> {
    let mut all = Vec::new();
    for cpus in CPUS {
        let words = cpus.to_string();
        let mut args = vec!["boot", "--lab", "compare", "--icount", "--json", "--cpus", &words];
        args.extend(PARAMETERS);
        let printed = foliant_output("instructions", &args)?;
        let report = serde_json::from_str(&printed).map_err(|e| format!("the report: {e}"))?;
        all.extend(rows(&report).ok_or("the report has a row without a number of instructions")?);
    }
    Ok(all)
}

fn rows(report: &Value) -> Option<Vec<Count>> {
    let cpus = report["cpus"].as_u64()?;
    let row = |row: &Value| {
        let instructions = (row["instructions"].as_f64()? * 10.0).round() / 10.0; // as it is written
        Some(Count { row: row["name"].as_str()?.to_owned(), cpus, instructions })
    };
    report["rows"].as_array()?.iter().map(row).collect()
}

fn read() -> Result<Vec<Count>, String> {
    let text = fs::read_to_string(root().join(TABLE))
        .map_err(|e| format!("{TABLE}: {e}; cargo xtask compare --accept writes it"))?;
    let lines = text.lines().filter(|line| !line.starts_with('#')).skip(1);
    lines.map(|line| parse(line).ok_or_else(|| format!("{TABLE} has a line {line:?}"))).collect()
}

fn parse(line: &str) -> Option<Count> {
    let cells: Vec<&str> = line.split('\t').collect();
    let [row, cpus, instructions] = cells.as_slice() else { return None };
    let (cpus, instructions) = (cpus.parse().ok()?, instructions.parse().ok()?);
    Some(Count { row: (*row).to_owned(), cpus, instructions })
}

fn text(counts: &[Count]) -> String {
    let line =
        |Count { row, cpus, instructions }: &Count| format!("{row}\t{cpus}\t{instructions:.1}\n");
    HEAD.to_owned() + &counts.iter().map(line).collect::<String>()
}

/// What is worth a word, in the order of the rows.
fn changes(before: &[Count], now: &[Count]) -> Vec<Change> {
    let same = |one: &Count, other: &Count| (&one.row, one.cpus) == (&other.row, other.cpus);
    let changed = |now: &Count| {
        let Some(before) = before.iter().find(|before| same(before, now)) else {
            return Some(Change::New(now.clone()));
        };
        let (before, now) = (before.clone(), now.instructions);
        let (old, slack) = (before.instructions, HANDFUL.max(before.instructions / 50.0));
        if now > old + slack {
            return Some(Change::Worse { before, now });
        }
        (now < old - slack).then_some(Change::Better { before, now })
    };
    let gone = before.iter().filter(|before| now.iter().all(|now| !same(before, now)));
    now.iter().filter_map(changed).chain(gone.cloned().map(Change::Gone)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(row: &str, cpus: u64, instructions: f64) -> Count {
        Count { row: row.to_owned(), cpus, instructions }
    }

    #[test]
    fn a_fiftieth_more_is_worse_and_a_handful_is_nothing() {
        let before = [count("a", 1, 1000.0), count("a", 4, 100.0), count("b", 1, 0.4)];
        let after = |a: f64, b: f64| {
            let now = [count("a", 1, a), count("a", 4, 100.0), count("b", 1, b)];
            changes(&before, &now)
        };
        for (a, b) in [(1000.0, 0.4), (1020.0, 0.5), (980.0, 1.4), (1019.9, 0.0)] {
            assert_eq!(after(a, b), [], "{a} {b}");
        }
        let worse = Change::Worse { before: before[0].clone(), now: 1020.1 };
        assert_eq!(after(1020.1, 0.4), [worse]);
        let better = Change::Better { before: before[0].clone(), now: 979.9 };
        assert_eq!(after(979.9, 0.4), [better]);
        let worse = Change::Worse { before: before[2].clone(), now: 1.5 };
        let said = "worse:  b (1 CPU): 0.4 instructions before, 1.5 now, +275.0 %";
        assert_eq!(worse.to_string(), said);
        assert_eq!(after(1000.0, 1.5), [worse]);
    }

    #[test]
    fn rows_come_and_go() {
        let (old, new) = (count("a", 4, 1.0), count("a", 1, 1.0));
        let changes = changes(std::slice::from_ref(&old), std::slice::from_ref(&new));
        assert_eq!(changes, [Change::New(new), Change::Gone(old)]);
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let report = serde_json::json!({ "cpus": 4, "rows": [
            { "name": "write fault, 4k", "instructions": 2590.26 },
            { "name": "drop, 2m", "instructions": 8.0 },
        ] });
        let counts = rows(&report).unwrap();
        assert_eq!(counts, [count("write fault, 4k", 4, 2590.3), count("drop, 2m", 4, 8.0)]);
        let text = text(&counts);
        let lines: Vec<Count> = text.lines().skip(5).filter_map(parse).collect();
        assert_eq!(lines, counts, "{text}");
        assert!(rows(&serde_json::json!({ "cpus": 4, "rows": [{ "name": "x" }] })).is_none());
    }

    #[test]
    fn the_table_is_one() {
        assert!(read().unwrap().len() > 50);
    }
}
