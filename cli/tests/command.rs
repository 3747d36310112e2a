//! The command as a user meets it: its output, and one sentence for everything that goes wrong.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The command where nothing was calibrated, so that it says the same on every machine.
fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foliant"));
    command.env("XDG_DATA_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/no-data"));
    command
}

fn foliant(args: &[&str]) -> Output {
    command().args(args).output().unwrap()
}

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces").join(name)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_bare_command_replays_a_recording_in_any_folder() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = command();
    let output = command.current_dir(&folder).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    for word in ["up-to-64k", "up-to-2m", "only-2m", "kernel ms", "foliant record -o"] {
        assert!(said.contains(word), "{said}");
    }
}

/// Without fragmented memory a table is as if there was no such option; with it the table says what
/// came of it, and JSON the same.
#[test]
fn fragmented_memory_is_told_and_whole_memory_is_not() {
    let file = shipped("python.trace");
    let run = |options: &[&str]| {
        let mut args = vec!["replay", file.to_str().unwrap(), "--policy", "4k,up-to-2m"];
        args.extend(options);
        let output = foliant(&args);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let whole = run(&[]);
    assert_eq!(run(&["--fragment", "0"]), whole);
    assert!(!whole.contains("moved") && !whole.contains("another program"), "{whole}");
    let table = run(&["--fragment", "80"]);
    for word in ["80 % of it fragmented", "moved", "compacting", "of 57 blocks of 2 MiB"] {
        assert!(table.contains(word), "{word}: {table}");
    }
    let json: Value = serde_json::from_str(&run(&["--fragment", "80", "--json"])).unwrap();
    let (file, row) = (&json["files"][0], &json["files"][0]["policies"][1]);
    let number = |value: &Value| value.as_u64().unwrap();
    assert!(number(&file["fragmented_blocks"]) > 40, "{file}");
    assert!(number(&row["moved_pages"]) > 0, "{row}");
    let (compaction, kernel) = (number(&row["compaction_ns"]), number(&row["kernel_ns"]));
    assert!(0 < compaction && compaction < kernel, "{row}");
}

#[test]
fn scenarios_are_listed_run_and_refused() {
    let list = foliant(&["lab", "--list"]);
    assert!(list.status.success());
    for word in ["faults", "bytes=8m", "flush", "pages=512", "--truth"] {
        assert!(text(&list.stdout).contains(word), "{word}");
    }
    let output = foliant(&["lab", "faults", "bytes=2m", "--cpus", "2", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((report["scenario"].as_str(), report["cpus"].as_u64()), (Some("faults"), Some(2)));
    assert_eq!(report["machine"], "simulator");
    assert_eq!(report["parameters"]["sizes"], "4k,64k,2m");
    let faults: Vec<_> =
        report["rows"].as_array().unwrap().iter().map(|row| &row["counts"]["faults"]).collect();
    assert_eq!(faults, [1024, 64, 2]);
}

#[test]
fn a_history_is_told_and_its_replay_line_gives_it_again() {
    let bug = "sim --seed 10 --plant skip-remote-flush --cpus 4 --steps 200";
    let told = |line: &str| {
        let output = foliant(&line.split(' ').collect::<Vec<_>>());
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, first, _) = told(bug);
    assert_eq!(code, Some(0), "a planted bug that is seen is no failure");
    assert!(first.contains("no_stale_translation") && first.contains("struck"), "{first}");
    let again = first.lines().find_map(|line| line.strip_prefix("again: foliant ")).unwrap();
    assert_eq!(again, bug);
    assert_eq!(told(again).1, first);
    let json: Value = serde_json::from_str(&told(&format!("{bug} --json")).1).unwrap();
    let found = json["findings"].as_array().unwrap();
    assert!(found.iter().any(|one| one["checker"] == "no_stale_translation"), "{found:?}");
    assert_eq!(json["replay"], format!("foliant {bug}"));
    // Nothing is planted: clean. The plant has no time to strike: a verdict of its own.
    let (code, clean, _) = told("sim --seed 7 --cpus 2 --steps 60");
    assert_eq!((code, clean.contains("clean: ")), (Some(0), true), "{clean}");
    let (code, _, why) = told("sim --seed 7 --plant late-copy --cpus 1 --steps 1");
    assert_eq!((code, why.contains("another seed")), (Some(1), true), "{why}");
    for plant in foliant_history::plants() {
        let list = told("sim --plants").1;
        assert!(list.contains(plant.name()) && list.contains(plant.about()), "{list}");
    }
}

#[test]
fn a_pool_is_shown_beside_what_was_published() {
    let words = ["lab", "hugetlb", "--json", "--cpus", "3", "--model", "guest-252"];
    let run = |more: &[&str]| -> Value {
        let output = foliant(&[&words, more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let value = run(&["--pages", "40", "--batch=16"]);
    let rows = value["rows"].as_array().unwrap();
    let expect = [
        "descriptor_frames_after",
        "descriptor_frames_before",
        "interrupts",
        "local_invalidations",
        "model_ns_per_page",
        "model_ratio_to_off",
        "name",
        "phase",
        "real_ns_per_page",
        "real_ratio_to_off",
        "remote_shootdowns",
    ];
    for row in rows {
        let mut keys: Vec<&String> = row.as_object().unwrap().keys().collect();
        keys.sort();
        assert_eq!(keys, expect);
        assert!(row["real_ns_per_page"].as_f64().unwrap() > 0.0, "{row}");
    }
    let names: Vec<_> = rows.iter().map(|row| [&row["name"], &row["phase"]]).collect();
    let both = |name: &'static str| [[name, "fill"], [name, "drain"]];
    assert_eq!(names, ["off", "grain1", "batched", "born_folded"].map(both).concat());
    let shootdowns: Vec<_> =
        rows.iter().map(|r| r["remote_shootdowns"].as_u64().unwrap()).collect();
    assert_eq!(shootdowns[..2], [0, 0]);
    assert_eq!((shootdowns[3], shootdowns[5], shootdowns[6], shootdowns[7]), (40, 3, 0, 3));
    assert_eq!(rows[0]["model_ratio_to_off"], 1.0);
    assert!(rows[6]["model_ratio_to_off"].as_f64().unwrap() < 1.0, "{value}");
    // Six published rows, four of which the model was fitted to.
    let published = value["published"].as_array().unwrap();
    let fitted: Vec<_> = published.iter().map(|row| row["fitted"].as_bool().unwrap()).collect();
    assert_eq!(fitted, [true, true, true, true, false, false]);
    let ratio = published[4]["published_ratio_to_off"].as_f64().unwrap();
    assert!((ratio - 1.77).abs() < 0.01, "{ratio}");
    // Options and words are one thing, and without `off` there is nothing to compare with.
    let value = run(&["pages=40", "batch=16", "rows=batched"]);
    assert_eq!(value["parameters"]["pages"], "40");
    assert_eq!(value["rows"][0]["remote_shootdowns"], rows[4]["remote_shootdowns"]);
    assert!(value["rows"][0]["model_ratio_to_off"].is_null());
    let table = foliant(&["lab", "hugetlb", "--pages", "8", "--cpus", "1"]);
    for word in ["born_folded", "x off", "descriptor frames"] {
        assert!(text(&table.stdout).contains(word), "{}", text(&table.stdout));
    }
}

#[test]
fn a_table_in_kernel_memory_is_counted_and_probed_here() {
    let run = |words: &[&str]| -> Value {
        let all =
            [&["lab", "vmalloc", "--json", "--device", "4m", "--sizes", "20"], words].concat();
        let output = foliant(&all);
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let value = run(&["--table-size", "16m"]);
    assert_eq!(value["parameters"]["table-size"], "16m");
    let rows = value["rows"].as_array().unwrap();
    let names: Vec<_> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    let devices = ["ioremap 1m by 4k", "ioremap 4m by 4k", "ioremap 4m by 2m"];
    assert_eq!(names[..3], ["4k", "2m", "rounded"]);
    assert_eq!(names[3..6], devices);
    assert_eq!(names[6..], ["sizes, split", "sizes, rounded"]);
    let misses = |row: usize| rows[row]["counts"]["dtlb_misses"].as_u64().unwrap();
    assert!(misses(0) > 28 * misses(1), "{} and {}", misses(0), misses(1));
    assert_eq!(rows[6]["counts"]["waste_bytes"], 0);
    let mappings = value["mappings"].as_array().unwrap();
    assert_eq!(mappings.len(), 3);
    assert!(mappings[0]["model_map_ratio"].is_null() && mappings[2]["model_map_ratio"].is_f64());
    assert!(mappings[2]["real_map_ns"].as_u64() > Some(0));
    let published: Vec<_> = value["published"].as_array().unwrap().iter().collect();
    assert!((published[0]["published_ratio"].as_f64().unwrap() - 28.5).abs() < 0.1);
    // The same probes through this machine's own hardware.
    let here = &value["here"];
    assert_eq!((here["table"].as_u64(), here["rounds"].as_u64()), (Some(16 << 20), Some(7)));
    assert_eq!((&here["rows"][0]["name"], &here["rows"][1]["name"]), (&"4k".into(), &"2m".into()));
    assert!(here["rows"][0]["ns_per_probe"].as_f64() > Some(0.0));
    assert_eq!(here["rows"][0]["huge_bytes"], 0);
    // Words and options are one thing.
    assert_eq!(run(&["table-size=16m"])["rows"], value["rows"]);
    let table =
        foliant(&["lab", "vmalloc", "--table-size", "4m", "--device", "2m", "--sizes", "3"]);
    let said = text(&table.stdout);
    for word in ["Skylake", "59,800 to 2,100", "ns per probe", "sizes, rounded"] {
        assert!(said.contains(word), "{said}");
    }
}

#[test]
fn json_has_the_promised_keys() {
    let (sort, python) = (shipped("sort.trace"), shipped("python.trace"));
    let files = [sort.to_str().unwrap(), python.to_str().unwrap()];
    let output = foliant(&["replay", "--json", files[0], files[1]]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let list = value["files"].as_array().unwrap();
    assert_eq!(list.len(), 2);
    for (file, path) in list.iter().zip(files) {
        assert_eq!(file["file"], path);
        let recorded = file["recorded_anonymous_faults"].as_u64().unwrap();
        let policies = file["policies"].as_array().unwrap();
        let names: Vec<_> = policies.iter().map(|p| p["name"].as_str().unwrap()).collect();
        let expect = [
            "4k",
            "up-to-16k",
            "up-to-32k",
            "up-to-64k",
            "up-to-128k",
            "up-to-256k",
            "up-to-512k",
            "up-to-1m",
            "up-to-2m",
            "only-2m",
            "auto",
        ];
        assert_eq!(names, expect);
        assert_eq!(policies[0]["anonymous_faults"].as_u64(), Some(recorded));
        assert_eq!(file["stray_faults"], 0);
        for policy in policies {
            for key in ["anonymous_faults", "fallbacks", "zeroed_bytes", "shootdowns", "leaves"] {
                assert!(policy[key].is_u64(), "{key}");
            }
            for key in ["peak_bytes", "peak_mapped_bytes", "untouched_bytes"] {
                assert!(policy[key].is_u64(), "{key}");
            }
            assert!(policy["kernel_time_ratio"].is_f64() && policy["peak_ratio"].is_f64());
            assert!(policy["folios_by_order"].is_object());
        }
    }
}

#[test]
fn policies_can_be_picked() {
    let file = shipped("python.trace");
    let file = file.to_str().unwrap();
    let output = foliant(&["replay", file, "--policy", "up-to-64k,only-64k,thp", "--json"]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<_> =
        value["files"][0]["policies"].as_array().unwrap().iter().map(|p| &p["name"]).collect();
    assert_eq!(names, ["up-to-64k", "only-64k", "only-2m"]);
}

#[test]
fn a_trace_is_described() {
    let file = shipped("sort.trace");
    let file = file.to_str().unwrap();
    let said = text(&foliant(&["trace", file]).stdout);
    assert!(said.contains("sort") && said.contains("anonymous"), "{said}");
    let value: Value = serde_json::from_slice(&foliant(&["trace", "--json", file]).stdout).unwrap();
    assert!(value["faults"].as_u64() > value["anonymous_faults"].as_u64());
    let dump = text(&foliant(&["trace", "--dump", file]).stdout);
    assert_eq!(Some(dump.lines().count() as u64), value["events"].as_u64());
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod recording {
    use super::*;

    /// Exit code 2, nothing on standard output, and words on standard error.
    fn refused(args: &[&str], words: &[&str]) {
        let output = foliant(args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(output.stdout.is_empty(), "{args:?}: {}", text(&output.stdout));
        for word in words {
            assert!(said.contains(word), "{args:?}: {word:?} is missing in {said:?}");
        }
    }

    #[test]
    fn a_program_that_is_not_there_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new.trace");
        let path = path.to_str().unwrap();
        refused(&["record", "-o", path, "--", "no-such-program"], &["no-such-program", "PATH"]);
        refused(&["record", "-o", path], &["COMMAND"]);
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
        refused(
            &["record", "-o", "/nowhere/new.trace", "--", "true"],
            &["/nowhere/new.trace", "-o"],
        );
        refused(&["record", "-o", "/dev/full/x", "--", "true"], &["/dev/full/x"]);
    }

    #[test]
    fn a_recording_can_be_replayed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new.trace");
        let path = path.to_str().unwrap();
        let output = foliant(&["record", "-o", path, "--", "true"]);
        let said = text(&output.stderr);
        if said.contains("the system forbids") {
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(folder.path().read_dir().unwrap().next().is_none());
            return; // nothing can be recorded here, and it says so
        }
        assert!(output.status.success(), "{said}");
        let output = foliant(&["replay", "--json", "--policy", "4k", path]);
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        let file = &value["files"][0];
        assert_eq!(file["recorded_anonymous_faults"], file["policies"][0]["anonymous_faults"]);
    }

    /// What the recorder says where it may not record; the test is over then.
    fn is_forbidden(output: &Output) -> bool {
        let said = text(&output.stderr);
        let is_forbidden = said.contains("the system forbids");
        if is_forbidden {
            eprintln!("skipped: {said}");
        }
        is_forbidden
    }

    #[test]
    fn a_recorded_program_ends_as_it_would_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let record = |words: &[&str]| {
            let mut command = super::command();
            command.arg("record").args(words).current_dir(&folder).output().unwrap()
        };
        let names = || {
            let mut names: Vec<String> = (folder.path().read_dir().unwrap())
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        // No `--` is needed, and the program's options are its own.
        let output = record(&["sh", "-c", "echo -n said; exit 7"]);
        if is_forbidden(&output) {
            return;
        }
        assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "said");
        assert!(text(&output.stderr).contains("sh.trace holds"), "{}", text(&output.stderr));
        let output = record(&["-q", "--", "/bin/sh", "-c", "kill -TERM $$"]);
        assert_eq!(output.status.code(), Some(128 + 15));
        assert_eq!(record(&["-q", "-o", "named", "true", "--version"]).status.code(), Some(0));
        // Nothing that was there is lost.
        assert_eq!(names(), ["named", "sh-2.trace", "sh.trace"]);
    }

    #[test]
    fn a_recorder_that_is_killed_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = super::command();
        let script = "echo ready; exec sleep 60";
        let words = ["record", "-o", "new.trace", "sh", "-c", script];
        let piped = command.args(words).current_dir(&folder).stdout(std::process::Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        if line.is_empty() {
            return eprintln!("skipped: nothing can be recorded here");
        }
        let left: Vec<_> = folder.path().read_dir().unwrap().flatten().collect();
        let is_named = |name: &std::ffi::OsStr| name.as_encoded_bytes().ends_with(b".partial");
        if left.iter().any(|entry| is_named(&entry.file_name())) {
            return eprintln!("skipped: this file system wants a name for every file");
        }
        assert!(left.is_empty(), "{left:?}");
    }
}
