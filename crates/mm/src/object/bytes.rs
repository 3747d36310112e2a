//! Bytes of a page of an object, for the kernel: read and written through the direct map.
//!
//! Programs may use the page meanwhile. It is gone over word by word, each in one access, so each
//! byte that is read is there at some moment of the call, and of a word of which a part is written
//! no byte is lost that a program writes beside that part.
#![allow(unsafe_code)]

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use foliant_machine::Machine;
use foliant_units::{Bytes, FRAME_BYTES, Frame};

/// Bytes of a word.
const WORD: usize = 8;

/// The words of a page whose folio the caller keeps, as long as it keeps it.
fn words<M: Machine>(machine: &M, frame: Frame) -> &[AtomicU64] {
    // SAFETY: a folio that is kept stays allocated, and what is reached is used in single-copy
    // atomic words.
    let first = unsafe { machine.reach(frame.pa(), Bytes::new(FRAME_BYTES)) }.cast::<AtomicU64>();
    // SAFETY: a page of aligned words, all reached just now; the machine's pointers are stable.
    unsafe { core::slice::from_raw_parts(first.as_ptr(), FRAME_BYTES as usize / WORD) }
}

/// Where bytes of a page lie: a part of a word, whole words, and a part of a word.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Lanes {
    /// Which word, and which bytes of it; empty where they begin with a whole one.
    head: (usize, Range<usize>),
    whole: Range<usize>,
    /// As the head, from the word's first byte on.
    tail: (usize, Range<usize>),
}

impl Lanes {
    /// Those of so many bytes from `at` on, up to the page's end.
    fn of(at: Bytes, bytes: usize) -> Lanes {
        let at = at.get().min(FRAME_BYTES) as usize;
        let end = at.saturating_add(bytes).min(FRAME_BYTES as usize);
        let lane = at % WORD;
        let first = at.next_multiple_of(WORD).min(end.max(at));
        let head = if lane == 0 { 0..0 } else { lane..lane + (first - at) };
        let whole = at.div_ceil(WORD)..(end / WORD).max(at.div_ceil(WORD));
        let tail = end.saturating_sub(whole.end * WORD);
        Lanes { head: (at / WORD, head), tail: (whole.end, 0..tail), whole }
    }
}

/// Reads bytes of a page from `at` on into `into`, up to the page's end.
pub(crate) fn read<M: Machine>(machine: &M, frame: Frame, at: Bytes, into: &mut [u8]) {
    let (words, lanes) = (words(machine, frame), Lanes::of(at, into.len()));
    let part = |(word, bytes): &(usize, Range<usize>), to: &mut [u8]| {
        if !bytes.is_empty() {
            to.copy_from_slice(&words[*word].load(Ordering::Relaxed).to_ne_bytes()[bytes.clone()]);
        }
    };
    let (head, rest) = into.split_at_mut(lanes.head.1.len());
    part(&lanes.head, head);
    let (whole, rest) = rest.split_at_mut(lanes.whole.len() * WORD);
    let from = &words[lanes.whole];
    for (to, from) in whole.as_chunks_mut().0.iter_mut().zip(from) {
        *to = from.load(Ordering::Relaxed).to_ne_bytes();
    }
    part(&lanes.tail, &mut rest[..lanes.tail.1.len()]);
}

/// Writes `bytes` to a page from `at` on, up to the page's end.
pub(crate) fn write<M: Machine>(machine: &M, frame: Frame, at: Bytes, bytes: &[u8]) {
    let (words, lanes) = (words(machine, frame), Lanes::of(at, bytes.len()));
    let part = |(word, bytes): &(usize, Range<usize>), new: &[u8]| {
        if bytes.is_empty() {
            return;
        }
        let put = |old: u64| {
            let mut all = old.to_ne_bytes();
            all[bytes.clone()].copy_from_slice(new);
            Some(u64::from_ne_bytes(all))
        };
        let done = words[*word].fetch_update(Ordering::Relaxed, Ordering::Relaxed, put);
        debug_assert!(done.is_ok(), "it is put in any case");
    };
    let (head, rest) = bytes.split_at(lanes.head.1.len());
    part(&lanes.head, head);
    let (whole, rest) = rest.split_at(lanes.whole.len() * WORD);
    let to = &words[lanes.whole];
    for (from, to) in whole.as_chunks().0.iter().zip(to) {
        to.store(u64::from_ne_bytes(*from), Ordering::Relaxed);
    }
    part(&lanes.tail, &rest[..lanes.tail.1.len()]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_words_follow_each_other_and_end_with_the_page() {
        for (at, bytes, head, whole, tail) in [
            (0, 8, (0, 0..0), 0..1, (1, 0..0)),
            (3, 2, (0, 3..5), 1..1, (1, 0..0)),
            (6, 11, (0, 6..8), 1..2, (2, 0..1)),
            (16, 0, (2, 0..0), 2..2, (2, 0..0)),
            (17, 0, (2, 1..1), 3..3, (3, 0..0)),
            (4091, 100, (511, 3..8), 512..512, (512, 0..0)),
            (4096, 1, (512, 0..0), 512..512, (512, 0..0)),
            (u64::MAX, usize::MAX, (512, 0..0), 512..512, (512, 0..0)),
        ] {
            let wanted = Lanes { head, whole, tail };
            assert_eq!(Lanes::of(Bytes::new(at), bytes), wanted, "{bytes} from {at}");
        }
        // Every byte is of one part.
        for at in 4070..4096usize {
            for bytes in 0..40 {
                let it = Lanes::of(Bytes::new(at as u64), bytes);
                let count = it.head.1.len() + it.whole.len() * WORD + it.tail.1.len();
                assert_eq!(count, bytes.min(4096 - at), "{bytes} from {at}: {it:?}");
            }
        }
    }
}
