//! Which running processes are meant, and why some cannot be recorded.

use super::super::procfs;
use super::super::sys::{self, pid_t};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Running processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// One, with all its threads.
    Process(u32),
    /// All that are in a control group, named by its folder or by its path below
    /// `/sys/fs/cgroup`.
    Cgroup(PathBuf),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Process(pid) => write!(f, "process {pid}"),
            Target::Cgroup(path) => write!(f, "cgroup {}", path.display()),
        }
    }
}

/// Why a running process is not recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unattachable {
    /// There is none of this number, or it has ended.
    Absent,
    /// It is the kernel's own.
    Kernel,
    /// It is the one that records.
    Itself,
    /// It is another user's.
    AnotherUsers,
    /// Only root sees what a running program asks of the kernel.
    NeedsRoot,
    /// This process traces it already.
    Traced {
        /// Its number.
        by: u32,
        /// Its name.
        name: String,
    },
    /// A program of 32 bits.
    ThirtyTwoBits,
    /// There is no such folder, or it is no control group's.
    NoCgroup,
    /// No process is in it.
    Empty,
}

impl fmt::Display for Unattachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unattachable::Absent => f.write_str("there is no such process; `ps -e` lists them"),
            Unattachable::Kernel => {
                f.write_str("it is a thread of the kernel and has no memory of its own; name a program's process")
            }
            Unattachable::Itself => f.write_str("it is the recorder; name another process"),
            Unattachable::AnotherUsers => {
                f.write_str("it is another user's; record as root, as with sudo")
            }
            Unattachable::NeedsRoot => f.write_str(
                "only root sees through the kernel's tracepoints what a running program asks of it; \
                 record as root, or start the program under `foliant record`",
            ),
            Unattachable::Traced { by, name } => {
                write!(f, "process {by} ({name}) traces it already; end that first")
            }
            Unattachable::ThirtyTwoBits => f.write_str(
                "it runs a program of 32 bits, which is followed from its start only; \
                 start it under `foliant record`",
            ),
            Unattachable::NoCgroup => f.write_str(
                "there is no such control group; name its folder, or its path below /sys/fs/cgroup",
            ),
            Unattachable::Empty => {
                f.write_str("no process is in it; its cgroup.procs lists them once there is one")
            }
        }
    }
}

/// The processes that are meant now.
pub(crate) fn processes(target: &Target) -> Result<Vec<pid_t>, Unattachable> {
    match target {
        Target::Process(pid) => {
            let pid = pid_t::try_from(*pid).map_err(|_| Unattachable::Absent)?;
            // A thread's number stands for its process.
            Ok(vec![procfs::group(pid).ok_or(Unattachable::Absent)?])
        }
        Target::Cgroup(path) => {
            let list = folders(path).into_iter().map(|folder| folder.join("cgroup.procs"));
            let list = list.filter_map(|list| fs::read_to_string(list).ok()).next();
            let list = list.ok_or(Unattachable::NoCgroup)?;
            let own = std::process::id() as pid_t;
            let pids: Vec<pid_t> =
                list.lines().filter_map(|l| l.parse().ok()).filter(|pid| *pid != own).collect();
            if pids.is_empty() { Err(Unattachable::Empty) } else { Ok(pids) }
        }
    }
}

/// Where a control group may be, in either version of the hierarchy.
fn folders(path: &Path) -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let below = path.strip_prefix("/").unwrap_or(path);
    vec![path.to_owned(), root.join(below), root.join("unified").join(below)]
}

/// Whether a process can be recorded.
pub(crate) fn check(pid: pid_t) -> Result<(), Unattachable> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"));
    let status = status.map_err(|_| Unattachable::Absent)?;
    let field =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    if pid == std::process::id() as pid_t {
        return Err(Unattachable::Itself);
    }
    if field("State").is_some_and(|state| state.trim_start().starts_with(['Z', 'X'])) {
        return Err(Unattachable::Absent);
    }
    if field("VmSize").is_none() {
        return Err(Unattachable::Kernel);
    }
    if !sys::is_root() {
        let uid = field("Uid").and_then(|uids| uids.split_whitespace().nth(1)?.parse().ok());
        let own = uid == Some(sys::user_id());
        return Err(if own { Unattachable::NeedsRoot } else { Unattachable::AnotherUsers });
    }
    let by = field("TracerPid").and_then(|by| by.trim().parse::<u32>().ok()).unwrap_or(0);
    if by != 0 {
        let name = procfs::line(&format!("/proc/{by}/comm"));
        return Err(Unattachable::Traced { by, name });
    }
    if is_of_32_bits(pid) {
        return Err(Unattachable::ThirtyTwoBits);
    }
    Ok(())
}

fn is_of_32_bits(pid: pid_t) -> bool {
    use std::io::Read;
    let mut head = [0; 5];
    let read = fs::File::open(format!("/proc/{pid}/exe")).and_then(|mut f| f.read_exact(&mut head));
    read.is_ok() && head == *b"\x7fELF\x01"
}
