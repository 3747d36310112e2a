//! The model of 4 KiB pages, against what Linux does. Each test is a short story of one program.

use foliant_trace::event::advice;
use foliant_trace::*;
use foliant_units::{Va, VaRange};

const BASE: u64 = 0x7000_0000_0000;

fn pages(first: u64, count: u64) -> VaRange {
    let start = BASE + first * 4096;
    VaRange::new(Va::new(start), Va::new(start + count * 4096)).unwrap()
}

fn area(first: u64, count: u64, prot: Prot, kind: AreaKind) -> Area {
    Area { range: pages(first, count), prot, kind, flags: MapFlags::NONE }
}

/// Builds a trace step by step; thread 0 in space 0 with 100 writable anonymous pages is there
/// already.
struct Story {
    events: Vec<Event>,
    who: (u32, u32),
    time_ns: u64,
}

impl Story {
    fn new() -> Story {
        let areas = vec![area(0, 100, Prot::RW, AreaKind::Anonymous)];
        let exec =
            Exec { program: "p".into(), brk: Va::new(0x1000), areas, present: vec![pages(90, 2)] };
        Story { events: vec![], who: (0, 0), time_ns: 0 }.then(EventKind::Exec(exec))
    }
    fn then(mut self, kind: EventKind) -> Story {
        let (thread, space) = (ThreadId(self.who.0), SpaceId(self.who.1));
        self.time_ns += 1000;
        self.events.push(Event { time_ns: self.time_ns, thread, space, kind });
        self
    }
    fn by(mut self, thread: u32, space: u32) -> Story {
        self.who = (thread, space);
        self
    }
    fn later(mut self, ns: u64) -> Story {
        self.time_ns += ns;
        self
    }
    fn touch(self, page: u64, access: Access, found: Found) -> Story {
        self.then(EventKind::Fault(Fault {
            va: Va::new(BASE + page * 4096 + 8),
            access,
            origin: Origin::User,
            source: Source::Hardware,
            found,
            standing: Standing::Regular,
        }))
    }
    fn read(self, page: u64) -> Story {
        self.touch(page, Access::Read, Found::Unknown)
    }
    fn write(self, page: u64) -> Story {
        self.touch(page, Access::Write, Found::Unknown)
    }
    fn advise(self, first: u64, count: u64, advice: u32) -> Story {
        self.then(EventKind::Advise { range: pages(first, count), advice })
    }
    fn protect(self, first: u64, count: u64, prot: Prot) -> Story {
        self.then(EventKind::Protect { range: pages(first, count), prot })
    }
    fn fork(self, thread: u32, space: u32) -> Story {
        self.then(EventKind::Fork { child: SpaceId(space), thread: ThreadId(thread) })
    }
    /// The faults of the story are exactly those that have to be.
    fn exact(self) {
        let report = naive_replay(&self.events, &Budget::default()).unwrap();
        assert_eq!(report.mismatched, 0, "{:?}", report.mismatches);
        assert_eq!(report.other_faults + report.refused, 0, "{report:?}");
    }
    /// The story's last fault is not expected, and stands like this.
    fn ends(mut self, standing: Standing) {
        let mismatched = naive_replay(&self.events, &Budget::default()).unwrap().mismatched;
        assert_eq!(mismatched, 1);
        classify(&mut self.events, &Budget::default()).unwrap();
        let Some(Event { kind: EventKind::Fault(fault), .. }) = self.events.last() else {
            panic!("the last event is no fault");
        };
        assert_eq!(fault.standing, standing);
        let report = naive_replay(&self.events, &Budget::default()).unwrap();
        let explained = u64::from(standing != Standing::Unexplained);
        assert_eq!(report.mismatched, 1 - explained);
        assert_eq!(report.predicted, report.recorded_anonymous_faults - report.mismatched);
    }
}

#[test]
fn a_page_faults_once_for_reading_and_once_for_writing() {
    Story::new().write(0).read(1).write(1).exact();
    Story::new().write(0).write(0).ends(Standing::Unexplained);
    Story::new().write(0).read(0).ends(Standing::Unexplained);
    Story::new().read(0).read(0).ends(Standing::Unexplained);
}

#[test]
fn what_exec_has_placed_does_not_fault() {
    Story::new().write(91).ends(Standing::Unexplained);
    Story::new().write(92).exact();
}

#[test]
fn after_a_fork_both_sides_fault_on_writing() {
    let forked = || Story::new().write(0).fork(1, 1);
    forked().write(0).by(1, 1).write(0).exact();
    forked().by(1, 1).write(0).by(0, 0).write(0).exact();
    forked().by(1, 1).read(0).ends(Standing::Unexplained);
    // The last to have a page makes it writable in place, without a flush: on every other CPU the
    // thread may find it protected once more. Who else has it is not known here, so the first may
    // be the last.
    forked().write(0).write(0).ends(Standing::Stale);
    let mut twice = forked().write(0).write(0).write(0);
    classify(&mut twice.events, &Budget::default()).unwrap();
    assert_eq!(
        naive_replay(&twice.events, &Budget::default()).unwrap().mismatched,
        0,
        "every CPU of several finds it so"
    );
    forked().write(5).write(5).ends(Standing::Unexplained);
    // The last owner still faults, though nothing is copied.
    forked().by(1, 1).then(EventKind::Exit { last: true }).by(0, 0).write(0).exact();
}

#[test]
fn a_fork_leaves_zero_pages_behind_where_nothing_was_written() {
    let story = Story::new();
    let alone = EventKind::Map(area(200, 10, Prot::RW, AreaKind::Anonymous));
    let story = story.then(alone).read(200).fork(1, 1);
    story.by(1, 1).read(200).exact();
    Story::new().write(1).read(0).fork(1, 1).by(1, 1).read(0).ends(Standing::Unexplained);
}

#[test]
fn advice_on_forks_is_followed() {
    let story = || Story::new().write(0).write(20);
    story().advise(0, 10, advice::WIPEONFORK).fork(1, 1).by(1, 1).read(0).write(20).exact();
    story().advise(0, 10, advice::WIPEONFORK).fork(1, 1).write(0).ends(Standing::Unexplained);
    let gone = story().advise(0, 10, advice::DONTFORK).fork(1, 1).by(1, 1).write(0);
    assert_eq!(naive_replay(&gone.events, &Budget::default()).unwrap().refused, 1);
}

#[test]
fn rights_taken_and_given_back_need_no_fault() {
    let closed = || Story::new().write(0).protect(0, 10, Prot::READ);
    closed().protect(0, 10, Prot::RW).write(0).ends(Standing::Stale);
    closed().read(1).protect(0, 10, Prot::RW).write(1).exact();
    let refused = closed().write(0);
    assert_eq!(naive_replay(&refused.events, &Budget::default()).unwrap().refused, 1);
    // A page shared by a fork stays protected.
    closed().fork(1, 1).protect(0, 10, Prot::RW).write(0).exact();
}

#[test]
fn dropped_pages_fault_again_and_freed_ones_do_not() {
    Story::new().write(0).advise(0, 1, advice::DONTNEED).write(0).exact();
    Story::new().write(0).advise(0, 1, advice::FREE).write(0).ends(Standing::Unexplained);
    Story::new().write(0).then(EventKind::Unmap { range: pages(0, 1) }).exact();
    let map = EventKind::Map(area(0, 1, Prot::RW, AreaKind::Anonymous));
    Story::new().write(0).then(map).write(0).exact();
}

#[test]
fn guards_refuse_until_they_are_removed() {
    let refused = |story: Story| {
        let report = naive_replay(&story.events, &Budget::default()).unwrap();
        assert_eq!(report.mismatched, 0, "{:?}", report.mismatches);
        report.refused
    };
    let guarded = || Story::new().write(3).advise(2, 2, advice::GUARD_INSTALL);
    assert_eq!(refused(guarded().read(3).write(2).write(4)), 2);
    assert_eq!(refused(guarded().advise(0, 9, advice::DONTNEED).read(3)), 1, "dropping leaves it");
    assert_eq!(refused(guarded().advise(0, 9, advice::POPULATE_WRITE).read(3)), 1);
    assert_eq!(refused(guarded().fork(1, 1).by(1, 1).read(3)), 1, "a child has it too");
    guarded().advise(0, 9, advice::GUARD_REMOVE).write(3).write(2).exact();
    guarded().then(EventKind::Map(area(0, 9, Prot::RW, AreaKind::Anonymous))).write(3).exact();
}

#[test]
fn protected_pages_fault_until_a_write_is_allowed() {
    let told = || Story::new().advise(0, 9, advice::WATCHED).write(3).read(4);
    let protected = || told().advise(0, 9, advice::WRITE_PROTECT);
    protected().write(3).write(3).exact();
    protected().write(4).exact();
    protected().write(3).advise(3, 1, advice::WRITE_ALLOW).write(3).ends(Standing::Stale);
    protected().advise(0, 9, advice::UNWATCHED).write(3).ends(Standing::Stale);
    protected().fork(1, 1).by(1, 1).write(3).write(3).ends(Standing::Stale);
    protected().fork(1, 1).write(3).write(3).exact();
}

#[test]
fn filled_pages_do_not_fault() {
    Story::new().advise(0, 9, advice::POPULATE_WRITE).write(3).ends(Standing::Unexplained);
    Story::new().advise(0, 9, advice::POPULATE_READ).write(3).exact();
    Story::new().advise(0, 9, advice::POPULATE_READ).read(3).ends(Standing::Unexplained);
    let fill = EventKind::Populate { range: pages(0, 9), access: Access::Write };
    Story::new().then(fill).write(8).ends(Standing::Unexplained);
}

#[test]
fn moved_pages_stay_present() {
    let moved = |to: VaRange, keep_old| {
        let old = pages(0, 4);
        Story::new().write(0).write(3).then(EventKind::Remap { old, new: to, keep_old })
    };
    moved(pages(500, 8), false).write(500).ends(Standing::Unexplained);
    moved(pages(500, 8), false).write(501).write(507).exact();
    moved(pages(500, 2), false).write(501).exact();
    moved(pages(500, 4), true).write(0).exact();
    assert_eq!(
        naive_replay(&moved(pages(500, 4), false).write(0).events, &Budget::default())
            .unwrap()
            .refused,
        1
    );
    assert_eq!(
        naive_replay(&moved(pages(500, 2), false).write(502).events, &Budget::default())
            .unwrap()
            .refused,
        1
    );
}

#[test]
fn the_break_and_the_stack_grow() {
    let brk = |old, new| EventKind::Brk { old: Va::new(BASE + old), new: Va::new(BASE + new) };
    Story::new().then(brk(0x20_0010, 0x20_3000)).write(0x201).write(0x202).exact();
    let again = Story::new().then(brk(0x20_0010, 0x20_3000)).write(0x202);
    again.then(brk(0x20_3000, 0x20_2000)).then(brk(0x20_2000, 0x20_3000)).write(0x202).exact();
    let flags = MapFlags::GROWSDOWN;
    let stack = Area { flags, ..area(1000, 4, Prot::RW, AreaKind::Stack) };
    Story::new().then(EventKind::Map(stack)).write(1001).write(998).write(999).exact();
}

#[test]
fn threads_that_touch_one_page_at_once_race() {
    let thread = EventKind::Share { thread: ThreadId(1), process: false };
    let two = || Story::new().then(thread.clone());
    two().write(0).by(1, 0).write(0).ends(Standing::Raced);
    two().write(0).by(1, 0).touch(0, Access::Read, Found::Absent).ends(Standing::Raced);
    two().write(0).by(1, 0).later(1 << 30).read(0).ends(Standing::Unexplained);
    two().write(0).by(1, 0).later(1 << 30).write(0).ends(Standing::Stale);
    // A write that lost to a read's zero page comes again, and then has something to do.
    two().read(0).by(1, 0).touch(0, Access::Write, Found::Absent).ends(Standing::Raced);
}

#[test]
fn other_memory_is_counted_apart() {
    let kinds = [AreaKind::FilePrivate, AreaKind::FileShared, AreaKind::SharedAnonymous];
    for kind in kinds {
        let map = EventKind::Map(area(200, 4, Prot::RW, kind));
        let report =
            naive_replay(&Story::new().then(map).write(200).write(200).events, &Budget::default())
                .unwrap();
        assert_eq!((report.other_faults, report.recorded_anonymous_faults), (2, 0), "{kind:?}");
    }
}
