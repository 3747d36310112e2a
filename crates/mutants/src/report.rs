//! What came out: a table by room, and those that survived.

use crate::known;
use crate::verdict::{Fate, Verdict};
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// How many tests are named of those that a survivor got past.
const TESTS_SHOWN: usize = 3;
/// A text of a survivor is cut after so many characters.
const TEXT_MOST: usize = 150;

/// All verdicts of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// How many mutants compile, by room.
    pub viable: BTreeMap<String, usize>,
    /// The verdicts, in the order of files and lines.
    pub verdicts: Vec<Verdict>,
}

#[derive(Default)]
struct Row {
    tried: usize,
    killed: usize,
    ran_away: usize,
    by: BTreeMap<String, usize>,
    equivalent: usize,
    unreached: usize,
    survived: usize,
    seconds: f64,
}

impl Row {
    fn add(&mut self, verdict: &Verdict) {
        self.tried += 1;
        self.seconds += verdict.seconds;
        match &verdict.fate {
            Fate::Killed { program, ran_away, .. } => {
                self.killed += 1;
                self.ran_away += usize::from(*ran_away);
                *self.by.entry(program.clone()).or_default() += 1;
            }
            Fate::Survived { tests, .. } => {
                self.survived += 1;
                self.unreached += usize::from(tests.is_empty());
            }
            Fate::Equivalent { .. } => self.equivalent += 1,
        }
    }

    /// How many of a hundred were noticed, of those that are mistakes.
    fn rate(&self) -> Option<f64> {
        let all = self.tried - self.equivalent;
        (all > 0).then(|| self.killed as f64 * 100.0 / all as f64)
    }
}

impl Report {
    /// The mutants that no test noticed.
    pub fn survivors(&self) -> impl Iterator<Item = &Verdict> {
        self.verdicts.iter().filter(|verdict| matches!(verdict.fate, Fate::Survived { .. }))
    }

    fn by_room(&self) -> (BTreeMap<&str, Row>, Row) {
        let (mut rooms, mut all) = (BTreeMap::<&str, Row>::new(), Row::default());
        for verdict in &self.verdicts {
            rooms.entry(&verdict.mutant.room).or_default().add(verdict);
            all.add(verdict);
        }
        (rooms, all)
    }

    /// The rows where fewer than `of_all` of a hundred mutants, or of a room's fewer than
    /// `of_room`, were noticed.
    pub fn too_few(&self, of_all: f64, of_room: f64) -> Vec<String> {
        let (rooms, all) = self.by_room();
        let rooms = rooms.iter().map(|(room, row)| (*room, row, of_room));
        let rows = std::iter::once(("all rooms", &all, of_all)).chain(rooms);
        rows.filter_map(|(name, row, least)| {
            let rate = row.rate().filter(|rate| *rate < least)?;
            Some(format!("{rate:.1} % were noticed of {name}, and not {least} %"))
        })
        .collect()
    }

    /// The table.
    pub fn table(&self) -> String {
        let (rows, all) = self.by_room();
        let programs: BTreeSet<&String> = all.by.keys().collect();
        let mut heads = vec!["room".to_owned(), "viable".into(), "tried".into()];
        heads.extend(programs.iter().map(|name| format!("by {name}")));
        heads.extend(
            ["killed", "out of time", "equivalent", "survived", "not reached", "rate", "s each"]
                .map(str::to_owned),
        );
        let mut table = Table::new();
        table.load_style(NOTHING);
        table.set_header(heads);
        let line = |name: &str, viable: usize, row: &Row| {
            let mut cells = vec![name.to_owned(), viable.to_string(), row.tried.to_string()];
            let by = |name: &&String| row.by.get(*name).copied().unwrap_or(0).to_string();
            cells.extend(programs.iter().map(by));
            cells.extend(
                [row.killed, row.ran_away, row.equivalent, row.survived, row.unreached]
                    .map(|n| n.to_string()),
            );
            cells.push(row.rate().map_or("-".into(), |rate| format!("{rate:.1} %")));
            cells.push(format!("{:.1}", row.seconds / row.tried.max(1) as f64));
            cells
        };
        for (name, row) in &rows {
            table.add_row(line(name, self.viable.get(*name).copied().unwrap_or(0), row));
        }
        let viable = rows.keys().filter_map(|name| self.viable.get(*name)).sum();
        table.add_row(line("all", viable, &all));
        for (at, column) in table.column_iter_mut().enumerate() {
            let side = if at == 0 { CellAlignment::Left } else { CellAlignment::Right };
            column.set_cell_alignment(side);
        }
        table.lines().fold(String::new(), |text, line| text + line.trim_end() + "\n")
    }

    /// Those that survived, and those that are listed, with what one needs to write a test.
    pub fn remarks(&self) -> String {
        let mut text = String::new();
        for verdict in &self.verdicts {
            let _ = match &verdict.fate {
                Fate::Survived { tests, asked } => {
                    writeln!(text, "survived: {}\n{}", head(verdict), reached(tests, *asked))
                }
                Fate::Equivalent { why } => {
                    writeln!(text, "equivalent: {}\n    {why}", head(verdict))
                }
                Fate::Killed { .. } => Ok(()),
            };
        }
        text
    }

    /// Rows for the list of the mutants that are no mistakes.
    pub fn rows(&self) -> String {
        self.survivors().map(|verdict| known::row(&verdict.mutant.name) + "\n").collect()
    }
}

/// Where and what, in three lines.
pub(crate) fn head(verdict: &Verdict) -> String {
    let mutant = &verdict.mutant;
    let name = &mutant.name;
    format!(
        "{}:{} {} ({})\n    - {}\n    + {}",
        name.file,
        mutant.line,
        name.function,
        mutant.kind,
        cut(&name.before),
        cut(&name.after)
    )
}

fn reached(tests: &[String], asked: usize) -> String {
    let shown = tests.iter().take(TESTS_SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match tests.len() {
        0 => "    no test reaches it".into(),
        n if n > asked => format!("    {n} tests reach it, {asked} were asked: {shown}, …"),
        n if n > TESTS_SHOWN => format!("    {n} tests reach it: {shown}, …"),
        n => format!("    {n} tests reach it: {shown}"),
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(TEXT_MOST) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
