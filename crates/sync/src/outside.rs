//! Where a preemption point may be: outside of everything that others wait for by spinning.
//!
//! At a preemption point a cooperative kernel runs other tasks on this CPU. If one of them spins
//! for something that this task holds, both wait for ever. So a task that reaches a preemption
//! point holds no lock but a patient one, is in no reader's section, moves no stretch, breaks no
//! entry, and has nothing pending that a fault waits for.
//!
//! ```text
//!   an entry point ── Outside ──▶ clear, compact, resize ──▶ yield
//!                        └─ lent to a reader's section: the borrow ends with it
//! ```
//!
//! **Invariants**
//! - O1. Only an entry point makes an [`Outside`], before it takes anything: a call that an
//!   embedder makes of the manager or of one of its handles (`Pools`, `Memmap`, `Vmap`), or
//!   `zero::clear_block`. Code of the crate that calls one itself holds nothing either. An
//!   `Outside` is handed down by `&mut` alone, so a function that got none cannot yield, and a
//!   caller that lent its own to a section cannot yield while the section lasts.
//! - O2. [`Outside::yield_now`] is the only way to the machine's preemption point
//!   (`cargo xtask tidy` looks). Under the feature `steps` a preemption point in a section, in a
//!   stretch that moves, or in any lock but a patient one panics (`steps`).
//! - O3. A task that waits for another one that may be yielding yields as well instead of spinning.

use foliant_machine::Clock;

/// Says that its holder is outside of everything that others spin for; see the module's text.
#[derive(Debug)]
pub struct Outside(());

impl Outside {
    /// For an entry point (O1).
    #[inline]
    pub const fn at_the_face() -> Outside {
        Outside(())
    }
    /// Lets others run.
    pub fn yield_now(&mut self, clock: &impl Clock) {
        super::steps::yielded();
        clock.yield_now();
    }
}
