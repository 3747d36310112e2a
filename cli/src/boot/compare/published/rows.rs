//! The rows: what is counted, in which two settings, and what was published of it.
//!
//! **Not here**: numbers that others use as well (`published`, `foliant-sim`, `lab::thpscale`).

use super::experiment::{Experiment, Name};
use crate::lab::thpscale;
use crate::published;
use foliant_sim::{CostModel, Phases, PoolRows};
use schemars::JsonSchema;
use serde::Serialize;

/// Two numbers that were published.
#[derive(Serialize, JsonSchema, PartialEq, Debug)]
pub(super) struct Published {
    /// What they are, and of what.
    pub(super) of: String,
    /// The first.
    pub(super) before: f64,
    /// The second.
    pub(super) after: f64,
    /// Of the second to the first.
    pub(super) ratio: f64,
    /// Where they are from.
    pub(super) source: String,
}

/// A row before anything is measured.
pub(super) struct Row {
    pub(super) experiment: Name,
    /// Its name in lines of the first process.
    pub(super) key: &'static str,
    pub(super) what: &'static str,
    pub(super) settings: [String; 2],
    pub(super) operation: &'static str,
    pub(super) published: Option<Published>,
}

fn published(of: impl Into<String>, [before, after]: [f64; 2], source: &str) -> Option<Published> {
    let (of, source) = (of.into(), source.to_owned());
    Some(Published { of, before, after, ratio: after / before, source })
}

/// The rows of an experiment, in order.
pub(super) fn of(asked: &Experiment) -> Vec<Row> {
    let row = |key, what, settings: [&str; 2], operation, published| Row {
        experiment: asked.name,
        key,
        what,
        settings: settings.map(str::to_owned),
        operation,
        published,
    };
    match asked.name {
        Name::Pool => {
            let folding = ["not folded", "folded"];
            let (grows, shrinks) = (pool(|it| it.fill), pool(|it| it.drain));
            vec![
                row("pool-grow", "the pool grows", folding, "page of 2 MiB", grows),
                row("pool-shrink", "the pool shrinks", folding, "page of 2 MiB", shrinks),
            ]
        }
        Name::Touch => {
            let [large, gigantic] = published::CLEARED_INSTRUCTIONS;
            let cleared = |size: &str, counts: [f64; 2]| {
                let each = counts.map(|count| count / published::CLEARED_LARGE);
                let of = format!(
                    "instructions for 2 MiB of pages of {size}, cleared page by page, and in extents"
                );
                published(of, each, published::CLEARING_SOURCE)
            };
            vec![
                row("touch-thp", "folios are touched", ["4k", "2m"], "2 MiB", rates("2m")),
                row(
                    "touch-2m",
                    "huge pages are touched",
                    ["4k", "2m"],
                    "2 MiB",
                    cleared("2m", large),
                ),
                row(
                    "touch-1g",
                    "huge pages are touched",
                    ["4k", "1g"],
                    "2 MiB",
                    cleared("1g", gigantic),
                ),
            ]
        }
        Name::Split => {
            let latency = thpscale::published_means().and_then(|(before, after)| {
                let of = "mean latency of faults, unit not stated, with a flush for each entry of a \
                          folio that is split, and with one for the folio";
                published(of, [before, after], published::SPLIT_SOURCE)
            });
            let entries = ["1 entry", "512"];
            vec![
                row("split", "folios are split", entries, "folio of 2 MiB", latency),
                row("part", "a page of each folio", ["mprotect", "munmap"], "folio of 2 MiB", None),
            ]
        }
        Name::Fragment => {
            let all = ["fault-base", "fault-huge"].into_iter().zip(["4k", "2m"]);
            let row = |(key, size)| Row {
                experiment: asked.name,
                key,
                what: if size == "4k" {
                    "faults of 4k in pieces"
                } else {
                    "faults of 2m in pieces"
                },
                settings: ["1 thread".to_owned(), format!("{} threads", asked.amount)],
                operation: "fault",
                published: threads(asked.amount),
            };
            all.map(row).collect()
        }
        Name::Compile => {
            vec![row("compile", "a compilation", ["4k", "64k"], "compilation", build("64k"))]
        }
    }
}

/// What a program sees nothing of, and why.
pub(super) fn unseen() -> (Option<Published>, &'static str) {
    let of = "megabytes of page tables for a terabyte of the kernel's own memory, by leaves of 4 KiB \
              and of 2 MiB";
    (
        published(of, published::TABLE_MEGABYTES, published::TLB_SOURCE),
        "no call maps the kernel's own memory, and no file says by which leaves: `foliant lab vmalloc` \
         and `foliant boot --lab vmalloc` count it",
    )
}

/// A guest with 252 CPUs, whose flushes were batched: so do the kernels here.
fn pool(phase: impl Fn(Phases<f64>) -> f64) -> Option<Published> {
    let rows: &PoolRows = CostModel::guest_252().published()?;
    let of = format!(
        "seconds for {} pages in a guest with 252 CPUs, not folded and folded, by a kernel with \
         batched flushes; folded without batches {}",
        crate::table::count(rows.pages),
        phase(rows.unbatched)
    );
    published(of, [rows.batched_off, rows.batched].map(phase), rows.source)
}

/// Of an EPYC Milan, as times.
fn rates(page: &str) -> Option<Published> {
    let row = published::CLEARING.iter().find(|row| row.page == page)?;
    let micros = |rate: f64| f64::from(2 << 20) / rate / 1e3; // GB/s
    let of = format!(
        "microseconds for 2 MiB at {} and {} GB/s on an {}, cleared page by page, and in extents",
        row.before, row.after, row.host
    );
    published(of, [row.before, row.after].map(micros), published::CLEARING_SOURCE)
}

/// By the kernel whose splits flush once, as the kernels here do.
fn threads(number: u64) -> Option<Published> {
    let [_, one] = thpscale::latencies(1)?;
    let [_, all] = thpscale::latencies(number)?;
    let of =
        format!("mean latency of faults of both sizes, unit not stated, of 1 thread and {number}");
    published(of, [one, all], published::SPLIT_SOURCE)
}

fn build(size: &str) -> Option<Published> {
    let row = published::BUILDS.iter().find(|row| row.size == size)?;
    let of = format!("kernel time of a build of Linux with folios up to {size}, of that without");
    published(of, [1.0, 1.0 + row.kernel_percent / 100.0], published::BUILDS_SOURCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_ratios_are_those_of_the_documents() {
        let ratio = |text: &str, key: &str| {
            let rows = of(&Experiment::parse(text).unwrap());
            let row = rows.into_iter().find(|row| row.key == key).unwrap();
            row.published.map(|published| (published.ratio * 1000.0).round() / 1000.0)
        };
        for (text, key, expect) in [
            ("pool", "pool-grow", Some(1.768)),
            ("pool", "pool-shrink", Some(1.655)),
            ("touch", "touch-thp", Some(0.698)),
            ("touch", "touch-2m", Some(0.584)),
            ("touch", "touch-1g", Some(0.101)),
            ("split", "split", Some(0.792)),
            ("split", "part", None),
            ("fragment", "fault-base", Some(2.068)),
            ("fragment=2", "fault-huge", None),
            ("compile", "compile", Some(0.58)),
        ] {
            assert_eq!(ratio(text, key), expect, "{text} {key}");
        }
    }
}
