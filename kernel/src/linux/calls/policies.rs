//! Calls about memory policies, and about which node memory is on: there is one, and all is there.

use super::super::process::{self, Held};
use super::super::sched::Runs;
use super::super::signal::CUT;
use super::super::thread::Thread;
use super::super::user;
use super::Answer;
use alloc::sync::Arc;
use foliant_linux::Errno;
use foliant_linux::capabilities::Capability;
use foliant_linux::credentials::By;
use foliant_linux::mempolicy::{
    MPOL_F_ADDR, MPOL_F_MEMS_ALLOWED, MPOL_F_NODE, MPOL_MF_MOVE, MPOL_MF_MOVE_ALL, Mempolicy, Mode,
    Nodes,
};
use linux_raw_sys::errno::{EINVAL, ENODEV, EPERM, ESRCH};

type Six = [u64; 6];

/// The node that there is.
const NODE: u32 = 0;
/// Bytes of an address.
const ADDRESS: u64 = 8;
/// Bytes of a node's number, and of what is told of a page.
const WORD: u64 = 4;

/// A mask of nodes that a program has at an address.
fn nodes(at: u64, count: u64) -> Result<Nodes, Errno> {
    Nodes::read(at, count, user::get)
}

pub(super) fn set_mempolicy(thread: &Arc<Thread>, [mode, mask, count, ..]: Six) -> Answer {
    let mode = Mode::of(mode as u32)?;
    let policy = mode.over(&nodes(mask, count)?)?;
    *thread.policy.lock() = policy;
    Ok(0)
}
pub(super) fn get_mempolicy(
    thread: &Arc<Thread>,
    [mode_at, mask, count, addr, flags, _]: Six,
) -> Answer {
    if mask != 0 && count == 0 {
        return Err(Errno(EINVAL));
    }
    let (mode, nodes) = told(thread, addr, flags)?;
    if mode_at != 0 {
        user::put(mode_at, &mode)?;
    }
    if mask != 0 {
        nodes.write(mask, count, |at, word| user::put(at, &word))?;
    }
    Ok(0)
}
/// A mode, or a node in its place, and nodes.
fn told(thread: &Arc<Thread>, addr: u64, flags: u64) -> Result<(u32, Nodes), Errno> {
    let asks = |flag: u32| flags & u64::from(flag) != 0;
    let is_wrong = match flags & u64::from(MPOL_F_MEMS_ALLOWED) {
        0 => flags & !u64::from(MPOL_F_NODE | MPOL_F_ADDR) != 0 || addr != 0 && !asks(MPOL_F_ADDR),
        allowed => flags != allowed,
    };
    if is_wrong {
        return Err(Errno(EINVAL));
    }
    if asks(MPOL_F_MEMS_ALLOWED) {
        return Ok((0, Nodes::ALL));
    }
    let policy = match asks(MPOL_F_ADDR) {
        true => {
            thread.process.with_memory(|memory| memory.policy_at(addr).map(Option::<&_>::copied))?
        }
        false => *thread.policy.lock(),
    };
    let (mode, nodes) = Mempolicy::told(policy.as_ref());
    if !asks(MPOL_F_NODE) {
        return Ok((mode, nodes));
    }
    match asks(MPOL_F_ADDR) {
        // The page comes as if it were read.
        true => drop(user::get::<u8>(addr)?),
        false if policy.is_some_and(|policy| policy.takes_turns()) => {}
        false => return Err(Errno(EINVAL)),
    }
    Ok((NODE, nodes))
}

/// Refuses to move what others have as well for whoever is not root.
fn may_move_all(thread: &Arc<Thread>, flags: u64) -> Result<(), Errno> {
    if flags as u32 & MPOL_MF_MOVE_ALL != 0 { thread.needs(Capability::SysNice) } else { Ok(()) }
}
pub(super) fn mbind(thread: &Arc<Thread>, [at, bytes, mode, mask, count, flags]: Six) -> Answer {
    let (mode, nodes) = (Mode::of(mode as u32)?, nodes(mask, count)?);
    may_move_all(thread, flags)?;
    let bind =
        |memory: &mut super::super::Memory| memory.mbind(at, bytes, mode, &nodes, flags as u32);
    thread.process.with_memory_alone(bind)
}
pub(super) fn set_mempolicy_home_node(
    thread: &Arc<Thread>,
    [at, bytes, node, flags, ..]: Six,
) -> Answer {
    thread.process.with_memory_alone(|memory| memory.set_home_node(at, bytes, node, flags))
}

/// The memory of a process that a number is of, or of one of its threads; 0 is the caller's.
fn memory_of(thread: &Arc<Thread>, id: u64) -> Result<Option<Arc<Held>>, Errno> {
    let id = id as u32;
    let has = |process: &process::Process| {
        process.id == id || process.threads.lock().iter().any(|thread| thread.id() == id)
    };
    let process = match id {
        0 => Some(thread.process.clone()),
        _ => process::all().into_iter().find(|process| has(process)),
    };
    let process = process.ok_or(Errno(ESRCH))?;
    if !thread.may_look_at(&process, By::Call) {
        return Err(Errno(EPERM));
    }
    Ok(process.memory())
}
/// Moves nothing: it is there already.
pub(super) fn migrate_pages(thread: &Arc<Thread>, [id, count, from, to, ..]: Six) -> Answer {
    nodes(from, count)?;
    let to = nodes(to, count)?;
    match memory_of(thread, id)? {
        Some(_) if to.has_memory() => Ok(0),
        _ => Err(Errno(EINVAL)),
    }
}
/// Tells of pages where they are. Each is where it is to go, or cannot go there.
pub(super) fn move_pages(
    thread: &Arc<Thread>,
    [id, count, pages, nodes, status, flags]: Six,
) -> Answer {
    if flags as u32 & !(MPOL_MF_MOVE | MPOL_MF_MOVE_ALL) != 0 {
        return Err(Errno(EINVAL));
    }
    may_move_all(thread, flags)?;
    let memory = memory_of(thread, id)?.ok_or(Errno(EINVAL))?;
    for nth in 0..count {
        if thread.is_over() {
            return Err(CUT);
        }
        let word = |at: u64| at.wrapping_add(nth.wrapping_mul(WORD));
        let page: u64 = user::get(pages.wrapping_add(nth.wrapping_mul(ADDRESS)))?;
        if nodes != 0 && user::get::<u32>(word(nodes))? != NODE {
            return Err(Errno(ENODEV));
        }
        let found = memory.with(|memory| memory.page_status(page));
        user::put(word(status), &found.word())?;
    }
    Ok(0)
}
