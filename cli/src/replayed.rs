//! A replayed recording as text: what was recorded, a row for each policy, and how many folios of
//! each size.

use crate::calibrate::model::caption;
use crate::shown::shown;
use crate::table::{Mark, columns, count, marked, mib, shorten};
use crate::terminal::{entry, fitted, prose};
use foliant_trace::About;
use foliant_trace::replay::{Choice, Plan, Row, Settings};
use foliant_units::Order;

/// A row is the best if no other takes less kernel time within this much memory over 4 KiB pages.
pub(crate) const PEAK_RATIO_MOST: f64 = 1.05;

/// A recording and the rows of its replay. The first row is the one of 4 KiB pages.
pub(crate) struct Replayed<'a> {
    pub(crate) name: &'a str,
    pub(crate) about: &'a About,
    pub(crate) plan: &'a Plan,
    pub(crate) settings: &'a Settings,
    pub(crate) base: &'a Row,
    pub(crate) rows: &'a [Row],
}

/// The heading and the tables of one recording.
pub(crate) fn text(replayed: &Replayed<'_>) -> String {
    let Replayed { plan, settings, base, rows, .. } = replayed;
    let mut text = heading(replayed);
    text.push('\n');
    let best = best(rows, base);
    let both_peaks = rows.iter().any(peaks_differ);
    let mut heads = vec!["policy", "faults", "kernel ms", "x 4k", "peak MiB", "x 4k"];
    heads.extend(both_peaks.then_some("mapped"));
    let is_fragmented = base.fragmented_blocks > 0;
    heads.extend(["untouched", "zeroed", "fallbacks"]);
    heads.extend(is_fragmented.then_some(["moved", "compacting"]).into_iter().flatten());
    heads.extend(["shootdowns", "leaves"]);
    let line = |row: &Row| {
        let is_best = best == Some(row.choice);
        let mut cells = vec![
            format!("{}{}", row.choice, if is_best { " *" } else { "" }),
            count(row.faults()),
            format!("{:.1}", row.kernel.0 as f64 / 1e6),
            format!("{:.3}", row.kernel_ratio(base)),
            mib(row.peak.get()),
            format!("{:.3}", row.peak_ratio(base)),
        ];
        cells.extend(both_peaks.then(|| mib(row.peak_mapped.get())));
        cells.extend([mib(row.untouched_bytes), mib(row.zeroed_bytes), count(row.fallbacks)]);
        if is_fragmented {
            let part = format!("{:.1} %", row.compaction_part() * 100.0);
            cells.extend([count(row.moved_pages), part]);
        }
        cells.extend([count(row.shootdowns), count(row.leaves)]);
        (if is_best { Mark::Best } else { Mark::Plain }, cells)
    };
    text += &marked(&heads, rows.iter().map(line));
    text.push('\n');
    text += &folios(rows);
    let refused: u64 = rows.iter().map(|row| row.refused).sum();
    if refused > 0 {
        text += &prose(&format!("{} faults that Linux served were refused", count(refused)));
    }
    if is_fragmented {
        text += &prose(&format!(
            "\n{} of {} blocks of 2 MiB had pages of another program in them. fallbacks: steps down to a smaller \
             size, for want of a block. moved: pages moved to make blocks whole. compacting: the part of kernel time that it took.",
            count(base.fragmented_blocks),
            count(settings.memory_for(plan).get() >> 21),
        ));
    }
    if both_peaks {
        let measured = match plan.recorded_shared_faults {
            0 => "; that is what check measures",
            _ => "; check measures what of it is anonymous",
        };
        text += &prose(&format!(
            "\npeak: what is held by all processes together, each page once. mapped: what they map, a page that is shared once \
             for each of them, and of a folio only what is still mapped{measured}."
        ));
    }
    if best.is_some() {
        let percent = (PEAK_RATIO_MOST - 1.0) * 100.0;
        text.push('\n');
        let about = format!(
            "least kernel time within {percent:.0} % more memory. Kernel time is modelled: faults, clearing, tables, \
             flushes and system calls that change memory. untouched, zeroed: MiB cleared and never used, MiB cleared."
        );
        text += &entry("*", 2, &about);
    }
    text
}

/// What was recorded, and on what it is replayed.
fn heading(replayed: &Replayed<'_>) -> String {
    let Replayed { name, about, plan, settings, .. } = replayed;
    let command = shorten(&shown(&about.header.command.join(" ")), 70);
    let mut text = fitted(&format!("{}: {command}", shown(name)));
    let fragmented = match settings.fragmented.get() {
        0 => String::new(),
        share => format!(", {share} % of it fragmented, defrag {}", settings.defrag),
    };
    text += &fitted(&format!(
        "{} faults recorded, {}; replayed on {} CPUs with {} MiB{fragmented}, model {}",
        count(plan.recorded_faults),
        replayable(plan),
        settings.cpus,
        count(settings.memory_for(plan).get() >> 20),
        caption(&settings.model),
    ));
    if !about.trailer.is_complete() {
        let lost = about.trailer.lost;
        text += &fitted(&format!("the recording is not complete: {lost} faults lost"));
        for remark in &about.trailer.remarks {
            text += &fitted(&format!("  {}", shown(remark)));
        }
    }
    if let Some(said) = nameless(plan) {
        text += &fitted(&said);
    }
    if plan.stray_faults > 0 {
        text += &fitted(&format!(
            "{} faults are in memory that the recording knows nothing of: no policy changes them here, and one may on Linux",
            count(plan.stray_faults)
        ));
    }
    text
}

/// Of which memory the recorded faults are that a replay takes.
pub(crate) fn replayable(plan: &Plan) -> String {
    let shared = match plan.recorded_shared_faults {
        0 => String::new(),
        shared => format!(" and {} in shared", count(shared)),
    };
    let anonymous = count(plan.recorded_anonymous_faults);
    format!("{anonymous} of them in anonymous memory{shared}")
}

/// What is to be said of shared memory that has no identity.
pub(crate) fn nameless(plan: &Plan) -> Option<String> {
    let said = format!(
        "{} faults are in shared memory that the recording does not tell apart: no policy changes them here; record it anew",
        count(plan.nameless_faults)
    );
    (plan.nameless_faults > 0).then_some(said)
}

/// Whether what is held and what is mapped are two figures for a reader: by more than a hundredth.
fn peaks_differ(row: &Row) -> bool {
    row.peak.get().abs_diff(row.peak_mapped.get()) > row.peak.get() / 100
}

/// The row that can be chosen on Linux with the least kernel time within [`PEAK_RATIO_MOST`], where
/// there are several.
pub(crate) fn best(rows: &[Row], base: &Row) -> Option<Choice> {
    let fits = rows
        .iter()
        .filter(|row| row.choice.is_of_linux() && row.peak_ratio(base) <= PEAK_RATIO_MOST);
    let best = fits.min_by_key(|row| row.kernel);
    best.filter(|_| rows.len() > 1).map(|row| row.choice)
}

/// How many folios of each size.
fn folios(rows: &[Row]) -> String {
    let used = |order: &Order| rows.iter().any(|row| row.folios.contains_key(order));
    let orders: Vec<Order> = Order::all().filter(used).collect();
    let mut heads = vec!["folios of".to_owned()];
    heads.extend(orders.iter().map(|order| order.bytes().to_string()));
    let line = |row: &Row| {
        let of = |order: &Order| row.folios.get(order).map_or(String::new(), |n| count(*n));
        std::iter::once(row.choice.to_string()).chain(orders.iter().map(of)).collect()
    };
    columns(&heads, rows.iter().map(line))
}
