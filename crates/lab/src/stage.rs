//! Where a scenario runs: what the lab needs besides a manager.

use crate::{Caches, Counted};
use alloc::string::String;
use alloc::vec::Vec;
use foliant::folio::CpuCount;
use foliant::space::{AreaLimit, SpaceId};
use foliant::table::Paging;
use foliant::{Access, Manager};
use foliant_machine::Machine;
use foliant_units::{Bytes, Cpu, Frame, Order, Va, VaRange};

/// Areas that a space of a stage may have: more than Linux allows, to see that their number costs
/// nothing.
pub const AREAS: AreaLimit = AreaLimit(1 << 20);

/// A machine with a manager on it, and programs that can be run there.
///
/// A scenario is run on CPU 0, and nothing else uses the manager meanwhile. Addresses from 64 GiB
/// on are the scenario's; what a program needs in a space besides (a page of code) is writable by
/// nobody, so that it shows in no count.
pub trait Stage<'m>: Sync {
    /// The machine that is counted.
    type Machine: Machine + 'm;
    /// Its page-table format.
    type Paging: Paging;

    /// What a report calls the machine.
    fn name(&self) -> &'static str;

    /// The manager.
    fn manager(&self) -> &Manager<'m, Counted<Self::Machine>, Self::Paging>;

    /// Whether the scenario goes on: asked between measured pieces of its work. Where it does not,
    /// it gives back what it has and ends with what this says.
    fn go_on(&self) -> Result<(), Stopped> {
        Ok(())
    }

    /// Runs `work` on CPUs 0 to `cpus - 1` at once; returns when all are done.
    fn together(&self, cpus: CpuCount, work: &(dyn Fn(Cpu) + Sync));

    /// Accesses one word per `stride` of `range`, lowest first, as a program in `space`, which the
    /// calling CPU runs. Faults are handed to the manager, and each access is tried again until it
    /// succeeds or is refused.
    fn touch(
        &self,
        space: SpaceId,
        range: VaRange,
        stride: Bytes,
        access: Access,
    ) -> Result<(), Stopped>;

    /// A counter that grows with the work of all CPUs: instructions, cycles, modelled time. In the
    /// unit of the counter that the machine was wrapped with.
    fn ticks(&self) -> u64;

    /// The names of the ways in which the machine itself can clear, if it tells them apart.
    fn primitives(&self) -> Vec<String> {
        Vec::new()
    }
    /// Clears a block that was lent, in the `nth` of these ways, `grain` bytes at a time.
    fn clear_with(&self, nth: usize, block: (Frame, Order), grain: Bytes) {
        let _ = (nth, block, grain);
    }
    /// The same counter, as far as it is about what CPU 0 did and waited for: how long its work
    /// took.
    fn elapsed(&self) -> u64;

    /// So many 2 MiB pages went through a step of a pool that no machine sees as such. Where ticks
    /// are modelled their price is added here; where they are counted they are in.
    fn pooled(&self, step: PoolStep, pages: u64) {
        let _ = (step, pages);
    }

    /// Translation caches that are watched beside a machine whose own are as large as it pleases.
    /// Silicon has real ones, which nobody needs to guess.
    fn caches(&self) -> Option<&'static Caches> {
        None
    }
    /// So many walks began, as those caches have it. Where ticks are modelled their price is added
    /// here.
    fn walked(&self, walks: u64) {
        let _ = walks;
    }
}

/// A step of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolStep {
    /// Into it.
    Fill,
    /// Out of it.
    Drain,
    /// Their descriptors folded, which were dense before.
    Fold,
}

/// Why a program did not come to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stopped {
    /// No memory for the page at this address.
    NoMemory(Va),
    /// The access to this address was refused.
    Refused(Va),
    /// Somebody wants no more of it.
    Interrupted,
}
