//! Carrying a plan out, with preemption points by the machine's clock.
//!
//! ```text
//!   extent ─▶ does it fit what is left of the stretch? ── yes ─▶ clear ─▶ learn the rate
//!                └─ no ─▶ yield, a new stretch ─▶ as much as fits a stretch ─▶ clear ─▶ ...
//! ```
//!
//! A stretch is planned to take three quarters of the budget: rates vary. A caller that is not
//! outside of everything that others spin for has no preemption points, and clears in one stretch.

use super::plan::{Extent, between};
use crate::stock::{Pace, SAMPLE, Tally, clear_bytes};
use crate::sync::Outside;
use foliant_machine::{Caching, Clock, PhysMem};
use foliant_units::{Bytes, FRAME_BYTES, Frame, FrameRange, Nanos, Order, Pages};

const SIZE_2M: u64 = Order::SIZE_2M.pages().get();

/// A clear at work.
pub(super) struct ClearRun<'r, M> {
    machine: &'r M,
    pace: &'r Pace,
    /// The right to yield, if the caller has it.
    outside: Option<&'r mut Outside>,
    /// How long a stretch is to take.
    aim: Nanos,
    /// When the stretch began, and when the clock was read last.
    began: Nanos,
    read: Nanos,
    /// What was cleared since, and is not timed yet.
    untimed: [u64; 2],
    pub(super) tally: Tally,
}

impl<'r, M: PhysMem + Clock> ClearRun<'r, M> {
    /// A clear with preemption points where there is an `outside`.
    pub(super) fn new(
        machine: &'r M,
        pace: &'r Pace,
        budget: Nanos,
        outside: Option<&'r mut Outside>,
    ) -> ClearRun<'r, M> {
        let now = machine.now();
        let aim = match outside {
            Some(_) => Nanos((budget.0 - budget.0 / 4).max(1)),
            None => Nanos(u64::MAX),
        };
        let (began, read, untimed, tally) = (now, now, [0; 2], Tally::default());
        ClearRun { machine, pace, outside, aim, began, read, untimed, tally }
    }

    /// Clears what `unknown` leaves of an extent: per 2 MiB the frames that are not known to be
    /// zero, if any. What is left of neighbours is cleared in one go, so that no more extents come
    /// of it than there are 2 MiB.
    pub(super) fn extent(
        &mut self,
        extent: Extent,
        unknown: impl Fn(FrameRange) -> Option<FrameRange>,
    ) {
        let Extent { frames, caching } = extent;
        let mut waiting = between(frames.start(), frames.start());
        let mut at = frames.start();
        while at < frames.end() {
            let upto = frames.end().min(Frame::new((at.get() / SIZE_2M + 1) * SIZE_2M));
            if let Some(part) = unknown(between(at, upto)) {
                if waiting.end() == part.start() && waiting.pages().get() > 0 {
                    waiting = between(waiting.start(), part.end());
                } else {
                    self.stretch(waiting, caching);
                    waiting = part;
                }
            }
            at = upto;
        }
        self.stretch(waiting, caching);
    }

    /// Clears all of `frames`, with preemption points.
    fn stretch(&mut self, frames: FrameRange, caching: Caching) {
        let mut at = frames.start();
        while at < frames.end() {
            let left = between(at, frames.end()).pages().bytes();
            let spent = Nanos(self.read.0.saturating_sub(self.began.0) + self.estimate().0);
            let room = Nanos(self.aim.0.saturating_sub(spent.0));
            let fits = self.pace.within(caching, room);
            // At a small grain it is the time that is up, not the extent that is too long.
            if spent.0 > 0 && (left > fits || room.0 == 0) {
                self.pause();
                continue;
            }
            let step = left.min(fits);
            clear_bytes(self.machine, at.pa(), step, caching);
            self.tally.clears += 1;
            self.tally.cleared = Bytes::new(self.tally.cleared.get() + step.get());
            self.untimed[caching as usize] += step.get();
            if self.untimed[caching as usize] >= SAMPLE.get() {
                self.time(caching);
            }
            at = at.add(Pages::new(step.get() / FRAME_BYTES));
        }
    }

    /// How long what was not timed took, by the rates.
    fn estimate(&self) -> Nanos {
        let of = |caching: Caching| {
            self.pace.time_of(caching, Bytes::new(self.untimed[caching as usize])).0
        };
        Nanos(Caching::ALL.map(of).iter().sum())
    }
    /// Reads the clock. Where only one kind was at work, its rate is learnt.
    fn time(&mut self, caching: Caching) {
        let now = self.machine.now();
        let mine = self.untimed[caching as usize];
        if self.untimed.iter().sum::<u64>() == mine {
            let time = Nanos(now.0.saturating_sub(self.read.0));
            self.pace.learn(caching, Bytes::new(mine), time);
        }
        (self.read, self.untimed) = (now, [0; 2]);
    }
    fn pause(&mut self) {
        // It is timed however little it was: a rate that was taken for too low would stay so.
        for caching in Caching::ALL {
            if self.untimed[caching as usize] > 0 {
                self.time(caching);
            }
        }
        let outside = self.outside.as_mut().expect("a stretch without a bound has no end");
        outside.yield_now(self.machine);
        self.tally.yields += 1;
        let now = self.machine.now();
        (self.began, self.read, self.untimed) = (now, now, [0; 2]);
    }
}
