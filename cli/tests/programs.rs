//! Programs of Linux on the kernel, as they are installed here: what they print and how they end is
//! what they print and how they end on this host.
#![cfg(target_os = "linux")]

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// Where a program is, if it and QEMU are installed.
fn installed(program: &str) -> Option<PathBuf> {
    let folders: Vec<PathBuf> =
        std::env::split_paths("/usr/local/bin:/usr/bin:/bin:/usr/sbin").collect();
    let found = |name: &str| folders.iter().map(|folder| folder.join(name)).find(|it| it.is_file());
    for needed in ["qemu-system-x86_64", program] {
        if found(needed).is_none() {
            eprintln!("skipped: {needed} is not installed");
            return None;
        }
    }
    found(program)
}

/// How a command ended: its code, or 128 and the signal.
fn code(output: &Output) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    let status = output.status;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
/// Runs a command that reads `input`.
fn fed(command: &mut Command, input: &[u8]) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let input = input.to_vec();
    let feeder = std::thread::spawn(move || drop(pipe.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    output
}
/// `foliant boot` with these words, in a folder.
fn boot(folder: &Path, words: &[&OsStr], program: &[&OsStr], input: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foliant"));
    command.current_dir(folder).args(["boot", "--timeout", "300"]).args(words);
    fed(command.arg("--").args(program), input)
}
/// Runs a program on the host and on the kernel; both do the same.
#[track_caller]
fn same(words: &[&str], program: &Path, arguments: &[&str], input: &[u8]) -> Output {
    let [here, there] = [(); 2].map(|()| TempDir::new().unwrap());
    let words = ["--with", "."].iter().chain(words);
    let words: Vec<&OsStr> = words.map(OsStr::new).collect();
    let line: Vec<&OsStr> =
        [program.as_os_str()].into_iter().chain(arguments.iter().map(OsStr::new)).collect();
    let host = fed(Command::new(program).args(arguments).current_dir(here.path()), input);
    let ours = boot(there.path(), &words, &line, input);
    let said = String::from_utf8_lossy(&ours.stderr);
    assert_eq!(code(&ours), code(&host), "{said}");
    let (out, expect) = (&ours.stdout, &host.stdout);
    let lines = |bytes: &[u8]| String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect();
    let [mut out_lines, mut expected]: [Vec<String>; 2] = [lines(out), lines(expect)];
    let alike = out_lines.iter().zip(&expected).take_while(|(one, other)| one == other).count();
    let [from, to] = [alike.saturating_sub(3), alike + 3];
    [&mut out_lines, &mut expected].into_iter().for_each(|lines| {
        lines.truncate(to);
        lines.drain(..from.min(lines.len()));
    });
    assert!(out == expect, "line {alike}: {out_lines:#?} for {expected:#?}\n{said}");
    ours
}

/// A program of these tests, where there is a compiler.
fn compiled(folder: &TempDir, name: &str) -> Option<PathBuf> {
    let program = folder.path().join(name);
    let source = format!("{}/tests/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let mut compiler = Command::new(installed("gcc")?);
    compiler.args(["-O1", "-static", "-pthread", "-o"]).arg(&program).arg(source);
    let built = compiler.output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(program)
}

/// A program of this folder says the same on so many CPUs as on the host.
fn same_on(cpus: [&str; 2], name: &str, arguments: &[&str]) {
    let folder = TempDir::new().unwrap();
    let Some(program) = compiled(&folder, name) else { return };
    for cpus in cpus {
        same(&["--cpus", cpus], &program, arguments, b"");
    }
}

/// Boots with a program that ends with 0; what it said.
fn ends_well(words: &[&str], program: &Path, arguments: &[&str]) -> String {
    let folder = TempDir::new().unwrap();
    let words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
    let line: Vec<&OsStr> =
        [program.as_os_str()].into_iter().chain(arguments.iter().map(OsStr::new)).collect();
    let ran = boot(folder.path(), &words, &line, b"");
    let [out, said] = [&ran.stdout, &ran.stderr].map(|text| String::from_utf8_lossy(text));
    assert_eq!(code(&ran), 0, "{out}{said}");
    out.into_owned()
}

#[test]
fn bytes_go_in_and_out_as_they_are() {
    let Some(busybox) = installed("busybox") else { return };
    let all: Vec<u8> = (0..=255u8).cycle().take(20_000).collect();
    same(&[], &busybox, &["cat"], &all);
    same(&[], &busybox, &["cat"], b"");
    same(&["--cpus", "2"], &busybox, &["md5sum"], &all);
}

#[test]
fn a_program_ends_as_it_says_or_by_a_signal() {
    let Some(busybox) = installed("busybox") else { return };
    for script in ["exit 0", "exit 7", "exit 255", "kill -9 $$", "kill -SEGV $$", "kill $$"] {
        let ran = same(&["--cpus", "1"], &busybox, &["sh", "-c", script], b"");
        let said = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(said.contains("was killed by signal"), script.starts_with("kill"), "{said}");
    }
    // What cannot be loaded is said.
    let folder = TempDir::new().unwrap();
    let broken = folder.path().join("broken");
    let mut elf = std::fs::read(&busybox).unwrap();
    elf.truncate(100);
    std::fs::write(&broken, elf).unwrap();
    let is_run = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&broken, is_run).unwrap();
    let ran = boot(folder.path(), &[], &[OsStr::new("./broken")], b"");
    assert!(![0, 101].contains(&code(&ran)), "{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn a_shell_forks_pipes_and_handles_signals() {
    let Some(busybox) = installed("busybox") else { return };
    let script = r#"
        busybox=$0
        for n in 1 2 3 4; do $busybox seq 1 3000 | $busybox md5sum & done; wait
        $busybox seq 1 1000 | $busybox awk '{ sum += $1 } END { print sum, NR }'
        trap 'echo told' USR1; kill -USR1 $$
        (exit 3); echo $?
        $busybox yes | $busybox head -n 3
        echo text > one; ln one two; ln -s two three; $busybox cat three; rm one; cat three
        mkdir -p a/b; echo x > a/b/c; mv a d; find d | sort; rm -r d; ls d 2>/dev/null; echo $?
        set -- *; echo $#
        $busybox sleep 0.05 && echo slept
        read line; echo "got $line"
        sh -c 'exit 9' & wait $!; echo $?
    "#;
    for cpus in ["1", "4"] {
        let arguments = ["sh", "-c", script, busybox.to_str().unwrap()];
        same(&["--cpus", cpus], &busybox, &arguments, b"a line\nanother\n");
    }
}

#[test]
fn a_database_joins_in_memory() {
    let Some(sqlite) = installed("sqlite3") else { return };
    let script = "create table t(a, b);
        with recursive c(x) as (select 1 union all select x + 1 from c where x < 20000)
            insert into t select x, x * x % 1000 from c;
        create index i on t(b);
        select count(*), sum(one.a) from t one join t two on one.b = two.b where one.a < 100;";
    for size in ["4k", "64k", "2m"] {
        let ran = same(&["--size", size, "--stats"], &sqlite, &[":memory:", script], b"");
        let said = String::from_utf8(ran.stderr).unwrap();
        assert!(said.contains("faults"), "{said}");
    }
}

#[test]
fn threads_compress_as_on_the_host() {
    let Some(xz) = installed("xz") else { return };
    let mut word = 1u64;
    let bytes: Vec<u8> = (0..100_000)
        .map(|_| {
            word = word.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (word >> 60) as u8
        })
        .collect();
    same(&["--cpus", "2"], &xz, &["-T2", "--block-size=32768", "-c"], &bytes);
}

#[test]
fn an_interpreter_runs_with_dicts_and_threads() {
    let Some(python) = installed("python3") else { return };
    let find = "import sysconfig; print(sysconfig.get_path('stdlib'))";
    let found = Command::new(&python).args(["-c", find]).output().unwrap();
    let library = String::from_utf8(found.stdout).unwrap();
    let script = "
import threading
table = {n: str(n * n) for n in range(20000)}
sums = []
def add(count):
    sums.append(sum(int(table[n]) for n in range(count)))
threads = [threading.Thread(target=add, args=(500 * n,)) for n in range(1, 9)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(table), sorted(sums))
";
    let words = ["--cpus", "4", "--with", library.trim(), "--memory", "1g"];
    same(&words, &python, &["-c", script], b"");
}

#[test]
fn interrupts_are_told_in_the_lines_of_linux() {
    let Some(busybox) = installed("busybox") else { return };
    let words = ["--cpus", "3"].map(OsStr::new);
    let line = [busybox.as_os_str(), "cat".as_ref(), "/proc/interrupts".as_ref()];
    let ran = boot(Path::new("/"), &words, &line, b"");
    let ours = String::from_utf8(ran.stdout).unwrap();
    let host = std::fs::read_to_string("/proc/interrupts").unwrap();
    // A name, a number for each CPU, and what it is.
    let parts = |line: &str| {
        let (name, rest) = line.trim().split_once(':')?;
        let what = rest.trim_start_matches(|c: char| c == ' ' || c.is_ascii_digit());
        let count = rest[..rest.len() - what.len()].split_whitespace().count();
        Some((name.to_owned(), what.to_owned(), count))
    };
    let there: Vec<_> = host.lines().filter_map(parts).collect();
    assert_eq!(ours.lines().next().unwrap(), "           CPU0       CPU1       CPU2       ");
    let lines: Vec<_> = ours.lines().filter_map(parts).collect();
    for name in ["LOC", "RES", "CAL", "TLB"] {
        assert!(lines.iter().any(|line| line.0 == name), "{ours}");
    }
    for (name, what, count) in lines {
        assert_eq!(count, 3, "{ours}");
        assert!(there.iter().any(|line| (&line.0, &line.1) == (&name, &what)), "{name}: {host}");
    }
}

#[test]
fn a_compiler_makes_the_object_that_it_makes_here() {
    let (Some(gcc), Some(busybox)) = (installed("gcc"), installed("busybox")) else { return };
    let folder = TempDir::new().unwrap();
    let source = folder.path().join("hello.c");
    let text = "#include <stdio.h>\n#include <stdlib.h>\n\
        int sum(int n) { int s = 0; for (int i = 0; i < n; i++) s += i * i; return s; }\n\
        int main(int c, char **v) { printf(\"%d %s\\n\", sum(c), v[0]); return abs(-c); }\n";
    std::fs::write(&source, text).unwrap();
    let run = |arguments: &[&str]| {
        let output =
            Command::new(&gcc).args(arguments).current_dir(folder.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    run(&["-O2", "-c", "hello.c", "-o", "hello.o"]);
    let expect = std::fs::read(folder.path().join("hello.o")).unwrap();
    std::fs::remove_file(folder.path().join("hello.o")).unwrap();
    let (passes, assembler) = (run(&["-print-prog-name=cc1"]), run(&["-print-prog-name=as"]));
    let assembler = installed(assembler.trim()).unwrap_or(assembler.trim().into());
    let headers = run(&["-O2", "-M", "hello.c"]);
    let headers = headers.split_whitespace().filter(|word| word.starts_with('/'));
    let mut words = vec!["--memory".into(), "1g".into(), "--cpus".into(), "2".into()];
    let files = [passes.trim().into(), assembler.display().to_string(), "hello.c".into()];
    for file in files.into_iter().chain(headers.map(str::to_owned)) {
        words.extend(["--with".to_owned(), file]);
    }
    words.extend(["--with".into(), gcc.display().to_string()]);
    let words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
    let script = format!("{} -O2 -c hello.c -o hello.o && cat hello.o", gcc.display());
    let line = [busybox.as_os_str(), "sh".as_ref(), "-c".as_ref(), script.as_ref()];
    let ours = boot(folder.path(), &words, &line, b"");
    let said = String::from_utf8_lossy(&ours.stderr);
    assert_eq!(code(&ours), 0, "{said}");
    assert!(ours.stdout == expect, "{} bytes, not {}\n{said}", ours.stdout.len(), expect.len());
}

#[test]
fn nothing_that_programs_ask_for_ends_the_kernel() {
    let folder = TempDir::new().unwrap();
    let Some(program) = compiled(&folder, "random_calls") else { return };
    let words = ["--cpus", "4", "--memory", "512m"].map(OsStr::new);
    let line = [program.as_os_str(), OsStr::new("0"), OsStr::new("150")];
    let ran = boot(folder.path(), &words, &line, b"");
    // They are root, and may end the first of them. The kernel recounts all memory when all have
    // ended: a panic, a recount that disagrees, a reset and a hang have codes of their own.
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(![1, 70, 101, 124].contains(&code(&ran)), "{said}");
}

/// A program of this folder says what it says on Linux 6.18, where it is for root.
#[track_caller]
fn as_on_linux(name: &str, expect: &str) {
    let folder = TempDir::new().unwrap();
    let Some(program) = compiled(&folder, name) else { return };
    for cpus in ["1", "4"] {
        let said = ends_well(&["--cpus", cpus, "--memory", "512m"], &program, &[]);
        assert_eq!(said, expect, "on {cpus} CPUs");
    }
}

#[test]
fn a_program_answers_for_huge_pages() {
    as_on_linux("huge_faults", include_str!("huge_faults.txt"));
}

#[test]
fn a_program_lets_in_what_a_file_has() {
    as_on_linux("let_in", include_str!("let_in.txt"));
}

#[test]
fn a_program_says_that_memory_is_broken() {
    as_on_linux("poisoned", include_str!("poisoned.txt"));
}

/// Recorded from Linux 6.12 in the emulator: hosts may be built without this.
#[test]
fn memory_is_lost_to_all_who_have_it() {
    as_on_linux("broken", include_str!("broken.txt"));
}

/// Who lets the page of a word in may wake and wait for words meanwhile.
#[test]
fn a_word_that_is_waited_for_is_let_in() {
    as_on_linux("words_let_in", include_str!("words_let_in.txt"));
}

#[test]
fn a_program_moves_pages_to_where_they_are_missing() {
    as_on_linux("moved_pages", include_str!("moved_pages.txt"));
}

#[test]
fn leaves_of_2_mib_come_where_they_can() {
    as_on_linux("large_leaves", include_str!("large_leaves.txt"));
}

#[test]
fn policies_are_told_as_they_were_set() {
    as_on_linux("policies", include_str!("policies.txt"));
}

#[test]
fn a_file_of_huge_pages_is_read() {
    as_on_linux("huge_reads", include_str!("huge_reads.txt"));
}

#[test]
fn what_is_said_of_the_processors_is_what_they_say() {
    same_on(["1", "3"], "processors", &[]);
}

/// Recorded from Linux 6.12.
#[test]
fn mounts_of_huge_pages_keep_to_their_sizes() {
    as_on_linux("mount_sizes", include_str!("mount_sizes.txt"));
}

/// Recorded from Linux 6.12.
#[test]
fn what_is_promised_is_what_the_words_allow() {
    as_on_linux("promises", include_str!("promises.txt"));
}

/// As Linux 6.12's source says of its device: no Linux here has that.
#[test]
fn pages_that_a_device_has_stay_the_program_s() {
    as_on_linux("anchored", include_str!("anchored.txt"));
}

#[test]
fn writes_are_noted_and_a_scan_says_which() {
    as_on_linux("noted_writes", include_str!("noted_writes.txt"));
}

#[test]
fn a_program_is_told_of_writes_to_huge_pages() {
    as_on_linux("huge_watches", include_str!("huge_watches.txt"));
}

#[test]
fn whoever_answers_for_memory_is_told_of_its_changes() {
    as_on_linux("fault_changes", include_str!("fault_changes.txt"));
}

#[test]
fn users_become_others_and_are_refused() {
    as_on_linux("credentials", include_str!("credentials.txt"));
}

/// Recorded from Linux 6.12 in the emulator: who runs this on a host may not have all of them.
#[test]
fn what_root_may_is_given_up_one_by_one() {
    as_on_linux("capabilities", include_str!("capabilities.txt"));
}

#[test]
fn descriptors_wait_as_on_the_host() {
    let has_six = std::net::TcpListener::bind("[::1]:0").is_ok();
    let words: &[&str] = if has_six { &["six"] } else { &[] };
    same_on(["1", "2"], "descriptors", words);
}

#[test]
fn terminals_and_who_is_in_front_are_as_on_the_host() {
    same_on(["1", "2"], "terminals", &[]);
}

#[test]
fn what_runs_is_not_written_and_what_is_written_does_not_run() {
    same_on(["1", "4"], "running_files", &[]);
}

#[test]
fn who_takes_all_that_waits_is_refused() {
    let folder = TempDir::new().unwrap();
    let Some(program) = compiled(&folder, "greedy") else { return };
    for memory in ["48m", "128m"] {
        ends_well(&["--cpus", "2", "--memory", memory], &program, &[]);
    }
}

/// 400 MiB of huge pages of which a page each is left, in 256 MiB.
#[test]
fn what_is_hardly_used_comes_back_where_memory_is_short() {
    let folder = TempDir::new().unwrap();
    let Some(program) = compiled(&folder, "hardly_used") else { return };
    let said = ends_well(&["--cpus", "2", "--memory", "256m"], &program, &["200"]);
    assert_eq!(said, "all are there\n");
}

#[test]
fn a_server_serves_over_sockets_and_saves_in_a_fork() {
    let Some(busybox) = installed("busybox") else { return };
    let programs = ["redis-server", "redis-cli", "redis-benchmark"].map(installed);
    let [Some(server), Some(client), Some(benchmark)] = programs else { return };
    // Others may have a server here: this one has a port that is not the usual one.
    let script = r#"
        ask="redis-cli -p 16379"
        redis-server --port 16379 --unixsocket ./socket --save '' --dir . > log 2>&1 &
        until $ask ping 2>/dev/null | grep -q PONG; do sleep 0.05; done
        $ask set key value; $ask get key; $ask lpush list a b c; $ask lrange list 0 -1
        redis-cli -s ./socket incr counter; redis-cli -s ./socket incr counter
        names() { tr '\r' '\n' | sed -n 's/: [0-9.]* requests per second.*//p' | sort -u; }
        redis-benchmark -p 16379 -n 1000 -q -t set,get,incr,lpush,lpop | names
        redis-benchmark -s ./socket -n 1000 -q -t ping,set,get -c 10 -P 4 | names
        $ask bgsave
        while $ask info persistence | grep -q rdb_bgsave_in_progress:1; do sleep 0.05; done
        $ask info persistence | grep rdb_last_bgsave_status | tr -d '\r'
        $ask dbsize
        $ask shutdown nosave
        wait $!; echo "ended $?"
        ls dump.rdb
    "#;
    let paths = [&server, &client, &benchmark].map(|path| path.to_str().unwrap());
    let with = paths.iter().flat_map(|path| ["--with", path]);
    let words: Vec<&str> = ["--cpus", "2", "--memory", "1g"].into_iter().chain(with).collect();
    same(&words, &busybox, &["sh", "-c", script], b"");
}

#[test]
fn a_hostile_program_gets_what_linux_would_answer() {
    let folder = TempDir::new().unwrap();
    let Some(program) = compiled(&folder, "hostile") else { return };
    for words in [["--cpus", "4"], ["--memory", "32m"]] {
        ends_well(&words, &program, &[]);
    }
}

#[test]
fn processes_come_and_words_are_waited_for_as_on_the_host() {
    let folder = TempDir::new().unwrap();
    let Some(program) = compiled(&folder, "kin") else { return };
    for cpus in ["1", "4"] {
        same(&["--cpus", cpus], &program, &[], b"");
    }
}

#[test]
fn calls_about_memory_answer_as_on_the_host() {
    let folder = TempDir::new().unwrap();
    let Some(program) = compiled(&folder, "memory_calls") else { return };
    for cpus in ["1", "4"] {
        same(&["--cpus", cpus], &program, &[], b"");
    }
    // What asks for a machine of one's own, the host has its own answers to.
    let said = ends_well(&["--memory", "1g"], &program, &["root"]);
    let expect = "\
descriptor: 1
of the device: 1
api: 0
register: 0
cb
written from a missing page: 2
read to a missing page: 2
ee
protected: 0
faults: 6
a page that is there: -1 File exists
closed, and as any memory: 6
/sys/kernel/mm/transparent_hugepage/enabled: 0
present: 1
of a large folio: 1
mapped once: 1
/sys/kernel/debug/split_huge_pages: 0
split: 0
and as it was: 1
collapsed: 0
parted: 0
one again: 0
collapsed: 0
and as it was: 1
odd count of a table: -1 Invalid argument
/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages: 0
mounted: 0
not with that: -1 Invalid argument
no kind: -1 No such device
type 958458f6, blocks of 2097152
by halves: -1 Invalid argument
allocated: 0
4194304 bytes, blocks of 2097152
mapped: 1
unlinked: 0
still there: 3
memfd: 0
in use: 1
unmounted: 0
not twice: -1 Invalid argument
advised: 1
its end is told: 1
nobody: -1 Bad file descriptor
";
    assert_eq!(said, expect);
}

#[test]
fn a_test_of_memory_finds_none_that_is_broken() {
    let Some(memtester) = installed("memtester") else { return };
    let folder = TempDir::new().unwrap();
    let line = [memtester.as_os_str(), OsStr::new("16M"), OsStr::new("1")];
    let ran = boot(folder.path(), &[], &line, b"");
    let out = String::from_utf8_lossy(&ran.stdout);
    assert_eq!(code(&ran), 0, "{out}{}", String::from_utf8_lossy(&ran.stderr));
    assert!(out.contains("Done.") && !out.contains("FAILURE"), "{out}");
}

#[test]
fn stressors_of_memory_find_what_they_wrote() {
    let Some(stress) = installed("stress-ng") else { return };
    let folder = TempDir::new().unwrap();
    let stressors = "--vm 1 --vm-ops 100 --vm-bytes 4M --mmap 1 --mmap-ops 10 --mmap-bytes 2M
        --mremap 1 --mremap-ops 10 --mremap-bytes 2M
        --fork 1 --fork-ops 50 --brk 1 --brk-ops 300 --mlock 1 --mlock-ops 100
        --madvise 1 --madvise-ops 1 --shm 1 --shm-ops 5 --remap 1 --remap-ops 5
        --shm-sysv 1 --shm-sysv-ops 5
        --memfd 1 --memfd-ops 5 --memfd-bytes 2M --tlb-shootdown 1 --tlb-shootdown-ops 10
        --mmapfork 1 --mmapfork-ops 1 --userfaultfd 1 --userfaultfd-ops 10
        --userfaultfd-bytes 1M --msync 1 --msync-ops 5 --msync-bytes 1M
        --vm-rw 1 --vm-rw-ops 5 --vm-rw-bytes 1M
        --flock 1 --flock-ops 50 --lockf 1 --lockf-ops 50 --membarrier 1 --membarrier-ops 3";
    let words = ["--memory", "1g", "--cpus", "2"].map(OsStr::new);
    let mut line = vec![stress.as_os_str()];
    line.extend(stressors.split_whitespace().map(OsStr::new));
    line.extend(["--verify", "--timeout", "120"].map(OsStr::new));
    let ran = boot(folder.path(), &words, &line, b"");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(code(&ran), 0, "{said}");
    assert!(!said.contains("fail:"), "{said}");
}

#[test]
fn a_small_machine_runs_a_small_program() {
    let Some(busybox) = installed("busybox") else { return };
    same(&["--memory", "16m", "--cpus", "1"], &busybox, &["echo", "small"], b"");
}

#[test]
fn a_program_s_own_time_is_that_of_its_own_instructions() {
    let folder = TempDir::new().unwrap();
    let Some(program) = compiled(&folder, "own_time") else { return };
    let text = ends_well(&["--icount", "--cpus", "1", "--size", "4k"], &program, &[]);
    let beyond: Vec<i64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
    // Hundredths of an instruction for each call and each fault: less than half of one.
    assert!(beyond.len() == 2 && beyond.iter().all(|it| it.abs() < 50), "{beyond:?}");
}

#[test]
fn wide_registers_are_a_threads_own() {
    if std::is_x86_feature_detected!("avx") {
        same_on(["1", "4"], "vectors", &[]);
    } else {
        eprintln!("skipped: this CPU has no AVX, so there is nothing to compare with");
    }
}

#[test]
fn cpus_that_halt_are_woken() {
    same_on(["1", "2"], "idle", &[]);
}

#[test]
fn threads_meet_a_thousand_times() {
    same_on(["1", "4"], "rounds", &[]);
}

#[test]
fn processes_that_are_killed_leave_nothing() {
    let folder = TempDir::new().unwrap();
    let Some(program) = compiled(&folder, "kills") else { return };
    // The kernel recounts all memory at its end, and has a code for what disagrees.
    let said = ends_well(&["--cpus", "4", "--size", "64k"], &program, &["1000"]);
    assert_eq!(said, "1000 killed, nothing lost\n");
}

#[test]
fn sequences_begin_anew_where_they_are_interrupted() {
    same_on(["1", "4"], "restartable", &[]);
}
