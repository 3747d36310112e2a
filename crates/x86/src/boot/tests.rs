//! Maps and tables as loaders leave them, and as they should not.

use super::{Entry, Given, Info, NoMap, PowerTimer, Ranges, cpus};
use crate::ApicId;
use foliant_units::{Bytes, Frame, FrameRange, Pa, Pages};

extern crate std;
use std::vec::Vec;

/// Memory from address 0 on.
#[derive(Clone, Copy)]
struct Image<'a>(&'a [u8]);

impl<'a> Given<'a> for Image<'a> {
    fn bytes(self, at: Pa, bytes: Bytes) -> Option<&'a [u8]> {
        let end = at.get().checked_add(bytes.get())?;
        self.0.get(usize::try_from(at.get()).ok()?..usize::try_from(end).ok()?)
    }
}

fn put(image: &mut [u8], at: usize, bytes: &[u8]) {
    image[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Start information at 0x1000, its map at 0x2000, a module at 0x3000, the command line at 0x4000.
fn image() -> Vec<u8> {
    let mut image = std::vec![0; 0x6000];
    let head = [0x336e_c578u32, 1, 0, 1].map(u32::to_le_bytes).concat();
    put(&mut image, 0x1000, &head);
    put(&mut image, 0x1010, &[0x3000u64, 0x4000, 0x5000, 0x2000].map(u64::to_le_bytes).concat());
    put(&mut image, 0x1030, &2u32.to_le_bytes());
    put(&mut image, 0x2000, &[0x8000u64, 0x5000, 1].map(u64::to_le_bytes).concat());
    put(&mut image, 0x2018, &[0xf000u64, 0x1000, 2].map(u64::to_le_bytes).concat());
    put(&mut image, 0x3000, &[0x3100u64, 6].map(u64::to_le_bytes).concat());
    put(&mut image, 0x3100, b"module");
    put(&mut image, 0x4000, b"mode=tests\0");
    image
}

#[test]
fn start_information_is_read() {
    let image = image();
    let info = Info::read(Image(&image), Pa::new(0x1000)).unwrap();
    assert_eq!(info.command_line(), "mode=tests");
    assert_eq!(info.rsdp(), Pa::new(0x5000));
    assert_eq!(info.module(), Some((Pa::new(0x3100), &b"module"[..])));
    let entries: Vec<Entry> = info.entries().unwrap().collect();
    let entry =
        |start, bytes, kind| Entry { start: Pa::new(start), bytes: Bytes::new(bytes), kind };
    assert_eq!(entries, [entry(0x8000, 0x5000, 1), entry(0xf000, 0x1000, 2)]);
}

#[test]
fn what_is_not_there_is_absent() {
    let mut image = image();
    assert!(Info::read(Image(&image), Pa::new(0)).is_none(), "no magic");
    assert!(Info::read(Image(&image), Pa::new(0x5fe0)).is_none(), "over the end");
    assert!(Info::read(Image(&image), Pa::new(u64::MAX)).is_none());
    put(&mut image, 0x1018, &u64::MAX.to_le_bytes());
    put(&mut image, 0x1028, &(u64::MAX - 30).to_le_bytes());
    put(&mut image, 0x3008, &u64::MAX.to_le_bytes());
    let info = Info::read(Image(&image), Pa::new(0x1000)).unwrap();
    assert_eq!((info.command_line(), info.module()), ("", None));
    let mut none = self::image();
    put(&mut none, 0x100c, &0u32.to_le_bytes());
    let bare = Info::read(Image(&none), Pa::new(0x1000)).unwrap();
    assert_eq!(bare.module(), None, "a list without modules");
    // A list is 16 bytes, which may be the last ones.
    let mut at_the_end = self::image();
    put(&mut at_the_end, 0x1010, &0x5ff0u64.to_le_bytes());
    put(&mut at_the_end, 0x5ff0, &[0x3100u64, 6].map(u64::to_le_bytes).concat());
    let last = Info::read(Image(&at_the_end), Pa::new(0x1000)).unwrap();
    assert_eq!(last.module(), Some((Pa::new(0x3100), &b"module"[..])));
    assert_eq!(info.entries().err(), Some(NoMap::Unreadable { at: Pa::new(u64::MAX - 30) }));
}

#[test]
fn finding_x4_a_map_is_read_whole_or_not_at_all() {
    let mut image = image();
    let map = |image: &[u8]| {
        let info = Info::read(Image(image), Pa::new(0x1000)).unwrap();
        info.entries().map(|entries| entries.count())
    };
    assert_eq!(map(&image), Ok(2));
    put(&mut image, 0x1030, &0u32.to_le_bytes());
    assert_eq!(map(&image), Err(NoMap::Empty));
    put(&mut image, 0x1030, &5000u32.to_le_bytes());
    assert_eq!(map(&image), Err(NoMap::TooLong { entries: 5000 }));
    put(&mut image, 0x1030, &4096u32.to_le_bytes());
    assert_eq!(map(&image), Err(NoMap::Unreadable { at: Pa::new(0x2000) }), "as many as are read");
    // The last entry leaves memory.
    put(&mut image, 0x1030, &683u32.to_le_bytes());
    assert_eq!(map(&image), Err(NoMap::Unreadable { at: Pa::new(0x2000) }));
    put(&mut image, 0x1030, &682u32.to_le_bytes());
    assert_eq!(map(&image), Ok(682));
    put(&mut image, 0x1004, &[0]);
    assert_eq!(map(&image), Err(NoMap::Version0));
}

/// A loader may list each stretch that it reserves as an entry of its own: here the last one stands
/// behind more than 128 others.
#[test]
fn finding_x14_the_last_entry_reserves_like_the_first() {
    let mut image = image();
    for n in 0..200u64 {
        let (start, kind) = if n == 0 { (0x0, 1) } else { (n * 0x1000, 2) };
        let bytes = if n == 0 { 0x10_0000u64 } else { 0x1000 };
        put(
            &mut image,
            0x2000 + 24 * n as usize,
            &[start, bytes, kind].map(u64::to_le_bytes).concat(),
        );
    }
    put(&mut image, 0x1030, &200u32.to_le_bytes());
    let info = Info::read(Image(&image), Pa::new(0x1000)).unwrap();
    let ranges = Ranges::usable(info.entries().unwrap(), Pa::new(0x1000), Pa::new(0x10_0000));
    let part = FrameRange::new(Frame::new(200), Pages::new(56)).unwrap();
    assert_eq!(ranges.get(), [part]);
}

fn check(entries: &[(u64, u64, u32)], expected: &[(u64, u64)]) {
    let entries = entries.iter().map(|(start, bytes, kind)| Entry {
        start: Pa::new(*start),
        bytes: Bytes::new(*bytes),
        kind: *kind,
    });
    let ranges = Ranges::usable(entries, Pa::new(0x1000), Pa::new(0x10_0000));
    let got: Vec<(u64, u64)> =
        ranges.get().iter().map(|range| (range.start().get(), range.end().get())).collect();
    assert_eq!(got, expected);
}

#[test]
fn ranges_are_whole_frames_in_order_and_disjoint() {
    check(&[], &[]);
    check(&[(0x2000, 0x3000, 1)], &[(2, 5)]);
    check(&[(0x2001, 0x2fff, 1)], &[(3, 5)]);
    check(&[(0x2001, 0x1ffe, 1)], &[]);
    check(&[(0, u64::MAX, 1)], &[(1, 0x100)]);
    check(&[(u64::MAX, u64::MAX, 1)], &[]);
    check(&[(0x8000, 0x1000, 1), (0x2000, 0x1000, 1)], &[(2, 3), (8, 9)]);
    check(&[(0x2000, 0x1000, 1), (0x3000, 0x1000, 1)], &[(2, 4)]);
    check(&[(0x2000, 0x4000, 1), (0x3000, 0x1000, 1), (0x5000, 0x3000, 1)], &[(2, 8)]);
    check(&[(0x3000, 0x1000, 1), (0x2000, 0x1000, 1)], &[(2, 4)]);
    // A range that grows leaves the ranges behind it where they are.
    let grown = [(0x2000, 0x1000, 1), (0x8000, 0x1000, 1), (0x3000, 0x1000, 1)];
    check(&grown, &[(2, 4), (8, 9)]);
}

/// Loaders list a firmware's reserved stretches over usable memory, in any order.
#[test]
fn what_is_not_usable_is_cut_out() {
    check(&[(0x3800, 1, 2), (0x2000, 0x4000, 1)], &[(2, 3), (4, 6)]);
    check(&[(0x2000, 0x4000, 1), (0, 0x3000, 2)], &[(3, 6)]);
    check(&[(0x2000, 0x4000, 1), (0x2000, 0x4000, 5)], &[]);
    check(&[(0x2000, 0x4000, 1), (0x3000, 0, 2)], &[(2, 6)]);
    // The ranges behind a cut stay, and a cut that goes over two ranges takes from both.
    check(&[(0x2000, 0x3000, 1), (0x8000, 0x1000, 1), (0x3000, 1, 2)], &[(2, 3), (4, 5), (8, 9)]);
    check(&[(0x2000, 0x3000, 1), (0x6000, 0x3000, 1), (0x4000, 0x3000, 2)], &[(2, 4), (7, 9)]);
    check(&[(0x1000, 0x3000, 1), (0, 0x1000, 2), (0x10_0000, 0x1000, 2)], &[(1, 4)]);
    // An entry without bytes touches no frame, wherever it begins.
    check(&[(0x2000, 0x4000, 1), (0x3200, 0, 2)], &[(2, 6)]);
}

#[test]
fn a_full_list_leaves_memory_out_and_nothing_else() {
    let islands: Vec<(u64, u64, u32)> = (1..=40).map(|n| (n * 0x4000, 0x3000, 1)).rev().collect();
    let kept: Vec<(u64, u64)> = (9..=40).map(|n| (n * 4, n * 4 + 3)).collect();
    check(&islands, &kept);
    // A cut in a full list keeps the larger side.
    let mut cut = islands;
    cut.push((40 * 0x4000 + 0x1000, 1, 2));
    let mut kept = kept;
    kept[31] = (160, 161);
    check(&cut, &kept);
    cut[0].1 = 0x4000;
    kept[31] = (162, 164);
    check(&cut, &kept);
}

#[test]
fn a_part_is_found_in_its_range() {
    let entries = [Entry { start: Pa::new(0x4000), bytes: Bytes::new(0x4000), kind: 1 }];
    let ranges = Ranges::usable(entries.into_iter(), Pa::new(0), Pa::new(0x10_0000));
    let part = |start, pages| FrameRange::new(Frame::new(start), Pages::new(pages)).unwrap();
    assert_eq!(ranges.around(part(5, 3)), Some(part(4, 4)));
    assert_eq!(ranges.around(part(4, 1)), Some(part(4, 4)));
    assert_eq!(ranges.around(part(5, 4)), None);
    assert_eq!(ranges.around(part(3, 2)), None);
}

/// A root pointer at 0x100, its table at 0x200, the list of CPUs at 0x300.
fn tables(wide: bool) -> Vec<u8> {
    let mut image = std::vec![0; 0x1000];
    put(&mut image, 0x100, b"RSD PTR ");
    put(&mut image, 0x10f, &[if wide { 2 } else { 0 }]);
    put(&mut image, 0x110, &0x200u32.to_le_bytes());
    put(&mut image, 0x118, &0x200u64.to_le_bytes());
    let (size, entry) = if wide {
        (44, 0x300u64.to_le_bytes().to_vec())
    } else {
        (40, 0x300u32.to_le_bytes().to_vec())
    };
    put(&mut image, 0x204, &u32::to_le_bytes(size));
    put(&mut image, 0x224, &entry);
    put(&mut image, 0x300, b"APIC");
    put(&mut image, 0x304, &(44u32 + 8 + 8 + 16 + 12).to_le_bytes());
    put(&mut image, 0x32c, &[0, 8, 0, 7, 1, 0, 0, 0]);
    put(&mut image, 0x334, &[0, 8, 0, 8, 0, 0, 0, 0]); // not enabled
    put(&mut image, 0x33c, &[9, 16, 0, 0, 0, 1, 0, 0, 1]);
    put(&mut image, 0x34c, &[1, 12]); // an I/O APIC
    image
}

#[test]
fn finding_x5_the_boot_cpu_is_first_and_none_is_twice() {
    let listed = |image: &[u8], boot| {
        let mut list = [ApicId(u32::MAX); 4];
        let found = cpus(Image(image), Pa::new(0x100), ApicId(boot), &mut list);
        (found, list.map(|ApicId(id)| id))
    };
    const NONE: u32 = u32::MAX;
    for wide in [false, true] {
        let mut image = tables(wide);
        assert_eq!(listed(&image, 7), (2, [7, 256, NONE, NONE]));
        assert_eq!(listed(&image, 256), (2, [256, 7, NONE, NONE]), "listed last");
        assert_eq!(listed(&image, 3), (3, [3, 7, 256, NONE]), "not listed");
        let mut one = [ApicId(0)];
        let boot = ApicId(256);
        assert_eq!(cpus(Image(&image), Pa::new(0x100), boot, &mut one), 2, "more than fit");
        assert_eq!(one, [boot]);
        assert_eq!(cpus(Image(&image), Pa::new(0x100), boot, &mut []), 2);
        // The entry that was not enabled now repeats the first one, and then means all CPUs.
        put(&mut image, 0x334, &[0, 8, 0, 7, 1]);
        assert_eq!(listed(&image, 256), (2, [256, 7, NONE, NONE]));
        put(&mut image, 0x334, &[0, 8, 0, 0xff, 1]);
        assert_eq!(listed(&image, 256), (2, [256, 7, NONE, NONE]));
        // A list of entries without a length comes to an end.
        image[0x32d] = 0;
        assert!(listed(&image, 7).0 >= 1);
        // A table that leaves memory is none.
        put(&mut image, 0x304, &u32::MAX.to_le_bytes());
        assert_eq!(listed(&image, 9), (1, [9, NONE, NONE, NONE]));
    }
}

#[test]
fn a_cpu_that_is_not_enabled_or_is_everybody_is_not_listed() {
    let listed = |image: &[u8]| cpus(Image(image), Pa::new(0x100), ApicId(7), &mut [ApicId(0); 4]);
    let good = tables(true);
    assert_eq!(listed(&good), 2);
    let with = |at, bytes: &[u8]| {
        let mut image = good.clone();
        put(&mut image, at, bytes);
        listed(&image)
    };
    assert_eq!(with(0x344, &[0]), 1, "256 is not enabled");
    assert_eq!(with(0x340, &[0xff; 4]), 1, "everybody");
    assert_eq!(with(0x304, &[44 + 8 + 8 + 8]), 1, "the table ends before its flags");
}

/// From the second revision on a pointer of 64 bits leads to the tables, unless it is 0.
#[test]
fn the_revision_says_which_root_is_meant() {
    let listed = |image: &[u8]| cpus(Image(image), Pa::new(0x100), ApicId(7), &mut [ApicId(0); 4]);
    let mut wide = tables(true);
    put(&mut wide, 0x110, &[0; 4]);
    assert_eq!(listed(&wide), 2, "the narrow one is not asked");
    let mut narrow = tables(false);
    put(&mut narrow, 0x118, &0x280u64.to_le_bytes());
    assert_eq!(listed(&narrow), 2, "the wide one is not there yet");
    put(&mut narrow, 0x10f, &[2]);
    put(&mut narrow, 0x118, &[0; 8]);
    assert_eq!(listed(&narrow), 2, "the wide one is none");
    // An entry beyond 4 GiB is not taken for the table at its low 32 bits, here an empty list of
    // CPUs.
    put(&mut wide, 0x204, &52u32.to_le_bytes());
    put(&mut wide, 0x224, &[0x1_0000_0280u64, 0x300].map(u64::to_le_bytes).concat());
    put(&mut wide, 0x280, b"APIC");
    put(&mut wide, 0x284, &44u32.to_le_bytes());
    assert_eq!(listed(&wide), 2);
}

/// Firmware of old has its pointer at a multiple of 16 below 1 MiB; here it is the last thing in
/// memory.
#[test]
fn a_root_pointer_is_found_without_a_hint_and_at_the_end_of_memory() {
    for (wide, bytes) in [(false, 20), (true, 36)] {
        let mut image = tables(wide);
        let pointer = image[0x100..0x100 + bytes].to_vec();
        image[0x100..0x100 + bytes].fill(0);
        if wide {
            put(&mut image, 0x110, &[0; 4]);
        }
        image.resize(0xe_0010, 0);
        image.extend(&pointer);
        if wide {
            put(&mut image, 0xe_0020, &[0; 4]);
        }
        let found = cpus(Image(&image), Pa::new(0x100), ApicId(7), &mut [ApicId(0); 4]);
        assert_eq!(found, 2, "{bytes} bytes");
    }
}

#[test]
fn finding_x6_the_firmwares_timer_is_found() {
    let mut image = tables(true);
    put(&mut image, 0x300, b"FACP");
    put(&mut image, 0x304, &116u32.to_le_bytes());
    put(&mut image, 0x300 + 76, &0x608u32.to_le_bytes());
    put(&mut image, 0x300 + 91, &[4]);
    put(&mut image, 0x300 + 112, &0u32.to_le_bytes());
    let found = |image: &[u8]| PowerTimer::find(Image(image), Pa::new(0x100));
    assert_eq!(found(&image), Some(PowerTimer { port: 0x608, bits: 24 }));
    put(&mut image, 0x300 + 112, &0x100u32.to_le_bytes());
    assert_eq!(found(&image), Some(PowerTimer { port: 0x608, bits: 32 }));
    for (at, value) in [(76, 0), (76, 1 << 16), (91, 0)] {
        let mut image = image.clone();
        put(&mut image, 0x300 + at, &u32::to_le_bytes(value));
        assert_eq!(found(&image), None);
    }
    // The table ends before its flags.
    put(&mut image, 0x304, &112u32.to_le_bytes());
    assert_eq!(found(&image), None);
}
