//! Texts about the machine: what it has, and what was done on it.

use super::super::content::{Piece, Text};
use super::super::process;
use super::super::promises;
use super::super::segments;
use super::super::{clock, mounts};
use super::cpuinfo;
use super::{READ, RELEASE, TICK, list, mask, put, written};
use crate::interrupts::{self, Kind};
use crate::memory::manager;
use crate::{smp, symbols};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::{self, Write};
use foliant::vmap::Caller;
use foliant_files::Refused;
use foliant_linux::meminfo::{self, Listed};
use foliant_linux::{Errno, zones};
use foliant_units::Cpu;
use linux_raw_sys::errno::EACCES;

/// How far a node is from itself.
const DISTANCE: usize = 10;

/// What a text about the machine shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum About {
    Buddyinfo,
    Cmdline,
    Cpuinfo,
    /// CPUs, a bit each.
    Cpumap,
    Filesystems,
    Interrupts,
    Loadavg,
    Meminfo,
    Mounts,
    /// Of the node that there is.
    NodeMeminfo,
    NodeVmstat,
    /// A number that never changes.
    Number(usize),
    Numastat,
    Online,
    Pagetypeinfo,
    Segments,
    Stat,
    Swaps,
    Uptime,
    Version,
    Vmallocinfo,
    Vmstat,
    Zoneinfo,
}

impl About {
    const ALL: [(&'static str, About); 31] = [
        ("proc/buddyinfo", About::Buddyinfo),
        ("proc/cmdline", About::Cmdline),
        ("proc/cpuinfo", About::Cpuinfo),
        ("proc/filesystems", About::Filesystems),
        ("proc/interrupts", About::Interrupts),
        ("proc/loadavg", About::Loadavg),
        ("proc/meminfo", About::Meminfo),
        ("proc/mounts", About::Mounts),
        ("proc/pagetypeinfo", About::Pagetypeinfo),
        ("proc/stat", About::Stat),
        ("proc/swaps", About::Swaps),
        ("proc/sysvipc/shm", About::Segments),
        ("proc/uptime", About::Uptime),
        ("proc/version", About::Version),
        ("proc/vmallocinfo", About::Vmallocinfo),
        ("proc/vmstat", About::Vmstat),
        ("proc/zoneinfo", About::Zoneinfo),
        ("sys/devices/system/cpu/online", About::Online),
        ("sys/devices/system/cpu/possible", About::Online),
        ("sys/devices/system/cpu/present", About::Online),
        ("sys/devices/system/node/has_cpu", About::Number(0)),
        ("sys/devices/system/node/has_memory", About::Number(0)),
        ("sys/devices/system/node/has_normal_memory", About::Number(0)),
        ("sys/devices/system/node/node0/cpulist", About::Online),
        ("sys/devices/system/node/node0/cpumap", About::Cpumap),
        ("sys/devices/system/node/node0/distance", About::Number(DISTANCE)),
        ("sys/devices/system/node/node0/meminfo", About::NodeMeminfo),
        ("sys/devices/system/node/node0/numastat", About::Numastat),
        ("sys/devices/system/node/node0/vmstat", About::NodeVmstat),
        ("sys/devices/system/node/online", About::Number(0)),
        ("sys/devices/system/node/possible", About::Number(0)),
    ];
}

pub(super) fn make_all() -> Result<(), Refused> {
    About::ALL.into_iter().try_for_each(|(path, about)| put(path, READ, about))?;
    (0..smp::online()).try_for_each(|cpu| {
        let folder = format!("sys/devices/system/cpu/cpu{cpu}");
        put(&format!("{folder}/online"), READ, About::Number(1))?;
        put(&format!("{folder}/topology/core_id"), READ, About::Number(cpu))?;
        put(&format!("{folder}/topology/physical_package_id"), READ, About::Number(0))
    })
}

/// What all processes and files have.
fn listed() -> Listed {
    let mut listed = Listed::default();
    for memory in process::memories() {
        memory.with(|memory| listed.add_process(memory));
    }
    promises::add_files(&mut listed);
    listed
}

impl About {
    /// What it shows now.
    fn text(&self) -> Result<Vec<u8>, Errno> {
        let mm = manager();
        written(|out| match self {
            About::Buddyinfo => meminfo::buddyinfo(mm, out),
            About::Cmdline => out.write_str("foliant\n"),
            About::Cpuinfo => cpuinfo::show(out),
            About::Cpumap => writeln!(out, "{}", mask(|_| true)),
            About::Filesystems => {
                mounts::KINDS.iter().try_for_each(|(name, _)| writeln!(out, "nodev\t{name}"))
            }
            About::Interrupts => interrupts(out),
            About::Loadavg => {
                writeln!(out, "0.00 0.00 0.00 1/{} {}", process::all().len(), process::last_id())
            }
            About::Meminfo => meminfo::meminfo(mm, promises::words(), &listed(), out),
            About::Mounts => mounts::show(out),
            About::NodeMeminfo => meminfo::node_meminfo(mm, &listed(), out),
            About::NodeVmstat => zones::node_vmstat(mm, &listed(), out),
            About::Number(number) => writeln!(out, "{number}"),
            About::Numastat => zones::numastat(out),
            About::Online => writeln!(out, "{}", list(|_| true)),
            About::Pagetypeinfo => zones::pagetypeinfo(mm, out),
            About::Segments => segments::show(out),
            // There is nowhere to page out to.
            About::Swaps => writeln!(out, "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority"),
            About::Stat => {
                let ticks = clock::uptime() / TICK;
                writeln!(out, "cpu  {ticks} 0 0 0 0 0 0 0 0 0")?;
                (0..smp::online())
                    .try_for_each(|cpu| writeln!(out, "cpu{cpu} {ticks} 0 0 0 0 0 0 0 0 0"))?;
                writeln!(
                    out,
                    "btime {}\nprocesses {}\nprocs_running 1",
                    clock::epoch(),
                    process::last_id()
                )
            }
            About::Uptime => {
                let hundredths = clock::uptime() / TICK;
                writeln!(out, "{}.{:02} 0.00", hundredths / 100, hundredths % 100)
            }
            About::Version => writeln!(out, "Linux version {RELEASE} (Foliant)"),
            About::Vmallocinfo => meminfo::vmallocinfo(mm, caller, out),
            About::Vmstat => meminfo::vmstat(mm, &listed(), out),
            About::Zoneinfo => zones::zoneinfo(mm, &listed(), out),
        })
    }
}

impl Text for About {
    fn piece(&self, _: u64) -> Result<Piece, Errno> {
        Ok((self.text()?, None))
    }
    fn write(&self, _: &[u8]) -> Result<(), Errno> {
        Err(Errno(EACCES))
    }
}

/// Interrupts by CPU, in Linux's columns. No CPU has another one call a function.
fn interrupts(out: &mut String) -> fmt::Result {
    const LINES: [(&str, Option<Kind>, &str); 5] = [
        ("LOC", Some(Kind::Timer), "Local timer interrupts"),
        ("SPU", Some(Kind::Spurious), "Spurious interrupts"),
        ("RES", Some(Kind::Wake), "Rescheduling interrupts"),
        ("CAL", None, "Function call interrupts"),
        ("TLB", Some(Kind::Shootdown), "TLB shootdowns"),
    ];
    let cpus = || (0..smp::online()).map(|cpu| Cpu(cpu as u16));
    write!(out, "{:11}", "")?;
    cpus().try_for_each(|cpu| write!(out, "CPU{:<8}", cpu.0))?;
    out.write_char('\n')?;
    for (name, kind, text) in LINES {
        write!(out, "{name}: ")?;
        for cpu in cpus() {
            write!(out, "{:10} ", kind.map_or(0, |kind| interrupts::taken(cpu, kind)))?;
        }
        writeln!(out, "  {text}")?;
    }
    Ok(())
}

/// The name of a caller of `vmalloc`.
fn caller(caller: Caller) -> String {
    match symbols::find(caller.0) {
        Some((name, _)) => format!("{:#}", rustc_demangle::demangle(name)),
        None => caller.0.to_string(),
    }
}
