//! Where the code of the programs lies in the kernel's image.
#![allow(unsafe_code)]

use foliant_units::Bytes;

unsafe extern "C" {
    static user_programs: u8;
    static user_programs_end: u8;
}

/// The programs' bytes in the image.
pub(crate) fn image() -> (u64, Bytes) {
    let (start, end) = (&raw const user_programs as u64, &raw const user_programs_end as u64);
    (start, Bytes::new(end - start))
}
