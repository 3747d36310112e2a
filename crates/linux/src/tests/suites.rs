//! What suites of Linux's own found, each with a test of its own.

use super::shared::{F, load, show};
use super::*;
use crate::{ShmemEnabled, split_huge_pages, split_huge_pages_of_file};
use foliant_units::Order;
use linux_raw_sys::errno::EOVERFLOW;

/// Kilobytes in large leaves, as `smaps` has them of all areas.
fn large(process: &P<'_, '_>) -> u64 {
    let mut text = String::new();
    process.smaps(&mut text).unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix("AnonHugePages:"));
    lines.map(|line| line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()).sum()
}
/// Maps a folio of 2 MiB, and writes a byte of it.
fn large_folio(process: &mut P<'_, '_>, sim: &Sim) -> u64 {
    let at = BASE & !(HUGE - 1);
    assert_eq!(process.mmap(at, HUGE, RW, FIXED, None, 0), Ok(at));
    assert_eq!(process.madvise(at, HUGE, MADV_HUGEPAGE), Ok(0));
    assert_eq!(store(process, sim, at, 1), Ok(()));
    assert_eq!(large(process), HUGE >> 10);
    at
}

#[test]
fn a_leaf_over_the_end_of_what_was_advised_is_taken_apart() {
    for advice in [MADV_NOHUGEPAGE, MADV_DONTDUMP] {
        with(|p, sim| {
            let at = large_folio(p, sim);
            assert_eq!(p.madvise(at, PAGE, advice), Ok(0));
            assert_eq!(large(p), 0);
            assert_eq!(p.madvise(at, HUGE, advice), Ok(0));
            assert_eq!((p.vmas().count(), large(p)), (1, 0), "one vma again, of small entries");
            let frame = p.manager().frame_at(p.space(), Va::new(at)).unwrap();
            assert_eq!(p.manager().identity(frame).order(), Order::SIZE_2M, "the folio stays");
            assert_eq!(load(p, sim, at), Ok(1));
        });
    }
}

#[test]
fn zeros_of_a_folio_that_is_split_are_given_back() {
    with(|p, sim| {
        let at = large_folio(p, sim);
        assert_eq!(store(p, sim, at + 7 * PAGE, 7), Ok(()));
        let line = format!("7,{at:#x},{:#x}", at + HUGE);
        let pages = |p: &P<'_, '_>| p.manager().pages(p.space()).unwrap().get();
        assert_eq!(pages(p), HUGE / PAGE);
        assert_eq!(split_huge_pages(p.manager(), &line, |_| Some(&*p)), Ok(()));
        assert_eq!(pages(p), 2, "those that are not zeros");
        assert_eq!([0, 7, 8].map(|page| load(p, sim, at + page * PAGE)), [Ok(1), Ok(7), Ok(0)]);
    });
}

#[test]
fn what_is_soft_dirty_is_told_of_areas_too() {
    with(|p, _| {
        put(p, 0, 2, RW);
        let is_dirty = |p: &P<'_, '_>| {
            let mut text = String::new();
            p.smaps(&mut text).unwrap();
            text.contains(" sd ")
        };
        assert!(is_dirty(p));
        assert_eq!(p.clear_refs("4"), Ok(()));
        assert!(!is_dirty(p));
    });
}

#[test]
fn remap_file_pages_is_a_mapping_of_its_own() {
    with(|p, sim| {
        const SHARED: u32 = MAP_SHARED | MAP_FIXED;
        let inval = Err(Errno::INVAL);
        let file = F::memfd(p.manager(), b"f", 0).unwrap();
        assert_eq!(file.ftruncate(8 * PAGE as i64), Ok(0));
        for page in 0..8 {
            assert_eq!(file.pwrite(&[page as u8 + 1], page * PAGE as i64), Ok(1));
        }
        show(p, (0, 4), (&file, 0), SHARED);
        put(p, 8, 2, RW);
        let at = |page: u64| BASE + page * PAGE;
        for (first, pages, prot, page, answer) in [
            (0, 1, PROT_READ, 0, inval),
            (8, 1, 0, 0, inval),
            (5, 1, 0, 0, inval),
            (0, 5, 0, 0, inval),
            (0, 0, 0, 0, inval),
            (0, 1, 0, u64::MAX, inval),
            (0, 1, 0, 1 << 60, Err(Errno(EOVERFLOW))),
            (1, 2, 0, 6, Ok(0)),
            (0, 4, 0, 4, Ok(0)),
            (0, 1, 0, 7, Ok(0)),
        ] {
            let done = p.remap_file_pages(at(first), pages * PAGE, prot, page, 0);
            assert_eq!(done, answer, "{first} {pages} {prot} {page}");
            if (first, pages) == (1, 2) {
                let seen = [0, 1, 2, 3].map(|page| load(p, sim, at(page)));
                assert_eq!(seen, [Ok(1), Ok(7), Ok(8), Ok(4)]);
                // Three mappings of one file are remapped as one.
            }
        }
        let seen = [0, 1, 2, 3].map(|page| load(p, sim, at(page)));
        assert_eq!(seen, [Ok(8), Ok(6), Ok(7), Ok(8)]);
    });
}

#[test]
fn folios_of_a_file_are_split_by_its_path() {
    with(|p, sim| {
        let mm = p.manager();
        let mut words = ShmemEnabled::new(mm);
        let name = "transparent_hugepage/hugepages-2048kB/shmem_enabled";
        assert_eq!(words.write(mm, name, "always"), Ok(()));
        let file = F::memfd(mm, b"f", 0).unwrap();
        assert_eq!(file.ftruncate(HUGE as i64), Ok(0));
        let at = BASE & !(HUGE - 1);
        let shared = MAP_SHARED | MAP_FIXED;
        assert_eq!(p.mmap(at, HUGE, RW, shared, Some(&file), 0), Ok(at));
        for page in [0, 5] {
            assert_eq!(store(p, sim, at + page * PAGE, 5), Ok(()));
        }
        let order = |p: &P<'_, '_>| {
            let frame = mm.frame_at(p.space(), Va::new(at + 5 * PAGE)).unwrap();
            mm.identity(frame).order()
        };
        assert_eq!(order(p), Order::SIZE_2M);
        let write = |text: &str| {
            split_huge_pages_of_file(text, |path| (path == "/f").then(|| file.clone()))
        };
        for (text, answer) in [
            ("/f", Err(Errno::INVAL)),
            ("/f,0x0", Err(Errno::INVAL)),
            ("/g,0x0,0x1", Err(Errno::INVAL)),
            ("/f,0x0,0x0", Ok(())),
            ("/f,0x0,0x1,99", Ok(())),
        ] {
            assert_eq!(write(text), answer, "{text}");
            assert_eq!(order(p), Order::SIZE_2M);
        }
        assert_eq!(write("/f,0x0,0x400"), Ok(()));
        assert_eq!(load(p, sim, at + 5 * PAGE), Ok(5));
        assert_eq!(order(p), Order::BASE);
    });
}

#[test]
fn what_may_be_dropped_is_paged_out_by_that() {
    with(|p, sim| {
        let droppable = MAP_ANONYMOUS | MAP_DROPPABLE | MAP_FIXED;
        for (flags, advice, then) in
            [(droppable, MADV_PAGEOUT, 0), (droppable, MADV_COLD, 7), (FIXED, MADV_PAGEOUT, 7)]
        {
            assert_eq!(p.mmap(BASE, PAGE, RW, flags, None, 0), Ok(BASE));
            store(p, sim, BASE, 7).unwrap();
            assert_eq!(p.madvise(BASE, PAGE, advice), Ok(0));
            assert_eq!(super::shared::load(p, sim, BASE), Ok(then), "{flags:x} {advice}");
        }
    });
}
