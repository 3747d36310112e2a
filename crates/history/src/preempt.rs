//! Changes of hands between two accesses to the manager's records, which the machine does not see:
//! descriptors, counts, locks.
//!
//! The manager tells of each access before it makes it (`foliant::steps`); now and then another CPU
//! goes on there.
//!
//! **Invariants**
//! - P1. Where it happens depends on the seed and on the accesses alone, never on where the host
//!   has put a word.

use crate::rng::Rng;
use foliant::steps::{self, Touch};
use foliant_sim::Sim;
use std::cell::RefCell;
use std::sync::Arc;

/// Accesses from one place where others may go on to the next, on average.
const ACCESSES: u64 = 12;

struct Watched {
    sim: Arc<Sim>,
    rng: Rng,
    left: u64,
}

thread_local! {
    static WATCHED: RefCell<Option<Watched>> = const { RefCell::new(None) };
}

/// While it is alive the history of this thread changes hands between accesses, too.
pub(crate) struct Preempt;

impl Preempt {
    pub(crate) fn begin(sim: &Arc<Sim>, seed: u64) -> Preempt {
        let watched = Watched { sim: Arc::clone(sim), rng: Rng::new(seed, 8), left: 1 };
        WATCHED.set(Some(watched));
        steps::watch(Some(heard));
        Preempt
    }
}

impl Drop for Preempt {
    fn drop(&mut self) {
        steps::watch(None);
        WATCHED.set(None);
    }
}

fn heard(_: usize, touch: Touch) {
    if touch == Touch::Written {
        return;
    }
    let due = WATCHED.with_borrow_mut(|watched| {
        let watched = watched.as_mut()?;
        watched.left -= 1;
        (watched.left == 0).then(|| {
            watched.left = 1 + watched.rng.below(2 * ACCESSES);
            Arc::clone(&watched.sim)
        })
    });
    if let Some(sim) = due {
        sim.preempt();
    }
}
