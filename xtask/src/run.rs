//! Running cargo and telling what ran.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
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
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(args).current_dir(folder).envs(env.iter().copied());
    run(what, &mut command).map(drop)
}

/// Runs the command `foliant` with `args`, under a heading.
pub(crate) fn foliant(what: &str, args: &[&str]) -> Result<(), String> {
    run(what, Command::new(built()?).args(args)).map(drop)
}
/// What it prints.
pub(crate) fn foliant_output(what: &str, args: &[&str]) -> Result<String, String> {
    let printed = run(what, Command::new(built()?).args(args).stdout(Stdio::piped()))?;
    String::from_utf8(printed).map_err(|_| format!("what {what} prints is not UTF-8"))
}
/// The command, built beside this program. It is built as for its tests, of which one comes along:
/// a build of its own would want other features of the crates below it, and build all of them
/// again.
fn built() -> Result<PathBuf, String> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let build = || {
        let args = ["build", "--workspace", "--bin", "foliant", "--test", "readme"];
        cargo("build of the command", &args, &[])?;
        beside("foliant")
    };
    BUILT.get_or_init(build).clone()
}
/// Runs an example, which the tests have built beside this program: a run by its name alone would
/// build what it uses once more, with other features.
pub(crate) fn example(name: &str) -> Result<(), String> {
    run("example", &mut Command::new(beside("examples")?.join(name))).map(drop)
}
/// What stands beside this program.
fn beside(name: &str) -> Result<PathBuf, String> {
    let this = std::env::current_exe().map_err(|e| format!("where this program is: {e}"))?;
    Ok(this.with_file_name(name))
}

fn run(what: &str, command: &mut Command) -> Result<Vec<u8>, String> {
    let words = words(command);
    println!("== {what}: {words}");
    let begun = Instant::now();
    let output = command.spawn().and_then(Child::wait_with_output);
    let output = output.map_err(|error| format!("{words} does not start: {error}"))?;
    println!("== {what}: {:.0} s", begun.elapsed().as_secs_f64());
    if output.status.success() {
        return Ok(output.stdout);
    }
    let set = |(key, value): (&OsStr, Option<&OsStr>)| {
        let value = value.unwrap_or_default();
        format!("{}='{}' ", key.display(), value.display())
    };
    let set: String = command.get_envs().map(set).collect();
    Err(format!("{what} failed; again with: {set}{words}"))
}
/// A command as it can be typed in the workspace.
fn words(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let short = program.strip_prefix(root()).ok();
    let short = short.or(program.file_name().map(Path::new)).unwrap_or(program);
    let args = command.get_args().map(|word| format!(" {}", word.display()));
    short.display().to_string() + &args.collect::<String>()
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
