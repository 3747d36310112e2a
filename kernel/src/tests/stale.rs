//! Translations that really go stale: what a flush is for, seen with and without it.

use super::{Verdict, check, peek, poke, with_area};
use crate::memory::{counted, manager};
use crate::user;
use alloc::format;
use alloc::string::String;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use foliant::Policy;
use foliant::space::{Advice, SpaceId};
use foliant::table::Entry;
use foliant_units::{Bytes, FRAME_BYTES, Frame, Va, VaRange};
use spin::Mutex;

/// Reads that must all be fresh.
const READS: u64 = 1_000_000;
/// How often the page is replaced meanwhile, at least.
const ROUNDS: u64 = 100;
/// What the first owner of the frame writes.
const FIRST: u64 = 0x000f_1257;
/// What the next owner writes: who reads it in the first owner's page reads a stranger's memory.
const STRANGER: u64 = 0x5774_a46e;
/// Pages that the next owner takes at most until the frame is among them.
const TAKEN_MAX: u64 = 64;

fn page(at: Va) -> VaRange {
    VaRange::sized(at, Bytes::new(FRAME_BYTES)).expect("one page of the user half")
}

/// The frame that a page of the space is mapped to.
fn frame_of(space: SpaceId, va: Va) -> Option<Frame> {
    let leaf = manager().with_leaves(space, page(va), |mut leaves| leaves.next())??;
    match leaf.entry {
        Entry::Leaf { pa, .. } => Some(pa.frame()),
        _ => None,
    }
}

/// Drops the first page of the area, and touches the others until one of them got its frame.
fn hand_on(space: SpaceId, area: VaRange) -> Result<(), String> {
    let first = area.start();
    let old = frame_of(space, first).ok_or("the first page is not mapped")?;
    manager().advise(space, page(first), Advice::DontNeed).map_err(|error| format!("{error}"))?;
    for n in 1..=TAKEN_MAX {
        let other = first.add(n * FRAME_BYTES);
        poke(other, STRANGER);
        if frame_of(space, other) == Some(old) {
            return Ok(());
        }
    }
    Err(format!("{old:?} was not among {TAKEN_MAX} frames handed out next"))
}

/// Gives up the pages that the next owner took.
fn drop_others(space: SpaceId, area: VaRange) -> Result<(), String> {
    let others =
        VaRange::new(area.start().add(FRAME_BYTES), area.end()).expect("the area has many pages");
    manager().advise(space, others, Advice::DontNeed).map_err(|error| format!("{error}"))
}

fn area_bytes() -> Bytes {
    Bytes::new((TAKEN_MAX + 1) * FRAME_BYTES)
}

fn wait_for(flag: &AtomicBool) {
    while !flag.load(Ordering::Acquire) {
        core::hint::spin_loop();
    }
}

pub(super) fn without_a_flush_another_cpu_reads_the_old_frame() -> Verdict {
    with_area(Policy::BASE_ONLY, area_bytes(), |space, area| {
        let (written, read, taken) =
            (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
        let seen = AtomicU64::new(0);
        let done = Mutex::new(Ok(()));
        user::inside_together(space, 2, &|cpu| {
            if cpu.index() == 1 {
                wait_for(&written);
                peek(area.start()); // cached here
                read.store(true, Ordering::Release);
                wait_for(&taken);
                seen.store(peek(area.start()), Ordering::Release);
            } else {
                poke(area.start(), FIRST);
                written.store(true, Ordering::Release);
                wait_for(&read);
                *done.lock() = counted().machine().mute(|| hand_on(space, area));
                taken.store(true, Ordering::Release);
            }
        });
        done.into_inner()?;
        let seen = seen.into_inner();
        check(seen == STRANGER, || {
            format!("{seen:#x} was read, {STRANGER:#x} is in the old frame")
        })?;
        Ok("seen: the other CPU read what the frame's next owner wrote".into())
    })
}

pub(super) fn with_its_flush_no_cpu_reads_an_old_frame() -> Verdict {
    with_area(Policy::BASE_ONLY, area_bytes(), |space, area| {
        let finished = AtomicBool::new(false);
        let (reads, stale, rounds) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let done = Mutex::new(Ok(()));
        user::inside_together(space, 2, &|cpu| {
            if cpu.index() == 1 {
                let (mut all, mut old) = (0, 0);
                while (all < READS || rounds.load(Ordering::Relaxed) < ROUNDS)
                    && done.lock().is_ok()
                {
                    old += (0..1000).filter(|_| peek(area.start()) == STRANGER).count() as u64;
                    all += 1000;
                }
                reads.store(all, Ordering::Release);
                stale.store(old, Ordering::Release);
                finished.store(true, Ordering::Release);
                return;
            }
            while !finished.load(Ordering::Acquire) && done.lock().is_ok() {
                poke(area.start(), FIRST);
                let round = hand_on(space, area).and_then(|()| drop_others(space, area));
                rounds.fetch_add(1, Ordering::Relaxed);
                if round.is_err() {
                    *done.lock() = round;
                }
            }
        });
        done.into_inner()?;
        let (reads, stale, rounds) = (reads.into_inner(), stale.into_inner(), rounds.into_inner());
        check(stale == 0, || format!("{stale} of {reads} reads were stale"))?;
        Ok(format!("0 of {reads} reads, while the frame went to another page {rounds} times"))
    })
}
