//! The start information of the PVH protocol.

use super::{Given, word32, word64};
use foliant_units::{Bytes, Pa};

const MAGIC: u32 = 0x336e_c578;
/// Without a memory map, and with one.
const SIZES: [u64; 2] = [40, 56];
const ENTRY: u64 = 24;
const RAM: u32 = 1;
const TEXT_MAX: u64 = 1024;
const ENTRIES_MAX: u32 = 128;

/// A stretch of physical addresses, as the loader lists it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The first address.
    pub start: Pa,
    /// How long it is; it may leave the address space.
    pub bytes: Bytes,
    /// What the loader calls it: 1 is usable memory.
    pub kind: u32,
}

impl Entry {
    /// Whether it is usable memory.
    pub const fn is_ram(&self) -> bool {
        self.kind == RAM
    }
}

/// The loader's words.
#[derive(Clone, Copy, Debug)]
pub struct Info<'a, G> {
    given: G,
    words: &'a [u8],
}

impl<'a, G: Given<'a>> Info<'a, G> {
    /// Reads what lies at `at`, if it is start information.
    pub fn read(given: G, at: Pa) -> Option<Info<'a, G>> {
        let short = given.bytes(at, Bytes::new(SIZES[0]))?;
        if word32(short, 0)? != MAGIC {
            return None;
        }
        let words = match word32(short, 4)? {
            0 => short,
            _ => given.bytes(at, Bytes::new(SIZES[1]))?,
        };
        Some(Info { given, words })
    }

    /// The command line; what is not UTF-8, or has no end, is none.
    pub fn command_line(&self) -> &'a str {
        let at = word64(self.words, 24).filter(|at| *at != 0);
        let text = at.and_then(|at| self.given.bytes(Pa::new(at), Bytes::new(TEXT_MAX)));
        let text = text.unwrap_or_default();
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(0);
        core::str::from_utf8(&text[..end]).unwrap_or("")
    }

    /// Where the ACPI root pointer is, or 0.
    pub fn rsdp(&self) -> Pa {
        Pa::new(word64(self.words, 32).unwrap_or(0))
    }

    /// The memory map; empty with a loader that gives none. Entries behind the 128th are not read.
    pub fn entries(&self) -> impl Iterator<Item = Entry> + Clone + use<'a, G> {
        let given = self.given;
        let list = word64(self.words, 40).unwrap_or(0);
        let count = word32(self.words, 48).unwrap_or(0).min(ENTRIES_MAX);
        (0..u64::from(count)).map_while(move |n| {
            let at = list.checked_add(n * ENTRY)?;
            let words = given.bytes(Pa::new(at), Bytes::new(ENTRY))?;
            let (start, bytes) = (Pa::new(word64(words, 0)?), Bytes::new(word64(words, 8)?));
            Some(Entry { start, bytes, kind: word32(words, 16)? })
        })
    }

    /// The first module: where it is, and what is in it.
    pub fn module(&self) -> Option<(Pa, &'a [u8])> {
        word32(self.words, 12).filter(|modules| *modules > 0)?;
        let list = Pa::new(word64(self.words, 16)?);
        let words = self.given.bytes(list, Bytes::new(16))?;
        let (start, bytes) = (Pa::new(word64(words, 0)?), Bytes::new(word64(words, 8)?));
        self.given.bytes(start, bytes).map(|module| (start, module))
    }
}
