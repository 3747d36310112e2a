//! Puts what guests are started from into the command, compressed, where variables name it (`cargo
//! xtask dist`): the kernel's image, and the first process of guests that measure a program.

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    for (variable, name) in [("FOLIANT_KERNEL", "kernel"), ("FOLIANT_INIT", "init")] {
        println!("cargo:rerun-if-env-changed={variable}");
        let named = env::var_os(variable).map(PathBuf::from);
        let image = named.as_ref().map_or(Ok(Vec::new()), |file| {
            println!("cargo:rerun-if-changed={}", file.display());
            fs::read(file).map(|image| miniz_oxide::deflate::compress_to_vec(&image, 10))
        });
        let image = image.unwrap_or_else(|e| panic!("{variable} names no file: {e}"));
        fs::write(folder.join(name), image).expect("cargo's folder can be written to");
    }
}
