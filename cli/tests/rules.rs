//! Each rule of Linux's that a prediction rests on has a program whose faults and memory are
//! predicted and then counted: equal within half a per cent, with folios of 64 KiB and of 2 MiB, or
//! within a few pages, since the start of a program is in it.
//!
//! The programs are written in C, since what matters is what they do to their memory and nothing
//! else; the compiler is the one that links Rust.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use serde_json::Value;
use std::path::Path;
use std::process::Command;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rules.c");
const RULES: [&str; 19] = [
    "zeros",
    "dropped",
    "freed",
    "collapsed",
    "locked",
    "withheld",
    "locked-ahead",
    "forked",
    "moved",
    "cut",
    "apart",
    "between",
    "inherited",
    "accounted",
    "guarded",
    "emptied",
    "filled",
    "watched",
    "unseen",
];
const POLICIES: &str = "4k,only-64k,up-to-64k,only-2m,up-to-2m";
/// Of what was counted.
const GOAL: f64 = 0.005;
/// Faults, and pages of the peak, that the start of a program may differ by from run to run.
const START: f64 = 3.0;

/// What a check says of a program; why there is nothing to say, where it can not be checked here.
fn checked(program: &Path, rule: &str) -> Result<Value, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foliant"));
    for name in ["SUDO_UID", "SUDO_GID", "SUDO_USER"] {
        command.env_remove(name);
    }
    // A file of a disk's is read there, around the page cache.
    command.current_dir(env!("CARGO_TARGET_TMPDIR"));
    command.args(["check", "--json", "--runs", "1", "--policy", POLICIES, "--"]);
    let output = command.arg(program).arg(rule).output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    if ["needs root", "does not offer", "the system forbids"].iter().any(|no| why.contains(no)) {
        return Err(why);
    }
    assert!(output.status.success(), "{rule}: {why}");
    Ok(serde_json::from_slice(&output.stdout).unwrap())
}

/// One test: only one check can be at work.
#[test]
fn every_rule_is_predicted_within_half_a_per_cent() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("rules");
    let compiled =
        Command::new("cc").args(["-O1", "-pthread", "-o"]).arg(&program).arg(SOURCE).status();
    assert!(compiled.unwrap().success());
    for rule in RULES {
        let value = match checked(&program, rule) {
            Ok(value) => value,
            Err(why) => return eprintln!("skipped: {why}"),
        };
        for row in value["policies"].as_array().unwrap() {
            if row["fallbacks"].as_object().is_some_and(|counters| !counters.is_empty()) {
                eprintln!("skipped: {rule} with {}: no folio was to be had", row["policy"]);
                continue;
            }
            for (figure, unit) in [("faults", 1.0), ("peak_mapped_bytes", 4096.0)] {
                let of = |side: &str| row[figure][side]["median"].as_f64().unwrap();
                let (predicted, measured) = (of("predicted"), of("measured"));
                assert!(
                    (predicted - measured).abs() <= (measured * GOAL).max(START * unit),
                    "{rule}, {}, {figure}: predicted {predicted}, counted {measured}",
                    row["policy"]
                );
            }
        }
    }
}
