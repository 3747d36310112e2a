//! What the page says, before it is a page.

use super::plot::Plot;
use super::story::Story;
use crate::board::Row;

/// All of it.
#[derive(Debug)]
pub(crate) struct Content {
    /// The machine that it was made on: names and values.
    pub(crate) host: Vec<(&'static str, String)>,
    /// The scoreboard, for the first screen: a row for each system.
    pub(crate) summary: Vec<Row>,
    /// A section for each system.
    pub(crate) systems: Vec<System>,
    /// Memory over time.
    pub(crate) story: Story,
}

/// A section.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct System {
    /// Its letter, which is its anchor too.
    pub(crate) letter: char,
    /// Its name.
    pub(crate) name: &'static str,
    /// What it does, and what its grain is.
    pub(crate) about: &'static str,
    /// What was measured.
    pub(crate) figures: Vec<Figure>,
}

/// Pictures and tables of the same numbers.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Figure {
    /// A heading.
    pub(crate) title: String,
    /// What is to be seen, and what the numbers mean.
    pub(crate) says: String,
    /// The pictures.
    pub(crate) plots: Vec<Plot>,
    /// The numbers.
    pub(crate) tables: Vec<Table>,
    /// The commands that make them.
    pub(crate) commands: Vec<String>,
}

/// A table; the first column is a name, the others are numbers.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Table {
    /// What is in it.
    pub(crate) caption: String,
    /// A head for each column.
    pub(crate) heads: Vec<String>,
    /// As many cells as heads.
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    /// A table of these columns.
    pub(crate) fn new(
        caption: impl Into<String>,
        heads: &[&str],
        rows: impl IntoIterator<Item = Vec<String>>,
    ) -> Table {
        let heads = heads.iter().map(|head| (*head).to_owned()).collect();
        Table { caption: caption.into(), heads, rows: rows.into_iter().collect() }
    }
}

/// A number with three digits that count, two where it is small, and commas above a thousand.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        n if n.fract() == 0.0 && n < 1e15 => crate::table::count(value as u64),
        n if n >= 1000.0 => crate::table::count(value.round() as u64),
        n if n >= 100.0 => format!("{value:.0}"),
        n if n >= 10.0 => format!("{value:.1}"),
        n if n >= 0.1 => format!("{value:.2}"),
        n if n > 0.0 => format!("{value:.*}", (1.0 - n.log10().floor()) as usize),
        _ => "–".to_owned(),
    }
}

/// Nanoseconds in microseconds.
pub(crate) fn micros(nanos: f64) -> String {
    number(nanos / 1000.0)
}

/// Something that may not be there.
pub(crate) fn maybe(value: Option<f64>, text: impl Fn(f64) -> String) -> String {
    value.map_or("–".to_owned(), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_the_digits_that_count() {
        let check = |value: f64, expect: &str| assert_eq!(number(value), expect, "{value}");
        check(0.0, "0");
        check(32.0, "32");
        check(262_144.0, "262,144");
        check(1234.6, "1,235");
        check(282.4, "282");
        check(10.66, "10.7");
        check(2.148, "2.15");
        check(0.5, "0.50");
        check(0.041, "0.041");
        check(0.002_04, "0.0020");
        check(0.000_012, "0.000012");
        check(f64::NAN, "–");
    }
}
