//! Seals of files in memory.

use super::shared::{F, show};
use super::*;
use crate::MemoryFile;

fn made<'a, 'm>(process: &P<'a, 'm>, flags: u32) -> F<'a, 'm> {
    let file = MemoryFile::memfd(process.manager(), b"sealed", flags).unwrap();
    assert_eq!(file.ftruncate(4 * PAGE as i64), Ok(0));
    file
}

#[test]
fn seals_come_to_files_that_were_made_for_it_and_none_goes() {
    with(|p, _| {
        let plain = made(p, 0);
        assert_eq!((plain.seals(), plain.add_seals(F_SEAL_GROW)), (F_SEAL_SEAL, Err(Errno::PERM)));
        assert_eq!(plain.add_seals(64), Err(Errno::INVAL), "before anything else");
        let file = made(p, MFD_ALLOW_SEALING);
        assert_eq!((file.seals(), file.add_seals(0)), (0, Ok(0)));
        assert_eq!(file.add_seals(F_SEAL_SHRINK), Ok(0));
        assert_eq!(file.add_seals(F_SEAL_GROW | F_SEAL_SEAL), Ok(0));
        assert_eq!(file.seals(), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
        assert_eq!(file.add_seals(F_SEAL_SEAL), Err(Errno::PERM));
        let program = made(p, MFD_ALLOW_SEALING);
        assert_eq!((program.add_seals(F_SEAL_EXEC), program.seals()), (Ok(0), 62));
        let data = made(p, MFD_NOEXEC_SEAL);
        assert_eq!((data.seals(), data.add_seals(F_SEAL_EXEC)), (F_SEAL_EXEC, Ok(0)));
        assert_eq!(data.seals(), F_SEAL_EXEC, "it may not be executed, so it stays as it is");
    });
}

#[test]
fn a_sealed_length_stays() {
    with(|p, _| {
        let perm = Err(Errno::PERM);
        let file = made(p, MFD_ALLOW_SEALING);
        let pages = |n: u64| (n * PAGE) as i64;
        file.add_seals(F_SEAL_SHRINK).unwrap();
        assert_eq!(file.ftruncate(pages(3)), perm);
        assert_eq!((file.ftruncate(pages(4)), file.ftruncate(pages(5))), (Ok(0), Ok(0)));
        file.add_seals(F_SEAL_GROW).unwrap();
        assert_eq!((file.ftruncate(pages(6)), file.ftruncate(pages(5))), (perm, Ok(0)));
        for mode in [0, FALLOC_FL_KEEP_SIZE] {
            assert_eq!(file.fallocate(mode, 0, pages(6)), perm);
            assert_eq!(file.fallocate(mode, 0, pages(5)), Ok(0));
        }
        const PUNCH: u32 = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
        assert_eq!(file.fallocate(PUNCH, 0, pages(9)), Ok(0), "a hole changes no length");
        assert_eq!(file.bytes(), 5 * PAGE);
    });
}

#[test]
fn nobody_writes_what_is_sealed_against_it() {
    with(|p, _| {
        let perm = Err(Errno::PERM);
        let file = made(p, MFD_ALLOW_SEALING);
        show(p, (0, 2), (&file, 0), MAP_SHARED | MAP_FIXED);
        assert_eq!(file.add_seals(F_SEAL_WRITE), Err(Errno::BUSY));
        // What may become writable counts, here and in a child.
        p.mprotect(BASE, 2 * PAGE, PROT_READ).unwrap();
        assert_eq!(file.add_seals(F_SEAL_WRITE), Err(Errno::BUSY));
        let child = p.fork().unwrap();
        p.munmap(BASE, 2 * PAGE).unwrap();
        assert_eq!(file.add_seals(F_SEAL_WRITE), Err(Errno::BUSY));
        child.end().unwrap();
        show(p, (8, 2), (&file, 0), MAP_PRIVATE | MAP_FIXED);
        assert_eq!(file.add_seals(F_SEAL_WRITE), Ok(0), "copies are no concern of the file's");
        const PUNCH: u32 = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
        assert_eq!(file.fallocate(PUNCH, 0, 1), perm);
        for (prot, flags, expected) in
            [(RW, MAP_SHARED, perm), (RW, MAP_PRIVATE, Ok(BASE)), (PROT_READ, MAP_SHARED, Ok(BASE))]
        {
            let mapped = p.mmap(BASE, PAGE, prot, flags | MAP_FIXED, Some(&file), 0);
            assert_eq!(mapped, expected);
        }
        assert_eq!(p.mprotect(BASE, PAGE, RW), Err(Errno(EACCES)));
        assert_eq!(p.madvise(BASE, PAGE, MADV_REMOVE), Err(Errno(EACCES)));
    });
}

#[test]
fn what_may_be_written_already_stays_so_beside_a_seal_for_the_future() {
    with(|p, sim| {
        let file = made(p, MFD_ALLOW_SEALING);
        show(p, (0, 2), (&file, 0), MAP_SHARED | MAP_FIXED);
        assert_eq!(file.add_seals(F_SEAL_FUTURE_WRITE), Ok(0));
        p.manager().switch(Some(p.space())).unwrap();
        assert_eq!(store(p, sim, BASE, 7), Ok(()));
        assert_eq!(p.madvise(BASE, PAGE, MADV_REMOVE), Err(Errno::PERM));
        let more = p.mmap(BASE + 8 * PAGE, PAGE, RW, MAP_SHARED | MAP_FIXED, Some(&file), 0);
        assert_eq!(more, Err(Errno::PERM));
        for seals in [F_SEAL_WRITE, F_SEAL_EXEC] {
            assert_eq!(file.add_seals(seals), Err(Errno::BUSY));
        }
        assert_eq!(file.seals(), F_SEAL_FUTURE_WRITE);
    });
}
