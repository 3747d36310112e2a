//! What outsiders proved about the command: recordings that cost without bound, and escapes in names.

use foliant_trace::*;
use foliant_units::{Bytes, FRAME_BYTES, Va, VaRange};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foliant"));
    for name in ["SUDO_UID", "SUDO_GID", "SUDO_USER"] {
        command.env_remove(name);
    }
    command
}

fn foliant(args: &[&str]) -> Output {
    command().args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
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
