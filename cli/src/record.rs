//! `foliant record`.

use crate::args::Record;
use crate::document::{self, Document};
use crate::failure::{Done, Failure, print, tell};
use crate::{progress as bar, shown, table};
use foliant_trace::record::{Options, Progress, Running, Target, User};
use foliant_trace::{Ending, Summary, record_running_to_file, record_to_file};
use schemars::JsonSchema;
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A command line as the recorder wants it.
pub(crate) fn options(command: &[OsString], user: Option<&User>) -> Done<Options> {
    let Some((program, args)) = command.split_first() else {
        return Err(Failure::new("no program was given; name one after --"));
    };
    let mut options = Options::new(program, args.iter().cloned());
    options.user = user.cloned();
    Ok(options)
}

/// How far a recording is, in words.
pub(crate) fn progress(at: Progress) -> String {
    let (faults, seconds) = (table::count(at.faults), at.elapsed.as_secs_f64());
    format!("recording: {faults} faults, {seconds:.1} s")
}

/// As whom the program runs: behind sudo as who called it.
pub(crate) fn user() -> Done<Option<User>> {
    User::behind_sudo()
        .map_err(|e| Failure::new(format_args!("it is not known who called sudo: {e}")))
}

/// What root is told where there is nobody else to run the program as.
pub(crate) fn warn_root(user: Option<&User>) {
    if user.is_none() && User::is_root() {
        tell(
            "foliant: the program runs as root, as foliant does; behind sudo it would run as who called",
        );
    }
}

/// The program has the terminal while it runs, so nothing is said until it has ended.
pub(crate) fn run(args: &Record) -> Done {
    let target = args.pid.map(Target::Process).or(args.cgroup.clone().map(Target::Cgroup));
    if let Some(target) = target {
        return running(args, target);
    }
    let user = user()?;
    let mut options = options(&args.command, user.as_ref())?;
    options.forward_signals = true;
    (options.length, options.only) = (args.length, args.only.clone());
    if !args.quiet {
        warn_root(user.as_ref());
    }
    let path = args.output.clone().unwrap_or_else(|| free_name(&options.command));
    let started = Instant::now();
    let summary = record_to_file(options, &path)?;
    say(&summary);
    if !args.quiet {
        say_where(&path, &summary);
    }
    let is_over = args.length.is_some_and(|length| started.elapsed() >= length);
    match summary.trailer.ending {
        Ending::Exited(0) => Ok(()),
        // It was asked to end, and that was what was wanted.
        Ending::Signaled(TERMINATED) if is_over => Ok(()),
        Ending::Exited(code) => Err(Failure::Code(code)),
        Ending::Signaled(signal) => Err(Failure::Code(128u8.saturating_add(signal))),
    }
}

/// The number of SIGTERM.
const TERMINATED: u8 = 15;

/// Records what runs already.
fn running(args: &Record, target: Target) -> Done {
    let name = match &target {
        Target::Process(pid) => OsString::from(pid.to_string()),
        Target::Cgroup(path) => path.file_name().unwrap_or(OsStr::new("cgroup")).to_owned(),
    };
    let path = args.output.clone().unwrap_or_else(|| free_name(&name));
    let mut running = Running::new(target);
    running.length = args.length;
    let bar = bar::spinner("recording");
    if !args.quiet {
        let bar = bar.clone();
        running.progress = Some(Box::new(move |at| bar.set_message(progress(at))));
    }
    let summary = record_running_to_file(running, &path);
    bar.finish_and_clear();
    let summary = summary?;
    say(&summary);
    if !args.quiet {
        say_where(&path, &summary);
    }
    if args.json { print(&document::text(&recorded(&path, &summary))?) } else { Ok(()) }
}

fn say_where(path: &Path, summary: &Summary) {
    if let Some(attached) = summary.attached {
        tell(format_args!(
            "foliant: {} processes with {} threads were recorded and go on; they stood still for {:.1} ms at most",
            table::count(attached.processes),
            table::count(attached.threads),
            attached.longest_stop.as_secs_f64() * 1e3,
        ));
    }
    let path = shown::path(path);
    tell(format_args!(
        "foliant: {path} holds {} events, {} of them faults; see `foliant replay {path}`",
        table::count(summary.trailer.events),
        table::count(summary.trailer.faults),
    ));
}

/// What came of recording processes that ran already.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Recorded<'s> {
    /// The recording.
    file: String,
    /// Processes that were there at the beginning.
    processes: u64,
    /// Their threads.
    threads: u64,
    /// How long a process stood still at most.
    longest_stop_ns: u64,
    /// Events in the recording.
    events: u64,
    /// Page faults among them.
    faults: u64,
    /// Faults that the recorder missed.
    lost: u64,
    /// Faults that are not explained by what was recorded.
    mismatched: u64,
    /// Faults in memory that the recording knows nothing of.
    strays: u64,
    /// What else the recorder has to say.
    remarks: &'s [String],
}

impl Document for Recorded<'_> {
    const NAME: &'static str = "record";
    const COMMAND: &'static str = "foliant record --pid PID --json, and with --cgroup";
}

fn recorded<'s>(path: &Path, summary: &'s Summary) -> Recorded<'s> {
    let attached = summary.attached.unwrap_or_default();
    Recorded {
        file: path.to_string_lossy().into_owned(),
        processes: attached.processes,
        threads: attached.threads,
        longest_stop_ns: attached.longest_stop.as_nanos() as u64,
        events: summary.trailer.events,
        faults: summary.trailer.faults,
        lost: summary.trailer.lost,
        mismatched: summary.replay.mismatched,
        strays: summary.replay.strays,
        remarks: &summary.trailer.remarks,
    }
}

/// A name for a recording of this program, which no file has here.
fn free_name(program: &OsStr) -> PathBuf {
    let name = Path::new(program).file_name().unwrap_or(program);
    let with = |end: String| {
        let mut file = name.to_owned();
        file.push(end);
        PathBuf::from(file)
    };
    let numbered = (2u64..).map(|n| with(format!("-{n}.trace")));
    let mut names = std::iter::once(with(".trace".to_owned())).chain(numbered);
    names.find(|path| path.symlink_metadata().is_err()).unwrap_or_default()
}

/// Says what is worth knowing about a recording.
pub(crate) fn say(summary: &Summary) {
    for line in remarks(summary) {
        tell(format_args!("foliant: {}", shown::shown(&line)));
    }
}

/// What there is to know besides its numbers.
fn remarks(summary: &Summary) -> Vec<String> {
    let mut lines = Vec::new();
    match summary.trailer.ending {
        Ending::Exited(0) => {}
        Ending::Exited(code) => lines.push(format!("the program ended with exit code {code}")),
        Ending::Signaled(signal) => lines.push(format!("the program was ended by signal {signal}")),
    }
    if summary.trailer.lost > 0 {
        lines.push(format!(
            "{} faults were lost; record again on a quieter machine",
            summary.trailer.lost
        ));
    }
    lines.extend(summary.trailer.remarks.iter().cloned());
    if summary.replay.mismatched > 0 {
        lines.push(format!(
            "{} faults are not explained by what was recorded: the recording is not exact",
            summary.replay.mismatched
        ));
    }
    if summary.replay.strays > 0 {
        lines.push(format!(
            "{} faults are in memory that the recording knows nothing of: what is predicted of them is their number here",
            summary.replay.strays
        ));
    }
    if !summary.header.kernel_faults {
        lines.push(
            "faults that the kernel took for the program are not in it: perf_event_paranoid forbids it; \
             lower it to 1 or record as root"
                .to_owned(),
        );
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_of_what_runs_is_the_document_that_it_says() {
        let remarks = ["a remark".to_owned()];
        document::tests::holds(&Recorded {
            file: "4711.trace".to_owned(),
            processes: 1,
            threads: 2,
            longest_stop_ns: 3,
            events: 4,
            faults: 5,
            lost: 0,
            mismatched: 0,
            strays: 0,
            remarks: &remarks,
        });
    }
}
