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
//!   keeper: waits for all that the program leaves behind ──▶ how the program ended
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
#![allow(unsafe_code)]

use super::RecordError;
use super::abi;
use super::sys::{self, pid_t};
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

/// Which step of the child failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Filter,
    User,
    Exec,
}

impl Step {
    /// As an error of who wanted this started.
    pub(crate) fn failed(self, command: &OsStr, why: io::Error) -> RecordError {
        match self {
            Step::Filter => RecordError::FilterForbidden { why },
            Step::User => RecordError::System { what: "becoming the user who called sudo", why },
            Step::Exec => RecordError::NotExecutable { command: command.to_owned(), why },
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
fn pipe(flags: libc::c_int) -> io::Result<(OwnedFd, OwnedFd)> {
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
    go: OwnedFd,
    go_write: OwnedFd,
    failed: OwnedFd,
    /// `/dev/null`, if the program runs apart.
    null: Option<File>,
    user: Option<&'a User>,
    path: CString,
    argv: &'a [*const libc::c_char],
    envp: &'a [*const libc::c_char],
    seen: Seen<'a>,
}

/// What becomes of the program.
enum Seen<'a> {
    /// It stops at these calls; root needs no promise to install the filter.
    Recorded { filter: &'a libc::sock_fprog, as_root: bool },
    /// Its keeper says here how it ended.
    Measured { status: OwnedFd },
}

/// Forks a child that will start the program for a recorder once it is let go.
pub(crate) fn recorded(start: &Start<'_>) -> Result<Waiting, RecordError> {
    let mut filter = abi::filter();
    let filter = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    fork(start, Seen::Recorded { filter: &filter, as_root: sys::is_root() })
}

/// Forks a keeper that will start the program and outlive all that comes of it.
pub(crate) fn measured(start: &Start<'_>) -> Result<(Waiting, Kept), RecordError> {
    let (read, status) = pipe(libc::O_NONBLOCK).map_err(starting)?;
    let waiting = fork(start, Seen::Measured { status })?;
    Ok((waiting, Kept { status: read.into() }))
}

fn starting(why: io::Error) -> RecordError {
    RecordError::System { what: "starting the program", why }
}

fn fork(start: &Start<'_>, seen: Seen<'_>) -> Result<Waiting, RecordError> {
    let Start { command, args, user, apart } = *start;
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
    let (go, go_write) = pipe(0).map_err(starting)?;
    let (failed_read, failed) = pipe(0).map_err(starting)?;
    let prepared = Prepared { go, go_write, failed, null, user, path, argv, envp, seen };
    // SAFETY: the child runs `child` only, which makes nothing but system calls.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(starting(io::Error::last_os_error())),
        0 => child(&prepared),
        _ => Ok(Waiting { pid, go: prepared.go_write.into(), failed: failed_read.into() }),
    }
}

/// The child from fork to exec. Allocates nothing.
fn child(prepared: &Prepared<'_>) -> ! {
    let Prepared { go, go_write, failed, null, user, path, argv, envp, seen } = prepared;
    let mut byte = 0u8;
    // SAFETY: takes a number only. The recorder's end must not stay open here, or its death is not
    // seen.
    unsafe { libc::close(go_write.as_raw_fd()) };
    // SAFETY: reads one byte to a live one.
    let n = unsafe { libc::read(go.as_raw_fd(), (&raw mut byte).cast(), 1) };
    if n != 1 {
        // SAFETY: ends the child.
        unsafe { libc::_exit(127) };
    }
    if let Some(null) = null {
        set_apart(null.as_raw_fd());
    }
    // SAFETY: takes numbers only. Rust ignores SIGPIPE; programs expect the default.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let mut step = Step::Exec;
    let mut ready = match seen {
        Seen::Recorded { filter, as_root } => {
            step = Step::Filter;
            is_filtered(filter, *as_root)
        }
        Seen::Measured { status } => is_kept(status.as_raw_fd()),
    };
    // The filter needs root's privilege, the program shall not have it.
    if let (true, Some(user)) = (ready, user) {
        step = Step::User;
        ready = user.become_now().is_ok();
    }
    if let (true, Seen::Measured { .. }) = (ready, seen) {
        die_with_parent(); // behind the change of user, which takes it back
    }
    if ready {
        step = Step::Exec;
        // SAFETY: path, argv and envp are live; the lists end with null.
        unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    }
    // Reads the thread's own errno, nothing more.
    let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
    let report = [step as u8, errno as u8];
    // SAFETY: writes two live bytes.
    unsafe { libc::write(failed.as_raw_fd(), report.as_ptr().cast(), 2) };
    // SAFETY: ends the child.
    unsafe { libc::_exit(127) }
}

/// See [`Start::apart`]. What fails here changes nothing of what is counted.
fn set_apart(null: RawFd) {
    // SAFETY: takes numbers only.
    unsafe { libc::setpgid(0, 0) };
    for standard in [libc::STDIN_FILENO, libc::STDOUT_FILENO] {
        // SAFETY: takes numbers only.
        unsafe { libc::dup2(null, standard) };
    }
    // SAFETY: a set of signals is plain data, for which zeros are a legal value: the empty set.
    let none: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel reads a live set.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut()) };
}

/// Switches large pages off and installs the filter; whether that went well.
fn is_filtered(filter: &libc::sock_fprog, as_root: bool) -> bool {
    // SAFETY: takes numbers only. Where it is not supported, the recording shows it (fewer faults).
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1usize, 0usize, 0usize, 0usize) };
    if !as_root {
        // SAFETY: takes numbers only. An unprivileged process needs this to install a filter.
        unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1usize, 0usize, 0usize, 0usize) };
    }
    let at: *const libc::sock_fprog = filter;
    // SAFETY: the kernel copies the filter, which is live, from the address.
    unsafe { libc::prctl(libc::PR_SET_SECCOMP, 2usize, at, 0usize, 0usize) == 0 }
}

/// Makes a child that goes on to be the program; whether that went well. The parent keeps it, and
/// does not come back.
fn is_kept(status: RawFd) -> bool {
    // SAFETY: takes numbers only. Without it, a run is over when the program's first process is.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1usize, 0usize, 0usize, 0usize) };
    die_with_parent();
    // SAFETY: the child makes nothing but system calls.
    match unsafe { libc::fork() } {
        -1 => false,
        0 => true,
        program => keep(program, status),
    }
}

/// Has this process killed when the thread that made it is gone (P4).
fn die_with_parent() {
    // SAFETY: takes numbers only.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0usize, 0usize, 0usize) };
}

/// The keeper: waits until it has no child any more, and says how the program ended (P1 to P3).
fn keep(program: pid_t, status: RawFd) -> ! {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: takes numbers only.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    for (first, last) in [(3, status - 1), (status + 1, RawFd::MAX)] {
        // SAFETY: takes numbers only; nothing here uses another descriptor.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
    let mut ended = 0;
    loop {
        let mut one = 0;
        // SAFETY: `one` is a live int to be filled in.
        let pid = unsafe { libc::waitpid(-1, &mut one, 0) };
        if pid == program {
            ended = one;
        }
        let interrupted = || io::Error::last_os_error().raw_os_error() == Some(libc::EINTR);
        if pid == -1 && !interrupted() {
            break;
        }
    }
    let ended = ended.to_ne_bytes();
    // SAFETY: writes four live bytes.
    unsafe { libc::write(status, ended.as_ptr().cast(), ended.len()) };
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
        let step = [Step::Filter, Step::User].into_iter().find(|step| *step as u8 == report[0]);
        let step = step.unwrap_or(Step::Exec);
        Some((step, io::Error::from_raw_os_error(report[1].into())))
    }
}

impl Kept {
    /// How the program ended, once all that it started has; `None` while something of it runs.
    pub(crate) fn ended(&mut self) -> io::Result<Option<Ending>> {
        let mut status = [0; 4];
        match self.status.read_exact(&mut status) {
            Ok(()) => Ok(Some(ending(i32::from_ne_bytes(status)))),
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
