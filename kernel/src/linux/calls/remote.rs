//! Calls about the memory of another process.

use super::super::opened::{Descriptor, NO_KIND, Opened};
use super::super::pidfd::Pidfd;
use super::super::process::{self, Process};
use super::super::remote;
use super::super::signal::{Info, SIGNALS};
use super::super::thread::Thread;
use super::super::user::{self, Buffer};
use super::Answer;
use super::bytes::{buffers, opened};
use crate::reach;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use foliant_linux::capabilities::Capability;
use foliant_linux::credentials::By;
use foliant_linux::{Adviser, Errno};
use linux_raw_sys::errno::{EACCES, EBADF, EINVAL, ESRCH};
use linux_raw_sys::general::{O_NONBLOCK, O_RDWR};

type Six = [u64; 6];

const PIECE: usize = 4096;
/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Here,
    There,
}

fn transfer(thread: &Thread, [id, own, owns, other, others, flags]: Six, way: Way) -> Answer {
    if flags != 0 {
        return Err(Errno(EINVAL));
    }
    let (mut own, mut other) = (buffers(own, owns)?, buffers(other, others)?);
    let process = process::of_id(id as u32).ok_or(Errno(ESRCH))?;
    let memory = process.memory().ok_or(Errno(ESRCH))?;
    if !thread.may_look_at(&process, By::Call) {
        return Err(Errno::PERM);
    }
    let (mut own, mut other) = (own.iter_mut(), other.iter_mut());
    let (mut here, mut there) = (Buffer { at: 0, bytes: 0 }, Buffer { at: 0, bytes: 0 });
    let mut done = 0;
    let mut piece = alloc::vec![0; PIECE];
    loop {
        while here.bytes == 0 {
            let Some(next) = own.next() else { return Ok(done) };
            here = *next;
        }
        while there.bytes == 0 {
            let Some(next) = other.next() else { return Ok(done) };
            there = *next;
        }
        let count = here.bytes.min(there.bytes).min(PIECE as u64) as usize;
        let piece = &mut piece[..count];
        let moved = match way {
            Way::Here => remote::get(&memory, piece, there.at)
                .map(|came| reach::put(here.at, &piece[..came])),
            Way::There => match reach::get(piece, here.at) {
                0 => Err(Errno::FAULT),
                came => remote::put(&memory, there.at, &piece[..came]),
            },
        };
        let moved = match moved {
            Ok(0) | Err(_) if done == 0 => return Err(moved.err().unwrap_or(Errno::FAULT)),
            Ok(0) | Err(_) => return Ok(done),
            Ok(moved) => moved as u64,
        };
        done += moved;
        for side in [&mut here, &mut there] {
            (side.at, side.bytes) = (side.at.wrapping_add(moved), side.bytes - moved);
        }
        if moved < count as u64 {
            return Ok(done);
        }
    }
}
pub(super) fn process_vm_readv(thread: &Arc<Thread>, asked: Six) -> Answer {
    transfer(thread, asked, Way::Here)
}
pub(super) fn process_vm_writev(thread: &Arc<Thread>, asked: Six) -> Answer {
    transfer(thread, asked, Way::There)
}

pub(super) fn pidfd_open(thread: &Arc<Thread>, [id, flags, ..]: Six) -> Answer {
    let flags = flags as u32;
    if flags & !O_NONBLOCK != 0 || id as i32 <= 0 {
        return Err(Errno(EINVAL));
    }
    let process = process::of_id(id as u32).ok_or(Errno(ESRCH))?;
    add_pidfd(thread, process, flags)
}
/// Gives a thread's process a descriptor of a process.
pub(super) fn add_pidfd(thread: &Arc<Thread>, process: Arc<Process>, flags: u32) -> Answer {
    let opened = Opened::of_channel(Pidfd::of(process), NO_KIND, O_RDWR | flags);
    thread.process.descriptors.lock().add(0, Descriptor { opened, closes: true })
}
/// The process that a descriptor is of.
fn of_descriptor(thread: &Arc<Thread>, number: u64) -> Result<Arc<Process>, Errno> {
    let opened = opened(thread, number)?;
    let channel: &dyn Any = &**opened.channel().ok_or(Errno(EBADF))?;
    let pidfd = channel.downcast_ref::<Pidfd>().ok_or(Errno(EBADF))?;
    Ok(pidfd.process().clone())
}
pub(super) fn process_madvise(
    thread: &Arc<Thread>,
    [number, at, count, advice, flags, _]: Six,
) -> Answer {
    let ranges: Vec<(u64, u64)> =
        buffers(at, count)?.into_iter().map(|it| (it.at, it.bytes)).collect();
    let process = of_descriptor(thread, number)?;
    let by = if Arc::ptr_eq(&process, &thread.process) { Adviser::Itself } else { Adviser::Other };
    let memory = process.memory().ok_or(Errno(ESRCH))?;
    if by == Adviser::Other {
        if !thread.may_look_at(&process, By::Files) {
            return Err(Errno(EACCES));
        }
        thread.needs(Capability::SysNice)?;
    }
    memory.with_alone(|memory| memory.process_madvise(&ranges, advice as u32, flags as u32, by))
}
pub(super) fn pidfd_send_signal(
    thread: &Arc<Thread>,
    [number, signal, info, flags, ..]: Six,
) -> Answer {
    let process = of_descriptor(thread, number)?;
    let signal = signal as u32;
    if flags != 0 || signal > SIGNALS {
        return Err(Errno(EINVAL));
    }
    if process.is_gone() {
        return Err(Errno(ESRCH));
    }
    let info = match info {
        0 => Info::sent(signal, 0, thread.process.id, thread.credentials().user.real),
        at => user::get::<Info>(at)?,
    };
    if info.number as u32 != signal {
        return Err(Errno(EINVAL));
    }
    // Nobody but a process itself is told that the kernel or a user sent it.
    if info.is_vouched_for() && process.id != thread.process.id {
        return Err(Errno::PERM);
    }
    super::signals::may_send(thread, &process, signal.into())?;
    if signal != 0 {
        process.send(info);
    }
    Ok(0)
}
/// Gives back what a process has that ends: it does so itself, and at once.
pub(super) fn process_mrelease(thread: &Arc<Thread>, [number, flags, ..]: Six) -> Answer {
    if flags != 0 {
        return Err(Errno(EINVAL));
    }
    let process = of_descriptor(thread, number)?;
    match process.ended() {
        Some(_) if process.is_gone() => Err(Errno(ESRCH)),
        Some(_) => Ok(0),
        None => Err(Errno(EINVAL)),
    }
}
