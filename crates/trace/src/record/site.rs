//! Who asked for a mapping: the code behind the call of `mmap`, found on the caller's stack.
//!
//! ```text
//!   rsp ─▶ ... │ libc+0x9f2e1 │ ... │ libjemalloc+0x61c0 │ ... │ program+0x11a4 │ ...
//!               malloc's:              an allocator's          the first word that is of neither:
//!               asked through it                               the site
//! ```
//!
//! The call's own wrapper is seldom there: glibc's has no frame. A word counts where it points
//! behind a call instruction in an executable map of a file. The instruction is read from that
//! file, never from the program's memory, and of the stack only pages that are present are read:
//! looking brings no page. Frames are not unwound, so a word that was left on the stack by an
//! earlier call may be taken for a caller; it is then so in each run.
//!
//! **Invariants**
//! - S1. Nothing of the program's is written, and no page of it is brought (`tracer::T1`).
//! - S2. At most [`SCANNED`] bytes of a stack are read for a mapping, and a place in a file once.
//! - S3. A site's offset is one in its file (`wish::W2`).
//!
//! **Not here**: memory that is asked for by the program break, which has one place; what is done
//! with a site.

use super::procfs;
use super::sys::{self, pid_t};
use crate::site::Site;
use foliant_units::{FRAME_BYTES, Va, VaRange};
use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::rc::Rc;

/// Bytes of a stack that are looked through.
const SCANNED: u64 = 4096;
/// The longest call instruction without prefixes.
const LONGEST: u64 = 7;
/// Places in files that are remembered; then all are forgotten.
const KNOWN_MOST: usize = 1 << 16;

/// Names of files, up to a dot or dash, whose code asks for memory in the name of others: the C
/// library and its loader, C++'s operators, allocators.
const LIBRARIES: [&str; 15] = [
    "libc",
    "ld",
    "libpthread",
    "libstdc++",
    "libc++",
    "libc++abi",
    "libgcc_s",
    "libjemalloc",
    "libmimalloc",
    "libtcmalloc",
    "libtcmalloc_minimal",
    "libtbbmalloc",
    "libhoard",
    "libsnmallocshim",
    "librpmalloc",
];

/// Whether a file's code asks for memory in the name of others.
fn is_library(name: &str) -> bool {
    let stem = name.split(['.', '-']).next().unwrap_or(name);
    name.contains(".so") && LIBRARIES.contains(&stem)
}

/// Who asked for a mapping.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Caller {
    /// The place in the code; the innermost one where all that was found is of libraries.
    pub(crate) site: Option<Site>,
    /// The library that it asked, by its file's name: the allocator, where there is one.
    pub(crate) through: Option<String>,
}

/// An executable map of a file.
#[derive(Debug)]
struct Object {
    range: VaRange,
    /// Where in the file the map begins.
    offset: u64,
    path: String,
}

impl Object {
    fn name(&self) -> String {
        procfs::file_name(&self.path)
    }
    fn offset_of(&self, address: u64) -> u64 {
        (address - self.range.start().get()).saturating_add(self.offset)
    }
}

/// One line of `/proc/PID/maps`, if it is an executable map of a file.
fn object(line: &str) -> Option<Object> {
    let area = procfs::area(line)?;
    let mut words = line.split_ascii_whitespace();
    let rights = words.nth(1)?;
    let offset = u64::from_str_radix(words.next()?, 16).ok()?;
    let path = &line[line.find('/')?..];
    rights.contains('x').then(|| Object { range: area.range, offset, path: path.to_owned() })
}

/// Finds callers, and remembers which files processes have mapped.
#[derive(Default)]
pub(crate) struct Sites {
    objects: HashMap<pid_t, Rc<[Object]>>,
    /// Whether a place in a file is behind a call.
    known: HashMap<(String, u64), bool>,
}

impl Sites {
    /// What the process has mapped here may have changed.
    pub(crate) fn changed(&mut self, group: pid_t, range: VaRange) {
        let is_one = |object: &Object| !object.range.intersect(range).is_empty();
        if self.objects.get(&group).is_some_and(|objects| objects.iter().any(is_one)) {
            self.forget(group);
        }
    }

    /// The process has other maps of files than before, or is gone.
    pub(crate) fn forget(&mut self, group: pid_t) {
        self.objects.remove(&group);
    }

    /// Who makes the call that a thread of `group` stopped at, with this stack pointer and words of
    /// so many bytes.
    pub(crate) fn caller(&mut self, group: pid_t, stack: u64, word_bytes: usize) -> Caller {
        let objects = self.objects.entry(group).or_insert_with(|| objects(group)).clone();
        let mut caller = Caller::default();
        let mut left = SCANNED;
        let mut at = stack;
        while left > 0 {
            let here = left.min(FRAME_BYTES - at % FRAME_BYTES);
            // The call has just written to the first page; a later one may be absent.
            let page = procfs::sized(at / FRAME_BYTES * FRAME_BYTES, FRAME_BYTES);
            if at != stack && procfs::present(group, page).is_empty() {
                break;
            }
            let mut bytes = [0; SCANNED as usize];
            let read = sys::read_memory(group, at, &mut bytes[..here as usize]);
            for word in bytes[..read].chunks_exact(word_bytes) {
                let word = word.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
                if self.see(group, &objects, word, word_bytes as u32 * 8, &mut caller) {
                    return caller;
                }
            }
            if read < here as usize {
                break;
            }
            (at, left) = (at.wrapping_add(here), left - here);
        }
        caller
    }

    /// Takes in a word of the stack; whether the caller is known now.
    fn see(
        &mut self,
        group: pid_t,
        objects: &[Object],
        word: u64,
        bits: u32,
        caller: &mut Caller,
    ) -> bool {
        let behind = objects.partition_point(|object| object.range.end() <= Va::new(word));
        let Some(object) = objects.get(behind).filter(|o| o.range.contains(Va::new(word))) else {
            return false;
        };
        let offset = object.offset_of(word);
        if !self.is_behind_call(group, object, offset, bits) {
            return false;
        }
        let name = object.name();
        let site = Site { object: name.clone(), offset };
        if is_library(&name) {
            caller.site.get_or_insert(site);
            caller.through.get_or_insert(name);
            return false;
        }
        caller.site = Some(site);
        true
    }

    fn is_behind_call(&mut self, group: pid_t, object: &Object, offset: u64, bits: u32) -> bool {
        if self.known.len() >= KNOWN_MOST {
            self.known.clear();
        }
        let key = (object.path.clone(), offset);
        *self.known.entry(key).or_insert_with(|| {
            let mut code = [0; LONGEST as usize];
            let Some(start) = offset.checked_sub(LONGEST) else { return false };
            let read = read_file(group, &object.path, start, &mut code);
            read.is_some() && ends_with_call(&code, bits)
        })
    }
}

/// The maps of a process, in order of address.
fn objects(pid: pid_t) -> Rc<[Object]> {
    let text = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().filter_map(object).collect()
}

/// Reads from a file as the process sees it by that name. What is no file is not waited for.
fn read_file(pid: pid_t, path: &str, at: u64, into: &mut [u8]) -> Option<()> {
    let path = format!("/proc/{pid}/root{path}");
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    file.read_exact_at(into, at).ok()
}

/// Whether these bytes end with a call instruction.
fn ends_with_call(code: &[u8], bits: u32) -> bool {
    (2..=code.len()).any(|length| {
        let code = &code[code.len() - length..];
        let found = Decoder::new(bits, code, DecoderOptions::NONE).decode();
        found.mnemonic() == Mnemonic::Call && found.len() == length
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_seen_by_its_end() {
        let ends = |code: &[u8]| ends_with_call(code, 64);
        assert!(ends(&[0x90, 0x90, 0xe8, 1, 2, 3, 4])); // call rel32
        assert!(ends(&[0, 0xff, 0x15, 1, 2, 3, 4])); // call [rip+disp32]
        assert!(ends(&[0x90, 0x90, 0x90, 0x90, 0x41, 0xff, 0xd4])); // call r12
        assert!(ends(&[0x90, 0x90, 0x90, 0x90, 0xff, 0x50, 0x18])); // call [rax+0x18]
        assert!(ends(&[0xff, 0x94, 0xc3, 1, 2, 3, 4])); // call [rbx+rax*8+disp32]
        assert!(!ends(&[0x90; 7]));
        assert!(!ends(&[0x90, 0x90, 0xe9, 1, 2, 3, 4])); // jmp rel32
        assert!(!ends(&[0x90, 0xe8, 1, 2, 3, 4, 0x90]), "something follows the call");
        assert!(!ends(&[0x90, 0x90, 0x90, 0x90, 0x90, 0x0f, 0x05])); // syscall
    }

    #[test]
    fn libraries_are_known_by_their_files_names() {
        for name in [
            "libc.so.6",
            "libc-2.31.so",
            "ld-linux-x86-64.so.2",
            "ld-musl-x86_64.so.1",
            "libstdc++.so.6.0.30",
            "libjemalloc.so.2",
            "libtcmalloc_minimal.so.4",
            "libmimalloc.so.2.1",
        ] {
            assert!(is_library(name), "{name}");
        }
        for name in ["", "libc", "gcc", "libcrypto.so.3", "libclang.so", "ld", "libc_extra.so.1"] {
            assert!(!is_library(name), "{name}");
        }
    }

    #[test]
    fn only_executable_maps_of_files_are_objects() {
        let read = |line: &str| {
            object(line).map(|o| (o.name(), o.offset_of(o.range.start().get() + 0x12)))
        };
        let line = "7f0000001000-7f0000003000 r-xp 00028000 fe:00 77   /usr/lib/a b/libx.so.1";
        assert_eq!(read(line), Some(("libx.so.1".to_owned(), 0x28012)));
        assert_eq!(
            read(&format!("{line} (deleted)")),
            Some(("libx.so.1".to_owned(), 0x28012)),
            "the file's name is still the one it had"
        );
        assert_eq!(read(&line.replace("r-xp", "r--p")), None);
        assert_eq!(read("7f0000001000-7f0000003000 r-xp 00000000 00:00 0   [vdso]"), None);
        assert_eq!(read("7f0000001000-7f0000003000 r-xp 00000000 00:00 0"), None);
    }

    /// A function that looks for its own caller finds code of this program.
    #[test]
    fn a_caller_of_this_program_is_found_on_its_stack() {
        #[inline(never)]
        fn look(sites: &mut Sites) -> Caller {
            let here = 0u64;
            let stack = std::ptr::from_ref(&here).addr() as u64;
            sites.caller(std::process::id() as pid_t, stack, 8)
        }
        let mut sites = Sites::default();
        // One call, however often it is made: two in a row would be two places.
        let times = std::hint::black_box(2);
        let found: Vec<Caller> = (0..times).map(|_| look(&mut sites)).collect();
        let own = std::env::current_exe().unwrap();
        let site = found[0].site.clone().expect("a caller");
        assert_eq!(Some(site.object.as_str()), own.file_name().and_then(|n| n.to_str()));
        assert_eq!(found[0], found[1], "the same place each time");
        sites.forget(std::process::id() as pid_t);
        assert_eq!(look(&mut sites).site.map(|s| s.object), Some(site.object));
    }
}
