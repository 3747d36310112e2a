//! `foliant boot`: the kernel under QEMU, and programs of Linux on it.
//!
//! ```text
//!   kernel ─▶ --kernel, carried, or built      qemu ─▶ find it, start it, follow its output, end it
//!        ├────────────────┬─────────────────────────────┤
//!        │              run(Options) ─▶ Outcome: how it ended, its reports
//!        └─────────── program::run(Boot) ───────────────┘
//!                       │          └─▶ words: how the program ended
//!                       ├─▶ compare: the same on Linux, counted
//!                       └─▶ pack, loader ─▶ archive: the files that the guest finds
//! ```
//!
//! The kernel gives its verdict by a write to a debug port, and QEMU turns it into an exit status;
//! see [`qemu::Ended`].
//!
//! **Not here**: what the kernel does with its command line (`kernel/`).

mod archive;
mod calls;
pub(crate) mod compare;
mod frame;
mod kernel;
pub(crate) mod limits;
mod loader;
mod login;
mod pack;
mod program;
mod qemu;
mod seat;
mod words;

pub(crate) use qemu::Ended;
pub(crate) use words::Counts;

use crate::args::{Board, Boot, Guest, Size};
use crate::failure::{Done, Failure, print};
use crate::lab::compare::{self as lab_compare, Tick};
use crate::lab::document as lab_document;
use crate::lab::show;
use crate::{document, scenario};
use foliant_lab::{Parameters, Report, Scenario};
use foliant_units::{Bytes, Order};
use login::Which;
use pack::Login;
use seat::Seat;
use std::ffi::OsString;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Give up after this time, where nothing else is asked for.
const TIMEOUT: Duration = Duration::from_secs(600);
/// The kernel's code, and the command's, where it cannot run on the machine.
const UNFIT: u8 = 3;
/// Exit code where the guest gave no verdict.
const NO_VERDICT: u8 = 70;
/// The kernel's code, and the command's, where it panicked.
const PANICKED: u8 = 101;
/// Exit code at the timeout.
const TIMED_OUT: u8 = 124;
/// Exit code after Ctrl-C.
const INTERRUPTED: u8 = 130;

/// What the kernel is to do.
#[derive(Clone, Debug)]
pub(crate) enum Mode {
    Tests,
    Laws,
    Shell,
    Lab(Scenario, Parameters),
    /// Run a program of Linux.
    Program(Linux),
    /// List the calls that programs of Linux may make.
    Calls,
}

/// How a program of Linux is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Linux {
    /// The size of folios for its memory, where one is asked for.
    folio: Option<Order>,
    /// Whether the kernel says what it counted.
    stats: bool,
    /// Whether the kernel counts the program's own ticks, to compare it with Linux.
    counts: bool,
    /// How large the archive of its files is.
    archive: Bytes,
    /// The terminal that somebody sits at.
    seat: Option<Seat>,
}

/// One boot.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) mode: Mode,
    pub(crate) size: Size,
    pub(crate) guest: Guest,
}

impl Options {
    /// The kernel's command line.
    fn words(&self) -> String {
        let mut words = vec![match self.mode {
            Mode::Tests => "mode=tests".to_owned(),
            Mode::Laws => "mode=laws".to_owned(),
            Mode::Shell => "mode=shell".to_owned(),
            Mode::Lab(..) => "mode=lab".to_owned(),
            Mode::Program(_) | Mode::Calls => "mode=linux".to_owned(),
        }];
        if let Mode::Lab(scenario, parameters) = &self.mode {
            words.push(format!("lab={scenario}"));
            words.extend(parameters.words());
        }
        if let Mode::Program(linux) = self.mode {
            words.extend(linux.folio.map(|order| format!("thp={}", order.bytes())));
            words.extend(linux.stats.then(|| "stats".to_owned()));
            words.extend(linux.counts.then(|| "ticks".to_owned()));
            if let Some(Seat { size: [rows, columns], errors_are_apart }) = linux.seat {
                words.push(format!("terminal={rows}x{columns}"));
                words.extend(errors_are_apart.then(|| "errors=apart".to_owned()));
            }
        }
        if matches!(self.mode, Mode::Calls) {
            words.push("calls".to_owned());
        }
        if self.guest.xapic {
            words.push("xapic".to_owned());
        }
        words.join(" ")
    }
    /// Refuses a machine that QEMU or the kernel cannot be: `lab --truth` takes one for the
    /// simulator.
    fn check(&self) -> Done {
        let (cpus, memory) = (self.size.cpus(), self.memory());
        let refused = |what: &str, value: &dyn Display, range: String| {
            Err(Failure::new(format_args!("{what} {value}: the kernel under QEMU takes {range}")))
        };
        if !limits::is_cpus(cpus) {
            return refused("--cpus", &cpus, limits::cpus());
        }
        if !limits::is_memory(memory) {
            return refused("--memory", &memory, limits::memory());
        }
        Ok(())
    }
    /// How much memory the guest has.
    fn memory(&self) -> Bytes {
        let needs = match &self.mode {
            Mode::Lab(scenario, parameters) => scenario.memory(parameters),
            Mode::Program(linux) => {
                return self.size.memory_or(Some(linux.memory(self.size.memory_or(None))));
            }
            Mode::Tests | Mode::Laws | Mode::Shell | Mode::Calls => None,
        };
        let whole = |needs: Bytes| Bytes::new(needs.get().next_multiple_of(1 << 20));
        self.size.memory_or(needs.map(whole))
    }
    /// When to give up.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        let usual = match self.mode {
            Mode::Shell | Mode::Program(_) => None,
            Mode::Tests | Mode::Laws | Mode::Lab(..) | Mode::Calls => Some(TIMEOUT),
        };
        self.guest.timeout.or(usual)
    }
}

/// How a boot went.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) ended: Ended,
    /// The lines of its output that are reports.
    pub(crate) reports: Vec<String>,
}

/// Boots the kernel. `line` hears each line of its output that is no report.
pub(crate) fn run(options: &Options, mut line: impl FnMut(&str) -> Done) -> Done<Outcome> {
    options.check()?;
    let program = qemu::find()?; // before the kernel is built for nothing
    let image = kernel::image(options.guest.kernel.as_deref())?;
    let mut reports = Vec::new();
    let ended = qemu::run(&program, image.path(), options, |text| {
        if text.starts_with('{') {
            reports.push(text.to_owned());
            return Ok(());
        }
        line(text)
    })?;
    Ok(Outcome { ended, reports })
}

impl Ended {
    /// Success, or the sentence and the exit code.
    pub(crate) fn verdict(self, timeout: Option<Duration>) -> Done {
        let (code, said) = match self {
            Ended::Verdict(0) => return Ok(()),
            Ended::Verdict(UNFIT) => (
                UNFIT,
                "the machine is none that the kernel can run on; its last line says why".to_owned(),
            ),
            Ended::Verdict(code) => return Err(Failure::Code(code)), // the kernel said why
            Ended::Reset => (
                NO_VERDICT,
                "the guest reset before it gave a verdict: a triple fault, a power-off, or Ctrl-] x"
                    .to_owned(),
            ),
            Ended::Failed(status) => (
                NO_VERDICT,
                format!("QEMU ended with status {status} before the kernel gave a verdict"),
            ),
            Ended::Killed => {
                (NO_VERDICT, "QEMU was killed before the kernel gave a verdict".to_owned())
            }
            Ended::TimedOut => {
                let seconds = timeout.unwrap_or_default().as_secs();
                (TIMED_OUT, format!("no verdict within {seconds} s; give it more with --timeout"))
            }
            Ended::Interrupted => (INTERRUPTED, "interrupted".to_owned()),
        };
        Err(Failure::Coded(code, said))
    }
}

/// `foliant boot`.
pub(crate) fn command(args: &Boot) -> Done {
    let seat = Seat::find();
    let run_program = |command: &[OsString], login| {
        program::run(args, (command, login), &qemu::find()?, std::io::stdin(), seat)
    };
    if !args.command.is_empty() {
        return run_program(&args.command, Login::No);
    }
    if let Some(named) = &args.shell {
        let path = std::env::var_os("PATH").unwrap_or_default();
        match login::which(named, seat.is_some(), &path) {
            Which::Login(program) => return run_program(&[program], Login::Yes),
            Which::Kernel(why) => {
                if let Some(given) = args.given() {
                    return login::refuse(given, why);
                }
            }
        }
    }
    let mode = match &args.lab {
        Some(name) => {
            let (scenario, parameters) =
                scenario::parse(name, args.words.iter(), args.size.size())?;
            Mode::Lab(scenario, parameters)
        }
        None if args.laws => Mode::Laws,
        None if args.shell.is_some() => Mode::Shell,
        None if args.calls => Mode::Calls,
        None => Mode::Tests,
    };
    let options = Options { mode, size: args.size.size(), guest: args.guest.clone() };
    if args.calls {
        return calls::list(&options);
    }
    let timeout = options.timeout();
    if args.lab.is_none() {
        let outcome = run(&options, |line| print(&format!("{line}\n")))?;
        for report in &outcome.reports {
            print(&format!("{report}\n"))?;
        }
        return outcome.ended.verdict(timeout);
    }
    let report = reported(&options, |line| {
        crate::failure::tell(line);
        Ok(())
    })?;
    let tick = tick(&args.guest);
    let is_compare = matches!(options.mode, Mode::Lab(Scenario::Compare, _));
    print(&match args.json {
        true if is_compare => lab_compare::json(&report, &tick)?,
        true => document::text(&lab_document::report(&report))?,
        false if is_compare => lab_compare::table(&report, &tick),
        false => show::report(&report, &tick.to_string()),
    })
}

/// Boots the kernel once for each part of a scenario; what they report together.
pub(crate) fn reported(options: &Options, mut line: impl FnMut(&str) -> Done) -> Done<Report> {
    let Mode::Lab(scenario, parameters) = &options.mode else {
        unreachable!("only a scenario reports")
    };
    let mut reports = Vec::new();
    for part in scenario.parts(parameters) {
        let options = Options { mode: Mode::Lab(*scenario, part), ..options.clone() };
        let outcome = run(&options, &mut line)?;
        outcome.ended.verdict(options.timeout())?;
        match outcome.reports.as_slice() {
            [line] => reports.push(report(line)?),
            [] => return Err(Failure::new("the kernel ended well and printed no report")),
            lines => {
                return Err(Failure::new(format_args!(
                    "the kernel printed {} reports of {scenario}",
                    lines.len()
                )));
            }
        }
    }
    Ok(Report::join(reports, parameters).expect("a scenario has a part"))
}

/// What a tick of the kernel is.
fn tick(guest: &Guest) -> Tick {
    let cycles = "cycles of an emulator: they show ratios at most; --icount counts instructions";
    if guest.icount { Tick::Instruction } else { Tick::Other(cycles.to_owned()) }
}

/// A line of the kernel as a report.
fn report(line: &str) -> Done<Report> {
    Report::parse(line).map_err(|e| {
        let start: String = line.chars().take(60).collect();
        Failure::new(format_args!("the kernel's report cannot be read ({e}): {start}"))
    })
}

/// The name by which QEMU knows the machine.
fn board(board: Board) -> &'static str {
    match board {
        Board::Q35 => "q35",
        Board::Pc => "pc",
        Board::Microvm => "microvm",
    }
}

/// Where the source tree lies.
fn source() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::args::{Args, Command, Form};

    pub(super) fn options(mode: Mode, xapic: bool) -> Options {
        let (machine, icount, threads) = (None, false, None);
        let (timeout, kernel) = (None, None);
        Options {
            mode,
            size: Size { cpus: Some(2), memory: Some(Bytes::new(64 << 20)) },
            guest: Guest { icount, threads, xapic, timeout, machine, kernel },
        }
    }

    #[test]
    fn the_kernel_is_told_what_to_do() {
        let parameters = Parameters::parse(Scenario::Flush, ["pages=64"]).unwrap();
        let lab = options(Mode::Lab(Scenario::Flush, parameters), true);
        assert_eq!(lab.words(), "mode=lab lab=flush pages=64 grains=1,whole xapic");
        assert_eq!(options(Mode::Laws, false).words(), "mode=laws");
    }

    #[test]
    fn the_kernel_is_told_how_a_program_runs() {
        let program = |folio, stats, archive| {
            let archive = Bytes::new(archive);
            let linux = Linux { folio, stats, counts: false, archive, seat: None };
            options(Mode::Program(linux), false)
        };
        let order = |bytes: u64| Order::fitting(Bytes::new(bytes));
        assert_eq!(program(None, false, 0).words(), "mode=linux");
        assert_eq!(program(Order::new(0), false, 0).words(), "mode=linux thp=4k");
        assert_eq!(program(order(64 << 10), true, 0).words(), "mode=linux thp=64k stats");
        assert_eq!(program(order(2 << 20), false, 0).words(), "mode=linux thp=2m");
        assert_eq!(options(Mode::Calls, true).words(), "mode=linux calls xapic");
        let seat = Some(Seat { size: [24, 80], errors_are_apart: true });
        let archive = Bytes::new(0);
        let seated = Linux { folio: None, stats: false, counts: false, archive, seat };
        let words = options(Mode::Program(seated), false).words();
        assert_eq!(words, "mode=linux terminal=24x80 errors=apart");
        // What is asked for counts; else what the files need.
        let mut large = program(None, false, 200 << 20);
        assert_eq!(large.memory(), Bytes::new(64 << 20));
        large.size.memory = None;
        assert_eq!(large.memory(), Bytes::new(800 << 20));
        assert_eq!(large.timeout(), None);
    }

    pub(super) fn asked(line: &str) -> Result<Boot, String> {
        let words: Vec<_> = line.split(' ').map(std::ffi::OsString::from).collect();
        match Args::of(&words) {
            Ok(Args { command: Some(Command::Boot(boot)) }) => Ok(boot),
            Ok(_) => panic!("{line}"),
            Err(e) => Err(crate::usage::failure(&e, &words).sentence()),
        }
    }

    #[test]
    fn a_program_goes_with_its_own_options_alone() {
        for (line, words) in [
            ("foliant boot --laws -- true", "--laws does not go with COMMAND"),
            ("foliant boot --shell -- true", "--shell=PROGRAM does not go with COMMAND"),
            ("foliant boot --lab flush -- true", "--lab does not go with COMMAND"),
            ("foliant boot --calls -- true", "--calls does not go with COMMAND"),
            ("foliant boot --calls --laws", "--calls does not go with --laws"),
            ("foliant boot --with a", "needs --shell=PROGRAM|COMMAND"),
            ("foliant boot --size 64k", "needs --shell=PROGRAM|COMMAND"),
            ("foliant boot --stats", "needs --shell=PROGRAM|COMMAND"),
            ("foliant boot --calls --stats", "--calls does not go with --stats"),
            ("foliant boot --json -- true", "--json does not go with COMMAND"),
            ("foliant boot x=1 -- true", "KEY=VALUE does not go with COMMAND"),
            ("foliant boot --size 8k -- true", "--size cannot be '8k': use 4k, or a power of two"),
            ("foliant boot --size 4m -- true", "--size cannot be '4m': use 4k, or a power of two"),
            ("foliant boot --stats page -- true", "--stats cannot be 'page': use table or json"),
        ] {
            let said = asked(line).unwrap_err();
            assert!(said.contains(words), "{line}: {said}");
        }
    }

    #[test]
    fn a_program_s_words_are_its_own() {
        let boot = asked(
            "foliant boot --with a b --with c --size 64k --stats --cpus 2 -- ls --with x -- --laws",
        );
        let boot = boot.unwrap();
        assert_eq!(boot.command, ["ls", "--with", "x", "--", "--laws"]);
        assert_eq!(boot.with, ["a", "b", "c"].map(PathBuf::from));
        assert_eq!(boot.folio, Order::fitting(Bytes::new(64 << 10)));
        assert_eq!((boot.stats, boot.size.size().cpus()), (Some(Form::Table), 2));
        let plain = asked("foliant boot --size 4k --stats json -- true").unwrap();
        assert_eq!((plain.folio, plain.stats), (Some(Order::BASE), Some(Form::Json)));
        assert!(asked("foliant boot -- true").unwrap().stats.is_none());
    }

    #[test]
    fn only_a_shell_has_all_the_time_in_the_world() {
        assert_eq!(options(Mode::Shell, false).timeout(), None);
        assert_eq!(options(Mode::Tests, false).timeout(), Some(TIMEOUT));
        let mut shell = options(Mode::Shell, false);
        shell.guest.timeout = Some(Duration::from_secs(3));
        assert_eq!(shell.timeout(), Some(Duration::from_secs(3)));
    }
}
