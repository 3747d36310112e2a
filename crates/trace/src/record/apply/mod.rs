//! Applying wishes to a program while it runs: its own threads are made to give the advice.
//!
//! ```text
//!   mmap, brk    stop before │ call │ stop behind ─▶ madvise(what was made) ─▶ registers as the call left them
//!   execve       first call of the new program: stop before ─▶ madvise(stack) ─▶ the call, as it was asked for
//! ```
//!
//! Advice of another process's memory is not to be had from outside (`process_madvise` takes other
//! advice), so a stopped thread carries out one call more: the instruction pointer is put back onto
//! the instruction of its call, with the number and the arguments of ours, and what the program's
//! call left is put back when ours is done. An area that is moved or extended by `mremap` keeps its
//! advice, so that call needs nothing.
//!
//! **Full speed.** A filter lets every call pass but those that a wish can be for (`filter`); a
//! mapping of another size is not stopped for. What remains for all is a stop at each new process,
//! thread, program and signal, as of anybody who is traced. Where no wish needs a filter there is
//! none, and where there is no wish nobody follows at all.
//!
//! **When the follower leaves.** A filter stays with a program and with all that come of it, and
//! where it says trace and nobody follows, the kernel refuses the call (`ENOSYS`). So the follower
//! is there as long as anybody is who has the filter (A2), and it is a process of its own: the
//! program has the number, the terminal, the parent and the end that it would have without it, and
//! what it leaves behind goes on with a follower that nobody waits for.
//!
//! **Invariants**
//! - A1. The program sees its own calls and their results alone: registers and blocked signals are
//!   as they were before it runs on, and nothing is written to its memory.
//! - A2. Whoever has the filter is followed: a child that asks not to be is followed nevertheless,
//!   and dies with its follower rather than go on without (`PTRACE_O_EXITKILL`).
//! - A3. A mapping gets the advice of the first wish that fits it, once, before any instruction of
//!   its thread behind the call.
//! - A4. While our call is under way the thread takes no signal: a handler would run between its
//!   call and ours.
//! - A5. Into a process that filters its own calls nothing is injected from then on, nor into what
//!   it starts: its filter may be one that kills it for ours.
//! - A6. Every stop is answered: by resuming, by listening (group stop), or by holding a child
//!   until its parent has told whose it is or is gone.
//!
//! **Not here**: which calls stop (`filter`); switches of sizes; programs that trace others
//! themselves, which have no place for a second tracer.

mod filter;

pub(crate) use filter::filter;

use super::abi::Abi;
use super::site::Sites;
use super::spawn::{self, Barred, Start};
use super::sys::{self, Edge, pid_t};
use super::{RecordError, User, procfs};
use crate::event::AreaKind;
use crate::format::VA_MAX;
use crate::wish::{Remedy, Target, Wish, Wished};
use foliant_units::{Bytes, FRAME_BYTES, VaRange};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::io;

/// What kind of memory advice was for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Place {
    /// The program break.
    Heap,
    /// The first thread's stack.
    Stack,
    /// What `mmap` made.
    Mapping,
}

/// What came of the calls of one kind.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Given {
    /// Calls that the kernel carried out.
    pub calls: u64,
    /// What they were for, in bytes.
    pub bytes: u64,
    /// Calls that it refused, by the number of the error.
    pub refused: BTreeMap<i32, u64>,
}

/// What was injected into a program and all that it started.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Applied {
    /// Calls by what they were for and what they said.
    pub given: BTreeMap<(Place, Wish), Given>,
    /// How often a call of the program's stopped.
    pub stops: u64,
    /// Mappings that a wish fits, in processes that filter their own calls (A5).
    pub passed_over: u64,
    /// What there were wishes for and no mapping of the program was.
    pub unmet: Vec<Target>,
    /// What else there is to know.
    pub remarks: BTreeSet<String>,
}

impl Applied {
    /// Calls that the kernel refused.
    pub fn refused(&self) -> u64 {
        self.given.values().flat_map(|given| given.refused.values()).sum()
    }
}

/// A program, and what is done for it.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// The program, a path or a name to be found in `PATH`, and its arguments.
    pub command: &'a [OsString],
    /// As whom it runs; `None` as this process.
    pub user: Option<&'a User>,
    /// The wishes of it are applied; its switches are not this module's.
    pub remedy: &'a Remedy,
    /// What it may not have.
    pub barred: Barred,
}

impl Program<'_> {
    /// How it is started.
    pub(crate) fn start(&self, apart: bool) -> Result<Start<'_>, RecordError> {
        let Some((command, args)) = self.command.split_first() else {
            return Err(RecordError::NotFound { command: OsString::new() });
        };
        Ok(Start { command, args, user: self.user, apart, barred: self.barred })
    }
}

/// Whether anything that a program started goes on when it has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rest {
    /// All has ended.
    Nothing,
    /// Something goes on, and is followed.
    Something,
}

/// What is told of a program that has ended, before its parent learns of it.
pub(crate) type Told<'t> = &'t mut dyn FnMut(&Applied, Rest);

/// Makes this process the program: it has the number, the terminal, the parent and the end of this
/// one. A process of its own applies the wishes (see the module's text) and calls `told`, with
/// nothing open but standard error. Where there is neither a wish nor `told`, nobody follows.
///
/// Comes back only where it failed. This process must have no other thread.
pub fn exec(program: &Program<'_>, told: Option<Told<'_>>) -> RecordError {
    let start = match program.start(false) {
        Ok(start) => start,
        Err(e) => return e,
    };
    let mut filter = filter(program.remedy);
    let filter = filter.as_mut().map(|filter| spawn::program(filter));
    let is_followed = told.is_some() || !program.remedy.wishes.is_empty();
    let follow = is_followed.then_some(|root: pid_t, says: &dyn Fn(io::Result<()>)| {
        let seized = sys::seize(root, FOLLOW);
        let is_seized = seized.is_ok();
        says(seized);
        if is_seized {
            let told = |applied: &Applied, rest| {
                told.into_iter().for_each(|told| told(applied, rest));
                spawn::silent();
            };
            // Without a report there is nothing to be done, and nobody to tell.
            let _ = Follower::new(root, program.remedy).follow(told);
        }
    });
    spawn::replaced(&start, filter.as_ref(), follow)
}

/// Follows these for one who applies wishes.
pub(crate) const FOLLOW: libc::c_int = libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACESECCOMP
    | libc::PTRACE_O_EXITKILL;

/// A call of ours, for which a thread has stopped.
#[derive(Clone, Copy)]
struct Advice {
    abi: Abi,
    place: Place,
    wish: Wish,
}

/// What a thread is about.
enum Doing {
    /// Its own.
    Runs,
    /// A call whose result gets advice: so many bytes of a mapping, or the break.
    Calls(Advice, u64),
    /// A program that has not made a call yet.
    Begins(Wish),
    /// A call of ours. What is put back behind it: registers and blocked signals.
    Injected { advice: Advice, bytes: u64, after: Box<libc::user_regs_struct>, mask: u64 },
    /// A call that makes a child, without the flag that it asked for: its first register.
    Bears(u64),
}

struct Thread {
    group: pid_t,
    doing: Doing,
}

#[derive(Clone, Copy, Default)]
struct Process {
    /// Where its break is, if it was seen.
    brk: Option<u64>,
    /// It filters its own calls (A5).
    filters: bool,
}

/// A child as its parent left it.
#[derive(Clone, Copy, Default)]
struct Birth {
    process: Process,
    /// What its first register shall be again.
    flags: Option<u64>,
}

/// Applies wishes to a program until nothing of it is left.
pub(crate) struct Follower<'r> {
    root: pid_t,
    remedy: &'r Remedy,
    /// Whether a wish names a site.
    sited: bool,
    threads: HashMap<pid_t, Thread>,
    processes: HashMap<pid_t, Process>,
    /// Children that were told of and have not stopped yet.
    unborn: HashMap<pid_t, Birth>,
    /// Children that have stopped and were not told of yet.
    early: HashSet<pid_t>,
    sites: Sites,
    /// What wishes were found to be for.
    met: BTreeSet<&'r Target>,
    out: Applied,
}

impl<'r> Follower<'r> {
    /// For a process that this thread has seized, and that is about to start the program.
    pub(crate) fn new(root: pid_t, remedy: &'r Remedy) -> Follower<'r> {
        let sited = remedy
            .wishes
            .iter()
            .any(|wished| matches!(wished.target, Target::Made { site: Some(_), .. }));
        Follower {
            root,
            remedy,
            sited,
            threads: HashMap::from([(root, Thread { group: root, doing: Doing::Runs })]),
            processes: HashMap::from([(root, Process::default())]),
            unborn: HashMap::new(),
            early: HashSet::new(),
            sites: Sites::default(),
            met: BTreeSet::new(),
            out: Applied::default(),
        }
    }

    /// Follows to the end. `ended` is told what was done when the program itself has ended, before
    /// its parent learns of it.
    pub(crate) fn follow(mut self, ended: impl FnOnce(&Applied, Rest)) -> io::Result<Applied> {
        let mut ended = Some(ended);
        while let Some((tid, has_ended)) = sys::peek_next()? {
            if tid == self.root
                && has_ended
                && let Some(ended) = ended.take()
            {
                let rest = self.rest(tid);
                self.tell_unmet();
                ended(&self.out, rest);
            }
            // Whoever was killed meanwhile has another report, or none.
            if let Ok(status) = sys::take_report(tid) {
                self.report(tid, status);
            }
        }
        self.tell_unmet();
        Ok(self.out)
    }

    fn tell_unmet(&mut self) {
        let all = self.remedy.wishes.iter().map(|wished| &wished.target);
        self.out.unmet = all.filter(|target| !self.met.contains(target)).cloned().collect();
    }

    /// Notes that a mapping is what a wish is for.
    fn meets(&mut self, wished: Option<&'r Wished>) -> Option<Wish> {
        self.met.extend(wished.map(|wished| &wished.target));
        wished.map(|wished| wished.wish)
    }

    /// Whether there is anybody but this one, who may not have stopped yet.
    fn rest(&self, tid: pid_t) -> Rest {
        let is_alone = self.threads.keys().all(|other| *other == tid);
        match is_alone && self.unborn.is_empty() && self.early.is_empty() {
            true => Rest::Nothing,
            false => Rest::Something,
        }
    }

    fn report(&mut self, tid: pid_t, status: i32) {
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            return self.gone(tid);
        }
        if !libc::WIFSTOPPED(status) {
            return;
        }
        if !self.threads.contains_key(&tid) {
            match self.unborn.remove(&tid) {
                Some(birth) => self.adopt(tid, birth),
                None if self.is_orphan(tid) => self.adopt(tid, Birth::UNKNOWN),
                None => drop(self.early.insert(tid)), // held until its parent tells (A6)
            }
            return;
        }
        let signal = libc::WSTOPSIG(status);
        match status >> 16 {
            libc::PTRACE_EVENT_SECCOMP => self.before(tid),
            libc::PTRACE_EVENT_EXEC => self.execs(tid),
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
                self.bears(tid);
            }
            libc::PTRACE_EVENT_STOP if signal != libc::SIGTRAP => {
                // A group stop: the thread stays stopped until SIGCONT, which is reported in turn.
                let _ = sys::listen(tid);
            }
            0 if signal == libc::SIGTRAP | 0x80 => self.at_edge(tid),
            0 => self.resume(tid, signal),
            _ => self.resume(tid, 0),
        }
    }

    /// Lets a thread run on. One that was killed meanwhile is reported by the next wait.
    fn resume(&self, tid: pid_t, signal: i32) {
        let doing = self.threads.get(&tid).map(|thread| &thread.doing);
        let to_edge = doing.is_some_and(|doing| !matches!(doing, Doing::Runs));
        let _ = sys::resume(tid, signal, to_edge);
    }

    fn set(&mut self, tid: pid_t, doing: Doing) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.doing = doing;
        }
    }

    fn group(&self, tid: pid_t) -> pid_t {
        self.threads.get(&tid).map_or(tid, |thread| thread.group)
    }

    fn process(&mut self, tid: pid_t) -> &mut Process {
        let group = self.group(tid);
        self.processes.entry(group).or_default()
    }

    /// A call that the filter stops is about to be made.
    fn before(&mut self, tid: pid_t) {
        self.out.stops += 1;
        let Ok(regs) = sys::registers(tid) else { return self.resume(tid, 0) };
        let abi = Abi::of(sys::event_message(tid));
        match abi.call(tid, &regs) {
            Some((libc::SYS_mmap, args)) => self.maps(tid, abi, &regs, &args),
            Some((libc::SYS_brk, _)) => {
                if let Some(wish) = self.meets(self.remedy.of_heap()) {
                    self.advised(tid, Advice { abi, place: Place::Heap, wish }, 0);
                }
            }
            Some((libc::SYS_clone, args)) if args[0] & UNTRACED != 0 => {
                let (changed, flags) = first_register(abi, regs, |flags| flags & !UNTRACED);
                if sys::set_registers(tid, &changed).is_ok() {
                    self.set(tid, Doing::Bears(flags));
                }
            }
            Some((libc::SYS_clone3, args)) => self.clones(tid, &regs, args[0]),
            // What asks only what there is sets no filter.
            Some((libc::SYS_seccomp, [operation, ..])) if operation > FILTER => {}
            Some((libc::SYS_clone, _)) => {}
            _ => self.process(tid).filters = true,
        }
        self.resume(tid, 0);
    }

    /// A mapping is about to be made: whether it gets advice is known now, where it will be is not.
    fn maps(&mut self, tid: pid_t, abi: Abi, regs: &libc::user_regs_struct, args: &[u64; 6]) {
        let [_, bytes, _, flags, ..] = *args;
        let group = self.group(tid);
        if flags as u32 & filter::KIND != filter::OURS {
            // Code of a file, in which sites may be.
            return self.sites.forget(group);
        }
        let Some(bytes) = bytes.checked_next_multiple_of(FRAME_BYTES) else { return };
        let word = if abi == Abi::I386 { 4 } else { 8 };
        let site = self.sited.then(|| self.sites.caller(group, regs.rsp, word).site).flatten();
        if let Some(wish) = self.meets(self.remedy.of_made(site.as_ref(), Bytes::new(bytes))) {
            self.advised(tid, Advice { abi, place: Place::Mapping, wish }, bytes);
        }
    }

    /// Has a call stop again behind it, where what it makes gets advice.
    fn advised(&mut self, tid: pid_t, advice: Advice, bytes: u64) {
        match self.process(tid).filters {
            true => self.out.passed_over += 1,
            false => self.set(tid, Doing::Calls(advice, bytes)),
        }
    }

    /// The flags of `clone3` are in the program's memory, which is not ours to change (A1): a child
    /// that is not to be traced is refused, as by a kernel that does not know the call. Programs
    /// have `clone` for those.
    fn clones(&mut self, tid: pid_t, regs: &libc::user_regs_struct, at: u64) {
        let mut flags = [0; 8];
        sys::read_memory(tid, at, &mut flags);
        if u64::from_le_bytes(flags) & UNTRACED == 0 {
            return;
        }
        let rax = -i64::from(libc::ENOSYS) as u64;
        let refused = libc::user_regs_struct { orig_rax: u64::MAX, rax, ..*regs };
        let _ = sys::set_registers(tid, &refused);
        self.remark(
            "clone3 was called with CLONE_UNTRACED; it was told that there is no such call",
        );
    }

    /// A thread that we wait for stops before a call or behind one.
    fn at_edge(&mut self, tid: pid_t) {
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        let edge = sys::edge(tid);
        match (std::mem::replace(&mut thread.doing, Doing::Runs), edge) {
            (Doing::Calls(advice, bytes), Some(Edge::Behind)) => self.behind(tid, advice, bytes),
            (Doing::Begins(wish), Some(Edge::Before { is_i386 })) => {
                let abi = if is_i386 { Abi::I386 } else { Abi::Native };
                let areas = procfs::areas(tid);
                if let Some(stack) = areas.iter().find(|area| area.kind == AreaKind::Stack) {
                    let advice = Advice { abi, place: Place::Stack, wish };
                    self.inject(tid, advice, stack.range, Edge::Before { is_i386 });
                }
            }
            (Doing::Injected { advice, bytes, after, mask }, Some(Edge::Behind)) => {
                self.injected(tid, advice, bytes);
                let _ = sys::set_signal_mask(tid, mask);
                let _ = sys::set_registers(tid, &after);
            }
            (Doing::Bears(flags), _) => restore_first(tid, flags),
            // Not the one that is waited for.
            (doing, _) => self.set(tid, doing),
        }
        self.resume(tid, 0);
    }

    /// A call is done whose result gets advice.
    fn behind(&mut self, tid: pid_t, advice: Advice, bytes: u64) {
        let Ok(regs) = sys::registers(tid) else { return };
        let result = advice.abi.result(regs.rax);
        if (-4095..0).contains(&result) {
            return;
        }
        let range = match advice.place {
            Place::Heap => self.grown(tid, result as u64),
            Place::Stack | Place::Mapping => procfs::sized(result as u64, bytes),
        };
        if !range.is_empty() {
            self.inject(tid, advice, range, Edge::Behind);
        }
    }

    /// What the break has gained.
    fn grown(&mut self, tid: pid_t, now: u64) -> VaRange {
        let before = self.process(tid).brk.replace(now);
        let before = before.unwrap_or_else(|| procfs::start_brk(tid).get());
        let whole = |at: u64| at.min(VA_MAX).next_multiple_of(FRAME_BYTES);
        procfs::pages(whole(before), whole(now).max(whole(before)))
    }

    /// Makes a thread that stands at a call's edge carry out ours.
    fn inject(&mut self, tid: pid_t, advice: Advice, range: VaRange, at: Edge) {
        let (Ok(regs), Ok(mask)) = (sys::registers(tid), sys::signal_mask(tid)) else { return };
        let (at_instruction, none) = (regs.rip.wrapping_sub(INSTRUCTION), u64::MAX);
        // Behind a call the instruction is carried out again, before one the call becomes ours and
        // is made afterwards.
        let (after, ours) = match at {
            Edge::Behind => (
                libc::user_regs_struct { orig_rax: none, ..regs },
                libc::user_regs_struct {
                    rip: at_instruction,
                    orig_rax: none,
                    rax: number(advice.abi),
                    ..regs
                },
            ),
            Edge::Before { .. } => (
                libc::user_regs_struct {
                    rip: at_instruction,
                    orig_rax: none,
                    rax: regs.orig_rax,
                    ..regs
                },
                libc::user_regs_struct { orig_rax: number(advice.abi), ..regs },
            ),
        };
        let (start, bytes) = (range.start().get(), range.bytes().get());
        let ours = with_arguments(ours, advice, start, bytes);
        if sys::set_signal_mask(tid, u64::MAX).is_ok() && sys::set_registers(tid, &ours).is_ok() {
            let after = Box::new(after);
            self.set(tid, Doing::Injected { advice, bytes, after, mask });
        }
    }

    /// Our call is done.
    fn injected(&mut self, tid: pid_t, advice: Advice, bytes: u64) {
        let Ok(regs) = sys::registers(tid) else { return };
        let given = self.out.given.entry((advice.place, advice.wish)).or_default();
        match advice.abi.result(regs.rax) {
            error @ -4095..0 => *given.refused.entry(-error as i32).or_default() += 1,
            _ => {
                given.calls += 1;
                given.bytes += bytes;
            }
        }
    }

    /// A thread has made a child.
    fn bears(&mut self, tid: pid_t) {
        let flags = match self.threads.get(&tid).map(|thread| &thread.doing) {
            Some(Doing::Bears(flags)) => Some(*flags),
            _ => None,
        };
        let birth = Birth { process: *self.process(tid), flags };
        if let Ok(child) = sys::event_message(tid) {
            let child = child as pid_t;
            match self.early.remove(&child) {
                true => self.adopt(child, birth),
                false => drop(self.unborn.insert(child, birth)),
            }
        }
        self.resume(tid, 0);
    }

    /// Takes in a child that has stopped, and lets it run.
    fn adopt(&mut self, tid: pid_t, birth: Birth) {
        let group = procfs::group(tid).unwrap_or(tid);
        self.processes.entry(group).or_insert(birth.process);
        self.threads.insert(tid, Thread { group, doing: Doing::Runs });
        if let Some(flags) = birth.flags {
            restore_first(tid, flags);
        }
        self.resume(tid, 0);
    }

    /// Whether nobody is left who could tell of this child.
    fn is_orphan(&self, child: pid_t) -> bool {
        let family = [procfs::group(child), procfs::parent(child)];
        !self.threads.values().any(|thread| family.contains(&Some(thread.group)))
    }

    /// Lets children run whose parent is gone without having told of them.
    fn release_orphans(&mut self, but: impl Fn(&Self, pid_t) -> bool) {
        let orphans: Vec<pid_t> =
            self.early.iter().copied().filter(|child| but(self, *child)).collect();
        for child in orphans {
            self.early.remove(&child);
            self.adopt(child, Birth::UNKNOWN);
        }
    }

    fn execs(&mut self, tid: pid_t) {
        // The other threads are gone, and with them whatever they were about.
        self.threads.retain(|_, thread| thread.group != tid);
        self.release_orphans(|_, child| procfs::parent(child) == Some(tid));
        let filters = self.processes.get(&tid).is_some_and(|process| process.filters);
        self.processes.insert(tid, Process { brk: None, filters });
        self.sites.forget(tid);
        let doing = match self.meets(self.remedy.of_stack()) {
            Some(_) if filters => {
                self.out.passed_over += 1;
                Doing::Runs
            }
            Some(wish) => Doing::Begins(wish),
            None => Doing::Runs,
        };
        self.threads.insert(tid, Thread { group: tid, doing });
        if let Some(program) = procfs::without_rights(tid) {
            self.remark(&format!(
                "{program} runs without the rights of its file's owner, which the system gives to nobody who is traced"
            ));
        }
        self.resume(tid, 0);
    }

    fn gone(&mut self, tid: pid_t) {
        self.unborn.remove(&tid);
        self.early.remove(&tid);
        let group = self.group(tid);
        self.threads.remove(&tid);
        if group == tid {
            // Its other threads ended before it.
            self.processes.remove(&tid);
            self.sites.forget(tid);
        }
        self.release_orphans(Self::is_orphan);
    }

    fn remark(&mut self, text: &str) {
        if !self.out.remarks.contains(text) {
            self.out.remarks.insert(text.to_owned());
        }
    }
}

impl Birth {
    /// Of a child whose parent has not told of it: what it filters is not known, so nothing is
    /// injected into it (A5).
    const UNKNOWN: Birth = Birth { process: Process { brk: None, filters: true }, flags: None };
}

/// Keeps a tracer from following the child.
const UNTRACED: u64 = libc::CLONE_UNTRACED as u64;
/// Operations of `seccomp` up to this one set a filter.
const FILTER: u64 = libc::SECCOMP_SET_MODE_FILTER as u64;
/// Bytes of the instruction that makes a call, of either kind.
const INSTRUCTION: u64 = 2;

/// The number of `madvise`.
fn number(abi: Abi) -> u64 {
    match abi {
        Abi::I386 => 219,
        Abi::Native | Abi::X32 => libc::SYS_madvise as u64,
    }
}

/// Registers with the arguments of our call.
fn with_arguments(
    regs: libc::user_regs_struct,
    advice: Advice,
    start: u64,
    bytes: u64,
) -> libc::user_regs_struct {
    let rdx = u64::from(advice.wish.advice());
    match advice.abi {
        Abi::I386 => libc::user_regs_struct { rbx: start, rcx: bytes, rdx, ..regs },
        Abi::Native | Abi::X32 => libc::user_regs_struct { rdi: start, rsi: bytes, rdx, ..regs },
    }
}

/// Registers with another first argument, and what it was.
fn first_register(
    abi: Abi,
    regs: libc::user_regs_struct,
    change: impl Fn(u64) -> u64,
) -> (libc::user_regs_struct, u64) {
    match abi {
        Abi::I386 => (libc::user_regs_struct { rbx: change(regs.rbx), ..regs }, regs.rbx),
        Abi::Native | Abi::X32 => {
            (libc::user_regs_struct { rdi: change(regs.rdi), ..regs }, regs.rdi)
        }
    }
}

/// Puts the first argument of a call that made a child back.
fn restore_first(tid: pid_t, flags: u64) {
    let Ok(regs) = sys::registers(tid) else { return };
    let abi = if regs.cs == CODE_32 { Abi::I386 } else { Abi::Native };
    let (regs, _) = first_register(abi, regs, |_| flags);
    let _ = sys::set_registers(tid, &regs);
}

/// The segment that code of 32 bits runs in.
const CODE_32: u64 = 0x23;
