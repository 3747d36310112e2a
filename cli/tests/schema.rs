//! Every document that `--json` prints is what its schema says, and nothing more.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use foliant_trace::*;
use foliant_units::{Bytes, Va, VaRange};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

const FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake_qemu.sh");

/// Documents that take root, a guest, or half a minute; tests beside their types make some up.
const ELSEWHERE: [&str; 10] = [
    "record",
    "check",
    "check-plan",
    "check-hugetlb",
    "run",
    "boot-stats",
    "compare",
    "compare-published",
    "lab",
    "plan",
];

/// What the command prints, in a guest whose kernel prints `report` where it boots one.
fn printed(line: &str, report: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foliant"));
    command.env("XDG_DATA_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/schema"));
    command.env("FOLIANT_QEMU", FAKE).env("FAKE_QEMU", format!("echo '{report}'; exit 33"));
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let output = command.args(line.split(' ')).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Lets objects have the fields of the schema and no others.
fn close(schema: &mut Value) {
    match schema {
        Value::Array(all) => all.iter_mut().for_each(close),
        Value::Object(fields) => {
            fields.values_mut().for_each(close);
            if fields.contains_key("properties") {
                fields.insert("additionalProperties".to_owned(), false.into());
            }
        }
        _ => {}
    }
}

/// The documents of which schemas were asked for, by name.
#[derive(Default)]
struct Seen(BTreeMap<String, jsonschema::Validator>);

impl Seen {
    fn holds(&mut self, text: &str) -> Value {
        let document: Value = serde_json::from_str(text).unwrap();
        let signature = document["schema"].as_str().expect("a document says what it is");
        let name = signature.split(' ').nth(1).unwrap().to_owned();
        let validator = self.0.entry(name.clone()).or_insert_with(|| {
            let mut schema: Value =
                serde_json::from_str(&printed(&format!("schema {name}"), "")).unwrap();
            assert_eq!(schema["title"], signature);
            close(&mut schema);
            jsonschema::draft202012::new(&schema).unwrap()
        });
        let faults = |document: &Value| -> Vec<String> {
            validator.iter_errors(document).map(|e| e.to_string()).collect()
        };
        assert_eq!(faults(&document), [""; 0], "{document:#}");
        for change in [("more", Value::from(1)), ("schema", Value::from("foliant other 1"))] {
            let mut changed = document.clone();
            changed[change.0] = change.1;
            assert_eq!(faults(&changed).len(), 1, "{} is no fault of {name}", change.0);
        }
        document
    }
}

/// A recording with an event of every kind.
fn recording(path: &Path) {
    let header = Header {
        command: vec!["x".into()],
        kernel: "x".into(),
        processor: "x".into(),
        cpus: 1,
        page_bytes: 4096,
        unix_seconds: 0,
        access_source: AccessSource::Decoded,
        kernel_faults: true,
        recorder: "x".into(),
    };
    let range = |start, bytes| VaRange::sized(Va::new(start), Bytes::new(bytes)).unwrap();
    let whole = range(1 << 40, 8192);
    let flags = MapFlags::STACK.with(MapFlags::NORESERVE);
    let area = Area { range: whole, prot: Prot::RW, kind: AreaKind::Anonymous, flags };
    let fault = Fault {
        va: Va::new((1 << 40) + 5),
        access: Access::Write,
        origin: Origin::User,
        source: Source::Hardware,
        found: Found::Absent,
        standing: Standing::Regular,
    };
    let exec = Exec {
        program: "x".into(),
        brk: Va::new(0x10_0000),
        areas: vec![Area { range: range(1 << 30, 4096), ..area }],
        present: vec![range(1 << 30, 4096)],
    };
    let events = [
        EventKind::Exec(exec),
        EventKind::Map(area),
        EventKind::Fault(fault),
        EventKind::Protect { range: whole, prot: Prot::READ },
        EventKind::Advise { range: whole, advice: 4 },
        EventKind::Populate { range: whole, access: Access::Read },
        EventKind::Brk { old: Va::new(0x10_0000), new: Va::new(0x10_1000) },
        EventKind::Remap { old: whole, new: range(1 << 41, 8192), keep_old: false },
        EventKind::Unmap { range: range(1 << 41, 8192) },
        EventKind::ThpPrctl { args: [1, 0] },
        EventKind::Name { range: whole, name: Name::File("a.so".into()) },
        EventKind::Name {
            range: whole,
            name: Name::Made {
                site: Some(Site { object: "a.so".into(), offset: 1 }),
                through: Some("libc.so.6".into()),
            },
        },
        EventKind::Name { range: whole, name: Name::Stack(ThreadId(0)) },
        EventKind::Object {
            object: ObjectId(0),
            backing: Backing::File,
            room: 2,
            present: vec![range(0, 4096)],
        },
        EventKind::Attach { range: whole, object: ObjectId(0), first: 0 },
        EventKind::Punch { object: ObjectId(0), pages: range(0, 4096) },
        EventKind::Share { thread: ThreadId(1), process: false },
        EventKind::Fork { child: SpaceId(1), thread: ThreadId(2) },
        EventKind::Exit { last: false },
    ];
    let mut writer = Writer::new(std::fs::File::create(path).unwrap(), &header).unwrap();
    for (at, kind) in events.into_iter().enumerate() {
        let (thread, space) = (ThreadId(0), SpaceId(0));
        writer.event(&Event { time_ns: at as u64, thread, space, kind }).unwrap();
    }
    writer.finish(Ending::Signaled(9), 0, vec!["a remark".into()]).unwrap();
}

#[test]
fn what_is_printed_is_what_the_schema_says() {
    let mut seen = Seen::default();
    let report = kernel_line("flush pages=16");
    for line in [
        "replay traces/sort.trace traces/python.trace --json",
        "replay traces/python.trace --fragment 80 --policy up-to-2m --json",
        "trace traces/sort.trace --json",
        "advise traces/sort.trace --json",
        "calibrate --json",
        "lab flush pages=16 --json",
        "lab faults bytes=2m --json --model here",
        "lab compare rows=calls --json",
        "lab hugetlb pages=4 --json",
        "lab hugetlb pages=4 --model guest-252 --json",
        "lab thpscale workers=1 turns=8 --json",
        "lab vmalloc table-size=4m device=2m sizes=3 --json",
        "lab zero --total 16m --rounds 1 --json",
        "lab deadlines --json",
        "lab --truth flush pages=16 --kernel Cargo.toml --json",
        "boot --lab flush pages=16 --kernel Cargo.toml --json",
        "sim --seed 7 --cpus 2 --steps 60 --json",
        "sim --seed 10 --plant skip-remote-flush --cpus 4 --steps 200 --json",
    ] {
        seen.holds(&printed(line, &report));
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("every.trace");
    recording(&path);
    let dump = printed(&format!("trace --dump --json {}", path.display()), "");
    let kinds: BTreeSet<String> =
        dump.lines().map(|line| seen.holds(line)["event"]["kind"].to_string()).collect();
    assert_eq!(kinds.len(), 17, "{kinds:?}");
    let told = seen.holds(&printed(&format!("trace --json {}", path.display()), ""));
    assert_eq!((&told["exit_code"], &told["signal"]), (&Value::Null, &9.into()));
    let list = printed("schema", "");
    let names = list.lines().skip(1).map(|line| line.split_whitespace().next().unwrap());
    let unseen: Vec<&str> = names.filter(|name| !seen.0.contains_key(*name)).collect();
    assert_eq!(unseen, ELSEWHERE);
}

/// What a kernel writes of this scenario: here the simulator's counts, as the lab writes them.
fn kernel_line(words: &str) -> String {
    let text = printed(&format!("lab {words} --json"), "");
    let mut report: Value = serde_json::from_str(&text).unwrap();
    report.as_object_mut().unwrap().remove("schema");
    report["machine"] = "kernel".into();
    report.to_string()
}
