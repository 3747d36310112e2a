//! What this CPU can do, as far as Foliant uses it.
//!
//! A plain value: a kernel may clear a field before it hands the value over, and tests make their
//! own.
//!
//! **Not here**: what the kernel alone cares about (floating point, protection keys, mitigations).

#![allow(unsafe_code)]

use crate::tags::Tagging;
use core::arch::asm;
use core::arch::x86_64::{__cpuid_count, CpuidResult};
use foliant_units::Pages;

/// How wide vector registers are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Vectors {
    /// None may be used.
    None,
    /// 16 bytes: SSE2, which every CPU has.
    Bytes16,
    /// 32 bytes, one register at a time that is given back as it was found: what the upper halves
    /// hold is somebody else's, and nobody keeps it meanwhile.
    Lent32,
    /// 32 bytes: AVX.
    Bytes32,
    /// 64 bytes: AVX-512.
    Bytes64,
}

/// What the calling CPU can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Features {
    /// Global pages: translations that outlive a load of CR3.
    pub pge: bool,
    /// Process-context identifiers: tags on translations. They are used where there are global
    /// pages too.
    pub pcid: bool,
    /// The INVPCID instruction.
    pub invpcid: bool,
    /// Broadcast invalidation, and how many pages one instruction covers.
    pub invlpgb: Option<Pages>,
    /// INVLPG may keep paging-structure entries of other addresses (`EFER.TCE`).
    pub tce: bool,
    /// The APIC through model-specific registers.
    pub x2apic: bool,
    /// 1 GiB pages.
    pub pages_1g: bool,
    /// Five levels of tables.
    pub la57: bool,
    /// No-execute pages.
    pub nx: bool,
    /// Ring 0 does not run user memory, where `CR4.SMEP` says so.
    pub smep: bool,
    /// Ring 0 does not reach user memory, where `CR4.SMAP` says so, unless it sets a flag.
    pub smap: bool,
    /// Ring 3 does not learn where descriptor tables are, where `CR4.UMIP` says so.
    pub umip: bool,
    /// `rep stosb` and `rep movsb` at full speed.
    pub erms: bool,
    /// The same for short runs.
    pub fsrm: bool,
    /// CLZERO: clears one cache line of 64 bytes.
    pub clzero: bool,
    /// AVX, and XSAVE, by which a kernel lets programs use it: where `CR4.OSXSAVE` and XCR0 say so.
    pub avx: bool,
    /// The widest vector registers that may be used: those that the running system keeps for each
    /// thread. A kernel whose handlers do not save them sets [`Vectors::None`], and one that saves
    /// the lower halves alone [`Features::lower_halves`].
    pub vectors: Vectors,
    /// XGETBV says which registers are as a CPU starts with them.
    pub in_use: bool,
    /// INVLPG of a large page ends no more than 4 KiB of what the processor runs from it: QEMU,
    /// where it runs the machine's code itself (TCG), goes on with what it translated of the rest.
    pub invlpg_keeps_code: bool,
    /// The TSC runs at one rate in all power states.
    pub invariant_tsc: bool,
    /// Bits of a physical address.
    pub physical_bits: u8,
    /// Bits of a linear address.
    pub linear_bits: u8,
}

/// The leaf of `cpuid` that names who runs the machine, and how TCG is called there.
const HYPERVISOR: u32 = 0x4000_0000;
const TCG: [u32; 3] =
    [u32::from_le_bytes(*b"TCGT"), u32::from_le_bytes(*b"CGTC"), u32::from_le_bytes(*b"GTCG")];

impl Features {
    /// What every x86-64 CPU has.
    pub const BASELINE: Features = Features {
        pge: false,
        pcid: false,
        invpcid: false,
        invlpgb: None,
        tce: false,
        x2apic: false,
        pages_1g: false,
        la57: false,
        nx: false,
        smep: false,
        smap: false,
        umip: false,
        erms: false,
        fsrm: false,
        clzero: false,
        avx: false,
        vectors: Vectors::Bytes16,
        in_use: false,
        invlpg_keeps_code: false,
        invariant_tsc: false,
        physical_bits: 36,
        linear_bits: 48,
    };

    /// Whether tags are used. INVPCID, or a change of `CR4.PGE`, ends everything under all of them.
    pub(crate) const fn tagging(&self) -> Tagging {
        if self.pcid && self.pge { Tagging::On } else { Tagging::Off }
    }

    /// The same for a kernel whose handlers keep the lower halves of vector registers alone, and
    /// leave the upper ones where they are: to a program that may have AVX, as the kernel sets
    /// XCR0 before it clears anything.
    pub const fn lower_halves(self) -> Features {
        let lent = self.avx && self.in_use;
        Features { vectors: if lent { Vectors::Lent32 } else { Vectors::Bytes16 }, ..self }
    }

    /// Asks the calling CPU.
    pub fn detect() -> Features {
        Features::read(&|leaf, sub| __cpuid_count(leaf, sub), &kept_state)
    }

    /// The features that the leaves of `cpuid` tell. A leaf beyond the highest is not read: what it
    /// would return is another leaf's.
    fn read(cpuid: &dyn Fn(u32, u32) -> CpuidResult, kept: &dyn Fn() -> u64) -> Features {
        const NOTHING: CpuidResult = CpuidResult { eax: 0, ebx: 0, ecx: 0, edx: 0 };
        let leaf = |number: u32| match cpuid(number & 0x8000_0000, 0).eax >= number {
            true => cpuid(number, 0),
            false => NOTHING,
        };
        let (base, more) = (leaf(1), leaf(7));
        let (extended, power, sizes) = (leaf(0x8000_0001), leaf(0x8000_0007), leaf(0x8000_0008));
        let bit = |word: u32, number: u32| word >> number & 1 == 1;
        let host = if bit(base.ecx, 31) { cpuid(HYPERVISOR, 0) } else { NOTHING };
        let bits = |byte: u32, least| if byte & 0xff == 0 { least } else { byte as u8 };
        // The leaf counts the pages behind the first one.
        let invlpgb = bit(sizes.ebx, 3).then(|| Pages::new(u64::from(sizes.edx & 0xffff) + 1));
        let state = match cpuid(0, 0).eax >= XSAVE {
            true => cpuid(XSAVE, 1),
            false => NOTHING,
        };
        // The system says which registers it keeps, if it says anything at all.
        let kept = if bit(base.ecx, 27) { kept() } else { 0 };
        let vectors = match (bit(base.ecx, 28), bit(more.ebx, 16)) {
            (true, true) if kept & KEEPS_64 == KEEPS_64 => Vectors::Bytes64,
            (true, _) if kept & KEEPS_32 == KEEPS_32 => Vectors::Bytes32,
            _ => Vectors::Bytes16,
        };
        Features {
            vectors,
            in_use: bit(state.eax, 2),
            invlpg_keeps_code: [host.ebx, host.ecx, host.edx] == TCG,
            pge: bit(base.edx, 13),
            pcid: bit(base.ecx, 17),
            invpcid: bit(more.ebx, 10),
            invlpgb,
            tce: bit(extended.ecx, 17),
            x2apic: bit(base.ecx, 21),
            pages_1g: bit(extended.edx, 26),
            la57: bit(more.ecx, 16),
            nx: bit(extended.edx, 20),
            erms: bit(more.ebx, 9),
            fsrm: bit(more.edx, 4),
            smep: bit(more.ebx, 7),
            smap: bit(more.ebx, 20),
            umip: bit(more.ecx, 2),
            clzero: bit(sizes.ebx, 0),
            avx: bit(base.ecx, 26) && bit(base.ecx, 28),
            invariant_tsc: bit(power.edx, 8),
            physical_bits: bits(sizes.eax, Features::BASELINE.physical_bits),
            linear_bits: bits(sizes.eax >> 8, Features::BASELINE.linear_bits),
        }
    }
}

/// The leaf of `cpuid` about XSAVE, whose second part says what its instructions can do.
const XSAVE: u32 = 0xd;

/// Bits of XCR0: the lower and middle parts of vector registers; these, the masks and the upper
/// parts.
const KEEPS_32: u64 = 0b110;
const KEEPS_64: u64 = 0b1110_0110;

/// XCR0: the registers that the system keeps. 0 where CPUID says that the system has not made the
/// instruction usable by which that is read (`CR4.OSXSAVE`).
pub fn kept_state() -> u64 {
    const OSXSAVE: u32 = 1 << 27;
    if __cpuid_count(1, 0).ecx & OSXSAVE == 0 {
        return 0;
    }
    let (low, high): (u32, u32);
    // SAFETY: the system has made the instruction usable.
    unsafe {
        asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high,
            options(nomem, nostack, preserves_flags))
    };
    u64::from(high) << 32 | u64::from(low)
}

/// Whether the upper halves of vector registers hold anything, as far as the CPU says.
///
/// # Safety
/// The CPU has [`Features::in_use`], and the system has made XGETBV usable.
pub(crate) unsafe fn uppers_in_use() -> bool {
    let low: u32;
    // SAFETY: the caller's promise.
    unsafe {
        asm!("xgetbv", in("ecx") 1, out("eax") low, out("edx") _,
            options(nomem, nostack, preserves_flags))
    };
    low & 0b100 != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;

    /// Tags are off where the CPU lacks PCIDs or global pages.
    #[test]
    fn tags_need_both_halves() {
        for (pcid, pge) in [(false, false), (false, true), (true, false), (true, true)] {
            let features = Features { pcid, pge, ..Features::BASELINE };
            assert_eq!(features.tagging() == Tagging::On, pcid && pge, "{features:?}");
        }
    }

    #[test]
    fn the_host_has_what_the_standard_library_finds() {
        let features = Features::detect();
        assert_eq!(features.erms, std::is_x86_feature_detected!("ermsb"));
        assert!((36..=52).contains(&features.physical_bits), "{features:?}");
        assert!([48, 57].contains(&features.linear_bits), "{features:?}");
        assert!(features.nx && features.pge, "{features:?}");
        assert!(!features.fsrm || features.erms, "{features:?}");
        let wide = features.vectors >= Vectors::Bytes32;
        assert_eq!(wide, std::is_x86_feature_detected!("avx"));
        let widest = features.vectors == Vectors::Bytes64;
        assert_eq!(widest, std::is_x86_feature_detected!("avx512f"));
    }

    fn bare(leaf: u32, _: u32) -> CpuidResult {
        // Any leaf beyond the highest answers with all ones, where old CPUs repeat their highest
        // leaf.
        let word = match leaf {
            0 => 1,
            1 => 0,
            0x8000_0000 => 0x8000_0000,
            _ => u32::MAX,
        };
        CpuidResult { eax: word, ebx: word, ecx: word, edx: word }
    }

    #[test]
    fn leaves_beyond_the_highest_are_not_believed() {
        assert_eq!(Features::read(&bare, &|| u64::MAX), Features::BASELINE);
    }

    #[test]
    fn the_widest_vectors_need_their_own_bit() {
        let kept_of = |more: u32, kept: u64| {
            let cpuid = |leaf, _| {
                let (eax, ebx, ecx) = match leaf {
                    0 => (7, 0, 0),
                    1 => (0, 0, 3 << 27),
                    7 => (0, more, 0),
                    _ => (0, 0, 0),
                };
                CpuidResult { eax, ebx, ecx, edx: 0 }
            };
            Features::read(&cpuid, &|| kept).vectors
        };
        let vectors = |more| kept_of(more, u64::MAX);
        assert_eq!(kept_of(1 << 16, KEEPS_32), Vectors::Bytes32, "the system keeps no more");
        assert_eq!(kept_of(1 << 16, 0), Vectors::Bytes16);
        assert_eq!(vectors(1 << 16), Vectors::Bytes64);
        assert_eq!(vectors(!(1 << 16)), Vectors::Bytes32);
    }

    #[test]
    fn upper_halves_are_lent_where_their_use_is_told() {
        for (avx, in_use) in [(false, false), (false, true), (true, false), (true, true)] {
            let widest = Features { avx, in_use, vectors: Vectors::Bytes64, ..Features::BASELINE };
            let want = if avx && in_use { Vectors::Lent32 } else { Vectors::Bytes16 };
            assert_eq!(widest.lower_halves().vectors, want, "{widest:?}");
        }
    }

    #[test]
    fn each_bit_is_read_from_its_place() {
        let only = |number, register: usize, value: u32| {
            move |leaf: u32, _: u32| {
                let mut words = [0u32; 4];
                match leaf {
                    0 => words[0] = 0x20,
                    0x8000_0000 => words[0] = 0x8000_0021,
                    _ if leaf == number => words[register] = value,
                    _ => (),
                }
                CpuidResult { eax: words[0], ebx: words[1], ecx: words[2], edx: words[3] }
            }
        };
        let none = Features::BASELINE;
        let (extended, sizes) = (0x8000_0001, 0x8000_0008);
        let wide = Features { vectors: Vectors::Bytes32, ..none };
        let table: [(u32, usize, u32, Features); 22] = [
            (XSAVE, 0, 1 << 2, Features { in_use: true, ..none }),
            (1, 2, 0b101 << 26, Features { avx: true, ..none }),
            (1, 2, 1 << 26, none),
            (1, 2, 0b11 << 27, wide),
            (1, 2, 1 << 28, none), // the system does not say that it keeps them
            (1, 3, 1 << 13, Features { pge: true, ..none }),
            (1, 2, 1 << 17, Features { pcid: true, ..none }),
            (1, 2, 1 << 21, Features { x2apic: true, ..none }),
            (7, 1, 1 << 10, Features { invpcid: true, ..none }),
            (7, 1, 1 << 9, Features { erms: true, ..none }),
            (7, 1, 1 << 7, Features { smep: true, ..none }),
            (7, 1, 1 << 20, Features { smap: true, ..none }),
            (7, 2, 1 << 2, Features { umip: true, ..none }),
            (7, 3, 1 << 4, Features { fsrm: true, ..none }),
            (7, 2, 1 << 16, Features { la57: true, ..none }),
            (extended, 2, 1 << 17, Features { tce: true, ..none }),
            (extended, 3, 1 << 20, Features { nx: true, ..none }),
            (extended, 3, 1 << 26, Features { pages_1g: true, ..none }),
            (0x8000_0007, 3, 1 << 8, Features { invariant_tsc: true, ..none }),
            (sizes, 1, 1, Features { clzero: true, ..none }),
            (sizes, 1, 1 << 3, Features { invlpgb: Some(Pages::new(1)), ..none }),
            (sizes, 0, 0x3934, Features { physical_bits: 52, linear_bits: 57, ..none }),
        ];
        for (leaf, register, value, want) in table {
            let read = Features::read(&only(leaf, register, value), &|| u64::MAX);
            assert_eq!(read, want, "{leaf:#x} {value:#x}");
        }
    }

    #[test]
    fn who_runs_the_machine_is_asked_where_somebody_does() {
        let named = |name: [u32; 3], runs: u32| {
            let [ebx, ecx, edx] = name;
            let leaf = move |leaf: u32, _: u32| match leaf {
                0 => CpuidResult { eax: 1, ebx: 0, ecx: 0, edx: 0 },
                1 => CpuidResult { eax: 0, ebx: 0, ecx: runs << 31, edx: 0 },
                HYPERVISOR => CpuidResult { eax: HYPERVISOR, ebx, ecx, edx },
                _ => CpuidResult { eax: 0, ebx: 0, ecx: 0, edx: 0 },
            };
            Features::read(&leaf, &|| 0).invlpg_keeps_code
        };
        assert!(named(TCG, 1));
        assert!(!named(TCG, 0), "the leaf means nothing there");
        assert!(!named([TCG[0], TCG[1], 0], 1));
    }
}
