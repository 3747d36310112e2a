//! What C lends: memory for handles, arrays, places for results.
#![allow(unsafe_code)]

use crate::refusal::Refusal;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::slice;

/// How much memory something needs, and at what alignment.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Bytes.
    pub bytes: u64,
    /// A power of two.
    pub align: u64,
}

impl Layout {
    /// That of a `T`.
    pub(crate) const fn of<T>() -> Layout {
        Layout { bytes: size_of::<T>() as u64, align: align_of::<T>() as u64 }
    }
}

/// A place for a result.
pub(crate) fn place<'a, T>(
    given: Option<&'a mut MaybeUninit<T>>,
    what: &'static str,
) -> Result<&'a mut MaybeUninit<T>, Refusal> {
    given.ok_or(Refusal::Null(what))
}
/// What a pointer leads to.
pub(crate) fn given<T>(given: Option<T>, what: &'static str) -> Result<T, Refusal> {
    given.ok_or(Refusal::Null(what))
}

/// Looks whether lent memory is what was asked for.
pub(crate) fn memory(
    memory: *mut c_void,
    bytes: u64,
    need: Layout,
) -> Result<NonNull<u8>, Refusal> {
    let at = NonNull::new(memory.cast::<u8>()).ok_or(Refusal::Null("memory"))?;
    let is_aligned = (at.as_ptr().addr() as u64).is_multiple_of(need.align);
    if bytes < need.bytes || !is_aligned {
        let (at, Layout { bytes: need, align }) = (at.as_ptr().addr() as u64, need);
        return Err(Refusal::Lent { need, align, bytes, at });
    }
    Ok(at)
}

/// An array of the caller's.
///
/// # Safety
/// `first` is null, or the first of `count` values that live for `'a` and that nobody writes to
/// meanwhile (P1).
pub(crate) unsafe fn array<'a, T>(
    first: *const T,
    count: usize,
    what: &'static str,
) -> Result<&'a [T], Refusal> {
    if count == 0 {
        return Ok(&[]);
    }
    if first.is_null() {
        return Err(Refusal::Null(what));
    }
    if !first.is_aligned() || count > isize::MAX as usize / size_of::<T>() {
        return Err(Refusal::Array(what, count as u64));
    }
    // SAFETY: not null, aligned, of a size that can be; the rest is the caller's promise.
    Ok(unsafe { slice::from_raw_parts(first, count) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Status;

    #[test]
    fn lent_memory_is_large_enough_and_aligned() {
        let mut lent = [0u64; 4];
        let need = Layout { bytes: 24, align: 8 };
        let at = lent.as_mut_ptr();
        let status = |at: *mut u8, bytes| {
            memory(at.cast(), bytes, need).map_or_else(|why| why.status(), |_| Status::Ok)
        };
        assert_eq!(status(at.cast(), 24), Status::Ok);
        assert_eq!(status(at.cast(), 23), Status::Lent);
        assert_eq!(status(at.cast::<u8>().wrapping_add(4), 28), Status::Lent);
        assert_eq!(status(core::ptr::null_mut(), 24), Status::Null);
    }

    #[test]
    fn an_array_of_nothing_needs_no_pointer() {
        let words = [1u32, 2];
        let status = |first, count| {
            // SAFETY: two words, and no pointer that would be followed.
            unsafe { array::<u32>(first, count, "words") }.map_or_else(|why| Err(why.status()), Ok)
        };
        assert_eq!(status(core::ptr::null(), 0), Ok(&[][..]));
        assert_eq!(status(words.as_ptr(), 2), Ok(&words[..]));
        assert_eq!(status(core::ptr::null(), 1), Err(Status::Null));
        assert_eq!(status(words.as_ptr(), usize::MAX), Err(Status::Value));
        assert_eq!(
            status(words.as_ptr().cast::<u8>().wrapping_add(1).cast(), 1),
            Err(Status::Value)
        );
    }
}
