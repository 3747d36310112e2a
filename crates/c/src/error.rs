//! What the caller gets to read: texts of codes, and the text of one refusal.
#![allow(unsafe_code, reason = "names that C links to")]

use crate::refusal::Refusal;
use crate::status::Status;
use core::ffi::c_char;
use core::fmt::{self, Write};
use core::mem::MaybeUninit;

/// Bytes of a text, with the null byte that ends it.
const TEXT_BYTES: usize = size_of::<Error>() - size_of::<Status>();

/// Why a call was refused: lent by the caller, for each call or for many. It is written only where
/// a call ends with another status than `FOLIANT_STATUS_OK`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Error {
    /// What the call returned.
    pub status: Status,
    /// What was wrong, with the value, and the way out; ends with a null byte. A longer text is
    /// cut off.
    pub text: [c_char; 252],
}

/// A text that is cut off where it grows too long.
pub(crate) struct Text {
    bytes: [c_char; TEXT_BYTES],
    len: usize,
}

impl Text {
    /// `what`, as it is displayed.
    pub(crate) fn of(what: impl fmt::Display) -> Text {
        let mut text = Text { bytes: [0; TEXT_BYTES], len: 0 };
        let _cut_off = write!(text, "{what}");
        text
    }
    /// The bytes, with a null byte behind the last.
    pub(crate) fn bytes(&self) -> &[c_char; TEXT_BYTES] {
        &self.bytes
    }
}

impl Write for Text {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        for byte in more.bytes() {
            if self.len == TEXT_BYTES - 1 {
                return Err(fmt::Error);
            }
            self.bytes[self.len] = byte as c_char;
            self.len += 1;
        }
        Ok(())
    }
}

/// Ends a call: its code, and the text where the caller lent a place for it.
pub(crate) fn answer(error: Option<&mut MaybeUninit<Error>>, done: Result<(), Refusal>) -> Status {
    let Err(refusal) = done else { return Status::Ok };
    let status = refusal.status();
    if let Some(error) = error {
        error.write(Error { status, text: *Text::of(refusal).bytes() });
    }
    status
}

/// What a status means: a constant text, also for numbers that are none.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_status_text(status: u32) -> *const c_char {
    let known = Status::ALL.get(status as usize);
    known.map_or(c"an unknown status", |status| status.text()).as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ffi::CStr;

    #[test]
    fn a_long_text_is_cut_off_and_ends() {
        for (wanted, len) in [("é".repeat(200), TEXT_BYTES - 1), ("abc".into(), 3), ("".into(), 0)]
        {
            let text = Text::of(&wanted);
            let bytes: Vec<u8> = text.bytes().iter().map(|byte| *byte as u8).collect();
            let read = CStr::from_bytes_until_nul(&bytes).unwrap().to_bytes();
            assert_eq!(read, &wanted.as_bytes()[..len]);
        }
    }

    #[test]
    fn a_call_that_went_well_writes_nothing() {
        let mut error = MaybeUninit::new(Error { status: Status::Full, text: [7; TEXT_BYTES] });
        assert_eq!(answer(Some(&mut error), Ok(())), Status::Ok);
        let refused = answer(Some(&mut error), Err(Refusal::Null("frames")));
        assert_eq!(refused, Status::Null);
        assert_eq!(answer(None, Err(Refusal::Null("frames"))), Status::Null);
    }
}
