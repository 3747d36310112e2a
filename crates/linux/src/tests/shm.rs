//! Segments of System V.

use super::shared::load;
use super::*;
use crate::sysv::*;
use crate::{SegmentLimits, Segments};
use linux_raw_sys::errno::{EACCES, EEXIST, EFAULT, EIDRM, ENOENT, ENOSPC};

type S<'a, 'm> = Segments<'a, 'm, Sim, X86_64<4>>;

const NEW: u32 = IPC_CREAT | 0o600;

fn at(page: u64) -> u64 {
    BASE + page * PAGE
}
/// A segment of so many pages, by its number.
fn made<'a, 'm>(p: &mut P<'a, 'm>, all: &mut S<'a, 'm>, pages: u64) -> i32 {
    p.shmget(all, IPC_PRIVATE, pages * PAGE, NEW).unwrap() as i32
}
fn attached(all: &mut S<'_, '_>, id: i32) -> u64 {
    all.stat(id).unwrap().attached
}
/// Runs a test with a table of segments, which is let go of before all is recounted.
fn with_segments(test: impl for<'a, 'm> FnOnce(&mut P<'a, 'm>, &mut S<'a, 'm>, &Sim)) {
    with(|p, sim| {
        let mut all = S::default();
        test(p, &mut all, sim);
    });
}

#[test]
fn shmget_finds_makes_and_refuses_as_linux_does() {
    with_segments(|p, all, _| {
        let (inval, nospc) = (Err(Errno::INVAL), Err(Errno(ENOSPC)));
        for (key, bytes, flags, answer) in [
            (5, PAGE, 0o600, Err(Errno(ENOENT))),
            (5, 0, NEW, inval),
            (5, u64::MAX, NEW, inval),
            (5, 1 << 63, NEW, inval),
            (5, PAGE, NEW | SHM_HUGETLB, Err(Errno::NOMEM)), // the pool is empty
            (5, 1 << 63, NEW | SHM_HUGETLB, Err(Errno::NOMEM)),
            (5, PAGE, NEW | SHM_HUGETLB | 22 << SHM_HUGE_SHIFT, inval),
            (5, 5000, NEW, Ok(0)),
            (5, 5000, 0, Ok(0)),
            (5, 0, 0, Ok(0)),
            (5, 5001, NEW, inval),
            (5, 5000, NEW | IPC_EXCL, Err(Errno(EEXIST))),
            (0, PAGE, 0, Ok(1)),
            (0, PAGE, NEW | IPC_EXCL, Ok(2)),
            (-1, PAGE, NEW | IPC_EXCL, Ok(3)),
        ] {
            assert_eq!(p.shmget(all, key, bytes, flags), answer, "{key} {bytes:#x} {flags:#o}");
        }
        assert_eq!(all.ids().collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert!(!all.makes(5, NEW) && !all.makes(6, 0) && all.makes(6, NEW) && all.makes(0, 0));
        let stat = all.stat(0).unwrap();
        assert_eq!((stat.key, stat.mode, stat.bytes, stat.attached), (5, 0o600, 5000, 0));
        p.set_limits(Limits { promise: Promise::Guess(Pages::new(3)), ..Limits::NONE });
        assert_eq!(p.shmget(all, 0, 4 * PAGE, NEW), Err(Errno::NOMEM));
        assert_eq!(p.shmget(all, 0, 4 * PAGE, NEW | SHM_NORESERVE), Ok(4));
        all.limits.bytes = Bytes::new(PAGE);
        assert_eq!((p.shmget(all, 0, PAGE + 1, NEW), p.shmget(all, 0, PAGE, NEW)), (inval, Ok(5)));
        all.limits.pages = Pages::new(11);
        assert_eq!((p.shmget(all, 0, PAGE, NEW), p.shmget(all, 0, PAGE, NEW)), (Ok(6), nospc));
        all.limits = SegmentLimits { count: 7, ..SegmentLimits::DEFAULT };
        assert_eq!(p.shmget(all, 0, PAGE, NEW), nospc);
        assert_eq!(all.shmctl(1, IPC_RMID), Ok(0));
        assert_eq!(p.shmget(all, 0, PAGE, NEW), Ok(7), "there is room again");
    });
}

#[test]
fn numbers_are_given_in_turn_and_begin_anew_as_others() {
    with_segments(|p, all, _| {
        let numbers: Vec<i32> = (0..4).map(|_| made(p, all, 1)).collect();
        assert_eq!(numbers, [0, 1, 2, 3]);
        for id in 4..64 {
            assert_eq!(made(p, all, 1), id);
            assert_eq!(all.shmctl(id, IPC_RMID), Ok(0));
        }
        let round = 1 << 15;
        assert_eq!((made(p, all, 1), made(p, all, 1)), (round + 4, round + 5));
        let more: Vec<i32> = (0..61).map(|_| made(p, all, 1)).collect();
        assert_eq!(more[60], round + 66, "more than two thirds are used");
        assert_eq!(all.ids().count(), 67);
        for id in [-1, 4, round, round + 67, 2 * round + 4] {
            assert_eq!(all.stat(id), Err(Errno::INVAL), "{id}");
        }
        assert!(all.stat(round + 4).is_ok());
    });
}

#[test]
fn shmat_looks_at_its_arguments_as_linux_does() {
    with_segments(|p, all, sim| {
        let inval = Err(Errno::INVAL);
        let id = p.shmget(all, 7, 2 * PAGE + 1, NEW).unwrap() as i32;
        put(p, 2, 1, RW);
        for (id, addr, flags, answer) in [
            (-1, 0, 0, inval),
            (9, 0, 0, inval),
            (id, at(0) + 8, 0, inval),
            (id, 0, SHM_REMAP, inval),
            (id, 8, SHM_REMAP | SHM_RND, inval),
            (id, at(0), 0, inval),
            (id, at(0), SHM_RND, inval),
            (id, !(PAGE - 1), 0, inval),
            (id, !(PAGE - 1), SHM_REMAP, Err(Errno::NOMEM)),
            (id, at(3) + 8, SHM_RND, Ok(at(3))),
            (id, at(0), SHM_REMAP, Ok(at(0))),
            (id, 0, 0, Ok(TOP - 3 * PAGE)),
        ] {
            assert_eq!(p.shmat(all, id, addr, flags), answer, "{id} {addr:#x} {flags:#o}");
        }
        assert_eq!(attached(all, id), 3, "what was refused counts as nothing");
        assert_eq!(areas(p)[..2], [(0, 3, RW), (3, 3, RW)], "two attaches are two");
        assert_eq!(store(p, sim, at(1), 7), Ok(()));
        assert_eq!(load(p, sim, at(4)), Ok(7));
        assert_eq!(all.resident(id), Ok(Bytes::new(PAGE)));
        let read = p.shmat(all, id, at(8), SHM_RDONLY | SHM_EXEC).unwrap();
        assert_eq!(p.vma(read).unwrap().prot(), PROT_READ | PROT_EXEC);
        assert_eq!(p.mprotect(read, PAGE, RW), Err(Errno(EACCES)));
        let mut maps = String::new();
        p.maps(&mut maps).unwrap();
        let line = format!("{:08x}-{:08x} r-xs 00000000 00:01 0    ", at(8), at(11));
        assert!(maps.contains(&line) && maps.contains(" /SYSV00000007 (deleted)\n"), "{maps}");
        let mut smaps = String::new();
        p.smaps(&mut smaps).unwrap();
        assert_eq!(smaps.matches("VmFlags: rd ex mr me ms sd \n").count(), 1, "no `sh`: {smaps}");
        assert_eq!(smaps.matches("VmFlags: rd wr sh mr mw me ms sd \n").count(), 3);
    });
}

/// On Linux the window takes the last vma away before it makes one.
#[test]
fn a_removed_segment_goes_with_the_window_that_was_all_of_it() {
    with_segments(|p, all, _| {
        let id = made(p, all, 4);
        p.shmat(all, id, at(0), 0).unwrap();
        assert_eq!(p.remap_file_pages(at(0), 4 * PAGE, 0, 0, 0), Ok(0));
        assert_eq!(all.shmctl(id, IPC_RMID), Ok(0));
        assert_eq!(p.remap_file_pages(at(0), PAGE, 0, 1, 0), Ok(0), "three pages keep it");
        assert_eq!(attached(all, id), 2);
        assert_eq!(p.munmap(at(1), 3 * PAGE), Ok(0));
        assert_eq!(p.remap_file_pages(at(0), PAGE, 0, 0, 0), Err(Errno(EIDRM)));
        assert_eq!(all.stat(id), Err(Errno::INVAL));
        assert_eq!(p.remap_file_pages(at(0), PAGE, 0, 0, 0), Err(Errno::INVAL), "nothing is there");
    });
}

#[test]
fn each_vma_of_a_segment_counts() {
    with_segments(|p, all, sim| {
        let id = made(p, all, 8);
        p.shmat(all, id, at(0), 0).unwrap();
        let mut count = |what: &str, vmas: u64| {
            assert_eq!(attached(all, id), vmas, "{what}");
        };
        count("one", 1);
        assert_eq!(p.mprotect(at(2), 2 * PAGE, PROT_READ), Ok(0));
        count("cut twice", 3);
        assert_eq!(p.mprotect(at(2), PAGE, RW), Ok(0));
        count("a part goes to its lower neighbour", 3);
        assert_eq!(areas(p)[..2], [(0, 3, RW), (3, 1, PROT_READ)]);
        assert_eq!(p.mprotect(at(3), PAGE, RW), Ok(0));
        count("a whole one stays by itself", 3);
        assert_eq!(areas(p), [(0, 3, RW), (3, 1, RW), (4, 4, RW)]);
        assert_eq!(p.munmap(at(5), PAGE), Ok(0));
        count("a hole", 4);
        assert_eq!(p.madvise(at(6), PAGE, MADV_DONTDUMP), Ok(0));
        count("advice cuts", 5);
        assert_eq!(p.mlock(at(0), PAGE), Ok(0));
        count("a lock cuts", 6);
        assert_eq!(p.mlock(at(0), 3 * PAGE), Ok(0));
        count("whole ones stay by themselves", 6);
        let (may, fixed) = (MREMAP_MAYMOVE, MREMAP_MAYMOVE | MREMAP_FIXED);
        assert_eq!(p.mremap(at(3), 0, PAGE, fixed, at(20)), Ok(at(20)));
        count("once more", 7);
        assert_eq!(p.mremap(at(20), PAGE, PAGE, fixed, at(30)), Ok(at(30)));
        count("moved", 7);
        assert_eq!(p.mremap(at(30), PAGE, PAGE, fixed | MREMAP_DONTUNMAP, at(40)), Ok(at(40)));
        count("doubled", 8);
        assert_eq!(p.mremap(at(30), PAGE, 3 * PAGE, may, 0), Ok(at(30)));
        count("grown in place", 8);
        assert_eq!(p.mremap(at(0), 2 * PAGE, 2 * PAGE, fixed, at(60)), Err(Errno::FAULT));
        count("several do not move at once", 8);
        let child = p.fork().unwrap();
        count("the child's", 16);
        child.end().unwrap();
        count("its own again", 8);
        assert_eq!(store(p, sim, at(0), 1), Ok(()));
    });
}

#[test]
fn a_child_has_its_own_and_a_removed_segment_stays_until_the_last_goes() {
    with_segments(|p, all, sim| {
        let free = |p: &P<'_, '_>| p.manager().memory().free;
        let id = p.shmget(all, 9, 4 * PAGE, NEW).unwrap() as i32;
        p.shmat(all, id, at(0), 0).unwrap();
        p.shmat(all, id, at(8), 0).unwrap();
        assert_eq!(p.madvise(at(8), PAGE, MADV_DONTFORK), Ok(0));
        assert_eq!(store(p, sim, at(1), 3), Ok(()));
        let mut child = p.fork().unwrap();
        assert_eq!(attached(all, id), 5, "two and a cut here, and what the child has of them");
        assert_eq!(child.munmap(at(8), 4 * PAGE), Ok(0));
        assert_eq!(attached(all, id), 4);
        assert_eq!(all.shmctl(id, IPC_RMID), Ok(0));
        let stat = all.stat(id).unwrap();
        assert_eq!((stat.key, stat.mode, stat.attached), (IPC_PRIVATE, 0o600 | SHM_DEST, 4));
        assert_eq!(p.shmget(all, 9, PAGE, 0), Err(Errno(ENOENT)), "its key is free");
        assert_eq!(p.munmap(at(0), 16 * PAGE), Ok(0));
        assert_eq!(attached(all, id), 1, "the child's");
        assert_eq!(p.shmat(all, id, at(0), 0), Ok(at(0)), "by its number it is found");
        assert_eq!(p.shmdt(at(0)), Ok(0));
        child.manager().switch(Some(child.space())).unwrap();
        assert_eq!(load(&mut child, sim, at(1)), Ok(3));
        let before = free(p);
        p.manager().switch(Some(p.space())).unwrap();
        child.end().unwrap();
        assert_eq!(all.stat(id), Err(Errno::INVAL), "the last one took it along");
        assert!(free(p) > before);
        assert_eq!(made(p, all, 1), id + 1);
        assert_eq!(all.shmctl(id + 1, IPC_RMID), Ok(0));
        assert_eq!(all.ids().count(), 0, "nobody mapped it");
    });
}

#[test]
fn shmdt_takes_what_is_left_of_one_attach() {
    with_segments(|p, all, _| {
        let (id, other) = (made(p, all, 6), made(p, all, 6));
        p.shmat(all, id, at(0), 0).unwrap();
        p.shmat(all, other, at(10), 0).unwrap();
        for (addr, answer) in [(at(1), Err(Errno::INVAL)), (at(0) + 1, Err(Errno::INVAL))] {
            assert_eq!(p.shmdt(addr), answer);
        }
        // Parts of another segment, and of another attach, with offsets that would do.
        let fixed = MREMAP_MAYMOVE | MREMAP_FIXED;
        assert_eq!(p.munmap(at(0), PAGE), Ok(0));
        assert_eq!(p.mremap(at(12), PAGE, PAGE, fixed, at(2)), Ok(at(2)));
        p.shmat(all, id, at(30), 0).unwrap();
        assert_eq!(p.mremap(at(34), PAGE, PAGE, fixed, at(4)), Ok(at(4)));
        assert_eq!(p.mprotect(at(5), PAGE, PROT_READ), Ok(0));
        put(p, 0, 1, RW);
        assert_eq!(p.shmdt(at(0)), Ok(0), "its first page is gone, and it is found all the same");
        let left = [(0, 1, RW), (2, 1, RW), (4, 1, RW), (10, 2, RW), (13, 3, RW)];
        assert_eq!(areas(p)[..5], left);
        assert_eq!(p.mseal(at(30), PAGE, 0), Ok(0));
        let several = p.mremap(at(30), 2 * PAGE, 2 * PAGE, fixed, at(60));
        assert_eq!(several, Err(Errno(EFAULT)), "that it moves alone is seen before the seal");
        assert_eq!(p.shmdt(at(30)), Ok(0), "what a seal keeps stays, and no error says so");
        assert_eq!(areas(p)[5..], [(30, 1, RW)]);
        assert_eq!((attached(all, id), attached(all, other)), (2, 3));
    });
}

#[test]
fn shmctl_sets_locks_and_removes() {
    with_segments(|p, all, _| {
        let (id, inval) = (made(p, all, 1), Err(Errno::INVAL));
        let mode = |all: &mut S<'_, '_>| all.stat(id).unwrap().mode;
        assert_eq!((all.shmctl(id, SHM_LOCK), mode(all)), (Ok(0), 0o600 | SHM_LOCKED));
        assert_eq!((all.set_mode(id, 0o7755), mode(all)), (Ok(0), 0o755 | SHM_LOCKED));
        assert_eq!((all.shmctl(id, SHM_UNLOCK), mode(all)), (Ok(0), 0o755));
        for (id, command) in [(id, 99), (id, IPC_STAT), (id + 1, SHM_LOCK), (-1, IPC_RMID)] {
            assert_eq!(all.shmctl(id, command), inval, "{id} {command}");
        }
        assert_eq!(all.set_mode(id + 1, 0), inval);
        assert_eq!((all.shmctl(id, IPC_RMID), all.shmctl(id, IPC_RMID)), (Ok(0), inval));
    });
}

#[test]
fn the_next_number_is_wished_for_once() {
    with_segments(|p, all, _| {
        let wish = |all: &mut S<'_, '_>, id: i32| {
            all.limits.write("shm_next_id", &format!("{id}\n")).unwrap();
        };
        let first = made(p, all, 1);
        wish(all, 5 << 15 | 7);
        assert_eq!(all.limits.read("shm_next_id").unwrap(), format!("{}\n", 5 << 15 | 7));
        assert_eq!(made(p, all, 1), 5 << 15 | 7);
        assert_eq!(all.limits.read("shm_next_id").unwrap(), "-1\n");
        assert_eq!(made(p, all, 1), first + 1, "in turn, as if there had been none");
        wish(all, 9 << 15 | 7);
        assert_eq!(made(p, all, 1), 9 << 15 | 8, "the index is taken");
    });
}

#[test]
fn limits_are_read_and_written_as_files() {
    let mut limits = SegmentLimits::DEFAULT;
    let read = |limits: &SegmentLimits| {
        ["shmmax", "shmall", "shmmni"].map(|name| limits.read(name).unwrap())
    };
    assert_eq!(read(&limits), ["18446744073692774399\n", "18446744073692774399\n", "4096\n"]);
    for (name, text, answer) in [
        ("shmmax", "1\n", Ok(())),
        ("shmall", " 22", Ok(())),
        ("shmmni", "32768", Ok(())),
        ("shmmni", "32769", Err(Errno::INVAL)),
        ("shmmni", "-1", Err(Errno::INVAL)),
        ("shm_next_id", "-1", Err(Errno::INVAL)),
        ("shm_next_id", "2147483648", Err(Errno::INVAL)),
        ("shmmax", "x", Err(Errno::INVAL)),
        ("shm", "1", Err(Errno(ENOENT))),
    ] {
        assert_eq!(limits.write(name, text), answer, "{name} {text}");
    }
    assert_eq!(read(&limits), ["1\n", "22\n", "32768\n"]);
    assert_eq!(limits.read("shm"), Err(Errno(ENOENT)));
}

#[test]
fn a_read_of_a_segments_page_brings_it_alone() {
    with_segments(|p, all, sim| {
        let id = made(p, all, 4);
        p.shmat(all, id, at(0), 0).unwrap();
        for page in 0..4 {
            assert_eq!(store(p, sim, at(page), 1), Ok(()));
        }
        p.shmat(all, id, at(8), 0).unwrap();
        assert_eq!(load(p, sim, at(9)), Ok(1));
        assert_eq!(p.present_in(at(8), at(12)), 1);
    });
}

#[test]
fn no_argument_about_a_segment_panics() {
    with_segments(|p, all, _| {
        all.limits = SegmentLimits { count: u32::MAX, ..all.limits };
        let edge = [0, 1, PAGE, BASE, SIZE, 1 << 47, 1 << 52, 1 << 62, (1 << 63) - 1, 1 << 63, !0];
        for a in edge {
            for b in edge {
                let _ = p.shmget(all, b as i32, a, b as u32 | SHM_NORESERVE);
                let _ = p.shmat(all, (b & 63) as i32, a, b as u32);
                let _ = p.shmat(all, a as i32, b & !(PAGE - 1), SHM_REMAP);
                let _ = (p.shmdt(a), all.shmctl(a as i32, b as u32), all.stat(b as i32));
            }
        }
        assert!(all.ids().count() > 10);
    });
}
