//! What went wrong, in one sentence.

use crate::shown;
use foliant_trace::replay::{PlanError, ReplayError};
use foliant_trace::{RecordError, TraceError};
use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

/// Exit code of everything that goes wrong and has none of its own.
const EXIT: u8 = 2;

/// Why the command did not do what it was asked for.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The sentence.
    Said(String),
    /// It has been said already, or there is nothing to say: an exit code of its own.
    Code(u8),
    /// The sentence, with an exit code of its own.
    Coded(u8, String),
    /// Nobody reads the output any more: no reason to complain.
    Unread,
}

/// The result of a command.
pub(crate) type Done<T = ()> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(what: impl fmt::Display) -> Failure {
        Failure::Said(what.to_string())
    }

    /// A command line that cannot be understood: the first paragraph of what the parser says, as a
    /// sentence.
    pub(crate) fn usage(said: &str) -> Failure {
        let said = said.strip_prefix("error: ").unwrap_or(said);
        let paragraph = said.split("\n\n").next().unwrap_or(said);
        let words: Vec<&str> = paragraph.split_whitespace().collect();
        Failure::new(format_args!("{}; see `foliant --help`", words.join(" ")))
    }

    /// A trace that cannot be read.
    pub(crate) fn reading(path: &Path, error: TraceError) -> Failure {
        let path = shown::path(path);
        match error {
            TraceError::Io(e) if e.kind() == ErrorKind::NotFound => Failure::new(format_args!(
                "there is no file {path}; make one with `foliant record -o {path} -- COMMAND`"
            )),
            TraceError::Io(e) => Failure::new(format_args!("{path} cannot be read: {e}")),
            other => Failure::new(format_args!("{path}: {other}")),
        }
    }

    pub(crate) fn planning(path: &Path, error: PlanError) -> Failure {
        match error {
            PlanError::Unread(error) => Failure::reading(path, error),
            PlanError::Spent(spent) => Failure::new(format_args!("{}: {spent}", shown::path(path))),
            error @ PlanError::Broken { .. } => {
                Failure::new(format_args!("{}: {error}; record it again", shown::path(path)))
            }
        }
    }

    /// A replay that did not come to its end.
    pub(crate) fn replaying(path: &Path, error: ReplayError) -> Failure {
        match error {
            ReplayError::Spent(spent) => {
                Failure::new(format_args!("{}: {spent}", shown::path(path)))
            }
            other => other.into(),
        }
    }

    /// The sentence alone, for who says it in another's name.
    pub(crate) fn sentence(self) -> String {
        match self {
            Failure::Said(what) | Failure::Coded(_, what) => what,
            Failure::Code(_) | Failure::Unread => String::new(),
        }
    }

    /// Says the sentence and gives the exit code.
    pub(crate) fn report(self) -> ExitCode {
        match self {
            Failure::Unread => ExitCode::SUCCESS,
            Failure::Code(code) => ExitCode::from(code),
            Failure::Said(what) => Failure::Coded(EXIT, what).report(),
            Failure::Coded(code, what) => {
                let _ = writeln!(io::stderr(), "foliant: {}", shown::said(&what));
                ExitCode::from(code)
            }
        }
    }
}

impl From<ReplayError> for Failure {
    fn from(error: ReplayError) -> Failure {
        Failure::new(error)
    }
}

impl From<RecordError> for Failure {
    fn from(error: RecordError) -> Failure {
        match error {
            RecordError::Output { path, why } if why.kind() == ErrorKind::StorageFull => {
                let path = shown::path(&path);
                Failure::new(format_args!(
                    "no room is left for {path}; free some or name another place with -o"
                ))
            }
            RecordError::Output { path, why } => Failure::new(format_args!(
                "{} cannot be written ({why}); name another place with -o",
                shown::path(&path)
            )),
            RecordError::Spool { folder, why } if why.kind() == ErrorKind::StorageFull => {
                let folder = shown::path(&folder);
                Failure::new(format_args!(
                    "no room is left in {folder} for what is recorded, some 20 bytes a fault until the end; \
                     free some or name another place with -o"
                ))
            }
            RecordError::Spool { folder, why } => Failure::new(format_args!(
                "{} cannot hold what is recorded until the end ({why}); name another place with -o",
                shown::path(&folder)
            )),
            other => Failure::new(other),
        }
    }
}

/// Writes to standard output.
pub(crate) fn print(text: &str) -> Done {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Err(Failure::Unread),
        Err(e) => Err(Failure::new(format_args!("standard output cannot be written: {e}"))),
    }
}
