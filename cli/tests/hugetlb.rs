//! `foliant check --hugetlb`: measured and put back where this kernel and user allow it, and
//! refused in a sentence elsewhere.

use serde_json::Value;
use std::fs;
use std::process::{Command, Stdio};
use std::thread::yield_now;

const COUNT: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
const FOLDING: &str = "/proc/sys/vm/hugetlb_optimize_vmemmap";

fn check(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foliant"));
    command.args(["check", "--hugetlb"]).args(args).stdin(Stdio::null());
    command
}

fn settings() -> [Option<String>; 2] {
    [COUNT, FOLDING].map(|path| fs::read_to_string(path).ok())
}

/// Whether this kernel has both, and this user may set them.
fn may() -> bool {
    [COUNT, FOLDING].iter().all(|path| {
        fs::read_to_string(path).and_then(|value| fs::write(path, value.trim())).is_ok()
    })
}

// One test: only one check can be at work.
#[test]
fn the_pool_is_measured_and_put_back_or_refused() {
    let before = settings();
    if !may() {
        let output = check(&[]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("use "), "the way out: {said}");
        assert_eq!(settings(), before);
        return;
    }
    let output = check(&["--pages", "16", "--runs", "2", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = value["rows"].as_array().unwrap();
    let names: Vec<_> = rows.iter().map(|row| [&row["name"], &row["phase"]]).collect();
    assert_eq!(names, [["off", "fill"], ["off", "drain"], ["on", "fill"], ["on", "drain"]]);
    assert!(rows.iter().all(|row| row["median_ns_per_page"].as_u64().unwrap() > 0));
    assert_eq!(settings(), before);

    let mut child = check(&["--pages", "16", "--runs", "99"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while settings() == before && child.try_wait().unwrap().is_none() {
        yield_now();
    }
    if let Some(status) = child.try_wait().unwrap() {
        let said = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
        panic!("it ended before it was stopped, {status}: {said}");
    }
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(settings(), before);
}
