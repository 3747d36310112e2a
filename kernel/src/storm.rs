//! Interrupts that dirty whatever a handler may dirty.
#![allow(unsafe_code)]

use crate::cpu::State;
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

static STRIKES: AtomicU64 = AtomicU64::new(0);
/// Strikes that began with registers that are not the kernel's.
static STRANGE: AtomicU64 = AtomicU64::new(0);

/// How many struck so far.
pub(crate) fn strikes() -> u64 {
    STRIKES.load(Ordering::Relaxed)
}

/// How many of them found registers that are not the kernel's.
pub(crate) fn strange() -> u64 {
    STRANGE.load(Ordering::Relaxed)
}

/// What the interrupt does: floating point, SSE registers, stack.
pub(crate) fn strike() {
    if State::now() != State::KERNEL {
        STRANGE.fetch_add(1, Ordering::Relaxed);
    }
    let n = STRIKES.fetch_add(1, Ordering::Relaxed);
    let mut noise = [0u64; 64];
    let mut x = n as f64;
    for word in &mut noise {
        x = x * 1.000_001 + 3.5;
        *word = x.to_bits();
    }
    core::hint::black_box(&noise);
    // SAFETY: the registers are declared as changed.
    unsafe {
        asm!(
            "movq xmm0, {0}", "movq xmm1, {0}", "movq xmm6, {0}", "movq xmm9, {0}", "movq xmm15, {0}",
            in(reg) noise[63], out("xmm0") _, out("xmm1") _, out("xmm6") _, out("xmm9") _, out("xmm15") _,
            options(nomem, nostack, preserves_flags)
        )
    }
}
