//! The recordings under `traces/` are whole, small, and replay exactly.

use foliant_trace::{AccessSource, Budget, Trace, VERSION, naive_replay};
use std::path::{Path, PathBuf};

fn check(name: &str) {
    checked(name, 20_000, 0);
}

/// A file with more anonymous faults than this, and so many in shared memory.
fn checked(name: &str, anonymous: u64, shared: u64) {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces").join(name);
    let bytes = std::fs::metadata(&path).expect("the file is there").len();
    assert!(bytes < 2 << 20, "{name} has {bytes} bytes");
    let trace = Trace::open(&path, &Budget::default())
        .unwrap_or_else(|e| panic!("{name}, version {VERSION}: {e}"));
    assert!(trace.trailer.is_complete(), "{name}: {:?}", trace.trailer);
    assert_eq!(trace.header.access_source, AccessSource::Tracepoint, "{name}");
    let report = naive_replay(&trace.events, &Budget::default()).unwrap();
    assert!(report.recorded_anonymous_faults > anonymous, "{name}: {report:?}");
    assert_eq!(report.recorded_shared_faults, shared, "{name}: {report:?}");
    let replayed = report.recorded_anonymous_faults + shared;
    assert_eq!(report.predicted, replayed, "{name}: {report:?}");
    assert_eq!((report.mismatched, report.brought_unseen), (0, 0), "{name}: {report:?}");
}

#[test]
fn the_compiler() {
    check("cc.trace");
}

#[test]
fn git() {
    check("git.trace");
}

#[test]
fn python() {
    check("python.trace");
}

#[test]
fn sort() {
    check("sort.trace");
}

#[test]
fn sqlite() {
    check("sqlite.trace");
}

#[test]
fn redis() {
    check("redis.trace");
}

#[test]
fn java() {
    check("java.trace");
}

#[test]
fn pool() {
    check("pool.trace");
}

#[test]
fn hash() {
    check("hash.trace");
}

#[test]
fn postgres() {
    checked("postgres.trace", 3_000, 8_243);
}
