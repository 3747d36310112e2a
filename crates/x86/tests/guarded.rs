//! Guarded kernel accesses, with a signal handler in the place of a kernel's page-fault handler.
//!
//! The functions are the ones that a kernel runs; a program's pages stand for kernel addresses.
#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code)]

mod common;

use common::{machine, settings};
use core::sync::atomic::{AtomicU64, Ordering};
use foliant_machine::{KernelFault, KernelVa};
use foliant_units::{Bytes, Va};
use foliant_x86::{Line, recover};

static RECOVERED: AtomicU64 = AtomicU64::new(0);

/// Continues where the crate says, or lets the fault happen again without a handler.
extern "C" fn on_fault(signal: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the system passes the interrupted registers, ours to change until we return.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let rip = &mut context.uc_mcontext.gregs[libc::REG_RIP as usize];
    match recover(*rip as u64) {
        Some(next) => {
            RECOVERED.fetch_add(1, Ordering::Relaxed);
            *rip = next as i64;
        }
        // SAFETY: no precondition.
        None => unsafe {
            libc::signal(signal, libc::SIG_DFL);
        },
    }
}

fn handle_faults() {
    // SAFETY: all zeros is a valid `sigaction`.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_fault as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the handler is async-signal-safe: it changes an atomic and the registers it was
    // given.
    assert_eq!(unsafe { libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut()) }, 0);
}

/// A page that allows `protection`.
fn page(protection: i32) -> Va {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, anywhere.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    Va::new(at as u64)
}

fn two_pages_of_which_the_second_is_missing() -> Va {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, anywhere.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), 8192, rights, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    let second = at.wrapping_byte_add(4096);
    // SAFETY: the second of the two pages, which nobody has used.
    assert_eq!(unsafe { libc::mprotect(second, 4096, libc::PROT_NONE) }, 0);
    Va::new(at as u64)
}

#[test]
fn a_fault_is_an_answer() {
    handle_faults();
    let lines = [const { Line::new() }; 1];
    let machine = machine(settings(), &lines);
    let usable = page(libc::PROT_READ | libc::PROT_WRITE);
    let missing = page(libc::PROT_NONE);
    let read_only = page(libc::PROT_READ);

    // SAFETY: pages of this test; faults are recovered from.
    let load = |va: Va| unsafe { machine.kernel_load(va) };
    // SAFETY: as above.
    let store = |va: Va, word| unsafe { machine.kernel_store(va, word) };
    // SAFETY: as above.
    let exchange = |va: Va, old, new| unsafe { machine.kernel_compare_exchange(va, old, new) };

    let at = usable.add(4088);
    assert_eq!(store(at, 7), Ok(()));
    assert_eq!(load(at), Ok(7));
    assert_eq!(exchange(at, 7, 1), Ok(Ok(7)));
    // The fault flag is apart from the word: 1 and the largest word are words like any other.
    assert_eq!(exchange(at, 2, 3), Ok(Err(1)));
    assert_eq!(load(at), Ok(1));
    assert_eq!(store(at, u64::MAX), Ok(()));
    assert_eq!(load(at), Ok(u64::MAX));
    assert_eq!(RECOVERED.load(Ordering::Relaxed), 0);

    let va = missing.add(8);
    assert_eq!(load(va), Err(KernelFault { va }));
    assert_eq!(store(va, 7), Err(KernelFault { va }));
    assert_eq!(exchange(va, 0, 7), Err(KernelFault { va }));
    assert_eq!(RECOVERED.load(Ordering::Relaxed), 3);

    assert_eq!(load(read_only), Ok(0));
    assert_eq!(store(read_only, 7), Err(KernelFault { va: read_only }));
    // A locked instruction writes even where it compares unequal.
    assert_eq!(exchange(read_only, 5, 7), Err(KernelFault { va: read_only }));
    assert_eq!(load(read_only), Ok(0));
    assert_eq!(RECOVERED.load(Ordering::Relaxed), 5);

    // A fill stores at each stride up to the first address that it cannot reach, and names that.
    // SAFETY: as above.
    let fill =
        |va: Va, count, word| unsafe { machine.kernel_fill(va, Bytes::new(64), count, word) };
    assert_eq!(fill(usable, 0, 5), Ok(()));
    assert_eq!(load(usable), Ok(0));
    assert_eq!(fill(usable.add(64), 3, 5), Ok(()));
    for (word, at) in [(0, 0), (0, 56), (5, 64), (0, 72), (5, 128), (5, 192), (0, 256)] {
        assert_eq!(load(usable.add(at)), Ok(word), "at {at}");
    }
    // Whatever the number, none is missed and none is stored beside them.
    for count in 0..14 {
        assert_eq!(fill(usable, 16, 0), Ok(()));
        assert_eq!(fill(usable.add(64), count, 9), Ok(()));
        let seen = (0..16).map(|nth| load(usable.add(64 * nth)).unwrap());
        assert!(seen.eq((0..16).map(|nth| if nth >= 1 && nth <= count { 9 } else { 0 })));
    }
    let behind = two_pages_of_which_the_second_is_missing();
    for before in 0..8 {
        for more in 1..9 {
            let word = 100 * before + more;
            let end = behind.add(4096);
            let filled = fill(behind.add(4096 - 64 * before), before + more, word);
            assert_eq!(filled, Err(KernelFault { va: end }), "{before} before it, {more} behind");
            assert!((1..=before).all(|nth| load(behind.add(4096 - 64 * nth)) == Ok(word)));
        }
    }
    assert_eq!(RECOVERED.load(Ordering::Relaxed), 5 + 64);
}

#[test]
fn other_code_is_not_recovered() {
    for rip in [0, u64::MAX, other_code_is_not_recovered as *const () as u64] {
        assert_eq!(recover(rip), None, "{rip:#x}");
    }
}
