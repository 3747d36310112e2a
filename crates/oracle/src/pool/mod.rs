//! A pool of huge pages: random steps on it, taken by this host's Linux and by the manager.
//!
//! ```text
//!   seed ─▶ steps ─┬─▶ processes of this host, its pool ───┐
//!                  │                                       ├─▶ answer, counts of the pool: equal?
//!                  └─▶ spaces and objects of a Manager ────┘       └─ no: made short, printed
//! ```
//!
//! A step maps an object or memory of a program's own, touches a page, drops pages, forks, ends a
//! process, punches or cuts an object, or makes the pool larger or smaller. After each both sides
//! are asked for `HugePages_Total`, `Free`, `Rsvd` and `Surp`.
//!
//! **Invariants**
//! - T1. A sequence depends on its seed alone. A step on a process or an object that is not there
//!   is none, on both sides.
//! - T2. The pool of the host is as it was before, however the steps end, unless this program is
//!   killed: its two settings are put back when the [`Hold`] on it is dropped.
//! - T3. Nobody else has pages of the pool meanwhile, as far as this program can see to it: another
//!   run of it waits (`turn`), and a pool that is in use is left alone.
//! - T4. While a child has pages of a private area, its parent neither unmaps, drops, cuts nor
//!   punches that area, nor exits: Linux then takes the reservation away at once and gives it back
//!   when the child lets go of the page, or the other way round, and its counts are off in between,
//!   even below zero.
//! - T5. No object is mapped privately both with and without `MAP_NORESERVE`: a parent that takes
//!   its page back from its children takes it from itself on Linux, if it has an area of the first
//!   kind too, and is refused then.
//!
//! **Not here**: pages of 1 GiB; which of several mistakes in one call Linux finds first; memory
//! that runs out.

mod draw;
mod host;
mod ours;
#[cfg(test)]
mod tests;

pub use draw::steps;

use crate::child::Program;
use crate::run::Difference;
use crate::shrink::shrink;
use crate::side::Failed;
use core::cell::Cell;
use core::fmt;
use core::ops::Range;
use draw::WINDOW;
use host::{Hold, Host};
use std::collections::BTreeMap;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::time::Duration;

/// Bytes of a page of the pool.
const HUGE: u64 = 2 << 20;
/// Objects of a sequence, at most.
const OBJECTS: usize = 3;
/// Processes of a sequence, at most.
const PROCESSES: usize = 3;
/// Pages that the pool has in the beginning.
const POOL: u64 = 12;
/// Surplus pages that may be made in the beginning.
const SURPLUS: u64 = 0;

const NOT_AGAIN: &str = "the host did otherwise when it was asked again";
const ELSEWHERE: &str = "where the parent takes its page back, Linux marks any of the child's areas of the object, not the one that had it";

/// How often is looked whether the counts are as expected, a millisecond apart.
const LOOKS: u32 = 100;

/// Differences that stay.
const LOST: &str =
    "Linux refuses every page of an area that lost one to the parent, the manager that page alone";

/// Where an area comes from, and what it is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct What {
    /// The object; memory of the program's own without one.
    pub of: Option<usize>,
    /// Its first page in the object.
    pub first: u64,
    /// Whether it is mapped shared. Memory of the program's own is private.
    pub shared: bool,
    /// Whether it is mapped with `MAP_NORESERVE`.
    pub noreserve: bool,
    /// Whether it can be written.
    pub writable: bool,
}

/// A step. Pages are of 2 MiB; `at` is a page of the window in which areas lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "they are the arguments of the calls that `Step::fmt` names")]
pub enum Step {
    /// `memfd_create` and `ftruncate`.
    Create { of: usize, pages: u64 },
    /// `close`: who maps the object keeps it.
    Close { of: usize },
    /// `ftruncate`.
    Resize { of: usize, pages: u64 },
    /// `fallocate` with `FALLOC_FL_PUNCH_HOLE`.
    Punch { of: usize, from: u64, count: u64 },
    /// `fallocate`, within the object.
    Allocate { of: usize, from: u64, count: u64 },
    /// `mmap` with `MAP_FIXED_NOREPLACE`.
    Map { who: usize, at: u64, count: u64, what: What },
    /// `munmap`.
    Unmap { who: usize, at: u64, count: u64 },
    /// A byte is read.
    Load { who: usize, at: u64 },
    /// A byte is written.
    Store { who: usize, at: u64, value: u8 },
    /// `madvise` with `MADV_DONTNEED`.
    Drop { who: usize, at: u64, count: u64 },
    /// `fork`: `child` is the number of the child.
    Fork { who: usize, child: usize },
    /// `exit`, and the parent has seen it.
    Exit { who: usize },
    /// `nr_hugepages` is written.
    Pool { pages: u64 },
    /// `nr_overcommit_hugepages` is written.
    Overcommit { pages: u64 },
}

/// How a step ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Done,
    /// A byte was read.
    Byte(u8),
    /// With this errno.
    Errno(i32),
    /// With this signal.
    Signal(u64),
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Answer::Done => f.write_str("0"),
            Answer::Byte(byte) => write!(f, "the byte {byte:#x}"),
            Answer::Errno(errno) => write!(f, "-{errno}"),
            Answer::Signal(number) => write!(f, "signal {number}"),
        }
    }
}

/// The counts of the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Counts {
    pub(crate) total: u64,
    pub(crate) free: u64,
    pub(crate) reserved: u64,
    pub(crate) surplus: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { total, free, reserved, surplus } = *self;
        write!(f, "Total {total} Free {free} Rsvd {reserved} Surp {surplus}")
    }
}

/// One of the two sides. Whether objects and processes are there is seen to by the caller.
pub(crate) trait Side {
    fn step(&mut self, step: &Step) -> Result<Answer, Failed>;
    fn counts(&self) -> Result<Counts, Failed>;
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Step::Create { of, pages } => write!(f, "object {of}: memfd_create, ftruncate {pages}"),
            Step::Close { of } => write!(f, "object {of}: close"),
            Step::Resize { of, pages } => write!(f, "object {of}: ftruncate {pages}"),
            Step::Punch { of, from, count } => {
                write!(f, "object {of}: punch {from}..{}", from + count)
            }
            Step::Allocate { of, from, count } => {
                write!(f, "object {of}: fallocate {from}..{}", from + count)
            }
            Step::Map { who, at, count, what } => {
                write!(f, "process {who}: mmap {at}..{}", at + count)?;
                match what.of {
                    None => f.write_str(" of its own")?,
                    Some(of) if what.shared => {
                        write!(f, " of object {of} from {}, shared", what.first)?;
                    }
                    Some(of) => write!(f, " of object {of} from {}, private", what.first)?,
                }
                f.write_str(if what.noreserve { ", MAP_NORESERVE" } else { "" })?;
                f.write_str(if what.writable { "" } else { ", PROT_READ" })
            }
            Step::Unmap { who, at, count } => {
                write!(f, "process {who}: munmap {at}..{}", at + count)
            }
            Step::Load { who, at } => write!(f, "process {who}: load {at}"),
            Step::Store { who, at, value } => write!(f, "process {who}: store {value} to {at}"),
            Step::Drop { who, at, count } => {
                write!(f, "process {who}: MADV_DONTNEED {at}..{}", at + count)
            }
            Step::Fork { who, child } => write!(f, "process {who}: fork, process {child}"),
            Step::Exit { who } => write!(f, "process {who}: exit"),
            Step::Pool { pages } => write!(f, "nr_hugepages {pages}"),
            Step::Overcommit { pages } => write!(f, "nr_overcommit_hugepages {pages}"),
        }
    }
}

/// The pool of this host, ready for sequences.
#[derive(Debug)]
pub struct PoolOracle {
    program: Program,
    hold: Hold,
}

/// How a sequence ended.
#[derive(Debug)]
pub(crate) enum End {
    Agreed,
    Reason(&'static str),
    Differs(Difference),
}

/// What came of many sequences.
#[derive(Debug, Default)]
pub struct Compared {
    /// How many there were.
    pub sequences: u64,
    /// Steps taken by both sides.
    pub steps: u64,
    /// Steps that were refused or ended with a signal, on both sides.
    pub refused: u64,
    /// How many sequences ended by a difference with each written reason.
    pub reasons: BTreeMap<&'static str, u64>,
    /// The first that differs: its seed, its steps and where.
    pub found: Option<(u64, Vec<Step>, Difference)>,
}

impl PoolOracle {
    /// Takes the pool of this host. The error says why it cannot be had.
    pub fn new() -> io::Result<PoolOracle> {
        Ok(PoolOracle { program: Program::new()?, hold: Hold::take()? })
    }

    /// Has steps taken by both sides, until they differ.
    pub(crate) fn run(&self, steps: &[Step], compared: &mut Compared) -> io::Result<End> {
        self.hold.set(POOL, SURPLUS)?;
        let mut host = Host::start(&self.program)?;
        let at = Cell::new(0);
        let work = AssertUnwindSafe(|| {
            ours::with(|ours| compare(&mut host, ours, steps, (compared, &at)))
        });
        let wrong = |ours: String| {
            let host = "goes on".to_owned();
            Ok(End::Differs(Difference { at: at.get(), what: "the manager", host, ours }))
        };
        match panic::catch_unwind(work) {
            Ok(Ok(end)) => Ok(end),
            Ok(Err(Failed::Host(why))) => Err(why),
            Ok(Err(Failed::Ours(what))) => wrong(what),
            Err(panicked) => wrong(format!("a panic: {:?}", panicked.downcast_ref::<String>())),
        }
    }

    /// Takes the sequences of seeds from `seed` on, each of `length` steps, until there were so
    /// many. A difference ends it, made short.
    pub fn hunt(&self, steps: u64, seed: u64, length: usize) -> io::Result<Compared> {
        let mut compared = Compared::default();
        for seed in seed.. {
            if compared.steps >= steps {
                break;
            }
            let drawn = draw::steps(seed, length);
            compared.sequences += 1;
            let end = match self.run(&drawn, &mut compared)? {
                End::Differs(_) => match self.run(&drawn, &mut Compared::default())? {
                    End::Agreed => End::Reason(NOT_AGAIN),
                    again => again,
                },
                end => end,
            };
            match end {
                End::Agreed => {}
                End::Reason(why) => *compared.reasons.entry(why).or_default() += 1,
                End::Differs(difference) => {
                    let (steps, difference) = shrink(&drawn, difference, |steps| {
                        match self.run(steps, &mut Compared::default()).ok()? {
                            End::Differs(difference) => Some(difference),
                            End::Agreed | End::Reason(_) => None,
                        }
                    });
                    compared.found = Some((seed, steps, difference));
                    break;
                }
            }
        }
        Ok(compared)
    }
}

/// Which processes and objects there are, and which areas.
#[derive(Default)]
struct There {
    processes: [bool; PROCESSES],
    /// How many pages each object has room for.
    objects: [Option<u64>; OBJECTS],
    forks: usize,
    /// Of each object that was mapped privately: whether with `MAP_NORESERVE`.
    kinds: [Option<bool>; OBJECTS],
    /// By process and page of the window: the private area that has pages of its own there.
    private: [[Option<Private>; WINDOW as usize]; PROCESSES],
    areas: u64,
}

/// A private area, as who mapped it and all who were forked then have it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Private {
    number: u64,
    /// Who mapped it; nobody else has its reservations.
    owner: usize,
    of: Option<usize>,
}

impl There {
    /// Whether a step is one.
    fn has(&self, step: &Step) -> bool {
        match *step {
            Step::Create { of, .. } => self.objects[of].is_none(),
            Step::Close { of } => self.objects[of].is_some(),
            Step::Resize { of, pages } => {
                self.objects[of].is_some_and(|room| pages >= room || !self.is_lent_of(of))
            }
            Step::Punch { of, .. } => self.objects[of].is_some() && !self.is_lent_of(of),
            Step::Allocate { of, from, count } => {
                self.objects[of].is_some_and(|room| from + count <= room)
            }
            Step::Map { who, count, what, .. } => {
                // Linux reserves what is mapped to be read beyond the end of an object.
                let is_in = |room| what.writable || what.first + count <= room;
                let is_alike = |of: usize| {
                    let kind = self.kinds[of].filter(|_| !what.shared);
                    kind.is_none_or(|noreserve| noreserve == what.noreserve) // T5
                };
                let is_there = |of: usize| self.objects[of].is_some_and(is_in) && is_alike(of);
                self.processes[who] && what.of.is_none_or(is_there)
            }
            // A process has descriptors for so many children.
            Step::Fork { who, child } => {
                self.processes[who] && !self.processes[child] && self.forks + 1 < PROCESSES
            }
            Step::Exit { who } => who > 0 && self.processes[who] && !self.lends(who, 0..WINDOW),
            Step::Unmap { who, at, count } | Step::Drop { who, at, count } => {
                self.processes[who] && !self.lends(who, at..at + count)
            }
            Step::Load { who, .. } | Step::Store { who, .. } => self.processes[who],
            Step::Pool { .. } | Step::Overcommit { .. } => true,
        }
    }
    /// Whether another process has pages that `who` has reservations for (T4).
    fn lends(&self, who: usize, pages: Range<u64>) -> bool {
        pages.filter(|at| *at < WINDOW).any(|at| {
            let has = |other: usize| self.private[other][at as usize];
            let mine = has(who).filter(|area| area.owner == who);
            mine.is_some() && (0..PROCESSES).any(|other| other != who && has(other) == mine)
        })
    }
    fn is_lent_of(&self, of: usize) -> bool {
        (0..PROCESSES).any(|who| {
            (0..WINDOW).any(|at| {
                let area = self.private[who][at as usize];
                area.is_some_and(|area| area.of == Some(of)) && self.lends(who, at..at + 1)
            })
        })
    }
    /// Why both sides may answer otherwise.
    fn reason(&self, step: &Step, (host, ours): (Answer, Answer)) -> Option<&'static str> {
        let (Step::Load { who, at } | Step::Store { who, at, .. }) = *step else { return None };
        let area = self.private[who][at as usize]?;
        let is_refused = |answer| answer == Answer::Signal(libc::SIGBUS as u64);
        match (is_refused(host), is_refused(ours)) {
            _ if area.owner == who => None,
            (true, false) => Some(LOST),
            (false, true) => area.of.map(|_| ELSEWHERE),
            _ => None,
        }
    }
    /// Takes a step that went well.
    fn take(&mut self, step: &Step) {
        match *step {
            Step::Create { of, pages } | Step::Resize { of, pages } => {
                self.objects[of] = Some(pages);
            }
            Step::Close { of } => {
                (self.objects[of], self.kinds[of]) = (None, None);
                // Another object gets its number.
                let all = self.private.iter_mut().flatten().flatten();
                all.filter(|area| area.of == Some(of)).for_each(|area| area.of = None);
            }
            Step::Map { who, at, count, what } => {
                if let What { of: Some(of), first, writable: true, .. } = what {
                    // A file of a pool grows by being mapped to be written.
                    let room = &mut self.objects[of];
                    *room = room.map(|room| room.max(first + count));
                }
                if let (Some(of), false) = (what.of, what.shared) {
                    self.kinds[of] = Some(what.noreserve);
                }
                self.areas += 1;
                let area = Private { number: self.areas, owner: who, of: what.of };
                let is_owned = !what.shared && !what.noreserve;
                self.private[who][at as usize..(at + count) as usize]
                    .fill(is_owned.then_some(area));
            }
            Step::Unmap { who, at, count } => {
                self.private[who][at as usize..(at + count) as usize].fill(None);
            }
            Step::Fork { who, child } => {
                self.forks += 1;
                self.processes[child] = true;
                self.private[child] = self.private[who];
            }
            Step::Exit { who } => {
                self.processes[who] = false;
                self.private[who] = [None; WINDOW as usize];
            }
            _ => {}
        }
    }
}

/// The counts of the host, which lets go of files that an ended process had a little later.
fn settled<E>(counts: impl Fn() -> Result<Counts, E>, expected: Counts) -> Result<Counts, E> {
    for _ in 0..LOOKS {
        if counts()? == expected {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    counts()
}

/// Has both sides take steps until they differ.
fn compare(
    host: &mut impl Side,
    ours: &mut impl Side,
    steps: &[Step],
    (compared, reached): (&mut Compared, &Cell<usize>),
) -> Result<End, Failed> {
    let mut there = There { processes: [true, false, false], ..There::default() };
    for (at, step) in steps.iter().enumerate() {
        if !there.has(step) {
            continue;
        }
        reached.set(at);
        let answers = (host.step(step)?, ours.step(step)?);
        let expected = ours.counts()?;
        let counts = (settled(|| host.counts(), expected)?, expected);
        compared.steps += 1;
        compared.refused += u64::from(!matches!(answers.0, Answer::Done | Answer::Byte(_)));
        if let Some(why) = there.reason(step, answers) {
            return Ok(End::Reason(why));
        }
        let (what, host, ours) = match answers.0 == answers.1 {
            false => ("answers", answers.0.to_string(), answers.1.to_string()),
            true if counts.0 == counts.1 => {
                if answers.0 == Answer::Done {
                    there.take(step);
                }
                continue;
            }
            true => ("counts", counts.0.to_string(), counts.1.to_string()),
        };
        return Ok(End::Differs(Difference { at, what, host, ours }));
    }
    Ok(End::Agreed)
}
