//! The experiments of the published documents, as a program does them.
//!
//! ```text
//!   published pool=256 split=64 …   in turn, each in a process of its own: experiment NAME AMOUNT
//!     pool       pages of 2 MiB come into the pool and go, folded and not
//!     touch      memory is written for the first time, by 4 KiB, 2 MiB and 1 GiB
//!     split      folios of 2 MiB become single pages, their entries 512
//!     fragment   faults of one thread and of several, where no large block is free
//! ```
//!
//! Each thing that is counted has a row's name, and is counted in two settings:
//!
//! ```text
//!   did row=pool-grow at=before operations=64 instructions=120 ticks=123 faults=0 folios=0 …
//!   cannot touch-1g /sys/…/nr_hugepages says 0 where 1 pages are asked for
//! ```
//!
//! | word | what it is |
//! |---|---|
//! | `operations` | of what the row is about |
//! | `instructions` | of the thread that does it: of its time on a CPU, a nanosecond each; of all CPUs where several threads do it |
//! | `ticks` | from before to behind: under `-icount` instructions of all CPUs, and the time that all of them wait |
//! | `faults`, `folios` | faults, and folios of 2 MiB that they made |
//! | `shootdowns`, `calls`, `wakes`, `timer` | interrupts of all CPUs, by what they were for |
//!
//! **Invariants**
//! - X1. Both kernels are asked for the same by the same calls: an experiment does not know where
//!   it runs.
//! - X2. What could not be done whole is not told as done: the row says why.
//!
//! **Not here**: what was published, and what is made of the lines (`foliant compare`).

mod area;
mod fragment;
mod pool;
mod split;
mod touch;

use crate::counts::{Interrupts, ticks};
use crate::switches;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::time::ClockId;
use std::error::Error;
use std::process::Command;
use std::{fmt, fs};

pub(crate) type Done<T = ()> = Result<T, Box<dyn Error>>;

/// Bytes of a page, and of a large one.
const BASE: usize = 4096;
const LARGE: usize = 2 << 20;

/// An experiment, and how much of it.
pub(crate) struct Experiment {
    name: String,
    amount: u64,
}

impl Experiment {
    pub(crate) fn of(name: &str, amount: &str) -> Done<Experiment> {
        let amount = amount.parse().map_err(|_| format!("{name} takes a number, not {amount}"))?;
        Ok(Experiment { name: name.to_owned(), amount })
    }

    /// Has `this` program carry it out in a process of its own: memory that it breaks off with is
    /// given back.
    pub(crate) fn start(&self, this: &str) -> Done {
        let mut command = Command::new(this);
        let status = command.args(["experiment", &self.name, &self.amount.to_string()]).status()?;
        if !status.success() {
            println!("cannot {} it ended with {status}", self.name);
        }
        Ok(())
    }

    pub(crate) fn run(&self) -> Done {
        let amount = usize::try_from(self.amount)?;
        let done = match self.name.as_str() {
            "pool" => pool::run(self.amount),
            "touch" => touch::run(amount),
            "split" => split::run(amount),
            "fragment" => fragment::run(amount),
            other => Err(format!("there is no experiment {other}").into()),
        };
        told(&self.name, done);
        Ok(())
    }
}

/// Says why a row, or all of an experiment that are left, cannot be had.
fn told(name: &str, done: Done) {
    if let Err(why) = done {
        println!("cannot {name} {why}");
    }
}

/// Which of a row's two settings.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Before,
    After,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == At::Before { "before" } else { "after" })
    }
}

/// Folios of 2 MiB that faults made since the start.
fn large() -> Done<u64> {
    let all = switches::made()?;
    Ok(all.into_iter().find(|(size, _)| *size == LARGE as u64).map_or(0, |(_, made)| made))
}

/// Who does what is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// The caller: what it waits for is not counted, as grace periods of the kernel's.
    Caller,
    /// Threads that run side by side, of which the clock counts all.
    Threads,
}

/// Counts what `work` takes, which says how many operations it was.
fn counted(row: &str, at: At, by: By, work: impl FnOnce() -> Done<u64>) -> Done {
    let faults = || getrusage(UsageWho::RUSAGE_SELF).map(|usage| usage.minor_page_faults());
    let own = || ClockId::CLOCK_THREAD_CPUTIME_ID.now().map(|time| time.num_nanoseconds());
    let (folios, faults_before, interrupts) = (large()?, faults()?, Interrupts::now());
    let (own_before, start) = (own()?, ticks());
    let operations = work()?;
    let (ticks, own) = (ticks() - start, own()? - own_before);
    let interrupts = Interrupts::now().since(interrupts);
    let (folios, faults) = (large()? - folios, faults()? - faults_before);
    let instructions = if by == By::Threads { ticks } else { own.unsigned_abs() };
    let Interrupts { shootdowns, calls, wakes, timer } = interrupts;
    println!(
        "did row={row} at={at} operations={operations} instructions={instructions} \
         ticks={ticks} faults={faults} folios={folios} shootdowns={shootdowns} calls={calls} \
         wakes={wakes} timer={timer}"
    );
    Ok(())
}

/// Writes a word to a file of the kernel's.
fn put(file: &str, word: &str) -> Done {
    fs::write(file, word).map_err(|why| format!("{file} takes no {word}: {why}").into())
}
/// The number that stands in a file of the kernel's.
fn number(file: &str) -> Done<u64> {
    let text = fs::read_to_string(file).map_err(|why| format!("{file}: {why}"))?;
    text.trim().parse().map_err(|_| format!("{file} says {}", text.trim()).into())
}

/// Has a pool hold so many pages, by its file.
fn resize(file: &str, pages: u64) -> Done {
    put(file, &pages.to_string())?;
    match number(file)? {
        there if there == pages => Ok(()),
        there => Err(format!("{file} says {there} where {pages} pages are asked for").into()),
    }
}
