//! What a loader and a firmware leave in memory: the input is the memory, from address 0 on.
//!
//! Whatever lies there, each reader ends with a value. The ranges are compared with a map that has a place for each of the
//! lowest frames, and an allocator takes them.
#![no_main]

use foliant::folio::{CpuCount, Folios, Word};
use foliant_units::{Bytes, FRAME_BYTES, Frame, Pa};
use foliant_x86::ApicId;
use foliant_x86::boot::{Entry, Given, Info, PowerTimer, Ranges, cpus};
use libfuzzer_sys::fuzz_target;

/// What is mapped, in frames: all that the naive map has places for.
const BELOW: u64 = 2048;
/// The firmware's own, in frames.
const ABOVE: u64 = 16;

#[derive(Clone, Copy)]
struct Image<'a>(&'a [u8]);

impl<'a> Given<'a> for Image<'a> {
    fn bytes(self, at: Pa, bytes: Bytes) -> Option<&'a [u8]> {
        let end = at.get().checked_add(bytes.get())?;
        self.0.get(usize::try_from(at.get()).ok()?..usize::try_from(end).ok()?)
    }
}

fuzz_target!(|data: &[u8]| {
    let mut list = [ApicId(0); 4];
    let Some(info) = Info::read(Image(data), Pa::new(0)) else {
        // The firmware's tables alone: each CPU takes at least two bytes.
        let found = cpus(Image(data), Pa::new(0), ApicId(0), &mut list);
        assert!((1..=1 + data.len() / 2).contains(&found));
        let _ = PowerTimer::find(Image(data), Pa::new(0));
        return;
    };
    assert!(info.command_line().len() < data.len());
    if let Some((at, module)) = info.module() {
        assert_eq!(Image(data).bytes(at, Bytes::new(module.len() as u64)), Some(module));
    }
    let _ = PowerTimer::find(Image(data), info.rsdp());
    let found = cpus(Image(data), info.rsdp(), ApicId(9), &mut list).min(list.len());
    assert_eq!(list[0], ApicId(9));
    assert!((0..found).all(|n| !list[..n].contains(&list[n])), "{list:?}");
    if let Ok(entries) = info.entries() {
        ranges(entries);
    }
});

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
