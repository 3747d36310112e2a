//! The lanes of tests.

use crate::run::cargo;
use crate::{sim, tidy};

/// What runs before every commit.
pub(crate) fn quick() -> Result<(), String> {
    tidy::tidy()?;
    tests()?;
    println!("skipped: loom, 200 histories, planted bugs (cargo xtask test --all runs them)");
    skipped_boot();
    Ok(())
}

/// What CI runs.
pub(crate) fn all() -> Result<(), String> {
    cargo("format", &["fmt", "--all", "--check"], &[])?;
    let strict = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "--deny", "warnings"];
    cargo("clippy", &strict, &[])?;
    tidy::tidy()?;
    tests()?;
    cargo(
        "docs",
        &["doc", "--workspace", "--no-deps", "--quiet"],
        &[("RUSTDOCFLAGS", "-D warnings")],
    )?;
    // A folder of its own: the flag would rebuild everything else.
    let loom =
        "test --release --package foliant --lib --target-dir target/loom -- loom interleavings";
    let loom: Vec<&str> = loom.split(' ').collect();
    cargo("loom", &loom, &[("RUSTFLAGS", "--cfg loom")])?;
    sim::many(0, 200)?;
    sim::planted("all")?;
    skipped_boot();
    Ok(())
}

fn tests() -> Result<(), String> {
    cargo("tests and doc tests", &["test", "--workspace", "--quiet"], &[])
}

/// The kernel comes with a later system; until then nothing boots.
fn skipped_boot() {
    println!("skipped: the boot under QEMU (there is no kernel in this tree yet)");
}
