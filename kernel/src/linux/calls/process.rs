//! Calls about processes and threads.

use super::super::process::{self, Kin, Member, Process, Reap};
use super::super::sched::{self, Runs};
use super::super::signal::{Became, CUT, Ended, Info, SIGNALS};
use super::super::thread::Thread;
use super::super::{Memory, exec, promises, spending, texts, user};
use super::ids::number;
use super::numbers::{ARCH_GET_FS, ARCH_GET_GS, ARCH_SET_FS, ARCH_SET_GS};
use super::{Answer, capabilities};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use foliant_linux::Errno;
use foliant_linux::capabilities::Capability;
use linux_raw_sys::errno::{E2BIG, ECHILD, EINVAL, EPERM, ESRCH};
use linux_raw_sys::general::{
    __WALL, __WCLONE, __WNOTHREAD, CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID, CLONE_DETACHED,
    CLONE_NEWCGROUP, CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER,
    CLONE_NEWUTS, CLONE_PARENT, CLONE_PARENT_SETTID, CLONE_PIDFD, CLONE_SETTLS, CLONE_SIGHAND,
    CLONE_THREAD, CLONE_VFORK, CLONE_VM, CSIGNAL, P_ALL, P_PGID, P_PID, RLIMIT_NPROC, SIGCHLD,
    WCONTINUED, WEXITED, WNOHANG, WNOWAIT, WSTOPPED, WUNTRACED, clone_args,
};
use linux_raw_sys::prctl::{
    PR_GET_DUMPABLE, PR_GET_NAME, PR_GET_NO_NEW_PRIVS, PR_GET_PDEATHSIG, PR_SET_DUMPABLE,
    PR_SET_NAME, PR_SET_NO_NEW_PRIVS, PR_SET_PDEATHSIG,
};

type Six = [u64; 6];

/// Bytes of one argument, at most.
const TEXT_MAX: usize = 128 << 10;

pub(super) fn exit(thread: &Arc<Thread>, [code, ..]: Six) -> Answer {
    if thread.process.threads.lock().len() == 1 {
        return exit_group(thread, [code, 0, 0, 0, 0, 0]);
    }
    Member::end(&**thread);
    Ok(0)
}
pub(super) fn exit_group(thread: &Arc<Thread>, [code, ..]: Six) -> Answer {
    thread.process.note_end(Ended::Code(code as u8));
    Ok(0)
}

/// The texts that a vector of the program's points to; `room` is what is left for all of them.
fn texts_at(at: u64, room: &mut usize) -> Result<Vec<Vec<u8>>, Errno> {
    let mut texts = Vec::new();
    if at == 0 {
        return Ok(texts);
    }
    loop {
        let text: u64 = user::get(at.wrapping_add(texts.len() as u64 * 8))?;
        if text == 0 {
            return Ok(texts);
        }
        let text = user::get_text(text, TEXT_MAX.min(*room)).map_err(|why| match why {
            Errno::FAULT => why,
            _ => Errno(E2BIG),
        })?;
        *room = room.checked_sub(exec::taken_by(&text)).ok_or(Errno(E2BIG))?;
        texts.push(text);
    }
}
pub(super) fn execve(thread: &Arc<Thread>, [path, arguments, environment, ..]: Six) -> Answer {
    let path = user::get_path(path)?;
    let mut room = exec::TEXTS_MAX;
    let mut arguments = texts_at(arguments, &mut room)?;
    if arguments.is_empty() {
        arguments.push(Vec::new()); // a program has a name, as on Linux since 5.18
    }
    let environment = texts_at(environment, &mut room)?;
    exec::exec(thread, &path, arguments, environment).map(|()| 0)
}

/// What a new thread or process is to be.
struct New {
    flags: u32,
    stack: u64,
    parent_at: u64,
    child_at: u64,
    pidfd_at: u64,
    base: u64,
    /// By which a process tells of its end.
    signal: u32,
}

impl New {
    /// A copy of its maker.
    const COPY: New = New {
        flags: 0,
        stack: 0,
        parent_at: 0,
        child_at: 0,
        pidfd_at: 0,
        base: 0,
        signal: SIGCHLD,
    };
}

/// There are no name spaces.
const NONE_SUCH: u32 = CLONE_NEWCGROUP
    | CLONE_NEWIPC
    | CLONE_NEWNET
    | CLONE_NEWNS
    | CLONE_NEWPID
    | CLONE_NEWUSER
    | CLONE_NEWUTS;

pub(super) fn fork(thread: &Arc<Thread>, _: Six) -> Answer {
    make(thread, &New::COPY)
}
pub(super) fn vfork(thread: &Arc<Thread>, _: Six) -> Answer {
    make(thread, &New { flags: CLONE_VFORK | CLONE_VM, ..New::COPY })
}
pub(super) fn clone(
    thread: &Arc<Thread>,
    [flags, stack, parent_at, child_at, base, _]: Six,
) -> Answer {
    let (flags, signal) = (flags as u32 & !CSIGNAL, flags as u32 & CSIGNAL);
    if flags & CLONE_PIDFD != 0 && flags & (CLONE_PARENT_SETTID | CLONE_DETACHED) != 0 {
        return Err(Errno(EINVAL)); // both would be put into one word
    }
    make(thread, &New { flags, stack, parent_at, child_at, pidfd_at: parent_at, base, signal })
}
pub(super) fn clone3(thread: &Arc<Thread>, [at, size, ..]: Six) -> Answer {
    const FIRST: usize = 64;
    let size = size as usize;
    if !(FIRST..=4096).contains(&size) {
        return Err(Errno(EINVAL));
    }
    let known = size_of::<clone_args>();
    let bytes = user::get_bytes(at, size)?;
    if bytes[known.min(size)..].iter().any(|byte| *byte != 0) {
        return Err(Errno(E2BIG));
    }
    let word = |nth: usize| {
        let word = bytes.get(nth * 8..nth * 8 + 8).and_then(|word| word.try_into().ok());
        word.map_or(0, u64::from_le_bytes)
    };
    // Flags, a descriptor, the child's and the parent's word, a signal, the stack and its size,
    // the base, numbers that are wished for.
    let [flags, pidfd_at, child_at, parent_at, signal, stack, bytes, base, ids] =
        core::array::from_fn(word);
    let is_signal = signal <= SIGNALS.into();
    let has_own = flags & u64::from(CLONE_THREAD | CLONE_PARENT) == 0;
    let is_stack = (stack == 0) == (bytes == 0);
    let refused = u64::from(CSIGNAL | CLONE_DETACHED) | !u64::from(u32::MAX);
    if flags & refused != 0 || ids != 0 || !is_signal || signal != 0 && !has_own || !is_stack {
        return Err(Errno(EINVAL));
    }
    let stack = stack.wrapping_add(bytes);
    let (flags, signal) = (flags as u32, signal as u32);
    make(thread, &New { flags, stack, parent_at, child_at, pidfd_at, base, signal })
}

/// Refuses one more thread to whose user has as many as its process may have. Root is not asked,
/// nor is who may go beyond.
fn may_have_more(thread: &Thread) -> Result<(), Errno> {
    let (own, limit) = (thread.credentials(), thread.process.limits.now(RLIMIT_NPROC));
    let is_free = [Capability::SysResource, Capability::SysAdmin].into_iter().any(|it| own.has(it));
    if is_free || own.user.real == 0 || limit == u64::MAX {
        return Ok(());
    }
    let of_user = process::all().into_iter().filter(|process| process.user() == own.user.real);
    let count: usize = of_user.map(|process| process.threads.lock().len().max(1)).sum();
    if (count as u64) < limit { Ok(()) } else { Err(Errno::AGAIN) }
}

/// Makes a thread, or a process with one.
fn make(thread: &Arc<Thread>, new: &New) -> Answer {
    let has = |flag: u32| new.flags & flag != 0;
    if has(CLONE_THREAD) && !has(CLONE_SIGHAND) || has(CLONE_SIGHAND) && !has(CLONE_VM) {
        return Err(Errno(EINVAL));
    }
    let own = &thread.process;
    let (is_first, has_both) = (own.id == 1, has(CLONE_THREAD) && has(CLONE_PIDFD));
    if has_both || has(CLONE_PARENT) && is_first {
        return Err(Errno(EINVAL));
    }
    if has(NONE_SUCH) {
        // A user's own would be everybody's to have, and the others beside it.
        let may = has(CLONE_NEWUSER) || thread.has(Capability::SysAdmin);
        return Err(Errno(if may { EINVAL } else { EPERM }));
    }
    if has(CLONE_SETTLS) && !is_base(new.base) {
        return Err(Errno::PERM);
    }
    may_have_more(thread)?;
    if has(CLONE_PIDFD) {
        user::put(new.pidfd_at, &-1i32)?;
    }
    let (process, id) = if has(CLONE_THREAD) {
        (own.clone(), process::new_id())
    } else {
        let memory = own.memory().ok_or(Errno(ESRCH))?;
        let memory = match has(CLONE_VM) {
            true => memory,
            false => promises::fork(&memory, || thread.has(Capability::SysAdmin))?,
        };
        let kin = if has(CLONE_PARENT) { Kin::Sibling } else { Kin::Child };
        let child = own.child(memory, kin, new.signal);
        spending::note_limit(&child);
        child.borrows.store(has(CLONE_VFORK), Ordering::Release);
        let id = child.id;
        (child, id)
    };
    let made = Thread::of(process.clone(), id, thread.runs).and_then(|made| {
        if has(CLONE_PIDFD) {
            let number = super::remote::add_pidfd(thread, process.clone(), 0)?;
            let take = |_: &Errno| drop(own.descriptors.lock().take(number));
            user::put(new.pidfd_at, &(number as i32)).inspect_err(take)?;
        }
        Ok(made)
    });
    let made = match made {
        Ok(made) => made,
        Err(why) => {
            if !has(CLONE_THREAD) {
                process.give_back();
                process.forget();
            }
            return Err(why);
        }
    };
    thread.copy_to(&made);
    made.signals.block(thread.signals.blocked());
    made.set_registers(|registers| {
        registers.rax = 0;
        if new.stack != 0 {
            registers.rsp = new.stack;
        }
    });
    if has(CLONE_SETTLS) {
        made.will_have_base(new.base);
    }
    if has(CLONE_CHILD_CLEARTID) {
        made.clears.set(new.child_at);
    }
    // As Linux, it does not ask whether the numbers reach the program.
    if has(CLONE_PARENT_SETTID) {
        let _ = user::put(new.parent_at, &id);
    }
    if has(CLONE_CHILD_SETTID) {
        made.will_note(new.child_at);
    }
    if !has(CLONE_VM) {
        made.sequence.take_from(&thread.sequence);
    }
    if !has(CLONE_THREAD) && !has(CLONE_VM) {
        made.signals.stack.set(thread.signals.stack.get());
    }
    // A program that puts something into its place gets no folder of texts.
    let _ = match has(CLONE_THREAD) {
        true => texts::make_thread(&process, made.id),
        false => texts::make_process(&process),
    };
    sched::start(made);
    if has(CLONE_VFORK) && !has(CLONE_THREAD) {
        // Only its own end lets it go on before the child does.
        let is_free = || (!process.borrows.load(Ordering::Acquire)).then_some(());
        while process.alone.wait(None, is_free).is_err() && !thread.is_over() {
            sched::park(Some(super::super::clock::uptime() + 1_000_000));
        }
    }
    Ok(id.into())
}

/// Which children are meant.
fn is_meant(own: &Process, id: i32) -> impl Fn(&Process) -> bool {
    let group = number(&own.group) as u32;
    move |child| match id {
        -1 => true,
        0 => number(&child.group) as u32 == group,
        id if id < -1 => number(&child.group) as u32 == id.unsigned_abs(),
        id => child.id == id as u32,
    }
}
/// Waits for news of a child.
fn wait(
    thread: &Arc<Thread>,
    is_meant: impl Fn(&Process) -> bool,
    flags: u32,
) -> Result<Option<(Arc<Process>, Became)>, Errno> {
    let own = &thread.process;
    let reap = if flags & WNOWAIT == 0 { Reap::Yes } else { Reap::No };
    let is_meant = |child: &Process| {
        is_meant(child) && (flags & __WALL != 0 || child.is_usual() == (flags & __WCLONE == 0))
    };
    let look = || match own.child_news(is_meant, flags, reap) {
        None => Some(Err(Errno(ECHILD))),
        Some(found) => found.map(|child| Ok(Some(child))),
    };
    match flags & WNOHANG != 0 {
        true => look().unwrap_or(Ok(None)),
        false => own.waiting.wait(None, look).unwrap_or(Err(CUT)),
    }
}
/// Flags of both calls that wait for children.
const WAITS: u32 = WNOHANG | WCONTINUED | __WNOTHREAD | __WCLONE | __WALL;
pub(super) fn wait4(thread: &Arc<Thread>, [id, status, flags, usage, ..]: Six) -> Answer {
    let flags = flags as u32;
    if flags & !(WAITS | WUNTRACED) != 0 {
        return Err(Errno(EINVAL));
    }
    if id as i32 == i32::MIN {
        return Err(Errno(ESRCH)); // there is no such group
    }
    let meant = is_meant(&thread.process, id as i32);
    let Some((child, became)) = wait(thread, meant, flags | WEXITED)? else { return Ok(0) };
    if status != 0 {
        user::put(status, &became.word())?;
    }
    if usage != 0 {
        user::put(usage, &child.usage().and(child.children_usage()).told())?;
    }
    Ok(child.id.into())
}
pub(super) fn waitid(thread: &Arc<Thread>, [kind, id, info, flags, usage, _]: Six) -> Answer {
    let (flags, wanted) = (flags as u32, WEXITED | WSTOPPED | WCONTINUED);
    if flags & !(WAITS | WNOWAIT | wanted) != 0 || flags & wanted == 0 {
        return Err(Errno(EINVAL));
    }
    let id = match kind as u32 {
        P_ALL => -1,
        P_PID if id as i32 > 0 => id as i32,
        P_PGID => (id as i32).wrapping_neg(),
        _ => return Err(Errno(EINVAL)),
    };
    let found = wait(thread, is_meant(&thread.process, id), flags)?;
    if usage != 0 {
        let used = found.as_ref().map(|(child, _)| child.usage().and(child.children_usage()));
        user::put(usage, &used.unwrap_or_default().told())?;
    }
    if info != 0 {
        let told = found.map(|(child, became)| Info::of_child((child.id, child.user()), became));
        user::put(info, &told.unwrap_or(user::zeros()))?;
    }
    Ok(0)
}

pub(super) fn set_tid_address(thread: &Arc<Thread>, [at, ..]: Six) -> Answer {
    thread.clears.set(at);
    Ok(thread.id.into())
}
pub(super) fn set_robust_list(thread: &Arc<Thread>, [at, size, ..]: Six) -> Answer {
    if size != 24 {
        return Err(Errno(EINVAL));
    }
    thread.robust.set(at);
    Ok(0)
}

pub(super) fn rseq(thread: &Arc<Thread>, [at, length, flags, mark, ..]: Six) -> Answer {
    thread.sequence.register([at, length, flags, mark]).map(|()| 0)
}

/// Whether a base of FS or GS is one that the processor takes.
fn is_base(base: u64) -> bool {
    base >> 47 == 0
}
pub(super) fn arch_prctl(thread: &Arc<Thread>, [what, value, ..]: Six) -> Answer {
    let [fs, gs] = thread.bases();
    match what as u32 {
        ARCH_SET_FS | ARCH_SET_GS if !is_base(value) => Err(Errno::PERM),
        ARCH_SET_FS => {
            thread.set_bases([value, gs]);
            Ok(0)
        }
        ARCH_SET_GS => {
            thread.set_bases([fs, value]);
            Ok(0)
        }
        ARCH_GET_FS => user::put(value, &fs).map(|()| 0),
        ARCH_GET_GS => user::put(value, &gs).map(|()| 0),
        _ => Err(Errno(EINVAL)),
    }
}
pub(super) fn prctl(thread: &Arc<Thread>, [what, at, rest @ ..]: Six) -> Answer {
    match what as u32 {
        PR_SET_NAME => {
            let name = user::get_text(at, 16).or_else(|_| user::get_bytes(at, 15))?;
            thread.process.image.lock().name = name;
            Ok(0)
        }
        PR_GET_NAME => {
            let mut name = thread.process.image.lock().name.clone();
            name.resize(16, 0);
            user::put_bytes(at, &name).map(|()| 0)
        }
        PR_SET_PDEATHSIG if at <= u64::from(SIGNALS) => {
            thread.process.dies_with.store(at as u32, Ordering::Relaxed);
            Ok(0)
        }
        PR_GET_PDEATHSIG => {
            let number = thread.process.dies_with.load(Ordering::Relaxed);
            user::put(at, &number).map(|()| 0)
        }
        PR_GET_DUMPABLE => Ok(thread.process.is_dumpable.load(Ordering::Relaxed).into()),
        PR_SET_DUMPABLE if at <= 1 => {
            thread.process.is_dumpable.store(at == 1, Ordering::Relaxed);
            texts::note_owner(&thread.process);
            Ok(0)
        }
        PR_GET_NO_NEW_PRIVS => Ok(thread.process.is_kept_low.load(Ordering::Relaxed).into()),
        PR_SET_NO_NEW_PRIVS if at == 1 => {
            thread.process.is_kept_low.store(true, Ordering::Relaxed);
            Ok(0)
        }
        what => {
            let [third, fourth, fifth, _] = rest;
            let rest = [at, third, fourth, fifth];
            if let Some(answer) = capabilities::prctl(thread, what, rest) {
                return answer;
            }
            let asked = |memory: &mut Memory| memory.prctl(what, rest);
            thread.process.with_memory_alone(asked).unwrap_or(Err(Errno(EINVAL)))
        }
    }
}
