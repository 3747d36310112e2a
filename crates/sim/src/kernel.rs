//! Kernel virtual addresses: through the calling CPU's caches, like everything else.
#![allow(unsafe_code)]

use crate::access::Access;
use crate::cost::Work;
use crate::format::Half;
use crate::{Sim, check::Event};
use foliant_machine::{KernelFault, KernelVa};
use foliant_units::{Bytes, FRAME_BYTES, Pa, Va};

impl Sim {
    fn kernel<R>(
        &self,
        va: Va,
        access: Access,
        go: impl FnOnce(Pa) -> R,
    ) -> Result<R, KernelFault> {
        let (cpu, state) = self.enter();
        let done = if self.config.format.half(va.get()) == Some(Half::Kernel) {
            let mut core = state.core.lock();
            self.translate((cpu, state), &mut core, Va::new(va.get() & !7), access, false).map(go)
        } else {
            Err(false)
        };
        done.map_err(|present| {
            self.tell(cpu, || Event::KernelFaulted { va, present });
            KernelFault { va }
        })
    }

    /// Translates `va`, of either half, for an access of the kernel, without the access.
    pub fn kernel_touch(&self, va: Va, access: Access) -> Result<(), KernelFault> {
        let (cpu, state) = self.enter();
        let mut core = state.core.lock();
        let done = self.translate((cpu, state), &mut core, va, access, false);
        done.map(drop).map_err(|_| KernelFault { va })
    }

    fn wrote_kernel(&self, words: u64) {
        self.here().1.charge(self.prices.picos(Work::KernelWrite, words));
    }

    /// Makes the writes of a fill that lie in one page, with one translation. There is more than
    /// one only where CPUs are threads and no checker watches, so that nothing shows the
    /// difference.
    fn fill_page(&self, va: Va, stride: Bytes, count: u64, word: u64) -> Result<(), KernelFault> {
        self.kernel(va, Access::Write, |pa| self.memory.fill(pa, stride.get(), count, word))?;
        self.wrote_kernel(count);
        Ok(())
    }
}

// SAFETY: an access goes where the walker or a cached translation of the calling CPU says, and
// nowhere else; physical addresses that are not memory read as all ones and swallow stores.
unsafe impl KernelVa for Sim {
    unsafe fn kernel_load(&self, va: Va) -> Result<u64, KernelFault> {
        self.kernel(va, Access::Read, |pa| self.memory.load(pa).unwrap_or(u64::MAX))
    }

    unsafe fn kernel_store(&self, va: Va, word: u64) -> Result<(), KernelFault> {
        self.kernel(va, Access::Write, |pa| self.memory.store(pa, word).unwrap_or(()))?;
        self.wrote_kernel(1);
        Ok(())
    }

    unsafe fn kernel_compare_exchange(
        &self,
        va: Va,
        old: u64,
        new: u64,
    ) -> Result<Result<u64, u64>, KernelFault> {
        let done = self.kernel(va, Access::Write, |pa| {
            self.memory.compare_exchange(pa, old, new).unwrap_or(Err(u64::MAX))
        })?;
        self.wrote_kernel(done.is_ok().into());
        Ok(done)
    }

    unsafe fn kernel_fill(
        &self,
        va: Va,
        stride: Bytes,
        count: u64,
        word: u64,
    ) -> Result<(), KernelFault> {
        let watched = self.baton.is_some() || self.watch.is_some();
        let (stride_bytes, mut done) = (stride.get(), 0);
        while done < count {
            let at = va.add(done * stride_bytes);
            let inside = FRAME_BYTES - (at.get() & (FRAME_BYTES - 1));
            let writes = match watched || stride_bytes == 0 {
                true => 1,
                false => inside.div_ceil(stride_bytes).min(count - done),
            };
            self.fill_page(at, stride, writes, word)?;
            done += writes;
        }
        Ok(())
    }
}
