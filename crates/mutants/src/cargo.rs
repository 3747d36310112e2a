//! Cargo on the copy, and what it says.

use crate::tree::Tree;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The manager, and the features that others ask of it.
const MANAGER: &str = "foliant";
const FEATURES: &str = "--features=foliant/steps,foliant/verify,foliant/x86_64";

/// The packages with tests that reach a room.
pub(crate) fn packages(room: &str) -> &'static [&'static str] {
    match room {
        "x86" => &["foliant-x86"],
        // Checkers are asked in the simulator's tests alone: what these do not show of a checker,
        // the manager's tests shall not hide.
        "check" => &["foliant-sim"],
        "machine" => &["foliant-machine", "foliant-sim", "foliant-x86", MANAGER],
        "sync" => &["foliant-sync", "foliant-folio", MANAGER],
        "claim" => &["foliant-claim", "foliant-table", MANAGER],
        "folio" => &["foliant-folio", MANAGER],
        "table" => &["foliant-table", MANAGER],
        _ => &[MANAGER],
    }
}

/// The packages with models of loom that reach a room.
pub(crate) fn modelled(room: &str) -> &'static [&'static str] {
    match room {
        "x86" => &["foliant-x86"],
        "check" | "machine" => &[],
        "sync" => &["foliant-sync", "foliant-folio", "foliant-table", MANAGER],
        "folio" => &["foliant-folio", MANAGER],
        "claim" | "table" => &["foliant-table", MANAGER],
        _ => &[MANAGER],
    }
}

/// What is asked of cargo.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ask {
    /// Whether the libraries compile.
    Check,
    /// The programs of the tests.
    Programs,
    /// Those of the libraries' models, under loom.
    Models,
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ask::Check => "check",
            Ask::Programs => "build",
            Ask::Models => "loom",
        })
    }
}

/// Messages of cargo, one a line.
pub(crate) fn cargo(
    tree: &Tree,
    folder: &Path,
    ask: Ask,
    packages: &BTreeSet<&str>,
) -> Result<Vec<Value>, String> {
    let program = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = Command::new(program);
    match ask {
        Ask::Check => command.args(["check", "--keep-going", "--lib"]),
        Ask::Programs => command.args(["test", "--no-run", "--lib", "--tests"]),
        Ask::Models => command.args(["test", "--no-run", "--lib", "--release"]),
    };
    for package in packages {
        command.args(["--package", package]);
    }
    if packages.contains(MANAGER) && ask != Ask::Models {
        command.arg(FEATURES);
    }
    // Warnings of the copy say nothing, and a lint that is denied would hide a mutant. What is
    // built under another flag has a folder of its own.
    let (flags, target) = match ask {
        Ask::Check | Ask::Programs => ("--cap-lints=allow", "build"),
        Ask::Models => ("--cap-lints=allow --cfg=loom", "loom"),
    };
    command
        .args(["--quiet", "--message-format=json"])
        .current_dir(tree.path())
        .env("RUSTFLAGS", flags)
        .env("CARGO_TARGET_DIR", folder.join(target))
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_PROFILE_TEST_DEBUG", "0")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let failed = |why| format!("cargo does not start: {why}");
    let mut child = command.spawn().map_err(failed)?;
    let output = child.stdout.take().ok_or("cargo says nothing")?;
    let lines = BufReader::new(output).lines().map_while(Result::ok);
    let messages: Vec<Value> = lines.filter_map(|line| serde_json::from_str(&line).ok()).collect();
    let status = child.wait().map_err(failed)?;
    match status.success() || !errors(&messages).is_empty() {
        true => Ok(messages),
        false => Err(format!(
            "cargo fails without an error of the compiler: {ask} of {}",
            tree.path().display()
        )),
    }
}

/// Builds the kernel of the copy; gives its file.
pub(crate) fn kernel(tree: &Tree, folder: &Path) -> Result<PathBuf, String> {
    let program = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output = Command::new(program)
        .args(["build", "--release", "--quiet", "--message-format=json"])
        .current_dir(tree.path().join("kernel"))
        // The variable takes the place of the kernel's own settings, so it repeats them: the
        // kernel's traces walk frame pointers.
        .env("RUSTFLAGS", "--cap-lints=allow --cfg=foliant_kernel -Cforce-frame-pointers=yes")
        .env("CARGO_TARGET_DIR", folder.join("kernel"))
        // The kernel is built faster so, and asked sooner.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
        .output()
        .map_err(|why| format!("cargo does not start: {why}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let messages: Vec<Value> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let made = messages.iter().filter_map(|message| message["executable"].as_str()).next_back();
    let why = || errors(&messages).first().map(|error| error["rendered"].to_string());
    made.filter(|_| output.status.success()).map(PathBuf::from).ok_or_else(|| {
        format!(
            "the kernel in {} does not build: {}",
            tree.path().display(),
            why().unwrap_or_default()
        )
    })
}

/// The errors among messages.
pub(crate) fn errors(messages: &[Value]) -> Vec<&Value> {
    messages
        .iter()
        .filter(|message| message["reason"] == "compiler-message")
        .map(|message| &message["message"])
        .filter(|error| error["level"] == "error" && !spans(error).is_empty())
        .collect()
}

/// A stretch of a file that an error names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) file: String,
    pub(crate) bytes: std::ops::Range<usize>,
    pub(crate) is_primary: bool,
}

/// All that an error names, its own first, then those of its notes.
pub(crate) fn spans(error: &Value) -> Vec<Span> {
    let of = |value: &Value| {
        let number = |name: &str| value[name].as_u64().unwrap_or_default() as usize;
        Span {
            file: value["file_name"].as_str().unwrap_or_default().to_owned(),
            bytes: number("byte_start")..number("byte_end"),
            is_primary: value["is_primary"] == true,
        }
    };
    let own = error["spans"].as_array().into_iter().flatten().map(of);
    let notes = error["children"].as_array().into_iter().flatten();
    let noted = notes.flat_map(|note| note["spans"].as_array().into_iter().flatten());
    own.chain(noted.map(of).map(|span| Span { is_primary: false, ..span })).collect()
}
