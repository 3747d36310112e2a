//! Calls about the machine.

use super::super::signal::Ended;
use super::super::thread::Thread;
use super::super::{VERSION, clock, process, random, texts, trivia, user};
use super::Answer;
use super::numbers::{CAPABILITY_VERSION_1, CAPABILITY_VERSION_2, CAPABILITY_VERSION_3};
use crate::memory::manager;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use foliant_linux::Errno;
use linux_raw_sys::errno::{EINVAL, EPERM, ESRCH};
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
    thread.needs_root()?;
    set_name(&trivia::HOST, at, bytes)
}
pub(super) fn setdomainname(thread: &Arc<Thread>, [at, bytes, ..]: Six) -> Answer {
    thread.needs_root()?;
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
    thread.needs_root()?;
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

/// All that there is, in two words: what root has, and nobody else.
const CAPABILITIES: [u32; 2] = [u32::MAX, (1 << 9) - 1];

/// How many words a version of the calls about capabilities has.
fn words_of(at: u64) -> Result<u64, Errno> {
    match user::get::<u32>(at)? {
        CAPABILITY_VERSION_1 => Ok(1),
        CAPABILITY_VERSION_2 | CAPABILITY_VERSION_3 => Ok(2),
        _ => {
            user::put(at, &CAPABILITY_VERSION_3)?;
            Err(Errno(EINVAL))
        }
    }
}
pub(super) fn capget(thread: &Arc<Thread>, [head, into, ..]: Six) -> Answer {
    let words = match words_of(head) {
        Err(Errno(EINVAL)) if into == 0 => return Ok(0),
        words => words?,
    };
    let id: u32 = user::get(head.wrapping_add(4))?;
    let whose = match id {
        0 => thread.credentials(),
        id => process::of_id(id).ok_or(Errno(ESRCH))?.credentials.get(),
    };
    for (nth, all) in (0..words).zip(CAPABILITIES) {
        // Those in force, those that may be, and those that programs inherit.
        let told = [(whose.is_root(), all), (whose.is_permitted_root(), all), (false, 0)];
        let told = told.map(|(has, all)| if has { all } else { 0 });
        let bytes: alloc::vec::Vec<u8> = told.iter().flat_map(|word| word.to_le_bytes()).collect();
        user::put_bytes(into.wrapping_add(nth * bytes.len() as u64), &bytes)?;
    }
    Ok(0)
}
/// Nobody gets rid of any, nor has more than by being root: what is asked for is looked at.
pub(super) fn capset(thread: &Arc<Thread>, [head, from, ..]: Six) -> Answer {
    let words = words_of(head)?;
    let id: u32 = user::get(head.wrapping_add(4))?;
    if id != 0 && id != thread.process.id {
        return Err(Errno(EPERM));
    }
    let own = thread.credentials();
    for (nth, all) in (0..words).zip(CAPABILITIES) {
        let [effective, permitted] = user::get::<[u32; 2]>(from.wrapping_add(nth * 12))?;
        let beyond = |asked: u32, has: bool| asked & !(if has { all } else { 0 }) != 0;
        if beyond(effective, own.is_root()) || beyond(permitted, own.is_permitted_root()) {
            return Err(Errno(EPERM));
        }
    }
    Ok(0)
}
