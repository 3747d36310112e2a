//! What can be switched while the manager runs.

use super::Vmap;
use crate::sync::Ordering;
use crate::table::Paging;
use foliant_machine::Machine;

/// Whether kernel memory may have large leaves at all (`nohugevmalloc`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HugeVmalloc {
    /// For requests that ask for them.
    Allowed,
    /// Never.
    Never,
}

/// Whether device memory may have large leaves (`nohugeiomap`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HugeIomap {
    /// Wherever they fit.
    Allowed,
    /// Never.
    Never,
}

/// What becomes of a size that is no multiple of the leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rest {
    /// Its end is mapped by smaller leaves: nothing is wasted.
    Split,
    /// It is rounded up to 2 MiB, as the reference does. This is there to compare with.
    Rounded,
}

/// When the translations that CPUs have cached of a range that was given back are ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PurgeMode {
    /// Together, some time later.
    Lazy,
    /// Each range for itself, before its frames are given back. This is there to find code that
    /// uses memory that it gave back.
    Eager,
}

/// The switches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Controls {
    /// Large leaves for memory.
    pub huge_vmalloc: HugeVmalloc,
    /// Large leaves for devices.
    pub huge_iomap: HugeIomap,
    /// Ends of sizes.
    pub rest: Rest,
    /// Flushes.
    pub purge: PurgeMode,
}

impl Controls {
    /// Large leaves, nothing rounded, lazily purged.
    pub const DEFAULT: Controls = Controls {
        huge_vmalloc: HugeVmalloc::Allowed,
        huge_iomap: HugeIomap::Allowed,
        rest: Rest::Split,
        purge: PurgeMode::Lazy,
    };

    pub(super) const fn word(self) -> u64 {
        self.huge_vmalloc as u64
            | (self.huge_iomap as u64) << 1
            | (self.rest as u64) << 2
            | (self.purge as u64) << 3
    }
    pub(super) const fn from_word(word: u64) -> Controls {
        Controls {
            huge_vmalloc: if word & 1 == 0 { HugeVmalloc::Allowed } else { HugeVmalloc::Never },
            huge_iomap: if word & 2 == 0 { HugeIomap::Allowed } else { HugeIomap::Never },
            rest: if word & 4 == 0 { Rest::Split } else { Rest::Rounded },
            purge: if word & 8 == 0 { PurgeMode::Lazy } else { PurgeMode::Eager },
        }
    }
}

impl Default for Controls {
    fn default() -> Controls {
        Controls::DEFAULT
    }
}

impl<M: Machine, P: Paging> Vmap<'_, '_, M, P> {
    /// What is switched on.
    pub fn controls(&self) -> Controls {
        Controls::from_word(self.state.controls.load(Ordering::Relaxed))
    }
    /// Sets the switches for calls from now on. Areas stay as they are.
    pub fn set_controls(&self, controls: Controls) {
        self.state.controls.store(controls.word(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_switch_has_a_bit() {
        for word in 0..16 {
            assert_eq!(Controls::from_word(word).word(), word);
        }
        assert_eq!(Controls::DEFAULT.word(), 0);
    }
}
