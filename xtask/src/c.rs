//! The interface for C: the static library, linked with what it may ask for and nothing else, and
//! the example, compiled, run, and run under valgrind.

use crate::run::{cargo, root};
use std::path::Path;
use std::process::{Command, Stdio};

/// Builds the library and shows that a program in C can use it.
pub(crate) fn check() -> Result<(), String> {
    let target = root().join("target");
    let target = target.to_str().ok_or("the path of the workspace is not UTF-8")?;
    let library = "rustc --package foliant-c --profile c --features panic-handler \
        --crate-type staticlib --quiet --target-dir";
    let library: Vec<&str> = library.split(' ').chain([target]).collect();
    cargo("library for C", &library, &[])?;
    if !is_there("cc") {
        println!(
            "skipped: the example in C, because cc is not installed; on Debian or Ubuntu: \
             apt-get install --no-install-recommends gcc libc6-dev"
        );
        return Ok(());
    }
    let archive = format!("{target}/c/libfoliant_c.a");
    let strict = "-std=c11 -O1 -g -Wall -Wextra -Wpedantic -Werror -Icrates/c/include";
    let strict: Vec<&str> = strict.split(' ').collect();
    let (bare, program) = (format!("{target}/c/bare"), format!("{target}/c/kernel"));
    // The library is one object: with one of its functions all that it asks for is linked.
    let alone = ["-ffreestanding", "-nostdlib", "-Wl,-e,start", "crates/c/examples/bare.c"];
    command("cc", &[&strict[..], &alone, &[&archive, "-o", &bare]].concat())?;
    let example = ["crates/c/examples/kernel.c", &archive, "-o", &program];
    command("cc", &[&strict[..], &example].concat())?;
    if is_there("c++") {
        let header = ["-x", "c++", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"];
        command("c++", &[&header[..], &["crates/c/include/foliant.h"]].concat())?;
    }
    command(&program, &[])?;
    if is_there("valgrind") {
        let all = ["-q", "--leak-check=full", "--errors-for-leak-kinds=all", "--error-exitcode=9"];
        return command("valgrind", &[&all[..], &[&program]].concat());
    }
    println!(
        "skipped: the example under valgrind, which is not installed; on Debian or Ubuntu: \
         apt-get install --no-install-recommends valgrind"
    );
    Ok(())
}

fn is_there(program: &str) -> bool {
    let asked = Command::new(program).arg("--version").stdout(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

/// Runs a program in the workspace, under a heading.
fn command(program: &str, args: &[&str]) -> Result<(), String> {
    let name = Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or(program);
    println!("== {name}: {program} {}", args.join(" "));
    let ran = Command::new(program).args(args).current_dir(root()).status();
    let status = ran.map_err(|error| format!("{program} does not start: {error}"))?;
    if status.success() {
        return Ok(());
    }
    Err(format!("{name} failed; again with: {program} {}", args.join(" ")))
}
