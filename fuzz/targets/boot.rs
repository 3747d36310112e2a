//! What a loader and a firmware leave in memory: the input is the memory, from address 0 on, and
//! its last byte says whether a part of it lies elsewhere: in the firmware's area, at the very end
//! of all addresses, or behind a hole.
//!
//! Whatever lies there, each reader ends with a value, soon, and reads nothing that is not mapped.
//! The ranges are compared with a map that has a place for each of the lowest frames, and an
//! allocator takes them.
#![no_main]

use foliant::folio::{CpuCount, Folios, Word};
use foliant_units::{Bytes, FRAME_BYTES, Frame, Pa};
use foliant_x86::ApicId;
use foliant_x86::boot::{Entry, Given, Info, PowerTimer, Ranges, cpus};
use libfuzzer_sys::fuzz_target;
use std::cell::Cell;

/// What is mapped, in frames: all that the naive map has places for.
const BELOW: u64 = 2048;
/// The firmware's own, in frames.
const ABOVE: u64 = 16;

/// Where firmware of old leaves its root pointer, and how many places there are for it.
const AREA: u64 = 0xe_0000;
const PLACES: u64 = 0x2_0000 / 16;
/// Bytes of a hole.
const HOLE: u64 = 256;

/// A part of memory that is mapped.
#[derive(Clone, Copy)]
struct Part<'a> {
    start: u64,
    bytes: &'a [u8],
}

/// What is mapped, and how often somebody has asked.
#[derive(Clone, Copy)]
struct Image<'a>([Part<'a>; 2], &'a Cell<u64>);

impl<'a> Image<'a> {
    fn of(data: &'a [u8], asked: &'a Cell<u64>) -> Image<'a> {
        let (low, rest) = data.split_at(data.len() / 2);
        let (low, start) = match data.last().map_or(0, |how| how % 4) {
            0 => (data, u64::MAX),
            1 => (low, AREA),
            2 => (low, low.len() as u64 + HOLE),
            _ => (low, u64::MAX - rest.len() as u64),
        };
        Image([Part { start: 0, bytes: low }, Part { start, bytes: rest }], asked)
    }
    /// Whoever reads asks soon enough: three readers look for the root pointer, and each may look
    /// into every place for it, and at a table for each word.
    fn asks_little(self, len: usize) {
        let most = 3 * (2 * PLACES + len as u64 + 16);
        assert!(self.1.get() <= most, "{} questions about {len} bytes", self.1.get());
    }
}

impl<'a> Given<'a> for Image<'a> {
    fn bytes(self, at: Pa, bytes: Bytes) -> Option<&'a [u8]> {
        self.1.set(self.1.get() + 1);
        let within = |part: &Part<'a>| {
            let first = usize::try_from(at.get().checked_sub(part.start)?).ok()?;
            part.bytes.get(first..first.checked_add(usize::try_from(bytes.get()).ok()?)?)
        };
        self.0.iter().find_map(within)
    }
}

fuzz_target!(|data: &[u8]| {
    let asked = Cell::new(0);
    let image = Image::of(data, &asked);
    read(image, data.len());
});

fn read(image: Image<'_>, len: usize) {
    let mut list = [ApicId(0); 4];
    let Some(info) = Info::read(image, Pa::new(0)) else {
        // The firmware's tables alone: each CPU takes at least two bytes.
        let found = cpus(image, Pa::new(0), ApicId(0), &mut list);
        assert!((1..=1 + len / 2).contains(&found));
        let _ = PowerTimer::find(image, Pa::new(0));
        return image.asks_little(len);
    };
    assert!(info.command_line().len() < len);
    if let Some((at, module)) = info.module() {
        assert_eq!(image.bytes(at, Bytes::new(module.len() as u64)), Some(module));
    }
    let _ = PowerTimer::find(image, info.rsdp());
    let found = cpus(image, info.rsdp(), ApicId(9), &mut list).min(list.len());
    image.asks_little(len);
    assert_eq!(list[0], ApicId(9));
    assert!((0..found).all(|n| !list[..n].contains(&list[n])), "{list:?}");
    if let Ok(entries) = info.entries() {
        ranges(entries);
    }
}

fn ranges(entries: impl Iterator<Item = Entry> + Clone) {
    let pa = |frame| Frame::new(frame).pa();
    let ranges = Ranges::usable(entries.clone(), pa(ABOVE), pa(BELOW));
    let list = ranges.get();
    assert!(list.iter().all(|range| range.pages().get() > 0), "{list:?}");
    assert!(list.windows(2).all(|two| two[0].end() <= two[1].start()), "{list:?}");
    let listed = |frame| list.iter().any(|range| range.contains(Frame::new(frame)));
    let full = list.len() == Ranges::MAX;
    for frame in 0..BELOW {
        let usable = (ABOVE..BELOW).contains(&frame) && is_usable(entries.clone(), frame);
        // A full list leaves some out; it never has one that is not usable.
        let right = listed(frame) == usable || (full && usable);
        assert!(right || left_out(entries.clone()), "frame {frame:#x} in {list:?}");
        assert!(usable || !listed(frame), "frame {frame:#x} is not usable: {list:?}");
    }
    let wide = Ranges::usable(entries, pa(0), Pa::new(u64::MAX));
    // Up to a range that is larger than any memory, an allocator takes what it is given.
    if !list.is_empty() {
        let need = Folios::layout(list, CpuCount(1)).expect("good ranges");
        let lent: Vec<Word> = (0..need.0).map(|_| Word::new(0)).collect();
        let folios = Folios::new(list, CpuCount(1), &lent).expect("as the layout said");
        let frames: u64 = list.iter().map(|range| range.pages().get()).sum();
        assert_eq!(folios.free_frames().get(), frames);
    }
    assert!(wide.get().windows(2).all(|two| two[0].end() <= two[1].start()));
}

/// Whether all of a frame lies in usable memory, and none of it in anything else.
fn is_usable(entries: impl Iterator<Item = Entry> + Clone, frame: u64) -> bool {
    let (first, end) = (frame * FRAME_BYTES, (frame + 1) * FRAME_BYTES);
    let ends = |entry: &Entry| entry.start.get().saturating_add(entry.bytes.get());
    let touched =
        |entry: Entry| entry.bytes.get() > 0 && entry.start.get() < end && ends(&entry) > first;
    let holds = |entry: Entry| entry.start.get() <= first && ends(&entry) >= end;
    entries.clone().filter(Entry::is_ram).any(holds)
        && !entries.filter(|entry| !entry.is_ram()).any(touched)
}

/// Whether the list may have been full on the way.
fn left_out(entries: impl Iterator<Item = Entry>) -> bool {
    entries.count() > Ranges::MAX / 2
}
