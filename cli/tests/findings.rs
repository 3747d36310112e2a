//! What outsiders proved about the command: recordings that cost without bound, escapes in names,
//! settings that stayed changed, a lock that others decide about, and programs that ran as root.

use foliant_trace::*;
use foliant_units::{Bytes, FRAME_BYTES, Va, VaRange};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foliant"));
    for name in ["SUDO_UID", "SUDO_GID", "SUDO_USER"] {
        command.env_remove(name);
    }
    command.env("XDG_DATA_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/no-data"));
    command
}

fn foliant(args: &[&str]) -> Output {
    command().args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// A recording by this name with these events of thread 0 in space 0.
fn recording(path: &Path, name: &str, events: impl IntoIterator<Item = EventKind>) {
    let header = Header {
        command: vec![name.into(), name.into()],
        kernel: name.into(),
        processor: name.into(),
        cpus: 1,
        page_bytes: 4096,
        unix_seconds: 0,
        access_source: AccessSource::Decoded,
        kernel_faults: true,
        recorder: name.into(),
    };
    let mut writer = Writer::new(fs::File::create(path).unwrap(), &header).unwrap();
    let (areas, present) = (Vec::new(), Vec::new());
    let exec = Exec { program: name.into(), brk: Va::new(0x10_0000), areas, present };
    for (at, kind) in [EventKind::Exec(exec)].into_iter().chain(events).enumerate() {
        let (thread, space) = (ThreadId(0), SpaceId(0));
        writer.event(&Event { time_ns: at as u64, thread, space, kind }).unwrap();
    }
    writer.finish(Ending::Exited(0), 0, vec![name.into()]).unwrap();
}

fn range(start: u64, bytes: u64) -> VaRange {
    VaRange::sized(Va::new(start), Bytes::new(bytes)).unwrap()
}

fn map(start: u64, bytes: u64) -> EventKind {
    let (range, prot) = (range(start, bytes), Prot::RW);
    EventKind::Map(Area { range, prot, kind: AreaKind::Anonymous, flags: MapFlags::NONE })
}

/// Exit code 2, and on standard error one sentence with these words.
fn refused(args: &[&str], words: &[&str]) {
    let output = foliant(args);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
    for word in words {
        assert!(said.contains(word), "{args:?}: {word:?} is missing in {said:?}");
    }
}

#[test]
fn finding_x1_a_file_that_asks_for_too_much_is_refused_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let whole = path("whole.trace");
    let fill = |bytes| EventKind::Populate { range: range(0, bytes), access: Access::Write };
    recording(whole.as_ref(), "x", [map(0, 1 << 46), fill(1 << 46)]);
    for command in ["trace", "replay"] {
        refused(&[command, &whole], &["whole.trace", "pages", "budget of 1g", "--budget 4g"]);
    }
    let turns = path("turns.trace");
    let islands = (0..20_000).map(|n| map((1 << 40) + 2 * n * FRAME_BYTES, FRAME_BYTES));
    let rights = (0..2000).map(|n| EventKind::Protect {
        range: range(1 << 40, 1 << 30),
        prot: if n % 2 == 0 { Prot::READ } else { Prot::RW },
    });
    recording(turns.as_ref(), "x", islands.chain(rights));
    refused(
        &["trace", "--budget", "64m", &turns],
        &["turns.trace", "work", "64m", "--budget 256m"],
    );
    // What is refused is done where more is given.
    let more = path("more.trace");
    recording(more.as_ref(), "x", [map(0, 1 << 46), fill(4 << 30)]);
    refused(&["trace", "--budget", "64m", &more], &["pages", "--budget 256m"]);
    let output = foliant(&["trace", "--budget", "256m", &more]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    refused(&["trace", "--budget", "1k", &more], &["1k", "64m"]);
}

/// What a program accessed and nothing recorded made is said, not dropped.
#[test]
fn faults_in_memory_that_nothing_recorded_made_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stray.trace");
    let fault = |standing| {
        EventKind::Fault(Fault {
            va: Va::new(1 << 41),
            access: Access::Write,
            origin: Origin::User,
            source: Source::Hardware,
            found: Found::Absent,
            standing,
        })
    };
    let events = [map(1 << 40, 4096), fault(Standing::Unexplained), fault(Standing::Regular)];
    recording(&path, "x", events);
    let output = foliant(&["replay", "--policy", "4k", path.to_str().unwrap()]);
    let said = text(&output.stdout);
    assert!(said.contains("1 faults are in memory that the recording knows nothing of"), "{said}");
}

const EVIL: &str = "\u{1b}]0;mine\u{7}\u{1b}[2Jhi\nfoliant: all is well \u{9b}31m\u{202e}";

/// Whether a terminal only shows it: every character is visible, or the end of a line.
fn is_plain(text: &str) -> bool {
    let quotes = |c| matches!(c, '\\' | '"' | '\'' | '\n');
    text.chars().all(|c| quotes(c) || c.escape_debug().len() == 1)
}

#[test]
fn finding_x11_names_from_a_file_are_shown_and_not_obeyed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("evil\u{1b}[2J.trace");
    recording(&path, EVIL, [map(1 << 40, 4096), EventKind::Exit { last: true }]);
    let file = path.to_str().unwrap();
    let dumped: &[&str] = &["trace", "--dump", file];
    let told: &[&str] = &["trace", file];
    let rows: &[&str] = &["replay", "--policy", "4k", file];
    for args in [told, dumped, rows] {
        let output = foliant(args);
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        let (said, remarked) = (text(&output.stdout), text(&output.stderr));
        assert!(is_plain(&said) && is_plain(&remarked), "{args:?}: {said:?} {remarked:?}");
        assert!(said.contains("\\u{1b}[2J"), "{args:?}: {said}");
        assert!(!said.lines().any(|line| line.starts_with("foliant:")), "{args:?}: {said}");
        let json: Vec<&str> = [&args[..1], &["--json"], &args[1..]].concat();
        let said = text(&foliant(&json).stdout);
        assert!(is_plain(&said), "{json:?}: {said:?}");
        let value: Value =
            serde_json::from_str(said.lines().next().filter(|_| args == dumped).unwrap_or(&said))
                .unwrap();
        let command = if args == rows { &value["files"][0]["command"] } else { &value["command"] };
        assert!(args == dumped || command[0] == EVIL, "{value}");
    }
    let missing = path.with_file_name(EVIL.replace('\n', "\r\n"));
    for command in ["trace", "replay"] {
        refused(&[command, missing.to_str().unwrap()], &["there is no file", "\\u{1b}[2J"]);
        let said = text(&foliant(&[command, missing.to_str().unwrap()]).stderr);
        assert!(is_plain(&said), "{said:?}");
    }
}

const ROOT: &str = "/sys/kernel/mm/transparent_hugepage";
const PAUSE: &str = "khugepaged/scan_sleep_millisecs";

/// All settings that a check writes, or why there are none to look at.
fn settings() -> Result<Vec<(PathBuf, String)>, &'static str> {
    if !is_root() {
        return Err("only root may change settings");
    }
    let sizes = fs::read_dir(ROOT).map_err(|_| "this kernel has no switches for folio sizes")?;
    let files = sizes.flatten().map(|entry| entry.path().join("enabled"));
    let all = files.chain([Path::new(ROOT).join(PAUSE)]);
    let mut all: Vec<_> =
        all.filter_map(|p| Some((p.clone(), fs::read_to_string(p).ok()?))).collect();
    all.sort();
    match all.iter().any(|(path, _)| path.ends_with("hugepages-64kB/enabled")) {
        true => Ok(all),
        false => Err("this kernel has no switch for 64 KiB"),
    }
}

/// One check at a time: a second one is refused.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

const PLAIN: &[&str] = &["sleep", LONG];
const LONG: &str = "2.0";

/// A check that has written its settings and measures, or what it said instead.
fn measuring(program: &[&str]) -> Result<Child, String> {
    let args = ["check", "--runs", "1", "--policy", "only-64k", "--"];
    let mut wanted = command();
    let mut child = wanted
        .args(args)
        .args(program)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    loop {
        let pause = fs::read_to_string(Path::new(ROOT).join(PAUSE)).unwrap();
        if pause.trim() == u32::MAX.to_string() {
            return Ok(child);
        }
        if child.try_wait().unwrap().is_some() {
            return Err(text(&child.wait_with_output().unwrap().stderr));
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "the check has not begun to measure");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn send(signal: &str, child: &Child) {
    let sent = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn finding_x8_settings_are_put_back_after_every_signal() {
    let _alone = alone();
    let before = match settings() {
        Ok(before) => before,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    for (signal, code) in [("QUIT", 131), ("ALRM", 142), ("USR1", 138), ("TERM", 143)] {
        let mut child = match measuring(PLAIN) {
            Ok(child) => child,
            Err(why) => return eprintln!("skipped: {why}"),
        };
        send(signal, &child);
        assert_eq!(child.wait().unwrap().code(), Some(code), "{signal}");
        assert_eq!(settings().unwrap(), before, "{signal}");
    }
    let Ok(mut child) = measuring(PLAIN) else { return };
    wait_for(LONG);
    send("KILL", &child);
    child.wait().unwrap();
    assert_ne!(settings().unwrap(), before, "nobody catches this one");
    let output = foliant(&["check", "--runs", "1", "--policy", "4k", "--", "true"]);
    let said = text(&output.stderr);
    assert!(output.status.success() && said.contains("killed"), "{said}");
    assert_eq!(settings().unwrap(), before, "the next check puts back what the killed one left");
    assert_eq!(running(LONG), 0, "the program went with it");
}

/// Processes whose command line has this word.
fn running(word: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|one| fs::read(one.path().join("cmdline")).ok());
    lines.filter(|line| text(line).split('\0').any(|other| other == word)).count()
}

/// Waits until one of them runs.
fn wait_for(word: &str) {
    let begun = Instant::now();
    while running(word) == 0 {
        assert!(begun.elapsed() < Duration::from_secs(30), "{word} was not started");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A check that ends takes with it what it started: a program that does not want to end, and what
/// has left that program's session.
#[test]
fn a_check_that_is_interrupted_leaves_nothing_running() {
    let _alone = alone();
    let before = match settings() {
        Ok(before) => before,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let word = format!("left-of-{}", std::process::id());
    let script = format!("trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep 3' {word} & sleep 3");
    // The first time as it records, if that is forbidden here there is no second time.
    let mut child = match measuring(&["sh", "-c", &script]) {
        Ok(child) => child,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    wait_for(&word);
    send("TERM", &child);
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert_eq!(running(&word), 0);
    assert_eq!(settings().unwrap(), before);
}

/// The lock lay where everybody may write.
#[test]
fn finding_x9_nothing_in_a_folder_of_all_decides_about_a_check() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let lock = folder.path().join("foliant-check.lock");
    let elsewhere = folder.path().join("elsewhere");
    for link in [false, true] {
        if link {
            fs::remove_file(&lock).unwrap();
            std::os::unix::fs::symlink(&elsewhere, &lock).unwrap();
        } else {
            assert!(Command::new("mkfifo").arg(&lock).status().unwrap().success());
        }
        // A preparation that fails: the check ends after its lock was taken and before anything
        // runs.
        let mut wanted = command();
        wanted.args(["check", "--prepare", "false", "--", "true"]).env("TMPDIR", folder.path());
        let mut child = wanted.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if begun.elapsed() > Duration::from_secs(60) {
                child.kill().unwrap();
                panic!("a pipe of somebody else's is waited for");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(!elsewhere.exists(), "a file was made at the other end of a link");
    }
}

/// A user who is nobody, and a folder that they may write to.
const NOBODY: &str = "65534";

#[test]
fn finding_x10_behind_sudo_a_program_runs_as_who_called() {
    if !is_root() {
        return eprintln!("skipped: only root can become somebody else");
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let (trace, told) = (folder.path().join("new.trace"), folder.path().join("told"));
    let script = format!("(id -u; id -g; id -G; echo $HOME) > {}", told.display());
    let record = |uid: &str| {
        let mut wanted = command();
        wanted.env("SUDO_UID", uid).env("SUDO_GID", NOBODY);
        wanted.args(["record", "-o"]).arg(&trace).args(["--", "sh", "-c", &script]);
        wanted.output().unwrap()
    };
    let output = record(NOBODY);
    let said = text(&output.stderr);
    if said.contains("the system forbids") {
        return eprintln!("skipped: {said}");
    }
    assert!(output.status.success(), "{said}");
    let lines = fs::read_to_string(&told).unwrap();
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!((lines[0], lines[1]), (NOBODY, NOBODY), "{lines:?}");
    assert!(!lines[2].split(' ').any(|group| group == "0"), "no group of root's: {lines:?}");
    assert_ne!(lines[3], "/root");
    let uid = |path: &Path| fs::metadata(path).unwrap().uid().to_string();
    assert_eq!((uid(&told), uid(&trace)), (NOBODY.into(), NOBODY.into()), "so is the recording");
    // What is measured likewise.
    let _alone = alone();
    if settings().is_ok() {
        fs::remove_file(&told).unwrap();
        let mut wanted = command();
        wanted.env("SUDO_UID", NOBODY).env("SUDO_GID", NOBODY);
        let output =
            wanted.args(["check", "--runs", "1", "--policy", "4k", "--", "sh", "-c", &script]);
        let output = output.output().unwrap();
        if output.status.success() {
            assert_eq!(fs::read_to_string(&told).unwrap().lines().next(), Some(NOBODY));
        } else {
            eprintln!("skipped: {}", text(&output.stderr));
        }
    }
    let output = record("somebody");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("SUDO_UID") && said.contains("somebody"), "{said}");
    // Where root itself calls there is nobody else; that is said.
    let output = record("0");
    assert!(text(&output.stderr).contains("runs as root"), "{}", text(&output.stderr));
}
