//! Why a trace cannot be read or written.

use crate::budget::Spent;
use std::{fmt, io};

/// Why a trace cannot be read or written.
#[derive(Debug)]
pub enum TraceError {
    /// Reading or writing failed underneath.
    Io(io::Error),
    /// The file does not begin like a trace.
    NotATrace,
    /// The file is of a later version than this program knows.
    NewerVersion {
        /// The file's version.
        file: u16,
        /// The latest version that can be read here.
        known: u16,
    },
    /// The header is damaged.
    BadHeader {
        /// What is wrong with it.
        why: &'static str,
    },
    /// The file ends before its trailer.
    Truncated {
        /// Whole events before the end.
        events: u64,
    },
    /// A block is damaged.
    CorruptBlock {
        /// Which one, from 0.
        block: u64,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Something follows the trailer.
    TrailingBytes,
    /// It takes more than its reader was willing to give.
    Spent(Spent),
    /// An event handed to the writer breaks the rules of [`crate::event`].
    BadEvent {
        /// Which rule.
        why: &'static str,
    },
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceError::Io(e) => write!(f, "{e}"),
            TraceError::NotATrace => {
                f.write_str("this is not a Foliant trace; make one with `foliant record`")
            }
            TraceError::NewerVersion { file, known } => write!(
                f,
                "the trace has version {file}, this program reads up to {known}; use a newer foliant"
            ),
            TraceError::BadHeader { why } => {
                write!(f, "the trace's header is damaged ({why}); record it again")
            }
            TraceError::Truncated { events } => {
                write!(f, "the trace is cut off after {events} events; copy or record it again")
            }
            TraceError::CorruptBlock { block, why } => {
                write!(f, "block {block} of the trace is damaged ({why}); copy or record it again")
            }
            TraceError::TrailingBytes => {
                f.write_str("something follows the end of the trace; copy or record it again")
            }
            TraceError::Spent(spent) => write!(f, "{spent}"),
            TraceError::BadEvent { why } => write!(f, "an event cannot be recorded: {why}"),
        }
    }
}

impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TraceError::Io(e) => Some(e),
            TraceError::Spent(spent) => Some(spent),
            _ => None,
        }
    }
}

impl From<io::Error> for TraceError {
    fn from(e: io::Error) -> TraceError {
        TraceError::Io(e)
    }
}

impl From<Spent> for TraceError {
    fn from(spent: Spent) -> TraceError {
        TraceError::Spent(spent)
    }
}
