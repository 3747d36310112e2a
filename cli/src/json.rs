//! The machine-readable form of tables.

use crate::failure::{Done, Failure};
use crate::shown;
use crate::table::Replayed;
use foliant_trace::replay::Row;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Serialize)]
pub(crate) struct Files {
    pub(crate) files: Vec<File>,
}

/// One recording.
#[derive(Serialize)]
pub(crate) struct File {
    file: String,
    command: Vec<String>,
    processor: String,
    kernel: String,
    recorded_faults: u64,
    recorded_anonymous_faults: u64,
    other_faults: u64,
    stray_faults: u64,
    lost: u64,
    cpus: usize,
    memory_bytes: u64,
    fragment_percent: u8,
    fragmented_blocks: u64,
    defrag: &'static str,
    model: &'static str,
    model_about: &'static str,
    policies: Vec<Policy>,
}

/// One row.
#[derive(Serialize)]
pub(crate) struct Policy {
    name: String,
    anonymous_faults: u64,
    fallbacks: u64,
    moved_pages: u64,
    compaction_ns: u64,
    zeroed_bytes: u64,
    shootdowns: u64,
    leaves: u64,
    kernel_ns: u64,
    kernel_time_ratio: f64,
    peak_bytes: u64,
    peak_mapped_bytes: u64,
    peak_ratio: f64,
    untouched_bytes: u64,
    folios_by_order: BTreeMap<u8, u64>,
    file_copies: u64,
    copied_pages: u64,
    refused: u64,
}

pub(crate) fn file(replayed: &Replayed<'_>) -> File {
    let Replayed { name, about, plan, settings, base, rows } = replayed;
    File {
        file: (*name).to_owned(),
        command: about.header.command.clone(),
        processor: about.header.processor.clone(),
        kernel: about.header.kernel.clone(),
        recorded_faults: plan.recorded_faults,
        recorded_anonymous_faults: plan.recorded_anonymous_faults,
        other_faults: plan.other_faults(),
        stray_faults: plan.stray_faults,
        lost: about.trailer.lost,
        cpus: settings.cpus,
        memory_bytes: settings.memory_for(plan).get(),
        fragment_percent: settings.fragmented.get(),
        fragmented_blocks: base.fragmented_blocks,
        defrag: settings.defrag.word(),
        model: settings.model.name,
        model_about: settings.model.about,
        policies: rows.iter().map(|row| policy(row, base)).collect(),
    }
}

fn policy(row: &Row, base: &Row) -> Policy {
    Policy {
        name: row.choice.to_string(),
        anonymous_faults: row.anonymous_faults,
        fallbacks: row.fallbacks,
        moved_pages: row.moved_pages,
        compaction_ns: row.compaction.0,
        zeroed_bytes: row.zeroed_bytes,
        shootdowns: row.shootdowns,
        leaves: row.leaves,
        kernel_ns: row.kernel.0,
        kernel_time_ratio: row.kernel_ratio(base),
        peak_bytes: row.peak.get(),
        peak_mapped_bytes: row.peak_mapped.get(),
        peak_ratio: row.peak_ratio(base),
        untouched_bytes: row.untouched_bytes,
        folios_by_order: row.folios.iter().map(|(order, n)| (order.get(), *n)).collect(),
        file_copies: row.file_copies,
        copied_pages: row.copied_pages,
        refused: row.refused,
    }
}

/// The text of a value, with a line end.
pub(crate) fn text(value: &impl Serialize) -> Done<String> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|e| Failure::new(format_args!("JSON cannot be made: {e}")))?;
    Ok(shown::json(&text) + "\n")
}
