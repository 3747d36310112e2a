//! Prices that were measured on a machine, and the cost model that they make.
//!
//! **Not here**: the measuring, the file that they are kept in (`kept`).

use crate::{host, shown};
use foliant_sim::{Constant, CostModel, Work};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime};

/// The name of the model that was measured on this machine.
pub(crate) const HERE: &str = "here";

/// What the file says that it is.
pub(crate) const FORMAT: &str = "foliant calibration 1";
/// No price is a second and more.
pub(crate) const PICOS_MOST: u64 = 1_000_000_000_000;

/// A price that was measured. Picoseconds are what a simulated machine reckons in, and whole
/// numbers are the same after they were written and read.
#[derive(Clone, Serialize, Deserialize, JsonSchema, PartialEq, Debug)]
pub(crate) struct Price {
    /// The kind of work, by its name.
    pub(crate) work: String,
    /// Picoseconds for one unit: the median of the rounds.
    pub(crate) picos: u64,
    /// The quarter of the rounds below.
    pub(crate) low_picos: i64,
    /// The quarter of the rounds above.
    pub(crate) high_picos: i64,
    /// What was measured.
    pub(crate) about: String,
}

/// A measured model, and where and when it was measured.
#[derive(Clone, Serialize, Deserialize, JsonSchema, PartialEq, Debug)]
pub(crate) struct Calibration {
    /// What the file says that it is.
    pub(crate) format: String,
    /// The machine's name.
    pub(crate) host: String,
    /// The machine's processor.
    pub(crate) processor: String,
    /// The machine's kernel.
    pub(crate) kernel: String,
    /// CPUs that a process may use.
    pub(crate) cpus: usize,
    /// Of how many rounds medians are taken.
    pub(crate) rounds: u32,
    /// When it was, in seconds since 1970.
    pub(crate) seconds: u64,
    /// What was measured.
    pub(crate) prices: Vec<Price>,
}

/// Whether all prices are of known work, each once, and positive.
pub(crate) fn is_sound(calibration: &Calibration) -> bool {
    let prices = &calibration.prices;
    let is_known = |price: &Price| Work::ALL.iter().any(|work| work.name() == price.work);
    let is_once = |price: &Price| prices.iter().filter(|p| p.work == price.work).count() == 1;
    calibration.format == FORMAT
        && prices.len() <= Work::ALL.len()
        && prices.iter().all(|p| is_known(p) && is_once(p) && (1..=PICOS_MOST).contains(&p.picos))
}

/// The model of a calibration. What was not measured is the default model's.
pub(crate) fn model(calibration: &Calibration) -> CostModel {
    let base = CostModel::xeon_guest_2();
    let constant = |c: &Constant| {
        let price = calibration.prices.iter().find(|price| price.work == c.work.name());
        let Some(price) = price else {
            return Constant { source: "not measured here: of xeon-guest-2", ..*c };
        };
        let source = leaked(format!("measured here: {}", price.about));
        Constant { nanos: price.picos as f64 / 1000.0, source, ..*c }
    };
    let constants: Vec<Constant> = base.constants.iter().map(constant).collect();
    // Models are made of what lives as long as the program, and there is one of these in it.
    CostModel {
        name: HERE,
        about: leaked(format!("calibrated {}", age(calibration))),
        constants: Vec::leak(constants),
        ..base
    }
}

fn leaked(text: String) -> &'static str {
    String::leak(text)
}

/// A model as the caption of a table names it.
pub(crate) fn caption(model: &CostModel) -> String {
    match model.name {
        HERE => format!("{HERE}, {}", model.about),
        name => name.to_owned(),
    }
}

/// Since 1970.
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// How long ago it was, and whether on another kernel.
fn age(calibration: &Calibration) -> String {
    let when = ago(now().as_secs().saturating_sub(calibration.seconds));
    match calibration.kernel == host::system() {
        true => when,
        false => format!("{when} on {}", shown::shown(&calibration.kernel)),
    }
}

fn ago(seconds: u64) -> String {
    let units = [(86_400, "day"), (3600, "hour"), (60, "minute")];
    let found = units.into_iter().find(|(size, _)| seconds >= *size);
    found.map_or("just now".to_owned(), |(size, unit)| {
        let n = seconds / size;
        format!("{n} {unit}{} ago", if n == 1 { "" } else { "s" })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_said_in_the_largest_unit_that_fits() {
        for (seconds, said) in [
            (0, "just now"),
            (59, "just now"),
            (60, "1 minute ago"),
            (7199, "1 hour ago"),
            (3 * 86_400, "3 days ago"),
        ] {
            assert_eq!(ago(seconds), said);
        }
    }

    #[test]
    fn a_price_that_is_none_is_refused() {
        let price = |work: &str, picos| Price {
            work: work.to_owned(),
            picos,
            low_picos: -5,
            high_picos: 7,
            about: String::new(),
        };
        let check = |prices: &[Price], expect| {
            let calibration = Calibration {
                format: FORMAT.to_owned(),
                host: String::new(),
                processor: String::new(),
                kernel: String::new(),
                cpus: 2,
                rounds: 3,
                seconds: 0,
                prices: prices.to_vec(),
            };
            assert_eq!(is_sound(&calibration), expect, "{prices:?}");
        };
        check(&[], true);
        check(&[price("fault", 1), price("syscall", PICOS_MOST)], true);
        check(&[price("fault", 0)], false);
        check(&[price("fault", PICOS_MOST + 1)], false);
        check(&[price("fault", 1), price("fault", 2)], false);
        check(&[price("nothing", 1)], false);
    }
}
