//! Whether a task goes on or waits.
//!
//! ```text
//!   goes on ──park──▶ parked ──wake──▶ goes on, and is put by the waker
//!      │ wake
//!      ▼
//!    woken ──park──▶ goes on, and is put by its CPU
//! ```

use foliant_sync::{AtomicU64, Ordering};

const GOES_ON: u64 = 0;
const PARKED: u64 = 1;
const WOKEN: u64 = 2;

/// See the module's text.
#[derive(Debug)]
pub struct Standing(AtomicU64);

impl Standing {
    /// Of a task that goes on.
    pub fn new() -> Standing {
        Standing(AtomicU64::new(GOES_ON))
    }
    /// It waits, and its CPU has let go of it. False where it was woken meanwhile: its CPU puts it
    /// into a queue then (Q1).
    #[must_use]
    pub fn park(&self) -> bool {
        let parks =
            self.0.compare_exchange(GOES_ON, PARKED, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if !parks {
            self.0.store(GOES_ON, Ordering::Release);
        }
        parks
    }
    /// It is to go on. True where it was parked: the waker puts it into a queue.
    #[must_use]
    pub fn wake(&self) -> bool {
        let next = |now| Some(if now == PARKED { GOES_ON } else { WOKEN });
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, next) == Ok(PARKED)
    }
    /// Whether it waits.
    pub fn is_parked(&self) -> bool {
        self.0.load(Ordering::Relaxed) == PARKED
    }
}

impl Default for Standing {
    fn default() -> Standing {
        Standing::new()
    }
}
