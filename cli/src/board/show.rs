//! The scoreboard as text: what was counted of each system, then one table of all.

use super::{Count, Published, Row};
use crate::table::{columns, count};
use crate::terminal::{entry, fitted, prose};

/// The whole text.
pub(super) fn text(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        text += &fitted(&format!("{}: {}", row.system, row.work));
        text += &columns(&["", row.grains[0], row.grains[1]], row.counts.iter().map(counted));
        text += &fitted(&format!("  all of it: {}\n\n", row.command));
    }
    let heads = ["system", "measured", "grain 1", "chosen", "ratio", "published", "ratio"];
    text += &columns(&heads, rows.iter().map(line));
    text += &prose(
        "\nA ratio is the chosen grain's to that of grain 1, less is better. Published, on other machines:",
    );
    for row in rows {
        let Published { measure, source, .. } = row.published;
        text += &entry(&format!("  {}", row.system), 11, measure);
        text += &entry("", 11, source);
    }
    text
}

fn counted(line: &Count) -> Vec<String> {
    vec![format!("  {}", line.name), count(line.grain1), count(line.chosen)]
}

fn line(row: &Row) -> Vec<String> {
    let published = &row.published;
    vec![
        row.system.to_owned(),
        row.measure.to_owned(),
        three(row.grain1),
        three(row.chosen),
        three(row.ratio),
        format!("{} to {}", three(published.grain1), three(published.chosen)),
        three(published.ratio),
    ]
}

/// With three digits that say something.
fn three(value: f64) -> String {
    match value {
        v if v >= 1000.0 => count(v.round() as u64),
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v if v >= 1.0 => format!("{v:.2}"),
        v if v >= 0.01 => format!("{v:.3}"),
        v => format!("{v:.5}"),
    }
}

#[cfg(test)]
mod tests {
    use super::three;

    #[test]
    fn numbers_keep_three_digits() {
        let cases = [
            (59_800.0, "59,800"),
            (225.1, "225"),
            (65.74, "65.7"),
            (8.85, "8.85"),
            (0.2211, "0.221"),
            (0.001_95, "0.00195"),
        ];
        for (value, text) in cases {
            assert_eq!(three(value), text);
        }
    }
}
