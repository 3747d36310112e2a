//! Every format against a decoder that was written from the manuals, bit by bit, without the
//! format's code.

use crate::*;
use foliant_units::{Level, Pa, Va, VaRange};
use proptest::prelude::*;
use std::string::String;
use std::vec::Vec;

/// What hardware makes of a word, in plain fields.
#[derive(Default, PartialEq, Debug)]
struct Seen {
    present: bool,
    table: bool,
    pa: u64,
    /// Letters: w write, x exec at the leaf's own privilege, X exec at the other one, u user, g
    /// global, a accessed, d dirty, c uncached device, G grouped.
    can: String,
}

fn bit(word: u64, n: u32) -> bool {
    (word >> n) % 2 == 1
}

fn field(word: u64, high: u32, low: u32) -> u64 {
    (word << (63 - high)) >> (63 - high) >> low
}

fn letters(list: &[(bool, char)]) -> String {
    list.iter().filter(|(set, _)| *set).map(|(_, letter)| *letter).collect()
}

/// SDM volume 3, tables 5-15 to 5-20.
fn x86(word: u64, level: u8) -> Seen {
    if !bit(word, 0) {
        return Seen::default();
    }
    let table = level > 0 && !bit(word, 7);
    let low = if table || level == 0 { 12 } else { 12 + 9 * level as u32 };
    let pa = field(word, 51, low) << low;
    if !table && level > 0 {
        assert_eq!(field(word, low - 1, 13), 0, "reserved bits of a large leaf: {word:#x}");
    }
    let device = bit(word, 3) && bit(word, 4);
    let can = letters(&[
        (bit(word, 1), 'w'),
        (!bit(word, 63), 'x'),
        (bit(word, 2), 'u'),
        (bit(word, 8), 'g'),
        (bit(word, 5), 'a'),
        (bit(word, 6), 'd'),
        (device, 'c'),
    ]);
    Seen { present: true, table, pa, can }
}

/// Arm ARM, D8.3: descriptor formats of the 4 KiB granule, 48-bit addresses, stage 1 with two
/// privileges.
fn arm(word: u64, level: u8) -> Seen {
    if !bit(word, 0) {
        return Seen::default();
    }
    let table = level > 0 && bit(word, 1);
    if table {
        let pa = field(word, 47, 12) << 12;
        assert_eq!(field(word, 63, 59), 0, "a hierarchical restriction: {word:#x}");
        return Seen { present: true, table, pa, can: String::new() };
    }
    assert!(level > 0 || bit(word, 1), "a reserved level 3 descriptor");
    let low = 12 + 9 * level as u32;
    assert_eq!(field(word, low, 12) % (1 << (low - 12)), 0, "address bits of a block: {word:#x}");
    let user = bit(word, 6);
    let (dbm, read_only) = (bit(word, 51), bit(word, 7));
    let (exec, other) = if user { (54, 53) } else { (53, 54) };
    let device = match field(word, 4, 2) {
        0 => {
            assert_eq!(field(word, 9, 8), 3, "normal memory is inner shareable");
            false
        }
        1 => true,
        n => panic!("memory attribute {n}"),
    };
    let can = letters(&[
        (dbm || !read_only, 'w'),
        (!bit(word, exec), 'x'),
        (!bit(word, other), 'X'),
        (user, 'u'),
        (!bit(word, 11), 'g'),
        (bit(word, 10), 'a'),
        (!read_only || bit(word, 55), 'd'),
        (device, 'c'),
        (bit(word, 52), 'G'),
    ]);
    Seen { present: true, table, pa: field(word, 47, 12) << 12, can }
}

/// The privileged specification, "Sv39", Svnapot, Svpbmt; `slot` resolves a group.
fn riscv(word: u64, level: u8, slot: u64) -> Seen {
    if !bit(word, 0) {
        return Seen::default();
    }
    assert_eq!(field(word, 60, 54), 0, "reserved bits: {word:#x}");
    let table = !bit(word, 1) && !bit(word, 2) && !bit(word, 3);
    let mut ppn = field(word, 53, 10);
    if table {
        assert_eq!(field(word, 7, 4), 0, "reserved bits of a pointer: {word:#x}");
        assert_eq!(field(word, 63, 61), 0, "reserved bits of a pointer: {word:#x}");
    } else {
        assert!(bit(word, 1), "write without read is reserved, and we map readable");
        assert_eq!(
            ppn % (1 << (9 * level)),
            if bit(word, 63) { 8 % (1 << (9 * level)) } else { 0 }
        );
    }
    if bit(word, 63) {
        assert_eq!((level, ppn % 16), (0, 8), "the only Svnapot size is 64 KiB");
        ppn = ppn - 8 + slot % 16;
    }
    let pbmt = field(word, 62, 61);
    assert!(pbmt == 0 || pbmt == 2);
    let can = letters(&[
        (bit(word, 2), 'w'),
        (bit(word, 3), 'x'),
        (bit(word, 4), 'u'),
        (bit(word, 5), 'g'),
        (bit(word, 6), 'a'),
        (bit(word, 7), 'd'),
        (pbmt == 2, 'c'),
        (bit(word, 63), 'G'),
    ]);
    Seen { present: true, table, pa: ppn << 12, can }
}

fn expected(attrs: Attrs) -> String {
    letters(&[
        (attrs.has(Attrs::WRITE), 'w'),
        (attrs.has(Attrs::EXEC), 'x'),
        (attrs.has(Attrs::USER), 'u'),
        (attrs.has(Attrs::GLOBAL), 'g'),
        (attrs.has(Attrs::ACCESSED), 'a'),
        (attrs.has(Attrs::DIRTY), 'd'),
        (attrs.has(Attrs::DEVICE), 'c'),
        (attrs.has(Attrs::GROUPED), 'G'),
    ])
}

/// Every set of attributes, at every level that has leaves, at a few addresses.
fn check<P: Paging>(decoder: impl Fn(u64, u8, u64) -> Seen) {
    let limit = (1u64 << P::PA_BITS) - 1;
    for level in (0..=P::LEAF_TOP.0).map(Level) {
        for pa in [0, 0x1234_5678_9abc_d000 & limit, limit, 1 << 30, 2 << 20] {
            let pa = Pa::new(pa & !(level.span().get() - 1));
            let slot = Slot::of(Va::new(pa.get()), Level::BASE);
            for attrs in (0..1 << Attrs::BITS).map(Attrs::from_bits) {
                if attrs.has(Attrs::GROUPED) && P::group(level).is_none() {
                    continue;
                }
                let word = P::leaf(pa, level, attrs);
                let held = attrs.and(P::KEEPS);
                let seen = decoder(word, level.0, slot.index() as u64);
                let expect =
                    Seen { present: true, table: false, pa: pa.get(), can: expected(held) };
                assert_eq!(seen, expect, "{}: {word:#x} {attrs:?} {level:?}", P::NAME);
                let entry = P::decode(word, level, slot);
                assert_eq!(entry, Entry::Leaf { pa, attrs: held }, "{}: {word:#x}", P::NAME);
            }
        }
        if !P::KEEPS.has(Attrs::GROUPED) || level == Level::BASE {
            continue;
        }
    }
    for level in (1..=P::TOP.0).map(Level) {
        for pa in [0x1000, limit & !4095] {
            let word = P::table(Pa::new(pa));
            for word in [word, word | P::LOCK] {
                let seen = decoder(word, level.0, 0);
                assert!(seen.present && seen.table && seen.pa == pa, "{word:#x} {seen:?}");
                assert_eq!(P::decode(word, level, Slot::FIRST), Entry::Table(Pa::new(pa)));
            }
        }
    }
    for kind in
        [SoftKind::Guard, SoftKind::Marker, SoftKind::Migration, SoftKind::Other, SoftKind::Poison]
    {
        let soft = Soft { kind, payload: (1 << Soft::PAYLOAD_BITS) - 1 };
        for soft in [soft, Soft { payload: 0, ..soft }] {
            assert_eq!(decoder(soft.word(), 0, 0), Seen::default());
            for level in (0..=P::TOP.0).map(Level) {
                assert_eq!(P::decode(soft.word(), level, Slot::FIRST), Entry::Soft(soft));
            }
        }
    }
    assert_eq!(P::decode(0, Level::BASE, Slot::FIRST), Entry::None);
}

/// A step is the difference of two neighbours' words, and a final word is one that hardware
/// leaves alone.
fn check_steps<P: Paging>() {
    for level in (0..=P::LEAF_TOP.0).map(Level) {
        let next = Pa::new(level.span().get() * 7);
        for attrs in
            (0..1 << Attrs::BITS).map(|bits| Attrs::from_bits(bits).without(Attrs::GROUPED))
        {
            let word = P::leaf(Pa::new(next.get() - level.span().get()), level, attrs);
            assert_eq!(word + P::step(level), P::leaf(next, level, attrs));
            let open =
                !attrs.has(Attrs::ACCESSED) || attrs.has(Attrs::WRITE) && !attrs.has(Attrs::DIRTY);
            assert_eq!(P::is_final(word), !open, "{}: {attrs:?}", P::NAME);
            let touched = P::leaf(next, level, attrs | Attrs::ACCESSED);
            let changed = P::leaf(next, level, attrs) ^ touched;
            assert_eq!(changed & !P::UPDATED, 0);
            if attrs.has(Attrs::WRITE) {
                let dirty = P::leaf(next, level, attrs | Attrs::DIRTY);
                assert_eq!((dirty ^ P::leaf(next, level, attrs)) & !P::UPDATED, 0);
            }
        }
    }
}

#[test]
fn x86_64_words_mean_what_the_manual_says() {
    check::<X86_64<4>>(|word, level, _| x86(word, level));
    check::<X86_64<5>>(|word, level, _| x86(word, level));
    check_steps::<X86_64<4>>();
}

#[test]
fn aarch64_words_mean_what_the_manual_says() {
    check::<Aarch64>(|word, level, _| arm(word, level));
    check_steps::<Aarch64>();
}

#[test]
fn riscv64_words_mean_what_the_manual_says() {
    check::<Sv39>(riscv);
    check::<Sv48>(riscv);
    check::<Sv57>(riscv);
    check_steps::<Sv48>();
}

#[test]
fn halves_end_where_addresses_stop_being_canonical() {
    fn halves<P: Paging>(user_last: u64, kernel_first: u64) {
        assert_eq!(P::half(Half::User), (Va::new(0), Va::new(user_last)));
        assert_eq!(P::half(Half::Kernel), (Va::new(kernel_first), Va::new(!0)));
        assert_eq!(P::half_of(Va::new(user_last)), Some(Half::User));
        assert_eq!(P::half_of(Va::new(user_last + 1)), None);
        assert_eq!(P::half_of(Va::new(kernel_first - 1)), None);
        assert_eq!(P::half_of(Va::new(kernel_first)), Some(Half::Kernel));
        let to = |end| VaRange::new(Va::new(user_last & !4095), Va::new(end)).unwrap();
        assert_eq!(P::outside(Half::User, to(user_last + 1)), None);
        let last = VaRange::new(Va::new(user_last), Va::new(user_last + 1)).unwrap();
        assert_eq!(P::outside(Half::User, last), None, "its last byte");
        let nothing = VaRange::new(Va::new(0), Va::new(0)).unwrap();
        assert_eq!(P::outside(Half::User, nothing), None);
        assert_eq!(P::outside(Half::User, to(user_last + 4097)), Some(Va::new(user_last + 1)));
        assert_eq!(P::outside(Half::Kernel, to(user_last + 1)), Some(Va::new(user_last & !4095)));
    }
    halves::<X86_64<4>>(0x0000_7fff_ffff_ffff, 0xffff_8000_0000_0000);
    halves::<X86_64<5>>(0x00ff_ffff_ffff_ffff, 0xff00_0000_0000_0000);
    halves::<Aarch64>(0x0000_ffff_ffff_ffff, 0xffff_0000_0000_0000);
    halves::<Sv39>(0x0000_003f_ffff_ffff, 0xffff_ffc0_0000_0000);
    halves::<Sv48>(0x0000_7fff_ffff_ffff, 0xffff_8000_0000_0000);
    halves::<Sv57>(0x00ff_ffff_ffff_ffff, 0xff00_0000_0000_0000);
}

#[test]
fn attributes_are_listed_as_letters() {
    let list: Vec<String> =
        [Attrs::NONE, Attrs::WRITE | Attrs::USER].iter().map(|a| std::format!("{a:?}")).collect();
    assert_eq!(list, ["------------", "w-u---------"]);
}

proptest! {
    #[test]
    fn any_word_decodes_without_a_panic(word: u64, level in 0u8..5, slot in 0usize..512) {
        let slot = Slot::new(slot).unwrap();
        X86_64::<5>::decode(word, Level(level), slot);
        Aarch64::decode(word, Level(level), slot);
        Sv57::decode(word, Level(level), slot);
    }

    #[test]
    fn a_broken_leaf_remembers_what_it_maps(frame in 0u64..1 << 44, attrs in 0u16..1 << Attrs::BITS) {
        let (pa, attrs) = (Pa::new(frame << 12), Attrs::from_bits(attrs));
        let soft = Soft::breaking(pa, attrs);
        prop_assert_eq!(soft.broken_leaf(), Some((pa, attrs)));
        prop_assert_eq!(Sv57::decode(soft.word(), Level::BASE, Slot::FIRST), Entry::Soft(soft));
    }
}
