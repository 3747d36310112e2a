//! How many tables there are, and how many are missing.

use super::attrs::{Entry, Slots};
use super::paging::{Half, Paging};
use super::tables::Tables;
use super::word::TableAt;
use foliant_machine::PhysMem;
use foliant_units::{Level, Pages, Va, VaRange};

impl<M: PhysMem, P: Paging> Tables<'_, M, P> {
    /// How many tables hang below the top table of the user half, while nobody changes them.
    pub fn count(&self) -> Pages {
        assert_eq!(self.half(), Half::User, "the kernel's tables are nobody's");
        Pages::new(self.count_below(TableAt::root(self.root()), P::TOP, Va::new(0)))
    }
    fn count_below(&self, table: TableAt, level: Level, base: Va) -> u64 {
        let Some(down) = level.down() else { return 0 };
        let mut count = 0;
        for slot in Slots::ALL.iter() {
            let va = base.add(slot.index() as u64 * level.span().get());
            // Behind the half's end a shared top table has the kernel's words.
            let word = table.word(slot).load(self.machine());
            if P::half_of(va) == Some(Half::User)
                && let Entry::Table(pa) = P::decode(word, level, slot)
            {
                count += 1 + self.count_below(TableAt::named(pa), down, va);
            }
        }
        count
    }

    /// How many tables [`ensure`](Tables::ensure) would make for all pages of the part of `range` that one word covers, and
    /// where that part ends. Where a leaf or a software word is in the way it makes none.
    pub(crate) fn missing_at(&self, range: VaRange) -> (Pages, Va) {
        let found = self.walk(range.start());
        let level = match found.level {
            Level::BASE => Level::MEGA, // its table is there
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
