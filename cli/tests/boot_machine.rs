//! The kernel on machines, and with words of loaders, that are not what it is used to: it copes, or
//! says what is missing.
#![cfg(unix)]

use std::io::Write;
use std::process::Command;

const QEMU: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/qemu_but.sh");

/// What the command said, on both channels, and its exit code.
struct Ran {
    out: String,
    said: String,
    code: Option<i32>,
}

/// Boots with `words` of the command, and then QEMU's own words `but`; nothing where QEMU is not
/// installed.
fn boot(words: &[&str], but: &str) -> Option<Ran> {
    boot_at("0xf4", words, but)
}

fn boot_at(exit: &str, words: &[&str], but: &str) -> Option<Ran> {
    if Command::new("qemu-system-x86_64").arg("--version").output().is_err() {
        eprintln!("skipped: qemu-system-x86_64 is not installed");
        return None;
    }
    let output = {
        let mut command = Command::new(env!("CARGO_BIN_EXE_foliant"));
        command.args(["boot", "--timeout", "120"]).args(words);
        command.env("FOLIANT_QEMU", QEMU).env("QEMU_BUT", but).env("QEMU_EXIT", exit);
        command.output().unwrap()
    };
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().replace('\r', "");
    Some(Ran { out: text(output.stdout), said: text(output.stderr), code: output.status.code() })
}

impl Ran {
    fn passed(self) -> String {
        assert_eq!(self.code, Some(0), "{}{}", self.out, self.said);
        self.out
    }
    /// The sentence of a kernel that cannot run, which is its only line.
    fn unfit(self) -> String {
        assert_eq!(self.code, Some(3), "{}{}", self.out, self.said);
        assert!(self.said.contains("the machine is none that the kernel can run on"));
        let (first, rest) = self.out.split_once('\n').unwrap();
        assert_eq!(rest, "", "it goes on");
        first.strip_prefix("foliant cannot run here: ").unwrap().to_owned()
    }
}

/// What a loader leaves: start information, map, CPUs, all in one piece of memory.
struct Left {
    at: u64,
    version: u32,
    map: Vec<[u64; 3]>,
    apics: Vec<u8>,
}

impl Left {
    const MAP: u64 = 0x100;
    const TEXT: u64 = 0x400;
    const POINTER: u64 = 0x600;
    const ROOT: u64 = 0x700;
    const LIST: u64 = 0x800;

    /// Of a machine with 128 MiB, as far as it is told.
    fn usual() -> Left {
        let map = vec![[1 << 20, 96 << 20, 1]];
        Left { at: 0x500_0000, version: 1, map, apics: vec![0, 1] }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut image = vec![0; 0x1000];
        let mut put = |at: u64, bytes: &[u8]| {
            image[at as usize..][..bytes.len()].copy_from_slice(bytes);
        };
        let words = |words: &[u64]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>();
        put(0, &0x336e_c578u32.to_le_bytes());
        put(4, &self.version.to_le_bytes());
        let places = [Left::TEXT, Left::POINTER, Left::MAP].map(|place| self.at + place);
        put(24, &words(&places));
        put(48, &(self.map.len() as u32).to_le_bytes());
        put(Left::MAP, &words(&self.map.concat()));
        put(Left::TEXT, b"mode=boot\0");
        put(Left::POINTER, b"RSD PTR ");
        put(Left::POINTER + 15, &[2]);
        put(Left::POINTER + 24, &words(&[self.at + Left::ROOT]));
        put(Left::ROOT, b"XSDT");
        put(Left::ROOT + 4, &44u32.to_le_bytes());
        put(Left::ROOT + 36, &words(&[self.at + Left::LIST]));
        put(Left::LIST, b"APIC");
        put(Left::LIST + 4, &(44 + 8 * self.apics.len() as u32).to_le_bytes());
        for (n, id) in (0..).zip(&self.apics) {
            put(Left::LIST + 44 + 8 * n, &[0, 8, 0, *id, 1, 0, 0, 0]);
        }
        image
    }

    /// Boots two CPUs with these words instead of QEMU's own.
    fn boot(&self, but: &str) -> Option<Ran> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&self.bytes()).unwrap();
        let path = file.path().to_str().unwrap();
        let loader = format!("-device loader,file={path},addr={:#x},force-raw=on", self.at);
        let but = format!("-append start={:#x} {loader} {but}", self.at);
        boot(&["--cpus", "2", "--memory", "128m"], &but)
    }
}

#[test]
fn finding_x3_a_loaders_words_may_lie_above_4_gib() {
    let usual = Left::usual();
    let Some(ran) = usual.boot("") else { return };
    assert!(ran.passed().contains("foliant: 2 CPUs, 96 MiB managed"));
    // Half of the memory is below 4 GiB, and half from there on.
    let above = 1u64 << 32;
    let map = vec![[1 << 20, 48 << 20, 1], [above, 64 << 20, 1]];
    let left = Left { at: above + (32 << 20), map, ..usual };
    let out = left.boot("-M q35,max-ram-below-4g=64M").unwrap().passed();
    assert!(out.contains("foliant: 2 CPUs, 112 MiB managed"), "{out}");
}

#[test]
fn finding_x4_a_loader_that_tells_of_no_memory_is_answered() {
    let with = |version, map: &[[u64; 3]]| {
        Left { version, map: map.to_vec(), ..Left::usual() }.boot("").map(Ran::unfit)
    };
    let Some(said) = with(0, &[]) else { return };
    assert_eq!(said, "the loader gives no memory map: its start information is of version 0");
    assert_eq!(with(1, &[]).unwrap(), "the loader's memory map is empty");
    let low = [[0, 0xa_0000, 1], [0xf_0000, 1 << 16, 2]];
    assert!(with(1, &low).unwrap().starts_with("no memory from 0x100000 to "));
    // Not enough for the kernel's own: the image ends behind it.
    let little = [[1 << 20, 1 << 20, 1]];
    let said = with(1, &little).unwrap();
    assert!(said.len() > 10, "{said}");
    // A machine where the module lies over the image: smaller than any that the command gives.
    let small = "-object memory-backend-ram,id=small,size=6M -M q35,memory-backend=small -m 6M";
    let said = boot(&["--cpus", "1"], small).unwrap().unfit();
    assert_eq!(said, "the loader has no memory for the kernel and its module");
}

/// From the smallest machine on each mode runs, or says what it lacks.
#[test]
fn little_memory_is_enough_or_is_named() {
    let boots = |cpus, memory, expect: &str| {
        let ran = boot(&["--cpus", cpus, "--memory", memory], "-append mode=boot")?;
        let out = ran.passed();
        assert!(out.contains(expect), "{cpus} {memory}: {out}");
        Some(())
    };
    if boots("1", "8m", "foliant: 1 CPUs, 6 MiB managed").is_none() {
        return;
    }
    boots("8", "8m", "foliant: 8 CPUs, 6 MiB managed");
    boots("1", "9m", "7 MiB managed");
    // The host need not have it.
    boots("1", "512g", "foliant: 1 CPUs, 522238 MiB managed");
    let lacks = |cpus, mode: &str, words: &[&str]| {
        let but = format!("-append mode={mode}");
        let ran = boot(&["--cpus", cpus, "--memory", "8m"], &but).unwrap();
        assert_eq!(ran.code, Some(3), "{mode}: {}{}", ran.out, ran.said);
        let last = ran.out.lines().last().unwrap();
        let why = last.strip_prefix("foliant cannot run here: ").unwrap_or_default();
        assert!(words.iter().all(|word| why.contains(word)), "{mode}: {last}");
    };
    lacks("1", "tests", &["tests take 18m on 1 CPUs", "mode=shell takes less"]);
    lacks("1", "laws", &["no free block of 8m"]);
    lacks("64", "boot", &["what CPU ", "fewer CPUs"]);
    let few = boot(&["--cpus", "1", "--memory", "8m", "--lab", "flush"], "").unwrap();
    assert_eq!(few.code, Some(3), "{}", few.said);
    assert!(few.said.contains("a scenario takes 4m at least"), "{}", few.said);
}

#[test]
fn finding_x5_the_boot_cpu_is_found_wherever_it_is_listed() {
    let left = Left { apics: vec![1, 0], ..Left::usual() };
    let Some(ran) = left.boot("") else { return };
    let out = ran.passed();
    assert!(out.contains("foliant: 2 CPUs"), "{out}");
    // Not at all, twice, and one that nobody has.
    let left = Left { apics: vec![9, 1, 1], ..left };
    let out = left.boot("").unwrap().passed();
    assert!(out.contains("the CPU with APIC 9 is left out: it does not answer"), "{out}");
    assert!(out.contains("foliant: 2 CPUs"), "{out}");
}

/// What the kernel says of its clock, in kHz.
fn clock(out: &str) -> u64 {
    let told = out.lines().find_map(|line| line.strip_prefix("clock: ")).expect("a clock");
    told.split(' ').next().unwrap().parse().unwrap()
}

/// Where instructions are counted a tick is a nanosecond of the machine, whatever its host does.
#[test]
fn finding_x6_the_clock_is_right_on_every_machine() {
    for machine in ["q35", "pc", "microvm"] {
        let words = ["--icount", "--cpus", "1", "--machine", machine];
        let Some(ran) = boot(&words, "-append mode=boot") else { return };
        let khz = clock(&ran.passed());
        assert!((990_000..=1_010_000).contains(&khz), "{machine}: {khz} kHz");
    }
    let words = ["--cpus", "1", "--machine", "microvm"];
    let said = boot(&words, "-append mode=boot -M microvm,pit=off").unwrap().unfit();
    assert!(said.contains("no timer moves"), "{said}");
}

#[test]
fn finding_x13_what_the_cpu_lacks_is_named() {
    for (cpu, name) in [
        ("max,-nx", "no-execute pages (nx)"),
        ("max,-pdpe1gb", "1 GiB pages (pdpe1gb)"),
        ("max,-sse2", "SSE2 (sse2)"),
        ("qemu32", "long mode (lm)"),
    ] {
        let Some(ran) = boot(&["--cpus", "2"], &format!("-append mode=boot -cpu {cpu}")) else {
            return;
        };
        assert_eq!(ran.unfit(), format!("the CPU has no {name}"));
    }
    // What is only used where it is there is not missed.
    let least = "-append mode=boot -cpu qemu64,+pdpe1gb";
    assert!(boot(&["--cpus", "2"], least).unwrap().passed().contains("foliant: 2 CPUs"));
}

/// All CPUs give up at once: one of them says everything.
#[test]
fn finding_x14_a_report_is_not_cut_by_the_next_one() {
    let Some(ran) = boot(&["--cpus", "4"], "-append mode=panic") else { return };
    assert_eq!(ran.code, Some(101), "{}", ran.said);
    let count = |word| ran.out.lines().filter(|line| line.contains(word)).count();
    assert_eq!(count("PANIC on cpu"), 1, "{}", ran.out);
    assert_eq!(count("asked for on the command line"), 1, "{}", ran.out);
    // The trace goes on to where a CPU's stack begins.
    let last = ran.out.lines().last().unwrap();
    assert!(last.contains("kernel_main") || last.contains("next_high"), "{}", ran.out);
}

#[test]
fn finding_x14_a_verdict_that_nobody_takes_is_said() {
    let Some(ran) = boot_at("0x1f4", &["--cpus", "1"], "-append mode=boot") else { return };
    assert_eq!(ran.code, Some(70), "{}{}", ran.out, ran.said);
    assert!(ran.out.ends_with("exit code 0; no debug port took it\n"), "{}", ran.out);
    assert!(ran.said.contains("the guest reset"), "{}", ran.said);
}
