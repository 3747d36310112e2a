//! The walker's decoder: what each bit of a word allows, and which words are none.

use crate::*;
use foliant_machine::Accessed;
use foliant_sim::Checks;

/// What users (r w x) and the kernel (R W X) may do at [`VA`], through a path with bits flipped in
/// the words of the levels that `change` lists.
fn allowed(format: Format, leaf_level: u8, leaf: u64, change: &[(u8, u64)]) -> String {
    let sim = machine(format);
    put(&sim, chain(&sim, ROOT, VA, leaf_level), leaf);
    for (level, flipped) in change {
        let word = chain(&sim, ROOT, VA, *level);
        put(&sim, word, get(&sim, word) ^ flipped);
        // `chain` writes the words above it anew, so the highest is changed last.
    }
    run(&sim, 0, ROOT);
    let accesses = [Access::Read, Access::Write, Access::Exec];
    let user = |access: &Access| sim.user_touch(Va::new(VA), *access).is_ok();
    let kernel = |access: &Access| sim.kernel_touch(Va::new(VA), *access).is_ok();
    let users = accesses.iter().zip("rwx".chars()).filter(|(access, _)| user(access));
    let kernels = accesses.iter().zip("RWX".chars()).filter(|(access, _)| kernel(access));
    users.chain(kernels).map(|(_, letter)| letter).collect()
}

const BASE: u64 = 0x60_0000;

#[test]
fn a_leaf_allows_what_its_bits_say() {
    let riscv = |bits: u64| BASE >> 2 | bits;
    for (format, word, can) in [
        (X86, BASE | 0b001, "RX"),
        (X86, BASE | 0b011, "RWX"),
        (X86, BASE | 0b101, "rxR"),
        (X86, BASE | 0b111, "rwxRW"),
        (X86, BASE | 0b111 | 1 << 63, "rwRW"),
        (X86, BASE | 0b001 | 1 << 63, "R"),
        (X86, BASE | 0b110, ""),
        // Valid and a page; for users, read-only, DBM, UXN and PXN as they come.
        (ARM, BASE | 0b11 | 1 << 6, "rwxRWX"),
        (ARM, BASE | 0b11 | 1 << 6 | 1 << 54, "rwRWX"),
        (ARM, BASE | 0b11 | 1 << 6 | 1 << 53, "rwxRW"),
        (ARM, BASE | 0b11 | 1 << 6 | 1 << 7, "rxRX"),
        (ARM, BASE | 0b11 | 1 << 6 | 1 << 7 | 1 << 51, "rwxRWX"),
        (ARM, BASE | 0b11 | 1 << 6 | 1 << 51, "rwxRWX"),
        (ARM, BASE | 0b11, "xRWX"), // users execute the kernel's memory where nothing forbids it
        (ARM, BASE | 0b11 | 1 << 54, "RWX"),
        (ARM, BASE | 0b11 | 1 << 53 | 1 << 54, "RW"),
        (ARM, BASE | 0b10, ""),
        (ARM, BASE | 0b01, ""), // reserved: a block among pages
        (RISCV, riscv(0b0_0011), "R"),
        (RISCV, riscv(0b0_0111), "RW"),
        (RISCV, riscv(0b0_1011), "RX"),
        (RISCV, riscv(0b1_0011), "rR"),
        (RISCV, riscv(0b1_1111), "rwxRW"),
        (RISCV, riscv(0b1_1001), "x"), // execute-only
        (RISCV, riscv(0b0_1001), "X"),
        (RISCV, riscv(0b1_0101), ""), // reserved: writable, not readable
        (RISCV, riscv(0b1_1101), ""),
        (RISCV, riscv(0b1_0001), ""), // a pointer where no table is
        (RISCV, riscv(0b1_1110), ""),
    ] {
        assert_eq!(allowed(format, 0, word, &[]), can, "{format:?} {word:#x}");
    }
}

#[test]
fn a_path_takes_away_what_its_words_say() {
    let all = |format| match format {
        X86 => (BASE | 0b111, "rwxRW"),
        ARM => (BASE | 0b11 | 1 << 6, "rwxRWX"),
        _ => (BASE >> 2 | 0b1_1111, "rwxRW"),
    };
    for (format, bit, left) in [
        (X86, 1, "rxR"),
        (X86, 2, "RWX"), // a leaf for users that is the kernel's all in all
        (X86, 63, "rwRW"),
        (ARM, 62, "rxRX"),
        (ARM, 61, "xRWX"),
        (ARM, 60, "rwRWX"),
        (ARM, 59, "rwxRW"),
        (RISCV, 5, "rwxRW"), // global, which allows and forbids nothing
    ] {
        for level in 1..format.levels() {
            assert_eq!(allowed(format, 0, all(format).0, &[]), all(format).1, "{format:?}");
            let can = allowed(format, 0, all(format).0, &[(level, 1 << bit)]);
            assert_eq!(can, left, "{format:?} bit {bit} of level {level}");
        }
    }
    let kernel = (BASE | 0b011, "RWX");
    assert_eq!(allowed(X86, 0, kernel.0, &[(1, 1 << 63)]), "RW");
    assert_eq!(allowed(X86, 0, kernel.0, &[(1, 1 << 2)]), "RWX", "nobody needs it");
}

#[test]
fn large_leaves_are_aligned_and_of_sizes_that_there_are() {
    let block = |format: Format, level: u8, pa: u64| match format {
        Format::Riscv64(_) => pa >> 2 | 0b1_1111,
        Format::Aarch64 => pa | 0b01 | 1 << 6,
        Format::X86_64(_) => pa | 0b111 | u64::from(level > 0) << 7,
    };
    for format in FORMATS {
        for (level, align) in [(1, 1 << 21), (2, 1 << 30), (3, 1 << 39)] {
            let lives = |pa| !allowed(format, level, block(format, level, pa), &[]).is_empty();
            let exists = level < 3;
            assert_eq!(lives(0), exists, "{format:?} {level}");
            assert_eq!(lives(align), exists, "{format:?} {level}");
            assert!(!lives(align + align / 2), "{format:?} {level}");
            assert!(!lives(align + 2 * PAGE), "{format:?} {level}");
            // Bit 12 of a large leaf says how it is cached on x86-64.
            assert_eq!(lives(align + PAGE), exists && format == X86, "{format:?} {level}");
        }
    }
}

#[test]
fn sixty_four_kib_of_riscv_are_of_the_lowest_level_and_marked_so() {
    let word = |ppn: u64, bits: u64| ppn << 10 | 0b1_1111 | bits;
    let lives = |level, word| !allowed(RISCV, level, word, &[]).is_empty();
    assert!(lives(0, word(0x608, 1 << 63)));
    for low in (0..16).filter(|low| *low != 8) {
        assert!(!lives(0, word(0x600 + low, 1 << 63)), "{low}");
    }
    assert!(lives(1, word(0x600, 0)));
    assert!(!lives(1, word(0x600, 1 << 63)));
    assert!(!lives(1, word(0x608, 1 << 63)));
}

#[test]
fn what_a_word_names_is_its_address_field_and_no_more() {
    // The bits around the field are software's, keys and attributes.
    for (format, noise) in [
        (X86, 0x7ff0_0000_0000_0000 | 0xe00),
        (ARM, 0xff80_0000_0000_0000 | 0x33c | 1 << 50),
        (RISCV, 0x7fc0_0000_0000_0000 | 0x300),
    ] {
        let sim = machine(format);
        let word = map(&sim, VA, 0, BASE);
        put(&sim, word, get(&sim, word) | noise);
        put(&sim, BASE + 8, 77);
        run(&sim, 0, ROOT);
        assert_eq!(sim.user_load(Va::new(VA + 8), 8), Ok(77), "{format:?}");
    }
}

#[test]
fn addresses_between_the_halves_are_in_neither() {
    for (format, bits) in [
        (X86, 47),
        (Format::X86_64(X86Levels::Five), 56),
        (ARM, 48),
        (Format::Riscv64(RiscvMode::Sv39), 38),
        (RISCV, 47),
        (Format::Riscv64(RiscvMode::Sv57), 56),
    ] {
        let checks = Checks::None; // to them so much sharing is endless work
        let config = Config::seeded(1, Bytes::new(16 << 20), 1).with_format(format);
        let sim = Sim::new(Config { checks, ..config }).unwrap();
        // Every address leads to the same page.
        for level in (0..format.levels()).rev() {
            let table = ROOT + u64::from(level) * PAGE;
            let next = match level {
                0 => leaf(&sim, 0, BASE),
                _ => table_word(format, table - PAGE),
            };
            (0..512).for_each(|n| put(&sim, table + n * 8, next));
        }
        run(&sim, 0, ROOT + u64::from(format.levels() - 1) * PAGE);
        let reached = |va: u64| sim.kernel_touch(Va::new(va), Access::Read).is_ok();
        let (end, start) = (1u64 << bits, u64::MAX << bits);
        assert!(reached(0) && reached(end - 8) && reached(start) && reached(u64::MAX - 7));
        for va in [end, end << 1, 1 << 62, start - 8, start & !(1 << 60)] {
            assert!(!reached(va), "{format:?} {va:#x}");
        }
    }
}

#[test]
fn what_is_global_is_cached_for_all_roots() {
    for (format, bit, path_counts) in [(X86, 8, false), (ARM, 11, false), (RISCV, 5, true)] {
        for (level, counts) in [(0, true), (1, path_counts), (2, path_counts)] {
            for flip in [0, 1 << bit] {
                let sim = machine(format);
                let base = leaf(&sim, 0, BASE) | if format == ARM { 1 << 11 } else { 0 };
                put(&sim, chain(&sim, ROOT, VA, 0), base);
                let word = chain(&sim, ROOT, VA, level);
                put(&sim, word, get(&sim, word) ^ flip);
                run(&sim, 0, ROOT);
                touch(&sim, 0, VA, Access::Read);
                let pages = sim.cached(Cpu(0)).into_iter().filter(|entry| !entry.table);
                let global = pages.filter(|entry| entry.is_global()).count();
                assert_eq!(global == 1, flip != 0 && counts, "{format:?} level {level}");
                assert!(sim.cached(Cpu(0)).iter().all(|e| !e.table || !e.is_global()));
            }
        }
    }
}

#[test]
fn walks_mark_leaves_and_on_x86_pointers_whatever_else_these_say() {
    for (format, accessed, dirty, software) in [(X86, 5, 6, 9), (ARM, 10, 7, 55), (RISCV, 6, 7, 8)]
    {
        let mut config = Config::seeded(1, Bytes::new(16 << 20), 1).with_format(format);
        config.rules.accessed = Accessed::SetBeforeCached;
        let sim = Sim::new(config).unwrap();
        let word = map(&sim, VA, 0, BASE);
        let upper = (word & !0xfff) - PAGE;
        if format == X86 {
            put(&sim, upper, get(&sim, upper) | 1 << dirty); // ignored in a pointer
        }
        let (pointer, clean) = (get(&sim, upper), get(&sim, word) | 1 << software);
        run(&sim, 0, ROOT);
        put(&sim, word, clean ^ 1 << dirty);
        touch(&sim, 0, VA, Access::Read);
        let marked = if format == X86 { pointer | 1 << accessed } else { pointer };
        assert_eq!(get(&sim, upper), marked, "{format:?}");
        assert_eq!(get(&sim, word), clean ^ 1 << dirty | 1 << accessed, "{format:?}");
        put(&sim, word, clean);
        sim.activate(Root { user: Pa::new(ROOT), kernel: Pa::new(ROOT) }, Kept::Nothing);
        touch(&sim, 0, VA, Access::Write);
        assert_eq!(get(&sim, word), clean ^ 1 << dirty | 1 << accessed, "{format:?}");
    }
}
