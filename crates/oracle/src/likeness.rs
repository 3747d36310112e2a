//! What this host is like, so that the simulated machine is told the same.

use crate::machine::{Likeness, Planted};
use foliant::Policy;
use foliant::fault::{Global, Size, UseZeroPage};
use foliant_linux::overcommit::Promise;
use foliant_linux::raw::general::CAP_IPC_LOCK;
use foliant_linux::{Limits, sys};
use foliant_units::{Bytes, Order, Pages};
use std::fs;
use std::io;
use std::path::Path;

const SWITCHES: &str = "/sys/kernel/mm/transparent_hugepage";

/// The first release of Linux that the crate is like.
const FIRST: (u32, u32) = (6, 17);

/// The switches of folio sizes and the limits of this host.
pub(crate) fn of_host() -> io::Result<Likeness> {
    let text = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    if release(&text).is_none_or(|release| release < FIRST) {
        let (major, minor) = FIRST;
        return Err(io::Error::other(format!(
            "this host runs Linux {}, and what is compared is as since {major}.{minor}",
            text.trim()
        )));
    }
    let limits = Limits { promise: Promise::Guess(promise()?), locked: locked()?, ..Limits::NONE };
    let tells_broken = Path::new("/proc/sys/vm/memory_failure_recovery").exists();
    let nodes = fs::read_to_string("/sys/devices/system/node/online");
    let has_one_node = nodes.is_ok_and(|nodes| nodes.trim() == "0");
    let planted = Planted::Nothing;
    Ok(Likeness { policy: policy(), limits, tells_broken, has_one_node, planted })
}

/// The two numbers that a release begins with.
fn release(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|letter: char| !letter.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The word in brackets of a switch's file.
fn chosen(text: &str) -> Option<&str> {
    text.split_once('[')?.1.split_once(']').map(|(word, _)| word)
}

/// The switches; all are off where the host has none.
fn policy() -> Policy {
    let mut policy = Policy { global: Global::Never, ..Policy::BASE_ONLY };
    let read = |name: &str| fs::read_to_string(Path::new(SWITCHES).join(name)).ok();
    if let Some(global) = read("enabled").as_deref().and_then(chosen) {
        policy.global = Global::parse(global).unwrap_or(Global::Never);
    }
    if let Some(zeros) = read("use_zero_page") {
        policy.use_zero_page = sys::use_zero_page(zeros.trim()).unwrap_or(UseZeroPage::Yes);
    }
    let mut has_sizes = false;
    for order in Order::all().filter(|order| *order <= Order::SIZE_2M) {
        let name = format!("hugepages-{}kB/enabled", order.bytes().get() >> 10);
        if let Some(size) = read(&name).as_deref().and_then(chosen) {
            has_sizes = true;
            // Sizes that the manager does not have are off.
            let _ = policy.set(order, Size::parse(size).unwrap_or(Size::Never));
        }
    }
    if !has_sizes {
        // Before there was a switch for each size the global one meant 2 MiB.
        let _ = policy.set(Order::SIZE_2M, Size::Inherit);
    }
    policy
}

/// What the host promises to one call at most: all memory and swap.
fn promise() -> io::Result<Pages> {
    if fs::read_to_string("/proc/sys/vm/overcommit_memory")?.trim() != "0" {
        return Err(io::Error::other(
            "vm.overcommit_memory is not 0 on this host, and other rules are not compared",
        ));
    }
    let text = fs::read_to_string("/proc/meminfo")?;
    let kilobytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let all = ["MemTotal:", "SwapTotal:"].iter().filter_map(|name| kilobytes(name)).sum::<u64>();
    Ok(Pages::new(all / 4))
}

/// Whether this process has a capability.
pub(crate) fn is_capable(capability: u32) -> io::Result<bool> {
    let status = fs::read_to_string("/proc/self/status")?;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).unwrap_or(0);
    Ok(bits >> capability & 1 == 1)
}

/// What a child may lock: anything, where it is privileged.
fn locked() -> io::Result<Bytes> {
    if is_capable(CAP_IPC_LOCK)? {
        return Ok(Bytes::new(u64::MAX));
    }
    let limits = fs::read_to_string("/proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    let soft = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    Ok(Bytes::new(soft.unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_and_switches_are_read() {
        let cases = [("6.18.44-fc-v595\n", Some((6, 18))), ("6.6-rc1", Some((6, 6))), ("x", None)];
        for (text, numbers) in cases {
            assert_eq!(release(text), numbers, "{text}");
        }
        assert!(release("5.19.0") < release("6.2.0") && release("6.9.1") < release("6.17.0"));
        assert_eq!(chosen("always [madvise] never\n"), Some("madvise"));
        assert_eq!(chosen("never"), None);
    }
}
