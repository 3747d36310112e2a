//! `foliant replay`, and what the bare command shows.

use crate::args::{Machine, Replay};
use crate::calibrate::kept;
use crate::failure::{Done, Failure, print};
use crate::replayed::Replayed;
use crate::terminal::{entry, prose};
use crate::{document, json, progress, replayed};
use foliant::fault::Defrag;
use foliant_sim::CostModel;
use foliant_trace::replay::{Choice, Plan, Row, Settings, Shared, replay_all};
use foliant_trace::{About, Budget};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// The recording that the bare command replays.
pub(crate) const SHIPPED_NAME: &str = "traces/cc.trace";
pub(crate) const SHIPPED: &[u8] = include_bytes!("../traces/cc.trace");

/// What to do after the bare command.
const NEXT: [(&str, &str); 4] = [
    ("foliant record -o my.trace -- COMMAND", "record it (no privilege needed)"),
    ("foliant replay my.trace", "this table for it; try --fragment 80"),
    ("foliant advise my.trace", "which sizes, for which of its mappings"),
    ("sudo foliant check -- COMMAND", "prediction and Linux side by side"),
];

pub(crate) fn run(args: &Replay) -> Done {
    heed(&args.machine)?;
    let mut files = Vec::new();
    for path in &args.files {
        let file = File::open(path).map_err(|e| Failure::reading(path, e.into()))?;
        let (about, plan) =
            planned(path, BufReader::new(file), Shared::Replayed, &args.trust.budget())?;
        let settings = settings(&args.machine, &about, kept::chosen(args.machine.model)?);
        let (base, rows) = rows(path, &plan, &args.rows.choices(), &settings)?;
        let name = path.display().to_string();
        let (name, about, plan) = (name.as_str(), &about, &plan);
        let replayed =
            Replayed { name, about, plan, settings: &settings, base: &base, rows: &rows };
        if args.json {
            files.push(json::file(&replayed));
        } else {
            print(&replayed::text(&replayed))?;
        }
    }
    if args.json { print(&document::text(&json::Replayed { files })?) } else { Ok(()) }
}

/// Refuses an option that would do nothing: where memory is plentiful, no block is ever missing.
fn heed(machine: &Machine) -> Done {
    let is_plentiful = machine.fragment.get() == 0 && machine.memory.is_none();
    match machine.defrag.filter(|_| is_plentiful) {
        Some(defrag) => Err(Failure::new(format_args!(
            "--defrag {defrag} changes nothing where blocks are free: add --fragment PCT or --memory SIZE, or leave it out"
        ))),
        None => Ok(()),
    }
}

/// Reads a recording and plans its replay.
pub(crate) fn planned(
    path: &Path,
    input: impl Read,
    shared: Shared,
    budget: &Budget,
) -> Done<(About, Plan)> {
    Plan::read(input, shared, budget).map_err(|e| Failure::planning(path, e))
}

pub(crate) fn settings(machine: &Machine, about: &About, model: CostModel) -> Settings {
    Settings {
        cpus: machine
            .cpus
            .unwrap_or((about.header.cpus as usize).clamp(1, foliant_units::CPUS_MAX)),
        memory: machine.memory,
        fragmented: machine.fragment,
        defrag: machine.defrag.unwrap_or(Defrag::Always),
        model,
    }
}

/// The rows asked for, and the one that they are compared with, which is replayed in any case.
fn rows(
    path: &Path,
    plan: &Plan,
    choices: &[Choice],
    settings: &Settings,
) -> Done<(Row, Vec<Row>)> {
    let mut wanted = choices.to_vec();
    if !wanted.contains(&Choice::BASE) {
        wanted.insert(0, Choice::BASE);
    }
    let bar = progress::bar("replaying", plan.steps() * wanted.len() as u64);
    let all = replay_all(plan, &wanted, settings, |steps| bar.inc(steps));
    bar.finish_and_clear();
    let mut all = all.map_err(|e| Failure::replaying(path, e))?;
    let base = all.iter().find(|row| row.choice == Choice::BASE).cloned();
    let base = base.ok_or_else(|| Failure::new("the row of 4 KiB pages is missing"))?;
    all.retain(|row| choices.contains(&row.choice));
    Ok((base, all))
}

/// That recording.
pub(crate) fn shipped() -> Done<(About, Plan)> {
    planned(Path::new(SHIPPED_NAME), SHIPPED, Shared::Replayed, &Budget::default())
}

/// What the bare command shows: a table of the recording that came with it.
pub(crate) fn tour() -> Done {
    let (about, plan) = shipped()?;
    let (cpus, model) = (about.header.cpus.max(1) as usize, kept::chosen(None)?);
    let settings = Settings { cpus, model, ..Settings::default() };
    let (base, rows) = rows(Path::new(SHIPPED_NAME), &plan, &Choice::all(), &settings)?;
    let replayed = Replayed {
        name: SHIPPED_NAME,
        about: &about,
        plan: &plan,
        settings: &settings,
        base: &base,
        rows: &rows,
    };
    print(&prose(
        "A compilation by GCC was recorded on Linux, page fault by page fault. Here it goes through \
         Foliant's memory manager once per policy, to show what larger folios save and what memory \
         they cost.\n\n",
    ))?;
    print(&replayed::text(&replayed))?;
    print("\nNext, with a program of your own:\n")?;
    for (command, about) in NEXT {
        print(&entry(&format!("  {command}"), 43, about))?;
    }
    Ok(())
}
