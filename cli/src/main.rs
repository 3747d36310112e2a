//! The `foliant` command: record a program, replay it through the memory manager, check the
//! prediction; run measured scenarios on the simulator, and boot the kernel.
//!
//! ```text
//!   foliant                        replays a recording that came with the program
//!   foliant record -o F -- CMD     a program becomes a trace
//!   foliant replay F...            a trace becomes a table: one row per policy
//!   foliant advise F...            which sizes for which mappings, at what gain and price
//!   foliant trace F                what is in a trace
//!   foliant check -- CMD           prediction and Linux side by side (root)
//!   foliant run --plan F -- CMD    a program with a plan's advice injected
//!   foliant calibrate              what the kernel's work costs here, as the model of later replays
//!   foliant lab                    five systems at grain 1 and at the chosen grain, beside published numbers
//!   foliant lab NAME               a measured scenario on the simulator; --truth: and in the kernel, compared
//!   foliant boot                   the kernel under QEMU, and programs of Linux on it
//!   foliant compare -- CMD         one program on Linux and on the kernel, counted in instructions
//!   foliant compare --published    the documents' experiments likewise
//!   foliant sim                    a random history under all checkers, with a bug planted if asked for
//!   foliant report                 all of it on one page
//!   foliant schema                 what the documents are made of that --json prints
//!   foliant completions, man       for shells and for man
//! ```
//!
//! Names from recordings are shown with escapes (`shown`). Tables and JSON go to standard output,
//! progress and remarks to standard error. Tables and prose fit the terminal (`terminal`, `table`).
//! Whatever goes wrong is one sentence with the value and the way out, and exit code 2; where the
//! line is wrong, its usage too. A guest's verdict is the exit code of `boot`.
//!
//! **Not here**: what a trace is and how it is replayed (`foliant-trace`).

// It panics where nobody reads: `failure::tell` does not.
#![deny(clippy::print_stderr)]

mod advise;
mod args;
mod board;
mod boot;
mod calibrate;
mod check;
mod document;
mod event;
mod failure;
mod generated;
mod host;
mod json;
mod lab;
mod plan;
mod progress;
mod published;
mod record;
mod replay;
mod replayed;
mod report;
mod run;
mod scenario;
mod schema;
mod settings;
mod shown;
mod sim;
mod table;
mod terminal;
mod trace;
mod usage;

use args::{Args, Command};
use std::process::ExitCode;

fn main() -> ExitCode {
    let words = args::plain(std::env::args_os());
    let args = match Args::of(&words) {
        Ok(args) => args,
        Err(e) if e.use_stderr() => return usage::failure(&e, &words).report(),
        Err(help) => help.exit(),
    };
    let done = match args.command {
        None => replay::tour(),
        Some(Command::Replay(args)) => replay::run(&args),
        Some(Command::Advise(args)) => advise::run(&args),
        Some(Command::Record(args)) => record::run(&args),
        Some(Command::Trace(args)) => trace::run(&args),
        Some(Command::Run(args)) => run::run(&args),
        Some(Command::Check(args)) => check::run(&args),
        Some(Command::Calibrate(args)) => calibrate::run(&args),
        Some(Command::Lab(args)) => lab::run(args),
        Some(Command::Boot(args)) => boot::command(&args),
        Some(Command::Compare(args)) => boot::compare::command(&args),
        Some(Command::Sim(args)) => sim::run(&args),
        Some(Command::Report(args)) => report::run(&args),
        Some(Command::Schema(args)) => schema::run(&args),
        Some(Command::Completions(args)) => generated::completions(&args),
        Some(Command::Man(args)) => generated::man(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
