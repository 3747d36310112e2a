//! The table and the JSON of a check.

use super::Pair;
use crate::shown::shown;
use crate::table;
use foliant_trace::About;
use foliant_units::Bytes;
use serde_json::{Value, json};
use std::fmt::Write;

/// How far the prediction lies from the measurement, in per cent of it.
fn off(predicted: u64, measured: u64) -> f64 {
    match (predicted, measured) {
        (0, 0) => 0.0,
        _ => (predicted as f64 / measured.max(1) as f64 - 1.0) * 100.0,
    }
}

pub(super) fn text(about: &About, runs: u32, pairs: &[Pair], skipped: &[Bytes]) -> String {
    let mut text = String::new();
    let command = table::shorten(&shown(&about.header.command.join(" ")), 90);
    let _ = writeln!(text, "{command}");
    let _ = writeln!(
        text,
        "{}, {} CPUs, {}; predicted from one recording with 4 KiB pages, measured {runs} times (median)\n",
        shown(&about.header.processor),
        about.header.cpus,
        shown(&about.header.kernel)
    );
    let heads = [
        "size",
        "faults predicted",
        "measured",
        "off",
        "lowest",
        "highest",
        "MiB predicted",
        "measured",
        "off",
    ];
    let rows = pairs.iter().map(|pair| {
        let (predicted, measured) = (pair.predicted, pair.measured);
        vec![
            pair.order.bytes().to_string(),
            table::count(predicted.faults),
            table::count(measured.faults),
            format!("{:+.2} %", off(predicted.faults, measured.faults)),
            table::count(pair.spread.0),
            table::count(pair.spread.1),
            table::mib(predicted.peak.get()),
            table::mib(measured.peak.get()),
            format!("{:+.2} %", off(predicted.peak.get(), measured.peak.get())),
        ]
    });
    text += &table::columns(&heads, rows);
    for size in skipped {
        let _ = writeln!(
            text,
            "{size} is offered by this kernel and left out: Foliant has no such folios"
        );
    }
    text += "\nFaults are all page faults; MiB is the peak of anonymous memory mapped by all processes together.\n\
             Addresses are not randomized here, so that recording and runs have the same layout.\n";
    text
}

pub(super) fn object(about: &About, runs: u32, pairs: &[Pair]) -> Value {
    let sizes = pairs.iter().map(|pair| {
        let (predicted, measured) = (pair.predicted, pair.measured);
        json!({
            "size": pair.order.bytes().to_string(),
            "size_bytes": pair.order.bytes().get(),
            "predicted_faults": predicted.faults,
            "measured_faults": measured.faults,
            "measured_faults_lowest": pair.spread.0,
            "measured_faults_highest": pair.spread.1,
            "faults_off_percent": off(predicted.faults, measured.faults),
            "predicted_peak_bytes": predicted.peak.get(),
            "measured_peak_bytes": measured.peak.get(),
            "peak_off_percent": off(predicted.peak.get(), measured.peak.get()),
        })
    });
    json!({
        "command": about.header.command,
        "processor": about.header.processor,
        "kernel": about.header.kernel,
        "cpus": about.header.cpus,
        "runs": runs,
        "sizes": sizes.collect::<Vec<_>>(),
    })
}
