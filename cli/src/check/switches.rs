//! The kernel's switches of folio sizes, set one at a time so that each can be measured alone.
//!
//! **Not here**: putting them back (`settings`).

use super::place::{Alone, RUN};
use super::settings::{Settings, recover};
use crate::failure::{Done, Failure};
use foliant::fault::parse_order;
use foliant_units::{Bytes, Order};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

const ROOT: &str = "/sys/kernel/mm/transparent_hugepage";
/// While 2 MiB is on, khugepaged shall not come by: its pause is set to the longest there is.
const PAUSE: &str = "khugepaged/scan_sleep_millisecs";
const LONG: &str = "4294967295";

/// See the module's text.
pub(super) struct Switches {
    /// The sizes of anonymous memory, smallest first.
    sizes: Vec<(Order, PathBuf)>,
    skipped: Vec<Bytes>,
    /// Every switch, with what else must hold still.
    all: Vec<PathBuf>,
    pause: PathBuf,
    settings: Settings,
}

impl Switches {
    /// Reads all switches; changes nothing but what an interrupt does.
    pub(super) fn open() -> Done<Switches> {
        let switches = Switches::open_at(Path::new(ROOT), Path::new(RUN))?;
        switches.settings.catch_signals()?;
        Ok(switches)
    }

    fn open_at(root: &Path, place: &Path) -> Done<Switches> {
        let alone = Alone::claim(place)?;
        recover(&alone)?;
        let none = |e| {
            Failure::new(format_args!(
                "this kernel has no switches for folio sizes in {} ({e}); Linux 6.8 or later has them",
                root.display()
            ))
        };
        let (mut sizes, mut skipped, mut found) = (Vec::new(), Vec::new(), Vec::new());
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
            found.push((path, chosen(&text)));
        }
        if sizes.is_empty() {
            return Err(none(ErrorKind::NotFound.into()));
        }
        sizes.sort();
        skipped.sort();
        let pause = root.join(PAUSE);
        if let Ok(value) = fs::read_to_string(&pause) {
            found.insert(0, (pause.clone(), value.trim().to_owned()));
        }
        let all = found.iter().map(|(path, _)| path.clone()).collect();
        let settings = Settings::new(alone, found)?;
        Ok(Switches { sizes, skipped, all, pause, settings })
    }

    /// The sizes of anonymous memory that the kernel offers, smallest first.
    pub(super) fn orders(&self) -> Vec<Order> {
        self.sizes.iter().map(|(order, _)| *order).collect()
    }

    /// Sizes that the kernel offers and Foliant does not know.
    pub(super) fn skipped(&self) -> &[Bytes] {
        &self.skipped
    }

    /// Enables one size, or none for [`Order::BASE`], for all areas.
    pub(super) fn only(&self, order: Order) -> Done {
        for path in &self.all {
            let on = self.sizes.iter().any(|(size, at)| *size == order && at == path);
            let value = match on {
                _ if *path == self.pause => LONG,
                true => "always",
                false => "never",
            };
            self.settings.write(path, value)?;
        }
        Ok(())
    }

    /// Puts everything back.
    pub(super) fn restore(&self) -> Done {
        self.settings.restore()
    }
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
        let (order, place) = (|n| Order::new(n).unwrap(), at("place"));
        {
            let switches = Switches::open_at(root.path(), &place).unwrap();
            assert!(
                Alone::claim(&place).is_err(),
                "a second check is refused while one is at work"
            );
            assert_eq!(switches.orders(), [order(4), order(9)]);
            switches.only(order(4)).unwrap();
            assert_eq!(read("hugepages-64kB/enabled"), "always");
            assert_eq!(read("hugepages-2048kB/enabled"), "never");
            assert_eq!(read(PAUSE), LONG);
            switches.restore().unwrap();
            assert!(switches.only(order(9)).is_err(), "nothing is written after the restore");
        }
        assert!(Alone::claim(&place).unwrap().left().unwrap().is_empty());
        assert_eq!(read("hugepages-64kB/enabled"), "madvise");
        assert_eq!(read("hugepages-2048kB/enabled"), "inherit");
        assert_eq!(read(PAUSE), "10000");
    }

    /// A check that is killed between two writes leaves what it wrote; the next one puts it back
    /// before it reads anything.
    #[test]
    fn finding_x8_what_a_killed_check_left_is_put_back_by_the_next() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for name in ["hugepages-64kB", "hugepages-2048kB"] {
            fs::create_dir_all(at(name)).unwrap();
            fs::write(at(name).join("enabled"), "always [madvise] never").unwrap();
        }
        let (order, place) = (Order::new(4).unwrap(), at("place"));
        let switches = Switches::open_at(root.path(), &place).unwrap();
        switches.only(order).unwrap();
        // As SIGKILL does: nothing is put back, and the lock is let go by the kernel.
        std::mem::forget(switches);
        let lock = fs::File::open(place.join("check.lock")).unwrap();
        assert!(lock.try_lock().is_err());
        fs::remove_file(place.join("check.lock")).unwrap();
        let next = Switches::open_at(root.path(), &place).unwrap();
        for name in ["hugepages-64kB", "hugepages-2048kB"] {
            assert_eq!(fs::read_to_string(at(name).join("enabled")).unwrap(), "madvise", "{name}");
        }
        drop(next);
        assert!(!place.join("check.journal").exists());
    }
}
