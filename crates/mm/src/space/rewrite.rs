//! Changing the attributes of present leaves, by the machine's rules.
//!
//! Where live words may be replaced, a word is simply rewritten, and the operation flushes once at its end. Where they must
//! be broken first, the leaves of one table become `Breaking` words that carry the new attributes; after a flush they are
//! mended. A flush then covers one table at most, however large the flush grain is.

use crate::flush::{Gather, Used};
use crate::table::{Attrs, Entry, Locked, Paging, Slot, Soft, Tables};
use foliant_machine::{Machine, Replace};
use foliant_units::{Level, Va, VaRange};

/// The words of one table that this operation broke and will mend. Others' broken words are theirs (space::S6).
pub(super) struct Broken {
    slots: [u64; Level::ENTRIES / 64],
}

impl Broken {
    pub(super) const fn none() -> Broken {
        Broken { slots: [0; Level::ENTRIES / 64] }
    }

    /// Gives the leaf in `slot`, which maps `covers`, the attributes that `change` makes of its own, and notes it where it
    /// loses a right. Returns what it said before.
    pub(super) fn rewrite<'m, M: Machine, P: Paging>(
        &mut self,
        gather: &mut Gather<'_, 'm, M, P>,
        locked: &Locked<'m, M, P>,
        (slot, covers): (Slot, VaRange),
        change: impl Fn(Attrs) -> Attrs,
    ) -> Entry {
        let level = locked.level();
        let rule = gather.rules().replace;
        let before = locked.update(slot, |word| match P::decode(word, level, slot) {
            Entry::Leaf { pa, attrs } => match rule {
                Replace::InPlace => P::leaf(pa, level, change(attrs)),
                Replace::BreakBeforeMake => Soft::breaking(pa, change(attrs)).word(),
            },
            _ => word,
        });
        let before = P::decode(before, level, slot);
        if let Entry::Leaf { attrs: old, .. } = before {
            let rights = Attrs::WRITE | Attrs::EXEC | Attrs::USER | Attrs::DIRTY;
            if rule == Replace::BreakBeforeMake {
                self.slots[slot.index() / 64] |= 1 << (slot.index() % 64);
                gather.note(covers, level, Used::Yes);
            } else if old.without(change(old)).and(rights) != Attrs::NONE {
                gather.note(covers, level, Used::of(old));
            }
        }
        before
    }

    /// Flushes and mends what was broken in the table of `level` entries for `va`; where nothing was, flushes at the grain.
    /// No lock is held.
    pub(super) fn mend<'m, M: Machine, P: Paging>(
        self,
        gather: &mut Gather<'_, 'm, M, P>,
        tables: &Tables<'m, M, P>,
        (va, level): (Va, Level),
    ) {
        if self.slots == [0; Level::ENTRIES / 64] {
            return gather.relieve();
        }
        gather.flush();
        let locked = tables.lock(va, level).expect("a table with a broken word stays (space::S6)");
        for n in 0..Level::ENTRIES {
            let Some(slot) = Slot::new(n).filter(|_| self.slots[n / 64] >> (n % 64) & 1 == 1)
            else {
                continue;
            };
            let Entry::Soft(soft) = locked.entry(slot) else { continue };
            let (pa, attrs) = soft.broken_leaf().expect("only its breaker changes a broken word");
            locked.set(slot, P::leaf(pa, level, attrs));
        }
    }
}
