//! The file format: what is written comes back, and nothing else is taken for a trace.

use foliant_trace::event::advice;
use foliant_trace::*;
use foliant_units::{Va, VaRange};

/// A small generator; the seed is in every failure's text.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
    fn range(&mut self) -> VaRange {
        let bits = 20 + self.below(36);
        let start = (self.below(1 << 31).wrapping_mul(0x9e37_79b9) % (1 << bits)) & !0xfff;
        VaRange::new(Va::new(start), Va::new(start + self.below(5000) * 4096)).unwrap()
    }
    fn area(&mut self) -> Area {
        Area {
            range: self.range(),
            prot: Prot::from_bits(self.below(8) as u8).unwrap(),
            kind: AreaKind::ALL[self.below(7) as usize],
            flags: MapFlags::from_bits(self.below(128) as u8).unwrap(),
        }
    }
    fn text(&mut self) -> String {
        "ä".repeat(self.below(128) as usize)
    }
    fn name(&mut self) -> Name {
        let site = Site { object: self.text(), offset: u64::MAX - self.below(1 << 20) };
        match self.below(6) {
            0 => Name::File(self.text()),
            1 => Name::Stack(ThreadId(self.below(9) as u32)),
            2 => Name::Made { site: None, through: None },
            3 => Name::Made { site: Some(site), through: None },
            4 => Name::Made { site: None, through: Some(self.text()) },
            _ => Name::Made { site: Some(site), through: Some(self.text()) },
        }
    }
    fn object(&mut self) -> ObjectId {
        ObjectId(self.below(9) as u32)
    }
    fn access(&mut self) -> Access {
        [Access::Read, Access::Write, Access::Exec][self.below(3) as usize]
    }
}

fn header() -> Header {
    Header {
        command: vec!["prog".into(), "ä b".into()],
        kernel: "Linux 6".into(),
        processor: "x".into(),
        cpus: 2,
        page_bytes: 4096,
        unix_seconds: 1_700_000_000,
        access_source: AccessSource::Decoded,
        kernel_faults: false,
        recorder: "test".into(),
    }
}

/// Events that follow the rules and use every kind.
fn events(seed: u64, count: usize) -> Vec<Event> {
    let mut r = Random(seed);
    let mut lineage = Lineage::new();
    let mut out: Vec<Event> = Vec::new();
    let mut time_ns = 0;
    while out.len() < count {
        let alive: Vec<ThreadId> = (0..lineage.threads())
            .map(ThreadId)
            .filter(|&t| lineage.space_of(t).is_some())
            .collect();
        let thread = match alive.len() {
            0 => ThreadId(lineage.threads()),
            n => alive[r.below(n as u64) as usize],
        };
        let mut space = lineage.space_of(thread).unwrap_or_default();
        let kind = match if alive.is_empty() { 0 } else { r.below(40) } {
            0 => {
                space = SpaceId(lineage.spaces());
                let areas = (0..r.below(4)).map(|_| r.area()).collect();
                let present = (0..r.below(4)).map(|_| r.range()).collect();
                let brk = Va::new(r.below(1 << 40));
                EventKind::Exec(Exec { program: "/bin/x".into(), brk, areas, present })
            }
            1 => EventKind::Fork {
                child: SpaceId(lineage.spaces()),
                thread: ThreadId(lineage.threads()),
            },
            2 => EventKind::Share { thread: ThreadId(lineage.threads()), process: r.below(2) == 0 },
            3 => EventKind::Exit { last: lineage.residents(space) == 1 },
            4..=6 => EventKind::Map(r.area()),
            7 => EventKind::Unmap { range: r.range() },
            8 => EventKind::Protect { range: r.range(), prot: Prot::RW },
            9 => EventKind::Remap { old: r.range(), new: r.range(), keep_old: r.below(2) == 0 },
            10 => EventKind::Advise { range: r.range(), advice: r.below(200) as u32 },
            11 => EventKind::Brk { old: Va::new(r.below(1 << 40)), new: Va::new(r.below(1 << 40)) },
            12 => EventKind::Populate { range: r.range(), access: r.access() },
            13 => EventKind::ThpPrctl { args: [r.below(3), u64::MAX] },
            14 | 15 => EventKind::Name { range: r.range(), name: r.name() },
            16 => EventKind::Object {
                object: r.object(),
                backing: [Backing::Anonymous, Backing::File, Backing::SystemV][r.below(3) as usize],
                room: r.below(1 << 44),
                present: (0..r.below(4)).map(|_| r.range()).collect(),
            },
            17 => {
                EventKind::Attach { range: r.range(), object: r.object(), first: r.below(1 << 44) }
            }
            18 => EventKind::Punch { object: r.object(), pages: r.range() },
            _ => EventKind::Fault(Fault {
                va: Va::new(if r.below(50) == 0 {
                    u64::MAX - r.below(9)
                } else {
                    r.range().start().get() + r.below(4096)
                }),
                access: r.access(),
                origin: [Origin::User, Origin::Kernel][r.below(2) as usize],
                source: [Source::Hardware, Source::Decoded, Source::Inferred][r.below(3) as usize],
                found: [Found::Unknown, Found::Absent, Found::Protected][r.below(3) as usize],
                standing: [
                    Standing::Regular,
                    Standing::Raced,
                    Standing::Stale,
                    Standing::Unexplained,
                ][r.below(4) as usize],
            }),
        };
        let bits = 4 * r.below(8);
        time_ns += r.below(1 << bits);
        let event = Event { time_ns, thread, space, kind };
        lineage.apply(&event).unwrap();
        out.push(event);
    }
    out
}

fn written(events: &[Event]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    for event in events {
        writer.event(event).unwrap();
    }
    writer.finish(Ending::Signaled(9), 3, vec!["a remark".into()]).unwrap().1
}

#[test]
fn what_is_written_comes_back() {
    for seed in 0..30 {
        let events = events(seed, 40 + seed as usize * 50);
        let trace = Trace::read(&written(&events)[..], &Budget::default())
            .unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_eq!(trace.events, events, "seed {seed}");
        assert_eq!(trace.header, header());
        let faults = events.iter().filter(|e| matches!(e.kind, EventKind::Fault(_))).count() as u64;
        let expect = Trailer {
            events: events.len() as u64,
            faults,
            lost: 3,
            remarks: vec!["a remark".into()],
            ending: Ending::Signaled(9),
        };
        assert_eq!(trace.trailer, expect);
    }
}

#[test]
fn many_blocks_come_back() {
    let events = events(5, 60_000);
    let bytes = written(&events);
    assert_eq!(Trace::read(&bytes[..], &Budget::default()).unwrap().events, events);
}

#[test]
fn every_flipped_bit_is_noticed() {
    let bytes = written(&events(7, 120));
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << bit;
            assert!(Trace::read(&bad[..], &Budget::default()).is_err(), "byte {at}, bit {bit}");
        }
    }
}

#[test]
fn every_truncation_is_noticed() {
    let bytes = written(&events(8, 120));
    assert!(matches!(Trace::read(&bytes[..0], &Budget::default()), Err(TraceError::NotATrace)));
    for length in 1..bytes.len() {
        let result = Trace::read(&bytes[..length], &Budget::default());
        assert!(matches!(result, Err(TraceError::Truncated { .. })), "{length}: {result:?}");
    }
    let mut longer = bytes;
    longer.push(0);
    assert!(matches!(Trace::read(&longer[..], &Budget::default()), Err(TraceError::TrailingBytes)));
}

#[test]
fn truncation_tells_how_many_events_are_whole() {
    let events = events(9, 60_000);
    let bytes = written(&events);
    let cut = &bytes[..bytes.len() - 40];
    let mut reader = Reader::new(cut, &Budget::default()).unwrap();
    let whole = reader.by_ref().take_while(|e| e.is_ok()).count() as u64;
    let Err(TraceError::Truncated { events }) = Trace::read(cut, &Budget::default()) else {
        panic!("not truncated")
    };
    assert_eq!(events, whole);
    assert!(reader.trailer().is_none());
}

#[test]
fn blocks_that_change_places_are_noticed() {
    let bytes = written(&events(10, 60_000));
    let head = 8 + 2 + 4 + u32::from_le_bytes(bytes[10..14].try_into().unwrap()) as usize + 4;
    let block =
        |at: usize| 17 + u32::from_le_bytes(bytes[at + 9..at + 13].try_into().unwrap()) as usize;
    let (first, second) = (block(head), block(head + block(head)));
    let mut bad = bytes[..head].to_vec();
    bad.extend(&bytes[head + first..head + first + second]);
    bad.extend(&bytes[head..head + first]);
    bad.extend(&bytes[head + first + second..]);
    assert!(matches!(
        Trace::read(&bad[..], &Budget::default()),
        Err(TraceError::CorruptBlock { block: 0, .. })
    ));
}

/// A file of the first version knows no names, and none is longer than a file's.
#[test]
fn names_are_of_version_2_and_of_a_files_length() {
    let name = |text: String| Event {
        time_ns: 0,
        thread: ThreadId(0),
        space: SpaceId(0),
        kind: EventKind::Name { range: VaRange::default(), name: Name::File(text) },
    };
    let mut all = events(3, 1);
    all[0].time_ns = 0;
    all.push(name("x".repeat(255)));
    let bytes = written(&all);
    assert_eq!(Trace::read(&bytes[..], &Budget::default()).unwrap().events, all);
    let older = |mut bytes: Vec<u8>| {
        bytes[8] = 1;
        let head = 14 + u32::from_le_bytes(bytes[10..14].try_into().unwrap()) as usize;
        let sum = crc32fast::hash(&bytes[..head]).to_le_bytes();
        bytes[head..head + 4].copy_from_slice(&sum);
        Trace::read(&bytes[..], &Budget::default())
    };
    let refused = older(bytes).unwrap_err().to_string();
    assert!(refused.contains("an event's kind is unknown"), "{refused}");
    all.pop();
    assert_eq!(older(written(&all)).unwrap().events, all, "and all else is read as before");
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    writer.event(&all[0]).unwrap();
    assert!(writer.event(&name("x".repeat(256))).is_err());
}

/// Files of the first two versions know no objects, and none is larger than addresses go.
#[test]
fn objects_are_of_version_3() {
    let of = |kind| Event { time_ns: 0, thread: ThreadId(0), space: SpaceId(0), kind };
    let (object, range) = (ObjectId(u32::MAX), VaRange::default());
    let most = 1 << 44;
    let about = |room| {
        let present = vec![range];
        EventKind::Object { object, backing: Backing::SystemV, room, present }
    };
    let kinds = [
        about(most),
        EventKind::Attach { range, object, first: most },
        EventKind::Punch { object, pages: range },
    ];
    for kind in kinds {
        let mut all = events(3, 1);
        all[0].time_ns = 0;
        all.push(of(kind));
        let mut bytes = written(&all);
        assert_eq!(Trace::read(&bytes[..], &Budget::default()).unwrap().events, all);
        bytes[8] = 2;
        let head = 14 + u32::from_le_bytes(bytes[10..14].try_into().unwrap()) as usize;
        let sum = crc32fast::hash(&bytes[..head]).to_le_bytes();
        bytes[head..head + 4].copy_from_slice(&sum);
        let refused = Trace::read(&bytes[..], &Budget::default()).unwrap_err().to_string();
        assert!(refused.contains("an event's kind is unknown"), "{refused}");
    }
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    writer.event(&events(3, 1)[0]).unwrap();
    for kind in [about(most + 1), EventKind::Attach { range, object, first: most + 1 }] {
        assert!(writer.event(&of(kind)).is_err());
    }
}

#[test]
fn foreign_and_newer_files_are_named() {
    assert!(matches!(
        Trace::read(&b"#!/bin/sh\necho"[..], &Budget::default()),
        Err(TraceError::NotATrace)
    ));
    let mut newer = written(&[]);
    newer[8] = 9;
    let error = Trace::read(&newer[..], &Budget::default()).unwrap_err();
    assert!(matches!(error, TraceError::NewerVersion { file: 9, known: VERSION }));
    assert_eq!(
        error.to_string(),
        "the trace has version 9, this program reads up to 3; use a newer foliant"
    );
}

/// Hostile bytes with good checksums: what random blocks decode to must be events or an error.
#[test]
fn hostile_blocks_are_refused_or_read() {
    let head = written(&[]);
    let head = &head[..head.len() - 17 - trailer_length(&head)];
    let mut r = Random(11);
    let mut refused = 0;
    for _ in 0..3000 {
        let raw: Vec<u8> = (0..1 + r.below(60)).map(|_| r.below(256) as u8).collect();
        let packed = miniz_oxide::deflate::compress_to_vec(&raw, 1);
        let mut block = vec![b'E'];
        let events = 1 + r.below(3) as u32;
        for n in [events, raw.len() as u32, packed.len() as u32] {
            block.extend(n.to_le_bytes());
        }
        let mut crc = crc32fast::Hasher::new();
        crc.update(&0u64.to_le_bytes());
        crc.update(&block);
        crc.update(&packed);
        block.extend(crc.finalize().to_le_bytes());
        block.extend(packed);
        let file = [head, &block].concat();
        let mut reader = Reader::new(&file[..], &Budget::default()).unwrap();
        assert!(reader.by_ref().take(10).any(|e| e.is_err()), "it has no trailer");
        refused += 1;
    }
    assert_eq!(refused, 3000);
}

fn trailer_length(bytes: &[u8]) -> usize {
    // An empty trace: header, then the trailer's block to the end.
    let head = 8 + 2 + 4 + u32::from_le_bytes(bytes[10..14].try_into().unwrap()) as usize + 4;
    bytes.len() - head - 17
}

#[test]
fn lengths_that_lie_allocate_nothing() {
    let mut bytes = b"FOLTRACE\x01\x00".to_vec();
    bytes.extend(u32::MAX.to_le_bytes());
    assert!(matches!(
        Trace::read(&bytes[..], &Budget::default()),
        Err(TraceError::BadHeader { .. })
    ));
    let mut bytes = written(&[]);
    let at = bytes.len() - 17 - trailer_length(&bytes);
    bytes[at + 9..at + 13].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(
        Trace::read(&bytes[..], &Budget::default()),
        Err(TraceError::CorruptBlock { .. })
    ));
}

#[test]
fn the_writer_refuses_what_breaks_the_rules() {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    let exec = Exec { program: "p".into(), brk: Va::new(0), areas: vec![], present: vec![] };
    let event = |time_ns, kind| Event { time_ns, thread: ThreadId(0), space: SpaceId(0), kind };
    let refused =
        |r: Result<(), TraceError>| assert!(matches!(r, Err(TraceError::BadEvent { .. })));
    refused(writer.event(&event(0, EventKind::Exit { last: true })));
    writer.event(&event(5, EventKind::Exec(exec))).unwrap();
    refused(writer.event(&event(4, EventKind::Exit { last: true })));
    refused(writer.event(&event(6, EventKind::Exit { last: false })));
    let odd = VaRange::new(Va::new(1), Va::new(4096)).unwrap();
    refused(writer.event(&event(6, EventKind::Unmap { range: odd })));
    let far = VaRange::new(Va::new(1 << 60), Va::new((1 << 60) + 4096)).unwrap();
    let advice = advice::DONTNEED;
    refused(writer.event(&event(6, EventKind::Advise { range: far, advice })));
    writer.event(&event(6, EventKind::Exit { last: true })).unwrap();
    let (trailer, bytes) = writer.finish(Ending::Exited(0), 0, vec![]).unwrap();
    assert_eq!((trailer.events, trailer.is_complete()), (2, true));
    assert_eq!(Trace::read(&bytes[..], &Budget::default()).unwrap().events.len(), 2);
}

/// Nothing that a trace can say makes the model or the summary panic.
#[test]
fn models_take_any_sound_trace() {
    for seed in 0..300 {
        let mut events = events(seed, 400);
        classify(&mut events, &Budget::default()).unwrap();
        let report = naive_replay(&events, &Budget::default()).unwrap();
        let replayed = report.recorded_anonymous_faults + report.recorded_shared_faults;
        let all = replayed + report.other_faults + report.refused;
        let description = describe(&events, &Budget::default()).unwrap();
        assert_eq!(all, description.faults_all, "seed {seed}");
    }
}
