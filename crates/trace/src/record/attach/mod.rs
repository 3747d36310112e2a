//! Recording processes that run already, and go on afterwards.
//!
//! ```text
//!   each thread stands still ─▶ its counters are opened ─▶ it runs on
//!   each process stands still ─▶ threads made meanwhile, areas, large pages off ─▶ it runs on
//!                                └─ the moment that its recording begins; with many threads one
//!                                   at which none changed its memory, and nobody stops
//!   while it runs: present pages, without those that were faulted in since
//!   ... rings ─▶ spool ...
//!   counters off; each process stands still ─▶ large pages on again ─▶ it runs on
//! ```
//!
//! Nothing stops at calls: tracepoints tell them (`calls`), so root is needed. A process's threads
//! are recorded from one moment on, at which its areas were read and none was changing them. Of a
//! family of processes each begins at its own moment; who is made after its parent's is a fork in
//! the recording, who was before it is a root like the parent.
//!
//! **Invariants**
//! - A1. A process stands still for as long as at most [`STOPPED_AT_ONCE`] threads take to stop,
//!   its areas to be read and one call to be made, whatever memory it has; the longest time is
//!   measured and told.
//! - A2. Whoever had large pages before has them again when the recording ends, with all that it
//!   has started meanwhile, however the recording ends but by SIGKILL.
//! - A3. Threads made at any time are recorded: those of counted threads inherit the counters,
//!   others are found while their process stands still.
//!
//! **Not recorded**: what a process fills by userfaultfd, and pages that come unseen.
//! Processes that come into a control group later from elsewhere. Pages that a
//! process shared with another by a fork before count as read only: the next write is a fault. A
//! program that is started meanwhile and ends before its areas were read is remarked on.

mod calls;
mod counters;
mod find;
mod freeze;
mod protected;
mod state;

pub(crate) use calls::Calls;
pub use find::{Target, Unattachable};
pub(crate) use protected::Protected;

use super::assemble::Scope;
use super::forward::Stopping;
use super::log::{RingLog, ToldLog};
use super::spool::{Spool, Spooler, Stream};
use super::sys::{self, pid_t};
use super::told::{Doing, Told};
use super::{Collected, Progress, RecordError, machine, procfs};
use crate::event::{Access, Area, EventKind, Exec, Name};
use crate::format::{AccessSource, Ending};
use counters::Counters;
use freeze::Frozen;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::time::{Duration, Instant};

/// Which running processes to record, and for how long.
pub struct Running {
    /// Who.
    pub target: Target,
    /// How long; `None` until they have ended, or this process gets a signal to end.
    pub length: Option<Duration>,
    /// The largest ring per CPU, in bytes.
    pub ring_bytes: usize,
    /// Called a few times a second.
    pub progress: Option<Box<dyn FnMut(Progress) + Send>>,
}

impl Running {
    /// Records these, everything else as usual.
    pub fn new(target: Target) -> Running {
        Running { target, length: None, ring_bytes: 8 << 20, progress: None }
    }
}

/// What attaching and going again came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attached {
    /// Processes that were there at the beginning.
    pub processes: u64,
    /// Their threads.
    pub threads: u64,
    /// How long a process stood still at most.
    pub longest_stop: Duration,
}

/// How many counters may be opened while a whole process stands still.
const OPENED_AT_ONCE: usize = 24;
/// More threads than these do not stand still together: each takes some 50 us to stop and to go.
const STOPPED_AT_ONCE: usize = 100;
/// How often a moment is looked for at which a process does not change its memory.
const QUIET_TRIES: usize = 100;
/// How often it is tried to have a process switch large pages off or on.
const SWITCH_TRIES: usize = 1000;
/// How long nobody looks at the rings.
const INTERVAL_MS: i32 = 4;

fn failed(what: &'static str) -> impl Fn(io::Error) -> RecordError {
    move |why| RecordError::System { what, why }
}

/// Records running processes; on a thread of its own, since whoever stops them must be the one to
/// wait for them.
pub(crate) fn collect(running: Running, spool: Spool) -> Result<Collected, RecordError> {
    let builder = std::thread::Builder::new().name("foliant-record".to_owned());
    let stopping = Stopping::new();
    let thread = builder.spawn(move || run(running, spool)).map_err(failed("starting a thread"))?;
    let done = thread.join().unwrap_or_else(|_| {
        Err(failed("recording")(io::Error::other("the recorder's thread panicked")))
    });
    drop(stopping);
    done
}

fn run(mut running: Running, spool: Spool) -> Result<Collected, RecordError> {
    let refused = |why| RecordError::Unattachable { target: running.target.clone(), why };
    let listed = find::processes(&running.target).map_err(refused)?;
    let one = matches!(running.target, Target::Process(_));
    let mut wanted = Vec::new();
    for pid in listed {
        match find::check(pid) {
            Ok(()) => wanted.push(pid),
            // Others of the group may have ended meanwhile, or be the kernel's.
            Err(Unattachable::Absent | Unattachable::Kernel) if !one => {}
            Err(why) => return Err(refused(why)),
        }
    }
    if wanted.is_empty() {
        return Err(refused(Unattachable::Empty));
    }
    sys::raise_descriptors();
    sys::raise_priority();
    let command = command(&running.target);
    let counters = Counters::new(procfs::cpus_online(), running.ring_bytes.min(1 << 30));
    let mut counters = counters.map_err(|why| RecordError::PerfForbidden {
        paranoid: procfs::line("/proc/sys/kernel/perf_event_paranoid"),
        why,
    })?;
    let spooler = Spooler::start(spool).map_err(failed("starting a thread"))?;
    let rings = counters.rings();
    let log = |ring| RingLog::new(spooler.outlet(Stream::ring(ring)));
    counters.write_to((0..rings).map(log).collect());
    let mut session = Session {
        counters,
        told: ToldLog::new(spooler.outlet(Stream::TOLD)),
        since: HashMap::new(),
        switched: HashSet::new(),
        longest: Duration::ZERO,
        threads: 0,
        remarks: BTreeSet::new(),
    };
    let start = sys::clock_ns();
    sys::be_urgent(true);
    let begun = session.attach(&running.target, wanted);
    sys::be_urgent(false);
    let header = machine(command, AccessSource::Tracepoint, true);
    if begun.is_ok() {
        session.follow(&mut running, start, &spooler);
    }
    // Also where not all of them could be attached to: whoever was, goes on as before (A2).
    session.counters.disable();
    sys::be_urgent(true);
    session.restore();
    sys::be_urgent(false);
    session.told.send();
    let until = begun?;
    let Session { counters, remarks, longest, threads, since, .. } = session;
    let mut remarks = remarks;
    let (lost, dropped) = counters.lost().map_err(failed("reading the counters"))?;
    if dropped > 0 {
        remarks.insert(format!("{dropped} records of calls, births or ends were lost"));
    }
    let attached = Attached { processes: since.len() as u64, threads, longest_stop: longest };
    let scope = Scope { start: until.0, attached_until: Some(until.1), ..Scope::default() };
    let spool = spooler.finish()?;
    let (ending, attached) = (Ending::Exited(0), Some(attached));
    Ok(Collected { header, spool, rings, scope, ending, remarks, lost, attached })
}

fn command(target: &Target) -> Vec<String> {
    match target {
        Target::Process(pid) => {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
            words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
        }
        Target::Cgroup(path) => vec!["cgroup".to_owned(), path.display().to_string()],
    }
}

/// A process's recording begins.
struct Begun {
    moment: u64,
    threads: Vec<pid_t>,
    areas: Vec<Area>,
}

struct Session {
    counters: Counters,
    told: ToldLog,
    /// From when on each process is recorded that was there before.
    since: HashMap<pid_t, u64>,
    /// Processes whose large pages were switched off, with what they have started.
    switched: HashSet<pid_t>,
    longest: Duration,
    threads: u64,
    remarks: BTreeSet<String>,
}

impl Session {
    /// Attaches to all of them; the times of the first one's and of the last one's moment.
    fn attach(
        &mut self,
        target: &Target,
        mut wanted: Vec<pid_t>,
    ) -> Result<(u64, u64), RecordError> {
        while !wanted.is_empty() {
            for pid in std::mem::take(&mut wanted) {
                if !self.since.contains_key(&pid) {
                    self.process(pid)?;
                }
            }
            self.counters.drain();
            // Who was made before its parent's moment is in no event.
            for birth in &self.counters.births {
                let moment = self.since.get(&birth.parent);
                let is_early = moment.is_some_and(|moment| birth.time < *moment);
                if is_early && !self.since.contains_key(&birth.child) {
                    wanted.push(birth.child);
                }
            }
            if let Target::Cgroup(_) = target {
                let now = find::processes(target).unwrap_or_default();
                let new = |pid: &pid_t| {
                    !self.since.contains_key(pid) && !self.counters.threads.contains_key(pid)
                };
                wanted.extend(now.into_iter().filter(new).filter(|pid| find::check(*pid).is_ok()));
            }
            // Those that have ended by now are of no use.
            wanted.retain(|pid| find::check(*pid).is_ok());
        }
        let moments = || self.since.values().copied();
        match (moments().min(), moments().max()) {
            (Some(first), Some(last)) => Ok((first, last)),
            _ => {
                Err(RecordError::Unattachable { target: target.clone(), why: Unattachable::Absent })
            }
        }
    }

    /// Attaches to one process.
    fn process(&mut self, pid: pid_t) -> Result<(), RecordError> {
        let before = freeze::threads(pid);
        self.counters.reserve(2 * before.len());
        if before.len() * self.counters.rings() > OPENED_AT_ONCE {
            self.count(pid, before)?;
        }
        self.counters.touched = Some(HashMap::new());
        let begun = match self.threads_of(pid).len() > STOPPED_AT_ONCE {
            true => self.quiet(pid)?,
            false => self.still(pid)?,
        };
        let Some(Begun { moment, threads, areas }) = begun else { return Ok(()) }; // it has ended
        self.since.insert(pid, moment);
        self.threads += threads.len() as u64;
        let mut pages = state::pages(pid, &areas, || self.counters.drain());
        let marks = state::marks(pid, &areas);
        self.counters.drain();
        let touched = self.counters.touched.take().unwrap_or_default().into_iter();
        let touched = touched.filter(|((its, _), time)| *its == pid && *time >= moment);
        let touched = touched.map(|((_, page), _)| page);
        pages.without(&touched.collect());
        let brk = state::brk(pid, &areas);
        let present = pages.own_first();
        let files = procfs::files(pid, &areas);
        let exec = Exec { program: procfs::program(pid), brk, areas, present };
        let mut tell = |what| self.told.put(Told { time: moment, tid: pid, what }, moment);
        tell(Doing::Root { threads, exec });
        for (range, file) in files {
            let name = Name::File(file);
            tell(Doing::Change(EventKind::Name { range, name }));
        }
        for (range, access) in pages
            .own_rest()
            .map(|r| (r, Access::Write))
            .chain(pages.shared().map(|r| (r, Access::Read)))
        {
            tell(Doing::Change(EventKind::Populate { range, access }));
        }
        for (range, advice) in marks {
            tell(Doing::Change(EventKind::Advise { range, advice }));
        }
        Ok(())
    }

    /// Counts threads of a process that are not counted yet, each while it alone stands still.
    fn count(&mut self, pid: pid_t, threads: Vec<pid_t>) -> Result<(), RecordError> {
        for tid in threads {
            if self.counters.threads.contains_key(&tid) {
                continue;
            }
            let frozen = Frozen::thread(tid);
            let opened = match frozen.is_empty() {
                true => Ok(()),
                false => self.counters.open(tid, pid),
            };
            self.longest = self.longest.max(frozen.release());
            opened.map_err(failed("counting a running thread"))?;
        }
        Ok(())
    }

    fn threads_of(&self, pid: pid_t) -> Vec<pid_t> {
        let all = self.counters.threads.iter();
        all.filter(|(_, its)| **its == pid).map(|(tid, _)| *tid).collect()
    }

    /// The moment of a process with many threads, all of which to stop takes long: one at which
    /// none of them was changing its areas while they were read.
    fn quiet(&mut self, pid: pid_t) -> Result<Option<Begun>, RecordError> {
        // Who is made by a counted thread is counted. Its birth comes out of a ring a moment after
        // it is listed.
        for _ in 0..QUIET_TRIES {
            let listed = freeze::threads(pid);
            std::thread::sleep(Duration::from_millis(2));
            self.counters.drain();
            let new = |tid: &pid_t| !self.counters.threads.contains_key(tid);
            let new: Vec<pid_t> = listed.into_iter().filter(new).collect();
            if new.is_empty() {
                break;
            }
            self.count(pid, new)?;
        }
        if state::has_large_pages(pid) {
            self.large_pages(pid, false);
        }
        let changes = |this: &mut Session| {
            this.counters.drain();
            this.counters.changes.get(&pid).copied()
        };
        let mut tries = 0;
        let (moment, areas) = loop {
            let (before, moment) = (changes(self), sys::clock_ns());
            let areas = procfs::areas(pid);
            tries += 1;
            if changes(self) == before {
                break (moment, areas);
            }
            if tries == QUIET_TRIES {
                self.remarks.insert(format!(
                    "process {pid} changed its memory all the time: what it was like in the beginning may not be exact"
                ));
                break (moment, areas);
            }
        };
        let begun = Begun { moment, threads: self.threads_of(pid), areas };
        Ok(Some(begun).filter(|begun| !begun.areas.is_empty()))
    }

    /// The moment of a process: all of its threads stand still.
    fn still(&mut self, pid: pid_t) -> Result<Option<Begun>, RecordError> {
        let mut frozen = Frozen::process(pid);
        if frozen.is_empty() {
            return match find::check(pid) {
                Err(why @ Unattachable::Traced { .. }) => {
                    let target = Target::Process(pid as u32);
                    Err(RecordError::Unattachable { target, why })
                }
                _ => Ok(None),
            };
        }
        // Births of counted threads are in the rings now: all others are new (A3).
        self.counters.drain();
        let threads: Vec<pid_t> = frozen.threads().collect();
        for &tid in &threads {
            if !self.counters.threads.contains_key(&tid) {
                let opened = self.counters.open(tid, pid);
                opened.map_err(failed("counting a running thread"))?;
            }
        }
        let areas = procfs::areas(pid);
        let done = match state::has_large_pages(pid) {
            true => frozen.disable_thp(pid, true).map(|()| self.switched.insert(pid)),
            false => Ok(false),
        };
        let moment = sys::clock_ns();
        self.longest = self.longest.max(frozen.release());
        if done.is_err() {
            self.large_pages(pid, false); // none of them stood where a call can be made for it
        }
        Ok(Some(Begun { moment, threads, areas }))
    }

    /// Switches large pages off or on in a process: any of its threads will do, at any time.
    fn large_pages(&mut self, pid: pid_t, on: bool) {
        let mut done = Err(io::Error::other("no thread of it could be stopped"));
        for tid in freeze::threads(pid).into_iter().cycle().take(SWITCH_TRIES) {
            let mut frozen = Frozen::thread(tid);
            done = frozen.disable_thp(pid, !on);
            self.longest = self.longest.max(frozen.release());
            if done.is_ok() || find::check(pid) == Err(Unattachable::Absent) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        match done {
            Ok(()) if !on => drop(self.switched.insert(pid)),
            Err(why) if find::check(pid).is_ok() => {
                let (how, then) = match on {
                    true => ("on again", ""),
                    false => ("off", ": it takes fewer faults than pages"),
                };
                self.remarks.insert(format!(
                    "large pages could not be switched {how} in process {pid} ({why}){then}"
                ));
            }
            _ => {}
        }
    }

    /// Empties the rings until the time is up, all have ended, or somebody wants it to end.
    fn follow(&mut self, running: &mut Running, start: u64, spooler: &Spooler) {
        let descriptors = self.counters.descriptors();
        let begin = Instant::now();
        let mut told = Duration::ZERO;
        loop {
            sys::poll(&descriptors, INTERVAL_MS);
            self.counters.drain();
            self.programs();
            self.inherit();
            let is_over = running.length.is_some_and(|length| begin.elapsed() >= length);
            if is_over
                || Stopping::is_wanted()
                || self.counters.threads.is_empty()
                || spooler.has_failed()
            {
                return;
            }
            let elapsed = Duration::from_nanos(sys::clock_ns().saturating_sub(start));
            if let Some(progress) = &mut running.progress
                && elapsed >= told + Duration::from_millis(100)
            {
                told = elapsed;
                progress(Progress { faults: self.counters.samples(), elapsed });
            }
        }
    }

    /// Reads the areas of programs that were started, a moment after.
    fn programs(&mut self) {
        for (began, pid) in std::mem::take(&mut self.counters.execs) {
            let (program, brk) = (procfs::program(pid), procfs::start_brk(pid));
            if !self.counters.threads.contains_key(&pid) {
                let time = sys::clock_ns();
                self.told.put(Told { time, tid: pid, what: Doing::Gone }, time);
                continue;
            }
            if brk.get() == 0 {
                self.counters.execs.push((began, pid)); // exec is not done yet, or its end begins
                continue;
            }
            let areas = procfs::areas(pid);
            let present = procfs::present_in(pid, &areas);
            let exec = Exec { program, brk, areas, present };
            let time = sys::clock_ns();
            self.told.put(Told { time, tid: pid, what: Doing::Exec { former: pid, exec } }, time);
        }
    }

    /// Who was made by a process without large pages has none either.
    fn inherit(&mut self) {
        for birth in self.counters.births.drain(..) {
            if self.switched.contains(&birth.parent) {
                self.switched.insert(birth.child);
            }
        }
        let alive: HashSet<pid_t> = self.counters.threads.values().copied().collect();
        self.switched.retain(|pid| alive.contains(pid));
    }

    /// Switches large pages on again (A2).
    fn restore(&mut self) {
        self.inherit();
        for pid in std::mem::take(&mut self.switched) {
            if state::has_large_pages(pid) {
                continue; // its own wish
            }
            self.large_pages(pid, true);
        }
    }
}
