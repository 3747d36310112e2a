//! Pages that a guest gives back, and how they come back.

mod common;

use common::{Kind, PAGE, SIZE_2M, books, file, host, range};
use foliant::pool::Budget;
use foliant_guest::{GuestError, GuestRam, HostCall};
use foliant_sim::{Config, Sim};
use foliant_units::{Bytes, Order};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use vm_memory::bitmap::{AtomicBitmap, Bitmap};
use vm_memory::{
    Bytes as _, GuestAddress, GuestMemoryBackend, GuestMemoryRegion, MemoryRegionAddress,
};

/// Memory of the host that the machine's file takes, in bytes.
fn taken(machine: &Sim) -> u64 {
    machine.memory_file().unwrap().0.metadata().unwrap().blocks() * 512
}

/// What is given back the pool has, and the host; and it comes back as zeros, asked for or touched.
#[test]
fn what_is_given_back_is_free_and_comes_back_zero() {
    let machine = Kind::InView.small();
    let host = host(&machine, Order::SIZE_2M, 8);
    let before = books(&host, Order::SIZE_2M);
    let guest = Kind::InView.guest(&host, Order::SIZE_2M, &[range(PAGE, 6)]).unwrap();
    let ones = vec![0xff; 6 * PAGE as usize];
    guest.write_slice(&ones, GuestAddress(PAGE)).unwrap();
    let full = taken(&machine);
    let at = |page: u64| GuestAddress((1 + page) * PAGE);
    let region = guest.iter().next().unwrap();

    // Pages 1 to 4, of which 2 was given back before.
    assert_eq!(guest.give_back(at(2), SIZE_2M), Ok(SIZE_2M));
    assert_eq!(guest.give_back(at(1), Bytes::new(4 * PAGE)), Ok(Bytes::new(3 * PAGE)));
    assert_eq!(guest.give_back(at(1), Bytes::new(4 * PAGE)), Ok(Bytes::new(0)));
    assert_eq!(guest.given_back(), Bytes::new(4 * PAGE));
    assert_eq!((books(&host, Order::SIZE_2M).0, taken(&machine)), (6, full - 4 * PAGE));
    assert_eq!(region.frame(MemoryRegionAddress(PAGE)), None);
    assert!(region.frame(MemoryRegionAddress(0)).is_some());
    // What is left is untouched, up to the edges.
    for page in [0, 5] {
        let mut read = vec![0; PAGE as usize];
        guest.read_slice(&mut read, at(page)).unwrap();
        assert!(read == ones[..PAGE as usize]);
    }
    assert_eq!(guest.given_back(), Bytes::new(4 * PAGE), "nothing came back by that");

    // Another guest has them, and fills them.
    let other = Kind::InView.guest(&host, Order::SIZE_2M, &[range(0, 6)]).unwrap();
    other.write_slice(&ones, GuestAddress(0)).unwrap();
    assert!(taken(&machine) >= full + 2 * PAGE);
    drop(other);

    // Asked for; touched by a read, by a slice over the edge to the next one, by an atomic.
    assert_eq!(guest.bring_back(at(0), Bytes::new(2 * PAGE)), Ok(SIZE_2M));
    assert_eq!(guest.bring_back(at(0), Bytes::new(2 * PAGE)), Ok(Bytes::new(0)));
    assert!(region.frame(MemoryRegionAddress(PAGE)).is_some());
    let zero = |from: u64, count: usize| {
        let mut read = vec![1; count];
        guest.read_slice(&mut read, GuestAddress(from)).unwrap();
        read.iter().all(|byte| *byte == 0)
    };
    assert!(zero(2 * PAGE, PAGE as usize));
    assert_eq!(guest.given_back(), Bytes::new(3 * PAGE));
    let slice = GuestMemoryBackend::get_slice(&guest, GuestAddress(4 * PAGE - 1), 2).unwrap();
    assert_eq!((slice.len(), guest.given_back()), (2, SIZE_2M));
    assert!(zero(3 * PAGE, 2 * PAGE as usize));
    guest.store(7u64, at(4), Ordering::SeqCst).unwrap();
    assert_eq!(guest.given_back(), Bytes::new(0));
    assert!(zero(5 * PAGE + 8, PAGE as usize - 8));
    drop(guest);
    assert_eq!(books(&host, Order::SIZE_2M), before);
    host.audit(&[]).unwrap();
    assert_eq!(machine.finish(), []);
}

/// An access to a region has the pages come back that it is made to, and no others.
#[test]
fn an_access_brings_its_own_pages() {
    let machine = Kind::InView.small();
    let host = host(&machine, Order::SIZE_2M, 8);
    let guest = Kind::InView.guest(&host, Order::SIZE_2M, &[range(0, 8)]).unwrap();
    let region = guest.iter().next().unwrap();
    let at = |page: u64| MemoryRegionAddress(page * PAGE + 16);
    let mut left = 8;
    let mut step = |access: &dyn Fn(MemoryRegionAddress), page| {
        assert_eq!(region.get_slice(at(0), 0).unwrap().len(), 0, "no bytes touch nothing");
        access(at(page));
        left -= 1;
        assert_eq!(guest.given_back(), Bytes::new(left * PAGE));
        access(at(page));
        assert_eq!(guest.given_back(), Bytes::new(left * PAGE));
    };
    assert_eq!(guest.give_back(GuestAddress(0), Bytes::new(8 * PAGE)), Ok(Bytes::new(8 * PAGE)));
    step(&|at| assert_eq!(region.write(b"word", at).unwrap(), 4), 3);
    step(&|at| assert_eq!(region.read(&mut [0; 4], at).unwrap(), 4), 2);
    step(&|at| region.store(1u32, at, Ordering::Relaxed).unwrap(), 7);
    step(&|at| assert_eq!(region.load::<u32>(at, Ordering::Relaxed).unwrap(), 0), 0);
    step(&|at| region.read_exact_volatile_from(at, &mut &b"word"[..], 4).unwrap(), 1);
    step(&|at| region.write_all_volatile_to(at, &mut Vec::new(), 4).unwrap(), 4);
    step(&|at| assert_eq!(region.read_volatile_from(at, &mut &b"word"[..], 4).unwrap(), 4), 5);
    step(&|at| assert_eq!(region.write_volatile_to(at, &mut Vec::new(), 4).unwrap(), 4), 6);
}

/// What does not come back leaves no trace, says how many pages are wanting, and comes later.
#[test]
fn an_empty_pool_brings_nothing_back() {
    let machine = Kind::InView.small();
    let host = host(&machine, Order::SIZE_2M, 6);
    let guest = Kind::InView.guest(&host, Order::SIZE_2M, &[range(0, 6)]).unwrap();
    let at = GuestAddress;
    guest.give_back(at(PAGE), Bytes::new(4 * PAGE)).unwrap();
    let other = Kind::InView.guest(&host, Order::SIZE_2M, &[range(0, 2)]).unwrap();
    let before = books(&host, Order::SIZE_2M);
    let none = Err(GuestError::NoPages(Order::SIZE_2M, 4, 2));
    assert_eq!(guest.bring_back(at(0), Bytes::new(6 * PAGE)), none);
    let refused = guest.read_slice(&mut vec![0; 6 * PAGE as usize], at(0)).unwrap_err();
    let said = "4 pages of 2m are to come back, and 2 in the pool are not reserved";
    assert!(refused.to_string().contains(said), "{refused}");
    assert_eq!((books(&host, Order::SIZE_2M), guest.given_back().get()), (before, 4 * PAGE));
    // Half of it can be had; the rest when others are gone, or the pool is larger.
    assert_eq!(guest.bring_back(at(2 * PAGE), Bytes::new(2 * PAGE)), Ok(Bytes::new(2 * PAGE)));
    assert!(guest.write_slice(b"word", at(PAGE)).is_err());
    assert_eq!(host.resize_pool(Order::SIZE_2M, 7, Budget::ALL).unwrap().reached, 7);
    assert!(guest.write_slice(b"word", at(PAGE)).is_ok());
    drop(other);
    assert_eq!(guest.bring_back(at(0), Bytes::new(6 * PAGE)), Ok(SIZE_2M));
    drop(guest);
    host.audit(&[]).unwrap();
}

#[test]
fn misuse_is_named() {
    let machine = Kind::InView.small();
    let host = host(&machine, Order::SIZE_2M, 8);
    let ranges = [range(PAGE, 2), range(8 * PAGE, 2)];
    let at = GuestAddress;
    let guest = Kind::InView.guest(&host, Order::SIZE_2M, &ranges).unwrap();
    let whole = Bytes::new(2 * PAGE);
    for (start, bytes, error) in [
        (at(PAGE), Bytes::new(0), GuestError::Empty),
        (
            at(PAGE),
            Bytes::new(4096),
            GuestError::Misaligned(at(PAGE), Bytes::new(4096), Order::SIZE_2M),
        ),
        (
            at(PAGE + 4096),
            SIZE_2M,
            GuestError::Misaligned(at(PAGE + 4096), SIZE_2M, Order::SIZE_2M),
        ),
        (at(0), SIZE_2M, GuestError::Outside(at(0), SIZE_2M)),
        (at(2 * PAGE), whole, GuestError::Outside(at(2 * PAGE), whole)),
        (at(3 * PAGE), SIZE_2M, GuestError::Outside(at(3 * PAGE), SIZE_2M)),
        (at(PAGE), Bytes::new(9 * PAGE), GuestError::Outside(at(PAGE), Bytes::new(9 * PAGE))),
        (
            at(PAGE),
            Bytes::new(0u64.wrapping_sub(PAGE)),
            GuestError::Outside(at(PAGE), Bytes::new(0u64.wrapping_sub(PAGE))),
        ),
    ] {
        assert_eq!(guest.give_back(start, bytes), Err(error), "{error}");
        assert_eq!(guest.bring_back(start, bytes), Err(error), "{error}");
    }
    assert_eq!(guest.given_back(), Bytes::new(0));
    let direct = GuestRam::new(&host, Order::SIZE_2M, &[range(PAGE, 2)]).unwrap();
    assert_eq!(direct.give_back(at(PAGE), SIZE_2M), Err(GuestError::Direct(at(PAGE))));
    assert_eq!(direct.bring_back(at(PAGE), SIZE_2M), Ok(Bytes::new(0)), "it is all there");
}

/// A slice that was there before reaches nothing of others, and what is written through it is lost.
#[test]
fn a_slice_that_was_there_reaches_nobody_else() {
    let machine = Kind::InView.small();
    let host = host(&machine, Order::SIZE_2M, 2);
    let guest = Kind::InView.guest(&host, Order::SIZE_2M, &[range(0, 2)]).unwrap();
    let (start, bytes) = range(0, 2);
    let slice = GuestMemoryBackend::get_slice(&guest, start, bytes.get() as usize).unwrap();
    slice.write_slice(b"mine", PAGE as usize - 2).unwrap();
    assert_eq!(guest.give_back(start, bytes), Ok(bytes));
    let other = Kind::InView.guest(&host, Order::SIZE_2M, &[range(0, 2)]).unwrap();
    other.write_slice(&vec![7; 2 * PAGE as usize], start).unwrap();

    let mut read = vec![1; 2 * PAGE as usize];
    slice.read_slice(&mut read, 0).unwrap();
    assert!(read.iter().all(|byte| *byte == 0));
    slice.write_slice(&vec![9; 2 * PAGE as usize], 0).unwrap();
    other.read_slice(&mut read, start).unwrap();
    assert!(read.iter().all(|byte| *byte == 7));

    drop(other);
    assert_eq!(guest.bring_back(start, bytes), Ok(bytes));
    slice.read_slice(&mut read, 0).unwrap();
    assert!(read.iter().all(|byte| *byte == 0), "the slice is the guest's memory again");
}

/// Where a region lies in the file is said of regions that give nothing back.
#[test]
fn who_shares_a_file_keeps_its_pages() {
    let machine = Kind::InView.small();
    let host = host(&machine, Order::SIZE_2M, 8);
    let (start, bytes) = range(PAGE, 3);
    let guest = Kind::InView.guest(&host, Order::SIZE_2M, &[(start, bytes)]).unwrap();
    let region = guest.iter().next().unwrap();
    assert_eq!(region.is_hugetlbfs(), Some(false));
    guest.write_slice(b"shared", GuestAddress(2 * PAGE - 3)).unwrap();
    let offset = region.file_offset().expect("the pool was filled at once");
    let mut read = [0; 6];
    offset.file().read_exact_at(&mut read, offset.start() + PAGE - 3).unwrap();
    assert_eq!(&read, b"shared");
    assert_eq!(guest.give_back(start, SIZE_2M), Err(GuestError::Shared(start)));
    assert_eq!(guest.given_back(), Bytes::new(0));
    drop(guest);

    let guest = Kind::InView.guest(&host, Order::SIZE_2M, &[(start, bytes)]).unwrap();
    guest.give_back(start, SIZE_2M).unwrap();
    let region = guest.iter().next().unwrap();
    assert!(region.file_offset().is_none());
    guest.bring_back(start, SIZE_2M).unwrap();
    assert!(region.file_offset().is_none());
    guest.give_back(start, SIZE_2M).unwrap();
    drop(guest);

    let others = common::scatter(&host);
    let guest = Kind::InView.guest(&host, Order::SIZE_2M, &[(start, bytes)]).unwrap();
    assert!(guest.iter().next().unwrap().file_offset().is_none(), "in pieces");
    assert_eq!(guest.give_back(start, SIZE_2M), Ok(SIZE_2M), "so nobody was told");
    drop((guest, others));
    let direct = GuestRam::new(&host, Order::SIZE_2M, &[(start, bytes)]).unwrap();
    assert!(direct.iter().next().unwrap().file_offset().is_none());
}

/// A page that was given back changed, so it is dirty, and that of others is not.
#[test]
fn what_is_given_back_is_dirty() {
    let machine = Kind::InView.small();
    let host = host(&machine, Order::SIZE_2M, 8);
    let guest = Kind::InView.guest(&host, Order::SIZE_2M, &[range(0, 4)]).unwrap();
    let guest = guest.tracked::<AtomicBitmap>();
    let region = guest.iter().next().unwrap();
    let dirty =
        || (0..4 * PAGE as usize).step_by(4096).filter(|at| region.bitmap().dirty_at(*at)).count();
    assert_eq!(guest.give_back(GuestAddress(PAGE), SIZE_2M), Ok(SIZE_2M));
    assert!(
        region.bitmap().dirty_at(PAGE as usize) && region.bitmap().dirty_at(2 * PAGE as usize - 1)
    );
    assert_eq!(dirty(), 512);
    guest.give_back(GuestAddress(PAGE), SIZE_2M).unwrap();
    guest.bring_back(GuestAddress(PAGE), SIZE_2M).unwrap();
    assert_eq!(dirty(), 512);
}

/// Where the host does not free the memory, and does not show it again either, the guest has an
/// error, and nothing is lost.
#[test]
#[allow(unsafe_code)]
fn what_the_host_does_not_free_is_not_lost() {
    let machine = Kind::InView.small();
    let host = host(&machine, Order::SIZE_2M, 4);
    let before = books(&host, Order::SIZE_2M);
    let guest = Kind::InView.guest(&host, Order::SIZE_2M, &[range(0, 4)]).unwrap();
    let (memory, _) = machine.memory_file().unwrap();
    let (fd, seal) = (memory.as_raw_fd(), libc::F_SEAL_FUTURE_WRITE);
    // SAFETY: the call takes no pointer. From here on there are no holes, and no new mappings.
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seal) }, 0);
    let (start, page) = range(PAGE, 1);
    let got = guest.give_back(start, page);
    assert_eq!(got, Err(GuestError::Host(HostCall::Free, libc::EPERM)));
    assert_eq!((guest.given_back(), books(&host, Order::SIZE_2M).0), (page, 0));
    let got = guest.bring_back(start, page);
    assert_eq!(got, Err(GuestError::Host(HostCall::Show, libc::EPERM)));
    assert!(guest.write_slice(b"word", start).is_err());
    assert!(guest.write_slice(b"word", GuestAddress(0)).is_ok());
    drop(guest);
    assert_eq!(books(&host, Order::SIZE_2M), before);
    host.audit(&[]).unwrap();
}

/// CPUs that read and write, and one that gives back, and has another guest take the very pages and
/// fill them: the one guest reads what it wrote, or zero, the other what it wrote.
#[test]
fn no_guest_sees_what_another_wrote() {
    const ROUNDS: u64 = 60;
    let machine = Kind::InView.machine(Config::free(3, Bytes::new(64 << 20)));
    let host = host(&machine, Order::SIZE_2M, 4);
    let file = file(&machine);
    let guest = GuestRam::in_file(&host, &file, Order::SIZE_2M, &[range(0, 2)]).unwrap();
    let (start, bytes) = range(0, 2);
    let words = || (0..2 * PAGE).step_by(4096).map(GuestAddress);
    let over = AtomicBool::new(false);
    let give_and_take = || {
        for _ in 0..ROUNDS {
            guest.give_back(start, bytes).unwrap();
            let other = GuestRam::in_file(&host, &file, Order::SIZE_2M, &[range(0, 2)]).unwrap();
            for (was, is) in [(0, 2), (2, 3)] {
                for at in words() {
                    assert_eq!(other.load::<u64>(at, Ordering::Relaxed).unwrap(), was);
                    other.store(is, at, Ordering::Relaxed).unwrap();
                }
            }
        }
    };
    machine.parallel(3, |cpu| {
        host.online();
        if cpu.index() == 0 {
            let done = catch_unwind(AssertUnwindSafe(give_and_take));
            over.store(true, Ordering::Relaxed);
            done.unwrap_or_else(|panic| resume_unwind(panic));
        }
        while !over.load(Ordering::Relaxed) {
            for at in words() {
                guest.store(1u64, at, Ordering::Relaxed).unwrap();
                let found = guest.load::<u64>(at, Ordering::Relaxed).unwrap();
                assert!(found <= 1, "{found} at {:#x}", at.0);
            }
        }
    });
    drop(guest);
    assert_eq!(books(&host, Order::SIZE_2M).0, 4);
    host.audit(&[]).unwrap();
}
