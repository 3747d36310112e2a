//! Which memory shared areas are of: an object for each identity that the kernel knows.
//!
//! ```text
//!   MAP_SHARED | MAP_ANONYMOUS   the call that made it: a fork's child inherits it, nobody else can have it
//!   memfd, file of a tmpfs       device and inode of the descriptor that was mapped
//!   System V                     the segment's number, as shmat was told
//! ```
//!
//! A file in memory can have pages that no recorded fault brought: by `write`, or from before. So
//! each time that one is mapped the pages are looked for that it has in the mapped part
//! (`SEEK_DATA`, which finds those that Linux would map around a fault, and brings none).
//!
//! **Not here**: files on a disk, huge pages, `truncate` by a path, what a System V segment holds
//! that was made before; what processes have mapped that ran before they were recorded.

use super::procfs;
use super::sys::{self, pid_t};
use crate::event::{Backing, EventKind, ObjectId};
use crate::format::VA_MAX;
use foliant_units::{FRAME_BYTES, VaRange};
use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

/// Runs of pages that one event tells: many make a block of the file too large.
const RUNS: usize = 4096;

/// What the kernel tells objects apart by, where it is more than the call that made them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Key {
    File { device: u64, inode: u64 },
    Segment(u64),
}

/// Objects that were mapped.
#[derive(Default)]
pub(crate) struct Shared {
    known: HashMap<Key, ObjectId>,
    count: u32,
}

/// A descriptor's file in memory.
struct InMemory {
    key: Key,
    path: String,
    bytes: u64,
}

impl InMemory {
    fn of(pid: pid_t, fd: u64) -> Option<InMemory> {
        let path = format!("/proc/{pid}/fd/{}", fd as i32);
        let about = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
        if !sys::is_in_memory(&path) {
            return None;
        }
        let key = Key::File { device: about.dev(), inode: about.ino() };
        Some(InMemory { key, path, bytes: about.size() })
    }
    fn room(&self) -> u64 {
        self.bytes.min(VA_MAX).div_ceil(FRAME_BYTES)
    }
    /// The pages that it has of a part.
    fn present(&self, part: VaRange) -> Vec<VaRange> {
        File::open(&self.path).map_or_else(|_| Vec::new(), |file| sys::data(&file, part))
    }
}

impl Shared {
    fn next(&mut self) -> ObjectId {
        self.count += 1;
        ObjectId(self.count - 1)
    }
    fn of(&mut self, key: Key) -> ObjectId {
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let new = self.next();
        self.known.insert(key, new);
        new
    }

    /// A call has mapped new memory that is shared with whoever inherits it.
    pub(crate) fn anonymous(&mut self, range: VaRange) -> Vec<EventKind> {
        let (object, room) = (self.next(), range.pages().get());
        attached((object, Backing::Anonymous), room, Vec::new(), (range, 0))
    }

    /// A call has mapped a file from this byte on; nothing is told where it is none in memory.
    pub(crate) fn file(
        &mut self,
        pid: pid_t,
        fd: u64,
        range: VaRange,
        offset: u64,
    ) -> Vec<EventKind> {
        let Some(file) = InMemory::of(pid, fd) else { return Vec::new() };
        let object = self.of(file.key);
        let present = file.present(procfs::sized(offset, range.bytes().get()));
        attached((object, Backing::File), file.room(), present, (range, offset / FRAME_BYTES))
    }

    /// A call has attached a segment.
    pub(crate) fn segment(&mut self, number: u64, range: VaRange) -> Vec<EventKind> {
        let (object, room) = (self.of(Key::Segment(number)), range.pages().get());
        attached((object, Backing::SystemV), room, Vec::new(), (range, 0))
    }

    /// A call has changed the size of a descriptor's file, or what it holds.
    pub(crate) fn changed(&mut self, pid: pid_t, fd: u64) -> Vec<EventKind> {
        let file = InMemory::of(pid, fd);
        let known = file.and_then(|file| Some((*self.known.get(&file.key)?, file)));
        let Some((object, file)) = known else { return Vec::new() };
        told((object, Backing::File), file.room(), Vec::new())
    }

    /// A call has taken whole pages out of a descriptor's file.
    pub(crate) fn punched(
        &mut self,
        pid: pid_t,
        fd: u64,
        (offset, bytes): (u64, u64),
    ) -> Vec<EventKind> {
        let known = InMemory::of(pid, fd).and_then(|file| self.known.get(&file.key));
        let first = offset.min(VA_MAX).next_multiple_of(FRAME_BYTES);
        let end = offset.saturating_add(bytes).min(VA_MAX) / FRAME_BYTES * FRAME_BYTES;
        let pages = procfs::sized(first, end.saturating_sub(first));
        let punch = |object: &ObjectId| EventKind::Punch { object: *object, pages };
        known.filter(|_| !pages.is_empty()).map(punch).into_iter().collect()
    }
}

/// What is said of an object, in as many events as it takes.
fn told(
    (object, backing): (ObjectId, Backing),
    room: u64,
    present: Vec<VaRange>,
) -> Vec<EventKind> {
    let tell = |runs: &[VaRange]| EventKind::Object { object, backing, room, present: runs.into() };
    if present.is_empty() {
        return vec![tell(&[])];
    }
    present.chunks(RUNS).map(tell).collect()
}

fn attached(
    object: (ObjectId, Backing),
    room: u64,
    present: Vec<VaRange>,
    (range, first): (VaRange, u64),
) -> Vec<EventKind> {
    let mut events = told(object, room, present);
    events.push(EventKind::Attach { range, object: object.0, first });
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, SeekFrom, Write};
    use std::os::fd::AsRawFd;

    const PAGE: u64 = FRAME_BYTES;

    fn pages(first: u64, count: u64) -> VaRange {
        procfs::sized(first * PAGE, count * PAGE)
    }

    #[test]
    fn shared_memory_without_a_file_is_another_object_each_time() {
        let mut shared = Shared::default();
        for number in 0..2 {
            let (object, range) = (ObjectId(number), pages(16, 4));
            let (backing, present) = (Backing::Anonymous, Vec::new());
            let expect = [
                EventKind::Object { object, backing, room: 4, present },
                EventKind::Attach { range, object, first: 0 },
            ];
            assert_eq!(shared.anonymous(range), expect);
        }
        let first = |events: Vec<EventKind>| match events[..] {
            [EventKind::Object { object, backing: Backing::SystemV, room: 4, .. }, _] => object,
            _ => panic!("{events:?}"),
        };
        assert_eq!(first(shared.segment(7, pages(16, 4))), ObjectId(2));
        assert_eq!(first(shared.segment(8, pages(16, 4))), ObjectId(3));
        assert_eq!(first(shared.segment(7, pages(90, 4))), ObjectId(2), "it is the same one");
    }

    /// Where there is no tmpfs at this place, nothing is looked at.
    #[test]
    fn a_file_in_memory_is_one_object_with_the_pages_that_it_has() {
        let Ok(mut file) = tempfile::tempfile_in("/dev/shm") else { return };
        let (own, fd) = (std::process::id() as pid_t, file.as_raw_fd() as u64);
        if InMemory::of(own, fd).is_none() {
            return;
        }
        for page in [3, 4, 9] {
            file.seek(SeekFrom::Start(page * PAGE)).unwrap();
            file.write_all(&[1]).unwrap();
        }
        let mut shared = Shared::default();
        assert!(shared.changed(own, fd).is_empty(), "nobody maps it");
        let (object, backing) = (ObjectId(0), Backing::File);
        let about = |room, present| EventKind::Object { object, backing, room, present };
        let told = shared.file(own, fd, pages(64, 32), 0);
        let attach = EventKind::Attach { range: pages(64, 32), object, first: 0 };
        assert_eq!(told, [about(10, vec![pages(3, 2), pages(9, 1)]), attach]);
        let told = shared.file(own, fd, pages(80, 5), 4 * PAGE);
        let attach = EventKind::Attach { range: pages(80, 5), object, first: 4 };
        assert_eq!(told, [about(10, vec![pages(4, 1)]), attach]);
        file.set_len(5 * PAGE + 1).unwrap();
        assert_eq!(shared.changed(own, fd), [about(6, vec![])]);
        let punched = |offset, bytes| {
            let mut shared = Shared { known: shared.known.clone(), count: 1 };
            shared.punched(own, fd, (offset, bytes))
        };
        assert_eq!(punched(1, 2 * PAGE), [EventKind::Punch { object, pages: pages(1, 1) }]);
        assert!(punched(1, PAGE).is_empty(), "no whole page");
        assert!(punched(u64::MAX - 1, PAGE).is_empty());
    }

    #[test]
    fn a_file_on_a_disk_and_a_bad_descriptor_are_no_objects() {
        let file = File::open("/proc/self/maps").unwrap();
        let own = std::process::id() as pid_t;
        for fd in [file.as_raw_fd() as u64, 1 << 20, u64::MAX] {
            assert!(Shared::default().file(own, fd, pages(64, 4), 0).is_empty(), "{fd}");
        }
    }

    #[test]
    fn many_runs_are_told_in_parts() {
        let runs: Vec<VaRange> = (0..RUNS as u64 + 1).map(|n| pages(2 * n, 1)).collect();
        let told = told((ObjectId(0), Backing::File), 9000, runs);
        let counts: Vec<usize> = told
            .iter()
            .map(|event| match event {
                EventKind::Object { present, .. } => present.len(),
                _ => 0,
            })
            .collect();
        assert_eq!(counts, [RUNS, 1]);
    }
}
