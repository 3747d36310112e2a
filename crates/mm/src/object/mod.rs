//! Objects: memory with an identity of its own, which several spaces map.
//!
//! ```text
//!   program a ─ area ─▶ attachment ┐                         page i  ◀── leaf at i * 4 KiB of the object's tables
//!   program b ─ area ─▶ attachment ┴▶ object: a space that no CPU runs ─┬─ areas: the pages that it may have (its size)
//!   the kernel ─ reads, writes ─────────────────────────────────────▶   └─ tables: those that it has
//! ```
//!
//! An object is a space that no CPU runs. Its addresses are the offsets of its pages, its areas say
//! how large it is, and its tables which pages it has: a reader walks them without a lock, a folio
//! of 2 MiB is one entry in them, and they grow by frames that the object is charged for. A page
//! comes as it comes in any space, by a fault, so sizes, fallback, clearing and limits are those of
//! faults; it goes by the same edit. Splits, moves and compaction find the object's own entries as
//! those of any space, and then those of its attachments (`rmap`). Record 110 compares this with a
//! tree of pages.
//!
//! **Invariants**
//! - O1. The page with number i of an object is what its tables map at the address of page i. It
//!   counts there as one entry, which keeps it.
//! - O2. An entry of a space that names a folio of an object lies in an area with an attachment to
//!   it, at the address of the page's number less the attachment's distance (rmap::R1).
//! - O3. Pages leave an object in this order: the areas of its space, where it becomes shorter (so
//!   none comes), the entries of its tables, the entries of its attachments. A fault publishes what
//!   the tables say under the lock under which the last step looks (fault::object::J1). So when the
//!   call is over no CPU reaches what has left, and what it mapped is free.
//!   All areas of a space that map the object are gone over under one hold of its writer, so one
//!   that is moved from attachment to attachment takes no entry past the call.
//! - O4. An object is there as long as it has its name or an attachment; the call that takes the
//!   last of both ends it (space::names::B2).
//! - O5. What a program writes to a private area is never the object's: entries of object pages in
//!   such an area are not writable (space::S5), and a copy is the space's own. Whose a huge page is
//!   says its origin, from when it is mapped first until it is back in the pool.
//! - O6. Of an object of huge pages the areas of its space say what is reserved: none of its pages
//!   at first; those of a range that is mapped, from then on. An empty entry stands for a
//!   reservation there (space::S7), which stays when all programs have unmapped it, goes where the
//!   object becomes shorter or ends, and is used up where its page is punched out. Only what is
//!   mapped shared is reserved so. A private area has reservations of its own, for copies and for
//!   pages where the object has none (space::S7, fault::object::J5); a copy goes with the page of
//!   the object, where that is punched out or cut off.
//!
//! **Locking.** The writer of the object's space, for its areas and tables. It is let go before an
//! attachment is gone over, with the writer of the attachment's space: a caller that maps an object
//! may hold that one and want the object's. Outside of both is `cutting`, which a call holds that
//! changes the object's size or punches it: a page that comes back, or a copy of one, is none that
//! an earlier call has still to take out.
//!
//! **Not here**: names of files, descriptors, the bytes behind the end in the last page; what a
//! fault maps of an object (`fault`), which areas have which attachment (`space`).

mod bytes;
mod look;

pub use crate::space::Around;

pub(crate) use bytes::{read, write};
pub(crate) use look::{FoundPage, Looked, look, look_at_huge, place};

use crate::pool::SubpoolId;
use crate::rmap::Pin;
use crate::space::{
    self, Copies, Flags, MapError, ObjectId, Pinned, RangeError, Reserving, Space, Steps,
};
use crate::stock::{Stock, Subpool};
use crate::table::Paging;
use core::iter;
use foliant_machine::Machine;
use foliant_units::{FRAME_BYTES, Pages, Va, VaRange};

/// What an object is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ObjectRequest {
    /// How many pages it has room for. None is there yet.
    pub pages: Pages,
    /// What its folios are: `HUGEPAGE` or `NOHUGEPAGE` as a wish, `HUGE_2M` or `HUGE_1G` for pages
    /// of a pool, or nothing.
    pub flags: Flags,
    /// How many pages it may take, its tables and records among them.
    pub limit: Option<Pages>,
    /// What a read of one of its pages brings besides.
    pub around: Around,
    /// The subpool that its huge pages count for, and their private copies; or none.
    pub subpool: Option<SubpoolId>,
}

/// The pages `from..to` of an object, as addresses of its space.
pub(crate) fn range<P: Paging>(from: Pages, to: Pages) -> Result<VaRange, RangeError> {
    let all = space::user_half::<P>();
    let at = |pages: Pages| match pages.get().checked_mul(FRAME_BYTES).map(Va::new) {
        Some(va) if va <= all.end() => Ok(va),
        _ => Err(RangeError::Outside(all.end())),
    };
    let (from, to) = (at(from)?, at(to)?);
    Ok(VaRange::new(from.min(to), to).expect("in order"))
}

/// Makes an object.
pub(crate) fn create<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    stamp: u32,
    request: &ObjectRequest,
    steps: &mut Steps,
) -> Result<ObjectId, MapError> {
    let known = Flags::HUGEPAGE.with(Flags::NOHUGEPAGE).with(Flags::HUGE_2M).with(Flags::HUGE_1G);
    if request.flags.without(known) != Flags::NONE {
        return Err(MapError::Flags(request.flags));
    }
    space::check_huge::<P>(request.flags)?;
    let end = range::<P>(Pages::new(0), request.pages)?.end();
    let subpool = request.subpool.map_or(Subpool::NONE, |id| id.name);
    let what = (request.flags, request.around, subpool);
    let id = space::create_object(stock, stamp, request.limit, what);
    let id = id.map_err(RangeError::from)?;
    let sized = {
        let object = id.pin(stock).expect("it was made just now");
        space::resize_object(stock, &object, end, steps)
    };
    match sized {
        Ok(_) => Ok(id),
        Err(why) => {
            space::unname(stock, id, steps).expect("nobody knows it yet");
            Err(why.into())
        }
    }
}

/// Makes an object end behind so many pages. Pages beyond are gone, and so is what programs mapped
/// of them, copies too.
pub(crate) fn resize<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    object: &Space,
    pages: Pages,
    steps: &mut Steps,
) -> Result<(), RangeError> {
    let end = range::<P>(Pages::new(0), pages)?.end();
    let _cutting = object.cutting().lock(stock.machine, steps.outside());
    let gone = space::resize_object(stock, object, end, steps)?;
    zap_attached(stock, object, gone, Copies::Go, steps);
    Ok(())
}

/// Drops the pages `from..to` of an object, as far as it has room for them. Copies of them that
/// programs have stay, but for those of huge pages.
pub(crate) fn punch<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    object: &Space,
    (from, to): (Pages, Pages),
    steps: &mut Steps,
) -> Result<(), RangeError> {
    let _cutting = object.cutting().lock(stock.machine, steps.outside());
    let hole = space::drop_object(stock, object, range::<P>(from, to)?, steps)?;
    // As in Linux, copies of huge pages do not outlive what they were copied from.
    let copies = if object.object_huge().is_some() { Copies::Go } else { Copies::Stay };
    zap_attached(stock, object, hole, copies, steps);
    Ok(())
}

/// Refuses a mapping of so many pages from `first` on that no object can reach.
pub(crate) fn check_mapped<P: Paging>(first: Pages, pages: Pages) -> Result<(), RangeError> {
    let end = first.get().checked_add(pages.get()).ok_or(RangeError::Outside(Va::new(u64::MAX)))?;
    range::<P>(first, Pages::new(end)).map(drop)
}

/// Reserves what is missing of the pages `from..to` of an object of huge pages; see
/// [`space::reserve_object`].
pub(crate) fn reserve<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    object: &Space,
    (from, to): (Pages, Pages),
    have: u64,
    steps: &mut Steps,
) -> Result<Reserving, RangeError> {
    space::reserve_object(stock, object, range::<P>(from, to)?, have, steps)
}

/// Takes what programs have of the pages `from..to` of an object out of their tables; copies stay.
/// They fault for it again.
pub(crate) fn unmap<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    object: &Space,
    (from, to): (Pages, Pages),
    steps: &mut Steps,
) {
    if let Ok(range) = range::<P>(from, to) {
        zap_attached(stock, object, range, Copies::Stay, steps);
    }
}

/// The spaces that map an object. One may come several times.
pub(crate) fn spaces<'s, 'm, M: Machine, P: Paging>(
    stock: &'s Stock<'m, M, P>,
    object: &'s Space,
) -> impl Iterator<Item = Pinned<'m>> + use<'s, 'm, M, P> {
    let attachments =
        iter::successors(object.member.first_attachment(stock), |it| it.behind(stock));
    attachments.filter_map(|it| Pinned::of(stock, &it))
}

/// Takes what spaces have of a range of an object out of their tables (O3).
fn zap_attached<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    object: &Space,
    gone: VaRange,
    copies: Copies,
    steps: &mut Steps,
) {
    if gone.is_empty() {
        return;
    }
    let page = |va: Va| va.get() / FRAME_BYTES;
    let mut at: Option<Pin<'_>> = object.member.first_attachment(stock);
    while let Some(pin) = at {
        space::zap_attached(stock, &pin, (page(gone.start()), page(gone.end())), copies, steps);
        at = pin.behind(stock);
    }
}
