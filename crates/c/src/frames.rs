//! The frame allocator alone: blocks of 4 KiB to 1 GiB, for many CPUs, without locks.
#![allow(unsafe_code)]

use crate::error::{Error, answer};
use crate::handle::{self, Handle, Opaque};
use crate::lent::{self, Layout};
use crate::refusal::Refusal;
use crate::status::Status;
use crate::values::{self, Range, Ranges};
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::slice;
use foliant::folio::{CpuCount, Folios, Word};
use foliant_units::Frame;

/// An allocator of frames, in lent memory. It touches no frame that it manages.
pub struct Frames {
    handle: Handle<(), Folios<'static>>,
}

impl Opaque for Frames {
    const TAG: u64 = u64::from_le_bytes(*b"frames 1");
    const NAME: &'static str = "frames";
    type Base = ();
    type Value = Folios<'static>;

    fn handle(&self) -> &Handle<(), Folios<'static>> {
        &self.handle
    }
}

fn count(cpus: u32) -> Result<CpuCount, Refusal> {
    u16::try_from(cpus).map(CpuCount).map_err(|_| Refusal::Cpu(cpus))
}

/// The layout of an allocator, and where its words begin.
fn plan(ranges: &Ranges, cpus: u32) -> Result<(Layout, usize, usize), Refusal> {
    let words = Folios::layout(ranges.get(), count(cpus)?)?.0 as usize;
    let head = size_of::<Frames>().next_multiple_of(align_of::<Word>());
    let bytes = (head + words * size_of::<Word>()) as u64;
    Ok((Layout { bytes, ..Layout::of::<Frames>() }, head, words))
}

/// How much memory an allocator of these ranges needs: some 205 bytes for each 2 MiB.
///
/// # Safety
/// P1, for `count` ranges from `ranges` on too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foliant_frames_layout(
    ranges: *const Range,
    count: usize,
    cpus: u32,
    layout: Option<&mut MaybeUninit<Layout>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || {
        let layout = lent::place(layout, "layout")?;
        // SAFETY: the caller's promise (P1).
        let ranges = Ranges::of("ranges", unsafe { lent::array(ranges, count, "ranges") }?)?;
        layout.write(plan(&ranges, cpus)?.0);
        Ok(())
    };
    answer(error, work())
}

/// Makes an allocator in `memory`, which is lent for as long as the allocator is used and may hold
/// anything. All frames of the ranges are free. The memory must not lie in frames that are still to
/// be allocated: reserve those.
///
/// # Safety
/// P1 and P2: `bytes` from `memory` on are the allocator's from here on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foliant_frames_new(
    memory: *mut c_void,
    bytes: u64,
    ranges: *const Range,
    count: usize,
    cpus: u32,
    frames: Option<&mut MaybeUninit<*const Frames>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || {
        let place = lent::place(frames, "frames")?;
        // SAFETY: the caller's promise (P1).
        let ranges = Ranges::of("ranges", unsafe { lent::array(ranges, count, "ranges") }?)?;
        let (layout, head, words) = plan(&ranges, cpus)?;
        let make = |_: &'static (), at: NonNull<u8>| {
            // SAFETY: `memory` holds `head` bytes and so many words behind them, as the layout
            // says.
            let first = unsafe { at.add(head) }.cast::<Word>();
            // SAFETY: they are lent (P2), and a word of zeros is a word.
            unsafe { first.write_bytes(0, words) };
            // SAFETY: they are zeros now, and nobody else's while the handle is used (P2).
            let meta: &'static [Word] = unsafe { slice::from_raw_parts(first.as_ptr(), words) };
            Ok(Folios::new(ranges.get(), self::count(cpus)?, meta)?)
        };
        // SAFETY: the caller's promise.
        place.write(unsafe { handle::make::<Frames>((memory, bytes), layout, (), make) }?);
        Ok(())
    };
    answer(error, work())
}

/// Takes a block of `order` (0 is 4 KiB, 9 is 2 MiB, 18 is 1 GiB), naturally aligned, for a kind of
/// memory (`enum foliant_class`). Gives the number of its first frame.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_frames_alloc(
    frames: Option<&Frames>,
    cpu: u32,
    order: u32,
    kind: u32,
    frame: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || {
        let (folios, place) = (handle::value(frames)?, lent::place(frame, "frame")?);
        let (cpu, order) = (values::cpu(cpu)?, values::order(order)?);
        place.write(folios.alloc(cpu, order, values::class(kind)?)?.get());
        Ok(())
    };
    answer(error, work())
}

/// Gives a block back, on any CPU.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_frames_free(
    frames: Option<&Frames>,
    cpu: u32,
    frame: u64,
    order: u32,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || {
        let (cpu, order) = (values::cpu(cpu)?, values::order(order)?);
        Ok(handle::value(frames)?.free(cpu, Frame::new(frame), order)?)
    };
    answer(error, work())
}

/// Makes blocks of order `into` of one block: each is given back for itself.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_frames_split(
    frames: Option<&Frames>,
    frame: u64,
    order: u32,
    into: u32,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || {
        let (order, into) = (values::order(order)?, values::order(into)?);
        Ok(handle::value(frames)?.split(Frame::new(frame), order, into)?)
    };
    answer(error, work())
}

/// Takes frames out for good: those of the kernel's image, of the lent memory, broken ones. All
/// must be free.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_frames_reserve(
    frames: Option<&Frames>,
    range: Range,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || Ok(handle::value(frames)?.reserve(range.frames()?)?);
    answer(error, work())
}

/// How many frames are free. Reads one word for each 2 MiB of memory, and 16 more where the 2 MiB
/// are partly used.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_frames_count(
    frames: Option<&Frames>,
    free: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || {
        let (folios, place) = (handle::value(frames)?, lent::place(free, "free")?);
        place.write(folios.free_frames().get());
        Ok(())
    };
    answer(error, work())
}

/// Gives up the blocks that a CPU prefers, so that others find them: for a CPU that goes idle or
/// away.
#[unsafe(no_mangle)]
pub extern "C" fn foliant_frames_drain(
    frames: Option<&Frames>,
    cpu: u32,
    error: Option<&mut MaybeUninit<Error>>,
) -> Status {
    let work = || {
        let (folios, cpu) = (handle::value(frames)?, values::cpu(cpu)?);
        if cpu.0 >= folios.cpus().0 {
            return Err(Refusal::Alloc(foliant::folio::AllocError::UnknownCpu {
                cpu,
                cpus: folios.cpus(),
            }));
        }
        folios.drain(cpu);
        Ok(())
    };
    answer(error, work())
}
