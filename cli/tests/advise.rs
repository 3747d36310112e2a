//! `foliant advise` on the recordings that are shipped, as a whole command.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn traces() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces")
}

fn advise(words: &[&str], columns: u32) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foliant"));
    command.current_dir(traces()).env("COLUMNS", columns.to_string());
    command.env("XDG_DATA_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/no-data"));
    command.arg("advise").args(words).output().unwrap()
}

fn printed(words: &[&str]) -> String {
    let output = advise(words, 80);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn document(words: &[&str]) -> Value {
    serde_json::from_str(&printed(&[&["--json"], words].concat())).unwrap()
}

/// A screen of 80 columns and some 45 lines, whose end is the recommendation.
#[test]
fn the_advice_is_one_screen_that_ends_with_the_recommendation() {
    for file in ["python.trace", "sort.trace"] {
        let text = printed(&[file]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() <= 46, "{file}: {} lines\n{text}", lines.len());
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{text}");
        let at = |what: &str| {
            let found = lines.iter().position(|line| line.starts_with(what));
            found.unwrap_or_else(|| panic!("{file}: no {what}\n{text}"))
        };
        let order = [" mapping", " faults over time", " all memory", "Evidence?", "Workloads?"];
        let order = order.into_iter().chain(["Gain?", "Other sizes?", "Fragmented?"]);
        let places: Vec<usize> =
            order.chain(["Cost function?", "Recommendation"]).map(at).collect();
        assert!(places.is_sorted(), "{text}");
        let rest = lines[at("Recommendation")..].join(" ");
        for word in ["madvise", "MADV_HUGEPAGE for:", "% of the kernel time", "peak memory"] {
            assert!(rest.contains(word), "{file}: no {word} in {rest}");
        }
    }
}

#[test]
fn what_is_recommended_is_within_the_memory_and_near_the_best() {
    for (file, spend) in [("python.trace", 5), ("git.trace", 5), ("python.trace", 0)] {
        let told = document(&[file, "--spend", &spend.to_string()]);
        let policies = told["policies"].as_array().unwrap();
        let limit = 1.0 + f64::from(spend) / 100.0;
        let number = |value: &Value| value.as_f64().unwrap();
        let is_within = |policy: &&Value| number(&policy["peak_ratio"]) <= limit;
        let times = policies.iter().filter(is_within).map(|p| number(&p["kernel_time_ratio"]));
        let best = times.fold(f64::MAX, f64::min);
        let recommended = &told["recommended"];
        assert!(number(&recommended["peak_ratio"]) <= limit, "{file}: {recommended}");
        let time = number(&recommended["kernel_time_ratio"]);
        assert!(time <= best * 1.03, "{file}: {time} beside {best}");
        let [least, most] =
            ["gain_percent_least", "gain_percent_most"].map(|n| number(&recommended[n]));
        let gain = number(&recommended["gain_percent"]);
        assert!(least <= gain && gain <= most, "{least} {gain} {most}");
    }
}

/// `advise::A1`: the shares of all mappings come to what the whole takes.
#[test]
fn shares_of_mappings_come_to_the_whole() {
    let told = document(&["python.trace"]);
    for (when, whole) in [("before", "before"), ("after", "after")] {
        let sum = |field: &str| {
            let mappings = told["mappings"].as_array().unwrap().iter();
            mappings.map(|mapping| mapping[when][field].as_u64().unwrap()).sum::<u64>()
        };
        let whole = &told["recommended"][whole];
        assert_eq!(whole["anonymous_faults"], sum("faults"), "{when}");
        assert_eq!(whole["kernel_ns"], sum("kernel_ns"), "{when}");
    }
    let parts = told["parts"].as_array().unwrap();
    let faults: u64 = parts.iter().map(|part| part["faults_before"].as_u64().unwrap()).sum();
    assert_eq!(told["recommended"]["before"]["anonymous_faults"], faults);
    assert!(told["start_up_parts"].as_u64().unwrap() <= parts.len() as u64);
}

#[test]
fn several_recordings_have_a_spread_and_one_has_none() {
    let two = document(&["python.trace", "sort.trace"]);
    assert_eq!(two["recordings"].as_array().unwrap().len(), 2);
    let [least, mean, most] =
        ["kernel_time_ratio_least", "kernel_time_ratio", "kernel_time_ratio_most"]
            .map(|name| two["recommended"][name].as_f64().unwrap());
    assert!(least < mean && mean < most, "{least} {mean} {most}");
    assert!(two["sentences"].to_string().contains("2 recordings"));
    assert!(document(&["sort.trace"])["sentences"].to_string().contains("one recording"));
}

#[test]
fn a_plan_is_written_whole_and_lines_are_printed_for_the_switches() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("advise");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let plan = folder.join("a.plan");
    let text = printed(&["python.trace", "--plan-out", plan.to_str().unwrap(), "--apply"]);
    assert!(text.lines().all(|line| line.starts_with("echo ") || line.starts_with('#')), "{text}");
    let written: Value = serde_json::from_slice(&std::fs::read(&plan).unwrap()).unwrap();
    assert_eq!(written["schema"], "foliant plan 1");
    let told = document(&["python.trace"]);
    assert_eq!(told["recommended"]["plan"]["wishes"], written["wishes"]);
    assert!(!written["wishes"].as_array().unwrap().is_empty());
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "nothing else is left behind");
}

/// A program that is recorded first: its stack, its heap and its sites have names.
#[test]
fn a_command_is_recorded_and_its_mappings_have_names() {
    let told = document(&["--runs", "1", "--", "sh", "-c", "sort cc.trace | head -1 >&2"]);
    let names: Vec<&str> =
        told["mappings"].as_array().unwrap().iter().filter_map(|m| m["name"].as_str()).collect();
    assert!(names.contains(&"heap") && names.contains(&"stack"), "{names:?}");
    assert!(names.iter().any(|name| name.starts_with("data of libc.so")), "{names:?}");
}

/// What is remarked beside the result is lost where standard error takes nothing, and no more.
#[test]
fn a_full_standard_error_ends_nothing() {
    let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") else {
        return eprintln!("skipped: there is no /dev/full here");
    };
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("my.plan");
    let mut command = Command::new(env!("CARGO_BIN_EXE_foliant"));
    command.arg("advise").arg(traces().join("git.trace")).arg("--plan-out").arg(&plan);
    let output = command.stderr(full).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(plan.exists() && output.stdout.ends_with(b"\n"));
}
