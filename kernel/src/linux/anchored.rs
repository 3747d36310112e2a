//! `/sys/kernel/debug/gup_test`: pages that stay anchored while a test of copy-on-write looks at
//! what is in them, and how long it takes to get pages and to let go of them.
//!
//! ```text
//!   START ─▶ anchors of a range of the caller's ── READ: what is in the pages ─▶ STOP, or closed
//!   MEASURED ─▶ anchors of it, so many pages a call ─▶ let go; both in microseconds
//! ```
//!
//! Linux has six ways that are measured, to keep pages and to anchor them, with its locks and
//! without. Here there is one way, and it is the one that anchors.
//!
//! **Locking**: a lock for what is anchored, which parks; a memory's own inside of it.

use super::channel::Channel;
use super::parking::Parking;
use super::process::{self, Held};
use super::{clock, sched, user};
use crate::memory::{Format, Machine};
use crate::running::Origin;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use foliant::fault::Access;
use foliant::manager::Anchor;
use foliant_linux::{Errno, Fault};
use foliant_units::{Bytes, FRAME_BYTES};
use linux_raw_sys::errno::{EFAULT, EHWPOISON, EINVAL, ENOMEM, ESRCH};

/// `PIN_LONGTERM_TEST_START`, `_STOP` and `_READ`; the first takes an address, a size and flags.
const START: u32 = 1 << 30 | 24 << 16 | 0x67 << 8 | 7;
const STOP: u32 = 0x67 << 8 | 8;
const READ: u32 = 1 << 30 | 8 << 16 | 0x67 << 8 | 9;
/// `GUP_FAST_BENCHMARK` up to `DUMP_USER_PAGES_TEST`, which take a [`Measured`].
const MEASURED: [u32; 6] = {
    let mut all = [3 << 30 | (size_of::<Measured>() as u32) << 16 | 0x67 << 8; 6];
    let mut nth = 0;
    while nth < all.len() {
        all[nth] |= nth as u32 + 1;
        nth += 1;
    }
    all
};

/// What a measurement takes and gives: the microseconds that it took to get the pages and to let go
/// of them; the range, of which the size is what was gone over; pages of a call and flags; and what
/// is not looked at.
type Measured = [u64; 10];

/// What the flags ask for: pages to write to, and a way that takes no lock, which is the one here.
const WRITE: u64 = 1;
const FAST: u64 = 2;

type Anchors = Vec<Anchor<'static, 'static, Machine, Format>>;

/// What is anchored, by one test at a time.
static HELD: Parking<Option<Anchors>> = Parking::new(None);

/// The name.
pub(super) struct Anchored;
/// An opened file: closed, it ends the test.
struct Opened;

impl Channel for Anchored {
    fn open(self: Arc<Self>, _: u32) -> Result<Arc<dyn Channel>, Errno> {
        Ok(Arc::new(Opened))
    }
}

impl Channel for Opened {
    fn ioctl(&self, request: u32, at: u64) -> Result<u64, Errno> {
        match request {
            START => start(at),
            STOP => {
                stop();
                Ok(0)
            }
            READ => read(at),
            _ if MEASURED.contains(&request) => measure(at),
            _ => Err(Errno(EINVAL)),
        }
    }
    fn label(&self, _: u64) -> String {
        String::from("/sys/kernel/debug/gup_test")
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        stop();
    }
}

fn start(asked: u64) -> Result<u64, Errno> {
    let mut held = HELD.lock();
    if held.is_some() {
        return Err(Errno(EINVAL));
    }
    let [start, bytes, flags] = user::get::<[u64; 3]>(asked)?;
    let flags = flags & u64::from(u32::MAX); // padding behind them
    let is_odd = !(start | bytes).is_multiple_of(FRAME_BYTES);
    if flags & !(WRITE | FAST) != 0 || is_odd || bytes == 0 || bytes > i64::MAX as u64 {
        return Err(Errno(EINVAL));
    }
    let end = start.checked_add(bytes).ok_or(Errno(EFAULT))?;
    let (memory, mut anchors) = (of_caller()?, Anchors::new());
    anchor_all(&memory, (start, end), access_of(flags), &mut anchors).1?;
    *held = Some(anchors);
    Ok(0)
}
/// Measures how long it takes to anchor the pages of a range, in calls of so many pages, and to let
/// go of them. As Linux it ends with the first call that gets fewer, which counts where it gets
/// any.
fn measure(asked: u64) -> Result<u64, Errno> {
    let mut measured = user::get::<Measured>(asked)?;
    let [_, _, start, bytes, how, ..] = measured;
    let (a_call, access) = ((how & u64::from(u32::MAX)) * FRAME_BYTES, access_of(how >> 32));
    let end = start.checked_add(bytes).ok_or(Errno(EINVAL))?;
    let (memory, mut anchors) = (of_caller()?, Anchors::new());
    let begun = clock::uptime();
    let mut next = start;
    while next < end && a_call > 0 {
        let upto = next.saturating_add(a_call).min(end);
        let from = next - next % FRAME_BYTES;
        let (at, done) = anchor_all(&memory, (from, upto), access, &mut anchors);
        if at == from {
            break;
        }
        next = upto;
        if done.is_err() {
            break;
        }
    }
    let got = clock::uptime();
    drop(anchors);
    let let_go = clock::uptime();
    [measured[0], measured[1]] = [(got - begun) / 1000, (let_go - got) / 1000];
    measured[3] = next - start;
    user::put(asked, &measured)?;
    Ok(0)
}
fn of_caller() -> Result<Arc<Held>, Errno> {
    let caller = process::of_id(sched::current().process_id());
    caller.and_then(|caller| caller.memory()).ok_or(Errno(ESRCH))
}
fn access_of(flags: u64) -> Access {
    if flags & WRITE != 0 { Access::Write } else { Access::Read }
}
/// Anchors a range part by part. Says how far that came, and why it did not come to the end.
fn anchor_all(
    memory: &Arc<Held>,
    (start, end): (u64, u64),
    access: Access,
    anchors: &mut Anchors,
) -> (u64, Result<(), Errno>) {
    let mut at = start;
    while at < end {
        let anchor = match anchor(memory, (at, end), access) {
            Ok(anchor) => anchor,
            Err(why) => return (at, Err(why)),
        };
        if anchors.try_reserve(1).is_err() {
            return (at, Err(Errno(ENOMEM)));
        }
        at += anchor.frames().pages().get() * FRAME_BYTES;
        anchors.push(anchor);
    }
    (at, Ok(()))
}
/// The first part of a range.
fn anchor(
    memory: &Arc<Held>,
    (at, end): (u64, u64),
    access: Access,
) -> Result<Anchor<'static, 'static, Machine, Format>, Errno> {
    loop {
        let fault = match memory.with_alone(|memory| memory.anchor(at, end, access)) {
            Ok(anchor) => return Ok(anchor),
            Err(fault) => fault,
        };
        match fault {
            Fault::Told(told) => {
                memory.wait_told(&told, Origin::Kernel).map_err(|_| Errno(EFAULT))?
            }
            Fault::OutOfMemory => return Err(Errno(ENOMEM)),
            Fault::Signal(signal) if signal.lsb > 0 => return Err(Errno(EHWPOISON)),
            Fault::Signal(_) | Fault::Done | Fault::Alone => return Err(Errno(EFAULT)),
        }
    }
}

fn stop() {
    let held = HELD.lock().take();
    drop(held);
}

/// Copies what is in the pages to the caller.
fn read(asked: u64) -> Result<u64, Errno> {
    let held = HELD.lock();
    let anchors = held.as_ref().ok_or(Errno(EINVAL))?;
    let mut at = user::get::<u64>(asked)?;
    let mut page = alloc::vec![0; FRAME_BYTES as usize];
    for anchor in anchors {
        for nth in 0..anchor.frames().pages().get() {
            anchor.read(Bytes::new(nth * FRAME_BYTES), &mut page);
            user::put_bytes(at, &page)?;
            at = at.wrapping_add(FRAME_BYTES);
        }
    }
    Ok(0)
}
