//! The page-table walker, with accessed and dirty bits.
//!
//! A walk starts at the lowest cached table pointer, even where the word it was read from has
//! changed since, and caches what it reads on the way down. Bits are set with compare-exchange: a
//! word that changed under the walker is read again.
//!
//! **Invariants**
//! - W1. A word that is not present is never cached (machine::M2).
//! - W2. Under `Accessed::SetBeforeCached` no leaf is cached whose accessed bit was clear in
//!   memory.
//!
//! **Locking**: the walking CPU's core lock, held by the caller.

use crate::Sim;
use crate::access::Access;
use crate::cache::Cached;
use crate::check::Event;
use crate::cost::Work;
use crate::cpu::{Core, CpuState};
use crate::format::{Decoded, Half, Leaf, Rights, level_shift};
use foliant_machine::Accessed;
use foliant_units::{Cpu, Pa, Va};

/// Why a walk happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    /// An access needs the translation.
    Needed { access: Access, user: bool },
    /// The CPU walks on its own account.
    Speculation,
}

/// One step of a walk.
enum Read {
    Nothing,
    Table(Pa, Rights, bool),
    Leaf(Leaf),
}

impl Sim {
    /// Walks for `va`. It fails where nothing is mapped, or where the access is not allowed and so
    /// no leaf may be cached for it; the error says whether something was there.
    pub(crate) fn walk(
        &self,
        (cpu, state): (Cpu, &CpuState),
        core: &mut Core,
        va: u64,
        why: Why,
    ) -> Result<Cached, bool> {
        let format = self.config.format;
        let (Some(half), Some(root)) = (format.half(va), core.root) else { return Err(false) };
        state.counters.walks.one();
        if why != Why::Speculation {
            state.charge_user(self.prices.picos(Work::Walk, 1));
        }
        let (levels, under) = (format.levels(), (half, root.user));
        let top = match half {
            Half::Kernel if !format.one_root() => root.kernel,
            _ => root.user,
        };
        let (mut table, mut level, mut rights) = match core.caches.table(va, levels) {
            Some(hint) => (hint.base, hint.level - 1, hint.rights),
            None => (top, levels - 1, Rights::ALL),
        };
        loop {
            let index = va >> (12 + 9 * u32::from(level)) & 511;
            let word_at = table.add(index * 8);
            self.tell(cpu, || Event::Walked { va: Va::new(va), level, word: word_at });
            state.counters.walk_words.one();
            match self.read(level, word_at, rights, why) {
                Read::Nothing => return Err(false),
                Read::Table(next, below, cacheable) => {
                    rights = rights.and(below);
                    if cacheable {
                        let entry = entry(va, level, next, word_at, rights, under, true);
                        self.fill(cpu, core, entry);
                    }
                    (table, level) = (next, level - 1);
                }
                Read::Leaf(leaf) => {
                    let rights = format.settled(rights.and(leaf.rights));
                    // A group is cached as a whole, or page by page.
                    let own = level_shift(level);
                    let is_whole = leaf.shift > own && core.rng.once_in(2);
                    let shift = if is_whole { leaf.shift } else { own };
                    let inside = va & ((1 << leaf.shift) - 1) & !((1 << shift) - 1);
                    let base = leaf.base.add(inside);
                    let mut found = entry(va, level, base, word_at, rights, under, false);
                    found.va = Va::new(va & !((1 << shift) - 1));
                    (found.shift, found.dirty) = (shift, leaf.dirty);
                    if !allowed(&found, why) {
                        return Err(true);
                    }
                    let fills = &state.counters;
                    [&fills.fills_base, &fills.fills_2m, &fills.fills_1g]
                        [usize::from(level.min(2))]
                    .one();
                    self.fill(cpu, core, found);
                    return Ok(found);
                }
            }
        }
    }

    /// Reads one word and sets the bits that the walk has to set.
    fn read(&self, level: u8, at: Pa, path: Rights, why: Why) -> Read {
        let format = self.config.format;
        let before_cached = self.config.rules.accessed == Accessed::SetBeforeCached;
        loop {
            let Some(word) = self.memory.load(at) else { return Read::Nothing };
            match format.decode(level, word) {
                Decoded::Nothing => return Read::Nothing,
                Decoded::Table { table, rights, accessed } => {
                    if accessed || !before_cached {
                        return Read::Table(table, rights, true);
                    }
                    if self.replace(at, word, format.with_accessed(word)) {
                        return Read::Table(table, rights, true);
                    }
                }
                Decoded::Leaf(leaf) => {
                    let probe = Cached {
                        rights: format.settled(path.and(leaf.rights)),
                        ..entry(0, level, leaf.base, at, leaf.rights, (Half::User, at), false)
                    };
                    if !allowed(&probe, why) {
                        return Read::Leaf(leaf);
                    }
                    let mut new = word;
                    if !leaf.accessed && (before_cached || why != Why::Speculation) {
                        new = format.with_accessed(new);
                    }
                    let stores = matches!(why, Why::Needed { access: Access::Write, .. });
                    if stores && !leaf.dirty {
                        new = format.with_dirty(new);
                    }
                    if new == word {
                        return Read::Leaf(leaf);
                    }
                    if self.replace(at, word, new) {
                        let dirty = leaf.dirty || stores;
                        return Read::Leaf(Leaf { dirty, ..leaf });
                    }
                }
            }
        }
    }

    fn replace(&self, at: Pa, old: u64, new: u64) -> bool {
        matches!(self.memory.compare_exchange(at, old, new), Some(Ok(_)))
    }

    /// A store through a translation that is cached as clean: the walker sets the dirty bit in the
    /// word it came from, if that still maps the same memory writable. Otherwise the bit is lost,
    /// and the store goes through all the same (machine::M4).
    pub(crate) fn mark_dirty(&self, cpu: Cpu, entry: &mut Cached) {
        let format = self.config.format;
        self.tell(cpu, || Event::Walked { va: entry.va, level: entry.level, word: entry.word });
        while let Some(word) = self.memory.load(entry.word) {
            let Decoded::Leaf(leaf) = format.decode(entry.level, word) else { return };
            let same = leaf.base.get() >> leaf.shift == entry.base.get() >> leaf.shift;
            if !same || !leaf.rights.write {
                return;
            }
            let new = format.with_dirty(format.with_accessed(word));
            if new == word || self.replace(entry.word, word, new) {
                entry.dirty = true;
                return;
            }
        }
    }

    fn fill(&self, cpu: Cpu, core: &mut Core, entry: Cached) {
        let displaced = core.caches.insert(entry);
        if self.watch.is_some() {
            if let Some(old) = displaced {
                self.tell(cpu, || Event::Dropped { entry: old });
            }
            self.tell(cpu, || Event::Filled { entry });
        }
    }

    /// Perhaps caches something near `va` that no access asked for.
    pub(crate) fn speculate(&self, at: (Cpu, &CpuState), core: &mut Core, va: u64) {
        if !core.rng.once_in(self.config.chance.speculate) {
            return;
        }
        let steps = core.rng.below(16) as i64 - 8;
        let span = [1i64 << 12, 1 << 12, 1 << 21, 1 << 30][core.rng.below(4) as usize];
        let near = va.wrapping_add_signed(steps * span);
        if core.caches.page(near).is_none() {
            let _ = self.walk(at, core, near, Why::Speculation);
        }
    }
}

/// What a walk found for `va`; `under` is the half it lies in and the tag of the root that runs.
fn entry(
    va: u64,
    level: u8,
    base: Pa,
    word: Pa,
    rights: Rights,
    (half, tag): (Half, Pa),
    table: bool,
) -> Cached {
    let shift = level_shift(level);
    let va = Va::new(va & !((1u64 << shift) - 1));
    Cached { va, level, shift, table, base, word, rights, dirty: false, tag, half }
}

/// Whether the translation may be used for the access.
pub(crate) fn allowed(entry: &Cached, why: Why) -> bool {
    let rights = entry.rights;
    let Why::Needed { access, user } = why else { return true };
    match access {
        Access::Read => rights.read && (rights.user || !user),
        Access::Write => rights.write && (rights.user || !user),
        Access::Exec if user => rights.exec,
        Access::Exec => rights.kernel_exec,
    }
}
