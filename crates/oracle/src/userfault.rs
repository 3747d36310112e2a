//! Requests to a descriptor of `userfaultfd`, which the first process of a sequence has.
//!
//! Its faults end with a signal (`UFFD_FEATURE_SIGBUS`), so no thread waits for another one. A
//! child is not armed, and its requests would be about its parent's memory: it makes none.

use foliant_linux::raw::general::{
    _UFFDIO_API, _UFFDIO_CONTINUE, _UFFDIO_COPY, _UFFDIO_MOVE, _UFFDIO_POISON, _UFFDIO_REGISTER,
    _UFFDIO_UNREGISTER, _UFFDIO_WAKE, _UFFDIO_WRITEPROTECT, _UFFDIO_ZEROPAGE, O_CLOEXEC, UFFD_API,
    UFFD_FEATURE_PAGEFAULT_FLAG_WP, UFFD_FEATURE_SIGBUS, UFFD_USER_MODE_ONLY,
};

/// The flags that its descriptor is made with.
pub(crate) const FLAGS: u32 = O_CLOEXEC | UFFD_USER_MODE_ONLY;
/// What `UFFDIO_API` is asked for.
pub(crate) const FEATURES: u64 = UFFD_FEATURE_SIGBUS as u64 | UFFD_FEATURE_PAGEFAULT_FLAG_WP as u64;

/// A request as Linux takes it.
pub(crate) struct Request {
    /// The number of the `ioctl`.
    pub(crate) number: u64,
    /// Its structure.
    pub(crate) words: Vec<u64>,
    /// Which of these is told how much was filled.
    pub(crate) told: Option<usize>,
}

impl Request {
    /// The first one, for [`FEATURES`].
    pub(crate) fn api() -> Request {
        Request::of(_UFFDIO_API, vec![UFFD_API.into(), FEATURES, 0], None)
    }
    /// One that was drawn: what, from where on, how many bytes, and how. A copy is of what lies at
    /// the first of the sources, and pages are moved from the second.
    pub(crate) fn drawn([what, start, len, mode]: [u64; 4], sources: [u64; 2]) -> Request {
        let what = what as u32;
        let (words, told) = match what {
            _UFFDIO_REGISTER => (vec![start, len, mode, 0], None),
            _UFFDIO_COPY => (vec![start, sources[0], len, mode, 0], Some(4)),
            _UFFDIO_MOVE => (vec![start, sources[1], len, mode, 0], Some(4)),
            _UFFDIO_ZEROPAGE | _UFFDIO_CONTINUE | _UFFDIO_POISON => {
                (vec![start, len, mode, 0], Some(3))
            }
            _UFFDIO_WRITEPROTECT => (vec![start, len, mode], None),
            _ => (vec![start, len], None),
        };
        Request::of(what, words, told)
    }
    fn of(what: u32, words: Vec<u64>, told: Option<usize>) -> Request {
        let is_written = !matches!(what, _UFFDIO_UNREGISTER | _UFFDIO_WAKE);
        let direction = if is_written { 3 } else { 2 };
        let bytes = 8 * words.len() as u64;
        let number = direction << 30 | bytes << 16 | 0xaa << 8 | u64::from(what);
        Request { number, words, told }
    }
}
