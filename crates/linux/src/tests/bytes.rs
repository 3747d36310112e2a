//! Bytes of files: what `pread` and `pwrite` move, and what is cleared inside of pages.

use super::shared::{F, load, show};
use super::*;
use alloc::vec;
use foliant_sim::Rng;
use linux_raw_sys::errno::{EFBIG, EIO};

const PUNCH: u32 = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
const SHARED: u32 = MAP_SHARED | MAP_FIXED;

fn made<'a, 'm>(process: &P<'a, 'm>, bytes: u64) -> F<'a, 'm> {
    let file = F::memfd(process.manager(), b"f", MFD_ALLOW_SEALING).unwrap();
    assert_eq!(file.ftruncate(bytes as i64), Ok(0));
    file
}
/// What it has from an offset on, at most so many bytes.
fn got(file: &F<'_, '_>, offset: u64, bytes: usize) -> Vec<u8> {
    let mut buffer = vec![0xee; bytes];
    let count = file.pread(&mut buffer, offset as i64).unwrap();
    assert!(buffer[count as usize..].iter().all(|byte| *byte == 0xee), "no more than it says");
    buffer.truncate(count as usize);
    buffer
}
fn pages(file: &F<'_, '_>, p: &P<'_, '_>) -> u64 {
    p.manager().object_pages(file.object()).unwrap().get()
}

#[test]
fn a_read_ends_with_the_file_and_makes_no_page_of_a_hole() {
    with(|p, sim| {
        let file = made(p, PAGE + 5);
        assert_eq!(got(&file, 0, 3 * PAGE as usize), vec![0; PAGE as usize + 5]);
        assert_eq!((got(&file, PAGE + 5, 9), got(&file, 9 * PAGE, 9)), (vec![], vec![]));
        assert_eq!((got(&file, 0, 0), pages(&file, p)), (vec![], 0));
        show(p, (0, 2), (&file, 0), SHARED);
        assert_eq!(store(p, sim, BASE + PAGE + 4, 7), Ok(()));
        assert_eq!(store(p, sim, BASE + PAGE + 5, 8), Ok(()), "behind the end, in its page");
        assert_eq!(got(&file, PAGE - 2, 9), [0, 0, 0, 0, 0, 0, 7]);
        assert_eq!(pages(&file, p), 1);
    });
}

#[test]
fn a_write_makes_pages_and_takes_the_length_along() {
    with(|p, sim| {
        let file = made(p, 10);
        show(p, (0, 4), (&file, 0), SHARED);
        let text: Vec<u8> = (0..PAGE as usize + 20).map(|nth| (nth % 251) as u8 + 1).collect();
        assert_eq!(file.pwrite(&text, PAGE as i64 - 3), Ok(text.len() as u64));
        assert_eq!((file.bytes(), pages(&file, p)), (2 * PAGE + 17, 3));
        assert_eq!(got(&file, PAGE - 3, 9000), text);
        assert_eq!(load(p, sim, BASE + PAGE), Ok(4), "who maps it finds it");
        assert_eq!(load(p, sim, BASE + PAGE - 4), Ok(0));
        assert_eq!(file.pwrite(&[], 9 * PAGE as i64), Ok(0), "nothing changes nothing");
        assert_eq!(file.pwrite(&[9], 0), Ok(1));
        assert_eq!(file.bytes(), 2 * PAGE + 17, "a write inside of it");
        let far = 40 * PAGE;
        assert_eq!(file.pwrite(&[5], far as i64), Ok(1));
        assert_eq!((file.bytes(), pages(&file, p)), (far + 1, 4), "what lies between is a hole");
    });
}

#[test]
fn offsets_are_looked_at_as_linux_does() {
    with(|p, _| {
        let file = made(p, PAGE);
        let inval = Err(Errno::INVAL);
        for (offset, bytes, read, written) in [
            (-1, 0, inval, inval),
            (i64::MIN, 1, inval, inval),
            (i64::MAX, 1, inval, inval),
            (i64::MAX, 0, Ok(0), Ok(0)),
            (i64::MAX - 5, 6, inval, inval),
            (i64::MAX - 6, 6, Ok(0), Err(Errno(EFBIG))),
            (1 << 47, 1, Ok(0), Err(Errno(EFBIG))),
            (0, 4, Ok(4), Ok(4)),
        ] {
            assert_eq!(file.pread(&mut vec![0; bytes], offset), read, "{bytes} from {offset:#x}");
            assert_eq!(file.pwrite(&vec![0; bytes], offset), written, "{bytes} to {offset:#x}");
        }
        assert_eq!(file.bytes(), PAGE);
        assert_eq!(p.manager().object_room(file.object()), Some(Pages::new(1)), "none is left");
        assert_eq!(file.ftruncate(i64::MAX), Ok(0));
        assert_eq!(got(&file, 1 << 50, 3), [0; 3], "a hole however far");
    });
}

#[test]
fn a_seal_lets_those_pages_be_written_that_end_within_the_length() {
    with(|p, _| {
        let (file, perm) = (made(p, 5000), Err(Errno::PERM));
        file.add_seals(F_SEAL_GROW).unwrap();
        for (bytes, offset, answer) in [
            (2000, 4000, Ok(96)),
            (200, 4900, perm),
            (100, 4900, Ok(100)),
            (10, 6000, perm),
            (0, 6000, Ok(0)),
            (9000, 0, Ok(4096)),
        ] {
            assert_eq!(file.pwrite(&vec![3; bytes], offset), answer, "{bytes} to {offset}");
        }
        assert_eq!((file.bytes(), got(&file, 0, 9000).len()), (5000, 5000));
        assert_eq!(got(&file, 4096, 904), [vec![0; 804], vec![3; 100]].concat());
        for seal in [F_SEAL_FUTURE_WRITE, F_SEAL_WRITE] {
            let file = made(p, PAGE);
            file.add_seals(seal).unwrap();
            assert_eq!((file.pwrite(&[1], 0), file.pwrite(&[], 0)), (perm, Ok(0)));
        }
    });
}

#[test]
fn what_is_broken_or_does_not_fit_ends_a_call_after_what_was_moved() {
    with(|p, _| {
        let file = made(p, 0);
        assert_eq!(file.pwrite(&vec![1; 3 * PAGE as usize], 0), Ok(3 * PAGE));
        let mm = p.manager();
        let broken = mm.object_page(file.object(), Pages::new(1), Access::Read).unwrap().unwrap();
        mm.poison(broken.frame());
        drop(broken);
        let eio = Err(Errno(EIO));
        let mut buffer = vec![0; 2 * PAGE as usize];
        assert_eq!(file.pread(&mut buffer, 10), Ok(PAGE - 10));
        assert_eq!(file.pread(&mut buffer, PAGE as i64), eio);
        assert_eq!(file.pwrite(&buffer, 10), Ok(PAGE - 10));
        assert_eq!(file.pwrite(&buffer, PAGE as i64), eio);
        // Memory of 64 MiB ends before these, and the length stays at what was written.
        let large = made(p, 0);
        let written = large.pwrite(&vec![1; 80 << 20], 7).unwrap();
        assert!(written > 32 << 20 && (written + 7).is_multiple_of(PAGE), "{written:#x}");
        assert_eq!(large.bytes(), written + 7);
        assert_eq!(large.pwrite(&[1], written as i64 + 7), Err(Errno::NOMEM));
        assert_eq!(large.bytes(), written + 7);
        let room = mm.object_room(large.object()).unwrap();
        assert_eq!(room.get(), (written + 7) / PAGE, "nor is there room for more");
    });
}

/// What a program has of a buffer is moved, also within a page; without any of it nothing happens.
#[test]
fn a_buffer_that_is_out_of_reach_ends_a_call_after_what_was_moved() {
    with(|p, _| {
        let file = made(p, PAGE + 50);
        file.pwrite(&[7; 10], PAGE as i64 - 5).unwrap();
        // The first so many bytes of a buffer can be reached.
        let get = |end: u64| {
            move |at: u64, bytes: &mut [u8]| {
                let count = end.saturating_sub(at).min(bytes.len() as u64) as usize;
                (at..).zip(&mut bytes[..count]).for_each(|(at, byte)| *byte = 1 + at as u8);
                count
            }
        };
        let fault = Err(Errno::FAULT);
        assert_eq!(file.pwrite_from(20, PAGE as i64 - 5, get(0)), fault);
        assert_eq!(got(&file, PAGE - 5, 10), [7; 10], "nothing was written");
        assert_eq!(file.pwrite_from(20, PAGE as i64 - 5, get(8)), Ok(8));
        assert_eq!(got(&file, PAGE - 5, 10), [1, 2, 3, 4, 5, 6, 7, 8, 7, 7]);
        assert_eq!(file.pwrite_from(20, PAGE as i64 - 5, get(5)), Ok(5), "as far as the page");
        assert_eq!(file.pwrite_from(3, PAGE as i64 + 49, get(2)), Ok(2));
        assert_eq!(file.bytes(), PAGE + 51, "as long as what was written");
        assert_eq!(file.pwrite_from(3, 3 * PAGE as i64, get(0)), fault);
        assert_eq!((file.bytes(), pages(&file, p)), (PAGE + 51, 2));
        file.add_seals(F_SEAL_WRITE).unwrap();
        assert_eq!(file.pwrite_from(3, 0, get(0)), fault, "before the seal is seen");
        let mut seen = Vec::new();
        let mut put = |end: usize, offset: u64| {
            seen.clear();
            let done = file.pread_to(20, offset as i64, |at, bytes| {
                assert_eq!(at as usize, seen.len());
                let count = (end - seen.len()).min(bytes.len());
                seen.extend_from_slice(&bytes[..count]);
                count
            });
            (done, seen.clone())
        };
        assert_eq!(put(0, PAGE - 5), (fault, vec![]));
        assert_eq!(put(7, PAGE - 5), (Ok(7), (1..8).collect()));
        assert_eq!(put(20, PAGE + 49), (Ok(2), vec![1, 2]), "the end comes first");
        assert_eq!(put(0, PAGE + 51), (Ok(0), vec![]));
    });
}

#[test]
fn lengths_and_holes_clear_what_they_cut_of_a_page() {
    with(|p, sim| {
        let file = made(p, 3 * PAGE);
        show(p, (0, 3), (&file, 0), SHARED);
        let fill = || file.pwrite(&vec![1; file.bytes() as usize], 0).unwrap();
        let at = |p: &mut P<'_, '_>, byte: u64| load(p, sim, BASE + byte).unwrap();
        fill();
        assert_eq!(file.fallocate(PUNCH, 100, 50), Ok(0));
        assert_eq!([99, 100, 149, 150].map(|byte| at(p, byte)), [1, 0, 0, 1], "inside of one");
        fill();
        assert_eq!(file.fallocate(PUNCH, 4000, 4200), Ok(0));
        assert_eq!([3999, 4000, 4095, 8199, 8200].map(|byte| at(p, byte)), [1, 0, 0, 0, 1]);
        assert_eq!(pages(&file, p), 2, "the one between is gone");
        fill();
        assert_eq!(file.ftruncate(2 * PAGE as i64 + 7), Ok(0));
        assert_eq!([8198, 8199, 12287].map(|byte| at(p, byte)), [1, 0, 0], "who maps it sees it");
        assert_eq!(file.ftruncate(3 * PAGE as i64), Ok(0));
        assert_eq!(got(&file, 8198, 3), [1, 0, 0], "and so does who makes it longer");
        // What was written behind the end stays where the file becomes longer, as in Linux.
        assert_eq!(file.ftruncate(2 * PAGE as i64 + 7), Ok(0));
        assert_eq!(store(p, sim, BASE + 8200, 5), Ok(()));
        assert_eq!(file.ftruncate(2 * PAGE as i64 + 100), Ok(0));
        assert_eq!(got(&file, 8198, 3), [1, 0, 5]);
        assert_eq!(store(p, sim, BASE + 8300, 5), Ok(()));
        assert_eq!(file.ftruncate(2 * PAGE as i64 + 100), Ok(0), "the same length clears it");
        assert_eq!(at(p, 8300), 0);
        // Holes are looked for behind the end too.
        assert_eq!(store(p, sim, BASE + 8300, 5), Ok(()));
        assert_eq!(file.fallocate(PUNCH, 8296, 1), Ok(0));
        assert_eq!(at(p, 8300), 5);
        assert_eq!(file.fallocate(PUNCH, 8299, 9 * PAGE as i64), Ok(0));
        assert_eq!((at(p, 8300), file.bytes()), (0, 2 * PAGE + 100));
    });
}

/// A file as bytes: those of its pages behind the end too.
struct Twin {
    bytes: Vec<u8>,
    length: usize,
}

const TWIN_PAGES: u64 = 6;

impl Twin {
    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.length = self.length.max(at + bytes.len());
    }
    fn clear(&mut self, from: usize, to: usize) {
        let to = to.min(self.bytes.len());
        self.bytes[from.min(to)..to].fill(0);
    }
}

#[test]
fn a_file_is_as_a_vector_of_bytes() {
    with(|p, sim| {
        let mut draw = Rng::new(7, 1);
        let file = made(p, 0);
        let all = (TWIN_PAGES * PAGE) as usize;
        let mut twin = Twin { bytes: vec![0; all], length: 0 };
        show(p, (0, TWIN_PAGES), (&file, 0), SHARED);
        for nth in 0..3000u64 {
            let near = [0, 1, 7, 8, 100, 4095, 4090][draw.below(7) as usize];
            let at = ((draw.below(TWIN_PAGES) * PAGE + near) as usize).min(all - 1);
            let bytes = [1, 3, 8, 90, 4096, 5000][draw.below(6) as usize].min(all - at);
            let text: Vec<u8> = (0..bytes).map(|byte| (byte as u64 + nth) as u8 | 1).collect();
            match draw.below(6) {
                0 => {
                    assert_eq!(file.pwrite(&text, at as i64), Ok(bytes as u64));
                    twin.write(at, &text);
                }
                1 => {
                    assert_eq!(file.ftruncate(at as i64), Ok(0));
                    if at <= twin.length {
                        twin.clear(at, all);
                    }
                    twin.length = at;
                }
                2 => {
                    assert_eq!(file.fallocate(PUNCH, at as i64, bytes as i64), Ok(0));
                    twin.clear(at, at + bytes);
                }
                3 => {
                    let done = store(p, sim, BASE + at as u64, text[0]);
                    let is_there = at < twin.length.next_multiple_of(PAGE as usize);
                    assert_eq!(done.is_ok(), is_there);
                    if is_there {
                        twin.bytes[at] = text[0];
                    }
                }
                _ => {
                    let end = (at + bytes).min(twin.length).max(at);
                    assert_eq!(got(&file, at as u64, bytes), twin.bytes[at..end], "step {nth}");
                }
            }
            assert_eq!(file.bytes(), twin.length as u64);
        }
    });
}
