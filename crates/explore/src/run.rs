//! All schedules of a scene, and many scenes at once.

use crate::board::{Board, Count};
use crate::engine::{Choice, Limits, Mode};
use crate::ground::Scene;
use crate::host::{self, Ended, Side};
use crate::mix::mix;
use crate::plan::{Format, Plan};
use core::sync::atomic::{
    AtomicU8, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use foliant::table::{Aarch64, Paging, Riscv64, X86_64};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Rounds of one bound, at most: footprints that grew may conflict in places that were passed
/// before.
const ROUNDS_MAX: u64 = 16;
/// Time to replay one schedule, at most.
const REPLAY_TIME: Duration = Duration::from_secs(3600);
/// Text of all findings.
const TEXT: usize = 1 << 21;

/// How much is explored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Switches of one schedule beside the forced ones: all schedules of up to so many are tried.
    pub bound: u32,
    /// The first switch is tried at every so many points, then at those between, so that a scene
    /// that is cut short has seen all phases of its operations.
    pub passes: u64,
    /// Whether schedules that are known to repeat another one are made all the same.
    pub repeats: bool,
    /// Schedules with one to three switches at random points.
    pub random: u64,
    /// Schedules of one scene, at most.
    pub schedules: u64,
    /// Time for one scene, at most.
    pub time: Duration,
    /// Processes at work.
    pub jobs: usize,
}

impl Default for Extent {
    fn default() -> Extent {
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        let time = Duration::from_secs(20);
        Extent { bound: 1, passes: 4, repeats: false, random: 0, schedules: 20_000, time, jobs }
    }
}

/// What came of one scene's exploration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The scene.
    pub plan: Plan,
    /// Complete schedules.
    pub schedules: u64,
    /// How many of them differ in what they touch in which order.
    pub orders: u64,
    /// Those of them in which something was wrong.
    pub failures: u64,
    /// Schedules until the first failure, itself included; 0 where there was none.
    pub first_failure: u64,
    /// Moments at which another lane could have gone on.
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

/// Words of a report in the memory that all processes share.
const ROW: usize = 11;

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
        let failures = board.count(Count::Failures) + u64::from(died.is_some());
        let text = board.text() + &died.unwrap_or_default();
        let at = self.length.fetch_add(text.len() as u64, Relaxed) as usize;
        let room = self.text.get(at..).unwrap_or_default();
        text.bytes().zip(room).for_each(|(byte, place)| place.store(byte, Relaxed));
        let words = [
            board.count(Count::Schedules),
            failures,
            board.count(Count::FirstFailure),
            board.count(Count::Points),
            board.count(Count::Pruned),
            board.count(Count::Cut),
            time.as_millis() as u64,
            at as u64,
            text.len().min(room.len()) as u64,
            board.count(Count::Orders),
        ];
        let row = self.row(scene);
        words.into_iter().zip(&row[1..]).for_each(|(word, place)| place.store(word, Relaxed));
        row[0].store(1, Release); // it is written
    }
    fn read(&self, scene: usize, plan: &Plan) -> Option<Report> {
        if self.row(scene)[0].load(Acquire) == 0 {
            return None;
        }
        let row: Vec<u64> = self.row(scene).iter().map(|word| word.load(Relaxed)).collect();
        let (from, length) = (row[8] as usize, row[9] as usize);
        let text = self.text.get(from..from + length).unwrap_or_default();
        let text: Vec<u8> = text.iter().map(|byte| byte.load(Relaxed)).collect();
        Some(Report {
            plan: plan.clone(),
            schedules: row[1],
            orders: row[10],
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

/// Explores all scenes; calls `seen` with each report, in the order in which they come.
///
/// The process must have one thread: every branch is a fork.
pub fn explore(
    plans: &[Plan],
    extent: Extent,
    mut seen: impl FnMut(usize, &Report),
) -> Vec<Report> {
    let sheet = Sheet::new(plans.len());
    let mut workers = Vec::new();
    for _ in 0..extent.jobs.clamp(1, plans.len().max(1)) {
        workers.push(spawn(|| work(plans, extent, &sheet)));
    }
    let mut reports: Vec<Option<Report>> = vec![None; plans.len()];
    loop {
        workers.retain(|worker| host::has_ended(*worker).is_none());
        for (nth, plan) in plans.iter().enumerate() {
            if reports[nth].is_none()
                && let Some(report) = sheet.read(nth, plan)
            {
                seen(nth, &report);
                reports[nth] = Some(report);
            }
        }
        if workers.is_empty() {
            return reports.into_iter().flatten().collect();
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn work(plans: &[Plan], extent: Extent, sheet: &Sheet) {
    loop {
        let nth = sheet.next.fetch_add(1, Relaxed) as usize;
        let Some(plan) = plans.get(nth) else { return };
        // What the processes of one scene share goes with them, so the forks of the next scene need
        // not copy it.
        let died = in_child(|| one(plan, nth, extent, sheet));
        if let Some(why) = died {
            panic!("the process of a scene {why}: {plan}");
        }
    }
}

fn one(plan: &Plan, nth: usize, extent: Extent, sheet: &Sheet) {
    let (board, begun) = (Board::new(), Instant::now());
    let died = in_child(|| scene(plan, board, Task::Explore(extent)));
    let died = died.map(|why| format!("the scene itself {why}\n"));
    sheet.write(nth, board, begun.elapsed(), died);
}

/// Does `work` in a process of its own; gives its number.
fn spawn(work: impl FnOnce()) -> libc::pid_t {
    match host::fork() {
        Side::Child => {
            // A panic goes no further: what lies below on the stack is the parent's.
            if catch_unwind(AssertUnwindSafe(work)).is_err() {
                std::process::abort();
            }
            host::leave()
        }
        Side::Parent(child) => child,
    }
}
/// Does `work` in a process of its own; says how that ended, if badly.
fn in_child(work: impl FnOnce()) -> Option<String> {
    match host::wait(spawn(work)) {
        Ended::Left => None,
        Ended::Signal(signal) => Some(format!("ended by signal {signal}")),
    }
}

/// What is done with a scene.
#[derive(Clone, Debug)]
enum Task {
    Explore(Extent),
    Replay(VecDeque<Choice>),
}

/// Does it on the machine of the plan.
fn scene(plan: &Plan, board: Board, task: Task) {
    match plan.format {
        Format::X86_64 => scene_of::<X86_64<4>>(plan, board, task),
        Format::Aarch64 => scene_of::<Aarch64>(plan, board, task),
        Format::Riscv64 => scene_of::<Riscv64<4>>(plan, board, task),
    }
}
fn scene_of<P: Paging>(plan: &Plan, board: Board, task: Task) {
    match task {
        Task::Explore(extent) => all_schedules::<P>(plan, board, extent),
        Task::Replay(choices) => {
            let limits = Limits { schedules: u64::MAX, until: Instant::now() + REPLAY_TIME };
            Scene::<P>::build(plan).play(plan, (board, Mode::Replay(choices), limits));
        }
    }
}

fn all_schedules<P: Paging>(plan: &Plan, board: Board, extent: Extent) {
    let limits = Limits { schedules: extent.schedules, until: Instant::now() + extent.time };
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
    for switches in 0..=extent.bound {
        for round in 0..ROUNDS_MAX {
            board.set(Count::Grown, 0);
            let passes = if switches == 0 { 1 } else { extent.passes };
            for pass in 0..passes {
                if !limits.reached(board) {
                    let repeats = extent.repeats;
                    play(board, Mode::Bounded { switches, round, pass, passes, repeats });
                }
            }
            if board.count(Count::Grown) == 0 {
                break;
            }
            if round + 1 == ROUNDS_MAX {
                board.set(Count::Cut, 1); // they still grow
            }
        }
    }
    if extent.random > 0 {
        board.set(Count::Points, 0);
        play(board, Mode::Random { seed: 0, at: Vec::new() });
    }
    for nth in 1..=extent.random {
        let points = board.count(Count::Points).max(1);
        let at = (0..1 + nth % 3).map(|k| 1 + (mix(mix(nth, k), 5) >> 8) % points).collect();
        play(board, Mode::Random { seed: nth, at });
        if limits.reached(board) {
            break;
        }
    }
}

/// Runs the schedule of a scene that made these choices, and tells how it goes on the standard
/// error; says what was wrong.
pub fn replay(plan: &Plan, choices: &str) -> Result<String, String> {
    let choice = |text: &str| Choice::parse(text).ok_or(format!("'{text}' is no choice"));
    let choices = choices.split(',').filter(|text| !text.is_empty());
    let choices = choices.map(choice).collect::<Result<_, String>>()?;
    let board = Board::new();
    let died = in_child(|| scene(plan, board, Task::Replay(choices)));
    Ok(board.text() + &died.unwrap_or_default())
}
