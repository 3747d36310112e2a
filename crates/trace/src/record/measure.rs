//! Running a program and measuring what it took: page faults, the peak of its anonymous memory, CPU
//! time, and time.
//!
//! It runs as it is, or with wishes applied to it (`apply`), by a thread that is there before the
//! counters are, so that nothing of it is counted; its CPU time is told beside. The counters sit on
//! the thread that starts the program, asleep; its children inherit them and exec wakes them, so
//! only the program and what it starts is counted. Faults come from the software event, the one
//! that recordings count. Memory comes from the tracepoint `kmem:rss_stat`, which tells every
//! change of every address space's page counts, so that no peak is missed however short it is. A
//! process stops being watched just before it lets go of its memory, so an exit counts as the end
//! of its space if nobody else runs there. The run is over when all that the program started has
//! ended (`spawn`).
//!
//! CPU time is the kernel's account of all processes that were waited for, by their parents or,
//! once these were gone, by the keeper. A process whose parent ignores SIGCHLD is waited for by
//! nobody: what it took is in no account. Kernels that look at their ticks who runs
//! (`CONFIG_TICK_CPU_ACCOUNTING`) know the sum well and its two parts, of a short run, badly.
//!
//! **Invariants**
//! - M1. A peak is told only if every sample that the kernel counted was read.

use super::apply::{self, Applied, Follower, Program};
use super::event_abi::{
    DISABLED, ENABLE_ON_EXEC, INHERIT, RECORD_EXIT, RECORD_FORK, RECORD_SAMPLE, SAMPLE_RAW,
    SAMPLE_TID, SAMPLE_TIME, SW_PAGE_FAULTS, TASK, TYPE_SOFTWARE, TYPE_TRACEPOINT, USE_CLOCKID,
    WATERMARK,
};
use super::ring::Ring;
use super::spawn::{self, Kept, Over};
use super::sys::{self, CpuTime, PerfAttr, pid_t};
use super::{RecordError, procfs};
use crate::format::Ending;
use foliant_units::{Bytes, FRAME_BYTES, Nanos};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// The kernel's number for anonymous pages among the counts of a space.
const MM_ANONPAGES: u32 = 1;
const RING_BYTES: usize = 16 << 20;

/// What a program took.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Measured {
    /// Page faults of all kinds, those that the kernel took for the program included.
    pub faults: u64,
    /// The most anonymous memory that all its address spaces mapped at once, shared pages once for
    /// each. `None` where samples were lost.
    pub peak: Option<Bytes>,
    /// CPU time that it took in its own code, with all that it started.
    pub user: Nanos,
    /// CPU time that the system took for it.
    pub system: Nanos,
    /// From its start to its own end; what it left behind may have lasted longer.
    pub elapsed: Nanos,
    /// What was injected; nothing where nothing was to be.
    pub applied: Applied,
    /// CPU time of the thread that applied it, of both kinds.
    pub applying: [Nanos; 2],
    /// How it ended.
    pub ending: Ending,
}

/// Gives whatever this process starts from now on, recorded or measured, the same layout of
/// addresses in every run. Where an area lies decides which folios fit in, so two runs compare only
/// with equal layouts.
pub fn fix_layout() -> Result<(), RecordError> {
    sys::fix_layout()
        .map_err(|why| RecordError::System { what: "switching random layouts off", why })
}

/// Runs a program in a process group of its own, with nothing on its standard input, its standard
/// output thrown away. Returns when all that it started has ended.
pub fn measure(program: &Program<'_>) -> Result<Measured, RecordError> {
    std::thread::scope(|scope| {
        // The counters hang on the thread, so they go with it.
        let thread = std::thread::Builder::new().name("foliant-measure".to_owned());
        let thread =
            thread.spawn_scoped(scope, || run(program)).map_err(failed("starting a thread"))?;
        thread.join().unwrap_or_else(|_| {
            Err(failed("measuring")(io::Error::other("the measuring thread panicked")))
        })
    })
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> RecordError {
    move |why| RecordError::System { what, why }
}

fn run(program: &Program<'_>) -> Result<Measured, RecordError> {
    if program.remedy.wishes.is_empty() {
        return counted(program, None).map(|counted| counted.with(Applied::default(), [0; 2]));
    }
    let mut filter = apply::filter(program.remedy);
    let filter = filter.as_mut().map(|filter| spawn::program(filter));
    let starting = failed("starting the program");
    let (told, says) = spawn::pipe(0).map_err(&starting)?;
    let (go, go_write) = spawn::pipe(0).map_err(&starting)?;
    std::thread::scope(|scope| {
        // The thread is there before the counters.
        let thread = std::thread::Builder::new().name("foliant-apply".to_owned());
        let thread = thread
            .spawn_scoped(scope, || follow_one(program, told.into(), go_write.into()))
            .map_err(failed("starting a thread"))?;
        let followed = spawn::Followed { says, go, filter: filter.as_ref() };
        let counted = counted(program, Some(followed));
        let (applied, cpu) = thread.join().unwrap_or_else(|_| {
            Err(failed("applying")(io::Error::other("the applying thread panicked")))
        })?;
        counted.map(|counted| counted.with(applied, cpu))
    })
}

/// Applies wishes to the program whose number comes, and lets it go on; nothing where none comes.
fn follow_one(
    program: &Program<'_>,
    mut told: File,
    mut go: File,
) -> Result<(Applied, CpuTime), RecordError> {
    let mut number = [0; 4];
    if told.read_exact(&mut number).is_err() {
        return Ok((Applied::default(), [0; 2]));
    }
    let root = pid_t::from_ne_bytes(number);
    sys::seize(root, apply::FOLLOW).map_err(RecordError::following)?;
    let waiting = failed("waiting for the program");
    go.write_all(&[1]).map_err(&waiting)?;
    let applied = Follower::new(root, program.remedy).follow(|_, _| ()).map_err(waiting)?;
    Ok((applied, sys::cpu_time(libc::RUSAGE_THREAD)))
}

/// What was counted of a run.
struct Counted {
    faults: u64,
    peak: Option<Bytes>,
    over: Over,
}

impl Counted {
    fn with(self, applied: Applied, applying: CpuTime) -> Measured {
        let Counted { faults, peak, over } = self;
        let ([user, system], applying) = (over.cpu.map(Nanos), applying.map(Nanos));
        let elapsed = Nanos(over.elapsed);
        Measured { faults, peak, user, system, elapsed, applied, applying, ending: over.ending }
    }
}

fn counted(
    program: &Program<'_>,
    followed: Option<spawn::Followed<'_>>,
) -> Result<Counted, RecordError> {
    let start = program.start(true)?;
    let forbidden = |why| RecordError::PerfForbidden {
        paranoid: procfs::line("/proc/sys/kernel/perf_event_paranoid"),
        why,
    };
    let cpus = procfs::cpus_online();
    let open = |attr: &PerfAttr| -> io::Result<Vec<OwnedFd>> {
        cpus.iter().map(|&cpu| sys::perf_event_open(attr, 0, cpu)).collect()
    };
    let counters = open(&attr()).map_err(forbidden)?;
    let layout = Layout::read().map_err(forbidden)?;
    let points = open(&layout.attr()).map_err(forbidden)?;
    let rings = points.iter().map(|fd| Ring::map(fd, RING_BYTES)).collect::<io::Result<Vec<_>>>();
    let mut rings = rings.map_err(forbidden)?;
    let (waiting, kept) = spawn::measured(&start, followed)?;
    let keeper = waiting.pid;
    let failure = waiting.go().map(spawn::Started::failure);
    let followed = match failure.map_err(failed("starting the program"))? {
        Some((step, why)) => Err(step.failed(start.command, why)),
        None => {
            follow(kept, &points, &mut rings, &layout).map_err(failed("waiting for the program"))
        }
    };
    sys::reap(keeper);
    let (over, told) = followed?;
    let faults = total(counters).map_err(failed("reading the counters"))?;
    let changes = total(points).map_err(failed("reading the counters"))?;
    let samples = told.iter().filter(|told| matches!(told.what, What::Pages { .. })).count();
    let peak = (samples as u64 == changes).then(|| peak(told));
    Ok(Counted { faults, peak, over })
}

fn attr() -> PerfAttr {
    PerfAttr {
        kind: TYPE_SOFTWARE,
        config: SW_PAGE_FAULTS,
        size: size_of::<PerfAttr>() as u32,
        flags: DISABLED | INHERIT | ENABLE_ON_EXEC | USE_CLOCKID,
        clockid: libc::CLOCK_MONOTONIC,
        ..PerfAttr::default()
    }
}

/// What the counters have counted, those of ended children included.
fn total(counters: Vec<OwnedFd>) -> io::Result<u64> {
    let mut sum = 0;
    for counter in counters {
        let mut value = [0; 8];
        File::from(counter).read_exact(&mut value)?;
        sum += u64::from_le_bytes(value);
    }
    Ok(sum)
}

/// Something that the kernel told.
struct Told {
    time: u64,
    what: What,
}

enum What {
    /// A space has so many bytes in some kind of pages. `own` if the process runs there.
    Pages { pid: u32, space: u32, own: bool, anonymous: bool, bytes: i64 },
    /// A process made another one, or a thread of its own.
    Fork { pid: u32, parent: u32 },
    /// A thread ended.
    Exit { pid: u32 },
}

/// Empties the rings until all of the program has ended, and once more.
fn follow(
    mut kept: Kept,
    points: &[OwnedFd],
    rings: &mut [Ring],
    layout: &Layout,
) -> io::Result<(Over, Vec<Told>)> {
    let fds: Vec<RawFd> = points.iter().map(|fd| fd.as_raw_fd()).collect();
    let mut told = Vec::new();
    loop {
        let ended = kept.ended()?;
        for ring in &mut *rings {
            ring.drain(|record| told.extend(layout.told(record)));
        }
        match ended {
            Some(over) => return Ok((over, told)),
            None => drop(sys::poll(&fds, 5)),
        }
    }
}

/// The highest sum of all spaces' anonymous pages.
fn peak(mut told: Vec<Told>) -> Bytes {
    told.sort_by_key(|told| told.time);
    let mut spaces = Spaces::default();
    for Told { what, .. } in told {
        match what {
            What::Pages { pid, space, own, anonymous, bytes } => {
                if anonymous {
                    spaces.set(space, bytes);
                }
                if own {
                    spaces.runs_in.insert(pid, space);
                } else {
                    spaces.made.insert(pid, space);
                }
            }
            What::Fork { pid, parent } if pid == parent => {
                *spaces.threads.entry(pid).or_insert(1) += 1
            }
            What::Fork { pid, parent } => spaces.fork(pid, parent),
            What::Exit { pid } => spaces.exit(pid),
        }
    }
    let most = u64::try_from(spaces.most).unwrap_or(0);
    Bytes::new(most / FRAME_BYTES * FRAME_BYTES)
}

/// The anonymous memory of all spaces, and who runs in them.
#[derive(Default)]
struct Spaces {
    bytes: HashMap<u32, i64>,
    now: i64,
    most: i64,
    runs_in: HashMap<u32, u32>,
    /// The last space that a process filled without running there: its child's, until it forks.
    made: HashMap<u32, u32>,
    threads: HashMap<u32, u32>,
}

impl Spaces {
    fn set(&mut self, space: u32, bytes: i64) {
        let before = self.bytes.insert(space, bytes).unwrap_or(0);
        self.now += bytes - before;
        self.most = self.most.max(self.now);
    }
    fn fork(&mut self, child: u32, parent: u32) {
        self.threads.insert(child, 1);
        if let Some(space) = self.made.remove(&parent)
            && !self.runs_in.values().any(|other| *other == space)
        {
            self.runs_in.insert(child, space);
        }
    }
    fn exit(&mut self, pid: u32) {
        let threads = self.threads.entry(pid).or_insert(1);
        *threads = threads.saturating_sub(1);
        if *threads > 0 {
            return;
        }
        if let Some(space) = self.runs_in.remove(&pid)
            && !self.runs_in.values().any(|other| *other == space)
        {
            self.set(space, 0);
        }
    }
}

/// Where the tracepoint's fields lie in its raw data.
struct Layout {
    id: u64,
    space: usize,
    own: usize,
    member: usize,
    bytes: usize,
}

impl Layout {
    fn read() -> io::Result<Layout> {
        let root = sys::tracefs_root()?;
        let path = format!("/proc/self/fd/{}/events/kmem/rss_stat", root.as_raw_fd());
        let id = std::fs::read_to_string(format!("{path}/id"))?;
        let format = std::fs::read_to_string(format!("{path}/format"))?;
        let unknown = || io::Error::other("the tracepoint kmem:rss_stat has an unknown form");
        let offset = |name: &str| {
            let line = format.lines().find(|line| line.contains(&format!(" {name};")))?;
            let from = line.split_once("offset:")?.1;
            from.split_once(';')?.0.parse::<usize>().ok()
        };
        Ok(Layout {
            id: id.trim().parse().map_err(|_| unknown())?,
            space: offset("mm_id").ok_or_else(unknown)?,
            own: offset("curr").ok_or_else(unknown)?,
            member: offset("member").ok_or_else(unknown)?,
            bytes: offset("size").ok_or_else(unknown)?,
        })
    }

    fn attr(&self) -> PerfAttr {
        let base = attr();
        PerfAttr {
            kind: TYPE_TRACEPOINT,
            config: self.id,
            sample_period: 1,
            sample_type: SAMPLE_TID | SAMPLE_TIME | SAMPLE_RAW,
            flags: base.flags | WATERMARK | TASK,
            wakeup: (RING_BYTES / 4) as u32,
            ..base
        }
    }

    /// A record: type, misc and size (8 bytes), then
    /// of a sample: process, thread, time, length of the raw data (4 bytes), the raw data;
    /// of a fork or exit: process, its parent, thread, its parent, time.
    fn told(&self, record: &[u8]) -> Option<Told> {
        let word = |at: usize| Some(u32::from_le_bytes(record.get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_le_bytes(record.get(at..at + 8)?.try_into().ok()?));
        let (kind, pid, parent) = (word(0)?, word(8)?, word(12)?);
        match kind {
            RECORD_SAMPLE => {
                let raw = 28;
                let what = What::Pages {
                    pid,
                    space: word(raw + self.space)?,
                    own: *record.get(raw + self.own)? != 0,
                    anonymous: word(raw + self.member)? == MM_ANONPAGES,
                    bytes: long(raw + self.bytes)? as i64,
                };
                Some(Told { time: long(16)?, what })
            }
            RECORD_FORK => Some(Told { time: long(24)?, what: What::Fork { pid, parent } }),
            RECORD_EXIT => Some(Told { time: long(24)?, what: What::Exit { pid } }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(time: u64, pid: u32, space: u32, pages: i64) -> Told {
        let (own, anonymous) = (pid == space, true);
        Told { time, what: What::Pages { pid, space, own, anonymous, bytes: pages * 4096 } }
    }

    #[test]
    fn a_peak_is_the_highest_sum_over_all_spaces() {
        let told =
            vec![pages(1, 1, 1, 10), pages(2, 2, 2, 5), pages(4, 1, 1, 12), pages(3, 2, 2, 1)];
        assert_eq!(peak(told), Bytes::new(15 * 4096));
    }

    #[test]
    fn a_space_ends_with_its_last_thread() {
        let told = |time, what| Told { time, what };
        let list = vec![
            pages(1, 1, 1, 2),
            pages(2, 1, 2, 30), // the copy for the child
            told(3, What::Fork { pid: 2, parent: 1 }),
            told(4, What::Fork { pid: 2, parent: 2 }),
            told(5, What::Exit { pid: 2 }),
            told(6, What::Exit { pid: 2 }),
            pages(7, 1, 1, 20),
        ];
        assert_eq!(peak(list), Bytes::new(32 * 4096));
    }
}
