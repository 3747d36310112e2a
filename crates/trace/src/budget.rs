//! What a recording may cost whoever opens it: memory and work, drawn from one account by all that
//! read it.
//!
//! A file of a hundred bytes can say that 64 TiB were filled, and one of a few KiB that ten
//! thousand processes have twenty thousand areas each. So nothing that looks at a recording grows
//! or loops on a file's word alone: the reader, the describer, the naive model, the planner and the
//! machine of a replay draw on the same [`Budget`], and the first that finds it empty ends all with
//! [`Spent`].
//!
//! ```text
//!   Budget ── memory: bytes held now ◀─take, give─ Purse: the reader's, the describer's, the model's, the plan's, a machine's
//!          └─ work: steps in all     ◀─work──────── an event, an area looked at, a page, a step of a replay
//! ```
//!
//! One size says both: for each GiB of memory there is a minute's work, counted and not timed.
//!
//! **Invariants**
//! - U1. A map, list or machine grows by what a file says only after its memory was taken, at what
//!   an entry costs in the worst case: `Map` and `Purse::push` have no other way.
//! - U2. Work is counted where it is done; between two counts lies at most one pass over what is
//!   held.
//! - U3. A purse that is dropped gives its memory back. Work is never given back.
//! - U4. Whether a recording is refused depends on it, the budget and the settings, not on the
//!   machine that reads it.
//!
//! **Locking**: none. Both accounts are words that change by compare-and-exchange, so that what is
//! drawn never passes the limit.

use foliant_units::Bytes;
use std::collections::{BTreeMap, btree_map};
use std::fmt;
use std::ops::{Range, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The memory that there is where nobody asks for more: 1 GiB.
const USUAL: u64 = 1 << 30;
/// Steps for each GiB: a minute's, at a tenth of a microsecond each.
const STEPS_PER_GIB: u64 = 600_000_000;

/// What draws on a budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Thing {
    /// The bytes of a block, unpacked and decoded.
    Blocks,
    /// Events that are held, not only looked at.
    Events,
    /// Names of programs and other texts.
    Names,
    /// Spaces and threads, dead ones included.
    Spaces,
    /// Areas of all spaces that are alive.
    Areas,
    /// Present pages of all spaces that are alive.
    Pages,
    /// Steps of a plan.
    Steps,
    /// Simulated machines that replay.
    Machines,
    /// Whatever takes time.
    Work,
}

impl Thing {
    /// Its name in a sentence.
    pub const fn name(self) -> &'static str {
        match self {
            Thing::Blocks => "the bytes of a block",
            Thing::Events => "events",
            Thing::Names => "names",
            Thing::Spaces => "spaces and threads",
            Thing::Areas => "areas",
            Thing::Pages => "pages",
            Thing::Steps => "steps to replay",
            Thing::Machines => "the simulated machine",
            Thing::Work => "work",
        }
    }
}

/// Bytes that one of each may take. Leaves of a tree are half empty at worst, growing lists are
/// there twice, and what is about to change is copied out first.
pub(crate) mod cost {
    /// An area in one consumer.
    pub(crate) const AREA: u64 = 256;
    /// A page in the naive model.
    pub(crate) const PAGE: u64 = 128;
    /// A page that is moved: the copy of it in between.
    pub(crate) const MOVED: u64 = 96;
    /// A touched 2 MiB block in a plan.
    pub(crate) const BLOCK: u64 = 96;
    /// The step of a plan that touched a page first.
    pub(crate) const LEADER: u64 = 80;
    /// A space while it lives: two trees with one leaf each, at least.
    pub(crate) const SPACE: u64 = 1536;
    /// A space or thread that ever was.
    pub(crate) const BIRTH: u64 = 64;
    /// A byte of a name. It is printed with escapes of up to six letters, as part of a text that is
    /// put together.
    pub(crate) const LETTER: u64 = 16;
    /// A text, however short.
    pub(crate) const TEXT: u64 = 96;
    /// A byte of a block. It is there packed, unpacked and decoded (an area of 4 bytes takes 24),
    /// and may be printed.
    pub(crate) const RAW: u64 = 64;
}

/// Memory and work for all that is done with one recording; clones draw on the same account.
#[derive(Clone, Debug)]
pub struct Budget {
    account: Arc<Account>,
}

#[derive(Debug)]
struct Account {
    size: Bytes,
    memory: Meter,
    work: Meter,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget::of(Bytes::new(USUAL))
    }
}

impl Budget {
    /// A budget of so much memory, and a minute's work for each GiB of it.
    pub fn of(size: Bytes) -> Budget {
        let steps = u128::from(size.get()) * u128::from(STEPS_PER_GIB) / u128::from(USUAL);
        Budget::with(size, u64::try_from(steps).unwrap_or(u64::MAX))
    }

    /// A budget that is never spent, for events that no file told.
    pub fn unlimited() -> Budget {
        Budget::with(Bytes::new(u64::MAX), u64::MAX)
    }

    fn with(size: Bytes, steps: u64) -> Budget {
        let (memory, work) = (Meter::new(size.get()), Meter::new(steps));
        Budget { account: Arc::new(Account { size, memory, work }) }
    }

    /// Its memory.
    pub fn size(&self) -> Bytes {
        self.account.size
    }
    /// What is drawn of its memory now.
    pub fn held(&self) -> Bytes {
        Bytes::new(self.account.memory.used.load(Ordering::Relaxed))
    }
    /// Steps of work that were done.
    pub fn worked(&self) -> u64 {
        self.account.work.used.load(Ordering::Relaxed)
    }

    /// Memory that is left.
    pub(crate) fn left(&self) -> Bytes {
        Bytes::new(self.size().get() - self.held().get())
    }

    /// Counts steps of work.
    pub(crate) fn work(&self, steps: u64) -> Result<(), Spent> {
        match self.account.work.draw(steps) {
            true => Ok(()),
            false => Err(Spent { thing: Thing::Work, size: self.size() }),
        }
    }
}

/// One account: what is drawn never passes the limit.
#[derive(Debug)]
struct Meter {
    limit: u64,
    used: AtomicU64,
}

impl Meter {
    fn new(limit: u64) -> Meter {
        Meter { limit, used: AtomicU64::new(0) }
    }
    fn draw(&self, n: u64) -> bool {
        let more = |used: u64| used.checked_add(n).filter(|used| *used <= self.limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }
    fn give(&self, n: u64) {
        self.used.fetch_sub(n, Ordering::Relaxed);
    }
}

/// A budget is spent: what ran out, and how large it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spent {
    /// What was about to be drawn.
    pub thing: Thing,
    /// The budget.
    pub size: Bytes,
}

impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Spent { thing, size } = self;
        match thing {
            Thing::Work => write!(f, "it takes more work than its budget of {size} allows")?,
            thing => {
                let name = thing.name();
                write!(f, "it takes more memory than its budget of {size} allows (for {name})")?;
            }
        }
        let more = Bytes::new(size.get().saturating_mul(4));
        write!(f, "; if you trust it, raise the budget, as with --budget {more}")
    }
}

impl std::error::Error for Spent {}

/// What one consumer has taken of a budget's memory; it is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Purse {
    budget: Budget,
    held: u64,
}

impl Purse {
    pub(crate) fn new(budget: &Budget) -> Purse {
        Purse { budget: budget.clone(), held: 0 }
    }

    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Takes memory for `count` of these, `each` bytes.
    pub(crate) fn take(&mut self, thing: Thing, count: u64, each: u64) -> Result<(), Spent> {
        let bytes = count.saturating_mul(each);
        if !self.budget.account.memory.draw(bytes) {
            return Err(Spent { thing, size: self.budget.size() });
        }
        self.held += bytes; // below the limit, as the account's sum is
        Ok(())
    }

    /// Gives some of it back.
    pub(crate) fn give(&mut self, count: u64, each: u64) {
        let bytes = count * each;
        self.held = self.held.checked_sub(bytes).expect("U3: only what was taken is given back");
        self.budget.account.memory.give(bytes);
    }

    /// Takes the memory of a text that is kept.
    pub(crate) fn take_text(&mut self, text: &str) -> Result<(), Spent> {
        self.take(Thing::Names, 1, cost::TEXT)?;
        self.take(Thing::Names, text.len() as u64, cost::LETTER)
    }

    /// Counts steps of work.
    pub(crate) fn work(&self, steps: u64) -> Result<(), Spent> {
        self.budget.work(steps)
    }

    /// Appends to a list whose memory is drawn here: the old one and the new one while it grows.
    pub(crate) fn push<T>(
        &mut self,
        thing: Thing,
        list: &mut Vec<T>,
        item: T,
    ) -> Result<(), Spent> {
        if list.len() == list.capacity() {
            let (old, more) = (list.capacity() as u64, list.capacity().max(4));
            let each = size_of::<T>() as u64;
            self.take(thing, old + more as u64, each)?;
            list.reserve_exact(more);
            self.give(old, each);
        }
        list.push(item);
        Ok(())
    }
}

impl Drop for Purse {
    fn drop(&mut self) {
        self.budget.account.memory.give(self.held);
    }
}

/// A map by address whose entries are drawn from a budget.
#[derive(Debug)]
pub(crate) struct Map<T> {
    entries: BTreeMap<u64, T>,
    purse: Purse,
    thing: Thing,
    each: u64,
}

impl<T> Map<T> {
    pub(crate) fn new(budget: &Budget, thing: Thing, each: u64) -> Map<T> {
        Map { entries: BTreeMap::new(), purse: Purse::new(budget), thing, each }
    }

    /// What it draws on.
    pub(crate) fn budget(&self) -> &Budget {
        self.purse.budget()
    }
    pub(crate) fn len(&self) -> u64 {
        self.entries.len() as u64
    }
    pub(crate) fn get(&self, at: u64) -> Option<&T> {
        self.entries.get(&at)
    }
    pub(crate) fn get_mut(&mut self, at: u64) -> Option<&mut T> {
        self.entries.get_mut(&at)
    }
    pub(crate) fn iter(&self) -> btree_map::Iter<'_, u64, T> {
        self.entries.iter()
    }
    pub(crate) fn range(&self, range: impl RangeBounds<u64>) -> btree_map::Range<'_, u64, T> {
        self.entries.range(range)
    }
    pub(crate) fn range_mut(
        &mut self,
        range: impl RangeBounds<u64>,
    ) -> btree_map::RangeMut<'_, u64, T> {
        self.entries.range_mut(range)
    }

    /// Counts steps of work.
    pub(crate) fn work(&self, steps: u64) -> Result<(), Spent> {
        self.purse.work(steps)
    }

    /// Puts an entry in, or another one in its place.
    pub(crate) fn insert(&mut self, at: u64, item: T) -> Result<(), Spent> {
        self.purse.work(1)?;
        match self.entries.entry(at) {
            btree_map::Entry::Occupied(mut there) => {
                there.insert(item);
            }
            btree_map::Entry::Vacant(free) => {
                self.purse.take(self.thing, 1, self.each)?;
                free.insert(item);
            }
        }
        Ok(())
    }

    /// Takes an entry out.
    pub(crate) fn remove(&mut self, at: u64) -> Option<T> {
        let gone = self.entries.remove(&at)?;
        self.purse.give(1, self.each);
        Some(gone)
    }

    /// Takes out all entries that begin in the range.
    pub(crate) fn clear_range(
        &mut self,
        range: &Range<u64>,
        each: impl FnMut(u64, T),
    ) -> Result<(), Spent> {
        self.clear_those(range, |_| true, each)
    }

    /// Takes out those that begin in the range and of which this is so.
    pub(crate) fn clear_those(
        &mut self,
        range: &Range<u64>,
        mut is_so: impl FnMut(&T) -> bool,
        mut each: impl FnMut(u64, T),
    ) -> Result<(), Spent> {
        if range.is_empty() {
            return Ok(());
        }
        let (mut seen, mut gone) = (0, 0);
        let those = |_: &u64, item: &mut T| {
            seen += 1;
            is_so(item)
        };
        for (at, item) in self.entries.extract_if(range.clone(), those) {
            gone += 1;
            each(at, item);
        }
        self.purse.give(gone, self.each);
        self.purse.work(seen)
    }
}

impl<T: Clone> Map<T> {
    /// A copy, whose entries are drawn as well.
    pub(crate) fn copy(&self) -> Result<Map<T>, Spent> {
        let mut copy = Map::new(self.purse.budget(), self.thing, self.each);
        copy.purse.work(self.len())?;
        copy.purse.take(self.thing, self.len(), self.each)?;
        copy.entries = self.entries.clone();
        Ok(copy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_never_passes_the_limit_and_comes_back() {
        let budget = Budget::of(Bytes::new(10_000));
        let mut purse = Purse::new(&budget);
        purse.take(Thing::Areas, 9, 1000).unwrap();
        let spent = purse.take(Thing::Pages, 2, 1000).unwrap_err();
        assert_eq!(spent, Spent { thing: Thing::Pages, size: Bytes::new(10_000) });
        assert_eq!(budget.held(), Bytes::new(9000), "a refusal takes nothing");
        assert!(purse.take(Thing::Pages, u64::MAX, 2).is_err(), "a product beyond all numbers");
        purse.give(1, 1000);
        let other = Purse::new(&budget.clone());
        drop(purse);
        drop(other);
        assert_eq!(budget.held(), Bytes::new(0));
    }

    #[test]
    fn a_map_draws_what_it_holds() {
        let budget = Budget::of(Bytes::new(1000));
        let mut map = Map::new(&budget, Thing::Pages, 100);
        for at in [5, 6, 7, 5] {
            map.insert(at, ()).unwrap();
        }
        assert_eq!(budget.held(), Bytes::new(300), "the same place twice is one entry");
        let copy = map.copy().unwrap();
        assert_eq!(budget.held(), Bytes::new(600));
        let mut gone = Vec::new();
        map.clear_range(&(6..9), |at, ()| gone.push(at)).unwrap();
        assert_eq!(gone, [6, 7]);
        assert_eq!(map.remove(9), None);
        assert_eq!(budget.held(), Bytes::new(400));
        drop((map, copy));
        assert_eq!(budget.held(), Bytes::new(0));
    }

    #[test]
    fn a_list_draws_its_capacity() {
        let budget = Budget::of(Bytes::new(8 * 1024));
        let (mut purse, mut list) = (Purse::new(&budget), Vec::new());
        let pushed = (0..2000u64).take_while(|n| purse.push(Thing::Steps, &mut list, *n).is_ok());
        let pushed = pushed.count();
        assert_eq!(list.len(), pushed);
        assert_eq!(budget.held().get(), list.capacity() as u64 * 8);
        assert!(pushed >= 256, "{pushed}: old and new list are there at once");
    }

    #[test]
    fn a_minutes_work_goes_with_each_gib() {
        let budget = Budget::default();
        budget.work(STEPS_PER_GIB).unwrap();
        let spent = budget.work(1).unwrap_err();
        assert_eq!(spent.thing, Thing::Work);
        let said = spent.to_string();
        assert!(said.contains("work") && said.contains("--budget 4g"), "{said}");
        assert!(Budget::of(Bytes::new(u64::MAX)).work(u64::MAX / 2).is_ok());
        Budget::unlimited().work(u64::MAX).unwrap();
    }
}
