//! How many entries one flush covers.

use crate::stock::Stock;
use crate::sync::Ordering;
use core::fmt;
use core::num::NonZeroU32;

/// Entries per flush. Whole is the normal case: an operation flushes once, at its end. One is the
/// baseline that it is measured against: a flush for each entry. Where huge pages are folded it
/// counts pages. Whatever the grain, the work is done by the same code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlushGrain(Option<NonZeroU32>);

impl FlushGrain {
    /// All entries of an operation.
    pub const WHOLE: FlushGrain = FlushGrain(None);
    /// One entry.
    pub const ONE: FlushGrain = FlushGrain(Some(NonZeroU32::MIN));

    /// At most `entries` per flush; `None` for 0, which would never get on.
    pub const fn new(entries: u32) -> Option<FlushGrain> {
        match NonZeroU32::new(entries) {
            Some(entries) => Some(FlushGrain(Some(entries))),
            None => None,
        }
    }

    /// The number, unless it is whole.
    pub(crate) const fn get(self) -> Option<NonZeroU32> {
        self.0
    }
    /// Whether `entries` are as many as one flush covers.
    pub(super) fn is_reached(self, entries: u64) -> bool {
        self.0.is_some_and(|most| entries >= u64::from(most.get()))
    }

    /// How many entries more it covers, where `entries` are noted.
    pub(super) fn left(self, entries: u64) -> usize {
        self.0.map_or(usize::MAX, |most| u64::from(most.get()).saturating_sub(entries) as usize)
    }

    /// What is set now.
    pub(crate) fn load<M, P>(stock: &Stock<'_, M, P>) -> FlushGrain {
        FlushGrain(NonZeroU32::new(stock.flush_grain.load(Ordering::Relaxed) as u32))
    }
    /// Sets it for gathers made from now on.
    pub(crate) fn store<M, P>(self, stock: &Stock<'_, M, P>) {
        stock.flush_grain.store(self.0.map_or(0, |n| n.get().into()), Ordering::Relaxed);
    }
}

impl fmt::Display for FlushGrain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(entries) => entries.fmt(f),
            None => f.write_str("whole"),
        }
    }
}
