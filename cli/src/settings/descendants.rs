//! Ending what a check has started, when the check is ended itself.
//!
//! A program that is measured has a keeper, a child of this process which stays until nothing that
//! the program started is left, and which what outlives its parent comes to. So everything started
//! descends from this process, and is found by that.
//!
//! **Invariants**
//! - D1. Direct children are killed last: while the keeper lives, nothing that is left can leave
//!   this process's descendants.
//!
//! **Not here**: what is put back afterwards (`settings`).

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::time::{Duration, Instant};

/// How long a program may take to end when it is asked to, and to be gone when it is killed.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(10);

/// Asks all of them with this signal, and kills what does not end (D1).
pub(super) fn end(signal: Signal) {
    send(signal, &descendants());
    if !are_gone(|_| true, None) {
        are_gone(|one| !one.is_direct, Some(Signal::SIGKILL));
        are_gone(|one| one.is_direct, Some(Signal::SIGKILL));
    }
}

/// Waits until none of these is left, which are sent the signal at each look, if there is one;
/// false if some are there in the end.
fn are_gone(which: fn(&Descendant) -> bool, signal: Option<Signal>) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let mut left = descendants();
        left.retain(which);
        if left.is_empty() {
            return true;
        }
        signal.into_iter().for_each(|signal| send(signal, &left));
        std::thread::sleep(LOOK);
    }
    false
}

fn send(signal: Signal, to: &[Descendant]) {
    for one in to {
        let _ = kill(Pid::from_raw(one.pid), signal); // gone by itself meanwhile
    }
}

struct Descendant {
    pid: i32,
    is_direct: bool,
}

/// All that descend from this process and have not ended.
fn descendants() -> Vec<Descendant> {
    let me = std::process::id() as i32;
    let mut all: Vec<(i32, i32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| living(entry.file_name().to_str()?))
        .collect();
    let mut found = Vec::new();
    let mut parents = vec![me];
    while let Some(parent) = parents.pop() {
        all.retain(|&(pid, its)| {
            let is_child = its == parent;
            if is_child {
                parents.push(pid);
                found.push(Descendant { pid, is_direct: parent == me });
            }
            !is_child
        });
    }
    found
}

/// A process that has not ended, and its parent.
fn living(pid: &str) -> Option<(i32, i32)> {
    let number = pid.parse().ok()?;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some((number, parent))
}
