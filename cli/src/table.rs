//! Tables for people.

use crate::calibrate::model::caption;
use crate::shown::shown;
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use foliant_trace::About;
use foliant_trace::replay::{Plan, Row, Settings};
use foliant_units::Order;
use std::fmt::Write;

/// A row is the best if no other takes less kernel time within this much memory over 4 KiB pages.
const PEAK_RATIO_MOST: f64 = 1.05;

/// A recording and the rows of its replay. The first row is the one of 4 KiB pages.
pub(crate) struct Replayed<'a> {
    pub(crate) name: &'a str,
    pub(crate) about: &'a About,
    pub(crate) plan: &'a Plan,
    pub(crate) settings: &'a Settings,
    pub(crate) base: &'a Row,
    pub(crate) rows: &'a [Row],
}

/// Right-aligned columns below plain heads, the first one left-aligned.
pub(crate) fn columns(
    heads: &[impl ToString],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    aligned(heads, rows, |at| if at == 0 { CellAlignment::Left } else { CellAlignment::Right })
}

/// Left-aligned columns below plain heads.
pub(crate) fn columns_left<const N: usize>(
    heads: &[&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    aligned(heads, rows.into_iter().map(Vec::from), |_| CellAlignment::Left)
}

fn aligned(
    heads: &[impl ToString],
    rows: impl IntoIterator<Item = Vec<String>>,
    side: impl Fn(usize) -> CellAlignment,
) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(heads.iter().map(|head| head.to_string()));
    for row in rows {
        table.add_row(row);
    }
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_cell_alignment(side(at));
    }
    let lines = table.lines().map(|line| line.trim_end().to_owned());
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

/// `26716` as `26,716`.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes in MiB, with a tenth.
pub(crate) fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

/// The heading and the tables of one recording.
pub(crate) fn replayed(replayed: &Replayed<'_>) -> String {
    let Replayed { name, about, plan, settings, base, rows } = replayed;
    let mut text = String::new();
    let command = shorten(&shown(&about.header.command.join(" ")), 70);
    let _ = writeln!(text, "{}: {command}", shown(name));
    let fragmented = match settings.fragmented.get() {
        0 => String::new(),
        share => format!(", {share} % of it fragmented, defrag {}", settings.defrag),
    };
    let _ = writeln!(
        text,
        "{} faults recorded, {} of them in anonymous memory; replayed on {} CPUs with {} MiB{fragmented}, model {}",
        count(plan.recorded_faults),
        count(plan.recorded_anonymous_faults),
        settings.cpus,
        count(settings.memory_for(plan).get() >> 20),
        caption(&settings.model),
    );
    if !about.trailer.is_complete() {
        let _ = writeln!(text, "the recording is not complete: {} faults lost", about.trailer.lost);
        for remark in &about.trailer.remarks {
            let _ = writeln!(text, "  {}", shown(remark));
        }
    }
    if plan.stray_faults > 0 {
        let _ = writeln!(
            text,
            "{} faults are in memory that the recording knows nothing of: no policy changes them here, and one may on Linux",
            count(plan.stray_faults)
        );
    }
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
        let mark = if best == Some(row.choice) { " *" } else { "" };
        let mut cells = vec![
            format!("{}{mark}", row.choice),
            count(row.anonymous_faults),
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
        cells
    };
    text += &columns(&heads, rows.iter().map(line));
    text.push('\n');
    text += &folios(rows);
    let refused: u64 = rows.iter().map(|row| row.refused).sum();
    if refused > 0 {
        let _ = writeln!(text, "{} faults that Linux served were refused", count(refused));
    }
    if is_fragmented {
        let _ = writeln!(
            text,
            "\n{} of {} blocks of 2 MiB had pages of another program in them. fallbacks: steps down to a smaller\n  \
             size, for want of a block. moved: pages moved to make blocks whole. compacting: the part of kernel time that it took.",
            count(base.fragmented_blocks),
            count(settings.memory_for(plan).get() >> 21),
        );
    }
    if both_peaks {
        text += "\npeak: what is held by all processes together, each page once. mapped: what they map, a page that is shared once\n  \
                 for each of them, and of a folio only what is still mapped; that is what check measures.\n";
    }
    if best.is_some() {
        let percent = (PEAK_RATIO_MOST - 1.0) * 100.0;
        let _ = writeln!(
            text,
            "\n* least kernel time within {percent:.0} % more memory. Kernel time is modelled: faults, clearing, tables,\n  \
             flushes and system calls that change memory. untouched, zeroed: MiB cleared and never used, MiB cleared."
        );
    }
    text
}

/// Whether what is held and what is mapped are two figures for a reader: by more than a hundredth.
fn peaks_differ(row: &Row) -> bool {
    row.peak.get().abs_diff(row.peak_mapped.get()) > row.peak.get() / 100
}

fn best(rows: &[Row], base: &Row) -> Option<foliant_trace::replay::Choice> {
    let fits = rows.iter().filter(|row| row.peak_ratio(base) <= PEAK_RATIO_MOST);
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

/// At most `most` characters, the last one a sign that more follow.
pub(crate) fn shorten(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_texts_cut() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(shorten("abc", 3), "abc");
        assert_eq!(shorten("abcd", 3), "ab…");
    }

    #[test]
    fn columns_line_up() {
        let text =
            columns(&["a", "b"], [vec!["x".into(), "10".into()], vec!["y".into(), "7".into()]]);
        let ends: Vec<usize> = text.lines().map(|line| line.trim_end().len()).collect();
        assert!(ends.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
    }
}
