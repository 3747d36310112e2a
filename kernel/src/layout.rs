//! Where things are in the kernel half of the address space.
//!
//! ```text
//!   ffff_8000_0000_0000   the manager's descriptor array (its own choice: the start of the half)
//!   ffff_8080_0000_0000   kernel ranges: stacks with guard pages, blocks of CPUs           1 TiB
//!   ffff_c000_0000_0000   direct map: all memory, by 1 GiB leaves                        512 GiB
//!   ffff_e000_0000_0000   window: devices, user programs                                 512 GiB
//!   ffff_ffff_8000_0000   the kernel's image: text, constants, data, each with its rights  1 GiB
//! ```
//!
//! **Invariants**
//! - L1. Each region begins at a top-level word of its own, made before the manager repeats them in
//!   its spaces.

use foliant_units::{Bytes, Pa, Va, VaRange};

/// Where the manager puts kernel ranges.
pub(crate) const RANGES: u64 = 0xffff_8080_0000_0000;
/// Addresses for them.
pub(crate) const RANGES_BYTES: Bytes = Bytes::new(1 << 40);
/// Where physical address 0 appears.
pub(crate) const DIRECT: u64 = 0xffff_c000_0000_0000;
/// Memory that the direct map reaches.
pub(crate) const DIRECT_MAX: u64 = 512 << 30;
/// The first address of the window.
pub(crate) const WINDOW: u64 = 0xffff_e000_0000_0000;
/// Where physical address 0 would appear in the image's region.
pub(crate) const IMAGE: u64 = 0xffff_ffff_8000_0000;

/// Memory below this is the firmware's and the trampoline's.
pub(crate) const LOW_END: u64 = 1 << 20;

/// A stack.
pub(crate) const STACK: Bytes = Bytes::new(64 << 10);
/// The APIC's registers, where they are memory.
pub(crate) const APIC: Va = Va::new(WINDOW + (1 << 30));
/// The I/O APIC's registers, in the same tables.
pub(crate) const IO_APIC: Va = APIC.add(2 << 12);
/// The user programs: readable and executable from ring 3.
pub(crate) const PROGRAMS: Va = Va::new(WINDOW + (2 << 30));
/// What the law suite maps and unmaps.
pub(crate) const LAWS: Va = Va::new(WINDOW + (3 << 30));

/// The direct map's address of `pa`.
pub(crate) const fn direct(pa: Pa) -> *mut u8 {
    (DIRECT + pa.get()) as *mut u8
}

/// `bytes` from `start` on.
pub(crate) fn range(start: Va, bytes: Bytes) -> VaRange {
    VaRange::sized(start, bytes).expect("a constant range of the kernel half")
}
