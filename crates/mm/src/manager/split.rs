//! The face of `split`.

use super::Manager;
use crate::frame::Kind;
use crate::space::SpaceId;
use crate::split::{
    self, Mappings, Pieces, RelocateError, Shrink, Shrunk, SplitError, SplitInto, SplitRequest,
    Splitter,
};
use crate::sync::Outside;
use crate::table::{Attrs, Entry, Paging};
use foliant_machine::Machine;
use foliant_units::{Bytes, FRAME_BYTES, Frame, Va, VaRange};

impl<'m, M: Machine, P: Paging> Manager<'m, M, P> {
    pub(super) fn splitter(&self) -> Splitter<'_, 'm, M, P> {
        Splitter { stock: &self.stock }
    }

    /// Splits the folio that is mapped at `va`.
    pub fn split(&self, id: SpaceId, va: Va, into: SplitInto) -> Result<Pieces, SplitError> {
        let frame = self.frame_at(id, va).ok_or(SplitError::NotMapped(va))?;
        self.split_frame(frame, into)
    }
    /// Splits the folio that holds `frame`.
    pub fn split_frame(&self, frame: Frame, into: SplitInto) -> Result<Pieces, SplitError> {
        let _work = self.stock.at_work(); // with the pieces that nothing maps
        self.splitter().one(frame, into)
    }
    /// Splits a list of folios, with one flush for up to [`LIST_MAX`](crate::split::LIST_MAX) of
    /// them in each space. The outcome of each stands beside it.
    pub fn split_list(&self, list: &mut [SplitRequest], into: SplitInto) {
        let _work = self.stock.at_work();
        self.splitter().list(list, into);
    }

    /// Splits folios that lost pages or hold little but zeros, as far as `how` allows, and gives
    /// back the pages that are not needed.
    pub fn shrink_deferred(&self, how: Shrink) -> Shrunk {
        let _work = self.stock.at_work(); // with the folios that it holds, and what it finds in them
        self.splitter().shrink(how, &mut Outside::at_the_face())
    }
    /// How many folios wait to be looked at by [`shrink_deferred`](Manager::shrink_deferred).
    pub fn deferred(&self) -> u64 {
        self.stock.deferred()
    }

    /// The mappings of the anonymous folio that holds `frame`, whole and in part, found by looking.
    pub fn mappings(&self, frame: Frame) -> Option<Mappings> {
        let reference = self.stock.get_unless_zero(frame)?;
        // Kernel memory can be kept as well, and was made in no space.
        let identity = self.stock.identity(reference.head());
        let is_folio = identity.kind() == Kind::Anon;
        is_folio.then(|| split::mappings(&self.stock, reference.head(), identity.order()))
    }
    /// The entries that map one page, at `frame`, of an anonymous folio, found by looking.
    pub fn page_mappings(&self, frame: Frame) -> Option<u64> {
        let reference = self.stock.get_unless_zero(frame)?;
        let identity = self.stock.identity(reference.head());
        let (head, order) = (reference.head(), identity.order());
        let is_folio = identity.kind() == Kind::Anon;
        is_folio.then(|| split::page_mappings(&self.stock, head, order, frame))
    }

    /// Moves the folio that holds `frame` to other memory, and says where its first frame is now.
    pub fn relocate(&self, frame: Frame) -> Result<Frame, RelocateError> {
        let _work = self.stock.at_work();
        self.splitter().relocate(frame)
    }

    /// The frame of a folio that the space's entry at `va` names.
    pub fn frame_at(&self, id: SpaceId, va: Va) -> Option<Frame> {
        let page = VaRange::sized(va.align_down(Bytes::new(FRAME_BYTES)), Bytes::new(FRAME_BYTES))?;
        self.with_leaves(id, page, |mut leaves| {
            let leaf = leaves.next()?;
            match leaf.entry {
                Entry::Leaf { pa, attrs } if !attrs.has(Attrs::SPECIAL) => {
                    Some(pa.add(page.start().offset_from(leaf.va)).frame())
                }
                _ => None,
            }
        })?
    }
}

#[cfg(test)]
mod tests {
    use crate::fault::{Access, Orders, Policy};
    use crate::manager::Setup;
    use crate::space::{Flags, MapRequest, Place, SpaceId};
    use crate::table::X86_64;
    use crate::{Manager, Outcome};
    use alloc::vec::Vec;
    use foliant_sim::{Config, Sim};
    use foliant_units::{Bytes, Frame, Order, Va, VaRange};

    type Mm<'m> = Manager<'m, Sim, X86_64<4>>;
    const START: Va = Va::new(0x10_0000_0000);
    const LISTS: u64 = 8;

    fn with_manager<R>(work: impl Fn(&Sim, &Mm<'_>, SpaceId) -> R) -> R {
        let sim = Sim::new(Config::seeded(1, Bytes::new(64 << 20), 1)).unwrap();
        let policy = Policy::always(Orders::of(Order::SIZE_2M));
        let mm = Manager::new(&sim, &Setup::of(&sim.config().memory, policy)).unwrap();
        let id = mm.create(None).unwrap();
        let request = MapRequest {
            place: Place::NoReplace(START),
            bytes: Bytes::new(LISTS * Order::SIZE_2M.bytes().get()),
            flags: Flags::READ_WRITE,
            tag: 0,
        };
        mm.map(id, &request).unwrap();
        work(&sim, &mm, id)
    }
    fn block(nth: u64) -> VaRange {
        let bytes = Order::SIZE_2M.bytes();
        VaRange::sized(START.add(nth * bytes.get()), bytes).unwrap()
    }
    fn fault(mm: &Mm<'_>, id: SpaceId, nth: u64) -> Frame {
        let done = mm.fault(id, block(nth).start(), Access::Write);
        assert_eq!(done, Outcome::Mapped(Order::SIZE_2M));
        mm.frame_at(id, block(nth).start()).unwrap()
    }

    /// Seven of the eight lists are held all the time: a CPU that wanted one of them would spin for
    /// ever, which the machine reports.
    #[test]
    fn finding_r4_a_large_folio_takes_one_list_of_eight() {
        let frames: Vec<Frame> =
            with_manager(|_, mm, id| (0..LISTS).map(|nth| fault(mm, id, nth)).collect());
        with_manager(|sim, mm, id| {
            let mut lists: Vec<usize> = Vec::new();
            for (nth, frame) in (0..LISTS).zip(&frames) {
                lists.push(mm.stock.list_of(*frame));
                let _held = mm.stock.hold_other_lists(*frame);
                sim.parallel(1, |_| {
                    assert_eq!(fault(mm, id, nth), *frame, "equal machines, equal frames");
                });
            }
            for (nth, frame) in (0..LISTS).zip(&frames) {
                let _held = mm.stock.hold_other_lists(*frame);
                sim.parallel(1, |_| mm.unmap(id, block(nth)).unwrap());
            }
            lists.sort_unstable();
            assert!(lists.into_iter().eq(0..LISTS as usize), "neighbours are on different lists");
        });
    }
}
