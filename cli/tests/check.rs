//! Predictions beside what the Linux of this machine does. Where its switches cannot be written the
//! tests say so and are over.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// One check at a time: a second one is refused.
static ALONE: Mutex<()> = Mutex::new(());

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foliant"));
    for name in ["SUDO_UID", "SUDO_GID", "SUDO_USER"] {
        command.env_remove(name);
    }
    command.arg("check");
    command
}

/// What a check says, and what it remarks; `None` where nothing can be checked.
fn said(words: &[&str]) -> Option<String> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let output = command().args(words).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let why = text(&output.stderr);
    if ["needs root", "no switches", "the system forbids"].iter().any(|no| why.contains(no)) {
        eprintln!("skipped: {why}");
        return None;
    }
    assert!(output.status.success(), "{words:?}: {why}");
    Some(text(&output.stdout))
}

fn json(words: &[&str]) -> Option<Value> {
    let text = said(&[&["--json"], words].concat())?;
    Some(serde_json::from_str(&text).unwrap())
}

/// A shell that does much the first time only: what it builds is there later.
fn build(folder: &Path) -> String {
    let built = folder.join("built");
    let built = built.display();
    format!("[ -e {built} ] || {{ x=$(head -c 8000000 /dev/zero | tr '\\0' a); echo >{built}; }}")
}

#[test]
fn a_first_run_that_finds_more_to_do_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let script = build(folder.path());
    let words = ["--runs", "2", "--policy", "4k", "--", "sh", "-c", &script];
    let Some(value) = json(&words) else { return };
    let first = value["first_run_faults"].as_u64().unwrap();
    let later = value["policies"][0]["faults"]["measured"]["highest"].as_u64().unwrap();
    assert!(first > later + 1900, "{value}");
    assert_eq!(value["policies"][0]["faults"]["verdict"], "noise", "nobody is misled");
    std::fs::remove_file(folder.path().join("built")).unwrap();
    let told = said(&words).unwrap();
    assert!(told.contains("--prepare 'make clean'"), "{told}");
    // With it all runs are alike, and the prediction holds.
    let prepare = format!("rm -f {}", folder.path().join("built").display());
    let value = json(&[&["--prepare", &prepare], &words[..]].concat()).unwrap();
    assert_eq!(value["first_run_faults"], Value::Null);
    assert_eq!(value["policies"][0]["faults"]["verdict"], "within", "{value}");
}

#[test]
fn a_check_has_the_rows_of_a_replay() {
    let Some(value) = json(&["--runs", "1", "true"]) else { return };
    let rows = value["policies"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["policy"].as_str().unwrap()).collect();
    assert_eq!((names[0], names[names.len() - 1]), ("4k", "only-2m"));
    assert!(names.contains(&"up-to-64k"), "{names:?}");
    for row in rows {
        for figure in ["faults", "peak_mapped_bytes"] {
            assert!(row[figure]["predicted"]["median"].as_u64() > Some(0), "{row}");
            assert!(row[figure]["verdict"].is_string(), "{row}");
        }
        assert!(row["fallbacks"].is_object());
    }
}

#[test]
fn a_preparation_that_fails_ends_the_check() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let output = command().args(["--prepare", "exit 3", "true"]).output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{why}");
    assert!(why.contains("needs root") || why.contains("exit 3") && why.contains("3)"), "{why}");
}

/// Root's check leaves a folder that nobody else can use; others are told that they are not root.
#[test]
fn where_root_has_checked_others_are_told_that_it_needs_root() {
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65534;
    let mut command = command();
    let output = match command.args(["--", "true"]).uid(NOBODY).gid(NOBODY).output() {
        Ok(output) => output,
        Err(why) => return eprintln!("skipped: nobody else can run the command here ({why})"),
    };
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    let is_told = ["needs root", "no switches"].iter().any(|told| why.contains(told));
    assert!(is_told && output.status.code() == Some(2), "{why}");
}
