//! Physical and virtual addresses, and frame numbers.

use crate::{Bytes, FRAME_SHIFT, Pages};
use core::fmt;

/// A physical address, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Pa(u64);

/// A virtual address, in bytes. Canonical form is a matter of the page-table format, not of this
/// type.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Va(u64);

/// The number of a 4 KiB base frame: its physical address divided by 4096.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Frame(u64);

impl Pa {
    /// The address `bytes`.
    pub const fn new(bytes: u64) -> Pa {
        Pa(bytes)
    }
    /// The address in bytes.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// The frame that contains this address.
    pub const fn frame(self) -> Frame {
        Frame(self.0 >> FRAME_SHIFT)
    }
    /// This address moved up by `bytes`.
    pub const fn add(self, bytes: u64) -> Pa {
        Pa(self.0 + bytes)
    }
    /// Whether the address is a multiple of `size`, which is a power of two.
    pub const fn is_aligned(self, size: Bytes) -> bool {
        self.0 & (size.get() - 1) == 0
    }
}

impl Va {
    /// The address `bytes`.
    pub const fn new(bytes: u64) -> Va {
        Va(bytes)
    }
    /// The address in bytes.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// This address moved up by `bytes`.
    pub const fn add(self, bytes: u64) -> Va {
        Va(self.0 + bytes)
    }
    /// This address moved up by `bytes`, or `None` where that overflows.
    pub const fn checked_add(self, bytes: u64) -> Option<Va> {
        match self.0.checked_add(bytes) {
            Some(v) => Some(Va(v)),
            None => None,
        }
    }
    /// Rounded down to a multiple of `size`, which is a power of two.
    pub const fn align_down(self, size: Bytes) -> Va {
        Va(self.0 & !(size.get() - 1))
    }
    /// Rounded up to a multiple of `size`, which is a power of two, or `None` where that overflows.
    pub const fn align_up(self, size: Bytes) -> Option<Va> {
        match self.0.checked_add(size.get() - 1) {
            Some(v) => Some(Va(v & !(size.get() - 1))),
            None => None,
        }
    }
    /// Whether the address is a multiple of `size`, which is a power of two.
    pub const fn is_aligned(self, size: Bytes) -> bool {
        self.0 & (size.get() - 1) == 0
    }
    /// Bytes from `lower` up to this address; `lower` must not lie above it.
    pub const fn offset_from(self, lower: Va) -> u64 {
        self.0 - lower.0
    }
}

impl Frame {
    /// Frame number `n`.
    pub const fn new(n: u64) -> Frame {
        Frame(n)
    }
    /// The frame number.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// The physical address of the frame's first byte.
    pub const fn pa(self) -> Pa {
        Pa(self.0 << FRAME_SHIFT)
    }
    /// The frame `pages` further up.
    pub const fn add(self, pages: Pages) -> Frame {
        Frame(self.0 + pages.get())
    }
    /// Whether the frame number is a multiple of `pages`, which is a power of two.
    pub const fn is_aligned(self, pages: Pages) -> bool {
        self.0 & (pages.get() - 1) == 0
    }
}

macro_rules! terse_debug {
    ($($ty:ident $tag:literal),*) => {$(
        impl fmt::Debug for $ty {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($tag, "{:#x}"), self.0)
            }
        }
        impl fmt::Display for $ty {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }
    )*};
}
terse_debug!(Pa "pa:", Va "va:", Frame "f:");
