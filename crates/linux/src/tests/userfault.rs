//! `userfaultfd`: each request, what it refuses, what a fault tells and who goes on.

use super::shared::{F, load, show};
use super::*;
use crate::{Answer, Told, Userfaultfd};
use foliant_units::VaRange;
use linux_raw_sys::errno::{EAGAIN, EBUSY, EEXIST, EFAULT, EHWPOISON, EINVAL, ENOENT, EPERM};

const MISSING: u32 = UFFDIO_REGISTER_MODE_MISSING;
const WP: u32 = UFFDIO_REGISTER_MODE_WP;

/// Where copies come from; nothing needs to be there.
const SOURCE: u64 = 1 << 32;

pub(super) fn at(nth: u64) -> u64 {
    BASE + nth * PAGE
}
pub(super) fn pages(nth: u64, count: u64) -> uffdio_range {
    uffdio_range { start: at(nth), len: count * PAGE }
}
fn woken(nth: u64, count: u64) -> Option<VaRange> {
    VaRange::sized(Va::new(at(nth)), Bytes::new(count * PAGE))
}
fn no(errno: u32) -> Answer {
    Answer { result: Err(Errno(errno)), wakes: None }
}
fn done(wakes: Option<VaRange>) -> Answer {
    Answer { result: Ok(0), wakes }
}
/// A descriptor with these features.
pub(super) fn ready(process: &mut P<'_, '_>, features: u32) -> Userfaultfd {
    let mut fd = process.userfaultfd(O_CLOEXEC | UFFD_USER_MODE_ONLY).unwrap();
    let mut api = uffdio_api { api: u64::from(UFFD_API), features: u64::from(features), ioctls: 0 };
    assert_eq!(process.uffdio_api(&mut fd, &mut api), Ok(0));
    fd
}
/// Registers pages; gives the requests that it says there are.
pub(super) fn register(
    process: &mut P<'_, '_>,
    fd: &Userfaultfd,
    range: uffdio_range,
    mode: u32,
) -> Result<u64, u32> {
    let mut asked = uffdio_register { range, mode: u64::from(mode), ioctls: 0 };
    let got = process.uffdio_register(fd, &mut asked);
    got.map(|_| asked.ioctls).map_err(|why| why.0)
}
/// Copies pages, each of which holds its number in the source.
fn copy(
    process: &mut P<'_, '_>,
    fd: &Userfaultfd,
    range: uffdio_range,
    mode: u32,
) -> (Answer, i64) {
    let (dst, len, mode) = (range.start, range.len, u64::from(mode));
    let mut asked = uffdio_copy { dst, src: SOURCE + 3, len, mode, copy: 77 };
    let read = |from: u64, page: &mut [u8]| {
        let from = from - SOURCE;
        page.fill((from / PAGE) as u8 + 1);
        if from < 9 * PAGE { Ok(()) } else { Err(Errno::FAULT) }
    };
    (process.uffdio_copy(fd, &mut asked, read), asked.copy)
}
fn zeropage(process: &mut P<'_, '_>, fd: &Userfaultfd, range: uffdio_range) -> (Answer, i64) {
    let mut asked = uffdio_zeropage { range, mode: 0, zeropage: 77 };
    (process.uffdio_zeropage(fd, &mut asked), asked.zeropage)
}
pub(super) fn protect(
    process: &mut P<'_, '_>,
    fd: &Userfaultfd,
    range: uffdio_range,
    mode: u64,
) -> Answer {
    process.uffdio_writeprotect(fd, &uffdio_writeprotect { range, mode })
}
fn fault(process: &mut P<'_, '_>, addr: u64, access: Access) -> Fault {
    match process.fault(addr, access) {
        Fault::Alone => process.fault_alone(addr, access),
        fault => fault,
    }
}
fn flags(process: &P<'_, '_>, nth: u64) -> String {
    let mut text = String::new();
    process.smaps(&mut text).unwrap();
    let from = text.find(&format!("{:08x}-", at(nth))).expect("a vma begins there");
    let line = text[from..].lines().find(|line| line.starts_with("VmFlags")).unwrap();
    line.into()
}

#[test]
fn a_descriptor_answers_once_it_was_asked_what_there_is() {
    with(|process, _| {
        assert_eq!(process.userfaultfd(4).err(), Some(Errno(EINVAL)));
        let mut fd = process.userfaultfd(O_NONBLOCK).unwrap();
        put(process, 0, 4, RW);
        let mut asked = uffdio_register { range: pages(0, 4), mode: u64::from(MISSING), ioctls: 5 };
        assert_eq!(process.uffdio_register(&fd, &mut asked), Err(Errno(EINVAL)), "not yet");
        assert_eq!(process.uffdio_wake(&fd, &pages(0, 4)), no(EINVAL));
        let api = u64::from(UFFD_API);
        for (api, features) in [(api + 1, 0), (api, UFFD_FEATURE_THREAD_ID), (api, 1 << 31)] {
            let mut asked = uffdio_api { api, features: u64::from(features), ioctls: 9 };
            assert_eq!(process.uffdio_api(&mut fd, &mut asked), Err(Errno(EINVAL)));
            assert_eq!((asked.api, asked.features, asked.ioctls), (0, 0, 0));
        }
        let mut asked = uffdio_api { api, features: 0, ioctls: 0 };
        assert_eq!(process.uffdio_api(&mut fd, &mut asked), Ok(0));
        let all = UFFD_FEATURE_PAGEFAULT_FLAG_WP
            | UFFD_FEATURE_SIGBUS
            | UFFD_FEATURE_EXACT_ADDRESS
            | UFFD_FEATURE_MISSING_SHMEM
            | UFFD_FEATURE_MISSING_HUGETLBFS
            | UFFD_FEATURE_EVENT_FORK
            | UFFD_FEATURE_EVENT_REMAP
            | UFFD_FEATURE_EVENT_REMOVE
            | UFFD_FEATURE_EVENT_UNMAP
            | UFFD_FEATURE_WP_UNPOPULATED
            | UFFD_FEATURE_WP_HUGETLBFS_SHMEM
            | UFFD_FEATURE_MINOR_SHMEM
            | UFFD_FEATURE_MINOR_HUGETLBFS
            | UFFD_FEATURE_POISON
            | UFFD_FEATURE_MOVE
            | UFFD_FEATURE_WP_ASYNC;
        assert_eq!((asked.features, asked.ioctls), (u64::from(all), 1 << 63 | 3));
        assert_eq!(process.uffdio_api(&mut fd, &mut asked), Err(Errno(EINVAL)), "once");
        assert_eq!(process.uffdio_wake(&fd, &pages(0, 4)), done(woken(0, 4)));
    });
}

#[test]
fn what_can_be_registered() {
    with(|process, _| {
        let fd = ready(process, 0);
        put(process, 0, 8, RW);
        put(process, 12, 4, PROT_READ);
        let range = 1 << _UFFDIO_WAKE
            | 1 << _UFFDIO_COPY
            | 1 << _UFFDIO_POISON
            | 1 << _UFFDIO_ZEROPAGE
            | 1 << _UFFDIO_MOVE;
        let with_writes = range | 1 << _UFFDIO_WRITEPROTECT;
        for mode in [0, UFFDIO_REGISTER_MODE_MINOR, 8] {
            assert_eq!(register(process, &fd, pages(0, 4), mode), Err(EINVAL), "{mode}");
        }
        let odd = |start, len| uffdio_range { start, len };
        for range in [
            odd(at(0) + 1, PAGE),
            odd(at(0), PAGE + 1),
            odd(at(0), 0),
            odd(0, PAGE),
            odd(SIZE, PAGE),
            odd(at(0), u64::MAX - 4095),
            pages(8, 4), // nothing is there
        ] {
            assert_eq!(register(process, &fd, range, MISSING), Err(EINVAL), "{range:?}");
            let unregistered = process.uffdio_unregister(&fd, &range);
            assert_eq!(unregistered, no(EINVAL), "{range:?}");
        }
        assert_eq!(register(process, &fd, pages(2, 12), MISSING), Ok(range), "over a hole");
        assert_eq!(
            areas(process),
            [(0, 2, RW), (2, 6, RW), (12, 2, PROT_READ), (14, 2, PROT_READ)]
        );
        assert_eq!(flags(process, 2), "VmFlags: rd wr mr mw me um ac sd ");
        assert_eq!(register(process, &fd, pages(0, 4), MISSING | WP), Ok(with_writes));
        assert_eq!(flags(process, 0), "VmFlags: rd wr mr mw me um uw ac sd ");
        // Less of it changes nothing.
        assert_eq!(register(process, &fd, pages(0, 4), WP), Ok(with_writes));
        assert_eq!(flags(process, 0), "VmFlags: rd wr mr mw me um uw ac sd ");
        assert_eq!(register(process, &fd, pages(4, 4), WP), Ok(with_writes), "in its place");
        assert_eq!(flags(process, 4), "VmFlags: rd wr mr mw me uw ac sd ");
        // Another descriptor.
        let other = ready(process, 0);
        assert_eq!(register(process, &other, pages(0, 1), MISSING), Err(EBUSY));
        assert_eq!(process.uffdio_unregister(&other, &pages(0, 1)), no(EINVAL));
        let all = pages(0, 16);
        assert_eq!(process.uffdio_unregister(&fd, &all), done(woken(0, 16)));
        assert_eq!(areas(process), [(0, 8, RW), (12, 4, PROT_READ)]);
        assert_eq!(register(process, &other, pages(0, 1), MISSING), Ok(range));
        process.close_userfaultfd(fd).unwrap();
        assert_eq!(flags(process, 0), "VmFlags: rd wr mr mw me um ac sd ", "not its own");
        process.close_userfaultfd(other).unwrap();
        assert_eq!(areas(process), [(0, 8, RW), (12, 4, PROT_READ)]);
        // Memory of files, but not of segments.
        let mut all = crate::Segments::default();
        let id = process.shmget(&mut all, 0, PAGE, crate::sysv::IPC_CREAT | 0o600).unwrap();
        assert_eq!(process.shmat(&mut all, id as i32, at(33), 0), Ok(at(33)));
        let shared = MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED;
        assert_eq!(process.mmap(at(32), PAGE, RW, shared, None, 0), Ok(at(32)));
        let fd = ready(process, 0);
        assert_eq!(register(process, &fd, pages(32, 2), MISSING), Err(EINVAL));
        assert_eq!(register(process, &fd, pages(32, 1), MISSING | WP), Ok(with_writes));
        assert_eq!(flags(process, 32), "VmFlags: rd wr sh mr mw me ms um uw sd ");
    });
}

/// A file's page is told where the file has none, and what the handler fills is the file's.
#[test]
fn missing_pages_of_a_file_are_told_and_filled_for_all() {
    with(|process, sim| {
        let file = F::memfd(process.manager(), b"f", 0).unwrap();
        assert_eq!(file.ftruncate(6 * PAGE as i64), Ok(0));
        show(process, (0, 8), (&file, 0), MAP_SHARED | MAP_FIXED);
        show(process, (16, 8), (&file, 0), MAP_PRIVATE | MAP_FIXED);
        assert_eq!(file.pwrite(&[5; 10], 2 * PAGE as i64), Ok(10));
        let fd = ready(process, 0);
        for first in [0, 16] {
            assert!(register(process, &fd, pages(first, 8), MISSING).is_ok());
            let told = Told { descriptor: fd.id(), address: at(first + 1), flags: 0 };
            assert_eq!(fault(process, at(first + 1) + 9, Access::Read), Fault::Told(told));
        }
        assert_eq!(load(process, sim, at(2)), Ok(5), "the file has it");
        let copied = (done(woken(1, 1)), PAGE as i64);
        assert_eq!(copy(process, &fd, pages(1, 1), 0), copied);
        let present = (no(EEXIST), -i64::from(EEXIST));
        assert_eq!([1, 2].map(|nth| copy(process, &fd, pages(nth, 1), 0)), [present; 2]);
        let beyond = (no(EFAULT), -i64::from(EFAULT));
        assert_eq!([6, 22].map(|nth| copy(process, &fd, pages(nth, 1), 0)), [beyond; 2]);
        assert_eq!(zeropage(process, &fd, pages(3, 2)), (done(woken(3, 2)), 2 * PAGE as i64));
        let mut bytes = [0; 2];
        assert_eq!(file.pread(&mut bytes, PAGE as i64), Ok(2));
        assert!(bytes[0] != 0 && file.has(3) && !file.has(5), "{bytes:?}");
        // A guard makes way where the file has no page.
        assert_eq!(process.madvise(at(1), PAGE, MADV_GUARD_INSTALL), Ok(0));
        assert_eq!(process.madvise(at(5), PAGE, MADV_GUARD_INSTALL), Ok(0));
        assert_eq!(copy(process, &fd, pages(1, 1), 0), present);
        assert!(process.is_guarded(at(1)));
        assert_eq!(zeropage(process, &fd, pages(5, 1)).1, PAGE as i64);
        assert_eq!(load(process, sim, at(5)), Ok(0));
        // Privately it is the program's own, where nothing came around a read that was told.
        assert_eq!(copy(process, &fd, pages(18, 1), 0), present);
        assert_eq!(process.madvise(at(18), PAGE, MADV_DONTNEED), Ok(0));
        assert_eq!(copy(process, &fd, pages(18, 1), 0).1, PAGE as i64);
        assert_eq!(file.pread(&mut bytes, 2 * PAGE as i64), Ok(2));
        assert_eq!(bytes, [5; 2]);
    });
}

/// What a file has is told and let in, where that was asked for; the answers are Linux 6.18's.
#[test]
fn pages_that_a_file_has_are_told_and_let_in() {
    with(|process, sim| {
        let file = F::memfd(process.manager(), b"f", 0).unwrap();
        assert_eq!(file.ftruncate(4 * PAGE as i64), Ok(0));
        show(process, (0, 8), (&file, 0), MAP_SHARED | MAP_FIXED);
        assert_eq!(file.pwrite(&[5; 3 * PAGE as usize], 0), Ok(3 * PAGE));
        put(process, 16, 4, RW);
        let fd = ready(process, UFFD_FEATURE_MINOR_SHMEM);
        const MINOR: u32 = UFFDIO_REGISTER_MODE_MINOR;
        assert_eq!(register(process, &fd, pages(16, 4), MINOR), Err(EINVAL));
        let asked = register(process, &fd, pages(0, 8), MINOR).unwrap();
        assert_eq!(asked & 1 << _UFFDIO_CONTINUE, 1 << _UFFDIO_CONTINUE);
        assert_eq!(flags(process, 0), "VmFlags: rd wr sh mr mw me ms sd ui ");
        let told = |nth, flags: u32| {
            Fault::Told(Told { descriptor: fd.id(), address: at(nth), flags: u64::from(flags) })
        };
        let minor = UFFD_PAGEFAULT_FLAG_MINOR;
        assert_eq!(fault(process, at(1) + 9, Access::Read), told(1, minor));
        let write = minor | UFFD_PAGEFAULT_FLAG_WRITE;
        assert_eq!(fault(process, at(1) + 9, Access::Write), told(1, write));
        let let_in = |process: &mut P<'_, '_>, range: uffdio_range, mode| {
            let mut asked = uffdio_continue { range, mode, mapped: 77 };
            (process.uffdio_continue(&fd, &mut asked), asked.mapped)
        };
        assert_eq!(let_in(process, pages(1, 1), 0), (done(woken(1, 1)), PAGE as i64));
        assert_eq!(let_in(process, pages(1, 1), 1), (no(EEXIST), -i64::from(EEXIST)));
        assert_eq!(load(process, sim, at(1)), Ok(5));
        assert_eq!(let_in(process, pages(0, 1), 1), (done(None), PAGE as i64));
        let some = Answer { result: Err(Errno(EAGAIN)), wakes: woken(2, 1) };
        assert_eq!(let_in(process, pages(2, 2), 0), (some, PAGE as i64));
        for (nth, mode, why) in [(3, 0, EFAULT), (4, 0, EINVAL), (0, 2, EINVAL), (17, 0, ENOENT)] {
            let got = let_in(process, pages(nth, 1), mode);
            assert_eq!(got, (no(why), -i64::from(why)), "page {nth}");
        }
        assert_eq!(let_in(process, pages(0, 1), 4), (no(EINVAL), 77));
        // A guard makes way where the file has a page.
        assert_eq!(process.madvise(at(1), 3 * PAGE, MADV_GUARD_INSTALL), Ok(0));
        assert_eq!(let_in(process, pages(1, 1), 0), (done(woken(1, 1)), PAGE as i64));
        assert_eq!(load(process, sim, at(1)), Ok(5));
        assert_eq!(let_in(process, pages(3, 1), 0), (no(EFAULT), -i64::from(EFAULT)));
        assert!(process.is_guarded(at(2)) && process.is_guarded(at(3)));
        assert_eq!(process.madvise(at(1), 3 * PAGE, MADV_GUARD_REMOVE), Ok(0));
        assert_eq!(let_in(process, pages(0, 0), 0), (no(EINVAL), 77));
        // What was allocated is there for the program to let in.
        assert_eq!(file.fallocate(0, 3 * PAGE as i64, PAGE as i64), Ok(0));
        assert_eq!(fault(process, at(3), Access::Write), told(3, write));
        assert_eq!(let_in(process, pages(3, 1), 0), (done(woken(3, 1)), PAGE as i64));
        let punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
        assert_eq!(file.fallocate(punch, 3 * PAGE as i64, PAGE as i64), Ok(0));
        // What is made anew is nobody's to let in.
        assert_eq!(fault(process, at(3), Access::Write), Fault::Done);
        register(process, &fd, pages(16, 4), MISSING).unwrap();
        assert_eq!(let_in(process, pages(16, 1), 0), (no(EINVAL), -i64::from(EINVAL)));
        process.close_userfaultfd(fd).unwrap();
        assert_eq!(flags(process, 0), "VmFlags: rd wr sh mr mw me ms sd ");
    });
}

/// Writes to a file's pages are told, also to those that come back.
#[test]
fn writes_to_a_file_are_told_whatever_it_loses() {
    with(|process, sim| {
        let file = F::memfd(process.manager(), b"f", 0).unwrap();
        assert_eq!(file.ftruncate(8 * PAGE as i64), Ok(0));
        show(process, (0, 8), (&file, 0), MAP_SHARED | MAP_FIXED);
        let fd = ready(process, UFFD_FEATURE_PAGEFAULT_FLAG_WP);
        assert!(register(process, &fd, pages(0, 8), WP).is_ok());
        assert_eq!(store(process, sim, at(1), 7), Ok(()));
        assert_eq!(protect(process, &fd, pages(0, 4), 1), done(None));
        let flags = u64::from(UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP);
        for nth in [1, 2] {
            let told = Fault::Told(Told { descriptor: fd.id(), address: at(nth), flags });
            assert_eq!(fault(process, at(nth), Access::Write), told);
            assert_eq!(process.madvise(at(nth), PAGE, MADV_DONTNEED), Ok(0));
            assert_eq!(fault(process, at(nth), Access::Write), told);
            assert_eq!(process.madvise(at(nth), PAGE, MADV_REMOVE), Ok(0));
            assert_eq!(load(process, sim, at(nth)), Ok(0));
            assert_eq!(fault(process, at(nth), Access::Write), told);
        }
        assert_eq!(store(process, sim, at(4), 7), Ok(()), "not protected");
        assert_eq!(protect(process, &fd, pages(0, 4), 0), done(woken(0, 4)));
        assert_eq!([1, 2].map(|nth| store(process, sim, at(nth), 7)), [Ok(()); 2]);
    });
}

#[test]
fn a_missing_page_is_told_and_filled() {
    with(|process, sim| {
        let fd = ready(process, UFFD_FEATURE_EXACT_ADDRESS);
        put(process, 0, 16, RW);
        register(process, &fd, pages(0, 16), MISSING).unwrap();
        let told = |address, flags| {
            Fault::Told(Told { descriptor: fd.id(), address, flags: u64::from(flags) })
        };
        assert_eq!(fault(process, at(1) + 9, Access::Read), told(at(1) + 9, 0));
        let write = UFFD_PAGEFAULT_FLAG_WRITE;
        assert_eq!(fault(process, at(1), Access::Write), told(at(1), write));
        let Fault::Told(message) = told(at(1), write) else { unreachable!() };
        assert_eq!(u32::from(message.message().event), UFFD_EVENT_PAGEFAULT);
        let page = PAGE as i64;
        assert_eq!(copy(process, &fd, pages(1, 2), 0), (done(woken(1, 2)), 2 * page));
        assert_eq!(sim.user_load(Va::new(at(2)), 1), Ok(2));
        assert_eq!(store(process, sim, at(1), 5), Ok(()));
        let exists = -(EEXIST as i64);
        assert_eq!(copy(process, &fd, pages(1, 2), 0), (no(EEXIST), exists));
        let partly = |count| Answer { result: Err(Errno(EAGAIN)), wakes: woken(0, count) };
        assert_eq!(copy(process, &fd, pages(0, 2), 0), (partly(1), page));
        assert_eq!(zeropage(process, &fd, pages(3, 2)), (done(woken(3, 2)), 2 * page));
        assert_eq!(zeropage(process, &fd, pages(4, 2)), (no(EEXIST), exists));
        assert_eq!(sim.user_load(Va::new(at(3)), 1), Ok(0));
        // What cannot be read, and what is done before that.
        for (src, answer, bytes) in [
            (SOURCE, EFAULT, -(EFAULT as i64)),
            (SIZE - PAGE, EFAULT, -(EFAULT as i64)),
            (SIZE - PAGE + 1, EINVAL, 7),
            (u64::MAX - 9, EINVAL, 7),
            (PAGE, EINVAL, 7),
        ] {
            let mut asked = uffdio_copy { dst: at(5), src, len: PAGE, mode: 0, copy: 7 };
            let got = process.uffdio_copy(&fd, &mut asked, |_, _| Err(Errno::FAULT));
            assert_eq!((got, asked.copy), (no(answer), bytes), "{src:#x}");
        }
        let (answer, bytes) = copy(process, &fd, pages(5, 11), 0);
        assert_eq!(
            (answer.result, answer.wakes, bytes),
            (Err(Errno(EAGAIN)), woken(5, 9), 9 * page)
        );
        // Arguments that make no sense leave the answer in the structure alone.
        assert_eq!(copy(process, &fd, pages(15, 0), 0), (no(EINVAL), 77));
        assert_eq!(copy(process, &fd, pages(15, 1), 4), (no(EINVAL), 77));
        let odd = uffdio_range { start: at(15) + 8, len: PAGE };
        assert_eq!(copy(process, &fd, odd, 0), (no(EINVAL), 77));
        assert_eq!(zeropage(process, &fd, odd), (no(EINVAL), 77));
        assert_eq!(
            copy(process, &fd, pages(15, 1), UFFDIO_COPY_MODE_WP),
            (no(EINVAL), -(EINVAL as i64))
        );
        let mut quiet = uffdio_zeropage { range: pages(15, 1), mode: 1, zeropage: 0 };
        assert_eq!(process.uffdio_zeropage(&fd, &mut quiet), done(None));
        // A guard is a missing page to a copy, and to nothing else.
        process.madvise(at(5), 2 * PAGE, MADV_GUARD_INSTALL).unwrap();
        assert_eq!(zeropage(process, &fd, pages(5, 1)), (no(EEXIST), exists));
        assert_eq!(copy(process, &fd, pages(5, 1), 0), (done(woken(5, 1)), page));
        assert_eq!(sim.user_load(Va::new(at(5)), 1), Ok(1));
        assert!(matches!(fault(process, at(6), Access::Read), Fault::Signal(_)));
        // What is not registered, or not all of it.
        let nowhere = -(ENOENT as i64);
        assert_eq!(copy(process, &fd, pages(15, 2), 0), (no(ENOENT), nowhere));
        put(process, 16, 2, RW);
        assert_eq!(copy(process, &fd, pages(15, 2), 0), (no(ENOENT), nowhere));
        assert_eq!(zeropage(process, &fd, pages(16, 1)), (no(ENOENT), nowhere));
        assert_eq!(zeropage(process, &fd, pages(40, 1)), (no(ENOENT), nowhere));
    });
}

#[test]
fn a_write_to_a_protected_page_is_told() {
    with(|process, sim| {
        let fd = ready(process, UFFD_FEATURE_WP_UNPOPULATED);
        put(process, 0, 8, RW);
        assert_eq!(store(process, sim, at(1), 5), Ok(()));
        assert_eq!(protect(process, &fd, pages(0, 4), 1), no(ENOENT), "not registered");
        register(process, &fd, pages(0, 4), WP).unwrap();
        assert_eq!(protect(process, &fd, pages(0, 4), 1), done(None));
        assert_eq!(protect(process, &fd, pages(0, 8), 1), no(ENOENT), "partly");
        assert_eq!(protect(process, &fd, pages(40, 1), 1), no(ENOENT));
        for (range, mode) in [(pages(0, 4), 3), (pages(0, 4), 4), (pages(0, 0), 1)] {
            assert_eq!(protect(process, &fd, range, mode), no(EINVAL));
        }
        let both = u64::from(UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP);
        let told = |address| Fault::Told(Told { descriptor: fd.id(), address, flags: both });
        assert_eq!(fault(process, at(1) + 9, Access::Write), told(at(1)), "the page's address");
        assert_eq!(fault(process, at(2), Access::Write), told(at(2)), "missing, and protected");
        let mut words = [0; 4];
        process.pagemap(at(0) / PAGE * 8, &mut words, crate::Frames::Hidden).unwrap();
        let protected = |word: &u64| word >> 57 & 1 == 1;
        assert!(words.iter().all(protected), "{words:x?}");
        assert_eq!(words.map(|word| (word >> 62) & 3), [1, 2, 1, 1], "markers are no pages");
        // A child has none of it, and its vmas are those of its parent.
        let mut child = process.fork().unwrap();
        assert_eq!(areas(&child), [(0, 4, RW), (4, 4, RW)]);
        assert_eq!(fault(&mut child, at(1), Access::Write), Fault::Done);
        assert_eq!(fault(&mut child, at(2), Access::Write), Fault::Done);
        child.end().unwrap();
        assert_eq!(protect(process, &fd, pages(1, 1), 2), done(None), "nobody is woken");
        assert_eq!(store(process, sim, at(1), 6), Ok(()));
        assert_eq!(protect(process, &fd, pages(2, 1), 0), done(woken(2, 1)));
        assert_eq!(store(process, sim, at(2), 6), Ok(()));
        assert_eq!(copy(process, &fd, pages(3, 1), UFFDIO_COPY_MODE_WP).0, done(woken(3, 1)));
        assert_eq!(fault(process, at(3), Access::Write), told(at(3)));
        // Memory that is moved is not registered any more.
        let moved =
            process.mremap(at(0), 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at(64));
        assert_eq!(moved, Ok(at(64)));
        assert_eq!(flags(process, 64), "VmFlags: rd wr mr mw me ac sd ");
        assert_eq!(store(process, sim, at(67), 9), Ok(()));
    });
}

#[test]
fn a_signal_takes_the_place_of_a_message() {
    with(|process, sim| {
        let fd = ready(process, UFFD_FEATURE_SIGBUS);
        put(process, 0, 4, RW);
        register(process, &fd, pages(0, 4), MISSING | WP).unwrap();
        let bus = |addr| Signal { number: SIGBUS, code: BUS_ADRERR, addr, lsb: 0 };
        assert_eq!(store(process, sim, at(1) + 7, 5), Err(bus(at(1) + 7)));
        assert_eq!(copy(process, &fd, pages(1, 1), UFFDIO_COPY_MODE_WP).0, done(woken(1, 1)));
        assert_eq!(store(process, sim, at(1), 5), Err(bus(at(1))));
        // Without the feature, pages that are missing are not protected.
        assert_eq!(protect(process, &fd, pages(0, 4), 1), done(None));
        assert_eq!(zeropage(process, &fd, pages(2, 1)).0, done(woken(2, 1)));
        process.uffdio_unregister(&fd, &pages(0, 4));
        assert_eq!(store(process, sim, at(1), 5), Ok(()));
        assert_eq!(store(process, sim, at(3), 5), Ok(()));
    });
}

#[test]
fn what_may_never_be_written_is_not_registered() {
    with(|process, _| {
        let fd = ready(process, 0);
        put(process, 0, 2, RW);
        let mm = process.manager();
        let request = foliant::space::MapRequest {
            place: foliant::space::Place::Fixed(Va::new(at(4))),
            bytes: Bytes::new(PAGE),
            flags: foliant::space::Flags::READ.at_most(foliant::space::Flags::READ),
            tag: 0,
        };
        mm.map(process.space(), &request).unwrap();
        assert_eq!(register(process, &fd, pages(4, 1), MISSING), Err(EPERM));
        assert_eq!(register(process, &fd, pages(0, 8), MISSING), Err(EPERM));
        assert_eq!(areas(process)[0], (0, 2, RW), "nothing is registered");
        assert_eq!(flags(process, 0), "VmFlags: rd wr mr mw me ac sd ");
    });
}

#[test]
fn an_armed_vma_moves_alone_and_a_child_has_it_apart() {
    with(|p, sim| {
        put(p, 0, 8, RW);
        assert_eq!(store(p, sim, at(7), 5), Ok(()), "so all is of one family");
        let fd = ready(p, UFFD_FEATURE_SIGBUS);
        register(p, &fd, pages(2, 2), MISSING).unwrap();
        let fixed = MREMAP_MAYMOVE | MREMAP_FIXED;
        let mut to = |from: u64, count: u64| {
            p.mremap(at(from), count * PAGE, count * PAGE, fixed, at(from + 20))
        };
        assert_eq!(to(2, 3), Err(Errno(EFAULT)), "with what follows");
        assert_eq!(to(1, 3), Err(Errno(EFAULT)), "with what is before");
        assert_eq!(areas(p)[..2], [(0, 1, RW), (2, 2, RW)], "which has moved by then");
        assert_eq!(p.mremap(at(21), PAGE, PAGE, fixed, at(1)), Ok(at(1)));
        // What was armed is no more where it moved to, and does not become one with what is there.
        put(p, 30, 2, RW);
        assert_eq!(store(p, sim, at(30), 5), Ok(()));
        assert_eq!(p.mremap(at(2), PAGE, PAGE, fixed, at(32)), Ok(at(32)));
        assert_eq!(areas(p)[3..], [(30, 2, RW), (32, 1, RW)]);
        assert!(!flags(p, 32).contains("um"));
        assert_eq!(p.munmap(at(30), 3 * PAGE), Ok(0));
        put(p, 2, 1, RW);
        register(p, &fd, pages(2, 1), MISSING).unwrap();
        // Beside what is armed it becomes one with that, and nothing of it is armed any more.
        put(p, 40, 6, PROT_READ);
        register(p, &fd, pages(40, 6), MISSING).unwrap();
        assert_eq!(p.mremap(at(45), PAGE, PAGE, fixed, at(42)), Ok(at(42)));
        assert_eq!(areas(p)[3..], [(40, 5, PROT_READ)]);
        assert!(!flags(p, 40).contains("um"));
        assert_eq!(p.munmap(at(40), 5 * PAGE), Ok(0));
        // Nor does that become one with what lies behind and was never armed.
        put(p, 40, 10, PROT_READ);
        register(p, &fd, pages(40, 6), MISSING).unwrap();
        assert_eq!(p.mremap(at(41), PAGE, PAGE, fixed, at(43)), Ok(at(43)));
        let read = PROT_READ;
        assert_eq!(areas(p)[3..], [(40, 1, read), (42, 4, read), (46, 4, read)]);
        assert_eq!([40, 42].map(|nth| flags(p, nth).contains("um")), [true, false]);
        assert_eq!(p.munmap(at(40), 10 * PAGE), Ok(0));
        // In a child nothing is armed, and its parts are of a family each: they do not become one.
        let mut child = p.fork().unwrap();
        assert_eq!(areas(&child), [(0, 2, RW), (2, 2, RW), (4, 4, RW)]);
        assert_eq!(child.madvise(at(3), 3 * PAGE, MADV_SEQUENTIAL), Ok(0));
        let parts = [(0, 2, RW), (2, 1, RW), (3, 1, RW), (4, 2, RW), (6, 2, RW)];
        assert_eq!(areas(&child), parts);
        child.end().unwrap();
    });
}

/// Huge pages are told, filled and refused as wholes; the answers are Linux 6.18's.
#[test]
fn huge_pages_of_a_pool_are_filled_as_wholes() {
    with(|process, sim| {
        let pool = "hugepages/hugepages-2048kB/nr_hugepages";
        sys::write(process.manager(), pool, "4\n").unwrap();
        let at = |nth: u64| BASE + nth * HUGE;
        let whole = |nth, count| uffdio_range { start: at(nth), len: count * HUGE };
        let wakes = |nth, count| VaRange::sized(Va::new(at(nth)), Bytes::new(count * HUGE));
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_HUGETLB;
        assert_eq!(process.mmap(at(0), 4 * HUGE, RW, flags, None, 0), Ok(at(0)));
        let fd = ready(process, 0);
        let asked = 1 << _UFFDIO_WAKE | 1 << _UFFDIO_COPY | 1 << _UFFDIO_POISON;
        let before = (at(0) - PAGE, 4 * HUGE + PAGE); // nothing is there, and yet it counts
        for (start, len) in [(at(0) + PAGE, HUGE - PAGE), (at(0), HUGE + PAGE), before] {
            let part = uffdio_range { start, len };
            assert_eq!(register(process, &fd, part, MISSING), Err(EINVAL), "{start:x}");
            assert_eq!(process.uffdio_unregister(&fd, &part), no(EINVAL));
        }
        assert_eq!(register(process, &fd, whole(0, 3), MISSING), Ok(asked), "no zeros");
        let told = |nth, flags| Fault::Told(Told { descriptor: fd.id(), address: at(nth), flags });
        let deep = at(1) + 5 * PAGE + 3;
        assert_eq!(fault(process, deep, Access::Read), told(1, 0));
        let write = u64::from(UFFD_PAGEFAULT_FLAG_WRITE);
        assert_eq!(fault(process, deep, Access::Write), told(1, write));
        assert_eq!(fault(process, at(3), Access::Write), Fault::Done, "it is not armed");
        // Of a source with a hole nothing comes of the page that it lies in.
        let copied = |process: &mut P<'_, '_>, range: uffdio_range, pages: u64, mode: u32| {
            let (dst, len, mode) = (range.start, range.len, u64::from(mode));
            let mut asked = uffdio_copy { dst, src: SOURCE, len, mode, copy: 77 };
            let read = |from: u64, page: &mut [u8]| {
                let nth = (from - SOURCE) / PAGE;
                page.fill(nth as u8);
                if nth < pages { Ok(()) } else { Err(Errno::FAULT) }
            };
            (process.uffdio_copy(&fd, &mut asked, read), asked.copy)
        };
        let fault_word = Errno(EFAULT).word() as i64;
        assert_eq!(copied(process, whole(0, 2), 511, 0), (no(EFAULT), fault_word));
        let some = Answer { result: Err(Errno(EAGAIN)), wakes: wakes(0, 1) };
        assert_eq!(copied(process, whole(0, 2), 1023, 0), (some, HUGE as i64));
        assert_eq!(load(process, sim, at(0) + 300 * PAGE), Ok(44));
        assert_eq!(copied(process, whole(1, 1), 512, 0), (done(wakes(1, 1)), HUGE as i64));
        assert_eq!(load(process, sim, deep - 3), Ok(5));
        assert_eq!(copied(process, whole(1, 1), 512, 0).0, no(EEXIST));
        for (start, len, mode, why) in [
            (at(2), PAGE, 0, EINVAL),
            (at(2) + PAGE, HUGE - PAGE, 0, EINVAL),
            (at(2), HUGE, UFFDIO_COPY_MODE_WP, EINVAL),
            (at(2), 2 * HUGE, 0, ENOENT),
            (at(3), HUGE, 0, ENOENT),
        ] {
            let got = copied(process, uffdio_range { start, len }, 1024, mode);
            assert_eq!(got, (no(why), Errno(why).word() as i64), "{start:x} {len:x} {mode}");
        }
        assert_eq!(zeropage(process, &fd, whole(2, 1)).0, no(EINVAL));
        assert_eq!(protect(process, &fd, whole(2, 1), 1), no(ENOENT));
        // Writes are told of whole pages too, also of what is missing.
        let protects = asked | 1 << _UFFDIO_WRITEPROTECT;
        assert_eq!(register(process, &fd, whole(0, 3), MISSING | WP), Ok(protects));
        for part in [(at(0) + PAGE, HUGE), (at(0), HUGE + PAGE), (at(0) - PAGE, HUGE + PAGE)] {
            let (start, len) = part;
            assert_eq!(protect(process, &fd, uffdio_range { start, len }, 1), no(EINVAL));
        }
        assert_eq!(protect(process, &fd, whole(1, 2), 1), done(None));
        let writes = write | u64::from(UFFD_PAGEFAULT_FLAG_WP);
        assert_eq!(fault(process, deep, Access::Write), told(1, writes));
        assert_eq!(fault(process, at(2), Access::Write), told(2, write), "it is missing as well");
        assert_eq!(protect(process, &fd, whole(1, 1), 0), done(wakes(1, 1)));
        assert_eq!(fault(process, deep, Access::Write), Fault::Done);
        let watched = copied(process, whole(2, 1), 512, UFFDIO_COPY_MODE_WP);
        assert_eq!(watched, (done(wakes(2, 1)), HUGE as i64));
        assert_eq!(fault(process, at(2), Access::Write), told(2, writes));
        // Nothing is left for it.
        sys::write(process.manager(), pool, "1\n").unwrap();
        assert_eq!(process.uffdio_unregister(&fd, &whole(0, 3)), done(wakes(0, 3)));
        assert_eq!(fault(process, at(2), Access::Write), Fault::Done);
    });
}

/// What is poisoned is broken memory to the program, by as many bytes as a page has.
#[test]
fn poison_is_broken_memory() {
    with(|process, sim| {
        sys::write(process.manager(), "hugepages/hugepages-2048kB/nr_hugepages", "2\n").unwrap();
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_HUGETLB;
        let pool = BASE + 4 * HUGE;
        assert_eq!(process.mmap(pool, 2 * HUGE, RW, flags, None, 0), Ok(pool));
        let fd = ready(process, 0);
        put(process, 0, 4, RW);
        register(process, &fd, pages(0, 4), MISSING).unwrap();
        register(process, &fd, uffdio_range { start: pool, len: HUGE }, MISSING).unwrap();
        let poison = |process: &mut P<'_, '_>, range: uffdio_range, mode| {
            let mut asked = uffdio_poison { range, mode, updated: 77 };
            (process.uffdio_poison(&fd, &mut asked), asked.updated)
        };
        let signal =
            |addr, lsb| Fault::Signal(Signal { number: SIGBUS, code: BUS_MCEERR_AR, addr, lsb });
        assert_eq!(poison(process, pages(0, 2), 2), (no(EINVAL), 77));
        assert_eq!(poison(process, pages(0, 2), 0), (done(woken(0, 2)), 2 * PAGE as i64));
        assert_eq!(poison(process, pages(2, 1), 1), (done(None), PAGE as i64), "nobody goes on");
        let some = Answer { result: Err(Errno(EEXIST)), wakes: None };
        assert_eq!(poison(process, pages(1, 3), 0), (some, Errno(EEXIST).word() as i64));
        assert_eq!(fault(process, at(1) + 9, Access::Read), signal(at(1) + 9, 12));
        let huge = |bytes| uffdio_range { start: pool, len: bytes };
        assert_eq!(poison(process, huge(PAGE), 0).0, no(EINVAL));
        assert_eq!(poison(process, huge(2 * HUGE), 0).0, no(ENOENT));
        assert_eq!(poison(process, huge(HUGE), 0).1, HUGE as i64);
        let deep = pool + 5 * PAGE + 1;
        assert_eq!(fault(process, deep, Access::Write), signal(deep, 21));
        // What may be dropped is.
        assert_eq!(process.madvise(at(1), PAGE, MADV_FREE), Ok(0));
        assert!(matches!(fault(process, at(1), Access::Read), Fault::Told(_)), "it is missing");
        // Advice says so, and locking says that something is missing.
        assert_eq!(process.madvise(at(0), PAGE, MADV_POPULATE_READ), Err(Errno(EHWPOISON)));
        assert_eq!(process.mlock(at(0), PAGE), Err(Errno::NOMEM));
        assert_eq!(copy(process, &fd, pages(0, 1), 0).0, done(woken(0, 1)));
        assert!(load(process, sim, at(0)).is_ok());
    });
}

/// Pages go to where they are missing; the answers are Linux 6.18's.
#[test]
fn pages_are_moved_to_where_they_are_missing() {
    with(|process, sim| {
        put(process, 0, 8, RW);
        put(process, 16, 8, RW);
        let fd = ready(process, 0);
        register(process, &fd, pages(16, 8), MISSING).unwrap();
        let go = |process: &mut P<'_, '_>, from, to, count, mode| {
            let (dst, src, len) = (at(to), at(from), count * PAGE);
            let mut asked = uffdio_move { dst, src, len, mode, move_: 77 };
            (process.uffdio_move(&fd, &mut asked), asked.move_)
        };
        let refused = |why| (no(why), -i64::from(why));
        for nth in 0..4 {
            assert_eq!(store(process, sim, at(nth), nth as u8 + 1), Ok(()));
        }
        assert_eq!(go(process, 0, 16, 1, 4), (no(EINVAL), 77));
        assert_eq!(go(process, 0, 16, 0, 0), (no(EINVAL), 77));
        assert_eq!(go(process, 40, 16, 1, 0), refused(ENOENT));
        assert_eq!(go(process, 0, 40, 1, 0), refused(ENOENT));
        assert_eq!(go(process, 7, 16, 2, 2), refused(EINVAL), "one vma");
        assert_eq!(go(process, 0, 2, 1, 0), refused(EINVAL), "not armed");
        let whole = |to, count, mode| {
            (done(if mode & 1 == 0 { woken(to, count) } else { None }), (count * PAGE) as i64)
        };
        assert_eq!(go(process, 0, 16, 1, 0), whole(16, 1, 0));
        assert_eq!(go(process, 0, 16, 1, 0), refused(EEXIST));
        assert_eq!(go(process, 0, 17, 1, 0), refused(ENOENT));
        assert_eq!(go(process, 0, 17, 2, 3), whole(17, 2, 3), "a hole is left out");
        let some = Answer { result: Err(Errno(EAGAIN)), wakes: woken(20, 2) };
        assert_eq!(go(process, 2, 20, 3, 0), (some, 2 * PAGE as i64));
        for (nth, byte) in [(16, 1), (18, 2), (20, 3), (21, 4)] {
            assert_eq!(load(process, sim, at(nth)), Ok(byte));
        }
        assert!(matches!(fault(process, at(17), Access::Read), Fault::Told(_)), "it is missing");
        // Both are alike, and nobody else has them.
        assert_eq!(store(process, sim, at(0), 9), Ok(()));
        assert_eq!(process.mprotect(at(0), PAGE, PROT_READ), Ok(0));
        assert_eq!(go(process, 0, 22, 1, 0), refused(EINVAL));
        assert_eq!(process.mprotect(at(0), PAGE, RW), Ok(0));
        assert_eq!(process.mlock(at(0), PAGE), Ok(0));
        assert_eq!(go(process, 0, 22, 1, 0), refused(EINVAL));
        assert_eq!(process.munlock(at(0), PAGE), Ok(0));
        let child = process.fork().unwrap();
        assert_eq!(go(process, 0, 22, 1, 0), refused(EBUSY));
        assert_eq!(store(process, sim, at(0), 8), Ok(()));
        assert_eq!(go(process, 0, 22, 1, 0), whole(22, 1, 0));
        child.end().unwrap();
        assert_eq!(process.madvise(at(1), PAGE, MADV_GUARD_INSTALL), Ok(0));
        assert_eq!(go(process, 1, 23, 1, 2), refused(EFAULT));
        // Of files nothing goes, and to another's memory neither.
        let file = F::memfd(process.manager(), b"f", 0).unwrap();
        assert_eq!(file.ftruncate(4 * PAGE as i64), Ok(0));
        show(process, (30, 2), (&file, 0), MAP_SHARED | MAP_FIXED);
        show(process, (34, 2), (&file, 0), MAP_PRIVATE | MAP_FIXED);
        for from in [30, 34] {
            assert_eq!(go(process, from, 23, 1, 2), refused(EINVAL));
        }
        let other = ready(process, 0);
        let mut asked = uffdio_move { dst: at(23), src: at(2), len: PAGE, mode: 2, move_: 77 };
        assert_eq!(process.uffdio_move(&other, &mut asked), no(EINVAL));
    });
}

/// What is watched is so at another place and in a child where the handler is told of these, and
/// nowhere else.
#[test]
fn a_watch_goes_with_what_is_told() {
    let events = UFFD_FEATURE_EVENT_FORK | UFFD_FEATURE_EVENT_REMAP;
    for features in [0, events] {
        with(|process, sim| {
            put(process, 0, 16, RW);
            for nth in [2, 3, 5] {
                store(process, sim, at(nth), 7).unwrap();
            }
            let fd = ready(process, features | UFFD_FEATURE_WP_UNPOPULATED);
            register(process, &fd, pages(0, 16), WP).unwrap();
            for (nth, count) in [(2, 3), (8, 1)] {
                assert_eq!(protect(process, &fd, pages(nth, count), 1), done(None));
            }
            let is_told = |process: &mut P<'_, '_>, nth| {
                matches!(fault(process, at(nth), Access::Write), Fault::Told(_))
            };
            let all = [2, 3, 4, 5, 8, 9];
            let watched = [true, true, true, false, true, false];
            let mut child = process.fork().unwrap();
            process.manager().switch(Some(child.space())).unwrap();
            let got = all.map(|nth| is_told(&mut child, nth));
            assert_eq!(got, watched.map(|is| is && features != 0));
            process.manager().switch(Some(process.space())).unwrap();
            child.end().unwrap();
            let moves = MREMAP_MAYMOVE | MREMAP_FIXED;
            let moved = process.mremap(at(0), 16 * PAGE, 16 * PAGE, moves, at(40));
            assert_eq!(moved, Ok(at(40)));
            let got = all.map(|nth| is_told(process, 40 + nth));
            assert_eq!(got, watched.map(|is| is && features != 0));
            process.take_changes();
            process.close_userfaultfd(fd).unwrap();
        });
    }
}

/// Changes as messages, with the descriptor that is told.
fn changed(process: &mut P<'_, '_>) -> Vec<(u64, [u64; 4])> {
    let changes = process.take_changes().into_iter();
    changes.map(|(descriptor, change)| (descriptor, change.message(9))).collect()
}

#[test]
fn changes_are_told_to_whoever_asked_for_them() {
    use crate::Change;
    const FORK: u64 = UFFD_EVENT_FORK as u64;
    const REMAP: u64 = UFFD_EVENT_REMAP as u64;
    const REMOVE: u64 = UFFD_EVENT_REMOVE as u64;
    const UNMAP: u64 = UFFD_EVENT_UNMAP as u64;
    let all = UFFD_FEATURE_EVENT_FORK
        | UFFD_FEATURE_EVENT_REMAP
        | UFFD_FEATURE_EVENT_REMOVE
        | UFFD_FEATURE_EVENT_UNMAP;
    let moves = MREMAP_MAYMOVE | MREMAP_FIXED;
    with(|process, _| {
        put(process, 0, 16, RW);
        let fd = ready(process, all);
        register(process, &fd, pages(4, 4), MISSING | WP).unwrap();
        let dropped = |process: &P<'_, '_>, from, count, advice| {
            let dropped = process.dropped_by(at(from), count * PAGE, advice);
            let told = dropped.iter().map(|(id, change)| (*id, change.message(0)));
            told.collect::<Vec<_>>()
        };
        let id = fd.id();
        let one = |kind, from: u64, to: u64| (id, [kind, at(from), at(to), 0]);
        for advice in [MADV_DONTNEED, MADV_DONTNEED_LOCKED, MADV_FREE, MADV_REMOVE] {
            assert_eq!(dropped(process, 2, 4, advice), [one(REMOVE, 4, 6)]);
        }
        assert_eq!(dropped(process, 2, 4, MADV_COLD), []);
        assert_eq!(dropped(process, 0, 4, MADV_DONTNEED), []);
        // What is not armed is nobody's, and neither is what was refused.
        process.munmap(at(0), PAGE).unwrap();
        assert_eq!(process.mmap(at(4) + 1, PAGE, RW, FIXED, None, 0), Err(Errno(EINVAL)));
        assert_eq!(process.munmap(at(4) + 1, PAGE), Err(Errno(EINVAL)));
        assert_eq!(changed(process), []);
        process.munmap(at(1), 4 * PAGE).unwrap();
        assert_eq!(changed(process), [one(UNMAP, 1, 5)]);
        put(process, 5, 1, RW);
        assert_eq!(changed(process), [one(UNMAP, 5, 6)]);
        // It stays armed for what it was.
        assert_eq!(process.mremap(at(6), 2 * PAGE, PAGE, moves, at(20)), Ok(at(20)));
        let moved = (id, [REMAP, at(6), at(20), PAGE]);
        assert_eq!(changed(process), [one(UNMAP, 7, 8), moved, one(UNMAP, 6, 7)]);
        assert_eq!(flags(process, 20), "VmFlags: rd wr mr mw me um uw ac sd ");
        let told = Told { descriptor: id, address: at(20), flags: 0 };
        assert_eq!(fault(process, at(20), Access::Read), Fault::Told(told));
        // A child has a descriptor of its own, which is closed as any is.
        let child = process.fork().unwrap();
        let Some((told, Change::Fork(own))) = process.take_changes().pop() else {
            panic!("it is told")
        };
        assert_eq!(told, id);
        assert_eq!(Change::Fork(own).message(9), [FORK, 9, 0, 0]);
        child.end().unwrap();
        let mut child = process.fork().unwrap();
        let Some((_, Change::Fork(own))) = process.take_changes().pop() else {
            panic!("it is told")
        };
        assert_eq!(flags(&child, 20), "VmFlags: rd wr mr mw me um uw ac sd ");
        let told = Told { descriptor: own.id(), address: at(20), flags: 0 };
        assert_eq!(fault(&mut child, at(20), Access::Read), Fault::Told(told));
        let (answer, copied) = copy(&mut child, &own, pages(20, 1), 0);
        assert_eq!((answer.result, copied), (Ok(0), PAGE as i64));
        child.close_userfaultfd(own).unwrap();
        assert_eq!(flags(&child, 20), "VmFlags: rd wr mr mw me ac sd ");
        child.end().unwrap();
        process.manager().switch(Some(process.space())).unwrap();
        // The end of the heap is told, what a window of a file replaces is not.
        process.brk(HEAP + 2 * PAGE);
        let heap = |pages| uffdio_range { start: HEAP, len: pages * PAGE };
        register(process, &fd, heap(2), MISSING).unwrap();
        process.brk(HEAP + PAGE);
        assert_eq!(changed(process), [(id, [UNMAP, HEAP + PAGE, HEAP + 2 * PAGE, 0])]);
        let shared = MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED;
        assert_eq!(process.mmap(at(32), 4 * PAGE, RW, shared, None, 0), Ok(at(32)));
        register(process, &fd, pages(32, 4), MISSING).unwrap();
        assert_eq!(process.remap_file_pages(at(32), PAGE, 0, 2, 0), Ok(0));
        assert_eq!(changed(process), []);
        process.close_userfaultfd(fd).unwrap();
    });
    // Whoever asks for nothing is told nothing.
    with(|process, _| {
        put(process, 0, 8, RW);
        let fd = ready(process, 0);
        register(process, &fd, pages(0, 8), MISSING).unwrap();
        process.munmap(at(0), PAGE).unwrap();
        assert_eq!(process.mremap(at(1), PAGE, PAGE, moves, at(20)), Ok(at(20)));
        assert_eq!(flags(process, 20), "VmFlags: rd wr mr mw me ac sd ");
        assert!(process.dropped_by(at(2), PAGE, MADV_DONTNEED).is_empty());
        process.fork().unwrap().end().unwrap();
        assert_eq!(changed(process), []);
    });
}
