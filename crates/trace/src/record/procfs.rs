//! What `/proc` and `/sys` tell of a stopped process and of the machine.

use super::sys::pid_t;
use crate::event::{Area, AreaKind, MapFlags, Prot, empty_at, push_page};
use crate::format::{NAME_MAX, VA_MAX};
use foliant_units::{FRAME_BYTES, Va, VaRange};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// A range of whole pages around `start..end`, empty where that is not the user's.
pub(crate) fn pages(start: u64, end: u64) -> VaRange {
    let end = end.min(VA_MAX - FRAME_BYTES).next_multiple_of(FRAME_BYTES);
    let start = start.min(VA_MAX) / FRAME_BYTES * FRAME_BYTES;
    VaRange::new(Va::new(start), Va::new(end)).unwrap_or_else(|| empty_at(Va::new(start)))
}

/// A range of whole pages around so many bytes.
pub(crate) fn sized(start: u64, bytes: u64) -> VaRange {
    pages(start, start.saturating_add(bytes))
}

/// The areas of a process, from `/proc/PID/maps`.
pub(crate) fn areas(pid: pid_t) -> Vec<Area> {
    let text = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().filter_map(area).collect()
}

/// One line: `start-end rwxp offset device inode   name`.
pub(crate) fn area(line: &str) -> Option<Area> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    if end > VA_MAX {
        return None; // [vsyscall]
    }
    let range = VaRange::new(Va::new(start), Va::new(end))?;
    let rights = words.next()?.as_bytes();
    let has = |i: usize, c: u8| rights.get(i) == Some(&c);
    let prot = Prot::NONE
        .with_if(has(0, b'r'), Prot::READ)
        .with_if(has(1, b'w'), Prot::WRITE)
        .with_if(has(2, b'x'), Prot::EXEC);
    let name = words.nth(3).unwrap_or("");
    let kind = kind_of_name(name, has(3, b's'));
    let flags = MapFlags::NONE.with_if(kind == AreaKind::Stack, MapFlags::GROWSDOWN);
    Some(Area { range, prot, kind, flags })
}

/// Which of a process's areas are maps of files, and of which, from `/proc/PID/maps`.
pub(crate) fn files(pid: pid_t, areas: &[Area]) -> Vec<(VaRange, String)> {
    let text = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    // What was mapped meanwhile tells its own story.
    let there = |line: &str| area(line).filter(|area| areas.contains(area));
    let files = text.lines().filter_map(|line| {
        let area = there(line).filter(|area| is_file(area.kind))?;
        Some((area.range, file_name(&line[line.find('/')?..])))
    });
    files.collect()
}

/// Whether areas of this kind have a file.
pub(crate) fn is_file(kind: AreaKind) -> bool {
    matches!(kind, AreaKind::FilePrivate | AreaKind::FileShared)
}

/// Whether an area is made of huge pages.
pub(crate) fn is_huge(pid: pid_t, range: VaRange) -> bool {
    let text = fs::read(format!("/proc/{pid}/smaps")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let its = text.lines().skip_while(|line| area(line).is_none_or(|area| area.range != range));
    let flags = its.into_iter().find_map(|line| line.strip_prefix("VmFlags:"));
    flags.is_some_and(|flags| flags.split_ascii_whitespace().any(|flag| flag == "ht"))
}

/// The name without folders of the file at a path, as the kernel tells it.
pub(crate) fn file_name(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    let name = name.strip_suffix(" (deleted)").unwrap_or(name);
    // Bytes that are no text became longer ones.
    name[..name.floor_char_boundary(NAME_MAX)].to_owned()
}

/// The name of the file behind a process's descriptor.
pub(crate) fn file_of_fd(pid: pid_t, fd: i32) -> String {
    let path = fs::read_link(format!("/proc/{pid}/fd/{fd}")).unwrap_or_default();
    file_name(&path.to_string_lossy())
}

/// What kind of area the kernel calls so.
pub(crate) fn kind_of_name(name: &str, shared: bool) -> AreaKind {
    match (name, shared) {
        ("[stack]", _) => AreaKind::Stack,
        ("[heap]", _) => AreaKind::Heap,
        ("" | "//anon", false) => AreaKind::Anonymous,
        ("/dev/zero", true) => AreaKind::SharedAnonymous,
        (n, false) if n.starts_with("[anon") => AreaKind::Anonymous,
        (n, true) if n.starts_with("/SYSV") || n.starts_with("[anon") => AreaKind::SharedAnonymous,
        (n, _) if n.starts_with('[') || n.starts_with("anon_inode:") => AreaKind::Special,
        (n, _) if is_device(n) => AreaKind::Special,
        (_, true) => AreaKind::FileShared,
        (_, false) => AreaKind::FilePrivate,
    }
}

fn is_device(name: &str) -> bool {
    name.starts_with("/dev/") && !name.starts_with("/dev/shm/")
}

/// What kind of area a map of the process's descriptor gives.
pub(crate) fn kind_of_fd(pid: pid_t, fd: i32, shared: bool) -> AreaKind {
    let name = fs::read_link(format!("/proc/{pid}/fd/{fd}")).unwrap_or_default();
    let name = name.to_string_lossy();
    match (name.as_ref(), shared) {
        ("/dev/zero", false) => AreaKind::Anonymous,
        ("/dev/zero", true) => AreaKind::SharedAnonymous,
        (n, _) if is_device(n) || n.starts_with("anon_inode:") => AreaKind::Special,
        (_, true) => AreaKind::FileShared,
        (_, false) => AreaKind::FilePrivate,
    }
}

/// The pages of a range that are present, from `/proc/PID/pagemap`.
pub(crate) fn present(pid: pid_t, range: VaRange) -> Vec<Va> {
    const PRESENT: u64 = 1 << 63;
    const CHUNK: usize = 64 << 10;
    let mut found = Vec::new();
    let Ok(file) = File::open(format!("/proc/{pid}/pagemap")) else { return found };
    let mut words = vec![0u8; CHUNK];
    let mut at = range.start().get();
    while at < range.end().get() {
        let want = CHUNK.min(((range.end().get() - at) / FRAME_BYTES * 8) as usize);
        let Ok(got) = file.read_at(&mut words[..want], at / FRAME_BYTES * 8) else { break };
        if got < 8 {
            break;
        }
        for word in words[..got].as_chunks::<8>().0 {
            if u64::from_le_bytes(*word) & PRESENT != 0 {
                found.push(Va::new(at));
            }
            at += FRAME_BYTES;
        }
    }
    found
}

/// Joins pages in order to ranges.
pub(crate) fn join(pages: &[Va]) -> Vec<VaRange> {
    let mut ranges = Vec::new();
    pages.iter().for_each(|page| push_page(&mut ranges, *page));
    ranges
}

/// The present pages of anonymous private areas.
pub(crate) fn present_in(pid: pid_t, areas: &[Area]) -> Vec<VaRange> {
    let anonymous = areas.iter().filter(|area| area.kind.is_anonymous_private());
    anonymous.flat_map(|area| join(&present(pid, area.range))).collect()
}

/// The process's initial break, field 47 of `/proc/PID/stat`.
pub(crate) fn start_brk(pid: pid_t) -> Va {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let behind_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = behind_name.split_ascii_whitespace().nth(44).and_then(|n| n.parse().ok());
    Va::new(field.unwrap_or(0u64).min(VA_MAX))
}

/// The path of the process's program.
pub(crate) fn program(pid: pid_t) -> String {
    let path = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    path.to_string_lossy().into_owned()
}

/// The thread group of a thread.
pub(crate) fn group(tid: pid_t) -> Option<pid_t> {
    let text = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    text.lines().find_map(|l| l.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// The process that made a thread's process, or took it in.
pub(crate) fn parent(tid: pid_t) -> Option<pid_t> {
    let text = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    text.lines().find_map(|l| l.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// The process's program, where its file gives the rights of its owner and the process lacks them.
pub(crate) fn without_rights(pid: pid_t) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let file = fs::metadata(format!("/proc/{pid}/exe")).ok()?;
    let own = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    let lacks = file.mode() & libc::S_ISUID != 0 && file.uid() != own;
    lacks.then(|| program(pid))
}

/// The processes that this thread traces.
pub(crate) fn traced_by(tracer: pid_t) -> impl Iterator<Item = pid_t> {
    let all = fs::read_dir("/proc").into_iter().flatten();
    let pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<pid_t>().ok());
    pids.filter(move |pid| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let by = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
        by.and_then(|by| by.trim().parse().ok()) == Some(tracer)
    })
}

/// One line of a file, or an empty text.
pub(crate) fn line(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().lines().next().unwrap_or("").trim().to_owned()
}

/// The processor's name.
pub(crate) fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find(|l| l.starts_with("model name"));
    name.and_then(|l| l.split_once(':')).map_or("unknown", |(_, n)| n.trim()).to_owned()
}

/// The numbers of the CPUs that are on line.
pub(crate) fn cpus_online() -> Vec<u32> {
    let mut cpus = Vec::new();
    for part in line("/sys/devices/system/cpu/online").split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
            cpus.extend(first..=last.min(first.saturating_add(8191)));
        }
    }
    if cpus.is_empty() { vec![0] } else { cpus }
}
