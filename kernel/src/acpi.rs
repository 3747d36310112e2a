//! The CPUs that the firmware lists: RSDP, RSDT or XSDT, MADT.
//!
//! Tables are read through the direct map, unaligned, and no further than their own length says.
#![allow(unsafe_code)]

use crate::layout::{DIRECT_MAX, direct};
use foliant_units::Pa;
use foliant_x86::ApicId;

/// Tables longer than this are not believed.
const TABLE_MAX: u64 = 1 << 20;
const HEADER: u64 = 36;
const ENABLED: u32 = 1;

fn bytes<const N: usize>(at: u64) -> Option<[u8; N]> {
    // SAFETY: inside the direct map; firmware tables are plain memory that nobody writes any more.
    (at < DIRECT_MAX - N as u64)
        .then(|| unsafe { direct(Pa::new(at)).cast::<[u8; N]>().read_unaligned() })
}
fn word32(at: u64) -> Option<u32> {
    bytes(at).map(u32::from_le_bytes)
}
fn word64(at: u64) -> Option<u64> {
    bytes(at).map(u64::from_le_bytes)
}

/// Where the root pointer is: where the loader says, or in the firmware's area.
fn root_pointer(hint: u64) -> Option<u64> {
    let is = |at: &u64| bytes(*at) == Some(*b"RSD PTR ");
    Some(hint).filter(is).or_else(|| (0xe_0000..0x10_0000).step_by(16).find(is))
}

/// Writes the CPUs that can be used into `list`, and returns how many there are: maybe more than the list holds.
pub(crate) fn cpus(hint: u64, list: &mut [ApicId]) -> Option<usize> {
    let pointer = root_pointer(hint)?;
    let revision = bytes::<1>(pointer + 15)?[0];
    let extended = word64(pointer + 24).filter(|at| revision >= 2 && *at != 0);
    let (root, width) = match extended {
        Some(root) => (root, 8),
        None => (u64::from(word32(pointer + 16)?), 4),
    };
    let length = u64::from(word32(root + 4)?).min(TABLE_MAX);
    let mut entries = (root + HEADER..root + length).step_by(width);
    entries.find_map(|entry| {
        let table = if width == 8 { word64(entry)? } else { word32(entry)?.into() };
        (bytes(table)? == *b"APIC").then(|| listed(table, list))?
    })
}

fn listed(table: u64, list: &mut [ApicId]) -> Option<usize> {
    let end = table + u64::from(word32(table + 4)?).min(TABLE_MAX);
    let (mut at, mut found) = (table + HEADER + 8, 0);
    while at + 2 <= end {
        let [kind, length] = bytes(at)?;
        let id = match kind {
            0 if word32(at + 4)? & ENABLED != 0 => Some(u32::from(bytes::<1>(at + 3)?[0])),
            9 if word32(at + 8)? & ENABLED != 0 => word32(at + 4),
            _ => None,
        };
        if let Some(id) = id {
            if let Some(slot) = list.get_mut(found) {
                *slot = ApicId(id);
            }
            found += 1;
        }
        at += u64::from(length.max(2));
    }
    Some(found)
}
