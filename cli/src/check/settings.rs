//! Settings of the kernel that a check changes: read once, and put back whatever happens.
//!
//! **Invariants**
//! - W1. Every setting that was written is written back: at the end, on an error, in a panic, and on Ctrl-C,
//!   SIGTERM and SIGHUP. Once they were put back, nothing writes them any more.
//! - W2. One check at a time: a second one would measure under the first one's settings, and put those "back".
//!
//! **Locking**: the list of what was found is locked while a setting is written, so nobody writes after the restore.

use crate::failure::{Done, Failure};
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Exit code after an interrupt, as a shell would give it.
const INTERRUPTED: i32 = 130;

/// A setting as it was found.
struct Saved {
    path: PathBuf,
    value: String,
    written: bool,
}

/// See the module's text.
pub(super) struct Settings {
    /// Locked while this check is at work (W2).
    _alone: File,
    /// What is to be put back; empty once it was.
    saved: Arc<Mutex<Option<Vec<Saved>>>>,
}

/// The claim to be the only check at work (W2); settings are read under it.
pub(super) struct Alone(File);

impl Alone {
    /// Takes it, in this folder.
    pub(super) fn claim(locks: &Path) -> Done<Alone> {
        let path = locks.join("foliant-check.lock");
        // Where there is one it is not asked to be made: root may write to another user's file, but not make it anew.
        let there = File::options().write(true).open(&path);
        let open = there.or_else(|_| File::options().create(true).append(true).open(&path));
        let file = open.map_err(|e| needs_root(&path, &e))?;
        match file.try_lock() {
            Ok(()) => Ok(Alone(file)),
            Err(TryLockError::WouldBlock) => Err(Failure::new(
                "another foliant check is at work; both would measure the other's settings: wait for it to end",
            )),
            Err(TryLockError::Error(e)) => {
                Err(Failure::new(format_args!("{}: {e}", path.display())))
            }
        }
    }
}

fn needs_root(path: &Path, e: &io::Error) -> Failure {
    let path = path.display();
    Failure::new(format_args!(
        "foliant check needs root, because it writes to {path} ({e}); use sudo"
    ))
}

impl Settings {
    /// Those settings with the values that they have; the last is put back first. Writes the first one's value to it, to
    /// know whether others may be written.
    pub(super) fn new(
        alone: Alone,
        found: impl IntoIterator<Item = (PathBuf, String)>,
    ) -> Done<Settings> {
        let saved = |(path, value)| Saved { path, value, written: false };
        let saved: Vec<Saved> = found.into_iter().map(saved).collect();
        if let Some(Saved { path, value, .. }) = saved.first() {
            fs::write(path, value).map_err(|e| needs_root(path, &e))?;
        }
        Ok(Settings { _alone: alone.0, saved: Arc::new(Mutex::new(Some(saved))) })
    }

    /// From here on an interrupt puts everything back.
    pub(super) fn catch_signals(&self) -> Done {
        let saved = Arc::clone(&self.saved);
        ctrlc::set_handler(move || {
            let _ = put_back(&saved);
            std::process::exit(INTERRUPTED);
        })
        .map_err(|e| {
            Failure::new(format_args!("signals cannot be caught ({e}); nothing was changed"))
        })
    }

    /// Writes one of the settings.
    pub(super) fn write(&self, path: &Path, value: &str) -> Done {
        let mut saved = self.saved.lock().unwrap_or_else(|e| e.into_inner());
        let Some(all) = &mut *saved else {
            return Err(Failure::new("the run was interrupted; all settings are as before"));
        };
        let setting = all.iter_mut().find(|saved| saved.path == path);
        setting.expect("only what was saved is written").written = true;
        fs::write(path, value).map_err(|e| {
            Failure::new(format_args!("{value} cannot be written to {} ({e})", path.display()))
        })
    }

    /// Puts everything back.
    pub(super) fn restore(&self) -> Done {
        put_back(&self.saved)
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        if let Err(failure) = self.restore() {
            failure.report();
        }
    }
}

/// The lock is held to the end, so that nobody writes in between.
fn put_back(saved: &Mutex<Option<Vec<Saved>>>) -> Done {
    let mut saved = saved.lock().unwrap_or_else(|e| e.into_inner());
    let mut failed = Vec::new();
    for Saved { path, value, written } in saved.take().into_iter().flatten().rev() {
        if written && let Err(e) = fs::write(&path, &value) {
            failed.push(format!("{value} to {} ({e})", path.display()));
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    let list = failed.join(", ");
    Err(Failure::new(format_args!("settings were not put back; write {list} yourself")))
}
