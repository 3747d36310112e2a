//! Where a preemption point may be: outside of everything that others wait for by spinning.
//!
//! At a preemption point a cooperative kernel runs other tasks on this CPU. Whatever one of them waits for by spinning must not be
//! its own, or both wait for ever: no lock but a patient one, no reader's section, no stretch that moves, no entry that
//! is being broken, and nothing pending that a fault waits for.
//!
//! ```text
//!   a call of the face ── Outside ──▶ clear, compact, resize ──▶ yield
//!                            └─ lent to a reader's section: the borrow ends with it
//! ```
//!
//! **Invariants**
//! - O1. Only a call of the face makes an [`Outside`], before it takes anything. It is handed down by `&mut` alone, so whoever
//!   got none cannot yield, and whoever lent his to a section cannot while it lasts.
//! - O2. [`Outside::yield_now`] is the only way to the machine's preemption point (`cargo xtask tidy` looks).
//!   Under the feature `steps` a preemption point in any of these panics (`steps`).
//! - O3. Who waits for somebody that may be yielding yields as well instead of spinning.

use foliant_machine::Clock;

/// Says that its holder is outside of everything that others spin for; see the module's text.
#[derive(Debug)]
pub(crate) struct Outside(());

impl Outside {
    /// For a call of the face (O1).
    pub(crate) const fn at_the_face() -> Outside {
        Outside(())
    }
    /// Lets others run.
    pub(crate) fn yield_now(&mut self, clock: &impl Clock) {
        super::steps::yielded();
        clock.yield_now();
    }
}
