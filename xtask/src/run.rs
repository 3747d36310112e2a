//! Running cargo and telling what ran.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
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
    run(folder, what, args, env, Stdio::inherit()).map(|_| ())
}

/// What `cargo` with `args` prints, in the workspace and under a heading.
pub(crate) fn cargo_output(what: &str, args: &[&str]) -> Result<String, String> {
    let printed = run(&root(), what, args, &[], Stdio::piped())?;
    String::from_utf8(printed).map_err(|_| format!("what {what} prints is not UTF-8"))
}

fn run(
    folder: &Path,
    what: &str,
    args: &[&str],
    env: &[(&str, &str)],
    stdout: Stdio,
) -> Result<Vec<u8>, String> {
    println!("== {what}: cargo {}", args.join(" "));
    let begun = Instant::now();
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output = Command::new(cargo)
        .args(args)
        .current_dir(folder)
        .envs(env.iter().copied())
        .stdout(stdout)
        .spawn()
        .and_then(Child::wait_with_output)
        .map_err(|error| format!("cargo does not start: {error}"))?;
    println!("== {what}: {:.0} s", begun.elapsed().as_secs_f64());
    if output.status.success() {
        Ok(output.stdout)
    } else {
        let set: String = env.iter().map(|(k, v)| format!("{k}='{v}' ")).collect();
        Err(format!("{what} failed; again with: {set}cargo {}", args.join(" ")))
    }
}

/// Runs one bench or all of them.
pub(crate) fn benches(name: Option<&str>) -> Result<(), String> {
    let mut args = vec!["bench", "--package", "foliant", "--package", "foliant-guest"];
    match name {
        Some(name) => args.extend(["--bench", name]),
        None => args.push("--benches"),
    }
    cargo("bench", &args, &[])
}
