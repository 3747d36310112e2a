//! Why nothing was recorded, in a sentence with the value and the way out.

use super::attach::{Target, Unattachable};
use crate::error::TraceError;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why nothing was recorded.
#[derive(Debug)]
pub enum RecordError {
    /// There is no such program.
    NotFound {
        /// As it was given.
        command: OsString,
    },
    /// There is one, and it cannot be run.
    NotExecutable {
        /// As it was given.
        command: OsString,
        /// Why.
        why: io::Error,
    },
    /// The system forbids counting page faults.
    PerfForbidden {
        /// The value of `/proc/sys/kernel/perf_event_paranoid`; nothing without such a file.
        paranoid: String,
        /// What the kernel said.
        why: io::Error,
    },
    /// The system forbids following the program.
    PtraceForbidden {
        /// The value of `/proc/sys/kernel/yama/ptrace_scope`; nothing without such a file.
        scope: String,
        /// What the kernel said.
        why: io::Error,
    },
    /// The system forbids the filter that stops at system calls.
    FilterForbidden {
        /// What the kernel said.
        why: io::Error,
    },
    /// A running process cannot be recorded.
    Unattachable {
        /// As it was given.
        target: Target,
        /// Why.
        why: Unattachable,
    },
    /// No program of the wanted name was started.
    NotStarted {
        /// The name.
        name: OsString,
    },
    /// Something else failed.
    System {
        /// While doing what.
        what: &'static str,
        /// What the kernel said.
        why: io::Error,
    },
    /// The file cannot be written.
    Output {
        /// The file.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// What is told while recording cannot be kept.
    Spool {
        /// Where it was to be kept.
        folder: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// The trace cannot be written.
    Trace(TraceError),
}

impl RecordError {
    /// Whether the system forbids what a recording takes; its settings say so.
    pub const fn is_forbidden(&self) -> bool {
        matches!(
            self,
            RecordError::PerfForbidden { .. }
                | RecordError::PtraceForbidden { .. }
                | RecordError::FilterForbidden { .. }
        )
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::NotFound { command } => {
                let command = command.display();
                write!(f, "there is no program '{command}'; give its path or check PATH")
            }
            RecordError::NotExecutable { command, why } => {
                let command = command.display();
                write!(f, "'{command}' cannot be run ({why}); check its rights and format")
            }
            RecordError::PerfForbidden { paranoid, why } if paranoid.is_empty() => write!(
                f,
                "the system forbids counting page faults ({why}), and has no \
                 /proc/sys/kernel/perf_event_paranoid to allow it with; record on another kernel, \
                 or outside of the container that hides the file"
            ),
            RecordError::PerfForbidden { paranoid, why } => write!(
                f,
                "the system forbids counting page faults ({why}): \
                 /proc/sys/kernel/perf_event_paranoid is {paranoid}, 2 or less is needed; \
                 lower it or record as root"
            ),
            RecordError::PtraceForbidden { scope, why } if scope.is_empty() => write!(
                f,
                "the system forbids following a program ({why}); \
                 record outside of the container or debugger that forbids it"
            ),
            RecordError::PtraceForbidden { scope, why } => write!(
                f,
                "the system forbids following a program ({why}): \
                 /proc/sys/kernel/yama/ptrace_scope is {scope}, 2 or less is needed; \
                 lower it or record outside of the container or debugger that forbids it"
            ),
            RecordError::FilterForbidden { why } => write!(
                f,
                "the system forbids system call filters ({why}); \
                 record outside of the container that forbids them"
            ),
            RecordError::Unattachable { target, why } => {
                write!(f, "{target} cannot be recorded: {why}")
            }
            RecordError::NotStarted { name } => {
                let name = name.display();
                write!(f, "no program named '{name}' was started; name its file, without a folder")
            }
            RecordError::System { what, why } => write!(f, "{what} failed: {why}"),
            RecordError::Output { path, why } => {
                write!(f, "{} cannot be written: {why}", path.display())
            }
            RecordError::Spool { folder, why } => {
                write!(f, "{} cannot hold what is recorded until the end: {why}", folder.display())
            }
            RecordError::Trace(e) => write!(f, "{e}"),
        }
    }
}

impl RecordError {
    /// What following a program was refused with.
    pub(crate) fn following(why: io::Error) -> RecordError {
        let scope = super::procfs::line("/proc/sys/kernel/yama/ptrace_scope");
        RecordError::PtraceForbidden { scope, why }
    }
}

impl std::error::Error for RecordError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RecordError::NotFound { .. }
            | RecordError::Unattachable { .. }
            | RecordError::NotStarted { .. } => None,
            RecordError::NotExecutable { why, .. }
            | RecordError::PerfForbidden { why, .. }
            | RecordError::PtraceForbidden { why, .. }
            | RecordError::FilterForbidden { why }
            | RecordError::System { why, .. }
            | RecordError::Spool { why, .. }
            | RecordError::Output { why, .. } => Some(why),
            RecordError::Trace(e) => Some(e),
        }
    }
}

impl From<TraceError> for RecordError {
    fn from(e: TraceError) -> RecordError {
        RecordError::Trace(e)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_there_has_no_value() {
        let why = || io::Error::from_raw_os_error(libc::EPERM);
        let ptrace = |scope: &str| RecordError::PtraceForbidden { scope: scope.into(), why: why() };
        let perf = |value: &str| RecordError::PerfForbidden { paranoid: value.into(), why: why() };
        for (said, has, has_not) in [
            (ptrace("3").to_string(), "ptrace_scope is 3,", "  "),
            (ptrace("").to_string(), "outside of the container", "ptrace_scope"),
            (perf("4").to_string(), "perf_event_paranoid is 4,", "  "),
            (perf("").to_string(), "has no /proc/sys/kernel/perf_event_paranoid", " is ,"),
        ] {
            assert!(said.contains(has) && !said.contains(has_not), "{said}");
        }
    }
}
