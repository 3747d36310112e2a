//! How many tables there are, and how many are missing.

use super::attrs::{Entry, Slot, Slots};
use super::paging::Paging;
use super::tables::Tables;
use super::word::TableAt;
use foliant_machine::PhysMem;
use foliant_units::{Level, Pages, Va, VaRange};

impl<M: PhysMem, P: Paging> Tables<'_, M, P> {
    /// How many tables hang below the words of the top table for `range`, while nobody changes
    /// them.
    pub fn count(&self, range: VaRange) -> Pages {
        let top = TableAt::root(self.root());
        let (mut count, mut next) = (0, Some(range.start()).filter(|va| *va < range.end()));
        while let Some(va) = next {
            count += self.count_at(top, Slot::of(va, P::TOP), P::TOP);
            let behind = va.align_down(P::TOP.span()).checked_add(P::TOP.span().get());
            next = behind.filter(|va| *va < range.end());
        }
        Pages::new(count)
    }
    fn count_at(&self, table: TableAt, slot: Slot, level: Level) -> u64 {
        let word = table.word(slot).load(self.machine());
        let (Entry::Table(pa), Some(down)) = (P::decode(word, level, slot), level.down()) else {
            return 0;
        };
        let below = |slot| self.count_at(TableAt::named(pa), slot, down);
        1 + Slots::ALL.iter().map(below).sum::<u64>()
    }

    /// How many tables [`ensure`](Tables::ensure) would make for all pages of `range`. Where a leaf
    /// or a software word is in the way it makes none. `before` is called before each look.
    pub fn missing_in(&self, range: VaRange, mut before: impl FnMut()) -> Pages {
        let (mut missing, mut left) = (0, range);
        while !left.is_empty() {
            before();
            let (some, next) = self.missing_at(left);
            missing += some.get();
            left = VaRange::new(next, range.end()).expect("it goes on inside the range");
        }
        Pages::new(missing)
    }
    /// The same for the part of `range` that one word covers, and where that part ends.
    fn missing_at(&self, range: VaRange) -> (Pages, Va) {
        let found = self.walk(range.start());
        let level = match found.level {
            Level::BASE => Level::SIZE_2M, // its table is there
            level => level,
        };
        let next = range.start().align_down(level.span()).checked_add(level.span().get());
        let next = next.map_or(range.end(), |next| next.min(range.end()));
        if found.level == Level::BASE || found.entry != Entry::None {
            return (Pages::new(0), next);
        }
        let (mut missing, mut below) = (0, level.down());
        while let Some(entries) = below {
            let reach = entries.up().span();
            let first = range.start().align_down(reach).get() / reach.get();
            missing += next.get().div_ceil(reach.get()) - first;
            below = entries.down();
        }
        (Pages::new(missing), next)
    }
}
