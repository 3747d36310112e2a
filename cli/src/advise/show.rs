//! The advice as one screen: who takes the time, when, what other sizes would do, the six
//! questions, and the recommendation at the end.

use super::answers::{self, short};
use super::facts::{Facts, Fate};
use super::{Advised, counted};
use crate::shown::shown;
use crate::table::{Mark, columns, count, marked, mib, shorten};
use crate::terminal::{GOOD, entry, fitted, prose};
use foliant_trace::replay::Share;
use foliant_trace::{Mapping, Site, Wish};
use foliant_units::Bytes;

/// Mappings that have a row of their own.
const MAPPINGS_SHOWN: usize = 6;
/// Recordings that have a line of their own.
const RECORDINGS_SHOWN: usize = 3;
/// Characters of a mapping's name, and of the file's in it.
const NAME_MOST: usize = 23;
const FILE_MOST: usize = 10;
/// Parts of a bar, from nothing to all.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The screen.
pub(super) fn text(advised: &Advised) -> String {
    let facts = Facts::of(advised);
    let mut text = heading(advised) + "\n";
    text += &mappings(&facts);
    text.push('\n');
    text += &time(&facts);
    text.push('\n');
    text += &sizes(advised);
    text.push('\n');
    for (question, answer) in answers::six(advised, &facts) {
        text += &entry(question, 15, &answer);
    }
    text += &format!("\n{GOOD}Recommendation{GOOD:#}\n");
    for sentence in answers::sentences(advised, &facts) {
        text += &prose(&sentence);
    }
    if advised.verdict.at != 0 {
        text += &prose(
            "--plan-out PLAN writes it for `foliant run --plan PLAN -- COMMAND` and for `foliant check --plan`, which measures; --apply prints lines for the switches.",
        );
    }
    text
}

fn heading(advised: &Advised) -> String {
    let shown_ones = advised.recordings.iter().take(RECORDINGS_SHOWN);
    let mut text: String = shown_ones
        .map(|recording| {
            let command = shorten(&shown(&recording.about.header.command.join(" ")), 46);
            fitted(&format!(
                "{}: {command}, {} faults",
                shown(&recording.name),
                count(recording.plan.recorded_anonymous_faults)
            ))
        })
        .collect();
    if let Some(more) = advised.recordings.len().checked_sub(RECORDINGS_SHOWN).filter(|n| *n > 0) {
        text += &format!("and {}\n", counted(more as u64, "more", "more"));
    }
    text
}

/// A mapping's name in a column.
fn name(mapping: &Mapping) -> String {
    let name = match mapping {
        Mapping::Made { site: Some(Site { object, offset }), class } => {
            format!("{}+{offset:#x} {class}", shorten(&shown(object), FILE_MOST))
        }
        Mapping::Made { site: None, class } => format!("mmap {class}"),
        other => shown(&other.to_string()),
    };
    shorten(&name, NAME_MOST)
}

fn ms(share: &Share) -> String {
    format!("{:.1}", share.kernel.0 as f64 / 1e6)
}

fn mappings(facts: &Facts) -> String {
    let heads = ["mapping, up to", "faults", "then", "ms", "then", "MiB", "more", "advice"];
    let row = |fate: &Fate| {
        let advice = match fate.wish {
            Some(Wish::HugePage) => "huge",
            Some(Wish::NoHugePage) => "no huge",
            Some(Wish::Collapse) => "collapse",
            None => "leave",
        };
        let Fate { before, after, .. } = fate;
        vec![
            name(&fate.mapping),
            count(before.faults),
            count(after.faults),
            ms(before),
            ms(after),
            mib(before.peak.get()),
            mib(after.peak.get().saturating_sub(before.peak.get())),
            advice.to_owned(),
        ]
    };
    let mut rows: Vec<Vec<String>> = facts.fates.iter().take(MAPPINGS_SHOWN).map(row).collect();
    let rest = facts.fates.get(MAPPINGS_SHOWN..).unwrap_or_default();
    if !rest.is_empty() {
        let name = counted(rest.len() as u64, "other", "others");
        let [before, after] = [sum(rest, |f| &f.before), sum(rest, |f| &f.after)];
        let mut row =
            vec![name, count(before.faults), count(after.faults), ms(&before), ms(&after)];
        let more = after.peak.get().saturating_sub(before.peak.get());
        row.extend([mib(before.peak.get()), mib(more), String::new()]);
        rows.push(row);
    }
    columns(&heads, rows)
}

fn sum(fates: &[Fate], of: fn(&Fate) -> &Share) -> Share {
    let mut all = Share::default();
    for share in fates.iter().map(of) {
        all.faults += share.faults;
        all.kernel.0 += share.kernel.0;
        all.touched += share.touched;
        all.peak = Bytes::new(all.peak.get() + share.peak.get());
        all.folios.iter_mut().zip(share.folios).for_each(|(sum, n)| *sum += n);
    }
    all
}

/// Faults over time, as bars, with start-up and what follows it apart.
fn time(facts: &Facts) -> String {
    let parts = facts.parts[0].len().max(1);
    let until = facts.start_up * 100 / parts;
    let most = facts.parts[0].iter().copied().max().unwrap_or(0);
    let up = format!("start-up, to {until} %");
    let heads = ["faults over time", "0 to 100 %", up.as_str(), "steady state"];
    let row = |name: &str, parts: &[u64], [first, rest]: [u64; 2]| {
        vec![name.to_owned(), bars(parts, most), count(first), count(rest)]
    };
    let [before, after] = facts.by_phase();
    columns(&heads, [row("4k", &facts.parts[0], before), row("then", &facts.parts[1], after)])
}

fn bars(parts: &[u64], most: u64) -> String {
    let bar = |n: &u64| BARS[(n * 8).div_ceil(most.max(1)).min(8) as usize];
    format!("|{}|", parts.iter().map(bar).collect::<String>())
}

/// What every size would do for all memory.
fn sizes(advised: &Advised) -> String {
    let all = || advised.trials[..advised.choices].iter().zip(&advised.scores);
    let mut heads = vec!["all memory".to_owned()];
    heads.extend(all().map(|(trial, _)| short(trial.choice)));
    let row = |name: &str, of: &dyn Fn(&super::Score) -> f64| {
        let cells = all().map(|(_, score)| format!("{:.2}", of(score)));
        let cells = std::iter::once(name.to_owned()).chain(cells).collect();
        (Mark::Plain, cells)
    };
    marked(&heads, [row("kernel x", &|score| score.time), row("memory x", &|score| score.peak)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_high_as_its_part_and_something_is_never_nothing() {
        assert_eq!(bars(&[0, 1, 50, 100], 100), "| ▁▄█|");
        assert_eq!(bars(&[0, 0], 0), "|  |");
        assert_eq!(bars(&[200], 100), "|█|", "more than with 4k");
    }
}
