//! The codes with which calls end.

use core::ffi::CStr;

/// How a call ended. `foliant_status_text` has a sentence for each; the `text` of `foliant_error`
/// names the value that was wrong and the way out.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// As asked.
    Ok = 0,
    /// A pointer is null that must not be.
    Null = 1,
    /// The pointer leads to no handle of this kind: `_new` has not made it, or it failed.
    Handle = 2,
    /// The memory lent is too small, or not aligned: ask `_layout`.
    Lent = 3,
    /// The machine's table lacks a function, or its numbers are not possible.
    Machine = 4,
    /// A number stands for nothing: a flag, an order, a level, a kind.
    Value = 5,
    /// A range is empty, overflows, overlaps another one, or lies outside of what is managed.
    Range = 6,
    /// An address, a frame or a size is not aligned as it must be.
    Misaligned = 7,
    /// There is no such CPU.
    Cpu = 8,
    /// The frame lies in no range of this allocator.
    Foreign = 9,
    /// The block is free: given back twice, or never taken.
    Free = 10,
    /// The frame is reserved.
    Reserved = 11,
    /// The frame belongs to a block of another order, or to another one.
    WrongOrder = 12,
    /// The block is in use, and not by this caller.
    InUse = 13,
    /// No memory.
    NoMemory = 14,
    /// The spare has no frame left for a page table: lend one and go on.
    NeedTable = 15,
    /// Something is mapped there already.
    Mapped = 16,
    /// Nothing is mapped there.
    NotMapped = 17,
    /// A leaf reaches over an end of the range.
    Straddles = 18,
    /// Another call is at work there: ask again.
    Busy = 19,
    /// The gather is full: flush it and go on.
    Full = 20,
    /// The gather holds what is not flushed yet.
    NotFlushed = 21,
    /// There is no such space, or not any more.
    NoSpace = 22,
    /// A CPU still runs the space.
    Running = 23,
    /// The space may not be charged for more, or there are as many of them as there may be.
    Limit = 24,
    /// No area lies there.
    NoArea = 25,
    /// No gap of addresses is large enough.
    NoRoom = 26,
    /// The pool has no huge page for it.
    NoHugePages = 27,
    /// The access, or the rights, are not allowed there.
    NoRight = 28,
    /// A guard lies there.
    Guard = 29,
    /// The memory there was reported broken.
    Broken = 30,
    /// The program is to fill the page.
    Userfault = 31,
    /// A huge page of a pool lies there, with which this is not done.
    Huge = 32,
    /// The range of kernel memory was given back already.
    Freed = 33,
    /// The range of kernel memory is of another kind, or begins elsewhere.
    WrongArea = 34,
    /// Nothing of this name is counted.
    NoCounter = 35,
}

impl Status {
    /// All of them, in the order of their numbers.
    pub(crate) const ALL: [Status; 36] = [
        Status::Ok,
        Status::Null,
        Status::Handle,
        Status::Lent,
        Status::Machine,
        Status::Value,
        Status::Range,
        Status::Misaligned,
        Status::Cpu,
        Status::Foreign,
        Status::Free,
        Status::Reserved,
        Status::WrongOrder,
        Status::InUse,
        Status::NoMemory,
        Status::NeedTable,
        Status::Mapped,
        Status::NotMapped,
        Status::Straddles,
        Status::Busy,
        Status::Full,
        Status::NotFlushed,
        Status::NoSpace,
        Status::Running,
        Status::Limit,
        Status::NoArea,
        Status::NoRoom,
        Status::NoHugePages,
        Status::NoRight,
        Status::Guard,
        Status::Broken,
        Status::Userfault,
        Status::Huge,
        Status::Freed,
        Status::WrongArea,
        Status::NoCounter,
    ];

    /// What it means.
    pub(crate) const fn text(self) -> &'static CStr {
        match self {
            Status::Ok => c"as asked",
            Status::Null => c"a pointer is null that must not be",
            Status::Handle => c"the pointer leads to no handle of this kind",
            Status::Lent => c"the memory lent is too small or not aligned",
            Status::Machine => c"the machine's table lacks something",
            Status::Value => c"a number stands for nothing",
            Status::Range => c"no such range",
            Status::Misaligned => c"not aligned",
            Status::Cpu => c"there is no such CPU",
            Status::Foreign => c"the frame lies in no range of this allocator",
            Status::Free => c"the block is free already",
            Status::Reserved => c"the frame is reserved",
            Status::WrongOrder => c"the frame belongs to another block",
            Status::InUse => c"the block is in use by others",
            Status::NoMemory => c"no memory",
            Status::NeedTable => c"a frame for a page table is needed",
            Status::Mapped => c"something is mapped there already",
            Status::NotMapped => c"nothing is mapped there",
            Status::Straddles => c"a leaf reaches over an end of the range",
            Status::Busy => c"another call is at work there",
            Status::Full => c"the gather is full",
            Status::NotFlushed => c"the gather holds what is not flushed yet",
            Status::NoSpace => c"there is no such space",
            Status::Running => c"a CPU still runs the space",
            Status::Limit => c"a limit is reached",
            Status::NoArea => c"no area lies there",
            Status::NoRoom => c"no gap of addresses is large enough",
            Status::NoHugePages => c"the pool has no huge page for it",
            Status::NoRight => c"not allowed there",
            Status::Guard => c"a guard lies there",
            Status::Broken => c"the memory there is broken",
            Status::Userfault => c"the program is to fill the page",
            Status::Huge => c"a huge page of a pool lies there",
            Status::Freed => c"the range was given back already",
            Status::WrongArea => c"the range is of another kind or begins elsewhere",
            Status::NoCounter => c"nothing of this name is counted",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_code_has_a_number_and_a_text_of_its_own() {
        for (nth, status) in Status::ALL.iter().enumerate() {
            assert_eq!(*status as usize, nth);
        }
        let texts: BTreeSet<&CStr> = Status::ALL.iter().map(|status| status.text()).collect();
        assert_eq!(texts.len(), Status::ALL.len());
    }
}
