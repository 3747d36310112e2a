//! Collapse: the pages of an aligned range become one folio, mapped by one leaf where it has the
//! size of one, else by the entries that are there.
//!
//! ```text
//!   split    what is larger than a page, up to 64 folios with one flush; before that: can each page move?
//!   move     each page to its place in a new block, up to 64 with one flush      (it is many folios, side by side)
//!   freeze   under the table's lock: each has one entry, exclusive and as expected, and no pin
//!   2 MiB:   break: the table of the range is taken out: a breaking leaf, one flush
//!   fuse     one folio of all of them; their entries are right as they are
//!   2 MiB:   make: a leaf for the breaking one; the table is freed when no walker can be in it
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
//! - L2. What can refuse comes before the first change of the merge: it freezes all pages, or none
//!   and leaves everything as it was.

use crate::flush::Gather;
use crate::folio::Class;
use crate::frame::Claim;
use crate::space::{Area, Flags, Space, level_of};
use crate::split::{
    LIST_MAX, MigrationBatch, MoveGrain, SplitError, SplitInto, SplitRequest, Splitter, Went,
};
use crate::stock::{Event, Held, SizeEvent};
use crate::sync::Outside;
use crate::table::{Attrs, Entry, Paging, Slot, What};
use core::{error, fmt};
use foliant_machine::{Machine, Owner};
use foliant_units::{FRAME_BYTES, Frame, Level, Order, Pa, Pages, Va, VaRange};

/// Why a range was not collapsed. Its contents are what they were; large folios may be pages, and
/// pages elsewhere, by now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CollapseError {
    /// There is no such space.
    NoSpace,
    /// No folio has that size.
    NoSize(Order),
    /// The address is no multiple of the size.
    Misaligned(Va, Order),
    /// No writable area of ordinary memory covers the range, or the area wants no large folios.
    Unsuitable(Va),
    /// A folio of that size, or of a larger one, is there already.
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
            CollapseError::NoSize(order) => {
                write!(f, "{} is no folio size: use 16k to 2m", order.bytes())
            }
            CollapseError::Misaligned(va, order) => {
                write!(f, "{va} is no multiple of {}", order.bytes())
            }
            CollapseError::Unsuitable(va) => {
                write!(f, "no writable area for large folios holds the range at {va}")
            }
            CollapseError::Collapsed(va) => write!(f, "a folio of that size has {va} already"),
            CollapseError::Empty(pages) => write!(f, "{} pages are missing", pages.get()),
            CollapseError::Shared(pages) => write!(f, "{} pages are shared", pages.get()),
            CollapseError::Stays(why) => why.fmt(f),
            CollapseError::NoMemory => f.write_str("no free block, or no frame for a table"),
            CollapseError::Changed(va) => write!(f, "what is at {va} changed: try again"),
        }
    }
}
impl error::Error for CollapseError {}

/// A range of a space that is collapsed.
struct Collapse<'c, 's, 'm, M: Machine, P: Paging> {
    splitter: Splitter<'s, 'm, M, P>,
    space: &'c Space,
    range: VaRange,
    order: Order,
}

/// Makes one folio of `order` of what `space` has at `va`, every page of which is there.
pub(crate) fn collapse<M: Machine, P: Paging>(
    splitter: Splitter<'_, '_, M, P>,
    space: &Space,
    (range, order): (VaRange, Order),
    outside: &mut Outside,
) -> Result<(), CollapseError> {
    let stock = splitter.stock;
    let _work = stock.at_work();
    let has_leaf = level_of(order) > Level::BASE;
    let table = has_leaf.then(|| stock.claim_cleared(Owner::Table)).transpose();
    let table = table.map_err(|_| CollapseError::NoMemory)?;
    let this = Collapse { splitter, space, range, order };
    let done = match stock.claim(order, Class::Movable) {
        Err(_) => {
            stock.count_thp(order, SizeEvent::CollapseAllocFailed, Event::ThpCollapseAllocFailed);
            Err(CollapseError::NoMemory)
        }
        Ok(block) => this.gather_pages(block),
    };
    match done {
        Ok(first) => this.merge(first, table, outside),
        Err(why) => {
            table.into_iter().for_each(|table| stock.release(table));
            Err(why)
        }
    }
}

impl<'s, 'm, M: Machine, P: Paging> Collapse<'_, 's, 'm, M, P> {
    /// Holds the folio of each page in turn, which can move.
    fn held(&self) -> impl Iterator<Item = Result<Held<'s, 'm, M, P>, CollapseError>> {
        let stock = self.splitter.stock;
        let tables = self.space.tables(stock);
        (0..self.order.pages().get()).map(move |nth| {
            let at = self.range.start().add(nth * FRAME_BYTES);
            let frame = {
                let _reading = stock.reading();
                let found = tables.walk(at);
                match found.entry {
                    // Another call did the same, and was faster.
                    Entry::Leaf { .. } if found.level > Level::BASE => {
                        return Err(CollapseError::Collapsed(self.range.start()));
                    }
                    Entry::Leaf { pa, attrs } if !attrs.has(Attrs::SPECIAL) => pa.frame(),
                    _ => return Err(CollapseError::Changed(at)),
                }
            };
            MigrationBatch::hold(stock, frame).map_err(CollapseError::Stays)
        })
    }

    /// Moves each page to its place in `block`.
    fn gather_pages(&self, block: Claim) -> Result<Frame, CollapseError> {
        let stock = self.splitter.stock;
        let first = block.frame();
        let mut places = stock.cut(block, Order::BASE); // those that nothing is moved to go back
        self.split_folios()?;
        let mut migration = MigrationBatch::new(stock, MoveGrain::MOST);
        let mut failed = None;
        let mut each = |_, _, went| match went {
            Went::Moved(old) => stock.release(old),
            Went::Stayed(why) => failed = Some(CollapseError::Stays(why)),
        };
        for (nth, held) in self.held().enumerate() {
            let held = held?;
            if held.order() > Order::BASE {
                // The page went, and its frame is a new folio's.
                return Err(CollapseError::Changed(self.range.start()));
            }
            migration.add(held, places.part(nth as u64).expect("each place once"));
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
    /// Makes pages of the large folios that the range has pages of. Where a page cannot move, that
    /// is found before the first list of them is split.
    fn split_folios(&self) -> Result<(), CollapseError> {
        let mut list = [SplitRequest::of(Frame::new(0)); LIST_MAX];
        let mut used = 0;
        for held in self.held() {
            let held = held?;
            let (head, order) = (held.head(), held.order());
            drop(held);
            if order > Order::BASE && list[..used].iter().all(|request| request.frame != head) {
                list[used] = SplitRequest::of(head);
                used += 1;
            }
            if used == LIST_MAX {
                self.split_list(&mut list)?;
                used = 0;
            }
        }
        self.split_list(&mut list[..used])
    }
    fn split_list(&self, list: &mut [SplitRequest]) -> Result<(), CollapseError> {
        self.splitter.list(list, SplitInto::BASE);
        let why = list.iter().find_map(|request| match request.done {
            Some(Ok(_) | Err(SplitError::Order { .. })) | None => None, // by another CPU
            Some(Err(why)) => Some(CollapseError::Stays(why)),
        });
        why.map_or(Ok(()), Err)
    }

    /// Makes one folio of the pages from `first` on, if they are what the range has, and nobody
    /// else has any of them. A folio that one leaf maps comes with a table to split that.
    fn merge(
        &self,
        first: Frame,
        table: Option<Claim>,
        outside: &mut Outside,
    ) -> Result<(), CollapseError> {
        let (stock, space, va) = (self.splitter.stock, self.space, self.range.start());
        let (tables, level) = (space.tables(stock), level_of(self.order));
        let writer = space.writer.lock(stock.machine, outside);
        let suits = |area: &Area| area.range.covers(self.range) && !area.flags.has(Flags::OBJECT);
        let area = space.areas.find(stock.machine, va).filter(suits);
        let freeze = |pa: Pa, attrs: Attrs| {
            let is_ours = pa.frame() == first && attrs.has(Attrs::EXCLUSIVE);
            is_ours && stock.freeze_pages(first, self.order)
        };
        let begun = area.and_then(|area| match level {
            Level::BASE => tables.agree_alike(self.range, freeze).ok().map(|()| (area, None)),
            _ => tables.collapse_agreed(va, level, freeze).ok().map(|gone| (area, Some(gone))),
        });
        let Some((area, gone)) = begun else {
            drop(writer);
            table.into_iter().for_each(|table| stock.release(table));
            return Err(CollapseError::Changed(va));
        };
        let gone = gone.map(|gone| {
            let mut gather = Gather::new(stock, &space.member.target);
            gather.note_collapsed(&gone);
            (gather.flush(), gone)
        });
        table.into_iter().for_each(|table| space.deposit(stock, table));
        stock.fuse((first, self.order), space.member.origin(va, area.own_offset()));
        let gone = gone.map(|(flushed, gone)| {
            let What::Mapped { pa, attrs } = gone.run.what else {
                unreachable!("they were leaves")
            };
            let locked = tables.lock(va, level).expect("a table with a breaking word stays (S6)");
            locked.set(Slot::of(va, level), P::leaf(pa, level, attrs | Attrs::TOUCHED));
            gone.table.flushed(flushed)
        });
        stock.count_thp(self.order, SizeEvent::CollapseAlloc, Event::ThpCollapseAlloc);
        drop(writer);
        if let Some(table) = gone {
            stock.wait_for_readers(); // of the table that went (table::I6)
            stock.count(Event::TableFreed);
            stock.release(table);
        }
        Ok(())
    }
}
