//! The page of a small input, as a parser sees it.

use super::content::{Content, Figure, System, Table};
use super::plot::{Bar, Plot, Role, Scale, Series, Shown};
use super::{map, page, story};
use crate::board::{Count, Published, Row};
use foliant::memmap::Described;
use scraper::{Html, Selector};
use story::{Story, What};

pub(super) const NASTY: &str = "a < b & \"c\" > 'd'";

fn small() -> Content {
    let bar = |name: &str, value| Bar {
        name: name.to_owned(),
        role: Role::One,
        value,
        text: format!("{value}×"),
    };
    let lines = Shown::Lines {
        places: vec!["1".to_owned(), "252".to_owned()],
        across: "CPUs".to_owned(),
        series: vec![
            Series {
                name: NASTY.to_owned(),
                role: Role::One,
                points: vec![(0, 10.0), (1, 2_000.0)],
            },
            Series { name: "whole".to_owned(), role: Role::Chosen, points: vec![(0, 9.0)] },
        ],
    };
    let plot = |scale, shown| Plot { title: NASTY.to_owned(), scale, shown };
    let figure = Figure {
        title: NASTY.to_owned(),
        says: NASTY.to_owned(),
        plots: vec![
            plot(Scale::Log, lines),
            plot(Scale::Log, Shown::Ratios(vec![bar(NASTY, 0.5), bar("more", 300.0)])),
            plot(Scale::Linear, Shown::Bars(Vec::new())),
        ],
        tables: vec![
            Table::new("first", &["name", "n"], [vec![NASTY.to_owned(), "1".to_owned()]]),
            Table::new("second", &["name"], []),
        ],
        commands: vec!["foliant lab one".to_owned(), "foliant lab two".to_owned()],
    };
    let published = Published { measure: "s", grain1: 2.0, chosen: 1.0, ratio: 0.5, source: NASTY };
    let row = Row {
        system: "hugetlb",
        work: NASTY.to_owned(),
        grains: ["one", "many"],
        measure: "us",
        grain1: 285.0,
        chosen: 10.7,
        ratio: 10.7 / 285.0,
        published,
        counts: vec![Count { name: "shootdowns", grain1: 1016, chosen: 2 }],
        command: "foliant lab hugetlb".to_owned(),
    };
    let system = System { letter: 'H', name: "Pools", about: NASTY, figures: vec![figure] };
    let story = story::tell().unwrap();
    Content {
        host: vec![("CPUs", NASTY.to_owned())],
        summary: vec![row],
        systems: vec![system],
        story,
    }
}

pub(super) fn texts(html: &Html, selector: &str) -> Vec<String> {
    let selector = Selector::parse(selector).unwrap();
    html.select(&selector).map(|element| element.text().collect()).collect()
}

#[test]
fn the_page_is_well_formed_small_and_loads_nothing() {
    sound(&page::render(&small()).unwrap());
}

/// What holds for every page.
pub(super) fn sound(text: &str) {
    assert!(text.len() < 2 << 20, "{} bytes", text.len());
    let html = Html::parse_document(text);
    assert!(html.errors.is_empty(), "{:?}", html.errors);
    for tag in ["table", "tr", "td", "th", "svg", "figure", "section", "details", "ul", "ol", "li"]
    {
        let (begun, ended) =
            (text.matches(&format!("<{tag}>")).count(), text.matches(&format!("</{tag}>")).count());
        let begun = begun + text.matches(&format!("<{tag} ")).count();
        assert_eq!(begun, ended, "{tag}");
    }
    for never in ["http://", "https://", "src=", "url(", "@import", "<script", "<link"] {
        assert!(!text.contains(never), "{never}");
    }
    let links = Selector::parse("[href]").unwrap();
    for link in html.select(&links).filter_map(|link| link.value().attr("href")) {
        let target = link.strip_prefix('#').expect("a link within the page");
        assert!(text.contains(&format!("id=\"{target}\"")), "{link}");
    }
}

#[test]
fn what_is_in_the_content_is_on_the_page() {
    let text = page::render(&small()).unwrap();
    let html = Html::parse_document(&text);
    assert_eq!(texts(&html, "h1"), ["Foliant"]);
    assert_eq!(texts(&html, "section#H h3"), [NASTY]);
    assert_eq!(texts(&html, "section#H tbody th"), [NASTY]);
    assert_eq!(texts(&html, "section#H caption"), ["first", "second"]);
    assert_eq!(texts(&html, "section#H pre"), ["foliant lab one\nfoliant lab two"]);
    let cells = ["shootdowns 1,016 → 2", "285", "10.7", "0.038", "2 → 1", "0.50"];
    assert_eq!(texts(&html, ".summary td"), cells);
    assert_eq!(texts(&html, ".summary dt"), [NASTY]);
    // Each picture says what it shows, and no two things on it look alike.
    let pictures = Selector::parse("svg[role=img]").unwrap();
    let labels: Vec<_> =
        html.select(&pictures).map(|svg| svg.value().attr("aria-label").unwrap()).collect();
    assert!(labels.iter().any(|label| label.contains("whole from 9 at 1 to 9 at 1")), "{labels:?}");
    assert!(labels.iter().any(|label| label.contains(NASTY)), "{labels:?}");
    let maps = labels.iter().filter(|label| label.starts_with("Physical memory")).count();
    assert_eq!(maps, texts(&html, "ol.moments > li").len());
    // Every constant of every model has its source.
    let constants: usize =
        foliant_sim::CostModel::ALL.iter().map(|model| model.constants.len()).sum();
    let sources = texts(&html, "#models td:last-child");
    assert_eq!(sources.len(), constants);
    assert!(sources.iter().all(|source| source.len() > 10), "{sources:?}");
}

/// Colours in plots are those that the style sheet knows, or a theme would leave them as they are.
#[test]
fn every_colour_of_a_plot_follows_the_theme() {
    let style = include_str!("style.css");
    let mut seen = 0;
    for plot in &small().systems[0].figures[0].plots {
        let svg = plot.svg().unwrap();
        for part in ["fill=\"#", "stroke=\"#"] {
            for (at, _) in svg.match_indices(part) {
                let rule = format!(".plot [{}\"]", &svg[at..at + part.len() + 6]);
                assert!(style.contains(&rule), "{rule}");
                seen += 1;
            }
        }
    }
    assert!(seen > 40, "{seen}");
}

fn of(story: &Story, name: &str, state: Described) -> usize {
    let moment = story.moments.iter().find(|moment| moment.name == name).unwrap();
    moment.tiles.iter().filter(|tile| tile.described == state).count()
}

fn frames(story: &Story, name: &str, what: impl Fn(What) -> bool) -> u64 {
    let moment = story.moments.iter().find(|moment| moment.name == name).unwrap();
    let runs = moment.tiles.iter().flat_map(|tile| &tile.runs);
    runs.filter(|(other, _)| what(*other)).map(|(_, count)| u64::from(*count)).sum()
}

#[test]
fn the_story_is_what_its_moments_say() {
    let story = story::tell().unwrap();
    for moment in &story.moments {
        for tile in &moment.tiles {
            assert_eq!(tile.runs.iter().map(|(_, count)| u32::from(*count)).sum::<u32>(), 512);
        }
        let free = frames(&story, moment.name, |what| what == What::Free);
        assert_eq!(free * 4096, moment.facts.free.get(), "{}", moment.name);
        let by_order: u64 = moment.facts.free_by_order.iter().map(|(_, bytes)| bytes.get()).sum();
        assert_eq!(by_order, moment.facts.free.get(), "{}", moment.name);
    }
    assert!(of(&story, "At the start", Described::Absent) > 60);
    assert_eq!(of(&story, "A pool, born folded", Described::Folded), 8);
    assert_eq!(of(&story, "The pool grows", Described::Folded), 16);
    assert_eq!(of(&story, "The pool is drained", Described::Folded), 0);
    assert!(of(&story, "The pool is drained", Described::Absent) >= 8);
    assert_eq!(
        frames(&story, "Filled", |what| matches!(what, What::Folio(o) if o.get() == 9)),
        48 * 512
    );
    assert_eq!(frames(&story, "Fragmented", |what| what == What::Pinned), 3);
    let sizes = |name: &str| {
        (0..=9)
            .filter(|order| {
                frames(&story, name, |what| matches!(what, What::Folio(o) if o.get() == *order)) > 0
            })
            .count()
    };
    assert!(sizes("Folios of many sizes") >= 4, "{}", sizes("Folios of many sizes"));
    assert_eq!(
        frames(&story, "At the end", |what| matches!(
            what,
            What::Folio(_) | What::Pinned | What::Pool
        )),
        0
    );
    let places = |at: usize| {
        let tiles = story.moments[at].tiles.iter();
        tiles.map(map::pinned).collect::<Vec<_>>()
    };
    assert_eq!(places(story.compaction[0]), places(story.compaction[1]), "pinned pages stay");
    let [before, after] = story.compaction.map(|at| story.moments[at].facts.whole);
    assert!(after > before + 10, "{before} whole blocks before, {after} after");
    assert_eq!(story, story::tell().unwrap(), "it is the same each time");
}

#[test]
fn a_map_draws_every_frame_of_memory_once() {
    let story = story::tell().unwrap();
    for moment in &story.moments {
        let svg = map::svg(moment);
        let mut area = 0;
        let (_, paths) = svg.split_once('>').unwrap(); // the words come first
        for step in paths.split('M').skip(1) {
            let Some((_, rest)) = step.split_once('h') else { continue };
            let (width, rest) = rest.split_once('v').unwrap();
            let height = rest.split_once('h').unwrap().0;
            area += width.parse::<u64>().unwrap() * height.parse::<u64>().unwrap();
        }
        let outside = frames(&story, moment.name, |what| what == What::Outside);
        let bars = 32 * 3;
        assert_eq!(area, moment.tiles.len() as u64 * (512 + bars) - outside, "{}", moment.name);
    }
}
