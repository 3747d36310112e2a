//! `foliant check --plan`: what a plan does for a program, beside the settings that it could have
//! instead.
//!
//! ```text
//!   record ──▶ replay with each setting ──▶ predicted faults and memory
//!   rounds: one run with each setting, in a random order ──▶ faults, memory, CPU time, time
//!                                                      └──▶ ratios to the plan's run of the same round (`paired`)
//! ```
//!
//! The settings are the plan's, the system's as it is, 4 KiB alone, the system's as it is with the
//! switch of all sizes at `always`, and `always` for each single size; two that are the same are
//! one. The plan's wishes are injected as `foliant run` injects them, and the CPU time of who does
//! it is the plan's. The first round is not counted: it finds caches as another program left them.
//!
//! Where a guest gives free memory back, the first use of a block that was free for a while waits
//! for the host (record 107), and whose run that is is chance. So right before each run as much
//! memory as the program holds at most is touched and freed again, in folios of all sizes up to
//! 2 MiB whatever the setting.
//!
//! **Not here**: how long `foliant run` itself takes to start; what khugepaged would do in the
//! meantime, which is held still as in any check (`switches`).

use super::beside;
use super::rounds::{Planned, Shown, against, shown};
use super::runs::Runs;
use super::switches::{Fallbacks, Switches};
use crate::args::Check;
use crate::failure::{Done, Failure, print};
use crate::{document, plan, record};
use foliant::fault::Size;
use foliant_trace::Remedy;
use foliant_trace::record::{Measured, fix_layout};
use foliant_trace::replay::{Choice, Plan, Row, Settings, Trial, explain_all};
use foliant_units::{Bytes, FRAME_BYTES};
use std::hash::{BuildHasher, RandomState};
use std::path::Path;

/// Rounds that are counted, unless asked for otherwise.
const RUNS: u32 = 15;
/// Recordings that a prediction is made of, at most.
const RECORDINGS: u32 = 3;

/// One way to run the program.
struct Setting {
    name: &'static str,
    /// Of each switch of a size.
    positions: Vec<Size>,
    /// What is predicted for it, and the wishes that are injected.
    remedy: Remedy,
}

pub(super) fn run(args: &Check, file: &Path) -> Done {
    let remedy = plan::read(file)?;
    let user = record::user()?;
    let switches = Switches::open()?;
    record::warn_root(user.as_ref());
    let settings = settings(&remedy, &switches)?;
    fix_layout()?;
    let count = args.runs.unwrap_or(RUNS);
    let recordings = RECORDINGS.min(count);
    let all = u64::from(recordings) + u64::from(count + 1) * settings.len() as u64;
    let mut runs = Runs::new(args, user, all);
    let (mut predicted, mut about) = (Vec::new(), None);
    for _ in 0..recordings {
        let (told, plan) = runs.recorded()?;
        let machine = Settings { cpus: told.header.cpus.max(1) as usize, ..Settings::default() };
        predicted.push((plan.other_faults(), replayed(&plan, &settings, &machine)?));
        about.get_or_insert(told);
    }
    let rows = predicted.iter().flat_map(|(_, rows)| rows);
    let most = rows.map(|row| row.peak_mapped).max().unwrap_or(Bytes::new(0));
    let everywhere = vec![Size::Always; switches.present().switches.len()];
    let mut measured: Vec<Vec<(Measured, Fallbacks)>> =
        settings.iter().map(|_| Vec::new()).collect();
    for round in 0..=count {
        for at in shuffled(settings.len()) {
            let setting = &settings[at];
            switches.put(&setting.positions)?;
            runs.begin(&format!("running with {}", setting.name))?;
            switches.put(&everywhere)?;
            touch_and_free(most);
            switches.put(&setting.positions)?;
            let before = switches.all_fallbacks();
            let run = runs.measured(&setting.remedy)?;
            if round > 0 {
                measured[at].push((run, switches.all_fallbacks().since(&before)));
            }
        }
    }
    drop(runs);
    switches.restore()?;
    let about = about.ok_or_else(|| Failure::new("nothing was recorded"))?;
    let each = settings.iter().zip(measured).enumerate();
    let shown = each.map(|(at, (setting, measured))| {
        let rows = predicted.iter();
        let rows = rows.filter_map(|(other, rows)| Some((*other, rows.get(at)?)));
        shown(setting.name, rows, measured)
    });
    let shown: Vec<Shown> = shown.collect();
    let against = against(&shown);
    let planned = Planned { about, runs: count, settings: shown, against };
    if args.json {
        return print(&document::text(&beside::document(&planned))?);
    }
    print(&beside::text(&planned))
}

/// The settings that are compared, the plan's first; of equal ones that are not the plan's the
/// first stays.
fn settings(remedy: &Remedy, switches: &Switches) -> Done<Vec<Setting>> {
    let present = switches.present();
    let policy = remedy.policy().map_err(Failure::new)?;
    if let Some(order) = present.lacks(&policy) {
        return Err(Failure::new(format_args!(
            "the plan needs {}, which this kernel does not offer; make a plan without it",
            order.bytes()
        )));
    }
    let of = |name, positions: Vec<Size>| {
        let known = present.switches.iter().zip(&positions);
        let sizes = known.filter_map(|(switch, position)| Some((switch.order?, *position)));
        let remedy = Remedy { sizes: sizes.collect(), ..Remedy::NONE };
        Setting { name, positions, remedy }
    };
    let mut plan = of("plan", present.wanted(&policy));
    plan.remedy.wishes = remedy.wishes.clone();
    let mut all = vec![plan];
    let off = vec![Size::Never; present.switches.len()];
    let everywhere = vec![Size::Always; present.switches.len()];
    for other in [
        of("now", present.effective()),
        of("4k", off),
        of("always", present.always()),
        of("everywhere", everywhere),
    ] {
        if !all[1..].iter().any(|one| one.positions == other.positions) {
            all.push(other);
        }
    }
    Ok(all)
}

/// What a recording comes to with each setting.
fn replayed(plan: &Plan, settings: &[Setting], machine: &Settings) -> Done<Vec<Row>> {
    let trial =
        |setting: &Setting| Trial { choice: Choice::BASE, remedy: Some(setting.remedy.clone()) };
    let trials: Vec<Trial> = settings.iter().map(trial).collect();
    let explained = explain_all(plan, &trials, machine, |_| ())?;
    Ok(explained.into_iter().map(|explained| explained.row).collect())
}

/// Has the host give as much memory as the program will hold (see the module's text). Where there
/// is not as much, the program will tell.
fn touch_and_free(bytes: Bytes) {
    let (mut memory, bytes) = (Vec::<u8>::new(), bytes.get() as usize);
    if memory.try_reserve_exact(bytes).is_ok() {
        let pages = memory.spare_capacity_mut().iter_mut().step_by(FRAME_BYTES as usize);
        for byte in pages {
            std::hint::black_box(byte.write(1));
        }
    }
}

/// So many numbers in an order of chance.
fn shuffled(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let chance = RandomState::new();
    order.sort_by_cached_key(|at| chance.hash_one(at));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_all_of_them_and_differ() {
        let many: Vec<Vec<usize>> = (0..64).map(|_| shuffled(4)).collect();
        for order in &many {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3]);
        }
        assert!(many.iter().any(|order| order != &many[0]));
    }
}
