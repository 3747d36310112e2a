//! Files of `/proc` and `/sys`: texts that are made when a program opens them, and words that it
//! writes there.
//!
//! ```text
//!   /proc/meminfo …        machine      what the machine has and did
//!   /sys/kernel/mm …       memory       switches and counters of memory, from `foliant-linux`
//!   /proc/sys …            settings     numbers that programs look up
//!   /proc/PID …            processes    what one process is
//! ```
//!
//! **Not here**: what the texts about memory say (`foliant-linux`).

mod cpuinfo;
mod machine;
mod memory;
mod processes;
mod settings;

use super::content::{Content, Text};
use super::names::make;
use crate::smp;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use foliant_files::{Body, Refused};
use foliant_linux::Errno;
use linux_raw_sys::errno::ENOMEM;
use linux_raw_sys::general::S_IFREG;

pub(super) use memory::{moves_away, recovers};
pub(super) use processes::{
    end_process, end_thread, make_process, make_thread, note_other_owner, note_owner,
};

/// The Linux that programs are told of.
pub(super) const RELEASE: &str = "6.18.0-foliant";
/// Nanoseconds of a tick of the counters in `/proc`.
pub(super) const TICK: u64 = 10_000_000;
/// Nobody may read it.
const WRITTEN: u32 = 0o200;
/// Nobody may write it.
const READ: u32 = 0o444;
const BOTH: u32 = 0o644;
/// Its owner alone may open it.
const OWN: u32 = 0o600;
/// Its owner alone may read it.
const OWN_READ: u32 = 0o400;

/// Makes the files of the machine.
pub(super) fn make_all() -> Result<(), Refused> {
    machine::make_all()?;
    memory::make_all()?;
    settings::make_all()?;
    processes::make_own()
}

/// Makes a text's file.
fn put(path: &str, mode: u32, text: impl Text + 'static) -> Result<(), Refused> {
    let content = Content::Text(Arc::new(text));
    make(path.as_bytes(), S_IFREG | mode, Body::Leaf(content)).map(drop)
}
/// Which of the CPUs that run, as Linux writes it by bits: as many digits as all of them take.
fn mask(has: impl Fn(usize) -> bool) -> String {
    let count = smp::online();
    let word = |first: usize| {
        let bits = (count - first).min(32);
        let word = (0..bits).fold(0u32, |all, nth| all | u32::from(has(first + nth)) << nth);
        format!("{word:0digits$x}", digits = bits.div_ceil(4))
    };
    let words: Vec<String> = (0..count).step_by(32).rev().map(word).collect();
    words.join(",")
}
/// The same by numbers: `0-2,5`.
fn list(has: impl Fn(usize) -> bool) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for cpu in (0..smp::online()).filter(|cpu| has(*cpu)) {
        match runs.last_mut().filter(|(_, last)| last + 1 == cpu) {
            Some((_, last)) => *last = cpu,
            None => runs.push((cpu, cpu)),
        }
    }
    let run = |(first, last): (usize, usize)| match first == last {
        true => format!("{first}"),
        false => format!("{first}-{last}"),
    };
    let runs: Vec<String> = runs.into_iter().map(run).collect();
    runs.join(",")
}
/// The text that `write` makes.
fn written(write: impl FnOnce(&mut String) -> fmt::Result) -> Result<Vec<u8>, Errno> {
    let mut text = String::new();
    write(&mut text).map_err(|_| Errno(ENOMEM))?;
    Ok(text.into_bytes())
}
/// The text that a program wrote.
fn taken(bytes: &[u8]) -> Result<&str, Errno> {
    core::str::from_utf8(bytes).map_err(|_| Errno::INVAL)
}
