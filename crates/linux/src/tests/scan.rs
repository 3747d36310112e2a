//! `PAGEMAP_SCAN`: rounds of any size tell the same, and what is told as written is watched.

use super::userfault::{at, pages, protect, ready, register};
use super::*;
use linux_raw_sys::errno::{EFAULT, EINVAL, EPERM};

const WRITTEN: u64 = PAGE_IS_WRITTEN as u64;

/// A scan of pages for those that were written, with no end to what it may tell.
fn asked(nth: u64, count: u64, flags: u32) -> pm_scan_arg {
    pm_scan_arg {
        size: size_of::<pm_scan_arg>() as u64,
        flags: flags.into(),
        start: at(nth),
        end: at(nth + count),
        walk_end: 0,
        vec: BASE,
        vec_len: 1 << 20,
        max_pages: 0,
        category_inverted: 0,
        category_mask: WRITTEN,
        category_anyof_mask: 0,
        return_mask: WRITTEN | u64::from(PAGE_IS_PRESENT),
    }
}
/// All that a scan tells in rounds of so many regions, in pages; and up to where it went.
fn scanned(process: &P<'_, '_>, asked: &pm_scan_arg, room: usize) -> (Vec<[u64; 3]>, u64) {
    let mut scan = process.begin_scan(asked).unwrap();
    let (mut told, mut regions) = (Vec::new(), vec![NOTHING; room]);
    while !scan.is_over() {
        let filled = process.scan(&mut scan, &mut regions).unwrap();
        let page = |at: u64| (at - BASE) / PAGE;
        told.extend(
            regions[..filled].iter().map(|it| [page(it.start), page(it.end), it.categories]),
        );
    }
    (told, (scan.walk_end() - BASE) / PAGE)
}
const NOTHING: page_region = page_region { start: 0, end: 0, categories: 0 };

#[test]
fn rounds_of_any_size_tell_the_same() {
    with(|process, sim| {
        let fd = ready(process, UFFD_FEATURE_WP_ASYNC);
        put(process, 0, 64, RW);
        register(process, &fd, pages(0, 64), UFFDIO_REGISTER_MODE_WP).unwrap();
        protect(process, &fd, pages(0, 64), 1).result.unwrap();
        // Pages 2, 4, 5, 6, 8, 9, 10, 14, …: runs of one page and of three.
        let written: Vec<u64> = (0..60).filter(|nth| nth % 4 != 3 && nth % 12 > 1).collect();
        written.iter().for_each(|nth| store(process, sim, at(*nth), 7).unwrap());
        let whole = scanned(process, &asked(0, 64, 0), 64);
        assert_eq!(whole.1, 64);
        let told: Vec<u64> = whole.0.iter().flat_map(|[start, end, _]| *start..*end).collect();
        assert_eq!(told, written);
        assert!(whole.0.iter().all(|[.., kind]| *kind == WRITTEN | u64::from(PAGE_IS_PRESENT)));
        for room in 1..8 {
            assert_eq!(scanned(process, &asked(0, 64, 0), room), whole, "{room}");
        }
        // As many pages as are wanted, and up to the next one that would be.
        for most in 1..written.len() as u64 {
            let few = pm_scan_arg { max_pages: most, ..asked(0, 64, 0) };
            let (told, end) = scanned(process, &few, 3);
            assert_eq!(told.iter().map(|[start, end, _]| end - start).sum::<u64>(), most);
            let next = written[most as usize];
            let last = written[most as usize - 1] + 1;
            assert!([last, next].contains(&end), "{most}: {end}");
        }
        // What was told is watched, round by round; what was not stays written.
        let two = pm_scan_arg { max_pages: 2, ..asked(0, 64, PM_SCAN_WP_MATCHING) };
        let told = scanned(process, &two, 1).0;
        assert_eq!(told.iter().map(|it| [it[0], it[1]]).collect::<Vec<_>>(), [[2, 3], [4, 5]]);
        let left = scanned(process, &asked(0, 64, 0), 64).0;
        assert_eq!(left.iter().flat_map(|[a, b, _]| *a..*b).collect::<Vec<u64>>(), written[2..]);
        scanned(process, &asked(0, 64, PM_SCAN_WP_MATCHING), 2);
        assert_eq!(scanned(process, &asked(0, 64, 0), 2).0, [[0; 3]; 0]);
        // Each write lifts it for a page, also where a call makes it.
        store(process, sim, at(5) + 9, 8).unwrap();
        process.madvise(at(20), PAGE, MADV_POPULATE_WRITE).unwrap();
        let told = scanned(process, &asked(0, 64, 0), 2).0;
        assert_eq!(told.iter().map(|it| it[0]).collect::<Vec<u64>>(), [5, 20]);
    });
}

#[test]
fn what_a_scan_may_ask() {
    with(|process, _| {
        put(process, 0, 4, RW);
        let good = asked(0, 4, 0);
        let no = |wrong: pm_scan_arg| process.begin_scan(&wrong).err();
        for wrong in [
            pm_scan_arg { size: 88, ..good },
            pm_scan_arg { flags: 4, ..good },
            pm_scan_arg { return_mask: 1 << 9, ..good },
            pm_scan_arg { category_inverted: 1 << 63, ..good },
            pm_scan_arg { start: at(0) + 8, ..good },
            pm_scan_arg { vec: 0, ..good },
        ] {
            assert_eq!(no(wrong), Some(Errno(EINVAL)), "{wrong:?}");
        }
        for wrong in [
            pm_scan_arg { end: at(0) - PAGE, ..good },
            pm_scan_arg { end: 1 << 63, ..good },
            pm_scan_arg { vec: u64::MAX - 8, ..good },
            pm_scan_arg { vec_len: u64::MAX / 8, ..good },
        ] {
            assert_eq!(no(wrong), Some(Errno(EFAULT)), "{wrong:?}");
        }
        let nothing = process.begin_scan(&pm_scan_arg { end: at(0), ..good }).unwrap();
        assert!(nothing.is_over() && nothing.walk_end() == at(0));
        let byte = pm_scan_arg { end: at(0) + 1, ..good };
        assert_eq!(scanned(process, &byte, 4), (Vec::new(), 1));
        // Where writes are told to somebody they are not to be watched by the way.
        let demands = asked(0, 4, PM_SCAN_CHECK_WPASYNC);
        let mut scan = process.begin_scan(&demands).unwrap();
        assert_eq!(process.scan(&mut scan, &mut [NOTHING; 2]), Err(Errno(EPERM)));
        assert_eq!(scan.walk_end(), at(4));
        let fd = ready(process, 0);
        register(process, &fd, pages(0, 4), UFFDIO_REGISTER_MODE_WP).unwrap();
        protect(process, &fd, pages(0, 4), 1).result.unwrap();
        let mut scan = process.begin_scan(&demands).unwrap();
        assert_eq!(process.scan(&mut scan, &mut [NOTHING; 2]), Err(Errno(EPERM)));
        assert_eq!(scanned(process, &asked(0, 4, PM_SCAN_WP_MATCHING), 4), (Vec::new(), 4));
    });
}
