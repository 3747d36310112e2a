//! Names of addresses, from the symbol table of the kernel's own file.

use crate::archive;
use elf::ElfBytes;
use elf::abi::STT_FUNC;
use elf::endian::LittleEndian;

/// The function that contains `at`, and how far inside it.
pub(crate) fn find(at: u64) -> Option<(&'static str, u64)> {
    let elf = ElfBytes::<LittleEndian>::minimal_parse(archive::kernel()?).ok()?;
    let (symbols, names) = elf.symbol_table().ok()??;
    let below = symbols
        .iter()
        .filter(|s| s.st_symtype() == STT_FUNC || s.st_symtype() == 0)
        .filter(|s| s.st_value <= at && s.st_shndx != 0);
    let best = below.max_by_key(|s| (s.st_value, s.st_size))?;
    let name = names.get(best.st_name as usize).ok()?;
    Some((name, at - best.st_value))
}
