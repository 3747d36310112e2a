//! The kernel under QEMU: its lints, its tests, the laws, and many boots in a row. Machines and
//! loaders that lack something are among the tests of the command (`cli/tests/boot_machine.rs`).

use crate::run::{cargo_in, foliant, root};
use clap::Args;
use std::process::{Command, Stdio};

/// CPU counts on which the laws are checked.
const LAWS: [&str; 5] = ["1", "2", "4", "8", "16"];

/// Boots the kernel many times in a row and checks the laws each time.
#[derive(Args, Debug)]
pub(crate) struct Boot {
    /// How many times
    #[arg(long, default_value = "1")]
    times: u32,
}

/// Whether QEMU is there; otherwise how to get it is printed.
pub(crate) fn qemu() -> bool {
    let asked = Command::new("qemu-system-x86_64").arg("--version").stdout(Stdio::null()).status();
    let there = asked.is_ok_and(|status| status.success());
    if !there {
        println!(
            "skipped: the boot, because qemu-system-x86_64 is not installed; on Debian or Ubuntu: \
             apt-get install --no-install-recommends qemu-system-x86 seabios"
        );
    }
    there
}

/// What only the real machine can show, on two CPUs.
pub(crate) fn tests(cpus: &str) -> Result<(), String> {
    foliant("boot", &["boot", "--cpus", cpus])
}

/// The laws on every number of CPUs, and each scenario counted twice.
pub(crate) fn all() -> Result<(), String> {
    tests("4")?;
    for cpus in LAWS {
        foliant("laws", &["boot", "--laws", "--cpus", cpus])?;
    }
    // No PCI, no port 0x61, and interrupt controllers in memory.
    let microvm = ["boot", "--laws", "--machine", "microvm", "--xapic", "--cpus", "2"];
    foliant("laws on microvm", &microvm)?;
    foliant("truth", &["lab", "--truth"])
}

/// Format and lints of the kernel's own workspace.
pub(crate) fn lints() -> Result<(), String> {
    let folder = root().join("kernel");
    cargo_in(&folder, "format of the kernel", &["fmt", "--check"], &[])?;
    let target = root().join("target/kernel");
    let target = target.to_str().ok_or("the path of the workspace is not UTF-8")?;
    let clippy = ["clippy", "--release", "--target-dir", target, "--", "--deny", "warnings"];
    cargo_in(&folder, "clippy of the kernel", &clippy, &[])
}

/// The laws, again and again, with 2 to 8 CPUs.
pub(crate) fn many(asked: &Boot) -> Result<(), String> {
    if !qemu() {
        return Err("nothing to boot with".into());
    }
    for time in 0..asked.times {
        let cpus = (2 + time % 7).to_string();
        foliant(
            &format!("boot {} of {}", time + 1, asked.times),
            &["boot", "--laws", "--cpus", &cpus],
        )?;
    }
    println!("{} boots, 0 failures", asked.times);
    Ok(())
}
