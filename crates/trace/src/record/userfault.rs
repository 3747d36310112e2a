//! Memory that the program fills itself: what calls of userfaultfd do.
//!
//! A call's structure says which range it is about, and behind the call how far it came. What fills
//! pages becomes [`EventKind::Populate`]; what changes how a range faults becomes advice of numbers
//! that the kernel has not (as for locks).
//!
//! **Not here**: shared memory, and descriptors that act on another process's memory. Closing the
//! last descriptor ends everything; that is found at the next call that is followed.

use super::procfs;
use super::sys::pid_t;
use crate::event::{Access, EventKind, advice};
use foliant_units::VaRange;

/// What all requests have in their second byte.
pub(crate) const KIND: u32 = 0xaa00;
/// That byte.
pub(crate) const KIND_MASK: u32 = 0xff00;
/// The longest structure of a call that is read here.
pub(crate) const LONGEST: usize = 40;

const REGISTER: u64 = 0x00;
const UNREGISTER: u64 = 0x01;
const COPY: u64 = 0x03;
const ZEROPAGE: u64 = 0x04;
const MOVE: u64 = 0x05;
const WRITEPROTECT: u64 = 0x06;

/// Of a registration: missing pages, writes to protected ones.
const MISSING: u64 = 1;
const PROTECTED: u64 = 2;
/// Of a protection: it begins.
const BEGINS: u64 = 1;

/// When an event takes effect: what gives memory before the call, what takes it behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Before,
    Behind,
}

/// What a call with this request, this structure and this result did.
pub(crate) fn effects(
    request: u64,
    structure: &[u8; LONGEST],
    result: i64,
) -> Vec<(When, EventKind)> {
    let words = structure.as_chunks::<8>().0;
    let word = |nth: usize| words.get(nth).map_or(0, |word| u64::from_le_bytes(*word));
    let advise = |range, advice| EventKind::Advise { range, advice };
    // One that came half way says how far, in its last word.
    let done = |asked: u64, told: u64| match result {
        0 => asked,
        _ if result == -i64::from(libc::EAGAIN) && (told as i64) > 0 => told.min(asked),
        _ => 0,
    };
    let range = procfs::sized;
    let fill = |range, access| (When::Before, EventKind::Populate { range, access });
    let mut all = Vec::new();
    match request & 0xff {
        REGISTER if result == 0 => {
            let (range, mode) = (range(word(0), word(1)), word(2));
            let kinds = [(MISSING, advice::FILLED), (PROTECTED, advice::WATCHED)];
            let asked = kinds.into_iter().filter(|(bit, _)| mode & bit != 0);
            all.extend(asked.map(|(_, number)| (When::Behind, advise(range, number))));
        }
        UNREGISTER if result == 0 => {
            all.push((When::Behind, advise(range(word(0), word(1)), advice::UNWATCHED)));
        }
        COPY => all.push(fill(range(word(0), done(word(2), word(4))), Access::Write)),
        ZEROPAGE => all.push(fill(range(word(0), done(word(1), word(3))), Access::Read)),
        MOVE => {
            let bytes = done(word(2), word(4));
            all.push(fill(range(word(0), bytes), Access::Write));
            all.push((When::Behind, advise(range(word(1), bytes), advice::DONTNEED)));
        }
        WRITEPROTECT if result == 0 => {
            let range = range(word(0), word(1));
            all.push(if word(2) & BEGINS != 0 {
                (When::Behind, advise(range, advice::WRITE_PROTECT))
            } else {
                (When::Before, advise(range, advice::WRITE_ALLOW))
            });
        }
        _ => {}
    }
    all.retain(|(_, event)| !range_of(event).is_empty());
    all
}

fn range_of(event: &EventKind) -> VaRange {
    match event {
        EventKind::Populate { range, .. } | EventKind::Advise { range, .. } => *range,
        _ => VaRange::default(),
    }
}

/// Whether a descriptor of the process is one of these.
pub(crate) fn is_open(pid: pid_t, fd: u64) -> bool {
    let name = std::fs::read_link(format!("/proc/{pid}/fd/{fd}")).unwrap_or_default();
    name.to_string_lossy() == "anon_inode:[userfaultfd]"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(request: u64, words: [u64; 5], result: i64) -> Vec<(When, EventKind)> {
        let mut structure = [0; LONGEST];
        for (place, word) in structure.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        effects(0xc028_aa00 | request, &structure, result)
    }

    #[test]
    fn calls_that_fill_say_how_far_they_came() {
        let again = -i64::from(libc::EAGAIN);
        let filled = |bytes: u64| {
            let (range, access) = (procfs::pages(0x10000, 0x10000 + bytes), Access::Write);
            vec![(When::Before, EventKind::Populate { range, access })]
        };
        assert_eq!(call(COPY, [0x10000, 0x90000, 0x4000, 0, 0], 0), filled(0x4000));
        assert_eq!(call(COPY, [0x10000, 0x90000, 0x4000, 0, 0x1000], again), filled(0x1000));
        assert_eq!(call(COPY, [0x10000, 0x90000, 0x4000, 0, u64::MAX], again), []);
        assert_eq!(call(COPY, [0x10000, 0x90000, 0x4000, 0, 0], -17), []);
        let range = procfs::pages(0x10000, 0x14000);
        let zeros = EventKind::Populate { range, access: Access::Read };
        assert_eq!(call(ZEROPAGE, [0x10000, 0x4000, 0, 0, 0], 0), [(When::Before, zeros)]);
        let moved = call(MOVE, [0x10000, 0x90000, 0x4000, 0, 0], 0);
        let range = procfs::pages(0x90000, 0x94000);
        let gone = EventKind::Advise { range, advice: advice::DONTNEED };
        assert_eq!(moved, [filled(0x4000)[0].clone(), (When::Behind, gone)]);
        assert_eq!(call(COPY, [u64::MAX, 0, u64::MAX, 0, 0], 0), [], "no range of a user's");
    }

    #[test]
    fn registrations_say_what_is_to_be_told() {
        let numbers = |calls: Vec<(When, EventKind)>| {
            let number = |(when, event)| match event {
                EventKind::Advise { advice, .. } => (when, advice),
                other => panic!("{other:?}"),
            };
            calls.into_iter().map(number).collect::<Vec<_>>()
        };
        let register =
            |mode, result| numbers(call(REGISTER, [0x10000, 0x4000, mode, 0, 0], result));
        assert_eq!(register(MISSING, 0), [(When::Behind, advice::FILLED)]);
        assert_eq!(register(PROTECTED, 0), [(When::Behind, advice::WATCHED)]);
        assert_eq!(register(MISSING | PROTECTED, 0).len(), 2);
        assert_eq!(register(MISSING, -22), []);
        let rest = |request, mode| numbers(call(request, [0x10000, 0x4000, mode, 0, 0], 0));
        assert_eq!(rest(UNREGISTER, 0), [(When::Behind, advice::UNWATCHED)]);
        assert_eq!(rest(WRITEPROTECT, BEGINS), [(When::Behind, advice::WRITE_PROTECT)]);
        assert_eq!(rest(WRITEPROTECT, 0), [(When::Before, advice::WRITE_ALLOW)]);
    }
}
