//! A mutant on trial: the tests that reach it are run with it switched on, until one fails.
//!
//! The test that killed it last time goes first, then those of its own room, then the shortest.

use crate::mutant::Mutant;
use crate::program::{End, Program};
use crate::reach::Test;
use crate::switch::Switch;
use crate::tree::number;
use serde::Serialize;
use std::time::{Duration, Instant};

/// A test may take so many times as long as without the mutant, and some seconds more for a machine
/// that is busy.
const TIMES: f64 = 6.0;
const MORE: f64 = 15.0;
/// Tests are asked about one mutant for so long. A mutant that those of its room and the short ones
/// have not noticed by then has survived, which can only make the tests look worse than they are.
const ASKED_MOST: Duration = Duration::from_secs(180);

/// What became of a mutant.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "verdict")]
pub enum Fate {
    /// A test noticed.
    Killed {
        /// The program of the test.
        program: String,
        /// Its name.
        test: String,
        /// It did not fail: it took too long, or too much memory.
        ran_away: bool,
    },
    /// All tests that were asked passed.
    Survived {
        /// Those that reach it, the shortest first.
        tests: Vec<String>,
        /// How many of them were asked.
        asked: usize,
    },
    /// It is no mistake: the reason is in the list.
    Equivalent {
        /// The reason.
        why: String,
    },
}

/// A mutant that was tried.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// The mutant.
    #[serde(flatten)]
    pub mutant: Mutant,
    /// What became of it.
    #[serde(flatten)]
    pub fate: Fate,
    /// How long that took.
    pub seconds: f64,
}

/// All tests, with the program of each.
pub(crate) type Tests<'a> = [(&'a Program, &'a Test)];

/// Tries one mutant.
pub(crate) fn verdict(
    n: usize,
    mutant: &Mutant,
    tests: &Tests<'_>,
    last: Option<&(String, String)>,
) -> Result<Verdict, String> {
    let begun = Instant::now();
    let id = number(n);
    let reaches = |test: &Test| test.passes && test.reached.binary_search(&id).is_ok();
    let asks = |program: &Program| program.asks(&mutant.room);
    let mut tests: Vec<_> =
        tests.iter().filter(|(program, test)| asks(program) && reaches(test)).collect();
    tests.sort_by(|(_, a), (_, b)| a.seconds.total_cmp(&b.seconds));
    let by_length: Vec<String> =
        tests.iter().map(|(program, test)| format!("{} {}", program.name, test.name)).collect();
    tests.sort_by_key(|(program, test)| {
        let is_last = last.is_some_and(|(p, t)| *p == program.name && *t == test.name);
        (!is_last, !is_own(mutant, program, test))
    });
    let mut asked = 0;
    let mut killer = None;
    for (program, test) in tests {
        if begun.elapsed() > ASKED_MOST {
            break;
        }
        asked += 1;
        let most = Duration::from_secs_f64(test.seconds * TIMES + MORE);
        let (end, _) = program.run(&test.name, Switch::On(id), most)?;
        if end != End::Passed {
            killer = Some((program, test, end != End::Failed));
            break;
        }
    }
    let fate = match killer {
        Some((program, test, ran_away)) => {
            Fate::Killed { program: program.name.clone(), test: test.name.clone(), ran_away }
        }
        None => Fate::Survived { tests: by_length, asked },
    };
    Ok(Verdict { mutant: mutant.clone(), fate, seconds: begun.elapsed().as_secs_f64() })
}

/// Whether a test is one of the mutant's room.
fn is_own(mutant: &Mutant, program: &Program, test: &Test) -> bool {
    let package = program.name.split('/').next().unwrap_or_default();
    let first = test.name.split("::").next().unwrap_or_default();
    match mutant.room.as_str() {
        "check" => package == "sim",
        room if package == "mm" => first == room || first.starts_with(&format!("{room}_")),
        room => package == room,
    }
}
