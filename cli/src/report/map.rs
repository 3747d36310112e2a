//! A moment of the story as inline SVG: a tile for each 2 MiB block.
//!
//! ```text
//!   ┌────────────────────────────────┐  16 rows of 32 frames, the first one at the top left
//!   │                                │
//!   └────────────────────────────────┘
//!   ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓  below it, its descriptors: absent, mapped, folded
//! ```
//!
//! Frames of a kind that lie side by side are one step of a path, and each kind has one path, so
//! that a moment takes some kilobytes. Colours are the style sheet's.

use super::story::{Moment, Tile, What};
use foliant::memmap::Described;
use foliant_units::Order;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Tiles in a row.
const ACROSS: usize = 8;
/// Frames in a row of a tile, and rows.
const FRAMES: u16 = 32;
const ROWS: u16 = 16;
/// A tile with its descriptors and the gap to the next.
const STEP: (usize, usize) = (36, 23);
/// Where its descriptors are, and how high they are drawn.
const BELOW: usize = 17;
const BAR: usize = 3;

/// The class of what a frame is.
pub(crate) fn class(what: What) -> String {
    match what {
        What::Free => "free".to_owned(),
        What::Own => "own".to_owned(),
        What::Outside => "outside".to_owned(),
        What::Pinned => "pinned".to_owned(),
        What::Pool => "pool".to_owned(),
        What::Folio(order) => format!("o{}", order.get().min(Order::SIZE_2M.get())),
    }
}

/// The class of a state of descriptors.
pub(crate) fn described(state: Described) -> &'static str {
    match state {
        Described::Absent => "absent",
        Described::Leaf => "leaf",
        Described::Dense => "dense",
        Described::Folded => "folded",
    }
}

/// The moment as an `svg` element.
pub(crate) fn svg(moment: &Moment) -> String {
    let rows = moment.tiles.len().div_ceil(ACROSS);
    let (width, height) = (ACROSS * STEP.0 - 4, rows * STEP.1 - 2);
    let mut paths: BTreeMap<String, String> = BTreeMap::new();
    for (nth, tile) in moment.tiles.iter().enumerate() {
        let at = (nth % ACROSS * STEP.0, nth / ACROSS * STEP.1);
        draw(tile, at, &mut paths);
    }
    let mut svg = format!(
        "<svg class=\"map\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">",
        alt(moment)
    );
    paths.remove(&class(What::Outside));
    for (class, path) in paths {
        let _ = write!(svg, "<path class=\"{class}\" d=\"{path}\"/>");
    }
    // A frame is smaller than the eye wants: a ring around each that is pinned.
    for (nth, tile) in moment.tiles.iter().enumerate() {
        for at in pinned(tile) {
            let (column, row) = (usize::from(at % FRAMES), usize::from(at / FRAMES));
            let (x, y) = (nth % ACROSS * STEP.0 + column, nth / ACROSS * STEP.1 + row);
            let _ = write!(svg, "<circle class=\"ring\" cx=\"{x}.5\" cy=\"{y}.5\" r=\"3\"/>");
        }
    }
    svg + "</svg>"
}

/// Where runs of pinned frames begin.
pub(super) fn pinned(tile: &Tile) -> Vec<u16> {
    let mut at = 0;
    let mut found = Vec::new();
    for (what, count) in &tile.runs {
        if *what == What::Pinned {
            found.push(at);
        }
        at += count;
    }
    found
}

fn draw(tile: &Tile, (x, y): (usize, usize), paths: &mut BTreeMap<String, String>) {
    let mut rect = |class: String, (x, y): (usize, usize), (w, h): (usize, usize)| {
        let _ = write!(paths.entry(class).or_default(), "M{x} {y}h{w}v{h}h-{w}z");
    };
    let mut at = 0;
    for (what, count) in &tile.runs {
        let end = at + count;
        while at < end {
            let (column, row) = (at % FRAMES, at / FRAMES);
            // Whole rows in one go, else to the end of the row.
            let (w, h) = match (end - at) / FRAMES {
                rows if column == 0 && rows > 0 => (FRAMES, rows.min(ROWS)),
                _ => ((end - at).min(FRAMES - column), 1),
            };
            let place = (x + usize::from(column), y + usize::from(row));
            rect(class(*what), place, (w.into(), h.into()));
            at += w * h;
        }
    }
    rect(described(tile.described).to_owned(), (x, y + BELOW), (FRAMES.into(), BAR));
}

/// The moment in words.
pub(crate) fn alt(moment: &Moment) -> String {
    let tiles = |state| moment.tiles.iter().filter(|tile| tile.described == state).count();
    let whole =
        moment.tiles.iter().filter(|tile| tile.runs == [(What::Free, FRAMES * ROWS)]).count();
    format!(
        "Physical memory, {} blocks of 2 MiB: {whole} are wholly free, descriptors of {} are absent and of {} folded",
        moment.tiles.len(),
        tiles(Described::Absent),
        tiles(Described::Folded)
    )
}
