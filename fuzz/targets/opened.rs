//! What looks at the events of a recording, alone: the describer, the naive model and the planner,
//! each with a small budget.
//!
//! The target `trace` spends its time on files and machines. Here the input is events from the
//! start, so that thousands of stories are told in a second, and an allocator watches them: it
//! gives nothing beyond the budget, which ends the process.
#![no_main]
#![allow(unsafe_code)]

use arbitrary::{Result, Unstructured};
use foliant_trace::replay::{Plan, PlanError};
use foliant_trace::{
    Access, Area, AreaKind, Backing, Budget, Event, EventKind, Exec, Fault, Found, Lineage,
    MapFlags, Name, ObjectId, Origin, Prot, Site, Source, SpaceId, Standing, ThreadId, describe,
    naive_replay,
};
use foliant_units::{Bytes, FRAME_BYTES, Va, VaRange};
use libfuzzer_sys::fuzz_target;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

/// What each of the three may take: with it goes a second's work at most.
const BUDGET: Bytes = Bytes::new(2 << 20);
/// Events of a story.
const EVENTS_MAX: usize = 512;
/// Ranges end at or below this address.
const VA_MAX: u64 = 1 << 56;

/// The system's allocator up to a limit.
struct Watching;

static NOW: AtomicU64 = AtomicU64::new(0);
static LIMIT: AtomicU64 = AtomicU64::new(u64::MAX);

// SAFETY: memory comes from the system's allocator, or none is given.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let size = layout.size() as u64;
        let is_over = NOW.fetch_add(size, Ordering::Relaxed) + size > LIMIT.load(Ordering::Relaxed);
        // A panic has its say first, which takes memory too.
        if is_over && !std::thread::panicking() {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watching = Watching;

fuzz_target!(|data: &[u8]| {
    let events = story(&mut Unstructured::new(data));
    watched(|budget| {
        describe(&events, budget).is_ok_and(|told| told.events != events.len() as u64)
    });
    watched(|budget| {
        naive_replay(&events, budget).is_ok_and(|told| {
            told.predicted > told.recorded_anonymous_faults + told.recorded_shared_faults
        })
    });
    watched(|budget| {
        matches!(Plan::new(&events, budget), Err(PlanError::Broken { .. } | PlanError::Unread(_)))
    });
});

/// Carries out `work` with a budget and no memory beyond it; `work` says whether something is
/// wrong.
fn watched(work: impl FnOnce(&Budget) -> bool) {
    let budget = Budget::of(BUDGET);
    LIMIT.store(NOW.load(Ordering::Relaxed) + BUDGET.get(), Ordering::Relaxed);
    let wrong = work(&budget);
    LIMIT.store(u64::MAX, Ordering::Relaxed);
    assert!(!wrong, "a story that obeys all rules was told wrongly");
    assert_eq!(budget.held(), Bytes::new(0), "all is given back");
}

/// Events that obey the rules of a trace, as many as the input has bytes for.
fn story(input: &mut Unstructured<'_>) -> Vec<Event> {
    let (mut lineage, mut events, mut alive) = (Lineage::new(), Vec::new(), Vec::new());
    while events.len() < EVENTS_MAX && (!input.is_empty() || events.is_empty()) {
        let Ok(event) = event(input, &lineage, &alive, events.len()) else { break };
        if lineage.apply(&event).is_err() {
            continue;
        }
        alive = (0..lineage.threads())
            .map(ThreadId)
            .filter(|t| lineage.space_of(*t).is_some())
            .collect();
        events.push(event);
    }
    events
}

fn event(
    input: &mut Unstructured<'_>,
    lineage: &Lineage,
    alive: &[ThreadId],
    at: usize,
) -> Result<Event> {
    let thread = match alive.len() {
        0 => ThreadId(lineage.threads()),
        n => alive[input.choose_index(n)?],
    };
    let here = lineage.space_of(thread);
    let next = SpaceId(lineage.spaces());
    let born = ThreadId(lineage.threads());
    let kind = match if here.is_none() { 0 } else { input.int_in_range(0..=17)? } {
        0 => EventKind::Exec(exec(input)?),
        1 => EventKind::Fork { child: next, thread: born },
        2 => EventKind::Share { thread: born, process: input.arbitrary()? },
        3 => EventKind::Exit { last: here.is_some_and(|space| lineage.residents(space) == 1) },
        4 => EventKind::Map(area(input)?),
        5 => EventKind::Unmap { range: range(input)? },
        6 => EventKind::Protect { range: range(input)?, prot: prot(input)? },
        7 => EventKind::Remap {
            old: range(input)?,
            new: range(input)?,
            keep_old: input.arbitrary()?,
        },
        8 => EventKind::Advise { range: range(input)?, advice: input.int_in_range(0..=110)? },
        9 => EventKind::Brk { old: range(input)?.start(), new: range(input)?.start() },
        10 => EventKind::Populate { range: range(input)?, access: access(input)? },
        11 => EventKind::ThpPrctl { args: [input.int_in_range(0..=3)?, 0] },
        12 => EventKind::Name { range: range(input)?, name: name(input)? },
        13 => EventKind::Object {
            object: object(input)?,
            backing: *input.choose(&[Backing::Anonymous, Backing::File, Backing::SystemV])?,
            room: range(input)?.pages().get(),
            present: if input.arbitrary()? { vec![range(input)?] } else { Vec::new() },
        },
        14 => EventKind::Attach {
            range: range(input)?,
            object: object(input)?,
            first: range(input)?.pages().get(),
        },
        15 => EventKind::Punch { object: object(input)?, pages: range(input)? },
        _ => EventKind::Fault(Fault {
            va: Va::new(if input.ratio(1, 16)? {
                input.arbitrary()?
            } else {
                range(input)?.start().get()
            }),
            access: access(input)?,
            origin: *input.choose(&[Origin::User, Origin::Kernel])?,
            source: *input.choose(&[Source::Hardware, Source::Inferred])?,
            found: *input.choose(&[Found::Unknown, Found::Absent, Found::Protected])?,
            standing: *input.choose(&[Standing::Regular, Standing::Raced, Standing::Stale])?,
        }),
    };
    let space = match (&kind, here) {
        (EventKind::Exec(_), _) | (_, None) => next,
        (_, Some(space)) => space,
    };
    Ok(Event { time_ns: at as u64 * 1_000_000, thread, space, kind })
}

fn object(input: &mut Unstructured<'_>) -> Result<ObjectId> {
    Ok(ObjectId(input.int_in_range(0..=3)?))
}

fn exec(input: &mut Unstructured<'_>) -> Result<Exec> {
    let mut areas = Vec::new();
    for _ in 0..input.int_in_range(0..=4)? {
        areas.push(area(input)?);
    }
    let present = if input.arbitrary()? { vec![range(input)?] } else { Vec::new() };
    let program = "p".repeat(input.int_in_range(0..=200)?);
    Ok(Exec { program, brk: range(input)?.start(), areas, present })
}

fn area(input: &mut Unstructured<'_>) -> Result<Area> {
    let kinds = [AreaKind::Anonymous, AreaKind::Heap, AreaKind::Stack, AreaKind::FilePrivate];
    let others = [AreaKind::FileShared, AreaKind::SharedAnonymous, AreaKind::Special];
    let kind = if input.ratio(3, 4)? { *input.choose(&kinds)? } else { *input.choose(&others)? };
    let flags = MapFlags::from_bits(input.int_in_range(0..=127)?).unwrap_or_default();
    Ok(Area { range: range(input)?, prot: prot(input)?, kind, flags })
}

fn prot(input: &mut Unstructured<'_>) -> Result<Prot> {
    let rights = Prot::from_bits(input.int_in_range(0..=7)?).unwrap_or_default();
    Ok(if input.arbitrary()? { Prot::RW } else { rights })
}

fn name(input: &mut Unstructured<'_>) -> Result<Name> {
    let text = |input: &mut Unstructured<'_>| Ok("x".repeat(input.int_in_range(0..=255)?));
    Ok(match input.int_in_range(0..=2)? {
        0 => Name::File(text(input)?),
        1 => Name::Stack(ThreadId(input.arbitrary()?)),
        _ => {
            let site = Site { object: text(input)?, offset: input.arbitrary()? };
            Name::Made { site: Some(site), through: Some(text(input)?) }
        }
    })
}

fn access(input: &mut Unstructured<'_>) -> Result<Access> {
    Ok(*input.choose(&[Access::Write, Access::Read, Access::Exec])?)
}

/// Most ranges are small and close to each other, so that they meet; some are of any size up to all
/// there is.
fn range(input: &mut Unstructured<'_>) -> Result<VaRange> {
    let shift = if input.ratio(7, 8)? { 0 } else { input.int_in_range(0..=44)? };
    let start = (u64::from(input.arbitrary::<u8>()?) << shift) * FRAME_BYTES % VA_MAX;
    let bytes = (u64::from(input.arbitrary::<u8>()?) << shift) * FRAME_BYTES % VA_MAX;
    let end = start.saturating_add(bytes).min(VA_MAX);
    Ok(VaRange::new(Va::new(start), Va::new(end)).unwrap_or_default())
}
