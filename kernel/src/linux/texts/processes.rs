//! `/proc/PID` and `/proc/PID/task/TID`: what one process is.
//!
//! ```text
//!   fork ─▶ make_process ─▶ /proc/PID ──a name in it is looked for─▶ fill ─▶ /proc/PID/{stat,maps,…} ─▶ end_process
//!   clone ─────────────────────────────▶ make_thread ─▶ /proc/PID/task/TID/{stat,…} ─▶ end_thread
//! ```
//!
//! Most processes end before anybody looks, and a folder costs more than a fork.
//!
//! **Invariants**
//! - Q1. A file of a process holds no process: what is read when it has ended is ESRCH.

use super::super::content::{Content, Fills, Link, Piece, Positioned, Text};
use super::super::names::{self, make};
use super::super::pieces::PIECE;
use super::super::process::{Held, Member, Process};
use super::super::{limits, mounts, remote, sched, terminal, user, world};
use super::memory::{WORD, words};
use super::{BOTH, OWN, OWN_READ, READ, TICK, WRITTEN, list, mask, taken, written};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::mem;
use core::sync::atomic::Ordering;
use foliant_files::{Body, Facts, Files, NodeId, Owner, Refused};
use foliant_linux::capabilities::Capability;
use foliant_linux::credentials::{Credentials, Ids};
use foliant_linux::mempolicy::Nodes;
use foliant_linux::{Errno, Frames};
use linux_raw_sys::errno::{EACCES, EINVAL, ESRCH};
use linux_raw_sys::general::{S_IFREG, page_region, pm_scan_arg};

/// What a text about a process shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Own {
    Auxv,
    ClearRefs,
    Cmdline,
    Comm,
    Environ,
    Limits,
    Maps,
    Mountinfo,
    Mounts,
    NumaMaps,
    OomScoreAdj,
    Personality,
    Smaps,
    SmapsRollup,
    Stat,
    Statm,
    Status,
}

impl Own {
    const ALL: [(&'static str, u32, Own); 17] = [
        ("auxv", OWN_READ, Own::Auxv),
        ("clear_refs", WRITTEN, Own::ClearRefs),
        ("cmdline", READ, Own::Cmdline),
        ("comm", BOTH, Own::Comm),
        ("environ", OWN_READ, Own::Environ),
        ("limits", READ, Own::Limits),
        ("maps", READ, Own::Maps),
        ("mountinfo", READ, Own::Mountinfo),
        ("mounts", READ, Own::Mounts),
        ("numa_maps", READ, Own::NumaMaps),
        ("oom_score_adj", BOTH, Own::OomScoreAdj),
        ("personality", OWN_READ, Own::Personality),
        ("smaps", READ, Own::Smaps),
        ("smaps_rollup", READ, Own::SmapsRollup),
        ("stat", READ, Own::Stat),
        ("statm", READ, Own::Statm),
        ("status", READ, Own::Status),
    ];
    /// Those that each thread has besides.
    const OF_THREADS: [(&'static str, u32, Own); 4] = [
        ("comm", BOTH, Own::Comm),
        ("maps", READ, Own::Maps),
        ("stat", READ, Own::Stat),
        ("status", READ, Own::Status),
    ];
}

/// A text about a process, or about one of its threads.
struct About {
    process: Weak<Process>,
    /// The thread; the process's own number where it is about all of them.
    id: u32,
    is_thread: bool,
    own: Own,
}

/// Makes `/proc/self`.
pub(super) fn make_own() -> Result<(), Refused> {
    make(b"proc/self", 0o777, Body::Leaf(Content::Link(Arc::new(OwnFolder)))).map(drop)
}
/// Makes the folder of a process, which is filled later.
pub(in super::super) fn make_process(process: &Arc<Process>) -> Result<(), Refused> {
    let fills = Arc::new(Folder(Arc::downgrade(process)));
    names::make_due(path(process).as_bytes(), 0o555, fills)?;
    note_other_owner(process);
    Ok(())
}
/// Has the folder of a process, and all that is in it, be whose the process is.
pub(in super::super) fn note_owner(process: &Process) {
    let credentials = process.credentials.get();
    let own = Owner { uid: credentials.user.effective, gid: credentials.group.effective };
    // What shows memory is root's where nobody else is to look at that.
    let is_shown = process.is_dumpable.load(Ordering::Relaxed);
    let of_texts = if is_shown { own } else { Owner::ROOT };
    let Some(folder) = names::find(path(process).as_bytes()) else { return };
    let mut files = world().files.write();
    let mut due = Vec::from([folder]);
    while let Some(node) = due.pop() {
        let is_folder = files.is_folder(node);
        let Owner { uid, gid } = if is_folder { own } else { of_texts };
        let set = |facts: &mut Facts| (facts.uid, facts.gid) = (uid, gid);
        let _ = files.change_facts(node, set); // it was there just now
        let inner = files.entries(node, 0).filter(|it| !matches!(it.name, b"." | b".."));
        due.extend(inner.map(|it| it.node));
    }
}
/// The same where it is not root's, to whom new files belong.
pub(in super::super) fn note_other_owner(process: &Process) {
    let credentials = process.credentials.get();
    if (credentials.user.effective, credentials.group.effective) != (0, 0) {
        note_owner(process);
    }
}
fn path(process: &Process) -> String {
    format!("/proc/{}", process.id)
}
/// What fills the folder of a process.
struct Folder(Weak<Process>);

impl Fills for Folder {
    fn fill(&self, folder: NodeId) {
        let process = self.0.upgrade();
        let mut files = world().files.write();
        let taken = files.fill(folder);
        if let (Some(process), Some(_)) = (&process, &taken) {
            // A program may have taken the place of a name, or left no memory for it.
            let _ = make_files(&mut files, folder, process);
        }
        drop(files);
        let Some(process) = process.filter(|_| taken.is_some()) else { return };
        // A thread that begins now makes its own.
        let threads: Vec<u32> = process.threads.lock().iter().map(|thread| thread.id()).collect();
        for id in threads {
            let _ = make_thread(&process, id);
            if !process.threads.lock().iter().any(|thread| thread.id() == id) {
                end_thread(&process, id);
            }
        }
        note_other_owner(&process);
    }
}
fn make_files(
    files: &mut Files<Content>,
    folder: NodeId,
    process: &Arc<Process>,
) -> Result<(), Refused> {
    let mut leaf = |name: &str, mode, content| {
        names::make_in(files, folder, name.as_bytes(), mode, Body::Leaf(content)).map(drop)
    };
    let own = || Arc::downgrade(process);
    for (name, mode, of) in Own::ALL {
        let about = About { process: own(), id: process.id, is_thread: false, own: of };
        leaf(name, S_IFREG | mode, Content::Text(Arc::new(about)))?;
    }
    leaf("exe", 0o777, Content::Link(Arc::new(Program(own()))))?;
    leaf("pagemap", S_IFREG | OWN_READ, Content::Positioned(Arc::new(Pagemap(own()))))?;
    leaf("mem", S_IFREG | OWN, Content::Positioned(Arc::new(Bytes(own()))))
}
/// Makes the folder of one of its threads, where the process's is there and filled: one that was
/// taken away is not made anew.
pub(in super::super) fn make_thread(process: &Arc<Process>, id: u32) -> Result<(), Refused> {
    let Some(folder) = names::find(path(process).as_bytes()) else { return Ok(()) };
    let mut files = world().files.write();
    for (name, mode, own) in Own::OF_THREADS {
        let about = About { process: Arc::downgrade(process), id, is_thread: true, own };
        let (name, body) =
            (format!("task/{id}/{name}"), Body::Leaf(Content::Text(Arc::new(about))));
        match names::make_in(&mut files, folder, name.as_bytes(), S_IFREG | mode, body) {
            Err(Refused::Due(_)) => break,
            made => drop(made?),
        }
    }
    drop(files);
    note_other_owner(process);
    Ok(())
}
/// Takes the folder of a process away.
pub(in super::super) fn end_process(process: &Process) {
    names::remove(path(process).as_bytes());
}
/// Takes the folder of a thread away.
pub(in super::super) fn end_thread(process: &Process, id: u32) {
    names::remove(format!("{}/task/{id}", path(process)).as_bytes());
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

fn memory(process: &Weak<Process>) -> Result<Arc<Held>, Errno> {
    process.upgrade().and_then(|process| process.memory()).ok_or(Errno(ESRCH))
}

/// A word for each page of a process.
struct Pagemap(Weak<Process>);

impl Positioned for Pagemap {
    fn shows(&self) -> Option<u32> {
        Some(self.0.upgrade()?.id)
    }
    fn unit(&self) -> u64 {
        WORD as u64
    }
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, Errno> {
        let memory = memory(&self.0)?;
        let is_admin = sched::current().credentials().has(Capability::SysAdmin);
        let frames = if is_admin { Frames::Shown } else { Frames::Hidden };
        words(into, |all| memory.with(|memory| memory.pagemap(offset, all, frames)))
    }
    fn write(&self, _: u64, _: &[u8]) -> Result<usize, Errno> {
        Err(Errno(EACCES))
    }
    fn ioctl(&self, request: u32, at: u64) -> Result<u64, Errno> {
        match request {
            PAGEMAP_SCAN => self.scan(at),
            _ => Err(Errno(EINVAL)),
        }
    }
}

impl Pagemap {
    fn scan(&self, at: u64) -> Result<u64, Errno> {
        let memory = memory(&self.0)?;
        let mut asked: pm_scan_arg = user::get(at)?;
        let mut scan = memory.with(|memory| memory.begin_scan(&asked))?;
        let mut told = 0;
        let done = loop {
            let room = (asked.vec_len - told).min(REGIONS as u64) as usize;
            let mut regions = [page_region { start: 0, end: 0, categories: 0 }; REGIONS];
            let regions = &mut regions[..room];
            let filled = match memory.with(|memory| memory.scan(&mut scan, regions)) {
                Ok(filled) => filled,
                Err(why) => break Err(why),
            };
            let to = asked.vec + told * size_of::<page_region>() as u64;
            if let Err(why) = regions[..filled].iter().zip(0..).try_for_each(|(region, nth)| {
                user::put(to + nth * size_of::<page_region>() as u64, region)
            }) {
                break Err(why);
            }
            told += filled as u64;
            if scan.is_over() || told == asked.vec_len {
                break Ok(told);
            }
        };
        asked.walk_end = scan.walk_end();
        user::put(at + mem::offset_of!(pm_scan_arg, walk_end) as u64, &asked.walk_end)?;
        done
    }
}

/// Which pages are of which kinds; its structure is twelve words.
const PAGEMAP_SCAN: u32 = 3 << 30 | (size_of::<pm_scan_arg>() as u32) << 16 | 0x66 << 8 | 16;
/// How many regions are found at a time.
const REGIONS: usize = 128;

/// The bytes of a process.
struct Bytes(Weak<Process>);

impl Positioned for Bytes {
    fn shows(&self) -> Option<u32> {
        Some(self.0.upgrade()?.id)
    }
    fn unit(&self) -> u64 {
        1
    }
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, Errno> {
        remote::get_anyway(&memory(&self.0)?, into, offset)
            .map_err(|_| Errno(linux_raw_sys::errno::EIO))
    }
    fn write(&self, offset: u64, from: &[u8]) -> Result<usize, Errno> {
        remote::put_anyway(&memory(&self.0)?, offset, from)
            .map_err(|_| Errno(linux_raw_sys::errno::EIO))
    }
}

/// Texts one behind the other, each ended by a zero.
fn ended_by_zeros(texts: &[Vec<u8>]) -> Vec<u8> {
    texts.iter().flat_map(|text| text.iter().copied().chain([0])).collect()
}

impl Text for About {
    fn shows(&self) -> Option<u32> {
        match self.own {
            Own::Auxv | Own::Environ | Own::Maps | Own::Smaps | Own::SmapsRollup => {
                Some(self.process.upgrade()?.id)
            }
            _ => None,
        }
    }
    fn piece(&self, key: u64) -> Result<Piece, Errno> {
        let process = self.process.upgrade().ok_or(Errno(ESRCH))?;
        let image = || process.image.lock().clone();
        let about = |write: fn(&super::super::Memory, &mut String) -> fmt::Result| {
            memory(&self.process)?.with(|memory| written(|out| write(memory, out)))
        };
        let whole = match self.own {
            Own::Auxv => {
                let words = image().auxiliary;
                Ok(words.iter().flatten().flat_map(|word| word.to_le_bytes()).collect())
            }
            Own::ClearRefs => Err(Errno(EACCES)),
            Own::Cmdline => Ok(ended_by_zeros(&image().arguments)),
            Own::Comm => Ok([&image().name[..], b"\n"].concat()),
            Own::Environ => Ok(ended_by_zeros(&image().environment)),
            Own::Limits => written(|out| limits::show(&process.limits.all(), out)),
            Own::Maps => {
                return self.rows(key, |memory, from, out| memory.maps_row(from, out));
            }
            Own::Mountinfo => written(mounts::show_more),
            Own::Mounts => written(mounts::show),
            Own::NumaMaps => {
                let policy = self.threads(&process).first().and_then(|thread| thread.policy());
                return self.rows(key, |memory, from, out| {
                    memory.numa_maps_row(from, policy.as_ref(), out)
                });
            }
            Own::OomScoreAdj => {
                written(|out| writeln!(out, "{}", process.badness.load(Ordering::Relaxed)))
            }
            Own::Personality => {
                written(|out| writeln!(out, "{:08x}", process.personality.load(Ordering::Relaxed)))
            }
            Own::Smaps => {
                return self.rows(key, |memory, from, out| memory.smaps_row(from, out));
            }
            Own::SmapsRollup => about(|memory, out| memory.smaps_rollup(out)),
            Own::Statm => about(|memory, out| memory.statm(out)),
            Own::Stat => self.stat(&process),
            Own::Status => {
                let mut text = self.status_before(&process)?;
                text.extend(about(|memory, out| memory.status(out)).unwrap_or_default());
                text.extend(self.status_behind(&process)?);
                Ok(text)
            }
        };
        Ok((whole?, None))
    }
    fn write(&self, bytes: &[u8]) -> Result<(), Errno> {
        let process = self.process.upgrade().ok_or(Errno(ESRCH))?;
        match self.own {
            Own::ClearRefs => {
                let (memory, text) = (memory(&self.process)?, taken(bytes)?);
                memory.with_alone(|memory| memory.clear_refs(text))
            }
            Own::Comm => {
                let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
                process.image.lock().name = line[..line.len().min(15)].to_vec();
                Ok(())
            }
            Own::OomScoreAdj => {
                let number = taken(bytes)?.trim().parse::<i32>().map_err(|_| Errno::INVAL)?;
                if !(-1000..=1000).contains(&number) {
                    return Err(Errno::INVAL);
                }
                process.badness.store(number, Ordering::Relaxed);
                Ok(())
            }
            _ => Err(Errno(EACCES)),
        }
    }
}

impl About {
    /// As many rows from an address on as Linux shows at once: those that a page holds, or one. The
    /// key of the next piece is an address, so rows are as memory is when they are read. `row`
    /// writes what is about the first area that ends behind an address, and says where it ends.
    fn rows(
        &self,
        from: u64,
        row: impl Fn(&super::super::Memory, u64, &mut String) -> Result<Option<u64>, fmt::Error>,
    ) -> Result<(Vec<u8>, Option<u64>), Errno> {
        memory(&self.process)?.with(|memory| {
            let (mut text, mut key, mut longest) = (String::new(), Some(from), 0);
            while let Some(from) = key.filter(|_| text.len() + longest <= PIECE) {
                let before = text.len();
                key = row(memory, from, &mut text).map_err(|_| Errno::NOMEM)?;
                longest = longest.max(text.len() - before);
            }
            Ok((text.into_bytes(), key))
        })
    }
    /// The threads that it is about.
    fn threads(&self, process: &Process) -> Vec<Arc<dyn Member>> {
        let mut all = process.threads.lock().clone();
        all.retain(|thread| !self.is_thread || thread.id() == self.id);
        all
    }
    /// Who the thread is that it is about, or who its process's first one is.
    fn credentials(&self, process: &Process) -> Arc<Credentials> {
        match self.threads(process).first() {
            Some(thread) if self.is_thread => thread.credentials(),
            _ => process.credentials.get(),
        }
    }
    /// What its thread does: a process's is the first one.
    fn state(&self, process: &Process) -> (char, &'static str) {
        let own = self.threads(process).into_iter().find(|thread| thread.id() == self.id);
        match own.filter(|_| !process.is_gone()) {
            None => ('Z', "zombie"),
            Some(_) if process.is_stopped() => ('T', "stopped"),
            Some(thread) if thread.scheduled().is_parked() => ('S', "sleeping"),
            Some(_) => ('R', "running"),
        }
    }
    fn stat(&self, process: &Process) -> Result<Vec<u8>, Errno> {
        let name = String::from_utf8_lossy(&process.image.lock().name).into_owned();
        let threads = self.threads(process);
        let usage = match threads.first() {
            Some(thread) if self.is_thread => thread.usage(),
            _ => process.usage(),
        };
        let children = process.children_usage();
        let nice = threads.first().map_or(0, |thread| thread.scheduled().nice());
        let terminal = terminal::of_process(process);
        let (terminal, front) = terminal.map_or((0, -1), |(tty, front)| (tty, front as i32));
        let mut size = String::new();
        if let Some(memory) = process.memory() {
            memory.with(|memory| memory.statm(&mut size)).map_err(|_| Errno::NOMEM)?;
        }
        let mut pages = size.split(' ').map(|word| word.parse::<u64>().unwrap_or(0));
        let (size, resident) = (pages.next().unwrap_or(0) * 4096, pages.next().unwrap_or(0));
        written(|out| {
            write!(out, "{} ({name}) {} {}", self.id, self.state(process).0, process.parent_id())?;
            let (group, session) = process.place();
            write!(out, " {group} {session} {terminal} {front} 0")?;
            write!(out, " {} {} 0 0", usage.faults, children.faults)?;
            let times = [usage.user, usage.system, children.user, children.system];
            times.into_iter().try_for_each(|nanos| write!(out, " {}", nanos / TICK))?;
            let count = process.threads.lock().len();
            write!(out, " {} {nice} {count} 0 {}", 20 + nice, process.began / TICK)?;
            writeln!(out, " {size} {resident} {}{}", u64::MAX, " 0".repeat(27))
        })
    }
    fn status_before(&self, process: &Process) -> Result<Vec<u8>, Errno> {
        let mask = process.mask.load(Ordering::Relaxed);
        let name = String::from_utf8_lossy(&process.image.lock().name).into_owned();
        let (letter, state) = self.state(process);
        written(|out| {
            write!(out, "Name:\t{name}\nUmask:\t{mask:04o}\nState:\t{letter} ({state})\n")?;
            write!(out, "Tgid:\t{}\nNgid:\t0\nPid:\t{}\n", process.id, self.id)?;
            write!(out, "PPid:\t{}\nTracerPid:\t0\n", process.parent_id())?;
            let own = self.credentials(process);
            for (name, ids) in [("Uid", own.user), ("Gid", own.group)] {
                let Ids { real, effective, saved, files } = ids;
                writeln!(out, "{name}:\t{real}\t{effective}\t{saved}\t{files}")?;
            }
            write!(out, "FDSize:\t64\nGroups:\t")?;
            let groups: Vec<String> = own.groups().iter().map(u32::to_string).collect();
            writeln!(out, "{} ", groups.join(" "))
        })
    }
    fn status_behind(&self, process: &Process) -> Result<Vec<u8>, Errno> {
        let threads = self.threads(process);
        let (mut ignored, mut caught) = (0u64, 0u64);
        for (nth, action) in process.actions.lock().iter().enumerate() {
            match action.handler {
                0 => {}
                1 => ignored |= 1 << nth,
                _ => caught |= 1 << nth,
            }
        }
        written(|out| {
            writeln!(out, "Threads:\t{}", process.threads.lock().len())?;
            if let Some(thread) = threads.first() {
                let (own, allowed) = (thread.signals(), thread.scheduled().allowed());
                writeln!(out, "SigPnd:\t{:016x}\nShdPnd:\t{:016x}", own.own.set(), {
                    process.signals.set()
                })?;
                writeln!(out, "SigBlk:\t{:016x}\nSigIgn:\t{ignored:016x}", own.blocked())?;
                writeln!(out, "SigCgt:\t{caught:016x}")?;
                let has = self.credentials(process).capabilities;
                for (name, set) in [
                    ("CapInh", has.inheritable()),
                    ("CapPrm", has.permitted()),
                    ("CapEff", has.effective()),
                    ("CapBnd", has.bounding()),
                    ("CapAmb", has.ambient()),
                ] {
                    writeln!(out, "{name}:\t{:016x}", set.bits())?;
                }
                let is_kept_low = u8::from(process.is_kept_low.load(Ordering::Relaxed));
                writeln!(out, "NoNewPrivs:\t{is_kept_low}\nSeccomp:\t0")?;
                let is_allowed = |cpu: usize| allowed.checked_shr(cpu as u32).unwrap_or(0) & 1 != 0;
                writeln!(out, "Cpus_allowed:\t{}", mask(is_allowed))?;
                writeln!(out, "Cpus_allowed_list:\t{}", list(is_allowed))?;
                writeln!(out, "Mems_allowed:\t{}\nMems_allowed_list:\t0", Nodes::ALL)?;
                let usage = if self.is_thread { thread.usage() } else { process.usage() };
                writeln!(out, "voluntary_ctxt_switches:\t{}", usage.waits)?;
                writeln!(out, "nonvoluntary_ctxt_switches:\t{}", usage.turns)?;
            }
            Ok(())
        })
    }
}
