//! What a seal forbids, and advice for another process.

use super::*;
use crate::{Adviser, MemoryFile};

#[test]
fn what_is_sealed_stays_as_it_is() {
    with(|p, sim| {
        let (perm, inval, nomem) = (Err(Errno::PERM), Err(Errno::INVAL), Err(Errno::NOMEM));
        put(p, 0, 8, RW);
        assert_eq!(store(p, sim, BASE + 3 * PAGE, 5), Ok(()));
        for (addr, len, flags, answer) in [
            (BASE, PAGE, 1, inval),
            (BASE + 1, PAGE, 0, inval),
            (BASE, u64::MAX, 0, inval),
            (BASE, 0, 0, Ok(0)),
            (BASE + 7 * PAGE, 2 * PAGE, 0, nomem),
            (BASE + 2 * PAGE, 2 * PAGE - 7, 0, Ok(0)),
            (BASE + 2 * PAGE, PAGE, 0, Ok(0)),
        ] {
            assert_eq!(p.mseal(addr, len, flags), answer, "{addr:#x} {len:#x} {flags}");
        }
        assert_eq!(areas(p), [(0, 2, RW), (2, 2, RW), (4, 4, RW)]);
        let sealed = BASE + 2 * PAGE;
        assert_eq!(p.mmap(sealed, PAGE, RW, FIXED, None, 0), perm);
        assert_eq!(p.munmap(sealed, PAGE), perm);
        assert_eq!(p.mprotect(sealed, PAGE, RW), perm, "though nothing would change");
        assert_eq!(p.mremap(sealed, PAGE, 2 * PAGE, MREMAP_MAYMOVE, 0), perm);
        assert_eq!(p.mremap(sealed, PAGE, PAGE, MREMAP_MAYMOVE, 0), perm);
        let fixed = MREMAP_MAYMOVE | MREMAP_FIXED;
        assert_eq!(p.mremap(BASE + 6 * PAGE, PAGE, PAGE, fixed, sealed), perm);
        // What may be written may be dropped, and advice without a loss is welcome.
        for advice in [MADV_GUARD_INSTALL, MADV_DONTFORK, MADV_DOFORK, MADV_COLD] {
            assert_eq!(p.madvise(BASE + 3 * PAGE, PAGE, advice), Ok(0), "{advice}");
        }
        assert_eq!(areas(p), [(0, 2, RW), (2, 2, RW), (4, 4, RW)]);
        // An unmap that meets a seal has cut its first vma.
        assert_eq!(p.munmap(BASE + PAGE, 3 * PAGE), perm);
        assert_eq!(areas(p), [(0, 1, RW), (1, 1, RW), (2, 2, RW), (4, 4, RW)]);
        let mut smaps = String::new();
        p.smaps(&mut smaps).unwrap();
        assert_eq!(smaps.matches("VmFlags: rd wr mr mw me ac sd sl \n").count(), 1);
        // A seal goes along with a fork.
        let mut child = p.fork().unwrap();
        assert_eq!(child.munmap(BASE, 8 * PAGE), perm);
        child.end().unwrap();
    });
}

#[test]
fn what_is_sealed_and_not_writable_keeps_its_contents() {
    with(|p, sim| {
        put(p, 0, 2, RW);
        assert_eq!(store(p, sim, BASE, 5), Ok(()));
        assert_eq!(p.mprotect(BASE, 2 * PAGE, PROT_READ), Ok(0));
        assert_eq!(p.mseal(BASE, 2 * PAGE, 0), Ok(0));
        for advice in [MADV_DONTNEED, MADV_DONTNEED_LOCKED, MADV_FREE, MADV_REMOVE, MADV_DONTFORK]
            .into_iter()
            .chain([MADV_WIPEONFORK, MADV_GUARD_INSTALL])
        {
            assert_eq!(p.madvise(BASE, PAGE, advice), Err(Errno::PERM), "{advice}");
        }
        assert_eq!(p.madvise(BASE, PAGE, MADV_NOHUGEPAGE), Ok(0));
        assert_eq!(p.present_in(BASE, BASE + PAGE), 1);
    });
}

#[test]
fn rights_that_no_vma_of_a_file_may_have_are_refused_before_its_seal_is_seen() {
    with(|p, _| {
        let file = MemoryFile::memfd(p.manager(), b"read", MFD_ALLOW_SEALING).unwrap();
        file.ftruncate(2 * PAGE as i64).unwrap();
        file.add_seals(F_SEAL_WRITE).unwrap();
        p.mmap(BASE, 2 * PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, Some(&file), 0).unwrap();
        assert_eq!(p.mseal(BASE, PAGE, 0), Ok(0));
        let acces = Errno(linux_raw_sys::errno::EACCES);
        for page in [BASE, BASE + PAGE] {
            assert_eq!(p.mprotect(page, PAGE, RW), Err(acces), "{page:#x}");
        }
        assert_eq!(p.mprotect(BASE, PAGE, PROT_READ), Err(Errno::PERM));
    });
}

#[test]
fn a_sealed_heap_does_not_shrink() {
    with(|p, _| {
        assert_eq!(p.brk(HEAP + 4 * PAGE), HEAP + 4 * PAGE);
        assert_eq!(p.mseal(HEAP + 2 * PAGE, PAGE, 0), Ok(0));
        assert_eq!(p.brk(HEAP + PAGE), HEAP + 4 * PAGE);
        assert_eq!(p.brk(HEAP + 3 * PAGE), HEAP + 3 * PAGE, "behind the seal");
    });
}

#[test]
fn who_advises_another_process_may_not_take_its_contents() {
    with(|p, sim| {
        put(p, 0, 4, RW);
        assert_eq!(store(p, sim, BASE, 5), Ok(()));
        let inval = Err(Errno::INVAL);
        let two = [(BASE, PAGE), (BASE + 2 * PAGE, 2 * PAGE)];
        let beyond = [(BASE, PAGE), (BASE + 3 * PAGE, 2 * PAGE), (BASE, PAGE)];
        for (ranges, advice, flags, by, answer) in [
            (&two[..], MADV_COLD, 0, Adviser::Other, Ok(3 * PAGE)),
            (&two, MADV_COLD, 1, Adviser::Other, inval),
            (&two, MADV_DONTNEED, 0, Adviser::Other, inval),
            (&beyond, MADV_COLD, 0, Adviser::Itself, Ok(PAGE)),
            (&beyond[1..], MADV_COLD, 0, Adviser::Itself, Err(Errno::NOMEM)),
            (&[], MADV_COLD, 0, Adviser::Itself, Ok(0)),
            (&two, 77, 0, Adviser::Itself, inval),
        ] {
            assert_eq!(
                p.process_madvise(ranges, advice, flags, by),
                answer,
                "{ranges:x?} {advice}"
            );
        }
        assert_eq!(p.present_in(BASE, BASE + PAGE), 1);
        assert_eq!(p.process_madvise(&two, MADV_DONTNEED, 0, Adviser::Itself), Ok(3 * PAGE));
        assert_eq!(p.present_in(BASE, BASE + PAGE), 0);
    });
}
