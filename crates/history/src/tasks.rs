//! What each CPU is at work on, for bugs of one kind of work, and what such a bug has put off
//! meanwhile.

use foliant_machine::Invalidation;
use foliant_units::{Bytes, Cpu, CpuSet, Frame, Pa};
use std::collections::BTreeMap;

/// A kind of work of the manager's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Task {
    /// Work that is done when there is nothing else to do.
    Idle,
    /// One folio moves.
    Relocate,
    /// Blocks are emptied.
    Compact,
    /// Pages of a range become one folio.
    Collapse,
    /// A fault is handled.
    Fault,
    /// A space is forked.
    Fork,
    /// Pages of an object are dropped, or cut off.
    Cut,
    /// A range is unmapped.
    Unmap,
}

/// A flush that was asked for and not carried out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PutOff {
    pub(crate) what: Invalidation,
    /// The CPUs that were to be asked.
    pub(crate) cpus: CpuSet,
}

/// Memory that was copied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copied {
    pub(crate) from: Pa,
    pub(crate) to: Pa,
    pub(crate) bytes: Bytes,
}

impl Copied {
    /// Where the contents that are at `pa` now were before.
    pub(crate) fn before(&self, pa: Pa) -> Option<Pa> {
        let offset = pa.get().checked_sub(self.to.get())?;
        (offset < self.bytes.get()).then(|| self.from.add(offset))
    }
}

/// A task, and what a bug keeps of it.
#[derive(Debug)]
pub(crate) struct Job {
    task: Task,
    pub(crate) put_off: Vec<PutOff>,
    /// Copies that were put off.
    pub(crate) late: Vec<Copied>,
    pub(crate) copied: Option<Copied>,
    /// Words that were written wrong, and what they should say.
    pub(crate) wrong: Vec<(Pa, u64)>,
    /// The first table that the bug was asked about.
    pub(crate) first: Option<Frame>,
}

/// The tasks of all CPUs.
#[derive(Default, Debug)]
pub(crate) struct Jobs {
    jobs: BTreeMap<u16, Job>,
}

impl Jobs {
    pub(crate) fn begin(&mut self, cpu: Cpu, task: Task) {
        let (put_off, late, wrong) = Default::default();
        let job = Job { task, put_off, late, copied: None, wrong, first: None };
        self.jobs.insert(cpu.0, job);
    }
    pub(crate) fn end(&mut self, cpu: Cpu) {
        self.jobs.remove(&cpu.0);
    }
    /// What the CPU keeps, if it is at work on one of `tasks`.
    pub(crate) fn of(&mut self, cpu: Cpu, tasks: &[Task]) -> Option<&mut Job> {
        self.jobs.get_mut(&cpu.0).filter(|job| tasks.contains(&job.task))
    }
}
