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
//!   they are taken to be the same, so what is left is the kernel's. The processor has nothing that
//!   one of the kernels does not keep for programs (`qemu::COUNTED`), so both run the same code.
//! - M2. What the program said, and how it ended, is the same on all kernels at all sizes, or that
//!   is told, and the exit code is 1.
//!
//! **Not here**: what is counted inside (`crates/init`), how a line is read (`lines`).

mod lines;
mod table;

pub(crate) use table::Whole;

use super::archive::Contents;
use super::pack::{self, Asked};
use super::program::{temporary, written};
use super::qemu::{self, Files, Piece};
use super::words::Words;
use super::{Linux, Mode, Options, kernel};
use crate::args::{Compare, Guest};
use crate::failure::{Done, Failure, print, tell, why};
use crate::{progress, shown};
use foliant_units::Bytes;
use lines::Measured;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

/// What Linux is told beside: to place everything as Foliant's kernel does, and to leave out what
/// that has not.
const LINUX: &str = "console=ttyS0 quiet panic=-1 nokaslr norandmaps no5lvl tsc=reliable \
                     clocksource=tsc mitigations=off init_on_alloc=0";
/// Give up after this time, where nothing else is asked for.
const TIMEOUT: Duration = Duration::from_secs(1800);
/// Memory of the guests, where nothing else is asked for.
const MEMORY: Bytes = Bytes::new(1 << 30);
/// So many of a guest's last lines are told where it does not say all.
const LAST: usize = 20;

/// `foliant compare`.
pub(crate) fn command(args: &Compare) -> Done {
    let emulator = qemu::find()?;
    let kernels: Vec<(&Path, String)> =
        args.kernels.iter().map(|file| Ok((file.as_path(), name(file)?))).collect::<Done<_>>()?;
    let here = std::env::current_dir().map_err(|e| {
        Failure::new(format_args!("the current folder is lost ({}); go to another one", why(&e)))
    })?;
    let image = kernel::image(args.foliant.as_deref())?;
    let init = kernel::init()?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let with: Vec<_> = args.with.iter().cloned().chain([init.path().to_owned()]).collect();
    let asked = Asked {
        command: &args.command,
        with: &with,
        path: &path,
        here: &here,
        terminal: None,
        login: pack::Login::No,
    };
    let spinner = progress::spinner("looking for the guest's files");
    let packed = pack::gather(asked, &spinner);
    spinner.finish_and_clear();
    let sizes: Vec<String> =
        args.sizes.iter().map(|order| order.bytes().get().to_string()).collect();
    let words = ["measure".to_owned(), sizes.join(","), args.rounds.to_string()];
    let packed = packed?.below(init.path(), &words);
    let contents =
        Contents { kernel: image.path(), notes: &packed.notes, entries: &packed.entries };
    let linux =
        Linux { folio: None, stats: false, counts: true, archive: contents.size()?, seat: None };
    let timeout = Some(args.timeout.unwrap_or(TIMEOUT));
    let guest = Guest { icount: true, timeout, ..Guest::default() };
    let size = args.size(linux.memory(MEMORY));
    let options = Options { mode: Mode::Program(linux), size, guest };
    pack::fits(&packed.entries, linux.archive, args.memory)?;
    options.check()?;
    let archive = written(&contents)?;
    let mut all = Vec::new();
    for (file, name) in kernels {
        let words = format!("{LINUX} rdinit={}", init.path().display());
        let arguments = qemu::linux(file, archive.path(), &options, &words);
        all.push(measured(&emulator, arguments, &options, &name)?);
    }
    let words = temporary("foliant-words-")?;
    let files = Files { archive: archive.path(), words: words.path() };
    let arguments = qemu::streamed(image.path(), &files, &options);
    let own = measured(&emulator, arguments, &options, "Foliant");
    let said = std::fs::read(words.path()).map(|text| Words::read(&text));
    for sentence in said.iter().flat_map(Words::missing) {
        tell(format_args!("foliant: {sentence}"));
    }
    if let (Err(_), Ok(words)) = (&own, &said) {
        words.last().for_each(tell);
    }
    all.push(own?);
    let whole = Whole::of(&args.command, &args.sizes, args.cpus(), all);
    print(&if args.json { whole.json()? } else { whole.text() })?;
    match whole.differences() {
        [] => Ok(()),
        all => {
            all.iter().for_each(|sentence| tell(format_args!("foliant: {sentence}")));
            Err(Failure::Code(1))
        }
    }
}

/// Boots one guest and reads what its first process says.
fn measured(
    emulator: &Path,
    arguments: Vec<std::ffi::OsString>,
    options: &Options,
    name: &str,
) -> Done<Measured> {
    let (mut measured, mut last) = (Measured::of(name), VecDeque::new());
    let spinner = progress::spinner(&format!("{name} boots"));
    let mut rest = Vec::new();
    let mut read = |line: &str| -> Done {
        if measured.read(line)? {
            spinner.set_message(format!("{name}: {} rounds", measured.count()));
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
    Err(Failure::new(format_args!(
        "{name} ended before all was measured; its last lines are above"
    )))
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
