//! Random histories of the manager on the simulated machine, and planted bugs: many of them.
//! `foliant sim` runs one.

use clap::Args;
use foliant_history::{Histories, Plant, Shape, Style, plants, run_planted};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Seeds in which a planted bug must be caught.
const PLANTED_SEEDS: u64 = 40;

/// What `cargo xtask sim` takes.
#[derive(Args, Debug)]
pub(crate) struct Sim {
    /// Runs so many histories
    #[arg(long, value_name = "N", conflicts_with = "planted", default_value_t = 20)]
    seeds: u64,
    /// The first seed of them
    #[arg(long, value_name = "S", default_value_t = 0)]
    from: u64,
    /// Histories of this kind alone, such as `objects`, which are not drawn otherwise
    #[arg(long, value_name = "KIND", conflicts_with = "planted", value_parser = style)]
    style: Option<Style>,
    /// Runs the planted bugs, or one of them: each must be caught by the checker named for it
    #[arg(long, value_name = "BUG", num_args = 0..=1, default_missing_value = "all")]
    planted: Option<String>,
}

/// Runs what was asked for.
pub(crate) fn sim(asked: &Sim) -> Result<(), String> {
    match &asked.planted {
        Some(name) => planted(name),
        None => many(asked.from, asked.seeds, asked.style),
    }
}

fn style(text: &str) -> Result<Style, String> {
    let all = Style::ALL.map(|style| style.to_string()).join(", ");
    text.parse().map_err(|()| format!("'{text}' is no kind of history: use one of {all}"))
}

fn find(name: &str) -> Result<Plant, String> {
    let known: Vec<&str> = plants().iter().map(|plant| plant.name()).collect();
    Plant::parse(name)
        .ok_or_else(|| format!("no planted bug is called {name}: use one of {}", known.join(", ")))
}

/// Operations that take folios apart, move them or put them together.
const MOVING: [&str; 5] = ["split", "split list", "relocate", "compact", "collapse"];

/// Runs `count` histories, of this style if one is given.
pub(crate) fn many(from: u64, count: u64, style: Option<Style>) -> Result<(), String> {
    let shape = |seed| {
        let usual = Shape::of(seed);
        Shape { style: style.unwrap_or(usual.style), ..usual }
    };
    let begun = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let done = AtomicUsize::new(0);
    let reports = Histories::seeds(from..from.saturating_add(count), threads, shape, |report| {
        let n = done.fetch_add(1, Ordering::Relaxed) + 1;
        if !report.is_clean() || n.is_multiple_of(50) {
            println!("  {n} of {count} histories, {:.0} s", begun.elapsed().as_secs_f64());
        }
    });
    let bad: Vec<_> = reports.iter().filter(|report| !report.is_clean()).collect();
    for report in &bad {
        println!("{report}\n");
    }
    let sum = |of: fn(&foliant_history::Report) -> u64| reports.iter().map(of).sum::<u64>();
    println!(
        "{count} histories from seed {from}: {} operations, {} of them splits, moves and collapses, {} faults, {} shootdowns, {} kept switches, {} groups of entries made and {} taken apart, {} allocations refused; {:.0} s",
        sum(|r| r.operations.values().sum()),
        sum(|r| MOVING.iter().filter_map(|name| r.operations.get(name)).sum()),
        sum(|r| r.faults),
        sum(|r| r.shootdowns),
        sum(|r| r.kept),
        sum(|r| r.groups[0]),
        sum(|r| r.groups[1]),
        sum(|r| r.refused_allocations),
        begun.elapsed().as_secs_f64(),
    );
    match bad.first() {
        None => Ok(()),
        Some(first) => Err(format!(
            "{} histories are not clean; the first again: {}",
            bad.len(),
            first.replay()
        )),
    }
}

/// Runs one planted bug or all.
fn planted(name: &str) -> Result<(), String> {
    let chosen = if name == "all" { plants() } else { vec![find(name)?] };
    let mut missed = Vec::new();
    println!("{:<22} {:<22} {:>5}  what is wrong", "planted bug", "caught by", "seed");
    for plant in chosen {
        let caught = run_planted(plant, 0..PLANTED_SEEDS);
        match &caught.by_name {
            Some(report) => println!(
                "{:<22} {:<22} {:>5}  {}",
                plant.name(),
                plant.checker(),
                report.seed,
                plant.about()
            ),
            None => {
                println!(
                    "{:<22} NOT by {:<15} {:>5}  {}",
                    plant.name(),
                    plant.checker(),
                    "-",
                    plant.about()
                );
                missed.push(plant.name());
            }
        }
    }
    if missed.is_empty() { Ok(()) } else { Err(format!("not caught: {}", missed.join(", "))) }
}
