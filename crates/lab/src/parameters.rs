//! Parameters of scenarios, read from `key=value` words. The command and the kernel read them
//! alike.

use crate::named::Named;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::{error, fmt};
use foliant::FlushGrain;
use foliant::fault::Orders;
use foliant_units::{Bytes, Order, Pages};

/// What a scenario is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct About {
    /// Its name.
    pub name: &'static str,
    /// What it shows, in one line.
    pub purpose: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
}

/// One parameter of a scenario.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// What it is where it is not given.
    pub default: &'static str,
    /// What it can be.
    pub kind: Kind,
    /// What it means.
    pub about: &'static str,
}

/// What a parameter can be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A size: a multiple of the first, and at most the second.
    Size(Bytes, Bytes),
    /// A count of pages, from 1 on.
    Pages(Pages),
    /// A list of whole numbers, each from 1 on and at most this.
    Counts(u64),
    /// One such number.
    Count(u64),
    /// A list of folio sizes.
    Orders,
    /// A list of flush grains.
    Grains,
    /// The size of huge pages.
    Huge,
    /// A list of some of these names.
    Names(&'static [&'static str]),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Size(step, most) => write!(f, "a multiple of {step}, at most {most}"),
            Kind::Pages(most) => write!(f, "a whole number from 1 to {}", most.get()),
            Kind::Count(most) => write!(f, "a whole number from 1 to {most}"),
            Kind::Counts(most) => {
                write!(f, "whole numbers from 1 to {most}, with commas between")
            }
            Kind::Orders => f.write_str("folio sizes with commas between: 4k, and 16k to 2m"),
            Kind::Grains => {
                f.write_str("flush grains with commas between: whole numbers from 1 on, or whole")
            }
            Kind::Huge => f.write_str("2m or 1g"),
            Kind::Names(names) => {
                f.write_str("some of these with commas between:")?;
                names
                    .iter()
                    .enumerate()
                    .try_for_each(|(n, name)| write!(f, "{} {name}", if n == 0 { "" } else { "," }))
            }
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Value {
    Size(Bytes),
    Pages(Pages),
    Counts(Vec<u64>),
    Orders(Vec<Order>),
    Grains(Vec<FlushGrain>),
    Huge(Order),
    Names(Vec<&'static str>),
}

impl Kind {
    fn read(self, text: &str) -> Option<Value> {
        match self {
            Kind::Size(step, most) => {
                let bytes = Bytes::parse(text).ok()?;
                let fits = bytes.get() > 0 && bytes <= most;
                (fits && bytes.get().is_multiple_of(step.get())).then_some(Value::Size(bytes))
            }
            Kind::Pages(most) => {
                let pages = text.parse().ok().filter(|n| (1..=most.get()).contains(n))?;
                Some(Value::Pages(Pages::new(pages)))
            }
            Kind::Count(most) => {
                let count = text.parse().ok().filter(|n| (1..=most).contains(n))?;
                Some(Value::Counts(Vec::from([count])))
            }
            Kind::Counts(most) => {
                let count = |text: &str| text.parse().ok().filter(|n| (1..=most).contains(n));
                text.split(',').map(count).collect::<Option<_>>().map(Value::Counts)
            }
            Kind::Orders => text.split(',').map(order).collect::<Option<_>>().map(Value::Orders),
            Kind::Grains => text.split(',').map(grain).collect::<Option<_>>().map(Value::Grains),
            Kind::Huge => {
                let bytes = Bytes::parse(text).ok()?;
                [Order::SIZE_2M, Order::SIZE_1G]
                    .into_iter()
                    .find(|o| o.bytes() == bytes)
                    .map(Value::Huge)
            }
            Kind::Names(names) => {
                let known = |text: &str| names.iter().find(|name| **name == text).copied();
                text.split(',').map(known).collect::<Option<_>>().map(Value::Names)
            }
        }
    }
}

fn order(text: &str) -> Option<Order> {
    let bytes = Bytes::parse(text).ok()?;
    let order = Order::fitting(bytes).filter(|order| order.bytes() == bytes)?;
    (order == Order::BASE || Orders::ANON.contains(order)).then_some(order)
}

fn grain(text: &str) -> Option<FlushGrain> {
    match text {
        "whole" => Some(FlushGrain::WHOLE),
        number => FlushGrain::new(number.parse().ok()?),
    }
}

/// Why a word is no parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ParameterError {
    /// It has no `=`.
    NoValue(String),
    /// The scenario has no such parameter.
    Unknown(String, &'static About),
    /// The parameter cannot be that.
    Impossible(String, Parameter),
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParameterError::NoValue(word) => {
                write!(f, "{word} is no parameter; one looks like name=value")
            }
            ParameterError::Unknown(word, scenario) => {
                write!(f, "{word}: {} has other parameters:", scenario.name)?;
                let names = scenario.parameters.iter().map(|p| p.name);
                names
                    .enumerate()
                    .try_for_each(|(n, name)| write!(f, "{} {name}", if n == 0 { "" } else { "," }))
            }
            ParameterError::Impossible(word, parameter) => {
                write!(f, "{word}: {} is {}", parameter.name, parameter.kind)
            }
        }
    }
}
impl error::Error for ParameterError {}

/// The parameters of one run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameters {
    values: Vec<(&'static Parameter, String, Value)>,
}

impl Parameters {
    /// As `Parameters::parse` of the scenario that `about` is about.
    pub(crate) fn read<'w>(
        about: &'static About,
        words: impl IntoIterator<Item = &'w str>,
    ) -> Result<Parameters, ParameterError> {
        let read = |parameter: &'static Parameter, text: &str| {
            let value = parameter.kind.read(text)?;
            Some((parameter, text.to_string(), value))
        };
        let mut values: Vec<_> = about.parameters.iter().flat_map(|p| read(p, p.default)).collect();
        for word in words {
            let (name, text) =
                word.split_once('=').ok_or_else(|| ParameterError::NoValue(word.to_string()))?;
            let slot = values
                .iter_mut()
                .find(|(parameter, ..)| parameter.name == name)
                .ok_or_else(|| ParameterError::Unknown(word.to_string(), about))?;
            let parameter = slot.0;
            *slot = read(parameter, text)
                .ok_or_else(|| ParameterError::Impossible(word.to_string(), *parameter))?;
        }
        Ok(Parameters { values })
    }

    /// The values as they were given, by name.
    pub fn texts(&self) -> Named<String> {
        self.values.iter().map(|(parameter, text, _)| (parameter.name, text.clone())).collect()
    }
    /// The words that [`parse`](Parameters::parse) makes the same parameters of.
    pub fn words(&self) -> impl Iterator<Item = String> {
        self.values.iter().map(|(parameter, text, _)| alloc::format!("{}={text}", parameter.name))
    }

    fn value(&self, name: &str) -> &Value {
        let found = self.values.iter().find(|(parameter, ..)| parameter.name == name);
        &found.expect("a scenario asks for its own parameters").2
    }
    /// The size of this name.
    pub(crate) fn size(&self, name: &str) -> Bytes {
        match self.value(name) {
            Value::Size(bytes) => *bytes,
            other => unreachable!("{name} is no size: {other:?}"),
        }
    }
    /// The count of pages of this name.
    pub(crate) fn pages(&self, name: &str) -> Pages {
        match self.value(name) {
            Value::Pages(pages) => *pages,
            other => unreachable!("{name} is no count of pages: {other:?}"),
        }
    }
    /// The whole numbers of this name.
    pub(crate) fn counts(&self, name: &str) -> &[u64] {
        match self.value(name) {
            Value::Counts(counts) => counts,
            other => unreachable!("{name} are no whole numbers: {other:?}"),
        }
    }
    /// The one number of this name.
    pub(crate) fn count(&self, name: &str) -> u64 {
        match self.counts(name) {
            [count] => *count,
            more => unreachable!("{name} are {} numbers", more.len()),
        }
    }
    /// The folio sizes of this name.
    pub(crate) fn orders(&self, name: &str) -> &[Order] {
        match self.value(name) {
            Value::Orders(orders) => orders,
            other => unreachable!("{name} are no folio sizes: {other:?}"),
        }
    }
    /// The flush grains of this name.
    pub(crate) fn grains(&self, name: &str) -> &[FlushGrain] {
        match self.value(name) {
            Value::Grains(grains) => grains,
            other => unreachable!("{name} are no flush grains: {other:?}"),
        }
    }
    /// The size of huge pages of this name.
    pub(crate) fn huge(&self, name: &str) -> Order {
        match self.value(name) {
            Value::Huge(order) => *order,
            other => unreachable!("{name} is no size of huge pages: {other:?}"),
        }
    }
    /// The names of this name.
    pub(crate) fn names(&self, name: &str) -> &[&'static str] {
        match self.value(name) {
            Value::Names(names) => names,
            other => unreachable!("{name} are no names: {other:?}"),
        }
    }

    /// The same with another value of one parameter.
    pub(crate) fn with(&self, name: &str, text: &str) -> Parameters {
        let mut changed = self.clone();
        let found = changed.values.iter_mut().find(|(parameter, ..)| parameter.name == name);
        let slot = found.expect("a scenario changes its own parameters");
        let value = slot.0.kind.read(text).expect("to something that they can be");
        (slot.1, slot.2) = (text.to_string(), value);
        changed
    }
}
