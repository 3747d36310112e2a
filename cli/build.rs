//! Puts the kernel's image into the command, compressed, where `FOLIANT_KERNEL` names one (`cargo
//! xtask dist`).

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-env-changed=FOLIANT_KERNEL");
    let named = env::var_os("FOLIANT_KERNEL").map(PathBuf::from);
    let image = named.as_ref().map_or(Ok(Vec::new()), |file| {
        println!("cargo:rerun-if-changed={}", file.display());
        fs::read(file).map(|image| miniz_oxide::deflate::compress_to_vec(&image, 10))
    });
    let image = image.unwrap_or_else(|e| panic!("FOLIANT_KERNEL names no kernel: {e}"));
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(folder.join("kernel"), image).expect("cargo's folder can be written to");
}
