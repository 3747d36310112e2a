//! Planted bugs: deliberate misbehaviour, each with the checker that must catch it.
//!
//! None is in the manager: the machine below it, or a holder of its memory, misbehaves in exactly
//! one way, as if the manager had forgotten to ask for what it asked for. A list of checks that
//! cannot fail proves nothing.

use core::fmt;

/// One deliberate bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plant {
    /// Other CPUs are not asked.
    SkipRemoteFlush,
    /// One of the CPUs is not asked.
    OneCpuTooFew,
    /// The wait returns before others have carried the request out.
    FreeBeforeWait,
    /// Nothing is invalidated here.
    SkipLocalFlush,
    /// Of each invalidated range only the first entry is carried out.
    WrongLevel,
    /// Removed tables are taken for kept ones.
    TablesKept,
    /// A large clear does nothing.
    ForgetZero,
    /// A large clear stops half-way.
    HalfZero,
    /// Clearing ahead of use does nothing: what is noted of free memory is a lie.
    IdleZero,
    /// A copy stops half-way.
    HalfCopy,
    /// A rewritten leaf loses its dirty bit.
    LostDirty,
    /// A new leaf names the frame of the page before.
    DoubleMap,
    /// A leaf that is write-protected stays writable.
    StaysWritable,
    /// A root is not loaded.
    SkipActivate,
    /// What a CPU cached of a root is kept although a flush passed it by.
    KeptUnasked,
    /// A block that is given back is not stated to be free.
    Leak,
    /// A table that is given back is not stated to be free.
    LostTable,
    /// A frame of records that is given back is not stated to be free.
    LostRecord,
    /// A block is stated to be free twice.
    FreedTwice,
    /// A block is used without being claimed.
    UnstatedClaim,
    /// A claim covers the block behind as well.
    WideClaim,
    /// A used leaf reads as never used.
    StaleAccessed,
    /// On a machine that breaks before it makes: the flush between is left out.
    NoBreak,
    /// No CPU is asked to invalidate descriptors.
    SkipFoldFlush,
    /// The wait for descriptors returns before others have carried the request out.
    FreeBeforeFoldFlush,
    /// A holder of huge pages writes into their descriptors while they are folded.
    WriteInWindow,
    /// The clear of a far part of a huge page does nothing.
    ForgetHugeZero,
    /// The copy of a huge page stops half-way.
    HalfHugeCopy,
    /// No CPU is asked to invalidate kernel ranges that are purged.
    SkipPurgeFlush,
    /// A holder of kernel memory reads it after it gave it back.
    UseAfterFree,
    /// Between taking a folio's entries and putting them back no CPU is asked, and nothing is
    /// invalidated.
    SkipSplitFlush,
    /// An entry that is put back is clean.
    LostDirtyMoved,
    /// One entry of a folio is not taken out of use.
    ForgetMapping,
    /// A folio that moves is copied when programs are at its new memory already.
    LateCopy,
    /// One entry of a folio that moved names the memory that it left.
    LeftBehind,
    /// Frames of a block that was to be emptied are not stated to be free when it is given up.
    IsolatedNotFreed,
    /// The flush of the table that a collapse took out comes when the large leaf is there already.
    LateCollapseFlush,
    /// No CPU is asked to invalidate what a fork shares.
    SkipForkFlush,
    /// No CPU is asked to invalidate a page that a fault replaces.
    SkipCopyFlush,
    /// One word of a group that is write-protected stays writable.
    GroupStaysWritable,
    /// One word of a group that was taken apart says that it is one of the group.
    GroupBitStays,
    /// One word of a new group names its neighbour's frame.
    GroupWrongFrame,
    /// Of an invalidated group only the first page is.
    GroupOnePage,
}

impl Plant {
    /// All of them.
    pub const ALL: [Plant; 43] = [
        Plant::SkipRemoteFlush,
        Plant::OneCpuTooFew,
        Plant::FreeBeforeWait,
        Plant::SkipLocalFlush,
        Plant::WrongLevel,
        Plant::TablesKept,
        Plant::ForgetZero,
        Plant::HalfZero,
        Plant::IdleZero,
        Plant::HalfCopy,
        Plant::LostDirty,
        Plant::DoubleMap,
        Plant::StaysWritable,
        Plant::SkipActivate,
        Plant::KeptUnasked,
        Plant::Leak,
        Plant::LostTable,
        Plant::LostRecord,
        Plant::FreedTwice,
        Plant::UnstatedClaim,
        Plant::WideClaim,
        Plant::StaleAccessed,
        Plant::NoBreak,
        Plant::SkipFoldFlush,
        Plant::FreeBeforeFoldFlush,
        Plant::WriteInWindow,
        Plant::ForgetHugeZero,
        Plant::HalfHugeCopy,
        Plant::SkipPurgeFlush,
        Plant::UseAfterFree,
        Plant::SkipSplitFlush,
        Plant::LostDirtyMoved,
        Plant::ForgetMapping,
        Plant::LateCopy,
        Plant::LeftBehind,
        Plant::IsolatedNotFreed,
        Plant::LateCollapseFlush,
        Plant::SkipForkFlush,
        Plant::SkipCopyFlush,
        Plant::GroupStaysWritable,
        Plant::GroupBitStays,
        Plant::GroupWrongFrame,
        Plant::GroupOnePage,
    ];

    /// Name, what it does, and the checker that must catch it.
    const fn row(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Plant::SkipRemoteFlush => (
                "skip-remote-flush",
                "other CPUs are not asked to invalidate",
                "no_stale_translation",
            ),
            Plant::OneCpuTooFew => {
                ("one-cpu-too-few", "one of several CPUs is not asked", "no_stale_translation")
            }
            Plant::FreeBeforeWait => (
                "free-before-wait",
                "the wait returns before others carried the request out",
                "no_stale_translation",
            ),
            Plant::SkipLocalFlush => (
                "skip-local-flush",
                "nothing is invalidated on the CPU itself",
                "no_stale_translation",
            ),
            Plant::WrongLevel => (
                "wrong-level",
                "only the first entry of each invalidated range is carried out",
                "no_stale_translation",
            ),
            Plant::TablesKept => (
                "tables-kept",
                "removed tables are flushed as if they were kept",
                "no_stale_translation",
            ),
            Plant::ForgetZero => {
                ("forget-zero", "a large clear does nothing", "zeroed_before_user")
            }
            Plant::HalfZero => ("half-zero", "a large clear stops half-way", "zeroed_before_user"),
            Plant::IdleZero => {
                ("idle-zero", "clearing ahead of use does nothing", "zeroed_before_user")
            }
            Plant::HalfCopy => ("half-copy", "a copy stops half-way", "contents"),
            Plant::LostDirty => {
                ("lost-dirty", "a rewritten leaf loses its dirty bit", "dirty_kept")
            }
            Plant::DoubleMap => {
                ("double-map", "a new leaf names the frame of the page before", "contents")
            }
            Plant::StaysWritable => {
                ("stays-writable", "a write-protected leaf stays writable", "contents")
            }
            Plant::SkipActivate => {
                ("skip-activate", "a root is not loaded", "no_stale_translation")
            }
            Plant::KeptUnasked => (
                "kept-unasked",
                "a root comes back with what a flush passed by",
                "no_stale_translation",
            ),
            Plant::Leak => ("leak", "a block given back is not stated to be free", "quiescent"),
            Plant::LostTable => {
                ("lost-table", "a table given back is not stated to be free", "quiescent")
            }
            Plant::LostRecord => {
                ("lost-record", "a record given back is not stated to be free", "counters_recount")
            }
            Plant::FreedTwice => {
                ("freed-twice", "a block is stated to be free twice", "frames_conserved")
            }
            Plant::UnstatedClaim => {
                ("unstated-claim", "a block is used without being claimed", "frames_conserved")
            }
            Plant::WideClaim => {
                ("wide-claim", "a claim covers the block behind as well", "no_shared_owner")
            }
            Plant::StaleAccessed => {
                ("stale-accessed", "a used leaf reads as never used", "no_stale_translation")
            }
            Plant::NoBreak => ("no-break", "no flush between break and make", "bbm"),
            Plant::SkipFoldFlush => (
                "skip-fold-flush",
                "descriptors are remapped and nobody is asked to invalidate",
                "no_stale_translation",
            ),
            Plant::FreeBeforeFoldFlush => (
                "free-before-fold-flush",
                "the wait returns before others let go of remapped descriptors",
                "no_stale_translation",
            ),
            Plant::WriteInWindow => (
                "write-in-window",
                "a holder writes descriptors while they are remapped",
                "descriptors",
            ),
            Plant::ForgetHugeZero => (
                "forget-huge-zero",
                "a far part of a huge page is not cleared",
                "zeroed_before_user",
            ),
            Plant::HalfHugeCopy => {
                ("half-huge-copy", "the copy of a huge page stops half-way", "contents")
            }
            Plant::SkipPurgeFlush => (
                "skip-purge-flush",
                "kernel ranges are purged and nobody is asked to invalidate",
                "no_stale_translation",
            ),
            Plant::UseAfterFree => (
                "use-after-free",
                "a holder reads kernel memory that it gave back",
                "no_stale_translation",
            ),
            Plant::SkipSplitFlush => (
                "skip-split-flush",
                "a folio is split or moved and nobody invalidates its entries",
                "no_stale_translation",
            ),
            Plant::LostDirtyMoved => {
                ("lost-dirty-moved", "an entry of a split or moved folio is clean", "dirty_kept")
            }
            Plant::ForgetMapping => {
                ("forget-mapping", "one entry of a folio is never taken out of use", "panic")
            }
            Plant::LateCopy => (
                "late-copy",
                "a moved folio is copied when programs are at its new memory",
                "contents",
            ),
            Plant::LeftBehind => (
                "left-behind",
                "one entry of a moved folio names the memory that it left",
                "no_stale_translation",
            ),
            Plant::IsolatedNotFreed => (
                "isolated-not-freed",
                "frames of a block that is not emptied are not stated to be free",
                "no_shared_owner",
            ),
            Plant::LateCollapseFlush => (
                "late-collapse-flush",
                "a collapsed range is flushed when its leaf is there",
                "bbm",
            ),
            Plant::SkipForkFlush => {
                ("skip-fork-flush", "what a fork shares stays writable on other CPUs", "contents")
            }
            Plant::SkipCopyFlush => (
                "skip-copy-flush",
                "other CPUs keep the page that a fault replaces by its copy",
                "contents",
            ),
            Plant::GroupStaysWritable => (
                "group-stays-writable",
                "one word of a group that is write-protected stays writable",
                "groups",
            ),
            Plant::GroupBitStays => (
                "group-bit-stays",
                "one word of a group taken apart says that it is one of it",
                "groups",
            ),
            Plant::GroupWrongFrame => (
                "group-wrong-frame",
                "one word of a new group names its neighbour's frame",
                "groups",
            ),
            Plant::GroupOnePage => (
                "group-one-page",
                "of an invalidated group only the first page is",
                "no_stale_translation",
            ),
        }
    }

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        self.row().0
    }
    /// What it does, in one line.
    pub const fn about(self) -> &'static str {
        self.row().1
    }
    /// The checker that must catch it.
    pub const fn checker(self) -> &'static str {
        self.row().2
    }
    /// The bug with this name.
    pub fn parse(name: &str) -> Option<Plant> {
        Plant::ALL.into_iter().find(|plant| plant.name() == name)
    }

    /// Whether it is about groups of entries, which x86-64 does not have.
    pub(crate) const fn is_of_groups(self) -> bool {
        matches!(
            self,
            Plant::GroupStaysWritable
                | Plant::GroupBitStays
                | Plant::GroupWrongFrame
                | Plant::GroupOnePage
        )
    }
    /// How rarely it strikes: once in so many opportunities.
    pub(crate) const fn once_in(self) -> u32 {
        match self {
            Plant::LostDirty | Plant::StaleAccessed | Plant::StaysWritable => 2,
            Plant::DoubleMap => 5,
            Plant::ForgetMapping | Plant::LeftBehind => 20,
            Plant::Leak | Plant::FreedTwice | Plant::UnstatedClaim | Plant::WideClaim => 30,
            Plant::SkipActivate | Plant::HalfCopy | Plant::ForgetZero | Plant::HalfZero => 3,
            Plant::LostTable | Plant::LostRecord => 3,
            _ => 1,
        }
    }
}

impl fmt::Display for Plant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
