//! The fuzzers: built with coverage counters, run in pairs, told in one table.
//!
//! ```text
//!   fuzz/targets/NAME.rs ──build──▶ target/fuzz ──▶ libFuzzer: seeds (fuzz/seeds/NAME) and what it found before
//!                                                              (target/fuzz/corpus/NAME) ─▶ more of the same, or a crash
//! ```
//!
//! Stable Rust has no option for the counters, but it can hand the compiler's own options on: the
//! flags below are what the unstable option stands for.
//!
//! **Not here**: what a target does (`fuzz/targets`).

use crate::run::{cargo_in, root};
use clap::Args;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What an instrumented build is made with: a counter on each edge, and where it is. Operands of
/// comparisons are not recorded: that takes two fifths of a history's time, and the seeds have the
/// magic numbers.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table";
/// How many run at once: one per CPU of a small machine.
const AT_ONCE: usize = 2;
/// An input that takes longer than this is a finding, in seconds.
const SLOW: u64 = 20;
/// A fuzzer that takes more memory than this is a finding, in MiB.
const LARGE: u64 = 2048;
/// A finding's last words: as many lines of its log are printed, because a machine of CI is gone
/// afterwards.
const LAST_LINES: usize = 60;

/// What `cargo xtask fuzz` takes.
#[derive(Args, Debug)]
pub(crate) struct Fuzz {
    /// How long each target runs
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u64,
    /// One target, instead of all
    target: Option<String>,
    /// Runs a target on one input: a file, or its bytes in hexadecimal, as a finding's replay line
    /// says
    #[arg(requires = "target")]
    input: Option<String>,
}

/// What a run says of itself at its end.
#[derive(Default)]
struct Told {
    executions: u64,
    per_second: u64,
    edges: u64,
    corpus: u64,
}

/// Every target for so long.
pub(crate) fn all(seconds: u64) -> Result<(), String> {
    fuzz(&Fuzz { seconds, target: None, input: None })
}

/// Format and lints of the fuzzers' own workspace.
pub(crate) fn lints() -> Result<(), String> {
    let folder = root().join("fuzz");
    cargo_in(&folder, "format of the fuzzers", &["fmt", "--check"], &[])?;
    if !compiler() {
        return Ok(());
    }
    let (host, target) = (host()?, work());
    let target = target.to_str().ok_or("the path of the workspace is not UTF-8")?;
    let clippy = ["clippy", "--release", "--target", &host, "--target-dir", target];
    let strict = ["--", "--deny", "warnings"];
    cargo_in(
        &folder,
        "clippy of the fuzzers",
        &[&clippy[..], &strict].concat(),
        &[("RUSTFLAGS", FLAGS)],
    )
}

/// Runs what was asked for.
pub(crate) fn fuzz(asked: &Fuzz) -> Result<(), String> {
    let all = targets()?;
    let chosen: Vec<&String> = match &asked.target {
        None => all.iter().collect(),
        Some(name) => all.iter().filter(|target| *target == name).collect(),
    };
    if chosen.is_empty() {
        return Err(format!("no such target: use one of {}", all.join(", ")));
    }
    if !compiler() {
        return Ok(());
    }
    let built = build()?;
    if let (Some(input), [name]) = (&asked.input, &chosen[..]) {
        return replay(&built, name, input);
    }
    println!(
        "{:<10} {:>12} {:>10} {:>8} {:>8}",
        "target", "executions", "per second", "edges", "corpus"
    );
    let mut failed = Vec::new();
    for pair in chosen.chunks(AT_ONCE) {
        let started: Vec<_> =
            pair.iter().map(|name| start(&built, name, asked.seconds)).collect::<Result<_, _>>()?;
        for (name, child) in pair.iter().zip(started) {
            if let Err(why) = end(name, child) {
                failed.push(why);
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

/// The targets, by their files.
fn targets() -> Result<Vec<String>, String> {
    let folder = root().join("fuzz/targets");
    let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let name = |file: PathBuf| Some(file.file_name()?.to_str()?.strip_suffix(".rs")?.to_owned());
    let mut names: Vec<String> = entries.flatten().filter_map(|entry| name(entry.path())).collect();
    names.sort();
    Ok(names)
}

/// Whether there is a compiler for the library, which is C++; otherwise how to get it is printed.
fn compiler() -> bool {
    let asked = Command::new("c++").arg("--version").stdout(Stdio::null()).status();
    let there = asked.is_ok_and(|status| status.success());
    if !there {
        println!(
            "skipped: the fuzzers, because their library is C++ and c++ is not installed; on Debian or Ubuntu: \
             apt-get install --no-install-recommends g++"
        );
    }
    there
}

/// Builds all targets, and says where they are.
fn build() -> Result<PathBuf, String> {
    let (host, target) = (host()?, work());
    // With a target named, build scripts and macros are built without the counters.
    let target_dir = target.to_str().ok_or("the path of the workspace is not UTF-8")?;
    let args = ["build", "--release", "--target", &host, "--target-dir", target_dir];
    cargo_in(&root().join("fuzz"), "build of the fuzzers", &args, &[("RUSTFLAGS", FLAGS)])?;
    Ok(target.join(host).join("release"))
}

/// What rustc calls this machine.
fn host() -> Result<String, String> {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let asked = Command::new(rustc).arg("-vV").output();
    let told = asked.map_err(|error| format!("rustc does not start: {error}"))?;
    let text = String::from_utf8_lossy(&told.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc does not say what this machine is".into())
}

/// Where a target's inputs, findings and words go.
fn work() -> PathBuf {
    root().join("target/fuzz")
}
fn log(name: &str) -> PathBuf {
    work().join(format!("{name}.log"))
}

fn start(built: &Path, name: &str, seconds: u64) -> Result<Child, String> {
    let corpus = work().join("corpus").join(name);
    let findings = work().join("findings");
    for folder in [&corpus, &findings] {
        fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let log = log(name);
    let file = File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
    let child = Command::new(built.join(name))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-timeout={SLOW}"))
        .arg(format!("-rss_limit_mb={LARGE}"))
        .arg(format!("-artifact_prefix={}/{name}-", findings.display()))
        .arg("-print_final_stats=1")
        .arg(&corpus)
        .arg(root().join("fuzz/seeds").join(name))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(file)
        .spawn();
    child.map_err(|error| format!("the fuzzer {name} does not start: {error}"))
}

/// Waits for a run and prints its row.
fn end(name: &str, mut child: Child) -> Result<(), String> {
    let status = child.wait().map_err(|error| format!("{name}: {error}"))?;
    let path = log(name);
    let text = fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let text = String::from_utf8_lossy(&text);
    let told = Told::read(&text);
    println!(
        "{name:<10} {:>12} {:>10} {:>8} {:>8}",
        told.executions, told.per_second, told.edges, told.corpus
    );
    if status.success() {
        return match told.executions {
            0 => Err(format!("the fuzzer {name} ran nothing; its words: {}", path.display())),
            _ => Ok(()),
        };
    }
    let lines: Vec<&str> = text.lines().collect();
    for line in &lines[lines.len().saturating_sub(LAST_LINES)..] {
        println!("  {name}: {line}");
    }
    let input = text.lines().find_map(|line| line.split_once("Test unit written to "));
    Err(match input {
        Some((_, input)) => format!(
            "the fuzzer {name} found something: {input}\n  replay: cargo xtask fuzz {name} {}",
            fs::read(input).map_or_else(|_| input.to_owned(), |bytes| hexadecimal(&bytes))
        ),
        None => format!("the fuzzer {name} ended with {status}; its words: {}", path.display()),
    })
}

/// Bytes as digits: what leaves a machine with the words of a run.
fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The file of an input that was named, which may be its own digits.
fn input_file(name: &str, input: &str) -> Result<PathBuf, String> {
    if Path::new(input).exists() {
        return Ok(input.into());
    }
    let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = match input.len() % 2 {
        0 => input.as_bytes().chunks(2).map(digits).collect(),
        _ => None,
    };
    let bytes = bytes
        .ok_or_else(|| format!("{input}: neither a file nor the bytes of one in hexadecimal"))?;
    let file = work().join(format!("{name}-replayed"));
    fs::write(&file, bytes).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(file)
}

fn replay(built: &Path, name: &str, input: &str) -> Result<(), String> {
    let status = Command::new(built.join(name)).arg(input_file(name, input)?).status();
    let status = status.map_err(|error| format!("the fuzzer {name} does not start: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{name}: {status}")) }
}

impl Told {
    /// Reads libFuzzer's last lines.
    fn read(text: &str) -> Told {
        let mut told = Told::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let after = |word: &str| {
                let at = words.iter().position(|w| *w == word)?;
                words.get(at + 1)?.split('/').next()?.parse().ok()
            };
            let set = |field: &mut u64, word| *field = after(word).unwrap_or(*field);
            set(&mut told.executions, "stat::number_of_executed_units:");
            set(&mut told.per_second, "stat::average_exec_per_sec:");
            set(&mut told.edges, "cov:");
            set(&mut told.corpus, "corp:");
        }
        told
    }
}
