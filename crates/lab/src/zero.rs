//! `zero`: what clearing huge pages costs. The zero grain is bytes per clear; a page at a time is
//! the baseline.
//!
//! CPU 0 touches an area in huge folios, once per row, each time in its middle. The rows differ in
//! how memory is cleared:
//!
//! ```text
//!   page at a time     grain 4 KiB
//!   extents            whole grain, all of it kept in the caches
//!   plan               whole grain, the far part as the CPU measures to be best; preemption points by the clock
//!   lent block         one large block for the kernel itself, by plan: without a fault, long enough for preemption points
//!   known zero         as the plan, after free memory was cleared ahead
//!   PRIMITIVE, GRAIN   a lent block, without a fault; where the machine tells its primitives apart
//! ```
//!
//! Each folio takes a cleared table for the day when it is split; that is among `cleared_bytes`.

use crate::ground::{Ground, PAGE};
use crate::meter::Meter;
use crate::named::Named;
use crate::parameters::About;
use crate::{Kind, LabError, Parameter, Parameters, Ratio, Report, Row, Stage};
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use foliant::fault::Orders;
use foliant::zero::{Clearing, Far, ZeroGrain};
use foliant::{Access, Event, FlushGrain, Policy};
use foliant_units::{Bytes, FRAME_BYTES, Nanos, Order};

/// No preemption points.
const NEVER: Nanos = Nanos(u64::MAX);

/// See the module's text.
pub(crate) const SCENARIO: About = About {
    name: "zero",
    purpose: "huge folios are cleared page by page, in extents, by plan, or are known to be zero",
    parameters: &[
        Parameter {
            name: "bytes",
            default: "16m",
            kind: Kind::Size(Bytes::SIZE_2M, Bytes::SIZE_1G),
            about: "what is touched",
        },
        Parameter {
            name: "block",
            default: "64m",
            kind: Kind::Size(Bytes::SIZE_2M, Bytes::SIZE_1G),
            about: "what is lent cleared, in one block of the next power of two",
        },
    ],
};

pub(crate) fn run<'m, S: Stage<'m>>(
    stage: &S,
    parameters: &Parameters,
) -> Result<Report, LabError> {
    let bytes = parameters.size("bytes");
    let before = stage.manager().clearing();
    let rows = rows(stage, bytes, parameters.size("block"));
    stage.manager().set_clearing(before);
    let rows = rows?;
    let ratios = ratios(&rows);
    Ok(Report::of((&SCENARIO, parameters), stage, PAGE.to_string(), rows, ratios))
}

fn rows<'m, S: Stage<'m>>(stage: &S, bytes: Bytes, block: Bytes) -> Result<Vec<Row>, LabError> {
    let plan = Clearing::default();
    let extents = Clearing { far: Far::Cached, budget: NEVER, ..plan };
    let page = Clearing { grain: ZeroGrain::PAGE, ..extents };
    let mut rows = Vec::new();
    for (name, clearing) in [("page at a time", page), ("extents", extents), ("plan", plan)] {
        stage.go_on()?;
        rows.push(row(stage, bytes, name, clearing)?);
    }
    rows.push(lent(stage, block, plan)?);
    stage.manager().clear_ahead(NEVER);
    rows.push(row(stage, bytes, "known zero", plan)?);
    for (nth, name) in stage.primitives().into_iter().enumerate() {
        for grain in [Bytes::new(FRAME_BYTES), Bytes::new(64 << 10), Bytes::SIZE_2M] {
            stage.go_on()?;
            rows.push(primitive(stage, (nth, &name), grain)?);
        }
    }
    Ok(rows)
}

fn row<'m, S: Stage<'m>>(
    stage: &S,
    bytes: Bytes,
    name: &'static str,
    clearing: Clearing,
) -> Result<Row, LabError> {
    let policy = Policy::always(Orders::of(Order::SIZE_2M));
    let ground = Ground::new(stage, bytes, policy, FlushGrain::WHOLE)?;
    counted(stage, name, (bytes, clearing), || {
        Ok(stage.touch(ground.space, ground.area, Bytes::SIZE_2M, Access::Write)?)
    })
}

fn lent<'m, S: Stage<'m>>(stage: &S, bytes: Bytes, clearing: Clearing) -> Result<Row, LabError> {
    let manager = stage.manager();
    let order = Order::fitting(bytes).ok_or(LabError::NoMemory)?;
    // The first loan nearby makes the bits that say what is lent: not counted here.
    let near = manager.lend(order).map_err(|_| LabError::NoMemory)?;
    let back = manager.take_back(near, order);
    assert!(back.is_ok(), "it was lent just now: {back:?}");
    let mut block = None;
    let row = counted(stage, "lent block", (order.bytes(), clearing), || {
        block = Some(manager.lend_cleared(order).map_err(|_| LabError::NoMemory)?);
        Ok(())
    });
    if let Some(block) = block {
        let back = manager.take_back(block, order);
        assert!(back.is_ok(), "it was lent just now: {back:?}");
    }
    row
}

/// What `work` on `bytes` of memory counts, with memory cleared as `clearing` says.
fn counted<'m, S: Stage<'m>>(
    stage: &S,
    name: &'static str,
    (bytes, clearing): (Bytes, Clearing),
    work: impl FnOnce() -> Result<(), LabError>,
) -> Result<Row, LabError> {
    let manager = stage.manager();
    manager.set_clearing(clearing);
    let events = [Event::ZeroExtents, Event::ZeroYields, Event::SparedBytes];
    let counts = || events.map(|event| manager.total(event));
    let (earlier, begun) = (counts(), Meter::read(stage));
    work()?;
    let span = begun.until_now(stage);
    let now = counts();
    let [extents, yields, spared] = [0, 1, 2].map(|n| now[n] - earlier[n]);
    let clear = span.machine.clear_ticks;
    Ok(Row {
        name: name.into(),
        counts: Named::from_iter([
            ("faults", span.faults),
            ("cleared_bytes", span.machine.cleared_bytes),
            ("spared_bytes", spared),
            ("extents", extents),
            ("preemption_points", yields),
        ]),
        pages: bytes.get() / FRAME_BYTES,
        ticks: Named::from_iter([("clearing", clear), ("rest", span.ticks.saturating_sub(clear))]),
    })
}

fn primitive<'m, S: Stage<'m>>(
    stage: &S,
    (nth, name): (usize, &str),
    grain: Bytes,
) -> Result<Row, LabError> {
    let manager = stage.manager();
    let block = manager.lend(Order::SIZE_2M).map_err(|_| LabError::NoMemory)?;
    stage.clear_with(nth, (block, Order::SIZE_2M), grain); // a warm-up
    let begun = stage.ticks();
    stage.clear_with(nth, (block, Order::SIZE_2M), grain);
    let ticks = stage.ticks().saturating_sub(begun);
    let back = manager.take_back(block, Order::SIZE_2M);
    assert!(back.is_ok(), "it was lent just now: {back:?}");
    Ok(Row {
        name: format!("{name}, {grain}").into(),
        counts: Named::from_iter([("stored_bytes", Bytes::SIZE_2M.get())]),
        pages: Order::SIZE_2M.pages().get(),
        ticks: Named::from_iter([("clearing", ticks), ("rest", 0)]),
    })
}

/// Extents and ticks of clearing, a page at a time to each other way of a fault.
fn ratios(rows: &[Row]) -> Vec<Ratio> {
    let Some((first, others)) = rows.split_first() else { return Vec::new() };
    let of = |what: &str, row: &Row| {
        let found = row.counts.get(what).or_else(|| row.ticks.get(what));
        found.copied().unwrap_or_default()
    };
    let pair = |other: &Row| {
        ["extents", "clearing"].map(|what| Ratio {
            name: format!("{what}, {} to {}", first.name, other.name).into(),
            of: of(what, first),
            to: of(what, other),
        })
    };
    // The rows that clear as much, by faults.
    others.iter().take(2).flat_map(pair).collect()
}
