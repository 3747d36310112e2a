//! From the words of a command line to the report of a scenario.
//!
//! **Not here**: the scenarios (`foliant-lab`), tables of what they report (`lab::show`).

use crate::args::{Lab, Size};
use crate::failure::{Done, Failure};
use crate::progress;
use foliant_lab::{Parameters, Report, Scenario};
use foliant_sim::{Backing, Config};
use foliant_stage::SimStage;

/// The machine with the prices that were asked for.
pub(crate) fn with_model(config: Config, args: &Lab) -> Config {
    Config { model: args.model(), ..config }
}

/// A scenario by its name, with its parameters.
pub(crate) fn parse<'w>(
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

/// What a command line asks for, in modelled time only; for who shows progress of their own.
pub(crate) fn modelled(args: &Lab) -> Done<Report> {
    let Some((name, words)) = args.words.split_first() else {
        return Err(Failure::new("no scenario was named; see `foliant lab --list`"));
    };
    let (scenario, parameters) = parse(name, words.iter())?;
    report((scenario, &parameters), args.size, |config| match scenario {
        Scenario::Hugetlb => Config { backing: Backing::Compact, ..with_model(config, args) },
        _ => with_model(config, args),
    })
}

/// [`report`] with a sign of life.
pub(crate) fn simulate(
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
