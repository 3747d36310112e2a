//! Files of `/sys` and `/proc` about the machine: what they show, to the byte, and what they take.

use super::shared::F;
use super::*;
use crate::meminfo::Listed;
use crate::sysv::{IPC_CREAT, SHM_NORESERVE};
use crate::{
    Khugepaged, MemoryFile, Segments, ShmemEnabled, kpage, overcommit, split_huge_pages, vm, zones,
};
use foliant::vmap::Request;
use foliant_units::{Nanos, Order};
use linux_raw_sys::errno::{ERANGE, ESRCH};

#[test]
fn words_of_shmem_enabled_stand_for_switches_of_objects() {
    with(|p, sim| {
        let mm = p.manager();
        let mut words = ShmemEnabled::new(mm);
        let of = |name: &str| format!("transparent_hugepage/{name}shmem_enabled");
        let (all, base) = (of(""), of("hugepages-64kB/"));
        let (inval, enoent) = (Err(Errno::INVAL), Err(Errno(ENOENT)));
        let first = "always within_size advise [never] deny force\n";
        assert_eq!(words.read(&all).as_deref(), Ok(first));
        let of_2m = words.read(&of("hugepages-2048kB/"));
        assert_eq!(of_2m.as_deref(), Ok("always [inherit] within_size advise never\n"));
        let of_64k = words.read(&base);
        assert_eq!(of_64k.as_deref(), Ok("always inherit within_size advise [never]\n"));
        assert_eq!(ShmemEnabled::names().len(), 10, "8 KiB to 2 MiB, and all");
        for (path, text, answer) in [
            (&all, "inherit", inval),
            (&all, "", inval),
            (&all, "always\n\n", inval),
            (&base, "deny", inval),
            (&base, "force", inval),
            (&base, "auto", inval),
            (&of("hugepages-8kB/"), "never\n", Ok(())),
            (&of("hugepages-8kB/"), "always", inval),
            (&of("hugepages-4kB/"), "never", enoent),
            (&of("hugepages-4096kB/"), "never", enoent),
            (&"transparent_hugepage/enabled".into(), "never", enoent),
            // 2 MiB alone is forced, where 2 MiB alone inherits.
            (&base, "inherit", Ok(())),
            (&all, "force", inval),
            (&base, "never", Ok(())),
            (&all, "force", Ok(())),
            (&base, "inherit", inval),
            (&base, "within_size\n", Ok(())),
            (&of("hugepages-2048kB/"), "inherit", Ok(())),
        ] {
            assert_eq!(words.write(mm, path, text), answer, "{path} {text:?}");
        }
        for name in ShmemEnabled::names() {
            let text = words.read(&name).unwrap();
            let word = text.split(['[', ']']).nth(1).unwrap();
            let (words_before, policy) = (words.clone(), mm.object_policy());
            assert_eq!(words.write(mm, &name, word), Ok(()), "{name}");
            assert_eq!((&words, mm.object_policy()), (&words_before, policy), "{name}: {word}");
        }

        // What a write to a file brings.
        let file = F::memfd(mm, b"f", 0).unwrap();
        assert_eq!(file.ftruncate(2 * HUGE as i64), Ok(0));
        let at = BASE & !(HUGE - 1);
        let shared = MAP_SHARED | MAP_FIXED;
        assert_eq!(p.mmap(at, 2 * HUGE, RW, shared, Some(&file), 0), Ok(at));
        let mut pages = |p: &mut P<'_, '_>, word: &str, sizes: &str| {
            assert_eq!(file.ftruncate(0), Ok(0));
            assert_eq!(file.ftruncate(2 * HUGE as i64 - 8 * PAGE as i64), Ok(0));
            assert_eq!(words.write(p.manager(), &all, word), Ok(()));
            assert_eq!(words.write(p.manager(), &base, sizes), Ok(()));
            assert_eq!(store(p, sim, at, 1), Ok(()));
            assert_eq!(store(p, sim, at + HUGE, 1), Ok(()));
            assert_eq!(store(p, sim, at + 2 * HUGE - 9 * PAGE, 1), Ok(()));
            let there = |from: u64, to| p.present_in(at + from, at + to);
            let last = 2 * HUGE - 64 * 1024;
            (there(0, HUGE), there(HUGE, last), there(last, 2 * HUGE))
        };
        assert_eq!(pages(p, "never", "never"), (1, 1, 1));
        assert_eq!(pages(p, "always", "never"), (512, 1, 1), "no folio reaches beyond the end");
        assert_eq!(pages(p, "within_size", "always"), (512, 16, 1));
        assert_eq!(pages(p, "deny", "always"), (1, 1, 1), "all are off");
        assert_eq!(pages(p, "force", "always"), (512, 1, 1), "2 MiB alone");
        assert_eq!(pages(p, "never", "within_size"), (16, 16, 1));
        assert_eq!(pages(p, "advise", "advise"), (1, 1, 1));
    });
}

#[test]
fn files_of_khugepaged_take_what_linux_takes() {
    let mut khugepaged = Khugepaged::default();
    let of = |name: &str| format!("transparent_hugepage/khugepaged/{name}");
    let all = || Khugepaged::names().into_iter().map(|name| khugepaged.read(&name).unwrap());
    let first = "1\n4096\n10000\n60000\n511\n64\n256\n0\n0\n";
    assert_eq!(all().collect::<String>(), first);
    let (inval, acces) = (Err(Errno::INVAL), Err(Errno(EACCES)));
    for (name, text, answer) in [
        ("defrag", "2", inval),
        ("defrag", "yes", inval),
        ("defrag", "18446744073709551616", Err(Errno(ERANGE))),
        ("defrag", "0\n", Ok(())),
        ("pages_to_scan", "0", inval),
        ("pages_to_scan", "4294967296", inval),
        ("pages_to_scan", "18446744073709551616", inval),
        ("pages_to_scan", "+00512\n", Ok(())),
        ("scan_sleep_millisecs", "", inval),
        ("scan_sleep_millisecs", "-1", inval),
        ("scan_sleep_millisecs", "0", Ok(())),
        ("alloc_sleep_millisecs", "4294967295", Ok(())),
        ("max_ptes_none", "512", inval),
        ("max_ptes_none", "0", Ok(())),
        ("max_ptes_swap", "512", inval),
        ("max_ptes_swap", "511", Ok(())),
        ("max_ptes_shared", "0x10", inval),
        ("max_ptes_shared", "16 ", inval),
        ("max_ptes_shared", "511", Ok(())),
        ("pages_collapsed", "0", acces),
        ("full_scans", "0", acces),
        ("", "0", Err(Errno(ENOENT))),
        ("full_scan", "0", Err(Errno(ENOENT))),
    ] {
        assert_eq!(khugepaged.write(&of(name), text), answer, "{name} {text:?}");
    }
    let all = || Khugepaged::names().into_iter().map(|name| khugepaged.read(&name).unwrap());
    let then = "0\n512\n0\n4294967295\n0\n511\n511\n0\n0\n";
    assert_eq!(all().collect::<String>(), then);
}

#[test]
fn khugepaged_goes_on_where_it_stopped() {
    with(|p, sim| {
        let mm = p.manager();
        let mut khugepaged = Khugepaged::default();
        let of = |name: &str| format!("transparent_hugepage/khugepaged/{name}");
        let read = |khugepaged: &Khugepaged, name: &str| {
            khugepaged.read(&of(name)).unwrap().trim().parse::<u64>().unwrap()
        };
        let counts = |khugepaged: &Khugepaged| {
            (read(khugepaged, "pages_collapsed"), read(khugepaged, "full_scans"))
        };
        // Four ranges, of which one is not asked for, and one is full to the half.
        let at = BASE & !(HUGE - 1);
        for (nth, pages) in [(0, 512), (1, 512), (2, 512), (3, 256)] {
            assert_eq!(p.mmap(at + nth * HUGE, HUGE, RW, FIXED, None, 0), Ok(at + nth * HUGE));
            for page in 0..pages {
                assert_eq!(store(p, sim, at + nth * HUGE + page * PAGE, 1), Ok(()));
            }
        }
        let scan_sleep = Nanos(10_000_000_000);
        let spaces = [p.space()];
        assert_eq!(khugepaged.scan(mm, &spaces), scan_sleep);
        assert_eq!(counts(&khugepaged), (0, 1), "nothing was advised");
        for nth in [0, 2, 3] {
            assert_eq!(p.madvise(at + nth * HUGE, HUGE, MADV_HUGEPAGE), Ok(0));
        }
        assert_eq!(khugepaged.write(&of("pages_to_scan"), "1"), Ok(()));
        assert_eq!(khugepaged.write(&of("max_ptes_none"), "255"), Ok(()));
        assert_eq!(sys::write(mm, "transparent_hugepage/enabled", "never"), Ok(()));
        assert_eq!(khugepaged.scan(mm, &spaces), scan_sleep);
        assert_eq!(counts(&khugepaged), (0, 1), "nothing is to be made");
        assert_eq!(sys::write(mm, "transparent_hugepage/enabled", "madvise"), Ok(()));
        assert_eq!(khugepaged.scan(mm, &[]), scan_sleep);
        assert_eq!(counts(&khugepaged), (0, 1), "nobody is there");
        for (collapsed, scans) in [(1, 1), (2, 1), (2, 2), (2, 2), (2, 2), (2, 3)] {
            assert_eq!(khugepaged.scan(mm, &spaces), scan_sleep);
            assert_eq!(counts(&khugepaged), (collapsed, scans));
        }
        let large = |nth| {
            let leaves = |leaves: foliant::manager::Entries<'_, '_, Sim, X86_64<4>>| leaves.count();
            mm.with_leaves(
                p.space(),
                crate::pages::range(at + nth * HUGE, at + (nth + 1) * HUGE),
                leaves,
            )
        };
        assert_eq!([0, 1, 2, 3].map(large), [Some(1), Some(512), Some(1), Some(256)]);
        // A space that is gone ends no go: what is in its place is next.
        assert_eq!(khugepaged.write(&of("max_ptes_none"), "256"), Ok(()));
        let child = p.fork().unwrap();
        let two = [p.space(), child.space()];
        for _ in 0..4 {
            khugepaged.scan(mm, &two);
        }
        assert_eq!(counts(&khugepaged), (3, 3), "it is at the child");
        khugepaged.scan(mm, &[p.space()]);
        assert_eq!(counts(&khugepaged), (3, 4));
        child.end().unwrap();
    });
}

#[test]
fn khugepaged_sleeps_longer_where_no_block_was_to_be_had() {
    with(|p, sim| {
        let mm = p.manager();
        let mut khugepaged = Khugepaged::default();
        let defrag = "transparent_hugepage/khugepaged/defrag";
        let at = BASE & !(HUGE - 1);
        assert_eq!(p.mmap(at, HUGE, RW, FIXED, None, 0), Ok(at));
        for page in 0..512 {
            assert_eq!(store(p, sim, at + page * PAGE, 1), Ok(()));
        }
        assert_eq!(p.madvise(at, HUGE, MADV_HUGEPAGE), Ok(0));
        // Every second page of what is free is taken.
        let far = BASE + 64 * HUGE;
        let pages = mm.memory().free.get() - 64;
        assert_eq!(p.mmap(far, pages * PAGE, RW, FIXED, None, 0), Ok(far));
        for page in 0..pages {
            assert_eq!(store(p, sim, far + page * PAGE, 1), Ok(()), "{page}");
        }
        for page in (0..pages).step_by(2) {
            assert_eq!(p.munmap(far + page * PAGE, PAGE), Ok(0));
        }
        assert_eq!(mm.free_blocks().within(Order::SIZE_2M), 0);
        assert_eq!(khugepaged.write(defrag, "0"), Ok(()));
        assert_eq!(khugepaged.scan(mm, &[p.space()]), Nanos(60_000_000_000));
        assert_eq!(khugepaged.write(defrag, "1"), Ok(()));
        assert_eq!(khugepaged.scan(mm, &[p.space()]), Nanos(10_000_000_000));
        let collapsed = khugepaged.read("transparent_hugepage/khugepaged/pages_collapsed");
        assert_eq!(collapsed.as_deref(), Ok("1\n"));
    });
}

#[test]
fn files_of_vm_take_what_linux_takes() {
    with(|p, _| {
        let mm = p.manager();
        let overcommit = overcommit();
        let read = |name: &str| vm::read(mm, &overcommit, &format!("vm/{name}"));
        let write = |name: &str, text| vm::write(mm, &overcommit, &format!("vm/{name}"), text);
        let (inval, acces) = (Err(Errno::INVAL), Errno(EACCES));
        let shown = [
            ("compact_memory", Err(acces)),
            ("drop_caches", Err(acces)),
            ("hugetlb_optimize_vmemmap", Ok("0\n")),
            ("max_map_count", Ok("65530\n")),
            ("mmap_min_addr", Ok("65536\n")),
            ("nr_hugepages", Ok("0\n")),
            ("nr_overcommit_hugepages", Ok("0\n")),
            ("overcommit_kbytes", Ok("0\n")),
            ("overcommit_memory", Ok("0\n")),
            ("overcommit_ratio", Ok("50\n")),
            ("swappiness", Err(Errno(ENOENT))),
        ];
        for (name, text) in shown {
            assert_eq!(read(name).as_deref().map_err(|why| *why), text, "{name}");
        }
        for (name, text, answer, then) in [
            ("compact_memory", "1\n", Ok(()), ""),
            ("compact_memory", "0", inval, ""),
            ("compact_memory", "2", inval, ""),
            ("drop_caches", "1", Ok(()), ""),
            ("drop_caches", " 3\n", Ok(()), ""),
            ("drop_caches", "4", Ok(()), ""),
            ("drop_caches", "0", inval, ""),
            ("drop_caches", "-1", inval, ""),
            ("hugetlb_optimize_vmemmap", "2", Ok(()), "1\n"),
            ("hugetlb_optimize_vmemmap", "on", inval, "1\n"),
            ("hugetlb_optimize_vmemmap", "-7", Ok(()), "1\n"),
            ("hugetlb_optimize_vmemmap", "0", Ok(()), "0\n"),
            ("max_map_count", "4", Ok(()), "4\n"),
            ("max_map_count", "-1", inval, "4\n"),
            ("max_map_count", "2147483647", Ok(()), "2147483647\n"),
            ("mmap_min_addr", "\t0x1000\n", Ok(()), "4096\n"),
            ("mmap_min_addr", "-1", inval, "4096\n"),
            ("mmap_min_addr", "4k", inval, "4096\n"),
            ("nr_hugepages", "3", Ok(()), "3\n"),
            ("nr_hugepages", "-1", inval, "3\n"),
            ("nr_overcommit_hugepages", "02 9", Ok(()), "2\n"),
            ("nr_overcommit_hugepages", "", inval, "2\n"),
            ("overcommit_memory", " 0 ", Ok(()), "0\n"),
            ("overcommit_memory", "1", Ok(()), "1\n"),
            ("overcommit_memory", "2", Ok(()), "2\n"),
            ("overcommit_memory", "3", inval, "2\n"),
            ("overcommit_memory", "-1", inval, "2\n"),
            ("overcommit_ratio", "-3", Ok(()), "-3\n"),
            ("overcommit_ratio", "80", Ok(()), "80\n"),
            ("overcommit_kbytes", "4000", Ok(()), "4000\n"),
            ("overcommit_kbytes", "-1", inval, "4000\n"),
            ("overcommit_ratio", "", inval, "0\n"),
            ("overcommit_ratio", "50", Ok(()), "50\n"),
            ("overcommit_kbytes", "", inval, "0\n"),
            ("user_reserve_kbytes", "0", Ok(()), "0\n"),
            ("admin_reserve_kbytes", "0", Ok(()), "0\n"),
            ("admin_reserve_kbytes", "-1", inval, "0\n"),
        ] {
            assert_eq!(write(name, text), answer, "{name} {text:?}");
            assert_eq!(read(name).unwrap_or_default(), then, "{name} {text:?}");
        }
        for path in vm::names() {
            if let Ok(text) = vm::read(mm, &overcommit, &path) {
                assert_eq!(vm::write(mm, &overcommit, &path, &text), Ok(()), "{path}");
                assert_eq!(vm::read(mm, &overcommit, &path), Ok(text), "{path}");
            }
        }
        assert_eq!(write("nr_hugepages", "0"), Ok(()));
    });
}

#[test]
fn a_line_for_split_huge_pages_is_read_as_far_as_it_goes() {
    with(|p, sim| {
        let at = BASE & !(HUGE - 1);
        assert_eq!(p.mmap(at, 4 * HUGE, RW, FIXED, None, 0), Ok(at));
        assert_eq!(p.madvise(at, 4 * HUGE, MADV_HUGEPAGE), Ok(0));
        for nth in 0..3 {
            assert_eq!(store(p, sim, at + nth * HUGE, 1), Ok(()));
        }
        let order = |p: &P<'_, '_>, nth: u64| {
            let frame = p.manager().frame_at(p.space(), Va::new(at + nth * HUGE)).unwrap();
            p.manager().identity(frame).order().get()
        };
        let orders = |p: &P<'_, '_>| [0, 1, 2].map(|nth| order(p, nth));
        let write = |p: &P<'_, '_>, text: &str| {
            split_huge_pages(p.manager(), text, |pid| (pid == 7).then_some(p))
        };
        let (inval, esrch) = (Err(Errno::INVAL), Err(Errno(ESRCH)));
        for (text, answer) in [
            ("", inval),
            ("2", inval),
            ("x", inval),
            ("- 1", inval),
            ("+1", inval),
            ("1,0x10", inval),
            ("7,0x10", inval),
            ("7,10,20", inval),
            ("7,0x,0x1000", inval),
            ("/file,0x0,0x1000", inval),
            ("8,0x0,0x1000", esrch),
            ("-7,0x0,0x1000", esrch),
            ("7,0x0,0x1000", Ok(())),
        ] {
            assert_eq!(write(p, text), answer, "{text:?}");
            assert_eq!(orders(p), [9, 9, 9]);
        }
        let line = |from: u64, to: u64, more: &str| format!("7,{from:#x},{to:#x}{more}");
        for (from, to, more, expect) in [
            // A hole ends it, and what is large enough or is no size stays.
            (at - PAGE, at + HUGE, "", [9, 9, 9]),
            (at, at + PAGE - 1, "", [9, 9, 9]),
            (at, at + HUGE, ",9", [9, 9, 9]),
            (at, at + HUGE, ",1", [9, 9, 9]),
            (at, at + HUGE, ",-1", [9, 9, 9]),
            (at + 5 * PAGE, at + 6 * PAGE, ",4", [4, 9, 9]),
            (at + HUGE, at + HUGE + PAGE, ",2,100\n", [4, 2, 9]),
            (at, at + HUGE, " and so on", [0, 2, 9]),
        ] {
            assert_eq!(write(p, &line(from, to, more)), Ok(()));
            assert_eq!(orders(p), expect, "{more}");
        }
        assert_eq!(write(p, "1"), Ok(()));
        assert_eq!(orders(p), [0, 0, 0]);
    });
}

/// What is written by `write`.
fn text(write: impl FnOnce(&mut String) -> core::fmt::Result) -> String {
    let mut text = String::new();
    write(&mut text).unwrap();
    text
}

/// The words of a machine of 3,000 pages of which 2,000 were free.
fn overcommit() -> Overcommit {
    Overcommit::new(Pages::new(3000), Pages::new(2000))
}

/// What calls may ask for by each word, and that what one call is promised counts for the next.
#[test]
fn promises_are_kept_as_the_words_say() {
    with(|p, _| {
        let mm = p.manager();
        let words = Overcommit::new(Pages::new(1_000_000), Pages::new(1 << 20));
        let set = |name: &str, text| vm::write(mm, &words, &format!("vm/{name}"), text);
        let all = Promise::Guess(Pages::new(1_000_000));
        let counted = |p: &P<'_, '_>, is_admin| {
            let (own, committed) = (Pages::new(p.pages()), Pages::new(1000));
            overcommit::Counted { is_admin, own, committed, pooled: Pages::new(0) }
        };
        let of = |p: &P<'_, '_>, is_admin| words.promise(|| counted(p, is_admin));
        assert_eq!((of(p, false), words.is_strict()), (all, false));
        set("overcommit_memory", "1").unwrap();
        assert_eq!((of(p, false), words.is_strict()), (Promise::Always, false));
        set("overcommit_memory", "2").unwrap();
        let never = |pages| Promise::Never(Pages::new(pages));
        // Half of all, less what was promised, and what is kept for root: 8 MiB.
        assert_eq!((of(p, true), of(p, false)), (never(498_999), never(496_951)));
        let reserve = p.mmap(0, 640_000 * PAGE, PROT_NONE, PRIVATE, None, 0).unwrap();
        assert_eq!(of(p, true), never(498_999 - 20_000), "a 32nd of the process is kept");
        set("user_reserve_kbytes", "4000").unwrap();
        set("admin_reserve_kbytes", "8").unwrap();
        assert_eq!((of(p, true), of(p, false)), (never(497_999), never(497_997)));
        set("overcommit_ratio", "1").unwrap();
        assert_eq!((words.limit(Pages::new(1000)), of(p, true)), (Pages::new(9990), never(7999)));
        set("overcommit_kbytes", "24003").unwrap();
        assert_eq!((words.limit(Pages::new(1000)), of(p, true)), (Pages::new(6000), never(3999)));
        let much = overcommit::Counted { committed: Pages::new(7000), ..counted(p, true) };
        assert_eq!(words.promise(|| much), never(0));

        let (promise, nomem) = (never(10), Err(Errno::NOMEM));
        p.set_limits(Limits { promise, ..Limits::NONE });
        let map =
            |p: &mut P<'_, '_>, pages, flags| p.mmap(0, pages * PAGE, RW, PRIVATE | flags, None, 0);
        assert_eq!(map(p, 11, 0), nomem);
        assert!(map(p, 6, 0).is_ok());
        assert_eq!(map(p, 5, MAP_NORESERVE), nomem, "that is passed over");
        let at = map(p, 4, MAP_NORESERVE).unwrap();
        assert!(p.vma(at).unwrap().tag.marks.has(Marks::ACCOUNTED));
        assert_eq!(map(p, 1, 0), nomem);
        assert_eq!(p.mprotect(reserve, PAGE, RW), nomem);
        assert_eq!(p.fork().map(drop), Err(Errno::NOMEM), "copies of ten pages");
        p.set_limits(Limits { promise, ..Limits::NONE });
        assert_eq!(p.mprotect(reserve, PAGE, RW), Ok(0));
        assert_eq!(p.fork().map(drop), Err(Errno::NOMEM), "nine are left");
        assert_eq!(p.madvise(at, 4 * PAGE, MADV_DONTFORK), Ok(0));
        let child = p.fork().unwrap();
        assert_eq!(map(p, 3, 0), nomem, "seven of nine are the child's");
        assert!(map(p, 2, 0).is_ok());
        child.end().unwrap();

        // What goes first is not counted: what is mapped over, and what is moved over.
        p.set_limits(Limits { promise, ..Limits::NONE });
        let over = p.mmap(BASE, 8 * PAGE, RW, PRIVATE | MAP_FIXED, None, 0).unwrap();
        assert_eq!(p.mmap(over, 8 * PAGE, RW, PRIVATE | MAP_FIXED, None, 0), Ok(over));
        assert_eq!(p.mmap(over, 11 * PAGE, RW, PRIVATE | MAP_FIXED, None, 0), nomem);
        let from = map(p, 2, 0).unwrap();
        assert_eq!(p.mremap(from, 2 * PAGE, 11 * PAGE, MREMAP_MAYMOVE, 0), nomem);
        let to = MREMAP_MAYMOVE | MREMAP_FIXED;
        assert_eq!(p.mremap(from, 2 * PAGE, 10 * PAGE, to, over), Ok(over));
        assert_eq!(map(p, 1, 0), nomem);

        // Without a count each vma is weighed alone, and together where they are one.
        p.set_limits(Limits { promise: Promise::Guess(Pages::new(12)), ..Limits::NONE });
        p.munmap(reserve, 640_000 * PAGE).unwrap();
        let beside = |nth: u64| BASE + (100 + nth) * PAGE;
        let fixed = PRIVATE | MAP_FIXED;
        assert_eq!(p.mmap(beside(0), 9 * PAGE, RW, fixed, None, 0), Ok(beside(0)));
        assert_eq!(p.mmap(beside(10), 9 * PAGE, RW, fixed, None, 0), Ok(beside(10)));
        p.fork().unwrap().end().unwrap();
        assert_eq!(p.mmap(beside(9), PAGE, RW, fixed, None, 0), Ok(beside(9)));
        assert_eq!(p.fork().map(drop), Err(Errno::NOMEM), "nineteen pages are one vma");
    });
}

/// Files count once, whoever adds them: shared memory and segments as a whole, and others as far as
/// they have pages.
#[test]
fn what_files_are_promised_is_counted() {
    with(|p, sim| {
        let committed = |p: &P<'_, '_>, files: &[&F<'_, '_>], segments: &Segments<'_, '_, _, _>| {
            let mut listed = Listed::default();
            files.iter().for_each(|file| listed.add_file(file));
            segments.files().for_each(|file| listed.add_file(&file));
            listed.add_promises(p);
            listed.committed().get()
        };
        const NEW: u32 = IPC_CREAT | 0o600;
        let mut segments = Segments::default();
        assert_eq!(committed(p, &[], &segments), 0);
        let own = MAP_SHARED | MAP_ANONYMOUS;
        let at = p.mmap(0, 8 * PAGE, RW, own, None, 0).unwrap();
        assert_eq!(committed(p, &[], &segments), 8);
        assert_eq!(store(p, sim, at, 1), Ok(()));
        p.munmap(at, PAGE).unwrap();
        assert_eq!(committed(p, &[], &segments), 8, "all of it stays promised");
        let bare = p.mmap(0, 8 * PAGE, RW, own | MAP_NORESERVE, None, 0).unwrap();
        assert_eq!(committed(p, &[], &segments), 8);
        assert_eq!(store(p, sim, bare, 1), Ok(()));
        assert_eq!(committed(p, &[], &segments), 9);
        let file = F::memfd(p.manager(), b"f", 0).unwrap();
        assert_eq!(file.ftruncate(8 * PAGE as i64), Ok(0));
        assert_eq!(file.pwrite(&[1], 0), Ok(1));
        assert_eq!(committed(p, &[&file], &segments), 10);
        p.mmap(0, 8 * PAGE, RW, MAP_SHARED, Some(&file), 0).unwrap();
        assert_eq!(committed(p, &[&file], &segments), 10, "it is one file");
        let id = p.shmget(&mut segments, 1, 4 * PAGE, NEW).unwrap() as i32;
        assert_eq!(committed(p, &[&file], &segments), 14);
        let at = p.shmat(&mut segments, id, 0, 0).unwrap();
        p.shmget(&mut segments, 2, 4 * PAGE, NEW | SHM_NORESERVE).unwrap();
        assert_eq!(committed(p, &[&file], &segments), 14);
        p.shmdt(at).unwrap();
        let mut listed = Listed::default();
        listed.add_process(p);
        assert_eq!((listed.shared, listed.committed().get()), (3, 10));
    });
}

#[test]
fn what_files_and_processes_have_is_counted_apart() {
    with(|p, sim| {
        let mm = p.manager();
        let mut words = ShmemEnabled::new(mm);
        assert_eq!(words.write(mm, "transparent_hugepage/shmem_enabled", "always"), Ok(()));
        let file = F::memfd(mm, b"f", 0).unwrap();
        assert_eq!(file.ftruncate(2 * HUGE as i64 - PAGE as i64), Ok(0));
        let at = BASE & !(HUGE - 1);
        let shared = MAP_SHARED | MAP_FIXED;
        assert_eq!(p.mmap(at, 2 * HUGE, RW, shared, Some(&file), 0), Ok(at));
        assert_eq!(store(p, sim, at, 1), Ok(()));
        assert_eq!(file.pwrite(&[1], HUGE as i64), Ok(1), "in the file, and mapped by nobody");
        put(p, 1024, 3, RW);
        assert_eq!(p.mlock(BASE + 1024 * PAGE, 2 * PAGE), Ok(0));
        let mut listed = Listed::default();
        listed.add_file(&file);
        listed.add_process(p);
        let text = text(|out| meminfo::meminfo(mm, &overcommit(), &listed, out));
        let line = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
        };
        for (name, kilobytes) in [
            ("Cached:", 2052),
            ("Active:", 2060),
            ("Unevictable:", 8),
            ("Mlocked:", 8),
            ("AnonPages:", 8),
            ("Mapped:", 2048),
            ("Shmem:", 2052),
            ("AnonHugePages:", 0),
            ("ShmemHugePages:", 2048),
            ("ShmemPmdMapped:", 2048),
            ("CommitLimit:", 6000),
            ("Committed_AS:", 2064),
        ] {
            assert_eq!(line(name), kilobytes, "{name} of {text}");
        }
        let text = self::text(|out| meminfo::vmstat(mm, &listed, out));
        for line in ["nr_mlock 2", "nr_mapped 512", "nr_shmem 513", "nr_shmem_pmdmapped 1"] {
            assert!(text.contains(&format!("\n{line}\n")), "{line}: {text}");
        }
        let smaps = self::text(|out| p.smaps(out));
        let first = smaps.split("VmFlags").next().unwrap();
        assert!(first.contains("AnonHugePages:         0 kB\nShmemPmdMapped:     2048 kB\n"));
        // A child that maps the same large leaf counts as well, but the folio counts once.
        let mut child = p.fork().unwrap();
        p.manager().switch(Some(child.space())).unwrap();
        assert_eq!(store(&mut child, sim, at, 1), Ok(()));
        p.manager().switch(Some(p.space())).unwrap();
        let mut both = listed.clone();
        both.add_process(&child);
        let lines = self::text(|out| meminfo::vmstat(mm, &both, out));
        assert!(lines.contains("\nnr_mapped 1024\n") && lines.contains("\nnr_shmem_pmdmapped 1\n"));
        child.end().unwrap();
        // Pages of a pool are none of it.
        assert_eq!(sys::write(mm, "hugepages/hugepages-2048kB/nr_hugepages", "1"), Ok(()));
        let pooled = MemoryFile::memfd(mm, b"p", MFD_HUGETLB).unwrap();
        assert_eq!(pooled.ftruncate(HUGE as i64), Ok(0));
        let far = at + 8 * HUGE;
        assert_eq!(p.mmap(far, HUGE, RW, shared, Some(&pooled), 0), Ok(far));
        assert_eq!(store(p, sim, far, 1), Ok(()));
        let mut again = Listed::default();
        again.add_file(&file);
        again.add_file(&pooled);
        again.add_process(p);
        assert_eq!(again, listed);
    });
}

#[test]
fn zoneinfo_and_pagetypeinfo_are_linuxs_to_the_byte() {
    with(|p, sim| {
        let mm = p.manager();
        put(p, 0, 1, RW);
        assert_eq!(store(p, sim, BASE, 1), Ok(()));
        let zone = text(|out| zones::zoneinfo(mm, &Listed::default(), out));
        let memory = mm.memory();
        let (free, managed) = (memory.free.get(), memory.managed.get());
        let start = mm.ranges().next().unwrap().start().get();
        assert!(zone.starts_with(
            "Node 0, zone   Normal\n  per-node stats\n      nr_inactive_anon 0\n      \
             nr_active_anon 1\n      nr_inactive_file 0\n"
        ));
        let blocks = mm.free_blocks().within(Order::SIZE_2M) * 512;
        let rest = format!(
            "      nr_kernel_file_pages 0
  pages free     {free}
        boost    0
        min      0
        low      0
        high     0
        promo    0
        spanned  {managed}
        present  {managed}
        managed  {managed}
        cma      0
        protection: (0)
      nr_free_pages {free}
      nr_free_pages_blocks {blocks}
      nr_zone_inactive_anon 0
      nr_zone_active_anon 1
      nr_zone_inactive_file 0
      nr_zone_active_file 0
      nr_zone_unevictable 0
      nr_zone_write_pending 0
      nr_mlock     0
      nr_zspages   0
      nr_free_cma  0
  pagesets
    cpu: 0
              count:    0
              high:     0
              batch:    0
              high_min: 0
              high_max: 0
  vm stats threshold: 0
  node_unreclaimable:  0
  start_pfn:           {start}
"
        );
        assert!(zone.ends_with(&rest), "{zone}");
        assert!(zone.contains("\n      nr_mapped    0\n"));

        let types = text(|out| zones::pagetypeinfo(mm, out));
        let orders = text(|out| meminfo::buddyinfo(mm, out));
        let free = orders.strip_prefix("Node 0, zone   Normal ").unwrap();
        let none = "     0 ".repeat(11);
        let blocks = (start + managed).div_ceil(512) - start / 512;
        let fixed: u64 =
            types.lines().last().unwrap().split_whitespace().nth(4).unwrap().parse().unwrap();
        assert!(fixed > 0 && fixed < blocks, "tables and records lie somewhere");
        let expect = format!(
            "Page block order: 9
Pages per block:  512

Free pages count per migrate type at order       0      1      2      3      4      5      6      7      8      9     10 
Node    0, zone   Normal, type    Unmovable {none}
Node    0, zone   Normal, type      Movable {free}\
Node    0, zone   Normal, type  Reclaimable {none}
Node    0, zone   Normal, type   HighAtomic {none}
Node    0, zone   Normal, type      Isolate {none}

Number of blocks type     Unmovable      Movable  Reclaimable   HighAtomic      Isolate 
Node 0, zone   Normal {fixed:12} {:12} {:12} {:12} {:12} 
",
            blocks - fixed,
            0,
            0,
            0
        );
        assert_eq!(types, expect);
    });
}

#[test]
fn vmallocinfo_has_the_names_of_callers() {
    with(|p, _| {
        let mm = p.manager();
        assert_eq!(text(|out| meminfo::vmallocinfo(mm, |caller| caller, out)), "");
        let range = mm.vmalloc(&Request::of(Bytes::new(3 * PAGE))).unwrap();
        let (start, end) = (range.start().get(), range.end().get() + PAGE);
        let text = text(|out| meminfo::vmallocinfo(mm, |caller| format!("f+{caller}"), out));
        assert_eq!(text, format!("{start:#018x}-{end:#018x}   16384 f+0x0 pages=3 vmalloc N0=3\n"));
        mm.vfree(range.start()).unwrap();
    });
}

#[test]
fn each_frame_has_a_word() {
    with(|p, sim| {
        let mm = p.manager();
        let at = BASE & !(HUGE - 1);
        assert_eq!(p.mmap(at, 2 * HUGE, RW, FIXED, None, 0), Ok(at));
        assert_eq!(p.madvise(at, HUGE, MADV_HUGEPAGE), Ok(0));
        for addr in [at, at + HUGE] {
            assert_eq!(store(p, sim, addr, 1), Ok(()));
        }
        let child = p.fork().unwrap();
        let frame = |addr| mm.frame_at(p.space(), Va::new(addr)).unwrap().get();
        let word = |frame: u64| {
            let mut words = [[7; 2]; 2];
            assert_eq!(kpage::kpageflags(mm, frame * 8, &mut words[0]), Ok(2));
            assert_eq!(kpage::kpagecount(mm, frame * 8, &mut words[1]), Ok(2));
            words
        };
        let own = 1 << 3 | 1 << 11 | 1 << 12 | 1 << 14;
        let (head, tail) = (own | 1 << 15 | 1 << 22, own | 1 << 16 | 1 << 22);
        assert_eq!(word(frame(at)), [[head, tail], [2, 2]]);
        assert_eq!([word(frame(at + HUGE))[0][0], word(frame(at + HUGE))[1][0]], [own, 2]);
        child.end().unwrap();
        assert_eq!(word(frame(at))[1], [1, 1]);
        let (memory, end) = (mm.ranges().next().unwrap(), mm.folios().end().get());
        let free = memory
            .iter()
            .find(|frame| mm.folios().state(*frame) == foliant::folio::FrameState::Free);
        assert_eq!(
            [word(free.unwrap().get())[0][0], word(free.unwrap().get())[1][0]],
            [1 << 10, 0]
        );
        if memory.start().get() > 0 {
            assert_eq!(word(0)[0][0], 1 << 20, "no memory is there");
        }
        let mut words = [7; 3];
        assert_eq!(kpage::kpageflags(mm, (end - 1) * 8, &mut words), Ok(1));
        assert_eq!(kpage::kpageflags(mm, end * 8, &mut words), Ok(0));
        assert_eq!(kpage::kpagecount(mm, u64::MAX - 7, &mut words), Ok(0));
        assert_eq!(kpage::kpagecount(mm, 4, &mut words), Err(Errno::INVAL));
    });
}
