//! Which lines the tests reach, crate by crate.
//!
//! `cargo llvm-cov` drives the compiler's own instrumentation; where it is missing it is said how
//! to get it. The tests run under it as they run without, but for doc tests, which stable Rust does
//! not instrument.
//!
//! A command of its own and no part of `test --all`: instrumented, the tests take several times as
//! long, and CI has no time for that.
//!
//! **Not here**: a threshold. A number that must not fall is met by tests that assert nothing.

use crate::run::{cargo, root};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// How to get what is missing.
const WANTED: &str =
    "rustup component add llvm-tools && cargo install --locked cargo-llvm-cov@0.9.1";

/// Whether the tool is there.
fn tool() -> bool {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let asked = Command::new(cargo)
        .args(["llvm-cov", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    asked.is_ok_and(|status| status.success())
}

/// Runs the tests of these crates, or of all, but no doc tests, instrumented, and prints what they
/// reached.
pub(crate) fn coverage(packages: &[String]) -> Result<(), String> {
    if !tool() {
        println!("skipped: coverage, because cargo-llvm-cov is not installed: {WANTED}");
        return Ok(());
    }
    let path = root().join("target/coverage.json");
    let out = path.to_str().ok_or("the path of the workspace is not UTF-8")?;
    let mut args = vec!["llvm-cov", "--json", "--summary-only", "--output-path", out];
    match packages {
        [] => args.push("--workspace"),
        _ => args.extend(packages.iter().flat_map(|name| ["--package", name])),
    }
    args.extend(["--", "--quiet"]);
    cargo("tests with coverage", &args, &[])?;
    let text = fs::read_to_string(&path).map_err(|e| format!("{out}: {e}"))?;
    let json: Value = serde_json::from_str(&text).map_err(|e| format!("{out}: {e}"))?;
    let rows = rows(&root(), &json)
        .ok_or_else(|| format!("{out} is not what cargo llvm-cov used to write"))?;
    println!("{:<16} {:>8} {:>8} {:>8}", "crate", "lines", "reached", "percent");
    for (name, (lines, reached)) in rows {
        println!("{name:<16} {lines:>8} {reached:>8} {:>8.1}", percent(lines, reached));
    }
    Ok(())
}

fn percent(lines: u64, reached: u64) -> f64 {
    if lines == 0 { 100.0 } else { reached as f64 * 100.0 / lines as f64 }
}

/// Lines and reached lines of each crate, and of all.
fn rows(root: &Path, json: &Value) -> Option<BTreeMap<String, (u64, u64)>> {
    let mut rows: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for file in json["data"][0]["files"].as_array()? {
        let path = file["filename"].as_str()?;
        let inside = Path::new(path).strip_prefix(root).ok()?.to_str()?;
        let name = inside.split_once("/src/").map_or(inside, |(name, _)| name);
        let lines = &file["summary"]["lines"];
        let (count, covered) = (lines["count"].as_u64()?, lines["covered"].as_u64()?);
        for row in [name, "~ all"] {
            let row = rows.entry(row.trim_start_matches("crates/").to_owned()).or_default();
            *row = (row.0 + count, row.1 + covered);
        }
    }
    Some(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_summed_by_crate() {
        let file = |name: &str, count: u64, covered: u64| {
            let lines = serde_json::json!({ "count": count, "covered": covered });
            serde_json::json!({ "filename": name, "summary": { "lines": lines } })
        };
        let files = [
            file("/w/crates/mm/src/lib.rs", 10, 9),
            file("/w/crates/mm/src/zero/mod.rs", 30, 11),
            file("/w/cli/src/main.rs", 5, 0),
        ];
        let json = serde_json::json!({ "data": [{ "files": files }] });
        let rows = rows(Path::new("/w"), &json).unwrap();
        let expected = [("cli", (5, 0)), ("mm", (40, 20)), ("~ all", (45, 20))];
        assert_eq!(rows, expected.map(|(name, sums)| (name.to_owned(), sums)).into());
        assert_eq!((percent(40, 20), percent(0, 0)), (50.0, 100.0));
        assert!(super::rows(Path::new("/elsewhere"), &json).is_none());
    }
}
