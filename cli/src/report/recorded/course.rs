//! A policy over the recording's time as inline SVG: for each moment a column of the memory that
//! is held in folios of each size, the largest at the bottom, and over it a line for what the
//! program touched by then.

use foliant_trace::replay::{Choice, Moment, Row};
use foliant_units::{Bytes, Order};
use std::fmt::Write;

/// A column's width, and the picture's height.
const WIDE: usize = 5;
const HIGH: u64 = 100;

/// What is held at a moment.
pub(super) fn held(moment: &Moment) -> Bytes {
    Bytes::new(moment.folios.keys().map(|order| of(moment, *order).get()).sum())
}

/// What of it is in folios of a size.
pub(super) fn of(moment: &Moment, order: Order) -> Bytes {
    let folios = moment.folios.get(&order).copied().unwrap_or(0);
    Bytes::new(folios.saturating_mul(order.bytes().get()))
}

/// The most that any row holds at a moment.
pub(super) fn most(rows: &[Row]) -> Bytes {
    let held = rows.iter().flat_map(|row| row.course.iter().map(held));
    held.max().unwrap_or_default()
}

/// The sizes that any row has at a moment, the smallest first.
pub(super) fn sizes(rows: &[Row]) -> Vec<Order> {
    let has = |order: &Order| {
        rows.iter().flat_map(|row| &row.course).any(|moment| moment.folios.contains_key(order))
    };
    Order::all().filter(has).collect()
}

/// The class of a size.
pub(super) fn class(order: Order) -> String {
    format!("o{}", order.get())
}

/// The row as an `svg` element, as high as `most`.
pub(super) fn svg(row: &Row, base: &Row, most: Bytes) -> String {
    let width = row.course.len().max(1) * WIDE;
    let mut svg = format!(
        "<svg class=\"course\" viewBox=\"0 0 {width} {HIGH}\" role=\"img\" aria-label=\"{}\">",
        alt(row),
    );
    let mut below = vec![0; row.course.len()];
    for order in
        Order::all().take(usize::from(Order::SIZE_2M.get()) + 1).collect::<Vec<_>>().iter().rev()
    {
        let mut path = String::new();
        for (nth, (moment, below)) in row.course.iter().zip(&mut below).enumerate() {
            let from = height(*below, most);
            *below += of(moment, *order).get();
            let to = height(*below, most);
            if to > from {
                let (x, y, high) = (nth * WIDE, HIGH - to, to - from);
                let _ = write!(path, "M{x} {y}h{WIDE}v{high}h-{WIDE}z");
            }
        }
        if !path.is_empty() {
            let _ = write!(svg, "<path class=\"{}\" d=\"{path}\"/>", class(*order));
        }
    }
    if row.choice != Choice::BASE {
        let _ = write!(svg, "<path class=\"line\" d=\"{}\"/>", line(base, most));
    }
    svg + "</svg>"
}

/// Steps along the tops of a row's columns.
fn line(row: &Row, most: Bytes) -> String {
    let mut path = String::new();
    for (nth, moment) in row.course.iter().enumerate() {
        let y = HIGH - height(held(moment).get(), most);
        let _ = match nth {
            0 => write!(path, "M0 {y}h{WIDE}"),
            _ => write!(path, "V{y}h{WIDE}"),
        };
    }
    path
}

fn height(bytes: u64, most: Bytes) -> u64 {
    let share = u128::from(bytes) * u128::from(HIGH) / u128::from(most.get().max(1));
    (share as u64).min(HIGH)
}

/// The row in words.
fn alt(row: &Row) -> String {
    let most = row.course.iter().max_by_key(|moment| held(moment));
    let Some(most) = most else { return format!("{}: nothing", row.choice) };
    let mut text = format!("{}: at most {} MiB", row.choice, super::in_mib(held(most)));
    for order in most.folios.keys() {
        let bytes = super::in_mib(of(most, *order));
        let _ = write!(text, ", {bytes} in folios of {}", order.bytes());
    }
    text
}
