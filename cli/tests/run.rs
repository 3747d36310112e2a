//! A program with a plan applied, as who called it sees it: its end, its streams, its place among
//! processes. What is injected is tested where that is done (`crates/trace/tests/apply.rs`).
//!
//! Plans here have the switches that this machine has, so that nothing is set. Where the system
//! forbids following, the tests say so and pass.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

const ROOT: &str = "/sys/kernel/mm/transparent_hugepage";

/// The chosen word of a switch.
fn chosen(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}

/// The switches of sizes that a plan can name, as this machine has them; nothing without any.
fn switches() -> Option<(String, Vec<(String, String)>)> {
    let global = chosen(&Path::new(ROOT).join("enabled"))?;
    let sizes = [16, 32, 64, 128, 256, 512, 1024, 2048].into_iter().filter_map(|kb: u64| {
        let path = Path::new(ROOT).join(format!("hugepages-{kb}kB/enabled"));
        let size = if kb < 1024 { format!("{kb}k") } else { format!("{}m", kb >> 10) };
        Some((size, chosen(&path)?))
    });
    Some((global, sizes.collect()))
}

struct Place {
    folder: tempfile::TempDir,
    global: String,
    sizes: Vec<(String, String)>,
}

impl Place {
    /// Nothing where this machine has no switches.
    fn new() -> Option<Place> {
        let Some((global, sizes)) = switches() else {
            eprintln!("skipped: this kernel has no switches of folio sizes");
            return None;
        };
        Some(Place { folder: tempfile::tempdir().unwrap(), global, sizes })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A plan with the machine's switches.
    fn plan(&self, wishes: Value) -> PathBuf {
        self.write(&self.sizes, wishes)
    }

    fn write(&self, sizes: &[(String, String)], wishes: Value) -> PathBuf {
        let size = |(size, switch): &(String, String)| json!({ "size": size, "switch": switch });
        let sizes: Vec<Value> = sizes.iter().map(size).collect();
        let plan = json!({
            "schema": "foliant plan 1", "global": self.global, "sizes": sizes, "wishes": wishes
        });
        let path = self.file("plan.json");
        fs::write(&path, plan.to_string()).unwrap();
        path
    }
}

fn everything() -> Value {
    json!([
        { "target": "heap", "wish": "hugepage" },
        { "target": "stack", "wish": "hugepage" },
        { "target": "made", "wish": "hugepage" }
    ])
}

fn run(plan: &Path, options: &[&str], words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foliant"));
    for name in ["SUDO_UID", "SUDO_GID", "SUDO_USER"] {
        command.env_remove(name);
    }
    command.arg("run").args(options).arg("--plan").arg(plan).arg("--").args(words);
    command
}

/// Whether nothing can be run here, which is said.
fn is_skipped(output: &Output) -> bool {
    let why = String::from_utf8_lossy(&output.stderr);
    let is_forbidden = why.contains("the system forbids");
    if is_forbidden {
        eprintln!("skipped: {why}");
    }
    is_forbidden
}

/// Looks for something until it is there.
fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
    loop {
        match look() {
            Some(found) => return found,
            None => sleep(Duration::from_millis(5)),
        }
    }
}

#[test]
fn its_end_and_its_streams_are_the_programs() {
    let Some(place) = Place::new() else { return };
    let plan = place.plan(everything());
    for options in [&[][..], &["--stats", "table"]] {
        let output = run(&plan, options, &["sh", "-c", "exit 7"]).output().unwrap();
        if is_skipped(&output) {
            return;
        }
        assert_eq!(output.status.code(), Some(7));
        let status = run(&plan, options, &["sh", "-c", "kill -TERM $$"]).output().unwrap().status;
        assert_eq!(status.signal(), Some(15), "by the signal itself");
        let mut child = run(&plan, options, &["cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(b"through\n").unwrap();
        assert_eq!(child.wait_with_output().unwrap().stdout, b"through\n");
    }
    let output = run(&plan, &[], &["no-such-program"]).output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && why.contains("'no-such-program'"), "{why}");
}

#[test]
fn it_is_where_it_would_be_without() {
    let Some(place) = Place::new() else { return };
    let script = "echo $$ $PPID; cut -d' ' -f5,6 /proc/$$/stat; ls /proc/$$/task/$$/children >&2; \
                  wait; grep TracerPid /proc/$$/status";
    for (wishes, is_traced) in [(everything(), true), (json!([]), false)] {
        let plan = place.plan(wishes);
        let mut command = run(&plan, &[], &["sh", "-c", script]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let number = child.id();
        let output = child.wait_with_output().unwrap();
        if is_skipped(&output) {
            return;
        }
        let text = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], format!("{number} {}", std::process::id()), "number and parent");
        let own = fs::read_to_string("/proc/self/stat").unwrap();
        let own: Vec<&str> = own.rsplit_once(')').unwrap().1.split_ascii_whitespace().collect();
        assert_eq!(lines[1], format!("{} {}", own[2], own[3]), "group and session");
        assert_eq!(!lines[2].ends_with("\t0"), is_traced, "{text}");
    }
}

#[test]
fn what_was_injected_is_said_at_the_end() {
    let Some(place) = Place::new() else { return };
    let words = ["sh", "-c", "x=$(head -c 3000000 /dev/zero | tr '\\0' a); echo ${#x}"];
    let plan = place.plan(everything());
    let output = run(&plan, &["--stats", "json"], &words).output().unwrap();
    if is_skipped(&output) {
        return;
    }
    assert_eq!(output.stdout, b"3000000\n", "and nowhere else");
    let said: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(said["schema"], "foliant run 1");
    let targets: Vec<&str> = said["advice"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["target"].as_str().unwrap())
        .collect();
    assert_eq!(targets, ["heap", "stack", "made"], "{said}");
    let stack = said["advice"][1]["calls"].as_u64().unwrap();
    assert!(stack >= 3, "of sh, head and tr: {said}");
    let output = run(&plan, &["--stats", "table"], &words).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("hugepage") && text.contains("calls of the program were stopped"),
        "{text}"
    );
    // Without a wish there is nothing to say, and it is said.
    let plan = place.plan(json!([]));
    let output = run(&plan, &["--stats", "table"], &["true"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("no advice was due"));
}

/// A program that goes to the background is there at once, with its follower, for as long as it
/// wants.
#[test]
fn nobody_waits_for_what_goes_to_the_background() {
    let Some(place) = Place::new() else { return };
    let plan = place.plan(everything());
    let (gate, done) = (place.file("gate"), place.file("done"));
    assert!(Command::new("mkfifo").arg(&gate).status().unwrap().success());
    // Behind the gate it maps again, which its filter stops at.
    let script = format!(
        "(read x <{}; sh -c 'x=$(head -c 3000000 /dev/zero | tr \"\\0\" a); echo ${{#x}}' >{}) & exit 3",
        gate.display(),
        done.display()
    );
    let words = ["sh", "-c", script.as_str()];
    // Its streams are pipes that somebody reads to their end, which only the program's own holds
    // open.
    let mut command = run(&plan, &["--stats", "json"], &words);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let status = child.wait().unwrap();
    fs::write(&gate, "go\n").unwrap();
    let output = child.wait_with_output().unwrap();
    if is_skipped(&output) {
        return;
    }
    assert_eq!(status.code(), Some(3));
    let said: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(said["goes_on"], true, "{said}");
    let text = wait_for(|| fs::read_to_string(&done).ok().filter(|text| !text.is_empty()));
    assert_eq!(text, "3000000\n");
}

#[test]
fn signals_and_stops_go_to_the_program() {
    let Some(place) = Place::new() else { return };
    let plan = place.plan(everything());
    let begun = place.file("begun");
    let script = format!(
        "trap 'exit 9' INT; echo >{}; while :; do read x </dev/null; done",
        begun.display()
    );
    let mut child = run(&plan, &["--stats", "json"], &["sh", "-c", &script])
        .process_group(0)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = Pid::from_raw(child.id() as i32);
    let ended =
        wait_for(|| child.try_wait().unwrap().map(Some).or_else(|| begun.exists().then_some(None)));
    if ended.is_some() {
        return eprintln!("skipped: nothing can be followed here");
    }
    // Its stop is its caller's to see, as a shell does, and its end is too.
    kill(pid, Signal::SIGSTOP).unwrap();
    let stopped = waitpid(pid, Some(WaitPidFlag::WUNTRACED)).unwrap();
    assert_eq!(stopped, WaitStatus::Stopped(pid, Signal::SIGSTOP));
    kill(pid, Signal::SIGCONT).unwrap();
    // As Ctrl-C at a terminal.
    killpg(pid, Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

/// The kernel refuses what a filter stops where nobody follows: nobody is left to meet that.
#[test]
fn without_its_follower_the_program_ends() {
    let Some(place) = Place::new() else { return };
    let plan = place.plan(everything());
    let script = "grep TracerPid /proc/$$/status; while :; do read x </dev/null; done";
    let mut command = run(&plan, &[], &["sh", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut told = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut told, &mut line).unwrap();
    let Some(follower) = line.split_whitespace().nth(1) else {
        return eprintln!(
            "skipped: {}",
            String::from_utf8_lossy(&child.wait_with_output().unwrap().stderr)
        );
    };
    kill(Pid::from_raw(follower.parse().unwrap()), Signal::SIGKILL).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
}

#[test]
fn what_the_switches_allow_beyond_the_plan_is_barred() {
    let Some(place) = Place::new() else { return };
    let off: Vec<_> =
        place.sizes.iter().map(|(size, _)| (size.clone(), "never".to_owned())).collect();
    let is_any_on = place.sizes.iter().any(|(_, switch)| switch != "never");
    let plan = place.write(&off, json!([]));
    let words = ["sh", "-c", "grep THP_enabled /proc/self/status"];
    let output = run(&plan, &[], &words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let expect = if is_any_on { "0" } else { "1" };
    assert!(said.trim().ends_with(expect) || said.is_empty(), "{said}");
}

#[test]
fn switches_that_the_plan_needs_are_named_with_the_lines_that_set_them() {
    let Some(place) = Place::new() else { return };
    let Some(at) = place.sizes.iter().position(|(_, switch)| switch == "never") else {
        return eprintln!("skipped: no size is off here");
    };
    let mut sizes = place.sizes.clone();
    sizes[at].1 = "always".to_owned();
    let plan = place.write(&sizes, json!([]));
    let output = run(&plan, &[], &["true"]).output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{why}");
    for part in ["needs a switch", "echo always >/sys/kernel/mm", "--switches"] {
        assert!(why.contains(part), "{part}: {why}");
    }
}

/// A program of root's that gives its rights away does not do so when somebody else follows it.
#[test]
fn a_program_that_would_run_as_another_is_told() {
    const NOBODY: u32 = 65534;
    let Some(place) = Place::new() else { return };
    let plan = place.plan(everything());
    let (program, binary) = (place.file("privileged"), place.file("foliant"));
    fs::copy("/bin/true", &program).unwrap();
    let rights = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    fs::set_permissions(&program, rights(0o4755)).unwrap();
    fs::set_permissions(place.folder.path(), rights(0o755)).unwrap();
    fs::set_permissions(&plan, rights(0o644)).unwrap();
    // Where others can reach it.
    fs::copy(env!("CARGO_BIN_EXE_foliant"), &binary).unwrap();
    let mut command = Command::new(&binary);
    command.args(["run", "--stats", "json", "--plan"]).arg(&plan).arg("--").arg(&program);
    let output = match command.uid(NOBODY).gid(NOBODY).output() {
        Ok(output) if !is_skipped(&output) => output,
        Ok(_) => return,
        Err(why) => return eprintln!("skipped: nobody else can run the command here ({why})"),
    };
    assert!(output.status.success(), "{output:?}");
    let said: Value = serde_json::from_slice(&output.stderr).unwrap();
    let remark = said["remarks"][0].as_str().unwrap_or_default();
    assert!(remark.contains("privileged runs without the rights"), "{said}");
    assert_eq!(said["advice"].as_array().map(Vec::len), Some(2), "unprivileged: {said}");
}

/// Four threads map at once, and no loader and no library is there: each mapping is advised before
/// its thread goes on. What the plan has besides and the program does not is said.
#[test]
fn a_program_that_is_linked_statically_is_advised_like_others() {
    let Some(place) = Place::new() else { return };
    let program = place.file("statically");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/statically.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-static", "-pthread", "-o"]).arg(&program).arg(source);
    match compiler.stderr(Stdio::null()).status() {
        Ok(status) if status.success() => {}
        _ => return eprintln!("skipped: no program can be linked statically here"),
    }
    let no_such = json!({
        "target": "made", "wish": "nohugepage", "site": "statically+0x10", "most_bytes": 4 << 20
    });
    let [heap, stack, made] = [0, 1, 2].map(|at| everything()[at].clone());
    let plan = place.plan(json!([heap, stack, no_such, made]));
    let words = [program.to_str().unwrap()];
    assert_eq!(Command::new(&program).status().unwrap().code(), Some(1), "nobody advises it");
    let output = run(&plan, &["--stats", "json"], &words).output().unwrap();
    if is_skipped(&output) {
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert!(said["advice"][2]["calls"].as_u64() >= Some(4 * 20), "{said}");
    assert_eq!(said["unmet"], json!(["statically+0x10, up to 4m"]), "{said}");
}

/// A script's interpreter, and all that the script starts.
#[test]
fn a_script_is_advised_as_what_interprets_it() {
    let Some(place) = Place::new() else { return };
    let script = place.file("script");
    fs::write(&script, "#!/bin/sh\ngrep -c '^VmFlags.* hg' /proc/self/smaps\nexec true\n").unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let plan = place.plan(json!([{ "target": "stack", "wish": "hugepage" }]));
    let output = run(&plan, &["--stats", "json"], &[script.to_str().unwrap()]).output().unwrap();
    if is_skipped(&output) {
        return;
    }
    assert_eq!(output.stdout, b"1\n", "grep's stack: {output:?}");
    let said: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(said["advice"][0]["calls"], 3, "of sh, grep and true: {said}");
    assert_eq!(said["unmet"], json!([]), "{said}");
}
