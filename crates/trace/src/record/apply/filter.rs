//! The filter of a program that wishes are applied to: it stops at few calls, and knows the sizes
//! of the mappings that matter.
//!
//! ```text
//!   mmap        private, without a file, not of a pool's pages, of a size that a wish names; what maps code
//!               of a file, where a wish names a site
//!   brk         of an address, where a wish names the heap
//!   clone       with CLONE_UNTRACED; clone3, whose flags no filter sees
//!   seccomp     and prctl(PR_SET_SECCOMP): a filter of the program's own
//! ```
//!
//! What does not stop takes what a filter takes: a few comparisons at these calls, and nothing at
//! others, of which the kernel remembers that they pass.
//!
//! **Invariants**
//! - F1. A call that a wish can be for stops. One that stops may be for none: sizes are of all
//!   wishes, and where their ranges are more than [`RANGES_MOST`] the filter has the range around
//!   them.
//! - F2. What is injected passes.
//!
//! **Not here**: calls of x32, which pass.

use super::super::abi::{AND, AT_LEAST, Abi, EQUAL, LOAD, RETURN, op, stop};
use crate::wish::{Remedy, Target};
use foliant_units::FRAME_BYTES;
use std::ops::RangeInclusive;

const ALLOW: u32 = 0x7fff_0000;
const ARCH_X86_64: u32 = 0xc000_003e;
const ARCH_I386: u32 = 0x4000_0003;
/// Numbers from here on are x32's.
const X32_BIT: u32 = 0x4000_0000;
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
/// More ranges of sizes than this are one range.
const RANGES_MOST: usize = 12;

/// Numbers of the calls that may stop.
struct Numbers {
    abi: Abi,
    mmap: u32,
    /// A call that has its arguments in memory; stops as it is.
    unread: Option<u32>,
    brk: u32,
    clone: u32,
    clone3: u32,
    seccomp: u32,
    prctl: u32,
}

const NATIVE: Numbers = Numbers {
    abi: Abi::Native,
    mmap: libc::SYS_mmap as u32,
    unread: None,
    brk: libc::SYS_brk as u32,
    clone: libc::SYS_clone as u32,
    clone3: libc::SYS_clone3 as u32,
    seccomp: libc::SYS_seccomp as u32,
    prctl: libc::SYS_prctl as u32,
};

const I386: Numbers = Numbers {
    abi: Abi::I386,
    mmap: 192,
    unread: Some(90),
    brk: 45,
    clone: 120,
    clone3: 435,
    seccomp: 354,
    prctl: 172,
};

/// The filter for these wishes; `None` where no call has to stop.
pub(crate) fn filter(remedy: &Remedy) -> Option<Vec<libc::sock_filter>> {
    let sizes = sizes(remedy);
    let heap = remedy.of_heap().is_some();
    if sizes.is_empty() && !heap {
        return None;
    }
    let sited = remedy
        .wishes
        .iter()
        .any(|wished| matches!(wished.target, Target::Made { site: Some(_), .. }));
    let native = calls(&NATIVE, &sizes, heap, sited);
    let mut all = vec![
        op(LOAD, ARCH, 0, 0),
        // Jumps are short, so each architecture begins behind one of its own.
        op(EQUAL, ARCH_X86_64, 1, 0),
        op(JUMP, native.len() as u32 + 3, 0, 0),
        op(LOAD, NUMBER, 0, 0),
        op(AT_LEAST, X32_BIT, 0, 1),
        op(RETURN, ALLOW, 0, 0),
    ];
    all.extend(native);
    all.extend([op(EQUAL, ARCH_I386, 1, 0), op(RETURN, ALLOW, 0, 0), op(LOAD, NUMBER, 0, 0)]);
    all.extend(calls(&I386, &sizes, heap, sited));
    Some(all)
}

const JUMP: u16 = 0x05;
const GREATER: u16 = 0x25;

/// What is done with a call whose number is loaded.
fn calls(
    numbers: &Numbers,
    sizes: &[RangeInclusive<u64>],
    heap: bool,
    sited: bool,
) -> Vec<libc::sock_filter> {
    let trace = stop(numbers.abi);
    let pass = op(RETURN, ALLOW, 0, 0);
    let mut all = Vec::new();
    let mut on = |number: u32, then: Vec<libc::sock_filter>| {
        all.extend([op(EQUAL, number, 1, 0), op(JUMP, then.len() as u32, 0, 0)]);
        all.extend(then);
    };
    if !sizes.is_empty() {
        on(numbers.mmap, mapping(sizes, sited, trace));
        numbers.unread.into_iter().for_each(|number| on(number, vec![trace]));
    }
    if heap {
        // Of 0 it is a question.
        on(numbers.brk, vec![low(0), op(EQUAL, 0, 0, 2), high(0), op(EQUAL, 0, 1, 0), trace, pass]);
    }
    let untraced = libc::CLONE_UNTRACED as u32;
    on(numbers.clone, vec![low(0), op(AND, untraced, 0, 0), op(EQUAL, 0, 1, 0), trace, pass]);
    on(numbers.clone3, vec![trace]);
    on(numbers.seccomp, vec![trace]);
    let own = libc::PR_SET_SECCOMP as u32;
    on(numbers.prctl, vec![low(0), op(EQUAL, own, 0, 1), trace, pass]);
    all.push(pass);
    all
}

/// Loads the lower half of an argument.
fn low(argument: u32) -> libc::sock_filter {
    op(LOAD, 16 + 8 * argument, 0, 0)
}

fn high(argument: u32) -> libc::sock_filter {
    op(LOAD, 20 + 8 * argument, 0, 0)
}

/// Whether a mapping of these sizes stops.
fn mapping(
    sizes: &[RangeInclusive<u64>],
    sited: bool,
    trace: libc::sock_filter,
) -> Vec<libc::sock_filter> {
    let pass = op(RETURN, ALLOW, 0, 0);
    let mut all = Vec::new();
    if sited {
        // Code of a file: sites are looked for in it.
        let (anonymous, exec) = (libc::MAP_ANONYMOUS as u32, libc::PROT_EXEC as u32);
        all.extend([
            low(3),
            op(AND, anonymous, 0, 0),
            op(EQUAL, 0, 0, 4),
            low(2),
            op(AND, exec, 0, 0),
            op(EQUAL, 0, 1, 0),
            trace,
        ]);
    }
    all.extend([low(3), op(AND, KIND, 0, 0), op(EQUAL, OURS, 1, 0), pass]);
    for range in sizes {
        all.extend(within(range, trace));
    }
    all.push(pass);
    all
}

/// Of the flags of `mmap` those that say what kind of mapping it is, and their value for private
/// memory without a file.
pub(super) const KIND: u32 = 0xf | (libc::MAP_ANONYMOUS | libc::MAP_HUGETLB) as u32;
pub(super) const OURS: u32 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u32;

/// Stops where the second argument is within the range, else goes on behind.
fn within(range: &RangeInclusive<u64>, trace: libc::sock_filter) -> [libc::sock_filter; 11] {
    let halves = |n: &u64| ((n >> 32) as u32, *n as u32);
    let (least, most) = (halves(range.start()), halves(range.end()));
    [
        high(1),
        op(AT_LEAST, least.0, 0, 9), // below: behind
        op(EQUAL, least.0, 0, 2),    // above: not below, whatever the lower half is
        low(1),
        op(AT_LEAST, least.1, 0, 6), // below: behind
        high(1),
        op(GREATER, most.0, 4, 0), // above: behind
        op(EQUAL, most.0, 0, 2),   // below: not above
        low(1),
        op(GREATER, most.1, 1, 0), // above: behind
        trace,
    ]
}

/// Bytes that are asked for by calls that a wish can be for: ranges in order, apart. The kernel
/// makes whole pages of them, and a wish's range is one of whole pages.
fn sizes(remedy: &Remedy) -> Vec<RangeInclusive<u64>> {
    let range = |target: &Target| match target {
        Target::Made { least, most, .. } => {
            let least = least.get().checked_next_multiple_of(FRAME_BYTES)?;
            let most = most.get() / FRAME_BYTES * FRAME_BYTES;
            (least <= most).then(|| least.saturating_sub(FRAME_BYTES - 1)..=most)
        }
        Target::Heap | Target::Stack => None,
    };
    let mut all: Vec<_> = remedy.wishes.iter().filter_map(|one| range(&one.target)).collect();
    all.sort_by_key(|range| *range.start());
    let mut joined: Vec<RangeInclusive<u64>> = Vec::new();
    for range in all {
        match joined.last_mut() {
            Some(last) if *range.start() <= last.end().saturating_add(1) => {
                *last = *last.start()..=*last.end().max(range.end());
            }
            _ => joined.push(range),
        }
    }
    match (joined.first(), joined.last()) {
        (Some(first), Some(last)) if joined.len() > RANGES_MOST => {
            vec![*first.start()..=*last.end()]
        }
        _ => joined,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wish::{Site, Wish, Wished};
    use foliant_units::Bytes;

    /// What a filter says of a call.
    fn verdict(filter: &[libc::sock_filter], arch: u32, nr: u32, args: [u64; 4]) -> u32 {
        let (mut at, mut a) = (0, 0);
        loop {
            let one = filter[at];
            at += 1;
            let is = match one.code {
                LOAD => {
                    a = match one.k {
                        NUMBER => nr,
                        ARCH => arch,
                        k => (args[(k as usize - 16) / 8] >> (8 * (k % 8))) as u32,
                    };
                    continue;
                }
                AND => {
                    a &= one.k;
                    continue;
                }
                JUMP => {
                    at += one.k as usize;
                    continue;
                }
                EQUAL => a == one.k,
                AT_LEAST => a >= one.k,
                GREATER => a > one.k,
                RETURN => return one.k,
                other => panic!("{other:x}"),
            };
            at += usize::from(if is { one.jt } else { one.jf });
        }
    }

    fn made(site: Option<Site>, least: u64, most: u64) -> Wished {
        let (least, most) = (Bytes::new(least), Bytes::new(most));
        Wished { target: Target::Made { site, least, most }, wish: Wish::HugePage }
    }

    fn of(wishes: Vec<Wished>) -> Remedy {
        Remedy { wishes, ..Remedy::NONE }
    }

    const PRIVATE: u64 = OURS as u64;
    const STOPS: bool = true;
    const PASSES: bool = false;

    /// Whether calls of both architectures stop.
    fn check(filter: &[libc::sock_filter], numbers: [u32; 2], args: [u64; 4], expect: bool) {
        let arches = [(ARCH_X86_64, Abi::Native), (ARCH_I386, Abi::I386)];
        for ((arch, abi), nr) in arches.into_iter().zip(numbers) {
            let expect = if expect { stop(abi).k } else { ALLOW };
            assert_eq!(verdict(filter, arch, nr, args), expect, "{nr}: {args:x?}");
        }
    }

    const MMAP: [u32; 2] = [NATIVE.mmap, I386.mmap];

    #[test]
    fn mappings_of_the_sizes_that_are_wished_for_stop() {
        const G: u64 = 1 << 30;
        let wishes = vec![made(None, 0x10000, 0x20000), made(None, 6 * G, 9 * G), made(None, 5, 4)];
        let filter = filter(&of(wishes)).unwrap();
        for (bytes, expect) in [
            (0, PASSES),
            (0xf000, PASSES),
            (0xf001, STOPS), // the kernel makes it 0x10000
            (0x10000, STOPS),
            (0x20000, STOPS),
            (0x20001, PASSES),
            (6 * G - 4096, PASSES),
            (6 * G - 4095, STOPS),
            (7 * G + 0x10000, STOPS),
            (8 * G, STOPS),
            (9 * G, STOPS),
            (9 * G + 1, PASSES),
            (u64::MAX, PASSES),
        ] {
            check(&filter, MMAP, [0, bytes, 3, PRIVATE], expect);
        }
        let has = |bit: libc::c_int| PRIVATE | bit as u64;
        for (flags, expect) in [
            (has(libc::MAP_NORESERVE | libc::MAP_STACK | libc::MAP_FIXED), STOPS),
            (has(libc::MAP_HUGETLB), PASSES),
            (libc::MAP_PRIVATE as u64, PASSES),
            ((libc::MAP_SHARED | libc::MAP_ANONYMOUS) as u64, PASSES),
        ] {
            check(&filter, MMAP, [0, 0x10000, 3, flags], expect);
        }
        check(&filter, MMAP, [0, 0x10000, 5, libc::MAP_PRIVATE as u64], PASSES);
        // Of another architecture, and of x32, nothing is known.
        assert_eq!(verdict(&filter, 0x4000_0028, MMAP[0], [0, 0x10000, 3, PRIVATE]), ALLOW);
        let x32 = X32_BIT | MMAP[0];
        assert_eq!(verdict(&filter, ARCH_X86_64, x32, [0, 0x10000, 3, PRIVATE]), ALLOW);
        // Arguments in memory are read when it has stopped.
        assert_eq!(verdict(&filter, ARCH_I386, 90, [0; 4]), stop(Abi::I386).k);
        check(&filter, [NATIVE.brk, I386.brk], [0x5000, 0, 0, 0], PASSES);
    }

    #[test]
    fn other_calls_stop_where_they_matter() {
        let heap = Wished { target: Target::Heap, wish: Wish::HugePage };
        let filter = filter(&of(vec![heap])).unwrap();
        let untraced = libc::CLONE_UNTRACED as u64;
        let own = libc::PR_SET_SECCOMP as u64;
        for (native, i386, first, expect) in [
            (NATIVE.brk, I386.brk, 0, PASSES),
            (NATIVE.brk, I386.brk, 0x5000, STOPS),
            (NATIVE.brk, I386.brk, 1 << 32, STOPS),
            (NATIVE.clone, I386.clone, untraced | 17, STOPS),
            (NATIVE.clone, I386.clone, 0x3d_0f00, PASSES),
            (NATIVE.clone3, I386.clone3, 0, STOPS),
            (NATIVE.seccomp, I386.seccomp, 1, STOPS),
            (NATIVE.prctl, I386.prctl, own, STOPS),
            (NATIVE.prctl, I386.prctl, own + 1, PASSES),
            (NATIVE.mmap, I386.mmap, 0, PASSES),
            (libc::SYS_madvise as u32, 219, 0, PASSES),
            (libc::SYS_write as u32, 4, 0, PASSES),
        ] {
            check(&filter, [native, i386], [first, 0x10000, 3, PRIVATE], expect);
        }
        assert_eq!(verdict(&filter, ARCH_I386, 90, [0; 4]), ALLOW, "no mapping is wished for");
    }

    #[test]
    fn code_of_files_stops_where_a_site_is_looked_for() {
        let site = Site { object: "a".to_owned(), offset: 1 };
        let with = filter(&of(vec![made(Some(site), 0x10000, 0x20000)])).unwrap();
        let without = filter(&of(vec![made(None, 0x10000, 0x20000)])).unwrap();
        let (file, exec) = (libc::MAP_PRIVATE as u64, libc::PROT_EXEC as u64);
        for (filter, prot, flags, expect) in [
            (&with, exec | 1, file, STOPS),
            (&with, 1, file, PASSES),
            (&with, exec, PRIVATE, PASSES),
            (&without, exec | 1, file, PASSES),
        ] {
            check(filter, MMAP, [0, 0x3000, prot, flags], expect);
        }
        check(&with, MMAP, [0, 0x10000, 3, PRIVATE], STOPS);
    }

    #[test]
    fn ranges_of_sizes_are_joined() {
        let of = |list: &[(u64, u64)]| {
            sizes(&of(list.iter().map(|(least, most)| made(None, *least, *most)).collect()))
        };
        assert_eq!(of(&[(0x5000, 0x6fff), (0x1000, 0x2000)]), [1..=0x2000, 0x4001..=0x6000]);
        assert_eq!(of(&[(0x1000, 0x2000), (0x3000, 0x3000)]), [1..=0x3000], "neighbours are one");
        assert_eq!(of(&[(0x1000, 0x9000), (0x3000, 0x4000)]), [1..=0x9000]);
        assert_eq!(of(&[(0, u64::MAX)]), [0..=u64::MAX - 4095]);
        assert_eq!(of(&[(0x1001, 0x1fff)]), [], "no whole page");
        let many: Vec<_> = (1..=RANGES_MOST as u64 + 1).map(|n| (n << 20, n << 20)).collect();
        assert_eq!(of(&many[1..]).len(), RANGES_MOST);
        assert_eq!(of(&many), [(1 << 20) - 4095..=(RANGES_MOST as u64 + 1) << 20]);
    }

    #[test]
    fn nothing_stops_for_a_stack_or_without_a_wish() {
        let stack = Wished { target: Target::Stack, wish: Wish::HugePage };
        assert!(filter(&of(vec![stack])).is_none());
        assert!(filter(&Remedy::NONE).is_none());
    }
}
