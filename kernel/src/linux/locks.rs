//! Locks of files that programs take: whole files (`flock`), and ranges of bytes (`fcntl`).
//!
//! ```text
//!   inode ─▶ Locks: whole, by opened files │ ranges, by processes or opened files ─▶ who waits
//! ```
//!
//! The two kinds do not know of each other, as on Linux.
//!
//! **Invariants**
//! - J1. An owner has one lock of a whole file, and of each byte one.
//! - J2. Locks go with their owner: those of an opened file when it is dropped, those of a process
//!   when it closes any descriptor of the file, and when it ends.
//!
//! **Locking**: one lock for all files, for a few instructions, with nothing under it.
//!
//! **Not here**: processes that wait for each other (`EDEADLK`): they do so until a signal comes.

use super::channel::Waits;
use super::waiters::Waiters;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use foliant_linux::Errno;
use spin::Mutex;

/// Who has a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    /// A process, by its number.
    Process(u32),
    /// An opened file, by its own number.
    Opened(u64),
}

/// Whether others may have one as well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Shared,
    Alone,
}

/// A lock of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Range {
    pub(super) owner: Owner,
    pub(super) kind: Kind,
    pub(super) start: u64,
    /// Behind the last byte; `u64::MAX` is the end of any file.
    pub(super) end: u64,
}

impl Range {
    /// Whether both cannot be.
    fn bars(&self, other: &Range) -> bool {
        let meets = self.start < other.end && other.start < self.end;
        let both_share = self.kind == Kind::Shared && other.kind == Kind::Shared;
        meets && !both_share && self.owner != other.owner
    }
}

/// Locks of a file.
#[derive(Default)]
struct Locks {
    whole: Vec<(Owner, Kind)>,
    ranges: Vec<Range>,
}

/// Files by their inodes.
static ALL: Mutex<BTreeMap<u64, Locks>> = Mutex::new(BTreeMap::new());
/// Who waits for any of them.
static WAITING: Waiters = Waiters::new();

fn on<R>(inode: u64, work: impl FnOnce(&mut Locks) -> R) -> R {
    let mut all = ALL.lock();
    let locks = all.entry(inode).or_default();
    let result = work(locks);
    if locks.whole.is_empty() && locks.ranges.is_empty() {
        all.remove(&inode);
    }
    result
}

/// Locks a whole file, in the place of what the owner has of it.
pub(super) fn lock_whole(inode: u64, owner: Owner, kind: Kind, waits: Waits) -> Result<(), Errno> {
    let has = on(inode, |locks| {
        let before = locks.whole.len();
        locks.whole.retain(|(other, had)| *other != owner || *had == kind);
        let is_held = locks.whole.iter().any(|(other, _)| *other == owner);
        (is_held, before != locks.whole.len())
    });
    if has.1 {
        WAITING.wake(); // it is let go of first, as on Linux
    }
    if has.0 {
        return Ok(());
    }
    waits.get(&WAITING, || {
        on(inode, |locks| {
            let bars = |other: Kind| kind == Kind::Alone || other == Kind::Alone;
            let is_free = !locks.whole.iter().any(|(_, other)| bars(*other));
            is_free.then(|| locks.whole.push((owner, kind)))
        })
    })
}
/// Lets go of a whole file.
pub(super) fn unlock_whole(inode: u64, owner: Owner) {
    on(inode, |locks| locks.whole.retain(|(other, _)| *other != owner));
    WAITING.wake();
}

/// What bars a lock of some bytes.
pub(super) fn barred(inode: u64, asked: &Range) -> Option<Range> {
    on(inode, |locks| locks.ranges.iter().find(|range| range.bars(asked)).copied())
}
/// Takes bytes out of what an owner has (J1).
fn cut(ranges: &mut Vec<Range>, out: &Range) {
    let own: Vec<Range> = ranges.iter().filter(|range| range.owner == out.owner).copied().collect();
    ranges.retain(|range| range.owner != out.owner);
    for range in own {
        let below = Range { end: range.end.min(out.start), ..range };
        let above = Range { start: range.start.max(out.end), ..range };
        let parts = match range.start < out.end && out.start < range.end {
            true => [Some(below), Some(above)],
            false => [Some(range), None],
        };
        ranges.extend(parts.into_iter().flatten().filter(|part| part.start < part.end));
    }
}
/// Locks bytes.
pub(super) fn lock(inode: u64, asked: Range, waits: Waits) -> Result<(), Errno> {
    waits.get(&WAITING, || {
        on(inode, |locks| {
            if locks.ranges.iter().any(|range| range.bars(&asked)) {
                return None;
            }
            cut(&mut locks.ranges, &asked);
            locks.ranges.push(asked);
            Some(())
        })
    })?;
    WAITING.wake(); // one that others share now, too
    Ok(())
}
/// Lets go of bytes.
pub(super) fn unlock(inode: u64, out: &Range) {
    on(inode, |locks| cut(&mut locks.ranges, out));
    WAITING.wake();
}
/// Lets go of all that an owner has of a file (J2).
pub(super) fn let_go(inode: u64, owner: Owner) {
    on(inode, |locks| {
        locks.whole.retain(|(other, _)| *other != owner);
        locks.ranges.retain(|range| range.owner != owner);
    });
    WAITING.wake();
}
