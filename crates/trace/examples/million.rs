//! Makes a recording of so many faults and times what `foliant advise` does with it:
//! `million [FAULTS [FILE]]`.

use foliant_trace::format::{AccessSource, Ending, Header};
use foliant_trace::replay::{Choice, Plan, Settings, Shared, Trial, explain_all, replay_all};
use foliant_trace::{
    Access, Area, AreaKind, Budget, Event, EventKind, Exec, Fault, Found, MapFlags, Name, Origin,
    Prot, Site, Source, SpaceId, Standing, ThreadId, TraceError, Writer,
};
use foliant_units::{Bytes, FRAME_BYTES, Va, VaRange};
use std::time::Instant;

/// Pages of a mapping; four times as many lie between two.
const PAGES: u64 = 4096;

fn header() -> Header {
    let unknown = || "none".to_owned();
    Header {
        command: vec!["million".to_owned()],
        kernel: unknown(),
        processor: unknown(),
        cpus: 2,
        page_bytes: FRAME_BYTES as u32,
        unix_seconds: 0,
        access_source: AccessSource::Inferred,
        kernel_faults: true,
        recorder: unknown(),
    }
}

fn write_to(va: u64) -> EventKind {
    EventKind::Fault(Fault {
        va: Va::new(va),
        access: Access::Write,
        origin: Origin::User,
        source: Source::Hardware,
        found: Found::Absent,
        standing: Standing::Regular,
    })
}

/// A program with so many faults: mappings of three quarters of 16 MiB, touched in order or not;
/// half of them are given back.
fn recording(faults: u64) -> Result<Vec<u8>, TraceError> {
    let mut writer = Writer::new(Vec::new(), &header())?;
    let mut time_ns = 0;
    let mut tell = |kind| {
        time_ns += 500;
        writer.event(&Event { time_ns, thread: ThreadId(0), space: SpaceId(0), kind })
    };
    let (program, brk) = ("/bin/million".to_owned(), Va::new(1 << 32));
    tell(EventKind::Exec(Exec { program, brk, areas: Vec::new(), present: Vec::new() }))?;
    let (mut told, mut map, mut seed) = (0, 0, 1u64);
    while told < faults {
        let start = (1 << 40) + map * 4 * PAGES * FRAME_BYTES;
        let range = VaRange::sized(Va::new(start), Bytes::new(PAGES * FRAME_BYTES));
        let range = range.unwrap_or_default();
        let (prot, kind, flags) = (Prot::RW, AreaKind::Anonymous, MapFlags::NONE);
        tell(EventKind::Map(Area { range, prot, kind, flags }))?;
        let site = Site { object: "million".to_owned(), offset: 0x1000 + map % 4 * 16 };
        let name = Name::Made { site: Some(site), through: None };
        tell(EventKind::Name { range, name })?;
        for page in 0..PAGES {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            if seed >> 33 & 3 == 0 {
                continue;
            }
            let at = if map % 2 == 0 { page } else { page * 1021 % PAGES };
            tell(write_to(start + at * FRAME_BYTES))?;
            told += 1;
        }
        if map % 4 > 1 {
            tell(EventKind::Unmap { range })?;
        }
        map += 1;
    }
    tell(EventKind::Exit { last: true })?;
    Ok(writer.finish(Ending::Exited(0), 0, Vec::new())?.1)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let faults = args.next().map_or(Ok(1_000_000), |n| n.parse())?;
    let clock = Instant::now();
    let bytes = recording(faults)?;
    println!("written   {:?}, {} bytes", clock.elapsed(), bytes.len());
    if let Some(path) = args.next() {
        std::fs::write(path, &bytes)?;
    }
    let clock = Instant::now();
    let (_, plan) = Plan::read(&bytes[..], Shared::Replayed, &Budget::unlimited())?;
    println!("planned   {:?}, {} steps", clock.elapsed(), plan.steps());
    let clock = Instant::now();
    let settings = Settings::default();
    replay_all(&plan, &Choice::all(), &settings, |_| ())?;
    println!("replayed  {:?}", clock.elapsed());
    let clock = Instant::now();
    let trials: Vec<Trial> = Choice::all().into_iter().map(Trial::from).collect();
    explain_all(&plan, &trials, &settings, |_| ())?;
    println!("explained {:?}", clock.elapsed());
    let status = std::fs::read_to_string("/proc/self/status")?;
    status.lines().filter(|line| line.starts_with("VmHWM")).for_each(|line| println!("{line}"));
    Ok(())
}
