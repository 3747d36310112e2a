//! `faults`: what touching memory costs at several folio sizes. The fault grain is the folio; 4 KiB
//! is the baseline.
//!
//! Each CPU has a slice of the area. CPU 0 writes a word to each page of its slice alone, which
//! gives the ticks; then all others write to theirs at once. The counts are those of all slices
//! together:
//!
//! ```text
//!   frames_used = pages, rounded up to folios (a slice is a multiple of 2 MiB, so there is nothing to round)
//!               + tables made
//!               + one table for each 2 MiB leaf, kept for the day when the leaf is split
//! ```
//!
//! Page-table words that lock and unlock a table are among `entries_written`. Nothing that happens
//! once is in a row: the descriptors of all memory and the upper tables are there before.

use crate::ground::{Ground, cpus, only};
use crate::meter::Meter;
use crate::named::Named;
use crate::parameters::About;
use crate::{Kind, LabError, Parameter, Parameters, Ratio, Report, Row, Stage};
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use foliant::table::Entry;
use foliant::{Access, FlushGrain};
use foliant_units::{Bytes, Order, Va, VaRange};

/// See the module's text.
pub(crate) const SCENARIO: About = About {
    name: "faults",
    purpose: "all CPUs of one space touch memory, at several folio sizes",
    parameters: &[
        Parameter {
            name: "bytes",
            default: "8m",
            kind: Kind::Size(Bytes::SIZE_2M, Bytes::SIZE_1G),
            about: "what each CPU touches",
        },
        Parameter {
            name: "sizes",
            default: "4k,64k,2m",
            kind: Kind::Orders,
            about: "the folio sizes; ratios are to the first",
        },
    ],
};

pub(crate) fn run<'m, S: Stage<'m>>(
    stage: &S,
    parameters: &Parameters,
) -> Result<Report, LabError> {
    let each = parameters.size("bytes");
    let sizes = parameters.orders("sizes");
    let rows: Vec<Row> =
        sizes.iter().map(|size| row(stage, each, *size)).collect::<Result<_, _>>()?;
    let ratios = ratios(&rows);
    Ok(Report::of((&SCENARIO, parameters), stage, crate::ground::PAGE.to_string(), rows, ratios))
}

/// The slice of the CPU with this number.
fn slice(area: VaRange, each: Bytes, cpu: u64) -> VaRange {
    let start = area.start().get().saturating_add(each.get().saturating_mul(cpu));
    VaRange::sized(Va::new(start), each).map_or(area, |slice| area.intersect(slice))
}

fn row<'m, S: Stage<'m>>(stage: &S, each: Bytes, size: Order) -> Result<Row, LabError> {
    stage.go_on()?;
    let all = Bytes::new(each.get().saturating_mul(cpus(stage).0.into()));
    let ground = Ground::new(stage, all, only(size), FlushGrain::WHOLE)?;
    let begun = Meter::read(stage);
    ground.touch(slice(ground.area, each, 0), Access::Write)?;
    let alone = begun.until_now(stage);
    ground.together(|cpu| match cpu.0 {
        0 => Ok(()),
        n => {
            let mine = slice(ground.area, each, n.into());
            stage.touch(ground.space, mine, crate::ground::PAGE, Access::Write)
        }
    })?;
    let span = begun.until_now(stage);
    let leaves = stage.manager().with_leaves(ground.space, ground.area, |leaves| {
        leaves.filter(|found| matches!(found.entry, Entry::Leaf { .. })).count() as u64
    });
    let clear = alone.machine.clear_ticks;
    Ok(Row {
        name: size.bytes().to_string().into(),
        counts: Named::from_iter([
            ("faults", span.faults),
            ("pages", ground.area.pages().get()),
            ("entries_written", span.machine.entries_written),
            ("tables", span.tables),
            ("leaves", leaves.unwrap_or_default()),
            ("frames_used", span.frames_used),
            ("shootdowns", span.machine.shootdowns),
            ("interrupts", span.machine.interrupts),
            ("invalidations", span.machine.invalidations),
            ("cleared_bytes", span.machine.cleared_bytes),
        ]),
        pages: slice(ground.area, each, 0).pages().get(),
        ticks: Named::from_iter([("clearing", clear), ("rest", alone.ticks.saturating_sub(clear))]),
    })
}

/// Faults, and ticks without clearing, of the first size to those of each other.
fn ratios(rows: &[Row]) -> Vec<Ratio> {
    let Some((first, others)) = rows.split_first() else { return Vec::new() };
    let ratio = |what: &str, other: &Row, of: &Named<u64>, to: &Named<u64>| Ratio {
        name: format!("{what}, {} to {}", first.name, other.name).into(),
        of: of.get(what).copied().unwrap_or_default(),
        to: to.get(what).copied().unwrap_or_default(),
    };
    let pair = |other: &Row| {
        [
            ratio("faults", other, &first.counts, &other.counts),
            ratio("rest", other, &first.ticks, &other.ticks),
        ]
    };
    others.iter().flat_map(pair).collect()
}
