//! Small mistakes, compiled into the manager once and switched on one at a time: which do the tests
//! notice?
//!
//! Building a program for each mistake would take minutes each. So the sources are copied with all
//! of them in it, each behind a number that the environment switches on ([record
//! 091](../../../docs/records/091-mutants-behind-a-number.md)).
//!
//! ```text
//!   sources ─▶ survey: places ─▶ weave ─▶ copy ─▶ viable: what compiles ─▶ programs of tests, models under loom, the kernel
//!                                                                            │ one run of each test: what it reaches
//!   table ◀─ verdict: tests that reach it, until one fails ◀─ choice ◀───────┘
//! ```
//!
//! **Invariants**
//! - U1. With no number set the copy does what the sources do: a test that does not pass then is
//!   left out, and told.
//! - U2. A test says nothing about a mutant that it does not reach, so it is not run with it. A
//!   comparison or condition is reached only where its value would have been another one.
//! - U3. A mutant that no test reaches has survived.
//!
//! **Not here**: the command line (`xtask`).
#![forbid(unsafe_code)]

mod boot;
mod built;
mod cargo;
mod choice;
mod find;
mod known;
mod mutant;
mod program;
mod reach;
mod report;
mod share;
mod survey;
mod switch;
mod tree;
mod verdict;
mod viable;
mod weave;

#[cfg(test)]
mod tests;

pub use built::is_built;
pub use choice::Shard;
pub use mutant::{Kind, Mutant, Name};
pub use report::Report;
pub use verdict::{Fate, Verdict};

use cargo::Ask;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The list of the mutants that are no mistakes.
const LIST: &str = "docs/mutants.md";

/// What is asked for.
#[derive(Clone, Default, Debug)]
pub struct Asked {
    /// Only these rooms; all if there is none.
    pub rooms: Vec<String>,
    /// Only so many, drawn by this seed.
    pub sample: Option<(usize, u64)>,
    /// A part of them.
    pub shard: Option<Shard>,
    /// Only those on lines that changed.
    pub in_diff: bool,
    /// Only those that no test reaches: each test runs once, and no mutant is switched on.
    pub unreached: bool,
    /// So many tests at a time.
    pub jobs: usize,
}

/// Tries what is asked for, in the workspace at `root`. `say` hears how far it is, one line at a
/// time.
pub fn run(root: &Path, asked: &Asked, say: &(dyn Fn(String) + Sync)) -> Result<Report, String> {
    let failed = |why| format!("{}: {why}", root.display());
    // Cargo works in the copy, and is told where to put what it makes.
    let root = &fs::canonicalize(root).map_err(failed)?;
    let folder = root.join("target/mutants");
    fs::create_dir_all(&folder).map_err(failed)?;
    let survey = survey::Survey::read(root)?;
    let mutants = &survey.mutants;
    let rooms: BTreeSet<&str> = mutants.iter().map(|mutant| mutant.room.as_str()).collect();
    if let Some(other) = asked.rooms.iter().find(|room| !rooms.contains(room.as_str())) {
        let rooms: Vec<&str> = rooms.into_iter().collect();
        return Err(format!("no room is called {other}: use one of {}", rooms.join(", ")));
    }
    let known = match fs::read_to_string(root.join(LIST)) {
        Ok(text) => known::read(&text).map_err(|why| format!("{LIST}, {why}"))?,
        Err(_) => known::Known::new(),
    };
    let strangers = known::strangers(&known, mutants);
    if !strangers.is_empty() {
        let rows: Vec<String> = strangers.into_iter().map(known::row).collect();
        return Err(format!(
            "{LIST} has entries that match no mutant any more: mend or remove them\n{}",
            rows.join("\n")
        ));
    }
    let changed = if asked.in_diff { Some(choice::changed(root)?) } else { None };
    let is_asked = |mutant: &Mutant| {
        (asked.rooms.is_empty() || asked.rooms.contains(&mutant.room))
            && changed.as_ref().is_none_or(|changed| choice::is_changed(mutant, changed))
    };
    if !mutants.iter().any(is_asked) {
        say("no mutant is on a line that changed".into());
        return Ok(Report { viable: BTreeMap::new(), verdicts: Vec::new() });
    }

    let mut forms = viable::recall(&survey, &folder);
    let candidates = |forms: &viable::Forms| -> Vec<usize> {
        (0..mutants.len()).filter(|n| forms[*n].is_some() && is_asked(&mutants[*n])).collect()
    };
    // The check and the programs have a copy each, so that neither is built anew for the other's
    // sake.
    let settle = |ask, forms: &mut _, chosen: &dyn Fn(&viable::Forms) -> Vec<usize>| {
        let tree = tree::Tree::new(root, folder.join(format!("{ask}-tree")));
        viable::settle((&survey, &tree, &folder), ask, forms, chosen, say)
    };
    settle(Ask::Check, &mut forms, &candidates)?;
    let chosen = |forms: &viable::Forms| choose(mutants, candidates(forms), asked);
    let messages = settle(Ask::Programs, &mut forms, &chosen)?;
    let mut viable = BTreeMap::<String, usize>::new();
    for n in candidates(&forms) {
        *viable.entry(mutants[n].room.clone()).or_default() += 1;
    }
    let mut programs = program::Program::of(&messages);
    let rooms = chosen(&forms);
    let rooms = rooms.iter().map(|n| mutants[*n].room.as_str());
    let modelled: BTreeSet<&str> = rooms.flat_map(cargo::modelled).copied().collect();
    if !modelled.is_empty() {
        let tree = tree::Tree::new(root, folder.join(format!("{}-tree", Ask::Programs)));
        let messages = cargo::cargo(&tree, &folder, Ask::Models, &modelled)?;
        match cargo::errors(&messages).first() {
            None => programs.extend(program::Program::models(&messages)),
            // A mutant that loom's atomics do not have, as it is.
            Some(error) => say(format!("no model is asked: {}", error["rendered"])),
        }
    }
    let is_booted = |n: &usize| boot::ROOMS.contains(&mutants[*n].room.as_str());
    if chosen(&forms).iter().any(is_booted) {
        if boot::is_possible() {
            say("the kernel is built".into());
            let tree = tree::Tree::new(root, folder.join(format!("{}-tree", Ask::Programs)));
            programs.push(program::Program::kernel(cargo::kernel(&tree, &folder)?));
        } else {
            say("no boot is asked, because QEMU is not installed".into());
        }
    }
    let mut reached = Vec::new();
    for program in &programs {
        reached.push(reach::reach(program, mutants.len(), &folder, asked.jobs, say)?);
    }
    let tests: Vec<_> = programs
        .iter()
        .zip(&reached)
        .flat_map(|(program, tests)| tests.iter().map(move |test| (program, test)))
        .collect();

    let mut chosen = chosen(&forms);
    if asked.unreached {
        let reached: BTreeSet<u32> =
            tests.iter().flat_map(|(_, test)| test.reached.iter().copied()).collect();
        chosen.retain(|n| !reached.contains(&tree::number(*n)));
    }
    let killers = Killers::read(&folder.join("killers.json"));
    let done = AtomicUsize::new(0);
    let verdicts = share::share(&chosen, asked.jobs, |_, n| {
        let mutant = &mutants[*n];
        let verdict = match known.get(&mutant.name) {
            Some(why) => Verdict {
                mutant: mutant.clone(),
                fate: Fate::Equivalent { why: why.clone() },
                seconds: 0.0,
            },
            None => verdict::verdict(*n, mutant, &tests, killers.of(&mutant.name).as_ref())?,
        };
        killers.note(&verdict);
        say(line(done.fetch_add(1, Ordering::Relaxed) + 1, chosen.len(), &verdict));
        Ok(verdict)
    });
    Ok(Report { viable, verdicts: verdicts.into_iter().collect::<Result<_, String>>()? })
}

/// The mutants that are tried.
fn choose(mutants: &[Mutant], candidates: Vec<usize>, asked: &Asked) -> Vec<usize> {
    let chosen = match asked.sample {
        Some((count, seed)) => choice::sample(mutants, &candidates, count, seed),
        None => candidates,
    };
    match asked.shard {
        Some(Shard { part, of }) => chosen.into_iter().skip(part - 1).step_by(of).collect(),
        None => chosen,
    }
}

/// One line of progress; more for one that survived.
fn line(n: usize, of: usize, verdict: &Verdict) -> String {
    let seconds = verdict.seconds;
    let place = format!("{}:{}", verdict.mutant.name.file, verdict.mutant.line);
    match &verdict.fate {
        Fate::Killed { program, test, ran_away } => {
            let how = if *ran_away { "ran away in" } else { "killed by" };
            format!(
                "{n}/{of} {place} {} {how} {program} {test}, {seconds:.1} s",
                verdict.mutant.kind
            )
        }
        Fate::Survived { tests, asked } => format!(
            "{n}/{of} SURVIVED {asked} of {} tests, {seconds:.1} s: {}",
            tests.len(),
            report::head(verdict)
        ),
        Fate::Equivalent { why } => format!("{n}/{of} {place} equivalent: {why}"),
    }
}

/// Which test killed a mutant last: it is asked first.
#[derive(Debug)]
struct Killers {
    path: std::path::PathBuf,
    tests: Mutex<Vec<(Name, (String, String))>>,
}

impl Killers {
    fn read(path: &Path) -> Killers {
        let tests = fs::read(path).ok().and_then(|text| serde_json::from_slice(&text).ok());
        Killers { path: path.to_owned(), tests: Mutex::new(tests.unwrap_or_default()) }
    }
    fn of(&self, name: &Name) -> Option<(String, String)> {
        let tests = self.tests.lock().ok()?;
        tests.iter().find(|(other, _)| other == name).map(|(_, test)| test.clone())
    }
    fn note(&self, verdict: &Verdict) {
        let Fate::Killed { program, test, .. } = &verdict.fate else { return };
        let Ok(mut tests) = self.tests.lock() else { return };
        tests.retain(|(name, _)| *name != verdict.mutant.name);
        tests.push((verdict.mutant.name.clone(), (program.clone(), test.clone())));
        // It is a hint: what is lost of it costs time only.
        let _ = serde_json::to_vec(&*tests).map(|text| fs::write(&self.path, text));
    }
}
