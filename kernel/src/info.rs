//! What loader and firmware say, read through the direct map (`foliant_x86::boot`).
#![allow(unsafe_code)]

use crate::layout::{DIRECT_MAX, direct};
use foliant_units::{Bytes, Pa};
use foliant_x86::boot::{self, Given};

/// The loader's words.
pub(crate) type Info = boot::Info<'static, DirectMap>;

/// All memory that the direct map reaches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectMap;

impl Given<'static> for DirectMap {
    fn bytes(self, at: Pa, bytes: Bytes) -> Option<&'static [u8]> {
        let end = at.get().checked_add(bytes.get())?;
        // SAFETY: inside the direct map; what loader and firmware left is plain memory that nobody writes: it lies below 1 MiB,
        // outside of usable memory, or in a module, whose frames are reserved.
        (end <= DIRECT_MAX)
            .then(|| unsafe { core::slice::from_raw_parts(direct(at), bytes.get() as usize) })
    }
}
