//! Tests of the recorder's parts that need no program to record.

use super::assemble::Scope;
use super::assemble_model::{self, All};
use super::log::{RingLog, ToldLog};
use super::procfs;
use super::raw::{Raw, What};
use super::spool::{Spool, Spooler, Stream};
use super::told::{Doing, Told};
use super::{RecordError, settle};
use crate::event::{
    Access, Area, AreaKind, EventKind, Exec, Found, MapFlags, Name, Prot, Source, SpaceId,
    Standing, ThreadId, advice,
};
use foliant_units::{Va, VaRange};

const MAPS: &str = "\
55d0a0000000-55d0a0002000 r--p 00000000 fe:00 1234                       /usr/bin/a program
55d0a0002000-55d0a0003000 rw-p 00000000 00:00 0 
55d0a1000000-55d0a1021000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000001000 rw-s 00000000 00:01 5                          /dev/zero (deleted)
7f0000001000-7f0000002000 r-xs 00000000 00:01 5                          /dev/shm/x
7f0000002000-7f0000003000 ---p 00000000 00:00 0                          [anon:guard]
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]
7ffd00100000-7ffd00102000 r-xp 00000000 00:00 0                          [vdso]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";

#[test]
fn maps_are_read() {
    let areas: Vec<Area> = MAPS.lines().filter_map(procfs::area).collect();
    let kinds: Vec<AreaKind> = areas.iter().map(|a| a.kind).collect();
    use AreaKind::*;
    let expect =
        [FilePrivate, Anonymous, Heap, SharedAnonymous, FileShared, Anonymous, Stack, Special];
    assert_eq!(kinds, expect);
    assert_eq!(areas[0].prot, Prot::READ);
    assert_eq!(areas[5].prot, Prot::NONE);
    assert_eq!(areas[6].flags, MapFlags::GROWSDOWN);
    assert_eq!(areas[1].range.pages().get(), 1);
    for bad in ["", "x", "5-3 rw-p 0 0 0", "zz-yy rw-p", "1000"] {
        assert_eq!(procfs::area(bad), None, "{bad}");
    }
}

/// What a kernel answers to `prctl(PR_SET_THP_DISABLE, ...)`, before Linux 6.18 and since.
#[test]
fn finding_x7_bad_arguments_are_no_wish() {
    let check = |args, before: bool, since: bool| {
        let wish = |knows| super::tracer::thp_wish(args, knows).is_some();
        assert_eq!((wish(false), wish(true)), (before, since), "{args:?}");
    };
    check([1, 0, 0, 0], true, true);
    check([0, 0, 0, 0], true, true);
    check([7, 0, 0, 0], true, true);
    check([1, 2, 0, 0], false, true);
    check([0, 2, 0, 0], false, false);
    check([1, 7, 7, 7], false, false);
    check([1, 3, 0, 0], false, false);
    check([1, 0, 1, 0], false, false);
    check([0, 0, 0, 1], false, false);
}

#[test]
fn pages_join_to_ranges() {
    let pages: Vec<Va> = [1, 2, 3, 7, 9, 10].map(|n| Va::new(n * 4096)).into();
    let found: Vec<u64> = procfs::join(&pages).iter().map(|r| r.pages().get()).collect();
    assert_eq!(found, [3, 1, 2]);
}

const PROGRAM: i32 = 100;

fn told_exec(time: u64) -> Told {
    let range = VaRange::new(Va::new(0x10000), Va::new(0x20000)).unwrap();
    let flags = MapFlags::NONE;
    let area = Area { range, prot: Prot::RW, kind: AreaKind::Stack, flags };
    let exec = Exec {
        program: "p".into(),
        brk: Va::new(0),
        areas: vec![area],
        present: vec![VaRange::new(Va::new(0x1e000), Va::new(0x20000)).unwrap()],
    };
    Told { time, tid: PROGRAM, what: Doing::Exec { former: PROGRAM, exec } }
}

fn raw(time: u64, what: What) -> Raw {
    Raw { time, tid: PROGRAM, what }
}

fn fault(time: u64, va: u64, kernel: bool) -> Raw {
    raw(time, What::Fault { va, kernel, decoded: None })
}

/// What a recording makes of these: through the spool, in streams.
fn streamed(rings: &[Vec<Raw>], told: &[Told], scope: Scope) -> Result<All, RecordError> {
    let folder = tempfile::tempdir().unwrap();
    let spooler = Spooler::start(Spool::new(Some(folder.path()))?).unwrap();
    for (at, ring) in rings.iter().enumerate() {
        let mut log = RingLog::new(spooler.outlet(Stream::ring(at)));
        ring.iter().for_each(|raw| log.put(raw));
        log.send();
    }
    let mut log = ToldLog::new(spooler.outlet(Stream::TOLD));
    for (at, one) in told.iter().enumerate() {
        let floor = told[at..].iter().map(|told| told.time).min().unwrap();
        log.put(one.clone(), floor);
    }
    log.send();
    let mut spool = spooler.finish()?;
    let together = settle::assemble(&mut spool, rings.len(), scope)?;
    let mut events = Vec::new();
    let (assembled, report) = settle::settle(&spool, together, |event| {
        events.push(event.clone());
        Ok(())
    })?;
    Ok((events, assembled, report))
}

/// Both ways, which say the same.
fn assembled(rings: &[Vec<Raw>], told: &[Told], scope: &Scope) -> All {
    let plain = assemble_model::assemble(rings.concat(), told.to_vec(), scope.clone());
    let streamed = streamed(rings, told, scope.clone()).unwrap();
    assert_eq!(streamed.0, plain.0);
    assert_eq!(streamed.1, plain.1);
    assert_eq!(format!("{:?}", streamed.2), format!("{:?}", plain.2));
    plain
}

fn assemble(raw: Vec<Raw>, told: Vec<Told>) -> All {
    assembled(&[raw], &told, &Scope::default())
}

fn faults(raw: Vec<Raw>, told: Vec<Told>) -> Vec<crate::Fault> {
    let events = assemble(raw, told).0;
    let fault = |e: crate::Event| match e.kind {
        EventKind::Fault(f) => Some(f),
        _ => None,
    };
    events.into_iter().filter_map(fault).collect()
}

#[test]
fn pages_that_exec_faulted_in_are_not_placed_by_it() {
    let raw = vec![
        raw(10, What::Exec { pid: PROGRAM }),
        fault(11, 0x1e010, true),
        fault(30, 0x11000, false),
        raw(40, What::End),
    ];
    let (events, done, _) = assemble(raw, vec![told_exec(20)]);
    assert!(done.remarks.is_empty(), "{:?}", done.remarks);
    let EventKind::Exec(exec) = &events[0].kind else { panic!("{:?}", events[0]) };
    assert_eq!(exec.present, [VaRange::new(Va::new(0x1f000), Va::new(0x20000)).unwrap()]);
    assert_eq!((events.len(), events[0].time_ns), (4, 10));
}

#[test]
fn pages_that_nothing_explains_are_placed_where_they_are_found() {
    let pages = |from, to| VaRange::new(Va::new(from), Va::new(to)).unwrap();
    let raw = vec![
        raw(10, What::Exec { pid: PROGRAM }),
        fault(21, 0x11000, false),
        fault(40, 0x14000, false),
        raw(50, What::End),
    ];
    let found = |time, range| {
        let kind = EventKind::Advise { range, advice: advice::PRESENT };
        Told { time, tid: PROGRAM, what: Doing::Change(kind) }
    };
    let told =
        vec![told_exec(20), found(30, pages(0x10000, 0x13000)), found(45, pages(0x12000, 0x15000))];
    let (events, done, report) = assemble(raw, told);
    let placed: Vec<_> = events
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::Populate { range, access: Access::Write } => Some((event.time_ns, range)),
            _ => None,
        })
        .collect();
    let each = [(30, 0x10000, 0x11000), (30, 0x12000, 0x13000), (45, 0x13000, 0x14000)];
    assert_eq!(placed, each.map(|(time, from, to)| (time, pages(from, to))));
    assert_eq!((done.unseen, report.mismatched), (3, 0));
    assert_eq!(settle::unseen(0, true), None);
    assert!(settle::unseen(3, true).unwrap().starts_with("3 pages came unseen (direct I/O"));
    assert!(settle::unseen(1, true).unwrap().starts_with("1 page came unseen"));
    assert_eq!(settle::unseen(3, false), None, "what the kernel's own faults brought");
    assert!(!events.iter().any(settle::is_present), "what was found is in no file");
}

#[test]
fn tracepoints_go_to_their_samples() {
    let code = |time, va, error| raw(time, What::Code { va, error });
    let raw = vec![
        raw(10, What::Exec { pid: PROGRAM }),
        code(21, 0x11000, 4),
        fault(22, 0x11000, false),
        // This one the kernel refuses to handle; the next one is another fault.
        code(23, 0x12000, 2),
        code(24, 0x11008, 7),
        fault(25, 0x11008, false),
        fault(26, 0x13000, false),
        raw(40, What::End),
    ];
    let found = faults(raw, vec![told_exec(20)]);
    let what: Vec<_> = found.iter().map(|f| (f.access, f.source, f.found)).collect();
    assert_eq!(what[0], (Access::Read, Source::Hardware, Found::Absent));
    assert_eq!(what[1], (Access::Write, Source::Hardware, Found::Protected));
    assert_eq!(what[2], (Access::Write, Source::Inferred, Found::Unknown));
}

#[test]
fn a_guess_is_corrected_by_a_later_fault() {
    let raw = vec![
        raw(10, What::Exec { pid: PROGRAM }),
        fault(21, 0x11000, true),
        fault(22, 0x12000, true),
        raw(23, What::Fault { va: 0x11000, kernel: false, decoded: Some(Access::Write) }),
        raw(40, What::End),
    ];
    let found: Vec<Access> = faults(raw, vec![told_exec(20)]).iter().map(|f| f.access).collect();
    assert_eq!(found, [Access::Read, Access::Write, Access::Write]);
}

/// The page below the stack's end is named, which is the stack's; a process that runs on a stack of
/// its own is no thread.
#[test]
fn a_threads_stack_is_told_by_its_last_page() {
    let told = |time, what| Told { time, tid: PROGRAM, what };
    let clone = |time, flags: i32| told(time, Doing::Clone { flags: flags as u64 });
    let stack = |time| told(time, Doing::Stack { top: 0x7000_0000 });
    let fork = |time, child, same_process| raw(time, What::Fork { child, same_process });
    let raw = vec![
        raw(10, What::Exec { pid: PROGRAM }),
        fork(30, 101, true),
        fork(40, 102, true),
        fork(50, 103, false),
        raw(90, What::End),
    ];
    let thread = libc::CLONE_VM | libc::CLONE_THREAD;
    let told = vec![
        told_exec(20),
        stack(25),
        clone(26, thread),
        clone(35, thread),
        stack(45),
        clone(46, libc::CLONE_VM | libc::CLONE_VFORK),
    ];
    let (events, ..) = assemble(raw, told);
    let names: Vec<(u64, &Name)> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Name { range, name } => Some((range.start().get(), name)),
            _ => None,
        })
        .collect();
    assert_eq!(names, [(0x6fff_f000, &Name::Stack(ThreadId(1)))]);
}

#[test]
fn families_are_followed() {
    let clone =
        |time, flags: i32| Told { time, tid: PROGRAM, what: Doing::Clone { flags: flags as u64 } };
    let by = |time, tid, what| Raw { time, tid, what };
    let fork = |time, child, same_process| raw(time, What::Fork { child, same_process });
    let raw = vec![
        raw(10, What::Exec { pid: PROGRAM }),
        fork(30, 101, false),
        fork(40, 102, false),
        fork(50, 103, true),
        by(60, 102, What::End),
        by(70, 103, What::End),
        by(80, 101, What::End),
        raw(90, What::End),
    ];
    let told = vec![
        told_exec(20),
        clone(25, 0),
        clone(35, libc::CLONE_VM | libc::CLONE_VFORK),
        clone(45, libc::CLONE_VM | libc::CLONE_THREAD),
    ];
    let (events, done, _) = assemble(raw, told);
    assert!(done.remarks.is_empty(), "{:?}", done.remarks);
    let kinds: Vec<EventKind> = events.into_iter().skip(1).map(|e| e.kind).collect();
    let thread = ThreadId;
    assert_eq!(
        kinds,
        [
            EventKind::Fork { child: SpaceId(1), thread: thread(1) },
            EventKind::Share { thread: thread(2), process: true },
            EventKind::Share { thread: thread(3), process: false },
            EventKind::Exit { last: false },
            EventKind::Exit { last: false },
            EventKind::Exit { last: true },
            EventKind::Exit { last: true },
        ]
    );
}

/// Faults where nothing known is: with a signal the program was refused, without one something is
/// there that the recording lacks. The kernel's own are answered otherwise.
#[test]
fn a_fault_outside_of_all_areas_is_unexplained_unless_a_signal_follows() {
    let told = |time, what| Told { time, tid: PROGRAM, what };
    let raw = vec![
        raw(10, What::Exec { pid: PROGRAM }),
        fault(30, 0x50000, false),
        fault(40, 0x51000, false),
        fault(50, 0x52000, true),
        fault(60, 0x11000, false),
        raw(70, What::End),
    ];
    let told = vec![told_exec(20), told(35, Doing::Signal)];
    let (events, _, report) = assemble(raw, told);
    let standings: Vec<Standing> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Fault(fault) => Some(fault.standing),
            _ => None,
        })
        .collect();
    use Standing::*;
    assert_eq!(standings, [Regular, Unexplained, Regular, Regular]);
    assert_eq!((report.refused, report.strays, report.mismatched), (2, 1, 0));
    let plan = crate::replay::Plan::new(&events, &crate::Budget::unlimited()).unwrap();
    assert_eq!((plan.refused_faults, plan.stray_faults), (2, 1));
}

/// A seed's numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// Lists such as a kernel may tell: causes come before what they cause, everything else is random.
fn lists(random: &mut Random) -> (Vec<Vec<Raw>>, Vec<Told>) {
    let rings = 1 + random.below(3) as usize;
    let (mut raw, mut told) = (vec![Vec::new(); rings], vec![told_exec(20)]);
    raw[0].push(self::raw(10, What::Exec { pid: PROGRAM }));
    let mut alive = vec![PROGRAM];
    let (mut time, mut next) = (20, PROGRAM + 1);
    let range = |random: &mut Random| {
        let at = 0x10000 + random.below(20) * 0x1000;
        VaRange::new(Va::new(at), Va::new(at + random.below(8) * 0x1000)).unwrap()
    };
    for _ in 0..random.below(400) {
        time += random.below(3);
        let tid = random.pick(&alive);
        let va = 0xe000 + random.below(26 << 12);
        let ring = random.below(rings as u64) as usize;
        let mut put = |what| raw[ring].push(Raw { time, tid, what });
        let past = time - random.below(time.min(30));
        let kernel = random.below(4) == 0;
        match random.below(24) {
            0..8 => {
                let all = [None, None, Some(Access::Read), Some(Access::Write), Some(Access::Exec)];
                put(What::Fault { va, kernel, decoded: random.pick(&all) });
            }
            8..12 => {
                put(What::Code { va, error: random.below(32) as u32 });
                if kernel {
                    put(What::Fault { va, kernel: false, decoded: None });
                }
            }
            12 if alive.len() < 6 => {
                let flags = random.pick(&[0, libc::CLONE_VM, libc::CLONE_VM | libc::CLONE_THREAD]);
                told.push(Told { time, tid, what: Doing::Clone { flags: flags as u64 } });
                let same_process = flags & libc::CLONE_THREAD != 0;
                time += 1;
                raw[ring].push(Raw { time, tid, what: What::Fork { child: next, same_process } });
                alive.push(next);
                next += 1;
            }
            13 if alive.len() > 1 => {
                put(What::End);
                alive.retain(|other| *other != tid);
                if kernel {
                    told.push(Told { time: time + 1, tid, what: Doing::Gone });
                }
            }
            14 if random.below(3) == 0 => {
                put(What::Exec { pid: tid });
                let Told { what, .. } = told_exec(0);
                let stop = time + random.below(5);
                let what = match what {
                    Doing::Exec { exec, .. } => Doing::Exec { former: tid, exec },
                    other => other,
                };
                for _ in 0..random.below(6) {
                    let (va, time) =
                        (0x1c000 + random.below(0x5000), time + random.below(stop - time + 1));
                    raw[ring].push(Raw {
                        time,
                        tid,
                        what: What::Fault { va, kernel, decoded: None },
                    });
                }
                raw[ring].sort_by_key(|raw| raw.time);
                time = stop + 1;
                told.push(Told { time: stop, tid, what });
            }
            15 => told.push(Told { time, tid, what: Doing::Signal }),
            16 => {
                let now = Va::new(0x30000 + random.below(0x4000));
                told.push(Told { time, tid, what: Doing::Brk { now } });
            }
            17 => {
                let pages = (0..random.below(9)).map(|n| Va::new(0x10000 + n * 0x1000)).collect();
                told.push(Told { time, tid, what: Doing::Residue { present: pages } });
            }
            n => {
                let (range, other) = (range(random), range(random));
                let prot = random.pick(&[Prot::RW, Prot::READ, Prot::NONE]);
                let (kind, flags) = (AreaKind::Anonymous, MapFlags::NONE);
                let kind = match n {
                    18 => EventKind::Map(Area { range, prot, kind, flags }),
                    19 => EventKind::Unmap { range },
                    20 => EventKind::Protect { range, prot },
                    21 => EventKind::Remap { old: range, new: other, keep_old: kernel },
                    22 => EventKind::Populate {
                        range,
                        access: random.pick(&[Access::Read, Access::Write]),
                    },
                    _ => EventKind::Advise {
                        range,
                        advice: random.pick(&[4, 8, 10, 18, 102, advice::PRESENT]),
                    },
                };
                told.push(Told { time: past, tid, what: Doing::Change(kind) });
            }
        }
    }
    (raw, told)
}

#[test]
fn streams_give_what_vectors_give() {
    let (mut events, mut strays, mut residues) = (0, 0, 0);
    for seed in 0..400 {
        let random = &mut Random(seed);
        let (rings, told) = lists(random);
        let scope = Scope { decodes: random.below(2) == 0, ..Scope::default() };
        let all = assembled(&rings, &told, &scope);
        events += all.0.len();
        strays += all.2.strays;
        residues += all.1.residue.spaces;
    }
    assert!(events > 20_000 && strays > 200 && residues > 200, "{events} {strays} {residues}");
}

/// Chunk after chunk, and a call under way all the while.
#[test]
fn a_long_list_is_streamed_too() {
    let mut rings = vec![vec![raw(10, What::Exec { pid: PROGRAM })], Vec::new()];
    let mut told = vec![told_exec(20)];
    for n in 0..40_000u64 {
        let time = 30 + n * 7;
        let va = 0x10000 + (n * 0x1000 + n) % 0xf000;
        rings[n as usize / 1000 % 2].push(fault(time, va, n % 5 == 0));
        if n % 3 == 0 {
            let range = VaRange::new(Va::new(0x10000), Va::new(0x14000)).unwrap();
            let change = EventKind::Advise { range, advice: advice::DONTNEED };
            told.push(Told { time: time + 1, tid: PROGRAM, what: Doing::Change(change) });
        }
    }
    let last = told.last().unwrap().time;
    told.push(Told { time: 25, tid: PROGRAM, what: Doing::Brk { now: Va::new(0x40000) } });
    rings[1].push(raw(last + 1000, What::End));
    let (events, _, report) = assembled(&rings, &told, &Scope::default());
    assert_eq!(events.len(), 1 + 1 + 40_000 + 13_334 + 1);
    assert!(report.predicted > 10_000, "{report:?}");
}
