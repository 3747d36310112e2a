//! What `pagemap`, `status` and their kin say, and what `clear_refs` forgets.

use super::*;
use crate::Frames;

const PRESENT: u64 = 1 << 63;
const GUARD: u64 = 1 << 62 | 1 << 58;
const SOLE: u64 = 1 << 56;
const SOFT_DIRTY: u64 = 1 << 55;

/// The words of pages from `BASE` on.
fn words(p: &P<'_, '_>, pages: usize) -> Vec<u64> {
    let mut words = Vec::from_iter((0..pages).map(|_| 7));
    assert_eq!(p.pagemap(BASE / PAGE * 8, &mut words, Frames::Hidden), Ok(pages));
    words
}
/// Which of the pages from `BASE` on are soft dirty, `#` for each.
fn dirty(p: &P<'_, '_>, pages: usize) -> String {
    let letter = |word: u64| if word & SOFT_DIRTY != 0 { '#' } else { '.' };
    words(p, pages).into_iter().map(letter).collect()
}

#[test]
fn pagemap_says_what_is_where_and_whose() {
    with(|p, sim| {
        put(p, 0, 2, RW);
        put(p, 3, 3, RW);
        for page in [0, 3] {
            assert_eq!(store(p, sim, BASE + page * PAGE, 1), Ok(()));
        }
        assert_eq!(p.madvise(BASE + 4 * PAGE, PAGE, MADV_POPULATE_READ), Ok(0));
        assert_eq!(p.madvise(BASE + 5 * PAGE, PAGE, MADV_GUARD_INSTALL), Ok(0));
        let new = |word| word | SOFT_DIRTY;
        let zero = new(PRESENT);
        let own = new(PRESENT | SOLE);
        assert_eq!(words(p, 7), [own, new(0), 0, own, zero, new(GUARD), 0]);
        let child = p.fork().unwrap();
        assert_eq!(words(p, 1), [zero], "two have it");
        child.end().unwrap();
        assert_eq!(words(p, 1), [own], "one has it again, though it may not write yet");
        // Frames are for those who may know them.
        let mut frames = [0; 2];
        assert_eq!(p.pagemap(BASE / PAGE * 8, &mut frames, Frames::Shown), Ok(2));
        let frame = p.manager().frame_at(p.space(), Va::new(BASE)).unwrap().get();
        assert_eq!(frames, [own | frame, new(0)]);
        assert_eq!(p.pagemap(4, &mut frames, Frames::Shown), Err(Errno::INVAL));
        let last = SIZE / PAGE - 1;
        assert_eq!(p.pagemap(last * 8, &mut frames, Frames::Hidden), Ok(1), "addresses end");
        for offset in [(last + 1) * 8, u64::MAX - 7] {
            assert_eq!(p.pagemap(offset, &mut frames, Frames::Hidden), Ok(0));
        }
    });
}

#[test]
fn pagemap_finds_each_page_of_a_large_leaf() {
    with(|p, sim| {
        put(p, 0, 512, RW);
        assert_eq!(p.madvise(BASE, HUGE, MADV_HUGEPAGE), Ok(0));
        let mut shown = [0; 3];
        let at = |page: u64| (BASE / PAGE + page) * 8;
        assert_eq!(p.fault_alone(BASE, Access::Read), Fault::Done);
        assert_eq!(p.pagemap(at(0), &mut shown, Frames::Hidden), Ok(3));
        assert_eq!(shown, [PRESENT | 1 << 61 | SOFT_DIRTY; 3], "zeros of 2 MiB");
        assert_eq!(p.madvise(BASE + 400 * PAGE, PAGE, MADV_DONTDUMP), Ok(0));
        assert_eq!(p.pagemap(at(0), &mut shown, Frames::Hidden), Ok(3));
        assert_eq!(shown, [PRESENT | SOFT_DIRTY; 3], "a vma ends within, so they are small");
        assert_eq!(p.madvise(BASE + 400 * PAGE, PAGE, MADV_DODUMP), Ok(0));
        assert_eq!(p.pagemap(at(0), &mut shown, Frames::Hidden), Ok(3));
        assert_eq!(shown, [PRESENT | SOFT_DIRTY; 3], "and so they stay");
        put(p, 0, 512, RW);
        assert_eq!(p.madvise(BASE, HUGE, MADV_HUGEPAGE), Ok(0));
        assert_eq!(store(p, sim, BASE + 9 * PAGE, 1), Ok(()));
        assert_eq!(p.pagemap(at(100), &mut shown, Frames::Shown), Ok(3));
        let frame = |page: u64| p.manager().frame_at(p.space(), Va::new(BASE + page * PAGE));
        let first = frame(100).unwrap().get();
        assert_eq!(shown.map(|word| word & ((1 << 55) - 1)), [first, first + 1, first + 2]);
        // Of all pages of the leaf it is said who has the first: a child drops another one, and it.
        let mut child = p.fork().unwrap();
        for (page, is_sole) in [(101, false), (0, true)] {
            assert_eq!(child.madvise(BASE + page * PAGE, PAGE, MADV_DONTNEED), Ok(0));
            assert_eq!(p.pagemap(at(100), &mut shown, Frames::Hidden), Ok(3));
            assert_eq!(shown.map(|word| word & SOLE != 0), [is_sole; 3], "{page}");
        }
        // Where a vma ends within the leaf, each page is asked about.
        assert_eq!(p.madvise(BASE + 400 * PAGE, PAGE, MADV_DONTDUMP), Ok(0));
        assert_eq!(p.pagemap(at(100), &mut shown, Frames::Hidden), Ok(3));
        assert_eq!(shown.map(|word| word & SOLE != 0), [false, true, false]);
        child.end().unwrap();
    });
}

/// A child gets the page tables of a shared area with guards, also of what nobody may read by then.
#[test]
fn pagemap_of_a_parent_knows_what_its_child_has_without_rights() {
    with(|p, _| {
        assert_eq!(
            p.mmap(BASE, 8 * PAGE, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, None, 0),
            Ok(BASE)
        );
        assert_eq!(p.madvise(BASE + 7 * PAGE, PAGE, MADV_GUARD_INSTALL), Ok(0));
        assert_eq!(p.fault(BASE, Access::Read), Fault::Done);
        assert_eq!(p.mprotect(BASE, PAGE, PROT_NONE), Ok(0));
        let sole = |p: &P<'_, '_>| {
            let mut shown = [0];
            assert_eq!(p.pagemap(BASE / PAGE * 8, &mut shown, Frames::Hidden), Ok(1));
            shown[0] & SOLE != 0
        };
        assert!(sole(p));
        let child = p.fork().unwrap();
        assert!(!sole(p) && !sole(&child));
        assert_eq!(child.vma(BASE).unwrap().prot(), PROT_NONE);
        child.end().unwrap();
        assert!(sole(p));
    });
}

#[test]
fn soft_dirty_is_what_is_new_or_written_since_it_was_cleared() {
    with(|p, sim| {
        put(p, 0, 6, RW);
        assert_eq!(store(p, sim, BASE, 1), Ok(()));
        assert_eq!(store(p, sim, BASE + PAGE, 1), Ok(()));
        assert_eq!(dirty(p, 7), "######.", "all that is new");
        assert_eq!(p.clear_refs("4\n"), Ok(()));
        assert_eq!(dirty(p, 7), ".......");
        assert_eq!(areas(p), [(0, 6, RW)], "it is one vma still");
        assert_eq!(store(p, sim, BASE + PAGE, 2), Ok(()));
        assert_eq!(store(p, sim, BASE + 2 * PAGE, 2), Ok(()));
        assert_eq!(dirty(p, 7), ".##....");
        // Rights that come back do not come behind the reader's back.
        assert_eq!(p.mprotect(BASE, 2 * PAGE, PROT_READ), Ok(0));
        assert_eq!(p.mprotect(BASE, 2 * PAGE, RW), Ok(0));
        assert_eq!(dirty(p, 7), ".##....");
        assert_eq!(store(p, sim, BASE, 3), Ok(()));
        assert_eq!(dirty(p, 7), "###....");
        // A child's copy is as its parent's page, and what it writes is its own.
        assert_eq!(p.clear_refs("4"), Ok(()));
        let child = p.fork().unwrap();
        assert_eq!((dirty(&child, 7), dirty(p, 7)), (".......".into(), ".......".into()));
        child.end().unwrap();
        // What is new beside what is clean makes one with it, and all of it is new.
        put(p, 6, 1, RW);
        assert_eq!((areas(p), dirty(p, 7)), (Vec::from([(0, 7, RW)]), "#######".into()));
        assert_eq!(p.clear_refs(" 4 "), Ok(()));
        // What was moved is new.
        let to = BASE + 32 * PAGE;
        let flags = MREMAP_MAYMOVE | MREMAP_FIXED;
        assert_eq!(p.mremap(BASE, 2 * PAGE, 2 * PAGE, flags, to), Ok(to));
        assert_eq!(dirty(p, 35), ".".repeat(32) + "##.");
    });
}

#[test]
fn clear_refs_takes_five_numbers() {
    with(|p, sim| {
        put(p, 0, 2, RW);
        assert_eq!(store(p, sim, BASE, 1), Ok(()));
        for wrong in ["", "0", "6", "-1", "four", "4 4"] {
            assert_eq!(p.clear_refs(wrong), Err(Errno::INVAL), "{wrong:?}");
        }
        let referenced = |p: &P<'_, '_>| {
            let mut smaps = String::new();
            p.smaps(&mut smaps).unwrap();
            smaps.contains("Referenced:            4 kB")
        };
        for (text, forgets) in [("3", false), ("4", false), ("5", false), ("1", true), ("2", true)]
        {
            let _ = p.madvise(BASE, PAGE, MADV_DONTNEED);
            assert_eq!(store(p, sim, BASE, 1), Ok(()));
            assert!(referenced(p));
            assert_eq!(p.clear_refs(text), Ok(()));
            assert_eq!(referenced(p), !forgets, "{text}");
        }
    });
}

fn text(write: impl FnOnce(&mut String) -> core::fmt::Result) -> String {
    let mut text = String::new();
    write(&mut text).unwrap();
    text
}

#[test]
fn status_and_statm_are_linuxs_to_the_byte() {
    with(|p, sim| {
        put(p, 0, 8, RW);
        put(p, 1024, 4, PROT_READ | PROT_EXEC);
        let stack = FIXED | MAP_GROWSDOWN;
        assert_eq!(p.mmap(BASE + (1 << 30), 2 * PAGE, RW, stack, None, 0), Ok(BASE + (1 << 30)));
        assert_eq!(p.mlock(BASE, 3 * PAGE), Ok(0));
        assert_eq!(store(p, sim, BASE + 4 * PAGE, 1), Ok(()));
        assert_eq!(p.munmap(BASE + 3 * PAGE, 4 * PAGE), Ok(0));
        assert_eq!(
            text(|out| p.status(out)),
            "VmPeak:\t      56 kB\n\
             VmSize:\t      40 kB\n\
             VmLck:\t      12 kB\n\
             VmPin:\t       0 kB\n\
             VmHWM:\t      16 kB\n\
             VmRSS:\t      12 kB\n\
             RssAnon:\t      12 kB\n\
             RssFile:\t       0 kB\n\
             RssShmem:\t       0 kB\n\
             VmData:\t      16 kB\n\
             VmStk:\t       8 kB\n\
             VmExe:\t       0 kB\n\
             VmLib:\t      16 kB\n\
             VmPTE:\t      12 kB\n\
             VmSwap:\t       0 kB\n\
             HugetlbPages:\t       0 kB\n\
             CoreDumping:\t0\n\
             THP_enabled:\t1\n"
        );
        assert_eq!(text(|out| p.statm(out)), "10 3 0 0 0 6 0\n");
        assert_eq!(p.clear_refs("5"), Ok(()));
        assert!(text(|out| p.status(out)).contains("VmHWM:\t      12 kB"));
        // A child begins with what it has.
        let child = p.fork().unwrap();
        let status = text(|out| child.status(out));
        assert!(
            status.starts_with("VmPeak:\t      40 kB\nVmSize:\t      40 kB\nVmLck:\t       0 kB")
        );
        child.end().unwrap();
    });
}

#[test]
fn a_pools_pages_are_counted_apart() {
    with(|p, sim| {
        let pool = "hugepages/hugepages-2048kB/nr_hugepages";
        assert_eq!(sys::write(p.manager(), pool, "1"), Ok(()));
        assert_eq!(p.mmap(BASE, HUGE, RW, FIXED | MAP_HUGETLB, None, 0), Ok(BASE));
        assert_eq!(store(p, sim, BASE + 5, 1), Ok(()));
        let status = text(|out| p.status(out));
        assert!(status.contains("VmRSS:\t       0 kB\n"), "{status}");
        assert!(status.contains("HugetlbPages:\t    2048 kB\n"), "{status}");
        assert!(
            status.contains("VmPTE:\t       8 kB\n"),
            "no table is kept for its split: {status}"
        );
        assert_eq!(words(p, 2), [PRESENT | SOLE | SOFT_DIRTY; 2]);
    });
}

#[test]
fn a_rollup_adds_up_what_smaps_says() {
    with(|p, sim| {
        put(p, 0, 2, RW);
        put(p, 8, 1, RW);
        for page in [0, 1, 8] {
            assert_eq!(store(p, sim, BASE + page * PAGE, 1), Ok(()));
        }
        assert_eq!(p.mlock(BASE, PAGE), Ok(0));
        assert_eq!(
            text(|out| p.smaps_rollup(out)),
            "1000000000-1000009000 ---p 00000000 00:00 0                              [rollup]\n\
             Rss:                  12 kB\n\
             Pss:                  12 kB\n\
             Pss_Dirty:            12 kB\n\
             Pss_Anon:             12 kB\n\
             Pss_File:              0 kB\n\
             Pss_Shmem:             0 kB\n\
             Shared_Clean:          0 kB\n\
             Shared_Dirty:          0 kB\n\
             Private_Clean:         0 kB\n\
             Private_Dirty:        12 kB\n\
             Referenced:           12 kB\n\
             Anonymous:            12 kB\n\
             KSM:                   0 kB\n\
             LazyFree:              0 kB\n\
             AnonHugePages:         0 kB\n\
             ShmemPmdMapped:        0 kB\n\
             FilePmdMapped:         0 kB\n\
             Shared_Hugetlb:        0 kB\n\
             Private_Hugetlb:       0 kB\n\
             Swap:                  0 kB\n\
             SwapPss:               0 kB\n\
             Locked:                4 kB\n"
        );
    });
}

#[test]
fn buddyinfo_has_eleven_columns() {
    with(|p, _| {
        let text = text(|out| meminfo::buddyinfo(p.manager(), out));
        let columns = text.strip_prefix("Node 0, zone   Normal ").unwrap();
        assert!(columns.ends_with(" \n") && columns.len() == 11 * 7 + 1, "{text:?}");
        let blocks = columns.split_whitespace().map(|count| count.parse::<u64>().unwrap());
        let pages: u64 = blocks.enumerate().map(|(order, count)| count << order).sum();
        assert_eq!(pages, p.manager().memory().free.get());
    });
}
