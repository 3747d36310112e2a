//! Facts about the tree. Each message says what to do next.

mod circles;
mod comments;
mod lines;
mod names;
mod rooms;
mod rules;

use crate::run::root;
use circles::Files;
use lines::Lines;
use names::Types;
use rooms::{Uses, place_of};
use rules::Rules;
use std::fs;
use std::path::{Path, PathBuf};

/// Files of the manager that call `relax` themselves. None of them holds a page table's lock then;
/// whoever has one gives it back by waiting (`Locked::let_go`, table::I9).
const RELAXING: &[&str] = &[
    "fault/fill.rs",
    "fault/mod.rs",
    "manager/anchor.rs",
    "manager/broken.rs",
    "manager/fill.rs",
    "manager/kernel.rs",
    "manager/mod.rs",
    "manager/object.rs",
    "manager/pool.rs",
    "rmap/tree.rs",
    "space/broken.rs",
    "space/life.rs",
    "stock/describe.rs",
    "stock/isolated.rs",
    "stock/speculate.rs",
    "stock/work.rs",
    "sync/grace.rs",
    "sync/patient.rs",
    "sync/sequence.rs",
    "sync/spin.rs",
    "table/edit.rs",
    "table/lock.rs",
];

/// What a manager can be asked for, and no scene of the explorer asks for, with the reason.
const UNEXPLORED: [(&str, &str); 17] = [
    ("new", "nobody else knows the manager yet"),
    ("describe_all", "before anybody else knows it"),
    ("machine", "what it was made of"),
    ("cpus", "what it was made of"),
    ("add_memory_of", "`add_memory` is this, of one node"),
    ("root", "it never changes"),
    ("spaces", "nobody is at work, as for `audit`"),
    ("objects", "nobody is at work, as for `audit`"),
    ("frame", "where a page is that is kept"),
    ("frames", "what an anchor has"),
    ("is_promised", "of a page that is kept"),
    ("read", "bytes of a page that is kept"),
    ("write", "bytes of a page that is kept"),
    ("is_shared_writable", "its caller keeps mappings of the object from beginning meanwhile"),
    ("collapse_object", "`collapse` in the object's space, behind what a punch does to programs"),
    ("leaves", "`walk` goes the same way"),
    ("idle", "a count, of sizes that the manager chooses; the explorer's switches are others"),
];

/// Documents whose paths must exist.
const DOCUMENTS: [&str; 6] = [
    "README.md",
    "ARCHITECTURE.md",
    "STYLE.md",
    "docs/rules.md",
    "docs/commands.md",
    "docs/measurements.md",
];

/// Lines of the README at most: who opens it reads it to the end.
const README_MAX: usize = 130;

/// Checks everything, and prints the census of unsafe code.
pub(crate) fn tidy() -> Result<(), String> {
    let root = root();
    let mut findings = Vec::new();
    let mut files = Vec::new();
    for place in ["crates", "cli", "xtask", "kernel", "examples", "fuzz"] {
        rust_files(&root.join(place), &mut files);
    }
    let files: Vec<(String, String)> =
        files.iter().map(|file| named(&root, file)).collect::<Result<_, _>>()?;
    let (mut census, mut uses, mut types) = (Vec::new(), Uses::default(), Types::default());
    let mut length = Lines::default();
    let mut circles = Files::default();
    for (name, text) in &files {
        head(name, text, &mut findings);
        uses.note(name, text, &mut findings);
        types.note(name, text, &mut findings);
        length.note(name, text);
        comments::read(name, text, &mut findings);
        comments::keys(name, text, &mut findings);
        circles.note(name, text, &mut findings);
        yields(name, text, &mut findings);
        duties(name, text, &mut findings);
        let blocks = text.matches("unsafe {").count() + text.matches("unsafe impl").count();
        if blocks > 0 {
            census.push((name.clone(), blocks));
        }
    }
    circles.circles(&mut findings);
    explored(&root, &mut findings)?;
    let documents = documents(&root)?;
    for wanted in DOCUMENTS {
        match documents.iter().find(|(name, _)| name == wanted) {
            Some((_, text)) => paths(&root, wanted, text, &mut findings),
            None => findings.push(format!("{wanted} is missing: write it")),
        }
    }
    let text_of = |wanted| {
        let found = documents.iter().find(|(name, _)| name == wanted);
        found.map_or("", |(_, text)| text)
    };
    uses.drawn(text_of(rooms::MAP), &mut findings);
    let lines = text_of("README.md").lines().count();
    if lines > README_MAX {
        findings.push(format!(
            "README.md has {lines} lines, {README_MAX} at most: move what is read later into docs"
        ));
    }
    let count = files.len();
    cited(&root, files, &documents, &mut findings)?;
    let total: usize = census.iter().map(|(_, n)| n).sum();
    let Lines { all, code } = length;
    println!("tidy: the manager's rooms have {all} lines without tests, {code} of them code");
    println!("tidy: {} files, {total} unsafe blocks and impls in {} of them:", count, census.len());
    for (name, blocks) in &census {
        println!("  {blocks:4}  {name}");
    }
    if findings.is_empty() {
        return Ok(());
    }
    for finding in &findings {
        eprintln!("tidy: {finding}");
    }
    Err(format!("{} findings", findings.len()))
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut entries: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            files.push(path);
        }
    }
}

/// A file's name from the root on, and its text.
fn named(root: &Path, file: &Path) -> Result<(String, String), String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok((file.strip_prefix(root).unwrap_or(file).display().to_string(), text))
}

/// What code and documents cite exists, and so do the tests of traps.
fn cited(
    root: &Path,
    mut files: Vec<(String, String)>,
    documents: &[(String, String)],
    findings: &mut Vec<String>,
) -> Result<(), String> {
    files.retain(|(name, _)| name != "xtask/src/tidy/rules.rs"); // its tests cite what is not there
    let rules = Rules::read(root, &files)?;
    for (name, text) in files.iter().chain(documents) {
        rules.cited(name, text, findings);
    }
    rules.tested(&files, findings);
    Ok(())
}

/// Every document at the root and in `docs`.
fn documents(root: &Path) -> Result<Vec<(String, String)>, String> {
    let mut documents = Vec::new();
    for folder in ["", "docs", "docs/records"] {
        let folder = root.join(folder);
        let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.extension().is_some_and(|ending| ending == "md") {
                documents.push(named(root, &path)?);
            }
        }
    }
    documents.sort();
    Ok(documents)
}

/// A module opens with what it is for.
fn head(name: &str, text: &str, findings: &mut Vec<String>) {
    let is_doc = |line: &&str| !line.trim().is_empty() && !line.starts_with("#!");
    let first = text.lines().find(is_doc).unwrap_or_default();
    if !first.starts_with("//!") {
        findings.push(format!("{name} does not open with `//!`: say in one line what it is for"));
    }
}

/// The manager reaches the machine's preemption point in one place (`sync::outside::O2`).
fn yields(name: &str, text: &str, findings: &mut Vec<String>) {
    let is_manager = place_of(name).is_some() && !name.contains("test");
    if !is_manager || name == "crates/sync/src/outside.rs" {
        return;
    }
    for (number, line) in text.lines().enumerate() {
        if line.contains(".yield_now()") || line.contains("Clock::yield_now") {
            findings.push(format!(
                "{name}:{}: a preemption point without an `Outside`: take one from the face, and call its `yield_now`",
                number + 1
            ));
        }
    }
}

/// Notes each line of the manager's code, but for tests and the files that `may`, that has one of
/// `words`, with what to do `instead`.
fn nowhere_but_in(
    may: impl Fn(&str) -> bool,
    (name, text): (&str, &str),
    (words, instead): (&[&str], &str),
    findings: &mut Vec<String>,
) {
    let Some((room, file)) = place_of(name) else { return };
    let inside = format!("{room}/{file}");
    if file.contains("test") || may(&inside) {
        return;
    }
    for (number, line) in text.lines().enumerate() {
        let word = words.iter().find(|word| line.contains(**word));
        if let Some(word) = word.filter(|_| !line.trim_start().starts_with("//")) {
            findings.push(format!("{name}:{}: `{word}` {instead}", number + 1));
        }
    }
}

/// What a few files of the manager alone do.
fn duties(name: &str, text: &str, findings: &mut Vec<String>) {
    // Others are let run where no page table is locked.
    nowhere_but_in(
        |file| file.contains("model") || RELAXING.contains(&file),
        (name, text),
        (
            &[".relax()"],
            "waits by itself: give the table's lock back with `let_go().wait()`, or, where none is held, name the file in xtask/src/tidy.rs",
        ),
        findings,
    );
    // The page tables' room says how to go from entry to entry of a table, and with which locks.
    // Others name one entry (`Slot::of`), or hand a range over.
    nowhere_but_in(
        |file| file.starts_with("table/"),
        (name, text),
        (
            &["Slot::new(", "Slot::wrap(", "Slots::ALL", "slots.iter("],
            "goes from entry to entry: leave that to the walk (table::edit), or to an operation on a locked table",
        ),
        findings,
    );
}

/// Each public operation of the manager is one of the explorer's.
fn explored(root: &Path, findings: &mut Vec<String>) -> Result<(), String> {
    let text = |path: &Path| {
        fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let of_explorer = root.join("crates/explore/src");
    let scenes = text(&of_explorer.join("operation.rs"))? + &text(&of_explorer.join("scene.rs"))?;
    let scenes: String = scenes.split_whitespace().collect();
    let mut files = Vec::new();
    rust_files(&root.join("crates/mm/src/manager"), &mut files);
    for file in files.iter().filter(|file| !file.ends_with("tests.rs")) {
        let all = text(file)?;
        // Methods: what stands one step in.
        let names = all.lines().filter_map(|line| line.strip_prefix("    pub fn "));
        for name in names.filter_map(|rest| rest.split(['(', '<']).next()) {
            let is_asked = ["mm", "kernel_tables()"]
                .iter()
                .any(|asked| scenes.contains(&format!("{asked}.{name}(")));
            if !is_asked && !UNEXPLORED.iter().any(|(other, _)| *other == name) {
                findings.push(format!(
                    "{}: no scene calls `{name}`: make it an operation in crates/explore/src/operation.rs, or say why not in xtask/src/tidy.rs",
                    file.display()
                ));
            }
        }
    }
    Ok(())
}

/// Paths in backquotes exist.
fn paths(root: &Path, document: &str, text: &str, findings: &mut Vec<String>) {
    for quoted in text.split('`').skip(1).step_by(2) {
        let is_path = quoted.contains('/')
            && !quoted.contains([' ', '*', '<', '{', '$', '\n'])
            && [
                "crates/",
                "cli/",
                "xtask/",
                "docs/",
                "traces/",
                "kernel/",
                ".ci/",
                "examples/",
                "fuzz/",
            ]
            .iter()
            .any(|start| quoted.starts_with(start));
        if is_path && !root.join(quoted).exists() {
            findings.push(format!(
                "{document} names `{quoted}`, which is not there: mend the document"
            ));
        }
    }
}
