//! Counters on the threads of running processes: faults, calls, births, exec and ends.
//!
//! ```text
//!   thread ─ on each CPU: page faults (counted) + comm, task, mmap records ──┐
//!                         exceptions:page_fault_user, page_fault_kernel ─────┤
//!                         raw_syscalls:sys_enter, sys_exit (filtered) ───────┼─▶ one ring per CPU
//!                         task:task_newtask ─────────────────────────────────┘
//! ```
//!
//! The rings belong to a counter that counts nothing and ends with nobody.
//!
//! **Invariants**
//! - C1. A thread's counters are opened while it stands still, all or none; its children inherit
//!   them. So a thread is counted once: `task_newtask` of a counted thread tells those that are.
//! - C2. What the counters of faults counted and what came out of the rings is compared at the end;
//!   the difference is reported as lost.

use super::super::event_abi::{
    COMM, COMM_EXEC, DISABLED, INHERIT, MISC_COMM_EXEC, MISC_CPUMODE, MISC_KERNEL, MMAP, MMAP_DATA,
    MMAP2, RECORD_COMM, RECORD_EXIT, RECORD_LOST, RECORD_MMAP2, RECORD_SAMPLE, SAMPLE_ADDR,
    SAMPLE_ID_ALL, SAMPLE_IDENTIFIER, SAMPLE_RAW, SAMPLE_TID, SAMPLE_TIME, SW_DUMMY,
    SW_PAGE_FAULTS, TASK, TYPE_SOFTWARE, TYPE_TRACEPOINT, USE_CLOCKID, WATERMARK,
};
use super::super::log::RingLog;
use super::super::procfs;
use super::super::raw::{Raw, What};
use super::super::ring::Ring;
use super::super::sys::{self, PerfAttr, pid_t};
use super::calls::{calls, changes_areas};
use foliant_units::FRAME_BYTES;
use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// What a counter tells.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Fault,
    Code,
    Enter,
    Leave,
    Born,
}

/// A process that a counted one has made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Birth {
    pub(crate) time: u64,
    pub(crate) parent: pid_t,
    pub(crate) child: pid_t,
}

/// The counters of all threads, and one ring per CPU.
pub(crate) struct Counters {
    cpus: Vec<u32>,
    rings: Vec<Ring>,
    logs: Vec<RingLog>,
    owners: Vec<OwnedFd>,
    /// Each tracepoint's number, with what it tells.
    points: Vec<(u64, Kind)>,
    filter: CString,
    ids: HashMap<u64, Kind>,
    faults: Vec<OwnedFd>,
    others: Vec<OwnedFd>,
    /// Threads that are counted, with their processes.
    pub(crate) threads: HashMap<pid_t, pid_t>,
    /// Threads whose end came out of a ring before their birth came out of another.
    ended: HashSet<pid_t>,
    /// Processes that were made.
    pub(crate) births: Vec<Birth>,
    /// Processes that run another program, and since when.
    pub(crate) execs: Vec<(u64, pid_t)>,
    /// When pages were last faulted in, by process, while somebody wants to know.
    pub(crate) touched: Option<HashMap<(pid_t, u64), u64>>,
    /// Threads in a call that may change areas, and how often one was made or came back, by
    /// process.
    changing: HashSet<pid_t>,
    pub(crate) changes: HashMap<pid_t, u64>,
    samples: u64,
    dropped: u64,
    /// The first of each kind, which counts nothing.
    _first: Vec<OwnedFd>,
}

impl Counters {
    /// Makes the rings; nobody is counted yet.
    pub(crate) fn new(cpus: Vec<u32>, ring_bytes: usize) -> io::Result<Counters> {
        let root = sys::tracefs_root()?;
        let number = |name: &str| -> io::Result<u64> {
            let path = format!("/proc/self/fd/{}/events/{name}/id", root.as_raw_fd());
            let text = std::fs::read_to_string(path)?;
            text.trim().parse().map_err(|_| io::Error::other("a tracepoint has no number"))
        };
        let points = vec![
            (number("exceptions/page_fault_user")?, Kind::Code),
            (number("exceptions/page_fault_kernel")?, Kind::Code),
            (number("raw_syscalls/sys_enter")?, Kind::Enter),
            (number("raw_syscalls/sys_exit")?, Kind::Leave),
            (number("task/task_newtask")?, Kind::Born),
        ];
        let filter: Vec<String> = calls().map(|nr| format!("id == {nr}")).collect();
        let filter = CString::new(filter.join(" || "))?;
        let size = ring_bytes.max(32 << 10).next_power_of_two();
        let attr = PerfAttr {
            kind: TYPE_SOFTWARE,
            config: SW_DUMMY,
            flags: WATERMARK | USE_CLOCKID,
            wakeup: (size / 4) as u32,
            ..attr()
        };
        let owners = cpus
            .iter()
            .map(|&cpu| sys::perf_event_open(&attr, -1, cpu))
            .collect::<io::Result<Vec<_>>>()?;
        let rings = owners.iter().map(|fd| Ring::map(fd, size)).collect::<io::Result<Vec<_>>>()?;
        let mut counters = Counters {
            cpus,
            rings,
            logs: Vec::new(),
            owners,
            points,
            filter,
            ids: HashMap::new(),
            faults: Vec::new(),
            others: Vec::new(),
            threads: HashMap::new(),
            ended: HashSet::new(),
            births: Vec::new(),
            execs: Vec::new(),
            touched: None,
            changing: HashSet::new(),
            changes: HashMap::new(),
            samples: 0,
            dropped: 0,
            _first: Vec::new(),
        };
        // The first counter of a kind has the kernel change its code, which takes milliseconds:
        // not while somebody stands still.
        let first = counters.attrs().map(|(attr, kind)| counters.one(&attr, kind, 0, 0));
        counters._first = first.map(|opened| Ok(opened?.1)).collect::<io::Result<_>>()?;
        Ok(counters)
    }

    /// The counters of one thread on one CPU.
    fn attrs(&self) -> impl Iterator<Item = (PerfAttr, Kind)> {
        let sample_type = SAMPLE_IDENTIFIER | SAMPLE_TID | SAMPLE_TIME;
        let records = MMAP | MMAP_DATA | MMAP2 | COMM | COMM_EXEC | TASK;
        let base = attr();
        let faults = PerfAttr {
            kind: TYPE_SOFTWARE,
            config: SW_PAGE_FAULTS,
            sample_type: sample_type | SAMPLE_ADDR,
            flags: base.flags | records,
            ..base
        };
        let points = self.points.iter().map(move |&(config, kind)| {
            let sample_type = sample_type | SAMPLE_RAW;
            (PerfAttr { kind: TYPE_TRACEPOINT, config, sample_type, ..base }, kind)
        });
        std::iter::once((faults, Kind::Fault)).chain(points)
    }

    /// Opens one; it does not count yet.
    fn one(
        &self,
        attr: &PerfAttr,
        kind: Kind,
        tid: pid_t,
        ring: usize,
    ) -> io::Result<(u64, OwnedFd)> {
        let fd = sys::perf_event_open(attr, tid, self.cpus[ring])?;
        if let Kind::Enter | Kind::Leave = kind {
            sys::perf_filter(&fd, &self.filter)?;
        }
        sys::perf_redirect(&fd, &self.owners[ring])?;
        Ok((sys::perf_id(&fd)?, fd))
    }

    pub(crate) fn rings(&self) -> usize {
        self.rings.len()
    }
    pub(crate) fn write_to(&mut self, logs: Vec<RingLog>) {
        self.logs = logs;
    }
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        self.owners.iter().map(|fd| fd.as_raw_fd()).collect()
    }
    /// Faults so far.
    pub(crate) fn samples(&self) -> u64 {
        self.samples
    }

    /// Makes room for the counters of so many more threads. Where a table of descriptors grows, the
    /// kernel waits for all CPUs, which takes ten milliseconds: not while somebody stands still.
    pub(crate) fn reserve(&self, threads: usize) {
        let each = self.cpus.len() * (1 + self.points.len());
        let there = self.faults.len() + self.others.len();
        sys::reserve_descriptors(there + each * threads + 64);
    }

    /// Counts a thread that stands still (C1).
    pub(crate) fn open(&mut self, tid: pid_t, pid: pid_t) -> io::Result<()> {
        let mut opened = Vec::new();
        for ring in 0..self.cpus.len() {
            for (attr, kind) in self.attrs() {
                let (id, fd) = self.one(&attr, kind, tid, ring)?;
                opened.push((id, kind, fd));
            }
        }
        for (id, kind, fd) in opened {
            sys::perf_enable(&fd, true)?;
            self.ids.insert(id, kind);
            let list = if kind == Kind::Fault { &mut self.faults } else { &mut self.others };
            list.push(fd);
        }
        self.threads.insert(tid, pid);
        Ok(())
    }

    /// Empties the rings.
    pub(crate) fn drain(&mut self) {
        let mut rings = std::mem::take(&mut self.rings);
        for (at, ring) in rings.iter_mut().enumerate() {
            ring.drain(|record| {
                if let Some(raw) = self.parse(record)
                    && let Some(log) = self.logs.get_mut(at)
                {
                    log.put(&raw);
                }
            });
        }
        self.rings = rings;
    }

    /// Counts nothing from now on: faults first, so that none is told of memory whose mapping is
    /// not. Its threads run meanwhile.
    pub(crate) fn disable(&mut self) {
        for fd in self.faults.iter().chain(&self.others) {
            let _ = sys::perf_enable(fd, false);
        }
        self.drain();
        self.logs.iter_mut().for_each(RingLog::send);
    }

    /// How many faults were counted beyond what came out of the rings, and how many records of
    /// other kinds found no room there.
    pub(crate) fn lost(self) -> io::Result<(u64, u64)> {
        let mut counted = 0u64;
        for counter in self.faults {
            let mut value = [0; 8];
            File::from(counter).read_exact(&mut value)?;
            counted += u64::from_le_bytes(value);
        }
        let lost = counted.saturating_sub(self.samples);
        Ok((lost, self.dropped.saturating_sub(lost)))
    }

    /// A record: type and misc (8 bytes with its size), then
    /// of a sample: number, process, thread, time, then an address, or a length and raw data whose
    /// first 8 bytes are common to all;
    /// of another: its fields, and at its end process, thread, time, number.
    fn parse(&mut self, record: &[u8]) -> Option<Raw> {
        let word = |at: usize| Some(u32::from_le_bytes(record.get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_le_bytes(record.get(at..at + 8)?.try_into().ok()?));
        let (kind, misc) = (word(0)?, word(4)? as u16);
        let end = record.len().checked_sub(24)?;
        let (tid, time, what) = match kind {
            RECORD_SAMPLE => {
                let (pid, tid, time) = (word(16)? as pid_t, word(20)? as pid_t, long(24)?);
                let data = 36 + 8;
                let what = match *self.ids.get(&long(8)?)? {
                    Kind::Fault => {
                        let kernel = misc & MISC_CPUMODE == MISC_KERNEL;
                        let va = long(32)?;
                        self.samples += 1;
                        if let Some(touched) = &mut self.touched {
                            touched.insert((pid, va / FRAME_BYTES * FRAME_BYTES), time);
                        }
                        What::Fault { va, kernel, decoded: None }
                    }
                    Kind::Code => What::Code { va: long(data)?, error: long(data + 16)? as u32 },
                    Kind::Enter => {
                        let mut args = [0; 6];
                        for (at, arg) in args.iter_mut().enumerate() {
                            *arg = long(data + 8 + 8 * at)?;
                        }
                        let nr = long(data)? as u16;
                        // Of prctl one wish matters.
                        let other = args[0] != libc::PR_SET_THP_DISABLE as u64;
                        if i64::from(nr) == libc::SYS_prctl && other {
                            return None;
                        }
                        if changes_areas(nr.into()) {
                            self.changing.insert(tid);
                            *self.changes.entry(pid).or_default() += 1;
                        }
                        What::Enter { nr, args }
                    }
                    Kind::Leave => {
                        if self.changing.remove(&tid) {
                            *self.changes.entry(pid).or_default() += 1;
                        }
                        What::Leave { result: long(data + 8)? as i64 }
                    }
                    Kind::Born => {
                        let (child, flags) = (word(data)? as pid_t, long(data + 24)?);
                        self.born(time, pid, child, flags);
                        What::Born { child, flags }
                    }
                };
                (tid, time, what)
            }
            RECORD_EXIT => {
                let tid = word(16)? as pid_t;
                if self.threads.remove(&tid).is_none() {
                    self.ended.insert(tid);
                }
                (tid, long(24)?, What::End)
            }
            RECORD_COMM if misc & MISC_COMM_EXEC != 0 => {
                let (pid, tid, time) = (word(8)? as pid_t, word(12)? as pid_t, long(end + 8)?);
                self.execs.push((time, pid));
                (tid, time, What::Exec { pid })
            }
            RECORD_MMAP2 => {
                let tid = word(12)? as pid_t;
                let (at, bytes, shared) = (long(16)?, long(24)?, word(68)? & 1 != 0);
                let name = record.get(72..end)?.split(|byte| *byte == 0).next()?;
                let name = String::from_utf8_lossy(name);
                let name = name.split_ascii_whitespace().next().unwrap_or("");
                let kind = procfs::kind_of_name(name, shared);
                (tid, long(end + 8)?, What::Made { at, bytes, kind })
            }
            RECORD_LOST => {
                self.dropped += long(16)?;
                return None;
            }
            _ => return None,
        };
        Some(Raw { time, tid, what })
    }

    fn born(&mut self, time: u64, parent: pid_t, child: pid_t, flags: u64) {
        let is_thread = flags & libc::CLONE_THREAD as u64 != 0;
        let pid = if is_thread { parent } else { child };
        if !self.ended.remove(&child) {
            self.threads.insert(child, pid);
        }
        if !is_thread {
            self.births.push(Birth { time, parent, child });
        }
    }
}

fn attr() -> PerfAttr {
    PerfAttr {
        size: size_of::<PerfAttr>() as u32,
        sample_period: 1,
        flags: DISABLED | INHERIT | SAMPLE_ID_ALL | USE_CLOCKID,
        clockid: libc::CLOCK_MONOTONIC,
        ..PerfAttr::default()
    }
}
