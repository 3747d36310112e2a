//! Kernel memory that is contiguous in its addresses, and devices.
#![allow(unsafe_code)]

use crate::error::{Error, answer};
use crate::lent;
use crate::manager::{Manager, inner};
use crate::refusal::Refusal;
use crate::status::Status;
use crate::values;
use core::mem::MaybeUninit;
use foliant::vmap::{Caller, Contents, Guard, LeafSizes, Request, Rights};
use foliant_units::{Bytes, FRAME_BYTES, Pa, Va};

/// A request for kernel memory. All zeros, but for `bytes`, asks for plain memory by pages of 4
/// KiB, with a guard page behind.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct VmallocRequest {
    /// How many bytes.
    pub bytes: u64,
    /// Where it may begin: a multiple of this, a power of two from 4 KiB to 1 GiB; 0 is 4 KiB.
    pub align: u64,
    /// The largest leaf that may be used (`enum foliant_leaf`), where the rights are plain.
    pub largest: u32,
    /// `FOLIANT_READ` and `FOLIANT_WRITE`, or 0, for plain memory; `FOLIANT_READ` alone, or with
    /// `FOLIANT_EXEC`, for constants and code.
    pub rights: u32,
    /// Not 0: it is cleared.
    pub is_zeroed: u32,
    /// Not 0: nothing is left free behind it.
    pub is_unguarded: u32,
    /// A word of the kernel's for listings: the caller's address, as a rule.
    pub caller: u64,
}

impl VmallocRequest {
    fn checked(&self) -> Result<Request, Refusal> {
        let (read, write, exec) =
            (values::FOLIANT_READ, values::FOLIANT_WRITE, values::FOLIANT_EXEC);
        let rights = match self.rights {
            0 => Rights::Data,
            n if n == read | write => Rights::Data,
            n if n == read => Rights::Constant,
            n if n == read | exec => Rights::Code,
            n => return Err(Refusal::Value("rights", u64::from(n))),
        };
        Ok(Request {
            align: Bytes::new(if self.align == 0 { FRAME_BYTES } else { self.align }),
            leaves: LeafSizes::UpTo(values::level(self.largest)?),
            rights,
            guard: if self.is_unguarded == 0 { Guard::Page } else { Guard::None },
            contents: if self.is_zeroed == 0 { Contents::Any } else { Contents::Zero },
            caller: Caller(self.caller),
            ..Request::of(Bytes::new(self.bytes))
        })
    }
}

/// Takes kernel memory, and gives its first address. Where there is no block for a large leaf,
/// memory is compacted for a short while, and then smaller leaves are used.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_vmalloc(
    manager: Option<&Manager>,
    request: Option<&VmallocRequest>,
    va: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || {
        let (inner, place) = (inner(manager)?, lent::place(va, "va")?);
        let request = lent::given(request, "request")?.checked()?;
        place.write(inner.vmalloc(&request)?.start().get());
        Ok(())
    };
    answer(error, work())
}

/// Gives kernel memory back, by its first address. Its frames are free at once; its addresses may
/// be used again after a purge, of which one comes by itself when many are waiting.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_vfree(
    manager: Option<&Manager>,
    va: u64,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || Ok(inner(manager)?.vfree(Va::new(va))?);
    answer(error, work())
}

/// The same from where nothing may be waited for, as an interrupt handler: it is done by the next
/// `foliant_vmalloc_purge`.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_vfree_later(
    manager: Option<&Manager>,
    va: u64,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || Ok(inner(manager)?.vfree_atomic(Va::new(va))?);
    answer(error, work())
}

/// Makes the addresses of all ranges that were given back usable again, with one flush. `pages`,
/// which may be null, says how many they are.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_vmalloc_purge(
    manager: Option<&Manager>,
    pages: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || {
        let purged = inner(manager)?.purge_vmalloc().get();
        if let Some(place) = pages {
            place.write(purged);
        }
        Ok(())
    };
    answer(error, work())
}

/// Maps a device: `bytes` of registers from the physical address `pa` on, uncached. The address
/// given has the offset of `pa` in its page. Memory that the manager has is refused.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_ioremap(
    manager: Option<&Manager>,
    pa: u64,
    bytes: u64,
    caller: u64,
    va: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || {
        let (inner, place) = (inner(manager)?, lent::place(va, "va")?);
        place.write(inner.ioremap(Pa::new(pa), Bytes::new(bytes), Caller(caller))?.get());
        Ok(())
    };
    answer(error, work())
}

/// Ends the mapping of a device, by the address that `foliant_ioremap` gave.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_iounmap(
    manager: Option<&Manager>,
    va: u64,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || Ok(inner(manager)?.iounmap(Va::new(va))?);
    answer(error, work())
}
