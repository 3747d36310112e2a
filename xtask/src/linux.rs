//! Random memory calls, carried out by this host's Linux and by the crate `foliant-linux`.

use clap::Args;
use foliant_oracle::{Oracle, Reason, program};
use std::time::Instant;

/// What `cargo xtask linux` takes.
#[derive(Args, Debug)]
pub(crate) struct Linux {
    /// Calls, at least
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    calls: u64,
    /// The seed of the first sequence; each further one has the next
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Calls of one sequence
    #[arg(long, value_name = "N", default_value_t = LENGTH, value_parser = clap::value_parser!(u16).range(1..))]
    length: u16,
}

/// Calls of a sequence: enough for areas to meet, and few enough for one to be shrunk.
const LENGTH: u16 = 200;

/// Compares as many calls as were asked for.
pub(crate) fn linux(asked: &Linux) -> Result<(), String> {
    hunt(asked.calls, asked.seed, asked.length)
}

/// Compares `calls` calls, from the sequence of `seed` on.
pub(crate) fn hunt(calls: u64, seed: u64, length: u16) -> Result<(), String> {
    let begun = Instant::now();
    let oracle = match Oracle::new() {
        Ok(oracle) => oracle,
        Err(why) => {
            println!("skipped: calls beside Linux ({why})");
            return Ok(());
        }
    };
    let hunted = oracle.hunt(calls, seed, length.into()).map_err(|why| why.to_string())?;
    let compared = hunted.compared;
    println!(
        "{} sequences of {length} calls from seed {seed}: {} calls, {} bytes, {} pages and {} areas compared, {:.0} s",
        hunted.sequences,
        compared.calls,
        compared.bytes,
        compared.pages,
        compared.areas,
        begun.elapsed().as_secs_f64(),
    );
    println!("sequences that ended for a reason that is written down:");
    for reason in Reason::ALL {
        println!("{:8}  {}", hunted.reasons.get(&reason).unwrap_or(&0), reason.why());
    }
    match hunted.found {
        None => Ok(()),
        Some((seed, calls, difference)) => {
            println!("{}", program(&calls, &difference));
            Err(format!(
                "{difference}\nagain: cargo xtask linux --calls 1 --length {length} --seed {seed}"
            ))
        }
    }
}
