//! `/proc/kpageflags` and `/proc/kpagecount`: a word for each frame.
//!
//! ```text
//!   kpageflags   bits: UPTODATE 3, BUDDY 10, MMAP 11, ANON 12, SWAPBACKED 14, COMPOUND_HEAD 15,
//!                COMPOUND_TAIL 16, HUGE 17, HWPOISON 19, NOPAGE 20, THP 22
//!   kpagecount   how many entries map the page
//! ```
//!
//! The bits that stay with a frame are the manager's to know
//! ([`kpageflags`](foliant::frame::Identity::kpageflags)). Words of frames that are changed
//! meanwhile are each as at some moment of the call.
//!
//! **Not here**: who may read the files: on Linux root alone.

use crate::errno::Errno;
use foliant::Manager;
use foliant::folio::FrameState;
use foliant::frame::Kind;
use foliant::table::Paging;
use foliant_machine::Machine;
use foliant_units::Frame;

/// Bytes of a word.
const WORD: u64 = 8;

// Linux's numbers (`kernel-page-flags.h`), which the crate `linux-raw-sys` does not have.
const UPTODATE: u64 = 1 << 3;
const BUDDY: u64 = 1 << 10;
const MMAP: u64 = 1 << 11;
const SWAPBACKED: u64 = 1 << 14;
const NOPAGE: u64 = 1 << 20;

/// Reads `/proc/kpageflags` from `offset` on, in bytes: a word for each frame. Says how many words
/// were read: fewer where memory ends.
pub fn kpageflags<M: Machine, P: Paging>(
    mm: &Manager<'_, M, P>,
    offset: u64,
    words: &mut [u64],
) -> Result<usize, Errno> {
    read(mm, offset, words, |frame| {
        let identity = mm.identity(frame);
        let more = match (mm.folios().state(frame), identity.kind()) {
            (FrameState::Foreign, _) => NOPAGE,
            (FrameState::Free, Kind::Plain) => BUDDY,
            // What nobody maps is given back.
            (_, Kind::Anon | Kind::Tail) => UPTODATE | MMAP | SWAPBACKED,
            _ => 0,
        };
        identity.kpageflags() | more
    })
}

/// Reads `/proc/kpagecount` in the same way.
pub fn kpagecount<M: Machine, P: Paging>(
    mm: &Manager<'_, M, P>,
    offset: u64,
    words: &mut [u64],
) -> Result<usize, Errno> {
    read(mm, offset, words, |frame| mm.page_mappings(frame).unwrap_or(0))
}

fn read<M: Machine, P: Paging>(
    mm: &Manager<'_, M, P>,
    offset: u64,
    words: &mut [u64],
    word: impl Fn(Frame) -> u64,
) -> Result<usize, Errno> {
    if !offset.is_multiple_of(WORD) {
        return Err(Errno::INVAL);
    }
    let (first, end) = (offset / WORD, mm.folios().end().get());
    let mut count = 0;
    for (nth, place) in (first..end).zip(words) {
        *place = word(Frame::new(nth));
        count += 1;
    }
    Ok(count)
}
