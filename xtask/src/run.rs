//! Running cargo and telling what ran.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

/// Runs `cargo` with `args` in the workspace, under a heading.
pub(crate) fn cargo(what: &str, args: &[&str], env: &[(&str, &str)]) -> Result<(), String> {
    cargo_in(&root(), what, args, env)
}

/// Runs `cargo` with `args` in `folder`, under a heading.
pub(crate) fn cargo_in(
    folder: &Path,
    what: &str,
    args: &[&str],
    env: &[(&str, &str)],
) -> Result<(), String> {
    println!("== {what}: cargo {}", args.join(" "));
    let begun = Instant::now();
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let status = Command::new(cargo)
        .args(args)
        .current_dir(folder)
        .envs(env.iter().copied())
        .status()
        .map_err(|error| format!("cargo does not start: {error}"))?;
    println!("== {what}: {:.0} s", begun.elapsed().as_secs_f64());
    if status.success() {
        Ok(())
    } else {
        let set: String = env.iter().map(|(k, v)| format!("{k}='{v}' ")).collect();
        Err(format!("{what} failed; again with: {set}cargo {}", args.join(" ")))
    }
}

/// Runs one bench or all of them.
pub(crate) fn benches(name: Option<&str>) -> Result<(), String> {
    let mut args = vec!["bench", "--package", "foliant"];
    match name {
        Some(name) => args.extend(["--bench", name]),
        None => args.push("--benches"),
    }
    cargo("bench", &args, &[])
}
