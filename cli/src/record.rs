//! `foliant record`.

use crate::args::Record;
use crate::failure::{Done, Failure};
use crate::{shown, table};
use foliant_trace::record::{Options, Progress, User};
use foliant_trace::{Ending, Summary, record_to_file};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

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
        eprintln!(
            "foliant: the program runs as root, as foliant does; behind sudo it would run as who called"
        );
    }
}

/// The program has the terminal while it runs, so nothing is said until it has ended.
pub(crate) fn run(args: &Record) -> Done {
    let user = user()?;
    let mut options = options(&args.command, user.as_ref())?;
    options.forward_signals = true;
    if !args.quiet {
        warn_root(user.as_ref());
    }
    let path = args.output.clone().unwrap_or_else(|| free_name(&options.command));
    let summary = record_to_file(options, &path)?;
    say(&summary);
    if !args.quiet {
        let path = shown::path(&path);
        eprintln!(
            "foliant: {path} holds {} events, {} of them faults; see `foliant replay {path}`",
            table::count(summary.trailer.events),
            table::count(summary.trailer.faults),
        );
    }
    match summary.trailer.ending {
        Ending::Exited(0) => Ok(()),
        Ending::Exited(code) => Err(Failure::Code(code)),
        Ending::Signaled(signal) => Err(Failure::Code(128u8.saturating_add(signal))),
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
        eprintln!("foliant: {}", shown::shown(&line));
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
