//! What each test reaches, and how long it takes, without a mutant. It is kept by the hash of the
//! tests' program.

use crate::program::{End, Program};
use crate::share::share;
use crate::switch::Switch;
use serde::{Deserialize, Serialize};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::time::Duration;

/// The longest that a test may take without a mutant.
const MOST: Duration = Duration::from_secs(900);

/// A test as it runs without a mutant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Test {
    pub(crate) name: String,
    pub(crate) seconds: f64,
    pub(crate) passes: bool,
    /// The mutants, by number, that would have made a difference in it, or that were on its way.
    pub(crate) reached: Vec<u32>,
}

/// Runs all tests of a program, or remembers.
pub(crate) fn reach(
    program: &Program,
    mutants: usize,
    folder: &Path,
    jobs: usize,
    say: &(dyn Fn(String) + Sync),
) -> Result<Vec<Test>, String> {
    let failed = |why: std::io::Error| format!("{}: {why}", program.path.display());
    let content = fs::read(&program.path).map_err(failed)?;
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    let folder = folder.join("reach");
    fs::create_dir_all(&folder).map_err(failed)?;
    let kept = folder.join(format!("{:016x}.json", hasher.finish()));
    if let Some(tests) = fs::read(&kept).ok().and_then(|text| serde_json::from_slice(&text).ok()) {
        return Ok(tests);
    }
    let names = program.tests()?;
    say(format!("{}: {} tests without a mutant", program.name, names.len()));
    let tests = share(&names, jobs, |n, name| {
        let notes = folder.join(format!("{}.{n}", std::process::id()));
        fs::write(&notes, vec![0; mutants + 1]).map_err(failed)?;
        let (end, took) = program.run(name, Switch::Note(&notes), MOST)?;
        let noted = fs::read(&notes).map_err(failed)?;
        let _ = fs::remove_file(&notes);
        let reached = (1..=mutants).filter(|n| noted[*n] != 0).map(|n| n as u32).collect();
        if end != End::Passed {
            say(format!("{} {name} does not pass without a mutant: it is left out", program.name));
        }
        let passes = end == End::Passed;
        Ok(Test { name: name.clone(), seconds: took.as_secs_f64(), passes, reached })
    });
    let tests = tests.into_iter().collect::<Result<Vec<Test>, String>>()?;
    let seconds: f64 = tests.iter().map(|test| test.seconds).sum();
    say(format!("{}: {} tests, {seconds:.0} s", program.name, tests.len()));
    match tests.iter().filter(|test| !test.passes).count() {
        0 => {
            let text = serde_json::to_string(&tests).map_err(|why| why.to_string())?;
            fs::write(&kept, text).map_err(failed)?;
            Ok(tests)
        }
        all if all == tests.len() => Err(format!(
            "no test of {} passes without a mutant: run {} to see why",
            program.name,
            program.path.display()
        )),
        // A test that did not pass may do so another time, so nothing is kept.
        _ => Ok(tests),
    }
}
