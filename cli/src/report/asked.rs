//! What is asked for: how much, and what the words of a command mean.

use crate::args::{self, Args, Command, Lab, Replay};
use crate::failure::{Done, Failure};
use crate::{shown, usage};
use std::ffi::OsString;
use std::path::Path;

/// How much is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extent {
    /// Everything.
    Full,
    /// What takes seconds.
    Quick,
}

impl Extent {
    /// Numbers of CPUs that scaling is shown over.
    pub(crate) fn cpus(self) -> &'static [u64] {
        match self {
            Extent::Full => &[1, 2, 4, 8, 16, 32, 64, 128, 252],
            Extent::Quick => &[1, 4, 16],
        }
    }
    /// One of two.
    pub(crate) fn pick<T>(self, full: T, quick: T) -> T {
        match self {
            Extent::Full => full,
            Extent::Quick => quick,
        }
    }
}

/// A command line's meaning.
fn parsed(command: &str) -> Done<Option<Command>> {
    of_words(command.split_whitespace().map(OsString::from))
}

fn of_words(words: impl Iterator<Item = OsString>) -> Done<Option<Command>> {
    let words = args::plain(words);
    let args = Args::of(&words).map_err(|e| usage::failure(&e, &words))?;
    Ok(args.command)
}

/// What a line that begins with `foliant lab` asks for.
pub(crate) fn parsed_lab(command: &str) -> Done<Lab> {
    match parsed(command)? {
        Some(Command::Lab(lab)) => Ok(lab),
        _ => Err(Failure::new(format_args!("{command} is no scenario"))),
    }
}

/// What a line that begins with `foliant replay` asks for.
pub(crate) fn parsed_replay(command: &str) -> Done<Replay> {
    match parsed(command)? {
        Some(Command::Replay(replay)) => Ok(replay),
        _ => Err(Failure::new(format_args!("{command} is no replay"))),
    }
}

/// What `foliant replay FILE` asks for.
pub(crate) fn replay_of(file: &Path) -> Done<Replay> {
    let words = ["foliant", "replay", "--"].map(OsString::from).into_iter();
    match of_words(words.chain([file.into()]))? {
        Some(Command::Replay(replay)) => Ok(replay),
        _ => Err(Failure::new(format_args!("{} is no recording", shown::path(file)))),
    }
}
