//! Ending the translations that CPUs have cached of ranges that were given back.

use super::record::{Id, RecordWord};
use super::{LAZY_BYTES, Vmap};
use crate::flush::Gather;
use crate::stock::Event;
use crate::table::Paging;
use foliant_machine::{Machine, Reach};
use foliant_units::{FRAME_BYTES, Pages};

/// How many ranges the call that crosses the limit purges with one flush.
const SLICE: u64 = 256;

impl<M: Machine, P: Paging> Vmap<'_, '_, M, P> {
    /// Makes the addresses of all ranges that were given back usable again, with one flush. Says
    /// how many pages they have.
    ///
    /// A caller that is about to change attributes of frames elsewhere calls it first: no old
    /// translation of them is left after it.
    pub fn purge(&self) -> Pages {
        let _purging = self.state.purging.lock(self.stock.machine);
        let tree = self.open();
        let (taken, is_emptying) = (tree.take_lazy(), tree.is_emptying());
        drop(tree);
        // Frames may be another's while the area that had them is not on the list yet.
        self.purge_taken(taken, if is_emptying { Reach::All } else { Reach::Items })
    }
    /// Purges a slice of them, for a call that gives a range back beyond the limit. The work is
    /// bounded, and keeps up, since each such call gives one range back. Afterwards other ranges
    /// may still wait.
    pub(super) fn purge_some(&self) -> Pages {
        let _purging = self.state.purging.lock(self.stock.machine);
        let taken = self.open().take_some_lazy(SLICE);
        self.purge_taken(taken, Reach::Items)
    }
    /// Ends the translations of the ranges that were taken off the list, or of all of them, with
    /// one flush. `purging` is held.
    fn purge_taken(&self, (first, pages): (Id, u64), reach: Reach) -> Pages {
        if first == Id::NONE && reach == Reach::Items {
            return Pages::new(0);
        }
        let mut gather = Gather::whole(self.stock, self.kernel);
        if reach == Reach::All {
            gather.cover_all();
        }
        let mut next = first;
        while let Some(id) = next.some() {
            let area = self.record(id);
            self.note(&mut gather, &area);
            next = area.link(RecordWord::Next);
        }
        if gather.is_pending() {
            self.stock.count(Event::VmapPurge);
            self.stock.count_by(Event::VmapPurged, pages);
        }
        gather.flush();
        let mut next = first;
        while let Some(id) = next.some() {
            let area = self.record(id);
            next = area.link(RecordWord::Next);
            self.vanish(&area);
        }
        Pages::new(pages)
    }
    /// How many pages may wait for a purge: 32 MiB for each power of two of CPUs.
    pub fn lazy_max(&self) -> Pages {
        let powers = usize::BITS - self.stock.machine.count().leading_zeros();
        Pages::new(u64::from(powers) * LAZY_BYTES.get() / FRAME_BYTES)
    }
    /// How many pages wait for one.
    pub fn lazy(&self) -> Pages {
        Pages::new(self.open().lazy_pages())
    }
}
