//! `foliant lab`: measured scenarios on the simulated machine.
//!
//! **Not here**: the scenarios (`foliant-lab`); the comparison with the kernel (`truth`).

mod hugetlb;
pub(crate) mod show;
pub(crate) mod thpscale;
mod truth;
mod vmalloc;
mod zero;

use crate::args::{Lab, Size};
use crate::failure::{Done, Failure, print};
use crate::{board, progress};
use foliant_lab::{Parameters, Report, Scenario};
use foliant_sim::Config;
use foliant_stage::SimStage;

pub(crate) fn run(args: &Lab) -> Done {
    if args.truth {
        return truth::run(args);
    }
    if args.list {
        return print(&show::list());
    }
    let Some((name, words)) = args.words.split_first() else { return board(args) };
    #[cfg(target_arch = "x86_64")]
    if name == "zero" && words.is_empty() {
        return zero::run(args);
    }
    if let Some(option) = args.here.given() {
        return Err(Failure::new(format_args!(
            "{option} is for `foliant lab zero` without parameters; see `foliant lab --list` for those of {name}"
        )));
    }
    let (scenario, parameters) = self::scenario(name, words.iter())?;
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
    let report = simulate((scenario, &parameters), args.size, |config| with_model(config, args))?;
    if args.json {
        return print(&format!("{}\n", report.line()));
    }
    let unit = format!("nanoseconds of modelled kernel time, model {}", args.model().name);
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

/// The machine with the prices that were asked for.
fn with_model(config: Config, args: &Lab) -> Config {
    Config { model: args.model(), ..config }
}

/// A scenario by its name, with its parameters.
pub(crate) fn scenario<'w>(
    name: &str,
    words: impl Iterator<Item = &'w String>,
) -> Done<(Scenario, Parameters)> {
    let scenario: Scenario = name
        .parse()
        .map_err(|e| Failure::new(format_args!("{name}: {e}; see `foliant lab --list`")))?;
    let parameters =
        Parameters::parse(scenario, words.map(String::as_str)).map_err(Failure::new)?;
    Ok((scenario, parameters))
}

/// [`report`] with a sign of life.
fn simulate(
    asked: (Scenario, &Parameters),
    size: Size,
    adjust: impl Fn(Config) -> Config,
) -> Done<Report> {
    let spinner = progress::spinner(&format!("{} on {} simulated CPUs", asked.0, size.cpus()));
    let report = report(asked, size, adjust);
    spinner.finish_and_clear();
    report
}

/// Runs each part of a scenario on a simulator of its own.
pub(crate) fn report(
    (scenario, parameters): (Scenario, &Parameters),
    size: Size,
    adjust: impl Fn(Config) -> Config,
) -> Done<Report> {
    let memory = size.memory_or(scenario.memory(parameters));
    let config = adjust(Config::free(size.cpus(), memory));
    let mut reports = Vec::new();
    for part in scenario.parts(parameters) {
        let machine = SimStage::machine(config.clone()).map_err(Failure::new)?;
        let few = |e| Failure::new(format_args!("{memory} of memory are too little: {e}"));
        let stage = SimStage::new(&machine).map_err(few)?;
        reports.push(scenario.run(&stage, &part).map_err(|e| {
            Failure::new(format_args!("{scenario} on {} CPUs with {memory}: {e}", size.cpus()))
        })?);
    }
    Ok(Report::join(reports, parameters).expect("a scenario has a part"))
}
