//! The models reproduce the measurements that they were fitted to.

use super::*;

/// Milliseconds per GB to touch memory for the first time in folios of `pages`.
fn first_touch(model: &CostModel, pages: u64, entries: u64) -> f64 {
    let bytes = pages * 4096;
    let one = model.nanos(Work::Fault, 1)
        + model.nanos(Work::Alloc, 1)
        + model.nanos(Work::EntryWrite, entries)
        + model.nanos(Work::KernelWrite, pages)
        + model.clear_nanos(bytes, 4096);
    one * ((1u64 << 30) / bytes) as f64 / 1e6
}

/// Milliseconds per GB to take it away.
fn unmap(model: &CostModel, pages: u64, entries: u64) -> f64 {
    let one = model.nanos(Work::Free, 1)
        + model.nanos(Work::FreeFrame, pages)
        + model.nanos(Work::KernelWrite, pages)
        + model.nanos(Work::EntryWrite, entries);
    one * ((1u64 << 18) / pages) as f64 / 1e6
}

fn within(percent: f64, modelled: f64, measured: f64, what: &str) {
    let off = (modelled / measured - 1.0) * 100.0;
    assert!(
        off.abs() <= percent,
        "{what}: modelled {modelled:.1}, measured {measured}: {off:.1} %"
    );
}

#[test]
fn the_guest_touches_memory_as_fast_as_measured() {
    let model = CostModel::xeon_guest_2();
    for (pages, entries, measured) in [
        (1, 1, 361.0),
        (4, 4, 190.0),
        (8, 8, 155.0),
        (16, 16, 140.0),
        (32, 32, 133.0),
        (64, 64, 126.0),
        (128, 128, 123.0),
        (256, 256, 125.0),
        (512, 1, 122.0),
    ] {
        within(15.0, first_touch(&model, pages, entries), measured, &format!("{pages} pages"));
    }
}

#[test]
fn the_guest_unmaps_as_fast_as_measured() {
    let model = CostModel::xeon_guest_2();
    for (pages, entries, measured) in
        [(1, 1, 35.0), (4, 4, 18.6), (8, 8, 12.9), (16, 16, 9.6), (512, 1, 2.5)]
    {
        within(15.0, unmap(&model, pages, entries), measured, &format!("{pages} pages"));
    }
}

/// The published rows: host, kernel with batched flushes, folding, filling, pages, seconds.
fn published() -> Vec<(&'static str, bool, bool, bool, f64, f64)> {
    let line = |line: &'static str| {
        let words: Vec<&str> = line.split('\t').collect();
        let (batched, on) = (words[1].ends_with("+batching"), words[2] == "1");
        let model = if words[0].starts_with("VM") { "guest-252" } else { "host-8-socket" };
        (
            model,
            batched,
            on,
            words[3] == "alloc",
            words[4].parse().unwrap(),
            words[5].parse().unwrap(),
        )
    };
    include_str!("hugetlb.tsv").lines().filter(|l| !l.starts_with(['#', 'h'])).map(line).collect()
}

/// Derives what record 014 derives once more, from the rows of the file and in another way than the
/// constants.
#[test]
fn a_pools_page_and_a_shootdown_follow_from_the_published_rows() {
    let folding = [7700.0 - 2600.0, 8600.0 - 2500.0];
    for model in [CostModel::host_8_socket(), CostModel::guest_252()] {
        let nanos = |batched: bool, on: bool| {
            [true, false].map(|fill| {
                let rows = published();
                let row =
                    rows.iter().find(|r| (r.0, r.1, r.2, r.3) == (model.name, batched, on, fill));
                let (.., pages, seconds) = row.expect("sixteen rows");
                seconds / pages * 1e9
            })
        };
        let rows = model.published().unwrap();
        let (one, other, on) = (nanos(false, false), nanos(true, false), nanos(false, true));
        let base = [0, 1].map(|n| (one[n] + other[n]) / 2.0);
        within(0.001, rows.base().fill, base[0], "base, fill");
        within(0.001, rows.base().drain, base[1], "base, drain");
        // The machine charges for a page that 512 descriptors are written, and that the block is
        // taken or 512 frames are freed.
        let (write, frame) =
            (model.nanos(Work::KernelWrite, 512), model.nanos(Work::FreeFrame, 512));
        let taken = model.nanos(Work::Alloc, 1) + model.nanos(Work::PoolFill, 1);
        within(0.001, taken + write, base[0], "a page's fill");
        let freed = model.nanos(Work::Free, 1) + frame + write;
        within(0.001, model.nanos(Work::PoolDrain, 1) + freed, base[1], "a page's drain");
        // To fill 64 pages takes 65 shootdowns, to drain them 64.
        let left: f64 = (0..2).map(|n| 64.0 * (on[n] - base[n] - folding[n])).sum();
        let targets = if model.name == "guest-252" { 251 } else { 287 };
        let shootdown = model.nanos(Work::InterruptSend, 1)
            + model.nanos(Work::InterruptTarget, targets)
            + model.nanos(Work::InterruptWait, 1)
            + model.nanos(Work::FullFlush, 1);
        within(0.001, shootdown, left / 129.0, "a shootdown");
        // The batched rows were not used on the way.
        let (batched, off) = (nanos(true, true), nanos(true, false));
        within(0.001, rows.batched_ratio().fill, batched[0] / off[0], "published ratio");
        within(0.001, rows.batched_nanos().drain, batched[1], "published time");
        within(
            0.001,
            rows.predicted().fill,
            base[0] + folding[0] + shootdown * 2.0 / rows.pages as f64,
            "prediction",
        );
    }
}

/// Folding and unfolding, which the published rows do not tell apart from the shootdowns, take what
/// was measured here.
#[test]
fn folding_takes_what_it_took_here() {
    let model = CostModel::xeon_guest_2();
    let fold = model.nanos(Work::Alloc, 1)
        + model.nanos(Work::EntryWrite, 16)
        + model.nanos(Work::CopyByte, 4096)
        + model.nanos(Work::Free, 8)
        + model.nanos(Work::FreeFrame, 8)
        + model.nanos(Work::Fold, 1);
    within(0.001, fold, 5100.0, "folding");
    let unfold = model.nanos(Work::Alloc, 7)
        + model.nanos(Work::EntryWrite, 7)
        + model.nanos(Work::CopyByte, 7 * 4096);
    within(0.001, unfold, 6100.0, "unfolding");
    let fill = model.nanos(Work::Alloc, 1)
        + model.nanos(Work::PoolFill, 1)
        + model.nanos(Work::KernelWrite, 512);
    within(0.001, fill, 2600.0, "fill");
}

#[test]
fn three_of_four_batched_rows_are_predicted_within_30_percent() {
    let close = |model: &CostModel| {
        let rows = model.published().unwrap();
        let (mine, theirs) = (rows.predicted(), rows.batched_nanos());
        [(mine.fill, theirs.fill), (mine.drain, theirs.drain)]
            .map(|(a, b)| (a / b - 1.0).abs() <= 0.3)
    };
    assert_eq!(close(&CostModel::guest_252()), [true, true]);
    // The published drain, 3.11 times its own base, is an outlier that its authors do not explain.
    assert_eq!(close(&CostModel::host_8_socket()), [true, false]);
    assert!(CostModel::xeon_guest_2().published().is_none());
}

#[test]
fn every_model_prices_every_kind_of_work_and_names_its_source() {
    for model in CostModel::ALL {
        for work in Work::ALL {
            let found = model.constants.iter().filter(|c| c.work == *work).count();
            assert_eq!(found, 1, "{} {}", model.name, work.name());
        }
        assert!(model.constants.iter().all(|c| !c.source.is_empty() && c.nanos >= 0.0));
        assert_eq!(CostModel::named(model.name), Some(model));
    }
    assert_eq!(CostModel::named("nothing"), None);
}
