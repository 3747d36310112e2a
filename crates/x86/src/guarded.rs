//! Kernel accesses that may fault, and where such a fault continues.
//!
//! A kernel reads its own descriptors at addresses that another CPU may be remapping. If that
//! faults it is no bug of the kernel, so these few accesses are guarded: each is the first
//! instruction of a function that has no frame, and [`recover`] sends a fault there to a function
//! that reports it to the same caller.
//!
//! ```text
//!   kernel_load ──call──▶ load: mov rax, [rdi]  ──fault──▶ the kernel's handler ── recover(rip) ─┐
//!                               xor edx, edx                                                     │
//!               ◀──────────────  ret                        faulted: mov edx, 1  ◀── iret to ────┘
//!               ◀────────────────────────────────────────────────── ret
//! ```
//!
//! **Invariants**
//! - X3. Every guarded access is the first instruction of its naked function, or one of the four of
//!   four bytes each with which [`fill_four`] begins: the function's address tells the
//!   instruction's, and nothing is on the stack but the return address.
//!
//! **Not here**: the handler.
#![allow(unsafe_code)]

use crate::{Host, X86};
use core::arch::naked_asm;
use foliant_machine::{KernelFault, KernelVa};
use foliant_units::{Bytes, Va};

/// What a guarded access returns: RAX and RDX.
#[repr(C)]
struct Outcome {
    word: u64,
    faulted: u64,
}

/// Where a page fault at `rip` inside one of this crate's guarded kernel accesses continues, with
/// all other registers as they were. The kernel's page-fault handler asks before it calls a kernel
/// fault a bug.
pub fn recover(rip: u64) -> Option<u64> {
    let single =
        [load as *const () as u64, store as *const () as u64, exchange_at as *const () as u64];
    match rip {
        _ if single.contains(&rip) => Some(faulted as *const () as u64),
        _ if rip == fill as *const () as u64 => Some(fill_faulted as *const () as u64),
        _ => {
            let nth = rip.checked_sub(fill_four as *const () as u64)?;
            let faulted: [unsafe extern "sysv64" fn() -> Outcome; 4] =
                [fill_faulted, second_faulted, third_faulted, fourth_faulted];
            let faulted = faulted.get(nth as usize / 4).filter(|_| nth.is_multiple_of(4))?;
            Some(*faulted as *const () as u64)
        }
    }
}

#[unsafe(naked)]
unsafe extern "sysv64" fn load(va: u64) -> Outcome {
    naked_asm!("mov rax, [rdi]", "xor edx, edx", "ret")
}

#[unsafe(naked)]
unsafe extern "sysv64" fn store(va: u64, word: u64) -> Outcome {
    naked_asm!("mov [rdi], rsi", "xor edx, edx", "ret")
}

#[unsafe(naked)]
unsafe extern "sysv64" fn exchange(va: u64, new: u64, old: u64) -> Outcome {
    naked_asm!("mov rax, rdx", "jmp {}", sym exchange_at)
}

/// The second half of [`exchange`]: RAX holds the expected word.
#[unsafe(naked)]
unsafe extern "sysv64" fn exchange_at(va: u64, new: u64) -> Outcome {
    naked_asm!("lock cmpxchg [rdi], rsi", "xor edx, edx", "ret")
}

/// Stores at `end + left`, which is below `end`, and at each stride from there to `end`. One sum
/// goes on and tells the end. RDI and RCX give the address of the store at work, also when it
/// faults.
#[unsafe(naked)]
unsafe extern "sysv64" fn fill(end: u64, word: u64, stride: u64, left: i64) -> Outcome {
    naked_asm!("2: mov [rdi + rcx], rsi", "add rcx, rdx", "jnz 2b", "xor edx, edx", "ret")
}

/// The same for four strides at a time, so that a store takes one instruction and a half: a folio
/// has up to 511 tails. `stride` is that of all four, `second` and `third` are one and two single
/// ones behind `end`.
#[unsafe(naked)]
unsafe extern "sysv64" fn fill_fours(
    end: u64,
    word: u64,
    stride: u64,
    left: i64,
    second: u64,
    third: u64,
) -> Outcome {
    naked_asm!("lea r10, [r8 + r9]", "sub r10, rdi", "jmp {}", sym fill_four)
}

/// The second half of [`fill_fours`], with a base for each of the four.
#[unsafe(naked)]
unsafe extern "sysv64" fn fill_four(
    end: u64,
    word: u64,
    stride: u64,
    left: i64,
    second: u64,
    third: u64,
) -> Outcome {
    naked_asm!(
        "2: mov [rdi + rcx], rsi",
        "mov [r8 + rcx], rsi",
        "mov [r9 + rcx], rsi",
        "mov [r10 + rcx], rsi",
        "add rcx, rdx",
        "jnz 2b",
        "xor edx, edx",
        "ret"
    )
}

/// Returns from the others after a fault, with the address that faulted in place of the word.
#[unsafe(naked)]
unsafe extern "sysv64" fn faulted() -> Outcome {
    naked_asm!("mov rax, rdi", "mov edx, 1", "ret")
}

/// The same for [`fill`], which has its address in two registers.
#[unsafe(naked)]
unsafe extern "sysv64" fn fill_faulted() -> Outcome {
    naked_asm!("add rdi, rcx", "jmp {}", sym faulted)
}

/// The same for the other stores of [`fill_four`].
#[unsafe(naked)]
unsafe extern "sysv64" fn second_faulted() -> Outcome {
    naked_asm!("mov rdi, r8", "jmp {}", sym fill_faulted)
}
#[unsafe(naked)]
unsafe extern "sysv64" fn third_faulted() -> Outcome {
    naked_asm!("mov rdi, r9", "jmp {}", sym fill_faulted)
}
#[unsafe(naked)]
unsafe extern "sysv64" fn fourth_faulted() -> Outcome {
    naked_asm!("mov rdi, r10", "jmp {}", sym fill_faulted)
}

impl Outcome {
    fn word(self) -> Result<u64, KernelFault> {
        if self.faulted == 0 { Ok(self.word) } else { Err(KernelFault { va: Va::new(self.word) }) }
    }
}

// SAFETY: each access is one instruction on the address itself, so it reaches what the CPU's
// translation names. Loads acquire, stores release and locked instructions do both on this
// architecture, and a call of unknown code orders the compiler.
unsafe impl<H: Host> KernelVa for X86<'_, H> {
    unsafe fn kernel_load(&self, va: Va) -> Result<u64, KernelFault> {
        // SAFETY: the caller's promise about `va`; a fault comes back by `recover`.
        unsafe { load(va.get()) }.word()
    }

    unsafe fn kernel_store(&self, va: Va, word: u64) -> Result<(), KernelFault> {
        // SAFETY: as in `kernel_load`, and the caller may write there.
        unsafe { store(va.get(), word) }.word().map(drop)
    }

    unsafe fn kernel_compare_exchange(
        &self,
        va: Va,
        old: u64,
        new: u64,
    ) -> Result<Result<u64, u64>, KernelFault> {
        // SAFETY: as in `kernel_store`.
        let found = unsafe { exchange(va.get(), new, old) }.word()?;
        Ok(if found == old { Ok(found) } else { Err(found) })
    }

    unsafe fn kernel_fill(
        &self,
        va: Va,
        stride: Bytes,
        count: u64,
        word: u64,
    ) -> Result<(), KernelFault> {
        let (start, step) = (va.get(), stride.get());
        let (few, fours) = (count % 4, count / 4);
        // Where a part of them ends, and how far behind its start that is, downwards.
        let part = |from: u64, strides: u64| {
            let bytes = step.wrapping_mul(strides);
            (from.wrapping_add(bytes), (bytes as i64).wrapping_neg())
        };
        let (first, left) = part(start, few);
        if few > 0 {
            // SAFETY: as in `kernel_store`, for each address.
            unsafe { fill(first, word, step, left) }.word()?;
        }
        if fours > 0 {
            let (end, left) = part(first, 4 * fours);
            let others = [1, 2].map(|nth| end.wrapping_add(step.wrapping_mul(nth)));
            // SAFETY: as above.
            unsafe { fill_fours(end, word, step.wrapping_mul(4), left, others[0], others[1]) }
                .word()?;
        }
        Ok(())
    }
}
