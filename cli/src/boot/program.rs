//! `foliant boot -- PROGRAM`: an unmodified program of Linux on the kernel.
//!
//! ```text
//!   pack ─▶ archive ─▶ QEMU ─┬─ COM2, port 0xe9 ─▶ this command's streams, byte for byte
//!                            └─ COM1 ─▶ a file ─▶ words ─▶ how it ended, what was missing, counts
//! ```
//!
//! **Invariants**
//! - T1. Nothing of this command's own stands on standard output, and nothing on standard error
//!   while the program runs.
//! - T2. How the program ends is how this command ends. Where the kernel panics behind that, or
//!   says nothing of an end, the kernel's verdict counts.
//!
//! **Not here**: what is packed (`pack`), what the kernel says (`words`).

use super::archive::Contents;
use super::pack::{self, Asked, Login};
use super::qemu::{self, Files, Input, Piece};
use super::seat::{Raw, Seat};
use super::words::{End, Words};
use super::{Ended, Linux, Mode, NO_VERDICT, Options, PANICKED, kernel};
use crate::args::{Boot, Form};
use crate::failure::{Done, Failure, tell, why};
use crate::{progress, shown};
use foliant_units::Bytes;
use std::ffi::OsString;
use std::io::{BufWriter, ErrorKind, Read, Write};
use std::path::Path;
use std::time::Duration;
use tempfile::NamedTempFile;

/// `foliant boot -- PROGRAM`, or a shell that somebody logs in to, which reads `input`: keys, where
/// somebody sits at a terminal.
pub(super) fn run(
    args: &Boot,
    (command, login): (&[OsString], Login),
    emulator: &Path,
    input: impl Read + Send + 'static,
    seat: Option<Seat>,
) -> Done {
    let here = std::env::current_dir().map_err(|e| {
        Failure::new(format_args!("the current folder is lost ({}); go to another one", why(&e)))
    })?;
    let (path, terminal) = (std::env::var_os("PATH").unwrap_or_default(), std::env::var_os("TERM"));
    let asked = Asked {
        command,
        with: &args.with,
        path: &path,
        here: &here,
        terminal: terminal.as_deref(),
        login,
    };
    let spinner = progress::spinner("looking for the guest's files");
    let packed = pack::gather(asked, &spinner);
    spinner.finish_and_clear();
    let packed = packed?;
    let image = kernel::image(args.guest.kernel.as_deref())?;
    let (kernel, notes, entries) = (image.path(), &packed.notes[..], &packed.entries);
    let contents = Contents { kernel, notes, entries };
    let size = contents.size()?;
    let (folio, stats) = (args.folio, args.stats.is_some());
    let linux = Linux { folio, stats, counts: false, archive: size, seat };
    let (size, guest) = (args.size.size(), args.guest.clone());
    let options = Options { mode: Mode::Program(linux), size, guest };
    pack::fits(entries, linux.archive, size.memory)?;
    options.check()?;
    let archive = written(&contents)?;
    let words = temporary("foliant-words-")?;
    let files = Files { archive: archive.path(), words: words.path() };
    let arguments = qemu::streamed(kernel, &files, &options);
    let input: Box<dyn Read + Send> = Box::new(input);
    let input = if seat.is_some() { Input::Keys(input) } else { Input::Bytes(input) };
    let raw = seat.and_then(|_| Raw::new());
    let ended = qemu::stream(emulator, arguments, options.timeout(), input, hear);
    drop(raw); // what follows is said on a terminal as it was
    let ended = ended?;
    let said = std::fs::read(words.path()).map_err(|e| {
        Failure::new(format_args!("what the kernel said cannot be read ({})", why(&e)))
    })?;
    let name = shown::shown(&command[0].to_string_lossy());
    told(&Words::read(&said), ended, &name, args.stats, options.timeout())
}

/// The archive as a file.
pub(super) fn written(contents: &Contents<'_>) -> Done<NamedTempFile> {
    let file = temporary("foliant-files-")?;
    let spinner = progress::spinner("packing");
    let done = contents.write(BufWriter::with_capacity(1 << 18, file.as_file()), &spinner);
    spinner.finish_and_clear();
    done.map(|()| file)
}

pub(super) fn temporary(prefix: &str) -> Done<NamedTempFile> {
    NamedTempFile::with_prefix(prefix).map_err(|e| {
        Failure::new(format_args!(
            "{} takes no file ({}), which the guest needs; name another folder in TMPDIR",
            shown::path(&std::env::temp_dir()),
            why(&e)
        ))
    })
}

/// Hands on what the program says, at once.
fn hear(piece: Piece) -> Done {
    match piece {
        Piece::Output(bytes) => {
            let mut out = std::io::stdout().lock();
            match out.write_all(&bytes).and_then(|()| out.flush()) {
                Ok(()) => Ok(()),
                Err(e) if e.kind() == ErrorKind::BrokenPipe => Err(Failure::Unread),
                Err(e) => Err(Failure::new(format_args!(
                    "standard output cannot be written ({})",
                    why(&e)
                ))),
            }
        }
        Piece::Errors(bytes) => {
            let _ = std::io::stderr().write_all(&bytes); // as in `tell`
            Ok(())
        }
    }
}

/// Says what the kernel said, and how it ended (T2).
fn told(
    words: &Words,
    ended: Ended,
    program: &str,
    stats: Option<Form>,
    timeout: Option<Duration>,
) -> Done {
    let end = words.end().filter(|end| counts(*end, ended));
    if end.is_none() && ended != Ended::Interrupted {
        words.last().for_each(tell);
    }
    for sentence in words.missing() {
        tell(format_args!("foliant: {sentence}"));
    }
    if let Some(form) = stats {
        match text(words, form) {
            Ok(text) => tell(text.trim_end()),
            Err(failure) => tell(format_args!("foliant: {}", shown::said(&failure.sentence()))),
        }
    }
    match end {
        Some(end) => end.verdict(program),
        None if ended == Ended::Verdict(0) => Err(Failure::Coded(
            NO_VERDICT,
            format!("the kernel ended well and did not say how {program} ended"),
        )),
        None => ended.verdict(timeout),
    }
}

/// Whether the program's end counts, where the guest ended so.
fn counts(end: End, ended: Ended) -> bool {
    match ended {
        Ended::Interrupted => false,
        Ended::Verdict(PANICKED) => end == End::Exit(PANICKED),
        _ => true,
    }
}

fn text(words: &Words, form: Form) -> Done<String> {
    match (words.counts()?, form) {
        (None, _) => Err(Failure::new("the kernel counted nothing")),
        (Some(counts), Form::Table) => Ok(counts.table()),
        (Some(counts), Form::Json) => counts.line(),
    }
}

impl Linux {
    /// The memory that the guest has, where nothing is asked for: `least`, or several times what
    /// is packed.
    pub(super) fn memory(self, least: Bytes) -> Bytes {
        let ample = Bytes::new((4 * self.archive.get()).next_multiple_of(1 << 20));
        ample.max(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::tests::asked;

    /// All of it, with a stand-in for QEMU that ends with 3 where it gets an archive.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    #[test]
    fn a_program_is_packed_and_run_and_its_end_is_the_command_s() {
        let fake = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake_streams.sh"));
        let kernel = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let code = |options: &str| {
            let line = format!("foliant boot --kernel {kernel} {options} -- /bin/sh");
            let boot = asked(&line).unwrap();
            match run(&boot, (&boot.command, Login::No), fake, &b"typed"[..], None) {
                Err(Failure::Code(code)) => Ok(code),
                other => Err(other.unwrap_err().sentence()),
            }
        };
        assert_eq!(code("--stats json"), Ok(3));
        let small = code("--memory 8m --with /bin/sh --with /dev").unwrap_err();
        assert!(small.contains("--with /dev cannot be packed"), "{small}");
        let large = code(&format!("--memory 8m --with {}", here().display())).unwrap_err();
        assert!(large.contains("more than half of --memory 8m"), "{large}");
    }

    /// This test, which is larger than a small guest takes.
    fn here() -> std::path::PathBuf {
        std::env::current_exe().unwrap()
    }

    #[test]
    fn a_program_s_end_counts_unless_the_kernel_s_is_worse() {
        let code = |text: &str, ended: Ended| match told(
            &Words::read(text.as_bytes()),
            ended,
            "tool",
            None,
            None,
        ) {
            Ok(()) => 0,
            Err(Failure::Code(code) | Failure::Coded(code, _)) => code,
            Err(other) => panic!("{other:?}"),
        };
        for (text, ended, expect) in [
            ("ended exit=0", Ended::Verdict(0), 0),
            ("ended exit=3", Ended::Verdict(0), 3),
            ("ended exit=3", Ended::Verdict(3), 3),
            ("ended exit=3", Ended::Verdict(1), 3),
            ("ended signal=9", Ended::Verdict(0), 137),
            ("ended exit=101", Ended::Verdict(101), 101),
            ("ended exit=0\nPANIC on cpu 0", Ended::Verdict(101), 101),
            ("ended signal=6\nPANIC on cpu 0", Ended::Verdict(101), 101),
            ("ended exit=0", Ended::Interrupted, 130),
            ("ended exit=0", Ended::TimedOut, 0),
            ("", Ended::Verdict(0), 70),
            ("", Ended::Verdict(101), 101),
            ("", Ended::Verdict(3), 3),
            ("", Ended::Reset, 70),
            ("", Ended::TimedOut, 124),
            ("", Ended::Interrupted, 130),
        ] {
            assert_eq!(code(text, ended), expect, "{text:?}, {ended:?}");
        }
    }

    #[test]
    fn counts_are_said_in_the_form_that_is_asked_for() {
        let words = Words::read(b"{\"faults\":3}\nended exit=0\n");
        let table = text(&words, Form::Table).unwrap();
        assert_eq!(table.lines().nth(1).unwrap().split_whitespace().last(), Some("3"));
        assert!(text(&words, Form::Json).unwrap().contains("\"faults\":3"));
        let nothing = text(&Words::read(b""), Form::Table).unwrap_err().sentence();
        assert_eq!(nothing, "the kernel counted nothing");
    }

    #[test]
    fn the_guest_has_room_for_its_files() {
        let mib = |n: u64| Bytes::new(n << 20);
        let memory = |archive: Bytes| {
            let seat = None;
            Linux { folio: None, stats: false, counts: false, archive, seat }.memory(mib(512))
        };
        assert_eq!(memory(mib(1)), mib(512));
        assert_eq!(memory(mib(128)), mib(512));
        assert_eq!(memory(Bytes::new(mib(128).get() + 1)), mib(513));
    }
}
