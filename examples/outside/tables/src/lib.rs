//! A hypervisor that has memory of its own and takes nothing of Foliant but page tables: a guest's,
//! with the largest leaves that fit, and one flush for what is taken away.
#![no_std]

use foliant_table::claim::{Claim, Stale};
use foliant_table::machine::{Cpus, PhysMem, Scope, Tlb, Witness};
use foliant_table::units::{CpuSet, FrameRange, Va, VaRange};
use foliant_table::{Attrs, Half, Harvest, MapStop, Prune, Refused, Spare, Tables, X86_64};

/// What this hypervisor asks of its machine. No clock, no kernel addresses.
pub trait Host: PhysMem + Cpus + Tlb + Witness {}
impl<M: PhysMem + Cpus + Tlb + Witness> Host for M {}

/// A guest's memory.
pub struct Guest<'m, M> {
    machine: &'m M,
    tables: Tables<'m, M, X86_64<4>>,
    /// The CPUs that run the guest, or did.
    cpus: CpuSet,
}

/// Why memory was not given to a guest.
#[derive(Debug)]
pub enum NotGiven {
    /// The addresses or frames are none that tables have.
    Refused(Refused),
    /// There was no frame for a table, or something is mapped from here on.
    Stopped(Va, MapStop),
}

impl<'m, M: Host> Guest<'m, M> {
    /// A guest without memory.
    ///
    /// # Safety
    /// All frames that it is given are frames that it may reach.
    pub unsafe fn new(machine: &'m M, top: Claim, cpus: CpuSet) -> Guest<'m, M> {
        // SAFETY: the caller's promise.
        let tables = unsafe { Tables::create(machine, top, Half::User) };
        Guest { machine, tables, cpus }
    }
    /// The scope of its translations.
    pub fn scope(&self) -> Scope {
        Scope::Space(self.tables.root())
    }
    /// Gives it `frames` at the guest-physical address `at`.
    pub fn give(
        &self,
        at: Va,
        frames: FrameRange,
        lend: impl FnMut() -> Option<Claim>,
    ) -> Result<(), NotGiven> {
        let (mut spare, attrs) = (Spare::new(), Attrs::USER | Attrs::WRITE | Attrs::EXEC);
        let done = self.tables.map_frames(at, frames, attrs, &mut spare, lend);
        match done.map_err(NotGiven::Refused)? {
            done if done.why == MapStop::Done => Ok(()),
            done => Err(NotGiven::Stopped(done.upto, done.why)),
        }
    }
    /// Takes all of `range` away. When it returns, no CPU reaches the memory through the guest any
    /// more; `table` gets the tables that went.
    pub fn take(&self, range: VaRange, mut table: impl FnMut(Stale)) -> Result<(), Refused> {
        let (mut harvest, mut left) = (Harvest::new(), range);
        while !left.is_empty() {
            let swept = self.tables.unmap(left, Prune::All, &mut harvest)?;
            harvest.flush(self.machine, self.scope(), &self.cpus);
            core::iter::from_fn(|| harvest.pop_table()).for_each(&mut table);
            left = VaRange::new(swept.upto, range.end()).unwrap_or_default();
        }
        Ok(())
    }
}
