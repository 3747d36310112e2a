//! `/proc/cpuinfo`: what CPUID says of the processors, by Linux' names.
//!
//! Programs look for words among the flags before they try an instruction or a page size. So a flag
//! stands there if the processor has it and a program can use it here: what the kernel has to
//! switch on and does not (five levels, protection keys, FSGSBASE, wider vectors) is left out.

use crate::cpu;
use crate::smp;
use alloc::string::String;
use core::arch::x86_64::{__cpuid, __cpuid_count, CpuidResult};
use core::fmt::{self, Write};

/// Which word of CPUID's answer a list of flags is about, and the flags by bit.
type Flags = (u32, fn(CpuidResult) -> u32, &'static [(u32, &'static str)]);

/// In Linux' order.
const FLAGS: [Flags; 7] = [
    (
        1,
        |it| it.edx,
        &[
            (0, "fpu"),
            (1, "vme"),
            (2, "de"),
            (3, "pse"),
            (4, "tsc"),
            (5, "msr"),
            (6, "pae"),
            (7, "mce"),
            (8, "cx8"),
            (9, "apic"),
            (11, "sep"),
            (12, "mtrr"),
            (13, "pge"),
            (14, "mca"),
            (15, "cmov"),
            (16, "pat"),
            (17, "pse36"),
            (19, "clflush"),
            (23, "mmx"),
            (24, "fxsr"),
            (25, "sse"),
            (26, "sse2"),
            (28, "ht"),
        ],
    ),
    (
        0x8000_0001,
        |it| it.edx,
        &[
            (11, "syscall"),
            (20, "nx"),
            (22, "mmxext"),
            (25, "fxsr_opt"),
            (26, "pdpe1gb"),
            (27, "rdtscp"),
            (29, "lm"),
            (30, "3dnowext"),
            (31, "3dnow"),
        ],
    ),
    (
        1,
        |it| it.ecx,
        &[
            (0, "pni"),
            (1, "pclmulqdq"),
            (9, "ssse3"),
            (12, "fma"),
            (13, "cx16"),
            (19, "sse4_1"),
            (20, "sse4_2"),
            (21, "x2apic"),
            (22, "movbe"),
            (23, "popcnt"),
            (25, "aes"),
            (26, "xsave"),
            (28, "avx"),
            (29, "f16c"),
            (30, "rdrand"),
            (31, "hypervisor"),
        ],
    ),
    (
        0x8000_0001,
        |it| it.ecx,
        &[
            (0, "lahf_lm"),
            (5, "abm"),
            (6, "sse4a"),
            (7, "misalignsse"),
            (8, "3dnowprefetch"),
            (21, "tbm"),
        ],
    ),
    (
        7,
        |it| it.ebx,
        &[
            (3, "bmi1"),
            (5, "avx2"),
            (7, "smep"),
            (8, "bmi2"),
            (9, "erms"),
            (18, "rdseed"),
            (19, "adx"),
            (20, "smap"),
            (23, "clflushopt"),
            (24, "clwb"),
            (29, "sha_ni"),
        ],
    ),
    (
        7,
        |it| it.ecx,
        &[
            (2, "umip"),
            (8, "gfni"),
            (9, "vaes"),
            (10, "vpclmulqdq"),
            (22, "rdpid"),
            (27, "movdiri"),
            (28, "movdir64b"),
        ],
    ),
    (7, |it| it.edx, &[(4, "fsrm"), (14, "serialize")]),
];
/// Those that a program can use where the kernel keeps the wide registers.
const WIDE: [&str; 7] = ["xsave", "avx", "avx2", "fma", "f16c", "vaes", "vpclmulqdq"];
/// Bits of an address in tables of four levels.
const LINEAR: u32 = 48;

/// An answer of CPUID, zeros where there is no such leaf.
fn leaf(number: u32) -> CpuidResult {
    let last = __cpuid(number & 0x8000_0000).eax;
    let none = CpuidResult { eax: 0, ebx: 0, ecx: 0, edx: 0 };
    if number <= last { __cpuid_count(number, 0) } else { none }
}
/// Letters that registers hold.
fn letters(words: impl IntoIterator<Item = u32>) -> String {
    let bytes = words.into_iter().flat_map(u32::to_le_bytes);
    bytes.take_while(|byte| *byte != 0).map(char::from).collect()
}
/// The name that the processor gives itself.
fn model_name() -> String {
    let words = (0x8000_0002..=0x8000_0004).map(leaf);
    letters(words.flat_map(|it| [it.eax, it.ebx, it.ecx, it.edx])).trim().into()
}
/// Family, model and stepping.
fn version() -> (u32, u32, u32) {
    let word = leaf(1).eax;
    let (family, model) = (word >> 8 & 0xf, word >> 4 & 0xf);
    let more = if family == 0xf { word >> 20 & 0xff } else { 0 };
    let high = if family == 0xf || family == 6 { word >> 16 & 0xf } else { 0 };
    (family + more, high << 4 | model, word & 0xf)
}
fn flags(out: &mut String) -> fmt::Result {
    for (number, word, names) in FLAGS {
        let word = word(leaf(number));
        for (bit, name) in names {
            if word >> bit & 1 == 1 && (cpu::is_wide() || !WIDE.contains(name)) {
                write!(out, " {name}")?;
            }
        }
    }
    Ok(())
}

pub(super) fn show(out: &mut String) -> fmt::Result {
    let (first, sizes) = (leaf(0), leaf(0x8000_0008).eax);
    let vendor = letters([first.ebx, first.edx, first.ecx]);
    let (family, model, stepping) = version();
    let line = (leaf(1).ebx >> 8 & 0xff) * 8;
    let cpus = smp::online();
    (0..cpus).try_for_each(|cpu| {
        writeln!(out, "processor\t: {cpu}\nvendor_id\t: {vendor}\ncpu family\t: {family}")?;
        writeln!(out, "model\t\t: {model}\nmodel name\t: {}", model_name())?;
        writeln!(out, "stepping\t: {stepping}\nphysical id\t: 0\nsiblings\t: {cpus}")?;
        writeln!(out, "core id\t\t: {cpu}\ncpu cores\t: {cpus}\napicid\t\t: {cpu}")?;
        writeln!(out, "fpu\t\t: yes\nfpu_exception\t: yes\ncpuid level\t: {}", first.eax)?;
        write!(out, "wp\t\t: yes\nflags\t\t:")?;
        flags(out)?;
        writeln!(out, "\nclflush size\t: {line}\ncache_alignment\t: {line}")?;
        let [physical, linear] = [sizes & 0xff, (sizes >> 8 & 0xff).min(LINEAR)];
        writeln!(out, "address sizes\t: {physical} bits physical, {linear} bits virtual\n")
    })
}
