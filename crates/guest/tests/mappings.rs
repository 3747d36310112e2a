//! A process that has as many mappings as it may. It is alone in its program, since nothing else
//! can be mapped meanwhile.
#![allow(unsafe_code, reason = "mappings are used up")]

mod common;

use common::{Kind, PAGE, books, host, range};
use foliant_guest::{GuestError, HostCall};
use foliant_units::Order;
use vm_memory::Bytes as _;

/// Mappings of a page each until there are no more.
struct Filler(*mut libc::c_void, usize);

impl Filler {
    fn new() -> Option<Filler> {
        let most = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok()?;
        let most: usize = most.trim().parse().ok().filter(|most| *most < 1 << 18)?;
        let (bytes, how) = (most * 2 * 4096, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the host's choice.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_NONE,
                how | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED);
        let at_page = |nth: usize| at.cast::<u8>().wrapping_add(nth * 4096).cast();
        // SAFETY: a page of our own, which nobody reads.
        let split = |nth, rights| unsafe { libc::mprotect(at_page(nth), 4096, rights) };
        (0..most).find(|nth| split(nth * 2 + 1, libc::PROT_READ) != 0)?;
        Some(Filler(at, bytes))
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        // SAFETY: our own mapping.
        unsafe { libc::munmap(self.0, self.1) };
    }
}

#[test]
fn a_process_without_mappings_left_loses_nothing() {
    let machine = Kind::InView.small();
    let host = host(&machine, Order::SIZE_2M, 16);
    let guest = Kind::InView.guest(&host, Order::SIZE_2M, &[range(0, 4)]).unwrap();
    let before = books(&host, Order::SIZE_2M);
    let (start, pages) = range(PAGE, 2);
    let pattern: Vec<u8> = (0..4 * PAGE).map(|at| (at / 4096) as u8 ^ at as u8).collect();
    let (all, _) = range(0, 4);
    guest.write_slice(&pattern, all).unwrap();
    let mut read = vec![0; pattern.len()];

    let Some(filler) = Filler::new() else { return }; // so many mappings as nobody can use up
    let given = guest.give_back(start, pages);
    let made = Kind::InView.guest(&host, Order::SIZE_2M, &[range(0, 2)]).map(drop);
    drop(filler);
    assert_eq!(given, Err(GuestError::Host(HostCall::Hide, libc::ENOMEM)));
    assert!(matches!(made, Err(GuestError::Host(_, libc::ENOMEM))), "{made:?}");
    assert!(given.unwrap_err().to_string().contains("vm.max_map_count"));
    assert_eq!((guest.given_back().get(), books(&host, Order::SIZE_2M)), (0, before));
    guest.read_slice(&mut read, all).unwrap();
    assert!(read == pattern, "nothing was lost");

    assert_eq!(guest.give_back(start, pages), Ok(pages));
    assert_eq!(guest.bring_back(start, pages), Ok(pages));
    drop(guest);
    host.audit(&[]).unwrap();
}
