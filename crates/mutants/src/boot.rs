//! Boots of the kernel, as tests: what only a processor can show of the rooms that talk to it.
//!
//! The kernel is built from the copy like every other program. It has no environment, so its switch
//! is a record in its image, behind a mark: a mutant's number is written into the file, and what
//! was reached is read from the guest's memory when the guest has ended.

use crate::switch::Switch;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// The rooms whose mutants are asked in boots: those that the simulated machine stands in for.
pub(crate) const ROOMS: [&str; 2] = ["machine", "x86"];
const EMULATOR: &str = "qemu-system-x86_64";
/// The memory that a guest has, in MiB.
const MEMORY: u64 = 512;
/// How the emulator ends when the kernel says that all is well.
const PASSED: i32 = 33;
/// The mark stands before the number, which has four bytes, and the bytes of the mutants reached,
/// at a multiple of its length. It is in two parts, so that no program with this constant in it is
/// taken for a kernel.
const MARK: (&[u8; 8], &[u8; 8]) = (b"foliant.", b"mutants.");

/// A boot: its name, the machine, its CPUs and what the kernel is told.
const BOOTS: [(&str, &str, u32, &str); 4] = [
    ("tests", "q35", 2, "mode=tests"),
    ("laws", "q35", 2, "mode=laws"),
    ("laws_without_x2apic", "microvm", 3, "mode=laws xapic"),
    ("tests_of_many_cpus", "pc", 5, "mode=tests"),
];

/// The names of all boots.
pub(crate) fn names() -> Vec<String> {
    BOOTS.iter().map(|(name, ..)| (*name).to_owned()).collect()
}

/// Whether there is something to boot with.
pub(crate) fn is_possible() -> bool {
    let asked = Command::new(EMULATOR).arg("--version").stdout(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

pub(crate) fn passed(status: ExitStatus) -> bool {
    status.code() == Some(PASSED)
}

/// One boot that is about to run, and its files, which go with it.
pub(crate) struct Boot {
    image: PathBuf,
    memory: Option<PathBuf>,
}

impl Boot {
    /// Prepares the kernel `image`.
    pub(crate) fn new(image: &Path, switch: Switch<'_>) -> Result<Boot, String> {
        let failed = |why| format!("{}: {why}", image.display());
        let mut bytes = fs::read(image).map_err(failed)?;
        let at = marks(&bytes).next().ok_or(format!("{} has no switch", image.display()))?;
        let number = match switch {
            Switch::On(number) => number,
            Switch::Note(_) => u32::MAX,
        };
        bytes[at + 16..at + 20].copy_from_slice(&number.to_le_bytes());
        // Each boot has files of its own, named by the process and the thread that has it.
        let name = format!("foliant-{}-{:?}", std::process::id(), std::thread::current().id());
        let name: String =
            name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
        let folder = image.parent().unwrap_or(Path::new("."));
        let own = folder.join(format!("{name}.elf"));
        fs::write(&own, bytes).map_err(failed)?;
        let notes = matches!(switch, Switch::Note(_));
        let memory = notes.then(|| folder.join(format!("{name}.memory")));
        Ok(Boot { image: own, memory })
    }

    /// The emulator, told to boot.
    pub(crate) fn command(&self, test: &str) -> Result<Command, String> {
        let (_, machine, cpus, words) = BOOTS
            .into_iter()
            .find(|(name, ..)| *name == test)
            .ok_or(format!("there is no boot called {test}"))?;
        let mut command = Command::new(EMULATOR);
        command.args([
            "-cpu",
            "max",
            "-accel",
            "tcg,thread=multi",
            "-nodefaults",
            "-display",
            "none",
        ]);
        command.args(["-no-reboot", "-serial", "null"]);
        command.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
        command.args(["-smp", &cpus.to_string(), "-m", &format!("{MEMORY}M")]);
        let backend = match &self.memory {
            Some(path) => {
                let path = path.display();
                let file =
                    format!("memory-backend-file,id=ram,size={MEMORY}M,share=on,mem-path={path}");
                command.args(["-object", &file]);
                ",memory-backend=ram"
            }
            None => "",
        };
        command.args(["-M", &format!("{machine}{backend}")]);
        command.arg("-kernel").arg(&self.image).arg("-initrd").arg(&self.image);
        command.args(["-append", words]);
        Ok(command)
    }

    /// Adds what was reached to the file of the mutants reached.
    pub(crate) fn note(&self, notes: &Path) -> Result<(), String> {
        let Some(memory) = &self.memory else { return Ok(()) };
        let failed = |why| format!("{}: {why}", memory.display());
        let bytes = fs::read(memory).map_err(failed)?;
        let mut noted = fs::read(notes).map_err(failed)?;
        for at in marks(&bytes) {
            let reached = &bytes[at + 20..];
            noted
                .iter_mut()
                .zip(reached)
                .for_each(|(note, reached)| *note |= u8::from(*reached == 1));
        }
        fs::write(notes, noted).map_err(failed)
    }
}

impl Drop for Boot {
    fn drop(&mut self) {
        let files = [Some(&self.image), self.memory.as_ref()];
        files.into_iter().flatten().for_each(|path| drop(fs::remove_file(path)));
    }
}

/// Where the switch is, once for each copy of it.
fn marks(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let is_mark = |chunk: &[u8]| chunk.starts_with(MARK.0) && chunk[8..] == *MARK.1;
    bytes.chunks_exact(16).enumerate().filter(move |(_, c)| is_mark(c)).map(|(n, _)| 16 * n)
}
