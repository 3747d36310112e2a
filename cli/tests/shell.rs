//! A session of the kernel's shell under QEMU: what a person types, and the answers that are the
//! same every time.
#![cfg(unix)]

use std::io::Write;
use std::process::{Command, Stdio};

const PROMPT: &str = "foliant> ";

/// What is typed, and the lines that answer it. Lines about ticks are left out.
const SESSION: &[(&str, &[&str])] = &[
    (
        "vmallocinfo",
        &[
            "0xffff808000000000-0xffff808000011000   69632 foliant_kernel::smp::stack pages=16 vmalloc N0=16",
            "0xffff808000011000-0xffff808000017000   24576 foliant_kernel::smp::block pages=5 vmalloc N0=5",
            "0xffff808000017000-0xffff808000028000   69632 foliant_kernel::smp::stack pages=16 vmalloc N0=16",
            "0xffffe00040000000-0xffffe00040001000    4096 local_apic phys=0x00000000fee00000 ioremap",
            "0xffffe00040002000-0xffffe00040003000    4096 io_apic phys=0x00000000fec00000 ioremap",
            "0xffffe00080000000-0xffffe00080001000    4096 user_programs pages=1 vmap user N0=1",
        ],
    ),
    ("cpus", &["processor 0 apicid 0", "processor 1 apicid 1"]),
    ("frob 1", &["frob: there is no such command; help lists them"]),
    ("map", &["map: SIZE is missing", "usage: map SIZE [hugepage|nohugepage]"]),
    ("map 12q", &["map: 12q: a size ends in k, m, g or t, like 64k or 2m"]),
    ("map 0", &["map: 0 is no page at all; 4k is one"]),
    ("touch last", &["touch: nothing was mapped yet; map 64m makes an area"]),
    ("unmap zz", &["unmap: zz is no address; one is written like 40000000, and maps lists them"]),
    ("map 4m hugepage", &["40000000-40400000 rw-p 00000000 00:00 0"]),
    ("touch last read", &["1024 of 1024 pages touched, 2 faults", "2 zero pages"]),
    (
        "smaps",
        &[
            "40000000-40400000 rw-p 00000000 00:00 0",
            "Size:               4096 kB",
            "KernelPageSize:        4 kB",
            "Rss:                   0 kB",
            "AnonHugePages:         0 kB",
            "VmFlags: rd wr hg",
        ],
    ),
    ("unmap last", &["4m unmapped"]),
    ("map 4m hugepage", &["40000000-40400000 rw-p 00000000 00:00 0"]),
    ("touch last cpus=2", &["1024 of 1024 pages touched, 2 faults", "2 folios of 2m"]),
    (
        "thp 64k always",
        &[
            "enabled          always [madvise] never",
            "hugepages-16kB   always inherit madvise [never]",
            "hugepages-32kB   always inherit madvise [never]",
            "hugepages-64kB   [always] inherit madvise never",
            "hugepages-128kB  always inherit madvise [never]",
            "hugepages-256kB  always inherit madvise [never]",
            "hugepages-512kB  always inherit madvise [never]",
            "hugepages-1024kB always inherit madvise [never]",
            "hugepages-2048kB always [inherit] madvise never",
        ],
    ),
    ("thp 48k always", &["thp: 48k is not a power of two of 4k"]),
    ("map 1m", &["40400000-40500000 rw-p 00000000 00:00 0"]),
    ("touch last 128k", &["32 of 32 pages touched, 2 faults", "2 folios of 64k"]),
    (
        "touch last 2m",
        &[
            "256 of 512 pages touched, 15 faults",
            "14 folios of 64k",
            "stopped: no area contains 0x40500000; maps lists them, map makes one",
        ],
    ),
    (
        "touch ffffc00000000000 read",
        &[
            "0 of 1 pages touched, 0 faults",
            "stopped: 0xffffc00000000000 is not the program's to access",
        ],
    ),
    (
        "touch 800000000000 read",
        &["0 of 1 pages touched, 0 faults", "stopped: the processor knows no such address"],
    ),
    ("touch last cpus=3", &["touch: cpus=3: a whole number from 1 to 2, the CPUs that run"]),
    ("hugepages 2m 16", &["2m: 16 pages are kept, 32m"]),
    ("hugepages hugetlb_optimize_vmemmap 1", &[]),
    ("hugepages 2m 20", &["2m: 20 pages are kept, 40m"]),
    ("kpageflags 1", &["kpageflags: COUNT is missing", "usage: kpageflags [FRAME COUNT]"]),
    (
        "hugepages 3m 1",
        &[
            "hugepages: 3m is unknown here; there are 2m, 1g",
            "usage: hugepages [2m|1g COUNT | CONTROL [2m|1g] VALUE]",
        ],
    ),
    ("hugepages 1g 1", &["1g: 0 of 1 pages are kept, 0: no free block of 1g"]),
];

/// The answer to each line that is typed, and QEMU's last word. `None` where there is no QEMU.
fn talk(lines: &[String]) -> Option<(Vec<Vec<String>>, Option<i32>)> {
    let qemu = Command::new("qemu-system-x86_64").arg("--version").output();
    if !qemu.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: qemu-system-x86_64 is not installed");
        return None;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_foliant"));
    command.args(["boot", "--shell", "--cpus", "2", "--memory", "256m", "--timeout", "300"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let typed: String = lines.iter().map(|line| format!("{line}\n")).collect();
    child.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap().replace('\r', "");
    let answers = said.split(PROMPT).skip(1).map(|answer| {
        let told = answer.lines().skip(1).filter(|line| !line.contains(" ticks a page"));
        told.map(str::to_owned).collect()
    });
    Some((answers.collect(), output.status.code()))
}

/// The number in the line of `meminfo` with this name.
fn field(lines: &[String], name: &str) -> u64 {
    let line = lines.iter().find(|line| line.split(':').next() == Some(name));
    line.unwrap_or_else(|| panic!("{name} is missing in {lines:#?}"))
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn a_session_is_answered_and_everything_given_back() {
    let mut lines: Vec<String> = SESSION.iter().map(|(line, _)| (*line).to_owned()).collect();
    // A slip is rubbed out, and a line is dropped with Ctrl-C.
    lines.extend(
        ["meminx\x08fo", "unmap 40000000\x03buddyinfo", "kpageflags", "hugepages 2m 99999", "exit"]
            .map(str::to_owned),
    );
    let Some((answers, code)) = talk(&lines) else { return };
    for ((line, expect), answer) in SESSION.iter().zip(&answers) {
        assert_eq!(answer, expect, "{line}");
    }
    let [meminfo, dropped, buddyinfo, listing, greedy, farewell] = &answers[SESSION.len()..] else {
        panic!("other answers than lines: {answers:#?}")
    };

    for (name, value) in [
        ("AnonPages", 4096 + 1024),
        ("AnonHugePages", 4096),
        ("KernelStack", 128),
        ("VmallocUsed", 128 + 20),
        ("HugePages_Total", 20),
        ("HugePages_Free", 20),
        ("HugePages_Rsvd", 0),
        ("Hugepagesize", 2048),
        ("Hugetlb", 20 * 2048),
        ("DirectMap1G", 0),
        ("DirectMap2M", 256 << 10), // all memory, and nothing behind it
    ] {
        assert_eq!(field(meminfo, name), value, "{name}");
    }
    assert!(dropped.is_empty(), "{dropped:?}");

    // The free blocks are the free memory.
    let counts = buddyinfo[0].strip_prefix("Node 0, zone   Normal").unwrap().split_whitespace();
    let counts: Vec<u64> = counts.map(|count| count.parse().unwrap()).collect();
    assert_eq!(counts.len(), 19);
    let pages: u64 = counts.iter().enumerate().map(|(order, count)| count << order).sum();
    assert_eq!(pages * 4, field(meminfo, "MemFree"));

    // Each huge page has one head and 511 tails, folded or not.
    let huge: Vec<Vec<&str>> = listing
        .iter()
        .map(|line| line.split_whitespace().skip(1).collect())
        .filter(|words: &Vec<&str>| words.join(" ").ends_with(",huge"))
        .collect();
    let page = [["1", "compound_head,huge"], ["511", "compound_tail,huge"]];
    assert_eq!(huge, page.repeat(20));

    // As many as there are, and the shell goes on.
    let (kept, reason) = greedy[0].split_once(" of 99999 pages are kept, ").unwrap();
    assert!(kept.strip_prefix("2m: ").unwrap().parse::<u64>().unwrap() > 64, "{greedy:?}");
    assert!(reason.ends_with(": no free block of 2m"), "{greedy:?}");
    assert_eq!(farewell[..], ["all given back, the recount agrees"]);
    assert_eq!(code, Some(0));
}
