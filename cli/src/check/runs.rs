//! One recording, or one measured run, of the program that is checked.
//!
//! **Not here**: which switches are set meanwhile, and what is made of the figures (`check`).

use super::Failure;
use crate::args::Check;
use crate::failure::{Done, why};
use crate::{progress, record, replay, shown};
use foliant_trace::record::{Barred, Measured, Program, User, measure};
use foliant_trace::replay::{Plan, Shared};
use foliant_trace::{About, Budget, Ending, Remedy};
use indicatif::ProgressBar;
use std::io::{self, BufReader, Seek};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// See the module's text.
pub(super) struct Runs<'a> {
    args: &'a Check,
    user: Option<User>,
    bar: ProgressBar,
    /// How the program ended the first time.
    ending: Option<Ending>,
}

impl<'a> Runs<'a> {
    /// So many of them, as this user.
    pub(super) fn new(args: &'a Check, user: Option<User>, runs: u64) -> Runs<'a> {
        let bar = progress::bar("recording", runs);
        Runs { args, user, bar, ending: None }
    }

    /// Records into a file that has no name, so that nothing is left of it however this ends.
    pub(super) fn recorded(&mut self) -> Done<(About, Plan)> {
        self.begin("recording")?;
        let failed = |e: io::Error| {
            Failure::new(format_args!(
                "no file for a recording can be made in {} ({}); name another folder in TMPDIR",
                shown::path(&std::env::temp_dir()),
                why(&e)
            ))
        };
        let mut file = tempfile::tempfile().map_err(failed)?;
        let mut options = record::options(&self.args.command, self.user.as_ref())?;
        options.apart = true;
        let bar = self.bar.clone();
        options.progress = Some(Box::new(move |at| bar.set_message(record::progress(at))));
        let summary = foliant_trace::record(options, &file)?;
        self.bar.suspend(|| record::say(&summary));
        self.ended(summary.trailer.ending)?;
        file.rewind().map_err(failed)?;
        // The program is this user's own: what it did is not bounded, beyond what recording it
        // took.
        replay::planned(
            Path::new("the recording"),
            BufReader::new(file),
            Shared::Counted,
            &Budget::unlimited(),
        )
    }

    /// Runs it as it is, with what a remedy wishes for its mappings, when the run has begun.
    pub(super) fn measured(&mut self, remedy: &Remedy) -> Done<Measured> {
        let (command, user) = (&self.args.command[..], self.user.as_ref());
        let run = measure(&Program { command, user, remedy, barred: Barred::Nothing })?;
        self.ended(run.ending)?;
        Ok(run)
    }

    /// Says what comes and makes things as they were before.
    pub(super) fn begin(&self, what: &str) -> Done {
        self.bar.set_message(what.to_owned());
        let Some(script) = &self.args.prepare else { return Ok(()) };
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        if let Some(user) = &self.user {
            user.runs(&mut command);
        }
        let refused = |why: &dyn std::fmt::Display| {
            Failure::new(format_args!(
                "the preparation '{}' failed ({why}); mend it or leave it out",
                shown::shown(script)
            ))
        };
        let status = command.status().map_err(|e| refused(&e))?;
        if status.success() { Ok(()) } else { Err(refused(&status)) }
    }

    fn ended(&mut self, ending: Ending) -> Done {
        self.bar.inc(1);
        let first = *self.ending.get_or_insert(ending);
        if first == ending {
            return Ok(());
        }
        let (first, now) = (describe(first), describe(ending));
        Err(Failure::new(format_args!(
            "the program ended with {first} the first time and with {now} now; \
             check a command that does the same each time, or say with --prepare what makes it so"
        )))
    }
}

impl Drop for Runs<'_> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn describe(ending: Ending) -> String {
    match ending {
        Ending::Exited(code) => format!("exit code {code}"),
        Ending::Signaled(signal) => format!("signal {signal}"),
    }
}
