//! Switches and counters of memory: `/sys/kernel/mm`, `/proc/sys/vm`, words about frames, and what
//! is split by `/sys/kernel/debug`. What they mean is in `foliant-linux`.
//!
//! **Locking**: a lock for the switches of files in memory.

use super::super::anchored::Anchored;
use super::super::content::{Content, Piece, Positioned, Text};
use super::super::names::{self, make};
use super::super::{khugepaged, process, promises, world};
use super::{BOTH, OWN, OWN_READ, WRITTEN, put, taken};
use crate::memory::manager;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use foliant_files::{Body, Refused};
use foliant_linux::{
    Errno, Khugepaged, ShmemEnabled, kpage, split_huge_pages, split_huge_pages_of_file, sys, vm,
};
use linux_raw_sys::errno::{EACCES, EINVAL};
use linux_raw_sys::general::S_IFREG;
use spin::{Mutex, Once};

static SHMEM: Once<Mutex<ShmemEnabled>> = Once::new();
/// Whether programs may say that memory breaks. Not at first, as on a kernel that is built without
/// it: programs that try all advice there is lose memory that they use.
static RECOVERS: AtomicBool = AtomicBool::new(false);
/// Whether what is about to break is moved away from, where that may be said.
static MOVES_AWAY: AtomicBool = AtomicBool::new(true);

/// Whether what a program says is broken is taken away from those that have it.
pub(in crate::linux) fn recovers() -> bool {
    RECOVERS.load(Ordering::Relaxed)
}
/// Whether what is about to break is moved away from.
pub(in crate::linux) fn moves_away() -> bool {
    MOVES_AWAY.load(Ordering::Relaxed)
}

fn shmem() -> &'static Mutex<ShmemEnabled> {
    SHMEM.call_once(|| Mutex::new(ShmemEnabled::new(manager())))
}

/// A file about memory.
enum Switch {
    /// About memory, from `/sys/kernel/mm` on.
    Sys(String),
    /// A size of files in memory, there.
    Shmem(String),
    /// khugepaged's, there.
    Khugepaged(String),
    /// From `/proc/sys` on.
    Vm(String),
    /// Whether something is done at all.
    Flag(&'static AtomicBool),
    /// What is written is split.
    Split,
}

pub(super) fn make_all() -> Result<(), Refused> {
    for name in sys::names() {
        put(&format!("sys/kernel/mm/{name}"), BOTH, Switch::Sys(name))?;
    }
    for name in ShmemEnabled::names() {
        put(&format!("sys/kernel/mm/{name}"), BOTH, Switch::Shmem(name))?;
    }
    for name in Khugepaged::names() {
        put(&format!("sys/kernel/mm/{name}"), BOTH, Switch::Khugepaged(name))?;
    }
    for name in vm::names() {
        put(&format!("proc/sys/{name}"), BOTH, Switch::Vm(name))?;
    }
    put("proc/sys/vm/memory_failure_recovery", BOTH, Switch::Flag(&RECOVERS))?;
    put("proc/sys/vm/enable_soft_offline", BOTH, Switch::Flag(&MOVES_AWAY))?;
    put("sys/kernel/debug/split_huge_pages", WRITTEN, Switch::Split)?;
    let tested = Body::Leaf(Content::Channel(Arc::new(Anchored)));
    make(b"sys/kernel/debug/gup_test", S_IFREG | OWN, tested)?;
    for (path, about) in [("proc/kpageflags", Frames::Flags), ("proc/kpagecount", Frames::Count)] {
        let body = Body::Leaf(Content::Positioned(Arc::new(about)));
        make(path.as_bytes(), S_IFREG | OWN_READ, body)?;
    }
    Ok(())
}

impl Switch {
    /// What it shows now.
    fn text(&self) -> Result<Vec<u8>, Errno> {
        let text = match self {
            Switch::Sys(path) => sys::read(manager(), path),
            Switch::Shmem(path) => shmem().lock().read(path),
            Switch::Khugepaged(path) => khugepaged::read(path),
            Switch::Vm(path) => vm::read(manager(), promises::words(), path),
            Switch::Flag(is_on) => Ok(format!("{}\n", u8::from(is_on.load(Ordering::Relaxed)))),
            Switch::Split => Err(Errno(EACCES)),
        };
        text.map(String::into_bytes)
    }
}

impl Text for Switch {
    fn piece(&self, _: u64) -> Result<Piece, Errno> {
        Ok((self.text()?, None))
    }
    fn write(&self, bytes: &[u8]) -> Result<(), Errno> {
        let text = taken(bytes)?;
        match self {
            Switch::Sys(path) => sys::write(manager(), path, text),
            Switch::Shmem(path) => shmem().lock().write(manager(), path, text),
            Switch::Khugepaged(path) => khugepaged::write(path, text),
            Switch::Vm(path) => vm::write(manager(), promises::words(), path, text),
            Switch::Flag(is_on) => match text.trim() {
                word @ ("0" | "1") => {
                    is_on.store(word == "1", Ordering::Relaxed);
                    Ok(())
                }
                _ => Err(Errno(EINVAL)),
            },
            Switch::Split => split(text),
        }
    }
}

/// Splits what a line asks for. The process that it names is held in the meantime.
fn split(text: &str) -> Result<(), Errno> {
    if text.starts_with('/') {
        return split_huge_pages_of_file(text, |path| {
            let node = names::find(path.as_bytes())?;
            Some(world().in_memory(node).ok()??.file.clone())
        });
    }
    let id = text.split(',').next().and_then(|id| id.trim().parse::<u32>().ok());
    match id.and_then(process::of_id).and_then(|process| process.memory()) {
        Some(memory) => memory.with(|memory| {
            split_huge_pages(manager(), text, |asked| (Some(asked as u32) == id).then_some(memory))
        }),
        None => split_huge_pages(manager(), text, |_| None),
    }
}

/// A word for each frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Frames {
    Flags,
    Count,
}

impl Positioned for Frames {
    fn unit(&self) -> u64 {
        WORD as u64
    }
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, Errno> {
        words(into, |all| match self {
            Frames::Flags => kpage::kpageflags(manager(), offset, all),
            Frames::Count => kpage::kpagecount(manager(), offset, all),
        })
    }
    fn write(&self, _: u64, _: &[u8]) -> Result<usize, Errno> {
        Err(Errno(EACCES))
    }
}

pub(super) const WORD: usize = 8;

/// Reads words into bytes; says how many bytes came.
pub(super) fn words(
    into: &mut [u8],
    read: impl FnOnce(&mut [u64]) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let mut all = alloc::vec![0; into.len() / WORD];
    let count = read(&mut all)?;
    for (to, from) in into.chunks_exact_mut(WORD).zip(&all[..count]) {
        to.copy_from_slice(&from.to_ne_bytes());
    }
    Ok(count * WORD)
}
