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

/// `foliant compare`, where there is all that it takes.
fn command(words: &[&str]) -> Option<Command> {
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
    command.args(["compare", "--timeout", "400"]).args(words).arg("--kernel").arg(linux);
    Some(command)
}

/// `foliant compare` of a program of busybox's.
fn compare(words: &[&str], program: &[&str]) -> Option<Output> {
    let mut command = command(&[&["--rounds", "2"], words].concat())?;
    Some(command.arg("--").arg("busybox").args(program).output().unwrap())
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

/// Counts of a row's two settings on a kernel: operations, shootdowns, calls, faults and folios.
fn counts(whole: &Value, row: &str, kernel: usize) -> [[u64; 5]; 2] {
    let rows = whole["rows"].as_array().unwrap();
    let row = rows.iter().find(|it| it["row"] == row).unwrap();
    ["before", "after"].map(|at| {
        ["operations", "shootdowns", "calls", "faults", "folios"].map(|name| {
            row["kernels"][kernel][at][name].as_u64().unwrap_or_else(|| panic!("{row:#}"))
        })
    })
}

#[test]
fn experiments_of_published_documents_are_counted_on_both_kernels() {
    let words = ["--json", "--published", "pool=64,split=8,touch=4,fragment=2"];
    let Some(mut command) = command(&words) else { return };
    // No kernel finds a page of 1 GiB in so little memory.
    let ran = command.args(["--memory", "512m", "--cpus", "4"]).output().unwrap();
    assert_eq!(ran.status.code(), Some(0), "{}", said(&ran));
    let whole: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(whole["schema"], "foliant compare-published 1");
    let (linux, foliant) = (0, 1);
    // Folding 64 pages takes Foliant two flushes of all others, one for the leaf that is split and
    // one for what is folded, or none where they lie in blocks that had no descriptors before:
    // which ones, the layout of memory says. Unfolding takes one or two. Linux takes two at least,
    // each a call.
    for (row, flushes) in [("pool-grow", [0, 2]), ("pool-shrink", [1, 2])] {
        let [plain, folded] = counts(&whole, row, foliant);
        assert_eq!((plain[..3].to_vec(), folded[0]), (vec![64, 0, 0], 64), "{row}: {whole:#}");
        assert!(folded[1] % 3 == 0 && flushes.contains(&(folded[1] / 3)), "{row}: {whole:#}");
    }
    assert!(counts(&whole, "pool-grow", linux)[1][2] >= 2 * 3, "{whole:#}");
    for kernel in [linux, foliant] {
        // 2 MiB are 512 faults, or one that makes a folio.
        let [small, large] = counts(&whole, "touch-thp", kernel);
        assert!((4 * 512..4 * 512 + 8).contains(&small[3]) && small[4] == 0, "{whole:#}");
        assert!((4..12).contains(&large[3]) && large[4] == 4, "{whole:#}");
        // A call for each folio asks three CPUs, however many entries lead to it.
        for row in ["part", "split"] {
            let asked = counts(&whole, row, kernel).map(|it| it[1]);
            assert!(asked.iter().all(|asked| (1..=8 * 3 * 2).contains(asked)), "{row}: {whole:#}");
        }
        let faults = counts(&whole, "fault-huge", kernel);
        assert!(faults.iter().all(|it| it[0] > 10 && it[4] > 0), "{whole:#}");
        let row = whole["rows"].as_array().unwrap().iter().find(|it| it["row"] == "touch-1g");
        let why = row.unwrap()["kernels"][kernel]["cannot"].as_str().unwrap();
        assert!(why.contains("hugepages-1048576kB") && why.contains("1 pages"), "{why}");
    }
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
