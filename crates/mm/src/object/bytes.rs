//! Bytes of a page of an object, for the kernel: read and written through the direct map.
//!
//! Programs may use the page meanwhile. It is gone over word by word, each in one access, so each
//! byte that is read is there at some moment of the call, and of a word of which a part is written
//! no byte is lost that a program writes beside that part.
#![allow(unsafe_code)]

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

/// The parts of words that the bytes of a page from `at` on lie in, up to its end: which word,
/// which byte of it, and how many bytes.
fn parts(at: Bytes, bytes: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    let mut at = (at.get().min(FRAME_BYTES)) as usize;
    let end = at.saturating_add(bytes).min(FRAME_BYTES as usize);
    core::iter::from_fn(move || {
        let lane = at % WORD;
        let count = (WORD - lane).min(end - at);
        let part = (at / WORD, lane, count);
        at += count;
        (count > 0).then_some(part)
    })
}

/// Reads bytes of a page from `at` on into `into`, up to the page's end.
pub(crate) fn read<M: Machine>(machine: &M, frame: Frame, at: Bytes, into: &mut [u8]) {
    let (words, mut done) = (words(machine, frame), 0);
    for (word, lane, count) in parts(at, into.len()) {
        let word = words[word].load(Ordering::Relaxed).to_ne_bytes();
        into[done..done + count].copy_from_slice(&word[lane..lane + count]);
        done += count;
    }
}

/// Writes `bytes` to a page from `at` on, up to the page's end.
pub(crate) fn write<M: Machine>(machine: &M, frame: Frame, at: Bytes, bytes: &[u8]) {
    let (words, mut done) = (words(machine, frame), 0);
    for (word, lane, count) in parts(at, bytes.len()) {
        let new = &bytes[done..done + count];
        done += count;
        if let Ok(whole) = <[u8; WORD]>::try_from(new) {
            words[word].store(u64::from_ne_bytes(whole), Ordering::Relaxed);
            continue;
        }
        let put = |old: u64| {
            let mut all = old.to_ne_bytes();
            all[lane..lane + count].copy_from_slice(new);
            Some(u64::from_ne_bytes(all))
        };
        let done = words[word].fetch_update(Ordering::Relaxed, Ordering::Relaxed, put);
        debug_assert!(done.is_ok(), "it is put in any case");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_words_follow_each_other_and_end_with_the_page() {
        for (at, bytes, wanted) in [
            (0, 8, vec![(0, 0, 8)]),
            (3, 2, vec![(0, 3, 2)]),
            (6, 11, vec![(0, 6, 2), (1, 0, 8), (2, 0, 1)]),
            (16, 0, vec![]),
            (4091, 100, vec![(511, 3, 5)]),
            (4096, 1, vec![]),
            (u64::MAX, usize::MAX, vec![]),
        ] {
            let got: Vec<_> = parts(Bytes::new(at), bytes).collect();
            assert_eq!(got, wanted, "{bytes} from {at}");
        }
    }
}
