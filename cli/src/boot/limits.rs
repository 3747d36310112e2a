//! What machine QEMU and the kernel can be.

use foliant_units::Bytes;
use std::ops::RangeInclusive;

/// CPUs that QEMU's emulation can start: with more the number of an interrupt controller is more
/// than a byte.
const CPUS: RangeInclusive<usize> = 1..=255;
/// Memory, from what the kernel and its own file take to where its direct map ends.
const MEMORY: RangeInclusive<Bytes> = Bytes::new(8 << 20)..=Bytes::new(512 << 30);

/// Whether the guest can have so many CPUs.
pub(crate) fn is_cpus(count: usize) -> bool {
    CPUS.contains(&count)
}
/// How many it can have, in words.
pub(crate) fn cpus() -> String {
    format!("{} to {}", CPUS.start(), CPUS.end())
}
/// Whether the guest can have so much memory: QEMU is told in MiB.
pub(crate) fn is_memory(bytes: Bytes) -> bool {
    MEMORY.contains(&bytes) && bytes.get().is_multiple_of(1 << 20)
}
/// How much it can have, in words.
pub(crate) fn memory() -> String {
    format!("{} to {}, in whole MiB", MEMORY.start(), MEMORY.end())
}
