//! `foliant record`.

use crate::args::Record;
use crate::failure::{Done, Failure};
use crate::{progress, shown, table};
use foliant_trace::record::{Options, Progress, User};
use foliant_trace::{Ending, Summary, record_to_file};
use std::ffi::OsString;

/// A command line as the recorder wants it.
pub(crate) fn options(command: &[OsString]) -> Done<Options> {
    let Some((program, args)) = command.split_first() else {
        return Err(Failure::new("no program was given; name one after --"));
    };
    let mut options = Options::new(program, args.iter().cloned());
    options.user = user()?;
    options.forward_signals = true;
    let spinner = progress::spinner("recording");
    options.progress = Some(Box::new(move |Progress { faults, elapsed }| {
        let seconds = elapsed.as_secs_f64();
        spinner.set_message(format!("recording: {} faults, {seconds:.1} s", table::count(faults)));
    }));
    Ok(options)
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

pub(crate) fn run(args: &Record) -> Done {
    let options = options(&args.command)?;
    if !args.quiet {
        warn_root(options.user.as_ref());
    }
    let summary = record_to_file(options, &args.output)?;
    for line in remarks(&summary) {
        eprintln!("foliant: {}", shown::shown(&line));
    }
    if args.quiet {
        return Ok(());
    }
    let path = shown::path(&args.output);
    eprintln!(
        "foliant: {path} holds {} events, {} of them faults; see `foliant replay {path}`",
        table::count(summary.trailer.events),
        table::count(summary.trailer.faults),
    );
    Ok(())
}

/// What is worth knowing about a recording besides its numbers.
pub(crate) fn remarks(summary: &Summary) -> Vec<String> {
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
    if !summary.header.kernel_faults {
        lines.push(
            "faults that the kernel took for the program are not in it: perf_event_paranoid forbids it; \
             lower it to 1 or record as root"
                .to_owned(),
        );
    }
    lines
}
