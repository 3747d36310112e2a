//! The start information of the PVH protocol.

use super::{Given, word32, word64};
use core::fmt;
use foliant_units::{Bytes, Pa};

const MAGIC: u32 = 0x336e_c578;
/// Without a memory map, and with one.
const SIZES: [u64; 2] = [40, 56];
const ENTRY: u64 = 24;
const RAM: u32 = 1;
/// Bytes of a command line at most, with its end.
pub const TEXT_MAX: usize = 1024;
/// Longer maps are not believed.
const ENTRIES_MAX: u32 = 4096;

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

/// Why there is no memory map. An entry that is not read could be one that reserves what another
/// one calls usable, so a map is read whole or not at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoMap {
    /// The loader's start information is of a version that has none.
    Version0,
    /// It has no entry.
    Empty,
    /// It has more entries than are believed.
    TooLong {
        /// How many.
        entries: u32,
    },
    /// It lies where nothing can be read.
    Unreadable {
        /// Where.
        at: Pa,
    },
}

impl fmt::Display for NoMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoMap::Version0 => {
                write!(f, "the loader gives no memory map: its start information is of version 0")
            }
            NoMap::Empty => write!(f, "the loader's memory map is empty"),
            NoMap::TooLong { entries } => {
                write!(f, "the loader's memory map has {entries} entries: {ENTRIES_MAX} are read")
            }
            NoMap::Unreadable { at } => {
                write!(f, "the loader's memory map lies at {at}, where nothing can be read")
            }
        }
    }
}

impl core::error::Error for NoMap {}

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

    /// The command line; what is not UTF-8, has no end, or begins less than [`TEXT_MAX`] bytes
    /// before the end of what is given, is none.
    pub fn command_line(&self) -> &'a str {
        let at = word64(self.words, 24).filter(|at| *at != 0);
        let text = at.and_then(|at| self.given.bytes(Pa::new(at), Bytes::new(TEXT_MAX as u64)));
        let text = text.unwrap_or_default();
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(0);
        core::str::from_utf8(&text[..end]).unwrap_or("")
    }

    /// Where the ACPI root pointer is, or 0.
    pub fn rsdp(&self) -> Pa {
        Pa::new(word64(self.words, 32).unwrap_or(0))
    }

    /// The memory map.
    pub fn entries(&self) -> Result<impl Iterator<Item = Entry> + Clone + use<'a, G>, NoMap> {
        let list = word64(self.words, 40).ok_or(NoMap::Version0)?;
        let entries = word32(self.words, 48).ok_or(NoMap::Version0)?;
        if entries == 0 {
            return Err(NoMap::Empty);
        }
        if entries > ENTRIES_MAX {
            return Err(NoMap::TooLong { entries });
        }
        let at = Pa::new(list);
        let words = self.given.bytes(at, Bytes::new(u64::from(entries) * ENTRY));
        let words = words.ok_or(NoMap::Unreadable { at })?.chunks_exact(ENTRY as usize);
        Ok(words.filter_map(|words| {
            let (start, bytes) = (Pa::new(word64(words, 0)?), Bytes::new(word64(words, 8)?));
            Some(Entry { start, bytes, kind: word32(words, 16)? })
        }))
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
