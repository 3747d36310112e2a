//! `foliant lab`: measured scenarios on the simulated machine.
//!
//! **Not here**: the scenarios (`foliant-lab`); the comparison with the kernel (`truth`).

pub(crate) mod compare;
pub(crate) mod deadlines;
pub(crate) mod document;
pub(crate) mod hugetlb;
pub(crate) mod show;
pub(crate) mod thpscale;
pub(crate) mod truth;
pub(crate) mod vmalloc;
pub(crate) mod zero;

use crate::args::Lab;
use crate::board;
use crate::calibrate::kept;
use crate::calibrate::model::caption;
use crate::failure::{Done, Failure, print};
use crate::scenario::{self, simulate, with_model};
use crate::shown::shown;
use foliant_lab::Scenario;

/// What a command line asks for; each has options of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked<'w> {
    /// All systems side by side, on machines of the scoreboard's choice.
    Board,
    /// This machine's own memory.
    Zero,
    Deadlines,
    Truth,
    Scenario(&'w str),
}

pub(crate) fn run(mut args: Lab) -> Done {
    if args.list {
        return print(&show::list());
    }
    heed(&args, asked(&args))?;
    match asked(&args) {
        Asked::Board => board::run(args.json),
        #[cfg(target_arch = "x86_64")]
        Asked::Zero => zero::run(&args),
        Asked::Deadlines => deadlines::run(&args.words[1..], args.json),
        Asked::Truth => {
            args.model = Some(kept::chosen(args.model)?);
            truth::run(&args)
        }
        _ => {
            args.model = Some(kept::chosen(args.model)?);
            let (name, words) = args.words.split_first().expect("a scenario has a name");
            run_scenario(&args, name, words)
        }
    }
}

fn asked(args: &Lab) -> Asked<'_> {
    match args.words.as_slice() {
        _ if args.truth => Asked::Truth,
        [] => Asked::Board,
        [name] if name == "zero" && cfg!(target_arch = "x86_64") => Asked::Zero,
        [name, ..] if name == "deadlines" => Asked::Deadlines,
        [name, ..] => Asked::Scenario(name),
    }
}

/// Refuses an option that would do nothing.
fn heed(args: &Lab, asked: Asked<'_>) -> Done {
    let refused = |option: &str, why: &str| Err(Failure::new(format_args!("{option} {why}")));
    let kernel = args.guest.given().filter(|_| asked != Asked::Truth);
    if let Some(option) = kernel {
        return refused(
            option,
            "is for the kernel, which --truth runs beside the simulator: add that, or leave it out",
        );
    }
    let machine = args.given();
    match (asked, args.here.given(), machine) {
        (Asked::Board, Some(option), _) | (Asked::Board, None, Some(option)) => {
            refused(option, "is for a scenario, and none is named: see `foliant lab --list`")
        }
        (Asked::Zero, _, Some(option)) => refused(
            option,
            "is for a simulated machine, and without parameters zero measures this machine: \
             add one, see `foliant lab --list`",
        ),
        (Asked::Zero, ..) if args.here.explain && args.json => refused(
            "--explain",
            "adds words to the table, and --json has all that they say: leave one of the two out",
        ),
        (Asked::Deadlines, Some(option), _) | (Asked::Deadlines, None, Some(option)) => {
            refused(option, "is not for deadlines, which have machines of their own: leave it out")
        }
        (Asked::Truth, Some(option), _) => refused(
            option,
            "is for `foliant lab zero` without parameters and without --truth: leave it out",
        ),
        (Asked::Scenario(name), Some(option), _) => Err(Failure::new(format_args!(
            "{option} is for `foliant lab zero` without parameters; see `foliant lab --list` for those of {}",
            shown(name)
        ))),
        _ => Ok(()),
    }
}

fn run_scenario(args: &Lab, name: &str, words: &[String]) -> Done {
    let (scenario, parameters) = scenario::parse(name, words.iter(), args.size)?;
    #[cfg(target_arch = "x86_64")]
    if scenario == Scenario::Vmalloc {
        return vmalloc::run(args, &vmalloc::parameters(words)?);
    }
    if scenario == Scenario::Hugetlb {
        return hugetlb::run(args, &parameters);
    }
    if scenario == Scenario::Thpscale {
        return thpscale::run(args, &parameters);
    }
    if scenario == Scenario::Compare {
        return compare::run(args, &parameters);
    }
    let report = simulate((scenario, &parameters), args.size, |config| with_model(config, args))?;
    if args.json {
        return print(&crate::document::text(&document::report(&report))?);
    }
    let unit = format!("nanoseconds of modelled kernel time, model {}", caption(&args.model()));
    print(&show::report(&report, &unit))
}
