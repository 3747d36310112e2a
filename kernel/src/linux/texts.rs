//! Files of `/proc` and `/sys`: texts that are made when a program opens them, and words that it
//! writes there. What concerns memory comes from `foliant-linux`.

use super::content::{Content, Link, Text};
use super::names::make;
use super::process::{self, Process};
use super::{clock, world};
use crate::memory::manager;
use crate::{smp, symbols};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt::{self, Write};
use foliant::vmap::Caller;
use foliant_files::{Body, Last, Refused};
use foliant_linux::meminfo::{self, Listed};
use foliant_linux::{Errno, ShmemEnabled, sys, vm, zones};
use linux_raw_sys::errno::{EACCES, EINVAL, ENOMEM, ESRCH};
use linux_raw_sys::general::S_IFREG;
use spin::{Mutex, Once};

/// The Linux that programs are told of.
pub(super) const RELEASE: &str = "6.18.0-foliant";
/// Nanoseconds of a tick of the counters in `/proc`.
const TICK: u64 = 10_000_000;

/// A text.
enum Shown {
    /// About memory, from `/sys/kernel/mm` on.
    Sys(Arc<str>),
    /// A size of files in memory, there.
    Shmem(Arc<str>),
    /// From `/proc/sys` on.
    Vm(Arc<str>),
    /// About the machine.
    Machine(About),
    /// About a process.
    Process(Weak<Process>, Own),
}

/// What a text about the machine shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum About {
    Buddyinfo,
    Cpuinfo,
    Filesystems,
    Meminfo,
    Mounts,
    Online,
    Pagetypeinfo,
    Stat,
    Uptime,
    Version,
    Vmallocinfo,
    Vmstat,
    Zoneinfo,
}

impl About {
    const ALL: [(&'static str, About); 15] = [
        ("proc/buddyinfo", About::Buddyinfo),
        ("proc/cpuinfo", About::Cpuinfo),
        ("proc/filesystems", About::Filesystems),
        ("proc/meminfo", About::Meminfo),
        ("proc/mounts", About::Mounts),
        ("proc/pagetypeinfo", About::Pagetypeinfo),
        ("proc/stat", About::Stat),
        ("proc/uptime", About::Uptime),
        ("proc/version", About::Version),
        ("proc/vmallocinfo", About::Vmallocinfo),
        ("proc/vmstat", About::Vmstat),
        ("proc/zoneinfo", About::Zoneinfo),
        ("sys/devices/system/cpu/online", About::Online),
        ("sys/devices/system/cpu/possible", About::Online),
        ("sys/devices/system/cpu/present", About::Online),
    ];
}

/// What a text about a process shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Own {
    Auxv,
    ClearRefs,
    Cmdline,
    Comm,
    Environ,
    Maps,
    Smaps,
    SmapsRollup,
    Stat,
    Statm,
    Status,
}

impl Own {
    const ALL: [(&'static str, Own); 11] = [
        ("auxv", Own::Auxv),
        ("clear_refs", Own::ClearRefs),
        ("cmdline", Own::Cmdline),
        ("comm", Own::Comm),
        ("environ", Own::Environ),
        ("maps", Own::Maps),
        ("smaps", Own::Smaps),
        ("smaps_rollup", Own::SmapsRollup),
        ("stat", Own::Stat),
        ("statm", Own::Statm),
        ("status", Own::Status),
    ];
}

static SHMEM: Once<Mutex<ShmemEnabled>> = Once::new();

fn shmem() -> &'static Mutex<ShmemEnabled> {
    SHMEM.call_once(|| Mutex::new(ShmemEnabled::new(manager())))
}

/// Makes the files of the machine.
pub(super) fn make_all() -> Result<(), Refused> {
    let text = |path: &str, mode, text| {
        make(path.as_bytes(), S_IFREG | mode, Body::Leaf(Content::Text(Arc::new(text)))).map(drop)
    };
    for (path, about) in About::ALL {
        text(path, 0o444, Shown::Machine(about))?;
    }
    for name in sys::names() {
        text(&format!("sys/kernel/mm/{name}"), 0o644, Shown::Sys(name.as_str().into()))?;
    }
    for name in ShmemEnabled::names() {
        text(&format!("sys/kernel/mm/{name}"), 0o644, Shown::Shmem(name.as_str().into()))?;
    }
    for name in vm::names() {
        text(&format!("proc/sys/{name}"), 0o644, Shown::Vm(name.as_str().into()))?;
    }
    make(b"proc/self", 0o777, Body::Leaf(Content::Link(Arc::new(OwnFolder)))).map(drop)
}

/// Makes the folder of a process.
pub(super) fn make_process(process: &Arc<Process>) -> Result<(), Refused> {
    let folder = format!("proc/{}", process.id);
    for (name, own) in Own::ALL {
        let text = Shown::Process(Arc::downgrade(process), own);
        let content = Content::Text(Arc::new(text));
        let mode = if own == Own::ClearRefs { 0o200 } else { 0o444 };
        make(format!("{folder}/{name}").as_bytes(), S_IFREG | mode, Body::Leaf(content))?;
    }
    let exe = Content::Link(Arc::new(Program(Arc::downgrade(process))));
    make(format!("{folder}/exe").as_bytes(), 0o777, Body::Leaf(exe)).map(drop)
}
/// Takes the folder of a process away.
pub(super) fn end_process(process: &Process) {
    let folder = format!("/proc/{}", process.id);
    let names = Own::ALL.iter().map(|(name, _)| *name).chain(["exe"]);
    let none = |_: &Content| None;
    let now = clock::now();
    let mut gone = Vec::new();
    let mut files = world().files.write();
    let root = files.root();
    for name in names {
        let path = format!("{folder}/{name}");
        if let Ok(place) = files.place(root, path.as_bytes(), Last::Keep, &none) {
            gone.extend(files.unlink(&place, now).ok().flatten());
        }
    }
    if let Ok(place) = files.place(root, folder.as_bytes(), Last::Keep, &none) {
        let _ = files.remove_folder(&place, now); // a program put something there
    }
    drop(files);
    drop(gone);
}

/// `/proc/self`.
struct OwnFolder;

impl Link for OwnFolder {
    fn text(&self, asker: u32) -> Option<Vec<u8>> {
        Some(asker.to_string().into_bytes())
    }
}

/// A link to the file of the program that a process runs.
struct Program(Weak<Process>);

impl Link for Program {
    fn text(&self, _: u32) -> Option<Vec<u8>> {
        Some(self.0.upgrade()?.image.lock().path.clone())
    }
}

const OUT_OF_MEMORY: Errno = Errno(ENOMEM);

/// The text that `write` makes.
fn written(write: impl FnOnce(&mut String) -> fmt::Result) -> Result<Vec<u8>, Errno> {
    let mut text = String::new();
    write(&mut text).map_err(|_| OUT_OF_MEMORY)?;
    Ok(text.into_bytes())
}

impl Text for Shown {
    fn read(&self) -> Result<Vec<u8>, Errno> {
        match self {
            Shown::Sys(path) => sys::read(manager(), path).map(String::into_bytes),
            Shown::Shmem(path) => shmem().lock().read(path).map(String::into_bytes),
            Shown::Vm(path) => vm::read(manager(), path).map(String::into_bytes),
            Shown::Machine(about) => about.read(),
            Shown::Process(process, own) => own.read(&*process.upgrade().ok_or(Errno(ESRCH))?),
        }
    }
    fn write(&self, bytes: &[u8]) -> Result<(), Errno> {
        let text = core::str::from_utf8(bytes).map_err(|_| Errno(EINVAL))?;
        match self {
            Shown::Sys(path) => sys::write(manager(), path, text),
            Shown::Shmem(path) => shmem().lock().write(manager(), path, text),
            Shown::Vm(path) => vm::write(manager(), path, text),
            Shown::Process(process, Own::ClearRefs) => {
                let process = process.upgrade().ok_or(Errno(ESRCH))?;
                let memory = process.memory().ok_or(Errno(ESRCH))?;
                memory.with_alone(|memory| memory.clear_refs(text))
            }
            Shown::Machine(_) | Shown::Process(..) => Err(Errno(EACCES)),
        }
    }
}

/// What all processes and files have.
fn listed() -> Listed {
    let mut listed = Listed::default();
    for memory in process::all().iter().filter_map(|process| process.memory()) {
        memory.with(|memory| listed.add_process(memory));
    }
    let files = world().files.read();
    for content in files.leaves() {
        if let Content::Memory(bytes) = content {
            listed.add_file(&bytes.file);
        }
    }
    listed
}

impl About {
    fn read(self) -> Result<Vec<u8>, Errno> {
        let mm = manager();
        written(|out| match self {
            About::Buddyinfo => meminfo::buddyinfo(mm, out),
            About::Cpuinfo => (0..smp::online()).try_for_each(|cpu| {
                writeln!(out, "processor\t: {cpu}\nvendor_id\t: Foliant\nmodel name\t: x86-64\n")
            }),
            About::Filesystems => out.write_str("nodev\tproc\nnodev\tsysfs\nnodev\ttmpfs\n"),
            About::Meminfo => meminfo::meminfo(mm, &listed(), out),
            About::Mounts => out.write_str(concat!(
                "rootfs / tmpfs rw 0 0\n",
                "proc /proc proc rw 0 0\n",
                "sysfs /sys sysfs rw 0 0\n"
            )),
            About::Online => match smp::online() {
                1 => out.write_str("0\n"),
                count => writeln!(out, "0-{}", count - 1),
            },
            About::Pagetypeinfo => zones::pagetypeinfo(mm, out),
            About::Stat => {
                let ticks = clock::uptime() / TICK;
                writeln!(out, "cpu  {ticks} 0 0 0 0 0 0 0 0 0")?;
                (0..smp::online())
                    .try_for_each(|cpu| writeln!(out, "cpu{cpu} {ticks} 0 0 0 0 0 0 0 0 0"))?;
                writeln!(
                    out,
                    "btime {}\nprocesses {}\nprocs_running 1",
                    clock::epoch(),
                    process::all().len()
                )
            }
            About::Uptime => {
                let hundredths = clock::uptime() / TICK;
                writeln!(out, "{}.{:02} 0.00", hundredths / 100, hundredths % 100)
            }
            About::Version => writeln!(out, "Linux version {} (Foliant)", RELEASE),
            About::Vmallocinfo => meminfo::vmallocinfo(mm, caller, out),
            About::Vmstat => meminfo::vmstat(mm, &listed(), out),
            About::Zoneinfo => zones::zoneinfo(mm, &listed(), out),
        })
    }
}

/// The name of a caller of `vmalloc`.
fn caller(caller: Caller) -> String {
    match symbols::find(caller.0) {
        Some((name, _)) => format!("{:#}", rustc_demangle::demangle(name)),
        None => caller.0.to_string(),
    }
}

/// Texts one behind the other, each ended by a zero.
fn ended_by_zeros(texts: &[Vec<u8>]) -> Vec<u8> {
    texts.iter().flat_map(|text| text.iter().copied().chain([0])).collect()
}

impl Own {
    fn read(self, process: &Process) -> Result<Vec<u8>, Errno> {
        let image = || process.image.lock().clone();
        let name = || String::from_utf8_lossy(&image().name).into_owned();
        let about = |write: fn(&super::Memory, &mut String) -> fmt::Result| {
            let memory = process.memory().ok_or(Errno(ESRCH))?;
            memory.with(|memory| written(|out| write(memory, out)))
        };
        match self {
            Own::Auxv => {
                let words = image().auxiliary;
                Ok(words.iter().flatten().flat_map(|word| word.to_le_bytes()).collect())
            }
            Own::ClearRefs => Err(Errno(EACCES)),
            Own::Cmdline => Ok(ended_by_zeros(&image().arguments)),
            Own::Comm => Ok([&image().name[..], b"\n"].concat()),
            Own::Environ => Ok(ended_by_zeros(&image().environment)),
            Own::Maps => about(|memory, out| memory.maps(out)),
            Own::Smaps => about(|memory, out| memory.smaps(out)),
            Own::SmapsRollup => about(|memory, out| memory.smaps_rollup(out)),
            Own::Statm => about(|memory, out| memory.statm(out)),
            Own::Stat => {
                let (id, name) = (process.id, name());
                written(|out| {
                    write!(out, "{id} ({name}) R 0 {id} {id} 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 0")?;
                    let mut size = String::new();
                    if let Some(memory) = process.memory() {
                        memory.with(|memory| memory.statm(&mut size))?;
                    }
                    let mut pages = size.split(' ').map(|word| word.parse::<u64>().unwrap_or(0));
                    let (size, resident) = (pages.next(), pages.next());
                    let (size, resident) = (size.unwrap_or(0) * 4096, resident.unwrap_or(0));
                    writeln!(out, " {size} {resident} {}{}", u64::MAX, " 0".repeat(27))
                })
            }
            Own::Status => {
                let mask = process.mask.load(core::sync::atomic::Ordering::Relaxed);
                let (id, name) = (process.id, name());
                let mut text = written(|out| {
                    write!(out, "Name:\t{name}\nUmask:\t{mask:04o}\nState:\tR (running)\n")?;
                    write!(out, "Tgid:\t{id}\nNgid:\t0\nPid:\t{id}\nPPid:\t0\nTracerPid:\t0\n")?;
                    write!(out, "Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nFDSize:\t64\nGroups:\t0 \n")
                })?;
                text.extend(about(|memory, out| memory.status(out))?);
                text.extend(b"Threads:\t1\n");
                Ok(text)
            }
        }
    }
}
