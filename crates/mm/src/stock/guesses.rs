//! Anonymous memory as a guess sees it: what of it is known to be used, and how much may be idle.
//!
//! **Not here**: what counts as idle (`deferred`), which sizes follow (`fault::tuned`).

/// Counts of pages at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GuessCounts {
    /// Those of guessed folios that are not known to be used.
    pub(crate) idle: u64,
    /// Anonymous ones that are.
    pub(crate) used: u64,
    /// The most of these that there were.
    pub(crate) most: u64,
    /// Those that came with another one's fault and were found to be used, so far.
    pub(crate) saved: u64,
    /// Those that were given back because nobody used them so far, and a quarter of those that
    /// ended before anything was known of them.
    pub(crate) lost: u64,
    /// Those that came alone, so far.
    pub(crate) single: u64,
}

/// Pages that may be idle whatever is used: 1 MiB.
const SPARE: u64 = 256;
/// The part of what is used that may be idle besides, while sizes are as large as they can be: 2 %.
const PART: u64 = 50;
/// The same for the limit: 8 MiB, and a quarter.
const LIMIT_SPARE: u64 = 2048;
const LIMIT_PART: u64 = 4;
/// Pages that may be lost before any was saved: 4 MiB.
const TRIAL: u64 = 1024;
/// The part of pages that came alone that may be lost besides: a page that is lost takes less time
/// than a fault, so trying again takes a program's faults a hundredth longer.
const TRIAL_PART: u64 = 64;

impl GuessCounts {
    /// Pages that may be idle before sizes get smaller.
    fn allowance(self) -> u64 {
        self.most / PART + SPARE + (self.most - self.used)
    }
    /// Pages that may become idle before sizes get smaller.
    pub(crate) fn room(self) -> u64 {
        self.allowance().saturating_sub(self.idle)
    }
    /// Pages that may be idle at all.
    fn limit(self) -> u64 {
        self.most / LIMIT_PART + LIMIT_SPARE + (self.most - self.used)
    }
    /// Whether so many more may be idle.
    pub(crate) fn admits(self, pages: u64) -> bool {
        self.pays() && self.idle + pages <= self.limit()
    }
    /// Whether guesses have saved what they lost: a page that comes with others takes 0.9 us less,
    /// one that is lost 0.55 more.
    fn pays(self) -> bool {
        self.lost <= self.saved * 3 / 2 + TRIAL + self.single / TRIAL_PART
    }
    /// Whether so much is idle that looks are worth their time.
    pub(crate) fn is_tight(self) -> bool {
        2 * self.idle > self.allowance()
    }
}
