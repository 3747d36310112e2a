//! The ground that a scenario works on: one space that every CPU runs, and the manager's switches.
//!
//! **Invariants**
//! - R1. An anchor page holds the upper tables in place: they are there before the counting begins,
//!   and stay when the area beside it goes. So neither the order in which CPUs come nor what else
//!   the space holds shows in a count (L1).
//! - R2. Dropping the ground undoes all of it, also after a failure (L3).

use crate::{Counted, LabError, Stage, Stopped};
use core::sync::atomic::{AtomicU64, Ordering};
use foliant::fault::Orders;
use foliant::folio::CpuCount;
use foliant::manager::SpaceError;
use foliant::space::{Flags, MapRequest, Place, SpaceId};
use foliant::{Access, FlushGrain, Manager, Policy};
use foliant_machine::Cpus;
use foliant_units::{Bytes, Cpu, FRAME_BYTES, Order, Va, VaRange};

/// Where the anchor lies; the area of the scenario begins 2 MiB behind it.
const ANCHOR: Va = Va::new(64 << 30);
/// What the two may reach together: the stretch of one table of 2 MiB entries.
const REACH: Bytes = Bytes::SIZE_1G;
pub(crate) const PAGE: Bytes = Bytes::new(FRAME_BYTES);

/// See the module's text.
pub(crate) struct Ground<'s, 'm, S: Stage<'m>> {
    pub(crate) stage: &'s S,
    pub(crate) manager: &'s Manager<'m, Counted<S::Machine>, S::Paging>,
    pub(crate) space: SpaceId,
    pub(crate) area: VaRange,
    pub(crate) cpus: CpuCount,
    /// A fork of the space, while there is one.
    child: Option<SpaceId>,
    before: (Policy, FlushGrain),
}

/// The switches under which folios have this size alone.
pub(crate) fn only(size: Order) -> Policy {
    match size {
        Order::BASE => Policy::BASE_ONLY,
        size => Policy::always(Orders::of(size)),
    }
}

/// How many CPUs the stage has.
pub(crate) fn cpus<'m, S: Stage<'m>>(stage: &S) -> CpuCount {
    CpuCount(stage.manager().machine().count() as u16)
}

impl<'s, 'm, S: Stage<'m>> Ground<'s, 'm, S> {
    /// A space with an empty area of `bytes`, which is a multiple of 4096, run by every CPU under
    /// these switches.
    pub(crate) fn new(
        stage: &'s S,
        bytes: Bytes,
        policy: Policy,
        grain: FlushGrain,
    ) -> Result<Self, LabError> {
        Ground::of((stage, cpus(stage)), bytes, policy, grain)
    }
    /// The same, run by the first CPUs alone.
    pub(crate) fn of(
        (stage, cpus): (&'s S, CpuCount),
        bytes: Bytes,
        policy: Policy,
        grain: FlushGrain,
    ) -> Result<Self, LabError> {
        let most = Bytes::new(REACH.get() - Bytes::SIZE_2M.get());
        let start = ANCHOR.add(Bytes::SIZE_2M.get());
        let too_large = LabError::TooLarge { asked: bytes, most };
        let area = VaRange::sized(start, bytes).filter(|_| bytes <= most).ok_or(too_large)?;
        let manager = stage.manager();
        manager.describe_all()?;
        let before = (manager.policy(), manager.flush_grain());
        let space = manager.create(None)?;
        let ground = Ground { stage, manager, space, area, cpus, child: None, before };
        manager.set_policy(policy);
        manager.set_flush_grain(grain);
        ground.furnish()?;
        Ok(ground)
    }

    fn furnish(&self) -> Result<(), LabError> {
        let request = |start, bytes, flags| {
            let place = Place::NoReplace(start);
            MapRequest { place, bytes, flags, tag: 0 }
        };
        let manager = self.manager;
        let anchor = manager.map(self.space, &request(ANCHOR, PAGE, Flags::READ))?;
        manager
            .map(self.space, &request(self.area.start(), self.area.bytes(), Flags::READ_WRITE))?;
        let refused = AtomicU64::new(0);
        self.stage.together(self.cpus, &|_| {
            let went = manager.switch(Some(self.space));
            refused.fetch_or(went.is_err() as u64, Ordering::Relaxed);
        });
        if refused.into_inner() != 0 {
            return Err(SpaceError::NoSpace.into());
        }
        self.touch(anchor, Access::Read) // the zero page: a fork takes no right from it
    }

    /// Touches each page of a range on the calling CPU.
    pub(crate) fn touch(&self, range: VaRange, access: Access) -> Result<(), LabError> {
        Ok(self.stage.touch(self.space, range, PAGE, access)?)
    }

    /// Runs `work` on all CPUs at once; where one stopped, says why.
    pub(crate) fn together(
        &self,
        work: impl Fn(Cpu) -> Result<(), Stopped> + Sync,
    ) -> Result<(), LabError> {
        // One word for the first that stopped: the page's address, and in the lowest bits whether
        // memory ran out, or it was interrupted.
        let stopped = AtomicU64::new(0);
        self.stage.together(self.cpus, &|cpu| {
            let word = match work(cpu) {
                Ok(()) => return,
                Err(Stopped::Refused(va)) => va.align_down(PAGE).get() | 1,
                Err(Stopped::NoMemory(va)) => va.align_down(PAGE).get() | 2,
                Err(Stopped::Interrupted) => 3,
            };
            let _ = stopped.compare_exchange(0, word, Ordering::Relaxed, Ordering::Relaxed);
        });
        let word = stopped.into_inner();
        match word & 3 {
            0 => Ok(()),
            1 => Err(LabError::Refused(Va::new(word & !3))),
            2 => Err(LabError::NoMemory),
            _ => Err(LabError::Interrupted),
        }
    }

    /// Every CPU touches every page of the area.
    pub(crate) fn touch_everywhere(&self, access: Access) -> Result<(), LabError> {
        self.together(|_| self.stage.touch(self.space, self.area, PAGE, access))
    }

    /// Forks the space. The fork ends with [`end_fork`](Ground::end_fork) or with the ground.
    pub(crate) fn fork(&mut self) -> Result<(), LabError> {
        self.end_fork();
        self.child = Some(self.manager.fork(self.space)?);
        Ok(())
    }
    pub(crate) fn end_fork(&mut self) {
        if let Some(child) = self.child.take() {
            let ended = self.manager.end(child);
            assert!(ended.is_ok(), "no CPU ever ran the fork, and nobody else knows it: {ended:?}");
        }
    }
}

impl<'m, S: Stage<'m>> Drop for Ground<'_, 'm, S> {
    fn drop(&mut self) {
        let manager = self.manager;
        self.end_fork();
        self.stage.together(self.cpus, &|_| {
            let _ = manager.switch(None); // refuses nothing
        });
        let ended = manager.end(self.space);
        debug_assert!(ended.is_ok(), "every CPU has left the space: {ended:?}");
        manager.set_policy(self.before.0);
        manager.set_flush_grain(self.before.1);
    }
}
