//! Starting the program, to be recorded or measured: the same words, environment and user in both.
//!
//! ```text
//!   recorder            child
//!   fork ─────────────▶ wait for a byte
//!   attach, counters
//!   a byte ───────────▶ recorded: large pages off, seccomp; another user if wished, execve
//!   read ◀───────────── nothing (exec closed the pipe), or the step that failed and why
//!
//!   measured: the child stays as the keeper, and a child of its own is the program
//!   keeper: waits for all that the program leaves behind ──▶ how the program ended, its CPU time
//!
//!   followed: a thread or process that applies wishes learns the program's number, attaches, and lets it
//!   go on to its filter and execve; `replaced`: it is this process that becomes the program
//! ```
//!
//! Between fork and exec the child only makes system calls on values that were prepared before (the
//! recorder may have other threads, whose locks the child would inherit).
//!
//! **Invariants**
//! - P1. A measured run is over when everything that the program started has ended, as a recorded
//!   one is: what outlives its parent becomes the keeper's child.
//! - P2. The keeper ends by itself only: signals that ask a program to end it passes over.
//! - P3. The keeper has nothing of its parent's open: not the end of a pipe that somebody waits
//!   for, and not a lock, which it would hold when its parent is gone.
//! - P4. A keeper dies with whoever measures, and the program with its keeper; a recorded program
//!   dies with its tracer.
//! - P5. Who follows a program that this process becomes is no child of it, is in no group or
//!   session that a terminal sends signals to, and has nothing of it open but its standard error.
#![allow(unsafe_code)]

use super::RecordError;
use super::abi;
use super::sys::{self, CpuTime, pid_t};
use super::user::User;
use crate::format::Ending;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What to start, and how.
pub(crate) struct Start<'a> {
    /// The program as it was named, which is its first word too.
    pub(crate) command: &'a OsStr,
    /// The other words.
    pub(crate) args: &'a [OsString],
    /// As whom; `None` as this process.
    pub(crate) user: Option<&'a User>,
    /// In a process group of its own, no signal blocked, nothing on its standard input, its
    /// standard output thrown away.
    pub(crate) apart: bool,
    /// What it may not have, whatever the switches say.
    pub(crate) barred: Barred,
}

/// Which large folios a program and all that it starts may not have, whatever the switches of sizes
/// say (`PR_SET_THP_DISABLE`).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Barred {
    /// None are barred.
    #[default]
    Nothing,
    /// Those of areas that were not advised; for Linux 6.18 and later.
    Unadvised,
    /// All.
    All,
}

impl Barred {
    /// Whether this kernel knows how.
    pub fn is_known(self) -> bool {
        self != Barred::Unadvised || sys::knows_thp_flags()
    }

    /// Bars this process and what comes of it. Makes one system call and nothing else.
    fn now(self) -> bool {
        let flags = match self {
            Barred::Nothing => return true,
            Barred::Unadvised => sys::THP_EXCEPT_ADVISED,
            Barred::All => 0,
        };
        // SAFETY: takes numbers only.
        unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1usize, flags, 0usize, 0usize) == 0 }
    }
}

/// A child that waits to be let go.
pub(crate) struct Waiting {
    /// The program, or its keeper.
    pub(crate) pid: pid_t,
    go: File,
    failed: File,
}

/// What a keeper will say.
pub(crate) struct Kept {
    status: File,
}

/// What a keeper says when all has ended, in the order that it says it in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Over {
    /// How the program ended.
    pub(crate) ending: Ending,
    /// Nanoseconds from its start to its end.
    pub(crate) elapsed: u64,
    /// What it took, with all that it started and that somebody waited for.
    pub(crate) cpu: CpuTime,
}

/// Where a program that is to be followed waits until it is.
pub(crate) struct Followed<'a> {
    /// Its number goes here.
    pub(crate) says: OwnedFd,
    /// A byte comes here when somebody follows.
    pub(crate) go: OwnedFd,
    /// The calls that it stops at, if any.
    pub(crate) filter: Option<&'a libc::sock_fprog>,
}

/// Which step of the child failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Filter,
    User,
    Exec,
    Bar,
}

impl Step {
    /// As an error of who wanted this started.
    pub(crate) fn failed(self, command: &OsStr, why: io::Error) -> RecordError {
        match self {
            Step::Filter => RecordError::FilterForbidden { why },
            Step::User => RecordError::System { what: "becoming the user who called sudo", why },
            Step::Exec => RecordError::NotExecutable { command: command.to_owned(), why },
            Step::Bar => RecordError::System { what: "barring large folios", why },
        }
    }
}

/// Finds the program as a shell does: a name with a slash is a path, another is looked up in
/// `PATH`.
fn find_program(command: &OsStr) -> io::Result<PathBuf> {
    let usable = |path: &Path| -> io::Result<()> {
        let meta = std::fs::metadata(path)?;
        let mode = std::os::unix::fs::PermissionsExt::mode(&meta.permissions());
        if meta.is_dir() || mode & 0o111 == 0 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(())
    };
    if command.as_bytes().contains(&b'/') {
        return usable(Path::new(command)).map(|()| command.into());
    }
    let mut why = io::Error::from(io::ErrorKind::NotFound);
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin"));
    for dir in std::env::split_paths(&path).filter(|_| !command.is_empty()) {
        let candidate = dir.join(command);
        match usable(&candidate) {
            Ok(()) => return Ok(candidate),
            // A directory that cannot be searched, or holds a directory of that name, says nothing.
            Err(e) if candidate.is_file() => why = e,
            Err(_) => {}
        }
    }
    Err(why)
}

/// A pipe; `flags` beside those that close it on exec.
pub(crate) fn pipe(flags: libc::c_int) -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [-1; 2];
    // SAFETY: the kernel fills in two ints.
    if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC | flags) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just returned this descriptor and nothing else owns it.
    let read = unsafe { OwnedFd::from_raw_fd(fds[0]) };
    // SAFETY: as above, for the other end.
    let write = unsafe { OwnedFd::from_raw_fd(fds[1]) };
    Ok((read, write))
}

fn c_string(s: OsString) -> io::Result<CString> {
    CString::new(s.into_vec()).map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidInput, "an argument holds a byte of value 0")
    })
}

/// What the child needs between fork and exec.
struct Prepared<'a> {
    /// `/dev/null`, if the program runs apart.
    null: Option<File>,
    /// Root needs no promise to install a filter.
    as_root: bool,
    barred: Barred,
    user: Option<&'a User>,
    path: CString,
    argv: &'a [*const libc::c_char],
    envp: &'a [*const libc::c_char],
    seen: Seen<'a>,
}

/// What becomes of the program.
enum Seen<'a> {
    /// It stops at these calls.
    Recorded { filter: &'a libc::sock_fprog },
    /// Its keeper says here how it ended.
    Measured { status: OwnedFd, followed: Option<Followed<'a>> },
    /// It is this process, and stops at these calls if at any.
    Replaced { filter: Option<&'a libc::sock_fprog> },
}

/// A filter as the kernel takes it.
pub(crate) fn program(filter: &mut [libc::sock_filter]) -> libc::sock_fprog {
    libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() }
}

/// Forks a child that will start the program for a recorder once it is let go.
pub(crate) fn recorded(start: &Start<'_>) -> Result<Waiting, RecordError> {
    let mut filter = abi::filter();
    let filter = program(&mut filter);
    fork(start, Seen::Recorded { filter: &filter })
}

/// Forks a keeper that will start the program and outlive all that comes of it.
pub(crate) fn measured(
    start: &Start<'_>,
    followed: Option<Followed<'_>>,
) -> Result<(Waiting, Kept), RecordError> {
    let (read, status) = pipe(libc::O_NONBLOCK).map_err(starting)?;
    let waiting = fork(start, Seen::Measured { status, followed })?;
    Ok((waiting, Kept { status: read.into() }))
}

/// Makes this process the program. `follow` runs in a process of its own if it is there (P5): it
/// gets this one's number and what it calls once it follows, and that process ends with it.
///
/// Comes back only where it failed. This process must have no other thread.
pub(crate) fn replaced(
    start: &Start<'_>,
    filter: Option<&libc::sock_fprog>,
    follow: Option<impl FnOnce(pid_t, &dyn Fn(io::Result<()>))>,
) -> RecordError {
    let become_it = |prepared: &Prepared<'_>| {
        if let Some(follow) = follow {
            detach(follow)?;
        }
        let (step, why) = become_program(prepared);
        Err::<(), _>(step.failed(start.command, why))
    };
    match prepared(start, Seen::Replaced { filter }, become_it) {
        Err(e) => e,
        Ok(()) => starting(io::Error::other("nothing was started")),
    }
}

/// Has `follow` run in a process that is no child of this one, and waits until it follows.
fn detach(follow: impl FnOnce(pid_t, &dyn Fn(io::Result<()>))) -> Result<(), RecordError> {
    let (ready, says) = pipe(0).map_err(starting)?;
    // SAFETY: takes nothing and cannot fail.
    let me = unsafe { libc::getpid() };
    let any = libc::PR_SET_PTRACER_ANY;
    // SAFETY: takes numbers only. Where only ancestors may follow, this lets others; where the
    // kernel does not know it, they may anyway.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, any, 0, 0, 0) };
    // SAFETY: this process has one thread, so its copy finds no lock taken.
    let between = unsafe { libc::fork() };
    match between {
        -1 => return Err(starting(io::Error::last_os_error())),
        // SAFETY: as above; then the process between ends.
        0 => match unsafe { libc::fork() } {
            0 => {
                alone(says.as_raw_fd());
                let followed = || follow(me, &|outcome| say(says.as_raw_fd(), outcome));
                // A panic has been told of, and goes no further than this process.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(followed));
                // SAFETY: ends the process that followed.
                unsafe { libc::_exit(0) }
            }
            // SAFETY: ends the process between.
            pid => unsafe { libc::_exit(if pid == -1 { 1 } else { 0 }) },
        },
        _ => sys::reap(between),
    }
    drop(says);
    let mut report = [0; 4];
    let read = File::from(ready).read_exact(&mut report);
    // SAFETY: takes numbers only.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, 0, 0, 0, 0) };
    read.map_err(starting)?;
    match i32::from_ne_bytes(report) {
        0 => Ok(()),
        errno => Err(RecordError::following(io::Error::from_raw_os_error(errno))),
    }
}

/// Tells on a pipe whether somebody follows: the number of the error, 0 for none. The pipe's end is
/// closed, so that it is not held for as long as the program runs.
fn say(pipe: RawFd, outcome: io::Result<()>) {
    let errno = outcome.map_or_else(|e| e.raw_os_error().unwrap_or(libc::EPERM), |()| 0);
    let report = errno.to_ne_bytes();
    // SAFETY: writes four live bytes.
    unsafe { libc::write(pipe, report.as_ptr().cast(), report.len()) };
    // SAFETY: the end is this process's own, and used for nothing else.
    unsafe { libc::close(pipe) };
}

/// Lets go of all that this process has of the program's, but for `kept` and standard error (P5).
fn alone(kept: RawFd) {
    // SAFETY: takes nothing.
    unsafe { libc::setsid() };
    // SAFETY: a live C string.
    unsafe { libc::chdir(c"/".as_ptr()) };
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        for standard in [libc::STDIN_FILENO, libc::STDOUT_FILENO] {
            // SAFETY: takes numbers only.
            unsafe { libc::dup2(null.as_raw_fd(), standard) };
        }
    }
    close_all_but(kept);
}

/// Lets go of standard error too: who reads it to its end waits for nobody.
pub(crate) fn silent() {
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        // SAFETY: takes numbers only.
        unsafe { libc::dup2(null.as_raw_fd(), libc::STDERR_FILENO) };
    }
}

/// Closes all descriptors from 3 on but one.
fn close_all_but(kept: RawFd) {
    for (first, last) in [(3, kept - 1), (kept + 1, RawFd::MAX)] {
        // SAFETY: takes numbers only; nothing uses another descriptor from here on.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
}

fn starting(why: io::Error) -> RecordError {
    RecordError::System { what: "starting the program", why }
}

fn fork(start: &Start<'_>, seen: Seen<'_>) -> Result<Waiting, RecordError> {
    let (failed_read, failed) = pipe(0).map_err(starting)?;
    let (go, go_write) = pipe(0).map_err(starting)?;
    prepared(start, seen, |prepared| {
        // SAFETY: the child runs `child` only, which makes nothing but system calls.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => Err(starting(io::Error::last_os_error())),
            0 => child(prepared, &Pipes { go, go_write, failed }),
            _ => Ok(Waiting { pid, go: go_write.into(), failed: failed_read.into() }),
        }
    })
}

/// What a child tells its parent by, and is told.
struct Pipes {
    go: OwnedFd,
    go_write: OwnedFd,
    failed: OwnedFd,
}

/// Makes all that a program's start needs, and hands it on.
fn prepared<T>(
    start: &Start<'_>,
    seen: Seen<'_>,
    then: impl FnOnce(&Prepared<'_>) -> Result<T, RecordError>,
) -> Result<T, RecordError> {
    let Start { command, args, user, apart, barred } = *start;
    let program = find_program(command).map_err(|why| match why.kind() {
        io::ErrorKind::NotFound => RecordError::NotFound { command: command.to_owned() },
        _ => Step::Exec.failed(command, why),
    })?;
    let path = c_string(program.into()).map_err(starting)?;
    let words = std::iter::once(command.to_owned()).chain(args.iter().cloned());
    let words = words.map(c_string).collect::<io::Result<Vec<_>>>().map_err(starting)?;
    let told = user.map(User::environment).into_iter().flatten();
    let told: Vec<_> = told.map(|(name, value)| (name.into(), value.to_owned())).collect();
    let others = |(name, _): &(OsString, OsString)| !told.iter().any(|(other, _)| other == name);
    let env = std::env::vars_os().filter(others).chain(told.iter().cloned());
    let env = env.map(|(mut name, value)| {
        name.push("=");
        name.push(value);
        c_string(name)
    });
    let env = env.collect::<io::Result<Vec<_>>>().map_err(starting)?;
    let pointers = |list: &[CString]| -> Vec<*const libc::c_char> {
        list.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (argv, envp) = (&pointers(&words)[..], &pointers(&env)[..]);
    let null = apart.then(|| File::options().read(true).write(true).open("/dev/null"));
    let null = null.transpose().map_err(starting)?;
    let as_root = sys::is_root();
    then(&Prepared { null, as_root, barred, user, path, argv, envp, seen })
}

/// The child from fork to exec. Allocates nothing.
fn child(prepared: &Prepared<'_>, pipes: &Pipes) -> ! {
    // SAFETY: takes a number only. The recorder's end must not stay open here, or its death is not
    // seen.
    unsafe { libc::close(pipes.go_write.as_raw_fd()) };
    if !is_let_go(&pipes.go) {
        // SAFETY: ends the child.
        unsafe { libc::_exit(127) };
    }
    if let Some(null) = &prepared.null {
        set_apart(null.as_raw_fd());
    }
    let (step, why) = become_program(prepared);
    let report = [step as u8, why.raw_os_error().unwrap_or(0) as u8];
    // SAFETY: writes two live bytes.
    unsafe { libc::write(pipes.failed.as_raw_fd(), report.as_ptr().cast(), 2) };
    // SAFETY: ends the child.
    unsafe { libc::_exit(127) }
}

/// Waits for a byte; whether one came.
fn is_let_go(go: &OwnedFd) -> bool {
    let mut byte = 0u8;
    loop {
        // SAFETY: reads one byte to a live one.
        match unsafe { libc::read(go.as_raw_fd(), (&raw mut byte).cast(), 1) } {
            -1 if io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
            n => return n == 1,
        }
    }
}

/// From here to exec: comes back with the step that failed, and why. Allocates nothing.
fn become_program(prepared: &Prepared<'_>) -> (Step, io::Error) {
    let Prepared { as_root, barred, user, path, argv, envp, seen, .. } = prepared;
    // SAFETY: takes numbers only. Rust ignores SIGPIPE; programs expect the default.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let failed = |step| (step, io::Error::last_os_error());
    let filter = match seen {
        Seen::Recorded { filter } => Some(*filter),
        Seen::Replaced { filter } => *filter,
        Seen::Measured { status, followed } => {
            if !is_kept(status.as_raw_fd()) {
                return failed(Step::Exec);
            }
            if followed.as_ref().is_some_and(|followed| !is_followed(followed)) {
                // SAFETY: ends the child; who should follow says why.
                unsafe { libc::_exit(127) };
            }
            followed.as_ref().and_then(|followed| followed.filter)
        }
    };
    // Where a recording's is not supported, the recording shows it (fewer faults).
    if !barred.now() && !matches!(seen, Seen::Recorded { .. }) {
        return failed(Step::Bar);
    }
    // The filter needs root's privilege, the program shall not have it.
    if filter.is_some_and(|filter| !is_filtered(filter, *as_root)) {
        return failed(Step::Filter);
    }
    if let Some(user) = user
        && let Err(why) = user.become_now()
    {
        return (Step::User, why);
    }
    if let Seen::Measured { .. } = seen {
        die_with_parent(); // behind the change of user, which takes it back
    }
    // SAFETY: path, argv and envp are live; the lists end with null.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    failed(Step::Exec)
}

/// Tells who shall follow whom, and waits until they do.
fn is_followed(followed: &Followed<'_>) -> bool {
    // SAFETY: takes nothing and cannot fail.
    let me = unsafe { libc::getpid() }.to_ne_bytes();
    // SAFETY: writes four live bytes.
    let n = unsafe { libc::write(followed.says.as_raw_fd(), me.as_ptr().cast(), me.len()) };
    n == me.len() as isize && is_let_go(&followed.go)
}

/// See [`Start::apart`]. What fails here changes nothing of what is counted.
fn set_apart(null: RawFd) {
    // SAFETY: takes numbers only.
    unsafe { libc::setpgid(0, 0) };
    for standard in [libc::STDIN_FILENO, libc::STDOUT_FILENO] {
        // SAFETY: takes numbers only.
        unsafe { libc::dup2(null, standard) };
    }
    unblock();
}

/// Blocks no signal in this thread.
fn unblock() {
    // SAFETY: a set of signals is plain data, for which zeros are a legal value: the empty set.
    let none: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel reads a live set.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut()) };
}

/// Has a command begin with no signal blocked, whatever is blocked here.
pub fn with_signals(command: &mut std::process::Command) {
    let unblocked = || {
        unblock();
        Ok(())
    };
    // SAFETY: the closure makes one system call.
    unsafe { std::os::unix::process::CommandExt::pre_exec(command, unblocked) };
}

/// Installs the filter; whether that went well.
fn is_filtered(filter: &libc::sock_fprog, as_root: bool) -> bool {
    if !as_root {
        // SAFETY: takes numbers only. An unprivileged process needs this to install a filter.
        unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1usize, 0usize, 0usize, 0usize) };
    }
    let (set, at) = (libc::SECCOMP_SET_MODE_FILTER, std::ptr::from_ref(filter));
    // Kernels before 5.16 take a filter for a reason to run slower, unless they are told not to.
    let as_fast = libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    // SAFETY: the kernel copies the filter, which is live, from the address.
    unsafe { libc::syscall(libc::SYS_seccomp, set, as_fast, at) == 0 }
}

/// Makes a child that goes on to be the program; whether that went well. The parent keeps it, and
/// does not come back.
fn is_kept(status: RawFd) -> bool {
    let start = sys::clock_ns();
    // SAFETY: takes numbers only. Without it, a run is over when the program's first process is.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1usize, 0usize, 0usize, 0usize) };
    die_with_parent();
    // SAFETY: the child makes nothing but system calls.
    match unsafe { libc::fork() } {
        -1 => false,
        0 => true,
        program => keep(program, status, start),
    }
}

/// Has this process killed when the thread that made it is gone (P4).
fn die_with_parent() {
    // SAFETY: takes numbers only.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0usize, 0usize, 0usize) };
}

/// The keeper: waits until it has no child any more, and says how the program ended (P1 to P3).
fn keep(program: pid_t, status: RawFd, start: u64) -> ! {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: takes numbers only.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    close_all_but(status);
    let (mut ended, mut elapsed) = (0, 0);
    loop {
        let mut one = 0;
        // SAFETY: `one` is a live int to be filled in.
        let pid = unsafe { libc::waitpid(-1, &mut one, 0) };
        if pid == program {
            (ended, elapsed) = (one, sys::clock_ns() - start);
        }
        let interrupted = || io::Error::last_os_error().raw_os_error() == Some(libc::EINTR);
        if pid == -1 && !interrupted() {
            break;
        }
    }
    let [user, system] = sys::cpu_time(libc::RUSAGE_CHILDREN);
    let said = [ended as u64, elapsed, user, system];
    // SAFETY: writes that many live bytes.
    unsafe { libc::write(status, said.as_ptr().cast(), size_of_val(&said)) };
    // SAFETY: ends the keeper.
    unsafe { libc::_exit(0) }
}

impl Waiting {
    /// Lets the child go; what comes back tells, once it has started the program or failed to.
    pub(crate) fn go(mut self) -> io::Result<Started> {
        self.go.write_all(&[1])?;
        Ok(Started { failed: self.failed })
    }
}

/// A child that was let go.
pub(crate) struct Started {
    failed: File,
}

impl Started {
    /// The step that failed and why, if one did. Returns once the child has exec'd or ended.
    pub(crate) fn failure(mut self) -> Option<(Step, io::Error)> {
        let mut report = [0; 2];
        self.failed.read_exact(&mut report).ok()?;
        let step =
            [Step::Filter, Step::User, Step::Bar].into_iter().find(|step| *step as u8 == report[0]);
        let step = step.unwrap_or(Step::Exec);
        Some((step, io::Error::from_raw_os_error(report[1].into())))
    }
}

impl Kept {
    /// What there is to say, once all that the program started has ended; `None` while something
    /// of it runs.
    pub(crate) fn ended(&mut self) -> io::Result<Option<Over>> {
        let mut said = [0; 32];
        match self.status.read_exact(&mut said) {
            Ok(()) => {
                let word = |at: usize| {
                    let bytes = said.as_chunks::<8>().0;
                    bytes.get(at).map_or(0, |bytes| u64::from_ne_bytes(*bytes))
                };
                let cpu = [word(2), word(3)];
                Ok(Some(Over { ending: ending(word(0) as i32), elapsed: word(1), cpu }))
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(_) => Err(io::Error::other("the process that waits for the program was killed")),
        }
    }
}

/// How a process ended, of the number that waiting for it gives.
pub(crate) fn ending(status: i32) -> Ending {
    if libc::WIFEXITED(status) {
        Ending::Exited(libc::WEXITSTATUS(status) as u8)
    } else {
        Ending::Signaled(libc::WTERMSIG(status) as u8)
    }
}
