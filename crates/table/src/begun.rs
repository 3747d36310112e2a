//! Where something is in a range: for operations that make tables for what is there and no more.

use super::attrs::Entry;
use super::edit::behind;
use super::lock::Locked;
use super::paging::Paging;
use super::tables::{Refused, Tables};
use foliant_machine::{Cpus, PhysMem};
use foliant_units::{Level, Va, VaRange};

impl<M: PhysMem + Cpus, P: Paging> Tables<'_, M, P> {
    /// The first stretch of `range` for which there is a table of base entries, even an empty one,
    /// or a large leaf or software word. It ends where there is none or where one table of large
    /// entries ends, and is empty where nothing was found up to there: the caller goes on at its
    /// end.
    ///
    /// What is passed over was seen empty under its table's lock, or in the top table: a caller
    /// that has stated its change before misses nothing but empty tables (I10).
    pub fn first_begun(&self, range: VaRange) -> Result<VaRange, Refused> {
        self.check(range)?;
        let (va, end) = (range.start(), range.end());
        let stretch = |from, to| VaRange::new(from, to).expect("it lies in the range");
        loop {
            let spot = self.lowest(va, Level::SIZE_2M);
            let Some(above) = spot.above else {
                let next = self.next_hung(behind(va, P::TOP, end), end);
                return Ok(stretch(next, next));
            };
            let Some(lock) = Locked::acquire(*self, va, (spot.table, spot.level), above) else {
                continue;
            };
            let (level, last) = (lock.level(), lock.range().end().min(end));
            let entry = |va| lock.entry(lock.index_of(va));
            let is_begun = |va| match entry(va) {
                Entry::None => false,
                Entry::Table(_) => level == Level::SIZE_2M,
                Entry::Leaf { .. } | Entry::Soft(_) => true,
            };
            let pass = |mut va: Va, is: &dyn Fn(Va) -> bool| {
                while va < last && is(va) {
                    va = behind(va, level, last);
                }
                va
            };
            let from = pass(va, &|va| entry(va) == Entry::None);
            return Ok(stretch(from, pass(from, &is_begun)));
        }
    }
}
