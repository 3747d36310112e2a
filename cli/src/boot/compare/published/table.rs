//! What experiments took on several kernels, beside what was published: a table and a document.

use super::super::lines::Counted;
use super::experiment::{Experiment, Name};
use super::rows::{self, Published};
use crate::document::{self, Document};
use crate::failure::Done;
use crate::shown::shown;
use crate::table::{columns, count};
use crate::terminal::prose;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What a kernel did.
pub(super) struct Kernel {
    pub(super) name: String,
    /// By the row and by `before` or `after`.
    pub(super) counted: BTreeMap<(String, String), Counted>,
    /// Why not, by the row or the experiment.
    pub(super) cannot: BTreeMap<String, String>,
}

impl Kernel {
    pub(super) fn new(name: &str) -> Kernel {
        Kernel { name: name.to_owned(), counted: BTreeMap::new(), cannot: BTreeMap::new() }
    }
}

/// Experiments of published documents on several kernels.
#[derive(Serialize, JsonSchema, Debug)]
pub(crate) struct Whole {
    /// CPUs of each guest; a compilation has one.
    cpus: usize,
    /// In the order in which they were asked for.
    rows: Vec<Row>,
    /// What was not the same on all kernels: what the compiler said, and how it ended; and kernels
    /// that ended in the middle.
    differences: Vec<String>,
}

/// Something that was counted in two settings.
#[derive(Serialize, JsonSchema, Debug)]
struct Row {
    /// The experiment: `pool`, `touch`, `split`, `fragment`, `compile`, `vmalloc`.
    experiment: String,
    /// Its name.
    row: String,
    /// What happens.
    what: String,
    /// The two settings.
    settings: [String; 2],
    /// What is counted for each of.
    operation: String,
    /// What was published.
    published: Option<Published>,
    /// The kernels in the order in which they were named, Foliant's last.
    kernels: Vec<Cell>,
}

/// A row on a kernel.
#[derive(Serialize, JsonSchema, Debug)]
struct Cell {
    /// The kernel's name.
    kernel: String,
    /// In the first setting.
    before: Option<Counted>,
    /// In the second.
    after: Option<Counted>,
    /// Of instructions for an operation in the second setting to those in the first.
    ratio: Option<f64>,
    /// In the second setting, of Foliant's instructions for an operation to this kernel's.
    foliant_ratio: Option<f64>,
    /// Why a setting is not there.
    cannot: Option<String>,
}

impl Document for Whole {
    const NAME: &'static str = "compare-published";
    const COMMAND: &'static str = "foliant compare --json --published --kernel FILE";
}

/// Instructions for an operation.
fn each(counted: &Counted) -> f64 {
    counted.instructions as f64 / counted.operations.max(1) as f64
}
fn ratio(to: Option<&Counted>, of: Option<&Counted>) -> Option<f64> {
    let (to, of) = (each(to?), each(of?));
    (of > 0.0).then(|| to / of)
}

impl Whole {
    /// `kernels` has Foliant's last.
    pub(super) fn of(
        asked: &[Experiment],
        cpus: usize,
        kernels: &[Kernel],
        differences: Vec<String>,
    ) -> Whole {
        let mut rows: Vec<Row> = asked
            .iter()
            .flat_map(rows::of)
            .map(|row| Row {
                experiment: row.experiment.word().to_owned(),
                row: row.key.to_owned(),
                what: row.what.to_owned(),
                settings: row.settings,
                operation: row.operation.to_owned(),
                published: row.published,
                kernels: cells(kernels, row.key, row.experiment),
            })
            .collect();
        if Name::ALL.iter().all(|name| asked.iter().any(|one| one.name == *name)) {
            rows.push(unseen(kernels));
        }
        Whole { cpus, rows, differences }
    }
    pub(super) fn differences(&self) -> &[String] {
        &self.differences
    }
    /// For programs.
    pub(super) fn json(&self) -> Done<String> {
        document::text(self)
    }
    /// For people.
    pub(super) fn text(&self) -> String {
        let heads = [
            "",
            "settings",
            "published",
            "",
            "x",
            "kernel",
            "instructions",
            "",
            "x",
            "Foliant's : it",
            "interrupts",
            "",
        ];
        let lines = self.rows.iter().flat_map(|row| row.kernels.iter().map(|cell| line(row, cell)));
        let mut text = format!(
            "{} CPUs, for a compilation one. Instructions for each operation, of a compilation the \
             kernel's; interrupts that asked CPUs for a flush or a call, for all operations\n\n{}\n",
            self.cpus,
            columns(&heads, lines)
        );
        let mut remarks = String::new();
        for row in &self.rows {
            if let Some(it) = &row.published {
                let _ = writeln!(remarks, "{}: published are {} ({})", row.row, it.of, it.source);
            }
            for cell in &row.kernels {
                if let Some(why) = &cell.cannot {
                    let _ = writeln!(remarks, "{}, {}: {}", row.row, cell.kernel, shown(why));
                }
            }
        }
        text += &prose(&remarks);
        text
    }
}

fn cells(kernels: &[Kernel], row: &str, experiment: Name) -> Vec<Cell> {
    let of =
        |kernel: &Kernel, at: &str| kernel.counted.get(&(row.to_owned(), at.to_owned())).cloned();
    let foliant = kernels.last().and_then(|kernel| of(kernel, "after"));
    let cell = |kernel: &Kernel| {
        let [before, after] = ["before", "after"].map(|at| of(kernel, at));
        let cannot = || kernel.cannot.get(row).or_else(|| kernel.cannot.get(experiment.word()));
        let is_whole = before.is_some() && after.is_some();
        Cell {
            kernel: kernel.name.clone(),
            ratio: ratio(after.as_ref(), before.as_ref()),
            foliant_ratio: ratio(foliant.as_ref(), after.as_ref()),
            cannot: if is_whole { None } else { cannot().cloned() },
            before,
            after,
        }
    };
    kernels.iter().map(cell).collect()
}

/// The row that no program can have.
fn unseen(kernels: &[Kernel]) -> Row {
    let (published, why) = rows::unseen();
    let cell = |kernel: &Kernel| Cell {
        kernel: kernel.name.clone(),
        before: None,
        after: None,
        ratio: None,
        foliant_ratio: None,
        cannot: Some(why.to_owned()),
    };
    Row {
        experiment: "vmalloc".to_owned(),
        row: "vmalloc".to_owned(),
        what: "the kernel's tables".to_owned(),
        settings: ["4k", "2m"].map(str::to_owned),
        operation: "terabyte".to_owned(),
        published,
        kernels: kernels.iter().map(cell).collect(),
    }
}

fn line(row: &Row, cell: &Cell) -> Vec<String> {
    let nothing = || "-".to_owned();
    let times = |ratio: Option<f64>| ratio.map_or_else(nothing, |ratio| format!("{ratio:.2}"));
    let number = |number: Option<f64>| number.map_or_else(nothing, short);
    let published = row.published.as_ref();
    let each = |counted: &Option<Counted>| {
        counted.as_ref().map_or_else(nothing, |counted| count(each(counted).round() as u64))
    };
    let asked = |counted: &Option<Counted>| {
        // Linux has a CPU drop translations by a call, and counts it twice.
        let asked = |counted: &Counted| count(counted.shootdowns.max(counted.calls));
        counted.as_ref().map_or_else(nothing, asked)
    };
    vec![
        row.row.clone(),
        row.settings.join(", "),
        number(published.map(|it| it.before)),
        number(published.map(|it| it.after)),
        times(published.map(|it| it.ratio)),
        shown(&cell.kernel),
        each(&cell.before),
        each(&cell.after),
        times(cell.ratio),
        times(cell.foliant_ratio),
        asked(&cell.before),
        asked(&cell.after),
    ]
}

/// A number of any size, in few digits.
fn short(number: f64) -> String {
    match number {
        number if number >= 100.0 => count(number.round() as u64),
        number => format!("{number:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(name: &str, rows: &[(&str, &str, u64, u64)]) -> Kernel {
        let mut kernel = Kernel::new(name);
        for (row, at, instructions, shootdowns) in rows {
            let counted = Counted {
                operations: 10,
                instructions: *instructions,
                shootdowns: *shootdowns,
                calls: 1,
                ..Counted::default()
            };
            kernel.counted.insert(((*row).to_owned(), (*at).to_owned()), counted);
        }
        kernel
    }
    fn experiments(text: &str) -> Vec<Experiment> {
        text.split(',').map(|word| Experiment::parse(word).unwrap()).collect()
    }

    #[test]
    fn ratios_are_of_settings_and_of_kernels() {
        let mut linux = kernel(
            "Linux 6.12",
            &[("pool-grow", "before", 1000, 0), ("pool-grow", "after", 4000, 5)],
        );
        linux.cannot.insert("pool".to_owned(), "no pool".to_owned());
        let foliant =
            kernel("Foliant", &[("pool-grow", "before", 500, 0), ("pool-grow", "after", 600, 6)]);
        let whole = Whole::of(&experiments("pool=10"), 4, &[linux, foliant], Vec::new());
        document::tests::holds(&whole);
        let [grows, shrinks] = &whole.rows[..] else { panic!("{whole:?}") };
        let ratios = |row: &Row| -> Vec<_> {
            row.kernels.iter().map(|cell| (cell.ratio, cell.foliant_ratio)).collect()
        };
        assert_eq!(ratios(grows), [(Some(4.0), Some(0.15)), (Some(1.2), Some(1.0))]);
        assert_eq!(ratios(shrinks), [(None, None), (None, None)]);
        // What is whole has no reason not to be; what nobody gave a reason for has none.
        let cannot: Vec<_> = whole.rows.iter().flat_map(|row| &row.kernels).collect();
        let cannot: Vec<_> = cannot.iter().map(|cell| cell.cannot.as_deref()).collect();
        assert_eq!(cannot, [None, None, Some("no pool"), None]);
        let text = whole.text();
        assert!(text.contains("not folded, folded") && text.contains("1.77"), "{text}");
        assert!(text.contains("pool-shrink, Linux 6.12: no pool"), "{text}");
        let line = text.lines().find(|line| line.contains("Foliant  ")).unwrap();
        let cells: Vec<_> = line.split_whitespace().rev().take(6).collect();
        assert_eq!(cells, ["6", "1", "1.00", "1.20", "60", "50"], "{text}");
    }

    #[test]
    fn the_kernel_s_tables_are_a_row_where_all_is_asked_for() {
        let kernels = [kernel("Linux", &[]), kernel("Foliant", &[])];
        let of = |text: &str| Whole::of(&experiments(text), 4, &kernels, Vec::new());
        let all = of(Experiment::EACH);
        document::tests::holds(&all);
        let last = all.rows.last().unwrap();
        assert_eq!((last.row.as_str(), last.kernels.len()), ("vmalloc", 2));
        let text = all.text();
        let words: Vec<_> = text.split_whitespace().collect(); // a line may end between them
        assert!(words.windows(3).any(|it| it == ["`foliant", "lab", "vmalloc`"]), "{text}");
        assert!(of("pool,compile").rows.iter().all(|row| row.row != "vmalloc"));
    }
}
