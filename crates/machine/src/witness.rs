//! What the manager says of itself, for checkers that watch.

use foliant_units::{FrameRange, VaRange};

/// The owner of a stretch of frames from now on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Owner {
    /// The allocator: no CPU may reach the frames, by any translation.
    Free,
    /// Allocated, exclusively the manager's, not yet put to its use.
    Claimed,
    /// Page tables.
    Table,
    /// The manager's own records.
    Records,
    /// Set aside for users of huge pages, in a pool. Nobody reaches it.
    Kept,
    /// Memory of user spaces; it must have been cleared or copied over before a user reaches it.
    User,
    /// Memory that the manager took for the kernel around it and mapped in the kernel half. Users
    /// may reach parts of it that were cleared or copied over.
    Kernel,
    /// Zeros that users share, a page and a block of 2 MiB: cleared once, read by any user, written
    /// by nobody, kept for the manager's life.
    Zero,
    /// The embedder or the firmware: outside Foliant's care.
    Reserved,
}

/// What becomes of a range of the kernel half that was mapped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Retired {
    /// It is unmapped, and CPUs may still have translations of it cached. No CPU uses the addresses
    /// until the purge, and the frames behind them may have other owners already.
    Lazily,
    /// No CPU has any translation of it: the addresses may be used again.
    Purged,
}

/// What a watcher says to an allocation that is about to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Go on.
    Permit,
    /// Behave as if there were no memory.
    Refuse,
}

/// Hears of every change of ownership. Silicon does nothing with it, and the default bodies compile
/// to nothing; a simulator's checkers compare the statements with what they see the machine do.
///
/// Statements are made in an order that makes them checkable: *after* the last access of the old
/// owner is complete (flush included), *before* the first of the new one. Frames about which
/// nothing was said are `Reserved`.
///
/// ```text
///   Reserved, Free ─▶ any                 Claimed ─▶ any but Claimed
///   Table, Records, Kept, User ─▶ Free, or Claimed: again exclusively the manager's, flushed everywhere
///   Kernel                     ─▶ Free, or Claimed; flushed everywhere but for ranges stated as retired `Lazily`
///   Zero                       ─▶ nothing: zeros stay zeros
/// ```
pub trait Witness {
    /// `frames` belong to `owner` from now on.
    fn owned(&self, frames: FrameRange, owner: Owner) {
        let _ = (frames, owner);
    }

    /// A range of the kernel half is mapped no more. `Lazily` is stated after the last entry was
    /// cleared and before the first frame is given up; `Purged` after the flush and before the
    /// addresses are handed out again.
    fn retired(&self, range: VaRange, how: Retired) {
        let _ = (range, how);
    }

    /// Asked once before each allocation, before anything is changed for it: a simulator may
    /// refuse, so that every allocation site can be made to fail. Hardware always permits.
    fn refusal(&self) -> Refusal {
        Refusal::Permit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Silicon;
    impl Witness for Silicon {}

    #[test]
    fn hardware_always_permits() {
        assert_eq!(Silicon.refusal(), Refusal::Permit);
    }
}
