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

/// The words of all switches and of what holds khugepaged still.
fn settings() -> Vec<String> {
    let root = Path::new("/sys/kernel/mm/transparent_hugepage");
    let mut files: Vec<_> = std::fs::read_dir(root)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("enabled"))
        .chain([root.join("enabled"), root.join("khugepaged/scan_sleep_millisecs")])
        .collect();
    files.sort();
    files.iter().filter_map(|file| std::fs::read_to_string(file).ok()).collect()
}

#[test]
fn a_plan_is_measured_beside_what_it_could_be_instead() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.json");
    let wish = |target: &str| serde_json::json!({ "target": target, "wish": "hugepage" });
    let value = serde_json::json!({
        "schema": "foliant plan 1", "global": "never",
        "sizes": [{ "size": "64k", "switch": "madvise" }],
        "wishes": [wish("heap"), wish("made"), {
            "target": "made", "wish": "nohugepage", "site": "none+0x1"
        }]
    });
    std::fs::write(&plan, value.to_string()).unwrap();
    let (before, count) = (settings(), folder.path().join("count"));
    // Each of a recording and two rounds of at least three settings is prepared.
    let prepare = format!("echo >>{}", count.display());
    let script = "x=$(head -c 16000000 /dev/zero | tr '\\0' a); exit 4";
    let options = ["--runs", "1", "--prepare", &prepare, "--plan", plan.to_str().unwrap()];
    let words = [&options[..], &["--", "sh", "-c", script]].concat();
    let Some(value) = json(&words) else { return };
    assert_eq!(settings(), before, "all is put back");
    let settings = value["settings"].as_array().unwrap();
    let of = |name: &str| settings.iter().find(|one| one["setting"] == name).unwrap();
    assert_eq!(settings[0]["setting"], "plan");
    let prepared = std::fs::read_to_string(&count).unwrap().lines().count();
    assert_eq!(prepared, 1 + 2 * settings.len(), "{value}");
    let figures = ["faults", "peak_mapped_bytes", "user_ns", "system_ns", "elapsed_ns"];
    for (one, figure) in settings.iter().flat_map(|one| figures.map(|figure| (one, figure))) {
        assert_eq!(one[figure].as_array().map(Vec::len), Some(1), "{figure}: {one}");
    }
    let measured = |name| of(name)["faults"][0].as_u64().unwrap();
    let predicted = |name: &str| of(name)["predicted_faults"]["predicted"]["median"].as_u64();
    assert!(measured("plan") + 3000 < measured("4k"), "{value}");
    assert!(predicted("plan").unwrap() + 3000 < predicted("4k").unwrap(), "{value}");
    assert!(measured("everywhere") + 3000 < measured("4k"), "{value}");
    assert_eq!(of("4k")["predicted_faults"]["verdict"], "within", "{value}");
    assert_eq!(of("4k")["applying_ns"], 0, "nothing is injected where nothing is wished");
    assert!(of("plan")["applying_ns"].as_u64() > Some(0), "{value}");
    assert_eq!(value["unmet"], serde_json::json!(["none+0x1"]), "{value}");
    let against = value["against"].as_array().unwrap();
    assert_eq!(against.len(), 5 * (settings.len() - 1), "{value}");
    assert!(against.iter().all(|one| one["verdict"] == "too-few"), "one run tells nothing");
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
