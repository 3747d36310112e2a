//! Runs the commands that the figures are made of, with progress, and puts the content together.
//!
//! A system names its commands first and reads their results later, by the same names. So what a
//! figure says of its origin is what was run (P2), and how much is to be done is known before it
//! begins.

use super::content::{Content, Figure};
use super::recordings::{self, Recording};
use super::story;
use super::systems;
use crate::args::{self, Args, Command, Lab, Replay};
use crate::board::{self, Scale};
use crate::failure::{Done, Failure};
use crate::{host, progress, scenario};
use clap::Parser;
use foliant_lab::Report;
use std::collections::BTreeMap;
use std::ffi::OsString;

/// How much is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extent {
    /// Everything.
    Full,
    /// What takes seconds.
    Quick,
}

impl Extent {
    /// Numbers of CPUs that scaling is shown over.
    pub(crate) fn cpus(self) -> &'static [u64] {
        match self {
            Extent::Full => &[1, 2, 4, 8, 16, 32, 64, 128, 252],
            Extent::Quick => &[1, 4, 16],
        }
    }
    /// One of two.
    pub(crate) fn pick<T>(self, full: T, quick: T) -> T {
        match self {
            Extent::Full => full,
            Extent::Quick => quick,
        }
    }
}

/// What clearing this machine's own memory took.
#[cfg(target_arch = "x86_64")]
pub(crate) type Cleared = foliant_hosted::Measurement;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) enum Cleared {}

/// Reports by the command that makes them.
#[derive(Default)]
pub(crate) struct Results {
    reports: BTreeMap<String, Report>,
    pub(crate) cleared: Option<Cleared>,
    pub(crate) recordings: Vec<Recording>,
}

impl Results {
    /// The report of a command that was among those named before.
    pub(crate) fn of(&self, command: &str) -> Done<&Report> {
        let missing = || Failure::new(format_args!("{command} was not run"));
        self.reports.get(command).ok_or_else(missing)
    }
}

/// Measures everything.
pub(crate) fn content(extent: Extent) -> Done<Content> {
    let commands = systems::commands(extent);
    let files = recordings::shipped(extent);
    let bar = progress::bar("measuring", (commands.len() + files.len() + 2) as u64);
    let said = |what: &str| bar.set_message(what.to_owned());
    let load = host::load();
    let summary = board::rows(&extent.pick(Scale::FULL, Scale::QUICK))?;
    let mut results = Results::default();
    said("clearing this machine's memory");
    results.cleared = systems::cleared(extent)?;
    bar.inc(1);
    for command in commands {
        said(&command);
        let report = scenario::modelled(&parsed_lab(&command)?)?;
        results.reports.insert(command, report);
        bar.inc(1);
    }
    for file in files {
        said(&file.command());
        results.recordings.push(recordings::replay(file)?);
        bar.inc(1);
    }
    said("looking at memory");
    let story = story::tell()?;
    bar.finish_and_clear();
    let systems = systems::parts(extent, &results)?;
    Ok(Content { host: host_of(&load), summary, systems, story })
}

fn host_of(load: &str) -> Vec<(&'static str, String)> {
    let memory =
        host::memory().map(|bytes| format!("{:.1} GiB", bytes.get() as f64 / (1u64 << 30) as f64));
    let build = if cfg!(debug_assertions) { "debug build" } else { "release build" };
    vec![
        ("Processor", host::processor()),
        ("CPUs", host::cpus().to_string()),
        ("Memory", memory.unwrap_or_else(|| "not known".to_owned())),
        ("System", host::system()),
        ("Load", format!("{load} at the start, {} at the end", host::load())),
        ("Foliant", format!("{}, {build}", env!("CARGO_PKG_VERSION"))),
    ]
}

/// A command line's meaning.
fn parsed(command: &str) -> Done<Option<Command>> {
    let words = args::plain(command.split_whitespace().map(OsString::from));
    let args = Args::try_parse_from(words).map_err(|e| Failure::usage(&e.to_string()))?;
    Ok(args.command)
}

/// What a line that begins with `foliant lab` asks for.
pub(crate) fn parsed_lab(command: &str) -> Done<Lab> {
    match parsed(command)? {
        Some(Command::Lab(lab)) => Ok(lab),
        _ => Err(Failure::new(format_args!("{command} is no scenario"))),
    }
}

/// What a line that begins with `foliant replay` asks for.
pub(crate) fn parsed_replay(command: &str) -> Done<Replay> {
    match parsed(command)? {
        Some(Command::Replay(replay)) => Ok(replay),
        _ => Err(Failure::new(format_args!("{command} is no replay"))),
    }
}

/// A figure without pictures, tables and commands yet.
pub(crate) fn figure(title: &str, says: impl Into<String>) -> Figure {
    let (title, says) = (title.to_owned(), says.into());
    Figure { title, says, plots: Vec::new(), tables: Vec::new(), commands: Vec::new() }
}
