//! Files of `/sys` and `/proc` about the machine: this host is asked which words it takes, and
//! which lines it shows. What is written is put back; nothing is switched on that was off. Numbers
//! of the pool are left alone, because `pool` writes them.

use foliant::Manager;
use foliant::manager::Setup;
use foliant::table::X86_64;
use foliant_linux::meminfo::{self, Listed};
use foliant_linux::overcommit::Overcommit;
use foliant_linux::{Errno, Khugepaged, ShmemEnabled, sys, vm, zones};
use foliant_sim::{Config, Sim};
use foliant_units::Bytes;
use std::fmt;
use std::fs;
use std::io::Write;
use std::path::Path;

const SYS: &str = "/sys/kernel/mm";
const PROC: &str = "/proc/sys";

type Mm<'m> = Manager<'m, Sim, X86_64<4>>;

/// Runs `test` with a manager that has no space.
fn with(test: impl FnOnce(&Mm<'_>)) {
    let sim = Sim::new(Config::seeded(1, Bytes::new(32 << 20), 1)).unwrap();
    let setup = Setup::of(&sim.config().memory, foliant::Policy::default());
    let mm = Mm::new(&sim, &setup).unwrap();
    mm.online();
    test(&mm);
}

/// Writes a word as a program would, and says how that ended.
fn write(path: &Path, word: &str) -> Result<(), Errno> {
    let file = fs::OpenOptions::new().write(true).open(path);
    let done = file.and_then(|mut file| file.write(word.as_bytes()));
    done.map(drop).map_err(|why| Errno(why.raw_os_error().unwrap_or(0) as u32))
}

/// A file of the host that gets back what it had.
struct Kept<'f> {
    path: &'f Path,
    had: String,
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        if let Err(why) = write(self.path, &self.had) {
            eprintln!("{} stays changed, it had {}: {why}", self.path.display(), self.had);
        }
    }
}

/// The word of a file that holds: the one in brackets, or all of it.
fn word(text: &str) -> &str {
    let inner = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inner.map_or(text, |(word, _)| word)
}

/// Whether this process may write such files.
fn may_write() -> bool {
    let file = Path::new(SYS).join("transparent_hugepage/khugepaged/defrag");
    let may = fs::OpenOptions::new().write(true).open(file);
    if let Err(why) = &may {
        println!("skipped: this process may not write files of {SYS}: {why}");
    }
    may.is_ok()
}

/// Has this host and the crate take each word, and compares what they say and what they show then.
fn compare(
    path: &Path,
    words: &[&str],
    mut ours: impl FnMut(&str) -> (Result<(), Errno>, Option<String>),
) {
    let Ok(had) = fs::read_to_string(path) else {
        for word in words {
            assert_eq!(write(path, word), ours(word).0, "{}: {word:?}", path.display());
        }
        return;
    };
    let kept = Kept { path, had: word(&had).to_owned() };
    assert_eq!(ours(&kept.had).0, Ok(()), "{} has {had:?}", path.display());
    for word in words {
        let (answer, shown) = ours(word);
        assert_eq!(write(path, word), answer, "{}: {word:?}", path.display());
        assert_eq!(fs::read_to_string(path).ok(), shown, "{}: {word:?}", path.display());
    }
}

#[test]
fn khugepaged_takes_what_this_host_takes() {
    if !may_write() {
        return;
    }
    let mut khugepaged = Khugepaged::default();
    let ptes = ["512", "511", "-1", "9 ", "99999999999999999999"];
    for (name, words) in [
        ("defrag", &["2", "0", "01\n", "x", "99999999999999999999"][..]),
        ("pages_to_scan", &["0", "4294967296", "+64\n"]),
        ("scan_sleep_millisecs", &["4294967296", "-1", "10001"]),
        ("alloc_sleep_millisecs", &["4294967295", "0x10", "60001"]),
        ("max_ptes_none", &ptes),
        ("max_ptes_swap", &ptes),
        ("max_ptes_shared", &ptes),
    ] {
        let name = format!("transparent_hugepage/khugepaged/{name}");
        compare(&Path::new(SYS).join(&name), words, |word| {
            (khugepaged.write(&name, word), khugepaged.read(&name).ok())
        });
    }
    for name in ["full_scans", "pages_collapsed"] {
        let name = format!("transparent_hugepage/khugepaged/{name}");
        let host = write(&Path::new(SYS).join(&name), "1");
        assert_eq!(host, khugepaged.write(&name, "1"), "{name}");
    }
}

#[test]
fn the_switch_of_zeros_takes_what_this_host_takes() {
    let name = "transparent_hugepage/use_zero_page";
    let path = Path::new(SYS).join(name);
    let Some(had) = fs::read_to_string(&path).ok().filter(|_| may_write()) else { return };
    let same = [format!("0{had}"), format!("+{}", had.trim())];
    with(|mm| {
        let words = [&same[0], &same[1], "2", "x", "-1", "99999999999999999999"];
        compare(&path, &words, |word| (sys::write(mm, name, word), sys::read(mm, name).ok()));
    });
}

#[test]
fn shmem_enabled_takes_what_this_host_takes() {
    let of = |name: &str| format!("transparent_hugepage/{name}shmem_enabled");
    let (all, one) = (of(""), of("hugepages-64kB/"));
    let here = |name: &str| fs::read_to_string(Path::new(SYS).join(name)).unwrap_or_default();
    if !may_write() || word(&here(&all)) != "never" || word(&here(&one)) != "never" {
        return println!("skipped: sizes of shared memory cannot be switched, or are on");
    }
    with(|mm| {
        let mut words = ShmemEnabled::new(mm);
        let mut compare = |name: &str, tried: &[&str]| {
            compare(&Path::new(SYS).join(name), tried, |word| {
                (words.write(mm, name, word), words.read(name).ok())
            });
        };
        compare(&all, &["deny", "never\n", "inherit", "Never", "never ", "never\n\n"]);
        compare(&one, &["inherit\n", "never", "deny", "force", "madvise", "auto"]);
        // With a size below 2 MiB that inherits nothing is forced.
        let kept = Kept { path: &Path::new(SYS).join(&one), had: "never".into() };
        let both = [write(kept.path, "inherit"), write(&Path::new(SYS).join(&all), "force")];
        assert_eq!(both, [words.write(mm, &one, "inherit"), words.write(mm, &all, "force")]);
    });
}

#[test]
fn files_of_vm_take_what_this_host_takes() {
    if !may_write() {
        return;
    }
    let lowest = fs::read_to_string(Path::new(PROC).join("vm/mmap_min_addr")).unwrap();
    let lowest = lowest.trim();
    let hexadecimal = format!("\t{:#x} 7", lowest.parse::<u64>().unwrap());
    with(|mm| {
        let overcommit = Overcommit::new(mm.memory().managed, mm.memory().free);
        for (name, words) in [
            ("compact_memory", &["0", "2", "-1", "x", "99999999999", "\n"][..]),
            ("drop_caches", &["0", "-1", "x", "2147483648", " "]),
            ("hugetlb_optimize_vmemmap", &["x", "2147483648", "0x"]),
            ("mmap_min_addr", &[lowest, &hexadecimal, "-1", "4k", "08", "18446744073709551616"]),
            ("overcommit_memory", &["0", " 0x0\n", "00 1", "3", "-1", "0,", "+0"]),
            ("overcommit_ratio", &["50", "x", "-2147483649"]),
            ("user_reserve_kbytes", &["-1", "k"]),
        ] {
            let name = format!("vm/{name}");
            let path = Path::new(PROC).join(&name);
            if !path.exists() {
                println!("skipped: this host has no {}", path.display());
                continue;
            }
            compare(&path, words, |word| {
                (vm::write(mm, &overcommit, &name, word), vm::read(mm, &overcommit, &name).ok())
            });
        }
        for name in vm::names() {
            let host = fs::read_to_string(Path::new(PROC).join(&name));
            let host = host.map(drop).map_err(|why| Errno(why.raw_os_error().unwrap() as u32));
            assert_eq!(host, vm::read(mm, &overcommit, &name).map(drop), "{name}");
        }
    });
}

#[test]
fn files_have_the_names_that_this_host_has() {
    let folder = Path::new(SYS).join("transparent_hugepage");
    let Ok(sizes) = fs::read_dir(&folder) else {
        return println!("skipped: this host has no {}", folder.display());
    };
    let below = |name: String| format!("transparent_hugepage/{name}");
    let names = |folder: &Path| {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    let khugepaged = names(&folder.join("khugepaged"));
    let khugepaged = khugepaged.into_iter().map(|name| below(format!("khugepaged/{name}")));
    assert_eq!(sorted(khugepaged.collect()), sorted(Khugepaged::names()));
    let sizes = sizes.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let with_shmem = sizes.filter(|size| folder.join(size).join("shmem_enabled").exists());
    let shmem = with_shmem.map(|size| below(format!("{size}/shmem_enabled")));
    let shmem = shmem.chain([below("shmem_enabled".into())]).collect();
    assert_eq!(sorted(shmem), sorted(ShmemEnabled::names()));
}

/// A line with `#` for each number.
fn shape(line: &str) -> String {
    let line = line.split('(').next().unwrap_or_default();
    let mut shape = String::new();
    for letter in line.chars() {
        match letter.is_ascii_digit() {
            true if shape.ends_with('#') => {}
            true => shape.push('#'),
            false => shape.push(letter),
        }
    }
    shape
}

/// Looks whether each line stands in the host's file as well, in the same order.
fn is_part_of(name: &str, ours: &str, shape: impl Fn(&str) -> String) {
    let host = match fs::read_to_string(name) {
        Ok(host) => host,
        Err(why) => return println!("skipped: {name} cannot be read: {why}"),
    };
    let mut rest = host.lines().map(&shape);
    for line in ours.lines() {
        let line = shape(line);
        assert!(rest.any(|there| there == line), "{name} of this host has no {line:?} there");
    }
}

#[test]
fn lines_are_such_as_this_host_has() {
    let text = |write: &dyn Fn(&mut String) -> fmt::Result| {
        let mut text = String::new();
        write(&mut text).unwrap();
        text
    };
    with(|mm| {
        let listed = Listed::default();
        let overcommit = Overcommit::new(mm.memory().managed, mm.memory().free);
        // Numbers stand on the right, and so does what is behind them.
        let columns = |line: &str| {
            let name = line.split(':').next().unwrap_or_default();
            format!("{name} {}", line.chars().count())
        };
        let meminfo = text(&|out| meminfo::meminfo(mm, &overcommit, &listed, out));
        // Some hosts are built without it.
        let is_common = |line: &&str| !line.starts_with("HardwareCorrupted");
        let common: Vec<&str> = meminfo.lines().filter(is_common).collect();
        is_part_of("/proc/meminfo", &common.join("\n"), columns);
        let zoneinfo = text(&|out| zones::zoneinfo(mm, &listed, out));
        let (_, behind) = zoneinfo.split_once('\n').unwrap();
        is_part_of("/proc/zoneinfo", behind, shape);
        let whole_words = |line: &str| shape(line).split_whitespace().collect::<Vec<_>>().join(" ");
        let types = text(&|out| zones::pagetypeinfo(mm, out));
        is_part_of("/proc/pagetypeinfo", &types, whole_words);
    });
}
