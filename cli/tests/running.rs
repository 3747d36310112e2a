//! Recording programs that run already: all of their faults are recorded, and they go on as before.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/daemon.c");

fn foliant(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foliant"));
    for name in ["SUDO_UID", "SUDO_GID", "SUDO_USER"] {
        command.env_remove(name);
    }
    command.args(args);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A service that runs until this is dropped.
struct Daemon {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Daemon {
    fn compiled(folder: &Path) -> PathBuf {
        let program = folder.join("daemon");
        let mut cc = Command::new("cc");
        let cc = cc.args(["-O1", "-pthread", "-o"]).arg(&program).arg(SOURCE).status();
        assert!(cc.unwrap().success());
        program
    }

    fn start(folder: &Path, words: &[&str]) -> Daemon {
        let mut command = Command::new(Daemon::compiled(folder));
        let mut child = command.args(words).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut daemon = Daemon { child, said };
        assert_eq!(daemon.line(), "ready");
        daemon
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// How many rounds it has made, and whether it has large pages switched off.
    fn asked(&mut self) -> (u64, String) {
        let kill = Command::new("kill").args(["-USR1", &self.pid()]).status().unwrap();
        assert!(kill.success());
        loop {
            let line = self.line();
            if let Some((rounds, off)) = line.split_once(' ') {
                return (rounds.parse().unwrap(), off.to_owned());
            }
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a recording says of itself; why there is nothing to say, where nothing can be recorded
/// here.
fn told(output: &Output) -> Result<Value, String> {
    let why = text(&output.stderr);
    if ["only root sees", "another user's", "the system forbids"].iter().any(|no| why.contains(no))
    {
        return Err(why);
    }
    assert!(output.status.success(), "{why}");
    Ok(serde_json::from_slice(&output.stdout).unwrap())
}

/// Recorders beside each other keep each other from the CPU: what they note comes late then, and
/// without its mapping.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a recorder to its end, and tells its highest resident memory in KiB.
fn watched(mut command: Command) -> (Output, u64) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut most = 0;
    loop {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let now = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        most = most.max(now.unwrap_or(0));
        if let Some(status) = child.try_wait().unwrap() {
            let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
            child.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
            child.stderr.take().unwrap().read_to_end(&mut stderr).unwrap();
            return (Output { status, stdout, stderr }, most);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_service_is_recorded_and_goes_on() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("x.trace");
    for (words, processes) in [(&["20000", "3"][..], 1), (&["20000", "2", "fork"], 1)] {
        let mut daemon = Daemon::start(folder.path(), words);
        let pid = daemon.pid();
        let args = ["record", "-q", "--json", "--for", "3s", "--pid", &pid, "-o"];
        let mut command = foliant(&args);
        command.arg(&trace);
        let before = daemon.asked();
        let (output, most) = watched(command);
        let value = match told(&output) {
            Ok(value) => value,
            Err(why) => return eprintln!("skipped: {why}"),
        };
        let after = daemon.asked();
        assert_eq!(value["processes"], processes, "{value}");
        assert_eq!(
            (&value["lost"], &value["mismatched"], &value["strays"]),
            (&0.into(), &0.into(), &0.into()),
            "{value}"
        );
        assert!(value["remarks"].as_array().unwrap().is_empty(), "{value}");
        // A round is 64 faults. Those before and after the recording are not in it.
        let faults = value["faults"].as_u64().unwrap();
        let rounds = after.0 - before.0;
        assert!(faults > 64 * rounds / 3 && faults <= 64 * (rounds + 4), "{faults} {rounds}");
        assert!(most < 64 << 10, "{most} KiB");
        assert_eq!(after.1, before.1, "large pages are as they were");
        std::thread::sleep(Duration::from_millis(300));
        assert!(daemon.asked().0 > after.0, "it goes on");
        let replayed = foliant(&["trace", "--json"]).arg(&trace).output().unwrap();
        let described: Value = serde_json::from_slice(&replayed.stdout).unwrap();
        assert_eq!(described["unexplained"], 0, "{described}");
        assert_eq!(described["faults"], faults);
    }
}

#[test]
fn a_signal_ends_a_recording_whole() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("x.trace");
    let mut daemon = Daemon::start(folder.path(), &["2000", "1"]);
    let (pid, before) = (daemon.pid(), daemon.asked());
    let mut command = foliant(&["record", "--json", "--pid", &pid, "-o"]);
    let recorder = command.arg(&trace).stdout(Stdio::piped()).stderr(Stdio::piped());
    let recorder = recorder.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    let _ = Command::new("kill").args(["-INT", &recorder.id().to_string()]).status();
    let output = recorder.wait_with_output().unwrap();
    match told(&output) {
        Ok(value) => assert!(value["faults"].as_u64().unwrap() > 0, "{value}"),
        Err(why) => return eprintln!("skipped: {why}"),
    }
    assert!(trace.exists());
    let after = daemon.asked();
    assert!(after.0 > before.0);
    assert_eq!(after.1, before.1);
}

#[test]
fn one_program_of_a_tree_is_recorded_alone() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("x.trace");
    let script = "true; cat /dev/null; sh -c 'cat /dev/null; true' & cat /dev/null; wait";
    let mut command = foliant(&["record", "-q", "--only", "cat", "-o"]);
    let output = command.arg(&trace).args(["--", "sh", "-c", script]).output().unwrap();
    if text(&output.stderr).contains("the system forbids") {
        return eprintln!("skipped: {}", text(&output.stderr));
    }
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output = foliant(&["trace", "--json"]).arg(&trace).output().unwrap();
    let described: Value = serde_json::from_slice(&output.stdout).unwrap();
    let programs = described["programs"].as_array().unwrap();
    assert_eq!(programs.len(), 3, "{described}");
    assert!(programs.iter().all(|name| name.as_str().unwrap().ends_with("/cat")), "{described}");
    assert_eq!((&described["lost"], &described["unexplained"]), (&0.into(), &0.into()));
    let mut command = foliant(&["record", "--only", "nobody", "-o"]);
    let path = folder.path().join("none.trace");
    let output = command.arg(&path).args(["--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("nobody"), "{}", text(&output.stderr));
    assert!(!path.exists());
}

#[test]
fn a_started_program_is_asked_to_end_when_its_time_is_up() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("x.trace");
    let mut command = foliant(&["record", "-q", "--for", "500ms", "-o"]);
    let output = command.arg(&trace).args(["--", "sh", "-c", "sleep 100; sleep 100"]).output();
    let output = output.unwrap();
    if text(&output.stderr).contains("the system forbids") {
        return eprintln!("skipped: {}", text(&output.stderr));
    }
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(trace.exists());
}

#[test]
fn what_cannot_be_attached_to_is_named() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.trace");
    let check = |args: &[&str], words: &[&str]| {
        let output = foliant(&["record", "-o"]).arg(&path).args(args).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        for word in words {
            assert!(said.contains(word), "{args:?}: {word:?} is missing in {said:?}");
        }
        assert!(!path.exists(), "{args:?}");
    };
    check(&["--pid", "2147483646"], &["2147483646", "no such process"]);
    check(&["--pid", "0"], &["0", "ps -e"]);
    check(&["--cgroup", "/no/such"], &["/no/such", "/sys/fs/cgroup"]);
    check(&["--pid", "1", "--", "true"], &["--pid"]);
    check(&["--for", "30", "true"], &["30", "30s"]);
    check(&[], &["COMMAND"]);
    let mut recorder = foliant(&["record", "-q", "-o"]);
    let script = "echo $$; exec sleep 20";
    let recorder = recorder.arg(folder.path().join("other.trace")).args(["--", "sh", "-c", script]);
    let mut recorder = recorder.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut traced = String::new();
    BufReader::new(recorder.stdout.take().unwrap()).read_line(&mut traced).unwrap();
    if let Ok(pid) = traced.trim().parse::<u32>() {
        let output = foliant(&["record", "--pid", &pid.to_string(), "-o"]).arg(&path).output();
        let said = text(&output.unwrap().stderr);
        // Without root that is what is said first.
        assert!(said.contains("traces it already") || said.contains("only root sees"), "{said}");
    }
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    let kernel = std::fs::read_to_string("/proc/2/comm").unwrap_or_default();
    if kernel.trim() == "kthreadd" {
        check(&["--pid", "2"], &["process 2", "kernel"]);
    }
}
