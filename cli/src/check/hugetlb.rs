//! `foliant check --hugetlb`: what the Linux of this machine takes for a page of its pool, folding
//! off and on.
//!
//! ```text
//!   hugetlb_optimize_vmemmap = 0, 1:   nr_hugepages += N (timed)   nr_hugepages -= N (timed)   first round thrown away
//! ```
//!
//! A page is folded when it enters the pool, so folding is switched while the N pages are out of
//! it. The first round of each setting is not counted: memory that was never used takes longer the
//! first time.
//!
//! **Not here**: Foliant's own pool (`foliant lab hugetlb`).

use crate::args::Check;
use crate::document::Document;
use crate::failure::{Done, Failure, print};
use crate::settings::{Alone, RUN, Settings, recover};
use crate::table::{columns, count};
use crate::terminal::fitted;
use crate::{document, progress};
use schemars::JsonSchema;
use serde::Serialize;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Rounds that are counted, unless asked for otherwise.
const RUNS: u32 = 7;
/// The pool's size is written here.
const COUNT: &str = "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
/// Whether pages that enter a pool are folded.
const FOLDING: &str = "proc/sys/vm/hugetlb_optimize_vmemmap";
/// Eight bytes of flags for each frame of memory.
const FLAGS: &str = "proc/kpageflags";
/// Flags of a frame in that file.
const HEAD: u64 = 1 << 15;
const HUGE: u64 = 1 << 17;

/// What the pool did in one setting.
#[derive(Serialize, JsonSchema, Debug)]
struct Row {
    /// Folding: `off` or `on`.
    name: &'static str,
    /// `fill` or `drain`.
    phase: &'static str,
    /// The median of the rounds.
    median_ns_per_page: u64,
    /// The lowest of them.
    lowest_ns_per_page: u64,
    /// The highest of them.
    highest_ns_per_page: u64,
    /// Of the median to that of the same phase with folding off.
    ratio_to_off: f64,
}

/// Frames of a full pool that the kernel's listing calls heads.
#[derive(Serialize, JsonSchema, Debug)]
struct Heads {
    /// Folding: `off` or `on`.
    name: &'static str,
    /// Of them, for each page of the pool; there is 1.
    heads_per_page: f64,
}

/// What this machine's kernel takes for a page of its pool of 2 MiB pages.
#[derive(Serialize, JsonSchema, Debug)]
pub(crate) struct Pool {
    /// The release of Linux.
    kernel: String,
    /// How many pages the pool got and lost.
    pages: u64,
    /// How often.
    runs: u32,
    /// Folding off and on, filled and drained.
    rows: Vec<Row>,
    /// Empty where the kernel has no such listing.
    listing: Vec<Heads>,
}

impl Document for Pool {
    const NAME: &'static str = "check-hugetlb";
    const COMMAND: &'static str = "foliant check --hugetlb --json";
}

pub(super) fn run(args: &Check) -> Done {
    let pool = Files::open(Path::new("/"), Path::new(RUN))?;
    pool.settings.catch_signals()?;
    let measured = pool.measure(args.pages, args.runs.unwrap_or(RUNS))?;
    pool.settings.restore()?;
    if args.json {
        return print(&document::text(&measured)?);
    }
    print(&text(&measured))
}

/// The files of the pool of 2 MiB pages.
struct Files {
    root: PathBuf,
    /// Pages that it had before.
    before: u64,
    settings: Settings,
}

impl Files {
    /// The pool in the files below `root`.
    fn open(root: &Path, place: &Path) -> Done<Files> {
        let alone = Alone::claim(place)?;
        recover(&alone)?;
        let found = |file: &str, without: &str| {
            let path = root.join(file);
            match fs::read_to_string(&path) {
                Ok(value) => Ok((path, value.trim().to_owned())),
                Err(e) => {
                    let path = path.display();
                    Err(Failure::new(format_args!("{path} cannot be read ({e}): {without}")))
                }
            }
        };
        let count = found(
            COUNT,
            "this kernel has no pool of 2 MiB pages; use one built with CONFIG_HUGETLBFS",
        )?;
        let folding = found(
            FOLDING,
            "this kernel cannot fold the descriptors of huge pages; use Linux 5.19 or later, \
             built with CONFIG_HUGETLB_PAGE_OPTIMIZE_VMEMMAP",
        )?;
        let before = number(&count)?;
        let settings = Settings::new(alone, [folding, count])?; // the pool is put back before the switch
        Ok(Files { root: root.to_owned(), before, settings })
    }

    fn measure(&self, pages: u64, runs: u32) -> Done<Pool> {
        let (mut rows, mut listing): (Vec<Row>, Vec<Heads>) = (Vec::new(), Vec::new());
        let bar = progress::bar("pool", 2 * u64::from(runs + 1));
        for (name, value) in [("off", "0"), ("on", "1")] {
            self.settings.write(&self.root.join(FOLDING), value)?;
            let (mut fill, mut drain) = (Vec::new(), Vec::new());
            for run in 0..=runs {
                bar.set_message(format!("filling and draining, folding {name}"));
                fill.push(self.resize(pages, Way::Fill)?);
                if run == 0 {
                    listing.extend(self.heads(name));
                }
                drain.push(self.resize(pages, Way::Drain)?);
                bar.inc(1);
            }
            for (phase, times) in [("fill", &fill), ("drain", &drain)] {
                let off = rows.iter().find(|row| row.phase == phase).map(|r| r.median_ns_per_page);
                rows.push(row(name, phase, pages, &times[1..], off));
            }
        }
        bar.finish_and_clear();
        let kernel = fs::read_to_string(self.root.join("proc/sys/kernel/osrelease"));
        let kernel = kernel.map_or("unknown".to_owned(), |text| text.trim().to_owned());
        Ok(Pool { kernel, pages, runs, rows, listing })
    }

    /// Gives the pool `pages` more than it had, or takes them away again; how long that took.
    fn resize(&self, pages: u64, way: Way) -> Done<Duration> {
        let path = self.root.join(COUNT);
        let wanted = match way {
            Way::Fill => self.before.saturating_add(pages),
            Way::Drain => self.before,
        };
        let begun = Instant::now();
        self.settings.write(&path, &wanted.to_string())?;
        let took = begun.elapsed();
        let value = fs::read_to_string(&path).unwrap_or_default();
        let there = number(&(path, value.trim().to_owned()))?;
        if there == wanted {
            return Ok(took);
        }
        Err(Failure::new(match way {
            Way::Fill => format!(
                "of {pages} pages the pool got {}; use fewer with --pages, or free memory",
                there.saturating_sub(self.before)
            ),
            Way::Drain => format!(
                "the pool kept {} of {pages} pages; another program uses it: end that one first",
                there.saturating_sub(self.before)
            ),
        }))
    }

    /// Heads in the kernel's listing for each page of the pool; nothing where there is no listing.
    fn heads(&self, name: &'static str) -> Option<Heads> {
        let file = File::open(self.root.join(FLAGS)).ok()?;
        let pages = fs::read_to_string(self.root.join(COUNT)).ok()?.trim().parse::<u64>().ok()?;
        let heads = heads(BufReader::with_capacity(1 << 20, file)).ok()?;
        Some(Heads { name, heads_per_page: heads as f64 / pages.max(1) as f64 })
    }
}

#[derive(Clone, Copy)]
enum Way {
    Fill,
    Drain,
}

fn number((path, value): &(PathBuf, String)) -> Done<u64> {
    let path = path.display();
    value.parse().map_err(|_| {
        Failure::new(format_args!("{path} says {value}, which is no number of pages; check it"))
    })
}

/// Frames of huge pages that are heads.
fn heads(mut flags: impl Read) -> io::Result<u64> {
    let (mut heads, mut word) = (0, [0; 8]);
    loop {
        match flags.read_exact(&mut word) {
            Ok(()) => {
                let both = HEAD | HUGE;
                heads += u64::from(u64::from_ne_bytes(word) & both == both);
            }
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(heads),
            Err(e) => return Err(e),
        }
    }
}

fn row(
    name: &'static str,
    phase: &'static str,
    pages: u64,
    times: &[Duration],
    off: Option<u64>,
) -> Row {
    let each = |time: &Duration| (time.as_nanos() / u128::from(pages.max(1))) as u64;
    let mut times: Vec<u64> = times.iter().map(each).collect();
    times.sort_unstable();
    let at = |n: usize| times.get(n).copied().unwrap_or_default();
    let median = at(times.len().saturating_sub(1) / 2);
    Row {
        name,
        phase,
        median_ns_per_page: median,
        lowest_ns_per_page: at(0),
        highest_ns_per_page: at(times.len().saturating_sub(1)),
        ratio_to_off: median as f64 / off.unwrap_or(median).max(1) as f64,
    }
}

fn text(measured: &Pool) -> String {
    let Pool { kernel, pages, runs, rows, listing } = measured;
    let plural = if *runs == 1 { "time" } else { "times" };
    let mut text = fitted(&format!(
        "the pool of 2 MiB pages of Linux {kernel}: {} pages in and out, {runs} {plural}\n\n",
        count(*pages)
    ));
    let micros = |nanos: u64| format!("{:.2}", nanos as f64 / 1e3);
    let heads = ["folding", "phase", "us a page (median)", "lowest", "highest", "times off"];
    text += &columns(
        &heads,
        rows.iter().map(|row| {
            vec![
                row.name.to_owned(),
                row.phase.to_owned(),
                micros(row.median_ns_per_page),
                micros(row.lowest_ns_per_page),
                micros(row.highest_ns_per_page),
                format!("{:.2}", row.ratio_to_off),
            ]
        }),
    );
    let listed: Vec<String> = listing
        .iter()
        .map(|Heads { name, heads_per_page }| {
            format!("\nfolding {name}: the kernel's listing shows {heads_per_page:.2} heads in each page")
        })
        .collect();
    if !listed.is_empty() {
        text += &fitted(&format!("{}; there is 1", listed.concat()));
    }
    text += "\nAll settings are as they were before.\n";
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files as a kernel shows them, without a kernel: a pool that has whatever is written to it.
    fn files(count: &str, folding: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (file, value) in [(COUNT, count), (FOLDING, folding)] {
            fs::create_dir_all(root.path().join(file).parent().unwrap()).unwrap();
            fs::write(root.path().join(file), value).unwrap();
        }
        root
    }

    fn read(root: &tempfile::TempDir, file: &str) -> String {
        fs::read_to_string(root.path().join(file)).unwrap()
    }

    #[test]
    fn everything_is_put_back_also_after_a_failure() {
        let root = files("3\n", "0\n");
        let flags = [HEAD | HUGE, HUGE, HEAD, 0].map(u64::to_ne_bytes).concat();
        fs::write(root.path().join(FLAGS), flags).unwrap();
        let pool = Files::open(root.path(), &root.path().join("place")).unwrap();
        assert!(
            Files::open(root.path(), &root.path().join("place")).is_err(),
            "one check at a time"
        );
        let measured = pool.measure(1, 2).unwrap();
        let rows: Vec<_> = measured.rows.iter().map(|row| (row.name, row.phase)).collect();
        assert_eq!(rows, [("off", "fill"), ("off", "drain"), ("on", "fill"), ("on", "drain")]);
        document::tests::holds(&measured);
        assert_eq!(measured.listing.len(), 2);
        assert_eq!(measured.listing[0].heads_per_page, 0.25, "one head, four pages");
        assert_eq!(read(&root, FOLDING), "1");
        pool.resize(7, Way::Fill).unwrap();
        assert_eq!(read(&root, COUNT), "10");
        drop(pool); // as after a failure
        assert_eq!((read(&root, COUNT), read(&root, FOLDING)), ("3".into(), "0".into()));
    }

    #[test]
    fn what_a_kernel_lacks_is_named() {
        for (file, word) in [(COUNT, "CONFIG_HUGETLBFS"), (FOLDING, "OPTIMIZE_VMEMMAP")] {
            let root = files("0", "0");
            fs::remove_file(root.path().join(file)).unwrap();
            let Err(Failure::Said(said)) = Files::open(root.path(), &root.path().join("place"))
            else {
                panic!("without {file} there is nothing to measure")
            };
            assert!(said.contains(file) && said.contains(word), "{said}");
        }
    }

    #[test]
    fn medians_and_ratios_are_per_page() {
        let times = [30, 10, 20].map(Duration::from_micros);
        let row = row("on", "fill", 10, &times, Some(500));
        assert_eq!((row.lowest_ns_per_page, row.highest_ns_per_page), (1000, 3000));
        assert_eq!((row.median_ns_per_page, row.ratio_to_off), (2000, 4.0));
    }
}
