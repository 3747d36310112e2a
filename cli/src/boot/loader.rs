//! What a program needs to run: who loads it, and which libraries.
//!
//! ```text
//!   7f 45 4c 46 ─▶ ELF for x86-64 ─▶ its interpreter, which lists the libraries
//!   23 21 (#!)  ─▶ a script       ─▶ its interpreter and a word for it
//!   else        ─▶ no program
//! ```
//!
//! The loader itself is asked, for its rules are its own: search paths of a library's library,
//! caches, variants for CPUs. `--list` tells it to find all and run nothing; those of glibc and of
//! musl know it. It gets no variables of this system's, for the guest has none of them.
//!
//! **Not here**: libraries that a program opens by itself (`dlopen`), which `--with` names.

use crate::failure::{Done, Failure, why};
use crate::shown::{self, shown};
use elf::ElfStream;
use elf::abi::{EM_X86_64, PT_DYNAMIC, PT_INTERP};
use elf::endian::AnyEndian;
use elf::file::Class;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How much of a script's first line counts, as in Linux.
const LINE_MOST: usize = 255;

/// What a file is, for who would run it.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// An ELF file for x86-64.
    Elf {
        /// Who loads it, where it does not load itself.
        interpreter: Option<PathBuf>,
        /// Whether it may need libraries.
        linked: Linked,
    },
    /// A script: its interpreter, and what that is told before the script's name.
    Script { interpreter: PathBuf, word: String },
    /// Nothing that runs.
    Other,
}

/// How a file was linked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Linked {
    /// With all that it needs.
    Statically,
    /// It may need libraries.
    Dynamically,
}

/// What a file is.
pub(super) fn kind(path: &Path) -> io::Result<Kind> {
    let mut file = File::open(path)?;
    let mut start = Vec::new();
    (&mut file).take(LINE_MOST as u64).read_to_end(&mut start)?;
    if start.starts_with(b"#!") {
        return Ok(script(&start));
    }
    let elf = start.starts_with(b"\x7fELF").then(|| elf(file));
    Ok(elf.flatten().unwrap_or(Kind::Other))
}

/// A script, of its first line.
fn script(start: &[u8]) -> Kind {
    let line = start[2..].split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.trim_ascii();
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let (interpreter, word) = line.split_at(end);
    if interpreter.is_empty() {
        return Kind::Other;
    }
    let interpreter = PathBuf::from(OsStr::from_bytes(interpreter));
    Kind::Script { interpreter, word: String::from_utf8_lossy(word.trim_ascii()).into_owned() }
}

/// An ELF file; nothing where it is damaged or another machine's.
fn elf(file: File) -> Option<Kind> {
    let mut elf = ElfStream::<AnyEndian, _>::open_stream(file).ok()?;
    if elf.ehdr.class != Class::ELF64 || elf.ehdr.e_machine != EM_X86_64 {
        return None;
    }
    let of = |kind| elf.segments().iter().find(|segment| segment.p_type == kind).copied();
    let (named, dynamic) = (of(PT_INTERP), of(PT_DYNAMIC));
    let interpreter = match named {
        None => None,
        Some(segment) => {
            let name = elf.segment_data(&segment).ok()?;
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            Some(PathBuf::from(OsStr::from_bytes(name)))
        }
    };
    let linked = if dynamic.is_some() { Linked::Dynamically } else { Linked::Statically };
    Some(Kind::Elf { interpreter, linked })
}

/// The libraries that `file` needs, as `loader` finds them.
pub(super) fn libraries(loader: &Path, file: &Path) -> Done<Vec<PathBuf>> {
    let (asked, of) = (shown::path(loader), shown::path(file));
    let lost = |why: String| {
        Failure::new(format_args!(
            "the libraries of {of} are not known: `{asked} --list {of}` {why}; boot a program that is \
             linked statically, or see that this runs here"
        ))
    };
    let mut command = Command::new(loader);
    command.arg("--list").arg(file).env_clear().stdin(Stdio::null());
    let output = command.output().map_err(|e| lost(format!("does not start ({})", why(&e))))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().next_back().unwrap_or("nothing");
        return Err(lost(format!("fails and says: {}", shown(said.trim()))));
    }
    listed(&String::from_utf8_lossy(&output.stdout)).map_err(|name| {
        Failure::new(format_args!(
            "{of} needs the library {}, which `{asked} --list {of}` does not find; install it",
            shown(&name)
        ))
    })
}

/// What a loader lists, or the name of what it does not find. Lines without a path are of what the
/// kernel gives each program, or say that there is nothing.
fn listed(text: &str) -> Result<Vec<PathBuf>, String> {
    let mut paths = Vec::new();
    for line in text.lines().map(str::trim) {
        let (name, found) = line.split_once(" => ").unwrap_or(("", line));
        if found.starts_with("not found") {
            return Err(name.to_owned());
        }
        let path = found.rsplit_once(" (0x").map_or(found, |(path, _)| path);
        if path.starts_with('/') || !name.is_empty() && path.contains('/') {
            paths.push(PathBuf::from(path));
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_loaders_list_is_read() {
        let glibc = "\tlinux-vdso.so.1 (0x00007ffd3a9f2000)\n\
            \tlibselinux.so.1 => /lib/x86_64-linux-gnu/libselinux.so.1 (0x00007f1c0a000000)\n\
            \tlibodd (0x1).so => /opt/a b (0x1)/libodd (0x1).so (0x00007f1c09e00000)\n\
            \tlibhere.so => ./libhere.so (0x00007f1c09d00000)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f1c0a2d5000)\n";
        let paths = [
            "/lib/x86_64-linux-gnu/libselinux.so.1",
            "/opt/a b (0x1)/libodd (0x1).so",
            "./libhere.so",
            "/lib64/ld-linux-x86-64.so.2",
        ];
        assert_eq!(listed(glibc), Ok(paths.map(PathBuf::from).to_vec()));
        let musl = "\t/lib/ld-musl-x86_64.so.1 (0x7f0a3b5f1000)\n\
            \tlibz.so.1 => /lib/libz.so.1 (0x7f0a3b5d2000)\n\
            \tlibc.musl-x86_64.so.1 => /lib/ld-musl-x86_64.so.1 (0x7f0a3b5f1000)\n";
        let paths = ["/lib/ld-musl-x86_64.so.1", "/lib/libz.so.1", "/lib/ld-musl-x86_64.so.1"];
        assert_eq!(listed(musl), Ok(paths.map(PathBuf::from).to_vec()));
        for nothing in ["", "\tstatically linked\n"] {
            assert_eq!(listed(nothing), Ok(Vec::new()));
        }
        assert_eq!(listed("\tliba.so => not found\n"), Err("liba.so".to_owned()));
    }

    #[test]
    fn a_file_is_known_by_its_first_bytes() {
        let kind_of = |bytes: &[u8]| {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(bytes).unwrap();
            kind(file.path()).unwrap()
        };
        let script = |interpreter: &str, word: &str| Kind::Script {
            interpreter: interpreter.into(),
            word: word.to_owned(),
        };
        for (text, expect) in [
            ("#!/bin/sh\necho", script("/bin/sh", "")),
            ("#! /usr/bin/env  python3 -u \nx", script("/usr/bin/env", "python3 -u")),
            ("#!/bin/sh", script("/bin/sh", "")),
            ("#!\n/bin/sh", Kind::Other),
            ("#!", Kind::Other),
            ("", Kind::Other),
            ("echo", Kind::Other),
            ("\x7fELF", Kind::Other),
        ] {
            assert_eq!(kind_of(text.as_bytes()), expect, "{text:?}");
        }
        // A head alone, of x86-64 and of other machines.
        let head = |class: u8, machine: u8| {
            let mut bytes = [0; 64];
            bytes[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1, 1]);
            (bytes[16], bytes[18], bytes[20], bytes[52]) = (2, machine, 1, 64);
            bytes
        };
        let linked = Linked::Statically;
        assert_eq!(kind_of(&head(2, 62)), Kind::Elf { interpreter: None, linked });
        assert_eq!(kind_of(&head(2, 183)), Kind::Other);
        assert_eq!(kind_of(&head(1, 62)), Kind::Other);
    }

    /// This test is a program too, where programs are of ELF and for x86-64.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    #[test]
    fn a_real_loader_is_asked() {
        let here = std::env::current_exe().unwrap();
        let Kind::Elf { interpreter, linked } = kind(&here).unwrap() else { panic!("no ELF") };
        let Some(loader) = interpreter else { return };
        assert_eq!(linked, Linked::Dynamically);
        let paths = libraries(&loader, &here).unwrap();
        assert!(paths.iter().all(|path| path.is_absolute() && path.is_file()), "{paths:?}");
        assert!(paths.iter().any(|path| path.to_string_lossy().contains("libc.")), "{paths:?}");
        let said = libraries(&loader, Path::new("/no/program")).unwrap_err().sentence();
        assert!(said.contains("--list /no/program` fails and says: "), "{said}");
        let said = libraries(Path::new("/no/loader"), &here).unwrap_err().sentence();
        assert!(said.contains("/no/loader --list") && said.contains("does not start"), "{said}");
    }
}
