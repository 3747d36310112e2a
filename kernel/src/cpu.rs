//! What each CPU has for itself: descriptor tables, stacks for entries, and a block that GS points to.
//!
//! ```text
//!   GDT   0 null · 08 kernel code · 10 kernel data · 18 user data · 20 user code · 28 task state (two words)
//!   IST1  all entries but these   · IST2  NMI, double fault, machine check
//! ```
//!
//! **Invariants**
//! - C1. GS points to the CPU's block whenever kernel code runs; ring 3 sees another base (`swapgs` at the border).
//! - C2. A block never moves and lives as long as the kernel: CPU 0's is in the image, the others' come from Foliant.

#![allow(unsafe_code)]

use crate::port::write_msr;
use core::arch::asm;
use core::cell::UnsafeCell;
use core::mem::offset_of;
use foliant_units::Cpu;

/// Selectors of ring 3, with its privilege level.
pub(crate) const USER_DATA: u16 = 0x18 | 3;
pub(crate) const USER_CODE: u16 = 0x20 | 3;
/// Selectors of ring 0.
pub(crate) const KERNEL_CODE: u16 = 0x08;
pub(crate) const KERNEL_DATA: u16 = 0x10;
const TASK: u16 = 0x28;

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
    /// The space that this CPU runs for a user program, as the page-fault handler finds it.
    pub(crate) user: crate::user::Running,
    gdt: [u64; 7],
    task: TaskState,
    entry: [EntryStack; 2],
}

/// Offsets for the assembly.
pub(crate) const USER_STACK: usize = offset_of!(Block, user_stack);
pub(crate) const STACK_LOW: usize = offset_of!(Block, stack_low);
pub(crate) const ATTEMPT_STACK: usize = offset_of!(Block, attempt_stack);

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
            user: crate::user::Running::new(),
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

/// Makes `block` the calling CPU's. `stack_low` is the lowest address that entries may use of the stack that it runs on.
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

/// What the calling CPU runs in ring 3.
pub(crate) fn user() -> &'static crate::user::Running {
    let block = own_block();
    // SAFETY: C2; the field changes through cells only, on this CPU only.
    unsafe { &(*block).user }
}
