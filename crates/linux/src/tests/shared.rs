//! Files in memory and what maps them.

use super::*;
use crate::MemoryFile;
use linux_raw_sys::errno::{EACCES, EFBIG, ENODEV, EOPNOTSUPP, EOVERFLOW};

pub(super) type F<'a, 'm> = MemoryFile<'a, 'm, Sim, X86_64<4>>;

const SHARED: u32 = MAP_SHARED | MAP_FIXED;
const COPIED: u32 = MAP_PRIVATE | MAP_FIXED;

/// A file of so many pages.
fn file<'a, 'm>(process: &P<'a, 'm>, pages: u64) -> F<'a, 'm> {
    let file = F::memfd(process.manager(), b"f", 0).unwrap();
    assert_eq!(file.ftruncate((pages * PAGE) as i64), Ok(0));
    file
}
/// Maps so many pages of a file from page `from` on at page `first`.
pub(super) fn show<'a, 'm>(
    process: &mut P<'a, 'm>,
    (first, pages): (u64, u64),
    (file, from): (&F<'a, 'm>, u64),
    flags: u32,
) {
    let at = BASE + first * PAGE;
    let done = process.mmap(at, pages * PAGE, RW, flags, Some(file), from * PAGE);
    assert_eq!(done, Ok(at));
}
/// Loads a byte as the program would.
pub(super) fn load(process: &mut P<'_, '_>, sim: &Sim, addr: u64) -> Result<u64, Signal> {
    process.manager().switch(Some(process.space())).unwrap();
    for _ in 0..8 {
        match sim.user_load(Va::new(addr), 1) {
            Ok(byte) => return Ok(byte),
            Err(_) => match process.fault(addr, Access::Read) {
                Fault::Signal(signal) => return Err(signal),
                fault => assert_eq!(fault, Fault::Done),
            },
        }
    }
    panic!("a load of {addr:#x} never got through")
}
fn save(process: &mut P<'_, '_>, sim: &Sim, page: u64, byte: u8) -> Result<(), Signal> {
    process.manager().switch(Some(process.space())).unwrap();
    store(process, sim, BASE + page * PAGE, byte)
}
fn beyond(page: u64) -> Result<u64, Signal> {
    Err(Signal { number: SIGBUS, code: BUS_ADRERR, addr: BASE + page * PAGE, lsb: 0 })
}

#[test]
fn a_collapse_of_less_than_a_folio_of_a_file_goes_through_where_one_could_be() {
    with(|p, _| {
        let file = file(p, 8);
        let all = HUGE / PAGE;
        let collapse = |p: &mut P<'_, '_>, page: u64, pages: u64| {
            p.madvise(BASE + page * PAGE, pages * PAGE, MADV_COLLAPSE)
        };
        show(p, (8, 2 * all), (&file, 8), SHARED); // it lies as its pages do
        assert_eq!([collapse(p, 40, all), collapse(p, 40, 10)], [Ok(0), Err(Errno::INVAL)]);
        assert_eq!(collapse(p, 8, 2 * all), Err(Errno::INVAL), "the file ends before");
        show(p, (8, 2 * all), (&file, 7), SHARED);
        assert_eq!(collapse(p, 40, all), Err(Errno::INVAL));
        show(p, (8, all), (&file, 8), COPIED);
        assert_eq!(p.munmap(BASE + (8 + all) * PAGE, all * PAGE), Ok(0));
        assert_eq!(collapse(p, 40, all - 40), Err(Errno::INVAL), "there is no room for one");
    });
}

#[test]
fn a_block_of_a_file_is_collapsed_where_it_has_a_page() {
    with(|p, sim| {
        let all = HUGE / PAGE;
        let file = file(p, 2 * all);
        show(p, (0, 2 * all), (&file, 0), SHARED);
        let collapse =
            |p: &mut P<'_, '_>, block: u64| p.madvise(BASE + block * HUGE, HUGE, MADV_COLLAPSE);
        assert_eq!(collapse(p, 1), Err(Errno::INVAL), "it has none");
        assert_eq!(save(p, sim, all + 3, 7), Ok(()));
        assert_eq!([collapse(p, 1), collapse(p, 1)], [Ok(0); 2]);
        assert_eq!([3, 4].map(|page| load(p, sim, BASE + (all + page) * PAGE)), [Ok(7), Ok(0)]);
        assert_eq!(p.manager().pages(p.space()).unwrap().get(), all, "by one leaf");
    });
}

#[test]
fn what_one_process_writes_to_a_file_the_other_reads_and_a_copy_stays_its_own() {
    with(|p, sim| {
        let file = file(p, 4);
        show(p, (0, 4), (&file, 0), SHARED);
        show(p, (8, 4), (&file, 0), COPIED);
        let zero = p.mmap(BASE + 16 * PAGE, PAGE, RW, SHARED | MAP_ANONYMOUS, None, 0).unwrap();
        assert_eq!(save(p, sim, 1, 7), Ok(()));
        assert_eq!(load(p, sim, BASE + 9 * PAGE), Ok(7), "a private page that was only read");
        assert_eq!(save(p, sim, 10, 9), Ok(()));
        let mut child = p.fork().unwrap();
        assert_eq!(child.present_in(BASE, BASE + 4 * PAGE), 0, "it faults for what is shared");
        assert_eq!(child.present_in(BASE + 8 * PAGE, BASE + 12 * PAGE), 2, "those of a family");
        assert_eq!(save(&mut child, sim, 2, 5), Ok(()));
        assert_eq!(save(&mut child, sim, 16, 3), Ok(()));
        assert_eq!(load(p, sim, BASE + 2 * PAGE), Ok(5));
        assert_eq!(load(p, sim, BASE + 10 * PAGE), Ok(9), "its own copy");
        assert_eq!(load(p, sim, zero), Ok(3), "shared without a name");
        p.manager().switch(Some(p.space())).unwrap();
        child.end().unwrap();
    });
}

#[test]
fn a_file_lives_as_long_as_a_descriptor_or_a_map_of_it() {
    with(|p, sim| {
        let free = |p: &P<'_, '_>| p.manager().memory().free;
        put(p, 20, 1, RW);
        assert_eq!(save(p, sim, 20, 1), Ok(()));
        let file = file(p, 4);
        show(p, (0, 2), (&file, 0), SHARED);
        let object = file.object();
        drop(file);
        assert_eq!(save(p, sim, 0, 7), Ok(()));
        let room = |p: &P<'_, '_>| p.manager().object_room(object).map(Pages::get);
        assert_eq!(room(p), Some(4), "a view keeps it");
        let child = p.fork().unwrap();
        assert_eq!(p.munmap(BASE, PAGE), Ok(0));
        let fixed = MREMAP_MAYMOVE | MREMAP_FIXED;
        assert_eq!(p.mremap(BASE + PAGE, PAGE, PAGE, fixed, BASE + 9 * PAGE), Ok(BASE + 9 * PAGE));
        assert_eq!(p.views.count(), 1, "the one before the move is gone");
        put(p, 9, 1, RW);
        assert_eq!(room(p), Some(4), "the child's view");
        let before = free(p);
        child.end().unwrap();
        assert_eq!(room(p), None, "nobody maps it");
        assert!(free(p) > before);
        let far = F::memfd(p.manager(), b"far", 0).unwrap();
        let refused = p.mmap(BASE, PAGE, RW, SHARED, Some(&far), 1 << 62);
        assert_eq!((refused, p.views.count()), (Err(Errno::NOMEM), 0), "no view is left of it");
    });
}

#[test]
fn mmap_of_files_looks_at_its_arguments_as_linux_does() {
    with(|p, _| {
        let file = file(p, 4);
        let (inval, notsupp) = (Err(Errno::INVAL), Err(Errno(EOPNOTSUPP)));
        let over = Err(Errno(EOVERFLOW));
        show(p, (0, 2), (&file, 0), SHARED);
        for (addr, flags, offset, answer) in [
            (BASE, SHARED | MAP_GROWSDOWN, 0, inval),
            (BASE, COPIED | MAP_GROWSDOWN, 0, inval),
            (BASE, SHARED | MAP_HUGETLB, 0, inval),
            (BASE, MAP_FIXED, 0, inval),
            (BASE, MAP_FIXED | MAP_DROPPABLE, 0, inval),
            (BASE, SHARED, 8, inval),
            (BASE, SHARED, (1 << 63) - PAGE, over),
            (BASE, SHARED, 0u64.wrapping_sub(PAGE), over),
            (BASE, MAP_SHARED_VALIDATE | MAP_FIXED_NOREPLACE, 0, Err(Errno::EXIST)),
            (BASE + 9 * PAGE, MAP_SHARED_VALIDATE | MAP_FIXED_NOREPLACE, 0, notsupp),
            (BASE, MAP_SHARED_VALIDATE | MAP_SYNC, 0, notsupp),
            (BASE + 2 * PAGE, MAP_SHARED_VALIDATE | MAP_FIXED, 2 * PAGE, Ok(BASE + 2 * PAGE)),
        ] {
            let got = p.mmap(addr, PAGE, RW, flags, Some(&file), offset);
            assert_eq!(got, answer, "{addr:#x} {flags:#x} {offset:#x}");
        }
        let shared = MAP_SHARED | MAP_ANONYMOUS;
        let grows = p.mmap(0, PAGE, RW, shared | MAP_GROWSDOWN, None, 0);
        assert_eq!(grows, inval);
        assert_eq!(areas(p), [(0, 3, RW)]);
        assert_eq!(p.mmap(0, HUGE, RW, shared, None, 0), Ok(TOP - HUGE));
        assert_eq!(p.mmap(0, HUGE, RW, shared, None, 0), Ok(TOP - 2 * HUGE));
        assert_eq!(p.mmap(0, PAGE, RW, shared, None, 0), Ok(TOP - 2 * HUGE - PAGE));
        let at = p.mmap(0, HUGE, RW, MAP_SHARED, Some(&file), 0);
        assert_eq!(at, Ok(TOP - 3 * HUGE - PAGE), "no large folios are expected in files");
        p.set_limits(Limits { promise: Promise::Guess(Pages::new(1)), ..Limits::NONE });
        let fixed = shared | MAP_FIXED;
        assert_eq!(p.mmap(BASE, 2 * PAGE, RW, fixed, None, 0), Err(Errno::NOMEM));
        assert_eq!(areas(p)[0], (2, 1, RW), "what lay there is gone");
        assert_eq!(p.mmap(BASE, 2 * PAGE, RW, fixed | MAP_NORESERVE, None, 0), Ok(BASE));
        p.set_limits(Limits { data: Bytes::new(0), ..Limits::NONE });
        let at = BASE + 9 * PAGE;
        assert_eq!(p.mmap(at, 2 * PAGE, RW, fixed, None, 0), Ok(at), "what is shared is no data");
        p.set_limits(Limits { data: Bytes::new(PAGE), ..Limits::NONE });
        assert_eq!(p.mmap(at, PAGE, RW, COPIED, Some(&file), 0), Ok(at), "nor counted as such");
    });
}

#[test]
fn neighbours_of_one_file_are_one_where_their_offsets_follow_each_other() {
    with(|p, sim| {
        let (a, b) = (file(p, 16), file(p, 16));
        show(p, (0, 2), (&a, 0), SHARED);
        show(p, (2, 2), (&a, 2), SHARED);
        show(p, (4, 2), (&a, 2), SHARED);
        show(p, (6, 2), (&b, 4), SHARED);
        show(p, (8, 2), (&b, 6), COPIED);
        show(p, (10, 2), (&b, 8), COPIED);
        assert_eq!(areas(p), [(0, 4, RW), (4, 2, RW), (6, 2, RW), (8, 4, RW)]);
        let anonymous = SHARED | MAP_ANONYMOUS;
        for at in [12, 13] {
            p.mmap(BASE + at * PAGE, PAGE, RW, anonymous, None, 0).unwrap();
        }
        assert_eq!(areas(p)[4..], [(12, 1, RW), (13, 1, RW)], "each has a file of its own");
        assert_eq!(p.mprotect(BASE + PAGE, PAGE, PROT_READ), Ok(0));
        assert_eq!(save(p, sim, 0, 1), Ok(()));
        assert_eq!(p.mprotect(BASE + PAGE, PAGE, RW), Ok(0));
        assert_eq!(areas(p)[0], (0, 4, RW), "what is shared has no family");
        assert!(p.vma(BASE).unwrap().tag.family == Default::default());
        // A copy founds a family, and a neighbour that has none is one with it.
        assert_eq!(save(p, sim, 8, 1), Ok(()));
        show(p, (12, 1), (&b, 10), COPIED);
        assert_eq!(areas(p)[3], (8, 5, RW));
    });
}

#[test]
fn behind_the_end_is_sigbus_and_a_shorter_file_takes_copies_along() {
    with(|p, sim| {
        let file = file(p, 3);
        show(p, (0, 5), (&file, 0), SHARED);
        show(p, (8, 5), (&file, 0), COPIED);
        assert_eq!(load(p, sim, BASE + 3 * PAGE), beyond(3));
        assert_eq!(save(p, sim, 11, 1).map(|()| 0), beyond(11));
        assert_eq!(file.ftruncate(3 * PAGE as i64 + 1), Ok(0));
        assert_eq!(save(p, sim, 3, 4), Ok(()), "a part of a page is a page");
        for page in [8, 9, 10] {
            assert_eq!(save(p, sim, page, 9), Ok(()));
            assert_eq!(save(p, sim, page - 8, 1), Ok(()));
        }
        assert_eq!(file.fallocate(3, 1, 2 * PAGE as i64), Ok(0), "page 1 goes as a whole");
        assert_eq!([0, 1, 2].map(|page| load(p, sim, BASE + page * PAGE)), [Ok(1), Ok(0), Ok(0)]);
        assert_eq!(load(p, sim, BASE + 9 * PAGE), Ok(9), "a copy stays");
        assert_eq!(p.madvise(BASE + 8 * PAGE, PAGE, MADV_DONTNEED), Ok(0));
        assert_eq!(load(p, sim, BASE + 8 * PAGE), Ok(1), "the file's again");
        assert_eq!(file.ftruncate(PAGE as i64), Ok(0));
        assert_eq!(load(p, sim, BASE + 9 * PAGE), beyond(9), "the copy is gone");
        assert_eq!(file.ftruncate(4 * PAGE as i64), Ok(0));
        assert_eq!(load(p, sim, BASE + 2 * PAGE), Ok(0));
    });
}

#[test]
fn mremap_moves_offsets_along_and_maps_shared_memory_once_more() {
    with(|p, sim| {
        let file = file(p, 16);
        show(p, (0, 4), (&file, 2), SHARED);
        show(p, (8, 2), (&file, 0), COPIED);
        assert_eq!(save(p, sim, 1, 7), Ok(()));
        let (may, fixed) = (MREMAP_MAYMOVE, MREMAP_MAYMOVE | MREMAP_FIXED);
        let at = |page: u64| BASE + page * PAGE;
        let mut remap =
            |from, old, new, flags, to| p.mremap(at(from), old * PAGE, new * PAGE, flags, at(to));
        assert_eq!(
            remap(8, 0, 1, may, 0),
            Err(Errno::INVAL),
            "private memory is moved, not doubled"
        );
        assert_eq!(remap(1, 0, 2, 0, 0), Err(Errno::NOMEM));
        assert_eq!(remap(1, 0, 2, fixed, 20), Ok(at(20)));
        assert_eq!(remap(0, 2, 2, fixed, 30), Ok(at(30)));
        assert_eq!(remap(2, 2, 2, fixed | MREMAP_DONTUNMAP, 40), Ok(at(40)));
        assert_eq!(remap(40, 2, 4, 0, 0), Ok(at(40)));
        let expected = [(2, 2, RW), (8, 2, RW), (20, 2, RW), (30, 2, RW), (40, 4, RW)];
        assert_eq!(areas(p), expected);
        for (page, byte) in [(20, 7), (21, 0), (31, 7), (2, 0)] {
            assert_eq!(load(p, sim, at(page)), Ok(byte), "page {page}");
        }
        assert_eq!(save(p, sim, 43, 5), Ok(()), "page 7 of the file");
        show(p, (50, 1), (&file, 7), SHARED);
        assert_eq!(load(p, sim, at(50)), Ok(5));
        assert_eq!(p.mremap(at(30), PAGE, PAGE, fixed, at(19)), Ok(at(19)));
        assert_eq!(areas(p)[2], (19, 3, RW), "it came to stand before its next page");
    });
}

#[test]
fn advice_about_files_is_taken_or_refused_as_linux_does() {
    with(|p, sim| {
        let file = file(p, 4);
        show(p, (0, 4), (&file, 0), SHARED);
        show(p, (8, 4), (&file, 0), COPIED);
        put(p, 16, 1, RW);
        let (inval, acces) = (Err(Errno::INVAL), Err(Errno(EACCES)));
        for (page, advice, answer) in [
            (0, MADV_FREE, inval),
            (8, MADV_FREE, inval),
            (0, MADV_WIPEONFORK, inval),
            (8, MADV_WIPEONFORK, inval),
            (0, MADV_KEEPONFORK, Ok(0)),
            (8, MADV_REMOVE, acces),
            (16, MADV_REMOVE, inval),
            (0, MADV_COLLAPSE, inval),
            (0, MADV_REMOVE, Ok(0)),
            (0, MADV_POPULATE_WRITE, Ok(0)),
            (8, MADV_POPULATE_READ, Ok(0)),
        ] {
            assert_eq!(p.madvise(BASE + page * PAGE, PAGE, advice), answer, "{page} {advice}");
        }
        assert_eq!(save(p, sim, 1, 7), Ok(()));
        assert_eq!(p.madvise(BASE, 2 * PAGE, MADV_DONTNEED), Ok(0));
        assert_eq!(p.present_in(BASE, BASE + 4 * PAGE), 0);
        assert!(p.vma(BASE).unwrap().tag.family == Default::default());
        assert_eq!(p.fault(BASE, Access::Write), Fault::Done, "beside others");
        assert_eq!(load(p, sim, BASE + PAGE), Ok(7), "the file has it");
        assert_eq!(p.madvise(BASE + PAGE, PAGE, MADV_REMOVE), Ok(0));
        assert_eq!(load(p, sim, BASE + PAGE), Ok(0));
        assert_eq!(p.mlock(BASE, PAGE), Ok(0));
        assert_eq!(p.madvise(BASE, PAGE, MADV_REMOVE), inval);
        assert_eq!(p.mlock(BASE + 3 * PAGE, PAGE), Ok(0));
        assert_eq!(file.ftruncate(PAGE as i64), Ok(0));
        assert_eq!(p.madvise(BASE + PAGE, PAGE, MADV_POPULATE_READ), Err(Errno::FAULT));
        assert_eq!(p.mlock(BASE + PAGE, PAGE), Err(Errno::NOMEM));
    });
}

#[test]
fn mincore_says_what_the_file_has() {
    with(|p, sim| {
        let file = file(p, 4);
        show(p, (0, 2), (&file, 0), SHARED);
        show(p, (2, 6), (&file, 0), COPIED);
        assert_eq!(save(p, sim, 1, 7), Ok(()));
        assert_eq!(save(p, sim, 4, 7), Ok(()), "page 2 comes, and is copied");
        assert_eq!(p.madvise(BASE, 2 * PAGE, MADV_DONTNEED), Ok(0));
        let mut pages = Vec::new();
        assert_eq!(p.mincore(BASE, 8 * PAGE, |page| pages.push(page)), Ok(0));
        assert_eq!(pages, [0, 1, 0, 1, 1, 0, 0, 0]);
    });
}

/// What a file was promised is memory of its own, and shows when somebody has touched it.
#[test]
fn what_was_allocated_is_there_unseen() {
    with(|p, sim| {
        let file = file(p, 4);
        show(p, (0, 8), (&file, 0), SHARED);
        let mm = p.manager();
        let has = || mm.object_pages(file.object()).map(|pages| pages.get());
        let seen = |p: &P<'_, '_>| {
            let mut pages = Vec::new();
            assert_eq!(p.mincore(BASE, 8 * PAGE, |page| pages.push(page)), Ok(0));
            pages
        };
        assert_eq!(file.pwrite(&[7], PAGE as i64), Ok(1));
        assert_eq!(file.fallocate(FALLOC_FL_KEEP_SIZE, 100, 9 * PAGE as i64), Ok(0));
        assert_eq!((has(), file.bytes()), (Some(4), 4 * PAGE), "none stays behind the end");
        assert_eq!(seen(p), [0, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(load(p, sim, BASE + PAGE), Ok(7), "it is not another");
        assert_eq!(p.present_in(BASE, BASE + 8 * PAGE), 1, "the others do not come with it");
        assert_eq!(load(p, sim, BASE + 2 * PAGE), Ok(0));
        assert_eq!(file.pread(&mut [1; 9], 0), Ok(9));
        assert_eq!(seen(p), [0, 1, 1, 0, 0, 0, 0, 0], "to read it touches nothing");
        assert_eq!(file.pwrite(&[5], 0), Ok(1));
        assert_eq!(seen(p), [1, 1, 1, 0, 0, 0, 0, 0]);
        assert_eq!(file.fallocate(0, 2 * PAGE as i64, 3 * PAGE as i64 + 1), Ok(0));
        assert_eq!((has(), file.bytes()), (Some(6), 5 * PAGE + 1));
        assert_eq!(seen(p), [1, 1, 1, 1, 0, 0, 0, 0], "a second time counts as a touch");
        // All or nothing.
        let free = mm.memory().free.get();
        let nospc = Err(Errno(linux_raw_sys::errno::ENOSPC));
        assert_eq!(file.fallocate(0, 0, ((free + 9) * PAGE) as i64), nospc);
        assert_eq!((has(), file.bytes()), (Some(6), 5 * PAGE + 1));
        assert_eq!(file.ftruncate(0), Ok(0));
        assert_eq!(has(), Some(0));
    });
}

#[test]
fn a_guard_in_shared_memory_is_there_in_a_child_with_what_is_mapped() {
    with(|p, sim| {
        let file = file(p, 4);
        show(p, (0, 4), (&file, 0), SHARED);
        assert_eq!(save(p, sim, 0, 7), Ok(()));
        assert_eq!(p.madvise(BASE + PAGE, PAGE, MADV_GUARD_INSTALL), Ok(0));
        let mut child = p.fork().unwrap();
        assert_eq!(child.present_in(BASE, BASE + 4 * PAGE), 1);
        let signal = Signal { number: SIGSEGV, code: SEGV_MAPERR, addr: BASE + PAGE, lsb: 0 };
        assert_eq!(load(&mut child, sim, BASE + PAGE), Err(signal));
        assert_eq!(child.madvise(BASE, 4 * PAGE, MADV_GUARD_REMOVE), Ok(0));
        assert_eq!(load(&mut child, sim, BASE + PAGE), Ok(0));
        assert_eq!(load(p, sim, BASE + PAGE), Err(signal), "the parent's stays");
        child.end().unwrap();
    });
}

#[test]
fn guards_in_a_file_part_no_neighbours_and_stay_with_private_ones_in_a_fork() {
    with(|p, sim| {
        let file = file(p, 8);
        for (at, flags) in [(0, SHARED), (10, COPIED)] {
            show(p, (at, 8), (&file, 0), flags);
            let first = BASE + at * PAGE;
            assert_eq!(p.madvise(first + 4 * PAGE, 4 * PAGE, MADV_SEQUENTIAL), Ok(0));
            assert_eq!(p.madvise(first + PAGE, PAGE, MADV_GUARD_INSTALL), Ok(0));
            assert_eq!(p.madvise(first, 4 * PAGE, MADV_SEQUENTIAL), Ok(0));
        }
        assert_eq!(areas(p), [(0, 8, RW), (10, 8, RW)]);
        let mut child = p.fork().unwrap();
        for page in [1, 11] {
            let signal =
                Signal { number: SIGSEGV, code: SEGV_MAPERR, addr: BASE + page * PAGE, lsb: 0 };
            assert_eq!(load(&mut child, sim, signal.addr), Err(signal));
        }
        p.manager().switch(Some(p.space())).unwrap();
        child.end().unwrap();
    });
}

#[test]
fn lists_of_areas_name_files_and_their_offsets() {
    with(|p, sim| {
        let file = F::memfd(p.manager(), b"a\n\\ b", MFD_CLOEXEC).unwrap();
        assert_eq!(file.ftruncate(8 * PAGE as i64), Ok(0));
        show(p, (0, 2), (&file, 0), SHARED);
        show(p, (2, 2), (&file, 0x3000 / PAGE), COPIED);
        assert_eq!(
            p.mmap(BASE + 5 * PAGE, PAGE, PROT_READ, SHARED | MAP_ANONYMOUS, None, 8 * PAGE),
            Ok(BASE + 5 * PAGE)
        );
        assert_eq!(save(p, sim, 0, 1), Ok(()));
        assert_eq!(save(p, sim, 3, 1), Ok(()));
        assert_eq!(load(p, sim, BASE + 2 * PAGE), Ok(0));
        let mut maps = String::new();
        p.maps(&mut maps).unwrap();
        let inode = file.inode();
        let zero = p.view(&p.vma(BASE + 5 * PAGE).unwrap()).unwrap().file.inode();
        let line = |head: String, name: &str| format!("{head:73}{name} (deleted)\n");
        assert_ne!(zero, inode);
        assert_eq!(
            maps,
            line(
                format!("1000000000-1000002000 rw-s 00000000 00:01 {inode} "),
                "/memfd:a\\012\\ b"
            ) + &line(
                format!("1000002000-1000004000 rw-p 00003000 00:01 {inode} "),
                "/memfd:a\\012\\ b"
            ) + &line(format!("1000005000-1000006000 r--s 00000000 00:01 {zero} "), "/dev/zero")
        );
        let mut smaps = String::new();
        p.smaps(&mut smaps).unwrap();
        let part = |nth: usize| smaps.split("VmFlags: ").nth(nth).unwrap();
        let field = |nth: usize, name: &str| {
            let line = part(nth).lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
        };
        let fields = |name: &str| [0, 1, 2].map(|nth| field(nth, name));
        assert_eq!(fields("Rss:"), [4, 8, 0]);
        assert_eq!(fields("Anonymous:"), [0, 4, 0]);
        assert_eq!(fields("Private_Dirty:"), [0, 4, 0]);
        assert_eq!(fields("Shared_Dirty:"), [4, 0, 0]);
        assert_eq!(fields("THPeligible:"), [0; 3]);
        let flags = |nth: usize| part(nth).lines().next().unwrap().to_owned();
        assert_eq!(flags(1), "rd wr sh mr mw me ms sd ");
        assert_eq!(flags(2), "rd wr mr mw me ac sd ");
        assert_eq!(flags(3), "rd sh mr mw me ms sd ");
    });
}

#[test]
fn accounts_are_of_private_memory_alone() {
    with(|p, _| {
        let file = file(p, 4);
        let marks = |p: &P<'_, '_>, page: u64| p.vma(BASE + page * PAGE).unwrap().tag.marks;
        let at = BASE + 8 * PAGE;
        assert_eq!(p.mmap(at, PAGE, PROT_READ, SHARED, Some(&file), 0), Ok(at));
        assert_eq!(p.mprotect(at, PAGE, RW), Ok(0));
        assert!(!marks(p, 8).has(Marks::ACCOUNTED));
        assert_eq!((p.mprotect(at, PAGE, PROT_READ), p.mlock(at, PAGE)), (Ok(0), Ok(0)));
        assert_eq!(p.present_in(at, at + PAGE), 1);
        assert_eq!(p.madvise(at, PAGE, MADV_DONTNEED_LOCKED), Ok(0));
        assert_eq!(p.mprotect(at, PAGE, RW), Ok(0));
        assert_eq!(p.present_in(at, at + PAGE), 0, "what is private alone is brought again");
        assert_eq!(p.mmap(at, PAGE, PROT_READ, COPIED, Some(&file), 0), Ok(at));
        assert_eq!(p.mprotect(at, PAGE, RW), Ok(0));
        assert!(marks(p, 8).has(Marks::ACCOUNTED));
        assert_eq!(p.mprotect(at, PAGE, PROT_READ), Ok(0));
        assert!(marks(p, 8).has(Marks::ACCOUNTED), "what a file shows may have copies");
    });
}

#[test]
fn files_look_at_their_arguments() {
    with(|p, _| {
        let make = |name: &[u8], flags| F::memfd(p.manager(), name, flags).map(|file| file.bytes());
        let (inval, long) = (Err(Errno::INVAL), [b'x'; 250]);
        assert_eq!([make(&long[1..], 0), make(&long, 0)], [Ok(0), inval]);
        for (flags, answer) in [
            (MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC, Ok(0)),
            (MFD_NOEXEC_SEAL, Ok(0)),
            (MFD_NOEXEC_SEAL | MFD_EXEC, inval),
            (0x20, inval),
            (1 << MFD_HUGE_SHIFT, inval),
            (MFD_HUGETLB, Ok(0)),
            (MFD_HUGETLB | 30 << MFD_HUGE_SHIFT, Ok(0)),
            (MFD_HUGETLB | 22 << MFD_HUGE_SHIFT, Err(Errno(ENODEV))),
            (MFD_HUGETLB | 63 << MFD_HUGE_SHIFT, Err(Errno(ENODEV))),
            (MFD_HUGETLB | 0x20, inval),
        ] {
            assert_eq!(make(b"", flags), answer, "{flags:#x}");
        }
        let file = file(p, 4);
        assert_eq!(file.ftruncate(-1), inval);
        assert_eq!(file.ftruncate(i64::MAX), Ok(0));
        assert_eq!(file.bytes(), i64::MAX as u64);
        assert_eq!(file.ftruncate(PAGE as i64 + 1), Ok(0));
        let room = || p.manager().object_room(file.object()).unwrap().get();
        assert_eq!(room(), 2);
        let (page, big, unknown) = (PAGE as i64, Err(Errno(EFBIG)), Err(Errno(EOPNOTSUPP)));
        for (mode, offset, bytes, answer) in [
            (0, -1, page, inval),
            (0, 0, 0, inval),
            (0, 0, -page, inval),
            (2, 0, page, unknown),
            (2, i64::MAX, page, unknown),
            (7, 0, page, unknown),
            (8, 0, page, unknown),
            (0x10, 0, page, unknown),
            (0x40, i64::MAX, page, big),
            (9, i64::MAX, page, unknown),
            (3, i64::MAX, page, big),
            (0, i64::MAX, page, big),
            (3, 1 << 60, page, Ok(0)),
            (1, 2 * page, page, Ok(0)),
        ] {
            assert_eq!(file.fallocate(mode, offset, bytes), answer, "{mode} {offset:#x} {bytes}");
        }
        assert_eq!((file.bytes(), room()), (PAGE + 1, 2), "nothing of that made it longer");
        assert_eq!(file.fallocate(0, 0, 8), Ok(0));
        assert_eq!(file.bytes(), PAGE + 1, "nor shorter");
        assert_eq!(file.fallocate(0, 3 * page, 1), Ok(0));
        assert_eq!((file.bytes(), room()), (3 * PAGE + 1, 4));
    });
}

#[test]
fn no_argument_about_a_file_panics() {
    with(|p, _| {
        let file = file(p, 4);
        show(p, (0, 8), (&file, 0), SHARED);
        let edge = [0, 1, PAGE, BASE, SIZE, 1 << 47, 1 << 52, 1 << 62, 1 << 63, !0 - 4095, !0];
        for a in edge {
            let _ = file.ftruncate(a as i64);
            let _ = (file.pread(&mut [0; 9], a as i64), file.pwrite(&[1; 9], a as i64));
            for b in edge {
                for c in [0, 1, 3] {
                    let _ = file.fallocate(c, a as i64, b as i64);
                }
                let _ = p.mmap(BASE, b, RW, SHARED, Some(&file), a);
                let _ = p.mmap(BASE, b.min(1 << 40), RW, SHARED | MAP_ANONYMOUS, None, a);
                let _ = p.mremap(BASE, 0, a, MREMAP_MAYMOVE, b);
                let _ = (p.madvise(BASE, a, MADV_REMOVE), p.munmap(BASE, b));
            }
        }
    });
}

/// A write that a guard refuses gives its area nothing: once its neighbour's lock is gone they are
/// one.
#[test]
fn a_refused_write_to_a_guard_parts_no_neighbours() {
    with(|p, sim| {
        let file = file(p, 16);
        show(p, (0, 10), (&file, 3), COPIED);
        assert_eq!(p.mlock(BASE + 3 * PAGE, 2 * PAGE), Ok(0));
        assert_eq!(p.madvise(BASE, 10 * PAGE, MADV_GUARD_INSTALL), Err(Errno::INVAL));
        assert!(save(p, sim, 1, 6).is_err());
        assert_eq!(p.munlockall(), Ok(0));
        assert_eq!(p.vmas().count(), 1);
    });
}

#[test]
fn a_guard_that_is_locked_parts_no_neighbours() {
    with(|p, sim| {
        let file = file(p, 4);
        show(p, (0, 4), (&file, 0), COPIED);
        assert_eq!(p.madvise(BASE + PAGE, 3 * PAGE, MADV_GUARD_INSTALL), Ok(0));
        assert_eq!(p.mlock(BASE + 2 * PAGE, PAGE), Err(Errno::NOMEM));
        assert_eq!(save(p, sim, 0, 7), Ok(()), "those below get their family");
        assert_eq!(areas(p), [(0, 2, RW), (2, 1, RW), (3, 1, RW)]);
        assert_eq!(p.munlock(BASE + 2 * PAGE, PAGE), Ok(0));
        assert_eq!(areas(p), [(0, 4, RW)], "a guard has none");
    });
}

#[test]
fn a_word_of_shared_memory_is_one_wherever_it_is_mapped() {
    with(|p, _| {
        let file = file(p, 4);
        show(p, (0, 4), (&file, 0), SHARED);
        show(p, (8, 2), (&file, 2), SHARED);
        show(p, (16, 4), (&file, 0), COPIED);
        let key = |p: &P<'_, '_>, page: u64| p.key_of(BASE + page * PAGE + 4);
        assert_eq!(key(p, 2), key(p, 8));
        assert_ne!(key(p, 2), key(p, 3));
        assert_ne!(key(p, 0), key(p, 16), "a private mapping has pages of its own");
        let child = p.fork().unwrap();
        assert_eq!(key(p, 2), key(&child, 8));
        assert_ne!(key(p, 16), key(&child, 16));
        child.end().unwrap();
    });
}
