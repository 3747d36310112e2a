//! What loader and firmware say, read through the direct map (`foliant_x86::boot`).
#![allow(unsafe_code)]

use crate::layout::{DIRECT_MAX, direct};
use foliant_units::{Bytes, Pa};
use foliant_x86::Features;
use foliant_x86::boot::{self, Given};

/// The loader's words.
pub(crate) type Info = boot::Info<'static, DirectMap>;

/// All memory that the direct map of the start reaches, which is all that any of this kernel's
/// could.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectMap {
    end: Pa,
}

impl DirectMap {
    pub(crate) fn of(features: &Features) -> DirectMap {
        DirectMap { end: reach(features) }
    }
}

/// Where memory ends for this kernel: where its direct map does, or the CPU's addresses.
pub(crate) fn reach(features: &Features) -> Pa {
    Pa::new(DIRECT_MAX.min(1 << features.physical_bits))
}

impl Given<'static> for DirectMap {
    fn bytes(self, at: Pa, bytes: Bytes) -> Option<&'static [u8]> {
        let end = at.get().checked_add(bytes.get())?;
        // SAFETY: inside the direct map of `boot.s`. What loader and firmware left is plain memory
        // that nobody writes, wherever it lies, until memory is handed over; afterwards only the
        // module is read, whose frames are reserved and stay mapped.
        (end <= self.end.get())
            .then(|| unsafe { core::slice::from_raw_parts(direct(at), bytes.get() as usize) })
    }
}
