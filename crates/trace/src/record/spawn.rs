//! Starting the program: fork, wait for the recorder to attach, switch large pages off, install the
//! filter, exec.
//!
//! ```text
//!   recorder            child
//!   fork ─────────────▶ wait for a byte
//!   attach, counters
//!   a byte ───────────▶ prctl, seccomp, another user if wished, execve
//!   read ◀───────────── nothing (exec closed the pipe), or the step that failed and why
//! ```
//!
//! Between fork and exec the child only makes system calls on values that were prepared before (the
//! recorder may have other threads, whose locks the child would inherit).
#![allow(unsafe_code)]

use super::sys::{self, pid_t};
use super::user::User;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// System calls that stop for the recorder.
pub(crate) const CALLS: [libc::c_long; 21] = [
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_pkey_mprotect,
    libc::SYS_madvise,
    libc::SYS_process_madvise,
    libc::SYS_brk,
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_shmat,
    libc::SYS_shmdt,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mlockall,
    libc::SYS_remap_file_pages,
    libc::SYS_io_setup,
];
/// What the filter says of a system call of another architecture (32-bit, x32).
pub(crate) const FOREIGN: u64 = 1;

/// A child that waits to be let go.
pub(crate) struct Waiting {
    pub(crate) pid: pid_t,
    go: File,
    failed: File,
}

/// Which step of the child failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Filter,
    User,
    Exec,
}

/// Finds the program as a shell does: a name with a slash is a path, another is looked up in
/// `PATH`.
pub(crate) fn find_program(command: &OsStr) -> Result<PathBuf, io::Error> {
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

/// The filter: `RET_TRACE` for [`CALLS`] and for `prctl(PR_SET_THP_DISABLE)`, everything else
/// passes.
fn filter() -> Vec<libc::sock_filter> {
    const LOAD: u16 = 0x20;
    const EQUAL: u16 = 0x15;
    const AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const TRACE: u32 = 0x7ff0_0000;
    const ALLOW: u32 = 0x7fff_0000;
    const ARCH_X86_64: u32 = 0xc000_003e;
    let op = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    let mut f = vec![
        op(LOAD, 4, 0, 0),
        op(EQUAL, ARCH_X86_64, 1, 0),
        op(RETURN, TRACE | FOREIGN as u32, 0, 0),
        op(LOAD, 0, 0, 0),
        op(AT_LEAST, 0x4000_0000, 0, 1),
        op(RETURN, TRACE | FOREIGN as u32, 0, 0),
    ];
    for call in CALLS {
        f.push(op(EQUAL, call as u32, 0, 1));
        f.push(op(RETURN, TRACE, 0, 0));
    }
    f.extend([
        op(EQUAL, libc::SYS_prctl as u32, 0, 3),
        op(LOAD, 16, 0, 0),
        op(EQUAL, libc::PR_SET_THP_DISABLE as u32, 0, 1),
        op(RETURN, TRACE, 0, 0),
        op(RETURN, ALLOW, 0, 0),
    ]);
    f
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [-1; 2];
    // SAFETY: the kernel fills in two ints.
    if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } == -1 {
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

/// Forks a child that will start `program` once it is let go.
pub(crate) fn fork(
    program: &Path,
    command: &OsStr,
    args: &[OsString],
    user: Option<&User>,
) -> io::Result<Waiting> {
    let path = c_string(program.into())?;
    let words = std::iter::once(command.to_owned()).chain(args.iter().cloned());
    let words = words.map(c_string).collect::<io::Result<Vec<_>>>()?;
    let told = user.map(User::environment).into_iter().flatten();
    let told: Vec<_> = told.map(|(name, value)| (name.into(), value.to_owned())).collect();
    let others = |(name, _): &(OsString, OsString)| !told.iter().any(|(other, _)| other == name);
    let env = std::env::vars_os().filter(others).chain(told.iter().cloned());
    let env = env.map(|(mut name, value)| {
        name.push("=");
        name.push(value);
        c_string(name)
    });
    let env = env.collect::<io::Result<Vec<_>>>()?;
    let pointers = |list: &[CString]| -> Vec<*const libc::c_char> {
        list.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (argv, envp) = (pointers(&words), pointers(&env));
    let mut filter = filter();
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    let unprivileged = !sys::is_root();
    let (go_read, go_write) = pipe()?;
    let (failed_read, failed_write) = pipe()?;
    let ends = (go_read.as_raw_fd(), go_write.as_raw_fd(), failed_write.as_raw_fd());
    // SAFETY: the child runs `child` only, which makes nothing but system calls.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => child(ends, &path, &argv, &envp, &program, (unprivileged, user)),
        _ => Ok(Waiting { pid, go: go_write.into(), failed: failed_read.into() }),
    }
}

/// The child from fork to exec. Allocates nothing.
fn child(
    (go, go_write, failed): (RawFd, RawFd, RawFd),
    path: &CString,
    argv: &[*const libc::c_char],
    envp: &[*const libc::c_char],
    program: &libc::sock_fprog,
    (unprivileged, user): (bool, Option<&User>),
) -> ! {
    let mut byte = 0u8;
    // SAFETY: takes a number only. The recorder's end must not stay open here, or its death is not
    // seen.
    unsafe { libc::close(go_write) };
    // SAFETY: reads one byte to a live one.
    let n = unsafe { libc::read(go, (&raw mut byte).cast(), 1) };
    if n != 1 {
        // SAFETY: ends the child.
        unsafe { libc::_exit(127) };
    }
    // SAFETY: takes numbers only. Where it is not supported, the recording shows it (fewer faults).
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1usize, 0usize, 0usize, 0usize) };
    // SAFETY: takes numbers only. Rust ignores SIGPIPE; programs expect the default.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    if unprivileged {
        // SAFETY: takes numbers only. An unprivileged process needs this to install a filter.
        unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1usize, 0usize, 0usize, 0usize) };
    }
    let at: *const libc::sock_fprog = program;
    // SAFETY: the kernel copies the filter, which is live, from the address.
    let filtered = unsafe { libc::prctl(libc::PR_SET_SECCOMP, 2usize, at, 0usize, 0usize) };
    let mut step = Step::Filter;
    // The filter needs root's privilege, the program shall not have it.
    let became = match user {
        Some(user) if filtered == 0 => {
            step = Step::User;
            user.become_now().is_ok()
        }
        _ => filtered == 0,
    };
    if became {
        step = Step::Exec;
        // SAFETY: path, argv and envp are live; the lists end with null.
        unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    }
    // Reads the thread's own errno, nothing more.
    let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
    let report = [step as u8, errno as u8];
    // SAFETY: writes two live bytes.
    unsafe { libc::write(failed, report.as_ptr().cast(), 2) };
    // SAFETY: ends the child.
    unsafe { libc::_exit(127) }
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
