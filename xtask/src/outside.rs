//! Outside crates: projects that embed Foliant (`examples/outside`), built against the packages
//! that would be published, and their tests.
//!
//! ```text
//!   crates ──cargo package──▶ target/package/*.crate ──tar──▶ target/outside/packages ─┐ in the place of
//!   examples/outside/NAME ──build, test; build for bare metal──────────────────────────┘ what is published
//! ```
//!
//! **Not here**: what a crate shows; that it asserts itself.

use crate::run::{cargo, cargo_in, root};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// A target without an operating system, for `no_std` libraries.
const BARE: &str = "x86_64-unknown-none";

/// What the table says of a crate.
struct Row {
    name: String,
    lines: usize,
    build: f64,
    bare: Option<f64>,
}

/// Packages the crates, and builds and tests each outside crate against them.
pub(crate) fn outside() -> Result<(), String> {
    let packages = packages()?;
    let folder = root().join("examples/outside");
    cargo_in(&folder, "format of the outside crates", &["fmt", "--all", "--check"], &[])?;
    let target = root().join("target/outside/clippy");
    let target = target.to_str().ok_or("the path of the workspace is not UTF-8")?;
    let clippy = ["clippy", "--workspace", "--all-targets", "--quiet", "--target-dir", target];
    let strict = ["--", "--deny", "warnings"];
    cargo_in(&folder, "clippy of the outside crates", &[&clippy[..], &strict].concat(), &[])?;
    let is_bare = is_installed()?;
    if !is_bare {
        println!(
            "skipped: outside crates for {BARE}, because it is not installed: rustup target add {BARE}"
        );
    }
    let mut rows = Vec::new();
    for name in members(&folder)? {
        rows.push(member(&folder, &name, &packages, is_bare)?);
    }
    println!("{:<10} {:>6} {:>8}  {BARE}", "outside", "lines", "build s");
    for Row { name, lines, build, bare } in rows {
        let bare = bare.map_or("-".into(), |bare| format!("{bare:.1} s"));
        println!("{name:<10} {lines:>6} {build:>8.1}  {bare}");
    }
    Ok(())
}

/// Puts each crate that is meant to be published into a package, and unpacks those; gives what
/// makes cargo take them.
fn packages() -> Result<Vec<String>, String> {
    let package = "package --workspace --no-verify --allow-dirty --quiet --exclude xtask \
        --exclude foliant-examples";
    cargo("packages", &package.split_whitespace().collect::<Vec<_>>(), &[])?;
    let (from, to) = (root().join("target/package"), root().join("target/outside/packages"));
    let failed = |path: &Path, why: std::io::Error| format!("{}: {why}", path.display());
    if to.exists() {
        fs::remove_dir_all(&to).map_err(|why| failed(&to, why))?;
    }
    fs::create_dir_all(&to).map_err(|why| failed(&to, why))?;
    let suffix = format!("-{}.crate", env!("CARGO_PKG_VERSION"));
    let mut patches = Vec::new();
    for entry in fs::read_dir(&from).map_err(|why| failed(&from, why))?.flatten() {
        let file = entry.file_name();
        let name = file.to_str().and_then(|file| file.strip_suffix(&suffix));
        // Others would be patches of what nobody uses, of which cargo warns.
        let Some(name) = name.filter(|name| is_embedded(name)) else { continue };
        let unpacked =
            Command::new("tar").arg("-xzf").arg(entry.path()).arg("-C").arg(&to).status();
        if !unpacked.map_err(|why| format!("tar does not start: {why}"))?.success() {
            return Err(format!("tar cannot unpack {}", entry.path().display()));
        }
        let folder = to.join(format!("{name}-{}", env!("CARGO_PKG_VERSION")));
        patches.push(format!("patch.crates-io.{name}.path={:?}", folder.display().to_string()));
    }
    patches.sort();
    Ok(patches)
}

/// Whether the outside crates take it instead of what is published: their configuration says which.
fn is_embedded(name: &str) -> bool {
    let config = include_str!("../../examples/outside/.cargo/config.toml");
    config.lines().any(|line| line.split(" = ").next() == Some(name))
}

/// The crates of the workspace: its folders with a manifest.
fn members(folder: &Path) -> Result<Vec<String>, String> {
    let entries = fs::read_dir(folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let is_crate = |path: &PathBuf| path.join("Cargo.toml").exists();
    let crates = entries.flatten().map(|entry| entry.path()).filter(is_crate);
    let mut names: Vec<String> =
        crates.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect();
    names.sort();
    Ok(names)
}

/// Builds and tests one crate, and runs it where it is a program.
fn member(folder: &Path, name: &str, patches: &[String], is_bare: bool) -> Result<Row, String> {
    let target = root().join("target/outside").join(name); // of its own, so that its time is its own
    let target = target.to_str().ok_or("the path of the workspace is not UTF-8")?;
    let package = format!("outside-{name}");
    let with = |words: &[&str]| -> Vec<String> {
        let words = words.iter().map(|word| word.to_string());
        let common = ["--quiet", "--package", &package, "--target-dir", target];
        let patches = patches.iter().flat_map(|patch| ["--config".into(), patch.clone()]);
        words.chain(common.map(str::to_string)).chain(patches).collect()
    };
    let run = |words: &[&str]| {
        let begun = Instant::now();
        let args = with(words);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        cargo_in(folder, &format!("outside {name}"), &args, &[])?;
        Ok::<f64, String>(begun.elapsed().as_secs_f64())
    };
    let crate_folder = folder.join(name);
    let library = crate_folder.join("src/lib.rs");
    let build = run(&["build"])?;
    if !library.exists() {
        run(&["run"])?;
    }
    run(&["test"])?;
    let source = match library.exists() {
        true => library,
        false => root().join("crates/mm/examples/machine.rs"),
    };
    let text = fs::read_to_string(&source).map_err(|why| format!("{}: {why}", source.display()))?;
    let bare = match is_bare && text.contains("#![no_std]") {
        true => Some(run(&["build", "--lib", "--target", BARE])?),
        false => None,
    };
    Ok(Row { name: name.into(), lines: text.lines().count(), build, bare })
}

/// Whether the bare target is installed.
fn is_installed() -> Result<bool, String> {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let asked = Command::new(rustc).args(["--print", "target-libdir", "--target", BARE]).output();
    let printed = asked.map_err(|why| format!("rustc does not start: {why}"))?.stdout;
    Ok(Path::new(String::from_utf8_lossy(&printed).trim()).exists())
}
