//! The document of a replay.

use crate::document::Document;
use crate::replayed;
use foliant_trace::replay::Row;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// Recordings, replayed with each policy.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Replayed {
    /// In the order in which they were named.
    pub(crate) files: Vec<File>,
}

impl Document for Replayed {
    const NAME: &'static str = "replay";
    const COMMAND: &'static str = "foliant replay FILE... --json";
}

/// One recording.
#[derive(Serialize, JsonSchema)]
pub(crate) struct File {
    /// As it was named.
    file: String,
    /// What was recorded: the program and its arguments.
    command: Vec<String>,
    /// Of the machine that it was recorded on.
    processor: String,
    /// Of the machine that it was recorded on.
    kernel: String,
    /// All page faults that Linux took.
    recorded_faults: u64,
    /// Those in private memory without a file.
    recorded_anonymous_faults: u64,
    /// Those in shared memory that the replay has: without a file, files in memory, System V.
    recorded_shared_faults: u64,
    /// The others.
    other_faults: u64,
    /// Faults in memory that the recording knows nothing of; they are among the others.
    stray_faults: u64,
    /// Faults that the recorder missed.
    lost: u64,
    /// CPUs of the machine that it is replayed on.
    cpus: usize,
    /// Physical memory of that machine.
    memory_bytes: u64,
    /// What `--fragment` says.
    fragment_percent: u8,
    /// Blocks of 2 MiB that had pages of another program in them.
    fragmented_blocks: u64,
    /// What `--defrag` says.
    defrag: &'static str,
    /// The model that kernel time is reckoned by.
    model: &'static str,
    /// What that model is of.
    model_about: &'static str,
    /// A row for each policy.
    policies: Vec<Policy>,
}

/// What a replay with one policy came to.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Policy {
    /// The policy: `4k`, `up-to-64k`, `only-2m`.
    name: String,
    /// Faults in private memory without a file.
    anonymous_faults: u64,
    /// Faults in shared memory that is replayed.
    shared_faults: u64,
    /// How often a fault took a smaller folio for want of a block.
    fallbacks: u64,
    /// Pages that were moved to make blocks whole.
    moved_pages: u64,
    /// Modelled time that this took, a part of `kernel_ns`.
    compaction_ns: u64,
    /// Memory that was cleared.
    zeroed_bytes: u64,
    /// Flushes that asked other CPUs.
    shootdowns: u64,
    /// Entries that map memory, at the peak.
    leaves: u64,
    /// Modelled kernel time.
    kernel_ns: u64,
    /// Of `kernel_ns` to that with 4 KiB pages.
    kernel_time_ratio: f64,
    /// The most that all processes held together, each page once.
    peak_bytes: u64,
    /// The most that they mapped: a page that is shared once for each of them.
    peak_mapped_bytes: u64,
    /// Of `peak_bytes` to that with 4 KiB pages.
    peak_ratio: f64,
    /// Memory that was cleared and never used.
    untouched_bytes: u64,
    /// How many folios of each size were made; the key is the order: log2 of the 4 KiB pages.
    folios_by_order: BTreeMap<u8, u64>,
    /// Pages of files that were copied before a write.
    file_copies: u64,
    /// Pages that were copied because they were shared.
    copied_pages: u64,
    /// Faults that Linux served and the replay refused.
    refused: u64,
}

pub(crate) fn file(replayed: &replayed::Replayed<'_>) -> File {
    let replayed::Replayed { name, about, plan, settings, base, rows } = replayed;
    File {
        file: (*name).to_owned(),
        command: about.header.command.clone(),
        processor: about.header.processor.clone(),
        kernel: about.header.kernel.clone(),
        recorded_faults: plan.recorded_faults,
        recorded_anonymous_faults: plan.recorded_anonymous_faults,
        recorded_shared_faults: plan.recorded_shared_faults,
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
        shared_faults: row.shared_faults,
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
