//! Random memory calls, carried out by this host's Linux and by the crate `foliant-linux`.

use clap::Args;
use foliant_oracle::{Oracle, PoolOracle, Reason, program};
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
    /// Calls of one sequence, 200 unless it is said; or steps, 60
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    length: Option<u16>,
    /// Steps on the pool of huge pages instead, at least: needs root, and a pool that nobody uses
    #[arg(long, value_name = "N", conflicts_with = "calls")]
    pool: Option<u64>,
}

/// Calls of a sequence: enough for areas to meet, and few enough for one to be shrunk.
const LENGTH: u16 = 200;
/// Steps of a sequence on the pool.
pub(crate) const STEPS: u16 = 60;

/// Compares as many calls as were asked for.
pub(crate) fn linux(asked: &Linux) -> Result<(), String> {
    match asked.pool {
        Some(steps) => pool(steps, asked.seed, asked.length.unwrap_or(STEPS)),
        None => hunt(asked.calls, asked.seed, asked.length.unwrap_or(LENGTH)),
    }
}

/// Has `steps` steps on the pool of huge pages taken by both sides, from the sequence of `seed` on.
pub(crate) fn pool(steps: u64, seed: u64, length: u16) -> Result<(), String> {
    let begun = Instant::now();
    let oracle = match PoolOracle::new() {
        Ok(oracle) => oracle,
        Err(why) => {
            println!("skipped: steps on the pool of this host ({why})");
            return Ok(());
        }
    };
    let compared = oracle.hunt(steps, seed, length.into()).map_err(|why| why.to_string())?;
    println!(
        "{} sequences of {length} steps on the pool from seed {seed}: {} steps taken, {} of them refused, {:.0} s",
        compared.sequences,
        compared.steps,
        compared.refused,
        begun.elapsed().as_secs_f64(),
    );
    compared.reasons.iter().for_each(|(why, count)| println!("{count:8}  {why}"));
    let Some((seed, steps, difference)) = compared.found else { return Ok(()) };
    steps.iter().enumerate().for_each(|(nth, step)| println!("{nth:4}  {step}"));
    Err(format!("{difference}\nagain: cargo xtask linux --pool 1 --length {length} --seed {seed}"))
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
