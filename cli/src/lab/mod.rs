//! `foliant lab`: measured scenarios on the simulated machine.
//!
//! **Not here**: the scenarios (`foliant-lab`); the comparison with the kernel (`truth`).

pub(crate) mod compare;
mod deadlines;
mod hugetlb;
pub(crate) mod show;
pub(crate) mod thpscale;
mod truth;
mod vmalloc;
pub(crate) mod zero;

use crate::args::Lab;
use crate::board;
use crate::calibrate::kept;
use crate::calibrate::model::caption;
use crate::failure::{Done, Failure, print};
use crate::scenario::{self, simulate, with_model};
use foliant_lab::Scenario;

pub(crate) fn run(mut args: Lab) -> Done {
    if args.truth {
        args.model = Some(kept::chosen(args.model)?);
        return truth::run(&args);
    }
    if args.list {
        return print(&show::list());
    }
    let Some((name, words)) = args.words.split_first() else { return board(&args) };
    #[cfg(target_arch = "x86_64")]
    if name == "zero" && words.is_empty() {
        return zero::run(&args);
    }
    if name == "deadlines" {
        return deadlines::run(words);
    }
    if let Some(option) = args.here.given() {
        return Err(Failure::new(format_args!(
            "{option} is for `foliant lab zero` without parameters; see `foliant lab --list` for those of {name}"
        )));
    }
    args.model = Some(kept::chosen(args.model)?);
    run_scenario(&args, name, words)
}

fn run_scenario(args: &Lab, name: &str, words: &[String]) -> Done {
    let (scenario, parameters) = scenario::parse(name, words.iter())?;
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
        return print(&format!("{}\n", report.line()));
    }
    let unit = format!("nanoseconds of modelled kernel time, model {}", caption(&args.model()));
    print(&show::report(&report, &unit))
}

/// All systems side by side, on machines of the scoreboard's choice.
fn board(args: &Lab) -> Done {
    if let Some(option) = args.given() {
        return Err(Failure::new(format_args!(
            "{option} is for a scenario, and none is named: see `foliant lab --list`"
        )));
    }
    board::run(args.json)
}
