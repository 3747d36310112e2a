//! System calls that the standard library lacks, each behind a safe function.
//!
//! Nothing here decides anything; `tracer` and `perf` do. The unsafe code of the recorder is in
//! this file, in `spawn` (the child between fork and exec) and in `ring` (memory shared with the
//! kernel).
#![allow(unsafe_code)]

use foliant_units::{Va, VaRange};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub(crate) use libc::pid_t;

fn check(n: libc::c_long) -> io::Result<libc::c_long> {
    if n == -1 { Err(io::Error::last_os_error()) } else { Ok(n) }
}

/// Nanoseconds of `CLOCK_MONOTONIC`, the clock that the samples carry.
pub(crate) fn clock_ns() -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is a live timespec to be filled in.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut ts) };
    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
}

/// A plain ptrace request whose arguments are numbers.
fn ptrace(request: libc::c_uint, pid: pid_t, data: usize) -> io::Result<()> {
    // SAFETY: the requests passed here (seize, cont, syscall, listen) take numbers and no pointers.
    let n = unsafe { libc::ptrace(request, pid, 0usize, data) };
    check(n).map(drop)
}

/// Attaches without stopping.
pub(crate) fn seize(pid: pid_t, options: libc::c_int) -> io::Result<()> {
    ptrace(libc::PTRACE_SEIZE, pid, options as usize)
}

/// Lets a stopped thread run on, with a signal or 0.
pub(crate) fn resume(pid: pid_t, signal: i32, to_syscall_end: bool) -> io::Result<()> {
    let request = if to_syscall_end { libc::PTRACE_SYSCALL } else { libc::PTRACE_CONT };
    ptrace(request, pid, signal as usize)
}

/// Leaves a thread in its group stop, listening.
pub(crate) fn listen(pid: pid_t) -> io::Result<()> {
    ptrace(libc::PTRACE_LISTEN, pid, 0)
}

/// A stopped thread's registers.
pub(crate) fn registers(pid: pid_t) -> io::Result<libc::user_regs_struct> {
    let mut regs = std::mem::MaybeUninit::<libc::user_regs_struct>::zeroed();
    // SAFETY: the kernel writes one user_regs_struct to the address, which has room for it.
    let n = unsafe { libc::ptrace(libc::PTRACE_GETREGS, pid, 0usize, regs.as_mut_ptr()) };
    check(n)?;
    // SAFETY: the struct is plain numbers, zeroed first and then filled in.
    Ok(unsafe { regs.assume_init() })
}

/// Sets a stopped thread's registers.
pub(crate) fn set_registers(pid: pid_t, regs: &libc::user_regs_struct) -> io::Result<()> {
    // SAFETY: the kernel reads one user_regs_struct from the address of a live one.
    let n = unsafe { libc::ptrace(libc::PTRACE_SETREGS, pid, 0usize, regs as *const _) };
    check(n).map(drop)
}

/// The message of a ptrace event.
pub(crate) fn event_message(pid: pid_t) -> io::Result<u64> {
    let mut message: libc::c_ulong = 0;
    // SAFETY: the kernel writes one unsigned long to the address of a live one.
    let n = unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, pid, 0usize, &mut message) };
    check(n).map(|_| message)
}

/// Which end of a system call a thread has stopped at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edge {
    /// Before the call, which 32-bit code makes, or not.
    Before {
        /// Made as programs of 32 bits do.
        is_i386: bool,
    },
    /// Behind it.
    Behind,
}

/// The end of a call that a thread has stopped at; `None` where the stop is of another kind.
pub(crate) fn edge(pid: pid_t) -> Option<Edge> {
    const GET_SYSCALL_INFO: libc::c_uint = 0x420e;
    const I386: u32 = 0x4000_0003;
    let mut info = [0u32; 24];
    // SAFETY: the kernel writes at most that many bytes to the live array.
    let n = unsafe { libc::ptrace(GET_SYSCALL_INFO, pid, size_of_val(&info), info.as_mut_ptr()) };
    check(n).ok()?;
    match info[0] as u8 {
        1 => Some(Edge::Before { is_i386: info[1] == I386 }),
        2 => Some(Edge::Behind),
        _ => None,
    }
}

/// The signals that a stopped thread has blocked.
pub(crate) fn signal_mask(pid: pid_t) -> io::Result<u64> {
    const GETSIGMASK: libc::c_uint = 0x420a;
    let mut mask = 0u64;
    // SAFETY: the kernel writes eight bytes, as is told, to a live word.
    let n = unsafe { libc::ptrace(GETSIGMASK, pid, size_of_val(&mask), &raw mut mask) };
    check(n).map(|_| mask)
}

/// Sets the signals that a stopped thread has blocked.
pub(crate) fn set_signal_mask(pid: pid_t, mask: u64) -> io::Result<()> {
    const SETSIGMASK: libc::c_uint = 0x420b;
    // SAFETY: the kernel reads eight bytes, as is told, of a live word.
    let n = unsafe { libc::ptrace(SETSIGMASK, pid, size_of_val(&mask), &raw const mask) };
    check(n).map(drop)
}

/// Who has the next report for this thread, which is left there; the second is whether it has
/// ended. `None` when no child or tracee is left.
pub(crate) fn peek_next() -> io::Result<Option<(pid_t, bool)>> {
    let flags = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::__WALL | libc::__WNOTHREAD;
    loop {
        // SAFETY: a struct of numbers, for which zeros are legal values.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: `info` is live and to be filled in.
        let n = unsafe { libc::waitid(libc::P_ALL, 0, &mut info, flags) };
        if n == 0 {
            let ended = [libc::CLD_EXITED, libc::CLD_KILLED, libc::CLD_DUMPED];
            // SAFETY: the call that succeeded has filled in the process's number.
            return Ok(Some((unsafe { info.si_pid() }, ended.contains(&info.si_code))));
        }
        let e = io::Error::last_os_error();
        match e.raw_os_error() {
            Some(libc::ECHILD) => return Ok(None),
            Some(libc::EINTR) => {}
            _ => return Err(e),
        }
    }
}

/// Takes the report of a child or tracee that has one.
pub(crate) fn take_report(pid: pid_t) -> io::Result<i32> {
    let mut status = 0;
    // SAFETY: `status` is a live int to be filled in.
    match unsafe { libc::waitpid(pid, &mut status, libc::__WALL | libc::__WNOTHREAD) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(status),
    }
}

/// CPU time, the program's own and the system's for it, in nanoseconds.
pub(crate) type CpuTime = [u64; 2];

/// What this thread has taken, or all children of this process that were waited for.
pub(crate) fn cpu_time(of: libc::c_int) -> CpuTime {
    // SAFETY: a struct of numbers, for which zeros are legal values.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is live and to be filled in.
    unsafe { libc::getrusage(of, &mut usage) };
    let nanos = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1000;
    [nanos(usage.ru_utime), nanos(usage.ru_stime)]
}

/// Waits for the next report of a child or tracee of *this thread*; `None` when there is none left.
pub(crate) fn wait_next() -> io::Result<Option<(pid_t, i32)>> {
    let flags = libc::__WALL | libc::__WNOTHREAD;
    loop {
        let mut status = 0;
        // SAFETY: `status` is a live int to be filled in.
        let pid = unsafe { libc::waitpid(-1, &mut status, flags) };
        if pid > 0 {
            return Ok(Some((pid, status)));
        }
        let e = io::Error::last_os_error();
        match e.raw_os_error() {
            Some(libc::ECHILD) => return Ok(None),
            Some(libc::EINTR) => {}
            _ => return Err(e),
        }
    }
}

/// Waits for a child that is about to end.
pub(crate) fn reap(pid: pid_t) {
    let mut status = 0;
    // SAFETY: `status` is a live int to be filled in; `pid` is an unreaped child of this process.
    while unsafe { libc::waitpid(pid, &mut status, 0) } == -1
        && io::Error::last_os_error().raw_os_error() == Some(libc::EINTR)
    {}
}

/// Kills and reaps a child of this thread that is not to go on.
pub(crate) fn kill_and_reap(pid: pid_t) {
    // SAFETY: takes numbers only; `pid` is an unreaped child, so it names no one else.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    while let Ok(Some((who, status))) = wait_next() {
        if who == pid && (libc::WIFEXITED(status) || libc::WIFSIGNALED(status)) {
            break;
        }
    }
}

/// Reads another process's memory and returns how many bytes came.
pub(crate) fn read_memory(pid: pid_t, from: u64, into: &mut [u8]) -> usize {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: from as *mut libc::c_void, iov_len: into.len() };
    // SAFETY: the kernel writes at most `into.len()` bytes to `into`; the remote side is only read.
    let n = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
    usize::try_from(n).unwrap_or(0)
}

/// The runs of a range that are present in a process's page map, without those of files and without
/// shared zeros.
pub(crate) fn resident(map: &File, range: VaRange) -> io::Result<Vec<VaRange>> {
    /// `PAGEMAP_SCAN`, with the size of its argument.
    const SCAN: libc::c_ulong =
        3 << 30 | (size_of::<Scan>() as libc::c_ulong) << 16 | 0x66 << 8 | 16;
    const FILE: u64 = 1 << 2;
    const PRESENT: u64 = 1 << 3;
    const ZEROS: u64 = 1 << 5;
    #[repr(C)]
    struct Scan {
        size: u64,
        flags: u64,
        start: u64,
        end: u64,
        walk_end: u64,
        list: u64,
        length: u64,
        most: u64,
        inverted: u64,
        all_of: u64,
        any_of: u64,
        told: u64,
    }
    let mut runs = Vec::new();
    let mut list = [[0u64; 3]; 256];
    let (mut start, end) = (range.start().get(), range.end().get());
    while start < end {
        let mut scan = Scan {
            size: size_of::<Scan>() as u64,
            flags: 0,
            start,
            end,
            walk_end: 0,
            list: list.as_mut_ptr().addr() as u64,
            length: list.len() as u64,
            most: 0,
            inverted: FILE | ZEROS,
            all_of: FILE | PRESENT | ZEROS,
            any_of: 0,
            told: PRESENT,
        };
        // SAFETY: `scan` is live, and its list is `list`, of that many entries of three words; the
        // kernel writes to both and keeps neither.
        let n = check(unsafe { libc::ioctl(map.as_raw_fd(), SCAN, &raw mut scan) }.into())?;
        for [first, last, _] in &list[..n as usize] {
            runs.extend(VaRange::new(Va::new(*first), Va::new(*last)));
        }
        if scan.walk_end <= start {
            break;
        }
        start = scan.walk_end;
    }
    Ok(runs)
}

/// Gives a file without a name this one, where nothing has it.
pub(crate) fn link(file: &File, path: &Path) -> io::Result<()> {
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let to = CString::new(path.as_os_str().as_bytes())?;
    let (here, follow) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
    // SAFETY: both names are live C strings.
    let n = unsafe { libc::linkat(here, from.as_ptr(), here, to.as_ptr(), follow) };
    check(n.into()).map(drop)
}

/// `perf_event_attr`, as much of it as is used here (its size tells the kernel).
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct PerfAttr {
    pub(crate) kind: u32,
    pub(crate) size: u32,
    pub(crate) config: u64,
    pub(crate) sample_period: u64,
    pub(crate) sample_type: u64,
    pub(crate) read_format: u64,
    pub(crate) flags: u64,
    pub(crate) wakeup: u32,
    pub(crate) bp_type: u32,
    pub(crate) config1: u64,
    pub(crate) config2: u64,
    pub(crate) branch_sample_type: u64,
    pub(crate) sample_regs_user: u64,
    pub(crate) sample_stack_user: u32,
    pub(crate) clockid: i32,
    pub(crate) sample_regs_intr: u64,
    pub(crate) aux_watermark: u32,
    pub(crate) sample_max_stack: u16,
    pub(crate) reserved: u16,
}

const _: () = assert!(size_of::<PerfAttr>() == 112);

/// Opens a counter on a process and a CPU.
pub(crate) fn perf_event_open(attr: &PerfAttr, pid: pid_t, cpu: u32) -> io::Result<OwnedFd> {
    const CLOEXEC: libc::c_ulong = 8;
    let attr: *const PerfAttr = attr;
    // SAFETY: the kernel reads `attr.size` bytes, which is the size of the live struct.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, attr, pid, cpu, -1i32, CLOEXEC) };
    let fd = check(fd)? as RawFd;
    // SAFETY: the call has just returned this descriptor and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The number that a counter's samples carry.
pub(crate) fn perf_id(fd: &OwnedFd) -> io::Result<u64> {
    const IOC_ID: libc::c_ulong = 0x8008_2407;
    let mut id = 0u64;
    // SAFETY: the kernel writes one u64 to the address of a live one.
    let n = unsafe { libc::ioctl(fd.as_raw_fd(), IOC_ID, &mut id) };
    check(n.into()).map(|_| id)
}

/// Lets a counter write to another one's ring.
pub(crate) fn perf_redirect(fd: &OwnedFd, to: &OwnedFd) -> io::Result<()> {
    const IOC_SET_OUTPUT: libc::c_ulong = 0x2405;
    // SAFETY: the request takes a descriptor's number and no pointer.
    let n = unsafe { libc::ioctl(fd.as_raw_fd(), IOC_SET_OUTPUT, to.as_raw_fd()) };
    check(n.into()).map(drop)
}

/// Lets a counter of a tracepoint tell only what passes this filter.
pub(crate) fn perf_filter(fd: &OwnedFd, filter: &CStr) -> io::Result<()> {
    const IOC_SET_FILTER: libc::c_ulong = 0x4008_2406;
    // SAFETY: the kernel reads a live C string.
    let n = unsafe { libc::ioctl(fd.as_raw_fd(), IOC_SET_FILTER, filter.as_ptr()) };
    check(n.into()).map(drop)
}

/// Has a counter count, or not.
pub(crate) fn perf_enable(fd: &OwnedFd, enable: bool) -> io::Result<()> {
    let request: libc::c_ulong = if enable { 0x2400 } else { 0x2401 };
    // SAFETY: takes numbers only.
    let n = unsafe { libc::ioctl(fd.as_raw_fd(), request, 0) };
    check(n.into()).map(drop)
}

/// Waits until one of the descriptors has something, or so many milliseconds; true if one is gone.
pub(crate) fn poll(fds: &[RawFd], timeout_ms: i32) -> bool {
    let new = |&fd: &RawFd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut set: Vec<libc::pollfd> = fds.iter().map(new).collect();
    // SAFETY: the kernel reads and writes `set.len()` live pollfds.
    unsafe { libc::poll(set.as_mut_ptr(), set.len() as libc::nfds_t, timeout_ms) };
    set.iter().any(|p| p.revents & (libc::POLLHUP | libc::POLLERR) != 0)
}

/// A descriptor of the tracing file system's root, mounted nowhere that others could see.
pub(crate) fn tracefs_root() -> io::Result<OwnedFd> {
    let name: &CStr = c"tracefs";
    const CONFIG_CREATE: u32 = 6;
    let null = std::ptr::null::<libc::c_char>();
    // SAFETY: `name` is a live C string.
    let fd = unsafe { libc::syscall(libc::SYS_fsopen, name.as_ptr(), 1u32) };
    let fd = check(fd)? as RawFd;
    // SAFETY: the call has just returned this descriptor and nothing else owns it.
    let context = unsafe { OwnedFd::from_raw_fd(fd) };
    let raw = context.as_raw_fd();
    // SAFETY: this command takes no key and no value: both are null.
    let n = unsafe { libc::syscall(libc::SYS_fsconfig, raw, CONFIG_CREATE, null, null, 0u32) };
    check(n)?;
    // SAFETY: takes numbers only.
    let fd = unsafe { libc::syscall(libc::SYS_fsmount, raw, 1u32, 0u32) };
    let fd = check(fd)? as RawFd;
    // SAFETY: the call has just returned this descriptor and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Raises this thread's own priority where that is permitted; the ring must not fill up.
pub(crate) fn raise_priority() {
    // SAFETY: takes numbers only; 0 is the calling thread. Failure changes nothing.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
}

/// Whether this thread runs before all that are not urgent, where that is permitted: for the
/// moments when others stand still for it.
pub(crate) fn be_urgent(urgent: bool) {
    let policy = if urgent { libc::SCHED_FIFO } else { libc::SCHED_OTHER };
    let param = libc::sched_param { sched_priority: urgent.into() };
    // SAFETY: the kernel reads a live struct; 0 is the calling thread. Failure changes nothing.
    unsafe { libc::sched_setscheduler(0, policy, &param) };
}

/// Switches the random layout of address spaces off, for what this process starts from now on.
pub(crate) fn fix_layout() -> io::Result<()> {
    const KEEP: libc::c_ulong = 0xffff_ffff;
    // SAFETY: takes a number only; this one asks and changes nothing.
    let now = check(unsafe { libc::personality(KEEP) }.into())?;
    let wanted = now as libc::c_ulong | libc::ADDR_NO_RANDOMIZE as libc::c_ulong;
    // SAFETY: takes a number only; nothing that runs here looks at this flag.
    check(unsafe { libc::personality(wanted) }.into()).map(drop)
}

/// The flag of `PR_SET_THP_DISABLE` that leaves advised areas their large pages.
pub(crate) const THP_EXCEPT_ADVISED: u64 = 2;

/// Whether the kernel knows that flag: it is set for this process, and what was set before is set
/// again.
pub(crate) fn knows_thp_flags() -> bool {
    const GET: libc::c_int = libc::PR_GET_THP_DISABLE;
    const SET: libc::c_int = libc::PR_SET_THP_DISABLE;
    let flag = THP_EXCEPT_ADVISED as usize;
    // SAFETY: takes numbers only.
    let before = unsafe { libc::prctl(GET, 0usize, 0usize, 0usize, 0usize) };
    let Ok(before) = usize::try_from(before) else { return false };
    // SAFETY: takes numbers only.
    if unsafe { libc::prctl(SET, 1usize, flag, 0usize, 0usize) } == -1 {
        return false;
    }
    // SAFETY: takes numbers only; these were in force a moment ago.
    unsafe { libc::prctl(SET, before & 1, before & flag, 0usize, 0usize) };
    true
}

/// This process's effective user.
pub(crate) fn user_id() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// The number of the calling thread.
pub(crate) fn thread_id() -> pid_t {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::gettid() }
}

/// Sends a process a signal.
pub(crate) fn send_signal(pid: pid_t, signal: i32) {
    // SAFETY: takes numbers only.
    unsafe { libc::kill(pid, signal) };
}

/// Lets this process have as many descriptors as it may.
pub(crate) fn raise_descriptors() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is live and to be filled in.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    let most = limit.rlim_max.max(if is_root() { 1 << 20 } else { 0 });
    for rlim_max in [most, limit.rlim_max] {
        let new = libc::rlimit { rlim_cur: rlim_max, rlim_max };
        // SAFETY: the kernel reads a live struct.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &new) } == 0 {
            return;
        }
    }
}

/// Makes this process's table of descriptors as large as that.
pub(crate) fn reserve_descriptors(count: usize) {
    let least = libc::c_int::try_from(count).unwrap_or(libc::c_int::MAX);
    // SAFETY: takes numbers only. Failure changes nothing.
    let fd = unsafe { libc::fcntl(0, libc::F_DUPFD_CLOEXEC, least) };
    if fd != -1 {
        // SAFETY: the call has just returned this descriptor and nothing else owns it.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }
}

/// Whether this process has root's user id, and with it the privilege that a filter needs.
pub(crate) fn is_root() -> bool {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Whether what lies at a path is a file of a tmpfs, as memfds are.
pub(crate) fn is_in_memory(path: &str) -> bool {
    let Ok(path) = CString::new(path) else { return false };
    let mut about = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the kernel reads the text and writes one statfs to the address, which has room for
    // it.
    let done = unsafe { libc::statfs(path.as_ptr(), about.as_mut_ptr()) };
    // SAFETY: the struct is plain numbers, zeroed first and then filled in.
    done == 0 && unsafe { about.assume_init() }.f_type == libc::TMPFS_MAGIC
}

/// The parts of a file in whole pages that hold data, within this part of it.
pub(crate) fn data(file: &File, part: VaRange) -> Vec<VaRange> {
    let seek = |at: u64, whence: libc::c_int| {
        // SAFETY: takes numbers only; the descriptor is open.
        let n = unsafe { libc::lseek(file.as_raw_fd(), at as libc::off_t, whence) };
        check(n).map(|n| n as u64).ok()
    };
    let (mut runs, mut at, end) = (Vec::new(), part.start().get(), part.end().get());
    while at < end
        && let Some(start) = seek(at, libc::SEEK_DATA).filter(|start| *start < end)
        && let Some(hole) = seek(start, libc::SEEK_HOLE)
    {
        at = hole.next_multiple_of(foliant_units::FRAME_BYTES).max(start + 1);
        runs.extend(VaRange::new(Va::new(start), Va::new(at.min(end))));
    }
    runs
}
