//! A replay over time: what memory is held in at the ends of equal parts of the recording's time.
//!
//! ```text
//!   time      ├───┼───┼───┼───┼───┤
//!   looks         ↑   ↑   ↑   ↑   ↑    before the first step that is not earlier
//! ```
//!
//! **Invariants**
//! - O1. A course has a moment for each part, in order, however few steps there are.
//! - O2. The last look is before the last event, so it still sees what an exit gives back.
//! - O3. Every anonymous fault is in exactly one moment.
//!
//! **Not here**: where in a space memory is (`sights`).

use foliant_units::Order;
use std::collections::BTreeMap;

/// Into how many parts the recording's time is cut.
pub const MOMENTS: usize = 48;

/// The end of a part of the recording's time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Since the first event, in nanoseconds.
    pub time_ns: u64,
    /// Anonymous folios that are there, by size.
    pub folios: BTreeMap<Order, u64>,
    /// Anonymous faults of the part that ends here.
    pub faults: u64,
}

/// Moments as they come.
#[derive(Debug)]
pub(super) struct Course {
    start: u64,
    span: u64,
    faults: u64,
    moments: Vec<Moment>,
}

impl Course {
    /// Of a recording with events from `start` to `end`.
    pub(super) fn new((start, end): (u64, u64)) -> Course {
        let span = end.saturating_sub(start);
        Course { start, span, faults: 0, moments: Vec::with_capacity(MOMENTS) }
    }

    /// When the next moment is, since the first event.
    fn next(&self) -> Option<u64> {
        let part = self.moments.len() as u128 + 1;
        let at = u128::from(self.span) * part / MOMENTS as u128;
        (self.moments.len() < MOMENTS).then_some(at as u64) // at most the span
    }

    /// Whether a step at `time` comes when a moment has come.
    pub(super) fn is_due(&self, time: u64) -> bool {
        self.next().is_some_and(|next| time.saturating_sub(self.start) >= next)
    }

    /// Takes the moments that have come by `time`.
    pub(super) fn look(&mut self, time: u64, faults: u64, folios: &BTreeMap<Order, u64>) {
        while self.is_due(time) {
            let Some(time_ns) = self.next() else { return };
            let faults = faults - std::mem::replace(&mut self.faults, faults);
            self.moments.push(Moment { time_ns, folios: folios.clone(), faults });
        }
    }

    /// All moments, where nothing comes any more; `faults` were taken in all.
    pub(super) fn finish(mut self, faults: u64) -> Vec<Moment> {
        self.look(u64::MAX, faults, &BTreeMap::new());
        if let Some(last) = self.moments.last_mut() {
            last.faults += faults - self.faults;
        }
        self.moments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(span: u64, times: &[u64]) -> Vec<Moment> {
        let mut course = Course::new((1000, 1000 + span));
        for (nth, time) in times.iter().enumerate() {
            course.look(1000 + time, nth as u64, &BTreeMap::from([(Order::BASE, nth as u64)]));
        }
        course.finish(times.len() as u64)
    }

    #[test]
    fn a_course_has_a_moment_for_each_part() {
        for (span, times) in [
            (0, [].as_slice()),
            (0, &[0, 0]),
            (10, &[0, 3, 10]),
            (48_000, &[0, 999, 1000, 1001, 47_999, 48_000, 48_000]),
            (u64::MAX - 1000, &[0, u64::MAX / 2]),
        ] {
            let moments = course(span, times);
            assert_eq!(moments.len(), MOMENTS, "{span}");
            assert!(moments.is_sorted_by_key(|moment| moment.time_ns), "{span}");
            assert_eq!(moments.last().map(|moment| moment.time_ns), Some(span));
            let faults: u64 = moments.iter().map(|moment| moment.faults).sum();
            assert_eq!(faults, times.len() as u64, "O3 with {span}");
        }
    }

    #[test]
    fn a_moment_is_looked_at_before_the_first_step_that_is_not_earlier() {
        let seen = |moment: &Moment| moment.folios.get(&Order::BASE).copied();
        let moments = course(48_000, &[0, 999, 1000, 1001, 2000, 47_999, 48_000, 48_000]);
        assert_eq!((moments[0].time_ns, seen(&moments[0]), moments[0].faults), (1000, Some(2), 2));
        assert_eq!((seen(&moments[1]), moments[1].faults), (Some(4), 2));
        assert_eq!((seen(&moments[2]), moments[2].faults), (Some(5), 1), "nothing came for long");
        assert_eq!(moments[46].faults, 0);
        let last = &moments[MOMENTS - 1];
        assert_eq!((seen(last), last.faults), (Some(6), 3), "O2: before the last event");
    }
}
