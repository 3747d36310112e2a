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
use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU32, Ordering};
use foliant_linux::capabilities::Capability;
use foliant_linux::credentials::{Credentials, Guarded};
use foliant_linux::{Errno, SegmentLimits, SegmentStat, Segments};
use linux_raw_sys::errno::EACCES;
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
    /// Owner and group, and those of its maker.
    pub(super) owner: [u32; 2],
    pub(super) made_by: [u32; 2],
    /// The user whose locked memory its huge pages count as.
    counts_for: Option<u32>,
}

/// Whether a segment's pages count as its maker's locked memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Counts {
    Yes,
    No,
}

/// The group whose members make segments of huge pages: `vm.hugetlb_shm_group`.
pub(super) static HUGE_GROUP: AtomicU32 = AtomicU32::new(0);

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
    /// A segment was found, or made by a process; who finds one needs what the flags ask for.
    pub(super) fn note_got(
        &mut self,
        (id, flags): (i32, u32),
        maker: u32,
        by: &Credentials,
        counts: Counts,
    ) -> Result<(), Errno> {
        self.settle();
        if self.facts.contains_key(&id) {
            return self.may(id, by, flags);
        }
        let own = [by.user.effective, by.group.effective];
        let counts_for = (counts == Counts::Yes).then_some(by.user.real);
        let (owner, made_by, changed) = (own, own, now());
        let new = Facts { maker, owner, made_by, counts_for, changed, ..Facts::default() };
        self.facts.insert(id, new);
        Ok(())
    }
    /// Whether huge pages of a new segment count as a user's locked memory: those of a group that
    /// may have them do not, nor do those of who may lock any. Who may not lock so much is refused.
    pub(super) fn may_have_huge(
        &mut self,
        by: &Credentials,
        bytes: u64,
        limit: u64,
    ) -> Result<Counts, Errno> {
        if by.has(Capability::IpcLock) || by.is_member(HUGE_GROUP.load(Ordering::Relaxed)) {
            return Ok(Counts::No);
        }
        self.settle();
        let own = self.facts.iter().filter(|(_, it)| it.counts_for == Some(by.user.real));
        let ids: Vec<i32> = own.map(|(id, _)| *id).collect();
        let locked = ids.into_iter().filter_map(|id| Some(self.all.stat(id).ok()?.bytes));
        let all = locked.fold(bytes, u64::saturating_add);
        if all <= limit { Ok(Counts::Yes) } else { Err(Errno::PERM) }
    }
    /// Who may do what with a segment.
    fn guarded(&mut self, id: i32) -> Result<(Guarded, [u32; 2]), Errno> {
        let (stat, facts) = self.stat(id)?;
        let [uid, gid] = facts.owner;
        Ok((Guarded { uid, gid, mode: stat.mode }, facts.made_by))
    }
    /// Refuses what a segment does not let somebody do.
    pub(super) fn may(&mut self, id: i32, by: &Credentials, wanted: u32) -> Result<(), Errno> {
        let (segment, maker) = self.guarded(id)?;
        if by.may_segment(&segment, maker, wanted) { Ok(()) } else { Err(Errno(EACCES)) }
    }
    /// Refuses who may not change or remove a segment.
    pub(super) fn may_change(&mut self, id: i32, by: &Credentials) -> Result<(), Errno> {
        let (segment, maker) = self.guarded(id)?;
        if by.may_change_segment(&segment, maker) { Ok(()) } else { Err(Errno::PERM) }
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
    pub(super) fn note_changed(&mut self, id: i32, owner: [u32; 2]) {
        if let Some(facts) = self.facts.get_mut(&id) {
            (facts.owner, facts.changed) = (owner, now());
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
        let ids: Vec<i32> = table.all.ids().collect();
        for id in ids {
            let Ok((stat, facts)) = table.stat(id) else { continue };
            write!(out, "{:10} {id:10}  {:4o} {:21}", stat.key, stat.mode, stat.bytes)?;
            write!(out, " {:5} {:5}  {:5}", facts.maker, facts.last, stat.attached)?;
            for [uid, gid] in [facts.owner, facts.made_by] {
                write!(out, " {uid:5} {gid:5}")?;
            }
            write!(out, " {:10} {:10} {:10}", facts.attached, facts.detached, facts.changed)?;
            let resident = table.all.resident(id).map_or(0, |bytes| bytes.get());
            writeln!(out, " {resident:21} {:21}", 0)?;
        }
        Ok(())
    })
}
