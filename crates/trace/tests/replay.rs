//! Replays of small traces made by hand, and of the shipped recordings.

use foliant::fault::Defrag;
use foliant_sim::Work;
use foliant_trace::event::advice;
use foliant_trace::replay::{
    Choice, MOMENTS, MappedRun, Percent, Plan, ReplayError, Row, Settings, Sight, replay,
    replay_all, sights_at,
};
use foliant_trace::{
    Access, Area, AreaKind, Budget, Event, EventKind, Exec, Fault, Found, MapFlags, Origin, Prot,
    Source, SpaceId, Standing, ThreadId, Trace,
};
use foliant_units::{Bytes, FRAME_BYTES, Order, Va, VaRange};

const BASE: u64 = 0x7f00_0000_0000;
const MB: u64 = 1 << 20;

/// Events in the making: one thread and one space unless said otherwise.
#[derive(Default)]
struct Story {
    events: Vec<Event>,
}

impl Story {
    fn tell(mut self, thread: u32, space: u32, kind: EventKind) -> Story {
        let time_ns = self.events.len() as u64 * 1000;
        let (thread, space) = (ThreadId(thread), SpaceId(space));
        self.events.push(Event { time_ns, thread, space, kind });
        self
    }
    fn start(areas: &[Area]) -> Story {
        let exec = Exec {
            program: "/bin/by-hand".into(),
            brk: Va::new(0x1000_0000),
            areas: areas.to_vec(),
            present: Vec::new(),
        };
        Story::default().tell(0, 0, EventKind::Exec(exec))
    }
    fn fault(self, who: (u32, u32), va: u64, access: Access, standing: Standing) -> Story {
        let (origin, source, found) = (Origin::User, Source::Hardware, Found::Unknown);
        let fault = Fault { va: Va::new(va), access, origin, source, found, standing };
        self.tell(who.0, who.1, EventKind::Fault(fault))
    }
    fn write(self, who: (u32, u32), va: u64) -> Story {
        self.fault(who, va, Access::Write, Standing::Regular)
    }
    fn write_all(mut self, who: (u32, u32), start: u64, bytes: u64) -> Story {
        for page in 0..bytes / FRAME_BYTES {
            self = self.write(who, start + page * FRAME_BYTES + 8);
        }
        self
    }
    fn row(&self, choice: Choice) -> Row {
        let plan = Plan::new(&self.events, &Budget::default()).unwrap();
        replay(&plan, choice, &Settings::default(), |_| ()).unwrap()
    }
}

fn area(start: u64, bytes: u64) -> Area {
    let range = VaRange::sized(Va::new(start), Bytes::new(bytes)).unwrap();
    Area { range, prot: Prot::RW, kind: AreaKind::Anonymous, flags: MapFlags::NONE }
}

fn up_to(size: &str) -> Choice {
    let name = if size == "4k" { size.to_owned() } else { format!("up-to-{size}") };
    Choice::parse(&name).unwrap()
}

const MAIN: (u32, u32) = (0, 0);

#[test]
fn sequential_memory_takes_one_fault_per_folio() {
    let story = Story::start(&[area(BASE, MB)]).write_all(MAIN, BASE, MB);
    for (name, faults, order) in [("4k", 256, 0), ("16k", 64, 2), ("64k", 16, 4), ("1m", 1, 8)] {
        let row = story.row(up_to(name));
        assert_eq!(row.anonymous_faults, faults, "{name}");
        assert_eq!(row.zeroed_bytes, MB, "{name}");
        assert_eq!(row.untouched_bytes, 0, "{name}");
        assert_eq!(row.peak, Bytes::new(MB), "{name}");
        assert_eq!(row.leaves, 256, "{name}");
        let folios: Vec<_> = row.folios.into_iter().collect();
        assert_eq!(folios, [(Order::new(order).unwrap(), faults)], "{name}");
    }
}

#[test]
fn what_is_cleared_and_never_used_is_counted() {
    let story = Story::start(&[area(BASE, MB)]).write(MAIN, BASE).write(MAIN, BASE + 0x3000);
    let row = story.row(up_to("64k"));
    assert_eq!((row.anonymous_faults, row.untouched_bytes), (1, 14 * FRAME_BYTES));
    let row = story.row(up_to("4k"));
    assert_eq!((row.anonymous_faults, row.untouched_bytes), (2, 0));
}

#[test]
fn a_read_takes_no_memory_and_the_write_after_it_does() {
    let story = Story::start(&[area(BASE, MB)])
        .fault(MAIN, BASE, Access::Read, Standing::Regular)
        .write(MAIN, BASE);
    let row = story.row(up_to("4k"));
    assert_eq!((row.anonymous_faults, row.zeroed_bytes, row.untouched_bytes), (2, FRAME_BYTES, 0));
}

#[test]
fn a_fork_shares_pages_until_they_are_written() {
    let fork = EventKind::Fork { child: SpaceId(1), thread: ThreadId(1) };
    let story = Story::start(&[area(BASE, MB)])
        .write_all(MAIN, BASE, 64 << 10)
        .tell(0, 0, fork)
        .write((1, 1), BASE)
        .write(MAIN, BASE)
        .tell(1, 1, EventKind::Exit { last: true })
        .tell(0, 0, EventKind::Exit { last: true });
    let plan = Plan::new(&story.events, &Budget::default()).unwrap();
    assert_eq!(plan.recorded_anonymous_faults, 18);
    let base = story.row(up_to("4k"));
    assert_eq!(
        (base.anonymous_faults, base.copied_pages),
        (18, 1),
        "the parent's page was its own by then"
    );
    assert_eq!(base.peak, Bytes::new(17 * FRAME_BYTES));
    assert_eq!(base.peak_mapped, Bytes::new(32 * FRAME_BYTES));
    let large = story.row(up_to("64k"));
    assert_eq!(large.anonymous_faults, 3);
    assert!(large.kernel < base.kernel);
}

#[test]
fn a_lost_race_is_lost_again_only_where_it_takes_place() {
    let thread = EventKind::Share { thread: ThreadId(1), process: false };
    let story = Story::start(&[area(BASE, MB)])
        .tell(0, 0, thread)
        .write(MAIN, BASE)
        .fault((1, 0), BASE, Access::Write, Standing::Raced)
        .write(MAIN, BASE + 0x1000)
        .fault((1, 0), BASE + 0x1000, Access::Write, Standing::Raced);
    assert_eq!(story.row(up_to("4k")).anonymous_faults, 4);
    assert_eq!(
        story.row(up_to("64k")).anonymous_faults,
        2,
        "the second race is none: the page is there"
    );
}

#[test]
fn wishes_of_the_program_are_honoured() {
    let advice = foliant_trace::event::advice::NOHUGEPAGE;
    let range = area(BASE, MB).range;
    let story = Story::start(&[area(BASE, MB)])
        .tell(0, 0, EventKind::Advise { range, advice })
        .write_all(MAIN, BASE, 64 << 10);
    assert_eq!(story.row(up_to("64k")).anonymous_faults, 16);
    let off = EventKind::ThpPrctl { args: [1, 0] };
    let story = Story::start(&[area(BASE, MB)]).tell(0, 0, off).write_all(MAIN, BASE, 64 << 10);
    assert_eq!(story.row(up_to("64k")).anonymous_faults, 16);
    let stack = Area { flags: MapFlags::STACK, ..area(BASE, MB) };
    let story = Story::start(&[stack]).write_all(MAIN, BASE, 64 << 10);
    assert_eq!(story.row(up_to("64k")).anonymous_faults, 16, "MAP_STACK");
}

#[test]
fn changes_of_areas_take_their_pages_along() {
    let (range, far) = (area(BASE, MB).range, area(BASE + 4 * MB, MB).range);
    let part = area(BASE + 4 * MB, MB / 2).range;
    let story = Story::start(&[area(BASE, MB)])
        .write_all(MAIN, BASE, MB)
        .tell(0, 0, EventKind::Remap { old: range, new: far, keep_old: false })
        .tell(0, 0, EventKind::Protect { range: part, prot: Prot::READ })
        .tell(0, 0, EventKind::Protect { range: part, prot: Prot::RW })
        .tell(0, 0, EventKind::Unmap { range: part })
        .tell(0, 0, EventKind::Map(area(BASE + 4 * MB, MB / 2)))
        .write_all(MAIN, BASE + 4 * MB, MB / 2);
    for (name, faults) in [("4k", 256 + 128), ("64k", 16 + 8), ("2m", 1 + 1)] {
        let row = story.row(up_to(name));
        assert_eq!((row.anonymous_faults, row.refused), (faults, 0), "{name}");
    }
}

/// Two areas of 24 pages that Linux has as two once both were written, though nothing else parts
/// them: no folio of 64 KiB lies over their edge, which is in its middle.
#[test]
fn areas_that_only_look_like_one_stay_two() {
    let (part, page) = (24 * FRAME_BYTES, |n: u64| BASE + n * FRAME_BYTES);
    let story = |also: Option<u64>| {
        let range = VaRange::sized(Va::new(BASE), Bytes::new(part)).unwrap();
        let advise = |advice| EventKind::Advise { range, advice };
        let mut story = Story::start(&[area(BASE, 2 * part)])
            .tell(0, 0, advise(advice::DONTFORK))
            .write(MAIN, page(0));
        if let Some(other) = also {
            story = story.write(MAIN, page(other));
        }
        story = story.tell(0, 0, advise(advice::DOFORK));
        for n in (1..48).filter(|n| Some(*n) != also) {
            story = story.write(MAIN, page(n));
        }
        story
    };
    let only_64k = Choice::parse("only-64k").unwrap();
    assert_eq!(story(None).row(only_64k).anonymous_faults, 3);
    assert_eq!(story(Some(40)).row(only_64k).anonymous_faults, 2 + 16);
    let base = Choice::BASE;
    assert_eq!(story(Some(40)).row(base).anonymous_faults, 48);
}

#[test]
fn little_memory_is_an_error_that_names_it() {
    let story = Story::start(&[area(BASE, 64 * MB)]).write_all(MAIN, BASE, 32 * MB);
    let plan = Plan::new(&story.events, &Budget::default()).unwrap();
    let settings = Settings { memory: Some(Bytes::new(16 * MB)), ..Settings::default() };
    let error = replay(&plan, up_to("64k"), &settings, |_| ()).unwrap_err();
    assert!(matches!(error, ReplayError::OutOfMemory { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("16m") && text.contains("--memory"), "{text}");
}

#[test]
fn fragmented_memory_makes_large_folios_fall_back_unless_it_is_compacted() {
    let story = Story::start(&[area(BASE, 32 * MB)]).write_all(MAIN, BASE, 32 * MB);
    let plan = Plan::new(&story.events, &Budget::default()).unwrap();
    let run = |percent, defrag| {
        let fragmented = Percent::new(percent).unwrap();
        let settings = Settings { fragmented, defrag, ..Settings::default() };
        replay(&plan, up_to("2m"), &settings, |_| ()).unwrap()
    };
    let (whole, broken) = (run(0, Defrag::Never), run(100, Defrag::Never));
    assert_eq!((whole.fallbacks, whole.folios[&Order::SIZE_2M]), (0, 16));
    assert!(broken.fallbacks > 0, "{broken:?}");
    assert!(broken.folios.get(&Order::SIZE_2M).is_none_or(|folios| *folios <= 2), "{broken:?}");
    assert_eq!(broken, run(100, Defrag::Never), "the same memory is in use each time");
    let compacted = run(100, Defrag::Always);
    assert_eq!((compacted.fallbacks, compacted.folios[&Order::SIZE_2M]), (0, 16), "{compacted:?}");
    assert_eq!(compacted.peak, whole.peak, "the other program's pages are not counted");
}

fn shipped(name: &str) -> Plan {
    let path = format!("{}/../../traces/{name}.trace", env!("CARGO_MANIFEST_DIR"));
    let trace = Trace::open(&path, &Budget::default()).unwrap();
    Plan::new(&trace.events, &Budget::default()).unwrap()
}

#[test]
fn fragmented_memory_makes_shipped_recordings_fall_back_or_pay_for_moves() {
    for name in ["cc", "python", "sort"] {
        let plan = shipped(name);
        let run = |percent, defrag| {
            let fragmented = Percent::new(percent).unwrap();
            let settings = Settings { fragmented, defrag, ..Settings::default() };
            let rows =
                replay_all(&plan, &[Choice::BASE, up_to("1m"), up_to("2m")], &settings, |_| ());
            (settings.memory_for(&plan), rows.unwrap())
        };
        let (memory, whole) = run(0, Defrag::Always);
        let usual = Settings::default();
        assert_eq!(memory, usual.memory_for(&plan));
        for row in &whole {
            assert_eq!((row.fallbacks, row.moved_pages, row.compaction.0), (0, 0, 0), "{name}");
        }
        let (_, steps_down) = run(80, Defrag::Never);
        let (tight, moves) = run(80, Defrag::Always);
        assert!(tight < memory, "{name}: {tight}, {memory}");
        for (at, row) in moves.iter().enumerate() {
            let (never, whole) = (&steps_down[at], &whole[at]);
            assert_eq!((never.moved_pages, never.compaction.0), (0, 0), "{name} {}", row.choice);
            if row.choice == Choice::BASE {
                // There is nothing to look for. Pages that lie scattered are freed one by one,
                // those side by side at once: at most that is paid more. A nanosecond is rounding.
                let free = usual.model.nanos(Work::Free, row.anonymous_faults).ceil() as u64;
                let alike = (whole.kernel.0 - 1)..=(whole.kernel.0 + free + 1);
                for row in [row, never] {
                    assert!(alike.contains(&row.kernel.0), "{name}: {row:?}, {alike:?}");
                }
                continue;
            }
            assert!(never.fallbacks > 100, "{name}: {never:?}");
            assert!(never.anonymous_faults > whole.anonymous_faults, "{name}: {never:?}");
            assert!(row.fallbacks < never.fallbacks, "{name}: {row:?}");
            assert!(row.moved_pages > 100 && row.kernel > whole.kernel, "{name}: {row:?}");
            // Most of what is more is compaction, and a page takes about what it was measured to.
            let more = (row.kernel.0 - whole.kernel.0) as f64;
            assert!(row.compaction.0 as f64 > 0.8 * more, "{name}, {more} more: {row:?}");
            let page = row.compaction.0 as f64 / row.moved_pages as f64;
            assert!((1500.0..2700.0).contains(&page), "{name}: {page} ns a page: {row:?}");
        }
    }
}

/// Memory is sized to the need there: it must be enough whatever is tried, and left alone.
#[test]
fn fragmented_memory_is_enough_for_shipped_recordings() {
    let choices = [Choice::BASE, up_to("64k"), up_to("2m"), Choice::Only(Order::SIZE_2M)];
    for name in ["cc", "git", "python", "sort"] {
        let plan = shipped(name);
        for defrag in [Defrag::Always, Defrag::Defer, Defrag::Never] {
            for percent in [1, 100] {
                let fragmented = Percent::new(percent).unwrap();
                let settings = Settings { fragmented, defrag, ..Settings::default() };
                let rows = replay_all(&plan, &choices, &settings, |_| ());
                let rows = rows.unwrap_or_else(|e| panic!("{name}, {percent} %, {defrag}: {e}"));
                assert_eq!(rows[0].anonymous_faults, plan.recorded_anonymous_faults, "{name}");
                assert!(rows.iter().all(|row| row.refused == 0), "{name}");
            }
        }
    }
}

/// What faults wished for is done between them, by no fault.
#[test]
fn put_off_compaction_is_done_in_the_background() {
    let plan = shipped("cc");
    let run = |defrag| {
        let fragmented = Percent::new(80).unwrap();
        let settings = Settings { fragmented, defrag, ..Settings::default() };
        replay(&plan, up_to("2m"), &settings, |_| ()).unwrap()
    };
    let (never, later) = (run(Defrag::Never), run(Defrag::Defer));
    assert!(later.moved_pages > 0 && later.fallbacks < never.fallbacks, "{later:?}");
    assert!(later.fallbacks > 0, "the fault itself did not wait: {later:?}");
}

#[test]
fn shipped_recordings_take_exactly_the_recorded_faults_with_4k_pages() {
    for name in ["cc", "git", "python", "sort"] {
        let path = format!("{}/../../traces/{name}.trace", env!("CARGO_MANIFEST_DIR"));
        let trace = Trace::open(&path, &Budget::default()).unwrap();
        let plan = Plan::new(&trace.events, &Budget::default()).unwrap();
        assert_eq!(plan.recorded_faults, trace.trailer.faults, "{name}");
        let choices = [Choice::BASE, up_to("64k"), Choice::Only(Order::SIZE_2M)];
        let rows = replay_all(&plan, &choices, &Settings::default(), |_| ()).unwrap();
        assert_eq!(rows[0].anonymous_faults, plan.recorded_anonymous_faults, "{name}");
        assert_eq!(rows[0].untouched_bytes, 0, "{name}");
        for row in &rows {
            assert_eq!(row.refused, 0, "{name} {}", row.choice);
            assert!(row.anonymous_faults <= plan.recorded_anonymous_faults);
        }
        assert!(rows[1].kernel_ratio(&rows[0]) < 0.58, "{name}: the reference falls by 42 %");
    }
}

/// Pages 0 to 3 of a first area are written, one of a second is read, and the first is unmapped.
fn two_areas() -> Story {
    Story::start(&[area(BASE, MB), area(BASE + 4 * MB, MB)])
        .write_all(MAIN, BASE, 4 * FRAME_BYTES)
        .fault(MAIN, BASE + 4 * MB, Access::Read, Standing::Regular)
        .tell(0, 0, EventKind::Unmap { range: area(BASE, MB).range })
        .write(MAIN, BASE + 5 * MB - FRAME_BYTES)
        .tell(0, 0, EventKind::Exit { last: true })
}

#[test]
fn sights_are_what_is_mapped_after_a_step() {
    let plan = Plan::new(&two_areas().events, &Budget::default()).unwrap();
    let (settings, base) = (Settings::default(), up_to("4k"));
    let row = replay(&plan, base, &settings, |_| ()).unwrap();
    let look = |step, choice| sights_at(&plan, step, choice, &settings).unwrap().list;
    let run = |start, bytes, folio: Option<u8>| MappedRun {
        range: VaRange::sized(Va::new(start), Bytes::new(bytes)).unwrap(),
        folio: folio.and_then(Order::new),
    };
    let sight = |start, runs| Sight {
        space: SpaceId(0),
        range: area(start, MB).range,
        kind: AreaKind::Anonymous,
        runs,
    };
    // At the peak four pages are there, and the zero page is not yet.
    let first = sight(BASE, vec![run(BASE, 4 * FRAME_BYTES, Some(0))]);
    assert_eq!(look(row.peak_step, base), [first, sight(BASE + 4 * MB, vec![])]);
    assert_eq!(row.peak, Bytes::new(4 * FRAME_BYTES));
    let held: u64 = look(row.peak_step, base).iter().map(|sight| sight.held().get()).sum();
    assert_eq!(held, row.peak.get());
    let large = sight(BASE, vec![run(BASE, 64 << 10, Some(4))]);
    assert_eq!(look(row.peak_step, up_to("64k")), [large.clone(), sight(BASE + 4 * MB, vec![])]);
    // One step later the second area has zeros, which are held in no folio.
    let later = look(row.peak_step + 1, base);
    assert_eq!(later[1].runs, [run(BASE + 4 * MB, FRAME_BYTES, None)]);
    assert_eq!((later[1].held(), later[0].held()), (Bytes::new(0), row.peak));
    // After the last step nothing is there, and a step that is not there is the last one.
    assert_eq!(look(u64::MAX, base), []);
}

#[test]
fn sights_draw_on_the_budget() {
    let mut story = Story::start(&[area(BASE, 64 * MB)]);
    for page in (0..16_384).step_by(2) {
        story = story.write(MAIN, BASE + page * FRAME_BYTES);
    }
    let budget = Budget::default();
    let plan = Plan::new(&story.events, &budget).unwrap();
    let before = budget.held();
    let sights = sights_at(&plan, u64::MAX, up_to("4k"), &Settings::default()).unwrap();
    assert_eq!(sights.list[0].runs.len(), 8192);
    let runs = 8192 * size_of::<MappedRun>() as u64;
    assert!(budget.held().get() >= before.get() + runs, "L2");
    drop(sights);
    assert_eq!(budget.held(), before);
}

#[test]
fn a_course_sees_memory_come_and_go() {
    let story = two_areas();
    let (small, large) = (story.row(up_to("4k")), story.row(up_to("64k")));
    for row in [&small, &large] {
        assert_eq!(row.course.len(), MOMENTS);
        let faults: u64 = row.course.iter().map(|moment| moment.faults).sum();
        assert_eq!(faults, row.anonymous_faults, "{}", row.choice);
    }
    let held = |row: &Row, nth: usize| -> u64 {
        let folios = row.course[nth].folios.iter();
        folios.map(|(order, n)| order.bytes().get() * n).sum()
    };
    // Events are equally far apart: the writes are over by the fifth of eight.
    assert_eq!((held(&small, 0), held(&small, 31)), (0, 4 * FRAME_BYTES));
    assert_eq!((held(&large, 31), held(&large, 40)), (64 << 10, 0));
    assert_eq!(held(&large, MOMENTS - 1), 64 << 10, "before the exit");
    assert_eq!(held(&small, MOMENTS - 1), FRAME_BYTES);
}

#[test]
fn of_equal_peaks_the_first_one_is_looked_at() {
    let story = Story::start(&[area(BASE, MB), area(BASE + 4 * MB, MB)])
        .write(MAIN, BASE)
        .tell(0, 0, EventKind::Unmap { range: area(BASE, MB).range })
        .write(MAIN, BASE + 4 * MB);
    let plan = Plan::new(&story.events, &Budget::default()).unwrap();
    let row = story.row(up_to("4k"));
    let sights = sights_at(&plan, row.peak_step, up_to("4k"), &Settings::default()).unwrap();
    let held: Vec<u64> = sights.list.iter().map(|sight| sight.held().get()).collect();
    assert_eq!(held, [FRAME_BYTES, 0]);
}
