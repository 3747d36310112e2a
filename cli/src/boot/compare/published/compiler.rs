//! A compilation: the compiler that is installed here, and a file of C that this program carries.
//!
//! ```text
//!   kernel.c, foliant.h ─▶ gcc -E, here ─▶ kernel.i ─▶ gcc -O2 -S, in the guest ─▶ what is compared
//! ```
//!
//! What is compiled names no other file, so the guest needs none but the compiler's own.

use crate::failure::{Done, Failure, why};
use crate::shown;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const COMPILER: &str = "gcc";
/// The part of it that compiles.
const PASSES: &str = "cc1";
/// A kernel in C, with the header that it includes.
const FILES: [(&str, &str); 2] =
    [("kernel.c", include_str!("kernel.c")), ("foliant.h", include_str!("foliant.h"))];

/// What the guests run, and what they need for it.
pub(super) struct Work {
    pub(super) command: Vec<OsString>,
    pub(super) with: Vec<PathBuf>,
    /// Where the file lies.
    _folder: TempDir,
}

/// The work; or a sentence where there is no compiler.
pub(super) fn find() -> Done<Result<Work, String>> {
    let folder = TempDir::with_prefix("foliant-compile-").map_err(|e| lost(&e))?;
    for (name, text) in FILES {
        std::fs::write(folder.path().join(name), text).map_err(|e| lost(&e))?;
    }
    let run = |words: &[&str]| said(folder.path(), words);
    let source = FILES[0].0;
    let all = run(&["-print-prog-name=cc1"])
        .and_then(|passes| run(&["-E", source, "-o", "kernel.i"]).map(|_| passes));
    let passes = match all {
        Ok(passes) if Path::new(passes.trim()).is_file() => PathBuf::from(passes.trim()),
        Ok(_) => return Ok(Err(format!("{COMPILER} has no {PASSES} here; install gcc"))),
        Err(why) => return Ok(Err(why)),
    };
    let file = folder.path().join("kernel.i");
    let mut command: Vec<OsString> = [COMPILER, "-O2", "-S", "-o", "-"].map(Into::into).into();
    command.push(file.clone().into());
    Ok(Ok(Work { command, with: vec![passes, file], _folder: folder }))
}

/// What the compiler says, in a folder.
fn said(folder: &Path, words: &[&str]) -> Result<String, String> {
    let output = Command::new(COMPILER).current_dir(folder).args(words).output();
    let output = output.map_err(|e| format!("{COMPILER} does not start here ({})", why(&e)))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let first = shown::shown(errors.lines().next().unwrap_or_default());
        return Err(format!("{COMPILER} {} fails here: {first}", words.join(" ")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn lost(e: &std::io::Error) -> Failure {
    Failure::new(format_args!(
        "{} takes no file ({}), which is to be compiled; name another folder in TMPDIR",
        shown::path(&std::env::temp_dir()),
        why(e)
    ))
}
