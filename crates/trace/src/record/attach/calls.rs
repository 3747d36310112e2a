//! From the calls of a running program, as tracepoints tell them, to what they changed.
//!
//! Nothing stops here, so calls of the threads of one process overlap. A change is stamped with the
//! moment when its call came back; what makes memory accessible that was not, `mprotect`, with the
//! moment when it was made. Where a call comes back with memory that another thread's call, still
//! under way, is taking away, the taking was first: the kernel gives nothing out twice.
//!
//! **Invariants**
//! - K1. A call's change is told once, at the latest when the call is back.
//!
//! **Not here**: what only the stopped program would tell, which is remarked on: rights that were
//! changed in part, other processes' memory, and areas that a process locks before it has them;
//! which memory shared areas are of (`shared`), whose faults a replay counts and does no more.

use super::super::abi;
use super::super::procfs;
use super::super::raw::{Raw, What};
use super::super::sys::pid_t;
use super::super::told::Doing;
use super::super::tracer::{fills, mapped, prot_of, thp_wish};
use crate::event::{Access, Area, AreaKind, EventKind, MapFlags, Prot, SpaceId, advice};
use crate::format::VA_MAX;
use foliant_units::{Bytes, FRAME_BYTES, Va, VaRange};
use std::collections::{BTreeSet, HashMap};

/// The calls that are asked for: those that a tracer stops at, but for what only it can follow.
pub(crate) fn calls() -> impl Iterator<Item = libc::c_long> {
    let unread =
        [libc::SYS_io_setup, libc::SYS_process_vm_writev, libc::SYS_ftruncate, libc::SYS_fallocate];
    let read = abi::CALLS.into_iter().filter(move |nr| !unread.contains(nr));
    read.chain([libc::SYS_prctl])
}

/// Whether a call may change which areas there are; the others change what is in them.
pub(crate) fn changes_areas(nr: libc::c_long) -> bool {
    !matches!(
        nr,
        libc::SYS_madvise
            | libc::SYS_process_madvise
            | libc::SYS_mlock
            | libc::SYS_mlock2
            | libc::SYS_munlock
            | libc::SYS_prctl
    )
}

/// A call that is under way.
struct Call {
    nr: libc::c_long,
    args: [u64; 6],
    /// The area that the kernel has made for it: where, how long, of what kind.
    made: Option<(u64, u64, AreaKind)>,
    /// Told before it came back (K1).
    told: bool,
}

/// Calls that are under way, by thread, and what is known of attached memory.
#[derive(Default)]
pub(crate) struct Calls {
    open: HashMap<pid_t, Call>,
    /// Where System V memory is attached, and how long it is.
    attached: HashMap<(SpaceId, u64), u64>,
    pub(crate) remarks: BTreeSet<String>,
}

impl Calls {
    /// Takes in one record and says what changed: threads with what they did, in order. `space`
    /// tells where a thread runs.
    pub(crate) fn add(
        &mut self,
        raw: &Raw,
        space: impl Fn(pid_t) -> Option<SpaceId>,
    ) -> Vec<(pid_t, Doing)> {
        match raw.what {
            What::Enter { nr, args } => self.enter(raw.tid, nr.into(), args),
            What::Made { at, bytes, kind } => {
                if let Some(call) = self.open.get_mut(&raw.tid) {
                    call.made = Some((at, bytes, kind));
                }
                Vec::new()
            }
            What::Leave { result } => {
                let Some(call) = self.open.remove(&raw.tid) else { return Vec::new() };
                let mut told = self.taken_before(raw.tid, &call, result, &space);
                if !call.told {
                    let own = space(raw.tid);
                    let changes = self.effect(&call, result, own);
                    told.extend(changes.into_iter().map(|what| (raw.tid, what)));
                }
                told
            }
            What::End | What::Exec { .. } => {
                self.open.remove(&raw.tid);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn enter(&mut self, tid: pid_t, nr: libc::c_long, args: [u64; 6]) -> Vec<(pid_t, Doing)> {
        let [at, bytes, third, ..] = args;
        let early = match nr {
            libc::SYS_mprotect | libc::SYS_pkey_mprotect => {
                let prot = prot_of(third);
                let range = procfs::sized(at, bytes);
                prot.contains(Prot::WRITE).then_some(EventKind::Protect { range, prot })
            }
            // Refused while large pages are off; the wish is noted.
            libc::SYS_madvise if third as u32 == advice::COLLAPSE => {
                let is_legal = Va::new(at).is_aligned(Bytes::new(FRAME_BYTES));
                let range = procfs::sized(at, bytes);
                is_legal.then_some(EventKind::Advise { range, advice: advice::COLLAPSE })
            }
            _ => None,
        };
        self.open.insert(tid, Call { nr, args, made: None, told: early.is_some() });
        early.map(|kind| (tid, Doing::Change(kind))).into_iter().collect()
    }

    /// What other threads' calls, not back yet, have taken away for this one to get it.
    fn taken_before(
        &mut self,
        tid: pid_t,
        call: &Call,
        result: i64,
        space: &impl Fn(pid_t) -> Option<SpaceId>,
    ) -> Vec<(pid_t, Doing)> {
        let got = match call.nr {
            libc::SYS_mmap => procfs::sized(result as u64, call.args[1]),
            libc::SYS_mremap => procfs::sized(result as u64, call.args[2]),
            _ => return Vec::new(),
        };
        let Some(own) = space(tid).filter(|_| !is_error(result)) else { return Vec::new() };
        let mut told = Vec::new();
        for (other, call) in &mut self.open {
            let range = procfs::sized(call.args[0], call.args[1]);
            if call.nr == libc::SYS_munmap
                && !call.told
                && !range.intersect(got).is_empty()
                && space(*other) == Some(own)
            {
                call.told = true;
                told.push((*other, Doing::Change(EventKind::Unmap { range })));
            }
        }
        told
    }

    /// What a call that came back with `result` did.
    fn effect(&mut self, call: &Call, result: i64, space: Option<SpaceId>) -> Vec<Doing> {
        let [a, b, c, d, _, _] = call.args;
        let failed = is_error(result);
        let range = procfs::sized(a, b);
        let mut told = Vec::new();
        let mut change = |kind| told.push(Doing::Change(kind));
        match call.nr {
            libc::SYS_mmap if !failed => {
                let file = |shared| {
                    let kind = if shared { AreaKind::FileShared } else { AreaKind::FilePrivate };
                    call.made.map_or(kind, |(_, _, kind)| kind)
                };
                let area = mapped(result as u64, &call.args, file);
                change(EventKind::Map(area));
                if fills(d) {
                    populated(area.range, &mut change);
                }
            }
            libc::SYS_munmap if !failed => change(EventKind::Unmap { range }),
            libc::SYS_mremap if !failed => {
                let new = procfs::sized(result as u64, c);
                change(EventKind::Remap { old: range, new, keep_old: d & 4 != 0 });
            }
            libc::SYS_mprotect | libc::SYS_pkey_mprotect if !failed => {
                change(EventKind::Protect { range, prot: prot_of(c) });
            }
            libc::SYS_mprotect | libc::SYS_pkey_mprotect if result == -i64::from(libc::ENOMEM) => {
                self.remark("access rights were changed in part; what was changed is not recorded");
            }
            libc::SYS_madvise if !failed || result == -i64::from(libc::ENOMEM) => {
                change(EventKind::Advise { range, advice: c as u32 });
            }
            libc::SYS_process_madvise if result > 0 => {
                self.remark("process_madvise was called; what it advised is not recorded");
            }
            libc::SYS_brk => {
                told.push(Doing::Brk { now: Va::new((result as u64).min(VA_MAX)) });
            }
            libc::SYS_shmat if !failed => {
                let at = result as u64;
                let bytes = call.made.map_or(0, |(_, bytes, _)| bytes);
                let prot = if c & libc::SHM_RDONLY as u64 != 0 { Prot::READ } else { Prot::RW };
                let (kind, flags) = (AreaKind::SharedAnonymous, MapFlags::NONE);
                change(EventKind::Map(Area { range: procfs::sized(at, bytes), prot, kind, flags }));
                self.attached.extend(space.map(|space| ((space, at), bytes)));
            }
            libc::SYS_shmdt if !failed => {
                match space.and_then(|space| self.attached.remove(&(space, a))) {
                    Some(bytes) => change(EventKind::Unmap { range: procfs::sized(a, bytes) }),
                    None => self.remark("shared memory was let go whose size is not known"),
                }
            }
            libc::SYS_mlock | libc::SYS_mlock2 if !failed && !range.is_empty() => {
                change(EventKind::Advise { range, advice: advice::LOCK });
                if call.nr == libc::SYS_mlock || c & u64::from(libc::MLOCK_ONFAULT) == 0 {
                    populated(range, &mut change);
                }
            }
            libc::SYS_munlock if !failed => {
                change(EventKind::Advise { range, advice: advice::UNLOCK });
            }
            libc::SYS_mlockall if !failed => {
                let all = procfs::pages(0, VA_MAX);
                if a & libc::MCL_CURRENT as u64 != 0 {
                    change(EventKind::Advise { range: all, advice: advice::LOCK });
                    if a & libc::MCL_ONFAULT as u64 == 0 {
                        populated(all, &mut change);
                    }
                }
                if a & libc::MCL_FUTURE as u64 != 0 {
                    self.remark("mlockall locks what will be mapped, which is not recorded");
                }
            }
            libc::SYS_munlockall if !failed => {
                let range = procfs::pages(0, VA_MAX);
                change(EventKind::Advise { range, advice: advice::UNLOCK });
            }
            libc::SYS_remap_file_pages => {
                self.remark("remap_file_pages was called; what it maps is not recorded");
            }
            libc::SYS_prctl if !failed && a == libc::PR_SET_THP_DISABLE as u64 => {
                if let Some(args) = thp_wish([b, c, d, call.args[4]], true) {
                    change(EventKind::ThpPrctl { args });
                    if args[0] == 0 {
                        self.remark("the program switched large pages on for itself");
                    }
                }
            }
            _ => {}
        }
        told
    }

    fn remark(&mut self, text: &str) {
        if !self.remarks.contains(text) {
            self.remarks.insert(text.to_owned());
        }
    }
}

fn is_error(result: i64) -> bool {
    (-4095..0).contains(&result)
}

/// Writable private areas are filled as by writing, what is left as by reading.
fn populated(range: VaRange, change: &mut impl FnMut(EventKind)) {
    for access in [Access::Write, Access::Read] {
        change(EventKind::Populate { range, access });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(time: u64, tid: pid_t, what: What) -> Raw {
        Raw { time, tid, what }
    }

    fn enter(time: u64, tid: pid_t, nr: libc::c_long, args: [u64; 3]) -> Raw {
        let [a, b, c] = args;
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
        raw(time, tid, What::Enter { nr: nr as u16, args: [a, b, c, flags, 0, 0] })
    }

    /// What comes of these, in one space.
    fn told(list: &[Raw]) -> (Vec<(pid_t, Doing)>, BTreeSet<String>) {
        let mut calls = Calls::default();
        let told = list.iter().flat_map(|raw| calls.add(raw, |_| Some(SpaceId(0)))).collect();
        (told, calls.remarks)
    }

    #[test]
    fn memory_that_is_given_out_again_was_taken_away_before() {
        let list = [
            enter(1, 5, libc::SYS_munmap, [0x10000, 0x4000, 0]),
            enter(2, 6, libc::SYS_mmap, [0, 0x2000, 3]),
            raw(3, 6, What::Leave { result: 0x11000 }),
            raw(4, 5, What::Leave { result: 0 }),
        ];
        let (told, remarks) = told(&list);
        let kinds: Vec<_> = told
            .into_iter()
            .map(|(tid, what)| match what {
                Doing::Change(EventKind::Unmap { range }) => (tid, "unmap", range.start().get()),
                Doing::Change(EventKind::Map(area)) => (tid, "map", area.range.start().get()),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(kinds, [(5, "unmap", 0x10000), (6, "map", 0x11000)]);
        assert!(remarks.is_empty(), "{remarks:?}");
    }

    #[test]
    fn a_call_that_failed_or_whose_begin_was_not_seen_changes_nothing() {
        let list = [
            enter(1, 5, libc::SYS_munmap, [0x10000, 0x4000, 0]),
            raw(2, 5, What::Leave { result: -22 }),
            raw(3, 6, What::Leave { result: 0 }),
            enter(4, 6, libc::SYS_munmap, [0x10000, 0x4000, 0]),
            raw(5, 6, What::End),
            raw(6, 6, What::Leave { result: 0 }),
        ];
        assert!(told(&list).0.is_empty());
    }

    #[test]
    fn rights_that_open_memory_are_told_when_they_are_asked_for() {
        let open = [enter(1, 5, libc::SYS_mprotect, [0x10000, 0x1000, 3])];
        assert_eq!(told(&open).0.len(), 1);
        let close = [enter(1, 5, libc::SYS_mprotect, [0x10000, 0x1000, 1])];
        assert_eq!(told(&close).0.len(), 0);
        let back = raw(2, 5, What::Leave { result: 0 });
        assert_eq!(told(&[open[0], back]).0.len(), 1);
        assert_eq!(told(&[close[0], back]).0.len(), 1);
    }
}
