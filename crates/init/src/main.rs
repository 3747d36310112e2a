//! The first process of a guest in which a program is measured: the same file on Linux and on
//! Foliant's kernel.
//!
//! ```text
//!   foliant-init measure SIZES ROUNDS PROGRAM NAME ARGUMENTS...
//!        ├─▶ once for each size: the switches of folios, then itself: round SIZE ROUNDS ..
//!        │                             └─▶ for each round: the clock, the program, the clock
//!        └─▶ the power is switched off
//!   foliant-init published NAME=AMOUNT...     experiments of published documents instead
//! ```
//!
//! What it says stands on standard output, a line for each round and each size ([`round`]), or for
//! each thing that an experiment counts ([`experiments`]), and
//! `measured` behind all of them, or `init` and what went wrong. What
//! the program says goes to a file in memory, of which a line has length and hash.
//!
//! Linux starts it with nothing; then its words, the program's variables and folder are read from
//! `/.foliant`, where they are packed for Foliant's kernel (`foliant boot`).
//!
//! **Invariants**
//! - I1. On both kernels it makes the same calls in the same order while the clock runs.
//! - I2. Each size has a process of its own: what its children used is counted for them alone.

mod asked;
mod counts;
mod experiments;
mod round;
mod switches;

use asked::Asked;
use experiments::Experiment;
use nix::sys::reboot::{RebootMode, reboot};
use std::error::Error;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// What the system begins behind its first process has ended by then.
const SETTLES: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let done = Asked::read().and_then(|asked| match asked {
        Asked::Measure(all) => measure(&all),
        Asked::Round(one) => round::all(&one),
        Asked::Published(all) => published(&all),
        Asked::Experiment(one) => one.run(),
    });
    let code = match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("init {why}");
            ExitCode::FAILURE
        }
    };
    if std::process::id() == 1 {
        let _ = reboot(RebootMode::RB_POWER_OFF); // else the kernel sees that it ended
    }
    code
}

/// Measures at each size.
fn measure(all: &asked::Measure) -> Result<(), Box<dyn Error>> {
    asked::mount()?;
    std::env::set_current_dir(&all.folder)?;
    std::thread::sleep(SETTLES);
    for size in &all.sizes {
        switches::only(*size)?;
        let status = Command::new(asked::SELF)
            .args(["round", &size.to_string(), &all.rounds.to_string()])
            .args(&all.program)
            .env_clear()
            .envs(all.variables.iter().map(|(name, value)| (name, value)))
            .status()?;
        if !status.success() {
            return Err(format!("a size of {size} was not measured: {status}").into());
        }
    }
    println!("measured");
    Ok(())
}

/// Carries experiments out, one behind the other.
fn published(all: &[Experiment]) -> Result<(), Box<dyn Error>> {
    asked::mount()?;
    std::thread::sleep(SETTLES);
    all.iter().try_for_each(|one| one.start(asked::SELF))?;
    println!("measured");
    Ok(())
}
