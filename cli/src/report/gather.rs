//! Runs the commands that the figures are made of, with progress, and puts the content together.
//!
//! A system names its commands first and reads their results later, by the same names. So what a
//! figure says of its origin is what was run (P2), and how much is to be done is known before it
//! begins.

use super::asked::{Extent, parsed_lab};
use super::content::Content;
use super::recordings;
use super::results::Results;
use super::story;
use super::systems;
use crate::board::{self, Scale};
use crate::failure::Done;
use crate::{host, progress, scenario};

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
