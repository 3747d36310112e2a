//! Where a breathing point may be: outside of everything that others wait for by spinning.
//!
//! At a breathing point a cooperative kernel runs other tasks on this CPU. Whatever one of them waits for by spinning must not be
//! the breather's, or both wait for ever: no lock but a patient one, no reader's section, no stretch that moves, no entry that
//! is being broken, and nothing pending that a fault waits for.
//!
//! ```text
//!   a call of the face ── Outside ──▶ clear, compact, resize ──▶ breathe
//!                            └─ lent to a reader's section: the borrow ends with it
//! ```
//!
//! **Invariants**
//! - O1. Only a call of the face makes an [`Outside`], before it takes anything. It is handed down by `&mut` alone, so whoever
//!   got none cannot breathe, and whoever lent his to a section cannot while it lasts.
//! - O2. [`Outside::breathe`] is the only way to the machine's breathing point (`cargo xtask tidy` looks).
//!   Under the feature `steps` a breath in any of these panics (`steps`).
//! - O3. Who waits for somebody that may be breathing breathes as well instead of spinning.

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
    pub(crate) fn breathe(&mut self, clock: &impl Clock) {
        super::steps::breath();
        clock.breathe();
    }
}
