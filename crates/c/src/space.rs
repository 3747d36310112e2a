//! Spaces: their areas, and the faults that bring memory into them.
#![allow(unsafe_code)]

use crate::error::{Error, answer};
use crate::lent;
use crate::manager::{Manager, inner};
use crate::refusal::Refusal;
use crate::status::Status;
use crate::values::{self, addresses};
use core::mem::MaybeUninit;
use foliant::Outcome as Ended;
use foliant::space::{self, SpaceId};
use foliant_units::{Bytes, Frame, Pages, Va};

/// The name of an address space: plain numbers, to be copied as they are. The name of a space that
/// has ended is refused. All zeros names none.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Space {
    /// The frame of its record, unique among living spaces.
    pub frame: u64,
    /// What tells it from those that had the frame before.
    pub stamp: u32,
}

impl Space {
    fn of(id: SpaceId) -> Space {
        Space { frame: id.frame().get(), stamp: id.stamp() }
    }
    fn id(self) -> SpaceId {
        SpaceId::from_parts(Frame::new(self.frame), self.stamp)
    }
}

/// A request for an area.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MapRequest {
    /// The address, as `place` says; else it is not looked at.
    pub va: u64,
    /// How many bytes; rounded up to pages.
    pub bytes: u64,
    /// Where it goes (`enum foliant_place`).
    pub place: u32,
    /// Rights and wishes (`FOLIANT_READ` and those beside it).
    pub flags: u32,
    /// A word of the kernel's: areas that touch become one only where it is equal.
    pub tag: u64,
}

/// What a fault did.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultEnd {
    /// A new folio is mapped.
    Mapped = 0,
    /// Zeros that spaces share are mapped, to be read.
    ZeroPage = 1,
    /// A page was copied.
    Copied = 2,
    /// The page had no other owner left and is writable again.
    Reused = 3,
    /// The access was possible already.
    Spurious = 4,
}

/// What a fault did, and how large it is.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// What it did.
    pub end: FaultEnd,
    /// The order of what is mapped; 0 where nothing is new.
    pub order: u32,
}

/// What a space takes of memory.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Charge {
    /// Pages that it maps, one per entry of 4 KiB.
    pub pages: u64,
    /// Frames of page tables and records that it causes.
    pub records: u64,
}

/// Makes an empty space. Its charge may not exceed `limit` pages; 0 stands for no limit.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_space_create(
    manager: Option<&Manager>,
    limit: u64,
    space: Option<&mut MaybeUninit<Space>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || {
        let (inner, place) = (inner(manager)?, lent::place(space, "space")?);
        let limit = (limit != 0).then_some(Pages::new(limit));
        place.write(Space::of(inner.create(limit)?));
        Ok(())
    };
    answer(error, work())
}

/// Makes a second space with the same areas and pages; a page is copied when either side writes it.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_space_fork(
    manager: Option<&Manager>,
    parent: Space,
    child: Option<&mut MaybeUninit<Space>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || {
        let (inner, place) = (inner(manager)?, lent::place(child, "child")?);
        place.write(Space::of(inner.fork(parent.id())?));
        Ok(())
    };
    answer(error, work())
}

/// Ends a space. No CPU may run it.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_space_end(
    manager: Option<&Manager>,
    space: Space,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || Ok(inner(manager)?.end(space.id())?);
    answer(error, work())
}

/// Makes the calling CPU run a space, or with all zeros the kernel's tables alone.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_space_switch(
    manager: Option<&Manager>,
    space: Space,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || {
        let id = (space != Space::default()).then(|| space.id());
        Ok(inner(manager)?.switch(id)?)
    };
    answer(error, work())
}

/// Puts an area into a space, and gives its first address. Nothing is present in it yet.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_space_map(
    manager: Option<&Manager>,
    space: Space,
    request: Option<&MapRequest>,
    va: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || {
        let (inner, place) = (inner(manager)?, lent::place(va, "va")?);
        let given = lent::given(request, "request")?;
        let request = space::MapRequest {
            place: values::place(given.place, given.va)?,
            bytes: Bytes::new(given.bytes),
            flags: values::flags(given.flags)?,
            tag: given.tag,
        };
        place.write(inner.map(space.id(), &request)?.start().get());
        Ok(())
    };
    answer(error, work())
}

/// Takes everything out of a range. Holes are skipped. When it returns no CPU reaches the memory
/// any more.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_space_unmap(
    manager: Option<&Manager>,
    space: Space,
    va: u64,
    bytes: u64,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || Ok(inner(manager)?.unmap(space.id(), addresses(va, bytes)?)?);
    answer(error, work())
}

/// Gives a range other rights: `FOLIANT_READ`, `FOLIANT_WRITE`, `FOLIANT_EXEC`, or 0.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_space_protect(
    manager: Option<&Manager>,
    space: Space,
    va: u64,
    bytes: u64,
    rights: u32,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || {
        let all = values::FOLIANT_READ | values::FOLIANT_WRITE | values::FOLIANT_EXEC;
        if rights & !all != 0 {
            return Err(Refusal::Value("rights", u64::from(rights)));
        }
        let (range, rights) = (addresses(va, bytes)?, values::flags(rights)?);
        Ok(inner(manager)?.protect(space.id(), range, rights)?)
    };
    answer(error, work())
}

/// Takes advice (`enum foliant_advice`) about a range. Of guards for which memory runs out half
/// way, and of pages that are made present, those that are done stay.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_space_advise(
    manager: Option<&Manager>,
    space: Space,
    va: u64,
    bytes: u64,
    advice: u32,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || {
        let (range, advice) = (addresses(va, bytes)?, values::advice(advice)?);
        Ok(inner(manager)?.advise(space.id(), range, advice)?)
    };
    answer(error, work())
}

/// Handles a page fault of a program: an access (`enum foliant_access`) to `va`. With
/// `FOLIANT_STATUS_OK` the access is to be made again, and `done`, which may be null, says what was
/// done; any other status is the program's death, or for `FOLIANT_STATUS_USERFAULT` its own to fill
/// the page.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_space_fault(
    manager: Option<&Manager>,
    space: Space,
    va: u64,
    access: u32,
    done: Option<&mut MaybeUninit<Fault>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || {
        let (inner, access) = (inner(manager)?, values::access(access)?);
        let (end, order) = match inner.fault(space.id(), Va::new(va), access) {
            Ended::Mapped(order) => (FaultEnd::Mapped, order.get()),
            Ended::ZeroPage(order) => (FaultEnd::ZeroPage, order.get()),
            Ended::Copied => (FaultEnd::Copied, 0),
            Ended::Reused => (FaultEnd::Reused, 0),
            Ended::Spurious => (FaultEnd::Spurious, 0),
            refused => return Err(Refusal::Fault(refused)),
        };
        if let Some(place) = done {
            place.write(Fault { end, order: u32::from(order) });
        }
        Ok(())
    };
    answer(error, work())
}

/// What a space takes of memory.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_space_charge(
    manager: Option<&Manager>,
    space: Space,
    charge: Option<&mut MaybeUninit<Charge>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || {
        let (inner, place) = (inner(manager)?, lent::place(charge, "charge")?);
        let none = foliant::manager::SpaceError::NoSpace;
        let pages = inner.pages(space.id()).ok_or(none)?.get();
        let records = inner.records(space.id()).ok_or(none)?.get();
        place.write(Charge { pages, records });
        Ok(())
    };
    answer(error, work())
}

/// The frame of a folio that a space has at `va`, at this moment; shared zeros are none.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_space_frame(
    manager: Option<&Manager>,
    space: Space,
    va: u64,
    frame: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || {
        let (inner, place) = (inner(manager)?, lent::place(frame, "frame")?);
        place.write(inner.frame_at(space.id(), Va::new(va)).ok_or(Refusal::NoPage(va))?.get());
        Ok(())
    };
    answer(error, work())
}
