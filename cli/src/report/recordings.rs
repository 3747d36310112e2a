//! The recordings that come with the command, replayed at every folio size.

use super::asked::{Extent, parsed_replay};
use crate::failure::{Done, Failure};
use crate::replay;
use crate::shown::shown;
use foliant_sim::CostModel;
use foliant_trace::replay::{Choice, Row, Shared, replay_all};
use std::path::Path;

/// A recording in the command.
#[derive(Clone, Copy)]
pub(crate) struct File {
    name: &'static str,
    bytes: &'static [u8],
}

impl File {
    /// The command that replays it.
    pub(crate) fn command(self) -> String {
        format!("foliant replay {}", self.name)
    }
}

const FILES: [File; 4] = [
    File { name: "traces/cc.trace", bytes: replay::SHIPPED },
    File { name: "traces/git.trace", bytes: include_bytes!("../../traces/git.trace") },
    File { name: "traces/python.trace", bytes: include_bytes!("../../traces/python.trace") },
    File { name: "traces/sort.trace", bytes: include_bytes!("../../traces/sort.trace") },
];

/// Those that are replayed.
pub(crate) fn shipped(extent: Extent) -> &'static [File] {
    &FILES[..extent.pick(FILES.len(), 1)]
}

/// A recording and what its replay came to.
#[derive(Clone, Debug)]
pub(crate) struct Recording {
    /// `cc`.
    pub(crate) name: &'static str,
    /// What was recorded.
    pub(crate) program: String,
    pub(crate) command: String,
    pub(crate) faults: u64,
    /// The row of 4 KiB pages first.
    pub(crate) rows: Vec<Row>,
}

impl Recording {
    /// The row that others are compared with.
    pub(crate) fn base(&self) -> &Row {
        &self.rows[0]
    }
    /// The row of this policy.
    pub(crate) fn row(&self, choice: Choice) -> Option<&Row> {
        self.rows.iter().find(|row| row.choice == choice)
    }
}

/// Replays one as its command says.
pub(crate) fn replay(file: &File) -> Done<Recording> {
    let (path, command) = (Path::new(file.name), file.command());
    let args = parsed_replay(&command)?;
    let (about, plan) = replay::planned(path, file.bytes, Shared::Replayed, &args.trust.budget())?;
    // The page is the same on every machine, calibrated or not.
    let model = args.machine.model.unwrap_or_else(CostModel::xeon_guest_2);
    let settings = replay::settings(&args.machine, &about, model);
    let rows = replay_all(&plan, &args.rows.choices(), &settings, |_| {})?;
    if rows.first().map(|row| row.choice) != Some(Choice::BASE) {
        return Err(Failure::new(format_args!("{command} does not begin with 4 KiB pages")));
    }
    Ok(Recording {
        name: path.file_stem().and_then(|stem| stem.to_str()).unwrap_or(file.name),
        program: crate::table::shorten(&shown(&about.header.command.join(" ")), 60),
        command,
        faults: plan.recorded_anonymous_faults + plan.recorded_shared_faults,
        rows,
    })
}
