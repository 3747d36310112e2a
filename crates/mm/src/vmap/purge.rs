//! Ending the translations that CPUs have cached of ranges that were given back.

use super::record::{Record, Records};
use super::{LAZY_BYTES, Vmap};
use crate::flush::Gather;
use crate::stock::Event;
use crate::table::Paging;
use foliant_machine::{Machine, Reach};
use foliant_units::{FRAME_BYTES, Pages};

/// How many ranges the call that crosses the limit purges with one flush.
const SLICE: usize = 256;

impl<M: Machine, P: Paging> Vmap<'_, '_, M, P> {
    /// Makes the addresses of all ranges that were given back usable again, with one flush. Says
    /// how many pages they have.
    ///
    /// A caller that is about to change attributes of frames elsewhere calls it first: no old
    /// translation of them is left after it.
    pub fn purge(&self) -> Pages {
        let _purging = self.state.purging.lock(self.stock.machine);
        let opened = self.open();
        let (taken, is_emptying) = (opened.take_lazy(), opened.is_emptying());
        drop(opened);
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
    fn purge_taken(&self, (taken, pages): (Records, u64), reach: Reach) -> Pages {
        if taken.count() == 0 && reach == Reach::Items {
            return Pages::new(0);
        }
        let mut gather = Gather::whole(self.stock, self.kernel);
        if reach == Reach::All {
            gather.cover_all();
        }
        let machine = self.stock.machine;
        for id in taken.each(machine) {
            self.note(&mut gather, &Record::at(machine, id));
        }
        if gather.is_pending() {
            self.stock.count(Event::VmapPurge);
            self.stock.count_by(Event::VmapPurged, pages);
        }
        gather.flush();
        while let Some(id) = taken.pop(machine) {
            self.vanish(&Record::at(machine, id));
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
