//! Tables for people: columns below plain heads.
//!
//! ```text
//!   it fits                 too wide: continued            too narrow for that: upright
//!    policy  faults  ms      policy  faults                policy  4k
//!    4k      26,716  39      4k      26,716                  faults  26,716
//!    only     6,251  18      only     6,251                  ms      39
//!                                                          policy  only
//!                            policy  ms                      faults  6,251
//!                            4k      39                      ms      18
//!                            only    18
//! ```
//!
//! **Invariants**
//! - C1. Every cell is shown, whatever the width, and no line is wider than the terminal
//!   (`terminal::width`).
//! - C2. Columns stay in their order. A table that is too wide is continued below itself, each part
//!   with the first column again; a last column of text is wrapped first. Where the first column
//!   and another one do not fit side by side, each row stands upright.
//! - C3. A column whose head is empty or not the only one of its name is read with its neighbour on
//!   the left, and stands in one part with it where that fits.
//!
//! **Not here**: what is in the tables.

use crate::terminal::{BAD, GOOD, entry_within, width, wrapped};
use clap::builder::styling::Style;
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use std::ops::Range;

/// How a row is shown where there are colours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mark {
    /// As any other.
    Plain,
    /// It is the one to choose.
    Best,
    /// It has failed.
    Bad,
}

/// Columns of text that may be wrapped are at least so wide.
const TEXT_LEAST: usize = 24;
/// What stands between two columns.
const GAP: usize = 2;

/// Right-aligned columns below plain heads, the first one left-aligned.
pub(crate) fn columns(
    heads: &[impl ToString],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    marked(heads, rows.into_iter().map(|row| (Mark::Plain, row)))
}

/// [`columns`] some of whose rows are marked.
pub(crate) fn marked(
    heads: &[impl ToString],
    rows: impl IntoIterator<Item = (Mark, Vec<String>)>,
) -> String {
    let side = |at| if at == 0 { CellAlignment::Left } else { CellAlignment::Right };
    Grid::new(heads, rows, side).within(width())
}

/// [`marked`] with a last column of text.
pub(crate) fn marked_with_text(
    heads: &[impl ToString],
    rows: impl IntoIterator<Item = (Mark, Vec<String>)>,
) -> String {
    let last = heads.len() - 1;
    let is_left = |at| at == 0 || at == last;
    let side = |at| if is_left(at) { CellAlignment::Left } else { CellAlignment::Right };
    Grid::new(heads, rows, side).within(width())
}

/// Left-aligned columns below plain heads, the last one of text.
pub(crate) fn columns_left<const N: usize>(
    heads: &[&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let rows = rows.into_iter().map(|row| (Mark::Plain, Vec::from(row)));
    Grid::new(heads, rows, |_| CellAlignment::Left).within(width())
}

/// A table before its layout.
struct Grid {
    heads: Vec<String>,
    rows: Vec<(Mark, Vec<String>)>,
    sides: Vec<CellAlignment>,
    /// Columns of the terminal that each takes, head and cells.
    widths: Vec<usize>,
}

impl Grid {
    fn new(
        heads: &[impl ToString],
        rows: impl IntoIterator<Item = (Mark, Vec<String>)>,
        side: impl Fn(usize) -> CellAlignment,
    ) -> Grid {
        let heads: Vec<String> = heads.iter().map(|head| head.to_string()).collect();
        let rows: Vec<(Mark, Vec<String>)> = rows.into_iter().collect();
        let mut table = Table::new();
        table.set_header(&heads).add_rows(rows.iter().map(|(_, cells)| cells));
        let widths = table.column_max_content_widths().into_iter().map(usize::from).collect();
        let sides = (0..heads.len()).map(side).collect();
        Grid { heads, rows, sides, widths }
    }

    /// The one rule of layout (C2).
    fn within(&self, width: usize) -> String {
        match self.parts(width) {
            Some(parts) => {
                let part = |columns: &Range<usize>| self.part(columns, width);
                parts.iter().map(part).collect::<Vec<_>>().join("\n")
            }
            None => self.upright(width),
        }
    }

    /// Which columns beside the first one stand in each part; nothing where some fit in none.
    fn parts(&self, width: usize) -> Option<Vec<Range<usize>>> {
        let fits = |columns: &Range<usize>| self.need(columns) <= width;
        let mut parts: Vec<Range<usize>> = Vec::new();
        for group in self.groups() {
            let wider = |last: &Range<usize>| last.start..group.end;
            match parts.last_mut() {
                Some(last) if fits(&wider(last)) => *last = wider(last),
                _ if fits(&group) => parts.push(group),
                _ => parts.extend(group.map(|at| at..at + 1)),
            }
        }
        parts.iter().all(fits).then_some(parts)
    }

    /// Columns that are read together (C3).
    fn groups(&self) -> Vec<Range<usize>> {
        let is_read_alone = |at: usize| {
            let head = &self.heads[at];
            !head.is_empty()
                && self.heads.iter().skip(1).filter(|other| *other == head).count() == 1
        };
        let mut groups: Vec<Range<usize>> = Vec::new();
        for at in 1..self.heads.len() {
            match groups.last_mut() {
                Some(group) if !is_read_alone(at) => group.end = at + 1,
                _ => groups.push(at..at + 1),
            }
        }
        groups
    }

    /// Whether a column is of text that may be wrapped.
    fn is_text(&self, at: usize) -> bool {
        at > 0 && at + 1 == self.heads.len() && self.sides[at] == CellAlignment::Left
    }

    /// What a line of the first column and these takes at least: a space, and what is between them.
    fn need(&self, columns: &Range<usize>) -> usize {
        let least = |at: usize| match self.is_text(at) {
            true => self.widths[at].min(TEXT_LEAST),
            false => self.widths[at],
        };
        1 + self.widths[0] + columns.clone().map(|at| GAP + least(at)).sum::<usize>()
    }

    fn part(&self, columns: &Range<usize>, width: usize) -> String {
        let shown = || std::iter::once(0).chain(columns.clone());
        let mut table = Table::new();
        table.load_style(NOTHING);
        table.set_header(shown().map(|at| &self.heads[at]));
        let mut marks = vec![Mark::Plain];
        for (mark, cells) in &self.rows {
            let cell = |at: usize| match self.is_text(at) {
                true => {
                    let others = self.need(&(columns.start..at)) + GAP;
                    wrapped(&cells[at], width - others)
                }
                false => vec![cells[at].clone()],
            };
            let cells: Vec<Vec<String>> = shown().map(cell).collect();
            let height = cells.iter().map(Vec::len).max().unwrap_or_default();
            marks.extend(std::iter::repeat_n(*mark, height));
            table.add_row(cells.iter().map(|lines| lines.join("\n")));
        }
        for (column, at) in table.column_iter_mut().zip(shown()) {
            column.set_cell_alignment(self.sides[at]);
        }
        table.lines().zip(marks).map(|(line, mark)| mark.line(line.trim_end())).collect()
    }

    /// Each row for itself: its first cell, and below it a line for each other one.
    fn upright(&self, width: usize) -> String {
        let longest = self.heads.iter().skip(1).map(|head| head.len()).max().unwrap_or_default();
        let mut text = String::new();
        for (mark, cells) in &self.rows {
            let first = format!("{}  {}", self.heads[0], cells[0].trim());
            for line in wrapped(first.trim(), width) {
                text += &mark.line(&line);
            }
            for (head, cell) in self.heads.iter().zip(cells).skip(1) {
                if !cell.is_empty() {
                    text += &entry_within(&format!("  {head}"), longest + 2 + GAP, cell, width);
                }
            }
        }
        text
    }
}

impl Mark {
    /// A line in this colour.
    fn line(self, line: &str) -> String {
        let style = match self {
            Mark::Plain => Style::new(),
            Mark::Best => GOOD,
            Mark::Bad => BAD,
        };
        format!("{style}{line}{style:#}\n")
    }
}

/// `26716` as `26,716`.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes in MiB, with a tenth.
pub(crate) fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

/// At most `most` characters, the last one a sign that more follow.
pub(crate) fn shorten(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_texts_cut() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(shorten("abc", 3), "abc");
        assert_eq!(shorten("abcd", 3), "ab…");
    }

    /// A table of figures, or with a last column of text.
    fn grid(heads: &[&str], rows: &[&[&str]], is_text: bool) -> Grid {
        let row = |cells: &&[&str]| (Mark::Plain, cells.iter().map(|c| (*c).to_owned()).collect());
        let last = heads.len() - 1;
        Grid::new(heads, rows.iter().map(row), |at| match at == 0 || is_text && at == last {
            true => CellAlignment::Left,
            false => CellAlignment::Right,
        })
    }

    /// What is shown at each width: all at once, in parts, upright.
    #[test]
    fn a_table_fits_or_is_continued_or_stands_upright() {
        let grid = grid(
            &["policy", "faults", "ms", "x 4k", "MiB", "x 4k"],
            &[
                &["4k", "26,716", "39.1", "1.000", "93.6", "1.000"],
                &["thp", "9", "8", "7", "6", "5"],
            ],
            false,
        );
        let whole = concat!(
            " policy  faults    ms   x 4k   MiB   x 4k\n",
            " 4k      26,716  39.1  1.000  93.6  1.000\n",
            " thp          9     8      7     6      5\n",
        );
        assert_eq!(grid.within(usize::MAX), whole);
        assert_eq!(grid.within(41), whole);
        let continued = concat!(
            " policy  faults    ms   x 4k\n",
            " 4k      26,716  39.1  1.000\n",
            " thp          9     8      7\n\n",
            " policy   MiB   x 4k\n",
            " 4k      93.6  1.000\n",
            " thp        6      5\n",
        );
        assert_eq!(grid.within(40), continued, "a ratio stays with what it is of");
        assert!(grid.within(15).starts_with(" policy  faults\n"), "{}", grid.within(15));
        let upright = concat!(
            "policy  4k\n  faults  26,716\n  ms      39.1\n  x 4k    1.000\n  MiB     93.6\n  x 4k    1.000\n",
            "policy  thp\n  faults  9\n  ms      8\n  x 4k    7\n  MiB     6\n  x 4k    5\n",
        );
        let narrow = grid.upright(40);
        assert_eq!(narrow, upright);
        let below: String = upright.replace("  26", "\n    26");
        assert_eq!(
            grid.within(14).split_whitespace().collect::<Vec<_>>(),
            below.split_whitespace().collect::<Vec<_>>()
        );
    }

    #[test]
    fn text_is_wrapped_before_a_table_is_continued() {
        let about = "other CPUs are not asked to invalidate";
        let grid =
            grid(&["bug", "n", "what"], &[&["skip", "1", about], &["late", "2", "no"]], true);
        let expect = concat!(
            " bug   n  what\n",
            " skip  1  other CPUs are not asked\n",
            "          to invalidate\n",
            " late  2  no\n",
        );
        assert_eq!(grid.within(35), expect);
        let expect = "bug  skip\n  n     1\n  what\n    other CPUs are not\n    asked to invalidate\nbug  late\n  n     2\n  what  no\n";
        let squeezed = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(squeezed(&grid.within(30)), squeezed(expect));
    }

    /// C1, for every width that a terminal may have.
    #[test]
    fn nothing_is_lost_at_any_width() {
        let heads = ["what it is", "simulator", "", "x", "x", "verdict"];
        let row = [
            "thpscale, fault-both-12: compact stall",
            "1,234,567",
            "fitted",
            "0.5",
            "0.7",
            "where tables lie decides",
        ];
        let grid = grid(&heads, &[&row, &row], true);
        let words = |text: &str| {
            let mut words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            words.sort();
            words
        };
        for width in 20..200 {
            let text = grid.within(width);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
            for word in row.iter().flat_map(|cell| cell.split(' ')) {
                let n = words(&text).iter().filter(|other| *other == word).count();
                assert!(n >= 2, "{width}: {word} is missing: {text}");
            }
        }
    }

    #[test]
    fn a_marked_row_alone_has_a_colour() {
        let row = |mark, name: &str| (mark, vec![name.to_owned(), "1".to_owned()]);
        let rows = [row(Mark::Plain, "a"), row(Mark::Best, "b"), row(Mark::Bad, "c")];
        let text = marked(&["x", "y"], rows);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..2], [" x  y", " a  1"]);
        assert_eq!(lines[2], format!("{GOOD} b  1{GOOD:#}"));
        assert_eq!(lines[3], format!("{BAD} c  1{BAD:#}"));
    }
}
