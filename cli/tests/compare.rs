//! A program on Linux and on the kernel, counted in the same instructions.
#![cfg(target_os = "linux")]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A Linux to compare with: what `FOLIANT_LINUX` names, or one of this system's.
fn linux() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("FOLIANT_LINUX") {
        return Some(named.into());
    }
    let all = std::fs::read_dir("/boot").into_iter().flatten().flatten();
    let is_kernel = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("vmlinuz-") && std::fs::File::open(path).is_ok()
    };
    all.map(|entry| entry.path()).find(is_kernel)
}

/// `foliant compare` of a program of busybox's, where there is all that it takes.
fn compare(words: &[&str], program: &[&str]) -> Option<Output> {
    let busybox = ["/bin/busybox", "/usr/bin/busybox"].map(Path::new);
    let qemu = Command::new("qemu-system-x86_64").arg("--version").output();
    let (Some(linux), true, true) = (linux(), busybox.iter().any(|it| it.is_file()), qemu.is_ok())
    else {
        eprintln!(
            "skipped: it takes QEMU, busybox, and a Linux kernel in /boot or named in FOLIANT_LINUX \
             (from a package linux-image, unpacked with `dpkg -x`)"
        );
        return None;
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_foliant"));
    command.args(["compare", "--rounds", "2", "--timeout", "400"]).args(words);
    command.arg("--kernel").arg(linux).arg("--").arg("busybox").args(program);
    Some(command.output().unwrap())
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_program_takes_as_many_instructions_of_its_own_on_both_kernels() {
    let sizes = ["--json", "--size", "4k,64k"];
    let Some(ran) = compare(&sizes, &["seq", "1", "2000"]) else { return };
    assert_eq!(ran.status.code(), Some(0), "{}", said(&ran));
    let whole: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(whole["schema"], "foliant compare 1");
    let rows = whole["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4, "{whole:#}");
    let number = |row: &Value, name: &str| row[name].as_u64().unwrap();
    for pair in rows.chunks(2) {
        let [linux, foliant] = pair else { unreachable!("an even number") };
        assert!(linux["kernel"].as_str().unwrap().starts_with("Linux "), "{whole:#}");
        assert_eq!(foliant["kernel"], "Foliant");
        for row in pair {
            assert_eq!(row["end"], "exit=0");
            // 2,000 lines take millions, and neither kernel half as many beside them.
            assert!(number(row, "program") > 2_000_000, "{whole:#}");
            let both = number(row, "program") + number(row, "in_kernel");
            assert_eq!(both, number(row, "instructions"), "{whole:#}");
            assert!(number(row, "in_kernel") < number(row, "program") / 2, "{whole:#}");
            assert!(number(row, "faults") > 10 && number(row, "peak") > 0, "{whole:#}");
        }
    }
}

#[test]
fn a_program_that_does_something_else_is_told() {
    let Some(ran) = compare(&["--size", "4k"], &["uname", "-r"]) else { return };
    assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
    assert!(said(&ran).contains("on Foliant at 4k said something else than on Linux"));
    assert_eq!(String::from_utf8(ran.stdout).unwrap().lines().count(), 5);
}

#[test]
fn what_is_no_kernel_is_refused() {
    if Command::new("qemu-system-x86_64").arg("--version").output().is_err() {
        return eprintln!("skipped: QEMU is not installed");
    }
    let ran = Command::new(env!("CARGO_BIN_EXE_foliant"))
        .args(["compare", "--kernel", "/etc/passwd", "--", "true"])
        .output()
        .unwrap();
    assert_eq!(ran.status.code(), Some(2));
    assert!(said(&ran).contains("/etc/passwd is no Linux for x86-64; name a kernel like"));
}
