//! What was measured of one program on several kernels, as a table and as a document.

use super::lines::{Counted, Measured, Round};
use crate::document::{self, Document};
use crate::failure::Done;
use crate::shown::shown;
use crate::table::{columns, count};
use foliant_units::{Bytes, Order};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsString;

/// One program on several kernels at several sizes of folios.
#[derive(Serialize, JsonSchema, Debug)]
pub(crate) struct Whole {
    /// The program and its arguments.
    command: Vec<String>,
    /// CPUs of each guest.
    cpus: usize,
    /// For each size the kernels in the order in which they were named, Foliant's last.
    rows: Vec<Row>,
    /// What was not the same everywhere: what the program said, and how it ended.
    differences: Vec<String>,
}

/// One kernel at one size. Medians of all rounds but the first, which reads the program's files.
#[derive(Serialize, JsonSchema, Debug)]
struct Row {
    /// Bytes of the folios that are switched on: 4096 for none.
    size: u64,
    /// The kernel's name.
    kernel: String,
    /// From before the program to behind its end, of all CPUs.
    instructions: u64,
    /// The program's own, as Foliant's kernel counted them at this size; with one CPU.
    program: Option<u64>,
    /// All others: the kernel's.
    in_kernel: Option<u64>,
    /// Foliant's of these to this kernel's.
    ratio: Option<f64>,
    /// Page faults of the program and its children.
    faults: u64,
    /// Folios that faults made in all rounds, by their bytes.
    folios: BTreeMap<u64, u64>,
    /// Interrupts that asked CPUs to drop translations.
    shootdowns: u64,
    /// Bytes that the program or a child of it had at most.
    peak: u64,
    /// Of the rounds that count, the least and the most instructions.
    spread: [u64; 2],
    /// How the program ended: `exit=0`, `signal=11`.
    end: String,
}

impl Document for Whole {
    const NAME: &'static str = "compare";
    const COMMAND: &'static str = "foliant compare --json --kernel FILE -- COMMAND";
}

/// The rounds that count: all but the first, where there is another one.
fn counted(rounds: &[Round]) -> &[Round] {
    if rounds.len() > 1 { &rounds[1..] } else { rounds }
}
/// The median; of two in the middle the lower one.
fn median(mut all: Vec<u64>) -> u64 {
    all.sort_unstable();
    all.get(all.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}
fn of(rounds: &[Round], what: impl Fn(&Round) -> u64) -> u64 {
    median(counted(rounds).iter().map(what).collect())
}

impl Whole {
    /// `all` has Foliant's kernel last.
    pub(super) fn of(
        command: &[OsString],
        sizes: &[Order],
        cpus: usize,
        all: Vec<Measured>,
    ) -> Whole {
        let mut whole = Whole {
            command: command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            cpus,
            rows: Vec::new(),
            differences: differences(&all),
        };
        for size in sizes.iter().map(|order| order.bytes().get()) {
            let rounds = |one: &Measured| one.rounds.get(&size).cloned().unwrap_or_default();
            let foliant = all.last().map(rounds).unwrap_or_default();
            // The clock counts all CPUs: where one is in ring 3, another one counts as well.
            let program = (cpus == 1).then(|| of(&foliant, |round| round.own));
            let in_kernel = |rounds: &[Round]| {
                Some(of(rounds, |round| round.instructions).saturating_sub(program?))
            };
            let ours = in_kernel(&foliant);
            let ratio = |theirs: u64| Some(ours? as f64 / theirs.max(1) as f64);
            for one in &all {
                let rounds = rounds(one);
                let instructions = || counted(&rounds).iter().map(|round| round.instructions);
                let theirs = in_kernel(&rounds);
                whole.rows.push(Row {
                    size,
                    kernel: one.name.clone(),
                    instructions: of(&rounds, |round| round.instructions),
                    program,
                    in_kernel: theirs,
                    ratio: theirs.and_then(ratio),
                    faults: of(&rounds, |round| round.faults),
                    folios: one.folios.get(&size).cloned().unwrap_or_default(),
                    shootdowns: of(&rounds, |round| round.shootdowns),
                    peak: of(&rounds, |round| round.peak.get()),
                    spread: [instructions().min().unwrap_or(0), instructions().max().unwrap_or(0)],
                    end: rounds.last().map(|round| round.end.how.clone()).unwrap_or_default(),
                });
            }
        }
        whole
    }
    /// What is not the same everywhere.
    pub(super) fn differences(&self) -> &[String] {
        &self.differences
    }
    /// What the kernel of this name took at a size, where the program's own is told apart.
    pub(super) fn counted(&self, kernel: &str, size: Bytes) -> Option<Counted> {
        let is_it = |row: &&Row| row.kernel == kernel && row.size == size.get();
        let row = self.rows.iter().find(is_it)?;
        Some(Counted {
            operations: 1,
            instructions: row.in_kernel?,
            elapsed: row.instructions,
            faults: row.faults,
            folios: row.folios.get(&Order::SIZE_2M.bytes().get()).copied().unwrap_or(0),
            shootdowns: row.shootdowns,
            ..Counted::default()
        })
    }
    /// For programs.
    pub(super) fn json(&self) -> Done<String> {
        document::text(self)
    }
    /// For people.
    pub(super) fn text(&self) -> String {
        let heads = [
            "size",
            "kernel",
            "instructions",
            "program's",
            "kernel's",
            "Foliant's : it",
            "faults",
            "folios",
            "shootdowns",
            "peak KiB",
            "end",
        ];
        let nothing = || "-".to_owned();
        let row = |row: &Row| {
            let folios: Vec<String> = row
                .folios
                .iter()
                .filter(|(_, n)| **n > 0)
                .map(|(of, n)| format!("{} of {}", count(*n), Bytes::new(*of)))
                .collect();
            vec![
                Bytes::new(row.size).to_string(),
                shown(&row.kernel),
                count(row.instructions),
                row.program.map_or_else(nothing, count),
                row.in_kernel.map_or_else(nothing, count),
                row.ratio.map_or_else(nothing, |ratio| format!("{ratio:.2}")),
                count(row.faults),
                if folios.is_empty() { nothing() } else { folios.join(", ") },
                count(row.shootdowns),
                count(row.peak >> 10),
                row.end.clone(),
            ]
        };
        let command: Vec<String> = self.command.iter().map(|word| shown(word)).collect();
        let cpus = if self.cpus == 1 { "1 CPU".to_owned() } else { format!("{} CPUs", self.cpus) };
        format!(
            "{}: {cpus}, instructions of the guest from before the program to behind its end\n\n{}",
            command.join(" "),
            columns(&heads, self.rows.iter().map(row))
        )
    }
}

/// What the program said, and how it ended, is to be the same in all rounds on all kernels.
fn differences(all: &[Measured]) -> Vec<String> {
    let ends = || {
        all.iter().flat_map(|one| {
            one.rounds.iter().flat_map(move |(size, rounds)| {
                rounds.iter().enumerate().map(move |(nth, round)| (one, *size, nth, &round.end))
            })
        })
    };
    let Some((first, first_size, _, expect)) = ends().next() else { return Vec::new() };
    let other = ends().filter(|(.., end)| *end != expect);
    let sentence = |(one, size, nth, end): (&Measured, u64, usize, &super::lines::End)| {
        let what = if end.how != expect.how {
            format!("ended with {} and not {}", end.how, expect.how)
        } else {
            "said something else".to_owned()
        };
        format!(
            "round {nth} on {} at {} {what} than on {} at {}",
            one.name,
            Bytes::new(size),
            first.name,
            Bytes::new(first_size)
        )
    };
    other.map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::compare::lines::tests::measured;

    fn line(nth: u32, ticks: u64, user: u64, output: &str) -> String {
        format!(
            "round size=65536 nth={nth} ticks={ticks} user={user} faults=7 peak=8 shootdowns=1 exit=0 length=5 output={output}"
        )
    }

    fn whole(outputs: [&str; 2], cpus: usize) -> Whole {
        let rounds = |name: &str, ticks: [u64; 3], user, output: &str| {
            let lines = [0, 1, 2].map(|nth| line(nth, ticks[nth as usize], user, output));
            let mut lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            lines.push("made size=65536 of=65536 folios=3");
            measured(name, &lines)
        };
        let linux = rounds("Linux 6.12", [9_999_000, 1_400_000, 1_500_000], 77, outputs[0]);
        let foliant = rounds("Foliant", [9_999_000, 1_200_000, 1_300_000], 1000, outputs[1]);
        let size = Order::fitting(Bytes::new(65536)).unwrap();
        Whole::of(&["tool".into()], &[size], cpus, vec![linux, foliant])
    }

    #[test]
    fn the_kernel_s_are_all_but_the_program_s() {
        let whole = whole(["a", "a"], 1);
        document::tests::holds(&whole);
        let [linux, foliant] = &whole.rows[..] else { panic!("{whole:?}") };
        assert_eq!((linux.instructions, linux.program), (1_400_000, Some(1_000_000)));
        assert_eq!((linux.in_kernel, foliant.in_kernel), (Some(400_000), Some(200_000)));
        assert_eq!((linux.ratio, foliant.ratio), (Some(0.5), Some(1.0)));
        assert_eq!(linux.spread, [1_400_000, 1_500_000]);
        let text = whole.text();
        assert!(text.contains("3 of 64k") && text.contains("0.50"), "{text}");
        assert!(whole.differences().is_empty());
    }

    #[test]
    fn with_several_cpus_the_program_s_own_is_not_told() {
        let whole = whole(["a", "a"], 2);
        document::tests::holds(&whole);
        assert!(whole.rows.iter().all(|row| (row.program, row.ratio) == (None, None)));
        assert!(whole.text().contains("2 CPUs"));
    }

    #[test]
    fn a_program_that_says_something_else_is_told() {
        let whole = whole(["a", "b"], 1);
        assert_eq!(whole.differences().len(), 3);
        assert!(whole.differences()[0].contains("round 0 on Foliant at 64k said something else"));
    }
}
