//! Folios of 2 MiB are split while all CPUs run the program.
//!
//! ```text
//!   CPU 0      map, write, count: split_huge_pages, mprotect, munmap
//!   others     in the program, so that each of them has to be asked for a flush
//! ```

use super::area::Area;
use super::{At, BASE, By, Done, LARGE, counted, large, number, put};
use crate::switches;
use nix::mount::{MsFlags, mount};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

const SPLIT: &str = "/sys/kernel/debug/split_huge_pages";
/// How many folios of 2 MiB were split since the start.
const COUNT: &str = "/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/stats/split";

pub(super) fn run(pages: usize) -> Done {
    switches::only(LARGE as u64)?;
    if !Path::new(SPLIT).exists() {
        let (kind, at) = (Some("debugfs"), "/sys/kernel/debug");
        mount(kind, at, kind, MsFlags::empty(), None::<&str>)
            .map_err(|why| format!("debugfs is not mounted at {at}: {why}"))?;
    }
    let (is_over, there) = (AtomicBool::new(false), AtomicUsize::new(0));
    let others = thread::available_parallelism()?.get() - 1;
    thread::scope(|scope| {
        for _ in 0..others {
            scope.spawn(|| {
                there.fetch_add(1, Ordering::Relaxed);
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        while there.load(Ordering::Relaxed) < others {
            thread::yield_now();
        }
        let done = all(pages);
        is_over.store(true, Ordering::Relaxed);
        done
    })
}

fn all(pages: usize) -> Done {
    // Each folio has one entry, then 512 that lead to it still.
    let whole = folios(pages)?;
    counted("split", At::Before, By::Caller, || split(&whole))?;
    drop(whole);
    let mapped_small = folios(pages)?;
    counted("part", At::Before, By::Caller, || mapped_small.protect_firsts())?;
    counted("split", At::After, By::Caller, || split(&mapped_small))?;
    drop(mapped_small);
    let cut = folios(pages)?;
    counted("part", At::After, By::Caller, || cut.unmap_firsts())
}

/// Memory in whole folios that are filled.
fn folios(pages: usize) -> Done<Area> {
    let before = large()?;
    let area = Area::new(pages * LARGE)?;
    area.touch(BASE); // a page of zeros would not be kept
    match large()? - before {
        made if made == pages as u64 => Ok(area),
        made => Err(format!("faults made {made} folios of 2 MiB of {pages}").into()),
    }
}

fn split(area: &Area) -> Done<u64> {
    let (pages, before) = ((area.range().len() / LARGE) as u64, number(COUNT)?);
    let (start, end) = (area.range().start, area.range().end);
    put(SPLIT, &format!("{},{start:#x},{end:#x}", std::process::id()))?;
    match number(COUNT)? - before {
        done if done == pages => Ok(pages),
        done => Err(format!("{done} folios were split of {pages}").into()),
    }
}
