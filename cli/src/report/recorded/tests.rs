//! The page of a small recording, as a parser sees it.

use super::*;
use crate::report::tests::{NASTY, sound, texts};
use foliant_trace::replay::Sight;
use scraper::Html;
use std::path::PathBuf;

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces").join(name)
}

fn of(name: &str) -> Recorded {
    content(&shipped(name), &Budget::default()).unwrap()
}

#[test]
fn the_page_is_well_formed_and_says_what_the_replay_says() {
    let content = of("python.trace");
    let text = render(&content).unwrap();
    sound(&text);
    let html = Html::parse_document(&text);
    assert_eq!(texts(&html, ".advice h2").join("|"), content.recommended.what);
    assert_eq!(texts(&html, ".advice pre").join("|"), content.recommended.command);
    // A row and a picture for each policy, and the starred one is the recommended one.
    let policies: Vec<String> = content.rows.iter().map(|row| row.choice.to_string()).collect();
    let named = texts(&html, "#sizes tbody th");
    assert_eq!(named.len(), 2 * policies.len(), "a table of figures, and one of folios");
    let starred: Vec<&String> = named.iter().filter(|name| name.ends_with(" *")).collect();
    assert_eq!(starred, [&format!("{} *", content.recommended.choice)]);
    assert_eq!(texts(&html, ".courses b"), policies);
    assert_eq!(texts(&html, "#time details table").len(), policies.len());
    assert_eq!(texts(&html, ".areas > li").len(), content.areas.len());
    assert_eq!(
        texts(&html, "#areas .looked figure").len(),
        content.areas.len() * content.looked.len()
    );
    let lines = texts(&html, "#areas tbody th");
    assert_eq!(lines.len(), content.areas.len() + usize::from(content.others.is_some()));
    assert_eq!(content.command, format!("foliant replay {}", shipped("python.trace").display()));
}

#[test]
fn names_of_strangers_are_text() {
    let mut content = of("sort.trace");
    for name in [&mut content.name, &mut content.program, &mut content.areas[0].name] {
        *name = NASTY.to_owned();
    }
    content.warnings = vec![NASTY.to_owned()];
    let text = render(&content).unwrap();
    sound(&text);
    let html = Html::parse_document(&text);
    assert_eq!(texts(&html, "h1"), [NASTY]);
    assert_eq!(texts(&html, ".lead"), [NASTY]);
    assert_eq!(texts(&html, ".warning"), [NASTY]);
    assert!(texts(&html, ".areas h3")[0].starts_with(NASTY));
}

/// areas::A3: nothing is left out of the table of areas; and what the largest sizes map for nothing
/// is what their row holds beyond the program's pages.
#[test]
fn areas_add_up_to_what_the_replay_holds() {
    let budget = Budget::default();
    let path = shipped("sort.trace");
    let (about, described, plan) = read(&path, &budget).unwrap();
    let settings =
        replay::settings(&replay_of(&path).unwrap().machine, &about, Settings::default().model);
    let base = &replay_all(&plan, &[Choice::BASE], &settings, |_| {}).unwrap()[0];
    let sights = |choice| sights_at(&plan, base.peak_step, choice, &settings).unwrap();
    let (touched, large) = (sights(Choice::BASE), sights(LARGEST));
    let total = |sights: &foliant_trace::replay::Sights| {
        sights.list.iter().map(|sight| sight.held().get()).sum::<u64>()
    };
    let runs = touched.list.iter().flat_map(|sight: &Sight| &sight.runs);
    let zeros: u64 =
        runs.filter(|run| run.folio.is_none()).map(|run| run.range.bytes().get()).sum();
    let (large_held, mapped) = (total(&large), [large]);
    let (areas, others) = areas::compared(&touched, &mapped, &described);
    let all: Vec<&Area> = areas.iter().chain(&others).collect();
    let touched_bytes: u64 = all.iter().map(|area| area.touched_bytes.get()).sum();
    let unused: u64 = all.iter().map(|area| area.unused_bytes[0].get()).sum();
    assert_eq!(touched_bytes, total(&touched) + zeros);
    // Pages that were only read are zeros, or within a folio.
    assert!((large_held..=large_held + zeros).contains(&(touched_bytes + unused)));
    assert!(unused > 0 && touched_bytes > 60 << 20, "{unused} {touched_bytes}");
    assert!(areas.is_sorted_by_key(|area| std::cmp::Reverse(
        area.touched_bytes.get().max(area.unused_bytes[0].get()) >> 24
    )));
    assert_eq!(areas[0].title(), "sort, anonymous of space 0");
}

#[test]
fn what_is_recommended_is_the_starred_row_or_none() {
    let content = of("hash.trace");
    assert_eq!(content.recommended.choice, Choice::BASE);
    assert_eq!(content.recommended.what, "Leave this program with 4 KiB pages.");
    assert_eq!(content.looked, [LARGEST], "the program's own pages are compared with something");
    let area = &content.areas[0];
    assert!(
        area.unused_bytes[0].get() > 4 * area.touched_bytes.get(),
        "a table that is touched here and there"
    );
    let content = of("cc.trace");
    let Recommended { choice, what, command, .. } = &content.recommended;
    assert_eq!(choice.to_string(), "up-to-512k");
    assert_eq!(what, "Give this program folios of up to 512 KiB.");
    assert_eq!(command, "sudo foliant check --policy up-to-512k -- COMMAND");
    assert_eq!(content.looked, [*choice, LARGEST]);
}

#[test]
fn every_size_of_a_picture_has_a_colour() {
    let style = include_str!("../style.css");
    for content in [of("sort.trace"), of("cc.trace")] {
        for order in course::sizes(&content.rows) {
            assert!(style.contains(&format!(".course .{} {{", course::class(order))), "{order:?}");
        }
    }
}

/// report::P3: columns of a picture are as high as the lines of the table say.
#[test]
fn a_course_is_as_high_as_what_is_held() {
    let content = of("sort.trace");
    let most = course::most(&content.rows);
    let (base, row) = (&content.rows[0], &content.rows[8]);
    assert_eq!(row.choice, LARGEST);
    let svg = course::svg(row, base, most);
    let columns: u64 = svg
        .split("<path")
        .filter(|path| !path.contains("class=\"line\""))
        .flat_map(|path| path.split('v').skip(1))
        .filter_map(|step| step.split('h').next()?.parse::<u64>().ok())
        .sum();
    let expect: u64 =
        row.course.iter().map(|moment| course::held(moment).get() * 100 / most.get()).sum();
    assert_eq!(columns, expect);
    assert_eq!(svg.matches("class=\"line\"").count(), 1);
    assert_eq!(course::svg(base, base, most).matches("class=\"line\"").count(), 0);
}

#[test]
fn programs_are_named_once_and_few() {
    let names = |n: u32| (0..n).map(|n| format!("/usr/bin/p{}", n % 40)).collect::<Vec<_>>();
    assert_eq!(programs(&names(2)), "p0, p1");
    assert_eq!(programs(&["/a/x".to_owned(), "/b/x".to_owned()]), "x");
    let many = programs(&names(100));
    assert!(many.ends_with("p11, and others"), "{many}");
    assert_eq!(programs(&names(12)).split(", ").count(), 12);
}
