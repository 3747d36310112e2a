//! The bytes that are typed, one after the other.
//!
//! The serial line raises input 4 of the I/O APIC when a byte is there, and that ends the halt in
//! which CPU 0 waits: an idle shell costs its host nothing. Where no I/O APIC answers, the CPU asks
//! over and over.
//!
//! A command that takes long asks between any two pieces of its work whether Ctrl-C was typed
//! ([`is_interrupted`]). What was typed besides waits for the next line; Ctrl-C drops it, as a
//! terminal does.
//!
//! **Invariants**
//! - K1. The input is an edge: it comes again only after the line was read empty. So the CPU halts
//!   only after a read that found nothing, and looks once more with interrupts out
//!   (`smp::halt_until`).
//! - K2. Bytes come out in the order in which they were typed, and none is lost but by Ctrl-C:
//!   where no more can wait here, the rest waits in the line.
//!
//! **Locking**: one lock for what waits. Whoever finds it held does not wait.
#![allow(unsafe_code)]

use crate::layout;
use crate::memory::{apic_id, manager};
use crate::{apic, serial, smp};
use core::sync::atomic::{AtomicBool, Ordering};
use foliant::manager::KernelMapError;
use foliant::table::Attrs;
use foliant_units::{Bytes, Cpu, FRAME_BYTES, Pa};
use spin::Mutex;

/// Where the chipsets of PCs have the first I/O APIC.
const REGISTERS: Pa = Pa::new(0xfec0_0000);
/// Its input for the first serial line.
const INPUT: u32 = 4;
/// The low word of the first input's entry; the high one is next.
const ENTRIES: u32 = 0x10;

/// Bytes that can wait.
const ROOM: usize = 1024;
const CONTROL_C: u8 = 3;

/// What was typed while a command ran, a ring.
struct Ahead {
    bytes: [u8; ROOM],
    first: usize,
    len: usize,
}

static AHEAD: Mutex<Ahead> = Mutex::new(Ahead { bytes: [0; ROOM], first: 0, len: 0 });
/// There is a shell.
static LISTENS: AtomicBool = AtomicBool::new(false);
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

impl Ahead {
    fn put(&mut self, byte: u8) {
        self.bytes[(self.first + self.len) % ROOM] = byte;
        self.len += 1;
    }
    fn take(&mut self) -> Option<u8> {
        self.len = self.len.checked_sub(1)?;
        let byte = self.bytes[self.first];
        self.first = (self.first + 1) % ROOM;
        Some(byte)
    }
}

/// Whether Ctrl-C was typed since the command began. Any CPU may ask. Where there is no shell
/// nobody listens.
pub(crate) fn is_interrupted() -> bool {
    if LISTENS.load(Ordering::Relaxed)
        && let Some(mut ahead) = AHEAD.try_lock()
    {
        while ahead.len < ROOM
            && let Some(byte) = serial::read()
        {
            if byte == CONTROL_C {
                ahead.len = 0;
                INTERRUPTED.store(true, Ordering::Relaxed);
            } else {
                ahead.put(byte);
            }
        }
    }
    INTERRUPTED.load(Ordering::Relaxed)
}

/// A command begins, and nobody has interrupted it.
pub(super) fn begin() {
    INTERRUPTED.store(false, Ordering::Relaxed);
}

/// How to wait for a byte.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    Halt,
    Ask,
}

/// Where bytes come from.
pub(super) struct Keyboard {
    wait: Wait,
}

impl Keyboard {
    /// Makes the calling CPU the one that is woken.
    pub(super) fn start() -> Result<Keyboard, KernelMapError> {
        let page = layout::range(layout::IO_APIC, Bytes::new(FRAME_BYTES));
        let attrs = Attrs::WRITE | Attrs::DEVICE | Attrs::GLOBAL | Attrs::TOUCHED;
        manager().map_kernel(page, REGISTERS.frame(), attrs)?;
        LISTENS.store(true, Ordering::Relaxed);
        Ok(Keyboard { wait: if route(crate::cpu::me()) { Wait::Halt } else { Wait::Ask } })
    }

    /// The next byte.
    pub(super) fn next(&self) -> u8 {
        loop {
            let waiting = AHEAD.lock().take();
            if let Some(byte) = waiting.or_else(serial::read) {
                return byte;
            }
            match self.wait {
                Wait::Halt => smp::halt_until(serial::has_byte),
                Wait::Ask => core::hint::spin_loop(),
            }
        }
    }
}

/// Sends the input to `cpu`, by the interrupt that ends a halt. Whether there is an I/O APIC that
/// takes it.
fn route(cpu: Cpu) -> bool {
    let id = apic_id(cpu).0;
    let (low, high) = (u32::from(apic::WAKE), id << 24);
    let entry = ENTRIES + 2 * INPUT;
    write(entry + 1, high);
    write(entry, low);
    let taken = id < 1 << 8 && read(entry) == low && read(entry + 1) == high;
    if taken {
        serial::interrupt_on_byte();
    }
    taken
}

fn register(offset: u64) -> *mut u32 {
    layout::IO_APIC.add(offset).get() as *mut u32
}

fn write(index: u32, value: u32) {
    // SAFETY: `start` mapped the registers; the first selects a register, which changes nothing.
    unsafe { register(0).write_volatile(index) };
    // SAFETY: as above; the entry of an input that nobody else uses.
    unsafe { register(0x10).write_volatile(value) };
}

fn read(index: u32) -> u32 {
    // SAFETY: as in `write`.
    unsafe { register(0).write_volatile(index) };
    // SAFETY: as in `write`; reading changes nothing.
    unsafe { register(0x10).read_volatile() }
}
