//! `foliant compare`: one program on Linux and on Foliant's kernel, counted in the same
//! instructions.
//!
//! ```text
//!   PROGRAM, foliant-init ─▶ one archive ─┬─▶ QEMU with each Linux ──────┬─▶ lines ─▶ table, JSON
//!                                         └─▶ QEMU with Foliant's kernel ┘
//! ```
//!
//! All guests have the same processor, memory and archive, and the same first process
//! (`foliant-init`), which runs the program a few times at each size of folios. The clock of such a
//! guest counts instructions, the same number in every boot.
//!
//! **Invariants**
//! - M1. The program's own instructions are those that Foliant's kernel counted in ring 3; on Linux
//!   they are taken to be the same, so what is left is the kernel's.
//! - M2. What the program said, and how it ended, is the same on all kernels at all sizes, or that
//!   is told, and the exit code is 1.
//!
//! With `--published` the first process carries out experiments of its own instead (`published`).
//!
//! **Not here**: what is counted inside (`crates/init`), how a line is read (`lines`).

mod lines;
mod published;
mod table;

pub(crate) use published::{Experiment, Published};
pub(crate) use table::Whole;

use super::archive::Contents;
use super::kernel::{self, Image};
use super::pack::{self, Asked, Packed};
use super::program::{temporary, written};
use super::qemu::{self, Files, Piece};
use super::words::Words;
use super::{Linux, Mode, Options};
use crate::args::{Compare, Guest, Size};
use crate::failure::{Done, Failure, print, tell, why};
use crate::{progress, shown};
use foliant_units::{Bytes, Order};
use lines::Measured;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What Linux is told beside: to place everything as Foliant's kernel does, and to leave out what
/// that has not.
const LINUX: &str = "console=ttyS0 quiet panic=-1 nokaslr norandmaps no5lvl tsc=reliable \
                     clocksource=tsc mitigations=off init_on_alloc=0 oops=panic";
/// Give up after this time, where nothing else is asked for.
const TIMEOUT: Duration = Duration::from_secs(1800);
/// Memory of the guests, where nothing else is asked for.
const MEMORY: Bytes = Bytes::new(1 << 30);
/// The name of Foliant's kernel.
const FOLIANT: &str = "Foliant";
/// So many of a guest's last lines are told where it does not say all.
const LAST: usize = 20;

/// `foliant compare`.
pub(crate) fn command(args: &Compare) -> Done {
    let guests = Guests::of(args)?;
    if let Some(asked) = &args.published {
        return published::run(args, &guests, asked);
    }
    let program = Program {
        command: &args.command,
        with: &args.with,
        sizes: &args.sizes,
        rounds: args.rounds,
        cpus: args.cpus(1),
        memory: args.memory,
    };
    let whole = guests.compared(&program)?;
    print(&if args.json { whole.json()? } else { whole.text() })?;
    told(whole.differences())
}

/// Says what is not the same everywhere (M2).
fn told(differences: &[String]) -> Done {
    differences.iter().for_each(|sentence| tell(format_args!("foliant: {sentence}")));
    if differences.is_empty() { Ok(()) } else { Err(Failure::Code(1)) }
}

/// A program that is run a few times at each size.
struct Program<'a> {
    command: &'a [OsString],
    with: &'a [PathBuf],
    sizes: &'a [Order],
    rounds: u32,
    cpus: usize,
    memory: Option<Bytes>,
}

/// What guests are started from.
struct Guests {
    emulator: PathBuf,
    /// Linux kernels, with their names.
    kernels: Vec<(PathBuf, String)>,
    image: Image,
    init: Image,
    here: PathBuf,
    timeout: Duration,
}

impl Guests {
    fn of(args: &Compare) -> Done<Guests> {
        let emulator = qemu::find()?;
        let kernels =
            args.kernels.iter().map(|file| Ok((file.clone(), name(file)?))).collect::<Done<_>>()?;
        let here = std::env::current_dir().map_err(|e| {
            let why = why(&e);
            Failure::new(format_args!("the current folder is lost ({why}); go to another one"))
        })?;
        let image = kernel::image(args.foliant.as_deref())?;
        let (init, timeout) = (kernel::init()?, args.timeout.unwrap_or(TIMEOUT));
        Ok(Guests { emulator, kernels, image, init, here, timeout })
    }

    /// Runs a program on all kernels.
    fn compared(&self, program: &Program<'_>) -> Done<Whole> {
        let with: Vec<_> =
            program.with.iter().cloned().chain([self.init.path().to_owned()]).collect();
        let packed = self.packed(program.command, &with)?;
        let sizes: Vec<String> =
            program.sizes.iter().map(|order| order.bytes().get().to_string()).collect();
        let words = ["measure".to_owned(), sizes.join(","), program.rounds.to_string()];
        let packed = packed.below(self.init.path(), &words);
        let memory = (program.memory, MEMORY);
        let all = self.boot(&packed, program.cpus, memory)?;
        if let Some(one) = all.iter().find(|one| !one.is_whole()) {
            let name = &one.name;
            return Err(Failure::new(format_args!(
                "{name} ended before all was measured; its last lines are above"
            )));
        }
        Ok(Whole::of(program.command, program.sizes, program.cpus, all))
    }

    fn packed(&self, command: &[OsString], with: &[PathBuf]) -> Done<Packed> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let (here, login) = (self.here.as_path(), pack::Login::No);
        let asked = Asked { command, with, path: &path, here, terminal: None, login };
        let spinner = progress::spinner("looking for the guest's files");
        let packed = pack::gather(asked, &spinner);
        spinner.finish_and_clear();
        packed
    }

    /// Boots each kernel, Foliant's last, with the memory that was asked for, or the usual or what
    /// the files need. A kernel that ended by itself has not measured all.
    fn boot(
        &self,
        packed: &Packed,
        cpus: usize,
        (memory, usual): (Option<Bytes>, Bytes),
    ) -> Done<Vec<Measured>> {
        let contents =
            Contents { kernel: self.image.path(), notes: &packed.notes, entries: &packed.entries };
        let archive = contents.size()?;
        let linux = Linux { folio: None, stats: false, counts: true, archive, seat: None };
        let guest = Guest { icount: true, timeout: Some(self.timeout), ..Guest::default() };
        let size = Size { cpus: Some(cpus), memory: memory.or(Some(linux.memory(usual))) };
        let options = Options { mode: Mode::Program(linux), size, guest };
        pack::fits(&packed.entries, linux.archive, memory)?;
        options.check()?;
        let archive = written(&contents)?;
        let mut all = Vec::new();
        for (file, name) in &self.kernels {
            let words = format!("{LINUX} rdinit={}", self.init.path().display());
            let arguments = qemu::linux(file, archive.path(), &options, &words);
            all.push(measured(&self.emulator, arguments, &options, name)?);
        }
        let words = temporary("foliant-words-")?;
        let files = Files { archive: archive.path(), words: words.path() };
        let arguments = qemu::streamed(self.image.path(), &files, &options);
        let own = measured(&self.emulator, arguments, &options, FOLIANT);
        let said = std::fs::read(words.path()).map(|text| Words::read(&text));
        for sentence in said.iter().flat_map(Words::missing) {
            tell(format_args!("foliant: {sentence}"));
        }
        let is_whole = own.as_ref().is_ok_and(Measured::is_whole);
        if let (false, Ok(words)) = (is_whole, &said) {
            words.last().for_each(tell);
        }
        all.push(own?);
        Ok(all)
    }
}

/// Boots one guest and reads what its first process says.
fn measured(
    emulator: &Path,
    arguments: Vec<OsString>,
    options: &Options,
    name: &str,
) -> Done<Measured> {
    let (mut measured, mut last) = (Measured::of(name), VecDeque::new());
    let spinner = progress::spinner(&format!("{name} boots"));
    let mut rest = Vec::new();
    let mut read = |line: &str| -> Done {
        if measured.read(line)? {
            spinner.set_message(format!("{name}: {}", measured.progress()));
        }
        last.push_back(shown::shown(line));
        if last.len() > LAST {
            last.pop_front();
        }
        Ok(())
    };
    let ended =
        qemu::stream(emulator, arguments, options.timeout(), qemu::Input::Nothing, |piece| {
            let (Piece::Output(bytes) | Piece::Errors(bytes)) = piece;
            rest.extend(bytes);
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                read(String::from_utf8_lossy(&line).trim_end())?;
            }
            Ok(())
        });
    spinner.finish_and_clear();
    let ended = ended?;
    if measured.is_whole() {
        for line in &measured.said {
            tell(format_args!(
                "foliant: on {name} the program fails and says: {}",
                shown::shown(line)
            ));
        }
        return Ok(measured);
    }
    last.iter().for_each(tell);
    // Linux ends by switching the power off: no verdict.
    if !matches!(ended, super::Ended::Reset | super::Ended::Verdict(_)) {
        ended.verdict(options.timeout())?;
    }
    Ok(measured)
}

/// Where a kernel's file says that it is one, and which.
const MAGIC: (u64, &[u8]) = (0x202, b"HdrS");
const VERSION: u64 = 0x20e;
/// What the version's place is counted from.
const SETUP: u64 = 0x200;

/// The name of the Linux in a file: `Linux 6.12.1`.
fn name(path: &Path) -> Done<String> {
    let refused = |what: &str| {
        Failure::new(format_args!(
            "{} {what}; name a kernel like /boot/vmlinuz-6.12, from a package linux-image",
            shown::path(path)
        ))
    };
    let unread = |e: std::io::Error| refused(&format!("cannot be read as a kernel ({})", why(&e)));
    let mut file = File::open(path).map_err(unread)?;
    let mut at = |offset: u64, bytes: &mut [u8]| {
        file.seek(SeekFrom::Start(offset)).and_then(|_| file.read(bytes)).map_err(unread)
    };
    let (mut magic, mut place, mut text) = ([0; 4], [0; 2], [0; 128]);
    at(MAGIC.0, &mut magic)?;
    if magic != MAGIC.1 {
        return Err(refused("is no Linux for x86-64"));
    }
    at(VERSION, &mut place)?;
    let count = at(SETUP + u64::from(u16::from_le_bytes(place)), &mut text)?;
    let text = String::from_utf8_lossy(&text[..count]);
    let version = text.split([' ', '\0']).next().unwrap_or_default();
    Ok(format!("Linux {}", shown::shown(version)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_kernel_s_file_says_which_it_is() {
        let mut image = vec![0; 0x400];
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x20e..0x210].copy_from_slice(&0x180u16.to_le_bytes());
        image[0x380..0x392].copy_from_slice(b"6.12.1-amd64 (me) ");
        let of = |bytes: &[u8]| {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(bytes).unwrap();
            name(file.path()).map_err(Failure::sentence)
        };
        assert_eq!(of(&image).unwrap(), "Linux 6.12.1-amd64");
        image[0x203] = 0;
        assert!(of(&image).unwrap_err().contains("is no Linux for x86-64"));
        assert!(of(b"short").unwrap_err().contains("is no Linux"));
        let gone = name(Path::new("/no/kernel")).unwrap_err().sentence();
        assert!(gone.contains("/no/kernel cannot be read") && gone.contains("vmlinuz"), "{gone}");
    }
}
