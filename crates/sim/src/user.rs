//! Accesses of user programs: loads, stores and touches through the calling CPU's caches.

use crate::Sim;
use crate::access::{Access, PageFault};
use crate::cache::Cached;
use crate::check::Event;
use crate::cost::Work;
use crate::cpu::{Core, CpuState};
use crate::walk::{Why, allowed};
use foliant_machine::Faults;
use foliant_units::{Cpu, Pa, Va};

/// An access of `width` bytes, 1, 2, 4 or 8, inside one aligned word.
fn lane(va: Va, width: u64) -> (u64, u32, u64) {
    let width = width.clamp(1, 8).next_power_of_two();
    let at = va.get() & !(width - 1);
    let mask = if width == 8 { u64::MAX } else { (1 << (8 * width)) - 1 };
    (at, (at & 7) as u32 * 8, mask)
}

impl Sim {
    /// Loads `width` bytes (1, 2, 4 or 8) as a user of the calling CPU's root; `va` is rounded down
    /// to a multiple of the width. What is mapped but is not memory reads as all ones.
    pub fn user_load(&self, va: Va, width: u64) -> Result<u64, PageFault> {
        let (at, shift, mask) = lane(va, width);
        let load = |pa: Pa| self.memory.load(Pa::new(pa.get() & !7)).unwrap_or(u64::MAX);
        self.user(Va::new(at), Access::Read, |pa| load(pa) >> shift & mask)
    }

    /// Stores the low `width` bytes of `value`, otherwise like [`user_load`](Sim::user_load).
    pub fn user_store(&self, va: Va, width: u64, value: u64) -> Result<(), PageFault> {
        let (at, shift, mask) = lane(va, width);
        self.user(Va::new(at), Access::Write, |pa| {
            let pa = Pa::new(pa.get() & !7);
            while let Some(old) = self.memory.load(pa) {
                let new = old & !(mask << shift) | (value & mask) << shift;
                if matches!(self.memory.compare_exchange(pa, old, new), None | Some(Ok(_))) {
                    break;
                }
            }
        })
    }

    /// Translates `va` for `access` and sets the bits that the access would set, without the
    /// access.
    pub fn user_touch(&self, va: Va, access: Access) -> Result<(), PageFault> {
        self.user(va, access, |_| ())
    }

    /// Touches `va`, and where the access writes leaves something in its page, if only zeros were
    /// there.
    pub fn user_use(&self, va: Va, access: Access) -> Result<(), PageFault> {
        self.user(va, access, |pa| {
            if access == Access::Write {
                self.memory.mark(pa.frame().pa());
            }
        })
    }

    fn user<R>(&self, va: Va, access: Access, go: impl FnOnce(Pa) -> R) -> Result<R, PageFault> {
        let (cpu, state) = self.enter();
        let done = {
            let mut core = state.core.lock();
            self.translate((cpu, state), &mut core, va, access, true).map(go)
        };
        done.map_err(|present| {
            state.counters.faults.one();
            state.charge(self.prices.picos(Work::Fault, 1));
            let fault = PageFault { va, access, present };
            self.tell(cpu, || Event::Faulted { fault });
            fault
        })
    }

    /// What a fault does to the translation that it came by.
    fn end_faulted(&self, cpu: Cpu, core: &mut Core, va: Va) {
        if self.config.rules.faults == Faults::EndTranslation {
            let mut dropped = |e: &Cached| self.tell(cpu, || Event::Dropped { entry: *e });
            core.caches.end(va.get(), &mut dropped);
        }
    }

    /// The physical address that `va` means to the CPU now. The core lock is held until the access
    /// is done (S2). The error says whether a translation was there.
    pub(crate) fn translate(
        &self,
        at: (Cpu, &CpuState),
        core: &mut Core,
        va: Va,
        access: Access,
        user: bool,
    ) -> Result<Pa, bool> {
        let (cpu, state) = at;
        let why = Why::Needed { access, user };
        let hit = match core.caches.page(va.get()) {
            Some(entry) => {
                let counters = &state.counters;
                [&counters.hits_base, &counters.hits_2m, &counters.hits_1g]
                    [usize::from(entry.level.min(2))]
                .one();
                if !allowed(entry, why) {
                    self.end_faulted(cpu, core, va);
                    return Err(true);
                }
                if access == Access::Write && !entry.dirty {
                    self.mark_dirty(cpu, entry);
                }
                Some(*entry)
            }
            None => None,
        };
        let entry = match hit {
            Some(entry) => entry,
            None => {
                state.counters.misses.one();
                let entry = self.walk(at, core, va.get(), why)?;
                if self.baton.is_some() {
                    self.speculate(at, core, va.get());
                }
                entry
            }
        };
        let pa = entry.base.add(va.get() & (entry.bytes() - 1));
        self.tell(cpu, || Event::Used { entry, pa, access, user });
        Ok(pa)
    }
}
