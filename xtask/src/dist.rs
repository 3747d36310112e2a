//! The command as one file: it carries the kernel and the first process of guests that measure a
//! program, and needs no source tree.

use crate::boot;
use crate::run::{cargo, cargo_in, root};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The file's size at most.
const MOST: u64 = 12_000_000;

/// Builds the kernel, and then the command with the kernel's image inside (`cli/build.rs`).
pub(crate) fn dist() -> Result<(), String> {
    let root = root();
    let kernel = ["build", "--release", "--target-dir", "../target/kernel"];
    cargo_in(&root.join("kernel"), "the kernel", &kernel, &[])?;
    let image = root.join("target/kernel/release/foliant-kernel");
    let init = [
        &["rustc", "--release", "--package", "foliant-init", "--target-dir", "target/init"][..],
        &["--", "-C", "target-feature=+crt-static", "-C", "strip=symbols"],
    ];
    cargo("the first process of guests", &init.concat(), &[])?;
    let init = root.join("target/init/release/foliant-init");
    let text = |path: &Path| {
        path.to_str().map(str::to_owned).ok_or("the path of the workspace is not UTF-8")
    };
    let (image, init) = (text(&image)?, text(&init)?);
    let command = ["build", "--profile", "dist", "--package", "foliant-cli"];
    cargo("the command", &command, &[("FOLIANT_KERNEL", &image), ("FOLIANT_INIT", &init)])?;
    let file = root.join("target/dist/foliant");
    let size = fs::metadata(&file).map_err(|e| format!("{}: {e}", file.display()))?.len();
    println!("{}: {:.1} MB", file.display(), size as f64 / 1e6);
    if size > MOST {
        return Err(format!(
            "the command is to be less than {} MB: what has grown?",
            MOST / 1_000_000
        ));
    }
    if boot::qemu() { boots(&file) } else { Ok(()) }
}

/// Boots the kernel that the file carries, where there is nothing else: no source, no cargo.
fn boots(file: &Path) -> Result<(), String> {
    let folder = root().join("target/dist/empty");
    let made = fs::create_dir_all(&folder);
    made.map_err(|e| format!("{}: {e}", folder.display()))?;
    println!("== {} boots in an empty folder", file.display());
    let status = Command::new(file)
        .args(["boot", "--cpus", "1"])
        .current_dir(&folder)
        .env("CARGO", "/nowhere/cargo")
        .status();
    let status = status.map_err(|e| format!("{}: {e}", file.display()))?;
    if status.success() { Ok(()) } else { Err("the command does not boot what it carries".into()) }
}
