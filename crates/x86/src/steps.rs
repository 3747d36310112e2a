//! What an invalidation means on one CPU: which pages, or how much at once.
//!
//! A pure function of the request, of the root that the CPU walks and of whether it has tags, so
//! that a table of cases tests it.
//!
//! | instruction | ends (Intel SDM volume 3A, 4.10.4.1) | under |
//! |---|---|---|
//! | INVLPG | the page's translations of any size, global ones too; all paging-structure entries | the tag in CR3 |
//! | MOV to CR3, bit 63 clear | all but global translations; all paging-structure entries | the tag it names |
//! | INVPCID type 2, or CR4.PGE changed | all | every tag |
//!
//! **Invariants**
//! - P1. A space that is not loaded has nothing here without tags:
//!   [`activate`](foliant_machine::Tlb::activate) ended it (X4), and no walk starts at a root that
//!   is not in CR3. With tags its tag is marked stale (`tags` G3).
//! - P2. One INVLPG for each leaf of an item's level. A removed table needs no more: the first
//!   INVLPG of the list ends every cached pointer (X4), and its leaves are listed on their own or
//!   are the item's level.
//! - P3. Above [`CEILING_ENTRIES`] all of the scope goes at once.
//! - P4. With tags the kernel's scope is ended whole. It is cached under each of them, of which
//!   INVLPG reaches one; and while tags are on INVLPG misses global translations on some processors
//!   (Intel's errata ADL063 and RPL042).
//!
//! **Not here**: the instructions (`control`).

use crate::tags::Tagging;
use foliant_machine::{Invalidation, Item, Reach, Scope};
use foliant_units::{Pa, Va};

/// Up to how many entries single invalidations are cheaper than filling the TLB anew: the figure
/// that Linux uses (`tlb_single_page_flush_ceiling`), measured there on several generations of
/// CPUs.
pub(crate) const CEILING_ENTRIES: u64 = 33;

/// The highest level of an entry, of five.
const LEVEL_MAX: u8 = 4;

/// What one CPU has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Steps {
    /// Nothing is to be done: the scope is not loaded here, or nothing is listed.
    Nothing,
    /// INVLPG of each of [`pages`].
    Pages,
    /// A load of CR3.
    Nonglobal,
    /// Everything, global translations included.
    Everything,
    /// Nothing now, but what is cached under the root's tag is not used again.
    Outdate(Pa),
}

/// What `what` means on a CPU that walks `loaded`.
#[inline]
pub(crate) fn steps(what: &Invalidation, loaded: Pa, tagging: Tagging) -> Steps {
    let (pages, wide) = match (what.scope(), tagging) {
        (Scope::Space(root), Tagging::Off) if root != loaded => return Steps::Nothing, // P1
        (Scope::Space(root), Tagging::On) if root != loaded => {
            (Steps::Outdate(root), Steps::Outdate(root)) // P1
        }
        (Scope::Space(_), _) => (Steps::Pages, Steps::Nonglobal),
        (Scope::Kernel, Tagging::Off) => (Steps::Pages, Steps::Everything),
        (Scope::Kernel, Tagging::On) => (Steps::Everything, Steps::Everything), // P4
    };
    match (what.reach(), entries(what.items())) {
        (Reach::All, _) => wide,
        (Reach::Items, 0) => Steps::Nothing,
        (Reach::Items, count) if count > CEILING_ENTRIES => wide, // P3
        (Reach::Items, _) => pages,
    }
}

/// How many leaves `items` list; a level that no table has counts as too many.
#[inline]
pub(crate) fn entries(items: &[Item]) -> u64 {
    items.iter().fold(0, |sum: u64, item| match item.level.0 {
        0..=LEVEL_MAX => sum.saturating_add(strides(item)),
        _ => u64::MAX,
    })
}

/// The listed leaves (P2), item by item: the first address, how many there are, and the bytes of
/// each. Used only where [`steps`] gives `Pages`.
#[inline]
pub(crate) fn leaves(what: &Invalidation) -> impl Iterator<Item = (Va, u64, u64)> + '_ {
    what.items().iter().map(|item| {
        let span = item.level.span();
        (item.range.start().align_down(span), strides(item), span.get())
    })
}

/// How many leaves of its level the item's range touches. The contract aligns ranges; one that is
/// not is rounded out.
#[inline]
pub(crate) fn strides(item: &Item) -> u64 {
    let span = item.level.span();
    if item.range.is_empty() {
        return 0;
    }
    let last = item.range.end().get() - 1;
    ((last - item.range.start().align_down(span).get()) >> span.get().trailing_zeros()) + 1
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use foliant_machine::Tables;
    use foliant_units::{Bytes, Level, VaRange};
    extern crate std;
    use std::vec::Vec;

    pub(crate) fn item(start: u64, leaves: u64, level: Level, tables: Tables) -> Item {
        let bytes = Bytes::new(leaves * level.span().get());
        Item { range: VaRange::sized(Va::new(start), bytes).unwrap(), level, tables }
    }

    pub(crate) fn list(scope: Scope, items: &[Item]) -> Invalidation {
        let mut what = Invalidation::none(scope);
        items.iter().for_each(|item| what.push(*item).unwrap());
        what
    }

    const ROOT: Pa = Pa::new(0x1000);
    const OTHER: Pa = Pa::new(0x2000);
    const SPACE: Scope = Scope::Space(ROOT);

    fn pages(what: &Invalidation) -> impl Iterator<Item = Va> {
        leaves(what).flat_map(|(first, count, span)| (0..count).map(move |n| first.add(n * span)))
    }

    #[test]
    fn scope_reach_and_count_decide() {
        let one = item(0x40_0000, 1, Level::BASE, Tables::Kept);
        let limit = item(0x40_0000, CEILING_ENTRIES, Level::BASE, Tables::Kept);
        let many = item(0x40_0000, CEILING_ENTRIES + 1, Level::BASE, Tables::Kept);
        let large = item(0, CEILING_ENTRIES, Level::SIZE_2M, Tables::Kept);
        let table = item(0x40_0000, 1, Level::SIZE_2M, Tables::Removed);
        let root_table = item(0, 1, Level(3), Tables::Removed);
        let half = item(0x40_0000, CEILING_ENTRIES / 2 + 1, Level::BASE, Tables::Kept);
        let empty = item(0x40_0000, 0, Level::BASE, Tables::Kept);
        let unknown = Item { level: Level(200), ..one };
        for (items, space, kernel) in [
            (&[one][..], Steps::Pages, Steps::Pages),
            (&[limit], Steps::Pages, Steps::Pages),
            (&[many], Steps::Nonglobal, Steps::Everything),
            (&[large], Steps::Pages, Steps::Pages),
            (&[table], Steps::Pages, Steps::Pages),
            (&[root_table], Steps::Pages, Steps::Pages),
            (&[half, half], Steps::Nonglobal, Steps::Everything),
            (&[unknown], Steps::Nonglobal, Steps::Everything),
            (&[empty], Steps::Nothing, Steps::Nothing),
            (&[], Steps::Nothing, Steps::Nothing),
        ] {
            let of = |scope, loaded, tagging| steps(&list(scope, items), loaded, tagging);
            assert_eq!(of(SPACE, ROOT, Tagging::Off), space, "{items:?}");
            assert_eq!(of(SPACE, ROOT, Tagging::On), space, "{items:?}");
            assert_eq!(of(SPACE, OTHER, Tagging::Off), Steps::Nothing, "{items:?}");
            assert_eq!(of(Scope::Kernel, OTHER, Tagging::Off), kernel, "{items:?}");
            let unless_nothing = |steps| if space == Steps::Nothing { space } else { steps };
            let (outdate, everything) = (Steps::Outdate(ROOT), Steps::Everything);
            assert_eq!(of(SPACE, OTHER, Tagging::On), unless_nothing(outdate), "{items:?}");
            assert_eq!(
                of(Scope::Kernel, ROOT, Tagging::On),
                unless_nothing(everything),
                "{items:?}"
            );
        }
        for (scope, loaded, off, on) in [
            (SPACE, ROOT, Steps::Nonglobal, Steps::Nonglobal),
            (SPACE, OTHER, Steps::Nothing, Steps::Outdate(ROOT)),
            (Scope::Kernel, OTHER, Steps::Everything, Steps::Everything),
        ] {
            assert_eq!(steps(&Invalidation::all(scope), loaded, Tagging::Off), off);
            assert_eq!(steps(&Invalidation::all(scope), loaded, Tagging::On), on);
        }
    }

    #[test]
    fn one_page_for_each_leaf_of_the_level() {
        let what = list(
            SPACE,
            &[
                item(0x7000, 3, Level::BASE, Tables::Kept),
                item(0x40_0000, 2, Level::SIZE_2M, Tables::Removed),
                item(1 << 30, 1, Level::SIZE_1G, Tables::Kept),
            ],
        );
        let starts: Vec<u64> = pages(&what).map(Va::get).collect();
        assert_eq!(starts, [0x7000, 0x8000, 0x9000, 0x40_0000, 0x60_0000, 1 << 30]);
    }

    #[test]
    fn ranges_that_are_not_aligned_are_rounded_out() {
        let range = VaRange::new(Va::new(0x3f_f000), Va::new(0x60_1000)).unwrap();
        let what = list(SPACE, &[Item { range, level: Level::SIZE_2M, tables: Tables::Kept }]);
        let starts: Vec<u64> = pages(&what).map(Va::get).collect();
        assert_eq!(starts, [0x20_0000, 0x40_0000, 0x60_0000]);
    }

    #[test]
    fn the_last_page_of_the_kernel_half_is_reached() {
        let last = Va::new(0u64.wrapping_sub(8192));
        let what = list(Scope::Kernel, &[item(last.get(), 1, Level::BASE, Tables::Kept)]);
        assert!(pages(&what).eq([last]));
    }
}
