//! The counts of each thread, and its watcher.

use super::{Critical, Touch};
use core::cell::Cell;

const PLACES: usize = Critical::ALL.len();

/// The counts of a thread. A thread on which several CPUs take turns has them once for each CPU.
#[derive(Default, Clone, Copy, Debug)]
pub struct Counts {
    taken: u64,
    depth: [u32; PLACES],
    begun: [u64; PLACES],
    longest: [u64; PLACES],
}

impl Counts {
    const NEW: Counts =
        Counts { taken: 0, depth: [0; PLACES], begun: [0; PLACES], longest: [0; PLACES] };

    fn end(&mut self, place: Critical) {
        let at = place as usize;
        self.longest[at] = self.longest[at].max(self.taken - self.begun[at]);
    }
}

/// A function that is told of each access: the word's address on this host, and what is done to the
/// word.
pub type Watcher = fn(usize, Touch);

std::thread_local! {
    static WATCHER: Cell<Option<Watcher>> = const { Cell::new(None) };
    static MINE: Cell<Counts> = const { Cell::new(Counts::NEW) };
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

fn change<R>(change: impl FnOnce(&mut Counts) -> R) -> R {
    MINE.with(|mine| {
        let mut counts = mine.get();
        counts.taken = TAKEN.get();
        let done = change(&mut counts);
        mine.set(counts);
        done
    })
}

/// Counts `steps` of this thread.
#[inline]
pub fn take(steps: u64) {
    TAKEN.set(TAKEN.get().wrapping_add(steps));
}
/// Notes that this thread touches a word of the manager's records.
#[inline]
pub(crate) fn told(at: usize, touch: Touch) {
    if touch != Touch::Written {
        take(1);
    }
    if let Some(watcher) = WATCHER.get() {
        watcher(at, touch);
    }
}
/// From now on `watcher` is told of each word that this thread touches, before the access and after
/// a change.
pub fn watch(watcher: Option<Watcher>) {
    WATCHER.set(watcher);
}
/// The steps of this thread so far.
pub fn taken() -> u64 {
    TAKEN.get()
}
/// The longest stay of this thread in a place since [`reset`].
pub fn longest(place: Critical) -> u64 {
    change(|counts| {
        counts.end(Critical::Unbroken);
        counts.longest[place as usize]
    })
}
/// Begins to measure anew.
pub fn reset() {
    change(|counts| {
        counts.longest = [0; PLACES];
        counts.begun[Critical::Unbroken as usize] = counts.taken;
    });
}
/// Notes that the thread let others run: it took an interrupt, or a spin loop turned.
pub fn rested() {
    change(|counts| {
        counts.end(Critical::Unbroken);
        counts.begun[Critical::Unbroken as usize] = counts.taken;
    });
}
/// Exchanges the thread's counts for `other`: from now on the thread adds to those, and `other`
/// holds what it counted until now.
pub fn trade(other: &mut Counts) {
    change(|mine| core::mem::swap(mine, other));
    TAKEN.set(MINE.get().taken);
}

pub(super) fn enter(place: Critical) {
    change(|counts| {
        let at = place as usize;
        if counts.depth[at] == 0 {
            counts.begun[at] = counts.taken;
        }
        counts.depth[at] += 1;
    });
}
pub(super) fn leave(place: Critical) {
    change(|counts| {
        counts.depth[place as usize] -= 1;
        if counts.depth[place as usize] == 0 {
            counts.end(place);
        }
    });
}
pub(super) fn yielded() {
    let depth = MINE.get().depth;
    let mut spun_for = Critical::ALL.into_iter().filter(|place| *place != Critical::Patient);
    let inside = spun_for.find(|place| depth[*place as usize] > 0);
    assert!(
        inside.is_none(),
        "a preemption point in {inside:?}: who waits for it waits for ever (sync::outside)"
    );
    rested();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A word that is changed is told twice, and is one step.
    #[test]
    fn each_word_that_is_touched_is_a_step() {
        for (touch, steps) in [(Touch::Read, 1), (Touch::Write, 1), (Touch::Written, 0)] {
            let before = taken();
            told(8, touch);
            assert_eq!(taken() - before, steps, "{touch:?}");
        }
    }

    /// Two CPUs take turns on one thread: the steps of one count in no stay of the other.
    #[test]
    fn finding_aa_what_two_cpus_do_on_one_thread_is_told_apart() {
        let mut other = Counts::default();
        reset();
        take(2);
        enter(Critical::Leaf);
        take(3);
        trade(&mut other);
        yielded();
        reset();
        enter(Critical::Table);
        take(50);
        leave(Critical::Table);
        assert_eq!([longest(Critical::Table), longest(Critical::Leaf)], [50, 0]);
        trade(&mut other);
        take(4);
        leave(Critical::Leaf);
        assert_eq!([longest(Critical::Table), longest(Critical::Leaf)], [0, 7]);
        trade(&mut other);
        assert_eq!([longest(Critical::Table), longest(Critical::Leaf)], [50, 0]);
    }

    /// A place for whose end others spin is none to let them run in.
    #[test]
    fn a_preemption_point_is_refused_where_others_spin() {
        let yields_in = |place| {
            reset();
            enter(place);
            let yielded = std::panic::catch_unwind(yielded);
            leave(place);
            yielded.is_ok()
        };
        assert!(Critical::ALL.into_iter().all(|at| yields_in(at) == (at == Critical::Patient)));
    }

    /// What lies between two rests is one stay.
    #[test]
    fn a_rest_ends_what_went_before() {
        reset();
        take(3);
        rested();
        take(2);
        assert_eq!(longest(Critical::Unbroken), 3);
        yielded();
        take(1);
        assert_eq!(longest(Critical::Unbroken), 3, "a preemption point is one");
        take(2);
        rested();
        assert_eq!(longest(Critical::Unbroken), 3);
    }

    /// A place that is entered again before it is left is one stay.
    #[test]
    fn a_stay_lasts_until_it_is_left_as_often_as_entered() {
        reset();
        take(7);
        enter(Critical::Leaf);
        take(3);
        enter(Critical::Leaf);
        take(2);
        leave(Critical::Leaf);
        assert_eq!(longest(Critical::Leaf), 0, "it lasts");
        leave(Critical::Leaf);
        assert_eq!(longest(Critical::Leaf), 5);
    }
}
