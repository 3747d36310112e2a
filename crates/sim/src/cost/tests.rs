//! The models reproduce the measurements that they were fitted to.

use super::*;

/// Milliseconds per GB to touch memory for the first time in folios of `pages`.
fn first_touch(model: &CostModel, pages: u64, entries: u64) -> f64 {
    let bytes = pages * 4096;
    let one = model.nanos(Work::Fault, 1)
        + model.nanos(Work::Alloc, 1)
        + model.nanos(Work::EntryWrite, entries)
        + model.clear_nanos(bytes, 4096);
    one * ((1u64 << 30) / bytes) as f64 / 1e6
}

/// Milliseconds per GB to take it away.
fn unmap(model: &CostModel, pages: u64, entries: u64) -> f64 {
    let one = model.nanos(Work::Free, 1)
        + model.nanos(Work::FreeFrame, pages)
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
fn this_host_touches_memory_as_fast_as_measured() {
    let model = CostModel::this_host();
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
fn this_host_unmaps_as_fast_as_measured() {
    let model = CostModel::this_host();
    for (pages, entries, measured) in
        [(1, 1, 35.0), (4, 4, 18.6), (8, 8, 12.9), (16, 16, 9.6), (512, 1, 2.5)]
    {
        within(15.0, unmap(&model, pages, entries), measured, &format!("{pages} pages"));
    }
}

#[test]
fn the_reference_hosts_pay_for_shootdowns_as_in_their_table() {
    let shootdown = |model: &CostModel, targets| {
        model.nanos(Work::InterruptSend, 1)
            + model.nanos(Work::InterruptTarget, targets)
            + model.nanos(Work::InterruptWait, 1)
    };
    within(1.0, shootdown(&CostModel::guest_252(), 251), 138_421.0, "guest");
    within(1.0, shootdown(&CostModel::host_8_socket(), 287), 24_854.0, "eight sockets");
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
