//! The tables and the document of a check of a plan.

use super::paired::{LEAST, MISTAKEN, Standing, rounds_least};
use super::rounds::{Against, Figure, Planned, Shown};
use super::show::{Beside, compared};
use super::verdict::{Compared, Verdict};
use super::{FAULTS_GOAL, PEAK_GOAL};
use crate::document::Document;
use crate::shown::shown;
use crate::table::{self, Mark};
use crate::terminal::{fitted, prose};
use foliant_trace::Target;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

impl Figure {
    /// Its words in tables.
    fn words(self) -> &'static str {
        match self {
            Figure::Faults => "faults",
            Figure::Peak => "peak memory",
            Figure::User => "user CPU time",
            Figure::System => "system CPU time",
            Figure::Elapsed => "elapsed time",
        }
    }
}

/// The median, and how far the middle half of the values reaches from it.
struct Middle {
    median: u64,
    spread: u64,
}

impl Middle {
    fn of(mut values: Vec<u64>) -> Option<Middle> {
        values.sort_unstable();
        let last = values.len().checked_sub(1)?;
        let (low, median, high) = (values[last / 4], values[last / 2], values[last - last / 4]);
        Some(Middle { median, spread: (high - low) / 2 })
    }

    fn cell(self, value: fn(u64) -> String) -> String {
        let Middle { median, spread } = self;
        match median {
            0 => format!("{} ±{}", value(median), value(spread)), // of nothing there is no part
            median => format!("{} ±{:.1} %", value(median), spread as f64 / median as f64 * 100.0),
        }
    }
}

fn millis(nanos: u64) -> String {
    format!("{:.1}", nanos as f64 / 1e6)
}

fn predicted(compared: &Option<Compared>, value: fn(u64) -> String) -> String {
    compared.map_or("?".to_owned(), |compared| value(compared.predicted.median))
}

pub(super) fn text(planned: &Planned) -> String {
    let Planned { about, runs, settings, against } = planned;
    let command = table::shorten(&shown(&about.header.command.join(" ")), 90);
    let mut text = fitted(&format!(
        "{command}\n{}, {} CPUs, {}; {runs} rounds of one run with each setting, in an order of chance\n\n",
        shown(&about.header.processor),
        about.header.cpus,
        shown(&about.header.kernel)
    ));
    let heads = [
        "setting",
        "faults predicted",
        "measured",
        "MiB predicted",
        "measured",
        "user ms",
        "system ms",
        "elapsed ms",
    ];
    text += &table::marked(&heads, settings.iter().map(line));
    text.push('\n');
    let heads = ["plan beside", "ratio", "from", "to", "the plan is"];
    text += &table::marked_with_text(&heads, against.iter().map(verdict));
    text.push('\n');
    remarks(planned).iter().for_each(|remark| text += &prose(remark));
    text
}

fn line(shown: &Shown) -> (Mark, Vec<String>) {
    let cell = |figure, value: fn(u64) -> String| {
        Middle::of(shown.values(figure)).map_or("?".to_owned(), |middle| middle.cell(value))
    };
    let compared = [shown.faults, shown.peak].into_iter().flatten();
    let is_off = compared.map(|compared| compared.verdict()).any(|v| v == Verdict::Off);
    let cells = vec![
        shown.name.to_owned(),
        predicted(&shown.faults, table::count),
        cell(Figure::Faults, table::count),
        predicted(&shown.peak, table::mib),
        cell(Figure::Peak, table::mib),
        cell(Figure::User, millis),
        cell(Figure::System, millis),
        cell(Figure::Elapsed, millis),
    ];
    (if is_off { Mark::Bad } else { Mark::Plain }, cells)
}

fn verdict(against: &Against) -> (Mark, Vec<String>) {
    let number = |n: f64| format!("{n:.3}");
    let (from, to) = against
        .ratio
        .interval
        .map_or(("?".into(), "?".into()), |(from, to)| (number(from), number(to)));
    let cells = vec![
        format!("{}: {}", against.other, against.figure.words()),
        number(against.ratio.median),
        from,
        to,
        against.standing().words().to_owned(),
    ];
    (if against.standing() == Standing::Worse { Mark::Bad } else { Mark::Plain }, cells)
}

fn remarks(planned: &Planned) -> Vec<String> {
    let verdicts = planned.against.len();
    let mut lines = vec![format!(
        "ratio: of the plan's run to the other one of the same round, the median of rounds. from, to: where that \
         of all rounds lies, by a sign test; better or worse is said where all of it is more than {} % off 1, so that \
         the chance that any of these {verdicts} verdicts is mistaken is below {} %",
        LEAST * 100.0,
        MISTAKEN * 100.0
    )];
    if planned.against.iter().any(|one| one.standing() == Standing::TooFew) {
        lines.push(format!("too few runs: {} or more tell something", rounds_least(verdicts)));
    }
    let has = |name| planned.settings.iter().any(|shown| shown.name == name);
    lines.extend(has("always").then(|| "always: the switch of all sizes".to_owned()));
    lines.extend(has("everywhere").then(|| "everywhere: always for each single size".to_owned()));
    if planned.settings.iter().any(|shown| shown.faults.is_none()) {
        lines.push("?: a replay does not tell what becomes of memory that is advised".to_owned());
    }
    for shown in &planned.settings {
        for (what, compared) in [("faults", shown.faults), ("memory", shown.peak)] {
            let Some(compared) = compared else { continue };
            match compared.verdict() {
                Verdict::Within => {}
                Verdict::Off => lines.push(format!(
                    "{}: {what} are {:+.1} % off what was measured",
                    shown.name,
                    compared.off().unwrap_or(0.0) * 100.0
                )),
                other => lines.push(format!("{}: {what}: {}", shown.name, other.word())),
            }
        }
    }
    if let Some((applied, plan)) = planned.settings.first().and_then(|s| Some((s.applied()?, s))) {
        let calls: u64 = applied.given.values().map(|given| given.calls).sum();
        if calls + applied.refused() > 0 {
            lines.push(format!(
                "{} pieces of advice were injected into a run, {} refused; the CPU time of the plan has {} ms of who did that",
                table::count(calls),
                table::count(applied.refused()),
                millis(plan.applying())
            ));
        }
        lines.extend(crate::run::unmet(&names(&applied.unmet)));
        lines.extend(applied.remarks.iter().cloned());
    }
    lines.push(
        "± is half of what the middle half of the runs covers. MiB is the peak of anonymous memory mapped by all \
         processes together. Before each run as much memory is touched and freed, so that none waits for a host to give it. \
         Addresses are not randomized, and khugepaged is held still. All settings are as they were before"
            .to_owned(),
    );
    lines
}

fn names(targets: &[Target]) -> Vec<String> {
    targets.iter().map(Target::to_string).collect()
}

/// A plan for a program, beside the settings that it could have instead.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Told<'c> {
    /// What was checked: the program and its arguments.
    command: &'c [String],
    /// Of this machine.
    processor: &'c str,
    /// Of this machine.
    kernel: &'c str,
    /// Of this machine.
    cpus: u32,
    /// Rounds of one run with each setting; one more went before and is not counted.
    runs: u32,
    /// How far off a prediction of faults may be, of what was measured.
    faults_goal_percent: f64,
    /// How far off a prediction of memory may be, of what was measured.
    peak_goal_percent: f64,
    /// The chance that any of the verdicts of `against` is mistaken is at most this.
    mistaken_percent: f64,
    /// A difference below this is none.
    least_percent: f64,
    /// The plan's first: `plan`, `now` (the system's), `4k`, `always` (the switch of all sizes),
    /// `everywhere` (that of each size).
    settings: Vec<Setting<'c>>,
    /// What the plan has wishes for and no mapping of the program was.
    unmet: Vec<String>,
    /// The plan beside each other setting.
    against: Vec<Pairs>,
}

impl Document for Told<'_> {
    const NAME: &'static str = "check-plan";
    const COMMAND: &'static str = "foliant check --plan PLAN --json -- COMMAND";
}

/// What runs with one setting came to.
#[derive(Serialize, JsonSchema)]
struct Setting<'c> {
    /// Its name.
    setting: &'static str,
    /// All page faults, predicted and measured; nothing where a replay cannot tell.
    predicted_faults: Option<Beside>,
    /// The peak of anonymous memory that all processes mapped together, likewise.
    predicted_peak_mapped_bytes: Option<Beside>,
    /// All page faults, round by round.
    faults: Vec<u64>,
    /// The peak of anonymous memory, of those rounds in which it was seen.
    peak_mapped_bytes: Vec<u64>,
    /// CPU time in the program's own code, with all that it started, round by round.
    user_ns: Vec<u64>,
    /// CPU time that the system took for it, round by round.
    system_ns: Vec<u64>,
    /// From its start to its end, round by round.
    elapsed_ns: Vec<u64>,
    /// Of both CPU times together what injecting took, the median of rounds.
    applying_ns: u64,
    /// How often the kernel had no folio of a size, by its own counters, in the worst run.
    fallbacks: &'c BTreeMap<String, u64>,
}

/// One figure of the plan beside that of another setting.
#[derive(Serialize, JsonSchema)]
struct Pairs {
    /// The other setting.
    setting: &'static str,
    /// The figure: `faults`, `peak memory`, `user CPU time`, `system CPU time`, `elapsed time`.
    figure: &'static str,
    /// The median of the ratios of the plan's run to the other's of the same round.
    ratio: f64,
    /// Where it may lie at least; nothing where there are too few rounds.
    from: Option<f64>,
    /// Where it may lie at most.
    to: Option<f64>,
    /// What follows for the plan.
    verdict: Standing,
}

pub(super) fn document(planned: &Planned) -> Told<'_> {
    let Planned { about, runs, settings, against } = planned;
    fn setting(shown: &Shown) -> Setting<'_> {
        Setting {
            setting: shown.name,
            predicted_faults: shown.faults.as_ref().map(compared),
            predicted_peak_mapped_bytes: shown.peak.as_ref().map(compared),
            faults: shown.values(Figure::Faults),
            peak_mapped_bytes: shown.values(Figure::Peak),
            user_ns: shown.values(Figure::User),
            system_ns: shown.values(Figure::System),
            elapsed_ns: shown.values(Figure::Elapsed),
            applying_ns: shown.applying(),
            fallbacks: &shown.fallbacks,
        }
    }
    let unmet = settings.first().and_then(Shown::applied).map(|applied| names(&applied.unmet));
    let settings = settings.iter().map(setting);
    let pairs = against.iter().map(|one| Pairs {
        setting: one.other,
        figure: one.figure.words(),
        ratio: one.ratio.median,
        from: one.ratio.interval.map(|(from, _)| from),
        to: one.ratio.interval.map(|(_, to)| to),
        verdict: one.standing(),
    });
    Told {
        command: &about.header.command,
        processor: &about.header.processor,
        kernel: &about.header.kernel,
        cpus: about.header.cpus,
        runs: *runs,
        faults_goal_percent: FAULTS_GOAL * 100.0,
        peak_goal_percent: PEAK_GOAL * 100.0,
        mistaken_percent: MISTAKEN * 100.0,
        least_percent: LEAST * 100.0,
        settings: settings.collect(),
        unmet: unmet.unwrap_or_default(),
        against: pairs.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;

    #[test]
    fn a_check_of_a_plan_is_the_document_that_it_says() {
        document::tests::holds(&super::document(&super::super::rounds::example()));
    }

    #[test]
    fn the_middle_half_is_what_is_told() {
        let middle = Middle::of(vec![100, 1, 104, 96, 9000]).unwrap();
        assert_eq!((middle.median, middle.spread), (100, 4));
        assert_eq!(middle.cell(|it| it.to_string()), "100 ±4.0 %");
        let nothing = Middle::of(vec![0, 0, 0, 8, 8]).unwrap();
        assert_eq!(nothing.cell(|it| it.to_string()), "0 ±4");
        assert!(Middle::of(vec![]).is_none());
    }

    #[test]
    fn verdicts_and_their_rule_are_said() {
        let text = text(&super::super::rounds::example());
        for part in [
            "4k",
            "system CPU time",
            "0.500",
            "better",
            "not told apart",
            "sign test",
            "15 verdicts",
            "a replay does not tell",
            "0.5 %",
            "wishes for: heap;",
            "always: the switch of all sizes",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
