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

/// A figure without pictures, tables and commands yet.
pub(crate) fn figure(title: &str, says: impl Into<String>) -> Figure {
    let (title, says) = (title.to_owned(), says.into());
    Figure { title, says, plots: Vec::new(), tables: Vec::new(), commands: Vec::new() }
}
