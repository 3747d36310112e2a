//! What the loader says: command line, memory map, modules. The start information of the PVH protocol, version 1.
//!
//! It is checked once, here: whatever does not lie in the direct map is taken for absent, and texts and tables have bounds.
#![allow(unsafe_code)]

use crate::layout::{DIRECT_MAX, direct};
use foliant_units::{Bytes, Pa};

const MAGIC: u32 = 0x336e_c578;
const RAM: u32 = 1;
const TEXT_MAX: usize = 1024;
const ENTRIES_MAX: u32 = 128;

#[repr(C)]
#[derive(Clone, Copy)]
struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    modules: u32,
    module_list: u64,
    command_line: u64,
    rsdp: u64,
    memory_map: u64,
    memory_entries: u32,
    reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct MemoryEntry {
    base: u64,
    bytes: u64,
    kind: u32,
    reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct ModuleEntry {
    base: u64,
    bytes: u64,
    command_line: u64,
    reserved: u64,
}

/// The loader's words.
#[derive(Clone, Copy)]
pub(crate) struct Info {
    start: StartInfo,
}

fn read<T: Copy>(at: u64) -> Option<T> {
    let inside = at != 0 && at < DIRECT_MAX - size_of::<T>() as u64;
    // SAFETY: inside the direct map; the loader's structures are plain integers.
    inside.then(|| unsafe { direct(Pa::new(at)).cast::<T>().read_unaligned() })
}

impl Info {
    /// Reads what lies at `at`, if it is start information.
    pub(crate) fn read(at: u64) -> Option<Info> {
        read::<StartInfo>(at).filter(|start| start.magic == MAGIC).map(|start| Info { start })
    }

    /// The command line; what is not UTF-8 ends it.
    pub(crate) fn command_line(&self) -> &'static str {
        let at = self.start.command_line;
        if at == 0 || at > DIRECT_MAX - TEXT_MAX as u64 {
            return "";
        }
        // SAFETY: inside the direct map, and nobody writes below 1 MiB, where the loader puts it.
        let text = unsafe { core::slice::from_raw_parts(direct(Pa::new(at)), TEXT_MAX) };
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(0);
        core::str::from_utf8(&text[..end]).unwrap_or("")
    }

    /// Where the ACPI root pointer is, or 0.
    pub(crate) fn rsdp(&self) -> u64 {
        self.start.rsdp
    }

    /// Usable memory, as the loader lists it.
    pub(crate) fn ram(&self) -> impl Iterator<Item = (Pa, Bytes)> {
        let Info { start } = *self;
        let entries = 0..u64::from(start.memory_entries.min(ENTRIES_MAX));
        let entry =
            move |n| read::<MemoryEntry>(start.memory_map + n * size_of::<MemoryEntry>() as u64);
        entries
            .filter_map(entry)
            .filter(|e| e.kind == RAM)
            .map(|e| (Pa::new(e.base), Bytes::new(e.bytes)))
    }

    /// The first module: the kernel's own file, for its symbols.
    pub(crate) fn module(&self) -> Option<(Pa, Bytes)> {
        let entry =
            read::<ModuleEntry>(self.start.module_list).filter(|_| self.start.modules > 0)?;
        (entry.base < DIRECT_MAX && entry.bytes < DIRECT_MAX - entry.base)
            .then(|| (Pa::new(entry.base), Bytes::new(entry.bytes)))
    }
}
