//! x87, SSE and AVX registers as a handler of a signal finds them: what XSAVE would have left.
//!
//! ```text
//!   0 FXSAVE, with words for software at 464 · 512 header · 576 upper halves · 832 a mark
//! ```
//!
//! Where there is no AVX the first part is all, without those words.

use super::thread::Thread;
use super::user;
use crate::cpu;
use crate::frame::{Floats, Uppers};
use alloc::vec::Vec;
use foliant_linux::Errno;

/// Linux's marks: there are words for software, and the end.
const MAGIC_1: u32 = 0x4650_5853;
const MAGIC_2: u32 = 0x4650_5845;
/// Where its parts lie, and where they end.
const SOFTWARE: usize = 464;
const HEADER: usize = size_of::<Floats>();
const UPPERS: usize = HEADER + 64;
const END: usize = UPPERS + size_of::<Uppers>();
/// With the mark behind them.
const WHOLE: usize = END + 4;

/// The parts that there are, a bit each: x87, SSE, AVX.
const PARTS: u64 = 0b111;
const AVX: u64 = 0b100;
const X87_AND_SSE: u64 = 0b11;

/// Bytes that are put on a stack.
pub(super) fn size() -> usize {
    if cpu::is_wide() { WHOLE } else { HEADER }
}

/// Puts there what the running thread has in these registers, and clears them.
pub(super) fn put(thread: &Thread, at: u64) -> Result<(), Errno> {
    let mut image = Vec::with_capacity(size());
    image.extend(thread.floats().0);
    if cpu::is_wide() {
        image.truncate(SOFTWARE);
        image.extend(MAGIC_1.to_le_bytes());
        image.extend((WHOLE as u32).to_le_bytes());
        image.extend(PARTS.to_le_bytes());
        image.extend((END as u32).to_le_bytes());
        image.resize(HEADER, 0);
        image.extend(PARTS.to_le_bytes());
        image.resize(UPPERS, 0);
        image.extend(cpu::uppers().0);
        image.extend(MAGIC_2.to_le_bytes());
    }
    user::put_bytes(at, &image)?;
    thread.set_floats(Floats::FRESH);
    cpu::set_uppers(&Uppers::FRESH);
    Ok(())
}

/// Gives the running thread what is there. A part that the header does not name is as a program
/// finds it; what has no words for software is the first part alone.
pub(super) fn get(thread: &Thread, at: u64) -> Result<(), Errno> {
    let image = user::get_bytes(at, HEADER)?;
    let mut floats = Floats::FRESH;
    floats.0.copy_from_slice(&image);
    let mut uppers = Uppers::FRESH;
    let word =
        |at: usize| u32::from_le_bytes([image[at], image[at + 1], image[at + 2], image[at + 3]]);
    let is_whole = word(SOFTWARE) == MAGIC_1
        && word(SOFTWARE + 4) == WHOLE as u32
        && word(SOFTWARE + 16) == END as u32
        && user::get::<u32>(at + END as u64)? == MAGIC_2;
    if cpu::is_wide() && is_whole {
        let parts: u64 = user::get(at + HEADER as u64)?;
        if parts & X87_AND_SSE == 0 {
            floats = Floats::FRESH;
        }
        if parts & AVX != 0 {
            uppers.0.copy_from_slice(&user::get_bytes(at + UPPERS as u64, size_of::<Uppers>())?);
        }
    }
    thread.set_floats(floats);
    cpu::set_uppers(&uppers);
    Ok(())
}
