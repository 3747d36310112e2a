//! `foliant run --switches`: the switches are the plan's while the program runs, and afterwards
//! what they were. Where they cannot be written the tests say so and pass.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;

const ROOT: &str = "/sys/kernel/mm/transparent_hugepage";
/// One at a time: a second one is refused.
static ALONE: Mutex<()> = Mutex::new(());

/// A plan that has one switch otherwise than this machine.
struct Place {
    folder: tempfile::TempDir,
    /// The switch, and what it says.
    switch: PathBuf,
    before: String,
    _alone: MutexGuard<'static, ()>,
}

fn chosen(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}

impl Place {
    fn new() -> Option<Place> {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let root = Path::new(ROOT);
        let of = |kb: u64| root.join(format!("hugepages-{kb}kB/enabled"));
        let (switch, global) = (of(64), chosen(&root.join("enabled")));
        let (Some(before), Some(global)) = (chosen(&switch), global) else {
            eprintln!("skipped: this kernel has no switches of folio sizes");
            return None;
        };
        if fs::write(&switch, &before).is_err() {
            eprintln!("skipped: the switches cannot be written");
            return None;
        }
        let other = if before == "madvise" { "always" } else { "madvise" };
        let size = |kb: u64| {
            let name = if kb < 1024 { format!("{kb}k") } else { format!("{}m", kb >> 10) };
            let position = if kb == 64 { other.to_owned() } else { chosen(&of(kb))? };
            Some(json!({ "size": name, "switch": position }))
        };
        let sizes: Vec<Value> =
            [16, 32, 64, 128, 256, 512, 1024, 2048].into_iter().filter_map(size).collect();
        let plan = json!({
            "schema": "foliant plan 1", "global": global, "sizes": sizes,
            "wishes": [{ "target": "heap", "wish": "hugepage" }]
        });
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("plan.json"), plan.to_string()).unwrap();
        Some(Place { folder, switch, before, _alone: alone })
    }

    fn run(&self, script: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_foliant"));
        for name in ["SUDO_UID", "SUDO_GID", "SUDO_USER"] {
            command.env_remove(name);
        }
        command.args(["run", "--switches", "--plan"]).arg(self.folder.path().join("plan.json"));
        command.args(["--", "sh", "-c", script]).current_dir(self.folder.path());
        command
    }

    /// Starts a script in a group of its own that makes the file `begun`, and waits for that.
    fn begun(&self, script: &str) -> (Child, Pid) {
        let child = self.run(script).process_group(0).stdin(Stdio::null()).spawn().unwrap();
        while !self.folder.path().join("begun").exists() {
            sleep(Duration::from_millis(5));
        }
        let pid = Pid::from_raw(child.id() as i32);
        (child, pid)
    }

    fn now(&self) -> String {
        chosen(&self.switch).unwrap()
    }
}

#[test]
fn switches_are_the_plans_while_the_program_runs() {
    let Some(place) = Place::new() else { return };
    let script = format!("cat {}; exit 7", place.switch.display());
    let output = place.run(&script).output().unwrap();
    let [said, why] = [output.stdout, output.stderr].map(|b| String::from_utf8(b).unwrap());
    assert_eq!(output.status.code(), Some(7), "{why}");
    let other = if place.before == "madvise" { "[always]" } else { "[madvise]" };
    assert!(said.contains(other), "{said}");
    assert_eq!(place.now(), place.before);
    assert_eq!(place.run("kill -TERM $$").status().unwrap().signal(), Some(15));
    assert_eq!(place.now(), place.before);
}

#[test]
fn a_terminals_signals_are_the_programs_and_others_are_sent_on() {
    let Some(place) = Place::new() else { return };
    let script = "trap 'exit 9' TERM; trap 'exit 8' INT; echo >begun; \
                  while :; do read x </dev/null; done";
    let (mut child, pid) = place.begun(script);
    assert_ne!(place.now(), place.before);
    // A stop of the program is one of the whole, and goes on as a whole.
    let children = format!("/proc/{pid}/task/{pid}/children");
    let program: i32 = fs::read_to_string(children).unwrap().trim().parse().unwrap();
    kill(Pid::from_raw(program), Signal::SIGSTOP).unwrap();
    let stopped = waitpid(pid, Some(WaitPidFlag::WUNTRACED)).unwrap();
    assert_eq!(stopped, WaitStatus::Stopped(pid, Signal::SIGSTOP));
    killpg(pid, Signal::SIGCONT).unwrap();
    kill(pid, Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(9), "sent on");
    assert_eq!(place.now(), place.before);
    fs::remove_file(place.folder.path().join("begun")).unwrap();
    let (mut child, pid) = place.begun(script);
    killpg(pid, Signal::SIGINT).unwrap(); // as a terminal does
    assert_eq!(child.wait().unwrap().code(), Some(8), "not ended by it");
    assert_eq!(place.now(), place.before);
}

#[test]
fn after_a_kill_the_next_one_puts_back() {
    let Some(place) = Place::new() else { return };
    let (mut child, pid) = place.begun("echo >begun; while :; do read x </dev/null; done");
    killpg(pid, Signal::SIGKILL).unwrap();
    child.wait().unwrap();
    assert_ne!(place.now(), place.before, "nobody has put it back yet");
    let output = place.run("true").output().unwrap();
    let why = String::from_utf8(output.stderr).unwrap();
    assert!(why.contains("was killed before it could put settings back"), "{why}");
    assert_eq!(place.now(), place.before);
}
