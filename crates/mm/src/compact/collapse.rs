//! Collapse: the pages of an aligned 2 MiB range become one folio, mapped by one leaf.
//!
//! ```text
//!   move     each page to its place in a new block, many with one flush          (it is 512 folios, side by side)
//!   break    the table of the range is taken out: a breaking leaf, one flush     (nobody reaches the pages)
//!   freeze   each of the 512 has one entry and no pin, or the table comes back
//!   fuse     one folio of all of them ─▶ a leaf; the table is freed when no walker can be in it
//! ```
//!
//! A page that is missing, shared or the zero page was made one of the space's own before, by
//! faults (the face). Where something comes in between, the pages stay where they have gone by
//! then, and are still pages: nothing is lost by it.
//!
//! **Invariants**
//! - L1. The merge holds the space's writer, so the area stays what it is. It waits for nobody
//!   meanwhile but its flush. The grace period of the table comes after both, because a fault that
//!   meets the broken leaf waits in its section.

use crate::flush::Gather;
use crate::folio::Class;
use crate::frame::Claim;
use crate::space::Space;
use crate::split::{MigrationBatch, MoveGrain, SplitError, SplitInto, Splitter, Went};
use crate::stock::{Event, Stock};
use crate::sync::Outside;
use crate::table::{Attrs, Entry, Paging, Slot, Spare, What};
use core::{error, fmt};
use foliant_machine::{Machine, Owner};
use foliant_units::{FRAME_BYTES, Frame, Level, Order, Pages, Va, VaRange};

/// Why a range was not collapsed. Its contents are what they were; large folios may be pages, and
/// pages elsewhere, by now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CollapseError {
    /// There is no such space.
    NoSpace,
    /// The address is no multiple of 2 MiB.
    Misaligned(Va),
    /// No writable area of ordinary memory covers the range, or the area wants no large folios.
    Unsuitable(Va),
    /// It is a leaf already.
    Collapsed(Va),
    /// More pages are missing than may be.
    Empty(Pages),
    /// More pages are shared with other spaces than may be.
    Shared(Pages),
    /// A page of it cannot move.
    Stays(SplitError),
    /// No block, no page or no table.
    NoMemory,
    /// Something in it changed meanwhile, or differs from page to page.
    Changed(Va),
}

impl fmt::Display for CollapseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CollapseError::NoSpace => f.write_str("there is no such address space"),
            CollapseError::Misaligned(va) => write!(f, "{va} is no multiple of 2m"),
            CollapseError::Unsuitable(va) => {
                write!(f, "no writable area for large folios holds the 2m at {va}")
            }
            CollapseError::Collapsed(va) => write!(f, "a leaf maps {va} already"),
            CollapseError::Empty(pages) => write!(f, "{} pages are missing", pages.get()),
            CollapseError::Shared(pages) => write!(f, "{} pages are shared", pages.get()),
            CollapseError::Stays(why) => why.fmt(f),
            CollapseError::NoMemory => f.write_str("no free block of 2m, or no frame for a table"),
            CollapseError::Changed(va) => write!(f, "the 2m at {va} changed: try again"),
        }
    }
}
impl error::Error for CollapseError {}

/// Collapses what `space` has at `va`, every page of which is there.
pub(crate) fn collapse<M: Machine, P: Paging>(
    splitter: &Splitter<'_, '_, M, P>,
    space: &Space,
    va: Va,
    outside: &mut Outside,
) -> Result<(), CollapseError> {
    let stock = splitter.stock;
    let _work = stock.at_work();
    let table = stock.claim_cleared(Owner::Table).map_err(|_| CollapseError::NoMemory)?;
    let done = match stock.claim(Order::SIZE_2M, Class::Movable) {
        Err(_) => {
            stock.count(Event::ThpCollapseAllocFailed);
            Err(CollapseError::NoMemory)
        }
        Ok(block) => gather_pages(splitter, space, va, block),
    };
    match done {
        Ok(first) => merge(stock, space, (va, first), table, outside),
        Err(why) => {
            stock.release(table);
            Err(why)
        }
    }
}

/// Moves each page to its place in `block`.
fn gather_pages<'m, M: Machine, P: Paging>(
    splitter: &Splitter<'_, 'm, M, P>,
    space: &Space,
    va: Va,
    block: Claim,
) -> Result<Frame, CollapseError> {
    let stock = splitter.stock;
    let tables = space.tables(stock);
    let first = block.frame();
    let mut places = stock.cut(block, Order::BASE); // those that nothing is moved to go back
    let mut migration = MigrationBatch::new(stock, MoveGrain::MOST);
    let mut failed = None;
    let mut each = |_, _, went| match went {
        Went::Moved(old) => stock.release(old),
        Went::Stayed(why) => failed = Some(CollapseError::Stays(why)),
    };
    for nth in 0..Order::SIZE_2M.pages().get() {
        let at = va.add(nth * FRAME_BYTES);
        let frame = {
            let _reading = stock.reading();
            let found = tables.walk(at);
            match found.entry {
                // Another call did the same, and was faster.
                Entry::Leaf { .. } if found.level > Level::BASE => {
                    return Err(CollapseError::Collapsed(va));
                }
                Entry::Leaf { pa, attrs } if !attrs.has(Attrs::SPECIAL) => pa.frame(),
                _ => return Err(CollapseError::Changed(at)),
            }
        };
        let mut held = MigrationBatch::hold(stock, frame).map_err(CollapseError::Stays)?;
        if held.order() > Order::BASE {
            drop(held);
            match splitter.one(frame, SplitInto::BASE) {
                Ok(_) | Err(SplitError::Order { .. }) => {} // by us, or by another CPU
                Err(why) => return Err(CollapseError::Stays(why)),
            }
            held = MigrationBatch::hold(stock, frame).map_err(CollapseError::Stays)?;
            if held.order() > Order::BASE {
                // The page went, and its frame is a new folio's.
                return Err(CollapseError::Changed(at));
            }
        }
        migration.add(held, places.part(nth).expect("each place once"));
        if migration.is_full() {
            migration.finish(&mut each);
        }
    }
    migration.finish(&mut each);
    match failed {
        Some(why) => Err(why),
        None => Ok(first),
    }
}

/// Makes one folio of the pages from `first` on, if they are what the range has, and nobody else
/// has any of them.
fn merge<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    (va, first): (Va, Frame),
    table: Claim,
    outside: &mut Outside,
) -> Result<(), CollapseError> {
    let (tables, level) = (space.tables(stock), Level::SIZE_2M);
    let whole = VaRange::sized(va, level.span()).ok_or(CollapseError::Misaligned(va))?;
    let writer = space.writer.lock(stock.machine, outside);
    let area = space.areas.find(stock.machine, va).filter(|area| area.range.covers(whole));
    let begun = area.and_then(|area| Some((area, tables.collapse_begin(va, level).ok()?)));
    let Some((area, broken)) = begun else {
        drop(writer);
        stock.release(table);
        return Err(CollapseError::Changed(va));
    };
    let mut gather = Gather::new(stock, &space.member.target);
    gather.note_collapsed(&broken);
    let flushed = gather.flush();
    let What::Mapped { pa, attrs } = broken.run.what else { unreachable!("leaves were collapsed") };
    let done = match pa.frame() == first && stock.freeze_pages(first) {
        true => {
            space.deposit(stock, table);
            stock.fuse(first, space.member.origin(va, area.offset));
            let locked = tables.lock(va, level).expect("a table with a breaking word stays (S6)");
            let attrs = attrs | Attrs::TOUCHED;
            locked.set(Slot::of(va, level), P::leaf(first.pa(), level, attrs));
            stock.count(Event::ThpCollapseAlloc);
            Ok(())
        }
        false => {
            let mut spare = Spare::of(table);
            stock.count(Event::TableMade);
            tables.split_finish(va, level, &mut spare).expect("begun and supplied");
            Err(CollapseError::Changed(va))
        }
    };
    drop(writer);
    stock.wait_for_readers(); // of the table that went (table::I6)
    stock.count(Event::TableFreed);
    stock.release(broken.table.flushed(flushed));
    done
}
