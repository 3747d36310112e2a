//! What an interrupt or exception leaves on the stack, and what a program leaves behind.

use core::cell::{Cell, UnsafeCell};
use core::mem::offset_of;
use core::sync::atomic::AtomicU64;

/// What an entry saved, in the order of `trap.s`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Frame {
    pub(crate) r15: u64,
    pub(crate) r14: u64,
    pub(crate) r13: u64,
    pub(crate) r12: u64,
    pub(crate) r11: u64,
    pub(crate) r10: u64,
    pub(crate) r9: u64,
    pub(crate) r8: u64,
    pub(crate) rdi: u64,
    pub(crate) rsi: u64,
    pub(crate) rbp: u64,
    pub(crate) rbx: u64,
    pub(crate) rdx: u64,
    pub(crate) rcx: u64,
    pub(crate) rax: u64,
    pub(crate) vector: u64,
    pub(crate) error: u64,
    pub(crate) rip: u64,
    pub(crate) cs: u64,
    pub(crate) rflags: u64,
    pub(crate) rsp: u64,
    pub(crate) ss: u64,
}

/// What FXSAVE keeps: x87 and SSE.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub(crate) struct Floats(pub(crate) [u8; 512]);

/// The upper halves of AVX registers, 16 bytes each.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub(crate) struct Uppers(pub(crate) [u8; 256]);

impl Floats {
    /// x87 and SSE as a program finds them.
    pub(crate) const FRESH: Floats = {
        let mut image = [0; 512];
        [image[0], image[1]] = [0x7f, 0x03]; // the control word
        [image[24], image[25]] = [0x80, 0x1f]; // MXCSR
        Floats(image)
    };
}

impl Uppers {
    /// AVX as a program finds it.
    pub(crate) const FRESH: Uppers = Uppers([0; 256]);
}

/// A program's registers while it is not in ring 3, and for how long it was there. `trap.s` writes
/// them where ring 3 is left, and reads them where it is entered.
#[repr(C)]
pub(crate) struct Kept {
    pub(crate) registers: UnsafeCell<Frame>,
    /// The tick at which ring 3 was entered, and ticks there.
    entered: Cell<u64>,
    pub(crate) user: AtomicU64,
    pub(crate) floats: UnsafeCell<Floats>,
    /// As they were when another thread came: the kernel leaves them alone (`trap::T6`).
    pub(crate) uppers: UnsafeCell<Uppers>,
}

/// Offsets for the assembly, which has the registers first.
pub(crate) const ENTERED: usize = offset_of!(Kept, entered);
pub(crate) const USER: usize = offset_of!(Kept, user);
pub(crate) const FLOATS: usize = offset_of!(Kept, floats);
const _: () = assert!(offset_of!(Kept, registers) == 0);

impl Kept {
    pub(crate) const fn new(registers: Frame) -> Kept {
        Kept {
            registers: UnsafeCell::new(registers),
            entered: Cell::new(0),
            user: AtomicU64::new(0),
            floats: UnsafeCell::new(Floats::FRESH),
            uppers: UnsafeCell::new(Uppers::FRESH),
        }
    }
}
