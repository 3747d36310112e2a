//! What an interrupt or exception leaves on the stack.

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
