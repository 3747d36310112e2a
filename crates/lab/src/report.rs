//! The result of a scenario: rows of counts and ticks, and ratios between them; one line of JSON.
//!
//! Whole numbers only: a kernel need not compute with fractions, and equal counts are equal texts.

use crate::ground::cpus;
use crate::parameters::About;
use crate::{Parameters, Stage};
use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A name or a text; borrowed where the program knows it.
pub(crate) type Text = Cow<'static, str>;

/// Values with names, in an order that means something to a reader.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named<T>(Vec<(Text, T)>);

impl<T> Default for Named<T> {
    fn default() -> Named<T> {
        Named(Vec::new())
    }
}

impl<T> Named<T> {
    /// Adds a value behind the others.
    pub fn push(&mut self, name: impl Into<Cow<'static, str>>, value: T) {
        self.0.push((name.into(), value));
    }
    /// The values with their names, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), value))
    }
    /// The value of this name.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.iter().find_map(|(other, value)| (other == name).then_some(value))
    }
}

impl<T, N: Into<Cow<'static, str>>> FromIterator<(N, T)> for Named<T> {
    fn from_iter<I: IntoIterator<Item = (N, T)>>(values: I) -> Named<T> {
        Named(values.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }
}

impl<T: Serialize> Serialize for Named<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Named<T>, D::Error> {
        struct InOrder<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for InOrder<T> {
            type Value = Named<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Named<T>, A::Error> {
                let mut values = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, T>()? {
                    values.push((Cow::Owned(name), value));
                }
                Ok(Named(values))
            }
        }
        from.deserialize_map(InOrder(PhantomData))
    }
}

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
