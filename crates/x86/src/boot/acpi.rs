//! The CPUs that the firmware lists: RSDP, RSDT or XSDT, MADT.

use super::{Given, word, word32, word64};
use crate::ApicId;
use foliant_units::{Bytes, Pa};

/// Tables longer than this are not believed.
const TABLE_MAX: u32 = 1 << 20;
/// Bytes before a table's own content; of the MADT before its entries.
const HEADER: usize = 36;
const MADT_HEADER: usize = 44;
const ENABLED: u32 = 1;
/// Where firmware of old leaves its root pointer, at a multiple of 16.
const AREA: core::ops::Range<u64> = 0xe_0000..0x10_0000;

/// The root pointer: where the loader says it is, or in the firmware's area.
fn root_pointer<'a>(given: impl Given<'a>, hint: Pa) -> Option<&'a [u8]> {
    // Revision 0 has 20 bytes, later ones 36.
    let words = |at| [36, 20].into_iter().find_map(|size| given.bytes(at, Bytes::new(size)));
    let is = |at| words(at).filter(|words: &&[u8]| words.starts_with(b"RSD PTR "));
    is(hint).or_else(|| AREA.step_by(16).find_map(|at| is(Pa::new(at))))
}

/// Writes the CPUs that can be used into `list`, and returns how many there are: maybe more than the list holds.
pub fn cpus<'a>(given: impl Given<'a>, hint: Pa, list: &mut [ApicId]) -> Option<usize> {
    let pointer = root_pointer(given, hint)?;
    let revision = *pointer.get(15)?;
    let extended = word64(pointer, 24).filter(|at| revision >= 2 && *at != 0);
    let (root, width) = match extended {
        Some(root) => (root, 8),
        None => (u64::from(word32(pointer, 16)?), 4),
    };
    let mut entries = table(given, Pa::new(root))?.get(HEADER..)?.chunks_exact(width);
    entries.find_map(|entry| {
        let at = if width == 8 { word64(entry, 0)? } else { word32(entry, 0)?.into() };
        let table = table(given, Pa::new(at)).filter(|table| table.starts_with(b"APIC"))?;
        Some(listed(table, list))
    })
}

/// A table, as long as it says.
fn table<'a>(given: impl Given<'a>, at: Pa) -> Option<&'a [u8]> {
    let length = word32(given.bytes(at, Bytes::new(HEADER as u64))?, 4)?.min(TABLE_MAX);
    given.bytes(at, Bytes::new(length.into()))
}

fn listed(table: &[u8], list: &mut [ApicId]) -> usize {
    let mut rest = table.get(MADT_HEADER..).unwrap_or_default();
    let mut found = 0;
    while let Some([kind, length]) = word::<2>(rest, 0) {
        let enabled = |at| word32(rest, at).is_some_and(|flags| flags & ENABLED != 0);
        let id = match kind {
            0 if enabled(4) => rest.get(3).map(|id| u32::from(*id)),
            9 if enabled(8) => word32(rest, 4),
            _ => None,
        };
        if let Some(id) = id {
            if let Some(slot) = list.get_mut(found) {
                *slot = ApicId(id);
            }
            found += 1;
        }
        rest = rest.get(usize::from(length.max(2))..).unwrap_or_default();
    }
    found
}
