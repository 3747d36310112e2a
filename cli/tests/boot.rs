//! `foliant boot` and `foliant lab --truth` against a stand-in for QEMU: a script that does what
//! each test says.
#![cfg(unix)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

const FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake_qemu.sh");
/// Any file will do for a kernel that is not booted.
const KERNEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");

/// The command, with a QEMU that does what `script` says.
fn command(script: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foliant"));
    command.args(args).args(["--kernel", KERNEL]);
    command.env("FOLIANT_QEMU", FAKE).env("FAKE_QEMU", script);
    command
}

fn run(script: &str, args: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command(script, args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn the_exit_code_is_the_kernels() {
    for (status, code, words) in [
        ("exit 33", 0, ""),
        ("exit 35", 1, ""),
        ("exit 39", 3, "none that the kernel can run on"),
        ("exit 235", 101, ""),
        ("exit 0", 70, "triple fault"),
        ("exit 1", 70, "status 1"),
        ("kill -9 $$", 70, "killed"),
    ] {
        let (got, out, said) = run(&format!("echo hello; {status}"), &["boot"]);
        assert_eq!((got, out.as_str()), (Some(code), "hello\n"), "{status}: {said}");
        assert!(said.contains(words), "{status}: {said}");
        assert_eq!(said.is_empty(), words.is_empty(), "{status}: {said}");
    }
}

#[test]
fn qemu_is_told_what_was_asked_for() {
    let print = "for word; do echo \"$word\"; done; exit 33";
    let words = |args: &[&str]| {
        let (code, out, said) = run(print, args);
        assert_eq!(code, Some(0), "{said}");
        out.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let after = |words: &[String], name: &str| {
        let at = words.iter().position(|word| word == name).unwrap();
        words[at + 1].clone()
    };
    let tests = words(&["boot"]);
    for (name, value) in [
        ("-M", "q35,memory-backend=ram"),
        ("-object", "memory-backend-ram,id=ram,size=512M,reserve=off"),
        ("-smp", "4"),
        ("-m", "512M"),
        ("-kernel", KERNEL),
        ("-initrd", KERNEL),
        ("-append", "mode=tests"),
        ("-serial", "stdio"),
        ("-device", "isa-debug-exit,iobase=0xf4,iosize=4"),
    ] {
        assert_eq!(after(&tests, name), value);
    }
    assert!(tests.contains(&"-no-reboot".to_owned()));
    assert!(!tests.contains(&"-icount".to_owned()));
    let multi = words(&["boot", "--cpus", "64", "--threads", "multi"]);
    assert_eq!(after(&multi, "-accel"), "tcg,thread=multi");
    let laws = ["boot", "--laws", "--icount", "--cpus", "16", "--memory", "1g", "--machine", "pc"];
    let laws = words(&[&laws[..], &["--xapic"]].concat());
    for (name, value) in [
        ("-M", "pc,memory-backend=ram"),
        ("-smp", "16"),
        ("-m", "1024M"),
        ("-icount", "shift=0,sleep=off"),
        ("-accel", "tcg,thread=single"),
        ("-append", "mode=laws xapic"),
    ] {
        assert_eq!(after(&laws, name), value);
    }
}

/// Ctrl-C is a byte to the guest, and only Ctrl-] is not.
#[test]
fn a_shell_gets_every_key() {
    let (code, out, said) = run("echo \"$*\"; exit 33", &["boot", "--shell"]);
    assert_eq!(code, Some(0), "{said}");
    let line = "-chardev stdio,id=line,mux=on,signal=off -serial chardev:line -echr 0x1d";
    assert!(out.contains(line) && !out.contains("-serial stdio"), "{out}");
}

#[test]
fn a_machine_that_cannot_be_is_refused_before_it_starts() {
    let refused = |args: &[&str], parts: &[&str]| {
        let (code, out, said) = run("echo started; exit 33", args);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{args:?}: {said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{args:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
    };
    for value in ["0", "256", "1025", "99999999999999999999", "-1", "two", "1.5", ""] {
        refused(&["boot", "--cpus", value], &[value, "--cpus", "1 to 255"]);
    }
    let sizes =
        ["0", "7m", "8191k", "8193k", "100000000", "513g", "1t", "16777216t", "-1", "much", ""];
    for value in sizes {
        refused(&["boot", "--memory", value], &[value, "--memory", "8m to 512g, in whole MiB"]);
    }
    // The simulator's machine may be larger; the kernel's beside it may not.
    let truth = ["lab", "--truth", "flush"];
    refused(&[&truth[..], &["--cpus", "256"]].concat(), &["--cpus 256", "1 to 255"]);
    refused(&[&truth[..], &["--memory", "513g"]].concat(), &["--memory 513g", "8m to 512g"]);
    for (option, value, word) in [
        ("--cpus", "1", "-smp 1 "),
        ("--cpus", "255", "-smp 255 "),
        ("--memory", "8m", "-m 8M "),
        ("--memory", "9m", "-m 9M "),
        ("--memory", "104857600", "-m 100M "),
        ("--memory", "512g", "-m 524288M "),
    ] {
        let (code, out, said) = run("echo \"$*\"; exit 33", &["boot", option, value]);
        assert_eq!(code, Some(0), "{option} {value}: {said}");
        assert!(out.contains(word), "{option} {value}: {out}");
    }
}

#[test]
fn lines_are_shown_as_they_come() {
    let folder = tempfile::tempdir().unwrap();
    let gate = folder.path().join("gate");
    let script = format!(
        "echo first; until [ -e {} ]; do sleep 0.02; done; printf last; exit 33",
        gate.display()
    );
    let mut child = command(&script, &["boot"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "first"); // while the guest waits for the gate
    std::fs::write(&gate, "").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "last");
    assert!(child.wait().unwrap().success());
}

/// Whether the process that a script named in a file still runs.
fn runs(file: &Path) -> bool {
    let pid = std::fs::read_to_string(file).unwrap();
    Path::new("/proc").join(pid.trim()).exists()
}

#[test]
fn a_guest_that_hangs_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let script = format!("echo $$ > {}; echo up; exec sleep 600", file.display());
    let (code, out, said) = run(&script, &["boot", "--timeout", "1"]);
    assert_eq!((code, out.as_str()), (Some(124), "up\n"), "{said}");
    assert!(said.contains("within 1 s") && said.contains("--timeout"), "{said}");
    assert!(!runs(&file), "it was left behind");
}

#[test]
fn an_interrupt_ends_the_guest_too() {
    for mode in [&["boot"][..], &["boot", "--shell"]] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let script = format!("echo $$ > {}; echo up; exec sleep 600", file.display());
        let mut child = command(&script, mode).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "up");
        let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        assert_eq!(child.wait().unwrap().code(), Some(130), "{mode:?}");
        assert!(!runs(&file), "{mode:?}: it was left behind");
    }
}

#[test]
fn only_a_shell_reads_what_is_typed() {
    let script = "read word; echo \"got $word\"; exit 33";
    for (args, expect) in [(&["boot", "--shell"][..], "got hello\n"), (&["boot"], "got \n")] {
        let mut child =
            command(script, args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"hello\n").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), expect);
    }
}

#[test]
fn without_qemu_it_says_how_to_get_it() {
    let foliant = || Command::new(env!("CARGO_BIN_EXE_foliant"));
    for args in [&["boot"][..], &["lab", "--truth"]] {
        let output = foliant().args(args).env("PATH", "/nowhere").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("apt-get install --no-install-recommends qemu-system-x86 seabios"));
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let output = foliant().arg("boot").env("FOLIANT_QEMU", "/no/qemu").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/no/qemu"));
}

/// What the simulator reports, as if the kernel had.
fn kernel_line() -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foliant"));
    let output = command.args(["lab", "flush", "pages=16", "--json"]).output().unwrap();
    assert!(output.status.success());
    let mut report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    report.as_object_mut().unwrap().remove("schema");
    report["machine"] = "kernel".into();
    report.to_string()
}

#[test]
fn a_report_is_a_table_or_a_document() {
    let line = kernel_line();
    let script = format!("echo booting; echo '{line}'; exit 33");
    let lab = ["boot", "--lab", "flush", "pages=16"];
    let (code, out, said) = run(&script, &lab);
    assert_eq!((code, said.as_str()), (Some(0), "booting\n"), "{out}");
    assert!(out.starts_with("flush in the kernel, 4 CPUs: pages=16 grains=1,whole"), "{out}");
    assert!(out.contains("unmap, grain whole") && !out.contains('{'), "{out}");
    let (code, out, _) = run(&script, &[&lab[..], &["--json"]].concat());
    let mut document: serde_json::Value = serde_json::from_str(&out).unwrap();
    let schema = document.as_object_mut().unwrap().remove("schema");
    assert_eq!((code, schema), (Some(0), Some("foliant lab-scenario 1".into())));
    assert_eq!(document.to_string(), line);
    // A failure of the kernel counts, whatever it reported.
    let (code, ..) = run(&format!("echo '{line}'; exit 35"), &lab);
    assert_eq!(code, Some(1));
    for (script, words) in [("exit 33", "no report"), ("echo '{oops'; exit 33", "{oops")] {
        let (code, out, said) = run(script, &lab);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{said}");
        assert!(said.contains(words), "{said}");
    }
}

/// Two rows of what the kernel reports of `compare`.
const COMPARED: &str = r#"{"scenario":"compare","machine":"kernel","cpus":1,"parameters":{"pages":"512"},"page":"unit of the row","rows":[{"name":"unmap, 4k","counts":{"faults":0,"shootdowns":0,"entries_written":1536,"cleared_bytes":0,"copied_bytes":0},"pages":512,"ticks":{"clearing":0,"copying":0,"rest":261632}},{"name":"fork and end, empty","counts":{"faults":0,"shootdowns":0,"entries_written":600,"cleared_bytes":4096,"copied_bytes":0},"pages":1,"ticks":{"clearing":488,"copying":0,"rest":128673}}],"ratios":[]}"#;

#[test]
fn what_linux_takes_stands_beside_instructions() {
    let script = format!("echo '{COMPARED}'; exit 33");
    let lab = ["boot", "--lab", "compare", "--cpus", "1", "pages=512"];
    let counted = [&lab[..], &["--icount"]].concat();
    let (code, out, said) = run(&script, &counted);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    assert!(out.contains("x 6.12") && out.contains("0.50") && out.contains("Not level"), "{out}");
    let (code, out, said) = run(&script, &[&counted[..], &["--json"]].concat());
    assert_eq!(code, Some(0), "{said}");
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    let [unmap, fork] = report["rows"].as_array().unwrap().as_slice() else { panic!("{out}") };
    assert_eq!((&unmap["name"], &unmap["units"]), (&"unmap, 4k".into(), &512.into()));
    assert_eq!((&unmap["instructions"], &unmap["linux_6_12"]), (&511.0.into(), &1021.8.into()));
    let ratio = unmap["ratio"].as_f64().unwrap();
    assert!((ratio - 511.0 / 1021.8).abs() < 1e-9, "{ratio}");
    assert_eq!(
        (&unmap["counts"]["entries_written"], &unmap["part"]),
        (&1536.into(), &"rest".into())
    );
    assert_eq!((&fork["instructions"], &fork["linux_6_12"]), (&128_673.0.into(), &().into()));
    assert_eq!((&report["cpus"], &report["parameters"]["pages"]), (&1.into(), &"512".into()));
    // Cycles of an emulator are no instructions.
    let (_, out, _) = run(&script, &lab);
    assert!(out.contains("--icount") && !out.contains("6.12"), "{out}");
    let (_, out, _) = run(&script, &[&lab[..], &["--json"]].concat());
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(report["rows"][0]["instructions"].is_null() && report["rows"][0]["ratio"].is_null());
}

#[test]
fn the_truth_is_told_count_by_count() {
    let line = kernel_line();
    let truth = ["lab", "--truth", "flush", "pages=16"];
    let (code, out, said) = run(&format!("echo '{line}'; exit 33"), &truth);
    assert_eq!(code, Some(0), "{said}");
    let (head, rows) = out.split_once('\n').unwrap();
    assert!(head.contains("simulator") && head.contains("kernel"), "{head}");
    assert_eq!(rows.lines().count(), 64, "8 rows of 8 counts: {rows}");
    assert!(rows.lines().all(|row| row.ends_with("equal")), "{rows}");
    let lie = line.replacen(r#""shootdowns":16"#, r#""shootdowns":15"#, 1);
    let (code, out, said) = run(&format!("echo '{lie}'; exit 33"), &truth);
    assert_eq!(code, Some(1));
    assert_eq!(out.lines().filter(|row| row.ends_with("DIFFERENT")).count(), 1, "{out}");
    assert!(said.contains("1 of 64 counts"), "{said}");
    // A kernel that fails is no truth.
    let (code, ..) = run(&format!("echo '{line}'; exit 235"), &truth);
    assert_eq!(code, Some(101));
}
