//! The content as one HTML page.

use super::content::{Content, Figure, System, Table};
use super::map;
use super::number::number;
use super::plot::{Bar, Plot, Role, Scale, Series, Shown};
use super::story::{CPUS, MEMORY, Moment, Story, What};
use crate::board::{Count, Row};
use crate::failure::Done;
use crate::table::{count, mib};
use foliant::memmap::Described;
use foliant_sim::CostModel;
use foliant_units::Order;
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("style.css");
const MAP: &str = "memory";
const MODELS: &str = "models";
const HOST: &str = "host";

/// The page's text.
pub(crate) fn render(content: &Content) -> Done<String> {
    let story = story(&content.story)?;
    let systems: Vec<Markup> = content.systems.iter().map(system).collect::<Done<_>>()?;
    let overview = overview(content)?;
    let body = html! {
        header {
            h1 { "Foliant" }
            p.lead {
                "Five systems of a huge-page memory manager, each measured at grain 1, which works page by page, and at the "
                "grain that is chosen, by the same code in the same run, beside what was published for the system."
            }
        }
        main {
            (summary(content))
            (overview)
            nav aria-label="Sections" {
                @for system in &content.systems {
                    a href={ "#" (system.letter) } { (system.letter) ": " (system.name) }
                }
                a href={ "#" (MAP) } { "Memory over time" }
                a href={ "#" (MODELS) } { "What work costs" }
                a href={ "#" (HOST) } { "The machine" }
            }
            @for system in &systems { (system) }
            (story)
            (models())
            (host(&content.host))
        }
    };
    Ok(shell("Foliant: five systems, measured", &body))
}

/// A page with this title and body, and the style of all pages.
pub(super) fn shell(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { (body) }
        }
    };
    page.into_string()
}

fn times(ratio: f64) -> String {
    if ratio.is_finite() { format!("{}×", number(ratio)) } else { "–".to_owned() }
}

fn summary(content: &Content) -> Markup {
    let cell = |label: &str, text: String| html! { td data-label=(label) { (text) } };
    let arrow = |of: f64, to: f64| format!("{} → {}", number(of), number(to));
    html! {
        section.summary aria-label="Summary" {
            table {
                thead {
                    tr {
                        th scope="col" { "System" } th scope="col" { "Counted" } th scope="col" { "Grain 1" }
                        th scope="col" { "Chosen grain" } th scope="col" { "Ratio" } th scope="col" { "Published" }
                        th scope="col" { "Ratio" }
                    }
                }
                tbody {
                    @for (row, system) in content.summary.iter().zip(&content.systems) {
                        tr {
                            th scope="row" {
                                a href={ "#" (system.letter) } { (system.letter) } " " span { (row.work) "; " (row.measure) }
                            }
                            (cell("counted", row.counts.first().map_or(String::new(), counted)))
                            (cell("grain 1", number(row.grain1)))
                            (cell("chosen grain", number(row.chosen)))
                            td.ratio data-label="ratio" { (number(row.ratio)) }
                            (cell("published", arrow(row.published.grain1, row.published.chosen)))
                            (cell("its ratio", number(row.published.ratio)))
                        }
                    }
                }
            }
            p.says { "A ratio is the chosen grain's to that of grain 1: less is better. What was published is another machine's, so its ratio can be compared, and its values not." }
            details {
                summary { "What was done, and by whom it was published" }
                dl {
                    @for row in &content.summary {
                        dt { (row.work) }
                        dd { (row.grains[0]) ", " (row.grains[1]) ". " code { (row.command) } }
                        dd { "Published: " (row.published.measure) ". " (row.published.source) }
                    }
                }
            }
        }
    }
}

fn counted(line: &Count) -> String {
    format!("{} {} → {}", line.name, count(line.grain1), count(line.chosen))
}

/// How many times less is counted, and measured, of each system.
fn overview(content: &Content) -> Done<Markup> {
    let less = |of: f64, to: f64| if to > 0.0 { of / to } else { f64::NAN };
    let bars = |title: &str, role, of: &dyn Fn(&Row) -> f64| {
        let bar = |(row, system): (&Row, &System)| {
            let value = of(row);
            Bar { name: system.letter.to_string(), role, value, text: times(value) }
        };
        let rows = content.summary.iter().zip(&content.systems);
        Plot {
            title: title.to_owned(),
            scale: Scale::Log,
            shown: Shown::Ratios(rows.map(bar).collect()),
        }
    };
    let counts = |row: &Row| {
        row.counts.first().map_or(f64::NAN, |line| less(line.grain1 as f64, line.chosen as f64))
    };
    let plots = [
        bars("Times less is counted", Role::Chosen, &counts),
        bars("Times less is measured", Role::Beside, &|row| less(row.grain1, row.chosen)),
    ];
    plots_of(&plots)
}

pub(super) fn plots_of(plots: &[Plot]) -> Done<Markup> {
    let svgs: Vec<String> = plots.iter().map(Plot::svg).collect::<Done<_>>()?;
    Ok(html! {
        @if !plots.is_empty() {
            div.plots {
                @for (plot, svg) in plots.iter().zip(&svgs) {
                    figure {
                        figcaption { (plot.title) }
                        (PreEscaped(svg))
                        (legend(plot))
                    }
                }
            }
        }
    })
}

fn legend(plot: &Plot) -> Markup {
    let names = plot.legend();
    html! {
        @if !names.is_empty() {
            ul.legend {
                @for (name, role) in names {
                    li { (key(role)) (name) }
                }
            }
        }
    }
}

/// The mark of a role, as plots draw it.
fn key(role: Role) -> Markup {
    let shape = match role {
        Role::Chosen => "M6 8a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
        Role::One => "M6.5 4.5h7v7h-7z",
        Role::Third => "M10 3l5 9h-10z",
        Role::Fourth => "M10 3l5 5l-5 5l-5-5z",
        Role::Beside => "M5 4h10l-5 9z",
    };
    html! {
        svg class={ "key " (role.class()) } viewBox="0 0 20 16" aria-hidden="true" {
            path d="M0 7h20v2h-20z" {}
            path d=(shape) {}
        }
    }
}

fn system(system: &System) -> Done<Markup> {
    let figures: Vec<Markup> = system.figures.iter().map(figure).collect::<Done<_>>()?;
    Ok(html! {
        section id=(system.letter) {
            h2 { (system.letter) ": " (system.name) }
            p { (system.about) }
            @for figure in &figures { (figure) }
        }
    })
}

fn figure(figure: &Figure) -> Done<Markup> {
    let plots = plots_of(&figure.plots)?;
    let (first, others) = figure.tables.split_at(figure.tables.len().min(1));
    Ok(html! {
        article {
            h3 { (figure.title) }
            p { (figure.says) }
            div.body.pair[figure.plots.len() == 1] {
                (plots)
                @for one in first { (table(one)) }
            }
            @if !others.is_empty() {
                details {
                    summary { "More numbers" }
                    @for one in others { (table(one)) }
                }
            }
            (commands(&figure.commands))
        }
    })
}

pub(super) fn table(table: &Table) -> Markup {
    html! {
        // What scrolls can be reached by keyboard.
        div.wide tabindex="0" role="region" aria-label=(table.caption) {
            table {
                caption { (table.caption) }
                thead { tr { @for head in &table.heads { th scope="col" { (head) } } } }
                tbody {
                    @for row in &table.rows {
                        tr {
                            @for (nth, cell) in row.iter().enumerate() {
                                @if nth == 0 { th scope="row" { (cell) } } @else { td { (cell) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

pub(super) fn commands(commands: &[String]) -> Markup {
    html! {
        @match commands {
            [] => {}
            [one] => pre.command tabindex="0" { code { (one) } }
            several => details {
                summary { (several.len()) " commands make these numbers" }
                pre.command tabindex="0" { code { (several.join("\n")) } }
            }
        }
    }
}

fn story(story: &Story) -> Done<Markup> {
    let [before, after] = story.compaction;
    let free = plots_of(&[free_by_block(&story.moments[before], &story.moments[after])])?;
    let orders: Vec<Order> =
        Order::all().filter(|o| *o <= Order::SIZE_2M && o.get() != 1).collect();
    Ok(html! {
        section id=(MAP) {
            h2 { "Memory over time" }
            p {
                (count(MEMORY.get() >> 20)) " MiB of a simulated machine with " (CPUS) " CPUs. Each tile is a block of 2 MiB and shows its 512 "
                "frames in 16 rows; the bar below it shows how its descriptors are mapped. All but the pins is read from a manager at work."
            }
            ul.legend.map-key {
                li { (swatch("free")) "free" }
                @for order in &orders {
                    li { (swatch(&map::class(What::Folio(*order)))) (order.bytes().to_string()) " folio" }
                }
                li { (swatch(&map::class(What::Pool))) "huge page of the pool" }
                li {
                    svg.map.swatch.ringed viewBox="0 0 12 12" aria-hidden="true" {
                        path.pinned d="M5 5h2v2h-2z" {}
                        circle.ring cx="6" cy="6" r="4.5" {}
                    }
                    "pinned"
                }
                li { (swatch(&map::class(What::Own))) "the manager's own" }
            }
            ul.legend.map-key {
                @for (state, name) in [
                    (Described::Absent, "no descriptors"), (Described::Leaf, "by a leaf of 2 MiB"),
                    (Described::Dense, "by eight entries"), (Described::Folded, "folded: one frame of eight"),
                ] {
                    li { (swatch(map::described(state))) (name) }
                }
            }
            ol.moments {
                @for (nth, moment) in story.moments.iter().enumerate() {
                    li {
                        figure {
                            figcaption { b { (nth + 1) ". " (moment.name) } " " (moment.says) }
                            (PreEscaped(map::svg(moment)))
                        }
                    }
                }
            }
            (table(&facts(&story.moments)))
            h3 { "Fragmentation before and after compaction" }
            p {
                "Where free memory lies, by the largest block that it is part of. The index is Linux's for 2 MiB: 1.000 where all that "
                "is missing is that pieces lie apart, -1.000 where a block is free."
            }
            div.pair {
                (free)
                (table(&fragmentation(&story.moments[before], &story.moments[after])))
            }
            (commands(&["foliant report".to_owned()]))
        }
    })
}

fn swatch(class: &str) -> Markup {
    html! {
        svg.map.swatch viewBox="0 0 12 12" aria-hidden="true" { path class=(class) d="M0 0h12v12h-12z" {} }
    }
}

fn facts(moments: &[Moment]) -> Table {
    let heads = [
        "moment",
        "free MiB",
        "free 2 MiB blocks",
        "index for 2 MiB",
        "frames of descriptors",
        "shootdowns so far",
    ];
    let row = |(nth, moment): (usize, &Moment)| {
        let facts = &moment.facts;
        vec![
            format!("{}. {}", nth + 1, moment.name),
            mib(facts.free.get()),
            count(facts.whole),
            facts.fragmentation.to_string(),
            count(facts.descriptor_frames),
            count(facts.shootdowns),
        ]
    };
    Table::new("The moments in numbers", &heads, moments.iter().enumerate().map(row))
}

/// What the table of fragmentation says, as lines.
fn free_by_block(before: &Moment, after: &Moment) -> Plot {
    let line = |name: &str, role, moment: &Moment| {
        let blocks = moment.facts.free_by_order.iter().enumerate();
        let points = blocks.map(|(nth, (_, bytes))| (nth, bytes.get() as f64 / f64::from(1 << 20)));
        Series { name: name.to_owned(), role, points: points.collect() }
    };
    let places = before.facts.free_by_order.iter().map(|(order, _)| order.bytes().to_string());
    let series = vec![line("before", Role::One, before), line("after", Role::Chosen, after)];
    Plot {
        title: "free MiB by the block they are part of".to_owned(),
        scale: Scale::Linear,
        shown: Shown::Lines { places: places.collect(), across: "block".to_owned(), series },
    }
}

fn fragmentation(before: &Moment, after: &Moment) -> Table {
    let free = |moment: &Moment, order: Order| {
        let found = moment.facts.free_by_order.iter().find(|(other, _)| *other == order);
        mib(found.map_or(0, |(_, bytes)| bytes.get()))
    };
    let row = |(order, _): &(Order, foliant_units::Bytes)| {
        let more = if *order == Order::SIZE_2M { " and more" } else { "" };
        vec![format!("{}{more}", order.bytes()), free(before, *order), free(after, *order)]
    };
    let index = vec![
        "index for 2 MiB".to_owned(),
        before.facts.fragmentation.to_string(),
        after.facts.fragmentation.to_string(),
    ];
    let rows = before.facts.free_by_order.iter().map(row).chain([index]);
    Table::new("Free MiB in blocks of", &["block", "before", "after"], rows)
}

fn models() -> Markup {
    let cells = |model: &CostModel| {
        let row = |c: &foliant_sim::Constant| {
            vec![
                c.work.name().replace('_', " "),
                number(c.nanos),
                c.unit.to_owned(),
                c.source.split_whitespace().collect::<Vec<_>>().join(" "),
            ]
        };
        let caption = format!("{}: {}", model.name, model.about);
        Table::new(caption, &["work", "ns", "for each", "source"], model.constants.iter().map(row))
    };
    html! {
        section id=(MODELS) {
            h2 { "What work costs" }
            p {
                "Modelled time is a sum: what the simulated machine sees is charged to the CPU that does it, by these prices. Each says "
                "where it is from. A model knows no caches, no shared bandwidth and no waiting for locks."
            }
            @for model in CostModel::ALL {
                div.sources { (table(&cells(&model))) }
            }
        }
    }
}

fn host(facts: &[(&'static str, String)]) -> Markup {
    html! {
        section id=(HOST) {
            h2 { "The machine that this page was made on" }
            p {
                "Counts and modelled times are the same on every machine. Only what is said to be measured depends on this one."
            }
            dl {
                @for (name, value) in facts { dt { (name) } dd { (value) } }
            }
        }
    }
}
