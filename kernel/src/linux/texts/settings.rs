//! `/proc/sys/kernel`, `/proc/sys/fs` and a file of `/proc/sys/vm`: numbers and names that programs
//! look up, and a few that they set.

use super::super::content::{Piece, Text};
use super::super::{random, segments, trivia};
use super::{BOTH, READ, RELEASE, put, taken, written};
use alloc::format;
use alloc::vec::Vec;
use core::fmt::Write;
use core::sync::atomic::Ordering;
use foliant_files::Refused;
use foliant_linux::Errno;
use linux_raw_sys::errno::EACCES;

/// Numbers of processes and threads, as `pid_max` has them on a machine with so many CPUs.
const NUMBERS: &str = "4194304";

/// What never changes here.
const CONSTANTS: [(&str, &str); 15] = [
    ("kernel/cap_last_cap", "40"),
    ("kernel/core_pattern", "core"),
    ("kernel/core_uses_pid", "0"),
    ("kernel/ngroups_max", "65536"),
    ("kernel/osrelease", RELEASE),
    ("kernel/ostype", "Linux"),
    ("kernel/overflowuid", "65534"),
    ("kernel/perf_event_paranoid", "2"),
    ("kernel/pid_max", NUMBERS),
    ("kernel/randomize_va_space", "0"),
    ("kernel/tainted", "0"),
    ("kernel/threads-max", NUMBERS),
    ("kernel/version", super::super::VERSION),
    ("fs/file-max", "9223372036854775807"),
    ("fs/pipe-max-size", "1048576"),
];

/// What programs may set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Setting {
    Constant(&'static str),
    Hostname,
    Domainname,
    /// Whose members make segments of huge pages.
    HugeGroup,
    /// A limit of segments.
    Segments(&'static str),
    /// A number that nobody foresees, in the form of identifiers.
    Uuid,
}

pub(super) fn make_all() -> Result<(), Refused> {
    for (name, text) in CONSTANTS {
        put(&format!("proc/sys/{name}"), READ, Setting::Constant(text))?;
    }
    for name in ["shm_next_id", "shmmax", "shmall", "shmmni"] {
        put(&format!("proc/sys/kernel/{name}"), BOTH, Setting::Segments(name))?;
    }
    put("proc/sys/vm/hugetlb_shm_group", BOTH, Setting::HugeGroup)?;
    put("proc/sys/kernel/random/uuid", READ, Setting::Uuid)?;
    put("proc/sys/kernel/hostname", BOTH, Setting::Hostname)?;
    put("proc/sys/kernel/domainname", BOTH, Setting::Domainname)
}

impl Setting {
    /// What it shows now.
    fn text(&self) -> Result<Vec<u8>, Errno> {
        match self {
            Setting::Constant(text) => written(|out| writeln!(out, "{text}")),
            Setting::Hostname => Ok([&trivia::HOST.lock()[..], b"\n"].concat()),
            Setting::Domainname => Ok([&trivia::DOMAIN.lock()[..], b"\n"].concat()),
            Setting::HugeGroup => {
                let group = segments::HUGE_GROUP.load(Ordering::Relaxed);
                written(|out| writeln!(out, "{}", group as i32))
            }
            Setting::Segments(name) => {
                segments::limits(|limits| limits.read(name)).map(alloc::string::String::into_bytes)
            }
            Setting::Uuid => {
                let mut bytes = [0; 16];
                random::fill(&mut bytes);
                let [a, b] = [0, 8].map(|at| {
                    bytes[at..at + 8].iter().fold(0u64, |all, byte| all << 8 | u64::from(*byte))
                });
                let (a, b) = (a & !0xf000 | 0x4000, b << 2 >> 2 | 1 << 63); // version 4
                written(|out| {
                    write!(out, "{:08x}-{:04x}-{:04x}", a >> 32, a >> 16 & 0xffff, a & 0xffff)?;
                    writeln!(out, "-{:04x}-{:012x}", b >> 48, b & 0xffff_ffff_ffff)
                })
            }
        }
    }
}

impl Text for Setting {
    fn piece(&self, _: u64) -> Result<Piece, Errno> {
        Ok((self.text()?, None))
    }
    fn write(&self, bytes: &[u8]) -> Result<(), Errno> {
        let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
        match self {
            Setting::Constant(_) | Setting::Uuid => Err(Errno(EACCES)),
            Setting::Hostname => trivia::set(&trivia::HOST, line),
            Setting::Domainname => trivia::set(&trivia::DOMAIN, line),
            Setting::HugeGroup => {
                let group: i32 = taken(bytes)?.trim().parse().map_err(|_| Errno::INVAL)?;
                segments::HUGE_GROUP.store(group as u32, Ordering::Relaxed);
                Ok(())
            }
            Setting::Segments(name) => {
                let text = taken(bytes)?;
                segments::limits(|limits| limits.write(name, text))
            }
        }
    }
}
