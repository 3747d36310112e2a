//! Everything that a developer of Foliant runs, behind one door: `cargo xtask COMMAND`.
//!
//! **Not here**: anything that a user of Foliant needs; that is the `foliant` command.
#![forbid(unsafe_code)]

mod boot;
mod c;
mod compare;
mod coverage;
mod dist;
mod explore;
mod fuzz;
mod linux;
mod mutants;
mod outside;
mod run;
mod sim;
mod test;
mod tidy;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::process::ExitCode;

/// Everything that a developer of Foliant runs.
#[derive(Parser, Debug)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Line {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// The tests, the doc tests and tidy
    Test {
        /// What CI runs: format, clippy, tidy, tests, docs, the example in C, loom, explored pairs,
        /// 200 histories, calls beside Linux, fuzzers, boots, counted instructions
        #[arg(long)]
        all: bool,
    },
    /// Facts about the tree: module heads, order of the rooms, paths in the documents, unsafe code
    Tidy,
    /// Random histories of the manager on the simulated machine, and planted bugs
    Sim(sim::Sim),
    /// Every order in which two or three operations of the manager can meet
    Explore(explore::Explore),
    /// Random memory calls, carried out by this host's Linux and by the crate foliant-linux
    Linux(linux::Linux),
    /// Small mistakes in the manager, one at a time: which do the tests notice?
    Mutants(mutants::Mutants),
    /// The library for C, and its example, under valgrind too
    C,
    /// The kernel under QEMU, many times in a row
    Boot(boot::Boot),
    /// Instructions of each operation in the kernel: has one become worse than the table says?
    Compare(compare::Compare),
    /// The crates as packages, and the projects of examples/outside built against them
    Outside,
    /// The fuzzers: every target for a while, two at a time
    Fuzz(fuzz::Fuzz),
    /// The lines that the tests reach, crate by crate
    Coverage {
        /// Only these crates' tests, like foliant-trace
        packages: Vec<String>,
    },
    /// The command as one file that carries the kernel: target/dist/foliant
    Dist,
    /// The benches: alloc, frag, map, scale, gaps, guest
    Bench {
        /// One of them
        name: Option<String>,
    },
}

/// Says what is being done, before it takes any time.
fn say_what(name: Option<&str>) {
    let line = Line::command();
    let about = name.and_then(|name| line.find_subcommand(name)?.get_about());
    if let (Some(name), Some(about)) = (name, about) {
        eprintln!("== {name}: {about}");
    }
}

fn main() -> ExitCode {
    let given = Line::command().get_matches();
    say_what(given.subcommand_name());
    let line = Line::from_arg_matches(&given).unwrap_or_else(|error| error.exit());
    let done = match line.command {
        Command::Test { all: false } => test::quick(),
        Command::Test { all: true } => test::all(),
        Command::Tidy => tidy::tidy(),
        Command::Sim(asked) => sim::sim(&asked),
        Command::Explore(asked) => explore::run(&asked),
        Command::Coverage { packages } => coverage::coverage(&packages),
        Command::Linux(asked) => linux::linux(&asked),
        Command::Mutants(asked) => mutants::mutants(&asked),
        Command::Outside => outside::outside(),
        Command::Fuzz(asked) => fuzz::fuzz(&asked),
        Command::C => c::check(),
        Command::Boot(asked) => boot::many(&asked),
        Command::Compare(asked) => compare::compare(&asked),
        Command::Dist => dist::dist(),
        Command::Bench { name } => run::benches(name.as_deref()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::from(2)
        }
    }
}
