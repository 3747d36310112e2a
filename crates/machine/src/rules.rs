//! What a machine's translation hardware promises and forbids.

/// How a live page-table word may be changed into another live one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replace {
    /// A store is enough; the old translation may be used until flushed (x86-64, riscv64).
    InPlace,
    /// Output address, size and permissions of a live entry may not change: invalidate the word,
    /// flush, then write the new one (aarch64 without relaxation).
    BreakBeforeMake,
}

/// What a clear accessed bit says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accessed {
    /// A walker sets the bit before it caches the translation: a word taken out with the bit clear
    /// is in no TLB and needs no shootdown (x86-64).
    SetBeforeCached,
    /// The bit says nothing about TLBs.
    Independent,
}

/// What becomes of the translation that an access faulted by, because it did not grant it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Faults {
    /// It is ended on the CPU that faulted, so the access is tried again on what the tables say
    /// then (x86-64: Intel SDM 3A, 4.10.4.1).
    EndTranslation,
    /// It may be used again: a CPU that was granted more has to end it itself.
    KeepTranslation,
}

/// The rules of one machine, constant for its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MmuRules {
    /// How live words are replaced.
    pub replace: Replace,
    /// What a clear accessed bit says.
    pub accessed: Accessed,
    /// What a fault ends.
    pub faults: Faults,
    /// Up to how many entries single invalidations are cheaper than one full flush. Entries are
    /// counted, not 4 KiB pages: a 2 MiB leaf is one.
    pub ceiling_entries: u32,
}
