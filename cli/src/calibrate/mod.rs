//! `foliant calibrate`: what the kernel's work costs on this machine, as a cost model that later
//! commands take by themselves.
//!
//! ```text
//!   foliant_hosted::costs ──▶ Calibration ──▶ table, JSON
//!     (rounds of loops)            └──▶ kept: a file ──▶ the model `here` of replay and lab
//! ```
//!
//! **Not here**: the measuring (`foliant-hosted`), the file (`kept`), the cost model (`model`).

pub(crate) mod kept;
pub(crate) mod model;

use crate::args::Calibrate;
use crate::document::Document;
use crate::failure::{Done, Failure, print};
use crate::table::columns;
use crate::terminal::{fitted, prose};
use crate::{document, host, shown};
use foliant_sim::{Constant, CostModel, Work};
use model::{Calibration, HERE, Price, model, now};
use schemars::JsonSchema;
use serde::Serialize;

/// Of how many rounds medians are taken.
const ROUNDS: u32 = 31;

/// What was measured and is no price of its own: a model's prices add up to it.
#[derive(Serialize, JsonSchema)]
struct Sum {
    /// What was measured.
    about: &'static str,
    /// What the nanoseconds are for.
    unit: &'static str,
    /// The median of the rounds.
    nanos: f64,
    /// The quarter of the rounds below.
    low: f64,
    /// The quarter of the rounds above.
    high: f64,
    /// What the prices that were measured come to.
    here: f64,
    /// What those of the default model come to.
    default: f64,
}

/// What the kernel's work costs on this machine.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Shown<'a> {
    /// Where it is kept.
    file: String,
    /// What is kept.
    calibration: &'a Calibration,
    /// The model that follows: every price.
    constants: Vec<Line>,
    /// What prices come to, beside what was measured.
    sums: Vec<Sum>,
}

impl Document for Shown<'_> {
    const NAME: &'static str = "calibrate";
    const COMMAND: &'static str = "foliant calibrate --json";
}

/// A price of the model.
#[derive(Serialize, JsonSchema)]
struct Line {
    /// The kind of work, by its name.
    work: &'static str,
    /// What the nanoseconds are for.
    unit: &'static str,
    /// The price.
    nanos: f64,
    /// The quarter of the rounds below, if it was measured.
    low: Option<f64>,
    /// The quarter of the rounds above, if it was measured.
    high: Option<f64>,
    /// The default model's price.
    default: f64,
    /// Whether it was measured here; else it is the default model's.
    is_measured: bool,
    /// Where the price is from.
    source: &'static str,
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn run(_: &Calibrate) -> Done {
    Err(Failure::new("only x86-64 can be measured; choose a model with --model"))
}

#[cfg(target_arch = "x86_64")]
pub(crate) fn run(args: &Calibrate) -> Done {
    let place = kept::Place::of_user()?;
    let timed = foliant_hosted::costs(ROUNDS)
        .map_err(|e| Failure::new(format_args!("this machine cannot be measured: {e}")))?;
    let calibration = Calibration {
        format: model::FORMAT.to_owned(),
        host: host::name(),
        processor: host::processor(),
        kernel: host::system(),
        cpus: host::cpus(),
        rounds: ROUNDS,
        seconds: now().as_secs(),
        prices: timed.iter().filter_map(price).collect(),
    };
    place.keep(&calibration)?;
    let file = shown::path(&place.file());
    let model = model(&calibration);
    let sums = sums(&timed, &model);
    let constants: Vec<Line> = model.constants.iter().map(|c| line(c, &calibration)).collect();
    if args.json {
        let shown = Shown { file, calibration: &calibration, constants, sums };
        return print(&document::text(&shown)?);
    }
    print(&table(&file, &calibration, &constants, &sums))
}

/// The price that a quantity is.
#[cfg(target_arch = "x86_64")]
fn price(timed: &foliant_hosted::Timed) -> Option<Price> {
    use foliant_hosted::Quantity;
    let work = match timed.quantity {
        Quantity::Fault => Work::Fault,
        Quantity::Take => Work::Alloc,
        Quantity::Give => Work::Free,
        Quantity::Entry => Work::EntryWrite,
        Quantity::Clear => Work::ClearByte,
        Quantity::ClearLarge => Work::ClearByteLarge,
        Quantity::Copy => Work::CopyByte,
        Quantity::Call => Work::Syscall,
        Quantity::Send => Work::InterruptSend,
        Quantity::Wait => Work::InterruptWait,
        Quantity::Touch
        | Quantity::Unmap
        | Quantity::ForkPage
        | Quantity::ForkTable
        | Quantity::CopyFault => return None,
    };
    // What else the machine charges for the same event is taken off: a descriptor for a page that
    // is taken, a descriptor and a frame for one that is given back, an invalidation for one that
    // is copied.
    let default = CostModel::xeon_guest_2();
    let described = default.nanos(Work::KernelWrite, 1);
    let less = match work {
        Work::Alloc => described,
        Work::Free => described + default.nanos(Work::FreeFrame, 1),
        Work::CopyByte => default.nanos(Work::InvalidateEntry, 1) / 4096.0,
        _ => 0.0,
    };
    let picos = |nanos: f64| ((nanos - less) * 1000.0).round();
    let median = picos(timed.median);
    (median >= 1.0 && median <= model::PICOS_MOST as f64).then(|| Price {
        work: work.name().to_owned(),
        picos: median as u64,
        low_picos: picos(timed.low) as i64,
        high_picos: picos(timed.high) as i64,
        about: timed.quantity.about().to_owned(),
    })
}

/// What measurements that are no prices come to in the model and in the default one.
#[cfg(target_arch = "x86_64")]
fn sums(timed: &[foliant_hosted::Timed], here: &CostModel) -> Vec<Sum> {
    use foliant_hosted::Quantity;
    let sum = |timed: &foliant_hosted::Timed| {
        let one = |model: &CostModel, works: &[(Work, u64)]| -> f64 {
            works.iter().map(|(work, units)| model.nanos(*work, *units)).sum()
        };
        let taken =
            [(Work::Fault, 1), (Work::Alloc, 1), (Work::EntryWrite, 1), (Work::KernelWrite, 1)];
        let works = match timed.quantity {
            Quantity::Touch => [&taken[..], &[(Work::ClearByte, 4096)]].concat(),
            Quantity::CopyFault => {
                [&taken[..], &[(Work::CopyByte, 4096), (Work::InvalidateEntry, 1)]].concat()
            }
            Quantity::Unmap => vec![
                (Work::Free, 1),
                (Work::FreeFrame, 1),
                (Work::KernelWrite, 1),
                (Work::EntryWrite, 1),
            ],
            // The child's entry, and the right to write that the parent loses.
            Quantity::ForkPage => vec![(Work::EntryWrite, 2)],
            Quantity::ForkTable => {
                vec![(Work::Alloc, 1), (Work::ClearByte, 4096), (Work::EntryWrite, 1)]
            }
            _ => return None,
        };
        Some(Sum {
            about: timed.quantity.about(),
            unit: timed.quantity.unit(),
            nanos: timed.median,
            low: timed.low,
            high: timed.high,
            here: one(here, &works),
            default: one(&CostModel::xeon_guest_2(), &works),
        })
    };
    timed.iter().filter_map(sum).collect()
}

fn line(c: &Constant, calibration: &Calibration) -> Line {
    let price = calibration.prices.iter().find(|price| price.work == c.work.name());
    let nanos = |picos: i64| picos as f64 / 1000.0;
    Line {
        work: c.work.name(),
        unit: c.unit,
        nanos: c.nanos,
        low: price.map(|price| nanos(price.low_picos)),
        high: price.map(|price| nanos(price.high_picos)),
        default: CostModel::xeon_guest_2().nanos(c.work, 1),
        is_measured: price.is_some(),
        source: c.source,
    }
}

/// Nanoseconds with as many decimals as say something.
fn nanos(nanos: f64) -> String {
    match nanos.abs() {
        n if n >= 100.0 => format!("{nanos:.0}"),
        n if n >= 1.0 => format!("{nanos:.1}"),
        _ => format!("{nanos:.3}"),
    }
}

fn table(file: &str, calibration: &Calibration, constants: &[Line], sums: &[Sum]) -> String {
    let Calibration { host, processor, kernel, cpus, rounds, .. } = calibration;
    let mut text = fitted(&format!(
        "this machine: {}, {}, {cpus} CPUs, {}\nnanoseconds, medians and quarters of {rounds} interleaved rounds\n\n",
        shown::shown(host),
        shown::shown(processor),
        shown::shown(kernel),
    ));
    let heads = ["constant", "for each", "here", "from", "to", "xeon-guest-2"];
    let measured = constants.iter().filter(|line| line.is_measured).map(|line| {
        let quarter = |value: Option<f64>| value.map_or_else(String::new, nanos);
        vec![
            line.work.to_owned(),
            line.unit.to_owned(),
            nanos(line.nanos),
            quarter(line.low),
            quarter(line.high),
            nanos(line.default),
        ]
    });
    text += &columns(&heads, measured);
    text += &fitted("\nwhat the prices come to beside what was measured\n\n");
    let heads = ["measured", "for each", "here", "from", "to", "model here", "xeon-guest-2"];
    let row = |sum: &Sum| {
        let cells = [sum.nanos, sum.low, sum.high, sum.here, sum.default].map(nanos);
        [sum.about.to_owned(), sum.unit.to_owned()].into_iter().chain(cells).collect()
    };
    text += &columns(&heads, sums.iter().map(row));
    let others: Vec<&str> =
        constants.iter().filter(|line| !line.is_measured).map(|line| line.work).collect();
    text + &prose(&format!(
        "\nnot measured here, but of xeon-guest-2:\n  {}\n\nkept in {file}:\n\
         replay and lab take it from now on as the model {HERE}; --model xeon-guest-2 is the former one, and \
         removing the file as well.",
        others.join(", ")
    ))
}
