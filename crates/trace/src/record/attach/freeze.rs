//! Stopping the threads of a running process for a moment, and one call on its behalf.
//!
//! ```text
//!   Frozen::of(pid): seize, interrupt, wait ── what must not change is read ── release (or drop): detach
//! ```
//!
//! **Invariants**
//! - Z1. Whatever happens, every thread that was stopped is let go, with the signal that it was
//!   about to get.
//! - Z2. A thread that does not stop within [`PATIENCE`] and sleeps in the kernel where nothing
//!   wakes it changes nothing meanwhile; it is not waited for, and is let go when it stops. One
//!   that only waits for a CPU is waited for longer.
//! - Z3. The call that is made for a thread leaves its registers as they were. A call of its own
//!   that the stop broke off goes on as after any stop; a few (`epoll_wait`) come back with
//!   `EINTR`, as they do after `SIGCONT`.
//! - Z4. Nothing is written to the program's memory: the call's instruction is one of the vdso's.
#![allow(unsafe_code)]

use super::super::sys::{self, pid_t};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

/// How long a thread may take to stop, and how often so long if it waits for a CPU.
const PATIENCE: Duration = Duration::from_millis(4);
const TIMES: u32 = 25;

/// Threads that stand still.
pub(crate) struct Frozen {
    /// Each thread that was seized; with the signal it is about to get once it has stopped.
    threads: HashMap<pid_t, Option<i32>>,
    /// When the first of them stood. Until then they ran, slept, or waited for a CPU as ever.
    since: Option<Instant>,
}

fn request(request: libc::c_uint, tid: pid_t, data: usize) -> io::Result<()> {
    // SAFETY: the requests passed here take numbers and no pointers.
    match unsafe { libc::ptrace(request, tid, 0usize, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// The next report of this thread, if there is one within so long.
fn report(tid: pid_t, within: Duration) -> Option<i32> {
    let end = Instant::now() + within;
    loop {
        let mut status = 0;
        // SAFETY: `status` is a live int to be filled in.
        match unsafe { libc::waitpid(tid, &mut status, libc::__WALL | libc::WNOHANG) } {
            0 if Instant::now() < end => std::thread::sleep(Duration::from_micros(20)),
            0 | -1 => return None,
            _ => return Some(status),
        }
    }
}

/// Whether a thread has not stopped because it does not run, though it could.
fn waits_for_cpu(tid: pid_t) -> bool {
    let stat = fs::read_to_string(format!("/proc/{tid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['R', 'S']))
}

fn seize(tid: pid_t) -> bool {
    sys::seize(tid, libc::PTRACE_O_TRACESYSGOOD).is_ok()
}

/// Threads of a process.
pub(crate) fn threads(pid: pid_t) -> Vec<pid_t> {
    let Ok(list) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    list.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

impl Frozen {
    /// Nobody yet.
    pub(crate) fn new() -> Frozen {
        Frozen { threads: HashMap::new(), since: None }
    }

    /// One thread.
    pub(crate) fn thread(tid: pid_t) -> Frozen {
        let mut frozen = Frozen::new();
        frozen.stop(tid);
        frozen
    }

    /// All threads of a process, those included that are made meanwhile.
    pub(crate) fn process(pid: pid_t) -> Frozen {
        let mut frozen = Frozen::new();
        loop {
            let new: Vec<pid_t> =
                threads(pid).into_iter().filter(|t| !frozen.threads.contains_key(t)).collect();
            if new.is_empty() {
                return frozen;
            }
            // Seizing stops nobody yet.
            let seized: Vec<pid_t> = new.iter().copied().filter(|tid| seize(*tid)).collect();
            seized.iter().for_each(|tid| frozen.interrupt(*tid));
            let seized = !seized.is_empty();
            for tid in new {
                frozen.wait(tid);
            }
            if !seized {
                return frozen; // those that are left are about to be gone
            }
        }
    }

    fn stop(&mut self, tid: pid_t) {
        if seize(tid) {
            self.interrupt(tid);
            self.wait(tid);
        }
    }

    fn interrupt(&mut self, tid: pid_t) {
        let _ = request(libc::PTRACE_INTERRUPT, tid, 0); // who is gone is reported as such
        self.threads.insert(tid, None);
    }

    fn wait(&mut self, tid: pid_t) {
        if !self.threads.contains_key(&tid) {
            return;
        }
        let mut status = report(tid, PATIENCE);
        for _ in 1..TIMES {
            if status.is_some() || !waits_for_cpu(tid) {
                break;
            }
            status = report(tid, PATIENCE);
        }
        if let Some(status) = status {
            if libc::WIFSTOPPED(status) {
                self.since.get_or_insert_with(Instant::now);
                self.threads.insert(tid, Some(signal_of(status)));
            } else {
                self.threads.remove(&tid);
            }
        }
    }

    /// Those that are there.
    pub(crate) fn threads(&self) -> impl Iterator<Item = pid_t> + '_ {
        self.threads.keys().copied()
    }

    /// Whether somebody was stopped.
    pub(crate) fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// Has a thread switch large pages off (or on) for its process, and says what came of it.
    pub(crate) fn disable_thp(&mut self, pid: pid_t, disable: bool) -> io::Result<()> {
        let at = syscall_instruction(pid).ok_or_else(|| io::Error::other("it has no vdso"))?;
        let stopped = |t: &(&pid_t, &Option<i32>)| *t.1 == Some(0);
        let (&tid, _) = self
            .threads
            .iter()
            .find(stopped)
            .ok_or_else(|| io::Error::other("no thread of it could be stopped"))?;
        let before = sys::registers(tid)?;
        let call = libc::user_regs_struct {
            rip: at,
            rax: libc::SYS_prctl as u64,
            orig_rax: u64::MAX,
            rdi: libc::PR_SET_THP_DISABLE as u64,
            rsi: disable.into(),
            rdx: 0,
            r10: 0,
            r8: 0,
            ..before
        };
        sys::set_registers(tid, &call)?;
        let mut late = 0;
        let called = self
            .run(tid, libc::PTRACE_SYSCALL, SYSCALL_STOP, &mut late)
            .and_then(|()| self.run(tid, libc::PTRACE_SYSCALL, SYSCALL_STOP, &mut late));
        let result = sys::registers(tid).map(|regs| regs.rax as i64);
        // Its own call, if it was in one, goes on by the kernel's own rules (Z3): those are applied
        // behind a stop of this kind.
        sys::set_registers(tid, &before)?;
        let _ = request(libc::PTRACE_INTERRUPT, tid, 0);
        let stopped = self.run(tid, libc::PTRACE_CONT, EVENT_STOP, &mut late);
        self.threads.insert(tid, Some(late));
        called.and(stopped)?;
        match result? {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(-error as i32)),
        }
    }

    /// Lets a thread run to a stop of this kind. A signal that it is about to get on the way is
    /// kept for its release.
    fn run(&mut self, tid: pid_t, how: libc::c_uint, to: i32, late: &mut i32) -> io::Result<()> {
        for _ in 0..8 {
            request(how, tid, 0)?;
            let status = report(tid, Duration::from_millis(500))
                .ok_or_else(|| io::Error::other("a thread did not come back"))?;
            if !libc::WIFSTOPPED(status) {
                self.threads.remove(&tid);
                return Err(io::Error::other("the thread has ended"));
            }
            if status >> 8 == to || to == EVENT_STOP && status >> 16 == libc::PTRACE_EVENT_STOP {
                return Ok(());
            }
            if status >> 16 == 0 && signal_of(status) != 0 {
                *late = signal_of(status);
            }
        }
        Err(io::Error::other("a thread stops for something else again and again"))
    }

    /// Lets all go; says how long they stood.
    pub(crate) fn release(mut self) -> Duration {
        self.let_go();
        self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn let_go(&mut self) {
        for (tid, signal) in self.threads.drain() {
            match signal {
                Some(signal) => drop(request(libc::PTRACE_DETACH, tid, signal as usize)),
                None => later(tid),
            }
        }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.let_go();
    }
}

const SYSCALL_STOP: i32 = libc::SIGTRAP | 0x80;
const EVENT_STOP: i32 = libc::SIGTRAP | libc::PTRACE_EVENT_STOP << 8;

/// The signal that a stopped thread is about to get; 0 if it stopped for another reason.
fn signal_of(status: i32) -> i32 {
    let signal = libc::WSTOPSIG(status);
    if status >> 16 == 0 && signal != SYSCALL_STOP { signal } else { 0 }
}

/// Lets a thread go that has not stopped yet (Z2): it can be let go only when it has.
fn later(tid: pid_t) {
    for _ in 0..500 {
        match report(tid, Duration::from_millis(2)) {
            Some(status) if libc::WIFSTOPPED(status) => {
                return drop(request(libc::PTRACE_DETACH, tid, signal_of(status) as usize));
            }
            Some(_) => return,
            None => {}
        }
    }
}

/// Where the process has an instruction that makes a call.
fn syscall_instruction(pid: pid_t) -> Option<u64> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let vdso = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, end) = vdso.split_whitespace().next()?.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let mut code = vec![0; (end - start).min(1 << 16) as usize];
    let n = sys::read_memory(pid, start, &mut code);
    let at = code[..n].windows(2).position(|pair| pair == [0x0f, 0x05])?;
    Some(start + at as u64)
}
