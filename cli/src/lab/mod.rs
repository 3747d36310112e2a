//! `foliant lab`: measured scenarios on the simulated machine.
//!
//! **Not here**: the scenarios (`foliant-lab`); the comparison with the kernel (`truth`).

pub(crate) mod show;
mod truth;

use crate::args::{Lab, Size};
use crate::failure::{Done, Failure, print};
use crate::progress;
use foliant_lab::{Parameters, Report, Scenario};
use foliant_sim::{Config, CostModel};
use foliant_stage::SimStage;

pub(crate) fn run(args: &Lab) -> Done {
    if args.truth {
        return truth::run(args);
    }
    let Some((name, words)) = args.words.split_first() else { return print(&show::list()) };
    let (scenario, parameters) = self::scenario(name, words.iter())?;
    let report = simulate((scenario, &parameters), args.size, args.model)?;
    if args.json {
        return print(&format!("{}\n", report.line()));
    }
    let unit = format!("nanoseconds of modelled kernel time, model {}", args.model.name);
    print(&show::report(&report, &unit))
}

/// A scenario by its name, with its parameters.
pub(crate) fn scenario<'w>(
    name: &str,
    words: impl Iterator<Item = &'w String>,
) -> Done<(Scenario, Parameters)> {
    let scenario: Scenario =
        name.parse().map_err(|e| Failure::new(format_args!("{name}: {e}; see `foliant lab`")))?;
    let parameters =
        Parameters::parse(scenario, words.map(String::as_str)).map_err(Failure::new)?;
    Ok((scenario, parameters))
}

/// Runs a scenario on the simulator.
fn simulate(
    (scenario, parameters): (Scenario, &Parameters),
    size: Size,
    model: CostModel,
) -> Done<Report> {
    let config = Config { model, ..Config::free(size.cpus, size.memory) };
    let machine = SimStage::machine(config).map_err(Failure::new)?;
    let memory = size.memory;
    let few = |e| Failure::new(format_args!("{memory} of memory are too little: {e}"));
    let stage = SimStage::new(&machine).map_err(few)?;
    let spinner = progress::spinner(&format!("{scenario} on {} simulated CPUs", size.cpus));
    let report = scenario.run(&stage, parameters);
    spinner.finish_and_clear();
    report.map_err(|e| {
        Failure::new(format_args!("{scenario} on {} CPUs with {memory}: {e}", size.cpus))
    })
}
