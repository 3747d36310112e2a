//! A recording's page.

use super::areas::Area;
use super::{Recorded, cells, course, in_mib};
use crate::failure::Done;
use crate::report::content::Table;
use crate::report::page::{commands, plots_of, shell, table};
use crate::report::plot::{Bar, Plot, Role, Scale, Shown};
use crate::table::count;
use foliant_trace::replay::{Choice, Row};
use foliant_units::VaRange;
use maud::{Markup, PreEscaped, html};

/// The page's text.
pub(in crate::report) fn render(content: &Recorded) -> Done<String> {
    let sizes = sizes(content)?;
    let body = html! {
        header {
            h1 { (content.name) }
            p.lead { code { (content.program) } }
        }
        main {
            (recommended(content))
            nav aria-label="Sections" {
                a href="#sizes" { "Faults and memory by size" }
                a href="#time" { "Sizes over time" }
                a href="#areas" { "Where memory is" }
                a href="#recording" { "The recording" }
            }
            (sizes)
            (over_time(content))
            (where_it_is(content))
            (recording(content))
        }
    };
    Ok(shell(&format!("{}: what folio sizes make of it", content.name), &body))
}

fn recommended(content: &Recorded) -> Markup {
    let advice = &content.recommended;
    html! {
        section.advice aria-label="Recommendation" {
            h2 { (advice.what) }
            p { (advice.why) }
            p { "What Linux makes of it is measured by:" }
            (commands(std::slice::from_ref(&advice.command)))
            @for warning in &content.warnings { p.warning { (warning) } }
        }
    }
}

/// Faults, time and memory of each policy.
fn sizes(content: &Recorded) -> Done<Markup> {
    let plot = |title: &str, value: &dyn Fn(&Row) -> f64, text: &dyn Fn(&Row) -> String| {
        let bar = |row: &Row| Bar {
            name: row.choice.to_string(),
            role: role(content, row.choice),
            value: value(row),
            text: text(row),
        };
        let bars = content.rows.iter().map(bar).collect();
        Plot { title: title.to_owned(), scale: Scale::Linear, shown: Shown::Bars(bars) }
    };
    let millis = |row: &Row| row.kernel.0 as f64 / 1e6;
    let mebi = |row: &Row| row.peak.get() as f64 / f64::from(1 << 20);
    let faults = |row: &Row| count(row.faults());
    let plots = plots_of(&[
        plot("faults", &|row| row.faults() as f64, &faults),
        plot("the kernel's time, ms", &millis, &|row| format!("{:.1}", millis(row))),
        plot("memory at its peak, MiB", &mebi, &|row| in_mib(row.peak)),
    ])?;
    Ok(html! {
        section id="sizes" {
            h2 { "Faults and memory by size" }
            p {
                "The recording, replayed through the memory manager once per policy. The kernel's time is modelled: faults, clearing, "
                "tables, flushes and system calls that change memory. Untouched memory was cleared and never used; * is recommended."
            }
            (plots)
            (table(&rows(content)))
            (table(&folios(&content.rows)))
            (commands(std::slice::from_ref(&content.command)))
        }
    })
}

fn role(content: &Recorded, choice: Choice) -> Role {
    match choice {
        choice if choice == content.recommended.choice => Role::Chosen,
        Choice::BASE => Role::One,
        _ => Role::Beside,
    }
}

fn rows(content: &Recorded) -> Table {
    let heads = [
        "policy",
        "faults",
        "kernel ms",
        "× 4k",
        "peak MiB",
        "× 4k",
        "untouched MiB",
        "cleared MiB",
        "fallbacks",
        "shootdowns",
    ];
    let base = &content.rows[..content.rows.len().min(1)];
    let row = |row: &Row| {
        let ratio = |of: fn(&Row, &Row) -> f64| {
            base.first().map_or(String::new(), |base| format!("{:.3}", of(row, base)))
        };
        let mark = if row.choice == content.recommended.choice { " *" } else { "" };
        vec![
            format!("{}{mark}", row.choice),
            count(row.faults()),
            format!("{:.1}", row.kernel.0 as f64 / 1e6),
            ratio(Row::kernel_ratio),
            in_mib(row.peak),
            ratio(Row::peak_ratio),
            crate::table::mib(row.untouched_bytes),
            crate::table::mib(row.zeroed_bytes),
            count(row.fallbacks),
            count(row.shootdowns),
        ]
    };
    let caption = "Each policy in numbers";
    Table::new(caption, &heads, content.rows.iter().map(row))
}

fn folios(rows: &[Row]) -> Table {
    let used = |order: &foliant_units::Order| rows.iter().any(|row| row.folios.contains_key(order));
    let orders: Vec<_> = foliant_units::Order::all().filter(used).collect();
    let names: Vec<String> = orders.iter().map(|order| order.bytes().to_string()).collect();
    let heads: Vec<&str> =
        std::iter::once("policy").chain(names.iter().map(String::as_str)).collect();
    let row = |row: &Row| {
        let of = |order| row.folios.get(order).map_or(String::new(), |n| count(*n));
        std::iter::once(row.choice.to_string()).chain(orders.iter().map(of)).collect()
    };
    Table::new("Folios that were made, by size", &heads, rows.iter().map(row))
}

fn over_time(content: &Recorded) -> Markup {
    let most = course::most(&content.rows);
    let span =
        content.rows.first().and_then(|row| row.course.last()).map_or(0, |last| last.time_ns);
    html! {
        section id="time" {
            h2 { "Sizes over time" }
            p {
                "Memory that each policy holds, by the size of the folios that it is in. All pictures are "
                (in_mib(most)) " MiB high and " (seconds(span)) " s wide; the line is what the program itself has touched by then, "
                "so what is above it is mapped for nothing."
            }
            ul.legend.map-key {
                @for order in course::sizes(&content.rows) {
                    li { (swatch("course", &course::class(order))) (order.bytes().to_string()) }
                }
                li { (swatch("course", "line")) "touched" }
            }
            @if let Some(base) = content.rows.first() {
                ul.courses {
                    @for row in &content.rows {
                        li {
                            figure {
                                figcaption {
                                    b { (row.choice.to_string()) }
                                    @if row.choice == content.recommended.choice { " recommended" }
                                }
                                (PreEscaped(course::svg(row, base, most)))
                            }
                        }
                    }
                }
            }
            details {
                summary { "These pictures in numbers" }
                @for row in &content.rows { (table(&moments(row))) }
            }
        }
    }
}

fn moments(row: &Row) -> Table {
    let orders = course::sizes(std::slice::from_ref(row));
    let names: Vec<String> = orders.iter().map(|order| order.bytes().to_string()).collect();
    let mut heads = vec!["until, s", "faults", "held"];
    heads.extend(names.iter().map(String::as_str));
    let line = |moment: &foliant_trace::replay::Moment| {
        let mut cells =
            vec![seconds(moment.time_ns), count(moment.faults), in_mib(course::held(moment))];
        cells.extend(orders.iter().map(|order| in_mib(course::of(moment, *order))));
        cells
    };
    let caption =
        format!("{}: faults since the line above, MiB held, MiB in folios of", row.choice);
    Table::new(caption, &heads, row.course.iter().map(line))
}

fn seconds(ns: u64) -> String {
    format!("{:.3}", ns as f64 / 1e9)
}

fn where_it_is(content: &Recorded) -> Markup {
    html! {
        section id="areas" {
            h2 { "Where memory is" }
            p {
                "Areas of private memory without a file, at the moment when the program has touched the most, those with the most memory "
                "first. A cell is filled from below as far as its pages are touched, and above that as far as they are mapped and not "
                "touched; the rest of it is not mapped. A page that was only read is touched and takes no memory."
            }
            ul.legend.map-key {
                li { (swatch("cells", "touched")) "touched" }
                li { (swatch("cells", "unused")) "mapped and not touched" }
                li { (swatch("cells", "area")) "not mapped" }
            }
            ul.areas {
                @for area in &content.areas { li { (pictures(content, area)) } }
            }
            (table(&areas(content)))
        }
    }
}

/// An area under each policy that was looked at.
fn pictures(content: &Recorded, area: &Area) -> Markup {
    let pages = area.range.map_or(0, |range| range.pages().get());
    let cell = cells::Cut::of(pages).pages.saturating_mul(foliant_units::FRAME_BYTES);
    html! {
        h3 { (area.title()) }
        p {
            (in_mib(area.size)) " MiB at " code { (address(area.range)) } ", " (in_mib(area.touched_bytes)) " MiB touched; a cell is "
            (foliant_units::Bytes::new(cell).to_string())
        }
        div.looked {
            @for (nth, choice) in content.looked.iter().enumerate() {
                figure {
                    @let unused = area.unused_bytes.get(nth).copied().unwrap_or_default();
                    @let says = format!("{choice}: {} MiB mapped and not touched", in_mib(unused));
                    figcaption { (says) }
                    (PreEscaped(cells::svg(area, nth, &format!("{}, {says}", area.title()))))
                }
            }
        }
    }
}

fn address(range: Option<VaRange>) -> String {
    range.map_or(String::new(), |range| format!("{:#x}", range.start().get()))
}

fn areas(content: &Recorded) -> Table {
    let mut heads =
        vec!["area".to_owned(), "at".to_owned(), "MiB".to_owned(), "touched".to_owned()];
    heads.extend(content.looked.iter().map(|choice| format!("unused, {choice}")));
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let row = |area: &Area| {
        let mut cells =
            vec![area.title(), address(area.range), in_mib(area.size), in_mib(area.touched_bytes)];
        cells.extend(area.unused_bytes.iter().map(|bytes| in_mib(*bytes)));
        cells
    };
    Table::new(
        "MiB of each area: its size, what is touched, and what each policy maps beside that",
        &heads,
        content.areas.iter().chain(&content.others).map(row),
    )
}

fn recording(content: &Recorded) -> Markup {
    html! {
        section id="recording" {
            h2 { "The recording" }
            dl { @for (name, value) in &content.facts { dt { (name) } dd { (value) } } }
        }
    }
}

fn swatch(picture: &str, class: &str) -> Markup {
    let shape = if class == "line" { "M0 6h12" } else { "M0 0h12v12h-12z" };
    html! {
        svg class={ (picture) " swatch" } viewBox="0 0 12 12" aria-hidden="true" { path class=(class) d=(shape) {} }
    }
}
