//! A locked table: the right to change its words.

use super::attrs::{Attrs, Entry, Slot, Slots};
use super::paging::Paging;
use super::prune::{Detached, Prune};
use super::tables::Tables;
use super::word::{TableAt, WordAt};
use core::{fmt, mem};
use foliant_claim::{Claim, Stale};
use foliant_machine::{Cpus, PhysMem};
use foliant_sync::{Critical, Inside};
use foliant_units::{Frame, FrameRange, Level, Pa, Pages, Va, VaRange};

/// What stands where the way to a table ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gap {
    /// Nothing.
    None,
    /// A leaf.
    Leaf,
    /// A software word.
    Soft,
    /// The table asked for is the top table, which has no lock.
    TopTable,
    /// The address is not one of this half.
    Outside,
}

/// There is no table of the wanted level: the walk ended above.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Missing {
    /// The level of the word where it ended; the caller may skip its whole span.
    pub level: Level,
    /// What stands there.
    pub what: Gap,
}

/// A table whose lock is held. Dropping it unlocks.
///
/// While it is held no operation of [`Tables`] may be called for an address of this table, except
/// lock-free reads: it would wait for itself.
///
/// Key: `[l]` this guard's; `[c]` constant.
#[must_use = "a table is unlocked when the guard is dropped"]
pub struct Locked<'m, M: PhysMem + Cpus, P: Paging> {
    tables: Tables<'m, M, P>, // [c]
    table: TableAt,           // [c]
    above: WordAt,            // [l] its LOCK bit is ours
    level: Level,             // [c]
    base: Va,                 // [c]
    inside: Inside,
}

impl<'m, M: PhysMem + Cpus, P: Paging> Locked<'m, M, P> {
    /// Takes the lock bit in the word `above` the table, which has entries of `level`; `None` where
    /// that word no longer points there: the table was removed or replaced, and the walk must start
    /// again.
    #[inline(always)]
    pub(super) fn acquire(
        tables: Tables<'m, M, P>,
        va: Va,
        (table, level): (TableAt, Level),
        above: WordAt,
    ) -> Option<Locked<'m, M, P>> {
        let slot = Slot::of(va, level.up());
        loop {
            let word = above.load(tables.machine());
            match P::decode(word, level.up(), slot) {
                Entry::Table(pa) if pa == table.pa() => {}
                _ => return None,
            }
            if word & P::LOCK != 0 {
                tables.machine().relax();
            } else if above.swap(tables.machine(), word, word | P::LOCK).is_ok() {
                let base = va.align_down(level.up().span());
                let inside = Inside::enter(Critical::Table);
                return Some(Locked { tables, table, above, level, base, inside });
            }
        }
    }
    /// Takes the lock of the table that the word in `slot` of this one points to: parent before
    /// child.
    pub(super) fn child(&self, slot: Slot) -> Option<Locked<'m, M, P>> {
        let at = self.table.word(slot);
        let Entry::Table(pa) = P::decode(at.load(self.machine()), self.level, slot) else {
            return None;
        };
        let below = (TableAt::named(pa), self.level.down()?);
        Locked::acquire(self.tables, self.va_of(slot), below, at)
    }
    #[inline]
    pub(super) fn machine(&self) -> &'m M {
        self.tables.machine()
    }
    /// Unlocks, for a caller that met an entry out of use and is about to wait for its owner.
    pub fn let_go(self) -> LetGo<'m, M> {
        LetGo { machine: self.machine() }
    }
    /// The level of its entries.
    pub fn level(&self) -> Level {
        self.level
    }
    /// The first address that it translates.
    pub fn base(&self) -> Va {
        self.base
    }
    /// All that it translates. The last table of the kernel half ends at the last address.
    pub fn range(&self) -> VaRange {
        let bytes = self.level.up().span();
        let short = VaRange::new(self.base, Va::new(!0));
        VaRange::sized(self.base, bytes).or(short).expect("a base is an address")
    }
    /// The slot that translates `va`, which lies in [`range`](Locked::range).
    pub fn index_of(&self, va: Va) -> Slot {
        Slot::of(va, self.level)
    }
    /// The first address that `slot` translates.
    #[inline]
    pub fn va_of(&self, slot: Slot) -> Va {
        self.base.add(slot.index() as u64 * self.level.span().get())
    }
    /// The word in `slot`.
    #[inline]
    pub fn get(&self, slot: Slot) -> u64 {
        self.table.word(slot).load(self.machine())
    }
    /// What the word in `slot` says.
    #[inline]
    pub fn entry(&self, slot: Slot) -> Entry {
        P::decode(self.get(slot), self.level, slot)
    }
    /// Writes `word` into `slot`. Walkers' updates since the last read are overwritten; use
    /// [`update`](Locked::update) where they matter.
    ///
    /// # Panics
    /// Where the old or the new word points to a table: such words come by [`Tables::ensure`] and
    /// by splits, and go by [`Tables::detach`], by an [`unmap`](Tables::unmap) that prunes and by
    /// collapses (table::I4).
    pub fn set(&self, slot: Slot, word: u64) {
        self.no_table(slot, self.get(slot));
        self.no_table(slot, word);
        self.put(slot, word);
    }
    /// Takes the word out of `slot`, with all that walkers noted in it, and leaves 0.
    ///
    /// # Panics
    /// As [`set`](Locked::set).
    pub fn take(&self, slot: Slot) -> u64 {
        self.update(slot, |_| 0)
    }
    /// Replaces the word in `slot` by what `change` makes of it, and returns the old one. No note
    /// of a walker is lost: `change` is asked again where one came in between.
    ///
    /// # Panics
    /// As [`set`](Locked::set).
    pub fn update(&self, slot: Slot, change: impl Fn(u64) -> u64) -> u64 {
        let word = self.get(slot);
        self.no_table(slot, word);
        self.exchange(slot, word, |word| {
            let new = change(word);
            self.no_table(slot, new);
            new
        })
    }
    fn no_table(&self, slot: Slot, word: u64) {
        let entry = P::decode(word, self.level, slot);
        assert!(!matches!(entry, Entry::Table(_)), "{slot:?} may not hold or get a table");
    }
    /// Maps the frames from `frame` on by the words of `slots`, which the caller has seen to be 0,
    /// in groups where the format has them and they fit.
    pub fn map(&self, slots: Slots, frame: Frame, attrs: Attrs) {
        let span = self.level.span().get();
        let (mut done, attrs) = (0, attrs.without(Attrs::GROUPED));
        while done < slots.len() {
            let pa = frame.pa().add(done as u64 * span);
            let rest = slots.part(done, slots.len() - done);
            let (len, grouped) = self.unit(rest, pa);
            let unit = rest.part(0, len);
            self.map_alike(unit, pa, if grouped { attrs | Attrs::GROUPED } else { attrs });
            done += len;
        }
    }
    /// Maps what lies from `pa` on by the words of `slots`, which hold no table, all of them with
    /// `attrs`. With [`Attrs::GROUPED`] they are a whole number of groups (I11).
    pub fn map_alike(&self, slots: Slots, pa: Pa, attrs: Attrs) {
        if P::unit(self.level, attrs) == 1 {
            return self.fill(slots, P::leaf(pa, self.level, attrs), P::step(self.level));
        }
        let span = self.level.span().get();
        for (n, slot) in slots.iter().enumerate() {
            self.put(slot, P::leaf(pa.add(n as u64 * span), self.level, attrs));
        }
    }
    /// How many words from the first of `slots` on are written alike, and whether as one group.
    fn unit(&self, slots: Slots, pa: Pa) -> (usize, bool) {
        let Some(group) = P::group(self.level) else {
            return (slots.len(), false);
        };
        let left = group.entries() - slots.first().index() % group.entries();
        let whole = left == group.entries() && left <= slots.len();
        (left.min(slots.len()), whole && pa.is_aligned(group.span(self.level)))
    }
    /// Writes `word`, `word + step` and so on into `slots`, which the caller has seen to hold no
    /// table.
    pub fn fill(&self, slots: Slots, word: u64, step: u64) {
        let mut word = word;
        for slot in slots.iter() {
            self.put(slot, word);
            word = word.wrapping_add(step);
        }
    }
    /// Writes `words` from `first` on, in the place of words that are no tables.
    pub fn write(&self, first: Slot, words: &[u64]) {
        let slots = Slots::new(first, words.len()).expect("they lie in the table");
        slots.iter().zip(words).for_each(|(slot, word)| self.set(slot, *word));
    }
    /// Replaces the words of `slots`, none of which is a table's, one after the other by what
    /// `make` makes of them, until it makes nothing of one. Says how many were replaced.
    pub fn replace_each(&self, slots: Slots, mut make: impl FnMut(Entry) -> Option<u64>) -> usize {
        let write =
            |slot: &Slot| make(self.entry(*slot)).map(|word| self.set(*slot, word)).is_some();
        slots.iter().take_while(write).count()
    }
    /// The slots for `range`, as far as it lies in this table, in which it begins.
    pub fn slots_of(&self, range: VaRange) -> Slots {
        let first = self.index_of(range.start());
        let words = range.bytes().get() / self.level.span().get();
        let words = words.min((Level::ENTRIES - first.index()) as u64) as usize;
        Slots::new(first, words).expect("it begins in the table, and is not empty")
    }
    /// How many words map a frame of `block` where they would all stand side by side, if the one in
    /// `slot` maps `frame` of it. Words of other tables are not looked at.
    pub fn count_beside(&self, slot: Slot, frame: Frame, block: FrameRange) -> u64 {
        let inside = frame.get() - block.start().get();
        let is_one = |nth: &u64| {
            let index = (slot.index() as u64 + nth).checked_sub(inside);
            let Some(at) = index.and_then(|at| Slot::new(at as usize)) else { return false };
            let expected = block.start().add(Pages::new(*nth));
            matches!(self.entry(at), Entry::Leaf { pa, .. } if pa.frame() == expected)
        };
        (0..block.pages().get()).filter(is_one).count() as u64
    }
    /// The first of `slots` whose word is not 0.
    pub fn first_used(&self, slots: Slots) -> Option<Slot> {
        let empties = self.empties(slots);
        (empties < slots.len()).then(|| Slot::wrap(slots.first().index() + empties))
    }
    /// How many words of `slots` are 0 before the first that is not.
    #[inline]
    pub(super) fn empties(&self, slots: Slots) -> usize {
        self.table.empties(self.machine(), slots)
    }
    /// Whether every word is 0.
    pub fn is_empty(&self) -> bool {
        self.are_empty(Slots::ALL)
    }
    /// Whether each word of `slots` is 0.
    #[inline]
    pub fn are_empty(&self, slots: Slots) -> bool {
        self.empties(slots) == slots.len()
    }
    #[inline]
    pub(super) fn put(&self, slot: Slot, word: u64) {
        self.table.word(slot).store(self.machine(), word);
    }
    /// [`update`](Locked::update) of a word that is known to be no table and was read as `word`.
    #[inline]
    pub(super) fn exchange(&self, slot: Slot, word: u64, change: impl Fn(u64) -> u64) -> u64 {
        let at = self.table.word(slot);
        let mut word = word;
        if word & 1 == 0 || P::is_final(word) {
            at.store(self.machine(), change(word)); // no walker changes it any more
            return word;
        }
        loop {
            match at.swap(self.machine(), word, change(word)) {
                Ok(_) => return word,
                Err(found) => word = found,
            }
        }
    }
    /// Hangs a table into `slot`, in the place of a word that is not present, with what `word`
    /// makes for each of its slots.
    pub fn expand(&self, slot: Slot, claim: Claim, word: impl Fn(Slot) -> u64) {
        self.no_table(slot, self.get(slot));
        let table = TableAt::claimed(claim);
        for below in Slots::ALL.iter() {
            table.word(below).store(self.machine(), word(below));
        }
        self.put(slot, P::table(table.pa())); // complete before it is seen (I2)
    }
    /// Takes this table out of its parent, if it is empty and `prune` says that it may go. A CPU
    /// that spins for its lock sees the word gone. `note` is told what the table translated and the
    /// level of the word that named it, *before* that word is empty: where live words may not be
    /// replaced, a fault that finds it empty writes another into it as soon as nothing is pending.
    pub fn detach<T>(
        self,
        prune: Prune,
        note: impl FnOnce(VaRange, Level) -> T,
    ) -> Result<(Detached, T), Self> {
        if !prune.allows::<P>(self.level) || !self.is_empty() {
            return Err(self);
        }
        let noted = note(self.range(), self.level.up());
        Ok((Detached::of(self.replace(0)), noted))
    }
    /// Replaces the word above by `word` in one step: lock and table go together.
    pub(super) fn replace(mut self, word: u64) -> Stale {
        self.above.store(self.machine(), word);
        let table = self.table;
        self.inside.leave();
        mem::forget(self); // the lock bit went with the word
        table.removed()
    }
}

/// The right to wait for the owner of an entry that is out of use. It is made by giving up the lock
/// that the owner needs (I9).
#[must_use = "the owner of the entry is waited for"]
pub struct LetGo<'m, M> {
    machine: &'m M,
}

impl<M: Cpus> LetGo<'_, M> {
    /// Lets the owner run.
    pub fn wait(self) {
        self.machine.relax();
    }
}

impl<M: PhysMem + Cpus, P: Paging> Drop for Locked<'_, M, P> {
    fn drop(&mut self) {
        let mut word = self.above.load(self.machine());
        while let Err(found) = self.above.swap(self.machine(), word, word & !P::LOCK) {
            word = found; // a walker set the accessed bit of the table word
        }
    }
}

impl<M: PhysMem + Cpus, P: Paging> fmt::Debug for Locked<'_, M, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Locked({:?}, level {}, {:?})", self.table.pa(), self.level.0, self.base)
    }
}
