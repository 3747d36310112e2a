//! The lanes of tests.

use crate::run::{cargo, example, root};
use crate::{boot, c, compare, explore, fuzz, linux, outside, sim, tidy};
use foliant_history::Style;
use std::fs;

/// How long each fuzzer runs.
const FUZZ_SECONDS: u64 = 20;

/// Memory calls that are carried out by the host's Linux too.
const BESIDE_LINUX: u64 = 100_000;

/// Steps on the pool of huge pages of the host, where it can be had.
const ON_THE_POOL: u64 = 1_500;

/// What runs before every commit.
pub(crate) fn quick() -> Result<(), String> {
    tidy::tidy()?;
    tests()?;
    println!(
        "skipped: the example in C, loom, explored pairs, 200 histories, calls beside Linux, fuzzers (cargo xtask test --all runs them)"
    );
    if boot::qemu() { boot::tests("2") } else { Ok(()) }
}

/// What CI runs.
pub(crate) fn all() -> Result<(), String> {
    cargo("format", &["fmt", "--all", "--check"], &[])?;
    let strict = ["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"];
    cargo("clippy", &strict, &[])?;
    boot::lints()?;
    fuzz::lints()?;
    tidy::tidy()?;
    tests()?;
    cargo("docs", &["doc", "--workspace", "--no-deps"], &[("RUSTDOCFLAGS", "-D warnings")])?;
    outside::outside()?;
    c::check()?;
    // A folder of its own: the flag would rebuild everything else.
    let loom = "test --release --package foliant-sync --package foliant-folio --package foliant-table \
        --package foliant --package foliant-x86 --package foliant-sched --lib --target-dir target/loom \
        -- loom interleavings";
    let loom: Vec<&str> = loom.split(' ').collect();
    cargo("loom", &loom, &[("RUSTFLAGS", "--cfg loom")])?;
    explore::some()?;
    sim::many(0, 200, None)?;
    sim::many(0, 100, Some(Style::Objects))?;
    linux::hunt(BESIDE_LINUX, 0, 200)?;
    linux::pool(ON_THE_POOL, 0, linux::STEPS)?;
    fuzz::all(FUZZ_SECONDS)?;
    if boot::qemu() { boot::all().and_then(|()| compare::check()) } else { Ok(()) }
}

fn tests() -> Result<(), String> {
    cargo("tests and doc tests", &["test", "--workspace", "--", "--quiet"], &[])?;
    examples()
}

/// Runs each example: what it shows, it asserts.
fn examples() -> Result<(), String> {
    let folder = root().join("examples");
    let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".rs")?.to_owned()))
        .collect();
    names.sort();
    names.iter().try_for_each(|name| example(name))
}
