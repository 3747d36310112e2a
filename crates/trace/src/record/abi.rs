//! The system calls that stop for the recorder, by the ABI that they are made through.
//!
//! ```text
//!   filter: native: RET_TRACE of CALLS, BIRTHS      i386: RET_TRACE of THIRTY_TWO      else: RET_TRACE of all
//!                   data 0                        data 1                             data 2
//! ```
//!
//! A call of a 32-bit program is read as the native call that does the same, so that nothing behind
//! this file knows two kinds. A program of 64 bits may make such calls too.
//!
//! **Not here**: what a call does to a space (`tracer`).

use super::sys::{self, pid_t};
use super::userfault;
use foliant_units::FRAME_BYTES;
use std::io;

/// How a call was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Abi {
    /// As programs of 64 bits do.
    Native = 0,
    /// As programs of 32 bits do: `int 0x80` and what stands for it.
    I386 = 1,
    /// Pointers of 32 bits in 64-bit code: not followed.
    X32 = 2,
}

/// The calls that make processes or programs, which stop as well.
pub(crate) const BIRTHS: [libc::c_long; 6] = [
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_execve,
    libc::SYS_execveat,
];

/// Native calls that stop besides, and `prctl` and `ioctl` with some arguments.
pub(crate) const CALLS: [libc::c_long; 20] = [
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_pkey_mprotect,
    libc::SYS_madvise,
    libc::SYS_process_madvise,
    libc::SYS_brk,
    libc::SYS_shmat,
    libc::SYS_shmdt,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_mlockall,
    libc::SYS_munlockall,
    libc::SYS_remap_file_pages,
    libc::SYS_io_setup,
    libc::SYS_process_vm_writev,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
];

/// Calls of i386 that stop, each with the native one that does the same.
const THIRTY_TWO: [(u32, libc::c_long); 29] = [
    (OLD_MMAP, libc::SYS_mmap),
    (MMAP2, libc::SYS_mmap),
    (91, libc::SYS_munmap),
    (163, libc::SYS_mremap),
    (125, libc::SYS_mprotect),
    (380, libc::SYS_pkey_mprotect),
    (219, libc::SYS_madvise),
    (45, libc::SYS_brk),
    (2, libc::SYS_fork),
    (190, libc::SYS_vfork),
    (120, libc::SYS_clone),
    (435, libc::SYS_clone3),
    (11, libc::SYS_execve),
    (358, libc::SYS_execveat),
    (397, libc::SYS_shmat),
    (398, libc::SYS_shmdt),
    (150, libc::SYS_mlock),
    (376, libc::SYS_mlock2),
    (151, libc::SYS_munlock),
    (152, libc::SYS_mlockall),
    (153, libc::SYS_munlockall),
    (257, libc::SYS_remap_file_pages),
    (245, libc::SYS_io_setup),
    (348, libc::SYS_process_vm_writev),
    (93, libc::SYS_ftruncate),
    (194, libc::SYS_ftruncate),
    (FALLOCATE, libc::SYS_fallocate),
    (PRCTL, libc::SYS_prctl),
    (IOCTL, libc::SYS_ioctl),
];
/// Takes its arguments from memory.
const OLD_MMAP: u32 = 90;
/// Takes its offset in pages.
const MMAP2: u32 = 192;
/// Takes its numbers of 64 bits in two words each.
const FALLOCATE: u32 = 324;
const PRCTL: u32 = 172;
const IOCTL: u32 = 54;
/// Those whose arguments are not read here: `ipc`, which may attach memory, and `process_madvise`.
const UNREAD: [u32; 2] = [117, 440];

impl Abi {
    /// Of the data that the filter gave a stop.
    pub(crate) fn of(data: io::Result<u64>) -> Abi {
        let all = [Abi::Native, Abi::I386, Abi::X32];
        let found = data.ok().and_then(|data| all.into_iter().find(|abi| *abi as u64 == data));
        found.unwrap_or(Abi::Native)
    }

    /// The call that a thread stopped before, as the native one that does the same; `None` where it
    /// is not known.
    pub(crate) fn call(
        self,
        tid: pid_t,
        regs: &libc::user_regs_struct,
    ) -> Option<(libc::c_long, [u64; 6])> {
        if self == Abi::Native {
            let args = [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9];
            return Some((regs.orig_rax as libc::c_long, args));
        }
        let nr = regs.orig_rax as u32;
        let (_, native) = THIRTY_TWO.into_iter().find(|(its, _)| *its == nr)?;
        let args = [regs.rbx, regs.rcx, regs.rdx, regs.rsi, regs.rdi, regs.rbp];
        let mut args = args.map(|word| word & u64::from(u32::MAX));
        if nr == OLD_MMAP {
            let mut words = [0; 24];
            // The thread has just filled them in, so their page is present.
            if sys::read_memory(tid, args[0], &mut words) < words.len() {
                return None;
            }
            for (arg, word) in args.iter_mut().zip(words.as_chunks::<4>().0) {
                *arg = u32::from_le_bytes(*word).into();
            }
        }
        let double = |low: u64, high: u64| low | high << 32;
        let [a, b, c, d, e, f] = args;
        let args = match nr {
            MMAP2 => [a, b, c, d, e, f * FRAME_BYTES],
            FALLOCATE => [a, b, double(c, d), double(e, f), 0, 0],
            _ => args,
        };
        Some((native, args))
    }

    /// A call's result: an error's number below zero, or what a register holds.
    pub(crate) fn result(self, rax: u64) -> i64 {
        match self {
            Abi::I386 if (-4095..0).contains(&(rax as i32)) => i64::from(rax as i32),
            Abi::I386 => i64::from(rax as u32),
            Abi::Native | Abi::X32 => rax as i64,
        }
    }
}

/// The filter: `RET_TRACE` for the calls above, for `prctl(PR_SET_THP_DISABLE)` and for requests of
/// userfaultfd, with the ABI as its data; everything else passes, but what is of an ABI that is not
/// known.
pub(crate) fn filter() -> Vec<libc::sock_filter> {
    const ARCH_X86_64: u32 = 0xc000_003e;
    const ARCH_I386: u32 = 0x4000_0003;
    /// Numbers from here on are x32's.
    const X32_BIT: u32 = 0x4000_0000;
    const NUMBER: u32 = 0;
    const ARCH: u32 = 4;
    let calls: Vec<u32> = CALLS.iter().chain(&BIRTHS).map(|call| *call as u32).collect();
    let mut native = vec![op(LOAD, NUMBER, 0, 0), op(AT_LEAST, X32_BIT, 0, 1), stop(Abi::X32)];
    native.extend(stops(Abi::Native, &calls, libc::SYS_prctl as u32, libc::SYS_ioctl as u32));
    let numbers =
        THIRTY_TWO.map(|(nr, _)| nr).into_iter().filter(|nr| ![PRCTL, IOCTL].contains(nr));
    let numbers: Vec<u32> = numbers.chain(UNREAD).collect();
    let mut all = vec![op(LOAD, ARCH, 0, 0), op(EQUAL, ARCH_X86_64, 0, native.len() as u8)];
    all.extend(native);
    all.extend([op(EQUAL, ARCH_I386, 1, 0), stop(Abi::X32), op(LOAD, NUMBER, 0, 0)]);
    all.extend(stops(Abi::I386, &numbers, PRCTL, IOCTL));
    all
}

pub(crate) const LOAD: u16 = 0x20;
pub(crate) const EQUAL: u16 = 0x15;
pub(crate) const AT_LEAST: u16 = 0x35;
pub(crate) const AND: u16 = 0x54;
pub(crate) const RETURN: u16 = 0x06;

/// An instruction: what, with which number, how many to skip if so, and if not.
pub(crate) fn op(code: u16, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

pub(crate) fn stop(abi: Abi) -> libc::sock_filter {
    const TRACE: u32 = 0x7ff0_0000;
    op(RETURN, TRACE | abi as u32, 0, 0)
}

/// Stops at these numbers, and at those of `prctl` and `ioctl` if their arguments ask for it.
fn stops(abi: Abi, calls: &[u32], prctl: u32, ioctl: u32) -> Vec<libc::sock_filter> {
    const ALLOW: u32 = 0x7fff_0000;
    const FIRST_ARGUMENT: u32 = 16;
    const SECOND_ARGUMENT: u32 = 24;
    let mut list: Vec<_> =
        calls.iter().flat_map(|call| [op(EQUAL, *call, 0, 1), stop(abi)]).collect();
    list.extend([
        op(EQUAL, prctl, 0, 3),
        op(LOAD, FIRST_ARGUMENT, 0, 0),
        op(EQUAL, libc::PR_SET_THP_DISABLE as u32, 5, 0),
        op(RETURN, ALLOW, 0, 0),
        op(EQUAL, ioctl, 0, 4),
        op(LOAD, SECOND_ARGUMENT, 0, 0),
        op(AND, userfault::KIND_MASK, 0, 0),
        op(EQUAL, userfault::KIND, 0, 1),
        stop(abi),
        op(RETURN, ALLOW, 0, 0),
    ]);
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the filter says of a call.
    fn verdict(arch: u32, nr: u32, first: u32) -> u32 {
        verdict_of(arch, nr, [first, 0])
    }

    fn verdict_of(arch: u32, nr: u32, args: [u32; 2]) -> u32 {
        let (filter, mut at, mut a) = (filter(), 0, 0);
        loop {
            let one = filter[at];
            at += 1;
            let is = match one.code {
                LOAD => {
                    a = [(0, nr), (4, arch), (16, args[0]), (24, args[1])]
                        .into_iter()
                        .find(|w| w.0 == one.k)
                        .unwrap()
                        .1;
                    continue;
                }
                AND => {
                    a &= one.k;
                    continue;
                }
                EQUAL => a == one.k,
                AT_LEAST => a >= one.k,
                _ => return one.k,
            };
            at += usize::from(if is { one.jt } else { one.jf });
        }
    }

    #[test]
    fn calls_stop_with_their_abi() {
        const ALLOW: u32 = 0x7fff_0000;
        let (native, i386, arm) = (0xc000_003e, 0x4000_0003, 0x4000_0028);
        let thp = libc::PR_SET_THP_DISABLE as u32;
        for call in CALLS.into_iter().chain(BIRTHS) {
            assert_eq!(verdict(native, call as u32, 0), stop(Abi::Native).k, "{call}");
        }
        for (call, _) in THIRTY_TWO.into_iter().filter(|(call, _)| *call != IOCTL) {
            assert_eq!(verdict(i386, call, thp), stop(Abi::I386).k, "{call}");
        }
        for (arch, ioctl, abi) in
            [(native, libc::SYS_ioctl as u32, Abi::Native), (i386, IOCTL, Abi::I386)]
        {
            assert_eq!(verdict_of(arch, ioctl, [3, 0xc028_aa03]), stop(abi).k);
            assert_eq!(verdict_of(arch, ioctl, [3, 0xc028_ab03]), ALLOW);
            assert_eq!(verdict_of(arch, ioctl, [thp, 0x5401]), ALLOW);
        }
        for call in UNREAD {
            assert_eq!(verdict(i386, call, 0), stop(Abi::I386).k, "{call}");
        }
        assert_eq!(verdict(native, libc::SYS_prctl as u32, thp), stop(Abi::Native).k);
        for (arch, prctl) in [(native, libc::SYS_prctl as u32), (i386, PRCTL)] {
            assert_eq!(verdict(arch, prctl, thp + 1), ALLOW);
        }
        assert_eq!(verdict(native, libc::SYS_write as u32, 0), ALLOW);
        assert_eq!(verdict(i386, 4, 0), ALLOW, "write");
        assert_eq!(verdict(native, 0x4000_0000 | 9, 0), stop(Abi::X32).k);
        assert_eq!(verdict(arm, 9, 0), stop(Abi::X32).k);
    }

    #[test]
    fn results_are_errors_or_words() {
        assert_eq!(Abi::I386.result(0xffff_fff4), -12);
        assert_eq!(Abi::I386.result(0xf7c0_0000), 0xf7c0_0000);
        assert_eq!(Abi::Native.result(-12i64 as u64), -12);
        assert_eq!(Abi::of(Ok(1)), Abi::I386);
        assert_eq!(Abi::of(Ok(9)), Abi::Native);
    }
}
