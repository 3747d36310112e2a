//! The oracle: random memory calls, carried out by Linux and by the crate `foliant-linux`.
//!
//! Linux is at hand, it is the machine that runs the tests, so what it does needs not be
//! remembered: it can be asked. A sequence of calls is carried out twice, by a process of this host
//! through the real calls, and by [`Process`](foliant_linux::Process) on the simulated machine.
//!
//! ```text
//!   seed ─▶ calls ─┬─▶ a child of this process: real calls ──┐
//!                  │                                         ├─▶ answers, areas, pages: equal?
//!                  └─▶ Process on Manager on Sim ────────────┘      └─ no: shrunk, printed as a C program
//! ```
//!
//! The simulated space has the same areas at the same addresses as the child has at its beginning,
//! so addresses are compared as they are, and so is where new areas go.
//!
//! **Invariants**
//! - L1. A sequence depends on its seed alone; addresses in it are counted from what the process
//!   has.
//! - L2. A difference is a finding, or it has a [`Reason`].
//!
//! **Not here**: what Linux should do. Other processors than x86-64, and Linux before 6.17: a move
//! of several areas is another there.
//!
//! All processes of a sequence have files in memory as descriptors, so what one writes, cuts or
//! punches the others find. Segments of System V they make in a namespace of their own; where this
//! process may not have one, calls about segments are left out. The first process answers faults
//! of its own memory; requests about what maps files are left out.
//!
//! **Which differences are not seen.** Linux maps pages of a file around one that is read; as long
//! as the manager does not, more may be there on Linux's side. Of a page three words are looked at,
//! and all of its bytes where a call reads them. How full the host's memory is, and what khugepaged
//! does meanwhile; both sides have the same switches of folio sizes, and are asked for contents and
//! presence, not for sizes.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod call;
mod child;
mod draw;
#[cfg(test)]
mod files;
mod host;
mod likeness;
mod machine;
mod pool;
mod program;
mod reasons;
mod run;
mod shrink;
mod side;
mod turn;
mod userfault;

#[cfg(test)]
mod tests;

pub use call::{Answer, Arg, Base, Bases, Call, Name};
pub use draw::sequence;
pub use machine::Planted;
pub use pool::{Compared as PoolCompared, PoolOracle, Step, What, steps};
pub use program::program;
pub use reasons::Reason;
pub use run::{Compared, Difference, End};

use child::Program;
use machine::Likeness;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use turn::Turn;

/// Both sides, ready for sequences.
#[derive(Debug)]
pub struct Oracle {
    program: Program,
    like: Likeness,
}

impl Oracle {
    /// Looks at this host. The error says why it cannot be asked.
    pub fn new() -> io::Result<Oracle> {
        Ok(Oracle { program: Program::new()?, like: likeness::of_host()? })
    }
    /// The same with a mistake in the crate's side.
    pub fn planted(planted: Planted) -> io::Result<Oracle> {
        let mut oracle = Oracle::new()?;
        oracle.like.planted = planted;
        Ok(oracle)
    }

    /// Carries calls out on both sides. A difference that is not there the second time has the
    /// reason [`Reason::NotAgain`].
    pub fn run(&self, calls: &[Call]) -> io::Result<(Compared, End)> {
        let (compared, end) = run::run(&self.program, &self.like, calls)?;
        if !matches!(end, End::Differs(_)) {
            return Ok((compared, end));
        }
        let (_, again) = run::run(&self.program, &self.like, calls)?;
        let is_again = matches!(again, End::Differs(_));
        Ok((compared, if is_again { again } else { End::Reason(Reason::NotAgain) }))
    }

    /// The shortest sequence that was found to differ like this one: in the same.
    pub fn shrink(&self, calls: &[Call], difference: Difference) -> (Vec<Call>, Difference) {
        let what = difference.what;
        shrink::shrink(calls, difference, |calls| {
            match run::run(&self.program, &self.like, calls).ok()? {
                (_, End::Differs(difference)) => Some(difference).filter(|it| it.what == what),
                _ => None,
            }
        })
    }

    /// Carries out the sequences of seeds from `seed` on, each of `length` calls, until there were
    /// so many, on all CPUs. A difference ends it, shrunk.
    pub fn hunt(&self, calls: u64, seed: u64, length: usize) -> io::Result<Hunted> {
        let _turn = Turn::shared()?;
        let next = AtomicU64::new(seed);
        let hunted = Mutex::new(Hunted::default());
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let lock = || hunted.lock().unwrap_or_else(PoisonError::into_inner);
        let work = || -> io::Result<()> {
            loop {
                if lock().is_over(calls) {
                    return Ok(());
                }
                let seed = next.fetch_add(1, Ordering::Relaxed);
                let mut drawn = sequence(seed, length);
                if !self.program.has_segments {
                    drawn.retain(|call| !call.name.is_of_segments());
                }
                if !self.like.has_one_node {
                    drawn.retain(|call| !call.name.is_of_policies());
                }
                if !self.program.has_userfaults {
                    drawn.retain(|call| call.name != Name::Userfault);
                }
                let ran = self.run(&drawn);
                let (compared, end) = ran.map_err(|why| {
                    io::Error::new(why.kind(), format!("the sequence of seed {seed}: {why}"))
                })?;
                lock().note(seed, &compared, end, |difference| self.shrink(&drawn, difference));
            }
        };
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            all.into_iter().try_for_each(|one| {
                one.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
            })
        })?;
        Ok(hunted.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What came of many sequences.
#[derive(Debug, Default)]
pub struct Hunted {
    /// How many there were.
    pub sequences: u64,
    /// What was compared.
    pub compared: Compared,
    /// How many of them ended by each reason.
    pub reasons: BTreeMap<Reason, u64>,
    /// The first that differs: its seed, its calls and where.
    pub found: Option<(u64, Vec<Call>, Difference)>,
}

impl Hunted {
    fn is_over(&self, calls: u64) -> bool {
        self.compared.calls >= calls || self.found.is_some()
    }
    fn note(
        &mut self,
        seed: u64,
        compared: &Compared,
        end: End,
        shrink: impl FnOnce(Difference) -> (Vec<Call>, Difference),
    ) {
        self.sequences += 1;
        self.compared.add(compared);
        match end {
            End::Agreed => {}
            End::Reason(reason) => *self.reasons.entry(reason).or_default() += 1,
            End::Differs(difference) if self.found.is_none() => {
                let (calls, difference) = shrink(difference);
                self.found = Some((seed, calls, difference));
            }
            End::Differs(_) => {}
        }
    }
}
