//! An area as inline SVG: cells in rows, each with as many pages, filled from below as far as they
//! are touched, and above that as far as they are mapped for nothing.
//!
//! ```text
//!   │  │░░│░░│██│▄▄│  │      █ touched    ░ mapped and not touched    the rest is not mapped
//!   │▄▄│██│░░│██│  │  │      64 cells in a row, the first address at the top left
//! ```

use super::areas::Area;
use foliant_units::{FRAME_BYTES, VaRange};
use std::fmt::Write;

/// Cells in a row, and the most rows.
const ACROSS: u64 = 64;
const ROWS_MOST: u64 = 16;
/// A cell's width and height; its height is also how finely a share is drawn.
const WIDE: u64 = 6;
const HIGH: u64 = 8;

/// How an area is cut into cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cut {
    /// Pages in a cell, a power of two.
    pub(super) pages: u64,
    /// Cells, the last of which may have fewer pages.
    cells: u64,
}

impl Cut {
    /// As few pages a cell as there is room for.
    pub(super) fn of(pages: u64) -> Cut {
        let each = pages.div_ceil(ACROSS * ROWS_MOST).max(1);
        let each = each.checked_next_power_of_two().unwrap_or(each);
        Cut { pages: each, cells: pages.div_ceil(each) }
    }
}

/// The area under a policy, by its place among those that were looked at, as an `svg` element.
pub(super) fn svg(area: &Area, policy: usize, label: &str) -> String {
    let Some(range) = area.range else { return String::new() };
    let cut = Cut::of(range.pages().get());
    let touched = shares(range, cut, &area.touched);
    let unused = shares(range, cut, area.unused.get(policy).map_or(&[], Vec::as_slice));
    let columns = cut.cells.clamp(1, ACROSS);
    let rows = cut.cells.div_ceil(ACROSS).max(1);
    // Small areas are not blown up: the picture is as wide as 64 cells.
    let (width, height) = (ACROSS * WIDE, rows * HIGH);
    let mut svg = format!(
        "<svg class=\"cells\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">",
        maud::html! { (label) }.into_string().replace('"', "&quot;"),
    );
    let _ = write!(svg, "<path class=\"area\" d=\"M0 0h{}v{height}h-{0}z\"/>", columns * WIDE);
    let (mut low, mut high) = (String::new(), String::new());
    for (nth, (touched, unused)) in touched.iter().zip(&unused).enumerate() {
        let (x, y) = (nth as u64 % ACROSS * WIDE, nth as u64 / ACROSS * HIGH);
        let (from, above) = heights(*touched, *unused, cut.pages);
        bar(&mut low, (x, y + HIGH - from), from);
        bar(&mut high, (x, y + HIGH - from - above), above);
    }
    for (class, path) in [("touched", low), ("unused", high)] {
        if !path.is_empty() {
            let _ = write!(svg, "<path class=\"{class}\" d=\"{path}\"/>");
        }
    }
    svg + "</svg>"
}

fn bar(path: &mut String, (x, y): (u64, u64), height: u64) {
    if height > 0 {
        let _ = write!(path, "M{x} {y}h{WIDE}v{height}h-{WIDE}z");
    }
}

/// How high both parts of a cell are. What is there is seen, and both fit.
fn heights(touched: u64, unused: u64, pages: u64) -> (u64, u64) {
    let part = |n: u64| {
        let exact = (n as f64 / pages.max(1) as f64 * HIGH as f64).round() as u64;
        if n > 0 { exact.clamp(1, HIGH) } else { 0 }
    };
    let (low, high) = (part(touched), part(unused));
    match low + high > HIGH {
        true if low > high => (HIGH - high, high),
        true => (low, HIGH - low),
        false => (low, high),
    }
}

/// How many pages of the ranges are in each cell.
fn shares(area: VaRange, cut: Cut, ranges: &[VaRange]) -> Vec<u64> {
    let mut shares = vec![0; usize::try_from(cut.cells).unwrap_or(0)];
    let page = |at: u64| at.saturating_sub(area.start().get()) / FRAME_BYTES;
    for range in ranges {
        let (mut from, to) = (page(range.start().get()), page(range.end().get()));
        while from < to {
            let cell = from / cut.pages;
            let end = ((cell + 1) * cut.pages).min(to);
            if let Some(share) = shares.get_mut(cell as usize) {
                *share += end - from;
            }
            from = end;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use foliant_units::Va;

    fn range(from: u64, to: u64) -> VaRange {
        VaRange::new(Va::new(from << 12), Va::new(to << 12)).unwrap()
    }

    #[test]
    fn cells_are_few_whatever_the_area() {
        for (pages, each, cells) in [
            (1, 1, 1),
            (1024, 1, 1024),
            (1025, 2, 513),
            (1 << 17, 128, 1024),
            ((1 << 17) + 1, 256, 513),
            (1 << 35, 1 << 25, 1024),
        ] {
            assert_eq!(Cut::of(pages), Cut { pages: each, cells }, "{pages} pages");
        }
    }

    #[test]
    fn every_page_is_in_one_cell() {
        let area = range(100, 100 + 3000);
        let cut = Cut::of(3000);
        assert_eq!((cut.pages, cut.cells), (4, 750));
        let parts = [range(100, 103), range(107, 130), range(3090, 3100)];
        let shares = shares(area, cut, &parts);
        assert_eq!(shares.iter().sum::<u64>(), 3 + 23 + 10);
        assert_eq!((shares[0], shares[1], shares[2], shares[749]), (3, 1, 4, 4));
    }

    #[test]
    fn what_is_there_is_seen_and_fits() {
        for pages in [1, 2, 16, 512] {
            for touched in 0..=pages {
                for unused in 0..=pages - touched {
                    let (low, high) = heights(touched, unused, pages);
                    let place = format!("{touched} and {unused} of {pages}");
                    assert_eq!((low > 0, high > 0), (touched > 0, unused > 0), "{place}");
                    assert!(low + high <= HIGH, "{place}");
                }
            }
        }
        assert_eq!(heights(512, 0, 512), (HIGH, 0));
        assert_eq!(heights(128, 384, 512), (2, 6));
    }

    #[test]
    fn a_picture_has_a_bar_for_each_cell_with_something() {
        let area = Area {
            range: Some(range(0, 2048)),
            touched: vec![range(0, 2), range(64, 65)],
            unused: vec![vec![range(2, 4)], vec![]],
            ..Area::default()
        };
        let bars = |policy| {
            let svg = svg(&area, policy, "a < \"b\"");
            assert!(svg.contains("aria-label=\"a &lt; &quot;b&quot;\""), "{svg}");
            svg.matches('M').count()
        };
        assert_eq!((bars(0), bars(1)), (1 + 2 + 1, 1 + 2));
    }
}
