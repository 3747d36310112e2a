//! Where those meet who change settings, checks and runs: a directory that only root can write to,
//! with the lock of the one at work and its journal.
//!
//! ```text
//!   /run/foliant/check.lock      locked by the check at work
//!   /run/foliant/check.journal   a line for each setting that it is about to change: its value before, its file
//! ```
//!
//! Whoever can write to a directory decides what a name in it is: a pipe that is never opened, a
//! link to a file that root would make, a file that somebody else has locked. So the directory is
//! made by the user who changes the settings, and it and what is in it are looked at before they
//! are used.
//!
//! **Invariants**
//! - J1. Directory, lock and journal are this user's own, of the kind that they should be, no
//!   links, and nobody else can write to them. Opening one never waits and never makes a file
//!   elsewhere.
//! - J2. A setting's line is whole in the journal before the setting is written. The journal is
//!   removed only after all of its settings were put back, so whoever holds the lock next knows
//!   what a check that was killed has left.
//!
//! **Not here**: which settings there are and when they are written (`settings`).

use crate::failure::{Done, Failure};
use crate::shown;
use nix::libc;
use nix::unistd::geteuid;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Where the directory is: what lies in it is gone after a boot, as the settings are.
pub(crate) const RUN: &str = "/run/foliant";
const LOCK: &str = "check.lock";
const JOURNAL: &str = "check.journal";
/// A journal has some ten lines; what is longer is none.
const JOURNAL_MOST: u64 = 1 << 16;

/// The claim to be the only check at work; settings are read and written under it.
pub(crate) struct Alone {
    directory: PathBuf,
    /// Locked while this lives.
    lock: File,
}

impl Alone {
    /// Takes it, in this directory, which is made if it is not there.
    pub(crate) fn claim(directory: &Path) -> Done<Alone> {
        let failed = |e: &io::Error| needs_root(directory, e);
        match DirBuilder::new().mode(0o700).create(directory) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(failed(&e)),
            _ => {}
        }
        let there = fs::symlink_metadata(directory).map_err(|e| failed(&e))?;
        // Where root has been before, others are told that they are not root, and nothing else.
        if there.is_dir() && there.uid() == 0 && !geteuid().is_root() {
            return Err(failed(&ErrorKind::PermissionDenied.into()));
        }
        own(directory, &there, there.is_dir())?;
        let lock = open(&directory.join(LOCK), Asked::Lock)?;
        match lock.try_lock() {
            Ok(()) => Ok(Alone { directory: directory.to_owned(), lock }),
            Err(TryLockError::WouldBlock) => Err(Failure::new(
                "another foliant check, or run --switches, is at work; both would have the other's settings: wait for it to end",
            )),
            Err(TryLockError::Error(e)) => Err(failed(&e)),
        }
    }

    /// Lets another check begin, although a child that was being made may hold the lock's file for
    /// another moment.
    pub(crate) fn release(&self) {
        let _ = self.lock.unlock(); // else it goes with the last who has it open
    }

    /// The lines that a check which was killed has left, oldest first: files and the values that
    /// they had.
    pub(crate) fn left(&self) -> Done<Vec<(PathBuf, String)>> {
        let path = self.directory.join(JOURNAL);
        if fs::symlink_metadata(&path).is_err_and(|e| e.kind() == ErrorKind::NotFound) {
            return Ok(Vec::new());
        }
        let (mut text, file) = (String::new(), open(&path, Asked::Read)?);
        let read = file.take(JOURNAL_MOST).read_to_string(&mut text);
        read.map_err(|e| needs_root(&path, &e))?;
        // A line without its end was being written: its setting was not changed yet.
        let whole = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        Ok(whole
            .filter_map(|line| line.split_once('\t'))
            .map(|(v, p)| (p.into(), v.into()))
            .collect())
    }

    /// Writes a setting's line (J2).
    pub(crate) fn note(&self, setting: &Path, value: &str) -> Done {
        let path = self.directory.join(JOURNAL);
        let line = format!("{value}\t{}\n", setting.display());
        let mut journal = open(&path, Asked::Append)?;
        // One call: a line is there whole or not at all.
        let written = journal.write_all(line.as_bytes()).and_then(|()| journal.sync_data());
        written.map_err(|e| {
            let path = shown::path(&path);
            Failure::new(format_args!("{path} cannot be written ({e}); nothing more was changed"))
        })
    }

    /// Everything was put back.
    pub(crate) fn forget(&self) -> Done {
        let path = self.directory.join(JOURNAL);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(needs_root(&path, &e)),
            _ => Ok(()),
        }
    }

    /// The journal's path, for who has to look at it.
    pub(crate) fn journal(&self) -> PathBuf {
        self.directory.join(JOURNAL)
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.release();
    }
}

/// What a file is opened for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Lock,
    Read,
    Append,
}

/// Opens a file of the directory (J1).
fn open(path: &Path, asked: Asked) -> Done<File> {
    let mut options = OpenOptions::new();
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC).mode(0o600);
    let opened = match asked {
        Asked::Read => options.read(true).open(path),
        Asked::Lock | Asked::Append => options.append(true).create(true).open(path),
    };
    let file = opened.map_err(|e| match e.raw_os_error() {
        Some(libc::ELOOP | libc::ENXIO) => strange(path),
        _ => needs_root(path, &e),
    })?;
    let there = file.metadata().map_err(|e| needs_root(path, &e))?;
    own(path, &there, there.is_file() && there.nlink() == 1)?;
    Ok(file)
}

/// Refuses what is not of its kind, another's, or for others to write to.
fn own(path: &Path, there: &Metadata, is_kind: bool) -> Done {
    let me = fs::metadata("/proc/self").map_err(|e| needs_root(path, &e))?.uid();
    match is_kind && there.uid() == me && there.mode() & 0o022 == 0 {
        true => Ok(()),
        false => Err(strange(path)),
    }
}

fn strange(path: &Path) -> Failure {
    let path = shown::path(path);
    Failure::new(format_args!(
        "{path} is not what foliant made (another's, a link or of another kind); look at it and remove it"
    ))
}

pub(crate) fn needs_root(path: &Path, e: &io::Error) -> Failure {
    let path = shown::path(path);
    Failure::new(format_args!("this needs root, because it writes to {path} ({e}); use sudo"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::Command;

    fn refused(directory: &Path) -> String {
        match Alone::claim(directory) {
            Err(Failure::Said(said)) => said,
            Err(other) => panic!("{other:?}"),
            Ok(_) => panic!("{} was taken", directory.display()),
        }
    }

    #[test]
    fn one_at_a_time() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("foliant");
        let first = Alone::claim(&directory).unwrap();
        assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(refused(&directory).contains("another foliant check"));
        drop(first);
        Alone::claim(&directory).unwrap();
    }

    #[test]
    fn finding_x9_what_others_put_there_is_neither_opened_nor_waited_for() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("foliant");
        fs::create_dir(&directory).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
        let elsewhere = root.path().join("elsewhere");
        // A link: nothing may be made at its other end.
        symlink(&elsewhere, directory.join(LOCK)).unwrap();
        assert!(refused(&directory).contains(LOCK));
        assert!(!elsewhere.exists());
        fs::remove_file(directory.join(LOCK)).unwrap();
        // A pipe that nobody reads: opening it to write would wait for ever.
        let made = Command::new("mkfifo").arg(directory.join(LOCK)).status().unwrap();
        assert!(made.success());
        assert!(refused(&directory).contains(LOCK));
        fs::remove_file(directory.join(LOCK)).unwrap();
        // A second name of a file that lies elsewhere.
        fs::write(&elsewhere, "").unwrap();
        fs::hard_link(&elsewhere, directory.join(LOCK)).unwrap();
        assert!(refused(&directory).contains(LOCK));
        fs::remove_file(directory.join(LOCK)).unwrap();
        // A directory that others may write to, and a link to one.
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(refused(&directory).contains("foliant"));
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
        let link = root.path().join("link");
        symlink(&directory, &link).unwrap();
        assert!(refused(&link).contains("link"));
        Alone::claim(&directory).unwrap();
    }

    #[test]
    fn a_journal_is_read_up_to_the_line_that_was_being_written() {
        let root = tempfile::tempdir().unwrap();
        let alone = Alone::claim(&root.path().join("foliant")).unwrap();
        assert_eq!(alone.left().unwrap(), []);
        alone.note(Path::new("/sys/a"), "always").unwrap();
        alone.note(Path::new("/sys/b"), "10").unwrap();
        let mut journal = OpenOptions::new().append(true).open(alone.journal()).unwrap();
        journal.write_all(b"never\t/sys/c").unwrap();
        let expect = [("/sys/a", "always"), ("/sys/b", "10")];
        assert_eq!(alone.left().unwrap(), expect.map(|(p, v)| (p.into(), v.to_owned())));
        alone.forget().unwrap();
        alone.forget().unwrap();
        assert_eq!(alone.left().unwrap(), []);
    }
}
