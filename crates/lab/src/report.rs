//! The result of a scenario: rows of counts and ticks, and ratios between them; one line of JSON.
//!
//! Whole numbers only: a kernel need not compute with fractions, and equal counts are equal texts.

use crate::ground::cpus;
use crate::named::{Named, Text};
use crate::parameters::About;
use crate::{Parameters, Stage};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// One row: one run of the measured work.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Row {
    /// What was run: a size, a grain and a phase.
    pub name: Text,
    /// What was counted: the same on every machine.
    pub counts: Named<u64>,
    /// How many pages the ticks are for.
    pub pages: u64,
    /// What it took, on this machine.
    pub ticks: Named<u64>,
}

/// How many times more of something one row has than another.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Ratio {
    /// Of what, and of which rows.
    pub name: Text,
    /// The one.
    pub of: u64,
    /// The other; 0 where there is no ratio.
    pub to: u64,
}

/// The result of a scenario.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Report {
    /// Its name.
    pub scenario: Text,
    /// Where it ran: `simulator`, `kernel`.
    pub machine: Text,
    /// On how many CPUs.
    pub cpus: u64,
    /// Its parameters, those that were not given included.
    pub parameters: Named<String>,
    /// How large the pages are that ticks are for.
    pub page: Text,
    /// The rows.
    pub rows: Vec<Row>,
    /// The ratios.
    pub ratios: Vec<Ratio>,
}

impl Report {
    /// What a scenario has measured on a stage; `page` is what ticks are for.
    pub(crate) fn of<'m, S: Stage<'m>>(
        (about, parameters): (&About, &Parameters),
        stage: &S,
        page: impl Into<Text>,
        rows: Vec<Row>,
        ratios: Vec<Ratio>,
    ) -> Report {
        Report {
            scenario: about.name.into(),
            machine: stage.name().into(),
            cpus: cpus(stage).0.into(),
            parameters: parameters.texts(),
            page: page.into(),
            rows,
            ratios,
        }
    }
    /// The report as one line of JSON, without a line end.
    pub fn line(&self) -> String {
        serde_json::to_string(self).expect("names and numbers have a JSON form")
    }
    /// One report of several runs of a scenario, each with a part of its rows; `parameters` are
    /// those of all.
    pub fn join(
        parts: impl IntoIterator<Item = Report>,
        parameters: &Parameters,
    ) -> Option<Report> {
        let mut parts = parts.into_iter();
        let mut whole = Report { parameters: parameters.texts(), ..parts.next()? };
        for part in parts {
            whole.rows.extend(part.rows);
            whole.ratios.extend(part.ratios);
        }
        Some(whole)
    }
    /// Reads such a line.
    pub fn parse(line: &str) -> Result<Report, serde_json::Error> {
        serde_json::from_str(line)
    }
}
