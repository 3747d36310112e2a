//! `foliant record`.

use crate::args::Record;
use crate::failure::{Done, Failure};
use crate::{progress, shown, table};
use foliant_trace::record::{Options, Progress};
use foliant_trace::{Ending, Summary, record_to_file};
use std::ffi::OsString;

/// A command line as the recorder wants it.
pub(crate) fn options(command: &[OsString]) -> Done<Options> {
    let Some((program, args)) = command.split_first() else {
        return Err(Failure::new("no program was given; name one after --"));
    };
    let mut options = Options::new(program, args.iter().cloned());
    options.forward_signals = true;
    let spinner = progress::spinner("recording");
    options.progress = Some(Box::new(move |Progress { faults, elapsed }| {
        let seconds = elapsed.as_secs_f64();
        spinner.set_message(format!("recording: {} faults, {seconds:.1} s", table::count(faults)));
    }));
    Ok(options)
}

pub(crate) fn run(args: &Record) -> Done {
    let summary = record_to_file(options(&args.command)?, &args.output)?;
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
