//! Calls about the machine.

use super::super::signal::Ended;
use super::super::thread::Thread;
use super::super::{VERSION, clock, process, random, texts, trivia, user};
use super::Answer;
use crate::memory::manager;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use foliant_linux::Errno;
use foliant_linux::capabilities::Capability;
use linux_raw_sys::errno::EINVAL;
use linux_raw_sys::general::{
    LINUX_REBOOT_CMD_CAD_OFF, LINUX_REBOOT_CMD_CAD_ON, LINUX_REBOOT_CMD_HALT,
    LINUX_REBOOT_CMD_POWER_OFF, LINUX_REBOOT_CMD_RESTART, LINUX_REBOOT_MAGIC1, LINUX_REBOOT_MAGIC2,
    LINUX_REBOOT_MAGIC2A, LINUX_REBOOT_MAGIC2B, LINUX_REBOOT_MAGIC2C,
};
use linux_raw_sys::system::new_utsname;

type Six = [u64; 6];

/// Bytes that one call of `getrandom` gives.
const RANDOM_MAX: u64 = i32::MAX as u64;
/// What `personality` is asked with to be told alone.
const ASK: u32 = u32::MAX;

pub(super) fn getrandom(_: &Arc<Thread>, [at, bytes, flags, ..]: Six) -> Answer {
    if flags & !7 != 0 {
        return Err(Errno(EINVAL));
    }
    let bytes = bytes.min(RANDOM_MAX);
    let mut piece = [0; 256];
    let mut done = 0;
    while done < bytes {
        let count = piece.len().min((bytes - done) as usize);
        random::fill(&mut piece[..count]);
        user::put_bytes(at.wrapping_add(done), &piece[..count])?;
        done += count as u64;
    }
    Ok(bytes)
}

pub(super) fn uname(_: &Arc<Thread>, [at, ..]: Six) -> Answer {
    let mut out: new_utsname = user::zeros();
    let fill = |field: &mut [core::ffi::c_char; 65], text: &[u8]| {
        for (to, from) in field.iter_mut().zip(text) {
            *to = *from as core::ffi::c_char;
        }
    };
    fill(&mut out.sysname, b"Linux");
    fill(&mut out.nodename, &trivia::HOST.lock());
    fill(&mut out.release, texts::RELEASE.as_bytes());
    fill(&mut out.version, VERSION.as_bytes());
    fill(&mut out.machine, b"x86_64");
    fill(&mut out.domainname, &trivia::DOMAIN.lock());
    user::put(at, &out).map(|()| 0)
}
pub(super) fn sysinfo(_: &Arc<Thread>, [at, ..]: Six) -> Answer {
    let memory = manager().memory();
    let bytes = |pages: foliant_units::Pages| pages.bytes().get();
    let mut words = [0u64; 14];
    words[0] = clock::uptime() / 1_000_000_000;
    words[4] = bytes(memory.managed);
    words[5] = bytes(memory.free);
    words[10] = process::all().len() as u64;
    words[13] = 1; // bytes of a unit
    user::put(at, &words).map(|()| 0)
}

pub(super) fn sethostname(thread: &Arc<Thread>, [at, bytes, ..]: Six) -> Answer {
    thread.needs(Capability::SysAdmin)?;
    set_name(&trivia::HOST, at, bytes)
}
pub(super) fn setdomainname(thread: &Arc<Thread>, [at, bytes, ..]: Six) -> Answer {
    thread.needs(Capability::SysAdmin)?;
    set_name(&trivia::DOMAIN, at, bytes)
}
fn set_name(name: &spin::Mutex<alloc::vec::Vec<u8>>, at: u64, bytes: u64) -> Answer {
    if bytes as i32 > trivia::NAME_MAX as i32 || (bytes as i32) < 0 {
        return Err(Errno(EINVAL));
    }
    let to = user::get_bytes(at, bytes as u32 as usize)?;
    trivia::set(name, &to).map(|()| 0)
}
/// Keeps what is asked for; programs run in the same way in any case.
pub(super) fn personality(thread: &Arc<Thread>, [asked, ..]: Six) -> Answer {
    let own = &thread.process.personality;
    Ok(match asked as u32 {
        ASK => own.load(Ordering::Relaxed),
        asked => own.swap(asked, Ordering::Relaxed),
    }
    .into())
}

/// Ends everything: the power goes off when the first process has ended, and nothing starts the
/// machine again.
pub(super) fn reboot(thread: &Arc<Thread>, [one, two, what, ..]: Six) -> Answer {
    thread.needs(Capability::SysBoot)?;
    const SECOND: [u32; 4] =
        [LINUX_REBOOT_MAGIC2, LINUX_REBOOT_MAGIC2A, LINUX_REBOOT_MAGIC2B, LINUX_REBOOT_MAGIC2C];
    let is_meant = one as u32 == LINUX_REBOOT_MAGIC1 && SECOND.contains(&(two as u32));
    match what as u32 {
        _ if !is_meant => Err(Errno(EINVAL)),
        LINUX_REBOOT_CMD_CAD_OFF | LINUX_REBOOT_CMD_CAD_ON => Ok(0),
        LINUX_REBOOT_CMD_HALT | LINUX_REBOOT_CMD_POWER_OFF | LINUX_REBOOT_CMD_RESTART => {
            process::of_id(1).inspect(|first| first.note_end(Ended::Code(0)));
            Ok(0)
        }
        _ => Err(Errno(EINVAL)),
    }
}
