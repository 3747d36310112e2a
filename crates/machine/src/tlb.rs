#![allow(unsafe_code)]
//! Cached translations: which root a CPU runs, and how cached translations are ended.

use crate::MmuRules;
use core::fmt;
use core::mem::MaybeUninit;
use foliant_units::{CpuSet, Level, Pa, VaRange};

/// The page tables that a CPU runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Root {
    /// The top table of the user half. Where the hardware has one root for both halves, this
    /// table's upper half holds the same words as `kernel`'s.
    pub user: Pa,
    /// The top table of the kernel half.
    pub kernel: Pa,
}

/// Whether what a CPU still has cached of a root that it ran before may be used again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kept {
    /// No: it may be stale, or of an earlier root in the same frame.
    Nothing,
    /// Yes. The CPU activated this very root before, and of every word reachable from it that has
    /// changed since then, and that could be cached, the CPU has carried the invalidation out or is
    /// still going to be asked.
    Unchanged,
}

/// The translations that an invalidation means.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scope {
    /// Those of the user half, non-global, that were cached through this user root, whether or not
    /// the CPU runs it now.
    Space(Pa),
    /// Those of the kernel half, global ones included, whichever root a CPU runs and whichever root
    /// it cached them through.
    Kernel,
}

/// Whether page tables were taken out of the range, so that cached pointers to them must go too. It
/// says nothing about leaves: those that a table still had when it was taken out are listed at
/// their own level, by the same item or by another one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Tables {
    /// Only leaves changed: paging-structure caches may stay.
    Kept,
    /// Tables were removed or replaced: paging-structure caches for the range must go, of every
    /// level.
    Removed,
}

/// One range of translations to end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Item {
    /// The addresses, aligned to the level's span.
    pub range: VaRange,
    /// The level of the leaves that were changed: the stride of the invalidations. Leaves of
    /// another level in the range may stay (hardware may take the level as a hint), and smaller
    /// ones between two strides do stay, so each level that may be cached has to be listed. For a
    /// table that was empty it is the level of the word that named it.
    pub level: Level,
    /// Whether tables went too.
    pub tables: Tables,
}

impl Item {
    /// How many leaves of its level the range holds.
    pub const fn entries(&self) -> u64 {
        self.range.bytes().get() / self.level.span().get()
    }
}

/// How much of a scope an invalidation ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reach {
    /// The listed items only.
    Items,
    /// All of the scope, paging-structure caches included.
    All,
}

/// What to invalidate. A plain value of bounded size, so that a request can be copied into a
/// mailbox and needs no memory.
#[derive(Clone, Copy)]
pub struct Invalidation {
    scope: Scope,
    reach: Reach,
    /// Those below `len` were written.
    items: [MaybeUninit<Item>; Invalidation::ITEMS_MAX],
    len: u8,
}

impl Invalidation {
    /// How many items one invalidation holds.
    pub const ITEMS_MAX: usize = 16;

    /// An invalidation of `scope` that lists nothing yet.
    pub const fn none(scope: Scope) -> Invalidation {
        Invalidation {
            scope,
            reach: Reach::Items,
            items: [const { MaybeUninit::uninit() }; Invalidation::ITEMS_MAX],
            len: 0,
        }
    }
    /// An invalidation of all of `scope`.
    pub const fn all(scope: Scope) -> Invalidation {
        Invalidation { reach: Reach::All, ..Invalidation::none(scope) }
    }
    /// Adds `item`; a full list gives it back.
    pub fn push(&mut self, item: Item) -> Result<(), Item> {
        match self.items.get_mut(self.len as usize) {
            Some(slot) => {
                slot.write(item);
                self.len += 1;
                Ok(())
            }
            None => Err(item),
        }
    }
    /// Takes back all that it lists: it is as [`none`](Invalidation::none) of the same scope.
    pub fn reset(&mut self) {
        self.reach = Reach::Items;
        self.len = 0;
    }
    /// Turns it into an invalidation of the whole scope.
    pub fn widen(&mut self) {
        self.reach = Reach::All;
        self.len = 0;
    }
    /// The translations that are meant.
    pub const fn scope(&self) -> Scope {
        self.scope
    }
    /// The listed items, or all.
    pub const fn reach(&self) -> Reach {
        self.reach
    }
    /// The items, in the order they were added. Empty where everything is meant.
    pub fn items(&self) -> &[Item] {
        let written = &self.items[..self.len as usize];
        // SAFETY: `push` wrote each of them before it counted it.
        unsafe { &*(written as *const [MaybeUninit<Item>] as *const [Item]) }
    }
    /// The items, for coalescing.
    pub fn items_mut(&mut self) -> &mut [Item] {
        let written = &mut self.items[..self.len as usize];
        // SAFETY: as in `items`.
        unsafe { &mut *(written as *mut [MaybeUninit<Item>] as *mut [Item]) }
    }
    /// Becomes what `other` is, by copying what that lists and no more.
    pub fn assign(&mut self, other: &Invalidation) {
        (self.scope, self.reach, self.len) = (other.scope, other.reach, other.len);
        for (own, item) in self.items.iter_mut().zip(other.items()) {
            own.write(*item);
        }
    }
    /// Whether nothing is to be invalidated.
    pub fn is_empty(&self) -> bool {
        self.reach == Reach::Items && self.len == 0
    }
}

impl fmt::Debug for Invalidation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Invalidation");
        out.field("scope", &self.scope).field("reach", &self.reach);
        out.field("items", &self.items()).finish()
    }
}

/// An issued request to other CPUs. It must be waited for; nothing is promised before.
#[derive(Debug)]
#[must_use = "other CPUs may use the old translations until the ticket has been waited for"]
pub struct Ticket {
    number: u64,
}

impl Ticket {
    /// A ticket that a machine tells apart by `number`.
    pub const fn new(number: u64) -> Ticket {
        Ticket { number }
    }
    /// The machine's number.
    pub const fn number(&self) -> u64 {
        self.number
    }
}

/// Cached translations of this CPU and of the others.
pub trait Tlb {
    /// Makes the calling CPU run `root`. Until it activates another one it uses global translations
    /// and those that it cached through `root`, and no others; those of other roots may stay
    /// cached, under a tag.
    ///
    /// With [`Kept::Nothing`] no non-global translation or paging-structure entry that the CPU
    /// cached before through this user root is used any more. With [`Kept::Unchanged`] all of them
    /// may be used: the caller vouches that none is stale but those whose invalidation is
    /// outstanding. A machine without tags ends them either way.
    ///
    /// The caller must have published the space's interest (so that others will ask this CPU)
    /// *before* it calls, and before it concludes `Unchanged`: a word cleared afterwards would
    /// otherwise be cached unseen. A request that arrives between the two, while the CPU still runs
    /// another root, counts (see [`Scope::Space`]).
    fn activate(&self, root: Root, kept: Kept);

    /// Carries out `what` on the calling CPU. When it returns no covered translation is used by it,
    /// now or after a later `activate`: what the CPU keeps under the tags of other roots is covered
    /// like the rest. (A machine may do that by noting that the tag is stale.)
    fn invalidate(&self, what: &Invalidation);

    /// Asks every CPU in `cpus` to carry out `what`. The calling CPU is ignored if listed. It
    /// returns at once; a request may be carried out at any time from now on, and as late as the
    /// wait allows. Stores made before the call are seen by walks that an asked CPU starts after
    /// carrying it out.
    fn ask(&self, cpus: &CpuSet, what: &Invalidation) -> Ticket;

    /// Returns when every asked CPU has carried out the request. While it waits the calling CPU
    /// carries out requests of others, so two CPUs that ask each other both get through. The caller
    /// holds no lock that an asked CPU may be spinning for with interrupts off.
    fn wait(&self, ticket: Ticket);

    /// What the hardware promises and forbids; the same answer every time.
    fn rules(&self) -> MmuRules;
}

#[cfg(test)]
mod tests {
    use super::*;
    use foliant_units::{Bytes, Pa, Va};

    #[test]
    fn a_full_list_gives_the_item_back_and_all_lists_nothing() {
        let mut what = Invalidation::none(Scope::Kernel);
        let item = |page: u64| Item {
            range: VaRange::sized(Va::new(page << 12), Bytes::new(4096)).unwrap(),
            level: Level::BASE,
            tables: Tables::Kept,
        };
        assert!(what.is_empty());
        for page in 0..Invalidation::ITEMS_MAX as u64 {
            assert_eq!(what.push(item(page)), Ok(()));
            assert!(!what.is_empty());
            assert_eq!(what.items().last(), Some(&item(page)));
        }
        assert_eq!(what.push(item(99)), Err(item(99)));
        assert_eq!(what.items().len(), Invalidation::ITEMS_MAX);
        assert_eq!(what.reach(), Reach::Items);
        what.widen();
        assert_eq!((what.reach(), what.items()), (Reach::All, &[][..]));
        assert!(!what.is_empty(), "all is not nothing");
        what.reset();
        assert!(what.is_empty() && what.scope() == Scope::Kernel, "it begins anew");
        // A copy is what the other is, whatever it was before.
        let mut few = Invalidation::none(Scope::Space(Pa::new(4096)));
        assert_eq!((few.push(item(7)), few.push(item(9))), (Ok(()), Ok(())));
        assert_eq!(what.push(item(1)), Ok(()));
        for other in [&few, &Invalidation::all(Scope::Kernel), &Invalidation::none(few.scope())] {
            what.assign(other);
            assert_eq!((what.scope(), what.reach()), (other.scope(), other.reach()));
            assert_eq!(what.items(), other.items());
        }
        let all = Invalidation::all(Scope::Kernel);
        assert_eq!((all.reach(), all.scope(), all.items()), (Reach::All, Scope::Kernel, &[][..]));
    }
}
