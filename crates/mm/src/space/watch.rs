//! Watched pages: a write to one is told to the handler instead of being done.
//!
//! ```text
//!   watch     entry loses the right to write, gets UFFD_WP; a missing page's place a marker ─▶ flush
//!   write     told (Outcome::UserfaultWrite), until the handler lifts it
//!   lift      entry loses UFFD_WP, may be written as before; a marker goes
//! ```
//!
//! **Invariants**
//! - H1. Only entries of areas that are armed for writes are watched, and such an entry is not
//!   writable (space::S12). A fault neither writes to a watched page nor lets it be written to; it
//!   watches one itself only where it finds a marker, or fills a page that is to be watched.
//! - H2. Once the operation is over, no CPU has a translation by which it writes to a page that the
//!   operation has watched. A write that is told later finds the page as it was then.
//! - H3. A marker stands in the place of a missing page. A read finds zeros there, which are
//!   watched; a write is told. Where missing pages are told as well, they are told as missing.
//! - H4. What is watched stays so where a leaf is split and where a folio is moved. It ends where
//!   contents are dropped, in a child, and at the new addresses of memory that is moved: the
//!   handler knows of addresses, and of one space.
//! - H5. In an area that maps an object a page leaves and comes back without the program's doing.
//!   So what is watched there stays so where it leaves: a marker takes its place, until the area is
//!   unmapped, moved or armed no more. An area of huge pages does the same, as Linux has it.
//! - H6. Of an object that was once mapped by an armed area no page goes because it holds zeros:
//!   the handler would be told of it anew.
//! - H7. A huge page of a pool is watched as a whole. The marker of its place says beside what the
//!   place says else (`huge`): whether a page there is a reserved one.
//!
//! **Not here**: which handler is told.

use super::area::{Area, Flags};
use super::error::RangeError;
use super::huge;
use super::ops::{Rewrite, check, covered, opened};
use super::places::MARKER;
use super::prepaid;
use super::record::Space;
use super::steps::Steps;
use super::walk::{self, Noting};
use super::zap::behind;
use crate::flush::Gather;
use crate::stock::{NoTable, Stock, Supply};
use crate::table::{At, Attrs, Blocked, Edit, Paging, Soft, SoftKind, Tables, Verdict};
use foliant_machine::Machine;
use foliant_units::{Level, Pa, VaRange};

/// What becomes of writes to the pages of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Watch {
    /// Those to pages that are there are told.
    Present,
    /// Those to any page are told, also where none is there yet.
    All,
    /// None is told any more.
    Nothing,
}

/// Whether pages of an area may be watched.
pub(super) fn is_watchable<P: Paging>(area: &Area) -> bool {
    P::KEEPS.has(Attrs::UFFD_WP) && !area.flags.has(Flags::KERNEL)
}

/// Has writes to the pages of a range told, or not any more. Areas that are armed for writes cover
/// it without a hole.
pub(crate) fn watch<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    range: VaRange,
    watch: Watch,
    steps: &mut Steps,
) -> Result<(), RangeError> {
    check::<P>(range)?;
    let _writer = space.writer.lock(stock.machine, steps.outside());
    covered(stock, space, range, |area| match area.flags.has(Flags::USERFAULT_WRITE) {
        true => huge::uncut(area, range),
        false => Err(RangeError::Hole(area.range.start().max(range.start()))),
    })?;
    if watch == Watch::All {
        make_tables(stock, space, range, steps)?;
    }
    let mut gather = Gather::new(stock, &space.member.target);
    change(stock, space, range, &mut gather, watch, steps);
    gather.settle();
    gather.flush();
    Ok(())
}

/// Changes what is watched in a range. The caller holds the writer, and flushes.
pub(super) fn change<'g, 'm, M: Machine, P: Paging>(
    stock: &'g Stock<'m, M, P>,
    space: &'g Space,
    range: VaRange,
    gather: &mut Gather<'g, 'm, M, P>,
    watch: Watch,
    steps: &mut Steps,
) {
    for area in space.areas.overlapping(stock.machine, range) {
        let (start, end) = (area.range.start(), area.range.end());
        let part = VaRange::new(start.max(range.start()), end.min(range.end()));
        let part = part.expect("the area overlaps the range");
        if let Some(order) = area.flags.huge_order()
            && watch != Watch::Present
        {
            // Places first: what a fault puts there meanwhile is found as a leaf.
            let watches = watch == Watch::All;
            huge::watch_places(stock, space, gather, (part, order), watches, steps);
        }
        let change = move |old: Attrs| match watch {
            Watch::Present | Watch::All => watched(old),
            Watch::Nothing => lifted::<P>(old, area.flags),
        };
        let replace = stock.machine.rules().replace;
        // Rights stay as they are: no leaf is split where nothing changes (S9).
        let edit =
            Watching { leaves: Rewrite { range: super::user_half::<P>(), change, replace }, watch };
        let mut sink = Noting { machine: stock.machine, gather, steps };
        walk::edit(stock, space, part, &edit, &mut sink);
    }
}

/// Of a page that is watched from here on.
pub(crate) fn watched(old: Attrs) -> Attrs {
    old.without(Attrs::WRITE).with(Attrs::UFFD_WP)
}
/// Of one that is not any more: what is the space's own may be written as before (S5, S11).
fn lifted<P: Paging>(old: Attrs, flags: Flags) -> Attrs {
    match old.has(Attrs::UFFD_WP) {
        true => opened::<P>(old.without(Attrs::UFFD_WP), flags),
        false => old,
    }
}

/// Makes the tables of a range that markers are put in.
fn make_tables<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    range: VaRange,
    steps: &mut Steps,
) -> Result<(), RangeError> {
    for area in space.areas.overlapping(stock.machine, range) {
        let part = area.range.intersect(range);
        match area.flags.huge_order() {
            None => make_base_tables(stock, space, part, steps)?,
            Some(order) => {
                let (tables, mut supply) = (space.tables(stock), Supply::of(stock, &space.charge));
                let before = || steps.take(stock.machine, Steps::TABLE);
                let done = supply.ensure_range(&tables, part, huge::level_of(order), before);
                done.map_err(|why| why.in_empty())?;
            }
        }
    }
    Ok(())
}
/// Makes the base tables of a range, but for those that large leaves stand for, so that there is
/// room for markers. All are charged before the first comes; without a frame for one, those that
/// came stay, empty.
fn make_base_tables<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    range: VaRange,
    steps: &mut Steps,
) -> Result<(), RangeError> {
    let tables: Tables<'_, M, P> = space.tables(stock);
    let mut supply = prepaid(stock, space, range, steps)?;
    let mut va = range.start();
    while va < range.end() {
        steps.take(stock.machine, Steps::TABLE);
        match supply.ensure(&tables, va, Level::BASE) {
            Ok(()) | Err(NoTable::Blocked(Blocked::Leaf(_))) => va = behind(va, Level::SIZE_2M),
            Err(NoTable::Record(why)) => return Err(why.into()),
            Err(NoTable::Blocked(Blocked::Soft(level))) => {
                // A leaf is being replaced here, unless that is over by now.
                tables.lock(va, level).into_iter().for_each(|locked| locked.let_go().wait());
            }
            Err(NoTable::Blocked(why)) => panic!("{range:?} was checked, and yet: {why}"),
        }
    }
    Ok(())
}

/// Other attributes for leaves, and markers that come or go.
struct Watching<C> {
    leaves: Rewrite<C>,
    watch: Watch,
}

impl<P: Paging, C: Fn(Attrs) -> Attrs> Edit<P> for Watching<C> {
    fn ignores(&self) -> u64 {
        Edit::<P>::ignores(&self.leaves)
    }
    fn leaf(&self, at: At, word: u64, pa: Pa, attrs: Attrs) -> Verdict {
        Edit::<P>::leaf(&self.leaves, at, word, pa, attrs)
    }
    fn soft(&self, at: At, soft: Soft) -> Verdict {
        match soft.kind {
            SoftKind::Marker if self.watch == Watch::Nothing => Verdict::Put(0),
            _ => Edit::<P>::soft(&self.leaves, at, soft),
        }
    }
    fn fills(&self) -> bool {
        self.watch == Watch::All
    }
    fn empty(&self, _: At) -> u64 {
        MARKER
    }
}
