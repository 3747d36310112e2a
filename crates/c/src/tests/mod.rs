//! The interface as C calls it, on the simulated machine behind a table.

mod laws;
mod life;
mod refused;
mod sim_table;

use crate::error::Error;
use crate::status::Status;
use core::ffi::{CStr, c_void};
use core::mem::MaybeUninit;

/// Memory that is lent, aligned for every handle.
pub(super) struct Lent(Vec<Line>);

/// Two lines of a cache.
#[derive(Clone, Copy)]
#[repr(align(128))]
struct Line {
    _bytes: [u8; 128],
}

impl Lent {
    /// So many bytes of anything but zeros.
    pub(super) fn of(bytes: u64) -> Lent {
        Lent(vec![Line { _bytes: [0x55; 128] }; bytes.div_ceil(128) as usize])
    }
    /// Where it begins.
    pub(super) fn at(&mut self) -> *mut c_void {
        self.0.as_mut_ptr().cast()
    }
}

/// What a call wrote, if it went well.
pub(super) fn done<T>(call: impl FnOnce(Option<&mut MaybeUninit<T>>, Why<'_>) -> Status) -> T {
    let mut place = MaybeUninit::uninit();
    let mut why = MaybeUninit::uninit();
    let status = call(Some(&mut place), Some(&mut why));
    assert_eq!(status, Status::Ok, "{}", text(&why, status));
    written(place)
}
pub(super) type Why<'a> = Option<&'a mut MaybeUninit<Error>>;

/// A call without a result that goes well.
pub(super) fn well(call: impl FnOnce(Why<'_>) -> Status) {
    let mut why = MaybeUninit::uninit();
    let status = call(Some(&mut why));
    assert_eq!(status, Status::Ok, "{}", text(&why, status));
}
/// The text with which a call is refused.
pub(super) fn refused(wanted: Status, call: impl FnOnce(Why<'_>) -> Status) -> String {
    let mut why = MaybeUninit::uninit();
    let status = call(Some(&mut why));
    assert_eq!(status, wanted);
    text(&why, status)
}

fn text(why: &MaybeUninit<Error>, status: Status) -> String {
    if status == Status::Ok {
        return String::new();
    }
    let error = read(why);
    assert_eq!(error.status, status);
    let bytes: Vec<u8> = error.text.iter().map(|byte| *byte as u8).collect();
    CStr::from_bytes_until_nul(&bytes).unwrap().to_str().unwrap().to_string()
}

#[allow(unsafe_code)]
mod places {
    use super::{Error, MaybeUninit};

    pub(super) fn written<T>(place: MaybeUninit<T>) -> T {
        // SAFETY: the call says that all went well, so it wrote its result (C3).
        unsafe { place.assume_init() }
    }
    pub(super) fn read(why: &MaybeUninit<Error>) -> Error {
        // SAFETY: the call was refused, so it wrote why.
        unsafe { why.assume_init_read() }
    }
}
use places::{read, written};
