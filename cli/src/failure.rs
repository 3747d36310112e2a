//! What went wrong, in one sentence.

use crate::shown;
use crate::terminal::BAD;
use foliant_trace::replay::{PlanError, ReplayError};
use foliant_trace::{RecordError, TraceError};
use std::fmt;
use std::io::ErrorKind::{BrokenPipe, NotFound, StorageFull};
use std::io::{self, Write};
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

    /// A trace that cannot be read.
    pub(crate) fn reading(path: &Path, error: TraceError) -> Failure {
        let path = shown::path(path);
        match error {
            TraceError::Io(e) if e.kind() == NotFound => Failure::new(format_args!(
                "there is no file {path}; make one with `foliant record -o {path} -- COMMAND`"
            )),
            TraceError::Io(e) => Failure::new(format_args!(
                "{path} cannot be read ({}); name a file that `foliant record` made",
                why(&e)
            )),
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
                let said = shown::said(&plain(&what));
                let _ = writeln!(anstream::stderr(), "{BAD}foliant:{BAD:#} {said}");
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
            RecordError::Output { path, why } if why.kind() == StorageFull => {
                let path = shown::path(&path);
                Failure::new(format_args!(
                    "no room is left for {path}; free some or name another place with -o"
                ))
            }
            RecordError::Output { path, why } => unwritable(&path, &why),
            RecordError::Spool { folder, why } if why.kind() == StorageFull => {
                let folder = shown::path(&folder);
                Failure::new(format_args!(
                    "no room is left in {folder} for what is recorded, some 20 bytes a fault until the end; \
                     free some or name another place with -o"
                ))
            }
            RecordError::Spool { folder, why } => Failure::new(format_args!(
                "{} cannot hold what is recorded until the end ({}); name another place with -o",
                shown::path(&folder),
                self::why(&why)
            )),
            other => Failure::new(other),
        }
    }
}

/// Says something beside the result on standard error. Where nobody can read it nothing is lost:
/// what is being done goes on, and what was set is put back.
pub(crate) fn tell(text: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// A file that cannot be written and has another place to go to.
pub(crate) fn unwritable(path: &Path, e: &io::Error) -> Failure {
    let path = shown::path(path);
    Failure::new(format_args!("{path} cannot be written ({}); name another place with -o", why(e)))
}

/// Why something did not work, in plain words: without the system's number of it, and without the
/// name of a file that nobody asked for.
pub(crate) fn why(e: &io::Error) -> String {
    plain(&match e.kind() {
        NotFound => "there is no such folder or file".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::IsADirectory => "it is a folder".to_owned(),
        io::ErrorKind::NotADirectory => "a part of the path is no folder".to_owned(),
        io::ErrorKind::ReadOnlyFilesystem => "nothing can be written there".to_owned(),
        StorageFull => "no room is left".to_owned(),
        _ => e.to_string(),
    })
}

/// A text without the numbers that the system gives to errors.
fn plain(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        text + rest.strip_prefix(')').unwrap_or(rest)
    })
}

/// Writes to standard output: colours where it is a terminal that has them, and they are wanted.
pub(crate) fn print(text: &str) -> Done {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == BrokenPipe => Err(Failure::Unread),
        Err(e) => Err(Failure::new(format_args!("standard output cannot be written: {e}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_has_neither_numbers_nor_names_of_files_that_nobody_asked_for() {
        for (text, expect) in [
            ("x (os error 2)", "x"),
            ("x (Y (os error 13)): z (os error 1)", "x (Y): z"),
            ("x", "x"),
            ("os error 5", "os error 5"),
        ] {
            assert_eq!(plain(text), expect);
        }
        let e = tempfile::NamedTempFile::new_in("/no/such/folder").unwrap_err();
        assert!(e.to_string().contains("/no/such/folder/."), "{e}");
        assert_eq!(why(&e), "there is no such folder or file");
        assert_eq!(why(&io::Error::from_raw_os_error(40)), "Too many levels of symbolic links");
    }
}
