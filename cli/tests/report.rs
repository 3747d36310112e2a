//! `foliant report` from outside: the file, and the page in a real browser.

mod browser;

use browser::Browser;
use serde_json::Value;
use std::fs;
use std::io::{Write, stderr};
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

fn report(args: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foliant"));
    command.arg("report").args(args).current_dir(folder).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_cannot_be_written_is_named_before_anything_is_measured() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    for (place, expect) in [
        ("no/such/place.html", "no such folder"),
        (".", "folder"),
        ("file/page", "cannot be written"),
    ] {
        let output = report(&["-o", place], folder.path());
        assert_eq!(output.status.code(), Some(2), "{place}");
        let said = said(&output);
        assert!(said.contains(place) && said.contains(expect) && said.contains("-o"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let left: Vec<_> =
        fs::read_dir(folder.path()).unwrap().flatten().map(|e| e.file_name()).collect();
    assert_eq!(left, ["file"]);
}

/// Words that any reader of the page looks for.
const WORDS: [&str; 8] = [
    "H: Pools",
    "V: Kernel",
    "T: Splitting",
    "Z: Clearing",
    "A: Faults",
    "Memory over time",
    "guest-252",
    "Processor",
];

#[test]
fn the_page_is_right_on_phones_and_desks_in_dark_and_light() {
    looks_right(&["--quick"], &WORDS);
}

/// Words of a recording's page.
const RECORDED: [&str; 8] = [
    "python.trace",
    "workload.py",
    "up-to-64k",
    "Give this program folios of up to",
    "Faults and memory by size",
    "Sizes over time",
    "Where memory is",
    "22,422 recorded",
];

#[test]
fn a_recording_has_a_page_that_is_right_in_the_same_places() {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces/python.trace");
    looks_right(&[shipped.to_str().unwrap()], &RECORDED);
}

/// A stranger's recording, whatever it says, leaves no page behind where its budget is spent.
#[test]
fn a_recording_that_is_too_much_is_refused_and_leaves_nothing() {
    let folder = TempDir::new().unwrap();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces/pool.trace");
    let output = report(&["--budget", "64m", shipped.to_str().unwrap()], folder.path());
    assert_eq!(output.status.code(), Some(2));
    let said = said(&output);
    assert!(said.contains("pool.trace") && said.contains("--budget 256m"), "{said}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

fn looks_right(args: &[&str], words: &[&str]) {
    let folder = TempDir::new().unwrap();
    let output = report(args, folder.path());
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("foliant-report.html holds the report"), "{}", said(&output));
    let page = folder.path().join("foliant-report.html");
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.len() < 2 << 20, "{} bytes", text.len());
    for word in words {
        assert!(text.contains(*word), "{word}");
    }
    let Some(mut browser) = Browser::start() else {
        let _ = writeln!(
            stderr(),
            "skipped: the report in a browser, because none is installed; on Debian or Ubuntu: \
             apt-get install --no-install-recommends chromium"
        );
        return;
    };
    let mut grounds = Vec::new();
    for width in [375, 1280] {
        for theme in ["light", "dark"] {
            browser.show(&page, width, theme);
            let place = format!("{width} px, {theme}");
            quiet(&browser, &place);
            legible(&mut browser, &place);
            grounds.push(theme_of(&mut browser, theme));
            let painted = browser.value(
                "new Promise(done => new PerformanceObserver(list => done(list.getEntries()[0].startTime))\
                 .observe({ type: 'paint', buffered: true }))",
            );
            let _ = writeln!(stderr(), "report at {place}: painted after {painted} ms");
        }
    }
    assert!(
        grounds[0] == grounds[2] && grounds[1] == grounds[3] && grounds[0] != grounds[1],
        "{grounds:?}"
    );
}

/// What the checks below look at is there to be seen where a page is bad.
#[test]
fn a_bad_page_is_found_out() {
    let Some(mut browser) = Browser::start() else { return };
    let folder = TempDir::new().unwrap();
    let page = folder.path().join("bad.html");
    let bad = "<!DOCTYPE html><div style='width:2000px'>a</div><img src='missing.png'><script>console.log(1)</script>";
    fs::write(&page, bad).unwrap();
    browser.show(&page, 375, "light");
    let seen = |method: &str| browser.events.iter().any(|event| event["method"] == method);
    assert!(seen("Runtime.consoleAPICalled") && seen("Log.entryAdded"));
    let asked =
        browser.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
    assert_eq!(asked.count(), 2);
    assert!(browser.value(OVERFLOW).as_u64() > Some(1000));
}

/// How many pixels a page is wider than its screen.
const OVERFLOW: &str = "document.documentElement.scrollWidth - window.screen.width";

/// Nothing was said on the console, and nothing but the file was asked for.
fn quiet(browser: &Browser, place: &str) {
    for event in &browser.events {
        let method = event["method"].as_str().unwrap_or_default();
        let loud = ["Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"];
        assert!(!loud.contains(&method), "{place}: {event}");
        if method == "Network.requestWillBeSent" {
            let url = event["params"]["request"]["url"].as_str().unwrap_or_default();
            assert!(
                url.starts_with("file://") && url.ends_with("foliant-report.html"),
                "{place}: {url}"
            );
        }
    }
}

fn legible(browser: &mut Browser, place: &str) {
    // What is cut off by nothing ends within the page.
    let outside = browser.value(
        "[...document.querySelectorAll('body *')].filter(e => !e.closest('.wide, pre, thead, details:not([open])') \
         && e.getBoundingClientRect().right > window.screen.width + 1).map(e => e.outerHTML.slice(0, 80))",
    );
    assert_eq!(outside, Value::Array(Vec::new()), "{place}");
    let wide = browser.value(OVERFLOW);
    assert!(wide.as_i64() <= Some(0), "{place}: the page is {wide} px too wide");
    let smallest = browser.value(
        "Math.min(...[...document.querySelectorAll('svg.plot')].map(e => 12 * e.getBoundingClientRect().width / 360))",
    );
    assert!(smallest.as_f64() > Some(10.0), "{place}: text of {smallest} px");
    let empty = browser.value(
        "[...document.querySelectorAll('svg')].filter(e => !e.closest('details:not([open])') && e.getBoundingClientRect().height < 5).length",
    );
    assert_eq!(empty, 0, "{place}: pictures without a height");
    // No text of a plot is cut off at its edges.
    let cut = browser.value(
        "[...document.querySelectorAll('svg.plot text')].filter(t => { const box = t.closest('svg').getBoundingClientRect(), \
         r = t.getBoundingClientRect(); return r.left < box.left - 1 || r.right > box.right + 1 })\
         .map(t => t.textContent.trim())",
    );
    assert_eq!(cut, Value::Array(Vec::new()), "{place}");
}

/// The page's ground and the colour of a plot's text, which stand out from each other.
fn theme_of(browser: &mut Browser, theme: &str) -> Value {
    let found = browser.value(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.querySelector('svg.plot text')).fill]",
    );
    let light = |at: usize| {
        let text = found[at].as_str().unwrap_or_default();
        let parts = text.trim_start_matches("rgb(").trim_end_matches(')').split(',');
        parts.filter_map(|part| part.trim().parse::<u32>().ok()).sum::<u32>()
    };
    let (ground, ink) = (light(0), light(1));
    match theme {
        "dark" => assert!(ground + 300 < ink, "{found}"),
        _ => assert!(ink + 300 < ground, "{found}"),
    }
    found
}
