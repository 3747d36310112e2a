//! What the command line may say.

use crate::boot::compare::Experiment;
use crate::boot::limits;
use crate::calibrate::kept;
use crate::calibrate::model::HERE;
use crate::failure::Failure;
use crate::terminal::{PROSE_MOST, width};
use clap::{
    Args as ClapArgs, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum, ValueHint,
};
use clap_complete::Shell;
use foliant::fault::{Defrag, parse_order};
use foliant_history::{Plant, Style};
use foliant_lab::Scenario;
use foliant_sim::CostModel;
use foliant_trace::Budget;
use foliant_trace::replay::{Choice, Percent};
use foliant_units::{Bytes, CPUS_MAX, Order, SizeError};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Of the commands that have no others.
const CODES: &str = "\
Exit codes:
  0  done
  2  it went wrong, and standard error says why";
/// What a program that was started ends with, and 0 where `--for` has ended it.
const RECORD_CODES: &str = "\
Exit codes:
  the program's own, or 128 and the number of the signal that ended it
  0  done: what ran already is recorded, or --for has ended the program
  2  it went wrong, and standard error says why";
/// What becomes of a program that `run` becomes.
const RUN_CODES: &str = "\
Exit codes:
  the program's own, and where a signal ends it, that signal
  2  it was not started, and standard error says why";
const CHECK_CODES: &str = "\
Exit codes:
  0      measured, whatever the verdicts
  2      it went wrong, and standard error says why
  128+n  ended by signal n; all settings are as before";
const LAB_CODES: &str = "\
Exit codes:
  0  done; with --truth every count is equal, or has a reason not to be
  1  with --truth: counts differ without a reason
  2  it went wrong, and standard error says why
  with --truth also those of `foliant boot`, where the kernel does not end well";
const COMPARE_CODES: &str = "\
Exit codes:
  0  done
  1  the program did not do the same on all kernels
  2  it went wrong, and standard error says why
  and those of `foliant boot`, where a kernel does not end well";
const BOOT_CODES: &str = "\
Exit codes:
  0    the kernel passed
  1    a check failed
  2    it was not booted, and standard error says why
  3    the machine is none that the kernel can run on
  70   no verdict: a triple fault, or QEMU ended
  101  the kernel panicked
  124  no verdict in time
  130  interrupted
  with a program its own, or 128 and the number of the signal that ended it, and of these 2, 3,
  70, 101, 124 and 130";
const SIM_CODES: &str = "\
Exit codes:
  0  nothing was found; with --plant, the bug was
  1  something was found that was not planted; with --plant, the bug was not
  2  it went wrong, and standard error says why";

/// Record a real program, replay it through a huge-page memory manager, and see which folio sizes
/// help it.
#[derive(Parser, Debug)]
#[command(name = "foliant", version)]
#[command(after_help = "\
Without a command, a recording that came with foliant is replayed.

Exit codes:
  0  done
  2  it went wrong, and standard error says why
  record, run, check, lab, boot and sim have others, which their --help lists")]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

impl Args {
    /// What these words say; help is as wide as prose.
    pub(crate) fn of(words: &[OsString]) -> clap::error::Result<Args> {
        let command = Args::command().term_width(width().min(PROSE_MOST));
        Args::from_arg_matches(&command.try_get_matches_from(words)?)
    }
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Replay recordings: one row per policy
    #[command(after_help = CODES)]
    Replay(Replay),
    /// Run a program and record every page fault and every change of its address space
    #[command(after_help = RECORD_CODES, override_usage = "\
       foliant record [OPTIONS] [--] <COMMAND>...
       foliant record [OPTIONS] --pid <PID>
       foliant record [OPTIONS] --cgroup <PATH>")]
    Record(Record),
    /// Say which folio sizes to use, for which mappings of a program, at what gain and price
    #[command(after_help = CODES, override_usage = "\
       foliant advise [OPTIONS] <FILE>...
       foliant advise [OPTIONS] -- <COMMAND>...")]
    Advise(Advise),
    /// Describe a recording
    #[command(after_help = CODES)]
    Trace(Trace),
    /// Run a program with a plan applied: what it maps is advised as the plan has it
    #[command(after_help = RUN_CODES)]
    Run(Run),
    /// Compare the prediction with what Linux does at each folio size, or measure its pool of huge
    /// pages (needs root)
    #[command(after_help = CHECK_CODES, override_usage = "\
       foliant check [OPTIONS] [--] <COMMAND>...
       foliant check [OPTIONS] --hugetlb")]
    Check(Check),
    /// Measure what the kernel's work costs on this machine, which replay and lab take from then on
    #[command(after_help = CODES)]
    Calibrate(Calibrate),
    /// Run a measured scenario on the simulated machine, or list them
    #[command(after_help = LAB_CODES)]
    Lab(Lab),
    /// Boot the kernel under QEMU, and run a program of Linux on it
    #[command(after_help = BOOT_CODES, override_usage = "\
       foliant boot [OPTIONS] [KEY=VALUE]...
       foliant boot [OPTIONS] -- <COMMAND>...")]
    Boot(Boot),
    /// Run a program on Linux and on Foliant's kernel under QEMU, and count instructions of both
    #[command(after_help = COMPARE_CODES)]
    Compare(Compare),
    /// Run one random history of the memory manager under all checkers, and tell what happened
    #[command(after_help = SIM_CODES)]
    Sim(Sim),
    /// Measure all five systems and write one page with tables, plots and a map of memory
    #[command(after_help = CODES)]
    Report(Report),
    /// List the documents that --json prints, or show the JSON Schema of one
    #[command(after_help = CODES)]
    Schema(Schema),
    /// Print what makes a shell complete this command's words
    #[command(after_help = CODES)]
    Completions(Completions),
    /// Write man pages, one for each command
    #[command(after_help = CODES)]
    Man(Man),
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Replay {
    /// Recordings made with `foliant record`
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) machine: Machine,
    #[command(flatten)]
    pub(crate) trust: Trust,
    #[command(flatten)]
    pub(crate) rows: Rows,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Advise {
    /// Recordings made with `foliant record`
    #[arg(required_unless_present = "command", conflicts_with = "command", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// How much more memory than with 4 KiB pages it may take, in percent
    #[arg(long, value_name = "PCT", value_parser = spend, default_value = "5")]
    pub(crate) spend: u32,
    /// What work costs: xeon-guest-2, host-8-socket, guest-252, here [default: here if this machine
    /// was calibrated, else xeon-guest-2]
    #[arg(long, value_name = "NAME", value_parser = model)]
    pub(crate) model: Option<CostModel>,
    #[command(flatten)]
    pub(crate) trust: Trust,
    /// How often the command is recorded
    #[arg(long, value_name = "N", value_parser = rounds, default_value = "3", conflicts_with = "files")]
    pub(crate) runs: u32,
    /// Write the recommendation as a plan, for `foliant run --plan` and `foliant check --plan`
    #[arg(long, value_name = "PLAN")]
    pub(crate) plan_out: Option<PathBuf>,
    /// Print shell lines that set the switches, and how to undo them
    #[arg(long)]
    pub(crate) apply: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "apply")]
    pub(crate) json: bool,
    /// The program and its arguments, which is recorded first
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// What is compared.
#[derive(ClapArgs, Debug)]
pub(crate) struct Rows {
    /// Policies, with commas between: 4k, up-to-64k (every size up to it, 16k to 2m), only-64k
    /// (that size or 4k), thp (only-2m) [default: 4k, every up-to, and only-2m]
    #[arg(long, value_name = "LIST", value_parser = policies)]
    policy: Option<Policies>,
}

impl Rows {
    /// What was asked for.
    pub(crate) fn asked(&self) -> Option<&[Choice]> {
        self.policy.as_ref().map(|Policies(list)| &list[..])
    }
    /// What was asked for, or all.
    pub(crate) fn choices(&self) -> Vec<Choice> {
        self.asked().map_or_else(Choice::all, <[Choice]>::to_vec)
    }
}

/// How far recordings are trusted.
#[derive(ClapArgs, Clone, Copy, Debug)]
pub(crate) struct Trust {
    /// Memory that what a recording says may take, like 8g; with each GiB goes a minute's work
    #[arg(long, value_name = "SIZE", value_parser = budget, default_value = "1g")]
    pub(crate) budget: Bytes,
}

impl Trust {
    /// A budget for one recording.
    pub(crate) fn budget(self) -> Budget {
        Budget::of(self.budget)
    }
}

/// The machine to replay on.
#[derive(ClapArgs, Debug)]
pub(crate) struct Machine {
    /// Percentage of 2 MiB blocks with pages of another program in them; memory is then just what
    /// the recording can need
    #[arg(long, value_name = "PCT", value_parser = percent, default_value = "0")]
    pub(crate) fragment: Percent,
    /// What a fault does where no block is free: always (memory is compacted at once), defer,
    /// defer+madvise, madvise, never; with --fragment or --memory [default: always]
    #[arg(long, value_name = "WHEN", value_parser = defrag)]
    pub(crate) defrag: Option<Defrag>,
    /// CPUs [default: as many as the recording was made on]
    #[arg(long, value_name = "N", value_parser = cpus)]
    pub(crate) cpus: Option<usize>,
    /// What work costs: xeon-guest-2, host-8-socket, guest-252, here [default: here if this machine
    /// was calibrated, else xeon-guest-2]
    #[arg(long, value_name = "NAME", value_parser = model)]
    pub(crate) model: Option<CostModel>,
    /// Physical memory, like 512m [default: twice what the recording can need, or with --fragment
    /// just that]
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub(crate) memory: Option<Bytes>,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Record {
    /// Where the recording goes; it appears when it is whole [default: the program's name and
    /// .trace, or -2.trace and so on where there is one]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Say only what went wrong
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Record a process that runs already, with all its threads and what it starts; it goes on
    /// afterwards (needs root)
    #[arg(long, value_name = "PID", value_parser = pid, conflicts_with_all = ["cgroup", "command"])]
    pub(crate) pid: Option<u32>,
    /// Record all processes of a control group: its folder, or its path below /sys/fs/cgroup (needs
    /// root)
    #[arg(long, value_name = "PATH", conflicts_with = "command")]
    pub(crate) cgroup: Option<PathBuf>,
    /// End the recording after this time, like 30s, 5m or 2h. A program that was started gets
    /// SIGTERM then
    #[arg(long = "for", value_name = "TIME", value_parser = length)]
    pub(crate) length: Option<Duration>,
    /// Of all that the command starts, record processes of the program of this name alone, and what
    /// they start
    #[arg(long, value_name = "NAME", conflicts_with_all = ["pid", "cgroup"])]
    pub(crate) only: Option<OsString>,
    /// Print what came of it as JSON, with --pid or --cgroup
    #[arg(long, conflicts_with = "command")]
    pub(crate) json: bool,
    /// The program and its arguments; how it ends is how this command ends
    #[arg(required_unless_present_any = ["pid", "cgroup"], trailing_var_arg = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Run {
    /// The plan, written by `foliant advise --plan-out`
    #[arg(long, value_name = "FILE")]
    pub(crate) plan: PathBuf,
    /// Set the switches of folio sizes as the plan has them while the program runs, and put them
    /// back (needs root)
    #[arg(long)]
    pub(crate) switches: bool,
    /// Say on standard error what was advised, when the program has ended: table, json
    #[arg(long, value_name = "FORM", value_parser = form)]
    pub(crate) stats: Option<Form>,
    /// The program and its arguments; how it ends is how this command ends
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// How something is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// For people.
    Table,
    /// For programs.
    Json,
}

impl Form {
    /// Its word.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Form::Table => "table",
            Form::Json => "json",
        }
    }
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Trace {
    /// A recording made with `foliant record`
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) trust: Trust,
    /// Print every event
    #[arg(long)]
    pub(crate) dump: bool,
    /// Print JSON; with --dump one object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Check {
    /// Record the program this often, and run it this often with each policy, or fill and drain
    /// the pool; medians are shown. With --plan, rounds of one run with each setting [default: 3,
    /// with --hugetlb 7, with --plan 15]
    #[arg(long, value_name = "N", value_parser = rounds)]
    pub(crate) runs: Option<u32>,
    /// Check this plan, beside the system's settings as they are, 4 KiB alone, always, and always
    /// for each size
    #[arg(long, value_name = "FILE", conflicts_with = "policy")]
    pub(crate) plan: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) rows: Rows,
    /// A shell command to run before each recording and each run, which makes things as they were
    /// before, like 'make clean'
    #[arg(long, value_name = "COMMAND")]
    pub(crate) prepare: Option<String>,
    /// Measure the pool of 2 MiB pages instead of a program: filling and draining it, folding off
    /// and on
    #[arg(long, conflicts_with_all = ["plan", "policy", "prepare", "command"])]
    pub(crate) hugetlb: bool,
    /// How many pages the pool gets and loses, with --hugetlb
    #[arg(long, value_name = "N", conflicts_with = "command", default_value = "2000", value_parser = pages)]
    pub(crate) pages: u64,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The program and its arguments
    #[arg(required_unless_present = "hugetlb", trailing_var_arg = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Calibrate {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Lab {
    /// A scenario and its parameters, as KEY=VALUE or --KEY VALUE; with --truth scenarios [default:
    /// all of them]. Without any, all systems side by side
    #[arg(value_name = "NAME|KEY=VALUE")]
    pub(crate) words: Vec<String>,
    /// List the scenarios and their parameters
    #[arg(long, exclusive = true)]
    pub(crate) list: bool,
    #[command(flatten)]
    pub(crate) size: Size,
    /// What work costs: xeon-guest-2, host-8-socket, guest-252, here [default: here if this machine
    /// was calibrated, else xeon-guest-2]
    #[arg(long, value_name = "NAME", value_parser = model)]
    pub(crate) model: Option<CostModel>,
    #[command(flatten)]
    pub(crate) here: Here,
    /// Run in the kernel as well, and compare the counts
    #[arg(long)]
    pub(crate) truth: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) guest: Guest,
}

impl Lab {
    /// What work costs: what was chosen, which `lab` does before it runs a scenario.
    pub(crate) fn model(&self) -> CostModel {
        self.model.unwrap_or_else(CostModel::xeon_guest_2)
    }
    /// An option that was given and is a simulated machine's.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let options = [
            (self.size.cpus.is_some(), "--cpus"),
            (self.size.memory.is_some(), "--memory"),
            (self.model.is_some(), "--model"),
        ];
        first(options)
    }
}

/// What `foliant lab zero` without parameters takes: it measures this machine's own memory.
#[derive(ClapArgs, Clone, Copy, Debug)]
#[group(id = "here", multiple = true)]
pub(crate) struct Here {
    /// With `zero` alone, which measures this machine's own memory: the size of a block, 2m or 1g
    #[arg(long = "size", value_name = "SIZE", value_parser = block)]
    pub(crate) block: Option<Order>,
    /// With `zero` alone: how much memory is cleared
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub(crate) total: Option<Bytes>,
    /// With `zero` alone: of how many rounds medians are taken [default: 7]
    #[arg(long, value_name = "N", value_parser = rounds)]
    pub(crate) rounds: Option<u32>,
    /// With `zero` alone: say what was measured of each primitive, and what follows
    #[arg(long)]
    pub(crate) explain: bool,
}

impl Here {
    /// An option that was given.
    pub(crate) fn given(self) -> Option<&'static str> {
        let options = [
            (self.block.is_some(), "--size"),
            (self.total.is_some(), "--total"),
            (self.rounds.is_some(), "--rounds"),
            (self.explain, "--explain"),
        ];
        first(options)
    }
}

/// The first that was given.
fn first<const N: usize>(options: [(bool, &'static str); N]) -> Option<&'static str> {
    options.into_iter().find_map(|(is_given, option)| is_given.then_some(option))
}

/// What `boot` does beside running a program. A program's options name them: what an option
/// requires counts as given where something else excludes it.
const OTHERS: [&str; 3] = ["lab", "laws", "calls"];

#[derive(ClapArgs, Debug)]
pub(crate) struct Boot {
    #[command(flatten)]
    pub(crate) size: GuestSize,
    /// Run a measured scenario instead of the kernel's tests
    #[arg(long, value_name = "NAME", group = "what")]
    pub(crate) lab: Option<String>,
    /// The scenario's parameters, also as --KEY VALUE
    #[arg(value_name = "KEY=VALUE", requires = "lab", conflicts_with = "program")]
    pub(crate) words: Vec<String>,
    /// Run the laws of the hardware contract
    #[arg(long, group = "what")]
    pub(crate) laws: bool,
    /// A shell. At a terminal it is busybox's, where that is installed, as a login; down a pipe,
    /// and with --shell=kernel, it is the kernel's own, by which the manager is worked by hand.
    /// With a program it is that one
    #[arg(long, value_name = "PROGRAM", num_args = 0..=1, require_equals = true, default_missing_value = "", groups = ["what", "runs"], value_hint = ValueHint::CommandName)]
    pub(crate) shell: Option<OsString>,
    /// List the system calls that the kernel knows
    #[arg(long, group = "what")]
    pub(crate) calls: bool,
    /// Print the scenario's report as JSON
    #[arg(long, requires = "lab", conflicts_with = "program")]
    pub(crate) json: bool,
    /// Files and folders that the program finds where they are here; a program or a library comes
    /// with the libraries that it needs
    #[arg(long, value_name = "PATH", num_args = 1.., requires = "runs", conflicts_with_all = OTHERS, value_hint = ValueHint::AnyPath)]
    pub(crate) with: Vec<PathBuf>,
    /// The size of folios for the program's memory: 4k, 16k to 2m [default: the kernel's choice]
    #[arg(long = "size", value_name = "SIZE", value_parser = folio, requires = "runs", conflicts_with_all = OTHERS)]
    pub(crate) folio: Option<Order>,
    /// Say on standard error what the kernel counted, when the program has ended: table, json
    /// [default: table]
    #[arg(long, value_name = "FORM", value_parser = form, num_args = 0..=1, default_missing_value = "table", requires = "runs", conflicts_with_all = OTHERS)]
    pub(crate) stats: Option<Form>,
    /// The program and its arguments; how it ends is how this command ends
    #[arg(id = "program", last = true, groups = ["what", "runs"], value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) guest: Guest,
}

impl Boot {
    /// An option about a program that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        first([
            (!self.with.is_empty(), "--with"),
            (self.folio.is_some(), "--size"),
            (self.stats.is_some(), "--stats"),
        ])
    }
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Compare {
    /// Linux kernels, like /boot/vmlinuz-6.12
    #[arg(long = "kernel", value_name = "FILE", num_args = 1.., required = true, value_hint = ValueHint::FilePath)]
    pub(crate) kernels: Vec<PathBuf>,
    /// Instead of a program, run the experiments of published documents, or those that are named,
    /// with commas between: pool, touch, split (=PAGES of 2 MiB), fragment (=THREADS), compile
    #[arg(long, value_name = "LIST", value_parser = Experiment::parse, value_delimiter = ',', num_args = 0..=1, default_missing_value = Experiment::EACH)]
    pub(crate) published: Option<Vec<Experiment>>,
    /// Sizes of folios, with commas between: 4k, 16k to 2m
    #[arg(long = "size", value_name = "LIST", value_parser = folio, value_delimiter = ',', default_value = "4k,64k,2m", conflicts_with = "published")]
    pub(crate) sizes: Vec<Order>,
    /// How often the program runs at each size; the first run does not count where there is another
    #[arg(long, value_name = "N", value_parser = rounds, default_value = "3", conflicts_with = "published")]
    pub(crate) rounds: u32,
    /// Files and folders that the program finds where they are here; a program or a library comes
    /// with the libraries that it needs
    #[arg(long, value_name = "PATH", num_args = 1.., value_hint = ValueHint::AnyPath, conflicts_with = "published")]
    pub(crate) with: Vec<PathBuf>,
    /// CPUs, 1 to 255 [default: 1; for experiments 4, but for compile, which has 1]
    #[arg(long, value_name = "N", value_parser = guest_cpus, allow_negative_numbers = true)]
    cpus: Option<usize>,
    /// Physical memory, 8m to 512g [default: what the program's files need, or 1g; 2g for
    /// experiments]
    #[arg(long, value_name = "SIZE", value_parser = guest_memory, allow_negative_numbers = true)]
    pub(crate) memory: Option<Bytes>,
    /// Give up on a kernel after this many seconds [default: 1800]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
    /// Boot this Foliant kernel instead of building one
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) foliant: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The program and its arguments
    #[arg(last = true, required_unless_present = "published", conflicts_with = "published", value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

impl Compare {
    /// How many CPUs each guest has, where nothing else is asked for.
    pub(crate) fn cpus(&self, usual: usize) -> usize {
        self.cpus.unwrap_or(usual)
    }
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Sim {
    /// The history; the same seed is the same history [default: another one each time]
    #[arg(long, value_name = "S", value_parser = seed)]
    pub(crate) seed: Option<u64>,
    /// Plant a bug in it, which a checker must see
    #[arg(long, value_name = "BUG", value_parser = plant)]
    pub(crate) plant: Option<Plant>,
    /// List the bugs that can be planted
    #[arg(long, exclusive = true)]
    pub(crate) plants: bool,
    /// CPUs, instead of what the seed says
    #[arg(long, value_name = "N", value_parser = sim_cpus)]
    pub(crate) cpus: Option<u16>,
    /// Operations in all, instead of what the seed says
    #[arg(long, value_name = "N", value_parser = steps)]
    pub(crate) steps: Option<usize>,
    /// What CPUs share, instead of what the seed says: partitioned, racing, folding, pooled,
    /// ranges, objects
    #[arg(long, value_name = "STYLE", value_parser = style)]
    pub(crate) style: Option<Style>,
    /// Refuse the k-th allocation, from 1 on
    #[arg(long, value_name = "K", value_parser = kth)]
    pub(crate) fail: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Report {
    /// A recording, to have a page about that [default: the five systems]
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Where the page goes; it appears when it is whole
    #[arg(short, long, value_name = "FILE", default_value = "foliant-report.html")]
    pub(crate) output: PathBuf,
    /// Show it in the browser
    #[arg(long)]
    pub(crate) open: bool,
    /// Leave out what takes long: up to 16 CPUs, one recording, nothing of this machine's own
    /// memory
    #[arg(long, conflicts_with = "file")]
    pub(crate) quick: bool,
    /// Memory that what a recording says may take, like 8g; with each GiB goes a minute's work
    /// [default: 1g]
    #[arg(long, value_name = "SIZE", value_parser = budget, requires = "file")]
    pub(crate) budget: Option<Bytes>,
}

impl Report {
    /// A budget for the recording.
    pub(crate) fn budget(&self) -> Budget {
        self.budget.map_or_else(Budget::default, Budget::of)
    }
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Schema {
    /// A document, as the list names it [default: list them]
    #[arg(value_name = "DOCUMENT")]
    pub(crate) document: Option<String>,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Completions {
    /// The shell; each reads what is printed from a file of its own, as its manual says
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Man {
    /// The folder that they go to; it is made if there is none
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
}

/// How large the machine is.
#[derive(ClapArgs, Clone, Copy, Debug)]
pub(crate) struct Size {
    /// CPUs [default: 4]
    #[arg(long, value_name = "N", value_parser = cpus)]
    pub(crate) cpus: Option<usize>,
    /// Physical memory, like 512m [default: what the scenario needs, or 512m]
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub(crate) memory: Option<Bytes>,
}

impl Size {
    /// How many CPUs the machine has.
    pub(crate) fn cpus(&self) -> usize {
        self.cpus.unwrap_or(4)
    }
    /// The memory of the machine, where `needs` is what a scenario says it needs.
    pub(crate) fn memory_or(&self, needs: Option<Bytes>) -> Bytes {
        self.memory.or(needs).unwrap_or(Bytes::new(512 << 20))
    }
}

/// How large the machine under QEMU is.
#[derive(ClapArgs, Clone, Copy, Debug)]
pub(crate) struct GuestSize {
    /// CPUs, 1 to 255 [default: 4]
    #[arg(long, value_name = "N", value_parser = guest_cpus, allow_negative_numbers = true)]
    cpus: Option<usize>,
    /// Physical memory, 8m to 512g [default: what the scenario or the program's files need, or
    /// 512m]
    #[arg(long, value_name = "SIZE", value_parser = guest_memory, allow_negative_numbers = true)]
    memory: Option<Bytes>,
}

impl GuestSize {
    /// The same, of a machine wherever it is.
    pub(crate) fn size(self) -> Size {
        Size { cpus: self.cpus, memory: self.memory }
    }
}

/// How the kernel is run.
#[derive(ClapArgs, Clone, Default, Debug)]
#[command(next_help_heading = "Kernel")]
pub(crate) struct Guest {
    /// Count instructions: one tick each, the same in every run
    #[arg(long)]
    pub(crate) icount: bool,
    /// Whether QEMU gives each CPU a thread [default: multi up to 2 CPUs for each of this host's,
    /// else single]
    #[arg(long, value_name = "HOW", conflicts_with = "icount")]
    pub(crate) threads: Option<Threads>,
    /// Do not use x2APIC
    #[arg(long)]
    pub(crate) xapic: bool,
    /// Give up after this many seconds [default: 600, none for --shell and for a
    /// program]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
    /// The machine that QEMU is [default: q35]
    #[arg(long, value_name = "NAME")]
    pub(crate) machine: Option<Board>,
    /// Boot this kernel instead of building one
    #[arg(long, value_name = "FILE")]
    pub(crate) kernel: Option<PathBuf>,
}

impl Guest {
    /// An option that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let options = [
            (self.icount, "--icount"),
            (self.threads.is_some(), "--threads"),
            (self.xapic, "--xapic"),
            (self.timeout.is_some(), "--timeout"),
            (self.machine.is_some(), "--machine"),
            (self.kernel.is_some(), "--kernel"),
        ];
        first(options)
    }
}

/// How QEMU runs CPUs.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Threads {
    /// Each on a thread of the host: they really run at once.
    Multi,
    /// In turns: faster, and fewer races are met.
    Single,
}

/// The machines of QEMU that the kernel knows.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Board {
    /// A PC with PCI Express.
    Q35,
    /// A PC of old.
    Pc,
    /// A machine without PCI.
    Microvm,
}

/// The command line with the parameters of scenarios as words: `--pages 5` and `--pages=5` are
/// `pages=5` there, for every parameter of every scenario.
pub(crate) fn plain(given: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut all: Vec<OsString> = given.into_iter().collect();
    // What follows is a program's, whatever its words look like.
    let others = all.iter().position(|word| word == "--").map(|at| all.split_off(at));
    let scenario = all.iter().find_map(|word| word.to_str()?.parse::<Scenario>().ok());
    let mut given = all.into_iter().chain(others.unwrap_or_default());
    let mut plain: Vec<OsString> = given.by_ref().take(2).collect();
    if !plain.get(1).is_some_and(|command| command == "lab" || command == "boot") {
        plain.extend(given);
        return plain;
    }
    let is_parameter = |name: &str| {
        let parameters = scenario.map_or(&[][..], |scenario| scenario.about().parameters);
        parameters.iter().any(|parameter| parameter.name == name)
    };
    while let Some(word) = given.next() {
        if word == "--" {
            plain.push(word);
            plain.extend(given);
            return plain;
        }
        let option = word.to_str().and_then(|word| word.strip_prefix("--"));
        let (name, value) =
            match option.map(|option| option.split_once('=').unwrap_or((option, ""))) {
                Some((name, value)) if is_parameter(name) => (name.to_owned(), value.to_owned()),
                _ => {
                    plain.push(word);
                    continue;
                }
            };
        // A missing value is an empty one, which no parameter can be.
        let value = match value.is_empty() {
            true => given.next().unwrap_or_default(),
            false => value.into(),
        };
        let mut word = OsString::from(name + "=");
        word.push(value);
        plain.push(word);
    }
    plain
}

/// A list as one value.
#[derive(Clone, Debug)]
pub(crate) struct Policies(Vec<Choice>);

fn policies(text: &str) -> Result<Policies, String> {
    Choice::parse_list(text).map(Policies).map_err(|e| e.to_string())
}

fn percent(text: &str) -> Result<Percent, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim();
    let percent = number.parse().ok().and_then(Percent::new);
    percent.ok_or_else(|| "use a whole number from 0 to 100".to_owned())
}

/// A whole number from `least` to `most`.
fn whole<N: TryFrom<u64>>(text: &str, least: u64, most: u64) -> Result<N, String> {
    let number = text.parse().ok().filter(|n| (least..=most).contains(n));
    let number = number.and_then(|n: u64| N::try_from(n).ok());
    number.ok_or_else(|| match most {
        u64::MAX => format!("use a whole number from {least} to 2^64 - 1"),
        _ => format!("use a whole number from {least} to {most}"),
    })
}

fn cpus(text: &str) -> Result<usize, String> {
    whole(text, 1, CPUS_MAX as u64)
}

fn sim_cpus(text: &str) -> Result<u16, String> {
    whole(text, 1, 64)
}

fn spend(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim();
    whole(number, 0, 1000)
}

fn rounds(text: &str) -> Result<u32, String> {
    whole(text, 1, 99)
}

fn pages(text: &str) -> Result<u64, String> {
    whole(text, 1, 1_000_000)
}

fn seed(text: &str) -> Result<u64, String> {
    whole(text, 0, u64::MAX)
}

fn kth(text: &str) -> Result<u64, String> {
    whole(text, 1, u64::MAX)
}

fn guest_cpus(text: &str) -> Result<usize, String> {
    let cpus = text.parse().ok().filter(|cpus| limits::is_cpus(*cpus));
    cpus.ok_or_else(|| format!("use a whole number from {}", limits::cpus()))
}

fn guest_memory(text: &str) -> Result<Bytes, String> {
    let bytes = Bytes::parse(text).map_err(|e| e.to_string());
    bytes
        .ok()
        .filter(|bytes| limits::is_memory(*bytes))
        .ok_or_else(|| format!("use {}", limits::memory()))
}

fn seconds(text: &str) -> Result<Duration, String> {
    whole(text, 1, 86_400).map(Duration::from_secs)
}

fn defrag(text: &str) -> Result<Defrag, String> {
    text.parse().map_err(|_| {
        let words = Defrag::ALL.map(Defrag::word);
        format!("use one of {}", words.join(", "))
    })
}

fn pid(text: &str) -> Result<u32, String> {
    let pid = text.parse().ok().filter(|pid| (1..=i32::MAX as u32).contains(pid));
    pid.ok_or_else(|| "use a process's number, as `ps -e` lists them".to_owned())
}

/// A time with its unit.
fn length(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = units.iter().find(|(unit, _)| *unit == &text[number.len()..]);
    let ms = unit.and_then(|(_, ms)| number.parse::<u64>().ok()?.checked_mul(*ms));
    let ms = ms.filter(|ms| (1..=31 * 24 * 3_600_000).contains(ms)).map(Duration::from_millis);
    ms.ok_or_else(|| "use a time like 500ms, 30s, 5m or 2h, at most 31 days".to_owned())
}

fn form(text: &str) -> Result<Form, String> {
    let found = [Form::Table, Form::Json].into_iter().find(|form| form.word() == text);
    found.ok_or_else(|| "use table or json".to_owned())
}

fn model(text: &str) -> Result<CostModel, String> {
    if text == HERE {
        let here = kept::here().map_err(Failure::sentence)?;
        return here.ok_or_else(|| {
            "this machine was not calibrated; run `foliant calibrate` first".to_owned()
        });
    }
    CostModel::named(text).ok_or_else(|| {
        let names: Vec<_> = CostModel::ALL.iter().map(|m| m.name).chain([HERE]).collect();
        format!("there is no such model; use one of {}", names.join(", "))
    })
}

fn plant(text: &str) -> Result<Plant, String> {
    Plant::parse(text).ok_or_else(|| {
        "no bug of that name can be planted; `foliant sim --plants` lists them".to_owned()
    })
}

fn steps(text: &str) -> Result<usize, String> {
    whole(text, 1, 1_000_000)
}

fn style(text: &str) -> Result<Style, String> {
    let style = text.parse();
    style.map_err(|()| "use partitioned, racing, folding, pooled, ranges or objects".to_owned())
}

fn folio(text: &str) -> Result<Order, String> {
    let is_base = Bytes::parse(text) == Ok(Order::BASE.bytes());
    let order = if is_base { Ok(Order::BASE) } else { parse_order(text) };
    order.map_err(|_| "use 4k, or a power of two from 16k to 2m".to_owned())
}

fn block(text: &str) -> Result<Order, String> {
    let sizes = [Order::SIZE_2M, Order::SIZE_1G];
    let asked = Bytes::parse(text).ok();
    let found = sizes.into_iter().find(|order| asked == Some(order.bytes()));
    found.ok_or_else(|| "use 2m or 1g".to_owned())
}

fn memory(text: &str) -> Result<Bytes, String> {
    bytes_within(text, Bytes::new(9 << 20), Bytes::new(1 << 40))
}

fn budget(text: &str) -> Result<Bytes, String> {
    bytes_within(text, Bytes::new(64 << 20), Bytes::new(1 << 40))
}

fn bytes_within(text: &str, least: Bytes, most: Bytes) -> Result<Bytes, String> {
    match Bytes::parse(text) {
        Ok(bytes) if bytes >= least && bytes <= most => Ok(bytes),
        Ok(_) | Err(SizeError::TooLarge) => Err(format!("use {least} to {most}")),
        Err(e) => Err(e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parameters_in_other_words() {
        let check = |given: &str, expect: &str| {
            let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
            assert_eq!(plain(words(given)), words(expect), "{given}");
        };
        check(
            "foliant lab hugetlb --pages 5 size=1g --batch=7 --cpus 2 --json",
            "foliant lab hugetlb pages=5 size=1g batch=7 --cpus 2 --json",
        );
        check("foliant boot --lab flush --grains 1,2", "foliant boot --lab flush grains=1,2");
        check("foliant lab flush --pages", "foliant lab flush pages=");
        check("foliant boot -- flush --pages 5", "foliant boot -- flush --pages 5");
        check(
            "foliant boot --lab flush --pages 5 -- faults --pages 6",
            "foliant boot --lab flush pages=5 -- faults --pages 6",
        );
        check("foliant lab zero --size 1g", "foliant lab zero --size 1g");
        check("foliant check --hugetlb --pages 5", "foliant check --hugetlb --pages 5");
    }
}
