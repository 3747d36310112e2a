//! Physical memory as the contract sees it: counted, charged and told to the checkers.
#![allow(unsafe_code)]

use crate::Sim;
use crate::check::Event;
use crate::config::Clearing;
use crate::cost::{Work, clear_work};
use core::ptr::NonNull;
use foliant_machine::{Caching, PhysMem};
use foliant_units::{Bytes, Pa};

impl Sim {
    fn wrote(&self, pa: Pa, write: impl FnOnce() -> Option<(u64, u64)>) {
        let (cpu, state) = self.enter();
        let written = self.act(cpu, || {
            let written = write();
            (written.is_some(), written.map(|(old, new)| Event::Stored { pa, old, new }))
        });
        if written {
            state.counters.entry_writes.one();
            state.charge(self.prices.picos(Work::EntryWrite, 1));
        }
    }
}

// SAFETY: memory::I2: pointers name a mapping that lives as long as the machine; ranges of one
// machine do not overlap (Config::checked), so distinct physical ranges do not alias.
unsafe impl PhysMem for Sim {
    unsafe fn reach(&self, pa: Pa, bytes: Bytes) -> NonNull<u8> {
        let (cpu, _) = self.enter();
        self.tell(cpu, || Event::Reached { pa, bytes: bytes.get() });
        self.memory.reach(pa, bytes.get())
    }

    unsafe fn load(&self, pa: Pa) -> u64 {
        let (cpu, _) = self.enter();
        if self.free.has(pa.frame()) {
            self.tell(cpu, || Event::Loaded { pa });
        }
        match self.memory.load(pa) {
            Some(word) => word,
            None => panic!("load at {pa:?}: not memory of this machine"),
        }
    }

    /// A look at some bytes costs as a walk; one that found zeros alone in more of them read them
    /// as fast as large extents are cleared.
    unsafe fn is_zero(&self, pa: Pa, bytes: Bytes) -> bool {
        let (cpu, state) = self.enter();
        self.tell(cpu, || Event::Looked { pa, bytes: bytes.get() });
        let is_zero = self.memory.is_zero(pa, bytes.get());
        state.charge(self.prices.picos(Work::Walk, 1));
        if is_zero {
            state.charge(self.prices.picos(Work::ClearByteLarge, bytes.get()));
        }
        is_zero
    }

    unsafe fn store(&self, pa: Pa, word: u64) {
        self.wrote(pa, || match self.memory.swap(pa, word) {
            Some(old) => Some((old, word)),
            None => panic!("store at {pa:?}: not memory of this machine"),
        });
    }

    unsafe fn compare_exchange(&self, pa: Pa, old: u64, new: u64) -> Result<u64, u64> {
        let mut result = Err(0);
        self.wrote(pa, || match self.memory.compare_exchange(pa, old, new) {
            Some(done) => {
                result = done;
                done.ok().map(|old| (old, new))
            }
            None => panic!("compare_exchange at {pa:?}: not memory of this machine"),
        });
        result
    }

    unsafe fn clear(&self, pa: Pa, bytes: Bytes, caching: Caching) {
        let (cpu, state) = self.enter();
        let bytes = bytes.get();
        state.counters.clears.one();
        state.counters.cleared_bytes.add(bytes);
        state.charge(self.prices.picos(clear_work(bytes, caching), bytes));
        self.act(cpu, || {
            match self.config.clearing {
                Clearing::Lazy => self.memory.clear(pa, bytes),
                Clearing::Real => self.memory.clear_really(pa, bytes),
            }
            ((), Some(Event::Cleared { pa, bytes }))
        });
    }

    unsafe fn copy(&self, from: Pa, to: Pa, bytes: Bytes) {
        let (cpu, state) = self.enter();
        let bytes = bytes.get();
        state.counters.copies.one();
        state.counters.copied_bytes.add(bytes);
        state.charge(self.prices.picos(Work::CopyByte, bytes));
        self.act(cpu, || {
            self.memory.copy(from, to, bytes);
            ((), Some(Event::Copied { from, to, bytes }))
        });
    }

    unsafe fn write(&self, pa: Pa, contents: &[u8]) {
        let (cpu, state) = self.enter();
        let bytes = contents.len() as u64;
        state.counters.copies.one();
        state.counters.copied_bytes.add(bytes);
        state.charge(self.prices.picos(Work::CopyByte, bytes));
        self.act(cpu, || {
            self.memory.write(pa, contents);
            ((), Some(Event::Written { pa, bytes }))
        });
    }
}
