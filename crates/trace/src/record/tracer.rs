//! Following the program with ptrace: the system calls that change its address spaces.
//!
//! A seccomp filter stops a thread only at these calls. At the stop *before* the call we note the
//! time; if the result matters, we let the thread run to the stop *behind* it and note the time
//! again.
//!
//! ```text
//!   thread    ... faults │ before: t0 │ call │ behind: t1 │ faults ...
//! ```
//!
//! What makes memory accessible is stamped t0, what takes it away t1, so that any fault which must
//! have seen the one state sorts on its side; for the calling thread itself both are exact. Calls
//! of the threads of one process go one after another: one that arrives while another's is under
//! way waits in its stop. So their windows never overlap and their order in the trace is the order
//! of their effects; fork is one of these calls. What stays open is a fault of *another* thread
//! within a window, on a page that the call takes away or copies: programs whose threads race like
//! that get faults that stand as raced or unexplained.
//!
//! Three calls are not let through as they are. `clone` with `CLONE_UNTRACED` would make a child
//! that nobody follows and whose filtered calls fail, so it is carried out without that flag, and
//! the register is put back in both threads. The wish to switch large pages off or on is noted,
//! and answered as the kernel would answer it; `PR_GET_THP_DISABLE` tells that they are off, as
//! they are while recording. So is the wish to have a range collapsed, which is refused while they
//! are.
//!
//! **Invariants**
//! - T1. Nothing here writes to the program's memory or brings a page of it: only registers,
//!   `/proc` and memory that the thread has just touched are read.
//! - T2. Every stop is answered: by resuming, by listening (group stop), or by holding until the
//!   call under way in that process is done.

use super::abi::{Abi, BIRTHS};
use super::log::ToldLog;
use super::perf::Perf;
use super::procfs;
use super::resident::{self, Resident};
use super::shared::Shared;
use super::site::{Caller, Sites};
use super::spawn;
use super::sys::{self, pid_t};
use super::told::{Doing, Told};
use super::userfault::{self, When};
use crate::event::{Access, Area, AreaKind, EventKind, Exec, MapFlags, Name, Prot, advice};
use crate::format::{Ending, VA_MAX};
use foliant_units::{Bytes, FRAME_BYTES, Va, VaRange};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What came of following a program to its end.
pub(crate) struct Followed {
    pub(crate) remarks: BTreeSet<String>,
    pub(crate) ending: Ending,
}

struct Call {
    abi: Abi,
    nr: libc::c_long,
    args: [u64; 6],
    start: u64,
}

struct Tracee {
    group: pid_t,
    call: Option<Call>,
    /// What the thread's call of clone shall find in its first register again.
    flags: Option<u64>,
    /// It is about to end.
    leaves: bool,
}

/// A process that locks what it will map (`mlockall(MCL_FUTURE)`).
struct Locks {
    /// Where its break is.
    brk: u64,
    /// At once, and not when it is touched.
    fills: bool,
}

/// Flags of `mlockall`, and the one of `mlock2` that means what its last one does.
const CURRENT: u64 = libc::MCL_CURRENT as u64;
const FUTURE: u64 = libc::MCL_FUTURE as u64;
const ONFAULT: u64 = libc::MCL_ONFAULT as u64;
const ONFAULT2: u64 = libc::MLOCK_ONFAULT as u64;

impl Tracee {
    fn of(group: pid_t) -> Tracee {
        Tracee { group, call: None, flags: None, leaves: false }
    }
}

/// Keeps a tracer from following the child.
const UNTRACED: u64 = libc::CLONE_UNTRACED as u64;

/// Follows the program until nothing of it is left.
pub(crate) struct Tracer<'a> {
    root: pid_t,
    perf: &'a Mutex<Perf>,
    decodes: bool,
    residue: bool,
    tracees: HashMap<pid_t, Tracee>,
    /// The thread whose call is under way, and those that wait for it, by process.
    busy: HashMap<pid_t, (pid_t, VecDeque<(pid_t, Call)>)>,
    /// Children whose parent's flags were changed and that have not stopped yet: the flags as they
    /// were.
    unborn: HashMap<pid_t, u64>,
    /// Those that lock what they will map. A child does not, nor does another program.
    locks: HashMap<pid_t, Locks>,
    /// Descriptors of userfaultfd by which a process fills its memory.
    fillers: HashMap<pid_t, BTreeSet<u64>>,
    pages: Resident,
    sites: Sites,
    shared: Shared,
    /// Whether the kernel knows flags for `PR_SET_THP_DISABLE`.
    knows_flags: bool,
    log: ToldLog,
    /// Nothing that is told from now on is older.
    floor: u64,
    out: Followed,
    ended: bool,
}

pub(crate) fn lock(perf: &Mutex<Perf>) -> MutexGuard<'_, Perf> {
    perf.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Tracer<'a> {
    pub(crate) fn new(
        root: pid_t,
        perf: &'a Mutex<Perf>,
        residue: bool,
        log: ToldLog,
    ) -> Tracer<'a> {
        let decodes = lock(perf).decodes();
        let out =
            Followed { remarks: BTreeSet::new(), ending: Ending::Signaled(libc::SIGKILL as u8) };
        let tracees = HashMap::from([(root, Tracee::of(root))]);
        let (busy, unborn, locks) = (HashMap::new(), HashMap::new(), HashMap::new());
        let knows_flags = sys::knows_thp_flags();
        Tracer {
            root,
            perf,
            decodes,
            residue,
            tracees,
            busy,
            unborn,
            locks,
            fillers: HashMap::new(),
            pages: Resident::default(),
            sites: Sites::default(),
            shared: Shared::default(),
            knows_flags,
            log,
            floor: 0,
            out,
            ended: false,
        }
    }

    /// Runs to the end.
    pub(crate) fn follow(mut self) -> io::Result<Followed> {
        while let Some((tid, status)) = sys::wait_next()? {
            self.floor = self.oldest();
            self.report(tid, status);
        }
        self.log.send();
        if !self.ended {
            self.remark("the program's end was not seen");
        }
        Ok(self.out)
    }

    fn remark(&mut self, text: &str) {
        if !self.out.remarks.contains(text) {
            self.out.remarks.insert(text.to_owned());
        }
    }

    fn tell(&mut self, time: u64, tid: pid_t, what: Doing) {
        self.log.put(Told { time, tid, what }, self.floor);
    }

    /// When the oldest call that is under way began; now if none is.
    fn oldest(&self) -> u64 {
        let starts = self.tracees.values().filter_map(|tracee| Some(tracee.call.as_ref()?.start));
        starts.min().unwrap_or(u64::MAX).min(sys::clock_ns())
    }

    fn report(&mut self, tid: pid_t, status: i32) {
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            self.gone(tid, status);
            return;
        }
        if !libc::WIFSTOPPED(status) {
            return;
        }
        if !self.tracees.contains_key(&tid) {
            self.is_born(tid);
            self.tracees.insert(tid, Tracee::of(procfs::group(tid).unwrap_or(tid)));
        }
        let signal = libc::WSTOPSIG(status);
        match status >> 16 {
            libc::PTRACE_EVENT_SECCOMP => self.call_begins(tid),
            libc::PTRACE_EVENT_EXEC => self.execs(tid),
            libc::PTRACE_EVENT_EXIT => {
                self.exits(tid);
                self.resume(tid, 0);
            }
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
                // The copy is made; what other threads do to their space is theirs alone again.
                if let Some(tracee) = self.tracees.get_mut(&tid) {
                    tracee.call = None;
                    if let (Some(flags), Ok(child)) = (tracee.flags, sys::event_message(tid))
                        && !self.tracees.contains_key(&(child as pid_t))
                    {
                        self.unborn.insert(child as pid_t, flags);
                    }
                }
                self.free(tid);
                self.resume(tid, 0);
            }
            libc::PTRACE_EVENT_STOP if signal != libc::SIGTRAP => {
                // A group stop: the thread stays stopped until SIGCONT, which is reported in turn.
                let _ = sys::listen(tid);
            }
            0 if signal == libc::SIGTRAP | 0x80 => self.call_ends(tid),
            0 => {
                if [libc::SIGSEGV, libc::SIGBUS].contains(&signal) {
                    self.tell(sys::clock_ns(), tid, Doing::Signal);
                }
                self.resume(tid, signal);
            }
            _ => self.resume(tid, 0),
        }
    }

    /// Lets a thread run on. One that was killed meanwhile is reported by the next wait.
    fn resume(&mut self, tid: pid_t, signal: i32) {
        let tracee = self.tracees.get(&tid);
        let to_end = tracee.is_some_and(|t| t.call.is_some() || t.flags.is_some());
        let _ = sys::resume(tid, signal, to_end);
    }

    fn call_begins(&mut self, tid: pid_t) {
        let start = sys::clock_ns();
        let abi = Abi::of(sys::event_message(tid));
        if abi == Abi::X32 {
            self.remark("system calls of x32 were made; what they mapped is not recorded");
            return self.resume(tid, 0);
        }
        let Ok(regs) = sys::registers(tid) else { return self.resume(tid, 0) };
        if self.decodes {
            // The code may be unmapped by this call, and is there now.
            lock(self.perf).drain();
        }
        self.look_at_fillers(start, tid);
        let Some((nr, args)) = abi.call(tid, &regs) else {
            self.remark("a 32-bit call was made that is not recorded: ipc or process_madvise");
            return self.resume(tid, 0);
        };
        match nr {
            libc::SYS_prctl => {
                let args = [args[1], args[2], args[3], args[4]];
                // The wish is noted and not granted: no call, and a result as the kernel's would
                // be.
                let rax = match thp_wish(args, self.knows_flags) {
                    Some(args) => {
                        self.tell(start, tid, Doing::Change(EventKind::ThpPrctl { args }));
                        0
                    }
                    None => -i64::from(libc::EINVAL) as u64,
                };
                let skipped = libc::user_regs_struct { orig_rax: u64::MAX, rax, ..regs };
                if sys::set_registers(tid, &skipped).is_err() {
                    self.remark("the program switched large pages on for itself");
                }
                self.resume(tid, 0);
            }
            // Refused while large pages are off: the wish is noted, and answered as it would be.
            libc::SYS_madvise if args[2] as u32 == advice::COLLAPSE => {
                let [at, bytes, ..] = args;
                if !Va::new(at).is_aligned(Bytes::new(FRAME_BYTES)) {
                    return self.resume(tid, 0); // refused in any case
                }
                let range = procfs::sized(at, bytes);
                let wish = EventKind::Advise { range, advice: advice::COLLAPSE };
                self.tell(start, tid, Doing::Change(wish));
                let skipped = libc::user_regs_struct { orig_rax: u64::MAX, rax: 0, ..regs };
                let _ = sys::set_registers(tid, &skipped); // else the kernel refuses it
                self.resume(tid, 0);
            }
            // Only those that copy a space take turns with others: vfork and exec can last.
            nr if BIRTHS.contains(&nr) => {
                let flags = clone_flags(tid, nr, &args);
                let is_untraced = flags.is_some_and(|flags| flags & UNTRACED != 0);
                if is_untraced && abi != Abi::Native {
                    self.remark("a 32-bit program made a child with CLONE_UNTRACED; what it does is not recorded");
                } else if is_untraced && !self.follows(tid, &regs) {
                    return self.resume(tid, 0);
                }
                match flags {
                    Some(flags) => {
                        if let Some(top) = stack_top(tid, nr, &args) {
                            self.tell(start, tid, Doing::Stack { top });
                        }
                        self.tell(start, tid, Doing::Clone { flags });
                    }
                    // A program that replaces another leaves nothing of its memory.
                    None => self.tell_present(tid, resident::everything()),
                }
                match flags {
                    // The child gets a copy, so it matters which changes come before.
                    Some(flags) if flags & libc::CLONE_VM as u64 == 0 => {
                        self.in_turn(tid, Call { abi, nr, args, start });
                    }
                    _ => self.resume(tid, 0),
                }
            }
            libc::SYS_remap_file_pages => {
                self.remark("remap_file_pages was called; what it maps is not recorded");
                self.resume(tid, 0);
            }
            // Not in turn: a call that waits for memory that this one fills may be under way.
            libc::SYS_ioctl | libc::SYS_process_vm_writev => {
                if let Some(tracee) = self.tracees.get_mut(&tid) {
                    tracee.call = Some(Call { abi, nr, args, start });
                }
                self.resume(tid, 0);
            }
            nr => self.in_turn(tid, Call { abi, nr, args, start }),
        }
    }

    /// Sees to it that a clone with `CLONE_UNTRACED` makes a child that is followed; whether it is
    /// carried out.
    fn follows(&mut self, tid: pid_t, regs: &libc::user_regs_struct) -> bool {
        let changed = if regs.orig_rax == libc::SYS_clone as u64 {
            if let Some(tracee) = self.tracees.get_mut(&tid) {
                tracee.flags = Some(regs.rdi);
            }
            libc::user_regs_struct { rdi: regs.rdi & !UNTRACED, ..*regs }
        } else {
            // The flags of clone3 are in the program's memory, which is not ours to change (T1).
            // Programs have clone for kernels that do not know clone3.
            self.remark(
                "clone3 was called with CLONE_UNTRACED; it was told that there is no such call",
            );
            let rax = -i64::from(libc::ENOSYS) as u64;
            libc::user_regs_struct { orig_rax: u64::MAX, rax, ..*regs }
        };
        if sys::set_registers(tid, &changed).is_err() {
            self.remark("a child was made with CLONE_UNTRACED; what it does is not recorded");
        }
        changed.orig_rax != u64::MAX
    }

    /// A thread stops for the first time: if its parent's flags were changed, its copy of them is
    /// as they were again.
    fn is_born(&mut self, tid: pid_t) {
        let told = self.unborn.remove(&tid);
        let mut pending = self.tracees.values().filter_map(|tracee| tracee.flags).peekable();
        if told.is_none() && pending.peek().is_none() {
            return;
        }
        let Ok(regs) = sys::registers(tid) else { return };
        // The parent may not have told yet whose parent it is; then its call is known by the flags
        // that it was left with.
        let flags = told.or_else(|| pending.find(|flags| flags & !UNTRACED == regs.rdi));
        if let Some(rdi) = flags {
            let _ = sys::set_registers(tid, &libc::user_regs_struct { rdi, ..regs });
        }
    }

    /// Lets a call go on, now or when the one under way in its process is done.
    fn in_turn(&mut self, tid: pid_t, call: Call) {
        let group = self.group(tid);
        match self.busy.get_mut(&group) {
            Some((_, waiting)) => waiting.push_back((tid, call)),
            None => {
                self.busy.insert(group, (tid, VecDeque::new()));
                self.let_call(tid, call);
            }
        }
    }

    fn let_call(&mut self, tid: pid_t, call: Call) {
        self.tell_present(tid, resident::goes(call.nr, &call.args));
        // shmdt names no length; the area is still there now.
        let mut call = Call { start: sys::clock_ns(), ..call };
        if call.nr == libc::SYS_shmdt {
            let at = call.args[0];
            let area = procfs::areas(tid).into_iter().find(|a| a.range.start().get() == at);
            call.args[1] = area.map_or(0, |a| a.range.bytes().get());
        }
        if let Some(tracee) = self.tracees.get_mut(&tid) {
            tracee.call = Some(call);
        }
        self.resume(tid, 0);
    }

    /// Tells which pages of a range there are. The time is that behind the look, so that all faults
    /// that brought them come before it.
    fn tell_present(&mut self, tid: pid_t, range: VaRange) {
        let group = self.group(tid);
        let found = self.pages.pages(group, range);
        let time = sys::clock_ns();
        found.into_iter().for_each(|event| self.tell(time, tid, Doing::Change(event)));
    }

    fn call_ends(&mut self, tid: pid_t) {
        let end = sys::clock_ns();
        let tracee = self.tracees.get_mut(&tid);
        let (call, flags) =
            tracee.map_or((None, None), |tracee| (tracee.call.take(), tracee.flags.take()));
        if let (Some(rdi), Ok(regs)) = (flags, sys::registers(tid)) {
            let _ = sys::set_registers(tid, &libc::user_regs_struct { rdi, ..regs });
        }
        if let (Some(call), Ok(regs)) = (call, sys::registers(tid)) {
            self.effect(tid, &call, call.abi.result(regs.rax), end);
            self.named(tid, &call, &regs);
        }
        self.free(tid);
        self.resume(tid, 0);
    }

    /// The thread's call is over: the next one that waits in its process has its turn.
    fn free(&mut self, tid: pid_t) {
        let Some(group) = self.tracees.get(&tid).map(|t| t.group) else { return };
        let Some((holder, waiting)) = self.busy.get_mut(&group) else { return };
        waiting.retain(|(waiter, _)| *waiter != tid);
        if *holder != tid {
            return;
        }
        match waiting.pop_front() {
            Some((next, call)) => {
                *holder = next;
                self.let_call(next, call);
            }
            None => {
                self.busy.remove(&group);
            }
        }
    }

    /// Tells what a call that came back with `result` did.
    fn effect(&mut self, tid: pid_t, call: &Call, result: i64, end: u64) {
        let [a, b, c, d, e, f] = call.args;
        let failed = (-4095..0).contains(&result);
        let start = call.start;
        let whole = procfs::sized;
        let change = Doing::Change;
        match call.nr {
            libc::SYS_mmap if !failed => {
                let file = |shared| procfs::kind_of_fd(tid, e as i32, shared);
                let area = mapped(result as u64, &call.args, file);
                self.tell(start, tid, change(EventKind::Map(area)));
                let told = match area.kind {
                    AreaKind::SharedAnonymous => self.shared.anonymous(area.range),
                    AreaKind::FileShared => self.shared.file(tid, e, area.range, f),
                    _ => Vec::new(),
                };
                told.into_iter().for_each(|event| self.tell(start, tid, change(event)));
                match self.locks(tid).map(|locks| locks.fills) {
                    Some(fills) => self.locked(end, tid, area.range, fills),
                    None if fills(d) => self.populated(end, tid, area.range),
                    None => {}
                }
            }
            libc::SYS_munmap if !failed => {
                self.tell(end, tid, change(EventKind::Unmap { range: whole(a, b) }));
            }
            libc::SYS_mremap if !failed => {
                let keep_old = d & 4 != 0;
                let (old, new) = (whole(a, b), whole(result as u64, c));
                self.tell(end, tid, change(EventKind::Remap { old, new, keep_old }));
                if let Some(fills) = self.locks(tid).map(|locks| locks.fills) {
                    self.locked(end, tid, new, fills);
                }
            }
            libc::SYS_mprotect | libc::SYS_pkey_mprotect => {
                let prot = prot_of(c);
                let time = if prot.contains(Prot::WRITE) { start } else { end };
                if !failed {
                    let range = whole(a, b);
                    self.tell(time, tid, change(EventKind::Protect { range, prot }));
                } else if result == -i64::from(libc::ENOMEM) {
                    // It stopped at a hole; what lies before has changed. The kernel knows what
                    // does.
                    let asked = whole(a, b);
                    for area in procfs::areas(tid) {
                        let range = area.range.intersect(asked);
                        if area.prot == prot && !range.is_empty() {
                            self.tell(time, tid, change(EventKind::Protect { range, prot }));
                        }
                    }
                }
            }
            // With ENOMEM there was a hole, and all else was advised.
            libc::SYS_madvise if !failed || result == -i64::from(libc::ENOMEM) => {
                let advice = EventKind::Advise { range: whole(a, b), advice: c as u32 };
                self.tell(end, tid, change(advice));
            }
            libc::SYS_process_madvise if result > 0 => {
                self.advised_by_vector(end, tid, [a, b, c, d], result as u64);
            }
            libc::SYS_brk => {
                let now = Va::new((result as u64).min(VA_MAX));
                self.tell(end, tid, Doing::Brk { now });
                if let Some(locks) = self.locks(tid) {
                    let before = std::mem::replace(&mut locks.brk, now.get());
                    let (more, fills) = (procfs::pages(before, now.get().max(before)), locks.fills);
                    self.locked(end, tid, more, fills);
                }
            }
            libc::SYS_shmat if !failed => {
                let at = result as u64;
                let found = procfs::areas(tid).into_iter().find(|f| f.range.start().get() == at);
                if let Some(Area { range, .. }) = found {
                    let is_huge = procfs::is_huge(tid, range);
                    let kind = if is_huge { AreaKind::Special } else { AreaKind::SharedAnonymous };
                    let area = found.map(|area| EventKind::Map(Area { kind, ..area }));
                    let told = if is_huge { Vec::new() } else { self.shared.segment(a, range) };
                    for event in area.into_iter().chain(told) {
                        self.tell(start, tid, change(event));
                    }
                }
            }
            // What is cut off is gone when the call is over, and was there until then.
            libc::SYS_ftruncate if !failed => {
                let told = self.shared.changed(tid, a);
                told.into_iter().for_each(|event| self.tell(end, tid, change(event)));
            }
            libc::SYS_fallocate if !failed => {
                let told = match b as libc::c_int & libc::FALLOC_FL_PUNCH_HOLE {
                    0 => self.shared.changed(tid, a),
                    _ => self.shared.punched(tid, a, (c, d)),
                };
                told.into_iter().for_each(|event| self.tell(end, tid, change(event)));
            }
            libc::SYS_shmdt if !failed => {
                self.tell(end, tid, change(EventKind::Unmap { range: whole(a, b) }));
            }
            libc::SYS_mlock if !failed => self.locked(end, tid, whole(a, b), true),
            libc::SYS_mlock2 if !failed => self.locked(end, tid, whole(a, b), c & ONFAULT2 == 0),
            libc::SYS_munlock if !failed => self.unlocked(end, tid, whole(a, b)),
            libc::SYS_mlockall if !failed => {
                let fills = a & ONFAULT == 0;
                if a & CURRENT != 0 {
                    self.locked(end, tid, procfs::pages(0, VA_MAX), fills);
                }
                let group = self.group(tid);
                self.locks.remove(&group);
                if a & FUTURE != 0 {
                    let areas = procfs::areas(tid);
                    let heap = areas.iter().find(|area| area.kind == AreaKind::Heap);
                    let brk = heap.map_or_else(|| procfs::start_brk(tid), |heap| heap.range.end());
                    self.locks.insert(group, Locks { brk: brk.get(), fills });
                }
            }
            libc::SYS_process_vm_writev if !failed => {
                let target = a as pid_t;
                if self.tracees.contains_key(&target) {
                    self.tell_present(target, resident::everything());
                }
            }
            libc::SYS_ioctl => self.filled(tid, (start, end), (a, b, c), result),
            libc::SYS_munlockall if !failed => {
                let group = self.group(tid);
                self.locks.remove(&group);
                self.unlocked(end, tid, procfs::pages(0, VA_MAX));
            }
            _ => {}
        }
    }

    /// Tells what the area is called that a call has made, and sees which code there is now.
    fn named(&mut self, tid: pid_t, call: &Call, regs: &libc::user_regs_struct) {
        let result = call.abi.result(regs.rax);
        if (-4095..0).contains(&result) {
            return;
        }
        let (group, [at, bytes, prot, _, fd, _]) = (self.group(tid), call.args);
        let is_code = prot_of(prot).contains(Prot::EXEC);
        match call.nr {
            libc::SYS_mmap => {
                let file = |shared| procfs::kind_of_fd(tid, fd as i32, shared);
                let Area { range, kind, .. } = mapped(result as u64, &call.args, file);
                if is_code {
                    self.sites.forget(group);
                }
                self.sites.changed(group, range);
                let name = match kind {
                    AreaKind::Anonymous => {
                        let word = if call.abi == Abi::I386 { 4 } else { 8 };
                        let Caller { site, through } = self.sites.caller(group, regs.rsp, word);
                        Name::Made { site, through }
                    }
                    kind if procfs::is_file(kind) => Name::File(procfs::file_of_fd(tid, fd as i32)),
                    _ => return,
                };
                self.tell(call.start, tid, Doing::Change(EventKind::Name { range, name }));
            }
            libc::SYS_mprotect | libc::SYS_pkey_mprotect if is_code => self.sites.forget(group),
            libc::SYS_munmap => self.sites.changed(group, procfs::sized(at, bytes)),
            libc::SYS_mremap => {
                let target = procfs::sized(result as u64, prot); // the third argument is its length
                self.sites.changed(group, procfs::sized(at, bytes));
                self.sites.changed(group, target);
            }
            _ => {}
        }
    }

    /// A request of userfaultfd came back: of this descriptor, which, and where its structure lies.
    fn filled(
        &mut self,
        tid: pid_t,
        (start, end): (u64, u64),
        (fd, request, at): (u64, u64, u64),
        result: i64,
    ) {
        let mut structure = [0; userfault::LONGEST];
        // The thread has just filled it in, so its page is present.
        sys::read_memory(tid, at, &mut structure);
        let effects = userfault::effects(request, &structure, result);
        if !effects.is_empty() {
            let group = self.group(tid);
            self.fillers.entry(group).or_default().insert(fd);
        }
        for (when, event) in effects {
            let time = if when == When::Before { start } else { end };
            self.tell(time, tid, Doing::Change(event));
        }
    }

    /// Whether the process has closed all descriptors by which it filled its memory, since the last
    /// call: then no area is filled by it any more.
    fn look_at_fillers(&mut self, time: u64, tid: pid_t) {
        let group = self.group(tid);
        let Some(fds) = self.fillers.get(&group) else { return };
        if fds.iter().any(|fd| userfault::is_open(group, *fd)) {
            return;
        }
        self.fillers.remove(&group);
        let (range, advice) = (procfs::pages(0, VA_MAX), advice::UNWATCHED);
        self.tell(time, tid, Doing::Change(EventKind::Advise { range, advice }));
    }

    fn group(&self, tid: pid_t) -> pid_t {
        self.tracees.get(&tid).map_or(tid, |tracee| tracee.group)
    }

    /// Of the thread's process, if it locks what it will map.
    fn locks(&mut self, tid: pid_t) -> Option<&mut Locks> {
        let group = self.group(tid);
        self.locks.get_mut(&group)
    }

    /// A range is locked, and filled if that is done at once.
    fn locked(&mut self, time: u64, tid: pid_t, range: VaRange, fills: bool) {
        if range.is_empty() {
            return;
        }
        let lock = EventKind::Advise { range, advice: advice::LOCK };
        self.tell(time, tid, Doing::Change(lock));
        if fills {
            self.populated(time, tid, range);
        }
    }

    fn unlocked(&mut self, time: u64, tid: pid_t, range: VaRange) {
        let unlock = EventKind::Advise { range, advice: advice::UNLOCK };
        self.tell(time, tid, Doing::Change(unlock));
    }

    /// Writable private areas are filled as by writing, what is left as by reading.
    fn populated(&mut self, time: u64, tid: pid_t, range: VaRange) {
        for access in [Access::Write, Access::Read] {
            self.tell(time, tid, Doing::Change(EventKind::Populate { range, access }));
        }
    }

    fn advised_by_vector(&mut self, end: u64, tid: pid_t, args: [u64; 4], bytes: u64) {
        let [fd, vector, count, number] = args;
        let drops =
            [advice::DONTNEED, advice::FREE, advice::DONTNEED_LOCKED].contains(&(number as u32));
        let info = std::fs::read_to_string(format!("/proc/{tid}/fdinfo/{}", fd as i32));
        let target = info
            .unwrap_or_default()
            .lines()
            .find_map(|l| l.strip_prefix("Pid:").and_then(|n| n.trim().parse::<pid_t>().ok()));
        if target != self.tracees.get(&tid).map(|t| t.group) {
            if drops {
                self.remark("process_madvise dropped pages of another process");
            }
            return;
        }
        let mut left = bytes;
        for i in 0..count.min(1024) {
            let mut pair = [0; 16];
            if left == 0 || sys::read_memory(tid, vector.saturating_add(i * 16), &mut pair) < 16 {
                break;
            }
            let word =
                |at: usize| pair[at..at + 8].iter().rev().fold(0u64, |n, &b| n << 8 | u64::from(b));
            let length = word(8).min(left);
            left -= length;
            let range = procfs::sized(word(0), length);
            let advice = EventKind::Advise { range, advice: number as u32 };
            self.tell(end, tid, Doing::Change(advice));
        }
    }

    fn execs(&mut self, tid: pid_t) {
        let time = sys::clock_ns();
        let former = sys::event_message(tid).map_or(tid, |n| n as pid_t);
        {
            let mut perf = lock(self.perf);
            perf.drain();
            perf.forget_code(tid);
        }
        let areas = procfs::areas(tid);
        let present = procfs::present_in(tid, &areas);
        let files = procfs::files(tid, &areas);
        let program = procfs::program(tid);
        let exec = Exec { program, brk: procfs::start_brk(tid), areas, present };
        self.tell(time, tid, Doing::Exec { former, exec });
        for (range, file) in files {
            let name = Name::File(file);
            self.tell(time, tid, Doing::Change(EventKind::Name { range, name }));
        }
        // The other threads are gone, and with them whatever waited.
        self.busy.remove(&tid);
        self.locks.remove(&tid);
        self.fillers.remove(&tid);
        self.pages.forget(tid);
        self.sites.forget(tid);
        self.tracees.retain(|_, t| t.group != tid);
        self.tracees.insert(tid, Tracee::of(tid));
        self.resume(tid, 0);
    }

    fn exits(&mut self, tid: pid_t) {
        let time = sys::clock_ns();
        if self.decodes {
            lock(self.perf).drain();
        }
        if let Some(tracee) = self.tracees.get_mut(&tid) {
            tracee.leaves = true;
        }
        let group = self.group(tid);
        if self.tracees.values().all(|tracee| tracee.group != group || tracee.leaves) {
            self.tell_present(tid, resident::everything());
        }
        if !self.residue {
            return;
        }
        let mut present = Vec::new();
        for area in procfs::areas(tid).iter().filter(|a| a.kind.is_anonymous_private()) {
            present.extend(procfs::present(tid, area.range));
        }
        self.tell(time, tid, Doing::Residue { present });
    }

    fn gone(&mut self, tid: pid_t, status: i32) {
        let time = sys::clock_ns();
        self.tell(time, tid, Doing::Gone);
        self.free(tid);
        if self.group(tid) == tid {
            // Its other threads ended before it.
            self.locks.remove(&tid);
            self.fillers.remove(&tid);
            self.pages.forget(tid);
            self.sites.forget(tid);
        }
        self.tracees.remove(&tid);
        self.unborn.remove(&tid);
        if tid == self.root {
            self.ended = true;
            self.out.ending = spawn::ending(status);
        }
    }
}

/// The flags of a call that makes a thread or process; `None` for exec.
fn clone_flags(tid: pid_t, nr: libc::c_long, args: &[u64; 6]) -> Option<u64> {
    match nr {
        libc::SYS_fork => Some(0),
        libc::SYS_vfork => Some((libc::CLONE_VM | libc::CLONE_VFORK) as u64),
        libc::SYS_clone => Some(args[0]),
        libc::SYS_clone3 => {
            let mut flags = [0; 8];
            // The thread has just filled in the structure, so its page is present.
            sys::read_memory(tid, args[0], &mut flags);
            Some(u64::from_le_bytes(flags))
        }
        _ => None,
    }
}

/// Where the stack ends that a call gives to the thread that it makes.
fn stack_top(tid: pid_t, nr: libc::c_long, args: &[u64; 6]) -> Option<u64> {
    let top = match nr {
        libc::SYS_clone => args[1],
        libc::SYS_clone3 => {
            // Its lowest address and its size, 40 bytes into the structure.
            let mut stack = [0; 16];
            if sys::read_memory(tid, args[0].saturating_add(40), &mut stack) < stack.len() {
                return None;
            }
            let word = |at: usize| {
                stack[at..at + 8].iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b))
            };
            word(0).saturating_add(word(8))
        }
        _ => return None,
    };
    Some(top).filter(|top| (1..=VA_MAX).contains(top))
}

/// What `prctl(PR_SET_THP_DISABLE)` asks for; nothing where the kernel refuses it. Flags are known
/// since Linux 6.18, and one of them: only areas that are not advised.
pub(crate) fn thp_wish([disable, flags, a, b]: [u64; 4], knows_flags: bool) -> Option<[u64; 2]> {
    let known = flags == 0 || knows_flags && flags == sys::THP_EXCEPT_ADVISED && disable != 0;
    (known && a == 0 && b == 0).then_some([disable, flags])
}

pub(crate) fn prot_of(bits: u64) -> Prot {
    Prot::NONE
        .with_if(bits & 1 != 0, Prot::READ)
        .with_if(bits & 2 != 0, Prot::WRITE)
        .with_if(bits & 4 != 0, Prot::EXEC)
}

/// Whether the map's flags fill it at once.
pub(crate) fn fills(flags: u64) -> bool {
    let (populate, nonblock) = (libc::MAP_POPULATE as u64, libc::MAP_NONBLOCK as u64);
    flags & (populate | nonblock) == populate || flags & libc::MAP_LOCKED as u64 != 0
}

/// The area that a call of mmap with these arguments has made; of what kind it is where it maps a
/// file, shared or not.
pub(crate) fn mapped(at: u64, args: &[u64; 6], file: impl FnOnce(bool) -> AreaKind) -> Area {
    let [_, bytes, prot, flags, ..] = *args;
    let has = |bit: libc::c_int| flags & bit as u64 != 0;
    let shared = matches!(flags & 0xf, 1 | 3);
    let mut unit = FRAME_BYTES;
    let kind = if has(libc::MAP_HUGETLB) {
        let shift = flags >> 26 & 0x3f;
        unit = if (12..=34).contains(&shift) { 1 << shift } else { 2 << 20 };
        AreaKind::Special
    } else if has(libc::MAP_ANONYMOUS) {
        if shared { AreaKind::SharedAnonymous } else { AreaKind::Anonymous }
    } else {
        file(shared)
    };
    let bytes = bytes.checked_next_multiple_of(unit).unwrap_or(0);
    let range = procfs::sized(at, bytes);
    Area { range, prot: prot_of(prot), kind, flags: flags_of(flags) }
}

/// How an area was asked for, of the flags of mmap.
fn flags_of(flags: u64) -> MapFlags {
    let has = |bit: libc::c_int| flags & bit as u64 != 0;
    let fixed = has(libc::MAP_FIXED) || has(libc::MAP_FIXED_NOREPLACE);
    MapFlags::NONE
        .with_if(has(libc::MAP_GROWSDOWN), MapFlags::GROWSDOWN)
        .with_if(has(libc::MAP_STACK), MapFlags::STACK)
        .with_if(has(libc::MAP_NORESERVE), MapFlags::NORESERVE)
        .with_if(has(libc::MAP_POPULATE), MapFlags::POPULATE)
        .with_if(fixed, MapFlags::FIXED)
        .with_if(has(libc::MAP_LOCKED), MapFlags::LOCKED)
        .with_if(has(libc::MAP_HUGETLB), MapFlags::HUGETLB)
}
