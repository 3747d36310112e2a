//! An archive of files: the module that the guest's loader puts into its memory.
//!
//! ```text
//!   .foliant/ │ .foliant/kernel .. .foliant/folder │ bin ─▶ usr/bin │ usr/ │ usr/bin/ │ usr/bin/true │ .. end
//!   what the command says              │ files in the order of their paths
//! ```
//!
//! The format is newc of cpio, as Linux takes its first file system: per entry a head of 110
//! characters, the name, the bytes, each filled up to a multiple of 4.
//!
//! **Invariants**
//! - N1. A folder stands before what lies in it: `Path` orders by components.
//! - N2. The same files make the same bytes: they have no times, no owners, and numbers in the
//!   archive's order.
//! - N3. What is told to be its size is its size: a file that changed meanwhile is an error.
//!
//! **Not here**: which files (`pack`).

use crate::failure::{Done, Failure, why};
use crate::shown;
use cpio::newc::{Builder, ModeFileType, trailer};
use foliant_units::Bytes;
use indicatif::ProgressBar;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The least that no entry can hold: its size is of 32 bits.
pub(super) const FILE_LIMIT: Bytes = Bytes::new(1 << 32);
/// What an entry has before its name.
const HEAD: u64 = 110;
/// The name of the entry at the end.
const TRAILER: &str = "TRAILER!!!";

/// The bits that say who may do what, `07777` of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mode(u32);

impl Mode {
    pub(super) const fn new(bits: u32) -> Mode {
        Mode(bits & 0o7777)
    }
    /// Whether somebody may run it.
    pub(super) const fn runs(self) -> bool {
        self.0 & 0o111 != 0
    }
}

/// What lies at a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Entry {
    Folder(Mode),
    Link(PathBuf),
    /// It has the bytes of the file at this path here.
    File(Mode, Bytes),
    /// It has these bytes.
    Text(Mode, Vec<u8>),
}

/// What lies where; paths are absolute, and have no links above their last part.
pub(super) type Entries = BTreeMap<PathBuf, Entry>;

/// A file that the command itself makes.
#[derive(Clone, Debug)]
pub(super) struct Note {
    pub(super) name: &'static str,
    pub(super) bytes: Vec<u8>,
}

/// What is packed.
#[derive(Clone, Debug)]
pub(super) struct Contents<'c> {
    /// The kernel's own file.
    pub(super) kernel: &'c Path,
    pub(super) notes: &'c [Note],
    pub(super) entries: &'c Entries,
}

/// What is meant for the kernel lies here; Linux makes no folders of its own.
const OWN: &str = ".foliant";
/// Where the kernel finds its own file, for the symbols of traces.
const KERNEL: &str = ".foliant/kernel";

/// An absolute path as the archive has it.
fn name(path: &Path) -> Done<&str> {
    let name = path.strip_prefix("/").unwrap_or(path).to_str();
    name.ok_or_else(|| {
        Failure::new(format_args!(
            "{} is no UTF-8, which names in the guest are; rename it, or leave it out of --with",
            shown::path(path)
        ))
    })
}

impl Contents<'_> {
    /// How large the archive becomes.
    pub(super) fn size(&self) -> Done<Bytes> {
        let whole = |name: &str, bytes: u64| {
            (HEAD + name.len() as u64 + 1).next_multiple_of(4) + bytes.next_multiple_of(4)
        };
        let kernel = std::fs::metadata(self.kernel).map_err(|e| unread(self.kernel, &e))?;
        let mut size = whole(OWN, 0) + whole(KERNEL, kernel.len()) + whole(TRAILER, 0);
        for note in self.notes {
            size += whole(note.name, note.bytes.len() as u64);
        }
        for (path, entry) in self.entries {
            let bytes = match entry {
                Entry::Folder(_) => 0,
                Entry::Link(target) => target.as_os_str().len() as u64,
                Entry::File(_, bytes) => bytes.get(),
                Entry::Text(_, bytes) => bytes.len() as u64,
            };
            size += whole(name(path)?, bytes);
        }
        Ok(Bytes::new(size))
    }

    /// Writes it, and says meanwhile how far it is.
    pub(super) fn write(&self, output: impl Write, progress: &ProgressBar) -> Done {
        let mut archive = Archive { output, number: 0 };
        let size = std::fs::metadata(self.kernel).map_err(|e| unread(self.kernel, &e))?.len();
        archive.bytes(OWN, ModeFileType::Directory, Mode::new(0o755), b"")?;
        archive.file(KERNEL, Mode::new(0o644), Bytes::new(size), self.kernel)?;
        for note in self.notes {
            let mode = Mode::new(0o644);
            archive.bytes(note.name, ModeFileType::Regular, mode, &note.bytes)?;
        }
        for (path, entry) in self.entries {
            let name = name(path)?;
            progress.set_message(format!("packing {}", shown::path(path)));
            match entry {
                Entry::Folder(mode) => archive.bytes(name, ModeFileType::Directory, *mode, b"")?,
                Entry::Link(target) => {
                    let target = target.as_os_str().as_bytes();
                    archive.bytes(name, ModeFileType::Symlink, Mode::new(0o777), target)?;
                }
                Entry::File(mode, bytes) => archive.file(name, *mode, *bytes, path)?,
                Entry::Text(mode, bytes) => {
                    archive.bytes(name, ModeFileType::Regular, *mode, bytes)?;
                }
            }
        }
        trailer(&mut archive.output).and_then(Write::flush).map_err(|e| unwritten(&e))
    }
}

/// An archive that is being written.
struct Archive<W> {
    output: W,
    /// Of the last entry.
    number: u32,
}

impl<W: Write> Archive<W> {
    fn entry(&mut self, name: &str, kind: ModeFileType, mode: Mode) -> Builder {
        self.number += 1;
        Builder::new(name).ino(self.number).mode(mode.0).set_mode_file_type(kind)
    }

    fn bytes(&mut self, name: &str, kind: ModeFileType, mode: Mode, bytes: &[u8]) -> Done {
        let mut writer = self.entry(name, kind, mode).write(&mut self.output, bytes.len() as u32);
        let written = writer.write_all(bytes).and_then(|()| writer.finish());
        written.map(drop).map_err(|e| unwritten(&e))
    }

    /// The bytes of the file at `from`, which has `size` of them (N3).
    fn file(&mut self, name: &str, mode: Mode, size: Bytes, from: &Path) -> Done {
        let entry = self.entry(name, ModeFileType::Regular, mode);
        let short = u32::try_from(size.get()).map_err(|_| large(from, size))?;
        let mut file = File::open(from).map_err(|e| unread(from, &e))?;
        let mut writer = entry.write(&mut self.output, short);
        let mut buffer = vec![0; 1 << 16];
        let mut due = size.get();
        while due > 0 {
            let most = buffer.len().min(due as usize);
            let got = match file.read(&mut buffer[..most]) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                got => got.map_err(|e| unread(from, &e))?,
            };
            if got == 0 {
                return Err(changed(from));
            }
            writer.write_all(&buffer[..got]).map_err(|e| unwritten(&e))?;
            due -= got as u64;
        }
        if file.read(&mut buffer[..1]).is_ok_and(|more| more > 0) {
            return Err(changed(from));
        }
        writer.finish().map(drop).map_err(|e| unwritten(&e))
    }
}

/// A file that no entry can hold.
pub(super) fn large(path: &Path, size: Bytes) -> Failure {
    Failure::new(format_args!(
        "{} has {size}, and a file of the guest's has less than {FILE_LIMIT}, whatever --memory says; \
         leave it out of --with",
        shown::path(path)
    ))
}

fn unread(path: &Path, e: &io::Error) -> Failure {
    Failure::new(format_args!(
        "{} cannot be read ({}), so the guest cannot have it; leave it out of --with",
        shown::path(path),
        why(e)
    ))
}

fn changed(path: &Path) -> Failure {
    Failure::new(format_args!(
        "{} changed while it was packed; try again when nothing writes to it",
        shown::path(path)
    ))
}

fn unwritten(e: &io::Error) -> Failure {
    Failure::new(format_args!(
        "{} takes no archive of the guest's files ({}); name another folder in TMPDIR",
        shown::path(&std::env::temp_dir()),
        why(e)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpio::newc::Reader;

    /// An entry as it is read back: name, mode with the kind, bytes.
    type Read1 = (String, u32, Vec<u8>);

    fn read(archive: &[u8]) -> Vec<Read1> {
        let (mut rest, mut all) = (archive, Vec::new());
        loop {
            let mut reader = Reader::new(rest).unwrap();
            let entry = reader.entry().clone();
            if entry.is_trailer() {
                return all;
            }
            assert_eq!((entry.uid(), entry.gid(), entry.mtime()), (0, 0, 0));
            assert_eq!(entry.ino() as usize, all.len() + 1);
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).unwrap();
            all.push((entry.name().to_owned(), entry.mode(), bytes));
            rest = reader.finish().unwrap();
        }
    }

    #[test]
    fn what_was_packed_is_read_back_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path();
        let kernel = here.join("kernel.elf");
        std::fs::write(&kernel, "a kernel").unwrap();
        std::fs::write(here.join("b"), "12345").unwrap();
        let entries = Entries::from([
            (here.join("a/in"), Entry::Folder(Mode::new(0o40700))),
            (here.join("b"), Entry::File(Mode::new(0o104755), Bytes::new(5))),
            (here.join("a"), Entry::Folder(Mode::new(0o1777))),
            (here.join("a-link"), Entry::Link("a/in".into())),
        ]);
        let notes = [Note { name: ".foliant/arguments", bytes: b"x\0y\0".to_vec() }];
        let contents = Contents { kernel: &kernel, notes: &notes, entries: &entries };
        let mut archive = Vec::new();
        contents.write(&mut archive, &ProgressBar::hidden()).unwrap();
        assert_eq!(Bytes::new(archive.len() as u64), contents.size().unwrap());
        let at = |name: &str| here.join(name).to_str().unwrap()[1..].to_owned();
        let expect = [
            (".foliant".to_owned(), 0o040_755, Vec::new()),
            (".foliant/kernel".to_owned(), 0o100_644, b"a kernel".to_vec()),
            (".foliant/arguments".to_owned(), 0o100_644, b"x\0y\0".to_vec()),
            (at("a"), 0o041_777, Vec::new()),
            (at("a/in"), 0o040_700, Vec::new()),
            (at("a-link"), 0o120_777, b"a/in".to_vec()),
            (at("b"), 0o104_755, b"12345".to_vec()),
        ];
        assert_eq!(read(&archive), expect);
        let mut again = Vec::new();
        contents.write(&mut again, &ProgressBar::hidden()).unwrap();
        assert!(again == archive, "the same files, other bytes");
    }

    #[test]
    fn a_file_that_is_not_as_it_was_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "12345").unwrap();
        let said = |bytes: u64| {
            let entry = Entry::File(Mode::new(0o644), Bytes::new(bytes));
            let entries = Entries::from([(file.clone(), entry)]);
            let contents = Contents { kernel: &file, notes: &[], entries: &entries };
            let written = contents.write(io::sink(), &ProgressBar::hidden());
            written.map_err(Failure::sentence)
        };
        assert_eq!(said(5), Ok(()));
        for other in [4, 6] {
            assert!(said(other).unwrap_err().contains("file changed while it was packed"));
        }
        let large = said(1 << 32).unwrap_err();
        assert!(large.contains("has 4g") && large.contains("--memory"), "{large}");
        std::fs::remove_file(&file).unwrap();
        let gone = said(5).unwrap_err();
        assert!(gone.contains("cannot be read") && gone.contains("no such"), "{gone}");
    }
}
