//! The kernel's switches of folio sizes: read once, set one at a time, and put back whatever happens.
//!
//! **Invariants**
//! - W1. Every switch that was written is written back: at the end, on an error, in a panic, and on Ctrl-C,
//!   SIGTERM and SIGHUP. Once they were put back, nothing writes them any more.
//! - W2. One check at a time: a second one would measure under the first one's switches, and put those "back".

use crate::failure::{Done, Failure};
use foliant::fault::parse_order;
use foliant_units::{Bytes, Order};
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

const ROOT: &str = "/sys/kernel/mm/transparent_hugepage";
/// Exit code after an interrupt, as a shell would give it.
const INTERRUPTED: i32 = 130;
/// While 2 MiB is on, khugepaged shall not come by: its pause is set to the longest there is.
const PAUSE: &str = "khugepaged/scan_sleep_millisecs";
const LONG: &str = "4294967295";

/// A switch as it was found.
struct Saved {
    path: PathBuf,
    value: String,
    written: bool,
}

/// See the module's text.
pub(super) struct Switches {
    sizes: Vec<(Order, PathBuf)>,
    skipped: Vec<Bytes>,
    pause: PathBuf,
    /// Locked while this check is at work (W2).
    _alone: File,
    /// What is to be put back; empty once it was.
    saved: Arc<Mutex<Option<Vec<Saved>>>>,
}

/// Takes the lock that says that a check is at work.
fn alone(locks: &Path) -> Done<File> {
    let path = locks.join("foliant-check.lock");
    let open = File::options().create(true).truncate(false).write(true).open(&path);
    let file = open.map_err(|e| Failure::new(format_args!("{}: {e}", path.display())))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Failure::new(
            "another foliant check is at work; both would measure the other's switches: wait for it to end",
        )),
        Err(TryLockError::Error(e)) => Err(Failure::new(format_args!("{}: {e}", path.display()))),
    }
}

impl Switches {
    /// Reads all switches; changes nothing but what an interrupt does.
    pub(super) fn open() -> Done<Switches> {
        Switches::open_at(Path::new(ROOT), &std::env::temp_dir())
    }

    fn open_at(root: &Path, locks: &Path) -> Done<Switches> {
        let alone = alone(locks)?;
        let none = |e| {
            Failure::new(format_args!(
                "this kernel has no switches for folio sizes in {} ({e}); Linux 6.8 or later has them",
                root.display()
            ))
        };
        let (mut sizes, mut skipped, mut saved) = (Vec::new(), Vec::new(), Vec::new());
        for entry in fs::read_dir(root).map_err(none)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = entry.path().join("enabled");
            let size = name.strip_prefix("hugepages-").and_then(|s| s.strip_suffix("kB"));
            let Some(kilobytes) = size.and_then(|s| s.parse::<u64>().ok()) else { continue };
            // Sizes for files only have no such switch.
            let Ok(text) = fs::read_to_string(&path) else { continue };
            match parse_order(&format!("{kilobytes}k")) {
                Ok(order) => sizes.push((order, path.clone())),
                Err(_) => skipped.push(Bytes::new(kilobytes << 10)),
            }
            saved.push(Saved { path, value: chosen(&text), written: false });
        }
        if sizes.is_empty() {
            return Err(none(ErrorKind::NotFound.into()));
        }
        sizes.sort();
        skipped.sort();
        let pause = root.join(PAUSE);
        if let Ok(value) = fs::read_to_string(&pause) {
            let (path, value) = (pause.clone(), value.trim().to_owned());
            saved.insert(0, Saved { path, value, written: false });
        }
        let switches = Switches {
            sizes,
            skipped,
            pause,
            _alone: alone,
            saved: Arc::new(Mutex::new(Some(saved))),
        };
        switches.may_write()?;
        switches.catch_signals()?;
        Ok(switches)
    }

    /// The sizes of anonymous memory that the kernel offers, smallest first.
    pub(super) fn orders(&self) -> Vec<Order> {
        self.sizes.iter().map(|(order, _)| *order).collect()
    }

    /// Sizes that the kernel offers and Foliant does not know.
    pub(super) fn skipped(&self) -> &[Bytes] {
        &self.skipped
    }

    /// Writes a value that is there already, to know whether others may be written.
    fn may_write(&self) -> Done {
        let (_, path) = &self.sizes[0];
        let same = fs::read_to_string(path).map(|text| chosen(&text));
        same.and_then(|value| fs::write(path, value)).map_err(|e| {
            Failure::new(format_args!(
                "foliant check needs root, because it sets {} ({e}); use sudo",
                path.display()
            ))
        })
    }

    fn catch_signals(&self) -> Done {
        let saved = Arc::clone(&self.saved);
        ctrlc::set_handler(move || {
            let _ = put_back(&saved);
            std::process::exit(INTERRUPTED);
        })
        .map_err(|e| {
            Failure::new(format_args!("signals cannot be caught ({e}); nothing was changed"))
        })
    }

    /// Enables one size, or none for [`Order::BASE`], for all areas.
    pub(super) fn only(&self, order: Order) -> Done {
        let mut saved = self.saved.lock().unwrap_or_else(|e| e.into_inner());
        let Some(all) = &mut *saved else {
            return Err(Failure::new("the run was interrupted; all switches are as before"));
        };
        for Saved { path, written, .. } in all {
            let on = self.sizes.iter().any(|(size, at)| *size == order && *at == *path);
            let value = match on {
                _ if *path == self.pause => LONG,
                true => "always",
                false => "never",
            };
            *written = true;
            fs::write(&*path, value).map_err(|e| {
                Failure::new(format_args!("{value} cannot be written to {} ({e})", path.display()))
            })?;
        }
        Ok(())
    }

    /// Puts everything back.
    pub(super) fn restore(&self) -> Done {
        put_back(&self.saved)
    }
}

impl Drop for Switches {
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
    Err(Failure::new(format_args!("switches were not put back; write {list} yourself")))
}

/// The chosen word of `always [madvise] never`.
fn chosen(text: &str) -> String {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(text.trim(), |(word, _)| word).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_word_stands_in_brackets() {
        assert_eq!(chosen("always inherit madvise [never]\n"), "never");
        assert_eq!(chosen("10000\n"), "10000");
    }

    #[test]
    fn one_size_is_on_and_all_are_put_back() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let write = |name: &str, text: &str| {
            fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            fs::write(at(name), text).unwrap();
        };
        write("hugepages-64kB/enabled", "always inherit [madvise] never");
        write("hugepages-2048kB/enabled", "always [inherit] madvise never");
        write("hugepages-8kB/shmem_enabled", "[never]");
        write(PAUSE, "10000\n");
        let read = |name: &str| fs::read_to_string(at(name)).unwrap();
        let order = |n| Order::new(n).unwrap();
        {
            let switches = Switches::open_at(root.path(), root.path()).unwrap();
            assert!(alone(root.path()).is_err(), "a second check is refused while one is at work");
            assert_eq!(switches.orders(), [order(4), order(9)]);
            switches.only(order(4)).unwrap();
            assert_eq!(read("hugepages-64kB/enabled"), "always");
            assert_eq!(read("hugepages-2048kB/enabled"), "never");
            assert_eq!(read(PAUSE), LONG);
            switches.restore().unwrap();
            assert!(switches.only(order(9)).is_err(), "nothing is written after the restore");
        }
        assert!(alone(root.path()).is_ok());
        assert_eq!(read("hugepages-64kB/enabled"), "madvise");
        assert_eq!(read("hugepages-2048kB/enabled"), "inherit");
        assert_eq!(read(PAUSE), "10000");
    }
}
