//! From what the counters and ptrace told to the events of a trace.
//!
//! Two lists, each in order of time, are merged to one. Process ids become threads and spaces,
//! samples and tracepoints become faults, exec's moment comes from the kernel (`PERF_RECORD_COMM`
//! with the exec flag) and its areas from the stop that follows. Then two passes over the events:
//! kinds that are not known are inferred, and every fault gets its standing.
//!
//! **Invariants**
//! - M1. Every sample becomes one fault, or is counted in `Assembled::astray`.
//! - M2. A tracepoint belongs to the next sample of its thread with the same address, and to none
//!   if another tracepoint of that thread comes first: then the kernel refused to handle that
//!   fault.

use super::perf::{Raw, What};
use super::procfs;
use super::sys::pid_t;
use super::tracer::{Doing, Told};
use crate::budget::{Budget, Spent};
use crate::event::{
    Access, Event, EventKind, Exec, Fault, Found, Origin, Source, SpaceId, Standing, ThreadId,
    advice,
};
use crate::lineage::Lineage;
use crate::naive::{self, Model, Snapshot};
use foliant_units::{FRAME_BYTES, Va};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Range;

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

#[derive(Default)]
pub(crate) struct Assembled {
    pub(crate) events: Vec<Event>,
    /// Samples of threads that are not known.
    pub(crate) astray: u64,
    /// Faults that the kernel refused to handle while it must not sleep; it found another way.
    pub(crate) unhandled: u64,
    pub(crate) agreement: Agreement,
    pub(crate) residue: Residue,
    pub(crate) remarks: BTreeSet<String>,
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

#[derive(Default)]
struct Assembler {
    start: u64,
    decodes: bool,
    lineage: Lineage,
    live: HashMap<pid_t, Live>,
    flags: HashMap<pid_t, u64>,
    codes: HashMap<pid_t, Code>,
    execs: HashMap<pid_t, VecDeque<(u64, pid_t, Exec)>>,
    /// Where each thread's last exec was placed, and up to where its faults are exec's own.
    fresh: HashMap<pid_t, (usize, u64)>,
    breaks: HashMap<SpaceId, Va>,
    snapshots: Vec<(usize, SpaceId, Vec<Va>)>,
    /// Each thread's last fault, and those after which the thread got a signal, by their places.
    last_faults: HashMap<pid_t, usize>,
    signalled: BTreeSet<usize>,
    out: Assembled,
}

/// Puts everything together. `start` is the time that becomes 0; `decodes` tells whether
/// instructions were decoded.
pub(crate) fn assemble(
    mut raw: Vec<Raw>,
    mut told: Vec<Told>,
    start: u64,
    decodes: bool,
) -> Result<Assembled, Spent> {
    // No file told these events: they are as many as the program that was run made them.
    let budget = Budget::unlimited();
    raw.sort_by_key(|r| r.time);
    told.sort_by_key(|t| t.time);
    let mut a = Assembler { start, decodes, ..Assembler::default() };
    for t in &mut told {
        if let Doing::Exec { former, exec } = &mut t.what {
            let empty = Exec {
                program: String::new(),
                brk: Va::new(0),
                areas: Vec::new(),
                present: Vec::new(),
            };
            let exec = std::mem::replace(exec, empty);
            a.execs.entry(t.tid).or_default().push_back((t.time, *former, exec));
        }
    }
    let mut told = told.into_iter().peekable();
    for r in raw {
        while let Some(t) = told.next_if(|t| t.time <= r.time) {
            a.told(t);
        }
        a.raw(r);
    }
    for t in told {
        a.told(t);
    }
    a.close();
    infer(&mut a.out.events, &budget)?;
    let signalled = std::mem::take(&mut a.signalled);
    naive::classify_signalled(&mut a.out.events, &budget, |at| signalled.contains(&at))?;
    a.compare(&budget)?;
    a.place(&budget)?;
    Ok(a.out)
}

impl Assembler {
    fn push(&mut self, time: u64, thread: ThreadId, space: SpaceId, kind: EventKind) {
        let last = self.out.events.last().map_or(0, |e| e.time_ns);
        let time_ns = time.saturating_sub(self.start).max(last);
        let event = Event { time_ns, thread, space, kind };
        match self.lineage.apply(&event) {
            Ok(_) => self.out.events.push(event),
            Err(why) => {
                self.out.remarks.insert(format!("an event did not fit: {why}"));
            }
        }
    }

    fn raw(&mut self, r: Raw) {
        match r.what {
            What::Code { va, error } => {
                let before = self.codes.insert(r.tid, Code { va, error });
                self.out.unhandled += u64::from(before.is_some());
            }
            What::Fault { va, kernel, decoded } => self.fault(&r, va, kernel, decoded),
            What::Fork { child, same_process } => self.fork(r.time, r.tid, child, same_process),
            What::End => self.end(r.time, r.tid),
            What::Exec { pid } => self.exec(r.time, r.tid, pid),
        }
    }

    fn told(&mut self, t: Told) {
        match t.what {
            Doing::Clone { flags } => {
                self.flags.insert(t.tid, flags);
            }
            Doing::Exec { .. } => {
                // Usually placed before, by the kernel's own record; if that was lost, here.
                if self.execs.get(&t.tid).and_then(|q| q.front()).is_some_and(|e| e.0 <= t.time) {
                    self.exec(t.time, t.tid, t.tid);
                }
            }
            Doing::Change(kind) => {
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
            Doing::Signal => self.signalled.extend(self.last_faults.get(&t.tid)),
            Doing::Gone => self.end(t.time, t.tid),
            Doing::Residue { present } => {
                if let Some(live) = self.live.get(&t.tid)
                    && (self.lineage.residents(live.space) == 1 || live.pid == t.tid)
                {
                    self.snapshots.push((self.out.events.len(), live.space, present));
                }
            }
        }
    }

    fn fault(&mut self, r: &Raw, va: u64, kernel: bool, decoded: Option<Access>) {
        let code = self.codes.remove(&r.tid).filter(|c| c.va == va);
        let Some(live) = self.live.get(&r.tid) else {
            self.out.astray += 1;
            return;
        };
        let (thread, space) = (live.thread, live.space);
        let known = code.map(|c| match c.error {
            e if e & 16 != 0 => Access::Exec,
            e if e & 2 != 0 => Access::Write,
            _ => Access::Read,
        });
        match (known, decoded) {
            _ if kernel || !self.decodes => {}
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
        if let Some(&(at, until)) = self.fresh.get(&r.tid)
            && r.time <= until
            && let Some(Event { kind: EventKind::Exec(exec), .. }) = self.out.events.get_mut(at)
        {
            // Exec's own fault: its page was found present at the stop, but a fault has brought it.
            remove_page(exec, fault.page());
        }
        self.last_faults.insert(r.tid, self.out.events.len());
        self.push(r.time, thread, space, EventKind::Fault(fault));
    }

    fn fork(&mut self, time: u64, parent: pid_t, child: pid_t, same_process: bool) {
        self.end(time, child);
        let flags = self.flags.get(&parent).copied().unwrap_or(0);
        let Some(live) = self.live.get(&parent) else {
            self.out.remarks.insert("a process was made by an unknown one".to_owned());
            return;
        };
        let (by, space, pid) = (live.thread, live.space, live.pid);
        let thread = ThreadId(self.lineage.threads());
        if same_process || flags & libc::CLONE_VM as u64 != 0 {
            let kind = EventKind::Share { thread, process: !same_process };
            self.push(time, by, space, kind);
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
        if self.codes.remove(&tid).is_some() {
            self.out.unhandled += 1;
        }
        if let Some(live) = self.live.remove(&tid) {
            let last = self.lineage.residents(live.space) == 1;
            self.push(time, live.thread, live.space, EventKind::Exit { last });
        }
    }

    fn exec(&mut self, time: u64, tid: pid_t, pid: pid_t) {
        let found = self.execs.get_mut(&tid).and_then(|q| q.pop_front());
        let Some((stop, former, exec)) = found else {
            self.out.remarks.insert("a program was started and its areas were not seen".to_owned());
            return;
        };
        self.codes.remove(&tid);
        self.codes.remove(&former);
        let caller = if self.live.contains_key(&former) { former } else { tid };
        let thread = match self.live.remove(&caller) {
            Some(live) => live.thread,
            None if self.out.events.is_empty() => ThreadId(0),
            None => {
                self.out.remarks.insert("a program was started by an unknown process".to_owned());
                return;
            }
        };
        // Exec ends all other threads of the process, the one included whose number it takes over.
        let mut others: Vec<pid_t> =
            self.live.iter().filter(|(t, l)| l.pid == pid || **t == tid).map(|(&t, _)| t).collect();
        others.sort_unstable();
        for other in others {
            self.end(time, other);
        }
        let space = SpaceId(self.lineage.spaces());
        self.breaks.insert(space, exec.brk);
        self.fresh.insert(tid, (self.out.events.len(), stop));
        self.push(time, thread, space, EventKind::Exec(exec));
        self.live.insert(tid, Live { thread, space, pid });
    }

    /// Whoever is still alive at the end of the records has ended unseen.
    fn close(&mut self) {
        let time = self.out.events.last().map_or(0, |e| e.time_ns).saturating_add(self.start);
        let mut left: Vec<pid_t> = self.live.keys().copied().collect();
        left.sort_unstable();
        for tid in left {
            self.out.remarks.insert("the end of a thread was not seen".to_owned());
            self.end(time, tid);
        }
    }

    /// Puts pages that came unseen where they were found.
    fn place(&mut self, budget: &Budget) -> Result<(), Spent> {
        let mut model = Model::new(budget);
        let mut unseen = 0;
        let mut placed = Vec::new();
        for event in std::mem::take(&mut self.out.events) {
            if let EventKind::Advise { range, advice: advice::PRESENT } = event.kind {
                for range in model.unexplained(event.space, range)? {
                    unseen += range.pages().get();
                    let kind = EventKind::Populate { range, access: Access::Write };
                    let event = Event { kind, ..event };
                    model.follow(&event)?;
                    placed.push(event);
                }
                continue;
            }
            model.follow(&event)?;
            placed.push(event);
        }
        self.out.events = placed;
        if unseen > 0 {
            let pages = if unseen == 1 { "page" } else { "pages" };
            self.out.remarks.insert(format!("{unseen} {pages} came unseen"));
        }
        Ok(())
    }

    /// Compares the kernel's present pages with the model's at every end that was looked at.
    fn compare(&mut self, budget: &Budget) -> Result<(), Spent> {
        let mut snapshots = std::mem::take(&mut self.snapshots).into_iter().peekable();
        if snapshots.peek().is_none() {
            return Ok(());
        }
        let mut model = Snapshot::new(budget);
        let residue = &mut self.out.residue;
        for (at, event) in self.out.events.iter().enumerate() {
            while let Some((_, space, kernel)) = snapshots.next_if(|s| s.0 == at) {
                let kernel: BTreeSet<Va> = kernel.into_iter().collect();
                let replay: BTreeSet<Va> = model.present(space).into_iter().collect();
                residue.spaces += 1;
                let same = kernel.intersection(&replay).count() as u64;
                residue.same += same;
                residue.only_kernel += kernel.len() as u64 - same;
                residue.only_replay += replay.len() as u64 - same;
            }
            model.follow(event)?;
        }
        Ok(())
    }
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

/// Turns a guessed write into a read where a later write to the same page faults again, or where
/// the area forbids writing.
fn infer(events: &mut [Event], budget: &Budget) -> Result<(), Spent> {
    let inferred =
        |e: &Event| matches!(&e.kind, EventKind::Fault(f) if f.source == Source::Inferred);
    if !events.iter().any(inferred) {
        return Ok(());
    }
    let mut model = Snapshot::new(budget);
    let mut guessed: HashMap<SpaceId, BTreeMap<u64, usize>> = HashMap::new();
    let mut reads = Vec::new();
    let drop = |pages: &mut BTreeMap<u64, usize>, range: Range<u64>| {
        if !range.is_empty() {
            let gone: Vec<u64> = pages.range(range).map(|(&p, _)| p).collect();
            gone.iter().for_each(|p| {
                pages.remove(p);
            });
        }
    };
    for (index, event) in events.iter().enumerate() {
        let pages = guessed.entry(event.space).or_default();
        let span = |r: &foliant_units::VaRange| r.start().get()..r.end().get();
        match &event.kind {
            EventKind::Exec(_) | EventKind::Fork { .. } => pages.clear(),
            EventKind::Unmap { range } => drop(pages, span(range)),
            EventKind::Map(area) => drop(pages, span(&area.range)),
            EventKind::Remap { old, new, .. } => {
                drop(pages, span(old));
                drop(pages, span(new));
            }
            EventKind::Advise { range, advice } if *advice == advice::DONTNEED => {
                drop(pages, span(range));
            }
            EventKind::Fault(fault) => {
                let page = fault.page().get();
                if fault.access == Access::Write {
                    reads.extend(pages.remove(&page));
                }
                if fault.source == Source::Inferred {
                    if model.forbids_write(event.space, fault.page()) {
                        reads.push(index);
                    } else {
                        pages.insert(page, index);
                    }
                }
            }
            _ => {}
        }
        model.follow(event)?;
    }
    for index in reads {
        if let EventKind::Fault(fault) = &mut events[index].kind {
            fault.access = Access::Read;
        }
    }
    Ok(())
}
