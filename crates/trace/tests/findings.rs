//! What outsiders proved about recordings: small files that took all memory or all time, and sums
//! that ran over.
//!
//! Every file is made here, with the crate's own writer: each is small and obeys all rules of a
//! trace. An allocator that counts says what opening it takes.
#![allow(unsafe_code)]

use foliant_trace::event::advice;
use foliant_trace::replay::{
    Choice, Percent, Plan, PlanError, ReplayError, Settings, Shared, replay_all,
};
use foliant_trace::*;
use foliant_units::{Bytes, FRAME_BYTES, Order, Va, VaRange};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The system's allocator, with the sum of what is allocated and the highest that it was.
struct Counting;

static NOW: AtomicU64 = AtomicU64::new(0);
static PEAK: AtomicU64 = AtomicU64::new(0);

fn more(bytes: usize) {
    let now = NOW.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
    PEAK.fetch_max(now, Ordering::Relaxed);
}

fn less(bytes: usize) {
    NOW.fetch_sub(bytes as u64, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        more(layout.size());
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        less(layout.size());
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        more(size); // the old one and the new one are there at once
        less(layout.size());
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The allocator counts for the whole process, so one test at a time measures.
static ALONE: Mutex<()> = Mutex::new(());

/// What `work` gives, and the most that was allocated meanwhile on top of what there was before.
fn measured<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let done = work();
    (done, PEAK.load(Ordering::Relaxed) - before)
}

const MB: u64 = 1 << 20;
/// What the tests give. A reader needs 8 MiB of it for one block.
const SMALL: Bytes = Bytes::new(32 * MB);

fn range(start: u64, bytes: u64) -> VaRange {
    VaRange::sized(Va::new(start), Bytes::new(bytes)).unwrap()
}

fn area(start: u64, bytes: u64) -> Area {
    let range = range(start, bytes);
    Area { range, prot: Prot::RW, kind: AreaKind::Anonymous, flags: MapFlags::NONE }
}

fn header(command: Vec<String>) -> Header {
    Header {
        command,
        kernel: "k".into(),
        processor: "p".into(),
        cpus: 1,
        page_bytes: 4096,
        unix_seconds: 0,
        access_source: AccessSource::Decoded,
        kernel_faults: true,
        recorder: "r".into(),
    }
}

/// A file in the making. Thread 0 runs in space 0.
struct File {
    writer: Writer<Vec<u8>>,
}

impl File {
    fn new() -> File {
        let writer = Writer::new(Vec::new(), &header(vec!["x".into()])).unwrap();
        File { writer }.then(0, 0, exec("/bin/x"))
    }
    fn then(mut self, thread: u32, space: u32, kind: EventKind) -> File {
        let (thread, space) = (ThreadId(thread), SpaceId(space));
        self.writer.event(&Event { time_ns: 0, thread, space, kind }).unwrap();
        self
    }
    fn each(self, count: u64, kind: impl Fn(u64) -> EventKind) -> File {
        (0..count).fold(self, |file, n| file.then(0, 0, kind(n)))
    }
    /// Children of the first process, all alive.
    fn forks(self, count: u32) -> File {
        self.each(count.into(), |n| {
            let number = n as u32 + 1;
            EventKind::Fork { child: SpaceId(number), thread: ThreadId(number) }
        })
    }
    fn ends(self, remarks: Vec<String>) -> Vec<u8> {
        self.writer.finish(Ending::Exited(0), 0, remarks).unwrap().1
    }
    fn end(self) -> Vec<u8> {
        self.ends(Vec::new())
    }
}

fn exec(program: &str) -> EventKind {
    let (areas, present) = (Vec::new(), Vec::new());
    EventKind::Exec(Exec { program: program.into(), brk: Va::new(MB), areas, present })
}

fn write(va: u64) -> EventKind {
    EventKind::Fault(Fault {
        va: Va::new(va),
        access: Access::Write,
        origin: Origin::User,
        source: Source::Hardware,
        found: Found::Absent,
        standing: Standing::Regular,
    })
}

const T: u64 = 1 << 40;

/// Areas with holes between them.
fn islands(file: File, count: u64) -> File {
    file.each(count, |n| EventKind::Map(area(T + 2 * n * FRAME_BYTES, FRAME_BYTES)))
}

fn fill(start: u64, bytes: u64, access: Access) -> EventKind {
    EventKind::Populate { range: range(start, bytes), access }
}

/// Reads, describes and explains a file, as `foliant trace` does.
fn told(bytes: &[u8], budget: &Budget) -> Result<(Description, Report), TraceError> {
    let mut reader = Reader::new(bytes, budget)?;
    let (mut describer, mut naive) = (Describer::new(budget), Naive::new(budget));
    for event in reader.by_ref() {
        let event = event?;
        describer.add(&event)?;
        naive.add(&event)?;
    }
    reader.finish()?;
    Ok((describer.finish(), naive.finish()))
}

fn spent_of<T>(done: Result<T, TraceError>) -> Option<Thing> {
    match done {
        Ok(_) => None,
        Err(TraceError::Spent(spent)) => Some(spent.thing),
        Err(other) => panic!("{other}"),
    }
}

fn planned(bytes: &[u8], budget: &Budget) -> Option<Thing> {
    match Plan::read(bytes, Shared::Replayed, budget) {
        Ok(_) => None,
        Err(PlanError::Spent(spent)) => Some(spent.thing),
        Err(other) => panic!("{other}"),
    }
}

/// A hostile file, what it runs out of where it is told, and where it is planned.
type Hostile = (&'static str, Vec<u8>, Option<Thing>, Option<Thing>);

fn hostile() -> Vec<Hostile> {
    use Thing::*;
    let dense = |file: File| file.then(0, 0, EventKind::Map(area(0, 1 << 46)));
    let filled = |bytes| dense(File::new()).then(0, 0, fill(0, bytes, Access::Write));
    let moved = EventKind::Remap {
        old: range(0, 700 * MB),
        new: range(1 << 46, 700 * MB),
        keep_old: false,
    };
    let turns = |n: u64| EventKind::Protect {
        range: range(T, 1 << 30),
        prot: if n.is_multiple_of(2) { Prot::READ } else { Prot::RW },
    };
    let exit = |file: File, n: u32| file.then(n, n, EventKind::Exit { last: true });
    let dies = (1..120_000).fold(File::new(), |file, n| {
        let fork = EventKind::Fork { child: SpaceId(n), thread: ThreadId(n) };
        exit(file.then(0, 0, fork), n)
    });
    let long = "a".repeat(3_700_000);
    let named = (1..40).fold(File::new(), |file, n| file.then(0, n, exec(&long)));
    let threads = (1..200_000).fold(File::new(), |file, n| {
        file.then(0, 0, EventKind::Share { thread: ThreadId(n), process: false })
    });
    let off = EventKind::ThpPrctl { args: [0, 0] };
    let advised =
        |n: u32| EventKind::Advise { range: range(0, 1u64 << n), advice: advice::POPULATE_READ };
    let collapse = |_| EventKind::Advise { range: range(0, 64 * MB), advice: advice::COLLAPSE };
    vec![
        ("one fill of 64 TiB", filled(1 << 46).end(), Some(Pages), Some(Pages)),
        (
            "advice to fill",
            dense(File::new()).then(0, 0, advised(46)).end(),
            Some(Pages),
            Some(Pages),
        ),
        ("collapsed again and again", filled(MB).each(3000, collapse).end(), None, Some(Work)),
        ("filled, then forked", filled(64 * MB).forks(4000).end(), Some(Pages), Some(Pages)),
        ("filled, then moved", filled(700 * MB).then(0, 0, moved).end(), Some(Pages), Some(Pages)),
        (
            "areas, then forks",
            islands(File::new(), 20_000).forks(4000).end(),
            Some(Areas),
            Some(Areas),
        ),
        (
            "areas, then rights",
            islands(File::new(), 20_000).each(2000, turns).end(),
            Some(Work),
            Some(Steps),
        ),
        ("processes that end", dies.end(), Some(Spaces), Some(Steps)),
        ("processes that stay", File::new().forks(100_000).end(), Some(Spaces), Some(Spaces)),
        ("threads", threads.end(), Some(Spaces), Some(Steps)),
        ("long names", named.end(), Some(Blocks), Some(Blocks)),
        ("events", File::new().each(1_000_000, |_| off.clone()).end(), None, Some(Steps)),
    ]
}

/// Small recordings took 2 to 7 GB, half a minute, or the process with them.
#[test]
fn finding_x1_a_small_file_takes_no_more_than_its_budget() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    for (what, bytes, when_told, when_planned) in hostile() {
        assert!(bytes.len() < 1 << 20, "{what}: {} bytes", bytes.len());
        let budget = Budget::of(SMALL);
        let (spent, peak) = measured(|| spent_of(told(&bytes, &budget)));
        assert_eq!(spent, when_told, "{what}: told");
        assert!(peak < SMALL.get(), "{what}: told with {peak} bytes");
        assert_eq!(budget.held(), Bytes::new(0), "{what}: all is given back");
        let budget = Budget::of(SMALL);
        let (spent, peak) = measured(|| planned(&bytes, &budget));
        assert_eq!(spent, when_planned, "{what}: planned");
        assert!(peak < SMALL.get(), "{what}: planned with {peak} bytes");
        // Wherever it is stopped, what is drawn is at least what is allocated.
        for size in [9, 13, 19].map(|n| Bytes::new(n * MB)) {
            let (_, peak) = measured(|| spent_of(told(&bytes, &Budget::of(size))));
            assert!(peak < size.get(), "{what}: told with {peak} bytes of {size}");
            let (_, peak) = measured(|| planned(&bytes, &Budget::of(size)));
            assert!(peak < size.get(), "{what}: planned with {peak} bytes of {size}");
            let (_, peak) = measured(|| spent_of(Trace::read(&bytes[..], &Budget::of(size))));
            assert!(peak < size.get(), "{what}: held with {peak} bytes of {size}");
        }
    }
}

/// The texts at both ends of a file: a word for each byte.
#[test]
fn finding_x1_words_without_end_are_drawn_too() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let words = vec![String::new(); 1_200_000];
    let written = Writer::new(Vec::new(), &header(words.clone())).unwrap();
    let begins = written.finish(Ending::Exited(0), 0, Vec::new()).unwrap().1;
    let ends = File::new().ends(words);
    for bytes in [begins, ends] {
        let budget = Budget::of(SMALL);
        let (spent, peak) = measured(|| spent_of(told(&bytes, &budget)));
        assert!(matches!(spent, Some(Thing::Names | Thing::Blocks)), "{spent:?}");
        assert!(peak < SMALL.get(), "{peak}");
        let budget = Budget::default();
        let (spent, peak) = measured(|| spent_of(told(&bytes, &budget)));
        assert_eq!(spent, None);
        assert!(peak < budget.size().get() / 4, "{peak}");
    }
}

/// Events are looked at and not kept.
#[test]
fn finding_x1_a_long_recording_is_told_as_a_stream() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let story = File::new().then(0, 0, EventKind::Map(area(T, MB)));
    let bytes = story.each(1_000_000, |n| write(T + n % 256 * FRAME_BYTES)).end();
    let budget = Budget::of(SMALL);
    let (told, peak) = measured(|| told(&bytes, &budget).unwrap());
    assert_eq!(told.0.events, 1_000_002);
    assert!(peak < 4 * MB, "{peak} bytes for a million events");
    assert_eq!(planned(&bytes, &Budget::of(SMALL)), Some(Thing::Steps));
    assert_eq!(planned(&bytes, &Budget::default()), None, "a larger budget is the way out");
}

/// A page in each of many blocks of 2 MiB: little for the plan, much for the machine that replays
/// it.
#[test]
fn finding_x1_a_replay_draws_its_machine_and_its_work() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let map = |file: File| file.then(0, 0, EventKind::Map(area(0, 1 << 46)));
    let settings = Settings::default();
    let refused = |bytes: &[u8], budget: Budget, settings: &Settings| {
        let plan = Plan::read(bytes, Shared::Replayed, &budget).unwrap().1;
        match replay_all(&plan, &[Choice::BASE, Choice::Only(Order::SIZE_2M)], settings, |_| ()) {
            Ok(_) => None,
            Err(ReplayError::Spent(spent)) => Some(spent.thing),
            Err(other) => panic!("{other}"),
        }
    };
    let sparse = map(File::new()).each(20_000, |n| write(n << 21)).end();
    assert_eq!(refused(&sparse, Budget::of(SMALL), &settings), Some(Thing::Machines));
    // A machine of 8 GiB is described before it starts.
    let few = map(File::new()).each(20, |n| write(n << 21)).end();
    let memory = Some(Bytes::new(8 << 30));
    let large = Settings { memory, fragmented: Percent::default(), ..Settings::default() };
    assert_eq!(refused(&few, Budget::of(SMALL), &large), Some(Thing::Machines));
    assert_eq!(refused(&few, Budget::of(SMALL), &settings), None);
    // Memory is dropped and filled again, over and over.
    let both = |n: u64| match n % 2 {
        0 => EventKind::Advise { range: range(0, 128 * MB), advice: advice::DONTNEED },
        _ => EventKind::Advise { range: range(0, 128 * MB), advice: advice::POPULATE_WRITE },
    };
    let turns = map(File::new()).each(300, both).end();
    assert_eq!(refused(&turns, Budget::of(SMALL), &settings), Some(Thing::Work));
}

/// 300 spaces of 64 PiB each are more bytes than a number has room for.
#[test]
fn finding_x12_sums_of_mapped_memory_do_not_run_over() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let whole = File::new().then(0, 0, EventKind::Map(area(0, 1 << 56)));
    let bytes = whole.forks(300).end();
    let (description, _) = told(&bytes, &Budget::default()).unwrap();
    assert_eq!(description.peak_mapped, Bytes::new(u64::MAX), "as much as a number can say");
    let less = File::new().then(0, 0, EventKind::Map(area(0, 1 << 56))).forks(3).end();
    assert_eq!(told(&less, &Budget::default()).unwrap().0.peak_mapped, Bytes::new(4 << 56));
    let plan = Plan::read(&bytes[..], Shared::Replayed, &Budget::default()).unwrap().1;
    assert_eq!(plan.recorded_faults, 0);
}

/// Siblings: a special area that grows down, times that fall, and ranges at the end of all
/// addresses, as whoever calls the library may hand them over.
#[test]
fn finding_x12_no_event_makes_a_sum_run_under() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let at = |time_ns, kind| Event { time_ns, thread: ThreadId(0), space: SpaceId(0), kind };
    let grows = MapFlags::GROWSDOWN;
    let special = Area { kind: AreaKind::Special, flags: grows, ..area(T, 4096) };
    let plain = Area { flags: grows, ..area(2 * T, 4096) };
    let top = VaRange::new(Va::new(0), Va::new(!0xfff)).unwrap();
    let events = [
        at(9, exec("p")),
        at(8, EventKind::Map(special)),
        at(7, EventKind::Map(plain)),
        at(6, write(8192)),
        at(5, write(T + 8192)),
        at(4, write(u64::MAX)),
        at(3, EventKind::Unmap { range: top }),
        at(2, EventKind::Map(area(T, 4096))),
        at(1, EventKind::Populate { range: top, access: Access::Write }),
        at(0, EventKind::Exit { last: true }),
    ];
    let budget = Budget::default();
    let description = describe(&events, &budget).unwrap();
    assert_eq!(description.span_ns, 0);
    assert_eq!(
        description.peak_mapped,
        Bytes::new(T - 4096),
        "the special area counts for nothing"
    );
    naive_replay(&events, &budget).unwrap();
    Plan::new(&events, &budget).unwrap();
}
