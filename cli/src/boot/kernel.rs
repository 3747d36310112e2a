//! The kernel's image: one that is named, the one that this program carries, or one that is built
//! of the source tree; and the first process of guests that measure a program, in the same way.
//!
//! The kernel is a workspace of its own, so that its profile and the features of its dependencies
//! do not mix with those of programs that run on an operating system. `cargo xtask dist` builds it
//! first and lets this program be built with its image inside (`build.rs`); a program that `cargo
//! build` made has none, and builds the kernel where it is asked to boot one. Cargo keeps what it
//! built.

use super::source;
use crate::failure::{Done, Failure};
use crate::{progress, shown};
use indicatif::ProgressBar;
use serde_json::Value;
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, Stdio};
use tempfile::NamedTempFile;

/// Something that is built for guests.
struct Part {
    name: &'static str,
    /// What a user does who has it, or needs none.
    instead: &'static str,
    /// What this program carries of it, compressed; nothing where it carries none.
    carried: &'static [u8],
    /// Its folder below the source tree.
    folder: &'static str,
    /// What cargo does there, and how.
    cargo: (&'static str, &'static [&'static str]),
}

const KERNEL: Part = Part {
    name: "the kernel",
    instead: "boot a ready one with --kernel FILE",
    carried: include_bytes!(concat!(env!("OUT_DIR"), "/kernel")),
    folder: "kernel",
    // Its own settings of cargo count; where `cargo clean` finds it.
    cargo: ("build", &["--release", "--target-dir", "../target/kernel"]),
};
const INIT: Part = Part {
    name: "the guest's first process",
    instead: "run `foliant compare` from the source tree",
    carried: include_bytes!(concat!(env!("OUT_DIR"), "/init")),
    folder: "crates/init",
    // Linked statically, so that it runs where no library is.
    cargo: (
        "rustc",
        &[
            "--release",
            "--target-dir",
            "../../target/init",
            "--",
            "-Ctarget-feature=+crt-static",
            "-Cstrip=symbols",
        ],
    ),
};

/// A file that QEMU can be given.
pub(super) enum Image {
    /// One that stays.
    Kept(PathBuf),
    /// A copy of what is carried, which goes with this value.
    Copy(NamedTempFile),
}

impl Image {
    pub(super) fn path(&self) -> &Path {
        match self {
            Image::Kept(path) => path,
            Image::Copy(file) => file.path(),
        }
    }
}

/// The image: `named`, or the one that is carried, or one that is built.
pub(super) fn image(named: Option<&Path>) -> Done<Image> {
    match named {
        Some(file) if file.is_file() => Ok(Image::Kept(file.to_owned())),
        Some(file) => Err(Failure::new(format_args!(
            "there is no kernel {}; name its file, or leave --kernel out",
            shown::path(file)
        ))),
        None => KERNEL.get(),
    }
}

/// The first process of a guest that measures a program.
pub(super) fn init() -> Done<Image> {
    INIT.get()
}

impl Part {
    fn get(&self) -> Done<Image> {
        match self.carried {
            [] => self.build().map(Image::Kept),
            _ => self.copy().map(Image::Copy),
        }
    }
    fn copy(&self) -> Done<NamedTempFile> {
        let image = miniz_oxide::inflate::decompress_to_vec(self.carried).map_err(|e| {
            Failure::new(format_args!("{}, which this foliant carries, is damaged: {e}", self.name))
        })?;
        copied(&image)
    }
}

/// The bytes of a program as a file.
fn copied(image: &[u8]) -> Done<NamedTempFile> {
    let write = || {
        let file = NamedTempFile::with_prefix("foliant-guest-")?;
        file.as_file().write_all(image)?;
        file.as_file().set_permissions(Permissions::from_mode(0o755))?;
        Ok(file)
    };
    write().map_err(|e: std::io::Error| {
        let folder = std::env::temp_dir();
        let size = image.len() >> 10;
        Failure::new(format_args!(
            "{} takes no file of {size} kB ({e}), which the guest is started from; name another \
             folder in TMPDIR",
            folder.display()
        ))
    })
}

impl Part {
    /// Builds it of the source tree that this program was built from; gives its file.
    fn build(&self) -> Done<PathBuf> {
        let (name, instead, source) = (self.name, self.instead, source().join(self.folder));
        if !source.join("Cargo.toml").is_file() {
            return Err(Failure::new(format_args!(
                "this foliant does not carry {name}, whose source is not at {}; {instead}, or make \
                 a foliant that carries all with `cargo xtask dist`",
                source.display()
            )));
        }
        let building = format!("building {name}");
        let spinner = progress::spinner(&building);
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let (what, how) = self.cargo;
        let started = Command::new(&cargo)
            .args([what, "--message-format=json-render-diagnostics"])
            .args(how)
            .current_dir(&source)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let lost = |e: std::io::Error| {
            let cargo = cargo.display();
            Failure::new(format_args!(
                "{cargo} does not start ({e}), so {name} cannot be built; {instead}"
            ))
        };
        let mut child = started.map_err(lost)?;
        let told = child.stderr.take().map(|told| {
            let spinner = spinner.clone();
            std::thread::spawn(move || follow(told, &building, &spinner))
        });
        let mut messages = String::new();
        let read = child.stdout.take().map_or(Ok(0), |mut out| out.read_to_string(&mut messages));
        let status = read.and_then(|_| child.wait()).map_err(lost)?;
        let told = told.and_then(|told| told.join().ok()).unwrap_or_default();
        spinner.finish_and_clear();
        if !status.success() {
            crate::failure::tell(told.trim_end());
            return Err(Failure::new(format_args!(
                "{name} in {} does not build",
                source.display()
            )));
        }
        executable(&messages)
            .ok_or_else(|| Failure::new(format_args!("cargo built {name} and named no executable")))
    }
}

/// Shows what cargo tells meanwhile, and gives all of it. Where nobody watches a spinner, a line
/// says that there is something to build, and another one what cargo waits for.
fn follow(told: ChildStderr, building: &str, spinner: &ProgressBar) -> String {
    let (mut all, mut is_said) = (String::new(), false);
    for line in BufReader::new(told).lines().map_while(Result::ok) {
        let word = line.trim();
        spinner.set_message(format!("{building}: {word}"));
        let waits = word.starts_with("Blocking");
        let is_news = waits || (!is_said && !word.starts_with("Finished"));
        if spinner.is_hidden() && is_news {
            let why = if waits { format!(": {word}") } else { String::new() };
            crate::failure::tell(format_args!("foliant: {building}{why}"));
            is_said = true;
        }
        all.push_str(&line);
        all.push('\n');
    }
    all
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
