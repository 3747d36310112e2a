//! Rules, traps and invariants: what is cited exists, and every trap has its test.
//!
//! ```text
//!   flush::F2      "- F2." in the header of the room's file, wherever its path ends like that
//!   F2             the same file; else the room's; else the crate's; else docs/rules.md
//!   TR-T9          a row of docs/rules.md, which names tests `tr_t9_*` that there are
//!   record 055     docs/records/055-*.md
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Where rules and traps stand.
const RULES: &str = "docs/rules.md";

/// A name in code that looks like a label.
const NO_LABEL: &str = "X86";

/// What a Rust file numbers.
struct Header {
    /// `crates/mm`, for `crates/mm/src/space/seen.rs`.
    home: String,
    /// `mm`, `space`, `seen`.
    path: Vec<String>,
    labels: BTreeSet<String>,
}

/// Everything that can be cited.
pub(super) struct Rules {
    headers: BTreeMap<String, Header>,
    /// Labels of the rules.
    rules: BTreeSet<String>,
    /// Each trap with the tests that its row names.
    traps: BTreeMap<String, Vec<String>>,
    records: BTreeSet<String>,
}

impl Rules {
    /// Reads the rules, and the headers of `files`: their names from the root on, and their texts.
    pub(super) fn read(root: &Path, files: &[(String, String)]) -> Result<Rules, String> {
        let text = fs::read_to_string(root.join(RULES)).map_err(|e| format!("{RULES}: {e}"))?;
        let records = root.join("docs/records");
        let records = fs::read_dir(&records).map_err(|e| format!("{}: {e}", records.display()))?;
        let number = |name: String| name.split_once('-').map(|(number, _)| number.to_string());
        Ok(Rules {
            headers: files
                .iter()
                .map(|(name, text)| (name.clone(), Header::of(name, text)))
                .collect(),
            rules: text.lines().filter_map(defined).map(str::to_string).collect(),
            traps: text.lines().filter_map(trap).collect(),
            records: records
                .flatten()
                .filter_map(|entry| number(entry.file_name().display().to_string()))
                .collect(),
        })
    }

    /// Every citation in `text` leads somewhere.
    pub(super) fn cited(&self, name: &str, text: &str, findings: &mut Vec<String>) {
        let is_code = name.ends_with(".rs");
        let is_bare_cited = is_code && name.contains("/src/"); // elsewhere findings have such names too
        for (number, line) in text.lines().enumerate() {
            let mut miss = |what: String| findings.push(format!("{name}:{}: {what}", number + 1));
            let words = if is_code { comment(line) } else { line };
            let pathed = labels(line).filter(|(path, _)| !path.is_empty());
            let bare = labels(words).filter(|(path, _)| path.is_empty() && is_bare_cited);
            for (path, label) in pathed.chain(bare) {
                if !self.is_numbered(name, path, label) {
                    miss(format!(
                        "nothing is numbered `{path}{label}`: mend the citation, or number what it means (\"- {label}. ...\")"
                    ));
                }
            }
            for id in after(words, "TR-").filter(|id| is_label(id)) {
                if !self.traps.contains_key(id) {
                    miss(format!("{RULES} has no trap TR-{id}: give it a row"));
                }
            }
            let is_record = |id: &&str| id.len() == 3 && id.parse::<u32>().is_ok();
            for id in after(words, "record ").filter(is_record) {
                if !self.records.contains(id) {
                    miss(format!("docs/records has no record {id}: mend the number"));
                }
            }
        }
    }
    /// Every trap names tests that there are, and every test for a trap is named.
    pub(super) fn tested(&self, files: &[(String, String)], findings: &mut Vec<String>) {
        let mut there = BTreeSet::new();
        for (_, text) in files {
            let names = text.split("fn tr_").skip(1).filter_map(|rest| rest.split('(').next());
            there.extend(names.map(|name| format!("tr_{name}")));
        }
        let named: BTreeSet<&String> = self.traps.values().flatten().collect();
        for (trap, tests) in &self.traps {
            let its = format!("tr_{}_", trap.to_lowercase());
            for test in tests.iter().filter(|test| !there.contains(*test)) {
                findings
                    .push(format!("{RULES}: there is no test `{test}`: mend the row of TR-{trap}"));
            }
            if let Some(test) = tests.iter().find(|test| !test.starts_with(&its)) {
                findings.push(format!(
                    "{RULES}: `{test}` is no test for TR-{trap}: it would begin with `{its}`"
                ));
            }
        }
        for test in there.iter().filter(|test| !named.contains(test)) {
            findings.push(format!(
                "{RULES} does not name the test `{test}`: add it to the row of its trap"
            ));
        }
    }

    fn is_numbered(&self, name: &str, path: &str, label: &str) -> bool {
        if path.is_empty() { self.near(name, label) } else { self.at(name, path, label) }
    }
    /// Whether `label` is numbered in the file, in a room around it, or in the rules.
    fn near(&self, name: &str, label: &str) -> bool {
        let has = |place: &str| {
            self.headers.get(place).is_some_and(|header| header.labels.contains(label))
        };
        let mut folder = name;
        while let Some((above, _)) = folder.rsplit_once('/') {
            folder = above;
            if ["/mod.rs", "/lib.rs", ".rs"].iter().any(|end| has(&format!("{folder}{end}"))) {
                return true;
            }
        }
        has(name) || self.rules.contains(label)
    }
    /// Whether `label` is numbered in one file whose path ends in `path`, or in one of the same
    /// crate.
    fn at(&self, name: &str, path: &str, label: &str) -> bool {
        let wanted: Vec<&str> =
            path.split("::").filter(|part| !["", "crate"].contains(part)).collect();
        let is_it = |header: &&Header| {
            let ends = header.path.len().checked_sub(wanted.len());
            header.labels.contains(label)
                && ends.is_some_and(|from| header.path[from..] == wanted[..])
        };
        let found: Vec<&Header> = self.headers.values().filter(is_it).collect();
        let home = self.headers.get(name).map_or("", |header| header.home.as_str());
        found.len() == 1 || found.iter().filter(|header| header.home == home).count() == 1
    }
}

impl Header {
    fn of(name: &str, text: &str) -> Header {
        let (home, inside) =
            match ["/src/", "/tests/"].iter().find_map(|part| name.split_once(part)) {
                Some((home, inside)) => (home, inside),
                None => (name.rsplit_once('/').map_or("", |(home, _)| home), name),
            };
        let inside = inside.strip_suffix(".rs").unwrap_or(inside);
        let crate_name = home.rsplit('/').next().unwrap_or(home);
        let parts = inside.split('/').filter(|part| !["mod", "lib", "main"].contains(part));
        let documented = text.lines().map(str::trim_start);
        let documented = documented
            .filter_map(|line| line.strip_prefix("//!").or_else(|| line.strip_prefix("///")));
        Header {
            home: home.to_string(),
            path: [crate_name].into_iter().chain(parts).map(str::to_string).collect(),
            labels: documented.filter_map(defined).map(str::to_string).collect(),
        }
    }
}

/// The label that a line of a document defines: "- F2. ..." or, in a picture, "F2  ...".
fn defined(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let (line, is_item) = match line.strip_prefix("- ") {
        Some(rest) => (rest, true),
        None => (line, false),
    };
    let end = line.find(|c: char| !c.is_ascii_alphanumeric())?;
    let (label, rest) = line.split_at(end);
    let follows = if is_item { rest.starts_with(". ") } else { rest.starts_with("  ") };
    (is_label(label) && follows).then_some(label)
}

/// The trap and the tests that a row of the rules is about.
fn trap(line: &str) -> Option<(String, Vec<String>)> {
    let row = line.strip_prefix("| TR-")?;
    let (id, rest) = row.split_once(' ')?;
    let tests = rest.split('`').skip(1).step_by(2).filter(|quoted| quoted.starts_with("tr_"));
    Some((id.to_string(), tests.map(str::to_string).collect()))
}

/// A capital and a number: F2.
fn is_label(word: &str) -> bool {
    let mut chars = word.chars();
    let (first, rest) = (chars.next(), chars.as_str());
    first.is_some_and(|c| c.is_ascii_uppercase())
        && rest.len() < 3
        && rest.parse::<u32>().is_ok()
        && word != NO_LABEL
}

/// The labels of a line, each with the path before it ("flush::", or nothing). D8.3 is a chapter,
/// and N0=4 a count.
fn labels(line: &str) -> impl Iterator<Item = (&str, &str)> {
    line.split(|c: char| !c.is_ascii_alphanumeric() && !"_:.=-".contains(c)).filter_map(|word| {
        let word = word.trim_end_matches([':', '.', '-']);
        let (path, label) = word.rfind("::").map_or(("", word), |at| word.split_at(at + 2));
        let is_place = !path.contains(|c: char| c.is_ascii_uppercase()); // `Board::Q35` is a name
        (is_label(label) && is_place).then_some((path, label))
    })
}

/// What stands behind each `mark`: letters and digits.
fn after<'t>(text: &'t str, mark: &str) -> impl Iterator<Item = &'t str> {
    text.split(mark).skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        &rest[..end]
    })
}

/// The comment of a line of code.
fn comment(line: &str) -> &str {
    line.find("//").map_or("", |at| &line[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> (Rules, Vec<(String, String)>) {
        let files = [
            (
                "crates/mm/src/flush/mod.rs",
                "//! The gather.\n//! - F2. Counted (G5).\n//!   O1  a step\n",
            ),
            ("crates/mm/src/flush/gather.rs", "// as F2 and O1 say\nfn tr_t9_it_flushes() {}\n"),
            ("crates/x86/src/tags.rs", "//! - F2. Another one.\n"),
        ];
        let files: Vec<_> = files.map(|(name, text)| (name.to_string(), text.to_string())).into();
        let rules = Rules {
            headers: files
                .iter()
                .map(|(name, text)| (name.clone(), Header::of(name, text)))
                .collect(),
            rules: ["G5".to_string()].into(),
            traps: trap("| TR-T9 | lost | a rule | `tr_t9_it_flushes` |").into_iter().collect(),
            records: ["055".to_string()].into(),
        };
        (rules, files)
    }
    fn missed(name: &str, text: &str) -> usize {
        let (rules, files) = tree();
        let mut findings = Vec::new();
        rules.cited(name, text, &mut findings);
        rules.tested(&files, &mut findings);
        findings.len()
    }

    #[test]
    fn what_is_cited_is_looked_for_near_by_and_by_its_path() {
        let near = "crates/mm/src/flush/gather.rs";
        for text in
            ["// F2", "// (F2, G5).", "x; // O1", "\"broken (flush::F2)\"", "// mm::flush::F2"]
        {
            assert_eq!(missed(near, text), 0, "{text}");
        }
        for text in ["// F3", "x; // (F2, G6)", "\"broken (flush::F3)\"", "// table::F2", "// G55"]
        {
            assert_eq!(missed(near, text), 1, "{text}");
        }
        assert_eq!(missed("crates/mm/src/zero/mod.rs", "// F2"), 1, "another room's");
        assert_eq!(missed("crates/mm/src/zero/mod.rs", "// flush::F2, tags::F2"), 0);
    }
    #[test]
    fn what_is_no_citation_is_left_alone() {
        for text in
            ["// Arm ARM, D8.3.1", "// pages N0=4", "let F9 = 1;", "// `crate::X86`, `Board::Q35`"]
        {
            assert_eq!(missed("crates/mm/src/flush/gather.rs", text), 0, "{text}");
        }
        assert_eq!(missed("crates/mm/tests/findings.rs", "// finding Q5"), 0);
        assert_eq!(missed("README.md", "F9, but not flush::F9"), 1);
    }
    #[test]
    fn records_and_traps_are_there() {
        let name = "docs/findings.md";
        assert_eq!(missed(name, "(record 055, TR-T9), a record two lines long"), 0);
        assert_eq!(missed(name, "record 056"), 1);
        assert_eq!(missed(name, "TR-T10"), 1);
    }
    #[test]
    fn a_trap_and_its_tests_name_each_other() {
        let (mut rules, mut files) = tree();
        let mut findings = Vec::new();
        files.push(("crates/mm/tests/traps.rs".into(), "fn tr_t9_more() {}".into()));
        rules.tested(&files, &mut findings);
        assert_eq!(findings.len(), 1, "a test that no row names");
        rules.traps.insert("T8".into(), vec!["tr_t9_more".into()]);
        rules.tested(&files, &mut findings);
        assert_eq!(findings.len(), 2, "a test of another trap's name");
        rules.traps.insert("T8".into(), vec!["tr_t8_gone".into()]);
        rules.tested(&files[..2], &mut findings);
        assert_eq!(findings.len(), 3, "a row whose test is gone");
    }
}
