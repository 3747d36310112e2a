//! Each rule of Linux's that a prediction rests on has a program whose faults and memory are
//! predicted and then counted: equal within half a per cent, with folios of 64 KiB and of 2 MiB, or
//! within a few pages, since the start of a program is in it.
//!
//! The programs are written in C, since what matters is what they do to their memory and nothing
//! else; the compiler is the one that links Rust.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

#[path = "../../crates/trace/tests/i386/mod.rs"]
mod i386;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rules.c");
/// Programs, and the kernel since which it is as they are predicted: neighbours of which one was
/// written to are joined whatever was called since 6.15, empty tables go since 6.14.
const RULES: [(&str, [u32; 2]); 20] = [
    ("zeros", ANY),
    ("dropped", [6, 14]),
    ("freed", ANY),
    ("collapsed", ANY),
    ("locked", [6, 15]),
    ("withheld", [6, 15]),
    ("locked-ahead", ANY),
    ("forked", ANY),
    ("moved", ANY),
    ("cut", [6, 15]),
    ("apart", [6, 15]),
    ("between", [6, 15]),
    ("inherited", [6, 15]),
    ("accounted", [6, 15]),
    ("guarded", [6, 15]),
    ("emptied", [6, 14]),
    ("filled", [6, 14]),
    ("watched", ANY),
    ("unseen", ANY),
    (I386, ANY),
];
const ANY: [u32; 2] = [0, 0];
/// The one of 32 bits, which is no C.
const I386: &str = "i386";
/// Its pages, twice.
const I386_PAGES: u32 = 4096;
const POLICIES: &str = "4k,only-64k,up-to-64k,only-2m,up-to-2m";
/// The file of all others.
const C: &str = "rules";
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
    let program = program.with_file_name(if rule == I386 { rule } else { C });
    let output = command.arg(program).arg(rule).output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    if ["needs root", "does not offer", "the system forbids"].iter().any(|no| why.contains(no)) {
        return Err(why);
    }
    assert!(output.status.success(), "{rule}: {why}");
    Ok(serde_json::from_slice(&output.stdout).unwrap())
}

/// The kernel's version.
fn kernel() -> [u32; 2] {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = text.split(['.', '-']).map(|number| number.trim().parse().unwrap_or(0));
    std::array::from_fn(|_| numbers.next().unwrap_or(0))
}

/// One test: only one check can be at work.
#[test]
fn every_rule_is_predicted_within_half_a_per_cent() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join(C);
    let compiled =
        Command::new("cc").args(["-O1", "-pthread", "-o"]).arg(&program).arg(SOURCE).status();
    assert!(compiled.unwrap().success());
    let small = folder.path().join(I386);
    std::fs::write(&small, i386::program(I386_PAGES)).unwrap();
    std::fs::set_permissions(&small, PermissionsExt::from_mode(0o755)).unwrap();
    for (rule, since) in RULES {
        if kernel() < since {
            eprintln!("skipped: {rule} is so since Linux {}.{}", since[0], since[1]);
            continue;
        }
        if rule == I386 && Command::new(&small).status().is_err() {
            eprintln!("skipped: this kernel runs no programs of 32 bits");
            continue;
        }
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
