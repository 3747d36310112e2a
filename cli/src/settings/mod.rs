//! Settings of the kernel that a check changes, or a run: read once, and put back whatever happens.
//!
//! **Invariants**
//! - W1. Every setting that was written is written back: at the end, on an error, in a panic, and
//!   on every signal that would end the command and can be caught, once what was started has ended
//!   (a check ends it: `descendants`). Once they were put back, nothing writes them any more.
//! - W2. One at a time (`place`): a second one would measure under the first one's settings,
//!   and put those "back".
//! - W3. What no program can catch (SIGKILL, or its own crash) leaves a journal, and the next one
//!   puts back what it says before it reads a setting.
//!
//! **Locking**: the list of what was found is locked while a setting is written, so nobody writes
//! after the restore.

mod descendants;
mod place;
mod present;

pub(crate) use place::{Alone, RUN};
pub(crate) use present::{Present, ROOT, Switch};

use crate::failure::{Done, Failure, tell};
use crate::shown;
use nix::sys::signal::{SigSet, Signal};
use place::needs_root;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Signals that are not waited for: those that cannot be, those that do not end a program, and
/// those that tell of a mistake in the very instruction that was carried out.
const OTHERS: [Signal; 17] = [
    Signal::SIGKILL,
    Signal::SIGSTOP,
    Signal::SIGTSTP,
    Signal::SIGTTIN,
    Signal::SIGTTOU,
    Signal::SIGCONT,
    Signal::SIGCHLD,
    Signal::SIGURG,
    Signal::SIGWINCH,
    Signal::SIGPIPE,
    Signal::SIGSEGV,
    Signal::SIGBUS,
    Signal::SIGILL,
    Signal::SIGFPE,
    Signal::SIGTRAP,
    Signal::SIGABRT,
    Signal::SIGSYS,
];
/// Exit code after a signal without a name here (a real-time one).
const SIGNALED: i32 = 129;

/// A setting as it was found.
struct Saved {
    path: PathBuf,
    value: String,
    written: bool,
}

/// See the module's text.
pub(crate) struct Settings {
    shared: Arc<Shared>,
}

struct Shared {
    /// Held while this one is at work (W2).
    alone: Alone,
    /// What is to be put back; empty once it was.
    saved: Mutex<Option<Vec<Saved>>>,
}

/// Puts back what a check has left that was killed (W3), and says so.
pub(crate) fn recover(alone: &Alone) -> Done {
    let left = alone.left()?;
    if left.is_empty() {
        return alone.forget();
    }
    let list: Vec<String> =
        left.iter().map(|(path, value)| format!("{value} to {}", shown::path(path))).collect();
    // The last was written under all others, so it is put back first; one that was noted twice had
    // its first value before.
    let saved = left.into_iter().map(|(path, value)| Saved { path, value, written: true });
    put_back(saved.collect(), alone)?;
    tell(format_args!(
        "foliant: a check was killed before it could put settings back; now done: {}",
        list.join(", ")
    ));
    Ok(())
}

impl Settings {
    /// Those settings with the values that they have; the last is put back first. Writes the first
    /// one's value to it, to know whether others may be written.
    pub(crate) fn new(
        alone: Alone,
        found: impl IntoIterator<Item = (PathBuf, String)>,
    ) -> Done<Settings> {
        let saved = |(path, value)| Saved { path, value, written: false };
        let saved: Vec<Saved> = found.into_iter().map(saved).collect();
        if let Some(Saved { path, value, .. }) = saved.first() {
            fs::write(path, value).map_err(|e| needs_root(path, &e))?;
        }
        Ok(Settings { shared: Arc::new(Shared { alone, saved: Mutex::new(Some(saved)) }) })
    }

    /// From here on a signal puts everything back. They are blocked in this thread and those that
    /// it starts, and a thread of their own waits for them; programs that are started have none
    /// blocked.
    pub(crate) fn catch_signals(&self) -> Done {
        let mut signals = SigSet::all();
        OTHERS.iter().for_each(|other| signals.remove(*other));
        let failed = |e: &dyn std::fmt::Display| {
            Failure::new(format_args!("signals cannot be caught ({e}); nothing was changed"))
        };
        signals.thread_block().map_err(|e| failed(&e))?;
        let shared = Arc::clone(&self.shared);
        let wait = move || {
            let signal = signals.wait();
            let code = signal.map_or(SIGNALED, |signal| 128 + signal as i32);
            // Locked until the process is gone: the check neither writes any more nor ends with
            // another code.
            let mut saved = shared.saved.lock().unwrap_or_else(|e| e.into_inner());
            descendants::end(signal.unwrap_or(Signal::SIGTERM));
            if let Err(failure) = put_back(saved.take().unwrap_or_default(), &shared.alone) {
                failure.report();
            }
            shared.alone.release();
            std::process::exit(code);
        };
        let thread = std::thread::Builder::new().name("foliant-signals".to_owned());
        thread.spawn(wait).map(drop).map_err(|e| failed(&e))
    }

    /// Writes one of the settings.
    pub(crate) fn write(&self, path: &Path, value: &str) -> Done {
        let Shared { alone, saved } = &*self.shared;
        let mut saved = saved.lock().unwrap_or_else(|e| e.into_inner());
        let Some(all) = &mut *saved else {
            return Err(Failure::new("the run was interrupted; all settings are as before"));
        };
        let setting = all.iter_mut().find(|saved| saved.path == path);
        let setting = setting.expect("only what was saved is written");
        if !setting.written {
            alone.note(&setting.path, &setting.value)?;
            setting.written = true;
        }
        fs::write(path, value).map_err(|e| {
            Failure::new(format_args!("{value} cannot be written to {} ({e})", path.display()))
        })
    }

    /// Puts everything back.
    pub(crate) fn restore(&self) -> Done {
        self.shared.put_back()
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        if let Err(failure) = self.restore() {
            failure.report();
        }
    }
}

impl Shared {
    /// The lock is held to the end, so that nobody writes in between.
    fn put_back(&self) -> Done {
        let mut saved = self.saved.lock().unwrap_or_else(|e| e.into_inner());
        match saved.take() {
            Some(all) => put_back(all, &self.alone),
            None => Ok(()),
        }
    }
}

/// Writes what was there before, the last first, and forgets the journal once all is done.
fn put_back(saved: Vec<Saved>, alone: &Alone) -> Done {
    let mut failed = Vec::new();
    for Saved { path, value, written } in saved.into_iter().rev() {
        // A setting that is gone has nothing to be put back to.
        if written
            && let Err(e) = fs::write(&path, &value)
            && e.kind() != ErrorKind::NotFound
        {
            failed.push(format!("{value} to {} ({e})", shown::path(&path)));
        }
    }
    if failed.is_empty() {
        return alone.forget();
    }
    let (list, journal) = (failed.join(", "), shown::path(&alone.journal()));
    Err(Failure::new(format_args!(
        "settings were not put back; write {list} yourself, and remove {journal}"
    )))
}
