//! Building the kernel. It is a workspace of its own, so that its profile and the features of its
//! dependencies do not mix with those of programs that run on an operating system.

use super::source;
use crate::failure::{Done, Failure};
use crate::progress;
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Builds the kernel of the source tree that this program was built from; gives its file.
pub(super) fn build() -> Done<PathBuf> {
    let source = source();
    if !source.join("Cargo.toml").is_file() {
        return Err(Failure::new(format_args!(
            "the kernel's source is not at {}; boot a ready one with --kernel FILE",
            source.display()
        )));
    }
    let spinner = progress::spinner("building the kernel");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(&cargo)
        .args(["build", "--release", "--quiet", "--message-format=json-render-diagnostics"])
        .args(["--target-dir", "../target/kernel"]) // where `cargo clean` finds it
        .current_dir(&source) // its own settings of cargo count
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output();
    spinner.finish_and_clear();
    let built = built.map_err(|e| {
        let cargo = cargo.display();
        Failure::new(format_args!(
            "{cargo} does not start ({e}), so the kernel cannot be built; boot a ready one with --kernel FILE"
        ))
    })?;
    if !built.status.success() {
        return Err(Failure::new(format_args!(
            "the kernel in {} does not build",
            source.display()
        )));
    }
    let messages = String::from_utf8_lossy(&built.stdout);
    executable(&messages)
        .ok_or_else(|| Failure::new("cargo built the kernel and named no executable"))
}

/// The executable that cargo's messages name; the last one, which depends on all others.
fn executable(messages: &str) -> Option<PathBuf> {
    let artifact = |line: &str| {
        let message: Value = serde_json::from_str(line).ok()?;
        message["executable"].as_str().map(PathBuf::from)
    };
    messages.lines().filter_map(artifact).next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_executable_is_the_kernel() {
        let messages = r#"{"reason":"compiler-artifact","executable":null}
{"reason":"compiler-artifact","executable":"/t/build-script"}
{"reason":"compiler-artifact","executable":"/t/release/foliant-kernel"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(executable(messages), Some("/t/release/foliant-kernel".into()));
        assert_eq!(executable("no json"), None);
    }
}
