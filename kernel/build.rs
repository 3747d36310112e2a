//! Links the kernel at its own addresses, without the C library's start code.

fn main() {
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    for file in ["link.ld", "src/boot.s", "src/trap.s", "src/memory.s", "build.rs"] {
        println!("cargo:rerun-if-changed={file}");
    }
    let script = format!("-Wl,-T{here}/link.ld");
    let linker = [
        "-nostartfiles",
        "-nostdlib",
        "-static",
        "-no-pie",
        &script,
        "-Wl,--build-id=none",
        "-Wl,-znoexecstack",
    ];
    for argument in linker {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
}
