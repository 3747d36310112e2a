//! Segments of System V: those of all processes, and what Linux tells of them besides.
//!
//! ```text
//!   number ─▶ `Segments` of `foliant-linux`: key, mode, file
//!          └▶ Facts: who made it, who used it last, and when
//! ```
//!
//! **Locking**: one lock for both, taken under that of a process's memory. It is not held while
//! user memory is reached.

use super::clock;
use crate::memory::{Format, Machine};
use alloc::collections::BTreeMap;
use alloc::string::String;
use core::fmt::{self, Write};
use foliant_linux::{Errno, SegmentLimits, SegmentStat, Segments};
use spin::{Mutex, Once};

type All = Segments<'static, 'static, Machine, Format>;

/// What is known of a segment beside its memory.
#[derive(Clone, Copy, Default)]
pub(super) struct Facts {
    pub(super) maker: u32,
    pub(super) last: u32,
    pub(super) attached: i64,
    pub(super) detached: i64,
    pub(super) changed: i64,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// The segments.
pub(super) struct Table {
    pub(super) all: All,
    facts: BTreeMap<i32, Facts>,
}

static TABLE: Once<Mutex<Table>> = Once::new();

fn table() -> &'static Mutex<Table> {
    TABLE.call_once(|| Mutex::new(Table { all: Segments::default(), facts: BTreeMap::new() }))
}

/// Works on the table.
pub(super) fn with<R>(work: impl FnOnce(&mut Table) -> R) -> R {
    work(&mut table().lock())
}
/// Works on what segments may take.
pub(super) fn limits<R>(work: impl FnOnce(&mut SegmentLimits) -> R) -> R {
    with(|table| work(&mut table.all.limits))
}

fn now() -> i64 {
    clock::now().seconds
}

impl Table {
    /// A segment was made, or found.
    pub(super) fn note_got(&mut self, id: i32, by: u32) {
        let is_known = |id: &i32| self.facts.contains_key(id);
        if is_known(&id) {
            return;
        }
        self.settle();
        self.facts.insert(id, Facts { maker: by, changed: now(), ..Facts::default() });
    }
    /// Forgets what is not there any more.
    fn settle(&mut self) {
        let there: alloc::collections::BTreeSet<i32> = self.all.ids().collect();
        self.facts.retain(|id, _| there.contains(id));
    }
    pub(super) fn note_attached(&mut self, id: i32, by: u32) {
        if let Some(facts) = self.facts.get_mut(&id) {
            (facts.last, facts.attached) = (by, now());
        }
    }
    pub(super) fn note_detached(&mut self, id: i32, by: u32) {
        if let Some(facts) = self.facts.get_mut(&id) {
            (facts.last, facts.detached) = (by, now());
        }
    }
    /// Owners were set.
    pub(super) fn note_changed(&mut self, id: i32, uid: u32, gid: u32) {
        if let Some(facts) = self.facts.get_mut(&id) {
            (facts.uid, facts.gid, facts.changed) = (uid, gid, now());
        }
    }
    /// What is known of a segment.
    pub(super) fn stat(&mut self, id: i32) -> Result<(SegmentStat, Facts), Errno> {
        let stat = self.all.stat(id)?;
        Ok((stat, self.facts.get(&id).copied().unwrap_or_default()))
    }
}

/// Writes `/proc/sysvipc/shm`.
pub(super) fn show(out: &mut String) -> fmt::Result {
    out.write_str("       key      shmid perms                  size  cpid  lpid nattch")?;
    out.write_str("   uid   gid  cuid  cgid      atime      dtime      ctime")?;
    writeln!(out, "{:>22}{:>22}", "rss", "swap")?;
    with(|table| {
        let ids: alloc::vec::Vec<i32> = table.all.ids().collect();
        for id in ids {
            let Ok((stat, facts)) = table.stat(id) else { continue };
            write!(out, "{:10} {id:10}  {:4o} {:21}", stat.key, stat.mode, stat.bytes)?;
            write!(out, " {:5} {:5}  {:5}", facts.maker, facts.last, stat.attached)?;
            write!(out, " {:5} {:5} {:5} {:5}", facts.uid, facts.gid, 0, 0)?;
            write!(out, " {:10} {:10} {:10}", facts.attached, facts.detached, facts.changed)?;
            writeln!(out, " {:21} {:21}", 0, 0)?;
        }
        Ok(())
    })
}
