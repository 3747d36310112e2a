//! From the words of a command line to the report of a scenario.
//!
//! **Not here**: the scenarios (`foliant-lab`), tables of what they report (`lab::show`).

use crate::args::{Lab, Size};
use crate::failure::{Done, Failure};
use crate::progress;
use crate::shown::shown;
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
    size: Size,
) -> Done<(Scenario, Parameters)> {
    let scenario: Scenario = name.parse().map_err(|e| {
        let name = shown(name);
        Failure::new(format_args!("{name}: {e}; see `foliant lab --list`"))
    })?;
    let words: Vec<&str> = words.map(String::as_str).collect();
    let parameters = Parameters::parse(scenario, words.iter().copied());
    let parameters = parameters.map_err(|e| Failure::new(shown(&e.to_string())))?;
    heed(scenario, &words, size.cpus())?;
    Ok((scenario, parameters))
}

/// Refuses words that would do nothing: a parameter that is given twice, one of rows that are not
/// run, a number of CPUs that the machine does not have.
fn heed(scenario: Scenario, words: &[&str], cpus: usize) -> Done {
    let pairs = || words.iter().filter_map(|word| word.split_once('='));
    let named = |wanted: &str| pairs().find_map(|(name, value)| (name == wanted).then_some(value));
    for (at, word) in words.iter().enumerate() {
        let name = word.split('=').next();
        if let Some(other) = words[..at].iter().find(|other| other.split('=').next() == name) {
            return Err(Failure::new(format_args!(
                "{} and {} are one parameter: leave one of them out",
                shown(other),
                shown(word)
            )));
        }
    }
    if scenario == Scenario::Compare
        && let Some(rows) = named("rows")
        && let Some((name, value)) = ["sizes", "areas"]
            .into_iter()
            .find_map(|name| Some((name, named(name)?)))
            .filter(|(name, _)| !rows.split(',').any(|row| row == *name))
    {
        return Err(Failure::new(format_args!(
            "{name}={value} is for the rows {name}, and rows={rows} leaves them out: add them, or leave it out"
        )));
    }
    for name in ["workers", "running"] {
        let more = |number: &&str| number.parse::<usize>().is_ok_and(|n| n > cpus);
        if let Some(value) = named(name)
            && let Some(number) = value.split(',').find(more)
        {
            return Err(Failure::new(format_args!(
                "{name}={value} asks for {number} of {cpus} CPUs; give the machine more with --cpus"
            )));
        }
    }
    Ok(())
}

/// What a command line asks for, in modelled time only; for who shows progress of their own.
pub(crate) fn modelled(args: &Lab) -> Done<Report> {
    let Some((name, words)) = args.words.split_first() else {
        return Err(Failure::new("no scenario was named; see `foliant lab --list`"));
    };
    let (scenario, parameters) = parse(name, words.iter(), args.size)?;
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
