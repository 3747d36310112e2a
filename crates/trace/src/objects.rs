//! Objects as Linux has them: which pages each has, and what a fault in a shared area brings.
//!
//! An object is memory that several areas map: shared anonymous memory, a memfd, a file of a tmpfs,
//! a System V segment. A fault brings its page into the object, unless it is there, and into the
//! space. A read brings what the object has around it into the space as well, so neighbours that
//! were written by others take no fault of their own:
//!
//! ```text
//!   object   ■ ■ □ ■ ■ □ ■ ■ │ ■ ...       ■ the object has it     □ it has not
//!   space    m m . m F . m m │ . ...       F the read    m mapped with it
//!            └─ 64 KiB, aligned ─┘          . absent still
//! ```
//!
//! Linux passes over a page that somebody else is mapping at that very moment, so a fault on a page
//! that came so is one that had to be: the page was passed over.
//!
//! **Invariants**
//! - O1. A page is in an object from the first fault, call or word of the recording that brings it
//!   until the object is cut short before it or the page is punched out. Nothing else takes it out:
//!   not an unmapping, and not the end of a space.
//! - O2. What a space maps of an object, the object has.
//! - O3. Objects and their pages are drawn from the budget, and stay to the end of the recording.
//!
//! **Not here**: which areas map what (`piece`), ordinary files, whose pages the page cache has.

use crate::budget::{Map, Purse, Spent, Thing, cost};
use crate::event::{Backing, ObjectId};
use foliant_units::{FRAME_BYTES, Order, VaRange};
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes that Linux maps around a read fault (its `fault_around_bytes`, as it comes).
const AROUND: u64 = 16 * FRAME_BYTES;
/// No object that is replayed reaches further: what four levels of page tables map for a program.
const END_MOST: u64 = (1 << 47) - FRAME_BYTES;

/// Where an object with room for so many pages ends, in bytes.
pub(crate) fn end_of(room: u64) -> u64 {
    room.saturating_mul(FRAME_BYTES).min(END_MOST)
}

/// What an area maps: the page at address `va` is the object's at `va + distance`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Attached {
    pub(crate) object: ObjectId,
    /// In bytes and modulo 2^64.
    distance: u64,
}

impl Attached {
    /// Of an area that maps an object from its page `first` on; `None` where it would reach
    /// further than any object does.
    pub(crate) fn new(range: VaRange, object: ObjectId, first: u64) -> Option<Attached> {
        let start = range.start().get();
        let distance = first.checked_mul(FRAME_BYTES)?.wrapping_sub(start);
        Attached { object, distance }.within(&(start..range.end().get()))
    }
    /// It, unless the area would reach further than any object does.
    fn within(self, area: &Range<u64>) -> Option<Attached> {
        let end = self.place(area.start).checked_add(area.end - area.start)?;
        (end <= END_MOST).then_some(self)
    }
    /// Where a page of the area lies in the object, in bytes.
    pub(crate) fn place(self, page: u64) -> u64 {
        page.wrapping_add(self.distance)
    }
    /// What the area maps once it lies `by` bytes higher, modulo 2^64, and is the range `to`;
    /// `None` where it would reach further than any object does.
    pub(crate) fn moved(self, by: u64, to: &Range<u64>) -> Option<Attached> {
        Attached { distance: self.distance.wrapping_sub(by), ..self }.within(to)
    }
    /// The part of an area that maps these bytes of the object.
    pub(crate) fn addresses(self, area: &Range<u64>, bytes: &Range<u64>) -> Range<u64> {
        let from = self.place(area.start);
        let length = area.end - area.start;
        let to = |at: u64| area.start + at.saturating_sub(from).min(length);
        to(bytes.start)..to(bytes.end)
    }
}

/// One object.
pub(crate) struct Object {
    pub(crate) backing: Backing,
    /// Where it ends, in bytes.
    end: u64,
    pages: Map<()>,
}

impl Object {
    /// Whether it has room for the page at this place.
    pub(crate) fn reaches(&self, at: u64) -> bool {
        at < self.end
    }
    /// Whether it has the page at this place.
    pub(crate) fn has(&self, at: u64) -> bool {
        self.pages.get(at).is_some()
    }
    /// Where it ends, in bytes.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }
    /// The places of the pages that it has of these bytes, in order.
    pub(crate) fn pages_in(&self, bytes: &Range<u64>) -> Result<Vec<u64>, Spent> {
        let end = bytes.end.max(bytes.start);
        let there: Vec<u64> = self.pages.range(bytes.start..end).map(|(&at, ())| at).collect();
        self.pages.work(there.len() as u64)?;
        Ok(there)
    }
    /// Puts a page in.
    pub(crate) fn bring(&mut self, at: u64) -> Result<(), Spent> {
        self.pages.insert(at, ())
    }
    /// How many pages of these bytes it has room for and has not.
    pub(crate) fn missing(&self, bytes: &Range<u64>) -> Result<u64, Spent> {
        let end = bytes.end.min(self.end).max(bytes.start);
        let there = self.pages.range(bytes.start..end).count() as u64;
        self.pages.work(there)?;
        Ok((end - bytes.start) / FRAME_BYTES - there)
    }
}

/// All objects of a recording, by their numbers.
pub(crate) struct Objects {
    list: BTreeMap<ObjectId, Object>,
    purse: Purse,
}

impl Objects {
    pub(crate) fn new(purse: Purse) -> Objects {
        Objects { list: BTreeMap::new(), purse }
    }

    pub(crate) fn get(&self, object: ObjectId) -> Option<&Object> {
        self.list.get(&object)
    }
    pub(crate) fn get_mut(&mut self, object: ObjectId) -> Option<&mut Object> {
        self.list.get_mut(&object)
    }

    /// Takes in what a recording says of an object; what it has lost at its end, in bytes.
    pub(crate) fn tell(
        &mut self,
        (object, backing): (ObjectId, Backing),
        room: u64,
        present: &[VaRange],
    ) -> Result<Range<u64>, Spent> {
        let end = end_of(room);
        if !self.list.contains_key(&object) {
            self.purse.take(Thing::Spaces, 1, cost::SPACE)?;
            let pages = Map::new(self.purse.budget(), Thing::Pages, cost::LEADER);
            self.list.insert(object, Object { backing, end, pages });
        }
        let Some(it) = self.list.get_mut(&object) else { return Ok(0..0) };
        let gone = end..it.end.max(end);
        it.end = end;
        it.pages.clear_range(&gone, |_, ()| ())?;
        for range in present {
            for at in (range.start().get()..range.end().get().min(end)).step_by(STEP) {
                it.bring(at)?;
            }
        }
        Ok(gone)
    }

    /// Pages leave an object.
    pub(crate) fn punch(&mut self, object: ObjectId, bytes: &Range<u64>) -> Result<(), Spent> {
        match self.list.get_mut(&object) {
            Some(it) => it.pages.clear_range(bytes, |_, ()| ()),
            None => Ok(()),
        }
    }
}

const STEP: usize = FRAME_BYTES as usize;

/// Where a read at a page of an area looks for pages that the object has: in the aligned window
/// around it, as far as it lies in the area and under one page table. One that the area begins in
/// begins there, and is as long as others.
pub(crate) fn around(page: u64, area: Range<u64>) -> Range<u64> {
    let table = Order::SIZE_2M.bytes().get();
    let first = (page - page % AROUND).max(area.start);
    first..(first + AROUND).min(page - page % table + table).min(area.end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use foliant_units::Va;

    const PAGE: u64 = FRAME_BYTES;

    #[test]
    fn a_read_looks_around_within_its_window_area_and_table() {
        let check = |page: u64, area: Range<u64>, expect: Range<u64>| {
            let found = around(page * PAGE, area.start * PAGE..area.end * PAGE);
            assert_eq!(found, expect.start * PAGE..expect.end * PAGE, "{page} of {area:?}");
        };
        check(21, 0..100, 16..32);
        check(16, 0..100, 16..32);
        check(31, 0..100, 16..32);
        check(21, 18..24, 18..24);
        // The window of an area that begins in one is as long as others.
        check(21, 18..100, 18..34);
        check(510, 505..1000, 505..512);
        check(512, 505..1000, 512..528);
    }

    #[test]
    fn an_area_maps_the_same_pages_wherever_it_is_moved() {
        let range = VaRange::new(Va::new(64 * PAGE), Va::new(96 * PAGE)).unwrap();
        let area = 64 * PAGE..96 * PAGE;
        let attached = Attached::new(range, ObjectId(0), 8).unwrap();
        assert_eq!(attached.place(70 * PAGE), 14 * PAGE);
        for by in [40 * PAGE, (40 * PAGE).wrapping_neg()] {
            let to = (70 * PAGE).wrapping_add(by);
            let area = (area.start.wrapping_add(by))..(area.end.wrapping_add(by));
            assert_eq!(attached.moved(by, &area).unwrap().place(to), 14 * PAGE);
        }
        // Before the object's first page, and behind the last that it can have.
        assert!(attached.moved(0, &(55 * PAGE..60 * PAGE)).is_none());
        assert!(attached.moved(0, &(64 * PAGE..END_MOST + 57 * PAGE)).is_none());
        assert!(attached.moved(0, &(56 * PAGE..END_MOST + 56 * PAGE)).is_some());
        let part = |from: u64, to: u64| attached.addresses(&area, &(from * PAGE..to * PAGE));
        assert_eq!(part(14, 16), 70 * PAGE..72 * PAGE);
        assert_eq!(part(0, 9), 64 * PAGE..65 * PAGE);
        assert_eq!(part(38, 100), 94 * PAGE..96 * PAGE);
        assert!(part(0, 8).is_empty() && part(40, 50).is_empty());
        assert!(Attached::new(range, ObjectId(0), END_MOST / PAGE - 32).is_some());
        for far in [END_MOST / PAGE - 31, u64::MAX / PAGE, u64::MAX] {
            assert!(Attached::new(range, ObjectId(0), far).is_none(), "{far}");
        }
    }
}
