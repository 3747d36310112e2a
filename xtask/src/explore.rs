//! Every order in which two or three operations of the manager can meet.

use clap::Args;
use foliant_explore::{
    Extent, Folios, Format, Operation, Plan, Report, explore, objects, pairs, pooled, replay,
    triples,
};
use std::time::{Duration, Instant};

/// What `cargo xtask explore` takes.
#[derive(Args, Debug)]
pub(crate) struct Explore {
    /// Every two operations, on base pages, 64 KiB, 2 MiB and shared zeros, alone and forked, and a
    /// guess beside each, on folios whose size the manager chooses
    #[arg(long)]
    pairs: bool,
    /// Of the pairs, those of operations on an object, on base pages, 64 KiB, 2 MiB and huge
    /// pages of a pool
    #[arg(long)]
    objects: bool,
    /// Every three of those that change mappings or owners, on base pages and 2 MiB
    #[arg(long)]
    triples: bool,
    /// One scene, like 'x86_64 base fork1: Write | ReadOnly & Compact'
    #[arg(long, value_name = "NAME")]
    scene: Vec<String>,
    /// Of the scenes, those whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Of the scenes, every N-th from the I-th on
    #[arg(long, value_name = "I/N", value_parser = share, default_value = "0/1")]
    share: (usize, usize),
    /// The machine: x86_64, aarch64, riscv64
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    format: Option<Format>,
    /// Allocations that may be refused in a schedule, each at every place
    #[arg(long, value_name = "N", default_value_t = 0)]
    refuse: u32,
    /// Both operations are tasks of one CPU, which take turns where they yield
    #[arg(long)]
    tasks: bool,
    /// Switches that nobody had to make: all schedules of up to so many
    #[arg(long, value_name = "N")]
    bound: Option<u32>,
    /// Schedules with one to three switches at random
    #[arg(long, value_name = "N", default_value_t = 0)]
    random: u64,
    /// Schedules of one scene, at most
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    schedules: u64,
    /// Schedules that are another one once more are made as well
    #[arg(long)]
    repeats: bool,
    /// Seconds for one scene, at most
    #[arg(long, value_name = "S", default_value_t = 20)]
    seconds: u64,
    /// Processes at work [default: one for each CPU]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Runs one schedule of the scene again, and tells how it goes
    #[arg(long, value_name = "CHOICES", requires = "scene")]
    replay: Option<String>,
    /// Lists the operations
    #[arg(long)]
    list: bool,
}

fn share(text: &str) -> Result<(usize, usize), String> {
    let parts = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
    parts.filter(|(i, n)| i < n).ok_or(format!("'{text}' is no share: the second of four is 1/4"))
}
fn format(text: &str) -> Result<Format, String> {
    let is = |format: &Format| format!("{format:?}").eq_ignore_ascii_case(text);
    Format::ALL.into_iter().find(is).ok_or(format!("'{text}' is none of {:?}", Format::ALL))
}

/// Runs what was asked for.
pub(crate) fn run(asked: &Explore) -> Result<(), String> {
    if asked.list {
        Operation::ALL.iter().for_each(|operation| println!("{operation:?}"));
        return Ok(());
    }
    let plans = plans(asked)?;
    if let Some(choices) = &asked.replay {
        let text = replay(&plans[0], choices)?;
        println!("{}", if text.is_empty() { "nothing was found" } else { &text });
        return Ok(());
    }
    let extent = Extent {
        bound: asked.bound.unwrap_or(u32::from(!asked.triples)),
        random: if asked.triples && asked.random == 0 { 300 } else { asked.random },
        schedules: asked.schedules,
        repeats: asked.repeats,
        time: Duration::from_secs(asked.seconds),
        jobs: asked.jobs.unwrap_or(Extent::default().jobs),
        ..Extent::default()
    };
    all(&plans, extent)
}

/// A share of all pairs, for CI.
pub(crate) fn some() -> Result<(), String> {
    /// Every so many of them; a prime, so that it goes through all of the operations.
    const EVERY: usize = 89;
    let plans: Vec<Plan> = every_pair().step_by(EVERY).collect();
    all(&plans, Extent { time: Duration::from_secs(5), ..Extent::default() })
}
fn every_pair() -> impl Iterator<Item = Plan> {
    Folios::ALL
        .into_iter()
        .flat_map(|folios| [0, 1].into_iter().flat_map(move |forks| pairs(folios, forks)))
        .chain(every_pair_of_objects())
}
fn every_pair_of_objects() -> impl Iterator<Item = Plan> {
    [Folios::Base, Folios::Small, Folios::Huge]
        .into_iter()
        .flat_map(|folios| [0, 1].into_iter().flat_map(move |forks| objects(folios, forks)))
        .chain([0, 1].into_iter().flat_map(pooled))
}

fn plans(asked: &Explore) -> Result<Vec<Plan>, String> {
    let mut plans: Vec<Plan> =
        asked.scene.iter().map(|name| name.parse()).collect::<Result<_, _>>()?;
    if asked.pairs || (plans.is_empty() && !asked.triples && !asked.objects) {
        plans.extend(every_pair());
    } else if asked.objects {
        plans.extend(every_pair_of_objects());
    }
    if asked.triples {
        plans.extend([Folios::Base, Folios::Huge].into_iter().flat_map(triples));
    }
    for plan in &mut plans {
        plan.format = asked.format.unwrap_or(plan.format);
        plan.refusals = plan.refusals.max(asked.refuse);
        if asked.tasks {
            plan.cpus = vec![std::mem::take(&mut plan.cpus).into_iter().flatten().collect()];
        }
    }
    plans.retain(|plan| plan.to_string().contains(&asked.only));
    let (first, every) = asked.share;
    let plans: Vec<Plan> = plans.into_iter().skip(first).step_by(every).collect();
    if plans.is_empty() { Err("no scene is left of what was asked for".into()) } else { Ok(plans) }
}

/// Explores the scenes, and tells what is found as it is.
pub(crate) fn all(plans: &[Plan], extent: Extent) -> Result<(), String> {
    /// Between two lines about how far it is.
    const LINE: Duration = Duration::from_secs(20);
    /// So few scenes have a line each.
    const FEW: usize = 20;
    let (begun, mut told, mut done, mut schedules) = (Instant::now(), Instant::now(), 0, 0);
    let reports = explore(plans, extent, |_, report| {
        done += 1;
        schedules += report.schedules;
        if report.failures > 0 {
            print!("{}", finding(report));
        } else if plans.len() <= FEW {
            println!("{}", line(report));
        }
        if told.elapsed() > LINE {
            told = Instant::now();
            let seconds = begun.elapsed().as_secs();
            println!("  {done} of {} scenes, {schedules} schedules, {seconds} s", plans.len());
        }
    });
    let cut: Vec<&Report> = reports.iter().filter(|report| report.is_cut).collect();
    if plans.len() > FEW {
        cut.iter().for_each(|report| println!("cut short: {}", line(report)));
    }
    let bad = reports.iter().filter(|report| report.failures > 0).count();
    println!(
        "{} scenes, {schedules} schedules of at most {} switches, {} scenes cut short, {bad} not clean; {:.0} s",
        reports.len(),
        extent.bound,
        cut.len(),
        begun.elapsed().as_secs_f64(),
    );
    if reports.len() < plans.len() {
        return Err(format!("{} scenes were not explored", plans.len() - reports.len()));
    }
    if bad == 0 { Ok(()) } else { Err(format!("{bad} scenes are not clean")) }
}

fn line(report: &Report) -> String {
    format!(
        "{}: {} schedules, {} of them different, {} points, {} pruned, {:.1} s{}",
        report.plan,
        report.schedules,
        report.orders,
        report.points,
        report.pruned,
        report.time.as_secs_f64(),
        if report.is_cut { ", cut short" } else { "" },
    )
}

fn finding(report: &Report) -> String {
    let text: String = report.text.lines().map(|line| format!("    {line}\n")).collect();
    format!(
        "FOUND {}; {} of them fail, the {}. first\n{text}",
        line(report),
        report.failures,
        report.first_failure
    )
}
