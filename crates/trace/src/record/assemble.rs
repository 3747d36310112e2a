//! From what the counters and ptrace told to the events of a trace.
//!
//! One list in order of time comes in (`merge`). Process ids become threads and spaces, samples and
//! tracepoints become faults, exec's moment comes from the kernel (`PERF_RECORD_COMM` with the exec
//! flag) and its areas from the stop that follows. Events are held back while an exec may still
//! lose pages, which is until that stop; all other hindsight is `settle`'s.
//!
//! **Invariants**
//! - M1. Every sample becomes one fault, or is counted in `Assembled::astray`.
//! - M2. A tracepoint belongs to the next sample of its thread with the same address, and to none
//!   if another tracepoint of that thread comes first: then the kernel refused to handle that
//!   fault.
//! - M3. What is kept grows with the threads and spaces that there are, and by a bit for a fault
//!   that a signal followed; of events only those since the last exec's moment are held, until its
//!   stop.

use super::marks::Marks;
use super::procfs;
use super::raw::{Raw, What};
use super::sys::pid_t;
use super::told::{Doing, Told};
use crate::event::{
    Access, Area, Event, EventKind, Exec, Fault, Found, Name, Origin, Prot, Source, SpaceId,
    Standing, ThreadId,
};
use crate::lineage::Lineage;
use foliant_units::{FRAME_BYTES, Va, VaRange};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ffi::OsString;
use std::path::Path;

/// How often decoding an instruction and the processor's error code agree on an access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Faults where both are known and say the same.
    pub same: u64,
    /// Faults where both are known and differ.
    pub different: u64,
    /// Faults of the program itself whose instruction could not be decoded.
    pub undecoded: u64,
}

/// How the pages that the kernel had present at a process's end compare with those a replay has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Residue {
    /// Spaces compared.
    pub spaces: u64,
    /// Pages present in both.
    pub same: u64,
    /// Pages that only the kernel had: brought without a fault and without an event.
    pub only_kernel: u64,
    /// Pages that only the replay has: dropped without an event.
    pub only_replay: u64,
}

/// What there is to say besides the events.
#[derive(Default, Debug, PartialEq, Eq)]
pub(crate) struct Assembled {
    /// Samples of threads that are not known.
    pub(crate) astray: u64,
    /// Faults that the kernel refused to handle while it must not sleep; it found another way.
    pub(crate) unhandled: u64,
    pub(crate) agreement: Agreement,
    pub(crate) residue: Residue,
    pub(crate) remarks: BTreeSet<String>,
    /// Pages that came without a fault and without a call.
    pub(crate) unseen: u64,
}

struct Live {
    thread: ThreadId,
    space: SpaceId,
    pid: pid_t,
}

#[derive(Clone, Copy)]
struct Code {
    va: u64,
    error: u32,
}

/// Programs whose areas were seen at the stop, by thread: when, who called exec, and what it is.
#[derive(Default)]
pub(crate) struct Execs(HashMap<pid_t, VecDeque<(u64, pid_t, Exec)>>);

impl Execs {
    /// The stop of a thread that has started a program.
    pub(crate) fn expect(&mut self, tid: pid_t, time: u64, former: pid_t, exec: Exec) {
        self.0.entry(tid).or_default().push_back((time, former, exec));
    }
    /// Whether a program of this thread waits for its moment.
    pub(crate) fn has(&self, tid: pid_t) -> bool {
        self.0.contains_key(&tid)
    }
    fn next(&self, tid: pid_t) -> Option<u64> {
        self.0.get(&tid)?.front().map(|exec| exec.0)
    }
    fn take(&mut self, tid: pid_t) -> Option<(u64, pid_t, Exec)> {
        let queue = self.0.get_mut(&tid)?;
        let first = queue.pop_front();
        if queue.is_empty() {
            self.0.remove(&tid);
        }
        first
    }
}

/// Pages that the kernel had present in a space, by the place of the event that comes next.
pub(crate) type Present = (u64, SpaceId, Vec<Va>);

/// What of all that is told is a recording's, and how it is read.
#[derive(Clone, Default, Debug)]
pub(crate) struct Scope {
    /// The time that becomes 0.
    pub(crate) start: u64,
    /// Whether instructions were decoded.
    pub(crate) decodes: bool,
    /// If set, only processes whose program's file has this name, and what they start.
    pub(crate) only: Option<OsString>,
    /// Of programs that ran before and go on: until when threads are not known yet.
    pub(crate) attached_until: Option<u64>,
}

/// Takes in what was told, in order of time, and gives back events.
#[derive(Default)]
pub(crate) struct Assembler {
    scope: Scope,
    lineage: Lineage,
    live: HashMap<pid_t, Live>,
    /// Threads that are seen and not recorded, with their processes.
    outside: HashMap<pid_t, pid_t>,
    flags: HashMap<pid_t, u64>,
    /// Where the stack ends of the thread that this one is about to make.
    stacks: HashMap<pid_t, u64>,
    codes: HashMap<pid_t, Code>,
    pub(crate) execs: Execs,
    /// Where each thread's last exec was placed, and up to where its faults are exec's own.
    fresh: HashMap<pid_t, (u64, u64)>,
    breaks: HashMap<SpaceId, Va>,
    snapshots: Vec<Present>,
    /// Each thread's last fault, and those after which the thread got a signal, by their places.
    last_faults: HashMap<pid_t, u64>,
    signalled: Marks,
    /// Events that were not released: what becomes of the first of them may not be known yet.
    window: VecDeque<Event>,
    /// The place of the first of them.
    base: u64,
    /// Places of execs in the window, and until when each may lose pages.
    open: VecDeque<(u64, u64)>,
    last_ns: u64,
    out: Assembled,
}

impl Assembler {
    pub(crate) fn new(scope: Scope) -> Assembler {
        Assembler { scope, ..Assembler::default() }
    }

    /// Where a thread runs.
    pub(crate) fn space_of(&self, tid: pid_t) -> Option<SpaceId> {
        self.live.get(&tid).map(|live| live.space)
    }

    /// Gives back the next event, if nothing that comes after `now` changes it.
    pub(crate) fn release(&mut self, now: u64) -> Option<Event> {
        while self.open.front().is_some_and(|&(_, until)| until < now) {
            self.open.pop_front();
        }
        if self.open.front().is_some_and(|&(place, _)| place <= self.base) {
            return None;
        }
        let event = self.window.pop_front()?;
        self.base += 1;
        Some(event)
    }

    /// What there is to say when all events were released: counts, places of faults that a signal
    /// followed, and the pages that were present at ends.
    pub(crate) fn finish(self) -> (Assembled, Marks, Vec<Present>) {
        (self.out, self.signalled, self.snapshots)
    }

    /// The place of the next event.
    fn place(&self) -> u64 {
        self.base + self.window.len() as u64
    }

    fn push(&mut self, time: u64, thread: ThreadId, space: SpaceId, kind: EventKind) {
        let time_ns = time.saturating_sub(self.scope.start).max(self.last_ns);
        let event = Event { time_ns, thread, space, kind };
        match self.lineage.apply(&event) {
            Ok(died) => {
                self.last_ns = time_ns;
                self.window.push_back(event);
                died.map(|space| self.breaks.remove(&space));
            }
            Err(why) => {
                self.out.remarks.insert(format!("an event did not fit: {why}"));
            }
        }
    }

    /// Takes in a record of the rings.
    pub(crate) fn raw(&mut self, r: Raw) {
        match r.what {
            What::Code { va, error } => {
                let before = self.codes.insert(r.tid, Code { va, error });
                self.out.unhandled += u64::from(before.is_some());
            }
            What::Fault { va, kernel, decoded } => self.fault(&r, va, kernel, decoded),
            What::Fork { child, same_process } => self.fork(r.time, r.tid, child, same_process),
            What::End => self.end(r.time, r.tid),
            What::Exec { pid } => self.exec(r.time, r.tid, pid),
            What::Born { child, flags } => {
                self.flags.insert(r.tid, flags);
                self.fork(r.time, r.tid, child, flags & libc::CLONE_THREAD as u64 != 0);
            }
            // What a call did is told (`attach::calls`).
            What::Enter { .. } | What::Made { .. } | What::Leave { .. } => {}
        }
    }

    /// Takes in what the tracer told.
    pub(crate) fn told(&mut self, t: Told) {
        match t.what {
            Doing::Clone { flags } => {
                self.flags.insert(t.tid, flags);
            }
            Doing::Stack { top } => {
                self.stacks.insert(t.tid, top);
            }
            Doing::Exec { .. } => {
                // Usually placed before, by the kernel's own record; if that was lost, here.
                if self.execs.next(t.tid).is_some_and(|stop| stop <= t.time) {
                    self.exec(t.time, t.tid, t.tid);
                }
            }
            Doing::Change(kind) => {
                if let EventKind::Protect { range, prot } = kind
                    && let Some(exec) = self.late_exec(t.time, t.tid)
                    && !prot.contains(Prot::WRITE)
                {
                    open_rights(exec, range);
                }
                if let Some(live) = self.live.get(&t.tid) {
                    self.push(t.time, live.thread, live.space, kind);
                }
            }
            Doing::Brk { now } => {
                let Some(live) = self.live.get(&t.tid) else { return };
                let (thread, space) = (live.thread, live.space);
                let old = self.breaks.insert(space, now).unwrap_or(now);
                if old != now {
                    self.push(t.time, thread, space, EventKind::Brk { old, new: now });
                }
            }
            Doing::Signal => self.signalled.extend(self.last_faults.get(&t.tid).copied()),
            Doing::Gone => self.end(t.time, t.tid),
            Doing::Root { threads, exec } => self.root(t.time, t.tid, &threads, exec),
            Doing::Residue { present } => {
                if let Some(live) = self.live.get(&t.tid)
                    && (self.lineage.residents(live.space) == 1 || live.pid == t.tid)
                {
                    self.snapshots.push((self.place(), live.space, present));
                }
            }
        }
    }

    fn fault(&mut self, r: &Raw, va: u64, kernel: bool, decoded: Option<Access>) {
        let code = self.codes.remove(&r.tid).filter(|c| c.va == va);
        let Some(live) = self.live.get(&r.tid) else {
            let expected = self.outside.contains_key(&r.tid) || self.is_early(r.time);
            self.out.astray += u64::from(!expected);
            return;
        };
        let (thread, space) = (live.thread, live.space);
        let known = code.map(|c| match c.error {
            e if e & 16 != 0 => Access::Exec,
            e if e & 2 != 0 => Access::Write,
            _ => Access::Read,
        });
        match (known, decoded) {
            _ if kernel || !self.scope.decodes => {}
            (Some(a), Some(b)) if a == b => self.out.agreement.same += 1,
            (Some(_), Some(_)) => self.out.agreement.different += 1,
            (_, None) => self.out.agreement.undecoded += 1,
            (None, Some(_)) => {}
        }
        let (access, source) = match (known, decoded) {
            (Some(access), _) => (access, Source::Hardware),
            (None, Some(access)) => (access, Source::Decoded),
            (None, None) => (Access::Write, Source::Inferred),
        };
        let found = match code {
            Some(c) if c.error & 1 != 0 => Found::Protected,
            Some(_) => Found::Absent,
            None => Found::Unknown,
        };
        let va = Va::new(va);
        let origin = if kernel { Origin::Kernel } else { Origin::User };
        let fault = Fault { va, access, origin, source, found, standing: Standing::Regular };
        if let Some(exec) = self.late_exec(r.time, r.tid) {
            // Exec's own fault: its page was found present at the stop, but a fault has brought it.
            remove_page(exec, fault.page());
        }
        self.last_faults.insert(r.tid, self.place());
        self.push(r.time, thread, space, EventKind::Fault(fault));
    }

    /// The thread's last exec, if what was seen of it was seen later than `time`.
    fn late_exec(&mut self, time: u64, tid: pid_t) -> Option<&mut Exec> {
        let &(at, until) = self.fresh.get(&tid)?;
        let place = at.checked_sub(self.base).filter(|_| time <= until)?;
        match &mut self.window.get_mut(place as usize)?.kind {
            EventKind::Exec(exec) => Some(exec),
            _ => None,
        }
    }

    fn fork(&mut self, time: u64, parent: pid_t, child: pid_t, same_process: bool) {
        self.end(time, child);
        let flags = self.flags.get(&parent).copied().unwrap_or(0);
        let top = self.stacks.remove(&parent);
        let Some(live) = self.live.get(&parent) else {
            if let Some(&pid) = self.outside.get(&parent) {
                self.outside.insert(child, if same_process { pid } else { child });
                return;
            }
            if self.is_early(time) {
                return;
            }
            self.out.remarks.insert("a process was made by an unknown one".to_owned());
            return;
        };
        let (by, space, pid) = (live.thread, live.space, live.pid);
        let thread = ThreadId(self.lineage.threads());
        if same_process || flags & libc::CLONE_VM as u64 != 0 {
            let kind = EventKind::Share { thread, process: !same_process };
            self.push(time, by, space, kind);
            if same_process && let Some(top) = top {
                let range = procfs::sized(top.saturating_sub(1), 1);
                let name = Name::Stack(thread);
                self.push(time, by, space, EventKind::Name { range, name });
            }
            let pid = if same_process { pid } else { child };
            self.live.insert(child, Live { thread, space, pid });
        } else {
            let new = SpaceId(self.lineage.spaces());
            self.push(time, by, space, EventKind::Fork { child: new, thread });
            self.live.insert(child, Live { thread, space: new, pid: child });
            if let Some(&now) = self.breaks.get(&space) {
                self.breaks.insert(new, now);
            }
        }
    }

    fn end(&mut self, time: u64, tid: pid_t) {
        self.flags.remove(&tid);
        self.stacks.remove(&tid);
        self.outside.remove(&tid);
        self.fresh.remove(&tid);
        self.last_faults.remove(&tid);
        if self.codes.remove(&tid).is_some() {
            self.out.unhandled += 1;
        }
        if let Some(live) = self.live.remove(&tid) {
            let last = self.lineage.residents(live.space) == 1;
            self.push(time, live.thread, live.space, EventKind::Exit { last });
        }
    }

    fn exec(&mut self, time: u64, tid: pid_t, pid: pid_t) {
        let Some((stop, former, exec)) = self.execs.take(tid) else {
            if self.is_early(time) {
                return;
            }
            self.out.remarks.insert("a program was started and its areas were not seen".to_owned());
            if self.scope.attached_until.is_some() {
                // It has left its old space, and nothing is known of the new one.
                self.end_process(time, tid, pid);
                self.outside.insert(tid, pid);
            }
            return;
        };
        self.codes.remove(&tid);
        self.codes.remove(&former);
        let caller = if self.live.contains_key(&former) { former } else { tid };
        let is_outside = [former, tid].iter().any(|tid| self.outside.contains_key(tid));
        let thread = match self.live.remove(&caller) {
            Some(live) => live.thread,
            None if self.scope.only.is_some() && (is_outside || self.place() == 0) => {
                self.end_process(time, tid, pid);
                let name = Path::new(&exec.program).file_name();
                if name != self.scope.only.as_deref() {
                    self.outside.insert(tid, pid);
                    return;
                }
                self.new_root(time)
            }
            None if self.place() == 0 => ThreadId(0),
            None if self.is_early(time) => return,
            None => {
                self.out.remarks.insert("a program was started by an unknown process".to_owned());
                return;
            }
        };
        // Exec ends all other threads of the process, the one included whose number it takes over.
        self.end_process(time, tid, pid);
        let space = SpaceId(self.lineage.spaces());
        self.breaks.insert(space, exec.brk);
        self.fresh.insert(tid, (self.place(), stop));
        self.open.push_back((self.place(), stop));
        self.push(time, thread, space, EventKind::Exec(exec));
        self.live.insert(tid, Live { thread, space, pid });
    }

    /// All threads of a process end, and the one of this number.
    fn end_process(&mut self, time: u64, tid: pid_t, pid: pid_t) {
        let mut others: Vec<pid_t> =
            self.live.iter().filter(|(t, l)| l.pid == pid || **t == tid).map(|(&t, _)| t).collect();
        others.sort_unstable();
        for other in others {
            self.end(time, other);
        }
        self.outside.retain(|other, its| *its != pid && *other != tid);
    }

    /// Whether a thread need not be known yet.
    fn is_early(&self, time: u64) -> bool {
        self.scope.attached_until.is_some_and(|until| time <= until)
    }

    /// The thread of a program that nobody who is recorded has started. Its exec opens the trace,
    /// or follows when nobody is alive; else somebody who is takes it in for a moment, as if by
    /// vfork, which changes nothing of theirs.
    fn new_root(&mut self, time: u64) -> ThreadId {
        let thread = ThreadId(self.lineage.threads());
        let host = self.live.values().min_by_key(|live| live.thread);
        if let Some((host, space)) = host.map(|live| (live.thread, live.space)) {
            self.push(time, host, space, EventKind::Share { thread, process: true });
        }
        thread
    }

    /// A process that ran before is recorded from now on.
    fn root(&mut self, time: u64, pid: pid_t, threads: &[pid_t], exec: Exec) {
        if self.live.contains_key(&pid) {
            return;
        }
        let (thread, space) = (self.new_root(time), SpaceId(self.lineage.spaces()));
        self.breaks.insert(space, exec.brk);
        self.push(time, thread, space, EventKind::Exec(exec));
        self.live.insert(pid, Live { thread, space, pid });
        for &tid in threads.iter().filter(|tid| **tid != pid) {
            let new = ThreadId(self.lineage.threads());
            self.push(time, thread, space, EventKind::Share { thread: new, process: false });
            self.live.insert(tid, Live { thread: new, space, pid });
        }
    }

    /// Whoever is still alive at the end of the records has ended unseen, or goes on.
    pub(crate) fn close(&mut self) {
        let time = self.last_ns.saturating_add(self.scope.start);
        let mut left: Vec<pid_t> = self.live.keys().copied().collect();
        left.sort_unstable();
        for tid in left {
            if self.scope.attached_until.is_none() {
                self.out.remarks.insert("the end of a thread was not seen".to_owned());
            }
            self.end(time, tid);
        }
    }
}

/// What a program closes to writing just after its exec (relocations, as a rule) was open before;
/// its areas were read when it was closed.
fn open_rights(exec: &mut Exec, range: VaRange) {
    let mut areas = Vec::with_capacity(exec.areas.len() + 2);
    for area in &exec.areas {
        let inside = area.range.intersect(range);
        if inside.is_empty() {
            areas.push(*area);
            continue;
        }
        let before = VaRange::new(area.range.start(), inside.start());
        let behind = VaRange::new(inside.end(), area.range.end());
        let part = |range, prot| Area { range, prot, ..*area };
        areas.extend(before.map(|range| part(range, area.prot)));
        areas.push(part(inside, area.prot.with(Prot::RW)));
        areas.extend(behind.map(|range| part(range, area.prot)));
    }
    areas.retain(|area| !area.range.is_empty());
    exec.areas = areas;
}

fn remove_page(exec: &mut Exec, page: Va) {
    if !exec.present.iter().any(|r| r.contains(page)) {
        return;
    }
    let pages = exec.present.iter().flat_map(|r| {
        let (start, end) = (r.start().get(), r.end().get());
        (start..end).step_by(FRAME_BYTES as usize).map(Va::new)
    });
    let pages: Vec<Va> = pages.filter(|&p| p != page).collect();
    exec.present = procfs::join(&pages);
}
