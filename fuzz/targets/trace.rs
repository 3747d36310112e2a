//! Trace files, and what is done with the events of one.
//!
//! A file is checksummed throughout, so bytes that change at random never get past the first sum.
//! So the first byte of an input says what the rest is: a whole file as it is; the header of a file
//! that is sealed here; or the events of one block. The sealing is written after the format's
//! description, not with the crate's own writer.
#![no_main]

use foliant_trace::replay::{Choice, Plan, Settings, replay};
use foliant_trace::{
    Budget, Ending, Event, EventKind, Reader, Trace, Writer, describe, naive_replay,
};
use foliant_units::{Bytes, Order};
use libfuzzer_sys::fuzz_target;

/// More pages than this in one event are read and described, but not replayed: it would take long
/// and show nothing new.
const REPLAYED_MAX: u64 = 1 << 14;

fuzz_target!(|data: &[u8]| {
    let Some((how, rest)) = data.split_first() else { return };
    match how % 4 {
        0 => drop(Trace::read(rest, &budget()).map_err(|error| error.to_string())),
        1 => drop(
            Trace::read(&sealed_header(rest)[..], &budget()).map_err(|error| error.to_string()),
        ),
        // The number of events stands before them: one that does not fit is refused as well.
        _ => block(rest.first().map_or(0, |n| u32::from(*n)), rest.get(1..).unwrap_or_default()),
    }
});

/// Enough for a block of 4 MiB, and for the machine that replays.
fn budget() -> Budget {
    Budget::of(Bytes::new(512 << 20))
}

/// A file with this header and nothing behind it.
fn sealed_header(body: &[u8]) -> Vec<u8> {
    let mut file = b"FOLTRACE\x01\x00".to_vec();
    file.extend((body.len() as u32).to_le_bytes());
    file.extend(body);
    let sum = crc32fast::hash(&file);
    file.extend(sum.to_le_bytes());
    file
}

/// A file with one block of `count` events: as many of them as are good are looked at.
fn block(count: u32, raw: &[u8]) {
    let (header, mut file) = head();
    let packed = miniz_oxide::deflate::compress_to_vec(raw, 1);
    let mut start = b"E".to_vec();
    for number in [count, raw.len() as u32, packed.len() as u32] {
        start.extend(number.to_le_bytes());
    }
    let mut sum = crc32fast::Hasher::new();
    sum.update(&0u64.to_le_bytes());
    sum.update(&start);
    sum.update(&packed);
    file.extend(start);
    file.extend(sum.finalize().to_le_bytes());
    file.extend(packed);
    let mut reader =
        Reader::new(&file[..], &budget()).expect("the header was written by the crate");
    let mut events: Vec<Event> = Vec::new();
    for event in reader.by_ref() {
        match event {
            Ok(event) => events.push(event),
            Err(error) => drop(error.to_string()),
        }
    }
    assert!(events.len() <= count as usize);
    written(&header, &events);
    used(&events);
}

/// A header, and the file that begins with it.
fn head() -> (foliant_trace::Header, Vec<u8>) {
    let header = foliant_trace::Header {
        command: vec!["true".into()],
        kernel: String::new(),
        processor: String::new(),
        cpus: 1,
        page_bytes: 4096,
        unix_seconds: 0,
        access_source: foliant_trace::AccessSource::Decoded,
        kernel_faults: true,
        recorder: String::new(),
    };
    let mut file = Vec::new();
    Writer::new(&mut file, &header).expect("a small header");
    (header, file)
}

/// What was read can be written, and is read as the same again.
fn written(header: &foliant_trace::Header, events: &[Event]) {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, header).expect("a small header");
    for event in events {
        writer.event(event).expect("what was read can be written");
    }
    writer.finish(Ending::Exited(0), 0, Vec::new()).expect("a file in memory");
    let again = Trace::read(&file[..], &Budget::default()).expect("what was written can be read");
    assert_eq!((&again.header, &again.events[..]), (header, events));
}

fn used(events: &[Event]) {
    let Ok(description) = describe(events, &budget()) else { return };
    assert_eq!(description.events, events.len() as u64);
    if events.iter().any(|event| pages(&event.kind) > REPLAYED_MAX) {
        return;
    }
    let Ok(report) = naive_replay(events, &budget()) else { return };
    let plan = match Plan::new(events, &budget()) {
        Ok(plan) => plan,
        Err(error) => return drop(error.to_string()),
    };
    let memory = Some(Bytes::new(64 << 20));
    let settings = Settings { memory, ..Settings::default() };
    for choice in [Choice::BASE, Choice::Only(Order::SIZE_2M)] {
        match replay(&plan, choice, &settings, |_| ()) {
            // At 4 KiB exactly the recorded faults, where the naive model has nothing against them.
            Ok(row) if choice == Choice::BASE && report.mismatched == 0 => {
                assert_eq!(row.anonymous_faults, plan.recorded_anonymous_faults);
                assert_eq!(row.shared_faults, plan.recorded_shared_faults);
            }
            Ok(_) => {}
            Err(error) => drop(error.to_string()),
        }
    }
}

/// The most pages that an event is about.
fn pages(kind: &EventKind) -> u64 {
    let ranges: Vec<foliant_units::VaRange> = match kind {
        EventKind::Exec(exec) => exec.areas.iter().map(|area| area.range).collect(),
        EventKind::Map(area) => vec![area.range],
        EventKind::Unmap { range } => vec![*range],
        EventKind::Remap { old, new, .. } => vec![*old, *new],
        EventKind::Object { present, .. } => present.clone(),
        EventKind::Attach { range, .. } => vec![*range],
        _ => Vec::new(),
    };
    ranges.iter().map(|range| range.pages().get()).max().unwrap_or(0)
}
