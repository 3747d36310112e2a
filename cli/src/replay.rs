//! `foliant replay`, and what the bare command shows.

use crate::args::{Machine, Replay};
use crate::failure::{Done, Failure, print};
use crate::table::Replayed;
use crate::{json, progress, table};
use foliant_trace::Trace;
use foliant_trace::replay::{Choice, Plan, Row, Settings, replay_all};
use std::path::Path;

/// The recording that the bare command replays.
pub(crate) const SHIPPED_NAME: &str = "traces/cc.trace";
pub(crate) const SHIPPED: &[u8] = include_bytes!("../traces/cc.trace");

pub(crate) fn run(args: &Replay) -> Done {
    let mut files = Vec::new();
    for path in &args.files {
        let trace = Trace::open(path).map_err(|e| Failure::reading(path, e))?;
        let plan = Plan::new(&trace.events).map_err(|e| Failure::planning(path, e))?;
        let settings = settings(&args.machine, &trace);
        let (base, rows) = rows(&plan, &args.policy.0, &settings)?;
        let name = path.display().to_string();
        let (name, trace, plan) = (name.as_str(), &trace, &plan);
        let replayed =
            Replayed { name, trace, plan, settings: &settings, base: &base, rows: &rows };
        if args.json {
            files.push(json::file(&replayed));
        } else {
            print(&table::replayed(&replayed))?;
        }
    }
    if args.json { print(&json::text(&json::Files { files })?) } else { Ok(()) }
}

pub(crate) fn settings(machine: &Machine, trace: &Trace) -> Settings {
    Settings {
        cpus: machine
            .cpus
            .unwrap_or((trace.header.cpus as usize).clamp(1, foliant_units::CPUS_MAX)),
        memory: machine.memory,
        fragmented: machine.fragment,
        defrag: machine.defrag,
        model: machine.model,
    }
}

/// The rows asked for, and the one that they are compared with, which is replayed in any case.
fn rows(plan: &Plan, choices: &[Choice], settings: &Settings) -> Done<(Row, Vec<Row>)> {
    let mut wanted = choices.to_vec();
    if !wanted.contains(&Choice::BASE) {
        wanted.insert(0, Choice::BASE);
    }
    let bar = progress::bar("replaying", plan.steps() * wanted.len() as u64);
    let all = replay_all(plan, &wanted, settings, |steps| bar.inc(steps));
    bar.finish_and_clear();
    let mut all = all?;
    let base = all.iter().find(|row| row.choice == Choice::BASE).cloned();
    let base = base.ok_or_else(|| Failure::new("the row of 4 KiB pages is missing"))?;
    all.retain(|row| choices.contains(&row.choice));
    Ok((base, all))
}

/// That recording.
pub(crate) fn shipped() -> Done<(Trace, Plan)> {
    let name = Path::new(SHIPPED_NAME);
    let trace = Trace::read(SHIPPED).map_err(|e| Failure::reading(name, e))?;
    let plan = Plan::new(&trace.events).map_err(|e| Failure::planning(name, e))?;
    Ok((trace, plan))
}

/// What the bare command shows: a table of the recording that came with it.
pub(crate) fn tour() -> Done {
    let (trace, plan) = shipped()?;
    let settings = Settings { cpus: trace.header.cpus.max(1) as usize, ..Settings::default() };
    let (base, rows) = rows(&plan, &Choice::all(), &settings)?;
    let replayed = Replayed {
        name: SHIPPED_NAME,
        trace: &trace,
        plan: &plan,
        settings: &settings,
        base: &base,
        rows: &rows,
    };
    print(
        "A compilation by GCC was recorded on Linux, page fault by page fault. Here it goes through Foliant's\n\
         memory manager once per policy, to show what larger folios would save and what memory they would cost.\n\n",
    )?;
    print(&table::replayed(&replayed))?;
    print(
        "\nNext, with a program of your own:\n  \
         foliant record -o my.trace -- COMMAND    record it (no privilege needed)\n  \
         foliant replay my.trace                  this table for it; try --fragment 80\n  \
         sudo foliant check -- COMMAND            prediction and Linux side by side\n",
    )
}
