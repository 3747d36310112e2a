//! Translation caches of limited size, beside a machine whose own keep whatever they may.
//!
//! How far a CPU's translations reach decides what a large table costs to probe. The simulated
//! machine keeps entries for as long as its contract allows, to find stale ones; what it counts
//! says nothing about reach. So probes are shown to a [`Watch`] as well: arrays as large as those
//! of a named CPU, fed with addresses and the levels of their leaves. It is no part of any machine.
//!
//! ```text
//!   probe ─▶ first level, an array per leaf size ──miss──▶ second level ──miss──▶ a walk: from the lowest cached table
//!            └─ hit: nothing to count                      └─ hit                   pointer down, one step per word read
//! ```
//!
//! **Invariants**
//! - C1. Arrays are sets of ways, the entry that was used least recently goes. A set is the low
//!   bits of the page's number.
//! - C2. What misses is in all arrays afterwards, first level, second level and pointers.
//!
//! **Not here**: instructions, other threads of a core, entries fetched ahead, flushes: each watch
//! begins with empty arrays.

use alloc::vec;
use alloc::vec::Vec;
use foliant_units::{Level, Va};

/// An array of entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Array {
    /// How many.
    pub entries: u16,
    /// How many share a set.
    pub ways: u16,
}

/// The translation caches of a CPU, for data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caches {
    /// Whose.
    pub name: &'static str,
    /// Where the sizes are from.
    pub source: &'static str,
    /// The first level, for leaves of 4 KiB, 2 MiB and 1 GiB.
    pub first: [Array; 3],
    /// The second level: shared by leaves of 4 KiB and 2 MiB, and that for 1 GiB.
    pub second: [Array; 2],
    /// Pointers to tables of 4 KiB entries, and of 2 MiB entries.
    pub pointers: [Array; 2],
}

impl Caches {
    /// A Skylake server core. Four levels of tables.
    pub const SKYLAKE: Caches = Caches {
        name: "Skylake server",
        source: "Intel 64 and IA-32 Architectures Optimization Reference Manual (248966), table of TLB parameters of the \
                 Skylake microarchitecture; pointers to tables are assumed, their number is not published",
        first: [
            Array { entries: 64, ways: 4 },
            Array { entries: 32, ways: 4 },
            Array { entries: 4, ways: 4 },
        ],
        second: [Array { entries: 1536, ways: 12 }, Array { entries: 16, ways: 4 }],
        pointers: [Array { entries: 32, ways: 32 }, Array { entries: 4, ways: 4 }],
    };
}

/// Pages that an array holds, each set with the page that was used last in front. Numbers are
/// shifted by one: 0 is nothing.
struct Held {
    slots: Vec<u64>,
    ways: usize,
}

impl Held {
    fn new(array: Array) -> Held {
        let ways = usize::from(array.ways.max(1));
        Held { slots: vec![0; usize::from(array.entries).next_multiple_of(ways).max(ways)], ways }
    }
    /// Whether `page`, of a kind below 4, is held; it is from now on.
    fn use_page(&mut self, page: u64, kind: u8) -> bool {
        let sets = (self.slots.len() / self.ways) as u64;
        let from = (page % sets) as usize * self.ways;
        let set = &mut self.slots[from..from + self.ways];
        let key = (page << 2 | u64::from(kind)) + 1;
        let found = set.iter().position(|held| *held == key);
        set[..=found.unwrap_or(self.ways - 1)].rotate_right(1);
        set[0] = key;
        found.is_some()
    }
}

/// See the module's text.
pub(crate) struct Watch {
    first: [Held; 3],
    second: [Held; 2],
    pointers: [Held; 2],
    /// The level of entries in the top table.
    top: Level,
    /// Probes that no array had an entry for.
    pub(crate) misses: u64,
    /// Table words that their walks read.
    pub(crate) steps: u64,
}

impl Watch {
    /// Empty arrays of these sizes, under a top table with entries of `top`.
    pub(crate) fn new(caches: &Caches, top: Level) -> Watch {
        Watch {
            first: caches.first.map(Held::new),
            second: caches.second.map(Held::new),
            pointers: caches.pointers.map(Held::new),
            top,
            misses: 0,
            steps: 0,
        }
    }
    /// An access to `va`, which a leaf of `level` maps.
    pub(crate) fn access(&mut self, va: Va, level: Level) {
        let page = |level: Level| va.get() / level.span().get();
        let (kind, nth) = (level.0, usize::from(level.0).min(2));
        let first = self.first[nth].use_page(page(level), kind);
        if first || self.second[nth / 2].use_page(page(level), kind) {
            return;
        }
        self.misses += 1;
        // A pointer that the walk finds spares it the words above; all of them are held afterwards.
        let mut from = self.top;
        for above in (level.0 + 1..=self.pointers.len() as u8).rev().map(Level) {
            if self.pointers[usize::from(above.0) - 1].use_page(page(above), above.0) {
                from = Level(above.0 - 1);
            }
        }
        self.steps += u64::from(from.0.saturating_sub(level.0)) + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOP: Level = Level(3);

    fn watch() -> Watch {
        Watch::new(&Caches::SKYLAKE, TOP)
    }
    fn pages(watch: &mut Watch, level: Level, pages: impl Iterator<Item = u64>) -> (u64, u64) {
        let before = (watch.misses, watch.steps);
        pages.for_each(|page| watch.access(Va::new(page * level.span().get()), level));
        (watch.misses - before.0, watch.steps - before.1)
    }

    #[test]
    fn what_fits_misses_once_and_what_does_not_misses_each_time() {
        for (level, reach) in [(Level::BASE, 1536), (Level::SIZE_2M, 1536), (Level::SIZE_1G, 16)] {
            let mut watch = watch();
            assert_eq!(pages(&mut watch, level, 0..reach).0, reach, "{level:?}: all are new");
            assert_eq!(pages(&mut watch, level, 0..reach).0, 0, "{level:?}: all are held");
            // In a circle that is one set's way too long, the least recently used is the one that
            // comes next. The first level holds none of them for so long.
            let sets = if level == Level::SIZE_1G { 4 } else { 128 };
            let longer = reach + sets;
            pages(&mut watch, level, 0..longer);
            assert_eq!(pages(&mut watch, level, 0..longer).0, longer, "{level:?}");
        }
    }

    #[test]
    fn base_and_2m_leaves_share_the_second_level_and_1g_leaves_have_their_own() {
        let mut watch = watch();
        pages(&mut watch, Level::BASE, 0..1536);
        pages(&mut watch, Level::SIZE_1G, 0..16);
        assert_eq!(pages(&mut watch, Level::BASE, 0..1536).0, 0);
        pages(&mut watch, Level::SIZE_2M, 0..1536);
        assert_eq!(pages(&mut watch, Level::SIZE_1G, 0..16).0, 0);
        assert!(pages(&mut watch, Level::BASE, 0..1536).0 >= 1536 - 64);
    }

    #[test]
    fn a_walk_begins_at_the_lowest_pointer_that_is_held() {
        let mut watch = watch();
        let mut steps = |page: u64, level: Level| pages(&mut watch, level, page..page + 1).1;
        assert_eq!(steps(0, Level::BASE), 4, "from the top");
        assert_eq!(steps(1, Level::BASE), 1, "in the same table");
        assert_eq!(steps(512, Level::BASE), 2, "in the next table");
        assert_eq!(steps(2, Level::SIZE_2M), 1, "its pointer is held");
        assert_eq!(steps(512, Level::SIZE_2M), 3, "the next gigabyte");
        assert_eq!(steps(5, Level::SIZE_1G), 2, "no pointer below the top is held");
        assert_eq!(steps(2, Level::BASE), 1);
        // 32 other tables push the pointer to the first one out, the one above stays.
        for table in 1..33 {
            steps(512 * table + 3, Level::BASE);
        }
        assert_eq!(steps(3, Level::BASE), 2);
    }

    /// A list per set, in the order of use.
    struct Naive {
        sets: Vec<Vec<u64>>,
        ways: usize,
    }
    impl Naive {
        fn use_page(&mut self, page: u64) -> bool {
            let at = page as usize % self.sets.len();
            let set = &mut self.sets[at];
            let held = set.contains(&page);
            set.retain(|other| *other != page);
            set.push(page);
            if set.len() > self.ways {
                set.remove(0);
            }
            held
        }
    }

    #[test]
    fn an_array_does_what_lists_do() {
        for (entries, ways) in [(1, 1), (16, 4), (12, 12), (1536, 12)] {
            let mut held = Held::new(Array { entries, ways });
            let sets = vec![Vec::new(); usize::from(entries / ways)];
            let mut naive = Naive { sets, ways: ways.into() };
            let mut draw = crate::draw::Draw::new(u64::from(entries));
            for _ in 0..20_000 {
                let page = draw.below(2 * u64::from(entries) + 3);
                assert_eq!(held.use_page(page, 1), naive.use_page(page), "{entries} {page}");
            }
        }
    }
}
