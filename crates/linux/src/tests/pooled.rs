//! Files of huge pages: what is reserved, who reads what, and where a file ends.

use super::shared::{F, load};
use super::*;
use crate::Segments;
use crate::sysv::*;
use foliant::space::Flags;
use linux_raw_sys::errno::{EFBIG, ENOSPC, EOPNOTSUPP, EOVERFLOW};

const SHARED: u32 = MAP_SHARED | MAP_FIXED;
const COPIED: u32 = MAP_PRIVATE | MAP_FIXED;
const NOMEM: Result<u64, Errno> = Err(Errno::NOMEM);
const INVAL: Result<u64, Errno> = Err(Errno::INVAL);

/// A file of so many huge pages, and a pool of as many as are asked for.
fn file<'a, 'm>(process: &P<'a, 'm>, pages: u64, pooled: u64) -> F<'a, 'm> {
    let pool = "hugepages/hugepages-2048kB/nr_hugepages";
    let mm = process.manager();
    sys::write(mm, pool, &format!("{pooled}\n")).unwrap();
    let file = F::memfd(mm, b"f", MFD_HUGETLB | MFD_ALLOW_SEALING).unwrap();
    assert_eq!(file.ftruncate((pages * HUGE) as i64), Ok(0));
    file
}
fn at(nth: u64) -> u64 {
    BASE + nth * HUGE
}
/// Maps so many of its pages from page `from` on at the `place`-th huge page.
fn show<'a, 'm>(
    p: &mut P<'a, 'm>,
    (place, pages): (u64, u64),
    (file, from): (&F<'a, 'm>, u64),
    flags: u32,
) -> Result<u64, Errno> {
    p.mmap(at(place), pages * HUGE, RW, flags, Some(file), from * HUGE)
}
/// Maps less than a page, from a byte on.
fn part<'a, 'm>(p: &mut P<'a, 'm>, file: &F<'a, 'm>, from: u64) -> Result<u64, Errno> {
    p.mmap(at(4), PAGE, RW, SHARED, Some(file), from)
}
/// Total, free, reserved.
#[track_caller]
fn pooled(process: &P<'_, '_>, expect: [u64; 3]) {
    let pool = process.manager().pool(foliant_units::Order::SIZE_2M).unwrap();
    assert_eq!([pool.nr_hugepages, pool.free_hugepages, pool.resv_hugepages], expect);
}
fn bus(nth: u64) -> Signal {
    Signal { number: SIGBUS, code: BUS_ADRERR, addr: at(nth), lsb: 0 }
}

/// Where a vma lies, from the first huge page on, in pages.
fn lies(p: &P<'_, '_>) -> Vec<(u64, u64)> {
    areas(p).into_iter().map(|(start, pages, _)| (start, pages)).collect()
}

/// Linux frees what lies there before it asks the pool.
#[test]
fn huge_pages_take_the_place_of_huge_pages_where_the_pool_has_no_more() {
    with(|p, sim| {
        let file = file(p, 2, 3);
        let own = COPIED | MAP_ANONYMOUS | MAP_HUGETLB;
        assert_eq!(p.mmap(at(0), 3 * HUGE, RW, own, None, 0), Ok(at(0)));
        store(p, sim, at(0), 7).unwrap();
        pooled(p, [3, 2, 2]);
        assert_eq!(p.mmap(at(0), 3 * HUGE, RW, own, None, 0), Ok(at(0)));
        assert_eq!(load(p, sim, at(0)), Ok(0));
        assert_eq!(p.mmap(at(0), 4 * HUGE, RW, own, None, 0), NOMEM);
        assert_eq!(lies(p), [], "it is gone all the same");
        pooled(p, [3, 3, 0]);
        assert_eq!(show(p, (0, 2), (&file, 0), SHARED), Ok(at(0)));
        assert_eq!(p.mmap(at(0), 3 * HUGE, RW, own, None, 0), NOMEM, "the file has two");
        pooled(p, [3, 3, 2]);
    });
}

#[test]
fn a_part_of_a_huge_page_does_not_go_and_what_lies_before_is_cut() {
    with(|p, _| {
        let file = file(p, 3, 3);
        let each = HUGE / PAGE;
        put(p, 0, 2 * each, RW);
        assert_eq!(show(p, (2, 3), (&file, 0), SHARED), Ok(at(2)));
        assert_eq!(p.munmap(at(1), HUGE + PAGE), INVAL);
        assert_eq!(lies(p), [(0, each), (each, each), (2 * each, 3 * each)]);
        assert_eq!(p.mmap(at(0) + PAGE, 2 * HUGE, RW, PRIVATE | MAP_FIXED, None, 0), INVAL);
        assert_eq!(lies(p), [(0, 1), (1, each - 1), (each, each), (2 * each, 3 * each)]);
        // Within: cut where that can be, and not where it would be in a page.
        assert_eq!(p.munmap(at(2) + PAGE, 2 * HUGE - PAGE), INVAL);
        assert_eq!(lies(p)[3..], [(2 * each, 3 * each)]);
        assert_eq!(p.munmap(at(3), PAGE), INVAL);
        assert_eq!(lies(p)[3..], [(2 * each, each), (3 * each, 2 * each)]);
        // A seal is seen first.
        assert_eq!(p.mseal(at(3), 2 * HUGE, 0), Ok(0));
        assert_eq!(p.munmap(at(3), PAGE), Err(Errno::PERM));
        assert_eq!(p.munmap(at(2), PAGE), INVAL);
    });
}

#[test]
fn what_lay_where_no_huge_page_was_to_be_had_counts_no_more() {
    with(|p, _| {
        put(p, 0, 3, RW);
        assert_eq!(p.pages(), 3);
        let flags = SHARED | MAP_ANONYMOUS | MAP_HUGETLB;
        assert_eq!(p.mmap(BASE, HUGE, RW, flags, None, 0), NOMEM);
        assert_eq!((lies(p), p.pages()), (vec![], 0));
    });
}

#[test]
fn pages_of_a_file_are_reserved_where_it_is_mapped_and_are_its_own() {
    with(|p, sim| {
        let file = file(p, 2, 5);
        assert_eq!((file.page_bytes(), file.bytes()), (HUGE, 2 * HUGE));
        pooled(p, [5, 5, 0]);
        assert_eq!(show(p, (0, 2), (&file, 0), SHARED), Ok(at(0)));
        pooled(p, [5, 5, 2]);
        assert_eq!(show(p, (4, 2), (&file, 0), SHARED | MAP_HUGETLB), Ok(at(4)));
        pooled(p, [5, 5, 2]);
        assert_eq!(show(p, (8, 2), (&file, 0), COPIED), Ok(at(8)));
        pooled(p, [5, 5, 4]);
        assert_eq!(store(p, sim, at(0), 7), Ok(()));
        assert_eq!([0, 4, 8].map(|nth| load(p, sim, at(nth))), [Ok(7); 3]);
        pooled(p, [5, 4, 3]);
        assert_eq!(store(p, sim, at(8), 9), Ok(()));
        assert_eq!([0, 4, 8].map(|nth| load(p, sim, at(nth))), [Ok(7), Ok(7), Ok(9)]);
        pooled(p, [5, 3, 2]);
        // A child shares the file, and has the copy until it is written to.
        let mut child = p.fork().unwrap();
        assert_eq!([0, 8].map(|nth| load(&mut child, sim, at(nth))), [Ok(7), Ok(9)]);
        assert_eq!(store(&mut child, sim, at(4) + 1, 5), Ok(()));
        assert_eq!(load(p, sim, at(0) + 1), Ok(5));
        p.manager().switch(Some(p.space())).unwrap();
        child.end().unwrap();
        assert_eq!(p.munmap(at(0), 12 * HUGE), Ok(0));
        pooled(p, [5, 4, 1]); // the page that the file has, and the one that it has yet to get
        drop(file);
        pooled(p, [5, 5, 0]);
    });
}

#[test]
fn a_file_of_huge_pages_is_cut_at_huge_pages_alone() {
    with(|p, sim| {
        let file = file(p, 2, 4);
        let (page, huge) = (PAGE as i64, HUGE as i64);
        assert_eq!(file.ftruncate(huge + page), INVAL);
        assert_eq!([file.pread(&mut [9], 0), file.pwrite(&[1], 0)], [Ok(1), INVAL]);
        assert_eq!(show(p, (0, 2), (&file, 0), SHARED), Ok(at(0)));
        assert_eq!([0, 1].map(|nth| store(p, sim, at(nth), 7)), [Ok(()); 2]);
        let mut read = [9; 12];
        assert_eq!((file.pread(&mut read, huge - 4), read[3..5] == [0, 7]), (Ok(12), true));
        assert_eq!(file.pread(&mut read, 2 * huge - 4), Ok(4), "up to its end");
        assert_eq!(file.fallocate(3, page, 2 * huge - page), Ok(0));
        assert_eq!([0, 1].map(|nth| load(p, sim, at(nth))), [Ok(7), Ok(0)], "whole pages went");
        assert_eq!(p.madvise(at(0), PAGE, MADV_REMOVE), Ok(0));
        assert_eq!(load(p, sim, at(0)), Ok(7));
        assert_eq!(p.madvise(at(0), HUGE, MADV_REMOVE), Ok(0));
        assert_eq!(load(p, sim, at(0)), Ok(0));
        assert_eq!(
            p.mmap(at(8), HUGE, RW, COPIED | MAP_ANONYMOUS | MAP_HUGETLB, None, 0),
            Ok(at(8))
        );
        let wishes = [MADV_HUGEPAGE, MADV_NOHUGEPAGE].map(|wish| p.madvise(at(8), HUGE, wish));
        assert_eq!(wishes, [Ok(0); 2]);
        assert!(p.vma(at(8)).is_some_and(|vma| vma.flags.has(Flags::NOHUGEPAGE)), "it is kept");
        assert_eq!(p.madvise(at(8) + PAGE, PAGE, MADV_HUGEPAGE), INVAL);
        assert_eq!(p.madvise(at(8) + PAGE, PAGE, MADV_NOHUGEPAGE), Ok(0), "what is so already");
        assert_eq!(p.mlockall(MCL_FUTURE | MCL_ONFAULT), Ok(0));
        let flags = COPIED | MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE;
        assert_eq!(p.mmap(at(9), HUGE, RW, flags, None, 0), Ok(at(9)));
        let is_locked = p.vma(at(9)).is_some_and(|vma| vma.tag.marks.has(Marks::LOCKED));
        assert!(!is_locked, "huge pages are never locked");
        assert_eq!([p.munlockall(), p.munmap(at(9), HUGE)], [Ok(0); 2]);
        let acces = Err(Errno(linux_raw_sys::errno::EACCES));
        assert_eq!(p.madvise(at(8) + PAGE, PAGE, MADV_REMOVE), acces, "private, and of a file");
        assert_eq!(file.ftruncate(huge), Ok(0));
        assert_eq!(load(p, sim, at(1)), Err(bus(1)));
        assert_eq!([p.munmap(at(0), PAGE), p.mprotect(at(0), PAGE, PROT_READ)], [INVAL; 2]);
        // Offsets too. What lay there is gone by then, as with Linux.
        assert_eq!(part(p, &file, 0), Ok(at(4)), "whole pages are mapped");
        assert_eq!(p.vma(at(4)).map(|vma| vma.range.bytes().get()), Some(HUGE));
        assert_eq!(part(p, &file, PAGE), INVAL);
        assert_eq!(p.vma(at(4)), None);
        assert_eq!(part(p, &file, (1 << 63) - HUGE), Err(Errno(EOVERFLOW)));
        assert_eq!(p.mmap(at(4) + PAGE, HUGE, RW, SHARED, Some(&file), 0), INVAL);
        let anywhere = p.mmap(PAGE, PAGE, RW, MAP_SHARED, Some(&file), 0).unwrap();
        assert!(anywhere.is_multiple_of(HUGE), "{anywhere:#x}");
    });
}

#[test]
fn a_file_grows_to_what_is_mapped_of_it_if_the_pool_has_so_much() {
    with(|p, sim| {
        let file = file(p, 0, 3);
        assert_eq!(p.mmap(at(0), HUGE, PROT_READ, SHARED, Some(&file), 0), Ok(at(0)));
        assert_eq!(file.bytes(), 0, "nobody could write there");
        assert_eq!(load(p, sim, at(0)), Err(bus(0)));
        assert_eq!(show(p, (0, 4), (&file, 0), SHARED), NOMEM);
        assert_eq!((file.bytes(), p.vma(at(0))), (0, None), "what lay there is gone");
        assert_eq!(show(p, (0, 4), (&file, 0), SHARED | MAP_NORESERVE), Ok(at(0)));
        assert_eq!(file.bytes(), 4 * HUGE);
        pooled(p, [3, 3, 0]);
        assert_eq!([0, 1, 2].map(|nth| store(p, sim, at(nth), 1)), [Ok(()); 3]);
        assert_eq!(store(p, sim, at(3), 1), Err(bus(3)), "the pool has no page left");
        assert_eq!(file.add_seals(F_SEAL_FUTURE_WRITE), Ok(0));
        assert_eq!(show(p, (8, 1), (&file, 0), SHARED), Err(Errno::PERM));
        assert_eq!(file.fallocate(3, 0, HUGE as i64), Err(Errno::PERM));
    });
}

#[test]
fn huge_pages_of_a_file_come_before_they_are_touched_where_they_are_asked_for() {
    with(|p, sim| {
        let file = file(p, 1, 5);
        let huge = HUGE as i64;
        assert_eq!(file.fallocate(0x10, 0, huge), Err(Errno(EOPNOTSUPP)));
        assert_eq!(file.fallocate(0, 0, huge), Ok(0));
        pooled(p, [5, 4, 0]);
        // It becomes longer, by whole pages, unless it is to keep its length.
        assert_eq!(file.fallocate(1, huge, huge), Ok(0));
        assert_eq!(file.bytes(), HUGE);
        assert_eq!(file.fallocate(0, huge - 1, huge + 2), Ok(0));
        assert_eq!(file.bytes(), 3 * HUGE);
        pooled(p, [5, 2, 0]);
        assert_eq!(show(p, (0, 3), (&file, 0), SHARED), Ok(at(0)), "nothing is left to reserve");
        pooled(p, [5, 2, 0]);
        assert_eq!(store(p, sim, at(2), 7), Ok(()));
        // What a map has reserved it uses; others' reservations it leaves.
        assert_eq!(file.ftruncate(4 * huge), Ok(0));
        assert_eq!(show(p, (4, 1), (&file, 3), SHARED), Ok(at(4)));
        pooled(p, [5, 2, 1]);
        assert_eq!(file.fallocate(0, 0, 4 * huge), Ok(0));
        pooled(p, [5, 1, 0]);
        assert_eq!(file.fallocate(0, 0, 6 * huge), Err(Errno(ENOSPC)));
        assert_eq!(file.bytes(), 4 * HUGE);
        pooled(p, [5, 1, 0]);
        assert_eq!(load(p, sim, at(2)), Ok(7));
        assert_eq!(file.fallocate(0, i64::MAX - 5, 5), Err(Errno(EFBIG)));
        assert_eq!(file.add_seals(F_SEAL_GROW), Ok(0));
        assert_eq!(file.fallocate(0, 0, 5 * huge), Err(Errno::PERM));
    });
}

#[test]
fn a_segment_of_huge_pages_has_them_reserved_from_the_start() {
    with(|p, sim| {
        let _pool = file(p, 0, 3);
        let mut all = Segments::default();
        let new = IPC_CREAT | 0o600 | SHM_HUGETLB | 21 << SHM_HUGE_SHIFT;
        let id = p.shmget(&mut all, 5, HUGE + 1, new).unwrap() as i32;
        pooled(p, [3, 3, 2]);
        assert_eq!(all.stat(id).unwrap().bytes, HUGE + 1);
        assert_eq!(p.shmget(&mut all, 6, 2 * HUGE, new), NOMEM);
        pooled(p, [3, 3, 2]);
        assert_eq!(p.shmat(&mut all, id, at(0) + PAGE, 0), INVAL);
        assert_eq!(p.shmat(&mut all, id, at(0), 0), Ok(at(0)));
        pooled(p, [3, 3, 2]);
        assert_eq!(store(p, sim, at(1), 7), Ok(()));
        pooled(p, [3, 2, 1]);
        let mut maps = String::new();
        p.maps(&mut maps).unwrap();
        assert!(maps.contains("/SYSV00000005 (deleted)"), "{maps}");
        // Without a promise: reserved when it is attached.
        let bare = p.shmget(&mut all, 7, 2 * HUGE, new | SHM_NORESERVE).unwrap() as i32;
        assert_eq!(p.shmat(&mut all, bare, at(4), 0), NOMEM);
        assert_eq!(all.shmctl(id, IPC_RMID), Ok(0));
        assert_eq!(p.shmdt(at(0)), Ok(0));
        pooled(p, [3, 3, 0]);
        assert_eq!(p.shmat(&mut all, bare, at(4), 0), Ok(at(4)));
        pooled(p, [3, 3, 2]);
        assert_eq!([p.shmdt(at(4)), all.shmctl(bare, IPC_RMID)], [Ok(0); 2]);
        pooled(p, [3, 3, 0]);
    });
}

#[test]
fn shared_memory_of_a_pool_has_a_file_that_nobody_asked_for() {
    with(|p, sim| {
        let _pool = file(p, 0, 2);
        let flags = SHARED | MAP_ANONYMOUS | MAP_HUGETLB;
        assert_eq!(p.mmap(at(0), 3 * HUGE, RW, flags, None, 0), NOMEM);
        assert_eq!(p.mmap(at(0), PAGE, RW, flags, None, 0), Ok(at(0)));
        pooled(p, [2, 2, 1]);
        let mut child = p.fork().unwrap();
        assert_eq!(load(&mut child, sim, at(0)), Ok(0));
        assert_eq!(store(&mut child, sim, at(0), 7), Ok(()));
        assert_eq!(load(p, sim, at(0)), Ok(7));
        p.manager().switch(Some(p.space())).unwrap();
        child.end().unwrap();
        let (mut maps, mut status) = (String::new(), String::new());
        p.maps(&mut maps).unwrap();
        assert!(
            maps.contains(" rw-s 00000000 00:01 ") && maps.contains("/anon_hugepage (deleted)")
        );
        p.status(&mut status).unwrap();
        assert!(status.contains("HugetlbPages:\t    2048 kB\n"), "{status}");
        assert_eq!(p.munmap(at(0), HUGE), Ok(0));
        pooled(p, [2, 2, 0]);
    });
}

/// Addresses, sizes and counts as Linux 6.18 has them, but for a reservation that it loses for ever
/// where a part of a private area is moved.
#[test]
fn huge_pages_are_moved_with_what_is_reserved_for_them() {
    with(|p, sim| {
        let file = file(p, 4, 12);
        let private = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_FIXED;
        let moves = MREMAP_MAYMOVE | MREMAP_FIXED;
        assert_eq!(p.mmap(at(0), 4 * HUGE, RW, private, None, 0), Ok(at(0)));
        assert_eq!([store(p, sim, at(0), 7), store(p, sim, at(1), 8)], [Ok(()), Ok(())]);
        pooled(p, [12, 10, 2]);
        for (addr, old, new, flags, to) in [
            (at(0), 4 * HUGE, 5 * HUGE, MREMAP_MAYMOVE, 0),
            (at(0), HUGE, HUGE, moves, at(20) + PAGE),
            (at(0) + PAGE, HUGE, HUGE, moves, at(20)),
            (at(0), HUGE, HUGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, at(20)),
            (at(0), 4 * HUGE, 4 * HUGE, MREMAP_MAYMOVE, PAGE),
            (at(0), 0, HUGE, MREMAP_MAYMOVE, 0),
        ] {
            assert_eq!(p.mremap(addr, old, new, flags, to), INVAL, "{old:x} to {new:x}, {flags}");
        }
        assert_eq!(p.mremap(at(0), 4 * HUGE, 4 * HUGE, moves, at(20)), Ok(at(20)));
        assert_eq!([load(p, sim, at(20)), load(p, sim, at(21))], [Ok(7), Ok(8)]);
        pooled(p, [12, 10, 2]);
        assert_eq!(store(p, sim, at(22), 9), Ok(()));
        pooled(p, [12, 9, 1]);
        assert_eq!(p.mremap(at(20), PAGE, PAGE, moves, at(40)), Ok(at(40)), "a page of its own");
        assert_eq!(p.mremap(at(21), 3 * HUGE, HUGE, moves, at(50)), Ok(at(50)));
        assert_eq!([load(p, sim, at(40)), load(p, sim, at(50))], [Ok(7), Ok(8)]);
        pooled(p, [12, 10, 0]);
        assert_eq!(p.munmap(at(0), 100 * HUGE), Ok(0));
        pooled(p, [12, 12, 0]);
        // Of a file: shared, and a private area with a copy.
        assert_eq!(show(p, (0, 4), (&file, 0), SHARED), Ok(at(0)));
        assert_eq!([store(p, sim, at(0), 1), store(p, sim, at(1), 2)], [Ok(()), Ok(())]);
        assert_eq!(p.mremap(at(1), 2 * HUGE, 2 * HUGE, moves, at(20)), Ok(at(20)));
        assert_eq!([load(p, sim, at(0)), load(p, sim, at(20))], [Ok(1), Ok(2)]);
        pooled(p, [12, 10, 2]);
        assert_eq!(p.mremap(at(0), 0, HUGE, moves, at(60)), INVAL);
        assert_eq!(show(p, (70, 2), (&file, 0), COPIED), Ok(at(70)));
        assert_eq!(store(p, sim, at(70), 5), Ok(()));
        pooled(p, [12, 9, 3]);
        assert_eq!(p.mremap(at(70), 2 * HUGE, 2 * HUGE, moves, at(80)), Ok(at(80)));
        assert_eq!([load(p, sim, at(80)), load(p, sim, at(81))], [Ok(5), Ok(2)]);
        assert_eq!(store(p, sim, at(81), 6), Ok(()), "its place was reserved");
        pooled(p, [12, 8, 2]);
        assert_eq!(p.munmap(at(0), 100 * HUGE), Ok(0));
        pooled(p, [12, 10, 2]);
    });
}
