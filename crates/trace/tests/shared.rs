//! Shared memory: real programs are recorded, and a replay takes the faults that Linux took.
//!
//! The programs are tests of this very file, `child_*`, as in `record.rs`. Each works in a map of a
//! size that nothing else uses, at a place that is aligned, so that what Linux maps around a read
//! is known by counting.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(unsafe_code)]

use foliant_trace::record::{AccessWish, Options, Summary};
use foliant_trace::replay::{Choice, Plan, Row, Settings, Shared, replay_all};
use foliant_trace::*;
use foliant_units::{Order, Va, VaRange};
use std::ffi::OsString;

const PAGE: usize = 4096;
/// Pages of the children's maps.
const PAGES: usize = 211;
/// Pages that Linux maps around a read at most.
const AROUND: usize = 16;
/// Where the children's maps are, each in a GiB of its own: the harness may run all at once.
const PLACE: usize = 0x5000_0000_0000;

/// A shared map of a descriptor from this page on, or of new memory, at a place of its own.
fn shared(nth: usize, fd: libc::c_int, first: usize) -> &'static mut [u8] {
    let anonymous = if fd == -1 { libc::MAP_ANONYMOUS } else { 0 };
    let flags = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE | anonymous;
    let (place, prot) = (PLACE + (nth << 30), libc::PROT_READ | libc::PROT_WRITE);
    let offset = (first * PAGE) as libc::off_t;
    let place = std::ptr::without_provenance_mut(place);
    // SAFETY: a new mapping that replaces nothing.
    let at = unsafe { libc::mmap(place, PAGES * PAGE, prot, flags, fd, offset) };
    assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    // SAFETY: the mapping is that long, readable and writable; what other processes write is of no
    // interest to this one.
    unsafe { std::slice::from_raw_parts_mut(at.cast(), PAGES * PAGE) }
}

fn memfd(pages: usize) -> libc::c_int {
    // SAFETY: the name is a text that ends with a zero.
    let fd = unsafe { libc::memfd_create(c"shared".as_ptr(), 0) };
    assert!(fd >= 0);
    resize(fd, pages);
    fd
}

fn resize(fd: libc::c_int, pages: usize) {
    // SAFETY: takes numbers only.
    assert_eq!(unsafe { libc::ftruncate(fd, (pages * PAGE) as libc::off_t) }, 0);
}

fn write(memory: &mut [u8], pages: std::ops::Range<usize>) {
    for page in pages {
        // SAFETY: the pointer is that of a live byte.
        unsafe { std::ptr::write_volatile(&mut memory[page * PAGE + 7], 1) };
    }
}

fn read(memory: &[u8], pages: std::ops::Range<usize>) {
    for page in pages {
        // SAFETY: the pointer is that of a live byte.
        unsafe { std::ptr::read_volatile(&memory[page * PAGE + 7]) };
    }
}

/// Has a child do something and waits for its end.
fn forked(work: impl FnOnce()) {
    // SAFETY: the child touches memory, makes system calls and ends.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        work();
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: waits for the child; `status` is a live int.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    assert_eq!(status, 0);
}

#[test]
fn child_shares() {
    let memory = shared(0, -1, 0);
    write(memory, 0..100);
    forked(|| {
        read(memory, 0..150);
        write(memory, 150..200);
        write(memory, 0..150);
    });
    read(memory, 0..PAGES);
}

/// Faults of it: the parent's writes; the child's reads of what there is, by windows, and of what
/// there is not, one by one; its writes, but not those to pages that it has read; the parent's
/// reads by windows, and those beyond.
const SHARES: usize = 100 + 100usize.div_ceil(AROUND) + 50 + 50 + windows(100, 200) + PAGES - 200;

/// Windows that pages from the first to before the second lie in.
const fn windows(first: usize, end: usize) -> usize {
    end.div_ceil(AROUND) - first / AROUND
}

#[test]
fn child_shares_a_memfd() {
    let fd = memfd(PAGES);
    let here = shared(1, fd, 0);
    write(here, 0..64);
    // A second map of the same memory has none of its pages, and begins elsewhere in it.
    let there = shared(2, fd, 16);
    read(there, 0..48);
    forked(|| {
        // Another process's map of it, made after the fork, with pages that a call wrote.
        let page = [1; PAGE];
        for at in 64..80 {
            let offset = (at * PAGE) as libc::off_t;
            // SAFETY: the kernel reads that many bytes.
            let n = unsafe { libc::pwrite(fd, page.as_ptr().cast(), PAGE, offset) };
            assert_eq!(n, PAGE as isize);
        }
        let own = shared(3, fd, 0);
        read(own, 0..96);
    });
    // What is cut off is gone for every map of it; what is there again is new.
    resize(fd, 32);
    resize(fd, PAGES);
    read(here, 0..64);
}

/// The writes; the second map's windows; the child's windows with pages, and what there is not;
/// after the cut pages one by one.
const SHARES_A_MEMFD: usize = 64 + 3 + (80 / AROUND) + 16 + 32;

#[test]
fn child_attaches_a_segment() {
    // SAFETY: takes numbers only.
    let id = unsafe { libc::shmget(libc::IPC_PRIVATE, PAGES * PAGE, 0o600) };
    assert!(id >= 0);
    let attach = || {
        // SAFETY: the kernel chooses a free place.
        let at = unsafe { libc::shmat(id, std::ptr::null(), 0) };
        assert_ne!(at.addr(), usize::MAX);
        // SAFETY: the segment is that long, readable and writable.
        unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), PAGES * PAGE) }
    };
    let memory = attach();
    // SAFETY: it goes with the last process that has attached it.
    assert_eq!(unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) }, 0);
    write(memory, 0..50);
    forked(|| {
        // Linux maps nothing around a fault in a segment.
        read(memory, 0..60);
        let again = attach();
        read(again, 0..40);
    });
}

const ATTACHES_A_SEGMENT: usize = 50 + 60 + 40;

#[test]
fn child_fills_and_drops_shared_memory() {
    let memory = shared(4, -1, 0);
    let advise = |from: usize, pages: usize, advice| {
        let at = PLACE + (4 << 30) + from * PAGE;
        let at = std::ptr::without_provenance_mut(at);
        // SAFETY: the range is the child's own; dropping what it holds is what the child wants.
        assert_eq!(unsafe { libc::madvise(at, pages * PAGE, advice) }, 0);
    };
    advise(0, 64, libc::MADV_POPULATE_WRITE);
    write(memory, 0..64);
    advise(0, 32, libc::MADV_DONTNEED);
    read(memory, 0..64); // two windows, whose pages the object has
    advise(32, 32, libc::MADV_REMOVE);
    read(memory, 0..64); // pages that it has no longer, one by one
    advise(64, 64, libc::MADV_POPULATE_READ);
    read(memory, 64..128);
    for prot in [libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE] {
        let at = memory.as_mut_ptr().cast();
        // SAFETY: nothing touches the range until it is writable again.
        assert_eq!(unsafe { libc::mprotect(at, memory.len(), prot) }, 0);
    }
    write(memory, 0..128);
    write(memory, 128..PAGES);
}

const FILLS_AND_DROPS: usize = 2 + 32 + PAGES - 128;

/// Records a program, or says why it is skipped.
fn recorded(child: &str, access: AccessWish) -> Option<(Summary, Trace)> {
    let program = std::env::current_exe().unwrap();
    let args = ["--exact", child, "--test-threads=1"];
    let mut options = Options::new(program, args.iter().map(OsString::from));
    options.access = access;
    options.check_pages = true;
    let mut bytes = Vec::new();
    match record(options, &mut bytes) {
        Ok(summary) => Some((summary, Trace::read(&bytes[..], &Budget::default()).unwrap())),
        Err(e) if e.is_forbidden() => {
            eprintln!("skipped: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

/// Faults in areas of the children's size, in any space.
fn faults(trace: &Trace) -> usize {
    let mut ours: Vec<VaRange> = Vec::new();
    let mut count = 0;
    for event in &trace.events {
        match &event.kind {
            EventKind::Map(area) if area.range.pages().get() == PAGES as u64 => {
                ours.push(area.range);
            }
            EventKind::Fault(f) if ours.iter().any(|r| r.contains(f.va)) => count += 1,
            _ => {}
        }
    }
    count
}

fn rows(trace: &Trace, choices: &[Choice]) -> (Plan, Vec<Row>) {
    let plan = Plan::new(&trace.events, &Budget::default()).unwrap();
    let rows = replay_all(&plan, choices, &Settings::default(), |_| ()).unwrap();
    (plan, rows)
}

/// Records a child and replays it: Linux, the naive model and the manager with 4 KiB pages take the
/// same faults.
fn check(child: &str, expect: usize) {
    for access in [AccessWish::Best, AccessWish::Decoded] {
        let Some((summary, trace)) = recorded(child, access) else { return };
        assert_eq!(summary.trailer.ending, Ending::Exited(0), "{child}");
        assert!(summary.trailer.is_complete(), "{:?}", summary.trailer);
        assert_eq!(faults(&trace), expect, "{child}: Linux");
        let told = &summary.replay;
        assert_eq!(told.passed_over, 0, "{child}");
        assert_eq!(told.mismatched, 0, "{child}: {:?}", told.mismatches);
        assert_eq!(told.recorded_shared_faults, expect as u64, "{child}: {told:?}");
        let all = told.recorded_anonymous_faults + told.recorded_shared_faults;
        assert_eq!(told.predicted, all, "{child}");
        let base = Choice::BASE;
        let (plan, rows) = rows(&trace, &[base, Choice::UpTo(Order::new(4).unwrap())]);
        assert_eq!(plan.recorded_shared_faults, expect as u64, "{child}");
        assert_eq!(rows[0].shared_faults, expect as u64, "{child}");
        assert_eq!(rows[0].anonymous_faults, plan.recorded_anonymous_faults, "{child}");
        assert_eq!((rows[0].refused, rows[0].untouched_bytes), (0, 0), "{child}");
        assert!(rows[1].shared_faults < rows[0].shared_faults, "{child}: {rows:?}");
        assert_eq!(rows[1].refused, 0, "{child}");
    }
}

#[test]
fn shared_anonymous_memory_is_replayed_to_the_fault() {
    check("child_shares", SHARES);
}

#[test]
fn a_memfd_is_replayed_to_the_fault() {
    check("child_shares_a_memfd", SHARES_A_MEMFD);
}

#[test]
fn a_segment_is_replayed_to_the_fault() {
    check("child_attaches_a_segment", ATTACHES_A_SEGMENT);
}

#[test]
fn what_is_filled_and_dropped_is_replayed_to_the_fault() {
    check("child_fills_and_drops_shared_memory", FILLS_AND_DROPS);
}

/// A story of one program and its child, told and not recorded.
struct Story(Vec<Event>);

const OBJECT: ObjectId = ObjectId(5);

impl Story {
    fn new() -> Story {
        let (areas, present) = (Vec::new(), Vec::new());
        let exec = Exec { program: "p".into(), brk: Va::new(0x10_0000), areas, present };
        let mut story = Story(Vec::new());
        story.tell(0, EventKind::Exec(exec));
        story
    }
    fn tell(&mut self, who: u32, kind: EventKind) {
        let time_ns = self.0.len() as u64;
        self.0.push(Event { time_ns, thread: ThreadId(who), space: SpaceId(who), kind });
    }
    fn object(&mut self, room: u64, present: Vec<VaRange>) {
        let (object, backing) = (OBJECT, Backing::File);
        self.tell(0, EventKind::Object { object, backing, room, present });
    }
    fn map(&mut self, who: u32, range: VaRange, first: u64) {
        let (prot, kind, flags) = (Prot::RW, AreaKind::FileShared, MapFlags::NONE);
        self.tell(who, EventKind::Map(Area { range, prot, kind, flags }));
        self.tell(who, EventKind::Attach { range, object: OBJECT, first });
    }
    fn fault(&mut self, who: u32, page: u64, access: Access) {
        let (origin, source) = (Origin::User, Source::Hardware);
        let (found, standing) = (Found::Absent, Standing::Regular);
        let va = pages(page, 1).start();
        self.tell(who, EventKind::Fault(Fault { va, access, origin, source, found, standing }));
    }
    /// What the model and the row of 4 KiB pages make of it; both take the same faults.
    fn replayed(&self) -> (Report, Row) {
        let told = naive_replay(&self.0, &Budget::default()).unwrap();
        assert_eq!(told.mismatched, 0, "{told:?}");
        let plan = Plan::new(&self.0, &Budget::default()).unwrap();
        let mut rows = replay_all(&plan, &[Choice::BASE], &Settings::default(), |_| ()).unwrap();
        assert_eq!(rows[0].shared_faults, told.recorded_shared_faults);
        (told, rows.remove(0))
    }
}

/// Pages of a space, or of an object where the first is low.
fn pages(first: u64, count: u64) -> VaRange {
    VaRange::new(Va::new(first * PAGE as u64), Va::new((first + count) * PAGE as u64)).unwrap()
}

#[test]
fn what_calls_wrote_is_there_for_a_read_and_takes_memory() {
    let mut story = Story::new();
    story.object(64, vec![pages(0, 4), pages(30, 9)]);
    story.map(0, pages(1024, 64), 0);
    story.fault(0, 1024 + 7, Access::Read); // brings page 7, and 0 to 3 with it
    story.fault(0, 1024 + 40, Access::Write); // a write brings nothing beside it
    story.fault(0, 1024 + 32, Access::Read); // 32 to 38
    story.fault(0, 1024 + 30, Access::Read); // 30 and 31
    story.fault(0, 1024 + 5, Access::Write);
    let (told, row) = story.replayed();
    assert_eq!((told.recorded_shared_faults, told.passed_over, told.predicted), (5, 0, 5));
    assert_eq!((row.zeroed_bytes, row.untouched_bytes), (16 * PAGE as u64, 0));
    // A page that came with another one's read and is not there was passed over.
    story.fault(0, 1024 + 3, Access::Read);
    assert_eq!(story.replayed().0.passed_over, 1);
    // Nothing lies behind the end.
    story.object(4, vec![]);
    story.fault(0, 1024 + 4, Access::Read);
    assert_eq!(story.replayed().0.refused, 1);
}

#[test]
fn areas_that_move_and_areas_that_are_doubled_map_the_same_memory() {
    let mut story = Story::new();
    story.object(64, vec![]);
    story.map(0, pages(1024, 32), 8);
    (0..32).for_each(|page| story.fault(0, 1024 + page, Access::Write));
    let remap = |old, new| EventKind::Remap { old, new, keep_old: false };
    // The second half again elsewhere, then the whole: its pages come along.
    story.tell(0, remap(pages(1040, 0), pages(4096, 16)));
    story.tell(0, remap(pages(1024, 32), pages(8192, 48)));
    story.fault(0, 4096, Access::Read); // the object has all sixteen
    story.fault(0, 8192 + 32, Access::Write); // the object's page 40, which is new
    let (told, row) = story.replayed();
    assert_eq!((told.recorded_shared_faults, told.passed_over), (34, 0));
    assert_eq!(row.zeroed_bytes, 33 * PAGE as u64, "no page is there twice");
    // Taken out by the one, they are gone for the other.
    story.tell(0, EventKind::Advise { range: pages(8192 + 16, 16), advice: 9 });
    (0..16).for_each(|page| story.fault(0, 4096 + page, Access::Read));
    let (told, row) = story.replayed();
    assert_eq!((told.recorded_shared_faults, told.passed_over), (50, 0));
    assert_eq!(row.zeroed_bytes, 49 * PAGE as u64);
    story.tell(0, EventKind::Punch { object: OBJECT, pages: pages(24, 1) });
    story.fault(0, 4096, Access::Write);
    assert_eq!(story.replayed().0.predicted, 51);
}

#[test]
fn an_objects_memory_goes_with_its_last_map() {
    let mut story = Story::new();
    story.object(64, vec![]);
    story.map(0, pages(1024, 64), 0);
    (0..64).for_each(|page| story.fault(0, 1024 + page, Access::Write));
    story.tell(0, EventKind::Fork { child: SpaceId(1), thread: ThreadId(1) });
    story.fault(1, 1024, Access::Read);
    story.tell(1, EventKind::Exit { last: true });
    story.tell(0, EventKind::Unmap { range: pages(1024, 64) });
    let (told, row) = story.replayed();
    assert_eq!(told.recorded_shared_faults, 65);
    assert_eq!((row.peak.get(), row.zeroed_bytes), (64 * PAGE as u64, 64 * PAGE as u64));
    // Other memory afterwards takes the place of what has gone.
    let (prot, kind, flags) = (Prot::RW, AreaKind::Anonymous, MapFlags::NONE);
    story.tell(0, EventKind::Map(Area { range: pages(1024, 64), prot, kind, flags }));
    (0..64).for_each(|page| story.fault(0, 1024 + page, Access::Write));
    assert_eq!(story.replayed().1.peak.get(), 64 * PAGE as u64);
}

/// A recording of version 2 has the areas and not what they map: it says so.
#[test]
fn shared_memory_without_an_identity_is_only_counted() {
    let mut story = Story::new();
    let (prot, kind, flags) = (Prot::RW, AreaKind::SharedAnonymous, MapFlags::NONE);
    let range = pages(1024, 8);
    story.tell(0, EventKind::Map(Area { range, prot, kind, flags }));
    story.fault(0, 1024, Access::Write);
    let attach = |first| EventKind::Attach { range, object: OBJECT, first };
    story.object(u64::MAX >> 20, vec![]);
    story.tell(0, attach((1 << 35) - 8)); // further than an object can reach
    story.fault(0, 1025, Access::Write);
    let plan = Plan::new(&story.0, &Budget::default()).unwrap();
    assert_eq!((plan.nameless_faults, plan.shared_faults), (2, 2));
    story.tell(0, attach((1 << 35) - 9));
    story.fault(0, 1026, Access::Write);
    assert_eq!(story.replayed().0.recorded_shared_faults, 1);
}

/// A recording can say that an area grows down and maps an object, or that one becomes longer than
/// an object can be, which Linux has not: neither maps what is before an object's start or beyond
/// its end.
#[test]
fn no_area_grows_out_of_its_object() {
    let mut story = Story::new();
    story.object(64, vec![]);
    let (prot, kind, flags) = (Prot::RW, AreaKind::FileShared, MapFlags::GROWSDOWN);
    let range = pages(1024, 8);
    story.tell(0, EventKind::Map(Area { range, prot, kind, flags }));
    story.tell(0, EventKind::Attach { range, object: OBJECT, first: 2 });
    story.fault(0, 1020, Access::Write);
    story.tell(0, EventKind::Populate { range: pages(1016, 16), access: Access::Read });
    let (told, row) = story.replayed();
    assert_eq!((told.recorded_shared_faults, row.zeroed_bytes), (0, 8 * PAGE as u64));
    // As long as addresses go, again and again: in the object one would reach beyond 2^64.
    let most = (1 << 44) - 4096;
    for nth in 0..300 {
        let (at, to) = if nth % 2 == 0 { (1024, 2048) } else { (2048, 1024) };
        let old = if nth == 0 { range } else { pages(at + most - 1, 1) };
        let range = pages(to, most);
        story.tell(0, EventKind::Remap { old, new: range, keep_old: true });
        story.tell(0, EventKind::Populate { range, access: Access::Read });
    }
    assert_eq!(naive_replay(&story.0, &Budget::default()).unwrap().recorded_shared_faults, 0);
    assert_eq!(Plan::new(&story.0, &Budget::default()).unwrap().recorded_shared_faults, 0);
}

/// A recording can say that all addresses map a small object, and that a call fills them: the model
/// goes over what the object has, and not over what lies behind its end, which takes years.
#[test]
fn finding_eo_what_lies_behind_an_object_is_not_gone_over() {
    let mut story = Story::new();
    story.object(64, vec![]);
    let range = pages(1024, (1 << 35) - 4096);
    let (prot, kind, flags) = (Prot::RW, AreaKind::FileShared, MapFlags::NONE);
    story.tell(0, EventKind::Map(Area { range, prot, kind, flags }));
    story.tell(0, EventKind::Attach { range, object: OBJECT, first: 2 });
    story.tell(0, EventKind::Populate { range, access: Access::Read });
    let budget = Budget::default();
    naive_replay(&story.0, &budget).unwrap();
    assert!(budget.worked() > 62, "each page that it has is a step");
}

/// A recording can say that areas are moved to a place that overlaps their own and stay as well,
/// which Linux refuses: one address is still in one area.
#[test]
fn what_moves_onto_itself_and_stays_is_one_area_at_each_address() {
    let mut story = Story::new();
    story.object(64, vec![]);
    let own = Area {
        range: pages(1024, 6),
        prot: Prot::RW,
        kind: AreaKind::Anonymous,
        flags: MapFlags::NONE,
    };
    story.tell(0, EventKind::Map(own));
    story.map(0, pages(1030, 4), 0);
    let (old, new) = (pages(1024, 10), pages(1027, 10));
    story.tell(0, EventKind::Remap { old, new, keep_old: true });
    // At 1031 there was shared memory, and private memory has moved over it.
    story.tell(0, EventKind::Populate { range: pages(1027, 6), access: Access::Write });
    story.fault(0, 1031, Access::Write);
    story.tell(0, EventKind::Fork { child: SpaceId(1), thread: ThreadId(1) });
    let told = naive_replay(&story.0, &Budget::default()).unwrap();
    let faults = (told.recorded_anonymous_faults, told.recorded_shared_faults, told.mismatched);
    assert_eq!(faults, (1, 0, 1), "the page was there");
}

/// Where only the switches of anonymous memory are asked about, a plan counts such faults with
/// those of files.
#[test]
fn shared_memory_can_be_left_out() {
    let Some((_, trace)) = recorded("child_shares", AccessWish::Best) else { return };
    let (replayed, _) = rows(&trace, &[]);
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &trace.header).unwrap();
    trace.events.iter().for_each(|event| writer.event(event).unwrap());
    let trailer = &trace.trailer;
    writer.finish(trailer.ending, trailer.lost, trailer.remarks.clone()).unwrap();
    let (_, plan) = Plan::read(&bytes[..], Shared::Counted, &Budget::default()).unwrap();
    assert_eq!(plan.recorded_shared_faults, 0);
    assert_eq!(plan.shared_faults, replayed.shared_faults + SHARES as u64);
    assert_eq!(plan.other_faults(), replayed.other_faults() + SHARES as u64);
    let rows = replay_all(&plan, &[Choice::BASE], &Settings::default(), |_| ()).unwrap();
    assert_eq!(rows[0].shared_faults, 0);
    assert_eq!(rows[0].anonymous_faults, replayed.recorded_anonymous_faults);
}
