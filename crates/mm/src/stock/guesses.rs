//! Anonymous memory as a guess sees it: what of it is known to be used, and how much may be idle.
//!
//! **Not here**: what counts as idle (`deferred`), which sizes follow (`fault::tuned`).

/// Counts of pages at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GuessCounts {
    /// Those of guessed folios that are not known to be used, and some that reads took.
    pub(crate) idle: u64,
    /// Anonymous ones that are.
    pub(crate) used: u64,
    /// The most of these that there were.
    pub(crate) most: u64,
    /// Those that came with another one's fault and were found to be used, so far.
    pub(crate) saved: u64,
    /// Those that were idle when their folio ended or was split, so far.
    pub(crate) lost: u64,
    /// Those that came alone, so far.
    pub(crate) single: u64,
}

/// Pages that may be idle whatever is used: 1 MiB.
const SPARE: u64 = 256;
/// The part of what is used that may be idle besides, while sizes are as large as they can be: 2 %.
const PART: u64 = 50;
/// What may be idle beyond that while nothing was lost: 8 MiB, and a twelfth.
const LOOSE_SPARE: u64 = 2048;
const LOOSE_PART: u64 = 12;
/// Where a seventh of what was saved is lost, nothing may.
const LOSS_PART: u64 = 7;
/// Pages that count as saved for that before any was: 4 MiB.
const CREDIT: u64 = 1024;
/// Pages that may be at stake before any was saved, where memory grows: 4 MiB.
const TRIAL: u64 = 1024;
/// The part of pages that came alone that may be at stake there besides: trying again takes a
/// program's faults a quarter of a hundredth longer.
const TRIAL_PART: u64 = 256;
/// The part of the most that was used after which a guess is old where as much is idle as may be.
const AGE_PART: u64 = 16;
/// Pages after which it is at the soonest: 10 MiB.
const AGE_LEAST: u64 = 2560;
/// Pages side by side by which memory grows, where most pages come with others.
const RUN: u64 = 4;
/// Most come alone where those that came so are sixteen times those that did not, from 16 MiB on.
const ALONE_PART: u64 = 16;
const ALONE_LEAST: u64 = 256;
/// What a ratio is counted in.
const UNIT: u64 = 1 << 16;

impl GuessCounts {
    /// Pages that may be idle before sizes get smaller.
    fn allowance(self) -> u64 {
        self.most / PART + SPARE + self.fallen()
    }
    /// Pages that were used once and are not now: as many may be idle for nothing.
    fn fallen(self) -> u64 {
        self.most - self.used
    }
    /// Pages that may become idle before sizes get smaller.
    pub(crate) fn room(self) -> u64 {
        self.allowance().saturating_sub(self.idle)
    }
    /// Pages that may be idle at all: the more of what was guessed was lost, the fewer.
    pub(crate) fn limit(self) -> u64 {
        let (loose, known) = (self.most / LOOSE_PART + LOOSE_SPARE, self.saved + CREDIT);
        let trusted = known.saturating_sub(self.lost * LOSS_PART);
        self.allowance() + loose * (trusted * UNIT / known) / UNIT
    }
    /// Pages that one more guess may leave idle at most, beside pages that are there one after the
    /// other, or else anywhere.
    pub(crate) fn admitted(self, beside: bool) -> u64 {
        let trial = if beside { TRIAL + self.single / TRIAL_PART } else { 0 };
        self.limit().saturating_sub(self.idle).min(self.paid(trial))
    }
    /// Pages side by side before a fault, or behind, by which memory grows there. Where very many
    /// came alone four may lie so by chance.
    pub(crate) fn run(self) -> u64 {
        if self.single / ALONE_PART > ALONE_LEAST + self.saved { 2 * RUN } else { RUN }
    }
    /// Pages for which guesses have saved what they cost, should all that is idle be lost and these
    /// too: one that comes with others takes 0.9 us less, one that is lost 0.95 more. Before they
    /// saved anything, as many are tried as that.
    fn paid(self, trial: u64) -> u64 {
        let stake = self.saved * 5 / 4 + trial + self.fallen();
        stake.saturating_sub(self.lost + self.idle)
    }
    /// Whether so much is idle that looks are worth their time.
    pub(crate) fn is_tight(self) -> bool {
        2 * self.idle > self.allowance()
    }
    /// Whether a guess of which nothing more was used while `age` pages came is to go back: the
    /// more is idle, the sooner.
    pub(crate) fn is_old(self, age: u64) -> bool {
        let allowance = self.allowance();
        let soon = || self.most / AGE_PART * (allowance * UNIT / self.idle) / UNIT;
        self.idle >= allowance && age >= soon().max(AGE_LEAST)
    }
}
