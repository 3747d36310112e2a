//! The header that is committed is the one that the sources make.

use std::fs;
use std::path::Path;

#[test]
fn the_header_is_what_the_sources_say() {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(crate_dir.join("cbindgen.toml")).unwrap();
    let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join("foliant.h");
    cbindgen::generate_with_config(crate_dir, config).unwrap().write_to_file(&made);
    let header = crate_dir.join("include/foliant.h");
    let committed = fs::read_to_string(&header).unwrap_or_default();
    let is_same = committed == fs::read_to_string(&made).unwrap();
    assert!(is_same, "the header is an older one: cp {} {}", made.display(), header.display());
}
