//! What the firmware lists: CPUs in the MADT, a timer in the FADT. RSDP, RSDT or XSDT lead there.

use super::{Given, word, word32, word64};
use crate::ApicId;
use foliant_units::{Bytes, Pa};

/// No more bytes than this are read of a table.
const TABLE_MAX: u32 = 1 << 20;
/// Bytes before a table's own content, and of the MADT before its entries.
const HEADER: usize = 36;
const MADT_HEADER: usize = 44;
const ENABLED: u32 = 1;
/// Where firmware of old leaves its root pointer, at a multiple of 16.
const AREA: core::ops::Range<u64> = 0xe_0000..0x10_0000;

/// The root pointer: where the loader says it is, or in the firmware's area.
fn root_pointer<'a>(given: impl Given<'a>, hint: Pa) -> Option<&'a [u8]> {
    // A root pointer of revision 0 has 20 bytes, one of a later revision 36.
    let words = |at| [36, 20].into_iter().find_map(|size| given.bytes(at, Bytes::new(size)));
    let is = |at| words(at).filter(|words: &&[u8]| words.starts_with(b"RSD PTR "));
    is(hint).or_else(|| AREA.step_by(16).find_map(|at| is(Pa::new(at))))
}

/// The table with this signature.
fn find<'a>(given: impl Given<'a>, hint: Pa, signature: &[u8; 4]) -> Option<&'a [u8]> {
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
        table(given, Pa::new(at)).filter(|table| table.starts_with(signature))
    })
}

/// Writes the CPUs that can be used into `list`. The first is `boot`, the CPU that asks, wherever
/// the firmware lists it, and whether or not it does. None is there twice. Returns how many there
/// are, which may be more than the list holds; some of those that it does not hold may then have
/// been counted twice.
pub fn cpus<'a>(given: impl Given<'a>, hint: Pa, boot: ApicId, list: &mut [ApicId]) -> usize {
    let mut found = 0;
    let mut add = |id| {
        if list[..found.min(list.len())].contains(&id) {
            return;
        }
        if let Some(slot) = list.get_mut(found) {
            *slot = id;
        }
        found += 1;
    };
    add(boot);
    let listed = find(given, hint, b"APIC").map(Listed::of);
    listed.into_iter().flatten().filter(|id| *id != boot).for_each(add);
    found
}

/// A counter of 3,579,545 steps a second, behind a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PowerTimer {
    /// The port; 32 bits are read from it.
    pub port: u16,
    /// How many of them count.
    pub bits: u8,
}

impl PowerTimer {
    /// Steps per second.
    pub const HZ: u64 = 3_579_545;

    /// The one that the firmware names, if it names one.
    pub fn find<'a>(given: impl Given<'a>, hint: Pa) -> Option<PowerTimer> {
        const PORT: usize = 76;
        const LENGTH: usize = 91;
        const FLAGS: usize = 112;
        const IS_32_BITS: u32 = 1 << 8;
        let table = find(given, hint, b"FACP")?;
        let port = u16::try_from(word32(table, PORT)?).ok().filter(|port| *port != 0)?;
        let long = word32(table, FLAGS)? & IS_32_BITS != 0;
        let bits = if long { 32 } else { 24 };
        (table.get(LENGTH) == Some(&4)).then_some(PowerTimer { port, bits })
    }
}

/// A table, as long as it says, up to [`TABLE_MAX`].
fn table<'a>(given: impl Given<'a>, at: Pa) -> Option<&'a [u8]> {
    let length = word32(given.bytes(at, Bytes::new(HEADER as u64))?, 4)?.min(TABLE_MAX);
    given.bytes(at, Bytes::new(length.into()))
}

/// The CPUs of a list of interrupt controllers, in the order of the list.
struct Listed<'a> {
    rest: &'a [u8],
}

impl<'a> Listed<'a> {
    fn of(table: &'a [u8]) -> Listed<'a> {
        Listed { rest: table.get(MADT_HEADER..).unwrap_or_default() }
    }
}

impl Iterator for Listed<'_> {
    type Item = ApicId;

    fn next(&mut self) -> Option<ApicId> {
        loop {
            let [kind, length] = word::<2>(self.rest, 0)?;
            let entry = self.rest;
            self.rest = self.rest.get(usize::from(length.max(2))..).unwrap_or_default();
            let enabled = |at| word32(entry, at).is_some_and(|flags| flags & ENABLED != 0);
            // The highest number of each kind means all CPUs.
            let id = match kind {
                0 if enabled(4) => entry.get(3).map(|id| u32::from(*id)).filter(|id| *id < 0xff),
                9 if enabled(8) => word32(entry, 4).filter(|id| *id < u32::MAX),
                _ => None,
            };
            if let Some(id) = id {
                return Some(ApicId(id));
            }
        }
    }
}
