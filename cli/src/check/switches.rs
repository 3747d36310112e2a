//! The kernel's switches of folio sizes, set as a policy says, and its counters of folios that it
//! did not have.
//!
//! **Not here**: putting them back (`settings`).

use crate::failure::{Done, Failure};
use crate::settings::{Alone, Present, ROOT, RUN, Settings, Switch, recover};
use foliant::fault::{Orders, Size};
use foliant_trace::replay::Choice;
use foliant_units::{Bytes, Order};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// While 2 MiB is on, khugepaged shall not come by: its pause is the longest there is. It comes
/// once before its pause begins; what has a hole then, or a page that is shared, it leaves alone.
const STILL: [(&str, &str); 3] =
    [(PAUSE, "4294967295"), ("khugepaged/max_ptes_none", "0"), ("khugepaged/max_ptes_shared", "0")];
const PAUSE: &str = "khugepaged/scan_sleep_millisecs";

/// Where counters of a size lie; those of faults, and among them those of folios that were given,
/// or that another one has as well.
const STATS: &str = "stats";
const FAULT: &str = "anon_fault_";
const SERVED: [&str; 2] = ["alloc", "fallback_charge"];

/// Faults that got a smaller folio, by the size that was not to be had and by why: `fallback`, and
/// whatever else the kernel counts.
pub(super) struct Fallbacks(BTreeMap<(Order, String), u64>);

impl Fallbacks {
    /// What has been added to those before.
    pub(super) fn since(mut self, before: &Fallbacks) -> Fallbacks {
        for (of, count) in &mut self.0 {
            *count = count.saturating_sub(before.0.get(of).copied().unwrap_or(0));
        }
        self
    }

    /// Pages that may have come otherwise than they would have.
    pub(super) fn pages(&self) -> u64 {
        self.0.iter().map(|((order, _), count)| count.saturating_mul(order.pages().get())).sum()
    }

    /// Those that there are, of all sizes, by the kernel's name.
    pub(super) fn by_counter(&self) -> BTreeMap<String, u64> {
        let mut all = BTreeMap::new();
        for ((_, why), count) in self.0.iter().filter(|(_, count)| **count > 0) {
            *all.entry(format!("{FAULT}{why}")).or_default() += count;
        }
        all
    }
}

/// See the module's text.
pub(super) struct Switches {
    /// The sizes of anonymous memory, smallest first.
    sizes: Vec<(Order, PathBuf)>,
    skipped: Vec<Bytes>,
    /// As they were found.
    present: Present,
    /// What else is set, and to what.
    still: Vec<(PathBuf, &'static str)>,
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
        let present = Present::read(root)?;
        if present.is_global_alone() {
            return Err(Failure::new(format_args!(
                "this kernel has no switches for folio sizes in {}; Linux 6.8 or later has them",
                root.display()
            )));
        }
        let known = |switch: &Switch| Some((switch.order?, switch.path.clone()));
        let sizes = present.switches.iter().filter_map(known).collect();
        let unknown = present.switches.iter().filter(|switch| switch.order.is_none());
        let skipped = unknown.map(|switch| switch.bytes).collect();
        let found = |switch: &Switch| (switch.path.clone(), switch.position.label().to_owned());
        let mut found: Vec<_> = present.switches.iter().map(found).collect();
        let mut still = Vec::new();
        for (name, value) in STILL {
            let path = root.join(name);
            if let Ok(before) = fs::read_to_string(&path) {
                found.insert(0, (path.clone(), before.trim().to_owned()));
                still.push((path, value));
            }
        }
        let settings = Settings::new(alone, found)?;
        Ok(Switches { sizes, skipped, present, still, settings })
    }

    /// The sizes of anonymous memory that the kernel offers.
    pub(super) fn orders(&self) -> Orders {
        self.sizes.iter().fold(Orders::NONE, |all, (order, _)| all.with(Orders::of(*order)))
    }

    /// Sizes that the kernel offers and Foliant does not know.
    pub(super) fn skipped(&self) -> &[Bytes] {
        &self.skipped
    }

    /// As they were found.
    pub(super) fn present(&self) -> &Present {
        &self.present
    }

    /// Enables the policy's sizes, and no others, for all areas.
    pub(super) fn set(&self, choice: Choice) -> Done {
        let orders = choice.orders();
        let is_on = |switch: &Switch| switch.order.is_some_and(|order| orders.contains(order));
        let on = |switch| if is_on(switch) { Size::Always } else { Size::Never };
        self.put(&self.present.switches.iter().map(on).collect::<Vec<_>>())
    }

    /// Puts each switch into its position.
    pub(super) fn put(&self, positions: &[Size]) -> Done {
        for (path, value) in &self.still {
            self.settings.write(path, value)?;
        }
        for (switch, position) in self.present.switches.iter().zip(positions) {
            self.settings.write(&switch.path, position.label())?;
        }
        Ok(())
    }

    /// How often the kernel had no folio of any size for a fault, since it was booted.
    pub(super) fn all_fallbacks(&self) -> Fallbacks {
        self.fallbacks(Choice::UpTo(Order::SIZE_2M))
    }

    /// How often the kernel had no folio of the policy's sizes for a fault, since it was booted.
    pub(super) fn fallbacks(&self, choice: Choice) -> Fallbacks {
        let orders = choice.orders();
        let mut counts = BTreeMap::new();
        for (order, path) in self.sizes.iter().filter(|(order, _)| orders.contains(*order)) {
            let stats = path.with_file_name(STATS);
            for entry in fs::read_dir(stats).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                let Some(what) = name.strip_prefix(FAULT).filter(|what| !SERVED.contains(what))
                else {
                    continue;
                };
                let text = fs::read_to_string(entry.path()).unwrap_or_default();
                counts.insert((*order, what.to_owned()), text.trim().parse().unwrap_or(0));
            }
        }
        Fallbacks(counts)
    }

    /// Puts everything back.
    pub(super) fn restore(&self) -> Done {
        self.settings.restore()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let before = [(PAUSE, "10000"), (STILL[1].0, "511"), (STILL[2].0, "256")];
        for (name, value) in before {
            write(name, &format!("{value}\n"));
        }
        let read = |name: &str| fs::read_to_string(at(name)).unwrap();
        let (order, place) = (|n| Order::new(n).unwrap(), at("place"));
        {
            let switches = Switches::open_at(root.path(), &place).unwrap();
            assert!(
                Alone::claim(&place).is_err(),
                "a second check is refused while one is at work"
            );
            assert_eq!(switches.orders(), Orders::of(order(4)).with(Orders::of(order(9))));
            let both = || ["64kB", "2048kB"].map(|name| read(&format!("hugepages-{name}/enabled")));
            for (choice, expect) in [
                (Choice::UpTo(order(9)), ["always", "always"]),
                (Choice::Only(order(9)), ["never", "always"]),
                (Choice::BASE, ["never", "never"]),
            ] {
                switches.set(choice).unwrap();
                assert_eq!(both(), expect, "{choice}");
            }
            switches.set(Choice::Only(order(4))).unwrap();
            assert_eq!(read("hugepages-64kB/enabled"), "always");
            assert_eq!(read("hugepages-2048kB/enabled"), "never");
            for (name, value) in STILL {
                assert_eq!(read(name), value, "{name}");
            }
            switches.restore().unwrap();
            assert!(switches.set(Choice::BASE).is_err(), "nothing is written after the restore");
        }
        assert!(Alone::claim(&place).unwrap().left().unwrap().is_empty());
        assert_eq!(read("hugepages-64kB/enabled"), "madvise");
        assert_eq!(read("hugepages-2048kB/enabled"), "inherit");
        for (name, value) in before {
            assert_eq!(read(name), value, "{name}");
        }
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
        let (choice, place) = (Choice::Only(Order::new(4).unwrap()), at("place"));
        let switches = Switches::open_at(root.path(), &place).unwrap();
        switches.set(choice).unwrap();
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

    #[test]
    fn folios_that_were_not_to_be_had_are_counted_by_size_and_reason() {
        let root = tempfile::tempdir().unwrap();
        let write = |size: &str, counts: &[(&str, u64)]| {
            let folder = root.path().join(format!("hugepages-{size}"));
            fs::create_dir_all(folder.join(STATS)).unwrap();
            fs::write(folder.join("enabled"), "always [madvise] never").unwrap();
            for (name, count) in counts {
                fs::write(folder.join(STATS).join(name), format!("{count}\n")).unwrap();
            }
        };
        let counters = ["anon_fault_alloc", "anon_fault_fallback", "anon_fault_fallback_charge"];
        let all = |n: u64| counters.map(|name| (name, n));
        write("16kB", &all(100));
        write("64kB", &all(100));
        let switches = Switches::open_at(root.path(), &root.path().join("place")).unwrap();
        let [small, large] = [2, 4].map(|n| Order::new(n).unwrap());
        let before = switches.fallbacks(Choice::UpTo(large));
        write("16kB", &[("anon_fault_alloc", 500), ("anon_fault_fallback", 103)]);
        write("64kB", &[("anon_fault_fallback", 102), ("anon_fault_declined", 5), ("split", 9)]);
        let since = |choice| switches.fallbacks(choice).since(&before);
        assert_eq!(since(Choice::UpTo(large)).pages(), 3 * 4 + (2 + 5) * 16);
        assert_eq!(since(Choice::Only(small)).pages(), 3 * 4);
        assert_eq!(since(Choice::BASE).pages(), 0);
        let told = since(Choice::UpTo(large)).by_counter();
        let told: Vec<_> = told.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        assert_eq!(told, [("anon_fault_declined", 5), ("anon_fault_fallback", 5)]);
        assert!(since(Choice::BASE).by_counter().is_empty());
    }
}
