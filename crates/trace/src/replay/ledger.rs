//! Who a replay's figures come from: a book that every step is entered in, by mapping and by time.
//!
//! A step is charged what the counters of machine and manager moved by while it ran. So what all
//! mappings have, and what all parts of the time have, comes to the figures of the row.
//!
//! **Invariants**
//! - L1. The sum over mappings, and that over parts, is the row's: of faults, kernel time, folios
//!   and touched pages.
//! - L2. Of memory that is held a mapping has what its own steps brought, less what steps about it
//!   gave back, and less what it brought in a space that has ended: an estimate where a range of
//!   several mappings is unmapped at once, or where a child outlives its parent.
//!
//! **Not here**: whether a figure is good (`foliant advise`).

use super::plan::{PARTS, Plan, Step};
use crate::event::SpaceId;
use crate::mapping::Mapping;
use foliant_units::{Bytes, FRAME_BYTES, Nanos, Order};
use std::collections::{BTreeMap, HashMap};

/// Sizes that folios have.
const SIZES: usize = Order::SIZE_2M.index() + 1;

/// What a mapping, or a part of the time, has of a replay's figures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Faults in private memory without a file.
    pub faults: u64,
    /// Modelled kernel time.
    pub kernel: Nanos,
    /// Folios for anonymous memory and for copies of files' pages, by their order.
    pub folios: [u64; SIZES],
    /// Pages that were touched first while such a folio mapped them.
    pub touched: u64,
    /// The most memory that was held: of a mapping its own at any time, of a part all that there
    /// was in it.
    pub peak: Bytes,
}

impl Share {
    /// Bytes cleared for folios.
    pub fn zeroed(&self) -> Bytes {
        let of = |order: Order| self.folios[order.index()] * order.bytes().get();
        Bytes::new(Order::all().take(SIZES).map(of).sum())
    }
    /// Of them, what was not touched while mapped.
    pub fn untouched(&self) -> Bytes {
        Bytes::new(self.zeroed().get().saturating_sub(self.touched * FRAME_BYTES))
    }
    /// Whether nothing happened.
    pub fn is_nothing(&self) -> bool {
        self.faults == 0 && self.kernel.0 == 0 && self.zeroed().get() == 0
    }
}

/// Where a replay's figures come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    /// By mapping, those in which something happened.
    pub mappings: Vec<(Mapping, Share)>,
    /// By time: equal parts of what was recorded.
    pub parts: Vec<Share>,
}

impl Origins {
    /// In how many parts the program starts up: up to and with the first in which it holds nine
    /// tenths of the most memory that it ever holds. All of them where it grows to its end.
    pub fn start_up(&self) -> usize {
        let most = self.parts.iter().map(|part| part.peak.get()).max().unwrap_or(0);
        let is_up = |part: &Share| part.peak.get() * 10 >= most * 9;
        self.parts.iter().position(is_up).map_or(0, |at| at + 1)
    }
}

/// Readings of what is charged, each from the beginning of the replay.
#[derive(Clone, Copy, Default)]
pub(super) struct Reading {
    pub(super) faults: u64,
    pub(super) kernel: u64,
    pub(super) folios: [u64; SIZES],
    pub(super) touched: u64,
    /// Pages held now.
    pub(super) held: u64,
}

/// What a step may add to a book, in bytes: what a mapping holds in a space.
pub(super) const ENTRY: u64 = 48;

/// What one space's mapping holds, in pages.
type Held = HashMap<(SpaceId, u16), u64>;

/// The book of one replay.
pub(super) struct Ledger {
    last: Reading,
    mappings: BTreeMap<u16, Share>,
    /// Pages that each mapping holds in all spaces.
    now: BTreeMap<u16, u64>,
    held: Held,
    parts: Vec<Share>,
    /// The part that the last step was in.
    part: usize,
}

impl Ledger {
    /// A book that begins with these readings.
    pub(super) fn new(first: Reading) -> Ledger {
        let parts = vec![Share::default(); PARTS];
        let (mappings, now) = (BTreeMap::new(), BTreeMap::new());
        Ledger { last: first, mappings, now, held: Held::new(), parts, part: 0 }
    }

    /// The reading before the step that comes next.
    pub(super) fn last(&self) -> &Reading {
        &self.last
    }

    /// Enters a step that has led to these readings; `ended` if its space is gone by it.
    pub(super) fn enter(
        &mut self,
        plan: &Plan,
        index: usize,
        step: &Step,
        reading: Reading,
        ended: bool,
    ) {
        let was = std::mem::replace(&mut self.last, reading);
        let mapping = self.mappings.entry(step.mapping).or_default();
        let at = plan.part_of(index).max(self.part);
        // What was held goes on being held where nothing happens.
        for part in &mut self.parts[self.part..=at] {
            part.peak = part.peak.max(Bytes::new(was.held * FRAME_BYTES));
        }
        self.part = at;
        let part = &mut self.parts[at];
        for share in [mapping, &mut *part] {
            share.faults += reading.faults - was.faults;
            share.kernel.0 += reading.kernel.saturating_sub(was.kernel);
            share.touched += reading.touched - was.touched;
            if reading.folios == was.folios {
                continue;
            }
            for (sum, (now, was)) in
                share.folios.iter_mut().zip(reading.folios.iter().zip(&was.folios))
            {
                *sum += now - was;
            }
        }
        part.peak = part.peak.max(Bytes::new(reading.held * FRAME_BYTES));
        self.hold(step, was.held, reading.held);
        if ended {
            self.end(step.space);
        }
    }

    fn hold(&mut self, step: &Step, was: u64, is: u64) {
        if was == is {
            return;
        }
        let change = |pages: &mut u64| *pages = (*pages + is).saturating_sub(was);
        change(self.held.entry((step.space, step.mapping)).or_default());
        let now = self.now.entry(step.mapping).or_default();
        change(now);
        let bytes = Bytes::new(*now * FRAME_BYTES);
        let share = self.mappings.entry(step.mapping).or_default();
        share.peak = share.peak.max(bytes);
    }

    fn end(&mut self, space: SpaceId) {
        let now = &mut self.now;
        self.held.retain(|(its, mapping), pages| {
            if *its != space {
                return true;
            }
            if let Some(sum) = now.get_mut(mapping) {
                *sum = sum.saturating_sub(*pages);
            }
            false
        });
    }

    /// What there is in it.
    pub(super) fn finish(mut self, plan: &Plan) -> Origins {
        let held = Bytes::new(self.last.held * FRAME_BYTES);
        self.parts[self.part..].iter_mut().for_each(|part| part.peak = part.peak.max(held));
        let named = |(number, share): (u16, Share)| {
            let mapping = plan.mappings.get(usize::from(number)).cloned();
            (mapping.unwrap_or(Mapping::Other), share)
        };
        let mappings = self.mappings.into_iter().map(named);
        let mappings = mappings.filter(|(_, share)| !share.is_nothing()).collect();
        Origins { mappings, parts: self.parts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_up_ends_where_nine_tenths_of_the_memory_are_there() {
        let check = |peaks: &[u64], expect: usize| {
            let part = |peak: &u64| Share { peak: Bytes::new(*peak), ..Share::default() };
            let parts = peaks.iter().map(part).collect();
            let origins = Origins { mappings: Vec::new(), parts };
            assert_eq!(origins.start_up(), expect, "{peaks:?}");
        };
        check(&[5, 89, 90, 100, 20], 3);
        check(&[5, 89, 89, 100, 20], 4);
        check(&[100, 20, 100], 1);
        check(&[1, 2, 3, 4], 4);
        check(&[0, 0], 1);
    }

    #[test]
    fn what_was_cleared_and_not_touched_is_untouched() {
        let mut share = Share { touched: 20, ..Share::default() };
        assert!(!Share { faults: 1, ..Share::default() }.is_nothing());
        share.folios[0] = 3;
        share.folios[4] = 2;
        assert_eq!(share.zeroed(), Bytes::new(35 * FRAME_BYTES));
        assert_eq!(share.untouched(), Bytes::new(15 * FRAME_BYTES));
    }
}
