//! Small mistakes in the manager, one at a time: which do the tests notice?

use crate::run::root;
use clap::Args;
use foliant_mutants::{Asked, Shard};
use std::time::Instant;

/// How many of a hundred mutants must be noticed, of all and of each room.
const OF_ALL: f64 = 95.0;
const OF_ROOM: f64 = 90.0;

/// What `cargo xtask mutants` takes.
#[derive(Args, Debug)]
pub(crate) struct Mutants {
    /// Only this room (a folder of crates/mm/src, or the crates claim, folio, sync, table, machine,
    /// x86; or check), or several
    #[arg(long = "room", value_name = "ROOM")]
    rooms: Vec<String>,
    /// So many, some of each room
    #[arg(long, value_name = "N")]
    sample: Option<usize>,
    /// Which of them
    #[arg(long, value_name = "S", default_value_t = 1, requires = "sample")]
    seed: u64,
    /// A part of those, like 1/4
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// Only those on lines that the branch changes, or that are not committed yet
    #[arg(long)]
    in_diff: bool,
    /// Only those that no test reaches: each test runs once, with none of them switched on
    #[arg(long)]
    unreached: bool,
    /// Tests at a time
    #[arg(long, value_name = "N", default_value_t = 2)]
    jobs: usize,
    /// All verdicts as JSON instead of the table
    #[arg(long)]
    json: bool,
}

/// Tries what was asked for.
pub(crate) fn mutants(asked: &Mutants) -> Result<(), String> {
    let begun = Instant::now();
    let say = |text: String| eprintln!("{:6.0} s  {text}", begun.elapsed().as_secs_f64());
    let report = foliant_mutants::run(
        &root(),
        &Asked {
            rooms: asked.rooms.clone(),
            sample: asked.sample.map(|count| (count, asked.seed)),
            shard: asked.shard,
            in_diff: asked.in_diff,
            unreached: asked.unreached,
            jobs: asked.jobs,
        },
        &say,
    )?;
    if asked.json {
        println!("{}", serde_json::to_string_pretty(&report).map_err(|why| why.to_string())?);
    } else {
        println!("{}\n{}", report.table(), report.remarks());
        if report.survivors().next().is_some() {
            println!("rows of docs/mutants.md, for what is no mistake:\n\n{}", report.rows());
        }
    }
    let too_few = report.too_few(OF_ALL, OF_ROOM);
    if too_few.is_empty() || asked.unreached {
        return Ok(());
    }
    let way_out = "write tests, or give the reason in docs/mutants.md why one is no mistake";
    Err(format!("{}: {way_out}", too_few.join("; ")))
}
