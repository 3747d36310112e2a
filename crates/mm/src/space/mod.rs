//! Address spaces: areas, and what operations on them do to the page tables.
//!
//! ```text
//!   map      area in                                                    (nothing is present)
//!   unmap    area out ─▶ pages out, into a gather ─▶ tables out ─▶ flush ─▶ readers gone ─▶ freed
//!   protect  area changed ─▶ entries changed ─▶ flush
//!   fork     areas copied ─▶ entries write-protected and shared ─▶ flush
//! ```
//!
//! **Invariants**
//! - S1. Areas change before entries. A fault publishes and replaces entries without the writer's
//!   lock, and before it does so it looks its area up again under the table's lock: either the
//!   fault sees the change of the area and steps back, or the operation that changes the area sees
//!   the entry of the fault. A fault has no other way to write (`seen`), and the operation skips
//!   only what it has seen to be empty under that lock (table::I10), or in the top table
//!   (table::I5). A split or a move of a folio looks no area up: it takes out of use and brings
//!   back what is there, and an operation that would change the entry waits for it (S6).
//! - S2. A table is taken out only where no area is left in its reach, but for three that the
//!   holder of the writer takes out inside of an area: an empty one in the place of a huge page
//!   (`clear_way`), one whose leaves become one (the collapse of `compact`), and one of base level
//!   that is empty when an advice or an object has dropped all that it covers (`reclaiming`), so
//!   that a leaf of 2 MiB may come again. It is given back only after the flush and after every
//!   fault that may have walked through it is gone.
//! - S3. A page belongs to the space whose entry names it; the space's page count is the number of
//!   its entries that name folios, in base pages.
//! - S4. For every 2 MiB leaf of an anonymous folio or of shared zeros the space holds one table in
//!   deposit: taking a leaf apart cannot fail. A folio that takes the place of zeros keeps their
//!   table.
//! - S5. An entry without `EXCLUSIVE` is not writable. `EXCLUSIVE` is set only where no other entry
//!   names the page, but in an area of kernel memory, or one that shares an object, all of whose
//!   entries have it: a write there is never copied, though others map the page too.
//! - S6. A `Breaking` word or a migration entry is replaced by the CPU that wrote it alone; any
//!   other CPU that meets one lets go of the table and tries again.
//! - S7. In an area of huge pages there are entries of that size only. Where the area has
//!   reservations, every empty entry stands for one reservation of the pool, and so does an
//!   object's page in a private area, whose copy the reservation is for; a *spent* entry stands
//!   where the reservation was used and the page dropped again. The face asks for a reservation in
//!   the place of a page that an operation dropped (`huge::regain`): there is one unless pages were
//!   surplus, or others were faster.
//! - S8. An area's rights stay below its ceiling, the most that it may ever have. The ceiling is
//!   one of its properties: it goes with the area where that is moved, cut or forked, no operation
//!   raises it, and areas with different ceilings do not become one. The ceiling of kernel memory
//!   is the rights that it was lent with.
//! - S9. A leaf lies in areas of the same rights. A fault gives a leaf the rights of the area at
//!   its address, so a change of rights splits the leaves that reach over its ends, even those
//!   whose attributes stay as they are.
//! - S10. A group (table::I11) maps frames of one folio, and all its entries were made at once, by
//!   a fault, a fork, a remap, or a put of `split`, where nothing was or what was out of use and
//!   flushed. On every machine, and not only on those that demand it, the entries of a group are
//!   out of use before they are others: an operation that changes all of them breaks the group, and
//!   one that changes a part, or wants to, first takes the group apart into single entries with the
//!   same contents (`split_leaf`, `Agreed::split`). Single entries never become a group where they
//!   are.
//! - S11. A writable entry has `SOFT_DIRTY`, where the format keeps that: the operation that
//!   forgets that a page was written takes the right to write it too (`refs`), and a fault that
//!   gives the right back sets it.
//! - S12. An entry with `UFFD_WP` is not writable, and its area is armed for writes: no operation
//!   but `watch` and a fill gives an entry that bit, and a fault tells a write instead of making
//!   the entry writable. The area loses that property before its entries lose the bit.
//! - S13. A move takes its areas out before it knows whether it gets the tables for their entries:
//!   from then on nothing comes to the old range (S1), so it makes tables for what is there and no
//!   more. Where it gets none it puts them back as they were. So a caller that finds no area
//!   without the writer does not know yet that there is none: it looks again behind the writer
//!   (`settled_area`, `grow`), or does what is right in both cases.
//!
//! **Locking.** `writer` (`[w]`) excludes all operations but faults, and splits and moves of folios
//! (S6). Two calls may do all that its holder may without taking it: `end`, once the space has
//! neither name nor users, and `fork` in the child, whose name nobody knows yet. The holder lets
//! others run (`steps`), and a caller that waits for the writer holds nothing that others spin for
//! (`sync::outside`). The order is: the writer, then one table at a time (fork: the parent's, then
//! the child's, which only walks of the reverse map can reach besides; collapse: a table, then the
//! one below it). Under a table's lock nothing is allocated or cleared (G8), and nothing is waited
//! for but what table::I9 allows.
//!
//! **The walk.** An operation that changes what a range holds does not step from entry to entry by
//! itself: it says what becomes of a word (`table::Edit`) and where the old content goes
//! (`table::Sink`), and `walk` goes over the range. The loops that make tables, count missing ones
//! or take empty ones out of a huge page's place (`clear_way`) go from table to table. A transfer
//! goes from place to place of two tables: what is done at one end depends on the other.
//!
//! **Not here**: what a fault does (`fault`), walks of the reverse map (`rmap`), splitting of
//! folios (`split`; here only their leaves are split).

mod advise;
mod anchor;
mod area;
mod areas;
mod attach;
mod broken;
mod error;
mod fork;
mod huge;
mod kernel;
mod life;
mod names;
mod object;
mod ops;
mod places;
mod record;
mod refs;
mod remap;
mod seen;
mod steps;
mod switch;
mod transfer;
mod walk;
mod watch;
mod zap;

#[cfg(all(test, not(loom)))]
mod areas_model;

pub use crate::ranges::Edge;
pub use advise::Advice;
pub use area::{Area, AreaLimit, Flags};
pub use error::{MapError, RangeError};
pub use names::{ObjectId, SpaceId};
pub use ops::{MapRequest, Place};
pub use record::{Around, ProcessSwitch};
pub use refs::Refs;
pub use remap::{Move, RemapError};
pub use transfer::{Holes, TransferError, Untransferred};
pub use watch::Watch;

pub(crate) use advise::{advise, cut};
pub(crate) use anchor::anchor;
pub(crate) use attach::{Copies, first_copying, may_write_to, subpool, zap_attached};
pub(crate) use broken::withdraw;
pub(crate) use fork::{CopyHuge, fork};
pub(crate) use huge::{
    check as check_huge, clear_way, dropped, keep_own, level_of, regain, take_away,
};
pub(crate) use kernel::map_kernel;
pub(crate) use life::{EndError, create, end};
pub(crate) use names::Pinned;
pub(crate) use object::{
    Reserving, collect, create_object, drop_object, reserve_object, resize_object, unname,
};
pub(crate) use ops::{check, grow, has_place, map, map_object, protect, room, settled_area, unmap};
pub(crate) use places::{SPENT_BEHIND, is_lost, plain_place, poisoned_place};
pub(crate) use record::Space;
pub(crate) use refs::clear_refs;
pub(crate) use remap::remap;
pub(crate) use seen::{Agreed, Seen, SeenTables};
pub(crate) use steps::Steps;
pub(crate) use switch::{Ending, switch};
pub(crate) use transfer::{Halt, transfer};
pub(crate) use watch::{watch, watched};

use crate::flush::{Gather, Used};
use crate::stock::{Event, Stock, Supply};
use crate::table::{Attrs, Half, Paging, Spare, Tables};
use foliant_machine::{Accessed, Machine};
use foliant_units::{Level, Va, VaRange};

/// The user half of the format, as a range.
pub(crate) fn user_half<P: Paging>() -> VaRange {
    let (first, last) = P::half(Half::User);
    VaRange::new(first, Va::new(last.get() & !4095)).expect("a half is a range")
}

/// The attributes of a user page in an area with `flags`, not yet written to.
pub(crate) fn attrs(flags: Flags) -> Attrs {
    let mut attrs = Attrs::NONE;
    if flags.and(Flags::RIGHTS) != Flags::NONE {
        attrs = attrs.with(Attrs::USER);
    }
    if flags.has(Flags::EXEC) {
        attrs = attrs.with(Attrs::EXEC);
    }
    attrs
}

/// What a migration entry keeps of a leaf: everything (split::T3). A CPU that has the leaf cached
/// may still write through it until the flush, and its dirty bit may be lost (G4), so a leaf that
/// could be written is taken for dirty.
pub(crate) fn kept(attrs: Attrs, accessed: Accessed) -> Attrs {
    let is_cached = attrs.has(Attrs::ACCESSED) || accessed != Accessed::SetBeforeCached;
    if is_cached && attrs.has(Attrs::WRITE) { attrs | Attrs::DIRTY } else { attrs }
}

/// Makes the base tables of `range`, where nothing is mapped. The caller holds the writer.
fn reach<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    range: VaRange,
    steps: &mut Steps,
) -> Result<(), RangeError> {
    let before = || steps.take(stock.machine, Steps::TABLE);
    let mut supply = Supply::of(stock, &space.charge);
    let done = supply.ensure_range(&space.tables(stock), range, Level::BASE, before);
    done.map_err(|why| why.in_empty().into())
}

/// Charges the tables that base entries of all of `range` need and that are not there. The holder
/// of the writer never lacks more: tables that are there stay, and a leaf has a table kept for it
/// (space::S4).
fn prepaid<'s, 'm, M: Machine, P: Paging>(
    stock: &'s Stock<'m, M, P>,
    space: &'s Space,
    range: VaRange,
    steps: &mut Steps,
) -> Result<Supply<'s, 'm, M, P>, RangeError> {
    let tables: Tables<'_, M, P> = space.tables(stock);
    let missing = tables.missing_in(range, || steps.take(stock.machine, 1));
    Ok(Supply::prepaid(stock, &space.charge, missing.get())?)
}

/// Takes the 2 MiB leaf of a folio at `va` apart into base entries, with the table kept for it
/// (S4), or a group of base entries into single ones (S10). Nothing changes where there is none any
/// more. The caller holds the writer: otherwise the leaf could be a huge page's by now (`seen`).
pub(crate) fn split_leaf<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    tables: &Tables<'_, M, P>,
    va: Va,
    level: Level,
) {
    let mut gather = Gather::new(stock, &space.member.target);
    // The leaf is broken first, on every machine: a large and a small translation of one page never
    // live side by side (G3).
    if let Ok(run) = tables.split_begin(va, level) {
        gather.note(run.range(), level, Used::Yes);
        gather.flush();
        finish_split(stock, space, tables, va, level);
    }
}

/// Puts the table that was kept for a leaf in its place, or single entries in the place of a group.
/// The caller has broken and flushed it.
fn finish_split<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    tables: &Tables<'_, M, P>,
    va: Va,
    level: Level,
) {
    // The table is withdrawn only now: of several CPUs that come to split or to unmap the leaf, the
    // one that took the leaf takes its table (S4).
    let mut spare = match level {
        Level::BASE => Spare::new(),
        _ => Spare::of(space.withdraw(stock)),
    };
    if level == Level::BASE {
        stock.count(Event::ContSplit);
    }
    tables.split_finish(va, level, &mut spare).expect("begun and supplied");
}
