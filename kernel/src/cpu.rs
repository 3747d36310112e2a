//! What each CPU has for itself: descriptor tables, stacks for entries, and a block that GS points
//! to.
//!
//! ```text
//!   GDT   0 null · 08 kernel code · 10 kernel data · 18 user data · 20 user code · 28 task state (two words)
//!   IST1  all entries but these   · IST2  NMI, double fault, machine check
//! ```
//!
//! **Invariants**
//! - C1. GS points to the CPU's block whenever kernel code runs; ring 3 sees another base (`swapgs`
//!   at the border).
//! - C2. A block never moves and lives as long as the kernel: CPU 0's is in the image, the others'
//!   come from Foliant.
//! - C3. Control registers are written whole, never changed from what a loader left: every CPU has
//!   the same ([`Controls`]).

#![allow(unsafe_code)]

use crate::frame::{Kept, Uppers};
use crate::port::{self, write_msr};
use core::arch::asm;
use core::cell::{Cell, UnsafeCell};
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, Ordering};
use foliant_units::Cpu;
use foliant_x86::Features;

/// Selectors of ring 3, with its privilege level.
pub(crate) const USER_DATA: u16 = 0x18 | 3;
pub(crate) const USER_CODE: u16 = 0x20 | 3;
/// Selectors of ring 0.
pub(crate) const KERNEL_CODE: u16 = 0x08;
pub(crate) const KERNEL_DATA: u16 = 0x10;
const TASK: u16 = 0x28;

const FS_BASE: u32 = 0xc000_0100;
const GS_BASE: u32 = 0xc000_0101;
const KERNEL_GS_BASE: u32 = 0xc000_0102;

const ENTRY_STACK: usize = 8192;

#[repr(C, packed)]
struct TaskState {
    reserved_0: u32,
    rsp: [u64; 3],
    reserved_1: u64,
    ist: [u64; 7],
    reserved_2: u64,
    reserved_3: u16,
    io_map: u16,
}

#[repr(C, align(16))]
struct EntryStack(UnsafeCell<[u8; ENTRY_STACK]>);

/// The block of one CPU.
#[repr(C, align(64))]
pub(crate) struct Block {
    /// The block's own address.
    this: *const Block,
    number: u32,
    /// Where the kernel's stack stood when it went to ring 3.
    user_stack: u64,
    /// The lowest address that an entry may use on the kernel's stack.
    stack_low: u64,
    /// Where the kernel's stack stood in `attempt`, or 0.
    attempt_stack: u64,
    /// Where a program's stack stood when it made a call, while its entry has no register to spare.
    call_stack: u64,
    /// Where the registers of the program that answers for itself are kept; null where none runs.
    kept: Cell<*const Kept>,
    /// The space that this CPU runs for a user program, as the page-fault handler finds it.
    pub(crate) user: crate::running::Running,
    gdt: [u64; 7],
    task: TaskState,
    entry: [EntryStack; 2],
}

/// Offsets for the assembly.
pub(crate) const USER_STACK: usize = offset_of!(Block, user_stack);
pub(crate) const STACK_LOW: usize = offset_of!(Block, stack_low);
pub(crate) const ATTEMPT_STACK: usize = offset_of!(Block, attempt_stack);
pub(crate) const CALL_STACK: usize = offset_of!(Block, call_stack);
pub(crate) const KEPT: usize = offset_of!(Block, kept);

/// CPU 0's block.
pub(crate) struct First(UnsafeCell<Block>);
// SAFETY: C1 — CPU 0 alone uses it, through GS.
unsafe impl Sync for First {}
pub(crate) static FIRST: First = First(UnsafeCell::new(Block::new()));

impl First {
    pub(crate) fn get(&self) -> *mut Block {
        self.0.get()
    }
}

#[repr(C, packed)]
struct Pointer(u16, u64);

impl Block {
    pub(crate) const fn new() -> Block {
        Block {
            this: core::ptr::null(),
            number: 0,
            user_stack: 0,
            stack_low: 0,
            attempt_stack: 0,
            call_stack: 0,
            kept: Cell::new(core::ptr::null()),
            user: crate::running::Running::new(),
            gdt: [
                0,
                0x00af_9b00_0000_ffff,
                0x00cf_9300_0000_ffff,
                0x00cf_f300_0000_ffff,
                0x00af_fb00_0000_ffff,
                0,
                0,
            ],
            task: TaskState {
                reserved_0: 0,
                rsp: [0; 3],
                reserved_1: 0,
                ist: [0; 7],
                reserved_2: 0,
                reserved_3: 0,
                io_map: size_of::<TaskState>() as u16,
            },
            entry: [const { EntryStack(UnsafeCell::new([0; ENTRY_STACK])) }; 2],
        }
    }
}

/// Makes `block` the calling CPU's. `stack_low` is the lowest address that entries may use of the
/// stack that it runs on.
///
/// # Safety
/// The block is nobody else's, and stays where it is for good.
pub(crate) unsafe fn adopt(block: *mut Block, number: Cpu, stack_low: u64) {
    // SAFETY: the caller's promise; nothing points to the block yet.
    let own = unsafe { &mut *block };
    own.this = block;
    own.number = number.0.into();
    own.stack_low = stack_low;
    for (stack, entry) in own.entry.iter().enumerate() {
        own.task.ist[stack] = entry.0.get() as u64 + ENTRY_STACK as u64;
    }
    let task = &raw const own.task as u64;
    let limit = size_of::<TaskState>() as u64 - 1;
    own.gdt[5] = limit | (task & 0xff_ffff) << 16 | 0x89 << 40 | (task >> 24 & 0xff) << 56;
    own.gdt[6] = task >> 32;
    let gdt = Pointer(size_of_val(&own.gdt) as u16 - 1, own.gdt.as_ptr() as u64);
    // SAFETY: the table holds the segments that are in use, at the same selectors as before.
    unsafe { asm!("lgdt [{}]", in(reg) &gdt, options(nostack, preserves_flags)) }
    // SAFETY: reloads the stack segment with the data segment of ring 0.
    unsafe { asm!("mov ss, {0:x}", in(reg) KERNEL_DATA, options(nostack, preserves_flags)) }
    // SAFETY: the descriptor was written just now.
    unsafe { asm!("ltr {0:x}", in(reg) TASK, options(nostack, preserves_flags)) }
    // SAFETY: C1.
    unsafe { write_msr(GS_BASE, block as u64) }
    // SAFETY: what ring 3 gets: nothing.
    unsafe { write_msr(KERNEL_GS_BASE, 0) }
    // SAFETY: nothing uses a local descriptor table, or a base of FS.
    unsafe { asm!("lldt {0:x}", in(reg) 0u16, options(nostack, preserves_flags)) }
    // SAFETY: as above.
    unsafe { write_msr(FS_BASE, 0) }
    // SAFETY: no breakpoint is set; the value is the one after reset.
    unsafe { asm!("mov dr7, {}", in(reg) 0x400u64, options(nostack, preserves_flags)) }
    State::KERNEL.load();
}

/// The calling CPU's number.
#[inline]
pub(crate) fn me() -> Cpu {
    let number: u32;
    // SAFETY: C1.
    unsafe {
        asm!("mov {0:e}, gs:[{1}]", out(reg) number, const offset_of!(Block, number), options(nostack, preserves_flags, readonly))
    }
    Cpu(number as u16)
}

/// Where the calling CPU's block is.
pub(crate) fn own_block() -> *const Block {
    word(offset_of!(Block, this)) as *const Block
}

/// A word of the calling CPU's block.
fn word(offset: usize) -> u64 {
    let value;
    // SAFETY: C1; the callers name offsets of words of the block.
    unsafe {
        asm!("mov {0}, gs:[{1}]", out(reg) value, in(reg) offset, options(nostack, preserves_flags, readonly))
    }
    value
}

/// Where the kernel's stack stood when this CPU went to ring 3.
pub(crate) fn user_stack() -> u64 {
    word(USER_STACK)
}
/// Where the kernel's stack stood in `attempt`; 0 where none is under way.
pub(crate) fn attempt_stack() -> u64 {
    word(ATTEMPT_STACK)
}
/// Says from where on entries may use this CPU's stack.
pub(crate) fn set_stack_low(low: u64) {
    // SAFETY: C1.
    unsafe {
        asm!("mov gs:[{0}], {1}", const STACK_LOW, in(reg) low, options(nostack, preserves_flags))
    }
}

/// Says where the registers of the calling CPU's program are kept from now on.
///
/// # Safety
/// They stay there until another place is said, or none.
pub(crate) unsafe fn keep(kept: Option<&Kept>) {
    let block = own_block();
    // SAFETY: C2; the field changes through a cell only, on this CPU only.
    unsafe { &(*block).kept }.set(kept.map_or(core::ptr::null(), |kept| kept));
}
/// Where they are kept.
pub(crate) fn kept() -> Option<&'static Kept> {
    let kept = word(KEPT) as *const Kept;
    // SAFETY: as `keep` was promised.
    unsafe { kept.as_ref() }
}

/// What the calling CPU runs in ring 3.
pub(crate) fn user() -> &'static crate::running::Running {
    let block = own_block();
    // SAFETY: C2; the field changes through cells only, on this CPU only.
    unsafe { &(*block).user }
}

/// How the calling CPU computes: the registers that are neither saved by a caller nor by a callee.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct State {
    mxcsr: u32,
    control: u16,
    flags: u64,
}

impl State {
    /// The kernel's own: nearest, no exception, nothing set that an instruction of the kernel would
    /// heed.
    pub(crate) const KERNEL: State = State { mxcsr: 0x1f80, control: 0x37f, flags: 0 };
    /// Trap, direction, privilege level of I/O, nested task, alignment check (which also opens user
    /// memory), identification.
    const HEEDED: u64 = 1 << 8 | 1 << 10 | 3 << 12 | 1 << 14 | 1 << 18 | 1 << 21;
    /// The flags in MXCSR that say what happened so far.
    const HAPPENED: u32 = 0x3f;

    /// Computes so from now on. The flags are those of compiled code.
    fn load(&self) {
        // SAFETY: compiled code has no x87 state; all exceptions are masked.
        unsafe { asm!("fninit", "fldcw [{}]", in(reg) &raw const self.control, options(nostack)) }
        // SAFETY: as above.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const self.mxcsr, options(nostack)) }
    }

    /// What they are now.
    pub(crate) fn now() -> State {
        let (mut mxcsr, mut control, flags) = (0u32, 0u16, port::flags());
        // SAFETY: stores a register.
        unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut mxcsr, options(nostack, preserves_flags)) }
        // SAFETY: as above.
        unsafe { asm!("fnstcw [{}]", in(reg) &raw mut control, options(nostack, preserves_flags)) }
        State { mxcsr: mxcsr & !State::HAPPENED, control, flags: flags & State::HEEDED }
    }
}

/// The registers that say how a CPU works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Controls {
    cr0: u64,
    cr4: u64,
    efer: u64,
    /// What XSAVE keeps and AVX may be used with; 0 where there is neither.
    xcr0: u64,
}

const EFER: u32 = 0xc000_0080;
const STAR: u32 = 0xc000_0081;
const LSTAR: u32 = 0xc000_0082;
const CALL_MASK: u32 = 0xc000_0084;
const INTERRUPTS: u64 = 1 << 9;

unsafe extern "C" {
    /// Where a program's call begins (trap.s).
    safe fn call_entry();
}

/// Long mode active: the CPU's own answer.
const EFER_LMA: u64 = 1 << 10;
const CR4_PCIDE: u64 = 1 << 17;
/// Bits of XCR0.
const X87: u64 = 1;
const SSE: u64 = 1 << 1;
const AVX: u64 = 1 << 2;
const ALIGNMENT_CHECK: u64 = 1 << 18;

/// Whether the kernel has to say when it reaches user memory.
static GUARDED: AtomicBool = AtomicBool::new(false);
/// Whether programs may use AVX.
static WIDE: AtomicBool = AtomicBool::new(false);

/// What the calling CPU can do, as the kernel uses it: its handlers keep the lower halves of vector
/// registers alone (`trap::T6`).
pub(crate) fn features() -> Features {
    Features::detect().lower_halves()
}

impl Controls {
    /// What CPUs with these features run on, as `foliant-x86` finds it: paging with write
    /// protection for ring 0 as well, no execution of data, no alignment checks; PAE, global pages,
    /// FXSAVE and its exceptions; calls by `syscall`; and against mistakes in ring 0, where there
    /// is any, no execution of and no access to user memory; AVX for ring 3, and nothing wider. No
    /// fifth level, no instruction of ring 3 that names descriptor tables.
    pub(crate) const fn of(features: &Features) -> Controls {
        const CR0: u64 = 1 << 31 | 1 << 16 | 1 << 5 | 1 << 4 | 1 << 1 | 1;
        const CR4: u64 = 1 << 10 | 1 << 9 | 1 << 7 | 1 << 5;
        let umip = (features.umip as u64) << 11;
        let smep = (features.smep as u64) << 20;
        let smap = (features.smap as u64) << 21;
        let xsave = (features.avx as u64) << 18;
        let xcr0 = if features.avx { X87 | SSE | AVX } else { 0 };
        let cr4 = CR4 | umip | smep | smap | xsave;
        Controls { cr0: CR0, cr4, efer: 1 << 11 | 1 << 8 | 1, xcr0 }
    }

    /// Those of the calling CPU. What `foliant-x86` sets where there are tags is left out.
    pub(crate) fn now() -> Controls {
        let (cr0, cr4): (u64, u64);
        // SAFETY: reads registers, in ring 0.
        unsafe { asm!("mov {}, cr0", out(reg) cr0, options(nomem, nostack, preserves_flags)) }
        // SAFETY: as above.
        unsafe { asm!("mov {}, cr4", out(reg) cr4, options(nomem, nostack, preserves_flags)) }
        // SAFETY: every x86-64 CPU has the register.
        let efer = unsafe { port::read_msr(EFER) } & !EFER_LMA;
        let xcr0 = foliant_x86::kept_state();
        Controls { cr0, cr4: cr4 & !CR4_PCIDE, efer, xcr0 }
    }
}

/// Makes the calling CPU work as [`Controls::of`] says. Before `X86::online`, which adds what tags
/// need.
pub(crate) fn protect(features: &Features) {
    let Controls { cr0, cr4, efer, xcr0 } = Controls::of(features);
    GUARDED.store(features.smap, Ordering::Relaxed);
    WIDE.store(features.avx, Ordering::Relaxed);
    // SAFETY: what `boot.s` set, and what CPUID says that there is; nothing of the kernel is mapped
    // for ring 3 and used by ring 0.
    unsafe { asm!("mov cr4, {}", in(reg) cr4, options(nostack, preserves_flags)) }
    // SAFETY: as above.
    unsafe { asm!("mov cr0, {}", in(reg) cr0, options(nostack, preserves_flags)) }
    // SAFETY: as above; the CPU keeps its own bit.
    unsafe { write_msr(EFER, efer) }
    if features.avx {
        // SAFETY: CR4 says that there is the register, and CPUID that there are its bits.
        unsafe {
            asm!("xsetbv", in("ecx") 0, in("eax") xcr0, in("edx") 0, options(nomem, nostack, preserves_flags))
        }
    }
    // SAFETY: the kernel's selectors; the way back is another instruction.
    unsafe { write_msr(STAR, u64::from(KERNEL_CODE) << 32) };
    // SAFETY: the entry for calls.
    unsafe { write_msr(LSTAR, call_entry as *const () as u64) };
    // SAFETY: no flag of ring 3 reaches the kernel, and interrupts are out (trap::T1, trap::T3).
    unsafe { write_msr(CALL_MASK, State::HEEDED | INTERRUPTS) };
}

/// Whether programs may use AVX.
pub(crate) fn is_wide() -> bool {
    WIDE.load(Ordering::Relaxed)
}
/// Says what is in the upper halves of the calling CPU's AVX registers.
pub(crate) fn uppers() -> Uppers {
    let mut uppers = Uppers::FRESH;
    if is_wide() {
        // SAFETY: stores to memory of the right size (`trap.s`).
        unsafe { store_uppers(&raw mut uppers) }
    }
    uppers
}
/// Puts others there.
pub(crate) fn set_uppers(uppers: &Uppers) {
    if is_wide() {
        // SAFETY: loads halves of registers that compiled code of this target does not use.
        unsafe { load_uppers(uppers) }
    }
}
unsafe extern "C" {
    fn store_uppers(to: *mut Uppers);
    fn load_uppers(from: *const Uppers);
}

/// Runs `work`, which may reach user memory; nothing else of the kernel may.
#[inline(always)]
pub(crate) fn reach_user<R>(work: impl FnOnce() -> R) -> R {
    if !GUARDED.load(Ordering::Relaxed) {
        return work();
    }
    // SAFETY: the CPU has the instruction; handlers run without the permission (trap::T3).
    unsafe { asm!("stac", options(nostack)) }
    let result = work();
    // SAFETY: as above.
    unsafe { asm!("clac", options(nostack)) }
    result
}

/// Whether code with these flags may reach user memory.
pub(crate) fn is_reaching_user(flags: u64) -> bool {
    !GUARDED.load(Ordering::Relaxed) || flags & ALIGNMENT_CHECK != 0
}
