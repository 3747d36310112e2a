//! A session of the kernel's shell under QEMU: what a person types, and the answers that are the
//! same every time.
#![cfg(unix)]

mod seat;

use seat::{Seat, has_qemu};
use std::io::Write;
use std::process::{Command, Stdio};

/// The prompt at the begin of a line: where a line is shown anew, no line feed is before it.
const PROMPT: &str = "\nfoliant> ";
const FAREWELL: &str = "all given back, the recount agrees";

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
    ("unmap last", &["4m unmapped; …"]),
    ("map 4m hugepage", &["40000000-40400000 rw-p 00000000 00:00 0"]),
    ("touch last cpus=2", &["1024 of 1024 pages touched, 2 faults", "2 folios of 2m"]),
    (
        "thp 64k always",
        &[
            "enabled          always [madvise] never",
            "hugepages-16kB   always auto inherit madvise [never]",
            "hugepages-32kB   always auto inherit madvise [never]",
            "hugepages-64kB   [always] auto inherit madvise never",
            "hugepages-128kB  always auto inherit madvise [never]",
            "hugepages-256kB  always auto inherit madvise [never]",
            "hugepages-512kB  always auto inherit madvise [never]",
            "hugepages-1024kB always auto inherit madvise [never]",
            "hugepages-2048kB always auto [inherit] madvise never",
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
    (
        "thp auto",
        &[
            "enabled          always madvise [never]",
            "hugepages-16kB   always [auto] inherit madvise never",
            "hugepages-32kB   always [auto] inherit madvise never",
            "hugepages-64kB   always [auto] inherit madvise never",
            "hugepages-128kB  always [auto] inherit madvise never",
            "hugepages-256kB  always [auto] inherit madvise never",
            "hugepages-512kB  always [auto] inherit madvise never",
            "hugepages-1024kB always [auto] inherit madvise never",
            "hugepages-2048kB always [auto] inherit madvise never",
        ],
    ),
];

/// The same for what works on pages.
const BY_HAND: &[(&str, &[&str])] = &[
    ("map 4m hugepage", &["40000000-40400000 rw-p 00000000 00:00 0"]),
    ("touch last", &["1024 of 1024 pages touched, 2 faults", "2 folios of 2m"]),
    ("fork 1", &["fork: 1 is one word too many", "usage: fork"]),
    ("fork", &["space 2 is a fork of space 1, with 1024 pages of its; …"]),
    ("spaces", &["*  1     1024 pages", "   2     1024 pages"]),
    ("touch last 64k", &["16 of 16 pages touched, 16 faults", "16 pages copied"]),
    ("spaces 3", &["spaces: 3 is the number of no space; spaces lists them"]),
    ("spaces 2", &["   1     1024 pages", "*  2     1024 pages"]),
    // The pages of a large folio are shared as long as one of them is.
    ("touch last 64k", &["16 of 16 pages touched, 16 faults", "16 pages copied"]),
    (
        "mprotect last q",
        &["mprotect: q is unknown here; there are none, r, rw, rx, rwx", "usage: …"],
    ),
    ("mprotect last", &["mprotect: RIGHTS is missing", "usage: …"]),
    ("mprotect last r 1m", &["1m protected; …", "40000000-40100000 r--p 00000000 00:00 0"]),
    (
        "touch last 4k",
        &["0 of 1 pages touched, 1 faults", "stopped: the area at 0x40000000 does not grant Write"],
    ),
    ("mprotect 40000000 rw 1m", &["1m protected…", "40000000-40400000 rw-p 00000000 00:00 0"]),
    ("madvise last frob", &["madvise: frob is unknown here; there are hugepage, …", "usage: …"]),
    ("madvise last dontneed 64k", &["dontneed: 64k advised; 16 pages freed, …"]),
    ("split 40000000", &["split: no folio is mapped at 0x40000000"]),
    (
        "split 40200000 3k",
        &["split: 3k is unknown here; there are powers of two from 4k on", "usage: …"],
    ),
    ("split 40200000 8m", &["split: a folio of 2m is not split into pieces of 8m"]),
    ("split 40200000 64k", &["a folio of 2m became 32 of 64k; …"]),
    ("split 40200000", &["a folio of 64k became 16 of 4k; …"]),
    ("madvise last collapse", &["collapse: 2 folios of 2m made, 0 were there; …"]),
    ("madvise 40200000 collapse", &["collapse: 0 folios of 2m made, 1 were there"]),
    ("madvise last collapse 1m", &["collapse: no aligned 2m lie in these 1m"]),
    ("map 1m", &["40400000-40500000 rw-p 00000000 00:00 0"]),
    ("madvise last populate_write", &["populate_write: 1m advised; …"]),
    ("split last", &["split: a folio of 4k is not split into pieces of 4k"]),
    ("kill 1", &["space 1 is ended; …"]),
    ("kill 2", &["kill: it is the last space; fork makes another one, and exit ends it"]),
    ("kill", &["kill: NUMBER is missing", "usage: kill NUMBER"]),
    ("fork", &["space 1 is a fork of space 2, with …"]),
];

impl Seat {
    /// Boots two CPUs with 256 MiB, and waits for the prompt. `None` where there is no QEMU.
    fn take() -> Option<Seat> {
        if !has_qemu() {
            return None;
        }
        let mut seat = Seat::of(&mut command(), [0, 0]);
        seat.until(PROMPT);
        Some(seat)
    }
    /// The answer to what is typed: the lines behind the typed one.
    fn answer(&mut self, typed: &str) -> Vec<String> {
        self.type_in(typed);
        let told = self.until(PROMPT) + "\n";
        told.lines().skip(1).map(str::to_owned).collect()
    }
    fn ask(&mut self, line: &str) -> Vec<String> {
        let mut told = self.answer(&format!("{line}\r"));
        told.retain(|line| !line.contains(" ticks a page"));
        told
    }
    /// Ends the guest with what is typed: what it says, and the exit code.
    fn leave(mut self, typed: &str) -> (Vec<String>, Option<i32>) {
        self.type_in(typed);
        let told = self.until(FAREWELL) + FAREWELL;
        let status = self.child.wait().unwrap();
        (told.lines().skip(1).map(str::to_owned).collect(), status.code())
    }
}

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foliant"));
    command.args(["boot", "--shell=kernel", "--cpus", "2", "--memory", "256m", "--timeout", "300"]);
    command
}

/// Whether an answer is what was expected: of a line that ends with `…` only the begin counts.
fn is_answer(told: &[String], expect: &[&str]) -> bool {
    let is = |(told, expect): (&String, &&str)| match expect.strip_suffix('…') {
        Some(begin) => told.starts_with(begin),
        None => told == expect,
    };
    told.len() == expect.len() && told.iter().zip(expect).all(is)
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
    let Some(mut seat) = Seat::take() else { return };
    for (line, expect) in SESSION {
        let told = seat.ask(line);
        assert!(is_answer(&told, expect), "{line}: {told:#?}");
    }
    let (meminfo, free) = (seat.ask("meminfo"), seat.ask("free"));
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
        assert_eq!(field(&meminfo, name), value, "{name}");
    }
    assert_eq!(field(&free, "Mem"), field(&meminfo, "MemTotal"));
    assert_eq!(free[2].split_whitespace().collect::<Vec<_>>(), ["Huge:", "40960", "0", "40960"]);

    // The free blocks are the free memory.
    let buddyinfo = seat.ask("buddyinfo");
    let counts = buddyinfo[0].strip_prefix("Node 0, zone   Normal").unwrap().split_whitespace();
    let counts: Vec<u64> = counts.map(|count| count.parse().unwrap()).collect();
    assert_eq!(counts.len(), 19);
    let pages: u64 = counts.iter().enumerate().map(|(order, count)| count << order).sum();
    assert_eq!(pages * 4, field(&meminfo, "MemFree"));

    // Huge pages side by side are one line, folded or not; so are folios, and each frame is in one.
    let listing = seat.ask("kpageflags");
    let numbers = |line: &String| -> [u64; 2] {
        let mut words = line.split_whitespace().map(|word| word.parse().unwrap());
        [words.next().unwrap(), words.next().unwrap()]
    };
    let of = |kind: &str| {
        let lines = listing.iter().filter(|line| line.contains(kind));
        lines.fold([0, 0], |[lines, frames], line| [lines + 1, frames + numbers(line)[1]])
    };
    assert!(matches!(of(" huge "), [1..=3, 10_240]), "{listing:#?}");
    assert!(matches!(of("of 64k"), [1..=4, 256]), "{listing:#?}");
    assert!(
        listing.windows(2).all(|two| numbers(&two[0]).iter().sum::<u64>() <= numbers(&two[1])[0])
    );
    assert_eq!(
        listing.iter().map(|line| numbers(line)[1]).sum::<u64>() * 4,
        field(&meminfo, "MemTotal")
    );

    // As many as there are, and the shell goes on.
    let greedy = seat.ask("hugepages 2m 99999");
    let (kept, reason) = greedy[0].split_once(" of 99999 pages are kept, ").unwrap();
    assert!(kept.strip_prefix("2m: ").unwrap().parse::<u64>().unwrap() > 64, "{greedy:?}");
    assert!(reason.ends_with(": no free block of 2m"), "{greedy:?}");
    assert_eq!(seat.leave("exit\r"), (vec![FAREWELL.to_owned()], Some(0)));
}

/// What programs, forks and advice do to pages, with all of it given back at the end.
#[test]
fn the_manager_is_worked_by_hand() {
    let Some(mut seat) = Seat::take() else { return };
    for (line, expect) in BY_HAND {
        let told = seat.ask(line);
        assert!(is_answer(&told, expect), "{line}: {told:#?}");
    }
    let compacted = seat.ask("compact");
    assert!(compacted[0].contains(" blocks of 2m are free that were not: "), "{compacted:?}");
    assert!(compacted[1].ends_with("cannot move"), "{compacted:?}");
    // Each command is listed in one line, and completed.
    let help = seat.ask("help");
    for name in ["fork", "mprotect", "madvise", "compact", "split", "free", "vmallocinfo"] {
        let lines = help.iter().filter(|line| line.split(' ').next() == Some(name));
        assert_eq!(lines.count(), 1, "{name}");
        let (most, last) = name.split_at(name.len() - 1);
        seat.type_in(&format!("{most}\t"));
        seat.until(&format!("{name} "));
        assert!(seat.answer("\x15\r").is_empty(), "{last}");
    }
    // Left over are spaces and areas.
    assert_eq!(seat.leave("exit\r"), (vec![FAREWELL.to_owned()], Some(0)));
}

#[test]
fn keys_edit_lines_and_control_c_ends_commands() {
    let Some(mut seat) = Seat::take() else { return };
    let cpus = ["processor 0 apicid 0", "processor 1 apicid 1"];
    // Left, home, end, delete, backspace.
    assert_eq!(seat.answer("pus\x1b[Hc\x1b[F\x1b[D\x1b[D\x1b[3~u\x05x\x7f\r"), cpus);
    // Up, and up and down; the word and the line that go.
    assert_eq!(seat.answer("\x1b[A\r"), cpus);
    assert_eq!(seat.answer("\x01frob \x05\x17cpus nonsense\x17\x1b[A\x1b[B\r"), cpus);
    assert_eq!(seat.answer("frob\x15cpus\r"), cpus);
    // Tab: one word, what all have in common, and all of them.
    assert_eq!(seat.answer("cp\t\r"), cpus);
    seat.type_in("m\t");
    seat.until("meminfo  map  maps  mprotect  madvise  ");
    seat.until(PROMPT);
    assert_eq!(seat.answer("\x03"), Vec::<String>::new());
    seat.type_in("map 4m nohu\t");
    seat.until("nohugepage ");
    assert_eq!(seat.answer("\r"), ["40000000-40400000 rw-p 00000000 00:00 0"]);
    assert_eq!(seat.answer("\x03"), ["exit or Ctrl-D ends the guest"]);

    // A program, and a scenario: what was done stays, and the shell goes on.
    seat.ask("map 200m");
    seat.type_in("touch last\r");
    seat.until("touch last\n");
    seat.type_in("help\x03");
    let told = seat.until(PROMPT);
    assert!(told.contains(" of 51200 pages touched"), "{told}");
    assert!(told.ends_with("\ntouch: interrupted"), "{told}");
    assert_eq!(seat.ask("cpus"), cpus, "what was typed before Ctrl-C is dropped");
    let smaps = seat.ask("smaps");
    let rss = smaps.iter().rev().find(|line| line.starts_with("Rss:")).unwrap();
    let rss: u64 = rss.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(rss < 200 << 10, "{rss} kB are there");
    seat.ask("unmap last");
    seat.type_in("lab zero bytes=128m\r");
    seat.until("bytes=128m\n");
    seat.type_in("\x03");
    assert_eq!(seat.until(PROMPT), "lab: interrupted");
    assert_eq!(seat.ask("cpus"), cpus);
    assert_eq!(seat.leave("\x04"), (vec![FAREWELL.to_owned()], Some(0)));
}

/// A pipe is a person who types without looking, and its end is the end.
#[test]
fn what_comes_down_a_pipe_is_answered() {
    if !has_qemu() {
        return;
    }
    let mut child = command().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"cpus\nmap 4m\nmaps").unwrap();
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap().replace('\r', "");
    assert_eq!(told.matches("40000000-40400000 rw-p").count(), 2, "{told}");
    assert!(told.ends_with(&format!("{FAREWELL}\n")), "{told}");
    assert_eq!(output.status.code(), Some(0));
}
