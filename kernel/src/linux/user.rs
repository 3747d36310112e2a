//! What a call takes from its program's memory, and what it puts there.
#![allow(unsafe_code)]

use crate::reach;
use alloc::vec::Vec;
use core::mem::MaybeUninit;
use foliant_linux::Errno;
use linux_raw_sys::errno::{EFAULT, ENAMETOOLONG};
use linux_raw_sys::general::{
    __kernel_itimerspec, __kernel_timespec, clone_args, futex_waitv, linux_dirent64, rlimit64,
    rusage, stat, statx, timespec, timeval,
};
use linux_raw_sys::general::{epoll_event, iovec, itimerval, pollfd, statfs, termios, winsize};
use linux_raw_sys::general::{
    page_region, pm_scan_arg, uffdio_api, uffdio_continue, uffdio_copy, uffdio_move, uffdio_poison,
    uffdio_range, uffdio_register, uffdio_writeprotect, uffdio_zeropage,
};
use linux_raw_sys::system::new_utsname;

/// A structure of Linux's that is plain bytes.
///
/// # Safety
/// Every pattern of bits is a value, and no byte of it is padding.
pub(super) unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($name:ty),* $(,)?) => {$(
        // SAFETY: numbers and addresses alone, one behind the other.
        unsafe impl Plain for $name {}
    )*};
}
plain!(
    u8, u16, u32, i32, u64, i64, [i32; 2], [u64; 2], [u64; 3], [u64; 4], [u64; 7], [u64; 14],
    [u8; 128], [u64; 128]
);
plain!(stat, statx, statfs, rlimit64, rusage, timespec, __kernel_timespec, timeval, new_utsname);
plain!([u64; 5], [u64; 6], [u64; 9], [u64; 10], [u32; 2], [u32; 3]);
plain!(uffdio_api, uffdio_range, uffdio_register, uffdio_copy, uffdio_zeropage);
plain!(uffdio_continue, uffdio_move, uffdio_poison);
plain!(page_region, pm_scan_arg);
plain!(futex_waitv, uffdio_writeprotect);
plain!(
    __kernel_itimerspec,
    epoll_event,
    itimerval,
    [i32; 16],
    iovec,
    pollfd,
    clone_args,
    winsize,
    termios
);

/// Bytes of the program.
#[derive(Clone, Copy)]
pub(super) struct Buffer {
    pub(super) at: u64,
    pub(super) bytes: u64,
}

/// Bytes of the head of a `linux_dirent64`.
pub(super) const DIRENT: usize = core::mem::offset_of!(linux_dirent64, d_name);

const FAULT: Errno = Errno(EFAULT);

/// Takes a value.
pub(super) fn get<T: Plain>(at: u64) -> Result<T, Errno> {
    value(|bytes| reach::get(bytes, at)).ok_or(FAULT)
}
/// Takes a value that is there without any fault being served.
pub(super) fn get_present<T: Plain>(at: u64) -> Option<T> {
    value(|bytes| reach::get_present(bytes, at))
}
/// The value of which `take` gets all bytes.
fn value<T: Plain>(take: impl FnOnce(&mut [u8]) -> usize) -> Option<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: the bytes of the value, which are all there.
    let bytes =
        unsafe { core::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), size_of::<T>()) };
    if take(bytes) < size_of::<T>() {
        return None;
    }
    // SAFETY: any bits are a value (Plain).
    Some(unsafe { value.assume_init() })
}
/// Puts a value.
pub(super) fn put<T: Plain>(at: u64, value: &T) -> Result<(), Errno> {
    // SAFETY: a value has no padding (Plain).
    let bytes =
        unsafe { core::slice::from_raw_parts((&raw const *value).cast::<u8>(), size_of::<T>()) };
    put_bytes(at, bytes)
}
/// A value of zeros.
pub(super) fn zeros<T: Plain>() -> T {
    // SAFETY: any bits are a value (Plain).
    unsafe { MaybeUninit::<T>::zeroed().assume_init() }
}
/// Puts bytes, all of them.
pub(super) fn put_bytes(at: u64, bytes: &[u8]) -> Result<(), Errno> {
    if reach::put(at, bytes) < bytes.len() { Err(FAULT) } else { Ok(()) }
}
/// Takes bytes, all of them.
pub(super) fn get_bytes(at: u64, count: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = alloc::vec![0; count];
    if reach::get(&mut bytes, at) < count { Err(FAULT) } else { Ok(bytes) }
}
/// Takes a text up to its zero, which is not part of it; `most` bytes with the zero.
pub(super) fn get_text(at: u64, most: usize) -> Result<Vec<u8>, Errno> {
    let mut text = Vec::new();
    let mut piece = [0; 256];
    while text.len() < most {
        // Pieces end with a page: what lies behind the zero need not be there.
        let from = at.wrapping_add(text.len() as u64);
        let room = (4096 - (from as usize & 4095)).min(piece.len()).min(most - text.len());
        let count = reach::get(&mut piece[..room], from);
        let found = &piece[..count];
        if let Some(end) = found.iter().position(|byte| *byte == 0) {
            text.extend_from_slice(&found[..end]);
            return Ok(text);
        }
        if count < room {
            return Err(FAULT);
        }
        text.extend_from_slice(found);
    }
    Err(Errno(ENAMETOOLONG))
}
/// Takes a path.
pub(super) fn get_path(at: u64) -> Result<Vec<u8>, Errno> {
    get_text(at, 4096)
}
