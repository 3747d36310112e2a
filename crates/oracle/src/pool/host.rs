//! Linux's side: the pool of this host, and processes that use it.

use super::{Answer, Counts, HUGE, OBJECTS, PROCESSES, Side, Step, What, settled};
use crate::child::{self, Child, Family, Program};
use crate::host::ARENA;
use crate::side::Failed;
use crate::turn::Turn;
use rustix::fs::{self, FallocateFlags, MemfdFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

const FOLDER: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";
const PAGES: &str = "nr_hugepages";
const OVERCOMMIT: &str = "nr_overcommit_hugepages";
/// How often is looked whether a process is gone.
const LOOKS: u32 = 100_000;

fn read(name: &str) -> io::Result<u64> {
    let text = std::fs::read_to_string(Path::new(FOLDER).join(name))?;
    text.trim().parse().map_err(|_| io::Error::other(format!("{name} of the pool is no number")))
}
fn write(name: &str, value: u64) -> io::Result<()> {
    std::fs::write(Path::new(FOLDER).join(name), value.to_string())
}

/// The pool of this host, which has its settings from before when this is dropped (pool::T2).
#[derive(Debug)]
pub(super) struct Hold {
    before: [(&'static str, u64); 2],
    _turn: Turn,
}

impl Hold {
    pub(super) fn take() -> io::Result<Hold> {
        let turn = Turn::alone()?;
        let before = [(PAGES, read(PAGES)?), (OVERCOMMIT, read(OVERCOMMIT)?)];
        let hold = Hold { before, _turn: turn };
        let counts = counts()?;
        if counts.free != counts.total || counts.reserved != 0 {
            return Err(io::Error::other(format!("the pool of this host is in use: {counts}")));
        }
        if let Err(why) = hold.set(super::POOL, super::SURPLUS) {
            return Err(io::Error::other(format!("its settings cannot be changed: {why}")));
        }
        Ok(hold)
    }
    /// Sets the pool, in which nothing is in use, to so many pages.
    pub(super) fn set(&self, pages: u64, overcommit: u64) -> io::Result<()> {
        write(OVERCOMMIT, overcommit)?;
        write(PAGES, pages)?;
        let wanted = Counts { total: pages, free: pages, reserved: 0, surplus: 0 };
        match settled(counts, wanted)? {
            counts if counts == wanted => Ok(()),
            counts => Err(io::Error::other(format!("{pages} pages were asked for: {counts}"))),
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        for (name, value) in self.before {
            if let Err(why) = write(name, value) {
                eprintln!("{name} of the pool was {value} and could not be put back: {why}");
            }
        }
    }
}

fn counts() -> io::Result<Counts> {
    Ok(Counts {
        total: read(PAGES)?,
        free: read("free_hugepages")?,
        reserved: read("resv_hugepages")?,
        surplus: read("surplus_hugepages")?,
    })
}

// The window is below the program.
const _: () = assert!(super::WINDOW * HUGE < child::DATA - ARENA);

/// Linux's side.
pub(super) struct Host {
    // Before the family: a line that is closed ends its child.
    children: [Option<Child>; PROCESSES],
    family: Option<Family>,
    objects: [Option<OwnedFd>; OBJECTS],
}

impl Host {
    pub(super) fn start(program: &Program) -> io::Result<Host> {
        let (family, first) = Family::start(program)?;
        let children = [Some(first), None, None];
        Ok(Host { children, family: Some(family), objects: [const { None }; OBJECTS] })
    }
    fn child(&mut self, who: usize) -> io::Result<&mut Child> {
        self.children[who].as_mut().ok_or_else(|| io::Error::other("no such process"))
    }
    fn object(&self, of: usize) -> io::Result<&OwnedFd> {
        self.objects[of].as_ref().ok_or_else(|| io::Error::other("no such object"))
    }

    fn map(&mut self, who: usize, (at, count): (u64, u64), what: &What) -> io::Result<Answer> {
        let file =
            what.of.map(|of| Ok::<_, io::Error>(self.object(of)?.as_raw_fd())).transpose()?;
        let child = self.child(who)?;
        let mut flags = libc::MAP_FIXED_NOREPLACE;
        flags |= if what.shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
        flags |= if what.noreserve { libc::MAP_NORESERVE } else { 0 };
        let rights = libc::PROT_READ | if what.writable { libc::PROT_WRITE } else { 0 };
        let (addr, bytes) = (ARENA + at * HUGE, count * HUGE);
        let Some(file) = file else {
            flags |= libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | libc::MAP_HUGE_2MB;
            let args = [addr, bytes, rights as u64, flags as u64, u64::MAX, 0];
            return call(child, libc::SYS_mmap, args);
        };
        // The process takes the descriptor for the call alone: the object is kept by its areas, and
        // by this program while it has its name.
        let mine = [std::process::id().into(), 0, 0, 0, 0, 0];
        let mine = child.ask(libc::SYS_pidfd_open as u64, mine, 0)?.result;
        let its = [mine, file as u64, 0, 0, 0, 0];
        let its = child.ask(libc::SYS_pidfd_getfd as u64, its, 0)?.result;
        let args = [addr, bytes, rights as u64, flags as u64, its, what.first * HUGE];
        let done = call(child, libc::SYS_mmap, args);
        for descriptor in [its, mine] {
            child.ask(libc::SYS_close as u64, [descriptor, 0, 0, 0, 0, 0], 0)?;
        }
        done
    }
    fn access(&mut self, who: usize, at: u64, store: Option<u8>) -> io::Result<Answer> {
        let (what, value) = match store {
            Some(value) => (child::STORE, value.into()),
            None => (child::LOAD, 0),
        };
        let reply = self.child(who)?.ask(what, [ARENA + at * HUGE, value, 0, 0, 0, 0], 0)?;
        Ok(match (reply.signal, store) {
            (0, None) => Answer::Byte(reply.result as u8),
            (0, Some(_)) => Answer::Done,
            (signal, _) => Answer::Signal(signal),
        })
    }
    fn fork(&mut self, who: usize, number: usize) -> io::Result<Answer> {
        let family = self.family.as_mut().expect("it is there until the end");
        let parent = self.children[who].as_mut().ok_or_else(|| io::Error::other("no parent"))?;
        let (reply, forked) = family.fork(parent)?;
        self.children[number] = forked;
        Ok(answer(reply.result))
    }
    /// Ends a process and waits until it has given its memory back.
    fn exit(&mut self, who: usize) -> io::Result<()> {
        let Some(child) = self.children[who].take() else { return Ok(()) };
        let pid = child.pid;
        drop(child);
        gone(pid)
    }
}

/// Waits until a process that is not waited for is gone.
fn gone(pid: u32) -> io::Result<()> {
    let folder = format!("/proc/{pid}");
    for _ in 0..LOOKS {
        if !Path::new(&folder).exists() {
            return Ok(());
        }
        std::thread::yield_now();
        std::thread::sleep(std::time::Duration::from_micros(20));
    }
    Err(io::Error::other(format!("process {pid} does not end")))
}

fn answer(result: u64) -> Answer {
    match result.wrapping_neg() {
        errno @ 1..4096 => Answer::Errno(errno as i32),
        _ => Answer::Done,
    }
}
fn call(child: &mut Child, number: i64, args: [u64; 6]) -> io::Result<Answer> {
    Ok(answer(child.ask(number as u64, args, 0)?.result))
}
fn done(result: Result<(), Errno>) -> Answer {
    result.map_or_else(|why| Answer::Errno(why.raw_os_error()), |()| Answer::Done)
}

impl Side for Host {
    fn step(&mut self, step: &Step) -> Result<Answer, Failed> {
        let range = |at: u64, count: u64, last| [ARENA + at * HUGE, count * HUGE, last, 0, 0, 0];
        Ok(match *step {
            Step::Create { of, pages } => {
                let flags = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
                let file = fs::memfd_create("foliant-oracle", flags).map_err(io::Error::from)?;
                fs::ftruncate(&file, pages * HUGE).map_err(io::Error::from)?;
                self.objects[of] = Some(file);
                Answer::Done
            }
            Step::Close { of } => {
                self.objects[of] = None;
                Answer::Done
            }
            Step::Resize { of, pages } => done(fs::ftruncate(self.object(of)?, pages * HUGE)),
            Step::Punch { of, from, count } => {
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                done(fs::fallocate(self.object(of)?, mode, from * HUGE, count * HUGE))
            }
            Step::Allocate { of, from, count } => {
                let mode = FallocateFlags::empty();
                done(fs::fallocate(self.object(of)?, mode, from * HUGE, count * HUGE))
            }
            Step::Map { who, at, count, what } => self.map(who, (at, count), &what)?,
            Step::Unmap { who, at, count } => {
                call(self.child(who)?, libc::SYS_munmap, range(at, count, 0))?
            }
            Step::Load { who, at } => self.access(who, at, None)?,
            Step::Store { who, at, value } => self.access(who, at, Some(value))?,
            Step::Drop { who, at, count } => {
                let args = range(at, count, libc::MADV_DONTNEED as u64);
                call(self.child(who)?, libc::SYS_madvise, args)?
            }
            Step::Fork { who, child } => self.fork(who, child)?,
            Step::Exit { who } => {
                self.exit(who)?;
                Answer::Done
            }
            Step::Pool { pages } => {
                write(PAGES, pages)?;
                Answer::Done
            }
            Step::Overcommit { pages } => {
                write(OVERCOMMIT, pages)?;
                Answer::Done
            }
        })
    }
    fn counts(&self) -> Result<Counts, Failed> {
        Ok(counts()?)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for who in (1..PROCESSES).rev() {
            if let Err(why) = self.exit(who) {
                eprintln!("{why}");
            }
        }
        self.family = None; // it waits for the first process
    }
}
