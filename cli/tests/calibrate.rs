//! `foliant calibrate`: what is measured is kept, taken by later commands, and refused where it is
//! damaged.
#![cfg(target_arch = "x86_64")]

use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The command with this data folder.
fn foliant(data: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foliant"));
    for name in ["SUDO_UID", "SUDO_GID", "SUDO_USER"] {
        command.env_remove(name);
    }
    command.env("XDG_DATA_HOME", data).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn said(data: &Path, args: &[&str]) -> String {
    let output = foliant(data, args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Behind sudo the folder and the file are the user's who called it, and root reads them there.
#[test]
fn behind_sudo_a_calibration_is_the_callers() {
    let (nobody, folder) = (65534, tempfile::tempdir().unwrap());
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    let readable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.path(), readable).unwrap();
    if chown(&data, Some(nobody), Some(nobody)).is_err() {
        eprintln!("skipped: only root can act for another user");
        return;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_foliant"));
    command.env("XDG_DATA_HOME", &data).env("SUDO_UID", "65534").env("SUDO_GID", "65534");
    let output = command.arg("calibrate").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    for path in [data.join("foliant"), kept(&data)] {
        let there = fs::metadata(&path).unwrap();
        assert_eq!((there.uid(), there.gid()), (nobody, nobody), "{}", path.display());
    }
    let output = command.args(["--json"]).output().unwrap();
    assert!(output.status.success(), "it can be written again: {}", text(&output.stderr));
}

/// The one file of the data folder.
fn kept(data: &Path) -> PathBuf {
    let files: Vec<_> =
        fs::read_dir(data.join("foliant")).unwrap().map(|f| f.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "nothing partial is left: {files:?}");
    files[0].clone()
}

fn recording() -> String {
    format!("{}/../traces/python.trace", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_machine_is_measured_and_later_commands_say_by_what_they_reckon() {
    let folder = tempfile::tempdir().unwrap();
    let (data, file) = (folder.path(), recording());
    let replay = ["replay", &file, "--policy", "4k,up-to-64k"];
    let before = said(data, &replay);
    assert!(before.contains("model xeon-guest-2\n"), "{before}");
    let json: Value = serde_json::from_str(&said(data, &["calibrate", "--json"])).unwrap();
    let constants = json["constants"].as_array().unwrap();
    let number = |constant: &Value, name: &str| constant[name].as_f64().unwrap();
    for constant in constants {
        let nanos = number(constant, "nanos");
        assert!(nanos.is_finite() && nanos >= 0.0, "{constant}");
        let is_measured = constant["is_measured"].as_bool().unwrap();
        let source = constant["source"].as_str().unwrap();
        assert_eq!(source.starts_with("measured here"), is_measured, "{constant}");
        assert_eq!(source.contains("xeon-guest-2"), !is_measured, "{constant}");
        if is_measured {
            assert!(
                nanos > 0.0 && number(constant, "low") <= number(constant, "high"),
                "{constant}"
            );
        } else {
            assert_eq!(nanos, number(constant, "default"), "{constant}");
        }
    }
    let is_measured = |name: &str| {
        let found = constants.iter().find(|constant| constant["work"] == name).unwrap();
        found["is_measured"].as_bool().unwrap()
    };
    // These are no differences of two loops, so no busy machine makes nothing of them.
    for name in ["syscall", "clear_byte", "clear_byte_large", "entry_write"] {
        assert!(is_measured(name), "{name}: {json}");
    }
    assert!(!is_measured("walk"));

    // What is kept is what was said.
    let stored: Value = serde_json::from_slice(&fs::read(kept(data)).unwrap()).unwrap();
    assert_eq!(stored, json["calibration"]);
    let table = said(data, &replay);
    assert!(table.contains("model here, calibrated just now") || table.contains("ago"), "{table}");
    assert_eq!(said(data, &[&replay[..], &["--model", "here"]].concat()), table);
    assert_eq!(said(data, &[&replay[..], &["--model", "xeon-guest-2"]].concat()), before);
    let lab = said(data, &["lab", "faults", "bytes=2m"]);
    assert!(lab.contains("model here, calibrated"), "{lab}");
    let times = |args: &[&str]| -> Vec<Value> {
        let json: Value = serde_json::from_str(&said(data, args)).unwrap();
        let rows = json["files"][0]["policies"].as_array().unwrap();
        rows.iter().map(|row| row["kernel_ns"].clone()).collect()
    };
    let json = [&replay[..], &["--json"]].concat();
    assert_eq!(times(&json), times(&json), "the same prices each time");

    // Another calibration takes the place of the first.
    let table = said(data, &["calibrate"]);
    for word in ["syscall", "xeon-guest-2", "not measured here", "write to a new page", "kept in"] {
        assert!(table.contains(word), "{word}: {table}");
    }
    kept(data);
}

#[test]
fn a_file_that_is_no_calibration_of_this_machine_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (data, file) = (folder.path(), recording());
    let replay = ["replay", &file, "--policy", "4k"];
    let refused = |words: &[&str]| {
        let output = foliant(data, &replay);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(output.stdout.is_empty());
        for word in [&["calibration-", "foliant calibrate", "--model"], words].concat() {
            assert!(said.contains(word), "{word}: {said}");
        }
    };
    let output = foliant(data, &["replay", &file, "--model", "here"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("foliant calibrate"));

    said(data, &["calibrate"]);
    let path = kept(data);
    let whole = fs::read_to_string(&path).unwrap();
    let half = &whole[..whole.len() / 2];
    let negative = whole.replacen("\"picos\": ", "\"picos\": -", 1);
    let zero = whole.replacen("\"picos\": ", "\"picos\": 0, \"was\": ", 1);
    let later = whole.replace("foliant calibration 1", "foliant calibration 2");
    let deep = "[".repeat(100_000);
    for damaged in ["", "{}", "\u{1b}[31m", half, &negative, &zero, &later, &deep] {
        fs::write(&path, damaged).unwrap();
        refused(&["is damaged"]);
    }
    let mut other: Value = serde_json::from_str(&whole).unwrap();
    other["processor"] = "another \u{1b}one".into();
    fs::write(&path, other.to_string()).unwrap();
    refused(&["of another machine", "another \\u{1b}one"]);
    // The way out.
    said(data, &[&replay[..], &["--model", "xeon-guest-2"]].concat());
    said(data, &["lab", "faults", "bytes=2m", "--model", "guest-252"]);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    refused(&["cannot be read"]);
    fs::remove_dir(&path).unwrap();
    said(data, &replay);

    // No folder can be made where a file is.
    let blocked = data.join("file");
    fs::write(&blocked, "").unwrap();
    let output = foliant(&blocked, &["calibrate"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("XDG_DATA_HOME"), "{}", text(&output.stderr));
}
