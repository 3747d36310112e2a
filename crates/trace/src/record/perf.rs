//! Counting and sampling page faults: one counter and one ring per CPU, inherited by every child.
//!
//! The software event "page faults" samples every fault of the program with its address. Where
//! privilege permits, the tracepoints `exceptions:page_fault_user` and `page_fault_kernel` go to
//! the same rings and add the processor's error code; `assemble` pairs them up by thread and
//! address. The software event stays the one that counts: a tracepoint also fires where the kernel
//! then refuses to handle the fault.
//!
//! **Invariants**
//! - P1. Counters start at the program's first exec, so nothing of the recorder's child is in them.
//! - P2. What the counters counted and what came out of the rings is compared at the end; the
//!   difference is reported as lost. (A ring that ran full stops without a word.)

use super::decode::{Kinds, Regs};
use super::event_abi::{
    COMM, COMM_EXEC, DISABLED, ENABLE_ON_EXEC, EXCLUDE_HV, EXCLUDE_KERNEL, INHERIT, MISC_COMM_EXEC,
    MISC_CPUMODE, MISC_KERNEL, RECORD_COMM, RECORD_EXIT, RECORD_FORK, RECORD_SAMPLE, SAMPLE_ADDR,
    SAMPLE_CPU, SAMPLE_ID_ALL, SAMPLE_IDENTIFIER, SAMPLE_IP, SAMPLE_RAW, SAMPLE_REGS_USER,
    SAMPLE_TID, SAMPLE_TIME, SW_PAGE_FAULTS, TASK, TYPE_SOFTWARE, TYPE_TRACEPOINT, USE_CLOCKID,
    WATERMARK,
};
use super::log::RingLog;
use super::raw::{Raw, What};
use super::sys::{self, PerfAttr, pid_t};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use super::ring::Ring;

/// `rsi`, `rdi`, `rsp` in the order in which samples carry them.
const REGS: u64 = 1 << 4 | 1 << 5 | 1 << 7;

/// Of the registers in a sample: those of a program of 32 bits.
const ABI_32: u64 = 1;

/// The counters and rings of one recording.
pub(crate) struct Perf {
    rings: Vec<Ring>,
    counters: Vec<OwnedFd>,
    tracers: Vec<OwnedFd>,
    /// Numbers of samples by the software events and by the two kinds of tracepoint.
    ids: Vec<(u64, Id)>,
    with_regs: bool,
    kinds: Option<Kinds>,
    /// Where records go, by ring.
    logs: Vec<RingLog>,
    samples: u64,
    kernel_faults: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Id {
    Fault,
    Code,
}

/// What to open.
pub(crate) struct Wanted {
    /// Use the tracepoints where permitted.
    pub(crate) tracepoints: bool,
    /// Decode instructions, also if tracepoints are there.
    pub(crate) decode: bool,
    /// The largest ring to try, in bytes; a power of two.
    pub(crate) ring_bytes: usize,
}

impl Perf {
    /// Opens everything on a process that has not exec'd yet.
    pub(crate) fn open(pid: pid_t, cpus: &[u32], wanted: &Wanted) -> io::Result<Perf> {
        let points = if wanted.tracepoints { tracepoints(pid, cpus) } else { None };
        let decode = wanted.decode || points.is_none();
        let with_kernel = counters(pid, cpus, true, decode, wanted.ring_bytes);
        let (counters, rings, kernel_faults) = match with_kernel {
            Ok((counters, rings)) => (counters, rings, true),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                let (counters, rings) = counters_of_user(pid, cpus, decode, wanted.ring_bytes)?;
                (counters, rings, false)
            }
            Err(e) => return Err(e),
        };
        let mut ids = Vec::new();
        for counter in &counters {
            ids.push((sys::perf_id(counter)?, Id::Fault));
        }
        let mut tracers = Vec::new();
        for (fd, cpu_at) in points.into_iter().flatten() {
            sys::perf_redirect(&fd, &counters[cpu_at])?;
            ids.push((sys::perf_id(&fd)?, Id::Code));
            tracers.push(fd);
        }
        Ok(Perf {
            rings,
            counters,
            tracers,
            ids,
            with_regs: decode,
            kinds: decode.then(Kinds::default),
            logs: Vec::new(),
            samples: 0,
            kernel_faults,
        })
    }

    /// Whether the processor's error codes are recorded.
    pub(crate) fn has_tracepoints(&self) -> bool {
        !self.tracers.is_empty()
    }

    /// Whether faults taken by the kernel are recorded.
    pub(crate) fn has_kernel_faults(&self) -> bool {
        self.kernel_faults
    }

    /// Whether instructions are decoded, so that rings should be read while the code is there.
    pub(crate) fn decodes(&self) -> bool {
        self.kinds.is_some()
    }

    /// What to wait on.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        self.counters.iter().map(|fd| fd.as_raw_fd()).collect()
    }

    /// Faults so far.
    pub(crate) fn samples(&self) -> u64 {
        self.samples
    }

    /// Empties the rings.
    pub(crate) fn drain(&mut self) {
        let Perf { rings, ids, with_regs, kinds, logs, samples, .. } = self;
        for (ring, log) in rings.iter_mut().zip(logs) {
            ring.drain(|record| {
                let parsed = parse(record, ids, *with_regs, kinds);
                if let Some(found) = parsed {
                    *samples += u64::from(matches!(found.what, What::Fault { .. }));
                    log.put(&found);
                }
            });
        }
    }

    /// A process runs another program now, or is gone.
    pub(crate) fn forget_code(&mut self, pid: pid_t) {
        if let Some(kinds) = &mut self.kinds {
            kinds.forget(pid);
        }
    }

    /// How many rings there are.
    pub(crate) fn rings(&self) -> usize {
        self.rings.len()
    }

    /// Each ring's records go to its log from now on; without one they stay in the ring.
    pub(crate) fn write_to(&mut self, logs: Vec<RingLog>) {
        self.logs = logs;
    }

    /// Empties the rings for the last time; returns how many faults the counters have counted
    /// beyond what came out of them.
    pub(crate) fn finish(mut self) -> io::Result<u64> {
        self.drain();
        self.logs.iter_mut().for_each(RingLog::send);
        let mut counted = 0u64;
        for counter in self.counters {
            let mut value = [0; 8];
            File::from(counter).read_exact(&mut value)?;
            counted += u64::from_le_bytes(value);
        }
        Ok(counted.saturating_sub(self.samples))
    }
}

fn attr() -> PerfAttr {
    PerfAttr {
        size: size_of::<PerfAttr>() as u32,
        sample_period: 1,
        flags: DISABLED | INHERIT | ENABLE_ON_EXEC | SAMPLE_ID_ALL | USE_CLOCKID,
        clockid: libc::CLOCK_MONOTONIC,
        ..PerfAttr::default()
    }
}

type Counters = (Vec<OwnedFd>, Vec<Ring>);

fn counters_of_user(pid: pid_t, cpus: &[u32], regs: bool, bytes: usize) -> io::Result<Counters> {
    counters(pid, cpus, false, regs, bytes)
}

/// Opens the software event on every CPU, with the largest rings that the system permits.
fn counters(
    pid: pid_t,
    cpus: &[u32],
    kernel: bool,
    regs: bool,
    bytes: usize,
) -> io::Result<Counters> {
    const RING_MIN: usize = 32 << 10;
    let mut size = bytes.max(RING_MIN).next_power_of_two();
    let open = |cpu: u32, size: usize| {
        let base = attr();
        let attr = PerfAttr {
            kind: TYPE_SOFTWARE,
            config: SW_PAGE_FAULTS,
            sample_type: SAMPLE_IDENTIFIER
                | SAMPLE_IP
                | SAMPLE_TID
                | SAMPLE_TIME
                | SAMPLE_ADDR
                | SAMPLE_CPU
                | if regs { SAMPLE_REGS_USER } else { 0 },
            sample_regs_user: if regs { REGS } else { 0 },
            flags: base.flags
                | COMM
                | COMM_EXEC
                | TASK
                | WATERMARK
                | if kernel { 0 } else { EXCLUDE_KERNEL | EXCLUDE_HV },
            wakeup: (size / 4) as u32,
            ..base
        };
        sys::perf_event_open(&attr, pid, cpu)
    };
    loop {
        let counters = cpus.iter().map(|&cpu| open(cpu, size)).collect::<io::Result<Vec<_>>>()?;
        match counters.iter().map(|fd| Ring::map(fd, size)).collect::<io::Result<Vec<_>>>() {
            Ok(rings) => return Ok((counters, rings)),
            Err(e) if size <= RING_MIN => return Err(e),
            Err(_) => size /= 2,
        }
    }
}

/// Opens both tracepoints on every CPU, or none: descriptor and index of the CPU.
fn tracepoints(pid: pid_t, cpus: &[u32]) -> Option<Vec<(OwnedFd, usize)>> {
    let root = sys::tracefs_root().ok()?;
    let mut opened = Vec::new();
    for name in ["page_fault_user", "page_fault_kernel"] {
        let root = root.as_raw_fd();
        let path = format!("/proc/self/fd/{root}/events/exceptions/{name}/id");
        let config = std::fs::read_to_string(path).ok()?.trim().parse().ok()?;
        let attr = PerfAttr {
            kind: TYPE_TRACEPOINT,
            config,
            sample_type: SAMPLE_IDENTIFIER | SAMPLE_TID | SAMPLE_TIME | SAMPLE_RAW,
            ..attr()
        };
        for (at, &cpu) in cpus.iter().enumerate() {
            opened.push((sys::perf_event_open(&attr, pid, cpu).ok()?, at));
        }
    }
    Some(opened)
}

/// Reads fields of a record one after another; past the end it gives 0.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u64(&mut self) -> u64 {
        u64::from(self.u32()) | u64::from(self.u32()) << 32
    }
    fn u32(&mut self) -> u32 {
        match self.0.split_first_chunk::<4>() {
            Some((n, rest)) => {
                self.0 = rest;
                u32::from_le_bytes(*n)
            }
            None => 0,
        }
    }
}

fn parse(
    record: &[u8],
    ids: &[(u64, Id)],
    with_regs: bool,
    kinds: &mut Option<Kinds>,
) -> Option<Raw> {
    let mut f = Fields(record);
    let kind = f.u32();
    let misc = f.u32() as u16;
    match kind {
        RECORD_SAMPLE => {
            let id = f.u64();
            match ids.iter().find(|(n, _)| *n == id)?.1 {
                Id::Fault => {
                    let ip = f.u64();
                    let (pid, tid) = (f.u32() as pid_t, f.u32() as pid_t);
                    let (time, va, _cpu) = (f.u64(), f.u64(), f.u64());
                    let kernel = misc & MISC_CPUMODE == MISC_KERNEL;
                    let mut decoded = None;
                    if with_regs && !kernel {
                        let bits = if f.u64() == ABI_32 { 32 } else { 64 };
                        let (rsi, rdi, rsp) = (f.u64(), f.u64(), f.u64());
                        let regs = Regs { bits, rsi, rdi, rsp };
                        decoded = kinds.as_mut().and_then(|k| k.access(pid, ip, va, regs));
                    }
                    Some(Raw { time, tid, what: What::Fault { va, kernel, decoded } })
                }
                Id::Code => {
                    let (_pid, tid) = (f.u32(), f.u32() as pid_t);
                    let time = f.u64();
                    // The raw part: its size, the common head of 8 bytes, then address, ip, error
                    // code.
                    let (_size, _head) = (f.u32(), f.u64());
                    let (va, _ip, error) = (f.u64(), f.u64(), f.u64() as u32);
                    Some(Raw { time, tid, what: What::Code { va, error } })
                }
            }
        }
        RECORD_FORK | RECORD_EXIT => {
            let (pid, parent) = (f.u32(), f.u32());
            let (tid, parent_tid) = (f.u32() as pid_t, f.u32() as pid_t);
            let time = f.u64();
            Some(if kind == RECORD_EXIT {
                Raw { time, tid, what: What::End }
            } else {
                let what = What::Fork { child: tid, same_process: pid == parent };
                Raw { time, tid: parent_tid, what }
            })
        }
        RECORD_COMM if misc & MISC_COMM_EXEC != 0 => {
            let (pid, tid) = (f.u32() as pid_t, f.u32() as pid_t);
            // The trailer of every record: TID, TIME, CPU, IDENTIFIER.
            let mut tail = Fields(record.get(record.len().checked_sub(24)?..)?);
            Some(Raw { time: tail.u64(), tid, what: What::Exec { pid } })
        }
        _ => None,
    }
}
