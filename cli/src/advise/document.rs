//! The advice as a document.

use super::answers::{self, Gain};
use super::facts::{Facts, Fate, Figures};
use super::{Advised, MODEL_PERCENT};
use crate::document::Document;
use crate::plan::{self, Plan};
use foliant_trace::replay::Share;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// Which folio sizes to use for which mappings of a program, at what gain and price.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Whole {
    /// What it rests on, in the order in which it was named.
    recordings: Vec<Recording>,
    /// The model that kernel time is reckoned by.
    model: &'static str,
    /// Within how many percent the model is right about what it was fitted to.
    model_percent: f64,
    /// How much more memory than with 4 KiB pages it may take.
    spend_percent: f64,
    /// What every size would do for all memory.
    policies: Vec<Policy>,
    /// What is recommended.
    recommended: Recommended,
    /// What becomes of each mapping, that of most kernel time first; means over recordings.
    mappings: Vec<Mapping>,
    /// Equal parts of the recorded time; means over recordings.
    parts: Vec<Part>,
    /// Of these, how many are start-up: until nine tenths of the most memory are held.
    start_up_parts: usize,
    /// The six questions that a size must answer.
    questions: Vec<Question>,
    /// The recommendation in sentences.
    sentences: Vec<String>,
}

impl Document for Whole {
    const NAME: &'static str = "advise";
    const COMMAND: &'static str = "foliant advise FILE... --json";
}

/// A recording that the advice rests on.
#[derive(Serialize, JsonSchema)]
struct Recording {
    /// As it was named.
    file: String,
    /// What was recorded: the program and its arguments.
    command: Vec<String>,
    /// Faults in private memory without a file.
    anonymous_faults: u64,
    /// Whether everything the program did is in it.
    is_complete: bool,
}

/// What a size would do for all memory.
#[derive(Serialize, JsonSchema)]
struct Policy {
    /// The policy: `4k`, `up-to-64k`, `only-2m`.
    name: String,
    /// Kernel time to that with 4 KiB pages, the mean over recordings.
    kernel_time_ratio: f64,
    /// The most that peak memory is to that with 4 KiB pages.
    peak_ratio: f64,
}

/// What is recommended, as its own replay found it.
#[derive(Serialize, JsonSchema)]
struct Recommended {
    /// The policy whose sizes it has.
    policy: String,
    /// The switches and the wishes.
    plan: Plan,
    /// Kernel time to that with 4 KiB pages, the mean over recordings.
    kernel_time_ratio: f64,
    /// The least of them.
    kernel_time_ratio_least: f64,
    /// The most of them.
    kernel_time_ratio_most: f64,
    /// Kernel time that it saves.
    gain_percent: f64,
    /// The least where the model is as wrong as it may be.
    gain_percent_least: f64,
    /// The most where the model is as wrong as it may be.
    gain_percent_most: f64,
    /// The most that peak memory is to that with 4 KiB pages.
    peak_ratio: f64,
    /// Kernel time to that with 4 KiB pages where memory is fragmented.
    fragmented_kernel_time_ratio: f64,
    /// With 4 KiB pages; means over recordings.
    before: Taken,
    /// As recommended; means over recordings.
    after: Taken,
}

/// What a program takes.
#[derive(Serialize, JsonSchema)]
struct Taken {
    /// Faults in private memory without a file.
    anonymous_faults: u64,
    /// Modelled kernel time.
    kernel_ns: u64,
    /// The most memory that is held at once.
    peak_bytes: u64,
    /// Memory that is cleared and never touched.
    untouched_bytes: u64,
}

/// Memory that was asked for in one way.
#[derive(Serialize, JsonSchema)]
struct Mapping {
    /// What it is called: `heap`, `stack of thread 3`, `prog+0x1234, up to 64k`.
    name: String,
    /// What it is advised: `hugepage`, `nohugepage`, `collapse`; nothing where it is left alone.
    wish: Option<&'static str>,
    /// With 4 KiB pages.
    before: Of,
    /// As recommended.
    after: Of,
}

/// What a mapping has of a program's figures.
#[derive(Serialize, JsonSchema)]
struct Of {
    /// Faults.
    faults: u64,
    /// Modelled kernel time.
    kernel_ns: u64,
    /// The most memory that it holds at once.
    peak_bytes: u64,
    /// Memory that is cleared for it.
    zeroed_bytes: u64,
    /// Of that, what is never touched.
    untouched_bytes: u64,
    /// How many folios of each size it gets; the key is the order: log2 of the 4 KiB pages.
    folios_by_order: BTreeMap<usize, u64>,
}

/// A part of the time.
#[derive(Serialize, JsonSchema)]
struct Part {
    /// Faults with 4 KiB pages.
    faults_before: u64,
    /// Faults as recommended.
    faults_after: u64,
}

/// A question and its answer.
#[derive(Serialize, JsonSchema)]
struct Question {
    /// The question.
    question: &'static str,
    /// Its answer.
    answer: String,
}

pub(super) fn whole(advised: &Advised) -> Whole {
    let facts = Facts::of(advised);
    let recordings = advised.recordings.iter().map(|recording| Recording {
        file: recording.name.clone(),
        command: recording.about.header.command.clone(),
        anonymous_faults: recording.plan.recorded_anonymous_faults,
        is_complete: recording.about.trailer.is_complete(),
    });
    let choices = advised.trials[..advised.choices].iter().zip(&advised.scores);
    let policies = choices.map(|(trial, score)| Policy {
        name: trial.choice.to_string(),
        kernel_time_ratio: score.time,
        peak_ratio: score.peak,
    });
    let parts = facts.parts[0].iter().zip(&facts.parts[1]);
    let questions = answers::six(advised, &facts);
    Whole {
        recordings: recordings.collect(),
        model: advised.model.name,
        model_percent: MODEL_PERCENT,
        spend_percent: advised.spend * 100.0,
        policies: policies.collect(),
        recommended: recommended(advised, &facts),
        mappings: facts.fates.iter().map(mapping).collect(),
        parts: parts
            .map(|(before, after)| Part { faults_before: *before, faults_after: *after })
            .collect(),
        start_up_parts: facts.start_up,
        questions: questions.map(|(question, answer)| Question { question, answer }).into(),
        sentences: answers::sentences(advised, &facts),
    }
}

fn recommended(advised: &Advised, facts: &Facts) -> Recommended {
    let score = advised.verdict.score;
    let gain = Gain::advised(advised, facts);
    Recommended {
        policy: advised.trial().choice.to_string(),
        plan: plan::plan(&advised.remedy()),
        kernel_time_ratio: score.time,
        kernel_time_ratio_least: score.least,
        kernel_time_ratio_most: score.most,
        gain_percent: gain.percent,
        gain_percent_least: gain.least,
        gain_percent_most: gain.most,
        peak_ratio: score.peak,
        fragmented_kernel_time_ratio: facts.scarce,
        before: taken(&facts.before),
        after: taken(&facts.after),
    }
}

fn taken(figures: &Figures) -> Taken {
    Taken {
        anonymous_faults: figures.faults,
        kernel_ns: figures.kernel_ns,
        peak_bytes: figures.peak_bytes,
        untouched_bytes: figures.untouched_bytes,
    }
}

fn mapping(fate: &Fate) -> Mapping {
    Mapping {
        name: fate.mapping.to_string(),
        wish: fate.wish.map(foliant_trace::Wish::word),
        before: of(&fate.before),
        after: of(&fate.after),
    }
}

fn of(share: &Share) -> Of {
    let folios = share.folios.iter().enumerate().filter(|(_, n)| **n > 0);
    Of {
        faults: share.faults,
        kernel_ns: share.kernel.0,
        peak_bytes: share.peak.get(),
        zeroed_bytes: share.zeroed().get(),
        untouched_bytes: share.untouched().get(),
        folios_by_order: folios.map(|(order, n)| (order, *n)).collect(),
    }
}
