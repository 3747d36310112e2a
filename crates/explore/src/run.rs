//! All schedules of a scene, and many scenes at once.

use crate::board::{Board, Count, mix};
use crate::engine::{Choice, Limits, Mode};
use crate::host::{self, Ended, Side};
use crate::plan::{Format, Plan};
use crate::scene::Scene;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use foliant::table::{Aarch64, Paging, Riscv64, X86_64};
use std::time::{Duration, Instant};

/// Rounds of one bound: footprints that grew may conflict in places that were passed before.
const ROUNDS_MAX: usize = 3;
/// Text of all findings.
const TEXT: usize = 1 << 21;

/// How much is explored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// Switches that nobody had to make, in one schedule: all schedules of up to so many are tried.
    pub bound: u32,
    /// The first switch is tried at every so many points, then at those between, so that a scene that is cut short has seen all phases of
    /// its operations.
    pub passes: u64,
    /// Schedules with one to three switches at random points.
    pub random: u64,
    /// Schedules of one scene, at most.
    pub schedules: u64,
    /// Time for one scene, at most.
    pub time: Duration,
    /// Processes at work.
    pub jobs: usize,
}

impl Default for Effort {
    fn default() -> Effort {
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        let time = Duration::from_secs(20);
        Effort { bound: 1, passes: 8, random: 0, schedules: 20_000, time, jobs }
    }
}

/// What came of one scene.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The scene.
    pub plan: Plan,
    /// Complete schedules.
    pub schedules: u64,
    /// Those of them in which something was wrong.
    pub failures: u64,
    /// Schedules until the first failure, itself included; 0 where there was none.
    pub first_failure: u64,
    /// Moments at which somebody else could have gone on.
    pub points: u64,
    /// Branches left out, since they lead to what was seen before.
    pub pruned: u64,
    /// Whether a limit cut it short.
    pub is_cut: bool,
    /// How long it took.
    pub time: Duration,
    /// What was wrong, each kind once, and the schedule that shows it.
    pub text: String,
}

/// Words of an outcome in the memory that all processes share.
const ROW: usize = 10;

/// What the workers write down.
struct Sheet {
    next: &'static AtomicU64,
    length: &'static AtomicU64,
    rows: &'static [AtomicU64],
    text: &'static [AtomicU8],
}

impl Sheet {
    fn new(scenes: usize) -> Sheet {
        let words = host::shared_words(2 + scenes * ROW);
        let (heads, rows) = words.split_at(2);
        Sheet { next: &heads[0], length: &heads[1], rows, text: host::shared_bytes(TEXT) }
    }
    fn row(&self, scene: usize) -> &'static [AtomicU64] {
        &self.rows[scene * ROW..(scene + 1) * ROW]
    }
    fn write(&self, scene: usize, board: Board, time: Duration, died: Option<String>) {
        let text = board.text() + &died.clone().unwrap_or_default();
        let at = self.length.fetch_add(text.len() as u64, Relaxed) as usize;
        let room = self.text.get(at..).unwrap_or_default();
        text.bytes().zip(room).for_each(|(byte, place)| place.store(byte, Relaxed));
        let words = [
            1,
            board.count(Count::Schedules),
            board.count(Count::Failures) + u64::from(died.is_some()),
            board.count(Count::FirstFailure),
            board.count(Count::Points),
            board.count(Count::Pruned),
            board.count(Count::Cut),
            time.as_millis() as u64,
            at as u64,
            text.len().min(room.len()) as u64,
        ];
        for (word, place) in words.into_iter().zip(self.row(scene)).rev() {
            place.store(word, Relaxed);
        }
    }
    fn read(&self, scene: usize, plan: &Plan) -> Option<Outcome> {
        let row: Vec<u64> = self.row(scene).iter().map(|word| word.load(Relaxed)).collect();
        let (from, length) = (row[8] as usize, row[9] as usize);
        let text = self.text.get(from..from + length).unwrap_or_default();
        let text: Vec<u8> = text.iter().map(|byte| byte.load(Relaxed)).collect();
        (row[0] == 1).then(|| Outcome {
            plan: plan.clone(),
            schedules: row[1],
            failures: row[2],
            first_failure: row[3],
            points: row[4],
            pruned: row[5],
            is_cut: row[6] != 0,
            time: Duration::from_millis(row[7]),
            text: String::from_utf8_lossy(&text).into_owned(),
        })
    }
}

/// Explores all scenes; calls `seen` with each outcome, in the order in which they come.
///
/// The process must have one thread: every branch is a fork.
pub fn explore(
    plans: &[Plan],
    effort: Effort,
    mut seen: impl FnMut(usize, &Outcome),
) -> Vec<Outcome> {
    let sheet = Sheet::new(plans.len());
    let mut workers = Vec::new();
    for _ in 0..effort.jobs.clamp(1, plans.len().max(1)) {
        match host::fork() {
            Side::Child => {
                work(plans, effort, &sheet);
                host::leave()
            }
            Side::Parent(child) => workers.push(child),
        }
    }
    let mut outcomes: Vec<Option<Outcome>> = vec![None; plans.len()];
    loop {
        workers.retain(|worker| host::has_ended(*worker).is_none());
        for (nth, plan) in plans.iter().enumerate() {
            if outcomes[nth].is_none()
                && let Some(outcome) = sheet.read(nth, plan)
            {
                seen(nth, &outcome);
                outcomes[nth] = Some(outcome);
            }
        }
        if workers.is_empty() {
            return outcomes.into_iter().flatten().collect();
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn work(plans: &[Plan], effort: Effort, sheet: &Sheet) {
    loop {
        let nth = sheet.next.fetch_add(1, Relaxed) as usize;
        let Some(plan) = plans.get(nth) else { return };
        let (board, begun) = (Board::new(), Instant::now());
        let died = in_child(|| scene(plan, board, effort));
        let died = died.map(|why| format!("the scene itself {why}\n"));
        sheet.write(nth, board, begun.elapsed(), died);
    }
}

/// Does `work` in a process of its own; says how that ended, if badly.
fn in_child(work: impl FnOnce()) -> Option<String> {
    match host::fork() {
        Side::Child => {
            // What is printed belongs to the parent.
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err() {
                std::process::abort();
            }
            host::leave()
        }
        Side::Parent(child) => match host::wait(child) {
            Ended::Left => None,
            Ended::Signal(signal) => Some(format!("ended by signal {signal}")),
        },
    }
}

fn scene(plan: &Plan, board: Board, effort: Effort) {
    match plan.format {
        Format::X86_64 => all_schedules::<X86_64<4>>(plan, board, effort),
        Format::Aarch64 => all_schedules::<Aarch64>(plan, board, effort),
        Format::Riscv64 => all_schedules::<Riscv64<4>>(plan, board, effort),
    }
}

fn all_schedules<P: Paging>(plan: &Plan, mut board: Board, effort: Effort) {
    let limits = Limits { schedules: effort.schedules, until: Instant::now() + effort.time };
    let scene = &mut Some(Scene::<P>::build(plan));
    let mut play = |board: Board, mode: Mode| {
        let died = in_child(|| {
            scene.take().expect("each process plays once").play(plan, (board, mode, limits));
        });
        if let Some(why) = died {
            board.fail(&format!("a schedule {why}"), "");
        }
    };
    play(board, Mode::Serial);
    for switches in 0..=effort.bound {
        for _ in 0..ROUNDS_MAX {
            board.begin_round();
            let passes = if switches == 0 { 1 } else { effort.passes };
            for pass in 0..passes {
                if !limits.reached(board) {
                    play(board, Mode::Bounded { switches, pass, passes });
                }
            }
            if board.count(Count::Grown) == 0 {
                break;
            }
        }
    }
    if effort.random > 0 {
        board.set(Count::Points, 0);
        play(board, Mode::Random { seed: 0, at: Vec::new() });
    }
    for nth in 1..=effort.random {
        let points = board.count(Count::Points).max(1);
        let at = (0..1 + nth % 3).map(|k| 1 + (mix(mix(nth, k), 5) >> 8) % points).collect();
        play(board, Mode::Random { seed: nth, at });
        if limits.reached(board) {
            break;
        }
    }
}

/// Runs the schedule of a scene that made these choices, and tells how it goes on the standard error; says what was wrong.
pub fn replay(plan: &Plan, choices: &str) -> Result<String, String> {
    let choice = |text: &str| Choice::parse(text).ok_or(format!("'{text}' is no choice"));
    let choices = choices.split(',').filter(|text| !text.is_empty());
    let choices = choices.map(choice).collect::<Result<_, String>>()?;
    let board = Board::new();
    let limits = Limits { schedules: u64::MAX, until: Instant::now() + Duration::from_secs(3600) };
    let died = in_child(|| match plan.format {
        Format::X86_64 => once::<X86_64<4>>(plan, board, choices, limits),
        Format::Aarch64 => once::<Aarch64>(plan, board, choices, limits),
        Format::Riscv64 => once::<Riscv64<4>>(plan, board, choices, limits),
    });
    Ok(board.text() + &died.unwrap_or_default())
}

fn once<P: Paging>(
    plan: &Plan,
    board: Board,
    choices: std::collections::VecDeque<Choice>,
    limits: Limits,
) {
    Scene::<P>::build(plan).play(plan, (board, Mode::Replay(choices), limits));
}
