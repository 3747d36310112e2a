//! Faults where memory is in pieces, of one thread and of several at a time.
//!
//! ```text
//!   filled   ████████████████  7/8 of free memory, by all threads, 4 KiB each
//!   pieces   ██  ██  ██  ██    every other 64 KiB of it is given back
//!   base     faults of 4 KiB in 1/8 of free memory, then of 2 MiB in 1/4: the last of these find
//!   huge     no block, and compaction has to make one
//! ```

use super::area::{self, Area};
use super::{At, BASE, By, Done, LARGE, counted, put};
use crate::switches;
use nix::sys::mman::MmapAdvise;
use std::ops::Range;
use std::{fs, thread};

/// Bytes that are kept, and that are given back, in turn.
const PIECE: usize = 64 << 10;
/// When a fault makes a block by compaction.
const DEFRAG: &str = "/sys/kernel/mm/transparent_hugepage/defrag";

pub(super) fn run(threads: usize) -> Done {
    switches::advised(LARGE as u64)?;
    put(DEFRAG, "madvise")?;
    let free = free()?;
    for (at, threads) in [(At::Before, 1), (At::After, threads)] {
        let pieces = Area::new(free / 8 * 7 / LARGE * LARGE)?;
        pieces.advise(MmapAdvise::MADV_NOHUGEPAGE)?;
        together(&pieces, threads, |part| {
            area::touch(part.clone(), BASE);
            let mut kept = part.step_by(2 * PIECE);
            kept.try_for_each(|at| {
                area::advise(at..at + PIECE, MmapAdvise::MADV_DONTNEED).map_err(|e| e.to_string())
            })
        })?;
        faults("fault-base", at, threads, free / 8, (MmapAdvise::MADV_NOHUGEPAGE, BASE))?;
        faults("fault-huge", at, threads, free / 4, (MmapAdvise::MADV_HUGEPAGE, LARGE))?;
    }
    Ok(())
}

/// Counts the faults of so many bytes, one for each step.
fn faults(row: &str, at: At, threads: usize, bytes: usize, how: (MmapAdvise, usize)) -> Done {
    let ((advice, step), whole) = (how, threads * LARGE);
    let area = Area::new((bytes / whole).max(1) * whole)?;
    area.advise(advice)?;
    counted(row, at, By::Threads, || {
        together(&area, threads, |part| {
            area::touch(part, step);
            Ok(())
        })?;
        Ok((area.range().len() / step) as u64)
    })
}

/// Has each thread work on a part of its own.
fn together(
    area: &Area,
    threads: usize,
    work: impl Fn(Range<usize>) -> Result<(), String> + Sync,
) -> Done {
    let (all, work) = (area.range(), &work);
    let each = (all.len() / LARGE).div_ceil(threads) * LARGE;
    thread::scope(|scope| {
        let parts = all.clone().step_by(each).map(|from| from..(from + each).min(all.end));
        let running: Vec<_> = parts.map(|part| scope.spawn(move || work(part))).collect();
        let mut ended = running.into_iter().map(|thread| thread.join());
        ended.try_for_each(|end| end.unwrap_or_else(|_| Err("a thread failed".to_owned())))
    })?;
    Ok(())
}

/// Bytes that nobody has.
fn free() -> Done<usize> {
    const FILE: &str = "/proc/meminfo";
    let text = fs::read_to_string(FILE).map_err(|why| format!("{FILE}: {why}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemFree:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    Ok(number.ok_or("no line of /proc/meminfo says what is free")? << 10)
}
